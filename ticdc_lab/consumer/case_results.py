"""What consumers make of the special cases in TiCDC's design: where they end, and what readers see on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from ticdc_lab.consumer import producer
from ticdc_lab.consumer.cases import CASES, Case
from ticdc_lab.consumer.downstream import downstream_at, small_frame
from ticdc_lab.consumer.log import NarrowLog
from ticdc_lab.consumer.model import Run, run
from ticdc_lab.consumer.policy import Policy

State = Mapping[tuple[str, int], str]
"""Table and id to value."""


def consumed(case: Case, policy: Policy) -> Run:
    """The case's log as a consumer of this policy reads it."""
    return run(NarrowLog.of(case.log), policy, case.listeners)


def state_at(case: Case, found: Run, at_us: int) -> State:
    """The downstream's rows at a moment of consumer time (µs)."""
    images, deliveries = producer.images(case.cluster), small_frame(found.deliveries)
    tables = sorted({change.table for change in case.cluster.history})
    there = {t: downstream_at(images, deliveries, at_us, f"{producer.SCHEMA}.{t}") for t in tables}
    return {(t, int(r["id"])): str(r["value"]) for t, rows in there.items() for r in rows.to_dict("records")}


def states(case: Case, found: Run) -> list[State]:
    """The downstream after each of its transactions, as readers see it one after the other."""
    times = sorted({s["at"] for s in found.steps.to_pylist() if s["action"] == "write"})
    return [state_at(case, found, t) for t in times]


def never_existed(case: Case, found: Run) -> list[State]:
    """States of the downstream that the upstream never had."""
    last = case.cluster.history[-1].commit_ts
    existed = [producer.upstream_at(case.cluster, ts) for ts in range(last + 1)]
    return [s for s in states(case, found) if s not in existed]


def case_results(policies: Iterable[Policy]) -> pd.DataFrame:
    """Run every case of TiCDC's design under some policies.

    Returns
    -------
    pd.DataFrame
        A row for each case and policy: ``case``, ``question``, ``policy``, how many row changes were ``applied``,
        ``filtered``, ``dropped`` and ``pending``, ``ends_right`` (bool: the downstream ends as the case says),
        ``wrong_states`` (states on the way that the upstream never had), ``answer``.
    """
    return pd.DataFrame([_result(make(), policy) for make in CASES.values() for policy in policies])


def _result(case: Case, policy: Policy) -> dict[str, object]:
    found = consumed(case, policy)
    outcomes = found.deliveries["outcome"].to_pylist()
    return {
        "case": case.name, "question": case.question, "policy": policy.name,
        **{o: outcomes.count(o) for o in ("applied", "filtered", "dropped", "pending")},
        "ends_right": state_at(case, found, found.end_us) == case.expected(),
        "wrong_states": len(never_existed(case, found)), "answer": case.answer,
    }  # fmt: skip
