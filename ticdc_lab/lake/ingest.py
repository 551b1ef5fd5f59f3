"""A Kafka topic into Delta tables, continuously, each message exactly once.

Five tables lie under one folder: ``messages``, ``events``, ``quarantine``, ``watermarks`` and ``transactions``; in the
simple protocol a sixth, ``table_versions``. A batch passes through them in this order, and every step may be repeated:

1. ``messages``, ``table_versions``, ``events``: appended under the number of the batch, which Delta refuses a second
   time. Where the workers see the folder one pass writes messages, events and ``quarantine``
   (:mod:`ticdc_lab.lake.one_pass`). A batch that an earlier run has begun, one of a protocol whose schemas come with
   the log, and any batch at a URL is decoded from the messages *table*, so that it needs no message from Kafka again.
2. Messages of earlier batches whose schema has come: their events are appended, then they leave ``quarantine``
   (:mod:`ticdc_lab.lake.tables`).
3. ``quarantine``: the batch's messages that ``events`` has nothing of.
4. ``transactions``: the ones that the batch may have changed are restored again from all their events, and replace what
   the table has from there on. Complete ones below stay untouched.
5. ``watermarks``: one row a partition, replaced. It names the batch, so it records what has been done; a batch
   that is there already is left alone.

What is not resolved yet is the only state: those rows of ``events`` above ``complete_ts``. Delta finds them by the
statistics of its files, and they are read again with each batch until every partition's watermark has passed them.

Rows that a schema comes for late may lie below ``complete_ts``, as rows that are delivered again may: transactions are
restored from there on, though they were called complete without these rows.

After each batch ``transactions`` holds what :func:`ticdc_lab.transactions.transactions` gives of the events so far, and
``watermarks`` what :func:`ticdc_lab.facts.watermarks.partition_watermarks` gives. One difference is meant: a
transaction that was complete stays complete when a partition is added later that has had no watermark yet.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.codecs import NOTHING, Known, decode, detect, log_types
from ticdc_lab.codecs.decode import decoder
from ticdc_lab.codecs.handles import handles_of
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.known import BOUNDS, Bounds
from ticdc_lab.codecs.registry import FRAMED
from ticdc_lab.engine import (
    hadoop_exists,
    hadoop_read_text,
    hadoop_write_text,
    is_several_machines,
    parallelism,
    verbatim,
)
from ticdc_lab.engine.delta_log import DataFile
from ticdc_lab.engine.failures import task_errors
from ticdc_lab.engine.workers import require_workers_once
from ticdc_lab.errors import SourceError
from ticdc_lab.errors.whole_files import local_path, room_for
from ticdc_lab.events.schema import TRANSACTIONS
from ticdc_lab.events.tso import physical_ms
from ticdc_lab.facts.limits import lacking
from ticdc_lab.facts.watermarks import partition_watermarks
from ticdc_lab.lake.one_pass import PASSED, LakeFile, Passed, passing, writing
from ticdc_lab.lake.restoring import MOST_ROWS, Home, of_homes, share_restored
from ticdc_lab.lake.tables import (
    OURS,
    PLACE,
    Tables,
    append,
    create,
    ends_of,
    events_of,
    is_begun,
    learned,
    merged_files,
    require_own_commits,
    resolve,
    rows_of,
    schemas,
    undecoded,
    vacuumed,
    versions,
    written_alone,
)
from ticdc_lab.sources import kafka, open_source
from ticdc_lab.sources.learned import WITH_DDL, ddl_finder, known_of, with_log_types, words_of
from ticdc_lab.sources.load import SAMPLE
from ticdc_lab.sources.places import is_kafka
from ticdc_lab.sources.stored import require_seen
from ticdc_lab.transactions import log_places, restored_transactions

# What an ingestion knows after each batch: the facts of every partition, and how far all is complete.

Facts = dict[str, Any]
"""A row of :func:`ticdc_lab.facts.watermarks.partition_watermarks`."""


@dataclass(frozen=True, slots=True)
class IngestState:
    """The content of the table ``watermarks``: the facts of each partition, the last batch, how far all is complete."""

    facts: tuple[Facts, ...] = ()
    batch_id: int = -1
    complete_ts: int | None = None
    gaps: tuple[str, ...] = ()
    """Offsets missing in the last batch, one sentence a partition."""
    notes: tuple[str, ...] = ()
    """What is assumed of the messages, with the first batch of a run."""


NOTHING_YET = IngestState()


def next_state(before: IngestState, new: list[Facts], batch_id: int) -> tuple[IngestState, int | None]:
    """The state after a batch, and the lowest commit_ts whose transaction may have changed (None: any)."""
    old = {(f["topic"], f["partition"]): f for f in before.facts}
    for fresh in new:
        at = fresh["topic"], fresh["partition"]
        old[at] = merged(old[at], fresh) if at in old else fresh
    facts = tuple(old[at] for at in sorted(old))
    complete_ts = _later(before.complete_ts, _least([f["resolved_ts"] for f in facts]))
    changed = [f["first_commit_ts"] for f in new if f["first_commit_ts"] is not None]
    lowest = None if before.complete_ts is None else min(before.complete_ts + 1, *changed, before.complete_ts + 1)
    return IngestState(facts, batch_id, complete_ts), lowest


def merged(old: Facts, new: Facts) -> Facts:
    """Facts of one partition, joined from before a batch and from the batch, which begins with the old watermark."""
    carried = old["resolved_ts"] is not None
    sums = ("n_watermarks", "n_rows", "n_ddl", "n_regressions", "n_duplicates", "n_stalls")
    most = ("resolved_ts", "last_commit_ts", "last_offset", "step_s_max")
    facts = new | {name: old[name] + new[name] for name in sums} | {n: _later(old[n], new[n]) for n in most}
    least = ("first_resolved_ts", "first_commit_ts", "first_offset")
    facts |= {name: min((f[name] for f in (old, new) if f[name] is not None), default=None) for name in least}
    facts |= {"n_watermarks": facts["n_watermarks"] - carried}
    return facts | {"unresolved_s": _unresolved_s(facts["last_commit_ts"], facts["resolved_ts"])}


def read_state(tables: Tables) -> IngestState:
    """What the last batch has left; one row a partition."""
    rows = [row.asDict() for row in tables.read("watermarks").collect()]
    last = (rows[0].pop("batch_id"), rows[0].pop("complete_ts")) if rows else (-1, None)
    facts = [{k: v for k, v in row.items() if k not in ("batch_id", "complete_ts")} for row in rows]
    return IngestState(tuple(facts), *last)


def write_state(tables: Tables, state: IngestState) -> None:
    """Replace the table ``watermarks``, which marks the batch as done."""
    more = {"batch_id": state.batch_id, "complete_ts": state.complete_ts}
    schema = schemas()["watermarks"]
    rows = [Row(**{name: (f | more)[name] for name in schema.names}) for f in state.facts]
    if (place := local_path(tables.folder)) is not None:
        file = LakeFile(str(place), "watermarks", arrow_schema(schema))
        file.add(pa.Table.from_pylist([row.asDict() for row in rows], arrow_schema(schema)))
        new = [written] if (written := file.closed()) is not None else []
        tables.commit("watermarks", new, everything=True)
        return
    frame = tables.spark.createDataFrame(rows, schema).coalesce(1)
    frame.write.format("delta").mode("overwrite").option("userMetadata", OURS).save(tables.path("watermarks"))


def _least(values: list[int | None]) -> int | None:
    """The least; None as soon as one is unknown."""
    known = [v for v in values if v is not None]
    return min(known) if known and len(known) == len(values) else None


def _later(a: Any, b: Any) -> Any:
    return max((v for v in (a, b) if v is not None), default=None)


def _unresolved_s(last_commit_ts: int | None, resolved_ts: int | None) -> float | None:
    """As :func:`ticdc_lab.facts.watermarks.unresolved_s_col`."""
    if resolved_ts is None or last_commit_ts is None:
        return None if resolved_ts is None else 0.0
    return max((physical_ms(last_commit_ts) - physical_ms(resolved_ts)) / 1000, 0.0)


MERGE_EVERY = 16
"""Batches after which small files are looked for."""

VACUUM_EVERY = 512
"""Batches after which files are removed that no version needs any more (:data:`ticdc_lab.lake.tables.RETENTION`)."""

_PASSED = ("messages", "events", "quarantine")
"""The tables that one pass over a batch's messages writes."""

