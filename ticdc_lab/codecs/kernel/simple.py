"""Rows and watermarks of simple in JSON, as TiCDC writes them; what is written in another way is left to Python.

A message that this kernel decodes is one that :mod:`ticdc_lab.codecs.simple` decodes to the same event. It leaves
all else: a fault, a value that its type cannot hold, a table version that is not known, DDL and
bootstraps, JSON in another order, and floats whose digits may not be the fewest.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.decoded import Decoded
from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.avro import SIMPLE, decoded_in_avro
from ticdc_lab.codecs.kernel.avro_plans import AvroPlans, plans_of
from ticdc_lab.codecs.kernel.columns import decoded_in_part
from ticdc_lab.codecs.kernel.floats import FLOAT_ROOM, put_shortest
from ticdc_lab.codecs.kernel.holding import holds
from ticdc_lab.codecs.kernel.identity import set_row
from ticdc_lab.codecs.kernel.jit import kernel, part
from ticdc_lab.codecs.kernel.scan import (
    after_name,
    literal_end,
    next_member,
    same,
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
from ticdc_lab.codecs.kernel.tables import (
    AS_BYTES,
    AS_DOUBLE,
    AS_FLOAT,
    BY_NAME,
    FORM,
    IN_PYTHON,
    IS_KEY,
    NAME,
    TYPE_OF,
    Versions,
    rank_of,
    table_called,
    versions_of,
)
from ticdc_lab.codecs.kernel.text import (
    held_scalar_end,
    int64_of,
    put_base64,
    put_bytes,
    put_string,
    room_for,
)
from ticdc_lab.codecs.known import Bounds
from ticdc_lab.codecs.simple_avro import FIRST, flats
from ticdc_lab.codecs.simple_versions import Tables
from ticdc_lab.events.mysql_types import ANYTHING

OK, NEED_MORE, LEFT = faults.OK, faults.NEED_MORE, -2
ROW, WATERMARK, INSERT, UPDATE, DELETE = S.ROW, S.WATERMARK, S.INSERT, S.UPDATE, S.DELETE
SCHEMA_NAME, TABLE_NAME, TABLE_ID, HAS_TABLE_ID = S.SCHEMA_NAME, S.TABLE_NAME, S.TABLE_ID, S.HAS_TABLE_ID
AFTER, BEFORE, NAMES, TYPES, VALUES = S.AFTER, S.BEFORE, S.NAMES, S.TYPES, S.VALUES
N_AFTER, N_BEFORE = S.N_AFTER, S.N_BEFORE

VERSION, DATABASE, TABLE, TABLE_NUMBER, TYPE, COMMIT_TS, BUILD_TS, SCHEMA_VERSION, DATA, OLD, CHECKSUM = range(11)
CHECKSUM_VERSION, CORRUPTED, CURRENT, PREVIOUS = range(11, 15)
"""Fields of a message and of its checksum; ``state.at`` holds where the value of each begins and, 16 further, ends."""
_ENDS = 16

_W_VERSION, _W_DATABASE, _W_TABLE, _W_TABLE_ID = map(word_of, (b"version", b"database", b"table", b"tableID"))
_W_TYPE, _W_COMMIT_TS, _W_BUILD_TS, _W_DATA = map(word_of, (b"type", b"commitTs", b"buildTs", b"data"))
_W_OLD, _W_CHECKSUM = map(word_of, (b"old", b"checksum"))
_W_CURRENT, _W_PREVIOUS = map(word_of, (b"current", b"previous"))
_CHECKSUM_MAX = (1 << 32) - 1
_W_INSERT, _W_UPDATE, _W_DELETE = map(word_of, (b"INSERT", b"UPDATE", b"DELETE"))


class SimpleKernel:
    """The kernel over the table versions that its codec knows when a batch comes (:class:`~.decoded.PartKernel`)."""

    def __init__(self, known: Tables) -> None:
        self._known = known
        self._tables: Tables = {}
        self._versions: Versions | None = None
        self._plans: AvroPlans | None = None

    def __call__(self, batch: pa.RecordBatch, *, images: bool, bounds: Bounds) -> Decoded:
        """The events of rows and watermarks that the kernel decodes."""
        if self._versions is None or self._tables != self._known:
            self._tables = dict(self._known)
            self._versions = versions_of(self._tables, most_columns=bounds.columns)
        given = bounds.values, self._versions
        first = next((value for value in batch.column("value") if value.is_valid), None)
        if first is not None and first.as_buffer()[:1] == FIRST:
            self._plans = self._plans or plans_of(flats())
            return decoded_in_avro(batch, "simple", SIMPLE, self._plans, self._versions, images=images, bounds=bounds)
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
    """Decode values of up to ``longest`` bytes, except those left to Python. NEED_MORE or OK."""
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
    for k in range(PREVIOUS + 1):
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
        if field == CHECKSUM:
            q = _checksum(b, p, end, at)
        else:
            q = _rows_image(b, p, end, field, versions, st) if field >= DATA else held_scalar_end(b, p, end)
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
        return (
            COMMIT_TS if w == _W_COMMIT_TS else DATABASE if w == _W_DATABASE else CHECKSUM if w == _W_CHECKSUM else -1
        )
    if n == 3:
        return OLD if w == _W_OLD else -1
    return SCHEMA_VERSION if n == 13 and same(b, p, q, b"schemaVersion") else -1


@part
def _checksum(b: np.ndarray, p: int, end: int, at: np.ndarray) -> int:
    """Find the fields of the checksum at ``p``; the position after it. What is no object is left, null included."""
    if b[p] != 0x7B:
        return LEFT
    p, more = next_member(b, p + 1, end, 0x7D, True)
    while more:
        q, escaped = string_end(b, p, end)
        if q < 0 or escaped:
            return LEFT
        field = _checksum_field(b, p + 1, q - 1)
        if field < 0 or at[field] >= 0:
            return LEFT
        p = after_name(b, q, end)
        if p < 0 or p >= end:
            return LEFT
        q = held_scalar_end(b, p, end)
        if q < 0:
            return LEFT
        at[field], at[_ENDS + field] = p, q
        p, more = next_member(b, q, end, 0x7D, False)
    return p if p >= 0 else LEFT


@part
def _checksum_field(b: np.ndarray, p: int, q: int) -> int:
    n, w = q - p, word(b, p, q)
    if n == 7:
        return CURRENT if w == _W_CURRENT else CHECKSUM_VERSION if w == _W_VERSION else -1
    if n == 8:
        return PREVIOUS if w == _W_PREVIOUS else -1
    return CORRUPTED if n == 9 and same(b, p, q, b"corrupted") else -1


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
    for field, image, number, there in (
        (CURRENT, DATA, S.CHECKSUM, S.HAS_CHECKSUM), (PREVIOUS, OLD, S.CHECKSUM_BEFORE, S.HAS_CHECKSUM_BEFORE),
    ):  # fmt: skip
        if at[field] >= 0 and at[image] >= 0 and b[at[field]] != 0x6E:
            value, counted = _count(b, at, field)
            if not counted or value > _CHECKSUM_MAX:
                return LEFT
            st.number[number, i], st.byte[there, i] = value, 1
    if at[CORRUPTED] >= 0 and b[at[CORRUPTED]] == 0x74:
        st.byte[S.INCOMPLETE, i] = S.CORRUPTED
    put_ts(st, i, ts)
    set_row(st, i, op)
    return OK


@part
def _rows_image(b: np.ndarray, p: int, end: int, field: int, versions: Versions, st: State) -> int:
    """Read an image, if its table's definition came before; the position after it, or a status below zero."""
    at = st.at
    if at[DATABASE] < 0 or at[TABLE] < 0 or at[SCHEMA_VERSION] < 0:
        return LEFT
    version, counted = _count(b, at, SCHEMA_VERSION)
    if not counted or b[at[DATABASE]] != 0x22 or b[at[TABLE]] != 0x22 or b[p] != 0x7B:
        return LEFT
    db, db_stop = at[DATABASE] + 1, at[_ENDS + DATABASE] - 1
    table = table_called(b, db, db_stop, at[TABLE] + 1, at[_ENDS + TABLE] - 1, version, versions)
    if table < 0:
        return LEFT
    p = _find_values(b, p, end, table, versions)
    return p if p < 0 else _put_image(b, p, AFTER if field == DATA else BEFORE, table, versions, st)


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
        rank = rank_of(b, p + 1, q - 1, first, n, rank + 1, versions)
        if rank < 0:
            return LEFT
        j = versions.column[first + rank, BY_NAME]
        if versions.at[j, 0] >= 0:
            return LEFT
        p = after_name(b, q, end)
        if p < 0 or p >= end:
            return LEFT
        start, stop, escaped, q = _value(b, p, end)
        if q < 0 or (b[p] == 0x7B and versions.column[first + j, FORM] >= IN_PYTHON):
            return LEFT
        versions.at[j, 0], versions.at[j, 1], versions.at[j, 2] = start, stop, escaped
        found += 1
        p, more = next_member(b, q, end, 0x7D, False)
    return p if p >= 0 and found else LEFT


