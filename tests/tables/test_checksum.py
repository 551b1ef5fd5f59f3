"""TiDB's row checksums: the bytes of each type, and what is reported of a row that does not have its checksum."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest
from conftest import events_frame
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ticdc_lab.codecs import decode
from ticdc_lab.errors import ContractError
from ticdc_lab.tables.checksum_findings import Images, row_checksums, verify_checksums

Column = tuple[str, str, str | None]


def number(value: int) -> bytes:
    """Eight bytes, little-endian."""
    return struct.pack("<Q", value % 2**64)


def real(value: float) -> bytes:
    """The bits of a double."""
    return struct.pack("<d", value)


def text(value: str | bytes) -> bytes:
    """A length in four bytes, and the bytes."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(raw)) + raw


def checksum(*columns: tuple[str, str | None], time_zone: str = "UTC") -> int | None:
    """The checksum of one row."""
    return row_checksums(Images.of([columns]), time_zone=time_zone)[0].as_py()


def test_the_example_of_tidbs_own_tests() -> None:
    """TiDB's TestRowFormatWithChecksums stores 52 78 c9 28 behind the row (1, '123') of (id int, v varchar)."""
    assert checksum(("int", "1"), ("varchar", "123")) == int.from_bytes(bytes.fromhex("5278c928"), "little")


@pytest.mark.parametrize(
    ("mysql_type", "value", "raw"),
    [
        ("tinyint", "-1", number(-1)),
        ("bigint unsigned", str(2**64 - 1), number(2**64 - 1)),
        ("bigint", str(-(2**63)), number(-(2**63))),
        ("year", "0", number(0)),
        ("enum", "2", number(2)),
        ("set('a','b')", "3", number(3)),
        ("bit(10)", "1023", number(1023)),
        ("double", "5e-324", real(5e-324)),
        ("float", "0.1", real(struct.unpack("<f", struct.pack("<f", 0.1))[0])),
        ("float", "3.5e38", real(0.0)),
        ("varchar(9)", "数🙂 ", text("数🙂 ")),
        ("text", "", text("")),
        ("varbinary", "0x00ff41", text(b"\x00\xffA")),
        ("blob", "0x", text(b"")),
        ("decimal(5,2)", "-1.50", text("-1.50")),
        ("date", "0000-00-00", text("0000-00-00")),
        ("datetime(3)", "2020-01-02 03:04:05.600", text("2020-01-02 03:04:05.600")),
        ("timestamp(3)", "2020-01-02 03:04:05.600", text("2020-01-01 19:04:05.600")),
        ("timestamp", "0000-00-00 00:00:00", text("0000-00-00 00:00:00")),
        ("timestamp", "2020-02-30 10:00:00", text("2020-02-30 10:00:00")),
        ("timestamp", "2020-02-20 25:00:00", text("2020-02-20 25:00:00")),
        ("time", "-838:59:59", text("-838:59:59")),
        ("json", '{"a": 1}', text('{"a": 1}')),
        ("json", None, b""),
    ],
)
def test_a_column_enters_by_its_type(mysql_type: str, value: str | None, raw: bytes) -> None:
    """Each type has its bytes, between columns that would notice a shift; timestamps of Shanghai are turned to UTC."""
    found = checksum(("int", "7"), (mysql_type, value), ("int", "9"), time_zone="Asia/Shanghai")
    assert found == zlib.crc32(number(7) + raw + number(9))


@pytest.mark.parametrize(
    ("mysql_type", "value"),
    [("enum", "gold"), ("vector", "[1]"), ("bigint", str(2**64)), ("bigint", str(-(2**63) - 1)), ("blob", "0xf"),
     ("double", "x"), (None, "1")],
)  # fmt: skip
def test_what_has_no_bytes_gives_no_checksum(mysql_type: str | None, value: str) -> None:
    """An unknown type or a text that is none of its type leaves the row without a number, and only that row."""
    rows = [[("int", "1")], [("int", "1"), (mysql_type, value)], [("int", "1")], []]
    one = zlib.crc32(number(1))
    assert row_checksums(Images.of(rows)).to_pylist() == [one, None, one, 0]


def image(*columns: Column) -> list[dict[str, Any]]:
    """An image; its first column is the key."""
    return [
        {"name": n, "mysql_type": t, "value": v, "is_key": i == 0, "flags": None} for i, (n, t, v) in enumerate(columns)
    ]


def crc(*raw: bytes) -> int:
    """The checksum of a row from its bytes."""
    return zlib.crc32(b"".join(raw))


