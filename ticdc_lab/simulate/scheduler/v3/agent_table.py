"""The spans of one processor: tasks the owner gave, carried out by the executor.

A span has one task at a time; a request that comes while another is not finished is ignored, and comes again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.machine import Address, Changed, Ignored
from ticdc_lab.simulate.scheduler import executor as ex
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
    RemoveTable,
    Request,
    TableStatus,
)

STATE = {
    None: ABSENT,
    ex.PREPARING: PREPARING,
    ex.PREPARED: PREPARED,
    ex.REPLICATING: REPLICATING,
    ex.STOPPING: STOPPING,
}
"""The state that is reported, by the executor's."""

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


class Done(NamedTuple):
    """What came of looking at a span: the response, None while it prepares, and what changed."""

    state: AgentState
    status: TableStatus | None
    notes: list[Changed | Ignored]


def status_of(state: AgentState, span: Key, at_us: int) -> TableStatus:
    """Report one span."""
    pipeline = ex.state_of(state.executor, span)
    if pipeline is None:
        return TableStatus(span, ABSENT)
    checkpoint = Checkpoint(ex.checkpoint_of(state.executor, span, at_us), ex.resolved_of(state.executor, span, at_us))
    shown = STOPPING if isinstance(state.tasks.get(span), RemoveTable) else STATE[pipeline]
    return TableStatus(span, shown, checkpoint, checkpoint.resolved_ts)


def injected(state: AgentState, request: Request) -> tuple[AgentState, list[Changed | Ignored]]:
    """Take a request as the task of its span."""
    span = request.span
    if span in state.tasks:
        return state, [Ignored(request, f"table {span} has a task that is not finished")]
    if isinstance(request, RemoveTable) and span not in state.held:
        return state, [Ignored(request, f"table {span} is not here")]
    gone = state.gone.delete(span) if span in state.gone else state.gone
    held = state.held.set(span, None)
    return replace(state, held=held, gone=gone, tasks=state.tasks.set(span, request)), []


def polled(state: AgentState, span: Key, at_us: int) -> Done:
    """Carry out the task of a span as far as it goes."""
    task = state.tasks.get(span)
    if task is None:
        return Done(state, None, [])
    if isinstance(task, AddTable):
        return _add(state, task, at_us)
    return _remove(state, span, at_us)


def _add(state: AgentState, task: AddTable, at_us: int) -> Done:
    pipeline = ex.state_of(state.executor, task.span)
    start_ts = task.checkpoint.checkpoint_ts
    if pipeline is None and ADD not in state.failing:
        because = "the owner wants it prepared" if task.is_secondary else "the owner wants it replicated"
        added = ex.added(state.executor, task.span, start_ts, at_us, because, primary=not task.is_secondary)
        return Done(replace(state, executor=added[0]), None, list(added[1]))
    if pipeline is None:
        return _forgotten(_finished(state, task.span), task.span, TableStatus(task.span, ABSENT), [])
    if pipeline == ex.PREPARING:
        return Done(state, None, [])
    notes: list[Changed | Ignored] = []
    if pipeline == ex.PREPARED and not task.is_secondary:
        if ADD in state.failing:
            return Done(state, status_of(state, task.span, at_us), [])
        executor, changed = ex.promoted(state.executor, task.span, start_ts, at_us, "the owner committed it")
        state = replace(state, executor=executor, ready=_without(state.ready, task.span))
        notes += changed
    state = _finished(state, task.span)
    return Done(state, status_of(state, task.span, at_us), notes)


def _remove(state: AgentState, span: Key, at_us: int) -> Done:
    pipeline = ex.state_of(state.executor, span)
    notes: list[Changed | Ignored] = []
    if pipeline is None:
        return _forgotten(_finished(state, span), span, TableStatus(span, ABSENT), notes)
    status = status_of(state, span, at_us)
    if REMOVE in state.failing:
        return Done(state, status, notes)
    if pipeline != ex.STOPPING:
        executor, changed = ex.stopping(state.executor, span, at_us, "the owner wants it removed")
        state, notes = replace(state, executor=executor), list(changed)
    if not ex.has_stopped(state.executor, span, at_us):
        return Done(state, status, notes)
    if ex.state_of(state.executor, span) is not None:
        checkpoint_ts = ex.checkpoint_of(state.executor, span, at_us)
        status = status._replace(checkpoint=status.checkpoint._replace(checkpoint_ts=checkpoint_ts))
        executor, changed = ex.gone(state.executor, span, "it has stopped")
        state, notes = replace(state, executor=executor), [*notes, *changed]
    return _forgotten(_finished(state, span), span, status._replace(state=STOPPED), notes)


def settled(state: AgentState, at_us: int) -> tuple[AgentState, list[Changed]]:
    """Bring all pipelines up to a moment."""
    before = state.executor
    executor, changed = ex.settled(before, at_us)
    prepared = [s for s in before.pending if s not in executor.pending and ex.state_of(executor, s) == ex.PREPARED]
    ready = state.ready
    for span in prepared:
        ready = ready.set(span, None)
    return replace(state, executor=executor, ready=ready), changed


def singular(state: AgentState) -> list[Key]:
    """List the spans that do not simply replicate at the processor's common watermark."""
    executor = state.executor
    special = {*executor.pending, *executor.behind, *executor.stalled, *state.ready, *state.tasks}
    return sorted(special, key=order)


def still_gone(state: AgentState, asked: Map[Key, None]) -> list[Key]:
    """List the spans that the owner asks for and that have gone from here."""
    return sorted((span for span in state.gone if span in asked), key=order)


def without_gone(state: AgentState, spans: Iterable[Key]) -> AgentState:
    """Forget that spans have gone: the owner knows."""
    gone = state.gone
    for span in spans:
        gone = gone.delete(span)
    return replace(state, gone=gone)


def _finished(state: AgentState, span: Key) -> AgentState:
    return replace(state, tasks=state.tasks.delete(span))


def _forgotten(state: AgentState, span: Key, status: TableStatus, notes: list[Changed | Ignored]) -> Done:
    state = replace(
        state,
        held=_without(state.held, span),
        ready=_without(state.ready, span),
        gone=state.gone.set(span, None),
    )
    return Done(state, status, notes)


def _without(keys: Map[Key, None], span: Key) -> Map[Key, None]:
    return keys.delete(span) if span in keys else keys
