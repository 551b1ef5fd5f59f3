"""What :class:`ticdc_lab.ddl_service.node.Backend` promises, of both stores; a store that breaks a promise is found."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import real_etcd
from drawn import HOUR, KEYS, OPS
from fleet import until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ticdc_lab.ddl_core.store import (
    CREATE,
    MOD,
    VALUE,
    Compare,
    DdlStore,
    Done,
    Expired,
    Found,
    Grant,
    Granted,
    Happened,
    KeepAlive,
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
from ticdc_lab.ddl_service import auditing
from ticdc_lab.ddl_service.auditing import Written
from ticdc_lab.ddl_service.etcd_rpc import Etcd
from ticdc_lab.ddl_service.etcd_store import EtcdStore
from ticdc_lab.ddl_service.node import Backend
from ticdc_lab.ddl_service.sqlite_store import SqliteStore
from ticdc_lab.machines.machine import Now, Received, Send

WITHIN_S = 300.0
STORES = (f"tikv://10.1.{i // 250}.{i % 250}:2379" for i in itertools.count())
"""A store for each test: all are in one etcd, or one file."""


class Heard:
    """A connection, and what it was reported in the order in which a node learns it."""

    def __init__(self, store: Backend) -> None:
        self.store = store
        self._heard: list[Any] = []

    def ask(self, at: str, request: Request) -> None:
        """Ask; what a transaction did is reported before it is answered."""
        answers = self.store.ask(at, request)
        self.hear()
        self._heard += answers

    def hear(self) -> None:
        """Take what is new."""
        self._heard += [answer for _, answer in self.store.news()]

    def told(self, *kinds: type) -> list[Any]:
        """Wait until there is one of each kind; gives all that was reported since the last time."""

        def are_there() -> bool:
            self.hear()
            return all(any(isinstance(a, kind) for a in self._heard) for kind in kinds)

        until(are_there, WITHIN_S, every_s=0.002)
        found, self._heard = self._heard, []
        return found

    def session(self, at: str, name: str = "n", ttl_us: int = HOUR) -> int:
        """Begin a session that observes ``/a/``, and give its lease."""
        self.ask(at, Grant((name, 1, "grant"), ttl_us, 0))
        (granted,) = self.told(Granted)
        self.ask(at, Observe((name, 1, "observe"), ("/a/",), granted.lease))
        self.told(Snapshot)
        return int(granted.lease)

    def done(self, at: str, txn: Txn) -> Done:
        """Carry a transaction out."""
        self.ask(at, txn)
        found = self.told(Done)[-1]
        assert isinstance(found, Done)
        return found


class Place:
    """One store, and as many connections to it as a test opens."""

    def __init__(self, connect: Callable[[], Backend], written: Callable[[], list[Written]]) -> None:
        self._connect, self.written = connect, written
        self._open: list[Backend] = []

    def open(self) -> Heard:
        """Open a connection."""
        self._open.append(self._connect())
        return Heard(self._open[-1])

    def close(self) -> None:
        """Close all connections."""
        while self._open:
            self._open.pop().close()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """One etcd for this module."""
    server = real_etcd.begun(tmp_path_factory.mktemp("etcd"))
    yield Etcd(server.endpoint)
    server.kill()


@pytest.fixture(params=["sqlite", "etcd"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Each store in turn."""
    if request.param == "etcd":
        at: Etcd = request.getfixturevalue("etcd")
        found = Place(lambda: EtcdStore(at), lambda: auditing.of_etcd(at))
    else:
        found = Place(lambda: SqliteStore(tmp_path), lambda: list(auditing.of_folder(tmp_path)))
    yield found
    found.close()


def reads_are_linearizable(place: Place) -> None:
    """A read at any connection sees what was confirmed at another before it was asked."""
    one, two, at = place.open(), place.open(), next(STORES)
    for number in range(10):
        done = one.done(at, Txn(("n", 1, "t"), (), (Put("/a/1", str(number)),)))
        two.ask(at, Read(("m", 1, "r"), ("/a/",)))
        (found,) = [a for a in two.told(Found) if isinstance(a, Found)]
        assert [e.value for _, e in found.entries] == [str(number)]
        assert found.revision >= done.revision


