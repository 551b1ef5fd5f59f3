"""A new maintainer finds the block events that were open (Barrier.handleBootstrapResponse)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from immutables import Map

from ticdc_lab.simulate.machine import Changed, Output
from ticdc_lab.simulate.scheduler.v4.barrier import Barrier
from ticdc_lab.simulate.scheduler.v4.barrier_event import BarrierEvent, EventKey, beyond, missing
from ticdc_lab.simulate.scheduler.v4.messages import TableSpanBlockStatus
from ticdc_lab.simulate.scheduler.v4.spans import Spans


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
        outputs.append(Changed(str(key), None, phase, "dispatchers stand at it"))
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
