"""An etcd that comes back empty or older under living workers: no worker serves until an operator decides."""

from __future__ import annotations

import shutil
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import real_etcd
import requests
from click.testing import CliRunner
from fleet import START_S, until

from ticdc_lab.cli import main
from ticdc_lab.ddl_core import keys
from ticdc_lab.ddl_core.checks import ONE_HISTORY
from ticdc_lab.ddl_core.server_state import Submit
from ticdc_lab.ddl_core.settings import Duties
from ticdc_lab.ddl_service import Listening, etcd_witness, running, submitting
from ticdc_lab.ddl_service.etcd_rpc import Etcd
from ticdc_lab.ddl_service.etcd_store import EtcdStore
from ticdc_lab.ddl_service.etcd_witness import EtcdLost, WentBackError, Witness
from ticdc_lab.errors import SourceError
from ticdc_lab.machines.leases import Terms

BODY_OF_A = '{"store_addr": "tikv://a:2379"}'
SHORT = Duties(terms=Terms(2_000_000, 400_000))


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[real_etcd.Server]:
    """One etcd."""
    found = real_etcd.begun(tmp_path / "etcd")
    yield found
    found.kill()


def put(url: str, cluster: str) -> requests.Response:
    """Register a cluster."""
    body = f'{{"store_addr": "tikv://{cluster}:2379"}}'
    return requests.put(f"{url}/ddlservice/registered_clusters/{cluster}", data=body, timeout=20)


def clusters(url: str) -> list[str]:
    """The registered clusters, as a worker lists them; nothing where it does not answer."""
    answer = requests.get(f"{url}/ddlservice/registered_clusters", timeout=20)
    return [one["id"] for one in answer.json()] if answer.status_code == 200 else []


def command(*words: str) -> tuple[int, str]:
    """Run a command of the service."""
    done = CliRunner().invoke(main, ["ddl-service", *words])
    return done.exit_code, done.output


@pytest.mark.parametrize(("comes_back", "source", "left"), [
    ("empty", "mirror", ["a", "b"]), ("older", "store", ["a"]),
])  # fmt: skip
def test_nobody_serves_until_somebody_decides(
    etcd: real_etcd.Server, comes_back: str, source: str, left: list[str]
) -> None:
    """The worker shows what is missing, refuses every change, and continues from where it is ordered to; the audit sees
    it.
    """
    data, kept = etcd.folder / etcd.name, etcd.folder / "kept"
    with running("node-1", lambda: EtcdStore(Etcd(etcd.endpoint)), Listening(port=0), SHORT) as port:
        url = f"http://127.0.0.1:{port}"
        until(lambda: put(url, "a").status_code == 200, START_S)
        if comes_back == "older":
            etcd.kill()
            shutil.copytree(data, kept)
            etcd.begin()
        until(lambda: put(url, "b").status_code == 200, START_S)
        until(lambda: clusters(url) == ["a", "b"], START_S)
        etcd.kill()
        shutil.rmtree(data)
        if comes_back == "older":
            shutil.copytree(kept, data)
        etcd.begin()
        ready = until(lambda: (r := requests.get(f"{url}/ready", timeout=20)).status_code == 503
                      and "missing or older in it" in r.json()["error"] and r.json(), START_S)  # fmt: skip
        assert "gone back from revision" in ready["error"] and "go-on" in ready["hint"]
        gone = "b" if comes_back == "older" else "a, b"
        assert ready["error"].endswith(f"missing or older in it: {gone}")
        assert put(url, "c").status_code == 503 and clusters(url) == []
        with running("node-2", lambda: EtcdStore(Etcd(etcd.endpoint)), Listening(port=0), SHORT) as other:
            assert put(f"http://127.0.0.1:{other}", "c").status_code == 503, "one that starts now waits, too"
        code, said = command("audit", "--etcd", etcd.endpoint)
        assert (code, ONE_HISTORY in said, "not decided yet" in said) == (1, True, True)
        assert command("go-on", "--etcd", etcd.endpoint, "--from", source)[0] == 0
        until(lambda: clusters(url) == left, START_S)
        until(lambda: put(url, "c").status_code == 200, START_S)
        taken = put(url, "d"), requests.put(f"{url}/ddlservice/registered_clusters/e", data=BODY_OF_A, timeout=20)
        assert [answer.status_code for answer in taken] == [200, 409], "PD addresses are known again"
        assert command("go-on", "--etcd", etcd.endpoint, "--from", source) == (0, "no worker waits for a decision\n")
    assert f"continued from the {source}" in command("audit", "--etcd", etcd.endpoint)[1]


