"""What another dispatcher would do, with strategy, rules, partitions, tables and time range to choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ticdc_lab import figures
from ticdc_lab.dispatch.changefeed import changefeed_from_toml
from ticdc_lab.dispatch.checks import unreached
from ticdc_lab.dispatch.comparison import TsRange, first_violation, guarantee_frame, over_time, placement, skew_frame
from ticdc_lab.dispatch.rules import choice_of_rules
from ticdc_lab.dispatch.whatif import Choice, WhatIf
from ticdc_lab.events.tso import LOGICAL_BITS, LOGICAL_MASK
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import label, sentence
from ticdc_lab.widgets.controls import choice, lines, picture, slider, tables, time_range
from ticdc_lab.widgets.drawing import MEASURED, Drawn, wider_words
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.widgets.problem import blamed_on

_EXAMPLE = """[sink]
dispatchers = [
  {matcher = ['shop.*'], partition = "index-value"},
]"""


@dataclass(frozen=True, slots=True)
class WhatIfView:
    """What the panel shows.

    Seconds since the first change, tables (none means all), a strategy, the dispatchers of a changefeed file instead of
    it (TOML; empty for none), the number of partitions, ``rows`` or ``bytes``, and which picture.
    """

    time_range: tuple[float, float]
    tables: tuple[str, ...]
    strategy: str
    rules: str
    partitions: int
    weight: str
    picture: str


def what_if_panel(
    what_if: WhatIf, *, partitions: int = 4, made_from: Mapping[str, Any] | None = None
) -> Panel[WhatIfView]:
    """Build a panel over the measures of a log; it answers with numpy, without Spark.

    Parameters
    ----------
    what_if
        :meth:`ticdc_lab.dispatch.whatif.WhatIf.from_events`.
    partitions
        Number of partitions to begin with.
    made_from
        How the panel can be made again, see :mod:`ticdc_lab.widgets.opening`.
    """
    lo, hi = what_if.span_ms
    length = max(0.001, (hi - lo) / 1000)
    controls = {
        "time_range": time_range(length),
        "tables": tables(what_if.tables),
        "partitions": slider("partitions", partitions, 1, 128, tip="How many partitions the topic would have"),
        "strategy": choice("strategy", what_if.candidates, tip="Which dispatcher all tables would have"),
        "rules": lines("or rules", placeholder=_EXAMPLE, rows=4, tip="Dispatchers of a changefeed file, instead"),
        "weight": choice("load in", ["rows", "bytes"], tip="What load is counted in"),
        "picture": picture(_PICTURES),
    }

    def draw(view: WhatIfView) -> Figure | Drawn:
        first_ms, last_ms = (lo + round(v * 1000) for v in view.time_range)
        # a stretch ends before the next begins
        first, last = first_ms << LOGICAL_BITS, max(first_ms, last_ms - 1) << LOGICAL_BITS
        with blamed_on("rules" if view.rules.strip() else "strategy"):
            drawn = _PICTURES[view.picture](what_if, view, (first, last | LOGICAL_MASK))
            said = _as_ticdc_acts(what_if, view)
        wider = wider_words(view.time_range, what_if.counted_s((first, last | LOGICAL_MASK)))
        return Drawn(drawn, " ".join([f"{MEASURED}{wider}{'.' * bool(said)}", *said])) if said or wider else drawn

    return Panel(
        WhatIfView, controls=controls, draw=draw, name="what-if", made_from=made_from, origin_ms=lo
    )  # fmt: skip


def _chosen(what_if: WhatIf, view: WhatIfView) -> tuple[Choice, str]:
    """The strategy or the rules, and words for it."""
    if not view.rules.strip():
        return view.strategy, view.strategy
    feed = changefeed_from_toml(view.rules, name="the rules")
    return choice_of_rules(what_if, feed.rules, case_sensitive=feed.case_sensitive), "the rules"


def _as_ticdc_acts(what_if: WhatIf, view: WhatIfView) -> list[str]:
    """What TiCDC makes of the rules that they do not seem to ask for."""
    if not view.rules.strip():
        return []
    feed = changefeed_from_toml(view.rules, name="the rules")
    tables = [t for entry in what_if.tables for t in what_if.together.get(entry, [entry])]
    named = [(schema, table) for schema, _, table in (t.partition(".") for t in tables)]
    return [*feed.notes, *unreached(feed.rules, named, case_sensitive=feed.case_sensitive)]


def _guarantees(what_if: WhatIf, view: WhatIfView, ts_range: TsRange) -> Figure:
    strategy, words = _chosen(what_if, view)
    more = {} if isinstance(strategy, str) else {words: strategy}
    measured = guarantee_frame(
        what_if, partitions=view.partitions, more=more, tables=view.tables or None, ts_range=ts_range
    )
    return figures.guarantee_matrix(measured, partitions=view.partitions, chosen=words)


def _over_time(what_if: WhatIf, view: WhatIfView, ts_range: TsRange) -> Figure:
    strategy, words = _chosen(what_if, view)
    found = over_time(
        what_if, strategy=strategy, partitions=view.partitions, weight=view.weight, tables=view.tables or None,
        ts_range=ts_range,
    )  # fmt: skip
    return figures.dispatch_over_time(found, strategy=words, weight=view.weight)


def _rows(what_if: WhatIf, view: WhatIfView, ts_range: TsRange) -> Figure:
    strategy, words = _chosen(what_if, view)
    more = {} if isinstance(strategy, str) else {words: strategy}
    rows = placement(what_if, partitions=view.partitions, more=more, tables=view.tables or None, ts_range=ts_range)
    return figures.partition_rows(rows, strategy=words)


def _skew(what_if: WhatIf, view: WhatIfView, ts_range: TsRange) -> Figure:
    _chosen(what_if, view)  # of rules no curve is drawn, but what is wrong with them is shown
    curves = skew_frame(what_if, tables=view.tables or None, ts_range=ts_range)
    return figures.skew_curves(curves, chosen=view.partitions)


def _example(what_if: WhatIf, view: WhatIfView, ts_range: TsRange) -> Figure:
    strategy, words = _chosen(what_if, view)
    found = first_violation(
        what_if, strategy=strategy, partitions=view.partitions, tables=view.tables or None, ts_range=ts_range
    )
    if found is None:
        n = f"{view.partitions} partition{'' if view.partitions == 1 else 's'}"
        kept = f"{label(words)} with {n} breaks nothing here"
        return sentence(
            kept, "Every case in the chosen tables and time range keeps row order, table order and transactions."
        )
    return figures.counterexample(found)


_PICTURES: dict[str, Callable[[WhatIf, WhatIfView, TsRange], Figure]] = {
    "guarantees": _guarantees,
    "load and breaks over time": _over_time,
    "rows per partition": _rows,
    "skew": _skew,
    "counterexample": _example,
}
