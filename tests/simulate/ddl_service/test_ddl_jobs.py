"""A DDL job as an online schema change: what its owner does next, and why it waits."""

from __future__ import annotations

import pytest
from immutables import Map

from ticdc_lab.ddl_core import jobs, records
from ticdc_lab.ddl_core.jobs import JobMove, JobWaits, SeenJob, advanced
from ticdc_lab.ddl_core.records import Job
from ticdc_lab.ddl_core.settings import Versions, parsed, unsupported
from ticdc_lab.ddl_core.sysvars import BATCH, Scopes, count_of

SERVICE = Versions("v8.5.0", "v6.1.0")
INDEX = Job(1, "add index", "orders", "by_day", "v6.5.0", rows=500)


def seen(element: str = jobs.NONE, version: int = 0, *others: int, snapshot_ts: int = 7) -> SeenJob:
    """What an owner sees of a cluster whose servers have loaded ``others``."""
    versions = tuple((f"tidb-{i}", v) for i, v in enumerate(others))
    return SeenJob(element, version, versions, snapshot_ts, 256, SERVICE)


def walked(job: Job) -> tuple[Job, list[str]]:
    """Run a job to its end where every server keeps up; give each schema state that it went through."""
    element, version, states = jobs.LADDERS[job.kind][0], 0, []
    for _ in range(100):
        move = advanced(job, seen(element, version, version))
        assert isinstance(move, JobMove)
        job = move.job
        if job.state in records.ENDS:
            return job, states
        if move.changes_schema:
            element, version = job.schema_state, job.schema_version
            states.append(element)
    raise AssertionError(f"{job} does not end")


@pytest.mark.parametrize("kind", sorted(jobs.LADDERS))
def test_a_job_goes_through_the_states_of_its_kind(kind: str) -> None:
    """Each state once, in order, each at the next schema version."""
    job, states = walked(INDEX._replace(kind=kind, name="" if kind.endswith("table") else "x"))
    assert job.state == records.DONE
    assert tuple(states) == jobs.LADDERS[kind][1:]
    assert job.schema_version == len(states)


def test_a_job_waits_for_the_slowest_server_and_says_so() -> None:
    """Nothing happens until every server has the last version."""
    job = INDEX._replace(state=records.RUNNING, schema_state=jobs.WRITE_ONLY, schema_version=2)
    found = advanced(job, seen(jobs.WRITE_ONLY, 2, 2, 1, 2))
    assert found == JobWaits("tidb-1 has schema version 1 of 2", (("tidb-1", "has schema version 1 of 2"),))


def test_a_slash_in_a_name_is_no_border() -> None:
    """Column c of table a/b is not column b/c of table a."""
    one, two = (Job(1, "add column", table, name).element for table, name in (("a/b", "c"), ("a", "b/c")))
    assert one != two


def test_an_index_is_public_only_with_all_its_rows() -> None:
    """The backfill continues in batches, and only on a snapshot that GC keeps."""
    job = INDEX._replace(state=records.RUNNING, schema_state=jobs.WRITE_REORG, schema_version=3, snapshot_ts=7)
    assert isinstance(advanced(job, seen(jobs.WRITE_REORG, 3, 3, snapshot_ts=0)), JobWaits)
    counts = []
    while job.schema_state != jobs.PUBLIC:
        move = advanced(job, seen(jobs.WRITE_REORG, 3, 3))
        assert isinstance(move, JobMove)
        job = move.job
        counts.append(job.row_count)
    assert counts == [256, 500, 500]


def test_the_next_owner_goes_on_where_the_last_one_stopped_with_its_own_snapshot() -> None:
    """GC no longer keeps the snapshot of an owner that is gone."""
    job = INDEX._replace(
        state=records.RUNNING, schema_state=jobs.WRITE_REORG, schema_version=3, snapshot_ts=5, row_count=256
    )
    move = advanced(job, seen(jobs.WRITE_REORG, 3, 3, snapshot_ts=9))
    assert isinstance(move, JobMove)
    assert (move.job.snapshot_ts, move.job.row_count) == (9, 256)


