"""Measure the replication pipeline: row changes a second through the whole model, one process.

python benchmarks/pipeline.py [ROWS] [base|mq]     # default 200,000 rows; three stores, two captures, eight tables
"""

from __future__ import annotations

import random
import resource
import sys
import time

from ticdc_lab.simulate.pipeline.kv_messages import PUT, Mutation
from ticdc_lab.simulate.pipeline.run import PipelineRun, simulate
from ticdc_lab.simulate.pipeline.settings import CaptureSettings, PipelineSettings
from ticdc_lab.simulate.pipeline.tables import Column, Raw, TableInfo, key_of
from ticdc_lab.simulate.pipeline.tidb_state import ClientTxn, Load
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings as Scheduler
from ticdc_lab.simulate.trace import NOTHING

TABLES, HANDLES, ROWS_A_SECOND = 8, 20_000, 40_000


def main() -> None:
    what = sys.argv[1:] or ["200000"]
    rows, rule = int(what[0]), (what[1] if len(what) > 1 else "base")
    size = int(what[2]) if len(what) > 2 else None
    load = transfers(rows, size=size)
    settings = PipelineSettings(Scheduler(captures=2), capture=CaptureSettings(rule=rule))
    started = time.process_time()
    run = simulate(settings, load, until_us=rows * 1_000_000 // ROWS_A_SECOND + 4_000_000, level=NOTHING)
    told(f"{rule}, {rows} rows, {size or '2 or 3'} a transaction", run, time.process_time() - started)


def transfers(rows: int, seed: int = 7, size: int | None = None) -> Load:
    """Give transactions of two or three rows over eight tables, or of so many rows of one, at a steady pace."""
    chance = random.Random(seed)
    columns = (Column(1, "id", "bigint", True), Column(2, "owner", "varchar"), Column(3, "balance", "bigint"))
    tables = tuple(TableInfo(100 + i, "bank", f"accounts_{i}", columns) for i in range(TABLES))
    transactions: list[ClientTxn] = []
    made, last_us = 0, dict[int, int]()
    while made < rows:
        at_us = made * 1_000_000 // ROWS_A_SECOND
        mutations: dict[int, Mutation] = {}
        table = chance.randrange(TABLES)
        for _ in range(size or 2 + (chance.random() < 0.3)):
            handle = chance.randrange(HANDLES)
            key = key_of(100 + (table if size else chance.randrange(TABLES)), handle)
            if last_us.get(key, -1_000_000) > at_us - 100_000:
                continue
            last_us[key] = at_us
            mutations[key] = Mutation(
                key, PUT, Raw((1, 2, 3), (handle, f"own_{handle % 997}", chance.randrange(10**6)))
            )
        if mutations:
            made += len(mutations)
            transactions.append(ClientTxn(at_us, 0, tuple(mutations.values())))
    return Load(tables, tuple(transactions))


def told(name: str, run: PipelineRun, cpu_s: float) -> None:
    measures = run.measures
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name}: {cpu_s:.1f} CPU s, {measures.delivered:,} row changes ({measures.delivered / cpu_s:,.0f}/s), "
        f"{measures.committed:,} committed, {measures.repeated:,} repeated, {run.end.steps:,} steps, "
        f"violation: {run.violation}, {peak_mib:.0f} MiB"
    )


if __name__ == "__main__":
    main()
