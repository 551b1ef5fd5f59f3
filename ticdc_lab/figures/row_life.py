"""One row's life: its versions side by side, and what each change changed."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ticdc_lab.events.tso import to_datetime
from ticdc_lab.figures.cells import Cell, grid
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.selecting import Selection
from ticdc_lab.figures.theme import count, finish, label, sentence

MOST = 12
"""Versions drawn; the first and the last ones of a longer life."""

_NOTE = (
    "Each column is one delivered change, in commit order, with the partition and offset it lies at; filled cells are "
    "what it changed. Look for cells that change back, for the same change delivered again (dotted border), and for "
    "a row that moves between partitions."
)
_CHANGED, _SAME, _GONE = "rgba(0,158,115,0.35)", "rgba(128,128,128,0.08)", "rgba(213,94,0,0.45)"
_CELL, _VERSION_PX = 11, 112


def row_life(life: pd.DataFrame, *, table: str, key: str) -> Figure:
    """Draw the versions of a row.

    Parameters
    ----------
    life
        :meth:`ticdc_lab.tables.browse.Browser.row_life`.
    table, key
        What the title calls the row.
    """
    if life.empty:
        return sentence(f"No change of {table} {key} is in this log", "Choose another row, or look for it by its text.")
    half = MOST // 2
    shown = life if len(life) <= MOST else pd.concat([life.head(half), life.tail(MOST - half)])
    versions = shown.to_dict("records")
    names = list(dict.fromkeys(name for v in versions for name in v["columns"]))
    heads = [_head(v) for v in versions]
    cells = [[_cell(version, name) for version in versions] for name in names]
    fig = grid(
        cells, rows=list(map(label, names)), columns=heads, height=0.86, breadth=0.94, pointer_px=28, width=6
    )  # fmt: skip
    height = 250 + 34 * len(names)
    fig = finish(
        fig, title=_finding(life, shown, table, key), note=_NOTE, height=height, note_below_px=14,
        least_px=120 + _VERSION_PX * len(heads),
    )  # fmt: skip
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + 62)


def _cell(version: dict[Any, Any], name: str) -> Cell | None:
    if name not in version["columns"]:
        return None
    value = version["columns"][name]
    color = _GONE if version["op"] == "delete" else _CHANGED if name in version["changed"] else _SAME
    hover = f"{name} = {label(value, most=400)}<br>commit_ts {version['commit_ts']}"
    return Cell(_short(value), color, hover, "dot" if version["again"] else "", _message(version))


def _short(value: str | None) -> str:
    return "NULL" if value is None else label(value, most=_CELL)


def _head(version: dict[Any, Any]) -> str:
    ts = version["commit_ts"]
    at = "no commit_ts" if pd.isna(ts) else f"{to_datetime(int(ts)):%H:%M:%S.%f}"[:-3]
    again = " again" if version["again"] else ""
    return f"<b>{version['op']}{again}</b><br>{at}<br>p{version['partition']} @{version['offset']}"


def _message(version: dict[Any, Any]) -> Selection:
    ts = version["commit_ts"]
    return Selection(
        topic=version.get("topic"), partition=version["partition"], offset=version["offset"],
        commit_ts=None if pd.isna(ts) else int(ts),
    )  # fmt: skip


def _finding(life: pd.DataFrame, shown: pd.DataFrame, table: str, key: str) -> str:
    once = life[~life["again"]]
    end = "and is deleted at the end" if once.iloc[-1]["op"] == "delete" else "and is there at the end"
    again = int(life["again"].sum())
    parts = life["partition"].nunique()
    told = f"{label(table)} {label(key)} changes {count(len(once), 'time')} in {count(parts, 'partition')}, {end}"
    repeats = f"; {count(again, 'delivery is a repeat', 'deliveries are repeats')}" if again else ""
    cut = f" (the first and last {len(shown)} of {len(life)} drawn)" if len(shown) < len(life) else ""
    return told + repeats + cut
