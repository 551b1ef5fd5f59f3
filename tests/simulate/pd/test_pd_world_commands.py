"""pd-ctl's words on a simulated cluster, what-if, and the tables of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from worlds import S, small

from ticdc_lab.pd_core.cluster import cluster_of
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.measures import LEADERS, MoveMade, moved_back, shares, uneven
from ticdc_lab.pd_core.operators import Kind
from ticdc_lab.pd_core.pd_ctl_json import from_pd_ctl
from ticdc_lab.pd_core.stores import REMOVING, Store, labelled
from ticdc_lab.simulate.pd.looking.recording import costs
from ticdc_lab.simulate.pd.world.changes import Grow, Pdctl, ReadFlow, StartStore, StopStore, Timed, UsePolicy
from ticdc_lab.simulate.pd.world.model import moment
from ticdc_lab.simulate.pd.world.pdctl import pdctl
from ticdc_lab.simulate.pd.world.pdctl_config import Refused
from ticdc_lab.simulate.pd.world.policy import NOTHING, Policy
from ticdc_lab.simulate.pd.world.run import Watch, future, side_by_side, simulate
from ticdc_lab.simulate.pd.world.start import Start, StoreStart, regions_of, spread_regions
from ticdc_lab.simulate.pd.world.world import World
from ticdc_lab.simulate.trace import TRACE


@pytest.fixture
def world() -> World:
    """Sixty regions on four stores, two seconds in."""
    there = World(small(60, 4), seed=1)
    there.run(2 * S)
    return there


def test_what_it_prints_is_a_cluster_for_explain(world: World, tmp_path: Path) -> None:
    """Stores, regions, settings and rules of a run are read as the ones of real pd-ctl: same roles,
    states and numbers.
    """
    StopStore(4).apply(world)
    world.run(40 * S)
    asked = {
        "stores": "store",
        "regions": "region",
        "config": "config show all",
        "rules": "config placement-rules show",
    }
    for name, words in asked.items():
        (tmp_path / name).write_text(json.dumps(pdctl(world, words)))
    there = from_pd_ctl(*(tmp_path / name for name in asked))
    here = world.cluster()
    assert there.cluster.config == here.config
    assert [(s.id, s.state, s.leader_count) for s in there.cluster.stores.values()] == [
        (s.id, s.state, s.leader_count) for s in here.stores.values()
    ]
    ages = [(there.cluster.stores[i].heartbeat_age_s, s.heartbeat_age_s) for i, s in here.stores.items()]
    assert ages[3][1] > 30 and all(abs(a - b) < 0.01 for a, b in ages)
    assert pdctl(world, "region 1")["peers"][0]["role_name"] == "Voter"


def test_words_may_begin_with_the_name_of_the_tool(world: World) -> None:
    """As one copies them from a terminal."""
    assert pdctl(world, "pd-ctl store limit 1 30") == "Success!"
    assert pdctl(world, "store limit")[1] == {"add-peer": 30.0, "remove-peer": 30.0}


def test_a_leader_is_transferred_by_hand(world: World) -> None:
    """``operator add transfer-leader`` takes a region and a store, and runs as admin, urgently."""
    assert pdctl(world, "operator add transfer-leader 2 4") == "Success!"
    [shown] = pdctl(world, "operator show admin")
    assert (shown["region_id"], shown["kind"], shown["brief"]) == (2, "admin,leader", "transfer leader: store 2 to 4")
    world.run(3 * S)
    assert pdctl(world, "region 2")["leader"]["store_id"] == 4
    assert pdctl(world, "operator check 2")["status"] == "success"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("store delete 9", "ErrStoreNotFound"),
        ("operator add transfer-leader 2 1", "cannot lead"),
        ("operator add transfer-leader 999 1", "region 999 not found"),
        ("config set leader-schedule-limit many", "limit many: expected a whole number"),
        ("config set leader-schedule-limit -3", "expected a number from 0 on"),
        ("config set max-store-down-time banana", "a duration such as 1h30m"),
        ("config set low-space-ratio 2", "from 0 to 1"),
        ("config set leader-schedule-policy weight", "expected count or size"),
        ("store limit all x", "expected a number"),
        ("store limit 1", "expected STORE or all"),
        ("store weight 1 -1 1", "leader weight -1"),
        ("store label 1 zone z1", "expected KEY=VALUE, found zone z1"),
        ("operator add", "no such command"),
        ("operator add shuffle 1", "operator add shuffle 1: no such command"),
        ("store limit 'all", "No closing quotation"),
        ("config set no-such-thing 1", "not found"),
        ("scheduler add no-such-scheduler", "not known"),
        ("scheduler remove evict-leader-scheduler", "ErrSchedulerNotFound"),
        ("region check no-such-state", "no such state"),
        ("frobnicate", "no such command"),
        ("store limit 1 30 sideways", "expected add-peer or remove-peer"),
    ],
)
def test_what_pd_refuses_is_refused(words: str, says: str, world: World) -> None:
    """With PD's error, or a sentence that shows what is wrong."""
    with pytest.raises(Refused, match=says):
        pdctl(world, words)


