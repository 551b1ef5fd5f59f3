"""The service really running: worker processes, HTTP, kill -9, and jobs that survive it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from fleet import START_S, TTL_S, Fleet, rows_of, tidb, until

from ticdc_lab.simulate.ddl_service import records
from ticdc_lab.simulate.ddl_service.server_state import SetVariable, Submit
from ticdc_lab.simulate.ddl_service.sysvars import BATCH

CLUSTERS = [f"cluster{i}" for i in range(1, 7)]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Workers that are killed at the end."""
    found = Fleet(tmp_path)
    yield found
    found.close()


def test_a_fleet_survives_kill_9_of_its_leader_and_a_job_goes_on(fleet: Fleet) -> None:
    """Balanced, a job in its backfill, its owner killed: all owned again within three leases, the job ends."""
    fleet.begin("node-1", "node-2")
    for i, cluster in enumerate(CLUSTERS):
        fleet.register(cluster, f"tikv://10.0.0.{i}:2379")
    until(lambda: len(fleet.owners()) == len(CLUSTERS), START_S)
    assert set(Counter(fleet.owners().values()).values()) == {3}
    server = tidb(fleet, "tikv://10.0.0.0:2379", "tidb-1")
    server.post(SetVariable(BATCH, "16"))
    server.post(Submit("add index", "orders", "by_day", rows=2400))
    until(lambda: rows_of(fleet, "tikv://10.0.0.0:2379") > 100, START_S)
    lost = fleet.owners()["cluster1"]
    began_s = time.monotonic()
    fleet.kill(lost)
    until(lambda: len(fleet.owners()) == len(CLUSTERS), START_S)
    took_s = time.monotonic() - began_s
    (job,) = until(lambda: fleet.jobs("tikv://10.0.0.0:2379"), START_S)
    assert (job.state, job.row_count) == (records.DONE, 2400)
    assert fleet.wrong() == []
    server.stop()
    assert took_s < 3 * TTL_S


@pytest.mark.soak
def test_a_worker_that_is_stopped_and_goes_on_owns_nothing_any_more(fleet: Fleet) -> None:
    """SIGSTOP for longer than its lease, in the midst of a backfill: another goes on, and it comes back as new."""
    fleet.begin("node-1", "node-2")
    fleet.register("cluster1", "tikv://10.0.0.1:2379")
    stopped = until(lambda: fleet.owners().get("cluster1"), START_S)
    server = tidb(fleet, "tikv://10.0.0.1:2379", "tidb-1")
    server.post(SetVariable(BATCH, "16"))
    server.post(Submit("add index", "orders", "by_day", rows=6000))
    until(lambda: rows_of(fleet, "tikv://10.0.0.1:2379") > 100, START_S)
    process = fleet.processes.pop(stopped)
    process.send_signal(signal.SIGSTOP)
    fleet.gone[stopped] = time.time()
    try:
        until(lambda: fleet.owners().get("cluster1"), START_S)
    finally:
        process.send_signal(signal.SIGCONT)
        fleet.processes[stopped] = process
    (job,) = until(lambda: fleet.jobs("tikv://10.0.0.1:2379"), START_S)
    assert (job.state, job.row_count) == (records.DONE, 6000)
    assert fleet.wrong() == []
    until(lambda: len(fleet.get("worker_nodes") or []) == 2, START_S)
    server.stop()


def test_the_api_answers_as_the_proposal_says(fleet: Fleet) -> None:
    """PUT, GET, DELETE; 4xx with hints; metrics by cluster; strangers and other names are kept out."""
    secret = fleet.folder / "secret"
    secret.write_text("open sesame\n")
    fleet.begin("ddl-service-node-1", options=("--secret-file", str(secret)))
    base = fleet.url("ddl-service-node-1", "")
    own = requests.Session()
    own.headers["Authorization"] = "Bearer open sesame"
    url = f"{base}/ddlservice/registered_clusters"
    assert requests.get(url, timeout=20).status_code == 401
    assert own.get(url, headers={"Host": "evil.example"}, timeout=20).status_code == 403
    until(lambda: own.get(url, timeout=20).status_code == 200, START_S)
    seed = '{\n  "store_addr": "tikv://192.168.1.100:2379",\n}'
    assert own.put(f"{url}/cluster1", data=seed, timeout=20).status_code == 200
    schedule = {"assigned_to": "ddl-service-node-1", "status": "OWNER"}
    expected = [{"id": "cluster1", "store_addr": "tikv://192.168.1.100:2379", "schedule": schedule}]
    until(lambda: own.get(url, timeout=20).json() == expected, START_S)
    nodes = own.get(f"{base}/ddlservice/worker_nodes", timeout=20).json()
    assert nodes == [{"id": "ddl-service-node-1", "assignments": [{"cluster_id": "cluster1", "schedule": schedule}]}]
    for method, path, status in (
        ("DELETE", "/nobody", 404), ("PUT", "/bad%20id", 400), ("PUT", "/two", 409), ("POST", "/two", 405),
        ("GET", "/x/y", 404),
    ):  # fmt: skip
        answer = own.request(method, url + path, data=seed, timeout=20)
        assert (answer.status_code, set(answer.json())) == (status, {"error", "hint"}), path
    server = tidb(fleet, "tikv://192.168.1.100:2379", "tidb-1")
    server.post(Submit("add index", "orders", "by_day", rows=300))
    until(lambda: fleet.jobs("tikv://192.168.1.100:2379"), START_S)
    idle = 'tidb_ddl_running_job_count{cluster="cluster1",type="add index"} 0.0'
    text = until(lambda: _with(own.get(f"{base}/metrics", timeout=20).text, idle), START_S)
    assert 'tidb_ddl_add_index_total{cluster="cluster1"} 300.0' in text
    assert 'tidb_ddl_backfill_percentage_progress{cluster="cluster1",type="add index"} 100.0' in text
    assert 'tidb_ddl_worker_operation_total{cluster="cluster1",type="add index"}' in text
    for name in ("owner_handle_syncer", "worker_operation", "job_table"):
        assert f"tidb_ddl_{name}_duration_seconds_count{{" in text, name
    paths = own.get(f"{base}/openapi.json", timeout=20).json()["paths"]
    assert set(paths["/ddlservice/registered_clusters/{id}"]) == {"put", "delete"}
    assert own.delete(f"{url}/cluster1", timeout=20).status_code == 200
    assert own.get(url, timeout=20).json() == []
    server.stop()
    assert fleet.end("ddl-service-node-1") == 0


def _with(text: str, line: str) -> str:
    """The text, once it has a line."""
    return text if line in text else ""


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_callers_without_a_certificate_are_kept_out(fleet: Fleet) -> None:
    """TLS with certificates of callers."""
    cert, key = fleet.folder / "cert.pem", fleet.folder / "key.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {key} -out {cert}"
    subprocess.run([*command.split(), "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    options = ("--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(cert))
    fleet.begin("node-1", options=options)
    url = fleet.url("node-1", "/openapi.json").replace("http:", "https:")
    assert requests.get(url, verify=str(cert), cert=(str(cert), str(key)), timeout=20).status_code == 200
    with pytest.raises(requests.exceptions.RequestException):
        requests.get(url, verify=str(cert), timeout=20)
