"""The embedded store does what the model of a store does, for several processes at once."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from drawn import HOUR, REQUESTS
from hypothesis import given, settings
from hypothesis import strategies as st

from ticdc_lab.ddl_service import sqlite_store
from ticdc_lab.ddl_service.history import of_folder
from ticdc_lab.ddl_service.sqlite_file import FILE
from ticdc_lab.ddl_service.sqlite_store import SqliteStore
from ticdc_lab.errors import SetupError, SourceError
from ticdc_lab.simulate.ddl_service.store import Store
from ticdc_lab.simulate.ddl_service.store_messages import (
    CREATE,
    Compare,
    Done,
    Expired,
    Grant,
    Granted,
    Happened,
    KeepAlive,
    KeptAlive,
    Observe,
    Put,
    Revoke,
    Txn,
)
from ticdc_lab.simulate.machine import Now, Received, Send


@given(st.lists(REQUESTS, max_size=25))
@settings(max_examples=60, deadline=None)
def test_it_answers_what_the_model_answers(requests: list[Any]) -> None:
    """The same requests, the same answers, the same events for observers, at the same revisions."""
    model, state = Store(), Store().start("s", Now(0))[0]
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


def test_two_connections_see_one_history_and_each_its_own_cluster(tmp_path: Path) -> None:
    """What one writes the other is told, of the store that it observes and of no other."""
    one, two = SqliteStore(tmp_path), SqliteStore(tmp_path)
    (granted,) = two.ask("s", Grant(("n", 1, "g"), HOUR, 0))
    assert isinstance(granted, Granted)
    two.ask("s", Observe(("n", 1, "o"), ("/a/",), granted.lease))
    one.ask("t", Txn(("m", 1, "t"), (), (Put("/a/1", "other"),)))
    one.ask("s", Txn(("m", 1, "t"), (), (Put("/a/1", "x"), Put("/b/1", "x"))))
    ((store, happened),) = two.news()
    assert isinstance(happened, Happened)
    assert (store, [key for key, _ in happened.events]) == ("s", ["/a/1"])
    assert two.news() == []


def test_a_lease_ends_for_all_when_its_holder_is_gone(tmp_path: Path) -> None:
    """Nobody keeps it alive: its keys go, and the first who looks says so."""
    one, two = SqliteStore(tmp_path), SqliteStore(tmp_path)
    (granted,) = one.ask("s", Grant(("n", 1, "g"), 50_000, 0))
    assert isinstance(granted, Granted)
    one.ask("s", Txn(("n", 1, "t"), (), (Put("/a/1", "x", granted.lease),)))
    one.close()
    (own,) = two.ask("s", Grant(("m", 1, "g"), HOUR, 0))
    assert isinstance(own, Granted)
    two.ask("s", Observe(("m", 1, "o"), ("/a/",), own.lease))
    time.sleep(0.06)
    ((_, happened),) = two.news()
    assert isinstance(happened, Happened)
    assert happened.events == (("/a/1", None),)
    assert two.ask("s", KeepAlive(("n", 1, "k"), granted.lease, 0)) == [Expired(("n", 1, "k"))]


def test_an_observer_that_is_too_far_behind_is_told_that_its_session_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap in what it is told would be worse."""
    monkeypatch.setattr(sqlite_store, "KEPT", 10)
    one, two = SqliteStore(tmp_path), SqliteStore(tmp_path)
    (granted,) = two.ask("s", Grant(("n", 1, "g"), HOUR, 0))
    assert isinstance(granted, Granted)
    two.ask("s", Observe(("n", 1, "o"), ("/a/",), granted.lease))
    for i in range(1005):
        one.ask("s", Txn(("m", 1, "t"), (), (Put("/a/1", str(i)),)))
    assert two.news() == [("s", Expired(("n", 1, "o")))]


def test_of_many_who_campaign_at_once_one_wins(tmp_path: Path) -> None:
    """Transactions of threads with connections of their own follow one another."""
    won: list[int] = []

    def campaign(i: int) -> None:
        store = SqliteStore(tmp_path)
        for turn in range(20):
            txn = Txn(("n", 1, "t"), (Compare(f"/lock/{turn}", CREATE, 0),), (Put(f"/lock/{turn}", str(i)),))
            (answer,) = store.ask("s", txn)
            assert isinstance(answer, Done)
            won.append(turn) if answer.succeeded else None
        store.close()

    SqliteStore(tmp_path).close()
    threads = [threading.Thread(target=campaign, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(20))


def test_the_system_clock_may_jump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forth: no lease ends, no second owner begins. The machine starts anew: the leases from before are over."""
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
    """A full disk: the transaction is told not to have happened, and the next one goes on."""
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