def test_the_third_of_three_stores_cannot_be_deleted() -> None:
    """ErrStoresNotEnough, in PD's words."""
    world = World(small(9, 3), seed=1)
    with pytest.raises(Refused, match=r"ErrStoresNotEnough: can not remove store 3 since .* 2 while need 3"):
        pdctl(world, "store delete 3")


def test_settings_limits_weights_and_labels_are_set(world: World) -> None:
    """What is set is shown by the same words."""
    pdctl(world, "config set leader-schedule-limit 8")
    pdctl(world, "config set max-store-down-time 1h30m")
    pdctl(world, "config set location-labels zone,host")
    shown = pdctl(world, "config show")
    assert (shown["leader-schedule-limit"], shown["max-store-down-time"]) == (8, 5400.0)
    assert pdctl(world, "config show replication")["location-labels"] == ("zone", "host")
    pdctl(world, "store limit all 30")
    pdctl(world, "store limit 2 7 add-peer")
    assert pdctl(world, "store limit")[2] == {"add-peer": 7.0, "remove-peer": 30.0}
    pdctl(world, "store weight 1 0.5 2")
    pdctl(world, "store label 1 zone=z1")
    told = pdctl(world, "store 1")
    assert told["status"]["region_weight"] == 2.0 and told["store"]["labels"] == [{"key": "zone", "value": "z1"}]


def test_placement_rules_are_saved_and_followed() -> None:
    """Two voters in z1 and one learner in z2, on four stores of two zones."""
    world = World(small(40, 4, limit=6000), seed=1)
    for store, zone in ((1, "z1"), (2, "z1"), (3, "z1"), (4, "z2")):
        pdctl(world, f"store label {store} zone={zone}")
    rules = [
        {"group_id": "pd", "id": zone, "role": role, "count": count,
         "label_constraints": [{"key": "zone", "op": "in", "values": [zone]}]}
        for zone, role, count in (("z1", "voter", 2), ("z2", "learner", 1))
    ]  # fmt: skip
    gone = {"group_id": "pd", "id": "default", "role": "voter", "count": 0}
    pdctl(world, f"config placement-rules save '{json.dumps([*rules, gone])}'")
    world.run(120 * S)
    regions = [world.regions.region(row) for row in world.regions.rows().tolist()]
    assert all(len(r.peers) == 3 and r.peer_on(4) is not None for r in regions)
    assert {p.role for r in regions for p in r.peers if p.store == 4} == {"learner"}
    for wrong in ('{"count": 1}', '{"group_id": "a", "id": "b", "role": "Voter", "count": 1}', '{"id": "a"}', "x"):
        with pytest.raises(Refused, match="config placement-rules save: "):
            pdctl(world, f"config placement-rules save '{wrong}'")


