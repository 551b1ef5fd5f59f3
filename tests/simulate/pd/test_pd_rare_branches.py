"""Branches of PD's decisions that few clusters meet: witnesses, swapped peers, borders of labels, steps gone stale."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ticdc_lab.pd_core.checkers import check_region, check_split
from ticdc_lab.pd_core.cluster import Cluster, cluster_of
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.create import change_peers, merge_regions, set_witness
from ticdc_lab.pd_core.evict_leader import evict_leaders, grant_leader
from ticdc_lab.pd_core.lifecycle import impossible
from ticdc_lab.pd_core.merge_checker import Neighbours, check_merge
from ticdc_lab.pd_core.operators import (
    AddLearner,
    BecomeNonWitness,
    BecomeWitness,
    EnterJoint,
    Kind,
    LeaveJoint,
    Priority,
    PromoteLearner,
    RemovePeer,
    SplitRegion,
    Step,
    TransferLeader,
    step_timeout_s,
)
from ticdc_lab.pd_core.regions import LEARNER, SCHEDULE, Peer, Region
from ticdc_lab.pd_core.rule_checker import check_rules
from ticdc_lab.pd_core.rules import AS_FOLLOWER, AS_LEADER, Constraint, Rule
from ticdc_lab.pd_core.store_states import delete_store
from ticdc_lab.pd_core.stores import NEVER_S, REMOVING, Store, labelled
from ticdc_lab.simulate.pd.replay import replay

NO_JOINT = Config(joint_consensus=False, witness=True)
JOINT = replace(NO_JOINT, joint_consensus=True)


def cluster(config: Config, rules: tuple[Rule, ...] = (), **labels: dict[int, str]) -> Cluster:
    """Five stores, with labels by store."""
    stores = [Store(i, labels=labelled({k: v[i] for k, v in labels.items() if i in v})) for i in range(1, 6)]
    return cluster_of(config, stores, rules)


def region(*stores: int, witnesses: tuple[int, ...] = (), learners: tuple[int, ...] = (), **more: Any) -> Region:
    """A region led by its first store."""
    peers = tuple(Peer(10 + s, s, LEARNER if s in learners else "voter", s in witnesses) for s in stores)
    return Region(7, peers, stores[0], **more)


@pytest.mark.parametrize(
    ("config", "steps", "brief"),
    [
        (
            NO_JOINT,
            (RemovePeer(4), AddLearner(4, True), BecomeNonWitness(4), PromoteLearner(4)),
            "mv peer: store [4] to [4]",
        ),
        (JOINT, (EnterJoint((), (4,)), BecomeNonWitness(4), EnterJoint((4,), ())), "demote peer: store [4]"),
    ],
)
def test_a_witness_that_votes_gets_its_data_without_a_vote(config: Config, steps: tuple[Step, ...], brief: str) -> None:
    """It is a learner while the data comes, however votes are changed."""
    op = set_witness(cluster(config), region(1, 2, 4, witnesses=(4,)), 4, False, "test")
    assert (op.steps, op.brief) == (steps, brief)


def test_a_witness_without_a_vote_gets_its_data_in_one_step() -> None:
    """There is no vote to give up."""
    op = set_witness(cluster(JOINT), region(1, 2, 4, witnesses=(4,), learners=(4,)), 4, False, "test")
    assert op.steps == (BecomeNonWitness(4),)
    assert set_witness(cluster(JOINT), region(1, 2, 4), 4, True, "test").steps == (BecomeWitness(4),)


def test_witnesses_change_places_after_all_other_changes() -> None:
    """Data is given up before it is fetched; the two changes of votes stay apart."""
    wanted = {p.store: p for p in region(1, 2, 4, witnesses=(2,)).peers}
    op = change_peers(cluster(JOINT), region(1, 2, 4, 5, witnesses=(4,)), wanted, "test")
    votes = EnterJoint((), (4, 5)), LeaveJoint((), (4, 5))
    assert op.steps == (*votes, RemovePeer(5), BecomeWitness(2), BecomeNonWitness(4), EnterJoint((4,), ()))
    assert op.brief == "demote peer: store [4], rm peer: store [5]"


def test_a_better_placed_witness_stays_a_witness() -> None:
    """The peer that moves for its location keeps what its rule asks for."""
    rules = (Rule("voter", 2), Rule("voter", 2, (Constraint("kind", "in", ("w",)),), ("zone",), witness=True))
    c = cluster(NO_JOINT, rules, kind={3: "w", 4: "w", 5: "w"}, zone={3: "a", 4: "a", 5: "b"})
    told = check_rules(c, region(1, 2, 3, 4, witnesses=(3, 4)))
    assert {op.desc for op in told.operators} == {"move-to-better-location"}
    assert {op.steps[0] for op in told.operators} == {AddLearner(5, True)}


def test_only_the_first_peer_that_could_make_room_is_tried() -> None:
    """Store 1 has no replacement, as its rule knows no other store; PD then tries no further peer."""
    read = Constraint("type", "in", ("read",))
    here = Constraint("here", "in", ("yes",))
    rules = (Rule("voter", 1, (here,)), Rule("voter", 1), Rule("learner", 2, (read,)))
    c = cluster(replace(NO_JOINT, witness=False), rules, type={1: "read", 2: "read"}, here={1: "yes"})
    assert check_rules(c, region(1, 2)).operators == ()
    c = cluster(replace(NO_JOINT, witness=False), rules, type={1: "read", 2: "read"}, here={1: "yes", 3: "yes"})
    assert {op.desc for op in check_rules(c, region(1, 2)).operators} == {"replace-rule-swap-fit-peer"}


def test_no_merge_crosses_the_border_of_a_rule_for_labels() -> None:
    """No matter what the rule shows: afterwards a part of the region would have another label."""
    c = cluster(NO_JOINT)
    left = region(1, 2, 3, size=2, start_key="", end_key="k")
    right = region(1, 2, 3, size=2, start_key="k", end_key="")._replace(id=8)
    assert len(check_merge(c, left, Neighbours(None, right)).operators) == 2
    told = check_merge(c, left, Neighbours(None, right, borders=frozenset("k")))
    assert told.operators == ()
    right = right._replace(end_key="z")
    told = check_merge(c, right, Neighbours(left, None, borders=frozenset("k")))
    assert told.operators == () and told.because == (
        "next region: there is none; previous region: a rule for labels ends between the two"
    )


def test_rules_for_labels_split_before_placement_rules() -> None:
    """Keys at the ends of a region, and the open end of a rule, split nothing; a split is not urgent."""
    rules = (Rule("voter", 3), Rule("voter", 3, start_key="m"))
    c, whole = cluster(JOINT, rules), region(1, 2, 3, start_key="c", end_key="t")
    for borders, desc, keys in (
        (frozenset(("", "c", "k", "t")), "labeler-split-region", (b"k",)),
        (frozenset("ct"), "rule-split-region", (b"m",)),
    ):
        (op,) = check_split(c, whole, borders).operators
        assert (op.desc, op.steps, op.priority) == (desc, (SplitRegion("usekey", keys),), Priority.MEDIUM)


def test_the_limit_of_replica_operators_holds_every_repair_but_no_merge() -> None:
    """A change of role waits, too, though it counts as another kind; a promotion without rules does not."""
    leads = Rule("leader", 1, (Constraint("kind", "in", ("l",)),))
    c = cluster(replace(JOINT, split_merge_interval_s=0), (leads, Rule("voter", 2)), kind={2: "l"})
    full = {Kind.REPLICA: c.config.replica_schedule_limit}
    wrong = region(1, 2, 3, size=1, end_key="k")
    assert [op.desc for op in check_region(c, wrong).operators] == ["fix-leader-role"]
    told = check_region(c, wrong, running=full)
    assert told.operators == () and told.limit == "replica-schedule-limit 64"
    no_rules = c._replace(config=replace(c.config, placement_rules=False))
    learns = region(1, 2, 3, learners=(3,))
    assert [op.desc for op in check_region(no_rules, learns, running=full).operators] == ["promote-learner"]


def test_a_merge_makes_witnesses_match_first() -> None:
    """The same stores are not enough: the third peer must become a witness, too."""
    active, _ = merge_regions(cluster(NO_JOINT), region(1, 2, 3), region(1, 2, 3, witnesses=(3,))._replace(id=8))
    assert active.steps[0] == BecomeWitness(3) and active.kind & Kind.MERGE


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (TransferLeader(1, 2), ""),
        (TransferLeader(1, 3), "the region has no voter on store 3"),
        (TransferLeader(1, 4), "the region has no voter on store 4"),
        (AddLearner(5), "store 5 is down"),
        (AddLearner(2), "the region has a voter on store 2"),
        (AddLearner(3), ""),
        (RemovePeer(1), "the peer on store 1 leads"),
        (BecomeWitness(4), "the region has no peer on store 4"),
        (PromoteLearner(4), "the region has no peer on store 4"),
    ],
)
def test_when_a_step_is_stale(step: Step, why: str) -> None:
    """Store 2 is being taken offline, which makes no step stale; 3 has a learner, 4 no peer, 5 is down."""
    c = cluster(NO_JOINT)
    stores = dict(c.stores) | {2: Store(2, state=REMOVING), 5: Store(5, heartbeat_age_s=NEVER_S)}
    assert impossible(c._replace(stores=stores), region(1, 2, 3, learners=(3,)), step) == why


@pytest.mark.parametrize(
    ("step", "size", "seconds"),
    [
        (SplitRegion("scan"), 500, 300),
        (AddLearner(3), 500, 3000),
        (EnterJoint((3,), (1, 2)), 500, 1200),
        (LeaveJoint((3,), ()), 9, 120),
        (RemovePeer(3), 9, 60),
    ],
)
def test_how_long_a_step_may_take(step: Step, size: float, seconds: float) -> None:
    """Only data takes long; of a joint change every vote has its time, and the change itself."""
    assert step_timeout_s(step, size) == seconds


def judged(folder: Path, area: str, given: dict[str, Any], expect: dict[str, Any]) -> dict[str, Any]:
    """Judge one scenario."""
    path = folder / "scenario.jsonl"
    path.write_text(json.dumps({"id": "test", "area": area, "given": given, "expect": expect}))
    return replay(path).records[0]


def test_only_stores_of_tikv_are_needed_for_replicas() -> None:
    """Another engine's store may always go, and is not in for one of TiKV."""
    c = cluster(replace(JOINT, max_replicas=3), engine={4: "tiflash", 5: "other"})
    assert delete_store(c, 4).error == "" and delete_store(c, 1).error == "ErrStoresNotEnough"
    c = cluster(replace(JOINT, max_replicas=3), engine={4: "tikv", 5: "tiflash_compute"})
    assert delete_store(c, 1).error == ""


