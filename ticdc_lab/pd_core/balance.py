"""Does a move pay? What both balance schedulers compare (pkg/schedule/schedulers/utils.go; `pd_notes.md` section 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ticdc_lab.pd_core.cluster import Cluster, influence_on, is_replicated
from ticdc_lab.pd_core.explained import Compared, Notes
from ticdc_lab.pd_core.regions import EMPTY_MIB, FEW_REGIONS, SCHEDULE, Region
from ticdc_lab.pd_core.scores import leader_score, region_score
from ticdc_lab.pd_core.stores import Store

LEADERS, REGIONS = "leader", "region"

PENDING_HERE, FOLLOWER_HERE, LEADER_HERE, LEARNER_HERE = "pending", "follower", "leader", "learner"
"""What a region's peer on a store is; regions are drawn by it."""

DRAWN = 10
"""Regions that PD draws, with replacement, before it gives up on a kind of peer."""

RETRIES, LEAST_RETRIES = 10, 1

Draw = Callable[[int, str], Iterable[Region]]
"""Gives up to :data:`DRAWN` random regions whose peer on a store is of a kind, in the order drawn."""

AMPLIFICATION = 5
_LEADER_RATIO, _LEAST_RATIO, _RATIO_PER_REGION = 5.0, 1.0, 0.005


class Scale(NamedTuple):
    """How stores are compared: by what, by count or size, and how much a difference must exceed on either side."""

    cluster: Cluster
    resource: str
    policy: str
    tolerance: int


def scale(cluster: Cluster, resource: str) -> Scale:
    """Give the scale for leaders (by the configured policy) or regions (by size)."""
    policy = cluster.config.leader_schedule_policy if resource == LEADERS else "size"
    return Scale(cluster, resource, policy, tolerance(cluster, resource, policy))


def tolerance(cluster: Cluster, resource: str, policy: str) -> int:
    """Give the difference that balance leaves alone on either side: leaders, or MiB.

    ``tolerant-size-ratio`` times the average region size, or that many leaders. Where the ratio is 0: 5 leaders, or
    0.5 % of the regions of the fullest store, one at least.
    """
    ratio = cluster.config.tolerant_size_ratio
    if resource == LEADERS and policy == "count":
        return int(ratio or _LEADER_RATIO)
    fullest = max(cluster.regions_on.values(), default=0)
    return int(cluster.average_region_size * (ratio or max(fullest * _RATIO_PER_REGION, _LEAST_RATIO)))


def influence(s: Scale, store: int) -> float:
    """Give what running operators will have added to a store, in the scale's unit."""
    found = influence_on(s.cluster, store)
    if s.resource == REGIONS:
        return found.region_size
    return found.leader_count if s.policy == "count" else found.leader_size


def score(s: Scale, store: Store, delta: float) -> float:
    if s.resource == REGIONS:
        return region_score(store, s.cluster.config, delta)
    return leader_score(store, s.policy, delta)


def score_after(s: Scale, store: Store) -> float:
    """Give a store's score once running operators are done: what stores are sorted by."""
    return score(s, store, influence(s, store.id))


def from_lowest(s: Scale, targets: Iterable[Store]) -> list[list[Store]]:
    """Give targets from the lowest score up, equal ones together."""
    groups: dict[float, list[Store]] = {}
    for target in targets:
        groups.setdefault(score_after(s, target), []).append(target)
    return [groups[one] for one in sorted(groups)]


def source_score(s: Scale, store: Store) -> float:
    """Give the score of a source as if operators only took from it, less the tolerance."""
    return score(s, store, -abs(influence(s, store.id)) * _amplified(s) - s.tolerance)


def target_score(s: Scale, store: Store) -> float:
    """Give the score of a target as if operators only added to it, with the tolerance on top."""
    return score(s, store, abs(influence(s, store.id)) * _amplified(s) + s.tolerance)


def _amplified(s: Scale) -> int:
    return AMPLIFICATION if s.resource == REGIONS else 1


def compare(s: Scale, source: Store, target: Store, notes: Notes) -> Compared:
    """Compare two stores: a move pays while the source would still be the fuller one."""
    a, b = source_score(s, source), target_score(s, target)
    compared = Compared(s.resource, source.id, target.id, a, b, a > b)
    notes.compared[compared] = None
    return compared


def unfit(cluster: Cluster, region: Region, *, pending_too: bool) -> str:
    """Give why a region is not moved to balance, "" where it may be."""
    if SCHEDULE in region.denied:
        return "a label of the region forbids scheduling"
    if region.down:
        return "a peer is down"
    if pending_too and region.pending:
        return "a peer is pending"
    if not is_replicated(cluster, region):
        return "it has not the peers it should have"
    leader = cluster.stores.get(region.leader)
    if leader is None or leader.busy:
        return "its leader's store sends no snapshots now"
    if region.size <= EMPTY_MIB and cluster.region_count >= FEW_REGIONS:
        return "it is empty"
    return ""


def fewer_retries(limits: Mapping[int, int], store: int) -> dict[int, int]:
    """Halve how often a store is tried, after a fruitless round."""
    return {**limits, store: max(limits.get(store, RETRIES) // 2, LEAST_RETRIES)}
