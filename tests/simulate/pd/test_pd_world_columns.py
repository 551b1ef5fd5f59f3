"""What is kept along the way is what the core computes from scratch."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from worlds import S, small

from ticdc_lab.pd_core import balance_leader, balance_region
from ticdc_lab.pd_core.chances import is_here
from ticdc_lab.pd_core.cluster import fit_of
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.create import move_peer
from ticdc_lab.pd_core.filters import state_forbids
from ticdc_lab.pd_core.operators import AddLearner, EnterJoint, Kind, TransferLeader
from ticdc_lab.pd_core.regions import LEARNER, Peer, Region
from ticdc_lab.pd_core.scores import columns, region_scores
from ticdc_lab.pd_core.stores import labelled
from ticdc_lab.simulate.pd.world import Start, StoreStart, patrol, spread_regions
from ticdc_lab.simulate.pd.world.changes import Pdctl, StopStore, Timed
from ticdc_lab.simulate.pd.world.columns import LEADS, key_below, key_between
from ticdc_lab.simulate.pd.world.monitor import PdMonitor
from ticdc_lab.simulate.pd.world.pd_policies import ROLES, StoreTable, no_leader_pays, no_region_pays
from ticdc_lab.simulate.pd.world.policy import BUSY
from ticdc_lab.simulate.pd.world.start import WorldSettings
from ticdc_lab.simulate.pd.world.stores import Hull
from ticdc_lab.simulate.pd.world.world import World


def busy_world(seed: int) -> World:
    """A cluster in which much has happened."""
    start = small(90, 6, on=(1, 2, 3, 4), limit=3000)
    said = Timed(3 * S, Pdctl("store delete 2")), Timed(8 * S, Pdctl("store weight 5 2 2"))
    changes = [*said, Timed(6 * S, StopStore(3))]
    world = World(start, seed, changes=changes)
    world.run((4 + seed) * S)
    return world


@pytest.mark.parametrize("seed", range(3))
def test_sums_of_stores_are_what_their_regions_come_to(seed: int) -> None:
    """Peers, leaders, MiB, pending, and who follows whom, after hundreds of changes."""
    world = busy_world(seed)
    regions = [world.regions.region(row) for row in world.regions.rows().tolist()]
    m, ids = world.regions.members, world.regions.store_ids
    peers = Counter(p.store for r in regions for p in r.peers)
    assert m.count == [peers[i] for i in ids]
    assert m.leaders == [sum(r.leader == i for r in regions) for i in ids]
    assert m.mib == pytest.approx([sum(r.size for r in regions if i in r.stores) for i in ids])
    assert m.pending == [sum(i in r.pending for r in regions) for i in ids]
    follows = np.zeros_like(m.led_with)
    for r in regions:
        for p in r.peers:
            if r.leader and p.store != r.leader and p.role != "learner":
                follows[ids.index(r.leader), ids.index(p.store)] += 1
    assert (m.led_with == follows).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_table_of_stores_says_what_the_core_says(seed: int) -> None:
    """Roles and scores, row by row, after the table was refreshed again and again."""
    world = World(small(90, 6, on=(1, 2, 3, 4), limit=3000), seed, changes=[Timed(2 * S, StopStore(1))])
    table = StoreTable()
    for at_s in range(1, 40, 3):
        world.run(at_s * S)
        cluster = world.cluster()
        table.refresh(cluster)
        stores = list(cluster.stores.values())
        assert table.columns.id.tolist() == [s.id for s in stores]
        for role in ROLES:
            assert table.may[role].tolist() == [state_forbids(s, role, cluster.config) is None for s in stores]
        assert (
            region_scores(table.columns, cluster.config).tolist()
            == region_scores(columns(stores), cluster.config).tolist()
        )


@pytest.mark.parametrize("seed", range(2))
def test_a_round_that_cannot_pay_finds_nothing_in_the_core_either(seed: int) -> None:
    """Where the quick answer is no, fifty rounds of the core over all regions find no operator."""
    world = World(small(90, 6, on=(1, 2, 3, 4), limit=60), seed)
    asked = 0
    for at_s in range(1, 60, 8):
        world.run(at_s * S)
        for name, why, schedule in (
            ("balance-region-scheduler", no_region_pays, balance_region.schedule),
            ("balance-leader-scheduler", no_leader_pays, balance_leader.schedule),
        ):
            seen = world.seen(world.schedulers[name])._replace(memory={})
            if why(seen) in ("", BUSY):
                continue
            asked += 1
            regions = [world.regions.region(row) for row in world.regions.rows().tolist()]
            chance = Random(seed)

            def draw(store: int, kind: str, regions: list[Region] = regions, chance: Random = chance) -> list[Region]:
                here = [r for r in regions if is_here(r, store, kind)]
                return [chance.choice(here) for _ in range(10)] if here else []

            for _ in range(3):
                told, _retries = schedule(seen.cluster, draw)
                assert not told.operators, f"{name}: {told.because}"
    assert asked > 3


def test_waiting_for_a_limit_loses_no_time() -> None:
    """Four stores that take 60 peers a minute each get close to four a second together."""
    world = World(small(200, 5, limit=60), 1, changes=[Timed(2 * S, Pdctl("store delete 1"))])
    world.run(22 * S)
    moved = sum(n for desc, n in world.controller.created.items() if desc.startswith("replace-rule-offline"))
    assert 70 <= moved <= 84


def test_skipping_idle_time_changes_nothing() -> None:
    """A quiet cluster ticks only for heartbeats and rounds; a joining store is seen at its moment."""
    world = World(small(60, 4), 1, changes=[Timed(1000 * S, Pdctl("store delete 1"))])
    world.run(900 * S)
    ticks = world.ticks
    world.run(1010 * S)
    assert ticks < 900 * 10 / 5
    assert world.controller.created["replace-rule-offline-peer"] > 0


@pytest.mark.parametrize(("a", "b"), [("", ""), ("", "80"), ("7FFF", "80"), ("A0", "A001"), ("01", "02"), ("A0", "B0")])
def test_a_key_between_two_lies_between(a: str, b: str) -> None:
    """Also next to the ends; written as pd-ctl writes keys, in whole bytes."""
    key = key_between(a, b)
    assert a < key and (not b or key < b) and bytes.fromhex(key).hex().upper() == key


def test_free_space_is_smoothed_over_sixty_heartbeats() -> None:
    """A steady value stays itself; after a jump it takes some minutes to arrive, without going far beyond."""
    hull, rows = Hull(1), np.array([0])
    for _ in range(70):
        hull.add(rows, np.array([100.0]))
    assert hull.get(rows)[0] == pytest.approx(100.0)
    seen = []
    for _ in range(70):
        hull.add(rows, np.array([40.0]))
        seen.append(float(hull.get(rows)[0]))
    assert seen[0] > 90 and seen[-1] == pytest.approx(40.0) and min(seen) > 20


def test_how_regions_fit_is_kept_until_a_store_is_another() -> None:
    """Sizes that change with each heartbeat change no fit; a label, a silent store and other settings do."""
    stores = tuple(StoreStart(i, labels={"zone": f"z{i}"}) for i in range(1, 5))
    config = Config(location_labels=("zone",))
    world = World(Start(stores=stores, regions=spread_regions(20, [1, 2, 3]), config=config), 1)
    first = world.cluster()
    fit_of(first, world.regions.region(0))
    world.nodes.change(0, available=5.0)
    again = world.cluster()
    assert again.stores is not first.stores and again.fits is first.fits and again.fits
    world.nodes.change(0, labels=labelled({"zone": "z2"}))
    moved = world.cluster()
    assert not moved.fits and fit_of(moved, world.regions.region(0)) != fit_of(first, world.regions.region(0))
    world.nodes.change(0, heartbeat_age_s=1e6)
    assert world.cluster().fits == {}
    world.config = replace(config, max_replicas=5)
    assert world.cluster().fits == {}


def test_of_very_many_regions_only_those_that_are_due_are_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others would be skipped one by one."""
    world = World(Start(stores=tuple(map(StoreStart, range(1, 5))), regions=spread_regions(9, [1, 2, 3])), 1)
    world.patrol.todo = {row: 0 if row < 3 else 500 for row in range(9)}
    assert list(world.patrol.order(Random(1), 100)) == list(range(9))
    monkeypatch.setattr(patrol, "_MANY", 8)
    assert list(world.patrol.order(Random(1), 100)) == [0, 1, 2]
    assert list(world.patrol.order(Random(1), 500)) == list(range(9))


