"""How far the values of a table's columns go in some row changes: whether all fit is then seen without their images.

Which values fit a column is known once the log's DDL are, so a decoder notes of each table and column what a rule may
ask (:class:`ticdc_lab.audit.defined.ColumnRule`): a few numbers instead of texts that are written and read again.
"""

from __future__ import annotations

from contextvars import ContextVar
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.jit import kernel, part, small_kernel
from ticdc_lab.codecs.kernel.pointer import Arrays
from ticdc_lab.codecs.kernel.state import State, same_text
from ticdc_lab.facts.places import grouped

AFTER, BEFORE, NAMES, VALUES = S.AFTER, S.BEFORE, S.NAMES, S.VALUES
AFTER_END, BEFORE_END, N_EVENTS, N_AFTER, N_BEFORE = S.AFTER_END, S.BEFORE_END, S.N_EVENTS, S.N_AFTER, S.N_BEFORE
COMMIT_TS, HAS_COMMIT_TS, KIND, ROW = S.COMMIT_TS, S.HAS_COMMIT_TS, S.KIND, S.ROW

TABLE = ("topic", "schema_name", "table_name")
SPAN = ("first_ts", "last_ts", "first_offset", "last_offset")
MEASURED = ("nulls", "size", "chars", "digits", "fraction", "minus", "no_integer", "no_decimal")
"""Whether there is a NULL; most bytes and characters of a value, most digits before a point and behind it; whether
there is a minus, and a value that is no integer of 64 bits, or no decimal number."""
NULLS, SIZE, CHARS, DIGITS, FRACTION, MINUS, NO_INTEGER, NO_DECIMAL = range(8)
ENDS = ("greatest", "least")
"""The greatest of the integers from 0 on, and of those below 0 without their minus."""
FORM = pa.schema(
    [(c, pa.string()) for c in (*TABLE, "name")]
    + [(c, pa.int64()) for c in (*SPAN, *MEASURED)]
    + [(c, pa.uint64()) for c in ENDS]
)
"""A row for each table and column, of row changes from some places; a column may come in several rows. Without a name:
of a table whose images have no column."""

_KEYS = ("topic", "schema_name", "table_name", "name")
_SUMS = [(c, "min" if c in ("first_ts", "first_offset") else "max") for c in (*SPAN, *MEASURED, *ENDS)]
_EVENTS_AT_ONCE, _ROWS_AT_ONCE = 100_000, 1 << 12
_NEAR = 64
"""Columns of a table among which a name is looked for; one further on is noted apart."""
_MAX, _MIN = np.iinfo(np.int64).max, np.iinfo(np.int64).min
_TEN, _TEN_TO_19 = np.uint64(10), np.uint64(10**19)


class Extremes(Arrays):
    """Columns by their place in it: whose name is text ``name[i, 1]`` of ``name[i, 0]``; one table's by ``next``.

    ``span`` and ``first`` are of a table, ``first`` its first and last column.
    """

    first: np.ndarray
    span: np.ndarray
    name: np.ndarray
    next: np.ndarray
    table: np.ndarray
    measured: np.ndarray
    ends: np.ndarray
    count: np.ndarray


@part
def _column(st: State, k: int, i: int, table: int, guess: int, x: Extremes) -> int:
    """The column of a table that text ``i`` of ``k`` names: ``guess``, another one, or a new one."""
    at, n = guess, 0
    while at >= 0 and n < _NEAR:
        if same_text(st, x.name[at, 0], x.name[at, 1], k, i):
            return at
        at, n = x.next[at], n + 1
    at, n = x.first[table, 0], 0
    while at >= 0 and n < _NEAR:
        if same_text(st, x.name[at, 0], x.name[at, 1], k, i):
            return at
        at, n = x.next[at], n + 1
    at = x.count[0]
    x.count[0] = at + 1
    x.name[at, 0], x.name[at, 1], x.next[at], x.table[at] = k, i, -1, table
    for c in range(len(MEASURED)):
        x.measured[at, c] = 0
    x.ends[at, 0], x.ends[at, 1] = np.uint64(0), np.uint64(0)
    if x.first[table, 0] < 0:
        x.first[table, 0] = at
    else:
        x.next[x.first[table, 1]] = at
    x.first[table, 1] = at
    return at


@small_kernel
def _raise(x: Extremes, at: int, which: int, value: int) -> None:
    if value > x.measured[at, which]:
        x.measured[at, which] = value


