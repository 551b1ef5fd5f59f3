"""Who holds a topic's resolved_ts back, and how much of each partition was unresolved on the way."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.prefix import CHUNK, PARTITION, POSITION, chunk_col
from ticdc_lab.schema import require_batch, require_columns
from ticdc_lab.tso import lag_s_col
from ticdc_lab.watermarks import IS_ROW, IS_WATERMARK, unresolved_s_col


def laggard_spans(events: DataFrame) -> DataFrame:
    """Say which partitions held the topic's resolved_ts back, and for how long.

    Kafka has no order across partitions, and events carry no clock of the broker. The axis is therefore the topic's
    own: its distinct watermark values in order, each a *step*, because each is broadcast to every partition. At a step
    a partition stands at the greatest watermark it states up to that value; it is a laggard where that is less than the
    value itself and the least of all partitions. When all partitions state every value, nobody holds the topic back and
    the result is empty.

    Parameters
    ----------
    events
        ``kind``, ``commit_ts``, ``topic``, ``partition`` of the events contract.

    Returns
    -------
    DataFrame
        One row per span of steps: ``topic, partition, first_step, last_step`` (from 1), ``steps``, ``steps_total`` (of
        the topic), ``held_ts`` (where it stood at first; null before its first watermark), ``from_ts``, ``to_ts`` (the
        values of those steps), ``lag_s_max`` (null where it never had one), ``at_end`` (it still holds the topic back).
    """
    require_columns(events, "kind", "commit_ts", *PARTITION)
    require_batch(events, function="laggard_spans", why="the steps are ordered by value over the whole log")
    held = _behind(events).where("behind")
    islands = Window.partitionBy(*PARTITION).orderBy("step")
    return (
        held.withColumn("_island", F.col("step") - F.row_number().over(islands))
        .groupBy(*PARTITION, "_island")
        .agg(
            F.min("step").alias("first_step"),
            F.max("step").alias("last_step"),
            F.count(F.lit(1)).alias("steps"),
            F.first("steps_total").alias("steps_total"),
            F.min("resolved_ts").alias("held_ts"),
            F.min("step_ts").alias("from_ts"),
            F.max("step_ts").alias("to_ts"),
            F.max(lag_s_col("resolved_ts", now_ts=F.col("step_ts"))).alias("lag_s_max"),
            (F.max("step") == F.first("steps_total")).alias("at_end"),
        )
        .drop("_island")
    )


def unresolved_over_offsets(events: DataFrame, *, every: int = CHUNK) -> DataFrame:
    """Say along each partition how many seconds of changes were not resolved yet.

    Parameters
    ----------
    events
        ``kind``, ``commit_ts`` and the position columns.
    every
        Offsets per point.

    Returns
    -------
    DataFrame
        Per ``topic, partition`` and stretch of ``every`` offsets that holds events: ``first_offset``, ``last_offset``,
        ``n_rows``, and as of ``last_offset``: ``newest_commit_ts`` (of rows so far), ``resolved_ts`` (null before the
        first watermark),
        ``unresolved_s`` (from the one to the other; 0 when all rows so far are resolved).
    """
    require_columns(events, "kind", "commit_ts", *POSITION)
    require_batch(
        events, function="unresolved_over_offsets", why="a running maximum follows the offsets of a partition"
    )
    points = events.groupBy(*PARTITION, chunk_col(every).alias("_chunk")).agg(
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
        F.count_if(F.expr(IS_ROW)).alias("n_rows"),
        F.max(F.when(F.expr(IS_ROW), F.col("commit_ts"))).alias("_newest"),
        F.max(F.when(F.expr(IS_WATERMARK), F.col("commit_ts"))).alias("_resolved"),
    )
    so_far = Window.partitionBy(*PARTITION).orderBy("_chunk").rowsBetween(Window.unboundedPreceding, 0)
    return (
        points.withColumns(
            {"newest_commit_ts": F.max("_newest").over(so_far), "resolved_ts": F.max("_resolved").over(so_far)}
        )
        .withColumn("unresolved_s", unresolved_s_col("newest_commit_ts", "resolved_ts"))
        .drop("_chunk", "_newest", "_resolved")
    )


def _behind(events: DataFrame) -> DataFrame:
    """Per step and partition where the partition stands, and whether it holds the topic back."""
    homes = events.select(*PARTITION).distinct()
    stated = events.where(IS_WATERMARK).select(*PARTITION, F.col("commit_ts").alias("step_ts")).distinct()
    topic = Window.partitionBy("topic").orderBy("step_ts")
    steps = (
        stated.select("topic", "step_ts")
        .distinct()
        .withColumn("step", F.row_number().over(topic))
        .withColumn("steps_total", F.count(F.lit(1)).over(Window.partitionBy("topic")))
    )
    along = Window.partitionBy(*PARTITION).orderBy("step").rowsBetween(Window.unboundedPreceding, 0)
    least = F.min(F.coalesce("resolved_ts", F.lit(-1))).over(Window.partitionBy("topic", "step"))
    stands = F.coalesce("resolved_ts", F.lit(-1))
    return (
        steps.join(F.broadcast(homes), on="topic")
        .join(stated.withColumn("_own", F.col("step_ts")), on=[*PARTITION, "step_ts"], how="left")
        .withColumn("resolved_ts", F.max("_own").over(along))
        .withColumn("behind", (stands < F.col("step_ts")) & (stands == least))
    )
