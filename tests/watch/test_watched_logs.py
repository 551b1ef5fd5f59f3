"""A log that ends: watched to its end, in any batches, a watch finds what an audit finds, except for what it names."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from conftest import ROOT
from generated_topics import FAULTS, every_fault, topic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_logs import ddl, mark, row
from watched_logs import FORM, audited, batches, decoded, of_tiny, watched_to_the_end

from ticdc_lab.audit import GUARANTEES
from ticdc_lab.audit.history import Changes
from ticdc_lab.settings import MATCH
from ticdc_lab.settings.file import parse_file
from ticdc_lab.watch import rows as of_rows
from ticdc_lab.watch import state as of_state
from ticdc_lab.watch.kept import found_again
from ticdc_lab.watch.rows import LastChanges
from ticdc_lab.watch.state import (
    EVICTED,
    FILTERED,
    MARKS,
    NO_OLD_VALUE,
    QUARANTINED,
    Watched,
    WatchState,
    absorbed,
    audited_so_far,
    step,
)

LOGS = [
    "messages_open-protocol_small.jsonl.gz", "messages_canal-json-tidb_small-dup-restart.jsonl.gz",
    "messages_canal-json_small.jsonl.gz", "messages_simple_small-dup-ddl.jsonl.gz", "messages_avro_small.jsonl.gz",
    "messages_debezium-noschema_small.jsonl.gz", "messages_open-protocol-deletehk_small.jsonl.gz",
    "messages_canal-json-handlekey_small.jsonl.gz",
]  # fmt: skip
OPEN = Watched("open-protocol")


def same(found, audit):
    """Whether both are the same findings."""
    names = ("guarantee", "severity", "table", "commit_ts", "partition", "offset", "message", "evidence")
    one, other = (sorted(str([f[n] for n in names]) for f in of) for of in (found, audit))
    return one == other


@pytest.mark.parametrize("name", LOGS)
def test_it_finds_what_an_audit_finds(name):
    """Of logs that the real encoders wrote, in each protocol, cut into few and into many batches."""
    events, watched = decoded(name)
    expected = audited(events, watched)
    for seed, most in enumerate((3000, 600)):
        _, found, counts = watched_to_the_end(batches(events, random.Random(seed), most=most), watched)
        assert same(found, expected)
        assert counts.messages == len({(e["topic"], e["partition"], e["offset"]) for e in events.to_pylist()})
        refused = sum(e["error_class"] is not None for e in events.to_pylist())
        assert counts.unchecked == ({QUARANTINED: refused} if refused else {})
    if "dup" not in name:
        assert not counts.redelivered


ALL = sorted(
    {f.name for place in ("data", "tests/data/golden", "tests/data/golden/extra", "tests/data/torture")
     for f in (ROOT / place).glob("messages_*.jsonl.gz")}
)  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize("name", ALL)
def test_it_finds_what_an_audit_finds_in_every_log(name):
    """All that the real encoders wrote here, torture too; without the schemas of avro, most of one is quarantine."""
    events, watched = decoded(name)
    expected = audited(events, watched)
    for seed, most in enumerate((5000, 300)):
        _, found, _ = watched_to_the_end(batches(events, random.Random(seed), most=most), watched)
        assert same(found, expected)


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), cut=st.integers(0, 2**32), most=st.integers(1, 60), fault=st.sampled_from([*FAULTS]))
def test_where_a_batch_ends_changes_nothing(seed, cut, most, fault):
    """Topics with a planted fault, their partitions read side by side in any way."""
    events = of_tiny(fault(topic(seed)))
    expected = audited(events, OPEN)
    assert FAULTS[fault] in {f["guarantee"] for f in expected}
    _, found, _ = watched_to_the_end(batches(events, random.Random(cut), most=most), OPEN)
    assert same(found, expected)


def test_every_planted_fault_is_found_beside_each_other():
    """One log with all kinds."""
    events = of_tiny(every_fault())
    _, found, _ = watched_to_the_end(batches(events, random.Random(1), most=40), OPEN)
    assert {f["guarantee"] for f in found} >= set(FAULTS.values())
    assert same(found, audited(events, OPEN))


def test_avro_is_watched_by_what_its_log_carries():
    """With DDL, watermarks and old values as open-protocol is, whichever batch brings the first of them."""
    avro, events = Watched("avro"), of_tiny(every_fault())
    expected = audited(events, avro)
    state, found, counts = watched_to_the_end(batches(events, random.Random(1), most=40), avro)
    assert state.known.carried == {"ddl", "watermark", "before"} and same(found, expected)
    assert {f["guarantee"] for f in found} >= {"nothing_below_resolved_ts", "row_images_chain"}
    assert counts.checked["watermarks_are_monotone"]
    assert avro.on(state.known).not_watched.keys() == OPEN.not_watched.keys()


def test_what_avro_carries_may_come_after_the_rows_that_it_judges():
    """An update that misses its row is a finding once a DDL shows that the log has all; without one it never is."""
    rows = [row(0, 0, 5), row(0, 1, 6, "delete"), row(0, 2, 7, "update")]
    for log in (rows, [*rows, ddl(0, 3, 8)]):
        events = of_tiny(log)
        parts = [events.slice(i, 1) for i in range(len(log))]
        found = watched_to_the_end(parts, Watched("avro"))[1]
        assert same(found, audited(events, Watched("avro")))
        assert bool(found) == (log is not rows)


def test_what_it_does_not_watch_it_names():
    """Each guarantee is watched, or not with a reason; those that need the values of rows are not."""
    assert {*OPEN.checks} | {*OPEN.not_watched} == {*GUARANTEES} and all(OPEN.not_watched.values())
    assert {n for n, g in GUARANTEES.items() if g.remembers == "images"} <= {*OPEN.not_watched}
    assert "watermark" in Watched("avro").not_watched["nothing_below_resolved_ts"]


def test_later_messages_explain_what_was_found():
    """A partition whose watermark comes later than another's does not have it for a moment; then the
    finding is gone.
    """
    first, second = of_tiny([row(0, 0, 5), mark(0, 1, 5), mark(1, 0, 4), mark(0, 2, 7)]), of_tiny([mark(1, 1, 7)])
    about = [("resolved_events_on_all_partitions", p) for p in (0, 1)]
    state, found, _ = step(WatchState(), first, OPEN)
    assert [(f["guarantee"], f["partition"]) for f in found.to_pylist()] == about
    ahead = audited_so_far(state, OPEN, goes_on=True).findings
    assert ahead["partition"].to_pylist() == [0]  # it is read ahead
    _, found, _ = step(state, second, OPEN)
    assert {f["offset"] for f in found.to_pylist() if f["partition"] == 1} == {1}


def test_a_change_without_commit_ts_is_judged_as_an_audit_judges_it():
    """It is no old one: nothing is unchecked while nothing was forgotten."""
    events = of_tiny([row(0, 0, 5), row(1, 0, None, "update"), row(0, 1, 6, "update"), row(1, 1, None, "update")])
    _, found, counts = watched_to_the_end([events.slice(i, 1) for i in range(4)], OPEN)
    assert same(found, audited(events, OPEN)) and not counts.unchecked


def test_a_change_older_than_what_is_kept_is_judged_by_marks_alone():
    """No consumer can distinguish it from one that was sent before, but it must not follow a watermark above it."""
    state, _ = absorbed(WatchState(), of_tiny([row(0, 0, 5), row(0, 1, 8, "update"), mark(0, 2, 8)]), OPEN)
    state = replace(state, recent=replace(state.recent, parts=(), since=7))
    state, found, counts = step(state, of_tiny([row(0, 3, 6, "update"), row(0, 4, 9, "update")]), OPEN)
    assert counts.unchecked == {EVICTED: 1}
    told = [(f["guarantee"], f["offset"]) for f in found.to_pylist() if f["severity"] == "error"]
    assert told == [("nothing_below_resolved_ts", 3)]


def test_a_row_that_changed_lately_counts_once():
    """As it will when its changes are put together."""
    with patch.object(of_rows, "_DELTA", 0):
        state, _ = absorbed(WatchState(), of_tiny([row(0, i, 5 + i, key=str(i)) for i in range(99)]), OPEN)
    again = [row(0, 99 + i, 200 + i, "update", key=str(i)) for i in range(40)]
    state, _ = absorbed(state, of_tiny(again), OPEN)
    assert state.rows.n_rows == 99 < len(state.rows) <= 139


def feed(ignored: str):
    """A changefeed with one event filter."""
    text = f"[[filter.event-filters]]\nmatcher = ['s.a']\nignore-event = [{ignored}]"
    return parse_file(text, name="c.toml").settings


def test_a_partition_count_that_is_too_low_contradicts_the_log():
    """A partition that has only watermarks shows it too; a storage folder has no partitions."""
    events = of_tiny([row(0, 1, 10, key="a"), mark(0, 2, 10), mark(2, 1, 10)])
    few, enough = (parse_file(f"[sink.kafka-config]\npartition-num = {n}", name="c.toml").settings for n in (2, 3))
    for watched, n in (
        (replace(OPEN, settings=few), 1), (replace(OPEN, settings=enough), 0),
        (replace(OPEN, settings=few, is_folder=True), 0),
    ):  # fmt: skip
        told = audited_so_far(step(WatchState(), events, watched)[0], watched)
        assert len(told.contradicted) == n and MATCH not in told.unjudged
    assert "so there are at least 3" in audited_so_far(
        step(WatchState(), events, replace(OPEN, settings=few))[0], replace(OPEN, settings=few)
    ).contradicted[0].words  # fmt: skip


ROWS_OF_A = [row(0, 0, 5), row(0, 1, 6, "update"), row(1, 0, 7, "delete"), row(0, 2, 7), row(0, 3, 8, key=None)]
FILTER_OF_A = "[[filter.event-filters]]\nmatcher = ['s.a']\nignore-event = "


@pytest.mark.parametrize(("text", "log", "expected"), [
    (f"{FILTER_OF_A}['insert']", ROWS_OF_A, "the log has inserts of s.a, which the event filter of s.a leaves out"),
    (f"{FILTER_OF_A}['delete']", ROWS_OF_A, ""),  # the delete at 7 is of an update that TiCDC split
    (f"{FILTER_OF_A}['delete']", [*ROWS_OF_A, row(0, 4, 9, "delete")], "the log has deletes of s.a"),
    (f"{FILTER_OF_A}['all dml']", [*ROWS_OF_A, row(0, 4, 9, "delete")], "the log has deletes of s.a"),
    (f"{FILTER_OF_A}['delete']", [*ROWS_OF_A, row(0, 4, 9, "delete", table="b")], ""),
    ("[sink]\ncolumn-selectors = [{matcher = ['s.a'], columns = ['id']}]", ROWS_OF_A, "have the column v, which"),
    ("[sink]\ncolumn-selectors = [{matcher = ['s.b'], columns = ['id']}]", ROWS_OF_A, ""),
    ("[sink]\ncolumn-selectors = [{matcher = ['s.a'], columns = ['*']}]", ROWS_OF_A, ""),
    ("force-replicate = false", ROWS_OF_A, "the log has rows of s.a, which has no key"),
    ("force-replicate = false", ROWS_OF_A[:4], ""),
])  # fmt: skip
@pytest.mark.parametrize("kept", [MARKS, 1])
def test_rows_that_a_given_setting_leaves_out_are_a_finding_in_any_batches(text, log, expected, kept):
    """As in an audit; also if only transactions above the resolved_ts are kept, and a part of them comes again."""
    watched = replace(OPEN, settings=parse_file(text, name="c.toml").settings)
    events = of_tiny([*log, mark(0, 9, 9), mark(1, 9, 9), row(0, 10, 20, table="c"), row(1, 10, 7, "delete")])
    with patch.object(of_state, "MARKS", kept):
        for seed in range(3):
            state, _, _ = watched_to_the_end(batches(events, random.Random(seed), most=1 + 2 * seed), watched)
            told = audited_so_far(state, watched)
            assert MATCH not in told.unjudged
            assert any(expected in c.words for c in told.contradicted) if expected else not told.contradicted


def test_a_setting_that_was_given_later_is_not_compared_with_what_came_before():
    """The rows that came without it are counted; a restart with the same one changes nothing."""
    given = replace(OPEN, settings=parse_file("force-replicate = false", name="c.toml").settings)
    state, _ = absorbed(WatchState(), of_tiny(ROWS_OF_A), OPEN)
    state, _ = absorbed(state, of_tiny([row(0, 4, 9)]), given)
    told = audited_so_far(absorbed(state, of_tiny([row(0, 5, 10, "update")]), given)[0], given)
    assert "force-replicate was given after 5 row changes were read" in told.unjudged[MATCH] and not told.contradicted
    assert MATCH not in audited_so_far(absorbed(WatchState(), of_tiny(ROWS_OF_A), given)[0], given).unjudged


@pytest.mark.parametrize(("ignored", "filtered"), [
    ("'delete'", 2), ("'insert'", 3), ("'update'", 3), ("'insert', 'delete'", 5), ("'create table'", 0),
])  # fmt: skip
def test_what_a_filter_may_leave_out_is_not_called_checked(ignored, filtered):
    """An insert may miss a delete, another change an insert or an update; other tables and guarantees are checked."""
    log = [row(0, 0, 5), row(0, 1, 6, "update"), row(0, 2, 7, "update"), row(0, 3, 8, "delete"), row(0, 4, 9)]
    log += [row(0, 5 + i, 10 + i, key=str(i), table="b") for i in range(3)]
    given = replace(OPEN, settings=feed(ignored))
    for size in (1, 8):
        parts = [of_tiny(log).slice(i, size) for i in range(0, 8, size)]
        state, _, counts = watched_to_the_end(parts, given)
        assert counts.unchecked == ({FILTERED: filtered} if filtered else {})
        assert counts.checked["row_images_chain"] == 8 - filtered
        assert counts.checked["rows_stay_in_one_partition"] == counts.checked["nothing_below_ddl"] == 8
        assert bool(audited_so_far(state, given).unjudged) == bool(filtered)  # by what chains may miss


def test_a_change_whose_old_value_no_image_shows_is_not_called_checked():
    """Nothing is compared with what its row's former change left; a protocol whose chain is not watched has none."""
    log = [row(0, 0, 5), row(0, 1, 6, "update") | {"before": None}, row(0, 2, 7, "update"), row(0, 3, 8, "delete")]
    for size in (1, 4):
        parts = [of_tiny(log).slice(i, size) for i in range(0, 4, size)]
        state, _, counts = watched_to_the_end(parts, Watched("simple"))
        assert counts.unchecked == {NO_OLD_VALUE: 1} and counts.checked["row_images_chain"] == 3
        why = {"row_images_chain": "1 of 2 updates have no image before them, beside others that have one "
                                   "(enable-old-value): these are not judged"}  # fmt: skip
        assert audited_so_far(state, Watched("simple")).unjudged == why
    assert not watched_to_the_end([of_tiny(log)], Watched("avro"))[2].unchecked


