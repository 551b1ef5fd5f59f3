"""Times of scenario files, ``200ms`` or ``1m30s``, as integer microseconds and back."""

from __future__ import annotations

import re
from fractions import Fraction

UNITS_US = {"us": 1, "µs": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
_PART = r"(\d+(?:\.\d+)?)(us|µs|ms|s|m|h)"
_WHOLE = re.compile(f"(?:{_PART})+")


def duration_us(text: str) -> int | None:
    """Give the microseconds of a duration; None where the text is none, or finer than a microsecond.

    Examples
    --------
    >>> duration_us("1.5s"), duration_us("1m30s"), duration_us("0"), duration_us("5")
    (1500000, 90000000, 0, None)
    """
    if text == "0":
        return 0
    if not _WHOLE.fullmatch(text):
        return None
    total = sum((Fraction(n) * UNITS_US[unit] for n, unit in re.findall(_PART, text)), Fraction())
    return int(total) if total.denominator == 1 else None


def shown(us: int) -> str:
    """Give a moment or a duration as people read it, exact.

    Examples
    --------
    >>> shown(1_500_000), shown(200_000), shown(0)
    ('1.5s', '200ms', '0s')
    """
    if us == 0:
        return "0s"
    sign, size = ("-" if us < 0 else ""), abs(us)
    unit = "s" if size >= 1_000_000 else "ms" if size >= 1_000 else "us"
    whole, part = divmod(size, UNITS_US[unit])
    digits = str(part).rjust(len(str(UNITS_US[unit])) - 1, "0").rstrip("0") if part else ""
    return f"{sign}{whole}{'.' + digits if digits else ''}{unit}"
