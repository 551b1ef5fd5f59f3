"""Partitions of a topic and the consumer that reads them, inside the kernel (MQ design, "Kafka Consumer 逻辑").

A partition is a node: what the sink writes comes to it, and it hands it on, in its order, over a link of its own. So
partitions overtake each other, one may be slow, stalled or cut off. The consumer has a listener a partition:

- it buffers rows, and executes those up to a watermark when it has read it; where transactions are to be restored,
  when all listeners have;
- at a DDL it executes what it holds up to there, and waits for all listeners to read the DDL, which is executed then;
- at an Admin event it waits likewise; what is above the watermark is dropped, for it comes again;
- by conflict detection, rows of a table behind an alignment wait until all listeners have read that and executed what
  precedes it. One that restores transactions has no need of it: it executes all partitions together.

Rows below the greatest commit_ts that was executed of their table are repeats and filtered ("CDC Processor 异常下线"):
in their partition, where a row stays in one; by conflict detection in any, for a repeat may come to another one.

With what it executes a consumer saves, in its database, from where each listener reads on after a crash: the oldest
entry that is not executed whole. What listeners had in memory is gone then, and is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.machines.machine import (
    Address,
    Changed,
    Event,
    Ignored,
    Now,
    Output,
    Received,
    ReceivedMany,
    Send,
    one_by_one,
    stepped,
)
from ticdc_lab.simulate.pipeline import partitions
from ticdc_lab.simulate.pipeline.downstream import (
    Align,
    DdlEntry,
    DownstreamState,
    Entry,
    Mark,
    Partitions,
    Rows,
    entries,
)
from ticdc_lab.simulate.pipeline.partitions import Placing
from ticdc_lab.simulate.pipeline.settings import BY_TRANSACTION, CONFLICT, DownstreamSettings
from ticdc_lab.simulate.pipeline.tables import Change, table_of

CONSUMER = "consumer"


def partition_node(partition: int) -> Address:
    return f"partition-{partition}"


class Append(NamedTuple):
    """The sink writes an entry to a partition."""

    entry: Entry


class Polled(NamedTuple):
    """A partition hands an entry on."""

    partition: int
    offset: int
    entry: Entry


class Fetch(NamedTuple):
    """The consumer wants a partition's entries from an offset on."""

    offset: int


def written_to_partitions(
    before: DownstreamState, after: DownstreamState, settings: DownstreamSettings
) -> tuple[Placing, list[Output]]:
    """Give what a step of the sink writes to each partition, and what the dispatcher knows then."""
    placing = before.placing or Placing(settings.dispatcher, before.partitions)
    found: list[Output] = []
    for entry in entries(after, before.log):
        placing, parts = partitions.routed(placing, entry)
        found += [Send(partition_node(p), Append(part)) for p, part in parts]
    return placing, found


Kept: TypeAlias = "tuple[Entry, Kept] | None"
"""A partition's entries, the newest first."""


class PartitionState(NamedTuple):
    """A partition: its entries, how many there are, and where the consumer is."""

    kept: Kept = None
    n: int = 0
    reader: Address = CONSUMER


@dataclass(frozen=True, slots=True)
class Partition:
    """The machine of a partition."""

    number: int

    def start(self, address: Address, now: Now) -> tuple[PartitionState, list[Output]]:
        return PartitionState(), []

    def step(self, state: PartitionState, event: Event, now: Now) -> tuple[PartitionState, list[Output]]:
        if isinstance(event, ReceivedMany):
            return one_by_one(self, state, event, now)
        if isinstance(event, Received) and isinstance(event.message, Append):
            entry = event.message.entry
            told = Send(state.reader, Polled(self.number, state.n, entry))
            return PartitionState((entry, state.kept), state.n + 1, state.reader), [told]
        if isinstance(event, Received) and isinstance(event.message, Fetch):
            found, kept = list[Entry](), state.kept
            while kept is not None and len(found) < state.n - event.message.offset:
                found.append(kept[0])
                kept = kept[1]
            first = state.n - len(found)
            told_again = (Polled(self.number, first + i, e) for i, e in enumerate(reversed(found)))
            return state._replace(reader=event.sender), [Send(event.sender, polled) for polled in told_again]
        return state, []


class ListenerPlace(NamedTuple):
    """Where a listener was: at an offset, with the partition's watermark and alignments of then."""

    offset: int = 0
    resolved_ts: int = 0
    aligned: Map[int, int] = Map()


