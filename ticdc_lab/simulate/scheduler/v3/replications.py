"""All spans of the owner, what is wanted of them, and what reports, lost captures and tasks make of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.machines.machine import Address, Broken, Ignored, Output, replace
from ticdc_lab.simulate.scheduler.roles import Key, order, without
from ticdc_lab.simulate.scheduler.v3 import replication_set
from ticdc_lab.simulate.scheduler.v3.messages import (
    ABSENT,
    REPLICATING,
    Checkpoint,
    HeartbeatResponse,
    Request,
    TableStatus,
)
from ticdc_lab.simulate.scheduler.v3.replication_set import (
    ABSENT_SET,
    REPLICATING_SET,
    PolledReplication,
    ReplicationSet,
    absent,
    advanced,
    has_removed,
    rebuilt,
)

# What schedulers want done: tasks for single spans, and bursts that no limit holds up.


class AddTask(NamedTuple):
    """Give an unassigned span to a capture; ``checkpoint_ts`` counts only where the owner has no record of it."""

    span: Key
    to: Address
    checkpoint_ts: int


class MoveTask(NamedTuple):
    """Move a span to another capture; ``asked`` where a user wants it."""

    span: Key
    to: Address
    asked: bool = False


class RemoveTask(NamedTuple):
    """Stop a span, which ``at`` has among others."""

    span: Key
    at: Address


class Burst(NamedTuple):
    """Many tasks at once that ``max_task_concurrency`` does not hold up; ``asked`` where a user wants it."""

    tasks: tuple[AddTask | MoveTask | RemoveTask, ...]
    asked: bool = False


Single: TypeAlias = AddTask | MoveTask | RemoveTask
Task: TypeAlias = Single | Burst


# All spans of the owner, with the indexes that keep a tick from looking at every one of them.
#
# A span whose primary replicates it undisturbed shares its watermark with all others of that capture (``steady``);
# all others are *exact*: their own checkpoint counts, and reports of captures that have a role in them are looked at.

Keys = Map[Key, None]
EMPTY: Keys = Map()


@dataclass(frozen=True, slots=True)
class Replications:
    """The owner's record of all spans."""

    sets: Map[Key, ReplicationSet] = Map()  # by span
    running: Keys = EMPTY  # spans with a task that has not ended
    on: Map[Address, Keys] = Map()  # by capture, the spans in which it has a role
    # By capture, the spans it replicates as the primary of a set that is Replicating.
    primaries: Map[Address, Keys] = Map()
    # The spans whose own checkpoint counts, and the same by the captures that have a role in them.
    exact: Keys = EMPTY
    watched: Map[Address, Keys] = Map()
    absent: Keys = EMPTY  # the unassigned spans
    # By capture, the watermark of all spans that it is the primary of and that are not exact.
    steady: Map[Address, TableStatus] = Map()


