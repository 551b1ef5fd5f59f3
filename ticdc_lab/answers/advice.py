"""Which dispatcher each table should have, and what another number of partitions costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from ticdc_lab import figures
from ticdc_lab.answers.answer import Answer, records_of
from ticdc_lab.answers.dispatching import AS_THEY_LIE
from ticdc_lab.dispatch.advise import KEPT, SAID, Advice, TableAdvice
from ticdc_lab.dispatch.advise_facts import Evenness, MeasuredCandidate, as_dict
from ticdc_lab.dispatch.evenness import unevenness
from ticdc_lab.figures.theme import count
from ticdc_lab.repartition.compare import writes
from ticdc_lab.repartition.cost import Cost
from ticdc_lab.repartition.expand import Expansion


def advice(found: Advice, *, now: int | None = None, limits: Sequence[str] = ()) -> Answer:
    """The dispatcher of each table, why, and why not another; as a changefeed file in ``dispatchers``.

    ``now`` is how many partitions the log has, ``limits`` what must be said where that is not known.
    """
    told = values(found) | {"partitions_now": now}
    head, *details = sentences(found, now)
    tables = pd.DataFrame(told["tables"])
    first = [c for c in ("table", "recommended", "rows", "share", "reasons", "risks", "why_not") if c in tables]
    dispatchers = pd.DataFrame({"dispatchers": told["dispatchers"].splitlines()})
    frames = {"tables": tables[first], "dispatchers": dispatchers}
    question = "Which dispatcher should each table have?"
    return Answer("advise", question, f"{head}.", frames, tuple(limits), details, told)


def expansion(change: Expansion, cost: Cost, findings: dict[str, pd.DataFrame]) -> Answer:
    """What another number of partitions costs, and what it breaks.

    Parameters
    ----------
    change
        :meth:`ticdc_lab.repartition.expand.Expansion.kept`.
    cost
        :func:`ticdc_lab.repartition.cost.cost_of`.
    findings
        :func:`ticdc_lab.repartition.compare.examined`, brought to the driver: part to findings.
    """
    n = {part: len(found) for part, found in findings.items()}
    broken = [f"{count(k, 'finding')} {PARTS[part]}" for part, k in n.items() if k]
    verdict = f"The audit has {', '.join(broken)}." if broken else "The audit finds nothing on either side or across."
    plan = change.plan
    how = f"{plan.procedure}: from {plan.before} to {plan.after} partitions."
    found = pd.concat([f.assign(part=part) for part, f in findings.items()], ignore_index=True)
    parts = {part: records_of(f) for part, f in findings.items()}
    return Answer(
        "expand", "What does another number of partitions cost?", f"{how} {verdict}",
        {"findings": found, "cost": pd.DataFrame([cost.as_dict()])}, (),
        [*plan.sentences(), *cost.sentences(), AS_THEY_LIE],
        {"plan": plan.as_dict(), "cost": cost.as_dict(), "findings": parts},
        draw=lambda: {"when": figures.partition_change(plan.as_dict(), writes=writes(change))},
    )  # fmt: skip


PARTS = {
    "before": "before the change",
    "after": "after the change",
    "whole": "in the whole log",
    "consumer": "in what a consumer may make of it",
}
"""Parts of :func:`ticdc_lab.repartition.compare.examined`, in words."""


# Advice as plain values for JSON and as plain lines for a terminal.


def values(advice: Advice) -> dict[str, Any]:
    """The advice with everything that was measured, as plain values."""
    return {
        "keep": advice.keep,
        "partitions": advice.partitions,
        "whole": {str(n): asdict(e) for n, e in advice.whole.items()},
        "whole_bytes": {str(n): asdict(e) for n, e in advice.whole_bytes.items()},
        "broken": advice.broken(),
        "tables": [_table_dict(t, advice.partitions) for t in advice.tables],
        "dispatchers": advice.changefeed.to_toml(),
        "notes": list(advice.notes),
    }


def _table_dict(t: TableAdvice, partitions: int) -> dict[str, Any]:
    choice = t.choices[partitions]
    return {
        "table": t.fact.name,
        **{k: v for k, v in as_dict(t.fact).items() if k not in ("schema_name", "table_name")},
        "share": t.share,
        "recommended": choice.measured.candidate.name,
        "by_partitions": {str(n): c.measured.candidate.name for n, c in t.choices.items()},
        "reasons": list(choice.reasons),
        "why_not": dict(choice.why_not),
        "risks": list(t.risks),
        "hot_keys": [asdict(k) for k in t.hot],
        "collisions": None if t.met is None else asdict(t.met),
        "columns": [asdict(c) for c in t.fact.columns],
        "candidates": [_measured_dict(m) for m in t.found],
        "cut": t.cut,
    }


def _measured_dict(m: MeasuredCandidate) -> dict[str, Any]:
    of = {"candidate": m.candidate.name, "partitions": m.partitions, "unplaced": m.unplaced}
    return of | {"rows": _even(m.rows), "bytes": _even(m.bytes), "broken": dict(m.broken), "pairs": dict(m.pairs)}


def _even(e: Evenness) -> dict[str, float | None]:
    """None where a candidate places nothing: JSON knows no NaN."""
    return {name: None if v != v else v for name, v in asdict(e).items()}


def sentences(advice: Advice, now: int | None = None) -> list[str]:
    """The advice as plain lines, for a terminal; ``now`` is how many partitions the log has."""
    n = advice.partitions
    even = advice.whole[n]
    as_now = {now: ", as now,"}
    out = [
        f"With {_partitions(n)}{as_now.get(n, ',')} keeping {' and '.join(SAID[g] for g in KEPT[advice.keep])},"
        " the fullest takes"
        f" {even.max_over_mean:.2f} times the mean",
        f"  moment by moment {even.in_time:.2f} times on average; 99 % of the loads stay below {even.p99:.2f} times the"
        f" mean; {unevenness(even.gini)}",
    ]
    others = {m: e for m, e in advice.whole.items() if m != n}
    out += [
        f"  with {_partitions(m)}{as_now.get(m, '')} the fullest takes {e.max_over_mean:.2f} times"
        for m, e in others.items()
    ]
    for name, (violations, cases) in advice.broken().items():
        out.append(f"  {_MEASURES[name]}: broken in {violations:,} of {cases:,} cases")
    for t in sorted(advice.tables, key=lambda t: -t.fact.rows):
        choice = t.choices[n]
        out.append(f"{t.fact.name} ({t.fact.rows:,} rows, {t.share:.1%}): {choice.measured.candidate.name}")
        out += [f"  {reason}" for reason in choice.reasons]
        out += [f"  not {name}: {why}" for name, why in choice.why_not.items()]
        out += [f"  note: {risk}" for risk in (*t.risks, t.cut) if risk]
    return [*out, *[f"note: {n}" for n in advice.notes]]


_MEASURES = {
    "row_order": "order of a row's changes",
    "row_order_any_unique": "order of rows that share a unique value",
    "table_order": "order of a table's changes",
    "transactions": "transactions of a table, whole and in order",
    "transactions_torn": "transactions of a table, in one partition",
    "transactions_overtakable": "transactions of a table, never overtaken by a later one",
}
"""What :func:`ticdc_lab.dispatch.guarantees.guarantees` measures, in words."""


def _partitions(n: int) -> str:
    return f"{n} partition{'s' if n > 1 else ''}"
