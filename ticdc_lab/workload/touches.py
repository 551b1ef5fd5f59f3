"""What a lane does to its rows, before it is known whether that inserts, updates or deletes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ticdc_lab.events.arrays import Bools, Ints


class Touches(NamedTuple):
    """Row changes of a lane; arrays of one length.

    Attributes
    ----------
    slot, round
        Of its transaction.
    table, handle
        Which row.
    delete
        Delete the row if it is there; else, and without this, the row is there afterwards.
    add_0, add_1
        What is added to the sums of the row, which begin at 0 with its insert.
    fixed_0, fixed_1
        What an insert fixes.
    against
        Of which of these changes ``add_0`` is the opposite, by index, where that is known only when it is known
        whether it deletes: a delete takes all that has been added. -1: none.
    """

    slot: Ints
    round: Ints
    table: Ints
    handle: Ints
    delete: Bools
    add_0: Ints
    add_1: Ints
    fixed_0: Ints
    fixed_1: Ints
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
    """Put parts in commit order; in a transaction those of an earlier part come first."""
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