@dataclass(slots=True)
class ReplicationsDraft:
    """A :class:`Replications` while one step changes it, with what comes out of the step."""

    of: Replications
    requests: list[tuple[Address, Request]] = field(default_factory=list)
    notes: list[Output] = field(default_factory=list)
    gone: list[Key] = field(default_factory=list)
    sets: Map[Key, ReplicationSet] = field(init=False)
    running: Keys = field(init=False)
    on: Map[Address, Keys] = field(init=False)
    primaries: Map[Address, Keys] = field(init=False)
    exact: Keys = field(init=False)
    watched: Map[Address, Keys] = field(init=False)
    absent: Keys = field(init=False)
    steady: Map[Address, TableStatus] = field(init=False)

    def __post_init__(self) -> None:
        of = self.of
        self.sets, self.running, self.on, self.primaries = of.sets, of.running, of.on, of.primaries
        self.exact, self.watched, self.absent, self.steady = of.exact, of.watched, of.absent, of.steady

    def finished(self) -> Replications:
        return Replications(
            self.sets, self.running, self.on, self.primaries, self.exact, self.watched, self.absent, self.steady
        )

    def get(self, span: Key) -> ReplicationSet | None:
        """Give a set with its own watermark."""
        found = self.sets.get(span)
        return found and current(found, span in self.exact, self.steady)

    def put(self, new: ReplicationSet) -> None:
        """Set one; it is exact from now on."""
        span, old = new.span, self.sets.get(new.span)
        watched = span in self.exact
        if not watched:
            self.exact = self.exact.set(span, None)
        before = old.captures if old else ()
        if before != new.captures or not watched:
            self._hold(span, {name for name, _ in before}, {name for name, _ in new.captures}, watched)
        self._moved(span, old, new)
        if new is not old:
            self.sets = self.sets.set(span, new)

    def delete(self, span: Key) -> None:
        """Forget one."""
        old = self.sets.get(span)
        if old is None:
            return
        self.gone.append(span)
        self._hold(span, {name for name, _ in old.captures}, set(), True)
        self._moved(span, old, None)
        self.sets = self.sets.delete(span)
        self.exact = without(self.exact, span)

    def _hold(self, span: Key, before: set[Address], after: set[Address], watched: bool) -> None:
        for name in before - after:
            self.on = _dropped(self.on, name, span)
            self.watched = _dropped(self.watched, name, span)
        for name in after - before:
            self.on = _held(self.on, name, span)
        for name in after - before if watched else after:
            self.watched = _held(self.watched, name, span)

    def _moved(self, span: Key, old: ReplicationSet | None, new: ReplicationSet | None) -> None:
        before, after = _settled_on(old), _settled_on(new)
        if before is not None and before != after:
            self.primaries = _dropped(self.primaries, before, span)
        if after is not None and before != after:
            self.primaries = _held(self.primaries, after, span)
        if new is not None and new.state == ABSENT_SET:
            self.absent = self.absent.set(span, None)
        elif old is not None and old.state == ABSENT_SET:
            self.absent = without(self.absent, span)

    def settle(self, span: Key) -> None:
        """Let a set share the watermark of its primary, if it is Replicating and has no other capture."""
        found = self.sets[span]
        if found.state == REPLICATING_SET and found.primary is not None and len(found.captures) == 1:
            self.exact = without(self.exact, span)
            self.watched = _dropped(self.watched, found.primary, span)


def current(replication: ReplicationSet, is_exact: bool, steady: Map[Address, TableStatus]) -> ReplicationSet:
    """Bring the watermark of a set that shares its primary's up to date."""
    if is_exact or replication.primary is None or replication.primary not in steady:
        return replication
    return advanced(replication, steady[replication.primary])


def shared(span: Key, checkpoint: Checkpoint, puller_resolved_ts: int | None) -> TableStatus:
    """Make the status of a span that replicates undisturbed."""
    return TableStatus(span, REPLICATING, checkpoint, puller_resolved_ts)


def _settled_on(replication: ReplicationSet | None) -> Address | None:
    return replication.primary if replication and replication.state == REPLICATING_SET else None


def _held(index: Map[Address, Keys], name: Address, span: Key) -> Map[Address, Keys]:
    return index.set(name, index.get(name, EMPTY).set(span, None))


def _dropped(index: Map[Address, Keys], name: Address, span: Key) -> Map[Address, Keys]:
    held = index.get(name, EMPTY)
    if span not in held:
        return index
    return index.set(name, held.delete(span)) if len(held) > 1 else index.delete(name)


# Which spans should be replicated, and how far the owner's record is from that.


@dataclass(frozen=True, slots=True)
class WantedSpans:
    """The wanted spans."""

    spans: Keys = EMPTY  # all of them
    # Those that had no record when they came, sorted; before ``at`` all have one now.
    todo: tuple[Key, ...] = ()
    at: int = 0
    lost: Keys = EMPTY  # those whose record has gone since
    surplus: Keys = EMPTY  # spans with a record that are not wanted


def planned(wanted: Iterable[Key], sets: Mapping[Key, ReplicationSet]) -> WantedSpans:
    """Make a plan for spans that are wanted from now on."""
    spans = Map(dict.fromkeys(wanted))
    todo = tuple(sorted((span for span in spans if span not in sets), key=order))
    return WantedSpans(spans, todo, surplus=Map(dict.fromkeys(span for span in sets if span not in spans)))


def changed(
    plan: WantedSpans, added: Iterable[Key], dropped: Iterable[Key], sets: Mapping[Key, ReplicationSet]
) -> WantedSpans:
    """Add and drop spans."""
    spans, surplus = plan.spans.mutate(), plan.surplus.mutate()
    for span in dropped:
        spans.pop(span, None)
        if span in sets:
            surplus[span] = None
    new = list(added)
    for span in new:
        spans[span] = None
        surplus.pop(span, None)
    left = {*islice(plan.todo, plan.at, None), *(span for span in new if span not in sets)}
    todo = tuple(sorted((span for span in left if span in spans), key=order))
    lost = Map(dict.fromkeys(span for span in plan.lost if span in spans))
    return WantedSpans(spans.finish(), todo, 0, lost, surplus.finish())


