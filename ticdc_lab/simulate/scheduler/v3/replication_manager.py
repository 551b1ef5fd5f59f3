"""All replication sets of the owner: reports, captures that come and go, tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from immutables import Map

from ticdc_lab.simulate.machine import Address, Broken, Ignored
from ticdc_lab.simulate.scheduler.roles import Key, order
from ticdc_lab.simulate.scheduler.v3 import replication_set
from ticdc_lab.simulate.scheduler.v3.messages import ABSENT, HeartbeatResponse, Steady, TableStatus
from ticdc_lab.simulate.scheduler.v3.replication import REPLICATING_SET, absent, has_removed, rebuilt
from ticdc_lab.simulate.scheduler.v3.replication_set import Polled
from ticdc_lab.simulate.scheduler.v3.replications import Draft, Keys, Replications, shared
from ticdc_lab.simulate.scheduler.v3.tasks import AddTask, Burst, MoveTask, RemoveTask, Single, Task

NEWER_NOWHERE: Map[Key, int] = Map()


def rebuild(
    replications: Replications,
    heard: Mapping[Address, Iterable[TableStatus]],
    checkpoint_ts: int,
) -> Draft:
    """Make all records from what the captures have, once, when all of them have answered the new owner.

    Two primaries of one span are a violation; so is a second call.
    """
    draft = Draft(replications)
    if draft.sets:
        draft.notes.append(Broken("initialized once", "the captures are all initialized for the second time"))
        return draft
    by_span: dict[Key, dict[Address, TableStatus]] = {}
    for address in sorted(heard):
        for status in heard[address]:
            by_span.setdefault(status.span, {})[address] = status
    for span in sorted(by_span, key=order):
        made = rebuilt(span, checkpoint_ts, by_span[span])
        if isinstance(made, Broken):
            draft.notes.append(made)
            return draft
        draft.put(made)
        draft.notes += replication_set.changes(
            absent(span, checkpoint_ts), made, "the new owner found it so with the captures"
        )
    return draft


def spans_of(response: HeartbeatResponse) -> list[TableStatus]:
    """List the statuses of a response one by one."""
    statuses = list(response.statuses)
    if response.steady:
        named = {status.span for status in statuses}
        checkpoint, puller = response.steady.checkpoint, response.steady.puller_resolved_ts
        others = sorted((span for span in response.steady.held if span not in named), key=order)
        statuses += [shared(span, checkpoint, puller) for span in others]
    return statuses


def take_status(draft: Draft, sender: Address, status: TableStatus) -> None:
    """Take what a capture says of one span."""
    replication = draft.get(status.span)
    if replication is None:
        draft.notes.append(Ignored(status, f"the owner does not know table {status.span}"))
        return
    _apply(draft, replication_set.poll(replication, sender, status))


def take_response(
    draft: Draft, sender: Address, response: HeartbeatResponse, newer: Mapping[Key, int] = NEWER_NOWHERE
) -> None:
    """Take what a capture says of all its spans, except of those of which it has said something ``newer``."""
    for status in response.statuses:
        if status.span not in newer:
            take_status(draft, sender, status)
    if response.steady:
        _take_steady(draft, sender, response.steady, {status.span for status in response.statuses}, newer)


def _take_steady(draft: Draft, sender: Address, steady: Steady, named: set[Key], newer: Mapping[Key, int]) -> None:
    for span in sorted(draft.watched.get(sender, ()), key=order):
        if span in named or span in newer:
            continue
        if span in steady.held:
            take_status(draft, sender, shared(span, steady.checkpoint, steady.puller_resolved_ts))
            if draft.sets[span].primary == sender:
                draft.settle(span)
        elif span in steady.asked:
            take_status(draft, sender, TableStatus(span, ABSENT))
    draft.steady = draft.steady.set(sender, shared(0, steady.checkpoint, steady.puller_resolved_ts))


def shut_down(draft: Draft, address: Address) -> None:
    """Take note that a capture, or its processor, is gone with all it had."""
    for span in sorted(draft.on.get(address, ()), key=order):
        replication = draft.get(span)
        if replication is not None:
            _apply(draft, replication_set.shut_down(replication, address))
            draft.running = _without(draft.running, span)
    if address in draft.steady:
        draft.steady = draft.steady.delete(address)


def handle_tasks(draft: Draft, tasks: Iterable[Task], max_task_concurrency: int) -> list[Task]:
    """Begin tasks and give those that were accepted; the others are refused and may come again.

    A span has one task at a time, and ``max_task_concurrency`` of them have one; a burst is taken whatever runs, except
    for its spans that have a task already.
    """
    _end_tasks(draft)
    accepted: list[Task] = []
    for task in tasks:
        if isinstance(task, Burst):
            for single in task.tasks:
                if single.span not in draft.running:
                    _begin(draft, single)
            accepted.append(task)
        elif _refusal(draft, task, max_task_concurrency) is None:
            _begin(draft, task)
            accepted.append(task)
        else:
            draft.notes.append(Ignored(task, _refusal(draft, task, max_task_concurrency) or ""))
    return accepted


def _end_tasks(draft: Draft) -> None:
    for span in draft.of.running:
        replication = draft.sets.get(span)
        if replication is None or replication.state == REPLICATING_SET or has_removed(replication):
            draft.running = _without(draft.running, span)


def _refusal(draft: Draft, task: Single, max_task_concurrency: int) -> str | None:
    if len(draft.running) >= max_task_concurrency:
        return f"the limit of {max_task_concurrency} running tasks is reached"
    if task.span in draft.running:
        return f"table {task.span} has a task already"
    if task.span not in draft.sets and not isinstance(task, AddTask):
        return f"the owner does not know table {task.span}"
    return None


def _begin(draft: Draft, task: Single) -> None:
    replication = draft.get(task.span)
    draft.running = draft.running.set(task.span, None)
    if isinstance(task, AddTask):
        _apply(draft, replication_set.add(replication or absent(task.span, task.checkpoint_ts), task.to))
    elif replication is None or has_removed(replication):
        draft.delete(task.span)
    elif isinstance(task, MoveTask):
        _apply(draft, replication_set.move(replication, task.to))
    elif isinstance(task, RemoveTask):
        _apply(draft, replication_set.remove(replication))


def _without(keys: Keys, span: Key) -> Keys:
    return keys.delete(span) if span in keys else keys


def _apply(draft: Draft, polled: Polled) -> None:
    new = polled.replication
    if has_removed(new):
        draft.delete(new.span)
    elif new is not draft.sets.get(new.span) or new.span not in draft.exact:
        draft.put(new)
    draft.requests += polled.requests
    draft.notes += polled.notes
