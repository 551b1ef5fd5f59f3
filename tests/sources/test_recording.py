"""A recording loses and doubles nothing, wherever its process ends, and no file looks whole that is not."""

from __future__ import annotations

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from conftest import ROOT, golden
from pyspark.sql import SparkSession
from topics import mock_cluster, numbered, recorded, send

from ticdc_lab.cli import main
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.errors import SourceError
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.sources import record as log_recording
from ticdc_lab.sources import recording as module
from ticdc_lab.sources.kafka import topics_of
from ticdc_lab.sources.kafka_reading import TopicReader
from ticdc_lab.sources.places import left_out
from ticdc_lab.sources.record import RecordingProgress, record_topic
from ticdc_lab.sources.recording import Recording, RecordingState, parts_of

N, STEP = 60, 7
OUTS = ("t.jsonl.gz", "t.jsonl", "t.parquet", "lines", "parquet")


class Killed(BaseException):
    """The process ends here."""


def batch(first: int, end: int) -> pa.RecordBatch:
    """Messages of one partition that hold their offsets."""
    rows = [{"topic": "t", "partition": 0, "offset": o, "value": b"%06d" % o} for o in range(first, end)]
    return pa.RecordBatch.from_pylist(rows, arrow_schema(MESSAGES))


def recording_at(out: Path) -> Recording:
    """A recording of N messages that commits each 14 and gives a folder a file each 28."""
    form = "parquet" if out.name == "parquet" else "jsonl.gz"
    return Recording(str(out), source="s", form=form, rotate_bytes=28 * 6)


def run(out: Path) -> None:
    """Record, or continue."""
    own = recording_at(out)
    own.go_on()
    if not own.begun:
        own.begin(RecordingState("s", positions={("t", 0): 0}))
    while (at := own.so_far.positions["t", 0]) < N:
        own.write(batch(at, min(N, at + STEP)), {("t", 0): min(N, at + STEP)})
    own.finish()


def offsets(out: Path) -> list[int]:
    """Those in all files that have their names; each of them is whole."""
    found: list[int] = []
    for file in parts_of(out) if out.is_dir() else [out] if out.exists() else []:
        if file.suffix == ".parquet":
            found += pq.read_table(file)["offset"].to_pylist()
            continue
        text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        assert not text or text.endswith(b"\n")
        found += [json.loads(line)["offset"] for line in text.splitlines()]
    return found


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit after few messages; and ask the mock cluster for no ids of topics, which it has not."""
    monkeypatch.setattr(module, "COMMIT_BYTES", 14 * 6)
    monkeypatch.setattr(TopicReader, "ids", lambda self: {})


@pytest.mark.parametrize("name", OUTS)
def test_wherever_it_ends_nothing_is_lost_or_doubled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """Before and after each step that makes something durable, a second end while it continues included."""
    replace, truncate = Path.replace, os.truncate
    left, after = 0, False

    def step(act: Any, *args: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not after:
            raise Killed
        done = act(*args)
        if left == 0:
            raise Killed
        return done

    monkeypatch.setattr(module.os, "fsync", lambda file: step(lambda _: None, file))  # a second for each run, else
    monkeypatch.setattr(module.os, "truncate", lambda *of: step(truncate, *of))
    monkeypatch.setattr(Path, "replace", lambda *of: step(replace, *of))
    for n in count(1):
        out = tmp_path / f"{n}" / name
        out.parent.mkdir()
        ends = 0
        for left, after in ((n, n % 2 == 0), (1 + n % 5, n % 3 == 0)):  # noqa: B007  both are what `step` sees
            try:
                run(out)
            except Killed:
                ends += 1
                there = offsets(out)
                assert there == list(range(len(there))) and (len(there) in (0, N) or out.is_dir())
            else:
                break
        left = 0
        if ends == 0:
            assert n > 10
            break
        if ends == 2 or not (out.is_file() and offsets(out)):
            run(out)
        assert offsets(out) == list(range(N)), n
        assert not list(out.parent.rglob("*.part*")) and (not out.is_dir() or len(list(parts_of(out))) > 1)


CHILD = """
import os, signal, sys
from pathlib import Path
from threading import Thread
from ticdc_lab.sources import recording
from ticdc_lab.sources.kafka import topics_of
from ticdc_lab.sources.places import left_out
from ticdc_lab.sources.record import record_topic
left, fsync, recording.COMMIT_BYTES = int(sys.argv[3]), os.fsync, 20_000
def fatal(file):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(file)
os.fsync = fatal
source, out = sys.argv[1:3]
own = recording.Recording(out, source=source, rotate_bytes=50_000)
record_topic(topics_of(source), own)
"""


def killed(source: str, out: Path, step: int) -> bool:
    """Record in a process of its own, which is killed at its ``step``-th step; whether it came that far."""
    child = subprocess.run([sys.executable, "-c", CHILD, source, str(out), str(step)], cwd=ROOT, check=False)
    assert child.returncode in (0, -signal.SIGKILL)
    return child.returncode != 0


@pytest.mark.parametrize(
    "steps", [(3, 9), pytest.param(tuple(range(1, 40)), marks=pytest.mark.soak)], ids=["two", "all"]
)
def test_a_killed_process_is_gone_on_with(tmp_path: Path, steps: tuple[int, ...]) -> None:
    """SIGKILL while a topic is recorded, again and again: the same command continues, each message once."""
    with mock_cluster() as servers:
        send(servers, "t", numbered(4_000, 4, size=50))
        source, out = f"kafka://{servers}/t", tmp_path / "out"
        assert sum(killed(source, out, step) for step in steps) > 0
        record_topic(topics_of(source), Recording(str(out), source=source))
    rows = [row for file in parts_of(out) for row in recorded(file)]
    assert sorted(row["value"] for row in rows) == [m["value"] for m in numbered(4_000, 4, size=50)]
    assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows) == 4_000


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Give a mock cluster whose topic ``t`` has 400 messages; no more than one a second has the same time."""
    with mock_cluster() as found:
        send(found, "t", [m | {"timestamp": 1_700_000_000_000 + 1000 * i} for i, m in enumerate(numbered(400, 4))])
        yield found


