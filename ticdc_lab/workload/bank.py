"""Transfers: what one account loses another gains, at every commit_ts.

A lane has a vault (account ``lane`` + 1) that all other accounts are opened from and closed into, and each ``lanes``-th
account above it. A transfer changes two accounts and adds a row to the journal.
"""

from __future__ import annotations

import numpy as np

from ticdc_lab.events.arrays import Bools, Ints
from ticdc_lab.workload.draws import rng_of
from ticdc_lab.workload.shape import BIG, GENESIS, LOADED_AT_ONCE, Shape
from ticdc_lab.workload.touches import Touches, together, touches, united

OPENING_CENTS, MOST_CENTS = 100_000, 10_000


def touches_of(shape: Shape, lane: int) -> Touches:
    """Give all touches of a lane."""
    return united([_vault(shape, lane), *_opened(shape, lane), _transfers(shape, lane), _big(shape, lane)])


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


def _big(shape: Shape, lane: int) -> Touches:
    """Each second of some accounts in a row pays the next one."""
    w, slot = shape.workload, shape.slots_of_shared(BIG)
    rng, n = rng_of(w.seed, 2, lane), shape.big_rows_a_lane
    key = (rng.integers(w.keys_a_lane, size=(len(slot), 1)) + np.arange(n)) % w.keys_a_lane
    cents = rng.integers(1, MOST_CENTS + 1, (len(slot), n // 2))
    add = np.stack([-cents, cents], axis=2).reshape(-1)
    rounds = shape.shared[0][shape.shared[1] == BIG]
    return _of(shape, lane, np.repeat(slot, n), np.repeat(rounds, n), key.reshape(-1), add_0=add)
