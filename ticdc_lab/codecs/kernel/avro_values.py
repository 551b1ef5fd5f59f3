"""Values of Avro: where they lie, and the text that MySQL would print, by the form of their column.

What surely has one text is written; any other value is left to Python, which names the fault, if any.
"""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs import debezium_types as forms
from ticdc_lab.codecs.avro_fields import BOOL, BYTES, LONG, NUMERIC, REAL4, REAL8, TEXT
from ticdc_lab.codecs.kernel.floats import put_fixed_digits, put_number
from ticdc_lab.codecs.kernel.holding import holds
from ticdc_lab.codecs.kernel.jit import part, small_kernel
from ticdc_lab.codecs.kernel.text import checked_utf8, put_bytes, put_hex, put_int
from ticdc_lab.codecs.kernel.typed_values import IS_UNSIGNED, LEFT, put_counted, put_unsigned, put_zoned
from ticdc_lab.codecs.kernel.wide import WORD, load, load_double, load_single
from ticdc_lab.events.mysql_types import ANYTHING, FINITE, SINGLE

PLAIN, BITS, BINARY, INTEGER = forms.PLAIN, forms.BITS, forms.BINARY, forms.INTEGER
FLOAT, DOUBLE, DECIMAL = forms.FLOAT, forms.DOUBLE, forms.DECIMAL
DATE, MICROS, ZONED, BIG_BITS = forms.DATE, forms.MICROS, forms.ZONED, forms.BIG_BITS

_VARINT_BYTES, _NUMERIC_BYTES = 10, 32
_HIGH = np.uint64(0x8080808080808080)


@small_kernel
def varint(b: np.ndarray, p: int, end: int) -> tuple[int, int]:
    """The number at ``p`` and the position after it, below zero where there is none."""
    if p < end and b[p] < 0x80:
        v = np.int64(b[p])
        return (v >> 1) ^ -(v & 1), p + 1
    return _long_varint(b, p, end)


@part
def _long_varint(b: np.ndarray, p: int, end: int) -> tuple[int, int]:
    v = np.uint64(0)
    for i in range(_VARINT_BYTES):
        if p >= end or (i == _VARINT_BYTES - 1 and b[p] > 1):
            return np.int64(0), LEFT
        v |= np.uint64(b[p] & 0x7F) << np.uint64(7 * i)
        p += 1
        if b[p - 1] < 0x80:
            return np.int64(v >> np.uint64(1)) ^ -np.int64(v & np.uint64(1)), p
    return np.int64(0), LEFT


@part
def read_value(b: np.ndarray, p: int, end: int, wire: int) -> tuple[int, int, int]:
    """The number at ``p`` and 0, or where its bytes begin and end; and the position after it, below zero: a fault."""
    if wire == LONG:
        v, p = varint(b, p, end)
        return v, 0, p
    if wire in (TEXT, BYTES, NUMERIC):
        n, p = varint(b, p, end)
        if p < 0 or n < 0 or n > end - p or (wire == TEXT and not _is_utf8(b, p, p + n)):
            return np.int64(0), 0, LEFT
        return p, p + n, p + n
    if wire in (REAL4, REAL8):
        n = 4 if wire == REAL4 else WORD
        return (p, p + n, p + n) if n <= end - p else (np.int64(0), 0, LEFT)
    if wire == BOOL and p < end and b[p] < 2:
        return np.int64(b[p]), 0, p + 1
    return np.int64(0), 0, LEFT


@part
def _is_utf8(b: np.ndarray, p: int, stop: int) -> bool:
    while p + WORD <= stop and load(b, p) & _HIGH == np.uint64(0):
        p += WORD
    return checked_utf8(b, p, stop, 0) == stop


@small_kernel
def put_value(
    b: np.ndarray, v: int, stop: int, wire: int, form: int, digits: int, precision: int, held: int, sign: int,
    scratch: np.ndarray, out: np.ndarray, o: int,
) -> int:  # fmt: skip
    """Append a value that :func:`read_value` has found; the new end, or LEFT.

    ``digits`` below zero are as many as there are, ``held`` is what the type holds, and ``sign`` IS_UNSIGNED where a
    number below zero is one from 2^63 on.
    """
    end = _put(b, v, stop, wire, form, digits, precision, sign, scratch, out, o)
    if end < 0:
        return LEFT
    if held in (ANYTHING, FINITE, SINGLE) or holds(held, out, o, end):
        return end
    return LEFT


