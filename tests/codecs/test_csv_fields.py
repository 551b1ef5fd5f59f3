"""Which field of a csv record is which column: right values, or a refusal that names the option; never shifted ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import ROOT
from pyspark.sql import SparkSession

sys.path.insert(0, str(ROOT / "tests"))
from csv_readings import Made, made_folder
from stored import VERSION, listing_of, put, put_data, put_schema, rows_of, settled_reading

from ticdc_lab.cli import main
from ticdc_lab.settings import UNKNOWN, Setting, Settings
from ticdc_lab.settings.file import given_settings
from ticdc_lab.sources.storage import read_by


def wrong_of(root: Path, made: Made, settings: Settings) -> tuple[list[str], int, int]:
    """What a folder decodes to that no one wrote, and how many rows were right and how many refused."""
    rows, wrong, right, refused = rows_of(root, settings), list[str](), 0, 0
    for table, meant in made.rows.items():
        left = list(meant)
        for row in sorted(
            (r for r in rows if r["kind"] == "row" and r["table_name"] == table), key=lambda r: r["offset"]
        ):
            image = {c["name"]: c["value"] for c in row["columns"] or row["before"]}
            op = {"insert": "I", "update": "U", "delete": "D"}[row["op"]]
            if (row["commit_ts"], op, image) in left:
                left.remove((row["commit_ts"], op, image))
                right += 1
            else:
                wrong.append(f"{table}: {row['commit_ts']} {image}, of {meant}")
        refused += len(left)
    bad = [r for r in rows if r["error_class"]]
    assert len(bad) == refused
    return wrong, right, refused


def test_values_are_right_or_refused_whatever_was_set(tmp_path: Path) -> None:
    """Left-out, virtual and stored columns, header or DDL or neither, keys like a commit_ts, several tables."""
    n = [0, 0]
    for seed in range(80):
        root = tmp_path / str(seed)
        made = made_folder(root, seed)
        wrong, right, refused = wrong_of(root, made, UNKNOWN)
        assert not wrong, (seed, made.settings, wrong)
        n[0] += right
        n[1] += refused
    assert n[0] > 5 * n[1] > 0


ID = {"ColumnName": "id", "ColumnType": "BIGINT", "ColumnIsPk": "true", "ColumnNullable": "false"}
A, B, C = ({"ColumnName": n, "ColumnType": "VARCHAR", "ColumnPrecision": "20"} for n in "abc")
CREATE = "CREATE TABLE `t` (`id` BIGINT PRIMARY KEY, `a` VARCHAR(20), `b` VARCHAR(20){}, `c` VARCHAR(20))"
VIRTUAL, STORED = " GENERATED ALWAYS AS (UPPER(`a`)) VIRTUAL", " AS (UPPER(`a`)) STORED"


def put_rows(root: Path, *values: str, ts: bool = True, header: str = "", where: str = f"s/t/{VERSION}") -> None:
    """Write a data file of inserts."""
    rows = [f'"I","t","s",{f"{VERSION + i}," if ts else ""}{v}\r\n' for i, v in enumerate(values, 1)]
    put_data(root, header + "".join(rows), where=where)


def images(root: Path, settings: Settings = UNKNOWN) -> list[dict[str, str | None]]:
    """The columns of a folder's rows; of none, whose records are all refused with an option."""
    rows = rows_of(root, settings)
    for bad in (r for r in rows if r["error_class"]):
        assert bad["error_class"] == "csv-columns" and "--option csv.columns='s.t:" in bad["reason"]
    return [{c["name"]: c["value"] for c in r["columns"]} for r in rows if r["kind"] == "row"]


@pytest.mark.parametrize("ts", [True, False])
def test_the_ddl_says_which_columns_rows_do_not_have(tmp_path: Path, ts: bool) -> None:
    """A virtual column has no value in a row, a stored one has; with commit_ts and without."""
    for name, generated, row in (("v", VIRTUAL, '1,"x","z"'), ("s", STORED, '1,"x","X","z"')):
        put_schema(tmp_path / name, ID, A, B, C, Query=CREATE.format(generated))
        put_rows(tmp_path / name, row, '2,"y",\\N' + (',"z"' if name == "s" else ""), ts=ts)
    assert images(tmp_path / "v")[0] == {"id": "1", "a": "x", "c": "z"}
    assert images(tmp_path / "s") == [
        {"id": "1", "a": "x", "b": "X", "c": "z"},
        {"id": "2", "a": "y", "b": None, "c": "z"},
    ]


