"""All changes of a lane, and the states of rows before and after them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ticdc_lab.events import tso
from ticdc_lab.events.arrays import Ints
from ticdc_lab.workload import bank, hot_keys, tpcc
from ticdc_lab.workload.chains import LaneChanges, changes_of
from ticdc_lab.workload.columns import States
from ticdc_lab.workload.draws import mixed
from ticdc_lab.workload.settings import BANK, HOT_KEYS, TPCC
from ticdc_lab.workload.shape import BIG, GENESIS, Shape
from ticdc_lab.workload.touches import Touches

_TOUCHES: Mapping[str, Callable[[Shape, int], Touches]] = {
    BANK: bank.touches_of,
    TPCC: tpcc.touches_of,
    HOT_KEYS: hot_keys.touches_of,
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
