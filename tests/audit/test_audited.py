"""The audit that an answer computes gives what the transform gives, and leaves out what a log does not ask for."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest
from audit_tables import audit_table
from conftest import events_frame, golden
from generated_topics import FAULTS, every_fault, topic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from test_golden_audit import SMALL
from tiny_logs import ddl, mark, row, table_of

from ticdc_lab import load
from ticdc_lab.audit import audit, audited
from ticdc_lab.codecs.keys import with_hashes
from ticdc_lab.dispatch.best_rule import CAUSES
from ticdc_lab.dispatch.infer import move_causes, move_causes_table
from ticdc_lab.engine import shuffle
from ticdc_lab.engine.sessions import has_jvm
from ticdc_lab.events.schema import DISPATCH, IMAGE_HASHES, KEYS, QUARANTINE
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.schemas import arrow_of


def _asked_for_nothing() -> DataFrame:
    raise AssertionError("no row lies in two partitions, so nobody needs to know what moves rows")


@pytest.mark.parametrize(("most", "moves"), [(3, True), (500, False)])
def test_it_finds_what_the_kernel_finds(spark: SparkSession, most: int, moves: bool) -> None:
    """Of a real log that begins late, some of whose tables move rows: with the rules that move them, and rows' keys.

    Whether or not it is informed that rows move; a few of each guarantee are the first of all.
    """
    events = load(spark, str(golden(SMALL))).events.where("offset >= element_at(array(46, 15, 84, 57), partition + 1)")
    table = events.toArrow()
    found = audited(
        lambda: events, LogFacts.of(table), lambda: move_causes(events), protocol="open-protocol",
        max_per_guarantee=most, moves=moves,
    ).findings  # fmt: skip
    causes = move_causes_table(table)
    expected = audit_table(table, protocol="open-protocol", causes=causes, max_per_guarantee=most)
    assert found.to_pylist() == expected.to_pylist()
    said = found.to_pylist()
    assert any("because" in f["message"] for f in said) and any(f["key"] for f in said)
    assert [f["severity"] for f in said if f["guarantee"] == "row_images_chain"] == ["warning"]


def test_a_row_change_in_quarantine_is_no_other_message_at_the_offset_of_its_batch(spark: SparkSession) -> None:
    """The others of the batch are events; another message that cannot be decoded is one."""
    log = [row(0, 0, 1, key="1"), row(0, 0, 1, key="3", seq=2), mark(0, 1, 9)]

    def found(seq: int) -> list[str]:
        unread = {"topic": "t", "partition": 0, "offset": 0, "seq": seq, "error_class": "empty-row", "value": b"x"}
        quarantine = spark.createDataFrame([unread], QUARANTINE)
        events = events_frame(spark, log).transform(with_hashes, KEYS, IMAGE_HASHES)
        whole = audited(
            lambda: events, LogFacts.of(table_of(log)), lambda: move_causes(events), protocol="open-protocol",
            quarantine=lambda: quarantine,
        )  # fmt: skip
        return [f["severity"] for f in whole.findings.to_pylist() if f["guarantee"] == "offsets_are_contiguous"]

    assert found(1) == [] and found(0) == ["error"]


def test_the_transform_says_that_it_does_not_look_for_stretches_without_old_values(spark: SparkSession) -> None:
    """Nine updates without an image look like inserts of rows that are there; a protocol that names them has none."""
    born = [row(0, i, 1, key=str(i)) for i in range(10)]
    with_old = [row(0, 10 + i, 10 + i, "update", key=str(i), v="1") for i in range(10)]
    without = [row(0, 20 + i, 20 + i, "insert", key=str(i), v="1") for i in range(9)]
    events = events_frame(spark, born + with_old + without).transform(with_hashes, KEYS, IMAGE_HASHES)
    said = events.transform(audit, protocol="open-protocol", checks=["row_images_chain"]).toArrow().to_pylist()
    assert len(said) == 9 and all("whether old values were off then was not judged" in f["message"] for f in said)
    assert (
        events.transform(audit, protocol="debezium", checks=["row_images_chain"])
        .where("message LIKE '%not judged%'")
        .isEmpty()
    )


@pytest.mark.parametrize("protocol", ["open-protocol", "debezium"])
@pytest.mark.parametrize("off_first", [False, True])
def test_old_values_that_are_switched_within_a_log_are_no_fault(
    spark: SparkSession, protocol: str, off_first: bool
) -> None:
    """It is named with its commit_ts, and not judged; three inserts beside ten updates may be faults: warnings."""

    def log(n: int) -> list[dict[str, Any]]:
        born = [row(0, i, 1, key=str(i)) for i in range(10)]
        with_old = [row(0, 0, 0, "update", key=str(i), v="1") for i in range(10)]
        op = "insert" if protocol == "open-protocol" else "update"
        without = [row(0, 0, 0, op, key=str(i), v="1") | {"before": None} for i in range(n)]
        changes = without + with_old if off_first else with_old + without
        return [*born, *(e | {"offset": 10 + i, "commit_ts": 10 + i} for i, e in enumerate(changes))]

    def audited_log(n: int) -> tuple[list[tuple[str, str]], str]:
        events = events_frame(spark, log(n)).transform(with_hashes, KEYS, IMAGE_HASHES)
        whole = audited(lambda: events, LogFacts.of(table_of(log(n))), lambda: move_causes(events), protocol=protocol)
        broken = [f for f in whole.findings.to_pylist() if f["guarantee"] == "row_images_chain"]
        return [(f["severity"], f["key"]) for f in broken], whole.unjudged.get("row_images_chain", "")

    keys, why = audited_log(9)
    at = 19 if off_first else 20
    assert not keys and f"old values were switched {'on' if off_first else 'off'} from commit_ts {at} (" in why
    keys, why = audited_log(3)
    if protocol == "open-protocol":
        assert not why and keys == [("warning", f"id={i}") for i in range(3)]
    else:
        assert not keys and why.startswith("3 of 13 updates have no image before them, beside others that have one")


def test_a_ddl_that_is_not_understood_is_named_where_rows_are_not_judged(spark: SparkSession) -> None:
    """Its table was defined before, so that no table is without a definition."""
    create = ddl(0, 0, 1, "CREATE TABLE a (id INT PRIMARY KEY, v INT)")
    log = [create, row(0, 1, 2), ddl(0, 2, 3, "FROBNICATE TABLE a"), row(0, 3, 4, key="2")]
    events = events_frame(spark, log)
    told = audited(lambda: events, LogFacts.of(table_of(log)), lambda: move_causes(events), protocol="open-protocol")
    why = told.unjudged["values_fit_their_columns"]
    assert why.startswith("1 DDL is not understood (commit_ts 3, s.a: ") and why.endswith("from there on")


def test_it_finds_planted_faults(spark: SparkSession) -> None:
    """Each kind, beside each other."""
    log = every_fault()
    events, table = events_frame(spark, log), table_of(log)
    found = audited(lambda: events, LogFacts.of(table), lambda: move_causes(events), protocol="open-protocol").findings
    assert {f["guarantee"] for f in found.to_pylist()} >= set(FAULTS.values())
    causes = move_causes_table(with_hashes(events, DISPATCH).toArrow())
    assert found.to_pylist() == audit_table(table, protocol="open-protocol", causes=causes).to_pylist()


def test_where_no_row_moves_nothing_else_is_computed(spark: SparkSession) -> None:
    """Neither the rules that move rows, nor the images of rows."""
    log = topic(7).events()
    events = with_hashes(events_frame(spark, log), IMAGE_HASHES)
    unread = events.withColumns({c: F.expr("raise_error('read')") for c in ("columns", "before")})
    found = audited(lambda: unread, LogFacts.of(table_of(log)), _asked_for_nothing, protocol="open-protocol").findings
    assert [f for f in found.to_pylist() if f["severity"] == "error"] == []
    assert found.schema.names == pa.schema(audit_table(table_of(log), protocol="open-protocol").schema).names


def test_where_no_row_moves_no_rule_excuses_what_is_lost(spark: SparkSession) -> None:
    """Though it was reported that some do, and what their table's rule counts was not recorded."""
    log = [
        row(0, 0, 5),
        mark(0, 1, 5),
        row(0, 2, 6),
        mark(0, 3, 6),
        row(1, 0, 5, key="2"),
        *[mark(1, t - 4, t) for t in (5, 6)],
        *[row(1, t - 4, t, "update", key="2") for t in range(7, 12)],  # old values are on
    ]
    events, table = events_frame(spark, log), table_of(log)
    cause = {"topic": "t", "schema_name": "s", "table_name": "a", "cause": "its rule", "partition": 7}
    causes = pa.Table.from_pylist([cause | {"offset": None, "seq": None}], arrow_of(CAUSES))
    found = audited(lambda: events, LogFacts.of(table), lambda: causes, protocol="open-protocol", moves=True).findings
    assert found.to_pylist() == audit_table(table, protocol="open-protocol").to_pylist()
    assert [f["severity"] for f in found.to_pylist()] == ["error"]


