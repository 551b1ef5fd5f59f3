"""When a table can be distinguished from a log, what is refused, and what is reported of the rest."""

from __future__ import annotations

import decimal
from functools import cache
from typing import Any

import pytest
from conftest import events_frame
from pyspark.sql import DataFrame, SparkSession
from tiny_tables import TinyLog

from ticdc_lab.errors import IncompleteHistoryError, ProtocolError
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import ColumnDef, IndexDef, TableDef
from ticdc_lab.tables import Knowledge, TableAsOf, knowledge, table_as_of, table_history

CREATE = "CREATE TABLE s.t (id INT PRIMARY KEY, a INT)"


@cache
def known(events: DataFrame) -> Knowledge:
    """What is known of a log."""
    return knowledge(events)


def at(events: DataFrame, ts: int | None = None) -> TableAsOf:
    """The table s.t."""
    return table_as_of(events, schema_name="s", table_name="t", ts=ts, known=known(events))


def own(table: TableAsOf) -> list[tuple[Any, ...]]:
    """Its rows without what is reported about them, sorted."""
    return sorted((tuple(r)[:-3] for r in table.rows.collect()), key=str)


def test_a_delivery_counts_once_and_the_newest_commit_ts_wins(spark: SparkSession) -> None:
    """Repeats change nothing, wherever they come; of one transaction a delete comes before an insert of its key."""
    log = TinyLog().ddl(10, CREATE).row(11, {"id": 1, "a": 1}).row(12, {"id": 1, "a": 2}, {"id": 1, "a": 1})
    log.row(13, {"id": 2, "a": 5}).row(13, None, {"id": 1, "a": 2}).mark(20).again(1, 2, 1)
    events = log.frame(spark)
    assert own(at(events, 12)) == [(1, 2)]
    newest = at(events)
    assert (own(newest), newest.ts, newest.limits, newest.key) == ([(2, 5)], 20, (), ("id",))
    versions = table_history(events, schema_name="s", table_name="t").orderBy("_commit_ts", "_op").collect()
    assert [(r["id"], r["a"], r["_op"], r["_valid_from"], r["_valid_to"], r["_ended_by"]) for r in versions] == [
        (1, 1, "insert", 11, 12, "update"), (1, 2, "update", 12, 13, "delete"), (1, 2, "delete", 13, 13, "delete"),
        (2, 5, "insert", 13, None, None),
    ]  # fmt: skip


def test_an_update_of_the_key_ends_the_old_keys_row(spark: SparkSession) -> None:
    """Whole or split, also in a chain inside one transaction, and with only the changed columns in the old image."""
    log = TinyLog().ddl(10, CREATE).row(11, {"id": 1, "a": 1}).row(11, {"id": 2, "a": 2})
    log.row(12, {"id": 3, "a": 2}, {"id": 2}).row(12, {"id": 2, "a": 1}, {"id": 1})
    log.row(13, None, {"id": 3, "a": 2}).row(13, {"id": 3, "a": 9}).mark(20)
    events = log.frame(spark)
    assert own(at(events, 12)) == [(2, 1), (3, 2)]
    assert own(at(events, 13)) == [(2, 1), (3, 9)]


def test_above_resolved_ts_is_refused(spark: SparkSession) -> None:
    """A timestamp counts when every partition's watermark has reached it; the error names those that have not."""
    log = TinyLog().ddl(10, CREATE).row(11, {"id": 1, "a": 1}).mark(20).mark(15, partition=1)
    events = log.frame(spark)
    table = at(events)
    assert (own(table), table.ts) == ([(1, 1)], 15)
    assert "does not begin at offset 0 in partition x 1" in table.limits[0]
    with pytest.raises(IncompleteHistoryError, match=r"is unknown at 16 .*resolved_ts 15 .*'x 1'"):
        at(events, 16)
    with pytest.raises(IncompleteHistoryError, match="no watermark in"):
        at(TinyLog().ddl(10, CREATE).row(11, {"id": 1, "a": 1}).frame(spark))
    log.row(30, {"id": 5, "a": 1}).events[-1]["partition"] = 2
    with pytest.raises(IncompleteHistoryError, match=r"no watermark in \['x 2'\]"):
        at(log.frame(spark), 12)


def test_rows_without_commit_ts_are_refused(spark: SparkSession) -> None:
    """Nothing shows when they happened, so no state can be determined, even if others have one."""
    log = TinyLog().ddl(10, CREATE).row(11, {"id": 1, "a": 1}).row(None, None, {"id": 1, "a": 1}).mark(20)
    with pytest.raises(ProtocolError, match="1 of 2 row changes carry no commit_ts"):
        at(log.frame(spark))


