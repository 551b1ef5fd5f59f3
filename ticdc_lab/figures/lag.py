"""Lag over time: seconds between a watermark's value and what each partition has stated."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.progress import TopicProgress, lane_name, progress
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import count, finish, look, sentence

_NOTE = (
    "Changefeed resolved ts lag, by the clock of the TSO: a line above zero is a partition that has not stated a "
    "watermark another one already has. A slope is a stall, a saw-tooth is a slow broadcast."
)


def lag(
    steps: pd.DataFrame, *, partitions: pd.DataFrame, topic: str | None = None, partition: int | None = None
) -> Figure:
    """Draw each partition's lag behind the newest watermark; parameters as :func:`watermark_ladder`'s."""
    if steps.empty:
        return sentence("There is no lag to show", "The log holds no watermark message.")
    of = progress(steps, partitions)
    p = next((q for q in of if q.topic == topic), max(of, key=lambda q: q.steps_total))
    chosen = [lane for lane in p.stands_s if partition is None or lane[1] == partition]
    if not chosen:
        return sentence(f"Partition {partition} holds no event", "Choose another partition.")
    late = {lane: p.x_s - p.stands_s[lane] for lane in chosen}
    if all(np.nansum(v) == 0 and not np.isnan(v).any() for v in late.values()):
        gap = float(np.diff(p.x_s).max()) if len(p.x_s) > 1 else 0.0
        every = f"{count(p.steps_total, 'watermark')}, the longest gap between two is {gap:,.3g} s."
        return sentence(
            "No partition ever lags behind another" if partition is None else f"Partition {partition} never lags",
            f"{'Every partition' if partition is None else 'It'} states every one of the topic's {every}",
        )
    fig = Figure()
    for lane, y in late.items():
        style = look(lane[1])
        line = {"shape": "hv", "width": 1.8, "color": style["color"], "dash": style["dash"]}
        drawn = Scatter(
            x=p.x_s,
            y=y,
            mode="lines",
            line=line,
            name=lane_name(lane, one_topic=True),
            hovertemplate="%{y:.3f} s behind at %{x:.3f} s<extra>%{fullData.name}</extra>",
        )
        fig.add_trace(marked(drawn, Selection(topic=lane[0], partition=lane[1])))
    fig.update_xaxes(title_text="watermark broadcast, s since the first (clock of the TSO)")
    fig.update_yaxes(title_text="lag, s", rangemode="tozero")
    return finish(fig, title=_finding(p, late), note=_NOTE)


def _finding(p: TopicProgress, late: dict[tuple[str, int], np.ndarray]) -> str:
    worst = max(late, key=lambda lane: (np.nan_to_num(late[lane], nan=-1.0).max(), -lane[1]))
    most = float(np.nan_to_num(late[worst], nan=-1.0).max())
    silent = [lane[1] for lane, v in late.items() if np.isnan(v).all()]
    if silent:
        return f"{count(len(silent), 'partition')} never stated a watermark: {', '.join(map(str, silent))}"
    at = float(p.x_s[int(np.nanargmax(late[worst]))])
    return f"The largest lag is {most:,.3g} s, of partition {worst[1]}, {at:,.3g} s after the first watermark"
