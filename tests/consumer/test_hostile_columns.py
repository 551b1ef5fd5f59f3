"""Tables and columns whose names break out of quotes, look like paths, or are called as what is added to rows."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import mariadb
import pytest
from click.testing import CliRunner
from hostile import COLUMNS, TABLES, hostile_columns
from pyspark.sql import SparkSession
from sql_curve import sql_curve

import ticdc_lab
from ticdc_lab import Log, figures, load
from ticdc_lab.cli import main
from ticdc_lab.consumer import open_sink, replay
from ticdc_lab.consumer.downstream import downstream_at, frames_of
from ticdc_lab.consumer.log import excerpt
from ticdc_lab.consumer.model import run as run_consumer
from ticdc_lab.consumer.policy import STRICT
from ticdc_lab.consumer.sinks.delta import _folder_of
from ticdc_lab.consumer.sinks.mysql_connection import PASSWORD
from ticdc_lab.encode.export import write
from ticdc_lab.events.ddl import literal, quoted
from ticdc_lab.figures.selecting import Selection, selected
from ticdc_lab.tables import knowledge, table_as_of

SAID = ("__commit_ts", "__inferred", "__unconvertible")
"""What our own columns are called beside the ones of such a table."""

ROW = {COLUMNS[0]: 7} | {c: f"{c} two" for c in COLUMNS[1:]}


def run(spark: SparkSession, *arguments: str) -> str:
    """What a command prints that ends well."""
    done = CliRunner().invoke(main, list(arguments), obj=spark)
    assert done.exit_code == 0, done.output
    return done.stdout


def assert_replayed(spark: SparkSession, recording: Path, target: str) -> None:
    """Every table of the target is equal to what the log shows, and none was left out."""
    told = json.loads(run(spark, "consume", str(recording), "--sink", target, "--json").splitlines()[-1])
    names = sorted(".".join(name) for name in TABLES.values())
    assert sorted((t["table"], t["rows"], t["different"]) for t in told["tables"]) == [(n, 1, 0) for n in names]


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Give the recording, opened."""
    return ticdc_lab.open(str(hostile_columns(tmp_path_factory.mktemp("hostile"))), spark=spark)


def test_such_rows_are_asked_for(log: Log) -> None:
    """As a table, by key and in SQL."""
    answer = log.table(name := ".".join(TABLES["grown"]))
    (row,) = answer.frame.to_dict("records")
    assert {column: row[column] for column in COLUMNS} == ROW
    assert list(row) == [*COLUMNS, *SAID]
    assert (row[SAID[0]], [*row[SAID[1]]], [*row[SAID[2]]]) == (13 << 18, [], [])
    (drawn,) = answer.figures.values()
    assert selected(drawn, 0, 0) == Selection(commit_ts=13 << 18)
    assert answer.limits[-1] == (
        f"{name} has columns of its own that are called like ours, which say __commit_ts for _commit_ts, __inferred "
        "for _inferred, __unconvertible for _unconvertible here."
    )
    life = log.row(".".join(TABLES["keyed"]), f"{COLUMNS[0]}=7").frame
    assert life["op"].to_list() == ["insert", "update"] and life["changed"].iloc[1] == list(COLUMNS[1:])
    found = log.sql("SELECT DISTINCT table_name, unnest(columns).name AS name FROM events WHERE kind = 'row'")
    every = [(table, column) for _, table in TABLES.values() for column in COLUMNS]
    assert sorted(found.itertuples(index=False, name=None)) == sorted(every)


def test_such_a_table_is_shown_at_any_moment(log: Log) -> None:
    """All its columns with their values; what a history adds has names of its own, and a click on a row means it."""
    timeline = log.timeline(".".join(TABLES["keyed"]))
    assert timeline.moments() == [3 << 18, 4 << 18]
    shown = timeline.rows(4 << 18)
    assert shown.to_dict("records") == [ROW | {timeline.commit_ts: 4 << 18}] and timeline.count(4 << 18) == 1
    assert timeline.commit_ts == "__commit_ts"
    fig = figures.listing(shown, title="t", note="n", commit_ts=timeline.commit_ts)
    assert len(fig.data[0]["header"]["values"]) == len(COLUMNS) + 1
    assert selected(fig, 0, 0) == Selection(commit_ts=4 << 18)
    (folder,) = log.folder.glob("history-*")
    history = duckdb.read_parquet(f"{folder}/*.parquet")
    *own, ts, op, since, until, by, life = history.columns[: len(COLUMNS) + 6]
    assert own == list(COLUMNS)
    assert (ts, op, since, until, by, life) == (
        "__commit_ts", "__op", "__valid_from", "_valid_to", "_ended_by", "_life",
    )  # fmt: skip
    first, last = history.order(ts).project(", ".join(map(quoted, (own[1], op, since, until, by)))).fetchall()
    assert first == (f"{COLUMNS[1]} one", "insert", 3 << 18, 4 << 18, "update")
    assert last == (f"{COLUMNS[1]} two", "update", 4 << 18, None, None)


