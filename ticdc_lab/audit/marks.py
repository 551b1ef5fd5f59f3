"""What a partition had promised before an event: the highest watermark, and the newest DDL that blocks the event's
table.

Rows are never sorted by position for this. Watermarks and DDL are few; what they amount to is computed among themselves
(:mod:`ticdc_lab.prefix`) and broadcast, per chunk of offsets, to the rows.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.prefix import PARTITION, POSITION, chunk_col, with_running

MARK_CHUNK = 128
"""Offsets per chunk: so few that most chunks hold no watermark, or one."""

NAMES = ("schema_name", "table_name")
MARK = "struct<offset: bigint, seq: int, ts: bigint>"
"""A watermark or DDL: where it stands in the partition and its timestamp (TSO)."""

_RECORD = ("offset", "seq", "ts")


def place_col() -> Column:
    """Number (bigint) that names topic, partition, schema and table."""
    return F.xxhash64(*PARTITION, *NAMES)


def places_of(events: DataFrame) -> DataFrame:
    """Every place that holds rows, with its names; a few rows, to be broadcast."""
    names = events.where("kind = 'row'").select(*PARTITION, *NAMES).distinct()
    return names.withColumn("place", place_col())


def with_resolved_before(rows: DataFrame, *, events: DataFrame, chunk: int = MARK_CHUNK) -> DataFrame:
    """Add ``resolved`` (:data:`MARK`): the highest watermark before the row, where it is not below the row's commit_ts.

    Parameters
    ----------
    rows
        Row events with ``topic, partition, offset, seq, commit_ts``.
    events
        The whole log, for its watermarks.
    chunk
        Offsets per chunk; changes nothing but the plan.

    Returns
    -------
    DataFrame
        ``rows`` and ``resolved``, null for rows that keep the promise.
    """
    chunks = F.broadcast(_chunks_of_watermarks(events, chunk=chunk))
    joined = rows.withColumn("_at", _chunk_id(chunk)).join(chunks, on="_at", how="left")
    before = F.coalesce(_last_before("_marks"), F.col("_carried"))
    return _promised(joined, before=before, name="resolved", broken=lambda ts: F.col("commit_ts") <= ts).drop("_at")


def with_ddl_before(rows: DataFrame, *, events: DataFrame, places: DataFrame) -> DataFrame:
    """Add ``ddl`` (:data:`MARK`): a DDL before the row that blocks its table and is newer than the row.

    Parameters
    ----------
    rows
        Row events with ``place, offset, seq, commit_ts``.
    events
        The whole log, for its DDL: ``kind, query`` and the columns above.
    places
        :func:`places_of` the log: what a DDL of a whole schema blocks.

    Returns
    -------
    DataFrame
        ``rows`` and ``ddl``, null for rows that keep the promise.
    """
    joined = rows.join(F.broadcast(_ddl_by_place(events, places)), on="place", how="left")
    return _promised(joined, before=_last_before("_marks"), name="ddl", broken=lambda ts: F.col("commit_ts") < ts)


def blocked_tables() -> Column:
    """Tables that a DDL event orders rows against: array of ``struct<schema, table>``; table null is the whole schema.

    The event's own table; a rename also blocks the old name, an exchange of partitions the other table (golden README
    section 6: a DDL is ordered only against the tables it blocks).
    """
    own = F.struct(
        F.col("schema_name").alias("schema"),
        F.when(F.col("table_name") != "", F.col("table_name")).alias("table"),
    )
    renamed = _named_after(r"^\s*RENAME\s+TABLE\s+")
    altered = _named_after(r"^\s*ALTER\s+TABLE\s+")
    exchanged = _named_after(r"\sWITH\s+TABLE\s+")
    others = F.array(renamed, altered, F.when(F.upper("query").contains("EXCHANGE PARTITION"), exchanged))
    return F.array_distinct(F.concat(F.array(own), F.array_compact(others)))


def _promised(frame: DataFrame, *, before: Column, name: str, broken: Callable[[Column], Column]) -> DataFrame:
    """Look the last mark up only for rows that the chunk's greatest could concern, and keep it where it is broken."""
    return (
        frame.withColumn("_before", F.when(broken(F.col("_top")), before))
        .withColumn(name, F.when(broken(F.col("_before.ts")), F.col("_before")))
        .drop("_before", "_marks", "_top", "_carried")
    )


