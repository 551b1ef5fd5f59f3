"""Timestamps of a simulated world: virtual microseconds as TSO integers and back."""

from __future__ import annotations

EPOCH_MS = 1_700_000_000_000
"""Physical time of the first microsecond; any fixed value does."""


A_MILLISECOND = 1 << 18
"""What a millisecond is between two TSO integers."""


def ts_of(at_us: int) -> int:
    """Give the TSO integer of a moment: its milliseconds as the physical part, the microseconds left as the logical."""
    return (EPOCH_MS + at_us // 1000) << 18 | at_us % 1000


def us_of(ts: int) -> int:
    """Give the moment of a TSO integer made by :func:`ts_of`, or just before one (``ts_of(..) - 1``)."""
    return ((ts >> 18) - EPOCH_MS) * 1000 + min(999, ts & (1 << 18) - 1)


def before(ts: int) -> int:
    """Give a TSO integer just below another that is a moment as well.

    ``ts - 1`` borrows from the milliseconds where the logical part is 0: :func:`us_of` of that is a quarter of a second
    later. Here the last microsecond of the millisecond before comes out.
    """
    return ts - 1 if ts & (1 << 18) - 1 else (ts >> 18) - 1 << 18 | 999
