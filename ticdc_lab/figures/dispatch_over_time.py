"""A dispatcher over time: load of each partition, what it breaks, and where partitions must align."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ticdc_lab.dispatch.evenness import gini
from ticdc_lab.figures.figure import Bar, Figure, Heatmap, Scatter, subplots
from ticdc_lab.figures.selecting import Selection, marked, marked_cells
from ticdc_lab.figures.theme import GREY, HEAT, count, finish, label, look, percent, sentence

if TYPE_CHECKING:
    from ticdc_lab.dispatch.comparison import OverTime

_NOTE = (
    "Above: the load of each partition over time; a bright row is a busy partition. The bars at the right are the "
    "totals, the dashed line is their mean. Below, on the same time axis: cases that this dispatcher breaks, and "
    "alignments, at which all partitions wait. Look for bursts: totals hide them."
)
_WORDS = {"row_order": "row order", "table_order": "table order", "transactions": "transactions"}
_MOST_LABELS = 16
_LEAST_PX = 860


def dispatch_over_time(over_time: OverTime, *, strategy: str, weight: str = "rows") -> Figure:
    """Draw a dispatcher over time.

    Parameters
    ----------
    over_time
        :func:`ticdc_lab.dispatch.comparison.over_time`.
    strategy
        Its words, for the title.
    weight
        ``rows`` or ``bytes``: what ``load`` counts.
    """
    load = over_time.load
    if not load.sum():
        return sentence("There is no load to show", f"{label(strategy)} places no row change of this choice.")
    partitions = load.shape[1]
    fig = subplots(
        rows=2, cols=2, shared_xaxes=True, column_widths=[0.82, 0.18], row_heights=[0.66, 0.34],
        horizontal_spacing=0.02, vertical_spacing=0.06, spans=[[1, 1], [1, 0]],
    )  # fmt: skip
    _heat(fig, over_time, weight)
    _totals(fig, load.sum(axis=0))
    _below(fig, over_time)
    every = max(1, -(-partitions // _MOST_LABELS))
    for column in (1, 2):
        axis = {"range": [partitions - 0.5, -0.5], "tickvals": list(range(0, partitions, every))}
        fig.update_yaxes(**axis, showticklabels=column == 1, row=1, col=column)
    fig.update_yaxes(title_text="partition", row=1, col=1)
    fig.update_yaxes(title_text="cases per moment", rangemode="tozero", row=2, col=1)
    fig.update_xaxes(title_text="commit ts, s since the first row (clock of the TSO)", row=2, col=1)
    fig.update_xaxes(
        title_text=f"{weight} in all", rangemode="tozero", showgrid=False, nticks=3, tickangle=0, row=1, col=2
    )
    fig.update_layout(showlegend=True, legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"})
    return finish(fig, title=_finding(over_time, strategy, weight), note=_NOTE, height=640, least_px=_LEAST_PX)


def _heat(fig: Figure, o: OverTime, weight: str) -> None:
    bar = {"title": {"text": weight}, "x": 1.01, "thickness": 12, "outlinewidth": 0, "len": 0.6, "y": 0.7}
    hover = "partition %{y}<br>%{z:,} " + weight + "<br>at %{x:,.3f} s<extra></extra>"
    heat = Heatmap(
        z=o.load.T, x=o.seconds, y=list(range(o.load.shape[1])), colorscale=HEAT, zmin=0, zmax=int(o.load.max()),
        hovertemplate=hover, colorbar=bar, name="load",
    )  # fmt: skip
    nothing = [None] * o.load.shape[1]  # where a row would go is no partition of the log
    fig.add_trace(marked_cells(heat, rows=nothing, columns=_stretches(o)), 1, 1)


def _stretches(o: OverTime) -> list[Selection]:
    return [Selection(between_ms=ends) for ends in o.stretches_ms]


def _totals(fig: Figure, totals: npt.NDArray[np.int64]) -> None:
    hover = "partition %{y}: %{x:,}<extra></extra>"
    bars = {"orientation": "h", "marker": {"color": GREY}, "showlegend": False, "hovertemplate": hover}
    fig.add_trace(Bar(x=totals, y=list(range(len(totals))), **bars), 1, 2)
    ends = {"mode": "lines", "hoverinfo": "skip", "showlegend": False, "line": {"color": "#D55E00", "dash": "dash"}}
    fig.add_trace(Scatter(x=[totals.mean()] * 2, y=[-0.5, len(totals) - 0.5], **ends), 1, 2)


def _below(fig: Figure, o: OverTime) -> None:
    """Always the same four traces, so that figures of many choices fit on one slider."""
    for k, (guarantee, words) in enumerate(_WORDS.items()):
        mine = o.broken[o.broken["guarantee"] == guarantee].set_index("bucket")["violations"]
        y = mine.reindex(range(len(o.seconds)), fill_value=0).to_numpy()
        line = {"color": look(k)["color"], "dash": look(k)["dash"], "width": 1.5, "shape": "hvh"}
        _line(fig, o, y, f"breaks {words}", line)
    _line(fig, o, o.alignments, "alignments", {"color": GREY, "width": 2, "shape": "hvh"})


def _line(fig: Figure, o: OverTime, y: npt.NDArray[np.int64], name: str, line: object) -> None:
    hover = "%{y:,} at %{x:,.3f} s<extra>" + name + "</extra>"
    drawn = Scatter(x=o.seconds, y=y, mode="lines", line=line, name=name, hovertemplate=hover)
    fig.add_trace(marked(drawn, _stretches(o)), 2, 1)


def _finding(o: OverTime, strategy: str, weight: str) -> str:
    totals = o.load.sum(axis=0)
    top = int(totals.argmax())
    share = percent(float(totals[top]), float(totals.sum()))
    busy = o.load[o.load.sum(axis=1) > 0]
    peak = float((busy.max(axis=1) / busy.mean(axis=1)).max())
    even = (
        f"{totals.max() / totals.mean():.2f} times the mean ({peak:.2f} at the worst moment), Gini {gini(totals):.2f}"
    )
    broken = int(o.broken.loc[o.broken["guarantee"] == "row_order", "violations"].sum())
    waits = f", {count(int(o.alignments.sum()), 'alignment')}" if o.alignments.sum() else ""
    lost = f"; {count(o.unplaced, 'row')} it cannot place, not counted" if o.unplaced else ""
    of = "" if len(totals) == 1 else f" of {len(totals)}"
    return (
        f"{label(strategy)}: partition {top}{of} takes {share} of the {weight}, {even}; "
        f"{count(broken, 'break')} of row order{waits}{lost}"
    )