def noted(plan: WantedSpans, gone: Iterable[Key], sets: Mapping[Key, ReplicationSet]) -> WantedSpans:
    """Take note of records that have gone or come."""
    lost, surplus = plan.lost, plan.surplus
    for span in gone:
        if span in plan.spans:
            lost = lost.set(span, None)
        elif span in surplus:
            surplus = surplus.delete(span)
    for span in plan.lost:
        if span in sets and span in lost:
            lost = lost.delete(span)
    at = plan.at
    while at < len(plan.todo) and plan.todo[at] in sets:
        at += 1
    if (lost, surplus, at) == (plan.lost, plan.surplus, plan.at):
        return plan
    return replace(plan, lost=lost, surplus=surplus, at=at)


def unscheduled(plan: WantedSpans, sets: Mapping[Key, ReplicationSet]) -> Iterator[Key]:
    """Give the wanted spans without a record of the owner, the smallest of simultaneous ones first."""
    for span in sorted(plan.lost, key=order):
        if span not in sets:
            yield span
    for span in islice(plan.todo, plan.at, None):
        if span not in sets:
            yield span


# All replication sets of the owner: reports, captures that come and go, tasks.

NEWER_NOWHERE: Map[Key, int] = Map()


def rebuild(
    replications: Replications, heard: Mapping[Address, Iterable[TableStatus]], checkpoint_ts: int
) -> ReplicationsDraft:
    """Make all records from what the captures have, once, when all of them have answered the new owner.

    Two primaries of one span are a violation; so is a second call.
    """
    draft = ReplicationsDraft(replications)
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
    if steady := response.steady:
        named = {status.span for status in statuses}
        checkpoint, puller = steady.checkpoint, steady.puller_resolved_ts
        others = sorted((span for span in steady.held if span not in named), key=order)
        statuses += [shared(span, checkpoint, puller) for span in others]
    return statuses


def take_status(draft: ReplicationsDraft, sender: Address, status: TableStatus) -> None:
    """Take a capture's report of one span."""
    replication = draft.get(status.span)
    if replication is None:
        draft.notes.append(Ignored(status, f"the owner does not know table {status.span}"))
        return
    _apply(draft, replication_set.poll(replication, sender, status))


def take_response(
    draft: ReplicationsDraft, sender: Address, response: HeartbeatResponse, newer: Mapping[Key, int] = NEWER_NOWHERE
) -> None:
    """Take a capture's report of all its spans, except spans with a ``newer`` report."""
    for status in response.statuses:
        if status.span not in newer:
            take_status(draft, sender, status)
    if steady := response.steady:
        named = {status.span for status in response.statuses}
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


def shut_down(draft: ReplicationsDraft, address: Address) -> None:
    """Take note that a capture, or its processor, is gone with all it had."""
    for span in sorted(draft.on.get(address, ()), key=order):
        replication = draft.get(span)
        if replication is not None:
            _apply(draft, replication_set.shut_down(replication, address))
            draft.running = without(draft.running, span)
    if address in draft.steady:
        draft.steady = draft.steady.delete(address)


def handle_tasks(draft: ReplicationsDraft, tasks: Iterable[Task], max_task_concurrency: int) -> list[Task]:
    """Begin tasks and give those that were accepted; the others are refused and may come again.

    A span has one task at a time, and ``max_task_concurrency`` of them have one; a burst is taken at any load, except
    for its spans that have a task already.
    """
    for span in draft.of.running:
        replication = draft.sets.get(span)
        if replication is None or replication.state == REPLICATING_SET or has_removed(replication):
            draft.running = without(draft.running, span)
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


def _refusal(draft: ReplicationsDraft, task: Single, max_task_concurrency: int) -> str | None:
    if len(draft.running) >= max_task_concurrency:
        return f"the limit of {max_task_concurrency} running tasks is reached"
    if task.span in draft.running:
        return f"table {task.span} has a task already"
    if task.span not in draft.sets and not isinstance(task, AddTask):
        return f"the owner does not know table {task.span}"
    return None


def _begin(draft: ReplicationsDraft, task: Single) -> None:
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


def _apply(draft: ReplicationsDraft, polled: PolledReplication) -> None:
    new = polled.replication
    if has_removed(new):
        draft.delete(new.span)
    elif new is not draft.sets.get(new.span) or new.span not in draft.exact:
        draft.put(new)
    draft.requests += polled.requests
    draft.notes += polled.notes
