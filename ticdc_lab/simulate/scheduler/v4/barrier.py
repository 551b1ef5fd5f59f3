"""The barrier: DDLs and syncpoints that dispatchers reach together (maintainer/barrier.go, barrier_event.go).

1. A dispatcher stands at the event and reports it, again until it is acknowledged; its checkpoint is one below the
   event, so a dispatcher created anew meets it again. 2. When all stand there, one writes it (the order is sent again).
3. When that one has written it, tables come and go, and the others are told to pass (again). 4. When all have passed,
the event is forgotten. What blocks nobody (create table) is executed already: tables come, and it is only acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.machines.machine import BARRIER, Address, Changed, Decided, Ignored, Output, Reason, Send, replace
from ticdc_lab.simulate.scheduler.executor import MAX_TS
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4 import controller, spans
from ticdc_lab.simulate.scheduler.v4.controller import Control
from ticdc_lab.simulate.scheduler.v4.messages import (
    ACK,
    DDL_DISPATCHER,
    BlockStatusRequest,
    DispatcherAction,
    DispatcherStatus,
    HeartBeatResponse,
    InfluencedDispatchers,
    InfluencedTables,
    State,
    TableSpanBlockStatus,
)
from ticdc_lab.simulate.scheduler.v4.spans import REPLICATING, Spans, position, table_of

# One block event: whom it concerns, who has reported it, who writes it (maintainer/barrier_event.go).


class EventKey(NamedTuple):
    """A DDL and a syncpoint of one ts are two events."""

    block_ts: int
    is_sync_point: bool

    def __str__(self) -> str:
        return f"{'syncpoint' if self.is_sync_point else 'ddl'}:{self.block_ts}"


@dataclass(frozen=True, slots=True)
class BarrierEvent:
    """A block event.

    Attributes
    ----------
    reported
        Before ``selected`` the dispatchers that stand at it, afterwards those that wrote or passed it.
    ddl_related
        The table trigger event dispatcher stands at it too: it will write.
    selected
        All stood at it, and ``writer`` was chosen.
    writer_advanced
        It is downstream: from now on the others pass it.
    since_us, resent_us
        When it was first reported, and when its action was sent last; None to send at once.
    """

    key: EventKey
    state: State
    since_us: int
    reported: Map[Key, None] = Map()
    ddl_related: bool = False
    selected: bool = False
    writer: Key | None = None
    writer_advanced: bool = False
    resent_us: int | None = None

    @property
    def needs_schedule(self) -> bool:
        """Whether tables come, go or change their schema with it."""
        return bool(self.state.need_dropped_tables or self.state.need_added_tables or self.state.updated_schemas)


def tables_of(state: Spans, influenced: InfluencedTables | None) -> list[int]:
    """Give the tables an event concerns; those of a schema or all of them always with the DDL dispatcher's."""
    if influenced is None:
        return []
    if influenced.influence_type == "Normal":
        return sorted(influenced.table_ids)
    if influenced.influence_type == "DB":
        return [0, *sorted(table for table, schema in state.schemas.items() if schema == influenced.schema_id)]
    return [0, *sorted({table_of(key) for key in state.replicas})]


def missing(event: BarrierEvent, state: Spans) -> list[Key]:
    """Give the dispatchers that have not reported; a table that is gone after the write concerns nobody any more."""
    found: list[Key] = []
    for table in tables_of(state, event.state.block_tables):
        here = [DDL_DISPATCHER] if table == 0 else spans.of_table(state, table)
        if not here and not event.writer_advanced:
            found.append(table)
        found += [key for key in here if not _counts(event, state, key)]
    return sorted(found, key=position)


def beyond(event: BarrierEvent, state: Spans) -> list[Key]:
    """Give the dispatchers known to have left the event behind, as after a maintainer or node was lost."""
    found: list[Key] = []
    for table in tables_of(state, event.state.block_tables):
        for key in spans.of_table(state, table):
            replica = state.replicas[key]
            reached = state.reached.get(replica.node or "", 0) if replica.state == REPLICATING else 0
            if max(replica.checkpoint_ts, reached if reached < MAX_TS else 0) > event.key.block_ts:
                found.append(key)
    return found


