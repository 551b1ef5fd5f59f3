"""All changes of a lane, and the states of rows before and after them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ticdc_lab.events import tso
from ticdc_lab.events.arrays import Bools, Ints
from ticdc_lab.workload import tpcc
from ticdc_lab.workload.columns import States, in_runs, mixed, rng_of, weighted
from ticdc_lab.workload.images import LaneChanges, Touches, changes_of, together, touches, united
from ticdc_lab.workload.settings import BANK, HOT_KEYS, TPCC
from ticdc_lab.workload.shape import BIG, GENESIS, LOADED_AT_ONCE, MOVED, Shape, weights_of

OPENING_CENTS, MOST_CENTS = 100_000, 10_000


def bank_touches(shape: Shape, lane: int) -> Touches:
    """Give all touches of a lane."""
    return united([_vault(shape, lane), *_opened(shape, lane), _transfers(shape, lane), _big_of_bank(shape, lane)])


def account(shape: Shape, lane: int, key: Ints) -> Ints:
    """Give the number of an account; key -1 is the vault."""
    return (key + 1) * shape.workload.lanes + lane + 1


def table_of(shape: Shape, handle: Ints) -> Ints:
    """Give the table that an account is in."""
    return (handle - 1) // shape.workload.lanes % shape.workload.tables


def _of(shape: Shape, lane: int, slot: Ints, rounds: Ints, key: Ints, add_0: Ints | int) -> Touches:
    handle = account(shape, lane, key)
    return touches(slot, rounds, table_of(shape, handle), handle, add_0=add_0)


def _vault(shape: Shape, lane: int) -> Touches:
    slot = shape.slots_of_shared(GENESIS)
    key = np.full(len(slot), -1)
    return _of(shape, lane, slot, np.zeros(len(slot), np.int64), key, add_0=shape.workload.keys_a_lane * OPENING_CENTS)


def _opened(shape: Shape, lane: int) -> list[Touches]:
    """The vault pays some accounts at once."""
    key = np.arange(shape.workload.keys_a_lane)
    rounds = key // LOADED_AT_ONCE
    paid = np.bincount(rounds)
    each = np.arange(len(paid))
    vault, slots = np.full(len(paid), -1), shape.slots_of_lane(lane, each)
    return [
        _of(shape, lane, slots, each, vault, add_0=-OPENING_CENTS * paid),
        _of(shape, lane, slots[rounds], rounds, key, add_0=OPENING_CENTS),
    ]


def _transfers(shape: Shape, lane: int) -> Touches:
    """Payer, payee and journal of each; where an account is closed, or opened again, the vault is the payee."""
    w = shape.workload
    rng = rng_of(w.seed, 1, lane)
    rounds = np.arange(shape.loading, shape.rounds)
    n, keys = len(rounds), w.keys_a_lane
    payer = rng.integers(keys, size=n)
    payee = (payer + 1 + rng.integers(keys - 1, size=n)) % keys
    cents = rng.integers(1, MOST_CENTS + 1, n)
    closes = rng.random(n) < w.delete_share
    payee = np.where(closes, -1, payee)
    slot = shape.slots_of_lane(lane, rounds)
    place = np.arange(n)
    usual = np.where(closes, 0, cents)
    first = _of(shape, lane, slot, rounds, payer, add_0=np.where(closes, cents, -cents))
    first = first._replace(delete=closes)
    second = _of(shape, lane, slot, rounds, payee, add_0=usual)
    journal = touches(
        slot, rounds, w.tables, (place + 1) * w.lanes + lane, add_0=usual,
        fixed_0=account(shape, lane, payer), fixed_1=account(shape, lane, payee),
    )  # fmt: skip
    return _with_opposites(first, second, journal, closes)


def _with_opposites(first: Touches, second: Touches, journal: Touches, closes: Bools) -> Touches:
    """The three parts as one, in which vault and journal stand against the account that is closed or opened."""
    n = len(closes)
    against = np.where(closes, np.arange(n), -1)
    return together([first, second._replace(against=against), journal._replace(against=against)])


def _big_of_bank(shape: Shape, lane: int) -> Touches:
    """Each second of some accounts in a row pays the next one."""
    w, slot = shape.workload, shape.slots_of_shared(BIG)
    rng, n = rng_of(w.seed, 2, lane), shape.big_rows_a_lane
    key = (rng.integers(w.keys_a_lane, size=(len(slot), 1)) + np.arange(n)) % w.keys_a_lane
    cents = rng.integers(1, MOST_CENTS + 1, (len(slot), n // 2))
    add = np.stack([-cents, cents], axis=2).reshape(-1)
    rounds = shape.shared[0][shape.shared[1] == BIG]
    return _of(shape, lane, np.repeat(slot, n), np.repeat(rounds, n), key.reshape(-1), add_0=add)


MOST_ROWS = 4
_NEW_KEYS = 1 << 39


def hot_key_touches(shape: Shape, lane: int) -> Touches:
    """Give all touches of a lane."""
    return _of_tables_that_are_there(united([_big_of_hot_keys(shape, lane), _usual(shape, lane)]), shape)


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


def _big_of_hot_keys(shape: Shape, lane: int) -> Touches:
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


_TOUCHES: Mapping[str, Callable[[Shape, int], Touches]] = {
    BANK: bank_touches,
    TPCC: tpcc.touches_of,
    HOT_KEYS: hot_key_touches,
}


def lane_of(shape: Shape, lane: int) -> LaneChanges:
    """Give the changes of a lane in commit order."""
    found = changes_of(_TOUCHES[shape.workload.kind](shape, lane), shape)
    is_shared = np.isin(found.slot, np.append(shape.slots_of_shared(GENESIS), shape.slots_of_shared(BIG)))
    return found._replace(seq=np.where(is_shared, found.seq + lane * shape.big_rows_a_lane, found.seq))


def states_of(changes: LaneChanges, at: Ints, shape: Shape) -> States:
    """Give the rows as they are after some changes, by index."""
    c = changes
    start_ms = tso.physical_ms(shape.workload.start_ts)
    handle = c.handle[at]
    life = mixed(shape.workload.seed, c.table[at], handle, c.life[at])
    return States(
        handle, c.version[at], c.sum_0[at], c.sum_1[at], c.fixed_0[at], c.fixed_1[at],
        start_ms + shape.ms_of(c.slot[at]), start_ms + shape.ms_of(c.slot[c.born[at]]), c.round[at], life,
        mixed(life.view(np.int64), c.version[at]),
    )  # fmt: skip
