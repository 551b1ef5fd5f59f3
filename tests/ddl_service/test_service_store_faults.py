"""Stores that forget at random moments, under workers that register, and requests that hide others behind them.

``SOAK_KILLS=200 SOAK_SEED=7 pytest -m soak tests/ddl_service/test_service_store_faults.py`` tries more moments.
"""

from __future__ import annotations

import random
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import killing
import pytest
import real_etcd
import requests
from click.testing import CliRunner
from fleet import START_S, Fleet, until

from ticdc_lab.cli import main
from ticdc_lab.ddl_service.sqlite_file import FILE

pytestmark = pytest.mark.soak

FRAMES = ("Content-Length: 4\r\nTransfer-Encoding: chunked", "transfer-encoding: chunked\r\ncontent-length: 0",
          "Transfer-Encoding : chunked\r\nContent-Length: 5", "Content-Length: 5\r\nTransfer-Encoding: gzip, chunked",
          "Content-Length: 0\r\nContent-Length: 4", "Content-Length: +4", "Transfer-Encoding: xchunked")  # fmt: skip


def smuggled(fleet: Fleet, r: random.Random) -> None:
    """Send a DELETE behind a GET of two lengths or none; at most one request is answered."""
    port = fleet.ports[r.choice(list(fleet.processes))]
    method = r.choice(["GET /ready", "PUT /ddlservice/registered_clusters/x", "GET /metrics"])
    behind = "DELETE /ddlservice/registered_clusters/c0?force=true HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    first = f"{method} HTTP/1.1\r\nHost: 127.0.0.1\r\n{r.choice(FRAMES)}\r\n\r\n0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 20) as line, suppress(ConnectionResetError):
        line.sendall((first + behind).encode())
        answer = b"".join(iter(lambda: line.recv(65_536), b""))
        assert answer.count(b"HTTP/1.1") <= 1 and not answer.startswith(b"HTTP/1.1 2"), (first, answer)


@contextmanager
def registering(fleet: Fleet, r: random.Random) -> Iterator[list[str]]:
    """Register cluster after cluster, with requests in between that hide others; those that were confirmed."""
    confirmed: list[str] = []
    failed: list[BaseException] = []
    ending = threading.Event()

    def go() -> None:
        n = 0
        while not ending.is_set():
            name = r.choice(list(fleet.ports))
            url = fleet.url(name, f"/ddlservice/registered_clusters/c{n}")
            try:
                answer = requests.put(url, data=f'{{"store_addr": "tikv://10.1.0.{n}:2379"}}', timeout=20)
                assert answer.status_code in (200, 409, 503), answer.text
                if answer.status_code == 200:
                    confirmed.append(f"c{n}")
                    n += 1
                if n:
                    smuggled(fleet, r)
            except requests.RequestException:
                time.sleep(0.02)  # a worker that has ended
            except OSError:
                time.sleep(0.02)
            except AssertionError as fault:
                failed.append(fault)
                return

    thread = threading.Thread(target=go)
    thread.start()
    try:
        until(lambda: confirmed or failed, START_S)
        yield confirmed
    finally:
        ending.set()
        thread.join()
    assert not failed, failed[0]


def listed(fleet: Fleet, name: str) -> set[str]:
    """The clusters that a worker lists; none while it does not answer."""
    return {c["id"] for c in fleet.ask(name, "registered_clusters") or ()}


@pytest.mark.parametrize("comes_back", ["empty", "older", "another cluster"])
def test_an_etcd_that_forgets_is_not_served_from(
    tmp_path: Path, comes_back: str, request: pytest.FixtureRequest
) -> None:
    """Every worker stops, and the decision for the mirror brings back all that was confirmed."""
    for n, wait_s in enumerate(killing.moments(1.5, times=max(1, killing.TIMES // 5))):
        r = random.Random(f"{killing.SEED} {comes_back} {n}")
        etcd = real_etcd.begun(tmp_path / f"etcd{n}")
        data, kept = etcd.folder / etcd.name, etcd.folder / "kept"
        (folder := tmp_path / f"fleet{n}").mkdir()
        fleet = Fleet(folder, etcd.endpoint)
        try:
            fleet.begin("node-1", "node-2")
            if comes_back == "older":
                fleet.register("before", "tikv://10.2.0.1:2379")
                etcd.kill()
                shutil.copytree(data, kept)
                etcd.begin()
            with registering(fleet, r) as confirmed:
                time.sleep(wait_s)
                etcd.kill()
                shutil.rmtree(data)
                if comes_back == "older":
                    shutil.copytree(kept, data)
                etcd.token = "other" if comes_back == "another cluster" else etcd.token
                before = set(confirmed)
                etcd.begin()
                until(lambda: all(_doubts(f) for f in _urls(fleet)), START_S)  # noqa: B023
                assert set(confirmed) == before, "nothing is confirmed by a store that forgot"
                words = ["ddl-service", "go-on", "--etcd", etcd.endpoint, "--from", "mirror"]
                assert CliRunner().invoke(main, words).exit_code == 0
                for name in fleet.processes:
                    until(lambda name=name: listed(fleet, name) >= before, START_S)  # noqa: B023
                until(lambda: len(confirmed) > len(before), START_S)  # noqa: B023
            found = CliRunner().invoke(main, ["ddl-service", "audit", "--etcd", etcd.endpoint])
            assert "continued from the mirror" in found.output, found.output
            assert all("Traceback" not in (folder / f"{name}.log").read_text() for name in fleet.processes)
        except AssertionError as fault:
            repeat = killing.repeating(request.node.nodeid)
            raise AssertionError(f"round {n}; repeat it: {repeat}\n{fault}") from fault
        finally:
            fleet.close()
            etcd.kill()


def _urls(fleet: Fleet) -> list[str]:
    return [fleet.url(name, "/ready") for name in fleet.processes]


def _doubts(url: str) -> bool:
    answer = requests.get(url, timeout=20)
    return answer.status_code == 503 and "go-on" in answer.json()["hint"]


def test_a_store_that_is_cut_to_nothing_ends_its_workers(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """SQLite's file loses all its bytes while rows are written: each worker reports it and ends."""
    for n, wait_s in enumerate(killing.moments(1.5, times=max(1, killing.TIMES // 3))):
        (folder := tmp_path / str(n)).mkdir()
        fleet = Fleet(folder)
        try:
            fleet.begin("node-1", "node-2")
            with registering(fleet, random.Random(f"{killing.SEED} {n}")):
                time.sleep(wait_s)
                (folder / FILE).open("r+b").truncate(0)
                codes = {name: process.wait(START_S) for name, process in fleet.processes.items()}
            logs = {name: (folder / f"{name}.log").read_text() for name in codes}
            assert set(codes.values()) == {2}, logs
            assert not any("Traceback" in log for log in logs.values()), logs
            assert any("was cut from" in log for log in logs.values()), logs
        except AssertionError as fault:
            repeat = killing.repeating(request.node.nodeid)
            raise AssertionError(f"round {n}; repeat it: {repeat}\n{fault}") from fault
        finally:
            fleet.processes = {name: p for name, p in fleet.processes.items() if p.poll() is None}
            fleet.close()
