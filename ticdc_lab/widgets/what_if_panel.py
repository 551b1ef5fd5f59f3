"""What another dispatcher would do, with strategy, partitions, tables and time range to choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ipywidgets as widgets
import plotly.graph_objects as go

from ticdc_lab import figures
from ticdc_lab.comparison import TsRange, first_violation, guarantee_frame, placement, skew_frame
from ticdc_lab.dispatch.whatif import WhatIf
from ticdc_lab.figures.theme import label, sentence
from ticdc_lab.tso import LOGICAL_BITS, LOGICAL_MASK
from ticdc_lab.widgets.panel import Panel


@dataclass(frozen=True, slots=True)
class WhatIfView:
    """What the panel shows: seconds since the first change, tables (none means all), a strategy, and which picture."""

    time_range: tuple[float, float]
    tables: tuple[str, ...]
    strategy: str
    partitions: int
    picture: str


def what_if_panel(what_if: WhatIf, *, partitions: int = 4) -> Panel[WhatIfView]:
    """Build a panel over the facts of a log; it answers with numpy, without Spark.

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
        "partitions": widgets.IntSlider(
            value=partitions, min=1, max=128, description="partitions", continuous_update=False
        ),
        "picture": widgets.Dropdown(options=list(_PICTURES), description="picture"),
    }  # fmt: skip

    def draw(view: WhatIfView) -> go.Figure:
        first, last = ((lo + round(v * 1000)) << LOGICAL_BITS for v in view.time_range)
        return _PICTURES[view.picture](what_if, view, (first, last | LOGICAL_MASK))

    return Panel(WhatIfView, controls=controls, draw=draw)


def _guarantees(what_if: WhatIf, view: WhatIfView, ts_range: TsRange) -> go.Figure:
    measured = guarantee_frame(what_if, partitions=view.partitions, tables=view.tables or None, ts_range=ts_range)
    return figures.guarantee_matrix(measured, partitions=view.partitions, recorded=view.strategy)


def _rows(what_if: WhatIf, view: WhatIfView, ts_range: TsRange) -> go.Figure:
    rows = placement(what_if, partitions=view.partitions, tables=view.tables or None, ts_range=ts_range)
    return figures.partition_rows(rows, strategy=view.strategy)


def _skew(what_if: WhatIf, view: WhatIfView, ts_range: TsRange) -> go.Figure:
    curves = skew_frame(what_if, tables=view.tables or None, ts_range=ts_range)
    return figures.skew_curves(curves, chosen=view.partitions)


def _example(what_if: WhatIf, view: WhatIfView, ts_range: TsRange) -> go.Figure:
    asked = {"strategy": view.strategy, "partitions": view.partitions}
    found = first_violation(what_if, **asked, tables=view.tables or None, ts_range=ts_range)  # type: ignore[arg-type]
    if found is None:
        n = f"{view.partitions} partition{'' if view.partitions == 1 else 's'}"
        kept = f"{label(view.strategy)} with {n} breaks nothing here"
        return sentence(
            kept, "Every case in the chosen tables and time range keeps row order, table order and transactions."
        )
    return figures.counterexample(found)


_PICTURES: dict[str, Callable[[WhatIf, WhatIfView, TsRange], go.Figure]] = {
    "guarantees": _guarantees,
    "rows per partition": _rows,
    "skew": _skew,
    "counterexample": _example,
}
