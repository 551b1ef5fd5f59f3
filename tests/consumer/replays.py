"""Decoded golden logs, and what their targets hold, for the tests of replays."""

from __future__ import annotations

import atexit
import base64
import gzip
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import duckdb
from conftest import golden
from pyspark.sql import SparkSession

from ticdc_lab import load
from ticdc_lab.consumer import replay
from ticdc_lab.consumer.replay import Replayed, files_of
from ticdc_lab.consumer.sinks.duckdb import DuckDBSink
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.tables import Knowledge, knowledge

BANK_TOTAL = 1_200_000


@cache
def decoded(spark: SparkSession, name: str) -> tuple[ChangeLog, Knowledge]:
    """A golden log and what is known of it; decoded once a session."""
    folder = tempfile.mkdtemp(dir=_folder())  # of its own: one process may decode it on both engines
    log = load(spark, str(golden(name))).materialise(f"{folder}/{name}")
    return log, knowledge(log.events)


@cache
def _folder() -> str:
    folder = tempfile.mkdtemp(prefix="ticdc_lab-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def duckdb_of(log: ChangeLog, path: Path) -> DuckDBSink:
    """A DuckDB target of a log."""
    return DuckDBSink(str(path), files_of(log), log.protocol)


def into_duckdb(of: tuple[ChangeLog, Knowledge], path: Path, **how: object) -> Replayed:
    """Replay a log into a DuckDB file."""
    log, known = of
    sink = duckdb_of(log, path)
    try:
        return replay(log, sink, known=known, **how)  # type: ignore[arg-type]
    finally:
        sink.close()


def contents(path: Path) -> dict[str, list[str]]:
    """The rows of all tables in a DuckDB file as sorted texts, and its progress; not what it noted on the way."""
    with duckdb.connect(str(path), read_only=True) as db:
        names = db.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE table_name <> 'notes' ORDER BY ALL"
        ).fetchall()
        return {f"{s}.{t}": sorted(map(repr, db.execute(f'SELECT * FROM "{s}"."{t}"').fetchall())) for s, t in names}


def total(db: duckdb.DuckDBPyConnection) -> int:
    """The sum of all balances of the bank."""
    names = db.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE table_name LIKE 'accounts\\_%' ESCAPE '\\'"
    ).fetchall()
    sums = [db.execute(f'SELECT coalesce(sum(balance), 0) FROM "{s}"."{t}"').fetchall()[0][0] for s, t in names]
    return int(sum(sums))


def of_two_tables(folder: Path) -> Path:
    """A recording as a changefeed of one table with a key and one without would have it."""
    path = folder / "two.jsonl"
    with (
        gzip.open(golden("messages_canal-json-tidb_small.jsonl.gz"), "rt", encoding="utf-8") as lines,
        path.open("w", encoding="utf-8") as out,
    ):
        for line in lines:
            message = json.loads(base64.b64decode(json.loads(line)["value"]))
            if message["table"] in ("nopk", "orders", ""):
                out.write(line)
    return path
