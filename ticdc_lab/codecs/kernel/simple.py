"""Rows and watermarks of simple in JSON, as TiCDC writes them; what is written in another way is left to Python.

A message that this kernel decodes is one that :mod:`ticdc_lab.codecs.simple` decodes to the same event. It never says
what is wrong with a message: a fault, a value that its type cannot hold, a table version that is not known, DDL and
bootstraps, JSON in another order, checksums, and floats whose digits may not be the fewest are all left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.decoded import Decoded
from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.columns import decoded_in_part
from ticdc_lab.codecs.kernel.floats import FLOAT_ROOM, put_shortest
from ticdc_lab.codecs.kernel.holding import holds
from ticdc_lab.codecs.kernel.identity import set_row
from ticdc_lab.codecs.kernel.jit import kernel, part
from ticdc_lab.codecs.kernel.pointer import Arrays
from ticdc_lab.codecs.kernel.scan import (
    after_name,
    literal_end,
    next_member,
    same,
    same_bytes,
    scalar_end,
    skip_space,
    string_end,
    word,
    word_of,
)
from ticdc_lab.codecs.kernel.state import (
    State,
    close,
    column_fits,
    end_column,
    end_images,
    event_fits,
    mark,
    new_event,
    put_null,
    put_text,
    put_ts,
    restore,
)
from ticdc_lab.codecs.kernel.text import (
    int64_of,
    put_base64,
    put_bytes,
    put_string,
    room_for,
)
from ticdc_lab.codecs.known import Bounds
from ticdc_lab.codecs.simple_versions import Tables, VersionColumn, as_binary, as_double, as_float
from ticdc_lab.events.mysql_types import ANYTHING, FINITE, NO_MYSQL_TYPE, SINGLE, held_by

OK, NEED_MORE, LEFT = faults.OK, faults.NEED_MORE, -2
ROW, WATERMARK, INSERT, UPDATE, DELETE = S.ROW, S.WATERMARK, S.INSERT, S.UPDATE, S.DELETE
SCHEMA_NAME, TABLE_NAME, TABLE_ID, HAS_TABLE_ID = S.SCHEMA_NAME, S.TABLE_NAME, S.TABLE_ID, S.HAS_TABLE_ID
AFTER, BEFORE, NAMES, TYPES, VALUES = S.AFTER, S.BEFORE, S.NAMES, S.TYPES, S.VALUES
N_AFTER, N_BEFORE = S.N_AFTER, S.N_BEFORE

VERSION, DATABASE, TABLE, TABLE_NUMBER, TYPE, COMMIT_TS, BUILD_TS, SCHEMA_VERSION, DATA, OLD = range(10)
"""Fields of a message; ``state.at`` holds where the value of each begins and, 16 further, where it ends."""
_ENDS = 16

AS_BYTES, AS_FLOAT, AS_DOUBLE, IN_PYTHON = 255, 254, 253, 252
"""How values of a column are written, beside what their type holds (``MySQLType.holds``)."""

_W_VERSION, _W_DATABASE, _W_TABLE, _W_TABLE_ID = map(word_of, (b"version", b"database", b"table", b"tableID"))
_W_TYPE, _W_COMMIT_TS, _W_BUILD_TS, _W_DATA = map(word_of, (b"type", b"commitTs", b"buildTs", b"data"))
_W_OLD = word_of(b"old")
_W_INSERT, _W_UPDATE, _W_DELETE = map(word_of, (b"INSERT", b"UPDATE", b"DELETE"))


class Versions(Arrays):
    """Table versions, by their number; texts are spans of ``text``, and table ``i`` has columns from ``first[i]``.

    ``name`` has the spans of schema and table; ``column`` those of name and type, whether it is a key, how its values
    are written, and which column of the table comes at this place by name, as TiCDC writes them. ``at`` is scratch.
    """

    version: np.ndarray
    name: np.ndarray
    first: np.ndarray
    column: np.ndarray
    text: np.ndarray
    at: np.ndarray


_NAME, _TYPE, _IS_KEY, _FORM, _BY_NAME = 0, 2, 4, 5, 6


def versions_of(tables: Tables, *, most_columns: int) -> Versions:
    """Table versions as the kernel reads them, but for those that are for Python alone.

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
            column.append((*span(c.name), *span(c.mysql_type), c.is_key, _form(c), rank))
        first.append(len(column))
    widest = max((len(tables[s, t, v]) for v, s, t in chosen), default=0)
    return Versions(
        version=np.array([v for v, _, _ in chosen], np.int64),
        name=np.array(name, np.int64).reshape(-1, 4),
        first=np.array(first, np.int64),
        column=np.array(column, np.int64).reshape(-1, 7),
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


class SimpleKernel:
    """The kernel over the table versions that its codec knows when a batch comes (:class:`~.decoded.PartKernel`)."""

    def __init__(self, known: Tables) -> None:
        self._known = known
        self._tables: Tables = {}
        self._versions: Versions | None = None

    def __call__(self, batch: pa.RecordBatch, *, images: bool, bounds: Bounds) -> Decoded:
        """The events of rows and watermarks that the kernel decodes."""
        if self._versions is None or self._tables != self._known:
            self._tables = dict(self._known)
            self._versions = versions_of(self._tables, most_columns=bounds.columns)
        given = bounds.values, self._versions
        return decoded_in_part(batch, "simple", decode, *given, images=images, bounds=bounds)

    def stands(self) -> bool:
        """Whether no table version that rows were decoded by has come again in another form."""
        now = self._known
        if all(now[version] == columns for version, columns in self._tables.items()):
            return True
        now.clear()
        now.update(self._tables)
        return False


@kernel
def decode(
    b: np.ndarray, starts: np.ndarray, ends: np.ndarray, st: State, marks: np.ndarray, longest: int, versions: Versions
) -> int:
    """Decode values of up to ``longest`` bytes, but for those that are left to Python. NEED_MORE or OK."""
    for m in range(len(starts)):
        mark(st, marks)
        status = LEFT
        if starts[m] >= 0 and ends[m] - starts[m] <= longest:
            status = _message(m, b, starts[m], ends[m], versions, st)
        if status == NEED_MORE:
            return NEED_MORE
        if status != OK:
            restore(st, marks)
    return OK


@part
def _message(m: int, b: np.ndarray, p: int, end: int, versions: Versions, st: State) -> int:
    """Decode one message; OK, NEED_MORE, or any other number where it is left."""
    at = st.at
    for k in range(OLD + 1):
        at[k] = -1
    if p >= end or b[p] != 0x7B:
        return LEFT
    p, more = next_member(b, p + 1, end, 0x7D, True)
    while more:
        q, escaped = string_end(b, p, end)
        if q < 0 or escaped:
            return LEFT
        field = _field(b, p + 1, q - 1)
        if field < 0 or at[field] >= 0:
            return LEFT
        p = after_name(b, q, end)
        if p < 0 or p >= end:
            return LEFT
        q = _rows_image(b, p, end, field, versions, st) if field >= DATA else _scalar_end(b, p, end)
        if q < 0:
            return q
        at[field], at[_ENDS + field] = p, q
        p, more = next_member(b, q, end, 0x7D, False)
    if p < 0 or skip_space(b, p, end) != end or at[TYPE] < 0 or at[COMMIT_TS] < 0:
        return LEFT
    ts, counted = _count(b, at, COMMIT_TS)
    if not counted:
        return LEFT
    if at[DATA] < 0 and at[OLD] < 0 and same(b, at[TYPE], at[_ENDS + TYPE], b'"WATERMARK"'):
        if not event_fits(st, 0):
            return NEED_MORE
        i = new_event(st, m, 0, WATERMARK)
        end_images(st, i)
        put_ts(st, i, ts)
        return OK
    return _row(m, b, ts, st)


@part
def _scalar_end(b: np.ndarray, p: int, end: int) -> int:
    """Position after a string, a literal or an integer; a number that Python might not hold is left."""
    q = scalar_end(b, p, end)
    if q < 0 or b[p] == 0x22 or b[p] > 0x39:
        return q
    return q if int64_of(b, p, q)[1] else LEFT


@part
def _field(b: np.ndarray, p: int, q: int) -> int:
    n, w = q - p, word(b, p, q)
    if n == 4:
        return TYPE if w == _W_TYPE else DATA if w == _W_DATA else -1
    if n == 5:
        return TABLE if w == _W_TABLE else -1
    if n == 7:
        return (
            TABLE_NUMBER if w == _W_TABLE_ID else VERSION if w == _W_VERSION else BUILD_TS if w == _W_BUILD_TS else -1
        )
    if n == 8:
        return COMMIT_TS if w == _W_COMMIT_TS else DATABASE if w == _W_DATABASE else -1
    if n == 3:
        return OLD if w == _W_OLD else -1
    return SCHEMA_VERSION if n == 13 and same(b, p, q, b"schemaVersion") else -1


@part
def _count(b: np.ndarray, at: np.ndarray, field: int) -> tuple[int, bool]:
    """The number that a field is, and whether it is one of 63 bits without a sign."""
    p = at[field]
    value, fits = int64_of(b, p, at[_ENDS + field])
    return value, fits and b[p] != 0x2D


@part
def _row(m: int, b: np.ndarray, ts: int, st: State) -> int:
    """Make the row whose images have been read an event."""
    at = st.at
    if b[at[TYPE]] != 0x22 or at[_ENDS + TYPE] - at[TYPE] != 8 or at[TABLE_NUMBER] < 0:
        return LEFT
    w = word(b, at[TYPE] + 1, at[_ENDS + TYPE] - 1)
    op = INSERT if w == _W_INSERT else UPDATE if w == _W_UPDATE else DELETE if w == _W_DELETE else -1
    if op < 0 or (at[DATA] >= 0) != (op != DELETE) or (at[OLD] >= 0) != (op != INSERT):
        return LEFT
    table_id, counted = _count(b, at, TABLE_NUMBER)
    if not counted:
        return LEFT
    if not event_fits(st, at[_ENDS + DATABASE] - at[DATABASE] + at[_ENDS + TABLE] - at[TABLE]):
        return NEED_MORE
    i = new_event(st, m, 0, ROW)
    end_images(st, i)
    put_text(st, SCHEMA_NAME, i, b, at[DATABASE], at[_ENDS + DATABASE], False)
    put_text(st, TABLE_NAME, i, b, at[TABLE], at[_ENDS + TABLE], False)
    st.number[TABLE_ID, i], st.byte[HAS_TABLE_ID, i] = table_id, 1
    put_ts(st, i, ts)
    set_row(st, i, op)
    return OK


@part
def _rows_image(b: np.ndarray, p: int, end: int, field: int, versions: Versions, st: State) -> int:
    """Read an image, if what tells its table came before; the position after it, or a status below zero."""
    at = st.at
    if at[DATABASE] < 0 or at[TABLE] < 0 or at[SCHEMA_VERSION] < 0:
        return LEFT
    version, counted = _count(b, at, SCHEMA_VERSION)
    table = _table(b, at, version, versions) if counted else -1
    if table < 0 or b[p] != 0x7B:
        return LEFT
    p = _find_values(b, p, end, table, versions)
    return p if p < 0 else _put_image(b, p, AFTER if field == DATA else BEFORE, table, versions, st)


@part
def _table(b: np.ndarray, at: np.ndarray, version: int, versions: Versions) -> int:
    """The number of a table version, or -1; names with escapes are none."""
    low, high = 0, len(versions.version)
    while low < high:
        middle = (low + high) // 2
        if versions.version[middle] < version:
            low = middle + 1
        else:
            high = middle
    while low < len(versions.version) and versions.version[low] == version:
        if _is_called(b, at, DATABASE, versions, low, 0) and _is_called(b, at, TABLE, versions, low, 2):
            return low
        low += 1
    return -1


@part
def _is_called(b: np.ndarray, at: np.ndarray, field: int, versions: Versions, table: int, part_of: int) -> bool:
    p, q = at[field], at[_ENDS + field]
    start, stop = versions.name[table, part_of], versions.name[table, part_of + 1]
    return b[p] == 0x22 and same_bytes(b, p + 1, q - 1, versions.text, start, stop)


@part
def _find_values(b: np.ndarray, p: int, end: int, table: int, versions: Versions) -> int:
    """Find where the value of each column lies in the object at ``p``; the position after it."""
    first = versions.first[table]
    n, rank, found = versions.first[table + 1] - first, -1, 0
    for j in range(n):
        versions.at[j, 0] = -1
    p, more = next_member(b, p + 1, end, 0x7D, True)
    while more:
        q, escaped = string_end(b, p, end)
        if q < 0 or escaped:
            return LEFT
        rank = _rank(b, p + 1, q - 1, first, n, rank + 1, versions)
        if rank < 0:
            return LEFT
        j = versions.column[first + rank, _BY_NAME]
        if versions.at[j, 0] >= 0:
            return LEFT
        p = after_name(b, q, end)
        if p < 0 or p >= end:
            return LEFT
        start, stop, escaped, q = _value(b, p, end)
        if q < 0 or (b[p] == 0x7B and versions.column[first + j, _FORM] >= IN_PYTHON):
            return LEFT
        versions.at[j, 0], versions.at[j, 1], versions.at[j, 2] = start, stop, escaped
        found += 1
        p, more = next_member(b, q, end, 0x7D, False)
    return p if p >= 0 and found else LEFT


@part
def _rank(b: np.ndarray, p: int, q: int, first: int, n: int, guess: int, versions: Versions) -> int:
    """The place by name of the column that the bytes name, or -1; ``guess`` goes first, then what comes after it."""
    for k in range(n):
        rank = guess + k if guess + k < n else guess + k - n
        c = first + versions.column[first + rank, _BY_NAME]
        if same_bytes(b, p, q, versions.text, versions.column[c, _NAME], versions.column[c, _NAME + 1]):
            return rank
    return -1


@part
def _value(b: np.ndarray, p: int, end: int) -> tuple[int, int, bool, int]:
    """Where a value's string or null lies, whether it has escapes, and the position after the value.

    A timestamp stands in an object behind its location: the string is that in ``value``.
    """
    if b[p] == 0x6E:
        q = literal_end(b, p, end)
        return p, q, False, q
    if b[p] == 0x22:
        q, escaped = string_end(b, p, end)
        return p, q, escaped, q
    if b[p] != 0x7B:
        return 0, 0, False, LEFT
    p = _named(b, skip_space(b, p + 1, end), end, b'"location"')
    if p < 0:
        return 0, 0, False, LEFT
    p, _ = string_end(b, p, end)
    p, more = next_member(b, p, end, 0x7D, False) if p >= 0 else (LEFT, False)
    p = _named(b, p, end, b'"value"') if more else LEFT
    if p < 0:
        return 0, 0, False, LEFT
    q, escaped = string_end(b, p, end)
    after, more = next_member(b, q, end, 0x7D, False) if q >= 0 else (LEFT, False)
    return p, q, escaped, LEFT if more else after


@part
def _named(b: np.ndarray, p: int, end: int, name: bytes) -> int:
    """The position of the value of the member at ``p``, if that is its name; the quotes belong to it."""
    q = p + len(name)
    return after_name(b, q, end) if q <= end and same(b, p, q, name) else LEFT


@part
def _put_image(b: np.ndarray, p: int, image: int, table: int, versions: Versions, st: State) -> int:
    """Write the columns that were found, in the table's order; ``p``, or a status below zero."""
    first = versions.first[table]
    which = N_AFTER if image == AFTER else N_BEFORE
    for j in range(versions.first[table + 1] - first):
        start, stop = versions.at[j, 0], versions.at[j, 1]
        if start < 0:
            continue
        c, i = st.count[which], first + j
        if not column_fits(
            st,
            image,
            versions.column[i, _NAME + 1] - versions.column[i, _NAME],
            versions.column[i, _TYPE + 1] - versions.column[i, _TYPE],
            room_for(stop - start) + FLOAT_ROOM,
        ):
            return NEED_MORE
        _put_span(st, image + NAMES, c, versions, i, _NAME)
        _put_span(st, image + TYPES, c, versions, i, _TYPE)
        if b[start] == 0x6E:
            put_null(st, image + VALUES, c)
        else:
            end = _put_value(b, start + 1, stop - 1, versions.at[j, 2] != 0, versions.column[i, _FORM], image, st)
            if end < 0:
                return LEFT
            close(st, image + VALUES, c, end)
        end_column(st, image, versions.column[i, _IS_KEY], -1)
    return p


@part
def _put_span(st: State, k: int, c: int, versions: Versions, i: int, which: int) -> None:
    start, stop = versions.column[i, which], versions.column[i, which + 1]
    close(st, k, c, put_bytes(versions.text, start, stop, st.data[k], st.size[k]))


@part
def _put_value(b: np.ndarray, p: int, q: int, escaped: bool, form: int, image: int, st: State) -> int:
    """Append the value that the string between the positions writes; the new end, or below zero where it is left."""
    out, o = st.data[image + VALUES], st.size[image + VALUES]
    if form == ANYTHING:
        return put_string(b, p, q, escaped, out, o)
    if escaped or form == IN_PYTHON:
        return LEFT
    if form == AS_BYTES:
        return put_base64(b, p, q, True, out, o, False)
    if form in (AS_DOUBLE, AS_FLOAT):
        return put_shortest(b, p, q, form == AS_FLOAT, out, o)
    stop = put_bytes(b, p, q, out, o)
    return stop if holds(form, out, o, stop) else LEFT
