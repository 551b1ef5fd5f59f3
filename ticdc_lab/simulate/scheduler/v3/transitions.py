"""What a report of one capture does to a replication set, state by state.

Safer than TiCDC at four places, where it would let a destination write while another capture may still do so or would
wait for ever: (1) Prepare, the primary reports Stopping: it stays the primary until it has stopped, TiCDC forgets it;
(2) Commit, the primary has stopped and somebody is undetermined: nobody is promoted yet; (3) Replicating, the primary
reports Absent: as Stopped, TiCDC ignores it, which is for ever where the Stopped was lost; (4) an undetermined capture
that has stopped or is gone has no role any more in any state (:func:`.replication_set.poll`), TiCDC sees that in Commit
and Removing only.
"""

from __future__ import annotations

from typing import NamedTuple

from ticdc_lab.simulate.machine import Address, Broken
from ticdc_lab.simulate.scheduler.v3 import replication as r
from ticdc_lab.simulate.scheduler.v3.messages import (
    ABSENT,
    PREPARED,
    PREPARING,
    REPLICATING,
    STOPPED,
    STOPPING,
    AddTable,
    RemoveTable,
    Request,
    TableStatus,
)
from ticdc_lab.simulate.scheduler.v3.replication import ReplicationSet


class Turn(NamedTuple):
    """What one report led to.

    ``again`` asks to look at the report once more in the new state, ``unexpected`` says that it was ignored.
    """

    replication: ReplicationSet
    because: str = ""
    request: tuple[Address, Request] | None = None
    again: bool = False
    unexpected: bool = False
    broken: Broken | None = None


def on_absent(rep: ReplicationSet, sender: Address, status: TableStatus) -> Turn:
    """Nobody has the span; an Absent of a capture that was chosen for it begins the preparation."""
    if status.state == ABSENT:
        prepared = r.with_role(rep, sender, r.SECONDARY)._replace(state=r.PREPARE)
        return Turn(prepared, f"{sender} is to prepare it", again=True)
    return Turn(rep, unexpected=status.state != STOPPED)


def on_prepare(rep: ReplicationSet, sender: Address, status: TableStatus) -> Turn:
    """A secondary prepares; a primary goes on, where there is one."""
    if r.role_of(rep, sender) == r.SECONDARY:
        return _secondary_in_prepare(rep, sender, status)
    if rep.primary == sender:
        if status.state == REPLICATING:
            return Turn(r.advanced(rep, status))
        if status.state == STOPPED:
            return Turn(r.without(rep, sender), f"the primary {sender} has stopped while another capture prepares")
    return Turn(rep, unexpected=True)


def _secondary_in_prepare(rep: ReplicationSet, sender: Address, status: TableStatus) -> Turn:
    if status.state == ABSENT:
        return Turn(rep, request=(sender, AddTable(rep.span, True, rep.checkpoint)))
    if status.state == PREPARED:
        return Turn(rep._replace(state=r.COMMIT), f"{sender} is prepared", again=True)
    if status.state in (STOPPING, STOPPED):
        state = r.ABSENT_SET if rep.primary is None else r.REPLICATING_SET
        return Turn(r.without(rep, sender)._replace(state=state), f"{sender} has stopped preparing it", again=True)
    return Turn(rep, unexpected=status.state != PREPARING)


def on_commit(rep: ReplicationSet, sender: Address, status: TableStatus) -> Turn:
    """A secondary is prepared: the primary must stop, then the secondary becomes the primary."""
    if status.state == PREPARED:
        return _prepared_in_commit(rep, sender)
    if status.state in (STOPPED, ABSENT):
        return _stopped_in_commit(rep, sender, status)
    if status.state == REPLICATING:
        return _replicating_in_commit(rep, sender, status)
    if status.state == STOPPING:
        if rep.primary == sender and r.has_role(rep, r.SECONDARY):
            return Turn(r.advanced(rep, status))
        return Turn(rep, unexpected=r.role_of(rep, sender) != r.UNDETERMINED)
    return Turn(rep, unexpected=True)


def _prepared_in_commit(rep: ReplicationSet, sender: Address) -> Turn:
    because = ""
    if r.role_of(rep, sender) == r.SECONDARY:
        if rep.primary is not None:
            return Turn(rep, request=(rep.primary, RemoveTable(rep.span)))
        if r.has_role(rep, r.UNDETERMINED):
            return Turn(rep)
        rep, because = r.promoted(rep, sender), f"{sender} is prepared and nobody else can be writing"
    if rep.primary == sender and not r.has_role(rep, r.SECONDARY):
        return Turn(rep, because, request=(sender, AddTable(rep.span, False, rep.checkpoint)))
    return Turn(rep, because, unexpected=not because)


def _stopped_in_commit(rep: ReplicationSet, sender: Address, status: TableStatus) -> Turn:
    role = r.role_of(rep, sender)
    if role == r.PRIMARY:
        return _primary_stopped_in_commit(r.without(r.advanced(rep, status), sender), sender)
    if role == r.SECONDARY:
        left = r.without(rep, sender)
        left = left._replace(state=r.ABSENT_SET) if left.primary is None else left
        return Turn(left, f"the secondary {sender} has stopped", again=True)
    return Turn(rep, unexpected=True)


def _primary_stopped_in_commit(rep: ReplicationSet, sender: Address) -> Turn:
    because = f"the primary {sender} has stopped"
    secondary = r.first_in(rep, r.SECONDARY)
    if secondary is None:
        return Turn(rep._replace(state=r.ABSENT_SET), because, again=True)
    if r.has_role(rep, r.UNDETERMINED):
        return Turn(rep, f"{because}; somebody else may still be writing")
    rep = r.promoted(rep, secondary)
    return Turn(rep, because, request=(secondary, AddTable(rep.span, False, rep.checkpoint)))


def _replicating_in_commit(rep: ReplicationSet, sender: Address, status: TableStatus) -> Turn:
    if rep.primary != sender:
        return Turn(rep, broken=r.two_primaries(rep, sender))
    rep = r.advanced(rep, status)
    if r.has_role(rep, r.SECONDARY):
        return Turn(rep, request=(sender, RemoveTable(rep.span)))
    return Turn(rep._replace(state=r.REPLICATING_SET), f"{sender} replicates it", again=True)


def on_replicating(rep: ReplicationSet, sender: Address, status: TableStatus) -> Turn:
    """The primary replicates, nobody prepares."""
    if status.state == REPLICATING:
        if rep.primary == sender:
            return Turn(r.advanced(rep, status))
        return Turn(rep, broken=r.two_primaries(rep, sender))
    if status.state in (STOPPED, ABSENT) and rep.primary == sender:
        left = r.without(r.advanced(rep, status), sender)._replace(state=r.ABSENT_SET)
        return Turn(left, f"the primary {sender} has stopped", again=True)
    return Turn(rep, unexpected=True)


def on_removing(rep: ReplicationSet, sender: Address, status: TableStatus) -> Turn:
    """All captures must stop."""
    if status.state in (PREPARING, PREPARED, REPLICATING):
        return Turn(rep, request=(sender, RemoveTable(rep.span)))
    if status.state in (ABSENT, STOPPED):
        return Turn(r.without(rep, sender), f"{sender} has stopped")
    return Turn(rep, unexpected=status.state != STOPPING)


TURNS = {
    r.ABSENT_SET: on_absent,
    r.PREPARE: on_prepare,
    r.COMMIT: on_commit,
    r.REPLICATING_SET: on_replicating,
    r.REMOVING: on_removing,
}
"""By the state of the set."""
