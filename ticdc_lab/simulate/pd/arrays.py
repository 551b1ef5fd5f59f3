"""Stores as columns: scores and states of all stores at once, for loops over many stores and rounds.

The same numbers as :mod:`~ticdc_lab.simulate.pd.scores` and :mod:`~ticdc_lab.simulate.pd.stores` give one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.simulate.pd.config import Config
from ticdc_lab.simulate.pd.scores import MAX_SCORE, MIN_WEIGHT
from ticdc_lab.simulate.pd.stores import GIB, MIB, Store

Numbers = NDArray[np.float64]

_FLOOR_GIB, _K, _M, _FULL = 50.0, 1.0, 256.0, 1e10


class StoreColumns(NamedTuple):
    """What scores need of stores, an array each, in the order given: bytes, MiB and counts as in ``Store``."""

    id: NDArray[np.int64]
    capacity: Numbers
    available: Numbers
    smoothed: Numbers
    used: Numbers
    region_size: Numbers
    leader_count: Numbers
    leader_size: Numbers
    leader_weight: Numbers
    region_weight: Numbers


def columns(stores: Iterable[Store]) -> StoreColumns:
    """Give stores as columns."""
    found = list(stores)
    floats = [np.array([getattr(s, n) for s in found], dtype=np.float64) for n in StoreColumns._fields[1:]]
    return StoreColumns(np.array([s.id for s in found], dtype=np.int64), *floats)


def leader_scores(c: StoreColumns, policy: str = "count", delta: float | Numbers = 0.0) -> Numbers:
    """Give all leader scores, with leaders (or their MiB) added."""
    leaders = c.leader_size if policy == "size" else c.leader_count
    return (leaders + delta) / np.maximum(c.leader_weight, MIN_WEIGHT)


def region_scores(c: StoreColumns, config: Config, delta: float | Numbers = 0.0) -> Numbers:
    """Give all region scores by the configured formula, with MiB of regions added."""
    added = np.broadcast_to(np.asarray(delta, dtype=np.float64), c.region_size.shape)
    v2 = config.region_score_formula_version == "v2"
    score = _v2(c, config.low_space_ratio, added) if v2 else _v1(c, config, added)
    return score / np.maximum(c.region_weight, MIN_WEIGHT)


def _v1(c: StoreColumns, config: Config, delta: Numbers) -> Numbers:
    high, low = 1 - config.high_space_ratio, 1 - config.low_space_ratio
    available, used, capacity = c.available / MIB, c.used / MIB, c.capacity / MIB
    known = (c.region_size != 0) & (used != 0)
    amplification = np.where(known, c.region_size / np.where(known, used, 1), 1)
    left = available - delta / amplification
    x1 = (used + available - high * capacity) * amplification
    x2, y2 = (used + available - low * capacity) * amplification, MAX_SCORE - low * capacity
    slope = (y2 - x1) / np.where(x2 == x1, 1, x2 - x1)
    between = slope * (c.region_size + delta) + x1 - slope * x1
    return np.where(
        left >= high * capacity, c.region_size + delta, np.where(left <= low * capacity, MAX_SCORE - left, between)
    )


def _v2(c: StoreColumns, low: float, delta: Numbers) -> Numbers:
    available, used, capacity = c.smoothed / GIB, c.used / GIB, c.capacity / GIB
    size = np.where(c.region_size + delta < 0, c.region_size, c.region_size + delta)
    available = _available_after(available, used, capacity, c.region_size, delta)
    floor = np.maximum(_FLOOR_GIB, capacity * (1 - low))
    room = np.maximum(available - floor, 0) + 1
    some = np.maximum(capacity, 1)
    gone = np.where(capacity - available + floor == 1, 1, capacity - available + floor - 1)
    roomy = (_K + _M * (np.log(some) - np.log(room)) / gone) * size
    full = (_K + _M * np.log(some) / some) * size + _FULL * (floor - available) / floor
    return np.where((available >= capacity) | (capacity < 1), size, np.where(available > floor, roomy, full))


def _available_after(available: Numbers, used: Numbers, capacity: Numbers, size: Numbers, delta: Numbers) -> Numbers:
    foreign = capacity - available - used
    then = used * (1 + delta / np.where(size == 0, 1, size))
    trusted = (size != 0) & (then > 0.5 * used) & (then < 2 * used)
    left = capacity - np.where(trusted, then, used) - foreign
    return np.where((left > 0) & (left < capacity), left, available)
