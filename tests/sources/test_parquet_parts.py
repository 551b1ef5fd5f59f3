"""Parquet parts that workers read and write by themselves."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest
from conftest import golden
from facts_alike import same
from pyspark.sql import SparkSession

from ticdc_lab.errors import SourceError
from ticdc_lab.events.sample import Sample
from ticdc_lab.facts import LogFacts, log_facts
from ticdc_lab.sources import parquet
from ticdc_lab.sources.load import load


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: '/a/b.gz'\n", "/a/b.gz"),
        ("FileNotFoundError: [Errno 2] Failed to open local file '/a/x.parquet'. Detail: [errno 2]", "/a/x.parquet"),
        ("ValueError: 'something' else", None),
    ],
)
def test_what_a_worker_could_not_find(said: str, path: str | None) -> None:
    """It is read from what Spark tells of the failure: a source's file, or a part that could not be written."""
    assert parquet.unseen(RuntimeError(f"org.apache.spark.SparkException: Job aborted\n{said}")) == path


def test_what_a_worker_wrote_elsewhere(tmp_path: Path) -> None:
    """A part that the driver does not see is no part of the log: an error names it and what to do."""
    (tmp_path / "part-0.parquet").touch()
    parquet.require_shared([str(tmp_path / "part-0.parquet")])
    with pytest.raises(SourceError, match=r"part-1\.parquet is there on one machine.*the driver does not see it"):
        parquet.require_shared([str(tmp_path / "part-0.parquet"), str(tmp_path / "part-1.parquet")])


LINES = gzip.decompress(golden("messages_canal-json-tidb_small.jsonl.gz").read_bytes()).splitlines()
OTHERS = {"whole": None, "row changes of a table": Sample(tables=("shop.orders",)), "nothing": Sample(tables=("a.b",))}


@pytest.mark.parametrize("sample", OTHERS.values(), ids=OTHERS)
def test_what_is_gathered_while_decoding_is_what_the_events_state(
    spark: SparkSession, tmp_path: Path, sample: Sample | None
) -> None:
    """Of a log with bad messages and two recordings that overlap; of what was kept only, if it is a sample, but for the
    offsets: those that are there.
    """
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([*LINES[:900], bad(LINES[900])]))
    (tmp_path / "b.jsonl").write_bytes(b"\n".join(LINES[700:]))
    lazy = load(spark, str(tmp_path))
    stored = (lazy if sample is None else lazy.sampled(sample)).materialise(str(tmp_path / "_out"))
    assert stored.counts is not None and stored.counts.quarantined == 1
    asked, whole = (LogFacts.read(log.events.transform(log_facts).toArrow()) for log in (stored, lazy))
    assert len(stored.facts.homes) == (4 if sample is None else len(asked.homes))
    assert same(stored.facts, replace(asked, offsets=whole.offsets))
    assert sorted(p.name for p in tmp_path.glob("_out/_*")) == sorted(f"_facts-{p.stem}" for p in written(tmp_path))
    assert sorted(tmp_path.glob("_out/*.parquet")) == sorted(written(tmp_path))


def test_a_file_that_is_gone_when_it_is_decoded_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """It was there when the log was opened; the fault is the file's, not the folder's that is written."""
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"\n".join(LINES))
    log = load(spark, str(file))
    file.unlink()
    with pytest.raises(SourceError, match=r"a\.jsonl cannot be read any more: No such file") as found:
        log.materialise(str(tmp_path / "_out"))
    assert f"ls -l {file}" in str(found.value) and not (tmp_path / "_out").exists()


def test_a_folder_that_was_removed_is_said_in_words(spark: SparkSession, tmp_path: Path) -> None:
    """What was gathered beside the decoded files is gone with them: an error of ours, that says how to go on."""
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(LINES))
    stored = load(spark, str(tmp_path)).materialise(str(tmp_path / "_out"))
    shutil.rmtree(tmp_path / "_out")
    with pytest.raises(SourceError, match=r"_out, to which the log was decoded.*_facts-part.* is gone") as found:
        _ = stored.facts
    assert "Open the log again" in str(found.value)


def test_a_sample_of_a_log_that_is_stored_is_gathered_anew(spark: SparkSession, tmp_path: Path) -> None:
    """What was gathered while decoding is of all that was read."""
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(LINES))
    stored = load(spark, str(tmp_path)).materialise(str(tmp_path / "_out"))
    part = stored.sampled(Sample(tables=("shop.orders",)))
    rows = part.facts.of_kind("row")
    assert set(rows["table_name"].to_pylist()) == {"orders"}
    assert pc.sum(rows["n"]).as_py() == part.events.where("kind = 'row'").count()


def bad(line: bytes) -> bytes:
    """A message whose value is no JSON any more."""
    message = json.loads(line)
    return json.dumps(message | {"value": base64.b64encode(b"{").decode()}).encode()


def written(folder: Path) -> list[Path]:
    """The files that hold the decoded events."""
    return list(folder.glob("_out/part-*.parquet"))
