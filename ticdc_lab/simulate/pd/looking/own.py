"""A user's own cluster as the start of a run: what pd-ctl printed, as stores and regions of a simulated cluster."""

from __future__ import annotations

import numpy as np

from ticdc_lab.simulate.pd.ctl import Loaded
from ticdc_lab.simulate.pd.stores import MIB, REMOVED, REMOVING, Store, is_disconnected
from ticdc_lab.simulate.pd.world.changes import Pdctl, StopStore, Timed
from ticdc_lab.simulate.pd.world.reference import Case
from ticdc_lab.simulate.pd.world.settings import SECOND_US, WorldSettings
from ticdc_lab.simulate.pd.world.start import RegionsStart, Start, StoreStart


def own_case(
    loaded: Loaded, *, name: str = "own cluster", minutes: float = 30.0, settings: WorldSettings | None = None
) -> Case:
    """Give a user's own cluster as a case in which nothing happens from outside.

    Parameters
    ----------
    loaded
        What :func:`ticdc_lab.simulate.pd.ctl.from_pd_ctl` gives.
    name
        How it is called.
    minutes
        How long the case lasts, virtual time.
    settings
        Disks, clocks and store limits, which pd-ctl does not print here; those of a cluster in real time by default.

    Notes
    -----
    Stores that are offline are deleted, those that are silent stopped, at the start. What a store uses besides its
    regions counts as foreign files.
    """
    stores = [s for s in loaded.cluster.stores.values() if s.state != REMOVED]
    held = _held_mib(loaded)
    start = Start(
        stores=tuple(_store(s, held.get(s.id, 0.0)) for s in stores), regions=_regions(loaded),
        config=loaded.cluster.config, rules=loaded.cluster.rules if loaded.cluster.config.placement_rules else (),
        settings=settings or WorldSettings(),
    )  # fmt: skip
    leaving = [Timed(0, Pdctl(f"store delete {s.id}")) for s in stores if s.state == REMOVING]
    silent = [Timed(0, StopStore(s.id, s.heartbeat_age_s)) for s in stores if is_disconnected(s)]
    until_us = round(minutes * 60 * SECOND_US)
    return Case(name, start, (*leaving, *silent), 0, until_us, until_us)


def _held_mib(loaded: Loaded) -> dict[int, float]:
    r = loaded.regions
    there = r.peers >= 0
    sizes = np.bincount(r.peers[there], np.broadcast_to(r.size[:, None], r.peers.shape)[there], len(r.stores))
    return dict(zip(r.stores, sizes.tolist(), strict=True))


def _store(s: Store, held_mib: float) -> StoreStart:
    used = max(0.0, (s.capacity - s.available) / MIB - held_mib)
    return StoreStart(s.id, s.capacity / MIB, s.labels, True, used, s.leader_weight, s.region_weight)


def _regions(loaded: Loaded) -> RegionsStart:
    r = loaded.regions
    ids = np.array([*r.stores, 0], np.int32)
    nothing = np.zeros(len(r.id))
    return RegionsStart(
        r.size.astype(np.float64), r.keys.astype(np.int64), ids[r.leader], ids[r.peers],
        (r.role == 1) & (r.peers >= 0), nothing, nothing.copy(), r.id.astype(np.int64),
        tuple(r.start_key.to_pylist()),
    )  # fmt: skip
