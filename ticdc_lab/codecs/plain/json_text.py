"""JSON text in plain Python: strict, with the place of each fault; its numbers, and what types hold.

Every function takes the bytes ``b`` and a position ``p`` and returns the position after what it read; it raises
:class:`JsonFault` where the text is wrong. The rules and the places are as in :mod:`ticdc_lab.codecs.kernel.scan`.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from functools import partial

import orjson

from ticdc_lab.codecs.event import Malformed
from ticdc_lab.codecs.kernel.faults import (
    BAD_BASE64,
    BAD_ESCAPE,
    BAD_UTF8,
    FAULTS,
    NOT_JSON,
    NOT_LATIN1,
    NOT_OF_TYPE,
    OUT_OF_RANGE,
    TOO_DEEP,
)
from ticdc_lab.events.mysql_types import (
    BITS,
    DATE,
    DATETIME,
    DECIMAL,
    FINITE,
    HOURS_MAX,
    INFINITE,
    INTEGER_BYTES_MAX,
    NO_MYSQL_TYPE,
    SINGLE,
    TIME,
)

DEPTH_MAX = 128
OBJECT_END, LIST_END = 0x7D, 0x5D
QUOTE, OBJECT, LIST, NULL, TRUE, FALSE, MINUS = b'"{[ntf-'

_SPACE = rb"[ \n\r\t]*+"
_PLAIN = rb'[^"\\\x00-\x1f\x80-\xff]*+'
_UTF8 = (
    rb"[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
_ESCAPE = (
    rb'\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_NUMBER = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++|(?!\.))(?:[eE][+-]?[0-9]++|(?![eE]))"
_SCALAR = rb'(?:"' + _PLAIN + rb'"|' + _NUMBER + rb"|true|false|null)"
_MEMBER = rb'"' + _PLAIN + rb'"' + _SPACE + rb":" + _SPACE + _SCALAR + _SPACE


def _each(group: bytes) -> bytes:
    """Repeat a group and give nothing back; before Python 3.11.5 ``*+`` continues past what differs (gh-106052)."""
    return rb"(?>(?:" + group + rb")*)"


def _container(begin: bytes, item: bytes, end: bytes) -> bytes:
    return begin + _SPACE + rb"(?:" + item + _each(rb"," + _SPACE + item) + rb")?" + end


_after_space = re.compile(_SPACE).match
_inside = re.compile(_each(rb"[^\"\\\x00-\x1f\x80-\xff]++|" + _UTF8 + rb"|" + _ESCAPE)).match
_plain_text = re.compile(rb'"(' + _PLAIN + rb')"').match
_plain_name = re.compile(rb'"(' + _PLAIN + rb')"' + _SPACE + rb":" + _SPACE).match
_number = re.compile(_NUMBER).match
_literal = re.compile(rb"true|false|null").match
_easy = re.compile(
    rb"|".join((_SCALAR, _container(rb"\{", _MEMBER, rb"\}"), _container(rb"\[", _SCALAR + _SPACE, rb"\]")))
).match
_next_member = re.compile(_SPACE + rb"(?:(,)" + _SPACE + rb"|\})").match
_next_element = re.compile(_SPACE + rb"(?:(,)" + _SPACE + rb"|\])").match
_INTEGER = re.compile(rb"-?[0-9]{1,19}")


class JsonFault(Exception):
    """What is wrong (a number of :mod:`ticdc_lab.codecs.kernel.faults`), and at which byte."""

    def __init__(self, code: int, at: int) -> None:
        super().__init__(code, at)
        self.code = code
        self.at = at


def after_space(b: bytes, p: int) -> int:
    """Position of the next byte that is no JSON white space."""
    return _after_space(b, p).end()  # type: ignore[union-attr]  # it matches nothing, too


def first(b: bytes, p: int) -> int:
    """The byte at a position, or -1 at the end."""
    return b[p] if p < len(b) else -1


def read_text(b: bytes, p: int) -> tuple[str, int]:
    """The string at ``p``, and the position after it."""
    if found := _plain_text(b, p):
        return found[1].decode("ascii"), found.end()
    if first(b, p) != QUOTE:
        raise JsonFault(NOT_JSON, p)
    q = _inside(b, p + 1).end()  # type: ignore[union-attr]
    if first(b, q) != QUOTE:
        if q < len(b) and b[q] >= 0x80:
            raise JsonFault(BAD_UTF8, q)
        raise JsonFault(BAD_ESCAPE if first(b, q) == 0x5C and q + 1 < len(b) else NOT_JSON, q)
    raw = b[p + 1 : q]
    return (orjson.loads(b[p : q + 1]) if b"\\" in raw else raw.decode()), q + 1


def after_name(b: bytes, p: int) -> int:
    """Position of a member's value, ``p`` being just after its name."""
    p = after_space(b, p)
    if first(b, p) != 0x3A:
        raise JsonFault(NOT_JSON, p)
    return after_space(b, p + 1)


