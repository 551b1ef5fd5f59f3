"""The downstream: pace, deduplication, snapshots, and what it holds as events."""

from __future__ import annotations

import pytest

from ticdc_lab.machines.machine import Asked, Fired, Now, Received, Send
from ticdc_lab.simulate.pipeline.downstream import DdlEntry, Downstream, Mark, Pace, Partitions, Rows, entries
from ticdc_lab.simulate.pipeline.log import log_events, messages
from ticdc_lab.simulate.pipeline.settings import (
    AT_LEAST_ONCE,
    BY_DEDUPLICATION,
    BY_SNAPSHOT,
    MYSQL,
    DownstreamSettings,
)
from ticdc_lab.simulate.pipeline.sink_messages import Begin, Execute, Executed, Publish, Resolved, Write, Written
from ticdc_lab.simulate.pipeline.tables import Change, Column, FinishedJob, TableInfo, key_of

INFO = TableInfo(7, "s", "t", (Column(1, "id", "int", True), Column(2, "v", "varchar")))
JOB = FinishedJob(1, "truncate table", "TRUNCATE TABLE t", "s", "t", 7, INFO)


def change(commit_ts: int, handle: int = 1, op: str = "insert") -> Change:
    """Give a change of table 7."""
    row = (handle, f"v{commit_ts}")
    return Change(
        commit_ts, commit_ts - 1, key_of(7, handle), op, INFO, None if op == "delete" else row,
        None if op == "insert" else row,
    )  # fmt: skip


def told(machine: Downstream, *messages: object, sender: str = "capture-1", state=None, at_us: int = 0):
    """Give the state after these messages, and all outputs."""
    state = state or machine.start("downstream", Now(0))[0]
    outputs = []
    for message in messages:
        state, more = machine.step(state, Received(sender, message), Now(at_us))
        outputs += more
    return state, outputs


def seen(state) -> list[int]:
    """Give the commit_ts of all rows that can be seen."""
    return [c.commit_ts for e in entries(state) if isinstance(e, Rows) for c in e.changes]


def test_a_pace_makes_writes_wait_for_their_turn_and_acknowledges_them_then():
    """1,000 rows a second: two rows take two milliseconds."""
    machine = Downstream(DownstreamSettings(rows_per_s=1000), AT_LEAST_ONCE)
    state, outputs = told(machine, Write(1, 7, (change(10), change(11))), Write(2, 7, (change(12),)))
    assert seen(state) == []
    state, outputs = machine.step(state, Fired("due"), Now(2000))
    assert seen(state) == [10, 11]
    assert Send("capture-1", Written(1, 7)) in outputs
    state, outputs = machine.step(state, Fired("due"), Now(3000))
    assert seen(state) == [10, 11, 12]


def test_a_write_that_is_sent_again_while_it_waits_is_taken_once():
    """A capture that hears nothing asks again; a slow sink must not get slower by that."""
    machine = Downstream(DownstreamSettings(rows_per_s=1000), AT_LEAST_ONCE)
    write = Write(1, 7, (change(10),))
    state, _ = told(machine, write, write)
    state, _ = machine.step(state, Fired("due"), Now(10_000))
    assert seen(state) == [10]


def test_writes_that_come_again_stay_in_their_order():
    """The first was done when it came again; the newer ones that waited follow it once more, else it would stand."""
    machine = Downstream(DownstreamSettings(rows_per_s=1000), AT_LEAST_ONCE)
    writes = [Write(n, 7, (change(10 * n),)) for n in (1, 2, 3)]
    state, _ = told(machine, *writes)
    state, _ = machine.step(state, Fired("due"), Now(1000))
    state, _ = told(machine, *writes, *writes, state=state, at_us=1500)
    for at_us in range(2000, 9000, 1000):
        state, _ = machine.step(state, Fired("due"), Now(at_us))
    assert seen(state) == [10, 20, 30, 10, 20, 30]