ID = ("id", "int", "1")
ONE = number(1)
CASES: list[tuple[str, list[Column], list[Column] | None, int, str | None, str]] = [
    ("right", [ID, ("v", "varchar(5)", "a")], None, crc(ONE, text("a")), None, ""),
    ("spaces", [ID, ("v", "varchar(5)", "a ")], None, crc(ONE, text("a")), "v", "without trailing spaces"),
    ("zeros", [ID, ("b", "binary(3)", "0x410000")], None, crc(ONE, text(b"A")), "b", "without trailing zeros"),
    ("float", [ID, ("f", "float", "0.1")], None, crc(ONE, real(0.1)), "f", "as a double"),
    ("decimal", [ID, ("d", "decimal(5,2)", "1.50")], None, crc(ONE, text("1.5")), "d", "decimal without"),
    ("null", [ID, ("v", "text", "")], None, crc(ONE), "v", "NULL in the column"),
    ("empty", [ID, ("v", "text", None)], None, crc(ONE, text("")), "v", "empty text"),
    ("zone", [ID, ("t", "timestamp", "2020-01-02 03:00:00")], None,
     crc(ONE, text("2020-01-01 19:00:00")), "t", "GMT-8"),
    ("old", [ID, ("v", "int", "5"), ("w", "int", "6")], [ID, ("v", "int", "4"), ("w", "int", "6")],
     crc(ONE, number(4), number(6)), "v", "in the other image"),
    ("two", [ID, ("v", "int", "5"), ("w", "int", "6")], None,
     crc(ONE, number(8), number(9)), None, "not match the values"),
    ("unknown", [ID, ("v", "vector", "[1]")], None, 5, None, "cannot be computed"),
]  # fmt: skip


def test_findings_name_the_column_that_differs(spark: SparkSession) -> None:
    """A right row gives nothing; a planted fault gives one finding, with the column where one change explains it."""
    events = [
        {"kind": "row", "op": "insert" if before is None else "update", "commit_ts": 10 + n, "schema_name": "s",
         "table_name": name, "columns": image(*after), "before": None if before is None else image(*before),
         "topic": "x", "partition": 0, "offset": n, "seq": 0}
        for n, (name, after, before, *_) in enumerate(CASES)
    ]  # fmt: skip
    stated = F.create_map(*[F.lit(v) for n, case in enumerate(CASES) for v in (n, case[3])])
    frame = events_frame(spark, events).withColumn("checksum", stated[F.col("offset").cast("int")].cast("bigint"))
    found = {f["offset"]: f for f in frame.transform(verify_checksums).collect()}
    assert sorted(found) == list(range(1, len(CASES)))
    assert frame.where("offset = 0").transform(verify_checksums).collect() == []
    for n, (name, _, _, expected, column, message) in enumerate(CASES[1:], 1):
        f = found[n]
        assert (f["table"], f["key"], f["commit_ts"], f["expected"]) == (f"s.{name}", "id=1", 10 + n, expected)
        assert f["severity"] == ("warning" if name == "unknown" else "error")
        assert f["column"] == column, name
        assert message in f["message"], name
        assert [(e["partition"], e["offset"], e["commit_ts"]) for e in f["evidence"]] == [(0, n, 10 + n)]


def test_old_images_have_their_own_checksum(spark: SparkSession) -> None:
    """checksum_before is the one of ``before``; an old image with only the changed columns cannot be checked."""
    row = {"kind": "row", "op": "update", "commit_ts": 5, "schema_name": "s", "table_name": "t", "topic": "x",
           "partition": 0, "seq": 0, "columns": image(ID, ("v", "int", "5"))}  # fmt: skip
    olds = [image(ID, ("v", "int", "4")), image(ID, ("v", "int", "3")), image(("v", "int", "4"))]
    events = events_frame(spark, [{**row, "offset": n, "before": old} for n, old in enumerate(olds)])
    frame = events.withColumn("checksum_before", F.lit(crc(ONE, number(4))))
    found = {f["offset"]: f for f in frame.transform(verify_checksums).collect()}
    assert {n: (f["severity"], f["image"]) for n, f in found.items()} == {
        1: ("error", "before"),
        2: ("warning", "before"),
    }
    with pytest.raises(ContractError, match="neither checksum nor checksum_before"):
        verify_checksums(events)


def test_checksums_travel_from_the_message_to_the_finding(spark: SparkSession) -> None:
    """A row of the simple protocol whose checksum is TiDB's own is silent; the same with another value is found."""
    column = {"nullable": False, "default": None}
    table = {
        "schema": "s", "table": "t", "tableID": 1, "version": 7,
        "columns": [
            column | {"name": "id", "dataType": {"mysqlType": "int", "length": 11}},
            column | {"name": "v", "dataType": {"mysqlType": "varchar", "length": 9}},
        ],
        "indexes": [{"name": "PRIMARY", "unique": True, "primary": True, "nullable": False, "columns": ["id"]}],
    }  # fmt: skip
    stated = {"version": 1, "corrupted": False, "current": 0x28C97852, "previous": 0}
    row = {"type": "INSERT", "database": "s", "table": "t", "tableID": 1, "commitTs": 9, "schemaVersion": 7}
    messages = [{"type": "BOOTSTRAP", "tableSchema": table}]
    messages += [row | {"checksum": stated, "data": {"id": "1", "v": v}} for v in ("123", "124")]
    values = [("t", 0, i, None, json.dumps(m).encode()) for i, m in enumerate(messages)]
    frame = spark.createDataFrame(values, "topic string, partition int, offset bigint, key binary, value binary")
    found = frame.coalesce(1).transform(decode, protocol="simple").transform(verify_checksums).collect()
    assert [(f["offset"], f["severity"], f["expected"]) for f in found] == [(2, "error", 0x28C97852)]
