"""Open-protocol: length-framed JSON keys and values, many events a message (`design/protocols.md` sections 1 and 5)."""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.kernel import state as S
from ticdc_lab.codecs.kernel.identity import set_row
from ticdc_lab.codecs.kernel.jit import kernel
from ticdc_lab.codecs.kernel.scan import (
    after_name,
    fault_at,
    literal_end,
    next_member,
    number_end,
    skip_space,
    string_end,
    value_end,
)
from ticdc_lab.codecs.kernel.state import (
    State,
    close,
    column_fits,
    end_column,
    end_images,
    event_fits,
    index_names,
    new_event,
    put_null,
    put_text,
    put_ts,
)
from ticdc_lab.codecs.kernel.text import (
    int64_of,
    put_base64,
    put_bytes,
    put_float,
    put_go_quoted_hex,
    put_integer,
    put_string,
    room_for,
)

OK, NEED_MORE = faults.OK, faults.NEED_MORE
MISSING_FIELD, BAD_TYPE, OUT_OF_RANGE = faults.MISSING_FIELD, faults.BAD_TYPE, faults.OUT_OF_RANGE
DUPLICATE_KEY, UNKNOWN_TYPE, TRUNCATED = faults.DUPLICATE_KEY, faults.UNKNOWN_TYPE, faults.TRUNCATED_FRAME
NOT_JSON, BAD_VERSION, TRAILING = faults.NOT_JSON, faults.BAD_VERSION, faults.TRAILING_BYTES
KEYS_AND_VALUES, NULL_VALUE, MISSING_KEY = faults.KEYS_AND_VALUES, faults.NULL_VALUE, faults.MISSING_KEY
ROW, DDL, WATERMARK = S.ROW, S.DDL, S.WATERMARK
INSERT, UPDATE, DELETE = S.INSERT, S.UPDATE, S.DELETE
HANDLE_KEY_ONLY, CLAIM_CHECK_MISSING = S.HANDLE_KEY_ONLY, S.CLAIM_CHECK_MISSING
SCHEMA_NAME, TABLE_NAME, QUERY, DDL_TYPE = S.SCHEMA_NAME, S.TABLE_NAME, S.QUERY, S.DDL_TYPE
AFTER, BEFORE, NAMES, TYPES, VALUES = S.AFTER, S.BEFORE, S.NAMES, S.TYPES, S.VALUES
KIND, INCOMPLETE, HAS_TABLE_ID, TABLE_ID = S.KIND, S.INCOMPLETE, S.HAS_TABLE_ID, S.TABLE_ID
N_AFTER, N_BEFORE = S.N_AFTER, S.N_BEFORE

BINARY_FLAG, UNSIGNED_FLAG = 1, 128

