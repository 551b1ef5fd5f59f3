"""What a store knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.machines.machine import Address, Now, Output, Send, stepped
from ticdc_lab.simulate.pipeline.cdc_messages import KvRow
from ticdc_lab.simulate.pipeline.kv_messages import (
    ROLLBACK,
    EpochNotMatch,
    KvRegion,
    NotLeader,
    Refusal,
    RegionNotFound,
)
from ticdc_lab.simulate.pipeline.tables import Value
from ticdc_lab.simulate.pipeline.tikv.region_data import Data, read, records, value_at

if TYPE_CHECKING:
    from ticdc_lab.simulate.pipeline.tikv.store import TikvStore


class LogEntry(NamedTuple):
    """A state that a leader has proposed."""

    # What is replicated.
    log_index: int
    data: Data
    rows: tuple[KvRow, ...] = ()  # what its observer sees when it is applied
    # Whose answer waits for it, and which of its commands; batch 0 has no client.
    batch: int = 0
    commands: tuple[int, ...] = ()


@stepped
class Led(NamedTuple):
    """What only a leader has."""

    followers: tuple[str, ...]  # names of the other stores that hold the region
    # For each of them the index it holds, and when the last ``CheckLeader`` was sent to which it agreed.
    acked: tuple[int, ...]
    checked_us: tuple[int, ...]
    pending: tuple[LogEntry, ...]  # not yet applied, oldest first
    confirmed: int  # the index that a majority holds
    confirmed_us: int  # at this moment a majority still took it for the leader
    applied: Data | None  # what can be served and observed; None until the first entry of the term is applied
    resolved_ts: int = 0  # no commit_ts at or below it will be applied any more
    learning: tuple[tuple[str, int], ...] = ()  # followers that began empty, and when they were seen to have caught up
    because: str = ""  # why it campaigned

    def with_pending(self, pending: tuple[LogEntry, ...], applied: Data | None = None) -> Led:
        """Propose or apply entries; ``applied`` is the last of the latter."""
        followers, acked, checked_us, _, confirmed, confirmed_us, before, resolved_ts, learning, because = self
        return Led(
            followers, acked, checked_us, pending, confirmed, confirmed_us, applied or before, resolved_ts, learning,
            because,
        )  # fmt: skip

    def with_held(self, acked: tuple[int, ...], confirmed: int) -> Led:
        """Count an answer of a follower, and what a majority holds since then."""
        followers, _, checked_us, pending, _, confirmed_us, applied, resolved_ts, learning, because = self
        return Led(
            followers, acked, checked_us, pending, confirmed, confirmed_us, applied, resolved_ts, learning, because
        )


class Votes(NamedTuple):
    """A candidate's votes: (store, term and index of what it holds, that)."""

    term: int
    votes: tuple[tuple[str, int, int, Data | None], ...]
    because: str


@stepped
class RegionPeer(NamedTuple):
    """A region's replica on this store."""

    data: Data | None  # the newest state accepted; None for a peer that only has voted
    term: int = 0  # no leader of a lower one is obeyed
    # Of ``data``.
    last_term: int = 0
    log_index: int = 0
    # False for a peer that began empty, or lost its last write, and is not admitted yet: it may have promised things
    # that it forgot.
    voter: bool = True
    leader: str | None = None  # the store that leads as far as is known
    led: Led | None = None
    votes: Votes | None = None

    def with_led(self, led: Led) -> RegionPeer:
        """Continue as a leader."""
        data, term, last_term, log_index, voter, leader, _, votes = self
        return RegionPeer(data, term, last_term, log_index, voter, leader, led, votes)


class OpenBatch(NamedTuple):
    """A client's batch whose answer waits until all its entries are applied; ``open`` names their regions."""

    client: Address
    id: int
    results: tuple[Refusal | None, ...]
    open: frozenset[int]


class ServedStream(NamedTuple):
    """What a subscriber gets of a region."""

    # Of its registration.
    address: Address
    request_id: int
    start: int
    end: int
    checkpoint_ts: int
    whole: bool  # nothing of the region is outside of ``start`` and ``end``
    # While it scans: what is read, which of its keys, and how many of them are sent; None and empty afterwards.
    snapshot: Data | None
    keys: tuple[int, ...]
    at: int = 0


class Due(NamedTuple):
    """A majority holds a region up to an index; it will be applied at ``at_us``."""

    at_us: int
    region: int
    term: int
    log_index: int


@stepped
class TikvStoreState(NamedTuple):
    """A store."""

    # Its own; the address has the number of its life.
    address: Address
    name: str
    peers: Map[int, RegionPeer]  # by region
    addresses: Map[str, Address]  # where the other stores are
    # Whose answers wait, by number; how many there were.
    batches: Map[int, OpenBatch] = Map()
    n_batches: int = 0
    due: tuple[Due, ...] = ()  # what a majority holds and is not applied yet, oldest first
    streams: Map[int, tuple[ServedStream, ...]] = Map()  # by region
    gone: Map[int, bool] = Map()  # regions that were merged into others
    # The regions whose log the last write went to, as they were before it: what a torn write leaves.
    written: tuple[tuple[int, RegionPeer], ...] = ()
    # Whether the disk has all that this store ever wrote: if not, it may have forgotten that it held a region.
    whole: bool = True


