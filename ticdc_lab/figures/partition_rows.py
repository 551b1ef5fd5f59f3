"""Rows per partition: what each partition would get from each strategy."""

from __future__ import annotations

import pandas as pd

from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.theme import count, finish, label, look, sentence

_NOTE = (
    "One mark per partition and strategy; the ideal is a flat line at the mean. Look for empty partitions and for one "
    "that stands out: it sets the pace of the whole topic."
)


def partition_rows(rows: pd.DataFrame, *, strategy: str | None = None) -> Figure:
    """Draw the rows of each partition.

    Parameters
    ----------
    rows
        ``strategy``, ``target_partition`` (every one from 0), ``rows``.
    strategy
        The one that the title is about; by default the most uneven.
    """
    if rows.empty or int(rows["rows"].sum()) == 0:
        return sentence("There is no load to compare", "The log holds no row change that a strategy can place.")
    fig = Figure()
    for k, (name, group) in enumerate(rows.groupby("strategy", sort=False)):
        style = look(k)
        fig.add_trace(
            Scatter(
                x=group["target_partition"].astype(int),
                y=group["rows"].astype(int),
                mode="lines+markers",
                line={"color": style["color"], "dash": style["dash"], "width": 1.5},
                marker={"color": style["color"], "symbol": style["symbol"], "size": 9},
                name=label(name),
                hovertemplate="partition %{x}: %{y:,} rows<extra>%{fullData.name}</extra>",
            )
        )
    n, top = int(rows["target_partition"].max()) + 1, int(rows["rows"].max())
    fig.update_xaxes(title_text="partition", range=[-0.5, n - 0.5], dtick=max(1, round(n / 16)))
    fig.update_yaxes(title_text="rows", range=[0, top * 1.08])
    fig.update_layout(showlegend=True)
    return finish(fig, title=_finding(rows, strategy), note=_NOTE, height=420)


def _finding(rows: pd.DataFrame, strategy: str | None) -> str:
    even = rows.groupby("strategy", sort=False)["rows"].agg(lambda v: float(v.max()) / max(1e-9, float(v.mean())))
    name = strategy if strategy in even.index else even.idxmax()
    mine = rows[rows["strategy"] == name].sort_values("target_partition")["rows"].astype(int).to_list()
    idle = sum(n == 0 for n in mine)
    none = f", and {count(idle, 'partition gets', 'partitions get')} nothing" if idle else ""
    top = mine.index(max(mine))
    return f"{label(name)} puts {max(mine):,} of {count(sum(mine), 'row')} in partition {top} of {len(mine)}{none}"
