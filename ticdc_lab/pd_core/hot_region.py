"""Hot regions: the best move of a hot peer or leader between stores (hot_region_solver.go, rank formula v2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ticdc_lab.pd_core.balance_region import safeguard
from ticdc_lab.pd_core.builder import CannotBuild
from ticdc_lab.pd_core.cluster import Cluster, fit_of, is_replicated
from ticdc_lab.pd_core.create import move_peer, transfer_leader
from ticdc_lab.pd_core.explained import Compared, Explained, Notes
from ticdc_lab.pd_core.filters import (
    LEADER_TARGET,
    REGION_TARGET,
    Filter,
    by_state,
    excluding,
    fits_leader,
    keep,
    no_special_use,
)
from ticdc_lab.pd_core.hot_loads import (
    MOVE_PEER,
    READ,
    TRANSFER_LEADER,
    WRITE,
    Flow,
    HotPeer,
    HotSettings,
    Pair,
    StoreLoads,
    rank,
    ratios,
    score,
    store_loads,
)
from ticdc_lab.pd_core.operators import Kind, Operator
from ticdc_lab.pd_core.regions import Peer, Region, voters
from ticdc_lab.pd_core.stores import Store

_UNIFORM = 0.1
_RATE_STEPS = (100.0, 10.0, 10.0)


class Problem(NamedTuple):
    """What is asked: which flow, by which action."""

    cluster: Cluster
    regions: Mapping[int, Region]
    flow: Flow
    action: str
    settings: HotSettings
    loads: StoreLoads


class Solution(NamedTuple):
    """A move and how good it is: ``order`` is PD's order of solutions."""

    peer: HotPeer
    target: int
    order: tuple[int, ...]


def solution_of(p: Problem, source: int, target: int, peer: HotPeer, notes: Notes) -> Iterator[Solution]:
    """Rank a move; one that is not worth it is no solution."""
    s, (one, two), loads = p.settings, p.settings.priorities, p.loads
    if peer.loads[one] < s.least[one] and peer.loads[two] < s.least[two]:
        return
    first_ratios, second_ratios = ratios(s)
    first = score(Pair(loads, source, target, one, peer.loads[one], s.least[one]), first_ratios)
    second = score(Pair(loads, source, target, two, peer.loads[two], s.least[two]), second_ratios)
    ranked = rank(first, second)
    even = loads.spread[one] < _UNIFORM / 2, loads.spread[two] < _UNIFORM
    needless = all(even) or (even[0] and ranked in (2, 3)) or (even[1] and ranked == 1)
    held = ranked > 0 and not needless
    from_, to = loads.stores[source].id, loads.stores[target].id
    compared = Compared(f"region {peer.region}", from_, to, loads.least[one][source], loads.most[one][target], held)
    notes.compared[compared] = None
    if held:
        yield Solution(peer, to, (ranked, *_order(p, source, target), *_peer_order(p, peer, ranked, first, second)))


def _order(p: Problem, source: int, target: int) -> tuple[int, ...]:
    """Prefer the hottest source, then the coldest target, then those on which little is under way."""
    parts: list[int] = []
    for place, sign, columns, edge in ((source, 1, p.loads.least, max), (target, -1, p.loads.most, min)):
        for dim in p.settings.priorities:
            parts.append(sign * _steps(columns[dim][place] - edge(columns[dim]), _step(p, dim)))
        dim = p.settings.priorities[0]
        parts.append(-_steps(abs(p.loads.pending[dim][place]), _step(p, dim)))
    return tuple(parts)


def _step(p: Problem, dim: int) -> float:
    return max(p.loads.now[dim], default=0.0) * p.settings.rank_steps[dim]


def _steps(value: float, step: float) -> int:
    return int(value / step) if step else 0


def _peer_order(p: Problem, peer: HotPeer, ranked: int, first: int, second: int) -> tuple[int, ...]:
    """Prefer the better score, then the larger peer on the way to balance, the smaller one once it is reached."""
    told = []
    for dim, found in zip(p.settings.priorities, (first, second), strict=True):
        size = _steps(peer.loads[dim], _RATE_STEPS[dim])
        told.append((found, size if found == 2 else -size))
    return (*told[1], *told[0]) if ranked == 1 else (*told[0], *told[1])


PEERS_FIRST = 0.66
"""Share of the rounds in which hot writes are balanced by peers first."""


