"""No matter what PD decides, no step of it breaks a region that was whole before."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ticdc_lab.pd_core.checkers import check_region
from ticdc_lab.pd_core.cluster import Cluster, cluster_of
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.operators import (
    AddLearner,
    EnterJoint,
    LeaveJoint,
    Operator,
    PromoteLearner,
    RemovePeer,
    TransferLeader,
)
from ticdc_lab.pd_core.regions import DEMOTING, INCOMING, LEARNER, VOTER, Peer, Region
from ticdc_lab.pd_core.stores import GIB, NEVER_S, REMOVING, SERVING, Store, is_disconnected, labelled
from ticdc_lab.pd_core.why import why_leader_stays, why_peers_stay

LEFT_TO_TIKV = ("remove-extra-replica", "remove-extra-offline-replica", "remove-orphan-peer")
"""Of several voters too many PD removes a healthy one although another is silent: TiKV refuses such a change."""

Votes = dict[int, str]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Cluster, Region]:
    """Seven stores in three zones, some silent or leaving, and a region whose leader is alive."""
    ages = [0.0] + [draw(st.sampled_from([0.0, 0.0, 0.0, 30.0, NEVER_S])) for _ in range(6)]
    states = [draw(st.sampled_from([SERVING] * 4 + [REMOVING])) for _ in range(7)]
    stores = [
        Store(i, state=states[i - 1], heartbeat_age_s=ages[i - 1], labels=labelled({"zone": "abc"[i % 3]}),
              available=90 * GIB, used=10 * GIB, region_size=draw(st.integers(0, 30)) * 96,
              leader_count=draw(st.integers(0, 30)))
        for i in range(1, 8)
    ]  # fmt: skip
    held = [1, *draw(st.lists(st.integers(2, 7), max_size=5, unique=True))]
    roles = [VOTER, *(draw(st.sampled_from([VOTER] * 4 + [LEARNER])) for _ in held[1:])]
    down = frozenset(s for s in held if is_disconnected(stores[s - 1]))
    peers = tuple(Peer(10 + i, s, r) for i, (s, r) in enumerate(zip(held, roles, strict=True)))
    config = Config(
        max_replicas=draw(st.integers(1, 5)), placement_rules=draw(st.booleans()), joint_consensus=draw(st.booleans()),
        location_labels=draw(st.sampled_from([(), ("zone",)])), isolation_level=draw(st.sampled_from(["", "zone"])),
    )  # fmt: skip
    return cluster_of(config, stores)._replace(region_count=1000), Region(1, peers, 1, down=down)


def has_quorum(cluster: Cluster, votes: Votes) -> bool:
    """More than half of the voters, in a joint state of the old and of the new ones, are heard from."""

    def lives(roles: tuple[str, str]) -> bool:
        voters = [s for s, r in votes.items() if r in roles]
        return 2 * sum(not is_disconnected(cluster.stores[s]) for s in voters) > len(voters)

    return lives((VOTER, DEMOTING)) and lives((VOTER, INCOMING))


def stepped(cluster: Cluster, region: Region, op: Operator) -> Votes:
    """Carry out an operator step by step, holding on to what must hold after every step."""
    votes, leader = {p.store: p.role for p in region.peers}, region.leader
    whole = has_quorum(cluster, votes)
    for step in op.steps:
        match step:
            case AddLearner(to, _):
                assert to not in votes, "two peers on a store"
                assert not is_disconnected(cluster.stores[to]), "a peer on a silent store"
                votes[to] = LEARNER
            case PromoteLearner(to):
                votes[to] = VOTER
            case RemovePeer(gone):
                assert gone != leader, "the leader's peer is removed"
                del votes[gone]
            case TransferLeader(_, to):
                assert votes[to] in (VOTER, INCOMING) and not is_disconnected(cluster.stores[to]), (
                    "a leader that cannot lead"
                )
                leader = to
            case EnterJoint(up, down) if len(up) + len(down) > 1:
                votes |= dict.fromkeys(up, INCOMING) | dict.fromkeys(down, DEMOTING)
            case EnterJoint(up, down) | LeaveJoint(up, down):
                votes |= dict.fromkeys(up, VOTER) | dict.fromkeys(down, LEARNER)
        assert votes.get(leader) in (VOTER, INCOMING, DEMOTING), "no leader"
        assert has_quorum(cluster, votes) or not whole or op.desc in LEFT_TO_TIKV, (op.desc, step, votes)
    return votes


@settings(max_examples=200, deadline=None)
@given(worlds())
def test_no_repair_and_no_balance_breaks_a_region(world: tuple[Cluster, Region]) -> None:
    """No step removes the leader, leads from a learner, puts two peers on a store or loses a quorum that was there."""
    cluster, region = world
    decisions = (check_region(cluster, region), why_leader_stays(cluster, region), why_peers_stay(cluster, region))
    for op in [o for d in decisions for o in d.operators]:
        votes = stepped(cluster, region, op)
        alive = [s for s in votes if not is_disconnected(cluster.stores[s])]
        before = [s for s in region.stores if not is_disconnected(cluster.stores[s])]
        spared = op.desc in LEFT_TO_TIKV and len(alive) == len(before) - 1
        assert spared or len(alive) >= min(len(before), cluster.config.max_replicas), (op.desc, votes)
