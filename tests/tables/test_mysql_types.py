"""Texts that MySQL prints as typed values, and what fits no type."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ticdc_lab.tables.mysql_types import common, converted, moved, parsed, typed

D = decimal.Decimal
FITS: list[tuple[str, str | None, Any]] = [
    ("tinyint(1)", "-128", -128),
    ("smallint(5) unsigned", "65535", 65535),
    ("mediumint unsigned", "16777215", 16777215),
    ("int unsigned", "4294967295", 4294967295),
    ("bigint(20)", str(-(2**63)), -(2**63)),
    ("bigint(20) unsigned", str(2**64 - 1), D(2**64 - 1)),
    ("decimal(38,30)", "-1.000000000000000000000000000001", D("-1.000000000000000000000000000001")),
    ("decimal(65,30)", "1" * 35 + "." + "2" * 30, "1" * 35 + "." + "2" * 30),
    ("numeric(5)", "12345", D(12345)),
    ("float", "1.5", 1.5),
    ("double", "5e-324", 5e-324),
    ("bit(63)", str(2**63 - 1), 2**63 - 1),
    ("bit(64)", str(2**64 - 1), D(2**64 - 1)),
    ("year", "0", 0),
    ("date", "9999-12-31", dt.date(9999, 12, 31)),
    ("datetime(6)", "2020-02-29 23:59:59.000001", dt.datetime(2020, 2, 29, 23, 59, 59, 1)),
    ("timestamp", "1970-01-01 08:00:01", dt.datetime(1970, 1, 1, 8, 0, 1)),
    ("time(3)", "-838:59:59.000", "-838:59:59.000"),
    ("enum('a','it''s','c,d')", "2", "it's"),
    ("enum('a','it''s','c,d')", "3", "c,d"),
    ("enum('²','b')", "1", "²"),
    ("enum('a')", "0", ""),
    ("enum('a')", "a", "a"),
    ("enum", "2", "2"),
    ("set('a','b','c')", "5", "a,c"),
    ("set('a','b')", "0", ""),
    ("set('a','b')", "a,b", "a,b"),
    ("set(" + ",".join(f"'s{i}'" for i in range(64)) + ")", str(2**63 + 1), "s0,s63"),
    ("varchar(3)", "", ""),
    ("text", "null", "null"),
    ("varbinary(4)", "0x00ff", b"\x00\xff"),
    ("blob", "0x", b""),
    ("json", '{"a": 1}', '{"a": 1}'),
    ("vector(2)", "[1,2]", "[1,2]"),
    ("int", None, None),
]
DO_NOT = [
    ("tinyint", "128"), ("tinyint unsigned", "32768"), ("bigint", str(2**63)), ("int", "1.5"), ("int", " 1"),
    ("int", ""), ("decimal(3,2)", "1.234"), ("decimal(3,2)", "10.00"), ("decimal(3,2)", "abc"), ("double", "1e400"),
    ("double", "inf"),
    ("float", "NaN"), ("date", "0000-00-00"), ("date", "2021-02-29"), ("date", "2020-01-00"), ("date", "2020-01-01x"),
    ("datetime", "2020-01-01"), ("timestamp", "0000-00-00 00:00:00"), ("time", "noon"), ("enum('a')", "2"),
    ("enum('a')", "b"), ("set('a')", "2"), ("set('a')", "a,b"), ("blob", "00"), ("blob", "0xf"), ("bit(3)", "b'1'"),
]  # fmt: skip


def of_protocol(spark: SparkSession, *columns: Any, protocol: str = "open-protocol") -> Any:
    """One row of expressions over an event of a protocol."""
    return spark.range(1).select(F.lit(protocol).alias("protocol")).select(*columns).collect()[0]


def test_every_type_has_its_value(spark: SparkSession) -> None:
    """A text of the type becomes the value with the type's Spark type and no reason."""
    both = [typed(F.lit(text).cast("string"), parsed(kind)) for kind, text, _ in FITS]
    got = of_protocol(spark, *[v for v, _ in both], *[r for _, r in both])
    for n, (kind, text, wanted) in enumerate(FITS):
        value, reason = got[n], got[len(FITS) + n]
        assert reason is None, (kind, text, reason)
        assert (bytes(value) if isinstance(value, bytearray) else value) == wanted, (kind, text)


