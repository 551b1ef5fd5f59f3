"""Operators by what they are for: add, remove, move or promote a peer, move leadership, merge, split."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ticdc_lab.pd_core.builder import CannotBuild, StepPlan, lay_out
from ticdc_lab.pd_core.cluster import Cluster, rules_of
from ticdc_lab.pd_core.operators import Kind, MergeRegion, Operator, Priority, SplitRegion, Step
from ticdc_lab.pd_core.regions import DEMOTING, INCOMING, LEARNER, VOTER, Peer, Region, in_joint_state


def brief_of(plan: StepPlan) -> str:
    """Give PD's short form of what an operator does; taken before its steps are laid out."""
    if plan.add and plan.remove:
        return f"mv peer: store {_ids(plan.remove)} to {_ids(plan.add)}"
    if plan.remove and not plan.add and (plan.promote or plan.demote):
        # PD's text as it is: where peers are promoted it names the two sets the wrong way round.
        if plan.promote:
            return f"promote peer: store {_ids(plan.remove)}, rm peer: store {_ids(plan.promote)}"
        return f"demote peer: store {_ids(plan.demote)}, rm peer: store {_ids(plan.remove)}"
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


def _ids(stores: Iterable[int]) -> str:
    return f"[{' '.join(str(s) for s in sorted(stores))}]"


def check_buildable(cluster: Cluster, region: Region, *, joint_ok: bool = False) -> None:
    """Refuse regions for which PD builds no operator: no leader, no rule, or in the middle of a joint change."""
    if region.peer_on(region.leader) is None:
        raise CannotBuild("the region has no leader")
    if not joint_ok and in_joint_state(region):
        raise CannotBuild("the region is in a joint state")
    if cluster.config.placement_rules and not rules_of(cluster, region):
        raise CannotBuild("no placement rule applies to the whole region")


def operator_of(plan: StepPlan, desc: str, brief: str, kind: Kind, priority: Priority) -> Operator:
    """Close a plan."""
    if not plan.steps:
        raise CannotBuild("no step is needed")
    return Operator(desc, brief, plan.region.id, kind | plan.kind, tuple(plan.steps), priority, plan.region.size)


NO_KIND = Kind(0)


def change_peers(
    cluster: Cluster, region: Region, wanted: Mapping[int, Peer], desc: str, *, kind: Kind = NO_KIND,
    priority: Priority = Priority.MEDIUM, leader: int = 0,
) -> Operator:  # fmt: skip
    """Give the operator that brings a region to the wanted peers, by store, led by ``leader`` (0: any)."""
    check_buildable(cluster, region)
    plan = StepPlan(cluster, region, wanted, leader)
    brief = brief_of(plan)
    lay_out(plan)
    return operator_of(plan, desc, brief, kind, priority)


def add_peer(
    cluster: Cluster, region: Region, peer: Peer, desc: str, *, kind: Kind, priority: Priority = Priority.MEDIUM
) -> Operator:
    if region.peer_on(peer.store):
        raise CannotBuild(f"store {peer.store} has a peer already")
    wanted = {p.store: p for p in (*region.peers, peer)}
    return change_peers(cluster, region, wanted, desc, kind=kind, priority=priority)


def remove_peer(
    cluster: Cluster, region: Region, store: int, desc: str, *, kind: Kind = NO_KIND,
    priority: Priority = Priority.MEDIUM,
) -> Operator:  # fmt: skip
    wanted = _without(region, store)
    return change_peers(cluster, region, wanted, desc, kind=kind, priority=priority)


def move_peer(
    cluster: Cluster, region: Region, old: int, peer: Peer, desc: str, *, kind: Kind,
    priority: Priority = Priority.MEDIUM, leader: int = 0,
) -> Operator:  # fmt: skip
    """Replace the peer on store ``old`` by another, led by ``leader`` afterwards (0: any)."""
    if peer.store in region.stores:
        raise CannotBuild(f"store {peer.store} has a peer already")
    wanted = _without(region, old) | {peer.store: peer}
    if leader in region.down | region.pending:
        raise CannotBuild(f"the peer on store {leader} is not healthy")
    return change_peers(cluster, region, wanted, desc, kind=kind, priority=priority, leader=leader)


