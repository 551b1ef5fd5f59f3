"""Parquet parts that workers read and write by themselves."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path
from threading import Event

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from conftest import golden
from facts_alike import same
from pyspark.sql import SparkSession

from ticdc_lab.answers.summary import _quarantined
from ticdc_lab.engine import sessions
from ticdc_lab.errors import SourceError
from ticdc_lab.events.sample import Sample
from ticdc_lab.facts import LogFacts, log_facts
from ticdc_lab.facts.known import ordered_offsets
from ticdc_lab.sources import stored
from ticdc_lab.sources.load import load
from ticdc_lab.sources.places import has_columns_in_name
from ticdc_lab.sources.stored import StoredEvents, _side_by_side, _some_of


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: '/a/b.gz'\n", "/a/b.gz"),
        ("FileNotFoundError: [Errno 2] Failed to open local file '/a/x.parquet'. Detail: [errno 2]", "/a/x.parquet"),
        ("ValueError: 'something' else", None),
    ],
)
def test_what_a_worker_could_not_find(said: str, path: str | None) -> None:
    """It is read from what Spark reports of the failure: a source's file, or a part that could not be written."""
    assert stored.unseen(RuntimeError(f"org.apache.spark.SparkException: Job aborted\n{said}")) == path


def test_links_to_files_elsewhere_are_files_of_the_folder(tmp_path: Path) -> None:
    """Folders count as they are named, not as the file is named that a link leads to."""
    log, elsewhere = tmp_path / "log", tmp_path / "day=1"
    for folder in (elsewhere, log / "partition=3"):
        folder.mkdir(parents=True)
    (elsewhere / "a.parquet").touch()
    for link in (log / "a.parquet", log / "partition=3" / "a.parquet"):
        link.symlink_to(elsewhere / "a.parquet")
    assert not has_columns_in_name(log / "a.parquet", str(log))
    assert has_columns_in_name(log / "partition=3" / "a.parquet", str(log))
    assert not has_columns_in_name(log / "a.parquet", str(log / "a.parquet"))


def test_what_a_worker_wrote_elsewhere(tmp_path: Path) -> None:
    """A part that the driver does not see is no part of the log: an error names it and what to do."""
    (tmp_path / "part-0.parquet").touch()
    stored.require_shared([str(tmp_path / "part-0.parquet")])
    with pytest.raises(SourceError, match=r"part-1\.parquet is there on one machine.*the driver does not see it"):
        stored.require_shared([str(tmp_path / "part-0.parquet"), str(tmp_path / "part-1.parquet")])


LINES = gzip.decompress(golden("messages_canal-json-tidb_small.jsonl.gz").read_bytes()).splitlines()
OTHERS = {"whole": None, "row changes of a table": Sample(tables=("shop.orders",)), "nothing": Sample(tables=("a.b",))}


@pytest.mark.parametrize("sample", OTHERS.values(), ids=OTHERS)
def test_what_is_gathered_while_decoding_is_what_the_events_state(
    spark: SparkSession, tmp_path: Path, sample: Sample | None
) -> None:
    """Of a log with bad messages and two recordings that overlap; of what was kept only, if it is a sample, except for
    the offsets: those that are there.
    """
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([*LINES[:900], bad(LINES[900])]))
    (tmp_path / "b.jsonl").write_bytes(b"\n".join(LINES[700:]))
    lazy = load(spark, str(tmp_path))
    stored = (lazy if sample is None else lazy.sampled(sample)).materialise(str(tmp_path / "_out"))
    assert stored.counts is not None and stored.counts.quarantined == 1
    asked, whole = (LogFacts.read(log.events.transform(log_facts).toArrow()) for log in (stored, lazy))
    assert len(stored.facts.homes) == (4 if sample is None else len(asked.homes))
    assert same(stored.facts, replace(asked, offsets=whole.offsets))
    beside = sorted(f"_{kind}-{p.stem}" for kind in ("facts", "arrivals") for p in written(tmp_path))
    assert sorted(p.name for p in tmp_path.glob("_out/_*")) == beside
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
    """What was gathered beside the decoded files is gone with them: an error of ours, that shows how to continue."""
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


