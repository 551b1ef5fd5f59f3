"""The maintainer of a changefeed: the owner's side of the newer architecture (maintainer/maintainer_controller.go)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from immutables import Map

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
    Send,
    replace,
    stepped,
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
    without,
)
from ticdc_lab.simulate.scheduler.v4 import barrier, operators, schedulers, spans
from ticdc_lab.simulate.scheduler.v4.barrier import NO_BARRIER, Barrier
from ticdc_lab.simulate.scheduler.v4.messages import (
    BlockStatusRequest,
    HeartBeatRequest,
    MaintainerBootstrapRequest,
    MaintainerBootstrapResponse,
    MergeDispatcherRequest,
    ScheduleDispatcherRequest,
    Stamp,
    TableSpanStatus,
    not_answered,
)
from ticdc_lab.simulate.scheduler.v4.operators import Control, Controlled, SpanOperator
from ticdc_lab.simulate.scheduler.v4.schedulers import NO_DRAIN, DrainState, active, targeted
from ticdc_lab.simulate.scheduler.v4.settings import DEFAULTS, V4Settings
from ticdc_lab.simulate.scheduler.v4.spans import REPLICATING, Spans, contains, holes, position, root_of, table_of

NOTHING = Control()


# The nodes as a maintainer knows them, and its own state.


@stepped
class KnownNode(NamedTuple):
    """One node."""

    since_us: int  # when the maintainer first heard of this life of it
    asked_us: int  # when it was asked for its bootstrap response last
    # The life of its dispatcher manager and the number of the last message taken; 0 before its response.
    epoch: int = 0
    seq: int = 0
    # Its last watermark, None before the first heartbeat.
    checkpoint_ts: int | None = None
    resolved_ts: int | None = None
    slowest: Key | None = None  # the span that is behind all others there


@dataclass(frozen=True, slots=True)
class MaintainerState:
    """A maintainer; ``owner_rev``, its epoch, is 0 while it is not elected."""

    address: Address
    owner_rev: int = 0
    control: Control = NOTHING
    nodes: Map[Address, KnownNode] = Map()
    responses: Map[Address, MaintainerBootstrapResponse] = Map()  # what nodes reported while not all had answered
    bootstrapped: bool = False
    tables: frozenset[Key] = frozenset()  # what should be replicated, as last sent; compared with ``is``
    barrier: Barrier = NO_BARRIER
    drain: DrainState = NO_DRAIN
    seq: int = 0  # number of the last message sent to a node
    # When to look at the balance next, and until when a drain that ended holds it back.
    balance_due_us: int = 0
    balance_blocked_us: int = 0
    said: Map[str, str] = Map()  # each scheduler's last reason for doing nothing: it is not repeated
    stuck_us: int | None = None  # since when the checkpoint does not proceed


Stepped = tuple[MaintainerState, list[Output]]


def asked(state: MaintainerState, node: Address, at_us: int) -> Stepped:
    """Ask a node for everything that it runs."""
    old = state.nodes.get(node, KnownNode(at_us, at_us))
    nodes = state.nodes.set(node, old._replace(asked_us=at_us))
    return replace(state, nodes=nodes), [Send(node, MaintainerBootstrapRequest(state.owner_rev))]


def stamped(state: MaintainerState, outputs: list[Output]) -> Stepped:
    """Number the messages to nodes; what is for an unknown life of a node is not sent."""
    seq, ready = state.seq, list[Output]()
    for output in outputs:
        if isinstance(output, Send) and isinstance(output.message, ScheduleDispatcherRequest | MergeDispatcherRequest):
            node = state.nodes.get(output.to)
            if node is None or not node.epoch:
                continue
            seq += 1
            message = output.message._replace(stamp=Stamp(state.owner_rev, node.epoch, seq))
            ready.append(Send(output.to, message))
        else:
            ready.append(output)
    return replace(state, seq=seq), ready


# What a maintainer makes of what nodes report (Controller.HandleStatus).


def answered(state: MaintainerState, sender: Address, message: MaintainerBootstrapResponse, at_us: int) -> Stepped:
    """Take a node's bootstrap response: of a new life of it, once."""
    node = state.nodes.get(sender)
    if node is None or message.maintainer_epoch != state.owner_rev:
        return state, [Ignored(message, _stranger(state, sender, message.maintainer_epoch))]
    if (message.node_epoch, message.seq) <= (node.epoch, node.seq):
        return state, [Ignored(message, f"{sender} has said more since")]
    if node.epoch == message.node_epoch and state.bootstrapped:
        return state, [Ignored(message, f"{sender} has answered already")]
    outputs = list[Output]()
    if node.epoch and message.node_epoch > node.epoch:
        state, outputs = _restarted(state, sender, at_us)
    known = state.nodes[sender]._replace(epoch=message.node_epoch, seq=message.seq)
    state = replace(state, nodes=state.nodes.set(sender, known))
    if not state.bootstrapped:
        return replace(state, responses=state.responses.set(sender, message)), outputs
    state = replace(state, control=state.control._replace(nodes=state.control.nodes | {sender}))
    outputs.append(Changed(f"node:{sender}", None, "ready", "it has answered the maintainer"))
    control = state.control
    for status in message.spans:
        control, more = _status(control, sender, status._replace(component_status="Working"), at_us)
        outputs += more
    return replace(state, control=control), outputs


