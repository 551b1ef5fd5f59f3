"""What a capture with a data path knows: the scheduler's state, the paths of its tables, DDL jobs and schema."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.simulate.machine import Address
from ticdc_lab.simulate.pipeline.capture.path_state import Path, Puller, Row
from ticdc_lab.simulate.pipeline.tables import Job, TableInfo
from ticdc_lab.simulate.scheduler.capture_state import CaptureState
from ticdc_lab.simulate.scheduler.etcd_messages import View
from ticdc_lab.simulate.scheduler.roles import Key


class Version(NamedTuple):
    """A table from ``ts`` on; None where it is gone."""

    ts: int
    info: TableInfo | None


Schema: TypeAlias = "Map[int, tuple[Version, ...]]"


class Ddl(NamedTuple):
    """The DDL puller: rows that are not resolved, the schema up to resolved_ts, and the jobs that may be needed."""

    puller: Puller
    schema: Schema
    rows: tuple[Row, ...] = ()
    jobs: tuple[tuple[int, Job], ...] = ()
    applied: tuple[int, int] = (0, 0)

    @property
    def resolved_ts(self) -> int:
        """Give the ts up to which every job is known."""
        return self.puller.resolved_ts


class KvClient(NamedTuple):
    """All streams of a capture: ``owners`` says whose a request is, ``waiting`` whose turn to be scanned comes."""

    next_id: int = 1
    owners: Map[int, Key] = Map()
    waiting: tuple[int, ...] = ()
    scanning: int = 0


class Duty(NamedTuple):
    """What an owner has done about DDLs.

    Attributes
    ----------
    rev
        Its owner-rev.
    executed
        finished_ts and id of the last job that it knows to be executed.
    executing, asked_us
        The job that the downstream executes, and when it was asked last.
    told_ts
        The last checkpoint that the downstream was told.
    wanted, wanted_ts
        The tables as of ``executed``: one object while they do not change.
    put
        The tables that etcd was told last.
    waits
        Whether its DDL puller has not come to the checkpoint.
    partitions
        The number of partitions that a user wants: no table is wanted until it is there.
    empty_us
        Since when no table is dispatched, None while some are.
    """

    rev: int
    executed: tuple[int, int]
    executing: tuple[int, int] | None = None
    asked_us: int = 0
    told_ts: int = 0
    wanted: frozenset[Key] = frozenset()
    wanted_ts: int = -1
    put: frozenset[Key] | None = None
    waits: bool = False
    partitions: int | None = None
    empty_us: int | None = None


class DataState(NamedTuple):
    """A capture: ``inner`` is the scheduler's, whose parts are given under their own names too.

    ``n_writes`` counts the writes that were sent, and is the id of the last; ``mounting_until_us`` is when the pool of
    mounters has nothing to do any more.
    """

    inner: CaptureState
    ddl: Ddl
    paths: Map[Key, Path] = Map()
    kv: KvClient = KvClient()
    duty: Duty | None = None
    n_writes: int = 0
    mounting_until_us: int = 0

    @property
    def address(self) -> Address:
        """Give its id in etcd."""
        return self.inner.address

    @property
    def processor(self) -> Any:
        """Give the scheduler's processor, with its executor."""
        return self.inner.processor

    @property
    def owner(self) -> Any:
        """Give the scheduler's owner, None while another capture is elected."""
        return self.inner.owner

    @property
    def view(self) -> View | None:
        """Give what etcd told last."""
        return self.inner.view

    @property
    def checkpoint_ts(self) -> int:
        """Give the persisted global checkpoint_ts as this capture heard."""
        return self.inner.checkpoint_ts

    @property
    def resolved_ts(self) -> int:
        """Give the persisted global resolved_ts as this capture heard."""
        return self.inner.resolved_ts

    @property
    def ends_us(self) -> int:
        """Give when it must stop to write, on its own clock."""
        return self.inner.ends_us

    @property
    def stuck(self) -> str | None:
        """Give why the checkpoint does not proceed; only of an owner."""
        return self.inner.stuck
