"""Rows of canal's protobuf, as TiCDC writes them; what is written in another way is left to Python.

It leaves DDL, fields that TiCDC does not write, those it writes once that come again, and types in capitals.
"""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.canal import FIELDS, MESSAGES_PACKET, ROW_DATA
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.canal_image import BYTES, class_of
from ticdc_lab.codecs.kernel.columns import MOST_ROOM
from ticdc_lab.codecs.kernel.faults import NEED_MORE, OK
from ticdc_lab.codecs.kernel.holding import holds
from ticdc_lab.codecs.kernel.in_part import LEFT, KernelAlone, put_row
from ticdc_lab.codecs.kernel.jit import part
from ticdc_lab.codecs.kernel.state import (
    State,
    close,
    column_fits,
    end_column,
    index_names,
    put_null,
    put_plain,
    text_bytes,
)
from ticdc_lab.codecs.kernel.text import (
    checked_utf8,
    digits_of,
    is_number,
    put_bytes,
    put_float,
    put_latin1_hex,
    put_single,
    room_for,
)
from ticdc_lab.events.mysql_types import ANYTHING, FINITE, NO_MYSQL_TYPE, SINGLE

_NUMBER, _BYTES, _TEXT, _MANY, _PAIRS = range(1, 6)
"""What a field is: bytes are a message, too, and many are read by who needs each."""
_KINDS = {"int32": _NUMBER, "int64": _NUMBER, "bool": _NUMBER, "string": _TEXT, "Pair*": _PAIRS}
_FIELDS = 16
"""So many numbers fit a tag of one byte."""


def _described(message: str) -> np.ndarray:
    """What each field is, by its number; 0: TiCDC does not write it."""
    found = np.zeros(_FIELDS, np.int64)
    for number, kind in FIELDS[message].values():
        found[number] = _KINDS.get(kind, _MANY if kind.endswith("*") else _BYTES)
    return found


_PACKET, _ENTRY, _HEADER, _CHANGE, _COLUMN = map(_described, ("Packet", "Entry", "Header", "RowChange", "Column"))
_BESIDE = 20
"""``state.at`` holds of field ``i`` its number or where it begins, at ``2 * i``, and behind that where it ends, which
is below zero where it is absent; of a column so much further, as schema and table of its row lie before."""
_TYPE, _COMPRESSION, _BODY = 3, 4, 5
_HEADED, _ENTRY_TYPE, _STORE = 1, 2, 3
_SCHEMA, _TABLE = 8, 9
_EVENT_TYPE, _IS_DDL, _ROWS = 2, 10, 12
_MESSAGE, _BEFORE, _AFTER = 2, 1, 2
_NAME, _IS_KEY, _IS_NULL, _VALUE, _MYSQL_TYPE = (2 * i + _BESIDE for i in (3, 4, 6, 8, 10))

_GROWN_MAX = 43
"""Where it holds how many bytes the texts of the message's events, and of those before it, may take."""

_DECIMAL_DIGITS = 28
"""Digits that Python's decimals keep of a number."""


@part
def _number(b: np.ndarray, p: int, end: int) -> tuple[int, int]:
    """The number at ``p``, -1 for any below zero, and the position after it, or LEFT."""
    value, shift = 0, 0
    while p < end:
        if shift == 63:
            return -1, p + 1 if b[p] == 1 else LEFT
        value |= (b[p] & 0x7F) << shift
        p += 1
        if b[p - 1] < 0x80:
            return value, p
        shift += 7
    return 0, LEFT


@part
def _field(b: np.ndarray, p: int, end: int) -> tuple[int, int, int]:
    """The field at ``p``: its tag, its number or where its bytes begin, and the position after it, or LEFT."""
    tag = np.int64(b[p])
    value, p = _number(b, p + 1, end)
    if p < 0 or not 0x08 <= tag < 0x80:
        return tag, 0, LEFT
    if tag & 7 == 0:
        return tag, value, p
    return (tag, p, p + value) if tag & 7 == 2 and 0 <= value <= end - p else (tag, 0, LEFT)


@part
def _is_text(b: np.ndarray, start: int, stop: int) -> bool:
    return checked_utf8(b, start, stop, 0) >= 0


