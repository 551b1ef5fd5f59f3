"""Each guarantee: what keeps it, and the smallest log that breaks it."""

from __future__ import annotations

import re
import runpy

import pytest
from conftest import ROOT, events_frame
from planted_guarantees import FAULTS
from test_admin_events import admin
from tiny_logs import ddl, found, mark, row

from ticdc_lab.audit import GUARANTEES, audit, checks_possible
from ticdc_lab.audit.guarantees.rows import APART
from ticdc_lab.errors import ContractError, ProtocolError, StreamingError
from ticdc_lab.events.schema import FINDINGS

SOUND = [
    row(0, 0, 5, key="1"),
    row(0, 1, 4, key="2"),
    row(0, 2, 6, "update", key="1"),
    mark(0, 3, 6),
    row(0, 4, 7, "delete", key="1"),
    row(0, 5, 7, "insert", key="1"),
    row(0, 6, 7, "delete", key="1"),
    mark(0, 7, 6),
    ddl(0, 8, 8),
    mark(0, 9, 8),
    row(1, 0, 5, key="3"),
    mark(1, 1, 6),
    ddl(1, 2, 8),
    mark(1, 3, 8),
]
"""Keys cross in commit_ts, one transaction replaces a row, a restart repeats a change and a watermark."""


def test_a_sound_log_gives_no_finding():
    """Order holds per key only, repeats are normal, a repeated watermark is no regression."""
    assert found(SOUND) == []


def test_an_update_of_a_tiny_log_can_change_a_value():
    """From what it was: with another old value the chain is broken."""
    events = [row(0, 0, 1, v="1"), row(0, 1, 2, "update", v="2", was="1"), row(0, 2, 3, "update", v="1", was="2")]
    assert found([*events, mark(0, 3, 3)]) == []
    broken = [*events[:2], row(0, 2, 3, "update", v="1", was="3"), mark(0, 3, 3)]
    assert [f[0][:2] for f in found(broken)] == [("row_images_chain", "error")]


def test_a_row_in_two_partitions_is_named_once_a_move():
    """Constraint 1.1: each move is one finding, with the change before and the change that moved."""
    events = [row(0, 0, 1), row(1, 0, 2, "update"), row(1, 1, 3, "update"), row(0, 1, 4, "update")]
    name = "rows_stay_in_one_partition"
    assert found(events, name) == [
        ((name, "error", "s.a", "id=1", 4, 0, 1), [(1, 1, 3), (0, 1, 4)]),
        ((name, "error", "s.a", "id=1", 2, 1, 0), [(0, 0, 1), (1, 0, 2)]),
    ]


def test_a_repeat_in_another_partition_is_an_error_and_does_not_count_as_a_move():
    """MQ design, "Table 迁移": repeats are never sent to another partition; later changes are judged by the first
    delivery.
    """
    events = [row(0, 0, 1), row(1, 9, 1), row(0, 1, 2, "update")]
    name = "rows_stay_in_one_partition"
    assert found(events, name) == [((name, "error", "s.a", "id=1", 1, 1, 9), [(0, 0, 1), (1, 9, 1)])]


def test_an_update_that_changes_its_key_concerns_both_rows():
    """An unsplit key change goes to the new key's partition; the old key's history lies elsewhere."""
    events = [row(0, 0, 1, key="1"), row(1, 0, 2, "update", key="2", old="1"), row(0, 1, 3, "insert", key="1")]
    name = "rows_stay_in_one_partition"
    assert found(events, name) == [((name, "warning", "s.a", "id=2", 2, 1, 0), [(0, 0, 1), (1, 0, 2)])]
    assert found([row(0, 0, 1, key="1"), row(0, 1, 2, "update", key="2", old="1")], name) == []


