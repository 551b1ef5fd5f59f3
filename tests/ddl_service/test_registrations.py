"""What a registration promises, on either store: confirmed is kept, a PD has one cluster, a cluster one store."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fleet import START_S, until
from two_workers import STORES, Two, two_workers

from ticdc_lab.ddl_core import keys, records, registering
from ticdc_lab.ddl_core.checks import ONE_STORE
from ticdc_lab.ddl_core.store import Put
from ticdc_lab.ddl_service.auditing import violations
from ticdc_lab.ddl_service.client import Client, ServiceError

FIRST, SECOND = "tikv://10.0.0.1:2379", "tikv://10.0.0.2:2379"


@pytest.fixture(params=STORES)
def workers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Two]:
    """Two workers of one service."""
    with two_workers(request.param, tmp_path) as found:
        yield found


def names(client: Client) -> list[str]:
    """The registered clusters, by their ids."""
    return [c.id for c in client.clusters()]


def test_what_was_confirmed_is_kept_whoever_hears_late(workers: Two) -> None:
    """Registered at one, removed at the other, registered again at the first, which has not heard of the removal."""
    workers.one.register("c", FIRST)
    workers.ear.hears.clear()
    workers.two.remove("c")
    assert workers.one.register("c", FIRST).id == "c"
    assert names(workers.two) == names(workers.one) == ["c"]


def test_a_removal_is_decided_by_the_store(workers: Two) -> None:
    """A worker that has not heard of a registration removes it all the same, and of what is gone it reports it."""
    workers.ear.hears.clear()
    workers.two.register("c", FIRST)
    workers.one.remove("c")
    assert names(workers.two) == []
    with pytest.raises(ServiceError, match="not registered") as refused:
        workers.one.remove("c")
    assert refused.value.status == 404


def test_who_wins_a_race_is_told_so_and_who_loses_too(workers: Two) -> None:
    """One PD, six ids, at the same moment at both workers: exactly one is registered."""
    with ThreadPoolExecutor(6) as pool:
        asked = [
            pool.submit(client.register, f"c{i}", f"tikv://{own},10.9.9.9:2379,{other}")
            for i, (client, own, other) in enumerate(
                (client, f"10.0.{i}.1:2379", f"10.0.{i}.2:2379")
                for i in range(3)
                for client in (workers.one, workers.two)
            )
        ]
        errors = [a.exception() for a in asked]
    won = [i for i, error in enumerate(errors) if error is None]
    assert names(workers.one) == [f"c{i}" for i in won]
    assert len(won) == 1
    assert all(isinstance(e, ServiceError) and e.status == 409 for e in errors if e)


def test_a_cluster_keeps_its_store_whatever_its_addresses(workers: Two) -> None:
    """Another order, one more PD, all PDs replaced: the same store; the old address is not another cluster's."""
    pair = f"{FIRST},10.0.0.3:2379"
    store = workers.one.register("c", pair).store
    until(lambda: workers.two.clusters()[0].schedule.status == "OWNER", START_S)
    for written in (f"tikv://10.0.0.3:2379,{FIRST[7:]}", SECOND, f"{SECOND},{FIRST[7:]}"):
        assert workers.two.register("c", written).store == store
        assert workers.one.clusters()[0].store_addr == written
    workers.one.register("c", SECOND)
    with pytest.raises(ServiceError, match="registered as c"):
        workers.two.register("d", FIRST)
    workers.two.remove("c")
    assert workers.one.register("d", FIRST).store == store
    workers.one.register("e", "tikv://10.0.0.5:2379")
    with pytest.raises(ServiceError, match="registered as e"):
        workers.two.register("d", "tikv://10.0.0.5:2379")
    workers.two.remove("e")
    with pytest.raises(ServiceError, match="PDs of two clusters"):
        workers.two.register("d", "tikv://10.0.0.5:2379")


def test_the_audit_sees_a_cluster_that_leaves_its_store(workers: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a cluster is known by the spelling of its addresses; its jobs would stay behind under the old one."""
    sound = registering.decided

    def decided(*given: Any) -> Any:
        found = sound(*given)
        if not isinstance(found, registering.WishWrite) or found.cluster is None:
            return found
        own = found.cluster._replace(store="")
        ops = [Put(op.key, records.written(own)) if op.key.startswith(keys.REGISTERS) else op for op in found.ops]
        return found._replace(ops=tuple(ops), cluster=own)

    monkeypatch.setattr(registering, "decided", decided)
    workers.one.register("c", FIRST)
    assert violations(workers.written()) == []
    workers.two.register("c", f"{SECOND},{FIRST[7:]}")
    assert any(ONE_STORE in line for line in violations(workers.written()))


def test_an_update_does_not_stop_the_owner(workers: Two) -> None:
    """The owner's session with the cluster continues through a change of its addresses."""
    workers.one.register("c", FIRST)
    until(lambda: workers.two.clusters()[0].schedule.status == "OWNER", START_S)
    workers.two.register("c", f"{SECOND},{FIRST[7:]}")
    workers.two.register("c", SECOND)
    assert [c.schedule.status for c in workers.one.clusters()] == ["OWNER"]
    owners = [w.value for w in workers.written() if "/fg/owner/" in w.key]
    assert len(owners) == 1
    assert None not in owners
