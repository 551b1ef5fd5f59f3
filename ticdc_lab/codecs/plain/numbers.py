"""Numbers and bytes in the forms that formats write, as the text that MySQL would print."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from functools import partial

from ticdc_lab.codecs.kernel.faults import BAD_BASE64, BAD_ESCAPE, BAD_UTF8, NOT_LATIN1, NOT_OF_TYPE, OUT_OF_RANGE
from ticdc_lab.codecs.plain.json_text import JsonFault
from ticdc_lab.events.mysql_types import (
    BITS,
    DATE,
    DATETIME,
    DECIMAL,
    FINITE,
    HOURS_MAX,
    INFINITE,
    INTEGER_BYTES_MAX,
    TIME,
)

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
    """Text each character of which stands for one byte, as ``0x..`` (canal-json's binary columns)."""
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
    """What base64 stands for: as ``0x..``, or as text that must be UTF-8."""
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
    BITS: lambda text: not text.startswith("-") and holds_integer(text, 8),
    DATE: lambda text: _DATE.fullmatch(text) is not None,
    TIME: _is_time,
    DATETIME: lambda text: _DATETIME.fullmatch(text) is not None,
}