def test_rules_are_saved_as_pd_ctl_prints_them() -> None:
    """Keys in either case, nulls, several documents, and bundles, whose group brings its index and override."""
    world = World(small(10, 5), seed=1)
    one = {"group_id": "a", "id": "x", "role": "voter", "count": 2, "start_key": "74ab", "end_key": "74AC"}
    other = {"group_id": "b", "id": "y", "role": "learner", "count": 1, "end_key": None, "label_constraints": None}
    pdctl(world, f"config placement-rules save '{json.dumps([one])}\n{json.dumps(other)}'")
    assert [(r.group, r.start_key, r.end_key) for r in world.cluster().rules] == [
        ("a", "74AB", "74AC"), ("b", "", ""), ("pd", "", ""),
    ]  # fmt: skip
    bundle = {"group_id": "a", "group_index": 7, "group_override": True, "rules": [one | {"id": "z"}]}
    pdctl(world, f"config placement-rules save '{json.dumps([bundle])}'")
    assert [(r.group, r.id, r.group_index, r.group_override) for r in world.cluster().rules] == [
        ("b", "y", 0, False), ("pd", "default", 0, False), ("a", "x", 7, True), ("a", "z", 7, True),
    ]  # fmt: skip


@pytest.mark.parametrize("borders", [("A0", "D0"), ("a0", "d0")])
def test_a_rule_of_a_key_range_holds_for_the_regions_in_it(borders: tuple[str, str]) -> None:
    """However keys are written; those that are made, at the start and by splits, are compared with them as bytes."""
    world = World(small(32, 5), seed=1)
    rule = {"group_id": "a", "id": "x", "role": "learner", "count": 1, "start_key": borders[0], "end_key": borders[1]}
    pdctl(world, f"config placement-rules save '{json.dumps(rule)}'")
    pdctl(world, "operator add split-region 22")
    world.run(60 * S)
    regions = [world.regions.region(row) for row in world.regions.rows().tolist()]
    inside = {r.id for r in regions if r.start_key and b"\xa0" <= bytes.fromhex(r.start_key) < b"\xd0"}
    assert {r.id for r in regions if len(r.peers) == 4} == inside and len(inside) == 7 and len(regions) == 33


def test_a_rule_is_saved_beside_those_that_there_are() -> None:
    """One of the same name is replaced; the default rule follows the settings while it is as they describe."""
    world = World(small(10, 5), seed=1)
    leader = {"group_id": "near", "id": "lead", "role": "leader", "count": 1}
    pdctl(world, f"config placement-rules save '{json.dumps(leader)}'")
    shown = pdctl(world, "config placement-rules show")
    assert [(r["group_id"], r["id"], r["count"]) for r in shown] == [("near", "lead", 1), ("pd", "default", 3)]
    pdctl(world, "config set max-replicas 5")
    assert [r.replicas for r in world.cluster().rules] == [1, 5]
    mine = {"group_id": "pd", "id": "default", "role": "voter", "count": 4}
    pdctl(world, f"config placement-rules save '{json.dumps(mine)}'")
    with pytest.raises(Refused, match="not as it says"):
        pdctl(world, "config set max-replicas 3")
    assert [r.replicas for r in world.cluster().rules] == [1, 4]


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ([{"group_id": "pd", "id": "default", "role": "voter", "count": 0}], "needs at least one leader or voter"),
        ([{"group_id": "a", "id": str(i), "role": "leader", "count": 1} for i in (1, 2)], "multiple leader replicas"),
    ],
)
def test_rules_without_a_voter_or_with_two_leaders_are_refused(rules: list[dict[str, object]], why: str) -> None:
    """As PD refuses them; what was in force stays."""
    world = World(small(10, 4), seed=1)
    with pytest.raises(Refused, match=why):
        pdctl(world, f"config placement-rules save '{json.dumps(rules)}'")
    assert [r.replicas for r in world.cluster().rules] == [3]


def test_a_policy_is_changed_in_the_middle_of_a_run() -> None:
    """From then on peers stay where they are."""
    lazy = Policy("balance-region-scheduler", lambda seen: NOTHING, Kind.REGION)
    run = simulate(small(120, 4, on=(1, 2, 3), limit=60), 40 * S)
    other = run.again(20 * S, [UsePolicy(lazy)])
    late = [o for o in other.operators.to_pylist() if o["started_us"] > 20 * S]
    assert not [o for o in late if o["desc"] == "balance-region-scheduler"]
    assert any(o["started_us"] > 20 * S for o in run.operators.to_pylist())


