"""Messages by partition and offset, and the life of one row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ticdc_lab import figures
from ticdc_lab.events.tso import clock_words, tso_words
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import sentence
from ticdc_lab.tables.browse import BESIDE, PAGE, Browser, MessagePage, TableTimeline
from ticdc_lab.widgets.composed import Places
from ticdc_lab.widgets.controls import choice, line, moments, number, suggested
from ticdc_lab.widgets.drawing import Drawn
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.widgets.problem import blamed_on
from ticdc_lab.words import count

_ASKED = "the files were read"

_KINDS = ("", "row", "ddl", "watermark", "bootstrap", "admin", "quarantine")
_NOTE = (
    "Messages in the order of partition and offset, as they were recorded. Look for offsets that are left out, for a "
    "commit_ts smaller than one above it, and for what is in quarantine."
)
_AROUND_NOTE = (
    f"The marked messages are those that were chosen, with {BESIDE} offsets before and behind each. Look at their "
    "partitions and at commit_ts; `show all` above goes back to all messages."
)
_SAID, _MOST_PAGE = 4, 1_000_000
_COMMIT_TS = "Only messages with this commit_ts: a TSO, or a time in UTC such as 2026-06-01 12:30:00.123"
_TABLE_NOTE = (
    "The rows of the table at that moment, those changed last on top. Move through time and look for rows that come "
    "and go, and for a moment at which the rows do not fit together."
)


@dataclass(frozen=True, slots=True)
class BrowseView:
    """Which messages a browse panel shows.

    Empty texts mean all; pages are counted from 1. ``commit_ts`` is a TSO or a time (UTC), as text; ``messages`` are
    the partition and offset of each that was chosen elsewhere: they and those beside them are shown, and nothing but
    the topic counts.
    """

    table: str
    partition: int | None
    first_offset: int
    kind: str
    commit_ts: str
    text: str
    messages: tuple[tuple[int, int], ...]
    page: int = 1
    topic: str = ""


def browse_panel(browser: Browser) -> Panel[BrowseView]:
    """Build a panel that pages through a log.

    Parameters
    ----------
    browser
        :meth:`ticdc_lab.tables.browse.Browser.of` the log.
    """
    span, lane = browser.span(), browser.lane
    partitions: list[tuple[str, int | None]] = [("all", None)]
    partitions += [(str(p), int(p)) for p in sorted(set(span["partition"].dropna()))]
    topics = sorted(set(span["topic"].dropna()))
    last = int(span["last_offset"].max()) if len(span) else 0
    tables = [("all", ""), *[(t, t) for t in browser.tables()]]
    controls = {
        "table": choice("table", tables, tip="Only messages about this table"),
        "partition": choice(lane, partitions, tip=f"Only messages of this {lane}"),
        "first_offset": number("from offset", 0, 0, last, step=PAGE, tip=f"A page begins here; {PAGE} events each"),
        "kind": choice("kind", [(k or "all", k) for k in _KINDS], tip="Only messages of this kind"),
        "commit_ts": line(
            "commit ts", tip="Only messages with this commit_ts: a TSO, or a time such as 2026-06-01 12:30:00.123 (UTC)"
        ),
        "text": line("contains", tip="What a table's name, a column, a statement or a reason must contain"),
        "page": number("page", 1, 1, _MOST_PAGE, tip=f"Which {PAGE} of the remaining events; arrow keys turn pages"),
        "messages": Places(),
        "topic": choice("topic", [("all", ""), *[(t, t) for t in topics]], tip="Only messages of this topic"),
    }
    controls["topic"].layout.display = None if len(topics) > 1 else "none"

    def draw(view: BrowseView) -> Drawn:
        if view.messages:
            shown = browser.messages(view.messages, topic=view.topic)
            return Drawn(_around(shown, view, lane), _ASKED, {"messages": shown})
        ts = view.commit_ts.strip() or None
        skip = PAGE * (view.page - 1)
        asked = MessagePage(
            view.partition, view.first_offset, view.kind, view.table, view.text, view.topic, PAGE, ts, skip
        )
        with blamed_on("commit_ts"):
            page, n = browser.page(asked), browser.count(asked)
        where = (f"all {lane}s" if view.partition is None else f"{lane} {view.partition}") + _of_topic(view)
        shown = count(n, "event")
        if n > PAGE:
            shown = f"Page {view.page:,} of {-(-n // PAGE):,}: events {skip + 1:,} to {skip + len(page):,} of {n:,}"
        at = f" ({clock_words(int(ts))})" if ts and ts.isdigit() else ""
        of = f" with commit_ts {ts}{at}" if ts else ""
        title = f"{shown} of {where} from offset {view.first_offset}{of}"
        if n and page.empty:
            return Drawn(sentence(f"There are {-(-n // PAGE):,} pages, and no page {view.page:,}", title), _ASKED)
        return Drawn(figures.listing(page, title=title, note=_NOTE), _ASKED, {"messages": page})

    return Panel(BrowseView, controls=controls, draw=draw, name="browse", made_from=browser.made_from)


def messages_code(view: BrowseView) -> str:
    """The call that gives the page of messages that a panel shows."""
    if view.messages:
        of = f", topic={view.topic!r}" if view.topic else ""
        return f"log.messages(at={[(int(p), int(o)) for p, o in view.messages]}{of})"
    asked = {
        "partition": view.partition, "first_offset": view.first_offset, "kind": view.kind, "table": view.table,
        "text": view.text, "topic": view.topic, "commit_ts": view.commit_ts.strip(), "skip": PAGE * (view.page - 1),
    }  # fmt: skip
    said = [f"{name}={v!r}" for name, v in asked.items() if v or (name == "partition" and v is not None)]
    return f"log.messages({', '.join(said)})"


def _of_topic(view: BrowseView) -> str:
    return f" of topic {view.topic}" if view.topic else ""


def _around(shown: pd.DataFrame, view: BrowseView, lane: str) -> Figure:
    messages = view.messages
    places = [f"{lane} {p} offset {o}" for p, o in messages[:_SAID]]
    more = f" and {len(messages) - _SAID} more" if len(messages) > _SAID else ""
    found = len(shown[shown["named"]][["topic", "partition", "offset"]].drop_duplicates())
    lost = "" if found >= len(messages) else f"; {found} of {len(messages)} are in the log"
    return figures.listing(shown, title=f"Around {', '.join(places)}{more}{_of_topic(view)}{lost}", note=_AROUND_NOTE)


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
        :meth:`ticdc_lab.tables.browse.Browser.of` the log.
    """
    tables = browser.tables() or [""]
    keys = {t: list(browser.busiest_keys(t)["key"]) for t in tables}
    first = next((t for t in tables if keys[t]), tables[0])
    controls = {
        "table": choice("table", tables, value=first, tip="Where the row is"),
        "key": suggested("key", keys[first], tip="Its key as column=value; those with most changes are suggested"),
    }

    def offer(change: Any) -> None:
        controls["key"].options = keys[change["new"]]
        controls["key"].value = next(iter(keys[change["new"]]), "")

    controls["table"].observe(offer, names="value")

    def draw(view: RowView) -> Drawn:
        life = browser.row_life(view.table, view.key)
        return Drawn(figures.row_life(life, table=view.table, key=view.key), _ASKED, {"life": life})

    return Panel(RowView, controls=controls, draw=draw, name="row", made_from=browser.made_from)


@dataclass(frozen=True, slots=True)
class TableView:
    """The moment that a table panel shows: the TSO of one of the table's changes."""

    ts: int


def table_panel(timeline: TableTimeline, *, table: str, made_from: Mapping[str, Any] | None = None) -> Panel[TableView]:
    """Build a panel that shows a table after any of its changes.

    Parameters
    ----------
    timeline
        The table's history.
    table
        What the title calls it.
    made_from
        How the panel can be made again, see :mod:`ticdc_lab.widgets.opening`.
    """
    options = [(clock_words(ts).split(" ")[1], ts) for ts in timeline.moments() or [0]]
    controls = {"ts": moments("as of", options, tip="After which of the table's changes it is shown")}

    def draw(view: TableView) -> Drawn:
        title = f"{table} has {count(timeline.count(view.ts), 'row')} at commit_ts {tso_words(view.ts)}"
        rows = timeline.rows(view.ts)
        return Drawn(
            figures.listing(rows, title=title, note=_TABLE_NOTE, commit_ts=timeline.commit_ts), _ASKED, {"rows": rows}
        )

    return Panel(TableView, controls=controls, draw=draw, name="table", made_from=made_from)
