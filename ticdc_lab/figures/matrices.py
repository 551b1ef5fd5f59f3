"""Matrices: strategies, protocols, semantics and consumers against what they keep, a text in each coloured cell."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import pyarrow as pa

from ticdc_lab.dispatch.names import MODELS
from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.look import BARE, GREY
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import finish, label, sentence, wrapped
from ticdc_lab.words import count, percent, rounded

# A grid of coloured cells with a text in each, and words on hovering.


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell's text, colour, words on hovering, and the meaning of a click."""

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

    ``cells``: a cell for each of ``columns`` in each of ``rows``; None is empty. ``rows``, ``columns``: their names.
    ``height``, ``breadth``: shares of a row's height and of a column's width that a cell fills. ``pointer_px``: how
    near to its middle one has to point, pixels. ``width``: columns to leave room for at least.
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


# Guarantee matrix: the table of strategies and promises of TiCDC's design, with this log's numbers in it.


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
"""The design's table (分发方式与一致性保证); ``default`` means ``table``. It leaves ``columns`` out."""

_MARKS = {"yes": "✔", "no": "✖", "some": "✔ some tables"}

_NOTE_OF_GUARANTEES = (
    "Each cell: violations out of cases on this log; below it, what TiCDC's design promises (✔ kept, ✖ not kept). "
    "Look for violations where ✔ is promised. A zero without ✔ is luck. A model is no dispatcher of today's TiCDC."
)
_KEPT_OF_GUARANTEES, _BROKEN_OF_GUARANTEES, _UNKNOWN_OF_GUARANTEES = (
    "rgba(0,114,178,0.30)",
    "rgba(213,94,0,{})",
    "rgba(128,128,128,0.18)",
)


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
        return sentence("No other dispatcher can be compared", "The log has no row change.")
    strategies = list(dict.fromkeys(measured["strategy"]))
    cells = {(r["strategy"], r["guarantee"]): r for r in measured.to_dict("records")}
    drawn = [
        [
            Cell(*_content_of_guarantees(cells.get((s, g)), s, j), _hover_of_guarantees(cells.get((s, g)), s, g))
            for j, g in enumerate(GUARANTEES)
        ]
        for s in strategies
    ]
    names = [f"<b>{label(s)}</b>" if s == chosen else label(s) for s in strategies]
    names = [f"{name}<br><i>model</i>" if s in MODELS else name for name, s in zip(names, strategies, strict=True)]
    fig = grid(drawn, rows=names, columns=list(GUARANTEES.values()))
    if chosen in strategies:
        _frame_row(fig, strategies.index(chosen))
        title = _verdict(measured[measured["strategy"] == chosen], chosen, partitions)
    else:
        title = _finding_of_guarantees(measured, strategies, partitions)
    return finish(
        fig, title=title, note=_NOTE_OF_GUARANTEES, height=190 + 62 * len(strategies), note_below_px=14, least_px=800,
        above_px=26,
    )  # fmt: skip


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


def _finding_of_guarantees(measured: pd.DataFrame, strategies: list[str], partitions: int) -> str:
    strategies = [s for s in strategies if s not in MODELS] or strategies
    checked = measured[measured["guarantee"] != "balance"]
    broken = checked.groupby("strategy")["violations"].sum()
    clean = [s for s in strategies if int(broken.get(s, 0)) == 0]
    on = f"with {count(partitions, 'partition')}"
    if not clean:
        best = min(strategies, key=lambda s: int(broken.get(s, 0)))
        return f"No strategy keeps every promise on this log {on}; {label(best)} breaks least ({int(broken[best]):,})"
    who = " and ".join(label(s) for s in clean) if len(clean) < 3 else f"{len(clean)} of {len(strategies)} strategies"
    keep = "keeps" if len(clean) == 1 else "keep"
    even = measured[(measured["guarantee"] == "balance") & measured["strategy"].isin(clean)]
    load = f"; the fullest partition takes {even['max_over_mean'].min():.2f} times the mean" if len(even) else ""
    only = "Only " if len(clean) == 1 else ""
    return f"{only}{who} {keep} row order, table order and transactions on this log {on}{load}"


def _content_of_guarantees(cell: dict[str, object] | None, strategy: str, column: int) -> tuple[str, str]:
    """Text and colour of a cell."""
    word = PROMISES.get(strategy.partition(":")[0], ("not stated",) * 4)[column]
    promise = _MARKS.get(word, word)
    if cell is None:
        return f"not measured<br>design: {promise}", _UNKNOWN_OF_GUARANTEES
    if column == 3:
        value = float(cell["max_over_mean"])  # type: ignore[arg-type]
        lost = int(cell.get("undecided") or 0)  # type: ignore[call-overload]
        placed = f"<br>{lost:,} rows not placed" if lost else ""
        return f"fullest: {value:.2f} × mean{placed}<br>design: {promise}", _BROKEN_OF_GUARANTEES.format(
            min(0.45, 0.12 * (value - 1) + 0.02)
        )
    broken, cases = int(cell["violations"]), int(cell["cases"])  # type: ignore[call-overload]
    share = f" ({percent(broken, cases)})" if broken else ""
    color = (
        _BROKEN_OF_GUARANTEES.format(0.25 + 0.3 * min(1.0, broken / max(1, cases))) if broken else _KEPT_OF_GUARANTEES
    )
    return f"<b>{broken:,}</b> of {cases:,}{share}<br>design: {promise}", color