def test_inserts_that_may_be_updates_are_named():
    """Without old values open-protocol has no updates: what finds its row there reports nothing."""
    log = of_tiny([row(0, i, 5 + i) for i in range(9)])
    state, found, _ = watched_to_the_end([log.slice(i, 3) for i in range(0, 9, 3)], OPEN)
    told = audited_so_far(state, OPEN)
    assert "row_images_chain" not in {f["guarantee"] for f in found} and told.unsure == 8
    assert "8 inserts find their rows there" in told.unjudged["row_images_chain"]


def test_a_message_that_is_not_decoded_is_not_called_checked():
    """Each counts as one change: what it has is unknown."""
    bad = {"topic": "t", "partition": 0, "offset": 1, "seq": 0, "error_class": "corrupted"}
    log = pa.concat_tables([of_tiny([row(0, 0, 5)]), pa.Table.from_pylist([bad], schema=FORM)])
    for parts in ([log], [log.slice(0, 1), log.slice(1, 1)]):
        _, _, counts = watched_to_the_end(parts, OPEN)
        assert counts.unchecked == {QUARANTINED: 1} and counts.quarantined == {"corrupted": 1}
        assert counts.checked["row_images_chain"] == 1 and counts.checked["offsets_are_contiguous"] == 2


def test_rows_beyond_the_memory_are_forgotten_and_counted():
    """The row that did not change for longest goes first; its next change is not called clean."""
    watched = Watched("open-protocol", memory=45 * 10)
    state, rows, evicted, unchecked = WatchState(), 40, 0, 0
    for i in range(rows):
        state, counts = absorbed(state, of_tiny([row(0, i, 10 + i, key=str(i))]), watched)
        evicted += counts.evicted
    assert state.rows.n_rows <= 10 and evicted == rows - state.rows.n_rows
    assert state.rows.n_rows == len(set(state.rows.as_arrays()["row_id"].tolist()))
    again = [row(0, rows, 100, "update", key="0"), row(0, rows + 1, 101, "update", key=str(rows - 1))]
    state, counts = absorbed(state, of_tiny(again), watched)
    unchecked += counts.unchecked[EVICTED]
    assert unchecked == 1 and counts.checked["row_images_chain"] == 1
    assert counts.checked["nothing_below_resolved_ts"] == 2
    assert [f for f in audited_so_far(state, watched).findings.to_pylist() if f["severity"] == "error"] == []


