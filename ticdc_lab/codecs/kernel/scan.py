"""Walking JSON text: strict, iterative, on raw bytes.

Every function takes the bytes ``b``, a position ``p`` and an end, and returns the position after what it read, or a
fault as a negative number ``-(fault << 40) - position`` (see :func:`fault_at`).
"""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.kernel.jit import part, small_kernel
from ticdc_lab.codecs.kernel.numbering import BLOCK
from ticdc_lab.codecs.kernel.wide import WORD, block_fits, fits, load, plain_run, same_block, same_text_of

MAX_DEPTH = 128

# Byte classes inside a JSON string: 0 plain, 1 the closing quote, 2 backslash, 3 control, 4 start of a UTF-8 sequence.
_IN_STRING = np.zeros(256, np.uint8)
_IN_STRING[0x22], _IN_STRING[0x5C], _IN_STRING[:0x20], _IN_STRING[0x80:] = 1, 2, 3, 4

NOT_JSON, BAD_UTF8, TOO_DEEP, BAD_ESCAPE = faults.NOT_JSON, faults.BAD_UTF8, faults.TOO_DEEP, faults.BAD_ESCAPE


@small_kernel
def fault_at(fault: int, p: int) -> int:
    """A fault and where it was met, as one negative number."""
    return -((fault << 40) | p)


@small_kernel
def skip_space(b: np.ndarray, p: int, end: int) -> int:
    """Position of the next byte that is no JSON white space."""
    while p < end and (b[p] == 0x20 or b[p] == 0x0A or b[p] == 0x0D or b[p] == 0x09):
        p += 1
    return p


@part
def utf8_step(b: np.ndarray, p: int, end: int) -> int:
    """Length of the well-formed UTF-8 sequence of two or more bytes at ``p``, or 0 (Unicode table 3-7)."""
    c = b[p]
    if c < 0xC2:
        return 0
    if c < 0xE0:
        return 2 if p + 1 < end and b[p + 1] & 0xC0 == 0x80 else 0
    if c < 0xF0:
        if p + 2 >= end or b[p + 1] & 0xC0 != 0x80 or b[p + 2] & 0xC0 != 0x80:
            return 0
        if (c == 0xE0 and b[p + 1] < 0xA0) or (c == 0xED and b[p + 1] > 0x9F):
            return 0
        return 3
    if c > 0xF4 or p + 3 >= end:
        return 0
    if b[p + 1] & 0xC0 != 0x80 or b[p + 2] & 0xC0 != 0x80 or b[p + 3] & 0xC0 != 0x80:
        return 0
    if (c == 0xF0 and b[p + 1] < 0x90) or (c == 0xF4 and b[p + 1] > 0x8F):
        return 0
    return 4


@part
def hex_digit(c: int) -> int:
    """Value of a hexadecimal digit, or -1."""
    if 0x30 <= c <= 0x39:
        return c - 0x30
    c |= 0x20
    if 0x61 <= c <= 0x66:
        return c - 0x57
    return -1


@part
def hex_number(b: np.ndarray, p: int, n: int, end: int) -> int:
    """The number in ``n`` hexadecimal digits, or -1."""
    if p + n > end:
        return -1
    v = 0
    for i in range(n):
        d = hex_digit(b[p + i])
        if d < 0:
            return -1
        v = v << 4 | d
    return v


@part
def _escape_end(b: np.ndarray, p: int, end: int) -> int:
    """Position after the escape whose backslash is at ``p``; a lone surrogate is a fault."""
    if p + 1 >= end:
        return fault_at(NOT_JSON, p)
    c = b[p + 1]
    if c != 0x75:
        if c == 0x22 or c == 0x5C or c == 0x2F or c == 0x62 or c == 0x66 or c == 0x6E or c == 0x72 or c == 0x74:
            return p + 2
        return fault_at(BAD_ESCAPE, p)
    v = hex_number(b, p + 2, 4, end)
    if v < 0 or 0xDC00 <= v < 0xE000:
        return fault_at(BAD_ESCAPE, p)
    if 0xD800 <= v < 0xDC00:
        if p + 8 > end or b[p + 6] != 0x5C or b[p + 7] != 0x75:
            return fault_at(BAD_ESCAPE, p)
        low = hex_number(b, p + 8, 4, end)
        if low < 0xDC00 or low >= 0xE000:
            return fault_at(BAD_ESCAPE, p)
        return p + 12
    return p + 6


