"""Rows brought together for a kernel: all of a key, or all there are.

A kernel is a function over Arrow batches. Three ways lead rows to it, and a caller chooses none of them:

* Rows of a frame on Spark are repartitioned and sorted: a task sees a stream of sorted batches, never more than one.
* Rows of a frame on the embedded engine, which keeps neither grouping nor order through ``repartition`` and
  ``sortWithinPartitions``, are put into buckets, and each bucket is sorted before the kernel sees it.
* Rows that workers make (:class:`MadeByWorkers`) travel between Spark's tasks in packs of a bucket, as a row costs
  Spark more than a kernel. Beside the embedded engine this process makes and groups them: :func:`grouped_by`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from math import ceil
from pathlib import Path
from threading import Event, Lock
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from ticdc_lab.engine.giving_up import still_wanted, unless
from ticdc_lab.engine.json_lines import batches_of
from ticdc_lab.engine.memory import require_memory_left
from ticdc_lab.engine.ordering import order_of
from ticdc_lab.engine.sessions import computes_here, has_jvm, is_sail, parallelism
from ticdc_lab.errors.whole_files import room_for

Batches = Iterator[pa.RecordBatch]
Kernel = Callable[[Batches], Batches]
KernelOf = Callable[[pa.Table], Kernel]
"""A kernel that first wants a small table, which it knows whole."""

BUCKETS = 16
"""Into how many parts the embedded engine cuts the keys; one part is in memory for each core."""

SENT = 16 << 20
"""Bytes of a small table that go with a query to an engine at the other end of a connection, at most."""

BROADCAST = 1 << 30
"""The same of an engine that broadcasts them: each task holds them twice."""

PACKED = 1 << 17
"""Rows that a worker holds until it packs them, some ten MB."""

PACKED_BUCKETS = 64
"""Buckets of packed rows, at least; each task gets as many, and holds one of them whole."""

ROWS_A_BUCKET = 1 << 19
"""Packed rows of a bucket, about, where there are more of them: some 30 MB, held twice or so by a task."""

ROWS_HERE = 1 << 20
"""Rows that a thread of this process groups by key at once: 64 MB, held three times or so."""

ROWS_A_TASK = 1 << 22
"""Packed rows of a task, about: Spark sorts their packs by bucket in 250 MB of its memory, and spills what has none."""

_BUCKET = "_bucket"
_BESIDE = "_beside"


@dataclass(frozen=True, slots=True)
class MadeByWorkers:
    """Rows that Spark's workers make, each of its pieces, such as files that all of them see."""

    spark: SparkSession  # the session
    pieces: tuple[Any, ...]  # name those, such as a file and a part of it, and ``read`` gives the rows of one
    read: Callable[[Any], Batches]
    schema: pa.Schema  # of what it gives; of bigint columns where they are shuffled, and the key has no nulls
    rows: int = 0  # about how many rows these are

    def mapped(self, kernel: Kernel, schema: StructType | str) -> DataFrame:
        """What a kernel makes of each piece's rows, one task a piece."""
        pieces, read = self.pieces, self.read

        def run(numbered: Batches) -> Batches:
            yield from kernel(chain.from_iterable(read(pieces[i]) for b in numbered for i in b["id"].to_pylist()))

        return self.spark.range(0, len(pieces), 1, max(1, len(pieces))).mapInArrow(run, schema)

    def found(self, kernel: Kernel, form: pa.Schema) -> pa.Table:
        """What a kernel makes of each piece's rows, at once: little.

        Where this process computes, threads of it make it, which has imported what the kernel needs.
        """
        if not computes_here(self.spark):
            return self.mapped(kernel, from_arrow_schema(form)).toArrow().cast(form)
        return by_threads(self.spark, [partial(self.read, piece) for piece in self.pieces], kernel, form)


