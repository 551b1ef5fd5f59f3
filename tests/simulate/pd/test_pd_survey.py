"""What PD would do now: regions are divided on columns, and the checkers agree with the division."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import of_regions

from ticdc_lab.pd_core.checkers import check_region
from ticdc_lab.pd_core.cluster import Cluster, borders_within, cluster_of, fit_of
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.regions import INCOMING, LEARNER, VOTER, Peer, Region, RegionColumns, region_at
from ticdc_lab.pd_core.rule_checker import may_be_better
from ticdc_lab.pd_core.rules import Constraint, Rule
from ticdc_lab.pd_core.stores import GIB, NEVER_S, REMOVING, SERVING, Store, labelled
from ticdc_lab.pd_core.survey import FITS, SMALL, kinds, neighbours, survey, triage
from ticdc_lab.pd_core.why import Opinion, explain, rows, why_no_operator

KEYS = ["", *"bcdefgh", ""]
RULES = (
    (),
    (Rule("voter", 3, (), ("zone",), "zone"),),
    (Rule("voter", 2, (), ("zone",)), Rule("learner", 1, (Constraint("engine", "in", ("tiflash",)),))),
    (Rule("voter", 3, end_key="d"), Rule("voter", 2, start_key="d")),
    (Rule("voter", 2, (), ("zone", "host")), Rule("voter", 1, (), ("host",))),
    (Rule("leader", 1, (), ("host",)), Rule("follower", 2, (), ("zone", "host"), "host")),
)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Cluster, RegionColumns]:
    """Six stores in up to three zones, some in trouble, and eight neighbouring regions."""
    stores = []
    for i in range(1, 7):
        host = draw(st.sampled_from(["x", "x", "y", f"own{i}", ""]))
        labels = {"zone": draw(st.sampled_from("abc"))} | ({"host": host} if host else {})
        labels |= {"engine": "tiflash"} if i == 6 else {}
        stores.append(Store(
            i, state=draw(st.sampled_from([SERVING, SERVING, SERVING, REMOVING])), labels=labelled(labels),
            heartbeat_age_s=draw(st.sampled_from([0.0, 0.0, 30.0, NEVER_S])), available=90 * GIB, used=10 * GIB,
            region_size=draw(st.integers(0, 20)) * 96, leader_count=draw(st.integers(0, 30)),
        ))  # fmt: skip
    regions = []
    for n in range(8):
        held = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4, unique=True))
        roles = [draw(st.sampled_from([VOTER] * 6 + [LEARNER, INCOMING])) for _ in held]
        peers = tuple(Peer(10 * n + k, s, r) for k, (s, r) in enumerate(zip(held, roles, strict=True), 1))
        down = frozenset(s for s in held[1:] if draw(st.integers(0, 5)) == 0)
        pending = frozenset(s for s in held[1:] if draw(st.integers(0, 5)) == 0)
        size = draw(st.sampled_from([1, 96]))
        leader = draw(st.sampled_from([held[0], held[0], 0]))
        regions.append(Region(n + 1, peers, leader, size, size * 10_000, down, pending, KEYS[n], KEYS[n + 1]))
    labels = draw(st.sampled_from([(), ("zone",)]))
    config = Config(placement_rules=draw(st.booleans()), joint_consensus=draw(st.booleans()), location_labels=labels)
    return cluster_of(config, stores, draw(st.sampled_from(RULES))), of_regions(regions)


@settings(max_examples=100, deadline=None)
@given(clusters())
def test_what_is_as_it_should_be_gets_no_operator(found: tuple[Cluster, RegionColumns]) -> None:
    """Every region is in one group; the checkers leave every region alone that the columns call as it should be."""
    cluster, regions = found
    groups = triage(cluster, regions)
    assert sorted(p for g in groups for p in g.places) == list(range(8))
    for place in [int(p) for g in groups if g.name == FITS for p in g.places]:
        told = check_region(cluster, region_at(regions, place), neighbours(regions, place))
        assert not told.operators, told


@settings(max_examples=25, deadline=None)
@given(clusters())
def test_regions_of_one_kind_are_alike(found: tuple[Cluster, RegionColumns]) -> None:
    """Three peers on every three of six stores: what holds for the example of a kind holds for each of its regions."""
    cluster, _ = found
    regions = [
        Region(n, tuple(Peer(10 * n + k, s) for k, s in enumerate(held)), held[0])
        for n, held in enumerate(permutations(range(1, 7), 3), 1)
    ]
    told = kinds(cluster, of_regions(regions))
    answers = []
    for region in regions:
        fit = fit_of(cluster, region)
        answers.append((bool(borders_within(cluster, region)), fit.satisfied, may_be_better(cluster, region, fit)))
    assert answers == [answers[told.example[kind]] for kind in told.of]


def test_stores_that_differ_in_nothing_make_few_kinds() -> None:
    """Twelve stores of their own hosts in three zones are three classes; a host that two share is one of its own."""
    labels = [{"zone": "abc"[i % 3], "host": f"h{i}"} for i in range(12)]
    rules = (Rule("voter", 2, (), ("zone", "host")), Rule("voter", 1))
    regions = of_regions(
        [Region(n, (Peer(1, a), Peer(2, b)), a) for n, (a, b) in enumerate(permutations(range(12), 2))]
    )
    stores = [Store(i, labels=labelled(told)) for i, told in enumerate(labels)]
    assert len(kinds(cluster_of(Config(), stores, rules), regions).example) == 9
    stores[3] = stores[3]._replace(labels=labelled({"zone": "a", "host": "h0"}))
    assert len(kinds(cluster_of(Config(), stores, rules), regions).example) == 16


def one_region_each() -> dict[str, Region]:
    """A region for every finding, among five stores: 4 leaves, 5 is down, the others are in zones a, a, b."""
    peers = {s: Peer(s, s) for s in range(1, 6)}
    healthy = Region(1, (peers[1], peers[3], peers[2]), 1)
    return {
        "without a leader": healthy._replace(leader=0),
        "in a joint state": healthy._replace(peers=(peers[1], peers[3], Peer(2, 2, INCOMING))),
        "with a peer on an unknown store": healthy._replace(peers=(peers[1], peers[3], Peer(9, 9))),
        "with a peer on a store that is down": healthy._replace(
            peers=(peers[1], peers[3], peers[5]), down=frozenset({5})
        ),
        "with a peer on a store that leaves": healthy._replace(peers=(peers[1], peers[3], peers[4])),
        "with peers that do not fit the rules": healthy._replace(peers=(peers[1], peers[3])),
        "with a peer reported down": healthy._replace(down=frozenset({3})),
        "that could be better placed": healthy._replace(peers=(peers[1], peers[2], Peer(6, 6))),
        SMALL: healthy._replace(size=1, keys=1),
        FITS: healthy,
    }


def test_every_finding_has_its_group() -> None:
    """Each region is where the checker that looks at it first would find it."""
    zones = {1: "a", 2: "a", 3: "b", 4: "c", 5: "c", 6: "a"}
    stores = [Store(i, labels=labelled({"zone": z}), available=90 * GIB) for i, z in zones.items()]
    stores[3], stores[4] = stores[3]._replace(state=REMOVING), stores[4]._replace(heartbeat_age_s=NEVER_S)
    cluster = cluster_of(Config(location_labels=("zone",)), stores)
    found = one_region_each()
    too_many = found[FITS]._replace(peers=(Peer(1, 1), Peer(2, 2), Peer(3, 3), Peer(6, 6)))
    groups = triage(cluster, of_regions([*found.values(), too_many]))
    places = {name: [i] for i, name in enumerate(found)}
    places["with peers that do not fit the rules"].append(len(found))
    assert {g.name: [int(p) for p in g.places] for g in groups} == places


@settings(max_examples=30, deadline=None)
@given(clusters())
def test_a_survey_counts_every_region_once_and_says_why(found: tuple[Cluster, RegionColumns]) -> None:
    """The outcomes of a group add up to it, and each without an operator has a reason."""
    cluster, regions = found
    told = survey(cluster, regions)
    sizes = {o.group: o.regions for o in told.outcomes}
    counted: Counter[str] = Counter()
    for o in told.outcomes:
        counted[o.group] += o.here if o.asked else o.regions
        assert o.does or o.why
    assert counted == sizes and sum(sizes.values()) == 8
    assert [a.asked for a in told.rounds] == ["balance-leader", "balance-region"]


def test_where_nothing_moves_the_first_sentence_says_what_it_waits_for() -> None:
    """A limit, an operator that runs, or no store for it; only with nothing of these is there no work."""
    stores = [Store(i, available=90 * GIB) for i in (1, 2, 3, 4)]
    stores[3] = stores[3]._replace(heartbeat_age_s=NEVER_S)
    lost = Region(1, (Peer(1, 1), Peer(2, 2), Peer(3, 4)), 1, down=frozenset({4}))
    told = survey(cluster_of(Config(replica_schedule_limit=0), stores), of_regions([lost])).sentence
    assert told == "nothing: about 1 region waits for replica-schedule-limit 0"
    none_left = survey(cluster_of(Config(), [stores[0], stores[1], stores[3]]), of_regions([lost])).sentence
    assert none_left.startswith("nothing: no operator for 1 region with a peer on a store that is down: ")
    well = Region(1, (Peer(1, 1), Peer(2, 2), Peer(3, 3)), 1)
    assert survey(cluster_of(Config(), stores[:3]), of_regions([well])).sentence == (
        "nothing: no checker finds work and no move pays"
    )


def test_a_region_without_a_leader_says_so_first() -> None:
    """Also without placement rules, and where no better place is there, which is the last that a checker notes."""
    stores = [Store(i, labels=labelled({"zone": z}), available=90 * GIB) for i, z in enumerate("abcc", 1)]
    region = Region(1, (Peer(1, 1), Peer(2, 2), Peer(3, 3)), 0)
    for rules in (True, False):
        config = Config(placement_rules=rules, location_labels=("zone",), isolation_level="zone")
        (found,) = survey(cluster_of(config, stores), of_regions([region])).outcomes
        assert (found.does, found.why) == ("", "the region has no leader"), rules


@settings(max_examples=30, deadline=None)
@given(clusters())
def test_nobody_stays_silent_about_a_region(found: tuple[Cluster, RegionColumns]) -> None:
    """Each answer has a sentence; there is a reason why nothing happens exactly where no action would follow."""
    cluster, regions = found
    for place in range(8):
        region, beside = region_at(regions, place), neighbours(regions, place)
        answers = explain(cluster, region, beside)
        assert all(a.explained.because and a.sentence.startswith(a.asked) for a in answers)
        acts = any(a.explained.operators for a in answers)
        assert (why_no_operator(cluster, region, beside) == "") == acts


def test_rows_name_the_filter_that_refused_each_candidate() -> None:
    """A region with a lost peer: every store is refused by a filter with a reason, or has a score."""
    stores = [Store(1), Store(2), Store(3, heartbeat_age_s=NEVER_S), Store(4, busy=True), Store(5, state=REMOVING)]
    region = Region(1, (Peer(1, 1), Peer(2, 2), Peer(3, 3)), 1, down=frozenset({3}))
    answers = {a.asked: a for a in explain(cluster_of(Config(), stores), region)}
    told = rows(answers["rule checker"])
    refused = {r["store"]: (r["test"], r["why"]) for r in told if r["outcome"] == "rejected"}
    assert refused[1] == ("excluded (target)", "the region has a peer there")
    assert refused[4] == ("state (target)", "busy: the store says that it is busy")
    assert refused[5] == ("state (target)", "removing: the store is being taken offline")
    assert set(refused) == {1, 2, 3, 4, 5}
    assert answers["patrol"].sentence == (
        "patrol: nothing: every best store is in temporary trouble: it is tried again soon"
    )


def test_a_leader_that_stays_tells_the_scores_that_were_nearest() -> None:
    """Leader counts 20 and 12: less than twice the tolerance of 5 apart."""
    stores = [Store(1, leader_count=20), Store(2, leader_count=12), Store(3, leader_count=19)]
    answers = {
        a.asked: a for a in explain(cluster_of(Config(), stores), Region(1, tuple(Peer(i, i) for i in (1, 2, 3)), 1))
    }
    leader = answers["balance-leader"]
    assert leader.explained.because == "no transfer pays: store 1 has 15.00, store 2 would have 17.00"
    assert next((r["value"], r["against"], r["outcome"]) for r in rows(leader)) == (15.0, 17.0, "no move pays")


def test_a_scheduler_that_is_off_says_which_limit_to_turn() -> None:
    """The limit is in the sentence and in a row."""
    config = Config(leader_schedule_limit=0, region_schedule_limit=0)
    region = Region(1, (Peer(1, 1),), 1)
    answers = {a.asked: a for a in explain(cluster_of(config, [Store(1), Store(2)]), region)}
    for asked, limit in (("balance-leader", "leader-schedule-limit 0"), ("balance-region", "region-schedule-limit 0")):
        assert limit in answers[asked].sentence
        assert rows(answers[asked])[-1]["why"] == limit


def test_a_merge_waits_for_its_neighbours() -> None:
    """Neighbours are those whose keys border; a small region merges into one of them."""
    regions = [Region(n, tuple(Peer(3 * n + i, i) for i in (1, 2, 3)), 1, 1, 10, start_key=KEYS[n - 1], end_key=KEYS[n])
               for n in (1, 2, 4)]  # fmt: skip
    c = of_regions(regions)
    assert [neighbours(c, i)[:2] for i in range(3)] == [(None, regions[1]), (regions[0], None), (None, None)]
    told = survey(cluster_of(Config(), [Store(i) for i in (1, 2, 3)]), c)
    assert [(o.does, o.why, o.here) for o in told.outcomes] == [
        ("merge-region", "", 2), ("", "next region: there is none; previous region: there is none", 1),
    ]  # fmt: skip
    assert isinstance(told.rounds[0], Opinion) and "merge-region for about 2 regions" in told.sentence


def test_stores_that_no_checker_chose_are_counted_by_their_reason() -> None:
    """Two regions have no peer: both free stores are refused, for one reason each; empty regions stay for theirs."""
    stores = [
        Store(1),
        Store(2),
        Store(3, state="removing"),
        Store(4, capacity=1000.0, available=1.0, region_count=100),
    ]
    regions = of_regions([Region(n, (Peer(10 * n, 1), Peer(10 * n + 1, 2)), 1, 1) for n in (1, 2)])
    told = survey(cluster_of(Config(), stores)._replace(region_count=200), regions)
    refused = {(n.who, n.why): n.times for n in told.not_chosen if n.as_what == "checker target"}
    assert refused == {("store 3", "removing: the store is being taken offline"): 2, ("store 4", "low on space"): 2}
    assert [(n.why, n.times) for n in told.not_chosen if n.who == "regions"] == [
        ("it is empty", 2), ("regions with peers that do not fit the rules", 2),
    ]  # fmt: skip


def test_each_store_that_a_round_leaves_alone_has_a_reason() -> None:
    """Empty regions are not drawn, so that no store is refused by a filter: the round's own reason is theirs."""
    stores = [Store(i, available=100 * GIB, region_size=300.0, region_count=300) for i in (1, 2, 3)]
    stores += [Store(i, available=100 * GIB) for i in (4, 5)]
    peers = [tuple(Peer(10 * i + s, s) for s in (1, 2, 3)) for i in range(1, 301)]
    regions = of_regions([Region(i, p, 1, 1.0) for i, p in enumerate(peers, 1)])
    found = survey(cluster_of(Config(), stores)._replace(region_count=300), regions)
    of_balance = [n for n in found.not_chosen if n.as_what == "balance-region"]
    assert [(n.who, n.why) for n in of_balance] == [("stores 1, 2, 3, 4, 5", "no move pays: every source was tried")]
