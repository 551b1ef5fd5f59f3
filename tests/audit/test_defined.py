"""Rows beside the definitions that the log's own DDL give: what fits them, what does not, and what cannot be judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from audit_tables import audit_table
from tiny_logs import at, ddl, found, mark, row, table_of

from ticdc_lab.audit import checks_possible
from ticdc_lab.audit.defined import ABSENT, Definitions, defined_rows, misfits, rule_of, unknown_columns
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.definitions import ColumnDef, TableDef

CREATED = "CREATE TABLE `a` (`id` INT PRIMARY KEY, `v` {kind})"
TABLE, COLUMNS, NULLS, FIT, NAMES = (
    "rows_have_a_table", "columns_are_defined", "nulls_are_allowed", "values_fit_their_columns", "ddl_names_are_free",
)  # fmt: skip


def change(offset: int, ts: int, *, op: str = "insert", table: str = "a", **values: str | None) -> dict[str, Any]:
    """A row change whose image has these columns; ``id`` is its key."""
    image = [
        {"name": n, "mysql_type": "text", "value": v, "is_key": n == "id", "flags": None} for n, v in values.items()
    ]
    images = {"columns": None if op == "delete" else image, "before": None if op == "insert" else image}
    names = {"schema_name": "s", "table_name": table}
    return {"kind": "row", "op": op, "commit_ts": ts} | names | images | at(0, offset)


def broken(*events: dict[str, Any], protocol: str = "canal-json") -> list[tuple[str, str, int]]:
    """Guarantee, severity and offset of what is found."""
    log = [*events, mark(0, max(e["offset"] for e in events) + 1, 10**6)]
    checks = (TABLE, COLUMNS, NULLS, FIT, NAMES)
    return [(name, severity, offset) for (name, severity, *_, offset), _ in found(log, *checks, protocol=protocol)]


@pytest.mark.parametrize(
    ("kind", "fits", "breaks"),
    [
        ("TINYINT", ["-128", "127", "0"], ["128", "-129", "1000"]),
        ("TINYINT UNSIGNED", ["255"], ["256", "-1"]),
        ("SMALLINT", ["-32768", "32767"], ["32768"]),
        ("MEDIUMINT UNSIGNED", ["16777215"], ["16777216"]),
        ("INT(5)", ["2147483647", "-2147483648", "99999999"], ["2147483648", "-2147483649"]),
        ("INT ZEROFILL", ["4294967295", "0000000001"], ["-1", "4294967296"]),
        ("BIGINT", ["9223372036854775807", "-9223372036854775808"], ["9223372036854775808"]),
        ("BIGINT UNSIGNED", ["18446744073709551615"], ["18446744073709551616", "-5"]),
        ("BOOL", ["1", "-128"], ["128"]),
        ("BIT(10)", ["1023"], ["1024"]),
        ("DECIMAL", ["9999999999", "-9999999999"], ["10000000000", "1.5"]),
        ("DECIMAL(5,2)", ["999.99", "-999.99", "0.10", "1"], ["1000.00", "0.001"]),
        ("DECIMAL(5,2) UNSIGNED", ["999.99", "0.00"], ["-0.01"]),
        ("DECIMAL(3,3)", ["0.999", "-0.001"], ["1.000"]),
        ("CHAR", ["x", "数", ""], ["xy"]),
        ("VARCHAR(3)", ["数据库", "abc", "😀😀😀"], ["数据库x", "abcd"]),
        ("VARCHAR(3) CHARACTER SET binary", ["0xaabbcc"], ["0xaabbccdd"]),
        ("BINARY(2)", ["0xaabb", "no hex of ours"], ["0xaabbcc"]),
        ("VARBINARY(1)", ["0x", "0xff"], ["0xffff"]),
        ("TINYTEXT", ["x" * 255, "数" * 85], ["x" * 256]),
        ("TINYBLOB", ["0x" + "00" * 255], ["0x" + "00" * 256]),
        ("TEXT(300)", ["x" * 400], []),
        ("ENUM('a','b,c','x''y','\\n')", ["a", "b,c", "x'y", "\n", "\\n", "1", "4", "0", "", "A"], ["d", "5", "a,b"]),
        ("SET('a','b','c d')", ["a", "a,c d", "", "7", "0"], ["a,d", "8", "x"]),
        ("YEAR", ["2026"], []),
        ("FLOAT", ["1e38", "61.2"], []),
        ("JSON", ["{}"], []),
    ],
)  # fmt: skip
def test_values_fit_their_column(kind: str, fits: list[str], breaks: list[str]) -> None:
    """Ranges, digits, characters (not bytes), bytes of binary, labels or their numbers; of others nothing is judged."""
    values = [*fits, *breaks]
    log = [ddl(0, 0, 1, CREATED.format(kind=kind))]
    log += [change(i, 10 + i, id=str(i), v=v) for i, v in enumerate(values, start=1)]
    assert broken(*log) == [(FIT, "error", i) for i in range(len(fits) + 1, len(values) + 1)]


def test_null_is_allowed_where_the_definition_allows_it() -> None:
    """NOT NULL of the column, or of the primary key; in the image after a change, and in the one before it."""
    created = ddl(0, 0, 1, "CREATE TABLE a (id INT, k INT, v INT NOT NULL, w INT, PRIMARY KEY (id, k))")
    fine = change(1, 5, id="1", k="1", v="1", w=None)
    old = change(4, 8, id="1", k="1", v="1") | {
        "op": "update",
        "before": change(0, 0, id="1", k="1", v=None)["columns"],
    }
    assert broken(created, fine, change(2, 6, id="2", k=None, v="1"), change(3, 7, op="delete", id="1", k="1", v=None),
                  old) == [(NULLS, "error", 2), (NULLS, "error", 3), (NULLS, "error", 4)]  # fmt: skip


def test_columns_are_those_of_the_definition_then() -> None:
    """In any case; fewer are no fault: virtual columns, a selector, a handle key alone. A DDL changes what is right."""
    log = [
        ddl(0, 0, 1, CREATED.format(kind="INT")),
        change(1, 5, ID="1", v="1"),
        change(2, 6, id="1"),
        change(3, 7, id="1", w="1"),
        ddl(0, 4, 10, "ALTER TABLE a ADD COLUMN w INT, DROP COLUMN v"),
        change(5, 15, id="1", w="1"),
        change(6, 16, id="1", v="1"),
    ]
    assert broken(*log) == [(COLUMNS, "error", 3), (COLUMNS, "error", 6)]


def test_rows_have_a_table() -> None:
    """None before its creation, behind a drop, a rename, a drop of its database, until it is created or is back."""
    log = [
        change(0, 1, id="1"),
        ddl(0, 1, 2, CREATED.format(kind="INT")),
        change(2, 3, id="1"),
        ddl(0, 3, 4, "DROP TABLE a"),
        change(4, 5, id="2"),
        ddl(0, 5, 6, "RECOVER TABLE a"),
        change(6, 7, id="2"),
        ddl(0, 7, 8, "RENAME TABLE a TO b", table="b"),
        change(8, 9, id="3"),
        change(9, 10, id="3", table="b"),
        ddl(0, 10, 11, "DROP DATABASE s", table=""),
        change(11, 12, id="4", table="b"),
        ddl(0, 12, 13, "FLASHBACK DATABASE s", table=""),
        change(13, 14, id="4", table="b"),
        change(14, 15, id="4"),
    ]
    assert broken(*log) == [(TABLE, "error", o) for o in (0, 4, 8, 11, 14)]


def test_nothing_is_judged_of_what_no_ddl_tells() -> None:
    """Before a first DDL that creates nothing, behind one that is not understood, at the commit_ts of a DDL itself."""
    odd = {"id": "1", "x": "y"}
    assert broken(change(0, 1, **odd), ddl(0, 1, 2, "ALTER TABLE a ADD COLUMN w INT"), change(2, 3, **odd)) == []
    assert broken(ddl(0, 0, 1, CREATED.format(kind="INT")), ddl(0, 1, 2, "ALTER TABLE a GLIMMER"),
                  change(2, 3, **odd)) == []  # fmt: skip
    assert broken(ddl(0, 0, 1, CREATED.format(kind="INT")), change(1, 1, **odd)) == []
    assert broken(change(0, 1, **odd), ddl(0, 1, 2, "DROP TABLE a"), ddl(0, 2, 4, CREATED.format(kind="INT"))) == []


def test_a_message_that_ticdc_itself_found_damaged_is_not_judged() -> None:
    """Its values are known to be wrong."""
    log = [ddl(0, 0, 1, CREATED.format(kind="INT")), change(1, 5, id="1", v="x", w="2") | {"incomplete": "corrupted"}]
    assert broken(*log) == []


def test_a_drop_ends_a_table_that_no_ddl_defined() -> None:
    """Its rows were not judged before; behind it there are none, but where it is created, or something is back."""
    drop = ddl(0, 1, 10, "DROP TABLE a")
    assert broken(change(0, 1, id="1", x="1"), drop, change(2, 20, id="2")) == [(TABLE, "error", 2)]
    for back in ("CREATE TABLE a (id INT)", "RECOVER TABLE a", "ALTER TABLE a ADD COLUMN v INT"):
        assert (TABLE, "error", 3) not in broken(drop, ddl(0, 2, 20, back), change(3, 30, id="2"))
    assert broken(drop, change(2, 20, id="2"), protocol="debezium") == []


def test_avro_names_tables_and_columns_as_it_must() -> None:
    """`_` represents what Avro does not allow, also of two tables; a RENAME may not show; hidden columns are there."""
    created = ddl(0, 0, 1, "CREATE TABLE `1-é` (`id` INT PRIMARY KEY, `a.b` INT NOT NULL)", table="1-é")
    row = {"id": "1", "a_b": "1", "_V__ue_0": "x"}
    log = [created, change(1, 5, table="_1__", **row), change(2, 6, table="_1__", id="1", a_b=None, c="1")]
    assert broken(*log, protocol="avro") == [(COLUMNS, "error", 2), (NULLS, "error", 2)]
    assert broken(created, change(1, 5, table="1-é", **row)) == [(COLUMNS, "error", 1)]  # a.b is the name elsewhere
    alike = ddl(0, 3, 7, "CREATE TABLE `1+é` (`id` INT PRIMARY KEY)", table="1+é")
    assert broken(*log, alike, protocol="avro") == []
    renamed = ddl(0, 3, 7, "RENAME TABLE `1-é` TO t", table="t")
    old_name = change(4, 8, table="_1__", **row)
    assert broken(created, renamed, old_name, protocol="avro") == []
    left = Definitions.read(LogFacts.of(table_of([created, renamed])), protocol="avro").left_unjudged
    assert [*left] == [TABLE]


def test_debezium_avro_names_columns_as_avro_and_tables_as_tidb() -> None:
    """A column that no DDL defines is found beside one whose name Avro does not allow."""
    created = ddl(0, 0, 1, "CREATE TABLE `1-é` (`id` INT PRIMARY KEY, `a.b` INT NOT NULL, `0n` INT)", table="1-é")
    row = {"id": "1", "a_b": "1", "0n": "2"}
    log = [created, change(1, 5, table="1-é", **row), change(2, 6, table="1-é", id="1", a_b=None, c="1")]
    assert broken(*log, protocol="debezium-avro") == [(COLUMNS, "error", 2), (NULLS, "error", 2)]


def test_two_tables_may_have_one_name_in_avro_one_behind_the_other() -> None:
    """The second is there once the first is dropped; while both are there, nothing is judged."""
    first = ddl(0, 0, 1, "CREATE TABLE `a-b` (`id` INT PRIMARY KEY)", table="a-b")
    second = ddl(0, 4, 20, "CREATE TABLE `a+b` (`id` INT PRIMARY KEY, v INT)", table="a+b")
    rows = [change(i, 2 + 23 * (i == 5), table="a_b", id=str(i), v="1") for i in (1, 5)]
    assert broken(first, ddl(0, 2, 10, "DROP TABLE `a-b`", table="a-b"), second, *rows, protocol="avro") == [
        (COLUMNS, "error", 1)
    ]
    assert broken(first, second, *rows, protocol="avro") == []


_OF_TIDB = "ALGORITHM = UNDEFINED DEFINER = 'root'@'%' SQL SECURITY DEFINER"


@pytest.mark.parametrize(
    ("queries", "at_fault"),
    [
        (["CREATE TABLE a (id INT)", "CREATE TABLE a (id INT)"], [1]),
        (["CREATE TABLE a (id INT)", "DROP TABLE a", "CREATE TABLE a (id INT)"], []),
        (["CREATE TABLE a (id INT)", "CREATE TABLE b (id INT)", "RENAME TABLE a TO b"], [2]),
        (["CREATE TABLE a (id INT)", "CREATE TABLE b (id INT)", "RENAME TABLE a TO c, b TO a, c TO b"], []),
        (["CREATE TABLE a (id INT)", "RENAME TABLE a TO A"], []),
        (["CREATE TABLE a (id INT)", "ALTER TABLE a RENAME TO b", "CREATE TABLE b (id INT)"], [2]),
        (["CREATE TABLE a (id INT)", "DROP TABLE a", "ALTER TABLE a ADD COLUMN v INT"], [2]),
        (["CREATE TABLE a (id INT)", "DROP TABLE a", "DROP TABLE a"], [2]),
        (["CREATE TABLE a (id INT)", "TRUNCATE TABLE a", "DROP TABLE a", "RECOVER TABLE a", "DROP TABLE a"], []),
        (["CREATE TABLE a (id INT)", "RECOVER TABLE a"], [1]),
        (["RENAME TABLE x TO a", "CREATE TABLE a (id INT)"], []),
        (["CREATE TABLE a (id INT)", "DROP TABLE a", "FLASHBACK TABLE a TO b", "CREATE TABLE b (id INT)"], [3]),
        (["CREATE TABLE a (id INT)", f"CREATE {_OF_TIDB} VIEW a (x) AS SELECT 1"], [1]),
        (["CREATE VIEW a AS SELECT 1", "CREATE OR REPLACE VIEW a AS SELECT 2", "CREATE TABLE s.A (id INT)"], [2]),
        (["CREATE SEQUENCE a", "DROP SEQUENCE a", "CREATE TABLE a (id INT)", "RENAME TABLE a TO b"], []),
        (["CREATE VIEW b AS SELECT 1", "DROP DATABASE s", "CREATE TABLE b (id INT)"], []),
    ],
)
def test_ddl_names_are_free(queries: list[str], at_fault: list[int]) -> None:
    """What TiDB refuses shows a DDL that is lost, or came in another order."""
    log = [ddl(0, i, 10 * i + 1, q) for i, q in enumerate(queries)]
    assert broken(*log) == [(NAMES, "error", i) for i in at_fault]


def test_a_ddl_that_is_sent_again_takes_no_name() -> None:
    """A restart sends the last DDL again, in every partition, with the commit_ts that it has."""
    created = ddl(0, 0, 1, CREATED.format(kind="INT"))
    again = [created, ddl(0, 1, 1, CREATED.format(kind="INT")), ddl(0, 2, 1, CREATED.format(kind="BIGINT"))]
    assert broken(*again, ddl(0, 3, 2, "RENAME TABLE a TO b"), ddl(0, 4, 2, "RENAME TABLE a TO b")) == []


def test_debezium_writes_no_recovery_and_rounds_decimals() -> None:
    """Its encoder leaves RECOVER TABLE out, so a dropped table may be back, and writes a DECIMAL as a DOUBLE."""
    log = [ddl(0, 0, 1, CREATED.format(kind="DECIMAL(3,2)")), change(1, 5, id="1", v="1234.5"),
           ddl(0, 2, 10, "DROP TABLE a"), change(3, 15, id="2"), ddl(0, 4, 20, "DROP TABLE a")]  # fmt: skip
    assert broken(*log) == [(NAMES, "error", 4), (TABLE, "error", 3), (FIT, "error", 1)]
    assert broken(*log, protocol="debezium") == []
    left = Definitions.read(LogFacts.of(table_of(log)), protocol="debezium").left_unjudged
    assert [*left] == [TABLE, NAMES, FIT] and "DECIMAL as DOUBLE" in left[FIT] and "was dropped" in left[TABLE]
    born = LogFacts.of(table_of([ddl(0, 0, 1, CREATED.format(kind="INT"))]))
    assert not Definitions.read(born, protocol="debezium").left_unjudged
    assert not Definitions.read(LogFacts.of(table_of(log)), protocol="canal-json").left_unjudged


def test_of_a_long_value_the_beginning_is_shown_as_one() -> None:
    """A value of 60 characters is shown whole."""
    log = [ddl(0, 0, 1, CREATED.format(kind="VARCHAR(9)")), change(1, 5, id="1", v="x" * 60)]
    log += [change(2, 6, id="2", v="y" * 61), mark(0, 3, 9)]
    told = audit_table(table_of(log), protocol="canal-json", checks=[FIT]).column("message").to_pylist()
    assert [m.rpartition(": ")[2] for m in told] == ["x" * 60, "y" * 60 + "…"]


def test_what_was_not_recorded_excuses_a_row() -> None:
    """A partition that misses offsets between the DDL and the row may have had another DDL there: a warning."""
    log = [ddl(0, 0, 1, CREATED.format(kind="INT")), mark(0, 1, 2), change(9, 5, id="1", v=None, w="1")]
    assert broken(*log) == [(COLUMNS, "warning", 9)]


def test_topics_with_different_ddl_of_a_table_are_judged_apart() -> None:
    """Two changefeeds in one recording: neither's DDL show anything of the other's rows."""
    one = [ddl(0, 0, 1, CREATED.format(kind="INT")), change(1, 5, id="1", v="1")]
    other = [ddl(0, 0, 3, "CREATE TABLE a (id INT PRIMARY KEY, w INT)"), change(1, 6, id="1", w="1")]
    assert broken(*one, *[e | {"topic": "u"} for e in other]) == []
    assert broken(*one, ddl(0, 2, 10, "DROP TABLE a"), *[e | {"topic": "u"} for e in other]) == []


def test_the_evidence_is_the_ddl_and_the_row() -> None:
    """A finding names the definition's DDL, and how many other columns break the same."""
    log = [ddl(0, 0, 1, CREATED.format(kind="INT")), change(1, 5, id="1", x="1", y="2"), mark(0, 2, 9)]
    (one,) = audit_table(table_of(log), protocol="canal-json", checks=[COLUMNS]).to_pylist()
    assert [(e["offset"], e["commit_ts"]) for e in one["evidence"]] == [(0, 1), (1, 5)]
    assert one["key"] == "id=1" and one["table"] == "s.a"
    assert one["message"] == "the table has no column x by the DDL of commit_ts 1; 1 more of its columns break this"


