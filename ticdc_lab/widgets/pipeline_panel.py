"""A replication pipeline to try out: latency, slow sink, long transaction, semantics, rule, a fault at a moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ticdc_lab import figures
from ticdc_lab.figures.figure import Figure
from ticdc_lab.simulate.pipeline.samples import SeenRun, families_in, seen_in
from ticdc_lab.widgets.composed import Player
from ticdc_lab.widgets.controls import WIDE, choice, picture, seconds, seed, slider
from ticdc_lab.widgets.drawing import Drawn
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.widgets.runs import Ran, Runs

STEPS = 100
"""The last step of the player, which is the end of the run; step 0 is the most telling moment."""

NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class PipelineView:
    """What the panel shows.

    Delivery semantics and rule of the global resolved_ts, latency of all links (ms), rows a second that the downstream
    takes (0: all at once), how long a transaction is open (s; 0: none), the fault that is injected (a name of the
    panel's faults, or :data:`NOTHING`) and when (s), the seed, the picture, and the player's step, 0 to :data:`STEPS`.
    """

    semantics: str
    rule: str
    latency_ms: int
    rows_per_s: int
    long_s: float
    fault: str
    at_s: float
    seed: int
    picture: str
    step: int


Simulate = Callable[[str, str, int, int, float, int], Ran]
"""Semantics, rule, latency (ms), rows a second of the downstream, long transaction (s) and seed to a run."""

Fault = Callable[[int], Sequence[Any]]
"""Moment (µs) to faults."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A run as pictures need it; ``key`` is the row whose column families are shown."""

    run: Any
    seen: SeenRun
    key: int
    memory_rows: int | None
    until_s: float

    def moment(self, view: PipelineView) -> int | None:
        """Give the moment that the player is at, µs; None at its step 0."""
        return round(1e6 * self.until_s * view.step / STEPS) if view.step else None


def pipeline_panel(
    simulate: Simulate, *, semantics: Sequence[str], rules: Sequence[str], faults: Mapping[str, Fault], key: int,
    until_s: float = 12.0, memory_rows: int | None = None, made_from: Mapping[str, Any] | None = None,
) -> Panel[PipelineView]:  # fmt: skip
    """Build a panel; each change of the pipeline runs the model again, a fault from its moment on.

    Parameters
    ----------
    simulate
        See :data:`Simulate`; called once for each choice.
    semantics, rules
        Names to choose from; the panel begins with ``at-least-once``, if that is there, and the first rule.
    faults
        Name to what it does.
    key
        The row whose column families are shown.
    until_s
        How long the runs are, virtual seconds.
    memory_rows
        Rows that a sorter holds in memory; None where there is no limit.
    made_from
        How the panel can be made again, see :mod:`ticdc_lab.widgets.opening`.
    """
    usual = "at-least-once" if "at-least-once" in semantics else semantics[0]
    controls = {
        "semantics": choice("semantics", semantics, value=usual, tip="What the sink promises after a failure"),
        "rule": choice("rule", rules, tip="How the global resolved ts follows from the tables' resolved ts"),
        "latency_ms": slider("latency, ms", 2, 1, 200, tip="Of every link, from half of it to one and a half"),
        "rows_per_s": slider("sink, rows/s", 0, 0, 400, tip="What the downstream takes; 0: all at once"),
        "long_s": seconds("long txn, s", 3.0, until_s, tip="How long a transaction holds its lock; 0: there is none"),
        "fault": choice("fault", [NOTHING, *faults], tip="What is injected", width=WIDE),
        "at_s": seconds("when, s", round(until_s / 2, 1), until_s, tip="When the fault happens"),
        "seed": seed(),
        "step": Player(STEPS),
        "picture": picture(_PICTURES),
    }

    def disturbing(_: Any, disturbance: tuple[str, float]) -> tuple[int, Sequence[Any]]:
        at_us = round(disturbance[1] * 1e6)
        return at_us, faults[disturbance[0]](at_us)

    def seen(run: Any, choice: tuple[Any, ...]) -> Shown:
        return Shown(run, seen_in(run.snapshots), key, memory_rows, until_s)

    runs: Runs[Shown] = Runs(simulate, disturbing=disturbing, seen=seen)

    def draw(view: PipelineView) -> Drawn:
        chosen = (view.semantics, view.rule, view.latency_ms, view.rows_per_s, view.long_s, view.seed)
        shown, done = runs.look(chosen, None if view.fault == NOTHING else (view.fault, view.at_s))
        return Drawn(_PICTURES[view.picture](shown, view), done)

    return Panel(
        PipelineView, controls=controls, draw=draw, name="pipeline", slow=True, doing="the pipeline runs",
        made_from=made_from,
    )  # fmt: skip


_PICTURES: Mapping[str, Callable[[Shown, PipelineView], Figure]] = {
    "where are the rows": lambda s, view: figures.pipeline_picture(
        s.seen, at_us=s.moment(view), memory_rows=s.memory_rows
    ),
    "who holds the checkpoint": lambda s, view: figures.watermark_tree(s.seen.watermarks, at_us=s.moment(view)),
    "who holds the resolved ts": lambda s, view: figures.watermark_tree(
        s.seen.watermarks, at_us=s.moment(view), of="resolved"
    ),
    "watermarks at every level": lambda s, view: figures.watermark_levels(s.seen.watermarks),
    "rows in every stage": lambda s, view: figures.queue_curves(s.seen.queues, memory_rows=s.memory_rows),
    "column families of a key": lambda s, view: figures.column_families(
        families_in(s.run.snapshots, [s.key]), at_us=s.moment(view)
    ),
}  # fmt: skip
