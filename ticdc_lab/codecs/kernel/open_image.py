"""Row images of open-protocol: ``{"column": {"t": type, "h": handle, "f": flags, "v": value}, ..}``."""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.holding import holds
from ticdc_lab.codecs.kernel.jit import part
from ticdc_lab.codecs.kernel.open_types import (
    AS_BASE64,
    AS_FLOAT,
    AS_INTEGER,
    AS_QUOTED,
    AS_TEXT,
    FLOAT_CODE,
    form_of,
    held_by_code,
    type_text,
)
from ticdc_lab.codecs.kernel.scan import (
    after_name,
    fault_at,
    literal_end,
    next_member,
    number_end,
    string_end,
    value_end,
)
from ticdc_lab.codecs.kernel.state import State, close, column_fits, end_column, index_names, put_null, put_text
from ticdc_lab.codecs.kernel.text import (
    int64_of,
    put_base64,
    put_bytes,
    put_float,
    put_go_quoted_hex,
    put_integer,
    put_single,
    put_string,
    read_name,
    room_for,
)

BINARY_FLAG, UNSIGNED_FLAG = 1, 128
_FIELDS = (0x74, 0x68, 0x66, 0x76)
"""The letters of a column's fields: t, h, f, v."""


def _type_tables() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    flags = (False, True)
    texts = [type_text(code, binary=b, unsigned=u) for code in range(256) for b in flags for u in flags]
    ends = np.cumsum([0] + [len(t) for t in texts]).astype(np.int32)
    form = np.array([form_of(code) for code in range(256)], np.uint8)
    held = np.array([held_by_code(code) for code in range(256)], np.int64)
    return np.frombuffer("".join(texts).encode(), np.uint8).copy(), ends, form, held


_TYPE_TEXT, _TYPE_END, _FORM, _HELD = _type_tables()


@part
def read_image(b: np.ndarray, p: int, end: int, st: State, image: int, unnamed: bool) -> int:
    """Read ``{"column": {"t":.., "h":.., "f":.., "v":..}, ..}``; the position after it.

    Where ``unnamed``, the fields of a column may come without the column's name: they are stepped over.
    """
    which = S.N_AFTER if image == S.AFTER else S.N_BEFORE
    first = st.count[which]
    start = p
    p, more = next_member(b, p + 1, end, 0x7D, True)
    if p < 0:
        return p
    while more:
        if st.count[which] - first >= st.limit[S.MAX_COLUMNS]:
            return fault_at(faults.TOO_LARGE, p)
        q, escaped = string_end(b, p, end)
        if q < 0:
            return q
        name, name_end = p, q
        p = after_name(b, q, end)
        if p < 0:
            return p
        if unnamed and name_end - name == 3 and b[name + 1] in _FIELDS and p < end and b[p] != 0x7B and b[p] != 0x5B:
            p = value_end(b, p, end, st.stack)
            if p < 0:
                return p
            if st.byte[S.INCOMPLETE, st.count[S.N_EVENTS] - 1] == 0:
                st.byte[S.INCOMPLETE, st.count[S.N_EVENTS] - 1] = S.BEFORE_UNNAMED
            p, more = next_member(b, p, end, 0x7D, False)
            if p < 0:
                return p
            continue
        if not column_fits(st, image, name_end - name, 32, 0):
            return faults.NEED_MORE
        put_text(st, image + S.NAMES, st.count[which], b, name, name_end, escaped)
        p = _column(b, p, end, st, image)
        if p < 0:
            return p
        p, more = next_member(b, p, end, 0x7D, False)
        if p < 0:
            return p
    if index_names(st, image + S.NAMES, first, st.count[which]) < 0:
        return fault_at(faults.DUPLICATE_KEY, start)
    return p