def test_two_keys_that_swap_in_one_transaction_are_no_conflict():
    """Each key is left by one update and taken by another, with one commit_ts."""
    swap = [row(0, 2, 2, "update", key="2", old="1"), row(0, 3, 2, "update", key="1", old="2")]
    assert found([row(0, 0, 1, key="1"), row(0, 1, 1, key="2"), *swap], "redeliveries_are_identical") == []


def test_tables_without_a_key_are_not_judged_by_row():
    """Equal rows of a table without key are no moves and no disorder, but a watermark binds them too."""
    events = [
        row(0, 0, 2, key=None),
        row(1, 0, 1, key=None),
        row(0, 1, 1, key=None),
        mark(0, 2, 3),
        row(0, 3, 3, key=None, v="9"),
    ]
    assert [f[0][:2] for f in found(events, *[n for n, g in GUARANTEES.items() if g.row])] == [
        ("nothing_below_resolved_ts", "warning")
    ]


def test_a_change_that_first_appears_after_a_newer_one_is_late():
    """Constraint 1.3: shown by the earliest newer change before it; other keys and equal commit_ts do not matter."""
    name = "first_appearances_are_ordered"
    events = [row(0, 0, 5, key="2"), row(0, 1, 3), row(0, 2, 4, "update"), row(0, 3, 2, "update"), row(0, 4, 3)]
    assert found(events, name) == [((name, "error", "s.a", "id=1", 2, 0, 3), [(0, 1, 3), (0, 3, 2)])]
    assert found([row(0, 0, 3, "insert"), row(0, 1, 3, "delete")], name) == []


def test_what_a_restart_sends_again_may_have_been_sent_before_the_recording():
    """Both again, the older one first; what comes behind a newer one that does not come again is late, where a
    watermark shows that it does not: else it may behind the recording's end.
    """
    orders, blocked = "first_appearances_are_ordered", "nothing_below_ddl"
    again = [row(0, 9, 5), row(0, 10, 2), row(0, 10, 5, seq=1)]
    assert [f[0][1] for f in found(again, orders)] == ["warning"]
    assert [[f[0][1] for f in found([*again[:2], mark(0, 11, ts)], orders)] for ts in (4, 5)] == [
        ["warning"],
        ["error"],
    ]
    assert [f[0][1] for f in found([e | {"offset": e["offset"] - 9} for e in again], orders)] == ["error"]
    behind = [ddl(0, 9, 5), row(0, 10, 2), ddl(0, 11, 5), row(0, 12, 6)]
    assert [f[0][1] for f in found(behind, blocked)] == ["warning"]
    once = [[*behind[:2], mark(0, 11, ts)] for ts in (5, 6)]
    assert [[f[0][1] for f in found(log, blocked)] for log in once] == [["warning"], ["error"]]
    assert [f[0][1] for f in found([e | {"offset": e["offset"] - 9} for e in behind], blocked)] == ["error"]


def test_a_late_change_is_shown_by_any_change_of_the_newer_commit():
    """The older change stands between two changes of one newer transaction: before its delete, after its insert."""
    name = "first_appearances_are_ordered"
    events = [row(0, 5, 10), row(0, 6, 20, "delete"), row(0, 0, 20)]
    assert found(events, name) == [((name, "error", "s.a", "id=1", 10, 0, 5), [(0, 0, 20), (0, 5, 10)])]


def test_order_inside_a_batched_message_counts():
    """Seq orders the rows of one message."""
    name = "first_appearances_are_ordered"
    late = [row(0, 0, 3, "update", seq=0), row(0, 0, 2, seq=1)]
    assert found(late, name) == [((name, "error", "s.a", "id=1", 2, 0, 0), [(0, 0, 3), (0, 0, 2)])]
    assert found([row(0, 0, 2, seq=0), row(0, 0, 3, "update", seq=1)], name) == []


def test_order_is_judged_in_each_partition_of_a_row_that_moves():
    """A moving row's changes are still ordered inside each partition it visits."""
    name = "first_appearances_are_ordered"
    events = [row(0, 5, 1), row(1, 0, 2, "update"), row(0, 0, 3, "update")]
    assert found(events, name) == [((name, "error", "s.a", "id=1", 1, 0, 5), [(0, 0, 3), (0, 5, 1)])]


