"""Moves of hot peers in PD's order: what they are worth, and which of two is better (hot_region_solver.go)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.explained import Compared, Notes
from ticdc_lab.simulate.pd.hot_loads import Flow, HotPeer, HotSettings, StoreLoad
from ticdc_lab.simulate.pd.hot_rank import Pair, rank, ratios, score
from ticdc_lab.simulate.pd.regions import Region

_UNIFORM = 0.1
_RATE_STEPS = (100.0, 10.0, 10.0)


class Problem(NamedTuple):
    """What is asked: which flow, by which action."""

    cluster: Cluster
    regions: Mapping[int, Region]
    flow: Flow
    action: str
    settings: HotSettings
    loads: Mapping[int, StoreLoad]


class Solution(NamedTuple):
    """A move and how good it is: ``order`` is PD's order of solutions."""

    peer: HotPeer
    target: int
    order: tuple[int, ...]


def solution_of(p: Problem, source: StoreLoad, target: StoreLoad, peer: HotPeer, notes: Notes) -> Iterator[Solution]:
    """Rank a move; one that is not worth it is no solution."""
    s, (one, two) = p.settings, p.settings.priorities
    if peer.loads[one] < s.least[one] and peer.loads[two] < s.least[two]:
        return
    first_ratios, second_ratios = ratios(s)
    first = score(Pair(source, target, one, peer.loads[one], s.least[one]), first_ratios)
    second = score(Pair(source, target, two, peer.loads[two], s.least[two]), second_ratios)
    ranked = rank(first, second)
    even = source.spread[one] < _UNIFORM / 2, source.spread[two] < _UNIFORM
    needless = all(even) or (even[0] and ranked in (2, 3)) or (even[1] and ranked == 1)
    held = ranked > 0 and not needless
    loads = source.least(one), target.most(one)
    notes.compared[Compared(f"region {peer.region}", source.store.id, target.store.id, *loads, held)] = None
    if held:
        yield Solution(
            peer, target.store.id, (ranked, *_order(p, source, target), *_peer_order(p, peer, ranked, first, second))
        )


def _order(p: Problem, source: StoreLoad, target: StoreLoad) -> tuple[int, ...]:
    """Prefer the hottest source, then the coldest target, then those on which little is under way."""
    parts: list[int] = []
    for load, sign, value, edge in (
        (source, 1, StoreLoad.least, max),
        (target, -1, StoreLoad.most, min),
    ):
        for dim in p.settings.priorities:
            zero = edge(value(x, dim) for x in p.loads.values())
            parts.append(sign * _steps(value(load, dim) - zero, _step(p, dim)))
        dim = p.settings.priorities[0]
        parts.append(-_steps(abs(load.pending[dim]), _step(p, dim)))
    return tuple(parts)


def _step(p: Problem, dim: int) -> float:
    return max((x.now[dim] for x in p.loads.values()), default=0.0) * p.settings.rank_steps[dim]


def _steps(value: float, step: float) -> int:
    return int(value / step) if step else 0


def _peer_order(p: Problem, peer: HotPeer, ranked: int, first: int, second: int) -> tuple[int, ...]:
    """Prefer the better score, then the larger peer on the way to balance, the smaller one once it is reached."""
    told = []
    for dim, found in zip(p.settings.priorities, (first, second), strict=True):
        size = _steps(peer.loads[dim], _RATE_STEPS[dim])
        told.append((found, size if found == 2 else -size))
    return (*told[1], *told[0]) if ranked == 1 else (*told[0], *told[1])
