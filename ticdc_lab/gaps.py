"""Offsets that a log lacks: compacted or expired in Kafka, or lost on the way into a recording."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.prefix import CHUNK, PARTITION, with_running
from ticdc_lab.schema import require_batch, require_columns


def offset_gaps(events: DataFrame, *, expected: DataFrame | None = None, chunk: int = CHUNK) -> DataFrame:
    """List the stretches of offsets that are missing from each partition.

    Parameters
    ----------
    events
        ``topic``, ``partition``, ``offset`` of messages, or of events and quarantine together: a message without any
        row counts as missing.
    expected
        ``topic``, ``partition``, ``first_offset``, ``end_offset`` (exclusive), either null where it is not known: what
        each partition should hold. Without it only gaps between two offsets that are there can be seen.
    chunk
        Offsets per chunk of :mod:`ticdc_lab.prefix`; changes nothing but the plan.

    Returns
    -------
    DataFrame
        ``topic, partition, first_missing, last_missing`` (both inclusive), ``n_missing`` (bigint), one row a gap.
        Kafka's own transaction markers take an offset too and show here; TiCDC writes none.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.
    """
    require_columns(events, *PARTITION, "offset")
    require_batch(events, function="offset_gaps", why="an offset that is missing now may still come")
    offset = F.col("offset").cast("bigint").alias("offset")
    marks = events.where("partition IS NOT NULL AND offset IS NOT NULL").select(*PARTITION, offset)
    if expected is not None:
        require_columns(expected, *PARTITION, "first_offset", "end_offset", frame="expected")
        bounds = F.explode(F.array(F.col("first_offset") - 1, F.col("end_offset"))).alias("offset")
        marks = marks.unionByName(expected.select(*PARTITION, bounds).where("offset IS NOT NULL"))
    before = F.col("previous.value")
    return (
        marks.withColumn("seq", F.lit(0))
        .transform(with_running, value="offset", chunk=chunk)
        .where(F.col("offset") > before + 1)
        .select(
            *PARTITION,
            (before + 1).alias("first_missing"),
            (F.col("offset") - 1).alias("last_missing"),
            (F.col("offset") - before - 1).alias("n_missing"),
        )
    )