def test_an_unsafe_length_is_only_asked_of_long_values() -> None:
    """Most values pass by their bytes alone: a rule names the most that always fit."""
    assert rule_of("int", nullable=True).safe == 9 and rule_of("varchar(64)", nullable=True).safe == 64
    assert rule_of("json", nullable=True).safe == rule_of("datetime(3)", nullable=True).safe > 1 << 60


def test_thousands_of_digits_are_a_value_that_does_not_fit():
    """Python converts no text of so many; zeros before a number change nothing."""
    texts = ["9" * 5000, "-" + "9" * 5000, "0" * 5000 + "7", "-" + "0" * 5000]
    assert rule_of("int", nullable=True).misfit(pa.array(texts)).to_pylist() == [True, True, False, False]


def test_images_are_not_read_where_no_ddl_defines_a_table() -> None:
    """Neither are rows whose table a DDL only alters."""
    known = Definitions.read(LogFacts.of(table_of([ddl(0, 0, 1), row(0, 1, 2)])), protocol="canal-json")
    assert not known.judge
    told = table_of([ddl(0, 0, 1, CREATED.format(kind="INT")), row(0, 1, 2)])
    assert Definitions.read(LogFacts.of(told), protocol="canal-json").judge


def test_a_log_without_images_is_judged_by_its_tables_alone() -> None:
    """As it is opened for watermarks: the rows of a table that is not there are found, values are not."""
    log = table_of([ddl(0, 0, 1, CREATED.format(kind="INT")), ddl(0, 1, 3, "DROP TABLE a"),
                    change(2, 5, id="1", x="1")])  # fmt: skip
    bare = log.set_column(log.column_names.index("columns"), "columns", pa.nulls(3, log.schema.field("columns").type))
    names = {f["guarantee"] for f in audit_table(bare, protocol="canal-json", checks=[TABLE, COLUMNS]).to_pylist()}
    assert names == {TABLE}


