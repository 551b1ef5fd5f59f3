"""The owner's side of the two-phase scheduler."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ticdc_lab.machines.machine import (
    BARRIER,
    CAPTURE,
    OTHER,
    TABLE,
    Address,
    Asked,
    Changed,
    Decided,
    Event,
    Ignored,
    Now,
    Reason,
    Received,
    Send,
    replace,
)
from ticdc_lab.simulate.scheduler.roles import Drain, Key, MoveTable, OwnerOutput, Rebalance, Tick, Watermarks, order
from ticdc_lab.simulate.scheduler.v3 import replications as manager
from ticdc_lab.simulate.scheduler.v3.captures import (
    UNINITIALIZED,
    Captures,
    V3CaptureStatus,
    all_initialized,
    forgotten,
    heard,
    registered,
    silent,
)
from ticdc_lab.simulate.scheduler.v3.messages import (
    DispatchTableRequest,
    DispatchTableResponse,
    Header,
    Heartbeat,
    HeartbeatResponse,
    epoch_matches,
)
from ticdc_lab.simulate.scheduler.v3.replications import (
    EMPTY,
    Keys,
    Replications,
    ReplicationsDraft,
    WantedSpans,
    changed,
    noted,
    planned,
    unscheduled,
)
from ticdc_lab.simulate.scheduler.v3.schedulers import Schedulers, V3View, accepted, schedule
from ticdc_lab.simulate.scheduler.v3.settings import V3Settings

# What the owner's side remembers, and how it speaks.


@dataclass(frozen=True, slots=True)
class V3CoordinatorState:
    """The state of one owner."""

    # Who it is; a capture of a higher revision is the owner that counts.
    address: Address
    owner_rev: int
    # Who is there, who has what, what is wanted, and what the schedulers remember.
    captures: Captures = field(default_factory=Captures)
    replications: Replications = field(default_factory=Replications)
    plan: WantedSpans = field(default_factory=WantedSpans)
    schedulers: Schedulers = field(default_factory=Schedulers)
    # The wanted tables as the last tick gave them, None before the captures have been heard.
    tables: frozenset[Key] | None = None
    seq: int = 0  # of the last message sent
    # The checkpoint of the last tick, None where it could not proceed, with why and since when.
    stuck: tuple[int | None, Reason] | None = None


Stepped = tuple[V3CoordinatorState, list[OwnerOutput]]


def finished(
    settings: V3Settings, state: V3CoordinatorState, draft: ReplicationsDraft, captures: Captures | None = None
) -> Stepped:
    """End a step on the owner's records: its notes, and its requests as messages."""
    replications, seq = draft.finished(), state.seq
    outputs: list[OwnerOutput] = [*draft.notes]
    for to, request in draft.requests:
        seq += 1
        outputs.append(Send(to, DispatchTableRequest(_header(settings, state, to, seq), to, request)))
    plan = noted(state.plan, draft.gone, replications.sets)
    captures = state.captures if captures is None else captures
    mine = (state.address, state.owner_rev, captures, replications, plan, state.schedulers)
    return V3CoordinatorState(*mine, state.tables, seq, state.stuck), outputs


def heartbeat(
    settings: V3Settings, state: V3CoordinatorState, to: Address, spans: Keys = EMPTY, collect_stats: bool = False
) -> tuple[V3CoordinatorState, Send]:
    """Make one heartbeat."""
    seq = state.seq + 1
    draining = state.schedulers.drain_target == to
    message = Heartbeat(_header(settings, state, to, seq), to, spans, draining, collect_stats)
    return replace(state, seq=seq), Send(to, message)


def _header(settings: V3Settings, state: V3CoordinatorState, to: Address, seq: int) -> Header:
    status = state.captures.members.get(to)
    epoch = status.epoch if status else 0
    return Header(settings.version, state.owner_rev, epoch, settings.changefeed_epoch, seq)


# How far the whole changefeed is: the lowest of all wanted spans, and which of them it is.


class GlobalWatermarks(NamedTuple):
    """The global watermarks, TSO integers; all None where the checkpoint cannot proceed.

    ``last_synced_ts`` is the highest, the others are the lowest of all spans. ``because`` names the span that holds the
    checkpoint. TiCDC's redo log, which would hold them as well, is not modelled.
    """

    checkpoint_ts: int | None
    resolved_ts: int | None
    last_synced_ts: int | None
    puller_resolved_ts: int | None
    because: Reason


class _Mark(NamedTuple):
    checkpoint_ts: int
    resolved_ts: int
    last_synced_ts: int
    puller_resolved_ts: int
    rank: tuple[int, str]
    who: Reason