def _hover_of_guarantees(cell: dict[str, object] | None, strategy: str, guarantee: str) -> str:
    if cell is None:
        return f"{label(strategy)}: {GUARANTEES[guarantee]} was not measured"
    unknown = cell.get("undecided")
    open_cases = 0 if unknown is None or unknown != unknown else int(unknown)  # type: ignore[call-overload]
    cannot = f"<br>{open_cases:,} more cases cannot be decided: a row has no partition there" if open_cases else ""
    return f"{label(strategy)}: {GUARANTEES[guarantee]}{cannot}"


# Semantics matrix: what each delivery semantics loses or repeats under each fault, and whether the end is right.


_ROW_PX_OF_SEMANTICS = 78
_LOST_OF_SEMANTICS, _REPEATED, _QUIET = "rgba(213,94,0,0.55)", "rgba(230,159,0,0.42)", "rgba(0,158,115,0.30)"
_NOTE_OF_SEMANTICS = (
    "Each row is a delivery semantics, each column a fault: ✔ the downstream ends as the upstream does, ✖ it does "
    "not. Look for lost rows. Repeated rows do no harm if they are applied idempotently and in order."
)


def semantics_matrix(cases: pa.Table | pd.DataFrame) -> Figure:
    """Draw a cell for each semantics and fault.

    Parameters
    ----------
    cases
        :data:`ticdc_lab.simulate.pipeline.semantics.DELIVERY`. Rows and columns come in the order in which they are
        first named.
    """
    rows = cases.to_pandas() if isinstance(cases, pa.Table) else cases
    if rows.empty:
        return sentence("No fault was tried", "Without a run under a fault there is nothing to compare.")
    semantics, faults = list(rows["semantics"].unique()), list(rows["fault"].unique())
    found = {(r["semantics"], r["fault"]): r for r in rows.to_dict("records")}
    columns = [wrapped(label(f), width=max(9, 110 // len(faults))) for f in faults]
    cells = [[_cell(s, f, found.get((s, f))) for f in faults] for s in semantics]
    fig = grid(cells, rows=[label(s) for s in semantics], columns=columns, pointer_px=60)
    above_px = 18 * max(c.count("<br>") for c in columns)
    height = 200 + _ROW_PX_OF_SEMANTICS * len(semantics) + above_px
    fig.update_xaxes(tickangle=0)
    return finish(
        fig, title=finding_of(rows), note=_NOTE_OF_SEMANTICS, height=height, note_below_px=12,
        least_px=160 + 112 * len(faults), above_px=12 + above_px,
    )  # fmt: skip


def finding_of(rows: pd.DataFrame) -> str:
    """Name who loses and who repeats."""
    sums = rows.groupby("semantics", sort=False)[["lost", "repeated"]].sum()
    wrong = rows[~rows["final_right_idempotent"].astype(bool)]
    parts = []
    for name, of in sums.iterrows():
        words = [f"{verb} {count(int(of[what]), 'row')}" for what, verb in _VERBS.items() if of[what]]
        parts.append(f"{label(name)} {' and '.join(words) or 'loses and repeats nothing'}")
    ends = sorted({label(s) for s in wrong["semantics"]})
    end = f"the downstream ends wrong under {' and '.join(ends)}" if ends else "the downstream always ends right"
    return f"{'; '.join(parts)}; {end}"


_VERBS = {"lost": "loses", "repeated": "repeats"}


def _cell(semantics: str, fault: str, case: Any) -> Cell:
    who = f"<b>{label(semantics)}, {label(fault)}</b>"
    if case is None:
        return Cell("not tried", "rgba(0,0,0,0)", f"{who}<br>this pair was not run")
    lost, repeated, right = int(case["lost"]), int(case["repeated"]), bool(case["final_right_idempotent"])
    color = _LOST_OF_SEMANTICS if lost or not right else _REPEATED if repeated else _QUIET
    counts = [
        f"{lost:,} lost",
        f"{repeated:,} repeated",
        *([f"{over:,} overwritten"] if (over := int(case["regressed"])) else []),
    ]
    mark = "✔" if right else "✖"
    end = "ends as the upstream does" if right else "ends in another state than the upstream"
    if right and not case["final_right_blind"]:
        end += ", but not if differences are added up instead of rows replaced"
    return Cell(
        f"<b>{mark}</b> {counts[0]}<br>{'<br>'.join(counts[1:])}", color, f"{who}<br>{', '.join(counts)}<br>{end}"
    )


# Fidelity matrix: what each protocol keeps of the same transactions.


_NOTE_OF_FIDELITY = (
    "Each cell: the share of cases kept, of those the reference log has (hover for numbers and a case that is lost). "
    "Look along a row for the protocols that keep what your consumer needs, and for ✖, which no setting of a consumer "
    "brings back."
)
_KEPT_OF_FIDELITY, _PART, _LOST_OF_FIDELITY = ("rgba(0,114,178,0.30)", "rgba(230,159,0,0.35)", "rgba(213,94,0,0.55)")
_NONE = "rgba(128,128,128,0.12)"
_ROW_PX_OF_FIDELITY, _COLUMN_MIN = 34, 5


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
        return sentence("No protocol was compared", "The reference log has no event.")
    logs = list(dict.fromkeys(measured["log"]))
    aspects = list(dict.fromkeys(measured.sort_values("place", kind="stable")["aspect"]))
    cells = {(r["log"], r["aspect"]): r for r in measured.to_dict("records")}
    drawn = [
        [
            Cell(*_content_of_fidelity(cells.get((log, a))), _hover_of_fidelity(cells.get((log, a)), log, a))
            for log in logs
        ]
        for a in aspects
    ]
    names = [n.replace(" ", "<br>") for n in logs]
    fig = grid(drawn, rows=aspects, columns=names, height=0.88, pointer_px=30, width=_COLUMN_MIN)
    height = 230 + _ROW_PX_OF_FIDELITY * len(aspects)
    lost = measured[measured["kept"] < measured["of"]].groupby("log")["aspect"].nunique()
    least = min(logs, key=lambda log: int(lost.get(log, 0)))
    n, of = int(lost.get(least, 0)), measured["aspect"].nunique()
    return finish(
        fig, title=f"{least} keeps most of what {reference} holds: it loses something in {n} of {of} aspects",
        note=_NOTE_OF_FIDELITY, height=height, note_below_px=14, above_px=46,
    )  # fmt: skip


def _content_of_fidelity(cell: dict[Hashable, object] | None) -> tuple[str, str]:
    """Text and colour of a cell."""
    if cell is None:
        return "–", _NONE
    kept, of = int(cell["kept"]), int(cell["of"])  # type: ignore[call-overload]
    if kept == of:
        return "✔", _KEPT_OF_FIDELITY
    return ("✖", _LOST_OF_FIDELITY) if kept == 0 else (percent(kept, of), _PART)


def _hover_of_fidelity(cell: dict[Hashable, object] | None, log: str, aspect: str) -> str:
    if cell is None:
        return f"{log}: {aspect}: no case could be looked at"
    example = cell["example"]
    lost = f"<br>lost, for example: {example}" if isinstance(example, str) else ""
    return f"{log}: {aspect}: {int(cell['kept']):,} of {int(cell['of']):,} kept{lost}"  # type: ignore[call-overload]


# Anomaly matrix: how often, and for how long, each consumer shows what never existed, under each dispatch strategy.


_NOTE_OF_ANOMALIES = (
    "Each cell: wrong states of the downstream, and the share of consumer time in which it was wrong. Look for a row "
    "of 'never': that policy is safe here, with any dispatcher and any speeds. On screen: hover a cell for the kinds."
)
_VARIES = ("strategy", "partitions", "speeds")
_KEPT_OF_ANOMALIES, _BROKEN_OF_ANOMALIES, _UNKNOWN_OF_ANOMALIES = (
    "rgba(0,114,178,0.30)",
    "rgba(213,94,0,{:.2f})",
    "rgba(128,128,128,0.18)",
)
_MIXED = "rgba(230,159,0,0.25)"


def anomaly_matrix(anomalies: pd.DataFrame, *, counted: str = "state that never existed") -> Figure:
    """Draw policies against what they consume.

    Parameters
    ----------
    anomalies
        One row per ``policy``, ``strategy``, ``partitions``, ``speeds`` (words) and ``kind`` of anomaly: ``n``, the
        number of wrong states, ``wrong_us``, how long they lasted together, and ``total_us``, how long the consumer
        ran. A combination without anomaly has a row with ``n`` 0.
    counted
        The kind that cells show; the others are shown on hovering. Where it is missing all kinds are
        counted together, and as they may overlap in time the share is the longest kind's.
    """
    if anomalies.empty:
        return sentence("No consumer was tried", "Choose a policy, a strategy and speeds.")
    varies = [c for c in _VARIES if anomalies[c].nunique() > 1] or ["strategy"]
    a = anomalies.assign(_column=_columns(anomalies, varies), policy=anomalies["policy"].astype(str))
    policies, columns = list(dict.fromkeys(a["policy"])), list(dict.fromkeys(a["_column"]))
    hovers = {(str(p), str(c)): cell for (p, c), cell in a.groupby(["policy", "_column"], sort=False)}
    # cells show the rows of one kind, with the number of all others beside them
    mine = a["kind"] == counted if (a["kind"] == counted).any() else a["kind"].notna()
    others = a[~mine].groupby(["policy", "_column"])["n"].sum().rename("_others").reset_index()
    joined = a[mine].merge(others, on=["policy", "_column"], how="left")
    a = joined.assign(_others=joined["_others"].fillna(0).astype(int))
    cells = {(str(p), str(c)): cell for (p, c), cell in a.groupby(["policy", "_column"], sort=False)}
    drawn = [
        [
            Cell(*_content_of_anomalies(cells.get((p, c))), _hover_of_anomalies(hovers.get((p, c)), p, c))
            for c in columns
        ]
        for p in policies
    ]
    words = ["<br>".join(wrapped(label(part, most=60), width=18) for part in c.split(", ")) for c in columns]
    fig = grid(drawn, rows=[label(p) for p in policies], columns=words).update_xaxes(tickangle=0)
    height, head = 185 + 58 * len(policies), 22 * len(varies)
    return finish(
        fig, title=_finding_of_anomalies(a, policies, len(columns)), note=_NOTE_OF_ANOMALIES, height=height + head,
        note_below_px=14, least_px=110 + 136 * len(columns), above_px=head,
    )  # fmt: skip


def _columns(a: pd.DataFrame, varies: Sequence[str]) -> list[str]:
    rows = a[list(varies)].to_dict("records")
    return [", ".join(count(v, "partition") if c == "partitions" else str(v) for c, v in r.items()) for r in rows]


def _content_of_anomalies(cell: pd.DataFrame | None) -> tuple[str, str]:
    """Text and colour of a cell."""
    if cell is None:
        return "not tried", _UNKNOWN_OF_ANOMALIES
    if not cell["n"].sum():
        others = int(cell["_others"].iloc[0])
        return (
            (f"never<br>{count(others, 'other anomaly', 'other anomalies')}", _MIXED)
            if others
            else ("never", _KEPT_OF_ANOMALIES)
        )
    told = percent(int(cell["wrong_us"].max()), int(cell["total_us"].max()))
    return f"<b>{int(cell['n'].sum()):,}</b><br>{told} of time", _BROKEN_OF_ANOMALIES.format(0.22 + 0.4 * _share(cell))


def _share(cell: pd.DataFrame) -> float:
    total = int(cell["total_us"].max())
    return min(1.0, int(cell["wrong_us"].max()) / total) if total else 0.0


def _hover_of_anomalies(cell: pd.DataFrame | None, policy: str, column: str) -> str:
    head = f"{label(policy)}, {label(column, most=90)}"
    if cell is None:
        return f"{head}: not tried"
    kinds = [
        f"{label(r['kind'])}: {int(r['n']):,}, together {rounded(int(r['wrong_us']) / 1000, 4)} ms"
        for r in cell.to_dict("records")
        if r["n"]
    ]
    return "<br>".join([head, *(kinds or ["no wrong state"])])


def _finding_of_anomalies(a: pd.DataFrame, policies: Sequence[str], columns: int) -> str:
    total = a.groupby("policy")["n"].sum()
    clean = [p for p in policies if not int(total[p])]
    where = f" in any of {columns} settings" if columns > 1 else ""
    alone = len(policies) == 1
    if len(clean) == len(policies):
        return f"{f'{label(clean[0])} never' if alone else 'No policy ever'} shows a state that never existed{where}"
    shares = {str(p): max(_share(cell) for _, cell in mine.groupby("_column")) for p, mine in a.groupby("policy")}
    worst = max(policies, key=lambda p: (shares[p], int(total[p])))
    most = int(a[a["policy"] == worst].groupby("_column")["n"].sum().max())
    never = f"{'up to ' if most < total[worst] else ''}{count(most, 'state')} that never existed"
    others = len(policies) - len(clean) > 1  # then name by what this one is the worst
    if shares[worst]:
        wrong = "is wrong longest, for" if others else "is wrong for"
        shows = f"{label(worst)} {wrong} {percent(shares[worst], 1)} of the time at worst, and shows {never}"
    else:
        shows = f"{label(worst)} shows {'most: ' if others else ''}{never}"
    if not clean:
        return shows if alone else f"No policy is safe here; {shows}"
    who = " and ".join(label(p) for p in clean) if len(clean) < 3 else f"{len(clean)} of {len(policies)} policies"
    return f"{who} never {'shows' if len(clean) == 1 else 'show'} a wrong state{where}; {shows}"