def heard(state: MaintainerState, sender: Address, message: HeartBeatRequest, at_us: int) -> Stepped:
    """Take a heartbeat, unless a later one of the node was taken; a new life of the node begins with a bootstrap."""
    node = state.nodes.get(sender)
    if node is None or message.maintainer_epoch != state.owner_rev:
        return state, [Ignored(message, _stranger(state, sender, message.maintainer_epoch))]
    if not node.epoch:
        return state, [Ignored(message, f"{sender} has not answered the bootstrap")]
    if message.node_epoch > node.epoch:
        state, outputs = _restarted(state, sender, at_us)
        state, more = asked(state, sender, at_us)
        return state, outputs + more
    if (message.node_epoch, message.seq) <= (node.epoch, node.seq):
        return state, [Ignored(message, f"{sender} has said more since")]
    known = node._replace(
        seq=message.seq, checkpoint_ts=message.checkpoint_ts, resolved_ts=message.resolved_ts, slowest=message.slowest
    )
    state = replace(state, nodes=state.nodes.set(sender, known))
    if not state.bootstrapped:
        return state, []
    control, outputs = state.control, []
    for status in message.statuses:
        control, more = _status(control, sender, status, at_us)
        outputs += more
    reached = control.spans.reached.set(sender, message.checkpoint_ts)
    return replace(state, control=control._replace(spans=control.spans._replace(reached=reached))), outputs


def _status(control: Control, sender: Address, status: TableSpanStatus, at_us: int) -> Controlled:
    """Inform the span's operator; without one, remove what is unwanted and create again what ended by itself."""
    before = control.spans.replicas.get(status.id)
    bound_here = before is not None and before.node == sender
    if bound_here:
        control = control._replace(spans=spans.checkpointed(control.spans, status.id, status.checkpoint_ts))
    if status.id in control.running:
        return operators.checked(control, sender, status, at_us)
    if status.component_status in ("Working", "Initializing") and not bound_here:
        control, outputs = operators.begun(control, operators.removal(status.id, sender), at_us)
        return control, [Ignored(status, f"{sender} runs {status.id}, which is not bound to it"), *outputs]
    if status.component_status in ("Stopped", "Removed") and bound_here:
        because = f"{sender} reports it {status.component_status} though this was not requested"
        known, outputs = spans.marked_absent(control.spans, status.id, at_us, because)
        return control._replace(spans=known), outputs
    return control, []


def _restarted(state: MaintainerState, node: Address, at_us: int) -> Stepped:
    """A node began again with nothing: what it ran is as good as gone."""
    responses, nodes = without(state.responses, node), state.nodes.set(node, KnownNode(at_us, at_us))
    control, outputs = operators.node_removed(state.control, node, at_us)
    outputs.append(Changed(f"node:{node}", "ready", "restarted", "its dispatcher manager has begun again"))
    return replace(state, control=control, nodes=nodes, responses=responses), outputs


def _stranger(state: MaintainerState, sender: Address, epoch: int) -> str:
    if epoch != state.owner_rev:
        return f"it is for the maintainer of epoch {epoch}, this one has {state.owner_rev}"
    return f"{sender} is not registered"


# How a new maintainer learns what runs where (maintainer/maintainer_controller_bootstrap.go).
#
# It asks every node and schedules nothing before all have answered. What runs and is wanted is taken over where it
# is, what a node is creating or stopping becomes an operator again, the rest is absent; what is not wanted is
# removed.


def bootstrap_finished(state: MaintainerState, checkpoint_ts: int, at_us: int) -> Stepped:
    """Build the spans from the answers of all nodes and begin to schedule."""
    control = state.control._replace(nodes=frozenset(state.nodes))
    state_of, outputs = spans.added(control.spans, state.tables, checkpoint_ts, at_us, "it is wanted")
    control = control._replace(spans=state_of)
    reported = {node: state.responses[node] for node in sorted(state.responses)}
    control, more = _split_again(control, state.tables, reported, checkpoint_ts, at_us)
    outputs += more
    for node, response in reported.items():
        control, more = _taken_over(control, node, response, at_us)
        outputs += more
    stands = [status for response in reported.values() for status in response.block_states]
    events, more = barrier.rebuilt(state.barrier, control.spans, stands)
    outputs += more
    told = Changed("bootstrap", None, "done", f"{len(reported)} nodes have answered: {', '.join(reported)}")
    return replace(state, control=control, barrier=events, bootstrapped=True, responses=Map()), [*outputs, told]


