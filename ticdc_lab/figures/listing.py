"""Rows as a table: a page of messages, or a table at a moment."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ticdc_lab.figures.theme import finish, label, sentence

MOST = 200
"""Rows drawn."""

_ROW_PX, _MOST_PX = 26, 560


def listing(rows: pd.DataFrame, *, title: str, note: str) -> go.Figure:
    """Draw rows as they are, column by column.

    Parameters
    ----------
    rows
        Any small frame; more than :data:`MOST` rows are cut, which the title says, and columns without any value are
        left out.
    title
        The finding in words.
    note
        The sentence under the table that says what to look for.
    """
    if rows.empty:
        return sentence(title, "Nothing matches: widen the filter.")
    shown = rows.head(MOST).dropna(axis="columns", how="all")
    cut = f" (the first {MOST} of {len(rows):,} rows drawn)" if len(shown) < len(rows) else ""
    texts = [[_text(v) for v in shown[name]] for name in shown.columns]
    widest = (max(len(str(name)), *map(len, column)) for name, column in zip(shown, texts, strict=True))
    widths = [1.2 * min(48, n) + 2 for n in widest]
    table = go.Table(
        columnwidth=widths,
        header={"values": [f"<b>{label(n)}</b>" for n in shown.columns], "align": "left", "height": 28},
        cells={"values": texts, "align": "left", "height": _ROW_PX},
    )
    height = min(_MOST_PX, 190 + _ROW_PX * len(shown))
    return finish(go.Figure(table), title=title + cut, note=note, height=height, note_below_px=14)


def _text(value: object) -> str:
    missing = value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)
    if missing:
        return "NULL"
    return label(int(value) if isinstance(value, float) and value.is_integer() else value, most=160)
