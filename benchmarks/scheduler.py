"""Measure the table scheduler: messages a second, many tables, many seeds.

    python benchmarks/scheduler.py speed               # 3 captures, 12 tables, 10 minutes of virtual time
    python benchmarks/scheduler.py tables 131072 v2    # 8 captures from nothing, a ninth joins, all is rebalanced
    python benchmarks/scheduler.py random 10000 v2     # seeds with all faults: violations, and whether all ends well

Times are CPU seconds of one process (`random`: of two), best read beside another variant's in the same minute.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from multiprocessing import Pool

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.simulate.faults import Chaos, Join
from ticdc_lab.simulate.scheduler.balance import Balance
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.run import SchedulerRun, simulate
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings
from ticdc_lab.simulate.trace import NOTHING

VARIANTS = ("v2", "v3", "v4")
JOINS_US, QUIET_US, END_US = 10_000_000, 10_000_000, 26_000_000


def main() -> None:
    what, *rest = sys.argv[1:] or ["speed"]
    {"speed": speed, "tables": tables, "random": random}[what](*rest)


def speed() -> None:
    for variant in VARIANTS:
        started = time.process_time()
        run = simulate(SchedulerSettings(variant=variant, tables=12), until_us=600_000_000, level=NOTHING)
        told(f"{variant}, 3 captures, 12 tables, 600 s", run, time.process_time() - started)


def tables(n: str, variant: str = "v2") -> None:
    started = time.process_time()
    settings = SchedulerSettings(
        variant=variant, captures=9, tables=int(n), add_table_batch_size=int(n), batch_size=int(n),
        max_task_concurrency=int(n), balance=Balance(check_us=2_000_000),
    )  # fmt: skip
    end_us = JOINS_US + 10_000_000
    run = simulate(settings, faults=[Join(JOINS_US, "capture-9")], until_us=end_us, level=NOTHING)
    told(f"{variant}, {int(n):,} tables, 8 captures and 1 later", run, time.process_time() - started)
    print("   tables of each capture:", dict(sorted(where(run).items())))


def random(n: str, variant: str = "v2") -> None:
    started = time.monotonic()
    with Pool(2) as pool:
        found = list(pool.imap_unordered(_one, [(variant, seed) for seed in range(int(n))], chunksize=20))
    bad = sorted(f for f in found if f[1])
    print(
        f"{variant}: {len(found):,} seeds, {sum(f[2] for f in found):,} steps, {sum(f[3] for f in found):,} messages, "
        f"{len(bad)} not as they should be, {time.monotonic() - started:.0f} s with two processes"
    )
    for seed, why, *_ in bad[:20]:
        print(f"   seed {seed}: {why}")


def _one(which: tuple[str, int]) -> tuple[int, str, int, int]:
    variant, seed = which
    settings = SchedulerSettings(
        variant=variant, tables=6, tick_us=100_000, poll_us=100_000, balance=Balance(check_us=2_000_000)
    )
    run = simulate(settings, chaos=Chaos(QUIET_US, 700_000), seed=seed, until_us=END_US, level=NOTHING)
    return seed, _wrong(run), run.end.steps, run.messages


def _wrong(run: SchedulerRun) -> str:
    """Name what is wrong with a run, nothing if it held every invariant and ended with all tables evenly at work."""
    if run.violation:
        return f"{run.violation.invariant}: {run.violation.because}"
    at = where(run)
    if sum(at.values()) != 6:
        return f"tables at work: {dict(at)}"
    if len(at) < 3 or max(at.values()) - min(at.values()) > 1:
        return f"not balanced: {dict(at)}"
    lag_us = run.kernel.states[ETCD].checkpoint_ts < ts_of(END_US - 2_000_000)
    return "the checkpoint is more than 2 s behind" if lag_us else ""


def where(run: SchedulerRun) -> Counter[str]:
    """Count the tables that replicate on each capture."""
    return Counter(
        address
        for address, state in run.kernel.states.items()
        if address != ETCD
        for pipeline in state.processor.executor.pipelines.values()
        if pipeline.state == "replicating"
    )


def told(name: str, run: SchedulerRun, seconds: float) -> None:
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{name}: {seconds:.1f} CPU s, {run.messages:,} messages ({run.messages / seconds:,.0f}/s), "
        f"{run.end.steps:,} steps ({run.end.steps / seconds:,.0f}/s), violation: {run.violation}, {peak_mib:,} MiB",
        flush=True,
    )


if __name__ == "__main__":
    main()
