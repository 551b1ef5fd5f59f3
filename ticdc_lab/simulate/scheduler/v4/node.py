"""A node under a coordinator: its dispatchers, and the maintainer while it is placed here (server, api/maintainer).

The node obeys the coordinator with the highest epoch it has heard of. A maintainer is added with an epoch that rises
always, and what an older coordinator asked for is void.
"""

from __future__ import annotations

from dataclasses import dataclass

from immutables import Map

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
from ticdc_lab.simulate.scheduler import executor as pipelines
from ticdc_lab.simulate.scheduler.executor import PREPARING, REPLICATING, Executor, limited
from ticdc_lab.simulate.scheduler.roles import Key, Poll, Restart, Tick, Watermarks
from ticdc_lab.simulate.scheduler.v4 import barrier, spans
from ticdc_lab.simulate.scheduler.v4.barrier import Block
from ticdc_lab.simulate.scheduler.v4.coordinator import PLACES
from ticdc_lab.simulate.scheduler.v4.drain import ALIVE, STOPPING, Own, applied
from ticdc_lab.simulate.scheduler.v4.maintainer import Maintainer, MaintainerState
from ticdc_lab.simulate.scheduler.v4.messages import (
    AddMaintainerRequest,
    BlockStatusRequest,
    CoordinatorBootstrapRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    MaintainerBootstrapRequest,
    MaintainerBootstrapResponse,
    MaintainerCommand,
    MaintainerStatus,
    MergeDispatcherRequest,
    NodeHeartbeat,
    RemoveMaintainerRequest,
    ScheduleDispatcherRequest,
    SetDispatcherDrainTarget,
    SetNodeLivenessRequest,
    TableSpanStatus,
)
from ticdc_lab.simulate.scheduler.v4.schedulers import targeted
from ticdc_lab.simulate.scheduler.v4.settings import DEFAULTS, V4Settings
from ticdc_lab.simulate.scheduler.v4.spans import position

# The dispatcher manager of a node: the processor's side of the newer architecture (downstreamadapter).
#
# It takes orders from the maintainer with the highest epoch it has heard of, given to its present life and in the
# order in which they were sent; anything else changes nothing. Each poll sends one heartbeat.


@dataclass(frozen=True, slots=True)
class DispatchersState:
    """A dispatcher manager."""

    address: Address
    executor: Executor
    node_epoch: int = 1  # the life of the manager; another one after each restart
    # Who gives it orders.
    maintainer: Address | None = None
    maintainer_epoch: int = 0
    taken: int = 0  # number of the last order taken in this life from this maintainer
    seq: int = 0  # number of the last message to the maintainer
    told: Map[Key, None] = Map()  # dispatchers whose status goes into the next heartbeat
    ended: Map[Key, int] = Map()  # those that have ended since the last heartbeat, with their last checkpoint
    merging: Map[Key, Map[Key, int]] = Map()  # the spans that each new span waits for

    def with_executor(self, executor: Executor) -> DispatchersState:
        return replace(self, executor=executor)


Dispatched = tuple[DispatchersState, list[Output]]


def _reported(state: DispatchersState, at_us: int) -> Dispatched:
    """Give the heartbeat of a poll; without a maintainer there is none."""
    maintainer = state.maintainer
    if maintainer is None:
        return state, []
    known = state.executor.pipelines
    running = [_of(state.executor, key, at_us) for key in sorted(state.told, key=position) if key in known]
    ended = [TableSpanStatus(key, "Stopped", state.ended[key]) for key in sorted(state.ended, key=position)]
    checkpoint_ts, resolved_ts, slowest = pipelines.slowest(state.executor, at_us)
    state = replace(state, seq=state.seq + 1, told=Map(), ended=Map())
    statuses = tuple(ended + running)
    epochs = (state.maintainer_epoch, state.node_epoch, state.seq)
    return state, [Send(maintainer, HeartBeatRequest(*epochs, checkpoint_ts, resolved_ts, statuses, slowest))]


