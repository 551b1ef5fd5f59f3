"""One tick of the owner: the orders it gives, one after another, until the transport takes no more."""

from __future__ import annotations

from dataclasses import dataclass

from ticdc_lab.machines.machine import (
    BARRIER,
    CAPTURE,
    OTHER,
    TABLE,
    Address,
    Asked,
    Broken,
    Changed,
    Decided,
    Event,
    Ignored,
    Now,
    Reason,
    Received,
    ReceivedMany,
    Send,
    one_by_one,
    replace,
)
from ticdc_lab.simulate.scheduler.balance import BY_COUNT, TRAFFIC, Balance, Places, in_order, plan
from ticdc_lab.simulate.scheduler.dispatcher_state import (
    ADDING,
    INCOMPATIBLE,
    REMOVING,
    RUNNING,
    SYNC_SENT,
    SYNCED,
    UNINITIALIZED,
    CaptureStatus,
    DispatcherState,
    Record,
    TableMove,
    commanded,
    in_flight,
    unsynced,
    waits_for,
    without_the_lost,
)
from ticdc_lab.simulate.scheduler.messages import (
    Announce,
    Checkpoint,
    DispatchTable,
    DispatchTableResponse,
    Sync,
    compatible,
)
from ticdc_lab.simulate.scheduler.roles import Key, OwnerOutput, Tick, Watermarks
from ticdc_lab.words import are, count

EXPLAINED = 1000
"""Up to so many tables that are added in one tick get a decision each; above there is one for all of them."""


NO_TABLE = Reason(OTHER, "", "no capture has a table", blocks=False)


Stepped = tuple[DispatcherState, list[OwnerOutput]]