FOUR = [{"id": i, "region_count": 9} for i in (1, 2, 3, 4)]


@pytest.mark.parametrize("told", [["no=1"], "no=1", {"no": "1"}, [{"key": "no", "value": "1"}]])
def test_rejected_leaders_may_be_told_in_several_forms(told: object, tmp_path: Path) -> None:
    """Store 2 takes no leader, so 3 leads while the leader's store is left."""
    stores = [FOUR[0] | {"state": "offline"}, FOUR[1] | {"labels": {"no": "1"}}, *FOUR[2:]]
    given = {
        "stores": stores,
        "regions": [{"leader": 1, "peers": [1, 2, 3]}],
        "config": {"placement_rules": False, "reject_leader": told},
    }
    steps = ["transfer-leader 1->3", "add-learner 4", "promote 4", "remove 1"]
    assert judged(tmp_path, "offline", given, {"operator": "move-peer", "steps": steps})["agrees"] is True


def test_running_operators_count_where_two_stores_are_compared(tmp_path: Path) -> None:
    """One region on its way to the source counts fivefold against it, and as much for the target."""
    for count, expected in ((63, False), (64, True)):
        given = {
            "stores": [{"id": 1, "region_count": count}, {"id": 2, "region_count": 51}],
            "regions": [{"leader": 1, "peers": [1, 2]}],
            "config": {"tolerant_size_ratio": 1, "applies_to": "region score", "policy": "size",
                       "region_score_formula_version": "v1", "running_operators": "move-peer 2 -> 1"},
        }  # fmt: skip
        assert judged(tmp_path, "balance-region", given, {"should_balance": expected})["agrees"] is True
    given["config"]["running_operators"] = "two merges run: merge regions 1 and 2"
    given["stores"][0]["region_count"] = 54
    assert judged(tmp_path, "balance-region", given, {"should_balance": True})["agrees"] is True


