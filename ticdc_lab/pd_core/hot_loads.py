"""How hot stores are, how uneven that is, and whether moving a hot peer would even it out (pkg/statistics,
hot_region_rank_v2.go).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.pd_core.stores import Store

BYTE, KEY, QUERY = 0, 1, 2
DIMENSIONS = MappingProxyType({"byte": BYTE, "key": KEY, "query": QUERY})

READ, WRITE = "read", "write"
MOVE_PEER, TRANSFER_LEADER = "move-peer", "transfer-leader"

Loads = tuple[float, float, float]
"""Bytes, keys and queries a second."""

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

    ``stores`` are ids of those that reported; ``loads`` has a row for each, a column for each dimension, and so has
    ``pending``, what running hot-region operators will have added.
    """

    kind: str
    stores: Sequence[int]
    loads: NDArray[np.float64]
    peers: Sequence[HotPeer]
    pending: NDArray[np.float64] | None = None


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


Column = list[float]


class StoreLoads(NamedTuple):
    """What stores carry: a column for each dimension, a place in it for each store.

    ``least`` and ``most`` are if running operators only took from a store, or only added to it; ``pending`` is what
    they will have added. ``expected`` is the mean of all stores, ``spread`` their deviation over it. ``tenth`` is the
    load of a store's tenth peer, infinite if it has fewer.
    """

    stores: Sequence[Store]
    peers: Sequence[Sequence[HotPeer]]
    now: Sequence[Column]
    pending: Sequence[Column]
    least: Sequence[Column]
    most: Sequence[Column]
    tenth: Sequence[Column]
    expected: Column
    spread: Column


def store_loads(stores: Mapping[int, Store], flow: Flow, action: str) -> StoreLoads:
    """Give the loads that matter for an action.

    Leaders that are written are counted by their peers, as stores do not distinguish them; all else by the stores. The
    mean is of all stores that reported; for leaders only of stores that take leaders.
    """
    leaders = action == TRANSFER_LEADER
    rows = [row for row, i in enumerate(flow.stores) if i in stores]
    there = [stores[flow.stores[row]] for row in rows]
    peers: dict[int, list[HotPeer]] = {s.id: [] for s in there}
    for p in flow.peers:
        if p.store in peers and (p.leads or not leaders):
            peers[p.store].append(p)
    now = flow.loads[rows].reshape(-1, 3)
    if flow.kind == WRITE and leaders:
        for dim in (BYTE, KEY):
            now[:, dim] = [sum(p.loads[dim] for p in found) for found in peers.values()]
    elif flow.kind == WRITE:
        now[:, QUERY] = 0.0
    pending = np.zeros(now.shape) if flow.pending is None else flow.pending[rows]
    counted = now[[not (leaders and s.leader_in_paused) for s in there]]
    n = max(len(counted), 1)
    expected = counted.sum(axis=0) / n
    deviation = np.sqrt(((counted - expected) ** 2).sum(axis=0) / n)
    # where nothing is carried, it is never uniform
    spread = np.divide(deviation, expected, out=np.full(3, np.inf), where=expected != 0)
    of = [[sorted((p.loads[dim] for p in found), reverse=True) for found in peers.values()] for dim in range(3)]
    tenth = [[loads[_TOP - 1] if len(loads) >= _TOP else float("inf") for loads in column] for column in of]
    columns = (c.T.tolist() for c in (now, pending, np.minimum(now, now + pending), np.maximum(now, now + pending)))
    carried, added, least, most = columns
    return StoreLoads(
        there, [*peers.values()], carried, added, least, most, tenth, expected.tolist(), spread.tolist()
    )  # fmt: skip


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
    """A source, a target (places in the columns) and what would move between them in one dimension."""

    loads: StoreLoads
    source: int
    target: int
    dim: int
    rate: float
    least: float


def score(pair: Pair, r: Ratios) -> int:
    """Rate a move for one dimension.

    3: both are even then. 2: on the way there. 1: a little beyond. 0: no worse. -1, -2: worse.
    """
    high, low = pair.loads.least[pair.dim][pair.source], pair.loads.most[pair.dim][pair.target]
    rate, reverse, top = pair.rate, False, pair.source
    if high < low:
        high, low, rate, reverse, top = low, high, -rate, True, pair.target
    if high * r.even_now <= low:
        from_, to = _range(high, low, r.even)  # two even stores stay so, or it is worse
        return 0 if min(from_, -pair.least) <= rate <= to else -2
    from_, to = _range(high, low, r.even)
    if high * r.nearly_now <= low:
        worse_from, worse_to = _range(high, low, r.nearly)
        worse_from = min(worse_from, -pair.least)
        better_from, better_to = from_, to
        waits = True
    else:
        better_from = min(from_ * r.perceived, low * r.least_hot, pair.loads.tenth[pair.dim][top])
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


def _range(high: float, low: float, ratio: float) -> tuple[float, float]:
    """Give the rates that would bring two loads within a ratio."""
    return (high * ratio - low) / (1 + ratio), (high - low * ratio) / (1 + ratio)


def _pending(pair: Pair) -> float:
    pending = pair.loads.pending[pair.dim]
    return abs(pending[pair.source]) + abs(pending[pair.target])


def _tolerated(pair: Pair, reverse: bool) -> bool:
    """Whether the source stays the hotter one with what is under way counted twice and more."""
    source, target = (pair.target, pair.source) if reverse else (pair.source, pair.target)
    now, pending = pair.loads.now[pair.dim], pair.loads.pending[pair.dim]
    a, b = now[source], now[target]
    if a <= b:
        return False
    factor = 1 + _PENDING_FACTOR * a / (a - b)
    return a - factor * pending[source] > b + factor * pending[target]


def rank(first: int, second: int) -> int:
    """Rank a move by its scores in both dimensions: above 0 it is made, 4 is the best."""
    if first > 0:
        return 4 if second > 0 else 3 if second == 0 else 2
    if second > 0:
        return 1 if first == 0 else 0
    return -1
