"""The maintainer of a changefeed: the owner's side of the newer architecture (maintainer/maintainer_controller.go)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from ticdc_lab.machines.machine import (
    BARRIER,
    CAPTURE,
    OTHER,
    TABLE,
    Address,
    Asked,
    Changed,
    Decided,
    Event,
    Ignored,
    Now,
    Output,
    Reason,
    Received,
    replace,
)
from ticdc_lab.simulate.scheduler.executor import MAX_TS
from ticdc_lab.simulate.scheduler.roles import (
    NO_REASON,
    Drain,
    Key,
    MergeSpans,
    MoveTable,
    OwnerOutput,
    Rebalance,
    Span,
    SplitTable,
    Tick,
    Watermarks,
)
from ticdc_lab.simulate.scheduler.v4 import barrier, controller, nodes, operators, schedulers, spans
from ticdc_lab.simulate.scheduler.v4.controller import Control
from ticdc_lab.simulate.scheduler.v4.messages import (
    BlockStatusRequest,
    HeartBeatRequest,
    MaintainerBootstrapResponse,
    not_answered,
)
from ticdc_lab.simulate.scheduler.v4.nodes import MaintainerState, Stepped, asked, stamped
from ticdc_lab.simulate.scheduler.v4.operators import SpanOperator
from ticdc_lab.simulate.scheduler.v4.schedulers import targeted
from ticdc_lab.simulate.scheduler.v4.settings import DEFAULTS, V4Settings
from ticdc_lab.simulate.scheduler.v4.spans import REPLICATING, Spans, contains, position, table_of

# What users ask a maintainer for: moves, an even spread, a node without spans, splits and merges.


def command_taken(state: MaintainerState, command: Any, now: Now) -> Stepped:
    """Take a command; one that cannot be followed is answered with why not and forgotten."""
    if isinstance(command, Rebalance):
        return replace(state, balance_due_us=now.at_us, balance_blocked_us=now.at_us), []
    if isinstance(command, Drain):
        return replace(state, drain=targeted(state.drain, command.capture, state.drain.epoch + 1)), []
    if isinstance(command, MoveTable):
        return _begun(state, command.table, _move(state, command), now)
    if isinstance(command, SplitTable):
        return _begun(state, command.table, _split(state, command), now)
    if isinstance(command, MergeSpans):
        control, outputs, why_not = controller.merged(state.control, command.spans, now.at_us)
        subject = f"span:{command.spans[0] if command.spans else ''}"
        return replace(state, control=control), [*outputs, _decided(subject, "merge", why_not)]
    return state, [Ignored(command, "a maintainer knows no such command")]


def _begun(state: MaintainerState, key: Key, operator: SpanOperator | str, now: Now) -> Stepped:
    if isinstance(operator, str):
        return state, [_decided(f"span:{key}", None, operator)]
    control, outputs, why_not = controller.added(state.control, operator, now.at_us)
    return replace(state, control=control), [*outputs, _decided(f"span:{key}", operator.kind, why_not)]


def _move(state: MaintainerState, command: MoveTable) -> SpanOperator | str:
    replica = state.control.spans.replicas.get(command.table)
    if replica is None:
        return f"{command.table} is unknown"
    if command.to not in state.control.nodes:
        return f"{command.to} is not ready"
    if replica.state != REPLICATING or replica.node is None:
        return f"{command.table} is {replica}"
    if replica.node == command.to:
        return f"{command.table} is there already"
    return operators.move(command.table, replica.node, command.to)


def _split(state: MaintainerState, command: SplitTable) -> SpanOperator | str:
    replica = state.control.spans.replicas.get(command.table)
    if replica is None:
        return f"{command.table} is unknown"
    if replica.state != REPLICATING or replica.node is None:
        return f"{command.table} is {replica}"
    key = command.table
    whole = key if isinstance(key, Span) else Span(key, "", "")
    ends = (whole.start, *command.at, whole.end)
    if any(left >= right for left, right in pairwise(ends[:-1])) or (whole.end and ends[-2] >= whole.end):
        return f"{', '.join(command.at)} do not divide {whole}"
    parts = tuple(Span(whole.table, left, right) for left, right in pairwise(ends))
    if len(parts) < 2 or (command.targets and len(command.targets) != len(parts)):
        return f"{len(parts)} parts and {len(command.targets)} targets"
    return operators.split(key, replica.node, parts, command.targets)


def _decided(subject: str, chosen: str | None, why_not: str) -> Output:
    return Decided(subject, None if why_not else chosen, why_not or "a user asked for it")


# What the global watermarks may become, and what holds them (maintainer.go, calCheckpointTs).


def global_watermarks(state: MaintainerState, tick: Tick, at_us: int) -> tuple[MaintainerState, Watermarks]:
    """Give the watermarks of this tick; without progress they are None twice, with what holds them and since when."""
    found = _watermarks(state, tick)
    if found.checkpoint_ts is not None:
        return replace(state, stuck_us=None), found
    stuck_us = at_us if state.stuck_us is None else state.stuck_us
    if found.because.since_us is None:
        found = found._replace(because=replace(found.because, since_us=stuck_us))
    return replace(state, stuck_us=stuck_us), found


def _watermarks(state: MaintainerState, tick: Tick) -> Watermarks:
    if not state.bootstrapped:
        late = [node for node in sorted(state.nodes) if node not in state.responses]
        since_us = min((state.nodes[node].since_us for node in late), default=None)
        return Watermarks(None, None, not_answered("maintainer", late, since_us))
    if tick.barrier_ts is not None and tick.barrier_ts <= tick.checkpoint_ts:
        words = f"a barrier at {tick.barrier_ts} has not been executed"
        return Watermarks(None, None, Reason(BARRIER, str(tick.barrier_ts), words))
    held, because = _held(state.control.spans, tick.checkpoint_ts)
    if held is None:
        return Watermarks(None, None, because)
    checkpoint_ts = resolved_ts = min(held, MAX_TS if tick.barrier_ts is None else tick.barrier_ts)
    if checkpoint_ts == tick.barrier_ts:
        because = Reason(BARRIER, str(checkpoint_ts), "a barrier", blocks=False)
    for name in sorted(state.control.spans.by_node):
        node = state.nodes.get(name)
        if node is None or node.checkpoint_ts is None or node.resolved_ts is None:
            since_us = node.since_us if node else None
            return Watermarks(None, None, Reason(CAPTURE, name, f"{name} has not reported its watermark", since_us))
        if node.checkpoint_ts < checkpoint_ts:
            because = Reason(CAPTURE, name, name, blocks=False)
            if node.slowest is not None:
                because = Reason(TABLE, str(node.slowest), f"table {node.slowest} on {name}", blocks=False)
        checkpoint_ts, resolved_ts = min(checkpoint_ts, node.checkpoint_ts), min(resolved_ts, node.resolved_ts)
    if checkpoint_ts == MAX_TS:
        return Watermarks(None, None, Reason(OTHER, "", "nothing is replicated"))
    return Watermarks(checkpoint_ts, max(checkpoint_ts, resolved_ts), because)


def _held(state: Spans, checkpoint_ts: int) -> tuple[int | None, Reason]:
    """Give the lowest start of the spans that do not replicate, and which it is; None where it holds the checkpoint."""
    lowest, span = MAX_TS, None
    for key in _not_replicating(state):
        start_ts = spans.start_ts(state, key)
        if start_ts < lowest:
            lowest, span = start_ts, key
        if start_ts <= checkpoint_ts:
            break
    if span is None:
        return lowest, NO_REASON
    replica, blocks = state.replicas[span], lowest <= checkpoint_ts
    because = Reason(TABLE, str(span), f"table {span} is {replica}", replica.since_us, blocks=blocks)
    return None if blocks else lowest, because


def _not_replicating(state: Spans) -> Iterator[Key]:
    for group in sorted(state.absent):
        yield from spans.in_order(state.absent[group])
    yield from sorted(state.scheduling, key=position)


class Maintainer:
    """A machine; before :meth:`elected` it takes nothing."""

    def __init__(self, settings: V4Settings = DEFAULTS) -> None:
        self.settings = settings

    def start(self, address: Address, now: Now) -> Stepped:
        return MaintainerState(address, control=Control(resend_us=self.settings.resend_us)), []

    def elected(self, address: Address, owner_rev: int, now: Now) -> Stepped:
        """Begin as the maintainer; ``owner_rev`` is its epoch, higher than every earlier maintainer's."""
        state, _ = self.start(address, now)
        changed = Changed("maintainer", None, address, f"it was elected with epoch {owner_rev}")
        return replace(state, owner_rev=owner_rev, barrier=replace(state.barrier, home=address)), [changed]

    def step(self, state: MaintainerState, event: Event, now: Now) -> tuple[MaintainerState, list[OwnerOutput]]:
        if not state.owner_rev:
            return state, [Ignored(event, "this node is not the maintainer")]
        if isinstance(event, Asked) and isinstance(event.command, Tick):
            return self._tick(state, event.command, now)
        if isinstance(event, Asked):
            state, outputs = stamped(*command_taken(state, event.command, now))
            return state, [*outputs]
        if isinstance(event, Received):
            state, outputs = stamped(*_received(state, event, now.at_us))
            return state, [*outputs]
        return state, [Ignored(event, "a maintainer sets no timers")]

    def _tick(self, state: MaintainerState, tick: Tick, now: Now) -> tuple[MaintainerState, list[OwnerOutput]]:
        state, outputs = _members(state, tick, self.settings.resend_us, now.at_us)
        state, more = _tables(state, tick, now.at_us)
        outputs += more
        floor_ts = max(state.control.spans.floor_ts, tick.checkpoint_ts)
        known = state.control.spans._replace(floor_ts=floor_ts)
        state = replace(state, control=state.control._replace(spans=known))
        if not state.bootstrapped and state.nodes and len(state.responses) == len(state.nodes):
            state, more = nodes.bootstrap_finished(state, tick.checkpoint_ts, now.at_us)
            outputs += more
        if state.bootstrapped:
            state, more = schedulers.run(state, self.settings, now)
            control, orders = controller.executed(state.control, now.at_us)
            events, control, actions = barrier.resent(state.barrier, control, now.at_us)
            state = replace(state, control=control, barrier=events)
            outputs += more + orders + actions
        state, outputs = stamped(state, outputs)
        state, marks = global_watermarks(state, tick, now.at_us)
        return state, [*outputs, marks]


