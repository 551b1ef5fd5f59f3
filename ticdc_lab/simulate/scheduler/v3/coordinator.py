"""The owner's side of the two-phase scheduler."""

from __future__ import annotations

from dataclasses import replace

from ticdc_lab.simulate.machine import Address, Asked, Changed, Decided, Event, Ignored, Now, Received
from ticdc_lab.simulate.scheduler.roles import Drain, MoveTable, OwnerOutput, Rebalance, Tick
from ticdc_lab.simulate.scheduler.v3 import replication_manager as manager
from ticdc_lab.simulate.scheduler.v3.captures import UNINITIALIZED, Captures, CaptureStatus, all_initialized, heard
from ticdc_lab.simulate.scheduler.v3.coordinator_state import CoordinatorState, finished
from ticdc_lab.simulate.scheduler.v3.coordinator_tick import ticked
from ticdc_lab.simulate.scheduler.v3.messages import DispatchTableResponse, HeartbeatResponse
from ticdc_lab.simulate.scheduler.v3.replication import ReplicationSet
from ticdc_lab.simulate.scheduler.v3.replications import Draft
from ticdc_lab.simulate.scheduler.v3.settings import Settings
from ticdc_lab.simulate.scheduler.v3.versions import epoch_matches


class Coordinator:
    """The machine of an owner (:class:`ticdc_lab.simulate.machine.Machine`).

    It is driven by ``Asked(Tick(...))`` at a steady pace, by ``Asked`` of MoveTable, Rebalance and Drain, and by what
    the processors answer. Each tick gives one :class:`~ticdc_lab.simulate.scheduler.roles.Watermarks`. Reports change
    the records at once (TiCDC keeps them until its next tick); tables are scheduled in ticks only.

    A lost message is nothing special: what it asked for is asked again when a heartbeat shows that it is missing.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()

    def start(self, address: Address, now: Now) -> tuple[CoordinatorState, list[OwnerOutput]]:
        """Give an owner of revision 0; use :meth:`elected` where there are elections."""
        return self.elected(address, 0, now)

    def elected(self, address: Address, owner_rev: int, now: Now) -> tuple[CoordinatorState, list[OwnerOutput]]:
        """Give the fresh owner that an election has made, with the revision of the election.

        It knows nothing: it asks every capture at its first tick and schedules once all have answered.
        """
        return CoordinatorState(address, owner_rev), []

    def step(self, state: CoordinatorState, event: Event, now: Now) -> tuple[CoordinatorState, list[OwnerOutput]]:
        """Take one event."""
        if isinstance(event, Received):
            return self._received(state, event.sender, event.message)
        if not isinstance(event, Asked):
            return state, []
        command = event.command
        if isinstance(command, Tick):
            return ticked(self.settings, state, command, now)
        if isinstance(command, MoveTable):
            return _move(state, command)
        if isinstance(command, Rebalance):
            return _rebalance(state)
        if isinstance(command, Drain):
            return _drain(state, command.capture)
        return state, [Ignored(command, "an owner does not know this command")]

    def _received(
        self, state: CoordinatorState, sender: Address, message: object
    ) -> tuple[CoordinatorState, list[OwnerOutput]]:
        if not isinstance(message, HeartbeatResponse | DispatchTableResponse):
            return state, [Ignored(message, "an owner takes responses only")]
        status = state.captures.members.get(sender)
        because = self._obstacle(state, status, message)
        if because or status is None:
            return state, [Ignored(message, because or "it comes from no capture")]
        if isinstance(message, HeartbeatResponse):
            return self._heartbeat_response(state, status, message)
        newer = status.newer.set(message.status.span, message.header.seq)
        captures = _with(state.captures, status._replace(newer=newer))
        draft = Draft(state.replications)
        manager.take_status(draft, sender, message.status)
        return finished(self.settings, state, draft, captures)

    def _obstacle(
        self,
        state: CoordinatorState,
        status: CaptureStatus | None,
        message: HeartbeatResponse | DispatchTableResponse,
    ) -> str | None:
        header = message.header
        if header.owner_revision != state.owner_rev:
            return f"it answers revision {header.owner_revision}, this owner's is {state.owner_rev}"
        if message.to != state.address:
            return f"it is for {message.to}"
        if not epoch_matches(header, self.settings.changefeed_epoch):
            return f"it is of changefeed epoch {header.changefeed_epoch}, not {self.settings.changefeed_epoch}"
        if status is None:
            return "it comes from no registered capture"
        return self._is_late(status, message)

    def _is_late(self, status: CaptureStatus, message: HeartbeatResponse | DispatchTableResponse) -> str | None:
        header = message.header
        if status.state != UNINITIALIZED and header.processor_epoch < status.epoch:
            return f"processor epoch {header.processor_epoch} has ended, it is {status.epoch} now"
        if isinstance(message, DispatchTableResponse):
            if status.state == UNINITIALIZED:
                return f"{status.address} has not answered a heartbeat yet"
            if header.processor_epoch > status.epoch:
                return "its processor is another than the one the owner knows"
        if header.seq == 0 or header.processor_epoch > status.epoch:
            return None
        seq = status.seq
        if isinstance(message, DispatchTableResponse):
            seq = max(seq, status.newer.get(message.status.span, 0))
        return f"the capture has said something newer ({seq} after {header.seq})" if header.seq <= seq else None

    def _heartbeat_response(
        self, state: CoordinatorState, status: CaptureStatus, message: HeartbeatResponse
    ) -> tuple[CoordinatorState, list[OwnerOutput]]:
        draft = Draft(state.replications)
        if status.state != UNINITIALIZED and message.header.processor_epoch > status.epoch:
            manager.shut_down(draft, status.address)
            status = CaptureStatus(status.address, is_owner=status.is_owner)
            draft.notes.insert(0, Changed(f"capture:{status.address}", "lost", status.state, "its processor restarted"))
        now_known = heard(status, message, message.header)
        if now_known.state != status.state:
            because = f"it answered and is {message.liveness}"
            draft.notes.append(Changed(f"capture:{status.address}", status.state, now_known.state, because))
        if state.captures.initialized:
            manager.take_response(draft, status.address, message, now_known.newer)
            now_known = now_known._replace(response=None)
        return finished(self.settings, state, draft, _with(state.captures, now_known))


def _with(captures: Captures, status: CaptureStatus) -> Captures:
    return replace(captures, members=captures.members.set(status.address, status))


def _move(state: CoordinatorState, command: MoveTable) -> tuple[CoordinatorState, list[OwnerOutput]]:
    because = None if all_initialized(state.captures) else "not all captures have answered the owner"
    if command.table in state.schedulers.moves:
        because = f"table {command.table} is to be moved already"
    if because:
        return state, [Decided("move-table", None, f"table {command.table} is not moved because {because}")]
    moves = state.schedulers.moves.set(command.table, command.to)
    return replace(state, schedulers=replace(state.schedulers, moves=moves)), []


def _rebalance(state: CoordinatorState) -> tuple[CoordinatorState, list[OwnerOutput]]:
    if not all_initialized(state.captures):
        return state, [Decided("rebalance", None, "not done because not all captures have answered the owner")]
    return replace(state, schedulers=replace(state.schedulers, rebalance=True)), []


def _drain(state: CoordinatorState, target: Address) -> tuple[CoordinatorState, list[OwnerOutput]]:
    because = _why_not_drain(state, target)
    if because:
        return state, [Decided("drain-capture", None, f"{target} is not drained because {because}")]
    return replace(state, schedulers=replace(state.schedulers, drain_target=target)), []


def _why_not_drain(state: CoordinatorState, target: Address) -> str | None:
    if not all_initialized(state.captures):
        return "not all captures have answered the owner"
    if not any(rep.primary == target for rep in _sets_on(state, target)):
        return "it replicates no table"
    if len(state.captures.members) <= 1:
        return "nobody else could take its tables"
    if target == state.address:
        return "it is the owner, which goes last"
    if state.schedulers.drain_target is not None:
        return f"{state.schedulers.drain_target} is being drained"
    return None


def _sets_on(state: CoordinatorState, address: Address) -> list[ReplicationSet]:
    return [state.replications.sets[span] for span in state.replications.on.get(address, ())]
