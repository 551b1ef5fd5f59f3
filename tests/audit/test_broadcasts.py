"""Guarantees about watermarks and DDL: the smallest log that breaks each."""

from __future__ import annotations

from typing import Any

import pytest
from audit_tables import audit_table
from tiny_logs import ddl, found, mark, row, table_of

from ticdc_lab.audit.findings import batches_of
from ticdc_lab.audit.guarantees.marks import watermarks_are_monotone
from ticdc_lab.audit.stated import Stated
from ticdc_lab.facts import LogFacts
from ticdc_lab.figures import counterexample


def test_a_watermark_that_falls_back_is_found():
    """It is shown with the highest before it; a repeat of the highest is none."""
    name = "watermarks_are_monotone"
    events = [mark(0, 0, 3), mark(0, 1, 9), mark(0, 2, 9), mark(0, 3, 7), mark(0, 4, 8), mark(1, 0, 1)]
    assert found(events, name) == [
        ((name, "error", None, None, 7, 0, 3), [(0, 2, 9), (0, 3, 7)]),
        ((name, "error", None, None, 8, 0, 4), [(0, 2, 9), (0, 4, 8)]),
    ]


def test_falls_without_end_are_held_a_few_at_a_time():
    """One absurdly high watermark makes every later one fall; none of those is lost, and no list holds them all."""
    facts = LogFacts.of(table_of([mark(0, i, i or 10**9) for i in range(95)]))
    falls = watermarks_are_monotone(Stated.read(facts, protocol="open-protocol"))
    found = list(batches_of(({"guarantee": "g"} | f for f in falls), at_once=10))
    assert [len(b) for b in found] == [10] * 9 + [4]
    assert [o for b in found for o in b["offset"].to_pylist()] == list(range(1, 95))


def test_a_run_of_watermarks_that_a_partition_lacks_is_one_finding():
    """Shown by the first missing value in another partition and the value with which the partition continued."""
    name = "resolved_events_on_all_partitions"
    events = [*[mark(0, i, i) for i in range(1, 8)], mark(1, 1, 1), mark(1, 2, 4), mark(1, 3, 5), mark(1, 4, 7)]
    assert found(events, name) == [
        ((name, "error", None, None, 2, 1, 2), [(0, 2, 2), (1, 2, 4)]),
        ((name, "error", None, None, 6, 1, 4), [(0, 6, 6), (1, 4, 7)]),
    ]


def test_a_partition_without_any_watermark_is_an_error_where_one_is_due():
    """Where more than rows may go ahead lie between its events, or one below its DDL: else it may have been cut."""
    name = "resolved_events_on_all_partitions"
    events = [*[mark(0, i, i) for i in range(1, 9)], row(1, 7, 1)]
    for more, severity in (
        ([], "warning"),
        ([row(1, 8, 5)], "warning"),
        ([row(1, 8, 6)], "error"),
        ([ddl(1, 8, 3), ddl(1, 9, 4)], "warning"),
        ([ddl(1, 8, 3), ddl(1, 9, 5)], "error"),
    ):
        assert found([*events, *more], name) == [((name, severity, None, None, 1, 1, 7), [(0, 1, 1)])]


def test_recordings_that_start_or_end_apart_are_warnings():
    """A recording may be cut at another place in each partition, which is no fault of the changefeed."""
    name = "resolved_events_on_all_partitions"
    events = [*[mark(0, i, i) for i in range(1, 6)], mark(1, 9, 3)]
    assert found(events, name) == [
        ((name, "warning", None, None, 4, 1, None), [(0, 4, 4)]),
        ((name, "warning", None, None, 1, 1, 9), [(0, 1, 1)]),
    ]


def test_where_rows_continue_behind_the_last_watermark_the_recording_did_not_end():
    """The watermarks are lost: an error, and a warning where as many offsets are missing there."""
    name = "resolved_events_on_all_partitions"
    marks = [*[mark(0, i, i) for i in range(1, 9)], mark(1, 0, 1)]
    for more, severity in (([row(1, 1, 6)], "warning"), ([row(1, 1, 7)], "error"), ([row(1, 8, 7)], "warning")):
        assert (name, severity, None, None, 2, 1, None) in [about for about, _ in found([*marks, *more], name)], more