def _without(region: Region, store: int) -> dict[int, Peer]:
    if region.peer_on(store) is None:
        raise CannotBuild(f"store {store} has no peer")
    return {p.store: p for p in region.peers if p.store != store}


def set_role(cluster: Cluster, region: Region, store: int, role: str, desc: str, *, remove: int = 0) -> Operator:
    """Promote or demote a peer, and remove another at the same time where one is named."""
    if role == VOTER and store in region.down | region.pending:
        raise CannotBuild(f"the peer on store {store} is not healthy")
    wanted = {p.store: p._replace(role=role) if p.store == store else p for p in region.peers if p.store != remove}
    return change_peers(cluster, region, wanted, desc)


def set_witness(cluster: Cluster, region: Region, store: int, witness: bool, desc: str) -> Operator:
    """Switch a peer between witness and full replica."""
    wanted = {p.store: p._replace(witness=witness) if p.store == store else p for p in region.peers}
    return change_peers(cluster, region, wanted, desc, kind=Kind.WITNESS)


def transfer_leader(
    cluster: Cluster, region: Region, to: int, desc: str, *, kind: Kind = NO_KIND,
    priority: Priority = Priority.MEDIUM, forced: bool = False,
) -> Operator:  # fmt: skip
    check_buildable(cluster, region, joint_ok=True)
    peer = region.peer_on(to)
    if peer is None or peer.role == LEARNER or to in region.down | region.pending:
        raise CannotBuild(f"the peer on store {to} cannot lead")
    plan = StepPlan(cluster, region, {p.store: p for p in region.peers}, to, check_rules=not forced, forced=forced)
    brief = brief_of(plan)
    lay_out(plan)
    return operator_of(plan, desc, brief, kind, priority)


def merge_regions(cluster: Cluster, source: Region, target: Region) -> tuple[Operator, Operator]:
    """Merge a region into its neighbour: its peers go to the neighbour's stores first."""
    if in_joint_state(source) or in_joint_state(target):
        raise CannotBuild("a region is in a joint state")
    steps: tuple[Step, ...] = ()
    kind = Kind.MERGE
    if _places(source) != _places(target):
        moved = change_peers(cluster, source, {p.store: p for p in target.peers}, "", kind=Kind.MERGE)
        steps, kind = moved.steps, moved.kind
    brief = f"merge: region {source.id} to {target.id}"
    active = (*steps, MergeRegion(source.id, target.id))
    return (
        Operator("merge-region", brief, source.id, kind, active, size=source.size),
        Operator("merge-region", brief, target.id, kind, (MergeRegion(source.id, target.id, True),), size=target.size),
    )


def _places(region: Region) -> set[tuple[int, bool, bool]]:
    return {(p.store, p.role == LEARNER, p.witness) for p in region.peers}


def split_region(region: Region, desc: str, policy: str, keys: tuple[bytes, ...] = ()) -> Operator:
    """Split a region: at keys, or where its store finds its middle."""
    if in_joint_state(region):
        raise CannotBuild("the region is in a joint state")
    brief = f"split: region {region.id} use policy {policy.upper()}"
    return Operator(desc, brief, region.id, Kind.SPLIT, (SplitRegion(policy, keys),), size=region.size)


def leave_joint_state(cluster: Cluster, region: Region) -> Operator:
    """Finish a joint change that was left half done; a demoted leader hands over first."""
    if not in_joint_state(region):
        raise CannotBuild("the region is not in a joint state")
    if region.peer_on(region.leader) is None:
        raise CannotBuild("the region has no leader")
    plan = StepPlan(cluster, region, {p.store: p for p in region.peers}, 0, check_rules=False)
    plan.promote = {p.store: p for p in region.peers if p.role == INCOMING}
    plan.demote = {p.store: p for p in region.peers if p.role == DEMOTING}
    leader = region.peer_on(region.leader)
    plan.wanted_leader = region.leader if leader is not None and plan.may_lead(leader) else 0
    brief = brief_of(plan)
    plan.choose_leader()
    if not plan.wanted_leader:
        plan.forced = True
        plan.choose_leader()
    plan.do_joint(enter=False, lead=plan.wanted_leader != 0)
    return operator_of(plan, "leave-joint-state", brief, NO_KIND, Priority.MEDIUM)
