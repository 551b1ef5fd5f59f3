"""The downstream: a topic, or a database, that takes rows at its own pace and remembers what came in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.machines.machine import (
    Address,
    Changed,
    Event,
    Fired,
    Ignored,
    Now,
    Output,
    Received,
    ReceivedMany,
    Send,
    Wake,
    not_taken,
    one_by_one,
    stepped,
)
from ticdc_lab.simulate.pipeline.settings import BY_DEDUPLICATION, BY_SNAPSHOT, DownstreamSettings
from ticdc_lab.simulate.pipeline.sink_messages import (
    DOWNSTREAM,
    SEVERAL,
    Admin,
    AdminWritten,
    Begin,
    Execute,
    Executed,
    Publish,
    Resolved,
    Write,
    Written,
)
from ticdc_lab.simulate.pipeline.tables import Change, FinishedJob, table_of

if TYPE_CHECKING:
    from ticdc_lab.simulate.pipeline.partitions import Placing

ORDER = {"delete": 0, "update": 1, "insert": 2}
"""How the changes of one transaction follow each other."""
NOWHERE = (-1, -1, -1)
"""Before every place of a change."""
END = (len(ORDER), 0)
"""Behind every change of a commit_ts."""


class Pace(NamedTuple):
    """Asked of the downstream: from now on it takes so many rows a second; None for at once, 0 for none."""

    rows_per_s: int | None


class Rows(NamedTuple):
    """Row changes that are there for good and can be seen."""

    at_us: int
    writer: Address
    changes: tuple[Change, ...]


class Mark(NamedTuple):
    """A watermark in every partition."""

    at_us: int
    writer: Address
    ts: int


class DdlEntry(NamedTuple):
    """A DDL that was executed."""

    at_us: int
    writer: Address
    ts: int
    job: FinishedJob


class Partitions(NamedTuple):
    """An Admin event in every partition, old and new: from here on there are so many."""

    at_us: int
    writer: Address
    partitions: int


class Align(NamedTuple):
    """In every partition, the ``number``-th: a table's changes behind it conflict with those before it."""

    at_us: int
    writer: Address
    table: int
    number: int


Entry: TypeAlias = "Rows | Mark | DdlEntry | Partitions | Align"
Log: TypeAlias = "tuple[Entry, Log] | None"
"""Everything in the order in which it came, the newest first: a list that shares its tail with every older state."""


class PendingWrite(NamedTuple):
    """A write or a DDL that is being carried out."""

    due_us: int
    sender: Address
    message: Write | Execute | Admin


@stepped
class DownstreamState(NamedTuple):
    """What is downstream."""

    log: Log = None  # see ``Log``
    queue: tuple[PendingWrite, ...] = ()  # what waits, in order; ``free_us`` is when the last of it will be done
    free_us: int = 0
    rows_per_s: int | None = None
    writers: Map[int, Address] = Map()  # of a table, under ``exactly-once-snapshot``: who staged last
    staged: Map[int, tuple[Change, ...]] = Map()  # of a table: what is not visible yet
    # Of a table: the place of the last change that was taken (``exactly-once-deduplication``) or staged.
    marks: Map[int, tuple[int, int, int]] = Map()
    dropped: int = 0  # row changes that came again and were left out, or that were staged in vain
    partitions: int = 0  # how many there are
    placing: Placing | None = None  # what the dispatcher knows, if partitions are read in the run