def test_a_repeat_with_another_content_is_a_conflict():
    """Constraint 1.2: what is sent again is the same change; a same-commit delete and insert are two changes."""
    name = "redeliveries_are_identical"
    events = [row(0, 0, 1), row(0, 1, 1), row(0, 2, 1, v="2"), row(0, 3, 1, "delete")]
    assert found(events, name) == [((name, "error", "s.a", "id=1", 1, 0, 2), [(0, 0, 1), (0, 2, 1)])]


def test_changes_below_a_resolved_ts_are_errors_even_when_repeated():
    """Constraint 2.2: strictly below is an error; a first appearance at the resolved_ts itself is a warning, a repeat
    nothing.
    """
    name = "nothing_below_resolved_ts"
    events = [row(0, 0, 4), row(0, 1, 5, "update"), mark(0, 2, 3), mark(0, 3, 5), mark(0, 4, 4), row(0, 5, 4),
              row(0, 6, 5, "update"), row(0, 7, 5, key="2"), row(0, 8, 6, key="2"), row(1, 0, 1, key="3")]  # fmt: skip
    assert found(events, name) == [
        ((name, "error", "s.a", "id=1", 4, 0, 5), [(0, 3, 5), (0, 5, 4)]),
        ((name, "warning", "s.a", "id=2", 5, 0, 7), [(0, 3, 5), (0, 7, 5)]),
    ]


@pytest.mark.parametrize("chunk", [1, 3, 128, 10**9])
def test_what_stands_before_a_row_does_not_depend_on_chunks(spark, chunk):
    """A watermark many chunks back still binds, one at the same or a later offset does not."""
    name = "nothing_below_resolved_ts"
    far = 10**12
    below = [row(0, 7, 2, key="2"), row(0, 900, 2, key="4"), row(0, far + 500, 8, key="3")]
    events = [row(0, 5, 2, key="1"), mark(0, 6, 3), mark(0, far, 9), row(0, far - 1, 4, key="5"), *below]
    frame = events_frame(spark, events).transform(audit, protocol="open-protocol", checks=[name], chunk=chunk)
    assert [(f.partition, f.offset) for f in frame.collect()] == [(0, 7), (0, 900), (0, far + 500)]


def test_changes_below_a_ddl_of_their_table_are_found():
    """Constraint 2.3: first appearances are errors, repeats warnings; other tables, partitions and newer rows  are
    free.
    """
    name = "nothing_below_ddl"
    events = [row(0, 0, 4), ddl(0, 1, 5), row(0, 2, 4), row(0, 3, 3, key="2"), row(0, 4, 3, key="3", table="b"),
              row(1, 0, 3, key="4"), row(0, 5, 5, key="5")]  # fmt: skip
    assert found(events, name) == [
        ((name, "error", "s.a", "id=2", 3, 0, 3), [(0, 1, 5), (0, 3, 3)]),
        ((name, "warning", "s.a", "id=1", 4, 0, 2), [(0, 1, 5), (0, 2, 4)]),
    ]


@pytest.mark.parametrize("old", ["a", "b", "c", "d"])
def test_each_table_of_a_rename_of_several_is_blocked(old):
    """The DDL event names one table; a change of any other that is older follows it as much."""
    events = [ddl(0, 0, 5, "RENAME TABLE `s`.`a` TO `s`.`b`, `s`.`c` TO `s`.`d`", "b"), row(0, 1, 3, table=old)]
    assert [f[0][:3] for f in found(events, "nothing_below_ddl")] == [("nothing_below_ddl", "error", f"s.{old}")]


