"""Table definitions from DDL against what TiDB itself reported, and what is not understood."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import events_frame, json_lines
from pyspark.sql import SparkSession

from ticdc_lab.errors import ContractError
from ticdc_lab.facts.catalog import Catalog, catalog_of, not_in_rows
from ticdc_lab.facts.definitions import ColumnDef, IndexDef, TableDef


def built(*queries: str) -> Catalog:
    """A catalog from DDL on ``s.t``, one TSO apart."""
    return Catalog.from_ddl([(n + 1, "s", "t", q) for n, q in enumerate(queries)])


def table(*queries: str) -> TableDef:
    """The table ``s.t`` after the DDL, which must all be understood."""
    catalog = built(*queries)
    assert catalog.unparsed == ()
    found = catalog.table("s", "t")
    assert found is not None
    return found


def indexes(t: TableDef) -> list[tuple[Any, ...]]:
    """Name, columns and uniqueness of every index."""
    return [(i.name, i.columns, i.unique) for i in t.indexes]


@pytest.mark.parametrize("truth", ["truth_small.jsonl.gz", "truth_bank.jsonl.gz"])
def test_definitions_are_those_of_tidb_at_every_version(truth: str) -> None:
    """After each DDL the catalog's columns, indexes and handle key are the ones TiDB's schema store had."""
    records = list(json_lines(truth))
    ddl = [(r["commit_ts"], r["schema"], r["table"], r["query"]) for r in records if r["kind"] == "ddl"]
    catalog = Catalog.from_ddl(ddl)
    assert catalog.unparsed == ()
    schemas = [r for r in records if r["kind"] == "schema"]
    assert schemas
    for r in schemas:
        t = catalog.table(r["schema"], r["table"], commit_ts=r["version"])
        assert t is not None
        visible = [c for c in r["columns"] if "hidden" not in c["flags"]]
        assert [(c.name, c.nullable) for c in t.columns] == [(c["name"], "nullable" in c["flags"]) for c in visible]
        assert list(t.handle_columns) == r["handle_columns"]
        assert t.pk_is_handle == r["pk_is_handle"]
        stored = [i for i in t.indexes if not (i.primary and t.pk_is_handle)]
        assert [(i.name, list(i.columns), i.unique, i.primary) for i in stored] == [
            (i["name"], i["columns"], i["unique"], i["primary"]) for i in r["indexes"]
        ]


def test_a_table_is_what_it_was_at_each_commit_ts() -> None:
    """A lookup gives the version in force at its commit_ts, nothing before creation and after a drop."""
    catalog = Catalog.from_ddl(
        [
            (10, "s", "t", "CREATE TABLE t (a INT PRIMARY KEY)"),
            (20, "s", "t", "ALTER TABLE t ADD COLUMN b INT"),
            (30, "s", "t", "DROP TABLE s.t"),
        ]
    )
    found = [catalog.table("s", "t", commit_ts=ts) for ts in (9, 10, 19, 20, 30)]
    assert [f and len(f.columns) for f in found] == [None, 1, 1, 2, None]


@pytest.mark.parametrize(
    ("definition", "handle", "is_handle"),
    [
        ("a INT PRIMARY KEY, b INT", ("a",), True),
        ("a INT, b BIGINT UNSIGNED, PRIMARY KEY (b) /*T![clustered_index] NONCLUSTERED */", ("b",), False),
        ("a BIGINT PRIMARY KEY /*T![clustered_index] NONCLUSTERED */", ("a",), False),
        ("a BIGINT /*T![auto_rand] AUTO_RANDOM(5) */ PRIMARY KEY", ("a",), True),
        ("a VARCHAR(3) PRIMARY KEY", ("a",), False),
        ("b INT, a INT, PRIMARY KEY (a, b)", ("b", "a"), False),
        ("a INT NOT NULL, b INT NOT NULL, c INT NOT NULL, UNIQUE (a, b), UNIQUE (c)", ("c",), False),
        ("a INT NOT NULL, b INT NOT NULL, UNIQUE x (b), UNIQUE y (a)", ("b",), False),
        ("a INT NOT NULL UNIQUE, b INT NOT NULL, UNIQUE y (b)", ("b",), False),
        ("a INT UNIQUE, b INT", (), False),
        ("a INT NOT NULL, UNIQUE e ((a + 1))", (), False),
        ("a INT NOT NULL, v INT AS (a) VIRTUAL NOT NULL, UNIQUE (v)", (), False),
        ("a INT NOT NULL, v INT GENERATED ALWAYS AS (a) STORED NOT NULL, UNIQUE (v)", ("v",), False),
    ],
)
def test_handle_key_follows_tidb(definition: str, handle: tuple[str, ...], is_handle: bool) -> None:
    """Primary key, else the not-null unique index with fewest columns; ties go to the first in TiDB's order of ids."""
    t = table(f"CREATE TABLE t ({definition})")
    assert (t.handle_columns, t.pk_is_handle) == (handle, is_handle)


