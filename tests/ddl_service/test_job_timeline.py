"""A job of a running service over time: asked through the API, drawn as the ones of the model are."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from fleet import START_S, until

from ticdc_lab import figures
from ticdc_lab.ddl_core import jobs, records
from ticdc_lab.ddl_core.progress import JobAnswer, job_polled
from ticdc_lab.ddl_core.server_state import Submit
from ticdc_lab.ddl_core.settings import Duties
from ticdc_lab.ddl_service import Listening, running
from ticdc_lab.ddl_service.client import Client, ServiceError
from ticdc_lab.ddl_service.sqlite_store import SqliteStore
from ticdc_lab.ddl_service.submitting import submitted
from ticdc_lab.ddl_service.watch import ended, job_watch

FIRST = "tikv://10.0.0.1:2379"


def test_a_job_is_watched_from_its_first_state_to_its_end(tmp_path: Path) -> None:
    """Each state that was there when the service was asked, the rows, the servers; what is not there is a 404."""
    with running("one", SqliteStore(tmp_path), Listening(port=0), Duties(tick_us=50_000)) as port:
        client = Client(f"http://127.0.0.1:{port}")
        until(lambda: there(client), START_S)
        client.register("c1", FIRST)
        for cluster, job in (("c1", 7), ("nobody", 0)):
            with pytest.raises(ServiceError) as refused:
                client.jobs(cluster, job)
            assert refused.value.status == 404
        wish = Submit("add index", "orders", "by_day", rows=2000)
        sender = threading.Thread(
            target=submitted, args=(lambda: SqliteStore(tmp_path), FIRST, wish),
            kwargs={"version": "v6.5.0", "within_s": START_S},
        )  # fmt: skip
        sender.start()
        until(lambda: client.jobs("c1").jobs, START_S)
        progress = job_watch(client, "c1", 1).until(ended, within_s=START_S)
        sender.join()
    assert (progress.job.state, progress.job.row_count) == (records.DONE, 2000)
    assert progress.steps["row_count"].is_monotonic_increasing
    assert {jobs.WRITE_REORG, jobs.PUBLIC} <= set(progress.steps["schema_state"])
    assert len(set(progress.served["server"])) >= 1
    assert "add index orders/by_day of c1 takes" in str(figures.job_timeline(progress).layout.meta["finding"])


def there(client: Client) -> bool:
    """Whether the worker has a session."""
    try:
        return bool(client.workers())
    except ServiceError:
        return False


def test_it_says_for_whom_a_job_waits() -> None:
    """The server whose schema version is behind the job's, from when it was until it was not."""
    job = records.Job(1, "add index", "t", "i", state=records.RUNNING, schema_state=jobs.DELETE_ONLY, schema_version=1)
    later = job._replace(schema_state=jobs.WRITE_ONLY, schema_version=2)
    ended = later._replace(schema_state=jobs.PUBLIC, schema_version=3, state=records.DONE)
    answers = [
        JobAnswer(0, job, {"a": 1, "b": 1}), JobAnswer(10, later, {"a": 2, "b": 1}),
        JobAnswer(20, later, {"a": 2, "b": 1}),
        JobAnswer(30, later, {"a": 2, "b": 2}), JobAnswer(40, ended, {"a": 3, "b": 3}), JobAnswer(50, ended, {"a": 3}),
    ]  # fmt: skip
    progress = job_polled("c", answers)
    assert (progress.waited_us, progress.until_us) == ({"b": 20}, 40)
    assert progress.waits["because"].tolist() == ["b works with schema version 1 of 2"]
    assert progress.served[progress.served["server"] == "b"][["state", "since_us", "until_us"]].values.tolist() == [
        [jobs.DELETE_ONLY, 0, 30], [jobs.WRITE_ONLY, 30, 40], [jobs.PUBLIC, 40, 50],
    ]  # fmt: skip
    assert progress.steps["since_us"].tolist() == [0, 10, 40]
