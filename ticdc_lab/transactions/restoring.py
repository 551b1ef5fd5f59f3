"""Upstream transactions restored from a recorded log.

No protocol but mq-v1 carries a start_ts, and none marks the end of a transaction, so commit_ts identifies one, and only
a watermark at or above it in every partition proves it whole (MQ design, "Kafka Consumer 逻辑" 3.2).

A change is identified by ``commit_ts``, ``op`` and the row's key (``key_hash``, which covers schema and table). It may
be delivered more than once (MQ design, constraint 1.2); it counts once. A table without a key offers only the change's
content (``change_hash``): two equal rows of one transaction cannot be told there from one row delivered twice, and
count once.

Rows without commit_ts (canal-json without the TiDB extension) belong to no transaction that could be proved and are
left out; the loader says so, since a transform cannot look at the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ticdc_lab.codecs.keys import with_keys
from ticdc_lab.engine.shuffle import by_key
from ticdc_lab.events import PARTITION, POSITION
from ticdc_lab.events.arrays import NO_TS, Ints, changes_in
from ticdc_lab.events.schema import KEYS, OF_IMAGES, PARTITION_SPAN, TRANSACTIONS, require_batch, require_columns
from ticdc_lab.facts.watermarks import partition_progress

_NAMES = ("schema_name", "table_name")
_HOME = (*PARTITION, "resolved_ts")
_ARRIVAL = ("offset", "partition", "topic", "seq")
"""Which delivery counts as the first: Kafka orders one partition only, so across partitions any fixed rule will do."""


def op_rank(op: Column | str = "op") -> Column:
    """Place (tinyint) of an operation in a transaction: delete 0, update 1, insert 2.

    TiCDC's event store orders the rows of a transaction so (TiCDC's source). It frees keys before they are
    taken.
    """
    op = F.col(op) if isinstance(op, str) else op
    return F.when(op == "delete", 0).when(op == "update", 1).otherwise(2).cast("tinyint")


def change_id() -> Column:
    """Number (bigint) that names a change within its commit_ts, equal for every delivery of it."""
    return F.xxhash64(F.col("op"), F.coalesce("key_hash", "change_hash"))


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
        :data:`ticdc_lab.events.schema.TRANSACTIONS`, one row per commit_ts of a row change. ``missing`` names the
        partitions, of all topics that hold any event, whose resolved_ts has not reached commit_ts, and ``complete``
        says there are none.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.

    Notes
    -----
    One shuffle moves the rows, by commit_ts. Sorted, they pass batch by batch through
    :func:`ticdc_lab.transactions.restoring.restored`, which keeps of a transaction no more than its tables and
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
    return restored_transactions(events, resolved=_resolved(events))


def restored_transactions(events: DataFrame, *, resolved: Column) -> DataFrame:
    """As :func:`transactions`, for a caller who knows how far each partition is resolved.

    Parameters
    ----------
    events
        All deliveries of every change of the transactions that are asked for; watermarks are not looked at.
    resolved
        From :func:`resolved_at`.

    Returns
    -------
    DataFrame
        :data:`ticdc_lab.events.schema.TRANSACTIONS`.
    """
    rows = _changes(events, function="transactions").select(
        "commit_ts",
        "start_ts",
        change_id().alias("change_id"),
        F.concat_ws(".", *_NAMES).alias("table"),
        *PARTITION,
        "offset",
    )
    found = by_key(rows, "commit_ts", restored, RESTORED, order=["change_id"])
    return found.withColumn("resolved", resolved).select(*_contract(F.col("resolved")))


def resolved_at(homes: Iterable[tuple[str, int, int | None]], *, resolved_ts: int | None) -> Column:
    """What every partition (topic, partition, its resolved_ts) is resolved to, and what all of them are, as a value."""
    kinds = ("string", "int", "bigint")
    each = [
        F.struct(*[F.lit(v).cast(kind).alias(name) for v, kind, name in zip(home, kinds, _HOME, strict=True)])
        for home in homes
    ]
    none = F.array().cast("array<struct<topic:string,partition:int,resolved_ts:bigint>>")
    all_of_them = F.lit(resolved_ts).cast("bigint").alias("resolved_ts")
    return F.struct((F.array(*each) if each else none).alias("homes"), all_of_them)


def transaction_rows(events: DataFrame) -> DataFrame:
    """Number the rows of every transaction in an order that is safe to apply, each change once.

    Deletes come first, then updates, then inserts, across all tables of the transaction, as TiCDC's source
    says of TiCDC's own order: TiCDC splits an update that changes a unique key into a delete and an insert, so that no
    row meets a key that another still holds. Within an operation the order is by table and key. With
    ``output-raw-change-event=true`` such updates stay whole; :func:`split_key_updates` splits those of the handle key
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
        repeated, op_rank(), *_NAMES, F.coalesce("key_hash", "change_hash"), "offset", "partition", "topic", "seq"
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
        ``first_topic, first_partition, first_offset, first_seq`` and ``identical``: whether the content is that of
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
    return Window.partitionBy("commit_ts", "_id").orderBy(*_ARRIVAL)


