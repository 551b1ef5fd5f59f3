"""Watermarks at every level over time: how far each is behind the clock, the lowest of each level highlighted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa

from ticdc_lab.figures.figure import Figure, Scatter, subplots
from ticdc_lab.figures.theme import WRONG, count, finish, label, look, sentence
from ticdc_lab.figures.watermark_tree import finding_of, worst
from ticdc_lab.simulate.ownership import natural
from ticdc_lab.simulate.pipeline.chains import Of, by_moment, chains
from ticdc_lab.simulate.pipeline.marks import Mark
from ticdc_lab.simulate.scheduler.clock import us_of

_MOST = 24
"""Lines drawn of one level, those that are behind farthest."""

_ROWS = (
    ("global", "changefeed"), ("processor", "processors"), ("table", "tables, DDL"), ("region", "regions"),
    ("lock", "open locks"), ("sink", "sinks"),
)  # fmt: skip
_NOTE = (
    "Seconds between the clock and the watermark, level by level: thin lines are the single ones, the thick one is the "
    "lowest of its level; of a sink it is the oldest row under way. Go down: who climbs with the changefeed?"
)


class Line(NamedTuple):
    """One watermark of one level over time."""

    path: str
    name: str
    times_s: list[float]
    lags_s: list[float]


def watermark_levels(watermarks: pa.Table, *, finding: str = "") -> Figure:
    """Draw resolved_ts level by level, and the checkpoint_ts where a level has one of its own.

    Parameters
    ----------
    watermarks
        :data:`ticdc_lab.simulate.pipeline.marks.WATERMARKS`.
    finding
        What the picture shows, where the caller knows better than the numbers that are the title by default.
    """
    found = by_moment(watermarks)
    held = chains(watermarks)
    if not held:
        return sentence(
            "There is no watermark", "No capture had anything to replicate when the pipeline was looked at."
        )
    levels = [(level, name) for level, name in _ROWS if any(m.level == level for ms in found.values() for m in ms)]
    fig = subplots(rows=len(levels), cols=1, shared_xaxes=True, vertical_spacing=0.045)
    for row, (level, name) in enumerate(levels, start=1):
        for trace in _level(found, level):
            fig.add_trace(trace, row, 1)
        fig.update_yaxes(title_text=f"{name}<br>lag, s", rangemode="tozero", row=row, col=1)
    fig.update_xaxes(title_text="virtual time, s", row=len(levels), col=1)
    fig.update_layout(hovermode="closest", legend={"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom"})
    title = label(finding, most=300) or finding_of(worst(held))
    fig = finish(fig, title=title, note=_NOTE + _cut(found), height=190 + 130 * len(levels))
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + 34)


def lines(found: dict[int, list[Mark]], level: str, of: Of) -> list[Line]:
    """Give the watermarks of a level; of tables with the DDL puller, of locks their age."""
    levels = (level, "ddl") if level == "table" and of == "resolved" else (level,)
    points: dict[str, list[tuple[str, float, float]]] = {}
    for time_us, marks in found.items():
        for m in marks:
            ts = m.resolved_ts if of == "resolved" else m.checkpoint_ts
            if m.level in levels and ts is not None:
                points.setdefault(m.path, []).append((m.name, time_us / 1e6, (time_us - us_of(ts)) / 1e6))
    return [
        Line(path, ps[-1][0], [t for _, t, _ in ps], [max(0.0, lag) for _, _, lag in ps])
        for path, ps in sorted(points.items(), key=lambda item: natural(item[0]))
    ]


def lowest(of: Sequence[Line]) -> tuple[list[float], list[float], list[str]]:
    """Give the largest lag of each moment, and whose it is."""
    points = sorted(((t, lag, line.name) for line in of for t, lag in zip(line.times_s, line.lags_s, strict=True)))
    ends = [list(same)[-1] for _, same in groupby(points, key=lambda p: p[0])]
    return [t for t, _, _ in ends], [lag for _, lag, _ in ends], [name for _, _, name in ends]


def _level(found: dict[int, list[Mark]], level: str) -> list[Scatter]:
    resolved, checkpoint = lines(found, level, "resolved"), lines(found, level, "checkpoint")
    if level == "global":
        grey = "rgba(128,128,128,0.9)"
        return [
            _line(line, {"color": color, "width": width, "dash": dash}, name)
            for of, name, color, width, dash in (
                (checkpoint, "changefeed checkpoint lag", grey, 5, "solid"),
                (resolved, "changefeed resolved ts lag", look(0)["color"], 2, "dash"),
            )
            for line in of
        ]
    own = checkpoint if level == "sink" else resolved
    times, lags, names = lowest(own)
    hover = [f"{lag:.3f} s behind at {t:.3f} s: {label(n)}" for t, lag, n in zip(times, lags, names, strict=True)]
    red = Scatter(
        x=times, y=lags, mode="lines", line={"color": WRONG, "width": 6}, name="the lowest of its level",
        hovertext=hover, hoverinfo="text", legendgroup="lowest", showlegend=level == "processor",
    )  # fmt: skip
    drawn = sorted(sorted(own, key=lambda line: -max(line.lags_s))[:_MOST], key=lambda line: natural(line.path))
    styles = [look(k) for k in range(len(drawn))]
    thin = [{"color": style["color"], "dash": style["dash"], "width": 1.5} for style in styles]
    return [red, *(_line(line, style, line.name, legend=False) for line, style in zip(drawn, thin, strict=True))]


def _line(line: Line, style: dict[str, object], name: str, *, legend: bool = True) -> Scatter:
    return Scatter(
        x=line.times_s, y=line.lags_s, mode="lines", line=style, name=label(name), showlegend=legend,
        hovertemplate="%{y:.3f} s behind at %{x:.3f} s<extra>" + label(line.name) + "</extra>",
    )  # fmt: skip


def _cut(found: dict[int, list[Mark]]) -> str:
    many = {level: len({m.path for ms in found.values() for m in ms if m.level == level}) for level, _ in _ROWS}
    cut = [f"{_MOST} of {count(n, level)}" for level, n in many.items() if n > _MOST]
    return f" Of many, {', '.join(cut)} are drawn." if cut else ""