def advance(
    replications: Replications, plan: WantedSpans, *, barrier_ts: int | None = None, floor_ts: int = 0
) -> GlobalWatermarks:
    """Find how far all wanted spans are.

    ``replications``, ``plan``: what there is and what is wanted; a wanted span without a record holds everything.
    ``barrier_ts``: no watermark passes it. Without any wanted span it is the watermark, or ``floor_ts`` where it is
    None. ``floor_ts``: a checkpoint that is known to be safe, as the persisted one is: spans that share their primary's
    watermark are not below it.
    """
    missing = next(unscheduled(plan, replications.sets), None)
    if missing is not None:
        because = Reason(TABLE, str(missing), f"table {missing} is not scheduled to any capture yet")
        return GlobalWatermarks(None, None, None, None, because)
    if not plan.spans:
        at = floor_ts if barrier_ts is None else barrier_ts
        return GlobalWatermarks(at, at, 0, at, Reason(OTHER, "", "no table is wanted", blocks=False))
    marks = _exact_marks(replications, plan) + _steady_marks(replications, floor_ts)
    slowest = min(marks, key=lambda m: (m.checkpoint_ts, m.resolved_ts, m.rank))
    checkpoint, resolved = slowest.checkpoint_ts, min(m.resolved_ts for m in marks)
    because = replace(slowest.who, words=f"{slowest.who} is the slowest")
    if barrier_ts is not None:
        if checkpoint > barrier_ts:
            because = Reason(BARRIER, str(barrier_ts), f"a barrier is set at {barrier_ts}", blocks=False)
        checkpoint, resolved = min(checkpoint, barrier_ts), min(resolved, barrier_ts)
    return GlobalWatermarks(
        checkpoint, resolved, max(m.last_synced_ts for m in marks), min(m.puller_resolved_ts for m in marks), because
    )


def _exact_marks(replications: Replications, plan: WantedSpans) -> list[_Mark]:
    marks = []
    for span in replications.exact:
        if span not in plan.spans:
            continue
        found = replications.sets[span]
        where = f"{found.state} on {found.primary}" if found.primary else found.state
        who = Reason(TABLE, str(span), f"table {span} ({where})", blocks=False)
        marks.append(_Mark(*found.checkpoint, found.puller_resolved_ts, order(span), who))
    return marks


def _steady_marks(replications: Replications, floor_ts: int) -> list[_Mark]:
    marks = []
    for address in sorted(replications.steady):
        held = replications.primaries.get(address)
        watched: Keys = replications.watched.get(address, EMPTY)
        if held is None or len(held) <= sum(span in held for span in watched):
            continue
        status = replications.steady[address]
        checkpoint, resolved, synced = status.checkpoint
        puller = status.puller_resolved_ts or resolved
        who = Reason(CAPTURE, address, f"{address}, with all its undisturbed tables,", blocks=False)
        marks.append(_Mark(max(checkpoint, floor_ts), max(resolved, floor_ts), synced, puller, (0, address), who))
    return marks


# One tick of the owner: who is there, what is wanted, what to do, how far all are.


def ticked(settings: V3Settings, state: V3CoordinatorState, tick: Tick, now: Now) -> Stepped:
    """Take one tick."""
    outputs: list[OwnerOutput] = []
    for part in (_members, _first_answers, _lost_captures, _wanted, _scheduled, _watermarks, _heartbeats):
        state, more = part(settings, state, tick, now)
        outputs += more
    return state, outputs


def _members(settings: V3Settings, state: V3CoordinatorState, tick: Tick, now: Now) -> Stepped:
    captures, came, went = registered(state.captures, tick.captures, state.address)
    if captures is state.captures:
        return state, []
    state, outputs = replace(state, captures=captures), list[OwnerOutput]()
    for address in came:
        outputs.append(Changed(f"capture:{address}", None, UNINITIALIZED, "it is registered"))
        state, send = heartbeat(settings, state, address)
        outputs.append(send)
    outputs += [Changed(f"capture:{a}", "registered", None, "it is not registered any more") for a in went]
    return state, outputs


def _first_answers(settings: V3Settings, state: V3CoordinatorState, tick: Tick, now: Now) -> Stepped:
    captures = state.captures
    if captures.initialized or not captures.members or silent(captures):
        return state, []
    found = {a: manager.spans_of(s.response) for a, s in captures.members.items() if s.response}
    draft = manager.rebuild(state.replications, found, tick.checkpoint_ts)
    return finished(settings, replace(state, captures=forgotten(captures)), draft)


def _lost_captures(settings: V3Settings, state: V3CoordinatorState, tick: Tick, now: Now) -> Stepped:
    if not state.captures.removed or not all_initialized(state.captures):
        return state, []
    draft = ReplicationsDraft(state.replications)
    for address in state.captures.removed:
        manager.shut_down(draft, address)
    return finished(settings, replace(state, captures=replace(state.captures, removed=())), draft)


