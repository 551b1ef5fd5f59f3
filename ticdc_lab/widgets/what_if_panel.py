"""What another dispatcher would do, with strategy, rules, partitions, tables and time range to choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ipywidgets as widgets
import plotly.graph_objects as go

from ticdc_lab import figures
from ticdc_lab.comparison import TsRange, first_violation, guarantee_frame, over_time, placement, skew_frame
from ticdc_lab.dispatch.changefeed import changefeed_from_toml
from ticdc_lab.dispatch.choice import choice_of_rules
from ticdc_lab.dispatch.whatif import Choice, WhatIf
from ticdc_lab.errors import DispatchError
from ticdc_lab.figures.theme import label, sentence
from ticdc_lab.tso import LOGICAL_BITS, LOGICAL_MASK
from ticdc_lab.widgets.panel import Panel

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


def what_if_panel(what_if: WhatIf, *, partitions: int = 4) -> Panel[WhatIfView]:
    """Build a panel over the measures of a log; it answers with numpy, without Spark.

    Parameters
    ----------
    what_if
        :meth:`ticdc_lab.dispatch.whatif.WhatIf.from_events`.
    partitions
        Number of partitions to begin with.
    """
    lo, hi = what_if.span_ms
    length = max(0.001, (hi - lo) / 1000)
    controls = {
        "time_range": widgets.FloatRangeSlider(
            value=(0.0, length), min=0.0, max=length, step=length / 200, description="seconds", readout_format=".2f",
            continuous_update=False, layout=widgets.Layout(width="420px"),
        ),
        "tables": widgets.SelectMultiple(options=what_if.tables, value=(), description="tables", rows=4),
        "strategy": widgets.Dropdown(options=what_if.candidates, description="strategy"),
        "rules": widgets.Textarea(
            description="or rules", placeholder=_EXAMPLE, continuous_update=False,
            layout=widgets.Layout(width="420px", height="88px"),
        ),
        "partitions": widgets.IntSlider(
            value=partitions, min=1, max=128, description="partitions", continuous_update=False
        ),
        "weight": widgets.ToggleButtons(options=["rows", "bytes"], description="load in"),
        "picture": widgets.Dropdown(options=list(_PICTURES), description="picture"),
    }  # fmt: skip

    def draw(view: WhatIfView) -> go.Figure:
        first, last = ((lo + round(v * 1000)) << LOGICAL_BITS for v in view.time_range)
        try:
            return _PICTURES[view.picture](what_if, view, (first, last | LOGICAL_MASK))
        except DispatchError as error:  # what the user typed; said where the figure would be
            return sentence("This choice cannot be shown", label(f"{error.message} {error.hint}", most=600))

    return Panel(WhatIfView, controls=controls, draw=draw)


def _chosen(what_if: WhatIf, view: WhatIfView) -> tuple[Choice, str]:
    """The strategy or the rules, and words for it."""
    if not view.rules.strip():
        return view.strategy, view.strategy
    feed = changefeed_from_toml(view.rules, name="the rules")
    return choice_of_rules(what_if, feed.rules, case_sensitive=feed.case_sensitive), "the rules"


def _guarantees(what_if: WhatIf, view: WhatIfView, ts_range: TsRange) -> go.Figure:
    strategy, words = _chosen(what_if, view)
    more = {} if isinstance(strategy, str) else {words: strategy}
    measured = guarantee_frame(
        what_if, partitions=view.partitions, more=more, tables=view.tables or None, ts_range=ts_range
    )
    return figures.guarantee_matrix(measured, partitions=view.partitions, recorded=words)


def _over_time(what_if: WhatIf, view: WhatIfView, ts_range: TsRange) -> go.Figure:
    strategy, words = _chosen(what_if, view)
    found = over_time(
        what_if, strategy=strategy, partitions=view.partitions, weight=view.weight, tables=view.tables or None,
        ts_range=ts_range,
    )  # fmt: skip
    return figures.dispatch_over_time(found, strategy=words, weight=view.weight)


def _rows(what_if: WhatIf, view: WhatIfView, ts_range: TsRange) -> go.Figure:
    strategy, words = _chosen(what_if, view)
    more = {} if isinstance(strategy, str) else {words: strategy}
    rows = placement(what_if, partitions=view.partitions, more=more, tables=view.tables or None, ts_range=ts_range)
    return figures.partition_rows(rows, strategy=words)


def _skew(what_if: WhatIf, view: WhatIfView, ts_range: TsRange) -> go.Figure:
    _chosen(what_if, view)  # of rules no curve is drawn, but what is wrong with them is said
    curves = skew_frame(what_if, tables=view.tables or None, ts_range=ts_range)
    return figures.skew_curves(curves, chosen=view.partitions)


def _example(what_if: WhatIf, view: WhatIfView, ts_range: TsRange) -> go.Figure:
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


_PICTURES: dict[str, Callable[[WhatIf, WhatIfView, TsRange], go.Figure]] = {
    "guarantees": _guarantees,
    "load and breaks over time": _over_time,
    "rows per partition": _rows,
    "skew": _skew,
    "counterexample": _example,
}
