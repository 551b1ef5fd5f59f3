"""What administrators do to stores in PD: delete, bring up, bury, put; and when one that prepares may serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.location import compare_location
from ticdc_lab.pd_core.regions import FEW_REGIONS
from ticdc_lab.pd_core.rules import in_force, matches
from ticdc_lab.pd_core.stores import PREPARING, REMOVED, REMOVING, SERVING, Store, is_disconnected, is_tikv, label

STORES_NOT_ENOUGH, STORE_REMOVED = "ErrStoresNotEnough", "ErrStoreRemoved"
STORE_DESTROYED, STORE_IS_UP = "ErrStoreDestroyed", "ErrStoreIsUp"
NO_STORE_FOR_LEADERS, STORE_NOT_FOUND = "ErrNoStoreForRegionLeader", "ErrStoreNotFound"


class CommandTold(NamedTuple):
    """What a command came to: the store as it is now, or PD's error and the reason in words."""

    store: Store | None
    error: str = ""
    because: str = ""


def delete_store(cluster: Cluster, store_id: int, *, physically_destroyed: bool = False) -> CommandTold:
    """Take a store offline: ``pd-ctl store delete``.

    Refused where fewer up TiKV stores than replicas would stay, or none that may lead; not so for a destroyed store,
    nor for one of another engine, whose peers are learners.
    """
    store = cluster.stores.get(store_id)
    if store is None:
        return CommandTold(None, STORE_NOT_FOUND)
    if store.state == REMOVING and store.physically_destroyed == physically_destroyed:
        return CommandTold(store)
    if store.state == REMOVED:
        return CommandTold(None, STORE_REMOVED)
    if store.physically_destroyed:
        return CommandTold(None, STORE_DESTROYED)
    if _is_up(store) and is_tikv(store) and not physically_destroyed:
        refusal = _cannot_spare(cluster, store)
        if refusal:
            return CommandTold(None, *refusal)
    return CommandTold(store._replace(state=REMOVING, physically_destroyed=physically_destroyed))


def _is_up(store: Store) -> bool:
    return store.state in (PREPARING, SERVING)


def _cannot_spare(cluster: Cluster, store: Store) -> tuple[str, str] | None:
    others = [s for s in cluster.stores.values() if _is_up(s) and is_tikv(s) and s.id != store.id]
    need = cluster.config.max_replicas
    if len(others) < need:
        would = f"the number of up stores would be {len(others)} while need {need}"
        return STORES_NOT_ENOUGH, f"can not remove store {store.id} since {would}"
    if all(s.leader_in_paused or s.evicted for s in others):
        return NO_STORE_FOR_LEADERS, f"can not remove store {store.id} since no other store takes leaders"
    return None


def bring_up(cluster: Cluster, store_id: int) -> CommandTold:
    """Take a store back from being offline: ``pd-ctl store cancel-delete``."""
    store = cluster.stores.get(store_id)
    if store is None:
        return CommandTold(None, STORE_NOT_FOUND)
    if store.state == REMOVED:
        return CommandTold(None, STORE_REMOVED)
    if store.physically_destroyed:
        return CommandTold(None, STORE_DESTROYED)
    return CommandTold(store if _is_up(store) else store._replace(state=SERVING))


def bury_store(cluster: Cluster, store_id: int, *, force: bool = False) -> CommandTold:
    """Make a store a tombstone: an offline one, or by force one that is silent."""
    store = cluster.stores.get(store_id)
    if store is None:
        return CommandTold(None, STORE_NOT_FOUND)
    if _is_up(store) and not (force and is_disconnected(store)):
        return CommandTold(None, STORE_IS_UP, "neither offline nor disconnected")
    return CommandTold(store._replace(state=REMOVED))


def may_take_address(store: Store) -> bool:
    """Whether a new store may come with the address of this one: only of a tombstone or a destroyed store."""
    return store.state == REMOVED or store.physically_destroyed