@part
def _read(b: np.ndarray, p: int, end: int, fields: np.ndarray, beside: int, at: np.ndarray) -> bool:
    """Find the fields of a protobuf message; False where one is none of those described, or comes twice."""
    for i in range(beside, _GROWN_MAX - 1 if beside else 2 * _FIELDS):
        at[i] = -1
    while p < end:
        tag, value, p = _field(b, p, end)
        if p < 0:
            return False
        i, kind = beside + 2 * (tag >> 3), fields[tag >> 3]
        if kind == 0 or (kind == _NUMBER) != (tag & 7 == 0) or (at[i + 1] >= 0 and kind < _MANY):
            return False
        if kind == _TEXT and not _is_text(b, value, p):
            return False
        q = value if kind == _PAIRS else p
        while q < p:
            inner, start, q = _field(b, q, p)
            if q < 0 or (inner != 1 << 3 | 2 and inner != 2 << 3 | 2) or not _is_text(b, start, q):
                return False
        at[i], at[i + 1] = value, p
    return True


@part
def _is_set(at: np.ndarray, field: int) -> bool:
    return at[field + 1] >= 0 and at[field] != 0


@part
def _message(m: int, kb: np.ndarray, kp: int, kend: int, b: np.ndarray, p: int, end: int, st: State) -> int:
    """Decode one message."""
    at, first = st.at, st.count[S.N_EVENTS]
    at[_GROWN_MAX] = text_bytes(st) + st.limit[S.MAX_GROWTH_FREE] + st.limit[S.MAX_GROWTH] * (end - p)
    if not _read(b, p, end, _PACKET, 0, at) or at[2 * _TYPE] != MESSAGES_PACKET or at[2 * _BODY] < 0:
        return LEFT
    p, end, compressed = at[2 * _BODY], at[2 * _BODY + 1], at[2 * _COMPRESSION]
    if compressed > 1 or compressed < 0 <= at[2 * _COMPRESSION + 1]:
        return LEFT
    while p < end:
        tag, value, p = _field(b, p, end)
        if p < 0 or (tag != _MESSAGE << 3 | 2 and tag != 1 << 3):
            return LEFT
        status = _entry(m, first, b, value, p, st) if tag & 7 else OK
        if status < 0:
            return status
    return OK if st.count[S.N_EVENTS] > first else LEFT


@part
def _entry(m: int, first: int, b: np.ndarray, p: int, end: int, st: State) -> int:
    """Decode the rows of an entry, in two passes: what kind of change they are may come behind them."""
    at = st.at
    if not _read(b, p, end, _ENTRY, 0, at) or at[2 * _ENTRY_TYPE] != ROW_DATA:
        return LEFT
    header, header_end, p, end = at[2 * _HEADED], at[2 * _HEADED + 1], at[2 * _STORE], at[2 * _STORE + 1]
    if header < 0 or p < 0 or not _read(b, p, end, _CHANGE, 0, at) or _is_set(at, 2 * _IS_DDL):
        return LEFT
    kind, rows = at[2 * _EVENT_TYPE], at[2 * _ROWS]
    if not 1 <= kind <= 3 or rows < 0 or not _read(b, header, header_end, _HEADER, 0, at):
        return LEFT
    if not (0 <= at[2 * _SCHEMA] < at[2 * _SCHEMA + 1] and 0 <= at[2 * _TABLE] < at[2 * _TABLE + 1]):
        return LEFT
    op = S.INSERT if kind == 1 else S.UPDATE if kind == 2 else S.DELETE
    while p < end:
        tag, value, p = _field(b, p, end)
        if tag == _ROWS << 3 | 2:
            seq = st.count[S.N_EVENTS] - first
            status = _row(m, seq, op, b, value, p, st) if seq < st.limit[S.MAX_EVENTS] else LEFT
            if status < 0:
                return status
    return OK


