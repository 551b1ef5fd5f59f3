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
from ticdc_lab.simulate.scheduler.executor import Executor
from ticdc_lab.simulate.scheduler.roles import Key, Poll, Restart, order
from ticdc_lab.simulate.scheduler.v3 import agent_table as at
from ticdc_lab.simulate.scheduler.v3.agent_table import AgentState, Failing, Owner
from ticdc_lab.simulate.scheduler.v3.messages import (
    LEAVING,
    Checkpoint,
    DispatchTableRequest,
    DispatchTableResponse,
    Header,
    Heartbeat,
    HeartbeatResponse,
    Steady,
    TableStatus,
)
from ticdc_lab.simulate.scheduler.v3.mutants import IGNORE_EPOCH, IGNORE_ORDER, IGNORE_REVISION
from ticdc_lab.simulate.scheduler.v3.settings import Settings
from ticdc_lab.simulate.scheduler.v3.versions import epoch_matches


class Leave(NamedTuple):
    """A user or a signal asks the capture to stop: its liveness is Stopping from now on."""


class Agent:
    """The machine of a processor (:class:`ticdc_lab.simulate.machine.Machine`).

    It is driven by ``Asked(Poll(...))`` at a steady pace and by what owners send. ``Asked`` of Restart is the seed's;
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
        if command.limit_ts > state.executor.limit_ts:
            state = replace(state, executor=replace(state.executor, limit_ts=command.limit_ts))
        state, changed = at.settled(state, now.at_us)
        outputs = list[Output](changed)
        for span in sorted(state.tasks, key=order):
            state, more = self._carry_out(state, span, now)
            outputs += more
        return state, outputs

    def _carry_out(self, state: AgentState, span: Key, now: Now) -> tuple[AgentState, list[Output]]:
        done = at.polled(state, span, now.at_us)
        state, outputs = done.state, list[Output](done.notes)
        owner = state.owner
        if done.status is not None and owner is not None:
            state, header = self._header(state, owner)
            outputs.append(Send(owner.address, DispatchTableResponse(header, owner.address, done.status)))
        return state, outputs

    def _received(
        self, state: AgentState, sender: Address, message: object, now: Now
    ) -> tuple[AgentState, list[Output]]:
        if not isinstance(message, Heartbeat | DispatchTableRequest):
            return state, [Ignored(message, "a processor takes requests and heartbeats only")]
        header = message.header
        if message.to != state.address:
            return state, [Ignored(message, f"it is for {message.to}")]
        state, outputs = _heard_owner(state, sender, header, self.settings)
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
        if header.processor_epoch != state.epoch and IGNORE_EPOCH not in self.settings.planted:
            because = f"it is for processor epoch {header.processor_epoch}, this is {state.epoch}"
            return state, [Ignored(message, because)]
        if 0 < header.seq <= state.taken.get(span, 0) and IGNORE_ORDER not in self.settings.planted:
            return state, [Ignored(message, "the owner has asked for something newer of this table")]
        state, notes = at.injected(state, message.request)
        state = replace(state, taken=state.taken.set(span, max(header.seq, state.taken.get(span, 0))))
        if notes:
            return state, list(notes)
        return self._carry_out(state, span, now)

    def _heartbeat(
        self, state: AgentState, owner: Owner, message: Heartbeat, now: Now
    ) -> tuple[AgentState, list[Output]]:
        outputs: list[Output] = []
        if message.is_stopping:
            state, outputs = _leaving(state, "the owner drains it")
        known = [s for s in state.gone if s not in message.spans and state.taken.get(s, 0) <= message.header.seq]
        state = at.without_gone(state, known) if known else state
        state, header = self._header(state, owner)
        statuses = _statuses(state, message.spans, now.at_us)
        steady = _steady(state, message.spans, now.at_us)
        response = HeartbeatResponse(header, owner.address, statuses, state.liveness, steady)
        return state, [*outputs, Send(owner.address, response)]

    def _header(self, state: AgentState, owner: Owner) -> tuple[AgentState, Header]:
        state = replace(state, seq=state.seq + 1)
        its = self.settings
        return state, Header(its.version, owner.revision, state.epoch, its.changefeed_epoch, state.seq)


def _heard_owner(
    state: AgentState, sender: Address, header: Header, settings: Settings
) -> tuple[AgentState, list[Output]]:
    owner = state.owner
    new = Owner(sender, header.owner_revision, header.version)
    if IGNORE_REVISION in settings.planted:
        return (state if owner == new else replace(state, owner=new, taken=Map())), []
    if owner is not None and header.owner_revision == owner.revision and sender != owner.address:
        because = f"{sender} and {owner.address} both own revision {owner.revision}"
        return state, [Broken("one owner a revision", because)]
    if owner is not None and header.owner_revision <= owner.revision:
        return state, []
    before = f"{owner.address}@{owner.revision}" if owner else None
    change = Changed("owner", before, f"{sender}@{header.owner_revision}", "it has the highest revision heard")
    return replace(state, owner=new, epoch=state.epoch + 1, taken=Map()), [change]


def _statuses(state: AgentState, asked: Map[Key, None], at_us: int) -> tuple[TableStatus, ...]:
    spans = [*at.singular(state), *at.still_gone(state, asked)]
    return tuple(at.status_of(state, span, at_us) for span in spans)


def _steady(state: AgentState, asked: Map[Key, None], at_us: int) -> Steady:
    resolved_ts = ts_of(at_us)
    checkpoint_ts = min(ts_of(max(at_us - state.executor.pace.lag_us, 0)), state.executor.limit_ts)
    return Steady(state.held, asked, Checkpoint(checkpoint_ts, resolved_ts), resolved_ts)


def _leaving(state: AgentState, because: str) -> tuple[AgentState, list[Output]]:
    if state.liveness == LEAVING:
        return state, []
    return replace(state, liveness=LEAVING), [Changed("liveness", state.liveness, LEAVING, because)]


def _restarted(state: AgentState) -> tuple[AgentState, list[Output]]:
    executor, changed = ex.emptied(state.executor, "the processor restarted")
    fresh = AgentState(state.address, executor, state.epoch + 1, owner=state.owner, liveness=state.liveness)
    return fresh, [Changed("epoch", state.epoch, fresh.epoch, "the processor restarted"), *changed]
