"""A grid of coloured cells with a text in each, and words for who points at one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import BARE


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a cell, on what colour, what is said when one points at it, and what a click on it means."""

    text: str
    color: str
    hover: str
    border: Literal["", "dot"] = ""
    means: Selection | None = None


def grid(
    cells: Sequence[Sequence[Cell | None]], *, rows: Sequence[str], columns: Sequence[str],
    height: float = 0.92, breadth: float = 0.96, pointer_px: int = 44, width: int = 0,
) -> Figure:  # fmt: skip
    """Draw cells row by row, the first row on top; names of columns stand above it.

    Parameters
    ----------
    cells
        A cell for each of ``columns`` in each of ``rows``; None is empty.
    rows, columns
        Their names.
    height, breadth
        Shares of a row's height and of a column's width that a cell fills.
    pointer_px
        How near to its middle one has to point, pixels.
    width
        Columns to leave room for at least.
    """
    fig = Figure()
    filled = [(j, i, cell) for i, row in enumerate(cells) for j, cell in enumerate(row) if cell is not None]
    fig.layout.shapes = [_box(j, i, cell, breadth / 2, height / 2) for j, i, cell in filled]
    fig.layout.annotations = [{"x": j, "y": i, "text": cell.text, "showarrow": False} for j, i, cell in filled]
    pointed = Scatter(
        x=[j for j, _, _ in filled], y=[i for _, i, _ in filled], mode="markers",
        marker={"size": pointer_px, "opacity": 0, "symbol": "square"},
        hovertext=[cell.hover for _, _, cell in filled], hoverinfo="text", showlegend=False,
    )  # fmt: skip
    means = [cell.means for _, _, cell in filled]
    fig.add_trace(marked(pointed, means) if any(means) else pointed)
    across, down = [-0.5, max(len(columns), width) - 0.5], [len(rows) - 0.5, -0.5]
    fig.update_xaxes(tickvals=list(range(len(columns))), ticktext=list(columns), side="top", range=across, **BARE)
    fig.update_yaxes(tickvals=list(range(len(rows))), ticktext=list(rows), range=down, **BARE)
    return fig


def _box(x: int, y: int, cell: Cell, dx: float, dy: float) -> dict[str, Any]:
    line = {"width": 1, "dash": cell.border} if cell.border else {"width": 0}
    sides = {"x0": x - dx, "x1": x + dx, "y0": y - dy, "y1": y + dy}
    return {"type": "rect", **sides, "fillcolor": cell.color, "line": line, "layer": "below"}
