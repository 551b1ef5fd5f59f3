"""A node under a coordinator: its dispatchers, and the maintainer while it is placed here (server, api/maintainer).

The node obeys the coordinator with the highest epoch it has heard of. A maintainer is added with an epoch that rises
always, and what an older coordinator asked for is void.
"""

from __future__ import annotations

from dataclasses import dataclass

from ticdc_lab.machines.machine import (
    OTHER,
    Address,
    Asked,
    Changed,
    Event,
    Ignored,
    Now,
    Output,
    Reason,
    Received,
    Send,
    replace,
)
from ticdc_lab.simulate.scheduler.executor import Executor
from ticdc_lab.simulate.scheduler.roles import Key, Poll, Restart, Tick, Watermarks
from ticdc_lab.simulate.scheduler.v4 import barrier, spans
from ticdc_lab.simulate.scheduler.v4.barrier import Block
from ticdc_lab.simulate.scheduler.v4.coordinator import PLACES
from ticdc_lab.simulate.scheduler.v4.dispatchers import Dispatchers, DispatchersState
from ticdc_lab.simulate.scheduler.v4.drain import ALIVE, STOPPING, Own, applied
from ticdc_lab.simulate.scheduler.v4.maintainer import Maintainer, MaintainerState
from ticdc_lab.simulate.scheduler.v4.messages import (
    AddMaintainerRequest,
    BlockStatusRequest,
    CoordinatorBootstrapRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    MaintainerBootstrapResponse,
    MaintainerCommand,
    MaintainerStatus,
    NodeHeartbeat,
    RemoveMaintainerRequest,
    SetDispatcherDrainTarget,
    SetNodeLivenessRequest,
)
from ticdc_lab.simulate.scheduler.v4.schedulers import targeted