@part
def _row(m: int, seq: int, op: int, b: np.ndarray, p: int, end: int, st: State) -> int:
    at = st.at
    after, before = st.count[S.N_AFTER], st.count[S.N_BEFORE]
    while p < end:
        tag, value, p = _field(b, p, end)
        if p < 0 or (tag != _BEFORE << 3 | 2 and tag != _AFTER << 3 | 2):
            return LEFT
        status = _column(b, value, p, S.BEFORE if tag >> 3 == _BEFORE else S.AFTER, st)
        if status < 0:
            return status
    if (
        (op == S.UPDATE and st.count[S.N_BEFORE] == before)
        or index_names(st, S.AFTER + S.NAMES, after, st.count[S.N_AFTER]) < 0
        or index_names(st, S.BEFORE + S.NAMES, before, st.count[S.N_BEFORE]) < 0
    ):
        return LEFT
    schema, schema_stop, table, table_stop = at[2 * _SCHEMA], at[2 * _SCHEMA + 1], at[2 * _TABLE], at[2 * _TABLE + 1]
    status = put_row(m, seq, op, b, schema, schema_stop, table, table_stop, False, st)
    return LEFT if status == OK and text_bytes(st) > at[_GROWN_MAX] else status


@part
def _column(b: np.ndarray, p: int, end: int, image: int, st: State) -> int:
    at = st.at
    if not _read(b, p, end, _COLUMN, _BESIDE, at):
        return LEFT
    for field in (_NAME, _VALUE, _MYSQL_TYPE):
        at[field], at[field + 1] = max(at[field], 0), max(at[field + 1], 0)  # one that is not there is empty
    start, stop = at[_VALUE], at[_VALUE + 1]
    which = S.N_AFTER if image == S.AFTER else S.N_BEFORE
    c = st.count[which]
    if not column_fits(
        st, image, at[_NAME + 1] - at[_NAME], at[_MYSQL_TYPE + 1] - at[_MYSQL_TYPE], room_for(stop - start)
    ):
        return NEED_MORE
    put_plain(st, image + S.NAMES, c, b, at[_NAME], at[_NAME + 1])
    put_plain(st, image + S.TYPES, c, b, at[_MYSQL_TYPE], at[_MYSQL_TYPE + 1])
    form = _form(b, at[_MYSQL_TYPE], at[_MYSQL_TYPE + 1])
    if form < 0 or form == NO_MYSQL_TYPE:
        return LEFT
    if _is_set(at, _IS_NULL):
        put_null(st, image + S.VALUES, c)
    else:
        o = _put_value(b, start, stop, form, image, st)
        if o < 0:
            return LEFT
        close(st, image + S.VALUES, c, o)
    end_column(st, image, _is_set(at, _IS_KEY), -1)
    return OK


@part
def _form(b: np.ndarray, p: int, stop: int) -> int:
    """The class of a type; LEFT where its name is not in small letters alone."""
    q = p
    while q < stop and 0x61 <= b[q] <= 0x7A:
        q += 1
    return class_of(b, p, stop) if q > p and (q == stop or b[q] == 0x28 or b[q] == 0x20) else LEFT


@part
def _is_plain_number(b: np.ndarray, start: int, stop: int) -> bool:
    """Whether text has the form ``-?digits[.digits]``."""
    for p in range(start, stop):
        if b[p] | 0x20 == 0x65:
            return False
    return is_number(b, start, stop)


@part
def _put_value(b: np.ndarray, p: int, q: int, form: int, image: int, st: State) -> int:
    """Append the value; the new end, or below zero where it is left."""
    out, o = st.data[image + S.VALUES], st.size[image + S.VALUES]
    if form == BYTES:
        return put_latin1_hex(b, p, q, out, o)
    if form in (FINITE, SINGLE):
        if not _is_plain_number(b, p, q):
            return LEFT
        first, last, _ = digits_of(b, p, q)
        if last - first >= _DECIMAL_DIGITS:
            return LEFT
        return put_single(b, p, q, out, o) if form == SINGLE else put_float(b, p, q, out, o)
    stop = put_bytes(b, p, q, out, o)
    return stop if form == ANYTHING or holds(form, out, o, stop) else LEFT


KERNEL = KernelAlone("canal", _message, longest=MOST_ROOM)
"""The kernel over a batch; of protobuf Python counts no values."""