def _last_before(marks: str) -> Column:
    """The last of an array of marks, ordered by position, that stands before the row."""
    offset, seq = F.col("offset"), F.col("seq")
    earlier = F.filter(marks, lambda m: (m["offset"] < offset) | ((m["offset"] == offset) & (m["seq"] < seq)))
    return F.try_element_at(earlier, F.lit(-1))


def _chunk_id(chunk: int) -> Column:
    """One number for topic, partition and chunk: joins on one bigint are the fast ones."""
    return F.xxhash64(*PARTITION, chunk_col(chunk))


def _chunks_of_watermarks(events: DataFrame, *, chunk: int) -> DataFrame:
    """Per chunk that holds any event: its rising watermarks in order, and the highest of the chunks before."""
    keys = [*PARTITION, "_chunk"]
    raised = (
        events.where("kind = 'watermark'")
        .select(*POSITION, F.col("commit_ts").alias("ts"))
        .transform(with_running, value="ts")
        .where(F.col("highest").isNull() | (F.col("ts") > F.col("highest.value")))
        .groupBy(*PARTITION, chunk_col(chunk).alias("_chunk"))
        .agg(F.sort_array(F.collect_list(F.struct(*_RECORD))).alias("_marks"))
    )
    last = F.try_element_at("_marks", F.lit(-1))
    along = Window.partitionBy(*PARTITION).orderBy("_chunk")
    return (
        events.select(*PARTITION, chunk_col(chunk).alias("_chunk"))
        .distinct()
        .join(raised, on=keys, how="left")
        .withColumn("_carried", F.last(last, ignorenulls=True).over(along.rowsBetween(Window.unboundedPreceding, -1)))
        .withColumn("_top", F.coalesce(last["ts"], F.col("_carried.ts")))
        .where("_top IS NOT NULL")
        .select(F.xxhash64(*keys).alias("_at"), "_marks", "_carried", "_top")
    )


def _ddl_by_place(events: DataFrame, places: DataFrame) -> DataFrame:
    """Per place the DDL that block its table, in order."""
    blocks = (
        events.where("kind = 'ddl' AND commit_ts IS NOT NULL")
        .select(*POSITION, F.col("commit_ts").alias("ts"), F.explode(blocked_tables()).alias("_blocked"))
        .select(*POSITION, "ts", F.col("_blocked.schema").alias("_schema"), F.col("_blocked.table").alias("_table"))
    )
    of = places.select(*[F.col(c).alias(f"_p_{c}") for c in (*PARTITION, *NAMES)], "place")
    same = (
        (F.col("topic") == F.col("_p_topic"))
        & (F.col("partition") == F.col("_p_partition"))
        & (F.col("_schema") == F.col("_p_schema_name"))
        & (F.col("_table").isNull() | (F.col("_table") == F.col("_p_table_name")))
    )
    return (
        of.join(blocks, on=same)
        .groupBy("place")
        .agg(F.sort_array(F.collect_list(F.struct(*_RECORD))).alias("_marks"), F.max("ts").alias("_top"))
        # the highest so far is enough: a row is compared with the last mark before it
        .withColumn("_marks", _rising("_marks"))
    )


def _rising(marks: str) -> Column:
    """Those of an array of marks that exceed all before them."""
    nothing = F.array().cast(f"array<{MARK}>")
    return F.aggregate(
        marks, nothing,
        lambda kept, m: F.when(F.coalesce(F.try_element_at(kept, F.lit(-1))["ts"] >= m["ts"], F.lit(False)), kept)
        .otherwise(F.concat(kept, F.array(m))),
    )  # fmt: skip


_NAME = r"(?:`((?:[^`]|``)+)`|([A-Za-z0-9_$]+))"


def _named_after(keywords: str) -> Column:
    """The table named after ``keywords`` in the query, qualified or in the event's own schema; null without one."""
    pattern = f"(?i){keywords}(?:{_NAME}\\s*\\.\\s*)?{_NAME}"

    def group(i: int) -> Column:
        quoted = F.replace(F.regexp_extract("query", pattern, i), F.lit("``"), F.lit("`"))
        return F.concat(quoted, F.regexp_extract("query", pattern, i + 1))

    schema = F.when(group(1) != "", group(1)).otherwise(F.col("schema_name"))
    return F.when(group(3) != "", F.struct(schema.alias("schema"), group(3).alias("table")))
