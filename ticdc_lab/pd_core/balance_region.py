"""Balance regions: one operator a round, from the highest region score to the lowest that may take the peer.

pkg/schedule/schedulers/balance_region.go; `pd_notes.md` section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ticdc_lab.pd_core.balance import (
    FOLLOWER_HERE,
    LEADER_HERE,
    LEARNER_HERE,
    PENDING_HERE,
    REGIONS,
    RETRIES,
    Draw,
    Scale,
    compare,
    fewer_retries,
    from_lowest,
    scale,
    score_after,
    unfit,
)
from ticdc_lab.pd_core.builder import CannotBuild
from ticdc_lab.pd_core.cluster import Cluster, fit_of, region_stores
from ticdc_lab.pd_core.config import BALANCE_REGION
from ticdc_lab.pd_core.create import move_peer
from ticdc_lab.pd_core.explained import Explained, Notes
from ticdc_lab.pd_core.filters import (
    REGION_SOURCE,
    REGION_TARGET,
    SOURCE,
    Filter,
    by_state,
    excluding,
    fits_rule,
    keep,
    no_special_use,
    safe_location,
)
from ticdc_lab.pd_core.operators import Kind, Operator
from ticdc_lab.pd_core.regions import Peer, Region
from ticdc_lab.pd_core.stores import Store

ORDER = (PENDING_HERE, FOLLOWER_HERE, LEADER_HERE, LEARNER_HERE)
"""Peers by how readily they are moved: a pending one may mean that the disk is overloaded."""


class Field(NamedTuple):
    """A round before a region is drawn: sources from the highest score down, and stores that take nothing now."""

    scale: Scale
    sources: tuple[Store, ...]
    closed: frozenset[int]


def field(cluster: Cluster, notes: Notes) -> Field:
    """Sort the stores for a round."""
    config, stores = cluster.config, list(cluster.stores.values())
    notes.look_at([s.id for s in stores])
    open_ = keep(stores, [by_state(REGION_TARGET, config), no_special_use(config)], notes)
    able = keep(stores, [by_state(REGION_SOURCE, config), no_special_use(config, SOURCE)], notes, SOURCE)
    by = scale(cluster, REGIONS)
    scores = {s.id: score_after(by, s) for s in able}
    able.sort(key=lambda s: -scores[s.id])
    return Field(by, tuple(able), frozenset(cluster.stores) - {s.id for s in open_})


def schedule(
    cluster: Cluster, draw: Draw, retries: Mapping[int, int] = MappingProxyType({}), *, running: int = 0
) -> tuple[Explained, Mapping[int, int]]:
    """Play one round: give the operator, or why there is none, and ``retries`` for the next round.

    ``cluster`` has the influence of running operators, ``draw`` gives random regions of a store, ``retries``: how
    often each store is tried (10 where it is not named), ``running`` region operators run now.
    """
    notes = Notes()
    if running >= cluster.config.region_schedule_limit:
        notes.limit = f"region-schedule-limit {cluster.config.region_schedule_limit}"
        return notes.explained((), "as many region operators run as the limit allows"), retries
    found = field(cluster, notes)
    for i, source in enumerate(found.sources[:-1]):
        for _ in range(retries.get(source.id, RETRIES)):
            region = draw_one(cluster, source, draw, notes)
            if region is None or region.hot or not region.leader:
                continue
            operators = transfer(found, i, region, notes)
            if operators:
                return notes.explained(operators, operators[0].brief), {**retries, source.id: RETRIES}
        retries = fewer_retries(retries, source.id)
    return notes.explained((), "no move pays: every source was tried"), retries


def draw_one(cluster: Cluster, source: Store, draw: Draw, notes: Notes) -> Region | None:
    for kind in ORDER:
        for region in draw(source.id, kind):
            why = may_move(cluster, region, source.id, kind)
            if not why:
                return region
            notes.said.append(f"region {region.id}: {why}")
    return None


def may_move(cluster: Cluster, region: Region, source: int, kind: str) -> str:
    """Give why a region drawn as ``kind`` stays, "" where it may be moved."""
    peer = region.peer_on(source)
    if peer is not None and peer.witness:
        return "its peer there is a witness"
    return unfit(cluster, region, pending_too=kind != PENDING_HERE)


def transfer(found: Field, source_index: int, region: Region, notes: Notes) -> tuple[Operator, ...]:
    """Move a region's peer off a source, to the lowest score that may take it and for which the move pays.

    Equally low targets are equally likely: one operator each.
    """
    source = found.sources[source_index]
    targets = takers(found, source.id, region, notes, found.sources[source_index + 1 :])
    for tied in from_lowest(found.scale, targets):
        paying = [t for t in tied if compare(found.scale, source, t, notes).held]
        if paying:
            return _operators(found.scale, region, source, paying, notes)
    return ()


def takers(
    found: Field, source: int, region: Region, notes: Notes, among: Sequence[Store] | None = None
) -> list[Store]:
    """Give the stores, of all sources or some, that may take a region's peer off a store, at any scores."""
    cluster = found.scale.cluster
    filters = [excluding(region.stores), excluding(found.closed, "it takes no peers now"),
               safeguard(cluster, region, cluster.stores[source])]  # fmt: skip
    return keep(found.sources if among is None else among, filters, notes)


def safeguard(cluster: Cluster, region: Region, source: Store) -> Filter:
    """Refuse stores where the peer would break its rule, or be isolated worse."""
    if cluster.config.placement_rules:
        return fits_rule(fit_of(cluster, region), source.id)
    return safe_location(cluster.config.location_labels, region_stores(cluster, region), source)


def _operators(
    by: Scale, region: Region, source: Store, targets: Sequence[Store], notes: Notes
) -> tuple[Operator, ...]:
    peer = region.peer_on(source.id)
    if peer is None:
        return ()
    scores = {c.target: c for c in notes.compared if c.source == source.id}
    found = []
    for target in targets:
        try:
            new = Peer(0, target.id, peer.role)
            op = move_peer(by.cluster, region, source.id, new, BALANCE_REGION, kind=Kind.REGION)
        except CannotBuild as e:
            notes.said.append(str(e))
            continue
        c = scores[target.id]
        found.append(op._replace(source_score=c.source_score, target_score=c.target_score))
    return tuple(found)