def test_merges_begin_where_the_patrol_is_not_at_the_first_region_of_a_slice() -> None:
    """Regions that it passed before there was room come last."""
    world = World(Start(stores=tuple(map(StoreStart, range(1, 5))), regions=spread_regions(9, [1, 2, 3])), 1)
    world.patrol.to_merge = dict.fromkeys(range(9))
    assert world.patrol.scan(1, 1, 4, 3) == [3]
    assert world.patrol.scan(2, 1, 4) == [4, 5, 6, 7]


def test_simulated_stores_cut_a_region_at_the_last_key_of_its_range() -> None:
    """So what is merged and cut again has another range than before, which PD sees at once."""
    assert (key_below("03", "0A"), key_below("03", "0400"), key_below("03", "04")) == ("09", "03FF", "03FF")
    world = World(Start(stores=tuple(map(StoreStart, range(1, 5))), regions=spread_regions(4, [1, 2, 3])), 1)
    before = world.regions.range_of(2)
    world.regions.merge(1, 2)
    world.regions.split(2, simulated=True)
    assert world.regions.range_of(2)[1] == before[1] and world.regions.range_of(2)[0] > before[0]


def test_pd_counts_no_leader_whose_id_is_none_of_the_peers() -> None:
    """What simulated stores cut off keeps the id of its leader before; a transfer gives it one that PD knows."""
    world = World(Start(stores=tuple(map(StoreStart, range(1, 5))), regions=spread_regions(4, [1, 2, 3])), 1)
    leader, led = int(world.regions.leader[2]), list(world.regions.members.leaders)
    new = world.regions.split(2, simulated=True)
    assert world.regions.members.leaders == led and int(world.regions.leader[new]) == leader
    region = world.regions.region(new)
    to = next(p.store for p in region.peers if p.store != region.leader)
    world.regions.put(new, region._replace(leader=to))
    assert sum(world.regions.members.leaders) == sum(led) + 1
    world.regions.merge(new, 2)
    assert sum(world.regions.members.leaders) == sum(led) and not world.regions.unnamed


