"""Numbers by their value: the fewest digits that identify a DOUBLE or a FLOAT, as Python and Go write them.

C's own functions read and print the number, exactly; where two choices of digits are as short, Python chooses.
"""

from __future__ import annotations

import math

import numpy as np

from ticdc_lab.codecs.kernel.jit import in_llvm, part
from ticdc_lab.codecs.kernel.numbering import PRINTED_MAX
from ticdc_lab.codecs.kernel.text import digits_of, is_number, put_float, put_int

LEFT = -2

_DOUBLE_DIGITS, _FLOAT_DIGITS = 15, 6
"""So many digits of a decimal determine its nearest number, and that number's fewest digits are they again."""

_DOUBLE_POWER, _FLOAT_POWER = 290, 6
"""Where that holds: far from numbers with fewer bits, and for a FLOAT where rounding twice cannot differ from once."""

_EXPONENT = 4
"""Bytes behind the ``e``, at most: Python's codec takes no exponent of more digits."""


@part
def _is_read(b: np.ndarray, p: int, q: int) -> bool:
    """Whether a text is a number that Python reads, too."""
    e = p
    while e < q and b[e] | 0x20 != 0x65:
        e += 1
    return q - e <= 1 + _EXPONENT and is_number(b, p, q)


@part
def _is_fewest(b: np.ndarray, p: int, q: int, narrow: bool) -> bool:
    """Whether a number's digits, without zeros at its ends, are surely the fewest that identify it."""
    if not _is_read(b, p, q):
        return False
    first, last, power = digits_of(b, p, q)
    if first < 0:
        return True
    digits = last - first + 1  # the point among them, at worst
    if narrow:
        return digits <= _FLOAT_DIGITS and -1 <= power <= _FLOAT_POWER
    return digits <= _DOUBLE_DIGITS and -_DOUBLE_POWER <= power <= _DOUBLE_POWER


_SHORTEST_DIGITS = (6, 9), (15, 17)
"""From so many digits on, fewer may identify a number; so many identify each FLOAT, each DOUBLE."""

_LENGTH_MAX = 400
FLOAT_ROOM = 96
"""Bytes that :func:`put_shortest` may write behind what it appends to, at most."""

_SCRATCH, _FIXED_TENS = FLOAT_ROOM - PRINTED_MAX, 28
_FLOAT_LEAST, _DOUBLE_LEAST = 1e-37, 1e-300
"""Below, any number of digits may identify a number."""

_FRACTION = (1 << 52) - 1
"""Bits of a DOUBLE that a power of two has not, unless it is very small: the numbers below it lie closer than above."""


@in_llvm
def read_number(b: np.ndarray, p: int, q: int) -> float:
    """C's ``strtod``."""
    return float(bytes(int(b[i]) for i in range(p, q)))


@in_llvm
def print_number(out: np.ndarray, o: int, digits: int, x: float) -> int:
    """C's ``snprintf``."""
    text = b"%.*e\0" % (digits - 1, x)
    for i, c in enumerate(text):
        out[o + i] = c
    return len(text) - 1


@part
def put_shortest(b: np.ndarray, p: int, q: int, narrow: bool, out: np.ndarray, o: int) -> int:
    """Append a number as MySQL prints the DOUBLE, or FLOAT, that is nearest to it; LEFT where that is not sure.

    ``out`` needs FLOAT_ROOM bytes behind what any text of that length needs, ``b`` one byte behind the number.
    """
    if _is_fewest(b, p, q, narrow):
        return put_float(b, p, q, out, o)
    at = o + _SCRATCH
    n = _printed(b, p, q, narrow, out, at)
    return put_float(out, at, at + n, out, o) if n >= 0 else LEFT


@part
def put_number(x: float, narrow: bool, out: np.ndarray, o: int) -> int:
    """Append a DOUBLE, or the FLOAT nearest to it, as MySQL prints it; LEFT where that is not sure.

    ``out`` needs FLOAT_ROOM bytes and 40 more. What so few digits identify uniquely needs no printing.
    """
    if narrow:
        x = np.float64(np.float32(x))
    size = abs(x)
    if size == 0.0 or not size < np.inf:
        if size != 0.0 or math.copysign(1.0, x) < 0:
            return LEFT
        out[o] = 0x30
        return o + 1
    if (size <= _FLOAT_WHOLE if narrow else size < _DOUBLE_WHOLE) and size == math.floor(size):
        return put_int(int(x), out, o)
    if size >= _FRACTION_LEAST:
        tens = 1.0
        for digits in range(1, (_FLOAT_DIGITS if narrow else _FRACTION_DIGITS) + 1):
            tens *= 10.0
            units = np.rint(size * tens)
            if units >= (_FLOAT_UNITS if narrow else _DOUBLE_WHOLE):
                break
            back = units / tens
            if narrow:
                back = np.float64(np.float32(back))
            if back == size:
                return _put_units(int(units), digits, x < 0, out, o)
    at = o + _SCRATCH
    n = _print_fewest(x, narrow, out, at)
    return put_float(out, at, at + n, out, o) if n >= 0 else LEFT


