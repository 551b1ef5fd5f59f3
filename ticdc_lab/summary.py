"""From a loaded log to small frames: everything a figure or a report shows, in bounded size.

This is the only place between Spark and the figures. Each function aggregates in Spark and brings at most about
:data:`POINTS` rows to the driver, as pandas frames whose bigints stay exact (``Int64``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.audit import audit, events_at, places_of
from ticdc_lab.change_log import ChangeLog
from ticdc_lab.dispatch.infer import move_causes
from ticdc_lab.limits import Counts
from ticdc_lab.sample import Sample
from ticdc_lab.schema import FINDINGS
from ticdc_lab.transactions import transactions
from ticdc_lab.tso import physical_ms_col
from ticdc_lab.watermarks import partition_watermarks, table_watermarks, watermark_timeline

POINTS = 2_000
"""Most points of a picture, about."""

LISTED = 200
"""Most entries of a list that a person reads."""

TOLD = 300
"""Characters of a message that are shown."""

FOUND = 500
"""Most findings of a guarantee."""

HELD = 20_000
"""Most groups that :func:`contents` counts."""

_EXACT = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


@dataclass(frozen=True, slots=True)
class Summary:
    """What a report shows of a log; every frame is small.

    Attributes
    ----------
    source, protocol, has_commit_ts, limits, counts, sample
        As of :class:`ticdc_lab.change_log.ChangeLog`.
    contents, ddl, quarantine, partitions, tables, steps, incidents, transaction_totals, transactions, load,
    load_by_table, findings, messages
        What :func:`contents`, :func:`ddl_list`, :func:`quarantine_reasons`,
        :func:`ticdc_lab.watermarks.partition_watermarks`, :func:`ticdc_lab.watermarks.table_watermarks`,
        :func:`watermark_steps`, :func:`incidents`, :func:`transaction_totals`, :func:`transaction_sample`,
        :func:`load_over_time` (twice), :func:`ticdc_lab.audit.audit` and :func:`finding_messages` give. Those that
        need commit_ts are empty where the log has none.
    made_from
        How the log can be loaded again, see :class:`ticdc_lab.origin.Origin`.
    """

    source: str
    protocol: str
    has_commit_ts: bool
    limits: tuple[str, ...]
    counts: Counts | None
    contents: pd.DataFrame
    ddl: pd.DataFrame
    quarantine: pd.DataFrame
    load: pd.DataFrame
    load_by_table: pd.DataFrame
    findings: pd.DataFrame
    partitions: pd.DataFrame = field(default_factory=pd.DataFrame)
    tables: pd.DataFrame = field(default_factory=pd.DataFrame)
    steps: pd.DataFrame = field(default_factory=pd.DataFrame)
    incidents: pd.DataFrame = field(default_factory=pd.DataFrame)
    transaction_totals: pd.DataFrame = field(default_factory=pd.DataFrame)
    transactions: pd.DataFrame = field(default_factory=pd.DataFrame)
    messages: pd.DataFrame = field(default_factory=pd.DataFrame)
    made_from: Mapping[str, Any] | None = None
    sample: Sample | None = None


def small(df: DataFrame) -> pd.DataFrame:
    """Bring a small frame to the driver with exact integers."""
    return df.toArrow().to_pandas(types_mapper=_EXACT.get)


def summarise(log: ChangeLog, *, causes: DataFrame | None = None, audited: bool = True) -> Summary:
    """Aggregate a log into all the small frames of a report.

    Parameters
    ----------
    log
        A materialised log; a lazy one is decoded once per frame.
    causes
        As for :func:`ticdc_lab.audit.audit`; by default what :func:`ticdc_lab.dispatch.infer.move_causes` tells.
    audited
        False leaves ``findings`` empty: the audit takes as long as all else; see :func:`findings_of`.

    Returns
    -------
    Summary
        Small pandas frames: contents, watermarks, transactions, findings, ..
    """
    events = log.events
    held = small(events.transform(contents))
    n_partitions = max(1, len(held[["topic", "partition"]].drop_duplicates()))
    with_time: dict[str, pd.DataFrame] = {}
    if log.has_commit_ts:
        restored = events.transform(transactions).persist()
        with_time = {
            "partitions": small(events.transform(partition_watermarks).orderBy("topic", "partition")),
            "tables": small(events.transform(table_watermarks).orderBy("schema_name", "table_name").limit(POINTS)),
            "steps": small(events.transform(watermark_steps, most=max(20, POINTS // n_partitions))),
            "incidents": small(events.transform(incidents)),
            "transaction_totals": small(restored.transform(transaction_totals)),
            "transactions": small(restored.transform(transaction_sample)),
        }
        restored.unpersist()
    found = findings_of(log, causes=causes) if audited else pd.DataFrame(columns=FINDINGS.names)
    return Summary(
        source=log.source,
        protocol=log.protocol,
        has_commit_ts=log.has_commit_ts,
        limits=log.limits,
        counts=log.counts,
        contents=held,
        ddl=small(events.transform(ddl_list)),
        quarantine=small(log.quarantine.transform(quarantine_reasons)),
        load=small(events.transform(load_over_time, by=("topic", "partition"))),
        load_by_table=small(events.transform(load_over_time, by=("schema_name", "table_name"))),
        findings=found,
        messages=_messages(events, found),
        sample=log.sample,
        made_from=log.made_from,
        **with_time,
    )


def finding_messages(events: DataFrame, *, places: Sequence[tuple[int, int]]) -> DataFrame:
    """Give the messages that findings are about, an event a row, in order.

    Parameters
    ----------
    events
        The events contract.
    places
        Partition and offset of each, see :func:`ticdc_lab.audit.places_of`.

    Returns
    -------
    DataFrame
        ``topic, partition, offset, seq, kind, commit_ts, table`` (``schema.table``), ``op`` and ``what`` (the columns
        after the change, or the statement; cut).
    """
    values = F.transform(F.coalesce("columns", "before"), _name_and_value)
    told = F.substring(F.coalesce("query", F.array_join(values, ", ")), 1, TOLD).alias("what")
    of_table = F.when(F.col("table_name") != "", F.col("table_name"))
    table = F.when(F.col("schema_name").isNotNull(), F.concat_ws(".", "schema_name", of_table)).alias("table")
    found = events_at(events, places)
    return found.select("topic", "partition", "offset", "seq", "kind", "commit_ts", table, "op", told)


def _name_and_value(column: Column) -> Column:
    return F.concat(column["name"], F.lit("="), F.coalesce(column["value"], F.lit("NULL")))


def _messages(events: DataFrame, findings: pd.DataFrame) -> pd.DataFrame:
    """Those of the first findings; of a log that was decoded without images none."""
    named = {p for f in findings.head(LISTED).to_dict("records") for p in places_of(f)}
    if not named or not {"columns", "before"} <= set(events.columns):
        return pd.DataFrame()
    return small(events.transform(finding_messages, places=sorted(named)))


def findings_of(log: ChangeLog, *, causes: DataFrame | None = None, most: int = FOUND) -> pd.DataFrame:
    """Audit a log: :data:`ticdc_lab.schema.FINDINGS`, of each guarantee the ``most`` first; ``causes`` as above."""
    why = log.events.transform(move_causes) if causes is None else causes
    found = audit(
        log.events, protocol=log.protocol, has_commit_ts=log.has_commit_ts, causes=why, max_per_guarantee=most,
        sample=log.sample,
    )  # fmt: skip
    return small(found)


def contents(events: DataFrame, *, most: int = HELD) -> DataFrame:
    """Count what the log holds: per ``topic, partition, schema_name, table_name, kind, op`` a number ``n``."""
    by = ["topic", "partition", "schema_name", "table_name", "kind", "op"]
    return events.groupBy(*by).agg(F.count(F.lit(1)).alias("n")).orderBy(F.desc("n"), *by).limit(most)


def ddl_list(events: DataFrame, *, most: int = LISTED) -> DataFrame:
    """List DDL events, each once: ``commit_ts, schema_name, table_name, ddl_type, query, partitions`` (array<int>)."""
    by = ["commit_ts", "schema_name", "table_name", "ddl_type", "query"]
    homes = F.array_sort(F.collect_set("partition")).alias("partitions")
    first = F.min(F.struct("topic", "partition", "offset", "seq")).alias("_first")
    found = events.where("kind = 'ddl'").groupBy(*by).agg(homes, first)
    return found.orderBy("commit_ts", "_first").limit(most).drop("_first")


def quarantine_reasons(quarantine: DataFrame, *, most: int = LISTED) -> DataFrame:
    """Count quarantined messages by ``error_class``: ``n`` and the first one's ``topic, partition, offset, reason``."""
    first = F.min(F.struct("topic", "partition", "offset", "seq", "reason")).alias("first")
    counted = quarantine.groupBy("error_class").agg(F.count(F.lit(1)).alias("n"), first)
    fields = [F.col("first")[c].alias(c) for c in ("topic", "partition", "offset", "reason")]
    return counted.select("error_class", "n", *fields).orderBy(F.desc("n"), "error_class").limit(most)


