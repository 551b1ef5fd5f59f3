"""What TiCDC's dispatchers hash of each row, over what a kernel has decoded: :data:`ticdc_lab.events.schema.DISPATCH`.

Rows of a table have the same column names in the same order again and again, so each such layout of a batch is kept
with the crc of each name, and the crc of a column continues with the bytes of its value.
"""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.jit import kernel, part, small_kernel
from ticdc_lab.codecs.kernel.pointer import Arrays
from ticdc_lab.codecs.kernel.scan import digits_end, same_bytes
from ticdc_lab.codecs.kernel.state import State
from ticdc_lab.codecs.kernel.wide import WORD, fits, load
from ticdc_lab.codecs.kernel.xxh64 import SEED, hash_bytes

UNKNOWN = -1
"""In place of a crc that the log does not show."""

COMMA_IN_A_NAME = 0x1F
_COMMA = 0x2C
_ONES = np.uint64(0xFFFFFFFF)
_BYTE = np.uint64(0xFF)
_EXPONENT_MAX = 400

_BLOB, _BINARY = np.frombuffer(b"blob", np.uint8).copy(), np.frombuffer(b"binary", np.uint8).copy()
_VAR, _TINY, _MEDIUM, _LONG = (np.frombuffer(t, np.uint8).copy() for t in (b"var", b"tiny", b"medium", b"long"))
_DATE, _TIME, _DECIMAL = (np.frombuffer(t, np.uint8).copy() for t in (b"date", b"time", b"decimal"))
_STAMP, _OF_TIME, _EPOCH = (np.frombuffer(t, np.uint8).copy() for t in (b"stamp", b"time", b"1970-01-01"))
_FLOAT, _DOUBLE, _ENUM, _SET = (np.frombuffer(t, np.uint8).copy() for t in (b"float", b"double", b"enum", b"set"))


def _tables() -> np.ndarray:
    """Row ``n`` is the crc of a byte with ``n`` zero bytes after it (crc32 of IEEE 802.3, as zlib has it)."""
    table = np.zeros((WORD, 256), np.uint32)
    for byte in range(256):
        c = byte
        for _ in range(8):
            c = c >> 1 ^ (0xEDB88320 if c & 1 else 0)
        table[0, byte] = c
    for n in range(1, WORD):
        table[n] = table[n - 1] >> np.uint32(8) ^ table[0][table[n - 1] & np.uint32(0xFF)]
    return table.reshape(-1)


_TABLE = _tables()


class Crcs(Arrays):
    """What :func:`fill_crcs` fills; ``crc`` of event ``i`` are those before ``end[i + 1]`` from ``end[i]``.

    ``layout[i]`` is the number of the event's layout, -1 if it is no row. Of layout ``n``, ``text`` before
    ``text_end[n + 1]`` is its text, ``first[n]`` the event that had it first, and from ``names_at[n]`` on ``names`` the
    crcs of its names, not finished.
    """

    crc: np.ndarray
    has: np.ndarray
    end: np.ndarray
    key: np.ndarray
    has_key: np.ndarray
    layout: np.ndarray
    slot: np.ndarray
    first: np.ndarray
    names_at: np.ndarray
    names: np.ndarray
    text: np.ndarray
    text_end: np.ndarray
    count: np.ndarray


def fresh_crcs(st: State) -> Crcs:
    """Room for the events of a filled state."""
    n = int(st.count[S.N_EVENTS])
    columns = int(st.count[S.N_AFTER] + st.count[S.N_BEFORE])
    names = int(st.size[S.AFTER + S.NAMES] + st.size[S.BEFORE + S.NAMES])
    slots = 1 << (2 * n + 1).bit_length()
    return Crcs(
        crc=np.empty(columns, np.int64),
        has=np.empty(columns, np.uint8),
        end=np.zeros(n + 1, np.int32),
        key=np.zeros(n, np.int64),
        has_key=np.zeros(n, np.uint8),
        layout=np.full(n, -1, np.int32),
        slot=np.full(slots, -1, np.int32),
        first=np.empty(n, np.int64),
        names_at=np.zeros(n + 1, np.int64),
        names=np.empty(columns, np.uint64),
        text=np.empty(2 * (names + columns + n), np.uint8),
        text_end=np.zeros(n + 1, np.int32),
        count=np.zeros(1, np.int64),
    )


