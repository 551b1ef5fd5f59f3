"""The order in which a region is checked, and the limits that hold operators back."""

from __future__ import annotations

from ticdc_lab.pd_core.checkers import check_joint_state, check_region, check_split
from ticdc_lab.pd_core.cluster import Cluster, cluster_of
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.merge_checker import Neighbours, SplitSizes, check_merge
from ticdc_lab.pd_core.operators import Kind, LeaveJoint, Priority, PromoteLearner, SplitRegion
from ticdc_lab.pd_core.regions import DEMOTING, INCOMING, LEARNER, Peer, Region
from ticdc_lab.pd_core.rules import ANY_VOTER, Rule
from ticdc_lab.pd_core.stores import Store


def cluster(*rules: Rule, **settings: object) -> Cluster:
    """Four stores."""
    return cluster_of(Config(joint_consensus=False, **settings), [Store(i) for i in range(1, 5)], rules)


def region(*stores: int, id_: int = 1, keys: tuple[str, str] = ("", ""), size: float = 96) -> Region:
    """A region, led by its first store."""
    peers = tuple(Peer(10 * id_ + i, s) for i, s in enumerate(stores))
    return Region(id_, peers, stores[0], size, start_key=keys[0], end_key=keys[1])


def test_a_joint_state_is_finished_before_anything_else() -> None:
    """Also where a peer is missing."""
    half = Region(1, (Peer(1, 1), Peer(2, 2, DEMOTING), Peer(3, 3, INCOMING)), 1)
    told = check_region(cluster(max_replicas=4), half)
    assert told.operators == check_joint_state(cluster(), half).operators
    assert told.operators[0].steps == (LeaveJoint((3,), (2,)),) and told.operators[0].priority == Priority.HIGH


def test_a_region_that_crosses_the_border_of_a_rule_is_split_there() -> None:
    """It fits no rule before; each part does after."""
    rules = (Rule(ANY_VOTER, 3), Rule(ANY_VOTER, 1, start_key="m", end_key="p", id="extra"))
    told = check_region(cluster(*rules), region(1, 2, 3))
    assert told.operators[0].steps == (SplitRegion("usekey", (b"m", b"p")),)
    assert told.operators[0].kind == Kind.SPLIT
    assert check_split(cluster(*rules), region(1, 2, 3, keys=("m", "p"))).operators == ()
    extra = check_region(cluster(*rules), region(1, 2, 3, keys=("n", "o")))
    assert extra.operators[0].desc == "add-rule-peer"
    assert check_region(cluster(*rules), region(1, 2, 3, keys=("p", ""))).operators == ()


def test_without_rules_a_learner_is_promoted_and_then_replicas_are_checked() -> None:
    """A pending learner waits."""
    half = Region(1, (Peer(1, 1), Peer(2, 2), Peer(3, 3, LEARNER)), 1)
    told = check_region(cluster(placement_rules=False), half)
    assert told.operators[0].steps == (PromoteLearner(3),)
    assert check_region(cluster(placement_rules=False), half._replace(pending=frozenset({3}))).operators == ()


def test_a_repair_waits_for_its_limit_and_keeps_its_reasons() -> None:
    """The limit is named; an orphan's removal is no replica operator and waits all the same, as PD asks before."""
    missing = region(1, 2)
    free, held = (check_region(cluster(), missing, running={Kind.REPLICA: n}) for n in (63, 64))
    assert free.operator is not None and held.operator is None
    assert held.limit == "replica-schedule-limit 64" and held.rejected == free.rejected
    free, held = (check_region(cluster(), region(1, 2, 3, 4), running={Kind.REPLICA: n}) for n in (63, 64))
    assert free.operators[0].desc == "remove-orphan-peer" and held.operators == ()


def test_only_a_region_that_needs_nothing_is_merged() -> None:
    """Repair first; then the merge, while its limit lets it."""
    small, beside = region(1, 2, 3, id_=2, keys=("a", "b"), size=1), region(1, 2, 3, id_=3, keys=("b", ""), size=5)
    told = check_region(cluster(), small, Neighbours(None, beside))
    assert told.because == "merge: region 2 to 3" and len(told.operators) == 2
    held = check_region(cluster(), small, Neighbours(None, beside), running={Kind.MERGE: 8})
    assert held.limit == "merge-schedule-limit 8"
    sick = small._replace(peers=small.peers[:2])
    assert check_region(cluster(), sick, Neighbours(None, beside)).operators[0].desc == "add-rule-peer"


def test_no_merge_makes_what_would_be_split_again() -> None:
    """Too large a neighbour, or a rest of at most max-merge-region-size, by size or by keys."""
    small = region(1, 2, 3, id_=2, keys=("a", "b"), size=20)
    for size, why in ((600, "too large"), (180, "by its size"), (96, "")):
        beside = region(1, 2, 3, id_=3, keys=("b", ""), size=size)
        told = check_merge(cluster(), small, Neighbours(None, beside))
        assert (told.operators == ()) == bool(why) and why in told.because
    beside = region(1, 2, 3, id_=3, keys=("b", ""), size=1)._replace(keys=90)
    sizes = SplitSizes(max_keys=100, split_keys=80)
    told = check_merge(
        cluster(max_merge_region_keys=50), small._replace(keys=20), Neighbours(None, beside), sizes=sizes
    )
    assert "by its keys" in told.because