_LEARNING = ("simple", "avro", "debezium-avro")
"""Protocols whose batches may bring or await schemas."""

EVERY_S = 10.0
"""Seconds between two batches while nothing is behind."""

MESSAGES_A_BATCH = 1_000_000
"""Messages of one batch at most (the connector's ``maxOffsetsPerTrigger``)."""


def ingest(
    spark: SparkSession,
    source: str,
    out: str,
    *,
    protocol: str = "auto",
    schema_registry: str | None = None,
    claim_check: str | None = None,
    options: Mapping[str, str] | None = None,
    once: bool = False,
    every_s: float = EVERY_S,
    said: Callable[[IngestState], None] | None = None,
    bounds: Bounds = BOUNDS,
) -> None:
    """Let Kafka topics flow into Delta tables; returns when all is read (``once``), else when it is interrupted.

    Parameters
    ----------
    spark
        A session with Delta and the Kafka connector, as :func:`ticdc_lab.engine.sessions.session` gives.
    source
        ``kafka://HOST:PORT[,HOST:PORT]/TOPIC[,TOPIC]``.
    out
        Folder of the tables, a path or URL. It resumes after any end of the last run.
    protocol
        As for :func:`ticdc_lab.sources.load.load`; detected once, when ``out`` is new.
    schema_registry, claim_check
        As for :func:`ticdc_lab.sources.load.load`. Neither is kept in ``out``: name them again when it resumes.
    options
        As for :func:`ticdc_lab.sources.kafka.read_stream`; ``maxOffsetsPerTrigger`` bounds a batch.
    once
        Read what is there now, then return.
    every_s
        Seconds from the beginning of a batch to the next, at least.
    said
        Called after each batch with what is known then; with ``once`` also if no batch came, with a note.
    bounds
        As for :func:`ticdc_lab.sources.load.load`. They are not kept in ``out`` either.

    Raises
    ------
    SourceError
        The source is no topic, cannot be read, or ``out`` has another one or has lost its checkpoint; the schemas or
        the folder of large messages cannot be read; no space is left, and the next run resumes; ``out`` is a path that
        not all machines of a cluster see; another writer has changed the tables (looked at when a run begins, and every
        :data:`VACUUM_EVERY` batches).
    """
    if not is_kafka(source):
        raise SourceError(f"{source} is no Kafka topic.", hint="Read a recording with ticdc-lab events --out DIR.")
    require_workers_once(spark)
    known = known_of(schema_registry, claim_check, bounds)
    place = local_path(out)
    if place is not None and "://" not in out:  # the JVM and its workers may have other working directories
        out = str(place)
    tables, topics = Tables(spark, out), kafka.topics_of(source, options)
    bounded = {"maxOffsetsPerTrigger": str(MESSAGES_A_BATCH)} | dict(options or {})
    with kafka.said_plainly(topics), room_for(out, keep=True), task_errors(), written_alone(out):
        if place is not None and is_several_machines(spark):
            require_seen(spark, place)
        origin = _origin_of(tables, source, protocol, options, known)
        told = str(origin["protocol"])
        notes: tuple[str, ...] = ()
        if told == "debezium":
            opened = open_source(spark, source, options=options)
            sample = opened.sample(SAMPLE)
            typed = log_types.are_typed(sample, known)  # a table continues: the texts of its values must not change
            with_types = log_types.with_binary if typed else partial(with_log_types, opened.gathered)
            known, guesses = with_types(sample, known)
            notes = (*guesses, *([_TYPES_OF_NOW] if known.types else []))
        steps = Steps(tables, told, known, said, notes=notes)
        if not create(tables, protocol=told):  # else five tables would be read to find that nothing is in them
            if "format" in origin:  # what earlier versions wrote bears no mark
                require_own_commits(tables)
            steps = begun(tables, protocol=told, known=known, said=said)
            steps.notes = (*notes, *steps.notes)
            _require_checkpoint(tables, steps.state)
        stream = kafka.read_stream(spark, source, bounded)
        writer = stream.writeStream.foreachBatch(steps)
        writer = writer.option("checkpointLocation", tables.path("_checkpoint"))
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{every_s} seconds")
        query = writer.start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        if said is not None and once and not steps.batches:
            said(replace(steps.state, notes=(*steps.notes, _NOTHING_NEW)))


