"""One span of the owner as a pure state machine: Absent, Prepare, Commit, Replicating, Removing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

# Who has one span, and in which role: the record of the owner that :data:`TURNS` changes.

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
    if any(status.state == PREPARED for status in statuses.values()):
        return replication._replace(state=COMMIT)
    if has_role(replication, SECONDARY):
        return replication._replace(state=PREPARE)
    if replication.primary is not None:
        return replication._replace(state=REPLICATING_SET)
    return replication._replace(state=REMOVING if replication.captures else ABSENT_SET)


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


# What a report of one capture does to a replication set.
#
# ::
#
# Absent --add--> Prepare --prepared--> Commit --replicating--> Replicating --remove--> Removing
#                    ^                                               |
#                    +-------------------- move ---------------------+
#
# A span that has gone from Commit or Prepare may be Absent or Replicating again when a capture leaves.
#
# Safer than TiCDC at four places, where it would let a destination write while another capture may still do so or
# would wait without end: (1) Prepare, the primary reports Stopping: it stays the primary until it has stopped, TiCDC
# forgets it; (2) Commit, the primary has stopped and a capture is undetermined: none is promoted yet; (3)
# Replicating, the primary reports Absent: as Stopped, TiCDC ignores it, which is final if the Stopped was lost;
# (4) an undetermined capture that has stopped or is gone has no role any more in any state (:func:`poll`), TiCDC sees
# that in Commit and Removing only.


PREPARES, WRITES, STOPS, PRIMARY_STOPS = "prepares", "writes", "stops", "primary stops"
WRITES_ALONE = "writes alone"
"""What is sent: to the sender to prepare the span or to stop it; to the primary to write it, in one case only if no
capture prepares it any more, or to stop it."""
Change: TypeAlias = Callable[["ReplicationSet", Address, TableStatus], "ReplicationSet"]
HAS, LACKS = True, False


class SetTurn(NamedTuple):
    """A row of :data:`TURNS`: it counts for some roles of the sender and some reports, under a condition.

    ``when``: whether some capture has a role. ``then``: the next state, in which the report is looked at once more;
    empty where it stays. ``does``: what becomes of roles and checkpoint; None where two would replicate it.
    """

    role: str
    reports: tuple[str, ...]
    when: tuple[str, bool] | None = None
    then: str = ""
    does: Change | None = lambda rep, sender, status: rep
    sends: str = ""
    because: str = ""


def _second(rep: ReplicationSet, sender: Address, status: TableStatus) -> ReplicationSet:
    return with_role(rep, sender, SECONDARY)


def _advance(rep: ReplicationSet, sender: Address, status: TableStatus) -> ReplicationSet:
    return advanced(rep, status)


def _leave(rep: ReplicationSet, sender: Address, status: TableStatus) -> ReplicationSet:
    return without(rep, sender)


def _end(rep: ReplicationSet, sender: Address, status: TableStatus) -> ReplicationSet:
    return without(advanced(rep, status), sender)


def _promote(rep: ReplicationSet, sender: Address, status: TableStatus) -> ReplicationSet:
    return promoted(rep, sender)


def _hand_over(rep: ReplicationSet, sender: Address, status: TableStatus) -> ReplicationSet:
    secondary = first_in(rep, SECONDARY)
    assert secondary is not None
    return promoted(_end(rep, sender, status), secondary)


ANY, P, S, U = "", PRIMARY, SECONDARY, UNDETERMINED
ENDED = (STOPPED, ABSENT)
_ENDS, _WAITS = "the primary {sender} has stopped", "; another capture may still be writing"
_ALONE = "{sender} is prepared and no other capture can be writing"
TURNS: Mapping[str, tuple[SetTurn, ...]] = {
    ABSENT_SET: (
        SetTurn(ANY, (ABSENT,), None, PREPARE, _second, "", "{sender} is to prepare it"),
        SetTurn(ANY, (STOPPED,)),
    ),
    PREPARE: (
        SetTurn(S, (ABSENT,), sends=PREPARES),
        SetTurn(S, (PREPARING,)),
        SetTurn(S, (PREPARED,), then=COMMIT, because="{sender} is prepared"),
        SetTurn(S, (STOPPING, STOPPED), (P, HAS), REPLICATING_SET, _leave, "", "{sender} has stopped preparing it"),
        SetTurn(S, (STOPPING, STOPPED), None, ABSENT_SET, _leave, "", "{sender} has stopped preparing it"),
        SetTurn(P, (REPLICATING,), does=_advance),
        SetTurn(P, (STOPPED,), None, "", _leave, "", f"{_ENDS} while another capture prepares"),
    ),
    COMMIT: (  # the primary must stop, then the secondary becomes the primary
        SetTurn(S, (PREPARED,), (P, HAS), sends=PRIMARY_STOPS),
        SetTurn(S, (PREPARED,), (U, HAS)),
        SetTurn(S, (PREPARED,), None, "", _promote, WRITES_ALONE, _ALONE),
        SetTurn(P, (PREPARED,), (S, LACKS), sends=WRITES),
        SetTurn(P, ENDED, (S, LACKS), ABSENT_SET, _end, "", _ENDS),
        SetTurn(P, ENDED, (U, HAS), "", _end, "", f"{_ENDS}{_WAITS}"),
        SetTurn(P, ENDED, None, "", _hand_over, WRITES, _ENDS),
        SetTurn(S, ENDED, (P, HAS), "", _leave, "", "the secondary {sender} has stopped"),
        SetTurn(S, ENDED, None, ABSENT_SET, _leave, "", "the secondary {sender} has stopped"),
        SetTurn(P, (REPLICATING,), (S, HAS), "", _advance, STOPS),
        SetTurn(P, (REPLICATING,), None, REPLICATING_SET, _advance, "", "{sender} replicates it"),
        SetTurn(ANY, (REPLICATING,), does=None),
        SetTurn(P, (STOPPING,), (S, HAS), does=_advance),
        SetTurn(U, (STOPPING,)),
    ),
    REPLICATING_SET: (
        SetTurn(P, (REPLICATING,), does=_advance),
        SetTurn(ANY, (REPLICATING,), does=None),
        SetTurn(P, ENDED, None, ABSENT_SET, _end, "", _ENDS),
    ),
    REMOVING: (
        SetTurn(ANY, (PREPARING, PREPARED, REPLICATING), sends=STOPS),
        SetTurn(ANY, ENDED, None, "", _leave, "", "{sender} has stopped"),
        SetTurn(ANY, (STOPPING,)),
    ),
}
"""By the state of the set: the first row that counts for a report; one without a row is ignored."""


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
    if role == UNDETERMINED and status.state in ENDED:
        return PolledReplication(without(rep, sender))
    requests: list[tuple[Address, Request]] = []
    notes: list[Note] = []
    turn = _turn(rep, role, status.state)
    if turn is None:
        notes.append(Ignored(status, f"{sender} says {status.state} in {rep.state}"))
    while turn is not None:
        if turn.does is None:
            return PolledReplication(rep, tuple(requests), (*notes, two_primaries(rep, sender)))
        after = turn.does(rep, sender, status)
        after = after._replace(state=turn.then) if turn.then else after
        if after is not rep:
            notes += changes(rep, after, turn.because.format(sender=sender))
        if turn.sends and not (turn.sends == WRITES_ALONE and has_role(after, SECONDARY)):
            to = sender if turn.sends in (PREPARES, STOPS) or after.primary is None else after.primary
            stops = turn.sends in (STOPS, PRIMARY_STOPS)
            add = AddTable(after.span, turn.sends == PREPARES, after.checkpoint)
            requests.append((to, RemoveTable(after.span) if stops else add))
        rep = after
        turn = _turn(rep, role_of(rep, sender), status.state) if turn.then else None
    return PolledReplication(rep, tuple(requests), tuple(notes))


def _turn(rep: ReplicationSet, role: str | None, reported: str) -> SetTurn | None:
    for turn in TURNS[rep.state]:
        counts = turn.role in (ANY, role) and reported in turn.reports
        if counts and (turn.when is None or has_role(rep, turn.when[0]) == turn.when[1]):
            return turn
    return None


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
