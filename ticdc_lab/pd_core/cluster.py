"""What a decision sees: settings, stores, rules, and the net effect of operators that are running."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.operators import AddLearner, RemovePeer, Step, TransferLeader
from ticdc_lab.pd_core.regions import Region, learners
from ticdc_lab.pd_core.rules import RegionFit, Rule, default_rules, fit_region, in_force
from ticdc_lab.pd_core.stores import Store


class Influence(NamedTuple):
    """What running operators will have added to a store: MiB of regions, regions, MiB of leaders, leaders."""

    region_size: float = 0
    region_count: int = 0
    leader_size: float = 0
    leader_count: int = 0

    def plus(self, other: Influence, sign: int = 1) -> Influence:
        """Give the sum of two, or their difference."""
        return Influence(
            self.region_size + sign * other.region_size, self.region_count + sign * other.region_count,
            self.leader_size + sign * other.leader_size, self.leader_count + sign * other.leader_count,
        )  # fmt: skip


Effects = tuple[tuple[int, Influence], ...]
"""Of stores, by id."""


def effects_of(step: Step, size: float) -> Effects:
    """Give what a step that moves a region of so many MiB, or its leader, adds to stores."""
    match step:
        case AddLearner(store, _):
            return ((store, Influence(size, 1)),)
        case RemovePeer(store):
            return ((store, Influence(-size, -1)),)
        case TransferLeader(a, b):
            return ((a, Influence(0, 0, -size, -1)), (b, Influence(0, 0, size, 1)))
        case _:
            return ()


NO_INFLUENCE = Influence()
_NONE: Mapping[int, Influence] = MappingProxyType({})


class Cluster(NamedTuple):
    """A cluster at one moment.

    ``regions_on`` is how many peers of regions PD counts on each store, ``region_count`` how many regions there are,
    ``average_region_size`` their mean MiB, rounded down as PD does. ``fits`` remembers how regions fit the rules, while
    neither stores nor rules change.
    """

    config: Config
    stores: Mapping[int, Store]
    rules: tuple[Rule, ...]
    influence: Mapping[int, Influence] = _NONE
    regions_on: Mapping[int, int] = MappingProxyType({})
    region_count: int = 0
    average_region_size: float = 96
    fits: dict[tuple[object, ...], RegionFit] | None = None


def cluster_of(config: Config, stores: Iterable[Store], rules: tuple[Rule, ...] = ()) -> Cluster:
    """Give a cluster of stores, by id; without rules the one that the settings make."""
    by_id = {s.id: s for s in sorted(stores, key=lambda s: s.id)}
    return Cluster(config, by_id, rules or default_rules(config))


def influence_on(cluster: Cluster, store: int) -> Influence:
    """Give the net effect of running operators on a store."""
    return cluster.influence.get(store, NO_INFLUENCE)


def fit_of(cluster: Cluster, region: Region) -> RegionFit:
    """Fit a region to the rules that hold for its range.

    A region without a rule, or one that crosses the border of one, fits nothing.
    """
    r, fits = region, cluster.fits
    if fits is None:
        return _fitted(cluster, region)
    key = (r.peers, r.leader, r.down, r.pending, r.start_key, r.end_key, r.down_seconds)
    found = fits.get(key)
    if found is None:
        found = fits[key] = _fitted(cluster, region)
    return found


def _fitted(cluster: Cluster, region: Region) -> RegionFit:
    c = cluster.config
    rules = rules_of(cluster, region)
    return fit_region(region, rules, cluster.stores, witness=c.witness, max_down_s=c.max_store_down_time_s)


def borders_within(cluster: Cluster, region: Region) -> list[str]:
    """Give the keys inside a region at which a placement rule begins or ends."""
    rules = cluster.rules if cluster.config.placement_rules else ()
    return keys_within(region, {k for r in rules for k in (r.start_key, r.end_key)})


def keys_within(region: Region, keys: Iterable[str]) -> list[str]:
    """Give the keys that lie inside a region, in order."""
    return sorted(k for k in keys if region.start_key < k and (not region.end_key or k < region.end_key))


def rules_of(cluster: Cluster, region: Region) -> tuple[Rule, ...]:
    """Give the rules in force whose range holds the region; none where one begins or ends within it."""
    if borders_within(cluster, region):
        return ()
    return in_force([
        r
        for r in cluster.rules
        if r.start_key <= region.start_key and (not r.end_key or (region.end_key and region.end_key <= r.end_key))
    ])  # fmt: skip


def region_stores(cluster: Cluster, region: Region) -> list[Store]:
    """Give the known stores of a region's peers, in the order of the peers."""
    return [cluster.stores[p.store] for p in region.peers if p.store in cluster.stores]


def is_replicated(cluster: Cluster, region: Region) -> bool:
    """Whether a region has the peers it should have: every rule satisfied, or max-replicas peers and no learner."""
    if cluster.config.placement_rules:
        return fit_of(cluster, region).satisfied
    return not learners(region) and len(region.peers) == cluster.config.max_replicas
