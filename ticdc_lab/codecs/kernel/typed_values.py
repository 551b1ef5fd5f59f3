"""Values of JSON by the form of their column (:mod:`ticdc_lab.codecs.debezium_types`): the text that MySQL would print.

What surely has one text is written; any other value is left to Python, which names the fault, if any.
"""

from __future__ import annotations

import numpy as np

from ticdc_lab.codecs import debezium_types as forms
from ticdc_lab.codecs.kernel import faults, in_part
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.floats import FLOAT_ROOM, put_fixed, put_shortest
from ticdc_lab.codecs.kernel.holding import holds
from ticdc_lab.codecs.kernel.jit import part
from ticdc_lab.codecs.kernel.numbering import BLOCK
from ticdc_lab.codecs.kernel.scan import digits_end
from ticdc_lab.codecs.kernel.state import State, close, end_column, put_null, put_typed_name
from ticdc_lab.codecs.kernel.text import (
    fits_64_bits,
    int64_of,
    put_base64,
    put_base64_bytes,
    put_bytes,
    put_float,
    put_int,
    put_string,
    room_for,
)
from ticdc_lab.events.mysql_types import ANYTHING, FINITE, NO_MYSQL_TYPE, SINGLE, base_of, held_by

PLAIN, BITS, BINARY, INTEGER = forms.PLAIN, forms.BITS, forms.BINARY, forms.INTEGER
FLOAT, DOUBLE, DECIMAL = forms.FLOAT, forms.DOUBLE, forms.DECIMAL
DATE, TIME, MILLIS, MICROS, ZONED = forms.DATE, forms.TIME, forms.MILLIS, forms.MICROS, forms.ZONED
TEXT_FLOAT, TEXT_DOUBLE, UNREAD = forms.TEXT_FLOAT, forms.TEXT_DOUBLE, forms.UNREAD

OK, NEED_MORE, LEFT = faults.OK, faults.NEED_MORE, in_part.LEFT

NAME, TYPE, KIND, DIGITS, HELD, SIGN, IS_KEY = 0, 2, 4, 5, 6, 7, 8
"""What is known of a column before its values come, as :func:`column_of` gives it: spans of name and type, how values
are written (:mod:`~ticdc_lab.codecs.debezium_types`), digits of a fraction (below zero: as many as there are), what
fits the type, whether it is IS_UNSIGNED or IS_TINYINT, and whether it is of the handle key."""

NO_TYPE = -1
IS_UNSIGNED, IS_TINYINT = 1, 2
"""Of an integer's type."""


class TextTable:
    """Texts one behind the other, as kernels find them: by where each begins and ends."""

    def __init__(self) -> None:
        self._all = bytearray()

    def span(self, of: str | bytes | None) -> tuple[int, int]:
        """Where a text lies that is added."""
        if of is None:
            return NO_TYPE, NO_TYPE
        start = len(self._all)
        self._all.extend(of.encode() if isinstance(of, str) else of)
        return start, len(self._all)

    def array(self) -> np.ndarray:
        """Their bytes, with a block behind them."""
        return np.frombuffer(bytes(self._all) + bytes(BLOCK), np.uint8).copy()


def column_of(
    texts: TextTable, name: str, mysql_type: str | None, kind: int, digits: int | None = None, *,
    unsigned: bool | None = None, is_key: bool = False,
) -> tuple[int, ...]:  # fmt: skip
    """A column as kernels read it; UNREAD where only Python reads its values.

    ``unsigned``: whether a number below zero is one from 2^63 on. By default the type of an integer defines it.
    """
    held = ANYTHING if mysql_type is None else held_by(mysql_type)
    if unsigned is None:
        unsigned = kind == INTEGER and str(mysql_type).endswith("unsigned")
    sign = IS_UNSIGNED * unsigned | IS_TINYINT * (base_of(mysql_type) == "tinyint")
    if held == NO_MYSQL_TYPE or (held in (FINITE, SINGLE) and kind not in (FLOAT, DOUBLE, TEXT_FLOAT, TEXT_DOUBLE)):
        kind = UNREAD
    return *texts.span(name), *texts.span(mysql_type), kind, -1 if digits is None else digits, held, sign, is_key


_DAY_FIRST, _DAY_LAST = -719_162, 2_932_896
"""Days from 1970-01-01 to the first of year 1 and the last of year 9999."""

_DAY_US, _SECOND_US, _MILLIS_MAX = 86_400_000_000, 1_000_000, 1 << 50
_FRACTION_DIGITS = 6
_ZONED_LENGTH = 19


