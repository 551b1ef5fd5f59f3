"""The embedded store: one SQLite file that several local processes share, as etcd's clients share etcd.

Each cluster's store is a part of it, by its address. A transaction is one of SQLite's, so history is linear; the events
of each revision are kept for a while, and observers read what is new to them. Leases end by the machine's steady clock,
which all its processes share and which is never set, and the first to look carries that out.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from ticdc_lab.ddl_core.store import (
    CREATE,
    MOD,
    Answer,
    Compare,
    Delete,
    Done,
    Expired,
    Found,
    Grant,
    Granted,
    Happened,
    KeepAlive,
    KeptAlive,
    Observe,
    Op,
    Put,
    Read,
    Request,
    Revoke,
    Snapshot,
    StoredEntry,
    Txn,
)
from ticdc_lab.ddl_service.sqlite_file import (
    BUSY_S,
    FILE,
    HURRIED_S,
    OpenFiles,
    holder_of_lock,
    opened,
    reading,
    writing,
)


class _Observer(NamedTuple):
    store: str
    observe: Observe
    seen: int

    @property
    def name(self) -> tuple[str, Any]:
        """By whom: a node's session observes once."""
        tag: Any = self.observe.tag
        return self.store, tag[0]


class Observers:
    """All observers of one connection.

    ``db``: the connection. ``seen``: the revision up to which they were notified.
    """

    def __init__(self, db: sqlite3.Connection, seen: int) -> None:
        self._db, self._seen = db, seen
        self._all: list[_Observer] = []

    def add(self, store: str, observe: Observe, revision: int) -> None:
        """Deliver what comes after a revision; an earlier session of the same name gets nothing more."""
        fresh = _Observer(store, observe, revision)
        self._all = [*(o for o in self._all if o.name != fresh.name), fresh]

    def drop(self, lease: int) -> None:
        """Stop delivering under a lease."""
        self._all = [o for o in self._all if o.observe.lease != lease]

    def news(self) -> list[tuple[str, Answer]]:
        """Give (store, what happened) since the last call; a session that would miss something is ended."""
        rows = self._db.execute(
            "select revision, store, key, value, created, lease from events where revision > ? order by rowid",
            (self._seen,),
        ).fetchall()
        if not rows:
            return []
        if rows[0][0] > self._seen + 1:  # what lies between is no longer kept
            lost = [(o.store, Expired(o.observe.tag)) for o in self._all]
            self._all, self._seen = [], rows[-1][0]
            return list(lost)
        found: list[tuple[str, Answer]] = []
        for (revision, store), group in groupby(rows, key=lambda r: (r[0], r[1])):
            events = [
                (key, None if value is None else StoredEntry(value, created, revision, lease))
                for _, _, key, value, created, lease in group
            ]
            found += self._told(revision, store, events)
        self._seen = rows[-1][0]
        return found

    def _told(
        self, revision: int, store: str, events: list[tuple[str, StoredEntry | None]]
    ) -> Iterator[tuple[str, Answer]]:
        for observer in self._all:
            if observer.store == store and revision > observer.seen:
                own = tuple(e for e in events if e[0].startswith(observer.observe.prefixes))
                if own:
                    yield store, Happened(observer.observe.tag, revision, own)


_OVER = "expires_us <= ?1 or expires_us - ttl_us > ?1"
"""A lease that was prolonged later than now is of a time before the machine was started."""
LOG = logging.getLogger("ticdc_lab.ddl_service")
KEPT = 100_000
"""So many revisions are kept for observers; one that is further behind has lost its session."""


