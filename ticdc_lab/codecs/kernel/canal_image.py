"""The parts of canal-json that describe rows: ``mysqlType``, ``pkNames``, and the images in ``data`` and ``old``."""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.jit import part
from ticdc_lab.codecs.kernel.scan import after_name, fault_at, literal_end, next_member, same, string_end, word, word_of
from ticdc_lab.codecs.kernel.state import (
    State,
    close,
    column_fits,
    end_column,
    find_name,
    has_room,
    index_names,
    put_null,
    put_text,
    text_bytes,
)
from ticdc_lab.codecs.kernel.text import (
    holds_integer,
    is_number,
    put_bytes,
    put_float,
    put_latin1_hex,
    put_string,
    room_for,
)

NEED_MORE, BAD_TYPE, DUPLICATE_KEY = faults.NEED_MORE, faults.BAD_TYPE, faults.DUPLICATE_KEY
NO_COLUMN_TYPE, NOT_OF_TYPE, TOO_LARGE = faults.NO_COLUMN_TYPE, faults.NOT_OF_TYPE, faults.TOO_LARGE
MAX_COLUMNS, MAX_EVENTS = S.MAX_COLUMNS, S.MAX_EVENTS
AFTER, BEFORE, NAMES, TYPES, VALUES = S.AFTER, S.BEFORE, S.NAMES, S.TYPES, S.VALUES
TYPE_NAMES, TYPE_TEXTS, KEY_NAMES = S.TYPE_NAMES, S.TYPE_TEXTS, S.KEY_NAMES
TYPE_CLASS, TYPE_USED, TYPE_IS_KEY = S.TYPE_CLASS, S.TYPE_USED, S.TYPE_IS_KEY
N_EVENTS, N_AFTER, N_BEFORE = S.N_EVENTS, S.N_AFTER, S.N_BEFORE
AFTER_END, BEFORE_END = S.AFTER_END, S.BEFORE_END

# What has been read, kept in state.at; -1: not yet.
N_TYPES, TYPES_TABLE, N_KEYS, N_DATA, N_OLD = 32, 33, 34, 35, 36
N_IMAGES, GROWN_MAX = 37, 38
"""Images read so far, and where the texts of the message's events must end."""

PLAIN, BINARY, FLOAT, INTEGER = 0, 1, 2, 3
"""Classes of types; INTEGER and a number of bytes less one."""


_W_BLOB, _W_BINARY, _W_FLOAT, _W_DOUBLE = word_of(b"blob"), word_of(b"binary"), word_of(b"float"), word_of(b"double")
_W_TINYBLOB, _W_LONGBLOB = word_of(b"tinyblob"), word_of(b"longblob")
_W_INT, _W_INTEGER, _W_BIGINT, _W_YEAR = word_of(b"int"), word_of(b"integer"), word_of(b"bigint"), word_of(b"year")
_W_TINYINT, _W_SMALLINT = word_of(b"tinyint"), word_of(b"smallint")


@part
def read_types(b: np.ndarray, p: int, end: int, st: State) -> int:
    """Read ``mysqlType``; the position after it."""
    start = p
    if b[p] != 0x7B:
        return fault_at(BAD_TYPE, p)
    st.size[TYPE_NAMES] = st.size[TYPE_TEXTS] = 0
    n = 0
    p, more = next_member(b, p + 1, end, 0x7D, True)
    while more:
        if n >= st.limit[MAX_COLUMNS]:
            return fault_at(TOO_LARGE, p)
        q, escaped = string_end(b, p, end)
        if q < 0:
            return q
        if not has_room(st, TYPE_NAMES, n, q - p):
            return NEED_MORE
        put_text(st, TYPE_NAMES, n, b, p, q, escaped)
        p = after_name(b, q, end)
        if p < 0:
            return p
        if p >= end or b[p] != 0x22:
            return fault_at(BAD_TYPE, p)
        q, escaped = string_end(b, p, end)
        if q < 0:
            return q
        if not has_room(st, TYPE_TEXTS, n, q - p):
            return NEED_MORE
        put_text(st, TYPE_TEXTS, n, b, p, q, escaped)
        st.byte[TYPE_IS_KEY, n], st.number[TYPE_USED, n] = 0, -1
        st.byte[TYPE_CLASS, n] = _class(st.data[TYPE_TEXTS], st.end[TYPE_TEXTS, n], st.end[TYPE_TEXTS, n + 1])
        n += 1
        p, more = next_member(b, q, end, 0x7D, False)
    if p < 0:
        return p
    st.at[N_TYPES], st.at[TYPES_TABLE] = n, index_names(st, TYPE_NAMES, 0, n)
    return p if st.at[TYPES_TABLE] >= 0 else fault_at(DUPLICATE_KEY, start)