def test_such_rows_are_asked_for_while_a_consumer_works(log: Log) -> None:
    """In SQL, and as the rows that readers see: each column has its own value."""
    found = run_consumer(excerpt(log.events), STRICT)
    where = " AND ".join(f"{quoted(c)} = {literal(f'{c} two')}" for c in ("side", "since", "texts"))
    sql = f"SELECT count(*) FROM {'.'.join(map(quoted, TABLES['keyed']))} WHERE {where}"
    assert sql_curve(log.events, found, sql=sql)["value"].iloc[-1] == 1
    name = ".".join(TABLES["keyed"])
    there = downstream_at(log.browser.images(name), frames_of(found)[0], found.end_us, name)
    (row,) = there.to_dict("records")
    assert row == ROW | {COLUMNS[0]: "7", "__commit_ts": 4 << 18}


def test_such_rows_are_written_as_lines(log: Log, tmp_path: Path) -> None:
    """The value of every column comes out under its name."""
    schema_name, table_name = TABLES["keyed"]
    write(table_as_of(log.events, schema_name=schema_name, table_name=table_name).ordered, f"{tmp_path}/rows.jsonl")
    (row,) = map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    assert {column: row[column] for column in COLUMNS} == ROW


def test_into_duckdb(log: Log, tmp_path: Path) -> None:
    """As everywhere."""
    sink = open_sink(f"duckdb:///{tmp_path}/t.db", log.change_log)
    sink.rows_a_batch = 1
    replay(log.change_log, sink, known=knowledge(log.events))
    sink.close()
    with duckdb.connect(str(tmp_path / "t.db")) as db:
        for name in TABLES.values():
            (row,) = db.execute(f"FROM {'.'.join(map(quoted, name))}").fetch_df().to_dict("records")
            assert row == ROW


@pytest.mark.parametrize(
    "columns", [("id", "v"), ("rowid", "v"), ("id", "copy", "copies", "range", "place", "c0", "t", "g")]
)
def test_rows_without_a_key_are_told_apart_whatever_their_columns_are_called(
    spark: SparkSession, tmp_path: Path, columns: tuple[str, ...]
) -> None:
    """Found here: beside a column ``id`` rows that were deleted or changed stayed in DuckDB."""
    log = load(spark, str(hostile_columns(tmp_path, columns))).materialise(str(tmp_path / "log"))
    sink = open_sink(f"duckdb:///{tmp_path}/t.db", log)
    sink.rows_a_batch = 1  # so that a row is there before it is changed
    replay(log, sink, known=knowledge(log.events))
    sink.close()
    with duckdb.connect(str(tmp_path / "t.db")) as db:
        (row,) = db.execute(f"FROM {'.'.join(map(quoted, TABLES['keyless']))}").fetchall()
    assert row == (7, *(f"{c} two" for c in columns[1:]))


@pytest.mark.soak
def test_into_delta(classic: SparkSession, tmp_path: Path) -> None:
    """Which takes blanks, commas and the like only of tables that map names, as a table may have to begin to."""
    recording = hostile_columns(tmp_path)
    assert_replayed(classic, recording, f"delta:{tmp_path}/lake")
    run(classic, "table", str(recording), "--table", ".".join(TABLES["keyed"]), "--out", str(tmp_path / "rows"))
    (row,) = classic.read.format("delta").load(str(tmp_path / "rows")).collect()
    assert {name: row[name] for name in COLUMNS} == ROW


def test_into_mariadb(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As everywhere."""
    monkeypatch.setenv(PASSWORD, mariadb.PASSWORD)
    with mariadb.lent(tmp_path / "mariadb") as server:
        assert_replayed(spark, hostile_columns(tmp_path), server.url)


def test_no_two_tables_share_a_folder() -> None:
    """Whose names differ in what no folder is called, or beyond the length of one."""
    taken: set[str] = set()
    for name in (("s", "a b"), ("s", "a_b"), ("s", "a,b"), ("s" * 64, "t" * 64), ("s" * 64, "u" * 64), ("字" * 64, "")):
        folder = _folder_of(name, 1 << 60, taken)
        assert folder not in taken and len(folder.encode()) < 250
        taken.add(folder)
