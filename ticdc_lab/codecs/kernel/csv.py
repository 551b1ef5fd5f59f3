"""The storage sink's csv: ``op, table, schema[, commit-ts][, is-update][, handle key], columns``.

With a quote, texts stand between quotes and a quote inside is doubled; without one, a backslash escapes line ends,
itself and the delimiter. With old values an update is two records, D and I, both with is-update true: one message here.
"""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.holding import holds
from ticdc_lab.codecs.kernel.identity import set_row
from ticdc_lab.codecs.kernel.jit import kernel, part, small_kernel
from ticdc_lab.codecs.kernel.pointer import Arrays
from ticdc_lab.codecs.kernel.scan import fault_at, same_bytes
from ticdc_lab.codecs.kernel.state import (
    State,
    close,
    end_column,
    end_images,
    event_fits,
    mark,
    new_event,
    put_null,
    put_ts,
    put_typed_name,
    restore,
)  # fmt: skip
from ticdc_lab.codecs.kernel.text import (
    checked_utf8,
    int64_of,
    is_number,
    put_base64,
    put_bytes,
    put_float,
    put_single,
    room_for,
)  # fmt: skip
from ticdc_lab.codecs.kernel.typed_values import put_unsigned
from ticdc_lab.events import mysql_types

BAD_OP, TOO_FEW, TOO_MANY, OPEN_QUOTE, HALF_UPDATE, BAD_TS, BAD_FLAG, BAD_HEX, UNQUOTED = range(101, 110)
CSV_FAULTS: dict[int, tuple[str, str]] = {
    BAD_OP: ("csv-operation", "expected I, D or U"),
    TOO_FEW: ("csv-fields", "fewer fields than the table version has columns"),
    TOO_MANY: ("csv-fields", "more fields than the table version has columns"),
    OPEN_QUOTE: ("csv-open-quote", "a quoted field does not end"),
    HALF_UPDATE: ("csv-half-update", "expected the D and I records of one update (is-update is true), found one"),
    BAD_TS: ("csv-commit-ts", "expected a commit_ts, a whole number"),
    BAD_FLAG: ("csv-is-update", "expected true or false"),
    BAD_HEX: ("bad-hex", "expected pairs of hexadecimal digits"),
    UNQUOTED: (
        "csv-unquoted",
        "a text has no quotes and is not the text for NULL; name that text with --option csv.null=TEXT",
    ),
}
"""Number -> (error_class, sentence); apart from those that all formats share."""

PLAIN, BASE64, HEX, FLOAT, ENUM, SET, SINGLE = 0, 1, 2, 3, 4, 5, 6
"""What is done to a value: nothing, binary in two encodings, a float, a label to its number."""
QUOTED, ESCAPED = 1, 2


class CsvLayout(Arrays):
    """How a file's records look, and its table's columns. Text ``i`` of ``x`` is ``x[x_end[i]:x_end[i + 1]]``.

    ``given`` holds: the quote (-1 for none), whether commit_ts, is-update and a handle key are there; ``held`` what
    fits each column's type (``MySQLType.holds``), ``quoted`` whether its values are texts that may be anything,
    ``nullable`` whether the text for NULL means it there: without quotes it may be a key's own. Labels of column ``j``
    are those from ``first_label[j]`` to before ``first_label[j + 1]``.
    """

    given: np.ndarray
    delimiter: np.ndarray
    terminator: np.ndarray
    null: np.ndarray
    names: np.ndarray
    names_end: np.ndarray
    types: np.ndarray
    types_end: np.ndarray
    kinds: np.ndarray
    held: np.ndarray
    quoted: np.ndarray
    is_key: np.ndarray
    nullable: np.ndarray
    labels: np.ndarray
    labels_end: np.ndarray
    first_label: np.ndarray


Q_QUOTE, Q_TS, Q_UPDATE, Q_HANDLE = range(4)


@small_kernel
def _at(b: np.ndarray, p: int, end: int, text: np.ndarray) -> bool:
    """Whether ``text`` is at ``p``."""
    if b[p] != text[0] or p + len(text) > end:
        return False
    for i in range(1, len(text)):
        if b[p + i] != text[i]:
            return False
    return True


