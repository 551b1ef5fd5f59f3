"""What is hot: flows as heartbeats report them, degrees of regions, the history of stores; `pd_notes.md` section 10.

Simpler than PD in two things: a degree belongs to a region, not to each of its peers (PD lets a peer that moved
inherit it), and the threshold does not rise once a store has sixty hot peers.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.pd_core.hot_loads import READ, WRITE, Flow, HotPeer, Loads
from ticdc_lab.simulate.pd.world.policy import Hot
from ticdc_lab.simulate.pd.world.start import SECOND_US

if TYPE_CHECKING:
    from ticdc_lab.pd_core.operators import Operator
    from ticdc_lab.simulate.pd.world.world import World

KINDS = (READ, WRITE)
REPORT_US = {READ: 10 * SECOND_US, WRITE: 60 * SECOND_US}
"""A degree rises by one for each such interval of heat."""

LEAST = {READ: (8192.0, 128.0), WRITE: (1024.0, 32.0)}
"""Bytes and keys a second from which on a region is hot."""

ABSORBED = {READ: 12, WRITE: 2}
"""Cold intervals that do no harm yet."""

ZOMBIE_US = 30 * SECOND_US
"""An operator that moved load counts for so long after its end, until the stores' own reports show it."""


NOTHING_HOT = Hot({}, {}, {})


class Pending(NamedTuple):
    """An operator that moves load."""

    region: int
    kind: str
    from_store: int
    to_store: int
    loads: Loads
    until_us: int | None = None


