"""Guarantee matrix: the table of strategies and promises of TiCDC's design, with this log's numbers in it."""

from __future__ import annotations

import pandas as pd

from ticdc_lab.figures.cells import Cell, grid
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import GREY, count, finish, label, percent, sentence

GUARANTEES = {
    "row_order": "row order",
    "table_order": "table order",
    "transactions": "in-table transactions",
    "balance": "balance",
}
"""Columns of the matrix, in the design's order, as :mod:`ticdc_lab.dispatch.guarantees` names them, and their words."""

_BY_HASH = ("some", "no", "no", "even")
_BY_TABLE = ("yes", "yes", "yes", "uneven")
PROMISES = {
    "table": _BY_TABLE,
    "default": _BY_TABLE,
    "index-value": _BY_HASH,
    "rowid": _BY_HASH,
    "tidb-rowid": _BY_HASH,
    "ts": ("no", "no", "no", "even"),
    "conflict": ("some", "no", "some", "fairly even"),
}
"""The design's table (分发方式与一致性保证); ``default`` means ``table``. It says nothing of ``columns``."""

_MARKS = {"yes": "✔", "no": "✖", "some": "✔ some tables"}

_NOTE = (
    "Each cell: violations out of cases on this log, and below what TiCDC's design promises (✔ kept, ✖ not). Look for "
    "violations where ✔ is promised, and for zeros you cannot rely on where it is not."
)
_KEPT, _BROKEN, _UNKNOWN = "rgba(0,114,178,0.30)", "rgba(213,94,0,{})", "rgba(128,128,128,0.18)"


def guarantee_matrix(measured: pd.DataFrame, *, partitions: int, chosen: str = "") -> Figure:
    """Draw the matrix.

    Parameters
    ----------
    measured
        One row per strategy and guarantee: ``strategy``, ``guarantee`` (of :data:`GUARANTEES`), ``violations``,
        ``cases``, ``undecided`` (optional: cases in which a partition is not known), ``max_over_mean`` (only for
        ``balance``).
    partitions
        Number of partitions the strategies were asked for.
    chosen
        The strategy that the title is about, and whose row is framed; by default the title compares all.
    """
    if measured.empty:
        return sentence("No other dispatcher can be compared", "The log holds no row change.")
    strategies = list(dict.fromkeys(measured["strategy"]))
    cells = {(r["strategy"], r["guarantee"]): r for r in measured.to_dict("records")}
    drawn = [
        [Cell(*_content(cells.get((s, g)), s, j), _hover(cells.get((s, g)), s, g)) for j, g in enumerate(GUARANTEES)]
        for s in strategies
    ]
    names = [f"<b>{label(s)}</b>" if s == chosen else label(s) for s in strategies]
    fig = grid(drawn, rows=names, columns=list(GUARANTEES.values()))
    if chosen in strategies:
        _frame_row(fig, strategies.index(chosen))
        title = _verdict(measured[measured["strategy"] == chosen], chosen, partitions)
    else:
        title = _finding(measured, strategies, partitions)
    fig = finish(fig, title=title, note=_NOTE, height=190 + 62 * len(strategies), note_below_px=14, least_px=800)
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + 26)


def _frame_row(fig: Figure, row: int) -> None:
    ends = {"x0": -0.5, "x1": len(GUARANTEES) - 0.5, "y0": row - 0.49, "y1": row + 0.49}
    line = {"width": 2, "color": GREY}
    fig.layout.shapes = [*fig.layout.shapes, {"type": "rect", **ends, "line": line, "fillcolor": "rgba(0,0,0,0)"}]


def _verdict(mine: pd.DataFrame, strategy: str, partitions: int) -> str:
    """What one strategy breaks, and how evenly it loads the partitions."""
    cells = {r["guarantee"]: r for r in mine.to_dict("records")}
    checked = [g for g in GUARANTEES if g != "balance" and g in cells]
    broken = [f"{GUARANTEES[g]} in {int(cells[g]['violations']):,} of {int(cells[g]['cases']):,} cases"
              for g in checked if int(cells[g]["violations"])]  # fmt: skip
    verdict = f"breaks {_listed(broken)}" if broken else f"keeps {_listed([GUARANTEES[g] for g in checked])}"
    even = cells.get("balance")
    load = f"; the fullest takes {float(even['max_over_mean']):.2f} times the mean" if even is not None else ""
    return f"{label(strategy)} with {count(partitions, 'partition')} {verdict}{load}"


def _listed(parts: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _finding(measured: pd.DataFrame, strategies: list[str], partitions: int) -> str:
    checked = measured[measured["guarantee"] != "balance"]
    broken = checked.groupby("strategy")["violations"].sum()
    clean = [s for s in strategies if int(broken.get(s, 0)) == 0]
    on = f"with {partitions} partitions"
    if not clean:
        best = min(strategies, key=lambda s: int(broken.get(s, 0)))
        return f"No strategy keeps every promise on this log {on}; {label(best)} breaks least ({int(broken[best]):,})"
    who = " and ".join(label(s) for s in clean) if len(clean) < 3 else f"{len(clean)} of {len(strategies)} strategies"
    keep = "keeps" if len(clean) == 1 else "keep"
    even = measured[(measured["guarantee"] == "balance") & measured["strategy"].isin(clean)]
    load = f"; the fullest partition takes {even['max_over_mean'].min():.2f} times the mean" if len(even) else ""
    only = "Only " if len(clean) == 1 else ""
    return f"{only}{who} {keep} row order, table order and transactions on this log {on}{load}"


def _content(cell: dict[str, object] | None, strategy: str, column: int) -> tuple[str, str]:
    """Text and colour of a cell."""
    word = PROMISES.get(strategy.partition(":")[0], ("no word",) * 4)[column]
    promise = _MARKS.get(word, word)
    if cell is None:
        return f"not measured<br>design: {promise}", _UNKNOWN
    if column == 3:
        value = float(cell["max_over_mean"])  # type: ignore[arg-type]
        lost = int(cell.get("undecided") or 0)  # type: ignore[call-overload]
        placed = f"<br>{lost:,} rows not placed" if lost else ""
        return f"fullest: {value:.2f} × mean{placed}<br>design: {promise}", _BROKEN.format(
            min(0.45, 0.12 * (value - 1) + 0.02)
        )
    broken, cases = int(cell["violations"]), int(cell["cases"])  # type: ignore[call-overload]
    share = f" ({percent(broken, cases)})" if broken else ""
    color = _BROKEN.format(0.25 + 0.3 * min(1.0, broken / max(1, cases))) if broken else _KEPT
    return f"<b>{broken:,}</b> of {cases:,}{share}<br>design: {promise}", color


def _hover(cell: dict[str, object] | None, strategy: str, guarantee: str) -> str:
    if cell is None:
        return f"{label(strategy)}: {GUARANTEES[guarantee]} was not measured"
    unknown = cell.get("undecided")
    open_cases = 0 if unknown is None or unknown != unknown else int(unknown)  # type: ignore[call-overload]
    cannot = f"<br>{open_cases:,} more cases cannot be decided: a row has no partition there" if open_cases else ""
    return f"{label(strategy)}: {GUARANTEES[guarantee]}{cannot}"
