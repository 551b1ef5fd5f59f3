"""Who has one span, and in which role: the record of the owner that the transitions of :mod:`.transitions` change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ticdc_lab.simulate.machine import Address, Broken
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v3.messages import (
    PREPARED,
    PREPARING,
    REPLICATING,
    STOPPING,
    Checkpoint,
    TableStatus,
)

ABSENT_SET, PREPARE, COMMIT = "Absent", "Prepare", "Commit"
REPLICATING_SET, REMOVING = "Replicating", "Removing"
SET_STATES = (ABSENT_SET, PREPARE, COMMIT, REPLICATING_SET, REMOVING)
"""The states of a replication set."""

PRIMARY, SECONDARY, UNDETERMINED = "Primary", "Secondary", "Undetermined"
"""Roles: it writes or will, it prepares or is prepared, it was found stopping and may still write."""


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
    """Give a span that nobody has."""
    return ReplicationSet(span, ABSENT_SET, None, (), Checkpoint(checkpoint_ts, checkpoint_ts), checkpoint_ts)


def rebuilt(span: Key, checkpoint_ts: int, statuses: Mapping[Address, TableStatus]) -> ReplicationSet | Broken:
    """Make the record from what the captures say of the span: the owner is new.

    A capture that is stopping it may have been the primary and may still write, so that its role stays undetermined
    until it says Stopped or Absent. Two captures that replicate it are a violation.
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
    """Say that two captures replicate the span."""
    return Broken(
        "one primary",
        f"table {replication.span}: {other} replicates it, and so does {replication.primary or 'another capture'} "
        f"({replication.state}, {dict(replication.captures)})",
    )


def role_of(replication: ReplicationSet, address: Address) -> str | None:
    """Give the role of a capture."""
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
    """Whether any capture is in a role."""
    return first_in(replication, role) is not None


def with_role(replication: ReplicationSet, address: Address, role: str) -> ReplicationSet:
    """Give a capture a role."""
    others = [pair for pair in replication.captures if pair[0] != address]
    return replication._replace(captures=tuple(sorted([*others, (address, role)])))


def without(replication: ReplicationSet, address: Address) -> ReplicationSet:
    """Take a capture out."""
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
    """Whether it was to be removed and nobody has it any more."""
    return replication.state == REMOVING and not replication.captures
