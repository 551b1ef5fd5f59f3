"""Consumer lanes that play without a kernel: one frame for each moment, with a slider, play and pause."""

from __future__ import annotations

import pandas as pd

from ticdc_lab.figures.consumer_lanes import drawn, traces_at
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.lane_layout import scene
from ticdc_lab.figures.lane_scene import LaneScene, Order
from ticdc_lab.figures.lane_traces import ms
from ticdc_lab.figures.player_controls import player_controls
from ticdc_lab.figures.stepped import moving_frames
from ticdc_lab.figures.theme import count, finish, label, sentence

_CONTROLS_PX = 84
_FRAME_MS = 350


def consumer_lanes_stepped(
    deliveries: pd.DataFrame, steps: pd.DataFrame, *, order: Order = "offset", moments: int = 60, most: int = 300,
    finding: str = "",
) -> Figure:  # fmt: skip
    """Draw :func:`ticdc_lab.figures.consumer_lanes.consumer_lanes` at many moments, on a slider with play and pause.

    Parameters
    ----------
    deliveries, steps, order
        As there.
    moments
        Frames at most; of more moments at which something happens they are thinned evenly, which the note says.
    most
        Row changes drawn: the first ones read.
    finding
        What the player shows, where the caller knows better than the numbers that are the title by default.
    """
    if deliveries.empty and steps.empty:
        return sentence("The consumer did nothing", "The log holds no message that a consumer would act on.")
    s = scene(deliveries, steps, order=order, most=most)
    times, every = s.moments(moments), len(s.moments(1 << 30))
    at = {ms(t): t for t in times}
    figures = {name: Figure(traces_at(s, t)) for name, t in at.items()}
    start = len(figures) // 3  # the beginning has nothing to show
    fig = drawn(s, list(at.values())[start])
    fig.layout.annotations = ()
    fig = finish(
        fig,
        title=label(finding, most=300) or _finding(s),
        note=_note(fig, shown=len(figures), of=every),
        height=int(fig.layout.height),
    )
    fig.update_layout(margin_t=int(fig.layout.margin.t) + 40)
    fig.frames = moving_frames(figures)
    bottom, height = int(fig.layout.margin.b), int(fig.layout.height) + _CONTROLS_PX
    return fig.update_layout(
        **player_controls(
            list(figures), start, below_px=bottom, frame_ms=_FRAME_MS, prefix="consumer time: "
        ), height=height, margin_b=bottom + _CONTROLS_PX,
    )  # fmt: skip


def _finding(s: LaneScene) -> str:
    outcomes = s.rows["outcome"].value_counts()
    n = len(s.rows)
    of = f" (the first of {s.total:,})" if n < s.total else ""
    told = f"{outcomes.get('applied', 0):,} of {count(n, 'row change')}{of} are applied in {ms(s.end_us)}"
    less = [f"{outcomes[o]:,} {o}" for o in ("dropped", "filtered", "forgotten", "pending") if o in outcomes]
    told += f"; {', '.join(less)}" if less else ""
    return told + (f"; listeners stop at a DDL {count(len(s.waits), 'time')}" if len(s.waits) else "")


def _note(fig: Figure, *, shown: int, of: int) -> str:
    left = f" Of {of:,} moments at which something happens {shown:,} are shown." if shown < of else ""
    return f"{fig.layout.meta['note']}{left} Play, or move the slider."