@small_kernel
def string_end(b: np.ndarray, p: int, end: int) -> tuple[int, bool]:
    """Position after the string that starts at ``p``, and whether it holds escapes."""
    if p < end and b[p] == 0x22 and block_fits(b, p + 1):  # most strings end in the first block
        q = p + 1 + plain_run(b, p + 1)
        if q <= p + BLOCK and q < end and b[q] == 0x22:
            return q + 1, False
    return _string_end(b, p, end)


@part
def _string_end(b: np.ndarray, p: int, end: int) -> tuple[int, bool]:
    if p >= end or b[p] != 0x22:
        return fault_at(NOT_JSON, p), False
    p += 1
    escaped = False
    while p < end:
        while block_fits(b, p):
            n = plain_run(b, p)
            p += n
            if n < BLOCK:
                break
        if p >= end:
            break
        kind = _IN_STRING[b[p]]
        if kind == 0:
            p += 1
        elif kind == 1:
            return p + 1, escaped
        elif kind == 4:
            n = utf8_step(b, p, end)
            if n == 0:
                return fault_at(BAD_UTF8, p), escaped
            p += n
        elif kind == 2:
            escaped = True
            p = _escape_end(b, p, end)
            if p < 0:
                return p, escaped
        else:
            return fault_at(NOT_JSON, p), escaped
    return fault_at(NOT_JSON, end), escaped


@part
def number_end(b: np.ndarray, p: int, end: int) -> int:
    """Position after the number at ``p`` (RFC 8259 grammar)."""
    start = p
    if p < end and b[p] == 0x2D:
        p += 1
    if p >= end:
        return fault_at(NOT_JSON, start)
    if b[p] == 0x30:
        p += 1
    else:
        q = digits_end(b, p, end)
        if q == p:
            return fault_at(NOT_JSON, start)
        p = q
    if p < end and b[p] == 0x2E:
        q = digits_end(b, p + 1, end)
        if q == p + 1:
            return fault_at(NOT_JSON, start)
        p = q
    if p < end and b[p] | 0x20 == 0x65:
        p += 1
        if p < end and (b[p] == 0x2B or b[p] == 0x2D):
            p += 1
        q = digits_end(b, p, end)
        if q == p:
            return fault_at(NOT_JSON, start)
        p = q
    return p


@part
def digits_end(b: np.ndarray, p: int, end: int) -> int:
    """Position of the next byte that is no decimal digit."""
    while p < end and 0x30 <= b[p] <= 0x39:
        p += 1
    return p


@part
def literal_end(b: np.ndarray, p: int, end: int) -> int:
    """Position after ``true``, ``false`` or ``null`` at ``p``."""
    if p + 4 <= end:
        if b[p] == 0x74 and b[p + 1] == 0x72 and b[p + 2] == 0x75 and b[p + 3] == 0x65:
            return p + 4
        if b[p] == 0x6E and b[p + 1] == 0x75 and b[p + 2] == 0x6C and b[p + 3] == 0x6C:
            return p + 4
        is_fals = b[p] == 0x66 and b[p + 1] == 0x61 and b[p + 2] == 0x6C and b[p + 3] == 0x73
        if is_fals and p + 5 <= end and b[p + 4] == 0x65:
            return p + 5
    return fault_at(NOT_JSON, p)


@part
def scalar_end(b: np.ndarray, p: int, end: int) -> int:
    """Position after the string, number or literal at ``p``."""
    if p >= end:
        return fault_at(NOT_JSON, p)
    c = b[p]
    if c == 0x22:
        return string_end(b, p, end)[0]
    if c == 0x2D or 0x30 <= c <= 0x39:
        return number_end(b, p, end)
    return literal_end(b, p, end)