def record(servers: str, out: Path, **how: Any) -> RecordingProgress:
    """Record the topic ``t``."""
    source = f"kafka://{servers}/t"
    return record_topic(topics_of(source), Recording(str(out), source=source), **how)


def test_a_topic_is_recorded_as_it_is(servers: str, tmp_path: Path) -> None:
    """Place, time, key and value of each message, and between two offsets only those."""
    assert record(servers, tmp_path / "t.jsonl.gz").messages == 400
    rows = recorded(tmp_path / "t.jsonl.gz")
    assert [(r["partition"], r["offset"]) for r in rows] == [(p, o) for p in range(4) for o in range(100)]
    by_value = {m["value"]: m for m in numbered(400, 4)}
    assert all(r["key"] == by_value[r["value"]]["key"] and r["headers"] == [] for r in rows)
    assert [r["timestamp"] for r in rows[:2]] == [1_700_000_000_000, 1_700_000_004_000]
    assert record(servers, tmp_path / "some.parquet", first="10", last="12").messages == 8
    assert sorted(set(pq.read_table(tmp_path / "some.parquet")["offset"].to_pylist())) == [10, 11]
    assert record(servers, tmp_path / "none.jsonl", first="now").messages == 0
    assert (tmp_path / "none.jsonl").read_bytes() == b""


def test_a_folder_is_gone_on_with_and_a_file_is_not(servers: str, tmp_path: Path) -> None:
    """What is there is never replaced, nor mixed with the recording of something else."""
    for _ in range(2):
        assert record(servers, tmp_path / "out", first="90", last="95").messages == 20 or _ == 1
    assert len([row for file in parts_of(tmp_path / "out") for row in recorded(file)]) == 40, (
        "up to now, the second time"
    )
    with pytest.raises(SourceError, match="contains a recording of kafka"):
        Recording(str(tmp_path / "out"), source="another")
    (tmp_path / "mine.jsonl").write_text("mine")
    with pytest.raises(SourceError, match="exists and is not a recording"):
        record(servers, tmp_path / "mine.jsonl")
    (tmp_path / "out" / module.STATE).write_text("{}")
    with pytest.raises(SourceError, match="cannot be read"):
        record(servers, tmp_path / "out")


def test_a_folder_whose_recording_has_not_ended_is_a_limit(servers: str, tmp_path: Path) -> None:
    """A folder looks whole to its reader: each answer shows that it is not."""
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        record(servers, out, stopped=lambda: True)
    assert "is incomplete" in left_out(str(out))[0]
    record(servers, out)
    assert left_out(str(out)) == ()


