"""Tables as they are at a moment, rows as TiKV stores them, and DDL jobs."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

# Keys of the modelled TiKV: one integer a row, ordered as TiDB orders its rows: by table, then by handle.


WIDTH = 40
HANDLES = (1 << WIDTH) - 1
META = 0
"""The table whose rows are DDL jobs; a handle is a job's id."""
FIRST, LAST = 0, 1 << 62
"""The whole key space, ``FIRST <= key < LAST``."""


def key_of(table_id: int, handle: int) -> int:
    return table_id << WIDTH | handle


def table_of(key: int) -> int:
    return key >> WIDTH


def handle_of(key: int) -> int:
    return key & HANDLES


def span_of(table_id: int) -> tuple[int, int]:
    """Give the key range of a table, ``start <= key < end``."""
    return table_id << WIDTH, (table_id + 1) << WIDTH


def shown(key: int) -> str:
    """Write a key as TiDB's tools do: ``t104_r7``, ``m_ddl_3`` for a DDL job."""
    table_id, handle = table_of(key), handle_of(key)
    return f"m_ddl_{handle}" if table_id == META else f"t{table_id}_r{handle}"


# Tables and rows.


Cell: TypeAlias = "int | str | None"
"""What a column holds; dates, decimals and the like as the text that MySQL prints."""


def text_of(cell: Cell) -> str | None:
    """Write a cell as the text that MySQL prints."""
    return cell if cell is None or isinstance(cell, str) else str(cell)


class Column(NamedTuple):
    """A column."""

    id: int  # unique in its table, also among the columns that were dropped
    name: str
    mysql_type: str  # as in ``columns.mysql_type`` of the events contract
    is_key: bool = False  # part of the primary key
    default: Cell = None  # what rows written before the column was added have


class TableInfo(NamedTuple):
    """A table from one DDL to the next; the same object wherever it is the same definition."""

    id: int
    schema_name: str
    name: str
    columns: tuple[Column, ...]

    @property
    def column_ids(self) -> tuple[int, ...]:
        return tuple(c.id for c in self.columns)

    @property
    def quoted(self) -> str:
        """Give the name as messages of people write it."""
        return f"{self.schema_name}.{self.name}"


class Raw(NamedTuple):
    """The value of a row in TiKV: cells by column id, as the definition was when the row was written."""

    column_ids: tuple[int, ...]
    cells: tuple[Cell, ...]


class FinishedJob(NamedTuple):
    """A DDL job that is done; it is the value of the key ``key_of(META, id)``, committed at its finished ts."""

    id: int
    # As TiDB names it: ``create table``, ``drop table``, ``truncate table``, ``rename table``, ``add column``, ``drop
    # column``, ``modify column``, ``create schema``, ``drop schema``.
    type: str
    query: str
    schema_name: str
    table_name: str | None = None
    dropped: int | None = None  # the table that is gone after it (dropped; truncated: the old id)
    info: TableInfo | None = None  # the table after it, None where it is gone or where the job is of a schema


Value: TypeAlias = "Raw | FinishedJob"


class Change(NamedTuple):
    """A row change as the mounter gives it: rows of :data:`info`'s columns, None where there is no image."""

    commit_ts: int
    start_ts: int
    key: int
    op: str
    info: TableInfo
    after: tuple[Cell, ...] | None
    before: tuple[Cell, ...] | None
