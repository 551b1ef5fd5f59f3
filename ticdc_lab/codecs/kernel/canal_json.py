"""Canal-json: one JSON object a message, every value a string (docs/reading.md)."""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.canal_image import (
    GROWN_MAX,
    KEYS_END,
    KEYS_START,
    N_DATA,
    N_KEYS,
    N_OLD,
    N_TYPES,
    SQL_TYPES_END,
    SQL_TYPES_START,
    end_as_last,
    read_images,
    read_keys,
    read_types,
)
from ticdc_lab.codecs.kernel.identity import set_row
from ticdc_lab.codecs.kernel.jit import part, small_kernel
from ticdc_lab.codecs.kernel.members import described, nth_name
from ticdc_lab.codecs.kernel.numbering import BLOCK
from ticdc_lab.codecs.kernel.scan import (
    digits_end,
    fault_at,
    next_member,
    same,
    same_bytes,
    skip_space,
    string_end,
    value_end,
    word,
    word_of,
)
from ticdc_lab.codecs.kernel.state import State, end_images, event_fits, new_event, put_text, put_ts, text_bytes
from ticdc_lab.codecs.kernel.text import int64_of, put_string, read_name
from ticdc_lab.codecs.kernel.xxh64 import SEED, hash_bytes

OK, NEED_MORE = faults.OK, faults.NEED_MORE
MISSING_FIELD, BAD_TYPE, OUT_OF_RANGE = faults.MISSING_FIELD, faults.BAD_TYPE, faults.OUT_OF_RANGE
DUPLICATE_KEY, UNKNOWN_TYPE, NOT_JSON = faults.DUPLICATE_KEY, faults.UNKNOWN_TYPE, faults.NOT_JSON
TRAILING, NULL_VALUE, TOO_LARGE = faults.TRAILING_BYTES, faults.NULL_VALUE, faults.TOO_LARGE
MAX_GROWTH, MAX_GROWTH_FREE = S.MAX_GROWTH, S.MAX_GROWTH_FREE
ROW, DDL, WATERMARK = S.ROW, S.DDL, S.WATERMARK
INSERT, UPDATE, DELETE = S.INSERT, S.UPDATE, S.DELETE
HANDLE_KEY_ONLY, CLAIM_CHECK_MISSING = S.HANDLE_KEY_ONLY, S.CLAIM_CHECK_MISSING
SCHEMA_NAME, TABLE_NAME, QUERY, DDL_TYPE = S.SCHEMA_NAME, S.TABLE_NAME, S.QUERY, S.DDL_TYPE
AFTER, BEFORE, INCOMPLETE = S.AFTER, S.BEFORE, S.INCOMPLETE
AFTER_END, BEFORE_END = S.AFTER_END, S.BEFORE_END
HAS_KEY, CHANGE_HASH, TABLE_ID, HAS_TABLE_ID = S.HAS_KEY, S.CHANGE_HASH, S.TABLE_ID, S.HAS_TABLE_ID

# Fields of the envelope; scratch.at holds where each value starts and, 16 further, where it ends.
DATABASE, TABLE, PK_NAMES, IS_DDL, TYPE, SQL, MYSQL_TYPE, OLD, DATA, TIDB, COMMIT_TS, WATERMARK_TS = range(1, 13)
ONLY_HANDLE_KEY, CLAIM_CHECK, ROW_KEY = 13, 14, 15
_ENDS = 16
_ENVELOPE = described(
    "database", "table", "pkNames", "isDdl", "type", "sql", "mysqlType", "old", "data", "_tidb", "id", "es", "ts",
    "sqlType",
)  # fmt: skip
_EXTENSION = described("commitTs", "watermarkTs", "onlyHandleKey", "claimCheckLocation", "rowkey")
"""Names in the order of these numbers; the last four of the envelope are not read, and occur once, too."""
_UNREAD = 11
_SQL_TYPE = _UNREAD + 3


