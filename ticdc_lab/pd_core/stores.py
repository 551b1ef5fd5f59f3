"""A store as PD sees it: its heartbeats, what an administrator set, and what follows for its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ticdc_lab.machines.machine import stepped

MIB, GIB = 1 << 20, 1 << 30

PREPARING, SERVING, REMOVING, REMOVED = "preparing", "serving", "removing", "removed"
"""Node states; what pd-ctl prints follows from them and the age of the last heartbeat, :func:`shown_state`."""

DISCONNECTED_AFTER_S = 20.0
NEVER_S = 1e9
"""Age of a heartbeat that never came."""


class StoreLabels(dict[str, str]):
    """Labels of a store, keys in lower case; never changed, so that what two stores are to each other is kept."""

    __slots__ = ("_hash",)

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__((key.lower(), value) for key, value in labels.items())
        self._hash = hash(frozenset(self.items()))

    def __hash__(self) -> int:  # type: ignore[override]
        return self._hash

    def __reduce__(self) -> tuple[type[StoreLabels], tuple[dict[str, str]]]:
        return StoreLabels, (dict(self),)


_NO_LABELS = StoreLabels({})


@stepped
class Store(NamedTuple):
    """Facts of a store at one moment; `pd_notes.md` sections 2, 5 and 6.

    ``capacity``, ``available`` and ``used`` are bytes as last reported, ``averaged`` is PD's average of the available
    ones, None where there is none; ``region_size`` and ``leader_size`` are MiB by PD's own sum, ``heartbeat_age_s``
    seconds. ``labels`` has its keys in lower case. ``add_open`` and ``remove_open``: whether the store's limits have
    room now, see :mod:`ticdc_lab.pd_core.limits`. ``slow_score`` goes from 1 to 100, ``write_mib_s`` is what
    clients write.
    """

    id: int
    state: str = SERVING
    heartbeat_age_s: float = 0.0
    labels: StoreLabels = _NO_LABELS
    capacity: float = 100.0 * GIB
    available: float = 100.0 * GIB
    used: float = 0.0
    region_count: int = 0
    region_size: float = 0
    leader_count: int = 0
    leader_size: float = 0
    leader_weight: float = 1.0
    region_weight: float = 1.0
    busy: bool = False
    sending_snapshots: int = 0
    receiving_snapshots: int = 0
    pending_peers: int = 0
    add_open: bool = True
    remove_open: bool = True
    leader_in_paused: bool = False
    leader_out_paused: bool = False
    evicted: bool = False
    physically_destroyed: bool = False
    witness_count: int = 0
    averaged: float | None = None
    slow_score: float = 1.0
    write_mib_s: float = 0.0

    @property
    def smoothed(self) -> float:
        """Available bytes as formula v2 has them: averaged over heartbeats. Formula v1 and low space are not."""
        return self.available if self.averaged is None else self.averaged


labelled = StoreLabels
"""Labels with keys in lower case: PD finds a label in any case of its key."""


def label(store: Store, key: str) -> str:
    """Give the value of a label, "" where the store has none."""
    return store.labels.get(key.lower(), "")


def is_tikv(store: Store) -> bool:
    """Whether a store is TiKV's: the only ones with votes."""
    return store.labels.get("engine", "") in ("", "tikv")


def is_disconnected(store: Store) -> bool:
    """Silent for more than 20 seconds; a heartbeat brings the store back at once."""
    return store.heartbeat_age_s > DISCONNECTED_AFTER_S


def takes_part(store: Store, max_store_down_time_s: float) -> bool:
    """Whether a store has a share of peers and leaders: it neither leaves nor is gone nor counts as down."""
    return store.state in (PREPARING, SERVING) and store.heartbeat_age_s <= max_store_down_time_s


def is_low_on_space(store: Store, low_space_ratio: float) -> bool:
    """Whether a store takes no new peers for want of space.

    Never one with fewer than 100 regions and more than 8 GiB free, nor one that reported no capacity.
    """
    if not store.capacity or (store.region_count < 100 and store.available > 8 * GIB):
        return False
    return store.available / store.capacity < 1 - low_space_ratio


def shown_state(store: Store, max_store_down_time_s: float) -> str:
    """Give the state as ``pd-ctl store`` prints it."""
    if store.state == REMOVED:
        return "Tombstone"
    if store.state == REMOVING:
        return "Offline"
    if store.heartbeat_age_s > max_store_down_time_s:
        return "Down"
    return "Disconnected" if is_disconnected(store) else "Up"
