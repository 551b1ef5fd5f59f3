"""How long until done, at best."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from worlds import of_regions

from ticdc_lab.pd_core.cluster import Cluster, cluster_of
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.course import out_of_joint_state
from ticdc_lab.pd_core.forecast import Bundle, Forecast, forecast, in_words, shared
from ticdc_lab.pd_core.limits import PerMinute
from ticdc_lab.pd_core.regions import (
    DEMOTING,
    INCOMING,
    LEARNER,
    VOTER,
    Peer,
    Region,
    RegionColumns,
    region_at,
)
from ticdc_lab.pd_core.rules import ANY_VOTER, AS_LEARNER, Constraint, Rule
from ticdc_lab.pd_core.stores import GIB, REMOVING, SERVING, Store, labelled


def regions_on(*stores: int, n: int = 300, size: float = 96) -> RegionColumns:
    """Regions with a peer on each of some stores."""
    return of_regions([Region(i, tuple(Peer(10 * i + s, s) for s in stores), stores[0], size) for i in range(1, n + 1)])


def cluster(*, size: float = 28_800, **of_first: float | str) -> Cluster:
    """Five stores with 100 GiB free and as much on each; the first is as reported."""
    stores = [Store(i, available=100 * GIB, region_size=size) for i in range(1, 6)]
    return cluster_of(Config(), [stores[0]._replace(**of_first), *stores[1:]])


PAIRS = [(2, 3), (4, 5), (2, 4), (3, 5), (2, 5), (3, 4)]


def around(first: int, n: int = 300, size: float = 96, **more: object) -> RegionColumns:
    """Regions with a peer on one store, and the others on all pairs of the other four."""
    held = [(first, *PAIRS[i % 6]) for i in range(n)]
    return of_regions([
        Region(i, tuple(Peer(10 * i + s, s) for s in some), some[1], size)._replace(**more)  # type: ignore[arg-type]
        for i, some in enumerate(held, 1)
    ])  # fmt: skip


@pytest.mark.parametrize(("size", "seconds"), [(96, 75), (10, 15), (1, 0)])
def test_a_leaving_store_is_bound_by_the_limits_of_the_others(size: float, seconds: float) -> None:
    """300 peers into four stores at 60 a minute each: 75 s (the real PD took 84); small regions a fifth of it."""
    limits = dict.fromkeys(range(2, 6), PerMinute(60, 60))
    found = forecast(cluster(state=REMOVING), around(1, size=size), limits)[0]
    assert found[:4] == ("store 1 leaves", 300, 0, seconds)
    assert found.held_by.startswith("add-peer limits of" if seconds else "no store limit counts them")


def test_peers_that_fit_on_few_stores_wait_for_these() -> None:
    """All regions on three of five stores: two are left, and the other limits help no operator."""
    (found,) = forecast(cluster(state=REMOVING), regions_on(1, 2, 3), dict.fromkeys(range(2, 6), PerMinute(60, 60)))
    assert (found.at_best_s, found.held_by) == (150, "add-peer limits of stores 4, 5")
    bundles = [Bundle(30_000, frozenset({4})), Bundle(10_000, frozenset({4, 5})), Bundle(1_000, frozenset({6}))]
    at_store_4, at_store_5 = (30, "add-peer limit of store 4"), (1, "add-peer limit of store 5")
    times = shared(bundles, {4: PerMinute(60), 5: PerMinute(600)})
    assert times == [at_store_4, at_store_5, (4, "add-peer limit of store 6")], "store 4 is busy, so store 5 takes all"
    assert [s for s, _ in shared(bundles, {4: PerMinute(0)})] == [0, 0, 4], "a limit of 0 is none"
    assert shared([Bundle(0, frozenset({4})), bundles[0]], {})[0][0] == 0, "what no limit counts waits for none"


def test_stores_that_leave_together_share_the_limits_of_the_others() -> None:
    """300 peers of store 1 and 300 of store 2 go to stores 4 to 6: twice as long as one of them, for both lines.

    A store that is silent and is waited for begins later: it shares nothing.
    """
    five = cluster(state=REMOVING)
    stores = [*five.stores.values(), Store(6, available=100 * GIB, region_size=28_800)]
    (alone,) = forecast(five._replace(stores={s.id: s for s in stores}), regions_on(1, 2, 3))
    leaving = {s.id: s._replace(state=REMOVING) if s.id == 2 else s for s in stores}
    one, other = forecast(five._replace(stores=leaving), regions_on(1, 2, 3))
    assert (one.what, other.what) == ("store 1 leaves", "store 2 leaves")
    assert one.at_best_s == other.at_best_s == 2 * alone.at_best_s == 800
    silent = {s.id: s._replace(heartbeat_age_s=100.0) if s.id == 2 else s for s in stores}
    only_silent = silent | {1: silent[1]._replace(state=SERVING)}
    (by_itself,) = forecast(five._replace(stores=only_silent), regions_on(1, 2, 3))
    lines = forecast(five._replace(stores=silent), regions_on(1, 2, 3))
    assert [(f.at_best_s, f.waits_s) for f in lines] == [(400, 0), (by_itself.at_best_s, 1700)]


@pytest.mark.parametrize(
    ("age_s", "what", "waits_s"), [(100.0, "store 1 is silent", 1700.0), (1800.0, "store 1 is down", 0.0)]
)
def test_a_silent_store_is_waited_for_until_it_is_down(age_s: float, what: str, waits_s: float) -> None:
    """Thirty minutes from its last heartbeat on its peers are replaced."""
    (found,) = forecast(cluster(heartbeat_age_s=age_s), regions_on(1, 2, 3))
    assert (found.what, found.waits_s, found.peers) == (what, waits_s, 300)
    assert not forecast(cluster(heartbeat_age_s=10), regions_on(1, 2, 3))


def test_missing_peers_are_made_everywhere() -> None:
    """Two of three replicas: one peer a region, 15 a minute on each of the three stores that have none."""
    (found,) = forecast(cluster(), regions_on(1, 2))
    assert (found.what, found.peers, found.at_best_s) == ("missing peers", 300, 400)


def test_each_rule_and_engine_has_its_own_time() -> None:
    """Two learners of TiFlash wait for the one TiFlash store, no matter what TiKV's limits; a range without misses
    nothing.
    """
    stores = [Store(i, available=100 * GIB) for i in range(1, 6)]
    stores.append(Store(6, labels=labelled({"engine": "tiflash"}), available=100 * GIB))
    flash = Rule(AS_LEARNER, 1, (Constraint("engine", "in", ("tiflash",)),), id="t", group="tiflash", start_key="2")
    held = tuple(Peer(10 + s, s) for s in (1, 2, 3))
    regions = of_regions([
        Region(1, held, 1, end_key="1"), Region(2, held, 1, start_key="2", end_key="3"),
        Region(3, held, 1, start_key="3"),
    ])  # fmt: skip
    rules = (Rule(ANY_VOTER, 3), flash)
    found = forecast(cluster_of(Config(), stores, rules), regions, {6: PerMinute(30, 30)})
    assert found == (Forecast("missing peers of rule tiflash/t", 2, 0, 4, "add-peer limit of store 6"),)


def test_stores_that_no_other_of_their_zone_replaces_are_never_empty() -> None:
    """Isolation by zone, and both stores of a zone leave: each store reports it, with what refused the others."""
    config = Config(location_labels=("zone",), isolation_level="zone")
    stores = [Store(i, labels=labelled({"zone": z}), available=100 * GIB) for i, z in enumerate("aabbcc", 1)]
    stores[4:] = [s._replace(state=REMOVING) for s in stores[4:]]
    regions = of_regions([Region(n, tuple(Peer(10 * n + s, s) for s in (1, 3, 5 + n % 2)), 1) for n in range(1, 9)])
    found = forecast(cluster_of(config, stores), regions)
    assert [(f.what, f.peers, f.stay, f.at_best_s) for f in found] == [
        ("store 5 leaves", 4, 4, math.inf), ("store 6 leaves", 4, 4, math.inf),
    ]  # fmt: skip
    assert "never: no store may take a peer (stores 2, 4: isolation-level zone" in in_words(found)[0]


def test_regions_without_a_leader_stay_and_the_others_go() -> None:
    """Both numbers are reported."""
    told = around(1, n=12)
    leader = told.leader.copy()
    leader[:2] = -1
    found = forecast(cluster(state=REMOVING), told._replace(leader=leader))[0]
    assert (found.peers, found.never) == (12, (("the region has no leader", 2),))
    assert in_words([found])[0].startswith("store 1 leaves: never all: the region has no leader (2 of 12 peers); the")


@pytest.mark.parametrize("rules", [True, False])
@pytest.mark.parametrize("replica_limit", [64, 0])
def test_a_joint_state_is_left_before_anything_is_forecast(rules: bool, replica_limit: int) -> None:
    """The first checker leaves it, no matter what the limits, and the forecast continues from there."""
    config = Config(placement_rules=rules, replica_schedule_limit=replica_limit)
    held = [Peer(1, 1), Peer(2, 2), Peer(3, 3, INCOMING), Peer(4, 4, DEMOTING)]
    regions = of_regions([Region(1, tuple(held), 2), Region(2, tuple(p._replace(id=p.id + 4) for p in held[:3]), 2)])
    staying, leaving = (cluster(state=s)._replace(config=config) for s in (SERVING, REMOVING))
    assert not [f for f in forecast(staying, regions) if "joint" in str(f) or (replica_limit and f.never)]
    (found,) = [f for f in forecast(leaving, regions) if f.what == "store 1 leaves"]
    assert found.never == ((("replica-schedule-limit is 0", 2),) if not replica_limit else ()), found
    course = [out_of_joint_state(staying, region_at(regions, i)) for i in range(2)]
    assert [[p.role for p in r.peers] for r in course] == [[VOTER] * 3 + [LEARNER], [VOTER] * 3]


@pytest.mark.parametrize("rules", [True, False])
def test_regions_in_a_joint_state_are_balanced_once_they_left_it(rules: bool) -> None:
    """A new, empty store: what moves there does not wait without end."""
    held = [(2, 3, 4), (3, 4, 5), (4, 5, 2), (5, 2, 3)] * 75
    regions = of_regions([
        Region(i, tuple(Peer(10 * i + s, s, INCOMING if s == some[1] else VOTER) for s in some), some[0])
        for i, some in enumerate(held)
    ])  # fmt: skip
    empty = cluster(region_size=0.0)
    (found,) = forecast(empty._replace(config=Config(placement_rules=rules)), regions)
    assert found.what == "balance of regions" and not found.never and 200 <= found.peers <= 240


@pytest.mark.parametrize(("field", "word"), [
    ("enable_replace_offline_replica", "enable-replace-offline-replica is false"),
    ("replica_schedule_limit", "replica-schedule-limit is 0"),
])  # fmt: skip
def test_what_a_setting_forbids_is_never_done(field: str, word: str) -> None:
    """No forecast against the checkers' answer."""
    config = Config(placement_rules=False, **{field: 0 if "limit" in field else False})  # type: ignore[arg-type]
    found = forecast(cluster(state=REMOVING)._replace(config=config), around(1, n=12))[0]
    assert found.never == ((word, 12),) and math.isinf(found.at_best_s)
    assert not forecast(cluster(state=REMOVING)._replace(config=Config(halt_scheduling=True)), around(1, n=12))


