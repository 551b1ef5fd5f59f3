"""Rows of maxwell, and rows and watermarks of mq-v1: JSON that needs nothing beside its messages.

A message that this kernel decodes is one that :mod:`ticdc_lab.codecs.maxwell` or :mod:`ticdc_lab.codecs.mq_v1` decodes
to the same events. It never names a message's fault: faults, DDL, escaped names, fields that the format does
not have, empty images, and numbers whose digits may not be the fewest are all left to Python.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs import debezium_types as forms
from ticdc_lab.codecs.decoded import Decoded
from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.columns import decoded_in_part
from ticdc_lab.codecs.kernel.identity import set_row
from ticdc_lab.codecs.kernel.jit import kernel, part
from ticdc_lab.codecs.kernel.members import NO_MORE, described, next_named, read_scalars
from ticdc_lab.codecs.kernel.pointer import Arrays
from ticdc_lab.codecs.kernel.scan import (
    after_name,
    next_member,
    same,
    same_bytes,
    scalar_end,
    string_end,
    word,
    word_of,
)
from ticdc_lab.codecs.kernel.state import (
    State,
    end_column,
    end_images,
    event_fits,
    index_names,
    mark,
    new_event,
    put_text,
    put_ts,
    restore,
)
from ticdc_lab.codecs.kernel.text import int64_of
from ticdc_lab.codecs.kernel.typed_values import LEFT, NAME_SPAN, put_column
from ticdc_lab.codecs.known import Bounds
from ticdc_lab.events import mysql_types as types

OK, NEED_MORE = faults.OK, faults.NEED_MORE
ROW, WATERMARK, INSERT, UPDATE, DELETE = S.ROW, S.WATERMARK, S.INSERT, S.UPDATE, S.DELETE
AFTER, BEFORE, NAMES, N_AFTER, N_BEFORE = S.AFTER, S.BEFORE, S.NAMES, S.N_AFTER, S.N_BEFORE
SCHEMA_NAME, TABLE_NAME, HAS_BEFORE = S.SCHEMA_NAME, S.TABLE_NAME, S.HAS_BEFORE
MAX_EVENTS, MAX_COLUMNS = S.MAX_EVENTS, S.MAX_COLUMNS

SCHEMA, TABLE, TYPE, TS, NEW, OLD = range(6)
"""What a name means; ``state.at`` holds where the value of each begins and, 8 further, ends."""
_ENDS = 8

_MAXWELL = described("database", "table", "type", "ts", "data", "old")
_KEY, _VALUE = described("schema", "table", "type", "ts"), described("update", "delete")
_CELL = described("type", "value", "unique")
_CELL_TYPE, _CELL_VALUE, _CELL_UNIQUE = 16, 17, 18
"""The objects of both formats: one of maxwell, key and value of mq-v1, and a column of it."""

_W_INSERT, _W_UPDATE, _W_DELETE = map(word_of, (b"insert", b"update", b"delete"))
_W_ROW, _W_RESOLVED = word_of(b"Row"), word_of(b"Resolved")


class Types(Arrays):
    """The types of mq-v1, each in the slot of its name's first word (:data:`_SLOTS`); texts are spans of ``text``.

    ``column`` is what :func:`~.typed_values.put_column` reads, with the span of mq-v1's own name; ``takes``:
    whether values are numbers and whether they are texts.
    """

    column: np.ndarray
    takes: np.ndarray
    text: np.ndarray


_SLOTS = next(
    n for n in range(32, 4_096) if len({int(word_of(t.encode())) % n for t in types.BY_MQ_V1}) == len(types.BY_MQ_V1)
)
"""So many slots that no two types share one."""
_NUMBERS, _TEXTS = 1, 2


def types_of_mq_v1() -> Types:
    """Each type of :mod:`ticdc_lab.events.mysql_types`, as the kernel reads it."""
    text, column, takes = bytearray(), np.zeros((_SLOTS, 8), np.int64), np.zeros(_SLOTS, np.int64)
    for written, of in types.BY_MQ_V1.items():
        slot, start, middle = int(word_of(written.encode())) % _SLOTS, len(text), len(text) + len(written)
        text.extend((written + of.name).encode())
        kind, takes[slot] = forms.PLAIN, 0 if of.name == "null" else _TEXTS
        if of.form == types.INTEGER:
            kind, takes[slot] = forms.INTEGER, _NUMBERS | (_TEXTS if of.name in ("enum", "set") else 0)
        elif of.form == types.FLOAT:
            kind, takes[slot] = (forms.FLOAT if of.name == "float" else forms.DOUBLE), _NUMBERS
        elif of.form in (types.BYTES, types.LONG_BYTES):
            kind = forms.BINARY
        column[slot] = start, middle, middle, len(text), kind, -1, of.holds, 0
    return Types(column=column, takes=takes, text=np.frombuffer(bytes(text) + bytes(8), np.uint8).copy())


class SelfDescribedKernel:
    """The kernel over a batch (:class:`~.decoded.PartKernel`); it needs nothing beside the messages."""

    def __init__(self, protocol: str) -> None:
        self._protocol, self._types = protocol, types_of_mq_v1()

    def __call__(self, batch: pa.RecordBatch, *, images: bool, bounds: Bounds) -> Decoded:
        """The events of the messages that it decodes."""
        given = bounds.values, self._protocol == "maxwell", self._types
        return decoded_in_part(batch, self._protocol, decode, *given, keys=True, images=images, bounds=bounds)

    def stands(self) -> bool:
        """No message changes what another is."""
        return True


@kernel
def decode(
    b: np.ndarray, starts: np.ndarray, ends: np.ndarray, st: State, marks: np.ndarray,
    kb: np.ndarray, key_starts: np.ndarray, key_ends: np.ndarray, longest: int, maxwell: bool, of: Types,
) -> int:  # fmt: skip
    """Decode messages of up to ``longest`` bytes, except those left to Python. NEED_MORE or OK."""
    for m in range(len(starts)):
        mark(st, marks)
        status = LEFT
        if starts[m] >= 0 and ends[m] - starts[m] <= longest:
            if maxwell:
                status = _rows_of_maxwell(m, b, starts[m], ends[m], of, st)
            elif key_starts[m] >= 0:
                status = _message_of_mq_v1(m, kb, key_starts[m], key_ends[m], b, starts[m], ends[m], of, st)
        if status == NEED_MORE:
            return NEED_MORE
        if status != OK:
            restore(st, marks)
    return OK


@part
def _rows_of_maxwell(m: int, b: np.ndarray, p: int, end: int, of: Types, st: State) -> int:
    """Decode the objects of a value, which follow each other without anything between; OK, NEED_MORE or LEFT."""
    at, seq = st.at, 0
    while p < end:
        if (
            b[p] != 0x7B
            or (seq > 0 and not same(b, p, min(p + 12, end), b'{"database":'))
            or seq >= st.limit[MAX_EVENTS]
        ):
            return LEFT
        for k in range(OLD + 1):
            at[k] = -1
        field, p = next_named(b, p + 1, end, True, -1, _MAXWELL)
        while field >= 0:
            if at[field] >= 0:
                return LEFT
            if field in (NEW, OLD):
                q = _read_image(b, p, end, AFTER if field == NEW else BEFORE, True, of, st)
            else:
                q = scalar_end(b, p, end)
            if q < 0:
                return NEED_MORE if q == NEED_MORE else LEFT
            at[field], at[_ENDS + field] = p, q
            field, p = next_named(b, q, end, False, field, _MAXWELL)
        if field != NO_MORE or at[TS] < 0 or at[TYPE] < 0:
            return LEFT
        op = -1
        if at[_ENDS + TYPE] - at[TYPE] == 8 and b[at[TYPE]] == 0x22:
            w = word(b, at[TYPE] + 1, at[_ENDS + TYPE] - 1)
            op = INSERT if w == _W_INSERT else UPDATE if w == _W_UPDATE else DELETE if w == _W_DELETE else -1
        _, counted = int64_of(b, at[TS], at[_ENDS + TS])
        if op < 0 or not counted or b[at[TS]] == 0x2D:
            return LEFT
        if (at[NEW] >= 0) != (op != DELETE) or (op != UPDATE and (at[OLD] >= 0) != (op == DELETE)):
            return LEFT
        status = _row(m, seq, op, b, st)
        if status != OK:
            return status
        seq += 1
    return OK if seq else LEFT


@part
def _message_of_mq_v1(
    m: int, kb: np.ndarray, kp: int, kend: int, b: np.ndarray, p: int, end: int, of: Types, st: State
) -> int:
    """Decode a row or a watermark; OK, NEED_MORE or LEFT."""
    at = st.at
    after = read_scalars(kb, kp, kend, _KEY, at, SCHEMA, _ENDS)
    if after != kend or at[TS] < 0 or at[TYPE] < 0 or kb[at[TYPE]] != 0x22:
        return LEFT
    ts, counted = int64_of(kb, at[TS], at[_ENDS + TS])
    if not counted or kb[at[TS]] == 0x2D:
        return LEFT
    n, w = at[_ENDS + TYPE] - at[TYPE] - 2, word(kb, at[TYPE] + 1, at[_ENDS + TYPE] - 1)
    if n == 8 and w == _W_RESOLVED and p == end:
        if not event_fits(st, 0):
            return NEED_MORE
        i = new_event(st, m, 0, WATERMARK)
        end_images(st, i)
        put_ts(st, i, ts)
        return OK
    if n != 3 or w != _W_ROW or p >= end or b[p] != 0x7B:
        return LEFT
    at[NEW] = at[OLD] = -1
    nth, p = next_named(b, p + 1, end, True, -1, _VALUE)
    if nth < 0:
        return LEFT
    op = DELETE if nth else UPDATE
    q = _read_image(b, p, end, BEFORE if nth else AFTER, False, of, st)
    if q < 0:
        return NEED_MORE if q == NEED_MORE else LEFT
    p, more = next_member(b, q, end, 0x7D, False)
    if more or p != end:
        return LEFT
    status = _row(m, 0, op, kb, st)
    if status == OK:
        i = st.count[S.N_EVENTS] - 1
        put_ts(st, i, ts)
        if op == UPDATE:
            st.byte[HAS_BEFORE, i] = 0
    return status


@part
def _row(m: int, seq: int, op: int, b: np.ndarray, st: State) -> int:
    """Make the row whose images have been read an event; its table is named in ``b``."""
    at = st.at
    for field in (SCHEMA, TABLE):
        if at[field] < 0 or b[at[field]] != 0x22:
            return LEFT
    if not event_fits(st, at[_ENDS + SCHEMA] - at[SCHEMA] + at[_ENDS + TABLE] - at[TABLE]):
        return NEED_MORE
    i = new_event(st, m, seq, ROW)
    end_images(st, i)
    put_text(st, SCHEMA_NAME, i, b, at[SCHEMA], at[_ENDS + SCHEMA], True)
    put_text(st, TABLE_NAME, i, b, at[TABLE], at[_ENDS + TABLE], True)
    set_row(st, i, op)
    return OK


@part
def _read_image(b: np.ndarray, p: int, end: int, image: int, maxwell: bool, of: Types, st: State) -> int:
    """Read the image at ``p``; the position after it, or a status below zero."""
    if b[p] != 0x7B:
        return LEFT
    which = N_AFTER if image == AFTER else N_BEFORE
    low = st.count[which]
    p, more = next_member(b, p + 1, end, 0x7D, True)
    while more:
        q, escaped = string_end(b, p, end)
        if q < 0 or escaped:
            return LEFT
        start, stop = p + 1, q - 1
        p = after_name(b, q, end)
        if p < 0 or p >= end:
            return LEFT
        is_key, i, after = 0, -1, 0
        if maxwell:
            q, escaped = string_end(b, p, end) if b[p] == 0x22 else (scalar_end(b, p, end), False)
            after = q
            if q < 0 or b[p] == 0x74 or b[p] == 0x66:
                return LEFT
        else:
            after, i, escaped = _read_cell(b, p, end, of, st)
            if after < 0:
                return LEFT
            p, q = st.at[_CELL_VALUE], st.at[_ENDS + _CELL_VALUE]
            is_key = st.at[_CELL_UNIQUE] >= 0 and b[st.at[_CELL_UNIQUE]] == 0x74
        status = put_column(b, start, stop, p, q, escaped, image, i, of.column, of.text, st)
        if status < 0:
            return status
        end_column(st, image, is_key, -1)
        p, more = next_member(b, after, end, 0x7D, False)
    high = st.count[which]
    if p < 0 or high == low or high - low > st.limit[MAX_COLUMNS]:
        return LEFT
    return p if index_names(st, image + NAMES, low, high) >= 0 else LEFT


@part
def _read_cell(b: np.ndarray, p: int, end: int, of: Types, st: State) -> tuple[int, int, bool]:
    """Find type, value and key flag of the column of mq-v1 at ``p``.

    The position after it, or LEFT; its type's slot; and whether the value has escapes.
    """
    at, value_escaped = st.at, False
    for k in range(_CELL_TYPE, _CELL_UNIQUE + 1):
        at[k] = -1
    if b[p] != 0x7B:
        return LEFT, -1, False
    nth, p = next_named(b, p + 1, end, True, -1, _CELL)
    while nth >= 0:
        field = _CELL_TYPE + nth
        q, escaped = string_end(b, p, end) if b[p] == 0x22 else (scalar_end(b, p, end), False)
        if q < 0 or at[field] >= 0:
            return LEFT, -1, False
        if field == _CELL_VALUE:
            value_escaped = escaped
        elif field == _CELL_UNIQUE and b[p] != 0x74 and b[p] != 0x66:
            return LEFT, -1, False
        at[field], at[_ENDS + field] = p, q
        nth, p = next_named(b, q, end, False, nth, _CELL)
    start, stop = at[_CELL_TYPE], at[_ENDS + _CELL_TYPE]
    if nth != NO_MORE or start < 0 or b[start] != 0x22 or at[_CELL_VALUE] < 0:
        return LEFT, -1, False
    slot = np.int64(word(b, start + 1, stop - 1) % np.uint64(_SLOTS))
    low, high = of.column[slot, NAME_SPAN], of.column[slot, NAME_SPAN + 1]
    if stop - start == 2 or not same_bytes(b, start + 1, stop - 1, of.text, low, high):
        return LEFT, -1, False
    c = b[at[_CELL_VALUE]]
    is_number = c == 0x2D or 0x30 <= c <= 0x39
    wanted = _NUMBERS if is_number else _TEXTS if c == 0x22 else 0
    if c != 0x6E and not of.takes[slot] & wanted:
        return LEFT, -1, False
    return p, slot, value_escaped
