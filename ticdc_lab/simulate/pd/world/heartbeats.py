"""Heartbeats of regions at their interval: those with news for PD.

Each region has its own place in the interval; one that changes is reported at once besides. What a heartbeat brings:
that a peer is down; what changed, where the report of that was lost or could not be sent; and, to a store that was
silent for a while, that it has a peer which its region has given up (redundant, to be removed).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.pd_core.regions import LEARNER, Region, has_quorum
from ticdc_lab.pd_core.stores import PREPARING, SERVING
from ticdc_lab.simulate.pd.world.columns import NONE
from ticdc_lab.simulate.pd.world.start import SECOND_US

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.world import World

DOWN, STALE, CHANGED = "down-peer", "stale-peer", "changed"
_SPREAD, _BITS = 2_654_435_761, 32
_COLLECTED, _COLLECTS_US = 0.9, 300 * SECOND_US
"""A new leader of PD schedules when it has heard of so many of the regions, altogether and of each store, or after so
long (pkg/schedule/core/prepare_checker.go)."""
_Ids = TypeVar("_Ids", int, NDArray[np.int64])


def next_heartbeat_us(region: _Ids, after_us: int, every_us: int) -> _Ids:
    """Give when a region's next heartbeat comes after a moment, or of many."""
    place_us = (region * _SPREAD % (1 << _BITS)) * every_us >> _BITS
    return after_us + 1 + (place_us - after_us - 1) % every_us


class Heartbeats:
    """Future ones with news: (when, what, store by position, region). And what a new leader heard."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.due: list[tuple[int, str, int, int]] = []
        self.told = 0
        self.heard = np.zeros(0, np.int64)  # by row, the region
        self.heard_us = 0

    def forget(self) -> None:
        self.heard, self.heard_us = np.zeros(0, np.int64), self.world.now_us

    def gathered(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Take the heartbeats of all regions since the last time; give the rows with one since another PD led.

        One that the network loses, or whose leader cannot reach PD, is repeated an interval later. Those that report
        a change came as well (:meth:`came`).
        """
        world, r = self.world, self.world.regions
        every_us = world.settings.region_heartbeat_us
        in_touch = np.array([*(n.in_touch for n in world.nodes.all), False])
        due = in_touch[r.leader[rows]] & (next_heartbeat_us(r.id[rows], self.heard_us, every_us) <= world.now_us)
        come = [row for row in rows[due].tolist() if not world.nodes.loses()]
        self.came(come)
        self.heard_us = world.now_us
        return np.asarray(self.heard[rows] == r.id[rows])

    def came(self, rows: list[int]) -> None:
        """PD hears of regions: of one that was cut off another one it knows nothing before its first heartbeat."""
        r = self.world.regions
        self.heard = np.pad(self.heard, (0, max(0, len(r.id) - len(self.heard))))
        self.heard[rows] = r.id[rows]

    def expect(self, what: str, i: int, region: int) -> None:
        """Let a region's next heartbeat report its peer on a store."""
        at_us = next_heartbeat_us(region, self.world.now_us, self.world.settings.region_heartbeat_us)
        heapq.heappush(self.due, (at_us, what, i, region))

    def next_us(self) -> int:
        return self.due[0][0] if self.due else 1 << 62

    def take(self) -> None:
        while self.due and self.due[0][0] <= self.world.now_us:
            _, what, i, region = heapq.heappop(self.due)
            if {DOWN: self._down, STALE: self._stale, CHANGED: self._changed}[what](i, region):
                self.told += 1
                if self.world.recorder is not None:
                    self.world.recorder.heartbeat(what, region, self.world.regions.store_ids[i])

    def _down(self, i: int, region: int) -> bool:
        world, row = self.world, self.world.regions.row_of.get(region)
        rows = world.regions.down_rows.get(i)
        if row is None or rows is None or row in rows:
            return False
        leader = int(world.regions.leader[row])
        if leader == NONE or not world.nodes.hears(leader):
            self.expect(DOWN, i, region)  # none can report now
            return False
        rows.add(row)
        world.patrol.mark(row)
        return True

    def _stale(self, i: int, region: int) -> bool:
        world, row = self.world, self.world.regions.row_of.get(region)
        leader = -1 if row is None else int(world.regions.leader[row])
        if world.nodes.all[i].runs and leader >= 0 and not world.nodes.hears(leader):
            self.expect(STALE, i, region)
            return False
        return world.nodes.all[i].runs and world.nodes.forget_stale(i, region)

    def _changed(self, _: int, region: int) -> bool:
        row = self.world.regions.row_of.get(region)
        if row is None or row not in self.world.controller.unheard:
            return False
        heard = self.world.hear(row, self.world.cluster())
        if heard:
            self.world.mark(row)
        return heard

    def changed(self, row: int) -> None:
        """A region was reported because it changed: its heartbeat reports all of it."""
        for i, rows in self.world.regions.down_rows.items():
            if i in self.world.regions.store[row]:
                rows.add(row)

    def split(self, row: int, new: int) -> None:
        """A new region misses what the one that it was cut from did."""
        for rows in self.world.regions.down_rows.values():
            if row in rows:
                rows.add(new)
        self.came([new])


