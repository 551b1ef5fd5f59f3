"""The spans of one processor: tasks the owner gave, carried out by the executor.

A span has one task at a time; a request that comes while another is not finished is ignored, and comes again.
"""

from __future__ import annotations

from immutables import Map

from ticdc_lab.simulate.machine import Changed, Ignored
from ticdc_lab.simulate.scheduler import executor as ex
from ticdc_lab.simulate.scheduler.clock import ts_of
from ticdc_lab.simulate.scheduler.executor import Executor
from ticdc_lab.simulate.scheduler.roles import Key, order
from ticdc_lab.simulate.scheduler.v3.agent_state import ADD, REMOVE, Desk
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

LAGGARDS_NAMED = 32
"""So many spans at most that have not caught up are reported one by one."""


def status_of(desk: Desk, span: Key, *, collect_stats: bool = False) -> TableStatus:
    """Report one span, and how far its puller is if statistics are asked for."""
    executor, at_us = desk.executor, desk.at_us
    pipeline = ex.state_of(executor, span)
    if pipeline is None:
        return TableStatus(span, ABSENT)
    resolved_ts = ex.resolved_of(executor, span, at_us)
    checkpoint = Checkpoint(ex.checkpoint_of(executor, span, at_us), resolved_ts)
    shown = STOPPING if isinstance(desk.tasks.get(span), RemoveTable) else STATE[pipeline]
    return TableStatus(span, shown, checkpoint, resolved_ts if collect_stats else None)


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
    if executor.pace.measured:
        return sorted({*executor.pipelines, *desk.tasks}, key=order)
    special = {*executor.pending, *executor.stalled, *desk.ready, *desk.tasks}
    if len(executor.behind) <= LAGGARDS_NAMED:
        special.update(executor.behind)
    return sorted(special, key=order)


def common_checkpoint_ts(desk: Desk) -> int:
    """Give the checkpoint of all spans that are not singular: of many laggards the lowest counts for all."""
    executor, at_us = desk.executor, desk.at_us
    if executor.pace.measured:
        return min(ex.slowest(executor, at_us)[0], executor.limit_ts)
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
