"""The Delta tables that :mod:`ticdc_lab.lake.ingest` keeps under one folder, and messages that wait in them for a
schema.
"""

from __future__ import annotations

import fcntl
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from ticdc_lab.codecs import Known, decode
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.simple_tables import COUNTED_TABLES, TABLES, finder, tables_of
from ticdc_lab.codecs.simple_versions import Version
from ticdc_lab.engine import hadoop_exists, parallelism
from ticdc_lab.engine.columns import named
from ticdc_lab.engine.delta_log import DataFile, KnownFiles
from ticdc_lab.engine.delta_table import forget_unborn
from ticdc_lab.errors import SourceError
from ticdc_lab.errors.whole_files import local_path
from ticdc_lab.events.schema import CHECKSUMS, EVENTS, KEYS, MESSAGES, QUARANTINE, TRANSACTIONS
from ticdc_lab.facts.schemas import PARTITIONS, arrow_of
from ticdc_lab.lake.one_pass import PASSED, Passed, merging
from ticdc_lab.words import are

OURS = "ticdc_lab.ingest"
"""Delta's note on each commit of ours."""
_APP = "ticdc_lab.ingest"
_HARMLESS = ("CREATE TABLE", "OPTIMIZE", "VACUUM", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "REORG", "CLUSTER BY")
"""Operations that change no row."""
_TAKEN = "IN (schema-unknown,registry-unreachable)"
"""In the condition of a MERGE that takes what waited from the quarantine; earlier versions' bear no note of ours."""
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_NOTE = "spark.databricks.delta.commitInfo.userMetadata"

BATCH = StructField("batch_id", LongType(), True, {"comment": "micro-batch that wrote the row"})
RETENTION = "interval 1 day"
"""How long a table can be read as it was before: a commit each ten seconds makes 8,640 versions a day, which every
further commit has to list. Files that no version of that time holds are removed by :func:`vacuumed`.
"""

_PROPERTIES = {
    "logRetentionDuration": RETENTION,
    "deletedFileRetentionDuration": RETENTION,
    "checkpointInterval": "50",  # Delta's own is 10; all tables' cost as much as a batch of half a million
}
"""Of new tables, of Delta's (``delta.*``)."""

COMPLETE = StructField("complete_ts", LongType(), True, {"comment": "TSO up to which transactions are complete"})
LATE = StructField("late", BooleanType(), True, {"comment": "the message came with an earlier batch, its schema later"})


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables under one folder."""

    spark: SparkSession
    folder: str
    known: KnownFiles = field(default_factory=KnownFiles, repr=False, compare=False)

    def path(self, name: str) -> str:
        """Where a table lies."""
        return f"{self.folder.rstrip('/')}/{name}"

    def read(self, name: str) -> DataFrame:
        """A table as it is now."""
        return self.spark.read.format("delta").load(self.path(name))

    def files(self, name: str) -> list[DataFile]:
        """The files of a table as it is now."""
        return self.known.now(self.spark, self.path(name))

    def commit(
        self,
        name: str,
        added: Iterable[DataFile],
        *,
        once: tuple[str, int] | None = None,
        removed: Collection[str] = (),
        everything: bool = False,
        changes: bool = True,
    ) -> bool:
        """Let files join and leave a table: :meth:`ticdc_lab.engine.delta_log.KnownFiles.commit`, noted as ours."""
        return self.known.commit(
            self.spark, self.path(name), added,
            note=OURS, once=once, removed=removed, everything=everything, changes=changes,
        )  # fmt: skip

    def of_batch(self, name: str, batch_id: int) -> DataFrame:
        """The rows that a batch has appended."""
        return self.read(name).where(F.col("batch_id") == batch_id)


@contextmanager
def written_alone(folder: str) -> Iterator[None]:
    """Keep other processes of this machine from writing the tables of a folder; the lock ends with the process.

    Raises SourceError: another one writes there now.
    """
    place = local_path(folder)
    if place is None:  # of two at one URL Delta's numbers of batches let one through
        yield
        return
    place.mkdir(parents=True, exist_ok=True)
    with (place / "_lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SourceError(
                f"Another ingest writes the tables of {folder} now.",
                hint="Stop that one first, or name another folder with --out.",
            ) from None
        yield


def noted(spark: SparkSession) -> AbstractContextManager[None]:
    """Let the commits of the body bear our note where Delta takes no option for it, as of a MERGE."""
    return _set(spark, _NOTE, OURS)


@contextmanager
def _set(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """A setting of the session in the body."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def require_own_commits(tables: Tables) -> None:
    """Raise :class:`SourceError` if another writer has changed the content of the tables, and did not revert it."""
    for name in schemas():
        if not DeltaTable.isDeltaTable(tables.spark, tables.path(name)):
            continue
        history = DeltaTable.forPath(tables.spark, tables.path(name)).history()
        found = history.select("version", "operation", "operationParameters", "userMetadata").toArrow().to_pylist()
        commits = sorted(found, key=lambda c: int(c["version"]))
        if (foreign := foreign_commit(commits)) is not None:
            later = any(c["userMetadata"] == OURS and c["version"] > foreign["version"] for c in commits)
            restore = (
                f"Take it back in Spark: RESTORE TABLE delta.{named(tables.path(name))} TO VERSION AS OF "
                f"{foreign['version'] - 1}; or remove the folder and read the topic again."
            )
            raise SourceError(
                f"Another process changed the table {name} of {tables.folder} ({foreign['operation']}, version "
                f"{foreign['version']}): what it contains of the topic is unknown.",
                hint="Remove the folder, or name another one with --out, and read the topic again: ticdc-lab "
                "ingest SOURCE --out FOLDER"
                if later
                else restore,
            )