def test_a_ddl_of_a_schema_blocks_all_its_tables():
    """Dropping a database orders every table in it, and no other."""
    other = row(0, 2, 1, key="2") | {"schema_name": "o"}
    events = [ddl(0, 0, 5, "DROP DATABASE `s`", ""), row(0, 1, 1, table="b"), other]
    assert [f[0][2] for f in found(events, "nothing_below_ddl")] == ["s.b"]


def test_topics_are_judged_apart():
    """Broadcasts are per topic, and equal partition numbers of two topics are two places."""
    other = [e | {"topic": "u"} for e in (mark(0, 0, 3), mark(1, 0, 3), row(0, 1, 9, key="7", table="b"))]
    assert found([mark(0, 0, 1), mark(1, 0, 1), *other]) == []
    name = "rows_stay_in_one_partition"
    moved = found([row(0, 0, 1), row(0, 0, 2, "update") | {"topic": "u"}], name)
    assert [f[0][4:] for f in moved] == [(2, 0, 0)]


def test_a_log_without_commit_ts_is_judged_on_what_there_is():
    """Canal-json without the extension: rows in two partitions are found, all else is reported as impossible."""
    events = [row(0, 0, None), row(1, 4, None, "update"), row(1, 5, None, "delete"), row(0, 1, None, key="2")]
    got = found(events, protocol="canal-json", has_commit_ts=False)
    assert [f[0][:4] for f in got] == [("rows_stay_in_one_partition", "error", "s.a", "id=1")]
    possible = checks_possible("canal-json", has_commit_ts=False)
    assert [n for n, why in possible.items() if not why] == [
        *("rows_stay_in_one_partition", "offsets_are_contiguous", "admin_events_on_all_partitions"),
        "rows_follow_the_partition_count",
    ]
    with pytest.raises(ProtocolError, match="no commit_ts"):
        found(events, "watermarks_are_monotone", protocol="canal-json", has_commit_ts=False)


def test_a_cause_turns_a_move_into_a_warning_that_says_so(spark):
    """Moves that the table's rule implies are warnings; a repeat in another partition stays an error."""
    causes = spark.createDataFrame(
        [("s", "a", "the table is dispatched by ts")], "schema_name string, table_name string, cause string"
    )
    events = [
        row(0, 0, 1),
        row(1, 0, 2, "update"),
        row(0, 9, 2, "update"),
        row(0, 1, 1, table="b"),
        row(1, 1, 2, "update", table="b"),
    ]
    frame = events_frame(spark, events).transform(
        audit, protocol="open-protocol", causes=causes, checks=["rows_stay_in_one_partition"]
    )
    assert [(f.severity, f.table, f.message) for f in frame.collect()] == [
        ("error", "s.a", "a change first delivered in partition 1 is delivered again in 0"),
        (
            "error",
            "s.b",
            "the row moves from partition 0 to 1, which no dispatch rule explains",
        ),
        ("warning", "s.a", "the row moves from partition 0 to 1 because the table is dispatched by ts"),
    ]


def test_a_row_in_two_topics_is_said_to_be_in_both(spark):
    """Neither a move from partition 0 to 0, nor a repeat there; a rule of one topic explains neither."""
    events = [row(0, 0, 1), row(0, 0, 1) | {"topic": "u"}, row(2, 1, 2, "update") | {"topic": "u"}]
    frame = events_frame(spark, events).transform(
        audit, protocol="open-protocol", checks=["rows_stay_in_one_partition"]
    )
    assert {(f.severity, f.cause, f.message) for f in frame.collect()} == {
        ("error", APART, "changes of the row are in topic t partition 0 and in topic u partition 0"),
        ("error", APART, "changes of the row are in topic t partition 0 and in topic u partition 2"),
    }


