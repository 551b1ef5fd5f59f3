"""What a column of each MySQL type can hold, as the text of the events contract: the one table that codecs ask.

A value that its type cannot hold puts its message into quarantine (``bad-value``); nothing is made of it. The kernels
keep the same rule for integers and floats, which are all that open-protocol and canal-json have in a form of their own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from ticdc_lab.codecs.event import Cell, Malformed
from ticdc_lab.codecs.plain.numbers import holds_integer
from ticdc_lab.mysql_types import INTEGER_BYTES, base_of

Holds = Callable[[str], object]

_DAY, _TIME = r"[0-9]{4,5}-[0-9]{2}-[0-9]{2}", r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
_NUMBER_OF_UNITS = r"|-?[0-9]{1,19}"
"""Days or microseconds outside the years 1 to 9999 stay the number that they were written as."""

_DECIMAL = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?")
_FLOAT = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?")
_DATE = re.compile(_DAY + _NUMBER_OF_UNITS)
_DURATION = re.compile(r"-?[0-9]{2,}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?")
_DATETIME = re.compile(rf"{_DAY}(?:[ T]{_TIME}(?:Z|[+-][0-9:]+)?)?{_NUMBER_OF_UNITS}")


def _is_double(text: str) -> bool:
    return _FLOAT.fullmatch(text) is not None and math.isfinite(float(text))


_HOLDS: dict[str, Holds] = {
    **{base: partial(holds_integer, n_bytes=n) for base, n in INTEGER_BYTES.items()},
    "float": _is_double,
    "double": _is_double,
    "decimal": _DECIMAL.fullmatch,
    "numeric": _DECIMAL.fullmatch,
    "bit": lambda text: text.isascii() and text.isdigit() and int(text[:21]) < 1 << 64,
    "date": _DATE.fullmatch,
    "time": _DURATION.fullmatch,
    "datetime": _DATETIME.fullmatch,
    "timestamp": _DATETIME.fullmatch,
}
"""By the base of a type; one that is not here holds any text or bytes, or what is none of a codec's to judge (JSON)."""


@lru_cache(4_096)
def _of(mysql_type: str) -> Holds | None:
    return _HOLDS.get(base_of(mysql_type))


def require_values(image: Sequence[Cell]) -> None:
    """Raise :class:`Malformed` where a value of an image is none that its type can hold."""
    for name, mysql_type, text, *_ in image:
        if mysql_type is None or text is None:
            continue
        holds = _of(mysql_type)
        if holds is not None and not holds(text):
            raise Malformed("bad-value", f"column {name!r} ({mysql_type}): no such value: {text[:60]!r}")
