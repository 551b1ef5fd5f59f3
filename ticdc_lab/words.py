"""The spelling of numbers, shares and lists in sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence


def count(n: int, noun: str, plural: str | None = None) -> str:
    """``1 row``, ``1,234 rows``."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def some_of(names: Sequence[str], *, most: int = 8, between: str = ", ") -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def percent(part: float, whole: float = 1) -> str:
    """``82 %``; never 0 % or 100 % where it is not exactly that."""
    if whole == 0 or part == 0:
        return "0 %"
    share = 100 * part / whole
    if share < 1 or 99 < share < 100:
        return "under 1 %" if share < 1 else "over 99 %"
    return f"{share:.0f} %"


def lane_of(of_storage: bool) -> str:
    """What messages lie in: a partition of a topic, or a stream of a storage sink's files."""
    return "stream" if of_storage else "partition"


def in_lanes(text: str, lane: str) -> str:
    """A sentence about partitions in the words of :func:`lane_of`; names and options that contain the word stay."""
    return text if lane == "partition" else _PARTITION.sub(lambda m: ("S" if m[1] == "P" else "s") + "tream", text)


_PARTITION = re.compile(r"(?<![\w`-])([Pp])artition(?=s?(?![\w`-]))")
