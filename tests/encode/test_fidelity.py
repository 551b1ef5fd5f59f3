"""The fidelity matrix is measured: what is planted as lost is counted as lost, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from conftest import computed, golden
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.encode.fidelity import ASPECTS, _shown, fidelity
from ticdc_lab.errors import StreamingError
from ticdc_lab.sources.load import load

Counts = dict[str, tuple[int, int]]
NOT_CARRIED = {"start_ts", "table id"}


@pytest.fixture(scope="module")
def reference(spark: SparkSession) -> DataFrame:
    """A part of the golden canal-json log: two tables, all kinds of values."""
    events = load(spark, str(golden("messages_canal-json-tidb_small.jsonl.gz"))).events
    return computed(events.where("table_name IN ('orders', 'Ledger') OR kind = 'watermark'"))


def measured(events: DataFrame, reference: DataFrame) -> Counts:
    """Kept and of, by aspect."""
    return {r["aspect"]: (r["kept"], r["of"]) for r in fidelity(events, reference=reference).collect()}


def lost(events: DataFrame, reference: DataFrame) -> set[str]:
    """Aspects that are lost in part, except for what canal-json itself does not carry."""
    return {name for name, (kept, of) in measured(events, reference).items() if kept < of} - NOT_CARRIED


@pytest.fixture(scope="module")
def itself(reference: DataFrame) -> Counts:
    """The reference measured beside itself."""
    return measured(reference, reference)


def test_a_log_beside_itself_loses_nothing(itself: Counts) -> None:
    """Every case of the reference is found again, and canal-json has neither start_ts nor table id."""
    assert {name for name, (kept, of) in itself.items() if kept < of} == NOT_CARRIED
    assert itself.keys() <= ASPECTS.keys() and {"unsigned", "binary", "NULL", "DDL", "watermarks"} <= itself.keys()
    assert itself["row changes"][1] > 500


def test_a_delivery_twice_is_one_row(reference: DataFrame, itself: Counts) -> None:
    """What was delivered again later is no loss and no gain."""
    again = reference.unionByName(reference.withColumn("offset", F.col("offset") + 1_000_000))
    assert measured(again, reference) == itself


def changed(change: Callable[[Any], Any], field: str = "value") -> Any:
    """Column ``columns`` with ``field`` of each column changed."""
    return F.transform("columns", lambda c: c.withField(field, change(c)))


def large(c: Any) -> Any:
    """Whether a column is a 64-bit number that a signed one cannot hold."""
    return (c["mysql_type"] == "bigint unsigned") & (F.length(c["value"]) == 20)


VALUES = {
    "NULL": lambda c: F.coalesce(c["value"], F.lit("0")),
    "binary": lambda c: F.regexp_replace(c["value"], "^0x", ""),
    "unsigned": lambda c: F.when(large(c), F.lit("-1")).otherwise(c["value"]),
}
PLANTED: dict[str, Callable[[DataFrame], DataFrame]] = {
    "row changes": lambda e: e.where("NOT (kind = 'row' AND offset % 97 = 3)"),
    "watermarks": lambda e: e.where("kind != 'watermark' OR commit_ts % 2 = 1"),
    "DDL": lambda e: e.where("kind != 'ddl' OR offset > 3"),
    "old value of updates": lambda e: e.withColumn("before", F.expr("IF(op = 'update', NULL, before)")),
    "insert or update": lambda e: e.withColumn("op", F.expr("IF(op = 'update', 'insert', op)")),
    "commit_ts of deletes": lambda e: e.withColumn("commit_ts", F.expr("IF(op = 'delete', NULL, commit_ts)")),
    "column types": lambda e: e.withColumn("columns", changed(lambda c: F.lit("x"), "mysql_type")),
}


def test_an_empty_and_a_long_value_are_seen_in_an_example(reference: DataFrame) -> None:
    """`0 -> ` shows nothing; a value that is cut ends in `…`."""
    for other, ends in (("", " -> ''"), ("9" * 61, " -> " + "9" * 60 + "…")):
        events = reference.withColumn("columns", changed(lambda c, other=other: F.lit(other)))
        examples = {r["aspect"]: r["example"] for r in fidelity(events, reference=reference).collect()}
        assert examples["integers"].endswith(ends)


def test_long_values_are_shown_where_they_differ() -> None:
    """Both begin alike for longer than is shown, or one of them ends there; others are as they were."""
    want, got = pa.array(["x" * 99 + "A", "y" * 70, "1", None]), pa.array(["x" * 99 + "B", "y" * 69, "2", "z" * 99])
    assert _shown(want, got).to_pylist() == [
        "from character 100: …xxxxxxxxxxA -> …xxxxxxxxxxB", "from character 70: …yyyyyyyyyyy -> …yyyyyyyyyy",
        "1 -> 2", f"NULL -> {'z' * 60}…",
    ]  # fmt: skip


@pytest.mark.parametrize("half", [0, 1])
def test_planted_losses_are_seen_and_no_other(reference: DataFrame, half: int) -> None:
    """A log that lost some things loses exactly these aspects; but rows that are gone move others up."""
    names = list(PLANTED)[half::2]
    events, values = reference, list(VALUES)[half::2]
    for name in values:
        events = events.withColumn("columns", changed(VALUES[name]))
    for name in names:
        events = events.transform(PLANTED[name])
    assert lost(events, reference) - {"row order"} == {*names, *values}


def test_without_commit_ts_rows_are_still_paired(reference: DataFrame) -> None:
    """A log without any commit_ts keeps its rows and values; only the times, DDL and watermarks are lost."""
    bare = reference.where("kind = 'row'").withColumn("commit_ts", F.lit(None).cast("bigint"))
    times = {"commit_ts of inserts and updates", "commit_ts of deletes", "DDL", "watermarks"}
    assert lost(bare, reference) == times


def test_a_stream_is_refused(spark: SparkSession, reference: DataFrame) -> None:
    """What is missing can be known only when everything was read."""
    stream = spark.readStream.format("rate").load().select(F.lit("row").alias("kind"))
    for name in reference.columns:
        if name != "kind":
            stream = stream.withColumn(name, F.lit(None))
    with pytest.raises(StreamingError, match="at the end only"):
        fidelity(stream, reference=reference)
