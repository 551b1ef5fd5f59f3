"""A real etcd, through the driver, does what the model of a store does; and what is reported when it is not there."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import real_etcd
from aetcd import rpc
from drawn import HOUR
from fleet import until

from ticdc_lab.ddl_core.store import (
    Done,
    Expired,
    Grant,
    Granted,
    Happened,
    KeepAlive,
    KeptAlive,
    Observe,
    Put,
    Snapshot,
    Txn,
)
from ticdc_lab.ddl_service import auditing, etcd_rpc, etcd_session
from ticdc_lab.ddl_service.etcd_rpc import Etcd
from ticdc_lab.ddl_service.etcd_store import EtcdStore
from ticdc_lab.errors import IncompleteHistoryError, SetupError, SourceError

WITHIN_S = 300.0
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
    """What is reported until there is one of each kind, in order."""
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


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_etcd_over_tls_lets_in_who_has_a_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides show theirs; without one no one answers."""
    monkeypatch.setattr(etcd_rpc, "ANSWERS_S", 0.5)
    secure = real_etcd.begun(tmp_path, tls=True)
    store = EtcdStore(Etcd(f"https://{secure.endpoint}", *secure.tls))
    session(store, "s")
    store.close()
    with pytest.raises(SourceError, match="does not answer"):
        EtcdStore(Etcd(f"https://{secure.endpoint}", secure.tls[0]))
    secure.kill()


async def _with_users(endpoint: str) -> None:
    """Let no one in but root and a user who may read and write what is the service's."""
    channel = etcd_rpc.channel(Etcd(endpoint))
    auth = rpc.AuthStub(channel)
    for name, role, password in (("root", "root", "open sesame"), ("ddl", "ddl", "a b")):
        await auth.RoleAdd(rpc.AuthRoleAddRequest(name=role))
        await auth.UserAdd(rpc.AuthUserAddRequest(name=name, password=password))
        await auth.UserGrantRole(rpc.AuthUserGrantRoleRequest(user=name, role=role))
    for prefix in etcd_rpc.PREFIXES:
        everything = etcd_rpc.after(prefix)
        perm = rpc.Permission(permType=rpc.Permission.READWRITE, key=prefix, range_end=everything)
        await auth.RoleGrantPermission(rpc.AuthRoleGrantPermissionRequest(name="ddl", perm=perm))
    await auth.AuthEnable(rpc.AuthEnableRequest())
    await channel.close()


def test_etcd_asks_who_it_is(tmp_path: Path) -> None:
    """User and password: without them nothing, with them all; tokens that etcd has forgotten are got again."""
    server = real_etcd.begun(tmp_path / "etcd")
    etcd_rpc.done(_with_users(server.endpoint), WITHIN_S)
    for wrong in (Etcd(server.endpoint), Etcd(server.endpoint, user="ddl", password="no")):
        with pytest.raises(SourceError) as refused:
            EtcdStore(wrong)
        assert "--etcd-user" in str(refused.value)
    store = EtcdStore(Etcd(server.endpoint, user="ddl", password="a b"))
    session(store, "tikv://s")
    server.kill()
    server.begin()  # its tokens are in its memory
    for number in range(2):
        store.ask("tikv://s", Txn(("m", 1, f"t{number}"), (), (Put("/a/1", str(number)),)))
    done = until(lambda: [a for a in told(store, Done, Happened) if isinstance(a, Done)][-1:], WITHIN_S)
    assert done[0].succeeded
    with pytest.raises(SourceError, match="does not give its history"):
        auditing.of_etcd(Etcd(server.endpoint, user="ddl", password="a b"))
    written = auditing.of_etcd(Etcd(server.endpoint, user="root", password="open sesame"))
    assert [w.value for w in written if w.key == "/a/1"] == ["0", "1"]
    store.close()
    server.kill()


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
    etcd_rpc.done(_compacted(server.endpoint, 10), WITHIN_S)
    with pytest.raises(IncompleteHistoryError, match="compacted"):
        auditing.of_etcd(Etcd(server.endpoint))
    for each in (store, other):
        each.close()
    server.kill()


def _values(store: EtcdStore) -> list[str]:
    return [e.value for _, a in store.news() if isinstance(a, Happened) for _, e in a.events if e]


@pytest.mark.parametrize("ticks", range(4))
def test_a_session_that_is_closed_ends_whatever_comes_at_that_moment(ticks: int) -> None:
    """What waits for a revision is cancelled, or was over before; else the session would continue, and
    its end waits.
    """

    async def is_heard() -> bool:
        told = asyncio.Event()
        task = asyncio.create_task(etcd_session._within(5, told.wait()))
        await asyncio.sleep(0)
        told.set()
        for _ in range(ticks):
            await asyncio.sleep(0)
        asked = task.cancel()
        await asyncio.wait({task})
        return task.cancelled() == asked

    assert etcd_rpc.done(is_heard(), WITHIN_S)


async def _compacted(endpoint: str, revision: int) -> None:
    channel = etcd_rpc.channel(Etcd(endpoint))
    await rpc.KVStub(channel).Compact(rpc.CompactionRequest(revision=revision))
    await channel.close()


def test_a_watch_that_etcd_has_compacted_ends_its_session(server: real_etcd.Server, store: EtcdStore) -> None:
    """A gap in what an observer learns would be worse."""
    at = next(STORES)
    session(store, at)
    own = store._sessions[at, "n"]
    for i in range(5):
        store.ask(at, Txn(("m", 1, "t"), (), (Put("/c/1", str(i)),)))
    done: list[Any] = []
    until(lambda: done.extend(store.news()) or len(done) == 5, WITHIN_S)  # type: ignore[func-returns-value]
    etcd_rpc.done(_compacted(server.endpoint, auditing.of_etcd(Etcd(server.endpoint))[-1].revision), WITHIN_S)
    etcd_rpc.done(_rewatched(own), WITHIN_S)
    assert told(store, Expired) == [Expired(("n", 1, "session"))]


async def _rewatched(own: Any) -> None:
    """As after a reconnection: watch again from the last answer."""
    own._stubs.watches.remove(own._number)
    own._watch.seen = 2
    own._number = own._stubs.watches.add(own._watch)


@pytest.mark.parametrize(
    ("endpoints", "says"),
    [
        ("nowhere", "no endpoint"),
        ("a:x,b:1", "no endpoint"),
        ("[a:1", "no endpoint"),
        ("https://a:1,b:2", "mixes endpoints with and without TLS"),
        ("a.invalid:1", "cannot be found"),
    ],
)
def test_what_is_no_etcd_is_said(endpoints: str, says: str) -> None:
    """A sentence and a hint each."""
    with pytest.raises(SetupError, match=says):
        EtcdStore(Etcd(endpoints))


def test_nobody_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while, not never."""
    monkeypatch.setattr(etcd_rpc, "ANSWERS_S", 0.3)
    with pytest.raises(SourceError, match="does not answer at"):
        EtcdStore(Etcd("127.0.0.1:1"))
    with pytest.raises(SourceError, match="no store in"):
        list(auditing.of_folder(tmp_path))