@small_kernel
def _entry(n: int, byte: np.uint64) -> np.uint64:
    return np.uint64(_TABLE[np.uint64(n * 256) + (byte & _BYTE)])


@small_kernel
def add_byte(crc: np.uint64, byte: int) -> np.uint64:
    """Continue with one byte."""
    return _entry(0, crc ^ np.uint64(byte)) ^ crc >> np.uint64(8)


@small_kernel
def _of_word(x: np.uint64) -> np.uint64:
    low = _entry(7, x) ^ _entry(6, x >> np.uint64(8)) ^ _entry(5, x >> np.uint64(16)) ^ _entry(4, x >> np.uint64(24))
    high = _entry(3, x >> np.uint64(32)) ^ _entry(2, x >> np.uint64(40)) ^ _entry(1, x >> np.uint64(48))
    return low ^ high ^ _entry(0, x >> np.uint64(56))


@small_kernel
def add_bytes(crc: np.uint64, b: np.ndarray, start: int, stop: int) -> np.uint64:
    """Add the bytes between the positions, eight at a time. A crc begins as, and ends with a XOR of, 32 ones."""
    p = start
    while p + WORD <= stop:
        crc = _of_word(load(b, p) ^ crc)
        p += WORD
    if p < stop and fits(b, p):  # zero bytes before the first change nothing, so that no loop is needed
        n = np.uint64(8 * (stop - p))
        return crc >> n ^ _of_word((load(b, p) ^ crc) << np.uint64(64) - n)
    while p < stop:
        crc = add_byte(crc, b[p])
        p += 1
    return crc


@small_kernel
def _begins(b: np.ndarray, start: int, stop: int, text: np.ndarray) -> bool:
    if stop - start < len(text):
        return False
    for i in range(len(text)):
        if b[start + i] != text[i]:
            return False
    return True


@part
def _is_binary(b: np.ndarray, start: int, stop: int) -> bool:
    c = b[start]
    if c == 0x62:
        return _begins(b, start, stop, _BLOB) or _begins(b, start, stop, _BINARY)
    if c == 0x76:
        return _begins(b, start, stop, _VAR) and _begins(b, start + 3, stop, _BINARY)
    if c == 0x74:
        return _begins(b, start, stop, _TINY) and _begins(b, start + 4, stop, _BLOB)
    if c == 0x6D:
        return _begins(b, start, stop, _MEDIUM) and _begins(b, start + 6, stop, _BLOB)
    return c == 0x6C and _begins(b, start, stop, _LONG) and _begins(b, start + 4, stop, _BLOB)


@part
def _is_rewritten(types: np.ndarray, t: int, t_stop: int, b: np.ndarray, v: int, v_stop: int, exact: bool) -> bool:
    """Whether debezium may carry another text than TiCDC hashes.

    A TIMESTAMP is in UTC. DECIMAL, TIME and DATETIME have all digits of a fraction only if their type defines how many,
    and a DECIMAL is a number in JSON, which is ``exact`` in avro. A zero date is NULL or the first moment of 1970.
    """
    if _begins(types, t, t_stop, _DECIMAL):
        return not _has_digits(types, t, t_stop) or (not exact and _significant(b, v, v_stop) > _DOUBLE_DIGITS)
    if _begins(types, t, t_stop, _TIME):
        return _begins(types, t + 4, t_stop, _STAMP) or not _has_digits(types, t, t_stop)
    if not _begins(types, t, t_stop, _DATE):
        return False
    if _begins(b, v, v_stop, _EPOCH) and _is_midnight(b, v + len(_EPOCH), v_stop):
        return True
    return _begins(types, t + 4, t_stop, _OF_TIME) and not _has_digits(types, t, t_stop)


_DOUBLE_DIGITS = 15


@part
def _is_midnight(b: np.ndarray, p: int, stop: int) -> bool:
    for i in range(p, stop):
        if 0x31 <= b[i] <= 0x39:
            return False
    return True


@part
def _significant(b: np.ndarray, v: int, v_stop: int) -> int:
    """Digits of a decimal from the first that is not zero on."""
    n = 0
    for i in range(v, v_stop):
        n += 0x31 <= b[i] <= 0x39 or (n > 0 and b[i] == 0x30)
    return n


