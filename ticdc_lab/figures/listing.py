"""Rows as a table: messages, a table at a moment, the life of a row, and a table beside another picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ticdc_lab.events.tso import clock_words, tso_words, with_clock, zone
from ticdc_lab.figures.figure import Figure, Table
from ticdc_lab.figures.matrices import Cell, grid
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import finish, label, sentence
from ticdc_lab.words import count

# Rows as a table: a page of messages, or a table at a moment.


MOST_OF_LISTING = 200
"""Rows drawn."""

_SAID = {"message", "example", "says"}
"""Columns of our sentences, whose TSOs have their time beside them."""

_ROW_PX_OF_LISTING, _MOST_PX = 26, 560
_CHAR_PX = 8.2
_NAMED, _PLAIN = "rgba(230,159,0,0.35)", "rgba(128,128,128,0.07)"


def listing(rows: pd.DataFrame, *, title: str, note: str, commit_ts: str | None = None) -> Figure:
    """Draw rows as they are, column by column.

    Parameters
    ----------
    rows
        Any small frame; more than :data:`MOST_OF_LISTING` rows are cut, with a title, and columns of events
        without any value are left out. Events are chosen by a click on them, and events whose column ``named`` is
        true are marked, and the column itself is not drawn.
    title
        The finding in words.
    note
        The sentence under the table with what to look for.
    commit_ts
        Of rows of a table: which column is the commit_ts of their last change. All others are the table's, with any
        they are called, and a click chooses the transaction.
    """
    if rows.empty:
        return sentence(title, "Nothing matches: widen the filter.")
    named = rows["named"].head(MOST_OF_LISTING).astype(bool).tolist() if "named" in rows and commit_ts is None else []
    shown = rows.head(MOST_OF_LISTING).drop(columns=["named"] if named else [])
    if commit_ts is None:
        shown = shown.dropna(axis="columns", how="all")
    cut = f" (the first {MOST_OF_LISTING} of {len(rows):,} rows drawn)" if len(shown) < len(rows) else ""
    nothing = "–" if commit_ts is None else "NULL"  # a watermark has no table; a value is NULL
    shown = shown.assign(**{name: shown[name].map(with_clock, na_action="ignore") for name in _SAID & {*shown.columns}})
    texts = [[_text(v, nothing) for v in shown[name]] for name in shown.columns]
    widest = (max(len(str(name)), *map(len, column)) for name, column in zip(shown, texts, strict=True))
    widths = [min(42, n) + 4 for n in widest]
    if any(named):
        texts = [[f"<b>{t}</b>" if n else t for t, n in zip(column, named, strict=True)] for column in texts]
    fill = {"color": [[_NAMED if n else _PLAIN for n in named or [False] * len(shown)]]}
    table = Table(
        columnwidth=widths,
        header={"values": [f"<b>{label(n)}</b>" for n in shown.columns], "align": "left", "height": 28},
        cells={"values": texts, "align": "left", "height": _ROW_PX_OF_LISTING, "fill": fill},
    )
    if commit_ts is not None:
        at: list[Any] = list(shown[commit_ts]) if commit_ts in shown else [None] * len(shown)
        marked(table, [None if _missing(ts) else Selection(commit_ts=int(ts)) for ts in at])
    else:
        marked(table, [_pick(r) for r in shown.to_dict("records")])
    height = min(_MOST_PX, 190 + _ROW_PX_OF_LISTING * len(shown))
    least_px = max(480, round(_CHAR_PX * sum(widths)))
    return finish(
        Figure(table), title=title + cut, note=note, height=height, note_below_px=14, least_px=least_px, left_px=20
    )


def _pick(row: dict[Any, Any]) -> Selection | None:
    """The message or the transaction that a row is of; None where it is of neither."""
    known = {k: v for k, v in row.items() if not _missing(v)}
    place = {k: known[k] for k in ("topic", "partition", "offset") if k in known}
    if len(place) == 3:
        table, key = (known.get(k) or None if known.get("kind") == "row" else None for k in ("table", "key"))
        return Selection(**place, table=table, key=key, commit_ts=known.get("commit_ts"))
    return Selection(commit_ts=known["commit_ts"]) if "commit_ts" in known else None


def _missing(value: object) -> bool:
    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)


def _text(value: object, nothing: str) -> str:
    if _missing(value):
        return nothing
    if isinstance(value, list | tuple | np.ndarray):
        return label(", ".join(map(str, value)), most=160)
    return label(int(value) if isinstance(value, float) and value.is_integer() else value, most=160)


# One row's life: its versions side by side, and what each change changed.


MOST_OF_LIFE = 12
"""Versions drawn; the first and the last ones of a longer life."""

_NOTE = (
    "Each column is one delivered change, in commit order, with its commit time ({zone}), partition and offset; "
    "filled cells are what it changed. Look for cells that change back, for the same change delivered again (dotted "
    "border), and for a row that moves between partitions."
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
    half = MOST_OF_LIFE // 2
    shown = life if len(life) <= MOST_OF_LIFE else pd.concat([life.head(half), life.tail(MOST_OF_LIFE - half)])
    versions = shown.to_dict("records")
    names = list(dict.fromkeys(name for v in versions for name in v["columns"]))
    heads = [_head(v) for v in versions]
    cells = [[_cell(version, name) for version in versions] for name in names]
    fig = grid(
        cells, rows=list(map(label, names)), columns=heads, height=0.86, breadth=0.94, pointer_px=28, width=6
    )  # fmt: skip
    height = 250 + 34 * len(names)
    return finish(
        fig, title=_finding(life, shown, table, key), note=_NOTE.format(zone=zone()), height=height, note_below_px=14,
        least_px=120 + _VERSION_PX * len(heads), above_px=62,
    )  # fmt: skip


def _cell(version: dict[Any, Any], name: str) -> Cell | None:
    if name not in version["columns"]:
        return None
    value = version["columns"][name]
    color = _GONE if version["op"] == "delete" else _CHANGED if name in version["changed"] else _SAME
    ts = version["commit_ts"]
    at = "no commit_ts" if pd.isna(ts) else f"commit_ts {tso_words(int(ts))}"
    hover = f"{name} = {_shown(value, most=400)}<br>{at}"
    return Cell(_shown(value, most=_CELL), color, hover, "dot" if version["again"] else "", _message(version))


def _shown(value: str | None, *, most: int) -> str:
    return "NULL" if value is None else label(value, most=most)


def _head(version: dict[Any, Any]) -> str:
    ts = version["commit_ts"]
    at = "no commit_ts" if pd.isna(ts) else clock_words(int(ts)).split(" ")[1]
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
    cut = f" (the first and the last {len(shown) // 2} of {len(life)} drawn)" if len(shown) < len(life) else ""
    return told + repeats + cut


# A table of rows beside a figure: the downstream next to the lanes that fill it.


_SPLIT, _GAP = 0.6, 0.03
_MOST_COLUMNS = 6
_ROW_PX_OF_BESIDE = 24


def beside(fig: Figure, rows: pd.DataFrame, *, name: str) -> Figure:
    """Draw rows to the right of a figure of one x axis.

    Parameters
    ----------
    fig
        What stays on the left, with its title and note.
    rows
        Any small frame; as many rows as the height holds and the first six columns are drawn, which the line above the
        table gives.
    name
        What the rows are.
    """
    height = int(fig.layout.height) - int(fig.layout.margin.t) - int(fig.layout.margin.b)
    shown = rows.head(max(3, height // _ROW_PX_OF_BESIDE - 3)).iloc[:, :_MOST_COLUMNS]
    cut = f", {len(shown):,} drawn" if len(shown) < len(rows) else ""
    left = f", {rows.shape[1] - _MOST_COLUMNS} more columns" if rows.shape[1] > _MOST_COLUMNS else ""
    texts = [["NULL" if pd.isna(v) else label(v, most=24) for v in column] for _, column in shown.items()]
    widths = [2 + min(20, max(map(len, [str(c), *column]))) for c, column in zip(shown.columns, texts, strict=True)]
    table = Table(
        columnwidth=widths,
        domain={"x": [_SPLIT + _GAP, 1], "y": [0, max(0.5, 1 - _ROW_PX_OF_BESIDE / height)]},
        header={
            "values": [f"<b>{label(c, most=18)}</b>" for c in shown.columns],
            "align": "left",
            "height": _ROW_PX_OF_BESIDE,
        },
        cells={"values": texts, "align": "left", "height": _ROW_PX_OF_BESIDE},
    )
    out = Figure([*fig.data, table], layout=fig.layout)
    out.update_xaxes(domain=[0, _SPLIT])
    place = {"xref": "paper", "yref": "paper", "x": _SPLIT + _GAP, "y": 1, "xanchor": "left", "yanchor": "top"}
    said = f"<b>{label(name)}</b> downstream: {count(len(rows), 'row')}{cut}{left}"
    return out.add_annotation(text=said, showarrow=False, align="left", **place)
