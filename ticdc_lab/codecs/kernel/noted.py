"""How far the values of a table's columns go in some row changes: whether all fit is then seen without their images.

Which values fit a column is known once the log's DDL are, so a kernel notes of each table and column what a rule may
ask (:class:`ticdc_lab.audit.defined.ColumnRule`), and forgets the texts of each message: they stay in the nearest
cache. A thread notes many messages in the same arrays.
"""

from __future__ import annotations

from threading import Lock, local

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.jit import part, small_kernel
from ticdc_lab.codecs.kernel.pointer import Arrays
from ticdc_lab.codecs.kernel.scan import same_bytes
from ticdc_lab.codecs.kernel.state import State
from ticdc_lab.codecs.kernel.text import put_bytes
from ticdc_lab.codecs.kernel.wide import WORD, fits, load
from ticdc_lab.codecs.kernel.xxh64 import SEED, hash_bytes

AFTER, BEFORE, NAMES, VALUES = S.AFTER, S.BEFORE, S.NAMES, S.VALUES
AFTER_END, BEFORE_END, N_EVENTS, N_AFTER, N_BEFORE = S.AFTER_END, S.BEFORE_END, S.N_EVENTS, S.N_AFTER, S.N_BEFORE
COMMIT_TS, HAS_COMMIT_TS, KIND, ROW, HAS_BEFORE = S.COMMIT_TS, S.HAS_COMMIT_TS, S.KIND, S.ROW, S.HAS_BEFORE
INCOMPLETE, BEFORE_UNNAMED, NOTED_TABLE, BEFORE_SAME = S.INCOMPLETE, S.BEFORE_UNNAMED, S.NOTED_TABLE, S.BEFORE_SAME
SCHEMA_NAME, TABLE_NAME = S.SCHEMA_NAME, S.TABLE_NAME

MEASURED = ("nulls", "size", "chars", "digits", "fraction", "minus", "no_integer", "no_decimal")
"""Whether there is a NULL; most bytes and characters of a value, most digits before a point and behind it; whether
there is a minus, and a value that is no integer of 64 bits, or no decimal number."""
NULLS, SIZE, CHARS, DIGITS, FRACTION, MINUS, NO_INTEGER, NO_DECIMAL = range(8)
ENDS = ("greatest", "least")
"""The greatest of the integers from 0 on, and of those below 0 without their minus."""
FORM = pa.schema(
    [(c, pa.string()) for c in ("topic", "schema_name", "table_name", "name")]
    + [(c, pa.int64()) for c in ("first_ts", "last_ts", "first_offset", "last_offset", *MEASURED)]
    + [(c, pa.uint64()) for c in ENDS]
)
"""A row for each table, without a name, and each of its columns, of row changes between two offsets of any partition;
without a table: nothing is known of them."""

TOPIC, FIRST, LAST, FIRST_TS, LAST_TS, TABLE_TEXT = range(6)
OF, NEXT, COLUMN_TEXT = range(3)
TABLES, COLUMNS, TEXTS, BYTES, FULL = range(5)
_TABLES, _COLUMNS, _BYTES = 1 << 14, 1 << 17, 1 << 22
_EVENTS = 100_000
"""Row changes that a thread notes together, about: a DDL between them asks for the images of all of them."""
_MAX, _MIN = np.iinfo(np.int64).max, np.iinfo(np.int64).min
_ZEROS, _HIGH = np.uint64(0x3030303030303030), np.uint64(0xF0F0F0F0F0F0F0F0)
_SIXES = np.uint64(0x0606060606060606)
_TEN, _TEN_TO_19 = np.uint64(10), np.uint64(10**19)


class Notes(Arrays):
    """Tables and columns by their place; ``count``: how many, of their texts and bytes, and whether one had no room.

    ``slot`` and ``named`` are hash tables that lead to the tables, and to the columns.
    """

    count: np.ndarray
    slot: np.ndarray
    named: np.ndarray
    table: np.ndarray
    column: np.ndarray
    measured: np.ndarray
    ends: np.ndarray
    text: np.ndarray
    text_end: np.ndarray

    @classmethod
    def of(cls, tables: int, columns: int, size: int) -> Notes:
        """Room for so many tables, columns and bytes of names."""
        return cls(
            count=np.zeros(5, np.int64), slot=np.full(2 * tables, -1, np.int32),
            named=np.full(2 * columns, -1, np.int32), table=np.empty((tables, 6), np.int64),
            column=np.empty((columns, 3), np.int64), measured=np.empty((columns, len(MEASURED)), np.int64),
            ends=np.empty((columns, 2), np.uint64), text=np.empty(size, np.uint8),
            text_end=np.zeros(2 * tables + columns + 1, np.int64),
        )  # fmt: skip


