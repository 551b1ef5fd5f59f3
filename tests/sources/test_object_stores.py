"""Logs in an object store: the same answers as of the files on this machine, on either engine and without Java."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import golden
from pyspark.sql import SparkSession
from s3_server import PAGE, S3, serving

import ticdc_lab
from ticdc_lab.engine.choosing import choose
from ticdc_lab.engine.object_stores import Store
from ticdc_lab.errors import SourceError
from ticdc_lab.sources.fsck import fsck
from ticdc_lab.sources.load import load

CAPTURE = "messages_canal-json-tidb_small.jsonl.gz"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What lies in the bucket: a storage folder, a capture file as it is, and one cut in two that overlap."""
    root = tmp_path_factory.mktemp("bucket")
    shutil.unpack_archive(golden("storage_small.tar.gz"), root)
    whole = golden(CAPTURE).read_bytes()
    (root / CAPTURE).write_bytes(whole)
    lines = gzip.decompress(whole).splitlines(keepends=True)
    (root / "cut in two").mkdir()
    (root / "cut in two" / "a b.jsonl").write_bytes(b"".join(lines[:1300]))
    (root / "cut in two" / "c%20.jsonl").write_bytes(b"".join(lines[1200:]))
    (root / "cut in two" / "empty.jsonl").write_bytes(b"")
    return root


@pytest.fixture
def s3(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """A store that serves it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "user")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    with serving(folder) as store:
        yield store


@pytest.mark.parametrize("name", ["storage/small_csv_committs_oldvalue", "storage/small_canal-json"])
def test_a_storage_folder_is_the_one_of_this_machine(spark: SparkSession, s3: S3, folder: Path, name: str) -> None:
    """Row for row; it is listed in few calls, and fsck shows the same."""
    there = load(spark, s3.url(name))
    assert s3.lists <= 40 + len(s3.keys) // PAGE
    here = load(spark, str(folder / name))
    assert _rows(there) == _rows(here) != []
    assert there.source == f"s3://logs/{name}"
    found, expected = (fsck(spark, at).toPandas().to_dict("records") for at in (s3.url(name), str(folder / name)))
    assert found == expected


@pytest.mark.spark
def test_spark_reads_it_by_itself(classic: SparkSession, s3: S3, folder: Path) -> None:
    """Its workers open the store, and nothing is copied; they began before this environment held credentials."""
    for name in ("storage/small_canal-json", "cut in two"):
        there = s3.url(name, user="someone:s3cr3t")
        assert _rows(load(classic, there)) == _rows(load(classic, str(folder / name)))


def test_a_file_is_read_in_large_pieces(s3: S3) -> None:
    """A store answers each call after some ten milliseconds: a file read line by line is not a call a few lines."""
    with Store(s3.url("cut in two")).open("a b.jsonl") as file:
        assert sum(1 for _ in file) == 1300
    assert len([call for call in s3.calls if call.startswith("GET") and "a%20b" in call]) == 1


def test_capture_files_count_once_where_they_overlap(spark: SparkSession, s3: S3, folder: Path) -> None:
    """As on this machine; a file that is empty is reported."""
    there, here = load(spark, s3.url("cut in two")), load(spark, str(folder / "cut in two"))
    assert _rows(there) == _rows(here) == _rows(load(spark, str(folder / CAPTURE)))
    assert any("s3://logs/cut in two/empty.jsonl is empty" in said for said in there.left_out)
    assert _rows(load(spark, s3.url(CAPTURE))) == _rows(here)


def test_secrets_of_a_url_are_in_no_answer(spark: SparkSession, s3: S3, tmp_path: Path) -> None:
    """Neither its password nor its query is in the page, the name of the log, or an error."""
    log = ticdc_lab.open(s3.url("cut in two", user="someone:s3cr3t"), spark=spark)
    page = ticdc_lab.report(log, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "s3://logs/cut in two" in page
    assert not any(word in page + str(log) for word in ("s3cr3t", "endpoint_override"))
    with pytest.raises(SourceError) as refused:
        load(spark, s3.url("nothing", user="someone:s3cr3t"))
    assert "s3cr3t" not in str(refused.value) and "There is nothing at s3://logs/nothing" in str(refused.value)


def test_what_cannot_be_read_is_said(spark: SparkSession, s3: S3) -> None:
    """A file that is refused, a bucket that is not there, a store that does not answer."""
    s3.refused.add(CAPTURE)
    with pytest.raises(SourceError, match=r"s3://logs/.* cannot be .*(ACCESS_DENIED|Access)"):
        load(spark, s3.url(CAPTURE))
    with pytest.raises(SourceError, match=r"s3://other/x cannot be listed: .*NO_SUCH"):
        load(spark, s3.url("x").replace("s3://logs", "s3://other"))
    with pytest.raises(SourceError, match="cannot be"):
        load(spark, s3.url("x").replace(f":{s3.port}", ":1"))


def test_an_object_that_is_gone_when_it_is_read_is_named(s3: S3) -> None:
    """With its bucket and key, which the store's own words need not have, and with what to do."""
    store = Store.of(s3.url("cut in two"))
    assert store is not None and "a b.jsonl" in {file.path for file in store.files()}
    del s3.keys["cut in two/a b.jsonl"]
    with pytest.raises(SourceError, match=r"s3://logs/cut in two/a b.jsonl cannot be read: ") as gone:
        store.copied(["a b.jsonl"])
    assert "still there" in gone.value.hint


def test_the_engine_is_chosen_by_what_lies_there(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Embedded for what fits this machine; Spark for more."""
    assert choose(s3.url("storage")).engine == "embedded"
    monkeypatch.setattr("ticdc_lab.engine.choosing.FITS_BYTES", 1000)
    assert "the log is large" in choose(s3.url("storage")).why


def test_folders_are_listed_side_by_side(s3: S3) -> None:
    """Every file once, in order; upper folders cost a call each, files one for each page."""
    store = Store.of(s3.url("storage"))
    assert store is not None
    paths = [f.path for f in store.files()]
    assert paths == sorted(k.removeprefix("storage/") for k in s3.keys if k.startswith("storage/"))
    assert s3.lists < len(paths) / 4


def _rows(log: ticdc_lab.ChangeLog) -> list[tuple[object, ...]]:
    """Its events by place, with their values."""
    events = log.events.select("partition", "offset", "seq", "kind", "commit_ts", "table_name", "op", "columns")
    rows = events.toPandas().astype(str).to_records(index=False).tolist()
    return sorted(tuple(row) for row in rows)