def read_name(b: bytes, p: int) -> tuple[str, int]:
    """The name of the member at ``p``, and the position of its value."""
    if found := _plain_name(b, p):
        return found[1].decode("ascii"), found.end()
    name, p = read_text(b, p)
    return name, after_name(b, p)


def first_member(b: bytes, p: int, closer: int) -> tuple[int, bool]:
    """Step into the object or list whose opening byte is at ``p``: the position, and whether anything is in it."""
    p = after_space(b, p + 1)
    if p >= len(b):
        raise JsonFault(NOT_JSON, p)
    return (p + 1, False) if b[p] == closer else (p, True)


def next_member(b: bytes, p: int, closer: int) -> tuple[int, bool]:
    """Step to what follows a value: the position of the next one, or that after the closing byte and False."""
    found = (_next_member if closer == OBJECT_END else _next_element)(b, p)
    if found is None:
        raise JsonFault(NOT_JSON, after_space(b, p))
    return found.end(), found[1] is not None


def number_end(b: bytes, p: int) -> int:
    """Position after the number at ``p``."""
    if found := _number(b, p):
        return found.end()
    raise JsonFault(NOT_JSON, p)


def literal_end(b: bytes, p: int) -> int:
    """Position after ``true``, ``false`` or ``null`` at ``p``."""
    if found := _literal(b, p):
        return found.end()
    raise JsonFault(NOT_JSON, p)


def _scalar_end(b: bytes, p: int) -> int:
    c = first(b, p)
    if c == QUOTE:
        return read_text(b, p)[1]
    return number_end(b, p) if c == MINUS or 0x30 <= c <= 0x39 else literal_end(b, p)


def value_end(b: bytes, p: int) -> int:
    """Position after any value at ``p``, checked all the way."""
    found = _easy(b, p)
    return found.end() if found else _nested_end(b, p)


def _nested_end(b: bytes, p: int) -> int:
    closers: list[int] = []
    while True:
        p = after_space(b, p)
        opener = first(b, p)
        if opener in (OBJECT, LIST):
            if len(closers) == DEPTH_MAX:
                raise JsonFault(TOO_DEEP, p)
            p = after_space(b, p + 1)
            if first(b, p) != opener + 2:
                closers.append(opener + 2)
                p = _name_end(b, p) if opener == OBJECT else p
                continue
            p += 1
        else:
            p = _scalar_end(b, p)
        p, more = _out_of(b, p, closers)
        if not more:
            return p


def _out_of(b: bytes, p: int, closers: list[int]) -> tuple[int, bool]:
    """Leave all that ends at ``p``: the position of the next value, or of the end and False."""
    while closers:
        p, more = next_member(b, p, closers[-1])
        if more:
            return (_name_end(b, p) if closers[-1] == OBJECT_END else p), True
        closers.pop()
    return p, False