NO_MARKS = Watermarks(None, None)
BEGUN = Watermarks(None, None, Reason(OTHER, "", "the maintainer has begun"))
NO_BLOCK = Block()
_TO_MAINTAINER = (MaintainerBootstrapResponse, HeartBeatRequest, BlockStatusRequest)


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node."""

    address: Address
    # The states of its machines; None without a maintainer.
    dispatchers: DispatchersState
    maintainer: MaintainerState | None = None
    marks: Watermarks = NO_MARKS  # the watermarks that the maintainer gave last
    ended: int = 0  # the epoch of the maintainer that was here last
    # Whom it obeys.
    coordinator: Address | None = None
    coordinator_epoch: int = 0
    liveness: str = ALIVE  # ALIVE, DRAINING or STOPPING
    # Whom dispatchers leave.
    target: Address = ""
    target_epoch: int = 0
    block: Block = NO_BLOCK  # the DDL at which dispatchers stand

    @property
    def executor(self) -> Executor:
        return self.dispatchers.executor

    def with_executor(self, executor: Executor) -> NodeState:
        return replace(self, dispatchers=self.dispatchers.with_executor(executor))


Stepped = tuple[NodeState, list[Output]]


class NodeManager:
    """A machine. ``maintainer``, ``dispatchers``: a cluster's without a coordinator."""

    def __init__(self, maintainer: Maintainer, dispatchers: Dispatchers) -> None:
        self._maintainer, self._dispatchers = maintainer, dispatchers

    def start(self, address: Address, now: Now) -> Stepped:
        dispatchers, outputs = self._dispatchers.start(address, now)
        return NodeState(address, dispatchers), outputs

    def step(self, state: NodeState, event: Event, now: Now) -> Stepped:
        if isinstance(event, Received):
            return self._received(state, event, now)
        if isinstance(event, Asked) and isinstance(event.command, Tick):
            tick = event.command
            home_ts = tick.checkpoint_ts if _is_home(state) else None
            block = barrier.told(state.block, tick.barrier_ts, tick.executed_ts, state.executor, home_ts)
            block, outputs = barrier.written(block, state.dispatchers.maintainer)
            state, more = self._told(replace(state, block=block), event, now)
            return state, [*outputs, *more]
        if isinstance(event, Asked) and isinstance(event.command, Poll):
            block = barrier.told(state.block, event.command.barrier_ts, 0, state.executor)  # before a tick does
            event = Asked(Poll(block.limit_ts(event.command.limit_ts)))
        state, outputs = self._dispatched(state, event, now)
        if isinstance(event, Asked) and isinstance(event.command, Restart):
            gone = _removed(state, "the processor restarted")
            return replace(gone[0], ended=0, liveness=ALIVE, target="", target_epoch=0), [*outputs, *gone[1]]
        if isinstance(event, Asked) and isinstance(event.command, Poll):
            keys = _standing(state, now.at_us)
            block, more = barrier.reports(state.block, state.dispatchers.maintainer, keys, now.at_us)
            state = replace(state, block=block)
            outputs += [*more, *_heartbeat(state)]
        return state, outputs

    def _dispatched(self, state: NodeState, event: Event, now: Now) -> Stepped:
        dispatchers, outputs = self._dispatchers.step(state.dispatchers, event, now)
        return replace(state, dispatchers=dispatchers), [*outputs]

    def _told(self, state: NodeState, event: Event, now: Now) -> Stepped:
        """Let the maintainer take a step; its watermarks go to the coordinator with the next heartbeat."""
        if state.maintainer is None:
            return state, []
        maintainer, found = self._maintainer.step(state.maintainer, event, now)
        outputs: list[Output] = []
        for output in found:
            if isinstance(output, Watermarks):
                state = replace(state, marks=output)
            else:
                outputs.append(output)
        return replace(state, maintainer=maintainer), outputs

    def _received(self, state: NodeState, event: Received, now: Now) -> Stepped:
        message = event.message
        if isinstance(message, _TO_MAINTAINER):
            if state.maintainer is None:
                return state, [Ignored(message, "the maintainer is not here")]
            return self._told(state, event, now)
        if isinstance(message, CoordinatorBootstrapRequest):
            if message.coordinator_epoch < state.coordinator_epoch:
                return state, [Ignored(message, f"the coordinator has epoch {state.coordinator_epoch}")]
            state = replace(state, coordinator=event.sender, coordinator_epoch=message.coordinator_epoch)
            return state, _heartbeat(state)
        if isinstance(message, AddMaintainerRequest):
            return self._added(state, message, now)
        if isinstance(message, RemoveMaintainerRequest):
            return _told_to_end(state, message)
        if isinstance(message, SetNodeLivenessRequest):
            own, answer = applied(Own(state.liveness, state.dispatchers.node_epoch), message)
            told = Changed("liveness", state.liveness, own.liveness, f"{event.sender} drains it")
            changes = [told] if own.liveness != state.liveness else []
            return replace(state, liveness=own.liveness), [*changes, Send(event.sender, answer)]
        if isinstance(message, SetDispatcherDrainTarget):
            if message.target_epoch < state.target_epoch:
                return state, [Ignored(message, f"the target of epoch {state.target_epoch} is known")]
            state = replace(state, target=message.target_node_id, target_epoch=message.target_epoch)
            return _targeted(state), _heartbeat(_targeted(state))
        if isinstance(message, MaintainerCommand):
            if state.maintainer is None or state.maintainer.owner_rev != message.maintainer_epoch:
                return state, [Ignored(message, "the maintainer of this epoch is not here")]
            return self._told(state, Asked(message.command), now)
        if isinstance(message, HeartBeatResponse):
            keys = barrier.replicating(state.executor, _is_home(state))
            block, found = barrier.answered(state.block, event.sender, message, keys, now.at_us)
            return replace(state, block=block), found
        before = state.dispatchers.maintainer_epoch
        state, outputs = self._dispatched(state, event, now)
        if state.dispatchers.maintainer_epoch != before:
            state = replace(state, block=barrier.forgotten(state.block))
        return state, [_with_blocks(state, output, now.at_us) for output in outputs]

    def _added(self, state: NodeState, message: AddMaintainerRequest, now: Now) -> Stepped:
        epoch = message.maintainer_epoch
        known = state.maintainer.owner_rev if state.maintainer is not None else state.ended
        if epoch == known and state.maintainer is not None:
            return state, _heartbeat(state)
        if epoch <= known or epoch >> PLACES < state.coordinator_epoch or state.liveness == STOPPING:
            because = f"maintainer {known} is known, coordinator {state.coordinator_epoch}, and it is {state.liveness}"
            return state, [Ignored(message, because)]
        maintainer, outputs = self._maintainer.elected(state.address, epoch, now)
        state = replace(state, maintainer=maintainer, marks=BEGUN)
        return _targeted(state), [*outputs, *_heartbeat(state)]