@part
def _value(b: np.ndarray, p: int, end: int) -> tuple[int, int, bool, int]:
    """Where a value's string or null lies, whether it has escapes, and the position after the value.

    A timestamp is in an object behind its location: the string in ``value``.
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
        if versions.column[i, FORM] == IN_PYTHON:  # also of a type that is none, whose null is a fault, too
            return LEFT
        if not column_fits(
            st,
            image,
            versions.column[i, NAME + 1] - versions.column[i, NAME],
            versions.column[i, TYPE_OF + 1] - versions.column[i, TYPE_OF],
            room_for(stop - start) + FLOAT_ROOM,
        ):
            return NEED_MORE
        _put_span(st, image + NAMES, c, versions, i, NAME)
        _put_span(st, image + TYPES, c, versions, i, TYPE_OF)
        if b[start] == 0x6E:
            put_null(st, image + VALUES, c)
        else:
            end = _put_value(b, start + 1, stop - 1, versions.at[j, 2] != 0, versions.column[i, FORM], image, st)
            if end < 0:
                return LEFT
            close(st, image + VALUES, c, end)
        end_column(st, image, versions.column[i, IS_KEY], -1)
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
    if escaped:
        return LEFT
    if form == AS_BYTES:
        return put_base64(b, p, q, True, out, o, False)
    if form in (AS_DOUBLE, AS_FLOAT):
        return put_shortest(b, p, q, form == AS_FLOAT, out, o)
    stop = put_bytes(b, p, q, out, o)
    return stop if holds(form, out, o, stop) else LEFT
