"""Ownership of many tables: how many each capture has in which state, and how many two or nobody writes."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import pyarrow as pa

from ticdc_lab.figures.figure import Figure, Scatter, subplots
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import GREY, WRONG, count, finish, label
from ticdc_lab.simulate.counts import bands, writers_over_time
from ticdc_lab.simulate.coverage import coverage
from ticdc_lab.simulate.incidents import moments
from ticdc_lab.simulate.lags import end_us
from ticdc_lab.simulate.ownership import PAUSED, STATES, natural, stretches

_MOST = 16
_NOTE = (
    "A band per capture: how many tables it has, by state. The band at the foot counts tables that two captures write "
    "at once and that nobody writes. Lines down are new owners (solid) and crashes (dashed)."
)


def ownership_bands(trace: pa.Table, *, look: Mapping[str, tuple[str, str]], finding: str = "") -> Figure:
    """Draw how many tables each capture has over time.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`; some capture has a table in it.
    look
        State to colour and pattern.
    finding
        What the picture shows, where the caller knows better than the numbers that are the title by default.
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
    for what, color in (("two write", WRONG), ("nobody writes", GREY)):
        fig.add_trace(_wrong(wrong[wrong["what"] == what], what, color), len(shown) + 1, 1)
    fig.update_yaxes(title_text="wrong", rangemode="tozero", nticks=3, row=len(shown) + 1, col=1)
    fig.update_xaxes(title_text="virtual time, s", row=len(shown) + 1, col=1)
    for line in moments(trace).to_dict("records"):
        if line["what"] in _LINES:
            fig.add_vline(x=line["time_us"] / 1e6, line=_LINES[line["what"]])
    fig.update_layout(hovermode="x unified", legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"})
    cut = f" {len(shown)} of {len(captures)} captures are drawn." if len(shown) < len(captures) else ""
    title = label(finding, most=300) or _finding(held["table"].nunique(), covered)
    return finish(fig, title=title, note=_NOTE + cut, height=260 + 95 * (len(shown) + 1))


_LINES = {
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
        two = f"{count(n, 'table')} {'is' if n == 1 else 'are'} written by two captures at some time"
    if alone.empty:
        return f"{count(tables, 'table')}: {two}"
    longest = (alone["until_us"] - alone["since_us"]).max() / 1e6
    return f"{count(tables, 'table')}: {two}; {alone['table'].nunique():,} have a gap, the longest {longest:,.3g} s"