@pytest.mark.parametrize(
    ("alter", "columns", "after"),
    [
        ("ADD COLUMN c INT FIRST", "cab", None),
        ("ADD c INT AFTER a", "acb", None),
        ("ADD COLUMN (c INT, d INT)", "abcd", None),
        ("DROP COLUMN b", "a", [("PRIMARY", ("a",), True)]),
        ("CHANGE COLUMN b x BIGINT NOT NULL FIRST", "xa", [("PRIMARY", ("a",), True), ("k", ("x",), False)]),
        ("MODIFY b VARCHAR(9) DEFAULT 'not null, primary key' AFTER a", "ab", None),
        ("RENAME COLUMN b TO z", "az", [("PRIMARY", ("a",), True), ("k", ("z",), False)]),
        ("ADD UNIQUE KEY (b)", "ab", [("PRIMARY", ("a",), True), ("k", ("b",), False), ("b", ("b",), True)]),
        ("ADD INDEX i (b, a DESC)", "ab", [("PRIMARY", ("a",), True), ("k", ("b",), False), ("i", ("b", "a"), False)]),
        ("ADD CONSTRAINT c UNIQUE (b)", "ab", [("PRIMARY", ("a",), True), ("k", ("b",), False), ("c", ("b",), True)]),
        ("RENAME INDEX K TO q", "ab", [("PRIMARY", ("a",), True), ("q", ("b",), False)]),
        ("DROP KEY k, DROP PRIMARY KEY, ADD UNIQUE u(b)", "ab", [("u", ("b",), True)]),
        ("ADD PARTITION (PARTITION p3 VALUES LESS THAN (2000), PARTITION p4 VALUES LESS THAN (3000))", "ab", None),
        ("EXCHANGE PARTITION p WITH TABLE q", "ab", None),
        ("SET TIFLASH REPLICA 1", "ab", None),
        ("ADD CONSTRAINT f FOREIGN KEY (b) REFERENCES z (b)", "ab", None),
        ("COMMENT = 'x', AUTO_INCREMENT = 7", "ab", None),
    ],
)
def test_alter_table(alter: str, columns: str, after: list[tuple[Any, ...]] | None) -> None:
    """Each clause of ALTER TABLE changes the columns and indexes as TiDB does, or nothing."""
    t = table("CREATE TABLE t (a INT PRIMARY KEY, b INT, KEY k (b))", f"ALTER TABLE s.t {alter}")
    assert "".join(c.name for c in t.columns) == columns
    assert indexes(t) == (after or [("PRIMARY", ("a",), True), ("k", ("b",), False)])


def test_statements_on_whole_tables() -> None:
    """RENAME, LIKE, TRUNCATE, CREATE and DROP INDEX, FLASHBACK and DROP DATABASE reach the tables they name."""
    catalog = built(
        "CREATE TABLE `s`.`t` (a INT NOT NULL, b INT) PARTITION BY HASH (a) PARTITIONS 3",
        "CREATE UNIQUE INDEX u ON t (a)",
        "CREATE TABLE copy LIKE t",
        "RENAME TABLE s.t TO z.t2, s.copy TO s.t",
        "DROP INDEX u ON t",
        "TRUNCATE TABLE t",
        "ALTER TABLE t RENAME TO x",
        "DROP TABLE x",
        "FLASHBACK TABLE x TO y",
        "DROP DATABASE z",
        "CREATE TABLE o (a INT) ",
        "CREATE VIEW v AS SELECT 1",
    )
    assert catalog.unparsed == ()
    assert [(d.table_name, indexes(d)) for d in catalog.tables()] == [("o", []), ("y", [])]
    renamed = catalog.table("z", "t2", commit_ts=5)
    assert renamed is not None
    assert indexes(renamed) == [("u", ("a",), True)]


