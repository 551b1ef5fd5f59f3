"""Semantics matrix: what each delivery semantics loses or repeats under each fault, and whether the end is right."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from ticdc_lab.figures.cells import Cell, grid
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import count, finish, label, sentence, wrapped

_ROW_PX = 78
_LOST, _REPEATED, _QUIET = "rgba(213,94,0,0.55)", "rgba(230,159,0,0.42)", "rgba(0,158,115,0.30)"
_NOTE = (
    "A row a semantics, a column a fault: ✔ where the downstream ends as the upstream does, ✖ where it does not. Look "
    "for lost rows. Repeated rows do no harm where they are applied idempotently and in order."
)


def semantics_matrix(cases: pa.Table | pd.DataFrame, *, finding: str = "") -> Figure:
    """Draw a cell for each semantics and fault.

    Parameters
    ----------
    cases
        :data:`ticdc_lab.simulate.pipeline.semantics.DELIVERY`. Rows and columns come in the order in which they are
        first named.
    finding
        What the picture shows, where the caller knows better than the numbers that are the title by default.
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
    height = 200 + _ROW_PX * len(semantics) + above_px
    fig.update_xaxes(tickangle=0)
    fig = finish(fig, title=label(finding, most=300) or finding_of(rows), note=_NOTE, height=height, note_below_px=12)
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + 12 + above_px)


def finding_of(rows: pd.DataFrame) -> str:
    """Say who loses and who repeats."""
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
    color = _LOST if lost or not right else _REPEATED if repeated else _QUIET
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
