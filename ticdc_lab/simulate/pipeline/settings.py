"""The settings of a run of the replication pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field

from ticdc_lab.errors import ContractError
from ticdc_lab.simulate.scheduler.executor import TablePace
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings as Scheduler

AT_MOST_ONCE, AT_LEAST_ONCE, BY_DEDUPLICATION, BY_SNAPSHOT = SEMANTICS = (
    "at-most-once",
    "at-least-once",
    "exactly-once-deduplication",
    "exactly-once-snapshot",
)
BASE, MQ = RULES = "base", "mq"
"""How far processors may write: up to the global resolved_ts; at once (the design's optimisation)."""
BY_PROCESSOR, BY_TABLE = ORDERS = "processor", "table"
"""What leaves a capture by commit_ts: all rows of a processor (the design), or each table's (released TiCDC)."""
TABLE, TS, INDEX_VALUE, TIDB_ROWID, CONFLICT = DISPATCHERS = "table", "ts", "index-value", "tidb-rowid", "conflict"
"""The design's; all but the last need nothing but the row."""
KAFKA, MYSQL = DOWNSTREAMS = "kafka", "mysql"
BY_ROW, BY_TRANSACTION = CONSUMERS = "rows", "transactions"
"""What a consumer executes: rows of each partition at its watermark, or transactions once all partitions have it."""

MEASURED = TablePace(measured=True)


def _takes_whole(kind: str, by_conflict: bool) -> bool:
    """A database takes transactions, and conflict detection places them whole in each table."""
    return kind == MYSQL or by_conflict


@dataclass(frozen=True, slots=True)
class TikvSettings:
    """The upstream; µs."""

    # How many; tables are divided evenly by handle
    stores: int = 3
    regions_per_table: int = 2
    replicas: int = 3
    apply_us: int = 200  # from a majority's answer until a command is applied and observed
    resolved_us: int = 200_000  # how often resolved_ts is advanced and sent
    # How fast an incremental scan reads, and how many rows it sends at once
    scan_rows_per_s: int = 500_000
    scan_batch: int = 1024
    store_down_us: int = 3_000_000  # after how long without heartbeat PD lets another peer lead the regions of a store


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """The data path of a capture."""

    # Of :data:`RULES` and :data:`SEMANTICS`. Under at most once also a table that moves without a fault loses rows: the
    # ones that its old writer had reported in a checkpoint and not sent when it stopped (v3 the most).
    rule: str = BASE
    semantics: str = AT_LEAST_ONCE
    # Of :data:`ORDERS`. By processor a table that stands, or whose region is behind, holds all tables beside it.
    order: str = BY_PROCESSOR
    # Of :data:`DOWNSTREAMS`, and whether rows are placed by conflict detection. A run takes both from its downstream.
    sink: str = KAFKA
    by_conflict: bool = False
    # Rows of a table that its sorter holds in memory; more go to disk, as sorted runs
    sorter_memory_rows: int = 100_000
    # Rows in one write, and rows of a table that may be under way unacknowledged
    sink_batch_rows: int = 512
    sink_window_rows: int = 16_384
    # After how long without an answer a request is sent again, and a silent store given up: longer than ``resolved_us``
    # and than a batch of a scan takes, or streams restart without end
    retry_us: int = 2_000_000
    incremental_scan_concurrency: int = 8  # regions that a capture has scanned at the same time
    # The pool of a capture, for all its tables together, and how many rows each worker mounts in a second; None for at
    # once
    mounter_workers: int = 16
    mounter_rows_per_s: int | None = None

    @property
    def whole(self) -> bool:
        """Whether a batch never tears apart what a transaction changes in one table, however much that is."""
        return _takes_whole(self.sink, self.by_conflict)

    def __post_init__(self) -> None:
        if self.mounter_workers < 1 or self.mounter_rows_per_s == 0:
            raise ContractError(
                "A pool that mounts nothing.", hint="Give at least 1 for `mounter_workers` and `mounter_rows_per_s`."
            )


@dataclass(frozen=True, slots=True)
class DownstreamSettings:
    """The downstream."""

    kind: str = KAFKA  # of :data:`DOWNSTREAMS`: a topic, which takes rows, or a database, which takes transactions
    # Of Kafka; one of :data:`DISPATCHERS` (a row's handle is its _tidb_rowid). By ``conflict`` a batch has whole
    # transactions, as they are placed whole in each table, and partitions align where keys clash.
    partitions: int = 3
    dispatcher: str = "index-value"
    rows_per_s: int | None = None  # how fast it takes rows, of all writers together; None for at once
    ddl_us: int = 100_000  # how long a DDL takes
    consumer: str | None = None  # of :data:`CONSUMERS`: what reads the topic in the run itself, or None

    @property
    def whole(self) -> bool:
        """Whether it must be given transactions whole, table by table."""
        return _takes_whole(self.kind, self.dispatcher == CONFLICT)

    def __post_init__(self) -> None:
        if self.consumer is not None and self.kind != KAFKA:
            raise ContractError(f"A {self.kind} has no consumer.", hint="Set `kind: kafka`, or leave `consumer` out.")


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Everything but the load."""

    # The cluster of captures; its ``tables`` and ``pace`` are replaced: the load defines the tables, and the data path
    # how far they are
    scheduler: Scheduler = field(default_factory=Scheduler)
    tikv: TikvSettings = TikvSettings()
    capture: CaptureSettings = CaptureSettings()
    downstream: DownstreamSettings = DownstreamSettings()
    start_ts: int | None = None  # where the changefeed starts (exclusive); None for the moment of its creation
    created_us: int = 0  # when it is created: what was committed before comes from incremental scans

    def stores(self) -> tuple[str, ...]:
        return tuple(f"tikv-{i + 1}" for i in range(self.tikv.stores))
