"""The schedulers that draw, and the chances that go through all draws, are one and the same policy."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from ticdc_lab.pd_core import balance_leader, balance_region
from ticdc_lab.pd_core.balance import DRAWN, RETRIES
from ticdc_lab.pd_core.chances import is_here, of_balance_leader, of_balance_region
from ticdc_lab.pd_core.cluster import Cluster, cluster_of
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.explained import Notes
from ticdc_lab.pd_core.regions import Peer, Region
from ticdc_lab.pd_core.stores import GIB, MIB, Store

COUNTS = {1: 60, 2: 35, 3: 30, 4: 8}
REGIONS = [
    Region(i, tuple(Peer(n, s) for n, s in enumerate(stores, 1)), stores[0], down=frozenset(down))
    for i, (stores, down) in enumerate(
        [((1, 2, 3), ()), ((1, 3, 2), ()), ((2, 1, 3), ()), ((3, 1, 4), ()), ((1, 4, 3), (4,)), ((2, 4, 1), ())]
    )
]


def cluster(**settings: object) -> Cluster:
    """Four stores, the first the fullest."""
    stores = [
        Store(i, region_count=n, region_size=96 * n, used=96 * n * MIB, available=100 * GIB - 96 * n * MIB,
              leader_count=n, leader_size=96 * n)
        for i, n in COUNTS.items()
    ]  # fmt: skip
    made = cluster_of(Config(joint_consensus=False, **settings), stores)
    return made._replace(region_count=len(REGIONS), regions_on=Counter(p.store for r in REGIONS for p in r.peers))


def drawing(seed: int) -> Callable[[int, str], Iterable[Region]]:
    """Draw ten regions of a kind, with replacement."""
    rng = random.Random(seed)

    def draw(store: int, kind: str) -> Iterable[Region]:
        here = [r for r in REGIONS if is_here(r, store, kind)]
        return [rng.choice(here) for _ in range(DRAWN)] if here else []

    return draw


@pytest.mark.parametrize(
    ("schedule", "chances"),
    [(balance_region.schedule, of_balance_region), (balance_leader.schedule, of_balance_leader)],
)
def test_what_is_drawn_is_as_likely_as_the_chances_say(schedule: Callable, chances: Callable) -> None:
    """Of 400 rounds each decision comes about as often as computed, and no other comes."""
    found = Counter(schedule(cluster(), drawing(seed))[0].operator for seed in range(400))
    expected: Counter = Counter()
    for (op, _), p in chances(cluster(), REGIONS, Notes()).items():
        expected[op] += p
    assert sum(expected.values()) == pytest.approx(1, abs=1e-5)
    assert set(found) <= set(expected)
    for op, p in expected.items():
        assert abs(found[op] / 400 - p) < 0.1, op


def test_a_decision_tells_its_reasons() -> None:
    """Candidates, what refused each, the scores compared: nothing is decided without them."""
    busy = cluster()
    stores = {**busy.stores, 4: busy.stores[4]._replace(busy=True), 2: busy.stores[2]._replace(add_open=False)}
    told, _ = balance_region.schedule(busy._replace(stores=stores), drawing(1))
    assert told.candidates == (1, 2, 3, 4)
    why = {(r.store, r.role, r.why.split(":")[0]) for r in told.rejected}
    assert {(4, "target", "busy"), (4, "source", "busy"), (2, "target", "add-limit")} <= why
    assert told.operator is None or told.operator.brief == told.because


def test_a_fruitless_round_halves_the_tries_and_a_limit_stops_it() -> None:
    """Tries go 10, 5, 2, 1; a success brings them back; at its limit a scheduler reports it."""
    even = cluster()._replace(stores={i: cluster().stores[1]._replace(id=i) for i in COUNTS})
    retries: dict[int, int] = {}
    seen = []
    for seed in range(4):
        told, retries = balance_region.schedule(even, drawing(seed), retries)
        assert told.operator is None
        seen.append(retries[1])
    assert seen == [RETRIES // 2, 2, 1, 1]
    _, after = balance_region.schedule(cluster(), drawing(0), {1: 1})
    assert after[1] == RETRIES
    told, _ = balance_region.schedule(cluster(region_schedule_limit=3), drawing(0), running=3)
    assert told.operator is None and told.limit == "region-schedule-limit 3"
    told, _ = balance_leader.schedule(cluster(), drawing(0), running=4)
    assert told.operator is None and told.limit == "leader-schedule-limit 4"
