"""Findings of an audit: how many of each guarantee, by table. :mod:`~ticdc_lab.figures.counterexamples` draws one."""

from __future__ import annotations

import pandas as pd

from ticdc_lab.figures.figure import Bar, Figure
from ticdc_lab.figures.look import hatched
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import finish, label, sentence
from ticdc_lab.words import count

_NOTE_OF_VIOLATIONS = (
    "Each bar is one guarantee of TiCDC, split by table. If a bar has one table, suspect its dispatch rule; if it "
    "has all tables, suspect the topic or the program that recorded it."
)
_NOTE_OF_ONE = "Each bar is one table. If one table has most findings, suspect its dispatch rule."
_TABLES = 7
_EACH = 12
"""Findings up to which the axis counts each."""


def violations(findings: pd.DataFrame) -> Figure:
    """Draw the findings of :func:`ticdc_lab.audit.audit` by guarantee and table, without severity info."""
    counted = findings[findings["severity"] != "info"] if len(findings) else findings
    if counted.empty:
        return sentence("No guarantee is broken", "The audit found no violation in what could be checked on this log.")
    tables = counted["table"].fillna("(no table)")
    ranked = [str(t) for t in sorted(tables.unique(), key=lambda t: (-int((tables == t).sum()), str(t)))]
    named, rest = ranked[:_TABLES], ranked[_TABLES:]
    guarantees = sorted(counted["guarantee"].unique(), key=lambda g: (-int((counted["guarantee"] == g).sum()), g))
    several = len(guarantees) > 1  # of one guarantee each table has its bar
    fig = Figure()
    groups = [(label(t), [t]) for t in named] + ([(f"{len(rest)} other tables", rest)] if rest else [])
    for k, (name, members) in enumerate(groups):
        mine = counted[tables.isin(members)]
        n = [int((mine["guarantee"] == g).sum()) for g in guarantees]
        bars = Bar(
            x=n, y=[readable(g) if several else name for g in guarantees], orientation="h", name=name,
            marker=hatched(k), insidetextanchor="middle", textangle=0, text=[str(v or "") for v in n],
            hovertext=[f"{count(v, 'finding')}, {name}" for v in n], hoverinfo="text",
        )  # fmt: skip
        table = members[0] if len(members) == 1 and members[0] in set(counted["table"]) else None
        fig.add_trace(marked(bars, [Selection(guarantee=g, table=table) for g in guarantees]))
    fig.update_layout(barmode="stack", showlegend=several)
    fig.update_yaxes(autorange="reversed")
    most = int((counted["guarantee"] if several else tables).value_counts().max())
    fig.update_xaxes(title_text="findings", rangemode="tozero", dtick=1 if most <= _EACH else None)
    return finish(
        fig,
        title=("At least " if is_capped(findings) else "") + _finding(counted, guarantees),
        note=_NOTE_OF_VIOLATIONS if several else _NOTE_OF_ONE,
        height=240 + 46 * len(guarantees if several else groups),
    )


def is_capped(findings: pd.DataFrame) -> bool:
    """Whether the audit left findings out, which it reports in one of severity info."""
    said = findings[findings["severity"] == "info"]["message"] if len(findings) else pd.Series(dtype=str)
    return bool(said.astype(str).str.contains("are not listed", regex=False).any())


def readable(guarantee: str) -> str:
    """``rows_stay_in_one_partition`` as words."""
    return label(guarantee.replace("_", " "))


def _finding(counted: pd.DataFrame, guarantees: list[str]) -> str:
    errors = int((counted["severity"] == "error").sum())
    warnings = len(counted) - errors
    parts = [count(errors, "error")] if errors else []
    parts += [count(warnings, "warning")] if warnings else []
    most, *others = counted["guarantee"].value_counts()
    if not others:
        return f"{' and '.join(parts)}{', all of them' if most > 1 else ''}: {readable(guarantees[0])}"
    worst = f"; most ({most:,}): {readable(guarantees[0])}" if most > others[0] else f"; at most {most:,} in each"
    return f"{' and '.join(parts)} in {len(guarantees)} guarantees{worst}"
