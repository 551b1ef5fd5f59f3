"""A capture: one process with a session, a processor, and, while it is elected, an owner.

The design's assumption "Processors can stop writing immediately after it loses its Etcd session" is carried out as real
programs can: a capture counts its lease from when it asked for it, on its own clock, and ends ``margin_us`` before etcd
can have given it up. ``stop_lag_us`` and ``margin_us`` are what the assumption is worth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from ticdc_lab.machines.leases import Terms, lives
from ticdc_lab.machines.machine import (
    CAPTURE,
    NOT_OWNER,
    Address,
    Asked,
    Changed,
    Event,
    Exit,
    Fired,
    Ignored,
    Machine,
    Now,
    Output,
    Reason,
    Received,
    ReceivedMany,
    Send,
    Wake,
    made,
    not_taken,
    one_by_one,
    replace,
    stepped,
)
from ticdc_lab.simulate.scheduler.etcd_messages import (
    ETCD,
    KeepAlive,
    KeptAlive,
    NoLease,
    PutStatus,
    Register,
    Status,
    View,
)
from ticdc_lab.simulate.scheduler.executor import emptied, freed, stuck
from ticdc_lab.simulate.scheduler.roles import (
    Drain,
    Key,
    MergeSpans,
    MoveMaintainer,
    MoveTable,
    Poll,
    Rebalance,
    Restart,
    SplitTable,
    Tick,
    Watermarks,
)

# What a capture knows, and how it changes with messages of etcd and users.


class Stick(NamedTuple):
    """Asked of a capture: the sink of a table takes nothing, or resumes."""

    table: Key
    free: bool = False


@dataclass(frozen=True, slots=True)
class Variant:
    """A protocol: both its machines, which messages are the owner's, and whether processors take ticks as owners do."""

    name: str
    owner: Any
    processor: Machine[Any]
    to_owner: tuple[type, ...]
    ticks: bool = False


@stepped
class CaptureState(NamedTuple):
    """A capture."""

    address: Address  # its id in etcd; another one after each restart of the process
    # ``processor``, ``owner``: States of the variant's machines; the owner's is None while another capture is elected.
    processor: Any
    ends_us: int  # when it must stop to write, on its own clock
    owner: Any = None
    view: View | None = None  # what etcd sent last; None before the first time
    # The global watermarks, as far as this capture knows.
    checkpoint_ts: int = 0
    resolved_ts: int = 0
    lost: bool = False  # whether etcd reported the session as gone
    stuck: Reason | None = None  # why the checkpoint does not proceed, and since when; only an owner's
    moved_us: int = 0  # when the global checkpoint moved last, as the owner saw it
    asked_us: int | None = None  # since when the owner has been waiting for etcd to confirm a checkpoint
    elected_us: int = 0  # since when it is the owner
    # The highest watermarks that this owner has asked etcd to persist: the answer may be slower than its ticks.
    put_ts: tuple[int, int] = (0, 0)


def with_status(state: CaptureState, checkpoint_ts: int, resolved_ts: int, now: Now) -> CaptureState:
    """Take the global watermarks, which never fall."""
    if checkpoint_ts > state.checkpoint_ts:
        return state._replace(
            checkpoint_ts=checkpoint_ts, resolved_ts=max(resolved_ts, state.resolved_ts), moved_us=now.at_us
        )
    return state._replace(resolved_ts=resolved_ts) if resolved_ts > state.resolved_ts else state


_FIELDS: Mapping[type, str] = MappingProxyType(
    {MoveTable: "to", MoveMaintainer: "to", SplitTable: "targets", Drain: "capture"}
)


def addressed(command: Any, view: View | None) -> Any:
    """Users call a capture by its name; its address is another one after each restart."""
    field = _FIELDS.get(type(command))
    if field is None or view is None:
        return command
    named = getattr(command, field)
    found = [(lives(view.captures, name) or [name])[-1] for name in ([named] if isinstance(named, str) else named)]
    return command._replace(**{field: found[0] if isinstance(named, str) else tuple(found)})


def owner_rev(state: CaptureState) -> int | None:
    return state.owner.owner_rev if state.owner is not None else None


def names(captures: int | Iterable[str]) -> tuple[str, ...]:
    """Give the names of captures: ``capture-1``, ... for a number."""
    return tuple(f"capture-{i + 1}" for i in range(captures)) if isinstance(captures, int) else tuple(captures)


