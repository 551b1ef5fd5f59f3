"""What a capture with a data path knows, and one step of it at work."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.machines.machine import Address, Changed, Now, Reason, Wake, stepped
from ticdc_lab.simulate.pipeline.cdc_messages import KvRow
from ticdc_lab.simulate.pipeline.settings import AT_MOST_ONCE, CaptureSettings
from ticdc_lab.simulate.pipeline.sink_messages import Write
from ticdc_lab.simulate.pipeline.tables import META, FinishedJob, TableInfo
from ticdc_lab.simulate.scheduler.capture import CaptureState
from ticdc_lab.simulate.scheduler.etcd_messages import View
from ticdc_lab.simulate.scheduler.executor import MAX_TS, Executor
from ticdc_lab.simulate.scheduler.roles import Key

# The data path of one table: its regions, its rows from the matcher to the sink, and how far each part is.

ASKING, WAITING, SCANNING, STREAMING = "asking", "waiting", "scanning", "streaming"
"""A part of a span: PD is asked where it is; its turn to be scanned has not come; it is scanned; it streams."""
PD = "pd"

DELETE, UPDATE, INSERT = 0, 1, 2
"""The order of the changes of one transaction."""

Row: TypeAlias = "tuple[int, int, int, int, int, Any, Any]"
"""A matched row: commit_ts, start_ts, :data:`DELETE` and so on, key, request id, value and old value (None
where there is none); sorted as it is."""


@stepped
class PulledStream(NamedTuple):
    """A region, or the part of it that belongs to a span, that a store sends."""

    request_id: int
    region: int
    store: Address
    start: int
    end: int
    state: str
    resolved_ts: int  # what the store sent, or from where it was registered
    # Since when it is in this state, and when the store last mentioned it.
    since_us: int
    heard_us: int
    tries: int = 0  # how often it has failed since it last streamed
    epoch: int = 0
    prewrites: Map[int, KvRow] = Map()  # by key: what has neither been committed nor rolled back
    # commit_ts by (key, start_ts) of commits that came before the scan sent their prewrite; 0 of rollbacks.
    early: Map[tuple[int, int], int] = Map()


class Gap(NamedTuple):
    """A part of a span that no region is registered for: it counts with the resolved_ts it had."""

    start: int
    end: int
    resolved_ts: int
    since_us: int
    ask_us: int
    tries: int = 0


@stepped
class Puller(NamedTuple):
    """A span: its streams and gaps cover it, without overlap; ``resolved_ts`` is their minimum and never falls."""

    start: int
    end: int
    resolved_ts: int
    streams: Map[int, PulledStream] = Map()
    gaps: tuple[Gap, ...] = ()
    received: int = 0

    @property
    def initialized(self) -> bool:
        return not self.gaps and all(s.state == STREAMING for s in self.streams.values())


class SortedRun(NamedTuple):
    """Sorted rows; those before ``at`` have gone out."""

    rows: tuple[Row, ...] = ()
    at: int = 0


@stepped
class Sorter(NamedTuple):
    """The rows of a table that are not due."""

    drained_ts: int  # everything up to here has gone out
    # Sorted rows, and batches that came after those were sorted.
    memory: SortedRun = SortedRun()
    fresh: tuple[tuple[Row, ...], ...] = ()
    # How many rows the latter have, and their lowest commit_ts.
    n_fresh: int = 0
    fresh_ts: int = MAX_TS
    runs: tuple[SortedRun, ...] = ()  # sorted runs on disk
    spilled: int = 0  # rows that ever went there


class Flight(NamedTuple):
    """A write that is not acknowledged, or one behind such a write."""

    id: int
    first_ts: int
    n_rows: int
    sent_us: int
    since_us: int
    write: Write
    is_written: bool = False


@stepped
class Sink(NamedTuple):
    """What is due: ``due`` from ``at`` on waits for the window, ``flights`` is under way.

    ``last`` is the newest row that became due, by which a repeated one is known where none may be written twice.
    """

    due: tuple[Row, ...] = ()
    at: int = 0
    flights: tuple[Flight, ...] = ()
    n_flying: int = 0
    written: int = 0
    last: tuple[Any, ...] = ()


@stepped
class Path(NamedTuple):
    """The data path of a table; ``state`` is the scheduler's pipeline's, ``start_ts`` where it writes from."""

    key: Key
    state: str
    start_ts: int
    checkpoint_ts: int
    puller: Puller
    sorter: Sorter
    sink: Sink = Sink()


# What a capture with a data path knows: the scheduler's state, the paths of its tables, DDL jobs and schema.


class Version(NamedTuple):
    """A table from ``ts`` on; None where it is gone."""

    ts: int
    info: TableInfo | None


Schema: TypeAlias = "Map[int, tuple[Version, ...]]"


@stepped
class DdlPuller(NamedTuple):
    """The DDL puller: rows that are not resolved, the schema up to resolved_ts, and the jobs that may be needed."""

    puller: Puller
    schema: Schema
    rows: tuple[Row, ...] = ()
    jobs: tuple[tuple[int, FinishedJob], ...] = ()
    applied: tuple[int, int] = (0, 0)

    @property
    def resolved_ts(self) -> int:
        return self.puller.resolved_ts


@stepped
class KvClient(NamedTuple):
    """All streams of a capture: ``owners``: whose a request is, ``waiting`` whose turn to be scanned comes."""

    next_id: int = 1
    owners: Map[int, Key] = Map()
    waiting: tuple[int, ...] = ()
    scanning: int = 0


@stepped
class Duty(NamedTuple):
    """What an owner has done about DDLs."""

    rev: int  # its owner-rev
    executed: tuple[int, int]  # finished_ts and id of the last job that it knows to be executed
    # The job that the downstream executes, and when it was asked last.
    executing: tuple[int, int] | None = None
    asked_us: int = 0
    told_ts: int = 0  # the last checkpoint sent downstream
    # The tables as of ``executed``: one object while they do not change.
    wanted: frozenset[Key] = frozenset()
    wanted_ts: int = -1
    put: frozenset[Key] | None = None  # the tables last sent to etcd
    waits: bool = False  # whether its DDL puller has not come to the checkpoint
    # The number of partitions that it goes over to (no table is wanted until it is there), and the last that it is done
    # with: carried out, or refused.
    partitions: int | None = None
    settled: int | None = None
    empty_us: int | None = None  # since when no table is dispatched, None while some are


class DataState(NamedTuple):
    """A capture: ``inner`` is the scheduler's, whose parts are given under their own names too.

    ``n_writes`` counts the writes that were sent, and is the id of the last; ``mounting_until_us`` is when the pool of
    mounters has nothing to do any more.
    """

    inner: CaptureState
    ddl: DdlPuller
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
        return self.inner.processor

    @property
    def owner(self) -> Any:
        return self.inner.owner

    @property
    def view(self) -> View | None:
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
    def stuck(self) -> Reason | None:
        """Give why the checkpoint does not proceed; only of an owner."""
        return self.inner.stuck


# One step of a capture at work: what it changes, and what comes out. It lives for the step alone.

MOUNTED = "mounted"
"""The timer of a pool that was busy."""


class CaptureDesk:
    """A state that is being changed.

    ``of``: the state before. ``settings``: the machine's. ``now``: what the node can see of the world. ``start_ts``:
    where the changefeed starts. ``only``: ids of the tables that its filter lets through; None for all.
    """

    def __init__(
        self, of: DataState, settings: CaptureSettings, now: Now, start_ts: int, only: frozenset[int] | None = None
    ) -> None:
        self.settings, self.at_us, self.start_ts, self.only = settings, now.at_us, start_ts, only
        self.inner, self.ddl, self.paths, self.kv, self.duty, self.n_writes, self.mounting_until_us = of
        self.outputs: list[Any] = []
        self.pumps = False

    def done(self) -> DataState:
        return DataState(self.inner, self.ddl, self.paths, self.kv, self.duty, self.n_writes, self.mounting_until_us)

    def mounts(self, rows: int) -> bool:
        """Give rows to the pool of mounters, if it is free; else they come again when it is.

        It takes a batch when the one before is done, and what it has taken leaves at once.
        """
        speed = self.settings.mounter_rows_per_s
        if speed is None:
            return True
        if self.mounting_until_us > self.at_us:
            self.outputs.append(Wake(self.mounting_until_us - self.at_us, MOUNTED))
            return False
        self.mounting_until_us = self.at_us + -(-rows * 1_000_000 // (speed * self.settings.mounter_workers))
        return True

    @property
    def executor(self) -> Executor:
        executor: Executor = self.inner.processor.executor
        return executor

    @property
    def limit_ts(self) -> int:
        """Give up to where this capture may write: the global resolved_ts it heard of, MaxUint64 by the MQ rule."""
        return self.inner.resolved_ts

    @property
    def publishes_first(self) -> bool:
        """Whether a checkpoint is persisted before its rows are written."""
        return self.settings.semantics == AT_MOST_ONCE

    def puller(self, key: Key) -> Puller:
        return self.ddl.puller if key == META else self.paths[key].puller

    def set_puller(self, key: Key, puller: Puller) -> None:
        if key == META:
            self.ddl = self.ddl._replace(puller=puller)
        else:
            self.put(self.paths[key]._replace(puller=puller))

    def put(self, path: Path) -> None:
        self.paths = self.paths.set(path.key, path)

    def tell(self, key: Key, before: str | int | None, after: str | int | None, because: str) -> None:
        """Write what happened to a data path into the trace."""
        subject = "ddl-puller" if key == META else f"table-path:{key}"
        self.outputs.append(Changed(subject, before, after, because))
