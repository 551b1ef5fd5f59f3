"""The consumer of the MQ design, and TiCDC's, as state machines over a recorded log.

Nothing here looks at a wall clock. Time is the consumer's own, in µs; what comes next is the earliest of all
listeners' next watermark, DDL or Admin event and the next fault, at equal times the lower partition. Row changes
between two such events are read in one piece, so that a run costs little more than sorting the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ticdc_lab.consumer.barriers import Admins, Barriers
from ticdc_lab.consumer.listener import Crash, Listener, Listeners, Pace, unwritten
from ticdc_lab.consumer.log import ADMIN, WATERMARK, NarrowLog
from ticdc_lab.consumer.policy import Policy
from ticdc_lab.consumer.record import DROPPED, FILTERED, FORGOTTEN, RunTrace
from ticdc_lab.engine.giving_up import still_wanted
from ticdc_lab.events.arrays import Bools, Ints, changes_in, lasts_in


def ordered(log: NarrowLog, policy: Policy, places: Ints, listener: Ints) -> tuple[Ints, Ints]:
    """Order released row changes, and number the downstream transactions that write them.

    ``log``, ``policy``: the log; ``policy.writes`` decides. ``places``: released row changes, in the order in which
    each listener read them. ``listener``: number of the listener of each. Returns: in the order of writing; ``batch``
    counts from 0.
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


