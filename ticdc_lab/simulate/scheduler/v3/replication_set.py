"""One span of the owner as a pure state machine: Absent, Prepare, Commit, Replicating, Removing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from ticdc_lab.machines.machine import Address, Broken, Changed, Ignored, stepped
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v3.messages import (
    ABSENT,
    PREPARED,
    PREPARING,
    REPLICATING,
    STOPPED,
    STOPPING,
    AddTable,
    Checkpoint,
    RemoveTable,
    Request,
    TableStatus,
)

# Who has one span, and in which role: the record of the owner that the transitions of :mod:`.transitions` change.

ABSENT_SET, PREPARE, COMMIT = "Absent", "Prepare", "Commit"
REPLICATING_SET, REMOVING = "Replicating", "Removing"
"""The states of a replication set."""

PRIMARY, SECONDARY, UNDETERMINED = "Primary", "Secondary", "Undetermined"
"""Roles: it writes or will, it prepares or is prepared, it was found stopping and may still write."""


@stepped
class ReplicationSet(NamedTuple):
    """One span as the owner sees it.

    ``captures`` are all that have a role, sorted by name; at most one is primary, and it is named in ``primary``.
    """

    span: Key
    state: str
    primary: Address | None
    captures: tuple[tuple[Address, str], ...]
    checkpoint: Checkpoint
    puller_resolved_ts: int


def absent(span: Key, checkpoint_ts: int) -> ReplicationSet:
    """Give an unassigned span."""
    return ReplicationSet(span, ABSENT_SET, None, (), Checkpoint(checkpoint_ts, checkpoint_ts), checkpoint_ts)


def rebuilt(span: Key, checkpoint_ts: int, statuses: Mapping[Address, TableStatus]) -> ReplicationSet | Broken:
    """Make the record from the captures' reports of the span: the owner is new.

    A capture that is stopping it may have been the primary and may still write, so that its role stays undetermined
    until it reports Stopped or Absent. Two captures that replicate it are a violation.
    """
    replication = absent(span, checkpoint_ts)
    for address in sorted(statuses):
        status = statuses[address]
        replication = advanced(replication, status)
        if status.state == REPLICATING:
            if replication.primary is not None:
                return two_primaries(replication, address)
            replication = promoted(replication, address)
        elif status.state in (PREPARING, PREPARED):
            replication = with_role(replication, address, SECONDARY)
        elif status.state == STOPPING:
            replication = with_role(replication, address, UNDETERMINED)
    return replication._replace(state=_state_of(replication, statuses))


def _state_of(replication: ReplicationSet, statuses: Mapping[Address, TableStatus]) -> str:
    if any(status.state == PREPARED for status in statuses.values()):
        return COMMIT
    if has_role(replication, SECONDARY):
        return PREPARE
    if replication.primary is not None:
        return REPLICATING_SET
    return REMOVING if replication.captures else ABSENT_SET


def two_primaries(replication: ReplicationSet, other: Address) -> Broken:
    """Report that two captures replicate the span."""
    return Broken(
        "one primary",
        f"table {replication.span}: {other} replicates it, and so does {replication.primary or 'another capture'} "
        f"({replication.state}, {dict(replication.captures)})",
    )


def role_of(replication: ReplicationSet, address: Address) -> str | None:
    for name, role in replication.captures:
        if name == address:
            return role
    return None


def first_in(replication: ReplicationSet, role: str) -> Address | None:
    """Give the capture in a role, of several the one with the smallest name."""
    for name, its in replication.captures:
        if its == role:
            return name
    return None


def has_role(replication: ReplicationSet, role: str) -> bool:
    return first_in(replication, role) is not None


def with_role(replication: ReplicationSet, address: Address, role: str) -> ReplicationSet:
    others = [pair for pair in replication.captures if pair[0] != address]
    return replication._replace(captures=tuple(sorted([*others, (address, role)])))


def without(replication: ReplicationSet, address: Address) -> ReplicationSet:
    return replication._replace(
        captures=tuple(pair for pair in replication.captures if pair[0] != address),
        primary=None if replication.primary == address else replication.primary,
    )


def promoted(replication: ReplicationSet, address: Address) -> ReplicationSet:
    """Make a capture the primary; one that was it before has no role any more."""
    if replication.primary is not None and replication.primary != address:
        replication = without(replication, replication.primary)
    return with_role(replication, address, PRIMARY)._replace(primary=address)


def advanced(replication: ReplicationSet, status: TableStatus) -> ReplicationSet:
    """Take over a reported checkpoint where it is higher."""
    old, new = replication.checkpoint, status.checkpoint
    checkpoint = Checkpoint(
        max(old.checkpoint_ts, new.checkpoint_ts),
        max(old.resolved_ts, new.resolved_ts or new.checkpoint_ts),
        max(old.last_synced_ts, new.last_synced_ts),
    )
    puller = replication.puller_resolved_ts if status.puller_resolved_ts is None else status.puller_resolved_ts
    if checkpoint == old and puller == replication.puller_resolved_ts:
        return replication
    return replication._replace(checkpoint=checkpoint, puller_resolved_ts=puller)


def has_removed(replication: ReplicationSet) -> bool:
    """Whether it was to be removed and no capture has it any more."""
    return replication.state == REMOVING and not replication.captures


# What a report of one capture does to a replication set, state by state.
#
# Safer than TiCDC at four places, where it would let a destination write while another capture may still do so or
# would wait without end: (1) Prepare, the primary reports Stopping: it stays the primary until it has stopped, TiCDC
# forgets it; (2) Commit, the primary has stopped and a capture is undetermined: none is promoted yet; (3)
# Replicating, the primary reports Absent: as Stopped, TiCDC ignores it, which is final if the Stopped was lost;
# (4) an undetermined capture that has stopped or is gone has no role any more in any state
# (:func:`.replication_set.poll`), TiCDC sees that in Commit and Removing only.


class ReplicationTurn(NamedTuple):
    """What one report led to.

    ``again`` asks to look at the report once more in the new state, ``unexpected``: it was ignored.
    """

    replication: ReplicationSet
    because: str = ""
    request: tuple[Address, Request] | None = None
    again: bool = False
    unexpected: bool = False
    broken: Broken | None = None


def on_absent(rep: ReplicationSet, sender: Address, status: TableStatus) -> ReplicationTurn:
    """No capture has the span; an Absent of a capture that was chosen for it begins the preparation."""
    if status.state == ABSENT:
        prepared = with_role(rep, sender, SECONDARY)._replace(state=PREPARE)
        return ReplicationTurn(prepared, f"{sender} is to prepare it", again=True)
    return ReplicationTurn(rep, unexpected=status.state != STOPPED)


def on_prepare(rep: ReplicationSet, sender: Address, status: TableStatus) -> ReplicationTurn:
    """A secondary prepares; a primary continues, where there is one."""
    if role_of(rep, sender) == SECONDARY:
        if status.state == ABSENT:
            return ReplicationTurn(rep, request=(sender, AddTable(rep.span, True, rep.checkpoint)))
        if status.state == PREPARED:
            return ReplicationTurn(rep._replace(state=COMMIT), f"{sender} is prepared", again=True)
        if status.state in (STOPPING, STOPPED):
            state = ABSENT_SET if rep.primary is None else REPLICATING_SET
            return ReplicationTurn(
                without(rep, sender)._replace(state=state), f"{sender} has stopped preparing it", again=True
            )
        return ReplicationTurn(rep, unexpected=status.state != PREPARING)
    if rep.primary == sender:
        if status.state == REPLICATING:
            return ReplicationTurn(advanced(rep, status))
        if status.state == STOPPED:
            return ReplicationTurn(
                without(rep, sender), f"the primary {sender} has stopped while another capture prepares"
            )
    return ReplicationTurn(rep, unexpected=True)


def on_commit(rep: ReplicationSet, sender: Address, status: TableStatus) -> ReplicationTurn:
    """A secondary is prepared: the primary must stop, then the secondary becomes the primary."""
    if status.state == PREPARED:
        return _prepared_in_commit(rep, sender)
    if status.state in (STOPPED, ABSENT):
        role = role_of(rep, sender)
        if role == PRIMARY:
            return _primary_stopped_in_commit(without(advanced(rep, status), sender), sender)
        if role == SECONDARY:
            left = without(rep, sender)
            left = left._replace(state=ABSENT_SET) if left.primary is None else left
            return ReplicationTurn(left, f"the secondary {sender} has stopped", again=True)
        return ReplicationTurn(rep, unexpected=True)
    if status.state == REPLICATING:
        if rep.primary != sender:
            return ReplicationTurn(rep, broken=two_primaries(rep, sender))
        rep = advanced(rep, status)
        if has_role(rep, SECONDARY):
            return ReplicationTurn(rep, request=(sender, RemoveTable(rep.span)))
        return ReplicationTurn(rep._replace(state=REPLICATING_SET), f"{sender} replicates it", again=True)
    if status.state == STOPPING:
        if rep.primary == sender and has_role(rep, SECONDARY):
            return ReplicationTurn(advanced(rep, status))
        return ReplicationTurn(rep, unexpected=role_of(rep, sender) != UNDETERMINED)
    return ReplicationTurn(rep, unexpected=True)


def _prepared_in_commit(rep: ReplicationSet, sender: Address) -> ReplicationTurn:
    because = ""
    if role_of(rep, sender) == SECONDARY:
        if rep.primary is not None:
            return ReplicationTurn(rep, request=(rep.primary, RemoveTable(rep.span)))
        if has_role(rep, UNDETERMINED):
            return ReplicationTurn(rep)
        rep, because = promoted(rep, sender), f"{sender} is prepared and no other capture can be writing"
    if rep.primary == sender and not has_role(rep, SECONDARY):
        return ReplicationTurn(rep, because, request=(sender, AddTable(rep.span, False, rep.checkpoint)))
    return ReplicationTurn(rep, because, unexpected=not because)


def _primary_stopped_in_commit(rep: ReplicationSet, sender: Address) -> ReplicationTurn:
    because = f"the primary {sender} has stopped"
    secondary = first_in(rep, SECONDARY)
    if secondary is None:
        return ReplicationTurn(rep._replace(state=ABSENT_SET), because, again=True)
    if has_role(rep, UNDETERMINED):
        return ReplicationTurn(rep, f"{because}; another capture may still be writing")
    rep = promoted(rep, secondary)
    return ReplicationTurn(rep, because, request=(secondary, AddTable(rep.span, False, rep.checkpoint)))


def on_replicating(rep: ReplicationSet, sender: Address, status: TableStatus) -> ReplicationTurn:
    """The primary replicates, none prepares."""
    if status.state == REPLICATING:
        if rep.primary == sender:
            return ReplicationTurn(advanced(rep, status))
        return ReplicationTurn(rep, broken=two_primaries(rep, sender))
    if status.state in (STOPPED, ABSENT) and rep.primary == sender:
        left = without(advanced(rep, status), sender)._replace(state=ABSENT_SET)
        return ReplicationTurn(left, f"the primary {sender} has stopped", again=True)
    return ReplicationTurn(rep, unexpected=True)


def on_removing(rep: ReplicationSet, sender: Address, status: TableStatus) -> ReplicationTurn:
    """All captures must stop."""
    if status.state in (PREPARING, PREPARED, REPLICATING):
        return ReplicationTurn(rep, request=(sender, RemoveTable(rep.span)))
    if status.state in (ABSENT, STOPPED):
        return ReplicationTurn(without(rep, sender), f"{sender} has stopped")
    return ReplicationTurn(rep, unexpected=status.state != STOPPING)


TURNS = {
    ABSENT_SET: on_absent,
    PREPARE: on_prepare,
    COMMIT: on_commit,
    REPLICATING_SET: on_replicating,
    REMOVING: on_removing,
}
"""By the state of the set."""


# One span of the owner as a pure state machine: Absent, Prepare, Commit, Replicating, Removing.
#
# ::
#
# Absent --add--> Prepare --prepared--> Commit --replicating--> Replicating --remove--> Removing ^ |
# +------------------------ move -----------------+
#
# A span that has gone from Commit or Prepare may be Absent or Replicating again when a capture leaves.

Note: TypeAlias = Changed | Ignored | Broken


class PolledReplication(NamedTuple):
    """The next record, the requests to send, and what to report of it.

    ``Changed`` has the subject ``replication:SPAN`` for the state and ``primary:SPAN`` for the primary.
    """

    replication: ReplicationSet
    requests: tuple[tuple[Address, Request], ...] = ()
    notes: tuple[Note, ...] = ()


def poll(rep: ReplicationSet, sender: Address, status: TableStatus) -> PolledReplication:
    """Take the report of one capture; of one without a role nothing happens."""
    role = role_of(rep, sender)
    if role is None:
        return PolledReplication(rep)
    if status.span != rep.span:
        return PolledReplication(rep, (), (Broken("one span", f"{sender} reports {status.span} for {rep.span}"),))
    if role == UNDETERMINED and status.state in (ABSENT, STOPPED):
        return PolledReplication(without(rep, sender))
    requests: list[tuple[Address, Request]] = []
    notes: list[Note] = []
    first, again = True, True
    while again:
        turn = TURNS[rep.state](rep, sender, status)
        if turn.broken:
            return PolledReplication(rep, tuple(requests), (*notes, turn.broken))
        if turn.unexpected and first:
            notes.append(Ignored(status, f"{sender} says {status.state} in {rep.state}"))
        if turn.replication is not rep:
            notes += changes(rep, turn.replication, turn.because)
        if turn.request:
            requests.append(turn.request)
        rep, again, first = turn.replication, turn.again, False
    return PolledReplication(rep, tuple(requests), tuple(notes))


def changes(before: ReplicationSet, after: ReplicationSet, because: str) -> list[Note]:
    """Report what has a name and has changed."""
    said: list[Note] = []
    if before.state != after.state:
        said.append(Changed(f"replication:{after.span}", before.state, after.state, because))
    if before.primary != after.primary:
        said.append(Changed(f"primary:{after.span}", before.primary, after.primary, because))
    return said


def _refused(rep: ReplicationSet, command: tuple[object, ...], because: str) -> PolledReplication:
    return PolledReplication(rep, (), (Ignored(command, because),))


def add(rep: ReplicationSet, to: Address) -> PolledReplication:
    """Let a capture prepare an unassigned span; otherwise nothing happens."""
    command = ("add", rep.span, to)
    if rep.state != ABSENT_SET:
        return _refused(rep, command, f"table {rep.span} is {rep.state}, not Absent")
    if role_of(rep, to) == UNDETERMINED:
        return _refused(rep, command, f"{to} is still stopping table {rep.span}")
    return poll(with_role(rep, to, SECONDARY), to, TableStatus(rep.span, ABSENT))


def move(rep: ReplicationSet, to: Address) -> PolledReplication:
    """Let another capture prepare a span that is replicating; otherwise nothing happens."""
    command = ("move", rep.span, to)
    if rep.state != REPLICATING_SET:
        return _refused(rep, command, f"table {rep.span} is {rep.state}, not Replicating")
    if rep.primary == to:
        return _refused(rep, command, f"table {rep.span} is on {to} already")
    if role_of(rep, to) is not None:
        return _refused(rep, command, f"{to} is still stopping table {rep.span}")
    moved = with_role(rep, to, SECONDARY)._replace(state=PREPARE)
    polled = poll(moved, to, TableStatus(rep.span, ABSENT))
    return polled._replace(notes=(*changes(rep, moved, f"it moves from {rep.primary} to {to}"), *polled.notes))


def remove(rep: ReplicationSet) -> PolledReplication:
    """Stop a span that is replicating; otherwise nothing happens, so that the request is repeated."""
    if rep.state != REPLICATING_SET or rep.primary is None:
        return _refused(rep, ("remove", rep.span), f"table {rep.span} is {rep.state}, not Replicating")
    going = rep._replace(state=REMOVING)
    polled = poll(going, rep.primary, TableStatus(rep.span, REPLICATING, rep.checkpoint))
    return polled._replace(notes=(*changes(rep, going, "it is no longer wanted"), *polled.notes))


def shut_down(rep: ReplicationSet, address: Address) -> PolledReplication:
    """Take note that a capture is gone, and with it its session: it writes no more."""
    return poll(rep, address, TableStatus(rep.span, STOPPED))