@part
def _is(b: np.ndarray, start: int, stop: int, text: np.ndarray) -> bool:
    return stop - start == len(text) and (stop == start or _at(b, start, stop, text))


@kernel
def find_records(
    b: np.ndarray, quote: int, terminator: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> tuple[int, int]:
    """Find where records start and end, terminators left out; how many there are, and where the last one ended."""
    n = start = p = 0
    inside = False
    while p < len(b):
        if b[p] == quote:
            inside = not inside
        elif not inside and _at(b, p, len(b), terminator):
            starts[n], ends[n] = start, p
            n += 1
            p = start = p + len(terminator)
            continue
        p += 1
    return n, start


@kernel
def join_updates(b: np.ndarray, starts: np.ndarray, ends: np.ndarray, n: int, given: CsvLayout) -> int:
    """Join the D and the I of an update in place; how many messages are left."""
    m = i = 0
    while i < n:
        starts[m], ends[m] = starts[i], ends[i]
        if (
            i + 1 < n
            and _half_of_update(b, starts[i], ends[i], given) == 0x44
            and _half_of_update(b, starts[i + 1], ends[i + 1], given) == 0x49
        ):
            i += 1
            ends[m] = ends[i]
        m += 1
        i += 1
    return m


@part
def _half_of_update(b: np.ndarray, p: int, end: int, given: CsvLayout) -> int:
    """The operation of a record whose is-update is true, else 0."""
    op = 0
    for i in range(4 + given.given[Q_TS]):
        if i and not (p < end and _at(b, p, end, given.delimiter)):
            return 0
        start, stop, p, _ = field(b, p + (len(given.delimiter) if i else 0), end, given)
        if p < 0:
            return 0
        if i == 0 and stop - start == 1:
            op = b[start]
    return op if stop - start == 4 and b[start] == 0x74 else 0


@kernel
def field(b: np.ndarray, p: int, end: int, given: CsvLayout) -> tuple[int, int, int, int]:
    """Where the text of the field at ``p`` starts and stops, what follows it, and QUOTED | ESCAPED."""
    quote = given.given[Q_QUOTE]
    if quote >= 0 and p < end and b[p] == quote:
        q, form = p + 1, QUOTED
        while q < end:
            if b[q] != quote:
                q += 1
            elif q + 1 < end and b[q + 1] == quote:
                form = QUOTED | ESCAPED
                q += 2
            else:
                return p + 1, q, q + 1, form
        return p, q, fault_at(OPEN_QUOTE, p), form
    q, form = p, 0
    while q < end and not _at(b, q, end, given.delimiter) and not _at(b, q, end, given.terminator):
        if quote < 0 and b[q] == 0x5C and q + 1 < end:
            form = ESCAPED
            q += 1
        q += 1
    return p, q, q, form


@kernel
def fields(b: np.ndarray, p: int, end: int, given: CsvLayout, starts: np.ndarray, stops: np.ndarray) -> int:
    """Find where the texts of a record's fields start and stop; how many, up to one that does not end."""
    n = 0
    while p <= end and n < len(starts):
        start, stop, p, _ = field(b, p, end, given)
        if p < 0:
            break
        starts[n], stops[n] = start, stop
        n += 1
        p += len(given.delimiter)
    return n


@part
def unescaped(b: np.ndarray, start: int, stop: int, form: int, out: np.ndarray, o: int) -> int:
    """Append the text of a field."""
    if not form & ESCAPED:
        return put_bytes(b, start, stop, out, o)
    p = start
    while p < stop:
        c = b[p]
        if form & QUOTED:
            p += 1 if p + 1 < stop and c == b[p + 1] and c == b[start - 1] else 0
        elif c == 0x5C and p + 1 < stop:
            p += 1
            c = 0x0A if b[p] == 0x6E else 0x0D if b[p] == 0x72 else b[p]
        out[o] = c
        o += 1
        p += 1
    return o


@part
def decode_message(m: int, b: np.ndarray, p: int, end: int, given: CsvLayout, st: State) -> int:
    """Decode message ``m``; OK, NEED_MORE or a fault."""
    if not event_fits(st, end - p):
        return faults.NEED_MORE
    i = new_event(st, m, 0, S.ROW)
    p, op, is_update = _record(b, p, end, given, st, i)
    if p < 0:
        return p
    if is_update:
        if op != 0x44 or p >= end:
            return fault_at(HALF_UPDATE, p)
        p, second, is_update = _record(b, p + len(given.terminator), end, given, st, i)
        if p < 0:
            return p
        if second != 0x49 or not is_update:
            return fault_at(HALF_UPDATE, p)
    if p < end:
        return fault_at(TOO_MANY, p)
    end_images(st, i)
    set_row(st, i, S.UPDATE if is_update or op == 0x55 else S.INSERT if op == 0x49 else S.DELETE)
    if op == 0x55:
        st.byte[S.HAS_BEFORE, i] = 0
    return faults.OK


@part
def _record(b: np.ndarray, p: int, end: int, given: CsvLayout, st: State, i: int) -> tuple[int, int, bool]:
    """Read a record into event ``i``; what follows it, its operation, and whether it is half of an update."""
    n_prefix = 3 + given.given[Q_TS] + given.given[Q_UPDATE] + given.given[Q_HANDLE]
    is_ts = 3 if given.given[Q_TS] else -1
    is_flag = 3 + given.given[Q_TS] if given.given[Q_UPDATE] else -1
    op = 0
    is_update = False
    for j in range(n_prefix + len(given.kinds)):
        if j:
            if p >= end or not _at(b, p, end, given.delimiter):
                return fault_at(TOO_FEW, p), op, is_update
            p += len(given.delimiter)
        start, stop, q, form = field(b, p, end, given)
        if q < 0:
            return q, op, is_update
        if j >= n_prefix:
            status = _put_column(b, start, stop, form, j - n_prefix, given, st, S.BEFORE if op == 0x44 else S.AFTER)
            if status < 0:
                return status, op, is_update
        elif j == 0:
            op = b[start] if stop - start == 1 else 0
            if op != 0x49 and op != 0x44 and op != 0x55:
                return fault_at(BAD_OP, start), op, is_update
        elif j < 3:
            k = S.TABLE_NAME if j == 1 else S.SCHEMA_NAME
            if not st.valid[k, i]:
                o = unescaped(b, start, stop, form, st.data[k], st.size[k])
                if checked_utf8(st.data[k], st.size[k], o, start) < 0:
                    return fault_at(faults.BAD_UTF8, start), op, is_update
                close(st, k, i, o)
        elif j == is_ts:
            ts, ok = int64_of(b, start, stop) if stop > start else (0, False)
            if not ok or ts < 0:
                return fault_at(BAD_TS, start), op, is_update
            put_ts(st, i, ts)
        elif j == is_flag:
            if stop - start < 4 or (b[start] != 0x74 and b[start] != 0x66):
                return fault_at(BAD_FLAG, start), op, is_update
            is_update = b[start] == 0x74
        p = q
    return p, op, is_update


@part
def _put_column(
    b: np.ndarray, start: int, stop: int, form: int, j: int, given: CsvLayout, st: State, image: int
) -> int:  # fmt: skip
    n0, n1, t0, t1 = given.names_end[j], given.names_end[j + 1], given.types_end[j], given.types_end[j + 1]
    if not put_typed_name(given.names, n0, n1, given.types, t0, t1, room_for(stop - start) + 32, image, st):
        return faults.NEED_MORE
    c, values = st.count[S.N_AFTER if image == S.AFTER else S.N_BEFORE], image + S.VALUES
    if given.held[j] == mysql_types.NO_MYSQL_TYPE:
        return fault_at(faults.NO_SUCH_TYPE, start)
    if given.nullable[j] and not form & QUOTED and _is(b, start, stop, given.null):
        put_null(st, values, c)
    elif given.quoted[j] and not form & QUOTED and given.given[Q_QUOTE] >= 0:
        return fault_at(UNQUOTED, start)
    else:
        o = _put_value(b, start, stop, form, j, given, st, values)
        if o < 0:
            return o
        close(st, values, c, o)
    end_column(st, image, given.is_key[j], -1)
    return faults.OK


@part
def _put_value(b: np.ndarray, start: int, stop: int, form: int, j: int, given: CsvLayout, st: State, k: int) -> int:
    """Append a value in the form of the events contract; the new end, or a fault."""
    out, o, kind, where = st.data[k], st.size[k], given.kinds[j], start
    if form & ESCAPED and kind != PLAIN:
        stop = unescaped(b, start, stop, form, st.text, 0)
        b, start, form = st.text, 0, 0
    if kind == BASE64:
        end = put_base64(b, start, stop, True, out, o, False)
        return end if end >= 0 else fault_at(-end >> 40, where)
    if kind == HEX:
        return _put_hex_digits(b, start, stop, out, o, where)
    if kind in (FLOAT, SINGLE):
        if not is_number(b, start, stop):
            end = fault_at(faults.NOT_OF_TYPE, where)
        else:
            end = put_single(b, start, stop, out, o) if kind == SINGLE else put_float(b, start, stop, out, o)
        return end if end >= 0 else fault_at(-end >> 40, where)
    if kind in (ENUM, SET):
        return _put_number_of_label(b, start, stop, j, given, out, o, where)
    end = unescaped(b, start, stop, form, out, o)
    if given.held[j]:
        return end if holds(given.held[j], out, o, end) else fault_at(faults.NOT_OF_TYPE, where)
    return end if checked_utf8(out, o, end, where) >= 0 else fault_at(faults.BAD_UTF8, where)


@part
def _put_hex_digits(b: np.ndarray, start: int, stop: int, out: np.ndarray, o: int, where: int) -> int:
    if (stop - start) % 2:
        return fault_at(BAD_HEX, where)
    out[o], out[o + 1] = 0x30, 0x78
    o += 2
    for p in range(start, stop):
        c = b[p] | 0x20
        if not (0x30 <= b[p] <= 0x39 or 0x61 <= c <= 0x66):
            return fault_at(BAD_HEX, where)
        out[o] = c
        o += 1
    return o


@part
def _label(b: np.ndarray, start: int, stop: int, j: int, given: CsvLayout) -> int:
    """Which of column ``j``'s labels a text is, from 0; -1 for none."""
    first = given.first_label[j]
    for i in range(first, given.first_label[j + 1]):
        if same_bytes(b, start, stop, given.labels, given.labels_end[i], given.labels_end[i + 1]):
            return i - first
    return -1


@part
def _put_number_of_label(
    b: np.ndarray, start: int, stop: int, j: int, given: CsvLayout, out: np.ndarray, o: int, where: int
) -> int:
    """Append the number of an ENUM's label, or the bits of a SET's labels; a label that is none stays as it is."""
    number = np.uint64(0)
    p = start
    while p < stop:
        q = p
        if given.kinds[j] == SET:
            while q < stop and b[q] != 0x2C:
                q += 1
        else:
            q = stop
        i = _label(b, p, q, j, given)
        if i < 0:
            end = put_bytes(b, start, stop, out, o)
            return end if checked_utf8(out, o, end, where) >= 0 else fault_at(faults.BAD_UTF8, where)
        number |= np.uint64(1) << np.uint64(i) if given.kinds[j] == SET else np.uint64(i + 1)
        p = q + 1
    if start == stop and given.kinds[j] == ENUM:
        number = np.uint64(_label(b, start, stop, j, given) + 1)  # the empty label can be one; else it is error 0
    return put_unsigned(number, out, o)


@kernel
def run_csv(vb: np.ndarray, vp: np.ndarray, vend: np.ndarray, given: CsvLayout, st: State, found: np.ndarray) -> int:
    """Decode every message; ``found[m]`` is the fault of message ``m``, 0 for none."""
    for m in range(len(vp)):
        mark(st)
        status = decode_message(m, vb, vp[m], vend[m], given, st)
        if status == faults.NEED_MORE:
            return faults.NEED_MORE
        found[m] = -status
        if status != faults.OK:
            restore(st)
    return faults.OK


@kernel
def gather(b: np.ndarray, starts: np.ndarray, ends: np.ndarray, out: np.ndarray) -> int:
    """Copy the spans to ``out`` without gaps; how many bytes that are."""
    o = 0
    for i in range(len(starts)):
        o = put_bytes(b, starts[i], ends[i], out, o)
    return o


@kernel
def count_bytes(b: np.ndarray, c: int) -> int:
    """How often a byte occurs."""
    n = 0
    for p in range(len(b)):
        n += b[p] == c
    return n
