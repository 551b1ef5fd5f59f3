"""How long until done: what each limit alone would allow, the slowest first, and the pace so far."""

from __future__ import annotations

import math

from ticdc_lab.figures.figure import Bar, Figure, Scatter
from ticdc_lab.figures.pd_looks import BLUE, pattern
from ticdc_lab.figures.theme import GREY, WRONG, finish, label, sentence
from ticdc_lab.simulate.pd.looking.time_left import Bound, Left, time_left_sentence

_BAR_PX = 46
_MOST = 7
_NOTE = (
    "A bar a limit: how long the work takes if only this one counted. The hatched one holds it back: turn that limit. "
    "The dotted line is the pace of the last half minute. Where it is far right of all bars, no limit is the reason."
)


def time_left(left: Left, *, finding: str = "") -> Figure:
    """Draw how long it takes, and what holds it back.

    Parameters
    ----------
    left
        What :func:`ticdc_lab.simulate.pd.looking.time_left.time_left` gives.
    finding
        What the picture shows, where the caller knows better than the numbers that are the title by default.
    """
    title = label(finding, most=300) or label(time_left_sentence(left), most=300)
    shown = [b for b in left.bounds if not math.isinf(b.seconds)][:_MOST]
    if not shown:
        held = left.held_by
        return sentence(title, f"What would help: {label(held.turn)}." if held else "No limit is in the way.")
    fig = Figure([_bar(b, *((WRONG, "/") if b is shown[0] else (BLUE, ""))) for b in shown])
    texts = [f"<b>{label(b.name, most=60)}</b>: {_s(b.seconds)}, {label(b.because, most=80)}" for b in shown]
    names = [label(b.name, most=80) for b in shown]
    fig.add_trace(
        Scatter(
            x=[0] * len(shown), y=names, mode="text", text=[f" {t}" for t in texts], textposition="middle right",
            hoverinfo="skip", cliponaxis=False,
        )
    )  # fmt: skip
    pace = left.at_pace_s
    longest = max([b.seconds for b in shown] + ([pace] if pace is not None and not math.isinf(pace) else []))
    if pace is not None and not math.isinf(pace):
        fig.add_vline(x=pace, line={"color": GREY, "width": 2.5, "dash": "dot"})
        fig.add_annotation(
            x=pace, y=1, yref="paper", text="at the pace so far", showarrow=False, yanchor="bottom",
            xanchor="right" if pace > 0.6 * longest else "left",
        )  # fmt: skip
    fig.update_xaxes(title_text="seconds until done", range=[0, 1.02 * longest or 1], zeroline=False)
    fig.update_yaxes(autorange="reversed", showticklabels=False, showgrid=False)
    fig.update_layout(showlegend=False, bargap=0.25)
    fig = finish(fig, title=title, note=_NOTE, height=210 + _BAR_PX * len(shown), least_px=860)
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + 24, margin_l=30)


def _s(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:,.2g} s"


def _bar(b: Bound, color: str, hatch: str) -> Bar:
    return Bar(
        y=[label(b.name, most=80)], x=[b.seconds], orientation="h", marker=pattern(color, hatch) | {"opacity": 0.55},
        hovertext=[f"turn it: {label(b.turn, most=80)}"], hoverinfo="text",
    )  # fmt: skip
