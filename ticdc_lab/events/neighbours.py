"""Neighbours in columns that are sorted, or whose order means something."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]


def changes_in(*columns: Column) -> npt.NDArray[np.bool_]:
    """Where any of ``columns``, of equal length, differs from the entry before; true for the first."""
    new = np.ones(len(columns[0]), np.bool_)
    new[1:] = False
    for c in columns:
        new[1:] |= c[1:] != c[:-1]
    return new


def lasts_in(*columns: Column) -> npt.NDArray[np.bool_]:
    """Where any of ``columns``, of equal length, differs from the entry behind; true for the last."""
    return changes_in(*[c[::-1] for c in columns])[::-1]