def _name_end(b: bytes, p: int) -> int:
    return read_name(b, p)[1]


def int64_of(b: bytes, p: int, q: int) -> int | None:
    """The integer between the positions, if it is one of 64 bits with a sign."""
    if not _INTEGER.fullmatch(b, p, q):
        return None
    number = int(b[p:q])
    return number if -(1 << 63) <= number < 1 << 63 else None


def at_place(part: str, fault: JsonFault) -> Malformed:
    """The fault in ``part`` (key or value) of a message, in words."""
    error_class, sentence = FAULTS[fault.code]
    return Malformed(error_class, f"{part}, byte {fault.at}: {sentence}", byte=(part, fault.at))


_FLOAT = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?)([0-9]+))?")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_EXPONENT_DIGITS_MAX = 12
_EXPONENT_MAX = 400
_GO_SIMPLE = dict(zip(b"abfnrtv\\\"'", b"\a\b\f\n\r\t\v\\\"'", strict=True))
_GO_ESCAPE = re.compile(rb"\\(?:([abfnrtv\\\"'])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|)")


def _parts(number: str) -> tuple[str, str, int] | None:
    """Sign and digits of a decimal number, from the first that is no zero, and its power of ten; None for no number."""
    found = _FLOAT.fullmatch(number)
    if found is None:
        return None
    sign, whole, part, exponent_sign, exponent = found.groups(default="")
    digits = (whole + part).lstrip("0")
    exponent = exponent.lstrip("0") or "0"
    shift = int(exponent) if len(exponent) <= _EXPONENT_DIGITS_MAX else 1 << 40
    return sign, digits, len(digits) - 1 - len(part) + (-shift if exponent_sign == "-" else shift)


def is_finite(text: str) -> bool:
    """Whether text is a decimal number, leading zeros or not, that a DOUBLE can hold."""
    parts = _parts(text)
    return parts is not None and _is_below_infinity(*parts[1:])


def _is_below_infinity(digits: str, tens: int) -> bool:
    return not digits or tens < len(INFINITE) - 1 or (tens == len(INFINITE) - 1 and digits < INFINITE)


def float_text(number: str, at: int) -> str:
    """A decimal number as MySQL prints a double: exponent form below 1e-15 and from 1e15 on.

    Works on the digits, so that nothing is rounded.
    """
    parts = _parts(number)
    if parts is None:
        raise JsonFault(NOT_OF_TYPE, at)
    sign, digits, tens = parts
    if not digits:
        return sign + "0"
    if tens < -_EXPONENT_MAX or not _is_below_infinity(digits, tens):
        raise JsonFault(OUT_OF_RANGE, at)
    digits = digits.rstrip("0")
    if not -15 <= tens < 15:
        return f"{sign}{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{tens}"
    if tens < 0:
        return f"{sign}0.{'0' * (-tens - 1)}{digits}"
    digits = digits.ljust(tens + 1, "0")
    return f"{sign}{digits[: tens + 1]}{'.' if digits[tens + 1 :] else ''}{digits[tens + 1 :]}"