class SqliteStore:
    """A connection of one process, used by one thread.

    Parameters
    ----------
    folder
        Where the file is; made if it is not there.

    Attributes
    ----------
    trouble
        Why nothing can be written now; empty where it can.
    time
        The store's.

    Raises
    ------
    SetupError
        It cannot be made or written, or the file is something else.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = folder
        self._db, self.time = opened(folder)
        self._files = OpenFiles(Path(folder) / FILE)
        self._files.check()
        self.trouble = ""
        self._observers = Observers(self._db, self._revision())

    def close(self) -> None:
        self._db.close()

    def ring(self, bell: Callable[[], None]) -> None:
        """Never ring: users of the file are not notified: they poll."""

    def ask(self, store: str, request: Request) -> list[Answer]:
        """Carry out a request to one of the stores; what is not carried out for want of room has not happened.

        Raises
        ------
        SourceError
            The folder no longer has the file: nothing that was written may be answered.
        """
        self._files.check()
        answers = self._answers(store, request)
        self._files.check()
        return answers

    def _answers(self, store: str, request: Request) -> list[Answer]:
        try:
            if isinstance(request, Read):
                with reading(self._db):
                    return [Found(request.tag, self._revision(), self._under(store, request.prefixes))]
            with writing(self._db):
                answers = self._asked(store, request)
            self._has_trouble("")
            return answers
        except sqlite3.OperationalError as error:
            self._has_trouble(self._why(error))
            return [Done(request.tag, False, 0)] if isinstance(request, Txn) else []

    def _why(self, error: sqlite3.OperationalError) -> str:
        is_locked = "locked" in str(error)
        who = holder_of_lock(self._folder) if is_locked else ""
        return f"{error}: {who}" if who else str(error)

    def _has_trouble(self, because: str) -> None:
        """Report once that nothing can be written, and once that it can be again."""
        if because and not self.trouble:
            LOG.error("the store takes no changes: %s", because)
        elif self.trouble and not because:
            LOG.warning("the store takes changes again")
        if bool(because) != bool(self.trouble):
            self._db.execute(f"pragma busy_timeout={int(1000 * (HURRIED_S if because else BUSY_S))}")
        self.trouble = because

    def news(self) -> list[tuple[str, Answer]]:
        """Give (store, what happened) for each observer of this process; end leases that have run out."""
        self._files.check()
        try:
            if self._db.execute(f"select 1 from leases where {_OVER} limit 1", (now_us(),)).fetchone():
                with writing(self._db):
                    over = self._db.execute(f"select id from leases where {_OVER}", (now_us(),)).fetchall()
                    for (lease,) in over:
                        self._end(lease)
            return self._observers.news()
        except sqlite3.OperationalError as error:
            self._has_trouble(self._why(error))
            return []

    def _revision(self) -> int:
        return int(self._db.execute("select revision from history").fetchone()[0])

    def _asked(self, store: str, request: Request) -> list[Answer]:
        if isinstance(request, Txn):
            return [self._transacted(store, request)]
        if isinstance(request, KeepAlive):
            return [self._kept(request)]
        if isinstance(request, Grant):
            expires_us = now_us() + request.ttl_us
            row = self._db.execute("insert into leases(ttl_us, expires_us) values(?, ?)", (request.ttl_us, expires_us))
            return [Granted(request.tag, int(row.lastrowid or 0), request.sent_us)]
        if isinstance(request, Observe):
            return [self._observed(store, request)]
        assert isinstance(request, Revoke)
        self._end(request.lease)
        self._observers.drop(request.lease)
        return []

    def _kept(self, request: KeepAlive) -> Answer:
        kept = self._db.execute(
            "update leases set expires_us = ? + ttl_us where id = ?", (now_us(), request.lease)
        ).rowcount
        return KeptAlive(request.tag, request.sent_us) if kept else Expired(request.tag)

    def _observed(self, store: str, request: Observe) -> Answer:
        if not self._db.execute("select 1 from leases where id = ?", (request.lease,)).fetchone():
            return Expired(request.tag)
        revision = self._revision()
        self._observers.add(store, request, revision)
        return Snapshot(request.tag, revision, self._under(store, request.prefixes))

    def _under(self, store: str, prefixes: tuple[str, ...]) -> tuple[tuple[str, StoredEntry], ...]:
        found: list[tuple[str, StoredEntry]] = []
        for prefix in prefixes:
            rows = self._db.execute(
                "select key, value, created, modified, lease from keys where store = ? and key >= ? and key < ?",
                (store, prefix, prefix + "\U0010ffff"),
            )
            found += [(key, StoredEntry(*rest)) for key, *rest in rows]
        return tuple(sorted(found))

    def _transacted(self, store: str, txn: Txn) -> Answer:
        leased = {op.lease for op in txn.ops if isinstance(op, Put) and op.lease}
        alive = all(self._db.execute("select 1 from leases where id = ?", (lease,)).fetchone() for lease in leased)
        if not alive or not all(self._holds(store, c) for c in txn.compares):
            return Done(txn.tag, False, self._revision())
        return Done(txn.tag, True, self._change([(store, op) for op in txn.ops]))

    def _holds(self, store: str, compare: Compare) -> bool:
        row = self._db.execute(
            "select value, created, modified from keys where store = ? and key = ?", (store, compare.key)
        ).fetchone()
        value, created, modified = row or (None, 0, 0)
        found = created if compare.what == CREATE else modified if compare.what == MOD else value
        return bool(found == compare.expected)

    def _change(self, ops: list[tuple[str, Op]]) -> int:
        """Carry out operations at the next revision, and write down what happened."""
        revision = self._revision() + 1
        events: list[tuple[Any, ...]] = []
        for store, op in ops:
            row = self._db.execute("select created from keys where store = ? and key = ?", (store, op.key)).fetchone()
            if isinstance(op, Put):
                created = int(row[0]) if row else revision
                self._db.execute(
                    "insert or replace into keys values(?, ?, ?, ?, ?, ?)",
                    (store, op.key, op.value, created, revision, op.lease),
                )
                events.append((revision, store, op.key, op.value, created, op.lease))
            elif row:
                self._db.execute("delete from keys where store = ? and key = ?", (store, op.key))
                events.append((revision, store, op.key, None, 0, 0))
        if not events:
            return revision - 1
        self._db.executemany("insert into events values(?, ?, ?, ?, ?, ?)", events)
        self._db.execute("update history set revision = ?", (revision,))
        if revision % 1000 == 0:
            self._db.execute("delete from events where revision < ?", (revision - KEPT,))
        return revision

    def _end(self, lease: int) -> None:
        rows = self._db.execute("select store, key from keys where lease = ? order by store, key", (lease,)).fetchall()
        self._change([(store, Delete(key)) for store, key in rows])
        self._db.execute("delete from leases where id = ?", (lease,))


def now_us() -> int:
    """Give the steady time of this machine, µs: the clock by which workers judge their leases too."""
    return time.monotonic_ns() // 1000