@part
def _put(
    b: np.ndarray, v: int, stop: int, wire: int, form: int, digits: int, precision: int, sign: int,
    scratch: np.ndarray, out: np.ndarray, o: int,
) -> int:  # fmt: skip
    if wire == TEXT:
        if form == ZONED:
            return put_zoned(b, v, stop, out, o)
        return put_bytes(b, v, stop, out, o) if form in (PLAIN, INTEGER, DECIMAL) else LEFT
    if wire == LONG:
        if DATE <= form <= MICROS:
            return put_counted(v, form, digits, out, o)
        if form != PLAIN and form != INTEGER:
            return LEFT
        if v >= 0:
            return put_int(v, out, o)
        if sign & IS_UNSIGNED:
            return put_unsigned(np.uint64(np.int64(v)), out, o)
        out[o] = 0x2D
        return put_unsigned(np.uint64(-(v + 1)) + np.uint64(1), out, o + 1)
    if wire in (REAL4, REAL8):
        x = load_single(b, v) if wire == REAL4 else load_double(b, v)
        if form == DECIMAL:
            at = o + _SCRATCH
            end = put_number(x, False, out, at)
            return put_fixed_digits(out, at, end, digits, out, o) if end >= 0 else LEFT
        return put_number(x, form == FLOAT, out, o) if form in (FLOAT, DOUBLE, PLAIN) else LEFT
    if wire == BYTES:
        if form == BINARY:
            out[o], out[o + 1] = 0x30, 0x78
            o += 2
            for i in range(v, stop):
                o = put_hex(b[i], out, o)
            return o
        return _put_bits(b, v, stop, form == BIG_BITS, out, o) if form in (BITS, BIG_BITS) else LEFT
    if wire == NUMERIC:
        is_read = form in (PLAIN, INTEGER, DECIMAL)
        return _put_numeric(b, v, stop, digits, precision, scratch, out, o) if is_read else LEFT
    if wire == BOOL and (form in (PLAIN, BITS)):
        out[o] = 0x30 + v
        return o + 1
    return LEFT


_SCRATCH = 96


@part
def _put_bits(b: np.ndarray, p: int, stop: int, big: bool, out: np.ndarray, o: int) -> int:
    if stop - p > WORD:
        return LEFT
    v = np.uint64(0)
    for i in range(stop - p):
        v = v << np.uint64(8) | np.uint64(b[p + i] if big else b[stop - 1 - i])
    return put_unsigned(v, out, o)


@part
def _put_numeric(
    b: np.ndarray, p: int, stop: int, scale: int, precision: int, scratch: np.ndarray, out: np.ndarray, o: int
) -> int:
    """Append bytes, highest first, as a decimal; one of more digits than its type has would be rounded, and is left."""
    if p == stop or stop - p > _NUMERIC_BYTES:
        return LEFT
    negative, n, borrow = b[p] >= 0x80, 0, 1
    if negative:
        for i in range(stop - 1, p - 1, -1):  # the number without its sign: all bits turned, and one more
            byte = (b[i] ^ 0xFF) + borrow
            scratch[i - p], borrow = byte & 0xFF, byte >> 8
    else:
        for i in range(p, stop):
            scratch[i - p] = b[i]
    for i in range(stop - p):  # digits, lowest first, behind these bytes
        carry = np.int64(scratch[i])
        for j in range(n):
            digit = np.int64(scratch[_NUMERIC_BYTES + j]) * 256 + carry
            scratch[_NUMERIC_BYTES + j], carry = digit % 10, digit // 10
        while carry > 0:
            scratch[_NUMERIC_BYTES + n], carry = carry % 10, carry // 10
            n += 1
    if n > precision:
        return LEFT
    if negative:
        out[o] = 0x2D
        o += 1
    for j in range(max(n, scale + 1) - 1, -1, -1):
        out[o] = 0x30 + (scratch[_NUMERIC_BYTES + j] if j < n else 0)
        o += 1
        if j == scale and j > 0:
            out[o] = 0x2E
            o += 1
    return o
