"""Where the coordinator may put a maintainer while dispatchers drain (coordinator/drain/controller.go)."""

from __future__ import annotations

from dataclasses import replace

from ticdc_lab.simulate.machine import Address
from ticdc_lab.simulate.scheduler.v4.drain import ClearGate, DrainController, Gate, without_pending
from ticdc_lab.simulate.scheduler.v4.liveness import ALIVE, UNKNOWN

TTL_US = 30_000_000


def gate_started(state: DrainController, target: Address, epoch: int) -> DrainController:
    """Dispatchers drain from a target from now on; an older gate of whatever kind is over."""
    return replace(state, gate=Gate(target, epoch), clear_gate=None) if target and epoch else state


def gate_cleared(
    state: DrainController, target: Address, epoch: int, pending: frozenset[Address] = frozenset()
) -> DrainController:
    """The drain of a target is over; ``pending`` nodes may not know yet. Nothing where another gate has begun."""
    if state.gate is not None and (state.gate.target, state.gate.epoch) != (target, epoch):
        return state
    return replace(state, gate=None, clear_gate=ClearGate(target, epoch, pending) if pending else None)


def clear_acked(state: DrainController, node: Address, target: Address, epoch: int) -> DrainController:
    """A node knows that the drain of a target is over."""
    gate = state.clear_gate
    return without_pending(state, {node}) if gate and (gate.target, gate.epoch) == (target, epoch) else state


def state_of(state: DrainController, node: Address, at_us: int) -> str:
    """Give ALIVE, DRAINING or STOPPING; UNKNOWN of a node that has been silent for too long."""
    known = state.nodes.get(node)
    if known is None or known.last_seen_us is None:
        return ALIVE
    return UNKNOWN if at_us - known.last_seen_us > TTL_US else known.liveness


def why_not_dest(state: DrainController, node: Address, at_us: int) -> str:
    """Say why no maintainer may go to a node, nothing where one may."""
    if state.frozen:
        return "nothing is scheduled while the drain target is not known for sure"
    if state_of(state, node, at_us) != ALIVE:
        return f"it is {state_of(state, node, at_us)}"
    if state.clear_gate is not None and node in state.clear_gate.pending:
        return f"it may still drain {state.clear_gate.target}"
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