def test_virtual_columns_of_the_ddl_have_no_value_where_numbers_would_fit_too(tmp_path: Path) -> None:
    """Rows of numbers alone: a commit_ts and two columns, not three columns; a commit_ts between quotes is refused."""
    number = {"ColumnName": "n", "ColumnType": "INT"}
    query = "CREATE TABLE t (id BIGINT PRIMARY KEY, n INT, m INT AS (n + 1))"
    put_schema(tmp_path, ID, number, number | {"ColumnName": "m"}, Query=query)
    put_rows(tmp_path, "5,6")
    assert images(tmp_path) == [{"id": "5", "n": "6"}]
    put_rows(tmp_path, f'"{VERSION + 1}",5,6', ts=False)
    assert images(tmp_path) == []


def test_the_ddl_of_earlier_versions_counts(tmp_path: Path) -> None:
    """An ALTER TABLE names only what it changes: its schema file lists the virtual columns of before as others."""
    put_schema(tmp_path, ID, A, B, Query=CREATE.format(VIRTUAL).replace(", `c` VARCHAR(20)", ""), version=VERSION - 9)
    put_schema(tmp_path, ID, A, B, C, Query="ALTER TABLE t ADD COLUMN c VARCHAR(20)")
    put_rows(tmp_path, '1,"x","z"')
    assert images(tmp_path) == [{"id": "1", "a": "x", "c": "z"}]


def test_a_header_names_the_columns_in_any_order(tmp_path: Path) -> None:
    """Names of the schema file only: another one refuses the file."""
    meta = "ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$commit-ts"
    put_schema(tmp_path, ID, A, B, C, Query="")
    put_rows(tmp_path, '"z",1,"x"', header=f"{meta},c,id,a\r\n")
    assert images(tmp_path) == [{"c": "z", "id": "1", "a": "x"}]
    put_rows(tmp_path, '"z",1', header=f"{meta},other,id\r\n")
    assert [r["error_class"] for r in rows_of(tmp_path) if r["error_class"]] == ["csv-header"]


@pytest.mark.parametrize(("columns", "row"), [("s.t:id,a,c", '1,"x","z"'), ("*.t:*,!b", '1,"x","z"'), ("s.*:id", "1")])
def test_where_two_readings_fit_none_is_taken_but_for_an_option(tmp_path: Path, columns: str, row: str) -> None:
    """Of three texts two are there, and no DDL: the option defines which."""
    put_schema(tmp_path, ID, A, B, C, Query="")
    put_rows(tmp_path, row)
    wanted = {"id": "1", "a": "x", "c": "z"} if "x" in row else {"id": "1"}
    assert images(tmp_path, given_settings({"csv.columns": columns})) == [wanted]
    assert images(tmp_path) == ([] if "x" in row else [wanted])


def test_a_key_that_looks_like_a_commit_ts_is_refused_unless_another_table_says_what_it_is(tmp_path: Path) -> None:
    """Two numbers after the key or one: the folder's other files have a commit_ts, or none."""
    number = {"ColumnName": "n", "ColumnType": "INT"}
    put_schema(tmp_path, ID, number, number | {"ColumnName": "m"}, Query="")
    put_rows(tmp_path, f"{VERSION + 5},7,8", ts=False)
    assert images(tmp_path) == []
    undated = given_settings({"csv.include-commit-ts": "false"})
    assert images(tmp_path, undated) == [{"id": str(VERSION + 5), "n": "7", "m": "8"}]
    put_schema(tmp_path, ID, A, where="s/u", Table="u", Query="")
    put_data(tmp_path, '"I","u","s",3,"x"\r\n', where=f"s/u/{VERSION}")
    assert {"id": str(VERSION + 5), "n": "7", "m": "8"} in images(tmp_path)