def test_a_topic_without_any_watermark_is_a_warning():
    """Nothing is resolved then, which must not pass in silence."""
    name = "resolved_events_on_all_partitions"
    assert found([row(0, 3, 1)], name) == [((name, "warning", None, None, None, 0, 3), [(0, 3, None)])]


def test_a_ddl_that_a_partition_lacks_is_found():
    """It must be in every partition; where the recording does not reach it, that is a warning."""
    name = "ddl_events_on_all_partitions"
    events = [ddl(0, 0, 5), mark(0, 1, 9), row(1, 0, 1), mark(1, 1, 9), row(2, 0, 2)]
    assert found(events, name) == [
        ((name, "error", "s.a", None, 5, 1, None), [(0, 0, 5)]),
        ((name, "warning", "s.a", None, 5, 2, None), [(0, 0, 5)]),
    ]


def test_what_was_delivered_again_does_not_show_how_far_a_recording_reaches():
    """A watermark below those before a second delivery comes before it; an older DDL delivered again begins nothing."""
    name = "ddl_events_on_all_partitions"
    again = [ddl(0, 1, 20), mark(0, 2, 22), mark(0, 3, 25), mark(0, 4, 30), ddl(0, 5, 20), mark(0, 6, 40)]
    cut = [mark(1, 7, 22), mark(1, 8, 25)]
    assert [f[0][1] for f in found([mark(0, 0, 10), *again, *cut], name)] == ["warning"]
    assert [f[0][1] for f in found([mark(0, 0, 10), *again, *cut, mark(1, 9, 40)], name)] == ["error"]
    both = [mark(0, 0, 5), ddl(0, 1, 10, "A"), ddl(0, 2, 20, "B"), mark(0, 3, 30), ddl(0, 4, 10, "A"), mark(0, 5, 40)]
    late = [ddl(1, 8, 30, "C"), ddl(1, 9, 10, "A"), mark(1, 10, 40)]
    told = {(f[0][4], f[0][5]): f[0][1] for f in found([*both, *late], name)}
    assert told == {(20, 1): "warning", (30, 0): "error"}


def test_of_the_ddl_of_one_moment_each_table_has_its_own():
    """One that a partition holds does not show that its recording reaches over another's."""
    name = "ddl_events_on_all_partitions"
    two = [mark(0, 0, 10), ddl(0, 1, 20, "A", table="a"), ddl(0, 2, 20, "B", table="b"), mark(0, 3, 30)]
    ends, begins = [mark(1, 0, 10), ddl(1, 1, 20, "A", table="a")], [ddl(1, 8, 20, "B", table="b"), mark(1, 9, 30)]
    assert [f[0][1:3] for f in found([*two, *ends], name)] == [("warning", "s.b")]
    assert [f[0][1:3] for f in found([*two, *begins], name)] == [("warning", "s.a")]
    assert [f[0][1:3] for f in found([*two, *ends, mark(1, 2, 30)], name)] == [("error", "s.b")]


def test_a_ddl_without_an_offset_is_found_too():
    """As in Parquet whose offsets are unknown."""
    name = "ddl_events_on_all_partitions"
    events = [ddl(0, 0, 5) | {"offset": None}, mark(0, 1, 9), mark(1, 0, 3), mark(1, 1, 9)]
    assert [f[0][1] for f in found(events, name)] == ["error"]


def test_canal_json_sends_ddl_to_partition_0_by_design():
    """Only partition 0 must hold it; a DDL that is elsewhere and not there is found."""
    name = "ddl_events_on_all_partitions"
    sound = [ddl(0, 0, 5), mark(0, 1, 9), row(1, 0, 6), mark(1, 1, 9)]
    assert found(sound, name, protocol="canal-json") == []
    wrong = [mark(0, 0, 9), ddl(1, 0, 5), mark(1, 1, 9)]
    assert found(wrong, name, protocol="canal-json") == [((name, "error", "s.a", None, 5, 0, None), [(1, 0, 5)])]


