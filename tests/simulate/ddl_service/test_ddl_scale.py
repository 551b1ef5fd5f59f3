"""Many clusters: a crash or a join costs the leader little, and as few clusters move as balance takes.

1,000 clusters on 50 workers in the kernel: benchmarks/ddl_scale.py.
"""

from __future__ import annotations

import pyarrow.compute as pc
import pytest
from counted_work import lines_run
from immutables import Map

from ticdc_lab.ddl_core.connection import Part
from ticdc_lab.ddl_core.fleet import fleet_in
from ticdc_lab.ddl_core.leading import planned
from ticdc_lab.ddl_core.records import IS_OWNER, ClusterRecord, written
from ticdc_lab.ddl_core.settings import DUTIES
from ticdc_lab.ddl_core.store import Put, StoredEntry
from ticdc_lab.simulate.ddl_service.run import simulate
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.faults import Crash, Join
from ticdc_lab.simulate.trace import CHANGES

SECOND = 1_000_000
CLUSTERS, WORKERS = 1000, 50
REGISTERS: Part = Map(
    {f"c{i:04}": StoredEntry(written(ClusterRecord(f"tikv://{i}:1", "v6.5.0")), 1, 1) for i in range(CLUSTERS)}
)


def settled(assignments: Part, workers: frozenset[str]) -> tuple[Part, int]:
    """Let the leader plan until nothing changes; give assignments, and how many clusters have another worker."""
    after = assignments
    for _ in range(30):
        ops, _ = planned(REGISTERS, after, Map(dict.fromkeys(workers, DUTIES.versions)))
        if not ops:
            return after, sum(after[c].value != e.value for c, e in assignments.items())
        puts = {op.key.rpartition("/")[2]: StoredEntry(op.value, 1, 2) for op in ops if isinstance(op, Put)}
        after = after.update(puts)
    raise AssertionError("the leader plans and plans")


def test_a_thousand_clusters_on_fifty_workers() -> None:
    """A crash: the twenty that have lost theirs. A join: the share of the one that joins. Some lines a cluster."""
    workers = frozenset(f"w{i:02}" for i in range(WORKERS))
    first, _ = settled(Map(), workers)
    for there, least in ((workers - {"w07"}, CLUSTERS // WORKERS), (workers | {"w50"}, CLUSTERS // (WORKERS + 1))):
        after, moved = settled(first, there)
        counts = [sum(e.value == w for e in after.values()) for w in sorted(there)]
        assert max(counts) - min(counts) <= 1
        assert least <= moved <= 1.1 * least
        assert lines_run(lambda: settled(first, there)) < 60 * CLUSTERS  # noqa: B023


@pytest.fixture(scope="module")
def owned() -> dict[int, dict[str, str]]:
    """Who owns what of 100 clusters on 10 workers before a crash, after it, and after a join."""
    new = "ddl-service-node-11"
    settings = ServiceSettings(workers=10, clusters=100, servers=1, joining=(new,))
    quiet = fleet_in(simulate(settings, faults=[Join(9 * SECOND, new)], until_us=SECOND, level=CHANGES).trace)
    (leader,) = quiet.alive.filter(pc.field("state") == "leader")["worker"].to_pylist()
    lost = next(w for w in settings.worker_names() if w != leader)
    run = simulate(
        settings, faults=[Crash(2 * SECOND, lost), Join(9 * SECOND, new)], until_us=11 * SECOND, level=CHANGES
    )
    assert (run.violation, run.unsettled) == (None, None)
    fleet, found = fleet_in(run.trace), {}
    for at_s in (1, 8, 11):
        held = fleet.at(at_s * SECOND)[0].to_pandas()
        assert set(held["status"]) == {IS_OWNER}
        found[at_s] = dict(zip(held["cluster"], held["worker"], strict=True))
    return found


def test_a_whole_fleet_moves_no_more_than_it_must(owned: dict[int, dict[str, str]]) -> None:
    """Of a hundred clusters ten get another worker when one of ten dies, ten when another one joins."""
    assert sum(owned[1][c] != owned[8][c] for c in owned[1]) == 10
    assert sum(owned[8][c] != owned[11][c] for c in owned[1]) == 10
    for now in owned.values():
        counts = [list(now.values()).count(w) for w in set(now.values())]
        assert max(counts) - min(counts) <= 1
