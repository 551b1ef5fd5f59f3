"""Where a topic's resolved_ts stood, in all partitions or in one, and what was written meanwhile.

A partition's watermarks are a ladder of rising values. Between two rungs lies a stall where they are far apart: in
event time, which every log has, or in the broker's time, where the recording kept it. A value that other partitions
state in between says that they went on.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.prefix import PARTITION, POSITION
from ticdc_lab.schema import require_batch, require_columns
from ticdc_lab.tso import lag_s_col
from ticdc_lab.watermarks import IS_ROW, STALL_S, watermark_timeline

STALL = ("topic", "held_ts", "next_ts", "everywhere")
"""What names a stall."""


def stalls(events: DataFrame, *, stall_s: float = STALL_S, arrivals: DataFrame | None = None) -> DataFrame:
    """Give every stretch in which the watermark stood.

    Parameters
    ----------
    events
        ``kind``, ``commit_ts``, ``start_ts``, ``schema_name``, ``table_name`` and the position columns of the events
        contract.
    stall_s
        Seconds between two rungs, by event time or by the broker's, above which the step is a stall.
    arrivals
        ``topic``, ``partition``, ``offset``, ``timestamp`` (the broker's time; null where it is not known), such as
        :data:`ticdc_lab.schema.MESSAGES`. Without it a watermark that stood and then caught up in small steps cannot be
        seen: event time has no gap there.

    Returns
    -------
    DataFrame
        A row a stall. ``topic``; ``held_ts``, ``next_ts`` (TSO; null where the log ends); ``everywhere`` (no partition
        stated a value in between); ``partitions`` (array<int>: where it stood); ``steps_of_others``; ``step_s``
        (double, event time); ``since``, ``until`` (timestamp, broker) and ``stood_s`` (double), null without arrivals;
        ``n_repeats`` (how often ``held_ts`` was stated again, in the partition that did so most), ``n_regressed``
        (lower values stated meanwhile); and of rows between both rungs, of these partitions: ``n_rows``,
        ``n_replayed`` (at or below held_ts), ``n_above`` (above it), ``n_beyond`` (above next_ts too),
        ``tables`` (array<string>), ``first`` (struct<commit_ts, table>: the lowest above held_ts),
        ``newest_commit_ts``, ``biggest`` (struct<rows, commit_ts>: the transaction with most rows), ``longest``
        (struct<start_ts, commit_ts>: the one above held_ts that lasted longest; null where the protocol keeps no
        start_ts).

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream: whether a watermark still stands is known only when the next one came.
    """
    require_columns(events, "kind", "commit_ts", "start_ts", "schema_name", "table_name", *POSITION)
    require_batch(events, function="stalls", why="a watermark stands until the next one comes")
    gaps = _gaps(events, stall_s, arrivals)
    whole = gaps.groupBy(*STALL).agg(
        F.array_sort(F.collect_set("partition")).alias("partitions"),
        F.max("steps_of_others").alias("steps_of_others"),
        F.max("step_s").alias("step_s"),
        F.min("since").alias("since"),
        F.min("until").alias("until"),
        F.max("stood_s").alias("stood_s"),
        F.max("n_repeats").alias("n_repeats"),
        F.max("n_regressed").alias("n_regressed"),
    )
    written = _written(events, gaps).withColumnsRenamed({name: f"_{name}" for name in STALL})
    same = [whole[name].eqNullSafe(written[f"_{name}"]) for name in STALL]
    counts = {name: F.coalesce(name, F.lit(0)) for name in ("n_rows", "n_replayed", "n_above", "n_beyond")}
    return whole.join(written, on=same, how="left").drop(*[f"_{name}" for name in STALL]).withColumns(counts)


def _gaps(events: DataFrame, stall_s: float, arrivals: DataFrame | None) -> DataFrame:
    """Rungs of each partition that are far from the next one."""
    rungs = events.transform(watermark_timeline).groupBy(*PARTITION, F.col("partition_resolved_ts").alias("held_ts"))
    along = Window.partitionBy(*PARTITION).orderBy("held_ts")
    ladder = rungs.agg(
        F.min("offset").alias("held_offset"),
        F.count_if("duplicate").alias("n_repeats"),
        F.count_if("regressed").alias("n_regressed"),
    ).withColumns({"next_ts": F.lead("held_ts").over(along), "next_offset": F.lead("held_offset").over(along)})
    ends = events.where("kind IN ('row', 'watermark')").groupBy("topic").agg(F.max("commit_ts").alias("_end_ts"))
    steps = _steps(ladder)
    timed = _timed(ladder.join(F.broadcast(ends), "topic"), arrivals)
    far = timed.withColumn("step_s", lag_s_col("held_ts", now_ts=F.coalesce("next_ts", "_end_ts"))).where(
        (F.col("step_s") > stall_s) | F.coalesce(F.col("stood_s") > stall_s, F.lit(False))
    )
    following = steps.select("topic", F.col("held_ts").alias("next_ts"), F.col("_step").alias("_next_step"))
    others = F.coalesce(F.col("_next_step") - 1, F.col("_steps")) - F.col("_step")
    return (
        far.join(steps, ["topic", "held_ts"])
        .join(following, ["topic", "next_ts"], "left")
        .withColumn("steps_of_others", others)
        .withColumn("everywhere", F.col("steps_of_others") == 0)
    )


def _steps(ladder: DataFrame) -> DataFrame:
    """The topic's own ladder: the place of each value."""
    topic = Window.partitionBy("topic")
    return (
        ladder.select("topic", "held_ts")
        .distinct()
        .withColumn("_step", F.row_number().over(topic.orderBy("held_ts")))
        .withColumn("_steps", F.count(F.lit(1)).over(topic))
    )


def _timed(ladder: DataFrame, arrivals: DataFrame | None) -> DataFrame:
    """When both rungs arrived at the broker."""
    if arrivals is None:
        unknown = F.lit(None).cast("timestamp")
        return ladder.withColumns({"since": unknown, "until": unknown, "stood_s": F.lit(None).cast("double")})
    require_columns(arrivals, *PARTITION, "offset", "timestamp", frame="arrivals")
    times = arrivals.select(*PARTITION, "offset", "timestamp")
    for name, end in (("held_offset", "since"), ("next_offset", "until")):
        at = times.withColumnsRenamed({"offset": name, "timestamp": end})
        ladder = ladder.join(at, [*PARTITION, name], "left")
    return ladder.withColumn("stood_s", F.expr("unix_micros(until) - unix_micros(since)") / F.lit(1e6))


def _written(events: DataFrame, gaps: DataFrame) -> DataFrame:
    """What was written between both rungs, summed up by stall."""
    places = gaps.select(*STALL, F.col("partition").alias("_partition"), "held_offset", "next_offset")
    places = F.broadcast(places.withColumnRenamed("topic", "_topic"))
    table = F.concat_ws(".", "schema_name", "table_name")
    rows = events.where(IS_ROW).select(*PARTITION, "offset", "commit_ts", "start_ts", table.alias("table"))
    between = (F.col("offset") > F.col("held_offset")) & (
        F.col("next_offset").isNull() | (F.col("offset") < F.col("next_offset"))
    )
    here = (F.col("topic") == F.col("_topic")) & (F.col("partition") == F.col("_partition"))
    by_transaction = (
        rows.join(places, on=here & between)
        .groupBy(*STALL, "commit_ts")
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.min("start_ts").alias("start_ts"),
            F.collect_set("table").alias("tables"),
        )
    )
    return by_transaction.groupBy(*STALL).agg(*_sums())


def _sums() -> list[Column]:
    above = F.col("commit_ts") > F.col("held_ts")
    return [
        F.sum("rows").alias("n_rows"),
        F.sum(F.when(~above, F.col("rows")).otherwise(0)).alias("n_replayed"),
        F.sum(F.when(above, F.col("rows")).otherwise(0)).alias("n_above"),
        F.sum(F.when(F.col("commit_ts") > F.col("next_ts"), F.col("rows")).otherwise(0)).alias("n_beyond"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_list("tables")))).alias("tables"),
        F.min(F.when(above, F.struct("commit_ts", F.array_min("tables").alias("table")))).alias("first"),
        F.max("commit_ts").alias("newest_commit_ts"),
        F.max(F.struct("rows", "commit_ts")).alias("biggest"),
        F.max_by(F.struct("start_ts", "commit_ts"), F.when(above, F.col("commit_ts") - F.col("start_ts"))).alias(
            "longest"
        ),
    ]
