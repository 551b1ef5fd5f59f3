"""A real etcd, through the driver, does what the model of a store does; and what is told when it is not there."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import real_etcd
from aetcd import rpc
from drawn import HOUR, KEYS, OPS
from fleet import until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ticdc_lab.ddl_service import etcd_loop, etcd_rpc, etcd_store, history
from ticdc_lab.ddl_service.etcd_rpc import Etcd
from ticdc_lab.ddl_service.etcd_store import EtcdStore
from ticdc_lab.errors import IncompleteHistoryError, SetupError, SourceError
from ticdc_lab.simulate.ddl_service.store import Store
from ticdc_lab.simulate.ddl_service.store_messages import (
    CREATE,
    MOD,
    VALUE,
    Compare,
    Done,
    Entry,
    Expired,
    Grant,
    Granted,
    Happened,
    KeepAlive,
    KeptAlive,
    Observe,
    Op,
    Put,
    Revoke,
    Snapshot,
    Txn,
)
from ticdc_lab.simulate.machine import Now, Received, Send

WITHIN_S = 20.0
STORES = (f"tikv://10.0.{i // 250}.{i % 250}:2379" for i in itertools.count())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_etcd.Server]:
    """Give one etcd for this module."""
    found = real_etcd.begun(tmp_path_factory.mktemp("etcd"))
    yield found
    found.kill()


@pytest.fixture
def store(server: real_etcd.Server) -> Iterator[EtcdStore]:
    """Give a connection."""
    found = EtcdStore(Etcd(server.endpoint))
    yield found
    found.close()


def told(store: EtcdStore, *kinds: type, within_s: float = WITHIN_S) -> list[Any]:
    """What is told until there is one of each kind, in order."""
    found: list[Any] = []
    end_s = time.monotonic() + within_s
    while not all(any(isinstance(a, kind) for a in found) for kind in kinds):
        assert time.monotonic() < end_s, found
        found += [answer for _, answer in store.news()]
        time.sleep(0.002)
    return found


def session(store: EtcdStore, at: str, name: str = "n", ttl_us: int = HOUR) -> int:
    """Begin a session that observes ``/a/``, and give its lease."""
    store.ask(at, Grant((name, 1, "grant"), ttl_us, 0))
    (granted,) = told(store, Granted)
    store.ask(at, Observe((name, 1, "observe"), ("/a/",), granted.lease))
    told(store, Snapshot)
    return int(granted.lease)


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
def test_it_answers_what_the_model_answers(store: EtcdStore, drawn: list[Any]) -> None:
    """The same transactions: the same outcomes, told before they are answered, at revisions equally far apart."""
    at = next(STORES)
    lease = session(store, at)
    model, state = Store(), Store().start("s", Now(0))[0]
    for request in (Grant(("n", 1, "grant"), HOUR, 0), Observe(("n", 1, "observe"), ("/a/",), 1)):
        state, _ = model.step(state, Received("n", request), Now(0))
    store.ask(at, Txn(("n", 1, "first"), (), (Put("/b/0", "x"),)))
    state, _ = model.step(state, Received("n", Txn(("n", 1, "first"), (), (Put("/b/0", "x"),))), Now(0))
    (first,) = told(store, Done)
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
        assert told(store, Done) == expected
    store.ask(at, Revoke(lease))


def moved_on(conditions: list[Compare], ahead: int) -> tuple[Compare, ...]:
    """Conditions with etcd's revisions; 0 is that of a key that is not there."""
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
            (k, e and Entry(e.value, e.create + ahead, e.mod + ahead, e.lease and lease)) for k, e in answer.events
        )
        return answer._replace(revision=answer.revision + ahead, events=events)
    return answer._replace(revision=answer.revision + ahead)


def test_each_cluster_has_a_namespace_and_all_have_one_history(server: real_etcd.Server, store: EtcdStore) -> None:
    """What is written to one store is not told to who observes another; the audit reads them all."""
    one, two = next(STORES), next(STORES)
    session(store, one)
    store.ask(two, Txn(("m", 1, "t"), (), (Put("/a/1", "other"),)))
    told(store, Done)
    store.ask(one, Txn(("n", 1, "t"), (), (Put("/a/1", "x"), Put("/b/1", "x"))))
    happened, _ = told(store, Done)
    assert [key for key, _ in happened.events] == ["/a/1"]
    written = history.of_etcd(Etcd(server.endpoint))
    assert [(w.store, w.key, w.value) for w in written if w.store in (one, two)] == [
        (two, "/a/1", "other"), (one, "/a/1", "x"), (one, "/b/1", "x"),
    ]  # fmt: skip


def test_a_lease_that_runs_out_ends_its_keys_and_is_said_to_be_over(store: EtcdStore) -> None:
    """Others are told that its keys are gone, its holder when it asks or writes."""
    at = next(STORES)
    session(store, at)
    store.ask(at, Grant(("m", 1, "grant"), 2_000_000, 0))
    (short,) = told(store, Granted)
    store.ask(at, Txn(("m", 1, "t"), (), (Put("/a/1", "x", short.lease),)))
    told(store, Done)
    (happened,) = told(store, Happened)
    assert happened.events == (("/a/1", None),)
    store.ask(at, KeepAlive(("m", 1, "keep"), short.lease, 7))
    assert told(store, Expired) == [Expired(("m", 1, "keep"))]
    store.ask(at, Txn(("m", 1, "t"), (), (Put("/a/1", "x", short.lease),)))
    assert told(store, Expired) == [Expired(("m", 1, "session"))]


