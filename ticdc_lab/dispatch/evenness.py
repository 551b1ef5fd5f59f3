"""How unequal loads are, as one number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def gini(totals: Sequence[float] | npt.NDArray[np.number]) -> float:
    """Gini coefficient: 0 where all are equal, towards 1 where one has everything.

    Examples
    --------
    >>> gini([5, 5, 5, 5]), round(gini([20, 0, 0, 0]), 2)
    (0.0, 0.75)
    """
    v = np.sort(np.asarray(totals, dtype=float))
    if not len(v) or v.sum() == 0:
        return 0.0
    ranks = np.arange(1, len(v) + 1)
    return float((2 * (ranks * v).sum() / (len(v) * v.sum())) - (len(v) + 1) / len(v))


def unevenness(coefficient: float) -> str:
    """Gini's coefficient with its meaning, for newcomers.

    Examples
    --------
    >>> unevenness(0.25)
    'unevenness 0.25 (Gini: 0 all alike, 1 one has all)'
    """
    return f"unevenness {coefficient:.2f} (Gini: 0 all alike, 1 one has all)"
