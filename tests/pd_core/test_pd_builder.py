"""Steps from the peers a region has to those it should have: legal one by one, with joint consensus and without."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_lab.pd_core import builder
from ticdc_lab.pd_core.builder import CannotBuild
from ticdc_lab.pd_core.cluster import cluster_of
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.create import change_peers, leave_joint_state, move_peer, transfer_leader
from ticdc_lab.pd_core.operators import (
    AddLearner,
    EnterJoint,
    Kind,
    LeaveJoint,
    Operator,
    PromoteLearner,
    RemovePeer,
    TransferLeader,
    kind_text,
    limited_as,
    timeout_s,
)
from ticdc_lab.pd_core.regions import DEMOTING, INCOMING, LEARNER, VOTER, Peer, Region
from ticdc_lab.pd_core.stores import Store, labelled

ZONES = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
STORES = [Store(i, labels=labelled({"zone": z})) for i, z in ZONES.items()]


def cluster(*, joint: bool = False, rules: bool = False) -> object:
    """Six stores in three zones."""
    config = Config(joint_consensus=joint, placement_rules=rules, location_labels=("zone",))
    return cluster_of(config, STORES)


def region(*stores: int, leader: int = 0, learners: tuple[int, ...] = ()) -> Region:
    """A region with peers on some stores."""
    peers = tuple(Peer(i, s, LEARNER if s in learners else VOTER) for i, s in enumerate(stores, 1))
    return Region(1, peers, leader or stores[0])


def played(start: Region, op: Operator) -> dict[int, str]:
    """Carry out the steps; fails where one is not allowed. Gives the roles at the end, the leader's as "leader"."""
    roles, leader = {p.store: p.role for p in start.peers}, start.leader
    for step in op.steps:
        match step:
            case AddLearner(store, _):
                assert store not in roles
                roles[store] = LEARNER
            case PromoteLearner(store):
                assert roles[store] == LEARNER
                roles[store] = VOTER
            case RemovePeer(store):
                assert store != leader
                del roles[store]
            case TransferLeader(a, b):
                assert a == leader and roles[b] in (VOTER, INCOMING)
                leader = b
            case EnterJoint(up, down):
                roles |= dict.fromkeys(up, INCOMING) | dict.fromkeys(down, DEMOTING)
                if len(up) + len(down) == 1:
                    roles |= dict.fromkeys(up, VOTER) | dict.fromkeys(down, LEARNER)
            case LeaveJoint(up, down):
                assert leader not in down
                roles |= dict.fromkeys(up, VOTER) | dict.fromkeys(down, LEARNER)
        assert roles[leader] not in (LEARNER,)
        assert sum(r != LEARNER for r in roles.values()) >= 1
    return {**roles, leader: "leader"}


@given(
    st.sets(st.sampled_from(sorted(ZONES)), min_size=1, max_size=5),
    st.sets(st.sampled_from(sorted(ZONES)), min_size=1, max_size=5), st.booleans(), st.data(),
)  # fmt: skip
def test_every_change_of_peers_is_reached_by_legal_steps(
    have: set[int], want: set[int], joint: bool, data: st.DataObject
) -> None:
    """No leader is removed, no store holds two peers, and the wanted peers are there in the end."""
    start = region(*sorted(have), leader=data.draw(st.sampled_from(sorted(have))))
    wanted = {s: start.peer_on(s) or Peer(0, s) for s in want}
    try:
        op = change_peers(cluster(joint=joint), start, wanted, "test")
    except CannotBuild:
        assert have == want
        return
    end = played(start, op)
    assert set(end) == want
    assert LEARNER not in end.values()


def test_a_peer_is_replaced_by_one_of_its_own_zone_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Isolation does not drop in between; a builder that prefers the farthest is noticed."""
    wanted = {s: Peer(0, s) for s in (4, 5, 3)}
    built = change_peers(cluster(), region(1, 2, 3, leader=3), wanted, "test")
    pairs = [s.store for s in built.steps if isinstance(s, AddLearner | RemovePeer)]
    assert pairs == [4, 1, 5, 2]
    nearest = builder.matched_labels
    monkeypatch.setattr(builder, "matched_labels", lambda *a: -nearest(*a))
    other = change_peers(cluster(), region(1, 2, 3, leader=3), wanted, "test")
    assert [s.store for s in other.steps if isinstance(s, AddLearner | RemovePeer)] != pairs


def test_moving_a_peer_with_joint_consensus() -> None:
    """A learner is added, votes change at once, the old peer goes as a learner; four steps, five with the leader."""
    op = move_peer(cluster(joint=True), region(1, 2, 3), 2, Peer(0, 5), "test", kind=Kind.REGION)
    assert op.steps == (AddLearner(5), EnterJoint((5,), (2,)), LeaveJoint((5,), (2,)), RemovePeer(2))
    led = move_peer(cluster(joint=True), region(1, 2, 3), 1, Peer(0, 4), "test", kind=Kind.REGION)
    assert TransferLeader(1, 2) in led.steps and led.brief == "mv peer: store [1] to [4]"
    assert kind_text(led.kind) == "region,leader" and limited_as(led.kind) == Kind.REGION


def test_a_leader_goes_only_where_it_may() -> None:
    """No learner, no unknown store and no pending peer leads."""
    for start, to in ((region(1, 2, learners=(2,)), 2), (region(1, 9), 9), (region(1, 2), 5)):
        with pytest.raises(CannotBuild):
            transfer_leader(cluster(), start, to, "test")
    with pytest.raises(CannotBuild):
        transfer_leader(cluster(), region(1, 2)._replace(pending=frozenset({2})), 2, "test")


def test_a_joint_state_that_was_left_half_done_is_finished() -> None:
    """A demoted leader hands over before its vote ends."""
    peers = (Peer(1, 1, DEMOTING), Peer(2, 2, VOTER), Peer(3, 3, INCOMING))
    op = leave_joint_state(cluster(), Region(1, peers, 1))
    assert op.steps == (TransferLeader(1, 2), LeaveJoint((3,), (1,)))
    with pytest.raises(CannotBuild):
        leave_joint_state(cluster(), region(1, 2, 3))


def test_an_operator_may_run_as_long_as_its_steps_together() -> None:
    """A snapshot 600 s, a change of roles 60 s; more for regions above 100 MiB."""
    op = move_peer(cluster(), region(1, 2, 3), 2, Peer(0, 5), "test", kind=Kind.REGION)
    assert timeout_s(op) == 600 + 60 + 60
    assert timeout_s(op._replace(size=1000)) == 6000 + 600 + 600
