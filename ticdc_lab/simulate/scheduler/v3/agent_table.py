"""The spans of one processor: tasks the owner gave, carried out by the executor.

A span has one task at a time; a request that comes while another is not finished is ignored, and comes again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.machine import Changed, Ignored
from ticdc_lab.simulate.scheduler import executor as ex
from ticdc_lab.simulate.scheduler.executor import Executor
from ticdc_lab.simulate.scheduler.roles import Key, order
from ticdc_lab.simulate.scheduler.v3.messages import (
    ABSENT,
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


@dataclass(frozen=True, slots=True)
class Tables:
    """What a processor has.

    Attributes
    ----------
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
    failing
        Calls of the executor that fail.
    """

    executor: Executor
    held: Map[Key, None] = Map()
    tasks: Map[Key, Request] = Map()
    ready: Map[Key, None] = Map()
    gone: Map[Key, None] = Map()
    failing: frozenset[str] = frozenset()


class Done(NamedTuple):
    """What came of looking at a span: the response, None while it prepares, and what changed."""

    tables: Tables
    status: TableStatus | None
    notes: list[Changed | Ignored]


def status_of(tables: Tables, span: Key, at_us: int) -> TableStatus:
    """Report one span."""
    state = ex.state_of(tables.executor, span)
    if state is None:
        return TableStatus(span, ABSENT)
    checkpoint = Checkpoint(
        ex.checkpoint_of(tables.executor, span, at_us), ex.resolved_of(tables.executor, span, at_us)
    )
    shown = STOPPING if isinstance(tables.tasks.get(span), RemoveTable) else STATE[state]
    return TableStatus(span, shown, checkpoint, checkpoint.resolved_ts)


def injected(tables: Tables, request: Request) -> tuple[Tables, list[Changed | Ignored]]:
    """Take a request as the task of its span."""
    span = request.span
    if span in tables.tasks:
        return tables, [Ignored(request, f"table {span} has a task that is not finished")]
    if isinstance(request, RemoveTable) and span not in tables.held:
        return tables, [Ignored(request, f"table {span} is not here")]
    gone = tables.gone.delete(span) if span in tables.gone else tables.gone
    held = tables.held.set(span, None)
    return replace(tables, held=held, gone=gone, tasks=tables.tasks.set(span, request)), []


def polled(tables: Tables, span: Key, at_us: int) -> Done:
    """Carry out the task of a span as far as it goes."""
    task = tables.tasks.get(span)
    if task is None:
        return Done(tables, None, [])
    if isinstance(task, AddTable):
        return _add(tables, task, at_us)
    return _remove(tables, span, at_us)


def _add(tables: Tables, task: AddTable, at_us: int) -> Done:
    state = ex.state_of(tables.executor, task.span)
    start_ts = task.checkpoint.checkpoint_ts
    if state is None and ADD not in tables.failing:
        because = "the owner wants it prepared" if task.is_secondary else "the owner wants it replicated"
        added = ex.added(tables.executor, task.span, start_ts, at_us, because, primary=not task.is_secondary)
        return Done(replace(tables, executor=added[0]), None, list(added[1]))
    if state is None:
        return _forgotten(_finished(tables, task.span), task.span, TableStatus(task.span, ABSENT), [])
    if state == ex.PREPARING:
        return Done(tables, None, [])
    notes: list[Changed | Ignored] = []
    if state == ex.PREPARED and not task.is_secondary:
        if ADD in tables.failing:
            return Done(tables, status_of(tables, task.span, at_us), [])
        executor, changed = ex.promoted(tables.executor, task.span, start_ts, at_us, "the owner committed it")
        tables = replace(tables, executor=executor, ready=_without(tables.ready, task.span))
        notes += changed
    tables = _finished(tables, task.span)
    return Done(tables, status_of(tables, task.span, at_us), notes)


def _remove(tables: Tables, span: Key, at_us: int) -> Done:
    state = ex.state_of(tables.executor, span)
    notes: list[Changed | Ignored] = []
    if state is None:
        return _forgotten(_finished(tables, span), span, TableStatus(span, ABSENT), notes)
    status = status_of(tables, span, at_us)
    if REMOVE in tables.failing:
        return Done(tables, status, notes)
    if state != ex.STOPPING:
        executor, changed = ex.stopping(tables.executor, span, at_us, "the owner wants it removed")
        tables, notes = replace(tables, executor=executor), list(changed)
    if not ex.has_stopped(tables.executor, span, at_us):
        return Done(tables, status, notes)
    if ex.state_of(tables.executor, span) is not None:
        checkpoint_ts = ex.checkpoint_of(tables.executor, span, at_us)
        status = status._replace(checkpoint=status.checkpoint._replace(checkpoint_ts=checkpoint_ts))
        executor, changed = ex.gone(tables.executor, span, "it has stopped")
        tables, notes = replace(tables, executor=executor), [*notes, *changed]
    return _forgotten(_finished(tables, span), span, status._replace(state=STOPPED), notes)


def settled(tables: Tables, at_us: int) -> tuple[Tables, list[Changed]]:
    """Bring all pipelines up to a moment."""
    before = tables.executor
    executor, changed = ex.settled(before, at_us)
    prepared = [s for s in before.pending if s not in executor.pending and ex.state_of(executor, s) == ex.PREPARED]
    ready = tables.ready
    for span in prepared:
        ready = ready.set(span, None)
    return replace(tables, executor=executor, ready=ready), changed


def singular(tables: Tables) -> list[Key]:
    """List the spans that do not simply replicate at the processor's common watermark."""
    executor = tables.executor
    special = {*executor.pending, *executor.behind, *executor.stalled, *tables.ready, *tables.tasks}
    return sorted(special, key=order)


def still_gone(tables: Tables, asked: Map[Key, None]) -> list[Key]:
    """List the spans that the owner asks for and that have gone from here."""
    return sorted((span for span in tables.gone if span in asked), key=order)


def without_gone(tables: Tables, spans: Iterable[Key]) -> Tables:
    """Forget that spans have gone: the owner knows."""
    gone = tables.gone
    for span in spans:
        gone = gone.delete(span)
    return replace(tables, gone=gone)


def _finished(tables: Tables, span: Key) -> Tables:
    return replace(tables, tasks=tables.tasks.delete(span))


def _forgotten(tables: Tables, span: Key, status: TableStatus, notes: list[Changed | Ignored]) -> Done:
    tables = replace(
        tables,
        held=_without(tables.held, span),
        ready=_without(tables.ready, span),
        gone=tables.gone.set(span, None),
    )
    return Done(tables, status, notes)


def _without(keys: Map[Key, None], span: Key) -> Map[Key, None]:
    return keys.delete(span) if span in keys else keys