# MySQL's type bytes, and how TiCDC writes a value of each: as text, as a JSON integer, as a JSON float, in base64.
AS_TEXT, AS_INTEGER, AS_FLOAT, AS_BASE64, AS_QUOTED = 1, 2, 3, 4, 5
_TYPES = {
    0: ("decimal", AS_TEXT), 1: ("tinyint", AS_INTEGER), 2: ("smallint", AS_INTEGER), 3: ("int", AS_INTEGER),
    4: ("float", AS_FLOAT), 5: ("double", AS_FLOAT), 6: ("null", 0), 7: ("timestamp", AS_TEXT),
    8: ("bigint", AS_INTEGER), 9: ("mediumint", AS_INTEGER), 10: ("date", AS_TEXT), 11: ("time", AS_TEXT),
    12: ("datetime", AS_TEXT), 13: ("year", AS_INTEGER), 14: ("date", AS_TEXT), 15: ("varchar", AS_QUOTED),
    16: ("bit", AS_INTEGER), 225: ("vector", AS_TEXT), 245: ("json", AS_TEXT), 246: ("decimal", AS_TEXT),
    247: ("enum", AS_INTEGER), 248: ("set", AS_INTEGER), 249: ("tinytext", AS_BASE64),
    250: ("mediumtext", AS_BASE64), 251: ("longtext", AS_BASE64), 252: ("text", AS_BASE64),
    253: ("varchar", AS_QUOTED), 254: ("char", AS_QUOTED), 255: ("geometry", AS_TEXT),
}  # fmt: skip
_BINARY_TWIN = {
    "varchar": "varbinary", "char": "binary", "tinytext": "tinyblob", "mediumtext": "mediumblob",
    "longtext": "longblob", "text": "blob",
}  # fmt: skip
_HAS_SIGN = {"tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "decimal"}


def _type_tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    texts, form = [], np.zeros(256, np.uint8)
    for code in range(256):
        name, form[code] = _TYPES.get(code, ("", 0))
        for binary in (False, True):
            for unsigned in (False, True):
                kind = _BINARY_TWIN.get(name, name) if binary else name
                texts.append(kind + " unsigned" if unsigned and kind in _HAS_SIGN else kind)
    ends = np.cumsum([0] + [len(t) for t in texts]).astype(np.int32)
    return np.frombuffer("".join(texts).encode(), np.uint8).copy(), ends, form


_TYPE_TEXT, _TYPE_END, _FORM = _type_tables()


@kernel
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


@kernel
def decode_message(
    m: int, kb: np.ndarray, kp: int, kend: int, vb: np.ndarray, vp: int, vend: int,
    st: State,
) -> tuple[int, int]:  # fmt: skip
    """Decode one message; the fault, NEED_MORE or OK, and 0 if it lies in the key, 1 if in the value."""
    if kp < 0:
        return fault_at(MISSING_KEY, 0), 0
    if vp < 0:
        return fault_at(NULL_VALUE, 0), 1
    k, v = kp + 8, vp
    if k > kend or kb[kp + 7] != 1:
        return fault_at(BAD_VERSION, kp), 0
    for i in range(7):
        if kb[kp + i] != 0:
            return fault_at(BAD_VERSION, kp), 0
    if k == kend:
        return fault_at(KEYS_AND_VALUES, k), 0
    seq = 0
    while k < kend:
        k_stop = _frame(kb, k, kend)
        if k_stop < 0:
            return k_stop, 0
        if v >= vend:
            return fault_at(KEYS_AND_VALUES, k), 0
        v_stop = _frame(vb, v, vend)
        if v_stop < 0:
            return v_stop, 1
        status, part = _event(m, seq, kb, k + 8, k_stop, vb, v + 8, v_stop, st)
        if status != OK:
            return status, part
        k, v, seq = k_stop, v_stop, seq + 1
    if v != vend:
        return fault_at(KEYS_AND_VALUES, v), 1
    return OK, 0


@kernel
def _event(
    m: int, seq: int, kb: np.ndarray, k: int, kend: int, vb: np.ndarray, v: int, vend: int,
    st: State,
) -> tuple[int, int]:  # fmt: skip
    if not event_fits(st, kend - k + vend - v + 16):
        return NEED_MORE, 0
    i = new_event(st, m, seq, ROW)
    end_images(st, i)
    kind = _key(kb, k, kend, st, i)
    if kind < 0:
        return kind, 0
    if kind == 3:
        st.byte[KIND, i] = WATERMARK
        put_null(st, SCHEMA_NAME, i)
        put_null(st, TABLE_NAME, i)
        if v != vend:
            return fault_at(TRAILING, v), 1
        return OK, 1
    if not (st.valid[SCHEMA_NAME, i] and st.valid[TABLE_NAME, i]):
        return fault_at(MISSING_FIELD, k), 0
    if kind == 2:
        st.byte[KIND, i] = DDL
        return _ddl(vb, v, vend, st, i), 1
    return _row(vb, v, vend, st, i), 1


@kernel
def _key(b: np.ndarray, p: int, end: int, st: State, i: int) -> int:
    """Read a key into event ``i``; the message type (1 row, 2 DDL, 3 resolved) or a fault."""
    start = p
    p = skip_space(b, p, end)
    if p >= end or b[p] != 0x7B:
        return fault_at(BAD_TYPE, start)
    p, more = next_member(b, p + 1, end, 0x7D, True)
    if p < 0:
        return p
    seen, kind = 0, -1
    while more:
        q, escaped = string_end(b, p, end)
        if q < 0:
            return q
        field = 0
        if not escaped:
            field = _key_field(b, p + 1, q - 1)
        else:
            o = put_string(b, p + 1, q - 1, True, st.text, 0)
            field = _key_field(st.text, 0, o)
        p = after_name(b, q, end)
        if p < 0:
            return p
        q = value_end(b, p, end, st.stack)
        if q < 0:
            return q
        if field and field != 6 and seen >> field & 1:
            return fault_at(DUPLICATE_KEY, p)
        seen |= 1 << field
        if field == 1:
            ts, ok = int64_of(b, p, q)
            if not ok or b[p] == 0x2D:
                return fault_at(OUT_OF_RANGE, p)
            put_ts(st, i, ts)
        elif field == 2 or field == 3:
            if b[p] != 0x22:
                return fault_at(BAD_TYPE, p)
            put_text(st, SCHEMA_NAME if field == 2 else TABLE_NAME, i, b, p, q, True)
        elif field == 4:
            t_code, ok = int64_of(b, p, q)
            if not ok or b[p] == 0x2D or t_code > 255:
                return fault_at(OUT_OF_RANGE, p)
            kind = t_code
        elif field == 5:
            if b[p] != 0x6E:
                number, ok = int64_of(b, p, q)
                if not ok:
                    return fault_at(OUT_OF_RANGE, p)
                st.number[TABLE_ID, i], st.byte[HAS_TABLE_ID, i] = number, 1
        elif field == 6:
            if b[p] != 0x74 and b[p] != 0x66:
                return fault_at(BAD_TYPE, p)
            # The real encoder writes ohk twice: true and true, with a claim check true and false.
            if b[p] == 0x74 and st.byte[INCOMPLETE, i] == 0:
                st.byte[INCOMPLETE, i] = HANDLE_KEY_ONLY
        elif field == 7:
            if b[p] == 0x22:
                if q > p + 2:
                    st.byte[INCOMPLETE, i] = CLAIM_CHECK_MISSING
            elif b[p] != 0x6E:
                return fault_at(BAD_TYPE, p)
        p, more = next_member(b, q, end, 0x7D, False)
        if p < 0:
            return p
    if skip_space(b, p, end) != end:
        return fault_at(TRAILING, p)
    if not seen >> 1 & 1 or kind < 0:
        return fault_at(MISSING_FIELD, start)
    if kind < 1 or kind > 3:
        return fault_at(UNKNOWN_TYPE, start)
    return kind


@kernel
def _key_field(b: np.ndarray, p: int, q: int) -> int:
    """1 ts, 2 scm, 3 tbl, 4 t, 5 ptn, 6 ohk, 7 ccl, else 0."""
    if q - p == 1:
        return 4 if b[p] == 0x74 else 0
    if q - p == 2:
        return 1 if b[p] == 0x74 and b[p + 1] == 0x73 else 0
    if q - p != 3:
        return 0
    word = np.int64(b[p]) << 16 | np.int64(b[p + 1]) << 8 | np.int64(b[p + 2])
    if word == 0x73636D:
        return 2
    if word == 0x74626C:
        return 3
    if word == 0x70746E:
        return 5
    if word == 0x6F686B:
        return 6
    return 7 if word == 0x63636C else 0


@kernel
def _ddl(b: np.ndarray, p: int, end: int, st: State, i: int) -> int:
    start = p
    p = skip_space(b, p, end)
    if p >= end:
        return fault_at(NOT_JSON, start)
    if b[p] != 0x7B:
        return fault_at(BAD_TYPE, start)
    p, more = next_member(b, p + 1, end, 0x7D, True)
    if p < 0:
        return p
    while more:
        q, escaped = string_end(b, p, end)
        if q < 0:
            return q
        o = put_string(b, p + 1, q - 1, escaped, st.text, 0)
        name = st.text[0] if o == 1 else 0
        p = after_name(b, q, end)
        if p < 0:
            return p
        q = value_end(b, p, end, st.stack)
        if q < 0:
            return q
        if name == 0x71:
            if b[p] != 0x22:
                return fault_at(BAD_TYPE, p)
            if st.valid[QUERY, i]:
                return fault_at(DUPLICATE_KEY, p)
            put_text(st, QUERY, i, b, p, q, True)
        elif name == 0x74:
            _, ok = int64_of(b, p, q)
            if not ok or b[p] == 0x2D:
                return fault_at(OUT_OF_RANGE, p)
            if st.valid[DDL_TYPE, i]:
                return fault_at(DUPLICATE_KEY, p)
            close(st, DDL_TYPE, i, put_bytes(b, p, q, st.data[DDL_TYPE], st.size[DDL_TYPE]))
        p, more = next_member(b, q, end, 0x7D, False)
        if p < 0:
            return p
    if skip_space(b, p, end) != end:
        return fault_at(TRAILING, p)
    if not (st.valid[QUERY, i] and st.valid[DDL_TYPE, i]):
        return fault_at(MISSING_FIELD, start)
    return OK


@kernel
def _row(b: np.ndarray, p: int, end: int, st: State, i: int) -> int:
    start = p
    p = skip_space(b, p, end)
    if p >= end:
        return fault_at(NOT_JSON, start)
    if b[p] != 0x7B:
        return fault_at(BAD_TYPE, start)
    p, more = next_member(b, p + 1, end, 0x7D, True)
    if p < 0:
        return p
    seen, has = 0, 0
    while more:
        q, escaped = string_end(b, p, end)
        if q < 0:
            return q
        o = put_string(b, p + 1, q - 1, escaped, st.text, 0)
        name = st.text[0] if o == 1 else 0
        bit = 1 if name == 0x75 else 2 if name == 0x70 else 4 if name == 0x64 else 0
        p = after_name(b, q, end)
        if p < 0:
            return p
        if seen & bit:
            return fault_at(DUPLICATE_KEY, p)
        seen |= bit
        if bit and p < end and b[p] == 0x7B:
            has |= bit
            q = _image(b, p, end, st, AFTER if bit == 1 else BEFORE)
        elif bit and p < end and b[p] != 0x6E:
            return fault_at(BAD_TYPE, p)
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
        return fault_at(MISSING_FIELD, start)
    op = INSERT if has == 1 else UPDATE if has == 3 else DELETE
    end_images(st, i)
    set_row(st, i, op)
    return OK


@kernel
def _image(b: np.ndarray, p: int, end: int, st: State, image: int) -> int:
    """Read ``{"column": {"t":.., "h":.., "f":.., "v":..}, ..}``; the position after it."""
    which = N_AFTER if image == AFTER else N_BEFORE
    first = st.count[which]
    start = p
    p, more = next_member(b, p + 1, end, 0x7D, True)
    if p < 0:
        return p
    while more:
        q, escaped = string_end(b, p, end)
        if q < 0:
            return q
        if not column_fits(st, image, q - p, 32, 0):
            return NEED_MORE
        put_text(st, image + NAMES, st.count[which], b, p, q, escaped)
        p = after_name(b, q, end)
        if p < 0:
            return p
        p = _column(b, p, end, st, image)
        if p < 0:
            return p
        p, more = next_member(b, p, end, 0x7D, False)
        if p < 0:
            return p
    if index_names(st, image + NAMES, first, st.count[which]) < 0:
        return fault_at(DUPLICATE_KEY, start)
    return p


@kernel
def _column(b: np.ndarray, p: int, end: int, st: State, image: int) -> int:
    start = p
    if p >= end or b[p] != 0x7B:
        return fault_at(BAD_TYPE, p)
    p, more = next_member(b, p + 1, end, 0x7D, True)
    if p < 0:
        return p
    code = flags = v = v_stop = -1
    handle = seen = 0
    v_escaped = False
    while more:
        q, escaped = string_end(b, p, end)
        if q < 0:
            return q
        name = b[p + 1] if q - p == 3 else 0
        if escaped:
            name = st.text[0] if put_string(b, p + 1, q - 1, True, st.text, 0) == 1 else 0
        p = after_name(b, q, end)
        if p < 0:
            return p
        bit = 1 if name == 0x74 else 2 if name == 0x66 else 4 if name == 0x76 else 8 if name == 0x68 else 0
        if seen & bit:
            return fault_at(DUPLICATE_KEY, p)
        seen |= bit
        if p < end and b[p] == 0x22:
            q, escaped = string_end(b, p, end)
        elif p < end and (b[p] == 0x2D or 0x30 <= b[p] <= 0x39):
            q = number_end(b, p, end)
        elif (p < end and bit and bit != 4) or (bit and p < end and b[p] != 0x7B and b[p] != 0x5B):
            q = literal_end(b, p, end)
        elif bit:
            return fault_at(BAD_TYPE, p)
        else:
            q = value_end(b, p, end, st.stack)
        if q < 0:
            return q
        if bit == 1 or bit == 2:
            number, ok = int64_of(b, p, q)
            if not ok or b[p] == 0x2D or (bit == 1 and number > 255):
                return fault_at(OUT_OF_RANGE, p)
            if bit == 1:
                code = number
            else:
                flags = number
        elif bit == 4:
            v, v_stop, v_escaped = p, q, escaped
        elif bit == 8:
            if b[p] != 0x74 and b[p] != 0x66:
                return fault_at(BAD_TYPE, p)
            handle = 1 if b[p] == 0x74 else 0
        p, more = next_member(b, q, end, 0x7D, False)
        if p < 0:
            return p
    if code < 0 or flags < 0 or v < 0:
        return fault_at(MISSING_FIELD, start)
    status = _put_column(b, v, v_stop, v_escaped, code, flags, st, image)
    if status != OK:
        return status
    end_column(st, image, handle, flags)
    return p


@kernel
def _put_column(b: np.ndarray, v: int, v_stop: int, escaped: bool, code: int, flags: int, st: State, image: int) -> int:
    """Write type and value of the column at the image's end."""
    c = st.count[N_AFTER if image == AFTER else N_BEFORE]
    binary = flags & BINARY_FLAG
    place = code * 4 + 2 * binary + (1 if flags & UNSIGNED_FLAG else 0)
    if _TYPE_END[place] == _TYPE_END[place + 1]:
        return fault_at(UNKNOWN_TYPE, v)
    if not column_fits(st, image, 0, 32, room_for(v_stop - v)):
        return NEED_MORE
    types, values = image + TYPES, image + VALUES
    out = st.data[values]
    close(st, types, c, put_bytes(_TYPE_TEXT, _TYPE_END[place], _TYPE_END[place + 1], st.data[types], st.size[types]))
    if b[v] == 0x6E:
        put_null(st, values, c)
        return OK
    form = _FORM[code]
    o = st.size[values]
    if b[v] != 0x22:
        if b[v] == 0x74 or b[v] == 0x66:
            return fault_at(BAD_TYPE, v)
        if form == AS_INTEGER:
            o = put_integer(b, v, v_stop, out, o)
        elif form == AS_FLOAT:
            o = put_float(b, v, v_stop, out, o)
        else:
            return fault_at(BAD_TYPE, v)
    elif form == AS_TEXT or (form == AS_QUOTED and not binary):
        o = put_string(b, v + 1, v_stop - 1, escaped, out, o)
    elif form in (AS_QUOTED, AS_BASE64):
        text, start, stop = b, v + 1, v_stop - 1
        if escaped:
            stop = put_string(b, start, stop, True, st.text, 0)
            text, start = st.text, 0
        if form == AS_QUOTED:
            o = put_go_quoted_hex(text, start, stop, out, o)
        else:
            o = put_base64(text, start, stop, binary == 1, out, o, True)
        if o < 0:
            return fault_at(-o >> 40, v)
    else:
        return fault_at(BAD_TYPE, v)
    if o < 0:
        return o
    close(st, values, c, o)
    return OK
