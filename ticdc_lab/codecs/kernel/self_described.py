"""Rows of maxwell, and rows and watermarks of mq-v1: JSON that needs nothing beside its messages; the rest is Python's.

DDL, escaped names, fields that the format does not have, empty images, and numbers whose digits may not be the fewest
are left.
"""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs import debezium_types as forms
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.faults import NEED_MORE, OK
from ticdc_lab.codecs.kernel.in_part import LEFT, KernelAlone, put_named_row, put_watermark
from ticdc_lab.codecs.kernel.jit import part
from ticdc_lab.codecs.kernel.members import ENDS, NO_MORE, count_in, described, next_named, next_plain, read_scalars
from ticdc_lab.codecs.kernel.scan import (
    next_member,
    same,
    same_bytes,
    scalar_end,
    string_end,
    word,
    word_of,
)
from ticdc_lab.codecs.kernel.state import State, index_names, put_ts
from ticdc_lab.codecs.kernel.typed_values import NAME, TextTable, column_of, put_column
from ticdc_lab.events import mysql_types as types

SCHEMA, TABLE, TYPE, TS, NEW, OLD, CELL_TYPE, CELL_VALUE, CELL_UNIQUE = range(9)
"""What a name means."""

_MAXWELL = described("database", "table", "type", "ts", "data", "old")
_KEY, _VALUE = described("schema", "table", "type", "ts"), described("update", "delete")
_CELL = described("type", "value", "unique")
"""The objects of both formats: one of maxwell, key and value of mq-v1, and a column of it."""

_W_INSERT, _W_UPDATE, _W_DELETE = map(word_of, (b"insert", b"update", b"delete"))
_W_ROW, _W_RESOLVED = word_of(b"Row"), word_of(b"Resolved")

_SLOTS = next(
    n for n in range(32, 4_096) if len({int(word_of(t.encode())) % n for t in types.BY_MQ_V1}) == len(types.BY_MQ_V1)
)
"""So many slots that each type of mq-v1 has one for itself, by the first word of its name."""
_NUMBERS, _TEXTS = 1, 2


