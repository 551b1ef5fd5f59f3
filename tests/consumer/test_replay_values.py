"""Texts as MySQL prints them become DuckDB's values. No Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import duckdb
import pytest

from ticdc_lab.consumer.sinks.duckdb import column_type, value


@pytest.mark.parametrize(
    ("text", "mysql_type", "expected"),
    [
        ("18446744073709551615", "bigint(20) unsigned", 2**64 - 1),
        ("-128", "tinyint(1)", -128),
        ("255", "tinyint unsigned", 255),
        ("-123456789012345678901234567.123456", "decimal(38,6)", Decimal("-123456789012345678901234567.123456")),
        ("9" * 60, "decimal(65,0)", "9" * 60),
        ("3.4028235e38", "float", 3.4028234663852886e38),
        ("5e-324", "double", 5e-324),
        ("18446744073709551615", "bit(64)", 2**64 - 1),
        ("2155", "year", 2155),
        ("9999-12-31", "date", dt.date(9999, 12, 31)),
        ("2020-02-30", "date", None),
        ("0000-00-00", "date", None),
        ("2026-11-20 01:02:03.123456", "datetime(6)", dt.datetime(2026, 11, 20, 1, 2, 3, 123456)),
        ("0000-00-00 00:00:00", "timestamp", None),
        ("-838:59:59.5", "time(1)", "-838:59:59.5"),
        ("2", "enum('a','b,c','it''s')", "b,c"),
        ("0", "enum('a','b')", ""),
        ("5", "set('a','b','c')", "a,c"),
        ("0", "set('a','b','c')", ""),
        ("9223372036854775808", f"set({','.join(repr(f'e{i}') for i in range(64))})", "e63"),
        ("a", "enum('a','b')", "a"),
        ("0x00ff27", "varbinary(9)", b"\x00\xff'"),
        ("0x", "blob", b""),
        ('{"a": [1, "数"]}', "json", '{"a": [1, "数"]}'),
        ("it's", "text", "it's"),
        (None, "set('a')", None),
    ],
)
def test_a_text_becomes_its_value(text: str | None, mysql_type: str, expected: object) -> None:
    """Unsigned, wide, labelled, longer than a day, binary, zero."""
    sql = (
        f"SELECT CAST({value('x', mysql_type, numbered=True)} AS {column_type(mysql_type)}) FROM (SELECT ?::VARCHAR x)"
    )
    found = duckdb.execute(sql, [text]).fetchall()[0][0]
    assert found == expected
    assert found is not None or text is None or mysql_type in ("date", "timestamp")


def test_labels_are_left_alone_where_a_protocol_carries_them() -> None:
    """A label may be a number."""
    sql = value("x", "enum('2','1')", numbered=False)
    assert duckdb.execute(f"SELECT {sql} FROM (SELECT '2' AS x)").fetchall() == [("2",)]
