"""A cluster to try out: protocol, size, seed, assumptions, a fault at a chosen moment, and every picture of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import ipywidgets as widgets
import plotly.graph_objects as go
import pyarrow as pa

from ticdc_lab import figures
from ticdc_lab.widgets.composed import Player
from ticdc_lab.widgets.panel import Panel

STEPS = 100
"""Moments of the player: all steps at which something is drawn, or evenly chosen ones of more."""

NOTHING = "nothing"


class Ran(Protocol):
    """A run, as :class:`ticdc_lab.simulate.scheduler.run.Run` is."""

    @property
    def trace(self) -> pa.Table:
        """:data:`ticdc_lab.simulate.trace.TRACE`."""
        ...

    def again(self, at_us: int, faults: Sequence[Any]) -> Ran:
        """Run once more with other faults from a moment on."""
        ...


@dataclass(frozen=True, slots=True)
class SchedulerView:
    """What the panel shows.

    The protocol, how many captures and tables, the seed, which assumptions of the seed hold, the fault that is injected
    (a name of the panel's faults, or :data:`NOTHING`), at which capture and when (s), the picture, and the player's
    step, 0 to :data:`STEPS`.
    """

    variant: str
    captures: int
    tables: int
    seed: int
    assumptions: tuple[str, ...]
    fault: str
    node: str
    at_s: float
    picture: str
    step: int


Simulate = Callable[[str, int, int, int, tuple[str, ...]], Ran]
"""Variant, captures, tables, seed and the assumptions that hold to a run."""

Fault = Callable[[int, str], Sequence[Any]]
"""Moment (µs) and capture to faults."""


def scheduler_panel(
    simulate: Simulate, *, variants: Sequence[str], assumptions: Sequence[str], faults: Mapping[str, Fault],
    until_s: float = 15.0, most_captures: int = 6, most_tables: int = 60,
) -> Panel[SchedulerView]:  # fmt: skip
    """Build a panel; each change of the cluster runs the model again, a fault from its moment on.

    Parameters
    ----------
    simulate
        See :data:`Simulate`; called once for each choice.
    variants, assumptions
        Names of protocols, and of what the seed assumes; all assumptions hold at the beginning.
    faults
        Name to what it does.
    until_s
        How long the runs are, virtual seconds.
    most_captures, most_tables
        Ends of the sliders.
    """
    controls = {
        "variant": widgets.Dropdown(options=list(variants), description="protocol"),
        "captures": _slider(3, 1, most_captures, "captures"),
        "tables": _slider(6, 1, most_tables, "tables"),
        "seed": widgets.BoundedIntText(value=0, min=0, max=1 << 31, description="seed"),
        "assumptions": widgets.SelectMultiple(
            options=list(assumptions), value=tuple(assumptions), description="holds", rows=max(2, len(assumptions))
        ),
        "fault": widgets.Dropdown(options=[NOTHING, *faults], description="fault"),
        "node": widgets.Dropdown(options=[f"capture-{i + 1}" for i in range(most_captures)], description="at"),
        "at_s": widgets.FloatSlider(
            value=round(until_s / 5, 1), min=0.0, max=until_s, step=0.1, description="when, s", continuous_update=False
        ),
        "picture": widgets.Dropdown(options=list(_PICTURES), description="picture"),
        "step": Player(STEPS),
    }  # fmt: skip

    @lru_cache(maxsize=8)
    def undisturbed(variant: str, captures: int, tables: int, seed: int, assumptions: tuple[str, ...]) -> Ran:
        return simulate(variant, captures, tables, seed, assumptions)

    @lru_cache(maxsize=8)
    def ran(view: tuple[Any, ...], fault: str, node: str, at_s: float) -> pa.Table:
        run = undisturbed(*view)
        at_us = round(at_s * 1e6)
        return run.trace if fault == NOTHING else run.again(at_us, faults[fault](at_us, node)).trace

    def draw(view: SchedulerView) -> go.Figure:
        cluster = (view.variant, view.captures, view.tables, view.seed, view.assumptions)
        node = view.node if int(view.node.rsplit("-", 1)[1]) <= view.captures else "capture-1"
        return _PICTURES[view.picture](ran(cluster, view.fault, node, view.at_s), view)

    return Panel(SchedulerView, controls=controls, draw=draw)


def _player(trace: pa.Table, view: SchedulerView) -> go.Figure:
    return figures.scheduling_at(trace, moment=view.step / STEPS)


_PICTURES: Mapping[str, Callable[[pa.Table, SchedulerView], go.Figure]] = {
    "step through it": _player,
    "who owns what": lambda trace, view: figures.ownership_gantt(trace),
    "what each capture has": lambda trace, view: figures.ownership_gantt(trace, by="capture"),
    "watermarks": lambda trace, view: figures.watermark_curves(trace),
    "why is the checkpoint stuck": lambda trace, view: figures.why_stuck(
        trace, at_us=round(view.step / STEPS * int(trace["time_us"][-1].as_py())) if view.step else None
    ),
    "messages around the fault": lambda trace, view: figures.sequence_diagram(
        trace, between_us=(round(1e6 * view.at_s) - 200_000, round(1e6 * view.at_s) + 1_000_000)
    ),
    "Grafana": lambda trace, view: figures.grafana_panels(trace),
}  # fmt: skip


def _slider(value: int, least: int, most: int, description: str) -> widgets.IntSlider:
    return widgets.IntSlider(value=value, min=least, max=most, description=description, continuous_update=False)