class Late:
    """What each listener remembers of the tables in its partition, in memory.

    ``log``, ``policy``: the log; ``policy.late_rows`` decides.
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

    def discarded(self, m: Listener) -> None:
        """What the listener held above its watermark was discarded, and comes again."""
        self._high[m.number] = np.minimum(self._high[m.number], m.resolved)

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


@dataclass(frozen=True, eq=False, slots=True)
class ConsumerRun:
    """What happened."""

    # ``changes``, ``steps``: :data:`ticdc_lab.consumer.record.DELIVERIES` and ``STEPS``, as Arrow tables. The changes
    # are all that the log has of rows: the deliveries, and behind them what was not read.
    changes: pa.Table
    n_read: int  # how many of the changes are deliveries
    places: Ints  # for each of the changes its place in :attr:`ticdc_lab.consumer.log.NarrowLog.events`
    steps: pa.Table
    end_us: int  # when the last thing happened, µs
    resolved_ts: int  # the least watermark of all listeners at the end, 0 before the first

    @property
    def deliveries(self) -> pa.Table:
        """What became of every row change, each time it was read."""
        return self.changes.slice(0, self.n_read)

    @property
    def unread(self) -> pa.Table:
        """Row changes behind a DDL or Admin event at which their listener waits without end; outcome ``unread``."""
        return self.changes.slice(self.n_read)


def run(log: NarrowLog, policy: Policy, listeners: Listeners | None = None) -> ConsumerRun:
    """Let a consumer read a whole log.

    Parameters
    ----------
    log
        See :class:`ticdc_lab.consumer.log.NarrowLog`.
    policy
        The consumer's rules.
    listeners
        Speeds, pauses, crashes and moves; 10,000 messages a second each and no fault where left out.

    Returns
    -------
    Run
        The same arguments give the same run. Listeners that wait at a DDL or Admin event without end, because another
        one never gets it, end the run where they stand.

    References
    ----------
    MQ design, "Kafka Consumer 逻辑", "Partition 扩容与缩容"; TiCDC's source.
    """
    return _Consumer(log, policy, listeners or Listeners()).run()


class _Consumer:
    def __init__(self, log: NarrowLog, policy: Policy, how: Listeners) -> None:
        arrival = {"at once": np.zeros(len(log.kind), np.int64), "as recorded": log.arrival}.get(how.arrival)
        arrival = log.committed_arrival() if arrival is None else arrival
        self.log, self.policy, self.how = log, policy, how
        self.listeners = [
            Listener(
                i, part, part.partition % how.processes, part.first, Pace(log, part, how, arrival), saved=part.first
            )
            for i, part in enumerate(log.parts)
        ]
        self.trace = RunTrace(log)
        self.barriers = Barriers(log, policy, self)
        self.admins = Admins(log, self)
        self._faults = sorted(how.faults, key=lambda f: f.at_us)
        self._free = [0] * len(log.parts)
        self._up: defaultdict[int, int] = defaultdict(int)
        self._alone = policy.waits_for == "partition" and policy.late_rows in ("none", "partition")
        self.late = Late(log, policy)
        # it lies in the target: no crash takes it
        self._executed = np.full((len(log.parts) if policy.duplicates == "listener" else 1, len(log.tables)), -1)
        self.least = 0
        self._end = 0

    def run(self) -> ConsumerRun:
        while self._step():
            still_wanted()
        return ConsumerRun(*self.trace.changes(), self.trace.steps(), self._end, self.least)

    def _step(self) -> bool:
        """The next thing that happens; False where nothing can."""
        reading = [(*m.next_control(), m.number) for m in self.listeners if not m.stands and m.at < m.part.end]
        time, place, number = min(reading, key=lambda r: (r[0], r[2]), default=(-1, -1, -1))
        if self._faults and (number < 0 or self._faults[0].at_us <= time):
            self._fault()
            return True
        if number < 0:
            return False
        self._end = max(self._end, time)
        self._read_until(time, [self.listeners[number]] if self._alone and not self._faults else self.listeners)
        if place < self.listeners[number].part.end:
            self._control(self.listeners[number], place, time)
        self._note_ends()
        return True

    def _note_ends(self) -> None:
        for m in self.listeners:
            if m.at >= m.part.end and not m.stands and not m.ended:
                m.ended = True
                self.trace.step(m.clock, "end", listener=m.number)

    def _control(self, m: Listener, place: int, time: int) -> None:
        m.pass_control(time)
        if self.log.kind[place] == WATERMARK:
            self._watermark(m, place, time)
        elif self.log.kind[place] == ADMIN:
            self.admins.read(m, place, time)
        else:
            before = self.trace.batches
            self.barriers.read(m, place, time)
            if self.policy.saves == "read" and self.trace.batches > before:
                m.saved = m.at

    def _read_until(self, time: int, whose: Iterable[Listener]) -> None:
        for m in whose:
            if not m.stands and m.at < m.part.end and m.clock <= time:
                places, at = m.rows_until(time)
                if len(places):
                    self.trace.read(places, at)
                    late = self.late.among(m, places, self.least)
                    self.trace.settle(places[late], DROPPED)
                    m.hold(places[~late])

    def _watermark(self, m: Listener, place: int, time: int) -> None:
        ts = int(self.log.commit_ts[place])
        falls = "falls back, ignored" if ts < m.resolved else None
        self.trace.step(time, "resolved", listener=m.number, place=place, ts=ts, detail=falls)
        if not falls:
            m.resolved, m.marked_at = ts, place
        if self.policy.waits_for == "partition":
            self.least = self._least()
            self.release([m], m.resolved, time)
            self.barriers.watermark(time)
        else:
            self.resolve(time)
        if self.policy.saves == "read":
            m.saved = m.at

    def resolve(self, time: int) -> None:
        """Advance as far as the watermarks of all listeners allow: DDL, and rows where they wait for all."""
        self.least = self._least()
        self.barriers.watermark(time)
        if self.policy.waits_for == "all":
            self.release(self.listeners, self.least, time)

    def _least(self) -> int:
        return min((m.resolved for m in self.listeners if self.admins.counts(m)), default=0)

    def release(self, whose: list[Listener], ts: int, time: int, tables: Bools | None = None) -> int:
        """Write the rows at or below ``ts`` that ``whose`` listeners hold; when that is done, µs."""
        taken = [(m, m.take(self._due(m.waiting(), ts, tables))) for m in whose if m.lowest <= ts]
        for m in whose:
            self.late.written(m, ts, tables)
        if not taken:
            return time
        who = np.concatenate([np.full(len(p), m.number) for m, p in taken])
        places = np.concatenate([p for _, p in taken])
        fresh = self._fresh(places, who)
        self.trace.settle(places[~fresh], FILTERED)
        if not fresh.any():
            return time
        return self._write(places[fresh], who[fresh], time)

    def _due(self, held: Ints, ts: int, tables: Bools | None) -> Bools:
        due = self.log.commit_ts[held] <= ts
        return due if tables is None else due & tables[self.log.table[held]]

    def _fresh(self, places: Ints, who: Ints) -> Bools:
        if self.policy.duplicates == "none" or not len(places):
            return np.ones(len(places), np.bool_)
        record = who if self.policy.duplicates == "listener" else np.zeros_like(who)
        ts, table = self.log.commit_ts[places], self.log.table[places]
        fresh: Bools = ts >= self._executed[record, table]
        np.maximum.at(self._executed, (record, table), ts)
        return fresh

    def _write(self, places: Ints, who: Ints, time: int) -> int:
        places, batch = ordered(self.log, self.policy, places, who)
        writer = int(who[0]) if self.policy.waits_for == "partition" else 0
        begin = max(time, self._free[writer])
        at = begin + (batch + 1) * self.how.write_us
        self.trace.apply(places, at, batch)
        starts, ends = np.flatnonzero(changes_in(batch)), np.flatnonzero(lasts_in(batch))
        newest = np.maximum.reduceat(self.log.commit_ts[places], starts)
        alone = bool((who == who[0]).all())
        self.trace.writes(at[ends], newest, ends + 1 - starts, batch[ends], listener=int(who[0]) if alone else None)
        self.trace.batches += int(batch[-1]) + 1
        self._free[writer] = int(at[-1])
        if self.policy.waits_for == "partition" and self.how.write_us:
            self.listeners[writer].begin(self._free[writer])
        self._end = max(self._end, self._free[writer])
        return self._free[writer]

    def ddl_written(self, ts: int, query: str, time: int) -> int:
        """Execute a DDL downstream, alone; when it is done, µs."""
        end = self.idle_at(time) + self.how.write_us
        self._free = [end] * len(self._free)
        self.trace.step(end, "ddl", ts=ts, batch=self.trace.batches, detail=query)
        self.trace.batches += 1
        self._end = max(self._end, end)
        return end

    def idle_at(self, time: int) -> int:
        """When all that is being written is there, at ``time`` at the earliest."""
        return max([time, *self._free])

    def _fault(self) -> None:
        fault = self._faults.pop(0)
        time = self.idle_at(fault.at_us)
        self._read_until(time, self.listeners)
        if isinstance(fault, Crash):
            hit, action = [m for m in self.listeners if m.process == fault.process], "crash"
            self._up[fault.process] = begins = max(fault.back_us, self._up[fault.process])
        else:
            hit, action = [m for m in self.listeners if m.part.is_named(fault.topic, fault.partition)], "move"
            begins = max(fault.back_us, self._up[fault.to_process])
        pending = [*self.barriers.pending_places(), *(m.admin_at for m in self.listeners if m.admin_at >= 0)]
        for m in hit:
            if self.policy.saves == "unwritten":
                m.saved = unwritten(m, [p for p in pending if m.part.first <= p < m.part.end])
            lost = m.go_back(max(time, begins))
            self.trace.settle(lost, FORGOTTEN)
            self.trace.step(time, action, listener=m.number, rows=len(lost))
            self.trace.step(m.clock, "begin", listener=m.number, place=m.saved if m.saved < m.part.end else None)
            if not isinstance(fault, Crash):
                m.process = fault.to_process
        if len(hit) == len(self.listeners):
            self.late.forget()
            self.barriers.forget_memory()
        self.barriers.forget(hit)
        self._end = max(self._end, time)
