"""Watermarks of a log: what each partition had stated at each step of its topic, as a ladder and as lag."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ticdc_lab.events.tso import LOGICAL_BITS, clock_words, compose
from ticdc_lab.figures.figure import Bar, Figure, Scatter, subplots
from ticdc_lab.figures.look import GREY, WRONG, hatched, look
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import alike, clock, finish, label, of_partitions, on_clock, sentence
from ticdc_lab.words import count, percent, rounded

# Where every partition is at every watermark step; shared by the ladder and the lag figure.


Lane = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """One topic along its watermark steps.

    ``x_s`` are the seconds of each step's value since the first. ``step`` is its place among all steps of the topic;
    the drawn ones may be only some of them. ``stands_s[lane]`` are the seconds of what the partition had stated by then
    (nan before its first watermark), ``least_s`` the least of them. ``behind[lane]`` is where it is the least and less
    than the step's own value.
    """

    topic: str
    origin_ms: int
    steps_total: int
    x_s: np.ndarray
    step: np.ndarray
    stands_s: dict[Lane, np.ndarray]
    least_s: np.ndarray
    behind: dict[Lane, np.ndarray]

    def at(self, seconds: np.ndarray | list[float]) -> np.ndarray:
        """Seconds since the first step on the clock of the axes."""
        return clock(self.origin_ms + 1000 * np.asarray(seconds, dtype=np.float64))

    def held_share(self, lane: Lane) -> float:
        """Share of steps at which the lane holds the topic back; one that is left out is as the one before it."""
        return float(np.average(self.behind[lane], weights=np.diff(self.step, append=self.step[-1] + 1)))

    def held_s_max(self, lane: Lane) -> float:
        """Most seconds the lane was behind while it held the topic back; nan where it never had a watermark."""
        late = (self.x_s - self.stands_s[lane])[self.behind[lane]]
        late = late[~np.isnan(late)]
        return float(late.max()) if len(late) else float("nan")

    def worst(self) -> list[Lane]:
        """The lanes that hold the topic back at most steps, all at the same ones; none if none does."""
        ranked = sorted(self.behind, key=lambda lane: (-self.held_share(lane), lane))
        if not ranked or not self.behind[ranked[0]].any():
            return []
        return next(lanes for lanes in alike(self.behind) if ranked[0] in lanes)

    def until_next_s(self) -> np.ndarray:
        """Seconds from each step to the next of the topic; nan where that is left out, and at the last."""
        follows = np.diff(self.step, append=self.step[-1]) == 1
        return np.where(follows, np.diff(self.x_s, append=np.nan), np.nan)

    @property
    def about(self) -> str:
        """``about `` where some steps are left out."""
        return "about " if len(self.x_s) < self.steps_total else ""


def progress(steps: pd.DataFrame, partitions: pd.DataFrame) -> list[TopicProgress]:
    """One :class:`TopicProgress` per topic.

    ``steps``: :func:`ticdc_lab.answers.summary.watermark_steps`. ``partitions``: ``topic, partition`` of all partitions
    with events, so that one without a watermark is seen.
    """
    return [_topic(str(t), group, partitions[partitions["topic"] == t]) for t, group in steps.groupby("topic")]


def _topic(topic: str, steps: pd.DataFrame, partitions: pd.DataFrame) -> TopicProgress:
    numbers = sorted({int(p) for p in [*steps["partition"], *partitions["partition"]]})
    ends = steps.groupby("step")["step_ts"].max().sort_index()
    origin = int(ends.min()) >> LOGICAL_BITS
    x_s = seconds(ends, origin)
    stated = {(int(p), int(s)): int(ts) for p, s, ts in steps[["partition", "step", "resolved_ts"]].itertuples(False)}
    stands = {p: _so_far([stated.get((p, int(s))) for s in ends.index]) for p in numbers}
    exact = np.array([[-1 if v is None else v for v in stands[p]] for p in numbers], dtype=np.int64)
    least = exact.min(axis=0)
    tops = ends.to_numpy(dtype=np.int64)
    held = (exact < tops) & (exact == least)
    in_s = np.where(exact < 0, np.nan, ((exact >> LOGICAL_BITS) - origin) / 1000)
    lanes = [(topic, p) for p in numbers]
    return TopicProgress(
        topic, origin, int(steps["steps_total"].max()), x_s, ends.index.to_numpy(dtype=np.int64),
        dict(zip(lanes, in_s, strict=True)),
        np.where(least < 0, np.nan, ((least >> LOGICAL_BITS) - origin) / 1000), dict(zip(lanes, held, strict=True)),
    )  # fmt: skip


def _so_far(values: list[int | None]) -> list[int | None]:
    out: list[int | None] = []
    for v in values:
        before = out[-1] if out else None
        out.append(before if v is None else v if before is None else max(v, before))
    return out


def seconds(ts: pd.Series, origin_ms: int) -> np.ndarray:
    """Seconds of TSOs after a physical time, exact to the millisecond."""
    return np.asarray((ts.to_numpy(dtype=np.int64) >> LOGICAL_BITS) - origin_ms) / 1000


def lane_name(lane: Lane, *, one_topic: bool) -> str:
    """``partition 3``, with the topic where there is more than one."""
    return f"partition {lane[1]}" if one_topic else f"{label(lane[0])} partition {lane[1]}"


# Watermark ladder with the laggard band: how far each partition is resolved, and who holds the topic back.


_NOTE_OF_LADDER = (
    "The thick grey line is the topic's resolved ts. Look for a partition that stays flat while the others climb: "
    "it holds everyone back"
)


def watermark_ladder(
    steps: pd.DataFrame, *, partitions: pd.DataFrame, incidents: pd.DataFrame | None = None, topic: str | None = None,
    partition: int | None = None, at_least: bool = False,
) -> Figure:  # fmt: skip
    """Draw the resolved ts of every partition over the topic's watermark steps.

    Parameters
    ----------
    steps
        :func:`ticdc_lab.answers.summary.watermark_steps`.
    partitions
        ``topic, partition`` of every partition that holds events.
    incidents
        :func:`ticdc_lab.answers.summary.incidents`: regressions and stalls to mark.
    topic
        Which topic; by default the one with most steps.
    partition
        The only one that is drawn beside the topic's own line, and that the title is about; by default all are.
    at_least
        Whether the log has more incidents than these.
    """
    if steps.empty:
        return sentence("How far the log is complete is unknown", "The log has no watermark message.")
    of = progress(steps, partitions)
    p = next((q for q in of if q.topic == topic), max(of, key=lambda q: q.steps_total))
    found = pd.DataFrame() if incidents is None or incidents.empty else incidents[incidents["topic"] == p.topic]
    chosen = None if partition is None else (p.topic, partition)
    shown = [lane for lane in p.stands_s if chosen in (None, lane)]
    band = any(p.behind[lane].any() for lane in shown) or not found.empty
    heights = [0.82, 0.18] if band else [1.0]
    fig = subplots(rows=len(heights), cols=1, shared_xaxes=True, row_heights=heights, vertical_spacing=0.06)
    _area(fig, p)
    for lanes in alike({lane: p.stands_s[lane] for lane in shown}):
        _ladder_line(fig, p, lanes)
    for lane in shown:
        _band(fig, p, lane)
    marks = [] if found.empty else _incidents(fig, p, found, "at least " * at_least)
    fig.update_yaxes(**on_clock("resolved ts"), row=1, col=1)
    if band:
        fig.update_yaxes(title_text="held by", showticklabels=False, range=[0, 1], showgrid=False, row=2, col=1)
    fig.update_xaxes(type="date")
    fig.update_xaxes(**on_clock("watermark broadcast, clock of the TSO"), row=len(heights), col=1)
    if len(p.x_s) == 1:  # plotly would spread both axes by a millisecond, with ticks in their corner
        fig.update_xaxes(tickvals=p.at(p.x_s))
        stated = sorted({float(lane[0]) for lane in p.stands_s.values() if lane[0] == lane[0]})
        fig.update_yaxes(tickvals=p.at(stated), row=1, col=1)
    fig.update_layout(barmode="overlay", bargap=0, hovermode="closest")
    worst = p.worst() if chosen not in p.stands_s else [chosen]
    title = _finding_of_ladder(p, marks, chosen, worst)
    fig = finish(fig, title=title, note=_note(p, band), height=520 if band else 440)
    if worst and p.behind[worst[0]][-1]:
        fig.layout.meta["from_end"] = True  # a narrow place shows first what the title names
    return fig


def _finding_of_ladder(p: TopicProgress, marks: list[str], chosen: Lane | None, worst: list[Lane]) -> str:
    if chosen in p.stands_s and not p.behind[chosen].any():
        told = f"Partition {chosen[1]} never holds the topic back"
    elif not worst:
        n = len(p.stands_s)
        every = f"All {n:,} partitions state" if n > 1 else "The one partition states"
        steps = f"all {count(p.steps_total, 'watermark')}" if p.steps_total > 1 else "the one watermark"
        told = f"{every} {steps}: no partition holds the topic back"
    else:
        late, stands, held = p.held_s_max(worst[0]), p.stands_s[worst[0]], p.behind[worst[0]]
        who = of_partitions(lane[1] for lane in worst)
        holds = "hold" if len(worst) > 1 else "holds"
        share = percent(p.held_share(worst[0]))
        told = f"P{who[1:]} {holds} the minimum for {p.about * share[0].isdigit()}{share} of the steps"
        first = "until their first watermark" if len(worst) > 1 else "until its first watermark"
        if np.isnan(stands).all():
            told += ", without any watermark"
        elif math.isnan(late):
            told += f", {first}"
        else:
            told += f", at most {rounded(late)} s behind" + f" and {first}" * bool(np.isnan(stands[held]).any())
        if held[-1] and not math.isnan(late):
            told, marks = f"{told}, to the last step", [f"{mark} before" for mark in marks]
    return "; ".join([told, *([" and ".join(marks)] if marks else [])])


def _note(p: TopicProgress, band: bool) -> str:
    shown = len(p.x_s)
    told = (
        f"{_NOTE_OF_LADDER}, and the band below has its colour for that time."
        if band
        else f"{_NOTE_OF_LADDER}; here none does."
    )
    widened = band and any(length < _thin(p) for held in p.behind.values() for *_, length in _stretches(p, held))
    told += " What lasted less than 1/200 of the axis is drawn that wide." * widened
    if shown >= p.steps_total:
        return told
    return f"{told} {shown:,} of {p.steps_total:,} steps are drawn, the largest lags among them."


def _area(fig: Figure, p: TopicProgress) -> None:
    step = {"mode": "lines", "line_shape": "hv", "hoverinfo": "skip", "x": p.at(p.x_s)}
    fastest = np.fmax.reduce(list(p.stands_s.values()))
    fig.add_trace(Scatter(y=p.at(fastest), line={"width": 0}, showlegend=False, **step), 1, 1)
    shade = "rgba(128,128,128,0.22)"
    fig.add_trace(
        Scatter(
            y=p.at(p.least_s), line={"width": 0}, fill="tonexty", fillcolor=shade, name="fastest to slowest", **step
        ),
        1,
        1,
    )
    fig.add_trace(
        Scatter(y=p.at(p.least_s), line={"width": 7, "color": "rgba(128,128,128,0.55)"}, name="minimum", **step), 1, 1
    )


def _ladder_line(fig: Figure, p: TopicProgress, lanes: list[Lane]) -> None:
    """One line for the partitions that state the same; it has the look of the first."""
    style, y, name = look(lanes[0][1]), p.stands_s[lanes[0]], of_partitions(lane[1] for lane in lanes)
    upcoming = p.until_next_s()
    hover = [
        f"{name}<br>resolved ts {_at(p, v)}<br>lag {_num(x - v)} s"
        + ("" if math.isnan(n) else f"<br>the next watermark is {_num(n)} s ahead")
        for x, v, n in zip(p.x_s, y, upcoming, strict=True)
    ]
    stated = ~np.isnan(y) & np.append(True, y[1:] != y[:-1])  # at other steps it received none
    line = Scatter(
        x=p.at(p.x_s), y=p.at(y), mode="lines+markers" if len(p.x_s) <= _FEW else "lines",
        line={"shape": "hv", "width": 1.5, "color": style["color"], "dash": style["dash"]},
        marker={"symbol": style["symbol"], "size": 5 if stated.all() else 5 * stated, "color": style["color"]},
        name=name, legendgroup=str(lanes[0][1]), hovertext=hover, hoverinfo="text",
    )  # fmt: skip
    fig.add_trace(marked(line, _of(lanes)), 1, 1)


_FEW = 60
"""Steps that have a marker each."""


def _at(p: TopicProgress, seconds: float) -> str:
    """The time of seconds on the axes."""
    return "none yet" if math.isnan(seconds) else clock_words(compose(p.origin_ms + round(1000 * seconds)))


def _band(fig: Figure, p: TopicProgress, lane: Lane) -> None:
    """Bars from each step to the next where the lane holds the topic back; lanes that tie share the height."""
    held = p.behind[lane]
    if not held.any():
        return
    ends = np.append(p.x_s[1:], p.x_s[-1])
    tied = np.sum(list(p.behind.values()), axis=0)
    before = np.cumsum(list(p.behind.values()), axis=0)[list(p.behind).index(lane)] - 1
    width = ends - p.x_s
    for low, high, length in _stretches(p, held):
        width[low:high] *= max(1.0, _thin(p) / length) if length else 1.0
        width[high - 1] = max(width[high - 1], 0.0 if length else _thin(p))
    bars = Bar(
        x=p.at((p.x_s + width / 2)[held]), width=1000 * width[held], y=(1 / tied[held]),
        base=(before[held] / tied[held]), marker=hatched(lane[1]), name=lane_name(lane, one_topic=True),
        legendgroup=str(lane[1]), showlegend=False,
        hovertext=[f"{lane_name(lane, one_topic=True)} holds the minimum, step {i + 1}" for i in np.flatnonzero(held)],
        hoverinfo="text",
    )  # fmt: skip
    fig.add_trace(marked(bars, _of([lane])), 2, 1)
    if held[-1] and tied[-1] == 1:
        begins = p.x_s[np.flatnonzero(~held)[-1] + 1 if not held.all() else 0]
        late_s = float(p.x_s[-1] - p.stands_s[lane][-1])
        if not math.isnan(late_s):
            _named(fig, p, (float(begins), float(p.x_s[-1])), f"{rounded(late_s)} s behind")


def _stretches(p: TopicProgress, held: np.ndarray) -> list[tuple[int, int, float]]:
    """First and end of each stretch of steps at which a lane holds the topic back, and how long it is, s."""
    ends = np.append(p.x_s[1:], p.x_s[-1])
    edges = np.flatnonzero(np.diff(held.astype(np.int8), prepend=0, append=0)).reshape(-1, 2).tolist()
    return [(low, high, float(ends[high - 1] - p.x_s[low])) for low, high in edges]


def _thin(p: TopicProgress) -> float:
    """The least width of a stretch, s."""
    return float(p.x_s[-1] - p.x_s[0]) / 200 or 0.001


def _of(lanes: list[Lane]) -> Selection:
    """What a click on a line chooses: its partition, where it is of one alone."""
    return Selection(topic=lanes[0][0], partition=lanes[0][1] if len(lanes) == 1 else None)


def _incidents(fig: Figure, p: TopicProgress, incidents: pd.DataFrame, least: str) -> list[str]:
    """Regressions as crosses on the line, stalls as hatched spans with their length; gives how many of each."""
    at = _in_s(p, incidents, "resolved_ts")
    regressed = incidents["regressed"].fillna(False).to_numpy(dtype=bool)
    stalled = incidents["stalled"].fillna(False).to_numpy(dtype=bool)
    if regressed.any():
        back = incidents[regressed]
        hover = [
            f"partition {q}, offset {o}: a watermark {s:.3f} s below the one before"
            for q, o, s in zip(back["partition"], back["offset"], back["regression_s"], strict=True)
        ]
        mark = {"symbol": "x", "size": 11, "color": WRONG, "line": {"width": 1, "color": "white"}}
        x = _in_s(p, back, "partition_resolved_ts")
        crosses = Scatter(
            x=p.at(x), y=p.at(at[regressed]), mode="markers", marker=mark, name="regression", hovertext=hover,
            hoverinfo="text",
        )  # fmt: skip
        picks = [
            Selection(topic=p.topic, partition=q, offset=o)
            for q, o in zip(back["partition"], back["offset"], strict=True)
        ]
        fig.add_trace(marked(crosses, picks), 1, 1)
    spans: dict[tuple[float, float], list[int]] = {}
    for end_s, row in zip(at[stalled], incidents[stalled].itertuples(), strict=True):
        spans.setdefault((float(end_s), float(row.step_s)), []).append(int(row.partition))
    for (end_s, length_s), partitions in spans.items():
        _stall(fig, p, end_s, length_s, partitions)
    return [f"{least}{count(n, of)}" for n, of in ((int(regressed.sum()), "regression"), (len(spans), "stall")) if n]


def _stall(fig: Figure, p: TopicProgress, end_s: float, length_s: float, partitions: list[int]) -> None:
    """A stall, once for all partitions that stalled alike, with its length where there is room."""
    who = "all partitions" if len(partitions) == len(p.stands_s) else of_partitions(partitions)
    text = f"{who} stalled {rounded(length_s)} s, to {_at(p, end_s)}"
    hatch = {"fgcolor": GREY, "fillmode": "overlay", "shape": "/", "size": 8}
    span = {"x": p.at([end_s - length_s / 2]), "width": [1000 * length_s], "y": [1], "base": [0]}
    marker = {"color": "rgba(128,128,128,0.16)", "line": {"width": 1, "color": GREY}, "pattern": hatch}
    bar = Bar(**span, marker=marker, name="stall", showlegend=False, hovertext=[text], hoverinfo="text")
    between_ms = (p.origin_ms + round(1000 * (end_s - length_s)), p.origin_ms + round(1000 * end_s))
    one = partitions[0] if len(partitions) == 1 else None
    fig.add_trace(marked(bar, Selection(topic=p.topic, partition=one, between_ms=between_ms)), 2, 1)
    x0, x1 = (float(x) for x in p.at([end_s - length_s, end_s]))
    fig.add_vrect(x0=x0, x1=x1, fillcolor="rgba(128,128,128,0.14)", line_width=0, layer="below", row=1, col=1)
    _named(fig, p, (end_s - length_s, end_s), f"{rounded(length_s)} s")


def _named(fig: Figure, p: TopicProgress, span_s: tuple[float, float], text: str) -> None:
    """Write on a stretch of the band how long it stalled, or how far behind it ends, where there is room."""
    begin_s, end_s = span_s
    if 0 < _NAMED * (p.x_s[-1] - p.x_s[0]) <= end_s - begin_s:
        place = {"x": p.at([(begin_s + end_s) / 2])[0], "y": 0.5, "yanchor": "middle", "xref": "x2", "yref": "y2"}
        look = {"showarrow": False, "bgcolor": "rgba(255,255,255,0.8)", "font_color": "#1d1d1f"}
        fig.add_annotation(text=text, **place, **look)


_NAMED = 0.045
"""Share of the axis from which on there is room for a stall's length."""


