"""Consumer lanes: what each listener has read and written at a moment, and a player over all moments."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ticdc_lab.events.tso import tso_words
from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.lane_layout import APPLIED, BUFFERED, NEVER, THROWN, UNREAD, LaneScene, Order, scene
from ticdc_lab.figures.look import GREY, OKABE_ITO, WRONG, legend_above
from ticdc_lab.figures.nested import Nested
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.stepped import moving_frames, player_controls
from ticdc_lab.figures.theme import finish, label, legend_px, sentence
from ticdc_lab.words import are, count, rounded

# The traces of consumer lanes at a moment; each function gives the same number of traces for every moment.


_TICKS = ("line-ns", "line-ne", "line-nw", "cross-thin", "x-thin", "y-up", "y-down")
_SIZE = {UNREAD: 7, BUFFERED: 22, APPLIED: 12, THROWN: 6}
_WIDTH = {UNREAD: 1, BUFFERED: 3.5, APPLIED: 2, THROWN: 1}
_SHOWN = {UNREAD: 0.35, BUFFERED: 1.0, APPLIED: 0.95, THROWN: 0.35}
_FRONT, _HELD = "rgba(0,158,115,0.20)", "rgba(230,159,0,0.28)"
_FEW, _SHORT = 60, 100_000
"""Of so few rows with commit_ts so short these are written under the ticks."""


def ms(at_us: float) -> str:
    """A consumer time in words: ``12.3 ms``, ``4.25 s``."""
    return f"{at_us / 1e6:,.2f} s" if at_us >= 1e6 else f"{rounded(at_us / 1000, 4)} ms"


def bars(s: LaneScene, at_us: int) -> Sequence[Scatter]:
    """The applied front of each lane, and from there what it holds."""
    buffered, start = s.states(at_us) == BUFFERED, extent(s)[0] - 0.5
    done = s.fronts(at_us)
    fronts = [(start, max(start, done.get(lane, start - 0.5) + 0.5), lane) for lane in range(len(s.lanes))]
    lanes, places = s.rows["lane"].to_numpy()[buffered], s.rows["x"].to_numpy()[buffered]
    own = ((lane, places[lanes == lane]) for lane in range(len(s.lanes)))
    held = [(float(x.min()) - 0.4, float(x.max()) + 0.4, lane) for lane, x in own if len(x)]
    look = {"mode": "lines", "hoverinfo": "skip"}
    return [
        Scatter(**_strokes(fronts), line={"width": 34, "color": _FRONT}, name="applied up to here", **look),
        Scatter(**_strokes(held), line={"width": 20, "color": _HELD}, name="buffered", **look),
    ]


def seam(s: LaneScene, at_us: int) -> Sequence[Scatter]:
    """In commit order: a line where the downstream is a state of upstream, or the band in which it is none."""
    seam, (starts, ends) = s.seam(at_us), extent(s)
    top, foot = -0.5, len(s.lanes) - 0.5
    shows = s.order == "commit"
    torn, there = shows and seam.missing > 0, shows and not seam.missing and seam.ahead >= starts
    left, right = max(seam.behind, starts) - 0.5, min(seam.ahead, ends) + 0.5
    band = ([left, right, right, left, left], [top, top, foot, foot, top]) if torn else ([], [])
    line = ([seam.ahead + 0.5] * 2, [top, foot]) if there else ([], [])
    look = {"mode": "lines", "hoverinfo": "skip", "showlegend": shows}
    return [
        Scatter(
            x=band[0], y=band[1], fill="toself", fillcolor="rgba(213,94,0,0.13)", line={"width": 0},
            name="later without earlier", **look,
        ),
        Scatter(
            x=line[0], y=line[1], line={"width": 2, "dash": "dot", "color": OKABE_ITO[0]}, name="a state of upstream",
            **look,
        ),
    ]  # fmt: skip


def ticks(s: LaneScene, at_us: int) -> Sequence[Scatter]:
    """Row changes, a trace for each table."""
    states, (starts, ends) = s.states(at_us), extent(s)
    dense = min(1.0, max(0.45, 60 / (ends - starts + 1)))
    sizes, widths = ({state: round(dense * px, 2) for state, px in of.items()} for of in (_SIZE, _WIDTH))
    out = []
    for mine, points in _tables(s):
        at, drawn = states[mine], copy(points)
        drawn["marker"] = Nested(
            points["marker"],
            size=[sizes[a] for a in at],
            opacity=[_SHOWN[a] for a in at],
            line=Nested(width=[widths[a] for a in at], color=points["marker"]["color"]),
        )
        out.append(drawn)
    return out


@lru_cache(maxsize=4)  # a scene is drawn at many moments
def _tables(s: LaneScene) -> Sequence[tuple[npt.NDArray[np.bool_], Scatter]]:
    """Which row changes are of each table, and what of them is the same at every moment."""
    tables = sorted({str(t) for t in s.rows["table"]})
    named = tables if len(tables) <= len(_TICKS) else [*tables[: len(_TICKS) - 1], "other tables"]
    of = s.rows["table"].where(s.rows["table"].isin(named), named[-1] if named else "")
    out = []
    for k, table in enumerate(named):
        mine = (of == table).to_numpy()
        r, small = s.rows[mine], _is_small(s)
        points = Scatter(
            x=r["x"].tolist(), y=_heights(s)[mine].tolist(), mode="markers+text" if small else "markers",
            marker={"symbol": _TICKS[k], "color": OKABE_ITO[k % len(OKABE_ITO)]}, name=label(table),
            text=[str(ts) for ts in r["commit_ts"]] if small else None, textposition="bottom center",
            customdata=[[str(o), tso_words(ts)] for o, ts in zip(r["offset"], r["commit_ts"], strict=True)],
            hovertemplate="offset %{customdata[0]}<br>commit_ts %{customdata[1]}<extra>" + label(table) + "</extra>",
        )  # fmt: skip
        out.append((mine, marked(points, [_message(s, row) for row in r.to_dict("records")])))
    return out


def _message(s: LaneScene, row: dict[Any, Any]) -> Selection:
    topic, partition = s.lanes[row["lane"]]
    return Selection(
        topic=topic, partition=partition, table=str(row["table"]), offset=row["offset"], commit_ts=row["commit_ts"]
    )


@lru_cache(maxsize=4)
def _heights(s: LaneScene) -> npt.NDArray[np.float64]:
    """How far down each row change stands."""
    heights: npt.NDArray[np.float64] = (s.rows["lane"] + s.rows["dy"]).round(3).to_numpy()
    return heights


_GONE = {
    "dropped": "x-open", "discarded": "diamond-x-open", "filtered": "circle-x-open", "forgotten": "square-x-open"
}  # fmt: skip


def thrown(s: LaneScene, at_us: int) -> Sequence[Scatter]:
    """Row changes that are thrown away, one trace for each way."""
    gone, outcomes = s.states(at_us) == THROWN, s.rows["outcome"].to_numpy()
    places, heights = s.rows["x"].to_numpy(), _heights(s)
    out = []
    for outcome, symbol in _GONE.items():
        mine = outcomes == outcome
        marker = {"symbol": symbol, "size": 11, "color": WRONG, "line": {"width": 2, "color": WRONG}}
        out.append(
            Scatter(
                x=places[gone & mine].tolist(), y=heights[gone & mine].tolist(), mode="markers", marker=marker,
                name=outcome, hoverinfo="name", showlegend=bool(mine.any()),
            )
        )  # fmt: skip
    return out


def controls(s: LaneScene, at_us: int) -> Sequence[Scatter]:
    """Resolved events as flags, DDL as diamonds and Admin events as squares, open until executed."""
    m, texts, picks = s.marks, *_of_marks(s)
    places, lanes = m["x"].to_numpy(), m["lane"].to_numpy()
    read, done = m["at"].to_numpy() <= at_us, m["done_at"].to_numpy() <= at_us
    flags, ddl, admin = (m["kind"].to_numpy() == kind for kind in ("resolved", "ddl", "admin"))
    at = zip(places[flags & read].tolist(), lanes[flags & read].tolist(), strict=True)
    poles = [(x, x, lane - 0.42, lane) for x, lane in at]
    pole = {"x": _gapped([p[:2] for p in poles]), "y": _gapped([p[2:] for p in poles])}
    styles = (
        ("resolved event", flags, "triangle-right", GREY, -0.34, 11),
        ("DDL event", ddl & ~done, "diamond-open", OKABE_ITO[5], 0.0, 17),
        ("DDL executed", ddl & done, "diamond", OKABE_ITO[5], 0.0, 17),
        ("Admin event", admin & ~done, "square-open", OKABE_ITO[3], 0.0, 17),
        ("Admin event executed", admin & done, "square", OKABE_ITO[3], 0.0, 17),
    )
    out = [Scatter(**pole, mode="lines", line={"width": 1, "color": GREY}, hoverinfo="skip", showlegend=False)]
    for name, which, symbol, color, dy, size in styles:
        mine = which.nonzero()[0].tolist()
        marker = {"symbol": symbol, "size": size, "color": color, "line": {"width": 2, "color": color}}
        drawn = Scatter(
            x=places[which].tolist(), y=(lanes[which] + dy).tolist(),
            mode="markers+text" if _is_small(s) else "markers",
            marker=marker | {"opacity": np.where(read[which], 1.0, 0.3).tolist()}, name=name,
            text=[f" {ts}" for ts in m["commit_ts"].to_numpy()[which].tolist()] if _is_small(s) else None,
            textposition="middle right", customdata=[texts[i] for i in mine],
            hovertemplate="%{customdata}<extra>" + name + "</extra>",
            showlegend=bool((flags if name == "resolved event" else ddl if "DDL" in name else admin).any()),
        )  # fmt: skip
        out.append(marked(drawn, [picks[i] for i in mine]))
    return out


@lru_cache(maxsize=4)
def _of_marks(s: LaneScene) -> tuple[Sequence[str], Sequence[Selection]]:
    """The words for each resolved event, DDL and Admin event, and what a click on it means."""
    texts = [_said(ts, detail) for ts, detail in zip(s.marks["commit_ts"], s.marks["detail"], strict=True)]
    return texts, [Selection(topic=s.lanes[k][0], partition=s.lanes[k][1]) for k in s.marks["lane"]]


def _said(commit_ts: int, detail: object) -> str:
    at = tso_words(commit_ts)
    return f"{at}<br>{label(detail, most=90)}" if isinstance(detail, str) and detail else at


def walls(s: LaneScene, at_us: int) -> Sequence[Scatter]:
    """Where a listener stops, and which are down."""
    waits, down = s.waits, s.downs["lane"].to_numpy()[s.lasting(s.downs, at_us)].tolist()
    now = s.lasting(waits, at_us)
    places, lanes = (waits[c].to_numpy()[now].tolist() for c in ("x", "lane"))
    at = [(x + 0.35, x + 0.35, lane - 0.44, lane + 0.44) for x, lane in zip(places, lanes, strict=True)]
    wall = {"x": _gapped([a[:2] for a in at]), "y": _gapped([a[2:] for a in at])}
    lines = {"mode": "lines", "line": {"width": 7, "color": WRONG}, "name": "wall: waits"}
    starts, ends = extent(s)
    waiting = zip(*(waits[c].to_numpy()[now].tolist() for c in ("since", "detail")), strict=True)
    texts = [f" since {ms(since)}: {label(detail or 'DDL', most=60)} " for since, detail in waiting]
    sides = ["bottom left" if x > (starts + ends) / 2 else "bottom right" for x in places]
    words = {"mode": "text", "text": texts, "textposition": sides, "textfont": {"color": WRONG}}
    off = _strokes([(starts - 0.5, ends + 0.5, lane) for lane in down])
    return [
        Scatter(**wall, **lines, hoverinfo="skip", showlegend=not s.waits.empty),
        Scatter(
            x=[a[0] for a in at], y=[lane + 0.27 for lane in lanes], **words, hoverinfo="skip", showlegend=False
        ),
        Scatter(
            **off, mode="lines", line={"width": 40, "color": "rgba(128,128,128,0.35)"}, name="down",
            hoverinfo="skip", showlegend=not s.downs.empty,
        ),
    ]  # fmt: skip


def _is_small(s: LaneScene) -> bool:
    """Whether commit_ts can be written beside the marks."""
    return len(s.rows) <= _FEW and bool((s.rows["commit_ts"] < _SHORT).all())


@lru_cache(maxsize=4)
def extent(s: LaneScene) -> tuple[float, float]:
    """The first and the last place at which anything stands."""
    places = [*s.rows["x"], *s.marks["x"]] or [0.0]
    return min(places), max(places)


def _strokes(spans: Sequence[tuple[float, float, int]]) -> dict[str, list[float | None]]:
    return {"x": _gapped([s[:2] for s in spans]), "y": _gapped([(s[2], s[2]) for s in spans])}


def _gapped(pairs: Sequence[tuple[float, ...]]) -> list[float | None]:
    """Ends of strokes with gaps between them."""
    return [v for pair in pairs for v in (*pair, None)]


# Consumer lanes: what each listener has read, holds, has applied and waits for, at a moment of consumer time.


_LANE_PX = 64
_EACH = 20
"""Up to so many places each has its number."""
_AXIS = {"offset": "offset in the {lane}", "commit": "order of commit_ts upstream (equal ones share a place)"}
_NOTE = {
    "offset": "One lane per {lane}; rows are ticks: faint where not read, tall where buffered, short where applied. "
    "Look for a tall stretch behind a flag, and for a wall: a listener that stops at a DDL or Admin event until the "
    "others are there.",
    "commit": "One lane per {lane}, rows in the order of their commit_ts: faint where not read, tall where "
    "buffered, short where applied. Where all up to one place is applied and nothing behind it, the downstream is a "
    "state of upstream; in the band named `later without earlier` it is none.",
}


def consumer_lanes(
    deliveries: pd.DataFrame, steps: pd.DataFrame, *, at_us: int | None = None, order: Order = "offset",
    most: int = 400, lane: str = "partition",
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
        Row changes drawn; of a longer log the ones read around the moment, noted below.
    lane
        What its lanes are: ``partition``, or ``stream`` of a storage sink.
    """
    if deliveries.empty and steps.empty:
        return sentence("The consumer did nothing", "The log has no message that a consumer would act on.")
    around = at_us if at_us is not None else NEVER
    s = scene(deliveries, steps, order=order, around_us=around, most=most, lane=lane)
    return drawn(s, s.end_us if at_us is None else at_us)


