"""The frame around a plan: whether an operator may be built at all, PD's short form of it, and the operator itself."""

from __future__ import annotations

from collections.abc import Iterable

from ticdc_lab.simulate.pd.builder import CannotBuild, Plan
from ticdc_lab.simulate.pd.cluster import Cluster, rules_of
from ticdc_lab.simulate.pd.operators import Kind, Operator, Priority
from ticdc_lab.simulate.pd.regions import Region, in_joint_state


def brief_of(plan: Plan) -> str:
    """Give PD's short form of what an operator does; taken before its steps are laid out."""
    if plan.add and plan.remove:
        return f"mv peer: store {_ids(plan.remove)} to {_ids(plan.add)}"
    if plan.remove and not plan.add and (plan.promote or plan.demote):
        return _with_removal(plan)
    verbs = (("add peer", plan.add), ("rm peer", plan.remove), ("promote peer", plan.promote))
    for verb, peers in (*verbs, ("demote peer", plan.demote)):
        if peers:
            return f"{verb}: store {_ids(peers)}"
    if plan.to_witness or plan.to_full:
        peers, to = (plan.to_witness, "witness") if plan.to_witness else (plan.to_full, "non-witness")
        return f"switch peer: store {_ids(peers)} to {to}"
    if plan.region.leader != plan.wanted_leader:
        return f"transfer leader: store {plan.region.leader} to {plan.wanted_leader}"
    return ""


def _with_removal(plan: Plan) -> str:
    """Give PD's text as it is: where peers are promoted it names the two sets the wrong way round."""
    if plan.promote:
        return f"promote peer: store {_ids(plan.remove)}, rm peer: store {_ids(plan.promote)}"
    return f"demote peer: store {_ids(plan.demote)}, rm peer: store {_ids(plan.remove)}"


def _ids(stores: Iterable[int]) -> str:
    return f"[{' '.join(str(s) for s in sorted(stores))}]"


def check_buildable(cluster: Cluster, region: Region, *, joint_ok: bool = False) -> None:
    """Refuse regions for which PD builds no operator: no leader, no rule, or in the middle of a joint change."""
    if region.peer_on(region.leader) is None:
        raise CannotBuild("the region has no leader")
    if not joint_ok and in_joint_state(region):
        raise CannotBuild("the region is in a joint state")
    if cluster.config.placement_rules and not rules_of(cluster, region):
        raise CannotBuild("no placement rule holds for the whole region")


def operator_of(plan: Plan, desc: str, brief: str, kind: Kind, priority: Priority) -> Operator:
    """Close a plan."""
    if not plan.steps:
        raise CannotBuild("no step is needed")
    return Operator(desc, brief, plan.region.id, kind | plan.kind, tuple(plan.steps), priority, plan.region.size)