def test_one_that_is_followed_ends_when_it_is_stopped(servers: str, tmp_path: Path) -> None:
    """Then it is whole; one that has an end and is stopped before it continues. Time gives a folder a file."""
    told: list[RecordingProgress] = []
    clock = count()
    with mock_cluster() as own:
        send(own, "t", numbered(5))
        more = iter([numbered(5), []])

        def stopped() -> bool:
            new = next(more, None)
            if new:
                send(own, "t", new)
            return bool(told) and told[-1].messages == 10

        done = record(
            own,
            tmp_path / "out",
            follow=True,
            said=told.append,
            stopped=stopped,
            rotate_s=1,
            now=lambda: float(next(clock)),
        )
    assert done.messages == 10 and len(list(parts_of(tmp_path / "out"))) >= 2
    assert told[-1].words.startswith("10 messages") and "0 behind the broker" in told[-1].words
    with pytest.raises(KeyboardInterrupt):
        record(servers, tmp_path / "t.jsonl", stopped=lambda: True)
    assert not (tmp_path / "t.jsonl").exists()
    assert (
        record(servers, tmp_path / "t.jsonl").messages == 400 == len((tmp_path / "t.jsonl").read_bytes().splitlines())
    )


def test_what_the_broker_deleted_is_noted(tmp_path: Path) -> None:
    """As lost offsets, with the partition; a partition that ends too early, or another topic of that name, ends it."""
    with mock_cluster() as servers:
        send(servers, "t", numbered(12_000, 1, size=1_000))  # the mock cluster keeps 5 MB
        out, source = tmp_path / "out", f"kafka://{servers}/t"
        own = Recording(str(out), source=source)
        own.begin(RecordingState(source, positions={("t", 0): 5}, ends={("t", 0): 11_000}))
        done = record(servers, out)
        assert (
            done.is_lacking
            and done.messages < 11_000
            and done.notes[0].startswith("Partition 0 of t: the broker deleted ")
        )
        own.begin(RecordingState(source, positions={("t", 0): 11_990}, ends={("t", 0): 99_000}))
        with pytest.raises(SourceError, match="ends at offset 12000, before 99000"):
            record(servers, out)
        assert Recording(str(out), source=source).state.positions["t", 0] == 12_000


