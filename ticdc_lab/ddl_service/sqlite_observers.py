"""Who observes what in the embedded store, in one process: told from the events of each revision that are new to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from ticdc_lab.simulate.ddl_service.store_messages import Answer, Entry, Expired, Happened, Observe


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

    Parameters
    ----------
    db
        The connection.
    seen
        The revision up to which they have been told.
    """

    def __init__(self, db: sqlite3.Connection, seen: int) -> None:
        self._db, self._seen = db, seen
        self._all: list[_Observer] = []

    def add(self, store: str, observe: Observe, revision: int) -> None:
        """Tell what comes after a revision; an earlier session of the same name is told no more."""
        fresh = _Observer(store, observe, revision)
        self._all = [*(o for o in self._all if o.name != fresh.name), fresh]

    def drop(self, lease: int) -> None:
        """Tell those of a lease no more."""
        self._all = [o for o in self._all if o.observe.lease != lease]

    def news(self) -> list[tuple[str, Answer]]:
        """Give (store, what happened) since the last call; those who would miss something are told that it is over."""
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
                (key, None if value is None else Entry(value, created, revision, lease))
                for _, _, key, value, created, lease in group
            ]
            found += self._told(revision, store, events)
        self._seen = rows[-1][0]
        return found

    def _told(self, revision: int, store: str, events: list[tuple[str, Entry | None]]) -> Iterator[tuple[str, Answer]]:
        for observer in self._all:
            if observer.store == store and revision > observer.seen:
                own = tuple(e for e in events if e[0].startswith(observer.observe.prefixes))
                if own:
                    yield store, Happened(observer.observe.tag, revision, own)
