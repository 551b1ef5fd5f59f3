"""What stores report themselves and clients notice: shared disks, busy and slow stores, windows, stale peers."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from worlds import S, small

from ticdc_lab.pd_core import limits
from ticdc_lab.pd_core.config import Config
from ticdc_lab.simulate.pd.world import heartbeats
from ticdc_lab.simulate.pd.world.changes import (
    ClusterChange,
    Pdctl,
    ResumeStore,
    SlowDisk,
    StartStore,
    StopStore,
    Timed,
    WriteFlow,
)
from ticdc_lab.simulate.pd.world.controller import Controller
from ticdc_lab.simulate.pd.world.heartbeats import next_heartbeat_us
from ticdc_lab.simulate.pd.world.monitor import STORE_LIMIT
from ticdc_lab.simulate.pd.world.pdctl import pdctl
from ticdc_lab.simulate.pd.world.run import PdRun, simulate
from ticdc_lab.simulate.pd.world.start import Start, StoreStart, WorldSettings
from ticdc_lab.simulate.pd.world.stores import SLOWEST, Disk, Nodes
from ticdc_lab.simulate.pd.world.world import World
from ticdc_lab.simulate.swarm import swarm

V2 = Config(store_limit_version="v2")


def run(start: Start, until_s: int, *changes: tuple[float, ClusterChange]) -> PdRun:
    """A run of so many seconds, with what happens in it, and no violation."""
    found = simulate(start, until_s * S, seed=1, changes=[Timed(int(at * S), change) for at, change in changes])
    assert found.violation is None
    return found


def joined(limit: float, **settings: float) -> tuple[float, int]:
    """A store joins three that clients keep busy: the longest wait of a client, and the new store's peers."""
    start = small(90, 4, (1, 2, 3), limit, **settings)
    start = replace(start, stores=(*start.stores[:3], StoreStart(4, started=False)))
    found = run(start, 30, (0, WriteFlow(tuple(range(1, 91)), 4.3)), (1, StartStore(4)))
    return max(n.disk.worst_s for n in found.world.nodes.all), found.world.regions.members.count[3]


def test_a_conservative_limit_does_not_affect_online_services() -> None:
    """PD's design: the default speed is conservative; faster by hand, clients wait, and moves are done sooner."""
    careful, few = joined(15)
    fast, many = joined(2000)
    assert 0 < few < many
    assert 0 < 3 * careful < fast
    assert joined(2000, disk_mib_a_tick=inf)[0] == 0


def test_a_disk_serves_clients_after_snapshots_have_had_half() -> None:
    """What is not served waits; ticks that are skipped count as if each were played."""
    settings, disk = WorldSettings(), Disk(40.0)
    disk.want(20.0, 10.0, 0, settings)
    assert disk.for_snapshots(1, settings) == 20.0
    disk.take(20.0)
    assert disk.for_snapshots(1, settings) == 0.0 and disk.waiting == 0.0
    disk.want(30.0, 20.0, 1, settings)
    one, many = Disk(40.0), Disk(40.0)
    for each in (one, many):
        each.want(50.0, 0.0, 0, settings)
    for tick in range(1, 31):
        one.go_on(tick, settings)
    many.go_on(30, settings)
    assert one.waiting == many.waiting == 300.0 and one.wait_s(settings) == pytest.approx(0.75)
    assert one.for_snapshots(31, settings) == 20.0


def test_a_store_with_a_slow_disk_is_busy_then_slow_and_its_leaders_leave() -> None:
    """Its heartbeats report it: it takes nothing while busy, gives its leaders at the worst score, and
    is sound again.
    """
    flows = (0.0, WriteFlow(tuple(range(1, 61)), 1.0))
    start = small(60, 4)
    slow = run(start, 120, flows, (5, SlowDisk(1, 20.0)))
    store = slow.world.cluster().stores[1]
    assert store.busy and store.evicted and store.slow_score == SLOWEST
    assert store.write_mib_s == pytest.approx(45.0) and store.leader_count == 0
    assert slow.world.controller.created["evict-slow-store-scheduler"] >= 15
    told = pdctl(slow.world, "store 1")["status"]
    assert (told["is_busy"], told["slow_score"]) == (True, 100)
    calm: list[ClusterChange] = [SlowDisk(1, None), WriteFlow(tuple(range(1, 61)), 0.0)]
    again = slow.again(120 * S, calm, until_us=1200 * S)
    stores = again.world.cluster().stores
    sound, most = stores[1], max(s.leader_count for s in stores.values())
    assert not sound.busy and not sound.evicted and sound.slow_score == 1
    assert most - sound.leader_count <= 10  # leaders move while stores are further apart


def test_of_two_slow_stores_none_gives_its_leaders() -> None:
    """They would go from one to the other."""
    flows = (0.0, WriteFlow(tuple(range(1, 61)), 1.0))
    found = run(small(60, 4), 120, flows, (5, SlowDisk(1, 20.0)), (5, SlowDisk(2, 20.0)))
    assert not any(s.evicted for s in found.world.cluster().stores.values())
    assert found.world.schedulers["evict-slow-store-scheduler"].last.because == "2 stores are slow"