def by_threads(
    spark: SparkSession, parts: Sequence[Callable[[], Batches]], kernel: Kernel, form: pa.Schema
) -> pa.Table:  # fmt: skip
    """What a kernel makes of parts of rows, each in a thread of this process."""
    over = Event()

    def wanted(rows: Batches) -> Batches:
        still_wanted()  # the first batch of a bucket is made of all its rows
        for batch in rows:
            still_wanted()
            require_memory_left()
            yield batch

    def of_part(rows: Callable[[], Batches]) -> list[pa.RecordBatch]:
        with unless(over):
            return list(kernel(wanted(rows())))

    with ThreadPoolExecutor(parallelism(spark)) as pool:
        made = [pool.submit(copy_context().run, of_part, rows) for rows in parts]
        try:
            return pa.Table.from_batches(chain.from_iterable(m.result() for m in made), form)
        finally:
            over.set()  # one that fails, or an interrupt, ends the others, and those that wait do not begin
            pool.shutdown(wait=False, cancel_futures=True)


def dealt_out(frame: DataFrame, n: int) -> list[Callable[[], Batches]]:
    """Rows of a frame of an engine at the other end of a connection, in the form of its schema: each of so many threads
    takes the next batch as they come.
    """
    form, lock = _arrow(frame.schema), Lock()
    batches = (batch.cast(form) for batch in batches_of(frame))

    def taken() -> Batches:
        while True:
            with lock:
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    return [taken] * n


def by_key(
    rows: DataFrame | MadeByWorkers,
    key: str | Sequence[str],
    kernel: Kernel,
    schema: StructType | str,
    *,
    order: Sequence[str] = (),
) -> DataFrame:
    """Run a kernel over rows; rows with the same key come together, in order.

    ``rows``: any frame, or what workers make. ``key``: columns that identify rows. A call of the kernel sees whole
    keys, many of them, rising (nulls first). ``kernel``: from batches to batches. It must not depend on where a batch
    ends. ``schema``: of what the kernel yields. ``order``: columns that order the rows of a key. Returns: what the
    kernel yields, in no order.
    """
    keys = [key] if isinstance(key, str) else list(key)
    if isinstance(rows, MadeByWorkers):
        tasks, buckets = tasks_and_buckets(rows.rows, cores=parallelism(rows.spark))
        form, first = rows.schema, keys[0]  # a hash of one column alone is needed here

        def packing(batches: Batches) -> Batches:
            return (_packs(held, first, buckets) for held in several_at_once(batches))

        def unpacking(packed: Batches) -> Batches:
            for _, own in buckets_in(packed):
                whole = pa.Table.from_batches([pa.ipc.read_record_batch(p, form) for p in own]).combine_chunks()
                yield from kernel(_sorted(whole, [*keys, *order]))

        return dealt(rows.mapped(packing, PACK), tasks).mapInArrow(unpacking, schema)
    if not is_sail(rows.sparkSession):
        return rows.repartition(*keys).sortWithinPartitions(*keys, *order).mapInArrow(kernel, schema)
    bucket = F.pmod(F.xxhash64(*keys), F.lit(BUCKETS)).alias(_BUCKET)
    named = _in_buckets(rows.select("*", bucket), rows)
    return named.applyInArrow(_of_bucket(kernel, [*keys, *order], _arrow(schema)), schema)


