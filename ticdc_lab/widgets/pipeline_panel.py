"""A replication pipeline to try out: latency, slow sink, long transaction, semantics, rule, a fault at a moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import ipywidgets as widgets
import plotly.graph_objects as go

from ticdc_lab import figures
from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.figures.theme import label, sentence
from ticdc_lab.simulate.pipeline.samples import Seen, families_in, seen_in
from ticdc_lab.widgets.composed import Player
from ticdc_lab.widgets.panel import Panel

STEPS = 100
"""The last step of the player, which is the end of the run; step 0 stands for the moment that tells most."""

NOTHING = "nothing"


class Ran(Protocol):
    """A run, as :class:`ticdc_lab.simulate.pipeline.run.Run` is."""

    @property
    def snapshots(self) -> list[tuple[int, dict[str, Any]]]:
        """Moments (µs) with the states of all nodes."""
        ...

    def again(self, at_us: int, faults: Sequence[Any]) -> Ran:
        """Run once more with other faults from a moment on."""
        ...


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

    run: Ran
    seen: Seen
    key: int
    memory_rows: int | None
    until_s: float

    def moment(self, view: PipelineView) -> int | None:
        """Give the moment that the player stands at, µs; None at its step 0."""
        return round(1e6 * self.until_s * view.step / STEPS) if view.step else None


def pipeline_panel(
    simulate: Simulate, *, semantics: Sequence[str], rules: Sequence[str], faults: Mapping[str, Fault], key: int,
    until_s: float = 12.0, memory_rows: int | None = None,
) -> Panel[PipelineView]:  # fmt: skip
    """Build a panel; each change of the pipeline runs the model again, a fault from its moment on.

    Parameters
    ----------
    simulate
        See :data:`Simulate`; called once for each choice. An error of this package that it raises is shown in words.
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
    """
    usual = "at-least-once" if "at-least-once" in semantics else semantics[0]
    controls = {
        "semantics": widgets.Dropdown(options=list(semantics), value=usual, description="semantics"),
        "rule": widgets.Dropdown(options=list(rules), description="rule"),
        "latency_ms": _slider(2, 1, 200, "latency, ms"),
        "rows_per_s": _slider(0, 0, 400, "sink, rows/s"),
        "long_s": _seconds(3.0, until_s, "long txn, s"),
        "fault": widgets.Dropdown(options=[NOTHING, *faults], description="fault"),
        "at_s": _seconds(round(until_s / 2, 1), until_s, "when, s"),
        "seed": widgets.BoundedIntText(value=0, min=0, max=1 << 31, description="seed"),
        "picture": widgets.Dropdown(options=list(_PICTURES), description="picture"),
        "step": Player(STEPS),
    }  # fmt: skip

    @lru_cache(maxsize=8)
    def undisturbed(*choice: Any) -> Ran:
        return simulate(*choice)

    @lru_cache(maxsize=8)
    def shown(choice: tuple[Any, ...], fault: str, at_s: float) -> Shown:
        run, rule, at_us = undisturbed(*choice), choice[1], round(at_s * 1e6)
        run = run if fault == NOTHING else run.again(at_us, faults[fault](at_us))
        return Shown(run, seen_in(run.snapshots, rule=rule), key, memory_rows, until_s)

    def draw(view: PipelineView) -> go.Figure:
        choice = (view.semantics, view.rule, view.latency_ms, view.rows_per_s, view.long_s, view.seed)
        try:
            return _PICTURES[view.picture](shown(choice, view.fault, view.at_s), view)
        except (TiCDCLabError, ValueError) as error:
            return sentence("This pipeline cannot be run", label(error, most=400))

    return Panel(PipelineView, controls=controls, draw=draw)


_PICTURES: Mapping[str, Callable[[Shown, PipelineView], go.Figure]] = {
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


def _slider(value: int, least: int, most: int, description: str) -> widgets.IntSlider:
    return widgets.IntSlider(value=value, min=least, max=most, description=description, continuous_update=False)


def _seconds(value: float, most: float, description: str) -> widgets.FloatSlider:
    return widgets.FloatSlider(
        value=value, min=0.0, max=most, step=0.1, description=description, continuous_update=False
    )  # fmt: skip