def test_a_store_is_retired_and_taken_back(world: World) -> None:
    """Offline at once, unlimited removal meanwhile; cancel-delete brings it and its limit back."""
    pdctl(world, "store delete 4")
    assert pdctl(world, "store 4")["store"]["state_name"] == "Offline"
    assert [s["store"]["id"] for s in pdctl(world, "store check offline")] == [4]
    assert pdctl(world, "region check offline-peer")["count"] == 45
    pdctl(world, "store cancel-delete 4")
    assert pdctl(world, "store 4")["store"]["state_name"] == "Up"


def test_an_evicted_store_has_no_leaders_and_gets_none(world: World) -> None:
    """``scheduler add evict-leader-scheduler``; ``describe`` shows why nothing is done any more."""
    pdctl(world, "scheduler add evict-leader-scheduler 1")
    assert "evict-leader-scheduler-1" in pdctl(world, "scheduler show")
    world.run(20 * S)
    assert pdctl(world, "store 1")["status"]["leader_count"] == 0
    assert "no leader that could leave" in pdctl(world, "scheduler describe evict-leader-scheduler-1")["summary"]
    pdctl(world, "scheduler remove evict-leader-scheduler")
    world.run(60 * S)
    assert pdctl(world, "store 1")["status"]["leader_count"] > 0


def test_a_paused_scheduler_does_nothing() -> None:
    """Until it is resumed."""
    start = small(60, 4, on=(1, 2, 3))
    said = [Timed(0, Pdctl("scheduler pause all 3600")), Timed(30 * S, Pdctl("scheduler resume all"))]
    run = simulate(start, 60 * S, changes=said)
    assert min(o["started_us"] for o in run.operators.to_pylist()) >= 30 * S


def test_regions_are_told_by_state_size_and_neighbours(world: World) -> None:
    """``region check``, ``topsize``, ``sibling``, ``hist-size``, ``region store``."""
    assert pdctl(world, "region check miss-peer") == {"count": 0, "regions": []}
    assert pdctl(world, "region sibling 5")["count"] == 2
    assert pdctl(world, "region check hist-size") == [{"start": 90, "end": 99, "count": 60}]
    assert pdctl(world, "region store 1")["count"] == 45
    assert pdctl(world, "region topsize 3")["count"] == 3


def test_what_is_hot_is_shown_after_three_reports() -> None:
    """``hot read`` is empty at first, and names the regions after half a minute."""
    world = World(small(60, 4), 1, changes=[Timed(0, ReadFlow((1, 5), 16))])
    world.run(15 * S)
    assert pdctl(world, "hot read") == {"as_leader": []}
    world.run(45 * S)
    assert {p["region_id"] for p in pdctl(world, "hot read")["as_leader"]} == {1, 5}


def test_regions_are_split_and_merged_by_hand() -> None:
    """Keys stay whole; the count goes up and down again."""
    world = World(small(60, 4, size=40.0), seed=1)
    world.run(2 * S)
    pdctl(world, "operator add split-region 7 --policy=approximate")
    world.run(4 * S)
    assert world.regions.count == 61
    parts = [world.regions.region(row) for row in world.regions.in_key_order()]
    assert all(a.end_key == b.start_key for a, b in pairwise(parts))
    pdctl(world, "operator add merge-region 20 21")
    world.run(30 * S)
    assert world.regions.count == 60 and 20 not in world.regions.row_of


def test_a_region_that_grows_is_cut() -> None:
    """At 144 MiB, in halves; nothing is lost."""
    world = World(small(6, 3), 1, changes=[Timed(0, Grow(3, 40.0, 5 * S))])
    world.run(6 * S)
    assert world.regions.count > 6
    assert world.regions.total_mib == pytest.approx(6 * 96 + 4 * 50)