@pytest.mark.parametrize("why", ["it is empty", "a peer is down", "the region is hot"])
def test_regions_that_balance_leaves_alone_are_never_balanced(why: str) -> None:
    """A store with twice the data keeps it, and the reason is there."""
    regions = regions_on(1, 2, 3, n=120, size=1 if "empty" in why else 96)
    regions = regions._replace(hot=frozenset(range(1, 121)) if "hot" in why else frozenset())
    regions = regions._replace(down=(regions.peers == 2) if "down" in why else regions.down)
    uneven = cluster(size=20_000, region_size=40_000.0)._replace(region_count=120)
    (found,) = [f for f in forecast(uneven, regions) if f.what == "balance of regions"]
    assert found.never[0][0] == why and math.isinf(found.at_best_s)


def test_balance_is_forecast_of_what_repairs_leave() -> None:
    """Every region misses its second TiFlash peer; once made, both stores are alike, and nothing is never balanced."""
    flash = labelled({"engine": "tiflash"})
    ones = [Store(i, region_size=9_600, region_count=100) for i in (1, 2, 3)]
    stores = [*ones, Store(4, labels=flash, region_size=9_600, region_count=100), Store(5, labels=flash)]
    only = (Constraint("engine", "in", ("tiflash",)),)
    rules = (Rule(ANY_VOTER, 3, id="default"), Rule(AS_LEARNER, 2, only, id="flash", group="tiflash"))
    peers = (*(Peer(s, s) for s in (1, 2, 3)), Peer(4, 4, LEARNER))
    regions = of_regions([Region(i, peers, 1, 96.0) for i in range(1, 101)])
    found = forecast(cluster_of(Config(), stores, rules)._replace(region_count=100), regions)
    assert [(f.what, f.peers, f.never) for f in found] == [("missing peers of rule tiflash/flash", 100, ())]


