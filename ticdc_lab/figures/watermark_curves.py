"""Watermark curves: how far checkpoint_ts and resolved_ts are behind the clock, per capture and for the changefeed."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
import pyarrow as pa

from ticdc_lab.figures.figure import Figure, Scatter, subplots
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import WRONG, finish, label, look, sentence
from ticdc_lab.simulate.lags import GLOBAL, end_us, lag_curve, watermarks
from ticdc_lab.simulate.ownership import natural
from ticdc_lab.simulate.why_stuck import moments

_MOST = 12
_NAMES = {"checkpoint": "changefeed checkpoint lag", "resolved": "changefeed resolved ts lag"}
_NOTE = (
    "Seconds between the clock and the watermark: it climbs while the watermark stands still. The thick grey line is "
    "the changefeed; look for the capture that it follows. Lines down are new owners (solid) and crashes (dashed)."
)


def watermark_curves(trace: pa.Table, *, captures: tuple[str, ...] = (), finding: str = "") -> Figure:
    """Draw the lag of checkpoint_ts above that of resolved_ts, over virtual time.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.
    captures
        Those drawn beside the changefeed; by default all.
    finding
        What the picture shows, where the caller knows better than the numbers that are the title by default.
    """
    of = watermarks(trace)
    if of.empty:
        return sentence("No watermark is to be seen", "In this run no capture reported one, and none was published.")
    until_us = end_us(trace)
    fig = subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.09)
    every = sorted(set(of["who"]) - {GLOBAL}, key=natural)
    shown = [who for who in every if who in captures] if captures else every
    for row, mark in enumerate(_NAMES, start=1):
        for who in (GLOBAL, *shown[:_MOST]):
            curve = lag_curve(of[(of["who"] == who) & (of["watermark"] == mark)], until_us=until_us)
            fig.add_trace(line_of(curve, who, every, first=row == 1), row, 1)
        fig.update_yaxes(title_text=f"{mark} lag, s", rangemode="tozero", row=row, col=1)
    fig.update_xaxes(title_text="virtual time, s", row=2, col=1)
    incident_lines(fig, trace)
    fig.update_layout(hovermode="closest", legend={"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom"})
    drawn = len(shown[:_MOST])
    cut = f" {drawn} of {len(every)} captures {'is' if drawn == 1 else 'are'} drawn." if drawn < len(every) else ""
    title = label(finding, most=300) or _finding(of, until_us)
    fig = finish(fig, title=title, note=_NOTE + cut, height=560)
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + 30)


def line_of(curve: pd.DataFrame, who: str, captures: list[str], *, first: bool) -> Scatter:
    """One lag as a line; the changefeed's is thick and grey."""
    style = look(captures.index(who)) if who in captures else {"color": "rgba(128,128,128,0.55)", "dash": "solid"}
    line = {"color": style["color"], "dash": style["dash"], "width": 1.8 if who in captures else 7}
    drawn = Scatter(
        x=(curve["time_us"] / 1e6).tolist(), y=(curve["lag_us"] / 1e6).tolist(), mode="lines", line=line,
        name=label(who), legendgroup=label(who), showlegend=first,
        hovertemplate="%{y:.3f} s behind at %{x:.3f} s<extra>" + label(who) + "</extra>",
    )  # fmt: skip
    return marked(drawn, Selection(capture=who)) if who in captures else drawn


def incident_lines(fig: Figure, trace: pa.Table) -> None:
    """Draw new owners and crashes down through all panels; of many the first forty."""
    found = moments(trace)
    for line in found[found["what"].isin(["owner", "crash"])].head(40).to_dict("records"):
        owner = line["what"] == "owner"
        style = {"color": "#0072B2" if owner else WRONG, "width": 1.2, "dash": "solid" if owner else "dash"}
        fig.add_vline(x=line["time_us"] / 1e6, line=style, opacity=0.7)


def _finding(of: pd.DataFrame, until_us: int) -> str:
    curve = lag_curve(of[(of["who"] == GLOBAL) & (of["watermark"] == "checkpoint")], until_us=until_us)
    if curve.empty:
        return "The changefeed's checkpoint is never published"
    worst = curve.loc[curve["lag_us"].idxmax()]
    stood = of[(of["who"] == GLOBAL) & (of["watermark"] == "checkpoint")]
    moves = [*stood["time_us"], until_us]
    longest = max((b - a, a) for a, b in pairwise(moves))
    told = f"The checkpoint lag is at most {worst['lag_us'] / 1e6:,.3g} s, at {worst['time_us'] / 1e6:,.4g} s"
    return f"{told}; the checkpoint stands still for up to {longest[0] / 1e6:,.3g} s, from {longest[1] / 1e6:,.4g} s on"