NOTHING_NOTED = Notes.of(0, 0, 0)
"""Where images are kept."""


@small_kernel
def _is_text(x: Notes, n: int, st: State, k: int, i: int) -> bool:
    return same_bytes(x.text, x.text_end[n], x.text_end[n + 1], st.data[k], st.end[k, i], st.end[k, i + 1])


@part
def _keep(x: Notes, st: State, k: int, i: int) -> int:
    n, size = x.count[TEXTS], x.count[BYTES]
    x.count[BYTES] = x.text_end[n + 1] = put_bytes(st.data[k], st.end[k, i], st.end[k, i + 1], x.text, size)
    x.count[TEXTS] = n + 1
    return n


@part
def _table(x: Notes, st: State, i: int, topic: int) -> int:
    """The place of the table of event ``i``; -1: there is no room."""
    s, t = SCHEMA_NAME, TABLE_NAME
    if st.byte[KIND, i] == ROW:
        h = st.number[NOTED_TABLE, i]
    else:
        of = hash_bytes(st.data[s], st.end[s, i], st.end[s, i + 1], SEED)
        h = np.int64(hash_bytes(st.data[t], st.end[t, i], st.end[t, i + 1], of))
    mask = len(x.slot) - 1
    slot = (h + topic) & mask
    while x.slot[slot] >= 0:
        at = np.int64(x.slot[slot])
        n = x.table[at, TABLE_TEXT]
        if x.table[at, TOPIC] == topic and _is_text(x, n, st, s, i) and _is_text(x, n + 1, st, t, i):
            return at
        slot = (slot + 1) & mask
    at = x.count[TABLES]
    if at >= len(x.table):
        return -1
    x.count[TABLES], x.slot[slot] = at + 1, at
    x.table[at, TOPIC], x.table[at, FIRST], x.table[at, LAST] = topic, -1, -1
    x.table[at, FIRST_TS], x.table[at, LAST_TS] = _MAX, _MIN
    x.table[at, TABLE_TEXT] = _keep(x, st, s, i)
    _keep(x, st, t, i)
    return at


@part
def _column(x: Notes, st: State, k: int, c: int, table: int, guess: int) -> int:
    """The place of the column of a table that text ``c`` of ``k`` names; ``guess`` goes first."""
    if guess >= 0 and _is_text(x, x.column[guess, COLUMN_TEXT], st, k, c):
        return guess
    mask = len(x.named) - 1
    slot = np.int64(hash_bytes(st.data[k], st.end[k, c], st.end[k, c + 1], np.uint64(table))) & mask
    while x.named[slot] >= 0:
        at = np.int64(x.named[slot])
        if x.column[at, OF] == table and _is_text(x, x.column[at, COLUMN_TEXT], st, k, c):
            return at
        slot = (slot + 1) & mask
    at = x.count[COLUMNS]
    x.count[COLUMNS], x.named[slot] = at + 1, at
    x.column[at, OF], x.column[at, NEXT], x.column[at, COLUMN_TEXT] = table, -1, _keep(x, st, k, c)
    for n in range(len(MEASURED)):
        x.measured[at, n] = 0
    x.ends[at, 0], x.ends[at, 1] = np.uint64(0), np.uint64(0)
    if x.table[table, FIRST] < 0:
        x.table[table, FIRST] = at
    else:
        x.column[x.table[table, LAST], NEXT] = at
    x.table[table, LAST] = at
    return at


@small_kernel
def _raise(x: Notes, at: int, which: int, value: int) -> None:
    if value > x.measured[at, which]:
        x.measured[at, which] = value


@small_kernel
def _are_digits(b: np.ndarray, p: int, n: int) -> bool:
    """Whether ``n`` bytes, one to eight, are digits."""
    mask = ~np.uint64(0) >> np.uint64(64 - 8 * n)
    w = load(b, p) & mask | _ZEROS & ~mask
    return w & _HIGH == _ZEROS and w + _SIXES & _HIGH == _ZEROS


