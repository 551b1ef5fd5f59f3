"""Recordings of one folder that hold the same messages, or between which some are missing."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import golden
from counted_work import lines_run
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab import answers
from ticdc_lab.answers.audit import lines as lines_of_audit
from ticdc_lab.errors import SourceError
from ticdc_lab.events import FILE_BITS
from ticdc_lab.facts.laggards import early_ends
from ticdc_lab.report.sections import sections
from ticdc_lab.sources.capture import parse
from ticdc_lab.sources.load import load
from ticdc_lab.sources.overlaps import Held, holes, numbered, overlaps_of, stretches, united, whole_runs

LINES = gzip.decompress(golden("messages_canal-json-tidb_small.jsonl.gz").read_bytes()).splitlines()
OF_0 = [line for line in LINES if json.loads(line)["partition"] == 0]

Write = Callable[[Path, list[bytes]], None]


def plain(path: Path, lines: list[bytes]) -> None:
    """A capture file."""
    path.with_suffix(".jsonl").write_bytes(b"\n".join(lines) + b"\n")


def zipped(path: Path, lines: list[bytes]) -> None:
    """A capture file in gzip."""
    path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(b"\n".join(lines)))


def parquet(path: Path, lines: list[bytes]) -> None:
    """Messages in Parquet, in row groups of 100."""
    messages, _ = parse(pa.array(lines), pa.array(["x"] * len(lines)))
    pq.write_table(pa.Table.from_batches([messages]), path.with_suffix(".parquet"), row_group_size=100)


@pytest.mark.parametrize("write", [plain, zipped, parquet])
def test_messages_that_two_recordings_hold_count_once(spark: SparkSession, tmp_path: Path, write: Write) -> None:
    """Lazily and materialised, and it is reported which they are; the events are the ones of one whole recording."""
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "a", LINES[:1_500])
    write(folder / "b", LINES[1_000:])
    write(folder / "c", LINES[1_200:1_250] + LINES[1_249:1_300])  # one of them twice
    log = load(spark, str(folder))
    stored = log.materialise(str(tmp_path / "out"))
    assert stored.counts is not None and stored.counts.messages == len(LINES)
    events = load(spark, str(folder)).events
    places = stored.events.select("partition", "offset", "seq")
    assert events.count() == stored.counts.events == places.distinct().count()
    said = " ".join(stored.limits)
    assert "b." in said and "contains 500 messages that a." in said and "each counts once" in said
    assert "c." in said and "contains 100 messages" in said and said == " ".join(log.limits)
    assert not any(
        "contains" in sentence for sentence in load(spark, str(folder / next(iter(folder.iterdir())))).limits
    )


def test_where_overlaps_are_not_looked_for_it_is_said(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In very many Parquet files; nothing is reported of one file."""
    for name in "ab":
        parquet(tmp_path / name, OF_0[:50])
    monkeypatch.setattr("ticdc_lab.sources.pieces.FILES_LOOKED_INTO", 1)
    log = load(spark, str(tmp_path))
    assert "2 files contain some messages twice was not looked for, as they are too many" in log.limits[0]
    assert log.events.count() == 2 * 50
    assert load(spark, str(tmp_path / "a.parquet")).limits == ()


