"""Why the checkpoint is stuck: at a chosen moment in words, and over time as a band of causes."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from ticdc_lab.figures.figure import Bar, Figure, subplots
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import GREY, count, finish, hatched, label, percent, sentence
from ticdc_lab.figures.watermark_curves import incident_lines, line_of
from ticdc_lab.simulate.lags import GLOBAL, end_us, lag_curve, watermarks
from ticdc_lab.simulate.machine import node_of
from ticdc_lab.simulate.why_stuck import Stuck, causes
from ticdc_lab.simulate.why_stuck import why_stuck as why

_NOTE = (
    "Above, how far the checkpoint is behind the clock: it climbs while the checkpoint stands. Below, what holds it, "
    "by the owner's own word: a table, a capture, a barrier. Hover says since when."
)
_MOST = 7


def why_stuck(trace: pa.Table, *, at_us: int | None = None, of: str = "") -> Figure:
    """Draw what holds the checkpoint over time, and say it for one moment.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.
    at_us
        The moment, µs; by default the end of the longest stretch in which it is held.
    of
        A capture or ``table 7``: only what it holds is drawn, and the title is about it.
    """
    found = causes(trace)
    if of and len(found):
        found = found[(found["name"] == of) | (found["name"].map(node_of) == of)]
        if found.empty:
            return sentence(f"{label(of)} never holds the checkpoint", "The owner never gave it as the cause.")
    if found.empty:
        n = count(len(watermarks(trace).query("who == @GLOBAL")), "time")
        return sentence("The checkpoint is never stuck", f"The owner never said that it cannot proceed; it moved {n}.")
    longest = found.iloc[int((found["until_us"] - found["since_us"]).argmax())]
    moment = int(longest["until_us"]) - 1 if at_us is None else at_us
    fig = subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.62, 0.38], vertical_spacing=0.08)
    marks, until_us = watermarks(trace), end_us(trace)
    curve = lag_curve(marks[(marks["who"] == GLOBAL) & (marks["watermark"] == "checkpoint")], until_us=until_us)
    fig.add_trace(line_of(curve, GLOBAL, [], first=False), 1, 1)
    for bar in _bars(found):
        fig.add_trace(bar, 2, 1)
    incident_lines(fig, trace)
    fig.add_vline(x=moment / 1e6, line={"color": GREY, "width": 2.5, "dash": "dot"})
    fig.update_yaxes(title_text="checkpoint lag, s", rangemode="tozero", row=1, col=1)
    fig.update_yaxes(title_text="held by", showticklabels=False, range=[0, 1], showgrid=False, row=2, col=1)
    fig.update_xaxes(range=[0, until_us / 1e6], zeroline=False)
    fig.update_xaxes(title_text="virtual time, s", row=2, col=1)
    fig.update_layout(
        barmode="overlay", bargap=0, hovermode="closest",
        legend={"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom"},
    )  # fmt: skip
    held = int((found["until_us"] - found["since_us"]).sum())
    mine = f"{label(of)} holds the checkpoint for {percent(held, until_us)} of the run"
    title = mine if of else finding_of(why(trace, at_us=moment), moment)
    share = (
        "" if of else f" It is held for {percent(held, until_us)} of the run; the dotted line is the title's moment."
    )
    fig = finish(fig, title=title, note=_NOTE + share, height=470)
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + 46)


def finding_of(stuck: Stuck | None, at_us: int) -> str:
    """Say what holds the checkpoint at a moment."""
    if stuck is None:
        return f"At {at_us / 1e6:,.4g} s nothing holds the checkpoint"
    since = f"since {stuck.since_us / 1e6:,.4g} s ({(at_us - stuck.since_us) / 1e6:,.3g} s)"
    holder = label(stuck.name) if stuck.name else "something"
    return f"At {at_us / 1e6:,.4g} s {holder} holds the checkpoint, {since}: {label(stuck.answer, most=140)}"


def _bars(found: pd.DataFrame) -> list[Bar]:
    """A bar for each stretch, a colour for each holder; those that hold shortest share one."""
    length = (found["until_us"] - found["since_us"]).groupby(found["name"]).sum().sort_values(ascending=False)
    named = list(length.index[:_MOST])
    holder = found["name"].where(found["name"].isin(named), "others")
    out = []
    for k, name in enumerate([*named, "others"]):
        mine = found[holder == name]
        if mine.empty:
            continue
        width = (mine["until_us"] - mine["since_us"]) / 1e6
        bars = Bar(
            x=(mine["since_us"] / 1e6 + width / 2).tolist(), width=width.tolist(), y=[1] * len(mine),
            marker=hatched(k), name=label(name or "without a name"), legendgroup=label(name),
            hovertext=[_hover(r) for r in mine.to_dict("records")], hoverinfo="text",
        )  # fmt: skip
        out.append(marked(bars, [_pick(kind, name) for kind, name in zip(mine["kind"], mine["name"], strict=True)]))
    return out


def _pick(kind: str, name: str) -> Selection | None:
    if kind == "capture":
        return Selection(capture=node_of(name))
    return Selection(table=name.removeprefix("table ")) if kind == "table" else None


def _hover(r: dict[str, object]) -> str:
    ends = f"{int(str(r['since_us'])) / 1e6:,.6g} to {int(str(r['until_us'])) / 1e6:,.6g} s"
    return f"{label(r['answer'], most=140)}<br>{ends}, since {int(str(r['holds_since_us'])) / 1e6:,.6g} s"
