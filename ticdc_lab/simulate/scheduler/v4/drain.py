"""The coordinator's drain controller: how a node is led from ALIVE over DRAINING to STOPPING.

(coordinator/drain/controller.go.) A node reports its liveness and the number of its life (``node_epoch``). A higher
epoch is a new process: what was seen of the old one is forgotten, the wish to drain is not. While dispatchers drain
from a target, no maintainer goes to a node that has not confirmed, in its present life, that it knows the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from immutables import Map

from ticdc_lab.machines.machine import Address, Changed, Ignored, Output, Send, replace, stepped
from ticdc_lab.simulate.scheduler.roles import without
from ticdc_lab.simulate.scheduler.v4.messages import NodeHeartbeat, SetNodeLivenessRequest, SetNodeLivenessResponse

ALIVE, DRAINING, STOPPING, UNKNOWN = "ALIVE", "DRAINING", "STOPPING", "UNKNOWN"
ORDER = (ALIVE, DRAINING, STOPPING)
"""In one life a node only advances in this order."""


@stepped
class SeenNode(NamedTuple):
    """What the coordinator saw of a node; ``*_sent_us`` None where nothing was sent to this life of it."""

    drain_requested: bool = False
    drain_sent_us: int | None = None
    stop_sent_us: int | None = None
    last_seen_us: int | None = None
    node_epoch: int = 0
    liveness: str = ALIVE


class Own(NamedTuple):
    """What a node is by itself: its liveness and its life."""

    liveness: str
    node_epoch: int


def applied(own: Own, request: SetNodeLivenessRequest) -> tuple[Own, SetNodeLivenessResponse]:
    """Follow the coordinator, forward only, and only where this life is meant; answer what holds then.

    A coordinator that has not heard of this life asks with epoch 0; only DRAINING can be asked for like that.
    """
    meant = request.node_epoch == own.node_epoch or (request.node_epoch == 0 and request.target == DRAINING)
    if meant and ORDER.index(request.target) > ORDER.index(own.liveness):
        own = own._replace(liveness=request.target)
    return own, SetNodeLivenessResponse(own.liveness, own.node_epoch)


RESEND_US = 1_000_000


class Gate(NamedTuple):
    """The drain target that nodes have to know; ``acked`` has the life in which each confirmed it."""

    target: Address
    epoch: int
    acked: Map[Address, int] = Map()


@dataclass(frozen=True, slots=True)
class DrainController:
    """All nodes, and the gate before new maintainers."""

    nodes: Map[Address, SeenNode] = Map()
    gate: Gate | None = None


Stepped = tuple[DrainController, list[Output]]


class NodeCommand(NamedTuple):
    """A command to a certain life of a node."""

    node: Address
    target: str
    node_epoch: int


def drain_requested(state: DrainController, node: Address, at_us: int) -> Stepped:
    """A user wants a node drained: send it at once."""
    known = state.nodes.get(node, SeenNode())._replace(drain_requested=True)
    state = replace(state, nodes=state.nodes.set(node, known))
    return commanded(state, [NodeCommand(node, DRAINING, known.node_epoch)], at_us)


def heartbeat_observed(state: DrainController, node: Address, message: NodeHeartbeat, at_us: int) -> Stepped:
    """Take a node's heartbeat, unless a later life of it was seen."""
    state, outputs = _observed(state, node, message.node_epoch, message.liveness, at_us, message)
    gate, known = state.gate, state.nodes[node]
    if gate is None or node == gate.target or message.node_epoch != known.node_epoch:
        return state, outputs
    if (message.dispatcher_drain_target_node_id, message.dispatcher_drain_target_epoch) != (gate.target, gate.epoch):
        return state, outputs
    acked = gate.acked.set(node, message.node_epoch)
    return replace(state, gate=gate._replace(acked=acked)), outputs


def response_observed(state: DrainController, node: Address, message: SetNodeLivenessResponse, at_us: int) -> Stepped:
    """Take a node's answer to a command."""
    return _observed(state, node, message.node_epoch, message.applied, at_us, message)


def node_removed(state: DrainController, node: Address) -> DrainController:
    """A node has left the cluster: forget it."""
    nodes = without(state.nodes, node)
    gate = state.gate
    if gate is not None:
        gate = gate._replace(acked=without(gate.acked, node))
    return replace(state, nodes=nodes, gate=gate)


