"""What a step makes of a region, as its store carries it out, and whether it has done so; pure."""

from __future__ import annotations

from collections.abc import Collection

from ticdc_lab.simulate.pd.operators import (
    AddLearner,
    BecomeNonWitness,
    BecomeWitness,
    DemoteVoter,
    EnterJoint,
    LeaveJoint,
    PromoteLearner,
    RemovePeer,
    Step,
    TransferLeader,
)
from ticdc_lab.simulate.pd.regions import DEMOTING, INCOMING, LEARNER, VOTER, Peer, Region


def with_pending_learner(region: Region, store: int, witness: bool = False) -> Region:
    """A new peer that waits for its snapshot."""
    peer = Peer(0, store, LEARNER, witness)
    return region._replace(peers=(*region.peers, peer), pending=region.pending | {store})


def caught_up(region: Region, store: int) -> Region:
    """The peer has its snapshot."""
    return region._replace(pending=region.pending - {store})


def after(region: Region, step: Step) -> Region | None:
    """Give a region after a step that needs no snapshot; None where its store refuses it."""
    match step:
        case TransferLeader(_, to):
            peer = region.peer_on(to)
            return None if peer is None or peer.role == LEARNER else region._replace(leader=to)
        case PromoteLearner(store):
            return _in_role(region, {store}, VOTER, (LEARNER,))
        case DemoteVoter(store):
            return _led_by_voter(_in_role(region, {store}, LEARNER, (VOTER,)))
        case RemovePeer(store):
            return _without(region, store)
        case EnterJoint(up, down):
            single = len(up) + len(down) == 1
            entered = _in_role(region, up, VOTER if single else INCOMING, (LEARNER,))
            return _led_by_voter(entered and _in_role(entered, down, LEARNER if single else DEMOTING, (VOTER,)))
        case LeaveJoint():
            now = {INCOMING: VOTER, DEMOTING: LEARNER}
            left = region._replace(peers=tuple(p._replace(role=now.get(p.role, p.role)) for p in region.peers))
            return _led_by_voter(left)
        case BecomeWitness(store) | BecomeNonWitness(store):
            witness = isinstance(step, BecomeWitness)
            peers = tuple(p._replace(witness=witness) if p.store == store else p for p in region.peers)
            return region._replace(peers=peers)
        case _:
            return None


def _led_by_voter(region: Region | None) -> Region | None:
    """Give the region, None where its leader would be demoted: TiKV refuses that, as it refuses to remove it."""
    leader = region.peer_on(region.leader) if region is not None else None
    return None if leader is not None and leader.role == LEARNER else region


def _in_role(region: Region, stores: Collection[int], role: str, before: tuple[str, ...]) -> Region | None:
    if any((p := region.peer_on(s)) is None or p.role not in before for s in stores):
        return None
    peers = tuple(p._replace(role=role) if p.store in stores else p for p in region.peers)
    return region._replace(peers=peers)


def _without(region: Region, store: int) -> Region | None:
    if region.leader == store:
        return None
    peers = tuple(p for p in region.peers if p.store != store)
    return region._replace(peers=peers, pending=region.pending - {store}, down=region.down - {store})


def is_done(step: Step, region: Region) -> bool:
    """Whether a region's heartbeat shows that a step is carried out; merges and splits are told otherwise."""
    match step:
        case AddLearner(store, _):
            return region.peer_on(store) is not None and store not in region.pending
        case PromoteLearner(store):
            return _has_role(region, (store,), (VOTER,))
        case DemoteVoter(store):
            return _has_role(region, (store,), (LEARNER,))
        case RemovePeer(store):
            return region.peer_on(store) is None
        case TransferLeader(_, to):
            return region.leader == to
        case EnterJoint(up, down):
            return _has_role(region, up, (INCOMING, VOTER)) and _has_role(region, down, (DEMOTING, LEARNER))
        case LeaveJoint(up, down):
            return _has_role(region, up, (VOTER,)) and _has_role(region, down, (LEARNER,))
        case BecomeWitness(store) | BecomeNonWitness(store):
            peer = region.peer_on(store)
            return peer is not None and peer.witness == isinstance(step, BecomeWitness)
        case _:
            return False


def _has_role(region: Region, stores: Collection[int], roles: tuple[str, ...]) -> bool:
    return all((p := region.peer_on(s)) is not None and p.role in roles for s in stores)
