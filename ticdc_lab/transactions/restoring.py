"""Upstream transactions restored from a recorded log.

No protocol marks the end of a transaction. So commit_ts identifies one, together with start_ts where messages carry it
(debezium with `debezium-include-start-ts`): async commit and 1PC may give two transactions one commit_ts. Only a
watermark at or above commit_ts in every partition proves it whole (MQ design, "Kafka Consumer 逻辑" 3.2).

A change is identified by ``commit_ts``, ``op`` and the row's key (``key_hash``, which covers schema and table). It may
be delivered more than once (MQ design, constraint 1.2); it counts once. A table without a key offers only the change's
content (``change_hash``) and its start_ts: two equal rows of one transaction look there like one row
delivered twice, and count once.

Rows without commit_ts (canal-json without the TiDB extension) belong to no transaction that could be proved and are
left out; the loader reports it, since a transform cannot look at the data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ticdc_lab.codecs.keys import rows_of, with_keys
from ticdc_lab.engine.shuffle import Kernel, MadeByWorkers, by_key_beside, by_key_here, is_sent
from ticdc_lab.events import POSITION
from ticdc_lab.events.arrays import NO_TS
from ticdc_lab.events.changes import change_id, op_rank, row_id, row_ids
from ticdc_lab.events.schema import KEYS, OF_IMAGES, TRANSACTIONS, require_batch, require_columns
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.places import NAMED_BY, hashes_of_both, place_col, placed
from ticdc_lab.transactions.kernel import KnownPlaces, restored

if TYPE_CHECKING:
    from ticdc_lab.sources.stored import StoredEvents

_NAMES = ("schema_name", "table_name")
_ARRIVAL = ("offset", "partition", "topic", "seq")
"""Which delivery counts as the first: Kafka orders one partition only, so across partitions any fixed rule will do."""


def transactions(events: DataFrame) -> DataFrame:
    """Restore whole transactions across tables, partitions and topics.

    Parameters
    ----------
    events
        ``kind``, ``commit_ts``, ``start_ts``, ``op``, the names, the position and the hash columns of the events
        contract (:func:`ticdc_lab.codecs.keys.with_keys` adds the hashes where they are missing).

    Returns
    -------
    DataFrame
        :data:`ticdc_lab.events.schema.TRANSACTIONS`, one row per commit_ts and start_ts of row changes; those without
        a start_ts at a commit_ts are one. ``missing`` names the
        partitions, of all topics that hold any event, whose resolved_ts has not reached commit_ts, and ``complete``
        reports none.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.

    Notes
    -----
    One shuffle moves the rows, by commit_ts. Sorted, they pass batch by batch through
    :func:`ticdc_lab.transactions.kernel.restored`, which keeps of a transaction no more than its tables and
    partitions. Spark's own aggregates of lists cost four times as much.

    Examples
    --------
    >>> found = log.events.transform(transactions).orderBy("commit_ts")
    >>> found.select("commit_ts", "n_rows", "partitions", "complete").show(3)
    +------------------+------+----------+--------+
    |         commit_ts|n_rows|partitions|complete|
    +------------------+------+----------+--------+
    |470603993584500736|     1|       [3]|    true|
    |470603993584762883|     1|       [3]|    true|
    |470603993585025024|     1|       [3]|    true|
    +------------------+------+----------+--------+
    only showing top 3 rows
    """
    require_columns(events, "kind", "commit_ts", *NAMED_BY)
    return restored_transactions(events, places=log_places(events))


def restored_transactions(
    events: DataFrame, *, places: DataFrame | pa.Table, complete_to: int | Literal["resolved"] | None = "resolved"
) -> DataFrame:
    """As :func:`transactions`, for a caller who knows how far each partition is resolved.

    Parameters
    ----------
    events
        All deliveries of every change of the transactions that are asked for; watermarks are not looked at.
    places
        All places of the log, as :func:`log_places` gives them; a few rows.
    complete_to
        Up to which commit_ts (TSO) transactions are complete, None: no transaction; by default up to the least
        resolved_ts of the partitions.

    Returns
    -------
    DataFrame
        :data:`ticdc_lab.events.schema.TRANSACTIONS`.
    """
    return of_restored(events, lambda whole: whole, TRANSACTIONS, places=places, complete_to=complete_to)


def of_restored(
    events: DataFrame,
    judge: Kernel,
    schema: StructType | str,
    *,
    places: DataFrame | pa.Table,
    complete_to: int | Literal["resolved"] | None = "resolved",
    files: StoredEvents | None = None,
) -> DataFrame:
    """What a kernel makes of each task's transactions where they are restored: handing them on costs more than that.

    Parameters
    ----------
    judge
        From batches of transactions, in order of commit_ts.
    schema
        Of what it yields.
    events, places, complete_to
        As of :func:`restored_transactions`.
    files
        The same events in files, if they lie in some; Spark reads them where ``places`` is a table. Of very many a job
        is started.
    """
    rows: DataFrame | MadeByWorkers
    if files is not None and files.by_spark and isinstance(places, pa.Table) and files.may_be_packed("commit_ts"):
        rows = files.rows((*_READ, *NAMED_BY), narrowed, NARROW)
    else:
        rows = rows_of(_changes(events, function="transactions"), (*_READ, *NAMED_BY), narrowed, NARROW)

    kernel = partial(_restoring, judge=judge, complete_to=complete_to)
    return by_key_beside(rows, "commit_ts", kernel, schema, beside=places, order=_ORDER)


def restored_here(files: StoredEvents, judge: Kernel, form: pa.Schema, *, places: pa.Table) -> pa.Table:
    """:func:`of_restored` beside the embedded engine, at once and in this process."""
    rows = files.rows((*_READ, *NAMED_BY), narrowed, NARROW)
    return by_key_here(rows, "commit_ts", _restoring(places, judge=judge), form, order=_ORDER)


def _restoring(
    places: pa.Table, *, judge: Kernel, complete_to: int | Literal["resolved"] | None = "resolved"
) -> Kernel:  # fmt: skip
    """The kernel that restores transactions, which come in order of commit_ts, and lets another judge them."""
    known = KnownPlaces.read(places, complete_to=complete_to)
    return lambda changes: judge(restored(changes, known))


_ORDER = ("start_ts", "change_id")

NARROW = pa.schema([(n, pa.int64()) for n in ("commit_ts", "start_ts", "change_id", "place", "offset")])
_READ = ("commit_ts", "start_ts", "op", "key_hash", "change_hash", "offset")


def narrowed(rows: pa.Table) -> pa.Table:
    """Row changes as :func:`of_restored` shuffles them, in numbers; their ``place`` may be known."""
    dated = rows.filter(pc.is_valid(rows["commit_ts"])).combine_chunks()
    either = row_ids(dated)
    assert not either.null_count, "a row change without hashes, which every decoder gives"
    own = either.to_numpy()
    made = {
        "start_ts": dated["start_ts"].fill_null(NO_TS),
        "change_id": pa.array(hashes_of_both(dated["op"], own)),
    }
    made |= {} if "place" in dated.column_names else {"place": placed(dated)[1]}
    return pa.table({n: made[n] if n in made else dated[n] for n in NARROW.names})


def log_places(events: DataFrame) -> DataFrame:
    """Give the places of a log: ``topic, partition, schema_name, table_name``, its number ``place``, ``resolved_ts``.

    The last is the greatest watermark stated there, which names no table.
    """
    resolved = F.max(F.when(F.col("kind") == "watermark", F.col("commit_ts"))).alias("resolved_ts")
    return events.groupBy(*NAMED_BY).agg(resolved).withColumn("place", place_col())


def known_places(
    facts: LogFacts, events: Callable[[], DataFrame], *, here: bool = False
) -> DataFrame | pa.Table:  # fmt: skip
    """:func:`log_places` of events whose facts are known; very many are gathered again where they are needed.

    ``here``: this process needs them, so that they go nowhere.
    """
    none, places = pa.scalar(None, pa.int64()), facts.places
    stated = pc.if_else(pc.equal(places["kind"], "watermark"), places["last_ts"], none)
    known = places.select([*NAMED_BY, "place"]).append_column("resolved_ts", stated)
    return known if here or is_sent(known, lambda: events().sparkSession) else log_places(events())


def transaction_rows(events: DataFrame) -> DataFrame:
    """Number the rows of every transaction in an order that is safe to apply, each change once.

    Deletes come first, then updates, then inserts, across all tables of the transaction, as TiCDC's source
    is about TiCDC's own order: TiCDC splits an update that changes a unique key into a delete and an insert, so that no
    row meets a key that another still holds. Within an operation the order is by table and key. With
    ``output-raw-change-event=true`` such updates stay whole; :func:`split_key_updates` splits updates of the handle key
    first.

    Parameters
    ----------
    events
        As for :func:`transactions`. All columns are passed on; select the few you need before.

    Returns
    -------
    DataFrame
        The rows with a commit_ts, with ``delivery`` (int: 1 for the delivery that counts, 2 and more for repeats),
        ``apply_order`` (int from 1 within commit_ts; null for repeats) and ``identical`` (false where a repeat differs
        from the first delivery).
    """
    first_hash = F.first("change_hash").over(_deliveries().rowsBetween(Window.unboundedPreceding, 0))
    repeated = F.col("delivery") > 1
    apply = Window.partitionBy("commit_ts").orderBy(
        repeated, op_rank(), *_NAMES, row_id(), "offset", "partition", "topic", "seq"
    )
    return (
        _changes(events, function="transaction_rows")
        .repartition("commit_ts")
        .withColumn("_id", change_id())
        .withColumn("delivery", F.row_number().over(_deliveries()))
        .withColumn("identical", first_hash == F.col("change_hash"))
        .withColumn("apply_order", F.when(~repeated, F.row_number().over(apply)))
        .drop("_id")
    )


def duplicates(events: DataFrame) -> DataFrame:
    """List every delivery of a change beyond its first.

    Parameters
    ----------
    events
        As for :func:`transactions`.

    Returns
    -------
    DataFrame
        ``schema_name, table_name, commit_ts, op, key_hash, topic, partition, offset, seq, delivery`` (from 2),
        ``first_topic, first_partition, first_offset, first_seq`` and ``identical``: whether the content equals
        the first delivery. A repeat in another partition, or one that differs, breaks the design ("Table 迁移").
    """
    here = F.struct("topic", "partition", "offset", "seq")
    first = F.first(here).over(_deliveries().rowsBetween(Window.unboundedPreceding, 0))
    first_hash = F.first("change_hash").over(_deliveries().rowsBetween(Window.unboundedPreceding, 0))
    return (
        _changes(events, function="duplicates")
        .withColumn("_id", change_id())
        .withColumn("delivery", F.row_number().over(_deliveries()))
        .withColumns({"_first": first, "identical": first_hash == F.col("change_hash")})
        .where("delivery > 1")
        .select(
            *_NAMES,
            "commit_ts",
            "op",
            "key_hash",
            *POSITION,
            "delivery",
            *[F.col("_first")[c].alias(f"first_{c}") for c in POSITION],
            "identical",
        )
    )


def first_repeated(events: DataFrame, most: int) -> list[int]:
    """Give the least commit_ts of changes that were delivered again; starts a job.

    It counts by two numbers: :func:`duplicates` of a log brings all rows together with their names and positions.

    Parameters
    ----------
    events
        As for :func:`transactions`.
    most
        How many are given, at most.

    Returns
    -------
    list of int
        Each once, rising.
    """
    rows = _changes(events, function="first_repeated")
    counted = rows.groupBy("commit_ts", change_id().alias("_id"), _of_no_key()).count()
    again = counted.where("count > 1").select("commit_ts").distinct()
    return [row[0] for row in again.orderBy("commit_ts").limit(most).collect()]


def split_key_updates(events: DataFrame, *, changed: Column | None = None) -> DataFrame:
    """Turn every update that changes its handle key into a delete and an insert, as TiCDC does by default.

    Parameters
    ----------
    events
        The events contract with the hash columns.
    changed
        Whether an update is split (boolean); default: where it changes its handle key.

    Returns
    -------
    DataFrame
        The same columns but :data:`ticdc_lab.events.schema.OF_IMAGES`, which speak of the whole update; an update
        with ``before_key_hash`` becomes two rows at the same position: a delete with the image before, and an insert
        with the image after.

    References
    ----------
    Golden README section 3, "Split". Needs complete old images (not only-output-updated-columns).
    """
    require_columns(events, "op", "columns", "before", *KEYS.names)
    splits = F.col("before_key_hash").isNotNull() if changed is None else F.coalesce(changed, F.lit(False))
    halves = F.when(splits, F.array(F.lit("delete"), F.lit("insert"))).otherwise(F.array(F.lit(None).cast("string")))
    half = F.col("_half")
    return events.withColumn("_half", F.explode(halves)).select(
        *[_half_of(name, half).alias(name) for name in events.columns if name not in OF_IMAGES]
    )


def _half_of(name: str, half: Column) -> Column:
    none = F.lit(None)
    of = {
        "op": F.coalesce(half, F.col("op")),
        "columns": F.when(half == "delete", none).otherwise(F.col("columns")),
        "before": F.when(half == "insert", none).otherwise(F.col("before")),
        "key_hash": F.coalesce(F.when(half == "delete", F.col("before_key_hash")), F.col("key_hash")),
        "before_key_hash": none.cast("bigint"),
        "change_hash": F.when(half.isNotNull(), F.xxhash64("change_hash", half)).otherwise(F.col("change_hash")),
    }
    return of.get(name, F.col(name))


def _changes(events: DataFrame, *, function: str) -> DataFrame:
    require_columns(events, "kind", "commit_ts", "start_ts", "op", *_NAMES, *POSITION)
    require_batch(events, function=function, why="a change may be delivered again at any later offset")
    keyed = events if {"key_hash", "change_hash"} <= set(events.columns) else with_keys(events)
    return keyed.where("kind = 'row' AND commit_ts IS NOT NULL")


def _deliveries() -> WindowSpec:
    return Window.partitionBy("commit_ts", "_id", _of_no_key()).orderBy(*_ARRIVAL)


def _of_no_key() -> Column:
    """What distinguishes equal rows without a key: their start_ts, if messages carry it."""
    return F.when(F.col("key_hash").isNull(), F.col("start_ts"))
