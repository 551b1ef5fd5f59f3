"""Which range of commit_ts is applied when: a replay cut into batches, each one transaction of the target. No Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ticdc_lab.errors import ContractError

Home = tuple[str, int]
"""Topic and partition."""

TRANSACTION, ROW = "transaction", "row"
MODES = (TRANSACTION, ROW)


@dataclass(frozen=True, slots=True)
class TargetProgress:
    """How far a target is, as the target itself says.

    Attributes
    ----------
    mode
        ``transaction`` or ``row``.
    origin
        Names the log (:func:`ticdc_lab.consumer.replay.origin_of`).
    positions
        commit_ts (TSO) up to which the row changes of each partition are applied; 0 for none.
    ddl_ts
        commit_ts (TSO) up to which DDL are executed; 0 for none.
    """

    mode: str
    origin: str
    positions: Mapping[Home, int]
    ddl_ts: int = 0

    @property
    def ts(self) -> int:
        """commit_ts (TSO) up to which every partition is applied."""
        return min(self.positions.values(), default=0)


@dataclass(frozen=True, slots=True)
class Batch:
    """Row changes with ``since < commit_ts <= until`` (TSO), then the DDL of ``until``: one transaction of the target.

    ``home`` is the only partition whose row changes it holds, None for all; ``rows`` and ``ddl`` say whether it has
    any; ``after`` is what the target says once it is committed.
    """

    since: int
    until: int
    after: TargetProgress
    home: Home | None = None
    rows: bool = True
    ddl: bool = False


@dataclass(frozen=True, slots=True)
class Goal:
    """How far a replay goes.

    Attributes
    ----------
    resolved
        resolved_ts (TSO) of each partition.
    ddl
        commit_ts (TSO) of the log's DDL.
    cuts
        commit_ts (TSO) at which ranges are cut, so that no batch is too large.
    until
        Where to stop (TSO), None for as far as the log is resolved.
    """

    resolved: Mapping[Home, int]
    ddl: Sequence[int] = field(default=())
    cuts: Sequence[int] = field(default=())
    until: int | None = None

    @property
    def ts(self) -> int:
        """commit_ts (TSO) that all partitions reach."""
        resolved_ts = min(self.resolved.values(), default=0)
        return resolved_ts if self.until is None else min(self.until, resolved_ts)

    def limits(self, mode: str) -> Mapping[Home, int]:
        """How far (TSO) each partition goes; in row mode on to its own resolved_ts, but past no DDL that must wait."""
        if mode == TRANSACTION or self.until is not None:
            return dict.fromkeys(self.resolved, self.ts)
        barrier = min((ts for ts in self.ddl if ts > self.ts), default=None)
        return {home: ts if barrier is None else min(ts, barrier) for home, ts in self.resolved.items()}


def batches(before: TargetProgress, goal: Goal) -> Iterator[Batch]:
    """Cut what is left between a target's progress and the goal into batches, in the order they must be applied.

    In transaction mode a batch holds a range of every partition, so that the target is at each commit what the upstream
    was at the end of the range. In row mode it holds a range of one partition (MQ design: one listener a partition,
    which writes as soon as its own resolved_ts allows); only DDL wait until every partition is there.

    Raises
    ------
    ContractError
        The mode is unknown.
    """
    if before.mode not in MODES:
        raise ContractError(f"The mode is {before.mode!r}; expected one of {', '.join(MODES)}.")
    limits = goal.limits(before.mode)
    waiting = {ts for ts in goal.ddl if before.ddl_ts < ts <= goal.ts}
    ends = {ts for ts in (*goal.cuts, *limits.values()) if before.ts < ts <= max(limits.values(), default=0)}
    done = before
    for stop in sorted(waiting | ends):
        for home in [None] if before.mode == TRANSACTION else sorted(limits):
            since = done.ts if home is None else done.positions[home]
            until = stop if home is None else min(stop, limits[home])
            together = home is None and stop in waiting
            if until > since or together:
                reached = dict.fromkeys(limits, until) if home is None else {**done.positions, home: until}
                done = replace(done, positions=reached, ddl_ts=stop if together else done.ddl_ts)
                yield Batch(since, until, done, home, rows=until > since, ddl=together)
        if before.mode == ROW and stop in waiting:
            done = replace(done, ddl_ts=stop)
            yield Batch(stop, stop, done, rows=False, ddl=True)