def test_a_region_with_little_flow_is_not_hot(tmp_path: Path) -> None:
    """Below 1 KiB, 32 keys and 32 queries a second nothing is moved; store 4, which no line names, is not counted."""
    for rate, operator in ((1023, "none"), (300_000, "transfer-leader")):
        given = {
            "stores": [{"id": i, "write_bytes_s": 1_000_000} for i in (1, 2, 3)] + [{"id": 4}],
            "regions": [{"leader": 1, "peers": [1, 2, 3], "write_bytes_s": rate} for _ in range(3)],
            "config": {"priorities": ["byte", "key"]},
        }
        r = judged(tmp_path, "hot-region", given, {"operator": operator})
        assert r["agrees"] is True and "not understood" not in r["because"], r


def test_whether_a_merge_happens_may_be_asked_of_all_regions(tmp_path: Path) -> None:
    """Where no region is named the first that would merge answers."""
    regions = [{"id": i, "keys": k, "size_mib": 5, "leader": 1, "peers": [1, 2, 3]}
               for i, k in ((4, ["", "a"]), (5, ["a", "b"]), (6, ["b", ""]))]  # fmt: skip
    given = {"stores": FOUR, "regions": regions, "config": {"split_merge_interval_s": 0}}
    given["config"]["label_rules"] = [{"start_key": "a", "end_key": "b", "labels": {}}]
    assert judged(tmp_path, "merge", given, {"operator": "none"})["agrees"] is True
    given["config"]["label_rules"] = [{"start_key": "", "end_key": "b", "labels": {}}]
    assert judged(tmp_path, "merge", given, {"operator": "merge", "source": 4, "target": 5})["agrees"] is True


