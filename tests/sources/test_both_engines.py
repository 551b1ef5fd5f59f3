"""Wherever a log lies, either engine loads what its bytes show: the rows of reading and decoding without any engine."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import engines
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import stored
from conftest import golden
from pyspark.sql import SparkSession

from ticdc_lab.codecs import Known, decoder
from ticdc_lab.codecs.schema_registry import read_schemas
from ticdc_lab.codecs.simple_tables import finder, tables_of
from ticdc_lab.errors import EngineError
from ticdc_lab.events.sample import Sample
from ticdc_lab.settings.file import given_settings
from ticdc_lab.sources import pieces
from ticdc_lab.sources.load import load
from ticdc_lab.sources.survey import survey

CANAL, SIMPLE = "messages_canal-json-tidb_small.jsonl.gz", "messages_simple_small.jsonl.gz"
AVRO, SCHEMAS = "messages_avro-prod_small.jsonl.gz", "avro_schemas_small.jsonl.gz"
ODD = "a b [1] {x} 100%20 数据=1"
"""A name that engines take for a pattern, or decode."""


@pytest.fixture(scope="module", autouse=True, params=["embedded", "spark"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each test of this module on each engine."""
    with engines.using(request.param):
        yield request.param


@dataclass(frozen=True)
class Place:
    """A source, what is known beside it, and the rows that it must give."""

    source: Path
    rows: list[dict[str, Any]]
    how: dict[str, str] = field(default_factory=dict)


def messages_of(file: Path) -> pa.Table:
    """The messages of a capture file, read by no engine; with the columns that a table of them may have."""
    return pa.Table.from_batches([messages for messages, _ in pieces.read(pieces_of(file))])


def pieces_of(file: Path) -> Iterator[pa.RecordBatch]:
    """A file as its pieces."""
    return iter(pieces.table_of(pieces.of_lines([file])).to_batches())


def decoded(file: Path, protocol: str, known: Known) -> list[dict[str, Any]]:
    """Rows of :data:`ticdc_lab.events.schema.DECODED`, by reading and decoding in this process."""
    found: list[dict[str, Any]] = []
    for messages, rejected in pieces.read(pieces_of(file)):
        for batch in decoder(protocol, known=known)(iter([messages])):
            found += batch.to_pylist()
        found += rejected.to_pylist() if rejected is not None else []
    return found


def as_gzip(folder: Path) -> Place:
    """A recording as it is, with odd characters in its name."""
    file = folder / f"{ODD}.jsonl.gz"
    file.write_bytes(golden(CANAL).read_bytes())
    return Place(file, decoded(file, "canal-json", Known()))


def as_text(folder: Path) -> Place:
    """Plain, in several files below folders, with lines that are none."""
    lines = gzip.decompress(golden(CANAL).read_bytes()).splitlines()
    lines[5:5] = [b"no message", b"", b'{"topic":"t"}']
    parts = [folder / ODD / f"{i}.jsonl" for i in range(3)]
    parts[0].parent.mkdir()
    for i, part in enumerate(parts):
        part.write_bytes(b"\n".join(lines[i::3]))
    return Place(folder / ODD, [row for part in parts for row in decoded(part, "canal-json", Known())])


def as_damaged(folder: Path) -> Place:
    """A recording cut short, and a message that cannot be decoded."""
    file = folder / "cut.jsonl.gz"
    file.write_bytes(golden(CANAL).read_bytes()[:-9_000])
    return Place(file, decoded(file, "canal-json", Known()))


def as_parquet(folder: Path) -> Place:
    """Many row groups in one file, with odd characters in its name."""
    file = folder / f"{ODD}.parquet"
    pq.write_table(messages_of(golden(CANAL)), file, row_group_size=200)
    return Place(file, decoded(golden(CANAL), "canal-json", Known()))


def as_other_types(folder: Path) -> Place:
    """Columns whose types need a conversion, which is left to the engine."""
    table = messages_of(golden(CANAL))
    at = table.schema.get_field_index("partition")
    pq.write_table(table.set_column(at, "partition", table["partition"].cast(pa.int64())), folder / "wide.parquet")
    return Place(folder, decoded(golden(CANAL), "canal-json", Known()))


def as_folders_by_partition(folder: Path) -> Place:
    """``partition=N`` folders, which give the column."""
    by = ds.partitioning(pa.schema([("partition", pa.int32())]), flavor="hive")
    ds.write_dataset(messages_of(golden(CANAL)), folder / "by", format="parquet", partitioning=by)
    return Place(folder / "by", decoded(golden(CANAL), "canal-json", Known()))


