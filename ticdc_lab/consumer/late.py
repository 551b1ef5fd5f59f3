"""Row changes that a consumer throws away when it reads them, because it takes them for old."""

from __future__ import annotations

import numpy as np

from ticdc_lab.consumer.listener import Listener
from ticdc_lab.consumer.log import Bools, Ints, NarrowLog
from ticdc_lab.consumer.policy import Policy


class Late:
    """What each listener remembers of the tables in its partition, in memory.

    Parameters
    ----------
    log, policy
        The log; ``policy.late_rows`` decides.
    """

    def __init__(self, log: NarrowLog, policy: Policy) -> None:
        self._log, self._rule = log, policy.late_rows
        self.forget()

    def forget(self) -> None:
        """All processes have died."""
        of_each = (len(self._log.parts), len(self._log.tables))
        self._high, self._written_to = np.zeros(of_each, np.int64), np.zeros(of_each, np.int64)

    def written(self, m: Listener, ts: int, tables: Bools | None) -> None:
        """All that the listener held at or below ``ts`` is written, of all tables or some."""
        self._written_to[m.number, slice(None) if tables is None else tables] = ts

    def among(self, m: Listener, places: Ints, least: int) -> Bools:
        """Which row changes that a listener reads are late; ``least`` is the least watermark of all listeners."""
        ts, table = self._log.commit_ts[places], self._log.table[places]
        late: Bools = np.zeros(len(places), np.bool_)
        if self._rule == "applied":
            late = ts <= self._written_to[m.number, table]
        elif self._rule == "global":
            late = ts < least
        elif self._rule == "partition":
            late = (ts < m.resolved) | (ts < self._running_high(m, ts, table))
        return late

    def _running_high(self, m: Listener, ts: Ints, table: Ints) -> Ints:
        """The greatest commit_ts of each row's table that the listener has seen up to it."""
        high = np.empty_like(ts)
        for t in np.unique(table):
            own = table == t
            high[own] = np.maximum(np.maximum.accumulate(ts[own]), self._high[m.number, t])
            self._high[m.number, t] = high[own][-1]
        return high