_W_INSERT, _W_UPDATE, _W_DELETE = word_of(b"INSERT"), word_of(b"UPDATE"), word_of(b"DELETE")
_WATERMARK = 3
_SIXES = np.full(256, -1, np.int64)
_SIXES[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = np.arange(64)
"""The value of a byte of base64."""


def _written(*texts: bytes) -> tuple[np.ndarray, tuple[int, ...]]:
    """Texts one behind the other, with a block behind the last, and where each begins and the last ends."""
    ends = tuple(sum(map(len, texts[:i])) for i in range(len(texts) + 1))
    return np.frombuffer(b"".join(texts) + bytes(BLOCK), np.uint8).copy(), ends


_AS_WRITTEN, (_ID, _NAMED, _KEYED, _TYPED, _ES_AT, _TS_AT, _SQL_AT, _TYPES_AT, _COMMITTED, _ALL) = _written(
    b'{"id":0,"database":', b',"table":', b',"pkNames":', b',"isDdl":false,"type":', b',"es":', b',"ts":',
    b',"sql":"","sqlType":', b',"mysqlType":', b'{"commitTs":',
)  # fmt: skip
"""What stands between the values of a row change as TiCDC writes it, where each part begins, and where they end."""
_SIGN = np.int64(-1 << 63)
"""Set in a number that TiKV's keys carry, so that negative ones come first."""


@small_kernel
def _behind(b: np.ndarray, p: int, end: int, start: int, stop: int) -> int:
    """The position after a part of what TiCDC writes, if it is at ``p`` and more follows; else ``end``."""
    q = p + stop - start
    return q if q < end and same_bytes(b, p, q, _AS_WRITTEN, start, stop) else end


@small_kernel
def _put(at: np.ndarray, field: int, p: int, q: int) -> int:
    """Remember where a field's value lies; its bit."""
    at[field], at[_ENDS + field] = p, q
    return 1 << field


@part
def _count_end(b: np.ndarray, p: int, end: int) -> int:
    """Position after a member's number of digits alone, without a zero before others; ``end`` where there is none."""
    q = digits_end(b, p, end)
    ends = q < end and (b[q] == 0x2C or b[q] == 0x7D)
    return q if ends and q > p and (b[p] != 0x30 or q == p + 1) else end


@part
def _as_written(b: np.ndarray, p: int, end: int, st: State) -> tuple[int, int]:
    """Read the beginning of a row change as far as it is, byte for byte, as TiCDC writes it: most rows up to ``old``.

    The position after the last value that was read (``p`` where none was), or a fault, and the bits of the fields seen.
    """
    at, last, seen = st.at, st.last, 0
    v = _behind(b, p, end, _ID, _NAMED)
    if v == end:
        return p, seen
    for field in (DATABASE, TABLE):
        q, _ = string_end(b, v, end)
        if q < 0:
            return p, seen
        seen |= _put(at, field, v, q) | 1 << _UNREAD
        p, v = q, _behind(b, q, end, _NAMED, _KEYED) if field == DATABASE else _behind(b, q, end, _KEYED, _TYPED)
        if v == end:
            return p, seen
    q = end_as_last(b, v, end, last[KEYS_START], last[KEYS_END])
    if q < 0:
        return p, seen
    seen |= _put(at, PK_NAMES, v, q)
    p, v = q, _behind(b, q, end, _TYPED, _ES_AT)
    if v == end or v + 8 > end or b[v] != 0x22 or b[v + 7] != 0x22 or _type(b, v, v + 8, st) < 0:
        return p, seen
    seen |= _put(at, IS_DDL, q + 9, q + 14) | _put(at, TYPE, v, v + 8)
    p = v + 8
    for bit in (1, 2):  # es and ts, which are not read
        q = _behind(b, p, end, _ES_AT, _TS_AT) if bit == 1 else _behind(b, p, end, _TS_AT, _SQL_AT)
        q = _count_end(b, q, end)
        if q == end:
            return p, seen
        seen |= 1 << _UNREAD + bit
        p = q
    v = _behind(b, p, end, _SQL_AT, _TYPES_AT)
    q = end_as_last(b, v, end, last[SQL_TYPES_START], last[SQL_TYPES_END])
    if q < 0:
        return p, seen
    seen |= _put(at, SQL, p + 7, p + 9) | 1 << _SQL_TYPE
    v = _behind(b, q, end, _TYPES_AT, _COMMITTED)
    if v == end or b[v] != 0x7B:
        return q, seen
    p = read_types(b, v, end, at[PK_NAMES], at[_ENDS + PK_NAMES], st)
    return p, seen | _put(at, MYSQL_TYPE, v, p)


@part
def _has_commit_ts_alone(b: np.ndarray, p: int, end: int, st: State) -> bool:
    """Whether the value at ``p`` is an object with a commit_ts and nothing else, which is then found."""
    v = _behind(b, p, end, _COMMITTED, _ALL)
    q = _count_end(b, v, end)
    if q == end or b[q] != 0x7D:
        return False
    _put(st.at, COMMIT_TS, v, q)
    return True


@part
def _locate(b: np.ndarray, p: int, end: int, inner: bool, st: State) -> int:
    """Find where the known fields of the object at ``p`` lie; null counts as absent. The position after it."""
    q, seen = (p, 0) if inner else _as_written(b, p, end, st)
    if q < 0:
        return q
    p, more = next_member(b, q + (q == p), end, 0x7D, q == p)
    if p < 0:
        return p
    nth = -1 if inner or q == p else MYSQL_TYPE - DATABASE  # the name behind the types is compared first
    while more:
        text, low, high, p = read_name(b, p, end, st.text)
        if p < 0:
            return p
        nth = nth_name(text, low, high, max(nth, -1) + 1, _EXTENSION if inner else _ENVELOPE)
        name = 0 if nth < 0 else nth + (COMMIT_TS if inner else DATABASE)
        field = name if inner or name < _UNREAD else 0
        if name and seen >> name & 1:
            return fault_at(DUPLICATE_KEY, p)
        seen |= 1 << name
        if inner:
            q = value_end(b, p, end, st.stack)
        elif field == TIDB and _has_commit_ts_alone(b, p, end, st):
            q = st.at[_ENDS + COMMIT_TS] + 1
        elif name == _SQL_TYPE:
            q = end_as_last(b, p, end, st.last[SQL_TYPES_START], st.last[SQL_TYPES_END])
            if q < 0:
                q = value_end(b, p, end, st.stack)
                if q >= 0 and b[p] == 0x7B:
                    st.last[SQL_TYPES_START], st.last[SQL_TYPES_END] = p, q
        else:
            q = _read(b, p, end, field, seen, st)
        if q < 0:
            return q
        if field and b[p] != 0x6E:
            st.at[field], st.at[_ENDS + field] = p, q
        p, more = next_member(b, q, end, 0x7D, False)
        if p < 0:
            return p
    return p


@part
def _read(b: np.ndarray, p: int, end: int, field: int, seen: int, st: State) -> int:
    """Read what describes rows at once if all it builds on came before it, as TiCDC writes it; else step over it."""
    at = st.at
    rows = field in (MYSQL_TYPE, DATA, OLD)
    if rows and p < end and b[p] != 0x6E and at[IS_DDL] >= 0 and b[at[IS_DDL]] == 0x66 and at[TYPE] >= 0:
        op = _type(b, at[TYPE], at[_ENDS + TYPE], st)
        is_op = 0 <= op <= DELETE
        if is_op and field == MYSQL_TYPE:
            return read_types(b, p, end, at[PK_NAMES], at[_ENDS + PK_NAMES], st)
        if is_op and at[N_TYPES] >= 0 and seen >> PK_NAMES & 1:
            status = _keys(b, st)
            if status < 0:
                return status
            if field == DATA:
                return read_images(b, p, end, BEFORE if op == DELETE else AFTER, N_DATA, st)
            if op == UPDATE:
                return read_images(b, p, end, BEFORE, N_OLD, st)
    return value_end(b, p, end, st.stack)


@part
def _keys(b: np.ndarray, st: State) -> int:
    """Read ``pkNames``, which lies where it was found, unless that is done; a fault or 0. The types must be read."""
    at = st.at
    if at[N_KEYS] >= 0 or at[PK_NAMES] < 0:
        return 0
    return min(read_keys(b, at[PK_NAMES], at[_ENDS + PK_NAMES], st), 0)


@part
def _type(b: np.ndarray, p: int, q: int, st: State) -> int:
    """INSERT, UPDATE or DELETE, _WATERMARK, or -1 for any other type of message."""
    text, low, high = b, p + 1, q - 1
    if b[p] != 0x22:
        return -1
    if q - p != 8:  # what TiCDC writes for a row is six letters and has no escapes
        high = put_string(b, low, high, True, st.text, 0)
        text, low = st.text, 0
    w = word(text, low, high)
    if high - low == 6:
        return INSERT if w == _W_INSERT else UPDATE if w == _W_UPDATE else DELETE if w == _W_DELETE else -1
    return _WATERMARK if high - low == 14 and same(text, low, high, b"TIDB_WATERMARK") else -1


@part
def decode_message(
    m: int, kb: np.ndarray, kp: int, kend: int, b: np.ndarray, p: int, end: int,
    st: State,
) -> tuple[int, int]:  # fmt: skip
    """Decode one message; the fault, NEED_MORE or OK, and always 1: the fault lies in the value."""
    if p < 0:
        return fault_at(NULL_VALUE, 0), 1
    return _envelope(m, b, p, end, st), 1


@part
def _envelope(m: int, b: np.ndarray, p: int, end: int, st: State) -> int:
    at = st.at
    for k in range(len(at)):
        at[k] = -1
    at[GROWN_MAX] = text_bytes(st) + st.limit[MAX_GROWTH_FREE] + st.limit[MAX_GROWTH] * (end - p)
    start = p
    p = skip_space(b, p, end)
    if p >= end:
        return fault_at(NOT_JSON, start)
    if b[p] != 0x7B:
        return fault_at(BAD_TYPE, p)
    p = _locate(b, p, end, False, st)
    if p < 0:
        return p
    if skip_space(b, p, end) != end:
        return fault_at(TRAILING, p)
    if at[TIDB] >= 0:
        if b[at[TIDB]] != 0x7B:
            return fault_at(BAD_TYPE, at[TIDB])
        if at[COMMIT_TS] < 0:
            p = _locate(b, at[TIDB], end, True, st)
            if p < 0:
                return p
    if at[TYPE] < 0:
        return fault_at(MISSING_FIELD, start)
    if b[at[TYPE]] != 0x22:
        return fault_at(BAD_TYPE, at[TYPE])
    if not event_fits(st, end - start + 16):
        return NEED_MORE
    op = _type(b, at[TYPE], at[_ENDS + TYPE], st)
    if op == _WATERMARK:
        i = new_event(st, m, 0, WATERMARK)
        end_images(st, i)
        return _ts(b, at, WATERMARK_TS, True, st, i)
    for field in (DATABASE, TABLE):
        if at[field] < 0:
            return fault_at(MISSING_FIELD, start)
        if b[at[field]] != 0x22:
            return fault_at(BAD_TYPE, at[field])
    if at[IS_DDL] < 0:
        return fault_at(MISSING_FIELD, start)
    if b[at[IS_DDL]] == 0x74:
        return _ddl(m, b, st)
    if b[at[IS_DDL]] != 0x66:
        return fault_at(BAD_TYPE, at[IS_DDL])
    if op < 0:
        return fault_at(UNKNOWN_TYPE, at[TYPE])
    return _rows(m, op, start, b, st)


@part
def _ts(b: np.ndarray, at: np.ndarray, field: int, required: bool, st: State, i: int) -> int:
    if at[field] < 0:
        return fault_at(MISSING_FIELD, max(at[TIDB], at[TYPE])) if required else OK
    ts, ok = int64_of(b, at[field], at[_ENDS + field])
    if not ok or b[at[field]] == 0x2D:
        return fault_at(OUT_OF_RANGE, at[field])
    put_ts(st, i, ts)
    return OK


@part
def _put_names(b: np.ndarray, at: np.ndarray, st: State, i: int) -> None:
    put_text(st, SCHEMA_NAME, i, b, at[DATABASE], at[_ENDS + DATABASE], True)
    put_text(st, TABLE_NAME, i, b, at[TABLE], at[_ENDS + TABLE], True)


@part
def _ddl(m: int, b: np.ndarray, st: State) -> int:
    at = st.at
    i = new_event(st, m, 0, DDL)
    end_images(st, i)
    _put_names(b, at, st, i)
    if at[SQL] < 0:
        return fault_at(MISSING_FIELD, at[TYPE])
    if b[at[SQL]] != 0x22:
        return fault_at(BAD_TYPE, at[SQL])
    put_text(st, QUERY, i, b, at[SQL], at[_ENDS + SQL], True)
    put_text(st, DDL_TYPE, i, b, at[TYPE], at[_ENDS + TYPE], True)
    return _ts(b, at, COMMIT_TS, False, st, i)


@part
def _rows(
    m: int, op: int, start: int, b: np.ndarray, st: State
) -> int:  # fmt: skip
    at = st.at
    if at[MYSQL_TYPE] < 0 or at[DATA] < 0 or (op == UPDATE and at[OLD] < 0):
        return fault_at(MISSING_FIELD, start)
    status = _read_rest(b, op, st)
    if status < 0:
        return status
    n = at[N_DATA]
    if n == 0 or (op == UPDATE and at[N_OLD] != n):
        return fault_at(MISSING_FIELD, at[DATA])
    incomplete = _incomplete(b, at)
    if incomplete < 0:
        return incomplete
    names = at[_ENDS + DATABASE] - at[DATABASE] + at[_ENDS + TABLE] - at[TABLE]
    for j in range(n):
        if not event_fits(st, names):
            return NEED_MORE
        i = new_event(st, m, j, ROW)
        _put_names(b, at, st, i)
        if op == INSERT:
            st.number[BEFORE_END, i + 1] = st.number[BEFORE_END, i]
        elif op == DELETE:
            st.number[AFTER_END, i + 1] = st.number[AFTER_END, i]
        st.byte[INCOMPLETE, i] = incomplete
        set_row(st, i, op)
        status = _ts(b, at, COMMIT_TS, False, st, i)
        if status == OK and n == 1 and at[ROW_KEY] >= 0:
            status = _row_key(b, at[ROW_KEY], at[_ENDS + ROW_KEY], st, i)
        if status < 0:
            return status
        if text_bytes(st) > at[GROWN_MAX]:
            return fault_at(TOO_LARGE, start)
    return OK


@part
def _row_key(b: np.ndarray, p: int, q: int, st: State, i: int) -> int:
    """Identify a row without a handle key by its key in TiKV, and read the table's id from that."""
    if b[p] != 0x22:
        return fault_at(BAD_TYPE, p)
    size = put_string(b, p + 1, q - 1, True, st.text, 0)
    if not st.byte[HAS_KEY, i]:
        st.number[CHANGE_HASH, i] ^= np.int64(hash_bytes(st.text, 0, size, SEED))
    if size < 16:
        return OK
    number, first, last = np.int64(0), np.int64(0), np.int64(0)
    for k in range(16):  # t, eight bytes, _r and one more
        six = _SIXES[st.text[k]]
        if six < 0:
            return OK
        if k < 2:
            first = first << 6 | six
            number = six & 15
        elif k < 12:
            number = number << 6 | six
        else:
            last = last << 6 | six
    if first >> 4 == 0x74 and last >> 8 == 0x5F72:
        st.number[TABLE_ID, i], st.byte[HAS_TABLE_ID, i] = number ^ _SIGN, 1
    return OK


@part
def _incomplete(b: np.ndarray, at: np.ndarray) -> int:
    """Why the rows of the message are not whole; 0 if they are, or a fault."""
    only, claim = at[ONLY_HANDLE_KEY], at[CLAIM_CHECK]
    if only >= 0 and b[only] != 0x74 and b[only] != 0x66:
        return fault_at(BAD_TYPE, only)
    if claim >= 0 and b[claim] != 0x22:
        return fault_at(BAD_TYPE, claim)
    if claim >= 0 and at[_ENDS + CLAIM_CHECK] > claim + 2:
        return CLAIM_CHECK_MISSING
    return HANDLE_KEY_ONLY if only >= 0 and b[only] == 0x74 else 0


@part
def _read_rest(b: np.ndarray, op: int, st: State) -> int:
    """Read what :func:`_read` had to step over, in the order in which one builds on the other."""
    at = st.at
    status = 0
    if at[N_TYPES] < 0:
        status = read_types(b, at[MYSQL_TYPE], at[_ENDS + MYSQL_TYPE], at[PK_NAMES], at[_ENDS + PK_NAMES], st)
    if status >= 0:
        status = _keys(b, st)
    if status >= 0 and at[N_DATA] < 0:
        image = BEFORE if op == DELETE else AFTER
        status = read_images(b, at[DATA], at[_ENDS + DATA], image, N_DATA, st)
    if status >= 0 and op == UPDATE and at[N_OLD] < 0:
        status = read_images(b, at[OLD], at[_ENDS + OLD], BEFORE, N_OLD, st)
    return min(status, 0)