def as_delta(folder: Path) -> Place:
    """A Delta table of two versions, written by hand: the second takes a file away that no longer counts."""
    table, root = messages_of(golden(CANAL)).drop_columns(["headers"]), folder / "lake"
    (root / "_delta_log").mkdir(parents=True)

    def added(name: str, rows: pa.Table) -> dict[str, Any]:
        pq.write_table(rows, root / name)
        size = (root / name).stat().st_size
        return {"path": name, "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}

    kinds = {"string": "string", "int32": "integer", "int64": "long", "binary": "binary"}
    fields = [
        {"name": f.name, "type": kinds.get(str(f.type), "timestamp"), "nullable": True, "metadata": {}}
        for f in table.schema
    ]
    meta = {"id": "0", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [], "configuration": {},
            "schemaString": json.dumps({"type": "struct", "fields": fields}), "createdTime": 0}  # fmt: skip
    versions: list[list[dict[str, Any]]] = [
        [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": meta},
         {"add": added("a.parquet", table.slice(0, 900))}, {"add": added("old.parquet", table.slice(0, 100))}],
        [{"remove": {"path": "old.parquet", "deletionTimestamp": 0, "dataChange": True}},
         {"add": added("b.parquet", table.slice(900))}],
    ]  # fmt: skip
    for n, actions in enumerate(versions):
        text = "".join(json.dumps(a) + "\n" for a in actions)
        (root / "_delta_log" / f"{n:020d}.json").write_text(text)
    return Place(root, decoded(golden(CANAL), "canal-json", Known()))


def as_simple(folder: Path) -> Place:
    """Rows need the table versions that other messages bring."""
    file = golden(SIMPLE)
    found = finder(Known())(messages for messages, _ in pieces.read(pieces_of(file)))
    known = Known(tables=tables_of(row for batch in found for row in batch.to_pylist()))
    return Place(file, decoded(file, "simple", known))


def as_avro(folder: Path) -> Place:
    """Schemas are in a file beside it."""
    schemas = str(golden(SCHEMAS))
    known = Known(schemas=read_schemas(schemas))
    return Place(golden(AVRO), decoded(golden(AVRO), "avro", known), {"schema_registry": schemas})


def as_storage(name: str) -> Callable[[Path], Place]:
    """A folder of the storage sink."""

    def make(folder: Path) -> Place:
        shutil.unpack_archive(golden("storage_small.tar.gz"), folder)
        root = next(p for p in folder.rglob(name) if p.is_dir())
        (root / "notes.txt").write_text("no file of the sink")
        return Place(root, stored.rows_of(root, given_settings({"csv.binary-encoding-method": "hex"})))

    return make


PLACES = {
    "gzip": as_gzip,
    "text": as_text,
    "damaged": as_damaged,
    "parquet": as_parquet,
    "other types": as_other_types,
    "by partition": as_folders_by_partition,
    "delta": as_delta,
    "simple": as_simple,
    "avro": as_avro,
    "csv": as_storage("small_csv_committs_oldvalue"),
}


def bag(rows: list[dict[str, Any]]) -> Counter[str]:
    """Rows in no order, each with all its columns."""
    return Counter(map(repr, rows))


@pytest.mark.parametrize("place", PLACES)
def test_a_load_gives_the_rows_of_its_bytes(spark: SparkSession, tmp_path: Path, place: str) -> None:
    """Lazily and stored: every column of every event and quarantined message, the counts, and what cannot be proved."""
    there = PLACES[place](tmp_path)
    log = load(spark, str(there.source), **there.how)
    kept = log.materialise(str(tmp_path / "kept [1]"))
    expected = bag(there.rows)
    assert bag(log.decoded.toArrow().to_pylist()) == expected
    assert bag(kept.decoded.toArrow().to_pylist()) == expected
    assert kept.counts is not None
    wrong = sum(r["error_class"] is not None for r in there.rows)
    first = sum(r["error_class"] is None and r["seq"] == 0 for r in there.rows)
    rows = sum(r["kind"] == "row" for r in there.rows)
    n = kept.counts
    assert (n.messages, n.decoded, n.quarantined, n.kept) == (first + wrong, first, wrong, rows)
    assert (n.events, wrong > 0) == (len(there.rows) - wrong, any("could not be read" in s for s in kept.limits))


def test_a_sample_keeps_the_same_rows_and_counts_all(spark: SparkSession, tmp_path: Path) -> None:
    """What is kept of a sample, from either writer: the workers, or the engine itself."""
    log = load(spark, str(golden(CANAL))).sampled(Sample(tables=("shop.orders",)))
    by_workers = log.materialise(str(tmp_path / "a"), images=False)
    by_engine = log._by_engine(str(tmp_path / "b"), images=False)
    expected = [r for r in decoded(golden(CANAL), "canal-json", Known())
                if r["kind"] != "row" or (r["schema_name"], r["table_name"]) == ("shop", "orders")]  # fmt: skip
    expected = [r | {"columns": None, "before": None} for r in expected]
    for kept in (by_workers, by_engine):
        assert kept.counts is not None
        assert (
            (kept.counts.messages, kept.counts.kept) == (2241, sum(r["kind"] == "row" for r in expected)) == (2241, 357)
        )
        assert bag(kept.decoded.toArrow().to_pylist()) == bag(expected)


def test_a_survey_tells_the_same(spark: SparkSession) -> None:
    """What is there, how large, and the tables."""
    found = survey(spark, str(golden(CANAL)))
    assert (found.protocol, found.seen, found.is_whole, len(found.tables), found.partitions) == (
        "canal-json", 1000, False, 7, (0, 1, 2, 3),
    )  # fmt: skip


def test_a_delta_table_that_one_engine_cannot_read_is_said(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    """Odd characters in a table's folder: the same rows, or an error with the engine that can."""
    there = as_delta(tmp_path)
    there.source.rename(tmp_path / ODD)
    if engine == "spark":
        assert load(spark, str(tmp_path / ODD)).events.count() == 2241
    else:
        with pytest.raises(EngineError, match="cannot read the Delta table") as e:
            load(spark, str(tmp_path / ODD))
        assert "--engine spark" in e.value.hint


def test_a_delta_table_says_how_many_messages_it_holds(spark: SparkSession, tmp_path: Path) -> None:
    """On either engine: the workbench reads a small one at once."""
    place = str(tmp_path / "lake")
    load(spark, str(golden(CANAL))).messages.write.format("delta").save(place)
    found = survey(spark, place)
    assert (found.source_kind, found.size.messages, found.size.is_exact) == ("delta", 2241, True)
    assert not found.is_large
