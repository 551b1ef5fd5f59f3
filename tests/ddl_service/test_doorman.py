"""Strangers with many slow connections keep no client out, fill no log, and are let go."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from fleet import START_S, until
from real_etcd import certificates

from ticdc_lab.ddl_core.settings import DUTIES
from ticdc_lab.ddl_service import Listening, http, running, serving
from ticdc_lab.ddl_service.sqlite_store import SqliteStore

HEADERS = {"Authorization": "bEaReR open sesame"}


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A worker that asks for a secret, has room for few, and waits for few seconds."""
    monkeypatch.setattr(http, "MOST_GUESTS", 20)
    monkeypatch.setattr(http, "BODY_S", 0.5)
    monkeypatch.setattr(http, "IDLE_S", 1.0)
    listening = Listening(port=0, secret="open sesame")
    with running("one", SqliteStore(tmp_path), listening, DUTIES) as found:
        until(lambda: answered(found) == 200, START_S)
        yield found


def answered(port: int) -> int:
    """The status of a request as it should be."""
    return requests.get(f"http://127.0.0.1:{port}/ready", headers=HEADERS, timeout=20).status_code


def slow(port: int, text: bytes) -> socket.socket:
    """A connection that begins to ask."""
    found = socket.create_connection(("127.0.0.1", port), timeout=START_S)
    found.sendall(text)
    return found


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side hangs up, within its time, no matter what it shows before."""
    try:
        while connection.recv(4096):
            pass
        return True
    except ConnectionResetError:
        return True


def test_many_slow_connections_keep_nobody_out(port: int) -> None:
    """Sixty that never end their first line: the oldest are closed, and who knows the secret is answered."""
    strangers = [slow(port, b"GET / HT") for _ in range(60)]
    assert answered(port) == 200
    assert is_closed(strangers[0])
    assert all(map(is_closed, strangers))  # those that were not closed at once are after the time to be idle


def test_an_answer_does_not_wait_for_an_acknowledgement(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is held back until the last one's acknowledgement has come, 40 ms later."""
    made, sound = [], http.Connection.connection_made

    def connection_made(self: http.Connection, transport: asyncio.Transport) -> None:
        sound(self, transport)
        made.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(http.Connection, "connection_made", connection_made)
    assert answered(port) == 200
    assert made
    assert all(made)


def test_a_body_that_does_not_come_is_not_waited_for(port: int) -> None:
    """The connection is closed after the time for a body."""
    head = b"PUT /ddlservice/registered_clusters/c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n"
    for secret in (b"", b"Authorization: Bearer open sesame\r\n"):
        assert is_closed(slow(port, head + secret + b"\r\n{"))


def test_what_is_no_http_is_told_so_in_json(port: int) -> None:
    """As every other refusal."""
    connection = slow(port, b"nonsense\r\n\r\n")
    answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert set(json.loads(answer.partition(b"\r\n\r\n")[2])) == {"error", "hint"}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_who_does_not_agree_on_tls_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that reports nothing is closed after the time for that."""
    monkeypatch.setattr(serving, "HANDSHAKE_S", 0.5)
    _, cert, key = certificates(tmp_path)
    listening = Listening(port=0, certificate=cert, key=key)
    with running("one", SqliteStore(tmp_path), listening, DUTIES) as port:
        assert is_closed(slow(port, b""))


def test_files_that_run_out_are_a_line_and_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    """However often no connection can be taken."""
    server = http.Doorman()
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            server.failed(None, {"exception": OSError(errno.EMFILE, "Too many open files")})  # type: ignore[arg-type]
    (record,) = caplog.records
    assert "ulimit" in record.message
    assert record.exc_info is None


def test_who_is_wrong_is_told_how_http_wants_it(port: int) -> None:
    """Which scheme, which methods; JSON in every error, and nothing that a browser takes for a page."""
    base = f"http://127.0.0.1:{port}"
    for given in ({}, {"Authorization": "open sesame"}, {"Authorization": "Basic open sesame"}):
        refused = requests.get(f"{base}/metrics", headers=given, timeout=20)
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert refused.headers["Content-Type"] == "application/json"
    wrong = requests.post(f"{base}/ddlservice/registered_clusters/c", headers=HEADERS, timeout=20)
    assert (wrong.status_code, wrong.headers["Allow"]) == (405, "GET, HEAD, PUT, DELETE")
    page = requests.get(f"{base}/<script>", headers=HEADERS, timeout=20)
    assert (page.status_code, page.headers["Content-Type"]) == (404, "application/json")
    assert page.headers["X-Content-Type-Options"] == "nosniff"
