"""What follows from a row's whole history: the chain of its images; DDL in time; offsets without holes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from tiny_logs import closed, ddl, found, mark, row

from ticdc_lab.audit.history import ABSENT, IS_GONE, IS_OTHER, IS_THERE, SOME, UNKNOWN, torn

CHAIN, IN_TIME, HOLES = "row_images_chain", "ddl_events_are_in_time", "offsets_are_contiguous"
MOVES, DDL = "rows_stay_in_one_partition", "ddl_events_on_all_partitions"

SOUND = [
    *(row(0, 0, 1), row(0, 1, 2, "update"), row(0, 2, 1), row(0, 3, 2, "update"), row(0, 4, 3, "delete"), row(0, 5, 4)),
    *(row(0, 6, 2, "update", key="2"), row(0, 7, 1, key="2")),
    *(row(0, 8, 1, key="3"), row(0, 9, 2, "update", key="4", old="3"), row(0, 10, 3, key="3")),
    row(0, 11, 4, "delete", key="4"),
    *(row(0, 12, 1, table="b"), ddl(0, 13, 2, table="b"), row(0, 14, 3, "update", table="b", v="9")),
    *(row(0, 15, 1, key=None), row(0, 16, 2, "delete", key=None), row(0, 17, 3, "delete", key=None)),
    *(row(0, 18, 1, key="5"), row(0, 19, 2, "update", key="5", v="7") | {"before": None}),
    row(0, 20, 5, "update", key="6", v="7"),
]
"""Repeats, a late change, an unsplit key change and the key taken again, a DDL between, no key, no old image, and a row
that was there before the log."""

BROKEN = [
    *(row(0, 0, 1, key="1"), row(0, 1, 2, "update", key="1", v="2")),
    *(row(0, 2, 1, key="2"), row(0, 3, 2, key="2")),
    *(row(0, 4, 1, "delete", key="3"), row(0, 5, 2, "update", key="3")),
    *(row(0, 6, 1, "delete", key="4"), row(0, 7, 2, "delete", key="4"), row(0, 8, 2, "delete", key="4")),
]
"""Another image, an insert of what is there, an update and a delete of what is gone; the last is delivered twice."""


def test_a_row_whose_changes_follow_each_other_gives_no_finding():
    """Compared are first deliveries in commit order, where the log shows the images."""
    assert found(SOUND, CHAIN) == []


def test_each_way_of_not_following_is_found_at_the_later_change():
    """Beside the row's former change; a repeat reports nothing more."""
    assert found(BROKEN, CHAIN) == [
        ((CHAIN, "error", "s.a", f"id={key}", 2, 0, offset), [(0, offset - 1, 1), (0, offset, 2)])
        for key, offset in (("1", 1), ("2", 3), ("3", 5), ("4", 7))
    ]


def test_what_another_partition_may_have_held_is_a_warning():
    """A row that moves, in a log; one partition was recorded only from later on."""
    moved = [row(0, 0, 1), row(1, 7, 5, "update", v="2"), mark(0, 1, 9), mark(1, 8, 9)]
    assert [f[0][1] for f in found(moved, CHAIN)] == ["warning"]
    whole = [e | {"offset": e["offset"] - 7 * e["partition"]} for e in moved]
    assert [f[0][1] for f in found(whole, CHAIN)] == ["error"]


def test_without_watermarks_a_partition_that_is_not_there_may_just_be_empty():
    """So its absence explains nothing; a protocol without them leaves few tables' partitions empty."""
    log = [row(0, 0, 1), row(3, 0, 2, key="2"), row(3, 1, 3, "update", key="2", v="2"), row(0, 1, 9, key="3")]
    assert [f[0][1] for f in found(log, CHAIN, protocol="canal")] == ["error"]
    marked = [*log, mark(0, 2, 9), mark(3, 2, 9)]
    assert [f[0][1] for f in found(marked, CHAIN, protocol="canal-json")] == ["warning"]


def test_what_stands_behind_a_watermark_that_all_have_was_sent_when_all_were_recorded():
    """A partition that begins late holds what was sent after a watermark above its first; up to its last, all."""
    log = [row(0, 1, 1), row(1, 9, 5, "update", v="2"), mark(1, 8, 3), mark(1, 10, 7), mark(0, 2, 7)]
    assert [f[0][1] for f in found(log, CHAIN)] == ["warning"], "sent before the first watermark"
    assert [f[0][1] for f in found([mark(0, 0, 3), *log], CHAIN)] == ["warning"], "when it came, not all were recorded"
    assert [f[0][1] for f in found([mark(0, 0, 4), *log], CHAIN)] == ["error"]
    assert [f[0][1] for f in found([mark(0, 0, 4), *log[:-1]], CHAIN)] == ["warning"], "partition 0 ends too early"