_NOTHING_NEW = "No new message: the tables have all that the topic had."

_TYPES_OF_NOW = (
    "Messages name no types. Types come from the DDL statements that the topic contained when this run began. Rows of "
    "tables that are created later have no types: their values are as the messages write them."
)


@dataclass(slots=True)
class Steps:
    """What is done with each batch; knows what the batches before have left."""

    tables: Tables
    protocol: str
    known: Known = NOTHING
    said: Callable[[IngestState], None] | None = None
    state: IngestState = NOTHING_YET
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    """The offset that the next message of a partition should have."""
    batches: int = 0
    """How many this run has done."""
    notes: tuple[str, ...] = ()
    """What is assumed of the messages, a sentence each; reported with the next batch."""
    ddl: pa.Table = field(default_factory=arrow_schema(log_types.DDL_ROWS).empty_table)
    """DDL so far of protocols whose messages do not name every handle key."""

    def __call__(self, messages: DataFrame, batch_id: int) -> None:
        """All that one batch does; may be repeated from the beginning after an end at any point."""
        if self.state.batch_id >= batch_id:
            return
        tables = replace(self.tables, spark=messages.sparkSession)
        if self._in_one_pass(tables, batch_id):
            new, spans = self._passed(tables, messages, batch_id)
        else:
            append(tables, "messages", messages, batch_id)
            new = self._decoded(tables, batch_id)
            spans = [row.asDict() for row in _spans(tables.of_batch("messages", batch_id)).collect()]
        state, lowest = next_state(self.state, new, batch_id)
        replace_transactions(tables, state, lowest)
        gaps, ends = lacking_offsets(tables, spans, self.ends, batch_id)
        write_state(tables, state)
        self.state, self.ends, self.batches = replace(state, gaps=gaps), ends, self.batches + 1
        self._tidied(tables, batch_id)
        if self.said is not None:
            self.said(replace(self.state, notes=self.notes))
            self.notes = ()

    def _tidied(self, tables: Tables, batch_id: int) -> None:
        """Periodically: few files where there were many, and no file that is not needed any more."""
        if batch_id % MERGE_EVERY == MERGE_EVERY - 1 and local_path(tables.folder) is not None:
            merged_files(tables, complete_ts=self.state.complete_ts)
        if batch_id % VACUUM_EVERY == VACUUM_EVERY - 1:
            require_own_commits(tables)  # before their versions are forgotten
            vacuumed(tables)

    def _in_one_pass(self, tables: Tables, batch_id: int) -> bool:
        """Whether the workers may write the files of a batch: they see the folder, and nothing of it is there yet.

        What an earlier run has begun of a batch stays, and the rest follows from it. Where schemas come with the log
        or from a registry, the batch's own are learned before it is decoded.
        """
        if self.protocol in _LEARNING or local_path(tables.folder) is None:
            return False
        return self.batches > 0 or not is_begun(tables, batch_id)

    def _passed(self, tables: Tables, messages: DataFrame, batch_id: int) -> tuple[list[Facts], list[dict[str, Any]]]:
        """The same in one pass over the messages; and where each partition's messages lie.

        Another pass follows where DDL of the batch define keys that its rows do not name.
        """
        forms = {name: arrow_schema(form) for name, form in schemas().items() if name in _PASSED}
        place = str(local_path(tables.folder))
        sent = messages.withColumn("headers", F.to_json("headers")).coalesce(parallelism(tables.spark))

        def passed() -> Passed:
            task = passing(place, forms, decoder(self.protocol, known=self.known), batch_id)
            return Passed(sent.mapInArrow(task, PASSED).toArrow())

        found = passed()
        if found.has("ddl") and self._learn_keys(messages):
            for name in _PASSED:
                for file in found.files(name):
                    (Path(place) / name / file.name).unlink()
            found = passed()
        for name in _PASSED:
            files = found.files(name)
            if files or name != "quarantine":
                append(tables, name, files, batch_id)
        carried = [
            {
                "topic": f["topic"],
                "partition": f["partition"],
                "offset": f["first_offset"],
                "commit_ts": f["resolved_ts"],
            }
            for f in self.state.facts
            if f["resolved_ts"] is not None
        ]
        return found.facts(carried), found.spans()

    def _decoded(self, tables: Tables, batch_id: int) -> list[Facts]:
        """Put each message of the batch to the events or to the quarantine; the facts of what came to the events."""
        schemas_may_have_come = self._learned(tables, batch_id)
        self._learn_keys(tables.of_batch("messages", batch_id))
        how: dict[str, Any] = {"protocol": self.protocol, "known": self.known}
        decoded = tables.of_batch("messages", batch_id).transform(decode, **how)
        append(tables, "events", events_of(decoded, late=False), batch_id)
        if schemas_may_have_come:
            resolve(tables, batch_id, **how)
        new, lacks_some = new_facts(tables, self.state, batch_id)
        if lacks_some:
            append(tables, "quarantine", undecoded(tables, batch_id, **how), batch_id)
        return new

    def _learn_keys(self, messages: DataFrame) -> bool:
        """Whether the DDL among messages define other handle keys than were known."""
        if self.protocol not in WITH_DDL:
            return False
        find = ddl_finder(self.protocol, self.known)
        of_messages = messages.select(*PLACE, "key", "value").mapInArrow(find, log_types.DDL_ROWS)
        self.ddl, before = pa.concat_tables([self.ddl, of_messages.toArrow().cast(self.ddl.schema)]), self.known.handles
        self.known = replace(self.known, handles=handles_of(self.ddl, protocol=self.protocol))
        self.notes += words_of(sorted(self.known.handles.keys() - before.keys()))
        return self.known.handles != before

    def _learned(self, tables: Tables, batch_id: int) -> bool:
        """Whether more schemas may be known than before the batch.

        Simple's batch itself shows it. For avro a registry may know more at any time, and a file of schemas since
        the last run; a batch that is repeated first may add to what waits.
        """
        if self.protocol != "simple":
            return self.protocol in FRAMED and (bool(self.known.registry_url) or self.batches < 2)
        new = learned(tables, self.known, batch_id)
        self.known = replace(self.known, tables={**self.known.tables, **new})
        return bool(new)