def _taken_over(control: Control, node: Address, response: MaintainerBootstrapResponse, at_us: int) -> Controlled:
    outputs: list[Output] = []
    stopping = {request.dispatcher_id for request in response.operators if request.schedule_action == "Remove"}
    creating = {request.dispatcher_id for request in response.operators if request.schedule_action == "Create"}
    for status in response.spans:
        key = status.id
        known = control.spans.replicas.get(key)
        if known is None or known.node is not None:
            control, more = operators.begun(control, operators.removal(key, node), at_us)
            outputs += more
            continue
        because = f"{node} reports it {status.component_status}"
        state, more = spans.restored(control.spans, key, node, status.checkpoint_ts, at_us, because)
        control = control._replace(spans=state)
        outputs += more
        if key in stopping:
            control, more = operators.begun(control, operators.removal(key, node, then_absent=True), at_us)
            outputs += more
        elif key in creating:
            control, more = operators.begun(control, operators.add(key, node), at_us)
            outputs += more
    return control, outputs


def _split_again(
    control: Control,
    tables: frozenset[Key],
    reported: dict[Address, MaintainerBootstrapResponse],
    checkpoint_ts: int,
    at_us: int,
) -> Controlled:
    parts: dict[Key, list[Span]] = {}
    for response in reported.values():
        for status in response.spans:
            root = root_of(status.id, tables)
            if root is not None and root != status.id and isinstance(status.id, Span):
                parts.setdefault(root, []).append(status.id)
    outputs: list[Output] = []
    for root in sorted(parts, key=position):
        known = sorted(set(parts[root]), key=position)
        state, changes = spans.removed(control.spans, root, "nodes report parts of it")
        state, more = spans.added(state, [*known, *holes(root, known)], checkpoint_ts, at_us, f"a part of {root}")
        control = control._replace(spans=state)
        outputs += changes + more
    return control, outputs


# The schedulers, one after the other


def run(state: MaintainerState, settings: V4Settings, now: Now) -> Stepped:
    """Let each scheduler begin what it can; why one does nothing is reported when the reason is new."""
    control, drain, found = schedulers.drained(
        state.control, state.drain, state.address, settings.batch_size, now.prefer, now.at_us
    )
    target = active(drain)
    control, more = schedulers.placed(control, settings, target, now.prefer, now.at_us)
    state, found = replace(state, control=control, drain=drain), found + more
    if target is not None:
        state = replace(state, balance_blocked_us=now.at_us + settings.balance_cooldown_us)
    elif now.at_us >= state.balance_due_us and now.at_us >= state.balance_blocked_us:
        control, more = schedulers.balanced(state.control, settings.batch_size, now.prefer, now.at_us)
        busy = any(isinstance(output, Decided) and output.chosen is None for output in more)
        due_us = state.balance_due_us if busy and control.running else now.at_us + settings.balance_interval_us
        state, found = replace(state, control=control, balance_due_us=due_us), found + more
    said, outputs = state.said, list[Output]()
    for output in found:
        if isinstance(output, Decided):
            text = str(output.because) if output.chosen is None else ""
            if text and said.get(output.subject) == text:
                continue
            if not output.subject.startswith("span:"):
                said = said.set(output.subject, text)
        outputs.append(output)
    return replace(state, said=said), outputs


# What users ask a maintainer for: moves, an even spread, a node without spans, splits and merges.


def command_taken(state: MaintainerState, command: Any, now: Now) -> Stepped:
    """Take a command; one that cannot be followed is answered with why not and forgotten."""
    if isinstance(command, Rebalance):
        return replace(state, balance_due_us=now.at_us, balance_blocked_us=now.at_us), []
    if isinstance(command, Drain):
        return replace(state, drain=targeted(state.drain, command.capture, state.drain.epoch + 1)), []
    chosen, outputs = "merge", list[Output]()
    if isinstance(command, MergeSpans):
        subject = f"span:{command.spans[0] if command.spans else ''}"
        control, outputs, why_not = operators.merged(state.control, command.spans, now.at_us)
        state = replace(state, control=control)
    elif isinstance(command, MoveTable | SplitTable):
        subject, operator = f"span:{command.table}", _wished(state, command)
        if isinstance(operator, str):
            why_not = operator
        else:
            control, outputs, why_not = operators.added(state.control, operator, now.at_us)
            state, chosen = replace(state, control=control), operator.kind
    else:
        return state, [Ignored(command, "a maintainer knows no such command")]
    decided = Decided(subject, None if why_not else chosen, why_not or "a user asked for it")
    return state, [*outputs, decided]


