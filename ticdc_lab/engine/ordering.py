"""Sorting rows by several numbers, much quicker than with numpy's stable sorts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_Ints = NDArray[np.int64]


def order_of(*keys: _Ints, stable: bool = True) -> _Ints:
    """Order of rows by the first key, then the next; if ``stable``, those that are equal in all keep their order.

    As ``np.lexsort`` of the keys backwards. Numpy's plain sort of one number is five times as fast as its stable one,
    so each further key is sorted as one number with the place that its row has by the keys before it. A first key that
    rises is not sorted.

    Examples
    --------
    >>> order_of(np.array([2, 1, 2]), np.array([7, 8, 5]))
    array([1, 2, 0])
    """
    rises = bool((keys[0][1:] >= keys[0][:-1]).all())
    order: _Ints = np.arange(len(keys[0])) if rises else np.argsort(keys[0])
    new = _begins(keys[0][order])
    for key in (*keys[1:], *([np.arange(len(order))] if stable else ())):
        if new.all():
            break
        group, then = np.cumsum(new) - 1, key[order]
        small, bits = _small(then, within=62 - int(group[-1]).bit_length())
        if not bits:  # all are equal
            continue
        at = np.argsort((group << bits) + small)
        order, then = order[at], then[at]
        new |= _begins(then)
    return order


def _small(values: _Ints, *, within: int) -> tuple[_Ints, int]:
    """Numbers from 0 on in the same order, and their bits: few, or ranks where ``within`` does not hold them."""
    low, high = int(values.min()), int(values.max())
    bits = (high - low).bit_length()
    if bits <= within:
        return np.subtract(values, low, dtype=np.int64), bits
    order = np.argsort(values)
    ranks = np.empty_like(order)
    ranks[order] = np.cumsum(_begins(values[order])) - 1
    return ranks, len(ranks).bit_length()


def _begins(values: _Ints) -> NDArray[np.bool_]:
    """Where a run of equal values begins."""
    new = np.ones(len(values), dtype=np.bool_)
    new[1:] = values[1:] != values[:-1]
    return new