@part
def _class(b: np.ndarray, start: int, stop: int) -> int:
    """How the values of a MySQL type are written: bytes as Latin-1, floats in Go's form, all else as it is."""
    q = start
    while q < stop and b[q] != 0x28 and b[q] != 0x20:
        q += 1
    n, w = q - start, word(b, start, q)
    if n < 3 or n > 10:
        return PLAIN
    if (n == 3 and w == _W_INT) or (n == 7 and w == _W_INTEGER):
        return INTEGER + 3
    if (n == 6 and w == _W_BIGINT) or (n == 4 and w == _W_YEAR):
        return INTEGER + 7 if n == 6 else INTEGER + 1
    if n == 7 and w == _W_TINYINT:
        return INTEGER
    if (n == 8 and w == _W_SMALLINT) or (n == 9 and same(b, start, q, b"mediumint")):
        return INTEGER + 1 if n == 8 else INTEGER + 2
    if (n == 4 and w == _W_BLOB) or (n == 6 and w == _W_BINARY):
        return BINARY
    if (n == 5 and w == _W_FLOAT) or (n == 6 and w == _W_DOUBLE):
        return FLOAT
    if (n == 8 and w in (_W_TINYBLOB, _W_LONGBLOB)) or (n == 9 and same(b, start, q, b"varbinary")):
        return BINARY
    return BINARY if n == 10 and same(b, start, q, b"mediumblob") else PLAIN


@part
def read_keys(b: np.ndarray, p: int, end: int, st: State) -> int:
    """Read ``pkNames`` and mark the types of these columns; the position after it."""
    if b[p] != 0x5B:
        return fault_at(BAD_TYPE, p)
    n = 0
    p, more = next_member(b, p + 1, end, 0x5D, True)
    while more:
        if p >= end or b[p] != 0x22:
            return fault_at(BAD_TYPE, p)
        q, escaped = string_end(b, p, end)
        if q < 0:
            return q
        st.size[KEY_NAMES] = 0
        if not has_room(st, KEY_NAMES, 0, q - p):
            return NEED_MORE
        put_text(st, KEY_NAMES, 0, b, p, q, escaped)
        j = find_name(st, TYPE_NAMES, st.at[N_TYPES], st.at[TYPES_TABLE], KEY_NAMES, 0, n)
        if j >= 0:
            st.byte[TYPE_IS_KEY, j] = 1
        n += 1
        p, more = next_member(b, q, end, 0x5D, False)
    st.at[N_KEYS] = n
    return p