@dataclass(frozen=True, slots=True)
class Downstream:
    """The machine of the downstream."""

    # What it is, and what it does against repetition.
    settings: DownstreamSettings
    semantics: str
    # Gives what the dispatcher knows then, and what goes to partitions; None if they are not read in the run.
    route: Callable[[DownstreamState, DownstreamState, DownstreamSettings], tuple[Placing, list[Output]]] | None = None

    def start(self, address: Address, now: Now) -> tuple[DownstreamState, list[Output]]:
        return DownstreamState(rows_per_s=self.settings.rows_per_s, partitions=self.settings.partitions), []

    def step(self, state: DownstreamState, event: Event, now: Now) -> tuple[DownstreamState, list[Output]]:
        if isinstance(event, ReceivedMany):
            return one_by_one(self, state, event, now)
        after, outputs = self._step(state, event, now)
        if self.route is None or after.log is state.log:
            return after, outputs
        placing, routed = self.route(state, after, self.settings)
        return after._replace(placing=placing), [*outputs, *routed]

    def _step(self, state: DownstreamState, event: Event, now: Now) -> tuple[DownstreamState, list[Output]]:
        if isinstance(event, Received):
            return self._received(state, event.sender, event.message, now)
        if isinstance(event, Fired):
            return self._due(state, now)
        command = event.command  # type: ignore[union-attr]  # messages came one by one
        if isinstance(command, Pace):
            return self._paced(state, command, now)
        raise not_taken(command, DOWNSTREAM)

    def _received(
        self, state: DownstreamState, sender: Address, message: Any, now: Now
    ) -> tuple[DownstreamState, list[Output]]:
        if isinstance(message, (Write, Execute, Admin)):
            if _waits(state.queue, sender, message):
                return state, [Ignored(message, "it was sent before and waits for its turn")]
            return self._queued(state, PendingWrite(0, sender, message), now)
        if isinstance(message, Resolved):
            state = self._all_published(state, message.ts, sender, now)
            return state._replace(log=(Mark(now.at_us, sender, message.ts), state.log)), []
        if isinstance(message, Begin):
            return self._begun(state, sender, message, now)
        if isinstance(message, Publish):
            return self._published(state, message.table, message.checkpoint_ts, sender, now), []
        return state, [Ignored(message, "the downstream does not know it")]

    # The pace

    def _queued(self, state: DownstreamState, one: PendingWrite, now: Now) -> tuple[DownstreamState, list[Output]]:
        takes_us = self._takes_us(state, one.message)
        if takes_us is None:  # it is stalled
            return state._replace(queue=(*state.queue, one._replace(due_us=-1))), []
        due_us = max(now.at_us, state.free_us) + takes_us
        if due_us <= now.at_us and not state.queue:
            return self._done(state, one, now)
        queue = (*state.queue, one._replace(due_us=due_us))
        return state._replace(queue=queue, free_us=due_us), [Wake(queue[0].due_us - now.at_us, "due")]

    def _takes_us(self, state: DownstreamState, message: Write | Execute | Admin) -> int | None:
        if isinstance(message, Execute):
            return self.settings.ddl_us
        if isinstance(message, Admin):
            return 0
        if state.rows_per_s is None:
            return 0
        return len(message.changes) * 1_000_000 // state.rows_per_s if state.rows_per_s else None

    def _due(self, state: DownstreamState, now: Now) -> tuple[DownstreamState, list[Output]]:
        outputs: list[Output] = []
        while state.queue and 0 <= state.queue[0].due_us <= now.at_us:
            one = state.queue[0]
            state, more = self._done(state._replace(queue=state.queue[1:]), one, now)
            outputs += more
        if state.queue and state.queue[0].due_us >= 0:
            outputs.append(Wake(state.queue[0].due_us - now.at_us, "due"))
        return state, outputs

    def _paced(self, state: DownstreamState, pace: Pace, now: Now) -> tuple[DownstreamState, list[Output]]:
        """Take another pace; what waits is planned again."""
        waiting = state.queue
        rate = {None: "rows at once", 0: "no rows"}.get(pace.rows_per_s, f"{pace.rows_per_s} rows a second")
        because = f"it takes {rate} from now on"
        told = Changed("downstream", _shown(state.rows_per_s), _shown(pace.rows_per_s), because)
        state = state._replace(rows_per_s=pace.rows_per_s, queue=(), free_us=now.at_us)
        outputs: list[Output] = [told]
        for one in waiting:
            state, more = self._queued(state, one, now)
            outputs += more
        return state, outputs

    # What is done

    def _done(self, state: DownstreamState, one: PendingWrite, now: Now) -> tuple[DownstreamState, list[Output]]:
        message = one.message
        if isinstance(message, Admin):
            return self._repartitioned(state, one.sender, message, now)
        if isinstance(message, Execute):
            because = f"{message.job.type}: {message.job.query}"
            state = self._all_published(state, message.finished_ts, one.sender, now)
            entry = DdlEntry(now.at_us, one.sender, message.finished_ts, message.job)
            return state._replace(log=(entry, state.log)), [
                Changed(f"executed:{message.job.id}", None, message.finished_ts, because),
                Send(one.sender, Executed(message.finished_ts)),
            ]
        changes = message.changes
        if self.semantics == BY_SNAPSHOT:
            return self._stage(state, one.sender, message)
        if self.semantics == BY_DEDUPLICATION:
            state, changes = _new_ones(state, message)
        if changes:
            state = state._replace(log=(Rows(now.at_us, one.sender, changes), state.log))
        return state, [Send(one.sender, Written(message.id, message.table))]

    def _repartitioned(
        self, state: DownstreamState, sender: Address, admin: Admin, now: Now
    ) -> tuple[DownstreamState, list[Output]]:
        """Write it once; what is above the checkpoint comes again, for consumers drop it."""
        answer = Send(sender, AdminWritten(admin.partitions))
        if admin.partitions == state.partitions:
            return state, [answer]
        state = self._all_published(state, admin.checkpoint_ts, sender, now)
        marks = state.marks if self.semantics != BY_DEDUPLICATION else _lowered(state.marks, admin.checkpoint_ts)
        mark = Mark(now.at_us, sender, admin.checkpoint_ts)
        log = (Partitions(now.at_us, sender, admin.partitions), (mark, state.log))
        told = Changed("partitions", state.partitions, admin.partitions, "no table is written")
        return state._replace(log=log, marks=marks, partitions=admin.partitions), [told, answer]

    def _stage(self, state: DownstreamState, sender: Address, write: Write) -> tuple[DownstreamState, list[Output]]:
        """Stage the rows of the tables that the sender still writes; only those are acknowledged."""
        found = sorted({table_of(c.key) for c in write.changes}) if write.table == SEVERAL else [write.table]
        void = {table for table in found if state.writers.get(table) != sender}
        outputs: list[Output] = []
        changes = write.changes
        if void:
            changes = tuple(c for c in changes if table_of(c.key) not in void)
            state = state._replace(dropped=state.dropped + len(write.changes) - len(changes))
            names = ", ".join(map(str, sorted(void)))
            outputs.append(Ignored(write, f"{sender} does not write table {names} any more"))
        state, fresh = _new_ones(state, write._replace(changes=changes))
        staged: dict[int, list[Change]] = {}
        for change in fresh:
            staged.setdefault(table_of(change.key), []).append(change)
        for table, new in staged.items():
            state = state._replace(staged=state.staged.set(table, (*state.staged.get(table, ()), *new)))
        if not void:
            return state, [Send(sender, Written(write.id, write.table))]
        return state, [*outputs, *(Send(sender, Written(write.id, t)) for t in found if t not in void)]

    def _begun(
        self, state: DownstreamState, sender: Address, begin: Begin, now: Now
    ) -> tuple[DownstreamState, list[Output]]:
        """Let another capture write: what is above its start will come again.

        What is covered by its start is complete, and still waits for the global checkpoint: if this writer is lost
        before, the next one starts below and writes it once more.
        """
        if self.semantics != BY_SNAPSHOT:
            return state, []
        staged = state.staged.get(begin.table, ())
        kept = tuple(c for c in staged if c.commit_ts <= begin.start_ts)
        void = len(staged) - len(kept)
        because = f"{sender} writes from {begin.start_ts} on" + (f", {void} staged changes are void" if void else "")
        changed = Changed(f"writer:{begin.table}", state.writers.get(begin.table), sender, because)
        return (
            state._replace(
                writers=state.writers.set(begin.table, sender),
                staged=state.staged.set(begin.table, kept),
                marks=state.marks.set(begin.table, (begin.start_ts, *END)),
                dropped=state.dropped + void,
            ),
            [changed],
        )

    def _all_published(self, state: DownstreamState, ts: int, sender: Address, now: Now) -> DownstreamState:
        """Make everything up to a persisted checkpoint visible, before the watermark or the DDL there."""
        for table in sorted(t for t, staged in state.staged.items() if staged):
            state = self._published(state, table, ts, sender, now)
        return state

    def _published(
        self, state: DownstreamState, table: int, checkpoint_ts: int, sender: Address, now: Now
    ) -> DownstreamState:
        staged = state.staged.get(table, ())
        seen = tuple(c for c in staged if c.commit_ts <= checkpoint_ts)
        if not seen:
            return state
        return state._replace(
            log=(Rows(now.at_us, sender, seen), state.log), staged=state.staged.set(table, staged[len(seen) :])
        )


