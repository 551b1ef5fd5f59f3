"""Transactions that may have lost a row in a gap of offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.events.schema import require_batch, require_columns
from ticdc_lab.events.tso import LOGICAL_BITS
from ticdc_lab.facts.limits import gaps_between


@dataclass(frozen=True, slots=True)
class OffsetGap:
    """Offsets that a partition misses, from ``first`` to ``last``, both included."""

    topic: str
    partition: int
    first: int
    last: int


def gaps_in(offsets: pa.Table, *, most: int) -> list[OffsetGap]:
    """The first gaps of the partitions whose offsets count messages.

    Parameters
    ----------
    offsets
        As of :class:`ticdc_lab.facts.LogFacts`.
    """
    every = (
        OffsetGap(topic, partition, int(first), int(last))
        for (topic, partition), firsts, lasts, counts in gaps_between(offsets)
        if counts
        for first, last in zip(firsts, lasts, strict=True)
    )
    return list(islice(every, most))


def suspects(events: DataFrame, *, gaps: Sequence[OffsetGap]) -> DataFrame:
    """Give the transactions that may have lost a row change in a gap, by commit_ts.

    In a partition only the rows of one table are in commit_ts order, and all rows behind a watermark are above it. So
    a missing row is above the watermark before the gap, and for some table between its rows on both sides. The
    partition's events up to the next watermark limit it above. Its transaction is one of these, or was not recorded at
    all, or has a table that is split between captures, whose rows have no order.

    Parameters
    ----------
    events
        ``kind``, ``commit_ts``, ``schema_name``, ``table_name`` and the position columns of the events contract.
    gaps
        A few, of :func:`gaps_in`.

    Returns
    -------
    DataFrame
        ``topic``, ``partition`` (int), ``first_missing``, ``last_missing`` (bigint) of the gap; ``commit_ts`` (bigint,
        TSO), ``n_rows`` (bigint), ``partitions`` (array<int>) and ``tables`` (array<string>) of the transaction;
        ``is_between`` (boolean): whether it is between the commit_ts of the messages beside the gap, ``apart_ms``
        (bigint): how far from them, ``apart_offsets`` (bigint): how far its nearest row of this partition is from the
        gap, null without one, and ``between_rows_of`` (array<string>): the tables that have rows of this partition on
        both sides of the gap with it between. No row for a gap before or behind all that has a commit_ts in its
        partition.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.
    """
    require_columns(events, "kind", "commit_ts", "schema_name", "table_name", "topic", "partition", "offset")
    require_batch(events, function="suspects", why="a gap has two neighbours when its second one came")
    gap = "struct<topic: string, partition: int, first_missing: bigint, last_missing: bigint>"
    listed = [F.struct(F.lit(g.topic), F.lit(g.partition), F.lit(g.first), F.lit(g.last)).cast(gap) for g in gaps]
    each = F.array(*listed) if listed else F.array().cast(f"array<{gap}>")
    dated = events.where("commit_ts IS NOT NULL").select("*", F.explode(each).alias("gap"))
    dated = dated.where(F.col("topic") == F.col("gap.topic"))
    own = dated.where(F.col("partition") == F.col("gap.partition"))
    ts, at = F.col("commit_ts"), F.struct("offset", "commit_ts")
    is_before, is_after = F.col("offset") < F.col("gap.first_missing"), F.col("offset") > F.col("gap.last_missing")
    is_row, is_watermark = F.col("kind") == "row", F.col("kind") == "watermark"
    ends = own.groupBy("gap").agg(
        F.max(F.when(is_before, at)).alias("before"),
        F.min(F.when(is_after, at)).alias("after"),
        F.max(F.when(is_before & is_watermark, ts)).alias("resolved_ts"),
        F.min(F.when(is_after & is_watermark, F.col("offset"))).alias("next_watermark"),
    )
    ends = ends.where("before IS NOT NULL AND after IS NOT NULL").select(
        "gap", "next_watermark", F.coalesce("resolved_ts", F.lit(0)).alias("resolved_ts"),
        F.least("before.commit_ts", "after.commit_ts").alias("low"),
        F.greatest("before.commit_ts", "after.commit_ts").alias("high"),
    )  # fmt: skip
    sent = own.join(ends, "gap").where("next_watermark IS NULL OR offset <= next_watermark")
    ends = ends.join(sent.groupBy("gap").agg(F.max(ts).alias("most")), "gap")
    name = F.concat_ws(".", "schema_name", "table_name")
    tables = (
        own.where(is_row)
        .groupBy("gap", "schema_name", "table_name")
        .agg(F.max(F.when(is_before, ts)).alias("last"), F.min(F.when(is_after, ts)).alias("next"))
        .select("gap", name.alias("table"), F.coalesce("last", F.lit(0)).alias("last"), "next")
    )
    near = dated.where(is_row).join(ends, "gap").where("commit_ts > resolved_ts AND commit_ts <= most")
    distance = F.greatest(F.col("gap.first_missing") - F.col("offset"), F.col("offset") - F.col("gap.last_missing"))
    found = near.groupBy("gap", "commit_ts", "low", "high").agg(
        F.count(F.lit(1)).alias("n_rows"),
        F.array_sort(F.collect_set("partition")).alias("partitions"),
        F.array_sort(F.collect_set(name)).alias("tables"),
        F.min(F.when(F.col("partition") == F.col("gap.partition"), distance)).alias("apart_offsets"),
    )
    fits = found.select("gap", "commit_ts", "low", "high").join(tables, "gap")
    fits = fits.where("commit_ts BETWEEN low AND high OR commit_ts BETWEEN last AND coalesce(next, commit_ts)")
    both_sides = F.when(F.expr("last > 0 AND commit_ts BETWEEN last AND next"), F.col("table"))
    fits = fits.groupBy("gap", "commit_ts").agg(F.array_sort(F.collect_set(both_sides)).alias("between_rows_of"))
    apart = F.shiftright(F.greatest(F.col("low") - ts, ts - F.col("high"), F.lit(0)), LOGICAL_BITS).alias("apart_ms")
    place = [f"gap.{name}" for name in ("topic", "partition", "first_missing", "last_missing")]
    return found.join(fits, ["gap", "commit_ts"]).select(
        *place, "commit_ts", "n_rows", "partitions", "tables",
        ts.between(F.col("low"), F.col("high")).alias("is_between"), apart, "apart_offsets", "between_rows_of",
    )  # fmt: skip
