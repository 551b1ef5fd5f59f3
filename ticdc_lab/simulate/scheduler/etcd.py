"""A model of etcd as TiCDC uses it: leases, the captures that are registered, the election of the owner, the status.

All of it is one linear history: each change has a revision, and a view shows everything as of one revision, so that an
owner that learns of a capture also learns whether it still is the owner (scheduling design, "Correctness Discussion").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from immutables import Map

from ticdc_lab.machines.clock import A_MILLISECOND, ts_of
from ticdc_lab.machines.leases import Lease, granted, lives, prolonged, run_out
from ticdc_lab.machines.machine import (
    Address,
    Changed,
    Decided,
    Event,
    Fired,
    Ignored,
    Now,
    Output,
    Received,
    ReceivedMany,
    Send,
    Wake,
    made,
    not_taken,
    one_by_one,
    replace,
)
from ticdc_lab.simulate.scheduler.etcd_messages import (
    ETCD,
    Ddl,
    ExecuteDdl,
    Expire,
    KeepAlive,
    KeptAlive,
    NoLease,
    PutPartitions,
    PutStatus,
    PutTables,
    Register,
    Resign,
    Status,
    TwoOwners,
    View,
    WantPartitions,
)
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.words import count

DDL = ("ddl",)
"""The timer of the DDL that is executed; the others have names of captures, which may be any text."""


@dataclass(frozen=True, slots=True)
class EtcdState:
    """What etcd holds."""

    revision: int  # rises with each change
    # ``tables``, ``barrier_ts``, ``waiting``: What is to be replicated, the DDL that holds it back, and those behind
    # it.
    tables: frozenset[Key]
    # The persisted global watermarks.
    checkpoint_ts: int
    resolved_ts: int
    leases: Map[Address, Lease] = Map()  # by capture; the revision is its campaign's
    barrier_ts: int | None = None
    waiting: tuple[tuple[int, Ddl], ...] = ()
    executing: bool = False
    rival: tuple[Address, int] | None = None  # the capture that was elected besides the owner, with its owner-rev
    partitions: int | None = None  # what a user wants and no owner has carried out
    executed_ts: int = 0  # the last DDL that was executed
    status_rev: int = 0  # the highest owner-rev that has written the watermarks


@dataclass(frozen=True, slots=True)
class Etcd:
    """The machine of etcd."""

    # What the changefeed replicates, and from where.
    tables: frozenset[Key]
    start_ts: int
    ttl_us: int = 5_000_000  # of leases
    # The global resolved_ts of the beginning, which no owner lowers; None for ``start_ts``. MaxUint64 (the
    # executor's ``MAX_TS`` is its like) lets no table wait for another one.
    resolved_ts: int | None = None

    def start(self, address: Address, now: Now) -> tuple[EtcdState, list[Output]]:
        resolved_ts = self.start_ts if self.resolved_ts is None else self.resolved_ts
        state = EtcdState(1, self.tables, self.start_ts, resolved_ts)
        return state, [Changed("global-checkpoint", None, self.start_ts, "the changefeed starts here")]

    def step(self, state: EtcdState, event: Event, now: Now) -> tuple[EtcdState, list[Output]]:
        if isinstance(event, Received):
            return self._requested(state, event.sender, event.message, now)
        if isinstance(event, Fired):
            return self._executed(state) if event.name == DDL else self._expired(state, now)
        if isinstance(event, ReceivedMany):
            return one_by_one(self, state, event, now)
        return self._asked(state, event.command, now)

    def _requested(self, state: EtcdState, sender: Address, message: Any, now: Now) -> tuple[EtcdState, list[Output]]:
        if isinstance(message, Register):
            revision = state.revision + 1
            lease, timer = granted(sender, sender, self.ttl_us, now, revision)
            state = replace(state, revision=revision, leases=state.leases.set(sender, lease))
            changed = Changed(f"session:{sender}", None, revision, f"{sender} registered")
            return state, [changed, timer, *self.views(state)]
        known = state.leases.get(sender)
        if known is None:
            return state, [Ignored(message, f"the lease of {sender} has expired"), Send(sender, NoLease())]
        if isinstance(message, KeepAlive):
            lease, timer = prolonged(sender, known, now)
            answer = Send(sender, KeptAlive(message.sent_us, self.ttl_us))
            return replace(state, leases=state.leases.set(sender, lease)), [timer, answer]
        if isinstance(message, ExecuteDdl):
            return self._written(state, message)
        if isinstance(message, Resign):
            return self._gone(state, sender, "it resigned")
        return self._put(state, message, now)

    def _put(
        self, state: EtcdState, put: PutStatus | PutTables | PutPartitions, now: Now
    ) -> tuple[EtcdState, list[Output]]:
        current = put.owner_rev in (owner_of(state)[1], state.rival[1] if state.rival else None)
        if not current:
            return state, [Ignored(put, f"owner-rev {put.owner_rev} is not the current one, {owner_of(state)[1]}")]
        if isinstance(put, PutTables):
            if put.tables == state.tables:
                return state, []
            changed = Changed("tables", len(state.tables), len(put.tables), "the owner has executed a DDL")
            state = replace(state, tables=put.tables, revision=state.revision + 1)
            return state, [changed, *self.views(state)]
        if isinstance(put, PutPartitions):
            if put.partitions != state.partitions:
                return state, [Ignored(put, "no change to so many partitions is pending")]
            state = replace(state, partitions=None, revision=state.revision + 1)
            return state, [Changed("wanted-partitions", put.partitions, None, put.because), *self.views(state)]
        if because := superseded(state, put):
            return state, [Ignored(put, because)]
        new = (put.checkpoint_ts, put.resolved_ts)
        state = replace(state, status_rev=put.owner_rev) if put.owner_rev > state.status_rev else state
        if new == (state.checkpoint_ts, state.resolved_ts):
            return state, []
        changes = []
        if put.checkpoint_ts != state.checkpoint_ts:
            changes.append(Changed("global-checkpoint", state.checkpoint_ts, put.checkpoint_ts))
        if put.resolved_ts != state.resolved_ts:
            changes.append(Changed("global-resolved", state.resolved_ts, put.resolved_ts))
        state = replace(state, checkpoint_ts=new[0], resolved_ts=new[1])
        status = Status(*new)
        told = [made(Send, (capture, status)) for capture in sorted(state.leases)]
        return state, [*changes, *self._due(state), *told]

    def _expired(self, state: EtcdState, now: Now) -> tuple[EtcdState, list[Output]]:
        outputs: list[Output] = []
        for capture in run_out(state.leases, now):
            state, more = self._gone(state, capture, "its lease ran out")
            outputs += more
        return state, outputs

    def _gone(self, state: EtcdState, capture: Address, because: str) -> tuple[EtcdState, list[Output]]:
        before = owner_of(state)[0]
        rival = None if state.rival and state.rival[0] == capture else state.rival
        lost = Changed(f"session:{capture}", state.leases[capture].revision, None, because)
        state = replace(state, leases=state.leases.delete(capture), revision=state.revision + 1, rival=rival)
        owner, owner_rev = owner_of(state)
        elected = [Changed("elected", before, owner, f"{owner} has owner-rev {owner_rev}")] if owner != before else []
        return state, [lost, Send(capture, NoLease()), *elected, *self.views(state)]

    def _asked(self, state: EtcdState, command: Any, now: Now) -> tuple[EtcdState, list[Output]]:
        if isinstance(command, Expire):
            latest = lives(state.leases, command.capture)[-1:]
            if not latest:
                return state, [Ignored(command, f"{command.capture} has no session")]
            return self._gone(state, latest[0], "a fault ended it")
        if isinstance(command, WantPartitions):
            # Keep a user's wish until an owner has carried it out, whichever that will be.
            if state.partitions is not None:
                return state, [Decided("partitions", None, f"it is going over to {state.partitions}")]
            state = replace(state, partitions=command.partitions, revision=state.revision + 1)
            return state, [
                Changed("wanted-partitions", None, command.partitions, "a user wants it"),
                *self.views(state),
            ]
        if isinstance(command, Ddl):
            return self._barred(replace(state, waiting=(*state.waiting, (ts_of(now.at_us), command))))
        if not isinstance(command, TwoOwners):
            raise not_taken(command, ETCD)
        owner, owner_rev = owner_of(state)
        rivals = sorted((lease.revision, c) for c, lease in state.leases.items() if c != owner)
        if not rivals:
            return state, [Ignored(command, "no other capture has a session")]
        revision = state.revision + 1
        rival = (rivals[0][1], owner_rev if command.same_rev else revision)
        state = replace(state, revision=revision, rival=rival)
        because = f"etcd broke its promise: {owner} is the owner too"
        return state, [Changed("elected", owner, rival[0], because), *self.views(state)]

    def _barred(self, state: EtcdState) -> tuple[EtcdState, list[Output]]:
        """Let the first DDL that waits hold the watermarks; TiDB's owner carries out two of one moment in turn."""
        if state.barrier_ts is not None or not state.waiting:
            return state, []
        barrier_ts = max(state.waiting[0][0], state.resolved_ts, state.executed_ts + A_MILLISECOND)
        state = replace(state, barrier_ts=barrier_ts, revision=state.revision + 1)
        changed = Changed("barrier", None, barrier_ts, "a DDL waits until every table has come to it")
        return state, [changed, *self._due(state), *self.views(state)]

    def _due(self, state: EtcdState) -> list[Output]:
        reached = state.barrier_ts is not None and state.checkpoint_ts >= state.barrier_ts
        return [Wake(state.waiting[0][1].takes_us, DDL)] if reached else []

    def _written(self, state: EtcdState, message: ExecuteDdl) -> tuple[EtcdState, list[Output]]:
        """Execute a DDL that dispatchers have come to by themselves, once for any number of reports."""
        if message.barrier_ts != state.barrier_ts or state.executing:
            return state, [Ignored(message, "it is executed, or being executed")]
        return replace(state, executing=True), [Wake(state.waiting[0][1].takes_us, DDL)]

    def _executed(self, state: EtcdState) -> tuple[EtcdState, list[Output]]:
        ddl, barrier_ts = state.waiting[0][1], state.barrier_ts
        tables = (state.tables - set(ddl.drop)) | set(ddl.add)
        state = replace(
            state,
            tables=state.tables if tables == state.tables else tables,
            barrier_ts=None,
            executed_ts=barrier_ts or 0,
            executing=False,
            waiting=state.waiting[1:],
            revision=state.revision + 1,
        )
        changed = Changed("barrier", barrier_ts, None, f"the DDL is executed: {count(len(tables), 'table')}")
        state, more = self._barred(state)
        return state, [changed, *(more or self.views(state))]

    def views(self, state: EtcdState) -> list[Output]:
        """Push a view to every session; a rival of the owner sees itself as the owner."""
        owner, owner_rev = owner_of(state)
        captures = frozenset(state.leases)
        outputs: list[Output] = []
        for capture in sorted(state.leases):
            seen = state.rival if state.rival and state.rival[0] == capture else (owner, owner_rev)
            view = View(
                state.revision, captures, *seen, state.tables, state.barrier_ts, state.checkpoint_ts,
                state.resolved_ts, state.partitions, state.executed_ts,
            )  # fmt: skip
            outputs.append(Send(capture, view))
        return outputs


def superseded(state: EtcdState, put: PutStatus) -> str:
    """Give why watermarks are not written, though their owner is one; empty where they are.

    An owner writes them in a transaction that compares its own revision and the value that it has read. So they never
    fall, though two captures be the owner at a time (MQ design: the global checkpoint must not go back).
    """
    if put.owner_rev < state.status_rev:
        return f"owner-rev {state.status_rev} has written since"
    if put.checkpoint_ts < state.checkpoint_ts or put.resolved_ts < state.resolved_ts:
        return f"watermarks never fall; {state.checkpoint_ts} and {state.resolved_ts} are written"
    return ""


def owner_of(state: EtcdState) -> tuple[Address | None, int]:
    """Give the owner and its owner-rev: the session that has campaigned longest."""
    first = min(((lease.revision, capture) for capture, lease in state.leases.items()), default=None)
    return (first[1], first[0]) if first else (None, 0)
