"""How hot stores are: what each carries, what each should carry, and how uneven it is (pkg/statistics).

`pd_notes.md` section 10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ticdc_lab.simulate.pd.stores import Store

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
    """What is read or written: of stores, as their heartbeats said, and of hot peers.

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
    count_step: float = 0.01


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

    Leaders that are written are counted by their peers, as stores do not tell them apart; all else by the stores. The
    mean is that of all stores that reported; for leaders of those only that take leaders.
    """
    leaders = action == TRANSFER_LEADER
    peers = {i: tuple(p for p in flow.peers if p.store == i and (p.leads or not leaders)) for i in flow.stores}
    now = {i: _now(flow, i, peers[i], leaders) for i in flow.stores if i in stores}
    counted = [now[i] for i in now if not (leaders and stores[i].leader_in_paused)]
    expected = _mean(counted)
    spread = _spread(counted, expected)
    return {i: StoreLoad(stores[i], now[i], flow.pending.get(i, ZERO), expected, spread, peers[i]) for i in now}


def _now(flow: Flow, store: int, peers: Sequence[HotPeer], leaders: bool) -> Loads:
    told = flow.stores[store]
    if flow.kind == READ:
        return told
    if leaders:
        return sum(p.loads[BYTE] for p in peers), sum(p.loads[KEY] for p in peers), told[QUERY]
    return told[BYTE], told[KEY], 0.0


def _mean(loads: Sequence[Loads]) -> Loads:
    n = max(len(loads), 1)
    return sum(x[0] for x in loads) / n, sum(x[1] for x in loads) / n, sum(x[2] for x in loads) / n


def _spread(loads: Sequence[Loads], mean: Loads) -> Loads:
    """Give the standard deviation over the mean, infinite where nothing is carried: never uniform."""
    n = max(len(loads), 1)

    def of(dim: int) -> float:
        deviation: float = (sum((x[dim] - mean[dim]) ** 2 for x in loads) / n) ** 0.5
        return deviation / mean[dim] if mean[dim] else float("inf")

    return of(BYTE), of(KEY), of(QUERY)
