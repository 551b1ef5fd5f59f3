"""Stores in the order in which balance-leader tries them, kept in order as it decides (balance_leader.go)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import cmp_to_key

from ticdc_lab.simulate.pd.stores import Store

OUT, IN = 0, 1
"""Take leaders out of the highest store, bring them into the lowest."""

_EQUAL = 1e-9

Score = Callable[[Store], float]


class StoreQueue:
    """Stores by score; of equal ones the higher id, which is the newer store, comes first."""

    def __init__(self, stores: list[Store], *, high: bool, at: int = 0) -> None:
        self.stores, self.high, self.at = stores, high, at

    @classmethod
    def of(cls, stores: Iterable[Store], score: Score, *, high: bool) -> StoreQueue:
        """Sort stores, the highest first or the lowest."""
        queue = cls([], high=high)
        scores = {s.id: score(s) for s in stores}

        def compare(a: Store, b: Store) -> int:
            return -1 if queue.before(a, scores[a.id], b, scores[b.id]) else 1

        queue.stores = sorted(stores, key=cmp_to_key(compare))
        return queue

    def copy(self) -> StoreQueue:
        """Give a queue that may go its own way."""
        return StoreQueue(list(self.stores), high=self.high, at=self.at)

    @property
    def left(self) -> bool:
        """Whether a store is left to try."""
        return self.at < len(self.stores)

    @property
    def head(self) -> Store:
        """The store to try now."""
        return self.stores[self.at]

    def skip(self) -> None:
        """Go on to the next store."""
        self.at += 1

    def before(self, a: Store, score_a: float, b: Store, score_b: float) -> bool:
        """Whether one store comes before another."""
        if abs(score_a - score_b) <= _EQUAL:
            return a.id > b.id
        return score_a > score_b if self.high else score_a < score_b

    def place(self, store: Store, score: Score) -> int:
        """Find where a store stands, by its score; the last place where it is not in the queue."""
        own = score(store)
        passed = [not self.before(s, score(s), store, own) for s in self.stores[:-1]]
        return bisect_left(passed, True)

    def resort(self, place: int, score: Score) -> None:
        """Bring a store whose score changed to its new place; PD never moves one to the very front."""
        stores, moved = self.stores, self.stores[place]
        own = score(moved)
        while place + 1 < len(stores) and not self.before(moved, own, stores[place + 1], score(stores[place + 1])):
            stores[place], stores[place + 1] = stores[place + 1], stores[place]
            place += 1
        while place > 1 and self.before(moved, own, stores[place - 1], score(stores[place - 1])):
            stores[place], stores[place - 1] = stores[place - 1], stores[place]
            place -= 1