@stepped
class Listener(NamedTuple):
    """What reads one partition."""

    next: int = 0  # the offset that it reads next
    resolved_ts: int = 0  # the partition's watermark
    # Rows that wait for one, as they came, each with where it was read.
    buffered: tuple[tuple[Change, ListenerPlace], ...] = ()
    # The DDL or Admin event at which it waits for the others, and where that was read.
    stands_at: DdlEntry | Partitions | None = None
    stands_in: ListenerPlace = ListenerPlace()
    unread: tuple[tuple[int, Entry], ...] = ()  # what came behind that, with its offset
    executed: Map[int, int] = Map()  # the greatest commit_ts that was executed of a table
    aligned: Map[int, int] = Map()  # how many alignments of a table it has read

    @property
    def saved(self) -> ListenerPlace:
        """Where it reads on after a crash: at the oldest entry that is not executed whole."""
        if self.buffered:
            return self.buffered[0][1]
        return (
            self.stands_in if self.stands_at is not None else ListenerPlace(self.next, self.resolved_ts, self.aligned)
        )


class ConsumerExecuted(NamedTuple):
    """What the consumer did at once: row changes, or a DDL."""

    at_us: int
    changes: tuple[Change, ...] = ()
    ddl: DdlEntry | None = None


Done: TypeAlias = "tuple[ConsumerExecuted, Done] | None"
"""All of it, the newest first."""


@stepped
class ConsumerState(NamedTuple):
    """A consumer."""

    listeners: Map[int, Listener]  # by partition
    partitions: int  # how many of them count
    done: Done = None  # what is in the consumer's database, in the order in which it came there
    filtered: int = 0  # repeats that were left out
    ddl_ts: int = 0  # the DDL that was executed last: it is not executed again
    open: Map[int, int] = Map()  # of a table: the alignment behind which its rows are executed now
    # Of a table: up to which commit_ts everything that comes is a repeat, in any partition.
    known: Map[int, int] = Map()