def test_two_futures_part_where_they_are_told_to() -> None:
    """The same to the moment of the change; then a higher store limit is sooner done, with the same data moved."""
    start = small(120, 4, on=(1, 2, 3), limit=60)
    slow = simulate(start, 240 * S)
    fast = slow.again(20 * S, ["store limit all 600"])
    before = [r for r in slow.stores.to_pylist() if r["time_us"] <= 20 * S]
    assert before == [r for r in fast.stores.to_pylist() if r["time_us"] <= 20 * S]
    a, b = future(slow, 20 * S), future(fast, 20 * S)
    assert a.peers_even_s is not None and b.peers_even_s is not None and b.peers_even_s < a.peers_even_s
    table = side_by_side({"slow": slow, "fast": fast}, 20 * S)
    assert table.column_names == ["what", "slow", "fast"] and "peers even after" in table["what"].to_pylist()


def test_a_run_is_the_same_again() -> None:
    """One seed, one run: tables and trace to the last row."""
    start = small(60, 4, on=(1, 2, 3))
    changes = [Timed(10 * S, StopStore(2)), Timed(20 * S, Pdctl("config set max-store-down-time 10s"))]
    one, other = (simulate(start, 60 * S, seed=7, changes=changes) for _ in range(2))
    assert one.trace.equals(other.trace) and one.operators.equals(other.operators) and one.stores.equals(other.stores)
    assert not one.operators.equals(simulate(start, 60 * S, seed=8, changes=changes).operators)


def test_a_run_holds_what_happened() -> None:
    """Samples a second, an operator a row, placements, reasons, the house's trace; for pictures decisions too."""
    stores = (*(StoreStart(i) for i in (1, 2, 3)), StoreStart(4, started=False))
    start = Start(stores=stores, regions=spread_regions(30, [1, 2, 3]))
    watch = Watch(placement_us=10 * S, pictured=True)
    run = simulate(start, 30 * S, changes=[Timed(5 * S, StartStore(4))], watch=watch)
    assert run.stores.num_rows == 3 * 31 + 25
    assert {o["to_store"] for o in run.operators.to_pylist() if o["desc"] == "balance-region-scheduler"} == {4}
    assert run.placements.num_rows == 30 * 4
    assert {"balance-region-scheduler", "checkers"} <= set(run.reasons["who"].to_pylist())
    assert run.trace.schema == TRACE
    last, samples = run.stores.to_pylist()[-1], run.recorder.samples
    assert last["store"] == 4 and last["peers"] == sum(4 in s for s in run.placements["stores"].to_pylist()[-30:])
    assert last["peers"] == int((samples[-1].placement.store == 4).sum()) > 0
    assert [s.measured for s in samples] == run.recorder.moments
    assert {"balance-region-scheduler", "checker"} <= {d.by for d in run.recorder.decisions}
    assert not simulate(start, 30 * S).recorder.samples


def test_thrash_counts_moves_that_are_taken_back() -> None:
    """One of three moves goes back to where it came from within a minute."""

    def move(region: int, a: int, b: int, at_s: int, *, leads: bool = False) -> MoveMade:
        return MoveMade(region, leads, a, b, at_s * S)

    assert moved_back([move(1, 1, 2, 0), move(1, 2, 1, 30), move(2, 1, 2, 31)]).thrash == pytest.approx(1 / 3)
    assert moved_back([move(1, 1, 2, 0), move(1, 2, 1, 90)]).back == 0
    assert moved_back([move(1, 1, 2, 0), move(1, 2, 1, 30, leads=True)]).back == 0


def test_even_is_a_share_by_weight() -> None:
    """Five percent and one more are close enough; weight 2 keeps twice as much; TiFlash is even by itself."""

    def held(counts: dict[int, int], **of_4: Any) -> dict[int, int]:
        stores = [Store(i, region_count=n) for i, n in counts.items()]
        return uneven(cluster_of(Config(), [s._replace(**of_4) if s.id == 4 else s for s in stores]))

    assert held({1: 106, 2: 94}) == {} and held({1: 107, 2: 93}) == {1: 107, 2: 93}
    assert held({1: 100, 2: 100, 4: 200}, region_weight=2.0) == {} != held({1: 100, 2: 100, 4: 200})
    assert held({1: 100, 2: 100, 4: 900}, labels=labelled({"engine": "tiflash"})) == {}


