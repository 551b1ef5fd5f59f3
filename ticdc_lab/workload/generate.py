"""A workload as a frame of events, or as a log: a task does some lanes, and no lane needs another."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.encode.encoders import MAX_BATCH_SIZE
from ticdc_lab.encode.produce import produce
from ticdc_lab.engine import parallelism
from ticdc_lab.engine.choosing import BYTES_A_ROW
from ticdc_lab.engine.sessions import require_room_to_sort
from ticdc_lab.errors import ContractError
from ticdc_lab.errors.whole_files import room_for
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.schema import EVENTS
from ticdc_lab.lake.one_pass import LakeFile
from ticdc_lab.workload.lanes import events_of, lane_of
from ticdc_lab.workload.settings import Workload
from ticdc_lab.workload.shape import DDL, Shape

TOPIC = "upstream"
ROWS_A_BATCH = 8_192

_OF_ROWS = StructType(
    [EVENTS[n] for n in ("commit_ts", "start_ts", "table_name", "table_id", "op", "columns", "before", "offset", "seq")]
)
_OF_MARKS = StructType(
    [EVENTS[n] for n in ("kind", "commit_ts", "schema_name", "table_name", "table_id", "query", "ddl_type", "offset")]
)


def generate(spark: SparkSession, workload: Workload, *, partitions: int | None = None) -> DataFrame:
    """Make the changes of a workload.

    Parameters
    ----------
    spark
        Any session.
    workload
        They define the log.
    partitions
        Of the frame's row changes; one a lane by default. Changes nothing but which task makes what.

    Returns
    -------
    DataFrame
        The events contract (:data:`ticdc_lab.events.schema.EVENTS`), in no order, made when it is read. ``topic`` is
        ``upstream`` and ``partition`` 0; ``offset`` is the place in the order of all transactions, DDL and watermarks;
        ``seq`` numbers rows of one transaction; ``protocol`` is null. An update has the image before whole. Row
        changes have ``start_ts``, values of ENUM, SET and BIT are numbers, ``ddl_type`` is TiDB's action number. A
        watermark states the greatest ts below which no transaction is open any more.

    Raises
    ------
    ContractError
        ``partitions`` is below 1, or the workload has no room for what it begins with.
    """
    if partitions is not None and partitions < 1:
        raise ContractError(f"partitions is {partitions}; expected at least 1.")
    _ = Shape(workload).rounds
    lanes = spark.range(0, workload.lanes, 1, partitions or workload.lanes)
    rows = lanes.mapInArrow(_rows(workload), _OF_ROWS)
    named = _in_form(rows, kind=F.lit("row"), schema_name=F.lit(workload.schema_name))
    return named.unionByName(marks(spark, workload))


def generate_into(spark: SparkSession, workload: Workload, folder: Path) -> None:
    """Make what :func:`generate` makes into a folder of Parquet files, written by the workers themselves.

    A third of the time that Spark's own writer takes: no row passes through the engine.

    Parameters
    ----------
    spark, workload
        As for :func:`generate`.
    folder
        A path that driver and workers share. What is there is replaced when all is written.

    Raises
    ------
    ContractError
        As :func:`generate`.
    SourceError
        No space is left there.
    """
    _ = Shape(workload).rounds
    folder = folder.resolve()  # the workers may have another working directory
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    try:
        with room_for(new):
            _into(spark, workload, new)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    if folder.is_dir():
        shutil.rmtree(folder)
    folder.unlink(missing_ok=True)
    new.rename(folder)


def _into(spark: SparkSession, workload: Workload, new: Path) -> None:
    new.mkdir(parents=True)
    lanes = spark.range(0, workload.lanes, 1, min(workload.lanes, parallelism(spark)))
    of_rows = _written(_rows(workload), new, kind="row", schema_name=workload.schema_name)
    rest = spark.range(0, 1, 1, 1).mapInArrow(_written(_marks(workload), new, seq=0), _FILES)
    named = set(lanes.mapInArrow(of_rows, _FILES).unionByName(rest).toArrow()["file"].to_pylist())
    for left in (file for file in new.iterdir() if file.name not in named):  # by a task that was tried again
        left.unlink()


def _written(make: Callable[[Batches], Batches], folder: Path, **constants: object) -> Callable[[Batches], Batches]:
    """What makes events, writing them in the contract's form, with these columns added; yields the file."""
    schema, more = arrow_schema(EVENTS), {"topic": TOPIC, "partition": 0} | constants

    def whole(batch: pa.RecordBatch) -> pa.Table:
        n, own = len(batch), dict(zip(batch.schema.names, batch.columns, strict=True))
        given = {f.name: pa.repeat(pa.scalar(more[f.name], f.type), n) for f in schema if f.name in more}
        columns = [(own | given).get(f.name, pa.nulls(n, f.type)).cast(f.type) for f in schema]
        return pa.table(columns, schema=schema)

    def run(batches: Batches) -> Batches:
        file = LakeFile(str(folder), "", schema)
        for batch in make(batches):
            file.add(whole(batch))
        if (done := file.closed()) is not None:
            yield pa.RecordBatch.from_pylist([{"file": done.name}])

    return run