def test_a_downstream_that_stands_still_goes_on_when_it_is_given_a_pace():
    """What waited is planned again."""
    machine = Downstream(DownstreamSettings(rows_per_s=0), AT_LEAST_ONCE)
    state, _ = told(machine, Write(1, 7, (change(10),)))
    state, outputs = machine.step(state, Asked(Pace(None)), Now(5000))
    assert seen(state) == [10]
    assert Send("capture-1", Written(1, 7)) in outputs


def test_at_least_once_shows_what_comes_again():
    """Nothing is dropped."""
    machine = Downstream(DownstreamSettings(), AT_LEAST_ONCE)
    state, _ = told(machine, Write(1, 7, (change(10),)))
    state, _ = told(machine, Write(1, 7, (change(10), change(11))), sender="capture-2", state=state)
    assert seen(state) == [10, 10, 11]


def test_deduplication_drops_what_came_before_but_nothing_of_the_same_transaction():
    """The place of a change is (commit_ts, operation, key)."""
    machine = Downstream(DownstreamSettings(), BY_DEDUPLICATION)
    state, _ = told(machine, Write(1, 7, (change(10, 1),)))
    again = Write(1, 7, (change(10, 1), change(10, 2), change(11, 1, "update")))
    state, outputs = told(machine, again, sender="capture-2", state=state)
    assert seen(state) == [10, 10, 11]
    assert state.dropped == 1
    assert outputs[-1] == Send("capture-2", Written(1, 7))


def test_what_is_staged_is_seen_when_the_checkpoint_is_persisted_and_void_when_another_writes():
    """What the new writer's start covers is complete and waits for the checkpoint; what is above comes again."""
    machine = Downstream(DownstreamSettings(), BY_SNAPSHOT)
    state, _ = told(machine, Begin(7, 5), Write(1, 7, (change(10), change(11), change(12))), Publish(7, 10))
    assert seen(state) == [10]
    state, _ = told(machine, Begin(7, 11), Write(1, 7, (change(12), change(13))), sender="capture-2", state=state)
    assert seen(state) == [10]
    late, outputs = told(machine, Write(2, 7, (change(12),)), state=state)
    assert late.staged == state.staged
    assert not [o for o in outputs if isinstance(o, Send)]
    state, _ = told(machine, Resolved(13), sender="capture-2", state=state)
    assert seen(state) == [10, 11, 12, 13]
    assert isinstance(entries(state)[-1], Mark)


def test_a_writer_that_is_lost_before_the_checkpoint_came_to_its_start_leaves_nothing_that_is_seen_twice():
    """The third writer begins where the checkpoint is, below the second."""
    machine = Downstream(DownstreamSettings(), BY_SNAPSHOT)
    state, _ = told(machine, Begin(7, 5), Write(1, 7, (change(10), change(11))))
    state, _ = told(machine, Begin(7, 11), Write(1, 7, (change(12),)), sender="capture-2", state=state)
    again = Write(1, 7, (change(10), change(11), change(12)))
    state, _ = told(machine, Begin(7, 5), again, Resolved(12), sender="capture-3", state=state)
    assert seen(state) == [10, 11, 12]


def test_a_staged_write_that_is_sent_again_is_staged_once():
    """It is acknowledged each time."""
    machine = Downstream(DownstreamSettings(), BY_SNAPSHOT)
    write = Write(1, 7, (change(10), change(11)))
    state, outputs = told(machine, Begin(7, 5), write, write, Publish(7, 20))
    assert seen(state) == [10, 11]
    assert outputs.count(Send("capture-1", Written(1, 7))) == 2


def test_a_staged_write_that_is_sent_again_after_it_was_published_is_not_staged_again():
    """A slow downstream answers late; what can be seen is not visible twice."""
    machine = Downstream(DownstreamSettings(), BY_SNAPSHOT)
    write = Write(1, 7, (change(10), change(11)))
    state, outputs = told(
        machine, Begin(7, 5), write, Publish(7, 20), write, Write(2, 7, (change(12),)), Publish(7, 20)
    )
    assert seen(state) == [10, 11, 12]
    assert outputs.count(Send("capture-1", Written(1, 7))) == 2


