"""The barrier: DDLs and syncpoints that dispatchers reach together (maintainer/barrier.go).

1. A dispatcher stands at the event and reports it, again until it is acknowledged; its checkpoint is one below the
   event, so a dispatcher created anew meets it again. 2. When all stand there, one writes it (the order is sent again).
3. When that one has written it, tables come and go, and the others are told to pass (again). 4. When all have passed,
the event is forgotten. What blocks nobody (create table) is executed already: tables come, and it is only acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from immutables import Map

from ticdc_lab.simulate.machine import Address, Changed, Decided, Ignored, Output, Send
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4 import spans
from ticdc_lab.simulate.scheduler.v4.barrier_event import (
    BarrierEvent,
    EventKey,
    ack,
    action,
    beyond,
    missing,
    waits_for,
)
from ticdc_lab.simulate.scheduler.v4.barrier_tables import tables_changed
from ticdc_lab.simulate.scheduler.v4.control import Control
from ticdc_lab.simulate.scheduler.v4.messages import (
    DDL_DISPATCHER,
    BlockStatusRequest,
    HeartBeatResponse,
    TableSpanBlockStatus,
)
from ticdc_lab.simulate.scheduler.v4.replica import REPLICATING

RESEND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Barrier:
    """All block events; those in ``pending`` change tables, and do that in the order of their ts.

    ``home`` is the node of the table trigger event dispatcher.
    """

    home: Address = ""
    events: Map[EventKey, BarrierEvent] = Map()
    pending: frozenset[EventKey] = frozenset()


NO_BARRIER = Barrier()
Stepped: TypeAlias = tuple[Barrier, Control, list[Output]]


def handle_status(
    barrier: Barrier, control: Control, sender: Address, request: BlockStatusRequest, at_us: int
) -> Stepped:
    """Take block statuses of a node, in their order; what was understood is acknowledged."""
    outputs: list[Output] = []
    acked: dict[EventKey, list[Key]] = {}
    for status in request.block_statuses:
        replica = control.spans.replicas.get(status.id)
        if status.id != DDL_DISPATCHER and (replica is None or replica.state != REPLICATING):
            outputs.append(Ignored(status, f"{status.id} does not replicate"))
            continue
        key = EventKey(status.state.block_ts, status.state.is_sync_point)
        known = spans.checkpointed(control.spans, status.id, status.state.block_ts - 1)
        barrier, control, more, known_now = _one(barrier, control._replace(spans=known), key, status, at_us)
        outputs += more
        if known_now:
            acked.setdefault(key, []).append(status.id)
    if acked:
        outputs.insert(0, Send(sender, HeartBeatResponse(tuple(ack(key, acked[key]) for key in sorted(acked)))))
    return barrier, control, outputs


def resent(barrier: Barrier, control: Control, at_us: int) -> Stepped:
    """Send the actions of all events once more that were sent a second ago, and forget what is done."""
    outputs: list[Output] = []
    for key in sorted(barrier.events):
        event = barrier.events[key]
        if not event.selected or (event.resent_us is not None and at_us - event.resent_us < RESEND_US):
            continue
        event = replace(event, resent_us=at_us)
        barrier = _kept(barrier, event)
        outputs += action(event, control.spans, control.nodes, barrier.home)
        barrier, more = _finished(barrier, control, event)
        outputs += more
    return barrier, control, outputs


def waiting(barrier: Barrier, control: Control) -> list[tuple[str, int]]:
    """Say what each event waits for, and since when."""
    events = [barrier.events[key] for key in sorted(barrier.events)]
    return [(waits_for(event, control.spans), event.since_us) for event in events]


def limit_ts(barrier: Barrier) -> int | None:
    """Give the ts that the checkpoint may not reach: that of the first event with tables that are not there yet."""
    return min((key.block_ts for key, event in barrier.events.items() if event.state.need_added_tables), default=None)


def _one(
    barrier: Barrier, control: Control, key: EventKey, status: TableSpanBlockStatus, at_us: int
) -> tuple[Barrier, Control, list[Output], bool]:
    event = barrier.events.get(key)
    if status.state.stage == "DONE":
        if event is None:
            return barrier, control, [Ignored(status, "the event is not known (any more)")], False
        return *_done(barrier, control, event, status.id, at_us), True
    fresh = BarrierEvent(key, status.state, at_us)
    if not status.state.is_blocked:
        return _not_blocked(barrier, control, fresh, at_us)
    outputs: list[Output] = []
    if event is None:
        event = fresh
        outputs.append(Changed(str(key), None, "waiting", f"table {status.id} stands at it"))
    event = replace(event, ddl_related=event.ddl_related or status.id == DDL_DISPATCHER)
    if not event.selected:
        event = replace(event, reported=event.reported.set(status.id, None))
        event, barrier, more = _select(barrier, control, event, status.id, at_us)
        outputs += more
    barrier, more = _finished(_kept(barrier, event), control, event)
    return barrier, control, outputs + more, True


def _select(
    barrier: Barrier, control: Control, event: BarrierEvent, last: Key, at_us: int
) -> tuple[BarrierEvent, Barrier, list[Output]]:
    passed = beyond(event, control.spans)
    if passed:
        because = f"table {passed[0]} has left it behind: it is downstream"
        event = replace(event, selected=True, writer_advanced=True, reported=Map(dict.fromkeys(passed)))
        return event, barrier, [Changed(str(event.key), "waiting", "passing", because)]
    if missing(event, control.spans):
        return event, barrier, []
    influenced = event.state.block_tables
    by_ddl = event.ddl_related or (influenced is not None and influenced.influence_type != "Normal")
    writer = DDL_DISPATCHER if by_ddl else last
    event = replace(event, selected=True, writer=writer, reported=Map(), resent_us=at_us)
    if event.needs_schedule:
        barrier = replace(barrier, pending=barrier.pending | {event.key})
    because = f"all stand at it, table {writer} writes it"
    told = Changed(str(event.key), "waiting", "writing", because)
    return event, barrier, [told, *action(event, control.spans, control.nodes, barrier.home)]


def _done(barrier: Barrier, control: Control, event: BarrierEvent, reporter: Key, at_us: int) -> Stepped:
    outputs: list[Output] = []
    if reporter == event.writer and not event.writer_advanced:
        scheduled, barrier, control, outputs = _schedule(barrier, control, event, at_us)
        if not scheduled:
            return barrier, control, outputs
        event = replace(event, writer_advanced=True, resent_us=None)
        outputs.append(Changed(str(event.key), "writing", "passing", f"table {reporter} has written it"))
    elif not event.writer_advanced:
        return barrier, control, [Ignored(reporter, f"table {event.writer} has not written {event.key}")]
    event = replace(event, reported=event.reported.set(reporter, None))
    barrier, more = _finished(_kept(barrier, event), control, event)
    return barrier, control, outputs + more


def _not_blocked(
    barrier: Barrier, control: Control, event: BarrierEvent, at_us: int
) -> tuple[Barrier, Control, list[Output], bool]:
    if not event.needs_schedule:
        return barrier, control, [], True
    barrier = replace(barrier, pending=barrier.pending | {event.key})
    scheduled, barrier, control, outputs = _schedule(barrier, control, event, at_us)
    return barrier, control, outputs, scheduled


def _schedule(
    barrier: Barrier, control: Control, event: BarrierEvent, at_us: int
) -> tuple[bool, Barrier, Control, list[Output]]:
    """Let the tables of an event come and go; an event of a smaller ts goes first."""
    if not event.needs_schedule:
        return True, barrier, control, []
    first = min(barrier.pending, default=event.key)
    if first < event.key:
        because = f"{first} has to change tables before {event.key}"
        return False, barrier, control, [Decided(str(event.key), None, because)]
    control, outputs = tables_changed(control, event, at_us)
    return True, replace(barrier, pending=barrier.pending - {event.key}), control, outputs


def _finished(barrier: Barrier, control: Control, event: BarrierEvent) -> tuple[Barrier, list[Output]]:
    if not event.writer_advanced or missing(event, control.spans):
        return barrier, []
    told = Changed(str(event.key), "passing", None, "all have passed it")
    return replace(barrier, events=barrier.events.delete(event.key)), [told]


def _kept(barrier: Barrier, event: BarrierEvent) -> Barrier:
    return replace(barrier, events=barrier.events.set(event.key, event))
