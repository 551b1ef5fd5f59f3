"""The data path that plays without a kernel: a frame a sample, dots that move between them, slider, play and pause."""

from __future__ import annotations

import numpy as np

from ticdc_lab.figures.figure import Figure, Settings, frame
from ticdc_lab.figures.pipeline_picture import drawn, finding_of, fullest, nothing
from ticdc_lab.figures.pipeline_scene import PipelineScene, scene
from ticdc_lab.figures.pipeline_traces import dots, moving
from ticdc_lab.figures.player_controls import player_controls
from ticdc_lab.figures.theme import TITLE_CHARS, label, wrapped
from ticdc_lab.simulate.pipeline.samples import Seen

_PHASES = 3
"""Frames between two samples, in which only dots move."""

_CONTROLS_PX, _FRAME_MS = 88, 110


def pipeline_picture_stepped(
    seen: Seen, *, moments: int = 60, memory_rows: int | None = None, most: int = 6, finding: str = ""
) -> Figure:
    """Draw :func:`ticdc_lab.figures.pipeline_picture.pipeline_picture` at many moments.

    Parameters
    ----------
    seen, memory_rows, most
        As there.
    moments
        Samples drawn at most; of more they are thinned evenly, which the note says. The slider begins where most rows
        wait.
    finding
        What the player shows, where the caller knows better than each moment's own title.
    """
    s = scene(seen, memory_rows=memory_rows, most=most)
    if s is None:
        return nothing()
    times = _times(s, moments)
    start = fullest(s)
    fig = drawn(s, start)
    n, changing = len(fig.data), len(moving(s, start))
    fig.frames = [f for t in times for f in _frames(s, t, list(range(n - changing, n)), finding)]
    fig.layout.title.text = _title(s, start, finding)
    thinned = f" Of {len(s.times):,} samples {len(times):,} are shown." if len(times) < len(s.times) else ""
    fig.layout.annotations[-1].text += f"<br>Play, or move the slider; between samples only dots move.{thinned}"
    bottom = int(fig.layout.margin.b) + 22
    return fig.update_layout(
        **player_controls(
            list(map(_name, times)), times.index(start), below_px=bottom, frame_ms=_FRAME_MS, prefix="at "
        ),
        height=int(fig.layout.height) + _CONTROLS_PX + 22, margin_b=bottom + _CONTROLS_PX,
    )  # fmt: skip


def _times(s: PipelineScene, most: int) -> list[int]:
    chosen = np.unique(np.linspace(0, len(s.times) - 1, min(most, len(s.times))).round().astype(int))
    return sorted({s.times[int(k)] for k in chosen} | {fullest(s)})


def _frames(s: PipelineScene, at_us: int, places: list[int], finding: str) -> list[Settings]:
    title = {"title": {"text": _title(s, at_us, finding)}}
    whole = frame(name=_name(at_us), data=moving(s, at_us), traces=places, layout=title)
    between = [
        frame(name=f"{_name(at_us)} +{k}", data=[dots(s, at_us, k / _PHASES)], traces=places[-1:])
        for k in range(1, _PHASES)
    ]
    return [whole, *between]


def _title(s: PipelineScene, at_us: int, finding: str) -> str:
    return wrapped(label(finding, most=300) or finding_of(s, at_us), width=TITLE_CHARS)


def _name(at_us: int) -> str:
    return f"{at_us / 1e6:,.3f} s"
