"""An owner whose wall clock is an hour behind: what it reads GC still keeps, and is as new as the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fleet import START_S, until

from ticdc_lab.ddl_core import keys, owner, records
from ticdc_lab.ddl_core.checks import KEPT
from ticdc_lab.ddl_core.server import Server
from ticdc_lab.ddl_core.server_state import Habits, SetVariable, Submit
from ticdc_lab.ddl_core.settings import Duties
from ticdc_lab.ddl_core.sysvars import BATCH
from ticdc_lab.ddl_core.worker import Worker
from ticdc_lab.ddl_core.worker_state import Register
from ticdc_lab.ddl_service import auditing
from ticdc_lab.ddl_service.auditing import violations
from ticdc_lab.ddl_service.node import Node
from ticdc_lab.ddl_service.sqlite_store import SqliteStore
from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.leases import Terms
from ticdc_lab.machines.machine import Event, Now

HOUR_US = 3600 * 1_000_000
FIRST = "tikv://10.0.0.1:2379"
TERMS = Terms(20_000_000, 4_000_000)


class Late(Worker):
    """A worker whose system time is an hour behind; its steady clock is right."""

    def step(self, state: Any, event: Event, now: Now) -> Any:
        """Take an event at another time."""
        return super().step(state, event, now._replace(at_us=now.at_us - HOUR_US, skew_us=now.skew_us + HOUR_US))


def job_of(folder: Path) -> list[str]:
    """Have the late worker run a job beside a server that collects garbage, and give what the audit finds."""
    worker = Node(Late("one", "pd", Duties(terms=TERMS)), "one", SqliteStore(folder))
    habits = Habits(terms=TERMS, tick_us=50_000, gc_us=50_000, gc_life_us=200_000)
    server = Node(Server(FIRST, habits), "tidb-1", SqliteStore(folder))
    worker.start()
    until(lambda: worker.state and worker.state.leads, START_S)
    worker.ask(Register("c", FIRST, "v6.5.0", "r")).result(START_S)
    server.start()
    server.post(SetVariable(BATCH, "16"))
    server.post(Submit("add index", "orders", "by_day", rows=640))
    until(lambda: any(w.key == f"{keys.HISTORY}1" for w in auditing.of_folder(folder)), START_S)
    worker.stop()
    server.stop()
    return violations(auditing.of_folder(folder))


def test_its_snapshot_is_newer_than_what_gc_has_come_to(tmp_path: Path) -> None:
    """Each snapshot is above the safe point of its time, no matter what the clock shows."""
    assert job_of(tmp_path) == []
    written = [w for w in auditing.of_folder(tmp_path) if w.value is not None]
    assert any(w.key == keys.SAFE_POINT for w in written)
    (job,) = [records.job(w.value) for w in written if w.key == f"{keys.HISTORY}1" and w.value]
    assert (job.state, job.row_count) == (records.DONE, 640)
    sent = next(w.revision for w in written if w.key == f"{keys.JOBS}1")
    assert job.snapshot_ts > max(int(w.value) for w in written if w.key == keys.NEWEST_TS and w.revision <= sent)


def test_the_audit_sees_an_owner_that_believes_its_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the snapshot is what the clock shows."""
    monkeypatch.setattr(owner, "snapshot_ts", lambda mirror, now: ts_of(now.at_us))
    assert any(KEPT in line for line in job_of(tmp_path))
