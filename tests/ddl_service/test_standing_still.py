"""A worker that is stopped, locked out or full: it reports it, claims nothing, and continues when it can."""

from __future__ import annotations

import logging
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner
from deaf import Deaf
from fleet import START_S, until

from ticdc_lab.cli import main
from ticdc_lab.ddl_core.settings import Duties
from ticdc_lab.ddl_core.store import Answer, Done, Put, Request, Txn
from ticdc_lab.ddl_service import Listening, running, sqlite_store
from ticdc_lab.ddl_service.node import line
from ticdc_lab.ddl_service.sqlite_file import FILE
from ticdc_lab.ddl_service.sqlite_store import SqliteStore
from ticdc_lab.machines.leases import Terms

SHORT = Duties(terms=Terms(1_500_000, 300_000))


class Stopping(Deaf):
    """A store whose worker can be stopped in the midst of a question, as by SIGSTOP."""

    def __init__(self, folder: Path) -> None:
        super().__init__(SqliteStore(folder))
        self.goes = threading.Event()
        self.goes.set()

    def ask(self, store: str, request: Request) -> list[Answer]:
        """Hand it on, when it goes."""
        self.goes.wait()
        return super().ask(store, request)


def status(port: int, path: str = "/ddlservice/registered_clusters") -> int:
    """The status of an answer."""
    return requests.get(f"http://127.0.0.1:{port}{path}", timeout=START_S).status_code


def test_after_its_lease_a_worker_says_nothing_it_once_knew(tmp_path: Path) -> None:
    """The worker stands, its API does not: 503, also for a client that already waits; then it continues as before."""
    store = Stopping(tmp_path)
    with running("one", store, Listening(port=0), SHORT) as port:
        until(lambda: status(port) == 200, START_S)
        store.goes.clear()
        assert status(port) == 503
        assert (status(port), status(port, "/ready")) == (503, 503)
        put = requests.put(
            f"http://127.0.0.1:{port}/ddlservice/registered_clusters/c", data='{"store_addr": "tikv://a:1"}', timeout=20
        )
        assert put.status_code == 503
        store.goes.set()
        until(lambda: status(port) == 200, START_S)


def test_a_lock_that_stays_is_said_once_and_ends_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Another process stands inside a transaction for longer than a lease: no worker hangs, and all
    continue behind it.
    """
    with running("one", SqliteStore(tmp_path), Listening(port=0), SHORT) as port:
        until(lambda: status(port, "/ready") == 200, START_S)
        other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
        other.execute("begin immediate")
        until(lambda: status(port, "/ready") == 503, START_S)
        until(lambda: "ddl_service_store_trouble 1.0" in _metrics(port), START_S)
        until(lambda: status(port) == 503, START_S)
        ready = requests.get(f"http://127.0.0.1:{port}/ready", timeout=START_S).json()
        assert "the store takes no changes" in ready["error"], "it says why, and not only that its session is over"
        other.execute("rollback")
        until(lambda: status(port, "/ready") == 200, START_S)
        assert "ddl_service_store_trouble 0.0" in _metrics(port)
    assert [r.levelno for r in caplog.records if "takes no changes" in r.message] == [logging.ERROR]


STOPPED = """
import os, signal, sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("begin immediate")
print("stops", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
other.execute("rollback")
"""


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="this system does not tell who has locks")
def test_who_is_stopped_inside_a_transaction_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SIGSTOP of another process of the store: the log and readiness show which; when it continues all do."""
    with running("one", SqliteStore(tmp_path), Listening(port=0), SHORT) as port:
        until(lambda: status(port, "/ready") == 200, START_S)
        command = [sys.executable, "-c", STOPPED, str(tmp_path / FILE)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "stops\n"
            until(lambda: f"process {other.pid} has its lock, which is stopped" in caplog.text, START_S)
            other.send_signal(signal.SIGCONT)
        until(lambda: status(port, "/ready") == 200, START_S)


def _metrics(port: int) -> str:
    return requests.get(f"http://127.0.0.1:{port}/metrics", timeout=START_S).text


def test_a_full_disk_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """However often it is tried; and again when there is room."""
    store = SqliteStore(tmp_path)
    real, store._db = store._db, _Full(store._db)  # type: ignore[assignment]
    put = Txn(("n", 1, "t"), (), (Put("/a/1", "x"),))
    for _ in range(50):
        assert store.ask("s", put) == [Done(put.tag, False, 0)]
    assert "full" in store.trouble
    store._db = real
    assert store.ask("s", put) == [Done(put.tag, True, 2)]
    assert store.trouble == ""
    assert len([r for r in caplog.records if "takes no changes" in r.message]) == 1


class _Full:
    """A connection whose commits find no room."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.executemany = db.executemany

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def execute(self, *words: str) -> object:
        if words == ("commit",):
            raise sqlite3.OperationalError("database or disk is full")
        return self._db.execute(*words)


def test_what_waits_for_a_store_that_takes_nothing_is_told_that_nothing_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registration that cannot be written ends as one that was not."""
    monkeypatch.setattr(SqliteStore, "_transacted", _refusing(SqliteStore._transacted))
    with running("one", SqliteStore(tmp_path), Listening(port=0), SHORT) as port:
        until(lambda: status(port) == 200, START_S)
        url = f"http://127.0.0.1:{port}/ddlservice/registered_clusters/c"
        put = requests.put(url, data='{"store_addr": "tikv://a:1"}', timeout=START_S)
        assert (put.status_code, "nothing was written" in put.json()["error"]) == (503, True)


def _refusing(sound: Callable[..., Answer]) -> Callable[..., Answer]:
    def transacted(self: SqliteStore, store: str, txn: Txn) -> Answer:
        is_wish = str(txn.tag[2]).startswith("write ")  # type: ignore[index]
        return Done(txn.tag, False, 0) if is_wish else sound(self, store, txn)

    return transacted


def test_a_name_makes_no_line_of_a_log() -> None:
    """What users call their tables is text inside a line."""
    assert line("a\nowner: x\x1b[1m\u2028\ud800 \u00e9") == "a\\nowner: x\\x1b[1m\\u2028\\ud800 \u00e9"


@pytest.mark.parametrize(
    "words",
    [
        ("serve", "--ttl", "nan"), ("serve", "--ttl", "inf"),
        ("submit", "c", "add index", "t", "--within", "nan"), ("submit", "c", "add index", "t", "--rows", "9" * 30),
        ("submit", "c", "add thing", "t", "i"), ("submit", "c", "add index", "t"),
        ("submit", "c", "drop table", "t", "i"),
        ("submit", "c", "add index", "t\udcff", "i"), ("submit", "c", "add index", "t" * 65, "i"),
    ],
)  # fmt: skip
def test_what_is_no_number_and_no_name_is_refused(words: tuple[str, ...]) -> None:
    """With a sentence, before anything is asked."""
    found = CliRunner().invoke(main, ["ddl-service", *words])
    assert (found.exit_code, "Traceback" in found.output) == (2, False)
    assert isinstance(found.exception, SystemExit)


def test_the_store_is_written_through_to_the_disk(tmp_path: Path) -> None:
    """What is confirmed survives a loss of power: each commit waits for the disk."""
    store = SqliteStore(tmp_path)
    assert store._db.execute("pragma synchronous").fetchone() == (2,)
    assert sqlite_store.BUSY_S <= 1
    store.close()