@part
def _has_digits(types: np.ndarray, t: int, t_stop: int) -> bool:
    for i in range(t, t_stop):
        if types[i] == 0x28:
            return True
    return False


@small_kernel
def _null(st: State, image: int, c: int, rewritten: int) -> int:
    """The crc of a column whose value is NULL: none, or UNKNOWN where it may be a zero date."""
    if rewritten == S.AS_WRITTEN or rewritten == S.LABELLED or not st.valid[image + S.TYPES, c]:
        return 0
    t, t_stop = st.end[image + S.TYPES, c], st.end[image + S.TYPES, c + 1]
    types = st.data[image + S.TYPES]
    is_date = _begins(types, t, t_stop, _DATE) or (
        _begins(types, t, t_stop, _TIME) and _begins(types, t + 4, t_stop, _STAMP)
    )
    return UNKNOWN if is_date else 0


@small_kernel
def _column(st: State, image: int, c: int, name: np.uint64, rewritten: int) -> int:
    """The crc of column ``c``, whose value is not NULL and whose name's crc is ``name``, or UNKNOWN."""
    t, t_stop = st.end[image + S.TYPES, c], st.end[image + S.TYPES, c + 1]
    v, v_stop = st.end[image + S.VALUES, c], st.end[image + S.VALUES, c + 1]
    types, b = st.data[image + S.TYPES], st.data[image + S.VALUES]
    if t < t_stop and st.valid[image + S.TYPES, c]:
        if v_stop - v >= 2 and b[v] == 0x30 and b[v + 1] == 0x78 and _is_binary(types, t, t_stop):
            return _of_hex(name, b, v + 2, v_stop)
        first = types[t]
        may_be = (rewritten == S.IN_JSON or rewritten == S.IN_AVRO) and (first == 0x64 or first == 0x74)
        if may_be and _is_rewritten(types, t, t_stop, b, v, v_stop, rewritten == S.IN_AVRO):
            return UNKNOWN
        if first == 0x66 or first == 0x64:
            if _begins(types, t, t_stop, _FLOAT) or _begins(types, t, t_stop, _DOUBLE):
                return _of_float(name, b, v, v_stop)
        elif first == 0x65 or first == 0x73:
            is_set = _begins(types, t, t_stop, _SET)
            is_label = rewritten != S.AS_WRITTEN or v == v_stop or digits_end(b, v, v_stop) < v_stop
            if is_label and (is_set or _begins(types, t, t_stop, _ENUM)):
                return _of_label(name, types, t, t_stop, b, v, v_stop, is_set)
    return _finished(add_bytes(name, b, v, v_stop))


@small_kernel
def _finished(crc: np.uint64) -> int:
    return np.int64(crc ^ _ONES)


@part
def _nth_label(types: np.ndarray, t: int, t_stop: int, b: np.ndarray, v: int, v_stop: int) -> int:
    """Which label of an ENUM's or SET's type a text is, from 1; 0 for none of them, UNKNOWN where it names none."""
    n, found, i = 0, 0, t
    while i < t_stop:
        if types[i] != 0x27:
            i += 1
            continue
        n += 1
        i += 1
        p, same = v, True
        while i < t_stop and (types[i] != 0x27 or (i + 1 < t_stop and types[i + 1] == 0x27)):
            i += types[i] == 0x27
            same = same and p < v_stop and b[p] == types[i]
            if types[i] == 0x5C and i + 1 < t_stop and types[i + 1] == 0x27:  # \', which SQL may write
                return UNKNOWN
            p += 1
            i += 1
        if same and p == v_stop and found == 0:
            found = n
        i += 1
    return found if n > 0 else UNKNOWN