def _wished(state: MaintainerState, command: MoveTable | SplitTable) -> SpanOperator | str:
    key, replica = command.table, state.control.spans.replicas.get(command.table)
    if replica is None:
        return f"{key} is unknown"
    if isinstance(command, MoveTable) and command.to not in state.control.nodes:
        return f"{command.to} is not ready"
    if replica.state != REPLICATING or replica.node is None:
        return f"{key} is {replica}"
    if isinstance(command, MoveTable):
        there = replica.node == command.to
        return f"{key} is there already" if there else operators.move(key, replica.node, command.to)
    whole = key if isinstance(key, Span) else Span(key, "", "")
    ends = (whole.start, *command.at, whole.end)
    if any(left >= right for left, right in pairwise(ends[:-1])) or (whole.end and ends[-2] >= whole.end):
        return f"{', '.join(command.at)} do not divide {whole}"
    parts = tuple(Span(whole.table, left, right) for left, right in pairwise(ends))
    if len(parts) < 2 or (command.targets and len(command.targets) != len(parts)):
        return f"{len(parts)} parts and {len(command.targets)} targets"
    return operators.split(key, replica.node, parts, command.targets)


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
    known, lowest, span, because = state.control.spans, MAX_TS, None, NO_REASON
    for key in _not_replicating(known):
        start_ts = spans.start_ts(known, key)
        if start_ts < lowest:
            lowest, span = start_ts, key
        if start_ts <= tick.checkpoint_ts:
            break
    if span is not None:
        replica, blocks = known.replicas[span], lowest <= tick.checkpoint_ts
        because = Reason(TABLE, str(span), f"table {span} is {replica}", replica.since_us, blocks=blocks)
        if blocks:
            return Watermarks(None, None, because)
    checkpoint_ts = resolved_ts = min(lowest, MAX_TS if tick.barrier_ts is None else tick.barrier_ts)
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
            found = command_taken(state, event.command, now)
        elif not isinstance(event, Received):
            return state, [Ignored(event, "a maintainer sets no timers")]
        elif isinstance(event.message, MaintainerBootstrapResponse):
            found = answered(state, event.sender, event.message, now.at_us)
        elif isinstance(event.message, HeartBeatRequest):
            found = heard(state, event.sender, event.message, now.at_us)
        elif isinstance(event.message, BlockStatusRequest) and state.bootstrapped:
            known = state.barrier, state.control
            events, control, actions = barrier.handle_status(*known, event.sender, event.message, now.at_us)
            found = replace(state, barrier=events, control=control), actions
        else:
            found = state, [Ignored(event.message, "it is not for a maintainer, or it has not begun to schedule")]
        state, outputs = stamped(*found)
        return state, [*outputs]

    def _tick(self, state: MaintainerState, tick: Tick, now: Now) -> tuple[MaintainerState, list[OwnerOutput]]:
        state, outputs = _members(state, tick, self.settings.resend_us, now.at_us)
        state, more = _tables(state, tick, now.at_us)
        outputs += more
        floor_ts = max(state.control.spans.floor_ts, tick.checkpoint_ts)
        known = state.control.spans._replace(floor_ts=floor_ts)
        state = replace(state, control=state.control._replace(spans=known))
        if not state.bootstrapped and state.nodes and len(state.responses) == len(state.nodes):
            state, more = bootstrap_finished(state, tick.checkpoint_ts, now.at_us)
            outputs += more
        if state.bootstrapped:
            state, more = run(state, self.settings, now)
            control, orders = operators.executed(state.control, now.at_us)
            events, control, actions = barrier.resent(state.barrier, control, now.at_us)
            state = replace(state, control=control, barrier=events)
            outputs += more + orders + actions
        state, outputs = stamped(state, outputs)
        state, marks = global_watermarks(state, tick, now.at_us)
        return state, [*outputs, marks]


def _members(state: MaintainerState, tick: Tick, resend_us: int, at_us: int) -> Stepped:
    outputs: list[Output] = []
    for gone in sorted(set(state.nodes) - tick.captures):
        nodes, responses = state.nodes.delete(gone), without(state.responses, gone)
        control, more = operators.node_removed(state.control, gone, at_us)
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
    control, outputs = operators.tasks_removed(state.control, removed, at_us, "it is not wanted any more")
    start_ts = max(tick.checkpoint_ts, tick.executed_ts)  # a table that a DDL has brought begins with it
    added, changes = spans.added(control.spans, new, start_ts, at_us, "it is wanted")
    return replace(state, control=control._replace(spans=added)), outputs + changes
