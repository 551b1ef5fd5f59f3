"""The processor's side of the two-phase scheduler."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from immutables import Map

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.machine import (
    Address,
    Asked,
    Broken,
    Changed,
    Event,
    Ignored,
    Now,
    Output,
    Received,
    Send,
    replace,
)
from ticdc_lab.simulate.scheduler import executor as ex
from ticdc_lab.simulate.scheduler.executor import Executor, limited
from ticdc_lab.simulate.scheduler.roles import Key, Poll, Restart, order, without
from ticdc_lab.simulate.scheduler.v3.messages import (
    ABSENT,
    ALIVE,
    LEAVING,
    PREPARED,
    PREPARING,
    REPLICATING,
    STOPPED,
    STOPPING,
    AddTable,
    Checkpoint,
    DispatchTableRequest,
    DispatchTableResponse,
    Header,
    Heartbeat,
    HeartbeatResponse,
    RemoveTable,
    Request,
    Steady,
    TableStatus,
    epoch_matches,
)
from ticdc_lab.simulate.scheduler.v3.settings import V3Settings

# What a processor remembers, and how it speaks.

ADD, REMOVE = "add", "remove"
"""Calls of the executor that a fault can let fail."""


class Failing(NamedTuple):
    """A fault asks the processor: these calls of the executor (``add``, ``remove``) fail from now on."""

    calls: frozenset[str] = frozenset()


class V3Owner(NamedTuple):
    """The owner that counts for a processor: of the highest revision it has heard."""

    address: Address
    revision: int


@dataclass(frozen=True, slots=True)
class V3AgentState:
    """One processor."""

    # ``address``, ``epoch``: Who it is and in which life; every new owner and every restart begins another.
    address: Address
    executor: Executor  # the pipelines
    epoch: int = 1
    held: Map[Key, None] = Map()  # the spans it has
    tasks: Map[Key, Request] = Map()  # by span, the request that has not been carried out yet
    ready: Map[Key, None] = Map()  # those that are prepared and wait for the order to write
    gone: Map[Key, None] = Map()  # those it has no more; they are reported Absent while the owner asks for them
    owner: V3Owner | None = None  # whom it obeys, None before one has spoken
    liveness: str = ALIVE  # alive until the order to stop
    seq: int = 0  # of the last message sent
    taken: Map[Key, int] = Map()  # by span, the ``seq`` of the last request of this owner
    failing: frozenset[str] = frozenset()  # calls of the executor that fail

    def with_executor(self, executor: Executor) -> V3AgentState:
        return replace(self, executor=executor)


@dataclass(slots=True)
class AgentDesk:
    """An :class:`V3AgentState` while one step changes it, with what comes out of the step."""

    of: V3AgentState
    settings: V3Settings
    at_us: int
    outputs: list[Output] = field(default_factory=list)
    executor: Executor = field(init=False)
    held: Map[Key, None] = field(init=False)
    tasks: Map[Key, Request] = field(init=False)
    ready: Map[Key, None] = field(init=False)
    gone: Map[Key, None] = field(init=False)
    taken: Map[Key, int] = field(init=False)
    seq: int = field(init=False)

    def __post_init__(self) -> None:
        of = self.of
        self.executor, self.held, self.tasks = of.executor, of.held, of.tasks
        self.ready, self.gone, self.taken, self.seq = of.ready, of.gone, of.taken, of.seq

    def finished(self) -> V3AgentState:
        of = self.of
        mine = (of.address, self.executor, of.epoch, self.held, self.tasks, self.ready, self.gone)
        return V3AgentState(*mine, of.owner, of.liveness, self.seq, self.taken, of.failing)

    def header(self, owner: V3Owner) -> Header:
        """Make the header of the next message."""
        self.seq += 1
        its = self.settings
        return Header(its.version, owner.revision, self.of.epoch, its.changefeed_epoch, self.seq)

    def respond(self, status: TableStatus) -> None:
        """Report one span to the owner."""
        owner = self.of.owner
        if owner is not None:
            response = DispatchTableResponse(self.header(owner), owner.address, status)
            self.outputs.append(Send(owner.address, response))


# The spans of one processor: tasks the owner gave, carried out by the executor.
#
# A span has one task at a time; a request that comes while another is not finished is ignored, and comes again.

STATE = {
    None: ABSENT,
    ex.PREPARING: PREPARING,
    ex.PREPARED: PREPARED,
    ex.REPLICATING: REPLICATING,
    ex.STOPPING: STOPPING,
}
"""The state that is reported, by the executor's."""

