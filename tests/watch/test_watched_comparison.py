"""Two logs compared while they grow: the same as two that have ended, in any batches, within its memory."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from dataclasses import replace
from functools import cache
from unittest.mock import patch
from urllib.request import urlopen

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from conftest import ROOT, golden
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_logs import mark, row
from topics import mock_cluster, recorded, send
from watched_logs import FORM, batches, of_tiny

import ticdc_lab
from ticdc_lab.cli import main
from ticdc_lab.codecs import log_types
from ticdc_lab.codecs.decode import decoder
from ticdc_lab.codecs.detection import detect
from ticdc_lab.codecs.known import Known
from ticdc_lab.codecs.simple_tables import finder, tables_of
from ticdc_lab.errors import ContractError, ProtocolError, SourceError
from ticdc_lab.settings import Settings
from ticdc_lab.sources.capture import read_whole
from ticdc_lab.sources.kafka_reading import TopicReader
from ticdc_lab.sources.load import shown_by
from ticdc_lab.transactions.differences import KINDS
from ticdc_lab.watch import comparing, comparison
from ticdc_lab.watch import state as of_state
from ticdc_lab.watch.comparing import CompareFolder, WatchedComparison
from ticdc_lab.watch.comparison import HERE, THERE, ComparedSides, CompareState, absorbed, judged, step
from ticdc_lab.watch.pages import pages

SMALL = golden("messages_open-protocol_small.jsonl.gz")
PAIRS = [
    ("messages_open-protocol_small-dup-restart", "messages_canal-json-tidb_small"),
    ("messages_simple_small-dup-table", "messages_debezium_small"),
    ("torture/messages_open-protocol-updatedonly", "torture/messages_open-protocol-noold"),
    ("torture/messages_canal-json-tidb", "torture/messages_open-protocol"),
    ("torture/messages_canal-json-selector", "torture/messages_simple"),
    ("messages_open-protocol-deletehk_small", "messages_open-protocol_small"),
]


def path_of(name):
    """A golden or a torture file."""
    return ROOT / "tests/data" / f"{name}.jsonl.gz" if "/" in name else golden(f"{name}.jsonl.gz")


@cache
def read(name):
    """All events of a log with their images, its protocol, and what its first messages show of its settings."""
    with path_of(name).open("rb") as file:
        messages = pa.Table.from_batches([m for m, _ in read_whole(file, name)])
    told, known = detect(messages.slice(0, 256)), Known()
    if told.protocol == "simple":
        known = Known(tables=tables_of([r for b in finder(known)(iter(messages.to_batches())) for r in b.to_pylist()]))
    if told.protocol == "debezium":
        ddl = pa.Table.from_batches(log_types.finder(known)(iter(messages.to_batches())))
        known = Known(types=log_types.types_of(ddl))
    events = pa.Table.from_batches(decoder(told.protocol, known=known)(iter(messages.to_batches())), FORM)
    return events, told.protocol, Settings(shown_by(messages.slice(0, 256), told, known))


def compared(here, there, sides=None, *, rng=None, most=4000):
    """What is found of two tables of events, cut into batches that are read in any order of the sides."""
    sides = sides or ComparedSides(("open-protocol", "open-protocol"))
    rng = rng or random.Random(0)
    queues = [batches(events, rng, most=most) for events in (here, there)]
    state, turns = CompareState(), [HERE] * len(queues[HERE]) + [THERE] * len(queues[THERE])
    rng.shuffle(turns)
    for side in turns:
        part = queues[side].pop(0)
        state = absorbed(state, part, side, sides, ends=not queues[side])
    return state, judged(state, sides)


def rows_of(frame):
    """Rows with None for what is missing."""
    return [[None if pd.isna(v) else v for v in r] for r in frame.astype(object).to_numpy().tolist()]


def same(found, answer):
    """Whether it is what an answer shows of logs that have ended."""
    frames = ("tables", found.tables), ("differences", found.examples), ("ddl", found.ddl)
    return all(rows_of(answer.frames[name]) == rows_of(frame) for name, frame in frames)


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_it_finds_what_compare_finds(here, there, spark):
    """Of logs that the real encoders wrote: other settings, redeliveries, keys that one protocol does not show."""
    log, other = (ticdc_lab.open(str(path_of(name)), spark=spark) for name in (here, there))
    answer = log.compare(other)
    (a, *of_a), (b, *of_b) = read(here), read(there)
    sides = ComparedSides(*zip(of_a, of_b, strict=True))
    for seed, (most, window) in enumerate(((5000, comparison._AT_ONCE), (300, comparison._AT_ONCE), (300, 64))):
        with patch.object(comparison, "_AT_ONCE", window):
            state, found = compared(a, b, sides, rng=random.Random(seed), most=most)
        assert same(found, answer) and found.late == (0, 0)
        assert bool(state.windows) == (window == 64)


def topic(n=30):
    """Rows of two partitions with a watermark behind each pair, as tiny events."""
    events = []
    for i in range(n):
        events += [row(i % 2, 2 * i, 10 + i, key=str(i)), mark(i % 2, 2 * i + 1, 10 + i)]
    return [*events, mark(0, 999, 10 + n), mark(1, 999, 10 + n)]


def planted(name, events):
    """One topic with a difference, and what is found of it as (kind, several, n)."""
    rows = [i for i, e in enumerate(events) if e["kind"] == "row"]
    one = events[rows[len(rows) // 2]]
    others = [e for e in events if e is not one]
    changed = one | {"columns": [c | {"value": "other"} if not c["is_key"] else c for c in one["columns"]]}
    return {
        "missing": (others, [("only here", None)]),
        "extra": ([*events, row(0, 500, one["commit_ts"], key="extra")], [("only there", None)]),
        "content": ([*others, changed], [("other values", None)]),
        "twice": ([*events, changed | {"offset": 501}], [("other values", "there")]),
        "again": ([*events, one | {"offset": 501}], []),
        "elsewhere": ([*others, one | {"partition": 1 - one["partition"], "offset": 501}], [("other partition", None)]),
    }[name]


@settings(max_examples=24, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(["missing", "extra", "content", "twice", "again", "elsewhere"]), seed=st.integers(0, 2**16),
    most=st.integers(1, 40), swapped=st.booleans(), window=st.integers(1, 40),
)  # fmt: skip
def test_planted_differences_are_found_in_any_batches(name, seed, most, swapped, window):
    """And nothing else is, in windows of any size; which log is named first turns the answer round."""
    events = topic()
    other, expected = planted(name, events)
    logs = of_tiny(events), of_tiny(other)
    with patch.object(comparison, "_AT_ONCE", window):
        _, found = compared(*(logs[::-1] if swapped else logs), rng=random.Random(seed), most=most)
    turn = {"only here": "only there", "only there": "only here", "there": "here"} if swapped else {}
    assert rows_of(found.examples[["kind", "several"]]) == [[turn.get(k, k), turn.get(s, s)] for k, s in expected]


def test_old_values_that_are_off_in_a_part_of_a_log_are_no_difference():
    """An update is an insert there; a change that is missing is a difference as before."""
    here, *of = read("messages_open-protocol_small")
    first = pa.array([i < 900 for i in range(len(here))])
    off = pc.and_(first, pc.fill_null(pc.equal(here["op"], "update"), False))
    there = here
    for name, value in (("op", "insert"), ("before_hash", None), ("change_hash", 7), ("before", None)):
        column = here.schema.get_field_index(name)
        changed = pc.if_else(off, pa.scalar(value, here.schema.field(name).type), here[name].combine_chunks())
        there = there.set_column(column, here.schema.field(name), changed)
    sides = ComparedSides(*zip(of, of, strict=True))
    _, found = compared(here, there, sides)
    assert pc.sum(off).as_py() > 50 and not found.comparable.ops and not len(found.examples)
    lost = [i for i, kind in enumerate(here["kind"].to_pylist()) if kind == "row"][300]
    _, found = compared(here, pa.concat_tables([there.slice(0, lost), there.slice(lost + 1)]), sides)
    assert rows_of(found.examples[["kind", "offset"]]) == [["only here", here["offset"][lost].as_py()]]


def test_keys_of_labels_are_paired_with_keys_of_numbers():
    """By what TiCDC hashes of both, as :func:`ticdc_lab.transactions.differences.differences` pairs them."""
    here, there = (str(path_of(f"torture/messages_{name}")) for name in ("debezium", "simple"))
    asked = WatchedComparison(here, there, once=True)
    tables = asked.run().tables.set_index("table")
    own = tables.loc[["torture.k_enum", "torture.k_set"]]
    assert own[[*KINDS[2:]]].to_numpy().sum() == 16 and not own[[*KINDS[:2]]].to_numpy().any()


def test_what_is_not_resolved_by_both_waits():
    """A change is no difference before the watermark of both has passed it; then it is."""
    sides = ComparedSides(("open-protocol", "open-protocol"))
    state, found = step(
        CompareState(), of_tiny([row(0, 0, 5), mark(0, 1, 5), row(0, 2, 7, key="b"), mark(0, 3, 9)]), HERE, sides
    )
    assert found.span is None
    state, found = step(state, of_tiny([row(0, 0, 5), mark(0, 1, 6)]), THERE, sides)
    assert found.span == (5, 6) and not len(found.examples) and found.tables["same"].sum() == 1
    _, found = step(state, of_tiny([mark(0, 2, 8)]), THERE, sides)
    assert rows_of(found.examples[["commit_ts", "kind"]]) == [[7, "only here"]]


def test_a_window_is_paired_once():
    """However often both are compared: only what is above the last window is, or what is delivered again."""
    sides, state, asked = ComparedSides(("open-protocol", "open-protocol")), CompareState(), list[int]()
    pair = comparison.paired
    log = [e for i in range(400) for e in (row(0, 2 * i, 10 + i, key=str(i)), mark(0, 2 * i + 1, 10 + i))]
    counting = patch.object(comparison, "paired", lambda d, *of: asked.append(len(d)) or pair(d, *of))
    with counting, patch.object(comparison, "_AT_ONCE", 40):
        for i in range(0, 800, 40):
            for side in (HERE, THERE):
                state = absorbed(state, of_tiny(log[i : i + 40]), side, sides)
            state = comparison.windowed(state, sides)
            assert judged(state, sides).tables["same"].sum() >= i // 2
        assert len(state.windows) > 5 and sum(asked) < 6 * 800
        windows = state.windows
        again = absorbed(state, of_tiny([log[100] | {"offset": 9000}, log[101] | {"offset": 9001}]), THERE, sides)
        kept = comparison.windowed(again, sides).windows
        assert all(a is b for a, b in zip(kept, windows, strict=True))
        other = [log[100] | {"offset": 9002, "columns": [{"name": "id", "value": "50", "is_key": True}]}]
        changed = comparison.windowed(absorbed(again, of_tiny(other), THERE, sides), sides)
        assert sum(a is not b for a, b in zip(changed.windows, windows, strict=True)) == 1
        assert judged(changed, sides).tables["other values"].sum() == 1


@pytest.mark.parametrize("window", [16, 1 << 16])
@pytest.mark.parametrize("name", ["missing", "extra", "content", "elsewhere"])
def test_the_memory_is_kept_and_nothing_is_lost(name, window, monkeypatch):
    """What was paired is counted before it is forgotten, and differences stay listed."""
    monkeypatch.setattr(comparison, "_AT_ONCE", window)
    events = [e for e in topic(1000) if e["kind"] == "row" or e["commit_ts"] % 50 < 2]
    here, there = (of_tiny(sorted(of, key=lambda e: (e["commit_ts"], e["kind"] == "watermark", e["offset"])))
                   for of in (events, planted(name, events)[0]))  # fmt: skip
    _, expected = compared(here, there)
    sides = ComparedSides(("open-protocol", "open-protocol"), memory=60_000)
    state, most = CompareState(), 0
    for i in range(0, max(len(here), len(there)), 100):
        for side, log in enumerate((here, there)):
            state = absorbed(state, log.slice(i, 100), side, sides, ends=i + 100 >= len(log))
            most = max(most, state.nbytes)
    found = judged(state, sides)
    assert state.forgotten_ts > 700 and most < 80_000 and found.late == (0, 0)
    assert rows_of(found.tables) == rows_of(expected.tables) and rows_of(found.examples) == rows_of(expected.examples)


def test_what_is_paired_goes_after_a_while_however_long_the_logs_are(monkeypatch, tmp_path):
    """Of hundreds of windows few are kept, at the end as after a while; all is counted; a commit writes what is new."""
    monkeypatch.setattr(comparison, "_AT_ONCE", 16)
    sides = ComparedSides(("open-protocol", "open-protocol"), keep_ms=1_000)
    saved, state, sizes, written = CompareFolder(str(tmp_path)), CompareState(), list[int](), list[str]()
    write = CompareFolder._write
    monkeypatch.setattr(CompareFolder, "_write", lambda self, name, of: written.append(name) or write(self, name, of))
    rows = 2_000
    for i in range(0, rows, 10):
        at = [(100 * j) << 18 for j in range(i + 1, i + 11)]
        log = [
            e for j, ts in enumerate(at) for e in (row(0, 2 * (i + j), ts, key=str(ts)), mark(0, 2 * (i + j) + 1, ts))
        ]
        for side in (HERE, THERE):
            state = comparison.windowed(absorbed(state, of_tiny(log), side, sides), sides)
        sizes.append(sum(len(w.delivered) for w in state.windows) + len(state.delivered) + sum(map(len, state.fresh)))
        if i % 100 == 0:
            saved.save(state, [{}, {}], [FORM.empty_table()] * 2)
    assert max(sizes) <= 60 and len(state.windows) < 6 and state.forgotten_ts > (100 * rows - 4_000) << 18
    assert rows_of(judged(state, sides).tables[["same"]]) == [[rows]]
    saved.save(state, [{}, {}], [FORM.empty_table()] * 2)
    assert len(written) == len({*written} - {"compare.npz"}) + rows // 100 + 1  # a window once
    kept = {p.name for p in tmp_path.glob("window-*.npz")}
    assert len(kept) < 6 and kept <= {*written}
    again, _, windows = saved.saved()
    again = comparison.with_windows(again, windows, sides)
    assert rows_of(judged(again, sides).tables) == rows_of(judged(state, sides).tables)
    late = of_tiny([row(0, 9_999, 100 << 18, key=str(100 << 18))])
    assert absorbed(state, late, THERE, sides).late == (0, 1)


def test_a_change_whose_time_is_forgotten_counts_as_not_compared():
    """It is not called the same, nor a difference."""
    sides = ComparedSides(("open-protocol", "open-protocol"))
    state, _ = compared(of_tiny(topic()), of_tiny(topic()))
    state = replace(state, forgotten_ts=20)
    _, found = step(state, of_tiny([row(0, 2000, 15, key="again"), row(0, 2001, 12, key="2")]), THERE, sides)
    assert found.late == (0, 2) and not len(found.examples)


def test_a_log_ends_without_a_message_after_its_offsets_were_counted():
    """The last batch of a recording is empty; facts of long logs are few."""
    log = of_tiny([row(0, o, o + 1, key=str(o)) for o in range(400)])
    sides = ComparedSides(("open-protocol", "open-protocol"))
    state = CompareState()
    with patch.object(of_state, "CHUNKS", 2), patch.object(comparison, "CHUNKS", 2):
        for side in (HERE, THERE):
            for i in range(0, 400, 50):
                state = absorbed(state, log.slice(i, 50), side, sides)
            state = absorbed(state, log.slice(0, 0), side, sides, ends=True)
    assert state.sides[HERE].counted and judged(state, sides).tables["same"].sum() == 400


def test_a_restart_at_any_moment_changes_nothing(tmp_path):
    """The state folder brings back rows, watermarks, names and totals."""
    lines = gzip.decompress(SMALL.read_bytes()).splitlines(keepends=True)
    other = tmp_path / "other.jsonl"
    other.write_bytes(b"".join(line for i, line in enumerate(lines) if i != 400))
    whole = WatchedComparison(str(SMALL), str(other), once=True).run()
    assert rows_of(whole.examples[["kind", "partition"]]) == [["only here", json.loads(lines[400])["partition"]]]
    turns = iter(range(3))
    state, found = str(tmp_path / "state"), None
    for end in (1, 2, 99):
        asked = iter([False] * end + [True] * 9)
        found = WatchedComparison(str(SMALL), str(other), once=True, state=state).run(lambda a=asked: next(a))
    assert next(turns) == 0 and rows_of(found.examples) == rows_of(whole.examples)
    assert rows_of(found.tables) == rows_of(whole.tables) and found.span == whole.span
    with pytest.raises(SourceError, match="belongs to a comparison with"):
        WatchedComparison(str(SMALL), str(SMALL), state=state)


def test_bad_lines_are_counted_once_and_said(tmp_path):
    """Over a restart in the middle, too; a recording that grew behind what was compared is refused."""
    lines = gzip.decompress(SMALL.read_bytes()).splitlines(keepends=True)
    bad, state = tmp_path / "bad.jsonl", str(tmp_path / "state")
    bad.write_bytes(b"".join([*lines[:400], b"{broken\n", *lines[400:]]))
    for end in (1, 99):
        asked = iter([False] * end + [True] * 9)
        one = WatchedComparison(str(bad), str(SMALL), once=True, state=state)
        one.run(lambda a=asked: next(a))
    assert one.unread == (1, 0)
    said = CliRunner().invoke(main, ["compare", "--watch", str(bad), str(SMALL), "--state", state, "--once"])
    assert (said.exit_code, "1 message of this one could not be read" in said.output) == (0, True)
    bad.write_bytes(bad.read_bytes() + lines[-1])
    with pytest.raises(SourceError, match="is another file now"):
        WatchedComparison(str(bad), str(SMALL), once=True, state=state)


@pytest.mark.parametrize("damage", [lambda raw: b"", lambda raw: raw[: len(raw) // 2], lambda raw: b"x" + raw])
def test_a_damaged_state_is_named(tmp_path, damage):
    """However it is damaged: what reads the file raises a class of its own for each way."""
    state = tmp_path / "state"
    WatchedComparison(str(SMALL), str(SMALL), once=True, state=str(state)).run()
    (file,) = state.glob("*.npz")
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(SourceError, match="is no state of a comparison, or is damaged"):
        WatchedComparison(str(SMALL), str(SMALL), once=True, state=str(state)).run()


def test_the_command(tmp_path):
    """Exit 0, 1 and 2, and what it refuses."""
    lines = gzip.decompress(SMALL.read_bytes()).splitlines(keepends=True)
    other = tmp_path / "other.jsonl"
    other.write_bytes(b"".join(lines[:400] + lines[401:]))

    def said(*args):
        return CliRunner().invoke(main, ["compare", *map(str, args)])

    equal = said(SMALL, golden("messages_canal-json-tidb_small.jsonl.gz"), "--watch", "--once")
    assert equal.exit_code == 0 and equal.stdout.startswith("Both logs have the same 2,101 row changes")
    differs = said(SMALL, other, "--watch", "--json")
    told = json.loads(differs.stdout)
    assert differs.exit_code == 1 and [d["kind"] for d in told["differences"]] == [KINDS[0]]
    assert "1 row change only in this one (the other is whole except for data in 1 missing offset)" in told["answer"]
    assert said(SMALL, other, "--once").exit_code == 2 and said("duckdb:///a", "duckdb:///b", "--watch").exit_code == 2
    dateless = said(SMALL, golden("messages_canal-json_small.jsonl.gz"), "--watch", "--once")
    assert dateless.exit_code == 2 and "has no commit_ts" in dateless.stderr


def test_a_storage_folder_is_compared_while_it_grows(tmp_path):
    """With a topic of the same upstream; what its files do not have is found, and a restart reads no file twice."""
    shutil.unpack_archive(golden("storage_small.tar.gz"), tmp_path)
    root, state = tmp_path / "storage/small_canal-json", str(tmp_path / "state")
    topic, every = str(golden("messages_canal-json-tidb_small.jsonl.gz")), sorted(root.glob("**/CDC*.json"))
    last = every[-1].read_bytes()
    lines = last.splitlines(keepends=True)
    assert len(lines) > 10
    every[-1].write_bytes(b"".join(lines[:5]))
    first = WatchedComparison(str(root), topic, once=True, state=state)
    found = first.run()
    assert found.tables["only there"].sum() == len(lines) - 5 and not found.tables["other values"].sum()
    every[-1].write_bytes(last)
    again = WatchedComparison(str(root), topic, once=True, state=state)
    found = again.run()
    assert found.tables[[*KINDS]].to_numpy().sum() == 2_101
    assert not found.tables[["only here", "only there", "other values"]].to_numpy().sum() and not any(again.unread)
    empty = tmp_path / "empty"
    (empty / "s/t/meta").mkdir(parents=True)
    (empty / "metadata").write_text('{"checkpoint-ts": 5}')
    with pytest.raises(ProtocolError, match="has no data file yet"):
        WatchedComparison(str(empty), topic, once=True)


def test_too_little_memory_is_an_error_with_the_log_that_is_behind():
    """What no watermark has passed cannot be forgotten."""
    with pytest.raises(ContractError, match=r"need more than the memory of .* has no watermark in a partition"):
        WatchedComparison(str(SMALL), str(SMALL), once=True, memory=50_000).run()


def test_nothing_is_compared_while_the_broker_of_a_partition_was_never_heard(tmp_path, monkeypatch):
    """What one log alone shows meanwhile is no difference; it is compared when that broker answers."""
    monkeypatch.setattr(comparing, "LOOK_S", 0.1)
    monkeypatch.setattr(comparing, "JUDGE_S", 0.0)
    silent, offsets, said, waited = [("t", 2)], TopicReader._offsets, list[str](), list[int]()

    def of_others(self, asked, *, partly=False, **more):
        self.unanswered |= {at: "b2:9092" for at in asked if at in silent}
        return offsets(self, {at: of for at, of in asked.items() if at not in silent}, partly=partly, **more)

    monkeypatch.setattr(TopicReader, "_offsets", of_others)
    with mock_cluster() as servers:
        send(servers, "t", recorded(SMALL))
        one = WatchedComparison(f"kafka://{servers}/t", str(SMALL), said=said.append)

        def is_done():
            waited.append(1)
            if said and one.compared.span is None and silent and len(waited) > 20:
                assert said[0].startswith("Partition 2 of t is not read since 20") and one.view.silent
                silent.clear()
            return one.compared.span is not None and one.compared.tables["same"].sum() == 2_101

        found = one.run(is_done)
    assert not silent and said[1:] == ["Partition 2 of t is read again."] and not one.view.silent
    with pages(one, "127.0.0.1:0") as at, urlopen(f"http://{at}/status", timeout=30) as page:
        answered = {
            (of["side"], of["topic"], of["partition"]): of["answered_s"] for of in json.load(page)["answered_s"]
        }
    assert answered["here", "t", 2] == one.view.answered_s["here", "t", "2"]
    assert not found.tables[[*KINDS[:3]]].to_numpy().sum()
