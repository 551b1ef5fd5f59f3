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
