"""Which of a million regions a checker may have something to do with, found on columns; the rest is as it should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.simulate.pd.better_place import may_be_better
from ticdc_lab.simulate.pd.cluster import Cluster, borders_within, fit_of
from ticdc_lab.simulate.pd.filters import REGION_TARGET, state_forbids
from ticdc_lab.simulate.pd.kinds import kinds
from ticdc_lab.simulate.pd.places import distances, may_improve
from ticdc_lab.simulate.pd.region_columns import ROLES, Flags, RegionColumns, region_at
from ticdc_lab.simulate.pd.regions import DEMOTING, INCOMING
from ticdc_lab.simulate.pd.rules import ANY_VOTER, matches
from ticdc_lab.simulate.pd.stores import PREPARING, SERVING, Store

FITS, SMALL = "as they should be", "small enough to merge"

Places = NDArray[np.int64]


class Group(NamedTuple):
    """Regions with the same finding: where they are in the columns, and what a checker looks at first."""

    name: str
    places: Places


def triage(cluster: Cluster, c: RegionColumns) -> tuple[Group, ...]:
    """Divide regions by what the checkers would find first.

    Parameters
    ----------
    cluster
        The cluster.
    c
        Its regions.

    Returns
    -------
    tuple[Group, ...]
        Every region in one group; no group is empty. Those that are :data:`FITS` get nothing from any checker, of the
        others most do, and :mod:`~ticdc_lab.simulate.pd.survey` asks the checkers themselves.
    """
    left = np.ones(len(c.id), dtype=np.bool_)
    groups = []
    for name, found in _findings(cluster, c):
        here = left & found
        if here.any():
            groups.append(Group(name, np.flatnonzero(here)))
        left &= ~here
    return (*groups, *([Group(FITS, np.flatnonzero(left))] if left.any() else []))


def _findings(cluster: Cluster, c: RegionColumns) -> list[tuple[str, Flags]]:
    config, stores = cluster.config, [cluster.stores.get(i) for i in c.stores]
    there = c.peers >= 0
    silent = _of_stores(c, stores, lambda s: s.heartbeat_age_s >= config.max_store_down_time_s)
    leaving = _of_stores(c, stores, lambda s: s.state not in (PREPARING, SERVING))
    unknown = _by_position(c, np.array([s is None for s in stores]))
    joint = there & np.isin(c.role, [ROLES.index(INCOMING), ROLES.index(DEMOTING)])
    unfit, badly_placed = _by_one_rule(cluster, c, stores) if _has_one_rule(cluster) else _by_kinds(cluster, c)
    small = (c.size <= config.max_merge_region_size) & (c.keys <= config.max_merge_region_keys)
    return [
        ("without a leader", c.leader < 0),
        ("in a joint state", _any(joint)),
        ("with a peer on an unknown store", _any(there & unknown)),
        ("with a peer on a store that is down", _any(c.down & silent)),
        ("with a peer on a store that leaves", _any(there & leaving)),
        ("with peers that do not fit the rules", unfit),
        ("with a peer reported down", _any(there & c.down)),
        ("that could be better placed", badly_placed),
        (SMALL, small),
    ]


def _any(of_peers: Flags) -> Flags:
    return np.asarray(of_peers.any(axis=1), dtype=np.bool_)


def _of_stores(c: RegionColumns, stores: list[Store | None], holds: Callable[[Store], bool]) -> Flags:
    return _by_position(c, np.array([s is not None and holds(s) for s in stores]))


def _by_position(c: RegionColumns, marked: Flags) -> Flags:
    """Mark the peers on marked stores."""
    return np.asarray(np.append(marked, False)[c.peers], dtype=np.bool_)


def _has_one_rule(cluster: Cluster) -> bool:
    """Whether one rule for voters holds everywhere, or none at all, so that columns suffice."""
    first = cluster.rules[0]
    bounded = first.constraints or first.start_key or first.end_key or first.witness
    return not cluster.config.placement_rules or (len(cluster.rules) == 1 and first.role == ANY_VOTER and not bounded)


def _by_one_rule(cluster: Cluster, c: RegionColumns, stores: list[Store | None]) -> tuple[Flags, Flags]:
    """Say which regions have not the peers they should have, and which a store that lasts would isolate better."""
    config, rule, there = cluster.config, cluster.rules[0], c.peers >= 0
    replicas, labels = rule.replicas, rule.location_labels
    if not config.placement_rules:
        replicas, labels = config.max_replicas, config.location_labels
    serve = _by_position(c, np.array([matches(s, ()) for s in stores]))
    unfit = _any(there & (~serve | (c.role != 0) | c.witness)) | (there.sum(axis=1) != replicas)
    if not labels:
        return unfit, np.zeros(len(c.id), dtype=np.bool_)
    known = [s if s is not None else Store(0) for s in stores]
    known += [s for i, s in sorted(cluster.stores.items()) if i not in c.stores]
    takes = np.array([s.id in cluster.stores and _takes(cluster, s) for s in known], dtype=np.bool_)
    return unfit, may_improve(distances(known, labels), c.peers, takes)


def _takes(cluster: Cluster, store: Store) -> bool:
    return state_forbids(store, REGION_TARGET, cluster.config, temporary_too=False) is None


def _by_kinds(cluster: Cluster, c: RegionColumns) -> tuple[Flags, Flags]:
    """Check one region of each kind by its rules."""
    found = kinds(cluster, c)
    told = np.array([_checked(cluster, c, int(i)) for i in found.example], dtype=np.bool_)[found.of]
    return told[:, 0], told[:, 1]


def _checked(cluster: Cluster, c: RegionColumns, place: int) -> tuple[bool, bool]:
    region = region_at(c, place)
    fit = fit_of(cluster, region)
    if borders_within(cluster, region) or not fit.satisfied:
        return True, False
    return False, may_be_better(cluster, region, fit)