@pytest.mark.parametrize(("simulated", "left"), [(True, {0}), (False, set())])
def test_only_simulated_stores_refuse_to_demote_a_leader(simulated: bool, left: set[int]) -> None:
    """As TiKV does it in a joint change; one that PD does not know as the leader is demoted anyway."""
    settings = replace(WorldSettings(), demotes_leaders=not simulated)
    start = Start(stores=tuple(map(StoreStart, range(1, 7))), regions=spread_regions(2, [1, 2, 3]), settings=settings)
    world = World(start, 1)
    world.regions.unnamed.add(1)
    for row in (0, 1):
        region = world.regions.region(row)
        new = tuple(Peer(0, i, LEARNER) for i in (4, 5, 6))
        world.regions.put(row, region._replace(peers=(*region.peers, *new)))
        world.tasks.tell(row, EnterJoint((4, 5, 6), (1, 2, 3)), 0)
    told = {r.row for r in world.tasks.tick(1) if r.region is not None}
    assert {0, 1} - told == left


def test_pd_ends_the_first_operator_of_its_queue_at_once_if_its_region_is_gone() -> None:
    """One behind an operator that has to wait is not looked at before that one's time has come."""
    world = World(small(9, 4, on=(1, 2, 3)), 1)
    control = world.controller
    for row in (2, 4):
        region = world.regions.region(row)
        moved = move_peer(world.cluster(), region, region.leader, Peer(0, 4), "balance-region", kind=Kind.REGION)
        control.add([control.made(moved, 0)], 0, 0)
    world.regions.alive[4] = False
    control.watch(world.cluster(), S, 10)
    assert set(control.running) == {2, 4}  # the operator of row 2 waits for its five seconds
    world.regions.alive[2] = False
    control.watch(world.cluster(), S, 10)
    assert not control.running


