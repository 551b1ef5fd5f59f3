"""A table of rows beside a figure: the downstream next to the lanes that fill it."""

from __future__ import annotations

import pandas as pd

from ticdc_lab.figures.figure import Figure, Table
from ticdc_lab.figures.theme import count, label

_SPLIT, _GAP = 0.6, 0.03
_MOST_COLUMNS = 6
_ROW_PX = 24


def beside(fig: Figure, rows: pd.DataFrame, *, name: str) -> Figure:
    """Draw rows to the right of a figure of one x axis.

    Parameters
    ----------
    fig
        What stays on the left, with its title and note.
    rows
        Any small frame; as many rows as the height holds and the first six columns are drawn, which the line above the
        table says.
    name
        What the rows are.
    """
    height = int(fig.layout.height) - int(fig.layout.margin.t) - int(fig.layout.margin.b)
    shown = rows.head(max(3, height // _ROW_PX - 3)).iloc[:, :_MOST_COLUMNS]
    cut = f", {len(shown):,} drawn" if len(shown) < len(rows) else ""
    left = f", {rows.shape[1] - _MOST_COLUMNS} more columns" if rows.shape[1] > _MOST_COLUMNS else ""
    texts = [["NULL" if pd.isna(v) else label(v, most=24) for v in column] for _, column in shown.items()]
    widths = [2 + min(20, max(map(len, [str(c), *column]))) for c, column in zip(shown.columns, texts, strict=True)]
    table = Table(
        columnwidth=widths,
        domain={"x": [_SPLIT + _GAP, 1], "y": [0, max(0.5, 1 - _ROW_PX / height)]},
        header={"values": [f"<b>{label(c, most=18)}</b>" for c in shown.columns], "align": "left", "height": _ROW_PX},
        cells={"values": texts, "align": "left", "height": _ROW_PX},
    )
    out = Figure([*fig.data, table], layout=fig.layout)
    out.update_xaxes(domain=[0, _SPLIT])
    place = {"xref": "paper", "yref": "paper", "x": _SPLIT + _GAP, "y": 1, "xanchor": "left", "yanchor": "top"}
    said = f"<b>{label(name)}</b> downstream: {count(len(rows), 'row')}{cut}{left}"
    return out.add_annotation(text=said, showarrow=False, align="left", **place)
