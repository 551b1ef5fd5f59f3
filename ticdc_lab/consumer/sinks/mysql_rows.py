"""Merged rows as statements of many rows for MySQL; DuckDB writes the literals, Python only joins them."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from ticdc_lab.catalog import TableDef
from ticdc_lab.consumer.replay_rows import MERGED, NET
from ticdc_lab.consumer.sinks.mysql_text import literal_of, named, same_value, tuple_of, written
from ticdc_lab.tables.mysql_types import parsed

STATEMENT_BYTES = 4 << 20
"""A statement of rows is at most so long, about; the server's max_allowed_packet must be larger (16 MiB by default)."""

_ROWS = 5_000


def of(table: TableDef) -> str:
    """A table, in SQL."""
    return f"{named(table.schema_name)}.{named(table.table_name)}"


def upserts(db: duckdb.DuckDBPyConnection, number: int, table: TableDef, *, numbered: bool) -> Iterator[str]:
    """Statements that delete and write the keys of a batch.

    Where a second unique key may move from one row to another, all keys of the batch are deleted before any is written.
    In row mode another partition may hold the row that has such a value still: it gives way.
    """
    key = [c for name in table.handle_columns if (c := table.column(name)) is not None]
    own = f"{MERGED} WHERE tbl = {number}"
    keys = tuple_of([literal_of(f"key[{i + 1}]", c, numbered=numbered) for i, c in enumerate(key)])
    others = len(table.unique_indexes) > 1
    listed = ", ".join(named(c.name) for c in key)
    for rows in _joined(db, f"SELECT {keys} FROM {own}" + ("" if others else " AND texts IS NULL")):
        yield f"DELETE FROM {of(table)} WHERE ({listed}) IN ({rows})"
    columns = written(table)
    names = [named(c.name) for _, c in columns]
    values = tuple_of([literal_of(f"texts[{i + 1}]", c, numbered=numbered) for i, c in columns])
    order = [
        f"TRY_CAST(key[{i + 1}] AS HUGEINT)" for i, c in enumerate(key) if parsed(c.mysql_type).family == "integer"
    ]
    in_order = f" ORDER BY {', '.join(order)}" if order else ""  # as the server stores them
    verb = "REPLACE" if others else "INSERT"
    update = "" if others else " ON DUPLICATE KEY UPDATE " + ", ".join(f"{n} = VALUES({n})" for n in names)
    for rows in _joined(db, f"SELECT {values} FROM {own} AND texts IS NOT NULL{in_order}"):
        yield f"{verb} INTO {of(table)} ({', '.join(names)}) VALUES {rows}{update}"


def taken(db: duckdb.DuckDBPyConnection, number: int, table: TableDef, *, numbered: bool) -> Iterator[tuple[str, int]]:
    """Statements that delete copies of one row each from a table without a key, and how many they should delete."""
    same = [same_value(c, literal_of(f"texts[{i + 1}]", c, numbered=numbered)) for i, c in written(table)]
    query = f"SELECT concat_ws(' AND ', {', '.join(same)}), -copies FROM {NET} WHERE tbl = {number} AND copies < 0"
    for batch in db.sql(query).to_arrow_reader(_ROWS):
        for where, copies in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            yield f"DELETE FROM {of(table)} WHERE {where} LIMIT {copies}", copies


def added(db: duckdb.DuckDBPyConnection, number: int, table: TableDef, *, numbered: bool) -> Iterator[str]:
    """Statements that write copies of rows into a table without a key."""
    columns = written(table)
    values = tuple_of([literal_of(f"texts[{i + 1}]", c, numbered=numbered) for i, c in columns])
    names = ", ".join(named(c.name) for _, c in columns)
    for rows in _joined(db, f"SELECT {values} FROM {NET}, range(copies) WHERE tbl = {number} AND copies > 0"):
        yield f"INSERT INTO {of(table)} ({names}) VALUES {rows}"


def _joined(db: duckdb.DuckDBPyConnection, query: str) -> Iterator[str]:
    """The rows of a query, each a literal, joined to pieces of a bounded size."""
    pieces: list[str] = []
    size = 0
    for batch in db.sql(query).to_arrow_reader(_ROWS):
        for row in batch.column(0).to_pylist():
            pieces.append(row)
            size += len(row)
            if size > STATEMENT_BYTES:
                yield ",".join(pieces)
                pieces, size = [], 0
    if pieces:
        yield ",".join(pieces)
