"""The auditor of the consumer inside a run: what it owes its database, and what each watermark and DDL has promised.

``Consumer Rows In Order``: no row goes back to an older version. ``Consumer Loses No Row``: what is committed up to the
lowest watermark that the consumer has read is executed. ``Consumer DDL Barrier``: a DDL is executed behind all rows up
to it and before every row above it. ``Consumer Transactions Whole``: one that restores transactions never shows a part
of one; by conflict detection no other shows a part of what a transaction changes in a table either.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ticdc_lab.simulate.pipeline.consumer import ConsumerExecuted, ConsumerState, newest_first, resolved_ts
from ticdc_lab.simulate.pipeline.settings import BY_TRANSACTION
from ticdc_lab.simulate.pipeline.tables import shown, table_of
from ticdc_lab.simulate.scheduler.monitor import Found

ORDER, LOST, BARRIER, WHOLE = CONSUMER_INVARIANTS = (
    "Consumer Rows In Order", "Consumer Loses No Row", "Consumer DDL Barrier", "Consumer Transactions Whole",
)  # fmt: skip


@dataclass(slots=True)
class ConsumerMonitor:
    """Watches a consumer."""

    mode: str | None  # what it restores
    loses: bool = False  # whether the changefeed may lose rows (at most once), so that none can be asked for
    # Whether what a transaction changes in a table is shown at once, instead of the whole transaction.
    by_table: bool = False
    # Keys by commit_ts that are committed and not executed, and these commit_ts in order.
    owed: dict[int, set[int]] = field(default_factory=dict)
    order: deque[int] = field(default_factory=deque)
    # Rows of each transaction, by commit_ts, in each table, or under 0 in all.
    sizes: dict[tuple[int, int], int] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)  # the commit_ts that a row has
    highest_ts: int = 0
    n_executed: int = 0

    def owes(self, commit_ts: int, keys: set[int]) -> None:
        """Take a transaction that was committed upstream."""
        self.owed[commit_ts] = set(keys)
        parts = [self._part(key) for key in keys]
        self.sizes |= {(commit_ts, part): parts.count(part) for part in parts}
        self.order.append(commit_ts)

    def saw(self, before: ConsumerState | None, after: ConsumerState) -> Found:
        if before is None:
            return None
        for one in reversed(list(newest_first(after.done, before.done))):
            found = self._ddl(one) if one.ddl is not None else self._rows(one)
            if found:
                return found
        upto_ts = resolved_ts(after)
        if upto_ts == resolved_ts(before) or self.loses:
            return None
        oldest = self._oldest()
        if oldest is not None and oldest <= upto_ts:
            key = shown(min(self.owed[oldest]))
            return LOST, f"all partitions are resolved up to {upto_ts}, and {key} of {oldest} is not executed"
        return None

    def _rows(self, one: ConsumerExecuted) -> Found:
        there: dict[tuple[int, int], set[int]] = {}
        for change in one.changes:
            commit_ts, key = change.commit_ts, change.key
            there.setdefault((commit_ts, self._part(key)), set()).add(key)
            if commit_ts < self.newest.get(key, 0):
                return ORDER, f"{shown(key)} goes back from {self.newest[key]} to {commit_ts}"
            self.newest[key] = commit_ts
            self.highest_ts = max(self.highest_ts, commit_ts)
            keys = self.owed.get(commit_ts)
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del self.owed[commit_ts]
        self.n_executed += len(one.changes)
        if (self.mode != BY_TRANSACTION and not self.by_table) or self.loses:
            return None
        for (commit_ts, part), seen in there.items():
            n = self.sizes.get((commit_ts, part), 0)
            if len(seen) < n and any(self._part(key) == part for key in self.owed.get(commit_ts, ())):
                return WHOLE, f"{len(seen)} of the {n} rows of {commit_ts} are shown without the others"
        return None

    def _part(self, key: int) -> int:
        return table_of(key) if self.by_table else 0

    def _ddl(self, one: ConsumerExecuted) -> Found:
        assert one.ddl is not None
        ts, oldest = one.ddl.ts, self._oldest()
        if oldest is not None and oldest <= ts and not self.loses:
            return BARRIER, f"the DDL of {ts} is executed, and {shown(min(self.owed[oldest]))} of {oldest} is not"
        if self.highest_ts > ts:
            return BARRIER, f"the DDL of {ts} is executed behind a row of {self.highest_ts}"
        return None

    def _oldest(self) -> int | None:
        while self.order and self.order[0] not in self.owed:
            self.order.popleft()
        return self.order[0] if self.order else None