@part
def put_column(
    names: np.ndarray, start: int, stop: int, b: np.ndarray, p: int, q: int, escaped: bool, is_key: int, image: int,
    i: int, column: np.ndarray, text: np.ndarray, st: State,
) -> int:  # fmt: skip
    """Write a column: its name, which lies in ``names``, its type, and the value, a JSON scalar from ``p`` to ``q``.

    What is known of it is ``column[i]``, whose texts lie in ``text``; below zero, ``i`` is a column without a type. OK,
    NEED_MORE, or LEFT.
    """
    c = st.count[S.N_AFTER if image == S.AFTER else S.N_BEFORE]
    type_start, type_stop, kind, digits, held, sign = NO_TYPE, NO_TYPE, PLAIN, -1, ANYTHING, 0
    if i >= 0:
        type_start, type_stop = column[i, TYPE], column[i, TYPE + 1]
        kind, digits, held, sign = column[i, KIND], column[i, DIGITS], column[i, HELD], column[i, SIGN]
    if not put_typed_name(names, start, stop, text, type_start, type_stop, room_for(q - p) + FLOAT_ROOM, image, st):
        return NEED_MORE
    k = image + S.VALUES
    if b[p] == 0x6E:
        put_null(st, k, c)
    elif escaped and kind != PLAIN:
        return LEFT
    else:
        out, o = st.data[k], st.size[k]
        end = _put(b, p, q, escaped, kind, digits, sign, out, o)
        if end < 0 or (held not in (ANYTHING, FINITE, SINGLE) and not holds(held, out, o, end)):
            return LEFT
        close(st, k, c, end)
    end_column(st, image, is_key, -1)
    return OK


@part
def _put(
    b: np.ndarray, p: int, q: int, escaped: bool, kind: int, digits: int, sign: int, out: np.ndarray, o: int
) -> int:
    """Append a value that is not null; the new end, or LEFT."""
    c = b[p]
    is_text, is_bool = c == 0x22, c == 0x74 or c == 0x66
    if kind == PLAIN:
        if is_text:
            return put_string(b, p + 1, q - 1, escaped, out, o)
        return _put_bool(c, out, o) if is_bool else _put_number(b, p, q, out, o)
    if kind == INTEGER:
        if is_text:
            return put_bytes(b, p + 1, q - 1, out, o)
        if is_bool:
            return _put_bool(c, out, o) if sign & IS_TINYINT else LEFT
        return _put_integer(b, p, q, sign & IS_UNSIGNED, out, o)
    if kind == BITS:
        return _put_bits(b, p + 1, q - 1, out, o) if is_text else _put_bool(c, out, o) if is_bool else LEFT
    if kind == DECIMAL:
        if is_text:
            return put_bytes(b, p + 1, q - 1, out, o)
        return LEFT if is_bool else put_fixed(b, p, q, _is_integer(b, p, q), digits, out, o)
    if kind == BINARY:
        return put_base64(b, p + 1, q - 1, True, out, o, False) if is_text else LEFT
    if kind == ZONED:
        return put_zoned(b, p + 1, q - 1, out, o) if is_text else LEFT
    if kind >= TEXT_FLOAT:
        return put_shortest(b, p + 1, q - 1, kind == TEXT_FLOAT, out, o) if is_text else LEFT
    if is_text or is_bool or (q - p == 2 and c == 0x2D and b[p + 1] == 0x30):  # -0: for Python an integer
        return LEFT
    if kind == DOUBLE and _is_integer(b, p, q):
        return put_float(b, p, q, out, o)
    if kind in (FLOAT, DOUBLE):
        return put_shortest(b, p, q, kind == FLOAT, out, o)
    number, fits = int64_of(b, p, q)
    return put_counted(number, kind, digits, out, o) if fits else LEFT


@part
def put_counted(number: int, kind: int, digits: int, out: np.ndarray, o: int) -> int:
    """Append the date or time that a number of days, milliseconds or microseconds is."""
    if kind == DATE:
        return _put_date(number, out, o)
    if kind == TIME:
        return _put_time(number, digits, out, o)
    if kind == MILLIS:
        return _put_datetime(number * 1_000, digits, out, o) if -_MILLIS_MAX < number < _MILLIS_MAX else LEFT
    return _put_datetime(number, digits, out, o)


@part
def _put_bool(c: int, out: np.ndarray, o: int) -> int:
    out[o] = 0x31 if c == 0x74 else 0x30
    return o + 1


@part
def _is_integer(b: np.ndarray, p: int, q: int) -> bool:
    """Whether a number is an integer that 64 bits hold, which Python reads as one."""
    start = p + (b[p] == 0x2D)
    if digits_end(b, start, q) < q or q - start > 20:
        return False
    return q - start < 19 or fits_64_bits(b, start, q, start > p)


@part
def _put_number(b: np.ndarray, p: int, q: int, out: np.ndarray, o: int) -> int:
    """An integer of 64 bits as it is, another number as a double."""
    if not _is_integer(b, p, q):
        return put_shortest(b, p, q, False, out, o)
    return LEFT if b[p] == 0x2D and b[p + 1] == 0x30 else put_bytes(b, p, q, out, o)


