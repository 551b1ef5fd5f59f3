"""A grid of coloured cells with a text in each, and words for who points at one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

_BARE = {"showgrid": False, "zeroline": False, "showline": False, "ticks": ""}


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a cell, on what colour, and what is said when one points at it."""

    text: str
    color: str
    hover: str


def grid(
    cells: Sequence[Sequence[Cell]], *, rows: Sequence[str], columns: Sequence[str],
    height: float = 0.92, pointer_px: int = 44, width: int = 0,
) -> go.Figure:  # fmt: skip
    """Draw cells row by row, the first row on top; names of columns stand above it.

    Parameters
    ----------
    cells
        A cell for each of ``columns`` in each of ``rows``.
    rows, columns
        Their names.
    height
        Share of a row's height that its cells fill.
    pointer_px
        How near to its middle one has to point, pixels.
    width
        Columns to leave room for at least.
    """
    fig = go.Figure()
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            box = {"x0": j - 0.48, "x1": j + 0.48, "y0": i - height / 2, "y1": i + height / 2}
            fig.add_shape(type="rect", **box, fillcolor=cell.color, line={"width": 0}, layer="below")
            fig.add_annotation(x=j, y=i, text=cell.text, showarrow=False)
    fig.add_trace(
        go.Scatter(
            x=[j for row in cells for j in range(len(row))],
            y=[i for i, row in enumerate(cells) for _ in row],
            mode="markers",
            marker={"size": pointer_px, "opacity": 0, "symbol": "square"},
            hovertext=[cell.hover for row in cells for cell in row],
            hoverinfo="text",
            showlegend=False,
        )
    )
    across, down = [-0.5, max(len(columns), width) - 0.5], [len(rows) - 0.5, -0.5]
    fig.update_xaxes(tickvals=list(range(len(columns))), ticktext=list(columns), side="top", range=across, **_BARE)
    fig.update_yaxes(tickvals=list(range(len(rows))), ticktext=list(rows), range=down, **_BARE)
    return fig