def _types_of_mq_v1() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By slot the type as :func:`~.typed_values.column_of` has a column, and which values it takes; and the names."""
    texts, column, takes = TextTable(), np.zeros((_SLOTS, 9), np.int64), np.zeros(_SLOTS, np.int64)
    for written, of in types.BY_MQ_V1.items():
        slot = int(word_of(written.encode())) % _SLOTS
        kind, takes[slot] = forms.PLAIN, 0 if of.name == "null" else _TEXTS
        if of.form == types.INTEGER:
            kind, takes[slot] = forms.INTEGER, _NUMBERS | (_TEXTS if of.name in ("enum", "set") else 0)
        elif of.form == types.FLOAT:
            kind, takes[slot] = (forms.FLOAT if of.name == "float" else forms.DOUBLE), _NUMBERS
        elif of.form in (types.BYTES, types.LONG_BYTES):
            kind = forms.BINARY
        column[slot] = column_of(texts, written, of.name, kind, unsigned=False)
    return column, takes, texts.array()


_COLUMN, _TAKES, _TEXT = _types_of_mq_v1()


@part
def _rows_of_maxwell(m: int, kb: np.ndarray, kp: int, kend: int, b: np.ndarray, p: int, end: int, st: State) -> int:
    """Decode the objects of a value, which follow each other without anything between."""
    at, seq = st.at, 0
    while p < end:
        if (
            b[p] != 0x7B
            or (seq > 0 and not same(b, p, min(p + 12, end), b'{"database":'))
            or seq >= st.limit[S.MAX_EVENTS]
        ):
            return LEFT
        for k in range(OLD + 1):
            at[k] = -1
        field, p = next_named(b, p + 1, end, True, -1, _MAXWELL)
        while field >= 0:
            if at[field] >= 0:
                return LEFT
            if field in (NEW, OLD):
                q = _read_image(b, p, end, S.AFTER if field == NEW else S.BEFORE, True, st)
            else:
                q = scalar_end(b, p, end)
            if q < 0:
                return NEED_MORE if q == NEED_MORE else LEFT
            at[field], at[ENDS + field] = p, q
            field, p = next_named(b, q, end, False, field, _MAXWELL)
        _, counted = count_in(b, at, TS)
        if field != NO_MORE or not counted or at[TYPE] < 0:
            return LEFT
        op = -1
        if at[ENDS + TYPE] - at[TYPE] == 8 and b[at[TYPE]] == 0x22:
            w = word(b, at[TYPE] + 1, at[ENDS + TYPE] - 1)
            op = S.INSERT if w == _W_INSERT else S.UPDATE if w == _W_UPDATE else S.DELETE if w == _W_DELETE else -1
        status = put_named_row(m, seq, op, b, SCHEMA, TABLE, st) if op >= 0 else LEFT
        if status != OK:
            return status
        if op == S.UPDATE:  # nothing changed where there is no image before
            st.byte[S.HAS_BEFORE, st.count[S.N_EVENTS] - 1] = 1
        seq += 1
    return OK if seq else LEFT


@part
def _message_of_mq_v1(m: int, kb: np.ndarray, kp: int, kend: int, b: np.ndarray, p: int, end: int, st: State) -> int:
    """Decode a row or a watermark."""
    at = st.at
    if kp < 0 or read_scalars(kb, kp, kend, _KEY, at, SCHEMA, False) != kend or at[TYPE] < 0 or kb[at[TYPE]] != 0x22:
        return LEFT
    ts, counted = count_in(kb, at, TS)
    n, w = at[ENDS + TYPE] - at[TYPE] - 2, word(kb, at[TYPE] + 1, at[ENDS + TYPE] - 1)
    if counted and n == 8 and w == _W_RESOLVED and p == end:
        return put_watermark(m, ts, st)
    if not counted or n != 3 or w != _W_ROW or p >= end or b[p] != 0x7B:
        return LEFT
    nth, p = next_named(b, p + 1, end, True, -1, _VALUE)
    if nth < 0:
        return LEFT
    q = _read_image(b, p, end, S.BEFORE if nth else S.AFTER, False, st)
    if q < 0:
        return NEED_MORE if q == NEED_MORE else LEFT
    p, more = next_member(b, q, end, 0x7D, False)
    if more or p != end:
        return LEFT
    status = put_named_row(m, 0, S.DELETE if nth else S.UPDATE, kb, SCHEMA, TABLE, st)
    if status == OK:
        put_ts(st, st.count[S.N_EVENTS] - 1, ts)
    return status


@part
def _read_image(b: np.ndarray, p: int, end: int, image: int, maxwell: bool, st: State) -> int:
    """Read the image at ``p``; the position after it, or a status below zero."""
    if b[p] != 0x7B:
        return LEFT
    which = S.N_AFTER if image == S.AFTER else S.N_BEFORE
    low = st.count[which]
    start, stop, p = next_plain(b, p + 1, end, True)
    while start >= 0:
        is_key, i, after = 0, -1, 0
        if maxwell:
            q, escaped = string_end(b, p, end) if b[p] == 0x22 else (scalar_end(b, p, end), False)
            after = q
            if q < 0 or b[p] == 0x74 or b[p] == 0x66:
                return LEFT
        else:
            after, i, escaped = _read_cell(b, p, end, st)
            if after < 0:
                return LEFT
            p, q = st.at[CELL_VALUE], st.at[ENDS + CELL_VALUE]
            is_key = st.at[CELL_UNIQUE] >= 0 and b[st.at[CELL_UNIQUE]] == 0x74
        status = put_column(b, start, stop, b, p, q, escaped, is_key, image, i, _COLUMN, _TEXT, st)
        if status < 0:
            return status
        start, stop, p = next_plain(b, after, end, False)
    high = st.count[which]
    return p if start == NO_MORE and high > low and index_names(st, image + S.NAMES, low, high) >= 0 else LEFT


@part
def _read_cell(b: np.ndarray, p: int, end: int, st: State) -> tuple[int, int, bool]:
    """Find type, value and key flag of the column of mq-v1 at ``p``.

    The position after it, or LEFT; its type's slot; and whether the value has escapes.
    """
    at = st.at
    after = read_scalars(b, p, end, _CELL, at, CELL_TYPE, True)
    start, stop, v, unique = at[CELL_TYPE], at[ENDS + CELL_TYPE], at[CELL_VALUE], at[CELL_UNIQUE]
    if after < 0 or start < 0 or b[start] != 0x22 or v < 0 or (unique >= 0 and b[unique] != 0x74 and b[unique] != 0x66):
        return LEFT, -1, False
    slot = np.int64(word(b, start + 1, stop - 1) % np.uint64(_SLOTS))
    low, high = _COLUMN[slot, NAME], _COLUMN[slot, NAME + 1]
    if stop - start == 2 or not same_bytes(b, start + 1, stop - 1, _TEXT, low, high):
        return LEFT, -1, False
    c = b[v]
    is_number = c == 0x2D or 0x30 <= c <= 0x39
    wanted = _NUMBERS if is_number else _TEXTS if c == 0x22 else 0
    if c != 0x6E and not _TAKES[slot] & wanted:
        return LEFT, -1, False
    return after, slot, c == 0x22 and string_end(b, v, end)[1]


KERNELS = {
    "maxwell": KernelAlone("maxwell", _rows_of_maxwell),
    "mq-v1": KernelAlone("mq-v1", _message_of_mq_v1),
}
"""Protocol -> kernel over a batch."""
