"""Consumer lanes: what each listener has read, holds, has applied and waits for, at a moment of consumer time."""

from __future__ import annotations

import pandas as pd

from ticdc_lab.figures import lane_traces as traces
from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.lane_layout import scene
from ticdc_lab.figures.lane_scene import APPLIED, BUFFERED, NEVER, THROWN, LaneScene, Order
from ticdc_lab.figures.lane_traces import extent, ms
from ticdc_lab.figures.theme import count, finish, label, sentence

_LANE_PX = 64
_EACH = 20
"""Up to so many places each has its number."""
_LEGEND_ROW_PX, _LEGEND_WIDE_PX = 20, 870
_AXIS = {"offset": "offset in the partition", "commit": "order of commit_ts upstream (equal ones share a place)"}
_NOTE = {
    "offset": "One lane per partition; rows are ticks: faint where not read, tall where buffered, short where applied. "
    "Look for a tall stretch behind a flag, and for a wall: a listener that stops at a DDL until the others are there.",
    "commit": "One lane per partition, rows in the order of their commit_ts: faint where not read, tall where "
    "buffered, short where applied. Where all up to one place is applied and nothing behind it, the downstream is a "
    "state of upstream; in the band named `later without earlier` it is none.",
}


def consumer_lanes(
    deliveries: pd.DataFrame, steps: pd.DataFrame, *, at_us: int | None = None, order: Order = "offset",
    most: int = 400, finding: str = "",
) -> Figure:  # fmt: skip
    """Draw the lanes of a consumer at a moment.

    Parameters
    ----------
    deliveries, steps
        :data:`ticdc_lab.consumer.record.DELIVERIES` and ``STEPS``.
    at_us
        The moment of consumer time, µs; by default the end.
    order
        What goes to the right, see :func:`ticdc_lab.figures.lane_layout.scene`.
    most
        Row changes drawn; of a longer log those read around the moment, which the note says.
    finding
        What the picture shows, where the caller knows better than the numbers that are the title by default.
    """
    if deliveries.empty and steps.empty:
        return sentence("The consumer did nothing", "The log holds no message that a consumer would act on.")
    around = at_us if at_us is not None else NEVER
    s = scene(deliveries, steps, order=order, around_us=around, most=most)
    return drawn(s, s.end_us if at_us is None else at_us, finding=finding)


def drawn(s: LaneScene, at_us: int, *, finding: str = "") -> Figure:
    """Draw a scene at a moment (µs); every moment of a scene has the same traces."""
    fig = Figure(traces_at(s, at_us))
    names = [f"partition {p}" for _, p in s.lanes]
    if len({topic for topic, _ in s.lanes}) > 1:
        names = [f"{label(topic)} {p}" for topic, p in s.lanes]
    starts, ends = extent(s)
    room = 0.03 * (ends - starts) + 0.5
    few = 1 if ends - starts <= _EACH else None
    fig.update_xaxes(title_text=_AXIS[s.order], range=[starts - room, ends + room], zeroline=False, dtick=few)
    fig.update_yaxes(
        tickvals=list(range(len(names))), ticktext=names, range=[len(names) - 0.45, -0.62], showgrid=False,
        zeroline=False,
    )  # fmt: skip
    fig.update_layout(
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "itemsizing": "constant"},
        hovermode="closest",
    )
    legend_px = _legend_px(fig)
    height = 240 + legend_px + _LANE_PX * len(names)
    fig = finish(fig, title=label(finding, most=300) or _finding(s, at_us), note=_note(s), height=height)
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + legend_px)


def traces_at(s: LaneScene, at_us: int) -> list[Scatter]:
    """What is drawn of a scene at a moment (µs), without its frame."""
    return [
        *traces.seam(s, at_us),
        *traces.bars(s, at_us),
        *traces.ticks(s, at_us),
        *traces.thrown(s, at_us),
        *traces.controls(s, at_us),
        *traces.walls(s, at_us),
    ]


def _legend_px(fig: Figure) -> int:
    """How high the legend will be: its columns are as wide as its longest name."""
    names = [t.name for t in fig.data if t.name and t.showlegend is not False]
    columns = max(1, _LEGEND_WIDE_PX // (55 + 7 * max(map(len, names), default=1)))
    return _LEGEND_ROW_PX * -(-len(names) // columns)


def _finding(s: LaneScene, at_us: int) -> str:
    states = pd.Series(s.states(at_us)).value_counts()
    n = len(s.rows)
    of = f" drawn (of {s.total:,})" if n < s.total else ""
    told = f"At {ms(at_us)} {states.get(APPLIED, 0):,} of {count(n, 'row change')}{of} are applied"
    told += f", {states.get(BUFFERED, 0):,} buffered" if states.get(BUFFERED, 0) else ""
    told += f", {states.get(THROWN, 0):,} thrown away" if states.get(THROWN, 0) else ""
    down = sorted({s.lanes[d][1] for d in s.now(s.downs, at_us)["lane"]})
    told += f"; partition {', '.join(map(str, down))} is down" if down else ""
    missing = s.seam(at_us).missing if s.order == "commit" else 0
    told += f"; later ones without {count(missing, 'earlier one')}" if missing else ""
    waiting = s.now(s.waits, at_us).sort_values("since", kind="stable")
    if len(waiting):
        first = waiting.iloc[0]
        others = f" and {len(waiting) - 1} more wait" if len(waiting) > 1 else " waits"
        told += f"; partition {s.lanes[first['lane']][1]}{others} since {ms(first['since'])}"
    return told


def _note(s: LaneScene) -> str:
    left = f" {len(s.rows):,} of {s.total:,} row changes are drawn." if len(s.rows) < s.total else ""
    return _NOTE[s.order] + left
