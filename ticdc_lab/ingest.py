"""A Kafka topic into Delta tables, continuously, each message exactly once.

Five tables lie under one folder: ``messages``, ``events``, ``quarantine``, ``watermarks`` and ``transactions``. A batch
passes through them in this order, and every step may be repeated:

1. ``messages``, ``events``, ``quarantine``: appended under the number of the batch, which Delta refuses a second time.
   Events are decoded from the messages *table*, so a repeated batch needs no message from Kafka any more.
2. ``transactions``: those that the batch may have changed are restored again from all their events, and replace what
   the table holds from there on. Complete ones below stay untouched.
3. ``watermarks``: one row a partition, replaced. It names the batch, so what it says is what has been done; a batch
   that is there already is left alone.

What is not resolved yet is the only state: those rows of ``events`` above ``complete_ts``. Delta finds them by the
statistics of its files, and they are read again with each batch until every partition's watermark has passed them.

After each batch ``transactions`` holds what :func:`ticdc_lab.transactions.transactions` gives of the events so far, and
``watermarks`` what :func:`ticdc_lab.watermarks.partition_watermarks` gives. One difference is meant: a transaction that
was complete stays complete when a partition is added later that has had no watermark yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from ticdc_lab.codecs import decode
from ticdc_lab.errors import SourceError
from ticdc_lab.load import load
from ticdc_lab.schema import EVENTS, KEYS, MESSAGES, QUARANTINE, TRANSACTIONS
from ticdc_lab.sources import kafka
from ticdc_lab.transactions import resolved_at, restored_transactions
from ticdc_lab.tso import physical_ms
from ticdc_lab.watermarks import partition_watermarks

EVERY_S = 10.0
"""Seconds between two batches while nothing is behind."""

MESSAGES_A_BATCH = 500_000
"""Messages of one batch at most (the connector's ``maxOffsetsPerTrigger``)."""

_BATCH = StructField("batch_id", LongType(), True, {"comment": "micro-batch that wrote the row"})
_COMPLETE = StructField("complete_ts", LongType(), True, {"comment": "TSO up to which transactions are complete"})

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class State:
    """What the table ``watermarks`` says: the facts of each partition, the last batch, how far all is complete."""

    facts: tuple[Facts, ...] = ()
    batch_id: int = -1
    complete_ts: int | None = None


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables under one folder."""

    spark: SparkSession
    folder: str

    def path(self, name: str) -> str:
        """Where a table lies."""
        return f"{self.folder.rstrip('/')}/{name}"

    def read(self, name: str) -> DataFrame:
        """A table as it is now."""
        return self.spark.read.format("delta").load(self.path(name))

    def of_batch(self, name: str, batch_id: int) -> DataFrame:
        """The rows that a batch has appended."""
        return self.read(name).where(F.col("batch_id") == batch_id)


def ingest(
    spark: SparkSession,
    source: str,
    out: str,
    *,
    protocol: str = "auto",
    options: Mapping[str, str] | None = None,
    once: bool = False,
    every_s: float = EVERY_S,
    said: Callable[[State], None] | None = None,
) -> None:
    """Let Kafka topics flow into Delta tables; returns when all is read (``once``), else when it is interrupted.

    Parameters
    ----------
    spark
        A session with Delta and the Kafka connector, as :func:`ticdc_lab.session.local_session` gives.
    source
        ``kafka://HOST:PORT[,HOST:PORT]/TOPIC[,TOPIC]``.
    out
        Folder of the tables, a path or URL. It goes on where it was, however the last run ended.
    protocol
        As for :func:`ticdc_lab.load.load`; told once, when ``out`` is new.
    options
        As for :func:`ticdc_lab.sources.kafka.read_stream`; ``maxOffsetsPerTrigger`` bounds a batch.
    once
        Read what is there now, then return.
    every_s
        Seconds from the beginning of a batch to that of the next, at least.
    said
        Called after each batch with what is known then.

    Raises
    ------
    SourceError
        The source is no topic, cannot be read, or ``out`` holds another one or has lost its checkpoint.
    """
    if not kafka.is_kafka(source):
        raise SourceError(f"{source} is no Kafka topic.", hint="Read a recording with ticdc-lab events --out DIR.")
    tables, topics = Tables(spark, out), kafka.topics_of(source, options)
    known = _protocol_of(tables, source, protocol, options)
    _create(tables)
    state = read_state(tables)
    _require_checkpoint(tables, state)
    bounded = {"maxOffsetsPerTrigger": str(MESSAGES_A_BATCH)} | dict(options or {})
    with kafka.said_plainly(topics):
        stream = kafka.read_stream(spark, source, bounded)
        writer = stream.writeStream.foreachBatch(_Steps(tables, known, said, state))
        writer = writer.option("checkpointLocation", tables.path("_checkpoint"))
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{every_s} seconds")
        query = writer.start()
        try:
            query.awaitTermination()
        finally:
            query.stop()


@dataclass(slots=True)
class _Steps:
    """What is done with each batch; knows the state that the batch before has left."""

    tables: Tables
    protocol: str
    said: Callable[[State], None] | None
    state: State

    def __call__(self, messages: DataFrame, batch_id: int) -> None:
        """All that one batch does; may be repeated from the beginning after an end at any point."""
        if self.state.batch_id >= batch_id:
            return
        tables = Tables(messages.sparkSession, self.tables.folder)
        append(tables, "messages", messages, batch_id)
        decoded = (
            tables.of_batch("messages", batch_id).select(*MESSAGES.names).transform(decode, protocol=self.protocol)
        )
        events = decoded.where("error_class IS NULL").select(*EVENTS.names, *KEYS.names)
        append(tables, "events", events, batch_id)
        new, undecoded = new_facts(tables, self.state, batch_id)
        if undecoded:
            append(tables, "quarantine", decoded.where("error_class IS NOT NULL").select(*QUARANTINE.names), batch_id)
        state, lowest = next_state(self.state, new, batch_id)
        replace_transactions(tables, state, lowest)
        write_state(tables, state)
        self.state = state
        if self.said is not None:
            self.said(state)


def append(tables: Tables, name: str, rows: DataFrame, batch_id: int) -> None:
    """Append the rows of a batch; nothing happens if they are there already."""
    rows.withColumn("batch_id", F.lit(batch_id).cast("bigint")).write.format("delta").mode("append").options(
        txnAppId=f"ticdc_lab.ingest.{name}", txnVersion=str(batch_id)
    ).save(tables.path(name))


def new_facts(tables: Tables, before: State, batch_id: int) -> tuple[list[Facts], bool]:
    """Facts of the partitions from the events of a batch, and whether some of its messages gave no event.

    Each partition's watermark so far goes before the events, so that a fall is seen.
    """
    events = tables.of_batch("events", batch_id).select("kind", "commit_ts", "topic", "partition", "offset", "seq")
    marks = [
        ("watermark", f["resolved_ts"], f["topic"], f["partition"], -1, 0)
        for f in before.facts
        if f["resolved_ts"] is not None
    ]
    carried = tables.spark.createDataFrame(marks, events.schema)
    n_messages = tables.of_batch("messages", batch_id).agg(F.count(F.lit(1))).scalar()
    n_decoded = events.agg(F.count_if(F.col("seq") == 0)).scalar()
    facts = events.unionByName(carried).transform(partition_watermarks)
    rows = [row.asDict() for row in facts.withColumn("_whole", n_messages == n_decoded).collect()]
    whole = [row.pop("_whole") for row in rows]
    return rows, not all(whole) or not whole


def next_state(before: State, new: list[Facts], batch_id: int) -> tuple[State, int | None]:
    """The state after a batch, and the lowest commit_ts of which a transaction may have changed (None: any)."""
    old = {(f["topic"], f["partition"]): f for f in before.facts}
    for fresh in new:
        at = fresh["topic"], fresh["partition"]
        old[at] = merged(old[at], fresh) if at in old else fresh
    facts = tuple(old[at] for at in sorted(old))
    complete_ts = _later(before.complete_ts, _least([f["resolved_ts"] for f in facts]))
    changed = [f["first_commit_ts"] for f in new if f["first_commit_ts"] is not None]
    lowest = None if before.complete_ts is None else min(before.complete_ts + 1, *changed, before.complete_ts + 1)
    return State(facts, batch_id, complete_ts), lowest


def merged(old: Facts, new: Facts) -> Facts:
    """Facts of one partition from those before a batch and those of the batch, which begins with the old watermark."""
    carried = old["resolved_ts"] is not None
    sums = ("n_watermarks", "n_rows", "n_ddl", "n_regressions", "n_duplicates", "n_stalls")
    most = ("resolved_ts", "last_commit_ts", "last_offset", "step_s_max")
    facts = new | {name: old[name] + new[name] for name in sums} | {n: _later(old[n], new[n]) for n in most}
    least = {name: _earlier(old[name], new[name]) for name in ("first_resolved_ts", "first_commit_ts")}
    facts |= least | {"first_offset": old["first_offset"], "n_watermarks": facts["n_watermarks"] - carried}
    return facts | {"unresolved_s": _unresolved_s(facts["last_commit_ts"], facts["resolved_ts"])}


def replace_transactions(tables: Tables, state: State, lowest: int | None) -> None:
    """Restore all transactions from ``lowest`` on, and put them in the place of those that are there."""
    rows = tables.read("events").where("kind = 'row' AND commit_ts IS NOT NULL")
    homes = [(f["topic"], f["partition"], f["resolved_ts"]) for f in state.facts]
    resolved = resolved_at(homes, resolved_ts=state.complete_ts)
    rows = rows if lowest is None else rows.where(F.col("commit_ts") >= lowest)
    writer = restored_transactions(rows, resolved=resolved).write.format("delta").mode("overwrite")
    if lowest is not None:
        writer = writer.option("replaceWhere", f"commit_ts >= {lowest}")
    writer.save(tables.path("transactions"))


def read_state(tables: Tables) -> State:
    """What the last batch has left; one row a partition."""
    rows = [row.asDict() for row in tables.read("watermarks").collect()]
    last = (rows[0].pop("batch_id"), rows[0].pop("complete_ts")) if rows else (-1, None)
    facts = [{k: v for k, v in row.items() if k not in ("batch_id", "complete_ts")} for row in rows]
    return State(tuple(facts), *last)


def write_state(tables: Tables, state: State) -> None:
    """Replace the table ``watermarks``, which says that the batch is done."""
    more = {"batch_id": state.batch_id, "complete_ts": state.complete_ts}
    schema = _schemas(tables.spark)["watermarks"]
    rows = [Row(**{name: (f | more)[name] for name in schema.names}) for f in state.facts]
    frame = tables.spark.createDataFrame(rows, schema).coalesce(1)
    frame.write.format("delta").mode("overwrite").save(tables.path("watermarks"))


def _schemas(spark: SparkSession) -> dict[str, StructType]:
    """The tables' columns: the contracts, and the batch."""
    progress = spark.createDataFrame([], EVENTS).transform(partition_watermarks).schema
    return {
        "messages": StructType([*MESSAGES.fields, _BATCH]),
        "events": StructType([*EVENTS.fields, *KEYS.fields, _BATCH]),
        "quarantine": StructType([*QUARANTINE.fields, _BATCH]),
        "transactions": TRANSACTIONS,
        "watermarks": StructType([*progress.fields, _BATCH, _COMPLETE]),
    }


def _create(tables: Tables) -> None:
    for name, schema in _schemas(tables.spark).items():
        DeltaTable.createIfNotExists(tables.spark).location(tables.path(name)).addColumns(schema).execute()


def _protocol_of(tables: Tables, source: str, protocol: str, options: Mapping[str, str] | None) -> str:
    """The protocol of the topic; what ``out`` was begun with is kept beside the tables and must stay the same."""
    files, path = _place(tables, "_origin.json")
    jvm: Any = tables.spark.sparkContext._jvm
    names = ",".join(sorted(kafka.topics_of(source).names))
    if files.exists(path):
        begun = json.loads(jvm.org.apache.commons.io.IOUtils.toString(files.open(path), "UTF-8"))
    else:
        told = load(tables.spark, source, protocol=protocol, options=options).protocol
        begun = {"topics": names, "protocol": told}
        draft = _place(tables, "_origin.new")[1]
        file = files.create(draft, True)
        file.write(json.dumps(begun).encode())
        file.close()
        files.rename(draft, path)
    if begun["topics"] != names or protocol not in ("auto", begun["protocol"]):
        raise SourceError(
            f"{tables.folder} holds topics {begun['topics']} as {begun['protocol']}, not {names} as {protocol}.",
            hint="Name another folder with --out.",
        )
    return str(begun["protocol"])


def _require_checkpoint(tables: Tables, state: State) -> None:
    """Without the checkpoint batches would be numbered anew, and Delta would take them for those it has."""
    files, path = _place(tables, "_checkpoint")
    if state.batch_id >= 0 and not files.exists(path):
        raise SourceError(
            f"{tables.folder} holds tables but no longer the _checkpoint that says up to where they were read.",
            hint="Remove the folder, or name another one, and read the topic again.",
        )


def _place(tables: Tables, name: str) -> tuple[Any, Any]:
    """Hadoop's file system of the folder, and the path in it."""
    jvm: Any = tables.spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(tables.path(name))
    return path.getFileSystem(tables.spark.sparkContext._jsc.hadoopConfiguration()), path


def _least(values: list[int | None]) -> int | None:
    """The least; None as soon as one is unknown."""
    known = [v for v in values if v is not None]
    return min(known) if known and len(known) == len(values) else None


def _later(a: Any, b: Any) -> Any:
    return max((v for v in (a, b) if v is not None), default=None)


def _earlier(a: Any, b: Any) -> Any:
    return min((v for v in (a, b) if v is not None), default=None)


def _unresolved_s(last_commit_ts: int | None, resolved_ts: int | None) -> float | None:
    """As :func:`ticdc_lab.watermarks.unresolved_s_col`."""
    if resolved_ts is None or last_commit_ts is None:
        return None if resolved_ts is None else 0.0
    return max((physical_ms(last_commit_ts) - physical_ms(resolved_ts)) / 1000, 0.0)
