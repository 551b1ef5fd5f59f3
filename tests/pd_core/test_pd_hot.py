"""Hot regions: the hottest store gives, the coldest takes, and two even stores are left alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ticdc_lab.pd_core.chances import of_hot_regions
from ticdc_lab.pd_core.cluster import Cluster, cluster_of
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.hot_loads import (
    BYTE,
    MOVE_PEER,
    READ,
    TRANSFER_LEADER,
    WRITE,
    Flow,
    HotPeer,
    HotSettings,
    Pair,
    rank,
    ratios,
    score,
    store_loads,
)
from ticdc_lab.pd_core.hot_region import solve
from ticdc_lab.pd_core.operators import RemovePeer, TransferLeader
from ticdc_lab.pd_core.regions import Peer, Region
from ticdc_lab.pd_core.stores import MIB, Store, labelled

SETTINGS = HotSettings()
ZONES = {1: "a", 2: "b", 3: "c", 4: "d", 5: "b"}
REGIONS = {
    i: Region(i, tuple(Peer(10 * i + n, s) for n, s in enumerate(stores)), stores[0])
    for i, stores in {1: (1, 2, 3), 2: (1, 3, 4), 3: (2, 1, 3)}.items()
}


def cluster(**settings: object) -> Cluster:
    """Five stores; 2 and 5 share a zone."""
    config = Config(joint_consensus=False, location_labels=("zone",), **settings)
    return cluster_of(config, [Store(i, labels=labelled({"zone": z})) for i, z in ZONES.items()])


def flow(kind: str, mib_s: dict[int, float], rate: float = 0.5) -> Flow:
    """Stores with so many MiB a second, and all peers (of reads: leaders) with the same rate."""
    loads = (rate * MIB, 0.0, 0.0)
    peers = [HotPeer(r.id, p.store, p.store == r.leader, loads) for r in REGIONS.values() for p in r.peers]
    hot = [p for p in peers if kind == WRITE or p.leads]
    return Flow(kind, [*mib_s], rows(x * MIB for x in mib_s.values()), hot)


def rows(loads: Iterable[float]) -> NDArray[np.float64]:
    """Bytes a second of stores; neither keys nor queries."""
    return np.array([(x, 0.0, 0.0) for x in loads])


def test_a_hot_written_peer_leaves_the_hottest_store_for_the_coldest() -> None:
    """Store 5 is the coldest but shares a zone with 2: only region 2, which has no peer there, may go to it."""
    told = solve(cluster(), REGIONS, flow(WRITE, {1: 8, 2: 4, 3: 4, 4: 2, 5: 1}), MOVE_PEER, SETTINGS)
    assert [(op.region, op.desc) for op in told.operators] == [(2, "move-hot-write-leader")]
    assert RemovePeer(1) in told.operators[0].steps
    assert ("target", "rule-fit") in {(r.role, r.filter) for r in told.rejected}


def test_a_hot_read_leader_moves_leadership() -> None:
    """Reads go where leaders are: leadership moves, or the leader with its peer."""
    chances = of_hot_regions(cluster(), list(REGIONS.values()), flow(READ, {1: 8, 2: 1, 3: 1, 4: 1, 5: 1}))
    for (op, _), p in chances.items():
        assert op is not None and p > 0
        assert op.desc in ("transfer-hot-read-leader", "move-hot-read-leader")
        assert any(isinstance(s, TransferLeader) and s.from_store == 1 for s in op.steps)


def test_even_stores_are_left_alone_and_say_so() -> None:
    """No store exceeds the mean by 5 %."""
    told = solve(cluster(), REGIONS, flow(WRITE, dict.fromkeys(ZONES, 4.0)), MOVE_PEER, SETTINGS)
    assert told.operators == ()
    assert {r.filter for r in told.rejected} == {"hot"}


def test_what_is_under_way_counts_before_it_arrives() -> None:
    """With two peers on their way out of the hottest store it is no source any more."""
    written = flow(WRITE, {1: 5, 2: 4, 3: 4, 4: 4, 5: 1})
    assert solve(cluster(), REGIONS, written, MOVE_PEER, SETTINGS).operators
    leaving = written._replace(pending=rows((-1.5 * MIB, 0, 0, 0, 1.5 * MIB)))
    again = solve(cluster(), REGIONS, leaving, MOVE_PEER, SETTINGS)
    assert [op for op in again.operators if RemovePeer(1) in op.steps] == []


def test_written_leaders_are_counted_by_their_peers() -> None:
    """Stores do not show what their leaders are written: the hot leaders on them do."""
    loads = store_loads(cluster().stores, flow(WRITE, dict.fromkeys(ZONES, 4.0)), TRANSFER_LEADER)
    assert [x / MIB for x in loads.now[BYTE]] == [1.0, 0.5, 0, 0, 0]
    assert loads.expected[BYTE] / MIB == 0.3


def pair(source: float, target: float, rate: float) -> Pair:
    """Two stores and what would move, MiB a second."""
    told = Flow(READ, [1, 2], rows((source * MIB, target * MIB)), [])
    loads = store_loads({i: Store(i) for i in (1, 2)}, told, MOVE_PEER)
    return Pair(loads, 0, 1, BYTE, rate * MIB, SETTINGS.least[BYTE])


def test_scores_by_the_example_of_the_formula() -> None:
    """120 against 75: 20 to 25 makes even, less helps, a little more is still better, far more is worse."""
    first, _ = ratios(SETTINGS)
    found = [score(pair(120, 75, rate), first) for rate in (0.00001, 5, 20, 25, 26, 28.8, 30, 60)]
    assert found == [0, 2, 3, 3, 1, -1, -2, -2]


@given(st.floats(1, 1000), st.floats(1, 1000), st.floats(0.01, 500))
def test_a_move_that_is_called_better_leaves_the_two_closer(source: float, target: float, rate: float) -> None:
    """A positive score never makes the difference of two stores larger."""
    first, _ = ratios(SETTINGS)
    if score(pair(source, target, rate), first) > 0:
        assert abs((source - rate) - (target + rate)) < abs(source - target)


def test_ranks_put_the_first_dimension_first() -> None:
    """Both better 4; first only 3, or 2 where the second gets worse; second only 1; nothing better: no move."""
    assert [rank(*s) for s in ((3, 3), (3, 0), (3, -2), (0, 3), (-1, 3), (0, 0))] == [4, 3, 2, 1, 0, -1]
