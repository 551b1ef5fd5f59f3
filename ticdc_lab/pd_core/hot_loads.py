"""How hot stores are, how uneven that is, and whether moving a hot peer would even it out (pkg/statistics,
hot_region_rank_v2.go).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ticdc_lab.pd_core.stores import Store

BYTE, KEY, QUERY = 0, 1, 2
DIMENSIONS = MappingProxyType({"byte": BYTE, "key": KEY, "query": QUERY})

READ, WRITE = "read", "write"
MOVE_PEER, TRANSFER_LEADER = "move-peer", "transfer-leader"

Loads = tuple[float, float, float]
"""Bytes, keys and queries a second."""

ZERO: Loads = (0.0, 0.0, 0.0)

LEAST_HOT: Mapping[str, Loads] = MappingProxyType({WRITE: (1024.0, 32.0, 32.0), READ: (8192.0, 128.0, 128.0)})
"""What a peer must reach in one respect to be hot."""


class HotPeer(NamedTuple):
    """A peer that is hot enough to be counted, and whether it leads."""

    region: int
    store: int
    leads: bool
    loads: Loads


class Flow(NamedTuple):
    """What is read or written: of stores, from their heartbeats, and of hot peers.

    Stores that never reported are missing. ``pending`` is what running hot-region operators will have added to each.
    """

    kind: str
    stores: Mapping[int, Loads]
    peers: Sequence[HotPeer]
    pending: Mapping[int, Loads] = MappingProxyType({})


class HotSettings(NamedTuple):
    """Settings of the hot-region scheduler, with PD's defaults.

    ``priorities`` are the two dimensions that count, the first more. A store must exceed the mean by
    ``source_tolerance`` to give, and be below it by ``target_tolerance`` to take. ``least`` is what is worth a move.
    """

    priorities: tuple[int, int] = (BYTE, KEY)
    source_tolerance: float = 1.05
    target_tolerance: float = 1.05
    great_dec_ratio: float = 0.95
    least: Loads = (100.0, 10.0, 10.0)
    rank_steps: Loads = (0.05, 0.05, 0.05)


class StoreLoad(NamedTuple):
    """A store's load in one respect: now, what running operators add, the mean of all stores, and their spread."""

    store: Store
    now: Loads
    pending: Loads
    expected: Loads
    spread: Loads
    peers: tuple[HotPeer, ...]

    def least(self, dim: int) -> float:
        """The load if operators only took from it."""
        return min(self.now[dim], self.now[dim] + self.pending[dim])

    def most(self, dim: int) -> float:
        """The load if operators only added to it."""
        return max(self.now[dim], self.now[dim] + self.pending[dim])


def store_loads(stores: Mapping[int, Store], flow: Flow, action: str) -> dict[int, StoreLoad]:
    """Give the loads that matter for an action.

    Leaders that are written are counted by their peers, as stores do not distinguish them; all else by the stores. The
    mean is of all stores that reported; for leaders only of stores that take leaders.
    """
    leaders = action == TRANSFER_LEADER
    peers = {i: tuple(p for p in flow.peers if p.store == i and (p.leads or not leaders)) for i in flow.stores}
    now = {i: _now(flow, i, peers[i], leaders) for i in flow.stores if i in stores}
    counted = [now[i] for i in now if not (leaders and stores[i].leader_in_paused)]
    n = max(len(counted), 1)
    expected = sum(x[0] for x in counted) / n, sum(x[1] for x in counted) / n, sum(x[2] for x in counted) / n
    spread = _spread(counted, expected)
    return {i: StoreLoad(stores[i], now[i], flow.pending.get(i, ZERO), expected, spread, peers[i]) for i in now}


def _now(flow: Flow, store: int, peers: Sequence[HotPeer], leaders: bool) -> Loads:
    told = flow.stores[store]
    if flow.kind == READ:
        return told
    if leaders:
        return sum(p.loads[BYTE] for p in peers), sum(p.loads[KEY] for p in peers), told[QUERY]
    return told[BYTE], told[KEY], 0.0


def _spread(loads: Sequence[Loads], mean: Loads) -> Loads:
    """Give the standard deviation over the mean, infinite where nothing is carried: never uniform."""
    n = max(len(loads), 1)

    def of(dim: int) -> float:
        deviation: float = (sum((x[dim] - mean[dim]) ** 2 for x in loads) / n) ** 0.5
        return deviation / mean[dim] if mean[dim] else float("inf")

    return of(BYTE), of(KEY), of(QUERY)