# What is committed in the stores.


Version: TypeAlias = "tuple[int, int, int, str, Value | None, Value | None]"
"""commit_ts, start_ts, key, op, value, old_value."""


def committed(state: TikvStoreState) -> Iterator[Version]:
    """Give all versions that are committed in the regions that a store leads, regions and keys in their order."""
    for data in sorted(led_here(state), key=lambda d: d.start):
        yield from _versions(data, ())


def committed_in(states: Iterable[TikvStoreState]) -> Iterator[Version]:
    """Give all versions that are committed upstream, each once, after any fault of the stores.

    A store that is down or cut off may still take itself for a leader of what has another leader or is divided by now:
    of regions that overlap the latest counts (epoch, then term). Without a leader, the newest that a peer has does.
    """
    found: list[tuple[bool, int, int, int, Data]] = []
    for state in states:
        for peer in state.peers.values():
            led = peer.led.applied if peer.led else None
            data = led or peer.data
            if data is not None:
                found.append((led is not None, data.epoch, peer.last_term, peer.log_index, data))
    taken: list[Data] = []
    for *_, data in sorted(found, key=lambda f: (*f[:4], f[4].id), reverse=True):
        over = tuple((t.start, t.end) for t in taken if t.start < data.end and data.start < t.end)
        if not any(start <= data.start and data.end <= end for start, end in over):
            yield from _versions(data, over)
            taken.append(data)


def _versions(data: Data, without: Sequence[tuple[int, int]]) -> Iterator[Version]:
    for key in sorted(data.write):
        if any(start <= key < end for start, end in without):
            continue
        for commit_ts, start_ts, kind, older, stored in records(data.write[key]):
            if kind != ROLLBACK:
                value = read(data.default, key, start_ts, stored)
                yield commit_ts, start_ts, key, kind, value, value_at(older, key, data.default)


def led_here(state: TikvStoreState) -> list[Data]:
    """Give the regions that a store leads, as they are served."""
    return [p.led.applied for p in state.peers.values() if p.led is not None and p.led.applied is not None]


# One step of a store while it is taken: the state so far and what came out so far.


@dataclass(slots=True)
class StoreTurn:
    """What the parts of a store hand to each other within one step; nothing of it outlives the step."""

    store: TikvStore
    state: TikvStoreState
    now: Now
    out: list[Output] = field(default_factory=list)
    # Regions that came to be served here or have another range since the step began: before (None) and after.
    changes: list[tuple[int, Data | None, Data]] = field(default_factory=list)

    def put(self, region: int, peer: RegionPeer) -> None:
        state = self.state
        self.state = state._replace(peers=state.peers.set(region, peer))

    def write(self, peers: Mapping[int, RegionPeer], before: Iterable[tuple[int, RegionPeer]]) -> None:
        """Write to the logs of several regions, in one write; ``before`` is how they were."""
        if peers:
            self.state = self.state._replace(peers=self.state.peers.update(peers), written=tuple(before))

    def put_all(self, peers: Mapping[int, RegionPeer]) -> None:
        if peers:
            self.state = self.state._replace(peers=self.state.peers.update(peers))

    def send(self, store: str, message: Any) -> None:
        """Send to another store, by name."""
        self.out.append(Send(self.state.addresses.get(store, store), message))

    def led(self) -> list[tuple[int, RegionPeer]]:
        """Give the regions that this store leads, by id."""
        return sorted((e for e in self.state.peers.items() if e[1].led is not None), key=lambda e: e[0])

    def address_of(self, store: str | None) -> Address | None:
        if store is None or store == self.state.name:
            return self.state.address if store else None
        return self.state.addresses.get(store, store)

    def not_leader(self, region: int) -> NotLeader:
        """Refuse, and name who leads as far as this store knows."""
        peer = self.state.peers.get(region)
        leader = peer.leader if peer and peer.led is None and peer.leader != self.state.name else None
        return NotLeader(region, self.address_of(leader))

    def asked_of(self, region: int, epoch: int, data: Data | None) -> Data | NotLeader | EpochNotMatch | RegionNotFound:
        """Give a region that is asked for something, or why this store cannot take that at all.

        ``data``: the applied region for a stream, the proposed one for a command (a split counts from then on); None
        where it is not led here.
        """
        if region not in self.state.peers:
            return RegionNotFound(region)
        if data is None or data.merging is not None:
            return self.not_leader(region)
        if data.epoch != epoch:
            return EpochNotMatch(region, (data.region(self.state.address), *self.parts_of(data)))
        return data

    def parts_of(self, data: Data) -> tuple[KvRegion, ...]:
        """Give what was split off a region as clients know it: as it is now where there is a peer of it."""
        state, found = self.state, []
        for sprout in data.sprouts:
            peer = state.peers.get(sprout.id)
            now = peer.data if peer is not None and peer.data is not None else sprout
            if sprout.id not in state.gone:
                found.append(now.region(self.address_of(peer.leader if peer else None) or state.address))
        return tuple(found)
