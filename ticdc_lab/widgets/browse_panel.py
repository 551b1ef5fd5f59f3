"""Messages by partition and offset, and the life of one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets
import plotly.graph_objects as go

from ticdc_lab import figures
from ticdc_lab.browse import PAGE, Browser, Page, TableTimeline
from ticdc_lab.figures.theme import count
from ticdc_lab.tso import to_datetime
from ticdc_lab.widgets.panel import Panel

_KINDS = ("", "row", "ddl", "watermark", "bootstrap", "admin", "quarantine")
_NOTE = (
    "Messages in the order of partition and offset, as the log holds them. Look for offsets that are left out, for a "
    "commit_ts smaller than one above it, and for what is in quarantine."
)
_TABLE_NOTE = (
    "The rows of the table at that moment, those changed last on top. Move through time and look for rows that come and "
    "go, and for a moment at which the rows do not fit together."
)


@dataclass(frozen=True, slots=True)
class BrowseView:
    """Which messages a browse panel shows; empty texts mean all."""

    partition: int | None
    first_offset: int
    kind: str
    table: str
    text: str


def browse_panel(browser: Browser) -> Panel[BrowseView]:
    """Build a panel that pages through a log.

    Parameters
    ----------
    browser
        :meth:`ticdc_lab.browse.Browser.of` the log.
    """
    span = browser.span()
    partitions: list[tuple[str, int | None]] = [("all", None)]
    partitions += [(str(p), int(p)) for p in sorted(set(span["partition"].dropna()))]
    last = int(span["last_offset"].max()) if len(span) else 0
    controls = {
        "partition": widgets.Dropdown(options=partitions, value=None, description="partition"),
        "first_offset": widgets.BoundedIntText(value=0, min=0, max=last, step=PAGE, description="from offset"),
        "kind": widgets.Dropdown(options=[(k or "all", k) for k in _KINDS], value="", description="kind"),
        "table": widgets.Dropdown(options=[("all", ""), *[(t, t) for t in browser.tables()]], description="table"),
        "text": widgets.Text(value="", description="contains", continuous_update=False),
    }

    def draw(view: BrowseView) -> go.Figure:
        page = browser.page(Page(view.partition, view.first_offset, view.kind, view.table, view.text))
        where = "all partitions" if view.partition is None else f"partition {view.partition}"
        shown = count(len(page), "event") + (" (a full page)" if len(page) == PAGE else "")
        title = f"{shown} of {where} from offset {view.first_offset}"
        return figures.listing(page, title=title, note=_NOTE)

    return Panel(BrowseView, controls=controls, draw=draw)


@dataclass(frozen=True, slots=True)
class RowView:
    """The row that a row panel follows: ``schema.table``, and its key as ``column=value``."""

    table: str
    key: str


def row_panel(browser: Browser) -> Panel[RowView]:
    """Build a panel that follows one row; the keys offered are those with most changes.

    Parameters
    ----------
    browser
        :meth:`ticdc_lab.browse.Browser.of` the log.
    """
    tables = browser.tables() or [""]
    keys = {t: list(browser.busiest_keys(t)["key"]) for t in tables}
    first = next((t for t in tables if keys[t]), tables[0])
    controls = {
        "table": widgets.Dropdown(options=tables, value=first, description="table"),
        "key": widgets.Combobox(
            options=keys[first], value=next(iter(keys[first]), ""), description="key", continuous_update=False
        ),
    }

    def offer(change: Any) -> None:
        controls["key"].options = keys[change["new"]]
        controls["key"].value = next(iter(keys[change["new"]]), "")

    controls["table"].observe(offer, names="value")

    def draw(view: RowView) -> go.Figure:
        return figures.row_life(browser.row_life(view.table, view.key), table=view.table, key=view.key)

    return Panel(RowView, controls=controls, draw=draw)


@dataclass(frozen=True, slots=True)
class TableView:
    """The moment that a table panel shows: the TSO of one of the table's changes."""

    ts: int


def table_panel(timeline: TableTimeline, *, table: str) -> Panel[TableView]:
    """Build a panel that shows a table after any of its changes.

    Parameters
    ----------
    timeline
        The table's history.
    table
        What the title calls it.
    """
    moments = timeline.moments() or [0]
    options = [(f"{to_datetime(ts):%H:%M:%S.%f}"[:-3], ts) for ts in moments]
    controls = {
        "ts": widgets.SelectionSlider(
            options=options, value=moments[-1], description="as of", continuous_update=False,
            layout=widgets.Layout(width="520px"),
        )
    }  # fmt: skip

    def draw(view: TableView) -> go.Figure:
        title = f"{table} has {count(timeline.count(view.ts), 'row')} at commit_ts {view.ts}"
        return figures.listing(timeline.rows(view.ts), title=title, note=_TABLE_NOTE)

    return Panel(TableView, controls=controls, draw=draw)
