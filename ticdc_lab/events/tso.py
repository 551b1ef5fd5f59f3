"""Timestamp oracle arithmetic: ``ts = physical_ms << 18 | logical`` (PD's TSO).

Figures and the command line need it too, so Spark is imported by the functions on columns alone.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ticdc_lab.errors import ContractError

if TYPE_CHECKING:
    from pyspark.sql import Column

LOGICAL_BITS = 18
LOGICAL_MASK = (1 << LOGICAL_BITS) - 1


def compose(physical_ms: int, logical: int = 0) -> int:
    """Build a TSO from milliseconds since 1970 and a logical counter.

    Examples
    --------
    >>> compose(1_795_258_305_000, 7)
    470616193105920007
    >>> physical_ms(compose(1_795_258_305_000, 7)), logical(compose(1_795_258_305_000, 7))
    (1795258305000, 7)
    """
    return physical_ms << LOGICAL_BITS | logical


def physical_ms(ts: int) -> int:
    """Milliseconds since 1970 of a TSO."""
    return ts >> LOGICAL_BITS


def logical(ts: int) -> int:
    """Logical counter of a TSO."""
    return ts & LOGICAL_MASK


def to_datetime(ts: int) -> dt.datetime:
    """UTC time of a TSO's physical part.

    Examples
    --------
    >>> to_datetime(470603993791332352).isoformat()
    '2026-11-20T21:56:08.308000+00:00'
    """
    return dt.datetime.fromtimestamp(physical_ms(ts) / 1000, tz=dt.UTC)


TIME_ZONE = "TICDC_LAB_TIME_ZONE"
"""Names the zone of every clock that people read, such as ``Asia/Shanghai``; UTC where it is not set."""


def zone() -> str:
    """The zone of the clock. Raises ContractError: there is no such zone."""
    name = os.environ.get(TIME_ZONE) or "UTC"
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        hint = f"Set it to a name such as Asia/Shanghai: export {TIME_ZONE}=Asia/Shanghai"
        raise ContractError(f"{TIME_ZONE} is {name!r}, which is no time zone that is known here.", hint=hint) from error
    return name


def clock_words(ts: int) -> str:
    """Time of a TSO to the millisecond in the zone of :func:`zone`, as people read it.

    Examples
    --------
    >>> clock_words(470603993791332352)
    '2026-11-20 21:56:08.308 UTC'
    """
    name = zone()
    return f"{to_datetime(ts).astimezone(ZoneInfo(name)):%Y-%m-%d %H:%M:%S.%f}"[:-3] + f" {name}"


def tso_words(ts: int) -> str:
    """A TSO with its time beside it.

    Examples
    --------
    >>> tso_words(470603993791332352)
    '470603993791332352 (2026-11-20 21:56:08.308 UTC)'
    """
    return f"{ts} ({clock_words(ts)})"


_BEFORE = ("_ts", " at", " from", " to", " and", ",", " watermark")
_STATED = re.compile(rf"(?:{'|'.join(rf'(?<={word} )' for word in _BEFORE)})(\d{{17,19}})(?!\w|\.\d)(?! \()")


def with_clock(text: str) -> str:
    """A sentence, with its time behind each TSO that has none.

    Examples
    --------
    >>> with_clock("a change below resolved_ts 470603993791332352 follows it")
    'a change below resolved_ts 470603993791332352 (2026-11-20 21:56:08.308 UTC) follows it'
    >>> with_clock("its change (commit_ts 470603993791332352, offset 7) of id=470603993791332352")
    'its change (commit_ts 470603993791332352, 2026-11-20 21:56:08.308 UTC, offset 7) of id=470603993791332352'
    """

    def timed(found: re.Match[str]) -> str:
        words, before = clock_words(int(found[1])), text[: found.start()]
        if words in text:
            return found[1]
        inside = before.count("(") > before.count(")")
        return f"{found[1]}, {words}" if inside else f"{found[1]} ({words})"

    return _STATED.sub(timed, text)


def physical_ms_col(ts: Column | str) -> Column:
    """Milliseconds since 1970 (bigint) of a TSO column."""
    from pyspark.sql import functions as F

    return F.shiftright(ts, LOGICAL_BITS)


def lag_s_col(ts: Column | str, *, now_ts: Column | int) -> Column:
    """Seconds (double) by which the physical part of ``ts`` is behind ``now_ts``'s."""
    from pyspark.sql import functions as F

    now = F.lit(now_ts) if isinstance(now_ts, int) else now_ts
    return (physical_ms_col(now) - physical_ms_col(ts)) / F.lit(1000.0)


EXACT = 2**53
"""Up to here a double, as jq and JavaScript read numbers, is exact."""


def with_texts(value: Any) -> Any:
    """A value for JSON whose objects have ``NAME_text`` beside each ``NAME`` that is, or lists, a larger integer.

    Examples
    --------
    >>> with_texts({"commit_ts": 470603993791332352, "offset": 5})
    {'commit_ts': 470603993791332352, 'commit_ts_text': '470603993791332352', 'offset': 5}
    """
    if isinstance(value, list | tuple):
        return [with_texts(v) for v in value]
    if not isinstance(value, dict):
        return value
    out: dict[str, Any] = {}
    for name, v in value.items():
        out[name] = with_texts(v)
        listed = v if isinstance(v, list | tuple) else [v]
        if any(isinstance(n, int) and abs(n) > EXACT for n in listed):
            out[f"{name}_text"] = [str(n) for n in v] if isinstance(v, list | tuple) else str(v)
    return out