def watermark_steps(events: DataFrame, *, most: int = 500) -> DataFrame:
    """Give the watermarks along the topic's own axis, its distinct watermark values in order.

    Parameters
    ----------
    events
        ``kind, commit_ts, topic, partition`` of the events contract.
    most
        Steps per topic; where there are more, neighbours are merged and a partition stands at the last of them.

    Returns
    -------
    DataFrame
        ``topic, partition, step`` (from 1), ``step_ts`` (greatest value of the step in the topic), ``resolved_ts``
        (greatest the partition states in it), ``steps_total`` (distinct values of the topic).
    """
    marks = events.where("kind = 'watermark'").select("topic", "partition", "commit_ts").distinct()
    topic = Window.partitionBy("topic")
    ranked = marks.withColumn("_rank", F.dense_rank().over(topic.orderBy("commit_ts")))
    total = F.max("_rank").over(topic)
    step = F.ceil(F.col("_rank") * F.least(total, F.lit(most)) / total).cast("int")
    return (
        ranked.withColumns({"steps_total": total, "step": step})
        .withColumn("step_ts", F.max("commit_ts").over(Window.partitionBy("topic", "step")))
        .groupBy("topic", "partition", "step", "step_ts", "steps_total")
        .agg(F.max("commit_ts").alias("resolved_ts"))
        .select("topic", "partition", "step", "step_ts", "resolved_ts", "steps_total")
        .orderBy("topic", "step", "partition")
    )


