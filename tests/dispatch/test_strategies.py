"""Edges of the strategies that the vectors do not reach."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import events_frame
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from reference_decoder import mysql_float

from ticdc_lab.answers.dispatching import _require_any
from ticdc_lab.dispatch import STRATEGIES, check_strategy, dispatch
from ticdc_lab.engine.columns import expanded_float
from ticdc_lab.errors import ContractError, DispatchError
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import ColumnDef, IndexDef, TableDef

T = zlib.crc32(b"st")


def column(
    name: str, mysql_type: str, value: str | None, *, key: bool = False, flags: int | None = None
) -> dict[str, Any]:
    """One column of an image."""
    return {"name": name, "mysql_type": mysql_type, "value": value, "is_key": key, "flags": flags}


def insert(*columns: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An insert into ``s.t``."""
    row = {
        "kind": "row",
        "op": "insert",
        "schema_name": "s",
        "table_name": "t",
        "commit_ts": 5,
        "columns": list(columns),
    }
    return row | more


def one(events: DataFrame, **arguments: Any) -> tuple[int | None, str | None, str | None]:
    """Partition, key and error of the only event."""
    (row,) = events.transform(dispatch, **arguments).collect()
    return row["target_partition"], row["dispatch_key"], row["dispatch_error"]


def crc(*columns: bytes) -> int:
    """The hash of the table and columns, plainly."""
    h = T
    for c in columns:
        h ^= zlib.crc32(c)
    return h


@pytest.mark.parametrize("keys", [0, 1, 2, 3, 5, 16])
@pytest.mark.parametrize("flavour", ["new", "classic"])
def test_any_number_of_key_columns_enters_the_hash(spark: SparkSession, keys: int, flavour: str) -> None:
    """Narrow keys take the compiled way, wide ones the lambda; both are the plain XOR, wherever the columns stand."""
    columns = [column(f"c{n}", "int", str(n), key=n % 2 == 1 and n < 2 * keys) for n in range(33)]
    hashed = [f"c{n}{n}".encode() for n in range(33) if n % 2 == 1 and n < 2 * keys]
    events = events_frame(spark, [insert(*columns)])
    assert one(events, strategy="index-value", partitions=2**31 - 1, flavour=flavour)[1] == str(crc(*hashed))


@pytest.mark.parametrize(
    ("mysql_type", "value", "hashed"),
    [
        ("varbinary(16)", "0x00ff", b"\x00\xff"),
        ("blob", "0x", b""),
        ("varchar(16)", "0x00ff", b"0x00ff"),
        ("double", "5e-324", b"0." + b"0" * 323 + b"5"),
        ("double", "1.7976931348623157e308", b"17976931348623157" + b"0" * 292),
        ("float", "-1.5e20", b"-150000000000000000000"),
        ("float(10,2)", "10.10", b"10.1"),
        ("double", "1.2345678901234567e15", b"1234567890123456.7"),
        ("decimal(20,4)", "10.1000", b"10.1000"),
        ("enum('1','b')", "2", b"2"),
        ("varchar(3)", "表", "表".encode()),
    ],
)
def test_value_bytes(spark: SparkSession, mysql_type: str, value: str, hashed: bytes) -> None:
    """The bytes that TiCDC hashes are recovered from the canonical text."""
    events = events_frame(spark, [insert(column("c", mysql_type, value, key=True))])
    assert one(events, strategy="index-value", partitions=1)[1] == str(crc(b"c" + hashed))


def test_null_is_skipped_by_the_new_and_hashed_by_the_classic_architecture(spark: SparkSession) -> None:
    """A NULL leaves the new hash alone and collides with the text null in the classic one."""
    events = events_frame(spark, [insert(column("c", "varchar", None))])
    by = {f: one(events, strategy="columns", columns=["C"], partitions=1, flavour=f)[1] for f in ("new", "classic")}
    assert by == {"new": str(T), "classic": str(crc(b"cnull"))}


def test_a_label_is_hashed_by_its_number_or_not_at_all(spark: SparkSession) -> None:
    """An ENUM's label has its number in the type; where the type has no members the partition is unknown, not wrong."""
    known, unknown = (
        one(events_frame(spark, [insert(column("e", t, "b", key=True))]), strategy="index-value", partitions=4)
        for t in ("enum('a','b')", "enum")
    )
    assert known[1] == str(crc(b"e2"))
    assert unknown[:2] == (None, None)
    assert "label" in str(unknown[2])


