"""One row's life: its versions side by side, and what each change changed."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import count, finish, label, sentence
from ticdc_lab.tso import to_datetime

MOST = 12
"""Versions drawn; the first and the last ones of a longer life."""

_NOTE = (
    "Each column is one delivered change, in commit order, with the partition and offset it lies at; filled cells are "
    "what it changed. Look for cells that change back, for the same change delivered again (dotted border), and for "
    "a row that moves between partitions."
)
_CHANGED, _SAME, _GONE = "rgba(0,158,115,0.35)", "rgba(128,128,128,0.08)", "rgba(213,94,0,0.45)"
_CELL, _VERSION_PX = 11, 112


def row_life(life: pd.DataFrame, *, table: str, key: str) -> go.Figure:
    """Draw the versions of a row.

    Parameters
    ----------
    life
        :meth:`ticdc_lab.browse.Browser.row_life`.
    table, key
        What the title calls the row.
    """
    if life.empty:
        return sentence(f"No change of {table} {key} is in this log", "Choose another row, or look for it by its text.")
    half = MOST // 2
    shown = life if len(life) <= MOST else pd.concat([life.head(half), life.tail(MOST - half)])
    versions = shown.to_dict("records")
    names = list(dict.fromkeys(name for v in versions for name in v["columns"]))
    fig = go.Figure()
    for x, version in enumerate(versions):
        for y, name in enumerate(names):
            _cell(fig, x, y, version, name)
    fig.add_trace(_hover(versions, names))
    heads = [_head(v) for v in versions]
    right, bottom = max(len(heads), 6) - 0.5, len(names) - 0.5
    fig.update_xaxes(tickvals=list(range(len(heads))), ticktext=heads, side="top", range=[-0.5, right])
    fig.update_yaxes(tickvals=list(range(len(names))), ticktext=list(map(label, names)), range=[bottom, -0.5])
    fig.update_xaxes(zeroline=False, showline=False, ticks="", showgrid=False)
    fig.update_yaxes(zeroline=False, showline=False, ticks="", showgrid=False)
    height = 250 + 34 * len(names)
    fig = finish(
        fig, title=_finding(life, shown, table, key), note=_NOTE, height=height, note_below_px=14,
        least_px=120 + _VERSION_PX * len(heads),
    )  # fmt: skip
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + 62)


def _cell(fig: go.Figure, x: int, y: int, version: dict[Any, Any], name: str) -> None:
    if name not in version["columns"]:
        return
    deleted = version["op"] == "delete"
    color = _GONE if deleted else _CHANGED if name in version["changed"] else _SAME
    dash = "dot" if version["again"] else "solid"
    box = {"x0": x - 0.47, "x1": x + 0.47, "y0": y - 0.43, "y1": y + 0.43}
    line = {"width": 1 if version["again"] else 0, "dash": dash}
    fig.add_shape(type="rect", **box, fillcolor=color, line=line, layer="below")
    fig.add_annotation(x=x, y=y, text=_short(version["columns"][name]), showarrow=False)


def _short(value: str | None) -> str:
    return "NULL" if value is None else label(value, most=_CELL)


def _head(version: dict[Any, Any]) -> str:
    ts = version["commit_ts"]
    at = "no commit_ts" if pd.isna(ts) else f"{to_datetime(int(ts)):%H:%M:%S.%f}"[:-3]
    again = " again" if version["again"] else ""
    return f"<b>{version['op']}{again}</b><br>{at}<br>p{version['partition']} @{version['offset']}"


def _hover(versions: list[dict[Any, Any]], names: list[str]) -> go.Scatter:
    cells = [(x, y, v, n) for x, v in enumerate(versions) for y, n in enumerate(names) if n in v["columns"]]
    points = go.Scatter(
        x=[x for x, _, _, _ in cells],
        y=[y for _, y, _, _ in cells],
        mode="markers",
        marker={"size": 28, "opacity": 0, "symbol": "square"},
        hovertext=[f"{n} = {label(v['columns'][n], most=400)}<br>commit_ts {v['commit_ts']}" for _, _, v, n in cells],
        hoverinfo="text",
        showlegend=False,
    )
    return marked(points, [_message(v) for _, _, v, _ in cells])


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