def test_a_store_that_leaves_or_is_down_has_no_share() -> None:
    """Its peers are the others' to be; one that is silent for less than its down time takes part."""
    config = Config()
    stores = [Store(i, region_count=100, leader_count=10, leader_weight=float(i)) for i in (1, 2, 3)]
    leaves: list[dict[str, Any]] = [{"state": REMOVING}, {"heartbeat_age_s": config.max_store_down_time_s + 1}]
    for changes in leaves:
        cluster = cluster_of(config, [*stores[:2], stores[2]._replace(**changes)])
        assert shares(cluster) == {1: 150, 2: 150, 3: 0} and uneven(cluster) == {1: 100, 2: 100, 3: 100}
        assert shares(cluster, LEADERS) == {1: 10, 2: 20, 3: 0}
    silent = cluster_of(config, [*stores[:2], stores[2]._replace(heartbeat_age_s=config.max_store_down_time_s)])
    assert uneven(silent) == {} != uneven(silent, LEADERS)


def test_even_is_one_word_for_runs_recordings_and_scenarios() -> None:
    """While a store is emptied it is not even, in any of them; a weight counts from when it is set."""
    start = small(90, 5, limit=600)
    changes = [Timed(10 * S, Pdctl("store delete 4")), Timed(60 * S, Pdctl("store weight 1 1 1.2"))]
    seen: list[bool] = []

    def looked(world: World) -> bool:
        seen.append(not moment(world).measured.uneven_peers)
        return False

    run = simulate(start, 120 * S, changes=changes, watch=Watch(pictured=True), on_sample=looked)
    recording = run.recorder.recording
    assert [not m.uneven_peers for m in run.recorder.moments] == seen and False in seen[11:60] and seen[9] and seen[58]
    assert [not uneven(s.cluster) for s in recording.samples] == seen
    last = future(run).peers_even_s
    assert last == costs(recording).peers_even_s and last is not None and last > 60


def test_learners_and_a_lost_leader_are_known() -> None:
    """Learners count apart; a region of two dead voters of three has no leader until one is back."""
    regions = regions_of([[1, 2, 3]] * 4, [1] * 4, learners=[[4]] * 4)
    world = World(Start(stores=tuple(StoreStart(i) for i in (1, 2, 3, 4)), regions=regions, config=Config()), seed=1)
    assert world.regions.members.learners == [0, 0, 0, 4]
    world.changes.extend([Timed(0, StopStore(1)), Timed(0, StopStore(2))])
    world.run(S)
    assert pdctl(world, "region 1")["leader"] is None


def test_a_store_that_joins_prepares_until_it_has_nine_tenths_of_its_share() -> None:
    """120 regions on four stores, a fifth one joins: it serves from the check of every 10 s on that finds enough."""
    start = small(120, 5, (1, 2, 3, 4), 6000, io_mib_a_tick=200.0)
    late = replace(start, stores=tuple(s._replace(started=s.id < 5) for s in start.stores))
    run = simulate(late, 5 * S, changes=[Timed(2 * S, StartStore(5))])
    world = run.world
    assert pdctl(world, "store 5")["store"]["node_state"] == "Preparing"
    assert pdctl(world, "store 1")["store"]["node_state"] == "Serving"
    while pdctl(world, "store 5")["store"]["node_state"] == "Preparing" and world.now_us < 600 * S:
        before = world.cluster().stores[5].region_size
        world.run(world.now_us + 10 * S)
    share = 120 * 96.0 * 3 / 5
    assert before < 0.95 * share and world.cluster().stores[5].region_size >= 0.9 * share
    few = replace(late, regions=spread_regions(60, [1, 2, 3, 4]))
    small_one = simulate(few, 30 * S, changes=[Timed(2 * S, StartStore(5))]).world
    assert pdctl(small_one, "store 5")["store"]["node_state"] == "Serving", "fewer than 100 regions: at once"


def test_the_data_between_two_keys_is_that_of_the_regions_there() -> None:
    """A range of half of the keys has half of the data, and open ends mean all."""
    regions = World(small(8, 4), seed=1).regions
    assert regions.mib_between("", "") == 768.0 == regions.mib_between("", "8") + regions.mib_between("8", "")
    assert regions.mib_between("", "8") == 384.0
