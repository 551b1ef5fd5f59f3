"""What PD checks a region for, in order: joint state, split, rules or replicas, merge; `pd_notes.md` section 9."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ticdc_lab.pd_core.builder import CannotBuild
from ticdc_lab.pd_core.cluster import Cluster, borders_within, keys_within
from ticdc_lab.pd_core.create import leave_joint_state, set_role, split_region
from ticdc_lab.pd_core.explained import Explained, Notes
from ticdc_lab.pd_core.merge_checker import Neighbours, check_merge
from ticdc_lab.pd_core.operators import Kind, Priority
from ticdc_lab.pd_core.regions import VOTER, Region, in_joint_state, learners
from ticdc_lab.pd_core.replica_checker import check_replicas
from ticdc_lab.pd_core.rule_checker import check_rules

ALONE = Neighbours(None, None)
_NO_LEADERS: Mapping[int, int] = MappingProxyType({})


def check_joint_state(cluster: Cluster, region: Region) -> Explained:
    """Finish a joint change that was left half done."""
    notes = Notes()
    if not in_joint_state(region):
        return notes.explained((), "the region is not in a joint state")
    try:
        op = leave_joint_state(cluster, region)
    except CannotBuild as e:
        return notes.explained((), str(e))
    return notes.explained((op._replace(priority=Priority.HIGH),), op.desc)


def check_split(cluster: Cluster, region: Region, borders: frozenset[str] = frozenset()) -> Explained:
    """Split a region where rules begin or end within it: those for labels (``borders``), else placement rules."""
    notes = Notes()
    keys, desc = keys_within(region, borders), "labeler-split-region"
    if not keys:
        keys, desc = borders_within(cluster, region), "rule-split-region"
    if not keys:
        return notes.explained((), "no rule begins or ends within the region")
    try:
        op = split_region(region, desc, "usekey", tuple(k.encode() for k in keys))
    except CannotBuild as e:
        return notes.explained((), str(e))
    return notes.explained((op,), f"rules begin or end at {', '.join(keys)}")


def check_learners(cluster: Cluster, region: Region) -> Explained:
    """Without placement rules every healthy learner becomes a voter."""
    notes = Notes()
    for peer in learners(region):
        try:
            op = set_role(cluster, region, peer.store, VOTER, "promote-learner")
        except CannotBuild as e:
            notes.said.append(str(e))
            continue
        return notes.explained((op,), op.brief)
    return notes.explained(())


def check_region(
    cluster: Cluster, region: Region, beside: Neighbours = ALONE, *, up_s: float = float("inf"),
    running: dict[Kind, int] | None = None, leaders_given: Mapping[int, int] = _NO_LEADERS,
) -> Explained:  # fmt: skip
    """Check a region as PD's patrol does: the first operator wins, else the reason of the last check.

    ``beside`` are its neighbours, for a merge; PD started ``up_s`` seconds ago; ``running`` counts operators by the
    kind that they are limited as, ``leaders_given`` how often each store was given the leader of an offline peer.
    ``limit`` of the answer names the limit that holds an operator back.
    """
    counts = running or {}
    config = cluster.config
    for told in (check_joint_state(cluster, region), check_split(cluster, region, beside.borders)):
        if told.operators:
            return told
    told = check_repairs(cluster, region, leaders_given, counts.get(Kind.REPLICA, 0))
    if told.operators:
        return told
    merge = check_merge(cluster, region, beside, up_s=up_s)
    if not merge.operators:
        return told
    limit = counts.get(Kind.MERGE, 0) >= config.merge_schedule_limit
    return _held(merge, f"merge-schedule-limit {config.merge_schedule_limit}") if limit else merge


def check_repairs(
    cluster: Cluster, region: Region, leaders_given: Mapping[int, int] = _NO_LEADERS, running: int = 0
) -> Explained:
    """Check rules or replicas; what they want waits for the limit of replica operators, of any kind."""
    limit = cluster.config.replica_schedule_limit
    if not cluster.config.placement_rules:
        learners = check_learners(cluster, region)
        if learners.operators:
            return learners
        told = check_replicas(cluster, region)
    else:
        told = check_rules(cluster, region, leaders_given)
    return _held(told, f"replica-schedule-limit {limit}") if told.operators and running >= limit else told


def _held(told: Explained, limit: str) -> Explained:
    """Give a decision without its operator, which waits for a limit."""
    why = f"waits for {limit}: {told.because}"
    return Explained((), why, told.candidates, told.rejected, told.scored, told.compared, limit)