def _in_s(p: TopicProgress, frame: pd.DataFrame, column: str) -> np.ndarray:
    return seconds(frame[column], p.origin_ms)


def _num(v: float) -> str:
    return "none yet" if math.isnan(v) else f"{v:,.3f}"


# Lag over time: seconds between a watermark's value and what each partition has stated.


_NOTE_OF_LAG = (
    "Changefeed resolved ts lag, by the clock of the TSO: a line above zero is a partition that has not stated a "
    "watermark another one already has. A slope is a stall, a saw-tooth is a slow broadcast."
)


def lag(
    steps: pd.DataFrame, *, partitions: pd.DataFrame, topic: str | None = None, partition: int | None = None
) -> Figure:
    """Draw each partition's lag behind the newest watermark; parameters as :func:`watermark_ladder`'s."""
    if steps.empty:
        return sentence("There is no lag to show", "The log has no watermark message.")
    of = progress(steps, partitions)
    p = next((q for q in of if q.topic == topic), max(of, key=lambda q: q.steps_total))
    chosen = [lane for lane in p.stands_s if partition is None or lane[1] == partition]
    if not chosen:
        return sentence(f"Partition {partition} has no event", "Choose another partition.")
    late = {lane: p.x_s - p.stands_s[lane] for lane in chosen}
    if all(np.nansum(v) == 0 and not np.isnan(v).any() for v in late.values()):
        gaps = p.until_next_s()
        every = f"all {p.steps_total:,} watermarks" if p.steps_total > 1 else "the one watermark"
        known = gaps[~np.isnan(gaps)]
        gap = f"; the longest gap between two is {rounded(float(known.max()))} s" if len(known) else ""
        return sentence(
            "No partition ever lags behind another" if partition is None else f"Partition {partition} never lags",
            f"{'Every partition' if partition is None else 'It'} states {every} of the topic{gap}.",
        )
    fig = Figure()
    for lanes in alike(late):
        style, name = look(lanes[0][1]), of_partitions(lane[1] for lane in lanes)
        drawn = Scatter(
            x=p.at(p.x_s), y=late[lanes[0]], mode="lines", name=name,
            line={"shape": "hv", "width": 1.8, "color": style["color"], "dash": style["dash"]},
            hovertemplate="%{y:.3f} s behind at %{x}<extra>%{fullData.name}</extra>",
        )  # fmt: skip
        fig.add_trace(marked(drawn, _of(lanes)))
    fig.update_xaxes(**on_clock("watermark broadcast, clock of the TSO"))
    fig.update_yaxes(title_text="lag, s", rangemode="tozero")
    cut = f" {len(p.x_s):,} of {p.steps_total:,} steps are drawn, the largest lags among them." * bool(p.about)
    return finish(fig, title=_finding_of_lag(p, late), note=_NOTE_OF_LAG + cut)


def _finding_of_lag(p: TopicProgress, late: dict[tuple[str, int], np.ndarray]) -> str:
    worst = max(late, key=lambda lane: (np.nan_to_num(late[lane], nan=-1.0).max(), -lane[1]))
    most = float(np.nan_to_num(late[worst], nan=-1.0).max())
    silent = [lane[1] for lane, v in late.items() if np.isnan(v).all()]
    if silent:
        return f"{count(len(silent), 'partition')} never stated a watermark: {', '.join(map(str, silent))}"
    at = float(p.x_s[int(np.nanargmax(late[worst]))])
    behind = next(lanes for lanes in alike(late) if worst in lanes)
    told = f"The largest lag is {rounded(most)} s, of {of_partitions(lane[1] for lane in behind)}, at {_at(p, at)}"
    late_first = {lane: int(np.isnan(v).argmin()) for lane, v in late.items() if np.isnan(v[0])}
    if not late_first:
        return told
    last = max(late_first, key=lambda lane: (late_first[lane], -lane[1]))
    until = f"artition {last[1]} has no watermark before {_at(p, float(p.x_s[late_first[last]]))}"
    return f"{told}; p{until}" if most else f"P{until}; behind its first one none lags"