def test_a_store_that_is_down_takes_no_part_in_balance() -> None:
    """What it loses makes it no taker, and what it has no giver: two stores that are alike are even."""
    stores = [Store(i, region_size=28_800.0, region_count=300) for i in (1, 2, 3)]
    gone = stores[2]._replace(heartbeat_age_s=1e6)
    found = forecast(cluster_of(Config(), [*stores[:2], gone])._replace(region_count=300), regions_on(1, 2, 3))
    assert [f.what for f in found] == ["store 3 is down"]


def test_regions_without_a_leader_are_not_said_to_break_rules() -> None:
    """They fit their rules; no one can do anything with them."""
    told = regions_on(1, 2, 3, n=4)
    (found,) = forecast(cluster(), told._replace(leader=np.full(4, -1, told.leader.dtype)))
    assert in_words([found]) == ["regions without a leader: never: the region has no leader (4 regions)"]


def test_a_store_that_no_other_replaces_says_so() -> None:
    """The learner of the only TiFlash store stays: all others have a peer."""
    flash = labelled({"engine": "tiflash"})
    stores = [*(Store(i) for i in (1, 2, 3)), Store(4, labels=flash, state=REMOVING)]
    rules = (
        Rule(ANY_VOTER, 3, id="default"), Rule(AS_LEARNER, 1, (Constraint("engine", "in", ("tiflash",)),), id="flash"),
    )  # fmt: skip
    peers = (*(Peer(s, s) for s in (1, 2, 3)), Peer(4, 4, LEARNER))
    (found,) = forecast(cluster_of(Config(), stores, rules), of_regions([Region(1, peers, 1, 96.0)]))
    assert "never: no store may take a peer (every store has a peer of the region)" in in_words([found])[0]


