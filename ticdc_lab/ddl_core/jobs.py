"""A DDL job as an online schema change: one state further at a time, each only when every server has the last.

Between two states that are neighbours a server that is one behind writes nothing that another cannot read (the states
of Google's F1: none, delete only, write only, write reorganisation, public).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from ticdc_lab.ddl_core.records import (
    CANCELLED,
    CANCELLING,
    DONE,
    QUEUEING,
    ROLLED_BACK,
    ROLLING_BACK,
    RUNNING,
    Job,
)
from ticdc_lab.ddl_core.settings import Versions, unsupported

NONE, DELETE_ONLY, WRITE_ONLY, WRITE_REORG, PUBLIC = (
    "none",
    "delete only",
    "write only",
    "write reorganization",
    "public",
)
_UP = (NONE, DELETE_ONLY, WRITE_ONLY, WRITE_REORG, PUBLIC)
_DOWN = (PUBLIC, WRITE_ONLY, DELETE_ONLY, NONE)

LADDERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "create table": (NONE, PUBLIC),
        "drop table": _DOWN,
        "add column": _UP,
        "drop column": _DOWN,
        "add index": _UP,
        "drop index": _DOWN,
    }
)
"""The states a job of each kind leads through."""

BACKFILLED = frozenset({"add index"})


class JobMove(NamedTuple):
    """What comes next of a job."""

    job: Job  # as it is to be written; one that has come to an end goes to the history
    because: str  # in a sentence
    changes_schema: bool = False  # whether its element comes to ``job.schema_state``, at the next schema version


class JobWaits(NamedTuple):
    """Why nothing is done."""

    because: str
    rejected: tuple[tuple[str, str], ...] = ()


class SeenJob(NamedTuple):
    """What the owner knows when it looks at a job."""

    element: str  # the schema state of what the job changes, as stored
    global_version: int  # of the schema
    versions: tuple[tuple[str, int], ...]  # of each server, the owner among them, by ``ddl_id``
    snapshot_ts: int  # what the owner keeps GC from; 0 for nothing
    # ``batch``, ``workers``: rows of one step of a backfill, and workers that share them.
    batch: int
    service: Versions  # what is supported
    workers: int = 0
    most_errors: int = 512  # a job with more is taken back


def behind(version: int, versions: tuple[tuple[str, int], ...]) -> tuple[tuple[str, str], ...]:
    """Give (server, what it has) of those that have not loaded a version."""
    return tuple((server, f"has schema version {own} of {version}") for server, own in versions if own < version)


def advanced(job: Job, seen: SeenJob) -> JobMove | JobWaits:
    """Decide what the owner does next with a job."""
    if job.state == QUEUEING:
        return _begun(job, seen)
    late = behind(job.schema_version, seen.versions)
    if late:
        return JobWaits(f"{late[0][0]} {late[0][1]}", late)
    if job.state == CANCELLING:
        if not job.schema_version:
            return JobMove(job._replace(state=CANCELLED, error="cancelled by a user"), "it had not begun")
        if not is_taken_back(job):
            return JobMove(
                job._replace(state=RUNNING), f"{job.kind} cannot be cancelled any more: it is {job.schema_state}"
            )
        return JobMove(job._replace(state=ROLLING_BACK, error="cancelled by a user"), "a user cancelled it")
    if job.state == ROLLING_BACK:
        return _back(job, seen)
    ladder = LADDERS[job.kind]
    if (error := unsupported(job.version, seen.service)) and is_taken_back(job):  # a rival of another version began it
        return JobMove(job._replace(state=ROLLING_BACK, error=error), error)
    if job.schema_state == ladder[-1]:
        return JobMove(job._replace(state=DONE), f"every server has schema version {job.schema_version}")
    if job.schema_state == WRITE_REORG and job.kind in BACKFILLED and job.row_count < job.rows:
        return _backfilled(job, seen)
    return _on(job, seen, ladder[ladder.index(job.schema_state) + 1])


def _on(job: Job, seen: SeenJob, state: str) -> JobMove:
    version = seen.global_version + 1
    after = job._replace(schema_state=state, schema_version=version)
    return JobMove(after, f"{job.table}.{job.name or 'table'} becomes {state} at schema version {version}", True)


def _begun(job: Job, seen: SeenJob) -> JobMove:
    ladder = LADDERS.get(job.kind)
    error = unsupported(job.version, seen.service)
    if ladder is None:
        error = f"there is no job of kind {job.kind!r}"
    elif not error and seen.element != ladder[0]:
        error = f"{job.table}.{job.name or 'table'} is {seen.element}, and {job.kind} begins at {ladder[0]}"
    if error or ladder is None:
        return JobMove(job._replace(state=CANCELLED, error=error or ""), f"rejected: {error}")
    return _on(job._replace(state=RUNNING), seen, ladder[1])


def is_taken_back(job: Job) -> bool:
    """Whether what a job has changed can still be taken back."""
    return LADDERS[job.kind][-1] != NONE and job.schema_state != PUBLIC


def _back(job: Job, seen: SeenJob) -> JobMove:
    ladder = LADDERS[job.kind]
    if job.schema_state == ladder[0]:
        return JobMove(job._replace(state=ROLLED_BACK), f"every server has schema version {job.schema_version}")
    return _on(job, seen, ladder[ladder.index(job.schema_state) - 1])


def _backfilled(job: Job, seen: SeenJob) -> JobMove | JobWaits:
    """Fill in the next rows from the snapshot; an owner that continues another's work takes its own snapshot."""
    if not seen.snapshot_ts:
        return JobWaits("GC does not know of its snapshot yet")
    if job.snapshot_ts != seen.snapshot_ts:
        return JobMove(
            job._replace(snapshot_ts=seen.snapshot_ts), f"rows from {job.row_count} on are read at its snapshot"
        )
    if job.error_count < job.errors:
        failed = job._replace(error_count=job.error_count + 1)
        if failed.error_count > seen.most_errors:
            error = f"{failed.error_count} errors are too many"
            return JobMove(failed._replace(state=ROLLING_BACK, error=error), error)
        return JobMove(
            failed, f"the cluster is busy: error {failed.error_count} of {seen.most_errors} that are allowed"
        )
    done = min(job.rows, job.row_count + seen.batch)
    if job.fails_at is not None and job.row_count <= job.fails_at < done:
        error = f"duplicate entry in row {job.fails_at}"
        return JobMove(job._replace(state=ROLLING_BACK, row_count=job.fails_at, error=error), error)
    done_by = job._replace(row_count=done, batch=seen.batch, workers=seen.workers)
    return JobMove(done_by, f"{done} of {job.rows} rows are backfilled")


def neighbours(element: str, a: str, b: str) -> bool:
    """Whether two states of an element may be used at one time."""
    if a == b:
        return True
    kinds = ("create table", "drop table") if element.endswith("/") else ("add index", "drop index")
    ways = [LADDERS[kind] for kind in kinds]
    return any({a, b} == set(pair) for way in ways for pair in pairwise(way))
