"""The DDL puller of a capture: the keys of DDL jobs as a table of their own; its jobs in order make the schema."""

from __future__ import annotations

from bisect import bisect_left

from ticdc_lab.simulate.pipeline.capture import sink
from ticdc_lab.simulate.pipeline.capture.desk import Desk
from ticdc_lab.simulate.pipeline.capture.path_state import Row
from ticdc_lab.simulate.pipeline.capture.puller import begun, frontier_ts
from ticdc_lab.simulate.pipeline.capture.schema import applied, pruned, snapshot
from ticdc_lab.simulate.pipeline.capture.state import Ddl
from ticdc_lab.simulate.pipeline.keys import META, handle_of, span_of
from ticdc_lab.simulate.pipeline.tables import Job, TableInfo


def fresh(tables: tuple[TableInfo, ...], at_us: int) -> Ddl:
    """Give one that knows the tables before any job; all jobs come from its scan, also those before the changefeed."""
    return Ddl(begun(*span_of(META), 0, at_us), snapshot(tables))


def received(desk: Desk, rows: list[Row]) -> None:
    """Keep jobs until they are resolved."""
    desk.ddl = desk.ddl._replace(rows=tuple(sorted((*desk.ddl.rows, *rows))))


def advanced(desk: Desk) -> bool:
    """Apply the jobs that are resolved now; say whether resolved_ts rose."""
    puller = desk.ddl.puller
    resolved_ts = frontier_ts(puller)
    if resolved_ts == puller.resolved_ts:
        return False
    end = bisect_left(desk.ddl.rows, (resolved_ts + 1,))
    due, left = desk.ddl.rows[:end], desk.ddl.rows[end:]
    desk.ddl = desk.ddl._replace(puller=puller._replace(resolved_ts=resolved_ts), rows=left)
    for commit_ts, _, _, key, _, value, _ in sorted(due, key=lambda row: (row[0], row[3])):
        at = (commit_ts, handle_of(key))
        if isinstance(value, Job) and at > desk.ddl.applied:
            _apply(desk, commit_ts, value, at)
    return True


def _apply(desk: Desk, ts: int, job: Job, at: tuple[int, int]) -> None:
    unwritten = [row_ts - 1 for path in desk.paths.values() if (row_ts := sink.first_due_ts(path)) is not None]
    needed_ts = min(desk.inner.checkpoint_ts - 1, desk.duty.executed[0] if desk.duty else ts, *unwritten)
    ddl = desk.ddl
    desk.ddl = ddl._replace(
        schema=applied(pruned(ddl.schema, needed_ts), ts, job),
        jobs=(*(j for j in ddl.jobs if j[0] >= needed_ts), (ts, job)),
        applied=at,
    )
    desk.tell(META, None, f"job {job.id}", f"{job.query} finished at {ts}")