LAGGARDS_NAMED = 32
"""So many spans at most that have not caught up are reported one by one."""


def status_of(desk: AgentDesk, span: Key, *, collect_stats: bool = False) -> TableStatus:
    """Report one span, and how far its puller is if statistics are asked for."""
    executor, at_us = desk.executor, desk.at_us
    pipeline = ex.state_of(executor, span)
    if pipeline is None:
        return TableStatus(span, ABSENT)
    resolved_ts = ex.resolved_of(executor, span, at_us)
    checkpoint = Checkpoint(ex.checkpoint_of(executor, span, at_us), resolved_ts)
    shown = STOPPING if isinstance(desk.tasks.get(span), RemoveTable) else STATE[pipeline]
    return TableStatus(span, shown, checkpoint, resolved_ts if collect_stats else None)


def inject(desk: AgentDesk, request: Request) -> bool:
    """Take a request as the task of its span, and return whether it was taken."""
    span = request.span
    if span in desk.tasks:
        desk.outputs.append(Ignored(request, f"table {span} has a task that is not finished"))
        return False
    if isinstance(request, RemoveTable) and span not in desk.held:
        desk.outputs.append(Ignored(request, f"table {span} is not here"))
        return False
    desk.gone = without(desk.gone, span)
    desk.held = desk.held.set(span, None)
    desk.tasks = desk.tasks.set(span, request)
    return True


def carry_out(desk: AgentDesk, span: Key) -> None:
    """Carry out the task of a span as far as it goes, and answer it: not while it prepares, at each look else."""
    task = desk.tasks.get(span)
    if isinstance(task, AddTable):
        _add(desk, task)
    elif task is not None:
        _remove(desk, span)


def _add(desk: AgentDesk, task: AddTable) -> None:
    span, start_ts, fails = task.span, task.checkpoint.checkpoint_ts, ADD in desk.of.failing
    pipeline = ex.state_of(desk.executor, span)
    if pipeline is None and fails:
        _forget(desk, span, TableStatus(span, ABSENT))
    elif pipeline is None:
        because = "the owner wants it prepared" if task.is_secondary else "the owner wants it replicated"
        changed = ex.added(desk.executor, span, start_ts, desk.at_us, because, primary=not task.is_secondary)
        _take(desk, changed)
    elif pipeline == ex.PREPARED and not task.is_secondary and fails:
        desk.respond(status_of(desk, span))
    elif pipeline != ex.PREPARING:
        if pipeline == ex.PREPARED and not task.is_secondary:
            _take(desk, ex.promoted(desk.executor, span, start_ts, desk.at_us, "the owner committed it"))
            desk.ready = without(desk.ready, span)
        desk.tasks = desk.tasks.delete(span)
        desk.respond(status_of(desk, span))


def _remove(desk: AgentDesk, span: Key) -> None:
    pipeline = ex.state_of(desk.executor, span)
    status = status_of(desk, span)
    if pipeline is not None and REMOVE in desk.of.failing:
        return desk.respond(status)
    if pipeline not in (None, ex.STOPPING):
        _take(desk, ex.stopping(desk.executor, span, desk.at_us, "the owner wants it removed"))
    if not ex.has_stopped(desk.executor, span, desk.at_us):
        return desk.respond(status)
    if ex.state_of(desk.executor, span) is not None:
        checkpoint_ts = ex.checkpoint_of(desk.executor, span, desk.at_us)
        status = status._replace(checkpoint=status.checkpoint._replace(checkpoint_ts=checkpoint_ts))
        _take(desk, ex.gone(desk.executor, span, "it has stopped"))
    return _forget(desk, span, status if pipeline is None else status._replace(state=STOPPED))


