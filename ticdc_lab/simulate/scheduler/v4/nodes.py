"""The nodes as a maintainer knows them: its own state, and what it derives from their reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from immutables import Map

from ticdc_lab.machines.machine import Address, Changed, Ignored, Output, Send, replace, stepped
from ticdc_lab.simulate.scheduler.roles import Key, Span
from ticdc_lab.simulate.scheduler.v4 import controller, operators, spans
from ticdc_lab.simulate.scheduler.v4.barrier import NO_BARRIER, Barrier, rebuilt
from ticdc_lab.simulate.scheduler.v4.controller import NOTHING, Control
from ticdc_lab.simulate.scheduler.v4.messages import (
    HeartBeatRequest,
    MaintainerBootstrapRequest,
    MaintainerBootstrapResponse,
    MergeDispatcherRequest,
    ScheduleDispatcherRequest,
    Stamp,
    TableSpanStatus,
)
from ticdc_lab.simulate.scheduler.v4.spans import holes, position, root_of

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
class DrainState:
    """The node to drain and the epoch of that wish; ``limit`` of moves at once is fixed once for a target and epoch."""

    target: Address | None = None
    epoch: int = 0
    limit: int = 0
    limit_of: tuple[Address | None, int] = (None, 0)


NO_DRAIN = DrainState()


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


def _status(control: Control, sender: Address, status: TableSpanStatus, at_us: int) -> controller.Stepped:
    """Inform the span's operator; without one, remove what is unwanted and create again what ended by itself."""
    before = control.spans.replicas.get(status.id)
    bound_here = before is not None and before.node == sender
    if bound_here:
        control = control._replace(spans=spans.checkpointed(control.spans, status.id, status.checkpoint_ts))
    if status.id in control.running:
        return controller.checked(control, sender, status, at_us)
    if status.component_status in ("Working", "Initializing") and not bound_here:
        control, outputs = controller.adopted(control, operators.removal(status.id, sender), at_us)
        return control, [Ignored(status, f"{sender} runs {status.id}, which is not bound to it"), *outputs]
    if status.component_status in ("Stopped", "Removed") and bound_here:
        because = f"{sender} reports it {status.component_status} though this was not requested"
        known, outputs = spans.marked_absent(control.spans, status.id, at_us, because)
        return control._replace(spans=known), outputs
    return control, []


def _restarted(state: MaintainerState, node: Address, at_us: int) -> Stepped:
    """A node began again with nothing: what it ran is as good as gone."""
    responses = state.responses.delete(node) if node in state.responses else state.responses
    nodes = state.nodes.set(node, KnownNode(at_us, at_us))
    control, outputs = controller.node_removed(state.control, node, at_us)
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
    because = "it is wanted"
    state_of, outputs = spans.added(control.spans, state.tables, checkpoint_ts, at_us, because)
    control = control._replace(spans=state_of)
    reported = {node: state.responses[node] for node in sorted(state.responses)}
    control, more = _split_again(control, state.tables, reported, checkpoint_ts, at_us)
    outputs += more
    for node, response in reported.items():
        control, more = _taken_over(control, node, response, at_us)
        outputs += more
    stands = [status for response in reported.values() for status in response.block_states]
    barrier, more = rebuilt(state.barrier, control.spans, stands)
    outputs += more
    told = Changed("bootstrap", None, "done", f"{len(reported)} nodes have answered: {', '.join(reported)}")
    return replace(state, control=control, barrier=barrier, bootstrapped=True, responses=Map()), [*outputs, told]


def _taken_over(
    control: Control, node: Address, response: MaintainerBootstrapResponse, at_us: int
) -> controller.Stepped:
    outputs: list[Output] = []
    stopping = {request.dispatcher_id for request in response.operators if request.schedule_action == "Remove"}
    creating = {request.dispatcher_id for request in response.operators if request.schedule_action == "Create"}
    for status in response.spans:
        key = status.id
        known = control.spans.replicas.get(key)
        if known is None or known.node is not None:
            control, more = controller.adopted(control, operators.removal(key, node), at_us)
            outputs += more
            continue
        because = f"{node} reports it {status.component_status}"
        state, more = spans.restored(control.spans, key, node, status.checkpoint_ts, at_us, because)
        control = control._replace(spans=state)
        outputs += more
        if key in stopping:
            control, more = controller.adopted(control, operators.removal(key, node, then_absent=True), at_us)
            outputs += more
        elif key in creating:
            control, more = controller.adopted(control, operators.add(key, node), at_us)
            outputs += more
    return control, outputs


def _split_again(
    control: Control,
    tables: frozenset[Key],
    reported: dict[Address, MaintainerBootstrapResponse],
    checkpoint_ts: int,
    at_us: int,
) -> controller.Stepped:
    parts: dict[Key, list[Span]] = {}
    for response in reported.values():
        for status in response.spans:
            root = root_of(status.id, tables)
            if root is not None and root != status.id and isinstance(status.id, Span):
                parts.setdefault(root, []).append(status.id)
    outputs: list[Output] = []
    for root in sorted(parts, key=position):
        state, changes = spans.removed(control.spans, root, "nodes report parts of it")
        state, more = spans.added(state, _whole(root, parts[root]), checkpoint_ts, at_us, f"a part of {root}")
        control = control._replace(spans=state)
        outputs += changes + more
    return control, outputs


def _whole(root: Key, parts: Iterable[Span]) -> list[Key]:
    known = sorted(set(parts), key=position)
    return [*known, *holes(root, known)]