def test_a_ddl_takes_its_time_and_keeps_its_place():
    """Rows that come behind it wait for it."""
    machine = Downstream(DownstreamSettings(ddl_us=50_000), AT_LEAST_ONCE)
    state, _ = told(machine, Execute(20, JOB), Write(1, 7, (change(21),)))
    state, outputs = machine.step(state, Fired("due"), Now(50_000))
    assert [type(e) for e in entries(state)] == [DdlEntry, Rows]
    assert Send("capture-1", Executed(20)) in outputs


def test_entries_since_a_state_are_those_that_came_after_it():
    """The logs of two states share their older part."""
    machine = Downstream(DownstreamSettings(), AT_LEAST_ONCE)
    first, _ = told(machine, Write(1, 7, (change(10),)))
    second, _ = told(machine, Resolved(10), Write(2, 7, (change(11),)), state=first)
    assert [type(e) for e in entries(second, first.log)] == [Mark, Rows]
    assert [type(e) for e in entries(second)] == [Rows, Mark, Rows]


ENTRIES = [
    Rows(1, "capture-1", (change(10, 1), change(10, 2))),
    DdlEntry(2, "capture-1", 10, JOB),
    Rows(3, "capture-1", (change(11, 1, "update"), change(12, 2, "delete"))),
    Mark(4, "capture-1", 12),
]


def test_the_log_has_a_watermark_and_a_ddl_in_every_partition_and_dense_offsets():
    """Rows of one key share a partition."""
    log = log_events(ENTRIES, DownstreamSettings(partitions=3))
    by_kind = log.group_by("kind").aggregate([("kind", "count")]).to_pylist()
    assert {r["kind"]: r["kind_count"] for r in by_kind} == {"row": 4, "ddl": 3, "watermark": 3}
    for partition in range(3):
        offsets = [r["offset"] for r in log.to_pylist() if r["partition"] == partition]
        assert offsets == list(range(len(offsets)))
    rows = [r for r in log.to_pylist() if r["kind"] == "row"]
    assert {r["partition"] for r in rows if r["columns"] and r["columns"][0]["value"] == "1"} == {
        r["partition"] for r in rows if r["op"] == "update"
    }
    assert [r["before"] is None for r in rows] == [True, True, False, False]
    assert rows[3]["columns"] is None


def test_by_tidb_rowid_the_handle_says_the_partition():
    """The design's first strategy; each row keeps its partition through updates and deletes."""
    log = log_events(ENTRIES, DownstreamSettings(partitions=3, dispatcher="tidb-rowid")).to_pylist()
    rows = [r for r in log if r["kind"] == "row"]
    assert [(r["partition"], r["dispatch_key"]) for r in rows] == [(1, "1"), (2, "2"), (1, "1"), (2, "2")]


def test_an_admin_event_stands_in_old_and_new_partitions_and_rows_follow_the_new_count():
    """Watermarks behind it go to the new ones alone."""
    entries = [
        *ENTRIES,
        Partitions(5, "capture-1", 2),
        Rows(6, "capture-1", (change(13, 5),)),
        Mark(7, "capture-1", 13),
    ]
    log = log_events(entries, DownstreamSettings(partitions=3, dispatcher="tidb-rowid")).to_pylist()
    admins = [r for r in log if r["kind"] == "admin"]
    assert [(r["partition"], r["admin"]) for r in admins] == [(p, {"partition_count": 2}) for p in range(3)]
    assert [(r["kind"], r["partition"]) for r in log[-3:]] == [("row", 1), ("watermark", 0), ("watermark", 1)]


def test_a_database_is_one_partition():
    """MySQL has none."""
    assert set(log_events(ENTRIES, DownstreamSettings(kind=MYSQL))["partition"].to_pylist()) == {0}


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json", "mq-v1"])
def test_the_log_can_be_written_in_every_format_that_has_an_encoder(protocol):
    """canal-json has its DDLs in partition 0 only."""
    found = messages(log_events(ENTRIES, DownstreamSettings(partitions=2)), protocol)
    assert found.num_rows >= 6
    ddls = sum(b"TRUNCATE" in (v or b"") for v in found["value"].to_pylist())
    assert ddls == (1 if protocol == "canal-json" else 2)
