"""Rows as a table: a page of messages, or a table at a moment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ticdc_lab.figures.figure import Figure, Table
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import finish, label, sentence

MOST = 200
"""Rows drawn."""

_ROW_PX, _MOST_PX = 26, 560
_CHAR_PX = 8.2
_NAMED, _PLAIN = "rgba(230,159,0,0.35)", "rgba(128,128,128,0.07)"


def listing(rows: pd.DataFrame, *, title: str, note: str, commit_ts: str | None = None) -> Figure:
    """Draw rows as they are, column by column.

    Parameters
    ----------
    rows
        Any small frame; more than :data:`MOST` rows are cut, which the title says, and columns without any value are
        left out. Events are chosen by a click on them, and those of which a column ``named`` is true are marked, and
        the column itself is not drawn.
    title
        The finding in words.
    note
        The sentence under the table that says what to look for.
    commit_ts
        Of rows of a table: which column is the commit_ts of their last change. All others are the table's, whatever
        they are called, and a click chooses the transaction.
    """
    if rows.empty:
        return sentence(title, "Nothing matches: widen the filter.")
    named = rows["named"].head(MOST).astype(bool).tolist() if "named" in rows and commit_ts is None else []
    shown = rows.head(MOST).drop(columns=["named"] if named else []).dropna(axis="columns", how="all")
    cut = f" (the first {MOST} of {len(rows):,} rows drawn)" if len(shown) < len(rows) else ""
    texts = [[_text(v) for v in shown[name]] for name in shown.columns]
    widest = (max(len(str(name)), *map(len, column)) for name, column in zip(shown, texts, strict=True))
    widths = [min(42, n) + 4 for n in widest]
    if any(named):
        texts = [[f"<b>{t}</b>" if n else t for t, n in zip(column, named, strict=True)] for column in texts]
    fill = {"color": [[_NAMED if n else _PLAIN for n in named or [False] * len(shown)]]}
    table = Table(
        columnwidth=widths,
        header={"values": [f"<b>{label(n)}</b>" for n in shown.columns], "align": "left", "height": 28},
        cells={"values": texts, "align": "left", "height": _ROW_PX, "fill": fill},
    )
    if commit_ts is not None:
        at: list[Any] = list(shown[commit_ts]) if commit_ts in shown else [None] * len(shown)
        marked(table, [None if _missing(ts) else Selection(commit_ts=int(ts)) for ts in at])
    else:
        marked(table, [_pick(r) for r in shown.to_dict("records")])
    height = min(_MOST_PX, 190 + _ROW_PX * len(shown))
    least_px = max(480, round(_CHAR_PX * sum(widths)))
    fig = finish(Figure(table), title=title + cut, note=note, height=height, note_below_px=14, least_px=least_px)
    return fig.update_layout(margin_l=20)


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


def _text(value: object) -> str:
    if _missing(value):
        return "NULL"
    if isinstance(value, list | tuple | np.ndarray):
        return label(", ".join(map(str, value)), most=160)
    return label(int(value) if isinstance(value, float) and value.is_integer() else value, most=160)
