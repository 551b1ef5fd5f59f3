"""Keys of the modelled TiKV: one integer a row, ordered as TiDB orders its rows: by table, then by handle."""

from __future__ import annotations

WIDTH = 40
HANDLES = (1 << WIDTH) - 1
META = 0
"""The table whose rows are DDL jobs; a handle is a job's id."""
FIRST, LAST = 0, 1 << 62
"""The whole key space, ``FIRST <= key < LAST``."""


def key_of(table_id: int, handle: int) -> int:
    """Give the key of a row."""
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
