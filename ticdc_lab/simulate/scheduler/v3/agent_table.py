"""The spans of one processor: tasks the owner gave, carried out by the executor.

A span has one task at a time; a request that comes while another is not finished is ignored, and comes again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.machine import Address, Changed, Ignored, Output, Send
from ticdc_lab.simulate.scheduler import executor as ex
from ticdc_lab.simulate.scheduler.clock import ts_of
from ticdc_lab.simulate.scheduler.executor import Executor
from ticdc_lab.simulate.scheduler.roles import Key, order
from ticdc_lab.simulate.scheduler.v3.messages import (
    ABSENT,
    ALIVE,
    PREPARED,
    PREPARING,
    REPLICATING,
    STOPPED,
    STOPPING,
    AddTable,
    Checkpoint,
    DispatchTableResponse,
    Header,
    RemoveTable,
    Request,
    TableStatus,
)
from ticdc_lab.simulate.scheduler.v3.settings import Settings

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

ADD, REMOVE = "add", "remove"
"""Calls of the executor that a fault can let fail."""


class Failing(NamedTuple):
    """A fault asks the processor: these calls of the executor (``add``, ``remove``) fail from now on."""

    calls: frozenset[str] = frozenset()


class Owner(NamedTuple):
    """The owner that counts for a processor: that of the highest revision it has heard."""

    address: Address
    revision: int
    version: str


@dataclass(frozen=True, slots=True)
class AgentState:
    """One processor.

    Attributes
    ----------
    address, epoch
        Who it is and in which life; every new owner and every restart begins another.
    executor
        The pipelines.
    held
        The spans it has.
    tasks
        By span, the request that has not been carried out yet.
    ready
        Those that are prepared and wait to be told to write.
    gone
        Those it has no more; they are reported Absent while the owner asks for them.
    owner
        Whom it obeys, None before one has spoken.
    liveness
        Alive until it is told to stop.
    seq
        Of the last message sent.
    taken
        By span, the ``seq`` of the last request of this owner.
    failing
        Calls of the executor that fail.
    """

    address: Address
    executor: Executor
    epoch: int = 1
    held: Map[Key, None] = Map()
    tasks: Map[Key, Request] = Map()
    ready: Map[Key, None] = Map()
    gone: Map[Key, None] = Map()
    owner: Owner | None = None
    liveness: str = ALIVE
    seq: int = 0
    taken: Map[Key, int] = Map()
    failing: frozenset[str] = frozenset()


@dataclass(slots=True)
class Desk:
    """An :class:`AgentState` while one step changes it, with what comes out of the step."""

    of: AgentState
    settings: Settings
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

    def finished(self) -> AgentState:
        """Give the state after the step."""
        of = self.of
        mine = (of.address, self.executor, of.epoch, self.held, self.tasks, self.ready, self.gone)
        return AgentState(*mine, of.owner, of.liveness, self.seq, self.taken, of.failing)

    def header(self, owner: Owner) -> Header:
        """Make the header of the next message."""
        self.seq += 1
        its = self.settings
        return Header(its.version, owner.revision, self.of.epoch, its.changefeed_epoch, self.seq)

    def respond(self, status: TableStatus) -> None:
        """Tell the owner of one span."""
        owner = self.of.owner
        if owner is not None:
            response = DispatchTableResponse(self.header(owner), owner.address, status)
            self.outputs.append(Send(owner.address, response))


def status_of(desk: Desk, span: Key) -> TableStatus:
    """Report one span."""
    executor, at_us = desk.executor, desk.at_us
    pipeline = ex.state_of(executor, span)
    if pipeline is None:
        return TableStatus(span, ABSENT)
    resolved_ts = ex.resolved_of(executor, span, at_us)
    checkpoint = Checkpoint(ex.checkpoint_of(executor, span, at_us), resolved_ts)
    shown = STOPPING if isinstance(desk.tasks.get(span), RemoveTable) else STATE[pipeline]
    return TableStatus(span, shown, checkpoint, resolved_ts)


def inject(desk: Desk, request: Request) -> bool:
    """Take a request as the task of its span, and say whether it was taken."""
    span = request.span
    if span in desk.tasks:
        desk.outputs.append(Ignored(request, f"table {span} has a task that is not finished"))
        return False
    if isinstance(request, RemoveTable) and span not in desk.held:
        desk.outputs.append(Ignored(request, f"table {span} is not here"))
        return False
    desk.gone = _without(desk.gone, span)
    desk.held = desk.held.set(span, None)
    desk.tasks = desk.tasks.set(span, request)
    return True


def carry_out(desk: Desk, span: Key) -> None:
    """Carry out the task of a span as far as it goes, and answer it: not while it prepares, at each look else."""
    task = desk.tasks.get(span)
    if isinstance(task, AddTable):
        _add(desk, task)
    elif task is not None:
        _remove(desk, span)


def _add(desk: Desk, task: AddTable) -> None:
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
            desk.ready = _without(desk.ready, span)
        desk.tasks = desk.tasks.delete(span)
        desk.respond(status_of(desk, span))


def _remove(desk: Desk, span: Key) -> None:
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


def settle(desk: Desk) -> None:
    """Bring all pipelines up to the moment."""
    pending = desk.executor.pending
    _take(desk, ex.settled(desk.executor, desk.at_us))
    for span in pending:
        if span not in desk.executor.pending and ex.state_of(desk.executor, span) == ex.PREPARED:
            desk.ready = desk.ready.set(span, None)


def singular(desk: Desk) -> list[Key]:
    """List the spans that do not simply replicate at the processor's common watermark."""
    executor = desk.executor
    special = {*executor.pending, *executor.stalled, *desk.ready, *desk.tasks}
    if len(executor.behind) <= LAGGARDS_NAMED:
        special.update(executor.behind)
    return sorted(special, key=order)


def common_checkpoint_ts(desk: Desk) -> int:
    """Give the checkpoint of all spans that are not singular: of many laggards the lowest counts for all."""
    executor, at_us = desk.executor, desk.at_us
    common_ts = min(ts_of(max(at_us - executor.pace.lag_us, 0)), executor.limit_ts)
    if len(executor.behind) > LAGGARDS_NAMED:
        common_ts = min(common_ts, *(ex.checkpoint_of(executor, span, at_us) for span in executor.behind))
    return common_ts


def _take(desk: Desk, changed: tuple[Executor, list[Changed]]) -> None:
    desk.executor = changed[0]
    desk.outputs += changed[1]


def _forget(desk: Desk, span: Key, status: TableStatus) -> None:
    desk.tasks = desk.tasks.delete(span)
    desk.held = _without(desk.held, span)
    desk.ready = _without(desk.ready, span)
    desk.gone = desk.gone.set(span, None)
    desk.respond(status)


def _without(keys: Map[Key, None], span: Key) -> Map[Key, None]:
    return keys.delete(span) if span in keys else keys