class TickWork:
    """The owner's state during a tick; each step gives why the checkpoint cannot proceed after it, or None."""

    def __init__(
        self, state: DispatcherState, tick: Tick, now: Now, balance: Balance, outputs: list[OwnerOutput]
    ) -> None:
        self._state = state
        self._tick = tick
        self._now = now
        self._balance = balance
        self._outputs = outputs
        self._said = state.said
        self._draft = state.tables.draft()
        self._draft.want(tick.tables)
        self._moves = state.moves
        self._needs_rebalance = state.needs_rebalance

    def run(self) -> Reason | None:
        """Do all that can be done now: moves and rebalances wait until nothing is in flight."""
        because = self.add_missing() or self.remove_unwanted() or self.in_flight()
        if because:  # why moves and rebalance wait is reported once
            if self._needs_rebalance:
                self.say("rebalance", f"postponed: {because}")
            for key in in_order((k for k, m in self._moves.items() if not m.removed), ()):
                self.say(f"move:{key}", f"postponed: {because}")
            return because
        return self.move() or self.in_flight() or self.rebalance() or self.in_flight()

    def done(self) -> DispatcherState:
        return self._state._replace(
            tables=self._draft.done(), moves=self._moves, needs_rebalance=self._needs_rebalance, said=self._said
        )

    def in_flight(self) -> Reason | None:
        """Name the table that keeps the checkpoint from proceeding."""
        key = self._draft.any_in_flight()
        record = None if key is None else self._draft.get(key)
        return waits_for(key, record, self._draft.n_in_flight())

    def add_missing(self) -> Reason | None:
        """Dispatch every wanted table that is nowhere."""
        missing = self._draft.missing()
        if not missing:
            return None
        loads = {
            c: sum(map(self._balance.weight, self._draft.of(c)))
            if self._balance.policy == TRAFFIC
            else self._draft.count_on(c)
            for c in sorted(self._tick.captures - self._state.draining or self._tick.captures)  # rather there than lost
        }
        if not loads:
            return Reason(OTHER, "", "no capture may take tables")
        places = Places(loads, self._now.prefer)
        before = dict(loads)
        traffic = self._balance.policy == TRAFFIC

        def said(n: int) -> str:
            return f"{n} rows/s" if traffic else count(n, "table")

        for key in in_order(missing, self._now.prefer):
            move = self._moves.get(key)
            to = move.to if move and move.to in loads else places.least()
            refused = self._dispatch(key, to, is_delete=False)
            if refused:
                return refused
            if move:
                self._moves = self._moves.delete(key)
            if len(missing) <= EXPLAINED:
                why = "a user chose it" if move else f"the least loaded: {said(places.loads[to])}"
                others = tuple((c, f"has {said(n)}") for c, n in sorted(places.loads.items()) if c != to)
                self._outputs.append(Decided(f"table:{key}", to, why, others))
            places.take(to, self._balance.weight(key))
            self._draft.put(key, Record(to, ADDING, self._tick.checkpoint_ts))
        if len(missing) > EXPLAINED:
            given = ", ".join(f"{c} {places.loads[c] - before[c]}" for c in sorted(loads))
            self._outputs.append(Decided("tables", f"{len(missing)} dispatched", f"to the least loaded: {given}"))
        return None

    def remove_unwanted(self) -> Reason | None:
        """Stop every table that is no longer wanted and not in flight; forget the moves of those that have left."""
        dropped = (k for k, m in self._moves.items() if m.removed and k not in self._draft.wanted)
        for key in in_order((k for k in dropped if self._draft.get(k) is None), ()):
            self._moves = self._moves.delete(key)
            self._outputs.append(Decided(f"move:{key}", None, "it is no longer wanted"))
        for key in in_order(self._draft.unwanted(), self._now.prefer):
            record = self._draft.get(key)
            if record is None or record.status != RUNNING:
                continue
            refused = self._remove(key, record)
            if refused:
                return refused
            self._outputs.append(Decided(f"table:{key}", None, "it is no longer wanted"))
        return None

    def move(self) -> Reason | None:
        """Begin the moves that users asked for."""
        for key in in_order((k for k, m in self._moves.items() if not m.removed), self._now.prefer):
            move, record = self._moves[key], self._draft.get(key)
            if record is None or move.to not in self._tick.captures or record.capture == move.to:
                why = "it is not replicated" if record is None else f"{move.to} is gone, or has it"
                self._outputs.append(Decided(f"move:{key}", None, why))
                self._moves = self._moves.delete(key)
                continue
            refused = self._remove(key, record)
            if refused:
                return refused
            self._moves = self._moves.set(key, move._replace(removed=True))
            self._outputs.append(Decided(f"move:{key}", move.to, f"first it is removed from {record.capture}"))
        return None

    def rebalance(self) -> Reason | None:
        """Take tables from captures that have too many; they are added to others once they have stopped."""
        if not self._needs_rebalance:
            return None
        tables = {c: in_order(self._draft.of(c), self._now.prefer) for c in sorted(self._tick.captures)}
        found = plan(tables, self._state.draining, self._balance, self._now.prefer)
        for moving in found.moves:
            record = self._draft.get(moving.key)
            assert record
            refused = self._remove(moving.key, record)
            if refused:
                self.say("rebalance", f"not begun or not ended: {refused}")
                return refused
            if moving.to is not None:
                self._moves = self._moves.set(moving.key, TableMove(moving.to, removed=True))
            self._outputs.append(Decided(f"move:{moving.key}", moving.to or "the least loaded", moving.because))
        if found.moves:
            self._outputs.append(
                Decided("rebalance", f"move {count(len(found.moves), 'table')}", found.because, found.rejected)
            )
        else:
            self.say("rebalance", f"nothing to move: {found.because}", found.rejected)
        self._needs_rebalance = False
        return None

    def say(self, subject: str, because: str, rejected: tuple[tuple[str, str], ...] = ()) -> None:
        """Explain why nothing is done, unless that was the last reason."""
        told = f"{subject} {because}"
        if told != self._said:
            self._outputs.append(Decided(subject, None, because, rejected))
            self._said = told

    def _remove(self, key: Key, record: Record) -> Reason | None:
        refused = self._dispatch(key, record.capture, is_delete=True)
        if refused is None:
            self._draft.put(key, record._replace(status=REMOVING))
        return refused

    def _dispatch(self, key: Key, to: str, *, is_delete: bool) -> Reason | None:
        if to in self._now.refused:
            return Reason(TABLE, str(key), f"{to} takes no message, table {key} waits")
        status = self._state.captures.get(to)
        start_ts, epoch = self._tick.checkpoint_ts, status.epoch if status else 0
        self._outputs.append(Send(to, DispatchTable(self._state.owner_rev, key, is_delete, start_ts, epoch)))
        return None


