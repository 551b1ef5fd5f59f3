"""A table through its DDL: what the rows are at each commit_ts."""

from __future__ import annotations

import decimal
from functools import cache
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tiny_tables import TinyLog

from ticdc_lab.errors import IncompleteHistoryError, ProtocolError
from ticdc_lab.tables import Knowledge, knowledge, table_as_of, table_history

CREATE = "CREATE TABLE s.t (id INT PRIMARY KEY)"
CLAUSES = ("EXCHANGE PARTITION p0 WITH TABLE s.u", "DROP PARTITION p0", "TRUNCATE PARTITION p0")
SAID = ("_commit_ts", "_inferred", "_unconvertible")


@cache
def known(events: DataFrame) -> Knowledge:
    """What is known of a log."""
    return knowledge(events)


def rows(events: DataFrame, ts: int, table: str = "t") -> list[dict[str, Any]]:
    """The table's rows by their first column, without what is reported about them."""
    found = table_as_of(events, schema_name="s", table_name=table, ts=ts, known=known(events)).rows
    assert tuple(found.columns[-3:]) == SAID
    own = [{k: v for k, v in r.asDict().items() if k not in SAID} for r in found.collect()]
    return sorted(own, key=lambda r: str(next(iter(r.values()))))


def said(events: DataFrame, ts: int) -> list[tuple[list[str], list[tuple[Any, ...]]]]:
    """What is reported about each row: inferred columns, and those without a value."""
    found = table_as_of(events, schema_name="s", table_name="t", ts=ts, known=known(events)).rows.collect()
    return [(r["_inferred"], [tuple(u) for u in r["_unconvertible"]]) for r in found]


def test_an_added_column_has_its_default_in_older_rows(spark: SparkSession) -> None:
    """A row not touched since ADD COLUMN holds the literal default, reported as inferred; a newer row its own value."""
    log = TinyLog().ddl(10, CREATE).row(11, {"id": 1}).row(12, {"id": 2})
    log.ddl(20, "ALTER TABLE s.t ADD COLUMN a INT NOT NULL, ADD COLUMN b VARCHAR(9) DEFAULT 'it''s' FIRST")
    log.row(21, {"id": 2, "a": 5, "b": "x"}, {"id": 2, "a": 0, "b": "it's"}).mark(30)
    events = log.frame(spark)
    assert rows(events, 19) == [{"id": 1}, {"id": 2}]
    assert rows(events, 30) == [{"b": "it's", "id": 1, "a": 0}, {"b": "x", "id": 2, "a": 5}]
    assert sorted(said(events, 30)) == [([], []), (["b", "a"], [])]


def test_a_computed_default_is_not_invented(spark: SparkSession) -> None:
    """What CURRENT_TIMESTAMP gave when the column was added is in no event: null, with the reason."""
    log = TinyLog().ddl(10, CREATE).row(11, {"id": 1})
    log.ddl(20, "ALTER TABLE s.t ADD COLUMN d DATETIME DEFAULT CURRENT_TIMESTAMP").mark(30)
    events = log.frame(spark)
    assert rows(events, 30) == [{"id": 1, "d": None}]
    ((inferred, wrong),) = said(events, 30)
    assert inferred == [] and wrong[0][:2] == ("d", None) and "computed" in wrong[0][2]


def test_a_dropped_column_is_gone_and_its_name_free(spark: SparkSession) -> None:
    """After DROP COLUMN and ADD COLUMN of the same name the old values are not the new column's."""
    log = TinyLog().ddl(10, "CREATE TABLE s.t (id INT PRIMARY KEY, a INT)").row(11, {"id": 1, "a": 7})
    log.ddl(20, "ALTER TABLE s.t DROP COLUMN a").row(21, {"id": 2})
    log.ddl(30, "ALTER TABLE s.t ADD COLUMN a VARCHAR(5) DEFAULT 'new'").mark(40)
    events = log.frame(spark)
    assert rows(events, 11) == [{"id": 1, "a": 7}]
    assert rows(events, 20) == [{"id": 1}]
    assert rows(events, 40) == [{"id": 1, "a": "new"}, {"id": 2, "a": "new"}]
    history = table_history(events, schema_name="s", table_name="t", known=known(events))
    assert [c for c in history.columns if not c.startswith("_")] == ["id", "a", "a@20"]
    assert sorted(tuple(r) for r in history.select("id", "a", "`a@20`").collect()) == [(1, None, 7), (2, None, None)]


