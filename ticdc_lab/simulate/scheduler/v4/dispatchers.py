"""What a dispatcher manager reports to its maintainer: all after a bootstrap request, changes with heartbeats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from immutables import Map

from ticdc_lab.machines.machine import Address, Asked, Event, Ignored, Now, Output, Received, Send, replace
from ticdc_lab.simulate.scheduler import executor as pipelines
from ticdc_lab.simulate.scheduler.executor import PREPARING, REPLICATING, STOPPING, Executor, limited
from ticdc_lab.simulate.scheduler.roles import Key, Poll, Restart
from ticdc_lab.simulate.scheduler.v4.messages import (
    HeartBeatRequest,
    MaintainerBootstrapRequest,
    MaintainerBootstrapResponse,
    MergeDispatcherRequest,
    ScheduleDispatcherRequest,
    TableSpanStatus,
)
from ticdc_lab.simulate.scheduler.v4.settings import DEFAULTS, V4Settings
from ticdc_lab.simulate.scheduler.v4.spans import position


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


Stepped = tuple[DispatchersState, list[Output]]


def answered(state: DispatchersState, sender: Address) -> Stepped:
    """Answer a bootstrap request: all dispatchers, and what is not finished."""
    keys = sorted(state.executor.pipelines, key=position)
    found = [(key, state.executor.pipelines[key]) for key in keys]
    unfinished = tuple(
        ScheduleDispatcherRequest("Create", key, pipeline.start_ts, "Add")
        if pipeline.state == PREPARING
        else ScheduleDispatcherRequest("Remove", key, 0, "Remove")
        for key, pipeline in found
        if pipeline.state in (PREPARING, STOPPING)
    )
    running = tuple(_status(key, pipeline.state == PREPARING, pipeline.start_ts) for key, pipeline in found)
    state = replace(state, seq=state.seq + 1)
    answer = MaintainerBootstrapResponse(state.maintainer_epoch, state.node_epoch, state.seq, running, unfinished)
    return state, [Send(sender, answer)]


def heartbeat(state: DispatchersState, at_us: int) -> Stepped:
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
    return _status(key, preparing, pipelines.checkpoint_of(executor, key, at_us))


def _status(key: Key, preparing: bool, checkpoint_ts: int) -> TableSpanStatus:
    return TableSpanStatus(key, "Initializing" if preparing else "Working", checkpoint_ts)


# The dispatcher manager of a node: the processor's side of the newer architecture (downstreamadapter).
#
# It takes orders from the maintainer with the highest epoch it has heard of, given to its present life and in the
# order in which they were sent; anything else changes nothing. Each poll sends one heartbeat.


class Dispatchers:
    """A machine."""

    def __init__(self, settings: V4Settings = DEFAULTS) -> None:
        self.settings = settings

    def start(self, address: Address, now: Now) -> Stepped:
        return DispatchersState(address, Executor(self.settings.pace, 0)), []

    def step(self, state: DispatchersState, event: Event, now: Now) -> Stepped:
        if isinstance(event, Received):
            return _received(state, event.sender, event.message, now.at_us)
        if isinstance(event, Asked) and isinstance(event.command, Poll):
            # What has stopped had written up to the old limit; the new one is for those that continue.
            pending, outputs = sorted(state.executor.pending, key=position), list[Output]()
            for key in pending:
                if pipelines.state_of(state.executor, key) == STOPPING and pipelines.has_stopped(
                    state.executor, key, now.at_us
                ):
                    state, more = _stopped(state, key, now.at_us)
                    outputs += more
            executor = limited(state.executor, event.command.limit_ts)
            executor, changes = pipelines.settled(executor, now.at_us)
            begun = [key for key in pending if pipelines.state_of(executor, key) == REPLICATING]
            state, more = heartbeat(replace(state, executor=executor, told=_with(state.told, begun)), now.at_us)
            return state, [*outputs, *changes, *more]
        if isinstance(event, Asked) and isinstance(event.command, Restart):
            return _restarted(state)
        return state, [Ignored(event, "a dispatcher manager knows nothing of it")]


def _received(state: DispatchersState, sender: Address, message: object, at_us: int) -> Stepped:
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


def _bootstrapped(state: DispatchersState, sender: Address, message: MaintainerBootstrapRequest) -> Stepped:
    if message.maintainer_epoch < state.maintainer_epoch:
        return state, [Ignored(message, f"the maintainer has epoch {state.maintainer_epoch}")]
    if message.maintainer_epoch > state.maintainer_epoch:
        state = replace(state, maintainer=sender, maintainer_epoch=message.maintainer_epoch, taken=0)
        state = replace(state, told=Map(), ended=Map(), merging=Map())
    return answered(state, sender)


def _created(state: DispatchersState, message: ScheduleDispatcherRequest, at_us: int) -> Stepped:
    key = message.dispatcher_id
    if key in state.executor.pipelines:
        return replace(state, told=state.told.set(key, None)), []
    because = f"{state.maintainer} creates it ({message.operator_type})"
    executor, changes = pipelines.added(state.executor, key, message.start_ts, at_us, because)
    return replace(state, executor=executor), [*changes]


def _stopping(state: DispatchersState, key: Key, at_us: int, because: str) -> Stepped:
    checkpoint_ts = pipelines.checkpoint_of(state.executor, key, at_us)
    executor, changes = pipelines.stopping(state.executor, key, at_us, because)
    state = replace(state, executor=executor)
    if key not in executor.pipelines:
        state = replace(state, ended=state.ended.set(key, checkpoint_ts))
    return state, [*changes]


def _merging(state: DispatchersState, message: MergeDispatcherRequest, at_us: int) -> Stepped:
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


def _stopped(state: DispatchersState, key: Key, at_us: int) -> Stepped:
    checkpoint_ts = pipelines.checkpoint_of(state.executor, key, at_us)
    executor, changes = pipelines.gone(state.executor, key, "it has stopped")
    state = replace(state, executor=executor)
    for merged in sorted(state.merging, key=position):
        if key in state.merging[merged]:
            return _merged(state, merged, state.merging[merged].set(key, checkpoint_ts), at_us, [*changes])
    return replace(state, ended=state.ended.set(key, checkpoint_ts)), [*changes]


def _merged(state: DispatchersState, merged: Key, waiting: Map[Key, int], at_us: int, outputs: list[Output]) -> Stepped:
    if not all(waiting.values()):
        return replace(state, merging=state.merging.set(merged, waiting)), outputs
    start_ts = min(waiting.values())
    because = f"{len(waiting)} spans have become one"
    executor, changes = pipelines.added(state.executor, merged, start_ts, at_us, because)
    return replace(state, executor=executor, merging=state.merging.delete(merged)), [*outputs, *changes]


def _restarted(state: DispatchersState) -> Stepped:
    executor, changes = pipelines.emptied(state.executor, "the processor restarted")
    fresh = DispatchersState(state.address, executor, state.node_epoch + 1, state.maintainer, state.maintainer_epoch)
    return fresh, [*changes]


def _with(told: Map[Key, None], keys: Iterable[Key]) -> Map[Key, None]:
    for key in keys:
        told = told.set(key, None)
    return told
