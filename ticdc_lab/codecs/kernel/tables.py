"""Table versions of simple as the kernels read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ticdc_lab.codecs import debezium_types as forms
from ticdc_lab.codecs.kernel.jit import part
from ticdc_lab.codecs.kernel.pointer import Arrays
from ticdc_lab.codecs.kernel.scan import first_of, same_bytes
from ticdc_lab.codecs.kernel.typed_values import NAME, TextTable, column_of
from ticdc_lab.codecs.simple_versions import Tables, VersionColumn, as_binary, as_double, as_float, as_unsigned
from ticdc_lab.events.mysql_types import ANYTHING, held_by


class Versions(Arrays):
    """Table versions, by their number; texts are spans of ``text``, and table ``i`` has columns from ``first[i]``.

    ``name`` has the spans of schema and table; ``column`` what :func:`~.typed_values.column_of` gives, and which column
    of the table comes at this place by name, as TiCDC writes them. ``at`` is scratch.
    """

    version: np.ndarray
    name: np.ndarray
    first: np.ndarray
    column: np.ndarray
    text: np.ndarray
    at: np.ndarray


BY_NAME = 9


def versions_of(tables: Tables, *, most_columns: int) -> Versions:
    """Table versions as the kernel reads them, except those for Python alone.

    One whose name has a backslash is: names are compared as JSON writes them, where that begins an escape.
    """
    texts, name, first, column = TextTable(), [], [0], list[tuple[int, ...]]()
    chosen = sorted(
        (v, s, t) for (s, t, v), columns in tables.items() if "\\" not in s + t and _is_plain(columns, most_columns)
    )
    for version, schema, table in chosen:
        columns = tables[schema, table, version]
        name.append((*texts.span(schema), *texts.span(table)))
        by_name = sorted(range(len(columns)), key=lambda i: columns[i].name.encode())
        column.extend((*_column(texts, c), rank) for c, rank in zip(columns, by_name, strict=True))
        first.append(len(column))
    widest = max((len(tables[s, t, v]) for v, s, t in chosen), default=0)
    return Versions(
        version=np.array([v for v, _, _ in chosen], np.int64),
        name=np.array(name, np.int64).reshape(-1, 4),
        first=np.array(first, np.int64),
        column=np.array(column, np.int64).reshape(-1, 10),
        text=texts.array(),
        at=np.empty((widest + 1, 3), np.int64),
    )


_KINDS: dict[Callable[[Any], str], int] = {
    as_binary: forms.BINARY,
    as_float: forms.TEXT_FLOAT,
    as_double: forms.TEXT_DOUBLE,
}


def _column(texts: TextTable, c: VersionColumn) -> tuple[int, ...]:
    kind = _KINDS.get(c.convert, forms.PLAIN if held_by(c.mysql_type) == ANYTHING else forms.INTEGER)
    return column_of(texts, c.name, c.mysql_type, kind, unsigned=c.convert is as_unsigned, is_key=c.is_key)


def _is_plain(columns: tuple[VersionColumn, ...], most: int) -> bool:
    return 0 < len(columns) <= most and len({c.name for c in columns}) == len(columns)


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