def _wanted(settings: V3Settings, state: V3CoordinatorState, tick: Tick, now: Now) -> Stepped:
    if not state.captures.initialized or tick.tables is state.tables:
        return state, []
    old, sets = state.tables, state.replications.sets
    added, dropped = tick.tables - (old or frozenset()), (old or frozenset()) - tick.tables
    plan = planned(added, sets) if old is None else changed(state.plan, added, dropped, sets)
    return replace(state, plan=plan, tables=tick.tables), []


def _scheduled(settings: V3Settings, state: V3CoordinatorState, tick: Tick, now: Now) -> Stepped:
    if not all_initialized(state.captures):
        return state, []
    view = V3View(state.captures.members, state.replications, state.plan, tick.checkpoint_ts, now)
    schedulers, tasks, decided = schedule(settings, view, state.schedulers)
    draft = ReplicationsDraft(state.replications)
    taken = manager.handle_tasks(draft, tasks, settings.max_task_concurrency)
    for span in state.plan.surplus:
        found = draft.sets.get(span)
        if found is not None and not found.captures:
            draft.delete(span)
    state, outputs = finished(settings, replace(state, schedulers=accepted(schedulers, taken)), draft)
    return state, [*decided, *outputs]


def _watermarks(settings: V3Settings, state: V3CoordinatorState, tick: Tick, now: Now) -> Stepped:
    if not state.captures.initialized:
        waiting = silent(state.captures)
        because = Reason(OTHER, "", "no capture is registered")
        if waiting:
            because = Reason(CAPTURE, waiting[0], f"{waiting[0]} has not answered the owner yet")
        checkpoint = resolved = None
    else:
        progress = advance(state.replications, state.plan, barrier_ts=tick.barrier_ts, floor_ts=tick.checkpoint_ts)
        checkpoint, resolved, because = progress.checkpoint_ts, progress.resolved_ts, progress.because
    last = state.stuck
    is_same = last is not None and last[0] == checkpoint and (checkpoint is not None or last[1] == because)
    because = replace(because, since_us=last[1].since_us if last is not None and is_same else now.at_us)
    return replace(state, stuck=(checkpoint, because)), [Watermarks(checkpoint, resolved, because)]


def _heartbeats(settings: V3Settings, state: V3CoordinatorState, tick: Tick, now: Now) -> Stepped:
    ticks, collect = state.captures.ticks + 1, state.captures.collect_stats
    collect = collect or ticks % settings.collect_stats_ticks == 0
    is_due = ticks % settings.heartbeat_ticks == 0
    captures = replace(state.captures, ticks=ticks, collect_stats=collect and not is_due)
    state, outputs = replace(state, captures=captures), list[OwnerOutput]()
    if not is_due:
        return state, outputs
    for address in sorted(captures.members):
        state, send = heartbeat(settings, state, address, state.replications.on.get(address, EMPTY), collect)
        outputs.append(send)
    return state, outputs


# The owner's side of the two-phase scheduler.