_PERCEIVED, _LEAST_HOT = (0.2, 0.3), (0.02, 0.03)
_PENDING_FACTOR = 2.0
_TOP = 10
"""The peer of this rank in its store defines what is small there."""


class Ratios(NamedTuple):
    """When two loads are even, and nearly so: the lower over the higher; looser for what is than for what shall be."""

    even: float
    nearly: float
    even_now: float
    nearly_now: float
    perceived: float
    least_hot: float


def ratios(settings: HotSettings) -> tuple[Ratios, Ratios]:
    """Give the ratios of the first and of the second dimension, which is taken less strictly."""
    first = _ratios(settings.great_dec_ratio, 0)
    return first, _ratios(first.nearly, 1)


def _ratios(even: float, which: int) -> Ratios:
    even = min(max(even, 0.7), 0.95)
    nearly = max(2 * even - 1, even - 0.1)
    return Ratios(even, nearly, even - 0.02, nearly - 0.03, _PERCEIVED[which], _LEAST_HOT[which])


class Pair(NamedTuple):
    """A source, a target and what would move between them in one dimension."""

    source: StoreLoad
    target: StoreLoad
    dim: int
    rate: float
    least: float


def score(pair: Pair, r: Ratios) -> int:
    """Rate a move for one dimension.

    3: both are even then. 2: on the way there. 1: a little beyond. 0: no worse. -1, -2: worse.
    """
    high, low = pair.source.least(pair.dim), pair.target.most(pair.dim)
    rate, reverse, top = pair.rate, False, pair.source
    if high < low:
        high, low, rate, reverse, top = low, high, -rate, True, pair.target
    if high * r.even_now <= low:
        return _score_even(pair, r, high, low, rate)
    from_, to = _range(high, low, r.even)
    if high * r.nearly_now <= low:
        worse_from, worse_to = _range(high, low, r.nearly)
        worse_from = min(worse_from, -pair.least)
        better_from, better_to = from_, to
        waits = True
    else:
        better_from = min(from_ * r.perceived, low * r.least_hot, _top_rate(top, pair.dim))
        better_to = to + r.perceived * (high - low - to - better_from)
        worse_from, worse_to = -pair.least, to + r.perceived * (high - low - to)
        waits = False
    if better_from <= rate <= better_to:
        if rate < pair.least or not _tolerated(pair, reverse) or (waits and _pending(pair) >= 1):
            return 0
        return 2 if rate < from_ else 1 if rate > to else 3
    if worse_from <= rate < better_from:
        return 0
    return -1 if better_to < rate <= worse_to else -2


def _score_even(pair: Pair, r: Ratios, high: float, low: float, rate: float) -> int:
    """Two even stores stay so, or it is worse."""
    from_, to = _range(high, low, r.even)
    return 0 if min(from_, -pair.least) <= rate <= to else -2


def _range(high: float, low: float, ratio: float) -> tuple[float, float]:
    """Give the rates that would bring two loads within a ratio."""
    return (high * ratio - low) / (1 + ratio), (high - low * ratio) / (1 + ratio)


def _top_rate(load: StoreLoad, dim: int) -> float:
    if len(load.peers) < _TOP:
        return float("inf")
    return sorted((p.loads[dim] for p in load.peers), reverse=True)[_TOP - 1]


def _pending(pair: Pair) -> float:
    return abs(pair.source.pending[pair.dim]) + abs(pair.target.pending[pair.dim])


def _tolerated(pair: Pair, reverse: bool) -> bool:
    """Whether the source stays the hotter one with what is under way counted twice and more."""
    source, target = (pair.target, pair.source) if reverse else (pair.source, pair.target)
    a, b = source.now[pair.dim], target.now[pair.dim]
    if a <= b:
        return False
    factor = 1 + _PENDING_FACTOR * a / (a - b)
    return a - factor * source.pending[pair.dim] > b + factor * target.pending[pair.dim]


def rank(first: int, second: int) -> int:
    """Rank a move by its scores in both dimensions: above 0 it is made, 4 is the best."""
    if first > 0:
        return 4 if second > 0 else 3 if second == 0 else 2
    if second > 0:
        return 1 if first == 0 else 0
    return -1