def drawn(s: LaneScene, at_us: int) -> Figure:
    """Draw a scene at a moment (µs); every moment of a scene has the same traces."""
    fig = Figure(traces_at(s, at_us))
    names = [f"{s.kind} {p}" for _, p in s.lanes]
    if len({topic for topic, _ in s.lanes}) > 1:
        names = [f"{label(topic)} {p}" for topic, p in s.lanes]
    starts, ends = extent(s)
    room = 0.03 * (ends - starts) + 0.5
    few = 1 if ends - starts <= _EACH else None
    fig.update_xaxes(
        title_text=_AXIS[s.order].format(lane=s.kind), range=[starts - room, ends + room], zeroline=False, dtick=few
    )
    fig.update_yaxes(
        tickvals=list(range(len(names))), ticktext=names, range=[len(names) - 0.45, -0.62], showgrid=False,
        zeroline=False,
    )  # fmt: skip
    fig.update_layout(showlegend=True, legend={**legend_above(), "itemsizing": "constant"}, hovermode="closest")
    above_px = legend_px(fig, 20, 870)
    height = 240 + above_px + _LANE_PX * len(names)
    left = f" {len(s.rows):,} of {s.total:,} row changes are drawn." if len(s.rows) < s.total else ""
    return finish(
        fig, title=_finding_of_lanes(s, at_us), note=_NOTE[s.order].format(lane=s.kind) + left, height=height,
        above_px=above_px,
    )  # fmt: skip


