"""Tables in a DuckDB file: made, renamed, written anew with other columns."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from ticdc_lab.catalog import TableName
from ticdc_lab.consumer.replay_ddl import Change, Move, moves
from ticdc_lab.consumer.sinks.duckdb_types import column_type, value
from ticdc_lab.quoting import literal, quoted
from ticdc_lab.tables.mysql_types import parsed
from ticdc_lab.tables.stretches import carried

DATABASE = "ticdc_lab_target"
"""What the file is called while it is attached: by its own name it might be taken for a schema in it."""

OWN = f"{DATABASE}._ticdc_lab"
"""The schema of what a replay keeps for itself."""

_DRAFT = f"{OWN}.draft"


def named(name: TableName) -> str:
    """A table of the file, in SQL."""
    return f"{DATABASE}.{quoted(name[0])}.{quoted(name[1])}"


def changed(db: duckdb.DuckDBPyConnection, change: Change) -> list[str]:
    """Do what a DDL does to tables without keys; what it could not do, one sentence each."""
    name, after, said = change.name, change.after, [change.reason] if change.reason else []
    if change.kind in ("create database", "create", "rename"):
        db.execute(f"CREATE SCHEMA IF NOT EXISTS {DATABASE}.{quoted(name[0])}")
    if change.kind == "drop database":
        db.execute(f"DROP SCHEMA IF EXISTS {DATABASE}.{quoted(name[0])} CASCADE")
    elif change.kind == "drop":
        db.execute(f"DROP TABLE IF EXISTS {named(name)}")
    elif change.kind == "truncate":
        db.execute(f"DELETE FROM {named(name)}")
    elif change.kind == "create" and after is not None:
        columns = ", ".join(f"{quoted(c.name)} {column_type(c.mysql_type)}" for c in carried(after))
        db.execute(f"CREATE OR REPLACE TABLE {named(name)} ({columns})")
    elif change.kind == "rename" and change.origin is not None:
        _rewritten(db, change.origin, name, "*")
    elif change.kind == "reshape" and change.before is not None and after is not None:
        said = [*_reshaped(db, name, moves(change.before, after)), *said]
    return said


def _reshaped(db: duckdb.DuckDBPyConnection, name: TableName, columns: Sequence[Move]) -> list[str]:
    """Write a table anew with other columns: DuckDB adds columns at the end only."""
    said = [s for m in columns if (s := _lost(db, name, m))]
    _rewritten(db, name, name, ", ".join(f"{_moved(m)} AS {quoted(m.column.name)}" for m in columns))
    return said


def _rewritten(db: duckdb.DuckDBPyConnection, old: TableName, new: TableName, values: str) -> None:
    """By a draft, because names that differ in case only are the same to DuckDB."""
    db.execute(f"CREATE OR REPLACE TABLE {_DRAFT} AS SELECT {values} FROM {named(old)}")
    db.execute(f"DROP TABLE {named(old)}")
    db.execute(f"CREATE TABLE {named(new)} AS SELECT * FROM {_DRAFT}")
    db.execute(f"DROP TABLE {_DRAFT}")


def _moved(move: Move) -> str:
    kind = column_type(move.column.mysql_type)
    if move.source is None:
        text = "NULL" if move.text is None else literal(move.text)
        labelled = parsed(move.column.mysql_type).family in ("enum", "set")
        added = text if labelled else value(text, move.column.mysql_type, numbered=False)
        return f"CAST({added} AS {kind})"
    old = quoted(move.source.name)
    if parsed(move.source.mysql_type).family == "float" != parsed(move.column.mysql_type).family:
        old = f"CAST({old} AS VARCHAR)"  # the shortest digits, as MySQL prints them, not the exact binary number
    return f"CAST(NULL AS {kind})" if move.how == "unknown" else f"TRY_CAST({old} AS {kind})"


def _lost(db: duckdb.DuckDBPyConnection, name: TableName, move: Move) -> str:
    """Which values become NULL because what TiDB made of them cannot be told, or fits no more; empty if none."""
    if move.source is None and not move.reason:
        return ""
    there = "true" if move.source is None else f"{quoted(move.source.name)} IS NOT NULL"
    n = db.execute(f"SELECT count(*) FROM {named(name)} WHERE {there} AND {_moved(move)} IS NULL").fetchall()[0][0]
    why = move.reason or f"they do not fit {move.column.mysql_type}"
    return f"{n} values of {move.column.name} became NULL: {why}" if n else ""
