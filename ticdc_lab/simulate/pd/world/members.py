"""Which regions lead, follow, learn or are pending on each store, to be drawn from, and what they sum to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.columns import Regions

LEADS, FOLLOWS, LEARNS = 0, 1, 2
_LEARNER = 1


class Members:
    """Lists of rows a store and kind of peer; ``where`` says at which place of its list a peer stands.

    ``led_with`` counts regions by the store that leads and those that follow. ``count``, ``mib``, ``leaders``,
    ``leader_mib`` and ``pending`` sum up each store's peers; ``touched`` collects stores whose sums changed.
    """

    def __init__(self, stores: int) -> None:
        self.lists: list[tuple[list[int], list[int], list[int]]] = [([], [], []) for _ in range(stores)]
        self.count, self.mib = [0] * stores, [0.0] * stores
        self.leaders, self.leader_mib = [0] * stores, [0.0] * stores
        self.learners = [0] * stores
        self.pending = [0] * stores
        self.pending_rows: dict[int, None] = {}
        self.where: NDArray[np.int32] = np.zeros((0, 0), np.int32)
        self.led_with: NDArray[np.int32] = np.zeros((stores, stores), np.int32)
        self.touched: set[int] = set(range(stores))

    def add_store(self) -> None:
        """Make room for another store."""
        n = len(self.count)
        self.touched.add(n)
        self.led_with = np.pad(self.led_with, ((0, 1), (0, 1)))
        self.lists.append(([], [], []))
        for sums in (self.count, self.leaders, self.learners, self.pending):
            sums.append(0)
        self.mib.append(0.0)
        self.leader_mib.append(0.0)

    def lengthen(self, rows: int) -> None:
        """Make room for more regions."""
        more = np.zeros((rows - len(self.where), self.where.shape[1]), np.int32)
        self.where = np.concatenate([self.where, more])

    def fill(self, r: Regions) -> None:
        """List all regions at once."""
        self.where = np.zeros(r.store.shape, np.int32)
        row_of, slot_of = np.nonzero(r.store >= 0)
        store = r.store[row_of, slot_of]
        kind = np.where(r.role[row_of, slot_of] == _LEARNER, LEARNS, FOLLOWS)
        kind[r.leader[row_of] == store] = LEADS
        for s in range(len(self.count)):
            for k in (LEADS, FOLLOWS, LEARNS):
                chosen = (store == s) & (kind == k)
                self.lists[s][k].extend(row_of[chosen].tolist())
                self.where[row_of[chosen], slot_of[chosen]] = np.arange(int(chosen.sum()))
        n = len(self.count)
        sizes = r.size[row_of]
        leads = kind == LEADS
        self.count = np.bincount(store, minlength=n).tolist()
        self.mib = np.bincount(store, sizes, minlength=n).tolist()
        self.leaders = np.bincount(store[leads], minlength=n).tolist()
        self.leader_mib = np.bincount(store[leads], sizes[leads], minlength=n).tolist()
        self.learners = np.bincount(store[kind == LEARNS], minlength=n).tolist()
        follows = (kind == FOLLOWS) & (r.leader[row_of] >= 0)
        np.add.at(self.led_with, (r.leader[row_of[follows]], store[follows]), 1)

    def insert(self, r: Regions, row: int) -> None:
        """List a region's peers."""
        if self.where.shape[1] < r.store.shape[1]:
            more = np.zeros((len(self.where), r.store.shape[1] - self.where.shape[1]), np.int32)
            self.where = np.hstack([self.where, more])
        leader, size = int(r.leader[row]), float(r.size[row])
        pending = r.pending[row].tolist()
        for slot, (s, role) in enumerate(zip(r.store[row].tolist(), r.role[row].tolist(), strict=True)):
            if s < 0:
                continue
            kind = LEADS if s == leader else LEARNS if role == _LEARNER else FOLLOWS
            rows = self.lists[s][kind]
            self.where[row, slot] = len(rows)
            rows.append(row)
            self._add(s, kind, 1, size)
            if kind == FOLLOWS and leader >= 0:
                self.led_with[leader, s] += 1
            if pending[slot]:
                self.pending[s] += 1
                self.pending_rows[row] = None

    def remove(self, r: Regions, row: int) -> None:
        """Take a region's peers off the lists."""
        leader, size = int(r.leader[row]), float(r.size[row])
        pending = r.pending[row].tolist() if row in self.pending_rows else None
        for slot, (s, role) in enumerate(zip(r.store[row].tolist(), r.role[row].tolist(), strict=True)):
            if s < 0:
                continue
            kind = LEADS if s == leader else LEARNS if role == _LEARNER else FOLLOWS
            self._drop(r, self.lists[s][kind], s, int(self.where[row, slot]))
            self._add(s, kind, -1, -size)
            if kind == FOLLOWS and leader >= 0:
                self.led_with[leader, s] -= 1
            if pending is not None and pending[slot]:
                self.pending[s] -= 1
        self.pending_rows.pop(row, None)

    def _drop(self, r: Regions, rows: list[int], store: int, place: int) -> None:
        last = rows.pop()
        if place < len(rows):
            rows[place] = last
            slot = r.store[last].tolist().index(store)
            self.where[last, slot] = place

    def _add(self, s: int, kind: int, one: int, size: float) -> None:
        self.touched.add(s)
        self.count[s] += one
        self.mib[s] += size
        if kind == LEADS:
            self.leaders[s] += one
            self.leader_mib[s] += size
        elif kind == LEARNS:
            self.learners[s] += one

    def resize(self, r: Regions, row: int, mib: float) -> None:
        """Count a region's growth."""
        leader = int(r.leader[row])
        for s in r.store[row].tolist():
            if s >= 0:
                self.mib[s] += mib
                self.touched.add(s)
        if leader >= 0:
            self.leader_mib[leader] += mib
