"""What a workbench shows of a log: a tab for each question, computed when it is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import ipywidgets as widgets

from ticdc_lab import figures
from ticdc_lab.errors import SourceError
from ticdc_lab.figures.theme import count
from ticdc_lab.tso import compose
from ticdc_lab.widgets.browse_panel import browse_panel, row_panel
from ticdc_lab.widgets.consumer_panel import consumer_panel
from ticdc_lab.widgets.controls import choice, seconds
from ticdc_lab.widgets.drawing import Drawn
from ticdc_lab.widgets.findings_panel import findings_panel
from ticdc_lab.widgets.log_panel import log_panel, span_ms
from ticdc_lab.widgets.opened import Opened
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.widgets.what_if_panel import what_if_panel

_TABLE_NOTE = (
    "The rows of the table at that moment, those changed last on top. Of a sample by time only rows that changed in "
    "the window are there."
)


@dataclass(frozen=True, slots=True)
class Tab:
    """A question.

    Attributes
    ----------
    title
        What the tab is called.
    doing
        What is said while it is computed.
    make
        The panel, from a log; may start Spark jobs.
    s_per_million
        Seconds that computing takes for a million events on two cores, about.
    """

    title: str
    doing: str
    make: Callable[[Opened], Panel[Any]]
    s_per_million: float = 0.0


@dataclass(frozen=True, slots=True)
class TableAtView:
    """Which table is shown, and at which moment: seconds since the first event of the log."""

    table: str
    at_s: float


def table_at_panel(opened: Opened) -> Panel[TableAtView]:
    """Build a panel that shows any table at any moment; a table's history is computed when it is first chosen."""
    names = opened.tables
    opened.log.require_commit_ts("a table as of a moment")
    lo, hi = span_ms(opened.summary)
    length = max(0.001, (hi - lo) / 1000)
    controls: Mapping[str, widgets.Widget] = {
        "table": choice("table", names, tip="Its history is computed when it is first chosen"),
        "at_s": seconds("as of, s", length, length, step=length / 200, tip="Seconds since the first event of the log"),
    }

    def draw(view: TableAtView) -> Drawn:
        timeline = opened.timeline(view.table)
        ts = compose(lo + round(1000 * view.at_s) + 1) - 1
        title = f"{view.table} has {count(timeline.count(ts), 'row')} {view.at_s:.2f} s after the first event"
        return Drawn(figures.listing(timeline.rows(ts), title=title, note=_TABLE_NOTE), "the files were asked")

    return Panel(
        TableAtView, controls=controls, draw=draw, name="table-at", slow=True, doing="the table's history is computed",
        origin_ms=lo, made_from=opened.log.made_from,
    )  # fmt: skip


def _of_summary(opened: Opened, *, pictures: tuple[str, ...], needs: str = "") -> Panel[Any]:
    if needs:
        opened.log.require_commit_ts(needs)
    return log_panel(opened.summary, pictures=pictures)


def _what_if(opened: Opened) -> Panel[Any]:
    if not opened.what_if.tables:
        raise SourceError("The log holds no row change with a commit_ts, so there is nothing to dispatch.")
    partitions = max(opened.summary.contents["partition"], default=0) + 1
    return what_if_panel(opened.what_if, partitions=min(128, int(partitions)), made_from=opened.log.made_from)


def _audit(opened: Opened) -> Panel[Any]:
    return findings_panel(opened.findings, made_from=opened.log.made_from)


def _consumer(opened: Opened) -> Panel[Any]:
    tables = opened.browser.tables()
    if not tables:
        raise SourceError("The log holds no row change, so a consumer has nothing to apply.")
    images = {table: opened.browser.images(table) for table in tables}
    return consumer_panel(opened.excerpt, images, made_from=opened.log.made_from)


TABS: Mapping[str, Tab] = MappingProxyType(
    {
        "overview": Tab(
            "overview", "counting what it holds",
            partial(_of_summary, pictures=("load by table", "load by partition")), 12.0,
        ),
        "watermarks": Tab(
            "watermarks", "following watermarks",
            partial(
                _of_summary, pictures=("watermark ladder", "lag"), needs="how far it is complete"
            ), 12.0,
        ),
        "transactions": Tab(
            "transactions", "restoring transactions",
            partial(_of_summary, pictures=("transactions",), needs="which transactions are whole"),
            12.0,
        ),
        "dispatch": Tab("dispatch what-if", "measuring every dispatcher", _what_if, 20.0),
        "messages": Tab(
            "messages", "opening the files", lambda o: browse_panel(o.browser), 1.0
        ),
        "row": Tab("a row's life", "opening the files", lambda o: row_panel(o.browser), 3.0),
        "table": Tab("a table as of", "following the table's rows", table_at_panel, 12.0),
        "consumer": Tab("consumer", "running a consumer over its beginning", _consumer, 8.0),
        "audit": Tab("audit", "checking every promise", _audit, 10.0),
    }
)  # fmt: skip
"""Name to tab, in their order."""