@part
def _column(b: np.ndarray, p: int, end: int, st: State, image: int) -> int:
    start = p
    if p >= end or b[p] != 0x7B:
        return fault_at(faults.BAD_TYPE, p)
    p, more = next_member(b, p + 1, end, 0x7D, True)
    if p < 0:
        return p
    code = flags = v = v_stop = -1
    handle = seen = 0
    v_escaped = False
    while more:
        text, low, high, p = read_name(b, p, end, st.text)
        if p < 0:
            return p
        name, escaped = text[low] if high - low == 1 else 0, False
        bit = 1 if name == 0x74 else 2 if name == 0x66 else 4 if name == 0x76 else 8 if name == 0x68 else 0
        if seen & bit:
            return fault_at(faults.DUPLICATE_KEY, p)
        seen |= bit
        if p < end and b[p] == 0x22:
            q, escaped = string_end(b, p, end)
        elif p < end and (b[p] == 0x2D or 0x30 <= b[p] <= 0x39):
            q = number_end(b, p, end)
        elif (p < end and bit and bit != 4) or (bit and p < end and b[p] != 0x7B and b[p] != 0x5B):
            q = literal_end(b, p, end)
        elif bit:
            return fault_at(faults.BAD_TYPE, p)
        else:
            q = value_end(b, p, end, st.stack)
        if q < 0:
            return q
        if bit == 1 or bit == 2:
            number, ok = int64_of(b, p, q)
            if not ok or b[p] == 0x2D or (bit == 1 and number > 255):
                return fault_at(faults.OUT_OF_RANGE, p)
            if bit == 1:
                code = number
            else:
                flags = number
        elif bit == 4:
            v, v_stop, v_escaped = p, q, escaped
        elif bit == 8:
            if b[p] != 0x74 and b[p] != 0x66:
                return fault_at(faults.BAD_TYPE, p)
            handle = 1 if b[p] == 0x74 else 0
        p, more = next_member(b, q, end, 0x7D, False)
        if p < 0:
            return p
    if code >= 0 and v >= 0 and flags < 0:
        return fault_at(faults.NO_FLAGS, start)
    if code < 0 or v < 0:
        return fault_at(faults.MISSING_FIELD, start)
    status = _put_column(b, v, v_stop, v_escaped, code, flags, st, image)
    if status != faults.OK:
        return status
    end_column(st, image, handle, flags)
    return p


@part
def _put_column(b: np.ndarray, v: int, v_stop: int, escaped: bool, code: int, flags: int, st: State, image: int) -> int:
    """Write type and value of the column at the image's end."""
    c = st.count[S.N_AFTER if image == S.AFTER else S.N_BEFORE]
    binary = flags & BINARY_FLAG
    place = code * 4 + 2 * binary + (1 if flags & UNSIGNED_FLAG else 0)
    if _TYPE_END[place] == _TYPE_END[place + 1]:
        return fault_at(faults.UNKNOWN_TYPE, v)
    if not column_fits(st, image, 0, 32, room_for(v_stop - v)):
        return faults.NEED_MORE
    types, values = image + S.TYPES, image + S.VALUES
    out = st.data[values]
    close(st, types, c, put_bytes(_TYPE_TEXT, _TYPE_END[place], _TYPE_END[place + 1], st.data[types], st.size[types]))
    if b[v] == 0x6E:
        put_null(st, values, c)
        return faults.OK
    form, kind = _FORM[code], _HELD[code]
    o = st.size[values]
    if b[v] != 0x22:
        if b[v] == 0x74 or b[v] == 0x66:
            return fault_at(faults.BAD_TYPE, v)
        if form == AS_INTEGER:
            o = put_integer(b, v, v_stop, out, o)
            if o >= 0 and kind and not holds(kind, b, v, v_stop):
                return fault_at(faults.NOT_OF_TYPE, v)
        elif form == AS_FLOAT:
            o = put_single(b, v, v_stop, out, o) if code == FLOAT_CODE else put_float(b, v, v_stop, out, o)
        else:
            return fault_at(faults.BAD_TYPE, v)
    elif form == AS_TEXT or (form == AS_QUOTED and not binary):
        begin, o = o, put_string(b, v + 1, v_stop - 1, escaped, out, o)
        if kind and not holds(kind, out, begin, o):
            return fault_at(faults.NOT_OF_TYPE, v)
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
        return fault_at(faults.BAD_TYPE, v)
    if o < 0:
        return o
    close(st, values, c, o)
    return faults.OK