def by_key_beside(
    rows: DataFrame | MadeByWorkers,
    key: str | Sequence[str],
    kernel: KernelOf,
    schema: StructType | str,
    *,
    beside: DataFrame | pa.Table,
    order: Sequence[str] = (),
) -> DataFrame:
    """:func:`by_key` with a kernel that knows all rows of a small frame, such as the facts of a whole log.

    ``beside``: a few rows, in no order. Every task holds them; no job is started for them here. A table goes with the
    kernel, so :func:`is_sent` should be true of it. ``rows``, ``key``, ``kernel``, ``schema``, ``order``: as of
    :func:`by_key`; ``kernel(table)`` gives the kernel. Returns: what the kernel yields, in no order.
    """
    if isinstance(beside, pa.Table):
        return by_key(rows, key, kernel(beside), schema, order=order)
    assert not isinstance(rows, MadeByWorkers), "a table goes with rows that workers make"
    keys = [key] if isinstance(key, str) else list(key)
    if not is_sail(rows.sparkSession):
        # one binary, as a column of structs would cost as much as the shuffle though it is null except in a row
        whole = in_one(beside, _as_bytes, f"{_BESIDE} binary").select(F.first(_BESIDE)).scalar()
        # the first row of each task carries them: this is how a broadcast reaches Python
        is_first = F.expr("(monotonically_increasing_id() & 8589934591) = 0")
        sorted_rows = rows.repartition(*keys).sortWithinPartitions(*keys, *order)
        none = _arrow(beside.schema).empty_table()

        def knowing(batches: Batches) -> Batches:
            first = next((b for b in batches if len(b)), None)
            if first is None:
                return
            packed = first.column(_BESIDE)[0].as_buffer()
            known = none if packed is None else pa.ipc.open_stream(packed).read_all()
            yield from kernel(known)(b.drop_columns([_BESIDE]) for b in chain([first], batches))

        return sorted_rows.withColumn(_BESIDE, F.when(is_first, whole)).mapInArrow(knowing, schema)
    bucket = F.pmod(F.xxhash64(*keys), F.lit(BUCKETS)).alias(_BUCKET)
    every = F.explode(F.sequence(F.lit(0), F.lit(BUCKETS - 1))).cast("bigint").alias(_BUCKET)
    known = beside.toDF(*[f"{_BESIDE}{c}" for c in beside.columns]).withColumn(_BESIDE, F.lit(1))
    of_rows, of_known = ([f"CAST(NULL AS {t}) AS {n}" for n, t in frame.dtypes] for frame in (rows, known))
    both = (
        rows.selectExpr("*", *of_known).select("*", bucket).unionAll(known.selectExpr(*of_rows, "*").select("*", every))
    )
    arrow = _arrow(schema)

    def of_both(bucket: pa.Table) -> pa.Table:
        is_known = pc.is_valid(bucket[_BESIDE])
        names = [c for c in bucket.column_names if c.startswith(_BESIDE)]
        small = bucket.filter(is_known).select([c for c in names if c != _BESIDE])
        small = small.rename_columns([c.removeprefix(_BESIDE) for c in small.column_names])
        own = bucket.filter(pc.invert(is_known)).drop_columns(names)
        return _of_bucket(kernel(small), [*keys, *order], arrow)(own) if own.num_rows else arrow.empty_table()

    return _in_buckets(both, rows, known).applyInArrow(of_both, schema)


def is_sent(small: pa.Table, spark: Callable[[], SparkSession]) -> bool:
    """Whether a table is small enough to go with a kernel; a larger one is gathered where the kernel runs."""
    return bool(small.nbytes <= SENT or (small.nbytes <= BROADCAST and has_jvm(spark())))


def in_one(rows: DataFrame, kernel: Kernel, schema: StructType | str, *, order: Sequence[str] = ()) -> DataFrame:
    """Run a kernel once over all rows of a small frame, in order; over none it may not run at all."""
    if not is_sail(rows.sparkSession):
        return rows.repartition(1).sortWithinPartitions(*order).mapInArrow(kernel, schema) if order else (
            rows.repartition(1).mapInArrow(kernel, schema)
        )  # fmt: skip
    named = _in_buckets(rows.select("*", F.lit(0).cast("bigint").alias(_BUCKET)), rows)
    return named.applyInArrow(_of_bucket(kernel, order, _arrow(schema)), schema)


def quantiles(rows: DataFrame, column: str, shares: Sequence[float], *, accuracy: int) -> list[int]:
    """Values of a bigint column below which these shares of its values lie, rising; none where it has no value.

    Starts a job. On Spark they are off by a share of ``1 / accuracy`` at most; Sail's own interpolate between values,
    so there they are counted.
    """
    if not is_sail(rows.sparkSession):
        found = rows.agg(F.percentile_approx(column, list(shares), accuracy).alias("q")).collect()[0]["q"]
        return list(found or ())

    def run(batches: Batches) -> Batches:
        values = np.sort(np.concatenate([b.column(0).drop_null().to_numpy(zero_copy_only=False) for b in batches]))
        at = [max(0, ceil(share * len(values)) - 1) for share in shares] if len(values) else []
        yield pa.record_batch([pa.array(values[at], pa.int64())], names=["q"])

    return sorted(in_one(rows.select(column), run, "q bigint").toArrow()["q"].to_pylist())


