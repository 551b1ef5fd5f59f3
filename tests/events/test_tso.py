"""TSO arithmetic: ``physical_ms << 18 | logical``, as numbers and as Spark columns."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from ticdc_lab.events import tso

milliseconds, counters = st.integers(0, 2**45 - 1), st.integers(0, 2**18 - 1)


@given(milliseconds, counters)
def test_both_parts_of_a_tso_come_back(ms: int, logical: int) -> None:
    """Composing and taking apart are inverse, for every part that fits."""
    ts = tso.compose(ms, logical)
    assert (tso.physical_ms(ts), tso.logical(ts)) == (ms, logical)
    assert ts < 2**63


@given(milliseconds, counters, milliseconds, counters)
def test_tsos_order_by_time_and_then_by_counter(a: int, x: int, b: int, y: int) -> None:
    """A TSO compares as its pair of parts does."""
    assert (tso.compose(a, x) < tso.compose(b, y)) == ((a, x) < (b, y))


def test_a_golden_tso_is_its_utc_time() -> None:
    """A commit_ts of the golden data, whose canal-json message shows es=1795211767471 for it."""
    assert tso.physical_ms(470603993571917826) == 1795211767471
    assert tso.logical(470603993571917826) == 2
    assert tso.to_datetime(470603993571917826) == dt.datetime(2026, 11, 20, 21, 56, 7, 471000, tzinfo=dt.UTC)


def test_columns_say_what_numbers_say(spark: SparkSession) -> None:
    """The Spark expressions agree with Python on the extremes; null stays null."""
    values = [0, 1, tso.compose(1, 2), 470603993571917826, 2**63 - 1, None]
    df = spark.createDataFrame([(v,) for v in values], "ts bigint")
    rows = df.select(tso.physical_ms_col("ts").alias("ms")).collect()
    assert [r["ms"] for r in rows] == [None if v is None else tso.physical_ms(v) for v in values]


@pytest.mark.parametrize(("behind_ms", "seconds"), [(0, 0.0), (1, 0.001), (90_500, 90.5), (-250, -0.25)])
def test_lag_counts_the_physical_part_in_seconds(spark: SparkSession, behind_ms: int, seconds: float) -> None:
    """The logical counter is no time; a TSO ahead of now has a negative lag."""
    now = tso.compose(1_000_000, 7)
    df = spark.createDataFrame([(tso.compose(1_000_000 - behind_ms, 200_000),)], "ts bigint")
    row = df.select(tso.lag_s_col("ts", now_ts=now).alias("lag")).first()
    assert row is not None and row["lag"] == seconds