def test_a_topic_that_was_made_anew_is_not_gone_on_with(
    servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offsets are the ones of other messages."""
    for made in ("first", "second"):
        monkeypatch.setattr(TopicReader, "ids", lambda self, made=made: {"t": made})
        if made == "first":
            with pytest.raises(KeyboardInterrupt):
                record(servers, tmp_path / "t.jsonl", stopped=lambda: True)
        else:
            with pytest.raises(SourceError, match="deleted and recreated"):
                record(servers, tmp_path / "t.jsonl")


def test_a_full_disk_is_named_and_gone_on_after(servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written whole stays, and no file has its name."""
    with monkeypatch.context() as full:

        def put(self: object, text: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(module.LinesPart, "_put", put)
        with pytest.raises(SourceError, match="No space is left"):
            record(servers, tmp_path / "t.jsonl.gz")
    assert not (tmp_path / "t.jsonl.gz").exists()
    assert record(servers, tmp_path / "t.jsonl.gz").messages == 400 == len(recorded(tmp_path / "t.jsonl.gz"))


def test_a_log_of_another_form_becomes_a_capture_file(spark: SparkSession, tmp_path: Path) -> None:
    """Every message with its time and headers, once; lines that are none are counted, and reported by the exit code."""
    log, lines = golden("messages_canal-json-tidb_small.jsonl.gz"), tmp_path / "in"
    lines.mkdir()
    text = gzip.decompress(log.read_bytes()).splitlines(keepends=True)
    (lines / "a.jsonl").write_bytes(b"".join(text[:1500]) + b"no message\n")
    (lines / "b.jsonl").write_bytes(b"".join(text[1400:]))
    made = CliRunner().invoke(main, ["record", str(lines), "--out", str(tmp_path / "t.parquet"), "--json"], obj=spark)
    told = json.loads(made.stdout)
    assert (made.exit_code, told["messages"]) == (1, len(text)) and "1 line contains no message" in told["notes"][0]
    for source, out in (("t.parquet", "t.jsonl.gz"), ("t.jsonl.gz", "u.jsonl")):
        args = ["record", str(tmp_path / source), "--out", str(tmp_path / out)]
        again = CliRunner().invoke(main, args, obj=spark)
        assert again.exit_code == 0, again.output
    of = [json.loads(line) for line in (tmp_path / "u.jsonl").read_text().splitlines()]
    names = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    kept = sorted(
        ([row.get(n, [] if n == "headers" else None) for n in names] for row in map(json.loads, text)),
        key=lambda r: (r[1], r[2]),
    )
    assert sorted(([row[n] for n in names] for row in of), key=lambda r: (r[1], r[2])) == kept


def test_messages_of_a_partition_are_recorded_in_the_order_of_their_offsets(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Parquet file may contain them in another order: each partition keeps its slots, and no content changes."""
    log = golden("messages_canal-json-tidb_small.jsonl.gz")
    rows = [json.loads(line) for line in gzip.decompress(log.read_bytes()).splitlines()]
    source, out = tmp_path / "s.parquet", tmp_path / "o.parquet"
    found = CliRunner().invoke(main, ["record", str(log), "--out", str(source)], obj=spark)
    assert found.exit_code == 0, found.output
    whole = pq.read_table(source)
    cut = len(rows) // 3
    mixed = pa.concat_tables([whole.slice(2 * cut), whole.slice(cut, cut), whole.slice(0, cut)])
    pq.write_table(mixed, source)

    def recorded_as() -> pa.Table:
        assert CliRunner().invoke(main, ["record", str(source), "--out", str(out)], obj=spark).exit_code == 0
        table = pq.read_table(out)
        out.unlink()
        return table

    def going_back(table: pa.Table) -> int:
        last, n = dict[int, int](), 0
        for partition, offset in zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True):
            n += offset < last.get(partition, -1)
            last[partition] = offset
        return n

    made, by = recorded_as(), [("partition", "ascending"), ("offset", "ascending")]
    assert going_back(made) == 0 and made["partition"] == mixed["partition"]
    assert made.sort_by(by).equals(whole.cast(made.schema).sort_by(by))
    monkeypatch.setattr(log_recording, "_GOES_BACK", "SELECT 1 WHERE ? IS NULL")  # planted: the order is never checked
    assert going_back(recorded_as()) > 0


def test_what_a_dump_cannot_tell_is_said_and_no_failure(spark: SparkSession, tmp_path: Path) -> None:
    """All that it has is recorded."""
    source = ROOT / "tests/data/dumps/canal-json.console-values.jsonl"
    found = CliRunner().invoke(main, ["record", str(source), "--out", str(tmp_path / "d.jsonl")], obj=spark)
    assert found.exit_code == 0 and "28 messages" in found.output and "no offsets" in found.output


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--follow"], "only a topic"),
        (["--rotate-every", "soon"], "expected a number above 0 with one of s, m, min, h, d"),
        (["--rotate-size", "0"], "expected a number above 0 with one of K, M, G"),
        (["--source-kind", "storage"], "storage sink"),
    ],
)
def test_what_cannot_be_recorded_is_said(spark: SparkSession, tmp_path: Path, args: list[str], said: str) -> None:
    """Before anything is written."""
    out = tmp_path / "o.jsonl"
    source = str(golden("messages_open-protocol_small.jsonl.gz"))
    found = CliRunner().invoke(main, ["record", source, "--out", str(out), *args], obj=spark)
    assert found.exit_code == 2 and said in found.output and not out.exists()


@pytest.mark.parametrize("kind", ["/dev/null", "pipe"])
def test_a_device_gets_lines_as_they_come(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """It stays what it is, nothing lies beside it, and the counts are shown, as often as it is asked for."""
    source, out, got = str(golden("messages_open-protocol_small.jsonl.gz")), kind, list[bytes]()
    if kind == "pipe":
        out = str(tmp_path / "pipe")
        os.mkfifo(out)
        Thread(target=lambda: got.extend(Path(out).read_bytes().splitlines()), daemon=True).start()
    found = CliRunner().invoke(main, ["record", source, "--out", out], obj=spark)
    assert found.exit_code == 0 and "1,470 messages" in found.output
    if kind == "pipe":
        assert [p.name for p in tmp_path.iterdir()] == ["pipe"] and Path(out).is_fifo()
    else:
        assert not list(Path("/dev").glob(".null*"))
        assert CliRunner().invoke(main, ["record", source, "--out", out], obj=spark).exit_code == 0


def test_a_topic_is_thrown_away_into_a_device() -> None:
    """What is committed and rotated has no place there."""
    own = Recording("/dev/null", source="s", rotate_bytes=1)
    own.begin(RecordingState("s", positions={("t", 0): 0}))
    own.write(batch(0, 9), {("t", 0): 9})
    own.commit()
    own.write(batch(9, 20), {("t", 0): 20})
    own.finish()
    assert own.state.done and own.state.messages == 20 and not own.begun
