"""Leader and region scores of stores, one by one and as columns: formulas of `pd_notes.md` section 2."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.stores import GIB, MIB, Store

MIN_WEIGHT = 1e-6
MAX_SCORE = float(1 << 30)
_K, _M, _FLOOR_GIB = 1.0, 256.0, 50.0
_FULL = 1e10


def leader_score(store: Store, policy: str = "count", delta: float = 0) -> float:
    """Give leaders (``policy`` count) or their MiB (size), ``delta`` more, over the leader weight, 1e-6 at least."""
    leaders = store.leader_size if policy == "size" else store.leader_count
    return (leaders + delta) / max(store.leader_weight, MIN_WEIGHT)


def region_score(store: Store, config: Config, delta: float = 0) -> float:
    """Give a store's region score by the configured formula, ``delta`` MiB of regions added."""
    if config.region_score_formula_version == "v2":
        return region_score_v2(store, config.low_space_ratio, delta)
    return region_score_v1(store, config.high_space_ratio, config.low_space_ratio, delta)


def region_score_v1(store: Store, high: float, low: float, delta: float = 0) -> float:
    """Give the score of formula v1: the size while there is room, the missing space when there is none.

    Sizes in MiB. Between the two stages runs the straight line through their borders.
    """
    size = store.region_size
    available, used, capacity = store.available / MIB, store.used / MIB, store.capacity / MIB
    amplification = size / used if size and used else 1.0
    left = available - delta / amplification
    if left >= (1 - high) * capacity:
        score = size + delta
    elif left <= (1 - low) * capacity:
        score = MAX_SCORE - left
    else:
        x1 = y1 = (used + available - (1 - high) * capacity) * amplification
        x2, y2 = (used + available - (1 - low) * capacity) * amplification, MAX_SCORE - (1 - low) * capacity
        slope = (y2 - y1) / (x2 - x1)
        score = slope * (size + delta) + y1 - slope * x1
    return score / max(store.region_weight, MIN_WEIGHT)


def region_score_v2(store: Store, low: float, delta: float = 0) -> float:
    """Give the score of formula v2: every MiB weighs more, the less space there is.

    Space in GiB, sizes in MiB. A store is nearly full below 50 GiB or ``1 - low`` of its capacity, whichever is more;
    then the missing space decides. Files that PD does not know of are taken from what a move of ``delta`` would leave.
    """
    available, used, capacity = store.smoothed / GIB, store.used / GIB, store.capacity / GIB
    size = store.region_size + delta
    if size < 0:
        size = store.region_size
    available = _available_after(available, used, capacity, store.region_size, delta)
    floor = max(_FLOOR_GIB, capacity * (1 - low))
    if available >= capacity or capacity < 1:
        score = float(size)
    elif available > floor:
        score = (
            _K + _M * (math.log(capacity) - math.log(available - floor + 1)) / (capacity - available + floor - 1)
        ) * size
    else:
        score = (_K + _M * math.log(capacity) / capacity) * size + _FULL * (floor - available) / floor
    return score / max(store.region_weight, MIN_WEIGHT)


def _available_after(available: float, used: float, capacity: float, region_size: float, delta: float) -> float:
    """Give the space left once ``delta`` MiB have come or gone, where the store's amplification can be trusted."""
    foreign = capacity - available - used
    if region_size:
        then = used * (1 + delta / region_size)
        if 0.5 * used < then < 2 * used:
            used = then
    left = capacity - used - foreign
    return left if 0 < left < capacity else available


Numbers = NDArray[np.float64]


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
    foreign = capacity - available - used
    then = used * (1 + delta / np.where(c.region_size == 0, 1, c.region_size))
    trusted = (c.region_size != 0) & (then > 0.5 * used) & (then < 2 * used)
    left = capacity - np.where(trusted, then, used) - foreign
    available = np.where((left > 0) & (left < capacity), left, available)
    floor = np.maximum(_FLOOR_GIB, capacity * (1 - low))
    room = np.maximum(available - floor, 0) + 1
    some = np.maximum(capacity, 1)
    gone = np.where(capacity - available + floor == 1, 1, capacity - available + floor - 1)
    roomy = (_K + _M * (np.log(some) - np.log(room)) / gone) * size
    full = (_K + _M * np.log(some) / some) * size + _FULL * (floor - available) / floor
    return np.where((available >= capacity) | (capacity < 1), size, np.where(available > floor, roomy, full))
