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

import ticdc_lab
from ticdc_lab import Log
from ticdc_lab.cli import main
from ticdc_lab.consumer import open_sink, replay
from ticdc_lab.consumer.sinks.delta import _folder_of
from ticdc_lab.consumer.sinks.mysql_connection import PASSWORD
from ticdc_lab.encode.export import write
from ticdc_lab.events.quoting import quoted
from ticdc_lab.tables import knowledge, table_as_of

ROW = {COLUMNS[0]: 7} | {c: f"{c} two" for c in COLUMNS[1:]}


def run(spark: SparkSession, *arguments: str) -> str:
    """What a command prints that ends well."""
    done = CliRunner().invoke(main, list(arguments), obj=spark)
    assert done.exit_code == 0, done.output
    return done.output


def assert_replayed(spark: SparkSession, recording: Path, target: str) -> None:
    """Every table of the target is equal to what the log says, and none was left out."""
    told = json.loads(run(spark, "consume", str(recording), "--sink", target, "--json").splitlines()[-1])
    names = sorted(".".join(name) for name in TABLES.values())
    assert sorted((t["table"], t["rows"], t["different"]) for t in told["tables"]) == [(n, 1, 0) for n in names]


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Give the recording, opened."""
    return ticdc_lab.open(str(hostile_columns(tmp_path_factory.mktemp("hostile"))), spark=spark)


def test_such_rows_are_asked_for(log: Log) -> None:
    """As a table, by key and in SQL."""
    (row,) = log.table(".".join(TABLES["grown"])).frame.to_dict("records")
    assert {column: row[column] for column in COLUMNS} == ROW
    life = log.row(".".join(TABLES["keyed"]), f"{COLUMNS[0]}=7").frame
    assert life["op"].to_list() == ["insert", "update"] and life["changed"].iloc[1] == list(COLUMNS[1:])
    found = log.sql("SELECT DISTINCT table_name, unnest(columns).name AS name FROM events WHERE kind = 'row'")
    every = [(table, column) for _, table in TABLES.values() for column in COLUMNS]
    assert sorted(found.itertuples(index=False, name=None)) == sorted(every)


def test_such_rows_are_written_as_lines(log: Log, tmp_path: Path) -> None:
    """The value of every column comes out under its name."""
    schema_name, table_name = TABLES["keyed"]
    write(table_as_of(log.events, schema_name=schema_name, table_name=table_name).ordered, f"{tmp_path}/rows.jsonl")
    (row,) = map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    assert {column: row[column] for column in COLUMNS} == ROW


def test_into_duckdb(log: Log, tmp_path: Path) -> None:
    """As everywhere."""
    sink = open_sink(f"duckdb:///{tmp_path}/t.db", log.change_log)
    replay(log.change_log, sink, known=knowledge(log.events))
    sink.close()
    with duckdb.connect(str(tmp_path / "t.db")) as db:
        for name in TABLES.values():
            (row,) = db.execute(f"FROM {'.'.join(map(quoted, name))}").fetch_df().to_dict("records")
            assert row == ROW


@pytest.mark.soak
def test_into_delta(classic: SparkSession, tmp_path: Path) -> None:
    """Which takes blanks, commas and the like only of tables that map names, as a table may have to begin to."""
    recording = hostile_columns(tmp_path)
    assert_replayed(classic, recording, f"delta:{tmp_path}/lake")
    run(classic, "table", str(recording), "--table", ".".join(TABLES["keyed"]), "--out", str(tmp_path / "rows"))
    (row,) = classic.read.format("delta").load(str(tmp_path / "rows")).collect()
    assert {name: row[name] for name in COLUMNS} == ROW


@pytest.mark.soak
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
