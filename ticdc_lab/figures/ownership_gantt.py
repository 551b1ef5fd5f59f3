"""Ownership Gantt: which capture has which table in which state, where two write and where none does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from ticdc_lab.figures.figure import Bar, Figure, Scatter, subplots
from ticdc_lab.figures.look import GREY, WRONG, hatch, legend_above
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import finish, label, sentence
from ticdc_lab.simulate.lags import end_us
from ticdc_lab.simulate.ledger import bands, coverage, gaps, moments, natural, overlaps, stretches, writers_over_time
from ticdc_lab.simulate.scheduler.facts import PAUSED, STATES
from ticdc_lab.words import count, rounded

STATE_LOOK = {
    "preparing": ("#E69F00", "/"), "prepared": ("#56B4E9", "."), "replicating": ("#009E73", ""),
    "stopping": ("#CC79A7", "x"), PAUSED: (GREY, "-"),
}  # fmt: skip
"""Colour and pattern of each state of a table."""

_LINES = {
    "owner": ("#0072B2", "solid", "new owner", "triangle-down"), "crash": (WRONG, "dash", "crash", "x"),
    "restart": ("#009E73", "dot", "restart", "triangle-up"),
    "session lost": ("#CC79A7", "dot", "session lost", "hourglass"),
    "pause": ("#E69F00", "dot", "pause", "square"), "violated": (WRONG, "solid", "invariant broken", "star"),
}  # fmt: skip
_ROW_PX, _LANE_PX, _MOST_PX = 30, 19, 1300
_FEW = 8
"""Up to so many rows are higher."""

_NAMED = 0.055
"""A bar this wide, as a share of the figure, has its capture or table written on it while it replicates."""

_NOTE = (
    "A row per {by}, coloured by the state of the table's pipeline; replicating and stopping ones write. Look for "
    "tables that two captures write at once, and for hatched stretches, which no capture writes. Lines down are new "
    "owners, crashes and restarts."
)


def ownership_gantt(
    trace: pa.Table, *, by: By = "table", clock: Clock = "us", tables: tuple[str, ...] = (),
    captures: tuple[str, ...] = (), most: int = 60,
) -> Figure:  # fmt: skip
    """Draw who owns what over time.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.
    by
        What has a row: a ``table``, or a ``capture`` with its tables packed below each other.
    clock
        ``us`` for virtual time; ``step`` for a counterexample of the explorer, whose times are numbers of steps.
    tables
        Those drawn (ids as text); by default all.
    captures
        Only tables that these ever had are drawn, on whomever they were; by default all.
    most
        Rows drawn; of more tables :func:`ticdc_lab.figures.ownership_gantt` draws how many are in which state.
    """
    r = rows_of(trace, by=by, clock=clock, tables=tables, captures=captures)
    if r.bars.empty:
        return sentence("No capture ever has a table", "In this run no table was dispatched.")
    if r.lanes > most:
        return ownership_bands(trace, look=STATE_LOOK)
    mine = r.doubled if by == "table" else r.doubled.iloc[:0]
    marker = {"color": "rgba(213,94,0,0.30)", "line": {"color": WRONG, "width": 3}}
    texts = [
        f"<b>table {label(t)} is written by {label(c)}</b><br>{rounded(a / 1000, 6)} to {rounded(b / 1000, 6)} ms"
        for t, c, a, b in zip(mine["table"], mine["captures"], mine["since_us"], mine["until_us"], strict=True)
    ]
    fig = Figure([*_states(r, by), *_unowned(r, by), _frame(mine, marker, "two write", texts), *_lines(r)])
    at, texts = (list(range(len(r.names))), list(r.names)) if by == "table" else capture_ticks(r)
    prefix = "table " if by == "table" else ""
    fig.update_yaxes(
        tickvals=at, ticktext=[prefix + label(t) for t in texts], range=[r.lanes - 0.4, -1.1], showgrid=False,
        zeroline=False,
    )  # fmt: skip
    fig.update_xaxes(title_text=r.unit, zeroline=False, rangemode="tozero")
    fig.update_layout(barmode="overlay", bargap=0, hovermode="closest", legend=legend_above())
    each = _ROW_PX if by == "table" else _LANE_PX
    height = 250 + min(_MOST_PX, round((1.6 if r.lanes <= _FEW else 1.0) * each * (r.lanes + 1)))
    fig.update_layout(uniformtext={"mode": "hide", "minsize": 12})  # a name that a narrow bar would cut
    return finish(fig, title=finding_of(r, clock), note=_NOTE.format(by=by), height=height, above_px=46)


def finding_of(r: Rows, clock: Clock) -> str:
    """What the bars show, in a sentence."""
    unit = _length if clock == "us" else lambda v: count(int(v), "step")
    two, nobody = r.doubled, r.unowned
    if len(two):
        worst = two.iloc[int((two["x1"] - two["x0"]).argmax())]
        length = worst[f"until_{clock}"] - worst[f"since_{clock}"]
        ends = f"for {unit(length)}" if length else "at the end"
        others = (
            f"; {two['table'].nunique():,} tables are written twice at some time" if two["table"].nunique() > 1 else ""
        )
        double = f"Table {label(worst['table'])} is written by {label(worst['captures'])} at once {ends}{others}"
    else:
        double = "No table is ever written by two captures"
    if nobody.empty:
        return f"{double}, and none is left alone once it runs"
    longest = nobody.iloc[int((nobody["x1"] - nobody["x0"]).argmax())]
    ends = unit(longest[f"until_{clock}"] - longest[f"since_{clock}"])
    n = nobody["table"].nunique()
    alone = f"{count(n, 'table has', 'tables have')} a gap"
    return f"{double}; {alone}, the longest {ends} (table {label(longest['table'])})"


def _length(us: float) -> str:
    return f"{rounded(us / 1e6)} s" if us >= 1e6 else f"{rounded(us / 1000, 4)} ms"


def _states(r: Rows, by: By) -> list[Bar]:
    span = float(r.bars["x1"].max()) or 1.0
    out = []
    for state, (color, shape) in STATE_LOOK.items():
        mine = r.bars[r.bars["state"] == state]
        other = "capture" if by == "table" else "table"
        wide = ((mine["x1"] - mine["x0"]) / span > _NAMED) & (mine["height"] > 0.3) & (state == "replicating")
        marker = {"color": color, "line": {"width": 0.5, "color": "white"}, "pattern": hatch(shape)}
        hover = [
            f"table {label(r.table)} is {r.state} on {label(r.node)}<br>{rounded(r.since_us / 1000, 6)} to "
            f"{'the end' if r.open else f'{rounded(r.until_us / 1000, 6)} ms'}"
            for r in mine.itertuples()
        ]
        bars = Bar(
            orientation="h", base=mine["x0"].tolist(), x=(mine["x1"] - mine["x0"]).tolist(), y=mine["y"].tolist(),
            width=mine["height"].tolist(), marker=marker, name=state,
            text=[label(n, most=20) if w else "" for n, w in zip(mine[other], wide, strict=True)],
            textposition="inside", insidetextanchor="start", textfont={"size": 12, "color": "white"},
            textangle=0, constraintext="inside", cliponaxis=True,
            hovertext=hover, hoverinfo="text", showlegend=len(mine) > 0,
        )  # fmt: skip
        held = zip(mine["table"], mine["capture"], strict=True)
        out.append(marked(bars, [Selection(table=t, capture=c) for t, c in held]))
    return out


def _unowned(r: Rows, by: By) -> list[Bar]:
    mine = r.unowned if by == "table" else r.unowned.iloc[:0]
    lines = hatch("/", size=9, solidity=0.3, color=GREY)
    marker = {"color": "rgba(0,0,0,0)", "line": {"color": GREY, "width": 1}, "pattern": lines}
    texts = [
        f"no capture writes table {label(t)}<br>{rounded(a / 1000, 6)} to {rounded(b / 1000, 6)} ms"
        for t, a, b in zip(mine["table"], mine["since_us"], mine["until_us"], strict=True)
    ]
    return [_frame(mine.assign(height=0.6), marker, "no writer", texts)]


def _frame(mine: pd.DataFrame, marker: Mapping[str, object], name: str, texts: list[str]) -> Bar:
    bars = Bar(
        orientation="h", base=mine["x0"].tolist(), x=(mine["x1"] - mine["x0"]).tolist(), y=mine["y"].tolist(),
        width=mine["height"].tolist(), marker=marker, name=name, hovertext=texts, hoverinfo="text",
        showlegend=len(mine) > 0,
    )  # fmt: skip
    return marked(bars, [Selection(table=t) for t in mine["table"]])


def _lines(r: Rows) -> list[Scatter]:
    """A line down for each incident, behind the bars and their names, with a mark on its top that names it."""
    out = []
    for what, (color, dash, name, symbol) in _LINES.items():
        mine = r.lines[r.lines["what"] == what]
        if mine.empty:
            continue
        x = [v for at in mine["x"] for v in (at, at, None)]
        y = [v for _ in mine["x"] for v in (-0.8, r.lanes - 0.5, None)]
        sizes = [v for _ in mine["x"] for v in (11, 0, 0)]
        hover = [
            t
            for c, b in zip(mine["capture"], mine["because"], strict=True)
            for t in [f"{name}: {label(c)}{f'<br>{label(b, most=120)}' if b else ''}"] * 3
        ]
        line = Scatter(
            x=x, y=y, mode="lines+markers", line={"color": color, "dash": dash, "width": 1.6},
            marker={"symbol": symbol, "size": sizes, "color": color, "opacity": 1}, name=name, hovertext=hover,
            hoverinfo="text", zorder=-1,
        )  # fmt: skip
        who = [Selection(capture=c) if c else None for c in mine["capture"]]
        out.append(marked(line, [pick for pick in who for _ in range(3)]))
    return out


# Where the bars of an ownership Gantt stand: a row for each table or capture, lanes for what lasts at once.

By = Literal["table", "capture"]
Clock = Literal["us", "step"]

_BETWEEN = 0.6
"""Room between two captures."""


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """Bars of a Gantt."""

    names: tuple[str, ...]  # rows, from the top
    bars: pd.DataFrame  # :func:`ticdc_lab.simulate.ledger.stretches` with ``x0``, ``x1``, ``y`` and ``height``
    # ``doubled``, ``unowned``: overlaps and gaps with the same.
    doubled: pd.DataFrame
    unowned: pd.DataFrame
    lines: pd.DataFrame  # :func:`ticdc_lab.simulate.ledger.moments` with ``x``
    lanes: float  # how many units of ``y`` all of it takes
    unit: str  # of ``x``: ``virtual time, s``, ``virtual time, ms`` or ``step``


def rows_of(
    trace: pa.Table, *, by: By, clock: Clock, tables: tuple[str, ...] = (), captures: tuple[str, ...] = ()
) -> Rows:
    """Lay the stretches of a trace out; ``x`` is in seconds (milliseconds in a run of less than a second) or steps.

    ``trace``: :data:`ticdc_lab.simulate.trace.TRACE`. ``by``: what has a row. ``clock``: ``us`` for virtual time,
    ``step`` for a counterexample, whose time is the number of a step. ``tables``: those drawn; by default all.
    ``captures``: only tables that these ever had, with all who had them too; by default all.
    """
    held = stretches(trace)
    held = held[held["table"].isin(tables)] if tables else held
    held = held[held["table"].isin(held[held["capture"].isin(captures)]["table"])] if captures else held
    two, nobody = overlaps(trace, held), gaps(trace, held)
    last = int(trace[_TIME[clock]][-1].as_py()) if len(trace) else 0
    scale, unit = (1e-6, "virtual time, s") if last >= 1_000_000 else (1e-3, "virtual time, ms")
    scale, unit = (1.0, "step") if clock == "step" else (scale, unit)
    beyond = 0.03 * max(1, last) * scale
    held, two, nobody = (_placed(f, clock, scale, last, beyond) for f in (held, two, nobody))
    names = tuple(sorted(set(held[by]), key=natural))
    number = {name: i for i, name in enumerate(names)}
    held["row"], lanes = held[by].map(number), np.ones(len(names), dtype=int)
    held["lane"] = 0
    for name, mine in held.groupby(by, sort=False):
        lane = _lanes(mine, ["node"] if by == "table" else ["table"])
        held.loc[mine.index, "lane"] = lane
        lanes[number[name]] = lane.max() + 1
    if by == "capture":
        first = np.cumsum(lanes) - lanes + _BETWEEN * np.arange(len(lanes))
        held["y"], held["height"] = first[held["row"].to_numpy(dtype=int)] + held["lane"], 0.86
    else:
        n = lanes[held["row"].to_numpy(dtype=int)]
        held["y"], held["height"] = held["row"] - 0.4 + 0.8 * (held["lane"] + 0.5) / n, 0.8 / n
    for frame in (two, nobody):
        frame["y"], frame["height"] = frame["table"].map(number).astype(float), 0.92
    lines = moments(trace)
    lines["x"] = lines[_TIME[clock]] * scale
    high = len(names) if by == "table" else lanes.sum() + _BETWEEN * len(lanes)
    return Rows(names, held, two, nobody, lines, float(high), unit)


def capture_ticks(r: Rows) -> tuple[list[float], list[str]]:
    """Where the captures' names stand, when each has as many lanes as it needs."""
    middle = r.bars.groupby("capture")["y"].agg(lambda y: (y.min() + y.max()) / 2)
    return [float(middle[name]) for name in r.names], list(r.names)