def test_without_commit_ts_forgotten_rows_are_counted_too():
    """All are forgotten at once, as nothing shows which did not change for longest."""
    watched = Watched("canal-json", has_commit_ts=False, memory=45 * 10)
    log = [row(0, i, None, key=str(i)) for i in range(20)]
    state, _, counts = watched_to_the_end([of_tiny(log[i : i + 1]) for i in range(20)], watched)
    assert state.rows.n_rows <= 10 and counts.evicted == 20 - state.rows.n_rows
    _, counts = absorbed(state, of_tiny([row(0, 20, None, "update", key="0")]), watched)
    assert counts.unchecked[EVICTED] == 1


def packed(rows):
    """All arrays of what is remembered of rows, by their name."""
    return [(f.name, getattr(p, f.name)) for p in (*rows.base, rows.delta) for f in fields(p)]


def test_a_row_takes_few_bytes_and_is_not_copied_with_all_others(monkeypatch):
    """A step keeps the state before it: of a state near its bound little may occur twice."""
    monkeypatch.setattr(of_rows, "REBUILT", 8_000)
    monkeypatch.setattr(of_rows, "_DELTA", 1_000)
    n, most = 40_000, 50_000 * 30
    ids = np.arange(2 * n, dtype=np.int64) * 0x1E3779B97F4A7C15
    rows, gone = LastChanges(), 0
    for i in range(0, len(ids), 1_000):
        own = np.sort(ids[i : i + 1_000])
        one = np.ones(len(own), dtype=np.int64)
        before = {id(column) for _, column in packed(rows)}
        at = rows.after(Changes(own, one, one + i, 99_999 * one, one, one, one, one, one), dated=True)
        rows, _, left_out = at.kept_to(most)
        gone += left_out
        new = [column for name, column in packed(rows) if name == "row_id" and id(column) not in before]
        assert sum(map(len, new)) < most // 30 // 2
        assert rows.nbytes <= most + 8_000 * 30 and rows.n_rows == i + 1_000 - gone
        whole = [column for _, column in packed(rows)]
        assert rows.nbytes == sum(column.nbytes for column in whole) == 30 * len(rows)
        assert all(column.base is None for column in whole if len(column))  # a view keeps all that it was cut from
    kept = set(rows.as_arrays()["row_id"].tolist())
    assert gone and kept == set(ids[-len(kept) :].tolist())
    assert set(rows.last(np.sort(ids)).row_id.tolist()) == kept


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), delta=st.sampled_from([1, 7, 64, 10_000]), wide=st.booleans())
def test_the_last_changes_of_rows_are_those_of_a_dictionary(seed, delta, wide):
    """No matter how many lie apart, and no matter what is forgotten: also offsets and places that need
    all their bytes.
    """
    rng, rows, expected = np.random.default_rng(seed), LastChanges(), dict[int, tuple[int, ...]]()
    with patch.object(of_rows, "_DELTA", delta), patch.object(of_rows, "REBUILT", 100):
        for ts in range(1, 40):
            ids = np.unique(rng.integers(-40, 40, rng.integers(1, 30))) * (1 << 57) - (ts % 5 == 0)
            n = len(ids)
            offset, seq = (rng.integers(0, 1 << (40 if wide and ts > 20 else 12), n) for _ in range(2))
            place, after = rng.integers(0, 1 << 60, n), rng.integers(-(1 << 62), 1 << 62, n)
            change = np.where(rng.integers(0, 2, n) > 0, ids, ~ids)
            new = Changes(ids, place, np.full(n, ts), offset, seq & 0xFFFF, seq & 3, change, np.full(n, 2), after)
            rows = rows.with_last(new)
            columns = (ids, place, new.commit_ts, offset, new.seq, new.rank, change, new.before, after)
            expected |= {own[0]: own for own in zip(*(c.tolist() for c in columns), strict=True)}
            if ts % 3 == 0:
                rows, until, n = rows.kept_to(rows.nbytes * 2 // 3)
                before = len(expected)
                expected = {i: own for i, own in expected.items() if own[2] > until}
                assert n == before - len(expected)
            assert rows.n_rows == len(expected)
            asked = np.unique(np.append(ids, [*expected, 5]))
            last = rows.last(asked)
            found = zip(*(getattr(last, name).tolist() for name in of_rows.CHANGE), strict=True)
            assert list(found) == [expected[i] for i in sorted(expected)]
            again = LastChanges.from_parts(dict(rows.parts()))
            assert again.n_rows == len(LastChanges.from_arrays(rows.as_arrays())) == len(expected)


def test_rows_that_are_forgotten_at_once_are_counted_at_once():
    """Those that changed lately lie apart: they are no rows from then on, either."""
    ids = np.sort(np.arange(1_000, dtype=np.int64) * 0x1E3779B97F4A7C15)
    one = np.ones(len(ids), dtype=np.int64)
    rows = LastChanges().after(Changes(ids, one, one + np.arange(1_000), *[one] * 6), dated=True)
    kept, _, gone = rows.kept_to(rows.nbytes // 2)
    assert gone == 550 and kept.n_rows == len(kept.as_arrays()["row_id"]) == 450


@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), fault=st.sampled_from([*FAULTS]))
def test_facts_do_not_grow_and_what_was_found_stays(seed, fault):
    """Watermarks are thinned out and offsets counted while the log continues: all errors of an audit, and no other."""
    events = of_tiny([e | {"commit_ts": e["commit_ts"] << 18} for e in fault(topic(seed))])
    watched, kept, state = replace(OPEN, keep_ms=6), {}, WatchState()
    with patch.object(of_state, "MARKS", 12), patch.object(of_state, "CHUNKS", 2), patch.object(of_state, "_FEW", 0):
        for i, part in enumerate(batches(events, random.Random(seed), most=3)):
            state, found, _ = step(state, part, watched)
            kept, _ = found_again(
                kept, found.to_pylist(), now_s=i, settle_s=0, judged=set(state.suspects.row_id.tolist()),
                closed_ts=state.closed_ts,
            )  # fmt: skip
    is_mark = [f == "watermark" for f in state.facts["fact"].to_pylist()]
    assert sum(is_mark) <= 40 and state.closed_ts > 0
    who = ("guarantee", "partition", "offset", "commit_ts")
    told = {tuple(f[n] for n in who) for f in audited(events, watched) if f["severity"] == "error"}
    assert told <= {tuple(getattr(f, n) for n in who) for f in kept.values() if f.status == "open"}


