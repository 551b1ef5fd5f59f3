"""Heartbeats of regions at their interval, those that tell PD something new: each region has its own place in it.

A region that changes is reported at once besides. What a heartbeat brings: that a peer is down, and, to a store that
was silent for a while, that it has a peer which its region has given up (redundant, to be removed).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from ticdc_lab.simulate.pd.world.columns import NONE
from ticdc_lab.simulate.pd.world.outages import rows_on

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.world import World

DOWN, STALE = "down-peer", "stale-peer"
_SPREAD, _BITS = 2_654_435_761, 32


def next_heartbeat_us(region: int, after_us: int, every_us: int) -> int:
    """Give when a region's next heartbeat comes after a moment."""
    place_us = (region * _SPREAD % (1 << _BITS)) * every_us >> _BITS
    return after_us + 1 + (place_us - after_us - 1) % every_us


class Heartbeats:
    """Those to come that tell something: (when, what, store by position, region)."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.due: list[tuple[int, str, int, int]] = []
        self.told = 0

    def expect(self, what: str, i: int, region: int) -> None:
        """Let a region's next heartbeat tell something about its peer on a store."""
        at_us = next_heartbeat_us(region, self.world.now_us, self.world.settings.region_heartbeat_us)
        heapq.heappush(self.due, (at_us, what, i, region))

    def expect_down(self, i: int) -> None:
        """The leaders of all regions that have a peer on a store miss it."""
        self.world.regions.down_rows[i] = set()
        for row in rows_on(self.world, i):
            self.expect(DOWN, i, int(self.world.regions.id[row]))

    def expect_stale(self, i: int) -> None:
        """A store is back with peers that were replaced meanwhile."""
        for region in self.world.nodes.all[i].stale:
            self.expect(STALE, i, region)

    def next_us(self) -> int:
        """Give when the next one comes."""
        return self.due[0][0] if self.due else 1 << 62

    def take(self) -> None:
        """Take those that are due."""
        while self.due and self.due[0][0] <= self.world.now_us:
            _, what, i, region = heapq.heappop(self.due)
            if (self._down if what == DOWN else self._stale)(i, region):
                self.told += 1
                if self.world.recording is not None:
                    self.world.recording.heartbeat(what, region, self.world.regions.store_ids[i])

    def _down(self, i: int, region: int) -> bool:
        world, row = self.world, self.world.regions.row_of.get(region)
        rows = world.regions.down_rows.get(i)
        if row is None or rows is None or row in rows:
            return False
        if world.regions.leader[row] == NONE:
            self.expect(DOWN, i, region)  # nobody can tell now
            return False
        rows.add(row)
        world.patrol.mark(row)
        return True

    def _stale(self, i: int, region: int) -> bool:
        return self.world.nodes.all[i].runs and self.world.nodes.forget_stale(i, region)

    def changed(self, row: int) -> None:
        """A region was reported because it changed: its heartbeat tells all that is to be told of it."""
        for i, rows in self.world.regions.down_rows.items():
            if i in self.world.regions.store[row]:
                rows.add(row)

    def split(self, row: int, new: int) -> None:
        """A new region misses what the one that it was cut from did."""
        for rows in self.world.regions.down_rows.values():
            if row in rows:
                rows.add(new)
