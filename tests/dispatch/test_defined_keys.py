"""Rows whose messages name no handle key are hashed by the one that the log's DDL gives, or refused."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest
from conftest import events_frame
from pyspark.sql import SparkSession

from ticdc_lab.answers.dispatching import catalog_of
from ticdc_lab.dispatch import dispatch
from ticdc_lab.dispatch.numbering import UNNAMED
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.log import open as open_log

TORTURE = Path(__file__).parents[1] / "data/torture/messages_canal-json-tidb.jsonl.gz"
DEFINED = "create table t (a int not null, b int not null, c int not null, d int, unique ab (a, b), unique uc (c))"
KEYLESS = "create table t (a int, b int, c int, d int, unique ud (d))"


def placed(
    spark: SparkSession, protocol: str, ddl: str | None, *, without: str = "", **more: Any
) -> tuple[str | None, str | None]:  # fmt: skip
    """Dispatch key and error of a row ``a=1, b=2, c=3`` that names no key, or that row ``without`` a column."""
    columns = [
        {"name": n, "mysql_type": "int", "value": v, "is_key": False, "flags": None}
        for n, v in zip("abcd", ("1", "2", "3", None), strict=True)
        if n != without
    ]
    event = {
        "kind": "row", "op": "insert", "schema_name": "s", "table_name": "t", "commit_ts": 9, "columns": columns,
        "protocol": protocol, "partition": 0, "offset": 0, "seq": 0, "topic": "x",
    }  # fmt: skip
    catalog = None if ddl is None else Catalog.from_ddl([(1, "s", "t", ddl)])
    events = events_frame(spark, [event])
    [row] = events.transform(dispatch, strategy="index-value", partitions=8, catalog=catalog, **more).collect()
    return row["dispatch_key"], row["dispatch_error"]


@pytest.mark.parametrize("flavour", ["new", "classic"])
@pytest.mark.parametrize(
    ("protocol", "ddl", "hashed"),
    [
        ("canal-json", DEFINED, (b"c3",)),  # the not-null unique index with the fewest columns
        ("avro", DEFINED, (b"c3",)),
        ("canal-json", KEYLESS, ()),  # none: the table's hash
        ("open-protocol", DEFINED, ()),  # which names each handle key: this row has none
        ("open-protocol", None, ()),
    ],
)
def test_the_definition_names_the_key(
    spark: SparkSession, protocol: str, ddl: str | None, hashed: tuple[bytes, ...], flavour: str
) -> None:
    """In both architectures."""
    crc = zlib.crc32(b"st")
    for part in hashed:
        crc ^= zlib.crc32(part)
    assert placed(spark, protocol, ddl, flavour=flavour) == (str(crc), None)


@pytest.mark.parametrize("ddl", [None, "create table other (a int not null unique)"])
def test_without_a_definition_the_answer_is_refused(spark: SparkSession, ddl: str | None) -> None:
    """The table's hash would be a guess."""
    assert placed(spark, "canal-json", ddl) == (None, UNNAMED)


def test_a_row_that_lacks_the_column_of_its_key_says_so(spark: SparkSession) -> None:
    """The log has the definition, so to record from its CREATE TABLE on would not help."""
    key, error = placed(spark, "canal-json", DEFINED, without="c")
    assert key is None and error == "the log carries only part of this row, without all of the dispatch columns: c"


def test_foreign_keys_make_an_index() -> None:
    """Under the constraint's name, or TiDB's own; none where another index serves."""
    ddl = (
        "create table t (id int primary key, p int, q int, constraint fkx foreign key (p) references r (id), "
        "foreign key (q) references r (id), foreign key (id) references z (id), key kk (p, q))"
    )
    more = "alter table u add constraint foreign key xx (b) references r (id)"
    catalog = Catalog.from_ddl([(1, "s", "t", ddl), (2, "s", "u", "create table u (b int)"), (3, "s", "u", more)])
    found = {t.table_name: {i.name: i.columns for i in t.indexes} for t in catalog.tables()}
    assert found == {"t": {"PRIMARY": ("id",), "kk": ("p", "q"), "fk_1": ("q",)}, "u": {"xx": ("b",)}}


def test_real_rows_lie_where_the_real_dispatcher_puts_them(spark: SparkSession) -> None:
    """Of the table of several not-null unique keys."""
    import gzip
    import json

    with gzip.open(TORTURE.with_name("dispatch_torture.jsonl.gz"), "rt") as lines:
        real = [r for r in map(json.loads, lines) if r["table"] == "k_uq"]
    wanted = {(r["commit_ts"], r["op"]): set[int]() for r in real}
    for r in real:
        wanted[r["commit_ts"], r["op"]].add(r["dispatch"]["index-value"]["p"][4])
    log = open_log(str(TORTURE), spark=spark)
    rows = log.events.where("kind = 'row' AND table_name = 'k_uq'")
    found = rows.transform(dispatch, strategy="index-value", partitions=16, catalog=catalog_of(log)).collect()
    assert len(found) >= len(real) > 0
    assert all(r["target_partition"] in wanted[r["commit_ts"], r["op"]] for r in found)