def _resolved(events: DataFrame) -> Column:
    """What every partition of the log is resolved to, and the least of that, as one value."""
    return (
        events.transform(partition_progress)
        .agg(
            F.struct(
                F.collect_list(F.struct(*_HOME)).alias("homes"),
                # null as soon as one partition has none: then nothing is complete
                F.when(F.count("resolved_ts") == F.count(F.lit(1)), F.min("resolved_ts")).alias("resolved_ts"),
            )
        )
        .scalar()
    )


def _contract(resolved: Column) -> list[Column]:
    """The columns of TRANSACTIONS from those of RESTORED and the partitions' resolved_ts."""
    commit_ts = F.col("commit_ts")
    behind = F.filter(resolved["homes"], lambda h: h["resolved_ts"].isNull() | (h["resolved_ts"] < commit_ts))
    complete = F.coalesce(commit_ts <= resolved["resolved_ts"], F.lit(False))
    nobody = F.array().cast("array<int>")
    of = {
        "complete": complete,
        "missing": F.when(complete, nobody).otherwise(
            F.sort_array(F.array_distinct(F.transform(behind, lambda h: h["partition"])))
        ),
    }
    return [of.get(f.name, F.col(f.name)).alias(f.name) for f in TRANSACTIONS.fields]


# Transactions from sorted changes, batch by batch: the numbers behind :func:`ticdc_lab.transactions.transactions`.

RESTORED = StructType([f for f in TRANSACTIONS.fields if f.name not in ("complete", "missing")])
"""What :func:`restored` yields: transactions, of which nothing is said yet about completeness."""


class _Names:
    """Texts seen so far as numbers; :attr:`rank` says where each stands among them in order."""

    def __init__(self) -> None:
        self._number: dict[str | None, int] = {}
        self.rank = np.zeros(0, dtype=np.int64)

    def numbers(self, texts: pa.Array) -> Ints:
        coded = texts.dictionary_encode(null_encoding="encode")
        known = len(self._number)
        own = [self._number.setdefault(t, len(self._number)) for t in coded.dictionary.to_pylist()]
        if len(self._number) > known:
            seen = list(self._number)
            by_rank = np.array(sorted(range(len(seen)), key=lambda i: (seen[i] is not None, seen[i] or "")))
            self.rank = np.argsort(by_rank)
        numbers: Ints = np.array(own, dtype=np.int64)[coded.indices.to_numpy()]
        return numbers

    def texts(self, numbers: Ints) -> pa.Array:
        return pa.array(list(self._number), pa.string()).take(pa.array(numbers))


