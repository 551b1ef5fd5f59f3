"""What administrators tell PD about stores: delete, bring up, bury, put, and what becomes of them; section 6."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.stores import PREPARING, REMOVED, REMOVING, SERVING, Store, is_disconnected, is_tikv

STORES_NOT_ENOUGH, STORE_REMOVED = "ErrStoresNotEnough", "ErrStoreRemoved"
STORE_DESTROYED, STORE_IS_UP = "ErrStoreDestroyed", "ErrStoreIsUp"
NO_STORE_FOR_LEADERS, STORE_NOT_FOUND = "ErrNoStoreForRegionLeader", "ErrStoreNotFound"
DUPLICATED = "duplicated store address"


class Told(NamedTuple):
    """What a command came to: the store as it is now, or PD's error and the reason in words."""

    store: Store | None
    error: str = ""
    because: str = ""


def delete_store(cluster: Cluster, store_id: int, *, physically_destroyed: bool = False) -> Told:
    """Take a store offline: ``pd-ctl store delete``.

    Refused where fewer up TiKV stores than replicas would stay, or none that may lead; not so for a destroyed store,
    nor for one of another engine, whose peers are learners.
    """
    store = cluster.stores.get(store_id)
    if store is None:
        return Told(None, STORE_NOT_FOUND)
    if store.state == REMOVING and store.physically_destroyed == physically_destroyed:
        return Told(store)
    if store.state == REMOVED:
        return Told(None, STORE_REMOVED)
    if store.physically_destroyed:
        return Told(None, STORE_DESTROYED)
    if _is_up(store) and is_tikv(store) and not physically_destroyed:
        refusal = _cannot_spare(cluster, store)
        if refusal:
            return Told(None, *refusal)
    return Told(store._replace(state=REMOVING, physically_destroyed=physically_destroyed))


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


def bring_up(cluster: Cluster, store_id: int) -> Told:
    """Take a store back from being offline: ``pd-ctl store cancel-delete``."""
    store = cluster.stores.get(store_id)
    if store is None:
        return Told(None, STORE_NOT_FOUND)
    if store.state == REMOVED:
        return Told(None, STORE_REMOVED)
    if store.physically_destroyed:
        return Told(None, STORE_DESTROYED)
    return Told(store if _is_up(store) else store._replace(state=SERVING))


def bury_store(cluster: Cluster, store_id: int, *, force: bool = False) -> Told:
    """Make a store a tombstone: an offline one, or by force one that is silent."""
    store = cluster.stores.get(store_id)
    if store is None:
        return Told(None, STORE_NOT_FOUND)
    if _is_up(store) and not (force and is_disconnected(store)):
        return Told(None, STORE_IS_UP, "neither offline nor disconnected")
    return Told(store._replace(state=REMOVED))


def may_take_address(store: Store) -> bool:
    """Whether a new store may come with the address of this one: only of a tombstone or a destroyed store."""
    return store.state == REMOVED or store.physically_destroyed


def checked_states(stores: Mapping[int, Store]) -> dict[int, Store]:
    """Give the stores after the check of every 10 s: an offline store without regions becomes a tombstone."""
    return {
        i: s._replace(state=REMOVED) if s.state == REMOVING and s.region_size == 0 else s for i, s in stores.items()
    }


class Progress(NamedTuple):
    """How far a store is: the part done, MiB a second, and the seconds left (infinite while nothing moves)."""

    progress: float
    speed_mib_s: float
    left_s: float


def removing_progress(at_first: float, now: float, elapsed_s: float) -> Progress:
    """Give the progress of an offline store from its MiB of regions at first and now."""
    return _progress(at_first - now, at_first, elapsed_s)


def preparing_progress(now: float, target: float, elapsed_s: float) -> Progress:
    """Give the progress of a new store towards its share of the regions, in MiB."""
    return _progress(now, target, elapsed_s)


def _progress(done: float, all_: float, elapsed_s: float) -> Progress:
    speed = done / elapsed_s if elapsed_s > 0 else 0.0
    left = max(0.0, all_ - done)
    return Progress(min(1.0, done / all_) if all_ else 1.0, speed, left / speed if speed else float("inf"))
