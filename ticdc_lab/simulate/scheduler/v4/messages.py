"""Messages between the maintainer and the dispatcher managers of the newer TiCDC, by the real names.

The real transport is an ordered stream, the simulated network loses, delays and doubles. So every message to a node
carries a :class:`Stamp` and every message from a node its ``node_epoch`` and ``seq``: the receiver takes nothing older
than what it took last, as a stream would have given it; what falls out is sent again by the operators.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

from ticdc_lab.machines.machine import CAPTURE, OTHER, Address, Reason
from ticdc_lab.simulate.scheduler.roles import NO_REASON, Key

ComponentState: TypeAlias = Literal["Working", "Stopped", "Removed", "Initializing", "WaitingMerge"]
ScheduleAction: TypeAlias = Literal["Create", "Remove"]
OperatorType: TypeAlias = Literal["Add", "Move", "Split", "Remove"]

DDL_DISPATCHER: Key = 0
"""The table trigger event dispatcher; it lives where the maintainer does and is never scheduled."""


class Stamp(NamedTuple):
    """Which maintainer sent it, to which life of the node's dispatcher manager, as its how manieth message."""

    maintainer_epoch: int
    node_epoch: int
    seq: int


UNSTAMPED = Stamp(0, 0, 0)


class ScheduleDispatcherRequest(NamedTuple):
    """Create a dispatcher that starts after ``start_ts``, or remove one."""

    schedule_action: ScheduleAction
    dispatcher_id: Key
    start_ts: int
    operator_type: OperatorType
    stamp: Stamp = UNSTAMPED


class MergeDispatcherRequest(NamedTuple):
    """Replace neighbouring dispatchers of one node by one of the whole range."""

    dispatcher_ids: tuple[Key, ...]
    merged_dispatcher_id: Key
    stamp: Stamp = UNSTAMPED


class MaintainerBootstrapRequest(NamedTuple):
    """A maintainer has begun and asks for everything that a node runs."""

    maintainer_epoch: int


class TableSpanStatus(NamedTuple):
    """How a dispatcher is."""

    id: Key
    component_status: ComponentState
    checkpoint_ts: int


class HeartBeatRequest(NamedTuple):
    """A node's watermark and whose it is, and the dispatchers whose state changed or was asked for."""

    maintainer_epoch: int
    node_epoch: int
    seq: int
    checkpoint_ts: int
    resolved_ts: int
    statuses: tuple[TableSpanStatus, ...]
    slowest: Key | None = None


class State(NamedTuple):
    """A DDL as a dispatcher sees it; each concerns all tables here."""

    block_ts: int
    stage: Literal["WAITING", "DONE"] = "WAITING"


class TableSpanBlockStatus(NamedTuple):
    """A dispatcher is at a block event, or has written or passed it."""

    id: Key
    state: State


class MaintainerBootstrapResponse(NamedTuple):
    """All dispatchers of a node, the requests that it has not finished, the block events at which it stands."""

    maintainer_epoch: int
    node_epoch: int
    seq: int
    spans: tuple[TableSpanStatus, ...]
    operators: tuple[ScheduleDispatcherRequest, ...]
    block_states: tuple[TableSpanBlockStatus, ...] = ()


class BlockStatusRequest(NamedTuple):
    """Block events of the dispatchers of one node."""

    block_statuses: tuple[TableSpanBlockStatus, ...]


class ACK(NamedTuple):
    """The maintainer knows of the event; the dispatcher need not report it again."""

    commit_ts: int


class DispatcherAction(NamedTuple):
    """Write the event downstream, or pass it (another has written it)."""

    action: Literal["Write", "Pass"]
    commit_ts: int


class InfluencedDispatchers(NamedTuple):
    """Whom an ack or action is for: some, or every dispatcher of the node but ``exclude_dispatcher_id``."""

    influence_type: Literal["Normal", "All"]
    dispatcher_ids: tuple[Key, ...] = ()
    exclude_dispatcher_id: Key | None = None


class DispatcherStatus(NamedTuple):
    """An ack or an action for some dispatchers of a node."""

    influenced_dispatchers: InfluencedDispatchers
    ack: ACK | None = None
    action: DispatcherAction | None = None


class HeartBeatResponse(NamedTuple):
    """The barrier's orders to the dispatchers of a node."""

    dispatcher_statuses: tuple[DispatcherStatus, ...]


# Between the coordinator, elected by etcd, and the nodes, one with the maintainer


class CoordinatorBootstrapRequest(NamedTuple):
    """A coordinator has begun, and asks a node for its heartbeats."""

    coordinator_epoch: int


class AddMaintainerRequest(NamedTuple):
    """Coordinator to node: run the maintainer of a changefeed."""

    changefeed: str
    maintainer_epoch: int


class RemoveMaintainerRequest(NamedTuple):
    """Coordinator to node: stop the maintainer of a changefeed."""

    changefeed: str
    maintainer_epoch: int


def not_answered(who: str, late: list[Address], since_us: int | None) -> Reason:
    """Name the nodes for which a coordinator or a maintainer waits that has just begun."""
    names = ", ".join(late) or "any node"
    words = f"the {who} has begun and waits for the answer of {names}"
    return Reason(CAPTURE if late else OTHER, late[0] if late else "", words, since_us)


class MaintainerStatus(NamedTuple):
    """Node to coordinator, with its heartbeat: the maintainer that it has, or had last, and the watermarks of that.

    ``bootstrap_done``: it has heard of all nodes and may schedule. ``draining`` counts what is left on the drain target
    of that epoch, None where the maintainer does not know it.
    """

    state: str
    bootstrap_done: bool = False
    maintainer_epoch: int = 0
    checkpoint_ts: int | None = None
    resolved_ts: int | None = None
    because: Reason = NO_REASON
    draining: int | None = None


class SetNodeLivenessRequest(NamedTuple):
    """Coordinator to node: go over to ``target``, if this is the life meant."""

    target: str
    node_epoch: int


class SetNodeLivenessResponse(NamedTuple):
    """Node to coordinator: what it is now."""

    applied: str
    node_epoch: int


class SetDispatcherDrainTarget(NamedTuple):
    """Coordinator to nodes: dispatchers leave this node; an empty one ends that."""

    target_node_id: Address
    target_epoch: int


class NodeHeartbeat(NamedTuple):
    """Node to coordinator, periodically; with the drain target that it knows, and its maintainer."""

    liveness: str
    node_epoch: int
    dispatcher_drain_target_node_id: Address = ""
    dispatcher_drain_target_epoch: int = 0
    coordinator_epoch: int = 0
    maintainer: MaintainerStatus | None = None


class MaintainerCommand(NamedTuple):
    """Coordinator to the maintainer's node: what a user wants of the maintainer of this epoch."""

    maintainer_epoch: int
    command: Any
