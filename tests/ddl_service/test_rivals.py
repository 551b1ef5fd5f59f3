"""A tidb-server that may own its cluster's DDL, beside workers that really run: it delegates, and takes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from fleet import START_S, until
from two_workers import STORES, TERMS, two_workers

from ticdc_lab.ddl_core import keys, records
from ticdc_lab.ddl_core.server import Server
from ticdc_lab.ddl_core.server_state import EnableDdl, Habits, Submit
from ticdc_lab.ddl_service.auditing import violations
from ticdc_lab.ddl_service.node import Node
from ticdc_lab.ddl_service.submitting import shown

STORE = "tikv://10.0.0.1:2379"


@pytest.mark.parametrize("kind", STORES)
def test_a_server_has_its_ddl_before_it_delegates_it_and_after_it_took_it_back(kind: str, tmp_path: Path) -> None:
    """The worker stays CAMPAIGNING meanwhile; the version, which no file names, is the server's; the audit is clean."""
    with two_workers(kind, tmp_path) as found:
        habits = Habits("v7.1.0", TERMS, tick_us=50_000, enables_ddl=True)
        server = Node(Server(STORE, habits), "tidb-1", found.open())
        server.start()

        def job(name: str) -> records.Job:
            server.post(Submit("add index", "orders", name, rows=64))
            ended = until(lambda: [j for j in jobs() if j.name == name], START_S)
            assert ended[0].state == records.DONE
            return ended[0]

        def jobs() -> list[records.Job]:
            history = [w for w in found.written() if w.store == STORE and w.key.startswith(keys.HISTORY)]
            return [records.job(w.value) for w in history if w.value is not None]

        def status() -> str:
            return found.one.clusters()[0].schedule.status

        until(lambda: server.state and server.state.ddl.status == records.IS_OWNER, START_S)
        assert job("before").owner.startswith("tidb-1-")
        assert shown(found.open, STORE, within_s=START_S).owner_address == "tidb-1"
        assert found.one.register("c", STORE).version == "v7.1.0"
        until(lambda: status() == records.CAMPAIGNING, START_S)
        assert job("beside").owner.startswith("tidb-1-")
        server.post(EnableDdl(False))
        until(lambda: status() == records.IS_OWNER, START_S)
        assert job("delegated").owner.startswith(keys.SERVICE_ID)
        assert shown(found.open, STORE, within_s=START_S).owner_address == ""
        found.one.remove("c")
        server.post(EnableDdl(True))
        until(lambda: server.state.ddl and server.state.ddl.status == records.IS_OWNER, START_S)
        assert job("taken back").owner.startswith("tidb-1-")
        server.stop()
        assert violations(found.written()) == []
