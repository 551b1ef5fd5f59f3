"""The owner's records: which table is on which capture and in which state, and what is missing or no longer wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from immutables import Map

from ticdc_lab.machines.machine import CAPTURE, OTHER, TABLE, Address, Decided, Reason, stepped
from ticdc_lab.simulate.scheduler.roles import (
    Drain,
    Key,
    MoveTable,
    OwnerOutput,
    Rebalance,
    Tick,
    in_turn,
    order,
    without,
)
from ticdc_lab.words import count

ADDING, RUNNING, REMOVING = "adding", "running", "removing"

Keys = Map[Key, None]
NO_KEYS: Keys = Map()


class Record(NamedTuple):
    """One table: ``start_ts`` is where this owner let it start, None where another owner did."""

    capture: Address
    status: str
    start_ts: int | None = None


class TableMove(NamedTuple):
    """An order to move a table; ``removed`` once it has left, or is leaving, its capture."""

    to: Address
    removed: bool = False


class Tables(NamedTuple):
    """All records."""

    wanted: frozenset[Key] = frozenset()  # what should be replicated
    records: Map[Key, Record] = Map()  # by table
    on: Map[Address, Keys] = Map()  # the tables of each capture
    # Wanted ones without a record, records of others, and those that are being added or removed.
    missing: Keys = NO_KEYS
    unwanted: Keys = NO_KEYS
    in_flight: Keys = NO_KEYS

    def get(self, key: Key) -> Record | None:
        return self.records.get(key)

    def count_on(self, capture: Address) -> int:
        return len(self.on.get(capture, NO_KEYS))

    def captures(self) -> list[Address]:
        return sorted(c for c, keys in self.on.items() if keys)

    def running(self, key: Key, record: Record) -> Tables:
        """Note that a table that was adding is replicated now."""
        return self._replace(
            records=self.records.set(key, record._replace(status=RUNNING)), in_flight=self.in_flight.delete(key)
        )

    def all_running(self, records: Mapping[Key, Record]) -> Tables:
        """Note that tables that were adding are replicated now."""
        return self._replace(
            records=self.records.update({k: Record(r.capture, RUNNING, r.start_ts) for k, r in records.items()}),
            in_flight=Map((k, None) for k in self.in_flight if k not in records),
        )

    def removed(self, key: Key, record: Record) -> Tables:
        return self._replace(
            records=self.records.delete(key),
            on=self.on.set(record.capture, self.on[record.capture].delete(key)),
            in_flight=self.in_flight.delete(key),
            unwanted=without(self.unwanted, key),
            missing=self.missing.set(key, None) if key in self.wanted else self.missing,
        )

    def draft(self) -> RecordsDraft:
        return RecordsDraft(self)


NO_TABLES = Tables()


def first(keys: Keys) -> Key | None:
    """Give the lowest of a few, one of many tables: the same each time, because integers hash to themselves."""
    many = len(keys) >= 1000 and all(type(key) is int for key in keys)
    return next(iter(keys)) if many else min(keys, key=order, default=None)


class RecordsDraft:
    """Changes to records, at the price of one copy for all of them."""

    def __init__(self, tables: Tables) -> None:
        self.wanted = tables.wanted
        self._before = tables
        self._records = tables.records.mutate()
        self._missing = tables.missing.mutate()
        self._unwanted = tables.unwanted.mutate()
        self._in_flight = tables.in_flight.mutate()
        self.on = {capture: keys.mutate() for capture, keys in sorted(tables.on.items())}

    def want(self, wanted: frozenset[Key]) -> None:
        if wanted is self.wanted:
            return
        for key in wanted - self.wanted:
            if key in self._records:
                self._unwanted.pop(key, None)
            else:
                self._missing[key] = None
        for key in self.wanted - wanted:
            self._missing.pop(key, None)
            if key in self._records:
                self._unwanted[key] = None
        self.wanted = wanted

    def get(self, key: Key) -> Record | None:
        return self._records.get(key)

    def put(self, key: Key, record: Record) -> None:
        """Write a record; the table was nowhere, or on the same capture."""
        self._records[key] = record
        if record.capture not in self.on:
            self.on[record.capture] = NO_KEYS.mutate()
        self.on[record.capture][key] = None
        self._missing.pop(key, None)
        if key not in self.wanted:
            self._unwanted[key] = None
        if record.status == RUNNING:
            self._in_flight.pop(key, None)
        else:
            self._in_flight[key] = None

    def remove(self, key: Key) -> None:
        del self.on[self._records.pop(key).capture][key]
        self._in_flight.pop(key, None)
        self._unwanted.pop(key, None)
        if key in self.wanted:
            self._missing[key] = None

    def missing(self) -> Keys:
        return self._kept("_missing")

    def unwanted(self) -> Keys:
        return self._kept("_unwanted")

    def any_in_flight(self) -> Key | None:
        """Give the first table that is being added or removed."""
        return first(self._kept("_in_flight"))

    def n_in_flight(self) -> int:
        return len(self._in_flight)

    def count_on(self, capture: Address) -> int:
        return len(self.on[capture]) if capture in self.on else 0

    def of(self, capture: Address) -> list[Key]:
        if capture not in self.on:
            return []
        keys = self.on[capture].finish()
        self.on[capture] = keys.mutate()
        return in_turn(keys)

    def _kept(self, name: str) -> Keys:
        """Read one of the sets, which a mutation cannot be iterated for."""
        kept: Keys = getattr(self, name).finish()
        setattr(self, name, kept.mutate())
        return kept

    def done(self) -> Tables:
        on = {capture: keys.finish() for capture, keys in self.on.items()}
        return Tables(
            self.wanted,
            self._records.finish(),
            Map({capture: keys for capture, keys in on.items() if keys}),
            self._missing.finish(),
            self._unwanted.finish(),
            self._in_flight.finish(),
        )


# What an owner of the design's protocol (v2) knows, and what it reads out of it.

UNINITIALIZED, SYNC_SENT, SYNCED, INCOMPATIBLE = "uninitialized", "sync-sent", "synced", "incompatible"


@stepped
class CaptureStatus(NamedTuple):
    """What the owner knows of a capture; the watermarks are the owner's own until the capture reports."""

    sync: str
    checkpoint_ts: int
    resolved_ts: int
    epoch: int = 0
    slowest: Key | None = None


