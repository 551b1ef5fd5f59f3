"""The service really running: worker processes, HTTP, kill -9, and jobs that survive it."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import START_S, Fleet, rows_of, tidb, until

from ticdc_lab.ddl_core import records
from ticdc_lab.ddl_core.server_state import SetVariable, Submit
from ticdc_lab.ddl_core.sysvars import BATCH
from ticdc_lab.ddl_service.sqlite_file import holder_of_lock

CLUSTERS = [f"cluster{i}" for i in range(1, 7)]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Workers that are killed at the end."""
    found = Fleet(tmp_path)
    yield found
    found.close()


def test_a_fleet_survives_kill_9_of_its_leader_and_a_job_goes_on(fleet: Fleet) -> None:
    """Balanced, a job in its backfill, its owner killed: another owns and continues it, and it ends once."""
    fleet.begin("node-1", "node-2")
    for i, cluster in enumerate(CLUSTERS):
        fleet.register(cluster, f"tikv://10.0.0.{i}:2379")
    until(lambda: len(fleet.owners()) == len(CLUSTERS), START_S)
    assert set(Counter(fleet.owners().values()).values()) == {3}
    server = tidb(fleet, "tikv://10.0.0.0:2379", "tidb-1")
    server.post(SetVariable(BATCH, "16"))
    server.post(Submit("add index", "orders", "by_day", rows=1600))
    until(lambda: rows_of(fleet, "tikv://10.0.0.0:2379") > 100, START_S)
    lost = fleet.owners()["cluster1"]
    fleet.kill(lost)
    until(lambda: len(fleet.owners()) == len(CLUSTERS), START_S)
    (job,) = until(lambda: fleet.jobs("tikv://10.0.0.0:2379"), START_S)
    assert (job.state, job.row_count) == (records.DONE, 1600)
    assert fleet.wrong() == []
    server.stop()


def stop_outside_a_transaction(process: subprocess.Popen[str], folder: Path) -> None:
    """SIGSTOP; inside one it would keep all others from writing, which the documentation shows."""
    while True:
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.05)
        if f"process {process.pid} " not in holder_of_lock(folder):
            return
        process.send_signal(signal.SIGCONT)
        time.sleep(0.05)


@pytest.mark.soak
def test_a_worker_that_is_stopped_and_goes_on_owns_nothing_any_more(fleet: Fleet) -> None:
    """SIGSTOP for longer than its lease, in the midst of a backfill: another continues, and it comes back as new."""
    fleet.begin("node-1", "node-2")
    fleet.register("cluster1", "tikv://10.0.0.1:2379")
    stopped = until(lambda: fleet.owners().get("cluster1"), START_S)
    server = tidb(fleet, "tikv://10.0.0.1:2379", "tidb-1")
    server.post(SetVariable(BATCH, "16"))
    server.post(Submit("add index", "orders", "by_day", rows=6000))
    until(lambda: rows_of(fleet, "tikv://10.0.0.1:2379") > 100, START_S)
    process = fleet.processes.pop(stopped)
    stop_outside_a_transaction(process, fleet.folder)
    fleet.gone[stopped] = time.time()
    try:
        until(lambda: fleet.owners().get("cluster1"), START_S)
    finally:
        process.send_signal(signal.SIGCONT)
        fleet.processes[stopped] = process
    (job,) = until(lambda: fleet.jobs("tikv://10.0.0.1:2379"), START_S)
    assert (job.state, job.row_count) == (records.DONE, 6000)
    assert fleet.wrong(late_s=0) == []
    until(lambda: len(fleet.get("worker_nodes") or []) == 2, START_S)
    server.stop()
