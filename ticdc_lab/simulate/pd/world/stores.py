"""Simulated stores: their disks, which clients and snapshots share, their heartbeats, and what PD makes of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.pd_core.limits import (
    LARGE_COST,
    Bucket,
    Windows,
    available,
    bucket_per_minute,
    taken,
    tokens_at,
    with_feedback,
    with_snapshot,
)
from ticdc_lab.pd_core.operators import Priority
from ticdc_lab.pd_core.regions import Region
from ticdc_lab.pd_core.stores import MIB, PREPARING, REMOVED, SERVING, Store, labelled
from ticdc_lab.simulate.pd.world.columns import AllRegions
from ticdc_lab.simulate.pd.world.start import NEVER_US, SECOND_US, StoreStart, WorldSettings

Numbers = NDArray[np.float64]
HEARTBEATS = 60


class Weighted:
    """A weighted average over the last ``size`` values, the newest with the most weight; a row of stores at a time."""

    def __init__(self, size: int, stores: int) -> None:
        self.size = size
        self.values: Numbers = np.zeros((stores, size))
        self.count: NDArray[np.int64] = np.zeros(stores, np.int64)
        self.sum: Numbers = np.zeros(stores)
        self.score: Numbers = np.zeros(stores)

    def add(self, rows: NDArray[np.int64], values: Numbers) -> None:
        count = self.count[rows]
        full = count >= self.size
        old = self.values[rows, count % self.size]
        self.score[rows] += np.where(full, self.size * values - self.sum[rows], (count + 1) * values)
        self.sum[rows] += values - np.where(full, old, 0.0)
        self.values[rows, count % self.size] = values
        self.count[rows] += 1

    def get(self, rows: NDArray[np.int64]) -> Numbers:
        n = np.minimum(self.count[rows], self.size)
        found: Numbers = self.score[rows] / np.maximum(n * (n + 1) / 2, 1)
        return found


class Hull:
    """``WMA(2 * WMA(n / 2) - WMA(n))`` over the square root of n values (pkg/movingaverage/hull.go)."""

    def __init__(self, stores: int) -> None:
        self.half, self.whole = Weighted(HEARTBEATS // 2, stores), Weighted(HEARTBEATS, stores)
        self.root = Weighted(int(HEARTBEATS**0.5), stores)

    def add(self, rows: NDArray[np.int64], values: Numbers) -> None:
        """Take a heartbeat's value for each of some stores."""
        self.half.add(rows, values)
        self.whole.add(rows, values)
        self.root.add(rows, 2 * self.half.get(rows) - self.whole.get(rows))

    def get(self, rows: NDArray[np.int64]) -> Numbers:
        return np.maximum(self.root.get(rows), 0.0)

    def add_store(self) -> None:
        for average in (self.half, self.whole, self.root):
            average.values = np.vstack([average.values, np.zeros((1, average.size))])
            average.count = np.append(average.count, 0)
            average.sum = np.append(average.sum, 0.0)
            average.score = np.append(average.score, 0.0)


BUSY_AFTER_S, SLOW_AFTER_S = 1.0, 0.5
"""Requests that wait for longer: the store's heartbeat reports it as busy; they count as timed out for its score."""

SLOWEST, SLOW, SOUND = 100.0, 80.0, 1.0
"""Of slow scores (TiKV): a round in which a tenth of the requests timed out doubles it, five minutes without bring it
from the worst to the best one. PD calls a store slow from 80 on."""
_SHARE, _RECOVERS_S = 0.1, 300.0