def solve(cluster: Cluster, regions: Mapping[int, Region], flow: Flow, action: str, settings: HotSettings) -> Explained:
    """Give the best move (``move-peer`` or ``transfer-leader``) of a hot peer; all of equally good ones.

    ``regions`` are the hot ones by id, ``flow`` is what is read or written.
    """
    problem = Problem(cluster, regions, flow, action, settings, store_loads(cluster.stores, flow, action))
    notes = Notes()
    notes.look_at(sorted(s.id for s in problem.loads.stores))
    found = sorted(_solutions(problem, notes), key=lambda s: s.order, reverse=True)
    best: list[Operator] = []
    for i, solution in enumerate(found):
        if best and solution.order != found[i - 1].order:
            break
        try:
            best.append(_operator(problem, solution))
        except CannotBuild as e:
            notes.said.append(str(e))
    return notes.explained(tuple(best), best[0].brief if best else "no move would even out the load")


def _solutions(p: Problem, notes: Notes) -> Iterator[Solution]:
    for source, (store, peers) in enumerate(zip(p.loads.stores, p.loads.peers, strict=True)):
        if not peers:
            continue
        tolerance, expected = p.settings.source_tolerance, p.loads.expected
        if not any(p.loads.least[d][source] > tolerance * expected[d] for d in _dimensions(p)):
            notes.reject(store.id, "source", "hot", "its load does not exceed the mean by enough")
            continue
        for peer in peers:
            region = p.regions.get(peer.region)
            if region is None or not _available(p, region, peer):
                continue
            for target in _targets(p, source, peer, region, notes):
                yield from solution_of(p, source, target, peer, notes)


def _dimensions(p: Problem) -> tuple[int, ...]:
    """Give the dimensions that may decide: both, but only the first for leaders that are written."""
    first_only = p.flow.kind == WRITE and p.action == TRANSFER_LEADER
    return p.settings.priorities[:1] if first_only else p.settings.priorities


def _available(p: Problem, region: Region, peer: HotPeer) -> bool:
    if region.down or not is_replicated(p.cluster, region):
        return False
    if p.action == TRANSFER_LEADER:
        return region.leader == peer.store
    leader = p.cluster.stores.get(region.leader)
    sends = leader is not None and not leader.busy
    return sends and region.peer_on(peer.store) is not None and not (p.flow.kind == READ and peer.leads)


def _targets(p: Problem, source: int, peer: HotPeer, region: Region, notes: Notes) -> list[int]:
    places = {s.id: i for i, s in enumerate(p.loads.stores)}
    tolerance, expected = p.settings.target_tolerance, p.loads.expected
    cold = []
    for store in keep(_candidates(p, region, peer), _filters(p, p.loads.stores[source], region), notes):
        place = places[store.id]
        if any(p.loads.most[d][place] * tolerance < expected[d] for d in _dimensions(p)):
            cold.append(place)
        else:
            notes.reject(store.id, "target", "hot", "its load is not below the mean by enough")
    return cold


def _candidates(p: Problem, region: Region, peer: HotPeer) -> list[Store]:
    others = [store for store in p.loads.stores if store.id != peer.store]
    if p.action == MOVE_PEER:
        return others
    followers = {v.store for v in voters(region)}
    takes_peers = by_state(REGION_TARGET, p.cluster.config)
    moves = p.flow.kind == READ
    return [s for s in others if s.id in followers or (moves and not takes_peers.refuses(s))]


def _filters(p: Problem, source: Store, region: Region) -> list[Filter]:
    config = p.cluster.config
    if p.action == TRANSFER_LEADER:
        leaders = [by_state(LEADER_TARGET, config), no_special_use(config)]
        if config.placement_rules:
            leaders.append(fits_leader(fit_of(p.cluster, region), region, source.id, may_move=p.flow.kind == READ))
        return leaders
    safe = safeguard(p.cluster, region, source)
    return [by_state(REGION_TARGET, config), excluding(region.stores), no_special_use(config), safe]


def _operator(p: Problem, solution: Solution) -> Operator:
    region, peer, to = p.regions[solution.peer.region], solution.peer, solution.target
    old, verb = region.peer_on(peer.store), f"hot-{p.flow.kind}"
    if p.action == TRANSFER_LEADER and region.peer_on(to) is not None:
        return transfer_leader(p.cluster, region, to, f"transfer-{verb}-leader", kind=Kind.HOT_REGION)
    new = Peer(0, to, old.role) if old is not None else Peer(0, to)
    if region.leader == peer.store:
        desc = f"move-{verb}-leader"
        return move_peer(p.cluster, region, peer.store, new, desc, kind=Kind.HOT_REGION, leader=to)
    return move_peer(p.cluster, region, peer.store, new, f"move-{verb}-peer", kind=Kind.HOT_REGION)
