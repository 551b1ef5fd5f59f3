"""The processor's side of the design's protocol (v2): obeys the owner of the highest revision and reports to it.

Source: seed, "The Protocol", "Owner Switches", "Processor restarts"; tiflow v6.1
`cdc/scheduler/internal/base/agent.go`.

Every Sync opens an epoch, also one to an owner that is known: an order that was given before the owner took that Sync
is void, however late it comes. TiCDC has a topic for each kind of message, so that kinds may overtake each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from immutables import Map

from ticdc_lab.machines.machine import (
    Address,
    Asked,
    Broken,
    Changed,
    Decided,
    Event,
    Ignored,
    Now,
    Output,
    Received,
    ReceivedMany,
    Send,
    made,
    one_by_one,
    stepped,
)
from ticdc_lab.simulate.scheduler import executor as pipelines
from ticdc_lab.simulate.scheduler.balance import in_order
from ticdc_lab.simulate.scheduler.executor import STEADY, Executor, TablePace
from ticdc_lab.simulate.scheduler.messages import (
    Announce,
    Checkpoint,
    DispatchTable,
    DispatchTableResponse,
    Sync,
    compatible,
)
from ticdc_lab.simulate.scheduler.roles import Key, Poll, Restart, order


class Owner(NamedTuple):
    """Who sent the highest owner-rev so far."""

    address: Address
    rev: int


class Operation(NamedTuple):
    """An order that is not finished."""

    is_delete: bool
    start_ts: int


@stepped
class AgentState(NamedTuple):
    """A processor."""

    address: Address  # the capture
    executor: Executor  # the tables
    epoch: int = 1  # begins with each Sync; orders of another one are void
    owner: Owner | None = None  # whom it obeys; None before the first message of one
    owes_sync: bool = False  # whether the owner is to be sent the state before anything else
    operations: Map[Key, Operation] = Map()  # orders that are not finished, by table
    reported: tuple[int, int] | None = None  # the watermarks that were sent last

    def with_executor(self, executor: Executor) -> AgentState:
        return self._replace(executor=executor)


@dataclass(frozen=True, slots=True)
class Agent:
    """The machine of a processor."""

    pace: TablePace = STEADY  # how fast its pipelines are
    # Of the processor, which its Sync names. An owner of another major version gives it no tables.
    version: str = "v6.1.0"

    def start(self, address: Address, now: Now) -> tuple[AgentState, list[Output]]:
        return AgentState(address, Executor(self.pace, 0)), []

    def step(self, state: AgentState, event: Event, now: Now) -> tuple[AgentState, list[Output]]:
        if isinstance(event, Received):
            state, refusal = self._heard(state, event.sender, event.message)
            if refusal:
                return state, [refusal]
            if isinstance(event.message, Announce):
                # also to an owner of another major version: the Sync has the processor's; that owner gives no orders
                other = not compatible(event.message.owner_version, self.version)
                because = f"owner {event.message.owner_version} and processor {self.version} are not compatible"
                told: list[Output] = [Decided(f"owner:{event.sender}", "only a Sync", because)] if other else []
                return state._replace(owes_sync=True), told
            void = _void(state, event.message)
            return (state, [Ignored(event.message, void)]) if void else self._ordered(state, event.message, now)
        if isinstance(event, ReceivedMany):
            return self._received_many(state, event, now)
        if isinstance(event, Asked):
            return self._asked(state, event.command, now)
        return state, []

    def _asked(self, state: AgentState, command: Any, now: Now) -> tuple[AgentState, list[Output]]:
        if isinstance(command, Poll):
            executor, changes = pipelines.settled(state.executor, now.at_us)
            executor = pipelines.limited(executor, command.limit_ts)
            outputs: list[Output] = list(changes)
            if executor is not state.executor:
                state = state._replace(executor=executor)
            if state.owner is None or state.owner.address in now.refused:
                return state, outputs
            owner = state.owner.address
            if state.owes_sync:
                state = _begun(state, outputs)
                outputs.append(Send(owner, self._sync(state)))
                state = state._replace(owes_sync=False)
            if state.operations:
                state = _finished(state, owner, now, outputs)
            return _reported(state, owner, now, outputs), outputs
        if isinstance(command, Restart):
            executor, changes = pipelines.emptied(state.executor, "the processor restarted")
            known = state.address, executor, state.epoch, state.owner
            return AgentState(*known, owes_sync=state.owner is not None), list(changes)
        return state, []

    def _received_many(self, state: AgentState, event: ReceivedMany, now: Now) -> tuple[AgentState, list[Output]]:
        """Take a stretch of orders to add tables in one go, which gives what one after another would give."""
        sender, messages = event
        owner, known = state.owner, state.executor.pipelines
        plain = owner is not None and all(
            type(m) is DispatchTable
            and not m.is_delete
            and m.owner_rev == owner.rev
            and sender == owner.address
            and m.epoch == state.epoch
            and not state.owes_sync
            and m.id not in known
            and m.id not in state.operations
            for m in messages
        )
        if not plain or len({m.id for m in messages}) < len(messages):
            return one_by_one(self, state, event, now)
        operations = state.operations.update({m.id: Operation(False, m.start_ts) for m in messages})
        starts = {m.id: m.start_ts for m in messages}
        executor, changes = pipelines.added_many(state.executor, starts, now.at_us, "the owner dispatched it")
        return state._replace(operations=operations, executor=executor), list(changes)

    def _heard(self, state: AgentState, sender: Address, message: Any) -> tuple[AgentState, Ignored | Broken | None]:
        """Learn of a new owner, or give why this one is not obeyed."""
        owner = state.owner
        stale = owner is not None and message.owner_rev < owner.rev
        if owner is None or message.owner_rev > owner.rev:
            new = Owner(sender, message.owner_rev)
            return state._replace(owner=new, owes_sync=True, reported=None), None
        if stale:
            return state, Ignored(message, f"owner-rev {message.owner_rev} is below {owner.rev} of {owner.address}")
        if message.owner_rev == owner.rev and sender != owner.address:
            return state, Broken("One Owner a Revision", f"{sender} and {owner.address} both own revision {owner.rev}")
        return state, None

    def _ordered(self, state: AgentState, message: DispatchTable, now: Now) -> tuple[AgentState, list[Output]]:
        if message.id in state.operations:
            return state, [Ignored(message, "an operation on this table is in flight")]
        operation = Operation(message.is_delete, message.start_ts)
        state = state._replace(operations=state.operations.set(message.id, operation))
        known = message.id in state.executor.pipelines
        if known and message.is_delete:
            executor, changes = pipelines.stopping(state.executor, message.id, now.at_us, "the owner wants it removed")
        elif not known and not message.is_delete:
            executor, changes = pipelines.added(
                state.executor, message.id, message.start_ts, now.at_us, "the owner dispatched it"
            )
        else:
            return state, []
        return state._replace(executor=executor), list(changes)

    def _sync(self, state: AgentState) -> Sync:
        adding = tuple(sorted((k for k, o in state.operations.items() if not o.is_delete), key=order))
        removing = tuple(sorted((k for k, o in state.operations.items() if o.is_delete), key=order))
        running = tuple(sorted((k for k in state.executor.pipelines if k not in state.operations), key=order))
        return Sync(self.version, running, adding, removing, state.epoch)


def _void(state: AgentState, message: DispatchTable) -> str | None:
    """Give why an order is of a former epoch, None if it is not."""
    if state.owes_sync:
        return f"epoch {message.epoch} ends with the Sync that the owner is still to receive"
    if message.epoch != state.epoch:
        return f"epoch {message.epoch} is not this processor's {state.epoch}"
    return None


def _begun(state: AgentState, outputs: list[Output]) -> AgentState:
    outputs.append(Changed("epoch", state.epoch, state.epoch + 1, "a Sync begins it"))
    return state._replace(epoch=state.epoch + 1)


def _finished(state: AgentState, owner: Address, now: Now, outputs: list[Output]) -> AgentState:
    """Answer the orders that have come to their end."""
    executor, operations = state.executor, state.operations.mutate()
    pending, known = executor.pending, executor.pipelines
    ended = [k for k in state.operations if k not in pending or known[k].state != pipelines.PREPARING]
    for key in in_order(ended, now.prefer):
        if operations[key].is_delete:
            if not pipelines.has_stopped(executor, key, now.at_us):
                continue
            if key in executor.pipelines:
                executor, changes = pipelines.gone(executor, key, "it has stopped")
                outputs += changes
        elif pipelines.state_of(executor, key) != pipelines.REPLICATING:
            continue
        del operations[key]
        outputs.append(Send(owner, DispatchTableResponse(key, state.epoch)))
    return state._replace(executor=executor, operations=operations.finish())


def _reported(state: AgentState, owner: Address, now: Now, outputs: list[Output]) -> AgentState:
    """Send the watermarks if they are others than before."""
    if not state.executor.pipelines:
        return state
    checkpoint_ts, resolved_ts, slowest = pipelines.slowest(state.executor, now.at_us)
    if (checkpoint_ts, resolved_ts) == state.reported:
        return state
    outputs.append(made(Send, (owner, made(Checkpoint, (checkpoint_ts, resolved_ts, slowest)))))
    return state._replace(reported=(checkpoint_ts, resolved_ts))
