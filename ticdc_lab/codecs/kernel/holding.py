"""Whether a text is a value that fits a MySQL type: as :mod:`ticdc_lab.codecs.plain.json_text`, compiled."""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs.kernel.jit import part
from ticdc_lab.codecs.kernel.scan import digits_end
from ticdc_lab.codecs.kernel.text import holds_integer
from ticdc_lab.events import mysql_types as m

DECIMAL, DATE, TIME, DATETIME = m.DECIMAL, m.DATE, m.TIME, m.DATETIME
NO_MYSQL_TYPE, HOURS_MAX = m.NO_MYSQL_TYPE, m.HOURS_MAX


@part
def holds(kind: int, b: np.ndarray, start: int, stop: int) -> bool:
    """Whether text fits the types of a kind (``MySQLType.holds``).

    The kind is not ``ANYTHING``, and not ``FINITE``: for a float ``is_number`` and ``put_float`` decide.
    """
    if kind == NO_MYSQL_TYPE:
        return False
    if kind < DECIMAL:
        return holds_integer(b, start, stop, kind - 1)
    if kind == DECIMAL:
        return _is_decimal(b, start, stop)
    if kind == DATETIME:
        return _is_datetime(b, start, stop)
    if kind == DATE:
        return _day_end(b, start, stop) == stop
    if kind == TIME:
        return _is_time(b, start, stop)
    return start < stop and b[start] != 0x2D and holds_integer(b, start, stop, 7)


@part
def _is_decimal(b: np.ndarray, p: int, stop: int) -> bool:
    """``[+-]`` and digits, with one point among, before or after them."""
    if p < stop and (b[p] == 0x2D or b[p] == 0x2B):
        p += 1
    q = digits_end(b, p, stop)
    n = q - p
    if q < stop and b[q] == 0x2E:
        p = q + 1
        q = digits_end(b, p, stop)
        n += q - p
    return q == stop and n > 0


@part
def _number(b: np.ndarray, p: int, stop: int, most: int) -> bool:
    """Whether two digits up to a number are at ``p``."""
    if p + 2 > stop or b[p] < 0x30 or b[p] > 0x39 or b[p + 1] < 0x30 or b[p + 1] > 0x39:
        return False
    return 10 * (b[p] - 0x30) + b[p + 1] - 0x30 <= most


@part
def _day_end(b: np.ndarray, p: int, stop: int) -> int:
    """Position after year, month and day; -1 where there are none."""
    q = digits_end(b, p, stop)
    if q - p != 4 and q - p != 5:
        return -1
    if q + 6 > stop or b[q] != 0x2D or b[q + 3] != 0x2D:
        return -1
    return q + 6 if _number(b, q + 1, stop, 12) and _number(b, q + 4, stop, 31) else -1


@part
def _minutes_end(b: np.ndarray, p: int, stop: int) -> int:
    """Position after minutes, and seconds and their fraction where they are there; -1 where there are no minutes."""
    if p >= stop or b[p] != 0x3A or not _number(b, p + 1, stop, 59):
        return -1
    p += 3
    if p >= stop or b[p] != 0x3A:
        return p
    if not _number(b, p + 1, stop, 59):
        return -1
    p += 3
    if p >= stop or b[p] != 0x2E:
        return p
    q = digits_end(b, p + 1, stop)
    return q if 1 <= q - p - 1 <= 6 else -1


@part
def _is_time(b: np.ndarray, p: int, stop: int) -> bool:
    if p < stop and b[p] == 0x2D:
        p += 1
    q = digits_end(b, p, stop)
    if q - p != 2 and q - p != 3:
        return False
    hours = 0
    for i in range(p, q):
        hours = 10 * hours + b[i] - 0x30
    return hours <= HOURS_MAX and _minutes_end(b, q, stop) == stop


@part
def _is_datetime(b: np.ndarray, p: int, stop: int) -> bool:
    p = _day_end(b, p, stop)
    if p < 0 or p == stop:
        return p == stop
    if (b[p] != 0x20 and b[p] != 0x54) or not _number(b, p + 1, stop, 23):
        return False
    p = _minutes_end(b, p + 3, stop)
    if p < 0 or p == stop:
        return p == stop
    if b[p] == 0x5A:
        return p + 1 == stop
    if (b[p] != 0x2B and b[p] != 0x2D) or p + 1 == stop:
        return False
    p += 1
    while p < stop and 0x30 <= b[p] <= 0x3A:
        p += 1
    return p == stop