def test_a_large_transaction_may_send_the_inserts_of_changed_keys_last() -> None:
    """ticdc#5511: an update that changes its key is split, its delete is sent in order and its insert at the very end,
    behind other rows of the transaction, so a key may be deleted and taken by another row far apart.
    """
    before = [row(0, i, 5, key=str(k)) for i, k in enumerate((1, 2, 9))]
    split = [
        row(0, 3, 7, "delete", key="1"),
        row(0, 4, 7, "delete", key="2"),
        row(0, 5, 7, "update", key="9"),
        row(0, 6, 7, key="2"),  # was 1
        row(0, 7, 7, key="3"),  # was 2
    ]
    after = [row(0, 8, 8, "update", key="2"), row(0, 9, 8, "delete", key="3"), mark(0, 10, 9)]
    assert found([*before, *split, *after]) == []
    lost = [e for e in split if e["offset"] != 6]
    names = {f[0][0] for f in found([*before, *lost, *after], "row_images_chain")}
    assert names == {"row_images_chain"}


def test_without_ddl_no_chain_is_judged() -> None:
    """debezium-avro: what a TRUNCATE took may be inserted again, and nothing in the log shows the TRUNCATE."""
    why = checks_possible("debezium-avro")
    assert "TRUNCATE" in why["row_images_chain"] and "no DDL" in why[FIT] and not why["rows_stay_in_one_partition"]


