"""Open-protocol: length-framed JSON keys and values, many events a message (docs/reading.md)."""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.identity import set_row
from ticdc_lab.codecs.kernel.jit import part
from ticdc_lab.codecs.kernel.members import described, nth_name
from ticdc_lab.codecs.kernel.open_image import read_image
from ticdc_lab.codecs.kernel.scan import (
    fault_at,
    next_member,
    skip_space,
    value_end,
)
from ticdc_lab.codecs.kernel.state import (
    State,
    close,
    end_images,
    event_fits,
    new_event,
    put_null,
    put_text,
    put_ts,
)
from ticdc_lab.codecs.kernel.text import (
    int64_of,
    put_bytes,
    read_name,
)

DUPLICATE_KEY, UNKNOWN_TYPE, TRUNCATED = faults.DUPLICATE_KEY, faults.UNKNOWN_TYPE, faults.TRUNCATED_FRAME
NOT_JSON, BAD_VERSION, TRAILING = faults.NOT_JSON, faults.BAD_VERSION, faults.TRAILING_BYTES

_KEY = described("ts", "scm", "tbl", "t", "ptn", "ohk", "ccl")
"""Names in a key; a field of one is the number of its name, from 1 on."""


@part
def _frame(b: np.ndarray, p: int, end: int) -> int:
    """End of the frame whose 8-byte length is at ``p``."""
    if p + 8 > end:
        return fault_at(TRUNCATED, p)
    n = np.uint64(0)
    for i in range(8):
        n = n << np.uint64(8) | np.uint64(b[p + i])
    if n > np.uint64(end - p - 8):
        return fault_at(TRUNCATED, p)
    return p + 8 + np.int64(n)


@part
def decode_message(
    m: int, kb: np.ndarray, kp: int, kend: int, vb: np.ndarray, vp: int, vend: int,
    st: State,
) -> tuple[int, int]:  # fmt: skip
    """Decode one message; the fault, NEED_MORE or OK, and 0 if it lies in the key, 1 if in the value."""
    if kp < 0:
        return fault_at(faults.MISSING_KEY, 0), 0
    if vp < 0:
        return fault_at(faults.NULL_VALUE, 0), 1
    k, v = kp + 8, vp
    if k > kend or kb[kp + 7] != 1:
        return fault_at(BAD_VERSION, kp), 0
    for i in range(7):
        if kb[kp + i] != 0:
            return fault_at(BAD_VERSION, kp), 0
    if k == kend:
        return fault_at(faults.KEYS_AND_VALUES, k), 0
    seq = 0
    while k < kend:
        k_stop = _frame(kb, k, kend)
        if k_stop < 0:
            return k_stop, 0
        if v >= vend:
            return fault_at(faults.KEYS_AND_VALUES, k), 0
        v_stop = _frame(vb, v, vend)
        if v_stop < 0:
            return v_stop, 1
        status, part = _event(m, seq, kb, k + 8, k_stop, vb, v + 8, v_stop, st)
        if status != faults.OK:
            return status, part
        st.number[S.ROW_BYTES, st.count[S.N_EVENTS] - 1] = k_stop - k + v_stop - v
        k, v, seq = k_stop, v_stop, seq + 1
    if v != vend:
        return fault_at(faults.KEYS_AND_VALUES, v), 1
    return faults.OK, 0


@part
def _event(
    m: int, seq: int, kb: np.ndarray, k: int, kend: int, vb: np.ndarray, v: int, vend: int,
    st: State,
) -> tuple[int, int]:  # fmt: skip
    if not event_fits(st, kend - k + vend - v + 16):
        return faults.NEED_MORE, 0
    i = new_event(st, m, seq, S.ROW)
    end_images(st, i)
    kind = _key(kb, k, kend, st, i)
    if kind < 0:
        return kind, 0
    if kind == 3:
        st.byte[S.KIND, i] = S.WATERMARK
        put_null(st, S.SCHEMA_NAME, i)
        put_null(st, S.TABLE_NAME, i)
        if v != vend:
            return fault_at(TRAILING, v), 1
        return faults.OK, 1
    if not (st.valid[S.SCHEMA_NAME, i] and st.valid[S.TABLE_NAME, i]):
        return fault_at(faults.MISSING_FIELD, k), 0
    if kind == 2:
        st.byte[S.KIND, i] = S.DDL
        return _ddl(vb, v, vend, st, i), 1
    return _row(vb, v, vend, st, i), 1