def checked_states(stores: Mapping[int, Store]) -> dict[int, Store]:
    """Give the stores after the check of every 10 s: an offline store without regions becomes a tombstone."""
    return {
        i: s._replace(state=REMOVED) if s.state == REMOVING and s.region_size == 0 else s for i, s in stores.items()
    }


ENOUGH = 0.9
"""Part of its share at which a store serves."""

LONGEST_PREPARING_S = 48 * 3600.0

SizeBetween = Callable[[str, str], float]
"""Gives the MiB of the regions between two keys; "" is open."""


class _Levels(NamedTuple):
    """The location labels that spread replicas; ``exact``: the last has just as many values as there are replicas."""

    labels: tuple[str, ...]
    exact: bool


def topology_weight(store: Store, stores: Sequence[Store], labels: Sequence[str], replicas: int) -> float:
    """Give the part of a rule's data that a store should hold by where it is.

    ``stores`` are those that the rule lets hold peers. Every place of a level has the same part, and the stores of a
    place share it. Labels count down to the level with as many values as replicas; a level with more does not count,
    nor do those below it.
    """
    placed = [_place(s, labels) for s in stores if s.state in (PREPARING, SERVING)]
    levels = _levels(placed, labels, replicas)
    beside = sum(s.id != store.id and compare_location(store, s, levels.labels) < 0 for s in stores)
    if levels.exact:
        return 1 / replicas / (1 + beside)
    own, weight = _place(store, labels), 1.0
    for depth in range(len(levels.labels)):
        here = {p[: depth + 1] for p in placed if p[:depth] == own[:depth]}
        if own[: depth + 1] not in here:
            break
        weight /= len(here)
    return weight / (1 + beside)


def _place(store: Store, labels: Sequence[str]) -> tuple[str, ...]:
    return tuple(label(store, key) for key in labels)


def _levels(placed: Sequence[tuple[str, ...]], labels: Sequence[str], replicas: int) -> _Levels:
    for depth in range(len(labels)):
        values = len({p[: depth + 1] for p in placed})
        if values > replicas:
            return _Levels(tuple(labels[:depth]), False)
        if values == replicas:
            return _Levels(tuple(labels[: depth + 1]), True)
    return _Levels(tuple(labels), False)


def fair_share(cluster: Cluster, store: Store, size_between: SizeBetween) -> float:
    """Give the MiB that a store should hold: for every range of keys and rule, its part by where it is."""
    config, stores = cluster.config, list(cluster.stores.values())
    if not config.placement_rules:
        weight = topology_weight(store, stores, config.location_labels, config.max_replicas)
        return size_between("", "") * config.max_replicas * weight
    borders = sorted({k for r in cluster.rules for k in (r.start_key, r.end_key) if k})
    ranges = zip(["", *borders], [*borders, ""], strict=True)
    return sum(_share_of(cluster, store, start, end, size_between) for start, end in ranges)


def _share_of(cluster: Cluster, store: Store, start: str, end: str, size_between: SizeBetween) -> float:
    share = 0.0
    there = (r for r in cluster.rules if not r.end_key or (bool(end) and end <= r.end_key))
    for rule in in_force([r for r in there if r.start_key <= start]):
        if not matches(store, rule.constraints):
            continue
        left = [s for s in cluster.stores.values() if s.state not in (REMOVING, REMOVED)]
        able = [s for s in left if matches(s, rule.constraints)]
        weight = topology_weight(store, able, rule.location_labels, rule.replicas)
        share += size_between(start, end) * rule.replicas * weight
    return share


def may_serve(cluster: Cluster, store: Store, size_between: SizeBetween, *, up_s: float) -> bool:
    """Whether the check of every 10 s lets a preparing store serve.

    It has nine tenths of its share, or is up for 48 hours, or the cluster has fewer than 100 regions.
    """
    if store.state != PREPARING:
        return False
    if up_s >= LONGEST_PREPARING_S or cluster.region_count < FEW_REGIONS:
        return True
    return store.region_size >= ENOUGH * fair_share(cluster, store, size_between)