@pytest.mark.parametrize(
    ("texts", "length", "value", "said"),
    [
        (["d7d3", "beef"], "8", "0x77b777", "read as base64: TiCDC's default; the 2 values"),
        (["d7d3", "beef00"], "8", "0xd7d3", ""),  # base64 has four characters or eight
        (["d7d3beef", "0011"], "4", "0xd7d3beef", ""),  # six bytes in base64
        (["d7d3", "AAA="], "8", "0x77b777", ""),
        (["d7d3beef"] * 2, "8", "0xd7d3beef", "read as hex: all 16 characters"),
    ],
)
def test_a_guess_between_hex_and_base64_is_said(
    tmp_path: Path, texts: list[str], length: str, value: str, said: str
) -> None:
    """Once, with the option; what only one of them can be is no guess."""
    put_schema(tmp_path, ID, {"ColumnName": "v", "ColumnType": "VARBINARY", "ColumnPrecision": length})
    put_rows(tmp_path, *(f'{i},"{t}"' for i, t in enumerate(texts)))
    assert images(tmp_path)[0]["v"] == value
    guesses = settled_reading(listing_of(tmp_path))[0].guesses
    assert len(guesses) == bool(said) and said in "".join(guesses)
    assert not guesses or "--option csv.binary-encoding-method=" in guesses[0]
    assert not settled_reading(listing_of(tmp_path), given_settings({"csv.binary-encoding-method": "hex"}))[0].guesses


def test_another_text_for_null_is_detected_and_said_and_else_no_value(tmp_path: Path) -> None:
    """The one bare word is NULL; a second one may be anything, and its row is in quarantine with the option."""
    put_schema(tmp_path, ID, A)
    put_rows(tmp_path, "1,NULL", '2,"NULL"')
    assert images(tmp_path) == [{"id": "1", "a": None}, {"id": "2", "a": "NULL"}]
    assert "--option csv.null=" in "".join(settled_reading(listing_of(tmp_path))[0].guesses)
    put_rows(tmp_path, "1,NULL", "2,none", '3,"x"')
    bad = [r for r in rows_of(tmp_path) if r["error_class"]]
    assert [r["error_class"] for r in bad] == ["csv-unquoted"] * 2 and "--option csv.null=" in bad[0]["reason"]


def put_bare(root: Path, *rows: str, header: str = "") -> None:
    """Write a data file of inserts whose texts have no quotes."""
    put_data(root, header + "".join(f"I,t,s,{VERSION + i},{row}\r\n" for i, row in enumerate(rows, 1)))


@pytest.mark.parametrize("null", ["NULL", ""])
@pytest.mark.parametrize(
    "header", ["", "ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$commit-ts,k,n,a\r\n"]
)
def test_without_quotes_a_column_of_numbers_shows_the_text_for_null(tmp_path: Path, null: str, header: str) -> None:
    """A text that looks the same is read as NULL, with a note; a key is never NULL."""
    key, number = A | {"ColumnName": "k", "ColumnIsPk": "true"}, {"ColumnName": "n", "ColumnType": "INT"}
    put_schema(tmp_path, key, number, A)
    put_bare(tmp_path, f"{null},{null},x\\,\\\\", f"y,5,{null}", header=header)
    values = [{"k": null, "n": None, "a": "x,\\"}, {"k": "y", "n": "5", "a": None}]
    assert images(tmp_path) == values
    [said] = settled_reading(listing_of(tmp_path))[0].guesses
    assert f"a text {null!r} looks like NULL" in said and "--option csv.null=" in said


def test_without_quotes_a_word_that_may_be_null_is_noted(tmp_path: Path) -> None:
    r"""Nothing decides it in columns of texts; a bare ``\N`` does: a text has its backslash twice."""
    put_schema(tmp_path, ID, A, B)
    put_bare(tmp_path, "1,NULL,x", "2,,x")
    assert [row["a"] for row in images(tmp_path)] == ["NULL", ""]
    [said] = settled_reading(listing_of(tmp_path))[0].guesses
    assert "so '' and 'NULL' may be NULL or a text" in said and "--option csv.null=" in said
    put_bare(tmp_path, r"1,NULL,\N", "2,,x")
    assert [row["b"] for row in images(tmp_path)] == [None, "x"]
    assert not settled_reading(listing_of(tmp_path))[0].guesses