def lacking_offsets(
    tables: Tables, spans: list[dict[str, Any]], ends: Mapping[tuple[str, int], int], batch_id: int
) -> tuple[tuple[str, ...], dict[tuple[str, int], int]]:
    """A sentence for each partition whose offsets have a hole, in the batch or before it, and where each resumes."""
    at = [(r["topic"], r["partition"]) for r in spans]
    expected = [(*where, ends.get(where, r["first"]), r["end"]) for where, r in zip(at, spans, strict=True)]
    whole = sum(end - first for *_, first, end in expected) == sum(r["n"] for r in spans)
    messages = tables.of_batch("messages", batch_id)
    said = () if whole else lacking(messages, tables.spark.createDataFrame(expected, kafka.EXPECTED)).sentences
    return said, {**ends, **{(topic, partition): end for topic, partition, _, end in expected}}


def begun(
    tables: Tables, *, protocol: str, known: Known = NOTHING, said: Callable[[IngestState], None] | None = None
) -> Steps:
    """Steps that resume where the tables are."""
    state = read_state(tables)
    if protocol == "simple":
        known = replace(known, tables=versions(tables.read("table_versions")))
    steps = Steps(tables, protocol, known, said, state, _ends(tables, state))
    if protocol in WITH_DDL:
        ddl = tables.read("events").where("kind = 'ddl'").where(F.col("batch_id") <= state.batch_id)
        steps.ddl = ddl.select(*log_types.DDL_ROWS.names).toArrow().cast(steps.ddl.schema)
        steps.known = replace(known, handles=handles_of(steps.ddl, protocol=protocol))
        steps.notes = words_of(sorted(steps.known.handles))
    return steps


