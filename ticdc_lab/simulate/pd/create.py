"""Operators by what they are for: add, remove, move or promote a peer, move leadership, merge, split.

Each raises :class:`~ticdc_lab.simulate.pd.builder.CannotBuild` where the wanted peers cannot be reached.
"""

from __future__ import annotations

from collections.abc import Mapping

from ticdc_lab.simulate.pd.builder import CannotBuild, Plan
from ticdc_lab.simulate.pd.building import brief_of, check_buildable, operator_of
from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.operators import (
    Kind,
    MergeRegion,
    Operator,
    Priority,
    SplitRegion,
    Step,
)
from ticdc_lab.simulate.pd.regions import DEMOTING, INCOMING, LEARNER, VOTER, Peer, Region, in_joint_state
from ticdc_lab.simulate.pd.steps import lay_out

NO_KIND = Kind(0)


def change_peers(
    cluster: Cluster, region: Region, wanted: Mapping[int, Peer], desc: str, *, kind: Kind = NO_KIND,
    priority: Priority = Priority.MEDIUM, leader: int = 0, followers: frozenset[int] = frozenset(),
) -> Operator:  # fmt: skip
    """Give the operator that brings a region to the wanted peers, by store, led by ``leader`` (0: any)."""
    check_buildable(cluster, region)
    plan = Plan(cluster, region, wanted, leader, followers=followers)
    brief = brief_of(plan)
    lay_out(plan)
    return operator_of(plan, desc, brief, kind, priority)


def add_peer(
    cluster: Cluster, region: Region, peer: Peer, desc: str, *, kind: Kind, priority: Priority = Priority.MEDIUM
) -> Operator:
    """Add a peer."""
    if region.peer_on(peer.store):
        raise CannotBuild(f"store {peer.store} has a peer already")
    wanted = {p.store: p for p in (*region.peers, peer)}
    return change_peers(cluster, region, wanted, desc, kind=kind, priority=priority)


def remove_peer(
    cluster: Cluster, region: Region, store: int, desc: str, *, kind: Kind = NO_KIND,
    priority: Priority = Priority.MEDIUM,
) -> Operator:  # fmt: skip
    """Remove the peer on a store."""
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


def set_role(
    cluster: Cluster, region: Region, store: int, role: str, desc: str, *, remove: int = 0, kind: Kind = NO_KIND
) -> Operator:
    """Promote or demote a peer, and remove another at the same time where one is named."""
    if role == VOTER and store in region.down | region.pending:
        raise CannotBuild(f"the peer on store {store} is not healthy")
    wanted = {p.store: p._replace(role=role) if p.store == store else p for p in region.peers if p.store != remove}
    return change_peers(cluster, region, wanted, desc, kind=kind)


def set_witness(cluster: Cluster, region: Region, store: int, witness: bool, desc: str) -> Operator:
    """Switch a peer between witness and full replica."""
    wanted = {p.store: p._replace(witness=witness) if p.store == store else p for p in region.peers}
    return change_peers(cluster, region, wanted, desc, kind=Kind.WITNESS)


def transfer_leader(
    cluster: Cluster, region: Region, to: int, desc: str, *, kind: Kind = NO_KIND,
    priority: Priority = Priority.MEDIUM,
) -> Operator:  # fmt: skip
    """Move leadership to the peer on a store."""
    check_buildable(cluster, region, joint_ok=True)
    peer = region.peer_on(to)
    if peer is None or peer.role == LEARNER or to in region.down | region.pending:
        raise CannotBuild(f"the peer on store {to} cannot lead")
    plan = Plan(cluster, region, {p.store: p for p in region.peers}, to)
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
    """Finish a joint change that somebody left half done; a demoted leader hands over first."""
    if not in_joint_state(region):
        raise CannotBuild("the region is not in a joint state")
    if region.peer_on(region.leader) is None:
        raise CannotBuild("the region has no leader")
    plan = Plan(cluster, region, {p.store: p for p in region.peers}, 0, check_rules=False)
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
