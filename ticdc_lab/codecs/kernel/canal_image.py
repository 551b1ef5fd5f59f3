"""The parts of canal-json that describe rows: ``mysqlType``, ``pkNames``, and the images in ``data`` and ``old``."""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.holding import holds
from ticdc_lab.codecs.kernel.jit import part, small_kernel
from ticdc_lab.codecs.kernel.numbering import BLOCK
from ticdc_lab.codecs.kernel.scan import (
    after_name,
    fault_at,
    literal_end,
    next_member,
    same_bytes,
    skip_space,
    string_end,
    word,
    word_of,
)
from ticdc_lab.codecs.kernel.state import (
    SMALL,
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
    is_number,
    put_bytes,
    put_float,
    put_latin1_hex,
    put_single,
    put_string,
    room_for,
)
from ticdc_lab.codecs.kernel.wide import block_fits, copy_block, plain_run
from ticdc_lab.events import mysql_types as m

NEED_MORE, BAD_TYPE, DUPLICATE_KEY = faults.NEED_MORE, faults.BAD_TYPE, faults.DUPLICATE_KEY
NO_SUCH_TYPE = faults.NO_SUCH_TYPE
NO_COLUMN_TYPE, NOT_OF_TYPE, TOO_LARGE = faults.NO_COLUMN_TYPE, faults.NOT_OF_TYPE, faults.TOO_LARGE
MAX_COLUMNS, MAX_EVENTS = S.MAX_COLUMNS, S.MAX_EVENTS
AFTER, BEFORE, NAMES, TYPES, VALUES = S.AFTER, S.BEFORE, S.NAMES, S.TYPES, S.VALUES
AFTER_IS_KEY, AFTER_FLAGS, AFTER_HAS_FLAGS = S.AFTER_IS_KEY, S.AFTER_FLAGS, S.AFTER_HAS_FLAGS
TYPE_NAMES, TYPE_TEXTS, KEY_NAMES = S.TYPE_NAMES, S.TYPE_TEXTS, S.KEY_NAMES
TYPE_CLASS, TYPE_USED, TYPE_IS_KEY = S.TYPE_CLASS, S.TYPE_USED, S.TYPE_IS_KEY
TYPE_RAW, TYPE_RAW_END = S.TYPE_RAW, S.TYPE_RAW_END
N_EVENTS, N_AFTER, N_BEFORE = S.N_EVENTS, S.N_AFTER, S.N_BEFORE
AFTER_END, BEFORE_END = S.AFTER_END, S.BEFORE_END

# What has been read, kept in state.at; -1: not yet.
N_TYPES, TYPES_TABLE, N_KEYS, N_DATA, N_OLD = 32, 33, 34, 35, 36
GROWN_MAX = 37
"""Where the texts of the message's events must end."""

TYPES_START, TYPES_END, LAST_N_TYPES, LAST_TYPES_TABLE, KEYS_START, KEYS_END, SQL_TYPES_START, SQL_TYPES_END = range(8)
IMAGES = 8
"""In state.last: where ``mysqlType``, ``pkNames`` and ``sqlType`` of an earlier message lie, whose types are in the
state, as rows of a table repeat them, byte for byte; and how many images were read."""

ANYTHING, FINITE, SINGLE, NO_MYSQL_TYPE, BYTES = m.ANYTHING, m.FINITE, m.SINGLE, m.NO_MYSQL_TYPE, 255
"""Classes of types: what fits them (``MySQLType.holds``), or bytes as Latin-1."""


def _class_table() -> tuple[np.ndarray, np.ndarray, np.uint64]:
    """By a slot that a type's name has alone: its length, first eight bytes and rest, and its class."""
    classes = {n.encode(): BYTES if n in m.BINARIES else m.held_by(n) for n in (*m.BY_NAME, *sorted(m.OTHER_NAMES))}
    for factor in range(0x9E3779B97F4A7C15, 1 << 64, 2):
        slots = {_slot_of(int(word_of(name)), factor): name for name in classes}
        if len(slots) == len(classes):
            break
    names, found = np.zeros((_SLOTS, 3), np.uint64), np.full(_SLOTS, NO_MYSQL_TYPE, np.uint8)
    for slot, name in slots.items():
        names[slot], found[slot] = (len(name), word_of(name), word_of(name[8:])), classes[name]
    return names, found, np.uint64(factor)


