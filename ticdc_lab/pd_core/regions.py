"""A region as its leader reported it, and a million of them as columns."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ticdc_lab.machines.machine import stepped

VOTER, LEARNER, INCOMING, DEMOTING = "voter", "learner", "incoming-voter", "demoting-voter"
"""Roles of peers; the last two exist only while a joint change runs."""

MERGE, SCHEDULE = "merge", "schedule"
"""What labels of a region may forbid: ``merge_option=deny`` and ``schedule=deny``."""

EMPTY_MIB = 1
FEW_REGIONS = 100
"""Below so many regions in the cluster empty ones are balanced too."""


@stepped
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


def has_quorum(region: Region, able: Collection[int]) -> bool:
    """Whether peers on some stores can decide: more than half of the voters, in a joint state before and after it."""
    sets = ([p.store for p in region.peers if p.role in roles] for roles in ((VOTER, DEMOTING), (VOTER, INCOMING)))
    return all(sum(s in able for s in stores) * 2 > len(stores) for stores in sets)


def in_joint_state(region: Region) -> bool:
    """Whether a joint change is under way."""
    return any(p.role in (INCOMING, DEMOTING) for p in region.peers)


def is_healthy(region: Region) -> bool:
    """No peer down or pending."""
    return not region.down and not region.pending


ROLES = (VOTER, LEARNER, INCOMING, DEMOTING)
"""Roles by their number, which is protobuf's."""

Flags = NDArray[np.bool_]

KeyRanges = tuple[tuple[str, str], ...]
"""Ranges of keys in upper-case hexadecimal, an end that is "" is open; () means all keys."""

OUTSIDE = "it lies outside of the scheduler's key ranges"


def lies_in(region: Region, ranges: KeyRanges) -> bool:
    """Whether a region lies wholly within one of some ranges: PD draws only such regions."""
    return keys_lie_in(region.start_key, region.end_key, ranges)


def keys_lie_in(start_key: str, end_key: str, ranges: KeyRanges) -> bool:
    """Whether a region of these keys does."""
    return not ranges or any(
        start <= start_key and (not end or (bool(end_key) and end_key <= end)) for start, end in ranges
    )


class RegionLabels(NamedTuple):
    """What rules for labels do: ids of regions that they deny merges or scheduling, and the keys where they end.

    ``split`` are ids of regions within which one ends. ``rules`` are what each forbids or allows in which ranges, the
    one that counts last.
    """

    unmerged: frozenset[int] = frozenset()
    unscheduled: frozenset[int] = frozenset()
    borders: frozenset[str] = frozenset()
    split: frozenset[int] = frozenset()
    rules: tuple[tuple[str, bool, KeyRanges], ...] = ()

    def denied(self, start_key: str, end_key: str) -> frozenset[str]:
        """Give what they forbid a region with these keys: nothing where one ends within them."""
        if any(start_key < key and (not end_key or key < end_key) for key in self.borders):
            return frozenset()
        found = {what: denies for what, denies, ranges in self.rules if keys_lie_in(start_key, end_key, ranges)}
        return frozenset(what for what, denies in found.items() if denies)


NO_LABELS = RegionLabels()


class RegionColumns(NamedTuple):
    """Regions in key order, an array each; peers are a row of slots.

    ``stores`` gives the ids that ``peers`` and ``leader`` are positions in, -1 for none. ``role`` is a position in
    :data:`ROLES`; ``size`` is MiB, ``down_s`` the longest time that a leader reports a peer as down. ``hot`` and
    ``busy`` are the ids of regions that are hot and that have an operator; ``read`` and ``write`` are bytes of a
    heartbeat's interval, None where they are not known.
    """

    stores: tuple[int, ...]
    id: NDArray[np.int64]
    leader: NDArray[np.int32]
    peers: NDArray[np.int32]
    peer_id: NDArray[np.int64]
    role: NDArray[np.int8]
    witness: Flags
    down: Flags
    pending: Flags
    down_s: NDArray[np.float64]
    size: NDArray[np.float64]
    keys: NDArray[np.int64]
    start_key: pa.ChunkedArray
    end_key: pa.ChunkedArray
    hot: frozenset[int] = frozenset()
    busy: frozenset[int] = frozenset()
    read: NDArray[np.float64] | None = None
    write: NDArray[np.float64] | None = None
    labels: RegionLabels = NO_LABELS


def lie_in(c: RegionColumns, ranges: KeyRanges) -> Flags:
    """Mark the regions that lie wholly within one of some ranges."""
    found = np.full(len(c.id), not ranges, dtype=np.bool_)
    for start, end in ranges:
        ends = np.asarray(pc.less_equal(c.end_key, end)) & np.asarray(pc.not_equal(c.end_key, "")) if end else True
        found |= np.asarray(pc.greater_equal(c.start_key, start)) & ends
    return found


def region_at(c: RegionColumns, i: int) -> Region:
    """Give one region, by its place in key order."""
    slots = [k for k in range(c.peers.shape[1]) if c.peers[i, k] >= 0]
    peers = tuple(
        Peer(int(c.peer_id[i, k]), c.stores[c.peers[i, k]], ROLES[c.role[i, k]], bool(c.witness[i, k])) for k in slots
    )
    return Region(
        int(c.id[i]), peers, c.stores[c.leader[i]] if c.leader[i] >= 0 else 0, float(c.size[i]), int(c.keys[i]),
        frozenset(p.store for p, k in zip(peers, slots, strict=True) if c.down[i, k]),
        frozenset(p.store for p, k in zip(peers, slots, strict=True) if c.pending[i, k]),
        c.start_key[i].as_py(), c.end_key[i].as_py(), int(c.id[i]) in c.hot, float(c.down_s[i]),
        frozenset(
            what for what, ids in ((MERGE, c.labels.unmerged), (SCHEDULE, c.labels.unscheduled)) if int(c.id[i]) in ids
        ),
    )  # fmt: skip


def place_of(c: RegionColumns, region_id: int) -> int | None:
    """Give a region's place by its id, None where it is not there."""
    found = np.flatnonzero(c.id == region_id)
    return int(found[0]) if len(found) else None