@stepped
class DispatcherState(NamedTuple):
    """An owner."""

    # Who it is, and its revision.
    address: Address
    owner_rev: int
    captures: Map[Address, CaptureStatus] = Map()  # by address
    tables: Tables = NO_TABLES  # records of all tables it knows of
    moves: Map[Key, TableMove] = Map()  # moves that users asked for, by table
    draining: frozenset[Address] = frozenset()  # captures that are to be without tables
    needs_rebalance: bool = False  # a capture came or went, or a user asked
    members: frozenset[Address] | None = None  # the captures of the last tick; None before the first
    checked_us: int = 0  # when the balance was looked at last
    stuck: Reason | None = None  # why the checkpoint cannot proceed, and since when
    said: str = ""  # the last reason for doing nothing, which is not repeated


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
    moves = state.moves.set(command.table, TableMove(command.to))
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
        outputs.append(
            Decided(f"tables of {capture}", "dispatch again", f"{capture} is gone with {count(len(keys), 'table')}")
        )
    return state._replace(tables=draft.done())


def in_flight(tables: Tables) -> Reason | None:
    """Name the table that keeps the checkpoint from proceeding."""
    key = first(tables.in_flight)
    return waits_for(key, None if key is None else tables.records[key], len(tables.in_flight))


def waits_for(key: Key | None, record: Record | None, n: int) -> Reason | None:
    """Report that the checkpoint waits for a table, the first of ``n`` that are in flight."""
    if record is None:
        return None
    more = f", and {n - 1} more" if n > 1 else ""
    return Reason(TABLE, str(key), f"table {key} is {record.status} on {record.capture}{more}")


def unsynced(state: DispatcherState) -> Reason | None:
    """Name a capture that has not synced, None if all have."""
    waiting = [(c, s.sync) for c, s in state.captures.items() if s.sync != SYNCED]
    if not waiting:
        return None if state.captures else Reason(OTHER, "", "no capture is alive")
    capture, sync = min(waiting)
    why = {
        UNINITIALIZED: "cannot be reached to announce the owner",
        SYNC_SENT: "has not synced",
        INCOMPATIBLE: "has an incompatible version",
    }[sync]
    more = f", and {len(waiting) - 1} more" if len(waiting) > 1 else ""
    return Reason(CAPTURE, capture, f"{capture} {why}{more}")