_SLOTS, _SHIFT = 1024, 54
_SMALL = np.uint64(0x2020202020202020)
"""Makes small letters of large ones; names of types have only letters."""


def _slot_of(first: int, factor: int) -> int:
    return (first * factor & (1 << 64) - 1) >> _SHIFT


_NAMES, _CLASSES, _FACTOR = _class_table()
_NULL = word_of(b"null")


@small_kernel
def end_as_last(b: np.ndarray, p: int, end: int, start: int, stop: int) -> int:
    """The position after a value at ``p`` that is, byte for byte, an earlier one; below zero where it is not."""
    q = p + stop - start
    return q if start >= 0 and q <= end and same_bytes(b, p, q, b, start, stop) else -1


@part
def _end_as_turned(b: np.ndarray, p: int, end: int, st: State) -> int:
    """The position after types at ``p`` that are the last ones, byte for byte, from another of them on and round.

    Go writes the members of a small map so. Below zero where they are not.
    """
    start, stop = st.last[TYPES_START], st.last[TYPES_END]
    q = p + stop - start
    if start < 0 or q > end:
        return -1
    for j in range(1, st.last[LAST_N_TYPES]):
        low, high = st.number[TYPE_RAW, j], st.number[TYPE_RAW_END, j]
        if same_bytes(b, p + 1, p + 1 + high - low, b, low, high):
            turn = p + stop - low  # where the first of the last ones stands, behind a comma
            whole = b[p] == 0x7B and b[turn] == 0x2C and b[low - 1] == 0x2C and b[q - 1] == 0x7D
            whole = whole and same_bytes(b, p + 1, turn, b, low, stop - 1)
            return q if whole and same_bytes(b, turn + 1, q - 1, b, start + 1, low - 1) else -1
    return -1


@part
def read_types(b: np.ndarray, p: int, end: int, keys: int, keys_end: int, st: State) -> int:
    """Read ``mysqlType``; the position after it. ``keys``: where ``pkNames`` lies, below zero: not known yet."""
    last, start = st.last, p
    q = end_as_last(b, p, end, last[TYPES_START], last[TYPES_END])
    if q < 0:
        q = _end_as_turned(b, p, end, st)
    if q >= 0:
        n = st.at[N_TYPES] = last[LAST_N_TYPES]
        st.at[TYPES_TABLE] = last[LAST_TYPES_TABLE]
        if keys >= 0 and end_as_last(b, keys, keys_end, last[KEYS_START], last[KEYS_END]) == keys_end:
            st.at[N_KEYS] = 0  # their columns are marked
        else:
            last[KEYS_START] = -1
            for j in range(n):
                st.byte[TYPE_IS_KEY, j] = 0
        return q
    if b[p] != 0x7B:
        return fault_at(BAD_TYPE, p)
    last[TYPES_START] = last[KEYS_START] = -1
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
        st.number[TYPE_RAW, n], st.number[TYPE_RAW_END, n] = p, q
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
        st.byte[TYPE_CLASS, n] = class_of(st.data[TYPE_TEXTS], st.end[TYPE_TEXTS, n], st.end[TYPE_TEXTS, n + 1])
        n += 1
        p, more = next_member(b, q, end, 0x7D, False)
    if p < 0:
        return p
    st.at[N_TYPES], st.at[TYPES_TABLE] = n, index_names(st, TYPE_NAMES, 0, n)
    if st.at[TYPES_TABLE] < 0:
        return fault_at(DUPLICATE_KEY, start)
    last[TYPES_START], last[TYPES_END], last[LAST_N_TYPES], last[LAST_TYPES_TABLE] = start, p, n, st.at[TYPES_TABLE]
    return p