def _of(executor: Executor, key: Key, at_us: int) -> TableSpanStatus:
    preparing = pipelines.state_of(executor, key) == PREPARING
    return _shown(key, preparing, pipelines.checkpoint_of(executor, key, at_us))


def _shown(key: Key, preparing: bool, checkpoint_ts: int) -> TableSpanStatus:
    return TableSpanStatus(key, "Initializing" if preparing else "Working", checkpoint_ts)


class Dispatchers:
    """A machine."""

    def __init__(self, settings: V4Settings = DEFAULTS) -> None:
        self.settings = settings

    def start(self, address: Address, now: Now) -> Dispatched:
        return DispatchersState(address, Executor(self.settings.pace, 0)), []

    def step(self, state: DispatchersState, event: Event, now: Now) -> Dispatched:
        if isinstance(event, Received):
            return _ordered(state, event.sender, event.message, now.at_us)
        if isinstance(event, Asked) and isinstance(event.command, Poll):
            # What has stopped had written up to the old limit; the new one is for those that continue.
            pending, outputs = sorted(state.executor.pending, key=position), list[Output]()
            for key in pending:
                if pipelines.state_of(state.executor, key) == pipelines.STOPPING and pipelines.has_stopped(
                    state.executor, key, now.at_us
                ):
                    state, more = _stopped(state, key, now.at_us)
                    outputs += more
            executor = limited(state.executor, event.command.limit_ts)
            executor, changes = pipelines.settled(executor, now.at_us)
            begun = [key for key in pending if pipelines.state_of(executor, key) == REPLICATING]
            state, more = _reported(
                replace(state, executor=executor, told=state.told.update(dict.fromkeys(begun))), now.at_us
            )
            return state, [*outputs, *changes, *more]
        if isinstance(event, Asked) and isinstance(event.command, Restart):
            executor, changes = pipelines.emptied(state.executor, "the processor restarted")
            obeys = state.maintainer, state.maintainer_epoch
            return DispatchersState(state.address, executor, state.node_epoch + 1, *obeys), [*changes]
        return state, [Ignored(event, "a dispatcher manager knows nothing of it")]


def _ordered(state: DispatchersState, sender: Address, message: object, at_us: int) -> Dispatched:
    if isinstance(message, MaintainerBootstrapRequest):
        return _bootstrapped(state, sender, message)
    if not isinstance(message, ScheduleDispatcherRequest | MergeDispatcherRequest):
        return state, [Ignored(message, "it is not for a dispatcher manager")]
    because = _stale(state, message)
    if because:
        return state, [Ignored(message, because)]
    state = replace(state, taken=message.stamp.seq)
    if isinstance(message, MergeDispatcherRequest):
        return _merging(state, message, at_us)
    if message.schedule_action == "Create":
        return _created(state, message, at_us)
    key = message.dispatcher_id
    if key in state.merging:
        state = replace(state, merging=state.merging.delete(key))
    if key not in state.executor.pipelines:
        return replace(state, ended=state.ended.set(key, state.ended.get(key, 0))), []
    return _stopping(state, key, at_us, f"{state.maintainer} removes it ({message.operator_type})")


def _stale(state: DispatchersState, message: ScheduleDispatcherRequest | MergeDispatcherRequest) -> str:
    stamp = message.stamp
    if stamp.maintainer_epoch != state.maintainer_epoch:
        return f"it is of the maintainer of epoch {stamp.maintainer_epoch}, not {state.maintainer_epoch}"
    if stamp.node_epoch != state.node_epoch:
        return f"it is for life {stamp.node_epoch} of the node, this is {state.node_epoch}"
    return "" if stamp.seq > state.taken else "a later order was taken"


