"""The file of the embedded store: its tables, and transactions that hold or have never been."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ticdc_lab.ddl_service.store_time import StoreTime, steady_us, wall_us
from ticdc_lab.errors import SetupError, SourceError

FILE = "ddl-service.sqlite"
BEGUN = "ddl-service.begun"
"""Beside the file: the id of each store that was ever begun in the folder, which must be one."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
BUSY_S = 1.0
"""So long a transaction waits for another process's, once; until one goes through the next ones wait less.

A worker has to look at its clock now and then. One that is stopped inside a transaction (SIGSTOP; some milliseconds of
each second) keeps all others from writing until it resumes or is killed: SQLite's lock has no lease.
"""
HURRIED_S = 0.25
_WRITERS_LOCK = "120"
"""The byte of the file ``-shm`` that who writes has locked (SQLite's WAL_WRITE_LOCK)."""

TABLES = """
create table if not exists keys(
    store text, key text, value text, created integer, modified integer, lease integer, primary key(store, key)
) without rowid;
create index if not exists keys_of_leases on keys(lease) where lease > 0;
create table if not exists leases(id integer primary key autoincrement, ttl_us integer, expires_us integer);
create table if not exists events(
    revision integer, store text, key text, value text, created integer, lease integer
);
create index if not exists events_by_revision on events(revision);
create table if not exists history(revision integer);
insert into history select 1 where not exists (select 1 from history);
create table if not exists clock(boot text, offset_us integer);
create table if not exists store(id text);
insert into store select lower(hex(randomblob(8))) where not exists (select 1 from store);
"""


class OpenFiles:
    """What a connection holds open, so that it is seen when the folder no longer has it.

    A user of a deleted file would confirm what no other can read, and own what others own too.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: dict[str, tuple[int, int]] = {}
        self._size = 0

    def check(self) -> None:
        """Look whether the folder has the same files as before. Raises SourceError: it has not."""
        for suffix in ("", "-wal", "-shm"):
            try:
                found = os.stat(f"{self._path}{suffix}")
            except FileNotFoundError:
                if suffix not in self._seen:
                    continue
                raise self._gone(suffix, "was deleted") from None
            if self._seen.setdefault(suffix, (found.st_dev, found.st_ino)) != (found.st_dev, found.st_ino):
                raise self._gone(suffix, "is another file now")
            if not suffix:  # a log is restarted, but the file itself never becomes shorter
                if found.st_size < self._size:
                    raise self._gone(suffix, f"was cut from {self._size:,} to {found.st_size:,} bytes")
                self._size = found.st_size

    def _gone(self, suffix: str, what: str) -> SourceError:
        return SourceError(
            f"{self._path}{suffix} {what} while this process had it open; it stops, because its writes would be lost",
            hint="Stop all workers of this store and put the database file back before you start any: "
            "`ticdc-lab ddl-service serve`",
        )


def opened(folder: str | Path) -> tuple[sqlite3.Connection, StoreTime]:
    """Open the file in a folder, and make what is not there; gives the store's time too.

    Raises SetupError: it cannot be made or written, or the file is something else.
    """
    path = Path(folder) / FILE
    refuse_another(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        _write_ahead(db)
        db.execute("pragma synchronous=full")
        with writing(db):
            for statement in TABLES.split(";"):
                db.execute(statement)
            known = _timed(db)
        _note(path.parent / BEGUN, str(db.execute("select id from store").fetchone()[0]))
    except (OSError, sqlite3.Error) as error:
        raise SetupError(f"{path} cannot be used as a store: {error}", hint="Give another --store.") from None
    return db, known


def _write_ahead(db: sqlite3.Connection) -> None:
    """Keep a log beside the file; of two that begin one at once SQLite refuses one, without waiting as it does else."""
    until_s = time.monotonic() + BUSY_S
    while True:
        try:
            db.execute("pragma journal_mode=wal")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until_s:
                raise
            time.sleep(0.01)


def _timed(db: sqlite3.Connection) -> StoreTime:
    """Give the time of the store: as of the first process that opened it since the machine was started.

    All its processes are of one machine, so their steady time is one; without a living lease the past binds no one,
    and the system's time is taken again.
    """
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    known = db.execute("select offset_us from clock where boot = ?", (boot,)).fetchone()
    lives = "select 1 from leases where expires_us between ?1 and ?1 + ttl_us"
    if known and db.execute(lives, (time.monotonic_ns() // 1000,)).fetchone():
        return StoreTime(known[0])
    offset_us = wall_us() - steady_us()
    db.execute("delete from clock")
    db.execute("insert into clock values(?, ?)", (boot, offset_us))
    return StoreTime(offset_us)


def begun(folder: str | Path) -> list[str]:
    """Give the ids of the stores that were ever begun in a folder, oldest first."""
    path = Path(folder) / BEGUN
    return list(dict.fromkeys(path.read_text(encoding="utf-8").split())) if path.exists() else []


def refuse_another(path: Path) -> None:
    """Begin no second store where one has been lost.

    Raises SetupError: the folder had one, and its file is not there.
    """
    if begun(path.parent) and not path.exists():
        raise SetupError(
            f"{path} is gone, and a store was begun in this folder: workers may still have it open",
            hint=f"Put it back; or stop all workers and delete {BEGUN} to start over, with nothing registered.",
        )


def _note(path: Path, store: str) -> None:
    if store not in begun(path.parent):
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{store}\n")


def holder_of_lock(folder: str | Path) -> str:
    """Name the process that has the lock under which the file is written; empty if the system does not show it.

    Nothing is opened for it: to close any handle of a file gives up all locks that this process has on it.
    """
    shared, locks = Path(folder) / f"{FILE}-shm", Path("/proc/locks")
    if not shared.exists() or not locks.exists():
        return ""
    inode = str(shared.stat().st_ino)
    for line in locks.read_text().splitlines():
        words = line.split()
        if "->" in words or words[3] != "WRITE" or words[5].rpartition(":")[2] != inode or words[6] != _WRITERS_LOCK:
            continue
        try:
            state = Path(f"/proc/{words[4]}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        is_stopped = state in "Tt"
        doing = ", which is stopped: continue it (kill -CONT), or kill it" if is_stopped else ""
        return f"process {words[4]} has its lock{doing}"
    return ""


@contextmanager
def reading(db: sqlite3.Connection) -> Iterator[None]:
    """Read what follows as of one moment: the last commit before it."""
    db.execute("begin")
    try:
        yield
    finally:
        db.execute("commit")


@contextmanager
def writing(db: sqlite3.Connection) -> Iterator[None]:
    """Carry out what follows in one transaction; a commit that fails leaves none open."""
    db.execute("begin immediate")
    try:
        yield
        db.execute("commit")
    except BaseException:
        if db.in_transaction:  # SQLite may have rolled back by itself, for want of room
            db.execute("rollback")
        raise