def waits_for(event: BarrierEvent, state: Spans) -> Reason:
    """Say what an event waits for, and since when."""
    what = f"{'syncpoint' if event.key.is_sync_point else 'DDL'} at {event.key.block_ts}"
    if event.selected and not event.writer_advanced:
        words = f"the {what} waits for table {event.writer} to write it"
        return Reason(BARRIER, str(event.key.block_ts), words, event.since_us)
    verb = "pass" if event.selected else "reach"
    late = ", ".join(f"table {key}" for key in missing(event, state)) or "nobody"
    return Reason(BARRIER, str(event.key.block_ts), f"the {what} waits for {late} to {verb} it", event.since_us)


def ack(key: EventKey, dispatchers: list[Key]) -> DispatcherStatus:
    """Tell dispatchers that the event is known."""
    return DispatcherStatus(InfluencedDispatchers("Normal", tuple(dispatchers)), ack=ACK(*key))


def action(event: BarrierEvent, state: Spans, nodes: frozenset[Address], home: Address) -> list[Output]:
    """Give what has to be said now: write it, or pass it; ``home`` is where the DDL dispatcher is."""
    if event.writer_advanced or event.writer is None:
        return [*passes(event, state, nodes, home)]
    replica = state.replicas.get(event.writer)
    node = home if event.writer == DDL_DISPATCHER else replica.node if replica else None
    if node is None:
        return [Decided(str(event.key), None, f"the writer, table {event.writer}, is on no node")]
    return [write(event, event.writer, node)]


def write(event: BarrierEvent, writer: Key, node: Address) -> Send:
    """Tell the writer to execute the event downstream."""
    return _said(event, node, "Write", InfluencedDispatchers("Normal", (writer,)))


def passes(event: BarrierEvent, state: Spans, nodes: frozenset[Address], home: Address) -> list[Send]:
    """Tell all others to pass it: by name, or by node where it concerns a schema or everything."""
    influenced = event.state.block_tables
    if influenced is None:
        return []
    if influenced.influence_type != "Normal":
        tables = tables_of(state, influenced)
        named = {state.replicas[key].node for table in tables for key in spans.of_table(state, table)}
        where = sorted(nodes if influenced.influence_type == "All" else {node for node in named if node})
        to = InfluencedDispatchers(influenced.influence_type, (), influenced.schema_id, event.writer)
        return [_said(event, node, "Pass", to) for node in where]
    by_node: dict[Address, list[Key]] = {}
    for key in missing(event, state):
        node = home if key == DDL_DISPATCHER else state.replicas[key].node
        if node is not None and key != event.writer:
            by_node.setdefault(node, []).append(key)
    return [
        _said(event, node, "Pass", InfluencedDispatchers("Normal", tuple(by_node[node]))) for node in sorted(by_node)
    ]


def _counts(event: BarrierEvent, state: Spans, key: Key) -> bool:
    if key not in event.reported:
        return False
    return key == DDL_DISPATCHER or event.writer_advanced or state.replicas[key].state == REPLICATING


def _said(event: BarrierEvent, node: Address, action: str, to: InfluencedDispatchers) -> Send:
    told = DispatcherAction("Write" if action == "Write" else "Pass", *event.key)
    return Send(node, HeartBeatResponse((DispatcherStatus(to, action=told),)))


# What a block event does to the tables that are replicated (BarrierEvent.scheduleBlockEvent).


def tables_changed(control: Control, event: BarrierEvent, at_us: int) -> controller.Stepped:
    """Drop tables with their dispatchers, take up new ones as absent, put tables into other schemas."""
    because = f"the {'syncpoint' if event.key.is_sync_point else 'DDL'} at {event.key.block_ts}"
    dropped = [
        key
        for table in tables_of(control.spans, event.state.need_dropped_tables)
        for key in spans.of_table(control.spans, table)
    ]
    control, outputs = controller.tasks_removed(control, dropped, at_us, f"{because} drops it")
    new = [table.table_id for table in event.state.need_added_tables]
    known, changes = spans.added(control.spans, new, event.key.block_ts, at_us, f"{because} adds it")
    schemas = known.schemas.mutate()
    schemas.update({table.table_id: table.schema_id for table in event.state.need_added_tables})
    schemas.update({change.table_id: change.new_schema_id for change in event.state.updated_schemas})
    control = control._replace(spans=known._replace(schemas=schemas.finish()))
    return control, outputs + changes


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
        if not event.selected:  # those that wait were acknowledged, and say nothing any more
            event, outputs = _passed(event, control, outputs)
        if not event.selected or (event.resent_us is not None and at_us - event.resent_us < RESEND_US):
            continue
        event = replace(event, resent_us=at_us)
        barrier = _kept(barrier, event)
        outputs += action(event, control.spans, control.nodes, barrier.home)
        barrier, more = _finished(barrier, control, event)
        outputs += more
    return barrier, control, outputs


