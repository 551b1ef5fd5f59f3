"""A cluster to try out: protocol, size, seed, assumptions, a fault at a chosen moment, and every picture of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import pyarrow as pa

from ticdc_lab import figures
from ticdc_lab.figures.figure import Figure
from ticdc_lab.widgets.composed import Player
from ticdc_lab.widgets.controls import NARROW, WIDE, choice, picture, seconds, seed, several, slider, suggested
from ticdc_lab.widgets.drawing import Drawn
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.widgets.runs import Ran, Runs

STEPS = 100
"""Moments of the player: all steps at which something is drawn, or evenly chosen ones of more."""

NOTHING = "nothing"
_ONLY = "What is drawn; a click in a linked panel chooses it, too"
_HOLDS = "What may be assumed; take one away to see what it is good for"


class Of(TypedDict):
    """Whose things are drawn and for which tables, as figures take it; none means all."""

    captures: tuple[str, ...]
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SchedulerView:
    """What the panel shows.

    The protocol, how many captures and tables, the seed, which assumptions of the design hold, the fault that is
    injected (a name of the panel's faults, or :data:`NOTHING`), at which capture and when (s), what is drawn: for which
    capture and of which table (an id; empty texts mean all), the picture, and the player's step, 0 to :data:`STEPS`.
    """

    variant: str
    captures: int
    tables: int
    seed: int
    assumptions: tuple[str, ...]
    fault: str
    node: str
    at_s: float
    capture: str
    table: str
    picture: str
    step: int

    @property
    def of(self) -> Of:
        """What is drawn."""
        return {"captures": (self.capture,) * bool(self.capture), "tables": (self.table,) * bool(self.table)}


Simulate = Callable[[str, int, int, int, tuple[str, ...]], Ran]
"""Variant, captures, tables, seed and the assumptions that hold to a run."""

Fault = Callable[[int, str], Sequence[Any]]
"""Moment (µs) and capture to faults."""


def scheduler_panel(
    simulate: Simulate, *, variants: Sequence[str], assumptions: Sequence[str], faults: Mapping[str, Fault],
    until_s: float = 15.0, most_captures: int = 6, most_tables: int = 60,
    made_from: Mapping[str, Any] | None = None,
) -> Panel[SchedulerView]:  # fmt: skip
    """Build a panel; each change of the cluster runs the model again, a fault from its moment on.

    Parameters
    ----------
    simulate
        See :data:`Simulate`; called once for each choice.
    variants, assumptions
        Names of protocols, and of what TiCDC's design assumes; all assumptions hold at the beginning.
    faults
        Name to what it does.
    until_s
        How long the runs are, virtual seconds.
    most_captures, most_tables
        Ends of the sliders.
    made_from
        How the panel can be made again, see :mod:`ticdc_lab.widgets.opening`.
    """
    nodes = [f"capture-{i + 1}" for i in range(most_captures)]
    held = several("holds", assumptions, value=assumptions, rows=max(2, len(assumptions)), width=WIDE, tip=_HOLDS)
    controls = {
        "variant": choice("protocol", variants, tip="Which protocol hands out the tables"),
        "tables": slider("tables", 6, 1, most_tables, tip="How many tables are replicated"),
        "captures": slider("captures", 3, 1, most_captures, tip="How many captures there are"),
        "assumptions": held,
        "fault": choice("fault", [NOTHING, *faults], tip="What is injected"),
        "node": choice("at", nodes, tip="The capture of the next fault"),
        "at_s": seconds("when, s", round(until_s / 5, 1), until_s, tip="When the fault happens"),
        "seed": seed(),
        "table": suggested("only table", ["", *(str(i + 1) for i in range(most_tables))], tip=_ONLY, width=NARROW),
        "capture": choice("only capture", [("all", ""), *((n, n) for n in nodes)], tip=_ONLY),
        "step": Player(STEPS),
        "picture": picture(_PICTURES),
    }

    def disturbing(_: Any, disturbance: tuple[str, str, float]) -> tuple[int, Sequence[Any]]:
        fault, node, at_s = disturbance
        return round(at_s * 1e6), faults[fault](round(at_s * 1e6), node)

    runs: Runs[pa.Table] = Runs(simulate, disturbing=disturbing, seen=lambda run, _: run.trace)

    def draw(view: SchedulerView) -> Drawn:
        cluster = (view.variant, view.captures, view.tables, view.seed, view.assumptions)
        node = view.node if int(view.node.rsplit("-", 1)[1]) <= view.captures else "capture-1"
        trace, done = runs.look(cluster, None if view.fault == NOTHING else (view.fault, node, view.at_s))
        return Drawn(_PICTURES[view.picture](trace, view), done)

    return Panel(
        SchedulerView, controls=controls, draw=draw, name="scheduler", slow=True, doing="the scheduler runs",
        made_from=made_from,
        unfollowed=lambda view: {"watermarks": ("table",), "Grafana": ("table", "capture")}.get(view.picture, ()),
    )  # fmt: skip


def _stuck(trace: pa.Table, view: SchedulerView) -> Figure:
    at_us = round(view.step / STEPS * int(trace["time_us"][-1].as_py())) if view.step else None
    return figures.why_stuck(trace, at_us=at_us, of=f"table {view.table}" if view.table else view.capture)


_PICTURES: Mapping[str, Callable[[pa.Table, SchedulerView], Figure]] = {
    "step through it": lambda trace, view: figures.scheduling_at(trace, moment=view.step / STEPS, **view.of),
    "who owns what": lambda trace, view: figures.ownership_gantt(trace, **view.of),
    "what each capture has": lambda trace, view: figures.ownership_gantt(trace, by="capture", **view.of),
    "watermarks": lambda trace, view: figures.watermark_curves(trace, captures=view.of["captures"]),
    "why is the checkpoint stuck": _stuck,
    "messages around the fault": lambda trace, view: figures.sequence_diagram(
        trace, between_us=(round(1e6 * view.at_s) - 200_000, round(1e6 * view.at_s) + 1_000_000), **view.of
    ),
    "Grafana": lambda trace, view: figures.grafana_panels(trace),
}  # fmt: skip