def _is_home(state: NodeState) -> bool:
    """Whether the maintainer that dispatchers obey is here, and so the DDL dispatcher."""
    return state.maintainer is not None and state.maintainer.owner_rev == state.dispatchers.maintainer_epoch


def _standing(state: NodeState, at_us: int) -> list[Key]:
    return barrier.standing(state.block, state.executor, _is_home(state), at_us)


def _with_blocks(state: NodeState, output: Output, at_us: int) -> Output:
    """Name in an answer to a new maintainer who is at a DDL."""
    if not isinstance(output, Send) or not isinstance(output.message, MaintainerBootstrapResponse):
        return output
    stands = barrier.states_of(state.block, _standing(state, at_us))
    return output._replace(message=output.message._replace(block_states=stands))


def _told_to_end(state: NodeState, message: RemoveMaintainerRequest) -> Stepped:
    epoch = message.maintainer_epoch
    if state.maintainer is not None and epoch not in (0, state.maintainer.owner_rev):
        return state, [Ignored(message, f"the maintainer of epoch {state.maintainer.owner_rev} is here")]
    state, outputs = _removed(replace(state, ended=max(state.ended, epoch)), "the coordinator removes it")
    return state, [*outputs, *_heartbeat(state)]


def _removed(state: NodeState, because: str) -> Stepped:
    if state.maintainer is None:
        return state, []
    told = Changed("maintainer", state.address, None, because)
    ended = max(state.ended, state.maintainer.owner_rev)
    return replace(state, maintainer=None, marks=NO_MARKS, ended=ended), [told]


def _targeted(state: NodeState) -> NodeState:
    """Let the maintainer know whom dispatchers leave."""
    one = state.maintainer
    if one is None or not state.target_epoch:
        return state
    wanted = targeted(one.drain, state.target or None, state.target_epoch)
    return replace(state, maintainer=replace(one, drain=wanted))


def _heartbeat(state: NodeState) -> list[Output]:
    """Report to the coordinator how the node is, and what its maintainer knows."""
    if state.coordinator is None:
        return []
    epoch = state.dispatchers.node_epoch
    target = (state.target, state.target_epoch)
    known = NodeHeartbeat(state.liveness, epoch, *target, state.coordinator_epoch, _status(state))
    return [Send(state.coordinator, known)]


def _status(state: NodeState) -> MaintainerStatus | None:
    one, marks = state.maintainer, state.marks
    if one is None:
        return MaintainerStatus("Stopped", maintainer_epoch=state.ended) if state.ended else None
    left = None
    if one.bootstrapped and state.target and one.drain.target == state.target:
        control = one.control
        at_work = (found.operator for found in control.running.values())
        left = spans.size(control.spans, state.target) + sum(state.target in one.nodes for one in at_work)
    return MaintainerStatus(
        "Working", one.bootstrapped, one.owner_rev, marks.checkpoint_ts, marks.resolved_ts, marks.because,
        left,
    )  # fmt: skip
