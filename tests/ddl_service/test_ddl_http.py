"""The HTTP API of a worker that runs in this process: the proposal's lines, errors, metrics, who is let in, clients."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner, Result
from fleet import START_S, until
from prometheus_client.parser import text_string_to_metric_families
from real_etcd import certificates

from ticdc_lab.cli import main
from ticdc_lab.ddl_core import keys
from ticdc_lab.ddl_core.checks import HIDDEN
from ticdc_lab.ddl_core.records import Job, written
from ticdc_lab.ddl_core.server_state import Habits
from ticdc_lab.ddl_core.settings import DUTIES
from ticdc_lab.ddl_core.store import Delete, Put, Read, Txn
from ticdc_lab.ddl_service import Listening, running
from ticdc_lab.ddl_service.api import Assignment, RegisteredCluster, Schedule, WorkerNode
from ticdc_lab.ddl_service.auditing import of_folder, violations
from ticdc_lab.ddl_service.client import Client, ServiceError
from ticdc_lab.ddl_service.serving import instance_address
from ticdc_lab.ddl_service.sqlite_store import SqliteStore
from ticdc_lab.errors import SetupError, SourceError

NODE, FIRST = "ddl-service-node-1", "tikv://192.168.1.100:2379"
OWNED = {"assigned_to": NODE, "status": "OWNER"}
PUT = ["curl", "-X", "PUT", "http://{TiDBIP}:10080/ddlservice/registered_clusters/cluster1", "-d"]
DELETE = ["curl", "-X", "DELETE", "http://{TiDBIP}:10080/ddlservice/registered_clusters/cluster1"]
LIST = ["curl", "http://{TiDBIP}:10080/ddlservice/registered_clusters"]
WORKERS = ["curl", "http://{TiDBIP}:10080/ddlservice/worker_nodes"]
"""The lines of the proposal, and the body of the first."""
BODY = '{\n  "store_addr": "tikv://192.168.1.100:2379",\n}'


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The address of a worker."""
    with running(NODE, SqliteStore(tmp_path), Listening(port=0), DUTIES) as port:
        found = f"http://127.0.0.1:{port}"
        until(lambda: requests.get(f"{found}/ddlservice/worker_nodes", timeout=20).status_code == 200, START_S)
        yield found


def answered(url: str, line: list[str], body: str = "") -> Any:
    """What a line of the proposal gives: with curl where there is one."""
    own = [part.replace("http://{TiDBIP}:10080", url) for part in line]
    if shutil.which("curl"):
        command = ["curl", "-s", "--fail-with-body", "--noproxy", "*", *own[1:], *([body] if body else [])]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    method = own[2] if own[1] == "-X" else "GET"
    answer = requests.request(method, next(p for p in own if p.startswith("http")), data=body, timeout=20)
    assert answer.status_code == 200
    return answer.json()


def test_the_lines_of_the_proposal_are_answered_as_it_says(url: str) -> None:
    """PUT, both lists, DELETE: as they are there, comma and all."""
    assert answered(url, PUT, BODY)["id"] == "cluster1"
    expected = [{"id": "cluster1", "store_addr": FIRST, "version": "v8.5.0", "store": FIRST, "schedule": OWNED}]
    until(lambda: answered(url, LIST) == expected, START_S)
    assert answered(url, WORKERS) == [{"id": NODE, "assignments": [{"cluster_id": "cluster1", "schedule": OWNED}]}]
    assert answered(url, DELETE) == {"id": "cluster1"}
    assert answered(url, LIST) == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("DELETE", "registered_clusters/nobody", "", 404),
        ("PUT", "registered_clusters/bad%20id", BODY, 400),
        ("PUT", "registered_clusters/", BODY, 404),
        ("PUT", "registered_clusters/two", '{"store_addr": "mysql://a:1"}', 400),
        ("PUT", "registered_clusters/two", '{"store_addr": "tikv://a:1", "version": "v99.0.0"}', 409),
        ("PUT", "registered_clusters/two", '{"store_addr": "tikv://a:1", "version": "v1.0.0"}', 409),
        ("PUT", "registered_clusters/two", " " * 100_000, 413),
        ("PUT", "registered_clusters/two", '{"store_addr": "tikv://a:1", "store_addr": "tikv://b:1"}', 400),
        ("PUT", "registered_clusters/two", '{"store_addr": "tikv://a:1", "store\\u005faddr": "tikv://b:1"}', 400),
        ("PUT", "registered_clusters/two", '{"store_addr": "tikv://a:1", "x": {"a": 1, "a": 2}}', 400),
        (
            "PUT",
            "registered_clusters/two",
            '{"store_addr": "tikv://a:1", "x": ' + "[" * 30_000 + "]" * 30_000 + "}",
            400,
        ),
        ("POST", "registered_clusters/two", BODY, 405),
        ("GET", "registered_clusters/x/jobs/" + "9" * 5_000, "", 404),
        ("GET", "registered_clusters/x/jobs/" + "9" * 20, "", 404),
        ("GET", "registered_clusters/x/jobs/last", "", 404),
        ("GET", "registered_clusters/x/y", "", 404),
        ("GET", "nothing", "", 404),
    ],
)
def test_what_is_wrong_is_answered_with_4xx_and_a_hint(
    url: str, method: str, path: str, body: str, status: int
) -> None:
    """Never with 5xx, never without a sentence."""
    answer = requests.request(method, f"{url}/ddlservice/{path}", data=body, timeout=20)
    assert (answer.status_code, set(answer.json())) == (status, {"error", "hint"})