class HotStats:
    """Degrees of hot regions, and what stores carried over the last minutes."""

    def __init__(self, world: World) -> None:
        self.world = world
        heartbeat_us = {READ: world.settings.store_heartbeat_us, WRITE: world.settings.region_heartbeat_us}
        self.report_us = {kind: -(-REPORT_US[kind] // every) * every for kind, every in heartbeat_us.items()}
        self.due_us = dict(self.report_us)
        self.history: dict[str, deque[frozenset[int]]] = {}
        self.sample_us = 0
        self.pending: dict[int, Pending] = {}

    def forget(self) -> None:
        """Let another PD lead: what is hot is found out again."""
        r = self.world.regions
        r.degree[:] = r.absorbed[:] = 0
        self.history.clear()
        self.pending.clear()
        r.hot[:] = False
        r.told.clear()

    @property
    def any_flow(self) -> bool:
        """Whether anything is read or written, or was and is remembered."""
        r = self.world.regions
        return bool(r.read.any() or r.write.any() or r.degree.any())

    def next_us(self) -> int:
        return min(*self.due_us.values(), self.sample_us)

    def tick(self, now_us: int) -> None:
        """Take what heartbeats report, where it is time."""
        if now_us < self.next_us():
            return
        active = self.any_flow
        for kind in KINDS:
            while self.due_us[kind] <= now_us:
                self.due_us[kind] += self.report_us[kind]
                if active:
                    self._report(kind)
        if self.sample_us <= now_us:
            self.sample_us = now_us + self.world.settings.hot_history_us
            for kind in KINDS:
                samples = self.history.setdefault(kind, deque(maxlen=self.world.settings.hot_history_samples))
                samples.append(self._above(kind) if active else frozenset())

    def _report(self, kind: str) -> None:
        r = self.world.regions
        flow = (r.read if kind == READ else r.write)[: r.n]
        degree, absorbed, alive = self._of(r.degree, kind), self._of(r.absorbed, kind), r.alive[: r.n]
        row_bytes = self.world.settings.row_bytes
        hot = flow >= LEAST[kind][0]
        if row_bytes:
            hot |= flow / row_bytes >= LEAST[kind][1]
        hot &= alive
        cold = (degree > 0) & ~hot
        degree[hot] += 1
        absorbed[hot] = ABSORBED[kind]
        absorbed[cold] -= 1
        degree[cold & (absorbed < 0)] -= 1
        degree[cold & ~alive] = 0
        self._flag()

    def _of(self, column: NDArray[np.int32], kind: str) -> NDArray[np.int32]:
        return column[: self.world.regions.n, KINDS.index(kind)]

    def _flag(self) -> None:
        r = self.world.regions
        before = r.hot.copy()
        r.hot[:] = False
        for kind in KINDS:
            r.hot[self.hot_rows(kind)] = True
        if (before != r.hot).any():
            r.told.clear()
        if (before & ~r.hot).any():
            self.world.patrol.cooled()

    def hot_rows(self, kind: str) -> list[int]:
        r, hits = self.world.regions, max(1, self.world.config.hot_region_cache_hits_threshold)
        found: list[int] = np.flatnonzero((self._of(r.degree, kind) >= hits) & r.alive[: r.n]).tolist()
        return found

    def loads_of(self, row: int, kind: str) -> Loads:
        """Give what is read or written of a region, bytes, keys and queries a second."""
        r = self.world.regions
        flow = float(r.read[row] if kind == READ else r.write[row])
        keys = flow / self.world.settings.row_bytes if self.world.settings.row_bytes else 0.0
        return flow, keys, keys

    def carried(self, kind: str) -> NDArray[np.float64]:
        """Give the bytes a second of each store that runs, by its place: reads of leaders, writes of all its peers."""
        r, nodes = self.world.regions, self.world.nodes.all
        if kind == READ:
            row = np.flatnonzero(r.leader[: r.n] >= 0)
            places, flow = r.leader[row], r.read[row]
        else:
            row, slot = np.nonzero(r.store[: r.n] >= 0)
            places, flow = r.store[row, slot], r.write[row]
        runs = [node.known and node.runs for node in nodes]
        return np.where(runs, np.bincount(places, flow, minlength=len(nodes)), 0.0)

    def _reporting(self) -> dict[int, int]:
        """Give the places of the stores that report, by id."""
        return {node.told.id: i for i, node in enumerate(self.world.nodes.all) if node.known and node.runs}

    def _above(self, kind: str) -> frozenset[int]:
        places, carried = self._reporting(), self.carried(kind).tolist()
        mean = sum(carried[i] for i in places.values()) / max(len(places), 1)
        return frozenset(store for store, i in places.items() if carried[i] > mean)

    def long_hot(self, kind: str) -> frozenset[int]:
        """Give the stores that were above the mean in every sample of a full history."""
        samples = self.history.get(kind) or deque()
        if len(samples) < self.world.settings.hot_history_samples:
            return frozenset()
        return frozenset.intersection(*samples)

    def hot(self) -> Hot:
        if not self.world.regions.degree.any():
            return NOTHING_HOT
        now_us, at, row_bytes = self.world.now_us, self.world.regions.at, self.world.settings.row_bytes
        self.pending = {k: p for k, p in self.pending.items() if p.until_us is None or p.until_us > now_us}
        flows: dict[str, Flow] = {}
        rows: dict[int, None] = {}
        places = self._reporting()
        for kind in KINDS:
            chosen, carried = self.hot_rows(kind), self.carried(kind)
            keys = carried / row_bytes if row_bytes else np.zeros(len(carried))
            pending = np.zeros((len(carried), 3))
            for p in self.pending.values():
                if p.kind == kind:
                    pending[at[p.from_store]] -= p.loads
                    pending[at[p.to_store]] += p.loads
            reported, loads = [*places.values()], np.column_stack([carried, keys, keys])
            peers = self._peers(kind, chosen)
            flows[kind] = Flow(kind, [*places], loads[reported], peers, pending[reported])
            rows |= dict.fromkeys(chosen)
        regions = (self.world.regions.region(row) for row in rows)
        free = {r.id: r for r in regions if r.id not in self.pending}
        return Hot(flows, free, {k: self.long_hot(k) for k in KINDS})

    def _peers(self, kind: str, rows: list[int]) -> list[HotPeer]:
        peers = []
        for row in rows:
            region, loads = self.world.regions.region(row), self.loads_of(row, kind)
            for p in region.peers:
                if kind == WRITE or p.store == region.leader:
                    peers.append(HotPeer(region.id, p.store, p.store == region.leader, loads))
        return peers

    def started(self, op: Operator, kind: str, from_store: int, to_store: int) -> None:
        loads = self.loads_of(self.world.regions.row_of[op.region], kind)
        self.pending[op.region] = Pending(op.region, kind, from_store, to_store, loads)

    def ended(self, region: int, success: bool) -> None:
        """Let an operator's load count for a while longer, or no more where it failed."""
        found = self.pending.get(region)
        if found is not None and found.until_us is None:
            self.pending[region] = found._replace(until_us=self.world.now_us + (ZOMBIE_US if success else 0))