def test_a_worker_that_has_seen_less_stops_with_the_others(etcd: real_etcd.Server) -> None:
    """The revision that it knows is there; another worker has noticed, and written it down."""
    with running("node-1", lambda: EtcdStore(Etcd(etcd.endpoint)), Listening(port=0), SHORT) as port:
        url = f"http://127.0.0.1:{port}"
        until(lambda: put(url, "a").status_code == 200, START_S)
        mark = msgspec.json.encode(EtcdLost("etcd has gone back", ("b",), {}))
        written = {"key": b64encode(f"{keys.WENT_BACK}x-1".encode()).decode(), "value": b64encode(mark).decode()}
        requests.post(f"http://{etcd.endpoint}/v3/kv/put", json=written, timeout=20).raise_for_status()
        ready = until(lambda: (r := requests.get(f"{url}/ready", timeout=20)).status_code == 503 and r.json(), START_S)
        assert "etcd has gone back; 1 registered cluster is missing" in ready["error"]
        assert put(url, "c").status_code == 503
        assert command("go-on", "--etcd", etcd.endpoint, "--from", "store")[0] == 0
        until(lambda: put(url, "c").status_code == 200, START_S)


def test_a_witness_that_keeps_the_higher_revision_without_a_word_serves_from_an_empty_store(
    etcd: real_etcd.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: what workers did before."""
    monkeypatch.setattr(Witness, "saw", lambda self, header, floor: None)
    monkeypatch.setattr(Witness, "is_doubted", lambda self, header: False)
    with running("node-1", lambda: EtcdStore(Etcd(etcd.endpoint)), Listening(port=0), SHORT) as port:
        url = f"http://127.0.0.1:{port}"
        until(lambda: put(url, "a").status_code == 200, START_S)
        etcd.kill()
        shutil.rmtree(etcd.folder / etcd.name)
        etcd.begin()
        until(lambda: put(url, "b").status_code == 200, START_S)
        assert clusters(url) == ["b"]


def test_what_is_no_answer_of_the_known_etcd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another cluster, or a lower revision than was known when it was asked; one that was asked before may be lower."""
    monkeypatch.setattr(Witness, "_notice", lambda self, because: setattr(self, "lost", because))

    def header(cluster: int, revision: int) -> SimpleNamespace:
        return SimpleNamespace(cluster_id=cluster, revision=revision)

    for wrong, says in ((header(8, 99), "another etcd"), (header(7, 9), "gone back from revision 10 to 9")):
        witness = Witness.__new__(Witness)
        witness._cluster, witness.revision, witness.lost = 0, 0, ""
        witness.saw(header(7, 10), 0)
        witness.saw(header(7, 9), 5)
        assert witness.revision == 10 and witness.is_doubted(wrong) and not witness.is_doubted(header(7, 10))
        with pytest.raises(WentBackError, match=says):
            witness.saw(wrong, 10)


def test_a_job_that_its_store_has_no_more_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by a bare key."""
    monkeypatch.setattr(submitting, "snapshot", lambda *_, **__: {})
    monkeypatch.setattr(submitting._Follower, "ended", lambda *_: 1)
    monkeypatch.setattr(submitting, "Node", lambda *_: SimpleNamespace(start=int, post=id, stop=int))
    with pytest.raises(SourceError, match=r"job 1 was sent to tikv://x:1, and its store has it no more"):
        submitting.submitted(int, "tikv://x:1", Submit("create table", "t"), version="v6.5.0", within_s=1)
    assert "mirror" in etcd_witness.REMEDY
