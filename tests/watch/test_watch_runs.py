"""A watch on the desk: it continues where it ended, however it ended, and keeps what it found with its messages."""

from __future__ import annotations

import gzip
import json
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any
from urllib.error import HTTPError

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from conftest import golden
from prometheus_client.parser import text_string_to_metric_families
from topics import mock_cluster, recorded, send

sys.path.insert(0, str(Path(__file__).parents[1] / "codecs"))
import maxwell_writer

from ticdc_lab.cli import main
from ticdc_lab.codecs import Detected
from ticdc_lab.codecs.known import Known
from ticdc_lab.codecs.schema_registry import Registry, read_schemas
from ticdc_lab.errors import NoAnswerError, ProtocolError, SetupError, SourceError
from ticdc_lab.events.tso import with_texts
from ticdc_lab.settings import MATCH
from ticdc_lab.sources.kafka_reading import Silence, TopicReader
from ticdc_lab.sources.load import SAMPLE
from ticdc_lab.watch import folder, kept, running
from ticdc_lab.watch.folder import WatchFolder
from ticdc_lab.watch.kept import IGNORED, OPEN, WITHDRAWN, KeptFinding, found_again
from ticdc_lab.watch.metrics import WatchView, metrics
from ticdc_lab.watch.pages import pages
from ticdc_lab.watch.recorded import RecordedTopic
from ticdc_lab.watch.rows import ROW_PARTS
from ticdc_lab.watch.running import Watch, unsettled
from ticdc_lab.watch.silences import SILENT_S
from ticdc_lab.watch.sources import Decoding, LiveTopic

LOG = "messages_canal-json-tidb_small-dup-restart.jsonl.gz"


def told(findings):
    """Findings without their numbers and times."""
    left_out = ("number", "found_s", "changed_s")
    return sorted(json.dumps({n: v for n, v in f.as_dict().items() if n not in left_out}) for f in findings)


def watched(source, state, **more) -> Watch:
    """A watch that has gone to its end."""
    watch = Watch(str(source), str(state), once=True, **more)
    watch.run()
    return watch


def _detected(source: RecordedTopic, known: Known) -> Decoding:
    return Decoding.detected(source.name, source.first(SAMPLE), known)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Watch:
    """A watch that nothing disturbed."""
    return watched(golden(LOG), tmp_path_factory.mktemp("undisturbed"))


def test_a_finding_has_its_messages(undisturbed, tmp_path_factory):
    """As a capture file, with the key of the row, and offsets to read again; it is numbered from 1."""
    found = unsettled(undisturbed.findings.values())
    assert [f.number for f in found] == list(range(1, len(found) + 1)) and {f.status for f in found} == {OPEN}
    first = next(f for f in found if f.guarantee == "rows_stay_in_one_partition")
    place = undisturbed._folder.evidence(first.number)
    kept = {(m["partition"], m["offset"]) for m in recorded(place / "messages.jsonl.gz")}
    assert kept == {(e["partition"], e["offset"]) for e in first.evidence} and first.key.count("=") >= 1
    said = json.loads((place / "finding.json").read_text())
    assert {(m["partition"], m["offset"]) for m in said["messages"]} == kept and said["key"] == first.key
    again = watched(place / "messages.jsonl.gz", tmp_path_factory.mktemp("again"))
    who = ("guarantee", "table", "key", "commit_ts", "partition", "offset")
    assert [getattr(first, n) for n in who] in [[getattr(f, n) for n in who] for f in again.findings.values()]


def test_the_same_command_goes_on(undisturbed, tmp_path):
    """Once more over what was read changes nothing."""
    one = watched(golden(LOG), tmp_path)
    two = watched(golden(LOG), tmp_path)
    assert told(one.findings.values()) == told(two.findings.values()) == told(undisturbed.findings.values())
    assert one.view.counts == two.view.counts == undisturbed.view.counts
    assert one.view.violations == two.view.violations
    begun = Watch(str(golden(LOG)), str(tmp_path)).view  # before the first step: no counter falls, to rise again
    assert begun.violations == one.view.violations and begun.counts == one.view.counts
    assert {at: of.read for at, of in begun.partitions.items()} == {
        at: of.read for at, of in one.view.partitions.items()
    }


class Died(BaseException):
    """The process ended."""


@pytest.mark.parametrize("seed", range(3))
def test_wherever_it_ends_it_goes_on(undisturbed, tmp_path, monkeypatch, seed):
    """Between any two of its steps, before or after a commit: findings and counts are the ones of an
    undisturbed run.
    """
    monkeypatch.setattr(running, "ROWS_AT_ONCE", 300)
    monkeypatch.setattr(running, "JUDGE_S", 0.0)
    monkeypatch.setattr(running, "COMMIT_S", 0.0)
    monkeypatch.setattr(folder, "SNAPSHOT_AFTER", 700)
    monkeypatch.setattr("ticdc_lab.sources.capture.LINES_A_BATCH", 150)
    step, left = Watch._step, [2 + seed, 3, 1]

    def dies(self, held, refused, **more):
        if left and left[0] <= 0:
            left.pop(0)
            raise Died
        if left:
            left[0] -= 1
        step(self, held, refused, **more)

    monkeypatch.setattr(Watch, "_step", dies)
    while left:
        with pytest.raises(Died):
            watched(golden(LOG), tmp_path)
    whole = watched(golden(LOG), tmp_path)
    assert told(unsettled(whole.findings.values())) == told(unsettled(undisturbed.findings.values()))
    assert whole.view.counts == undisturbed.view.counts


