"""Workers in this process over a real etcd: one is cut off, and what it still had on its way arrives late."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import real_etcd
from cut_proxy import Proxy
from fleet import until
from ownership import Change, overlaps

from ticdc_lab.ddl_core import keys, owner, records, worker
from ticdc_lab.ddl_core.checks import ONE_OWNER
from ticdc_lab.ddl_core.server import Server
from ticdc_lab.ddl_core.server_state import Habits, SetVariable, Submit
from ticdc_lab.ddl_core.settings import Duties
from ticdc_lab.ddl_core.sysvars import BATCH
from ticdc_lab.ddl_core.worker import Worker
from ticdc_lab.ddl_core.worker_state import Register
from ticdc_lab.ddl_service import auditing, etcd_rpc, etcd_session
from ticdc_lab.ddl_service.auditing import violations
from ticdc_lab.ddl_service.etcd_rpc import Etcd
from ticdc_lab.ddl_service.etcd_store import EtcdStore
from ticdc_lab.ddl_service.node import Node
from ticdc_lab.machines.leases import Terms
from ticdc_lab.machines.machine import Changed

TERMS = Terms(2_000_000, 400_000)
STORE = "tikv://10.0.0.1:2379"
WITHIN_S = 300.0


class World:
    """Two workers, the first behind a proxy, and a tidb-server with a job in its backfill."""

    def __init__(self, folder: Path) -> None:
        self.etcd = real_etcd.begun(folder)
        self.proxy = Proxy(self.etcd.port)
        self.changes: list[Change] = []
        self.lock = threading.Lock()
        duties = Duties(terms=TERMS)
        self.cut_off = self._worker("cut-off", f"127.0.0.1:{self.proxy.port}", duties)
        until(lambda: self.cut_off.state and self.cut_off.state.leads, WITHIN_S)
        self.cut_off.post(Register("cluster1", STORE, "v6.5.0"))
        until(lambda: owns(self.cut_off), WITHIN_S)
        self.other = self._worker("other", self.etcd.endpoint, duties)
        habits = Habits(terms=Terms(60_000_000, 10_000_000), tick_us=100_000)
        self.server = Node(Server(STORE, habits), "tidb-1", EtcdStore(Etcd(self.etcd.endpoint)))
        self.server.start()
        self.server.post(SetVariable(BATCH, "16"))
        self.server.post(Submit("add index", "orders", "by_day", rows=1600))
        until(lambda: (job := self.job()) and job.row_count > 100, WITHIN_S)

    def _worker(self, name: str, endpoint: str, duties: Duties) -> Node:
        def saw(event: Any, state: Any, outputs: Any) -> None:
            for o in outputs:
                if isinstance(o, Changed) and o.subject.startswith("ddl-owner:"):
                    with self.lock:
                        self.changes.append(Change(time.monotonic(), name, o.subject[10:], o.after is not None))

        node = Node(Worker(name, "pd", duties), name, EtcdStore(Etcd(endpoint)), saw)
        node.start()
        return node

    def job(self) -> records.Job | None:
        """As the tidb-server sees it; None before it is sent and when it has ended."""
        mirror = self.server.state.link.mirror
        entry = mirror.under(keys.JOBS).get("1") if mirror else None
        return records.job(entry.value) if entry else None

    def ended(self) -> records.Job | None:
        """The job in the history of jobs."""
        written = auditing.of_etcd(Etcd(self.etcd.endpoint))
        return next((records.job(w.value) for w in written if w.key == f"{keys.HISTORY}1" and w.value), None)

    def close(self) -> None:
        """End all."""
        self.proxy.mend()
        for node in (self.cut_off, self.other, self.server):
            node.stop()
        self.proxy.close()
        self.etcd.kill()


def owns(node: Node) -> bool:
    """Whether a worker believes that it owns the cluster's DDL."""
    own = node.state.owners.get("cluster1") if node.state else None
    return own is not None and own.status == records.IS_OWNER


def cut_and_mended(world: World) -> None:
    """Cut the owner off with a step on its way until another has continued its job, and let that step through."""
    world.proxy.requests.cut()
    step = f"{keys.JOBS}1".encode()
    until(lambda: step in b"".join(data for data, _ in world.proxy.requests.held), WITHIN_S)
    world.proxy.cut()
    until(lambda: owns(world.other), WITHIN_S)
    rows = (job := world.job()) and job.row_count
    until(lambda: (job := world.job()) is None or job.row_count > (rows or 0), WITHIN_S)
    world.proxy.mend()


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world, with what the test puts in the place of rules.

    gRPC does not ask whether the line is alive: on a slow machine it would hang up before the cut is fixed, and etcd
    drops what comes from a connection that has ended.
    """
    lasting = tuple(option for option in etcd_rpc._TUNING if "keepalive" not in option[0])
    monkeypatch.setattr(etcd_rpc, "_TUNING", lasting)
    for place, name, instead in getattr(request, "param", ()):
        monkeypatch.setattr(place, name, instead)
    found = World(tmp_path)
    yield found
    found.close()


def test_an_owner_that_is_cut_off_stops_before_another_begins(world: World) -> None:
    """It believes so until its lease may be over and no longer; its late step changes nothing; the job ends."""
    cut_and_mended(world)
    assert not owns(world.cut_off)
    job = until(world.ended, WITHIN_S)
    assert (job.state, job.row_count) == (records.DONE, 1600)
    assert overlaps(world.changes) == []
    assert len({c.worker for c in world.changes if c.owns}) == 2
    assert violations(auditing.of_etcd(Etcd(world.etcd.endpoint))) == []
    until(lambda: len(world.other.state.service.mirror.under(keys.WORKERS)) == 2, WITHIN_S)


KEEPS_ON = ((worker, "is_over", lambda *_: False), (owner, "is_over", lambda *_: False))
WRITES_ANYWAY = (owner, "_guards", lambda *_: ())


@pytest.mark.parametrize("world", [(*KEEPS_ON, WRITES_ANYWAY)], indirect=True)
def test_an_owner_that_keeps_on_is_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: it holds on to a lease that is over, and writes without its campaign; both checks see two owners."""
    monkeypatch.setattr(etcd_session, "ANSWERS_S", WITHIN_S)  # what it has on its way is not called back
    cut_and_mended(world)
    found = until(lambda: violations(auditing.of_etcd(Etcd(world.etcd.endpoint))), WITHIN_S)
    assert any(ONE_OWNER in line for line in found)
    assert overlaps(world.changes) != []
