"""Events back to a topic: another protocol, another dispatcher, another number of partitions; to Kafka or a file.

What is written is what one changefeed would have written that reads the whole log in commit order. In a partition rows
are in commit order, in one transaction as delete, update, insert (TiCDC's own order), a DDL after the rows it
was committed with, and a watermark W after everything up to W.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from ticdc_lab.dispatch import check_strategy, dispatch
from ticdc_lab.dispatch.definitions import HashedColumns, with_columns_named
from ticdc_lab.dispatch.names import CONFLICT, Flavour
from ticdc_lab.encode import encoder
from ticdc_lab.encode.canal_json import KEYLESS
from ticdc_lab.encode.encoders import writer
from ticdc_lab.encode.export import is_lines, write
from ticdc_lab.engine.columns import least
from ticdc_lab.engine.failures import said_in_a_task
from ticdc_lab.engine.shuffle import Batches, by_key, in_one
from ticdc_lab.errors import ContractError, DispatchError
from ticdc_lab.events import PARTITION, POSITION
from ticdc_lab.events.arrays import NO_TS
from ticdc_lab.events.changes import OP_RANK, op_rank
from ticdc_lab.events.schema import EVENTS, HEADER, MESSAGES, require_batch, require_columns
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import TableDef
from ticdc_lab.facts.laggards import by_topic, resolved_at_steps, stated_values
from ticdc_lab.facts.schemas import STATED, together
from ticdc_lab.facts.watermarks import IS_ROW
from ticdc_lab.sources.kafka import topics_of
from ticdc_lab.sources.kafka_writing import write_messages
from ticdc_lab.sources.places import is_kafka

_WRITTEN = tuple(n for n in EVENTS.names if n not in (*POSITION, "protocol", "start_ts"))
_PLACES = StructType([MESSAGES[n] for n in ("partition", "offset", "key", "value")])
_DDL, _WATERMARK = range(len(OP_RANK), len(OP_RANK) + 2)


def produce(
    events: DataFrame,
    *,
    protocol: str,
    strategy: str,
    partitions: int,
    topic: str = "produced",
    index: str | None = None,
    columns: Sequence[str] | None = None,
    catalog: Catalog | None = None,
    flavour: Flavour = "new",
    max_batch_size: int | None = None,
    resolved: DataFrame | None = None,
) -> DataFrame:
    """Write events as the messages of a new topic.

    Parameters
    ----------
    events
        The events contract. Every delivery of a row is written, so that a repeated one is beside its first; of a
        DDL one, for any number of partitions or restarts. What protocols lose is in
        :data:`ticdc_lab.encode.ENCODERS`. Admin events, which name partitions of their own log, and
        bootstrap events are left out.
    protocol
        A name of :data:`ticdc_lab.encode.ENCODERS`.
    strategy, partitions, index, columns, catalog, flavour
        As for :func:`ticdc_lab.dispatch.dispatch`.
    topic
        Name of the new topic.
    max_batch_size
        Rows in a message at most, where the protocol batches (open-protocol). Rows of one message follow each other
        in commit order and share the partition key. By default rows of open-protocol share a message only if they did
        so in the log, and rows of other protocols share messages of up to 16.
    resolved
        The values of the watermarks (``commit_ts``, each once), where they are known without reading ``events``;
        by default :func:`resolved_values`.

    Returns
    -------
    DataFrame
        :data:`ticdc_lab.events.schema.MESSAGES`, ``offset`` dense from 0 in each partition, ``timestamp`` null, no
        headers. Each value of ``resolved`` is a watermark, once in every partition; a DDL is in every partition, or
        in partition 0 alone where TiCDC sends it there only. The same events give the same messages.

    Raises
    ------
    ContractError
        A column is missing, or ``max_batch_size`` is below 1.
    StreamingError
        ``events`` is a stream.
    DispatchError, ProtocolError
        The strategy or the protocol is unknown, or the strategy is ``conflict``. When the frame is read, Spark fails
        with their text if a row cannot be dispatched, which stops TiCDC's changefeed too, or has no form in the
        protocol.

    References
    ----------
    MQ design, constraint 2; TiCDC's source.
    """
    require_columns(events, *_WRITTEN, *POSITION)
    require_batch(events, function="produce", why="a topic is written in commit order")
    check_strategy(strategy)
    if strategy.lower() == CONFLICT:
        raise DispatchError(
            "A topic cannot be written by conflict detection: no protocol has a message for its alignments, without "
            "which a consumer does not know when to wait.",
            hint="See what it would do with: ticdc-lab dispatch --strategy conflict",
        )
    how = encoder(protocol)
    if max_batch_size is not None and max_batch_size < 1:
        raise ContractError(f"max_batch_size is {max_batch_size}; expected at least 1 row.")
    rows = dispatch(
        events.where(IS_ROW), strategy=strategy, partitions=partitions, index=index, columns=columns,
        catalog=catalog, flavour=flavour,
    )  # fmt: skip
    everywhere = F.sequence(F.lit(0), F.lit(partitions - 1))
    parts = (
        _rows(rows, catalog if protocol == "canal-json" else None),
        _broadcast(_ddl(events), to=everywhere if how.ddl_to_all else F.array(F.lit(0)), rank=_DDL),
        _broadcast(_marks(resolved_values(events) if resolved is None else resolved), to=everywhere, rank=_WATERMARK),
    )
    whole = parts[0].unionByName(parts[1]).unionByName(parts[2])
    write = writer(protocol, max_batch_size=max_batch_size)
    written = by_key(whole, "target_partition", write, _PLACES, order=("commit_ts", "_rank", *POSITION))
    return _as_messages(written, topic)


def resolved_values(events: DataFrame) -> DataFrame:
    """Find the values that the log's global resolved_ts took (:func:`ticdc_lab.facts.laggards.resolved_at_steps`).

    Parameters
    ----------
    events
        ``kind``, ``commit_ts``, ``topic``, ``partition``.

    Returns
    -------
    DataFrame
        ``commit_ts`` (bigint), each value once; the greatest is the least ``resolved_ts`` that
        :func:`ticdc_lab.facts.watermarks.topic_watermarks` gives. Empty while a partition has no watermark.
    """
    require_columns(events, "kind", "commit_ts", *PARTITION)
    require_batch(events, function="resolved_values", why="the steps are ordered by value over the whole log")

    def judge(batches: Batches) -> Batches:
        partitions = [own for _, values in by_topic(together(batches, STATED)) for own in values.values()]
        resolved = resolved_at_steps(partitions)[1] if partitions else np.empty(0, dtype=np.int64)
        yield pa.RecordBatch.from_pydict({"commit_ts": np.unique(resolved[resolved != NO_TS])})

    return in_one(stated_values(events), judge, "commit_ts bigint")


def table_of_row() -> Column:
    """The table of a row change, as a sentence names it: avro has deletes that name none."""
    return F.coalesce(F.concat("schema_name", F.lit("."), "table_name"), F.lit("a row change that names no table"))


def _rows(rows: DataFrame, catalog: Catalog | None) -> DataFrame:
    """Row changes with their partition; where there is none, reading fails with the reason.

    ``catalog``: where it is asked which tables have no primary key.
    """
    failed = F.concat(
        *(F.lit("A row cannot be dispatched, so the topic cannot be written: "), table_of_row()),
        *(F.lit(" at commit_ts "), F.coalesce(F.col("commit_ts").cast("string"), F.lit("null"))),
        *(F.lit(": "), F.coalesce("dispatch_error", F.lit("no partition"))),
    )
    keyless = F.lit(False)
    defined = [] if catalog is None else [v.definition for versions in catalog.versions.values() for v in versions]
    if catalog is not None and any(table is not None and table.primary is None for table in defined):
        rows = with_columns_named(rows, catalog=catalog, question=_primary_key, name="_primary")
        keyless = F.coalesce(F.size("_primary") == 0, keyless)
    batched = F.lit(False)
    if "protocol" in rows.columns:  # simple names a table by the id that open-protocol keeps for its partitions alone
        batched = F.col("protocol") == "open-protocol"
        rows = rows.withColumn("table_id", F.when(batched, F.col("table_id")))
    rank = op_rank().cast("int")
    return rows.select(
        *_WRITTEN,
        *POSITION,
        F.coalesce("target_partition", F.raise_error(failed).cast("int")).alias("target_partition"),
        "dispatch_key",
        F.coalesce(batched, F.lit(False)).alias("batched"),
        keyless.alias(KEYLESS),
        rank.alias("_rank"),
    )


def _primary_key(table: TableDef) -> HashedColumns:
    return HashedColumns(columns=table.primary.columns if table.primary else ())


def _ddl(events: DataFrame) -> DataFrame:
    """Each DDL once, at the first place that holds it."""
    by = ["commit_ts", "schema_name", "table_name", "query", "ddl_type"]
    first = least(*POSITION).alias("_place")
    return events.where("kind = 'ddl'").groupBy(*by).agg(first).select(*by, "_place.*", F.lit("ddl").alias("kind"))


def _marks(values: DataFrame) -> DataFrame:
    return values.select("commit_ts", F.lit("watermark").alias("kind"))


def _broadcast(events: DataFrame, *, to: Column, rank: int) -> DataFrame:
    """The events in each of the partitions ``to``, with nulls for missing columns."""
    types = {f.name: f.dataType for f in EVENTS.fields}
    lacking = [F.lit(None).cast(types[n]).alias(n) for n in (*_WRITTEN, *POSITION) if n not in events.columns]
    return events.select(
        "*",
        *lacking,
        F.explode(to).alias("target_partition"),
        F.lit(None).cast("string").alias("dispatch_key"),
        F.lit(False).alias("batched"),
        F.lit(False).alias(KEYLESS),
        F.lit(rank).alias("_rank"),
    )


def _as_messages(places: DataFrame, topic: str) -> DataFrame:
    return places.select(
        F.lit(topic).alias("topic"),
        "partition",
        "offset",
        F.lit(None).cast("timestamp").alias("timestamp"),
        "key",
        "value",
        F.array().cast(ArrayType(HEADER)).alias("headers"),
    )


_RAISED = re.compile(r"(?:\[USER_RAISED_EXCEPTION\] |(?=A row cannot be dispatched))(.*?)(?: SQLSTATE|\n|$)")
"""Spark marks what an expression raises; the embedded engine passes on the text alone."""


def write_topic(messages: DataFrame, out: str, *, options: Mapping[str, str] | None = None) -> None:
    """Write the messages of a topic.

    Parameters
    ----------
    messages
        :data:`ticdc_lab.events.schema.MESSAGES`.
    out
        A file, gzip where it ends with ``.gz``: a capture file, key and value in base64. ``*.parquet``: a folder of
        Parquet files. ``DIR/``: a Delta table. ``kafka://host:port[,host:port]/topic``: a Kafka topic, for any topic
        the messages name (:func:`~ticdc_lab.sources.kafka_writing.write_messages`); it must have their
        partitions.
    options
        For Kafka: settings of its Java clients, ``kafka.*``. Their values are in no error's text.

    Raises
    ------
    SourceError
        ``out`` cannot be written.
    DispatchError, ProtocolError
        A row cannot be dispatched or encoded.
    """
    require_columns(messages, *MESSAGES.names, frame="messages")
    try:
        if is_kafka(out):
            write_messages(messages, topics_of(out, options))
        else:
            # in the capture format Spark's JSON has binary in base64, and a timestamp is a number of milliseconds
            write(messages.withColumn("timestamp", F.unix_millis("timestamp")) if is_lines(out) else messages, out)
    except PySparkException as e:
        raise _refused(e) or said_in_a_task(e) or e from e


def _refused(e: PySparkException) -> DispatchError | None:
    """What an expression of the engine raised on purpose."""
    found = _RAISED.search(str(e))
    return None if found is None else DispatchError(found[1])