class Disk:
    """One store's; MiB, and MiB a tick.

    ``rate``: what it can give. ``wanted``, ``written``: what clients want, and how much of it they write. ``waiting``:
    what they wanted and did not get yet. ``worst_s``: the longest that a request has waited.
    """

    __slots__ = (
        "_at_tick",
        "_heard_tick",
        "_slow_ticks",
        "_snapshots",
        "rate",
        "score",
        "waiting",
        "wanted",
        "worst_s",
        "written",
    )

    def __init__(self, rate: float) -> None:
        self.rate, self.wanted, self.written, self.waiting, self.worst_s, self.score = rate, 0.0, 0.0, 0.0, 0.0, SOUND
        self._snapshots, self._slow_ticks = 0.0, 0
        self._at_tick = self._heard_tick = 0

    def wait_s(self, settings: WorldSettings) -> float:
        """Give how long a request that comes now waits."""
        return self.waiting / self.rate * settings.tick_us / SECOND_US

    def go_on(self, tick: int, settings: WorldSettings) -> None:
        """Serve clients up to a tick: what snapshots took of the latest one is not theirs."""
        ticks = tick - self._at_tick
        if ticks <= 0:
            return
        self._at_tick = tick
        self.waiting = max(0.0, self.waiting + self.wanted - max(0.0, self.rate - self._snapshots))
        self.waiting = max(0.0, self.waiting + (ticks - 1) * (self.wanted - self.rate))
        self._snapshots = 0.0
        wait_s = self.wait_s(settings)
        self.worst_s = max(self.worst_s, wait_s)
        if wait_s > SLOW_AFTER_S:
            self._slow_ticks += ticks

    def for_snapshots(self, tick: int, settings: WorldSettings) -> float:
        """Give how much of this tick snapshots may still take."""
        self.go_on(tick, settings)
        return max(self.rate - self.wanted - self.waiting, self.rate / 2) - self._snapshots

    def take(self, mib: float) -> None:
        self._snapshots += mib

    def heartbeat(self, tick: int, settings: WorldSettings) -> bool:
        """Judge the time since the heartbeat before: the slow score, and whether the store is busy now."""
        self.go_on(tick, settings)
        ticks = max(1, tick - self._heard_tick)
        share = min(self._slow_ticks / ticks, _SHARE) / _SHARE
        if share:
            self.score = min(SLOWEST, self.score * (1 + share))
        else:
            self.score = max(SOUND, self.score - SLOWEST * ticks * settings.tick_us / SECOND_US / _RECOVERS_S)
        self._slow_ticks, self._heard_tick = 0, tick
        return self.wait_s(settings) > BUSY_AFTER_S

    def want(self, read: float, written: float, tick: int, settings: WorldSettings) -> None:
        """Let clients want other things from now on."""
        if (read + written, written) != (self.wanted, self.written):
            self.go_on(tick, settings)
            self.wanted, self.written = read + written, written

    def change_rate(self, rate: float, tick: int, settings: WorldSettings) -> None:
        self.go_on(tick, settings)
        self.rate = rate


ADD, REMOVE, SEND = 0, 1, 2
UNLIMITED = 1e8
"""Peers a minute: what PD sets for peers that leave a store which is taken offline."""
_OPEN = ("add_open", "remove_open")


@dataclass(slots=True)
class Node:
    """A store: its disk (MiB), whether it runs, and what an administrator set.

    ``cut``: PD and it do not hear of each other, though it may run.
    ``told`` is what PD knows apart from region heartbeats; ``limits`` are its add-peer and remove-peer buckets (v1),
    ``windows`` the snapshots that it sends (v2). ``stale`` are peers, region and MiB, that were removed while it was
    silent; ``sent`` are snapshots since its latest heartbeat: for how many seconds each was sent, and was wanted.
    """

    told: Store
    used: float
    room: float
    amplified: float
    known: bool
    runs: bool
    cut: bool = False
    heartbeat_us: int = 0
    to_compact: float = 0.0
    compact_at_tick: int = 0
    tokens: float = 0.0
    tokens_at_tick: int = 0
    sending: int = 0
    receiving: int = 0
    down_after_s: float = 0.0
    silent_us: int | None = None
    limits: list[Bucket] = field(default_factory=list)
    rates: tuple[float, float] = (0.0, 0.0)
    rates_before: tuple[float, float] | None = None  # while it leaves
    io_mib: float = 0.0
    joined_us: int = 0
    disk: Disk = field(default_factory=lambda: Disk(1.0))
    windows: Windows = field(default_factory=Windows)
    stale: dict[int, float] = field(default_factory=dict)
    sent: list[tuple[float, float]] = field(default_factory=list)

    @property
    def free(self) -> float:
        """Its available space, MiB."""
        return max(0.0, self.room - self.used * self.amplified)

    @property
    def in_touch(self) -> bool:
        """Whether heartbeats come from it, and PD's answers to it."""
        return self.runs and not self.cut