def _lowered(marks: Map[int, tuple[int, int, int]], ts: int) -> Map[int, tuple[int, int, int]]:
    """Give places that are not above a ts."""
    return Map((table, min(place, (ts, *END))) for table, place in marks.items())


def _waits(queue: tuple[PendingWrite, ...], sender: Address, message: Write | Execute | Admin) -> bool:
    """Check whether a message that came again waits for its turn already, and nothing older of its table after it.

    Where an older write was done and came again behind this one, this one has to follow it once more: else the older
    rows would be final.
    """
    for one in reversed(queue):
        if one.sender != sender:
            continue
        if one.message == message:
            return True
        if _is_older(one.message, message):
            return False
    return False


def _is_older(waiting: Write | Execute | Admin, message: Write | Execute | Admin) -> bool:
    if not isinstance(waiting, Write) or not isinstance(message, Write):
        return False
    same = waiting.table == message.table or SEVERAL in (waiting.table, message.table)
    return same and waiting.id < message.id


def place_of(change: Change) -> tuple[int, int, int]:
    """Give the place of a change among its table's."""
    return change.commit_ts, ORDER[change.op], change.key


def entries(state: DownstreamState, since: Log = None) -> list[Entry]:
    """Give what came in, oldest first; ``since`` is the log of an earlier state, whose entries are left out."""
    found = list(_newest_first(state.log, since))
    found.reverse()
    return found


def _newest_first(log: Log, since: Log) -> Iterator[Entry]:
    while log is not None and log is not since:
        entry, log = log
        yield entry


def _new_ones(state: DownstreamState, write: Write) -> tuple[DownstreamState, tuple[Change, ...]]:
    """Leave out what was taken before: a table's changes come in order, from one writer at a time."""
    marks: dict[int, tuple[int, int, int]] = {}
    fresh: list[Change] = []
    for change in write.changes:
        table, place = table_of(change.key), place_of(change)
        if place > (marks[table] if table in marks else state.marks.get(table, NOWHERE)):
            fresh.append(change)
            marks[table] = place
    state = state._replace(marks=state.marks.update(marks), dropped=state.dropped + len(write.changes) - len(fresh))
    return state, tuple(fresh)


def _shown(rows_per_s: int | None) -> str:
    return "at once" if rows_per_s is None else f"{rows_per_s} rows/s"