def test_a_ddl_with_another_text_is_not_called_missing():
    """The partition that differs from most is named, once, with both messages; the picture shows two texts.

    A long text is cut, and the cut is shown.
    """
    other = f"ALTER TABLE `s`.`a` ADD COLUMN `{'y' * 64}` INT COMMENT '{'z' * 90}'"
    events = [*[mark(p, 0, 1) for p in range(3)], ddl(0, 1, 2), ddl(1, 1, 2), ddl(2, 1, 2, other)]
    events += [mark(p, 2, 9) for p in range(3)]
    [told] = audit_table(
        table_of(events), protocol="open-protocol", checks=["ddl_events_on_all_partitions"]
    ).to_pylist()
    assert told["message"].startswith("partition 2 of topic t has another text for a DDL of partition 0: ALTER")
    assert told["message"].endswith("y`…")
    assert (told["partition"], told["offset"], len(told["evidence"])) == (2, 1, 2)
    assert "another text" in [a.text for a in counterexample(told).layout.annotations]


def test_a_watermark_of_one_partition_alone_is_called_so():
    """As of a second changefeed: not "of the other partitions", which do not have it."""
    events = [mark(p, o, ts) for p in range(3) for o, ts in enumerate((1, 5, 9)) if ts != 5 or p == 1]
    told = audit_table(table_of(events), protocol="open-protocol", checks=["resolved_events_on_all_partitions"])
    assert ["at 5 that partition 1 alone has" in m for m in told["message"].to_pylist()] == [True, True]


@pytest.mark.parametrize("planted", [5, 99])
def test_a_watermark_of_one_partition_alone_that_does_not_rise_is_due_in_no_other(planted):
    """It is an error of its own partition; a watermark that another one is really missing stays an error, too."""

    def log(of_others: tuple[int, ...]) -> list[dict[str, Any]]:
        each = {p: (10, 20, planted, 30, 40) if p == 1 else of_others for p in range(4)}
        return [mark(p, o, ts) for p, own in each.items() for o, ts in enumerate(own)]

    name = "resolved_events_on_all_partitions"
    assert found(log((10, 20, 30, 40)), name) == [] and found(log((10, 20, 30, 40)), "watermarks_are_monotone")
    assert {f[0][:2] for f in found(log((10, 20, 40)), name)} == {(name, "error")}


def test_a_last_watermark_that_is_far_ahead_is_said_once_and_of_its_own_partition():
    """The recordings of others may end earlier, or it is wrong: a step as long as those before is no jump."""

    def log(last_s: int) -> list[dict[str, Any]]:
        ts = [(1_700_000_000_000 + 1000 * s) << 18 for s in (0, 1, 2, 3, last_s)]
        return [mark(p, o, t) for p in range(4) for o, t in enumerate(ts[: 5 if p == 1 else 4])]

    name = "resolved_events_on_all_partitions"
    told = audit_table(table_of(log(3_603)), protocol="open-protocol", checks=[name]).to_pylist()
    [only] = told
    assert (only["severity"], only["partition"], only["offset"]) == ("warning", 1, 4)
    assert only["message"].startswith("partition 1 of topic t ends with a watermark that is 3,600 s after the one")
    assert "too far ahead" in only["message"] and "end earlier" in only["message"]
    ends = audit_table(table_of(log(13)), protocol="open-protocol", checks=[name]).to_pylist()
    assert [(f["partition"], "its recording may end earlier" in f["message"]) for f in ends] == [
        (0, True),
        (2, True),
        (3, True),
    ]
    one = [event for event in log(3_603) if event["partition"] == 1]  # it is compared with no other
    assert audit_table(table_of(one), protocol="open-protocol", checks=[name]).num_rows == 0
