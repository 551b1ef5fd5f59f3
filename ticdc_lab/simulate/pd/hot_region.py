"""Hot regions: the best move of a hot peer or leader between stores (hot_region_solver.go, rank formula v2).

Left out of what PD does: exchanging two regions, splitting a region by its buckets, TiFlash, and the history of loads,
which belongs to a run over time. `pd_notes.md` section 10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ticdc_lab.simulate.pd.builder import CannotBuild
from ticdc_lab.simulate.pd.cluster import Cluster, fit_of, is_replicated, region_stores
from ticdc_lab.simulate.pd.create import move_peer, transfer_leader
from ticdc_lab.simulate.pd.explained import Explained, Notes
from ticdc_lab.simulate.pd.filters import (
    LEADER_TARGET,
    REGION_TARGET,
    Filter,
    by_state,
    excluding,
    fits_leader,
    fits_rule,
    keep,
    no_special_use,
    safe_location,
)
from ticdc_lab.simulate.pd.hot_loads import (
    MOVE_PEER,
    READ,
    TRANSFER_LEADER,
    WRITE,
    Flow,
    HotPeer,
    HotSettings,
    StoreLoad,
    store_loads,
)
from ticdc_lab.simulate.pd.hot_order import Problem, Solution, solution_of
from ticdc_lab.simulate.pd.operators import Kind, Operator
from ticdc_lab.simulate.pd.regions import Peer, Region, voters
from ticdc_lab.simulate.pd.stores import Store

PEERS_FIRST = 0.66
"""Share of the rounds in which hot writes are balanced by peers first."""


def solve(cluster: Cluster, regions: Mapping[int, Region], flow: Flow, action: str, settings: HotSettings) -> Explained:
    """Give the best move of a hot peer, or of leadership; all of equally good ones.

    Parameters
    ----------
    cluster
        The cluster.
    regions
        Hot regions by id.
    flow
        What is read or written.
    action
        ``move-peer`` or ``transfer-leader``.
    settings
        The scheduler's.
    """
    problem = Problem(cluster, regions, flow, action, settings, store_loads(cluster.stores, flow, action))
    notes = Notes()
    notes.look_at(sorted(problem.loads))
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
    for source in p.loads.values():
        if not source.peers:
            continue
        if not _is_hot(p, source):
            notes.reject(source.store.id, "source", "hot", "its load does not exceed the mean by enough")
            continue
        for peer in source.peers:
            region = p.regions.get(peer.region)
            if region is None or not _available(p, region, peer):
                continue
            for target in _targets(p, source, peer, region, notes):
                yield from solution_of(p, source, target, peer, notes)


def _is_hot(p: Problem, load: StoreLoad) -> bool:
    ratio = p.settings.source_tolerance
    return any(load.least(d) > ratio * load.expected[d] for d in _dimensions(p))


def _is_cold(p: Problem, load: StoreLoad) -> bool:
    ratio = p.settings.target_tolerance
    return any(load.most(d) * ratio < load.expected[d] for d in _dimensions(p))


def _dimensions(p: Problem) -> tuple[int, ...]:
    """Give the dimensions of which one must tell: both, but only the first for leaders that are written."""
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


def _targets(p: Problem, source: StoreLoad, peer: HotPeer, region: Region, notes: Notes) -> list[StoreLoad]:
    kept = keep(_candidates(p, region, peer), _filters(p, source.store, region), notes)
    cold = []
    for store in kept:
        load = p.loads[store.id]
        if _is_cold(p, load):
            cold.append(load)
        else:
            notes.reject(store.id, "target", "hot", "its load is not below the mean by enough")
    return cold


def _candidates(p: Problem, region: Region, peer: HotPeer) -> list[Store]:
    others = [load.store for i, load in p.loads.items() if i != peer.store]
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
    safe = (
        fits_rule(fit_of(p.cluster, region), source.id)
        if config.placement_rules
        else safe_location(config.location_labels, region_stores(p.cluster, region), source)
    )
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