@pytest.mark.parametrize(
    "query",
    [
        "ALTER TABLE t FROBNICATE x",
        "CREATE TABLE t AS SELECT 1",
        "ALTER TABLE t ADD KEY (nope)",
        "'",
        "ALTER TABLE t ADD",
        "((",
    ],
)
def test_what_is_not_understood_makes_the_table_unknown(query: str) -> None:
    """A DDL that cannot be parsed never raises: it is kept with its reason and hides the table from then on."""
    catalog = built("CREATE TABLE t (a INT PRIMARY KEY)", query)
    assert [(u.commit_ts, u.query, bool(u.reason)) for u in catalog.unparsed] == [(2, query, True)]
    assert catalog.table("s", "t") is None
    assert catalog.table("s", "t", commit_ts=1) is not None


def test_index_lookup_ignores_case_and_hides_the_handle() -> None:
    """TiCDC finds an index in any case; a table stored by its integer primary key has no index PRIMARY."""
    assert table("CREATE TABLE t (a INT PRIMARY KEY, b INT, UNIQUE Uk (b))").index("uK") is not None
    assert table("CREATE TABLE t (a INT PRIMARY KEY)").index("PRIMARY") is None
    assert table("CREATE TABLE t (a VARCHAR(2) PRIMARY KEY)").index("primary") is not None


@pytest.mark.parametrize(
    ("definition", "one"),
    [
        ("a INT PRIMARY KEY", True),
        ("a INT, b INT, PRIMARY KEY (a, b)", True),
        ("a INT PRIMARY KEY, b INT UNIQUE", False),
        ("a INT NOT NULL UNIQUE", True),
        ("a INT", False),
    ],
)
def test_a_table_may_have_one_unique_index_only(definition: str, one: bool) -> None:
    """Footnote 5 of the MQ design: its values identify a row for good then."""
    assert (len(table(f"CREATE TABLE t ({definition})").unique_indexes) == 1) == one


def test_catalog_of_a_log_applies_each_ddl_once(spark: SparkSession) -> None:
    """DDL that reached several partitions, or came twice, is one version."""
    create = {"kind": "ddl", "commit_ts": 5, "schema_name": "s", "table_name": "t", "query": "CREATE TABLE t (a INT)"}
    add = create | {"commit_ts": 7, "query": "ALTER TABLE t ADD COLUMN b INT"}
    events = events_frame(spark, [add, create, create | {"partition": 1}, add, {"kind": "row"}])
    catalog = catalog_of(events)
    assert [v.commit_ts for v in catalog.versions["s", "t"]] == [5, 7]
    assert catalog.unparsed == ()
    with pytest.raises(ContractError, match="more than 1 distinct"):
        catalog_of(events, max_ddl=1)


def test_own_definitions() -> None:
    """The caller's definitions hold from ever, or from the commit_ts given with them."""
    old = TableDef("s", "t", (ColumnDef("a", "int"),))
    new = TableDef("s", "t", (ColumnDef("a", "int", False),), (IndexDef(1, "u", ("a",), True),))
    catalog = Catalog.from_definitions([(9, new), old])
    assert catalog.table("s", "t", commit_ts=8) is old
    assert catalog.table("s", "t") is new


def test_ddl_that_no_row_change_follows_are_named() -> None:
    """Partitions that go, tables that come back, statements that are not understood; of many the first."""
    made = "CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9))"
    said = not_in_rows(built(made, "ALTER TABLE t TRUNCATE PARTITION p"))
    assert said == (
        "Row changes do not show what 1 DDL did: s.t: TRUNCATE PARTITION removed rows that the log does not name "
        "(commit_ts 2)."
    )
    assert "s.t: the rows of a recovered table" in not_in_rows(built(made, "DROP TABLE t", "RECOVER TABLE t"))
    many = not_in_rows(built(made, *["ALTER TABLE t TRUNCATE PARTITION p"] * 5))
    assert "what 5 DDL did" in many and many.endswith("and 2 more.")
    assert "not understood" in not_in_rows(built("FROBNICATE TABLE t"))
    assert not_in_rows(built(made, "ALTER TABLE t ADD COLUMN v INT", "TRUNCATE TABLE t", "DROP TABLE t")) == ""
