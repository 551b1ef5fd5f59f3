"""Repair without placement rules: down, offline, missing, extra and badly placed replicas, in this order."""

from __future__ import annotations

from collections.abc import Callable

from ticdc_lab.pd_core.builder import CannotBuild
from ticdc_lab.pd_core.cluster import Cluster, region_stores
from ticdc_lab.pd_core.create import add_peer, move_peer, remove_peer
from ticdc_lab.pd_core.explained import Explained, Notes
from ticdc_lab.pd_core.operators import Kind, Operator, Priority
from ticdc_lab.pd_core.regions import Peer, Region, learners, voters
from ticdc_lab.pd_core.stores import PREPARING, SERVING
from ticdc_lab.pd_core.strategy import Strategy, store_to_add, store_to_fix, store_to_improve, store_to_remove

Found = tuple[Operator, ...]

REMOVE_EXTRA, REMOVE_EXTRA_OFFLINE = "remove-extra-replica", "remove-extra-offline-replica"


def check_replicas(cluster: Cluster, region: Region) -> Explained:
    """Give the operator that repairs a region's replicas (pkg/schedule/checker/replica_checker.go).

    ``max_replicas``, ``location_labels`` and ``isolation_level`` of the settings hold. There is no operator where
    nothing is to be repaired, or nothing can be.
    """
    notes = Notes()
    if not region.leader:
        return notes.explained((), "the region has no leader")
    for repair in (_down, _offline, _missing, _extra, _location):
        operators = repair(cluster, region, notes)
        if operators:
            return notes.explained(operators, f"{operators[0].desc}: {operators[0].brief}")
    told = notes.said[-1] if notes.said else "the replicas are as they should be"
    return notes.explained((), _switched_off(cluster, region) or told)


def _switched_off(cluster: Cluster, region: Region) -> str:
    """Give the setting that keeps a repair from being made, "" where none does."""
    config = cluster.config
    states = {s.state for p in region.peers if (s := cluster.stores.get(p.store))}
    off = (
        ("enable-replace-offline-replica", config.enable_replace_offline_replica, states - {PREPARING, SERVING}),
        ("enable-remove-down-replica", config.enable_remove_down_replica, region.down),
        ("enable-make-up-replica", config.enable_make_up_replica, len(region.peers) < config.max_replicas),
    )
    return next((f"{name} is false" for name, on, needed in off if needed and not on), "")


def _down(cluster: Cluster, region: Region, notes: Notes) -> Found:
    if not cluster.config.enable_remove_down_replica:
        return ()
    for peer in region.peers:
        if peer.store not in region.down:
            continue
        store = cluster.stores.get(peer.store)
        if store is None:
            return ()
        if store.heartbeat_age_s >= cluster.config.max_store_down_time_s:
            return _fix(cluster, region, peer.store, "down", notes)
    return ()


def _offline(cluster: Cluster, region: Region, notes: Notes) -> Found:
    if not cluster.config.enable_replace_offline_replica or learners(region):
        return ()
    for peer in region.peers:
        store = cluster.stores.get(peer.store)
        if store is None:
            return ()
        if store.state not in (PREPARING, SERVING):
            return _fix(cluster, region, peer.store, "offline", notes)
    return ()


def _missing(cluster: Cluster, region: Region, notes: Notes) -> Found:
    if not cluster.config.enable_make_up_replica or len(region.peers) >= cluster.config.max_replicas:
        return ()
    chosen = store_to_add(_strategy(cluster, region), region_stores(cluster, region), notes)
    return _built(
        lambda to: add_peer(cluster, region, Peer(0, to), "make-up-replica", kind=Kind.REPLICA, priority=Priority.HIGH),
        chosen.stores,
        notes,
    )


def _extra(cluster: Cluster, region: Region, notes: Notes) -> Found:
    if not cluster.config.enable_remove_extra_replica or len(voters(region)) <= cluster.config.max_replicas:
        return ()
    old = store_to_remove(_strategy(cluster, region), region_stores(cluster, region), notes)
    return _built(lambda store: remove_peer(cluster, region, store, REMOVE_EXTRA, kind=Kind.REPLICA), old.stores, notes)


def _location(cluster: Cluster, region: Region, notes: Notes) -> Found:
    if not cluster.config.enable_location_replacement:
        return ()
    strategy, stores = _strategy(cluster, region), region_stores(cluster, region)
    found: Found = ()
    for old in store_to_remove(strategy, stores, notes).stores:
        better = store_to_improve(strategy, stores, old, notes)
        found += _moves(cluster, region, old, better.stores, "move-to-better-location", Priority.MEDIUM, notes)
    return found


def _fix(cluster: Cluster, region: Region, store: int, status: str, notes: Notes) -> Found:
    """Remove a lost peer where the others suffice, replace it where they do not."""
    if len(voters(region)) > cluster.config.max_replicas:
        desc = f"remove-extra-{status}-replica"
        return _built(
            lambda old: remove_peer(cluster, region, old, desc, kind=Kind.REPLICA, priority=Priority.HIGH),
            (store,),
            notes,
        )
    chosen = store_to_fix(_strategy(cluster, region), region_stores(cluster, region), store, notes)
    return _moves(cluster, region, store, chosen.stores, f"replace-{status}-replica", Priority.HIGH, notes)


def _moves(
    cluster: Cluster, region: Region, old: int, targets: tuple[int, ...], desc: str, priority: Priority, notes: Notes
) -> Found:
    return _built(
        lambda to: move_peer(cluster, region, old, Peer(0, to), desc, kind=Kind.REPLICA, priority=priority),
        targets,
        notes,
    )


def _built(build: Callable[[int], Operator], stores: tuple[int, ...], notes: Notes) -> Found:
    """Build one operator a store; where none can be built its reason is noted."""
    found = []
    for store in stores:
        try:
            found.append(build(store))
        except CannotBuild as e:
            notes.said.append(str(e))
    return tuple(found)


def _strategy(cluster: Cluster, region: Region) -> Strategy:
    config = cluster.config
    return Strategy(cluster, region, config.location_labels, config.isolation_level)