def test_a_renamed_column_keeps_its_values(spark: SparkSession) -> None:
    """RENAME COLUMN and CHANGE COLUMN give values a new name; the key column may be renamed too."""
    log = TinyLog().ddl(10, "CREATE TABLE s.t (id INT PRIMARY KEY, a INT)").row(11, {"id": 1, "a": 7})
    log.ddl(20, "ALTER TABLE s.t RENAME COLUMN a TO b, RENAME COLUMN id TO k")
    log.row(21, {"k": 1, "b": 8}, {"k": 1, "b": 7}, key="k").ddl(30, "ALTER TABLE s.t CHANGE b c BIGINT").mark(40)
    events = log.frame(spark)
    assert rows(events, 20) == [{"k": 1, "b": 7}]
    assert rows(events, 40) == [{"k": 1, "c": 8}]
    history = table_history(events, schema_name="s", table_name="t", known=known(events)).orderBy("_commit_ts")
    assert [(r["k"], r["c"], r["_valid_to"]) for r in history.collect()] == [(1, 7, 21), (1, 8, None)]
    assert dict(history.dtypes)["c"] == "bigint"


def test_a_modified_column_has_the_type_of_its_time(spark: SparkSession) -> None:
    """Older values are converted as the types describe, and that is reported; what only TiDB can determine is null with
    the reason.
    """
    log = TinyLog(types={"a": "double", "b": "varchar"}).ddl(
        10, "CREATE TABLE s.t (id INT PRIMARY KEY, a DOUBLE, b VARCHAR(9))"
    )
    log.row(11, {"id": 1, "a": "2.345", "b": "12"}).row(12, {"id": 2, "a": "1e30", "b": None})
    log.ddl(20, "ALTER TABLE s.t MODIFY a DECIMAL(5,2), MODIFY b INT").mark(30)
    events = log.frame(spark)
    assert [r["a"] for r in rows(events, 19)] == [2.345, 1e30]
    assert rows(events, 20) == [{"id": 1, "a": decimal.Decimal("2.35"), "b": None}, {"id": 2, "a": None, "b": None}]
    assert sorted(said(events, 20)) == [
        (["a"], [("b", "12", "was written as varchar(9); what TiDB made of it as int is not in the log")]),
        (["b"], [("a", "1e30", "does not fit decimal(5,2)")]),
    ]


def test_a_renamed_table_brings_its_rows(spark: SparkSession) -> None:
    """RENAME TABLE moves the rows and the key; names may be swapped, and the old name is free for a new table."""
    log = TinyLog().ddl(10, CREATE).ddl(11, "CREATE TABLE s.u (id INT PRIMARY KEY)", "u")
    log.row(12, {"id": 1}).row(13, {"id": 2}, table="u")
    log.ddl(20, "RENAME TABLE s.t TO s.z, s.u TO s.t, s.z TO s.u").row(21, None, {"id": 2}).row(22, {"id": 3})
    log.ddl(30, "RENAME TABLE s.t TO s.v", "v").ddl(31, "CREATE TABLE s.t (q INT PRIMARY KEY)").mark(40)
    events = log.frame(spark)
    assert rows(events, 13) == [{"id": 1}] and rows(events, 13, "u") == [{"id": 2}]
    assert rows(events, 20) == [{"id": 2}] and rows(events, 40, "u") == [{"id": 1}]
    assert rows(events, 40, "v") == [{"id": 3}] and rows(events, 40) == []
    with pytest.raises(ProtocolError, match=r"no table s\.t at 30 .*: it was renamed to s\.v at 30"):
        rows(events, 30)