# The owner's side of the design's protocol (v2): who has synced, which table is where, and how far all of them are.
#
# Source: seed, "The Protocol", "Correctness Discussion"; tiflow v6.1 ``schedule_dispatcher.go`` in
# `cdc/scheduler/internal/base`.


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """The machine of an owner."""

    version: str = "v6.1.0"  # announced to the processors, and compared with theirs
    balance: Balance = BY_COUNT  # where tables go, and which of them move

    def elected(self, address: Address, owner_rev: int, now: Now) -> Stepped:
        """Give an owner that has heard of none."""
        return DispatcherState(address, owner_rev, checked_us=now.at_us), []

    def step(self, state: DispatcherState, event: Event, now: Now) -> Stepped:
        if isinstance(event, Received):
            status = state.captures.get(event.sender)
            if status is None:
                return state, [Ignored(event.message, f"{event.sender} is not a capture this owner tracks")]
            if isinstance(event.message, Sync):
                return self._synced(state, event.sender, status, event.message)
            if status.sync != SYNCED:
                why = "has an incompatible version" if status.sync == INCOMPATIBLE else "has not synced"
                return state, [Ignored(event.message, f"{event.sender} {why}")]
            if isinstance(event.message, Checkpoint):
                new = status._replace(
                    checkpoint_ts=event.message.checkpoint_ts,
                    resolved_ts=event.message.resolved_ts,
                    slowest=event.message.slowest,
                )
                return state._replace(captures=state.captures.set(event.sender, new)), []
            if isinstance(event.message, DispatchTableResponse):
                return self._finished(state, event.sender, status, event.message)
            return state, [Ignored(event.message, "not a message to an owner")]
        if isinstance(event, ReceivedMany):
            return self._received_many(state, event, now)
        if isinstance(event, Asked):
            if isinstance(event.command, Tick):
                return self._tick(state, event.command, now)
            return commanded(state, event.command)
        return state, []

    # Messages of processors

    def _synced(self, state: DispatcherState, sender: Address, status: CaptureStatus, sync: Sync) -> Stepped:
        if not compatible(sync.processor_version, self.version):
            because = f"processor {sync.processor_version} and owner {self.version} are not compatible"
            status = status._replace(sync=INCOMPATIBLE)
            return state._replace(captures=state.captures.set(sender, status)), [Ignored(sync, because)]
        draft = state.tables.draft()
        outputs: list[OwnerOutput] = []
        for key in draft.of(sender):
            draft.remove(key)
        for keys, told in ((sync.running, RUNNING), (sync.adding, ADDING), (sync.removing, REMOVING)):
            for key in keys:
                old = draft.get(key)
                if old is not None:
                    because = f"{sender} and {old.capture} both report table {key}"
                    return state, [Broken("No Double Write", because)]
                draft.put(key, Record(sender, told))
        new = status._replace(sync=SYNCED, epoch=sync.epoch)
        counts = f"{len(sync.running)} running, {len(sync.adding)} adding, {len(sync.removing)} removing"
        outputs.append(Changed(f"capture:{sender}", status.sync, SYNCED, counts))
        return state._replace(captures=state.captures.set(sender, new), tables=draft.done()), outputs

    def _finished(
        self, state: DispatcherState, sender: Address, status: CaptureStatus, response: DispatchTableResponse
    ) -> Stepped:
        record = state.tables.get(response.id)
        if response.epoch != status.epoch:
            because = f"epoch {response.epoch} is not {status.epoch}, which {sender} has now"
            return state, [Ignored(response, because)]
        if record is None:
            return state, [Ignored(response, f"there is no table {response.id}")]
        if record.capture != sender or record.status == RUNNING:
            because = f"{sender} answers for table {response.id}, which is {record.status} on {record.capture}"
            return state, [Broken("Responses Match Orders", because)]
        if record.status == REMOVING:
            return state._replace(tables=state.tables.removed(response.id, record)), []
        tables = state.tables.running(response.id, record)
        return _lowered(state._replace(tables=tables), sender, record.start_ts, response.id), []

    def _received_many(self, state: DispatcherState, event: ReceivedMany, now: Now) -> Stepped:
        """Take a stretch of answers to dispatched tables in one go, which gives what one after another would give."""
        sender, messages = event
        status = state.captures.get(sender)
        records = {m.id: state.tables.get(m.id) for m in messages if type(m) is DispatchTableResponse}
        if status is None or status.sync != SYNCED or len(records) != len(messages):
            return one_by_one(self, state, event, now)
        if not all(
            r is not None and r.capture == sender and r.status == ADDING and m.epoch == status.epoch
            for m, r in zip(messages, records.values(), strict=True)
        ):
            return one_by_one(self, state, event, now)
        tables = state.tables.all_running({k: r for k, r in records.items() if r})
        starts = [(r.start_ts, k) for k, r in records.items() if r and r.start_ts is not None]
        lowest = min(starts, key=lambda s: s[0], default=(None, None))
        return _lowered(state._replace(tables=tables), sender, *lowest), []

    # The periodic call

    def _tick(self, state: DispatcherState, tick: Tick, now: Now) -> Stepped:
        outputs: list[OwnerOutput] = []
        if state.members != tick.captures:
            changed = state.members is not None
            state = state._replace(members=tick.captures, needs_rebalance=state.needs_rebalance or changed)
        because = unsynced(state)
        if because is not None or set(state.captures) != tick.captures:
            # Forget captures that left, and announce to those that do not know this owner.
            captures = state.captures
            for gone in sorted(c for c in captures if c not in tick.captures):
                captures = captures.delete(gone)
            for capture in sorted(tick.captures):
                status = captures.get(capture) or CaptureStatus(UNINITIALIZED, tick.checkpoint_ts, tick.checkpoint_ts)
                if status.sync == UNINITIALIZED and capture not in now.refused:
                    outputs.append(Send(capture, Announce(state.owner_rev, self.version)))
                    status = status._replace(sync=SYNC_SENT)
                if captures.get(capture) is not status:
                    captures = captures.set(capture, status)
            state = state if captures is state.captures else state._replace(captures=captures)
            because = unsynced(state)
        if because is None:
            state, because = self._scheduled(state, tick, now, outputs)
        if because is None:
            return self._advanced(state, tick, outputs)
        if because != state.stuck:
            state = state._replace(stuck=replace(because, since_us=now.at_us))
        assert state.stuck
        outputs.append(Watermarks(None, None, state.stuck))
        return state, outputs

    def _scheduled(
        self, state: DispatcherState, tick: Tick, now: Now, outputs: list[OwnerOutput]
    ) -> tuple[DispatcherState, Reason | None]:
        """Send what is to be sent; why the checkpoint cannot proceed."""
        state = without_the_lost(state, tick, outputs)
        tables = state.tables
        if now.at_us - state.checked_us >= self.balance.check_us:
            state = state._replace(checked_us=now.at_us, needs_rebalance=True)
        idle = not (tables.missing or tables.unwanted or state.moves or state.needs_rebalance)
        if idle and tick.tables is tables.wanted:
            return state, in_flight(tables)
        work = TickWork(state, tick, now, self.balance, outputs)
        because = work.run()
        return work.done(), because

    def _advanced(self, state: DispatcherState, tick: Tick, outputs: list[OwnerOutput]) -> Stepped:
        """Give the lowest watermarks of the captures that have tables."""
        found = [(c, s) for c, s in sorted(state.captures.items()) if state.tables.count_on(c)]
        state = state._replace(stuck=None) if state.stuck else state
        if not found:
            outputs.append(Watermarks(tick.barrier_ts, tick.barrier_ts, NO_TABLE))
            return state, outputs
        resolved_ts = min([s.resolved_ts for _, s in found])
        capture, slowest = min(found, key=lambda of: of[1].checkpoint_ts)
        checkpoint_ts = slowest.checkpoint_ts
        because = Reason(CAPTURE, capture, f"{capture} is the slowest", blocks=False)
        if slowest.slowest is not None:
            words = f"{because}, held by table {slowest.slowest}"
            because = Reason(TABLE, str(slowest.slowest), words, blocks=False)
        alike = [c for c, s in found if s.checkpoint_ts == checkpoint_ts and c != capture]
        if alike:  # such as all of them, where tables wait for the global resolved_ts
            because = replace(because, words=f"{because}; {' and '.join(alike)} {are(len(alike))} no further")
        if tick.barrier_ts is not None and resolved_ts >= tick.barrier_ts:
            resolved_ts, checkpoint_ts = tick.barrier_ts, min(checkpoint_ts, tick.barrier_ts)
            words = f"a DDL at {tick.barrier_ts} waits until every table has come to it; {because}"
            because = Reason(BARRIER, str(tick.barrier_ts), words, blocks=False)
        outputs.append(Watermarks(checkpoint_ts, resolved_ts, because))
        return state, outputs


def _lowered(state: DispatcherState, capture: Address, start_ts: int | None, table: Key | None) -> DispatcherState:
    """Take a table's start into the watermarks of its capture: what that reported before did not count the table."""
    status = state.captures[capture]
    if start_ts is None or start_ts >= status.checkpoint_ts:
        return state
    status = status._replace(checkpoint_ts=start_ts, resolved_ts=min(start_ts, status.resolved_ts), slowest=table)
    return state._replace(captures=state.captures.set(capture, status))