@dataclass(frozen=True, slots=True)
class Capture:
    """The machine of a capture."""

    variant: Variant  # the protocol
    version: str = "v6.1.0"  # sent to etcd when it registers
    # How often the owner's and the processor's periodic calls come.
    tick_us: int = 50_000
    poll_us: int = 50_000
    # The lease, how long before its end the capture stops, and how much longer than that it takes to stop.
    ttl_us: int = 5_000_000
    margin_us: int = 1_000_000
    stop_lag_us: int = 0
    restart_us: int = 1_000_000  # after how long a capture that lost its session is back
    stall_us: int = 2_000_000  # a checkpoint that has not moved for so long is called stuck

    def start(self, address: Address, now: Now) -> tuple[CaptureState, list[Output]]:
        processor, outputs = self.variant.processor.start(address, now)
        state = CaptureState(address, processor, self.lease_end(now.at_us + now.skew_us), moved_us=now.at_us)
        wakes = [Wake(self.poll_us, "poll"), Wake(self.tick_us, "tick"), Wake(self.terms.keep_alive_us, "keepalive")]
        return state, [Send(ETCD, Register(self.version)), *wakes, self._fence(state, now), *outputs]

    def step(self, state: CaptureState, event: Event, now: Now) -> tuple[CaptureState, list[Output]]:
        if now.at_us + now.skew_us >= state.ends_us:
            return self._ended(state, now)
        if isinstance(event, Received):
            return self._received(state, event, now)
        if isinstance(event, Fired):
            return self._fired(state, event, now)
        if isinstance(event, ReceivedMany):
            # Give a stretch, which is of one kind, to the machine it is for; only v2 takes it whole.
            if self.variant.name != "v2" or event.sender == ETCD:
                return one_by_one(self, state, event, now)
            if isinstance(event.messages[0], self.variant.to_owner):
                return self._of_owner(state, event, now) if state.owner else one_by_one(self, state, event, now)
            processor, outputs = self.variant.processor.step(state.processor, event, now)
            return state._replace(processor=processor), outputs
        return self._asked(state, event, now)

    @property
    def terms(self) -> Terms:
        """Give what it knows of its lease."""
        return Terms(self.ttl_us, self.margin_us)

    def lease_end(self, sent_us: int) -> int:
        """Give when it must stop to write, on the clock on which it asked for its lease."""
        return self.terms.ends_us(sent_us) + self.stop_lag_us

    def _fence(self, state: CaptureState, now: Now) -> Wake:
        return Wake(max(0, state.ends_us - now.at_us - now.skew_us), "fence")

    def _ended(self, state: CaptureState, now: Now) -> tuple[CaptureState, list[Output]]:
        because = "etcd says that the session is gone" if state.lost else "the session may be gone"
        executor, changes = emptied(state.processor.executor, because)
        outputs: list[Output] = [Changed("session", state.address, None, because), *changes]
        if state.owner is not None:
            outputs.append(Changed("owner", owner_rev(state), None, because))
        return state._replace(owner=None, processor=state.processor.with_executor(executor)), [
            *outputs,
            Exit(self.restart_us, because),
        ]

    # Messages

    def _received(self, state: CaptureState, event: Received, now: Now) -> tuple[CaptureState, list[Output]]:
        message = event.message
        if isinstance(message, self.variant.to_owner):
            if state.owner is None:
                return state, [Ignored(message, not_owner(state))]
            return self._of_owner(state, event, now)
        if event.sender != ETCD:
            processor, outputs = self.variant.processor.step(state.processor, event, now)
            return state._replace(processor=processor), outputs
        if isinstance(message, Status):
            return with_status(state, message.checkpoint_ts, message.resolved_ts, now), []
        if isinstance(message, KeptAlive):
            state = state._replace(ends_us=max(state.ends_us, self.lease_end(message.sent_us)))
            return state, [self._fence(state, now)]
        if isinstance(message, NoLease):
            state = state._replace(lost=True, ends_us=min(state.ends_us, now.at_us + now.skew_us + self.stop_lag_us))
            return self._ended(state, now) if not self.stop_lag_us else (state, [self._fence(state, now)])
        return self._viewed(state, message, now)

    def _viewed(self, state: CaptureState, view: View, now: Now) -> tuple[CaptureState, list[Output]]:
        if state.view is not None and view.revision < state.view.revision:
            return state, [Ignored(view, f"revision {state.view.revision} is known")]
        was = owner_rev(state)
        state = with_status(state._replace(view=view), view.checkpoint_ts, view.resolved_ts, now)
        if view.owner == state.address and was != view.owner_rev:
            owner, outputs = self.variant.owner.elected(state.address, view.owner_rev, now)
            elected = Changed("owner", was, view.owner_rev, f"etcd elected it at revision {view.owner_rev}")
            return state._replace(owner=owner, stuck=None, put_ts=(0, 0), asked_us=None, elected_us=now.at_us), [
                elected,
                *outputs,
            ]
        if view.owner != state.address and state.owner is not None:
            return state._replace(owner=None, stuck=None), [
                Changed("owner", was, None, f"{view.owner} is the owner now")
            ]
        return state, []

    # Timers

    def _fired(self, state: CaptureState, event: Fired, now: Now) -> tuple[CaptureState, list[Output]]:
        name = event.name
        if name == "poll":
            polled = made(Poll, (state.resolved_ts, state.view.barrier_ts if state.view is not None else None))
            processor, outputs = self.variant.processor.step(state.processor, made(Asked, (polled,)), now)
            return state._replace(processor=processor), [made(Wake, (self.poll_us, "poll")), *outputs]
        if name == "tick":
            state, outputs = self._ticked(state, now)
            return state, [made(Wake, (self.tick_us, "tick")), *outputs]
        if name == "keepalive":
            sent = KeepAlive(now.at_us + now.skew_us)
            return state, [Send(ETCD, sent), Wake(self.terms.keep_alive_us, "keepalive")]
        if name == "fence":
            return state, [self._fence(state, now)]
        return state, []

    def _ticked(self, state: CaptureState, now: Now) -> tuple[CaptureState, list[Output]]:
        view = state.view
        if view is None or (state.owner is None and not self.variant.ticks):
            return state, []
        told = made(Tick, (view.captures, view.tables, state.checkpoint_ts, view.barrier_ts, view.executed_ts))
        tick = made(Asked, (told,))
        outputs: list[Output] = []
        if self.variant.ticks:
            processor, outputs = self.variant.processor.step(state.processor, tick, now)
            state = state._replace(processor=processor)
        if state.owner is None:
            return state, outputs
        state, more = self._of_owner(state, tick, now)
        return state, [*outputs, *more]

    # The owner

    def _of_owner(self, state: CaptureState, event: Event, now: Now) -> tuple[CaptureState, list[Output]]:
        owner, found = self.variant.owner.step(state.owner, event, now)
        state = state._replace(owner=owner)
        outputs: list[Output] = []
        for output in found:
            if isinstance(output, Watermarks):
                state, more = self._advanced(state, output, now)
                outputs += more
            else:
                outputs.append(output)
        return state, outputs

    def _advanced(self, state: CaptureState, marks: Watermarks, now: Now) -> tuple[CaptureState, list[Output]]:
        """Persist the watermarks, which never fall, and name what holds them."""
        outputs: list[Output] = []
        if marks.checkpoint_ts is not None and marks.resolved_ts is not None:
            checkpoint_ts = max(marks.checkpoint_ts, state.checkpoint_ts, state.put_ts[0])
            resolved_ts = max(checkpoint_ts, marks.resolved_ts, state.resolved_ts, state.put_ts[1])
            if (checkpoint_ts, resolved_ts) != (state.checkpoint_ts, state.resolved_ts):
                state = state._replace(put_ts=(checkpoint_ts, resolved_ts))
                outputs.append(Send(ETCD, PutStatus(owner_rev(state) or 0, checkpoint_ts, resolved_ts)))
        stands = now.at_us - state.moved_us >= self.stall_us
        because = marks.because if marks.checkpoint_ts is None or stands else None
        waits = state.put_ts[0] > state.checkpoint_ts
        asked_us = (now.at_us if state.asked_us is None else state.asked_us) if waits else None
        if asked_us != state.asked_us:
            state = state._replace(asked_us=asked_us)
        if stands and asked_us is not None and now.at_us - asked_us >= self.stall_us:
            words = f"etcd has not confirmed the checkpoint that {state.address} asked it to persist"
            because = Reason(CAPTURE, state.address, words, marks.because.since_us)
        if because != state.stuck:
            since = "it moves"
            if because is not None:
                since_us = because.since_us
                since_us = max(state.moved_us, state.elected_us) if since_us is None else since_us
                because = replace(because, since_us=since_us)
                stood = f"; the checkpoint stands since {state.moved_us / 1e6:.3f} s"
                since = f"since {since_us / 1e6:.3f} s" + (stood if since_us > state.moved_us else "")
            outputs.append(Changed("stuck", state.stuck, because, since))
            state = state._replace(stuck=because)
        return state, outputs

    # Users and faults

    def _asked(self, state: CaptureState, event: Asked, now: Now) -> tuple[CaptureState, list[Output]]:
        command = event.command
        if isinstance(command, (MoveTable, MoveMaintainer, SplitTable, MergeSpans, Rebalance, Drain)):
            if state.owner is None:
                return state, [Ignored(command, not_owner(state))]
            return self._of_owner(state, Asked(addressed(command, state.view)), now)
        if isinstance(command, Stick):
            table, executor = command.table, state.processor.executor
            if table not in executor.pipelines or (command.free and table not in executor.stalled):
                return state, [Ignored(command, f"table {table} is not on {state.address}, or not stuck")]
            changed = (freed if command.free else stuck)(executor, table, now.at_us)
            before, after = ("stuck", None) if command.free else (None, "stuck")
            processor = state.processor.with_executor(changed)
            return state._replace(processor=processor), [Changed(f"sink:{table}", before, after, "a fault")]
        if isinstance(command, Restart):
            processor, outputs = self.variant.processor.step(state.processor, event, now)
            return state._replace(processor=processor), outputs
        raise not_taken(command, state.address)


def not_owner(state: CaptureState) -> Reason:
    """Refuse: only an owner could do it."""
    return Reason(NOT_OWNER, state.address, f"{state.address} is not the owner")
