"""Many regions at once are distinguished as one by one: no region that a checker would move is passed over."""

from __future__ import annotations

import random

import numpy as np
from counted_work import lines_run

from ticdc_lab.pd_core.cluster import cluster_of
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.location import distances, may_improve
from ticdc_lab.pd_core.regions import Peer, Region
from ticdc_lab.pd_core.replica_checker import check_replicas
from ticdc_lab.pd_core.stores import Store, labelled

LABELS = ("zone", "host")


def some_stores(rng: random.Random, n: int) -> list[Store]:
    """Stores somewhere, some with labels missing."""
    return [
        Store(i, labels=labelled({k: f"{k}{rng.randrange(4)}" for k in LABELS if rng.random() < 0.9}))
        for i in range(1, n + 1)
    ]


def test_every_region_that_a_checker_would_move_is_found_and_no_other() -> None:
    """All stores are alike except for their places, so the two agree exactly."""
    rng = random.Random(2)
    for _ in range(20):
        stores = some_stores(rng, 8)
        config = Config(placement_rules=False, joint_consensus=False, location_labels=LABELS)
        cluster = cluster_of(config, stores)
        rows = [rng.sample(range(8), 3) for _ in range(30)]
        found = may_improve(distances(stores, LABELS), np.array(rows, dtype=np.int32), np.ones(8, dtype=np.bool_))
        for row, better in zip(rows, found, strict=True):
            region = Region(1, tuple(Peer(i, stores[p].id) for i, p in enumerate(row)), stores[row[0]].id)
            assert bool(check_replicas(cluster, region).operators) == better


def test_stores_that_take_no_peers_improve_nothing() -> None:
    """The only better place is closed."""
    stores = [Store(i, labels=labelled({"zone": z})) for i, z in ((1, "a"), (2, "b"), (3, "b"), (4, "c"))]
    peers, apart = np.array([[0, 1, 2]], dtype=np.int32), distances(stores, ("zone",))
    assert may_improve(apart, peers, np.array([True, True, True, True])).tolist() == [True]
    assert may_improve(apart, peers, np.array([True, True, True, False])).tolist() == [False]


def test_fifty_thousand_regions_on_a_hundred_stores_are_compared_as_arrays() -> None:
    """What a patrol must look at when labels change: no line of Python for each region."""
    rng = np.random.default_rng(3)
    stores = [Store(i, labels=labelled({"zone": f"z{i % 5}", "host": f"h{i}"})) for i in range(100)]
    peers = np.array([rng.choice(100, 3, replace=False) for _ in range(5_000)] * 10, dtype=np.int32)
    apart, takes = distances(stores, LABELS), np.ones(100, dtype=np.bool_)
    found = may_improve(apart, peers, takes)
    assert lines_run(lambda: may_improve(apart, peers, takes)) < len(peers) // 10
    zones = np.sort(peers % 5, axis=1)
    assert found.tolist() == ((zones[:, 0] == zones[:, 1]) | (zones[:, 1] == zones[:, 2])).tolist()
