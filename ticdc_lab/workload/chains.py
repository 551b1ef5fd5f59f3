"""Touches of rows in commit order, and the changes they are: what each does to its row, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ticdc_lab.events.arrays import Bools, Ints
from ticdc_lab.workload.shape import Shape


class Touches(NamedTuple):
    """Row changes of a lane; arrays of one length."""

    # ``slot``, ``round``: of its transaction.
    slot: Ints
    round: Ints
    # ``table``, ``handle``: which row.
    table: Ints
    handle: Ints
    delete: Bools  # delete the row if it is there; else, and without this, the row is there afterwards
    # ``add_0``, ``add_1``: what is added to the sums of the row, which begin at 0 with its insert.
    add_0: Ints
    add_1: Ints
    # ``fixed_0``, ``fixed_1``: what an insert fixes.
    fixed_0: Ints
    fixed_1: Ints
    # The change that ``add_0`` reverts, by index, where that is known only when it is known whether
    # it deletes: a delete takes all that has been added. -1: none.
    against: Ints


def touches(slot: Ints, round_: Ints, table: Ints | int, handle: Ints, *, delete: Bools | bool = False,
            add_0: Ints | int = 0, add_1: Ints | int = 0, fixed_0: Ints | int = 0, fixed_1: Ints | int = 0,
            against: Ints | int = -1) -> Touches:  # fmt: skip
    """Make them of arrays and of numbers that hold for all."""

    def whole(value: Ints | int) -> Ints:
        return np.broadcast_to(np.asarray(value, np.int64), slot.shape)

    return Touches(
        slot, round_, whole(table), handle, np.broadcast_to(np.asarray(delete, np.bool_), slot.shape), whole(add_0),
        whole(add_1), whole(fixed_0), whole(fixed_1), whole(against),
    )  # fmt: skip


def united(parts: Sequence[Touches]) -> Touches:
    """Put parts in commit order; in a transaction an earlier part's come first."""
    ends = np.cumsum([0] + [len(p.slot) for p in parts])
    moved = [
        p._replace(against=np.where(p.against < 0, -1, p.against + at)) for p, at in zip(parts, ends, strict=False)
    ]
    whole = together(moved)
    return picked(whole, np.argsort(whole.slot, kind="stable"))


def together(parts: Sequence[Touches]) -> Touches:
    """Put parts one behind the other as they are; ``against`` counts from the beginning of the whole."""
    return Touches(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def picked(those: Touches, at: Ints) -> Touches:
    """Take some, in the order of ``at``."""
    place = np.full(len(those.slot) + 1, -1, np.int64)
    place[at] = np.arange(len(at))
    out = those._replace(**{name: column[at] for name, column in those._asdict().items()})
    return out._replace(against=place[out.against])


INSERT, UPDATE, DELETE = range(3)
_OF_TABLE, _OF_INCARNATION = 1 << 50, 1 << 40


class LaneChanges(NamedTuple):
    """Row changes of a lane in commit order; arrays of one length."""

    slot: Ints
    round: Ints
    table: Ints
    definition: Ints  # index of the table's definition, in :attr:`Shape.plan` and there in ``definitions[table]``
    handle: Ints
    op: Ints  # one of the constants above
    former: Ints  # index of the change of the same row before it; -1 for an insert
    seq: Ints  # place in the transaction, as far as it lies in this lane
    # ``version``, ``life``, ``sum_0``, ``sum_1``, ``fixed_0``, ``fixed_1``, ``born``: what
    # :class:`ticdc_lab.workload.columns.States` is made of; ``life`` numbers the lives of a row, ``born`` is the index
    # of the insert.
    version: Ints
    life: Ints
    sum_0: Ints
    sum_1: Ints
    fixed_0: Ints
    fixed_1: Ints
    born: Ints


def changes_of(those: Touches, shape: Shape) -> LaneChanges:
    """Follow each row through its lane; touches of tables that are dropped fall away."""
    those, definition, incarnation = _defined(those, shape)
    code = those.table * _OF_TABLE + incarnation * _OF_INCARNATION + those.handle
    order = np.argsort(code, kind="stable")
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    first = np.append(True, code[order][1:] != code[order][:-1])[: len(order)]
    inserts, deletes = _ops(first, those.delete[order])
    at = np.arange(len(order))
    born = np.maximum.accumulate(np.where(inserts, at, 0))
    lives = np.cumsum(inserts)
    chain = np.maximum.accumulate(np.where(first, at, 0))
    add_0 = _settled(those, order, back, born, deletes)
    op = np.where(inserts, INSERT, np.where(deletes, DELETE, UPDATE))
    starts = np.append(True, those.slot[1:] != those.slot[:-1])[: len(order)]
    return LaneChanges(
        those.slot, those.round, those.table, definition, those.handle, op[back],
        np.where(inserts, -1, np.append(-1, order[:-1])[: len(order)])[back],
        at - np.maximum.accumulate(np.where(starts, at, 0)), (at - born)[back], (lives - lives[chain])[back],
        _summed(add_0, born)[back], _summed(those.add_1[order], born)[back], those.fixed_0[order][born][back],
        those.fixed_1[order][born][back], order[born][back],
    )  # fmt: skip


def _defined(those: Touches, shape: Shape) -> tuple[Touches, Ints, Ints]:
    """Give the touches of tables that are there, and the definition and incarnation of each."""
    definition, incarnation = np.zeros((2, len(those.slot)), np.int64)
    there = np.ones(len(those.slot), np.bool_)
    for table, versions in enumerate(shape.plan.definitions):
        if len(versions) == 1:
            continue
        here = np.flatnonzero(those.table == table)
        found = np.searchsorted([d.since for d in versions], those.round[here], side="right") - 1
        definition[here] = found
        incarnation[here] = np.array([d.incarnation for d in versions])[found]
        there[here] = np.array([d.id is not None for d in versions])[found]
    if there.all():
        return those, definition, incarnation
    kept = np.flatnonzero(there)
    return picked(those, kept), definition[kept], incarnation[kept]


def _ops(first: Bools, delete: Bools) -> tuple[Bools, Bools]:
    """Decide which touches insert and which delete: of deletes in a row every second one finds no row and inserts."""
    at = np.arange(len(first))
    there = (at - np.maximum.accumulate(np.where(first | ~delete, at, 0))) % 2 == 0
    before = np.append(False, there[:-1])[: len(first)] & ~first
    return ~before, ~there


def _settled(those: Touches, order: Ints, back: Ints, born: Ints, deletes: Bools) -> Ints:
    """What is added to the first sums, in row order, when deletes and what stands against them are known."""
    add = those.add_0[order]
    against = those.against[order]
    opposite = np.flatnonzero(against >= 0)
    if len(opposite) == 0:
        return add
    before = _summed(add, born) - add
    add = np.where(deletes, -before, add)
    add[opposite] = -add[back[against[opposite]]]
    return add


def _summed(add: Ints, born: Ints) -> Ints:
    """Add up from the insert on."""
    total = np.cumsum(add)
    return total - (total - add)[born]