_BUCKET = 8
"""Elections are won as in PD's simulated stores: by the last healthy peer of a map walked from a random place."""


def rows_on(world: World, i: int) -> list[int]:
    """Give the regions that have a peer on a store."""
    leads, follows, learns = world.regions.members.lists[i]
    return [*leads, *follows, *learns]


def elect(world: World, rows: list[int]) -> None:
    for row in rows:
        region = world.regions.region(row)
        leader = _elected(world, region)
        if leader != region.leader:
            world.regions.put(row, region._replace(leader=leader))
            if world.hear(row, world.cluster()):
                world.patrol.mark(row)


def _elected(world: World, region: Region) -> int:
    regions, nodes = world.regions, world.nodes.all
    able = [
        n
        for n, p in enumerate(region.peers)
        if nodes[regions.at[p.store]].runs and p.role != LEARNER and p.store not in region.pending
    ]
    alive = {p.store for p in region.peers if nodes[regions.at[p.store]].runs}
    if not able or not has_quorum(region, alive):
        return 0
    first = world.chance.randrange(_BUCKET)
    return region.peers[max(able, key=lambda n: (n - first) % _BUCKET)].store


def has_heard_enough(world: World, since_us: int) -> bool:
    """Whether a PD that leads since a moment knows where regions are, so that it may schedule."""
    if world.now_us - since_us > _COLLECTS_US:
        return True
    r, nodes = world.regions, world.nodes.all
    rows = r.rows()
    heard = world.heartbeats.gathered(rows)
    if heard.sum() < _COLLECTED * len(rows):
        return False
    place, stores = np.nonzero(r.store[rows] >= 0), len(nodes)
    at, told = r.store[rows][place], heard[place[0]]
    counts = zip(nodes, np.bincount(at[told], minlength=stores), np.bincount(at, minlength=stores), strict=True)
    return all(n >= _COLLECTED * of for node, n, of in counts if node.known and node.told.state in (PREPARING, SERVING))


def report_down(world: World) -> None:
    """Let leaders report the peers of stores that are silent for long enough."""
    for i, node in enumerate(world.nodes.all):
        if node.silent_us is None or not node.known or node.runs:
            continue
        silent_s = (world.now_us - node.silent_us) / SECOND_US
        if silent_s >= node.down_after_s:
            if i not in world.regions.down and node.down_after_s > 0:
                world.regions.down_rows[i] = set()  # the leaders of all regions that have a peer there miss it
                for row in rows_on(world, i):
                    world.heartbeats.expect(DOWN, i, int(world.regions.id[row]))
            elif i not in world.regions.down:
                world.patrol.mark_all(rows_on(world, i))
            world.regions.down[i] = silent_s + max(0.0, -node.down_after_s)


def any_silent(world: World) -> bool:
    """Whether a store that PD knows is silent, so that its age matters."""
    return any(n.silent_us is not None and n.known for n in world.nodes.all)
