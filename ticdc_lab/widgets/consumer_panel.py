"""A consumer that can be stepped: policy, speeds, a pause and a crash to choose, lanes and the downstream to see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from ticdc_lab import figures
from ticdc_lab.consumer.downstream import downstream_at, frames_of
from ticdc_lab.consumer.listeners import Crash, Listeners, Pause
from ticdc_lab.consumer.log import Log
from ticdc_lab.consumer.model import Run, run
from ticdc_lab.consumer.policy import POLICIES
from ticdc_lab.widgets.composed import Player, Speeds
from ticdc_lab.widgets.panel import Panel

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


def consumer_panel(log: Log, images: Mapping[str, pd.DataFrame], *, per_second: int = 1000) -> Panel[ConsumerView]:
    """Build a panel over a small log; each change of rules or speeds runs the consumer model again, without Spark.

    Parameters
    ----------
    log
        An excerpt: some thousand row changes, so that a run takes less than a second.
    images
        ``schema.table`` to the values of its row changes, see :func:`ticdc_lab.consumer.downstream.downstream_at`.
    per_second
        Messages a second that all listeners begin with, one of :data:`ticdc_lab.widgets.composed.SPEEDS`.
    """
    partitions = [p.partition for p in log.parts]
    last_ms = 2 * max((p.end - p.first for p in log.parts), default=1) * 1000 / per_second
    controls = {
        "policy": widgets.Dropdown(options=[(p.name, k) for k, p in POLICIES.items()], description="policy"),
        "speeds": Speeds([f"partition {p}" for p in partitions], start=per_second),
        "paused": widgets.Dropdown(
            options=[("nobody", NOBODY), *_numbered("partition", partitions)], description="pauses"
        ),
        "pause_ms": _range_ms(last_ms, "pause, ms"),
        "crashed": widgets.Dropdown(
            options=[("nobody", NOBODY), *_numbered("process", range(_PROCESSES))], description="crashes"
        ),
        "crash_ms": _range_ms(last_ms, "down, ms"),
        "order": widgets.ToggleButtons(options=["offset", "commit"], description="to the right"),
        "table": widgets.Dropdown(options=list(images), description="table"),
        "step": Player(STEPS),
    }  # fmt: skip

    @lru_cache(maxsize=8)
    def consumed(policy: str, speeds: tuple[int, ...], paused: tuple[Pause, ...], crashes: tuple[Crash, ...]) -> _Seen:
        how = Listeners(
            per_second=per_second, speeds=MappingProxyType(dict(zip(partitions, speeds, strict=True))),
            processes=_PROCESSES, pauses=paused, faults=crashes,
        )  # fmt: skip
        return _Seen.of(run(log, POLICIES[policy], how))

    def draw(view: ConsumerView) -> go.Figure:
        seen = consumed(view.policy, view.speeds, _pauses(view), _crashes(view))
        at_us = seen.moments[min(view.step, len(seen.moments) - 1)]
        lanes = figures.consumer_lanes(seen.deliveries, seen.steps, at_us=at_us, order=view.order)
        rows = downstream_at(images[view.table], seen.deliveries, at_us, view.table)
        return figures.beside(lanes, rows, name=view.table)

    return Panel(ConsumerView, controls=controls, draw=draw)


@dataclass(frozen=True, eq=False, slots=True)
class _Seen:
    """A run as the panel shows it."""

    deliveries: pd.DataFrame
    steps: pd.DataFrame
    moments: list[int]

    @classmethod
    def of(cls, found: Run) -> _Seen:
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


def _range_ms(last_ms: float, description: str) -> widgets.FloatRangeSlider:
    return widgets.FloatRangeSlider(
        value=(0.2 * last_ms, 0.5 * last_ms), min=0.0, max=last_ms, step=last_ms / 200, description=description,
        readout_format=".1f", continuous_update=False, layout=widgets.Layout(width="420px"),
    )  # fmt: skip