def waiting(barrier: Barrier, control: Control) -> list[Reason]:
    """Say what each event waits for, and since when."""
    return [waits_for(barrier.events[key], control.spans) for key in sorted(barrier.events)]


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
        outputs.append(Changed(str(key), None, "waiting", f"table {status.id} waits at it"))
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
    event, outputs = _passed(event, control, [])
    if event.selected:
        return event, barrier, outputs
    if missing(event, control.spans):
        return event, barrier, []
    influenced = event.state.block_tables
    by_ddl = event.ddl_related or (influenced is not None and influenced.influence_type != "Normal")
    writer = DDL_DISPATCHER if by_ddl else last
    event = replace(event, selected=True, writer=writer, reported=Map(), resent_us=at_us)
    if event.needs_schedule:
        barrier = replace(barrier, pending=barrier.pending | {event.key})
    because = f"all wait at it, table {writer} writes it"
    told = Changed(str(event.key), "waiting", "writing", because)
    return event, barrier, [told, *action(event, control.spans, control.nodes, barrier.home)]


def _passed(event: BarrierEvent, control: Control, outputs: list[Output]) -> tuple[BarrierEvent, list[Output]]:
    """See whether a dispatcher has left an event behind at which others wait."""
    passed = beyond(event, control.spans)
    if not passed:
        return event, outputs
    because = f"table {passed[0]} has left it behind: it is downstream"
    event = replace(event, selected=True, writer_advanced=True, reported=Map(dict.fromkeys(passed)))
    return event, [*outputs, Changed(str(event.key), "waiting", "passing", because)]


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


# A new maintainer finds the block events that were open (Barrier.handleBootstrapResponse).


def rebuilt(
    barrier: Barrier, state: Spans, statuses: Iterable[TableSpanBlockStatus], at_us: int
) -> tuple[Barrier, list[Output]]:
    """Take up the events at which dispatchers stand.

    One that somebody writes has its writer; one that somebody has written or passed, or that a dispatcher has left
    behind, is downstream. One at which all wait is left alone: whoever was not acknowledged reports it again.
    """
    at: dict[EventKey, list[TableSpanBlockStatus]] = {}
    for status in statuses:
        if status.state.stage != "NONE":
            at.setdefault(EventKey(status.state.block_ts, status.state.is_sync_point), []).append(status)
    outputs: list[Output] = []
    for key in sorted(at):
        event = _event(key, at[key], state, at_us)
        phase = "passing" if event.writer_advanced else "writing" if event.selected else "waiting"
        outputs.append(Changed(str(key), None, phase, "dispatchers wait at it"))
        barrier = replace(barrier, events=barrier.events.set(key, event))
        if event.needs_schedule and event.selected and not event.writer_advanced:
            barrier = replace(barrier, pending=barrier.pending | {key})
    return barrier, outputs


def _event(key: EventKey, statuses: list[TableSpanBlockStatus], state: Spans, at_us: int) -> BarrierEvent:
    event = BarrierEvent(key, statuses[0].state, at_us, ddl_related=any(status.id == 0 for status in statuses))
    by_stage = {stage: [one.id for one in statuses if one.state.stage == stage] for stage in ("WRITING", "DONE")}
    if by_stage["DONE"]:
        done = Map(dict.fromkeys(by_stage["DONE"]))
        return replace(event, selected=True, writer_advanced=True, reported=done)
    if by_stage["WRITING"]:
        return replace(event, selected=True, writer=by_stage["WRITING"][0])
    event = replace(event, reported=Map({one.id: None for one in statuses}))
    passed = beyond(event, state)
    if missing(event, state) and passed:
        return replace(event, selected=True, writer_advanced=True, reported=Map(dict.fromkeys(passed)))
    return event
