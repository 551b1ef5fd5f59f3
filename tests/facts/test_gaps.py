"""Which offsets a log lacks."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from ticdc_lab.errors import StreamingError
from ticdc_lab.facts.limits import offset_gaps
from ticdc_lab.sources.kafka import EXPECTED

POSITIONS = "topic string, partition int, offset bigint"


def test_every_gap_is_found_in_its_partition(spark: SparkSession) -> None:
    """Between offsets, before the first and after the last; a batched message counts once, an order does not matter."""
    offsets = {0: [9, 5, 5, 6, 12], 1: [0, 1, 2], 2: [40]}
    log = spark.createDataFrame([("t", p, o) for p, own in offsets.items() for o in own], POSITIONS)
    bounds = [("t", 0, 5, 13), ("t", 1, 0, 5), ("t", 2, 38, None), ("t", 3, 7, 9), ("t", 4, 0, 0)]
    expected = spark.createDataFrame(bounds, EXPECTED)
    inside = [(0, 7, 8, 2), (0, 10, 11, 2)]
    found = sorted(tuple(r)[1:] for r in log.transform(offset_gaps).collect())
    assert found == inside
    found = sorted(tuple(r)[1:] for r in log.transform(offset_gaps, expected=expected).collect())
    assert found == [*inside, (1, 3, 4, 2), (2, 38, 39, 2), (3, 7, 8, 2)]


def test_a_stream_is_refused(spark: SparkSession) -> None:
    """What is missing now may still come."""
    stream = spark.readStream.format("rate").load().selectExpr("'t' topic", "0 partition", "value offset")
    with pytest.raises(StreamingError):
        offset_gaps(stream)
