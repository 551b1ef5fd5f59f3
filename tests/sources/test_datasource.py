"""The format ``ticdc`` reads what :func:`ticdc_lab.sources.load.load` reads, as a batch and as a stream."""

from __future__ import annotations

import gzip
import json
import shutil
from base64 import b64decode
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from conftest import golden
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.datasource import ReadAllAvailable

from ticdc_lab.errors import SourceError
from ticdc_lab.events.schema import DECODED
from ticdc_lab.sources import datasource
from ticdc_lab.sources.datasource import register
from ticdc_lab.sources.load import load

pytestmark = pytest.mark.spark

NAME = "messages_canal-json-tidb_small.jsonl.gz"


@pytest.fixture
def ticdc(spark: SparkSession) -> SparkSession:
    """A session that knows the format."""
    register(spark)
    return spark


def same(a: DataFrame, b: DataFrame) -> bool:
    """Whether two frames hold the same rows, each as often."""
    return a.columns == b.columns and a.exceptAll(b).isEmpty() and b.exceptAll(a).isEmpty()


def read(spark: SparkSession, path: Path | str, **options: str) -> DataFrame:
    """A frame of the format."""
    return spark.read.format("ticdc").options(**options).load(str(path))


def test_it_gives_what_load_gives(ticdc: SparkSession) -> None:
    """All columns and rows, hashes included, in the contract's schema."""
    frame = read(ticdc, golden(NAME))
    assert frame.schema.names == DECODED.names
    assert same(frame, load(ticdc, str(golden(NAME))).decoded)


def test_handle_keys_that_only_the_ddl_define_are_those_of_load(ticdc: SparkSession) -> None:
    """A table with unique keys alone: its rows have a key, and the columns of it are marked."""
    path = "tests/data/torture/messages_canal-json-tidb.jsonl.gz"
    frames = [f.where("table_name = 'k_uq' AND kind = 'row'") for f in (read(ticdc, path), load(ticdc, path).decoded)]
    assert same(*frames) and frames[0].where("key_hash IS NULL").isEmpty() and not frames[0].isEmpty()


def test_a_dump_of_another_tool_gives_what_the_capture_gives(ticdc: SparkSession) -> None:
    """Its form is detected, and a format is an option."""
    dumps = Path(__file__).parents[1] / "data" / "dumps"
    reader = ticdc.read.format("ticdc")
    whole, parsed = (reader.load(str(dumps / n)) for n in ("canal-json.jsonl.gz", "canal-json.kcat-J.jsonl"))
    named = reader.option("format", r"%t %p %o %T %k %s\n").load(str(dumps / "canal-json.kcat-f.txt"))
    order = ["partition", "offset", "seq"]
    rows = whole.orderBy(*order).collect()
    assert rows and rows == parsed.orderBy(*order).collect() == named.orderBy(*order).collect()


def test_messages_that_two_files_hold_come_once(ticdc: SparkSession, tmp_path: Path) -> None:
    """Unless that is not to be looked for."""
    lines = gzip.decompress(golden(NAME).read_bytes()).splitlines(keepends=True)[:300]
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines[:200]))
    (tmp_path / "b.jsonl").write_bytes(b"".join(lines[150:]))
    assert read(ticdc, tmp_path).count() == 300
    assert read(ticdc, tmp_path, overlaps="ignored").count() == 350