def test_truncate_and_drop_end_a_life(spark: SparkSession) -> None:
    """Rows before TRUNCATE or DROP are gone at its commit_ts; a row of the same key later is another life's."""
    log = TinyLog().ddl(10, "CREATE TABLE s.t (id INT PRIMARY KEY, a INT)").row(11, {"id": 1, "a": 1})
    log.ddl(20, "TRUNCATE TABLE s.t").row(21, {"id": 1, "a": 2}).ddl(30, "DROP TABLE s.t")
    log.ddl(40, "CREATE TABLE s.t (id INT, a VARCHAR(5), PRIMARY KEY (id, a))")
    log.row(41, {"id": 1, "a": "z"}, key="id,a").mark(50)
    events = log.frame(spark)
    assert [rows(events, ts) for ts in (19, 20, 21, 50)] == [
        [{"id": 1, "a": 1}], [], [{"id": 1, "a": 2}], [{"id": 1, "a": "z"}],
    ]  # fmt: skip
    with pytest.raises(ProtocolError, match="it was dropped at 30"):
        rows(events, 35)
    history = table_history(events, schema_name="s", table_name="t", known=known(events)).orderBy("_commit_ts")
    assert dict(history.dtypes)["a"] == "string"
    assert [(r["a"], r["_life"], r["_valid_from"], r["_valid_to"], r["_ended_by"]) for r in history.collect()] == [
        ("1", 0, 11, 20, "truncated"), ("2", 1, 21, 30, "dropped"), ("z", 2, 41, None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("clause", CLAUSES)
def test_rows_moved_without_an_event_are_refused(spark: SparkSession, clause: str) -> None:
    """What partition DDL moves is in no event: before it the table can be determined, from it on it is refused."""
    log = TinyLog().ddl(10, "CREATE TABLE s.u (id INT PRIMARY KEY)", "u").ddl(11, CREATE)
    log.row(12, {"id": 1}).row(13, None, {"id": 1}).row(14, {"id": 2}).ddl(20, f"ALTER TABLE s.t {clause}").mark(30)
    events = log.frame(spark)
    assert rows(events, 19) == [{"id": 2}]
    for table in ("t", "u") if clause.startswith("EXCHANGE") else ("t",):
        with pytest.raises(IncompleteHistoryError, match=f"{clause.split()[0]} PARTITION .*DDL of commit_ts 20"):
            rows(events, 20, table)
    history = (
        table_history(events, schema_name="s", table_name="t", known=known(events))
        .orderBy("_commit_ts", "_op")
        .collect()
    )
    assert [(r["id"], bool(r["_doubt"])) for r in history] == [(1, False), (1, False), (2, True)]


def test_partitions_that_keep_their_rows_are_no_reason_to_refuse(spark: SparkSession) -> None:
    """ADD and REORGANIZE PARTITION leave the rows as they are."""
    log = TinyLog().ddl(10, CREATE).row(12, {"id": 1})
    log.ddl(20, "ALTER TABLE s.t ADD PARTITION (PARTITION p1 VALUES LESS THAN (9))").mark(30)
    assert rows(log.frame(spark), 30) == [{"id": 1}]


def test_ddl_that_is_not_understood_or_changes_the_key_is_refused(spark: SparkSession) -> None:
    """Neither the columns nor which row is which can be determined after it; before it they can."""
    log = TinyLog().ddl(10, "CREATE TABLE s.t (id INT PRIMARY KEY NONCLUSTERED, a INT NOT NULL)")
    log.row(11, {"id": 1, "a": 7}).ddl(20, "ALTER TABLE s.t DROP PRIMARY KEY, ADD PRIMARY KEY (a)")
    log.ddl(30, "ALTER TABLE s.t FROBNICATE").mark(40)
    events = log.frame(spark)
    assert rows(events, 19) == [{"id": 1, "a": 7}]
    with pytest.raises(IncompleteHistoryError, match="commit_ts 20 changes its handle key"):
        rows(events, 29)
    with pytest.raises(IncompleteHistoryError, match=r"from commit_ts 30 on is unknown.*FROBNICATE"):
        rows(events, 40)
