"""One block event: whom it concerns, who has reported it, who writes it (maintainer/barrier_event.go)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.machine import Address, Decided, Output, Send
from ticdc_lab.simulate.scheduler.executor import MAX_TS
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4 import spans
from ticdc_lab.simulate.scheduler.v4.keys import position, table_of
from ticdc_lab.simulate.scheduler.v4.messages import (
    ACK,
    DDL_DISPATCHER,
    DispatcherAction,
    DispatcherStatus,
    HeartBeatResponse,
    InfluencedDispatchers,
    InfluencedTables,
    State,
)
from ticdc_lab.simulate.scheduler.v4.replica import REPLICATING
from ticdc_lab.simulate.scheduler.v4.spans import Spans


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


def waits_for(event: BarrierEvent, state: Spans) -> str:
    """Say in a sentence what an event waits for."""
    what = f"{'syncpoint' if event.key.is_sync_point else 'DDL'} at {event.key.block_ts}"
    if event.selected and not event.writer_advanced:
        return f"the {what} waits for table {event.writer} to write it"
    verb = "pass" if event.selected else "reach"
    late = ", ".join(f"table {key}" for key in missing(event, state)) or "nobody"
    return f"the {what} waits for {late} to {verb} it"


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
