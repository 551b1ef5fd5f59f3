"""The forms of the events contract, for values that formats carry in other forms: the text that MySQL would print."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np

from ticdc_lab.events.ddl import literal

_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_SECOND = 1_000_000
_BETWEEN_LABELS = re.compile(r"(?<!\\),")


def binary_text(value: bytes) -> str:
    """Binary bytes as ``0x`` and lower-case hex."""
    return "0x" + value.hex()


def double_text(value: float) -> str:
    """A double with the fewest digits that identify it, in exponent form below 1e-15 and from 1e15 on."""
    return number_text(repr(value))


def float_text(value: float) -> str:
    """The same for a 32-bit float."""
    with np.errstate(over="ignore"):
        return number_text(str(np.float32(value)))


SINGLE_SURE_DIGITS, SINGLE_SURE_TENS = 6, 37
"""A FLOAT keeps so many digits of any number from 1e-37 to below 1e38."""


def single_text(text: str) -> str:
    """The digits of a FLOAT in MySQL's form, of a number in that form: 61.2 where a double's digits were written.

    One that no FLOAT is (too large, too small) stays as it is.
    """
    digits, _, exponent = text.partition("e")
    plain = digits.lstrip("-0.").replace(".", "")
    if len(plain) <= SINGLE_SURE_DIGITS and not exponent:
        return text
    with np.errstate(over="ignore", under="ignore"):
        single = np.float32(float(text))
    return text if single == 0 or np.isinf(single) else number_text(str(single))


def decimal_text(value: float, scale: int | None = None) -> str:
    """A decimal that was written as a number: its digits without an exponent, as far as they were kept.

    ``scale`` are the digits behind the point; None: as many as are needed.
    """
    digits = Decimal(repr(value))
    return f"{digits.normalize():f}" if scale is None else f"{digits:.{scale}f}"


def number_text(text: str) -> str:
    """A number's digits in the form that MySQL gives a double."""
    number = Decimal(text)
    if not number.is_finite():
        return text
    if not number:
        return "-0" if number.is_signed() else "0"
    sign, digits, _ = number.as_tuple()
    shown = "".join(map(str, digits)).rstrip("0")
    exponent = number.adjusted()
    if -15 <= exponent < 15:
        return f"{number.normalize():f}"
    return ("-" if sign else "") + shown[0] + (f".{shown[1:]}" if shown[1:] else "") + f"e{exponent}"


def date_text(days: int) -> str:
    """Days since 1970-01-01 as a date; a day outside the years 1 to 9999 stays a number."""
    try:
        return date.fromordinal(_EPOCH_DAY + days).isoformat()
    except (ValueError, OverflowError):
        return str(days)


def datetime_text(micros: int, digits: int | None = None) -> str:
    """Microseconds since 1970 as a datetime; one outside the years 1 to 9999 stays a number.

    ``digits``: of the fraction; None: as many as needed.
    """
    try:
        at = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return str(micros)
    return at.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0") + _fraction(at.microsecond, digits)


def time_text(micros: int, digits: int | None = None) -> str:
    """Microseconds as a MySQL time, which may be negative or longer than a day."""
    seconds, part = divmod(abs(micros), _SECOND)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{'-' if micros < 0 else ''}{hours:02d}:{minutes:02d}:{seconds:02d}{_fraction(part, digits)}"


def _fraction(micros: int, digits: int | None) -> str:
    text = f"{micros:06d}"
    shown = text.rstrip("0") if digits is None else text[:digits]
    return f".{shown}" if shown else ""


def iso_text(text: str) -> str:
    """A zoned ISO time in UTC as MySQL prints a timestamp, in UTC; another form stays as it is."""
    if len(text) > 19 and text[10] == "T" and text[-1] == "Z":
        return f"{text[:10]} {text[11:-1]}"
    return f"{text[:10]} {text[11:19]}" if len(text) == 19 and text[10] == "T" else text


def labelled(base: str, labels: Iterable[str]) -> str:
    """The type text of an ENUM or SET with these labels."""
    return f"{base}({','.join(map(literal, labels))})"


def allowed_labels(text: str) -> list[str]:
    """Labels of the parameter ``allowed`` of avro and debezium, where a backslash marks a comma inside one."""
    return [label.replace("\\,", ",") for label in _BETWEEN_LABELS.split(text)]


def unsigned(value: int, mysql_type: str) -> int:
    """A 64-bit number that was written as signed, with its sign bit read by the type."""
    return value + (1 << 64) if value < 0 and mysql_type.endswith("unsigned") else value