def test_a_row_known_in_part_is_refused_while_it_is_the_newest(spark: SparkSession) -> None:
    """A handle-key-only version is no row; a whole one after it, or a delete by its key, makes it good."""
    log = TinyLog().ddl(10, CREATE).row(11, {"id": 1}, incomplete="handle-key-only")
    log.row(12, {"id": 1, "a": 3}, {"id": 1, "a": 2}).row(13, None, {"id": 1}, incomplete="handle-key-only").mark(20)
    events = log.frame(spark)
    with pytest.raises(IncompleteHistoryError, match=r"known only in part \(1 handle-key-only\)"):
        at(events, 11)
    assert own(at(events, 12)) == [(1, 3)] and own(at(events, 13)) == []


def test_a_change_without_its_key_stops_the_answer(spark: SparkSession) -> None:
    """A change that names no row would leave another row wrong: the answer fails and shows which message it is."""
    log = TinyLog().ddl(10, CREATE).row(11, {"id": 1, "a": 1}).row(12, None, {"a": 1}).mark(20)
    with pytest.raises(Exception, match="has no value of its handle key: x 0 offset 2"):
        own(at(log.frame(spark)))


def test_an_unknown_table_is_refused_with_those_there_are(spark: SparkSession) -> None:
    """Names are exact; one that differs little is offered, and a table that is not there yet shows since when."""
    events = TinyLog().ddl(10, CREATE).row(11, {"id": 1, "a": 1}).mark(20).frame(spark)
    with pytest.raises(ProtocolError, match=r"no table s\.T; it contains s\.t\.[\s\S]*nearest is s\.t"):
        table_as_of(events, schema_name="s", table_name="T")
    with pytest.raises(ProtocolError, match=r"no table s\.tt;[\s\S]*nearest is s\.t"):
        table_as_of(events, schema_name="s", table_name="tt")
    with pytest.raises(ProtocolError, match="no table other"):
        table_as_of(events, schema_name="other", table_name="orders")
    with pytest.raises(ProtocolError, match="it was created only at 10"):
        at(events, 9)


def test_a_log_from_the_middle_says_what_it_lacks(spark: SparkSession) -> None:
    """Without CREATE TABLE the types are the events' own, DDL still applies, and untouched rows are a limit."""
    log = TinyLog(types={"d": "decimal", "n": "bigint unsigned", "e": "enum"})
    log.row(11, {"id": 1, "d": "1.50", "n": 2**64 - 1, "e": 2}).row(12, {"id": 2, "d": None, "n": 0, "e": None})
    log.ddl(20, "ALTER TABLE s.t ADD COLUMN x INT DEFAULT 4, RENAME COLUMN d TO money").mark(30)
    table = at(log.frame(spark))
    assert own(table) == [
        (1, decimal.Decimal("1.50"), decimal.Decimal(2**64 - 1), "2", 4), (2, None, decimal.Decimal(0), None, 4),
    ]  # fmt: skip
    assert dict(table.rows.dtypes)["money"] == "decimal(38,2)"
    (limit,) = table.limits
    assert "in the middle of s.t's life" in limit
    none = TinyLog().ddl(5, "ALTER TABLE s.t ADD COLUMN x INT").mark(30).frame(spark)
    with pytest.raises(IncompleteHistoryError, match="not known before this DDL"):
        at(none)


def test_a_rename_of_an_older_table_is_followed(spark: SparkSession) -> None:
    """A table that existed before the log under another name keeps its rows and shows its limit."""
    log = TinyLog().row(11, {"id": 1, "a": 1}, table="old").ddl(20, "RENAME TABLE s.old TO s.t")
    log.row(21, {"id": 2, "a": 2}).mark(30)
    table = at(log.frame(spark))
    assert own(table) == [(1, 1), (2, 2)] and len(table.limits) == 1


def test_the_callers_definitions_take_the_place_of_ddl(spark: SparkSession) -> None:
    """With catalog= nothing is read from the log's DDL."""
    columns = (ColumnDef("id", "bigint", False), ColumnDef("a", "varchar(5)"))
    mine = TableDef("s", "t", columns, (IndexDef(1, "PRIMARY", ("id",), True, True),))
    events = TinyLog().ddl(5, "ALTER TABLE s.t FROBNICATE").row(11, {"id": 1, "a": 7}).mark(20).frame(spark)
    table = table_as_of(events, schema_name="s", table_name="t", catalog=Catalog.from_definitions([mine]))
    assert own(table) == [(1, "7")] and dict(table.rows.dtypes)["id"] == "bigint"