def test_an_operator_of_several_named_steps(tmp_path: Path) -> None:
    """The first step shows whether it is stale: a leader is not removed."""
    given = {"stores": FOUR, "regions": [{"leader": 2, "peers": [1, 2]}],
             "config": {"operator": "remove-peer 2 + add-peer 3"}}  # fmt: skip
    assert judged(tmp_path, "operator", given, {"status": "canceled"})["agrees"] is True
    given["config"]["operator"] = "remove-peer 1 + add-peer 3"
    assert judged(tmp_path, "operator", given, {"status": "running"})["agrees"] is True


def test_what_a_leader_says_of_its_peers_is_read(tmp_path: Path) -> None:
    """Roles of a joint change, and how long a peer has been down: too long, and another peer serves the rule."""
    joint = {"leader": 1, "peers": [1, 2, 3, 4], "incoming_voters": [4], "demoting_voters": [3]}
    given: dict[str, Any] = {"stores": FOUR, "regions": [joint], "config": {}}
    expect = {"operator": "leave-joint-state", "steps": ["leave-joint promote [4] demote [3]"]}
    assert judged(tmp_path, "joint-state", given, expect)["agrees"] is True
    for seconds, expect in ((60, {"operator": "none"}), (3600, {"operator": "promote-learner", "store": 3})):
        region_told = {"leader": 1, "peers": [1, 2, 3], "learners": [3], "down_peers": [2], "pending_peers": []}
        given = {"stores": FOUR[:3], "regions": [region_told | {"down_seconds": seconds}],
                 "config": {"rules": [{"role": "voter", "count": 2}, {"role": "learner", "count": 1}]}}  # fmt: skip
        r = judged(tmp_path, "rule-checker", given, expect)
        assert r["agrees"] is True and "not understood" not in r["because"], r


def test_grant_leader_asks_neither_the_store_nor_the_rules() -> None:
    """PD up to v8.5 pauses transfers into the store that it grants, and forces them; a learner never leads."""
    only = Rule(AS_LEADER, 1, (Constraint("zone", "in", ("z1",)),), id="lead")
    held = cluster(Config(), (only, Rule(AS_FOLLOWER, 2, id="rest")), zone={1: "z1"})
    held = held._replace(stores={i: s._replace(leader_in_paused=i == 2) for i, s in held.stores.items()})
    told = grant_leader(held, lambda store, kind: [region(1, 2, 3)], 2, "grant-leader-scheduler")
    assert [op.steps for op in told.operators] == [(TransferLeader(1, 2),)]
    assert not grant_leader(held, lambda store, kind: [region(1, 2, 3, learners=(2,))], 2, "grant").operators


def test_evict_leader_moves_the_leader_of_an_unhealthy_region_to_a_healthy_peer() -> None:
    """A healthy region goes first; where none was drawn the peers that are down or pending are no targets."""
    sick, well = region(1, 2, 3, down=frozenset({2})), region(1, 2, 3)._replace(id=8)
    held = cluster(Config())
    told = evict_leaders(held, lambda store, kind: [sick, well], 1, "evict-leader-scheduler")
    assert {op.region for op in told.operators} == {8}
    told = evict_leaders(held, lambda store, kind: [sick], 1, "evict-leader-scheduler")
    assert [op.steps for op in told.operators] == [(TransferLeader(1, 3),)]
    worse = sick._replace(pending=frozenset({3}))
    assert not evict_leaders(held, lambda store, kind: [worse], 1, "evict-leader-scheduler").operators
    denied = well._replace(denied=frozenset({SCHEDULE}))
    assert evict_leaders(held, lambda store, kind: [denied], 1, "evict-leader-scheduler").operators
    assert not evict_leaders(held, lambda store, kind: [denied], 1, "evict-slow-store-scheduler").operators
