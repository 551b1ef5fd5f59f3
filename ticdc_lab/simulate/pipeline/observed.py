"""What can be seen of a state of the pipeline: the parts that figures and explanations read.

States are immutable, so a run keeps one for every few milliseconds and these facts are made on demand.
"""

from __future__ import annotations

from typing import NamedTuple

from ticdc_lab.machines.machine import Reason
from ticdc_lab.simulate.pipeline.tables import Value


class HeldLock(NamedTuple):
    """The locks of one transaction in one region."""

    start_ts: int
    primary: int
    keys: tuple[int, ...]


class RegionFacts(NamedTuple):
    """A region on the store that leads it; ``resolved_ts`` is what its CDC component sent last, 0 before."""

    id: int
    store: str
    start: int
    end: int
    epoch: int
    resolved_ts: int
    locks: tuple[HeldLock, ...]
    subscribers: tuple[str, ...]
    scanning: tuple[str, ...]


class CfRow(NamedTuple):
    """One entry of a column family."""

    cf: str  # ``lock``, ``default`` or ``write``
    key: int
    # The timestamp in its key: none (0) in lock, start_ts in default, commit_ts in write (start_ts of a rollback).
    ts: int
    start_ts: int  # in its value: of the transaction
    kind: str  # ``put``, ``delete`` or ``rollback``
    value: Value | None


class StreamFacts(NamedTuple):
    """A region as a puller sees it: ``state`` is ``asking``, ``scanning``, ``streaming`` or ``waiting``."""

    region: int
    store: str
    start: int
    end: int
    state: str
    resolved_ts: int
    since_us: int


class TableFacts(NamedTuple):
    """The data path of a table in a capture."""

    table: int
    name: str
    state: str  # of the scheduler's pipeline: ``preparing``, ``prepared``, ``replicating``, ``stopping``
    start_ts: int
    # Its watermarks.
    resolved_ts: int
    checkpoint_ts: int
    streams: tuple[StreamFacts, ...]  # the regions of its puller
    # Rows in the puller whose prewrite or commit is missing, in the sorter's memory, on its disk, due and not yet
    # mounted or held back by the sink's window, written and not acknowledged.
    unmatched: int
    sorting: int
    spilled: int
    mounting: int
    under_way: int
    # commit_ts of the oldest row under way, and since when it is; None without one.
    oldest_under_way_ts: int | None
    oldest_since_us: int | None
    # Rows so far.
    received: int
    written: int


class CaptureFacts(NamedTuple):
    """A capture: ``limit_ts`` is up to where it may write, ``barrier_ts`` and ``jobs`` are the owner's next DDLs.

    ``mounting_until_us`` is when its pool of mounters is free.
    """

    address: str
    is_owner: bool
    limit_ts: int
    resolved_ts: int
    checkpoint_ts: int
    ddl_resolved_ts: int
    ddl_streams: tuple[StreamFacts, ...]
    jobs: tuple[tuple[int, str], ...]
    executing_ts: int | None
    tables: tuple[TableFacts, ...]
    mounting_until_us: int = 0


class Reported(NamedTuple):
    """What the owner has heard of a capture last, and the tables that it counts there."""

    capture: str
    checkpoint_ts: int
    resolved_ts: int
    tables: tuple[int, ...] = ()


class Moment(NamedTuple):
    """A sample of a run."""

    at_us: int  # when, µs of virtual time
    # The global watermarks, as etcd has them.
    checkpoint_ts: int
    resolved_ts: int
    captures: tuple[CaptureFacts, ...] = ()  # those that run
    regions: tuple[RegionFacts, ...] = ()  # those that have a leader which runs
    # What the owner has of each capture that it counts; empty where nothing is known of it.
    reported: tuple[Reported, ...] = ()
    down: tuple[str, ...] = ()  # nodes that are down or paused, sorted
    stuck: Reason | None = None  # why the owner cannot count the watermarks, and since when; None where it can
    is_stopped: bool = False  # whether it is of a changefeed that a user has stopped

    @property
    def owner(self) -> CaptureFacts | None:
        return next((c for c in self.captures if c.is_owner), None)