def traces_at(s: LaneScene, at_us: int) -> list[Scatter]:
    """What is drawn of a scene at a moment (µs), without its frame."""
    return [
        *seam(s, at_us), *bars(s, at_us), *ticks(s, at_us), *thrown(s, at_us), *controls(s, at_us), *walls(s, at_us),
    ]  # fmt: skip


def _finding_of_lanes(s: LaneScene, at_us: int) -> str:
    states = pd.Series(s.states(at_us)).value_counts()
    n = len(s.rows)
    of = f" drawn (of {s.total:,})" if n < s.total else ""
    applied = int(states.get(APPLIED, 0))
    told = f"At {ms(at_us)} {applied:,} of {count(n, 'row change')}{of} {are(applied if n > 1 else 1)} applied"
    told += f", {states.get(BUFFERED, 0):,} buffered" if states.get(BUFFERED, 0) else ""
    told += f", {states.get(THROWN, 0):,} thrown away" if states.get(THROWN, 0) else ""
    down = sorted({s.lanes[d][1] for d in s.downs["lane"].to_numpy()[s.lasting(s.downs, at_us)]})
    lanes = f"{s.kind}{'s' * (len(down) > 1)} {', '.join(map(str, down))}"
    told += f"; {lanes} {are(len(down))} down" if down else ""
    missing = s.seam(at_us).missing if s.order == "commit" else 0
    told += f"; later ones without {count(missing, 'earlier one')}" if missing else ""
    waiting = s.waits[s.lasting(s.waits, at_us)].sort_values("since", kind="stable")
    if len(waiting):
        first = waiting.iloc[0]
        others = f" and {len(waiting) - 1} more wait" if len(waiting) > 1 else " waits"
        told += f"; {s.kind} {s.lanes[first['lane']][1]}{others} since {ms(first['since'])}"
    return told


