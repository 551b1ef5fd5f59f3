"""One tick of the owner: who is there, what is wanted, what to do, how far all are."""

from __future__ import annotations

from dataclasses import replace

from ticdc_lab.simulate.machine import Changed, Now
from ticdc_lab.simulate.scheduler.roles import Key, OwnerOutput, Tick, Watermarks
from ticdc_lab.simulate.scheduler.v3 import replication_manager as manager
from ticdc_lab.simulate.scheduler.v3.captures import (
    UNINITIALIZED,
    all_initialized,
    forgotten,
    registered,
    silent,
)
from ticdc_lab.simulate.scheduler.v3.coordinator_state import CoordinatorState, finished, heartbeat
from ticdc_lab.simulate.scheduler.v3.plan import changed, planned
from ticdc_lab.simulate.scheduler.v3.reconciler import Split, arrived, departed
from ticdc_lab.simulate.scheduler.v3.replications import EMPTY, Draft
from ticdc_lab.simulate.scheduler.v3.schedulers import View, accepted, schedule
from ticdc_lab.simulate.scheduler.v3.settings import Settings
from ticdc_lab.simulate.scheduler.v3.splitters import split
from ticdc_lab.simulate.scheduler.v3.versions import spans_allowed
from ticdc_lab.simulate.scheduler.v3.watermarks import advance


def ticked(
    settings: Settings, state: CoordinatorState, tick: Tick, now: Now
) -> tuple[CoordinatorState, list[OwnerOutput]]:
    """Take one tick."""
    outputs: list[OwnerOutput] = []
    for part in (_members, _first_answers, _lost_captures, _wanted, _scheduled, _watermarks, _heartbeats):
        state, more = part(settings, state, tick, now)
        outputs += more
    return state, outputs


def _members(
    settings: Settings, state: CoordinatorState, tick: Tick, now: Now
) -> tuple[CoordinatorState, list[OwnerOutput]]:
    captures, came, went = registered(state.captures, tick.captures, state.address)
    if captures is state.captures:
        return state, []
    state, outputs = replace(state, captures=captures), list[OwnerOutput]()
    for address in came:
        outputs.append(Changed(f"capture:{address}", None, UNINITIALIZED, "it is registered"))
        state, send = heartbeat(settings, state, address)
        outputs.append(send)
    outputs += [Changed(f"capture:{a}", "registered", None, "it is not registered any more") for a in went]
    return state, outputs


def _first_answers(
    settings: Settings, state: CoordinatorState, tick: Tick, now: Now
) -> tuple[CoordinatorState, list[OwnerOutput]]:
    captures = state.captures
    if captures.initialized or not captures.members or silent(captures):
        return state, []
    found = {a: manager.spans_of(s.response) for a, s in captures.members.items() if s.response}
    draft = manager.rebuild(state.replications, found, tick.checkpoint_ts)
    return finished(settings, replace(state, captures=forgotten(captures)), draft)


def _lost_captures(
    settings: Settings, state: CoordinatorState, tick: Tick, now: Now
) -> tuple[CoordinatorState, list[OwnerOutput]]:
    if not state.captures.removed or not all_initialized(state.captures):
        return state, []
    draft = Draft(state.replications)
    for address in state.captures.removed:
        manager.shut_down(draft, address)
    return finished(settings, replace(state, captures=replace(state.captures, removed=())), draft)


def _wanted(
    settings: Settings, state: CoordinatorState, tick: Tick, now: Now
) -> tuple[CoordinatorState, list[OwnerOutput]]:
    if not state.captures.initialized or tick.tables is state.tables:
        return state, []
    old, sets = state.tables, state.replications.sets
    added, dropped = tick.tables - (old or frozenset()), (old or frozenset()) - tick.tables
    gone = [span for table in dropped for span in state.known[table].spans]
    known, decided = arrived(departed(state.known, dropped), added, sets, _splitter(settings, state))
    new = [span for table in added for span in known[table].spans]
    plan = planned(new, sets) if old is None else changed(state.plan, new, gone, sets)
    return replace(state, known=known, plan=plan, tables=tick.tables), list(decided)


def _splitter(settings: Settings, state: CoordinatorState) -> Split:
    members = state.captures.members
    allowed = settings.table_across_nodes and spans_allowed(status.version for status in members.values())

    def cut(table: int) -> tuple[Key, ...]:
        return split(settings, table, len(members)) if allowed else (table,)

    return cut


def _scheduled(
    settings: Settings, state: CoordinatorState, tick: Tick, now: Now
) -> tuple[CoordinatorState, list[OwnerOutput]]:
    if not all_initialized(state.captures):
        return state, []
    view = View(state.captures.members, state.replications, state.plan, tick.checkpoint_ts, now)
    schedulers, tasks, decided = schedule(settings, view, state.schedulers)
    draft = Draft(state.replications)
    taken = manager.handle_tasks(draft, tasks, settings.max_task_concurrency)
    for span in state.plan.surplus:
        found = draft.sets.get(span)
        if found is not None and not found.captures:
            draft.delete(span)
    state, outputs = finished(settings, replace(state, schedulers=accepted(schedulers, taken)), draft)
    return state, [*decided, *outputs]


def _watermarks(
    settings: Settings, state: CoordinatorState, tick: Tick, now: Now
) -> tuple[CoordinatorState, list[OwnerOutput]]:
    if not state.captures.initialized:
        waiting = silent(state.captures)
        because = f"{waiting[0]} has not answered the owner yet" if waiting else "no capture is registered"
        checkpoint = resolved = None
    else:
        progress = advance(state.replications, state.plan, barrier_ts=tick.barrier_ts, floor_ts=tick.checkpoint_ts)
        checkpoint, resolved, because = progress.checkpoint_ts, progress.resolved_ts, progress.because
    last = state.stuck
    is_same = last is not None and last[0] == checkpoint and (checkpoint is not None or last[1] == because)
    since_us = last[2] if last is not None and is_same else now.at_us
    state = replace(state, stuck=(checkpoint, because, since_us))
    return state, [Watermarks(checkpoint, resolved, because, since_us)]


def _heartbeats(
    settings: Settings, state: CoordinatorState, tick: Tick, now: Now
) -> tuple[CoordinatorState, list[OwnerOutput]]:
    ticks, collect = state.captures.ticks + 1, state.captures.collect_stats
    collect = collect or ticks % settings.collect_stats_ticks == 0
    is_due = ticks % settings.heartbeat_ticks == 0
    captures = replace(state.captures, ticks=ticks, collect_stats=collect and not is_due)
    state, outputs = replace(state, captures=captures), list[OwnerOutput]()
    if not is_due:
        return state, outputs
    for address in sorted(captures.members):
        state, send = heartbeat(settings, state, address, state.replications.on.get(address, EMPTY), collect)
        outputs.append(send)
    return state, outputs
