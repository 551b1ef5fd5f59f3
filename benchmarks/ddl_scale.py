"""1,000 clusters on 50 workers of a DDL service: what a crash and a join cost the leader, and how many clusters move.

python benchmarks/ddl_scale.py [CLUSTERS WORKERS]

The whole service runs in the kernel, one tidb-server a cluster. A worker that does not lead is killed at 4 s, another
one joins at 14 s; the leader's planning is timed each time it plans, in CPU seconds.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from ticdc_lab.ddl_core import leading
from ticdc_lab.ddl_core.fleet import fleet_in
from ticdc_lab.ddl_core.records import IS_OWNER
from ticdc_lab.simulate.ddl_service.run import simulate
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.faults import Crash, Join
from ticdc_lab.simulate.trace import CHANGES

SECOND = 1_000_000
CRASH_US, JOIN_US, END_US = 4 * SECOND, 14 * SECOND, 20 * SECOND


def main(clusters: int = 1000, workers: int = 50) -> None:
    spent: list[tuple[float, int]] = []
    plan = leading.planned

    def timed(*given: Any) -> Any:
        began = time.process_time()
        ops, outputs = plan(*given)
        spent.append((time.process_time() - began, len(ops)))
        return ops, outputs

    leading.planned = timed
    new = f"ddl-service-node-{workers + 1}"
    settings = ServiceSettings(workers=workers, clusters=clusters, servers=1, joining=(new,))
    began = time.process_time()
    quiet = fleet_in(simulate(settings, faults=[Join(END_US, new)], until_us=SECOND, level=CHANGES).trace)
    leader = next(r["worker"] for r in quiet.alive.to_pylist() if r["state"] == "leader")
    lost = next(w for w in settings.worker_names() if w != leader)
    spent.clear()
    run = simulate(settings, faults=[Crash(CRASH_US, lost), Join(JOIN_US, new)], until_us=END_US, level=CHANGES)
    fleet = fleet_in(run.trace)
    print(f"{clusters} clusters, {workers} workers: {run.end.steps:,} steps, {time.process_time() - began:.0f} CPU s")
    print(f"violated: {run.violation}; not as it should be at the end: {run.unsettled}")
    wrote = [ms for ms, n in ((1000 * s, n) for s, n in spent) if n]
    print(
        f"planning: {len(spent)} times, the longest {1000 * max(spent)[0]:.1f} ms; {len(wrote)} plans changed something"
    )
    for what, from_us, to_us in (("crash", CRASH_US, JOIN_US), ("join", JOIN_US, END_US)):
        print(f"after the {what}: {moved(fleet, from_us, to_us)}")


def moved(fleet: Any, from_us: int, to_us: int) -> str:
    held = fleet.held.to_pandas()
    owned = held[held["status"] == IS_OWNER].sort_values("since_us")
    before = owned[owned["since_us"] < from_us].groupby("cluster")["worker"].last()
    after = owned[owned["since_us"] < to_us].groupby("cluster")["worker"].last()
    counts = after.value_counts()
    changed = int((before != after).sum())
    late = owned[(owned["since_us"] >= from_us) & (owned["since_us"] < to_us)]["since_us"].max()
    return (
        f"{changed} of {len(after)} clusters have another worker, {counts.min()} to {counts.max()} each, the last one "
        f"owned {(late - from_us) / 1e6:.3f} s later"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