def planned(
    state: DrainController, managed: Callable[[Address], bool], ready_to_stop: Callable[[Address], bool]
) -> list[NodeCommand]:
    """Give the order for each node that is to drain: DRAINING until it is, then STOPPING when it may."""
    plans: list[NodeCommand] = []
    for node in sorted(state.nodes):
        known = state.nodes[node]
        if not known.drain_requested or not managed(node):
            continue
        if known.liveness == ALIVE:
            plans.append(NodeCommand(node, DRAINING, known.node_epoch))
        elif known.liveness == DRAINING and ready_to_stop(node):
            plans.append(NodeCommand(node, STOPPING, known.node_epoch))
    return plans


def commanded(state: DrainController, plans: Iterable[NodeCommand], at_us: int) -> Stepped:
    """Send planned commands, each at most once a second, and STOPPING only to the very life that was DRAINING."""
    outputs: list[Output] = []
    for plan in plans:
        known = state.nodes[plan.node]
        if plan.target == DRAINING:
            meant, sent_us, sent = known.liveness == ALIVE, known.drain_sent_us, known._replace(drain_sent_us=at_us)
        else:
            meant = known.liveness == DRAINING and known.node_epoch == plan.node_epoch
            sent_us, sent = known.stop_sent_us, known._replace(stop_sent_us=at_us)
        if meant and (sent_us is None or at_us - sent_us >= RESEND_US):
            state = replace(state, nodes=state.nodes.set(plan.node, sent))
            outputs.append(Send(plan.node, SetNodeLivenessRequest(plan.target, known.node_epoch)))
    return state, outputs


def liveness_advanced(
    state: DrainController, managed: Callable[[Address], bool], ready_to_stop: Callable[[Address], bool], at_us: int
) -> Stepped:
    """Plan and send in one go (AdvanceLiveness)."""
    return commanded(state, planned(state, managed, ready_to_stop), at_us)


def _observed(
    state: DrainController, node: Address, node_epoch: int, liveness: str, at_us: int, message: object
) -> Stepped:
    known, gate, outputs = state.nodes.get(node, SeenNode()), state.gate, list[Output]()
    if known.last_seen_us is not None and node_epoch < known.node_epoch:
        return state, [Ignored(message, f"it is of life {node_epoch} of {node}, which is in {known.node_epoch}")]
    if known.last_seen_us is not None and node_epoch > known.node_epoch:
        outputs.append(Changed(f"node:{node}", known.node_epoch, node_epoch, "it is a new process"))
        known = SeenNode(drain_requested=known.drain_requested)
        if gate is not None:
            gate = gate._replace(acked=without(gate.acked, node))
    elif known.last_seen_us is not None and ORDER.index(liveness) < ORDER.index(known.liveness):
        return state, [Ignored(message, f"{node} was {known.liveness} already in this life")]
    if known.liveness != liveness:
        outputs.append(Changed(f"liveness:{node}", known.liveness, liveness, "the node reports it"))
    wished = known.drain_requested or liveness != ALIVE
    known = known._replace(drain_requested=wished, last_seen_us=at_us, node_epoch=node_epoch, liveness=liveness)
    return replace(state, nodes=state.nodes.set(node, known), gate=gate), outputs


TTL_US = 30_000_000


def gate_started(state: DrainController, target: Address, epoch: int) -> DrainController:
    """Dispatchers drain from a target from now on; an older gate is over."""
    return replace(state, gate=Gate(target, epoch)) if target and epoch else state


def gate_cleared(state: DrainController, target: Address, epoch: int) -> DrainController:
    """The drain of a target is over. Nothing where another gate has begun."""
    is_open = state.gate is not None and state.gate[:2] == (target, epoch)
    return replace(state, gate=None) if is_open else state


def state_of(state: DrainController, node: Address, at_us: int) -> str:
    """Give ALIVE, DRAINING or STOPPING; UNKNOWN of a node that has been silent for too long."""
    known = state.nodes.get(node)
    if known is None or known.last_seen_us is None:
        return ALIVE
    return UNKNOWN if at_us - known.last_seen_us > TTL_US else known.liveness


def why_not_dest(state: DrainController, node: Address, at_us: int) -> str:
    """Give why no maintainer may go to a node, nothing if one may."""
    if state_of(state, node, at_us) != ALIVE:
        return f"it is {state_of(state, node, at_us)}"
    if state.gate is None:
        return ""
    if node == state.gate.target:
        return "it is being drained"
    known = state.nodes.get(node)
    if known is None or known.last_seen_us is None or state.gate.acked.get(node) != known.node_epoch:
        return f"it has not said, in its present life, that {state.gate.target} drains"
    return ""


def schedulable(state: DrainController, node: Address, at_us: int) -> bool:
    """Whether a maintainer may go to a node."""
    return not why_not_dest(state, node, at_us)