def _in_buckets(named: DataFrame, *parts: DataFrame) -> GroupedData:
    """Rows by their bucket, which have the columns of other frames beside it.

    A client that knows these is given them: else it requests them, which takes as long as planning the whole frame.
    """
    known = [k for part in parts if isinstance(k := getattr(part, "_cached_schema", None), StructType)]
    if len(known) == len(parts):
        fields = [field for part in known for field in part.fields]
        named._cached_schema = StructType([*fields, StructField(_BUCKET, LongType())])  # type: ignore[attr-defined]
    return named.groupBy(_BUCKET)


def _of_bucket(kernel: Kernel, order: Sequence[str], arrow: pa.Schema) -> Callable[[pa.Table], pa.Table]:
    names = arrow.names

    def run(bucket: pa.Table) -> pa.Table:
        rows = bucket.drop_columns([_BUCKET])
        if order:
            rows = rows.take(spark_order(rows, order))
        found = list(kernel(iter(rows.to_batches())))
        return pa.Table.from_batches(found).select(names).cast(arrow) if found else arrow.empty_table()

    return run


def _as_bytes(batches: Batches) -> Batches:
    """All rows of a small frame in Arrow's form, as one value; nothing of none."""
    if filled := [b for b in batches if len(b)]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, filled[0].schema) as stream:
            for batch in filled:
                stream.write_batch(batch)
        yield pa.record_batch([pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=[_BESIDE])


# Rows that this process has, or reads itself.


def mapped(rows: DataFrame | MadeByWorkers | pa.Table, kernel: Kernel, form: pa.Schema) -> DataFrame | pa.Table:
    """What a kernel makes of rows: at once where this process has them, or reads them itself."""
    if isinstance(rows, pa.Table):
        return pa.Table.from_batches(kernel(iter(rows.to_batches())), form)
    if isinstance(rows, MadeByWorkers):
        return rows.found(kernel, form) if computes_here(rows.spark) else rows.mapped(kernel, from_arrow_schema(form))
    return rows.mapInArrow(kernel, from_arrow_schema(form))


def grouped_by(
    rows: DataFrame | MadeByWorkers | pa.Table, key: Sequence[str], kernel: Kernel, form: pa.Schema, *,
    order: Sequence[str] = (),
) -> DataFrame | pa.Table:  # fmt: skip
    """:func:`by_key`, at once where this process has the rows, or reads them itself.

    Spark's workers stream what they read: a key may have more rows than a task could hold.
    """
    if isinstance(rows, MadeByWorkers):
        rows = mapped(rows, lambda batches: batches, rows.schema)
    if isinstance(rows, pa.Table):
        return pa.Table.from_batches(kernel(_sorted(rows.combine_chunks(), [*key, *order])), form)
    return by_key(rows, key, kernel, from_arrow_schema(form), order=order)


def at_once(rows: DataFrame | pa.Table, form: pa.Schema) -> pa.Table:
    """Few rows, here."""
    return rows if isinstance(rows, pa.Table) else rows.toArrow().cast(form)


def by_key_here(
    rows: MadeByWorkers, key: str, kernel: Kernel, form: pa.Schema, *, order: Sequence[str] = (),
    some: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> pa.Table:  # fmt: skip
    """:func:`by_key` beside the embedded engine, at once and in this process: ``rows`` of a few numbers each.

    Of these only ``some`` are sorted. More rows than :data:`ROWS_HERE` a core are first laid apart by key into
    temporary files, from which each thread takes one bucket after the other: memory does not grow with the log.
    """
    cores, keys = parallelism(rows.spark), [key, *order]
    if rows.rows > cores * ROWS_HERE:
        with tempfile.TemporaryDirectory(prefix="ticdc_lab_") as folder, room_for(folder, keep=True):
            buckets = min(cores * ceil(rows.rows / ROWS_HERE / cores), _MOST)
            laid = rows.found(_laid_apart(Path(folder), key, buckets), _LAID)
            each = [partial(_bucket_of_files, laid, i, rows.schema, some, keys) for i in range(buckets)]
            return by_threads(rows.spark, each, kernel, form)
    whole = some(rows.found(lambda batches: batches, rows.schema)).combine_chunks()
    bucket = bucket_of(whole[key], cores)
    at, ends = np.argsort(bucket, kind="stable"), np.cumsum(np.bincount(bucket, minlength=cores))

    def own(of: npt.NDArray[np.int64]) -> Batches:
        yield from _sorted(whole.take(pa.array(of)), keys)

    return by_threads(rows.spark, [partial(own, of) for of in np.split(at, ends[:-1])], kernel, form)


_LAID = pa.schema([("file", pa.string()), ("batch", pa.int64()), (_BUCKET, pa.int64())])
"""Where rows of a bucket lie: in a batch of a file."""


def _laid_apart(folder: Path, key: str, buckets: int) -> Kernel:
    """Write rows into a file of the folder, a batch for the rows of each bucket among some; :data:`_LAID`."""

    def run(batches: Batches) -> Batches:
        file, filled = folder / uuid4().hex, list[int]()
        with pa.OSFile(str(file), "wb") as opened:
            out = None
            for held in several_at_once(batches):
                out = out or pa.ipc.new_file(opened, held[0].schema)
                for bucket, own in _apart(held, key, buckets):
                    out.write_batch(own)
                    filled.append(bucket)
            if out is not None:
                out.close()
        yield pa.record_batch([[str(file)] * len(filled), range(len(filled)), filled], schema=_LAID)

    return run


def _bucket_of_files(
    laid: pa.Table, bucket: int, form: pa.Schema, some: Callable[[pa.Table], pa.Table], order: Sequence[str]
) -> Batches:
    """Rows of a bucket in order, which :func:`_laid_apart` wrote."""
    own, found = laid.filter(pc.equal(laid[_BUCKET], bucket)), list[pa.RecordBatch]()
    for file, at in groupby(zip(*own.select(["file", "batch"]).to_pydict().values(), strict=True), lambda p: p[0]):
        still_wanted()
        with pa.OSFile(file) as opened:
            written = pa.ipc.open_file(opened)
            found += [written.get_batch(i) for _, i in at]
    whole = pa.Table.from_batches(found, form).combine_chunks()  # a log of many files has small batches for a bucket
    found.clear()
    yield from _sorted(some(whole).combine_chunks(), order)


# Rows in packs, on their way between tasks of Spark.

PACK = f"{_BUCKET} int, pack binary"
"""Rows of a bucket in one value."""


def dealt(packed: DataFrame, tasks: int) -> DataFrame:
    """Packs (:data:`PACK`), one bucket's after the other; each task gets as many buckets."""
    of_task = F.pmod(_BUCKET, F.lit(tasks))  # by their hash some tasks would get four
    return packed.repartitionById(tasks, of_task).sortWithinPartitions(_BUCKET)


def buckets_in(packed: Batches) -> Iterator[tuple[int, list[pa.Buffer]]]:
    """Each bucket of a task of :func:`dealt`, with its packs."""
    packs = chain.from_iterable(zip(b[_BUCKET].to_pylist(), b["pack"], strict=True) for b in packed)
    for bucket, own in groupby(packs, key=lambda p: p[0]):
        yield bucket, [p.as_buffer() for _, p in own]


_MIX = np.uint64(0x9E3779B97F4A7C15)
_MOST = 1 << 15  # a bucket is a number of 16 bits


def tasks_and_buckets(rows: int, *, cores: int) -> tuple[int, int]:
    """How many tasks bring packed rows together, as many on each core, and how many buckets, as many in each task.

    Examples
    --------
    >>> [tasks_and_buckets(n, cores=2) for n in (0, 10**7, 10**8)]
    [(2, 64), (4, 64), (24, 192)]
    """
    tasks = min(cores * max(1, ceil(rows / ROWS_A_TASK / cores)), _MOST)  # more would only cost their starts
    return tasks, tasks * ceil(min(max(PACKED_BUCKETS, rows / ROWS_A_BUCKET), _MOST) / tasks)


def several_at_once(rows: Batches) -> Iterator[list[pa.RecordBatch]]:
    """Batches, together until they have :data:`PACKED` rows: split by table, a small one has few of each."""
    held: list[pa.RecordBatch] = []
    for batch in rows:
        held.append(batch)
        if sum(map(len, held)) >= PACKED:
            yield held
            held = []
    if any(map(len, held)):
        yield held


def bucket_of(key: pa.Array | pa.ChunkedArray, buckets: int) -> npt.NDArray[np.uint16]:
    """Number of the bucket that each value of a bigint column without nulls is put into."""
    mixed = key.to_numpy().view(np.uint64) * _MIX
    bucket: npt.NDArray[np.uint16] = ((mixed >> np.uint64(32)) % np.uint64(buckets)).astype(np.uint16)
    return bucket  # of 16 bits, which a stable sort counts


def _by_highest_bits(key: pa.ChunkedArray, buckets: int) -> npt.NDArray[np.uint16]:
    """:func:`bucket_of` from other bits than a kernel's table takes a key's slot from: a bucket fills all of the table.

    With a multiple of four buckets ``bucket_of`` leads all keys of a bucket to a quarter of the slots, and most are
    searched one by one. A watch names its files by ``bucket_of``.
    """
    mixed = key.to_numpy().view(np.uint64) * _MIX
    bucket: npt.NDArray[np.uint16] = ((mixed >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(np.uint16)
    return bucket


def _packs(held: Sequence[pa.RecordBatch], key: str, buckets: int) -> pa.RecordBatch:
    """Rows in Arrow's form, a bucket as one value."""
    sink, at, filled = pa.BufferOutputStream(), [0], list[int]()
    for i, own in _apart(held, key, buckets):
        sink.write(own.serialize())
        at.append(sink.tell())
        filled.append(i)
    places = pa.py_buffer(np.array(at, dtype=np.int32))
    packs = pa.BinaryArray.from_buffers(pa.binary(), len(filled), [None, places, sink.getvalue()])
    return pa.record_batch([pa.array(filled, pa.int32()), packs], names=[_BUCKET, "pack"])


def _apart(held: Sequence[pa.RecordBatch], key: str, buckets: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows of each bucket that has any."""
    rows = pa.Table.from_batches(held).combine_chunks()
    assert not rows[key].null_count, f"{key} has nulls, which have no hash"
    bucket = _by_highest_bits(rows[key], buckets)
    (whole,) = rows.take(pa.array(np.argsort(bucket, kind="stable"))).combine_chunks().to_batches()
    n = np.bincount(bucket, minlength=buckets)
    ends = np.cumsum(n).tolist()
    yield from ((i, whole.slice(ends[i] - int(n[i]), int(n[i]))) for i in np.flatnonzero(n).tolist())


# How rows are sorted.


def _sorted(rows: pa.Table, order: Sequence[str]) -> Batches:
    """Rows in order, some at a time: a kernel holds a batch, and all of them are here but once."""
    places = spark_order(rows, order)
    for at in range(0, len(places), PACKED):
        yield from rows.take(places[at : at + PACKED]).to_batches()


def spark_order(rows: pa.Table, order: Sequence[str]) -> pa.Array:
    """Where rows stand when sorted as Spark sorts, nulls first."""
    columns = [rows[c] for c in order]
    if all(pa.types.is_integer(c.type) and not c.null_count for c in columns):
        return pa.array(order_of(*[c.to_numpy() for c in columns], stable=False))
    return pc.sort_indices(rows, [(c, "ascending", "at_start") for c in order])


def _arrow(schema: StructType | str) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    found = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(found, StructType)
    return to_arrow_schema(found, timezone="UTC")