def _ends(tables: Tables, state: IngestState) -> dict[tuple[str, int], int]:
    """Where each partition resumes; only messages from the last known event on are looked at."""
    since = [
        (F.col("topic") == f["topic"]) & (F.col("partition") == f["partition"]) & (F.col("offset") >= f["last_offset"])
        for f in state.facts
    ]
    if not since:
        return {}
    last = tables.read("messages").where(F.col("batch_id") <= state.batch_id).where(reduce(or_, since))
    return {(r["topic"], r["partition"]): r["end"] for r in _spans(last).collect()}


def _spans(messages: DataFrame) -> DataFrame:
    """How many messages of each partition there are, and between which offsets; one row a partition."""
    bounds = F.min("offset").alias("first"), (F.max("offset") + 1).alias("end")
    return messages.groupBy("topic", "partition").agg(F.count(F.lit(1)).alias("n"), *bounds)


def new_facts(tables: Tables, before: IngestState, batch_id: int) -> tuple[list[Facts], bool]:
    """Facts of the partitions from the events of a batch, and whether some of its messages gave no event.

    Each partition's watermark so far goes before the events, so that a fall is seen. Late events are rows, so they
    cannot come before it.
    """
    events = tables.of_batch("events", batch_id).select("kind", "commit_ts", "topic", "partition", "offset", "seq")
    marks = [
        ("watermark", f["resolved_ts"], f["topic"], f["partition"], f["first_offset"], 0)
        for f in before.facts
        if f["resolved_ts"] is not None
    ]
    carried = tables.spark.createDataFrame(marks, events.schema)
    n_messages = tables.of_batch("messages", batch_id).agg(F.count(F.lit(1))).scalar()
    n_decoded = tables.of_batch("events", batch_id).agg(F.count_if(F.expr("seq = 0 AND NOT late"))).scalar()
    facts = events.unionByName(carried).transform(partition_watermarks)
    rows = [row.asDict() for row in facts.withColumn("_whole", n_messages == n_decoded).collect()]
    whole = [row.pop("_whole") for row in rows]
    return rows, not all(whole) or not whole


