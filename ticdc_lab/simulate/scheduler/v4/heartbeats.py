"""What a maintainer makes of what nodes report (Controller.HandleStatus)."""

from __future__ import annotations

from dataclasses import replace

from ticdc_lab.simulate.machine import Address, Changed, Ignored, Output
from ticdc_lab.simulate.scheduler.v4 import operators, spans
from ticdc_lab.simulate.scheduler.v4.control import Control
from ticdc_lab.simulate.scheduler.v4.messages import (
    HeartBeatRequest,
    MaintainerBootstrapResponse,
    TableSpanStatus,
)
from ticdc_lab.simulate.scheduler.v4.nodes import MaintainerState, Node, Stepped, asked
from ticdc_lab.simulate.scheduler.v4.remove import Remove


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
        seq=message.seq,
        checkpoint_ts=message.checkpoint_ts,
        resolved_ts=message.resolved_ts,
        slowest=message.slowest,
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


def _status(control: Control, sender: Address, status: TableSpanStatus, at_us: int) -> operators.Stepped:
    """Tell the span's operator; without one, remove what nobody wants and create again what ended by itself."""
    before = control.spans.replicas.get(status.id)
    bound_here = before is not None and before.node == sender
    if bound_here:
        control = control._replace(spans=spans.checkpointed(control.spans, status.id, status.checkpoint_ts))
    if status.id in control.running:
        return operators.checked(control, sender, status, at_us)
    if status.component_status in ("Working", "Initializing") and not bound_here:
        control, outputs = operators.adopted(control, Remove(status.id, sender), at_us)
        return control, [Ignored(status, f"{sender} runs {status.id}, which is not bound to it"), *outputs]
    if status.component_status in ("Stopped", "Removed") and bound_here:
        because = f"{sender} reports it {status.component_status} though nobody asked for that"
        known, outputs = spans.marked_absent(control.spans, status.id, at_us, because)
        return control._replace(spans=known), outputs
    return control, []


def _restarted(state: MaintainerState, node: Address, at_us: int) -> Stepped:
    """A node began again with nothing: what it ran is as good as gone."""
    responses = state.responses.delete(node) if node in state.responses else state.responses
    nodes = state.nodes.set(node, Node(at_us, at_us))
    control, outputs = operators.node_removed(state.control, node, at_us)
    outputs.append(Changed(f"node:{node}", "ready", "restarted", "its dispatcher manager has begun again"))
    return replace(state, control=control, nodes=nodes, responses=responses), outputs


def _stranger(state: MaintainerState, sender: Address, epoch: int) -> str:
    if epoch != state.owner_rev:
        return f"it is for the maintainer of epoch {epoch}, this one has {state.owner_rev}"
    return f"{sender} is not registered"