@pytest.mark.parametrize("framing", ["Content-Length: 4\r\nTransfer-Encoding: chunked", "transfer-encoding: chunked\r\n"
                                     "content-length: 0"])  # fmt: skip
def test_no_request_is_smuggled_behind_one_of_two_lengths(url: str, framing: str) -> None:
    """It is refused and the connection closed, so a DELETE that is behind it is never run."""
    requests.put(f"{url}/ddlservice/registered_clusters/kept", data=BODY, timeout=20).raise_for_status()
    behind = "DELETE /ddlservice/registered_clusters/kept?force=true HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    first = f"GET /ready HTTP/1.1\r\nHost: 127.0.0.1\r\n{framing}\r\n\r\n0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 20) as line:
        line.sendall((first + behind).encode())
        answer = b"".join(iter(lambda: line.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1, answer
    assert b"Content-Length and Transfer-Encoding" in answer
    names = [c["id"] for c in requests.get(f"{url}/ddlservice/registered_clusters", timeout=20).json()]
    assert names == ["kept"]


def test_the_document_names_every_way_in(url: str) -> None:
    """Each path and method, and each status that it can have."""
    document = requests.get(f"{url}/openapi.json", timeout=20).json()
    assert document["openapi"].startswith("3.")
    assert {p: sorted(m for m in found if m != "parameters") for p, found in document["paths"].items()} == {
        "/ddlservice/registered_clusters": ["get"],
        "/ddlservice/registered_clusters/{id}": ["delete", "get", "put"],
        "/ddlservice/registered_clusters/{id}/jobs": ["get"],
        "/ddlservice/registered_clusters/{id}/jobs/{job}": ["get"],
        "/ddlservice/worker_nodes": ["get"],
        "/ready": ["get"],
        "/metrics": ["get"],
        "/openapi.json": ["get"],
    }
    one = document["paths"]["/ddlservice/registered_clusters/{id}"]
    assert set(one["put"]["responses"]) == {"200", "400", "401", "403", "408", "409", "413", "503", "default"}
    assert set(one["delete"]["responses"]) == {"200", "400", "401", "403", "404", "409", "503", "default"}


def test_clients_and_verbs_register_submit_list_and_remove(url: str, tmp_path: Path) -> None:
    """The Python client and the command line show the same; a job runs to its end, and counts by cluster."""
    client = Client(["http://127.0.0.1:1", url])  # no one is at the first
    assert "No cluster is registered. Register one: " in verb(url, "list").output
    assert client.register("cluster1", FIRST, version="v6.5.0").store_addr == FIRST
    expected = RegisteredCluster("cluster1", FIRST, Schedule(NODE, "OWNER"), "v6.5.0", FIRST)
    until(lambda: client.clusters() == [expected], START_S)
    assert client.workers() == [WorkerNode(NODE, (Assignment("cluster1", Schedule(NODE, "OWNER")),))]
    with pytest.raises(ServiceError, match="registered as cluster1") as refused:
        client.register("cluster2", FIRST)
    assert (refused.value.status, bool(refused.value.hint)) == (409, True)
    assert said(url, "list") == f"cluster1  {FIRST}  v6.5.0  {NODE}  OWNER\n"
    assert said(url, "workers") == f"{NODE}  owns 1 of 1: cluster1\n"
    job = ("submit", "cluster1", "add index", "orders", "by_day", "--rows", "300", "--store", str(tmp_path))
    assert said(url, *job).splitlines()[-2:] == ["job 1: public, schema version 4", "job 1: synced"]
    assert "begins at none" in verb(url, *job, code=1).output
    assert "not registered" in verb(url, "submit", "nobody", "add index", "orders", "i", code=2).output
    metrics = client.metrics()
    for line in (
        'tidb_ddl_add_index_total{cluster="cluster1"} 300.0',
        'tidb_ddl_backfill_percentage_progress{cluster="cluster1",type="add index"} 100.0',
        'tidb_ddl_worker_operation_total{cluster="cluster1",type="add index"}',
        'tidb_ddl_running_job_count{cluster="cluster1",type="add index"}',
        "tidb_ddl_owner_handle_syncer_duration_seconds_count{",
        "tidb_ddl_worker_operation_duration_seconds_count{",
        "tidb_ddl_job_table_duration_seconds_count{",
    ):
        assert line in metrics, line
    assert said(url, "register", "cluster2", "tikv://two:2379", "--version", "v6.5.0").startswith("cluster2: ")
    assert said(url, "remove", "cluster1") == "cluster1 is not registered any more\n"
    assert [c["id"] for c in json.loads(said(url, "list", "--json"))] == ["cluster2"]
    assert [w["id"] for w in json.loads(said(url, "workers", "--json"))] == [NODE]
    assert "404" not in verb(url, "remove", "cluster1", code=2).output
    until(lambda: 'job_count{cluster="cluster1"' not in client.metrics(), START_S)  # it is not this worker's any more
    families = {m.name: m for m in text_string_to_metric_families(client.metrics())}
    assert families["tidb_ddl_add_index"].samples[0].labels == {"cluster": "cluster1"}
    for wrong in (("--rows", "-1"), ("--sent-by", "new"), ("--store", str(tmp_path / "elsewhere"))):
        assert wrong[0] in verb(url, "submit", "cluster2", *job[2:], *wrong, code=2).output
    assert not (tmp_path / "elsewhere").exists()
    audit = CliRunner().invoke(main, ["ddl-service", "audit", "--store", str(tmp_path)])
    assert (audit.exit_code, ", 0 violations" in audit.output) == (0, True)
    show = verb(url, "show-ddl", "cluster2", "--store", str(tmp_path / "elsewhere"), code=2).output
    assert "elsewhere; give the --store of the workers" in show


def test_a_job_that_nobody_owns_is_given_up(tmp_path: Path) -> None:
    """Where no worker runs the wait ends, and shows where to look."""
    from ticdc_lab.ddl_core.server_state import Submit
    from ticdc_lab.ddl_service.submitting import submitted

    wish = Submit("create table", "t")
    with pytest.raises(SourceError, match="job 1: create table is queueing"):
        submitted(lambda: SqliteStore(tmp_path), FIRST, wish, version="v6.5.0", within_s=1.5)


def verb(url: str, *words: str, code: int = 0) -> Result:
    """Run a verb of ``ticdc-lab ddl-service``."""
    found = CliRunner().invoke(main, ["ddl-service", *words, "--url", url])
    assert found.exit_code == code, found.output
    return found


def said(url: str, *words: str) -> str:
    """What a verb prints."""
    return verb(url, *words).output


def test_strangers_and_other_names_are_kept_out(tmp_path: Path) -> None:
    """Without the secret nothing is reported, metrics neither; a page that was led here under another name gets
    nothing.
    """
    listening = Listening(port=0, secret="open sesame")
    with running(NODE, SqliteStore(tmp_path), listening, DUTIES) as port:
        base = f"http://127.0.0.1:{port}"
        own = {"Authorization": "Bearer open sesame"}
        for path in ("/ddlservice/worker_nodes", "/metrics", "/openapi.json", "/nothing"):
            stranger = requests.get(base + path, timeout=20)
            assert (stranger.status_code, stranger.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert requests.get(base + path, timeout=20, headers=own | {"Host": "evil.example"}).status_code == 403
        with pytest.raises(ServiceError, match="secret is missing or wrong"):
            Client(base, secret="open barley").workers()
        assert requests.get(f"{base}/metrics", timeout=20, headers=own).status_code == 200
        posted = requests.post(f"{base}/ddlservice/registered_clusters/c", timeout=20, headers=own)
        assert (posted.status_code, set(posted.headers["Allow"].split(", "))) == (405, {"GET", "HEAD", "PUT", "DELETE"})
        client = Client(base, secret="open sesame")
        until(lambda: _there(client), START_S)


def _there(client: Client) -> bool:
    try:
        return [w.id for w in client.workers()] == [NODE]
    except ServiceError:
        return False


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_callers_without_a_certificate_are_kept_out(tmp_path: Path) -> None:
    """TLS with certificates of callers."""
    _, cert, key = certificates(tmp_path)
    listening = Listening(port=0, certificate=cert, key=key, callers=cert)
    with running(NODE, SqliteStore(tmp_path), listening, DUTIES) as port:
        url = f"https://127.0.0.1:{port}"
        until(lambda: _there(Client(url, ca=cert, certificate=(cert, key))), START_S)
        with pytest.raises(ServiceError, match="no worker answers"):
            Client(url, ca=cert).workers()


def test_a_port_that_is_taken_is_said(url: str, tmp_path: Path) -> None:
    """The worker does not begin without its API."""
    taken = int(url.rpartition(":")[2])
    with (
        pytest.raises(SetupError, match="in use"),
        running("two", SqliteStore(tmp_path), Listening(port=taken), DUTIES),
    ):
        raise AssertionError("it began")


def test_a_worker_whose_id_is_taken_says_so(url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It waits, owns nothing, and shows its callers why."""
    with running(NODE, SqliteStore(tmp_path), Listening(port=0), DUTIES) as port:
        second = f"http://127.0.0.1:{port}/ddlservice/worker_nodes"
        until(lambda: "another worker is" in requests.get(second, timeout=20).text, START_S)
        assert requests.get(second, timeout=20).status_code == 503
        until(lambda: "another worker has this id" in caplog.text, START_S)
    assert [w.id for w in Client(url).workers()] == [NODE]


@pytest.mark.parametrize(
    ("option", "value"),
    [("--node-id", "a/b"), ("--version", "v6.0.0"), ("--secret-file", "bytes"), ("--store", "/proc/none")],
)
def test_a_worker_does_not_begin_with_what_is_wrong(tmp_path: Path, option: str, value: str) -> None:
    """An id that is no id, versions the wrong way round, a secret that no header can hold, a folder that cannot be."""
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    value = str(tmp_path / value) if value == "bytes" else value
    words = ["ddl-service", "serve", "--listen", "127.0.0.1:0", "--store", str(tmp_path), option, value]
    found = CliRunner().invoke(main, words)
    assert (found.exit_code, value in found.output or option in found.output) == (2, True), found.output


def test_a_cluster_with_a_job_goes_only_where_that_is_asked_for(url: str, tmp_path: Path) -> None:
    """409 while something is in its queue; with force it goes, the job stays, and ends when the cluster is back."""
    client = Client(url)
    store = client.register("cluster1", FIRST).store
    until(lambda: client.clusters()[0].schedule.status == "OWNER", START_S)
    node = SqliteStore(tmp_path)
    stuck = written(Job(1, "add index", "t", "i", "v6.5.0", rows=10, state="running", schema_state="delete only"))
    put = (
        Put(f"{keys.VERSIONS}tidb-slow", "0"),
        Put(keys.GLOBAL_VERSION, "1"),
        Put(keys.SCHEMA + "t/i", "delete only"),
        Put(keys.JOBS + "1", stuck.replace('"schema_version":0', '"schema_version":1')),
    )
    node.ask(store, Txn(("n", 1, "t"), (), put))
    with pytest.raises(ServiceError, match=r"has a job in its queue: job 1, add index \(running\)") as refused:
        client.remove("cluster1")
    assert refused.value.status == 409
    assert "has a job in its queue" in verb(url, "remove", "cluster1", code=2).output
    assert said(url, "remove", "cluster1", "--force") == "cluster1 is not registered any more\n"
    client.register("cluster1", FIRST)
    until(lambda: client.clusters()[0].schedule.status == "OWNER", START_S)
    shown = json.loads(said(url, "show-ddl", "cluster1", "--store", str(tmp_path), "--json"))
    assert shown["owner_id"].startswith("ddl-service-") and shown["owner_address"] == "" and shown["instances"] == []
    assert not node.ask(store, Read(("n", 1, "meta"), (keys.BOOTSTRAPPED,)))[0].entries  # type: ignore[union-attr]
    assert "no owner" not in said(url, "show-ddl", "cluster1", "--store", str(tmp_path))
    (own,) = node.ask(keys.PD, Read(("n", 1, "own"), (keys.SERVER_INFO, keys.TOPOLOGY)))
    where = f"{NODE}:{url.rpartition(':')[2]}"  # in the service's own cluster the worker is seen as every instance is
    told = {k: e.value for k, e in own.entries}  # type: ignore[union-attr]
    assert {f"{keys.TOPOLOGY}{where}/tidb", f"{keys.TOPOLOGY}{where}/ttl"} <= set(told)
    assert where in [json.loads(v)["address"] for k, v in told.items() if k.startswith(keys.SERVER_INFO)]
    assert said(url, "cancel", "cluster1", "1", "--store", str(tmp_path)) == "job 1: cancelling\n"
    ((_, meta),) = node.ask(store, Read(("n", 1, "meta"), (keys.BOOTSTRAPPED,)))[0].entries  # type: ignore[union-attr]
    assert meta.value == client.clusters()[0].version == client.register("cluster1", FIRST).version != Habits().version
    node.ask(store, Txn(("n", 1, "t"), (), (Delete(f"{keys.VERSIONS}tidb-slow"),)))
    until(lambda: not node.ask(store, Read(("n", 1, "r"), (keys.JOBS,)))[0].entries, START_S)  # type: ignore[union-attr]
    assert "not in the queue" in verb(url, "cancel", "cluster1", "1", "--store", str(tmp_path), code=1).output
    assert not [found for found in violations(of_folder(tmp_path)) if HIDDEN in found]
    node.ask(store, Txn(("n", 1, "t"), (), (Put(f"{keys.TOPOLOGY}{where}/ttl", "0"),)))
    assert HIDDEN in violations(of_folder(tmp_path))[-1]
    node.close()


def test_a_cluster_whose_server_info_is_no_json_costs_the_worker_nothing(url: str, tmp_path: Path) -> None:
    """It is as one that shows no version; the worker that was asked ended by it."""
    node = SqliteStore(tmp_path)
    node.ask(FIRST, Txn(("n", 1, "t"), (), (Put(f"{keys.SERVER_INFO}x", "no JSON"),)))
    client = Client(url)
    assert client.register("cluster1", FIRST).version == DUTIES.versions.own
    until(lambda: client.clusters()[0].schedule.status == "OWNER", START_S)
    assert json.loads(said(url, "show-ddl", "cluster1", "--store", str(tmp_path), "--json"))["instances"] == []
    node.close()


@pytest.mark.skipif(not socket.has_ipv6, reason="this host has no IPv6")
def test_an_ipv6_address_is_listened_on(tmp_path: Path) -> None:
    """As [::1] in a URL, without a secret: it is this host."""
    with running(NODE, SqliteStore(tmp_path), Listening("::1", port=0), DUTIES) as port:
        until(lambda: requests.get(f"http://[::1]:{port}/ready", timeout=20).status_code == 200, START_S)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("10.0.0.7", "10.0.0.7:80"),
        ("fd00::7", "[fd00::7]:80"),
        ("0.0.0.0", f"{NODE}:80"),  # what a socket shows that listens everywhere
        ("::", f"{NODE}:80"),
        ("127.0.0.1", f"{NODE}:80"),
        ("::1", f"{NODE}:80"),
    ],
)
def test_workers_of_several_hosts_have_addresses_of_their_own(host: str, expected: str) -> None:
    """The same on each host is no address: two would write one topology key, and the lease of one ended both."""
    assert instance_address(NODE, host, 80) == expected


def test_a_port_that_is_taken_leaves_no_file(url: str, tmp_path: Path) -> None:
    """The address is taken before the store is made."""
    words = ["ddl-service", "serve", "--listen", url.removeprefix("http://"), "--store", str(tmp_path / "new")]
    assert "in use" in CliRunner().invoke(main, words).output
    assert not (tmp_path / "new").exists()
