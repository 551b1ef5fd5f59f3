"""A region as its leader reported it."""

from __future__ import annotations

from typing import NamedTuple

VOTER, LEARNER, INCOMING, DEMOTING = "voter", "learner", "incoming-voter", "demoting-voter"
"""Roles of peers; the last two exist only while a joint change runs."""

MERGE, SCHEDULE = "merge", "schedule"
"""What labels of a region may forbid: ``merge_option=deny`` and ``schedule=deny``."""

EMPTY_MIB = 1
FEW_REGIONS = 100
"""Below so many regions in the cluster empty ones are balanced too."""


class Peer(NamedTuple):
    """A replica: its id orders peers where PD must choose, 0 for one that is still to be made."""

    id: int
    store: int
    role: str = VOTER
    witness: bool = False


class Region(NamedTuple):
    """A region at one moment.

    ``leader`` is a store, 0 for none. ``down`` and ``pending`` are the stores whose peers the leader reported so.
    ``size`` is MiB. ``denied`` is what labels of the region forbid, :data:`MERGE` or :data:`SCHEDULE`.
    """

    id: int
    peers: tuple[Peer, ...]
    leader: int
    size: float = 96
    keys: int = 0
    down: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()
    start_key: str = ""
    end_key: str = ""
    hot: bool = False
    down_seconds: float = 0
    denied: frozenset[str] = frozenset()

    def peer_on(self, store: int) -> Peer | None:
        """The peer on a store."""
        return next((p for p in self.peers if p.store == store), None)

    @property
    def stores(self) -> frozenset[int]:
        """Where the region has peers."""
        return frozenset(p.store for p in self.peers)


def is_learner(peer: Peer) -> bool:
    """A peer without a vote."""
    return peer.role == LEARNER


def voters(region: Region) -> tuple[Peer, ...]:
    """Peers with a vote."""
    return tuple(p for p in region.peers if p.role != LEARNER)


def learners(region: Region) -> tuple[Peer, ...]:
    """Peers without a vote."""
    return tuple(p for p in region.peers if p.role == LEARNER)


def in_joint_state(region: Region) -> bool:
    """Whether a joint change is under way."""
    return any(p.role in (INCOMING, DEMOTING) for p in region.peers)


def is_healthy(region: Region) -> bool:
    """No peer down or pending."""
    return not region.down and not region.pending