_FLOAT_WHOLE, _DOUBLE_WHOLE, _FLOAT_UNITS = 16_777_216.0, 1e15, 1e6
"""Up to these, whole numbers are their own fewest digits; so are fewer units of a power of ten."""

_FRACTION_LEAST, _FRACTION_DIGITS = 0.1, 9


@part
def _put_units(units: int, digits: int, negative: bool, out: np.ndarray, o: int) -> int:
    """Append ``units`` of so many digits behind the point."""
    tens = 1
    for _ in range(digits):
        tens *= 10
    if negative:
        out[o] = 0x2D
        o += 1
    o = put_int(units // tens, out, o)
    out[o] = 0x2E
    rest = units % tens
    for i in range(digits, 0, -1):
        out[o + i] = 0x30 + rest % 10
        rest //= 10
    return o + digits + 1


@part
def put_fixed(b: np.ndarray, p: int, q: int, exact: bool, scale: int, out: np.ndarray, o: int) -> int:
    """Append a number without exponent: ``exact``, or the digits of the nearest DOUBLE; LEFT where that is not sure.

    ``scale``: digits behind the point, none of them cut off; below zero: as many as there are.
    """
    if exact or _is_fewest(b, p, q, False):
        return put_fixed_digits(b, p, q, scale, out, o)
    at = o + _SCRATCH
    n = _printed(b, p, q, False, out, at)
    return put_fixed_digits(out, at, at + n, scale, out, o) if n >= 0 else LEFT


@part
def put_fixed_digits(b: np.ndarray, p: int, q: int, scale: int, out: np.ndarray, o: int) -> int:
    """Append a number's digits without exponent, as :func:`put_fixed` does."""
    first, last, tens = digits_of(b, p, q)
    if b[p] == 0x2D:
        if first < 0:
            return LEFT
        out[o] = 0x2D
        o += 1
    if first < 0:
        tens = 0
    if tens > _FIXED_TENS or tens < -_FIXED_TENS or scale > _FIXED_TENS:
        return LEFT
    behind, i = 0, first
    if tens < 0:
        out[o], out[o + 1] = 0x30, 0x2E
        o += 2
        for _ in range(-tens - 1):
            out[o] = 0x30
            o += 1
        behind = -tens - 1
    else:
        for _ in range(tens + 1):
            if 0 <= i <= last and b[i] == 0x2E:
                i += 1
            out[o] = b[i] if 0 <= i <= last else 0x30
            o, i = o + 1, i + 1
    while 0 <= i <= last:
        if b[i] != 0x2E:
            if behind == 0 and tens >= 0:
                out[o] = 0x2E
                o += 1
            out[o] = b[i]
            o, behind = o + 1, behind + 1
        i += 1
    if 0 <= scale < behind:
        return LEFT
    if scale > 0 and behind == 0:
        out[o] = 0x2E
        o += 1
    for _ in range(scale - behind):
        out[o] = 0x30
        o += 1
    return o


@part
def _printed(b: np.ndarray, p: int, q: int, narrow: bool, out: np.ndarray, at: int) -> int:
    """Print the fewest digits of the nearest number, with an exponent; how many bytes, or LEFT."""
    if q - p > _LENGTH_MAX or q >= len(b) or not _is_read(b, p, q):
        return LEFT
    return _print_fewest(read_number(b, p, q), narrow, out, at)


@part
def _print_fewest(x: float, narrow: bool, out: np.ndarray, at: int) -> int:
    if narrow:
        x = np.float64(np.float32(x))
    size = abs(x)
    if not 0.0 < size < np.inf:
        return LEFT
    first, last = _SHORTEST_DIGITS[0] if narrow else _SHORTEST_DIGITS[1]
    if size < (_FLOAT_LEAST if narrow else _DOUBLE_LEAST):
        first = 1
    number = np.float64(size).view(np.int64)
    fraction = number & _FRACTION
    is_power = fraction == 0 or (fraction == number and fraction & (fraction - 1) == 0)
    for digits in range(first, last + 1):
        n = print_number(out, at, digits, x)
        if _read_back(out, at, at + n, narrow) == x:
            return n
        p = at + (x < 0) + (digits if digits > 1 else 0)
        if is_power and out[p] != 0x39:  # the next number above may be as short, and near enough; behind a 9 it is
            out[p] += 1  # shorter, and was tried
            if _read_back(out, at, at + n, narrow) == x:
                return LEFT
    return LEFT


@part
def _read_back(out: np.ndarray, p: int, q: int, narrow: bool) -> float:
    x = read_number(out, p, q)
    return np.float64(np.float32(x)) if narrow else x
