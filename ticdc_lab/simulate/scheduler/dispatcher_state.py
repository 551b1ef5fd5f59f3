"""What an owner of the design's protocol (v2) knows, and what it reads out of it."""

from __future__ import annotations

from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.machine import Address, Decided
from ticdc_lab.simulate.scheduler.messages import Sync
from ticdc_lab.simulate.scheduler.roles import Drain, Key, MoveTable, OwnerOutput, Rebalance, Tick
from ticdc_lab.simulate.scheduler.tables import NO_TABLES, REMOVING, Move, Tables, first

UNINITIALIZED, SYNC_SENT, SYNCED, INCOMPATIBLE = "uninitialized", "sync-sent", "synced", "incompatible"


class CaptureStatus(NamedTuple):
    """What the owner knows of a capture; the watermarks are the owner's own until the capture reports."""

    sync: str
    checkpoint_ts: int
    resolved_ts: int
    epoch: int = 0
    slowest: Key | None = None


class DispatcherState(NamedTuple):
    """An owner.

    Attributes
    ----------
    address, owner_rev
        Who it is, and its revision.
    captures
        By address.
    tables
        Records of all tables it knows of.
    moves
        Moves that users asked for, by table.
    draining
        Captures that are to be without tables.
    needs_rebalance
        A capture came or went, or a user asked.
    members
        The captures of the last tick; None before the first.
    checked_us
        When the balance was looked at last.
    stuck
        Why the checkpoint cannot proceed and since when, µs.
    said
        The last reason for doing nothing, which is not said twice.
    """

    address: Address
    owner_rev: int
    captures: Map[Address, CaptureStatus] = Map()
    tables: Tables = NO_TABLES
    moves: Map[Key, Move] = Map()
    draining: frozenset[Address] = frozenset()
    needs_rebalance: bool = False
    members: frozenset[Address] | None = None
    checked_us: int = 0
    stuck: tuple[str, int] | None = None
    said: str = ""


def commanded(state: DispatcherState, command: object) -> tuple[DispatcherState, list[OwnerOutput]]:
    """Take a user's command."""
    if isinstance(command, Rebalance):
        return state._replace(needs_rebalance=True), [Decided("rebalance", "asked for", "a user wants it")]
    if isinstance(command, Drain):
        draining = state.draining | {command.capture}
        return state._replace(draining=draining, needs_rebalance=True), [
            Decided("drain", command.capture, "a user wants it without tables")
        ]
    if not isinstance(command, MoveTable):
        return state, []
    record = state.tables.get(command.table)
    if record is not None and record.capture == command.to and record.status != REMOVING:
        return state, [Decided(f"move:{command.table}", None, f"it is on {command.to} already")]
    if command.table in state.moves:
        return state, [Decided(f"move:{command.table}", None, f"it is moving to {state.moves[command.table].to}")]
    moves = state.moves.set(command.table, Move(command.to))
    return state._replace(moves=moves), [Decided(f"move:{command.table}", command.to, "a user wants it there")]


def without_the_lost(state: DispatcherState, tick: Tick, outputs: list[OwnerOutput]) -> DispatcherState:
    """Drop the records of captures that left: their tables are dispatched again, from the global checkpoint."""
    lost = [c for c in state.tables.captures() if c not in tick.captures]
    if not lost:
        return state
    draft = state.tables.draft()
    for capture in lost:
        keys = draft.of(capture)
        for key in keys:
            draft.remove(key)
        outputs.append(Decided(f"tables of {capture}", "dispatch again", f"{capture} is gone with {len(keys)} tables"))
    return state._replace(tables=draft.done())


def in_flight(tables: Tables) -> str | None:
    """Say which table keeps the checkpoint from proceeding."""
    key = first(tables.in_flight)
    if key is None:
        return None
    record, more = tables.records[key], len(tables.in_flight) - 1
    return f"table {key} is {record.status} on {record.capture}" + (f", and {more} more" if more else "")


def unsynced(state: DispatcherState) -> str | None:
    """Say which capture has not synced, None where all have."""
    waiting = sorted((c, s.sync) for c, s in state.captures.items() if s.sync != SYNCED)
    if not waiting:
        return None if state.captures else "no capture is alive"
    capture, sync = waiting[0]
    why = {
        UNINITIALIZED: "cannot be reached to announce the owner",
        SYNC_SENT: "has not synced",
        INCOMPATIBLE: "has an incompatible version",
    }[sync]
    return f"{capture} {why}" + (f", and {len(waiting) - 1} more" if len(waiting) > 1 else "")


def counted(sync: Sync) -> str:
    """Count what a Sync tells."""
    return f"{len(sync.running)} running, {len(sync.adding)} adding, {len(sync.removing)} removing"
