"""A fleet is upgraded worker by worker: each cluster is owned by a worker that can serve it, all the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import real_etcd
from fleet import START_S, until

from ticdc_lab.ddl_core import keys, records
from ticdc_lab.ddl_core.registering import CONFLICT, REFUSED, WishOutcome, WishWrite, decided
from ticdc_lab.ddl_core.server import Server
from ticdc_lab.ddl_core.server_state import Habits, SetVariable, Submit
from ticdc_lab.ddl_core.settings import Duties, Versions
from ticdc_lab.ddl_core.store import Put, StoredEntry
from ticdc_lab.ddl_core.sysvars import BATCH
from ticdc_lab.ddl_core.worker_state import Register
from ticdc_lab.ddl_service import Listening, auditing, running
from ticdc_lab.ddl_service.api import Schedule
from ticdc_lab.ddl_service.auditing import Written, violations
from ticdc_lab.ddl_service.client import Client, ServiceError
from ticdc_lab.ddl_service.etcd_rpc import Etcd
from ticdc_lab.ddl_service.etcd_store import EtcdStore
from ticdc_lab.ddl_service.node import Backend, Node
from ticdc_lab.ddl_service.sqlite_store import SqliteStore
from ticdc_lab.machines.leases import Terms

TERMS = Terms(20_000_000, 4_000_000)
OLD, NEW = Versions("v7.5.0", "v6.1.0"), Versions("v8.5.0", "v6.5.0")
FIRST = "tikv://10.0.0.1:2379"


class Service:
    """A store, its workers by name, and who asks them."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.folder = folder
        self.etcd = real_etcd.begun(folder) if kind == "etcd" else None
        self._stacks: dict[str, ExitStack] = {}
        self.clients: dict[str, Client] = {}

    def open(self) -> Backend:
        """Open the store."""
        return EtcdStore(Etcd(self.etcd.endpoint)) if self.etcd else SqliteStore(self.folder)

    def begin(self, name: str, versions: Versions) -> None:
        """Start a worker, and wait until it is seen."""
        stack = self._stacks[name] = ExitStack()
        port = stack.enter_context(running(name, self.open(), Listening(port=0), Duties(versions, TERMS)))
        client = self.clients[name] = Client(f"http://127.0.0.1:{port}")
        until(lambda: name in seen(client), START_S)

    def end(self, name: str) -> None:
        """Ask a worker to end."""
        del self.clients[name]
        self._stacks.pop(name).close()

    def owners(self) -> dict[str, str]:
        """Which worker owns each cluster that is owned."""
        found = next(iter(self.clients.values())).clusters()
        return {c.id: c.schedule.assigned_to for c in found if c.schedule.status == "OWNER"}

    def written(self) -> list[Written]:
        """All that was ever written."""
        return auditing.of_etcd(Etcd(self.etcd.endpoint)) if self.etcd else list(auditing.of_folder(self.folder))

    def close(self) -> None:
        """End all."""
        for name in list(self._stacks):
            self.end(name)
        if self.etcd:
            self.etcd.kill()


def seen(client: Client) -> list[str]:
    """The workers that one knows."""
    try:
        return [w.id for w in client.workers()]
    except ServiceError:
        return []


