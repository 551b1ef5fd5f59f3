"""Random seeds of DDL as a Service: every fault there is, busy users; no invariant is broken and all settles.

python benchmarks/ddl_seeds.py 0 10000                       # chaos.yaml, in two processes
python benchmarks/ddl_seeds.py 0 1000 --file FILE.yaml       # another scenario

A seed that is not as it should be is printed with the command that shows it again.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from ticdc_lab.simulate.scenario import Scenario, read_scenario
from ticdc_lab.simulate.trace import NOTHING

CHAOS = Path(__file__).resolve().parent.parent / "data/scenarios/ddl-service/chaos.yaml"
PART = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--file", default=os.path.relpath(CHAOS))
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    scenario = read_scenario(given.file, {"assert": "[]"})
    parts = [range(a, min(a + PART, given.last)) for a in range(given.first, given.last, PART)]
    total: Counter[str] = Counter()
    started = time.monotonic()
    with ProcessPoolExecutor(given.processes) as pool:
        for counts, bad in pool.map(ran, [scenario] * len(parts), parts):
            total += counts
            for seed, why in bad:
                print(f"seed {seed}: {why}\n  {shown(scenario, seed)}", flush=True)
    print(
        f"{given.file}, seeds {given.first}..{given.last - 1}: {total['runs']:,} runs, {total['steps']:,} steps, "
        f"{total['messages']:,} messages, {total['elected']:,} elections of owners, {total['jobs']:,} jobs "
        f"({total['synced']:,} done, {total['back']:,} rolled back, {total['rejected']:,} rejected or cancelled); "
        f"{total['bad']} not as they should be; {total['cpu_ms'] / 1000:,.0f} CPU s, "
        f"{time.monotonic() - started:,.0f} s on {given.processes} processes"
    )


def shown(scenario: Scenario, seed: int) -> str:
    return f"ticdc-lab simulate ddl-service {scenario.file} --seed {seed}"


def ran(scenario: Scenario, seeds: range) -> tuple[Counter[str], list[tuple[int, str]]]:
    counts: Counter[str] = Counter()
    bad: list[tuple[int, str]] = []
    started = time.process_time()
    for seed in seeds:
        try:
            run: Any = scenario.model.play(scenario, seed=seed, keep=False, level=NOTHING).run
        except Exception as error:
            bad.append((seed, repr(error)))
            continue
        states = Counter(job.state for job in run.monitor.known.values())
        counts += Counter(
            runs=1, steps=run.end.steps, messages=run.messages, elected=run.monitor.elected,
            jobs=len(run.monitor.known), synced=states["synced"], back=states["rollback done"],
            rejected=states["cancelled"],
        )  # fmt: skip
        if run.violation or run.unsettled:
            bad.append((seed, str(run.violation or run.unsettled)))
    return counts + Counter(bad=len(bad), cpu_ms=round(1000 * (time.process_time() - started))), bad


if __name__ == "__main__":
    main()