@pytest.fixture(scope="module")
def float_texts(spark: SparkSession) -> Any:
    """Expand texts in one job."""

    def expand(texts: list[str]) -> list[str]:
        frame = spark.createDataFrame([(n, t) for n, t in enumerate(texts)], "n int, t string")
        return [r.e for r in frame.select("n", expanded_float(F.col("t")).alias("e")).orderBy("n").collect()]

    return expand


@settings(max_examples=5, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=50, max_size=200))
def test_floats_expand_to_the_shortest_decimal(float_texts: Any, values: list[float]) -> None:
    """Every double's MySQL text expands to a decimal without exponent that is the same double, digit for digit."""
    values += [struct.unpack("d", struct.pack("Q", n << 52))[0] for n in range(1, 2047, 97)]
    for value, text in zip(values, float_texts([mysql_float(repr(v)) for v in values]), strict=True):
        assert "e" not in text.lower()
        assert float(text) == value
        digits = repr(value).lower().partition("e")[0].replace(".", "").lstrip("-").strip("0")
        assert text.replace(".", "").lstrip("-").strip("0") == digits


def test_unsigned_commit_ts(spark: SparkSession) -> None:
    """A commit_ts above 2^63 is read as unsigned."""
    events = events_frame(spark, [insert(commit_ts=-3)])
    assert one(events, strategy="ts", partitions=7) == ((2**64 - 3) % 7, str(2**64 - 3), None)


def test_ts_needs_a_commit_ts(spark: SparkSession) -> None:
    """Without commit_ts a row has no partition by ts, and without the column nothing starts."""
    events = events_frame(spark, [insert(commit_ts=None)])
    partition, _, error = one(events, strategy="ts", partitions=4)
    assert partition is None
    assert "no commit_ts" in str(error)
    with pytest.raises(ContractError, match="commit_ts"):
        dispatch(events.drop("commit_ts"), strategy="ts", partitions=4)


@pytest.mark.parametrize(
    ("columns", "partition", "key"),
    [
        ([column("id", "bigint", "-3", key=True, flags=11)], (2**64 - 3) % 7, str(2**64 - 3)),
        ([column("id", "bigint unsigned", "18446744073709551615", key=True)], (2**64 - 1) % 7, str(2**64 - 1)),
        ([column("id", "int", "3", key=True, flags=3)], None, None),
        ([column("id", "varchar", "3", key=True)], None, None),
        ([column("a", "int", "3", key=True), column("b", "int", "3", key=True)], None, None),
        ([column("a", "int", "3")], None, None),
    ],
)
def test_tidb_rowid_is_the_single_integer_primary_key(
    spark: SparkSession, columns: list[dict[str, Any]], partition: int | None, key: str | None
) -> None:
    """The historical strategy is computed as unsigned 64 bits where the key is the row id, and refused elsewhere."""
    found = one(events_frame(spark, [insert(*columns)]), strategy="tidb-rowid", partitions=7)
    assert found[:2] == (partition, key)
    assert (found[2] is None) == (partition is not None)


def test_tidb_rowid_believes_the_catalog(spark: SparkSession) -> None:
    """A non-clustered integer primary key is not the row id."""
    table = TableDef("s", "t", (ColumnDef("id", "int", False),), (IndexDef(1, "PRIMARY", ("id",), True, True),))
    events = events_frame(spark, [insert(column("id", "int", "3", key=True, flags=11))])
    found = one(events, strategy="tidb-rowid", partitions=4, catalog=Catalog.from_definitions([table]))
    assert "no protocol carries _tidb_rowid" in str(found[2])


def test_an_index_is_the_one_of_its_time(spark: SparkSession) -> None:
    """The index is looked up as it was at the event's commit_ts; before that, and without commit_ts, it is unknown."""
    catalog = Catalog.from_ddl(
        [
            (10, "s", "t", "CREATE TABLE t (a INT, b INT, KEY k (a))"),
            (20, "s", "t", "ALTER TABLE t DROP INDEX k, ADD INDEX k (b)"),
        ]
    )
    image = [column("a", "int", "1"), column("b", "int", "2")]
    rows = [insert(*image, commit_ts=ts, offset=n) for n, ts in enumerate([9, 10, 19, 20, None])]
    found = (
        events_frame(spark, rows)
        .transform(dispatch, strategy="index-value", index="K", partitions=4, catalog=catalog)
        .orderBy("offset")
        .collect()
    )
    by_a, by_b = str(crc(b"a1")), str(crc(b"b2"))
    assert [r["dispatch_key"] for r in found] == [None, by_a, by_a, by_b, None]
    assert "does not know the indexes of s.t" in found[0]["dispatch_error"]