def test_more_sets_of_stores_than_can_be_played_are_put_together() -> None:
    """Regions on all triples of twenty stores: those like a target may take the peer too."""
    triples = list(combinations(range(2, 20), 2))
    regions = of_regions(
        [Region(i, tuple(Peer(10 * i + s, s) for s in (1, *t)), t[0]) for i, t in enumerate(triples * 2, 1)]
    )
    stores = [Store(i, available=100 * GIB, state=REMOVING if i == 1 else SERVING) for i in range(1, 21)]
    found = forecast(cluster_of(Config(), stores), of_regions([region_at(regions, i) for i in range(300)]))[0]
    assert (found.what, found.peers, found.never) == ("store 1 leaves", 300, ())
    assert 300 / 19 / 15 * 60 <= found.at_best_s <= 300 / 15 / 15 * 60


def test_nobody_to_take_peers_is_never() -> None:
    """The only store left over is leaving too."""
    both = cluster_of(Config(), [Store(i, state=REMOVING) for i in (1, 2)])
    found = forecast(both, regions_on(1, n=2))
    assert all(f.at_best_s == math.inf for f in found)
    assert in_words(found)[0].startswith("store 1 leaves: never: no store may take a peer (store 2: removing")


def test_balance_waits_for_the_store_that_gets_most() -> None:
    """A new store gets a fifth of the data, at its own limit; the others give as much, at theirs, but the tolerance."""
    regions = of_regions([Region(i, tuple(Peer(10 * i + s, s) for s in some), some[0])
                          for i, some in enumerate([(2, 3, 4), (3, 4, 5), (4, 5, 2), (5, 2, 3)] * 75)])  # fmt: skip
    (found,) = forecast(cluster(region_size=0.0), regions)
    assert (found.what, found.held_by) == ("balance of regions", "add-peer limit 15 of store 1")
    assert 225 <= found.peers <= 240 and 1 < found.at_best_s / (found.peers / 15 * 60) < 1.1  # the last ones wait
    limits = {1: PerMinute(add=10_000), 2: PerMinute(remove=1)}
    (found,) = forecast(cluster(region_size=0.0), regions, limits)
    assert found.held_by == "remove-peer limit 1 of store 2" and 55 * 60 <= found.at_best_s <= 60 * 60
    assert in_words([found])[0].endswith(" min at best (remove-peer limit 1 of store 2)")