def simulated(regions: int = 6, **settings: Any) -> World:
    """A small cluster on PD's simulated stores."""
    return World(small(regions, 4, on=(1, 2, 3), simulated_stores=True, **settings), 1)


def test_what_a_store_changed_for_one_that_is_still_to_report_is_told_in_the_same_tick() -> None:
    """A transfer from store 1 to store 2 is reported at once if store 1 has its turn first, as in about half of 40
    runs.
    """
    at_once = 0
    for seed in range(40):
        world = World(small(6, 4, on=(1, 2, 3), simulated_stores=True), seed)
        row = next(r for r in world.regions.members.lists[0][LEADS] if world.regions.region(r).peer_on(2))
        world.tasks.tell(row, TransferLeader(1, 2), 0)
        world.reports = world.tasks.tick(1)
        world.report_in_turn()
        told = int(world.regions.leader[row]) == 1
        assert told == (not world.reports) and not world.controller.unheard
        at_once += told
    assert 10 < at_once < 30


def test_a_region_whose_id_pd_gives_once_more_is_lost_with_its_keys() -> None:
    """Region 2 has id 8, as each has three peers; a part that is cut off region 5 gets ids 5 to 8."""
    world = simulated(6, first_id=5)
    moved = move_peer(world.cluster(), world.regions.region(1), 1, Peer(0, 4), "balance-region", kind=Kind.REGION)
    world.next_id = 4
    world.add([moved], "", "test")
    assert world.next_id == 5 and 1 in world.controller.running
    new = world.split(4)
    assert world.next_id == 9 and not world.regions.alive[1] and 1 not in world.controller.running
    assert world.regions.count == 6 and world.regions.beside(0) == (-1, -1) and world.regions.beside(2) == (-1, 3)
    assert world.regions.range_of(0)[1] < world.regions.range_of(2)[0], "nothing has the keys between"
    assert list(world.regions.in_key_order()) == [0, 2, 3, new, 4, 5]
    assert world.patrol.scan(1, 1, 8) == [] and world.patrol.cursor == -1
    world.split(4)
    assert world.regions.count == 6 and not world.regions.alive[2]
    world.regions.lose(0)
    assert world.regions.first() == 0 and next(iter(world.regions.in_key_order())) == 3


def test_a_merge_on_simulated_stores_takes_what_was_cut_off_its_target_with_it() -> None:
    """The region between is lost with its data; TiKV merges siblings only, so there nothing happens."""
    for stores, left in ((True, 2), (False, 6)):
        world = World(small(6, 4, on=(1, 2, 3), simulated_stores=stores), 1)
        monitor = PdMonitor(world)
        world._merge(1, 3)
        world._merge(5, 3)
        assert world.regions.count == left
        if stores:
            assert float(world.regions.size[3]) == 3 * 96 and world.regions.range_of(3)[1] == ""
            assert world.regions.start_key[3] == world.regions.range_of(0)[1]
            monitor.space()
            monitor.sums()


def test_a_simulated_store_gives_up_a_snapshot_of_a_region_that_was_cut() -> None:
    """Its place stays taken, the new part has its data at once; TiKV sends one of each part."""
    world = simulated(size=960.0, split_mib=1e9, split_keys=1 << 60)
    world.tasks.tell(0, AddLearner(4), 0)
    for tick in (1, 2):
        world.reports = world.tasks.tick(tick)
        world.take_reports()
    sender = int(world.regions.leader[0])
    assert world.nodes.all[sender].sending == 1 and world.regions.region(0).pending == {4}
    new = world.split(0)
    assert world.regions.region(new).peer_on(4) and not world.regions.region(new).pending
    assert not world.tasks.tick(3) and not world.tasks.of
    assert world.nodes.all[sender].sending == 1