def test_a_header_is_read_beside_the_schema_file(tmp_path: Path) -> None:
    """TiCDC writes its names as they are, with delimiters, quotes and line ends."""
    names = ("a", "b", "a,b", "c\r\nI", "d'e\"", "ticdc-meta$is-update", "_tidb_commit_ts")
    meta = ",".join(f"ticdc-meta${name}" for name in ("operation", "table", "schema", "commit-ts"))
    put_schema(tmp_path, ID, *(A | {"ColumnName": name} for name in names), Query="")
    for some in (names, names[1:], names[:1], names[3:]):
        put_rows(tmp_path, "1" + ',"x"' * len(some), header=",".join((meta, "id", *some)) + "\r\n")
        assert images(tmp_path) == [{"id": "1"} | dict.fromkeys(some, "x")]


def test_what_could_not_be_read_is_never_clean(spark: SparkSession, tmp_path: Path) -> None:
    """A folder none of whose rows can be read is not audited, and the reason is given; fsck calls it an error."""
    put(tmp_path, "metadata", json.dumps({"checkpoint-ts": VERSION + 100}))
    put_schema(tmp_path, ID, A, B, C, Query="")
    put_rows(tmp_path, '1,"x","z"')
    for command, code in (("audit", 2), ("fsck", 1), ("events", 0)):
        more = ["--out", str(tmp_path / "out.jsonl")] if command == "events" else []
        result = CliRunner().invoke(main, [command, str(tmp_path), *more], obj=spark)
        assert result.exit_code == code and "csv.columns=" in result.output, result.output


@pytest.mark.parametrize(
    ("selectors", "exact", "columns"),
    [
        ([("/^S$/.`T`", "!b *")], False, None),  # `*` behind `!b` takes it back
        ([("/^s$/.`t`", "* !/^[bx]/")], False, "id a c"),
        ([("s.t|u", "a")], False, None),  # refused: TiCDC has no such matcher
        ([("x.*", "b"), ("S.t", "* !B"), ("s.t", "a")], False, "id a c"),
        ([("S.t", "* !a"), ("s.t", "* !b")], True, "id a c"),
        ([("*.* !s.*", "* !a"), ("s.*", "* !B")], True, "id a c"),
        ([("s.?", "* ![b]")], False, "id a c"),
    ],
)
def test_column_selectors_are_read_as_ticdc_reads_them(
    tmp_path: Path, selectors: list[tuple[str, str]], exact: bool, columns: str | None
) -> None:
    """Regular expressions, quotes, `case-sensitive`; the first selector that takes the table counts."""
    members = tuple({"matcher": tuple(m.split()), "columns": tuple(c.split())} for m, c in selectors)
    file = Settings((Setting("sink.column-selectors", members, "file"), Setting("case-sensitive", exact, "file")))
    put_schema(tmp_path, ID, A, B, C, Query="")
    put_rows(tmp_path, '1,"x","y","z"' if columns is None else '1,"x","z"')
    wanted = {"id": "1", "a": "x"} | ({"b": "y", "c": "z"} if columns is None else {"c": "z"})
    assert images(tmp_path, read_by(file, ())) == [wanted]


def test_a_changefeed_gives_the_settings_that_no_option_gives(tmp_path: Path) -> None:
    """Its column selectors show which columns rows have; what the files show is a setting with its evidence."""
    put_schema(tmp_path, ID, A, B, C, Query="")
    put_rows(tmp_path, '1;"x";"z"'.replace(";", ","))
    selector = {"matcher": ("s.*", "!s.u"), "columns": ("*", "!b")}
    file = Settings((Setting("sink.column-selectors", (selector,), "file"), Setting("sink.csv.null", "NULL", "file")))
    given = read_by(file, ())
    assert not len(read_by(file)), "before it is known what the bytes show"
    assert given.value("csv.null") == "NULL"
    assert read_by(file | given_settings({"csv.null": "-"}), ()).value("csv.null") == "-"
    assert read_by(file, [Setting("sink.csv.null", "-", "bytes", "shown")]).value("csv.null") is None
    assert images(tmp_path, given) == [{"id": "1", "a": "x", "c": "z"}]
    shown = Settings(settled_reading(listing_of(tmp_path), given)[0].shown)
    assert shown.value("csv.include-commit-ts") is True and shown.value("csv.delimiter") == ","