def test_other_events_have_no_partition(spark: SparkSession) -> None:
    """Watermarks and DDL are not dispatched, by any strategy."""
    events = events_frame(spark, [{"kind": "watermark", "commit_ts": 4}, {"kind": "ddl", "commit_ts": 5, "query": "x"}])
    for strategy in STRATEGIES:
        rows = events.transform(dispatch, strategy=strategy, partitions=4, columns=["a"]).collect()
        assert {(r["target_partition"], r["dispatch_key"], r["dispatch_error"]) for r in rows} == {(None, None, None)}


def test_rule_names_are_those_of_ticdc(spark: SparkSession) -> None:
    """A name counts in any case; an unknown one means table, as in TiCDC, and the strict check shows."""
    events = events_frame(spark, [insert()])
    assert one(events, strategy="TS", partitions=4)[1] == "5"
    assert one(events, strategy="hash", partitions=4) == (T % 4, "s.t", None)
    check_strategy("Index-Value")
    with pytest.raises(DispatchError, match="hash"):
        check_strategy("hash")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strategy": "table", "partitions": 0}, "partitions"),
        ({"strategy": "columns", "partitions": 4}, "no columns"),
        ({"strategy": "columns", "partitions": 4, "columns": "ab"}, "list of names"),
        ({"strategy": "index-value", "partitions": 4, "index": "k"}, "table definitions"),
        ({"strategy": "table", "partitions": 4, "flavour": "old"}, "flavour"),
    ],
)
def test_impossible_rules_are_refused_before_a_job(
    spark: SparkSession, arguments: dict[str, Any], message: str
) -> None:
    """What no row could satisfy is an error with the reason, not a frame of nulls."""
    with pytest.raises(DispatchError, match=message):
        dispatch(events_frame(spark, []), **arguments)


def test_streams_are_dispatched(classic: SparkSession, tmp_path: Path) -> None:
    """The same transform works on a stream, with a catalog too."""
    events = events_frame(classic, [insert(column("a", "int", "1"), topic="x")])
    events.write.parquet(str(tmp_path / "in"))
    catalog = Catalog.from_ddl([(1, "s", "t", "CREATE TABLE t (a INT, KEY k (a))")])
    stream = classic.readStream.schema(events.schema).parquet(str(tmp_path / "in"))
    out = stream.transform(dispatch, strategy="index-value", index="k", partitions=4, catalog=catalog)
    query = out.writeStream.format("memory").queryName("dispatched").trigger(availableNow=True).start()
    query.awaitTermination()
    assert [r["dispatch_key"] for r in classic.table("dispatched").collect()] == [str(crc(b"a1"))]


def test_the_images_are_not_read_by_table_and_ts(classic: SparkSession, tmp_path: Path) -> None:
    """A scan for table or ts reads only the columns it needs."""
    events_frame(classic, [insert(column("a", "int", "1"))]).write.parquet(str(tmp_path / "in"))
    for strategy in ("table", "ts"):
        events = classic.read.parquet(str(tmp_path / "in"))
        plan = events.transform(dispatch, strategy=strategy, partitions=4).select("target_partition")
        scan = plan._jdf.queryExecution().executedPlan().toString()
        assert "ReadSchema" in scan
        assert "mysql_type" not in scan


def test_of_rows_that_all_go_nowhere_the_least_error_is_quoted() -> None:
    """So that it is the same each time; where one row has a place, or there is none, nothing is refused."""
    with pytest.raises(DispatchError, match=r"by the columns x, y: a\."):
        _require_any(pd.DataFrame({"dispatch_error": ["b", "a", "c"]}), ["x", "y"])
    _require_any(pd.DataFrame({"dispatch_error": ["b", None]}), ["x"])
    _require_any(pd.DataFrame({"dispatch_error": []}), ["x"])