@part
def class_of(b: np.ndarray, start: int, stop: int) -> int:
    """The class of a MySQL type, by its name."""
    q = start
    while q < stop and b[q] != 0x28 and b[q] != 0x20:
        q += 1
    if q == start or q - start > 16:
        return NO_MYSQL_TYPE
    first = word(b, start, q) | _small(q - start)
    slot = np.int64((first * _FACTOR) >> np.uint64(_SHIFT))
    if _NAMES[slot, 0] != np.uint64(q - start) or _NAMES[slot, 1] != first:
        return NO_MYSQL_TYPE
    if q - start <= 8 or _NAMES[slot, 2] == word(b, start + 8, q) | _small(q - start - 8):
        return _CLASSES[slot]
    return NO_MYSQL_TYPE


@part
def _small(n: int) -> np.uint64:
    """``_SMALL`` of the first ``n`` bytes, at most eight."""
    return _SMALL if n >= 8 else _SMALL & ((np.uint64(1) << np.uint64(8 * n)) - np.uint64(1))


@part
def read_keys(b: np.ndarray, p: int, end: int, st: State) -> int:
    """Read ``pkNames`` and mark the types of these columns; the position after it."""
    if b[p] != 0x5B:
        return fault_at(BAD_TYPE, p)
    start, n = p, 0
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
    st.last[KEYS_START], st.last[KEYS_END] = start, p
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
    n_types = st.at[N_TYPES]
    if p >= end or b[p] != 0x7B:
        return fault_at(BAD_TYPE, p)
    st.last[IMAGES] += 1
    this, j = st.last[IMAGES], 0
    p, more = next_member(b, p + 1, end, 0x7D, True)
    while more:
        p, j, more = _as_typed(b, p, end, j, image, st)
        if not more:
            return p
        p, c = skip_space(b, p, end), st.count[which]
        q, escaped = string_end(b, p, end)
        if q < 0:
            return q
        if not column_fits(st, image, q - p, 0, 0):
            return NEED_MORE
        put_text(st, image + NAMES, c, b, p, q, escaped)
        j = find_name(st, TYPE_NAMES, n_types, st.at[TYPES_TABLE], image + NAMES, c, j)
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
        j += 1
        p, more = next_member(b, q, end, 0x7D, False)
    return p