def test_a_lease_that_is_given_back_ends_its_keys_at_once(server: real_etcd.Server, store: EtcdStore) -> None:
    """Also where who gives it back leaves in the same moment."""
    at = next(STORES)
    session(store, at)
    leaving = EtcdStore(Etcd(server.endpoint))
    lease = session(leaving, at, "m")
    leaving.ask(at, Txn(("m", 1, "t"), (), (Put("/a/1", "x", lease), Put("/a/2", "x", lease))))
    told(leaving, Done)
    told(store, Happened)
    leaving.ask(at, Revoke(lease))
    leaving.close()
    (happened,) = told(store, Happened)
    assert sorted(happened.events) == [("/a/1", None), ("/a/2", None)]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_etcd_over_tls_lets_in_who_has_a_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides show theirs; without one nobody answers."""
    monkeypatch.setattr(etcd_store, "ANSWERS_S", 0.5)
    secure = real_etcd.begun(tmp_path, tls=True)
    store = EtcdStore(Etcd(f"https://{secure.endpoint}", *secure.tls))
    session(store, "s")
    store.close()
    with pytest.raises(SourceError, match="does not answer"):
        EtcdStore(Etcd(f"https://{secure.endpoint}", secure.tls[0]))
    secure.kill()


def test_etcd_is_killed_and_comes_back(tmp_path: Path) -> None:
    """A transaction without an answer ends its session; others ask to live on until they do; no event is missed."""
    server = real_etcd.begun(tmp_path / "etcd")
    store = EtcdStore(Etcd(server.endpoint))
    lease = session(store, "s")
    server.kill()
    store.ask("s", Txn(("m", 1, "t"), (), (Put("/a/1", "x"),)))
    assert told(store, Expired) == [Expired(("m", 1, "session"))]
    store.ask("s", KeepAlive(("n", 1, "keep"), lease, 7))
    server.begin()
    assert told(store, KeptAlive) == [KeptAlive(("n", 1, "keep"), 7)]
    other = EtcdStore(Etcd(server.endpoint))
    for i in range(20):
        other.ask("s", Txn(("o", 1, "t"), (), (Put("/a/2", str(i)),)))
    values: list[str] = []
    until(lambda: values.extend(_values(store)) or len(values) == 20, WITHIN_S)  # type: ignore[func-returns-value]
    assert values == [str(i) for i in range(20)]
    etcd_loop.done(_compacted(server.endpoint, 10), WITHIN_S)
    with pytest.raises(IncompleteHistoryError, match="compacted"):
        history.of_etcd(Etcd(server.endpoint))
    for each in (store, other):
        each.close()
    server.kill()


def _values(store: EtcdStore) -> list[str]:
    return [e.value for _, a in store.news() if isinstance(a, Happened) for _, e in a.events if e]


async def _compacted(endpoint: str, revision: int) -> None:
    channel = etcd_rpc.channel(Etcd(endpoint))
    await rpc.KVStub(channel).Compact(rpc.CompactionRequest(revision=revision))
    await channel.close()


def test_a_watch_that_etcd_has_compacted_ends_its_session(server: real_etcd.Server, store: EtcdStore) -> None:
    """A gap in what an observer is told would be worse."""
    at = next(STORES)
    session(store, at)
    own = store._sessions[at, "n"]
    for i in range(5):
        store.ask(at, Txn(("m", 1, "t"), (), (Put("/c/1", str(i)),)))
    done: list[Any] = []
    until(lambda: done.extend(store.news()) or len(done) == 5, WITHIN_S)  # type: ignore[func-returns-value]
    etcd_loop.done(_compacted(server.endpoint, history.of_etcd(Etcd(server.endpoint))[-1].revision), WITHIN_S)
    etcd_loop.done(_rewatched(own), WITHIN_S)
    assert told(store, Expired) == [Expired(("n", 1, "session"))]


async def _rewatched(own: Any) -> None:
    """As after a reconnection: watch again from where it was told last."""
    own._stubs.watches.remove(own._number)
    own._watch.seen = 2
    own._number = own._stubs.watches.add(own._watch)


@pytest.mark.parametrize(
    ("endpoints", "says"),
    [("nowhere", "no endpoint"), ("https://a:1,b:2", "TLS and for none"), ("a.invalid:1", "cannot be found")],
)
def test_what_is_no_etcd_is_said(endpoints: str, says: str) -> None:
    """A sentence and a hint each."""
    with pytest.raises(SetupError, match=says):
        EtcdStore(Etcd(endpoints))


def test_nobody_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while, not never."""
    monkeypatch.setattr(etcd_store, "ANSWERS_S", 0.3)
    with pytest.raises(SourceError, match="does not answer at"):
        EtcdStore(Etcd("127.0.0.1:1"))
    with pytest.raises(SourceError, match="no store in"):
        list(history.of_folder(tmp_path))
