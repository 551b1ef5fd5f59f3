"""Protocols beside each other, on the same load and faults: what each costs, in small bars."""

from __future__ import annotations

import pandas as pd

from ticdc_lab.figures.figure import Bar, Figure, subplots
from ticdc_lab.figures.theme import finish, hatched, label, sentence

MEASURES = {
    "overlap_s": ("overlap:<br>two write a table", "s"),
    "gap_s": ("gap: nobody writes,<br>summed over tables", "s"),
    "duplicated_rows": ("rows written twice", "rows"),
    "lag_s_max": ("largest checkpoint lag", "s"),
    "messages": ("messages", ""),
    "balance_s": ("time to balance", "s"),
}
"""Columns of :func:`ticdc_lab.simulate.lags.costs`, in words, and their units."""

_COLUMNS = 3
_NOTE = (
    "Each box is one cost on the same cluster, load and faults; shorter is better everywhere. Look for what a protocol "
    "pays for a shorter gap: more messages, rows written twice, or a longer time until the tables are even."
)


def variant_comparison(costs: pd.DataFrame, *, finding: str = "") -> Figure:
    """Draw what each variant costs.

    Parameters
    ----------
    costs
        A row a variant: ``variant`` and the columns of :data:`MEASURES`; NaN where it was never reached.
    finding
        What the picture shows, where the caller knows better than the numbers that are the title by default.
    """
    if costs.empty:
        return sentence("No protocol was compared", "There is no run to compare.")
    rows = -(-len(MEASURES) // _COLUMNS)
    titles = [words for words, _ in MEASURES.values()]
    fig = subplots(rows=rows, cols=_COLUMNS, titles=titles, vertical_spacing=0.24, horizontal_spacing=0.08)
    for i, (column, (_, unit)) in enumerate(MEASURES.items()):
        for k, r in enumerate(costs.to_dict("records")):
            fig.add_trace(_bar(r, column, unit, k, first=i == 0), 1 + i // _COLUMNS, 1 + i % _COLUMNS)
        top = costs[column].max()
        fig.update_yaxes(
            title_text=unit, range=[0, 1.2 * top if top > 0 else 1], row=1 + i // _COLUMNS, col=1 + i % _COLUMNS
        )
    fig.update_xaxes(showticklabels=True)
    fig.update_annotations(font_size=13)
    fig.update_layout(showlegend=False, bargap=0.35)
    fig = finish(fig, title=label(finding, most=300) or _finding(costs), note=_NOTE, height=190 + 240 * rows)
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + 44)


def _bar(r: dict[str, object], column: str, unit: str, k: int, *, first: bool) -> Bar:
    value, name = r[column], label(r["variant"])
    said = "never" if pd.isna(value) else f"{value:,.4g} {unit}".strip()
    return Bar(
        x=[name], y=[0 if pd.isna(value) else value], name=name, legendgroup=name, showlegend=first, marker=hatched(k),
        text=[said], textposition="outside", constraintext="none", cliponaxis=False,
        hovertemplate=f"{name}: {said}<extra></extra>",
    )  # fmt: skip


def _finding(costs: pd.DataFrame) -> str:
    best = costs.loc[costs["gap_s"].idxmin()]
    worst = costs.loc[costs["gap_s"].idxmax()]
    two = costs[costs["overlap_s"] > 0]["variant"]
    lets = f"{', '.join(map(label, two))} {'lets' if len(two) == 1 else 'let'} two captures write a table"
    overlap = lets if len(two) else "no table has two writers"
    if best["gap_s"] == worst["gap_s"]:
        return f"All leave tables alone for {best['gap_s']:,.3g} s; {overlap}"
    return (
        f"{label(best['variant'])} leaves tables alone for {best['gap_s']:,.3g} s, {label(worst['variant'])} for "
        f"{worst['gap_s']:,.3g} s, summed over tables; {overlap}"
    )