def _bootstrapped(state: DispatchersState, sender: Address, message: MaintainerBootstrapRequest) -> Dispatched:
    if message.maintainer_epoch < state.maintainer_epoch:
        return state, [Ignored(message, f"the maintainer has epoch {state.maintainer_epoch}")]
    if message.maintainer_epoch > state.maintainer_epoch:
        state = replace(state, maintainer=sender, maintainer_epoch=message.maintainer_epoch, taken=0)
        state = replace(state, told=Map(), ended=Map(), merging=Map())
    keys = sorted(state.executor.pipelines, key=position)
    found = [(key, state.executor.pipelines[key]) for key in keys]
    unfinished = tuple(
        ScheduleDispatcherRequest("Create", key, pipeline.start_ts, "Add")
        if pipeline.state == PREPARING
        else ScheduleDispatcherRequest("Remove", key, 0, "Remove")
        for key, pipeline in found
        if pipeline.state in (PREPARING, pipelines.STOPPING)
    )
    running = tuple(_shown(key, pipeline.state == PREPARING, pipeline.start_ts) for key, pipeline in found)
    state = replace(state, seq=state.seq + 1)
    answer = MaintainerBootstrapResponse(state.maintainer_epoch, state.node_epoch, state.seq, running, unfinished)
    return state, [Send(sender, answer)]


def _created(state: DispatchersState, message: ScheduleDispatcherRequest, at_us: int) -> Dispatched:
    key = message.dispatcher_id
    if key in state.executor.pipelines:
        return replace(state, told=state.told.set(key, None)), []
    because = f"{state.maintainer} creates it ({message.operator_type})"
    executor, changes = pipelines.added(state.executor, key, message.start_ts, at_us, because)
    return replace(state, executor=executor), [*changes]


def _stopping(state: DispatchersState, key: Key, at_us: int, because: str) -> Dispatched:
    checkpoint_ts = pipelines.checkpoint_of(state.executor, key, at_us)
    executor, changes = pipelines.stopping(state.executor, key, at_us, because)
    state = replace(state, executor=executor)
    if key not in executor.pipelines:
        state = replace(state, ended=state.ended.set(key, checkpoint_ts))
    return state, [*changes]


def _merging(state: DispatchersState, message: MergeDispatcherRequest, at_us: int) -> Dispatched:
    merged, old = message.merged_dispatcher_id, message.dispatcher_ids
    if merged in state.executor.pipelines:
        return replace(state, told=state.told.set(merged, None)), []
    if merged in state.merging:
        return state, []
    if any(pipelines.state_of(state.executor, key) != REPLICATING for key in old):
        return state, [Ignored(message, "not all of the spans replicate here")]
    waiting: Map[Key, int] = Map(dict.fromkeys(old, 0))
    state, outputs = replace(state, merging=state.merging.set(merged, waiting)), list[Output]()
    for key in old:
        state, more = _stopping(state, key, at_us, f"it is merged into {merged}")
        outputs += more
    return state, outputs


def _stopped(state: DispatchersState, key: Key, at_us: int) -> Dispatched:
    checkpoint_ts = pipelines.checkpoint_of(state.executor, key, at_us)
    executor, changes = pipelines.gone(state.executor, key, "it has stopped")
    state = replace(state, executor=executor)
    for merged in sorted(state.merging, key=position):
        if key in state.merging[merged]:
            waiting, outputs = state.merging[merged].set(key, checkpoint_ts), list[Output](changes)
            if not all(waiting.values()):
                return replace(state, merging=state.merging.set(merged, waiting)), outputs
            because = f"{len(waiting)} spans have become one"
            executor, more = pipelines.added(executor, merged, min(waiting.values()), at_us, because)
            return replace(state, executor=executor, merging=state.merging.delete(merged)), [*outputs, *more]
    return replace(state, ended=state.ended.set(key, checkpoint_ts)), [*changes]


# The node

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
            epoch, here = message.maintainer_epoch, state.maintainer
            if here is not None and epoch not in (0, here.owner_rev):
                return state, [Ignored(message, f"the maintainer of epoch {here.owner_rev} is here")]
            state, found = _removed(replace(state, ended=max(state.ended, epoch)), "the coordinator removes it")
            return state, [*found, *_heartbeat(state)]
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
