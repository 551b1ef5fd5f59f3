"""A workload in the simulated cluster: what comes of it there is what was planned."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from typing import Any

import pytest
from workload_rows import total_cents, values

from ticdc_lab.simulate.pipeline.run import simulate
from ticdc_lab.simulate.pipeline.settings import PipelineSettings
from ticdc_lab.workload import KINDS, Workload, load_of


@pytest.mark.parametrize("kind", KINDS)
def test_a_simulated_cluster_commits_and_replicates_the_whole_workload(kind: str) -> None:
    """With DDL, long and big transactions, rollbacks and conflicts: nothing is lost, and the bank's total holds."""
    workload = Workload(
        kind=kind, rows=2_000, keys=300, ddl=8, rows_per_s=1_500, long_share=0.005, long_ms=300, big_share=0.05,
        big_rows=80, rollback_share=0.03, conflict_share=0.5,
    )  # fmt: skip
    load = load_of(workload)
    run = simulate(PipelineSettings(), load, until_us=load.transactions[-1].start_us + 8_000_000)
    assert run.violation is None
    rows = [e for e in run.truth.to_pylist() if e["kind"] == "row"]
    assert len(rows) == load.rows == sum(k == "row" for k in run.log["kind"].to_pylist())
    ddl = [e["query"] for e in run.truth.to_pylist() if e["kind"] == "ddl"]
    assert [q for q in ddl if q in {job.query for _, job in load.jobs}] == [job.query for _, job in load.jobs]
    if kind == "bank":
        assert set(totals(rows)) == {total_cents(workload)}


def totals(rows: list[dict[str, Any]]) -> list[int]:
    """The sum of all balances after each commit."""
    commits: dict[int, int] = defaultdict(int)
    for e in rows:
        for image, sign in ((e["columns"], 1), (e["before"], -1)):
            if image is not None and e["table_name"].startswith("accounts"):
                commits[e["commit_ts"]] += sign * int(Decimal(values(image)["balance"]) * 100)
    total, out = 0, []
    for ts in sorted(commits):
        total += commits[ts]
        out.append(total)
    return out