def test_a_move_that_does_not_follow_the_rule_stays_an_error(spark):
    """The cause holds for moves between events that lie where the rule puts them, in its own topic."""
    causes = spark.createDataFrame(
        [("t", "s", "a", "the table is dispatched by ts", None, None, None), ("t", "s", "a", None, 1, 5, 0),
         ("u", "s", "b", "the table is dispatched by ts", None, None, None)],
        "topic string, schema_name string, table_name string, cause string, partition int, offset bigint, seq int",
    )  # fmt: skip
    events = [row(0, 0, 2), row(1, 0, 3, "update"), row(0, 1, 4, "update"), row(1, 5, 6, "update"),
              row(0, 6, 8, "update"), row(0, 8, 1, table="b"), row(1, 8, 2, "update", table="b")]  # fmt: skip
    name = "rows_stay_in_one_partition"
    frame = events_frame(spark, events).transform(audit, protocol="open-protocol", causes=causes, checks=[name])
    said = {(f.table, f.commit_ts): (f.severity, f.message.partition("to ")[2][1:]) for f in frame.collect()}
    rule = ", which violates the rule of its table: the table is dispatched by ts"
    assert said == {
        ("s.a", 3): ("warning", " because the table is dispatched by ts"),
        ("s.a", 4): ("warning", " because the table is dispatched by ts"),
        ("s.a", 6): ("error", rule),
        ("s.a", 8): ("error", rule),
        ("s.b", 2): (
            "error",
            ", which no dispatch rule explains",
        ),
    }


def test_order_inside_a_partition_has_no_cause(spark):
    """A rule chooses partitions; it does not show in which order one is written."""
    causes = spark.createDataFrame([("s", "a", "it is by ts")], "schema_name string, table_name string, cause string")
    events = [row(0, 0, 4), row(0, 2, 2, "update")]
    frame = events_frame(spark, events).transform(audit, protocol="open-protocol", causes=causes)
    (late,) = frame.where("guarantee = 'first_appearances_are_ordered'").collect()
    assert (late.severity, "because" in late.message) == ("error", False)


@pytest.mark.parametrize("lacks", ["offset", "seq"])
def test_what_has_no_place_stands_first_and_a_log_may_be_empty(lacks):
    """Neither is a failure."""
    log = [ddl(0, 0, 5), ddl(0, 1, 6), admin(0, 2, 2), row(0, 3, 2), mark(0, 4, 9)]
    bare = [e | ({lacks: None} if e["kind"] in ("ddl", "admin") else {}) for e in log]
    assert {f[0][0] for f in found(bare)} == {f[0][0] for f in found(log)} > {"nothing_below_ddl"}
    assert found([]) == []


@pytest.mark.parametrize("event", [row(0, 0, 1), mark(0, 0, 1), ddl(0, 0, 1)])
def test_an_event_without_partition_is_refused_in_words(event):
    """All that TiCDC guarantees is of partitions."""
    with pytest.raises(ContractError, match="have no partition"):
        found([row(0, 1, 2), event | {"partition": None}])


def test_explained_moves_do_not_push_errors_out(spark):
    """Errors come first also among more explained moves than are listed."""
    causes = spark.createDataFrame([("s", "a", "it is by ts")], "schema_name string, table_name string, cause string")
    moves = [e for i in range(5) for e in (row(0, i, 1, key=f"{i}"), row(1, i, 2, "update", key=f"{i}"))]
    events = [*moves, row(0, 99, 1, table="b"), row(1, 99, 2, "update", table="b")]
    frame = events_frame(spark, events).transform(
        audit, protocol="open-protocol", causes=causes, checks=["rows_stay_in_one_partition"], max_per_guarantee=2
    )
    assert [(f.severity, f.table) for f in frame.collect()] == [("error", "s.b"), ("warning", "s.a"), ("info", None)]


def test_an_event_recorded_twice_does_not_multiply_findings(spark):
    """Captures may overlap; the key is looked up once a finding."""
    events = [mark(0, 0, 9), row(0, 1, 1), row(0, 1, 1)]
    frame = events_frame(spark, events)
    keyed = frame.transform(audit, protocol="open-protocol", checks=["nothing_below_resolved_ts"])
    plain = frame.transform(audit, protocol="open-protocol", checks=["nothing_below_resolved_ts"], with_keys=False)
    assert keyed.drop("key").collect() == plain.drop("key").collect()
    assert {f.key for f in keyed.collect()} == {"id=1"}