def replace_transactions(tables: Tables, state: IngestState, lowest: int | None) -> None:
    """Restore all transactions from ``lowest`` on, and put them in the place of those that are there."""
    if (place := local_path(tables.folder)) is not None:
        _replaced_by_workers(tables, str(place), state, lowest)
        return
    writer = _restored_by_engine(tables, state, lowest).write.format("delta").mode("overwrite")
    writer = writer.option("userMetadata", OURS)
    if lowest is not None:
        writer = writer.option("replaceWhere", f"commit_ts >= {lowest}")
    writer.save(tables.path("transactions"))


def _homes(state: IngestState) -> list[Home]:
    return [(f["topic"], f["partition"], f["resolved_ts"]) for f in state.facts]


def _restored_by_engine(tables: Tables, state: IngestState, lowest: int | None) -> DataFrame:
    rows = tables.read("events").where("kind = 'row' AND commit_ts IS NOT NULL")
    rows = rows if lowest is None else rows.where(F.col("commit_ts") >= lowest)
    known = log_places(rows).unionByName(tables.spark.createDataFrame(of_homes(_homes(state))))
    return restored_transactions(rows, places=known, complete_to=state.complete_ts)


def _replaced_by_workers(tables: Tables, place: str, state: IngestState, lowest: int | None) -> None:
    """The same where the workers see the folder, without reading a file that lies wholly above ``lowest`` or below it.

    Complete transactions are written into files of their own, so others are there only where rows came late.
    """
    spark, least = tables.spark, -math.inf if lowest is None else lowest
    write = writing(place, "transactions", arrow_schema(TRANSACTIONS), apart="complete")
    read = [f for f in tables.files("events") if ends_of(f)[1] >= least]
    if sum(rows_of(f) for f in read) <= MOST_ROWS:
        shares, known = parallelism(spark), {"lowest": lowest, "complete_ts": state.complete_ts}
        restore = share_restored(f"{place}/events", [f.name for f in read], _homes(state), shares=shares, **known)
        passed = spark.range(0, shares, 1, shares).mapInArrow(lambda b: write(restore(b)), PASSED)
    else:
        passed = _restored_by_engine(tables, state, lowest).mapInArrow(write, PASSED)
    new = Passed(passed.toArrow()).files("transactions")
    while not _in_place(tables, place, new, lowest):  # another writer has compacted meanwhile
        pass