def settle(desk: AgentDesk) -> None:
    """Bring all pipelines up to the moment."""
    pending = desk.executor.pending
    _take(desk, ex.settled(desk.executor, desk.at_us))
    for span in pending:
        if span not in desk.executor.pending and ex.state_of(desk.executor, span) == ex.PREPARED:
            desk.ready = desk.ready.set(span, None)


def singular(desk: AgentDesk) -> list[Key]:
    """List the spans that do not simply replicate at the processor's common watermark."""
    executor = desk.executor
    if executor.pace.measured:
        return sorted({*executor.pipelines, *desk.tasks}, key=order)
    special = {*executor.pending, *executor.stalled, *desk.ready, *desk.tasks}
    if len(executor.behind) <= LAGGARDS_NAMED:
        special.update(executor.behind)
    return sorted(special, key=order)


def common_checkpoint_ts(desk: AgentDesk) -> int:
    """Give the checkpoint of all spans that are not singular: of many laggards the lowest counts for all."""
    executor, at_us = desk.executor, desk.at_us
    if executor.pace.measured:
        return min(ex.slowest(executor, at_us)[0], executor.limit_ts)
    common_ts = min(ts_of(max(at_us - executor.pace.lag_us, 0)), executor.limit_ts)
    if len(executor.behind) > LAGGARDS_NAMED:
        common_ts = min(common_ts, *(ex.checkpoint_of(executor, span, at_us) for span in executor.behind))
    return common_ts


def _take(desk: AgentDesk, changed: tuple[Executor, list[Changed]]) -> None:
    desk.executor = changed[0]
    desk.outputs += changed[1]


def _forget(desk: AgentDesk, span: Key, status: TableStatus) -> None:
    desk.tasks = desk.tasks.delete(span)
    desk.held = without(desk.held, span)
    desk.ready = without(desk.ready, span)
    desk.gone = desk.gone.set(span, None)
    desk.respond(status)


# The processor's side of the two-phase scheduler.


class Leave(NamedTuple):
    """A user or a signal asks the capture to stop: its liveness is Stopping from now on."""


