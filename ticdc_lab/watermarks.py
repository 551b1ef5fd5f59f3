"""Resolved timestamps of a recorded topic, at every level.

TiCDC's owner broadcasts its global checkpoint_ts to every partition, where it is the partition's resolved_ts (seed,
"CDC Owner 逻辑"): no change with a smaller commit_ts follows it there. A consumer that reads all partitions has
everything up to the smallest of the partitions' resolved_ts (seed, "Kafka Consumer 逻辑").

- ``resolved_ts``: what a reader of the log may rely on; the greatest watermark of a partition, the least over
  partitions.
- ``checkpoint_ts``: what the changefeed had reached; the greatest watermark stated anywhere in the topic.

All timestamps are TSO (bigint). Seconds are differences of their physical parts.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.prefix import CHUNK, PARTITION, POSITION, with_running
from ticdc_lab.schema import require_batch, require_columns
from ticdc_lab.tso import lag_s_col

STALL_S = 60.0
"""A step between watermarks of more seconds than this is a stall. TiCDC emits one about every second."""

IS_ROW = "kind = 'row'"
IS_WATERMARK = "kind = 'watermark'"


def watermark_timeline(events: DataFrame, *, stall_s: float = STALL_S, chunk: int = CHUNK) -> DataFrame:
    """Say for every watermark what it changed.

    Parameters
    ----------
    events
        ``kind``, ``commit_ts`` and the position columns of the events contract.
    stall_s
        Seconds (TSO) from the highest watermark before, above which the step is a stall.
    chunk
        Offsets per chunk of :mod:`ticdc_lab.prefix`; changes nothing but the plan.

    Returns
    -------
    DataFrame
        ``topic, partition, offset, resolved_ts`` (as stated), ``partition_resolved_ts`` (the greatest so far),
        ``previous_resolved_ts``, ``step_s`` (double, from the greatest before; null for the first), ``regressed``,
        ``regression_s`` (null unless regressed), ``duplicate`` (repeats the greatest before, as after a restart),
        ``stalled``.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.

    References
    ----------
    Seed, constraint 2.2 and "CDC Owner 切换": a checkpoint_ts never falls back.
    """
    require_columns(events, "kind", "commit_ts", *POSITION)
    require_batch(events, function="watermark_timeline", why="a running maximum follows the offsets of a partition")
    marks = events.where(IS_WATERMARK).select(*POSITION, F.col("commit_ts").alias("resolved_ts"))
    highest, stated = F.col("highest.value"), F.col("resolved_ts")
    regressed = F.coalesce(stated < highest, F.lit(False))
    step_s = lag_s_col(highest, now_ts=stated)
    return marks.transform(with_running, value="resolved_ts", chunk=chunk).select(
        "topic",
        "partition",
        "offset",
        "resolved_ts",
        F.greatest(stated, highest).alias("partition_resolved_ts"),
        F.col("previous.value").alias("previous_resolved_ts"),
        step_s.alias("step_s"),
        regressed.alias("regressed"),
        F.when(regressed, -step_s).alias("regression_s"),
        F.coalesce(stated == highest, F.lit(False)).alias("duplicate"),
        F.coalesce(step_s > stall_s, F.lit(False)).alias("stalled"),
    )


def partition_progress(events: DataFrame) -> DataFrame:
    """Count a partition's events and take its newest timestamps; one aggregation, so it also runs on a stream.

    Parameters
    ----------
    events
        ``kind``, ``commit_ts``, ``topic``, ``partition``, ``offset`` of the events contract.

    Returns
    -------
    DataFrame
        Per ``topic, partition``: ``resolved_ts`` (greatest watermark; null without one), ``first_resolved_ts``,
        ``n_watermarks``, ``n_rows``, ``n_ddl``, ``first_commit_ts``, ``last_commit_ts`` (of rows), ``first_offset``,
        ``last_offset``.
    """
    require_columns(events, "kind", "commit_ts", "topic", "partition", "offset")
    return events.groupBy(*PARTITION).agg(*_progress())


def partition_watermarks(events: DataFrame, *, stall_s: float = STALL_S) -> DataFrame:
    """Say how far each partition is resolved and how it got there.

    Parameters
    ----------
    events, stall_s
        As for :func:`watermark_timeline`.

    Returns
    -------
    DataFrame
        The columns of :func:`partition_progress` and ``n_regressions``, ``n_duplicates``, ``n_stalls`` (bigint),
        ``step_s_max`` (longest step between watermarks), ``unresolved_s`` (seconds from resolved_ts to the
        newest row; 0 when all rows are resolved, null without a watermark). A partition that has rows and no watermark
        is there, with ``resolved_ts`` null.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.

    Notes
    -----
    The events are read once. Of what is no watermark one row a partition is left before anything is ordered.

    Examples
    --------
    >>> found = log.events.transform(partition_watermarks).orderBy("partition")
    >>> found.select("partition", "n_watermarks", "n_rows", "n_regressions", "n_stalls").show()
    +---------+------------+------+-------------+--------+
    |partition|n_watermarks|n_rows|n_regressions|n_stalls|
    +---------+------------+------+-------------+--------+
    |        0|          31|   661|            0|       0|
    |        1|          31|   449|            0|       0|
    |        2|          31|   321|            0|       0|
    |        3|          31|   670|            0|       0|
    +---------+------------+------+-------------+--------+
    """
    require_columns(events, "kind", "commit_ts", *POSITION)
    require_batch(events, function="partition_watermarks", why="a running maximum follows the offsets of a partition")
    place = {f"_{name}": F.when(F.expr(IS_WATERMARK), F.col(name)) for name in ("offset", "seq")}
    narrow = events.select("kind", "commit_ts", *PARTITION, "offset", *[c.alias(name) for name, c in place.items()])
    facts = narrow.groupBy(*PARTITION, *place).agg(*_progress())
    before = Window.partitionBy(*PARTITION).orderBy(*place).rowsBetween(Window.unboundedPreceding, -1)
    stated, highest = F.col("resolved_ts"), F.col("_highest")
    step_s = lag_s_col(highest, now_ts=stated)
    return (
        facts.withColumn("_highest", F.max("resolved_ts").over(before))
        .groupBy(*PARTITION)
        .agg(
            F.max("resolved_ts").alias("resolved_ts"),
            F.min("first_resolved_ts").alias("first_resolved_ts"),
            *[F.sum(name).alias(name) for name in ("n_watermarks", "n_rows", "n_ddl")],
            F.min("first_commit_ts").alias("first_commit_ts"),
            F.max("last_commit_ts").alias("last_commit_ts"),
            F.min("first_offset").alias("first_offset"),
            F.max("last_offset").alias("last_offset"),
            F.count_if(stated < highest).alias("n_regressions"),
            F.count_if(stated == highest).alias("n_duplicates"),
            F.count_if(step_s > stall_s).alias("n_stalls"),
            F.max(step_s).alias("step_s_max"),
        )
        .withColumn("unresolved_s", unresolved_s_col("last_commit_ts", "resolved_ts"))
    )


def topic_watermarks(events: DataFrame) -> DataFrame:
    """Say how far each topic is resolved, and which partition holds it back.

    Parameters
    ----------
    events
        As for :func:`partition_progress`.

    Returns
    -------
    DataFrame
        Per ``topic``: ``resolved_ts`` (least over partitions; null until every partition has had a watermark),
        ``checkpoint_ts`` (greatest stated anywhere), ``holders`` (array<int>, sorted: the partitions that stand at the
        least; those without a watermark while there are any), ``partitions`` (array<int>), ``unmarked`` (array<int>,
        partitions without a watermark), ``last_commit_ts``, ``n_rows``, ``lag_s`` (from resolved_ts to the fastest
        partition),
        ``unresolved_s`` (from resolved_ts to the newest row; 0 when all are resolved).

    References
    ----------
    Seed, "Kafka Consumer 逻辑" 3.2, and golden README section 6: "0 until every partition has had one".

    Examples
    --------
    >>> log.events.transform(topic_watermarks).select("resolved_ts", "holders", "n_rows").show()
    +------------------+------------+------+
    |       resolved_ts|     holders|n_rows|
    +------------------+------------+------+
    |470603993791332352|[0, 1, 2, 3]|  2101|
    +------------------+------------+------+
    """
    require_columns(events, "kind", "commit_ts", "topic", "partition", "offset")
    require_batch(events, function="topic_watermarks", why="it aggregates an aggregate")
    per_partition = F.collect_list(F.struct("partition", "resolved_ts"))
    topics = events.transform(partition_progress).groupBy("topic").agg(
        F.when(F.count("resolved_ts") == F.count(F.lit(1)), F.min("resolved_ts")).alias("resolved_ts"),
        F.max("resolved_ts").alias("checkpoint_ts"),
        F.max("last_commit_ts").alias("last_commit_ts"),
        F.sum("n_rows").alias("n_rows"),
        F.sort_array(per_partition).alias("_all"),
    )  # fmt: skip
    unmarked = _partitions_where(lambda p: p["resolved_ts"].isNull())
    at_least = _partitions_where(lambda p: p["resolved_ts"] == F.col("resolved_ts"))
    return topics.select(
        "topic",
        "resolved_ts",
        "checkpoint_ts",
        F.when(F.size(unmarked) > 0, unmarked).otherwise(at_least).alias("holders"),
        F.col("_all.partition").alias("partitions"),
        unmarked.alias("unmarked"),
        "last_commit_ts",
        "n_rows",
        lag_s_col("resolved_ts", now_ts=F.col("checkpoint_ts")).alias("lag_s"),
        unresolved_s_col("last_commit_ts", "resolved_ts").alias("unresolved_s"),
    )


def table_watermarks(events: DataFrame) -> DataFrame:
    """Say how far each table is resolved.

    A table is resolved as far as every partition that holds rows of it in this log. Where a rule spreads a table over
    partitions, one that has not received a row of it yet cannot be seen here; :func:`topic_watermarks` is the safe
    bound.

    Parameters
    ----------
    events
        ``kind``, ``commit_ts``, ``schema_name``, ``table_name`` and the position columns.

    Returns
    -------
    DataFrame
        Per ``schema_name, table_name``: ``n_rows``, ``first_commit_ts``, ``last_commit_ts``, ``topics``
        (array<string>),
        ``partitions`` (array<int>), ``resolved_ts`` (null if one of them has no watermark), ``unresolved_rows`` (above
        it; all of them where it is null), ``unresolved_s``.

    Examples
    --------
    >>> found = log.events.transform(table_watermarks).orderBy("schema_name", "table_name")
    >>> found.select("schema_name", "table_name", "n_rows", "partitions", "unresolved_rows").show(3)
    +-----------+----------+------+------------+---------------+
    |schema_name|table_name|n_rows|  partitions|unresolved_rows|
    +-----------+----------+------+------------+---------------+
    |    Fin_Ops| Customers|   229|[0, 1, 2, 3]|              0|
    |    Fin_Ops|    Ledger|   400|[0, 1, 2, 3]|              0|
    |    Fin_Ops|      nopk|   416|         [3]|              0|
    +-----------+----------+------+------------+---------------+
    only showing top 3 rows
    """
    require_columns(events, "kind", "commit_ts", "schema_name", "table_name", *POSITION)
    require_batch(events, function="table_watermarks", why="rows are compared with the last watermark of the log")
    tables = F.broadcast(_table_homes(events))
    rows = events.where(IS_ROW).select(F.col("schema_name").alias("_s"), F.col("table_name").alias("_t"), "commit_ts")
    same = F.col("_s").eqNullSafe(F.col("schema_name")) & F.col("_t").eqNullSafe(F.col("table_name"))
    unresolved = F.col("resolved_ts").isNull() | (F.col("commit_ts") > F.col("resolved_ts"))
    return (
        rows.join(tables, on=same)
        .groupBy("schema_name", "table_name", "topics", "partitions", "resolved_ts")
        .agg(
            F.count(F.lit(1)).alias("n_rows"),
            F.min("commit_ts").alias("first_commit_ts"),
            F.max("commit_ts").alias("last_commit_ts"),
            F.count_if(unresolved).alias("unresolved_rows"),
        )
        .select(
            "schema_name",
            "table_name",
            "n_rows",
            "first_commit_ts",
            "last_commit_ts",
            "topics",
            "partitions",
            "resolved_ts",
            "unresolved_rows",
            unresolved_s_col("last_commit_ts", "resolved_ts").alias("unresolved_s"),
        )
    )


def unresolved_s_col(newest: str, resolved: str) -> Column:
    """Seconds from ``resolved`` to ``newest``, not below 0; 0 without rows, null without a watermark."""
    behind = F.greatest(lag_s_col(resolved, now_ts=F.col(newest)), F.lit(0.0))
    return F.when(F.col(newest).isNull() & F.col(resolved).isNotNull(), F.lit(0.0)).otherwise(
        F.when(F.col(resolved).isNotNull(), behind)
    )


def _progress() -> list[Column]:
    """The aggregates of :func:`partition_progress`."""
    stated, row_ts = F.when(F.expr(IS_WATERMARK), F.col("commit_ts")), F.when(F.expr(IS_ROW), F.col("commit_ts"))
    return [
        F.max(stated).alias("resolved_ts"),
        F.min(stated).alias("first_resolved_ts"),
        F.count_if(F.expr(IS_WATERMARK)).alias("n_watermarks"),
        F.count_if(F.expr(IS_ROW)).alias("n_rows"),
        F.count_if(F.col("kind") == "ddl").alias("n_ddl"),
        F.min(row_ts).alias("first_commit_ts"),
        F.max(row_ts).alias("last_commit_ts"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
    ]


def _partitions_where(predicate: Callable[[Column], Column]) -> Column:
    return F.transform(F.filter("_all", predicate), lambda p: p["partition"])


def _table_homes(events: DataFrame) -> DataFrame:
    """Per table the partitions that hold rows of it and the least of their resolved_ts; a few rows."""
    facts = events.groupBy("schema_name", "table_name", *PARTITION).agg(
        F.max(F.when(F.expr(IS_WATERMARK), F.col("commit_ts"))).alias("stated"),
        F.count_if(F.expr(IS_ROW)).alias("rows"),
    )
    resolved = F.max("stated").over(Window.partitionBy(*PARTITION))
    return (
        facts.withColumn("resolved", resolved)
        .where("rows > 0")
        .groupBy("schema_name", "table_name")
        .agg(
            F.array_sort(F.collect_set("topic")).alias("topics"),
            F.array_sort(F.collect_set("partition")).alias("partitions"),
            F.when(F.count("resolved") == F.count(F.lit(1)), F.min("resolved")).alias("resolved_ts"),
        )
    )
