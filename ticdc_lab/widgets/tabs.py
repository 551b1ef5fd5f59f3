"""What a workbench shows of a log: a tab for each question, computed when it is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import duckdb
import ipywidgets as widgets

from ticdc_lab import figures
from ticdc_lab.answers import PARTITIONS, Answer, without_partitions
from ticdc_lab.dispatch.sweep import compiling_s
from ticdc_lab.errors import SourceError
from ticdc_lab.events.tso import compose
from ticdc_lab.facts.watermarks import rhythm_of
from ticdc_lab.figures.theme import label, sentence
from ticdc_lab.log import Log
from ticdc_lab.widgets.browse_panel import browse_panel, messages_code, row_panel
from ticdc_lab.widgets.consumer_panel import consumer_panel
from ticdc_lab.widgets.controls import choice, seconds
from ticdc_lab.widgets.drawing import Drawn
from ticdc_lab.widgets.findings_panel import findings_panel
from ticdc_lab.widgets.log_panel import log_panel, span_ms
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.widgets.settings_panel import settings_panel
from ticdc_lab.widgets.what_if_panel import what_if_panel
from ticdc_lab.words import count

_TABLE_NOTE = (
    "The rows of the table at that moment, those changed last on top. Of a sample by time only rows that changed in "
    "the window are there."
)


MOST_AT_ONCE = 100_000
"""Rows of a table at a moment that are brought; its count gives how many there are."""


@dataclass(frozen=True, slots=True)
class Tab:
    """A question."""

    title: str  # what the tab is called
    doing: str  # what is shown while it is computed
    make: Callable[[Log], Panel[Any]]  # the panel, from a log; may start Spark jobs
    answer: Callable[[Log], Answer] | None = None  # what is shown above the panel
    # The call that gives the answer and its frames, from the panel.
    code: Callable[[Panel[Any]], str] = lambda panel: ""
    # CPU seconds that kernels of its own have to be compiled first, as of this moment.
    compiling_s: Callable[[], float] = lambda: 0.0
    # The function of :mod:`ticdc_lab.widgets` and its argument that make the panel, where ``code`` gives more than what
    # is chosen in it.
    chosen: str = ""
    gives_rows: bool = False  # ``code`` gives rows, and no answer
    # Makes views of all rows of a log in a connection; :meth:`ticdc_lab.log.Log.sql` knows them by the same names.
    views: Callable[[Log, duckdb.DuckDBPyConnection], str | None] | None = None

    def code_of(self, panel: Panel[Any], *, at_first: Any) -> str:
        """The code that shows what the panel shows: the answer, or where something is chosen, the panel with that."""
        if panel.value == at_first or not self.chosen:
            return self.code(panel)
        return f"panel = widgets.{self.chosen}; panel.value = widgets.{panel.value!r}; panel"


@dataclass(frozen=True, slots=True)
class TableAtView:
    """Which table is shown, and at which moment: seconds since the first event of the log."""

    table: str
    at_s: float


def _moment(view: TableAtView, origin_ms: int | None) -> int:
    """The TSO that ends the millisecond of a view."""
    return compose((origin_ms or 0) + round(1000 * view.at_s) + 1) - 1


def table_at_panel(log: Log) -> Panel[TableAtView]:
    """Build a panel that shows any table at any moment; a table's history is computed when it is first chosen."""
    names = log.tables
    log.change_log.require_commit_ts("a table as of a moment")
    lo, hi = span_ms(log.summary)
    length = max(0.001, (hi - lo) / 1000)
    controls: Mapping[str, widgets.Widget] = {
        "table": choice("table", names, tip="Its history is computed when it is first chosen"),
        "at_s": seconds("as of, s", length, length, step=length / 200, tip="Seconds since the first event of the log"),
    }

    def draw(view: TableAtView) -> Drawn:
        timeline = log.timeline(view.table)
        ts = _moment(view, lo)
        title = f"{label(view.table)} has {count(timeline.count(ts), 'row')} {view.at_s:.2f} s after the first event"
        rows = timeline.rows(ts, n=MOST_AT_ONCE)
        drawn = figures.listing(rows, title=title, note=_TABLE_NOTE, commit_ts=timeline.commit_ts)
        return Drawn(drawn, "the files were read", {"rows": rows})

    return Panel(
        TableAtView, controls=controls, draw=draw, name="table-at", slow=True, doing="the table's history is computed",
        origin_ms=lo, made_from=log.change_log.made_from,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class StallsView:
    """How many seconds between two watermarks make a stall."""

    stall_s: float


def why_panel(log: Log) -> Panel[StallsView]:
    """Build a panel of the log's stalls, the longest first; at its begin they are measured against its own rhythm."""
    log.change_log.require_commit_ts("why its watermarks stalled")
    rhythm = rhythm_of(log.change_log.facts)
    most = max(rhythm.longest_s, 2 * rhythm.stall_s)
    tip = "Seconds between two watermarks that make a stall"
    controls = {"stall_s": seconds("stall, s", rhythm.stall_s, most, step=most / 200, tip=tip)}

    def draw(view: StallsView) -> Drawn:
        answer = log.why(stall_s=view.stall_s)
        drawn = answer.figures.get("stalls") or sentence(answer.finding.rstrip("."), " ".join(answer.details))
        return Drawn(drawn, "watermarks were followed", answer.frames)

    return Panel(
        StallsView, controls=controls, draw=draw, name="why", slow=True, doing="watermarks are followed",
        made_from=log.change_log.made_from,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AdviceView:
    """What must stay in order, and of which table; empty: of all."""

    keep: str
    table: str = ""


def advice_panel(log: Log) -> Panel[AdviceView]:
    """Build a panel of the dispatcher that each table should have, or one of them."""
    log.change_log.require_commit_ts("advice")
    of_all = [("all tables", ""), *((name, name) for name in log.browser.tables())]
    controls = {
        "keep": choice("keep in order", [(_KEPT[k], k) for k in _KEPT], tip="What a dispatcher must not break"),
        "table": choice("table", of_all, tip="Which table to advise on"),
    }
    controls["keep"].value = "unique"

    def draw(view: AdviceView) -> Drawn:
        answer = log.advise(keep=view.keep, tables=(view.table,) if view.table else ())
        note = " ".join([_ADVICE_NOTE, *(label(detail, most=400) for detail in answer.details)])
        drawn = figures.listing(answer.frame, title=label(answer.finding.rstrip("."), most=900), note=note)
        return Drawn(drawn, "every dispatcher was measured", answer.frames)

    return Panel(
        AdviceView, controls=controls, draw=draw, name="advise", slow=True, doing="every dispatcher is measured",
        made_from=log.change_log.made_from,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PartitionsView:
    """How many partitions the topic would have."""

    to: int


def partitions_panel(log: Log) -> Panel[PartitionsView]:
    """Build a panel of what another number of partitions moves, costs and breaks, with all numbers in a table."""
    first = log.partitions()
    if first.frame.empty:
        raise SourceError(first.finding, hint=" ".join(first.details))
    to, before = first.values["to"], first.values["before"]
    numbers = [n for n in sorted({*PARTITIONS, to}) if n != before]
    controls = {"to": choice("partitions", [(str(n), n) for n in numbers], tip="How many the topic would have")}
    controls["to"].value = to

    def draw(view: PartitionsView) -> Drawn:
        answer = first if view.to == to else log.partitions(to=view.to)
        note = " ".join(label(said, most=400) for said in (*answer.details, *answer.limits))
        drawn = figures.listing(answer.frame, title=label(answer.finding.rstrip("."), most=900), note=note)
        return Drawn(drawn, "keys and rows were counted", answer.frames)

    return Panel(
        PartitionsView, controls=controls, draw=draw, name="partitions", slow=True, doing="keys that move are counted",
        made_from=log.change_log.made_from,
    )  # fmt: skip


def _of_one(table: str) -> str:
    return f", tables=({table!r},)" if table else ""


_KEPT = {
    "row": "a row's changes",
    "unique": "rows that share a unique value",
    "transaction": "transactions of a table",
    "table": "a table's changes",
}
_ADVICE_NOTE = (
    "now: the dispatcher that explains the table's rows; take: the one to set in the changefeed; fullest: rows of its "
    "fullest partition, times the mean. The changefeed file is in the frame dispatchers below."
)


def _of_summary(log: Log, *, pictures: tuple[str, ...], needs: str = "") -> Panel[Any]:
    if needs:
        log.change_log.require_commit_ts(needs)
    return log_panel(log.summary, pictures=pictures)


def _what_if(log: Log) -> Panel[Any]:
    if not log.measured.tables:
        raise SourceError("The log has no row change with a commit_ts, so there is nothing to dispatch.")
    if log.change_log.of_storage:
        answer = without_partitions(log.source)
        raise SourceError(answer.finding, hint=answer.details[0])
    partitions, _ = log.recorded_partitions()
    return what_if_panel(log.measured, partitions=partitions, made_from=log.change_log.made_from)


def _settings(log: Log) -> Panel[Any]:
    return settings_panel(log.known_settings, made_from=log.change_log.made_from)


def _consumer(log: Log) -> Panel[Any]:
    tables = log.browser.tables()
    if not tables:
        raise SourceError("The log has no row change, so a consumer has nothing to apply.")
    images = {table: log.browser.images(table) for table in tables}
    return consumer_panel(log.excerpt, images, lane=log.summary.lane, made_from=log.change_log.made_from)


_SUMMARY = "log_panel(log.summary)"

TABS: Mapping[str, Tab] = MappingProxyType(
    {
        "overview": Tab(
            "overview", "counting what it contains",
            partial(_of_summary, pictures=("load by table", "load by partition")), Log.contents,
            lambda p: "log.contents()", chosen=_SUMMARY,
        ),
        "watermarks": Tab(
            "watermarks", "following watermarks",
            partial(
                _of_summary, pictures=("watermark ladder", "lag"), needs="how far it is complete"
            ), Log.watermarks, lambda p: "log.watermarks()", chosen=_SUMMARY,
        ),
        "why": Tab(
            "why it stalled", "following watermarks", why_panel, Log.why,
            lambda p: f"log.why(stall_s={p.value.stall_s!r})",
        ),
        "transactions": Tab(
            "transactions", "restoring transactions",
            partial(_of_summary, pictures=("transactions",), needs="which transactions are whole"),
            Log.transactions, lambda p: "log.transactions()", chosen=_SUMMARY, views=Log.attach_transactions,
        ),
        "dispatch": Tab(
            "dispatch what-if", "measuring every dispatcher", _what_if, Log.what_if,
            lambda p: f"log.what_if(partitions={p.value.partitions})", compiling_s,
            chosen="what_if_panel(log.measured, partitions=log.recorded_partitions()[0])",
        ),
        "advise": Tab(
            "advice", "measuring every dispatcher", advice_panel, None,
            lambda p: f"log.advise(keep={p.value.keep!r}{_of_one(p.value.table)})", compiling_s,
        ),
        "partitions": Tab(
            "partitions", "counting keys that move", partitions_panel, None,
            lambda p: f"log.partitions(to={p.value.to})", compiling_s,
        ),
        "messages": Tab(
            "messages", "opening the files", lambda log: browse_panel(log.browser), None,
            lambda p: messages_code(p.value),
            views=lambda log, connection: log.browser.attach(connection),
        ),
        "row": Tab(
            "a row's life", "opening the files", lambda log: row_panel(log.browser), None,
            lambda p: f"log.row({p.value.table!r}, {p.value.key!r})",
        ),
        "table": Tab(
            "a table as of", "following the table's rows", table_at_panel,
            code=lambda p: f"log.timeline({p.value.table!r}).rows({_moment(p.value, p.origin_ms)}, n={MOST_AT_ONCE})",
            gives_rows=True,
        ),
        "consumer": Tab(
            "consumer", "running a consumer over its beginning", _consumer, Log.consumers,
            lambda p: "log.consumers()",
            chosen="consumer_panel(log.excerpt, {t: log.browser.images(t) for t in log.browser.tables()})",
        ),
        "audit": Tab(
            "audit", "checking every promise",
            lambda log: findings_panel(log.findings, lane=log.summary.lane, made_from=log.change_log.made_from),
            partial(Log.audit, messages=False),
            lambda p: "log.audit()", chosen="findings_panel(log.findings)",
        ),
        "settings": Tab(
            "settings", "counting what images show", _settings, Log.settings,
            lambda p: "log.settings()", chosen="settings_panel(log.known_settings)",
        ),
    }
)  # fmt: skip
"""Name to tab, in their order."""
