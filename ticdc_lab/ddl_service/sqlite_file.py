"""The file of the embedded store: its tables, and transactions that hold or have never been."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ticdc_lab.errors import SetupError

FILE = "ddl-service.sqlite"
BUSY_S = 5.0

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
"""


def opened(folder: str | Path) -> sqlite3.Connection:
    """Open the file in a folder, and make what is not there.

    Raises
    ------
    SetupError
        It cannot be made or written, or the file is something else.
    """
    path = Path(folder) / FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        db.execute("pragma journal_mode=wal")
        db.execute("pragma synchronous=normal")
        with writing(db):
            for statement in TABLES.split(";"):
                db.execute(statement)
    except (OSError, sqlite3.Error) as error:
        raise SetupError(f"{path} cannot be used as a store: {error}", hint="Give another --store.") from None
    return db


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