@part
def _put_integer(b: np.ndarray, p: int, q: int, unsigned: int, out: np.ndarray, o: int) -> int:
    """An integer; one below zero of an unsigned type is written with its sign bit for 2^63."""
    if not _is_integer(b, p, q):
        return LEFT
    if b[p] != 0x2D or not unsigned:
        return _put_number(b, p, q, out, o)
    number, fits = int64_of(b, p, q)
    return put_unsigned(np.uint64(number), out, o) if fits and number < 0 else LEFT


@part
def put_unsigned(v: np.uint64, out: np.ndarray, o: int) -> int:
    """Append a number of 64 bits without a sign."""
    ten = np.uint64(10)
    rest = v // ten
    if rest > np.uint64(0):
        o = put_int(int(np.int64(rest)), out, o)
    out[o] = 0x30 + np.int64(v - rest * ten)
    return o + 1


_BITS_BYTES = 8


@part
def _put_bits(b: np.ndarray, p: int, q: int, out: np.ndarray, o: int) -> int:
    """Bytes in base64, the lowest first, as a number."""
    end = put_base64_bytes(b, p, q, out, o) if q > p else o
    if end < 0 or end - o > _BITS_BYTES:
        return LEFT
    v = np.uint64(0)
    for i in range(end - 1, o - 1, -1):
        v = v << np.uint64(8) | np.uint64(out[i])
    return put_unsigned(v, out, o)


@part
def put_zoned(b: np.ndarray, p: int, q: int, out: np.ndarray, o: int) -> int:
    """An ISO time in UTC as MySQL prints a timestamp, in UTC; another text stays as it is."""
    for i in range(p, q):
        if b[i] >= 0x80:
            return LEFT
    n = q - p
    is_iso = n >= _ZONED_LENGTH and b[p + 10] == 0x54
    end = put_bytes(b, p, q, out, o)
    if is_iso and n > _ZONED_LENGTH and b[q - 1] == 0x5A:
        out[o + 10] = 0x20
        return end - 1
    if is_iso and n == _ZONED_LENGTH:
        out[o + 10] = 0x20
    return end


@part
def _put_padded(v: int, digits: int, out: np.ndarray, o: int) -> int:
    for i in range(digits - 1, -1, -1):
        out[o + i] = 0x30 + v % 10
        v //= 10
    return o + digits


@part
def _put_date(day: int, out: np.ndarray, o: int) -> int:
    """A day of the years 1 to 9999, by the days since 1970-01-01 (Hinnant, `civil_from_days`)."""
    if day < _DAY_FIRST or day > _DAY_LAST:
        return LEFT
    z = day + 719_468
    era = z // 146_097
    of_era = z - era * 146_097
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    o = _put_padded(year + era * 400 + (month <= 2), 4, out, o)
    out[o] = 0x2D
    o = _put_padded(month, 2, out, o + 1)
    out[o] = 0x2D
    return _put_padded(of_year - (153 * shifted + 2) // 5 + 1, 2, out, o + 1)


@part
def _put_clock(us: int, digits: int, out: np.ndarray, o: int) -> int:
    """Hours, minutes and seconds, and as many digits of a fraction."""
    seconds = us // _SECOND_US
    hours = seconds // 3_600
    o = _put_padded(hours, 2 if hours < 100 else 3, out, o)
    out[o] = 0x3A
    o = _put_padded(seconds // 60 % 60, 2, out, o + 1)
    out[o] = 0x3A
    o = _put_padded(seconds % 60, 2, out, o + 1)
    fraction, shown = us % _SECOND_US, digits
    if shown < 0:
        shown, rest = _FRACTION_DIGITS if fraction else 0, fraction
        while shown > 0 and rest % 10 == 0:
            shown, rest = shown - 1, rest // 10
    if shown == 0:
        return o
    out[o] = 0x2E
    end = o + 1 + min(shown, _FRACTION_DIGITS)
    _put_padded(fraction, _FRACTION_DIGITS, out, o + 1)
    return end


@part
def _put_time(us: int, digits: int, out: np.ndarray, o: int) -> int:
    if us <= -1_000 * 3_600 * _SECOND_US or us >= 1_000 * 3_600 * _SECOND_US:
        return LEFT
    if us < 0:
        out[o] = 0x2D
        o, us = o + 1, -us
    return _put_clock(us, digits, out, o)


@part
def _put_datetime(us: int, digits: int, out: np.ndarray, o: int) -> int:
    day = us // _DAY_US
    end = _put_date(day, out, o)
    if end < 0:
        return LEFT
    out[end] = 0x20
    return _put_clock(us - day * _DAY_US, digits, out, end + 1)