@pytest.mark.parametrize("write", [plain, zipped, parquet])
def test_behind_a_url_it_is_said_too(
    classic: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    """Of several files of any kind."""
    for name in "ab":
        write(tmp_path / name, OF_0[:50])
    monkeypatch.setattr("ticdc_lab.sources.load.data_files", lambda _: None)
    [said] = load(classic, f"file:{tmp_path}", source_kind="parquet" if write is parquet else "capture").limits
    assert "2 files contain some messages twice was not looked for, as they lie behind a URL" in said


def test_other_messages_at_the_same_offsets_are_not_taken_for_repetitions(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is lost where a topic was made again, or two upstreams use one name."""
    plain(tmp_path / "a", OF_0[:100])
    other = json.loads(OF_0[50])
    other["value"] = json.loads(OF_0[51])["value"]
    plain(tmp_path / "b", [json.dumps(other).encode()])
    stored = load(spark, str(tmp_path)).materialise(str(tmp_path / "_out"))
    assert stored.counts is not None and stored.counts.messages == 101
    [said] = stored.limits
    assert "contain different messages at the same offsets" in said, "once: not again of the partition"


@pytest.mark.parametrize("write", [plain, zipped, parquet])
def test_a_file_cut_at_a_line_does_not_look_complete(spark: SparkSession, tmp_path: Path, write: Write) -> None:
    """The next file of the folder continues after what was cut off: the hole between them is named."""
    cut = OF_0[:200][:-40]
    write(tmp_path / "a", cut)
    write(tmp_path / "b", OF_0[200:300])
    stored = load(spark, str(tmp_path)).materialise(str(tmp_path / "_out"))
    first, last = (json.loads(OF_0[i])["offset"] for i in (160, 199))
    [said] = [s for s in stored.limits if "is missing the offsets" in s]
    assert f"is missing the offsets {first} to {last}, between a." in said and "Partition 0" in said
    assert stored.limits == (said,) and stored.counts is not None and stored.counts.lacking == 40


def test_a_last_file_cut_at_a_line_is_given_away_by_the_other_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """Watermarks go to all partitions: one without the last stalled, or was cut; a whole one is not named."""
    of_each = [[line for line in LINES if json.loads(line)["partition"] == n] for n in range(4)]
    for n, lines in enumerate(of_each):
        plain(tmp_path / f"partition_{n}", lines)
    with closing(ticdc_lab.open(str(tmp_path), spark=spark)) as whole:
        assert whole.watermarks().limits == ()
    plain(tmp_path / "partition_2", of_each[2][: len(of_each[2]) // 2])
    with closing(ticdc_lab.open(str(tmp_path), spark=spark)) as log:
        [said] = log.watermarks().limits
        summary = log.summary_of("facts")
    n = sum(json.loads(line)["kind"] == "checkpoint" for line in of_each[2][len(of_each[2]) // 2 :])
    assert re.fullmatch(rf"Partition 2 of .+ is missing the topic's last {n} watermarks \(.+ s\): .+", said)
    assert said in answers.audit(summary).limits and said in lines_of_audit(summary.findings, summary, most=1)
    page = sections(summary)
    assert [section.id for section in page for limit in section.limits if limit == said] == ["verdict"]


def test_partitions_that_end_early_are_said_once_for_each_place() -> None:
    """One watermark less may have been on its way; a partition without any is reported by itself."""

    def ends(rows_to: Mapping[tuple[str, int], int | None] = MappingProxyType({}), **until: int) -> tuple[str, ...]:
        rows = [("t", int(p[1:]), ts << 18) for p, last in until.items() for ts in range(1000, 1000 * last + 1, 1000)]
        rows += [("t", int(p[1:]), None) for p in until]
        columns = zip(*rows, strict=True)
        table = pa.table(dict(zip(("topic", "partition", "resolved_ts"), columns, strict=True)))
        return early_ends(table, rows_to=rows_to)

    assert ends(p0=9, p1=8, p2=0) == ()
    first, second = ends(p0=9, p1=7, p2=4, p3=7)
    assert first.startswith("Partition 2 of t is missing the topic's last 5 watermarks (5.000 s): no more")
    assert second.startswith("Partitions 1, 3 of t are missing the topic's last 2 watermarks (2.000 s): no more")
    for last, cut in ((8, True), (9, True), (10, False)):
        [said] = ends(rows_to={("t", 1): last * 1000 << 18}, p0=9, p1=4)
        assert ("or the recording was cut." in said) is cut
        assert ("but its rows continue: the recording was not cut" in said) is not cut
    assert ends(p0=99, **{f"p{n}": n for n in range(1, 9)})[-1] == "3 more places like these."


def test_a_gz_without_its_end_is_said_where_it_was_cut_at_a_line(spark: SparkSession, tmp_path: Path) -> None:
    """All lines are there, and only the end of the stream is missing: what came after is unknown."""
    packed = gzip.compress(b"\n".join(OF_0[:50]) + b"\n")
    (tmp_path / "a.jsonl.gz").write_bytes(packed[:-8])
    log = load(spark, str(tmp_path / "a.jsonl.gz"))
    assert [r["error_class"] for r in log.quarantine.collect()] == ["damaged-gzip"]
    assert log.events.select("offset").distinct().count() == 50


def test_a_parquet_file_cut_short_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Its footer was at its end; the other files of the folder do not make it whole."""
    parquet(tmp_path / "a", OF_0[:50])
    parquet(tmp_path / "b", OF_0[50:99])
    whole = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match=r"b\.parquet is no whole Parquet file"):
        load(spark, str(tmp_path))


def held(**files: list[tuple[int, int]]) -> dict[str, dict[tuple[str, int], list[tuple[int, int]]]]:
    """Runs of partition 0 of t, by file."""
    return {file: {("t", 0): runs} for file, runs in files.items()}


def test_what_several_files_hold_belongs_to_the_first() -> None:
    """What of it was held before, each offset is left out of every later file."""
    found = stretches(held(a=[(0, 9)], b=[(5, 14)], c=[(0, 20)]), "abc")
    assert [(s.later, s.earlier, s.run) for s in found] == [
        ("b", ("a",), (5, 9)), ("c", ("a", "b"), (0, 14)),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(100))
def test_repetitions_are_what_an_earlier_file_holds(seed: int) -> None:
    """Of files drawn at random, reported offset by offset: each names the files that hold its offsets first."""
    r = random.Random(seed)
    order = [f"f{i}" for i in range(r.randint(2, 6))]
    runs = held(**{f: united((a := r.randint(0, 30), a + r.randint(0, 8)) for _ in range(4)) for f in order})
    first: dict[int, str] = {}
    for file in order:
        offsets = [o for a, b in runs[file]["t", 0] for o in range(a, b + 1)]
        found = [s for s in stretches(runs, order) if s.later == file]
        assert [o for s in found for o in range(s.run[0], s.run[1] + 1)] == [o for o in offsets if o in first]
        for s in found:
            assert set(s.earlier) == {first[o] for o in range(s.run[0], s.run[1] + 1)}
        first = dict.fromkeys(offsets, file) | first


def test_a_folder_of_copies_costs_no_more_than_their_number() -> None:
    """Found here: what 2,000 copies of one recording had in common, each with each, filled 22 GB."""
    runs, found = held(**{f"f{i:05}": [(0, 49)] for i in range(20_000)}), []
    assert lines_run(lambda: found.extend(stretches(runs, list(runs)))) < 100 * len(runs)
    assert len(found) == 19_999 and {s.earlier for s in found} == {("f00000",)}
    by_place = {}
    assert lines_run(lambda: by_place.update(numbered(found))) < 100 * len(runs)
    assert sum(map(len, by_place.values())) == 2 * 19_999


def test_repetitions_of_many_files_are_found_in_a_moment() -> None:
    """What each of 3,000 files repeats of a long one, in pairs too; holes beside them all."""
    runs = held(long=[(0, 59_999)]) | held(**{f"f{i:04}": [(20 * i, 20 * i + 9)] for i in range(3_000)})
    order = sorted(runs, key=lambda name: (name != "long", name))
    assert lines_run(lambda: (stretches(runs, order), stretches(runs, order[::-1]))) < 200 * len(runs)
    assert [(s.later, s.earlier, s.run) for s in stretches(runs, order)] == [
        (f"f{i:04}", ("long",), (20 * i, 20 * i + 9)) for i in range(3_000)
    ]
    found = stretches(runs, order[::-1])
    assert len(found) == 3_000 and {s.later for s in found} == {"long"} and found[0].earlier == ("f0000",)
    del runs["long"]
    assert len(stretches(runs | held(again=runs["f0007"]["t", 0]), [*order[1:], "again"])) == 1
    assert len(holes(runs, order[1:])) == 2_999 and lines_run(lambda: holes(runs, order[1:])) < 300 * len(runs)


def test_a_hole_within_one_recording_is_none_between_files() -> None:
    """Only what lies between the end of one file and the beginning of the next."""
    assert not holes(held(a=[(0, 9), (12, 20)], b=[(21, 30)]), "ab")
    [(hole, said)] = holes(held(a=[(0, 9)], b=[(12, 20)]), "ab").items()
    assert hole == (("t", 0), (10, 11)) and "offsets 10 to 11, between a and b" in said


def test_places_in_files_of_a_storage_folder_leave_no_hole() -> None:
    """A copy of one holds the bytes at which its rows lay, in files that follow one another."""
    first, second = 1 << FILE_BITS, 2 << FILE_BITS
    assert not holes(held(a=[(first, first + 3), (first + 90, first + 91)], b=[(second, second + 1)]), "ab")


def test_what_tasks_say_of_parts_of_a_file_is_put_together() -> None:
    """In any order, with holes, and a message without a place is nowhere."""
    columns = {"topic": ["t", "t", "u", None], "partition": pa.array([0, 0, 1, None], pa.int32())}
    one, other = Held(), Held()
    one.note("a", pa.RecordBatch.from_pydict(columns | {"offset": [3, 4, 7, None]}))
    one.note("a", pa.RecordBatch.from_pydict(columns | {"offset": [5, 9, 8, None]}))
    other.note("a", pa.RecordBatch.from_pydict(columns | {"offset": [6, 7, 9, None]}))
    runs = whole_runs([one.said(), other.said()])
    assert runs == {"a": {("t", 0): [(3, 7), (9, 9)], ("u", 1): [(7, 9)]}}
    assert overlaps_of(runs, ["a"], lambda *_: ()).skips == {}