def incidents(events: DataFrame, *, most: int = LISTED) -> DataFrame:
    """List the watermarks that regressed or came after a stall, see :func:`ticdc_lab.watermarks.watermark_timeline`."""
    return (
        events.transform(watermark_timeline)
        .where("regressed OR stalled")
        .orderBy("topic", "partition", "offset", "resolved_ts")
        .limit(most)
    )


def transaction_totals(transactions: DataFrame) -> DataFrame:
    """Count transactions, in one row: all, pending, spread over partitions, their rows and their duplicates."""
    return transactions.agg(
        F.count(F.lit(1)).alias("n"),
        F.count_if(~F.col("complete")).alias("pending"),
        F.count_if(F.size("partitions") > 1).alias("spread"),
        F.count_if(F.size("tables") > 1).alias("many_tables"),
        F.coalesce(F.sum("n_rows"), F.lit(0)).alias("n_rows"),
        F.coalesce(F.max("n_rows"), F.lit(0)).alias("n_rows_max"),
        F.coalesce(F.sum("duplicates"), F.lit(0)).alias("duplicates"),
        F.min("commit_ts").alias("first_commit_ts"),
        F.max("commit_ts").alias("last_commit_ts"),
    )


def transaction_sample(transactions: DataFrame, *, most: int = 300) -> DataFrame:
    """Choose transactions to draw: pending ones first, then repeated ones, then any, always the same ones."""
    first = [F.col("complete"), F.col("duplicates") == 0, F.xxhash64("commit_ts"), F.col("commit_ts")]
    columns = ["commit_ts", "n_rows", "tables", "partitions", "complete", "missing", "duplicates"]
    return transactions.select(*columns).orderBy(*first).limit(most)


def load_over_time(events: DataFrame, *, by: Sequence[str], buckets: int = 48, most: int = 40) -> DataFrame:
    """Count rows over time for the heaviest partitions or tables.

    Parameters
    ----------
    events
        ``kind, commit_ts, offset`` and ``by``.
    by
        Columns that name a lane, such as ``topic, partition`` or ``schema_name, table_name``.
    buckets
        Stretches of equal length: of time (the TSO's physical part), or of offsets where no row has a commit_ts.
    most
        Lanes; of more, those with most rows.

    Returns
    -------
    DataFrame
        ``by``, ``bucket`` (from 0), ``from_ms`` and ``to_ms`` (physical time; null without commit_ts), ``n`` (rows),
        ``lanes_total``.
    """
    rows = events.where("kind = 'row'")
    at = F.coalesce(physical_ms_col("commit_ts"), F.col("offset"))
    all_rows = Window.partitionBy(F.lit(0))
    ends = rows.agg(F.min(at).alias("_lo"), F.max(at).alias("_hi"), F.count("commit_ts").alias("_timed"))
    width = (F.col("_hi") - F.col("_lo") + 1) / F.lit(buckets)
    bucket = F.least(F.floor((at - F.col("_lo")) / width), F.lit(buckets - 1)).cast("int")
    counted = (
        rows.crossJoin(F.broadcast(ends))
        .groupBy(*by, bucket.alias("bucket"), "_lo", width.alias("_width"), "_timed")
        .agg(F.count(F.lit(1)).alias("n"))
    )
    total = F.sum("n").over(Window.partitionBy(*by))
    rank = F.dense_rank().over(all_rows.orderBy(F.desc("_total"), *by))
    ranked = counted.withColumn("_total", total).withColumn("_rank", rank)
    kept = ranked.withColumn("lanes_total", F.max("_rank").over(all_rows)).where(F.col("_rank") <= most)
    return kept.select(*by, "bucket", _edge(0).alias("from_ms"), _edge(1).alias("to_ms"), "n", "lanes_total").orderBy(
        *by, "bucket"
    )


def _edge(ahead: int) -> Column:
    edge = F.col("_lo") + F.floor((F.col("bucket") + ahead) * F.col("_width"))
    return F.when(F.col("_timed") > 0, edge)
