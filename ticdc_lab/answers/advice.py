"""Which dispatcher each table should have, and what another number of partitions costs."""

from __future__ import annotations

import pandas as pd

from ticdc_lab import figures
from ticdc_lab.answers.answer import Answer, records_of
from ticdc_lab.dispatch.advise import Advice
from ticdc_lab.dispatch.advise_report import sentences, values
from ticdc_lab.repartition.compare import writes
from ticdc_lab.repartition.cost import Cost
from ticdc_lab.repartition.expand import Expansion


def advice(found: Advice) -> Answer:
    """The dispatcher of each table, why, and why not another; as a changefeed file in ``dispatchers``."""
    told = values(found)
    head, *details = sentences(found)
    tables = pd.DataFrame(told["tables"])
    first = [c for c in ("table", "recommended", "rows", "share", "reasons", "risks", "why_not") if c in tables]
    dispatchers = pd.DataFrame({"dispatchers": told["dispatchers"].splitlines()})
    frames = {"tables": tables[first], "dispatchers": dispatchers}
    return Answer("advise", "Which dispatcher should each table have?", f"{head}.", frames, (), details, told)


def expansion(change: Expansion, cost: Cost, findings: dict[str, pd.DataFrame]) -> Answer:
    """What another number of partitions costs, and what it breaks.

    Parameters
    ----------
    change
        :meth:`ticdc_lab.repartition.expand.Expansion.kept`.
    cost
        :func:`ticdc_lab.repartition.cost.cost_of`.
    findings
        :func:`ticdc_lab.repartition.findings.examined`, brought to the driver: part to findings.
    """
    n = {part: len(found) for part, found in findings.items()}
    broken = [f"{k:,} in {part}" for part, k in n.items() if k]
    verdict = f"The audit finds {', '.join(broken)}." if broken else "The audit finds nothing on either side or across."
    plan = change.plan
    how = f"{plan.procedure}: from {plan.before} to {plan.after} partitions."
    found = pd.concat([f.assign(part=part) for part, f in findings.items()], ignore_index=True)
    parts = {part: records_of(f) for part, f in findings.items()}
    return Answer(
        "expand", "What does another number of partitions cost?", f"{how} {verdict}",
        {"findings": found, "cost": pd.DataFrame([cost.as_dict()])}, (), [*plan.sentences(), *cost.sentences()],
        {"plan": plan.as_dict(), "cost": cost.as_dict(), "findings": parts},
        draw=lambda: {"when": figures.partition_change(plan.as_dict(), writes=writes(change))},
    )  # fmt: skip