def of_many_who_campaign_at_once_one_wins(place: Place) -> None:
    """Compare and set: of transactions under the same condition one holds, no matter which client asks."""
    at, won = next(STORES), list[int]()
    connections = [place.open() for _ in range(4)]

    def campaign(connection: Heard, own: str) -> None:
        for turn in range(10):
            txn = Txn((own, 1, "t"), (Compare(f"/lock/{turn}", CREATE, 0),), (Put(f"/lock/{turn}", own),))
            if connection.done(at, txn).succeeded:
                won.append(turn)

    threads = [threading.Thread(target=campaign, args=(c, f"n{i}")) for i, c in enumerate(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(10))


def watches_have_no_gaps(place: Place) -> None:
    """Each revision once, whole and in order, from whomever it comes."""
    one, two, at = place.open(), place.open(), next(STORES)
    two.session(at, "m")
    for number in range(30):
        put = Put("/a/1", str(number)), Put("/a/2", str(number)), Put("/b/1", str(number))
        one.done(at, Txn(("n", 1, "t"), (), put))
    found: list[Happened] = []

    def all_there() -> bool:
        found.extend(a for _, a in two.store.news() if isinstance(a, Happened))
        return len(found) >= 30

    until(all_there, WITHIN_S, every_s=0.002)
    assert [[(k, e and e.value) for k, e in h.events] for h in found] == [
        [("/a/1", str(n)), ("/a/2", str(n))] for n in range(30)
    ]
    assert [h.revision for h in found] == sorted({h.revision for h in found})


def who_is_answered_has_been_told(place: Place) -> None:
    """What one changed itself is in its mirror when it hears that it is done."""
    one, at = place.open(), next(STORES)
    one.session(at)
    one.ask(at, Txn(("n", 1, "t"), (), (Put("/a/1", "x"),)))
    assert [type(a) for a in one.told(Happened, Done)] == [Happened, Done]


PROMISES = [
    reads_are_linearizable, of_many_who_campaign_at_once_one_wins, watches_have_no_gaps, who_is_answered_has_been_told,
]  # fmt: skip


@pytest.mark.parametrize("promise", PROMISES, ids=lambda p: p.__name__)
def test_a_store_keeps_its_promise(place: Place, promise: Callable[[Place], None]) -> None:
    """Each of them, each store."""
    promise(place)


class Stale(SqliteStore):
    """Planted: it reads what was there at the last read but one."""

    _last: Any = None

    def ask(self, store: str, request: Request) -> list[Any]:
        answers = super().ask(store, request)
        if isinstance(request, Read):
            self._last, answers = answers, self._last or answers
        return answers


class Unguarded(SqliteStore):
    """Planted: conditions always hold."""

    def _holds(self, store: str, compare: Compare) -> bool:
        return True


class Gap(SqliteStore):
    """Planted: of what has happened between two looks only the last is reported."""

    def news(self) -> list[Any]:
        return super().news()[-1:]


class Hasty(SqliteStore):
    """Planted: it answers, and shows what happened at the next look."""

    _held: Any = ()

    def news(self) -> list[Any]:
        found, self._held = self._held, super().news()
        return list(found)


@pytest.mark.parametrize(("promise", "broken"), list(zip(PROMISES, [Stale, Unguarded, Gap, Hasty], strict=True)))
def test_a_store_that_does_not_is_found(
    promise: Callable[[Place], None], broken: type[SqliteStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each promise is broken once."""
    monkeypatch.setattr("test_store_contract.WITHIN_S", 1.0)
    place = Place(lambda: broken(tmp_path), list)
    with pytest.raises(AssertionError):
        promise(place)
    place.close()


BACK = st.integers(0, 3)
"""How many revisions before the present a condition is about: drawn, and made a revision when it is asked."""
COMPARES = st.tuples(KEYS, st.sampled_from([CREATE, MOD]), BACK) | st.tuples(
    KEYS, st.just(VALUE), st.sampled_from([None, "x", "y"])
)
TXNS = st.tuples(
    st.lists(COMPARES, max_size=1), st.lists(OPS, min_size=1, max_size=3, unique_by=lambda op: op.key), st.booleans()
)


@given(st.lists(TXNS, max_size=12))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_answers_what_the_model_answers(place: Place, drawn: list[Any]) -> None:
    """The same transactions: the same outcomes, reported before they are answered, at revisions equally far apart."""
    at, store = next(STORES), place.open()
    lease = store.session(at)
    model, state = DdlStore(), DdlStore().start("s", Now(0))[0]
    for request in (Grant(("n", 1, "grant"), HOUR, 0), Observe(("n", 1, "observe"), ("/a/",), 1)):
        state, _ = model.step(state, Received("n", request), Now(0))
    store.ask(at, Txn(("n", 1, "first"), (), (Put("/b/0", "x"),)))
    state, _ = model.step(state, Received("n", Txn(("n", 1, "first"), (), (Put("/b/0", "x"),))), Now(0))
    (first,) = store.told(Done)
    ahead = first.revision - state.revision
    for compares, ops, leased in drawn:
        conditions = [
            Compare(key, what, back if what == VALUE else max(0, state.revision - back) if back else 0)
            for key, what, back in compares
        ]
        puts = [op._replace(lease=1 if leased else 0) if isinstance(op, Put) else op for op in ops]
        state, outputs = model.step(state, Received("n", Txn(("n", 1, "t"), tuple(conditions), tuple(puts))), Now(0))
        expected = [moved(o.message, ahead, lease) for o in outputs if isinstance(o, Send)]
        store.ask(at, Txn(("n", 1, "t"), moved_on(conditions, ahead), under(puts, lease)))
        assert store.told(Done) == expected
    store.ask(at, Revoke(lease))


def moved_on(conditions: list[Compare], ahead: int) -> tuple[Compare, ...]:
    """Conditions with etcd's revisions; 0 is the one of a key that is not there."""
    return tuple(
        c if c.what == VALUE or not c.expected else c._replace(expected=int(c.expected) + ahead) for c in conditions
    )


def under(ops: list[Op], lease: int) -> tuple[Op, ...]:
    """Operations with etcd's number of the lease."""
    return tuple(op._replace(lease=lease) if isinstance(op, Put) and op.lease else op for op in ops)


def moved(answer: Any, ahead: int, lease: int) -> Any:
    """The model's answer as etcd would give it: its revisions are further, its lease has another number."""
    if isinstance(answer, Happened):
        events = tuple(
            (k, e and StoredEntry(e.value, e.create + ahead, e.mod + ahead, e.lease and lease))
            for k, e in answer.events
        )
        return answer._replace(revision=answer.revision + ahead, events=events)
    return answer._replace(revision=answer.revision + ahead)


def test_each_cluster_has_a_namespace_and_all_have_one_history(place: Place) -> None:
    """What is written to one store is not ordered to who observes another; the audit reads them all."""
    store, one, two = place.open(), next(STORES), next(STORES)
    store.session(one)
    store.ask(two, Txn(("m", 1, "t"), (), (Put("/a/1", "other"),)))
    store.told(Done)
    store.ask(one, Txn(("n", 1, "t"), (), (Put("/a/1", "x"), Put("/b/1", "x"))))
    happened, _ = store.told(Done)
    assert [key for key, _ in happened.events] == ["/a/1"]
    written = place.written()
    assert [(w.store, w.key, w.value) for w in written if w.store in (one, two)] == [
        (two, "/a/1", "other"), (one, "/a/1", "x"), (one, "/b/1", "x"),
    ]  # fmt: skip


def test_a_lease_that_runs_out_ends_its_keys_for_all(place: Place) -> None:
    """Others are informed that its keys are gone, its holder when it asks or writes."""
    store, at = place.open(), next(STORES)
    store.session(at)
    store.ask(at, Grant(("m", 1, "grant"), 1_000_000, 0))
    (short,) = store.told(Granted)
    store.ask(at, Txn(("m", 1, "t"), (), (Put("/a/1", "x", short.lease),)))
    store.told(Done)
    (happened,) = store.told(Happened)
    assert happened.events == (("/a/1", None),)
    store.ask(at, KeepAlive(("m", 1, "keep"), short.lease, 7))
    assert store.told(Expired) == [Expired(("m", 1, "keep"))]
    store.ask(at, Txn(("m", 1, "t"), (), (Put("/a/1", "x", short.lease),)))
    until(lambda: store.hear() or store._heard, WITHIN_S)  # type: ignore[func-returns-value]
    assert store._heard[0] in (Expired(("m", 1, "session")), Done(("m", 1, "t"), False, happened.revision))


def test_a_lease_that_is_given_back_ends_its_keys_at_once(place: Place) -> None:
    """Also where who gives it back leaves in the same moment."""
    store, leaving, at = place.open(), place.open(), next(STORES)
    store.session(at)
    lease = leaving.session(at, "m")
    leaving.ask(at, Txn(("m", 1, "t"), (), (Put("/a/1", "x", lease), Put("/a/2", "x", lease))))
    leaving.told(Done)
    store.told(Happened)
    leaving.ask(at, Revoke(lease))
    place._open.remove(leaving.store)
    leaving.store.close()
    (happened,) = store.told(Happened)
    assert sorted(happened.events) == [("/a/1", None), ("/a/2", None)]