_TIME = {"us": "time_us", "step": "step"}


def _placed(frame: pd.DataFrame, clock: Clock, scale: float, last: int, beyond: float) -> pd.DataFrame:
    """With ``x0`` and ``x1``; what begins at the very end is drawn a little beyond it, so that it can be seen."""
    x0, x1 = frame[f"since_{clock}"].astype(float), frame[f"until_{clock}"].astype(float)
    late = (frame[f"since_{clock}"] == last) & (frame[f"until_{clock}"] == last)
    return frame.assign(x0=x0 * scale, x1=x1 * scale + np.where(late, beyond, 0.0)).reset_index(drop=True)


def _lanes(mine: pd.DataFrame, same: list[str]) -> npt.NDArray[np.int64]:
    """The lane of each stretch: consecutive ones of one holder and table share one, unless something is in the way."""
    free: list[float] = []
    lane_of: dict[object, tuple[int, float]] = {}
    out = []
    for bar in mine.to_dict("records"):
        who = tuple(bar[c] for c in same)
        lane, until = lane_of.get(who, (-1, -1.0))
        if lane < 0 or until != bar["x0"] or free[lane] > bar["x0"]:
            lane = next((i for i, end in enumerate(free) if end <= bar["x0"]), len(free))
        if lane == len(free):
            free.append(0.0)
        free[lane], lane_of[who] = bar["x1"], (lane, bar["x1"])
        out.append(lane)
    return np.array(out, dtype=np.int64)


