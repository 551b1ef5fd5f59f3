"""A consumer that can be stepped: policy, speeds, a pause and a crash to choose, lanes and the downstream to see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import ipywidgets as widgets
import pandas as pd

from ticdc_lab import figures
from ticdc_lab.consumer.downstream import downstream_at, frames_of
from ticdc_lab.consumer.listener import Crash, Listeners, Pause
from ticdc_lab.consumer.log import NarrowLog
from ticdc_lab.consumer.model import ConsumerRun, run
from ticdc_lab.consumer.policy import POLICIES
from ticdc_lab.widgets.composed import Player, Speeds
from ticdc_lab.widgets.controls import NARROW, choice, span
from ticdc_lab.widgets.drawing import Drawn
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.widgets.runs import AGAIN, KEPT, Kept

STEPS = 100
"""Moments that the player goes through: all at which something happens, or evenly chosen ones of more."""

NOBODY = -1
_PROCESSES = 2


@dataclass(frozen=True, slots=True)
class ConsumerView:
    """What the panel shows.

    A name of :data:`ticdc_lab.consumer.policy.POLICIES`, messages a second of each partition's listener, the partition
    that pauses and from when to when (ms; -1 for none), the process of two that crashes and until when it is down, what
    goes to the right (``offset`` or ``commit``), the downstream table beside the lanes, and the step of consumer time,
    0 to :data:`STEPS`.
    """

    policy: str
    speeds: tuple[int, ...]
    paused: int
    pause_ms: tuple[float, float]
    crashed: int
    crash_ms: tuple[float, float]
    order: figures.Order
    table: str
    step: int


def consumer_panel(
    log: NarrowLog, images: Mapping[str, pd.DataFrame], *, per_second: int = 1000,
    lane: str = "partition", made_from: Mapping[str, Any] | None = None,
) -> Panel[ConsumerView]:  # fmt: skip
    """Build a panel over a small log; each change of rules or speeds runs the consumer model again, without Spark.

    Parameters
    ----------
    log
        An excerpt: some thousand row changes, so that a run takes less than a second.
    images
        ``schema.table`` to the values of its row changes, see :func:`ticdc_lab.consumer.downstream.downstream_at`.
    per_second
        Messages a second that all listeners begin with, one of :data:`ticdc_lab.widgets.composed.SPEEDS`.
    lane
        What a listener reads: ``partition``, or ``stream`` of a storage sink.
    made_from
        How the panel can be made again, see :mod:`ticdc_lab.widgets.opening`.
    """
    partitions = sorted({p.partition for p in log.parts})
    lanes = [(p.topic, p.partition) for p in log.parts]
    one_topic = len(lanes) == len(partitions)
    last_ms = 2 * max((p.end - p.first for p in log.parts), default=1) * 1000 / per_second
    pauses = [("nobody", NOBODY), *_numbered(lane, partitions)]
    crashes = [("nobody", NOBODY), *_numbered("process", range(_PROCESSES))]
    controls = {
        "table": choice("table", list(images), tip="Which table's rows downstream are shown at the right"),
        "policy": choice("policy", [(p.name, k) for k, p in POLICIES.items()], tip="The consumer's rules"),
        "speeds": Speeds([f"{lane if one_topic else t} {p}" for t, p in lanes], start=per_second),
        "paused": choice("pauses", pauses, tip="Whose listener reads nothing for a while"),
        "pause_ms": _range_ms(last_ms, "pause, ms", "From when to when it reads nothing"),
        "crashed": choice("crashes", crashes, tip="Which process of two crashes"),
        "crash_ms": _range_ms(last_ms, "down, ms", "From when to when it is down"),
        "order": choice("to the right", ["offset", "commit"], tip="What messages are ordered by"),
        "step": Player(STEPS),
    }

    def consumed(policy: str, speeds: tuple[int, ...], paused: tuple[Pause, ...], down: tuple[Crash, ...]) -> _ShownRun:
        how = Listeners(
            per_second=per_second, speeds=MappingProxyType(dict(zip(lanes, speeds, strict=True))), processes=_PROCESSES,
            pauses=paused, faults=down,
        )  # fmt: skip
        return _ShownRun.of(run(log, POLICIES[policy], how))

    runs = Kept(consumed)

    def draw(view: ConsumerView) -> Drawn:
        before = runs.made
        seen = runs.of(view.policy, view.speeds, _pauses(view), _crashes(view))
        at_us = seen.moments[min(view.step, len(seen.moments) - 1)]
        shown = figures.consumer_lanes(seen.deliveries, seen.steps, at_us=at_us, order=view.order, lane=lane)
        rows = downstream_at(images[view.table], seen.deliveries, at_us, view.table)
        return Drawn(figures.beside(shown, rows, name=view.table), AGAIN if runs.made > before else KEPT)

    return Panel(
        ConsumerView, controls=controls, draw=draw, name="consumer", slow=True, doing="the consumer runs",
        made_from=made_from,
    )  # fmt: skip


@dataclass(frozen=True, eq=False, slots=True)
class _ShownRun:
    """A run as the panel shows it."""

    deliveries: pd.DataFrame
    steps: pd.DataFrame
    moments: list[int]

    @classmethod
    def of(cls, found: ConsumerRun) -> _ShownRun:
        deliveries, steps = frames_of(found)
        return cls(deliveries, steps, figures.moments(deliveries, steps, most=STEPS + 1))


def _pauses(view: ConsumerView) -> tuple[Pause, ...]:
    at, until = view.pause_ms
    return () if view.paused == NOBODY else (Pause(view.paused, round(1000 * at), round(1000 * until)),)


def _crashes(view: ConsumerView) -> tuple[Crash, ...]:
    at, back = view.crash_ms
    return () if view.crashed == NOBODY else (Crash(view.crashed, round(1000 * at), round(1000 * back)),)


def _numbered(what: str, numbers: list[int] | range) -> list[tuple[str, int]]:
    return [(f"{what} {n}", n) for n in numbers]


def _range_ms(last_ms: float, label: str, tip: str) -> widgets.FloatRangeSlider:
    return span(label, last_ms, value=(0.2 * last_ms, 0.5 * last_ms), form=".1f", tip=tip, width=NARROW)