@part
def _of_label(crc: np.uint64, types: np.ndarray, t: int, t_stop: int, b: np.ndarray, v: int, v_stop: int,
              is_set: bool) -> int:  # fmt: skip
    """The crc of the number that these labels of a SET, or this one of an ENUM, have, or UNKNOWN."""
    number, p = np.uint64(0), v
    while True:
        q = p
        while q < v_stop and not (is_set and b[q] == _COMMA):
            q += 1
        nth = _nth_label(types, t, t_stop, b, p, q)
        if nth < 0 or (nth == 0 and v < v_stop):
            return UNKNOWN
        if not is_set:
            number = np.uint64(nth)
        elif v < v_stop:
            number |= np.uint64(1) << np.uint64(nth - 1)
        if q == v_stop:
            break
        p = q + 1
    power = np.uint64(1)
    while number // power >= np.uint64(10):
        power *= np.uint64(10)
    while power > np.uint64(0):
        crc = add_byte(crc, 0x30 + int(number // power % np.uint64(10)))
        power //= np.uint64(10)
    return _finished(crc)


@small_kernel
def _hex_digit(c: int) -> int:
    if 0x30 <= c <= 0x39:
        return c - 0x30
    return c - 0x57 if 0x61 <= c <= 0x66 else -1


@part
def _of_hex(crc: np.uint64, b: np.ndarray, p: int, stop: int) -> int:
    if (stop - p) % 2:
        return UNKNOWN
    while p < stop:
        high, low = _hex_digit(b[p]), _hex_digit(b[p + 1])
        if high < 0 or low < 0:
            return UNKNOWN
        crc = add_byte(crc, high << 4 | low)
        p += 2
    return _finished(crc)


@part
def _of_float(crc: np.uint64, b: np.ndarray, v: int, stop: int) -> int:
    """The crc of what Go's ``FormatFloat(v, 'f', -1)`` prints, from the form that MySQL prints."""
    e = v
    point = False
    while e < stop and b[e] != 0x65:
        point = point or b[e] == 0x2E
        e += 1
    if e < stop:
        return _of_exponent_form(crc, b, v, e, stop)
    if point:
        while stop > v and b[stop - 1] == 0x30:
            stop -= 1
        while stop > v and b[stop - 1] == 0x2E:
            stop -= 1
    return _finished(add_bytes(crc, b, v, stop))


@part
def _of_exponent_form(crc: np.uint64, b: np.ndarray, v: int, e: int, stop: int) -> int:
    """The same of ``d.ddde-xx``: one digit before the point, and an exponent after ``e``."""
    p = e + 1
    negative = p < stop and b[p] == 0x2D
    p += 1 if p < stop and (b[p] == 0x2D or b[p] == 0x2B) else 0
    exponent = 0
    if p >= stop or stop - p > 3 or digits_end(b, p, stop) < stop:
        return UNKNOWN
    while p < stop:
        exponent = exponent * 10 + b[p] - 0x30
        p += 1
    if exponent > _EXPONENT_MAX:
        return UNKNOWN
    if v < e and b[v] == 0x2D:
        crc = add_byte(crc, 0x2D)
    whole = exponent + 1  # digits before the point
    if negative and exponent > 0:
        crc = add_byte(add_byte(crc, 0x30), 0x2E)
        for _ in range(exponent - 1):
            crc = add_byte(crc, 0x30)
        whole = stop  # the point is there already
    for i in range(v, e):
        if b[i] == 0x2D or b[i] == 0x2E or b[i] == 0x2B:
            continue
        if b[i] < 0x30 or b[i] > 0x39:
            return UNKNOWN
        if whole == 0:
            crc = add_byte(crc, 0x2E)
        crc = add_byte(crc, b[i])
        whole -= 1
    if not (negative and exponent > 0):
        while whole > 0:
            crc = add_byte(crc, 0x30)
            whole -= 1
    return _finished(crc)


@part
def _same_layout(st: State, image: int, low: int, high: int, other: int, o: int, o_stop: int) -> bool:
    """Whether two images have the same names in the same order, and the same of them in the handle key."""
    if high - low != o_stop - o:
        return False
    k, m = image + S.NAMES, other + S.NAMES
    is_key = S.AFTER_IS_KEY if image == S.AFTER else S.BEFORE_IS_KEY
    is_key_too = S.AFTER_IS_KEY if other == S.AFTER else S.BEFORE_IS_KEY
    p, q = st.end[k, low], st.end[m, o]
    shift = np.int64(q) - np.int64(p)
    for j in range(high - low):
        if st.end[k, low + j + 1] + shift != st.end[m, o + j + 1]:
            return False
        if st.byte[is_key, low + j] != st.byte[is_key_too, o + j]:
            return False
    return same_bytes(st.data[k], p, st.end[k, high], st.data[m], q, st.end[m, o_stop])


@small_kernel
def _has_layout(st: State, d: Crcs, n: int, image: int, low: int, high: int) -> bool:
    """Whether an image has layout ``n``."""
    f = d.first[n]
    other = S.BEFORE if st.byte[S.OP, f] == S.DELETE else S.AFTER
    ends = S.BEFORE_END if other == S.BEFORE else S.AFTER_END
    return _same_layout(st, image, low, high, other, st.number[ends, f], st.number[ends, f + 1])


@part
def _layout(st: State, d: Crcs, i: int, image: int, low: int, high: int, guess: int) -> int:
    """The number of the layout of event ``i``, which is kept if it is new; ``guess`` goes first."""
    if guess >= 0 and _has_layout(st, d, guess, image, low, high):
        return guess
    k, mask = image + S.NAMES, len(d.slot) - 1
    h = hash_bytes(st.data[k], st.end[k, low], st.end[k, high], SEED)
    slot = np.int64(h & np.uint64(mask))
    while d.slot[slot] >= 0:
        n = int(d.slot[slot])
        if _has_layout(st, d, n, image, low, high):
            return n
        slot = (slot + 1) & mask
    n = d.count[0]
    d.slot[slot], d.first[n] = n, i
    d.count[0] = n + 1
    _keep(st, d, n, image, low, high)
    return n


@part
def _keep(st: State, d: Crcs, n: int, image: int, low: int, high: int) -> None:
    """Write the text of layout ``n`` and the crcs of its names."""
    is_key = S.AFTER_IS_KEY if image == S.AFTER else S.BEFORE_IS_KEY
    o, at = np.int64(d.text_end[n]), d.names_at[n]
    names, ends = st.data[image + S.NAMES], st.end[image + S.NAMES]
    for keys in range(2):
        some = False
        for c in range(low, high):
            if keys == 0:
                d.names[at + c - low] = add_bytes(_ONES, names, ends[c], ends[c + 1])
            elif not st.byte[is_key, c]:
                continue
            if some:
                d.text[o] = _COMMA
                o += 1
            some = True
            for p in range(ends[c], ends[c + 1]):
                d.text[o] = COMMA_IN_A_NAME if names[p] == _COMMA else names[p]
                o += 1
        if keys == 0:
            d.text[o], d.text[o + 1] = _COMMA, _COMMA
            o += 2
    d.text_end[n + 1], d.names_at[n + 1] = o, at + high - low


@kernel
def fill_crcs(st: State, d: Crcs, rewritten: int) -> None:
    """Fill ``d`` for every event of the state; ``rewritten`` is one of :data:`S.REWRITTEN`."""
    o, n = 0, -1
    for i in range(st.count[S.N_EVENTS]):
        if st.byte[S.KIND, i] == S.ROW:
            image = S.BEFORE if st.byte[S.OP, i] == S.DELETE else S.AFTER
            ends = S.BEFORE_END if image == S.BEFORE else S.AFTER_END
            low, high = st.number[ends, i], st.number[ends, i + 1]
            n = _layout(st, d, i, image, low, high, n)
            d.layout[i] = n
            _row(st, d, i, image, low, high, o, d.names_at[n], rewritten)
            o += high - low
        d.end[i + 1] = o


@small_kernel
def _row(st: State, d: Crcs, i: int, image: int, low: int, high: int, o: int, names: int, rewritten: int) -> None:
    is_key = S.AFTER_IS_KEY if image == S.AFTER else S.BEFORE_IS_KEY
    key, n = 0, 0
    known = True
    for c in range(low, high):
        there = st.valid[image + S.VALUES, c]
        crc = _column(st, image, c, d.names[names + c - low], rewritten) if there else _null(st, image, c, rewritten)
        d.crc[o + c - low], d.has[o + c - low] = crc, there or crc == UNKNOWN
        if st.byte[is_key, c]:
            known = known and crc >= 0
            key ^= crc
            n += 1
    if known:
        d.key[i], d.has_key[i] = n << 32 | key, 1
