"""How much of what a workload does, and in which order: rounds, slots and moments.

Time goes in rounds. In a round every lane commits one transaction (of hot keys as many as its keys are worth), lane 0
first. What concerns all lanes (DDL, big
transactions, watermarks) is at the beginning of a round. Everything in that order has a slot, from 0 on without
gaps, and a slot has one commit_ts: what one lane does is known without looking at the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.errors import ContractError
from ticdc_lab.events import tso
from ticdc_lab.events.arrays import Bools, Ints
from ticdc_lab.workload.columns import mixed, rng_of
from ticdc_lab.workload.definitions import DISTRICTS, DefinitionPlan, plan_of
from ticdc_lab.workload.settings import BANK, HOT_KEYS, TPCC, Workload


@dataclass(frozen=True)
class Warehouses:
    """What a lane of tpcc has: so many warehouses with ten districts, and customers and items of each."""

    count: int
    customers: int
    items: int

    @classmethod
    def of(cls, keys: int) -> Warehouses:
        """Divide about so many rows."""
        customers, items = min(max(keys // 30, 3), 30), min(max(keys // 4, 20), 100)
        return cls(max(1, keys // cls(1, customers, items).rows), customers, items)

    @property
    def rows(self) -> int:
        """Count the rows at the beginning."""
        return self.count * (1 + DISTRICTS * (1 + self.customers) + self.items)

    @property
    def loads(self) -> int:
        """Count the transactions that insert them: warehouse and districts, customers of each district, items."""
        return self.count * (2 + DISTRICTS)


DDL, GENESIS, BIG, WATERMARK = range(4)
LOADED_AT_ONCE = 50
"""Accounts that one transaction opens at the beginning."""

_SHORT_MS = 20
_NS_A_MS = 1_000_000
_SLOTS_AT_ONCE = 1_000_000
MOVED = 0.5
"""Of the deletes of hot-keys, that are halves of an update of the key."""
_MEAN_ROWS = {BANK: 3.0, TPCC: 12.6}


@dataclass(frozen=True)
class Shape:
    """The same for every lane; made of the workload alone."""

    workload: Workload

    @cached_property
    def warehouses(self) -> Warehouses:
        """Give what a lane of tpcc begins with."""
        return Warehouses.of(self.workload.keys_a_lane)

    @property
    def loading(self) -> int:
        """Count the rounds that insert what is there at the beginning."""
        if self.workload.kind == BANK:
            return -(-self.workload.keys_a_lane // LOADED_AT_ONCE)
        return 0 if self.workload.kind == HOT_KEYS else self.warehouses.loads

    @property
    def loaded(self) -> int:
        """Count the row changes of a lane in these rounds."""
        if self.workload.kind == BANK:
            return self.workload.keys_a_lane + self.loading
        return 0 if self.workload.kind == HOT_KEYS else self.warehouses.rows

    @cached_property
    def widths(self) -> Ints:
        """Give how many transactions a lane commits in a round."""
        return widths_of(self.workload)

    @cached_property
    def a_round(self) -> int:
        """Count the transactions of a round."""
        return int(self.widths.sum())

    @property
    def mean_rows(self) -> float:
        """Estimate the row changes of a transaction."""
        return _MEAN_ROWS.get(self.workload.kind, 2.5 * (1 + MOVED * self.workload.delete_share))

    @property
    def big_count(self) -> int:
        """Count the big transactions."""
        w = self.workload
        return round(w.big_share * w.rows / w.big_rows)

    @property
    def big_rows_a_lane(self) -> int:
        """Count the rows that a lane adds to a big transaction at most; even, for every payment has two sides."""
        w = self.workload
        return max(2, min(w.big_rows // w.lanes, w.keys_a_lane) // 2 * 2)

    @cached_property
    def rounds(self) -> int:
        """Count the rounds. Raises ContractError: the rows at the beginning are more than all rows that are wanted."""
        w = self.workload
        left = w.rows - (self.loaded + self.big_count * self.big_rows_a_lane) * w.lanes
        if left < 0:
            raise ContractError(
                f"{w.rows} rows are too few: {self.loaded * w.lanes} are there at the beginning, and "
                f"{self.big_count * self.big_rows_a_lane * w.lanes} belong to big transactions.",
                hint="Raise --rows, or lower --set keys=N or --set big_rows=N.",
            )
        return self.loading + max(1, round(left / (self.mean_rows * self.a_round)))

    @cached_property
    def plan(self) -> DefinitionPlan:
        """Give definitions and statements; the mix's are spread evenly behind the loading."""
        w, usual = self.workload, self.rounds - self.loading
        return plan_of(w, [self.loading + (k + 1) * usual // (w.ddl + 1) for k in range(w.ddl)])

    @cached_property
    def shared(self) -> tuple[Ints, Ints]:
        """Give what concerns all lanes in its order: round, and what it is."""
        w, usual = self.workload, self.rounds - self.loading
        ddl = [s.round for s in self.plan.statements]
        bigs = np.sort(rng_of(w.seed, 102).integers(self.loading, self.loading + usual, self.big_count))
        every = max(1, round(w.watermark_ms * _NS_A_MS / (self.step_ns * self.a_round)))
        marks = np.append(np.arange(every, self.rounds, every), self.rounds)
        genesis = [0] if w.kind == BANK else []
        parts = [(np.asarray(at, np.int64), what) for what, at in enumerate((ddl, genesis, bigs, marks))]
        rounds = np.concatenate([at for at, _ in parts])
        what = np.repeat([what for _, what in parts], [len(at) for at, _ in parts])
        order = np.lexsort((what, rounds))
        return rounds[order], what[order]

    @cached_property
    def step_ns(self) -> int:
        """Give the virtual time from one slot to the next."""
        return max(1, round(1_000 * _NS_A_MS * self.mean_rows / self.workload.rows_per_s))

    def slots_of_lane(self, lane: int, rounds: Ints, turn: Ints | int = 0) -> Ints:
        """Give the slots of a lane's own transactions; ``turn`` counts the slots of one round."""
        first = int(self.widths[:lane].sum())
        return rounds * self.a_round + first + turn + np.searchsorted(self.shared[0], rounds, side="right")

    def slots_of_shared(self, what: int) -> Ints:
        """Give the slots of what concerns all lanes, of one kind."""
        rounds, kinds = self.shared
        found = np.flatnonzero(kinds == what)
        return rounds[found] * self.a_round + found

    @property
    def slots(self) -> int:
        """Count the slots."""
        return self.rounds * self.a_round + len(self.shared[0])

    def ms_of(self, slots: Ints) -> Ints:
        """Give the moment of a slot, ms from the beginning."""
        return slots * self.step_ns // _NS_A_MS

    def commit_ts_of(self, slots: Ints) -> Ints:
        """Give the commit_ts: the moment, and in its logical part the place in that ms; always even."""
        ms = self.ms_of(slots)
        first = -(-ms * _NS_A_MS // self.step_ns)
        return self.base + (ms << tso.LOGICAL_BITS) + 2 * (slots - first) + 2

    @property
    def base(self) -> int:
        """Give the TSO of the beginning."""
        return tso.compose(tso.physical_ms(self.workload.start_ts))

    def is_long(self, slots: Ints) -> Bools:
        """Check whether the transactions of some slots are long ones."""
        words = mixed(slots, self.workload.seed, 103) >> np.uint64(40)
        return np.asarray(words < np.uint64(round(self.workload.long_share * (1 << 24))))

    def start_ts_of(self, slots: Ints) -> Ints:
        """Give the start_ts: always odd, and behind the DDL before it, which no transaction outlasts."""
        words = mixed(slots, self.workload.seed, 104)
        usual, long = 1 + (words % np.uint64(_SHORT_MS)).astype(np.int64), self.workload.long_ms
        took = np.where(self.is_long(slots), long + usual, usual)
        start = self.base + (self.ms_of(slots) - took << tso.LOGICAL_BITS) + 2 * (slots % (1 << 16)) + 1
        ddl = self.slots_of_shared(DDL)
        after = self.commit_ts_of(ddl)[np.maximum(np.searchsorted(ddl, slots) - 1, 0)] + 1
        later: Ints = np.maximum(start, after)
        return later

    def resolved(self) -> tuple[Ints, Ints]:
        """Give slot and value of each watermark: its moment, or below the oldest long transaction open then."""
        slots = self.slots_of_shared(WATERMARK)
        now = self.commit_ts_of(slots)
        starts, commits = self._long_transactions()
        if len(starts) == 0:
            return slots, now
        oldest = np.append(np.minimum.accumulate(starts[::-1])[::-1], np.iinfo(np.int64).max)
        return slots, np.minimum(now, oldest[np.searchsorted(commits, now, side="right")] - 1)

    def _long_transactions(self) -> tuple[Ints, Ints]:
        """Give start_ts and commit_ts of all, in commit order."""
        if not self.workload.long_share:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        found = []
        for first in range(0, self.slots, _SLOTS_AT_ONCE):
            slots = np.arange(first, min(first + _SLOTS_AT_ONCE, self.slots))
            found.append(slots[self.is_long(slots)])
        rounds, what = self.shared
        other = (rounds * self.a_round + np.arange(len(rounds)))[(what == DDL) | (what == WATERMARK)]
        slots = np.setdiff1d(np.concatenate(found), other)
        return self.start_ts_of(slots), self.commit_ts_of(slots)


# How the transactions of a round are divided among the lanes.

_TURNS = 4
"""Transactions of hot keys that a lane commits in a round, on average."""


def weights_of(workload: Workload) -> NDArray[np.float64]:
    """Give what each key of hot-keys is worth, in the order of the keys."""
    weights: NDArray[np.float64] = np.arange(1.0, workload.keys_a_lane * workload.lanes + 1) ** -workload.zipf
    return weights


def widths_of(workload: Workload) -> Ints:
    """Give how many transactions each lane commits in a round; a lane of hot keys as many as its keys are worth."""
    if workload.kind != HOT_KEYS:
        return np.ones(workload.lanes, np.int64)
    worth = weights_of(workload).reshape(-1, workload.lanes).sum(axis=0)
    share: Ints = np.rint(worth / worth.sum() * workload.lanes * _TURNS).astype(np.int64)
    return np.maximum(1, share)