def _received(state: MaintainerState, event: Received, at_us: int) -> Stepped:
    if isinstance(event.message, MaintainerBootstrapResponse):
        return nodes.answered(state, event.sender, event.message, at_us)
    if isinstance(event.message, HeartBeatRequest):
        return nodes.heard(state, event.sender, event.message, at_us)
    if isinstance(event.message, BlockStatusRequest) and state.bootstrapped:
        events, control, outputs = barrier.handle_status(
            state.barrier, state.control, event.sender, event.message, at_us
        )
        return replace(state, barrier=events, control=control), outputs
    return state, [Ignored(event.message, "it is not for a maintainer, or it has not begun to schedule")]


def _members(state: MaintainerState, tick: Tick, resend_us: int, at_us: int) -> Stepped:
    outputs: list[Output] = []
    for gone in sorted(set(state.nodes) - tick.captures):
        nodes = state.nodes.delete(gone)
        responses = state.responses.delete(gone) if gone in state.responses else state.responses
        control, more = controller.node_removed(state.control, gone, at_us)
        state = replace(state, nodes=nodes, responses=responses, control=control)
        outputs += more
        if state.drain.target == gone:
            state = replace(state, drain=targeted(state.drain, None, state.drain.epoch))
    for node in sorted(tick.captures):
        known = state.nodes.get(node)
        if known is None or (not known.epoch and at_us - known.asked_us >= resend_us):
            state, more = asked(state, node, at_us)
            outputs += more
    return state, outputs


def _tables(state: MaintainerState, tick: Tick, at_us: int) -> Stepped:
    if tick.tables is state.tables:
        return state, []
    new, gone = tick.tables - state.tables, state.tables - tick.tables
    state = replace(state, tables=tick.tables)
    if not state.bootstrapped:
        return state, []
    known = state.control.spans
    removed = [key for root in gone for key in spans.of_table(known, table_of(root)) if contains(root, key)]
    control, outputs = controller.tasks_removed(state.control, removed, at_us, "it is not wanted any more")
    start_ts = max(tick.checkpoint_ts, tick.executed_ts)  # a table that a DDL has brought begins with it
    added, changes = spans.added(control.spans, new, start_ts, at_us, "it is wanted")
    return replace(state, control=control._replace(spans=added)), outputs + changes