@pytest.mark.parametrize("protocol", ["canal-json", "simple", "canal", "csv"])
def test_a_number_stands_for_its_label_wherever_events_have_numbers(spark: SparkSession, protocol: str) -> None:
    """The csv decoder too turns the labels of a file into numbers."""
    both = [typed(F.lit(t), parsed(kind)) for kind, t in (("enum('a','b')", "2"), ("set('a','b')", "3"))]
    got = of_protocol(spark, *[c for pair in both for c in pair], protocol=protocol)
    assert tuple(got) == ("b", None, "a,b", None)


def test_what_does_not_fit_is_null_with_a_reason(spark: SparkSession) -> None:
    """No value is bent to fit: null, and a reason that names the type."""
    both = [typed(F.lit(text), parsed(kind)) for kind, text in DO_NOT]
    got = of_protocol(spark, *[v for v, _ in both], *[r for _, r in both])
    for n, (kind, text) in enumerate(DO_NOT):
        assert got[n] is None, (kind, text, got[n])
        assert f"does not fit {kind}" in (got[len(DO_NOT) + n] or ""), (kind, text)


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [
        ("int", "bigint", "same"), ("varchar(3)", "text", "same"), ("double", "decimal(5,2)", "rounded"),
        ("decimal(9,4)", "decimal(5,2)", "rounded"), ("date", "datetime", "padded"), ("date", "timestamp", "unknown"),
        ("float", "decimal(5,2)", "unknown"), ("float", "double", "unknown"), ("datetime(3)", "datetime", "unknown"),
        ("datetime", "datetime(3)", "same"), ("datetime", "timestamp", "unknown"), ("varchar(9)", "int", "unknown"),
        ("enum('a')", "enum('a','b')", "same"), ("enum('a','b')", "enum('b','a')", "unknown"),
        ("double", "varchar(9)", "unknown"), ("blob", "text", "unknown"), ("json", "json", "same"),
    ],
)  # fmt: skip
def test_what_a_modified_column_makes_of_its_values(source: str, target: str, kind: str) -> None:
    """Only what follows from the types is reported; what depends on sql_mode, collation or time zone is unknown."""
    assert moved(parsed(source), parsed(target)) == kind


def test_a_converted_value_is_rounded_half_up(spark: SparkSession) -> None:
    """As TiDB rounds: 2.345 is 2.35 and -2.345 is -2.35; a date gets midnight; the unknown is null with the reason."""
    moves = [("2.345", "double", "decimal(5,2)"), ("-2.345", "double", "decimal(5,2)"),
             ("2020-01-02", "date", "datetime"), ("7", "varchar(9)", "int")]  # fmt: skip
    both = [converted(F.lit(t), parsed(a), parsed(b)) for t, a, b in moves]
    got = of_protocol(spark, *[v for v, _ in both], both[-1][1])
    assert tuple(got)[:3] == (D("2.35"), D("-2.35"), dt.datetime(2020, 1, 2))
    assert got[3] is None and "was written as varchar(9)" in got[4]


@pytest.mark.parametrize(
    ("types", "spark_type"),
    [
        (["int", "bigint"], "bigint"), (["bigint", "bigint unsigned"], "decimal(20,0)"),
        (["double", "decimal(5,2)"], "string"),
        (["decimal(5,2)", "decimal(9,4)"], "decimal(9,4)"), (["int", "decimal(5,2)"], "decimal(12,2)"),
        (["date", "datetime"], "string"), (["decimal(38,0)", "decimal(38,30)"], "string"),
        (["varchar(2)", "text"], "string"),
    ],
)  # fmt: skip
def test_a_column_of_several_types_loses_nothing(types: list[str], spark_type: str) -> None:
    """In a history a column has one type that holds all its values as they were written."""
    assert common([parsed(t) for t in types]) == spark_type