def test_offsets_that_were_counted_tell_the_same_holes():
    """No matter how long ago they were missing."""
    events = of_tiny([row(0, o, o + 1, key=str(o)) for o in range(400) if o not in (7, 8, 200)])
    expected = [f for f in audited(events, OPEN) if f["guarantee"] == "offsets_are_contiguous"]
    with patch.object(of_state, "CHUNKS", 2):
        state, found, _ = watched_to_the_end([events.slice(i, 30) for i in range(0, 397, 30)], OPEN)
    assert state.counted["t", 0].n > 300 and state.facts.num_rows < 6
    assert same([f for f in found if f["guarantee"] == "offsets_are_contiguous"], expected) and len(expected) == 1


def test_rules_without_effect_and_ddl_of_key_texts_are_said():
    """As by the other answers: the dispatcher that TiCDC does not know, and from where on a key has another text."""
    rules = "[sink]\ndispatchers = [{matcher = ['s.*'], partition = 'tsx'}]"
    given = replace(OPEN, settings=parse_file(rules, name="c.toml").settings)
    log = [ddl(0, 0, 1, "CREATE TABLE a (id INT PRIMARY KEY, v INT)"), row(0, 1, 5),
           ddl(0, 2, 6, "ALTER TABLE a MODIFY id VARCHAR(9)"), row(0, 3, 7, "update")]  # fmt: skip
    told = audited_so_far(absorbed(WatchState(), of_tiny(log), given)[0], given)
    assert told.notes[0].startswith("TiCDC knows no dispatcher 'tsx' (the nearest is ts)")
    assert "changes the column id of the key of s.a from int to varchar(9)" in told.notes[1]
    assert audited_so_far(absorbed(WatchState(), of_tiny(ROWS_OF_A), OPEN)[0], OPEN).notes == ()
    refused = parse_file("[sink]\ndispatchers = [{matcher = ['s'], partition = 'ts'}]", name="c.toml").settings
    told = audited_so_far(absorbed(WatchState(), of_tiny(log), OPEN)[0], replace(OPEN, settings=refused))
    assert ["refuses it" in c.words for c in told.contradicted] == [True] and len(told.notes) == 1


