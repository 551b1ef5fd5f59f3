"""The embedded store does what the model of a store does, for several processes at once."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from drawn import HOUR, REQUESTS
from hypothesis import given, settings
from hypothesis import strategies as st

from ticdc_lab.ddl_core.store import (
    DdlStore,
    Done,
    Expired,
    Grant,
    Granted,
    KeepAlive,
    KeptAlive,
    Observe,
    Put,
    Revoke,
    Txn,
)
from ticdc_lab.ddl_service import sqlite_store
from ticdc_lab.ddl_service.auditing import of_folder
from ticdc_lab.ddl_service.sqlite_file import FILE
from ticdc_lab.ddl_service.sqlite_store import SqliteStore
from ticdc_lab.errors import SetupError, SourceError
from ticdc_lab.machines.machine import Now, Received, Send


@given(st.lists(REQUESTS, max_size=25))
@settings(max_examples=60, deadline=None)
def test_it_answers_what_the_model_answers(requests: list[Any]) -> None:
    """The same requests, the same answers, the same events for observers, at the same revisions."""
    model, state = DdlStore(), DdlStore().start("s", Now(0))[0]
    with TemporaryDirectory() as folder:
        real = SqliteStore(folder)
        observed: set[str] = set()
        for request in requests:
            if isinstance(request, Observe):
                if request.tag[0] in observed:  # type: ignore[index]
                    continue  # a node observes once in a session
                observed.add(request.tag[0])  # type: ignore[index]
            if isinstance(request, (Revoke, KeepAlive)) and request.lease not in state.leases:
                continue
            state, outputs = model.step(state, Received("n", request), Now(0))
            expected = [o.message for o in outputs if isinstance(o, Send) and not isinstance(o.message, Expired)]
            found = [a for a in real.ask("s", request) if not isinstance(a, Expired)]
            told = [answer for _, answer in real.news()]
            assert sorted(map(repr, [*told, *found])) == sorted(map(repr, expected))
        real.close()


def test_an_observer_that_is_too_far_behind_is_told_that_its_session_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap in what it learns would be worse."""
    monkeypatch.setattr(sqlite_store, "KEPT", 10)
    one, two = SqliteStore(tmp_path), SqliteStore(tmp_path)
    (granted,) = two.ask("s", Grant(("n", 1, "g"), HOUR, 0))
    assert isinstance(granted, Granted)
    two.ask("s", Observe(("n", 1, "o"), ("/a/",), granted.lease))
    for i in range(1005):
        one.ask("s", Txn(("m", 1, "t"), (), (Put("/a/1", str(i)),)))
    assert two.news() == [("s", Expired(("n", 1, "o")))]


def test_the_system_clock_may_jump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forth: no lease ends, no second owner begins. The machine starts again: the leases from before are over."""
    store = SqliteStore(tmp_path)
    (granted,) = store.ask("s", Grant(("n", 1, "g"), HOUR, 0))
    assert isinstance(granted, Granted)
    keep = KeepAlive(("n", 1, "k"), granted.lease, 0)
    monkeypatch.setattr(time, "time_ns", lambda: 10**19)
    store.news()
    assert store.ask("s", keep) == [KeptAlive(keep.tag, 0)]
    monkeypatch.setattr(sqlite_store, "now_us", lambda: -HOUR)
    store.news()
    assert store.ask("s", keep) == [Expired(keep.tag)]


def test_a_commit_that_fails_leaves_nothing_open(tmp_path: Path) -> None:
    """A full disk: the transaction is reported not to have happened, and the next one continues."""
    store = SqliteStore(tmp_path)
    put = Txn(("n", 1, "t"), (), (Put("/a/1", "x"),))
    real, store._db = store._db, _FullOnce(store._db)  # type: ignore[assignment]
    assert store.ask("s", put) == [Done(put.tag, False, 0)]
    assert not real.in_transaction
    assert store.ask("s", put) == [Done(put.tag, True, 2)]


class _FullOnce:
    """A connection whose first commit finds no room."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db, self._is_full = db, True

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def execute(self, *words: Any) -> Any:
        if words == ("commit",) and self._is_full:
            self._is_full = False
            raise sqlite3.OperationalError("database or disk is full")
        return self._db.execute(*words)

    def executemany(self, *words: Any) -> Any:
        return self._db.executemany(*words)


def test_what_is_no_store_is_said(tmp_path: Path) -> None:
    """By workers, and by who reads a history."""
    (tmp_path / FILE).write_text("not a database " * 100)
    with pytest.raises(SetupError, match="cannot be used as a store"):
        SqliteStore(tmp_path)
    with pytest.raises(SourceError, match="cannot be read"):
        list(of_folder(tmp_path))
