"""Rows of canal's protobuf, as TiCDC writes them; what is written in another way is left to Python.

It leaves DDL, fields that TiCDC does not write, those it writes once that come again, and types in capitals.
"""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.canal import MESSAGES_PACKET, ROW_DATA
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

# Tags as they stand on the wire: the field's number, and whether it is a number (0) or a length with bytes (2).
_PACKET_TYPE, _COMPRESSION, _BODY, _MESSAGE = 3 << 3, 4 << 3, 5 << 3 | 2, 2 << 3 | 2
_HEADER, _ENTRY_TYPE, _STORE = 1 << 3 | 2, 2 << 3, 3 << 3 | 2
_CHARSET, _SCHEMA, _TABLE, _PAIR = 5 << 3 | 2, 8 << 3 | 2, 9 << 3 | 2, 12 << 3 | 2
_EVENT_TYPE, _IS_DDL, _SQL, _ROW, _DDL_SCHEMA = 2 << 3, 10 << 3, 11 << 3 | 2, 12 << 3 | 2, 14 << 3 | 2
_COLUMN_BEFORE, _COLUMN_AFTER = 1 << 3 | 2, 2 << 3 | 2
_NAME, _KEY, _UPDATED, _NULL, _VALUE, _TYPE = 3 << 3 | 2, 4 << 3, 5 << 3, 6 << 3, 8 << 3 | 2, 10 << 3 | 2

# Where ``state.at`` holds the parts of a message: positions from and to.
_AT_BODY, _AT_HEADER, _AT_STORE, _AT_SCHEMA, _AT_TABLE, _AT_NAME, _AT_VALUE, _AT_TYPE = range(0, 16, 2)

_GROWN_MAX = 16
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
def _keep(at: np.ndarray, place: int, start: int, stop: int) -> bool:
    """Keep where a part lies; whether it is the first."""
    first = at[place] < 0
    at[place], at[place + 1] = start, stop
    return first


@part
def _is_text(b: np.ndarray, start: int, stop: int) -> bool:
    return checked_utf8(b, start, stop, 0) >= 0


@part
def _message(
    m: int, kb: np.ndarray, kp: int, kend: int, b: np.ndarray, p: int, end: int, st: State
) -> int:  # fmt: skip
    """Decode one message."""
    at, first = st.at, st.count[S.N_EVENTS]
    at[_AT_BODY] = -1
    at[_GROWN_MAX] = text_bytes(st) + st.limit[S.MAX_GROWTH_FREE] + st.limit[S.MAX_GROWTH] * (end - p)
    kind, seen = 0, 0
    while p < end:
        tag, value, p = _field(b, p, end)
        if p < 0 or tag > _BODY or seen >> tag & 1:
            return LEFT
        seen |= 1 << tag
        if tag == _PACKET_TYPE:
            kind = value
        elif tag == _BODY:
            at[_AT_BODY], at[_AT_BODY + 1] = value, p
        elif tag & 7 or (tag == _COMPRESSION and not 0 <= value <= 1):
            return LEFT
    if kind != MESSAGES_PACKET or at[_AT_BODY] < 0:
        return LEFT
    p, end = at[_AT_BODY], at[_AT_BODY + 1]
    while p < end:
        tag, value, p = _field(b, p, end)
        if p < 0 or (tag != _MESSAGE and tag != 1 << 3):
            return LEFT
        status = _entry(m, first, b, value, p, st) if tag == _MESSAGE else OK
        if status < 0:
            return status
    return OK if st.count[S.N_EVENTS] > first else LEFT


@part
def _entry(m: int, first: int, b: np.ndarray, p: int, end: int, st: State) -> int:
    at = st.at
    at[_AT_HEADER] = at[_AT_STORE] = at[_AT_SCHEMA] = at[_AT_TABLE] = -1
    kind = -1
    while p < end:
        tag, value, p = _field(b, p, end)
        if p < 0:
            return LEFT
        once = False
        if tag == _HEADER:
            once = _keep(at, _AT_HEADER, value, p)
        elif tag == _STORE:
            once = _keep(at, _AT_STORE, value, p)
        elif tag == _ENTRY_TYPE:
            once, kind = kind < 0, value
        if not once:
            return LEFT
    if kind != ROW_DATA or at[_AT_HEADER] < 0 or at[_AT_STORE] < 0 or not _read_header(b, st):
        return LEFT
    return _rows(m, first, b, at[_AT_STORE], at[_AT_STORE + 1], st)


@part
def _read_header(b: np.ndarray, st: State) -> bool:
    """Find the names of schema and table; False where the entry is left."""
    at = st.at
    p, end = at[_AT_HEADER], at[_AT_HEADER + 1]
    while p < end:
        tag, value, p = _field(b, p, end)
        if p < 0:
            return False
        if tag == _PAIR:
            q = value
            while q < p:
                inner, start, q = _field(b, q, p)
                if q < 0 or (inner != 1 << 3 | 2 and inner != 2 << 3 | 2) or not _is_text(b, start, q):
                    return False
        elif tag & 7:
            if (tag != _CHARSET and tag != _SCHEMA and tag != _TABLE) or not _is_text(b, value, p):
                return False
            if tag == _SCHEMA and not _keep(at, _AT_SCHEMA, value, p):
                return False
            if tag == _TABLE and not _keep(at, _AT_TABLE, value, p):
                return False
    return 0 <= at[_AT_SCHEMA] < at[_AT_SCHEMA + 1] and 0 <= at[_AT_TABLE] < at[_AT_TABLE + 1]


