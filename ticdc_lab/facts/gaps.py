"""Offsets that a log lacks: compacted or expired in Kafka, or lost on the way into a recording."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.engine.shuffle import by_key
from ticdc_lab.events.prefix import PARTITION
from ticdc_lab.events.schema import require_batch, require_columns
from ticdc_lab.facts.gathering import IN_CHUNK
from ticdc_lab.facts.ladder import Ints, partitions_in
from ticdc_lab.facts.schemas import GAPS

Batches = Iterator[pa.RecordBatch]


def offset_gaps(events: DataFrame, *, expected: DataFrame | None = None) -> DataFrame:
    """List the stretches of offsets that are missing from each partition.

    Parameters
    ----------
    events
        ``topic``, ``partition``, ``offset`` of messages, or of events and quarantine together: a message without any
        row counts as missing.
    expected
        ``topic``, ``partition``, ``first_offset``, ``end_offset`` (exclusive), either null where it is not known: what
        each partition should hold. Without it only gaps between two offsets that are there can be seen.

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
    bit = F.expr(f"shiftleft(1L, int(pmod(offset, {IN_CHUNK})))")
    chunk = F.col("offset") - F.expr(f"pmod(offset, {IN_CHUNK})")
    held = marks.groupBy(*PARTITION, chunk.alias("offset")).agg(F.bit_or(bit).alias("held"))
    return by_key(
        held.select(*PARTITION, F.col("offset").alias("chunk"), "held"), PARTITION, missing, GAPS, order=("chunk",)
    )


def missing(chunks: Batches) -> Batches:
    """The stretches between offsets that are there, of batches in order of partition and chunk."""
    key, last = None, 0
    for batch in chunks:
        if not batch.num_rows:
            continue
        parts, continues, key = partitions_in(batch, key)
        for i, part in enumerate(parts):
            offset = offsets_in(batch["chunk"].to_numpy()[part], batch["held"].to_numpy()[part])
            offset = np.append(last, offset) if continues and i == 0 else offset
            last = int(offset[-1])
            first = np.flatnonzero(np.diff(offset) > 1)
            topic, partition = (pa.array([batch[c][part.start].as_py()] * len(first), batch[c].type) for c in PARTITION)
            low, high = offset[first] + 1, offset[first + 1] - 1
            of = {"topic": topic, "partition": partition, "first_missing": low, "last_missing": high}
            yield pa.RecordBatch.from_pydict(of | {"n_missing": high - low + 1})


def offsets_in(chunk: Ints, held: Ints) -> Ints:
    """The offsets that are there, of chunks in order; see :data:`ticdc_lab.facts.gathering.FACTS`."""
    bits = np.unpackbits(held.astype("<i8").view(np.uint8), bitorder="little").reshape(-1, IN_CHUNK)
    at, bit = np.nonzero(bits)
    found: Ints = chunk[at] + bit
    return found
