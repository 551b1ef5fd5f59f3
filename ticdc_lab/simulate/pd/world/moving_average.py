"""The average by which PD smooths the free space of stores: a Hull moving average over their heartbeats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
HEARTBEATS = 60


class Weighted:
    """A weighted average over the last ``size`` values, the newest with the most weight; a row of stores at a time."""

    def __init__(self, size: int, stores: int) -> None:
        self.size = size
        self.values: Numbers = np.zeros((stores, size))
        self.count: NDArray[np.int64] = np.zeros(stores, np.int64)
        self.sum: Numbers = np.zeros(stores)
        self.score: Numbers = np.zeros(stores)

    def add(self, rows: NDArray[np.int64], values: Numbers) -> None:
        """Take a value for each of some stores."""
        count = self.count[rows]
        full = count >= self.size
        old = self.values[rows, count % self.size]
        self.score[rows] += np.where(full, self.size * values - self.sum[rows], (count + 1) * values)
        self.sum[rows] += values - np.where(full, old, 0.0)
        self.values[rows, count % self.size] = values
        self.count[rows] += 1

    def get(self, rows: NDArray[np.int64]) -> Numbers:
        """Give the averages."""
        n = np.minimum(self.count[rows], self.size)
        found: Numbers = self.score[rows] / np.maximum(n * (n + 1) / 2, 1)
        return found


class Hull:
    """``WMA(2 * WMA(n / 2) - WMA(n))`` over the square root of n values (pkg/movingaverage/hull.go)."""

    def __init__(self, stores: int, size: int = HEARTBEATS) -> None:
        self.half, self.whole = Weighted(size // 2, stores), Weighted(size, stores)
        self.root = Weighted(int(size**0.5), stores)

    def add(self, rows: NDArray[np.int64], values: Numbers) -> None:
        """Take a heartbeat's value for each of some stores."""
        self.half.add(rows, values)
        self.whole.add(rows, values)
        self.root.add(rows, 2 * self.half.get(rows) - self.whole.get(rows))

    def get(self, rows: NDArray[np.int64]) -> Numbers:
        """Give the averages, never below 0."""
        return np.maximum(self.root.get(rows), 0.0)

    def add_store(self) -> None:
        """Make room for another store."""
        for average in (self.half, self.whole, self.root):
            average.values = np.vstack([average.values, np.zeros((1, average.size))])
            average.count = np.append(average.count, 0)
            average.sum = np.append(average.sum, 0.0)
            average.score = np.append(average.score, 0.0)
