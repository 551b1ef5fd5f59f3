"""Recordings and dumps of other tools under a watch: they grow, are cut anywhere, replaced, rotated and moved away."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import ROOT, golden

from ticdc_lab.cli import main
from ticdc_lab.errors import NoAnswerError, NoTopicError, SourceError
from ticdc_lab.watch import recorded, running
from ticdc_lab.watch.recorded import RecordedTopic
from ticdc_lab.watch.running import Watch

DUMPS = ROOT / "tests/data/dumps"
LOG = "messages_canal-json-tidb_small-dup-restart.jsonl.gz"
GROWING = (
    "canal-json.kcat-J.jsonl", "open-protocol.kcat-J.jsonl", "simple.kcat-J.jsonl", "canal-json.kcat-f.txt",
    "canal-json.console-all.txt", "canal-json.console-values.jsonl", "canal-json.jsonl.gz",
)  # fmt: skip
OPTIONS = {"canal-json.kcat-f.txt": {"format": r"%t %p %o %T %k %s\n"}}


def watched(source: Path, state: Path, **more: Any) -> Watch:
    """A watch that has gone to its end."""
    watch = Watch(str(source), str(state), once=True, **more)
    watch.run()
    return watch


def counted(watch: Watch) -> tuple[int, int, int]:
    """Messages, row changes, and messages that could not be read."""
    counts = watch.view.counts
    return counts.messages, counts.rows, sum(counts.quarantined.values())


def lines(n: int) -> list[bytes]:
    """The first lines of a recording."""
    return gzip.decompress(golden(LOG).read_bytes()).splitlines(keepends=True)[:n]


def of_another(line: bytes) -> bytes:
    """A line with another value."""
    return line.replace(b'"value":"', b'"value":"AAAA')


def followed(file: Path, grow: Callable[[int], bool], **more: Any) -> Iterator[dict[str, Any]]:
    """The messages of a recording that is followed; ``grow`` changes it before each look, or is False at the end."""
    clock, n = [0.0], 0

    def sleep(seconds: float) -> None:
        clock[0] += 10.0

    source = RecordedTopic(str(file), follow=True, now=lambda: clock[0], sleep=sleep, **more)
    for messages, bad in source.batches({}, once=False):
        yield from messages.to_pylist()
        yield from [] if bad is None else bad.to_pylist()
        if not messages.num_rows and (bad is None or not bad.num_rows):
            n += 1
            if not grow(n):
                return


@pytest.mark.parametrize("name", GROWING)
def test_a_dump_is_watched_as_the_recording_of_its_topic(name: str, tmp_path: Path) -> None:
    """In any form, with every message; what the form does not have is listed, and the checks that need it are named."""
    whole = watched(DUMPS / name, tmp_path / "dump", options=OPTIONS.get(name, {}))
    topic = watched(DUMPS / f"{name.partition('.')[0]}.jsonl.gz", tmp_path / "recording")
    n, rows, unread = counted(topic)
    assert unread == 0 and counted(whole) == (n, rows, unread)
    has_places = "values" not in name
    assert whole._watched.lost.isdisjoint({"partition", "offset"}) == has_places
    why = "the dump does not contain the partition of a message"
    assert (whole.view.not_watched.get("rows_stay_in_one_partition") == why) != has_places
    assert any("has no partitions" in note for note in whole.view.notes) != has_places


@pytest.mark.parametrize("name", [n for n in GROWING if not n.endswith(".gz")])
@pytest.mark.parametrize("step", [1, 700, 4096])
def test_a_dump_that_grows_is_followed_wherever_its_writer_is(name: str, step: int, tmp_path: Path) -> None:
    """A tool writes what is in its buffer, which ends in the middle of a line: each message is read once, and whole."""
    data, file = (DUMPS / name).read_bytes(), tmp_path / name
    begin = len(data) - 60 * step if step == 1 else 3_000
    file.write_bytes(data[:begin])

    def grow(n: int) -> bool:
        if begin + (n - 1) * step < len(data):
            file.write_bytes(data[: begin + n * step])
        return begin + (n - 3) * step < len(data)  # once more when it is whole, and idle

    seen = list(followed(file, grow, options=OPTIONS.get(name, {})))
    place = ("partition", "offset", "key", "value")
    source = RecordedTopic(str(DUMPS / name), options=OPTIONS.get(name, {}))
    alone = [m for messages, _ in source.batches({}, once=True) for m in messages.to_pylist()]
    assert [[m[n] for n in place] for m in seen] == [[m[n] for n in place] for m in alone]
    assert not any("error_class" in m for m in seen)


def test_lines_of_a_terminal_do_not_shift_what_is_appended_behind_them(tmp_path: Path) -> None:
    """The number of a line is an offset there, and such lines are none."""
    some, file = (DUMPS / "canal-json.console-values.jsonl").read_bytes().splitlines(keepends=True), tmp_path / "values"
    file.write_bytes(b"".join([*some[:3], b"SLF4J: Class path contains multiple SLF4J bindings.\n", *some[3:5]]))

    def grow(n: int) -> bool:
        with file.open("ab") as f:
            f.write(b"$ kcat -C -t t\n" + b"".join(some[5:9]) if n == 1 else b"")
        return n < 3

    assert [(m["offset"], m["value"] + b"\n") for m in followed(file, grow)] == [*enumerate(some[:9])]


@pytest.mark.parametrize("name", ["canal-json.kcat-f.txt", "canal-json.console-all.txt", "canal-json.jsonl.gz"])
def test_a_followed_dump_whose_last_record_was_read_is_resumed(name: str) -> None:
    """It may continue, so that the second look alone reads it: the dump is no shorter one."""
    clock = [0.0]

    def begun() -> RecordedTopic:
        def sleep(seconds: float) -> None:
            clock[0] += 10.0

        given = OPTIONS.get(name, {})
        return RecordedTopic(str(DUMPS / name), follow=True, options=given, now=lambda: clock[0], sleep=sleep)

    def read(source: RecordedTopic, positions: dict[tuple[str, int], int]) -> list[int]:
        found, looks = list[int](), 0
        for messages, _ in source.batches(positions, once=False):
            found += messages["offset"].to_pylist()
            looks += not messages.num_rows
            if looks == 4:
                break
        return found

    first, again = begun(), begun()
    assert read(first, {})
    again.resume(first.cursor())
    assert not read(again, dict(first.positions)) and again.positions == first.positions


def test_a_writer_that_pauses_inside_a_value_of_several_lines_gives_no_part_of_it(tmp_path: Path) -> None:
    """Its buffer ends anywhere. Behind a line of the value, which may be its last one, the quarantine shows what was
    read too early.
    """
    records = [f"t 0 {o} 17000000000{o:02d} k{o} v{o}a\nv{o}b\nv{o}c\n".encode() for o in range(4)]
    data, begin, more = b"".join(records), len(records[0]), {"options": {"format": r"%t %p %o %T %k %s\n"}}
    for cut in range(begin, begin + len(records[1]) + 1):
        file = tmp_path / str(cut)
        file.write_bytes(data[:cut])

        def grow(n: int, file: Path = file) -> bool:
            return n < 9 and bool(n != 4 or file.write_bytes(data))

        seen = list(followed(file, grow, **more))
        values = [m["value"] for m in seen if "reason" not in m]
        ends_a_line = data[:cut].endswith((b"v1a\n", b"v1b\n"))
        assert (values == [f"v{o}a\nv{o}b\nv{o}c".encode() for o in range(4)]) != ends_a_line, data[:cut]
        said = [m["reason"] for m in seen if "reason" in m]
        assert len(said) == ends_a_line and all(f"ends at byte {cut} was read" in reason for reason in said)


def test_a_packed_recording_that_grows_gives_each_line_once(tmp_path: Path) -> None:
    """It is read as a whole each time, and one that comes later once nothing writes it any more."""
    some, folder = lines(6), tmp_path / "log"
    folder.mkdir()
    parts = [gzip.compress(b"".join(part)) for part in ([*some[:2], b"{no\n"], some[2:4], [*some[4:], b"{no\n"])]
    (folder / "t-1.jsonl.gz").write_bytes(parts[0])

    def grow(n: int) -> bool:
        if n == 1:
            (folder / "t-1.jsonl.gz").write_bytes(parts[0] + parts[1])
        if n in (3, 4):
            (folder / "t-2.jsonl.gz").write_bytes(parts[2][: 40 if n == 3 else None])
        return n < 8

    seen = list(followed(folder, grow))
    assert len([m for m in seen if "reason" not in m]) == len(some)
    assert [m["value"] for m in seen if "reason" in m] == [b"{no"] * 2


def test_a_file_that_comes_to_a_folder_is_read_and_a_rotated_one_goes_on(tmp_path: Path) -> None:
    """`dump` becomes `dump.1`, and a new file continues: nothing is read twice or left out."""
    some = (DUMPS / "canal-json.kcat-J.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "dump").write_bytes(b"".join(some[:10]))

    def grow(n: int) -> bool:
        if n == 1:
            (tmp_path / "dump").rename(tmp_path / "dump.1")
            (tmp_path / "dump").write_bytes(b"".join(some[10:15]))
        if n == 2:
            (tmp_path / "dump").write_bytes(b"".join(some[10:]))
        return n < 4

    seen = [(m["partition"], m["offset"]) for m in followed(tmp_path, grow)]
    assert seen == [(m["partition"], m["offset"]) for m in map(json.loads, some)]


def test_a_dump_that_is_moved_away_is_waited_for_and_named(tmp_path: Path) -> None:
    """The source does not answer then, as a broker that is away; a line that is no message is one, wherever it is."""
    some = (DUMPS / "canal-json.kcat-J.jsonl").read_bytes().splitlines(keepends=True)
    file = tmp_path / "dump.jsonl"
    file.write_bytes(b"".join(some[:10]))
    with pytest.raises(NoAnswerError, match=r"dump\.jsonl cannot be read any more"):
        list(followed(file, lambda n: bool(file.unlink() or True)))
    file.write_bytes(b"".join(some[:3]))
    odd = b"".join([*some[:3], b"{no\n", *some[3:9]])
    bad = [m["reason"] for m in followed(file, lambda n: bool(file.write_bytes(odd)) and n < 3) if "reason" in m]
    assert len(bad) == 1 and "line 4" in bad[0]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (lambda all_: all_[:20], r"was read up to offset \d+, and ends at \d+ now"),
        (lambda all_: [of_another(line) for line in all_], "is another one"),
        (lambda all_: [of_another(line) for line in lines(80)], "is another one"),
    ],
)
def test_a_recording_that_was_replaced_is_refused(changed: Any, words: str, tmp_path: Path) -> None:
    """By a shorter one, by another of the same length or a longer one: its messages are never taken for those read."""
    file, all_ = tmp_path / "t.jsonl", lines(60)
    file.write_bytes(b"".join(all_))
    watched(file, tmp_path / "state")
    file.write_bytes(b"".join(changed(all_)))
    with pytest.raises(SourceError, match=words) as refused:
        watched(file, tmp_path / "state")
    assert "--state OTHER" in str(refused.value)
    file.write_bytes(b"".join(lines(80)))  # it was restored, and continues
    assert counted(watched(file, tmp_path / "state"))[0] == 80


def test_a_recording_may_be_packed_again_and_its_read_files_may_go(tmp_path: Path) -> None:
    """The messages count, not the bytes: another packing is the same recording; a gap is what the offsets show."""
    folder, state, all_ = tmp_path / "log", tmp_path / "state", lines(90)
    folder.mkdir()
    (folder / "t-1.jsonl").write_bytes(b"".join(all_[:40]))
    (folder / "t-2.jsonl").write_bytes(b"".join(all_[40:60]))
    watched(folder, state)
    (folder / "t-1.jsonl").unlink()
    (folder / "t-2.jsonl").unlink()
    (folder / "t-2.jsonl.gz").write_bytes(gzip.compress(b"".join(all_[40:60])))
    (folder / "t-3.jsonl.gz").write_bytes(gzip.compress(b"".join(all_[60:])))
    assert counted(watched(folder, state))[0] == 90


def test_a_watch_of_a_followed_dump_ends_with_its_findings(tmp_path: Path) -> None:
    """From the command line: `--follow --once` reads up to the last whole line; the next one resumes there."""
    data = (DUMPS / "canal-json.kcat-J.jsonl").read_bytes()
    file, seen = tmp_path / "dump", []
    for n in (len(data) // 2, len(data)):
        file.write_bytes(data[:n])
        words = ["watch", str(file), "--follow", "--once", "--json", "--state", str(tmp_path / "state")]
        done = CliRunner().invoke(main, words)
        assert done.exit_code in (0, 1), done.output
        seen.append(json.loads(done.stdout)["unchecked"].get("quarantined", 0))
    assert seen == [0, 0]


def test_a_line_that_is_no_message_is_counted_where_reading_ends_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no offset by which it would be read again, as messages are."""
    for name in ("POLL_S", "IDLE_S"):
        monkeypatch.setattr(recorded, name, 0.0)
    monkeypatch.setattr(running, "RETRY_S", 0.0)
    appended, failures = RecordedTopic._appended, [OSError(5, "Input/output error", "t.jsonl")]

    def torn(self: RecordedTopic, before: Any) -> Iterator[Any]:
        for found in appended(self, before):
            yield found
            if failures:
                raise failures.pop()

    monkeypatch.setattr(RecordedTopic, "_appended", torn)
    file, some = tmp_path / "t.jsonl", lines(40)
    file.write_bytes(b"".join([*some, b"{no\n"]))
    with Watch(str(file), str(tmp_path / "state"), follow=True) as watch:
        while (failures or watch.view.counts.messages < 41) and not watch.wait(0.01):
            pass
    assert counted(watch)[2] == 1


