"""One span of the owner as a pure state machine: Absent, Prepare, Commit, Replicating, Removing.

::

    Absent --add--> Prepare --prepared--> Commit --replicating--> Replicating --remove--> Removing
                       ^                                               |
                       +------------------------ move -----------------+

A span that has gone from Commit or Prepare may be Absent or Replicating again when a capture leaves.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ticdc_lab.simulate.machine import Address, Broken, Changed, Ignored
from ticdc_lab.simulate.scheduler.v3 import replication as r
from ticdc_lab.simulate.scheduler.v3.messages import ABSENT, REPLICATING, STOPPED, Request, TableStatus
from ticdc_lab.simulate.scheduler.v3.replication import ReplicationSet
from ticdc_lab.simulate.scheduler.v3.transitions import TURNS

Note: TypeAlias = Changed | Ignored | Broken


class Polled(NamedTuple):
    """The next record, the requests to send, and what to tell of it.

    ``Changed`` has the subject ``replication:SPAN`` for the state and ``primary:SPAN`` for the primary.
    """

    replication: ReplicationSet
    requests: tuple[tuple[Address, Request], ...] = ()
    notes: tuple[Note, ...] = ()


def poll(rep: ReplicationSet, sender: Address, status: TableStatus) -> Polled:
    """Take the report of one capture; of one without a role nothing happens."""
    role = r.role_of(rep, sender)
    if role is None:
        return Polled(rep)
    if status.span != rep.span:
        return Polled(rep, (), (Broken("one span", f"{sender} reports {status.span} for {rep.span}"),))
    if role == r.UNDETERMINED and status.state in (ABSENT, STOPPED):
        return Polled(r.without(rep, sender))
    requests: list[tuple[Address, Request]] = []
    notes: list[Note] = []
    first, again = True, True
    while again:
        turn = TURNS[rep.state](rep, sender, status)
        if turn.broken:
            return Polled(rep, tuple(requests), (*notes, turn.broken))
        if turn.unexpected and first:
            notes.append(Ignored(status, f"{sender} says {status.state} in {rep.state}"))
        if turn.replication is not rep:
            notes += changes(rep, turn.replication, turn.because)
        if turn.request:
            requests.append(turn.request)
        rep, again, first = turn.replication, turn.again, False
    return Polled(rep, tuple(requests), tuple(notes))


def changes(before: ReplicationSet, after: ReplicationSet, because: str) -> list[Note]:
    """Tell what people know by name and is another now."""
    said: list[Note] = []
    if before.state != after.state:
        said.append(Changed(f"replication:{after.span}", before.state, after.state, because))
    if before.primary != after.primary:
        said.append(Changed(f"primary:{after.span}", before.primary, after.primary, because))
    return said


def add(rep: ReplicationSet, to: Address) -> Polled:
    """Let a capture prepare a span that nobody has; otherwise nothing happens."""
    if rep.state != r.ABSENT_SET:
        return Polled(rep, (), (Ignored(("add", rep.span, to), f"table {rep.span} is {rep.state}, not Absent"),))
    if r.role_of(rep, to) == r.UNDETERMINED:
        return Polled(rep, (), (Ignored(("add", rep.span, to), f"{to} is still stopping table {rep.span}"),))
    return poll(r.with_role(rep, to, r.SECONDARY), to, TableStatus(rep.span, ABSENT))


def move(rep: ReplicationSet, to: Address) -> Polled:
    """Let another capture prepare a span that is replicating; otherwise nothing happens."""
    if rep.state != r.REPLICATING_SET:
        return Polled(rep, (), (Ignored(("move", rep.span, to), f"table {rep.span} is {rep.state}, not Replicating"),))
    if rep.primary == to:
        return Polled(rep, (), (Ignored(("move", rep.span, to), f"table {rep.span} is on {to} already"),))
    if r.role_of(rep, to) is not None:
        return Polled(rep, (), (Ignored(("move", rep.span, to), f"{to} is still stopping table {rep.span}"),))
    moved = r.with_role(rep, to, r.SECONDARY)._replace(state=r.PREPARE)
    polled = poll(moved, to, TableStatus(rep.span, ABSENT))
    return polled._replace(notes=(*changes(rep, moved, f"it moves from {rep.primary} to {to}"), *polled.notes))


def remove(rep: ReplicationSet) -> Polled:
    """Stop a span that is replicating; otherwise nothing happens, so that whoever wants it gone asks again."""
    if rep.state != r.REPLICATING_SET or rep.primary is None:
        return Polled(rep, (), (Ignored(("remove", rep.span), f"table {rep.span} is {rep.state}, not Replicating"),))
    going = rep._replace(state=r.REMOVING)
    polled = poll(going, rep.primary, TableStatus(rep.span, REPLICATING, rep.checkpoint))
    return polled._replace(notes=(*changes(rep, going, "nobody wants it any more"), *polled.notes))


def shut_down(rep: ReplicationSet, address: Address) -> Polled:
    """Take note that a capture is gone, and with it its session: it writes no more."""
    return poll(rep, address, TableStatus(rep.span, STOPPED))