@part
def read_images(b: np.ndarray, p: int, end: int, image: int, field: int, st: State) -> int:
    """Read ``data`` or ``old``: where each image ends goes to the events to come. The position after it.

    ``field`` (N_DATA or N_OLD) is where the number of images is kept.
    """
    if b[p] != 0x5B:
        return fault_at(BAD_TYPE, p)
    ends, which = (AFTER_END, N_AFTER) if image == AFTER else (BEFORE_END, N_BEFORE)
    first, n = st.count[N_EVENTS], 0
    p, more = next_member(b, p + 1, end, 0x5D, True)
    while more:
        if n >= st.limit[MAX_EVENTS]:
            return fault_at(TOO_LARGE, p)
        if first + n >= st.valid.shape[1]:
            return NEED_MORE
        p = _image(b, p, end, image, st)
        if p < 0:
            return p
        if text_bytes(st) > st.at[GROWN_MAX]:
            return fault_at(TOO_LARGE, 0)
        n += 1
        st.number[ends, first + n] = st.count[which]
        p, more = next_member(b, p, end, 0x5D, False)
    st.at[field] = n
    return p


@part
def _image(b: np.ndarray, p: int, end: int, image: int, st: State) -> int:
    """Read ``{"column": "value", ..}``; the position after it."""
    which = N_AFTER if image == AFTER else N_BEFORE
    first, n_types = st.count[which], st.at[N_TYPES]
    if p >= end or b[p] != 0x7B:
        return fault_at(BAD_TYPE, p)
    this = st.at[N_IMAGES]
    st.at[N_IMAGES] = this + 1
    p, more = next_member(b, p + 1, end, 0x7D, True)
    while more:
        q, escaped = string_end(b, p, end)
        if q < 0:
            return q
        if not column_fits(st, image, q - p, 0, 0):
            return NEED_MORE
        c = st.count[which]
        put_text(st, image + NAMES, c, b, p, q, escaped)
        j = find_name(st, TYPE_NAMES, n_types, st.at[TYPES_TABLE], image + NAMES, c, c - first)
        if j < 0:
            return fault_at(NO_COLUMN_TYPE, p)
        if st.number[TYPE_USED, j] == this:
            return fault_at(DUPLICATE_KEY, p)
        st.number[TYPE_USED, j] = this
        p = after_name(b, q, end)
        if p < 0:
            return p
        q = _value(b, p, end, image, c, j, st)
        if q < 0:
            return q
        end_column(st, image, st.byte[TYPE_IS_KEY, j], -1)
        p, more = next_member(b, q, end, 0x7D, False)
    return p


@part
def _value(b: np.ndarray, p: int, end: int, image: int, c: int, j: int, st: State) -> int:
    """Write type ``j`` and the value at ``p`` into column ``c``; the position after the value."""
    types, values = image + TYPES, image + VALUES
    out = st.data[values]
    low, high = st.end[TYPE_TEXTS, j], st.end[TYPE_TEXTS, j + 1]
    if not column_fits(st, image, 0, high - low, 0):
        return NEED_MORE
    close(st, types, c, put_bytes(st.data[TYPE_TEXTS], low, high, st.data[types], st.size[types]))
    if p < end and b[p] == 0x6E:
        put_null(st, values, c)
        return literal_end(b, p, end)
    if p >= end or b[p] != 0x22:
        return fault_at(BAD_TYPE, p)
    q, escaped = string_end(b, p, end)
    if q < 0:
        return q
    if not has_room(st, values, c, room_for(q - p)):
        return NEED_MORE
    o, form = st.size[values], st.byte[TYPE_CLASS, j]
    if form == PLAIN:
        o = put_string(b, p + 1, q - 1, escaped, out, o)
    elif form >= INTEGER:
        stop = put_string(b, p + 1, q - 1, escaped, out, o)
        o = stop if holds_integer(out, o, stop, form - INTEGER) else fault_at(NOT_OF_TYPE, p)
    else:
        stop = put_string(b, p + 1, q - 1, escaped, st.text, 0)
        if form == BINARY:
            o = put_latin1_hex(st.text, 0, stop, out, o)
        elif is_number(st.text, 0, stop):
            o = put_float(st.text, 0, stop, out, o)
        else:
            o = fault_at(NOT_OF_TYPE, p)
    if o < 0:
        return fault_at(-o >> 40, p)
    close(st, values, c, o)
    return q