@pytest.fixture(params=["sqlite", "etcd"])
def service(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    """A service without workers."""
    found = Service(request.param, tmp_path)
    yield found
    found.close()


ADDRESS = f"{keys.PDS}10.0.0.1:2379"
BY_EARLIER = (keys.REGISTERS + "c1", StoredEntry(f'{{"store_addr":"{FIRST}","version":"v7.5.0"}}', 2, 2))


def worker(name: str, oldest: str) -> tuple[str, StoredEntry]:
    """What a worker shows of itself; one of an earlier version does not show what is too old for it."""
    return keys.WORKERS + name, StoredEntry(records.written(records.WorkerRecord("v8.5.0", (), oldest)), 2, 2)


def test_what_an_earlier_version_registered_keeps_its_addresses_for_itself() -> None:
    """It wrote no key for its address: who changes that writes one; and without one no other gets the store."""
    entries = (BY_EARLIER, worker("new", "v6.1.0"))
    moved = decided(Register("c1", "tikv://10.0.0.9:2379", "", "r"), entries, NEW)
    assert isinstance(moved, WishWrite)
    assert moved.cluster == records.ClusterRecord("tikv://10.0.0.9:2379", "v7.5.0", FIRST)
    assert Put(ADDRESS, FIRST) in moved.ops
    now = (keys.REGISTERS + "c1", StoredEntry(records.written(moved.cluster), 3, 3))
    other = decided(Register("d", FIRST, "", "r"), (now, worker("new", "v6.1.0")), NEW)
    assert isinstance(other, WishOutcome)
    assert (other.kind, "registered as c1" in other.because) == (CONFLICT, True)


def test_addresses_stay_while_a_worker_of_an_earlier_version_is_there() -> None:
    """It would take the cluster at its new address for another one, and leave its jobs behind."""
    entries = (BY_EARLIER, worker("new", "v6.1.0"), worker("old", ""))
    refused = decided(Register("c1", "tikv://10.0.0.9:2379", "", "r"), entries, NEW)
    assert isinstance(refused, WishOutcome)
    assert refused.kind == REFUSED
    assert refused.because.startswith("old is of an earlier version")
    for name, address in (("c1", FIRST), ("d", "tikv://10.0.0.9:2379")):
        assert isinstance(decided(Register(name, address, "", "r"), entries, NEW), WishWrite)


def test_a_fleet_is_upgraded_worker_by_worker(service: Service) -> None:
    """With a job under way: no matter which worker is asked, what some worker can serve is registered, and only such a
    one owns it.
    """
    service.begin("old-1", OLD)
    service.begin("old-2", OLD)
    asked = service.clients["old-1"]
    assert asked.register("c1", FIRST).version == OLD.own
    asked.register("ancient", "tikv://10.0.0.2:2379", version="v6.1.0")
    with pytest.raises(ServiceError, match=r"v8.5.0 is newer than the service, which has v7.5.0"):
        asked.register("fresh", "tikv://10.0.0.3:2379", version="v8.5.0")
    until(lambda: set(service.owners()) == {"c1", "ancient"}, START_S)
    server = Node(Server(FIRST, Habits("v7.5.0", TERMS, tick_us=50_000)), "tidb-1", service.open())
    server.start()
    server.post(SetVariable(BATCH, "16"))
    server.post(Submit("add index", "orders", "by_day", rows=1600))

    service.begin("new-1", NEW)
    assert asked.register("fresh", "tikv://10.0.0.3:2379", version="v8.5.0").version == "v8.5.0"
    assert service.clients["new-1"].register("plain", "tikv://10.0.0.4:2379").version == OLD.own
    until(lambda: set(service.owners()) == {"c1", "ancient", "fresh", "plain"}, START_S)
    assert service.owners()["fresh"] == "new-1"
    assert service.owners()["ancient"].startswith("old")

    service.end("old-1")
    service.begin("new-2", NEW)
    until(lambda: service.owners().get("ancient") == "old-2", START_S)
    service.end("old-2")
    until(lambda: set(service.owners()) == {"c1", "fresh", "plain"}, START_S)
    assert set(service.owners().values()) == {"new-1", "new-2"}
    (ancient,) = [c for c in service.clients["new-1"].clusters() if c.id == "ancient"]
    assert ancient.schedule == Schedule("", "SCHEDULING")

    ended = until(lambda: [w.value for w in service.written() if w.key.startswith(keys.HISTORY)], START_S)
    (job,) = [records.job(value) for value in ended]
    assert (job.state, job.row_count) == (records.DONE, 1600)
    assert violations(service.written(), Versions(NEW.own, OLD.oldest)) == []
    server.stop()
