"""A statement becomes one job, no matter what happens to answers; and a job stays where its cluster is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cut_proxy import Proxy
from fleet import START_S, until
from lossy import Lossy
from two_workers import STORES, TERMS, Two, two_workers

from ticdc_lab.ddl_core import keys, records
from ticdc_lab.ddl_core import server as rules
from ticdc_lab.ddl_core.checks import ONE_JOB
from ticdc_lab.ddl_core.server import Server
from ticdc_lab.ddl_core.server_state import Habits, SetVariable, Submit
from ticdc_lab.ddl_core.sysvars import BATCH
from ticdc_lab.ddl_service import etcd_session
from ticdc_lab.ddl_service.auditing import Written, violations
from ticdc_lab.ddl_service.etcd_rpc import Etcd
from ticdc_lab.ddl_service.etcd_store import EtcdStore
from ticdc_lab.ddl_service.node import Backend, Node
from ticdc_lab.ddl_service.submitting import submitted

FIRST = "tikv://10.0.0.1:2379"
STATEMENT = Submit("add index", "orders", "by_day", rows=64)


@pytest.fixture(params=STORES)
def workers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Two]:
    """Two workers of one service, with a cluster."""
    with two_workers(request.param, tmp_path) as found:
        found.one.register("c", FIRST, version="v6.5.0")
        yield found


def tidb(store: Backend, **habits: Any) -> Node:
    """A tidb-server of the cluster."""
    node = Node(Server(FIRST, Habits(terms=TERMS, tick_us=50_000, **habits)), "tidb-1", store)
    node.start()
    return node


def jobs(written: list[Written], prefix: str = keys.HISTORY) -> list[records.Job]:
    """The jobs of the cluster that have ended, or have not."""
    found = {w.key: w.value for w in written if w.store == FIRST and w.key.startswith(prefix)}
    return [records.job(value) for value in found.values() if value is not None]


def test_a_lost_answer_makes_no_second_job(workers: Two) -> None:
    """The session ends between the store's writing and its answer: the next one looks whether it was written."""
    server = tidb(Lossy(workers.open(), "wish"))
    server.post(STATEMENT)
    until(lambda: server.state and server.state.link.life > 1 and not server.state.wishes, START_S)
    until(lambda: jobs(workers.written()), START_S)
    server.stop()
    assert [j.state for j in jobs(workers.written())] == [records.DONE]
    assert violations(workers.written()) == []


def test_the_audit_sees_a_doubled_job(workers: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the statement is written without a look whether it was before."""
    sound = rules._wished

    def forgetful(wish: Any, *rest: Any) -> Any:
        compares, ops = sound(wish, *rest)  # type: ignore[misc]
        return compares[:1], tuple(op for op in ops if not op.key.startswith(keys.REQUESTS))

    monkeypatch.setattr(rules, "_wished", forgetful)
    monkeypatch.setattr(rules, "answered_wish", lambda state, message, now: (rules.granted(state), []))
    server = tidb(Lossy(workers.open(), "wish"))
    server.post(STATEMENT)
    until(lambda: len(jobs(workers.written())) == 2, START_S)
    server.stop()
    assert any(ONE_JOB in line for line in violations(workers.written()))


def test_a_request_that_is_sent_twice_is_one_job(workers: Two) -> None:
    """By who lost the first answer: the second command follows the same job."""
    wish = STATEMENT._replace(request="mine")
    first, second = (submitted(workers.open, FIRST, wish, version="v6.5.0", within_s=START_S) for _ in range(2))
    assert (first, first.state) == (second, records.DONE)


@pytest.mark.parametrize("workers", ["etcd"], indirect=True)
def test_an_answer_that_is_late_makes_no_second_job(workers: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement is carried out, and its answer stays away for longer than is waited for."""
    monkeypatch.setattr(etcd_session, "ANSWERS_S", 1.0)
    port = int(workers.endpoint.rpartition(":")[2])
    proxy = Proxy(port)
    server = tidb(EtcdStore(Etcd(f"127.0.0.1:{proxy.port}")))
    until(lambda: server.state and server.state.serves, START_S)
    proxy.answers.cut()
    server.post(STATEMENT)
    until(lambda: jobs(workers.written(), keys.JOBS), START_S)
    until(lambda: server.state.link.life > 1, START_S)
    proxy.mend()
    until(lambda: not server.state.wishes, START_S)
    until(lambda: jobs(workers.written()), START_S)
    server.stop()
    proxy.close()
    assert [j.state for j in jobs(workers.written())] == [records.DONE]


def test_a_running_job_goes_on_when_all_pds_are_replaced(workers: Two) -> None:
    """The owner stays, and no second index is built elsewhere."""
    server = tidb(workers.open())
    server.post(SetVariable(BATCH, "16"))
    server.post(STATEMENT._replace(rows=800))
    until(lambda: any(j.row_count > 100 for j in jobs(workers.written(), keys.JOBS)), START_S)
    workers.two.register("c", "tikv://10.0.0.9:2379")
    until(lambda: jobs(workers.written()), START_S)
    server.stop()
    assert [(j.state, j.row_count) for j in jobs(workers.written())] == [(records.DONE, 800)]
    assert violations(workers.written()) == []
    assert {w.store for w in workers.written()} == {"pd", FIRST}
