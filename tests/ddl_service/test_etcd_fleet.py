"""Worker processes over a real etcd: kill -9 of the leader, of owners and of etcd itself."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import real_etcd
from click.testing import CliRunner
from fleet import START_S, TTL_S, Fleet, failed_over, rows_of, tidb, until

from ticdc_lab.cli import main
from ticdc_lab.ddl_core import keys, records
from ticdc_lab.ddl_core.server_state import SetVariable, Submit
from ticdc_lab.ddl_core.sysvars import BATCH
from ticdc_lab.ddl_service.node import Node

CLUSTERS = {f"cluster{i}": f"tikv://10.0.0.{i}:2379" for i in range(1, 7)}
FIRST = CLUSTERS["cluster1"]


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[real_etcd.Server]:
    """One etcd."""
    found = real_etcd.begun(tmp_path / "etcd")
    yield found
    found.kill()


@pytest.fixture
def fleet(tmp_path: Path, etcd: real_etcd.Server) -> Iterator[Fleet]:
    """Workers that are killed at the end."""
    found = Fleet(tmp_path, etcd.endpoint)
    yield found
    found.close()


def leader(fleet: Fleet) -> str:
    """The worker whose campaign is the oldest."""
    campaigns: dict[str, tuple[int, str]] = {}
    for w in fleet.written():
        if w.key.startswith(keys.LEADER):
            campaigns.pop(w.key, None)
            if w.value is not None:
                campaigns[w.key] = w.created, w.value
    return min(campaigns.values())[1]


def begun(fleet: Fleet, *names: str, rows: int) -> Node:
    """Start workers, register clusters, and begin a job whose backfill continues for a while."""
    fleet.begin(*names)
    for cluster, store_addr in CLUSTERS.items():
        fleet.register(cluster, store_addr)
    until(lambda: len(fleet.owners()) == len(CLUSTERS), START_S)
    server = tidb(fleet, FIRST, "tidb-1")
    server.post(SetVariable(BATCH, "16"))
    server.post(Submit("add index", "orders", "by_day", rows=rows))
    until(lambda: rows_of(fleet, FIRST) > 100, START_S)
    return server


def test_a_fleet_survives_kill_9_of_its_leader_and_of_etcd(fleet: Fleet, etcd: real_etcd.Server) -> None:
    """Another leads and owns; without etcd no worker owns anything, and reports it; when it is back the
    job ends, once.
    """
    server = begun(fleet, "node-1", "node-2", rows=3200)
    lost = leader(fleet)
    fleet.kill(lost)
    until(lambda: len(fleet.owners()) == len(CLUSTERS), START_S)
    assert leader(fleet) != lost
    etcd.kill()
    until(lambda: all(fleet.ask(name, "worker_nodes") is None for name in fleet.processes), START_S)
    until(lambda: not fleet.believed(), START_S)
    etcd.begin()
    until(lambda: len(fleet.owners()) == len(CLUSTERS), START_S)
    (job,) = until(lambda: fleet.jobs(FIRST), START_S)
    assert (job.state, job.row_count) == (records.DONE, 3200)
    job_of = ("submit", "cluster2", "create table", "orders", "--url", fleet.url(*fleet.processes, ""))
    for verb in (job_of, ("audit",)):
        found = CliRunner().invoke(main, ["ddl-service", *verb, "--etcd", etcd.endpoint])
        assert found.exit_code == 0, found.output
    assert fleet.wrong() == []
    server.stop()


@pytest.mark.soak
def test_without_etcd_all_is_given_up_within_a_lease(fleet: Fleet, etcd: real_etcd.Server) -> None:
    """Kill -9 of etcd: who owned shows within its lease that it does no more; an unloaded machine is asked for."""
    server = begun(fleet, "node-1", "node-2", rows=3200)
    etcd.kill()
    killed_s = time.time()
    until(lambda: not fleet.believed(), START_S)
    assert max(c.at_s for c in fleet.said()) - killed_s < TTL_S
    etcd.begin()
    until(lambda: fleet.jobs(FIRST), START_S)
    assert fleet.wrong(late_s=0) == []
    server.stop()


@pytest.mark.soak
def test_a_member_of_three_is_lost_and_nobody_notices(tmp_path: Path) -> None:
    """Each member of etcd is killed in turn, and comes back: a job continues, and every cluster is owned at the end."""
    members = real_etcd.three(tmp_path / "etcd")
    fleet = Fleet(tmp_path, ",".join(m.endpoint for m in members), ttl_s=5.0)
    server = begun(fleet, "node-1", "node-2", rows=16_000)
    for member in members:
        member.kill()
        time.sleep(3)
        member.begin()
    (job,) = until(lambda: fleet.jobs(FIRST), START_S)
    assert (job.state, job.row_count) == (records.DONE, 16_000)
    until(lambda: len(fleet.owners()) == len(CLUSTERS), START_S)
    assert fleet.wrong(late_s=0) == []
    server.stop()
    assert [fleet.end(name) for name in list(fleet.processes)] == [0, 0]
    for member in members:
        member.kill()


@pytest.mark.soak
@pytest.mark.parametrize("store", ["sqlite", "etcd"])
def test_five_workers_hold_200_clusters_and_fail_over_in_three_leases(
    tmp_path: Path, etcd: real_etcd.Server, store: str
) -> None:
    """Balanced; kill -9 of two workers, one after the other: all is owned again within three leases each time."""
    fleet = Fleet(tmp_path, etcd.endpoint if store == "etcd" else None, ttl_s=5.0)
    fleet.begin(*(f"node-{i}" for i in range(5)))
    for i in range(200):
        fleet.register(f"c{i}", f"tikv://10.0.1.{i}:2379")
    until(lambda: len(fleet.owners()) == 200, START_S)
    assert set(Counter(fleet.owners().values()).values()) == {40}
    for held in ({50}, {66, 67}):
        assert failed_over(fleet, 200) < 3 * 5.0
        assert set(Counter(fleet.owners().values()).values()) == held
    assert fleet.wrong(late_s=0) == []
    fleet.close()


@pytest.mark.soak
def test_an_owner_that_is_stopped_for_longer_than_its_lease_writes_nothing_more(fleet: Fleet) -> None:
    """SIGSTOP in the midst of a backfill, SIGCONT when another continues it."""
    server = begun(fleet, "node-1", "node-2", rows=6400)
    stopped = fleet.owners()["cluster1"]
    process = fleet.processes.pop(stopped)
    process.send_signal(signal.SIGSTOP)
    fleet.gone[stopped] = time.time()
    try:
        until(lambda: fleet.owners().get("cluster1"), START_S)
    finally:
        process.send_signal(signal.SIGCONT)
        fleet.processes[stopped] = process
    (job,) = until(lambda: fleet.jobs(FIRST), START_S)
    assert (job.state, job.row_count) == (records.DONE, 6400)
    until(lambda: len(fleet.get("worker_nodes") or []) == 2, START_S)
    assert fleet.wrong(late_s=0) == []
    server.stop()