# Consumer lanes that play without a kernel: one frame for each moment, with a slider, play and pause.


_CONTROLS_PX = 84
_FRAME_MS = 350


def consumer_lanes_stepped(
    deliveries: pd.DataFrame, steps: pd.DataFrame, *, order: Order = "offset", moments: int = 60, most: int = 300,
    lane: str = "partition",
) -> Figure:  # fmt: skip
    """Draw :func:`ticdc_lab.figures.consumer_lanes.consumer_lanes` at many moments, on a slider with play and pause.

    Parameters
    ----------
    deliveries, steps, order, lane
        As there.
    moments
        Frames at most; more moments with events are thinned evenly, noted below.
    most
        Row changes drawn: the first ones read.
    """
    if deliveries.empty and steps.empty:
        return sentence("The consumer did nothing", "The log has no message that a consumer would act on.")
    s = scene(deliveries, steps, order=order, most=most, lane=lane)
    times, every = s.moments(moments), len(s.moments(1 << 30))
    at = {ms(t): t for t in times}
    figures = {name: Figure(traces_at(s, t)) for name, t in at.items()}
    start = len(figures) // 3  # the beginning has nothing to show
    fig = drawn(s, list(at.values())[start])
    fig.layout.annotations = ()
    outcomes = s.rows["outcome"].value_counts()
    n = len(s.rows)
    of = f" (the first of {s.total:,})" if n < s.total else ""
    applied = int(outcomes.get("applied", 0))
    told = f"{applied:,} of {count(n, 'row change')}{of} {are(applied if n > 1 else 1)} applied in {ms(s.end_us)}"
    less = [f"{outcomes[o]:,} {o}" for o in (*_GONE, "pending") if o in outcomes]
    told += f"; {', '.join(less)}" if less else ""
    where = "a DDL or Admin event" if (s.marks["kind"] == "admin").any() else "a DDL"
    left = (
        f" Of {every:,} moments at which something happens {len(figures):,} are shown." if len(figures) < every else ""
    )
    fig = finish(
        fig,
        title=told + (f"; listeners stop at {where} {count(len(s.waits), 'time')}" if len(s.waits) else ""),
        note=f"{fig.layout.meta['note']}{left} On screen: play, or move the slider.",
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
