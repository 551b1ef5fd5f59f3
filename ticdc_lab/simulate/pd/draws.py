"""Random regions of a store, from columns: what the balance schedulers draw."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.simulate.pd.balance import DRAWN, FOLLOWER_HERE, LEADER_HERE, LEARNER_HERE, PENDING_HERE
from ticdc_lab.simulate.pd.region_columns import ROLES, RegionColumns, region_at
from ticdc_lab.simulate.pd.regions import LEARNER, Region


class Draws:
    """Draws regions from a seed; the regions of a store are looked up once."""

    def __init__(self, regions: RegionColumns, seed: int) -> None:
        self.regions = regions
        self._random = np.random.default_rng(seed)
        self._positions = {s: i for i, s in enumerate(regions.stores)}
        self._found: dict[tuple[int, str], NDArray[np.int64]] = {}

    def __call__(self, store: int, kind: str) -> Iterator[Region]:
        """Draw, with replacement, regions whose peer on a store is of a kind."""
        places = self._of(store, kind)
        for _ in range(DRAWN if len(places) else 0):
            yield region_at(self.regions, int(places[self._random.integers(len(places))]))

    def _of(self, store: int, kind: str) -> NDArray[np.int64]:
        if (store, kind) not in self._found:
            self._found[store, kind] = self._look_up(store, kind)
        return self._found[store, kind]

    def _look_up(self, store: int, kind: str) -> NDArray[np.int64]:
        position = self._positions.get(store)
        if position is None:
            return np.zeros(0, dtype=np.int64)
        c = self.regions
        here, leads = c.peers == position, c.leader == position
        votes = c.role != ROLES.index(LEARNER)
        marked = {
            PENDING_HERE: lambda: (here & c.pending).any(axis=1),
            LEADER_HERE: lambda: leads,
            LEARNER_HERE: lambda: (here & ~votes).any(axis=1),
            FOLLOWER_HERE: lambda: (here & votes).any(axis=1) & ~leads,
        }
        return np.flatnonzero(marked[kind]())
