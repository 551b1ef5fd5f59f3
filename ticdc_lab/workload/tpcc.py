"""New orders, payments and deliveries on eight tables of TPC-C; a lane has warehouses of its own.

At every commit_ts: a warehouse's ``w_ytd`` is the sum of its districts' ``d_ytd``; a district's ``d_next_o_id`` is one
more than its greatest order; an order has ``o_ol_cnt`` lines; what is in ``new_order`` has no carrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ticdc_lab.events.arrays import Bools, Ints
from ticdc_lab.workload import definitions as t
from ticdc_lab.workload.chains import Touches, touches, united
from ticdc_lab.workload.columns import in_runs, rng_of
from ticdc_lab.workload.shape import BIG, Shape

NEW_ORDERS, PAYMENTS = 0.34, 0.36
"""Shares; the rest are deliveries, each to one district. One that finds no order is a payment instead."""

LEAST_LINES, MOST_LINES = 5, 15


def touches_of(shape: Shape, lane: int) -> Touches:
    """Give all touches of a lane."""
    mix = _Mix.of(shape, lane)
    return united([*_loaded(shape, lane), _big(shape, lane), *mix.new_orders(), *mix.payments(), *mix.deliveries()])


def _warehouses(shape: Shape, lane: int) -> Ints:
    return np.arange(shape.warehouses.count) * shape.workload.lanes + lane + 1


def _loaded(shape: Shape, lane: int) -> list[Touches]:
    """Of each warehouse: itself and its districts, then its items, then the customers of each district."""
    has, numbers = shape.warehouses, _warehouses(shape, lane)
    first = np.arange(has.count) * (2 + t.DISTRICTS)

    def part(table: int, rounds: Ints, handle: Ints, *, add_0: int = 0) -> Touches:
        rounds = np.broadcast_to(rounds, handle.shape).reshape(-1)
        return touches(shape.slots_of_lane(lane, rounds), rounds, table, handle.reshape(-1), add_0=add_0)

    districts = numbers[:, None] * t.DISTRICTS + np.arange(t.DISTRICTS)
    customers = districts[:, :, None] * t.CUSTOMERS + np.arange(has.customers)
    return [
        part(t.WAREHOUSE, first, numbers),
        part(t.DISTRICT, first[:, None], districts, add_0=1),
        part(t.STOCK, first[:, None] + 1, numbers[:, None] * t.ITEMS + np.arange(has.items)),
        part(t.CUSTOMER, (first[:, None] + 2 + np.arange(t.DISTRICTS))[:, :, None], customers),
    ]


def _big(shape: Shape, lane: int) -> Touches:
    """Some items, and some customers, in a row."""
    w, has, slot = shape.workload, shape.warehouses, shape.slots_of_shared(BIG)
    stock = _warehouses(shape, lane)[:, None] * t.ITEMS + np.arange(has.items)
    people = _warehouses(shape, lane)[:, None, None] * t.DISTRICTS + np.arange(t.DISTRICTS)[:, None]
    people = people * t.CUSTOMERS + np.arange(has.customers)
    half, rounds = shape.big_rows_a_lane // 2, shape.shared[0][shape.shared[1] == BIG]
    rng, parts = rng_of(w.seed, 2, lane), []
    for table, handle in ((t.STOCK, stock.reshape(-1)), (t.CUSTOMER, people.reshape(-1))):
        n = min(half, len(handle))
        those = (rng.integers(len(handle), size=(len(slot), 1)) + np.arange(n)).reshape(-1) % len(handle)
        parts.append(touches(np.repeat(slot, n), np.repeat(rounds, n), table, handle[those]))
    return united(parts)


@dataclass(frozen=True)
class _Mix:
    """The transactions of a lane behind the loading; one number each."""

    shape: Shape
    lane: int
    rounds: Ints
    slot: Ints
    district: Ints
    customer: Ints
    """Of the district, from 0."""
    lines: Ints
    item: Ints
    """Of the first line."""
    cents: Ints
    is_order: Bools
    order: Ints
    """New orders and deliveries: handle of the order; else -1."""
    placed: Ints
    """Deliveries: which transaction placed the order."""

    @classmethod
    def of(cls, shape: Shape, lane: int) -> _Mix:
        rng, has = rng_of(shape.workload.seed, 1, lane), shape.warehouses
        rounds = np.arange(shape.loading, shape.rounds)
        n = len(rounds)
        district = _warehouses(shape, lane)[rng.integers(has.count, size=n)] * t.DISTRICTS
        district = district + rng.integers(t.DISTRICTS, size=n)
        kind = rng.random(n)
        is_order, wants = kind < NEW_ORDERS, kind >= NEW_ORDERS + PAYMENTS
        order, placed = _orders(district, is_order, wants)
        return cls(
            shape, lane, rounds, shape.slots_of_lane(lane, rounds), district, rng.integers(has.customers, size=n),
            rng.integers(LEAST_LINES, MOST_LINES + 1, n), rng.integers(has.items, size=n),
            rng.integers(100, 500_000, n), is_order, order, placed,
        )  # fmt: skip

    def part(self, at: Ints, table: int, handle: Ints, **more: Any) -> Touches:
        """Touches of the transactions ``at``."""
        return touches(self.slot[at], self.rounds[at], table, handle, **more)

    def customer_of(self, at: Ints) -> Ints:
        """Give the handle of a transaction's customer."""
        return self.district[at] * t.CUSTOMERS + self.customer[at]

    def lines_of(self, at: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Give of each line of the orders placed by ``at``: index in ``at``, number, item and quantity."""
        of, number = np.repeat(np.arange(len(at)), self.lines[at]), in_runs(self.lines[at])
        item = (self.item[at][of] + number) % self.shape.warehouses.items
        return of, number, item, 1 + (self.cents[at][of] + 3 * number) % 10

    def new_orders(self) -> list[Touches]:
        """District, order, its place in the queue, its lines, and the stock of each item."""
        at = np.flatnonzero(self.is_order)
        order, (of, number, item, quantity) = self.order[at], self.lines_of(at)
        stock = self.district[at][of] // t.DISTRICTS * t.ITEMS + item
        return [
            self.part(at, t.DISTRICT, self.district[at], add_0=1),
            self.part(at, t.ORDER, order, fixed_0=self.customer[at] + 1, fixed_1=self.lines[at]),
            self.part(at, t.NEW_ORDER, order),
            self.part(at[of], t.ORDER_LINE, order[of] * t.LINES + number, fixed_0=item + 1, fixed_1=quantity),
            self.part(at[of], t.STOCK, stock, add_0=quantity, add_1=1),
        ]

    def payments(self) -> list[Touches]:
        """Warehouse, district, customer and history."""
        at = np.flatnonzero(self.order < 0)
        district, cents = self.district[at], self.cents[at]
        number = (at + 1) * self.shape.workload.lanes + self.lane
        return [
            self.part(at, t.WAREHOUSE, district // t.DISTRICTS, add_0=cents),
            self.part(at, t.DISTRICT, district, add_1=cents),
            self.part(at, t.CUSTOMER, self.customer_of(at), add_0=-cents, add_1=1),
            self.part(at, t.HISTORY, number, add_0=cents, fixed_0=self.customer[at] + 1),
        ]

    def deliveries(self) -> list[Touches]:
        """The queue loses the order; order and lines are marked; the customer owes for them."""
        at = np.flatnonzero((self.order >= 0) & ~self.is_order)
        order, (of, number, item, quantity) = self.order[at], self.lines_of(self.placed[at])
        owed = np.bincount(of, quantity * t.price_of(item + 1), len(at)).astype(np.int64)
        return [
            self.part(at, t.NEW_ORDER, order, delete=True),
            self.part(at, t.ORDER, order),
            self.part(at[of], t.ORDER_LINE, order[of] * t.LINES + number),
            self.part(at, t.CUSTOMER, self.customer_of(self.placed[at]), add_0=owed),
        ]


def _orders(district: Ints, places: Bools, wants: Bools) -> tuple[Ints, Ints]:
    """Number the orders of each district, and give each delivery the oldest one that waits, if any does.

    A queue's length is how far orders less deliveries are above their least ever, or 0.
    """
    by = np.lexsort((np.arange(len(district)), district))
    d, up, down = district[by], places[by], wants[by]
    first = np.append(True, d[1:] != d[:-1])[: len(d)]
    start = np.maximum.accumulate(np.where(first, np.arange(len(d)), 0))
    level = np.cumsum(up.astype(np.int64) - down)
    level = level - (level - (up.astype(np.int64) - down))[start]
    deeper = 4 * len(d) * np.cumsum(first)  # so that the least of one district ends where the next begins
    least = np.minimum(np.minimum.accumulate(level - deeper) + deeper, 0)
    before = np.append(0, least[:-1])[: len(d)]
    serves = down & ~(least < np.where(first, 0, before))
    number = _counted(up, start)
    served = _counted(serves, start)
    order, placed = np.full((2, len(d)), -1, np.int64)
    order[up] = d[up] * t.ORDERS + number[up]
    order[serves] = d[serves] * t.ORDERS + served[serves]
    known = np.flatnonzero(up)
    placed[serves] = by[known[np.searchsorted(order[known], order[serves])]]
    out = np.empty((2, len(d)), np.int64)
    out[0, by], out[1, by] = order, placed
    return out[0], out[1]


def _counted(those: Bools, start: Ints) -> Ints:
    """Count from 1 on in each district."""
    total = np.cumsum(those)
    return total - (total - those)[start]