def test_a_store_that_comes_back_has_its_peers_still_until_their_regions_tell_it() -> None:
    """PD's design: a failed node works again and joins; redundant replicas exist and are removed."""
    config = Config(max_store_down_time_s=25.0)
    gone = (1.0, StopStore(4, 1 * S))
    found = run(small(60, 4, config=config, region_heartbeat_us=20 * S), 115, gone, (90, ResumeStore(4)))
    replaced = found.world.controller.created["replace-rule-down-peer"]
    assert replaced == 45
    samples = [(row["time_us"], row["stale"]) for row in found.stores.to_pylist() if row["store"] == 4]
    assert dict(samples)[90 * S] == replaced
    left = [n for at, n in samples if at > 90 * S]
    assert left == sorted(left, reverse=True) and left[-1] == 0 and len(set(left)) > 5
    forgotten = run(small(60, 4, config=config, keeps_stale_peers=False), 92, gone, (90, ResumeStore(4)))
    assert not any(row["stale"] for row in forgotten.stores.to_pylist())


def test_regions_tell_that_a_peer_is_down_each_with_its_own_heartbeat() -> None:
    """Within one interval after the time of silence, spread over it; a region that changes shows it at once."""
    world = World(small(60, 4, peer_down_after_s=30.0, region_heartbeat_us=20 * S), 1)
    world.run(2 * S)
    StopStore(4).apply(world)
    there = heartbeats.rows_on(world, 3)
    heard = []
    for second in range(3, 60):
        world.run(second * S)
        heard.append(sum(4 in world.regions.region(row).down for row in there))
    at = dict(enumerate(heard, 3))
    assert at[31] == 0 and 5 < at[41] < len(there) == at[54] and world.heartbeats.told > 20


@pytest.mark.parametrize("region", [1, 2, 77])
def test_a_region_has_one_place_in_the_interval(region: int) -> None:
    """Its heartbeats come an interval apart, whenever one asks."""
    first = next_heartbeat_us(region, 0, 60 * S)
    assert 0 < first <= 60 * S and next_heartbeat_us(region, first - 1, 60 * S) == first
    assert next_heartbeat_us(region, first, 60 * S) == first + 60 * S


def test_store_limit_v2_holds_snapshots_in_a_window_of_the_store_that_sends_them() -> None:
    """A hundred MiB and one region more; a store may gain as fast as that lets it, no matter what its v1 limits."""
    most = []

    def watch(world: World) -> None:
        most.append(max(sum(n.windows.used) for n in world.nodes.all))

    start = small(45, 4, (1, 2, 3), 1, V2)
    found = simulate(start, 8 * S, seed=1, on_sample=watch)
    assert found.violation is None and found.world.regions.members.count[3] > 8
    assert max(most[:4]) == 2 * 96  # the lowest window and the one of balance, each with one region


def test_v1_and_v2_are_set_by_pd_ctl() -> None:
    """In the middle of a run."""
    found = run(small(45, 4, (1, 2, 3), 1), 14, (6, Pdctl("config set store-limit-version v2")))
    gained = {row["time_us"]: row["peers"] for row in found.stores.to_pylist() if row["store"] == 4}
    assert gained[6 * S] < 3 and gained[14 * S] > 8


def test_feedback_makes_windows_larger_where_sending_is_what_takes_the_time() -> None:
    """Only while the lowest window is full; never below a hundred MiB."""
    full = limits.Windows(used=(96.0, 0, 0, 0))
    assert limits.with_feedback(limits.Windows(), 10, 10) == limits.Windows()
    more = limits.with_feedback(full, 10, 10)
    assert more.total == 20 * 10 + 10 * 10 and more.errors == 10
    assert limits.with_feedback(more._replace(used=(400.0, 0, 0, 0)), 1, 40).total == 100
    assert limits.without_snapshot(limits.Windows(used=(90.0, 20.0, 0, 0)), 30).used == (80.0, 0.0, 0, 0)


def test_a_window_that_is_passed_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: no one asks whether there is room."""
    monkeypatch.setattr(Controller, "_shut_windows", lambda *_: ())

    def crammed(self: Nodes, i: int, priority: limits.Priority, mib: float) -> None:
        used = self.all[i].windows.used
        self.all[i].windows = self.all[i].windows._replace(used=(used[0] + mib, *used[1:]))

    monkeypatch.setattr(Nodes, "take_window", crammed)
    monkeypatch.setattr("ticdc_lab.simulate.pd.world.controller.window_open", lambda *_: True)
    found = simulate(small(90, 4, (1, 2, 3), 1, V2), 60 * S, seed=1)
    assert found.violation is not None and found.violation.invariant == STORE_LIMIT


def test_a_window_that_is_just_full_is_not_called_too_full() -> None:
    """Less one snapshot, a sum of floats is a little more than it was before that (seed 9119 of the swarm)."""
    scenario = swarm("pd", 9119)
    assert scenario.model.play(scenario, keep=False).held
