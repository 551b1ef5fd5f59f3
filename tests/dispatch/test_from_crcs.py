"""Dispatch from the decoders' crcs: the same verdicts as from the images, on the golden logs of each protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import golden
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from reference_decoder import messages
from stored import rows_of, unpack

from ticdc_lab.catalog import Catalog, ColumnDef, IndexDef, TableDef, catalog_of
from ticdc_lab.codecs import Known, decoder
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.schema_registry import read_schemas
from ticdc_lab.dispatch import dispatch, dispatch_by_rules
from ticdc_lab.dispatch.dispatching import ADDED
from ticdc_lab.dispatch.hashing import with_crcs
from ticdc_lab.dispatch.rules import Rule
from ticdc_lab.errors import ContractError
from ticdc_lab.load import load
from ticdc_lab.schema import COLUMN, DECODED, DISPATCH, MESSAGES

LOGS = {
    "messages_open-protocol_small.jsonl.gz": "open-protocol",
    "messages_open-protocol-deletehk_small.jsonl.gz": "open-protocol",
    "messages_canal-json-tidb_small.jsonl.gz": "canal-json",
    "messages_simple_small.jsonl.gz": "simple",
    "messages_debezium_small.jsonl.gz": "debezium",
    "messages_avro_small.jsonl.gz": "avro",
}
WHERE = ("topic", "partition", "offset", "key", "value")
PLACE = ("source", "topic", "partition", "offset", "seq")
ASKED: dict[str, dict[str, Any]] = {
    "table": {"strategy": "table"},
    "ts": {"strategy": "ts"},
    "key": {"strategy": "index-value"},
    "key, classic": {"strategy": "index-value", "flavour": "classic"},
    "two columns": {"strategy": "columns", "columns": ["USER_ID", "seq"]},
    "two others": {"strategy": "columns", "columns": ["v", "ID"]},
    "a column twice": {"strategy": "columns", "columns": ["id", "ID", "v", "name", "amount", "c1", "x"]},
    "two columns, classic": {"strategy": "columns", "columns": ["id", "name"], "flavour": "classic"},
    "no columns": {"strategy": "columns", "columns": []},
    "row id": {"strategy": "tidb-rowid"},
}


def decoded_by(file: str, protocol: str) -> pa.Table:
    """A golden log's events, without Spark."""
    form = arrow_schema(MESSAGES)
    read = pa.Table.from_pylist(list(messages(golden(file))), pa.schema([form.field(name) for name in WHERE]))
    beside = Known(schemas=read_schemas(str(golden("avro_schemas_small.jsonl.gz"))))
    return pa.Table.from_batches(decoder(protocol, known=beside)(iter(read.to_batches())))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Events of all these logs and of a csv folder as Parquet; ``source`` tells them apart."""
    folder = tmp_path_factory.mktemp("crcs")
    decoded = {file: decoded_by(file, protocol) for file, protocol in LOGS.items()}
    csv = rows_of(unpack(folder) / "small_csv_committs_oldvalue")
    decoded["csv"] = pa.Table.from_pylist(csv, arrow_schema(DECODED))
    for n, (file, table) in enumerate(decoded.items()):
        marked = table.append_column("source", pa.array([file] * len(table), pa.string()))
        pq.write_table(marked, folder / f"{n}.parquet", store_schema=False)
    return [str(folder / f"{n}.parquet") for n in range(len(decoded))]


@pytest.fixture(scope="module")
def events(spark: SparkSession, files: list[str]) -> DataFrame:
    """The same, read once."""
    return spark.read.parquet(*files).coalesce(2).cache()


def other_verdicts(events: DataFrame, by: Any) -> list[Any]:
    """Rows for which dispatch with and without the crcs differs, by source; ``by`` adds the verdict."""
    both = [by(e).select(*PLACE, F.struct(*ADDED).alias(w)) for e, w in ((events, "a"), (images(events), "b"))]
    joined = both[0].join(both[1], on=list(PLACE), how="full")
    other = ~F.col("a").eqNullSafe(F.col("b"))
    grouped = joined.groupBy("source").agg(F.count_if(other).alias("n"), F.first_value("a.dispatch_error", True))
    found = [tuple(row) for row in grouped.collect()]
    assert len(found) == len(LOGS) + 1
    return [row for row in found if row[1]]


def images(events: DataFrame) -> DataFrame:
    """The events as before there were crcs."""
    return events.drop(*DISPATCH.names)


@pytest.mark.parametrize("asked", ASKED)
def test_both_ways_give_the_same_verdicts(events: DataFrame, asked: str) -> None:
    """Partition, key and error of every row of every golden log are the same from the crcs as from the images."""
    assert other_verdicts(events, lambda e: e.transform(dispatch, partitions=16, **ASKED[asked])) == []


@pytest.mark.soak
def test_both_ways_give_the_same_verdicts_with_a_catalog_and_rules(events: DataFrame) -> None:
    """Also by an index that the DDL define, by columns that they know, and by rules that mix all of these."""
    catalog = catalog_of(events.where(F.col("source") == next(iter(LOGS))))
    names = {
        i.name for versions in catalog.versions.values() for v in versions if v.definition for i in v.definition.indexes
    }
    index = sorted(names - {"PRIMARY"})[0]
    for arguments in ({"strategy": "index-value", "index": index}, {"strategy": "columns", "columns": ["id", "v"]}):
        assert (
            other_verdicts(events, lambda e, a=arguments: e.transform(dispatch, partitions=7, catalog=catalog, **a))
            == []
        )
    rules = [
        Rule(("*.*a*",), "index-value", index),
        Rule(("*.*e*",), "columns", columns=("id", "v")),
        Rule(("*.*o*",), "index-value"),
    ]
    for more in ([], [Rule(("*.*i*",), "tidb-rowid")]):
        by = {"rules": [*rules, *more], "partitions": 7, "catalog": catalog}
        assert other_verdicts(events, lambda e, by=by: e.transform(dispatch_by_rules, **by)) == []


@pytest.mark.parametrize("name", ["column_crcs", "key_crc", "layout"])
def test_a_wrong_crc_is_seen(events: DataFrame, name: str) -> None:
    """Other bits in each crc (equal ones cancel), a bit of the key, or a name: only rows of that log go elsewhere."""
    wrong = {
        "column_crcs": F.transform("column_crcs", lambda crc, i: crc.bitwiseXOR((i + 1).cast("bigint"))),
        "key_crc": F.col("key_crc").bitwiseXOR(F.lit(1)),
        "layout": F.replace("layout", F.lit("id"), F.lit("di")),
    }[name]
    planted = events.withColumn(name, F.when(F.col("source") == "csv", wrong).otherwise(F.col(name)))
    asked = ASKED["key" if name == "key_crc" else "two columns"]
    (seen,) = other_verdicts(planted, lambda e: e.transform(dispatch, partitions=16, **asked))
    assert seen[0] == "csv" and seen[1] > 100


def test_the_decoders_and_spark_compute_the_same_columns(events: DataFrame) -> None:
    """:func:`with_crcs` on the images gives what the decoders wrote; bytes of a row it can only estimate."""
    names = [n for n in DISPATCH.names if n != "row_bytes"]
    again = images(events).transform(with_crcs).select(*PLACE, F.struct(*names).alias("b"))
    joined = events.select(*PLACE, F.struct(*names).alias("a"), "kind").join(again, on=list(PLACE))
    other, is_row = ~F.col("a").eqNullSafe(F.col("b")), F.col("kind") == "row"
    assert joined.agg(F.count_if(other), F.count_if(is_row) > 12_000).collect()[0][:] == (0, True)


@pytest.mark.soak
def test_a_log_without_images_is_dispatched_like_one_with(spark: SparkSession, tmp_path: Path) -> None:
    """What is decoded without images at a third of the cost has the same verdicts, by any columns."""
    log = load(spark, str(golden("messages_canal-json-tidb_small.jsonl.gz")))
    narrow = log.materialise(str(tmp_path / "narrow"), images=False).events
    whole = log.materialise(str(tmp_path / "whole")).events.drop(*DISPATCH.names)
    for arguments in (ASKED["key"], ASKED["two columns"]):
        both = [e.transform(dispatch, partitions=16, **arguments).select(*PLACE[1:], *ADDED) for e in (narrow, whole)]
        assert both[0].exceptAll(both[1]).count() == both[1].exceptAll(both[0]).count() == 0


IMAGE = [("a,b", "int", "1", True, None), ("N", "int", None, True, None), ("c", "int", "3", False, None)]
LABEL = [("a", "enum('x')", "x", True, None), ("b", "int", None, False, None)]


@pytest.fixture(scope="module")
def odd(spark: SparkSession) -> DataFrame:
    """Rows with a comma in a name, a NULL in the key, an unknown label, no column, no image; and a watermark."""
    rows = [
        ("row", "insert", IMAGE, None), ("row", "update", IMAGE, IMAGE[:1]), ("row", "delete", None, IMAGE[:2]),
        ("row", "insert", LABEL, None), ("row", "insert", [], None), ("row", "insert", None, None),
        ("row", "insert", IMAGE[2:], None), ("watermark", None, None, None),
    ]  # fmt: skip
    image = f"array<{COLUMN.simpleString()}>"
    made = spark.createDataFrame(
        [("s", "t", 9, n, *row) for n, row in enumerate(rows)],
        f"schema_name string, table_name string, commit_ts bigint, n int, kind string, op string, columns {image}, "
        f"before {image}",
    )
    return made.coalesce(1).cache()


@pytest.mark.parametrize("flavour", ["new", "classic"])
@pytest.mark.parametrize(
    "asked",
    [
        {"strategy": "index-value"},
        {"strategy": "index-value", "index": "four"},
        {"strategy": "index-value", "index": "two"},
        *[
            {"strategy": "columns", "columns": c}
            for c in (["A,B"], ["n", "c"], ["a"], ["a,b", "n", "c", "z", "y"], [""])
        ],
    ],
    ids=str,
)
def test_odd_rows_have_the_same_verdicts(odd: DataFrame, flavour: str, asked: dict[str, Any]) -> None:
    """Commas, NULL, labels and missing images are what the images say they are, in both flavours."""
    columns = tuple(ColumnDef(n, "int", True) for n in ("a,b", "N", "c", "d"))
    indexes = (
        IndexDef(1, "four", ("a,b", "N", "c", "d"), True, False),
        IndexDef(2, "two", ("N", "a,b"), True, False),
    )
    catalog = Catalog.from_definitions([TableDef("s", "t", columns, indexes)])
    arguments = asked | {"partitions": 7, "flavour": flavour} | ({"catalog": catalog} if "index" in asked else {})
    by_images, by_crcs = (
        [tuple(r) for r in frame.transform(dispatch, **arguments).select("n", *ADDED).orderBy("n").collect()]
        for frame in (odd, odd.transform(with_crcs).drop("columns", "before"))
    )
    assert by_images == by_crcs


def test_dispatch_by_crcs_reads_no_image(spark: SparkSession, files: list[str]) -> None:
    """Without the images every plan is the same, which is what makes it fast; only by the row id they are needed."""
    without = spark.read.parquet(*files).drop("columns", "before")

    def needs_images(asked: dict[str, Any]) -> bool:
        try:
            return without.transform(dispatch, partitions=4, **asked).columns != [*without.columns, *ADDED]
        except ContractError:
            return True

    assert [name for name, asked in ASKED.items() if needs_images(asked)] == ["row id"]


def test_an_event_frame_with_neither_is_refused(odd: DataFrame) -> None:
    """Without images and without crcs there is nothing to hash."""
    with pytest.raises(ContractError, match="columns"):
        odd.drop("columns", "before").transform(dispatch, strategy="index-value", partitions=2)
