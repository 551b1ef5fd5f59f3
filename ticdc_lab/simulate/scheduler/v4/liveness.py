"""The liveness of nodes: what coordinator and nodes say of it, and what the coordinator has seen."""

from __future__ import annotations

from typing import NamedTuple

from ticdc_lab.simulate.machine import Address

ALIVE, DRAINING, STOPPING, UNKNOWN = "ALIVE", "DRAINING", "STOPPING", "UNKNOWN"
ORDER = (ALIVE, DRAINING, STOPPING)
"""In one life a node only goes on in this order."""


class SetNodeLivenessRequest(NamedTuple):
    """Coordinator to node: go over to ``target``, if this is the life meant."""

    target: str
    node_epoch: int


class SetNodeLivenessResponse(NamedTuple):
    """Node to coordinator: what it is now."""

    applied: str
    node_epoch: int


class NodeHeartbeat(NamedTuple):
    """Node to coordinator, periodically; with the drain target that it knows."""

    liveness: str
    node_epoch: int
    dispatcher_drain_target_node_id: Address = ""
    dispatcher_drain_target_epoch: int = 0


class NodeState(NamedTuple):
    """What the coordinator saw of a node; ``*_sent_us`` None where nothing was sent to this life of it."""

    drain_requested: bool = False
    draining_observed: bool = False
    stopping_observed: bool = False
    drain_sent_us: int | None = None
    stop_sent_us: int | None = None
    last_seen_us: int | None = None
    node_epoch: int = 0
    liveness: str = ALIVE