@part
def _rows(m: int, first: int, b: np.ndarray, start: int, end: int, st: State) -> int:
    """Read the rows of an entry, in two passes: what kind of change they are may come behind them."""
    kind, n, p = 0, 0, start
    while p < end:
        tag, value, p = _field(b, p, end)
        if p < 0 or (tag == _EVENT_TYPE and kind):
            return LEFT
        if tag == _EVENT_TYPE:
            kind = value
        elif tag == _ROW:
            n += 1
        elif tag & 7:
            if (tag != _SQL and tag != _DDL_SCHEMA) or not _is_text(b, value, p):
                return LEFT
        elif tag == _IS_DDL and value:
            return LEFT
    if not 1 <= kind <= 3 or n == 0 or st.count[S.N_EVENTS] - first + n > st.limit[S.MAX_EVENTS]:
        return LEFT
    op = S.INSERT if kind == 1 else S.UPDATE if kind == 2 else S.DELETE
    p = start
    while p < end:
        tag, value, p = _field(b, p, end)
        if tag == _ROW:
            status = _row(m, st.count[S.N_EVENTS] - first, op, b, value, p, st)
            if status < 0:
                return status
    return OK


@part
def _row(m: int, seq: int, op: int, b: np.ndarray, p: int, end: int, st: State) -> int:
    at = st.at
    after, before = st.count[S.N_AFTER], st.count[S.N_BEFORE]
    while p < end:
        tag, value, p = _field(b, p, end)
        if p < 0 or (tag != _COLUMN_BEFORE and tag != _COLUMN_AFTER):
            return LEFT
        status = _column(b, value, p, S.BEFORE if tag == _COLUMN_BEFORE else S.AFTER, st)
        if status < 0:
            return status
    if (
        (op == S.UPDATE and st.count[S.N_BEFORE] == before)
        or index_names(st, S.AFTER + S.NAMES, after, st.count[S.N_AFTER]) < 0
        or index_names(st, S.BEFORE + S.NAMES, before, st.count[S.N_BEFORE]) < 0
    ):
        return LEFT
    schema, schema_stop, table, table_stop = at[_AT_SCHEMA], at[_AT_SCHEMA + 1], at[_AT_TABLE], at[_AT_TABLE + 1]
    status = put_row(m, seq, op, b, schema, schema_stop, table, table_stop, False, st)
    return LEFT if status == OK and text_bytes(st) > at[_GROWN_MAX] else status


@part
def _column(b: np.ndarray, p: int, end: int, image: int, st: State) -> int:
    at = st.at
    at[_AT_NAME] = at[_AT_VALUE] = at[_AT_TYPE] = at[_AT_NAME + 1] = at[_AT_VALUE + 1] = at[_AT_TYPE + 1] = -1
    is_key, is_null, seen = 0, 0, 0
    while p < end:
        tag, value, p = _field(b, p, end)
        if p < 0 or tag > _TYPE or seen >> (tag >> 3) & 1:
            return LEFT
        seen |= 1 << (tag >> 3)
        place = _AT_NAME if tag == _NAME else _AT_VALUE if tag == _VALUE else _AT_TYPE if tag == _TYPE else -1
        if place >= 0:
            at[place], at[place + 1] = value, p
            if not _is_text(b, value, p):
                return LEFT
        elif tag == _KEY:
            is_key = value != 0
        elif tag == _NULL:
            is_null = value != 0
        elif tag & 7 or tag > _UPDATED:
            return LEFT
    for place in (_AT_NAME, _AT_VALUE, _AT_TYPE):
        at[place], at[place + 1] = max(at[place], 0), max(at[place + 1], 0)  # one that is not there is empty
    start, stop = at[_AT_VALUE], at[_AT_VALUE + 1]
    which = S.N_AFTER if image == S.AFTER else S.N_BEFORE
    c = st.count[which]
    if not column_fits(
        st, image, at[_AT_NAME + 1] - at[_AT_NAME], at[_AT_TYPE + 1] - at[_AT_TYPE], room_for(stop - start)
    ):
        return NEED_MORE
    put_plain(st, image + S.NAMES, c, b, at[_AT_NAME], at[_AT_NAME + 1])
    put_plain(st, image + S.TYPES, c, b, at[_AT_TYPE], at[_AT_TYPE + 1])
    form = _form(b, at[_AT_TYPE], at[_AT_TYPE + 1])
    if form < 0 or form == NO_MYSQL_TYPE:
        return LEFT
    if is_null:
        put_null(st, image + S.VALUES, c)
    else:
        o = _put_value(b, start, stop, form, image, st)
        if o < 0:
            return LEFT
        close(st, image + S.VALUES, c, o)
    end_column(st, image, is_key, -1)
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