def test_of_findings_about_the_log_the_first_are_held_and_the_others_counted(spark: SparkSession) -> None:
    """After one absurdly high watermark every later one falls back."""
    log = [row(0, 0, 5), mark(0, 1, 10**6), *[mark(0, 60 - i, 900 - i) for i in range(50)]]
    found = audited(
        lambda: events_frame(spark, log), LogFacts.of(table_of(log)), _asked_for_nothing, protocol="open-protocol",
        max_per_guarantee=3,
    ).findings  # fmt: skip
    assert found.to_pylist() == audit_table(table_of(log), protocol="open-protocol", max_per_guarantee=3).to_pylist()
    assert [f["message"] for f in found.to_pylist()][-1].startswith("47 more findings")


def test_what_is_glued_of_two_topics_is_found_by_it_alone(spark: SparkSession) -> None:
    """The transform and the kernel show in their words that they do not; an unreadable message counts, too."""
    log = topic(7).events()
    [one, other, *_] = [e for e in log if e["kind"] == "row" and e["partition"] == 0]
    glued = [*log, other | {"offset": one["offset"]}]
    unread = {"topic": one["topic"], "partition": 0, "offset": other["offset"], "key": None, "value": b"{",
              "error_class": "not-json", "seq": 0}  # fmt: skip

    def quarantine() -> DataFrame:
        return spark.createDataFrame(pa.Table.from_pylist([unread]))

    name, same = "offsets_are_contiguous", [*log, one]
    logs = [(glued, None, 1), (log, quarantine, 1), (glued, quarantine, 2), (log, None, 0), (same, None, 0)]
    for events, bad, differ in logs:
        frame, facts = events_frame(spark, events), LogFacts.of(table_of(events))
        told = audited(
            lambda frame=frame: frame,
            facts,
            _asked_for_nothing,
            protocol="open-protocol",
            quarantine=bad,
        ).findings
        found = [f for f in told.to_pylist() if f["guarantee"] == name]
        assert [f["severity"] for f in found] == ["error"] * bool(differ)
        assert all(f"different messages at {differ} offset" in f["message"] for f in found)
    assert audit_table(table_of(glued), protocol="open-protocol", checks=[name]).num_rows == 0
    assert audit(events_frame(spark, glued), protocol="open-protocol", checks=[name]).count() == 0
    assert all("different messages at one offset" in str(of.__doc__) for of in (audit, audited))


def test_very_many_facts_are_gathered_by_the_engine(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an engine takes with a query is bounded, of one that broadcasts more loosely."""
    marks, log, asked = sys.modules["ticdc_lab.audit.marks"], every_fault(), []
    events, facts = events_frame(spark, log), LogFacts.of(table_of(log))
    expected = audited(lambda: events, facts, lambda: move_causes(events), protocol="open-protocol").findings
    gathered = marks.log_marks
    monkeypatch.setattr(marks, "log_marks", lambda e, **of: (asked.append(1), gathered(e, **of))[1])
    monkeypatch.setattr(shuffle, "SENT", 0)
    assert shuffle.is_sent(pa.table({"n": [1]}), lambda: spark) == has_jvm(spark)
    monkeypatch.setattr(shuffle, "BROADCAST", 0)
    found = audited(lambda: events, facts, lambda: move_causes(events), protocol="open-protocol").findings
    assert found.to_pylist() == expected.to_pylist() and asked