_FILES = "file string"


def marks(spark: SparkSession, workload: Workload) -> DataFrame:
    """Make what :func:`generate` makes besides row changes: DDL and watermarks."""
    return _in_form(spark.range(0, 1, 1, 1).mapInArrow(_marks(workload), _OF_MARKS), seq=F.lit(0))


def _in_form(found: DataFrame, **more: Column) -> DataFrame:
    """The contract; what is constant is a literal, so that Spark leaves out what a filter does not want."""
    those = {"topic": F.lit(TOPIC), "partition": F.lit(0)} | more
    return found.select(
        *[
            those.get(f.name, F.col(f.name) if f.name in found.columns else F.lit(None)).cast(f.dataType).alias(f.name)
            for f in EVENTS.fields
        ]
    )


def _rows(workload: Workload) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        shape, schema = Shape(workload), arrow_schema(_OF_ROWS)
        for batch in batches:
            for lane in batch.column(0).to_pylist():
                for made in events_of(lane_of(shape, lane), shape, ROWS_A_BATCH):
                    yield made.cast(schema)

    return run


def _marks(workload: Workload) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        shape = Shape(workload)
        for batch in batches:
            if batch.num_rows:
                yield _statements(shape)
                yield _watermarks(shape)

    return run


def _statements(shape: Shape) -> pa.RecordBatch:
    """The DDL."""
    said, slots = shape.plan.statements, shape.slots_of_shared(DDL)
    rows = [
        {
            "kind": "ddl", "commit_ts": ts, "schema_name": shape.workload.schema_name, "table_name": s.after.name,
            "table_id": s.after.id, "query": s.query, "ddl_type": str(s.action), "offset": slot,
        }
        for s, slot, ts in zip(said, slots.tolist(), shape.commit_ts_of(slots).tolist(), strict=True)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(_OF_MARKS))


def _watermarks(shape: Shape) -> pa.RecordBatch:
    """The watermarks."""
    slots, values = shape.resolved()
    schema, n = arrow_schema(_OF_MARKS), len(slots)
    has = {"kind": pa.array(["watermark"] * n), "commit_ts": pa.array(values), "offset": pa.array(slots)}
    return pa.RecordBatch.from_arrays([has.get(f.name, pa.nulls(n, f.type)) for f in schema], schema=schema)


STRATEGY, PARTITIONS = "index-value", 3


def log_of(
    spark: SparkSession,
    workload: Workload,
    *,
    protocol: str,
    strategy: str = STRATEGY,
    partitions: int = PARTITIONS,
    columns: Sequence[str] | None = None,
    topic: str = "workload",
    max_batch_size: int = MAX_BATCH_SIZE,
) -> DataFrame:
    """Write a workload as the messages of a topic.

    Parameters
    ----------
    spark, workload
        As for :func:`ticdc_lab.workload.generate`, which makes the truth of this log.
    protocol
        A name of :data:`ticdc_lab.encode.ENCODERS`; what it loses of the truth is listed there.
    strategy, partitions, columns, topic, max_batch_size
        As for :func:`ticdc_lab.encode.produce.produce`. Where the strategy needs an index's definition, call that with
        a catalog.

    Returns
    -------
    DataFrame
        :data:`ticdc_lab.events.schema.MESSAGES`. The same workload gives the same messages.

    Raises
    ------
    ContractError, DispatchError, ProtocolError
        As :func:`ticdc_lab.workload.generate` and :func:`ticdc_lab.encode.produce.produce`.
    SetupError
        The embedded engine cannot sort so many rows in the memory of this machine.
    """
    require_room_to_sort(spark, workload.rows * BYTES_A_ROW)
    resolved = marks(spark, workload).where("kind = 'watermark'").select("commit_ts").distinct()
    return produce(
        generate(spark, workload), protocol=protocol, strategy=strategy, partitions=partitions, columns=columns,
        topic=topic, max_batch_size=max_batch_size, resolved=resolved,
    )  # fmt: skip