@part
def _measure(b: np.ndarray, start: int, stop: int, at: int, x: Notes) -> None:
    """Take the text between the positions into account."""
    n = stop - start
    if n > x.measured[at, SIZE]:
        x.measured[at, SIZE] = n
    if n > x.measured[at, CHARS]:
        for p in range(start, stop):
            n -= b[p] & 0xC0 == 0x80
        _raise(x, at, CHARS, n)
    if x.measured[at, NO_DECIMAL]:  # what else numbers show is not asked
        return
    p = start
    minus = p < stop and b[p] == 0x2D
    p += minus
    digits = stop - p
    is_short = 0 < digits <= WORD and digits < x.measured[at, DIGITS] and fits(b, p)
    if is_short and (not minus or x.ends[at, 1] > np.uint64(0)) and _are_digits(b, p, digits):
        return  # nearer to 0 than another one
    begin = p
    while p < stop and b[p] == 0x30:
        p += 1
    first, value = p, np.uint64(0)
    while p < stop and 0x30 <= b[p] <= 0x39:
        value = value * _TEN + np.uint64(b[p] - 0x30)
        p += 1
    digits = p - first
    if minus:
        x.measured[at, MINUS] = 1
    _raise(x, at, DIGITS, digits)
    # twenty digits below 2^64 begin with 1; such a number from there on has become one below 10^19
    held = digits < 20 or (digits == 20 and b[first] == 0x31 and value >= _TEN_TO_19)
    if p == stop and p > begin and held:
        side = 1 if minus else 0
        if value > x.ends[at, side]:
            x.ends[at, side] = value
        return
    x.measured[at, NO_INTEGER] = 1
    if p < stop and b[p] == 0x2E:
        point = p
        p += 1
        while p < stop and 0x30 <= b[p] <= 0x39:
            p += 1
        _raise(x, at, FRACTION, p - point - 1)
    if p < stop or p == begin:
        x.measured[at, NO_DECIMAL] = 1


@part
def _image(x: Notes, st: State, image: int, low: int, high: int, table: int) -> bool:
    """Whether an image could be noted; of an old one without values of the new one, which was noted."""
    names, k = image + NAMES, image + VALUES
    size = x.count[BYTES] + st.end[names, high] - st.end[names, low]
    if x.count[COLUMNS] + high - low > len(x.column) or size > len(x.text):
        return False
    guess = x.table[table, FIRST]
    for c in range(low, high):
        if image == BEFORE and st.byte[BEFORE_SAME, c]:
            guess = x.column[guess, NEXT] if guess >= 0 else guess
            continue
        at = _column(x, st, names, c, table, guess)
        guess = x.column[at, NEXT]
        if st.valid[k, c] == 0:
            x.measured[at, NULLS] = 1
        else:
            _measure(st.data[k], st.end[k, c], st.end[k, c + 1], at, x)
    return True


@part
def note(st: State, first: int, topic: int, x: Notes) -> None:
    """Take the events from ``first`` on into account, and forget their images."""
    n = st.count[N_EVENTS]
    for i in range(first, n):
        t = -1
        if st.valid[SCHEMA_NAME, i] and st.valid[TABLE_NAME, i]:
            room = x.count[BYTES] + st.end[SCHEMA_NAME, i + 1] - st.end[SCHEMA_NAME, i]
            room += st.end[TABLE_NAME, i + 1] - st.end[TABLE_NAME, i]
            t = _table(x, st, i, topic) if room <= len(x.text) else -1
            x.count[FULL] |= t < 0
        st.number[NOTED_TABLE, i] = t
        if st.byte[KIND, i] != ROW:
            continue
        a0, a1 = st.number[AFTER_END, i], st.number[AFTER_END, i + 1]
        b0, b1 = st.number[BEFORE_END, i], st.number[BEFORE_END, i + 1]
        if b1 == b0 or st.byte[INCOMPLETE, i] == BEFORE_UNNAMED:
            st.byte[HAS_BEFORE, i] = 0
        if st.byte[HAS_COMMIT_TS, i] == 0 or t < 0:
            continue
        if not _image(x, st, AFTER, a0, a1, t) or not _image(x, st, BEFORE, b0, b1, t):
            x.count[FULL] = 1
        ts = st.number[COMMIT_TS, i]
        x.table[t, FIRST_TS], x.table[t, LAST_TS] = min(x.table[t, FIRST_TS], ts), max(x.table[t, LAST_TS], ts)
    for k in range(3):
        st.size[AFTER + k] = st.size[BEFORE + k] = 0
    st.count[N_AFTER] = st.count[N_BEFORE] = 0
    st.number[AFTER_END, n] = st.number[BEFORE_END, n] = 0


