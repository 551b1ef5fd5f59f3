"""Timestamp oracle arithmetic: ``ts = physical_ms << 18 | logical`` (`design/protocols.md`; PD's TSO)."""

from __future__ import annotations

import datetime as dt

from pyspark.sql import Column
from pyspark.sql import functions as F

LOGICAL_BITS = 18
LOGICAL_MASK = (1 << LOGICAL_BITS) - 1


def compose(physical_ms: int, logical: int = 0) -> int:
    """Build a TSO from milliseconds since 1970 and a logical counter."""
    return physical_ms << LOGICAL_BITS | logical


def physical_ms(ts: int) -> int:
    """Milliseconds since 1970 of a TSO."""
    return ts >> LOGICAL_BITS


def logical(ts: int) -> int:
    """Logical counter of a TSO."""
    return ts & LOGICAL_MASK


def to_datetime(ts: int) -> dt.datetime:
    """UTC time of a TSO's physical part."""
    return dt.datetime.fromtimestamp(physical_ms(ts) / 1000, tz=dt.UTC)


def physical_ms_col(ts: Column | str) -> Column:
    """Milliseconds since 1970 (bigint) of a TSO column."""
    return F.shiftright(ts, LOGICAL_BITS)


def lag_s_col(ts: Column | str, *, now_ts: Column | int) -> Column:
    """Seconds (double) by which the physical part of ``ts`` is behind that of ``now_ts``."""
    now = F.lit(now_ts) if isinstance(now_ts, int) else now_ts
    return (physical_ms_col(now) - physical_ms_col(ts)) / F.lit(1000.0)