def test_ranges_of_a_plain_file_lose_no_line(
    ticdc: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file cut into ranges that end within lines has each line once."""
    lines = gzip.decompress(golden(NAME).read_bytes()).splitlines(keepends=True)[:300]
    (tmp_path / "plain.jsonl").write_bytes(b"".join(lines))
    frame = read(ticdc, tmp_path / "plain.jsonl", rangeBytes="7001")
    assert frame.rdd.getNumPartitions() > 20
    places = F.expr("count(DISTINCT IF(error_class IS NULL, struct(partition, offset), NULL))")
    assert frame.agg(places, F.count(F.lit(1))).first() == (300, 300)


def test_rows_of_simple_find_their_table_versions(ticdc: SparkSession) -> None:
    """The versions are found first, wherever in the log they are."""
    frame = read(ticdc, golden("messages_simple_small.jsonl.gz"))
    assert frame.where("error_class IS NOT NULL").isEmpty()
    assert frame.where("kind = 'row'").count() == 2101


def test_a_folder_is_a_stream_of_its_files(ticdc: SparkSession, tmp_path: Path) -> None:
    """Each file is read once, when it has come; what is no message is there with its reason."""
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    lines = gzip.decompress(golden(NAME).read_bytes()).splitlines(keepends=True)

    def drain() -> int:
        stream = ticdc.readStream.format("ticdc").load(str(folder)).select("partition", "offset", "error_class")
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "mark"))
        writer.trigger(availableNow=True).start(str(out)).awaitTermination()
        return ticdc.read.parquet(str(out)).count()

    (folder / "a.jsonl").write_bytes(b"".join(lines[:100]))
    assert drain() == 100
    (folder / "b.jsonl").write_bytes(b"".join(lines[100:150]) + b"no message\n")
    assert drain() == 151
    assert drain() == 151
    assert ticdc.read.parquet(str(out)).where("error_class IS NOT NULL").count() == 1


def test_what_it_cannot_read_is_said(ticdc: SparkSession, tmp_path: Path) -> None:
    """A URL, a missing path, and Parquet without messages: each in a sentence."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    for path, said in (("s3a://b/x.jsonl", "is no local path"), (tmp_path / "x.parquet", "is missing a column")):
        with pytest.raises(Exception, match=said):
            read(ticdc, path).count()
    shutil.rmtree(tmp_path)
    with pytest.raises(Exception, match="does not exist"):
        read(ticdc, tmp_path).count()
    with pytest.raises(SourceError, match="needs a path"):
        datasource.TiCDCSource({}).reader(DECODED)


def test_its_bounds_are_those_that_are_said(tmp_path: Path) -> None:
    """A line or a message beyond them is in quarantine here too, and what is no bound is refused."""
    path = str(golden("messages_canal-json-tidb_small.jsonl.gz"))
    for said in ("line=1500", "growth=1, columns=3"):
        reader = datasource._Reader(datasource._ReadRequest.of({"path": path, "bounds": said}))
        classes = {c for part in reader.partitions() for b in reader.read(part) for c in b["error_class"].to_pylist()}
        assert "too-large" in classes, said
    with pytest.raises(SourceError, match="no bound of decoding"):
        datasource._ReadRequest.of({"path": path, "bounds": "lines=3"})


def test_a_stream_of_a_folder_waits_for_its_first_file(tmp_path: Path) -> None:
    """An empty folder is no error, one that is not there is."""
    limit = ReadAllAvailable()
    for name, files in ((".hidden", []), ("a.jsonl", [str(tmp_path / "a.jsonl")])):
        (tmp_path / name).write_text("x")
        reader = datasource._StreamReader(datasource._ReadRequest.of({"path": str(tmp_path)}))
        assert reader.latestOffset(reader.initialOffset(), limit) == {"files": files}
    gone = datasource._StreamReader(datasource._ReadRequest.of({"path": str(tmp_path / "gone")}))
    with pytest.raises(SourceError, match="does not exist"):
        gone.latestOffset(gone.initialOffset(), limit)


def streamed(folder: Path, range_bytes: int) -> pa.Table:
    """What the tasks of a stream give of a folder, without Spark."""
    reader = datasource._StreamReader(datasource._ReadRequest.of({"path": str(folder), "rangeBytes": str(range_bytes)}))
    parts = reader.partitions(reader.initialOffset(), {"files": sorted(map(str, folder.iterdir()))})
    return pa.Table.from_batches([batch for part in parts for batch in reader.read(part)])


def test_types_that_debezium_does_not_name_come_from_the_ddl_of_the_file(tmp_path: Path) -> None:
    """As load reads them; where the file has no DDL, a warning shows what is assumed."""
    lines = Path("tests/data/reports/07/dbz-noext.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "a.jsonl").write_text("".join(lines))
    rows = streamed(tmp_path, 1 << 20).filter(pc.equal(streamed(tmp_path, 1 << 20)["kind"], "row"))
    types = {c["name"]: c["mysql_type"] for image in rows["columns"].to_pylist() if image for c in image}
    values = [c["value"] for image in rows["columns"].to_pylist() if image for c in image if c["name"] == "u"]
    assert types["u"].startswith("bigint") and "unsigned" in types["u"]
    assert values and not any(v.startswith("-") for v in values if v)
    without = [line for line in lines if b'"ddl"' not in b64decode(json.loads(line)["value"] or "")]
    (tmp_path / "a.jsonl").write_text("".join(without))
    with pytest.warns(UserWarning, match="name no types"):
        streamed(tmp_path, 1 << 20)


def test_a_file_without_any_message_stops_no_stream(tmp_path: Path) -> None:
    """It is in quarantine, line by line and message by message; the file beside it is read."""
    lines = gzip.decompress(golden(NAME).read_bytes()).splitlines(keepends=True)[:20]
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    odd = b'{"topic":"t","partition":0,"offset":%d,"key":null,"value":"aGVsbG8="}\n'
    (tmp_path / "b.jsonl").write_bytes(b"".join(odd % i for i in range(3)) + b"nonsense\n")
    found = streamed(tmp_path, 1 << 20)["error_class"].to_pylist()
    assert found.count(None) == 20 and found.count("unknown-protocol") == 3 and len(found) == 24


def test_a_range_of_a_file_knows_the_table_versions_of_the_whole_file(tmp_path: Path) -> None:
    """Rows of the simple protocol may lie in another range than the DDL that they follow."""
    lines = gzip.decompress(golden("messages_simple_small.jsonl.gz").read_bytes()).splitlines(keepends=True)[:400]
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    at_once, parted = (streamed(tmp_path, size)["error_class"].null_count for size in (1 << 30, 20_000))
    assert at_once == parted > 300
