"""Fidelity matrix: what each protocol keeps of the same transactions."""

from __future__ import annotations

from collections.abc import Hashable

import pandas as pd

from ticdc_lab.figures.cells import Cell, grid
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import finish, percent, sentence

_NOTE = (
    "Each cell: the share of cases kept, of those the reference log has (hover for numbers and a case that is lost). "
    "Look along a row for the protocols that keep what your consumer needs, and for ✖, which no setting of a consumer "
    "brings back."
)
_KEPT, _PART, _LOST = "rgba(0,114,178,0.30)", "rgba(230,159,0,0.35)", "rgba(213,94,0,0.55)"
_NONE = "rgba(128,128,128,0.12)"
_ROW_PX, _COLUMN_MIN = 34, 5


def fidelity_matrix(measured: pd.DataFrame, *, reference: str) -> Figure:
    """Draw the matrix.

    Parameters
    ----------
    measured
        What :func:`ticdc_lab.encode.fidelity.fidelity` gives for several logs, with a column ``log`` that names them:
        ``log``, ``place``, ``aspect``, ``kept``, ``of``, ``example``.
    reference
        Name of the log that all were compared with.
    """
    if measured.empty:
        return sentence("No protocol was compared", "The reference log holds no event.")
    logs = list(dict.fromkeys(measured["log"]))
    aspects = list(dict.fromkeys(measured.sort_values("place", kind="stable")["aspect"]))
    cells = {(r["log"], r["aspect"]): r for r in measured.to_dict("records")}
    drawn = [
        [Cell(*_content(cells.get((log, a))), _hover(cells.get((log, a)), log, a)) for log in logs] for a in aspects
    ]
    names = [n.replace(" ", "<br>") for n in logs]
    fig = grid(drawn, rows=aspects, columns=names, height=0.88, pointer_px=30, width=_COLUMN_MIN)
    height = 230 + _ROW_PX * len(aspects)
    fig = finish(fig, title=_finding(measured, logs, reference), note=_NOTE, height=height, note_below_px=14)
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + 46)


def _finding(measured: pd.DataFrame, logs: list[str], reference: str) -> str:
    lost = measured[measured["kept"] < measured["of"]].groupby("log")["aspect"].nunique()
    least = min(logs, key=lambda log: int(lost.get(log, 0)))
    n, of = int(lost.get(least, 0)), measured["aspect"].nunique()
    return f"{least} keeps most of what {reference} holds: it loses something in {n} of {of} aspects"


def _content(cell: dict[Hashable, object] | None) -> tuple[str, str]:
    """Text and colour of a cell."""
    if cell is None:
        return "–", _NONE
    kept, of = int(cell["kept"]), int(cell["of"])  # type: ignore[call-overload]
    if kept == of:
        return "✔", _KEPT
    return ("✖", _LOST) if kept == 0 else (percent(kept, of), _PART)


def _hover(cell: dict[Hashable, object] | None, log: str, aspect: str) -> str:
    if cell is None:
        return f"{log}: {aspect}: no case could be looked at"
    example = cell["example"]
    lost = f"<br>lost, for example: {example}" if isinstance(example, str) else ""
    return f"{log}: {aspect}: {int(cell['kept']):,} of {int(cell['of']):,} kept{lost}"  # type: ignore[call-overload]