@part
def value_end(b: np.ndarray, p: int, end: int, stack: np.ndarray) -> int:
    """Position after any JSON value at ``p``, checked all the way; ``stack`` is scratch."""
    depth = 0
    while True:
        p = skip_space(b, p, end)
        if p < end and (b[p] == 0x7B or b[p] == 0x5B):
            if depth == MAX_DEPTH:
                return fault_at(TOO_DEEP, p)
            opener = b[p]
            p = skip_space(b, p + 1, end)
            closer = opener + 2
            if p < end and b[p] == closer:
                p += 1
            else:
                stack[depth] = closer
                depth += 1
                if opener == 0x7B:
                    p = name_end(b, p, end)
                    if p < 0:
                        return p
                continue
        else:
            p = scalar_end(b, p, end)
            if p < 0:
                return p
        while depth > 0:
            p = skip_space(b, p, end)
            if p >= end:
                return fault_at(NOT_JSON, p)
            if b[p] == stack[depth - 1]:
                depth -= 1
                p += 1
            elif b[p] == 0x2C:
                p = skip_space(b, p + 1, end)
                if stack[depth - 1] == 0x7D:
                    p = name_end(b, p, end)
                    if p < 0:
                        return p
                break
            else:
                return fault_at(NOT_JSON, p)
        if depth == 0:
            return p


@part
def name_end(b: np.ndarray, p: int, end: int) -> int:
    """Position after a member's name and colon, at the start of its value."""
    p, _ = string_end(b, p, end)
    if p < 0:
        return p
    return after_name(b, p, end)


@small_kernel
def after_name(b: np.ndarray, p: int, end: int) -> int:
    """Position of a member's value, ``p`` being just after its name."""
    p = skip_space(b, p, end)
    if p >= end or b[p] != 0x3A:
        return fault_at(NOT_JSON, p)
    return skip_space(b, p + 1, end)


@small_kernel
def next_member(b: np.ndarray, p: int, end: int, closer: int, first: bool) -> tuple[int, bool]:
    """Step to the next element of an object or array: (position, whether there is one).

    Without one the position is that after the closing byte. ``p`` is after the opening byte or the last value.
    """
    p = skip_space(b, p, end)
    if p >= end:
        return fault_at(NOT_JSON, p), False
    if b[p] == closer:
        return p + 1, False
    if first:
        return p, True
    if b[p] != 0x2C:
        return fault_at(NOT_JSON, p), False
    return skip_space(b, p + 1, end), True


@small_kernel
def same(b: np.ndarray, start: int, stop: int, word: bytes) -> bool:
    """Whether the bytes between the positions are exactly ``word``."""
    if stop - start != len(word):
        return False
    for i in range(len(word)):
        if b[start + i] != word[i]:
            return False
    return True


@small_kernel
def same_bytes(b: np.ndarray, start: int, stop: int, other: np.ndarray, other_start: int, other_stop: int) -> bool:
    """Whether the bytes between two positions are those between two others."""
    n = stop - start
    if n != other_stop - other_start:
        return False
    if n <= BLOCK and block_fits(b, start) and block_fits(other, other_start):
        return same_block(b, start, other, other_start, n)
    return same_text_of(b, start, other, other_start, n)


@part
def first_of(numbers: np.ndarray, least: int | np.uint64) -> int:
    """Where the ascending numbers that are at least ``least`` begin."""
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low


@small_kernel
def word(b: np.ndarray, p: int, q: int) -> np.uint64:
    """The bytes between the positions, eight at most, as one number; what :func:`word_of` makes of a name."""
    n = min(q - p, WORD)
    if n == WORD:
        return load(b, p)
    if fits(b, p):
        return load(b, p) & ((np.uint64(1) << np.uint64(8 * n)) - np.uint64(1))
    v = np.uint64(0)
    for i in range(n):
        v |= np.uint64(b[p + i]) << np.uint64(8 * i)
    return v


def word_of(name: bytes) -> np.uint64:
    """The first eight bytes of a name as one number, to be compared with :func:`word`."""
    return np.uint64(int.from_bytes(name[:8], "little"))
