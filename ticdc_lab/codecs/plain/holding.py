"""Whether a text is a value that fits a MySQL type, as the table in :mod:`ticdc_lab.events.mysql_types` says."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from ticdc_lab.codecs.plain.numbers import holds_integer, is_finite
from ticdc_lab.events.mysql_types import BITS, DATE, DATETIME, DECIMAL, FINITE, HOURS_MAX, INTEGER_BYTES_MAX, TIME

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