# Ownership of many tables: how many each capture has in which state, and how many two or none writes.

_MOST = 16
_BANDS_NOTE = (
    "A band per capture: how many tables it has, by state. The band at the foot counts tables that two captures write "
    "at once and that none writes. Lines down are new owners (solid) and crashes (dashed)."
)


def ownership_bands(trace: pa.Table, *, look: Mapping[str, tuple[str, str]]) -> Figure:
    """Draw how many tables each capture has over time.

    ``trace``: :data:`ticdc_lab.simulate.trace.TRACE`; some capture has a table in it. ``look``: state to colour and
    pattern.
    """
    held = stretches(trace)
    counts = bands(held, last_us=end_us(trace))
    captures = sorted(set(held["capture"]), key=natural)
    shown = captures[:_MOST]
    fig = subplots(rows=len(shown) + 1, cols=1, shared_xaxes=True, vertical_spacing=0.1 / (len(shown) + 1))
    top = int(counts.groupby(["capture", "time_us"])["n"].sum().max())
    for i, capture in enumerate(shown, start=1):
        for state in (*STATES, PAUSED):
            mine = counts[(counts["capture"] == capture) & (counts["state"] == state)]
            fig.add_trace(_band(mine, capture, state, look[state], first=i == 1), i, 1)
        fig.update_yaxes(title_text=label(capture, most=14), range=[0, top * 1.05], nticks=3, row=i, col=1)
    covered = coverage(trace, held)
    wrong = writers_over_time(covered)
    for what, color in (("two write", WRONG), ("no writer", GREY)):
        fig.add_trace(_wrong(wrong[wrong["what"] == what], what, color), len(shown) + 1, 1)
    fig.update_yaxes(title_text="wrong", rangemode="tozero", nticks=3, row=len(shown) + 1, col=1)
    fig.update_xaxes(title_text="virtual time, s", row=len(shown) + 1, col=1)
    for line in moments(trace).to_dict("records"):
        if line["what"] in _EVENT_LINES:
            fig.add_vline(x=line["time_us"] / 1e6, line=_EVENT_LINES[line["what"]])
    fig.update_layout(hovermode="x unified", legend=legend_above())
    cut = f" {len(shown)} of {len(captures)} captures are drawn." if len(shown) < len(captures) else ""
    title = _finding(held["table"].nunique(), covered)
    return finish(fig, title=title, note=_BANDS_NOTE + cut, height=260 + 95 * (len(shown) + 1))


