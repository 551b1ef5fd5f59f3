"""Table versions of simple as the kernels read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ticdc_lab.codecs.kernel.jit import part
from ticdc_lab.codecs.kernel.pointer import Arrays
from ticdc_lab.codecs.kernel.scan import first_of, same_bytes
from ticdc_lab.codecs.simple_versions import Tables, VersionColumn, as_binary, as_double, as_float, as_unsigned
from ticdc_lab.events.mysql_types import FINITE, NO_MYSQL_TYPE, SINGLE, held_by

AS_BYTES, AS_FLOAT, AS_DOUBLE, IN_PYTHON = 255, 254, 253, 252
"""How values of a column are written, beside what their type holds (``MySQLType.holds``)."""


class Versions(Arrays):
    """Table versions, by their number; texts are spans of ``text``, and table ``i`` has columns from ``first[i]``.

    ``name`` has the spans of schema and table; ``column`` of name and type, whether it is a key, how its values
    are written, which column of the table comes at this place by name, as TiCDC writes them, and whether a number below
    zero is one from 2^63 on. ``at`` is scratch.
    """

    version: np.ndarray
    name: np.ndarray
    first: np.ndarray
    column: np.ndarray
    text: np.ndarray
    at: np.ndarray


NAME, TYPE_OF, IS_KEY, FORM, BY_NAME, SIGN = 0, 2, 4, 5, 6, 7


def versions_of(tables: Tables, *, most_columns: int) -> Versions:
    """Table versions as the kernel reads them, except those for Python alone.

    One whose name has a backslash is: names are compared as JSON writes them, where that begins an escape.
    """
    text, name, first, column = bytearray(), [], [0], []

    def span(of: str) -> tuple[int, int]:
        start = len(text)
        text.extend(of.encode())
        return start, len(text)

    chosen = sorted(
        (v, s, t) for (s, t, v), columns in tables.items() if "\\" not in s + t and _is_plain(columns, most_columns)
    )
    for version, schema, table in chosen:
        columns = tables[schema, table, version]
        name.append((*span(schema), *span(table)))
        by_name = sorted(range(len(columns)), key=lambda i: columns[i].name.encode())
        for c, rank in zip(columns, by_name, strict=True):
            sign = c.convert is as_unsigned
            column.append((*span(c.name), *span(c.mysql_type), c.is_key, _form(c), rank, sign))
        first.append(len(column))
    widest = max((len(tables[s, t, v]) for v, s, t in chosen), default=0)
    return Versions(
        version=np.array([v for v, _, _ in chosen], np.int64),
        name=np.array(name, np.int64).reshape(-1, 4),
        first=np.array(first, np.int64),
        column=np.array(column, np.int64).reshape(-1, 8),
        text=np.frombuffer(bytes(text) + bytes(8), np.uint8).copy(),
        at=np.empty((widest + 1, 3), np.int64),
    )


def _is_plain(columns: tuple[VersionColumn, ...], most: int) -> bool:
    return 0 < len(columns) <= most and len({c.name for c in columns}) == len(columns)


def _form(column: VersionColumn) -> int:
    written: dict[Callable[[Any], str], int] = {as_binary: AS_BYTES, as_float: AS_FLOAT, as_double: AS_DOUBLE}
    held = held_by(column.mysql_type)
    if held == NO_MYSQL_TYPE:
        return IN_PYTHON
    return written.get(column.convert, IN_PYTHON if held in (FINITE, SINGLE) else held)


@part
def table_called(
    b: np.ndarray, db: int, db_stop: int, table: int, table_stop: int, version: int, versions: Versions
) -> int:
    """The number of the table version whose schema and table the bytes name, or -1."""
    low = first_of(versions.version, version)
    text, name = versions.text, versions.name
    while low < len(versions.version) and versions.version[low] == version:
        if same_bytes(b, db, db_stop, text, name[low, 0], name[low, 1]) and same_bytes(
            b, table, table_stop, text, name[low, 2], name[low, 3]
        ):
            return low
        low += 1
    return -1


@part
def rank_of(b: np.ndarray, p: int, q: int, first: int, n: int, guess: int, versions: Versions) -> int:
    """The place by name of the column that the bytes name, or -1; ``guess`` goes first, then what comes after it."""
    for k in range(n):
        rank = guess + k if guess + k < n else guess + k - n
        c = first + versions.column[first + rank, BY_NAME]
        if same_bytes(b, p, q, versions.text, versions.column[c, NAME], versions.column[c, NAME + 1]):
            return rank
    return -1
