"""What DDL do to tables that hold rows and nothing else. No Spark."""

from __future__ import annotations

from ticdc_lab.consumer.replay_plan import DdlStep, changes_at, moves, tables_at
from ticdc_lab.facts.catalog import DDL, Catalog

CREATE: DDL = (1, "s", "t", "CREATE TABLE s.t (id INT PRIMARY KEY, a VARCHAR(9), b INT)")


def changes(*ddl: DDL) -> list[DdlStep]:
    """What the last one does."""
    catalog = Catalog.from_ddl([CREATE, *ddl])
    return changes_at(catalog, [CREATE, *ddl], ddl[-1][0] or 0)


def kinds(*ddl: DDL) -> list[tuple[str, tuple[str, str]]]:
    """Kinds and names of that."""
    return [(c.kind, c.name) for c in changes(*ddl)]


def test_tables_come_and_go_by_the_names_they_have() -> None:
    """Created, truncated, renamed across databases, dropped, dropped with their database."""
    rename: DDL = (2, "r", "u", "RENAME TABLE s.t TO r.u")
    assert kinds((2, "s", "n", "CREATE TABLE n LIKE t")) == [("create", ("s", "n"))]
    for truncated in ("TRUNCATE TABLE s.t", "ALTER TABLE s.t TRUNCATE PARTITION ALL"):
        assert kinds((2, "s", "t", truncated)) == [("truncate", ("s", "t"))]
    assert kinds((2, "s", "t", "ALTER TABLE s.t TRUNCATE PARTITION `all`")) == [("doubt", ("s", "t"))]
    assert kinds(rename) == [("rename", ("r", "u"))] and changes(rename)[0].origin == ("s", "t")
    assert kinds(rename, (3, "r", "u", "DROP TABLE r.u")) == [("drop", ("r", "u"))]
    assert kinds((2, "s", "", "DROP DATABASE s")) == [("drop", ("s", "t")), ("drop database", ("s", ""))]
    assert kinds((2, "", "", "CREATE DATABASE IF NOT EXISTS `x`")) == [("create database", ("x", ""))]


def test_columns_are_followed_by_what_they_are_not_by_their_names() -> None:
    """A renamed column keeps its values, one dropped and added again does not."""
    (change,) = changes((2, "s", "t", "ALTER TABLE s.t CHANGE a c VARCHAR(9), DROP b, ADD b INT DEFAULT 7 FIRST"))
    assert change.kind == "reshape" and change.before and change.after
    found = [(m.column.name, m.source.name if m.source else None, m.how, m.text)
             for m in moves(change.before, change.after)]  # fmt: skip
    assert found == [("b", None, "added", "7"), ("id", "id", "same", None), ("c", "a", "same", None)]


def test_what_the_log_does_not_tell_is_said() -> None:
    """A modified type whose values only TiDB knows, a computed default, a partition whose rows went."""
    (change,) = changes((2, "s", "t", "ALTER TABLE s.t MODIFY a DATE, ADD d DATETIME DEFAULT CURRENT_TIMESTAMP"))
    assert change.before and change.after
    how = {m.column.name: (m.how, m.reason) for m in moves(change.before, change.after)}
    assert how["a"][0] == "unknown" and "what TiDB made of it" in how["a"][1]
    assert how["d"][0] == "added" and "computed" in how["d"][1]
    (dropped,) = changes((2, "s", "t", "ALTER TABLE s.t DROP PARTITION p0"))
    assert dropped.kind == "doubt" and "DROP PARTITION removed rows" in dropped.reason
    (first,) = changes((2, "s", "t", "ALTER TABLE s.t FIRST PARTITION LESS THAN (5)"))
    assert first.kind == "doubt" and "FIRST PARTITION removed rows" in first.reason


def test_no_ddl_vanishes_without_a_word() -> None:
    """An index changes no row, an unknown statement stops what is known of its table; both are reported."""
    (index,) = changes((2, "s", "t", "ALTER TABLE s.t ADD INDEX i (a)"))
    assert index.kind == "nothing" and "ADD INDEX" in index.reason
    for harmless in ("CREATE HYBRID INDEX h ON t (a, b) PARAMETER 'x'", "ALTER TABLE t ENGINE_ATTRIBUTE = '{}'"):
        (hybrid,) = changes((2, "s", "t", harmless))
        assert hybrid.kind == "nothing"
    strange: DDL = (2, "s", "t", "FROBNICATE TABLE s.t")
    (doubt,) = changes(strange)
    assert doubt.kind == "doubt" and "not understood" in doubt.reason
    assert tables_at(Catalog.from_ddl([CREATE, strange]), 2) == {}


def test_recovered_tables_are_created_without_their_rows() -> None:
    """RECOVER TABLE, FLASHBACK TABLE under another name, FLASHBACK DATABASE: what they had is not in the log again."""
    drop: DDL = (2, "s", "t", "DROP TABLE s.t")
    for query, name in (("RECOVER TABLE t", "t"), ("FLASHBACK TABLE t TO u", "u"), ("RECOVER TABLE BY JOB 9", "t")):
        create, doubt = changes(drop, (3, "s", "t", query))
        assert (create.kind, create.name, doubt.kind) == ("create", ("s", name), "doubt")
        assert "not in the log again" in doubt.reason
    dropped: DDL = (2, "s", "", "DROP DATABASE s")
    for query, schema in (("FLASHBACK DATABASE s", "s"), ("FLASHBACK SCHEMA s TO r", "r")):
        assert ("create", (schema, "t")) in kinds(dropped, (3, schema, "", query))


def test_flashback_of_the_cluster_leaves_nothing_known() -> None:
    """It changes rows that no event names."""
    (doubt,) = changes((2, "", "", "FLASHBACK CLUSTER TO TIMESTAMP '2026-01-01 00:00:00'"))
    assert doubt.kind == "doubt" and "FLASHBACK CLUSTER" in doubt.reason
