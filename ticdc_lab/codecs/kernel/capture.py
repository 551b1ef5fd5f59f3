"""Lines of a capture file: one JSON object a message, key and value in base64 (docs/contracts.md)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.decoded import Lines
from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.kernel.arrow import numbers, spans, texts
from ticdc_lab.codecs.kernel.jit import kernel, part
from ticdc_lab.codecs.kernel.members import described, nth_name
from ticdc_lab.codecs.kernel.scan import fault_at, next_member, skip_space, value_end
from ticdc_lab.codecs.kernel.state import State, close, fresh_state, has_room, put_null, put_text
from ticdc_lab.codecs.kernel.text import (
    base64_groups,
    int64_of,
    put_base64,
    put_base64_bytes,
    put_bytes,
    put_string,
    read_name,
)

DUPLICATE_KEY, NOT_JSON, TRAILING = faults.DUPLICATE_KEY, faults.NOT_JSON, faults.TRAILING_BYTES

# Text columns and numbers of a message in the state; a field of a line is a text, or 4 and the place of its number.
TOPIC, KEY, VALUE, HEADERS = 0, 1, 2, 3
_FIELDS = described("topic", "key", "value", "headers", "partition", "offset", "timestamp")
_CODED = (KEY, VALUE)
PARTITION, OFFSET, TIMESTAMP = 0, 1, 2
_YEAR_10000_MS = 253402300800000
_LIMITS = np.array([2**31 - 1, 2**63 - 1, _YEAR_10000_MS - 1], np.int64)


@part
def read_line(b: np.ndarray, p: int, end: int, st: State, i: int) -> int:
    """Read message ``i`` from a line; OK, NEED_MORE or a fault."""
    start = p
    for k in range(4):
        if not has_room(st, k, i, end - p):
            return faults.NEED_MORE
        put_null(st, k, i)
    for k in range(3):
        st.byte[k, i] = 0
    p = skip_space(b, p, end)
    if p >= end:
        return fault_at(NOT_JSON, start)
    if b[p] != 0x7B:
        return fault_at(faults.BAD_TYPE, p)
    p, more = next_member(b, p + 1, end, 0x7D, True)
    if p < 0:
        return p
    seen = 0
    while more:
        text, low, high, p = read_name(b, p, end, st.text)
        if p < 0:
            return p
        field = nth_name(text, low, high, 0, _FIELDS)
        q = _coded(b, p, end, field, st, i) if field in _CODED and not seen >> field & 1 else 0
        if q == 0:
            q = value_end(b, p, end, st.stack)
        else:
            seen |= 1 << field
            field = -1
        if q < 0:
            return q
        if field >= 0:
            if seen >> field & 1:
                return fault_at(DUPLICATE_KEY, p)
            seen |= 1 << field
            status = _take(b, p, q, field, st, i)
            if status < 0:
                return status
        p, more = next_member(b, q, end, 0x7D, False)
        if p < 0:
            return p
    if skip_space(b, p, end) != end:
        return fault_at(TRAILING, p)
    if not (st.byte[PARTITION, i] and st.byte[OFFSET, i] and st.valid[TOPIC, i]):
        return fault_at(faults.MISSING_FIELD, start)
    return faults.OK


@part
def _coded(b: np.ndarray, p: int, end: int, field: int, st: State, i: int) -> int:
    """Put base64 without escapes, read once, and give where it ends; 0 for all else, which is not put."""
    if p >= end or b[p] != 0x22:
        return 0
    out = st.data[field]
    p, o = base64_groups(b, p + 1, end, out, st.size[field])
    if p < end and b[p] != 0x22:
        q = min(p + 4, end)
        if q == end or b[q] != 0x22 or b[q - 1] != 0x3D:
            return 0
        o = put_base64(b, p, q, False, out, o, False)
        if o < 0:
            return 0
        p = q
    if p >= end:
        return 0
    close(st, field, i, o)
    return p + 1


@part
def _take(b: np.ndarray, p: int, q: int, field: int, st: State, i: int) -> int:
    if b[p] == 0x6E:
        return faults.OK
    if field == HEADERS:
        if b[p] != 0x5B:
            return fault_at(faults.BAD_TYPE, p)
        if q - p > 2:
            close(st, HEADERS, i, put_bytes(b, p, q, st.data[HEADERS], st.size[HEADERS]))
        return faults.OK
    if field >= 4:
        number, ok = int64_of(b, p, q)
        if b[p] == 0x22:
            return fault_at(faults.BAD_TYPE, p)
        if field == 4 + TIMESTAMP and number == -1:  # how Kafka writes that there is none
            return faults.OK
        if not ok or number < 0 or number > _LIMITS[field - 4]:
            return fault_at(faults.OUT_OF_RANGE, p)
        st.number[field - 4, i], st.byte[field - 4, i] = number, 1
        return faults.OK
    if b[p] != 0x22:
        return fault_at(faults.BAD_TYPE, p)
    if field == TOPIC:
        put_text(st, TOPIC, i, b, p, q, True)
        return faults.OK
    text, low, high = b, p + 1, q - 1
    for k in range(low, high):
        if b[k] == 0x5C:
            high = put_string(b, low, high, True, st.text, 0)
            text, low = st.text, 0
            break
    o = put_base64_bytes(text, low, high, st.data[field], st.size[field])
    if o < 0:
        return fault_at(-o >> 40, p)
    close(st, field, i, o)
    return faults.OK


@kernel
def read_lines(b: np.ndarray, starts: np.ndarray, ends: np.ndarray, st: State, found: np.ndarray) -> int:
    """Read all lines; message ``i`` is line ``i``, and ``found[i]`` its fault (0 for none)."""
    for i in range(len(starts)):
        sizes0, sizes1, sizes2, sizes3 = st.size[0], st.size[1], st.size[2], st.size[3]
        status = read_line(b, starts[i], ends[i], st, i)
        if status == faults.NEED_MORE:
            return faults.NEED_MORE
        found[i] = -status
        if status != faults.OK:
            st.size[0], st.size[1], st.size[2], st.size[3] = sizes0, sizes1, sizes2, sizes3
            for k in range(4):
                put_null(st, k, i)
    return faults.OK


_PLACE = (1 << 40) - 1


def lines_of(lines: pa.Array) -> Lines:
    """As :func:`ticdc_lab.sources.capture.read_fields`.

    No field is longer than its text in the line, and an array of lines has less than 2 GiB, so there is room.
    """
    data, starts, ends = spans(lines)
    n = len(lines)
    st, found = fresh_state(n + 64, len(data) + 4096), np.zeros(n, np.int64)
    if read_lines(data, starts, ends, st, found) != faults.OK:
        raise AssertionError(f"{n} lines became more than their {len(data)} bytes")
    wrong = found != 0
    places = np.maximum((found & _PLACE) - starts, 0)
    st.byte[:3, :n] &= ~wrong
    partition, offset, timestamp_ms = (numbers(st.number[k], st.byte[k], n) for k in range(3))
    return Lines(
        texts(st, TOPIC, n, pa.string()),
        partition,
        offset,
        timestamp_ms,
        texts(st, KEY, n, pa.binary()),
        texts(st, VALUE, n, pa.binary()),
        texts(st, HEADERS, n, pa.string()),
        np.where(wrong, found >> 40 << 40 | places, 0),
    )
