"""What running operators, and those that finished quickly, will have added to stores; kept up to date step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from ticdc_lab.simulate.pd.cluster import Influence
from ticdc_lab.simulate.pd.operators import AddLearner, MergeRegion, RemovePeer, SplitRegion, Step, TransferLeader
from ticdc_lab.simulate.pd.regions import Region

Effects = tuple[tuple[int, Influence], ...]
"""Of stores, by id."""


def effects_of(step: Step, region: Region) -> Effects:
    """Give what a step adds to stores.

    A merge takes the region that stays off the counts of its stores, a split adds one: neither changes sizes.
    """
    size = region.size
    match step:
        case AddLearner(store, _):
            return ((store, Influence(size, 1)),)
        case RemovePeer(store):
            return ((store, Influence(-size, -1)),)
        case TransferLeader(a, b):
            return ((a, Influence(0, 0, -size, -1)), (b, Influence(0, 0, size, 1)))
        case MergeRegion(_, _, True):
            return _on_every_store(region, -1)
        case SplitRegion():
            return _on_every_store(region, 1)
        case _:
            return ()


def _on_every_store(region: Region, regions: int) -> Effects:
    led = {p.store: regions if p.store == region.leader else 0 for p in region.peers}
    return tuple((store, Influence(0, regions, 0, leaders)) for store, leaders in led.items())


def _sum(one: Influence, other: Influence, sign: int) -> Influence:
    return Influence(
        one.region_size + sign * other.region_size, one.region_count + sign * other.region_count,
        one.leader_size + sign * other.leader_size, one.leader_count + sign * other.leader_count,
    )  # fmt: skip


class Sums:
    """Sums of influence a store."""

    def __init__(self) -> None:
        self.of: dict[int, Influence] = {}
        self.version = 0

    def add(self, effects: Iterable[tuple[int, Influence]], sign: int) -> None:
        """Add effects, or take them away."""
        self.version += 1
        for store, e in effects:
            old = self.of.get(store)
            if old is None:
                old = Influence()
            self.of[store] = _sum(old, e, sign)


class Fast:
    """Operators that finished within ten seconds: they count for ten seconds more, the last one of each region."""

    def __init__(self, for_us: int) -> None:
        self.for_us = for_us
        self.latest: dict[int, tuple[int, Effects]] = {}
        self.expiring: deque[tuple[int, int]] = deque()
        self.sums = Sums()

    def push(self, region: int, effects: Effects, now_us: int) -> None:
        """Remember what an operator did; an older one of the same region is forgotten (tikv/pd#11133)."""
        if region in self.latest:
            self.sums.add(self.latest[region][1], -1)
        self.latest[region] = (now_us + self.for_us, effects)
        self.expiring.append((now_us + self.for_us, region))
        self.sums.add(effects, 1)

    def expire(self, now_us: int) -> None:
        """Forget what is old."""
        while self.expiring and self.expiring[0][0] <= now_us:
            until_us, region = self.expiring.popleft()
            if region in self.latest and self.latest[region][0] == until_us:
                self.sums.add(self.latest.pop(region)[1], -1)


def together(one: Mapping[int, Influence], other: Mapping[int, Influence]) -> dict[int, Influence]:
    """Add two sums."""
    found = dict(one)
    for store, e in other.items():
        old = found.get(store)
        found[store] = e if old is None else _sum(old, e, 1)
    return found
