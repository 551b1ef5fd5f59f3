"""What a dispatcher manager tells its maintainer: everything after a bootstrap request, changes with each heartbeat."""

from __future__ import annotations

from dataclasses import dataclass, replace

from immutables import Map

from ticdc_lab.simulate.machine import Address, Output, Send
from ticdc_lab.simulate.scheduler import executor as pipelines
from ticdc_lab.simulate.scheduler.executor import PREPARING, STOPPING, Executor
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4.keys import position
from ticdc_lab.simulate.scheduler.v4.messages import (
    HeartBeatRequest,
    MaintainerBootstrapResponse,
    ScheduleDispatcherRequest,
    TableSpanStatus,
)


@dataclass(frozen=True, slots=True)
class DispatchersState:
    """A dispatcher manager.

    Attributes
    ----------
    node_epoch
        The life of the manager; another one after each restart.
    maintainer, maintainer_epoch
        Who gives it orders.
    taken
        Number of the last order taken in this life from this maintainer.
    seq
        Number of the last message to the maintainer.
    told
        Dispatchers whose status goes into the next heartbeat.
    ended
        Those that have ended since the last heartbeat, with their last checkpoint.
    merging
        The spans that each new span waits for.
    """

    address: Address
    executor: Executor
    node_epoch: int = 1
    maintainer: Address | None = None
    maintainer_epoch: int = 0
    taken: int = 0
    seq: int = 0
    told: Map[Key, None] = Map()
    ended: Map[Key, int] = Map()
    merging: Map[Key, Map[Key, int]] = Map()


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
    """Give the heartbeat of a poll; without a maintainer there is nobody to tell."""
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