@dataclass(frozen=True, slots=True)
class Consumer:
    """The machine of the consumer."""

    settings: DownstreamSettings

    def start(self, address: Address, now: Now) -> tuple[ConsumerState, list[Output]]:
        n = self.settings.partitions
        return ConsumerState(Map({p: Listener() for p in range(n)}), n), []

    def again(self, address: Address, before: ConsumerState, disk: str, now: Now) -> tuple[ConsumerState, list[Output]]:
        """Resume with the database: what was executed is there, what was only read is read again."""
        listeners = {
            p: Listener(x.saved.offset, x.saved.resolved_ts, executed=x.executed, aligned=x.saved.aligned)
            for p, x in sorted(before.listeners.items())
        }
        wanted = [Send(partition_node(p), Fetch(x.next)) for p, x in listeners.items()]
        return before._replace(listeners=Map(listeners)), list(wanted)

    def step(self, state: ConsumerState, event: Event, now: Now) -> tuple[ConsumerState, list[Output]]:
        if isinstance(event, ReceivedMany):
            return one_by_one(self, state, event, now)
        if not isinstance(event, Received) or not isinstance(event.message, Polled):
            return state, []
        partition, offset, entry = event.message
        listener = state.listeners.get(partition, Listener())
        if offset < listener.next:
            return state, [Ignored(event.message, f"it was read, up to offset {listener.next}")]
        if offset > listener.next:
            missing = Ignored(event.message, f"offset {listener.next} is missing")
            return state, [missing, Send(event.sender, Fetch(listener.next))]
        listener = listener._replace(next=offset + 1)
        if listener.stands_at is not None:
            return _with(state, partition, listener._replace(unread=(*listener.unread, (offset, entry)))), []
        return self._read(_with(state, partition, listener), partition, [(offset, entry)], now)

    def _read(
        self, state: ConsumerState, partition: int, unread: Iterable[tuple[int, Entry]], now: Now
    ) -> tuple[ConsumerState, list[Output]]:
        """Let a listener read on, as far as it need not wait."""
        outputs: list[Output] = []
        waiting = iter(unread)
        for offset, entry in waiting:
            listener = state.listeners[partition]
            place = ListenerPlace(offset, listener.resolved_ts, listener.aligned)
            if isinstance(entry, Rows):
                rows = tuple([(change, place) for change in entry.changes])
                state = _with(state, partition, listener._replace(buffered=listener.buffered + rows))
            elif isinstance(entry, Mark):
                listener = listener._replace(resolved_ts=max(listener.resolved_ts, entry.ts))
                state = self._resolved(_with(state, partition, listener), partition, now)
            elif isinstance(entry, Align):
                if self.settings.consumer == BY_TRANSACTION:
                    continue
                aligned = listener.aligned.set(entry.table, entry.number)
                state = self._opened(_with(state, partition, listener._replace(aligned=aligned)), now)
            elif isinstance(entry, DdlEntry) and entry.ts <= state.ddl_ts:
                # All have been at it: a listener that reads it again after a crash, from earlier waiting rows, would
                # wait there alone.
                if self.settings.consumer != BY_TRANSACTION:
                    state = execute(state, (partition,), entry.ts, now)
            else:
                listener = listener._replace(stands_at=entry, stands_in=place, unread=tuple(waiting))
                state = _with(state, partition, listener)
                if isinstance(entry, DdlEntry) and self.settings.consumer != BY_TRANSACTION:
                    state = execute(state, (partition,), entry.ts, now)
                if isinstance(entry, Partitions):
                    # Partitions that come know no consumer that began after them.
                    new = [p for p in range(entry.partitions) if p not in state.listeners]
                    state = state._replace(listeners=state.listeners.update({p: Listener() for p in new}))
                    outputs += [Send(partition_node(p), Fetch(0)) for p in new]
                state, more = self._all_there(state, entry, now)
                outputs += more
        return state, outputs

    def _resolved(self, state: ConsumerState, partition: int, now: Now) -> ConsumerState:
        if self.settings.consumer != BY_TRANSACTION:
            state = execute(state, (partition,), state.listeners[partition].resolved_ts, now)
            return self._opened(state, now)
        if self.settings.dispatcher == CONFLICT:
            state = repeats_known(state)
        return execute(state, range(state.partitions), resolved_ts(state), now)

    def _opened(self, state: ConsumerState, now: Now) -> ConsumerState:
        """Resume behind alignments that all have reached, and execute what had waited there."""
        if self.settings.dispatcher != CONFLICT or self.settings.consumer == BY_TRANSACTION:
            return state
        after = opened(state)
        while after is not state:
            for p in range(after.partitions):
                after = execute(after, (p,), after.listeners[p].resolved_ts, now)
            state, after = after, opened(after)
        return state

    def _all_there(
        self, state: ConsumerState, entry: DdlEntry | Partitions, now: Now
    ) -> tuple[ConsumerState, list[Output]]:
        """Resume behind a DDL or an Admin event once every listener is at it."""
        n = max(state.partitions, entry.partitions) if isinstance(entry, Partitions) else state.partitions
        if not all_stand(state, entry, n):
            return state, []
        if isinstance(entry, DdlEntry):
            state = self._opened(execute(state, range(n), entry.ts, now), now)
            state, told = _ddl(state, entry, now)
        else:
            state, told = _repartitioned(state, entry)
        unread = {p: state.listeners[p].unread for p in range(n)}
        for p in range(n):
            state = _with(state, p, state.listeners[p]._replace(stands_at=None, unread=()))
        for p in range(n):
            state, more = self._read(state, p, unread[p], now)
            told += more
        return state, told


def all_stand(state: ConsumerState, entry: DdlEntry | Partitions, n: int) -> bool:
    """Whether the listeners of so many partitions have all read an entry."""
    return all(p in state.listeners and state.listeners[p].stands_at == entry for p in range(n))


def resolved_ts(state: ConsumerState) -> int:
    """Give the lowest watermark of all listeners."""
    return min((state.listeners[p].resolved_ts for p in range(state.partitions)), default=0)