class V3Coordinator:
    """The machine of an owner (:class:`ticdc_lab.machines.machine.Machine`).

    It is driven by ``Asked(Tick(...))`` at a steady pace, by ``Asked`` of MoveTable, Rebalance and Drain, and by what
    the processors answer. Each tick gives one :class:`~ticdc_lab.simulate.scheduler.roles.Watermarks`. Reports change
    the records at once (TiCDC keeps them until its next tick); tables are scheduled in ticks only.

    A lost message is nothing special: what it asked for is asked again when a heartbeat shows that it is missing.
    """

    def __init__(self, settings: V3Settings | None = None) -> None:
        self.settings = settings or V3Settings()

    def start(self, address: Address, now: Now) -> Stepped:
        """Give an owner of revision 0; use :meth:`elected` where there are elections."""
        return self.elected(address, 0, now)

    def elected(self, address: Address, owner_rev: int, now: Now) -> Stepped:
        """Give the fresh owner that an election has made, with the revision of the election.

        It knows nothing: it asks every capture at its first tick and schedules once all have answered.
        """
        return V3CoordinatorState(address, owner_rev), []

    def step(self, state: V3CoordinatorState, event: Event, now: Now) -> Stepped:
        if isinstance(event, Received):
            return self._received(state, event.sender, event.message)
        if not isinstance(event, Asked):
            return state, []
        command = event.command
        if isinstance(command, Tick):
            return ticked(self.settings, state, command, now)
        if isinstance(command, MoveTable):
            because = None if all_initialized(state.captures) else "not all captures have answered the owner"
            if command.table in state.schedulers.moves:
                because = f"table {command.table} is to be moved already"
            if because:
                return state, [Decided("move-table", None, f"table {command.table} is not moved because {because}")]
            moves = state.schedulers.moves.set(command.table, command.to)
            return replace(state, schedulers=replace(state.schedulers, moves=moves)), []
        if isinstance(command, Rebalance):
            if not all_initialized(state.captures):
                return state, [Decided("rebalance", None, "not done because not all captures have answered the owner")]
            return replace(state, schedulers=replace(state.schedulers, rebalance=True)), []
        if isinstance(command, Drain):
            because = _why_not_drain(state, command.capture)
            if because:
                said = f"{command.capture} is not drained because {because}"
                return state, [Decided("drain-capture", None, said)]
            return replace(state, schedulers=replace(state.schedulers, drain_target=command.capture)), []
        return state, [Ignored(command, "an owner does not know this command")]

    def _received(self, state: V3CoordinatorState, sender: Address, message: object) -> Stepped:
        if not isinstance(message, HeartbeatResponse | DispatchTableResponse):
            return state, [Ignored(message, "an owner takes responses only")]
        status = state.captures.members.get(sender)
        because = self._obstacle(state, status, message)
        if because or status is None:
            return state, [Ignored(message, because or "it comes from no capture")]
        if isinstance(message, HeartbeatResponse):
            return self._heartbeat_response(state, status, message)
        newer = status.newer.set(message.status.span, message.header.seq)
        captures = _with(state.captures, status._replace(newer=newer))
        draft = ReplicationsDraft(state.replications)
        manager.take_status(draft, sender, message.status)
        return finished(self.settings, state, draft, captures)

    def _obstacle(
        self,
        state: V3CoordinatorState,
        status: V3CaptureStatus | None,
        message: HeartbeatResponse | DispatchTableResponse,
    ) -> str | None:
        header = message.header
        if header.owner_revision != state.owner_rev:
            return f"it answers revision {header.owner_revision}, this owner's is {state.owner_rev}"
        if message.to != state.address:
            return f"it is for {message.to}"
        if not epoch_matches(header, self.settings.changefeed_epoch):
            return f"it is of changefeed epoch {header.changefeed_epoch}, not {self.settings.changefeed_epoch}"
        if status is None:
            return "it comes from no registered capture"
        return self._is_late(status, message)

    def _is_late(self, status: V3CaptureStatus, message: HeartbeatResponse | DispatchTableResponse) -> str | None:
        header = message.header
        if status.state != UNINITIALIZED and header.processor_epoch < status.epoch:
            return f"processor epoch {header.processor_epoch} has ended, it is {status.epoch} now"
        if isinstance(message, DispatchTableResponse):
            if status.state == UNINITIALIZED:
                return f"{status.address} has not answered a heartbeat yet"
            if header.processor_epoch > status.epoch:
                return "its processor is another than the one the owner knows"
        if header.seq == 0 or header.processor_epoch > status.epoch:
            return None
        seq = status.seq
        if isinstance(message, DispatchTableResponse):
            seq = max(seq, status.newer.get(message.status.span, 0))
        return f"the capture has said something newer ({seq} after {header.seq})" if header.seq <= seq else None

    def _heartbeat_response(
        self, state: V3CoordinatorState, status: V3CaptureStatus, message: HeartbeatResponse
    ) -> Stepped:
        draft = ReplicationsDraft(state.replications)
        if status.state != UNINITIALIZED and message.header.processor_epoch > status.epoch:
            manager.shut_down(draft, status.address)
            status = V3CaptureStatus(status.address, is_owner=status.is_owner)
            draft.notes.insert(0, Changed(f"capture:{status.address}", "lost", status.state, "its processor restarted"))
        now_known = heard(status, message, message.header)
        if now_known.state != status.state:
            because = f"it answered and is {message.liveness}"
            draft.notes.append(Changed(f"capture:{status.address}", status.state, now_known.state, because))
        if state.captures.initialized:
            manager.take_response(draft, status.address, message, now_known.newer)
            now_known = now_known._replace(response=None)
        return finished(self.settings, state, draft, _with(state.captures, now_known))


def _with(captures: Captures, status: V3CaptureStatus) -> Captures:
    return replace(captures, members=captures.members.set(status.address, status))


def _why_not_drain(state: V3CoordinatorState, target: Address) -> str | None:
    if not all_initialized(state.captures):
        return "not all captures have answered the owner"
    on = state.replications.on.get(target, ())
    if not any(state.replications.sets[span].primary == target for span in on):
        return "it replicates no table"
    if len(state.captures.members) <= 1:
        return "no other capture could take its tables"
    if target == state.address:
        return "it is the owner, which goes last"
    if state.schedulers.drain_target is not None:
        return f"{state.schedulers.drain_target} is being drained"
    return None