@pytest.mark.parametrize("lasts", [False, True])
def test_a_topic_that_is_deleted_beside_another_ends_the_watch(
    lasts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of the other still come, so that a look alone shows it; a broker may forget it once."""
    for name in ("POLL_S", "IDLE_S"):
        monkeypatch.setattr(recorded, name, 0.0)
    monkeypatch.setattr(running, "RETRY_S", 0.0)
    monkeypatch.setattr(running, "LOOK_S", -1.0)
    file, asked, said, batches = tmp_path / "t.jsonl", list[int](), list[str](), RecordedTopic.batches
    file.write_bytes(b"".join(lines(20)))

    def spans(self: RecordedTopic) -> dict[Any, Any]:
        asked.append(1)
        if len(asked) > 2 if lasts else len(asked) == 3:
            raise NoTopicError("127.0.0.1:9092 has no topic gone (Broker: Unknown topic or partition).")
        return {}

    def asks_first(self: RecordedTopic, positions: Any, *, once: bool) -> Iterator[Any]:
        self.spans()  # as a topic does
        yield from batches(self, positions, once=once)

    monkeypatch.setattr(RecordedTopic, "spans", spans)
    monkeypatch.setattr(RecordedTopic, "batches", asks_first)
    watch = Watch(str(file), str(tmp_path / "state"), follow=True, said=said.append)
    if lasts:
        with pytest.raises(NoTopicError, match="has no topic gone"):
            watch.run()
        assert len(asked) == 2 + running.RETURNS and watch.view.trouble.startswith("The watch ended: ")
        assert len(said) == 1 and "has no topic gone" in said[0]
    else:
        watch.run(stopped=lambda: len(asked) > 6)
        assert not watch.view.trouble and said[1:] == [f"{file} answers again."]


def test_a_watch_that_is_ended_while_it_waits_says_no_more_that_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends at once, and `status` shows why nothing was read, and not that it is asked again."""
    file, state = tmp_path / "t.jsonl", str(tmp_path / "state")
    file.write_bytes(b"".join(lines(20)))
    watched(file, tmp_path / "state")
    said = list[str]()
    watch = Watch(str(file), state, follow=True, said=said.append)
    monkeypatch.setattr(RecordedTopic, "_look_again", lambda self: (_ for _ in ()).throw(NoAnswerError("It is away.")))
    watch.run(stopped=lambda: bool(said))
    assert said == [f"It is away. It is asked again every {running.RETRY_S:.0f} s."]
    shown = CliRunner().invoke(main, ["watch", "status", "--state", state]).stdout
    assert "  It is away.\n" in shown and "asked again" not in shown


def test_a_watch_reports_once_what_it_waits_for_and_that_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dump that is moved away is asked for again; one that was cut ends the watch, and `status` shows why."""
    for name in ("POLL_S", "IDLE_S"):
        monkeypatch.setattr(recorded, name, 0.0)
    monkeypatch.setattr(running, "RETRY_S", 0.0)
    file, state, said, away = tmp_path / "t.jsonl", str(tmp_path / "state"), list[str](), tmp_path / "away"
    file.write_bytes(b"".join(lines(40)))
    watched(file, tmp_path / "state")
    watch = Watch(str(file), state, follow=True, said=said.append).__enter__()
    while not watch.view.batches_s and not watch.view.caught_up and not watch.wait(0.01):
        pass
    file.rename(away)
    while len(said) < 1 and not watch.wait(0.01):
        pass
    away.rename(file)
    while len(said) < 2 and not watch.wait(0.01):
        pass
    away.write_bytes(b"".join(lines(20)))
    away.rename(file)  # at once: it is never empty
    with pytest.raises(SourceError, match="was replaced or cut"):
        watch.wait()
    assert "t.jsonl cannot be read any more" in said[0] and said[1:] == [f"{file} answers again."]
    shown = CliRunner().invoke(main, ["watch", "status", "--state", state]).stdout
    assert "  The watch ended: " in shown and "was replaced or cut since its watch began" in shown