@dataclass(frozen=True, slots=True)
class _Transactions:
    """Some transactions in order of commit_ts; ``in_*`` says to which of them a table or a span belongs."""

    commit_ts: Ints
    start_ts: Ints
    firsts: Ints
    deliveries: Ints
    in_table: Ints
    table: Ints
    in_span: Ints
    topic: Ints
    partition: Ints
    first_offset: Ints
    last_offset: Ints

    def __getitem__(self, part: slice) -> _Transactions:
        start, stop, _ = part.indices(len(self.commit_ts))
        tables = slice(*np.searchsorted(self.in_table, (start, stop)))
        spans = slice(*np.searchsorted(self.in_span, (start, stop)))
        cut = {f.name: getattr(self, f.name)[_part_of(f.name, part, tables, spans)] for f in fields(self)}
        return _Transactions(**cut | {"in_table": cut["in_table"] - start, "in_span": cut["in_span"] - start})

    def after(self, other: _Transactions) -> _Transactions:
        """Both, ``other`` first."""
        n = len(other.commit_ts)
        own = {"in_table": self.in_table + n, "in_span": self.in_span + n}
        both = {f.name: (getattr(other, f.name), own.get(f.name, getattr(self, f.name))) for f in fields(self)}
        return _Transactions(**{name: np.concatenate(pair) for name, pair in both.items()})

    def merged(self, *, tables: Ints, topics: Ints) -> _Transactions:
        """Neighbours of one commit_ts as one, with tables in the order of their rank, spans by partition and topic."""
        new = changes_in(self.commit_ts)
        starts, of = np.flatnonzero(new), np.cumsum(new) - 1
        in_table, table = of[self.in_table], self.table
        by_table = np.argsort(in_table * len(tables) + tables[table], kind="stable")
        in_table, table = in_table[by_table], table[by_table]
        first_table = changes_in(in_table, table)
        home = of[self.in_span] * (int(self.partition.max(initial=0)) + 1) + self.partition
        home = home * len(topics) + topics[self.topic]
        by_home = np.argsort(home, kind="stable")
        first_span = np.flatnonzero(changes_in(home[by_home]))
        at = by_home[first_span]
        return _Transactions(
            self.commit_ts[starts],
            np.maximum.reduceat(self.start_ts, starts),
            np.add.reduceat(self.firsts, starts),
            np.add.reduceat(self.deliveries, starts),
            in_table[first_table],
            table[first_table],
            of[self.in_span[at]],
            self.topic[at],
            self.partition[at],
            np.minimum.reduceat(self.first_offset[by_home], first_span),
            np.maximum.reduceat(self.last_offset[by_home], first_span),
        )

    def batch(self, *, tables: _Names, topics: _Names) -> pa.RecordBatch:
        """As RESTORED; the transactions are merged."""
        n = len(self.commit_ts)
        first_home = changes_in(self.in_span, self.partition)
        partition = pa.array(self.partition, pa.int32())
        spans = (partition, topics.texts(self.topic), pa.array(self.first_offset), pa.array(self.last_offset))
        of = {
            "commit_ts": pa.array(self.commit_ts),
            "start_ts": pa.array(self.start_ts, mask=self.start_ts == NO_TS),
            "n_rows": pa.array(self.firsts),
            "tables": _lists(self.in_table, tables.texts(self.table), n),
            "partitions": _lists(self.in_span[first_home], partition.filter(pa.array(first_home)), n),
            "offsets": _lists(self.in_span, pa.StructArray.from_arrays(spans, PARTITION_SPAN.names), n),
            "duplicates": pa.array(self.deliveries - self.firsts),
        }
        return pa.RecordBatch.from_pydict({name: of[name] for name in RESTORED.names})


def restored(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Transactions from changes in order of commit_ts and change_id; the last one waits for the next batch."""
    tables, topics = _Names(), _Names()
    waiting: _Transactions | None = None
    last = (-1, 0)
    for batch in batches:
        if not batch.num_rows:
            continue
        rows, last = _rows(batch, tables=tables, topics=topics, last=last)
        known = (rows if waiting is None else rows.after(waiting)).merged(tables=tables.rank, topics=topics.rank)
        if len(known.commit_ts) > 1:
            yield known[:-1].batch(tables=tables, topics=topics)
        waiting = known[-1:]
    if waiting is not None:
        yield waiting.batch(tables=tables, topics=topics)


def _rows(
    batch: pa.RecordBatch, *, tables: _Names, topics: _Names, last: tuple[int, int]
) -> tuple[_Transactions, tuple[int, int]]:
    """Every change as a transaction of its own, and what tells the last one from the next."""
    commit_ts, change, offset, partition = (
        batch[name].to_numpy().astype(np.int64, copy=False)
        for name in ("commit_ts", "change_id", "offset", "partition")
    )
    is_first = changes_in(commit_ts, change)
    is_first[0] = last != (commit_ts[0], change[0])
    row = np.arange(len(commit_ts))
    start_ts = batch["start_ts"].fill_null(NO_TS).to_numpy()
    table, topic = tables.numbers(batch["table"]), topics.numbers(batch["topic"])
    ones = np.ones_like(row)
    spans = (row, topic, partition, offset, offset)
    rows = _Transactions(commit_ts, start_ts, is_first.astype(np.int64), ones, row, table, *spans)
    return rows, (int(commit_ts[-1]), int(change[-1]))


def _lists(of: Ints, values: pa.Array, n: int) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(np.searchsorted(of, np.arange(n + 1)).astype(np.int32)), values)


def _part_of(name: str, own: slice, tables: slice, spans: slice) -> slice:
    if name.endswith("table"):
        return tables
    return spans if name in ("in_span", "topic", "partition", "first_offset", "last_offset") else own