@part
def _measure(b: np.ndarray, start: int, stop: int, at: int, x: Extremes) -> None:
    """Take the text between the positions into account."""
    n = stop - start
    if n > x.measured[at, CHARS]:
        for p in range(start, stop):
            n -= b[p] & 0xC0 == 0x80
        _raise(x, at, CHARS, n)
    _raise(x, at, SIZE, stop - start)
    p = start
    minus = p < stop and b[p] == 0x2D
    p += minus
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
def _image(st: State, image: int, low: int, high: int, table: int, x: Extremes) -> None:
    guess = x.first[table, 0]
    for c in range(low, high):
        at = _column(st, image + NAMES, c, table, guess, x)
        guess = x.next[at]
        if st.valid[image + VALUES, c] == 0:
            x.measured[at, NULLS] = 1
        else:
            k = image + VALUES
            _measure(st.data[k], st.end[k, c], st.end[k, c + 1], at, x)


@kernel
def _fill(st: State, table: np.ndarray, offset: np.ndarray, x: Extremes) -> None:
    """Take all row changes that have a commit_ts into account; ``table``: a number for each event's table."""
    for i in range(st.count[N_EVENTS]):
        if st.byte[KIND, i] != ROW or st.byte[HAS_COMMIT_TS, i] == 0:
            continue
        t, ts = table[i], st.number[COMMIT_TS, i]
        x.span[t, 0], x.span[t, 1] = min(x.span[t, 0], ts), max(x.span[t, 1], ts)
        x.span[t, 2], x.span[t, 3] = min(x.span[t, 2], offset[i]), max(x.span[t, 3], offset[i])
        _image(st, AFTER, st.number[AFTER_END, i], st.number[AFTER_END, i + 1], t, x)
        _image(st, BEFORE, st.number[BEFORE_END, i], st.number[BEFORE_END, i + 1], t, x)


def extremes_of(st: State, events: pa.RecordBatch) -> pa.Table:
    """What is noted (:data:`FORM`) of the row changes in a filled state, whose other columns ``events`` has."""
    first, table = grouped(events, TABLE)
    n = int(st.count[N_AFTER] + st.count[N_BEFORE])
    span = np.tile(np.array([_MAX, _MIN, _MAX, _MIN], np.int64), (len(first), 1))
    own_offsets = pc.fill_null(events["offset"], 0).to_numpy()
    x = Extremes(
        first=np.full((len(first), 2), -1, np.int64), span=span, name=np.empty((n, 2), np.int64),
        next=np.empty(n, np.int64), table=np.empty(n, np.int64), measured=np.empty((n, len(MEASURED)), np.int64),
        ends=np.empty((n, 2), np.uint64), count=np.zeros(1, np.int64),
    )  # fmt: skip
    _fill(st, table, own_offsets.astype(np.int64), x)
    m, bare = int(x.count[0]), np.flatnonzero((x.first[:, 0] < 0) & (span[:, 0] <= span[:, 1]))
    of = np.append(x.table[:m], bare)
    at = ((st.data[k], int(st.end[k, i]), int(st.end[k, i + 1])) for k, i in x.name[:m].tolist())
    texts: list[str | None] = [bytes(data[start:stop]).decode() for data, start, stop in at]
    texts += [None] * len(bare)
    own = [events[c].take(pa.array(first[of])) for c in TABLE]
    of_columns = (*x.measured[:m].T, *x.ends[:m].T)
    numbers = [*span[of].T, *(np.append(n, np.zeros(len(bare), n.dtype)) for n in of_columns)]
    return pa.table([*own, pa.array(texts, pa.string()), *map(pa.array, map(np.ascontiguousarray, numbers))], FORM)


def together(extremes: pa.Table) -> pa.Table:
    """One row for each table and column."""
    found = extremes.group_by([*_KEYS], use_threads=False).aggregate(_SUMS)
    return found.rename_columns([c.removesuffix("_min").removesuffix("_max") for c in found.column_names]).select(
        FORM.names
    )


class Noted:
    """What the kernels of some threads note, while decoding, instead of images."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.clear()

    def clear(self) -> None:
        """Forget what was noted."""
        self._parts, self._done = list[pa.Table](), list[pa.Table]()
        self._rows = self._events = 0

    def add(self, st: State, events: pa.RecordBatch) -> None:
        """Note what the row changes in a filled state show."""
        found = extremes_of(st, events)
        with self._lock:
            self._parts.append(found)
            self._rows, self._events = self._rows + len(found), self._events + len(events)
            if self._rows >= _ROWS_AT_ONCE or self._events >= _EVENTS_AT_ONCE:
                self._close()

    def _close(self) -> None:
        """Rows of neighbouring changes become one; those further on have their own, as DDL come between."""
        self._done.append(together(pa.concat_tables([FORM.empty_table(), *self._parts])))
        self._parts, self._rows, self._events = [], 0, 0

    def table(self) -> pa.Table:
        """All that was noted (:data:`FORM`)."""
        with self._lock:
            self._close()
            self._done = [pa.concat_tables(self._done)]
            return self._done[0]


NOTED: ContextVar[Noted | None] = ContextVar("noted", default=None)
"""Where kernels note what images show, in place of making them."""
