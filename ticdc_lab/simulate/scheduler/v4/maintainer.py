"""The maintainer of a changefeed: the owner's side of the newer architecture (maintainer/maintainer_controller.go)."""

from __future__ import annotations

from dataclasses import replace

from ticdc_lab.simulate.machine import Address, Asked, Changed, Event, Ignored, Now, Output, Received
from ticdc_lab.simulate.scheduler.roles import Key, OwnerOutput, Tick
from ticdc_lab.simulate.scheduler.v4 import (
    barrier,
    bootstrap,
    commands,
    heartbeats,
    operators,
    schedulers,
    spans,
    watermarks,
)
from ticdc_lab.simulate.scheduler.v4.control import Control
from ticdc_lab.simulate.scheduler.v4.coverage import contains
from ticdc_lab.simulate.scheduler.v4.keys import table_of
from ticdc_lab.simulate.scheduler.v4.messages import BlockStatusRequest, HeartBeatRequest, MaintainerBootstrapResponse
from ticdc_lab.simulate.scheduler.v4.nodes import MaintainerState, Stepped, asked, stamped
from ticdc_lab.simulate.scheduler.v4.settings import DEFAULTS, Settings


class Maintainer:
    """A machine; before :meth:`elected` it takes nothing."""

    def __init__(self, settings: Settings = DEFAULTS) -> None:
        self.settings = settings

    def start(self, address: Address, now: Now) -> Stepped:
        """Give the state of a node that is not the maintainer's."""
        return MaintainerState(address, control=Control(resend_us=self.settings.resend_us)), []

    def elected(self, address: Address, owner_rev: int, now: Now) -> Stepped:
        """Begin as the maintainer; ``owner_rev`` is its epoch, higher than that of every maintainer before it."""
        state, _ = self.start(address, now)
        changed = Changed("maintainer", None, address, f"it was elected with epoch {owner_rev}")
        return replace(state, owner_rev=owner_rev, barrier=replace(state.barrier, home=address)), [changed]

    def step(self, state: MaintainerState, event: Event, now: Now) -> tuple[MaintainerState, list[OwnerOutput]]:
        """Take a tick, a user's wish or a message of a node."""
        if not state.owner_rev:
            return state, [Ignored(event, "this node is not the maintainer")]
        if isinstance(event, Asked) and isinstance(event.command, Tick):
            return self._tick(state, event.command, now)
        if isinstance(event, Asked):
            state, outputs = stamped(*commands.taken(state, event.command, now))
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
        state = _with_spans(state, state.control.spans._replace(floor_ts=floor_ts))
        if not state.bootstrapped and state.nodes and len(state.responses) == len(state.nodes):
            state, more = bootstrap.finished(state, tick.checkpoint_ts, now.at_us)
            outputs += more
        if state.bootstrapped:
            state, more = schedulers.run(state, self.settings, now)
            control, orders = operators.executed(state.control, now.at_us)
            events, control, actions = barrier.resent(state.barrier, control, now.at_us)
            state = replace(state, control=control, barrier=events)
            outputs += more + orders + actions
        state, outputs = stamped(state, outputs)
        state, marks = watermarks.global_watermarks(state, tick, now.at_us)
        return state, [*outputs, marks]


def _received(state: MaintainerState, event: Received, at_us: int) -> Stepped:
    if isinstance(event.message, MaintainerBootstrapResponse):
        return heartbeats.answered(state, event.sender, event.message, at_us)
    if isinstance(event.message, HeartBeatRequest):
        return heartbeats.heard(state, event.sender, event.message, at_us)
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
        control, more = operators.node_removed(state.control, gone, at_us)
        state = replace(state, nodes=nodes, responses=responses, control=control)
        outputs += more
        if state.drain.target == gone:
            state = schedulers.drain_ended(state)
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
    removed = [key for root in gone for key in _of_root(state, root)]
    control, outputs = operators.tasks_removed(state.control, removed, at_us, "it is not wanted any more")
    added, changes = spans.added(control.spans, new, tick.checkpoint_ts, at_us, "it is wanted")
    return replace(state, control=control._replace(spans=added)), outputs + changes


def _of_root(state: MaintainerState, root: Key) -> list[Key]:
    known = state.control.spans
    return [key for key in spans.of_table(known, table_of(root)) if contains(root, key)]


def _with_spans(state: MaintainerState, known: spans.Spans) -> MaintainerState:
    return replace(state, control=state.control._replace(spans=known))