def test_dispatchers_of_many_rows_are_compared_with_a_sample():
    """A wrong rule contradicts it, and its sentence names the share; a right one is verified by it."""
    log = of_tiny([row(i % 2, i // 2, i + 4, key=str(i)) for i in range(400)])
    told = []
    for rule in ("ts", "table"):
        file = f"[sink]\ndispatchers = [{{matcher = ['*.*'], partition = '{rule}'}}]\n[sink.kafka-config]\n"
        given = replace(OPEN, settings=parse_file(f"{file}partition-num = 2", name="c.toml").settings)
        with patch.object(of_state, "EXPLAINING", 100):
            state, _, _ = watched_to_the_end([log.slice(i, 50) for i in range(0, 400, 50)], given)
        assert state.share >= 4 and state.explaining.num_rows <= 100
        told.append(audited_so_far(state, given))
    right, wrong = told
    assert not right.contradicted and f"(of one row in {state.share}) lie where" in right.verified[0].evidence
    assert f" of s.a (of one row in {state.share}) are not in the partition" in wrong.contradicted[0].words


def test_what_schema_files_define_stays_known():
    """A schema file without a DDL comes once; its table is defined in every later step."""
    define = {"kind": "bootstrap", "query": "CREATE TABLE s.t (a INT)", "schema_name": "s", "table_name": "t"}
    first, later = of_tiny([mark(0, 0, 4) | define]), of_tiny([mark(0, 1, 9), mark(0, 2, 12)])
    watched = Watched("csv", has_commit_ts=True, is_folder=True)
    state, *_ = step(WatchState(), first, watched)
    for _ in range(2):
        state, *_ = step(state, later, watched)
        ((since, table),) = state.known.definitions()
        assert (since, table.table_name, [c.name for c in table.columns]) == (4, "t", ["a"])