def test_a_duplicate_rolls_the_index_back_state_by_state() -> None:
    """The way back is the way there, each state waited for."""
    job, states = walked(INDEX._replace(fails_at=300))
    up = [jobs.DELETE_ONLY, jobs.WRITE_ONLY, jobs.WRITE_REORG]
    assert states == [*up, jobs.WRITE_ONLY, jobs.DELETE_ONLY, jobs.NONE]
    assert (job.state, job.error) == (records.ROLLED_BACK, "duplicate entry in row 300")


@pytest.mark.parametrize(
    ("kind", "state", "version", "ends"),
    [
        ("add index", jobs.DELETE_ONLY, 1, records.ROLLING_BACK),
        ("add column", "", 0, records.CANCELLED),
        ("add index", jobs.PUBLIC, 4, records.RUNNING),
        ("drop column", jobs.WRITE_ONLY, 1, records.RUNNING),
    ],
)
def test_a_job_can_be_cancelled_until_it_cannot(kind: str, state: str, version: int, ends: str) -> None:
    """Additions until they are public, removals until they have begun."""
    job = INDEX._replace(kind=kind, state=records.CANCELLING, schema_state=state, schema_version=version)
    move = advanced(job, seen(state, version, version))
    assert isinstance(move, JobMove)
    assert move.job.state == ends


@pytest.mark.parametrize(
    ("job", "element", "error"),
    [
        (INDEX._replace(version="v5.4.0"), jobs.NONE, "too old"),
        (INDEX._replace(version="v9.0.0"), jobs.NONE, "newer than the service"),
        (INDEX._replace(version="six"), jobs.NONE, "is no version"),
        (INDEX, jobs.PUBLIC, "is public"),
        (INDEX._replace(kind="alter everything"), jobs.NONE, "no job of kind"),
    ],
)
def test_a_job_that_cannot_be_run_is_rejected_before_it_begins(job: Job, element: str, error: str) -> None:
    """Old and newer versions, what is there already, unknown kinds: cancelled, the schema as it was."""
    move = advanced(job, seen(element))
    assert isinstance(move, JobMove)
    assert (move.job.state, move.changes_schema) == (records.CANCELLED, False)
    assert error in move.job.error


def test_versions_are_compared_by_their_numbers() -> None:
    """10 is more than 9; a suffix does not matter; both ends of the range belong to it."""
    assert parsed("v10.0.0-alpha") == (10, 0, 0)
    assert unsupported("v6.1.0", SERVICE) is None
    assert unsupported("v8.5.0", SERVICE) is None
    assert unsupported("v8.10.0", SERVICE)
    assert unsupported("v6.0.9", SERVICE)


def test_neighbours_are_the_rungs_of_a_ladder() -> None:
    """An index must not be in two states with one between them; a table is created at once."""
    assert jobs.neighbours("orders/a", jobs.DELETE_ONLY, jobs.WRITE_ONLY)
    assert not jobs.neighbours("orders/a", jobs.NONE, jobs.WRITE_ONLY)
    assert not jobs.neighbours("orders/a", jobs.NONE, jobs.PUBLIC)
    assert jobs.neighbours("orders/", jobs.NONE, jobs.PUBLIC)
    assert not jobs.neighbours("orders/", jobs.DELETE_ONLY, jobs.PUBLIC)


def test_a_job_is_read_as_it_was_written() -> None:
    """Fields that a later version adds are passed over."""
    text = records.written(INDEX._replace(fails_at=3))
    assert records.job(text) == INDEX._replace(fails_at=3)
    assert records.job(text[:-1] + ',"later":1}') == INDEX._replace(fails_at=3)
    worker = records.WorkerRecord("v8.5.0", (("a", "OWNER"), ("b", "CAMPAIGNING")))
    assert records.worker(records.written(worker)) == worker


@pytest.mark.parametrize(
    ("text", "rows"),
    [("16", 16), ("many", 256), ("", 256), ("0", 256), ("-1", 256), ("\u0661", 256), ("1" * 5000, 256)],
)
def test_a_batch_that_is_no_number_stops_no_worker(text: str, rows: int) -> None:
    """What one cluster sets must not end the owners of all others, nor a backfill stall."""
    assert count_of(BATCH, Scopes(cluster=Map({BATCH: text}))) == rows
