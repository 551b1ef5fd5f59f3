"""Admin events in the audit: what they allow, and the faults that only they can have."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_logs import at, ddl, found, mark, row

MOVES = "rows_stay_in_one_partition"
COUNT = "rows_follow_the_partition_count"
ADMIN = "admin_events_on_all_partitions"


def admin(partition: int, offset: int, count: int) -> dict[str, Any]:
    """An Admin event."""
    return {"kind": "admin", "admin": (count,)} | at(partition, offset)


EXPANDED = [
    row(0, 0, 1),
    mark(0, 1, 2),
    row(0, 2, 3, "update"),
    admin(0, 3, 2),
    mark(0, 4, 2),
    ddl(0, 5, 3),
    mark(0, 6, 6),
    admin(1, 0, 2),
    mark(1, 1, 2),
    row(1, 2, 3, "update"),
    ddl(1, 3, 3),
    row(1, 4, 5, "update"),
    mark(1, 5, 6),
]
"""One partition becomes two: the row moves, its change above the checkpoint is sent again, DDL and marks continue."""

SHRUNK = [
    row(1, 0, 1),
    mark(0, 0, 1),
    mark(1, 1, 1),
    ddl(0, 1, 1),
    ddl(1, 2, 1),
    row(1, 3, 2, "update"),
    admin(0, 2, 1),
    admin(1, 4, 1),
    row(0, 3, 2, "update"),
    row(0, 4, 4, "update"),
    mark(0, 5, 5),
    ddl(0, 6, 6),
]
"""Two partitions become one: nothing follows in the old one, not even watermarks and DDL."""


@pytest.mark.parametrize("log", [EXPANDED, SHRUNK], ids=["expanded", "shrunk"])
def test_what_the_procedure_does_is_no_finding(log):
    """A row may change its partition across an Admin event, and what was sent before may be sent again there."""
    assert found(log) == []


def test_without_the_admin_events_the_same_log_breaks_the_rules():
    """It is the barrier that allows a row to move, its repeats, and partitions that end in between."""
    grown, shrunk = ([e for e in log if e["kind"] != "admin"] for log in (EXPANDED, SHRUNK))
    hole = "offsets_are_contiguous"
    assert {f[0][0] for f in found(grown)} == {MOVES, hole}
    lacking = {hole, "resolved_events_on_all_partitions", "ddl_events_on_all_partitions"}
    assert {f[0][0] for f in found(shrunk)} == {MOVES, *lacking}


def test_a_row_that_moves_without_a_barrier_in_between_is_still_found():
    """Also where what comes first behind the Admin event was sent before: it lies in partition 1 there, then in 0."""
    log = [*EXPANDED, row(0, 7, 7, "update")]
    assert found(log, MOVES) == [((MOVES, "error", "s.a", "id=1", 7, 0, 7), [(1, 4, 5), (0, 7, 7)])]


def test_a_row_written_by_the_old_count_behind_the_admin_event_is_found():
    """A processor that had not heard: the row's changes lie in two partitions behind one Admin event."""
    stray = [e | ({"offset": e["offset"] + 1} if e["partition"] == 0 and e["offset"] > 3 else {}) for e in EXPANDED]
    log = [*stray, row(0, 4, 4, "update")]
    assert [f[0] for f in found(log, MOVES)] == [
        (MOVES, "error", "s.a", "id=1", 4, 0, 4),
        (MOVES, "error", "s.a", "id=1", 5, 1, 4),
    ]


def test_a_row_in_a_partition_that_was_given_up_is_found():
    """Behind an Admin event of one partition nothing belongs into partition 1, wherever the row's others lie."""
    log = [*SHRUNK, row(1, 5, 3, "update", key="7")]
    assert found(log, COUNT) == [((COUNT, "error", "s.a", "id=7", 3, 1, 5), [(1, 5, 3)])]


def test_an_admin_event_that_a_partition_lacks_is_found():
    """In an old partition as in a new one, and in one that the log has no event of."""
    for p in (0, 1):
        log = [e for e in EXPANDED if not (e["kind"] == "admin" and e["partition"] == p)]
        assert [f[0][:2] + f[0][5:6] for f in found(log, ADMIN)] == [(ADMIN, "error", p)]
    unseen = [row(0, 0, 1), admin(0, 1, 2)]
    assert found(unseen, ADMIN) == [((ADMIN, "error", None, None, None, 1, None), [(0, 1, None)])]
    part = [row(1, 0, 1), admin(1, 1, 2)]
    assert [f[0][1:6:4] for f in found(part, ADMIN)] == [("warning", 0)], "partition 0 was not recorded"


def test_admin_events_that_say_different_numbers_are_found():
    """The number of most partitions counts; the other event is named beside one of theirs."""
    log = [row(0, 0, 1), row(1, 0, 1, key="2"), admin(0, 1, 3), admin(1, 1, 4), admin(2, 0, 3)]
    assert found(log, ADMIN) == [((ADMIN, "error", None, None, None, 1, 1), [(0, 1, None), (1, 1, None)])]


def test_a_partition_given_up_owes_no_later_admin_event():
    """From two to one and then to three: partition 1 has nothing between, and all three have the second event."""
    log = [row(0, 0, 1), row(1, 0, 1, key="2"), admin(0, 1, 1), admin(1, 1, 1), admin(0, 2, 3), admin(1, 2, 3),
           admin(2, 0, 3)]  # fmt: skip
    assert found(log, ADMIN) == []


def test_a_lost_watermark_or_ddl_between_admin_events_is_found():
    """The partitions of each time are held to what the others of that time state."""
    lacks = [e for e in EXPANDED if not (e["partition"] == 1 and e["kind"] == "ddl")]
    assert [f[0][0] for f in found(lacks, "ddl_events_on_all_partitions")] == ["ddl_events_on_all_partitions"]
    before = [mark(0, 0, 1), ddl(0, 1, 2), admin(0, 2, 2), mark(1, 0, 1), admin(1, 1, 2), mark(0, 3, 9), mark(1, 2, 9)]
    assert [f[0][1] for f in found(before, "ddl_events_on_all_partitions")] == ["error"]
    late = [*[e for e in EXPANDED if e["kind"] != "ddl"], mark(0, 7, 7), mark(0, 8, 8), mark(1, 6, 8)]
    name = "resolved_events_on_all_partitions"
    assert [f[0] for f in found(late, name)] == [(name, "error", None, None, 7, 1, 6)]


def test_a_partition_that_comes_with_a_later_admin_event_is_of_its_time():
    """From two to one and then to three: the row goes from 1 to 0 to 2, and only a move behind the last one counts."""
    log = [row(0, 0, 1, key="2"), row(1, 0, 1), admin(0, 1, 1), admin(1, 1, 1), row(0, 2, 2, "update"), admin(0, 3, 3),
           admin(1, 2, 3), admin(2, 0, 3), row(2, 1, 3, "update")]  # fmt: skip
    assert found(log, MOVES, ADMIN, COUNT) == []
    moved = [*log, row(0, 4, 4, "update")]
    assert [f[0] for f in found(moved, MOVES)] == [(MOVES, "error", "s.a", "id=1", 4, 0, 4)]