class Noted:
    """What the kernels of some threads note, while decoding, instead of images."""

    def __init__(self) -> None:
        self._lock, self._threads, self._open = Lock(), local(), list[Own]()

    @property
    def own(self) -> Own:
        """What this thread notes."""
        found: Own | None = getattr(self._threads, "own", None)
        if found is None:
            found = self._threads.own = Own()
            with self._lock:
                self._open.append(found)
        return found

    def clear(self) -> None:
        """Forget what was noted."""
        for thread in self._open:
            thread.clear()

    def table(self) -> pa.Table:
        """All that was noted (:data:`FORM`)."""
        for thread in self._open:
            thread.close()
        return pa.concat_tables([FORM.empty_table(), *(done for thread in self._open for done in thread.done)])


class Own:
    """What one thread notes; ``topics`` by their numbers."""

    def __init__(self) -> None:
        self.notes, self.topics = Notes.of(_TABLES, _COLUMNS, _BYTES), dict[str | None, int]()
        self.clear()

    def clear(self) -> None:
        """Forget what was noted."""
        self.done = list[pa.Table]()
        self.messages = 0  # whose row changes are noted
        self._begin()

    def _begin(self) -> None:
        self.notes.count[:], self.notes.slot[:], self.notes.named[:] = 0, -1, -1
        self._events, self._low, self._high = 0, _MAX, _MIN

    def topics_of(self, batch: pa.RecordBatch) -> np.ndarray:
        """A number for the topic of each message."""
        each = batch.column("topic").dictionary_encode(null_encoding="encode")
        codes = [self.topics.setdefault(topic, len(self.topics)) for topic in each.dictionary.to_pylist()]
        return np.array(codes, np.int64)[each.indices.to_numpy()]

    def add(self, batch: pa.RecordBatch, events: int) -> None:
        """The messages of a batch, whose row changes are noted."""
        self.messages += batch.num_rows
        self._events += events
        offsets = pc.min_max(batch.column("offset")).as_py()
        self._low, self._high = min(self._low, offsets["min"] or 0), max(self._high, offsets["max"] or 0)
        count, x = self.notes.count, self.notes
        if (
            count[FULL]
            or self._events >= _EVENTS
            or 2 * count[TABLES] > len(x.table)
            or 2 * count[COLUMNS] > len(x.column)
        ):
            self.close()

    def leave(self, batch: pa.RecordBatch) -> None:
        """Nothing was noted of the messages of a batch."""
        offsets = pc.min_max(batch.column("offset")).as_py()
        self.done.append(_unknown(offsets["min"] or 0, offsets["max"] or 0))

    def close(self) -> None:
        """Row changes of one time become a part of their own: a DDL may come behind them."""
        x, low, high = self.notes, self._low, self._high
        if x.count[FULL]:
            self.done.append(_unknown(low, high))
        elif n := int(x.count[TABLES]):
            self.done.append(_as_table(x, n, list(self.topics), low, high))
        self._begin()


def _unknown(low: int, high: int) -> pa.Table:
    return pa.Table.from_pylist([{"first_offset": low, "last_offset": high}], FORM)


def names_of(x: Notes) -> pa.Array:
    """The texts of notes."""
    texts, ends = int(x.count[TEXTS]), x.text_end[: x.count[TEXTS] + 1].astype(np.int32)
    return pa.Array.from_buffers(
        pa.string(), texts, [None, pa.py_buffer(ends), pa.py_buffer(x.text[: x.count[BYTES]].copy())]
    )


def _as_table(x: Notes, n: int, topics: list[str | None], low: int, high: int) -> pa.Table:
    c, names = int(x.count[COLUMNS]), names_of(x)
    dated = np.flatnonzero(x.table[:n, FIRST_TS] <= x.table[:n, LAST_TS])
    table = x.table[np.append(dated, x.column[:c, OF])]
    own = np.append(np.full(len(dated), -1), x.column[:c, COLUMN_TEXT])
    spans = [*table[:, FIRST_TS : LAST_TS + 1].T, np.full(len(own), low), np.full(len(own), high)]
    zero = np.zeros((len(dated), len(MEASURED)), np.int64)
    measures = [*np.concatenate([zero, x.measured[:c]]).T, *np.concatenate([zero[:, :2].view(np.uint64), x.ends[:c]]).T]
    return pa.table(
        [
            pa.array(topics, pa.string()).take(pa.array(table[:, TOPIC])),
            names.take(pa.array(table[:, TABLE_TEXT])),
            names.take(pa.array(table[:, TABLE_TEXT] + 1)),
            names.take(pa.array(own, mask=own < 0)),
            *(pa.array(np.ascontiguousarray(column)) for column in (*spans, *measures)),
        ],
        FORM,
    )
