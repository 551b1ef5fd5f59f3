"""The auditor of the pipeline: which row changes are owed to the downstream, and what each watermark has promised.

It reads what clients committed, what stores sent, what the downstream has, and believes no capture. It also is the
scheduler's auditor, whose invariants hold here too.

Invariants: ``Resolved Consistency`` (nothing committed at or below a sent resolved_ts comes after it),
``Watermarks Are Monotone``, ``Checkpoint Below Resolved``, ``Rows In Order`` (of each table), ``Processors In Order``
(TiCDC's MQ design: a processor puts out its rows by commit_ts), ``Transactions Whole`` (a database gets all rows that a
transaction has in a table at once), ``No Row Lost``, ``DDL Barrier`` and ``Nothing Delivered Twice`` (where promised).

The proof in TiCDC's MQ design is three of them: ``Global Resolved`` (it is MaxUint64 by that rule), ``Processor
Checkpoint`` (a processor's CheckpointTS is below every commit_ts of its tables that is not written) and ``Partition
Resolved`` (the watermark in every partition is below every commit_ts that is not written).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ticdc_lab.machines.machine import Address, Send
from ticdc_lab.simulate.kernel import Kernel
from ticdc_lab.simulate.pipeline.cdc_messages import COMMIT, COMMITTED, Entries, ResolvedTs
from ticdc_lab.simulate.pipeline.consumer import CONSUMER
from ticdc_lab.simulate.pipeline.consumer_monitor import ConsumerMonitor
from ticdc_lab.simulate.pipeline.downstream import DdlEntry, DownstreamState, Mark, Partitions, Rows, entries
from ticdc_lab.simulate.pipeline.settings import AT_LEAST_ONCE, AT_MOST_ONCE, BASE, BY_SNAPSHOT, MQ
from ticdc_lab.simulate.pipeline.sink_messages import DOWNSTREAM, Write
from ticdc_lab.simulate.pipeline.tables import WIDTH, Change, shown, table_of
from ticdc_lab.simulate.pipeline.tidb import TIDB
from ticdc_lab.simulate.pipeline.tidb_state import Item, TidbState
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.executor import MAX_TS, REPLICATING, Executor
from ticdc_lab.simulate.scheduler.monitor import Found, SchedulerMonitor

RESOLVED, MONOTONE, BELOW, ORDERED, PROCESSOR, WHOLE, LOST, BARRIER, TWICE, GLOBAL, PROOF, PARTITION = INVARIANTS = (
    "Resolved Consistency",
    "Watermarks Are Monotone",
    "Checkpoint Below Resolved",
    "Rows In Order",
    "Processors In Order",
    "Transactions Whole",
    "No Row Lost",
    "DDL Barrier",
    "Nothing Delivered Twice",
    "Global Resolved",
    "Processor Checkpoint",
    "Partition Resolved",
)


@dataclass(slots=True)
class RowMeasures:
    """What a run brought."""

    # Row changes that clients committed after the start of the changefeed, and those that came downstream.
    committed: int = 0
    delivered: int = 0
    repeated: int = 0  # deliveries beyond the first
    ddls: int = 0  # DDL jobs that were executed


@dataclass(slots=True)
class PipelineMonitor:
    """Watches one run."""

    scheduler: SchedulerMonitor  # the auditor of the table scheduler
    items: Sequence[Item]  # what clients do
    roles: Mapping[str, str]  # what each node is: its name without number
    start_ts: int  # where the changefeed starts; what was committed at or before it is not owed
    # What is promised: ``ordered`` where rows leave each processor by commit_ts, ``whole`` where the downstream takes
    # transactions.
    semantics: str = AT_LEAST_ONCE
    rule: str = BASE
    ordered: bool = False
    whole: bool = False
    stops_at_violation: bool = True
    # Keys by commit_ts that are committed and not yet downstream, and these commit_ts in order.
    owed: dict[int, set[int]] = field(default_factory=dict)
    order: deque[int] = field(default_factory=deque)
    # DDL jobs that are done upstream and not downstream, by finished_ts.
    jobs: dict[int, str] = field(default_factory=dict)
    executed: set[int] = field(default_factory=set)
    # The last resolved_ts of each stream, by capture and request.
    told: dict[tuple[Address, int], int] = field(default_factory=dict)
    # The number and the last commit_ts of what a capture wrote last of a table, of 0: of all.
    written: dict[tuple[Address, int], tuple[int, int]] = field(default_factory=dict)
    seen: set[tuple[int, int]] = field(default_factory=set)
    keys: dict[int, Mapping[int, int]] = field(default_factory=dict)
    newest_ts: int = 0
    mark_ts: int = 0
    measures: RowMeasures = field(default_factory=RowMeasures)
    n_violations: int = 0
    consumer: ConsumerMonitor | None = None  # watches what reads the topic, where the run has one
    only: frozenset[int] | None = None  # ids of the tables that the changefeed's filter lets through; None for all

    @property
    def n_owed(self) -> int:
        """Row changes that are committed and not downstream."""
        return sum(map(len, self.owed.values()))

    def saw(self, kernel: Kernel, at: Address, before: Any, after: Any, outputs: Sequence[Any]) -> Found:
        role = self.roles[kernel.node[at]]
        if role == "tikv":
            found = self._told(outputs)
        elif role == "capture":
            found = self.scheduler.saw(kernel, at, before, after, outputs) or self._moved(at, before, after, outputs)
        elif role == DOWNSTREAM:
            found = self._arrived(before, after)
        elif role == TIDB:
            self._committed(after)
            found = None
        elif role == CONSUMER and self.consumer is not None:
            found = self.consumer.saw(before, after)
        elif role == ETCD:
            found = self.scheduler.saw(kernel, at, before, after, outputs) or self._published(before, after)
        else:
            found = None
        self.n_violations += found is not None
        return found if self.stops_at_violation else None

    def went_down(self, kernel: Kernel, at: Address, state: Any) -> Found:
        return self.scheduler.went_down(kernel, at, state) if self._is_capture(kernel, at) else None

    def came_up(self, kernel: Kernel, at: Address, state: Any) -> Found:
        return self.scheduler.came_up(kernel, at, state) if self._is_capture(kernel, at) else None

    def _is_capture(self, kernel: Kernel, at: Address) -> bool:
        return self.roles[kernel.node[at]] == "capture"

    # Upstream

    def _committed(self, after: TidbState) -> None:
        for commit_ts, _, number in after.decided:
            item = self.items[number]
            if commit_ts <= self.start_ts:
                continue
            if item.job:
                if self.only is None or not item.tables or not self.only.isdisjoint(item.tables):
                    self.jobs[commit_ts] = item.job.query
                continue
            keys = set(item.keys)
            if self.only is not None:
                keys = {key for key in keys if table_of(key) in self.only}
                if not keys:
                    continue
            self.owed[commit_ts] = keys
            if self.whole:
                self.keys[commit_ts] = Counter(map(table_of, keys))
            self.order.append(commit_ts)
            self.measures.committed += len(item.keys) if self.only is None else len(keys)
            if self.consumer is not None:
                self.consumer.owes(commit_ts, keys)

    def _told(self, outputs: Iterable[Any]) -> Found:
        told = self.told
        for output in outputs:
            if type(output) is not Send:
                continue
            to, message = output
            if type(message) is ResolvedTs:
                for request_id, region in message.regions:
                    if message.ts < told.get((to, request_id), 0):
                        return MONOTONE, f"region {region} sent {to} {message.ts} after {told[to, request_id]}"
                    told[to, request_id] = message.ts
            elif type(message) is Entries:
                known = told.get((to, message.request_id), 0)
                for row in message.rows:
                    if 0 < row[3] <= known and row.type in (COMMIT, COMMITTED):
                        return RESOLVED, f"{shown(row.key)} of {row.commit_ts} comes to {to} after resolved_ts {known}"
        return None

    # Captures

    def _moved(self, at: Address, before: Any, after: Any, outputs: Iterable[Any]) -> Found:
        if before is not None:
            found = self._marks(at, before.processor.executor, after.processor.executor)
            if found:
                return found
            if self.written and after.processor.executor.pipelines is not before.processor.executor.pipelines:
                self._forget(at, before.processor.executor, after.processor.executor)
        for output in outputs:
            if type(output) is Send and type(output.message) is Write:
                found = self._ordered(at, output.message)
                if found:
                    return found
        return None

    def _marks(self, at: Address, before: Executor, after: Executor) -> Found:
        if after.marks is before.marks:
            return None
        for key, new in after.marks.items():
            old = before.marks.get(key)
            if old is new:
                continue
            if new.checkpoint_ts > new.resolved_ts:
                return BELOW, f"table {key} on {at}: checkpoint {new.checkpoint_ts} is above {new.resolved_ts}"
            fell = old is not None and (new.checkpoint_ts < old.checkpoint_ts or new.resolved_ts < old.resolved_ts)
            if fell and key in before.pipelines and before.pipelines[key].start_ts == after.pipelines[key].start_ts:
                return MONOTONE, f"table {key} on {at} fell from {old} to {new}"
            found = self._unwritten(at, key, new.checkpoint_ts)
            if found:
                return found
        return None

    def _unwritten(self, at: Address, key: Any, checkpoint_ts: int) -> Found:
        """See whether a processor's checkpoint of a table has passed a row of it that is not downstream."""
        oldest = self._oldest()
        if oldest is None or oldest > checkpoint_ts or self.rule != MQ or self.semantics == AT_MOST_ONCE:
            return None
        table = key if isinstance(key, int) else key.table
        late = [k for k in self.owed[oldest] if table_of(k) == table]
        if not late or not isinstance(key, int):
            return None
        return PROOF, f"{at} has table {key} at {checkpoint_ts}, and {shown(min(late))} of {oldest} is not downstream"

    def _forget(self, at: Address, before: Executor, after: Executor) -> None:
        """A table that comes to a capture, again or for the first time, begins at its start."""
        for one in [w for w in self.written if w[0] == at and w[1] and w[1] not in after.pipelines]:
            del self.written[one]
        if (at, 0) not in self.written:
            return
        for key, pipeline in after.pipelines.items():
            old = before.pipelines.get(key)
            if pipeline.state == REPLICATING and (old is None or old.state != REPLICATING):
                last_id, last_ts = self.written[at, 0]
                self.written[at, 0] = (last_id, min(last_ts, pipeline.start_ts))

    def _ordered(self, at: Address, write: Write) -> Found:
        if self.ordered:
            found = self._follows(at, 0, write.id, write.changes, PROCESSOR)
            if found:
                return found
        by_table: defaultdict[int, list[Change]] = defaultdict(list)
        for change in write.changes:
            by_table[change[2] >> WIDTH].append(change)
        for table, changes in by_table.items():
            found = self._follows(at, table, write.id, changes, ORDERED)
            if found:
                return found
        return None

    def _follows(self, at: Address, table: int, number: int, changes: Sequence[Change], invariant: str) -> Found:
        last_id, last_ts = self.written.get((at, table), (-1, 0))
        if number <= last_id:
            return None  # it is sent again
        for change in changes:
            commit_ts = change[0]
            if commit_ts < last_ts:
                return invariant, f"{at} writes {shown(change.key)} of {commit_ts} after {last_ts}"
            last_ts = commit_ts
        self.written[at, table] = (number, last_ts)
        return None

    # Downstream

    def _arrived(self, before: DownstreamState | None, after: DownstreamState) -> Found:
        if before is None:
            return None
        found: Found = None
        if self.semantics == BY_SNAPSHOT:
            self._staged(before, after)
        if after.log is before.log:
            return found
        for entry in entries(after, before.log):
            if type(entry) is Rows:
                found = found or (self._torn(entry.changes) if self.whole else None) or self._rows(entry.changes)
            elif type(entry) is Mark:
                self.mark_ts = max(self.mark_ts, entry.ts)
                oldest = self._oldest()
                if oldest is not None and oldest <= entry.ts and self.semantics != AT_MOST_ONCE:
                    found = found or (
                        PARTITION,
                        f"the partitions are resolved up to {entry.ts}, and {self._one(oldest)}",
                    )
            elif type(entry) is DdlEntry:
                found = found or self._ddl(entry)
            elif type(entry) is Partitions:
                # At an Admin event consumers drop what they hold above the watermark: it is owed once more.
                known = entries(after)
                upto = next(n for n in range(len(known) - 1, -1, -1) if type(known[n]) is Partitions)
                rows = [c for e in known[:upto] if type(e) is Rows for c in e.changes if c.commit_ts > self.mark_ts]
                self._void(rows)
        return found

    def _torn(self, changes: Sequence[Change]) -> Found:
        """See whether what came at once has all rows that its transactions have in a table."""
        there: dict[tuple[int, int], set[int]] = {}
        for change in changes:
            there.setdefault((change.commit_ts, change.key >> WIDTH), set()).add(change.key)
        for (commit_ts, table), keys in there.items():
            n_rows = self.keys[commit_ts][table] if commit_ts in self.keys else 0
            if len(keys) < n_rows:
                return (
                    WHOLE,
                    f"{len(keys)} of {n_rows} rows of {commit_ts} in table {table} are written without the others",
                )
        return None

    def _rows(self, changes: Sequence[Change]) -> Found:
        owed, twice, found = self.owed, self.semantics != AT_LEAST_ONCE, None
        snapshot = self.semantics == BY_SNAPSHOT
        repeated = 0
        for change in changes:
            commit_ts, key = change.commit_ts, change.key
            keys = owed.get(commit_ts)
            if keys is not None and key in keys:
                keys.discard(key)
                if not keys:
                    del owed[commit_ts]
            elif not snapshot:
                repeated += 1
                if twice and found is None:
                    found = TWICE, f"{shown(key)} of {commit_ts} came again"
            if snapshot:
                if (commit_ts, key) in self.seen:
                    found = TWICE, f"{shown(key)} of {commit_ts} can be seen twice"
                self.seen.add((commit_ts, key))
        self.newest_ts = max(self.newest_ts, changes[-1].commit_ts)
        self.measures.delivered += len(changes)
        self.measures.repeated += repeated
        return found

    def _staged(self, before: DownstreamState, after: DownstreamState) -> None:
        """What is staged is downstream for good, unless a writer that begins makes it void: then it is owed again."""
        for table, staged in after.staged.items():
            known = before.staged.get(table, ())
            if staged is known:
                continue
            fresh, left = _compared(known, staged)
            if left:
                shown_now = [e for e in entries(after, before.log) if type(e) is Rows]
                published = {(c.commit_ts, c.key) for e in shown_now for c in e.changes}
                self._void([c for c in left if (c.commit_ts, c.key) not in published])
            for change in fresh:
                keys = self.owed.get(change.commit_ts)
                if keys is not None:
                    keys.discard(change.key)
                    if not keys:
                        del self.owed[change.commit_ts]

    def _void(self, changes: Sequence[Change]) -> None:
        again = sorted({c.commit_ts for c in changes} - self.owed.keys())
        for change in changes:
            self.owed.setdefault(change.commit_ts, set()).add(change.key)
        self.order = deque(sorted({*self.order, *again}))

    def _ddl(self, entry: DdlEntry) -> Found:
        again = entry.ts in self.executed
        self.executed.add(entry.ts)
        self.measures.ddls += not again
        self.jobs.pop(entry.ts, None)
        oldest = self._oldest()
        if oldest is not None and oldest <= entry.ts and self.semantics != AT_MOST_ONCE:
            return BARRIER, f"the DDL of {entry.ts} is executed, and {self._one(oldest)}"
        if self.rule == BASE and self.newest_ts > entry.ts and not again:
            return BARRIER, f"the DDL of {entry.ts} is executed after a row of {self.newest_ts} was written"
        return None

    # The global watermarks

    def _published(self, before: Any, after: Any) -> Found:
        if before is None or after.checkpoint_ts == before.checkpoint_ts:
            return None
        checkpoint_ts = after.checkpoint_ts
        if self.rule == MQ and after.resolved_ts != MAX_TS:
            return GLOBAL, f"the global resolved_ts is {after.resolved_ts}, and by the MQ rule it is MaxUint64"
        if checkpoint_ts > after.resolved_ts:
            return BELOW, f"the global checkpoint {checkpoint_ts} is above the global resolved_ts {after.resolved_ts}"
        oldest = self._oldest()
        if oldest is not None and oldest <= checkpoint_ts and self.semantics != AT_MOST_ONCE:
            return LOST, f"the global checkpoint is {checkpoint_ts}, and {self._one(oldest)}"
        passed = min((ts for ts in self.jobs if ts < checkpoint_ts), default=None)
        if passed is not None:
            return BARRIER, f"the global checkpoint is {checkpoint_ts}, and the DDL of {passed} is not executed"
        return None

    def _oldest(self) -> int | None:
        order, owed = self.order, self.owed
        while order and order[0] not in owed:
            order.popleft()
        return order[0] if order else None

    def _one(self, commit_ts: int) -> str:
        return f"{shown(min(self.owed[commit_ts]))} of {commit_ts} is not downstream"


def _compared(known: tuple[Change, ...], staged: tuple[Change, ...]) -> tuple[Sequence[Change], Sequence[Change]]:
    """Give what came to the staged changes of a table, and what left them."""
    n = len(known)
    if not known or (len(staged) >= n and staged[0] is known[0] and staged[n - 1] is known[-1]):
        return staged[n:], ()
    old, new = {id(c) for c in known}, {id(c) for c in staged}
    return [c for c in staged if id(c) not in old], [c for c in known if id(c) not in new]
