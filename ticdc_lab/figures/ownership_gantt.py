"""Ownership Gantt: which capture has which table in which state, where two write and where nobody does."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import pyarrow as pa

from ticdc_lab.figures.figure import Bar, Figure, Scatter
from ticdc_lab.figures.ownership_bands import ownership_bands
from ticdc_lab.figures.ownership_rows import By, Clock, Rows, capture_ticks, rows_of
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import GREY, WRONG, count, finish, label, sentence
from ticdc_lab.simulate.ownership import PAUSED

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
    "tables that two captures write at once, and for hatched stretches, which nobody writes. Lines down are new "
    "owners, crashes and restarts."
)


def ownership_gantt(
    trace: pa.Table, *, by: By = "table", clock: Clock = "us", tables: tuple[str, ...] = (),
    captures: tuple[str, ...] = (), most: int = 60, finding: str = "",
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
        Rows drawn; of more tables :func:`ticdc_lab.figures.ownership_bands` draws how many are in which state.
    finding
        What the picture shows, where the caller knows better than the numbers that are the title by default.
    """
    r = rows_of(trace, by=by, clock=clock, tables=tables, captures=captures)
    if r.bars.empty:
        return sentence("No capture ever has a table", "In this run no table was dispatched.")
    if r.lanes > most:
        return ownership_bands(trace, look=STATE_LOOK, finding=finding)
    fig = Figure([*_states(r, by), *_unowned(r, by), *_doubled(r, by), *_lines(r)])
    at, texts = (list(range(len(r.names))), list(r.names)) if by == "table" else capture_ticks(r)
    prefix = "table " if by == "table" else ""
    fig.update_yaxes(
        tickvals=at, ticktext=[prefix + label(t) for t in texts], range=[r.lanes - 0.4, -1.1], showgrid=False,
        zeroline=False,
    )  # fmt: skip
    fig.update_xaxes(title_text=r.unit, zeroline=False, rangemode="tozero")
    fig.update_layout(
        barmode="overlay", bargap=0, hovermode="closest",
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
    )  # fmt: skip
    each = _ROW_PX if by == "table" else _LANE_PX
    height = 250 + min(_MOST_PX, round((1.6 if r.lanes <= _FEW else 1.0) * each * (r.lanes + 1)))
    fig = finish(fig, title=label(finding, most=300) or finding_of(r, clock), note=_NOTE.format(by=by), height=height)
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + 46)


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
    alone = f"{count(n, 'table')} {'has' if n == 1 else 'have'} a gap"
    return f"{double}; {alone}, the longest {ends} (table {label(longest['table'])})"


def _length(us: float) -> str:
    return f"{us / 1e6:,.3g} s" if us >= 1e6 else f"{us / 1000:,.4g} ms"


def _states(r: Rows, by: By) -> list[Bar]:
    span = float(r.bars["x1"].max()) or 1.0
    out = []
    for state, (color, shape) in STATE_LOOK.items():
        mine = r.bars[r.bars["state"] == state]
        other = "capture" if by == "table" else "table"
        wide = ((mine["x1"] - mine["x0"]) / span > _NAMED) & (mine["height"] > 0.3) & (state == "replicating")
        lines = {"shape": shape, "fillmode": "overlay", "fgcolor": "rgba(255,255,255,0.7)", "size": 7, "solidity": 0.2}
        marker = {"color": color, "line": {"width": 0.5, "color": "white"}, "pattern": lines}
        bars = Bar(
            orientation="h", base=mine["x0"].tolist(), x=(mine["x1"] - mine["x0"]).tolist(), y=mine["y"].tolist(),
            width=mine["height"].tolist(), marker=marker, name=state,
            text=[label(n, most=20) if w else "" for n, w in zip(mine[other], wide, strict=True)],
            textposition="inside", insidetextanchor="start", textfont={"size": 12, "color": "white"},
            textangle=0, constraintext="none", cliponaxis=True,
            hovertext=_hover(mine), hoverinfo="text", showlegend=len(mine) > 0,
        )  # fmt: skip
        held = zip(mine["table"], mine["capture"], strict=True)
        out.append(marked(bars, [Selection(table=t, capture=c) for t, c in held]))
    return out


def _hover(mine: pd.DataFrame) -> list[str]:
    return [
        f"table {label(t)} is {s} on {label(n)}<br>{a / 1000:,.6g} to {'the end' if o else f'{b / 1000:,.6g} ms'}"
        for t, s, n, a, b, o in zip(
            mine["table"], mine["state"], mine["node"], mine["since_us"], mine["until_us"], mine["open"], strict=True
        )
    ]


def _doubled(r: Rows, by: By) -> list[Bar]:
    mine = r.doubled if by == "table" else r.doubled.iloc[:0]
    marker = {"color": "rgba(213,94,0,0.30)", "line": {"color": WRONG, "width": 3}}
    texts = [
        f"<b>table {label(t)} is written by {label(c)}</b><br>{a / 1000:,.6g} to {b / 1000:,.6g} ms"
        for t, c, a, b in zip(mine["table"], mine["captures"], mine["since_us"], mine["until_us"], strict=True)
    ]
    return [_frame(mine, marker, "two write", texts)]


def _unowned(r: Rows, by: By) -> list[Bar]:
    mine = r.unowned if by == "table" else r.unowned.iloc[:0]
    hatch = {"shape": "/", "fgcolor": GREY, "fillmode": "overlay", "size": 9, "solidity": 0.3}
    marker = {"color": "rgba(0,0,0,0)", "line": {"color": GREY, "width": 1}, "pattern": hatch}
    texts = [
        f"nobody writes table {label(t)}<br>{a / 1000:,.6g} to {b / 1000:,.6g} ms"
        for t, a, b in zip(mine["table"], mine["since_us"], mine["until_us"], strict=True)
    ]
    return [_frame(mine.assign(height=0.6), marker, "nobody writes", texts)]


def _frame(mine: pd.DataFrame, marker: Mapping[str, object], name: str, texts: list[str]) -> Bar:
    bars = Bar(
        orientation="h", base=mine["x0"].tolist(), x=(mine["x1"] - mine["x0"]).tolist(), y=mine["y"].tolist(),
        width=mine["height"].tolist(), marker=marker, name=name, hovertext=texts, hoverinfo="text",
        showlegend=len(mine) > 0,
    )  # fmt: skip
    return marked(bars, [Selection(table=t) for t in mine["table"]])


def _lines(r: Rows) -> list[Scatter]:
    """A line down for each incident, with a mark on its top that says what it is."""
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
            hoverinfo="text",
        )  # fmt: skip
        who = [Selection(capture=c) if c else None for c in mine["capture"]]
        out.append(marked(line, [pick for pick in who for _ in range(3)]))
    return out