def test_findings_beyond_the_most_are_counted(spark):
    """Errors come first, and one line shows how many were left out."""
    events = [mark(0, 0, 9), *[row(0, i, i, key=str(i)) for i in range(1, 6)]]
    frame = events_frame(spark, events).transform(audit, protocol="open-protocol", max_per_guarantee=2)
    got = [(f.severity, f.message[:30]) for f in frame.where("guarantee = 'nothing_below_resolved_ts'").collect()]
    assert [s for s, _ in got] == ["error", "error", "info"]
    assert got[2][1].startswith("3 more findings")


def test_schema_is_the_contract_and_keys_can_be_left_out(spark):
    """The columns are FINDINGS; with_keys=False reads no image."""
    frame = events_frame(spark, [mark(0, 0, 9), row(0, 1, 1)]).drop("columns", "before")
    out = frame.transform(audit, protocol="open-protocol", with_keys=False)
    assert [(f.name, f.dataType.simpleString()) for f in out.schema] == [
        (f.name, f.dataType.simpleString()) for f in FINDINGS
    ]
    assert [(f.key, f.offset) for f in out.collect()] == [(None, 1)]


def test_wrong_requests_are_refused(spark):
    """Unknown checks, frames without the contract and streams are named."""
    frame = events_frame(spark, [mark(0, 0, 9)])
    with pytest.raises(ContractError, match="No such check"):
        frame.transform(audit, protocol="open-protocol", checks=["rows_are_nice"])
    with pytest.raises(ContractError, match="offset"):
        frame.drop("offset").transform(audit, protocol="open-protocol")
    with pytest.raises(ProtocolError, match="no watermark messages"):
        frame.transform(audit, protocol="maxwell", checks=["watermarks_are_monotone"])


def test_a_stream_is_refused(spark, tmp_path):
    """A row may change again at any later offset, so an audit needs the whole log."""
    frame = events_frame(spark, [mark(0, 0, 9)])
    stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path))
    with pytest.raises(StreamingError, match="audit needs the whole log"):
        stream.transform(audit, protocol="open-protocol")


def test_each_guarantee_is_in_the_table_of_its_page() -> None:
    """What is checked is what the page shows: run docs/guarantees.py after a change."""
    made = runpy.run_path(str(ROOT / "docs/guarantees.py"))["page"]
    page = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    assert page == made(page), "run: python docs/guarantees.py"
    assert set(GUARANTEES) <= {*re.findall(r"^\| `(\w+)` \| \S", page, re.MULTILINE)}


@pytest.mark.parametrize("name", [n for n, g in GUARANTEES.items() if g.at_once])
def test_no_later_message_explains_what_a_watch_opens_at_once(name: str) -> None:
    """A restart sends all again, a second one too: what is found first is found then, with its severity."""
    log = FAULTS[name]
    behind = 1 + max(e["offset"] for e in log)
    again = [e | {"offset": e["offset"] + n * behind} for n in (0, 1, 2) for e in log if n == 0 or e["kind"] == "row"]
    (first,) = found(log, name)
    assert [f[0][:2] for f in found(again, name) if f[0] == first[0]] == [first[0][:2]]


def test_a_watch_knows_which_guarantees_one_change_alone_can_break() -> None:
    """They are judged of rows whose former changes it has forgotten, too: of the planted log one row change is left."""

    def breaks(name: str) -> bool:
        log = FAULTS[name]
        rows = [e for e in log if e["kind"] == "row"]
        return any(found([e for e in log if e is one or e not in rows], name) for one in rows)

    assert [n for n, g in GUARANTEES.items() if g.row and breaks(n)] == [n for n, g in GUARANTEES.items() if g.by_one]
