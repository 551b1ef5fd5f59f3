"""Dispatch reads no image: its hash is the one of the image by its definition, on the golden logs of each protocol."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import golden
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from reference_decoder import messages
from spark_hashes import by_expressions, count_of, dispatched_image, fold, hash_of
from stored import rows_of, unpack

from ticdc_lab.codecs import Known, choice, decoder
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.keys import with_columns
from ticdc_lab.codecs.schema_registry import read_schemas
from ticdc_lab.dispatch import dispatch
from ticdc_lab.dispatch.dispatching import ADDED
from ticdc_lab.engine.columns import computed_once
from ticdc_lab.errors import ContractError
from ticdc_lab.events.schema import COLUMN, DECODED, DISPATCH, IMAGE_HASHES, KEYS, MESSAGES
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import ColumnDef, IndexDef, TableDef
from ticdc_lab.sources.load import load

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
    """Events of all these logs and of a csv folder as Parquet; ``source`` distinguishes them."""
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


def chosen(asked: dict[str, Any], c: Column) -> Column:
    """Whether a column of an image enters the hash."""
    if asked["strategy"] == "index-value":
        return c["is_key"]
    odd = [name for name, n in Counter(n.lower() for n in asked["columns"]).items() if n % 2]
    return F.lower(c["name"]).isin(odd) if odd else F.lit(False)


def wrong_verdicts(events: DataFrame, asked: dict[str, Any]) -> list[Any]:
    """Rows not sent where the hash of their image shows, or that have no error where it has no column; by source."""
    wanted = len({n.lower() for n in asked.get("columns", ())} - {n.lower() for n in twice(asked)})
    image = fold(dispatched_image(), lambda c: chosen(asked, c), flavour=asked.get("flavour", "new"))
    folded = computed_once(events.where("kind = 'row'"), {"folded": image})
    told = folded.drop("protocol").transform(dispatch, partitions=16, **asked)
    whole = F.coalesce(count_of(F.col("folded")) >= wanted, F.lit(False))
    is_right = F.when(
        F.col("dispatch_error").isNull(),
        F.col("target_partition").eqNullSafe((hash_of(F.col("folded")) % 16).cast("int")),
    ).otherwise(~whole | F.lit(bool(twice(asked))))
    grouped = told.where(~is_right).groupBy("source").agg(F.count(F.lit(1)), F.first_value("dispatch_error", True))
    return [tuple(row) for row in grouped.collect()]


def twice(asked: dict[str, Any]) -> list[str]:
    """Columns that are listed twice: an error of theirs comes from the table, not from the hash."""
    return [name for name, n in Counter(n.lower() for n in asked.get("columns", ())).items() if n > 1]


HASHED = [name for name, asked in ASKED.items() if asked["strategy"] in ("index-value", "columns")]


@pytest.mark.parametrize("asked", HASHED)
def test_the_hash_is_that_of_the_image(events: DataFrame, asked: str) -> None:
    """Of every row of every golden log, and a row that has no column has an error."""
    assert wrong_verdicts(events, ASKED[asked]) == []


@pytest.mark.parametrize("name", ["column_crcs", "key_crc", "layout"])
def test_a_wrong_crc_is_seen(events: DataFrame, name: str) -> None:
    """Other bits in each crc (equal ones cancel), a bit of the key, or a name: only rows of that log go elsewhere."""
    wrong = {
        "column_crcs": F.transform("column_crcs", lambda crc, i: crc.bitwiseXOR((i + 1).cast("bigint"))),
        "key_crc": F.col("key_crc").bitwiseXOR(F.lit(1)),
        "layout": F.replace("layout", F.lit("id"), F.lit("di")),
    }[name]
    planted = events.withColumn(name, F.when(F.col("source") == "csv", wrong).otherwise(F.col(name)))
    (seen,) = wrong_verdicts(planted, ASKED["key" if name == "key_crc" else "two columns"])
    assert seen[0] == "csv" and seen[1] > 100


@pytest.mark.parametrize("way", ["expressions", "plain", "compiled"])
def test_what_decoders_wrote_is_what_the_images_say(
    events: DataFrame, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Spark's expressions, and by both ways of :func:`with_hashes`; bytes of a row these can only estimate."""
    forms = (KEYS, IMAGE_HASHES, DISPATCH)
    names = [n for form in forms for n in form.names if n != "row_bytes"]
    bare = events.drop(*names)
    if way == "expressions":
        again = by_expressions(bare)
    else:
        table = bare.toArrow()
        with monkeypatch.context() as patch:
            patch.setattr(choice, "compiled", lambda *_: way == "compiled")
            filled = pa.Table.from_batches(with_columns(names, table.to_batches(max_chunksize=5_000)))
        again = events.sparkSession.createDataFrame(filled)
    told = again.select(*PLACE, F.struct(*names).alias("b"))
    joined = events.select(*PLACE, F.struct(*names).alias("a"), "kind").join(told, on=list(PLACE))
    other, is_row = ~F.col("a").eqNullSafe(F.col("b")), F.col("kind") == "row"
    assert joined.agg(F.count_if(other), F.count_if(is_row) > 12_000).collect()[0][:] == (0, True)


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
    return made.withColumn("protocol", F.lit("")).coalesce(1).cache()


@pytest.mark.parametrize("flavour", ["new", "classic"])
@pytest.mark.parametrize(
    "asked",
    [
        {"strategy": "index-value"},
        {"strategy": "index-value", "index": "four"},
        {"strategy": "index-value", "index": "two"},
        *[{"strategy": "columns", "columns": c} for c in (["A,B"], ["n", "c"], ["a"], ["a,b", "n", "c", "z", "y"])],
    ],
    ids=str,
)
def test_odd_rows_have_the_same_verdicts(odd: DataFrame, flavour: str, asked: dict[str, Any]) -> None:
    """Commas, NULL, labels and missing images are what the images show they are, in both flavours."""
    columns = tuple(ColumnDef(n, "int", True) for n in ("a,b", "N", "c", "d"))
    indexes = (
        IndexDef(1, "four", ("a,b", "N", "c", "d"), True, False),
        IndexDef(2, "two", ("N", "a,b"), True, False),
    )
    catalog = Catalog.from_definitions([TableDef("s", "t", columns, indexes)])
    arguments = asked | {"partitions": 7, "flavour": flavour} | ({"catalog": catalog} if "index" in asked else {})
    columns_of = {"four": ["a,b", "n", "c", "d"], "two": ["n", "a,b"]}
    wanted = columns_of.get(asked.get("index", ""), asked.get("columns"))

    def enters(c: Column) -> Column:
        return c["is_key"] if wanted is None else F.lower(c["name"]).isin([n.lower() for n in wanted])

    folded = fold(dispatched_image(), enters, flavour=flavour)
    told = odd.transform(dispatch, **arguments).withColumn("folded", folded).orderBy("n").collect()
    for row in told:
        lacks = row.folded is None or row.folded >> 32 < len(wanted or ())
        assert (row.dispatch_error is not None) == (row.kind == "row" and lacks), row
        assert row.target_partition == (None if lacks or row.kind != "row" else (row.folded & 0xFFFFFFFF) % 7), row


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
