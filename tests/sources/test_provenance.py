"""What an answer was made from: fingerprints that show changed inputs, versions, and no secret."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from conftest import golden
from pyspark.sql import SparkSession

from ticdc_lab.errors import SourceError
from ticdc_lab.sources import provenance as provenances
from ticdc_lab.sources.load import load
from ticdc_lab.sources.provenance import provenance, versions

pytestmark = pytest.mark.spark


def at(file: Path, text: bytes) -> Path:
    """A file with a known time."""
    file.write_bytes(text)
    os.utime(file, (1_700_000_000, 1_700_000_000))
    return file


def test_a_file_is_told_by_name_size_time_and_hash(tmp_path: Path) -> None:
    """All bytes count, the time is UTC."""
    (found,) = provenance(at(tmp_path / "log.jsonl", b"abc")).inputs
    assert (found.bytes, found.modified) == (3, "2023-11-14 22:13:20")
    assert (found.fingerprint, found.how) == (hashlib.sha256(b"abc").hexdigest(), "SHA-256 of all bytes")


def test_one_changed_byte_of_a_folder_changes_its_fingerprint(tmp_path: Path) -> None:
    """So does a name; a hidden file, which is no data, does not."""
    (tmp_path / "a").mkdir()
    first, second = at(tmp_path / "a/1.jsonl", b"one"), at(tmp_path / "a/2.jsonl", b"two")

    def now() -> str:
        return provenance(tmp_path / "a").inputs[0].fingerprint

    before = now()
    at(tmp_path / "a/.hidden", b"x")
    assert now() == before
    at(second, b"twO")
    changed = now()
    at(second, b"two")
    assert now() == before != changed
    first.rename(tmp_path / "a/3.jsonl")
    assert now() not in (before, changed)


def test_a_large_input_is_told_by_its_edges_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The middle is not read: a change there is not seen, which the words show; one at the end is."""
    monkeypatch.setattr(provenances, "WHOLE", 1 << 20)
    large = tmp_path / "log.jsonl"

    def of(middle: bytes, end: bytes) -> provenances.Input:
        return provenance(at(large, b"a" * (2 << 20) + middle + b"c" * (2 << 20) + end)).inputs[0]

    whole = of(b"x", b"y")
    assert whole.how == "SHA-256 of size, first and last MiB"
    assert of(b"z", b"y").fingerprint == whole.fingerprint != of(b"x", b"z").fingerprint


def test_very_many_files_are_told_by_names_and_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is opened."""
    monkeypatch.setattr(provenances, "FILES", 2)
    for n in range(3):
        at(tmp_path / f"{n}.jsonl", b"abc")
    found = provenance(tmp_path).inputs
    assert found[0].how == "SHA-256 of the list of files: path, size"
    before = found[0].fingerprint
    at(tmp_path / "1.jsonl", b"abd")
    assert provenance(tmp_path).inputs[0].fingerprint == before
    at(tmp_path / "1.jsonl", b"abde")
    assert provenance(tmp_path).inputs[0].fingerprint != before


def test_a_delta_table_is_told_by_its_version(tmp_path: Path) -> None:
    """The newest commit names it; data files are not read."""
    (tmp_path / "_delta_log").mkdir()
    for n in (9, 10):
        at(tmp_path / f"_delta_log/{n:020}.json", b"%d" % n)
    (found,) = provenance(str(tmp_path)).inputs
    assert (found.kind, found.fingerprint) == ("Delta table, version 10", hashlib.sha256(b"10").hexdigest())


def test_no_secret_is_shown() -> None:
    """Neither by the name of a setting, nor inside a JAAS line, an option or a URL; a seed is."""
    options = {"kafka.sasl.jaas.config": 'x username="u" password="sesame";', "kafka.ssl.key.password": "sesame"}
    shown = provenance(
        settings={"options": options, "token": "sesame", "registry": "http://u:sesame@host/", "seed": 7,
                  "said": "password=sesame", "place": "https://h/log?sig=sesame", "basic.auth.user.info": "u:sesame",
                  "fs.azure.account.key.x": "sesame", "MYSQL_PASSWD": "sesame"},
    )  # fmt: skip
    assert "sesame" not in str(shown) + shown._repr_html_() + repr(shown)
    assert shown.settings["seed"] == "7" and shown.settings["token"] == "***"
    kafka = provenance("kafka://127.0.0.1:9092/orders").inputs[0]
    assert kafka.fingerprint == "" and "known of a log that was loaded" in kafka.how


def test_html_is_escaped_and_marked() -> None:
    """A setting called like a script stays text."""
    html = provenance(settings={"name": "<script>x</script>"})._repr_html_()
    assert "<script>" not in html and html.startswith('<div class="ticdc-provenance">')


def test_versions_name_what_computes() -> None:
    """Without a session too; the commit only where this is a checkout."""
    found = versions()
    assert {"ticdc_lab", "Python", "system", "pyspark", "pyarrow", "plotly"} <= set(found)
    assert all(found.values())


def test_a_missing_input_is_an_error(tmp_path: Path) -> None:
    """As everywhere, in words; what only Spark reads asks for a session."""
    with pytest.raises(SourceError, match="does not exist"):
        provenance(tmp_path / "none.jsonl")
    with pytest.raises(SourceError, match="is not on this machine"):
        provenance("s3a://bucket/log")


def test_workers_hash_what_only_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    """Detected from a URL that is no path: the same files give the same hash, a changed one another."""
    for n in range(3):
        at(tmp_path / f"{n}.jsonl", b"abc")
    url = f"file:{tmp_path}"

    def hashed() -> provenances.Input:
        return provenances._elsewhere("there", url, spark)

    before = hashed()
    assert (before.kind, before.bytes, before.modified) == ("3 files", 9, "2023-11-14 22:13:20")
    at(tmp_path / "1.jsonl", b"abd")
    assert hashed().fingerprint != before.fingerprint
    at(tmp_path / "1.jsonl", b"abc")
    assert hashed() == before


def test_a_table_is_told_by_its_files(spark: SparkSession, tmp_path: Path) -> None:
    """By its name in the session's catalog, which is no path; a view of no file reports it."""
    spark.range(3).write.parquet(f"{tmp_path}/t")
    spark.read.parquet(f"{tmp_path}/t").createOrReplaceTempView("of_files")
    spark.range(3).createOrReplaceTempView("of_nothing")
    files, nothing = (provenance(name, spark=spark).inputs[0] for name in ("of_files", "of_nothing"))
    assert (files.name, files.kind, len(files.fingerprint)) == ("of_files", "table", 64)
    assert nothing.fingerprint == "" and nothing.how == "not known: no file contains it"
    for name in ("of_files", "of_nothing"):
        spark.catalog.dropTempView(name)


def test_a_log_names_its_protocol_and_the_session(spark: SparkSession) -> None:
    """Java and Spark as they run; the log is not decoded for it."""
    log = load(spark, str(golden("messages_simple_small.jsonl.gz")))
    found = provenance(log, settings={"seed": 1})
    assert found.inputs[0].kind == "file, simple" and found.versions["Spark"] == spark.version
    assert "." in found.versions["Java"]
    topic = provenance(inputs_kafka(log))
    assert topic.inputs[0].name == "kafka://127.0.0.1:9092/small partition 0"
    assert topic.inputs[0].fingerprint.startswith("offsets 0 to ")


def inputs_kafka(log: object) -> object:
    """The same log as if it had come from a broker."""
    from dataclasses import replace

    return replace(log, source="kafka://127.0.0.1:9092/any")  # type: ignore[type-var]