def _killed(state: Path, after: int) -> None:
    """A watch in a process of its own that is killed when it has committed so often."""
    code = (
        "import os, signal, sys\n"
        "from ticdc_lab.watch import running\n"
        "from ticdc_lab.watch.folder import WatchFolder\n"
        "import ticdc_lab.sources.capture as capture\n"
        "capture.LINES_A_BATCH = 120\n"
        "running.ROWS_AT_ONCE, running.JUDGE_S, running.COMMIT_S = 200, 0.0, 0.0\n"
        "left, said = [int(sys.argv[3])], WatchFolder._say\n"
        "def say(self, *of):\n"
        "    left[0] -= 1\n"
        "    if left[0] < 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    said(self, *of)\n"
        "WatchFolder._say = say\n"
        "running.Watch(sys.argv[1], sys.argv[2], once=True).run()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(golden(LOG)), str(state), str(after)], check=False)
    assert done.returncode in (0, -signal.SIGKILL)


def test_a_kill_in_a_commit_loses_nothing(undisturbed, tmp_path):
    """SIGKILL in the middle of a transaction; the lock of the dead process holds no process up."""
    for after in (6, 11):
        _killed(tmp_path, after)
    whole = watched(golden(LOG), tmp_path)
    assert told(unsettled(whole.findings.values())) == told(unsettled(undisturbed.findings.values()))
    assert whole.view.counts == undisturbed.view.counts


_AT_ANY_MOMENT = """
import importlib, os, pathlib, random, signal, sys, time
running = importlib.import_module("ticdc_lab.watch.running")
importlib.import_module("ticdc_lab.sources.capture").LINES_A_BATCH = 120
importlib.import_module("ticdc_lab.watch.folder").SNAPSHOT_AFTER = 700
running.ROWS_AT_ONCE, running.JUDGE_S, running.COMMIT_S = 200, 0.0, 0.0
source, states, n = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
running.Watch(source, str(states / "warm"), once=True).run()
begun = time.process_time()
running.Watch(source, str(states / "whole"), once=True).run()
whole_s, draw, at, killed = time.process_time() - begun, random.Random(n), 0, 0
while killed < n:
    if not (pid := os.fork()):
        signal.setitimer(signal.ITIMER_PROF, draw.uniform(0.001, whole_s))
        running.Watch(source, str(states / str(at)), once=True).run()
        os._exit(0)
    draw.random()
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert ended in (0, -signal.SIGPROF), ended
    killed, at = killed + (ended < 0), at + (ended == 0)
"""
"""Kills watches at random moments of their CPU time: no one handles SIGPROF, so it ends a process as SIGKILL does."""


def _killed_at_any_moment(source: object, states: Path, n: int) -> list[Path]:
    """The state folders of watches that were killed so often, each into the folder that the one before left."""
    subprocess.run([sys.executable, "-c", _AT_ANY_MOMENT, str(source), str(states), str(n)], check=True)
    return [state for state in states.iterdir() if state.is_dir()]


@pytest.mark.parametrize("n", [3, pytest.param(200, marks=pytest.mark.soak)])
def test_kills_at_any_moment_lose_nothing(undisturbed, tmp_path, n):
    """Each into the folder that the one before left: findings and counts are the ones of an undisturbed run."""
    states = _killed_at_any_moment(golden(LOG), tmp_path, n)
    assert len(states) > 2
    for state in states:
        whole = watched(golden(LOG), state)
        assert told(unsettled(whole.findings.values())) == told(unsettled(undisturbed.findings.values()))
        assert whole.view.counts == undisturbed.view.counts


def test_a_withdrawn_finding_that_is_found_again_counts(tmp_path):
    """At the end of a log it opens at once: it is a violation, has its messages, and is sent."""
    first = watched(golden(LOG), tmp_path)
    one = first.findings[1]
    with closing(WatchFolder(tmp_path)) as saved:
        saved.put(replace(one, status=WITHDRAWN))
    opened = list[KeptFinding]()
    again = Watch(str(golden(LOG)), str(tmp_path), once=True, opens=opened.extend)
    again.run()
    who = one.guarantee, one.severity
    assert again.findings[1].status == OPEN and [f.number for f in opened] == [1]
    assert again.view.violations[who] == first.view.violations[who] + 1


def test_rows_are_saved_a_bucket_at_a_time(tmp_path):
    """As one part, five million rows would be in memory three times meanwhile; a state with one part is still read."""
    first = watched(golden(LOG), tmp_path)
    with closing(WatchFolder(tmp_path)) as saved:
        assert {*ROW_PARTS} <= {name for (name,) in saved._db.execute("select name from part")}
        state = saved.state(dated=True)
        whole = state.rows.as_arrays()
        assert state.rows.n_rows == first.view.rows > 0
        saved._db.execute("delete from part where name like 'rows %'")
        saved._part("rows", folder.bytes_of(whole))
        older = saved.state(dated=True).rows.as_arrays()
    assert all(np.array_equal(whole[name], older[name]) for name in whole)


def test_a_watch_of_its_own_process_does_without_pandas(tmp_path):
    """Arrow imports it to recognize its objects: 33 MiB that a watch has no use for."""
    code = (
        "import sys\n"
        "from ticdc_lab.cli import watch_commands\n"
        "watch_commands._use_little_memory()\n"
        "from ticdc_lab.watch.starting import prepared\n"
        "prepared(sys.argv[1], sys.argv[2], once=True).run()\n"
        "watch_commands._print_findings([], sys.argv[2])\n"
        "assert 'pandas' not in sys.modules\n"
        "import pyarrow as pa\n"
        "assert pa.default_memory_pool().backend_name == 'system'\n"
        "import pandas\n"
    )
    subprocess.run([sys.executable, "-c", code, str(golden(LOG)), str(tmp_path)], check=True)


def test_findings_beyond_those_that_are_kept_stay_counted(tmp_path, monkeypatch):
    """A counter that fell over a restart would be a fault for Prometheus."""
    monkeypatch.setattr(kept, "KEPT_OF_EACH", 5)
    first = watched(golden(LOG), tmp_path)
    most = {who: n for who, n in first.view.violations.items() if n > 5}
    assert most and len(first.findings) < sum(first.view.violations.values())
    again = Watch(str(golden(LOG)), str(tmp_path), once=True)
    assert again.view.violations == first.view.violations
    again.run()
    assert again.view.violations == first.view.violations


def test_a_folder_is_of_one_watch(tmp_path):
    """Two at a time, the state of another source, of another version, and what is none are refused in words."""
    one = Watch(str(golden(LOG)), str(tmp_path))
    with pytest.raises(SourceError, match="already"):
        Watch(str(golden(LOG)), str(tmp_path))
    one.run()
    with pytest.raises(SourceError, match="not of"):
        watched(golden("messages_avro_small.jsonl.gz"), tmp_path)
    with sqlite3.connect(tmp_path / folder.FILE) as db:
        db.execute("update told set value = '99' where name = 'version'")
    with pytest.raises(SourceError, match="version 99"):
        Watch(str(golden(LOG)), str(tmp_path))
    (tmp_path / folder.FILE).write_bytes(b"no database" * 100)
    with pytest.raises(SourceError, match="damaged"):
        Watch(str(golden(LOG)), str(tmp_path))
    with pytest.raises(SourceError, match="is no state of a watch"):
        WatchFolder(tmp_path / "none", writes=False)


def test_damage_anywhere_in_a_state_is_named_or_changes_nothing(tmp_path):
    """SQLite has no checksums, and Arrow would read other numbers, or die of them."""

    def everything(state):
        with closing(WatchFolder(state)) as saved:
            whole = saved.state(dated=True)
            told = saved.view, saved.progress, saved.findings(), saved.put_aside(), saved.files(), whole.suspects
            return str((told, whole.facts.to_pylist(), sorted(whole.rows.as_arrays().items()), saved.waiting()))

    watched(golden(LOG), tmp_path / "whole")
    expected, raw = everything(tmp_path / "whole"), (tmp_path / "whole" / folder.FILE).read_bytes()
    state, draw, said = tmp_path / "state", random.Random(50), list[str]()
    state.mkdir()
    for i in range(80):
        damaged, at, n = bytearray(raw), draw.randrange(len(raw)), draw.choice([1, 16, 4096])
        damaged[at : at + n] = draw.randbytes(len(damaged[at : at + n]))
        (state / folder.FILE).write_bytes(damaged[: at if i % 8 == 0 else None])
        try:
            assert everything(state) == expected
        except SourceError as error:
            said.append(str(error))
    assert len(said) > 40 and all("is no state of a watch, or is damaged" in words for words in said)


def test_a_full_disk_is_named_and_what_was_committed_stays(undisturbed, tmp_path, monkeypatch):
    """SQLite shows that it is full; the watch continues when there is room."""
    full = Watch(str(golden(LOG)), str(tmp_path), once=True)
    full._folder._db.execute("pragma max_page_count = 12")
    with pytest.raises(SourceError, match="No space is left"):
        full.run()
    whole = watched(golden(LOG), tmp_path)
    assert told(whole.findings.values()) == told(undisturbed.findings.values())


def test_the_next_step_names_the_messages_that_the_watch_keeps(tmp_path):
    """An audit numbers its findings otherwise, so its advice (--messages-of) would name another finding."""
    lines = gzip.decompress(golden("messages_canal-json-tidb_small.jsonl.gz").read_bytes()).splitlines(keepends=True)
    log, state = tmp_path / "lost one.jsonl", tmp_path / "my {state}"
    log.write_bytes(b"".join(lines[:400] + lines[401:700]))
    found = watched(log, state).findings
    number = next(n for n, f in found.items() if f.guarantee == "offsets_are_contiguous")
    shown = CliRunner().invoke(main, ["watch", "show", str(number), "--state", str(state)]).stdout
    kept = state / "findings" / str(number) / "messages.jsonl.gz"
    assert f"Messages around them: ticdc-lab events '{kept}' --out events.jsonl" in shown
    assert "commit_ts None" not in shown and "--messages-of" not in shown
    rmtree(kept.parent)
    said = CliRunner().invoke(main, ["watch", "show", str(number), "--state", str(state)]).stdout
    assert f"Messages around them: ticdc-lab audit '{log}' --messages-of NUMBER" in said
    for other in found:
        CliRunner().invoke(main, ["watch", "resolve", str(other), "--state", str(state)])
    said = CliRunner().invoke(main, ["watch", "findings", "--state", str(state)])
    assert said.stdout == f"No finding is open; {len(found)} put aside or withdrawn: --all shows them.\n"
    assert said.exit_code == 0


def test_findings_of_one_cause_are_one_line_by_status_and_keep_the_number_that_show_takes(tmp_path):
    """Else one cause with many findings hides all others, errors among them."""
    log, state = golden("messages_open-protocol_small.jsonl.gz"), tmp_path / "state"
    found = watched(log, state).findings
    parted = sorted(n for n, f in found.items() if f.cause and f.cause.startswith("the table is dispatched by ts"))
    assert len(parted) > 20 and len({found[n].cause for n in parted}) == 1
    CliRunner().invoke(main, ["watch", "ignore", str(parted[0]), "--state", str(state)])
    said = CliRunner().invoke(main, ["watch", "findings", "--all", "--state", str(state)]).stdout
    cause = f"shop.parted: {found[parted[0]].cause}"
    assert f"    {len(parted) - 1} warnings: {cause} [open]\n        First: #{parted[1]} " in said
    assert f"    #{parted[0]} warning: " in said and said.count("[ignored]") == 1 and "more cause" not in said


def test_a_watch_that_ends_prints_what_it_found(tmp_path):
    """A recording ends without --once, too: in words and as JSON, and the exit code is of --once alone."""
    for given, shows in (((), "2,594 messages watched: 89 findings"), (("--json",), '"findings": [{')):
        state = str(tmp_path / f"state{len(given)}")
        done = CliRunner().invoke(main, ["watch", str(golden(LOG)), "--state", state, *given])
        assert done.exit_code == 0 and shows in done.stdout


def test_a_log_of_which_nothing_can_be_decoded_is_not_clean(tmp_path):
    """A protocol that was named wrong: exit 2, as an audit; a state folder that is a file is refused in words."""
    log = str(golden("messages_open-protocol_small.jsonl.gz"))
    words = ["watch", log, "--once", "--protocol", "canal-json", "--state", str(tmp_path / "state")]
    said = CliRunner().invoke(main, words)
    assert said.exit_code == 2 and "none of 1,470 messages could be decoded as canal-json" in said.stderr
    assert "--protocol open-protocol --state OTHER" in said.stdout
    (tmp_path / "file").write_text("")
    said = CliRunner().invoke(main, ["watch", log, "--once", "--state", str(tmp_path / "file")])
    assert said.exit_code == 2 and "Cannot write" in said.stderr and "--debug" not in said.stderr


def test_an_unread_message_alone_exits_as_an_audit_does(spark, tmp_path):
    """0, and counted: it is no finding, and a pipeline that accepts none sees it in the JSON."""
    raw, log = gzip.decompress(golden("messages_simple_small.jsonl.gz").read_bytes()), tmp_path / "t.jsonl"
    some = [line for line in map(json.loads, raw.splitlines()) if line["partition"] == 0][:60]
    some.append(some[-1] | {"offset": some[-1]["offset"] + 1, "value": "eyJicm9rZW4iOg=="})
    log.write_text("".join(json.dumps(line) + "\n" for line in some))
    audit = CliRunner().invoke(main, ["audit", str(log)], obj=spark)
    watch = CliRunner().invoke(main, ["watch", str(log), "--once", "--json", "--state", str(tmp_path / "state")])
    assert (watch.exit_code, json.loads(watch.stdout)["unchecked"]) == (audit.exit_code, {"quarantined": 1})
    assert audit.exit_code == 0 and "1 unread message" in audit.stdout


def test_a_damaged_parquet_file_is_named(tmp_path):
    """Cut short, or with a page that cannot be read: by its name, and with what to do."""
    log, file = tmp_path / "log.parquet", tmp_path / "damaged.parquet"
    rows = [m | {"topic": "t", "timestamp": None} for m in recorded(golden(LOG))]
    names = ("topic", "partition", "offset", "timestamp", "key", "value")
    pq.write_table(pa.Table.from_pylist([{n: m[n] for n in names} for m in rows]), log)
    raw = log.read_bytes()
    for damaged in (raw[: len(raw) // 2], raw[:4] + bytes(len(raw) // 2) + raw[4 + len(raw) // 2 :]):
        file.write_bytes(damaged)
        with pytest.raises(SourceError, match=r"damaged\.parquet is no whole Parquet file"):
            watched(file, tmp_path / "state")


def test_a_limit_of_file_sizes_is_named_too(undisturbed, tmp_path):
    """As a quota is; the watch continues without it."""
    command = [sys.executable, "-m", "ticdc_lab.cli", "watch", str(golden(LOG)), "--once", "--state", str(tmp_path)]
    limited = ["bash", "-c", 'ulimit -f 300; exec "$@"', "bash", *command]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert (
        done.returncode == 2 and "cannot be written" in done.stderr and "what was committed before stays" in done.stderr
    )
    assert told(watched(golden(LOG), tmp_path).findings.values()) == told(undisturbed.findings.values())


def test_evidence_is_kept_by_count_and_age(tmp_path):
    """Of the newest findings, and of those that are not open any more for a while."""
    now = [1e9]
    one = watched(golden(LOG), tmp_path, now=lambda: now[0])
    assert len([*(tmp_path / "findings").iterdir()]) == len(one.findings) > 9
    beside = WatchFolder(tmp_path, writes=False)
    for number, by in ((1, running.EVIDENCE_S), (2, 0.0)):
        put = beside.findings()[number].as_dict() | {"status": IGNORED, "changed_s": now[0] - by}
        beside.put(KeptFinding.from_dict(put))
    now[0] += 1
    watched(golden(LOG), tmp_path, now=lambda: now[0])
    kept = {int(p.name) for p in (tmp_path / "findings").iterdir()}
    assert kept == {*one.findings} - {1}
    beside.drop_evidence(3, kept)
    assert {int(p.name) for p in (tmp_path / "findings").iterdir()} == {*sorted(kept)[-3:]}


def test_a_recording_is_replayed_at_its_speed(tmp_path):
    """Message by message, no matter how many come in a batch; a restart waits for none that it has read."""
    lines = [{"topic": "t", "partition": 0, "offset": o, "timestamp": 1_000 * o, "key": None, "value": None,
              "headers": []} for o in range(10)]  # fmt: skip
    file, clock = tmp_path / "t.jsonl", [0.0]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def sleep(seconds):
        clock[0] += seconds

    for begin in (0, 4):
        source = RecordedTopic(str(file), speed=2.0, now=lambda: clock[0], sleep=sleep)
        clock[0], seen = 0.0, []
        for new, _ in source.batches({("t", 0): begin}, once=True):
            seen += [(offset, clock[0], source.positions["t", 0]) for offset in new["offset"].to_pylist()]
        assert seen == [(o, (o - begin) / 2, o + 1) for o in range(begin, 10)]


def test_what_is_no_message_is_counted_once_over_restarts(tmp_path):
    """A recording is read from its beginning, and its bad lines have no offsets; the last line was cut, and is not."""
    lines = gzip.decompress(golden(LOG).read_bytes()).splitlines(keepends=True)[:40]
    lines[20:20] = [b"{broken\n", b"{broken\n"]
    file, seen = tmp_path / "t.jsonl", []
    for n in (30, 42, 42):
        file.write_bytes(b"".join(lines[:n])[: None if n == 42 else -9])
        counts = watched(file, tmp_path / "state").view.counts
        seen.append((counts.messages, sum(counts.quarantined.values())))
    assert seen == [(30, 3), (43, 3), (43, 3)]


def test_files_are_read_by_their_numbers(tmp_path):
    """What was recorded in turns is often named without leading zeros."""
    lines = gzip.decompress(golden(LOG).read_bytes()).splitlines(keepends=True)[:120]
    for i in range(12):
        (tmp_path / f"t-{i}.jsonl").write_bytes(b"".join(lines[10 * i : 10 * i + 10]))
    read = [m for messages, _ in RecordedTopic(str(tmp_path)).batches({}, once=True) for m in messages.to_pylist()]
    order = [[json.loads(line)[n] for n in ("partition", "offset")] for line in lines]
    assert [[m["partition"], m["offset"]] for m in read] == order


def test_a_recording_out_of_order_is_refused(tmp_path):
    """Each partition is read in the order of its offsets; an audit takes any order."""
    lines = [{"topic": "t", "partition": 0, "offset": o, "timestamp": None, "key": None, "value": None, "headers": []}
             for o in (1, 0)]  # fmt: skip
    file = tmp_path / "t.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(SourceError, match="offset 0 of partition 0 of t follows offset 1"):
        watched(file, tmp_path / "state", protocol="canal-json")


def test_a_partition_whose_broker_is_silent_is_reported_while_others_are_read(tmp_path, monkeypatch):
    """Once, with what to do, and once when it is read again; status, readiness and metrics show it meanwhile."""
    found, said, messages = dict[tuple[str, int], Silence](), list[str](), recorded(golden(LOG))
    monkeypatch.setattr(LiveTopic, "silences", lambda _: found)

    def state(at: int, lasts_s: float, broker: str = "b2:9092") -> None:
        found.update({("t", p): Silence(0.2, "b1:9092") for p in range(4)} | {("t", at): Silence(lasts_s, broker)})

    with mock_cluster() as servers:
        send(servers, "t", messages)
        watching = Watch(f"kafka://{servers}/t", str(tmp_path), said=said.append)
        with watching as watch:
            state(2, SILENT_S - 1)
            while not watch.view.caught_up and not watch.wait(0.05):
                pass
            assert not said
            state(2, SILENT_S + 1)
            while not (watch.view.silent and WatchFolder(tmp_path, writes=False).view.get("silent")):
                assert not watch.wait(0.05)
            [sentence] = said
            assert sentence.startswith("Partition 2 of t is not read since 20")
            assert "broker b2:9092 does not answer. Other partitions are read." in sentence
            assert sentence.endswith("--describe --topic t") and watch.view.silent == (sentence,)
            assert not watch.view.caught_up and not watch.view.trouble
            page = metrics(watch.view).decode()
            age = {
                p: time.time() - float(re.search(rf'last_answer_\w+{{partition="{p}",topic="t"}} (\S+)', page)[1])
                for p in (1, 2)
            }
            assert age[1] < 20 < SILENT_S < age[2]
            shown = CliRunner().invoke(main, ["watch", "status", "--state", str(tmp_path)]).stdout
            assert f"  {sentence}\n" in shown
            state(2, 0.1)
            while not watch.view.caught_up and not watch.wait(0.05):
                pass
            assert said[1:] == ["Partition 2 of t is read again."] and not watch.view.silent
            state(3, SILENT_S + 9, "")
            while len(said) == 2 and not watch.wait(0.05):
                pass
            assert "Partition 3 of t is not read since 20" in said[2] and "no broker is the leader" in said[2]


def test_what_a_person_put_aside_stays_aside(tmp_path):
    """Ignored beside a running watch: no later look opens it again."""
    watched(golden(LOG), tmp_path)
    beside = WatchFolder(tmp_path, writes=False)
    one = beside.findings()[1]
    beside.put(KeptFinding.from_dict(one.as_dict() | {"status": IGNORED}))
    assert watched(golden(LOG), tmp_path).findings[1].status == IGNORED


def test_a_watch_begins_while_the_broker_of_a_partition_is_silent(tmp_path, monkeypatch):
    """It reads the others, and reports at once which one it does not read, which it reads when its broker answers."""
    monkeypatch.setattr(running, "LOOK_S", 0.1)
    silent, offsets, said = [("t", 2)], TopicReader._offsets, list[str]()

    def of_others(self, asked, *, partly=False, **more):
        there = {at: of for at, of in asked.items() if at not in silent}
        if partly:
            self.unanswered |= {at: "b2:9092" for at in asked if at in silent}
        elif silent:
            raise NoAnswerError("The broker b2:9092 does not answer.")
        return offsets(self, there, partly=partly, **more)

    monkeypatch.setattr(TopicReader, "_offsets", of_others)
    messages = recorded(golden(LOG))
    others = sum(m["partition"] != 2 for m in messages)
    with mock_cluster() as servers:
        send(servers, "t", messages)
        with pytest.raises(NoAnswerError):
            watched(f"kafka://{servers}/t", tmp_path / "once")
        with Watch(f"kafka://{servers}/t", str(tmp_path / "state"), said=said.append) as watch:
            while watch.view.counts.messages < others or not watch.view.silent:
                assert not watch.wait(0.05)
            assert said[0].startswith("Partition 2 of t is not read since 20") and "broker b2:9092" in said[0]
            assert not watch.view.caught_up and watch.view.partitions["t", 2].read is None
            page = metrics(watch.view).decode()
            assert 'last_answer_timestamp_seconds{partition="2",topic="t"}' in page
            assert 'read_offset{partition="2",topic="t"}' not in page
            silent.clear()
            while watch.view.counts.messages < len(messages) or not watch.view.caught_up:
                assert not watch.wait(0.05)
            assert said[1:] == ["Partition 2 of t is read again."]
        whole, of_file = (
            watched(f"kafka://{servers}/t", tmp_path / "state"),
            watched(golden(LOG), tmp_path / "recording"),
        )
        alike = [
            {(f.guarantee, f.partition, f.offset) for f in unsettled(w.findings.values())} for w in (whole, of_file)
        ]
        assert alike[0] == alike[1]


def test_what_a_person_put_aside_between_a_look_and_a_commit_stays_aside(tmp_path, monkeypatch):
    """The commit does not write the status of before."""
    look = Watch._judge

    def ignored_after(self, *, final=False):
        look(self, final=final)
        for f in list(self.findings.values())[:1]:
            beside = WatchFolder(tmp_path, writes=False)
            beside.put(replace(f, status=IGNORED))
            beside.close()

    monkeypatch.setattr(Watch, "_judge", ignored_after)
    watched(golden(LOG), tmp_path)
    assert WatchFolder(tmp_path, writes=False).findings()[1].status == IGNORED


def test_a_finding_that_was_put_aside_and_is_kept_no_more_ends_no_watch(tmp_path):
    """It is in the folder until the next commit."""
    watched(golden(LOG), tmp_path)
    watch = Watch(str(golden(LOG)), str(tmp_path), once=True)
    watch._folder.put(replace(watch.findings[1], status=IGNORED))
    del watch.findings[1]
    watch.run()
    assert watch.view.caught_up


def test_of_what_was_put_aside_the_last_stay_listed_and_those_that_are_still_found(monkeypatch):
    """One that is found again and is listed no more would be a new one, and open."""
    monkeypatch.setattr(kept, "ASIDE", 1)
    some = [FOUND | {"offset": i} for i in range(4)]
    found, _ = found_again({}, some, now_s=0.0, settle_s=0.0)
    found = {n: replace(f, status=IGNORED) for n, f in found.items()}
    assert sorted(found_again(found, some[:1], now_s=1.0, settle_s=0.0)[0]) == [1, 4]


FOUND = {
    "guarantee": "resolved_events_on_all_partitions", "severity": "error", "message": "m", "table": None,
    "commit_ts": 7, "topic": "t", "partition": 1, "offset": 3, "seq": None, "row_id": None, "evidence": [],
    "cause": None,
}  # fmt: skip


def test_a_finding_settles_or_is_withdrawn():
    """What later messages explain is withdrawn and stays listed; what nothing can explain is open at once."""
    kept, _ = found_again({}, [FOUND, FOUND | {"guarantee": "watermarks_are_monotone"}], now_s=0.0, settle_s=9.0)
    assert [f.status for f in kept.values()] == ["pending", OPEN]
    later, _ = found_again(kept, [FOUND], now_s=9.0, settle_s=9.0)
    assert [f.status for f in later.values()] == [OPEN, WITHDRAWN]
    gone, _ = found_again(kept, [], now_s=1.0, settle_s=9.0)
    assert {f.status for f in gone.values()} == {WITHDRAWN} and len(gone) == 2
    back, _ = found_again(gone, [FOUND], now_s=20.0, settle_s=9.0)
    assert [f.status for f in back.values()] == ["pending", WITHDRAWN]


def test_a_clock_that_is_set_back_lets_no_finding_wait(tmp_path):
    """It settles by the clock of now; and no watermark is written later than now."""
    kept, _ = found_again({}, [FOUND], now_s=1_000.0, settle_s=9.0)
    for now_s, status in ((10.0, "pending"), (18.0, "pending"), (19.0, OPEN)):
        kept, _ = found_again(kept, [FOUND], now_s=now_s, settle_s=9.0)
        assert [f.status for f in kept.values()] == [status]
    watch = Watch(str(golden(LOG)), str(tmp_path), now=lambda: 1_000.0)
    watch._note_watermarks({("t", 0): (5, 999_000), ("t", 1): (5, 2_000_000), ("t", 2): (5, None)})
    assert watch._marked_ms == {("t", 0): 999_000, ("t", 1): 1_000_000, ("t", 2): 1_000_000}
    watch._folder.close()


def test_rows_that_are_not_judged_any_more_keep_their_findings():
    """What the memory has no room for is neither found again nor withdrawn."""
    of_row = FOUND | {"guarantee": "redeliveries_are_identical", "row_id": 5}
    kept, _ = found_again({}, [of_row], now_s=0.0, settle_s=9.0)
    assert [f.status for f in found_again(kept, [], now_s=1.0, settle_s=9.0, judged={6})[0].values()] == [OPEN]
    assert [f.status for f in found_again(kept, [], now_s=1.0, settle_s=9.0, judged={5})[0].values()] == [WITHDRAWN]


def _get(url: str, token: str = "") -> tuple[int, str]:
    try:
        asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_a_topic_is_followed(undisturbed, tmp_path):
    """Through librdkafka: what is sent is found, metrics and pages show it, and the state can be read meanwhile."""
    messages = recorded(golden(LOG))
    with mock_cluster() as servers:
        send(servers, "small", messages[:900])
        watch = Watch(f"kafka://{servers}/small", str(tmp_path), settle_s=0.0)
        with watch, pages(watch, "127.0.0.1:0") as at:
            send(servers, "small", messages[900:])
            n = len({(m["partition"], m["offset"]) for m in messages})
            while watch.view.counts.messages < n and not watch.wait(0.1):
                pass
            assert _get(f"http://{at}/health")[0] == 200
            text = _get(f"http://{at}/metrics")[1]
            assert _get(f"http://{at}/no")[0] == 404
        values = {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples if not s.labels}
        assert values["ticdc_lab_messages_total"] == n
        assert 'ticdc_lab_read_offset{partition="0",topic="small"}' in text
        assert watch.view.caught_up and watch.view.counts.redelivered == undisturbed.view.counts.redelivered
        once = watched(f"kafka://{servers}/small", tmp_path)
    assert told(unsettled(once.findings.values())) == told(unsettled(undisturbed.findings.values()))


def test_a_watch_that_cannot_begin_leaves_no_folder(tmp_path):
    """Nor the folders above that it made; what was there before stays."""
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "mine").mkdir()
    for state in ("a/b", "mine"):
        with pytest.raises((SourceError, ProtocolError)):
            watched(tmp_path / "empty.jsonl", tmp_path / state)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty.jsonl", "mine"]
    assert [*(tmp_path / "mine").iterdir()] == []


def test_a_state_that_has_committed_nothing_is_no_clean_one(tmp_path):
    """Beside a watch that waits for its first message."""
    waiting = WatchFolder(tmp_path)
    for command in ("status", "findings"):
        told = CliRunner().invoke(main, ["watch", command, "--state", str(tmp_path)])
        assert told.exit_code == 2 and "has committed nothing yet" in told.output
    waiting.close()


def test_messages_of_another_protocol_are_named(tmp_path):
    """A changefeed that was made again with another one, in the middle of a batch, and over a restart."""
    file, other = tmp_path / "topic.jsonl", golden("messages_open-protocol_small.jsonl.gz")
    ours = gzip.decompress(golden(LOG).read_bytes()).splitlines()[:400]
    later = [json.loads(line) for line in gzip.decompress(other.read_bytes()).splitlines()[:100]]
    topic = json.loads(ours[0])["topic"]
    file.write_bytes(b"\n".join(ours) + b"\n")
    assert not watched(file, tmp_path / "state").view.strangers
    moved = [json.dumps(m | {"topic": topic, "offset": m["offset"] + 100_000}).encode() for m in later]
    file.write_bytes(b"\n".join([*ours, *moved]) + b"\n")
    found = watched(file, tmp_path / "both")
    assert found.view.strangers.keys() == {"open-protocol"} and found.view.counts.quarantined
    told = CliRunner().invoke(main, ["watch", "status", "--state", str(tmp_path / "both")])
    assert "are open-protocol, no canal-json" in told.output
    assert watched(file, tmp_path / "both").view.strangers == found.view.strangers


def test_messages_that_could_not_be_read_again_are_kept_later(undisturbed, tmp_path, monkeypatch):
    """The broker was away when findings became open; without an answer until the end, status reports it."""
    read, away = RecordedTopic.messages_at, [True]

    def silent(self, wanted):
        if away:
            away.clear()
            raise SourceError("no answer")
        return read(self, wanted)

    monkeypatch.setattr(RecordedTopic, "messages_at", silent)
    monkeypatch.setattr(running, "JUDGE_S", -1.0)
    monkeypatch.setattr(running, "STEP_S", -1.0)
    watch = watched(golden(LOG), tmp_path / "later", settle_s=0.0)
    assert not away and not watch.view.undocumented
    folders = {int(p.name) for p in (tmp_path / "later/findings").iterdir()}
    assert folders >= {f.number for f in unsettled(watch.findings.values())}
    assert told(unsettled(watch.findings.values())) == told(unsettled(undisturbed.findings.values()))

    monkeypatch.setattr(RecordedTopic, "messages_at", lambda *_: silent(away.append(True), ()))
    assert watched(golden(LOG), tmp_path / "never").view.undocumented
    said = CliRunner().invoke(main, ["watch", "status", "--state", str(tmp_path / "never")])
    assert "could not be read again yet" in said.output


def test_a_broker_that_is_away_is_waited_for(undisturbed, tmp_path, monkeypatch):
    """A watch does not end with it, but continues; another error ends it, and what it had read is kept."""
    monkeypatch.setattr(running, "RETRY_S", 0.0)
    batches, left = LiveTopic.batches, ["127.0.0.1:1 does not answer", "127.0.0.1:1 does not answer"]

    def away(self, positions, *, once):
        found = batches(self, positions, once=once)
        yield next(found)
        if left:
            raise NoAnswerError(left.pop())
        yield from found

    monkeypatch.setattr(LiveTopic, "batches", away)
    messages = recorded(golden(LOG))
    with mock_cluster() as servers:
        send(servers, "small", messages)
        with Watch(f"kafka://{servers}/small", str(tmp_path)) as watch:
            while watch.view.counts.messages < len(messages) and not watch.wait(0.1):
                pass
        assert not left and watch.view.counts.rows == undisturbed.view.counts.rows


def test_messages_that_come_right_after_a_look_that_found_none_are_waited_for(tmp_path, monkeypatch):
    """The protocol is detected from what was looked at, once: an empty topic is looked at again."""
    first, looked = LiveTopic.first, list[int]()

    def before_they_came(self, n):
        found = first(self, n)
        looked.append(len(found))
        return found.slice(0, 0) if len(looked) == 1 else found

    monkeypatch.setattr(LiveTopic, "first", before_they_came)
    messages = recorded(golden(LOG))
    with mock_cluster() as servers:
        send(servers, "late", messages)
        with Watch(f"kafka://{servers}/late", str(tmp_path)) as watch:
            while watch.view.counts.messages < len(messages) and not watch.wait(0.1):
                pass
    assert len(looked) == 2 and looked[0]


def test_a_registry_that_is_away_is_waited_for(undisturbed, tmp_path, monkeypatch):
    """Messages whose schema no one gives are read again when it is back: no message is skipped or counted twice."""
    monkeypatch.setattr(running, "RETRY_S", 0.0)
    decoded, silent = Decoding.decoded, ["The schema registry http://r does not answer"] * 2

    def away(self, messages, **more):
        if silent and messages.num_rows:
            raise NoAnswerError(silent.pop())
        return decoded(self, messages, **more)

    monkeypatch.setattr(Decoding, "decoded", away)
    messages = recorded(golden(LOG))
    with mock_cluster() as servers:
        send(servers, "small", messages)
        with Watch(f"kafka://{servers}/small", str(tmp_path)) as watch:
            while watch.view.counts.messages < len(messages) and not watch.wait(0.1):
                pass
    assert not silent and watch.view.counts.rows == undisturbed.view.counts.rows


def test_a_registry_is_asked_once_for_a_schema(monkeypatch):
    """No matter how many batches there are, so that the ones of known schemas are decoded when it is away."""
    schemas, asked = read_schemas(str(golden("avro_schemas_small.jsonl.gz"))), list[str]()

    def fetch(self, schema_id):
        asked.append(schema_id)
        self._schemas[schema_id] = schemas[schema_id]

    monkeypatch.setattr(Registry, "_fetch", fetch)
    source = RecordedTopic(str(golden("messages_avro_small.jsonl.gz")))
    decoding = _detected(source, Known(registry_url="http://127.0.0.1:1"))
    messages = source.first(400)
    for _ in range(3):
        assert decoding.decoded(messages)["error_class"].null_count > 390
    assert asked and sorted(asked) == sorted({*asked})


def test_schemas_outlive_a_restart_and_their_registry(monkeypatch):
    """What it gave is saved, without its URL, which may have a password; another registry is asked again."""
    schemas, url = read_schemas(str(golden("avro_schemas_small.jsonl.gz"))), "http://me:s3cret@127.0.0.1:1"
    monkeypatch.setattr(Registry, "_fetch", lambda self, n: self._schemas.update({n: schemas[n]}))
    source = RecordedTopic(str(golden("messages_avro_small.jsonl.gz")))
    decoding, messages = _detected(source, Known(registry_url=url)), source.first(400)
    before = decoding.decoded(messages)
    saved = json.loads(json.dumps(decoding.saved()))

    def away(self, schema_id):
        raise NoAnswerError("The schema registry does not answer")

    monkeypatch.setattr(Registry, "_fetch", away)
    again = Decoding.resumed(decoding.told, Known(registry_url=url), saved, None)
    assert again.decoded(messages).equals(before) and "s3cret" not in json.dumps(saved)
    other = Decoding.resumed(decoding.told, Known(registry_url="http://127.0.0.1:2"), saved, None)
    with pytest.raises(NoAnswerError):
        other.decoded(messages)


@pytest.mark.parametrize(("protocol", "schemas"), [("canal-json-tidb", None), ("avro-before", "schemas_avro-before")])
def test_handle_keys_that_only_the_ddl_define_are_known_from_the_ddl_on(protocol, schemas):
    """Also in the batch of the DDL itself, and in a run that resumes; open-protocol names the same keys."""
    torture = Path(__file__).parents[1] / "data" / "torture"
    known = Known() if schemas is None else Known(schemas=read_schemas(str(torture / f"{schemas}.jsonl.gz")))

    def keys(name, known):
        source = RecordedTopic(str(torture / f"messages_{name}.jsonl.gz"))
        decoding, messages, found = _detected(source, known), source.first(10_000), []
        for at in range(0, len(messages), 300):
            found += decoding.decoded(messages.slice(at, 300)).to_pylist()
            resumed = Decoding.resumed(decoding.told, known, json.loads(json.dumps(decoding.saved())), None)
            assert resumed.known.handles == decoding.known.handles
            decoding = resumed
        return sorted((e["commit_ts"], e["op"], e["key_hash"]) for e in found if e["table_name"] == "k_uq" and e["op"])

    assert keys(protocol, known) == keys("open-protocol", Known()) != []


def test_a_log_without_commit_ts_has_these_keys_as_well():
    """Maxwell's messages name no key, and its rows no commit_ts; a table that has one key all the time has it here."""
    torture = Path(__file__).parents[1] / "data" / "torture"
    plain = RecordedTopic(str(torture / "messages_canal-json-tidb.jsonl.gz")).first(10_000)["value"].to_pylist()
    pairs = [*maxwell_writer.messages(json.loads(v) for v in plain if b'"table":"k_uq"' in v)]
    columns = {"topic": ["t"] * len(pairs), "partition": [0] * len(pairs), "offset": [*range(len(pairs))]}
    messages = pa.table(columns | {n: [pair[i] for pair in pairs] for i, n in enumerate(("key", "value"))})
    decoding, found = Decoding(Detected("maxwell", has_commit_ts=False), Known()), []
    for at in range(0, len(messages), 2):
        found += decoding.decoded(messages.slice(at, 2)).to_pylist()
    source = RecordedTopic(str(torture / "messages_open-protocol.jsonl.gz"))
    named = _detected(source, Known()).decoded(source.first(10_000)).to_pylist()
    of_table = [[e["key_hash"] for e in es if e["table_name"] == "k_uq" and e["op"]] for es in (found, named)]
    assert sorted(of_table[0]) == sorted(of_table[1]) != []


def test_other_hosts_need_a_token(tmp_path):
    """No page is open to others without one; with one, a request must bring it."""
    watch = Watch(str(golden(LOG)), str(tmp_path))
    with pytest.raises(SetupError, match="nothing would keep them out"), pages(watch, "0.0.0.0:0"):
        pass
    with pages(watch, "127.0.0.1:0", token="s3cret") as at:
        assert _get(f"http://{at}/metrics")[0] == 401
        assert _get(f"http://{at}/metrics", "s3cret")[0] == 200
        assert _get(f"http://{at}/ready", "s3cret")[0] == 503
    watch.run()


def test_jq_reads_each_commit_ts_of_a_watch(undisturbed):
    """In the evidence of a finding, and in the pages: a number above 2^53 has its text beside it."""
    kept = json.loads((undisturbed._folder.evidence(1) / "finding.json").read_text())
    with pages(undisturbed, "127.0.0.1:0") as at:
        served = [json.loads(_get(f"http://{at}/{page}")[1]) for page in ("findings", "status")]
    finding = next(f for f in served[0]["findings"] if f["number"] == 1)
    for of in (kept, finding, *kept["evidence"], *finding["evidence"]):
        assert of["commit_ts_text"] == str(of["commit_ts"])
    assert with_texts(served) == served and "_text" in str(served[1])


def test_metrics_name_no_row(undisturbed):
    """Labels are guarantees, severities, reasons, topics and partitions; each watched guarantee has its series."""
    labels = set[str]()
    for family in text_string_to_metric_families(metrics(undisturbed.view).decode()):
        labels |= {name for s in family.samples for name in s.labels}
    assert labels == {"guarantee", "severity", "reason", "topic", "partition", "le", "version", "protocol"}
    assert b'ticdc_lab_violations_total{guarantee="row_images_chain",severity="error"} 0.0' in metrics(WatchView())


def test_a_ddl_that_comes_later_explains_a_chain(tmp_path):
    """The finding of one run is withdrawn in the next, also if the row changes again and is no suspect any more."""
    source, state = tmp_path / "topic", tmp_path / "state"
    source.mkdir()
    lines = sorted(gzip.decompress(golden(LOG).read_bytes()).splitlines(), key=lambda m: json.loads(m)["offset"])
    for name, part, status in (("a", lines[:1297], OPEN), ("b", lines[1297:], WITHDRAWN)):
        (source / f"{name}.jsonl").write_bytes(b"\n".join(part) + b"\n")
        found = watched(source, state).findings.values()
        assert {f.status for f in found if f.guarantee == "row_images_chain"} == {status}


@pytest.mark.parametrize(("log", "given", "reason"), [
    (LOG, "[[filter.event-filters]]\nmatcher = ['shop.*']\nignore-event = ['delete']\n"
          "[sink]\ncolumn-selectors = [{matcher = ['shop.*'], columns = ['id']}]\n"
          "dispatchers = [{matcher = ['shop.*'], partition = 'ts'}]", "filtered"),
    ("../torture/messages_open-protocol-noold.jsonl.gz", "[filter]\nrules = ['nothing.*']", "no_old_value"),
])  # fmt: skip
def test_what_an_audit_does_not_check_a_watch_does_not_either(tmp_path, monkeypatch, log, given, reason):
    """The same reasons and contradictions, counted changes, and the same again from a run that was killed."""
    source, file = golden(LOG).parent / log, tmp_path / "changefeed.toml"
    file.write_text(given)
    monkeypatch.setattr(running, "ROWS_AT_ONCE", 300)
    monkeypatch.setattr(running, "JUDGE_S", 0.0)
    monkeypatch.setattr(running, "COMMIT_S", 0.0)
    monkeypatch.setattr("ticdc_lab.sources.capture.LINES_A_BATCH", 150)

    def command(*words: str) -> list[str]:
        return [words[0], str(source), "--changefeed", str(file), "--json", *words[1:]]

    def said(*words: str) -> dict[str, Any]:
        ran = CliRunner().invoke(main, command(*words))
        assert ran.exit_code in (0, 1), ran.output
        return dict(json.loads(ran.stdout))

    def without_numbers(said: dict[str, Any]) -> dict[str, Any]:
        left_out = {"number", "found_s", "changed_s"}
        found = [{n: v for n, v in f.items() if n not in left_out} for f in said["findings"]]
        return said | {"findings": sorted(found, key=str)}

    # in a process of its own, as this one may have another session
    ran = subprocess.run([sys.executable, "-m", "ticdc_lab.cli", *command("audit")], capture_output=True, check=False)
    audit = json.loads(ran.stdout)
    watch = without_numbers(said("watch", "--once", "--state", str(tmp_path / "state")))
    own = watch["not_checked"]
    assert {n: why for n, why in audit["not_checked"].items() if n not in watch["not_watched"]} == own
    assert list(own) == ["row_images_chain"] and watch["unchecked"][reason] > 200
    assert audit["counts"][MATCH] == (1 if reason == "no_old_value" else 3)
    words = [
        sorted((f["message"], [(e["partition"], e["offset"]) for e in f["evidence"]])
               for f in of["findings"] if f["guarantee"] == MATCH)
        for of in (watch, audit)
    ]  # fmt: skip
    assert words[0] == words[1] and all(evidence for _, evidence in words[0])
    kept = (tmp_path / "state" / "findings").glob("*/finding.json")
    shown = [json.loads(file.read_text()) for file in kept]
    own = [f for f in shown if f["guarantee"] == MATCH]
    assert own and all(len(f["messages"]) == 1 for f in own)
    place = own[0]["evidence"][0]
    text = CliRunner().invoke(main, ["watch", "show", str(own[0]["number"]), "--state", str(tmp_path / "state")]).output
    assert f"\n> partition {place['partition']} offset {place['offset']}" in text
    assert text.endswith("messages.jsonl.gz --changefeed FILE\n")
    assert watch["counts"] == {n: k for n, k in audit["counts"].items() if n not in watch["not_watched"]}
    step, left = Watch._step, [4]

    def dies(self, held, refused, **more):
        left[0] -= 1
        if not left[0]:
            raise Died
        step(self, held, refused, **more)

    monkeypatch.setattr(Watch, "_step", dies)
    again = ["watch", "--once", "--state", str(tmp_path / "again")]
    with pytest.raises(Died):
        CliRunner().invoke(main, command(*again), catch_exceptions=False)
    assert without_numbers(said(*again)) == watch
    text = CliRunner().invoke(main, ["watch", "status", "--state", str(tmp_path / "again")]).output
    assert f"row images chain: not checked, because {watch['not_checked']['row_images_chain']}." in text
    assert f"not checked by all guarantees: {reason}" in text


def test_a_step_takes_few_bytes_at_once(undisturbed, tmp_path, monkeypatch):
    """No matter how many rows a message has: their events take memory meanwhile. What is found stays the same."""
    sizes, take = list[int](), Watch._absorb
    monkeypatch.setattr(running, "BYTES_AT_ONCE", 20_000)

    def taken(self, messages, *of, **more):
        sizes.append(messages.nbytes)
        take(self, messages, *of, **more)

    monkeypatch.setattr(Watch, "_absorb", taken)
    whole = watched(golden(LOG), tmp_path)
    assert len(sizes) > 20 and max(sizes) < 60_000
    assert told(whole.findings.values()) == told(undisturbed.findings.values())
    assert whole.view.counts == undisturbed.view.counts
