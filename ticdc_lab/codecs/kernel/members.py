"""Members of a JSON object whose names a format describes: which comes next, and where its value lies.

TiCDC writes the members of an object in one order, so a name is first compared with the one behind the last.
"""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.kernel.jit import part, small_kernel
from ticdc_lab.codecs.kernel.numbering import BLOCK
from ticdc_lab.codecs.kernel.scan import after_name, next_member, same_bytes, scalar_end, string_end
from ticdc_lab.codecs.kernel.text import held_scalar_end, int64_of

ENDS = 22
"""``state.at`` holds where the value of each field of a message begins and, so much further, where it ends."""

OTHER, NO_MORE = -2, -1
"""In place of a name's number: it is escaped or none of the format's, or the JSON is broken; there is none."""


def described(*names: str) -> np.ndarray:
    """The names of an object's members, in the order in which they are written; a member is the number of its name."""
    rows = [bytes([len(name)]) + name.encode().ljust(BLOCK - 1, b"\0") for name in names]
    return np.frombuffer(b"".join(rows) + bytes(BLOCK), np.uint8).copy()


@part
def nth_name(b: np.ndarray, p: int, q: int, first: int, names: np.ndarray) -> int:
    """Which name, from the ``first`` on and then from the beginning, lies between the positions, or OTHER."""
    n = len(names) // BLOCK - 1
    for k in range(n):
        i = first + k if first + k < n else first + k - n
        at = i * BLOCK
        if same_bytes(b, p, q, names, at + 1, at + 1 + names[at]):
            return i
    return OTHER


@small_kernel
def next_named(b: np.ndarray, p: int, end: int, first: bool, last: int, names: np.ndarray) -> tuple[int, int]:
    """The number of the next member's name, and where its value begins, which is before ``end``.

    Without a member the position is that after the object. ``last`` is the number of the one before, or below zero.
    """
    p, more = next_member(b, p, end, 0x7D, first)
    if not more:
        return (NO_MORE if p >= 0 else OTHER), p
    guess = max(last, -1) + 1
    at = guess * BLOCK
    nth, size = guess, names[at] + 0  # 0 behind the last name
    q = p + 2 + size
    as_guessed = size > 0 and q <= end and b[p] == 0x22 and b[q - 1] == 0x22
    if not as_guessed or not same_bytes(b, p + 1, q - 1, names, at + 1, at + 1 + size):
        nth, q = _named_otherwise(b, p, end, guess, names)
    if nth < 0:
        return OTHER, p
    p = after_name(b, q, end)
    return (nth if 0 <= p < end else OTHER), p


@part
def _named_otherwise(b: np.ndarray, p: int, end: int, guess: int, names: np.ndarray) -> tuple[int, int]:
    q, escaped = string_end(b, p, end)
    return (OTHER if q < 0 or escaped else nth_name(b, p + 1, q - 1, guess, names)), q


@small_kernel
def next_plain(b: np.ndarray, p: int, end: int, first: bool) -> tuple[int, int, int]:
    """Where the next member's name, which may be any, begins and ends, and where its value begins, before ``end``.

    In place of the first: NO_MORE, and the last is the position after the object; or OTHER.
    """
    p, more = next_member(b, p, end, 0x7D, first)
    if not more:
        return (NO_MORE if p >= 0 else OTHER), 0, p
    q, escaped = string_end(b, p, end)
    if q < 0 or escaped:
        return OTHER, 0, p
    v = after_name(b, q, end)
    return (p + 1 if 0 <= v < end else OTHER), q - 1, v


@part
def read_scalars(b: np.ndarray, p: int, end: int, names: np.ndarray, at: np.ndarray, first: int, any_: bool) -> int:
    """Find the values of the object at ``p``, which has scalars alone, each once; the position after it, or OTHER.

    Name ``i`` is field ``first + i``, which begins at -1 where it is absent. ``any_``: whether numbers may be any.
    """
    for i in range(len(names) // BLOCK - 1):
        at[first + i] = -1
    if p >= end or b[p] != 0x7B:
        return OTHER
    nth, p = next_named(b, p + 1, end, True, -1, names)
    while nth >= 0:
        q = scalar_end(b, p, end) if any_ else held_scalar_end(b, p, end)
        if q < 0 or at[first + nth] >= 0:
            return OTHER
        at[first + nth], at[ENDS + first + nth] = p, q
        nth, p = next_named(b, q, end, False, nth, names)
    return p if nth == NO_MORE else OTHER


@part
def count_in(b: np.ndarray, at: np.ndarray, field: int) -> tuple[int, bool]:
    """The number that a field is, and whether it is one of 63 bits without a sign."""
    p = at[field]
    if p < 0:
        return 0, False
    value, fits = int64_of(b, p, at[ENDS + field])
    return value, fits and b[p] != 0x2D