def execute(state: ConsumerState, partitions: Sequence[int], upto_ts: int, now: Now) -> ConsumerState:
    """Execute what listeners hold up to a commit_ts, by commit_ts, and filter repeats."""
    due: list[Change] = []
    for p in partitions:
        listener = state.listeners[p]
        ripe = [b[0] for b in listener.buffered if b[0].commit_ts <= upto_ts and not _waits(state, b)]
        if not ripe:
            continue
        new = [c for c in ripe if c.commit_ts > state.known.get(table_of(c.key), 0)] if state.known else ripe
        fresh, executed = _fresh(new, listener.executed)
        state = state._replace(filtered=state.filtered + len(ripe) - len(fresh))
        left = tuple(b for b in listener.buffered if b[0].commit_ts > upto_ts or _waits(state, b))
        state = _with(state, p, listener._replace(buffered=left, executed=executed))
        due += fresh
    if not due:
        return state
    due.sort(key=attrgetter("commit_ts"))
    return state._replace(done=(ConsumerExecuted(now.at_us, tuple(due)), state.done))


def _waits(state: ConsumerState, buffered: tuple[Change, ListenerPlace]) -> bool:
    """Whether a row is behind an alignment that not all have reached; never where there are none."""
    change, place = buffered
    table = table_of(change.key)
    return place.aligned.get(table, 0) > state.open.get(table, 0) if place.aligned else False


def opened(state: ConsumerState) -> ConsumerState:
    """Resume behind each alignment that all listeners have read, if what precedes it is executed.

    What comes behind it and is not above all that was executed of the table is a repeat.
    """
    listeners = [state.listeners[p] for p in range(state.partitions)]
    for table in sorted({t for x in listeners for t in x.aligned}):
        number = min(x.aligned.get(table, 0) for x in listeners)
        before = [place.aligned.get(table, 0) for x in listeners for c, place in x.buffered if table_of(c.key) == table]
        number = min([number, *before])
        if number > state.open.get(table, 0):
            state = repeats_known(state._replace(open=state.open.set(table, number)), table)
    return state


def repeats_known(state: ConsumerState, table: int | None = None) -> ConsumerState:
    """Keep how far a table, or each, is executed: what comes up to there from now on is a repeat, in any partition."""
    newest = dict[int, int]()
    for _, listener in sorted(state.listeners.items()):
        for one, ts in listener.executed.items():
            if table in (None, one):
                newest[one] = max(newest.get(one, 0), ts)
    return state._replace(known=state.known.update(newest))


def _fresh(rows: Sequence[Change], executed: Map[int, int]) -> tuple[list[Change], Map[int, int]]:
    """Leave out rows below what was executed of their table in this partition before."""
    newest = dict[int, int]()
    found = []
    for change in rows:
        table = table_of(change.key)
        if change.commit_ts >= executed.get(table, 0):
            found.append(change)
            newest[table] = max(newest.get(table, 0), change.commit_ts)
    return found, executed.update(newest)


def _ddl(state: ConsumerState, ddl: DdlEntry, now: Now) -> tuple[ConsumerState, list[Output]]:
    if ddl.ts <= state.ddl_ts:
        return state, []
    told = Changed(f"executed:{ddl.job.id}", None, ddl.ts, f"all listeners have read it: {ddl.job.query}")
    return state._replace(ddl_ts=ddl.ts, done=(ConsumerExecuted(now.at_us, (), ddl), state.done)), [told]


def _repartitioned(state: ConsumerState, admin: Partitions) -> tuple[ConsumerState, list[Output]]:
    """Go over to another number of partitions: what is above the watermark is dropped, new listeners begin at it."""
    ts = resolved_ts(state)
    for p in range(max(state.partitions, admin.partitions)):
        listener = state.listeners[p]
        left = tuple(b for b in listener.buffered if b[0].commit_ts <= ts)
        resolved = max(listener.resolved_ts, ts)
        state = _with(state, p, listener._replace(buffered=left, resolved_ts=resolved))
    told = Changed("partitions", state.partitions, admin.partitions, "all listeners have read the Admin event")
    return state._replace(partitions=admin.partitions), [told]


def _with(state: ConsumerState, partition: int, listener: Listener) -> ConsumerState:
    return state._replace(listeners=state.listeners.set(partition, listener))


def newest_first(done: Done, since: Done = None) -> Iterator[ConsumerExecuted]:
    """Give what was done, the newest first, without what an earlier state had."""
    while done is not None and done is not since:
        yield done[0]
        done = done[1]


def consumer_nodes(settings: DownstreamSettings, partitions: int) -> dict[Address, Any]:
    """Give the machines of a consumer and of so many partitions; none where the run has none."""
    if settings.consumer is None:
        return {}
    return {CONSUMER: Consumer(settings), **{partition_node(p): Partition(p) for p in range(partitions)}}