@part
def _as_typed(b: np.ndarray, p: int, end: int, j: int, image: int, st: State) -> tuple[int, int, bool]:
    """Read columns while each is, byte for byte, as TiCDC writes it, and its type near behind the one before.

    The first type comes behind the last one: TiCDC writes types in any order.

    ``p``: where the first one begins. ``j``: the type that it probably has. Returns where a column begins that is
    read otherwise, the type that it probably has, and True; or the position after the image, a type, and False.
    What is filled lies in variables meanwhile, as any byte that is written might be a part of the state.
    """
    later = 0 if image == AFTER else 1
    n, this, c = st.at[N_TYPES], st.last[IMAGES], st.count[N_AFTER + later]
    raw, raw_end, used = st.number[TYPE_RAW], st.number[TYPE_RAW_END], st.number[TYPE_USED]
    form, is_key, key_out = st.byte[TYPE_CLASS], st.byte[TYPE_IS_KEY], st.byte[AFTER_IS_KEY + later]
    flags_out, no_flags = st.number[AFTER_FLAGS + later], st.byte[AFTER_HAS_FLAGS + later]
    name, name_at, typed, type_at = st.data[TYPE_NAMES], st.end[TYPE_NAMES], st.data[TYPE_TEXTS], st.end[TYPE_TEXTS]
    names, types, values = image + NAMES, image + TYPES, image + VALUES
    name_out, type_out, out = st.data[names], st.data[types], st.data[values]
    name_end, type_end, value_end = st.end[names], st.end[types], st.end[values]
    name_there, type_there, there = st.valid[names], st.valid[types], st.valid[values]
    name_size, type_size, size = st.size[names], st.size[types], st.size[values]
    run, k, skips, more, most, room = j, j, 0, True, st.valid.shape[1], st.data.shape[1] - BLOCK
    name_base, type_base = name_size - name_at[j], type_size - type_at[j]
    while n:
        if k >= n:
            if k > run:
                name_size = put_bytes(name, name_at[run], name_at[k], name_out, name_size)
                type_size = put_bytes(typed, type_at[run], type_at[k], type_out, type_size)
            k, run, skips = 0, 0, skips + 1
            name_base, type_base = name_size - name_at[0], type_size - type_at[0]
            if skips > SMALL:
                break
        low, high = raw[k], raw_end[k]
        v = p + high - low + 1
        if v + 6 > end or not block_fits(b, v + 1):
            break
        if not same_bytes(b, p, v - 1, b, low, high) or b[v - 1] != 0x3A:
            if k > run:  # names and types of neighbours lie together
                name_size = put_bytes(name, name_at[run], name_at[k], name_out, name_size)
                type_size = put_bytes(typed, type_at[run], type_at[k], type_out, type_size)
            k, run, skips = k + 1, k + 1, skips + 1
            if skips > SMALL:
                break
            name_base, type_base = name_size - name_at[k], type_size - type_at[k]
            continue
        name_stop, type_stop = name_base + name_at[k + 1], type_base + type_at[k + 1]
        if used[k] == this or c >= most or max(name_stop, type_stop, size) > room:
            break
        is_text = b[v] == 0x22
        if is_text:
            if form[k] == FINITE or form[k] >= SINGLE:
                break
            q = v + 1 + plain_run(b, v + 1)
            if q > v + BLOCK or q + 1 >= end or b[q] != 0x22:
                break
            if form[k] != ANYTHING and not holds(form[k], b, v + 1, q):
                break
        else:
            if form[k] == NO_MYSQL_TYPE or word(b, v, v + 4) != _NULL:
                break
            q = v + 3
        if b[q + 1] != 0x2C and b[q + 1] != 0x7D:
            break
        if is_text:
            copy_block(b, v + 1, out, size)
            size += q - v - 1
        name_end[c + 1], type_end[c + 1], value_end[c + 1] = name_stop, type_stop, size
        name_there[c], type_there[c], there[c] = 1, 1, is_text
        key_out[c], flags_out[c], no_flags[c], used[k] = is_key[k], -1, 0, this
        c, k, p, more = c + 1, k + 1, q + 2, b[q + 1] == 0x2C
        if not more:
            break
    if k > run:
        name_size = put_bytes(name, name_at[run], name_at[k], name_out, name_size)
        type_size = put_bytes(typed, type_at[run], type_at[k], type_out, type_size)
    st.size[names], st.size[types], st.size[values], st.count[N_AFTER + later] = name_size, type_size, size, c
    return p, k, more


@part
def _value(b: np.ndarray, p: int, end: int, image: int, c: int, j: int, st: State) -> int:
    """Write type ``j`` and the value at ``p`` into column ``c``; the position after the value."""
    types, values = image + TYPES, image + VALUES
    out = st.data[values]
    low, high = st.end[TYPE_TEXTS, j], st.end[TYPE_TEXTS, j + 1]
    if not column_fits(st, image, 0, high - low, 0):
        return NEED_MORE
    close(st, types, c, put_bytes(st.data[TYPE_TEXTS], low, high, st.data[types], st.size[types]))
    if st.byte[TYPE_CLASS, j] == NO_MYSQL_TYPE:
        return fault_at(NO_SUCH_TYPE, p)
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
    if form == BYTES:
        stop = put_string(b, p + 1, q - 1, escaped, st.text, 0)
        o = put_latin1_hex(st.text, 0, stop, out, o)
    elif form in (FINITE, SINGLE):
        stop = put_string(b, p + 1, q - 1, escaped, st.text, 0)
        if not is_number(st.text, 0, stop):
            o = fault_at(NOT_OF_TYPE, p)
        elif form == SINGLE:
            o = put_single(st.text, 0, stop, out, o)
        else:
            o = put_float(st.text, 0, stop, out, o)
    else:
        stop = put_string(b, p + 1, q - 1, escaped, out, o)
        o = stop if form == ANYTHING or holds(form, out, o, stop) else fault_at(NOT_OF_TYPE, p)
    if o < 0:
        return fault_at(-o >> 40, p)
    close(st, values, c, o)
    return q
