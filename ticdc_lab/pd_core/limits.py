"""How fast stores give and take peers: token buckets (v1) and windows of snapshots (v2); `pd_notes.md` section 7."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.pd_core.operators import Priority
from ticdc_lab.pd_core.regions import EMPTY_MIB

LARGE_COST, SMALL_COST = 1000, 200
"""Tokens that a peer costs; a region of at most 20 MiB is small, an empty one is free."""

SMALL_MIB = 20
UNLIMITED_PER_S = 1e8
_RATE_PER_MINUTE = 60.0

WINDOW_MIB, LEAST_WINDOW_MIB = 100, 10
_PROPORTION, _INTEGRAL, _LEAST_SENT_S = 20, 10, 5.0
"""Of the feedback on windows; pkg/core/storelimit/sliding_window.go, server/cluster/cluster.go."""


def step_cost(size: float) -> int:
    """Give the tokens that adding or removing a peer of so many MiB costs."""
    if size <= EMPTY_MIB:
        return 0
    return SMALL_COST if size <= SMALL_MIB else LARGE_COST


def step_costs(size: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give the tokens that adding a peer of each region takes."""
    return np.where(size <= EMPTY_MIB, 0.0, np.where(size <= SMALL_MIB, SMALL_COST, LARGE_COST))


class PerMinute(NamedTuple):
    """A store's limits as ``pd-ctl store limit`` has them: peers a minute."""

    add: float = 15.0
    remove: float = 15.0


Limits = Mapping[int, PerMinute]
"""By store."""


def limits_nothing(per_minute: float) -> bool:
    """Whether a store limit is none: 0, or more than any store reaches."""
    return per_minute <= 0 or per_minute / _RATE_PER_MINUTE * LARGE_COST >= UNLIMITED_PER_S


class Bucket(NamedTuple):
    """A token bucket at a moment; ``at_s`` is when ``tokens`` was true."""

    rate_per_s: float
    tokens: float
    at_s: float = 0.0


def capacity(rate_per_s: float) -> float:
    """Give what a bucket holds: one second's worth, one large region at least."""
    return max(1.0, rate_per_s) * LARGE_COST


def bucket(rate_per_s: float, at_s: float = 0.0) -> Bucket:
    return Bucket(rate_per_s, capacity(rate_per_s), at_s)


def bucket_per_minute(rate: float, at_s: float = 0.0) -> Bucket:
    """Give a full bucket for a store limit as ``pd-ctl store limit`` has it: peers a minute."""
    return bucket(rate / _RATE_PER_MINUTE, at_s)


def is_unlimited(b: Bucket) -> bool:
    """Rate 0, or one that no store reaches."""
    return limits_nothing(b.rate_per_s * _RATE_PER_MINUTE)


def tokens_at(b: Bucket, at_s: float) -> float:
    """Give the tokens that are there at a moment."""
    return min(capacity(b.rate_per_s), b.tokens + (at_s - b.at_s) * b.rate_per_s * LARGE_COST)


def available(b: Bucket, at_s: float, cost: float = LARGE_COST) -> bool:
    """Whether a step of this cost may start."""
    return is_unlimited(b) or tokens_at(b, at_s) >= cost


def taken(b: Bucket, at_s: float, cost: float = LARGE_COST) -> Bucket:
    """Give the bucket after a step started."""
    return b if is_unlimited(b) else b._replace(tokens=tokens_at(b, at_s) - cost, at_s=at_s)


class Windows(NamedTuple):
    """Snapshots that a store sends, MiB, a window a priority; ``total`` is the capacity of the lowest.

    ``errors`` is the sum of feedback so far.
    """

    total: float = WINDOW_MIB
    used: tuple[float, float, float, float] = (0, 0, 0, 0)
    errors: float = 0.0


def window_capacity(w: Windows, priority: int) -> float:
    """Give what a priority's window holds: half of the one below it, 10 MiB at least."""
    return max(LEAST_WINDOW_MIB, int(w.total) >> priority)


def window_open(w: Windows, priority: Priority) -> bool:
    """Whether a priority has room, in its own window or one below it; one operator may overshoot."""
    return _with_room(w, priority) is not None


def _with_room(w: Windows, priority: Priority) -> int | None:
    """Give the lowest window that has room for a priority."""
    for p in range(priority + 1):
        if w.used[p] + LEAST_WINDOW_MIB <= window_capacity(w, p):
            return p
    return None


def with_snapshot(w: Windows, priority: Priority, size: float) -> Windows | None:
    """Give the windows with a snapshot in flight, in the lowest that has room; None where none has."""
    place = _with_room(w, priority)
    if place is None:
        return None
    used = list(w.used)
    used[place] += size
    return w._replace(used=(used[0], used[1], used[2], used[3]))


def without_snapshot(w: Windows, size: float) -> Windows:
    """Give the windows when an operator has ended: the highest is emptied first."""
    used = list(w.used)
    for p in reversed(range(len(used))):
        freed = min(size, used[p])
        used[p] -= freed
        size -= freed
    return w._replace(used=(used[0], used[1], used[2], used[3]))


def with_feedback(w: Windows, executing_s: float, total_s: float) -> Windows:
    """Let the capacity follow a snapshot: more where it was sent for most of the time, less where it mostly waited.

    One that was sent in less than five seconds counts for five; while the lowest window has room nothing is learned.
    """
    if window_open(w, Priority.LOW):
        return w
    error = 2 * max(executing_s, _LEAST_SENT_S) - total_s
    errors = w.errors + error
    return w._replace(total=max(WINDOW_MIB, _PROPORTION * error + _INTEGRAL * errors), errors=errors)