def defined_by_messages(*events: dict[str, Any], versions: Sequence[tuple[int, str, str]]) -> list[tuple[str, int]]:
    """Guarantee and offset of what breaks definitions of messages: TSO, table and the type of its column ``v``."""
    log = table_of([*events])
    columns = {kind: (ColumnDef("id", "int", nullable=False), ColumnDef("v", kind)) for _, _, kind in versions}
    of = tuple((ts, TableDef("s", name, columns[kind])) for ts, name, kind in versions)
    definitions = Definitions.read(replace(LogFacts.of(log), defined=of), protocol="simple")
    assert not definitions.contradictions
    r = defined_rows(log.filter(pc.equal(log["kind"], "row")).sort_by("offset"), definitions)
    found = [(COLUMNS, unknown_columns(r)), (FIT, misfits(r))]
    cells = [(name, int(r.rows["offset"][i].as_py())) for name, broken in found for i in r.cells.row[broken].tolist()]
    return sorted(
        {*cells, *((TABLE, r.rows["offset"][i].as_py()) for i in (r.version == ABSENT).nonzero()[0].tolist())}
    )


def test_messages_define_what_no_ddl_of_the_log_makes() -> None:
    """BOOTSTRAP messages of simple have no DDL text; DDL that follow change what it defines."""
    rows = [change(0, 4, id="1", v="ab"), change(1, 10, id="2", v="a"), change(2, 11, id="3", v="ab")]
    short = [(5, "a", "varchar(1)")]
    assert defined_by_messages(*rows, versions=short) == [(FIT, 2)], "the first row is from before it"
    assert not defined_by_messages(*rows, versions=[*short, (6, "a", "text")]), "it changes without a DDL"
    alter = ddl(0, 3, 20, query="ALTER TABLE `a` DROP COLUMN `v`", table="a")
    later = change(4, 30, id="4", v="a")
    assert defined_by_messages(rows[1], alter, later, versions=[*short, (19, "a", "text")]) == [(COLUMNS, 4)]
    renamed, old, new = (
        ddl(0, 3, 20, query="RENAME TABLE `a` TO `b`", table="b"),
        change(4, 30, id="4", v="x"),
        change(5, 31, id="5", v="xy", table="b"),
    )
    after = [*short, (19, "b", "varchar(1)")]
    assert defined_by_messages(renamed, old, new, versions=after) == [(TABLE, 4), (FIT, 5)]
    created = ddl(0, 3, 20, query="CREATE TABLE `a` (`id` INT PRIMARY KEY, `v` TEXT)", table="a")
    assert not defined_by_messages(created, change(4, 30, id="4", v="ab"), versions=[(19, "a", "varchar(1)")])
