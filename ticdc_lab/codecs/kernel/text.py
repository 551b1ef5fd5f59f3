"""From JSON strings and numbers to the canonical text of a value.

Each function appends to ``out`` at ``o`` and returns the new end, or a fault as in :mod:`.scan`. Room is the caller's
duty: :func:`room_for` gives how much is enough.
"""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.kernel.jit import part, small_kernel
from ticdc_lab.codecs.kernel.numbering import BLOCK
from ticdc_lab.codecs.kernel.scan import after_name, digits_end, fault_at, hex_number, scalar_end, string_end, utf8_step
from ticdc_lab.codecs.kernel.wide import block_fits, copy_block, fits, plain_run, store
from ticdc_lab.events.mysql_types import INFINITE

BAD_BASE64, BAD_ESCAPE, BAD_UTF8 = faults.BAD_BASE64, faults.BAD_ESCAPE, faults.BAD_UTF8
NOT_LATIN1, OUT_OF_RANGE = faults.NOT_LATIN1, faults.OUT_OF_RANGE

SINGLE_SURE_DIGITS, SINGLE_SURE_TENS = 6, 37
_INFINITE = np.frombuffer(INFINITE.encode(), np.uint8).copy()
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).copy()
_BASE64 = np.full(256, 255, np.uint8)
for _i, _c in enumerate(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"):
    _BASE64[_c] = _i
_NO_DIGIT, _THREE_BYTES = np.uint64(1 << 32), np.uint64(24)
_BYTES_OF = np.full((4, 256), _NO_DIGIT, np.uint64)
"""The part of a digit in the three bytes of its group of four, by its place in the group; the first byte is lowest."""
for _c in np.flatnonzero(_BASE64 != 255).tolist():
    _v = int(_BASE64[_c])
    _BYTES_OF[:, _c] = _v << 2, _v >> 4 | (_v & 15) << 12, _v >> 2 << 8 | (_v & 3) << 22, _v << 16
_ESCAPED = np.zeros(256, np.uint8)
for _c, _v in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _ESCAPED[_c] = _v
_GO_ESCAPED = np.zeros(256, np.uint8)
for _c, _v in zip(b"abfnrtv\\\"'", b"\a\b\f\n\r\t\v\\\"'", strict=True):
    _GO_ESCAPED[_c] = _v


@small_kernel
def room_for(length: int) -> int:
    """Bytes that any value of ``length`` raw bytes can need: hex doubles, a float gains at most 32."""
    return 2 * length + 40


@part
def put_rune(code: int, out: np.ndarray, o: int) -> int:
    """Append a code point as UTF-8."""
    if code < 0x80:
        out[o] = code
        return o + 1
    if code < 0x800:
        out[o], out[o + 1] = 0xC0 | code >> 6, 0x80 | code & 0x3F
        return o + 2
    if code < 0x10000:
        out[o], out[o + 1], out[o + 2] = 0xE0 | code >> 12, 0x80 | code >> 6 & 0x3F, 0x80 | code & 0x3F
        return o + 3
    out[o], out[o + 1] = 0xF0 | code >> 18, 0x80 | code >> 12 & 0x3F
    out[o + 2], out[o + 3] = 0x80 | code >> 6 & 0x3F, 0x80 | code & 0x3F
    return o + 4


@small_kernel
def put_bytes(b: np.ndarray, start: int, stop: int, out: np.ndarray, o: int) -> int:
    """Append bytes as they are."""
    n, i = stop - start, 0
    while i < n and block_fits(b, start + i) and block_fits(out, o + i):  # some more, which the next text overwrites
        copy_block(b, start + i, out, o + i)
        i += BLOCK
    while i < n:
        out[o + i] = b[start + i]
        i += 1
    return o + n


@small_kernel
def put_string(b: np.ndarray, start: int, stop: int, escaped: bool, out: np.ndarray, o: int) -> int:
    """Append the text of a checked JSON string, whose inside is between the positions."""
    return _put_unescaped(b, start, stop, out, o) if escaped else put_bytes(b, start, stop, out, o)


@part
def _put_unescaped(b: np.ndarray, start: int, stop: int, out: np.ndarray, o: int) -> int:
    p = start
    while p < stop:
        while p < stop and block_fits(b, p) and block_fits(out, o):
            n = min(plain_run(b, p), stop - p)
            copy_block(b, p, out, o)
            p, o = p + n, o + n
            if n < BLOCK:
                break
        if p == stop:
            break
        c = b[p]
        if c != 0x5C:
            out[o] = c
            o += 1
            p += 1
        elif b[p + 1] != 0x75:
            out[o] = _ESCAPED[b[p + 1]]
            o += 1
            p += 2
        else:
            code = hex_number(b, p + 2, 4, stop)
            p += 6
            if 0xD800 <= code < 0xDC00:
                code = 0x10000 + ((code - 0xD800) << 10) + hex_number(b, p + 2, 4, stop) - 0xDC00
                p += 6
            o = put_rune(code, out, o)
    return o


@small_kernel
def read_name(b: np.ndarray, p: int, end: int, scratch: np.ndarray) -> tuple[np.ndarray, int, int, int]:
    """The name of the member at ``p``: the bytes it lies in, from where, to where; and the position of its value.

    That position is the fault where there is one.
    """
    q, escaped = string_end(b, p, end)
    if q < 0:
        return b, 0, 0, q
    text, low, high = b, p + 1, q - 1
    if escaped:
        text, low, high = scratch, 0, put_string(b, low, high, True, scratch, 0)
    return text, low, high, after_name(b, q, end)


@small_kernel
def put_hex(c: int, out: np.ndarray, o: int) -> int:
    """Append a byte as two hexadecimal digits."""
    out[o], out[o + 1] = _HEX[c >> 4], _HEX[c & 15]
    return o + 2


@small_kernel
def _put_0x(out: np.ndarray, o: int) -> int:
    out[o], out[o + 1] = 0x30, 0x78
    return o + 2


@part
def put_latin1_hex(b: np.ndarray, start: int, stop: int, out: np.ndarray, o: int) -> int:
    """Append UTF-8 text, each character one byte, as ``0x..`` (canal-json's binary columns)."""
    o = _put_0x(out, o)
    p = start
    while p < stop:
        c = b[p]
        if c < 0x80:
            o = put_hex(c, out, o)
            p += 1
        elif c == 0xC2 or c == 0xC3:
            o = put_hex((c & 3) << 6 | b[p + 1] & 0x3F, out, o)
            p += 2
        else:
            return fault_at(NOT_LATIN1, p)
    return o


@part
def put_go_quoted_hex(b: np.ndarray, start: int, stop: int, out: np.ndarray, o: int) -> int:
    """Append what Go's ``strconv.Quote`` wrote, without its quotes, as ``0x..`` (open-protocol's binary columns)."""
    o = _put_0x(out, o)
    p = start
    while p < stop:
        if b[p] != 0x5C:
            o = put_hex(b[p], out, o)
            p += 1
            continue
        if p + 1 >= stop:
            return fault_at(BAD_ESCAPE, p)
        c = b[p + 1]
        if _GO_ESCAPED[c] != 0:
            o = put_hex(_GO_ESCAPED[c], out, o)
            p += 2
            continue
        n = 2 if c == 0x78 else 4 if c == 0x75 else 8 if c == 0x55 else 0
        code = hex_number(b, p + 2, n, stop) if n else -1
        if code < 0 or code > 0x10FFFF or (n > 2 and 0xD800 <= code < 0xE000):
            return fault_at(BAD_ESCAPE, p)
        if n == 2:
            o = put_hex(code, out, o)
        else:
            o = _put_rune_hex(code, out, o)
        p += 2 + n
    return o


@part
def _put_rune_hex(code: int, out: np.ndarray, o: int) -> int:
    end = put_rune(code, out, o)
    n = end - o
    for i in range(n - 1, -1, -1):  # from the back, so that no byte is overwritten before it is read
        put_hex(out[o + i], out, o + 2 * i)
    return o + 2 * n


@part
def put_base64_bytes(b: np.ndarray, start: int, stop: int, out: np.ndarray, o: int) -> int:
    """Append the bytes of base64 text."""
    if (stop - start) % 4:
        return fault_at(BAD_BASE64, start)
    p, o = base64_groups(b, start, stop - 4, out, o)
    return put_base64(b, p, stop, False, out, o, False)


@part
def base64_groups(b: np.ndarray, start: int, stop: int, out: np.ndarray, o: int) -> tuple[int, int]:
    """Append the bytes of groups of four digits that lie before ``stop``, up to the first that is none.

    Where that one begins, and the end of what was written.
    """
    p = start
    while p + 8 <= stop and fits(out, o):
        low = _BYTES_OF[0, b[p]] | _BYTES_OF[1, b[p + 1]] | _BYTES_OF[2, b[p + 2]] | _BYTES_OF[3, b[p + 3]]
        high = _BYTES_OF[0, b[p + 4]] | _BYTES_OF[1, b[p + 5]] | _BYTES_OF[2, b[p + 6]] | _BYTES_OF[3, b[p + 7]]
        if (low | high) & _NO_DIGIT:
            break
        store(out, o, low | high << _THREE_BYTES)
        o += 6
        p += 8
    while p + 4 <= stop:
        low = _BYTES_OF[0, b[p]] | _BYTES_OF[1, b[p + 1]] | _BYTES_OF[2, b[p + 2]] | _BYTES_OF[3, b[p + 3]]
        if low & _NO_DIGIT:
            break
        for i in range(3):
            out[o + i] = low >> np.uint64(8 * i) & np.uint64(0xFF)
        o += 3
        p += 4
    return p, o


@part
def put_base64(b: np.ndarray, start: int, stop: int, as_hex: bool, out: np.ndarray, o: int, checked: bool) -> int:
    """Append the content of base64 text: as ``0x..``, as text, or (``checked``) as text that must be UTF-8."""
    n = stop - start
    if n % 4:
        return fault_at(BAD_BASE64, start)
    if as_hex:
        o = _put_0x(out, o)
    begin = o
    for p in range(start, stop, 4):
        pad = 0
        if p + 4 == stop:
            pad = (b[p + 3] == 0x3D) + (b[p + 3] == 0x3D and b[p + 2] == 0x3D)
        v = 0
        for i in range(4 - pad):
            d = _BASE64[b[p + i]]
            if d == 255:
                return fault_at(BAD_BASE64, p + i)
            v |= d << (18 - 6 * i)
        for i in range(3 - pad):
            c = v >> (16 - 8 * i) & 255
            if as_hex:
                o = put_hex(c, out, o)
            else:
                out[o] = c
                o += 1
    return checked_utf8(out, begin, o, start) if checked and not as_hex else o


@part
def checked_utf8(out: np.ndarray, start: int, stop: int, where: int) -> int:
    """``stop`` if the bytes are UTF-8, else a fault at ``where``."""
    p = start
    while p < stop:
        if out[p] < 0x80:
            p += 1
            continue
        n = utf8_step(out, p, stop)
        if n == 0:
            return fault_at(BAD_UTF8, where)
        p += n
    return stop


@part
def is_number(b: np.ndarray, start: int, stop: int) -> bool:
    """Whether text has the form ``-?digits[.digits][e[+-]digits]``; leading zeros may be there."""
    q = start + (start < stop and b[start] == 0x2D)
    p = digits_end(b, q, stop)
    if p == q:
        return False
    if p < stop and b[p] == 0x2E:
        q = p + 1
        p = digits_end(b, q, stop)
        if p == q:
            return False
    if p < stop and b[p] | 0x20 == 0x65:
        q = p + 1
        if q < stop and (b[q] == 0x2B or b[q] == 0x2D):
            q += 1
        p = digits_end(b, q, stop)
        if p == q:
            return False
    return p == stop


@part
def put_float(b: np.ndarray, start: int, stop: int, out: np.ndarray, o: int) -> int:
    """Append a decimal number as MySQL prints a double: exponent form below 1e-15 and from 1e15 on.

    Works on the digits, so that nothing is rounded.
    """
    if b[start] == 0x2D:
        out[o] = 0x2D
        o += 1
    first, last, exp10 = digits_of(b, start, stop)
    if first < 0:
        out[o] = 0x30
        return o + 1
    most = len(_INFINITE) - 1
    if exp10 < -400 or exp10 > most or (exp10 == most and not _is_below_infinity(b, first, stop)):
        return fault_at(OUT_OF_RANGE, start)
    if exp10 < -15 or exp10 >= 15:
        out[o] = b[first]
        o = _put_digits(b, first + 1, last + 1, out, o + 1, True)
        out[o] = 0x65
        return put_int(exp10, out, o + 1)
    if exp10 < 0:
        out[o], out[o + 1] = 0x30, 0x2E
        o += 2
        for _ in range(-exp10 - 1):
            out[o] = 0x30
            o += 1
        return _put_digits(b, first, last + 1, out, o, False)
    i, left = first, exp10 + 1
    while left > 0:
        if i <= last and b[i] == 0x2E:
            i += 1
            continue
        out[o] = b[i] if i <= last else 0x30
        o += 1
        i += 1
        left -= 1
    if i <= last and b[i] == 0x2E:
        i += 1
    return _put_digits(b, i, last + 1, out, o, True)


_TENS = np.array([10.0**k for k in range(77)])
"""Powers of ten, exact up to 10^22."""


@small_kernel
def _scaled(x: float, tens: int) -> float:
    """``x * 10^tens``."""
    return x * _TENS[tens] if tens >= 0 else x / _TENS[-tens]


@part
def put_single(b: np.ndarray, start: int, stop: int, out: np.ndarray, o: int) -> int:
    """Append a FLOAT with the fewest digits that identify it, in MySQL's form: 61.2 in place of a double's digits.

    A number that no FLOAT is, too large or too small, is put as it is.
    """
    first, last, tens = digits_of(b, start, stop)
    if first < 0 or (last - first < SINGLE_SURE_DIGITS and -SINGLE_SURE_TENS <= tens <= SINGLE_SURE_TENS):
        return put_float(b, start, stop, out, o)
    if tens < -50 or tens > 40:
        return put_float(b, start, stop, out, o)
    whole, n = 0, 0
    for i in range(first, last + 1):
        if b[i] != 0x2E and n < 18:
            whole, n = whole * 10 + b[i] - 0x30, n + 1
    single = np.float32(_scaled(float(whole), tens - n + 1))
    if single == 0 or np.isinf(single):
        return put_float(b, start, stop, out, o)
    x, digits = np.float64(single), 0
    if x >= _scaled(10.0, tens):  # rounded up: of the least numbers much
        tens += 1
    for n in range(1, 10):
        digits = int(np.rint(_scaled(x, n - 1 - tens)))
        if np.float32(_scaled(float(digits), tens - n + 1)) == single:
            break
    if b[start] == 0x2D:
        out[o] = 0x2D
        o += 1
    return _put_mysql(digits, tens - n + 1, out, o)


@part
def _put_mysql(digits: int, exponent: int, out: np.ndarray, o: int) -> int:
    """Append ``digits * 10^exponent``, above zero, as MySQL prints a double."""
    while digits % 10 == 0:
        digits, exponent = digits // 10, exponent + 1
    unit, tens = 1, exponent
    while digits // unit >= 10:
        unit, tens = unit * 10, tens + 1
    short = -15 <= tens < 15
    if short and tens < 0:
        out[o], out[o + 1] = 0x30, 0x2E
        o += 2
        for _ in range(-tens - 1):
            out[o] = 0x30
            o += 1
    before = max(tens + 1, 0) if short else 1  # digits before the point
    while unit or before > 0:
        if before == 0 and (tens >= 0 or not short):
            out[o] = 0x2E
            o += 1
        out[o] = 0x30 + (digits // unit % 10 if unit else 0)
        o += 1
        unit //= 10
        before -= 1
    if short:
        return o
    out[o] = 0x65
    return put_int(tens, out, o + 1)


@part
def digits_of(b: np.ndarray, start: int, stop: int) -> tuple[int, int, int]:
    """The first and the last digit of a number that is no zero (-1 where all are), and the first one's power of ten."""
    mantissa_end = start
    while mantissa_end < stop and b[mantissa_end] | 0x20 != 0x65:
        mantissa_end += 1
    exponent = _exponent(b, mantissa_end, stop)
    point = mantissa_end
    first = last = -1
    for i in range(start + (b[start] == 0x2D), mantissa_end):
        if b[i] == 0x2E:
            point = i
        elif b[i] != 0x30:
            if first < 0:
                first = i
            last = i
    return first, last, exponent + (point - first - 1 if first < point else point - first)


@part
def _is_below_infinity(b: np.ndarray, first: int, stop: int) -> bool:
    """Whether a number whose first digit counts 10^308 is one that a DOUBLE can hold: digit by digit."""
    p = first
    for i in range(len(_INFINITE)):
        if p < stop and b[p] == 0x2E:
            p += 1
        digit = b[p] if p < stop and 0x30 <= b[p] <= 0x39 else 0x30
        if digit != _INFINITE[i]:
            return digit < _INFINITE[i]
        p += 1
    return False


@part
def _exponent(b: np.ndarray, p: int, stop: int) -> int:
    if p >= stop:
        return 0
    p += 1
    sign = 1
    if b[p] == 0x2B or b[p] == 0x2D:
        sign = -1 if b[p] == 0x2D else 1
        p += 1
    v = 0
    while p < stop:
        v = min(v * 10 + b[p] - 0x30, 1 << 40)
        p += 1
    return sign * v


@part
def _put_digits(b: np.ndarray, start: int, stop: int, out: np.ndarray, o: int, point: bool) -> int:
    """Append the digits between the positions, leaving a point out; with ``point``, after a point of their own."""
    for i in range(start, stop):
        if b[i] == 0x2E:
            continue
        if point:
            out[o] = 0x2E
            o += 1
            point = False
        out[o] = b[i]
        o += 1
    return o


@part
def put_int(v: int, out: np.ndarray, o: int) -> int:
    """Append an integer."""
    if v < 0:
        out[o] = 0x2D
        o += 1
        v = -v
    digits, rest = 1, v // 10
    while rest > 0:
        digits += 1
        rest //= 10
    for i in range(digits - 1, -1, -1):
        out[o + i] = 0x30 + v % 10
        v //= 10
    return o + digits


@part
def put_integer(b: np.ndarray, start: int, stop: int, out: np.ndarray, o: int) -> int:
    """Append a JSON number that must be an integer between -2^63 and 2^64 - 1; ``-0`` becomes ``0``."""
    p = start + (b[start] == 0x2D)
    for i in range(p, stop):
        if b[i] < 0x30 or b[i] > 0x39:
            return fault_at(OUT_OF_RANGE, start)
    if stop - p > 20 or (stop - p >= 19 and not fits_64_bits(b, p, stop, p > start)):
        return fault_at(OUT_OF_RANGE, start)
    if p > start and stop - p == 1 and b[p] == 0x30:
        start = p
    return put_bytes(b, start, stop, out, o)


@part
def fits_64_bits(b: np.ndarray, p: int, stop: int, negative: bool) -> bool:
    """Whether digits are a number of 64 bits, without a sign unless it is negative."""
    limit = np.uint64(1 << 63) if negative else np.uint64(0xFFFFFFFFFFFFFFFF)
    v = np.uint64(0)
    for i in range(p, stop):
        d = np.uint64(b[i] - 0x30)
        if v > (limit - d) // np.uint64(10):
            return False
        v = v * np.uint64(10) + d
    return True


@part
def int64_of(b: np.ndarray, start: int, stop: int) -> tuple[int, bool]:
    """The integer that a JSON number writes, and whether it is one between -2^63 and 2^63 - 1."""
    p = start + (b[start] == 0x2D)
    if stop - p > 19 or p == stop:
        return 0, False
    v = np.uint64(0)
    for i in range(p, stop):
        if b[i] < 0x30 or b[i] > 0x39:
            return 0, False
        v = v * np.uint64(10) + np.uint64(b[i] - 0x30)
    if v > np.uint64(0x7FFFFFFFFFFFFFFF) + np.uint64(p - start):
        return 0, False
    return (-np.int64(v) if p > start else np.int64(v)), True


@part
def held_scalar_end(b: np.ndarray, p: int, end: int) -> int:
    """Position after a string, a literal or an integer; below zero also of a number that Python might not hold."""
    q = scalar_end(b, p, end)
    if q < 0 or b[p] == 0x22 or b[p] > 0x39:
        return q
    return q if int64_of(b, p, q)[1] else -2


@part
def holds_integer(b: np.ndarray, start: int, stop: int, more_bytes: int) -> bool:
    """Whether text is an integer that a type of ``1 + more_bytes`` bytes can hold, signed or not."""
    p = start + (start < stop and b[start] == 0x2D)
    n, value = stop - p, 0
    if n < 1 or n > 20:
        return False
    for i in range(p, stop):
        if b[i] < 0x30 or b[i] > 0x39:
            return False
        value = 10 * value + b[i] - 0x30  # of 19 digits and more it is not asked for
    if more_bytes == 7:
        return n < 19 or fits_64_bits(b, p, stop, p > start)
    half = 1 << (8 * more_bytes + 7)
    return n <= 18 and (value <= half if p > start else value < 2 * half)
