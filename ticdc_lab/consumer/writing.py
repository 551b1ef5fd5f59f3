"""What a release of row changes becomes downstream: their order, and which of them become visible together."""

from __future__ import annotations

import numpy as np

from ticdc_lab.consumer.log import Ints, NarrowLog
from ticdc_lab.consumer.policy import Policy
from ticdc_lab.neighbours import changes_in


def ordered(log: NarrowLog, policy: Policy, places: Ints, listener: Ints) -> tuple[Ints, Ints]:
    """Order released row changes, and number the downstream transactions that write them.

    Parameters
    ----------
    log, policy
        The log; ``policy.writes`` decides.
    places
        Released row changes, in the order in which each listener read them.
    listener
        Number of the listener of each.

    Returns
    -------
    places, batch
        In the order of writing; ``batch`` counts from 0.
    """
    ts, table = log.commit_ts[places], log.table[places]
    parts: tuple[Ints, ...]
    if policy.writes == "transaction":
        rank = log.op_rank[places]
        order, parts = np.lexsort((places, listener, rank, ts)), (ts,)
    elif policy.writes == "group":
        order, parts = np.lexsort((ts, table, listener)), (listener, table, ts)
    else:
        order, parts = np.lexsort((ts, listener)), (listener,)
    return places[order], np.cumsum(changes_in(*[part[order] for part in parts])) - 1