_EVENT_LINES = {
    "owner": {"color": "#0072B2", "width": 1.3, "dash": "solid"},
    "crash": {"color": WRONG, "width": 1.3, "dash": "dash"},
}  # fmt: skip


def _band(mine: pd.DataFrame, capture: str, state: str, look: tuple[str, str], *, first: bool) -> Scatter:
    pattern = {"shape": look[1], "fgcolor": "white", "bgcolor": look[0], "size": 6, "solidity": 0.15}
    band = Scatter(
        x=(mine["time_us"] / 1e6).tolist(), y=mine["n"].tolist(), stackgroup=capture, name=state, legendgroup=state,
        line={"width": 0.5, "shape": "hv", "color": look[0]}, fillcolor=look[0], showlegend=first,
        fillpattern=pattern if look[1] else None, hovertemplate="%{y:,} tables<extra>" + state + "</extra>",
    )  # fmt: skip
    return marked(band, Selection(capture=capture))


def _wrong(mine: pd.DataFrame, what: str, color: str) -> Scatter:
    return Scatter(
        x=(mine["time_us"] / 1e6).tolist(), y=mine["n"].tolist(), name=what, fill="tozeroy",
        line={"width": 1.5, "shape": "hv", "color": color},
        hovertemplate="%{y:,} tables<extra>" + what + "</extra>",
    )  # fmt: skip


def _finding(tables: int, covered: pd.DataFrame) -> str:
    double, alone = covered[covered["writers"] > 1], covered[covered["writers"] == 0]
    n = double["table"].nunique()
    two = "none is ever written by two captures"
    if n:
        two = f"{count(n, 'table is', 'tables are')} written by two captures at some time"
    if alone.empty:
        return f"{count(tables, 'table')}: {two}"
    longest = (alone["until_us"] - alone["since_us"]).max() / 1e6
    return f"{count(tables, 'table')}: {two}; {alone['table'].nunique():,} have a gap, the longest {rounded(longest)} s"