def test_events_in_arrows_form_are_those_in_parquet(tmp_path: Path) -> None:
    """Without an engine they are written so: as columns, leaves of images and parts of a file, and in Parquet later."""
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(LINES))
    later = sessions.Later(2, {})
    (arrow,) = load(later, str(tmp_path)).materialise(str(tmp_path / "_out"))._files
    assert arrow.suffix == stored.ARROW and later.begun is None
    (whole,) = stored.groups_in(arrow)
    (file,) = stored.for_engines([arrow], 2)
    assert pq.read_table(file, schema=whole.schema).equals(whole) and stored.for_engines([file], 2) == [file]
    leaves = [f"{image}.list.element.{part}" for image in ("columns", "before") for part in ("name", "value")]
    text = pa.dictionary(pa.int32(), pa.string())
    image = pa.list_(pa.struct([("name", text), ("value", pa.string())]))
    form = pa.schema([("offset", pa.int64()), ("topic", text), ("columns", image), ("before", image)])
    offset = whole.filter(pc.equal(whole["kind"], "row"))["offset"][7]
    for first in (None, offset.as_py(), -1):
        near = None if first is None else (np.array([first]), np.array([first]))
        read = []
        for path in (arrow, file):
            rows = StoredEvents(later, (str(path),)).rows(
                ("offset", "topic"), lambda found: found, form, leaves=leaves, near=near
            )
            read.append([r for piece in rows.pieces for batch in rows.read(piece) for r in batch.to_pylist()])
        assert read[0] == read[1] and bool(read[0]) == (first is None or first >= 0)


def test_what_cannot_be_decoded_is_counted_without_an_engine(spark: SparkSession, tmp_path: Path) -> None:
    """By its class, its offsets with and without empty messages, and the first of it; as the engine counts it."""
    empty = json.dumps(json.loads(LINES[7]) | {"key": None, "value": None}).encode()
    alien = [json.dumps(json.loads(LINES[n]) | {"value": base64.b64encode(b"\0\0").decode()}).encode() for n in (8, 10)]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([*LINES[:7], empty, b"{", bad(LINES[9]), *alien, *LINES[11:600]]))
    later = sessions.Later(2, {})
    log, asked = (load(s, str(tmp_path)).materialise(str(tmp_path / f"_{i}")) for i, s in enumerate((later, spark)))
    assert (log.counts, log.gaps, log.edges, log.strangers) == (asked.counts, asked.gaps, asked.edges, asked.strangers)
    assert log.counts is not None and log.counts.empty == 1 and log.counts.quarantined == 5
    classes = asked.quarantine.groupBy("error_class").count().toArrow().to_pylist()
    assert log.refused_by_class() == {r["error_class"]: r["count"] for r in classes}
    by_engine = replace(asked, _files=())
    for which in (None, True, False):
        offsets = ordered_offsets([by_engine.refused_offsets(empty=which)])
        assert log.refused_offsets(empty=which).equals(offsets) and len(offsets)
    assert same(log.facts, asked.facts) and by_engine.refused_by_class() == log.refused_by_class()
    assert _quarantined(log).equals(_quarantined(by_engine)) and len(_quarantined(log)) == len(classes)
    assert log._with_strangers().strangers == by_engine._with_strangers().strangers
    assert later.begun is None


def test_messages_decoded_side_by_side_keep_their_order() -> None:
    """Each is decoded only when the next one was: what comes first is given first."""
    decoded = [Event() for _ in range(5)]
    decoded[4].set()

    def decode(block: tuple[pa.RecordBatch, None]) -> list[pa.RecordBatch]:
        n = block[0].num_rows
        assert decoded[n + 1 if n % 2 == 0 else 4].wait(60)
        decoded[n].set()
        return [block[0]]

    blocks = ((pa.record_batch([pa.nulls(n)], names=["a"]), None) for n in range(4))
    assert [b.num_rows for some in _side_by_side(decode, blocks, 2) for b in some] == [0, 1, 2, 3]


def bad(line: bytes) -> bytes:
    """A message whose value is no JSON any more."""
    message = json.loads(line)
    return json.dumps(message | {"value": base64.b64encode(b"{").decode()}).encode()


def written(folder: Path) -> list[Path]:
    """The files that hold the decoded events."""
    return list(folder.glob("_out/part-*.parquet"))


@pytest.mark.parametrize("at", [[1, 4], [0, 1, 2, 3, 4], [], [4], [1, 2, 4], [0, 3]])
def test_some_images_are_those_of_their_rows_whether_copied_or_not(at: list[int]) -> None:
    """They are not copied where the other rows have none."""
    images = pa.array([None, [2, 3], [], None, [4]], pa.list_(pa.int64()))
    found = _some_of(images, np.array(at, np.int64))
    found.validate(full=True)
    assert found.to_pylist() == [images[i].as_py() for i in at]
    assert at != [1, 4] or found.values.buffers()[1].address == images.values.buffers()[1].address
    assert _some_of(images.slice(2), np.array([2])).values.offset == 0, "readers of whole buffers see these alone"