class Nodes:
    """All stores, by position; those that did not join yet are not ``known`` to PD.

    ``closed`` has the limits without room and when each has some again, s; ``opened_us`` is when the first one opened
    since the patrol walked the regions that wait.
    """

    def __init__(self, stores: Sequence[StoreStart], regions: AllRegions, settings: WorldSettings, seed: int) -> None:
        self.settings, self.regions = settings, regions
        self.all: list[Node] = []
        self.smoothed = Hull(0)
        self.dirty: set[int] = set()
        self.cached: dict[int, Store] = {}
        self.seed, self.network = seed, Random(f"network {seed}")
        self.fresh_us = 0
        self.closed: dict[tuple[int, int], float] = {}
        self.opened_us = NEVER_US
        for start in stores:
            self._add(start, start.started)
        self.heartbeats(0)

    def _add(self, start: StoreStart, runs: bool) -> None:
        i = len(self.all)
        held = self.regions.members.mib[i] if i < len(self.regions.members.mib) else 0.0
        told = Store(
            start.id, state=SERVING, labels=labelled(start.labels), capacity=start.capacity_mib * MIB,
            leader_weight=start.leader_weight, region_weight=start.region_weight,
        )  # fmt: skip
        node = Node(told, held, start.capacity_mib - start.foreign_mib, start.amplified, known=runs, runs=runs)
        node.compact_at_tick = self.settings.compaction_ticks - (i * 7 + self.seed) % 10
        node.tokens = self.settings.io_mib_a_tick * self.settings.io_burst_ticks
        node.disk = Disk(self.settings.disk_mib_a_tick)
        self.all.append(node)
        self.smoothed.add_store()
        self.set_limit(i, self.settings.store_limit, 0)

    def join(self, start: StoreStart, now_us: int) -> int:
        """Let a store join: one of those at the start, or a new one; give its position."""
        i = self.regions.at.get(start.id)
        if i is None:
            self.regions.add_store(start.id)
            self._add(start, True)
            i = len(self.all) - 1
        self.all[i].known = self.all[i].runs = True
        self.all[i].joined_us = now_us
        if self.settings.prepares:
            self.change(i, state=PREPARING)
        self.heartbeat([i], now_us)
        return i

    def set_limit(self, i: int, per_minute: tuple[float, float], now_us: int) -> None:
        """Set how many peers a minute a store may gain and lose."""
        node = self.all[i]
        node.rates = per_minute
        at_s = now_us / SECOND_US
        node.limits = [bucket_per_minute(r, at_s) for r in per_minute]
        for which in (ADD, REMOVE):
            self._see_limit(i, which, now_us)

    def use_limits(self, version: str, now_us: int) -> None:
        """Let buckets (v1) or windows (v2) limit stores from now on."""
        self.closed.clear()
        for i, node in enumerate(self.all):
            if version == "v1":
                self.set_limit(i, node.rates, now_us)
            else:
                self.change(i, add_open=True, remove_open=True)

    def change(self, i: int, **fields: object) -> None:
        """Change what PD knows of a store."""
        self.all[i].told = self.all[i].told._replace(**fields)  # type: ignore[arg-type]
        self.dirty.add(i)

    def heartbeats(self, now_us: int) -> None:
        there = [i for i, n in enumerate(self.all) if n.in_touch and n.told.state != REMOVED]
        lost = [i for i in there if self.loses()]
        for i in lost:
            if self.all[i].silent_us is None:
                self.all[i].silent_us = self.all[i].heartbeat_us
        self.heartbeat([i for i in there if i not in lost], now_us)

    def loses(self) -> bool:
        """Whether the network loses a heartbeat, or PD's answer to one, that is sent now."""
        return bool(self.settings.loss) and self.network.random() < self.settings.loss

    def hears(self, i: int) -> bool:
        """Whether messages of PD and a store now reach the other."""
        return self.all[i].in_touch and not self.loses()

    def forget(self, now_us: int) -> None:
        """Let another PD lead: limits are as full as at a start, and averages of free space restart."""
        self.closed.clear()
        self.smoothed = Hull(len(self.all))
        for i, node in enumerate(self.all):
            node.windows = Windows()
            self.set_limit(i, node.rates, now_us)

    def heartbeat(self, positions: Sequence[int], now_us: int) -> None:
        rows, tick_us = np.asarray(positions, np.int64), self.settings.tick_us
        free = np.array([self.all[i].free for i in positions], np.float64)
        self.smoothed.add(rows, free)
        for i, smooth in zip(positions, self.smoothed.get(rows).tolist(), strict=True):
            node = self.all[i]
            node.heartbeat_us, node.silent_us = now_us, None
            busy = node.disk.heartbeat(now_us // tick_us, self.settings)
            for executing_s, total_s in node.sent:
                node.windows = with_feedback(node.windows, executing_s, total_s)
            node.sent.clear()
            self.change(
                i, available=node.free * MIB, averaged=smooth * MIB, used=node.used * node.amplified * MIB,
                sending_snapshots=node.sending, receiving_snapshots=node.receiving, heartbeat_age_s=0.0,
                busy=busy, slow_score=node.disk.score, write_mib_s=node.disk.written * SECOND_US / tick_us,
            )  # fmt: skip

    def view(self, now_us: int) -> dict[int, Store]:
        """Give the stores as PD knows them now, by id. Who looks, and how often, changes nothing that PD does."""
        self.reopen(now_us)
        self._count(now_us)
        for i, node in enumerate(self.all):
            if node.silent_us is not None and node.known:
                self.change(i, heartbeat_age_s=(now_us - node.heartbeat_us) / SECOND_US)
        if self.dirty:
            self.cached = dict(self.cached)
        for told in (self.all[i].told for i in sorted(self.dirty) if self.all[i].known):
            new = told.id not in self.cached
            self.cached[told.id] = told
            if new:
                self.cached = {k: self.cached[k] for k in sorted(self.cached)}
        self.dirty.clear()
        return self.cached

    def expect_counts(self, now_us: int) -> None:
        """Let PD count now what changed before, and a little later what heartbeats of regions report from now on."""
        self._count(now_us)
        self.fresh_us = now_us + self.settings.counts_lag_us

    def _count(self, now_us: int) -> None:
        m = self.regions.members
        if now_us < self.fresh_us:
            return
        for i in sorted(m.touched):
            self.change(
                i, region_count=m.count[i], region_size=m.mib[i], leader_count=m.leaders[i],
                leader_size=m.leader_mib[i], pending_peers=m.pending[i],
            )  # fmt: skip
        m.touched.clear()

    def take_tokens(self, i: int, which: int, cost: float, now_us: int) -> None:
        """Take tokens for adding or removing a peer; the store is closed until there are enough for a large one."""
        node = self.all[i]
        node.limits[which] = taken(node.limits[which], now_us / SECOND_US, cost)
        self._see_limit(i, which, now_us)

    def _see_limit(self, i: int, which: int, now_us: int) -> None:
        self.reopen(now_us)
        bucket, at_s = self.all[i].limits[which], now_us / SECOND_US
        is_open = available(bucket, at_s, LARGE_COST)
        self.change(i, **{_OPEN[which]: is_open})
        self.closed.pop((i, which), None)
        if not is_open:
            missing = LARGE_COST - tokens_at(bucket, at_s)
            self.closed[i, which] = at_s + missing / (bucket.rate_per_s * LARGE_COST)

    def take_window(self, i: int, priority: Priority, mib: float) -> None:
        """Count a snapshot that a store is to send; one that finds no room, as an urgent one may, is not counted."""
        node = self.all[i]
        node.windows = with_snapshot(node.windows, priority, mib) or node.windows

    def reopen(self, now_us: int) -> None:
        """Open the limits that have room by now."""
        at_s = now_us / SECOND_US
        for i, which in [k for k, until_s in self.closed.items() if until_s <= at_s]:
            self.opened_us = min(self.opened_us, int(self.closed.pop((i, which)) * SECOND_US + 1))
            if which != SEND:
                self.change(i, **{_OPEN[which]: True})

    def take_io(self, i: int, tick: int, mib: float) -> float:
        """Give how much of a snapshot a store reads or writes in this tick, at most so much."""
        node, s = self.all[i], self.settings
        if node.tokens_at_tick < tick:
            more = (tick - node.tokens_at_tick) * s.io_mib_a_tick
            node.tokens, node.tokens_at_tick = min(node.tokens + more, s.io_mib_a_tick * s.io_burst_ticks), tick
        taken = min(mib, node.tokens)
        if node.disk.wanted or node.disk.waiting or node.disk.rate != s.disk_mib_a_tick:
            taken = min(taken, node.disk.for_snapshots(tick, s))
            node.disk.take(taken)
        node.tokens -= taken
        node.io_mib += taken
        return taken

    def use(self, i: int, mib: float) -> None:
        """Count data that came."""
        self.all[i].used += mib

    def follow(self, before: Region, after: Region) -> None:
        """Count the data of peers that got theirs, and of those that are no more."""
        had, has = before.stores - before.pending, after.stores - after.pending
        for store in sorted(has - had):
            self.use(self.regions.at[store], after.size)
        for store in sorted(had - has):
            self.removed(self.regions.at[store], before.id, before.size)

    def merged(self, gone: Region, into: Region) -> None:
        """Count the data of a region that another one absorbed, where their peers are not on the same stores."""
        had, has = gone.stores - gone.pending, into.stores - into.pending
        for store in sorted(has - had):
            self.use(self.regions.at[store], gone.size)
        for store in sorted(had - has):
            self.all[self.regions.at[store]].to_compact += gone.size

    def removed(self, i: int, region: int, mib: float) -> None:
        """Count a peer that was removed: a store that is silent does not hear of it, and keeps its data."""
        if self.all[i].runs or not self.settings.keeps_stale_peers:
            self.all[i].to_compact += mib  # free after the next compaction
        else:
            self.all[i].stale[region] = mib

    def forget_stale(self, i: int, region: int) -> bool:
        """Let a store remove what it has of a region that is no more its own; whether it had any."""
        mib = self.all[i].stale.pop(region, None)
        if mib is not None:
            self.all[i].to_compact += mib  # free after the next compaction
        return mib is not None

    def compact(self, tick: int) -> None:
        """Free the space of what was removed, where it is time."""
        for node in self.all:
            if node.runs and tick >= node.compact_at_tick:
                every = self.settings.compaction_ticks
                node.compact_at_tick += ((tick - node.compact_at_tick) // every + 1) * every
                node.used -= node.to_compact
                node.to_compact = 0.0

    def next_compaction(self) -> int:
        """Give the tick of the next compaction that frees anything."""
        return min((n.compact_at_tick for n in self.all if n.to_compact), default=1 << 60)
