"""The processor's side of the two-phase scheduler."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.machine import (
    Address,
    Asked,
    Broken,
    Changed,
    Event,
    Ignored,
    Now,
    Output,
    Received,
    Send,
)
from ticdc_lab.simulate.scheduler import executor as ex
from ticdc_lab.simulate.scheduler.clock import ts_of
from ticdc_lab.simulate.scheduler.executor import Executor, limited
from ticdc_lab.simulate.scheduler.roles import Poll, Restart, order
from ticdc_lab.simulate.scheduler.v3 import agent_table as at
from ticdc_lab.simulate.scheduler.v3.agent_state import AgentState, Desk, Failing, Owner
from ticdc_lab.simulate.scheduler.v3.messages import (
    LEAVING,
    Checkpoint,
    DispatchTableRequest,
    Header,
    Heartbeat,
    HeartbeatResponse,
    Steady,
)
from ticdc_lab.simulate.scheduler.v3.settings import Settings
from ticdc_lab.simulate.scheduler.v3.versions import epoch_matches


class Leave(NamedTuple):
    """A user or a signal asks the capture to stop: its liveness is Stopping from now on."""


class Agent:
    """The machine of a processor (:class:`ticdc_lab.simulate.machine.Machine`).

    It is driven by ``Asked(Poll(...))`` at a steady pace and by what owners send. ``Asked`` of Restart is v2's;
    Leave is a signal to the capture's process, Failing lets calls of the executor fail.

    A capture that is Stopping still takes every AddTable, as TiCDC does: the owner stops choosing it, and a move to it
    that has begun would hang otherwise.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()

    def start(self, address: Address, now: Now) -> tuple[AgentState, list[Output]]:
        """Give a processor without tables, which waits for an owner to speak."""
        return AgentState(address, Executor(self.settings.pace, 0)), []

    def step(self, state: AgentState, event: Event, now: Now) -> tuple[AgentState, list[Output]]:
        """Take one event."""
        if isinstance(event, Received):
            return self._received(state, event.sender, event.message, now)
        if not isinstance(event, Asked):
            return state, []
        command = event.command
        if isinstance(command, Poll):
            return self._poll(state, command, now)
        if isinstance(command, Restart):
            return _restarted(state)
        if isinstance(command, Leave):
            return _leaving(state, "it was told to stop")
        if isinstance(command, Failing):
            return replace(state, failing=command.calls), []
        return state, [Ignored(command, "a processor does not know this command")]

    def _poll(self, state: AgentState, command: Poll, now: Now) -> tuple[AgentState, list[Output]]:
        desk = Desk(state, self.settings, now.at_us)
        at.settle(desk)
        for span in sorted(desk.tasks, key=order):
            at.carry_out(desk, span)
        # Last: what ends now has not been written beyond the old one.
        desk.executor = limited(desk.executor, command.limit_ts)
        return desk.finished(), desk.outputs

    def _received(
        self, state: AgentState, sender: Address, message: object, now: Now
    ) -> tuple[AgentState, list[Output]]:
        if not isinstance(message, Heartbeat | DispatchTableRequest):
            return state, [Ignored(message, "a processor takes requests and heartbeats only")]
        header = message.header
        if message.to != state.address:
            return state, [Ignored(message, f"it is for {message.to}")]
        state, outputs = _heard_owner(state, sender, header)
        owner = state.owner
        if owner is None or any(isinstance(output, Broken) for output in outputs):
            return state, outputs
        if header.owner_revision < owner.revision:
            because = f"{sender} is the owner of revision {header.owner_revision}, {owner.revision} is known"
            return state, [Ignored(message, because)]
        if not epoch_matches(header, self.settings.changefeed_epoch):
            because = f"it is of changefeed epoch {header.changefeed_epoch}, not {self.settings.changefeed_epoch}"
            return state, [*outputs, Ignored(message, because)]
        if isinstance(message, Heartbeat):
            state, more = self._heartbeat(state, owner, message, now)
        else:
            state, more = self._request(state, message, now)
        return state, [*outputs, *more]

    def _request(self, state: AgentState, message: DispatchTableRequest, now: Now) -> tuple[AgentState, list[Output]]:
        header, span = message.header, message.request.span
        if header.processor_epoch != state.epoch:
            because = f"it is for processor epoch {header.processor_epoch}, this is {state.epoch}"
            return state, [Ignored(message, because)]
        if 0 < header.seq <= state.taken.get(span, 0):
            return state, [Ignored(message, "the owner has asked for something newer of this table")]
        desk = Desk(state, self.settings, now.at_us)
        desk.taken = desk.taken.set(span, max(header.seq, desk.taken.get(span, 0)))
        if at.inject(desk, message.request):
            at.carry_out(desk, span)
        return desk.finished(), desk.outputs

    def _heartbeat(
        self, state: AgentState, owner: Owner, message: Heartbeat, now: Now
    ) -> tuple[AgentState, list[Output]]:
        outputs: list[Output] = []
        if message.is_stopping:
            state, outputs = _leaving(state, "the owner drains it")
        desk = Desk(state, self.settings, now.at_us, outputs)
        for span in state.gone:
            if span not in message.spans and state.taken.get(span, 0) <= message.header.seq:
                desk.gone = desk.gone.delete(span)
        still_gone = sorted((span for span in desk.gone if span in message.spans), key=order)
        statuses = tuple(
            at.status_of(desk, span, collect_stats=message.collect_stats) for span in [*at.singular(desk), *still_gone]
        )
        steady = _steady(desk, message)
        response = HeartbeatResponse(desk.header(owner), owner.address, statuses, state.liveness, steady)
        outputs.append(Send(owner.address, response))
        return desk.finished(), outputs


def _heard_owner(state: AgentState, sender: Address, header: Header) -> tuple[AgentState, list[Output]]:
    owner = state.owner
    new = Owner(sender, header.owner_revision, header.version)
    if owner is not None and header.owner_revision == owner.revision and sender != owner.address:
        because = f"{sender} and {owner.address} both own revision {owner.revision}"
        return state, [Broken("one owner a revision", because)]
    if owner is not None and header.owner_revision <= owner.revision:
        return state, []
    before = f"{owner.address}@{owner.revision}" if owner else None
    change = Changed("obeys", before, f"{sender}@{header.owner_revision}", "it has the highest revision heard")
    return replace(state, owner=new, epoch=state.epoch + 1, taken=Map()), [change]


def _steady(desk: Desk, message: Heartbeat) -> Steady:
    resolved_ts = ts_of(desk.at_us)
    checkpoint = Checkpoint(at.common_checkpoint_ts(desk), resolved_ts)
    return Steady(desk.held, message.spans, checkpoint, resolved_ts if message.collect_stats else None)


def _leaving(state: AgentState, because: str) -> tuple[AgentState, list[Output]]:
    if state.liveness == LEAVING:
        return state, []
    return replace(state, liveness=LEAVING), [Changed("liveness", state.liveness, LEAVING, because)]


def _restarted(state: AgentState) -> tuple[AgentState, list[Output]]:
    executor, changed = ex.emptied(state.executor, "the processor restarted")
    fresh = AgentState(state.address, executor, state.epoch + 1, owner=state.owner, liveness=state.liveness)
    return fresh, [Changed("epoch", state.epoch, fresh.epoch, "the processor restarted"), *changed]
