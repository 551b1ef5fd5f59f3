"""The checkers' patrol: which regions need a look, found all at once, and what is done about each.

PD looks at every region some times a second. Here a region is looked at when something about it or about the stores
has changed; whether it may need anything is first asked of all regions together.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.pd_core.checkers import ALONE, check_region
from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.explained import Explained
from ticdc_lab.pd_core.filters import REGION_TARGET, state_forbids
from ticdc_lab.pd_core.location import distances, may_improve
from ticdc_lab.pd_core.merge_checker import Neighbours
from ticdc_lab.pd_core.operators import Kind
from ticdc_lab.pd_core.rules import default_rules
from ticdc_lab.pd_core.stores import PREPARING, SERVING, Store, is_low_on_space
from ticdc_lab.simulate.pd.world.columns import NONE, AllRegions
from ticdc_lab.simulate.pd.world.start import SECOND_US
from ticdc_lab.simulate.pd.world.stores import ADD, REMOVE

_LATER_US = 200_000
_MANY = 4096
SOON = "tried again soon"
_LIMIT_WORDS = (("add-limit:", ADD), ("remove-limit:", REMOVE))


class Waits(NamedTuple):
    """Store limits that a region waits for, as positions and ADD or REMOVE: all of them, or one."""

    limits: tuple[tuple[int, int], ...]
    every: bool

    def until_s(self, closed: Mapping[tuple[int, int], float]) -> float | None:
        """Give when the wait may be over, None where it is."""
        times = [closed[k] for k in self.limits if k in closed]
        if not times or (not self.every and len(times) < len(self.limits)):
            return None
        return max(times) if self.every else min(times)


class Patrol:
    """Regions to look at, in order, and when; ``reasons`` counts looks without an operator by their reason.

    ``since_us`` is when the PD that leads began to.
    """

    def __init__(self, regions: AllRegions) -> None:
        self.regions = regions
        self.alone = ALONE._replace(borders=regions.labels.borders)
        self.todo: dict[int, int] = {}
        self.crowded = False
        self.waiting: dict[int, Waits] = {}
        self.to_merge: dict[int, None] = {}
        self.cursor = NONE
        self.scanned_us = 0
        self.deferred: list[tuple[int, int]] = []
        self.reasons: Counter[str] = Counter()
        self.split_us: dict[int, int] = {}
        self.seen_stores: tuple[object, ...] = ()
        self.leaders_given: Counter[int] = Counter()
        self.since_us = 0
        self.cooling: dict[int, None] = {}

    def forget(self, now_us: int) -> None:
        """Let another PD lead, which looks at all regions again, and merges none for a while."""
        for rows in (self.todo, self.waiting, self.to_merge, self.split_us, self.cooling, self.leaders_given):
            rows.clear()
        self.deferred.clear()
        self.since_us, self.seen_stores = now_us, ()

    def mark(self, row: int) -> None:
        """Look at a region soon."""
        self.todo[row] = 0
        self.waiting.pop(row, None)

    def mark_all(self, rows: Iterable[int]) -> None:
        for row in rows:
            self.mark(row)

    def order(self, chance: Random, now_us: int) -> Iterator[int]:
        """Give the regions to look at, in the order in which PD comes to them.

        Its patrol goes by keys. Regions that found a limit used up wait in a list that it walks before, in no order:
        whichever it meets first has the room that there is. Of very many only those that are due are put in order.
        """
        many = len(self.todo) > _MANY
        rows = [row for row, at in self.todo.items() if at <= now_us] if many else list(self.todo)
        crowded, self.crowded = self.crowded, False
        for i in range(len(rows)):
            if crowded:
                j = chance.randrange(i, len(rows))
                rows[i], rows[j] = rows[j], rows[i]
            yield rows[i]

    def next_us(self) -> int | None:
        times = [*self.todo.values(), *(at for at, _ in self.deferred[:1])]
        return min(times, default=None)

    def notice(self, cluster: Cluster) -> None:
        """Find all regions that may need something, where the stores or the settings changed in a way that matters."""
        seen = (cluster.config, cluster.rules, *(_matters(s, cluster) for s in cluster.stores.values()))
        if seen != self.seen_stores:
            self.seen_stores = seen
            self.mark_all(np.flatnonzero(self.suspicious(cluster)).tolist())

    def suspicious(self, cluster: Cluster) -> NDArray[np.bool_]:
        """Find among all regions which may need a repair, a better place or a merge."""
        r, config = self.regions, cluster.config
        alive, peers = r.alive[: r.n], r.store[: r.n]
        if cluster.rules != default_rules(config) and config.placement_rules:
            return alive.copy()
        stores = [cluster.stores.get(i) for i in r.store_ids]
        sick = np.array([s is None or s.state not in (PREPARING, SERVING) for s in stores] + [False])
        for i in r.down:
            sick[i] = True
        found = ((peers >= 0).sum(axis=1) != config.max_replicas) | sick[peers].any(axis=1)
        found |= (r.role[: r.n] != 0).any(axis=1) | r.pending[: r.n].any(axis=1)
        small = config.is_small(r.size[: r.n], r.keys[: r.n])
        found |= small
        labels = config.location_labels
        if labels:
            known = [s if s is not None else Store(0) for s in stores]
            takes = np.array([s is not None and _takes(s, cluster) for s in stores])
            apart = distances(known, labels)
            found |= may_improve(apart, peers.astype(np.int32), takes)
        return np.asarray(found & alive, np.bool_)

    def mark_beside(self, row: int, config: Config) -> None:
        """Look soon at the small regions next to one that changed: it may be what they could not merge into."""
        for beside in self.regions.beside(row):
            if beside >= 0 and self.is_small(beside, config):
                self.mark(beside)

    def scan(self, until_us: int, every_us: int, a_slice: int, passed: int = 0) -> list[int]:
        """Advance through the key space, a slice every so often; give those that may merge, in the order met.

        A slice ends at the last region, and the next begins at the first one again, as PD's patrol does. Of the first
        slice so many regions are ``passed`` already.
        """
        r, found = self.regions, dict[int, None]()
        behind = (until_us - self.scanned_us) // every_us
        self.scanned_us += behind * every_us
        for _ in range(min(behind, -(-r.count // a_slice) + behind % -(-r.count // a_slice))):
            known = self.cursor >= 0 and (r.alive[self.cursor] or self.cursor in r.holes)
            row = self.cursor if known else r.first()
            for _ in range(a_slice):
                if row < 0:
                    break
                if passed <= 0 and row in self.to_merge:
                    found[row] = None
                passed -= 1
                row = int(r.after[row])
            self.cursor = row
        return list(found)

    def merged(self, source: int, target: int) -> None:
        """Forget a region that is gone; the patrol resumes at the one that has its keys."""
        self.todo.pop(source, None)
        self.to_merge.pop(source, None)
        if self.cursor == source:
            self.cursor = target

    def merge_later(self, row: int, now_us: int) -> None:
        """Look again soon at a region whose merge was refused, as a store limit had no room."""
        heapq.heappush(self.deferred, (now_us + _LATER_US, row))

    def cooled(self) -> None:
        """Look again at regions that could not merge because something was hot."""
        rows = [row for row in self.cooling if self.regions.alive[row]]
        self.cooling.clear()
        self.mark_all(rows)

    def come_back(self, now_us: int) -> None:
        """Look again at regions that may merge from now on."""
        while self.deferred and self.deferred[0][0] <= now_us:
            row = heapq.heappop(self.deferred)[1]
            if self.regions.alive[row]:
                self.mark(row)

    def is_small(self, row: int, config: Config) -> bool:
        """Whether a region is one to merge."""
        r = self.regions
        return bool(config.is_small(r.size[row], r.keys[row]))

    def neighbours(self, row: int, cluster: Cluster, now_us: int) -> Neighbours:
        """Give the regions beside a region, where it may be merged at all; where it may later, it is looked at then."""
        r, config = self.regions, cluster.config
        if not self.is_small(row, cluster.config):
            return self.alone
        from_us = self.split_us.get(row, self.since_us) + int(config.split_merge_interval_s * SECOND_US)
        if now_us < from_us:
            heapq.heappush(self.deferred, (from_us, row))
            return self.alone
        beside = r.beside(row)
        before, after = (r.region(i) if i >= 0 else None for i in beside)
        fresh = now_us - int(config.split_merge_interval_s * SECOND_US)
        split = frozenset(int(r.id[i]) for i in beside if i >= 0 and self.split_us.get(i, fresh) > fresh)
        return self.alone._replace(before=before, after=after, recently_split=split)

    def look(self, row: int, cluster: Cluster, now_us: int, running: Counter[Kind]) -> Explained:
        """Check a region; one that waits for something that passes is looked at again later.

        Where nothing is to be repaired a small one may merge: PD comes to that in the order of keys, :meth:`scan`.
        """
        region = self.regions.region(row)
        told = check_region(cluster, region, self.alone, running=dict(running), leaders_given=self.leaders_given)
        if told.operators:
            del self.todo[row]
            return told
        self.reasons[told.because] += 1
        if told.limit or SOON in told.because:
            self.later(row, now_us, self._waits(told))
        else:
            del self.todo[row]
        if self.is_small(row, cluster.config):
            self.to_merge[row] = None
        return told

    def look_at_merge(self, row: int, cluster: Cluster, now_us: int, running: Counter[Kind]) -> Explained:
        """Check whether a region may merge; one that is hot, or beside a hot one, is looked at when one has cooled."""
        beside = self.neighbours(row, cluster, now_us)
        region, up_s = self.regions.region(row), (now_us - self.since_us) / SECOND_US
        told = check_region(cluster, region, beside, up_s=up_s, running=dict(running), leaders_given=self.leaders_given)
        self.to_merge.pop(row, None)
        if not told.operators:
            self.reasons[told.because] += 1
            if region.hot or any(n is not None and n.hot for n in (beside.before, beside.after)):
                self.cooling[row] = None
        return told

    def _waits(self, told: Explained) -> Waits | None:
        """Give the store limits in the way, where nothing else is."""
        passing = [r for r in told.rejected if r.filter == "state"]
        limits = tuple(
            (self.regions.at[r.store], which) for r in passing for word, which in _LIMIT_WORDS if r.why.startswith(word)
        )
        return Waits(limits, every=False) if limits and len(limits) == len(passing) and not told.limit else None

    def later(self, row: int, now_us: int, waits: Waits | None = None) -> None:
        """Look at a region again in a while, or when the limits that it waits for have room."""
        self.todo[row] = now_us + _LATER_US
        self.crowded = True
        if waits is not None and waits.limits:
            self.waiting[row] = waits
        else:
            self.waiting.pop(row, None)

    def still_waits(self, row: int, closed: Mapping[tuple[int, int], float], now_us: int) -> bool:
        """Whether a region waits for limits that have no room yet."""
        waits = self.waiting.get(row)
        until_s = waits.until_s(closed) if waits is not None else None
        if until_s is None:
            return False
        self.todo[row] = max(round(until_s * SECOND_US), now_us + 1)
        return True


def _matters(s: Store, cluster: Cluster) -> tuple[object, ...]:
    c = cluster.config
    silent = s.heartbeat_age_s
    return (
        s.id, s.state, s.labels, silent > 20, silent >= c.max_store_down_time_s, is_low_on_space(s, c.low_space_ratio),
        s.busy, s.evicted, s.leader_in_paused,
    )  # fmt: skip


def _takes(s: Store, cluster: Cluster) -> bool:
    config = cluster.config
    lasting = state_forbids(s, REGION_TARGET, config, temporary_too=False)
    return lasting is None and not is_low_on_space(s, config.low_space_ratio)