def holds_integer(text: str, n_bytes: int) -> bool:
    """Whether text is an integer that a type of so many bytes can hold, signed or not."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= (20 if n_bytes == 8 else 18)):
        return False
    return -(1 << 8 * n_bytes - 1) <= int(text) < 1 << 8 * n_bytes


def integer_text(number: str, at: int) -> str:
    """A JSON number that must be an integer between -2^63 and 2^64 - 1."""
    digits = number.removeprefix("-")
    if not digits.isdigit() or len(digits) > 20 or not -(1 << 63) <= int(number) < 1 << 64:
        raise JsonFault(OUT_OF_RANGE, at)
    return "0" if number == "-0" else number


def latin1_hex(text: str, at: int) -> str:
    """Text with one byte for each character, as ``0x..`` (canal-json's binary columns)."""
    try:
        return "0x" + text.encode("latin-1").hex()
    except UnicodeEncodeError:
        raise JsonFault(NOT_LATIN1, at) from None


def go_quoted_hex(text: str, at: int) -> str:
    """What Go's ``strconv.Quote`` wrote, without its quotes, as ``0x..`` (open-protocol's binary columns)."""

    def unescaped(found: re.Match[bytes]) -> bytes:
        simple, byte, *rune = found.groups()
        if simple:
            return bytes([_GO_SIMPLE[simple[0]]])
        if byte:
            return bytes([int(byte, 16)])
        digits = rune[0] or rune[1]
        if digits is None or int(digits, 16) > 0x10FFFF or 0xD800 <= int(digits, 16) < 0xE000:
            raise JsonFault(BAD_ESCAPE, at)
        return chr(int(digits, 16)).encode()

    return "0x" + _GO_ESCAPE.sub(unescaped, text.encode()).hex()


def base64_text(text: str, binary: bool, at: int) -> str:
    """The content of base64: as ``0x..``, or as text that must be UTF-8."""
    if len(text.encode()) % 4 or not _BASE64.fullmatch(text):
        raise JsonFault(BAD_BASE64, at)
    raw = b64decode(text)
    if binary:
        return "0x" + raw.hex()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise JsonFault(BAD_UTF8, at) from None


_DAY = r"[0-9]{4,5}-(?:0[0-9]|1[0-2])-(?:[0-2][0-9]|3[01])"
_MINUTES = r":[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
_HOURS = r"(?:[01][0-9]|2[0-3])"
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_DATE = re.compile(_DAY)
_TIME = re.compile(rf"-?([0-9]{{2,3}}){_MINUTES}")
_DATETIME = re.compile(rf"{_DAY}(?:[ T]{_HOURS}{_MINUTES}(?:Z|[+-][0-9:]+)?)?")
_COUNT = re.compile(r"-?[0-9]{1,19}")


def holds(kind: int, text: str) -> bool:
    """Whether text fits the types of a kind (``MySQLType.holds``)."""
    return kind not in _HOLDS or _HOLDS[kind](text)


def is_count(kind: int, text: str) -> bool:
    """Whether text is a number of days or microseconds: what debezium has of dates outside the years 1 to 9999."""
    return kind in (DATE, DATETIME) and _COUNT.fullmatch(text) is not None


def _is_time(text: str) -> bool:
    found = _TIME.fullmatch(text)
    return found is not None and int(found[1]) <= HOURS_MAX


_HOLDS: dict[int, Callable[[str], bool]] = {
    **{n: partial(holds_integer, n_bytes=n) for n in range(1, INTEGER_BYTES_MAX + 1)},
    DECIMAL: lambda text: _DECIMAL.fullmatch(text) is not None,
    FINITE: is_finite,
    SINGLE: is_finite,
    NO_MYSQL_TYPE: lambda text: False,
    BITS: lambda text: not text.startswith("-") and holds_integer(text, 8),
    DATE: lambda text: _DATE.fullmatch(text) is not None,
    TIME: _is_time,
    DATETIME: lambda text: _DATETIME.fullmatch(text) is not None,
}

PLAINLY_HELD: dict[int, str] = {
    **{n: f"-?[0-9]{{1,{digits}}}" for n, digits in {1: 2, 2: 4, 3: 6, 4: 9, 5: 11, 6: 14, 7: 16, 8: 18}.items()},
    DECIMAL: _DECIMAL.pattern,
    FINITE: r"-?[0-9]{1,15}(?:\.[0-9]{1,17})?",
    SINGLE: r"-?[0-9]{1,15}(?:\.[0-9]{1,17})?",
    BITS: r"[0-9]{1,18}",
    DATE: _DAY,
    TIME: f"-?[0-9]{{2}}{_MINUTES}",
    DATETIME: _DATETIME.pattern,
}
"""What any value of a kind allows, as a regular expression of the whole text; more may be allowed."""