def test_a_row_that_its_dispatch_rule_moves_may_have_been_where_nothing_was_recorded():
    """Though the log has it in one partition alone."""
    late = [row(0, 5, 1), row(0, 6, 5, "update", v="2"), mark(0, 7, 9), mark(1, 3, 9)]
    whole = [e | {"offset": e["offset"] - (3 if e["partition"] else 5)} for e in late]
    by_ts = pa.table({"schema_name": ["s"], "table_name": ["a"], "cause": ["the table is dispatched by ts"]})
    said = [[f[0][1] for f in found(log, CHAIN, causes=why)] for log in (late, whole) for why in (None, by_ts)]
    assert said == [["error"], ["warning"], ["error"], ["error"]]


def test_what_only_a_partition_that_is_not_there_could_tell_is_a_warning():
    """What a moving row had there, a DDL that goes to partition 0 alone, and how many partitions a rule counts."""
    marks = [mark(p, o, ts) for p in (0, 1, 2) for o, ts in ((0, 1), (9, 9))]
    moved = [*marks, row(1, 1, 2), row(2, 1, 5, "update", v="2")]
    stays = [*marks, row(1, 1, 2), row(1, 2, 5, "update", v="2")]
    part = [[e for e in log if e["partition"]] for log in (moved, stays)]
    names = MOVES, CHAIN

    def severities(log, **how):
        return [f[0][1] for f in found(closed(log), *names, **how)]

    assert severities(moved) == ["error", "error"] and severities(stays) == ["error"]
    assert severities(part[0]) == ["warning", "warning"] and severities(part[1]) == ["warning"]
    assert severities(stays, protocol="canal-json") == ["error"]
    late = [e for e in stays if e["partition"] or e["offset"]]
    late = [e for e in late if (e["partition"], e["offset"]) != (0, 9)] + [mark(0, 9, 4), mark(0, 10, 9)]
    assert severities(late, protocol="canal-json") == ["warning"], "a TRUNCATE may lie between"
    assert severities(late) == ["error"], "it would be in its own partition"
    early = [e for e in stays if (e["partition"], e["offset"]) != (0, 9)]
    assert severities(early, protocol="canal-json") == ["warning"]
    lost = [*part[1], ddl(2, 2, 3)]
    assert [f[0][1:6:4] for f in found(closed(lost), DDL, protocol="canal-json")] == [("warning", 0)]
    assert [f[0][1:6:4] for f in found(closed(lost), DDL)] == [("error", 1)]


def test_images_are_compared_where_both_name_the_same_columns() -> None:
    """The high half of a hash names the columns; what is not known is not compared."""
    one, same_columns, others = 5 << 32 | 1, 5 << 32 | 2, 6 << 32 | 1
    left = np.array([one, one, one, ABSENT, ABSENT, one, SOME, SOME, ABSENT, -one])
    then = np.array([one, same_columns, others, one, ABSENT, ABSENT, ABSENT, one, UNKNOWN, -one])
    how = [0, IS_OTHER, 0, IS_GONE, 0, IS_THERE, IS_THERE, 0, 0, 0]
    assert torn(left, then).tolist() == how


def test_a_ddl_behind_a_watermark_above_it_is_late():
    """At its own FinishedTS it is in time; one that is delivered again is a warning."""
    events = [mark(0, 0, 5), ddl(0, 1, 5), mark(0, 2, 9), ddl(0, 3, 5), ddl(0, 4, 7, table="b")]
    assert found(events, IN_TIME) == [
        ((IN_TIME, "error", "s.b", None, 7, 0, 4), [(0, 2, 9), (0, 4, 7)]),
        ((IN_TIME, "warning", "s.a", None, 5, 0, 3), [(0, 2, 9), (0, 3, 5)]),
    ]


def test_holes_in_offsets_are_one_warning_a_partition():
    """At the message behind the first; not where offsets do not count messages."""
    dense = [mark(0, o, o + 1) for o in (*range(60, 70), *range(72, 130), 131)]
    sparse = [mark(1, o * 1000, o + 1) for o in range(10)]
    assert found([*dense, *sparse], HOLES) == [
        ((HOLES, "warning", None, None, None, 0, 72), [(0, 69, None), (0, 72, None)])
    ]