@part
def _key(b: np.ndarray, p: int, end: int, st: State, i: int) -> int:
    """Read a key into event ``i``; the message type (1 row, 2 DDL, 3 resolved) or a fault."""
    start = p
    p = skip_space(b, p, end)
    if p >= end or b[p] != 0x7B:
        return fault_at(faults.BAD_TYPE, start)
    p, more = next_member(b, p + 1, end, 0x7D, True)
    if p < 0:
        return p
    seen, kind, field = 0, -1, 0
    while more:
        text, low, high, p = read_name(b, p, end, st.text)
        if p < 0:
            return p
        field = max(nth_name(text, low, high, field, _KEY) + 1, 0)  # they come in this order
        q = value_end(b, p, end, st.stack)
        if q < 0:
            return q
        if field and field != 6 and seen >> field & 1:
            return fault_at(DUPLICATE_KEY, p)
        seen |= 1 << field
        if field == 1:
            ts, ok = int64_of(b, p, q)
            if not ok or b[p] == 0x2D:
                return fault_at(faults.OUT_OF_RANGE, p)
            put_ts(st, i, ts)
        elif field == 2 or field == 3:
            if b[p] != 0x22:
                return fault_at(faults.BAD_TYPE, p)
            put_text(st, S.SCHEMA_NAME if field == 2 else S.TABLE_NAME, i, b, p, q, True)
        elif field == 4:
            t_code, ok = int64_of(b, p, q)
            if not ok or b[p] == 0x2D or t_code > 255:
                return fault_at(faults.OUT_OF_RANGE, p)
            kind = t_code
        elif field == 5:
            if b[p] != 0x6E:
                number, ok = int64_of(b, p, q)
                if not ok:
                    return fault_at(faults.OUT_OF_RANGE, p)
                st.number[S.TABLE_ID, i], st.byte[S.HAS_TABLE_ID, i] = number, 1
        elif field == 6:
            if b[p] != 0x74 and b[p] != 0x66:
                return fault_at(faults.BAD_TYPE, p)
            # The real encoder writes ohk twice: true and true, with a claim check true and false.
            if b[p] == 0x74 and st.byte[S.INCOMPLETE, i] == 0:
                st.byte[S.INCOMPLETE, i] = S.HANDLE_KEY_ONLY
        elif field == 7:
            if b[p] == 0x22:
                if q > p + 2:
                    st.byte[S.INCOMPLETE, i] = S.CLAIM_CHECK_MISSING
            elif b[p] != 0x6E:
                return fault_at(faults.BAD_TYPE, p)
        p, more = next_member(b, q, end, 0x7D, False)
        if p < 0:
            return p
    if skip_space(b, p, end) != end:
        return fault_at(TRAILING, p)
    if not seen >> 1 & 1 or kind < 0:
        return fault_at(faults.MISSING_FIELD, start)
    if kind < 1 or kind > 3:
        return fault_at(UNKNOWN_TYPE, start)
    return kind


@part
def _ddl(b: np.ndarray, p: int, end: int, st: State, i: int) -> int:
    start = p
    p = skip_space(b, p, end)
    if p >= end:
        return fault_at(NOT_JSON, start)
    if b[p] != 0x7B:
        return fault_at(faults.BAD_TYPE, start)
    p, more = next_member(b, p + 1, end, 0x7D, True)
    if p < 0:
        return p
    while more:
        text, low, high, p = read_name(b, p, end, st.text)
        if p < 0:
            return p
        name = text[low] if high - low == 1 else 0
        q = value_end(b, p, end, st.stack)
        if q < 0:
            return q
        if name == 0x71:
            if b[p] != 0x22:
                return fault_at(faults.BAD_TYPE, p)
            if st.valid[S.QUERY, i]:
                return fault_at(DUPLICATE_KEY, p)
            put_text(st, S.QUERY, i, b, p, q, True)
        elif name == 0x74:
            _, ok = int64_of(b, p, q)
            if not ok or b[p] == 0x2D:
                return fault_at(faults.OUT_OF_RANGE, p)
            if st.valid[S.DDL_TYPE, i]:
                return fault_at(DUPLICATE_KEY, p)
            close(st, S.DDL_TYPE, i, put_bytes(b, p, q, st.data[S.DDL_TYPE], st.size[S.DDL_TYPE]))
        p, more = next_member(b, q, end, 0x7D, False)
        if p < 0:
            return p
    if skip_space(b, p, end) != end:
        return fault_at(TRAILING, p)
    if not (st.valid[S.QUERY, i] and st.valid[S.DDL_TYPE, i]):
        return fault_at(faults.MISSING_FIELD, start)
    return faults.OK


@part
def _row(b: np.ndarray, p: int, end: int, st: State, i: int) -> int:
    start = p
    p = skip_space(b, p, end)
    if p >= end:
        return fault_at(NOT_JSON, start)
    if b[p] != 0x7B:
        return fault_at(faults.BAD_TYPE, start)
    p, more = next_member(b, p + 1, end, 0x7D, True)
    if p < 0:
        return p
    any_member, seen, has = more, 0, 0
    while more:
        text, low, high, p = read_name(b, p, end, st.text)
        if p < 0:
            return p
        name = text[low] if high - low == 1 else 0
        bit = 1 if name == 0x75 else 2 if name == 0x70 else 4 if name == 0x64 else 0
        if seen & bit:
            return fault_at(DUPLICATE_KEY, p)
        seen |= bit
        if bit and p < end and b[p] == 0x7B:
            has |= bit
            q = read_image(b, p, end, st, S.AFTER if bit == 1 else S.BEFORE, bit == 2)
        elif bit and p < end and b[p] != 0x6E:
            return fault_at(faults.BAD_TYPE, p)
        else:
            q = value_end(b, p, end, st.stack)
        if q < 0:
            return q
        p, more = next_member(b, q, end, 0x7D, False)
        if p < 0:
            return p
    if skip_space(b, p, end) != end:
        return fault_at(TRAILING, p)
    if has != 1 and has != 3 and has != 4:
        return fault_at(faults.MISSING_FIELD if any_member else faults.EMPTY_ROW, start)
    op = S.INSERT if has == 1 else S.UPDATE if has == 3 else S.DELETE
    end_images(st, i)
    set_row(st, i, op)
    return faults.OK