def test_values_that_do_not_fit_are_reported_not_dropped(spark: SparkSession) -> None:
    """The row stays; the value is null, and the text and the reason are reported, also for a column the event is
    missing.
    """
    log = TinyLog(types={"d": "date"}).ddl(10, "CREATE TABLE s.t (id INT PRIMARY KEY, a TINYINT, d DATE, z INT)")
    log.row(11, {"id": 1, "a": 128, "d": "0000-00-00"}).mark(20)
    (row,) = at(log.frame(spark)).rows.collect()
    assert tuple(row)[:4] == (1, None, None, None)
    assert [tuple(u) for u in row["_unconvertible"]] == [
        ("a", "128", "does not fit tinyint as tinyint"),
        ("d", "0000-00-00", "does not fit date as date"),
        ("z", None, "the event does not carry the column"),
    ]


def test_rows_without_a_key_are_a_multiset(spark: SparkSession) -> None:
    """Equal rows of different transactions all count; columns added in between do not stop old rows from going."""
    log = TinyLog().ddl(10, "CREATE TABLE s.t (a INT, b INT)")
    for ts in (11, 12, 13):
        log.row(ts, {"a": 1, "b": 1}, key="")
    log.again(1, 2).row(14, None, {"a": 1, "b": 1}, key="").row(15, {"a": 1, "b": 2}, {"a": 1, "b": 1}, key="")
    log.ddl(20, "ALTER TABLE s.t ADD COLUMN c INT DEFAULT 6").row(21, None, {"a": 1, "b": 1, "c": 6}, key="").mark(30)
    events = log.frame(spark)
    assert own(at(events, 13)) == [(1, 1)] * 3 and own(at(events, 15)) == [(1, 1), (1, 2)]
    assert own(at(events)) == [(1, 2, 6)] and "count once" in at(events).limits[0]
    with pytest.raises(IncompleteHistoryError, match="no handle key"):
        table_history(events, schema_name="s", table_name="t")


def test_deletes_that_nothing_was_inserted_for_are_said(spark: SparkSession) -> None:
    """Without a key they are refused where the log contains the table from its creation, else they are a limit."""
    rows = TinyLog().row(11, {"a": 1}, key="").row(12, None, {"a": 2}, key="").mark(20)
    table = at(rows.frame(spark))
    assert own(table) == [(1,)] and "Of s.t the log deletes 1 row more often" in table.limits[-1]
    whole = TinyLog().ddl(10, "CREATE TABLE s.t (a INT)")
    whole.events += rows.events
    with pytest.raises(IncompleteHistoryError, match="deletes 1 row more often than it inserts"):
        at(whole.frame(spark))


def test_values_whose_type_nobody_tells_stay_the_text_that_the_log_carries(spark: SparkSession) -> None:
    """Debezium without its schema shows no types: a table that no DDL of the log defines is shown all the same."""
    log = TinyLog(types=dict.fromkeys(("id", "a")), protocol="debezium")
    log.row(11, {"id": 1, "a": 2}).row(12, {"id": 3, "a": None}).mark(20)
    assert own(at(log.frame(spark))) == [("1", "2"), ("3", None)]


def test_equal_rows_of_two_transactions_with_one_commit_ts_are_two(spark: SparkSession) -> None:
    """A start_ts, where messages carry it, distinguishes keyless rows; without it they are one delivered twice."""
    log = TinyLog().ddl(1, "CREATE TABLE t (v INT)")
    for _ in range(3):
        log.row(5, {"v": 1}, key="")
    log.mark(9)
    for starts, n in ((3, 4, 4), 2), ((None, None, None), 1):
        events = [dict(e) for e in log.events]
        for e, start_ts in zip((e for e in events if e["kind"] == "row"), starts, strict=True):
            e["start_ts"] = start_ts
        found = table_as_of(events_frame(spark, events), schema_name="s", table_name="t")
        assert found.rows.count() == n


def test_names_of_avro_are_those_of_its_rows(spark: SparkSession) -> None:
    """DDL have TiDB's names, rows those that Avro allows; of two tables with one name there, none can be determined."""
    log = TinyLog(protocol="avro").ddl(10, "CREATE TABLE s.`t.x` (`i-d` INT PRIMARY KEY, `1n` INT)", table="t.x")
    log.ddl(11, "ALTER TABLE s.`t.x` RENAME COLUMN `1n` TO `2n`", table="t.x")
    log.row(12, {"i_d": 1, "_2n": 5}, key="i_d", table="t_x").mark(20)
    table = table_as_of(log.frame(spark), schema_name="s", table_name="t_x")
    assert (own(table), table.key) == ([(1, 5)], ("i_d",))
    assert table.rows.columns[:2] == ["i_d", "_2n"]
    log.ddl(21, "CREATE TABLE s.`t+x` (id INT PRIMARY KEY)", table="t+x").mark(30)
    with pytest.raises(IncompleteHistoryError, match=r"avro has one name for s.t\+x, s.t.x"):
        table_as_of(log.frame(spark), schema_name="s", table_name="t_x")