def _in_place(tables: Tables, place: str, new: list[DataFile], lowest: int | None) -> bool:
    """Put files of transactions from ``lowest`` on into the place of those that are there; False if these changed."""
    spark, least = tables.spark, -math.inf if lowest is None else lowest
    ends = {f.name: ends_of(f) for f in tables.files("transactions")}
    if astride := [verbatim(spark, Path(place) / "transactions" / name)
                   for name, (low, high) in ends.items() if low < least <= high]:  # fmt: skip
        stays = spark.read.schema(TRANSACTIONS).parquet(*astride).where(F.col("commit_ts") < F.lit(lowest))
        write = writing(place, "transactions", arrow_schema(TRANSACTIONS), apart="complete")
        new = [*new, *Passed(stays.mapInArrow(write, PASSED).toArrow()).files("transactions")]
    gone = {name for name, (_, high) in ends.items() if high >= least}
    return tables.commit("transactions", new, removed=gone)


FORMAT = 2
"""Of the tables and what lies beside them; 1 wrote none. A higher one was written by a later version."""


def _origin_of(
    tables: Tables, source: str, protocol: str, options: Mapping[str, str] | None, known: Known
) -> dict[str, Any]:
    """The topic's names and protocol; what ``out`` was begun with is kept beside the tables and must stay the same."""
    path = tables.path("_origin.json")
    names = ",".join(sorted(kafka.topics_of(source).names))
    if (kept := hadoop_read_text(tables.spark, path)) is not None:
        begun = json.loads(kept)
        if begun.get("format", 1) > FORMAT:
            raise SourceError(
                f"{tables.folder} was written by a later version of ticdc_lab: its tables have format "
                f"{begun['format']}, expected at most {FORMAT}.",
                hint="Continue with that version, or name another folder with --out.",
            )
    else:
        sample = open_source(tables.spark, source, options=options).sample(SAMPLE)
        told = detect(sample, protocol=protocol, source=source, known=known).protocol
        begun = {"topics": names, "protocol": told, "format": FORMAT}
        hadoop_write_text(tables.spark, path, json.dumps(begun))
    if begun["topics"] != names or protocol not in ("auto", begun["protocol"]):
        raise SourceError(
            f"{tables.folder} contains topics {begun['topics']} as {begun['protocol']}, not {names} as {protocol}.",
            hint="Name another folder with --out.",
        )
    return dict(begun)


def _require_checkpoint(tables: Tables, state: IngestState) -> None:
    """Without its own checkpoint batches would be renumbered, and Delta would take them for those it has."""
    again = "Remove the folder, or name another one, and read the topic again."
    begun_before = state.batch_id >= 0 or not tables.read("messages").isEmpty()
    if begun_before and not hadoop_exists(tables.spark, tables.path("_checkpoint")):
        raise SourceError(
            f"{tables.folder} has tables but no longer the _checkpoint that stores how far they were read.",
            hint=again,
        )
    if state.batch_id < 0:
        return
    before, until = (_planned(tables, batch_id) for batch_id in (state.batch_id - 1, state.batch_id))
    last = _spans(tables.of_batch("messages", state.batch_id)).collect()
    inside = until is not None and all(
        (before or {}).get((r["topic"], r["partition"]), 0) <= r["first"]
        and r["end"] <= until.get((r["topic"], r["partition"]), 0)
        for r in last
    )
    if not inside:
        raise SourceError(
            f"The _checkpoint of {tables.folder} does not match its tables: batch {state.batch_id} differs. It may be "
            "an older copy, or the checkpoint of another folder.",
            hint="Restore the checkpoint that belongs to the tables. " + again,
        )


def _planned(tables: Tables, batch_id: int) -> dict[tuple[str, int], int] | None:
    """Where each partition ends in a batch, as the checkpoint has it; None where it knows no such batch."""
    try:
        text = hadoop_read_text(tables.spark, tables.path(f"_checkpoint/offsets/{batch_id}"))
        ends = json.loads((text or "").splitlines()[-1])
    except Exception:  # not there, cut, or with another checksum: Java reports it in many shapes
        return None
    return {(topic, int(partition)): end for topic, of in ends.items() for partition, end in of.items()}