def foreign_commit(commits: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The first of a table's commits, in order, that changed its rows, is not ours and was not taken back."""
    found: Mapping[str, Any] | None = None
    for commit in commits:
        operation, how = str(commit["operation"]), dict(commit["operationParameters"] or {})
        if commit["userMetadata"] == OURS or operation.startswith(_HARMLESS):
            continue
        if operation == "MERGE" and _TAKEN in str(how.get("predicate")):
            continue
        taken_back = how.get("version") if operation == "RESTORE" else None
        if taken_back is not None and found is not None and int(taken_back) < found["version"]:
            found = None
        elif found is None:
            found = commit
    return found


def create(tables: Tables, *, protocol: str) -> bool:
    """Make the tables that are not there yet; whether none was.

    Raises SourceError: some are not there, but the checkpoint of an ingest is, which begins when all are made: they
    were removed.
    """
    own = {name: form for name, form in schemas().items() if name != "table_versions" or protocol == "simple"}
    for name in own:
        forget_unborn(tables.path(name))
    lost = [name for name in own if not DeltaTable.isDeltaTable(tables.spark, tables.path(name))]
    if lost and hadoop_exists(tables.spark, tables.path("_checkpoint")):
        raise SourceError(
            f"{tables.folder} contains the _checkpoint that shows how far a topic was read, but no longer all tables "
            f"that were written: {', '.join(lost)} {are(len(lost))} not there.",
            hint="Remove the folder, or name another one with --out, and read the topic again: ticdc-lab ingest "
            "SOURCE --out FOLDER",
        )

    def make(name: str) -> None:
        made = DeltaTable.createIfNotExists(tables.spark).location(tables.path(name)).addColumns(own[name])
        for what, value in _PROPERTIES.items():
            made = made.property(f"delta.{what}", value)
        made.execute()

    with ThreadPoolExecutor(len(own)) as pool:  # in half the time of one after the other
        list(pool.map(make, own))
    return len(lost) == len(own)


@cache
def schemas() -> Mapping[str, StructType]:
    """The tables' columns: the contracts, and the batch."""
    progress = from_arrow_schema(arrow_of(PARTITIONS))
    return {
        "messages": StructType([*MESSAGES.fields, BATCH]),
        "table_versions": StructType([*TABLES.fields, BATCH]),
        "events": StructType([*EVENTS.fields, *KEYS.fields, *CHECKSUMS.fields, BATCH, LATE]),
        "quarantine": StructType([*QUARANTINE.fields, BATCH]),
        "transactions": TRANSACTIONS,
        "watermarks": StructType([*progress.fields, BATCH, COMPLETE]),
    }


def append(tables: Tables, name: str, rows: DataFrame | list[DataFile], batch_id: int, *, step: str = "") -> None:
    """Append the rows of a batch; nothing happens if they are there already.

    ``tables``, ``name``: where to. ``rows``: the table's columns but ``batch_id``; or files in the table's folder that
    hold all of them. ``batch_id``: Delta refuses a number that is not above the last one of the same step. ``step``:
    names a second append to the same table.
    """
    if isinstance(rows, list):
        tables.commit(name, rows, once=(f"{_APP}.{name}{step}", batch_id))
        return
    rows.withColumn("batch_id", F.lit(batch_id).cast("bigint")).write.format("delta").mode("append").options(
        txnAppId=f"{_APP}.{name}{step}", txnVersion=str(batch_id), userMetadata=OURS
    ).save(tables.path(name))


def is_begun(tables: Tables, batch_id: int) -> bool:
    """Whether an earlier run has put something of a batch into the tables."""
    return tables.known.number(tables.spark, tables.path("messages"), f"{_APP}.messages") >= batch_id


WAITING = ("schema-unknown", "registry-unreachable")
"""Error classes of messages that a schema may still come for."""

PLACE = ("topic", "partition", "offset")
_SAME = " AND ".join(f"q.{name} = s.{name}" for name in PLACE)
_WAITS = f"error_class IN ({', '.join(repr(name) for name in WAITING)})"
_CAME = {"error_class": WAITING[0], "reason": "its schema was not known when its batch came, although it is now"}

Versions = Mapping[Version, Mapping[str, Any]]


def learned(tables: Tables, known: Known, batch_id: int) -> Versions:
    """Keep the table versions that a batch's messages bring and no earlier batch has brought; returns them."""
    version = TABLES.names[:3]
    messages = tables.of_batch("messages", batch_id).select(*PLACE, "key", "value")
    found = messages.mapInArrow(finder(known), COUNTED_TABLES).dropDuplicates(version)
    earlier = tables.read("table_versions").where(F.col("batch_id") < batch_id).select(*version)
    append(tables, "table_versions", found.join(earlier, on=version, how="left_anti").select(*TABLES.names), batch_id)
    return versions(tables.of_batch("table_versions", batch_id))


def versions(rows: DataFrame) -> Versions:
    """Table versions as decoding takes them; few, as there are DDL."""
    return tables_of([row.asDict() for row in rows.select(*TABLES.names).collect()])


SMALL_FILE = 16 << 20
"""Bytes below which a file is put together with others."""

MERGED_FILE = 128 << 20
"""Bytes that files have together when they are put into one, at most."""

SMALL_FILES = 16
"""How many small ones a table may have before that is worth a commit."""


def to_merge(files: Sequence[DataFile], *, below_ts: int | None = None) -> list[list[DataFile]]:
    """Which files of a table are put into one each: small ones in the order of their rows, if there are many.

    ``files``: the table's. ``below_ts``: only files whose rows all have a commit_ts (TSO) of at most this;
    what is above will be replaced.
    """
    small = [f for f in files if f.size < SMALL_FILE and (below_ts is None or ends_of(f)[1] <= below_ts)]
    if len(small) < SMALL_FILES:
        return []
    parts: list[list[DataFile]] = [[]]
    for file in sorted(small, key=lambda f: (f.modified_ms, f.name)):
        if sum(f.size for f in parts[-1]) + file.size > MERGED_FILE:
            parts.append([])
        parts[-1].append(file)
    return [part for part in parts if len(part) > 1]


def ends_of(file: DataFile, column: str = "commit_ts") -> tuple[float, float]:
    """The least and the greatest value of a column in a file, as Delta's statistics have it; else without end."""
    stats = json.loads(file.stats)
    low, high = (stats.get(side, {}).get(column) for side in ("minValues", "maxValues"))
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def rows_of(file: DataFile) -> int:
    """How many rows a file has, as Delta's statistics have it."""
    return int(json.loads(file.stats).get("numRecords", 0))


def merged_files(tables: Tables, *, complete_ts: int | None) -> int:
    """Put small files of the tables that grow into greater ones, by the workers; how many are gone.

    Readers of an earlier version keep reading its files. A table whose files another writer has put
    together meanwhile stays as it is.
    """
    place, forms = str(local_path(tables.folder)), schemas()
    bounds = {"messages": None, "events": None, "transactions": -1 if complete_ts is None else complete_ts}
    found = {name: to_merge(tables.files(name), below_ts=ts) for name, ts in bounds.items()}
    rows = [(name, [f.name for f in part]) for name, parts in found.items() for part in parts]
    if not rows:
        return 0
    asked = tables.spark.createDataFrame(rows, "table string, names array<string>").repartition(len(rows))
    task = merging(place, {name: arrow_schema(forms[name]) for name in bounds})
    passed = Passed(asked.mapInArrow(task, PASSED).toArrow())
    n = 0
    for name, parts in found.items():
        gone = {f.name for part in parts for f in part}
        if gone:
            n += len(gone) if tables.commit(name, passed.files(name), removed=gone, changes=False) else 0
    return n


def vacuumed(tables: Tables) -> None:
    """Remove files that no version of the last :data:`RETENTION` has, and files of passes that were cut short."""
    with _set(tables.spark, _LISTING, str(4 * parallelism(tables.spark))):  # Spark's own is 10,000 tasks for a folder
        for name in schemas():
            if DeltaTable.isDeltaTable(tables.spark, tables.path(name)):
                DeltaTable.forPath(tables.spark, tables.path(name)).vacuum()


def events_of(decoded: DataFrame, *, late: bool) -> DataFrame:
    """What goes to ``events``, without the batch."""
    events = decoded.where("error_class IS NULL").select(*EVENTS.names, *KEYS.names, *CHECKSUMS.names)
    return events.withColumn("late", F.lit(late))


def undecoded(tables: Tables, batch_id: int, *, protocol: str, known: Known) -> DataFrame:
    """Messages of a batch that ``events`` has nothing of, as :data:`ticdc_lab.events.schema.QUARANTINE`.

    One that can be decoded now, as a registry was silent before the batch was interrupted, waits like the others.
    """
    there = tables.of_batch("events", batch_id).where("NOT late").select(*PLACE)
    messages = tables.of_batch("messages", batch_id).select(*PLACE, "key", "value")
    left = messages.join(there, on=list(PLACE), how="left_anti")
    decoded = left.transform(decode, protocol=protocol, known=known).where("error_class IS NOT NULL OR seq = 0")
    said = {name: F.coalesce(name, F.lit(default)) for name, default in _CAME.items()}
    return decoded.withColumns(said).drop("key", "value").join(left, on=list(PLACE)).select(*QUARANTINE.names)


def resolve(tables: Tables, batch_id: int, *, protocol: str, known: Known) -> None:
    """Decode again what waits since earlier batches: what can be decoded now leaves the quarantine for ``events``."""
    waiting = tables.read("quarantine").where(_WAITS).where(F.col("batch_id") < batch_id)
    if waiting.isEmpty():
        return
    decoded = waiting.transform(decode, protocol=protocol, known=known).persist()
    try:
        append(tables, "events", events_of(decoded, late=True), batch_id, step=".late")
        release(tables, batch_id)
        reclassify(tables, decoded)
    finally:
        decoded.unpersist()


def release(tables: Tables, batch_id: int) -> None:
    """Take from the quarantine what has become an event with this batch."""
    late = tables.of_batch("events", batch_id).where("late AND seq = 0").select(*PLACE)
    quarantine = DeltaTable.forPath(tables.spark, tables.path("quarantine")).alias("q")
    with noted(tables.spark):
        quarantine.merge(late.alias("s"), f"{_SAME} AND q.{_WAITS}").whenMatchedDelete().execute()


def reclassify(tables: Tables, decoded: DataFrame) -> None:
    """Give the right fault of messages whose schema came and that are damaged nevertheless."""
    damaged = decoded.where(f"error_class IS NOT NULL AND NOT {_WAITS}")
    if not damaged.isEmpty():
        found = damaged.select(*PLACE, "error_class", "reason").alias("s")
        quarantine = DeltaTable.forPath(tables.spark, tables.path("quarantine")).alias("q")
        said: dict[str, str | Column] = {name: f"s.{name}" for name in ("error_class", "reason")}
        with noted(tables.spark):
            quarantine.merge(found, f"{_SAME} AND q.{_WAITS}").whenMatchedUpdate(set=said).execute()
