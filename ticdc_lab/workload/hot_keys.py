"""Rows that are wanted more often than others: key r with a chance in proportion to 1 / r ** ``zipf``, about.

A lane has each ``lanes``-th key, and as many transactions as these are worth. A transaction touches up to four rows:
the same key in table after table. Half of the deletes are halves of an update of the key: the transaction also inserts
a row with a key that was never there.
"""

from __future__ import annotations

import numpy as np

from ticdc_lab.events.arrays import Ints
from ticdc_lab.workload.draws import in_runs, rng_of, weighted
from ticdc_lab.workload.shape import BIG, MOVED, Shape, weights_of
from ticdc_lab.workload.touches import Touches, touches, united

MOST_ROWS = 4
_NEW_KEYS = 1 << 39


def touches_of(shape: Shape, lane: int) -> Touches:
    """Give all touches of a lane."""
    return _of_tables_that_are_there(united([_big(shape, lane), _usual(shape, lane)]), shape)


def _usual(shape: Shape, lane: int) -> Touches:
    w = shape.workload
    rng = rng_of(w.seed, 1, lane)
    width, all_rounds = int(shape.widths[lane]), np.arange(shape.loading, shape.rounds)
    rounds, turn = np.repeat(all_rounds, width), np.tile(np.arange(width), len(all_rounds))
    sizes = rng.permutation(len(rounds)) % MOST_ROWS + 1  # as many of each size
    key = weighted(rng, len(rounds), weights_of(w)[lane :: w.lanes])
    slot = np.repeat(shape.slots_of_lane(lane, rounds, turn), sizes)
    rounds, key, place = np.repeat(rounds, sizes), np.repeat(key, sizes), in_runs(sizes)
    delete = rng.random(len(rounds)) < w.delete_share
    hits = rng.integers(1, 10, len(rounds))
    table, key = (key + place) % w.tables, (key + place // w.tables) % w.keys_a_lane
    usual = touches(slot, rounds, table, _handle(shape, lane, key), delete=delete, add_0=hits)
    moved = np.flatnonzero(delete & (rng.random(len(rounds)) < MOVED))
    new = _NEW_KEYS + slot[moved] * MOST_ROWS + place[moved]
    return united([usual, touches(slot[moved], rounds[moved], table[moved], new, add_0=hits[moved])])


def _big(shape: Shape, lane: int) -> Touches:
    """Some keys in a row, in table after table."""
    w, slot = shape.workload, shape.slots_of_shared(BIG)
    n = shape.big_rows_a_lane
    first = rng_of(w.seed, 2, lane).integers(w.keys_a_lane, size=(len(slot), 1))
    key = (first + np.arange(n)).reshape(-1) % w.keys_a_lane
    rounds = np.repeat(shape.shared[0][shape.shared[1] == BIG], n)
    return touches(np.repeat(slot, n), rounds, key % w.tables, _handle(shape, lane, key), add_0=1)


def _of_tables_that_are_there(those: Touches, shape: Shape) -> Touches:
    """Rows of table 0, other ones for each table, stand in for those of a table while it is dropped."""
    table, handle = those.table.copy(), those.handle.copy()
    room = (shape.workload.keys_a_lane + 1) * shape.workload.lanes
    for number, versions in enumerate(shape.plan.definitions):
        here = np.flatnonzero(those.table == number)
        found = np.searchsorted([d.since for d in versions], those.round[here], side="right") - 1
        lost = here[np.array([d.id is None for d in versions])[found]]
        table[lost] = 0
        handle[lost] += room * number
    return those._replace(table=table, handle=handle)


def _handle(shape: Shape, lane: int, key: Ints) -> Ints:
    return key * shape.workload.lanes + lane + 1
