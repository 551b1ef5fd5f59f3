"""Guarantees about watermarks and DDL, which TiCDC's owner broadcasts. They read few events and no row images."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.audit.findings import as_findings, evidence, text
from ticdc_lab.prefix import PARTITION, POSITION, with_running
from ticdc_lab.tso import lag_s_col

DDL_IN_PARTITION_0_ONLY = frozenset({"canal-json", "canal"})
"""Protocols that send a DDL to partition 0 by design (golden README section 4)."""


def watermarks_are_monotone(events: DataFrame, *, protocol: str) -> DataFrame:
    """Seed, "CDC Owner 切换": a checkpoint_ts never falls back, so a partition's watermarks never do. Repeats are
    fine.
    """
    marks = events.where("kind = 'watermark'").select(*POSITION, "commit_ts")
    highest = F.col("highest")
    before = F.struct("partition", highest["offset"].alias("offset"), highest["value"].alias("commit_ts"))
    return (
        marks.transform(with_running, value="commit_ts")
        .where(F.col("commit_ts") < highest["value"])
        .select(
            *POSITION,
            "commit_ts",
            F.lit("error").alias("severity"),
            text(
                "the watermark falls back by ",
                lag_s_col("commit_ts", now_ts=highest["value"]),
                " s from ",
                highest["value"],
            ).alias("message"),
            evidence(before, F.struct("partition", "offset", "commit_ts")).alias("evidence"),
        )
        .transform(as_findings, guarantee="watermarks_are_monotone")
    )


def resolved_events_on_all_partitions(events: DataFrame, *, protocol: str) -> DataFrame:
    """Seed, constraint 2.4: resolved events are broadcast to all partitions of a topic.

    Errors: a partition without any watermark while another has one, and values that a partition lacks between its first
    and last. Warnings: a partition whose watermarks start later or end earlier than the topic's, as in a recording that
    was cut, and a topic without any. A partition without any event cannot be seen.
    """
    homes = _homes(events)
    stated = (
        events.where("kind = 'watermark'")
        .groupBy(*PARTITION, F.col("commit_ts").alias("value"))
        .agg(F.min("offset").alias("offset"))
    )
    witness = F.min(F.struct("partition", "offset", F.col("value").alias("commit_ts"))).alias("witness")
    values = stated.groupBy("topic", "value").agg(witness)
    down = Window.partitionBy(*PARTITION).orderBy(F.desc("value")).rowsBetween(Window.unboundedPreceding, 0)
    going_on = F.last(F.when(F.col("offset").isNotNull(), F.struct("value", "offset")), ignorenulls=True).over(down)
    gaps = (
        values.join(F.broadcast(homes), on="topic")
        .join(stated, on=[*PARTITION, "value"], how="left")
        .withColumn("next", going_on)
        .where("offset IS NULL")
        .groupBy(*PARTITION, "next", *_HOME)
        .agg(F.count(F.lit(1)).alias("n"), F.min("value").alias("commit_ts"), F.max("value").alias("upto"),
             F.min_by("witness", "value").alias("witness"))
    )  # fmt: skip
    found = _gap_findings(gaps).unionByName(_topics_without_any(homes))
    return found.transform(as_findings, guarantee="resolved_events_on_all_partitions")


def ddl_events_on_all_partitions(events: DataFrame, *, protocol: str) -> DataFrame:
    """Seed, constraint 2.4: DDL events are broadcast to all partitions; canal and canal-json send them to partition 0
    only.

    A partition whose recorded events end before the DDL's commit_ts, or that was recorded only from later on, gives a
    warning instead of an error.
    """
    identity = ["topic", "commit_ts", "schema_name", "table_name", "query"]
    ddl = events.where("kind = 'ddl' AND commit_ts IS NOT NULL").select(*POSITION, *identity[1:])
    named = F.concat_ws(".", "schema_name", F.when(F.col("table_name") != "", F.col("table_name")))
    witness = F.min(F.struct("partition", "offset", "commit_ts")).alias("witness")
    each = ddl.groupBy(*identity).agg(witness, F.collect_set("partition").alias("seen"))
    homes = _homes(events)
    if protocol in DDL_IN_PARTITION_0_ONLY:
        homes = homes.where("partition = 0").unionByName(_partition_0(homes)).dropDuplicates([*PARTITION])
    cut = (F.col("last_ts") < F.col("commit_ts")) | (
        (F.col("first_offset") > 0) & (F.col("first_ts") > F.col("commit_ts"))
    )
    cut = F.coalesce(cut, F.lit(False))
    why = F.when(cut, " (the recording of that partition does not cover it)").otherwise("")
    return (
        each.join(F.broadcast(homes), on="topic")
        .where(~F.array_contains("seen", F.col("partition")))
        .select(
            "topic",
            "partition",
            "commit_ts",
            named.alias("table"),
            F.when(cut, "warning").otherwise("error").alias("severity"),
            text(
                "partition ", F.col("partition"), " of topic ", F.col("topic"), " lacks the DDL that partition ",
                F.col("witness.partition"), " holds: ", F.substring("query", 1, 100),
                why,
            ).alias("message"),
            evidence(F.col("witness")).alias("evidence"),
        )
        .transform(as_findings, guarantee="ddl_events_on_all_partitions")
    )  # fmt: skip


_HOME = ("first_resolved_ts", "last_resolved_ts", "first_offset", "first_ts", "last_ts")


def _homes(events: DataFrame) -> DataFrame:
    """Per partition of the log what its recording covers."""
    stated = F.when(F.col("kind") == "watermark", F.col("commit_ts"))
    return events.groupBy(*PARTITION).agg(
        F.min(stated).alias("first_resolved_ts"),
        F.max(stated).alias("last_resolved_ts"),
        F.min("offset").alias("first_offset"),
        F.min("commit_ts").alias("first_ts"),
        F.max("commit_ts").alias("last_ts"),
    )


def _partition_0(homes: DataFrame) -> DataFrame:
    """Partition 0 of every topic, also of one that recorded nothing of it."""
    none = F.lit(None).cast("bigint")
    return homes.select("topic", F.lit(0).alias("partition"), *[none.alias(c) for c in _HOME]).dropDuplicates(["topic"])


def _gap_findings(gaps: DataFrame) -> DataFrame:
    """One finding per run of watermarks that a partition lacks."""
    inside = F.col("commit_ts").between(F.col("first_resolved_ts"), F.col("last_resolved_ts"))
    late = F.col("commit_ts") < F.col("first_resolved_ts")
    silent = F.col("last_resolved_ts").isNull()
    what = text("partition ", F.col("partition"), " of topic ", F.col("topic"))
    several = text(F.col("n"), " watermark(s) from ", F.col("commit_ts"), " to ", F.col("upto"))
    after = F.struct("partition", F.col("next.offset").alias("offset"), F.col("next.value").alias("commit_ts"))
    shown = F.when(inside, evidence(F.col("witness"), after)).otherwise(evidence(F.col("witness")))
    return gaps.select(
        *PARTITION,
        "commit_ts",
        F.when(silent, F.col("first_offset")).otherwise(F.col("next.offset")).alias("offset"),
        F.when(inside | silent, "error").otherwise("warning").alias("severity"),
        F.when(silent, text(what, " has events but no watermark at all"))
        .when(inside, text(what, " lacks ", several, " that other partitions state"))
        .when(late, text(what, " starts after ", several, ": the recording of that partition may start later"))
        .otherwise(text(what, " ends before ", several, ": the recording of that partition may end earlier"))
        .alias("message"),
        shown.alias("evidence"),
    )


def _topics_without_any(homes: DataFrame) -> DataFrame:
    """A warning for every topic of which no partition states a watermark."""
    earliest = F.min(F.struct("partition", F.col("first_offset").alias("offset"), F.col("first_ts").alias("commit_ts")))
    topics = homes.groupBy("topic").agg(earliest.alias("at"), F.max("last_resolved_ts").alias("stated"))
    return topics.where("stated IS NULL").select(
        "topic",
        "at.partition",
        "at.commit_ts",
        "at.offset",
        F.lit("warning").alias("severity"),
        text("no partition of topic ", F.col("topic"), " states a watermark").alias("message"),
        evidence(F.col("at")).alias("evidence"),
    )
