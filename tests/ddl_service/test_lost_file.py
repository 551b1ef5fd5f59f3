"""The store's file deleted or replaced under a live fleet: no worker continues what others cannot see."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner
from fleet import START_S, Fleet, until

from ticdc_lab.cli import main
from ticdc_lab.ddl_core.checks import ONE_FILE
from ticdc_lab.ddl_core.store import Put, Txn
from ticdc_lab.ddl_service import sqlite_file
from ticdc_lab.ddl_service.sqlite_file import BEGUN, FILE
from ticdc_lab.ddl_service.sqlite_store import SqliteStore
from ticdc_lab.errors import SetupError, SourceError

WRITE = Txn(("n", 1, "t"), (), (Put("/a/1", "x"),))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Workers that are killed at the end."""
    found = Fleet(tmp_path)
    yield found
    found.close()


def deleted(folder: Path) -> None:
    """Delete the store."""
    for suffix in ("", "-wal", "-shm"):
        (folder / f"{FILE}{suffix}").unlink(missing_ok=True)


def test_workers_of_a_deleted_file_stop_and_no_other_begins(fleet: Fleet) -> None:
    """Each shows why in a sentence and ends; who starts then makes no second store; the audit has nothing to read."""
    fleet.begin("node-1", "node-2")
    fleet.register("cluster1", "tikv://10.0.0.1:2379")
    deleted(fleet.folder)
    codes = {name: process.wait(START_S) for name, process in fleet.processes.items()}
    assert codes == {"node-1": 2, "node-2": 2}
    for name in codes:
        log = (fleet.folder / f"{name}.log").read_text()
        assert "while this process had it open" in log
        assert "Traceback" not in log
    words = ["ddl-service", "serve", "--listen", "127.0.0.1:0", "--store", str(fleet.folder)]
    found = CliRunner().invoke(main, words)
    assert (found.exit_code, "is gone" in found.output) == (2, True)
    assert not (fleet.folder / FILE).exists()
    fleet.processes.clear()


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_nothing_is_answered_from_a_file_that_is_another(tmp_path: Path, suffix: str) -> None:
    """Replaced by a copy: what is written to the one is not in the other."""
    store = SqliteStore(tmp_path)
    store.ask("s", WRITE)
    path = tmp_path / f"{FILE}{suffix}"
    copy = path.read_bytes()
    path.unlink()
    path.write_bytes(copy)
    for ask in (lambda: store.ask("s", WRITE), store.news):
        with pytest.raises(SourceError, match="is another file now"):
            ask()


def test_nothing_is_answered_from_a_file_that_was_cut(tmp_path: Path) -> None:
    """It is the same file still, and what it had is gone; its log may begin again."""
    store = SqliteStore(tmp_path)
    store.ask("s", WRITE)
    store._db.execute("pragma wal_checkpoint(truncate)")
    store.ask("s", WRITE)
    (tmp_path / FILE).open("r+b").truncate(0)
    for ask in (lambda: store.ask("s", WRITE), store.news):
        with pytest.raises(SourceError, match=r"was cut from [\d,]+ to 0 bytes"):
            ask()


def test_what_is_written_while_the_file_goes_is_not_confirmed(tmp_path: Path) -> None:
    """The file is there before the transaction and not after it."""
    store = SqliteStore(tmp_path)
    real = store._db
    store._db = _DeletesAtCommit(real, tmp_path)  # type: ignore[assignment]
    with pytest.raises(SourceError, match="was deleted"):
        store.ask("s", WRITE)


class _DeletesAtCommit:
    """A connection whose file is deleted just before it commits."""

    def __init__(self, db: sqlite3.Connection, folder: Path) -> None:
        self._db, self._folder = db, folder
        self.executemany = db.executemany

    def execute(self, *words: object) -> object:
        if words == ("commit",):
            deleted(self._folder)
        return self._db.execute(*words)  # type: ignore[arg-type]


def test_the_audit_sees_that_a_second_store_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a worker begins again where a store was lost."""
    SqliteStore(tmp_path).close()
    deleted(tmp_path)
    with pytest.raises(SetupError, match="is gone"):
        SqliteStore(tmp_path)
    monkeypatch.setattr(sqlite_file, "refuse_another", lambda path: None)
    SqliteStore(tmp_path).close()
    found = CliRunner().invoke(main, ["ddl-service", "audit", "--store", str(tmp_path)])
    assert (found.exit_code, ONE_FILE in found.output) == (1, True)
    (tmp_path / BEGUN).write_text(sqlite_file.begun(tmp_path)[-1])
    found = CliRunner().invoke(main, ["ddl-service", "audit", "--store", str(tmp_path)])
    assert found.exit_code == 0


def test_two_that_begin_at_once_begin_one_store(fleet: Fleet) -> None:
    """Both in an empty folder."""
    fleet.begin("node-1", "node-2")
    until(lambda: len(fleet.get("worker_nodes") or []) == 2, START_S)
    assert len(sqlite_file.begun(fleet.folder)) == 1


def test_many_that_begin_at_once_are_not_refused(tmp_path: Path) -> None:
    """SQLite answers one of two who change a new file's mode at once that it is locked, and waits for neither."""
    for k in range(40):
        with ThreadPoolExecutor(6) as workers:
            opened = list(workers.map(lambda _, k=k: sqlite_file.opened(tmp_path / str(k))[0], range(6)))
        for db in opened:
            db.close()
        assert len(sqlite_file.begun(tmp_path / str(k))) == 1
