"""What a lane touches by kind of workload, its changes, the states of rows around them, and the events they become."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.events import tso
from ticdc_lab.events.arrays import Bools, Ints
from ticdc_lab.events.schema import EVENTS, IMAGES
from ticdc_lab.workload import tpcc
from ticdc_lab.workload.chains import DELETE, INSERT, LaneChanges, Touches, changes_of, together, touches, united
from ticdc_lab.workload.columns import States, in_runs, mixed, rng_of, weighted
from ticdc_lab.workload.definitions import Definition
from ticdc_lab.workload.settings import BANK, HOT_KEYS, TPCC
from ticdc_lab.workload.shape import BIG, GENESIS, LOADED_AT_ONCE, MOVED, Shape, weights_of

# Bank: what one account loses another gains, at every commit_ts. A lane has a vault (account `lane` + 1) that all
# other accounts are opened from and closed into, and each `lanes`-th account above it. A transfer changes two accounts
# and adds a row to the journal.

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


# Hot keys: key r is wanted with a chance in proportion to 1 / r ** `zipf`, about. A lane has each `lanes`-th key, and
# as many transactions as these are worth. A transaction touches up to four rows: the same key in table after table.
# Half of the deletes are halves of an update of the key: the transaction also inserts a row with a key that was never
# there.

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
    """Rows of table 0, other ones for each table, replace a table's while it is dropped."""
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


_OPS = pa.array(["insert", "update", "delete"], pa.string())
_CELL = arrow_schema(EVENTS).field("columns").type.value_type


class TableValues:
    """Values of some rows, collected table by table, and put row by row in the end."""

    def __init__(self) -> None:
        self.values: list[pa.Array] = []
        self.names: list[str] = []
        self.types: list[str] = []
        self.keys: list[bool] = []
        self.parts: list[tuple[Ints, Ints, int]] = []
        """Rows, where the values of each begin, and which column is the first."""
        self.filled = 0

    def add(self, rows: Ints, columns: list[pa.Array], of: Definition) -> None:
        """Add the columns of some rows of one definition."""
        self.parts.append((rows, self.filled + np.arange(len(rows)), len(self.names)))
        self.values += columns
        self.filled += len(rows) * len(columns)
        self.names += [f.name for f in of.fields]
        self.types += [f.mysql_type for f in of.fields]
        self.keys += [f.is_key for f in of.fields]

    def images(self, width: Ints, there: Bools) -> pa.Array:
        """Give the image of each row, null where it is not ``there``; ``width`` columns each."""
        ends = np.append(0, np.cumsum(np.where(there, width, 0)))
        value, column = np.empty((2, int(ends[-1])), np.int32)
        for rows, first, name in self.parts:
            n = int(width[rows[0]]) if len(rows) else 0
            step = np.arange(n)
            cells = ends[rows][:, None] + step
            value[cells] = first[:, None] + len(rows) * step
            column[cells] = name + step
        kind = pa.array(column)
        flat = pa.StructArray.from_arrays(
            [
                pa.array(self.names, pa.string()).take(kind),
                pa.array(self.types, pa.string()).take(kind),
                pa.concat_arrays(self.values).take(pa.array(value)) if self.values else pa.nulls(0, pa.string()),
                pa.array(self.keys, pa.bool_()).take(kind),
                pa.nulls(len(kind), pa.int64()),
            ],
            fields=list(_CELL),
        )
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat, type=pa.list_(_CELL), mask=pa.array(~there))


def events_of(changes: LaneChanges, shape: Shape, rows: int) -> Iterator[pa.RecordBatch]:
    """Give the changes as events without ``kind``, ``rows`` at once."""
    for first in range(0, len(changes.slot), rows):
        yield _events(changes, np.arange(first, min(first + rows, len(changes.slot))), shape)


def _events(c: LaneChanges, at: Ints, shape: Shape) -> pa.RecordBatch:
    """Give the events of the changes ``at``."""
    op, former = c.op[at], c.former[at]
    after, before = TableValues(), TableValues()
    width, which = np.zeros(len(at), np.int64), np.empty(len(at), np.int32)
    defined: list[Definition] = []
    for definition, rows in groups(c, at, shape):
        width[rows], which[rows] = len(definition.fields), len(defined)
        defined.append(definition)
        new, old = rows[op[rows] != DELETE], rows[op[rows] != INSERT]
        states = states_of(c, np.append(at[new], former[old]), shape)
        values = [f.values(states) for f in definition.fields]
        after.add(new, [v.slice(0, len(new)) for v in values], definition)
        before.add(old, [v.slice(len(new)) for v in values], definition)
    images = (after.images(width, op != DELETE), before.images(width, op != INSERT))
    slot, of = c.slot[at], pa.array(which)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(shape.commit_ts_of(slot)),
            pa.array(shape.start_ts_of(slot)),
            pa.array([d.name for d in defined], pa.string()).take(of),
            pa.array([d.id for d in defined], pa.int64()).take(of),
            _OPS.take(pa.array(op)),
            *images,
            pa.array(slot),
            pa.array(c.seq[at], pa.int32()),
        ],
        names=["commit_ts", "start_ts", "table_name", "table_id", "op", *IMAGES, "offset", "seq"],
    )


def groups(c: LaneChanges, at: Ints, shape: Shape) -> Iterator[tuple[Definition, Ints]]:
    """Give the places in ``at`` of each definition."""
    most = 1 + max(len(d) for d in shape.plan.definitions)
    code = c.table[at] * most + c.definition[at]
    order = np.argsort(code, kind="stable")
    found, starts = np.unique(code[order], return_index=True)
    for of, rows in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
        yield shape.plan.definitions[of // most][of % most], rows