class V3Agent:
    """The machine of a processor (:class:`ticdc_lab.machines.machine.Machine`).

    It is driven by ``Asked(Poll(...))`` at a steady pace and by what owners send. ``Asked`` of Restart is v2's;
    Leave is a signal to the capture's process, Failing lets calls of the executor fail.

    A capture that is Stopping still takes every AddTable, as TiCDC does: the owner stops choosing it, and a move to it
    that has begun would hang otherwise.
    """

    def __init__(self, settings: V3Settings | None = None) -> None:
        self.settings = settings or V3Settings()

    def start(self, address: Address, now: Now) -> tuple[V3AgentState, list[Output]]:
        return V3AgentState(address, Executor(self.settings.pace, 0)), []

    def step(self, state: V3AgentState, event: Event, now: Now) -> tuple[V3AgentState, list[Output]]:
        if isinstance(event, Received):
            return self._received(state, event.sender, event.message, now)
        if not isinstance(event, Asked):
            return state, []
        command = event.command
        if isinstance(command, Poll):
            desk = AgentDesk(state, self.settings, now.at_us)
            settle(desk)
            for span in sorted(desk.tasks, key=order):
                carry_out(desk, span)
            # Last: what ends now has not been written beyond the old one.
            desk.executor = limited(desk.executor, command.limit_ts)
            return desk.finished(), desk.outputs
        if isinstance(command, Restart):
            return _restarted(state)
        if isinstance(command, Leave):
            return _leaving(state, "it was ordered to stop")
        if isinstance(command, Failing):
            return replace(state, failing=command.calls), []
        return state, [Ignored(command, "a processor does not know this command")]

    def _received(
        self, state: V3AgentState, sender: Address, message: object, now: Now
    ) -> tuple[V3AgentState, list[Output]]:
        if not isinstance(message, Heartbeat | DispatchTableRequest):
            return state, [Ignored(message, "a processor takes requests and heartbeats only")]
        header = message.header
        if message.to != state.address:
            return state, [Ignored(message, f"it is for {message.to}")]
        state, outputs = _heard_owner(state, sender, header)
        owner = state.owner
        if owner is None or any(isinstance(output, Broken) for output in outputs):
            return state, outputs
        if header.owner_revision < owner.revision:
            because = f"{sender} is the owner of revision {header.owner_revision}, {owner.revision} is known"
            return state, [Ignored(message, because)]
        if not epoch_matches(header, self.settings.changefeed_epoch):
            because = f"it is of changefeed epoch {header.changefeed_epoch}, not {self.settings.changefeed_epoch}"
            return state, [*outputs, Ignored(message, because)]
        if isinstance(message, Heartbeat):
            state, more = self._heartbeat(state, owner, message, now)
        else:
            state, more = self._request(state, message, now)
        return state, [*outputs, *more]

    def _request(
        self, state: V3AgentState, message: DispatchTableRequest, now: Now
    ) -> tuple[V3AgentState, list[Output]]:
        header, span = message.header, message.request.span
        if header.processor_epoch != state.epoch:
            because = f"it is for processor epoch {header.processor_epoch}, this is {state.epoch}"
            return state, [Ignored(message, because)]
        if 0 < header.seq <= state.taken.get(span, 0):
            return state, [Ignored(message, "the owner has asked for something newer of this table")]
        desk = AgentDesk(state, self.settings, now.at_us)
        desk.taken = desk.taken.set(span, max(header.seq, desk.taken.get(span, 0)))
        if inject(desk, message.request):
            carry_out(desk, span)
        return desk.finished(), desk.outputs

    def _heartbeat(
        self, state: V3AgentState, owner: V3Owner, message: Heartbeat, now: Now
    ) -> tuple[V3AgentState, list[Output]]:
        outputs: list[Output] = []
        if message.is_stopping:
            state, outputs = _leaving(state, "the owner drains it")
        desk = AgentDesk(state, self.settings, now.at_us, outputs)
        for span in state.gone:
            if span not in message.spans and state.taken.get(span, 0) <= message.header.seq:
                desk.gone = desk.gone.delete(span)
        still_gone = sorted((span for span in desk.gone if span in message.spans), key=order)
        statuses = tuple(
            status_of(desk, span, collect_stats=message.collect_stats) for span in [*singular(desk), *still_gone]
        )
        resolved_ts = ts_of(desk.at_us)
        checkpoint = Checkpoint(common_checkpoint_ts(desk), resolved_ts)
        steady = Steady(desk.held, message.spans, checkpoint, resolved_ts if message.collect_stats else None)
        response = HeartbeatResponse(desk.header(owner), owner.address, statuses, state.liveness, steady)
        outputs.append(Send(owner.address, response))
        return desk.finished(), outputs


def _heard_owner(state: V3AgentState, sender: Address, header: Header) -> tuple[V3AgentState, list[Output]]:
    owner = state.owner
    new = V3Owner(sender, header.owner_revision)
    if owner is not None and header.owner_revision == owner.revision and sender != owner.address:
        because = f"{sender} and {owner.address} both own revision {owner.revision}"
        return state, [Broken("one owner a revision", because)]
    if owner is not None and header.owner_revision <= owner.revision:
        return state, []
    before = f"{owner.address}@{owner.revision}" if owner else None
    change = Changed("obeys", before, f"{sender}@{header.owner_revision}", "it has the highest revision heard")
    return replace(state, owner=new, epoch=state.epoch + 1, taken=Map()), [change]


def _leaving(state: V3AgentState, because: str) -> tuple[V3AgentState, list[Output]]:
    if state.liveness == LEAVING:
        return state, []
    return replace(state, liveness=LEAVING), [Changed("liveness", state.liveness, LEAVING, because)]


def _restarted(state: V3AgentState) -> tuple[V3AgentState, list[Output]]:
    executor, changed = ex.emptied(state.executor, "the processor restarted")
    fresh = V3AgentState(state.address, executor, state.epoch + 1, owner=state.owner, liveness=state.liveness)
    return fresh, [Changed("epoch", state.epoch, fresh.epoch, "the processor restarted"), *changed]
