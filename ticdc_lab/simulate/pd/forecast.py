"""How long until done, at best: what store limits let through, and which of them holds the work back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.simulate.pd.balance import REGIONS, scale
from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.filters import REGION_TARGET, state_forbids
from ticdc_lab.simulate.pd.limits import LARGE_COST, SMALL_COST, SMALL_MIB
from ticdc_lab.simulate.pd.regions import EMPTY_MIB, RegionColumns
from ticdc_lab.simulate.pd.stores import NEVER_S, PREPARING, SERVING, Store, is_disconnected


class PerMinute(NamedTuple):
    """A store's limits as ``pd-ctl store limit`` has them: peers a minute."""

    add: float = 15.0
    remove: float = 15.0


DEFAULT = PerMinute()
Limits = Mapping[int, PerMinute]
_DEFAULTS: Limits = MappingProxyType({})


class Forecast(NamedTuple):
    """One piece of work: how many peers must be made, what PD waits for before it begins, and how long it takes.

    ``at_best_s`` is what the store limits alone would take, infinite where no store may take the peers; snapshots,
    schedule limits and PD's own pauses come on top. ``held_by`` is the limit that decides.
    """

    what: str
    peers: int
    waits_s: float
    at_best_s: float
    held_by: str


def forecast(cluster: Cluster, c: RegionColumns, limits: Limits = _DEFAULTS) -> tuple[Forecast, ...]:
    """Say how long each repair and the balance of regions take at best.

    Parameters
    ----------
    cluster
        The cluster.
    c
        Its regions.
    limits
        Store limits, 15 peers a minute for each store that is not named.

    Returns
    -------
    tuple[Forecast, ...]
        For every leaving, down or silent store with peers, for missing peers, and for the balance of sizes; only where
        something is to be done. Source: `pd_notes.md` section 7.
    """
    found = [*_leaving(cluster, c, limits), *_missing(cluster, c, limits)]
    balance = _balance(cluster, limits)
    return (*found, *([balance] if balance is not None else []))


def _leaving(cluster: Cluster, c: RegionColumns, limits: Limits) -> Iterator[Forecast]:
    costs = step_costs(c.size)
    for position, store_id in enumerate(c.stores):
        store = cluster.stores.get(store_id)
        what = "" if store is None else _why_it_leaves(store, cluster.config.max_store_down_time_s)
        if store is None or not what:
            continue
        here = (c.peers == position).any(axis=1)
        if here.any():
            silent = what.endswith("is silent")
            waits = max(0.0, cluster.config.max_store_down_time_s - store.heartbeat_age_s) if silent else 0.0
            yield _made(cluster, limits, what, int(here.sum()), float(costs[here].sum()), waits, {store_id})


def _why_it_leaves(store: Store, max_down_s: float) -> str:
    if store.state not in (PREPARING, SERVING):
        return f"store {store.id} leaves"
    if store.heartbeat_age_s >= min(max_down_s, NEVER_S):
        return f"store {store.id} is down"
    return f"store {store.id} is silent" if is_disconnected(store) else ""


def _missing(cluster: Cluster, c: RegionColumns, limits: Limits) -> Iterator[Forecast]:
    config = cluster.config
    wanted = sum(r.replicas for r in cluster.rules if not r.start_key and not r.end_key)
    lacking = np.maximum(0, (wanted if config.placement_rules else config.max_replicas) - (c.peers >= 0).sum(axis=1))
    if lacking.any():
        cost = float((step_costs(c.size) * lacking).sum())
        yield _made(cluster, limits, "missing peers", int(lacking.sum()), cost, 0.0, set())


def _made(
    cluster: Cluster, limits: Limits, what: str, peers: int, cost: float, waits_s: float, but: set[int]
) -> Forecast:
    """Give how long stores that may take peers need for so many tokens."""
    able = [i for i in _able(cluster) if i not in but]
    rate = sum(limits.get(i, DEFAULT).add for i in able) * LARGE_COST / 60
    held_by = f"add-peer limits of {len(able)} stores" if able else "no store may take a peer"
    return Forecast(what, peers, waits_s, cost / rate if rate else math.inf, held_by)


def _able(cluster: Cluster) -> list[int]:
    config = cluster.config
    stores = cluster.stores.values()
    return [s.id for s in stores if state_forbids(s, REGION_TARGET, config, temporary_too=False) is None]


def _balance(cluster: Cluster, limits: Limits) -> Forecast | None:
    """Give how long the MiB that stores have above their part take, by weight; half a tolerance is left alone."""
    able = [cluster.stores[i] for i in _able(cluster)]
    weights = sum(s.region_weight for s in able)
    if not weights or not cluster.average_region_size:
        return None
    part = sum(s.region_size for s in able) / weights
    left_alone = scale(cluster, REGIONS).tolerance
    surplus = {s.id: s.region_size - part * s.region_weight for s in able}
    moved = {i: mib for i, mib in surplus.items() if abs(mib) > left_alone}
    peers = sum(mib for mib in moved.values() if mib > 0) / cluster.average_region_size
    if peers < 1:
        return None
    times = [_time(i, mib / cluster.average_region_size, limits) for i, mib in sorted(moved.items())]
    longest, held_by = max(times, key=lambda t: t[0])
    return Forecast("balance of regions", round(peers), 0.0, longest, held_by)


def _time(store: int, peers: float, limits: Limits) -> tuple[float, str]:
    limit = limits.get(store, DEFAULT)
    verb, rate = ("remove", limit.remove) if peers > 0 else ("add", limit.add)
    return abs(peers) / rate * 60 if rate else 0.0, f"{verb}-peer limit {rate:g} of store {store}"


def step_costs(size: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give the tokens that adding a peer of each region takes."""
    return np.where(size <= EMPTY_MIB, 0.0, np.where(size <= SMALL_MIB, SMALL_COST, LARGE_COST))


def in_words(forecasts: Sequence[Forecast]) -> list[str]:
    """Give forecasts as sentences."""
    return [
        f"{f.what}: {f.peers:,} peers, "
        + (f"begins in {_duration(f.waits_s)}, " if f.waits_s else "")
        + (f"{_duration(f.at_best_s)} at best" if math.isfinite(f.at_best_s) else "never")
        + f" ({f.held_by})"
        for f in forecasts
    ]


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
