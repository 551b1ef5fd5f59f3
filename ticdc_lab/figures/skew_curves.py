"""Skew curves: how uneven each strategy would be for every number of partitions."""

from __future__ import annotations

import math

import pandas as pd

from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.theme import GREY, finish, label, look, sentence

_NOTE = (
    "1 is perfect balance; the grey line is the worst case, everything in one partition. Only strategies that can "
    "place every row are drawn. Look for curves that rise (too few tables or keys to spread) and for jumps at powers "
    "of two, which the commit ts is prone to."
)


def skew_curves(curves: pd.DataFrame, *, chosen: int | None = None) -> Figure:
    """Draw max/mean over the number of partitions, a line per strategy.

    Parameters
    ----------
    curves
        ``strategy``, ``partitions``, ``max_over_mean``.
    chosen
        Number of partitions to mark.
    """
    if curves.empty:
        return sentence("There is no skew to show", "The log holds no row change.")
    fig = Figure()
    top = int(curves["partitions"].max())
    ends = {"x": [1, top], "y": [1, top], "mode": "lines", "hoverinfo": "skip", "name": "all in one partition"}
    fig.add_trace(Scatter(**ends, line={"color": GREY, "width": 1, "dash": "dot"}))
    for k, (name, curve) in enumerate(curves.groupby("strategy", sort=False)):
        style, line = look(k), curve.sort_values("partitions")
        powers = [int(n) & (int(n) - 1) == 0 for n in line["partitions"]]
        fig.add_trace(
            Scatter(
                x=line["partitions"].astype(int),
                y=line["max_over_mean"].astype(float),
                mode="lines+markers",
                line={"color": style["color"], "dash": style["dash"], "width": 2},
                marker={"color": style["color"], "symbol": style["symbol"], "size": [9 if p else 0 for p in powers]},
                name=label(name),
                hovertemplate="%{x} partitions: the fullest has %{y:.2f} times the mean<extra>%{fullData.name}</extra>",
            )
        )
    if chosen is not None:
        fig.add_vline(x=chosen, line={"color": GREY, "width": 1})
        at = {"x": math.log10(chosen), "y": 1, "yref": "paper", "xanchor": "left", "xshift": 4}
        fig.add_annotation(text=f"{chosen} partitions", showarrow=False, **at)
    fig.update_xaxes(title_text="partitions (markers at powers of two)", type="log", tickvals=_powers(top))
    fig.update_yaxes(title_text="rows of the fullest / mean", type="log", tickvals=_powers(top))
    return finish(fig, title=_finding(curves, chosen), note=_NOTE, height=480)


def _powers(top: int) -> list[int]:
    return [2**i for i in range(top.bit_length())]


def _finding(curves: pd.DataFrame, chosen: int | None) -> str:
    counts = sorted({int(n) for n in curves["partitions"]})
    n = chosen if chosen in counts else counts[-1]
    at = curves[curves["partitions"] == n].sort_values("max_over_mean", kind="stable")
    best, worst = at.iloc[0], at.iloc[-1]
    most = f"fullest partition {best['max_over_mean']:.2f} times the mean"
    told = f"With {n} partitions {label(best['strategy'])} is the most even ({most})"
    if len(at) == 1:
        return told
    return f"{told} and {label(worst['strategy'])} the least ({worst['max_over_mean']:.2f})"
