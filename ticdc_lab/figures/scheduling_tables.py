"""The tables beside a stepped run: which capture has which tables, and the last decisions with their reasons."""

from __future__ import annotations

import pandas as pd

from ticdc_lab.figures.figure import Table
from ticdc_lab.figures.theme import label

SPLIT = 0.52
"""How much of the width the messages have; the tables have the rest."""

_LISTED = 12


def owned(now: pd.DataFrame) -> Table:
    """Draw :meth:`ticdc_lab.simulate.present.Present.at`."""
    columns = [
        [f"<b>{label(c)}</b><br>{label(r)}" for c, r in zip(now["capture"], now["role"], strict=True)],
        *([_tables(t) for t in now[c]] for c in ("writes", "prepares", "stops")),
    ]  # fmt: skip
    return _table(["capture", "writes", "prepares", "stops"], columns, [1.5, 2, 1.2, 1])


def _tables(tables: list[str]) -> str:
    if not tables:
        return ""
    more = f", … {len(tables):,} in all" if len(tables) > _LISTED else ""
    return label(", ".join(tables[:_LISTED]), most=200) + more


def why(decisions: pd.DataFrame) -> Table:
    """Draw :meth:`ticdc_lab.simulate.present.Present.decided`; of the newest also what was rejected."""
    marks: list[str] = []
    what: list[str] = []
    why: list[str] = []
    for i, d in enumerate(decisions.to_dict("records")):
        marks.append("✔" if d["after"] else "–")
        what.append(f"<b>{label(d['subject'])}</b> → {label(d['after'] or 'nothing is done')}")
        why.append(label(d["because"] or "", most=120))
        rejected = list(d["rejected"] if d["rejected"] is not None else ()) if i == 0 else []
        for r in rejected[:4]:
            marks, what, why = (
                [*marks, "✖"],
                [*what, f"not {label(r['candidate'])}"],
                [*why, label(r["because"], most=120)],
            )
    if not marks:
        marks, what, why = [""], ["nothing was decided yet"], [""]
    return _table(["", "decided", "because"], [marks, what, why], [0.3, 2, 2.4])


def domains(high_px: int, captures: int) -> tuple[list[float], list[float]]:
    """Give where the tables stand: the owners as high as they need, the decisions below them."""
    own, why = 60 + 46 * (captures + 1), 460
    ends = [max(0.0, 1 - px / high_px) for px in (own, own + 24, own + 24 + why)]
    half = ends[1] < 0.25
    return ([0.52, 1.0], [0.0, 0.48]) if half else ([ends[0], 1.0], [ends[2], ends[1]])


def _table(header: list[str], columns: list[list[str]], widths: list[float]) -> Table:
    fill, line = {"color": "rgba(128,128,128,0.10)"}, {"color": "rgba(128,128,128,0.3)"}
    look = {"align": "left", "height": 24, "fill": fill, "line": line}
    return Table(
        columnwidth=widths, domain={"x": [SPLIT + 0.04, 1]},
        header={"values": [f"<b>{h}</b>" for h in header], **look}, cells={"values": columns, **look},
    )  # fmt: skip
