"""Transactions that a gap in offsets may have torn: those between the messages on both of its sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.events.schema import require_batch, require_columns
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
    """Give the transactions that have row changes between both neighbours of a gap, by commit_ts.

    A message that is missing lay between its neighbours in its partition, where commit_ts rises except in one
    batch. So its transaction is most likely one of these, or was not recorded at all.

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
        TSO), ``n_rows`` (bigint), ``partitions`` (array<int>) and ``tables`` (array<string>) of the transaction. No
        row for a gap whose neighbours have no commit_ts.

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
    own = (F.col("topic") == F.col("gap.topic")) & (F.col("partition") == F.col("gap.partition"))
    beside = F.col("offset").isin(F.col("gap.first_missing") - 1, F.col("gap.last_missing") + 1)
    ends = (
        dated.where(own & beside)
        .groupBy("gap")
        .agg(
            F.min("commit_ts").alias("low"), F.max("commit_ts").alias("high"), F.count_distinct("offset").alias("sides")
        )
    )
    rows = dated.where("kind = 'row'").where(F.col("topic") == F.col("gap.topic"))
    between = rows.join(ends.where("sides = 2"), "gap").where("commit_ts BETWEEN low AND high")
    found = between.groupBy("gap", "commit_ts").agg(
        F.count(F.lit(1)).alias("n_rows"),
        F.array_sort(F.collect_set("partition")).alias("partitions"),
        F.array_sort(F.collect_set(F.concat_ws(".", "schema_name", "table_name"))).alias("tables"),
    )
    return found.select("gap.*", "commit_ts", "n_rows", "partitions", "tables")