def test_a_weight_of_two_keeps_twice_as_much() -> None:
    """A store of weight 2 with twice the data is balanced."""
    assert forecast(cluster(region_weight=2.0, region_size=57_600.0), regions_on(1, 2, 3)) == ()


@pytest.mark.parametrize(
    ("of_first", "config", "seconds"),
    [
        ({"state": REMOVING}, Config(), 60),
        ({"heartbeat_age_s": 1801.0}, Config(), 12),
        ({"heartbeat_age_s": 1801.0}, Config(removals_of_down_are_small=False), 60),
    ],
    ids=["it leaves", "it is down", "it is down, before v4.0.16, v5.0.6, v5.1.2 and v5.3"],
)
def test_the_store_that_peers_go_from_has_a_limit_too(
    of_first: dict[str, float | str], config: Config, seconds: float
) -> None:
    """300 peers at 300 a minute; one that is removed from a store that is down costs as a small one (tikv/pd#4097)."""
    told = cluster(**of_first)._replace(config=config)  # type: ignore[arg-type]
    limits = dict.fromkeys(range(2, 6), PerMinute(6000, 6000)) | {1: PerMinute(300, 300)}
    found = forecast(told, around(1), limits)[0]
    assert (found.at_best_s, found.held_by) == (seconds, "remove-peer limit of store 1")


def test_peers_too_many_go_as_fast_as_their_stores_let_them() -> None:
    """One of four peers of each region is an orphan; which one PD removes is known, and that store's limit counts."""
    found = {f.what: f for f in forecast(cluster(), regions_on(1, 2, 3, 4), dict.fromkeys(range(1, 6), PerMinute()))}
    assert found["peers too many"].peers == 300 and found["peers too many"].held_by.startswith("remove-peer limit")


def test_windows_of_snapshots_are_no_limits_of_zero() -> None:
    """With store-limit-version v2 it is unknown how fast the disks are."""
    told = cluster(state=REMOVING)._replace(config=Config(store_limit_version="v2"))
    found = forecast(told, around(1))[0]
    assert "windows of snapshots" in found.held_by and "limit 0" not in in_words([found])[0]


def test_regions_that_are_never_drawn_are_not_balanced() -> None:
    """PD draws regions that a store leads only where it follows none that may move: here no other store takes those."""
    sizes = {1: 4_000, 2: 9_600, 3: 19_200, 4: 9_600}
    stores = [
        Store(i, available=100 * GIB, region_size=n, labels=labelled({"zone": f"z{i % 2}"}))
        for i, n in sizes.items()
    ]  # fmt: skip
    stores[0] = stores[0]._replace(state=REMOVING)
    told = cluster_of(Config(location_labels=("zone",), isolation_level="zone"), stores)

    def balance(regions: list[Region]) -> Forecast:
        return next(f for f in forecast(told, of_regions(regions)) if f.what == "balance of regions")

    led = [Region(i, tuple(Peer(10 * i + s, s) for s in (3, 1, 2)), 3) for i in range(1, 101)]
    followed = [Region(i, tuple(Peer(10 * i + s, s) for s in (2, 3, 4)), 2) for i in range(101, 201)]
    assert not balance(led).never
    assert balance([*led, *followed]).never[0][0] == "no other store may take it by its rules or places"
