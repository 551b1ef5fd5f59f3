"""Running values along a partition's offsets, without sorting a whole partition in one task.

A partition of a topic may be far larger than memory. Its offsets already say where an event stands, so a running value
is computed in two levels: inside chunks of ``chunk`` offsets, each of which any task can hold, and over one summary
row per chunk; the summaries are joined back. The result does not depend on ``chunk`` nor on the order of the input.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.errors import ContractError
from ticdc_lab.schema import require_columns

CHUNK = 4096
"""Offsets per chunk."""

PARTITION = ("topic", "partition")
POSITION = (*PARTITION, "offset", "seq")
"""What places an event in the log; unique."""


def chunk_col(chunk: int = CHUNK) -> Column:
    """Number (bigint) of the chunk that ``offset`` lies in."""
    if chunk < 1:
        raise ContractError(f"chunk is {chunk}; expected at least 1 offset.", hint="Leave chunk out.")
    return F.expr(f"offset div {chunk}L")


def with_running(marks: DataFrame, *, value: str, chunk: int = CHUNK) -> DataFrame:
    """Add what stands before each event in its partition.

    Parameters
    ----------
    marks
        Any events with ``topic``, ``partition``, ``offset``, ``seq`` and ``value``.
    value
        A bigint column.
    chunk
        Offsets per chunk.

    Returns
    -------
    DataFrame
        ``marks`` and ``previous``, ``highest`` (``struct<value, offset>``): the event just before, and the one with the
        greatest value before; null for the first event.

    Raises
    ------
    ContractError
        A column is missing, or ``chunk`` is below 1.
    """
    require_columns(marks, *POSITION, value, frame="marks")
    keys = [*PARTITION, "_chunk"]
    here = F.struct(F.col(value).alias("value"), "offset")
    inside = Window.partitionBy(*keys).orderBy("offset", "seq")
    before = inside.rowsBetween(Window.unboundedPreceding, -1)
    chunked = marks.withColumn("_chunk", chunk_col(chunk)).withColumns(
        {"_previous": F.lag(here).over(inside), "_highest": F.max(here).over(before)}
    )
    carried = _carried(chunked.groupBy(*keys).agg(
        F.max(here).alias("highest"), F.max_by(here, F.struct("offset", "seq")).alias("previous")
    ))  # fmt: skip
    return (
        chunked.join(carried, on=[chunked[k].eqNullSafe(carried[f"_c_{k}"]) for k in keys], how="left")
        .withColumns(
            {
                "previous": F.coalesce("_previous", "_c_previous"),
                # the running value inside the chunk starts anew: the greater of both is right
                "highest": F.greatest("_highest", "_c_highest"),
            }
        )
        .select(*marks.columns, "previous", "highest")
    )


def _carried(summaries: DataFrame) -> DataFrame:
    """What the chunks before a chunk amount to; one narrow row per chunk."""
    chunks = Window.partitionBy(*PARTITION).orderBy("_chunk")
    earlier = chunks.rowsBetween(Window.unboundedPreceding, -1)
    return summaries.select(
        *[F.col(k).alias(f"_c_{k}") for k in (*PARTITION, "_chunk")],
        F.lag("previous").over(chunks).alias("_c_previous"),
        F.max("highest").over(earlier).alias("_c_highest"),
    )
