"""``admin show ddl`` of a cluster whose DDL is a service's, and what counts as a running job."""

from __future__ import annotations

from typing import Any

import pytest
from immutables import Map
from planted_ddl import _with_seen
from prometheus_client.parser import text_string_to_metric_families

from ticdc_lab.ddl_core import jobs, keys, records
from ticdc_lab.ddl_core.keys import store_of
from ticdc_lab.ddl_core.server import shown_ddl
from ticdc_lab.ddl_core.server_state import Habits, ShowDdl, ShownDdl, Submit
from ticdc_lab.ddl_core.store import Found, Put, StoredEntry
from ticdc_lab.ddl_core.worker import Worker
from ticdc_lab.ddl_service.metrics import Metrics
from ticdc_lab.machines.machine import Asked, Now, Received, Send, Told
from ticdc_lab.simulate.ddl_service.run import ServiceRun, simulate
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.faults import Ask

SECOND = 1_000_000
SERVER = "cluster1/tidb-1"
WORK = [
    Ask(2 * SECOND, SERVER, Submit("add index", "orders", "by_day", rows=50_000)),
    Ask(2 * SECOND + 1_000, SERVER, Submit("add index", "orders", "by_hour", rows=100)),
]


def shown(run: ServiceRun) -> ShownDdl:
    """Ask a server at the end of a run, and let its store answer."""
    kernel, at_us = run.kernel, run.kernel.now_us
    machine, store = kernel.machines[SERVER], store_of("cluster1")
    state, outputs = machine.step(kernel.states[SERVER], Asked(ShowDdl()), Now(at_us))
    read = next(o.message for o in outputs if isinstance(o, Send) and type(o.message).__name__ == "Read")
    _, answers = kernel.machines[store].step(kernel.states[store], Received(SERVER, read), Now(at_us))
    found = next(o.message for o in answers if isinstance(o, Send) and isinstance(o.message, Found))
    state, outputs = machine.step(state, Received(store, found), Now(at_us))
    (told,) = [o for o in outputs if isinstance(o, Told)]
    assert state.wishes == ()
    return told.outcome


def test_admin_show_ddl_names_the_owner_and_not_where_a_worker_is() -> None:
    """The owner's id, the job under way and the cluster's version; no address of the service."""
    run = simulate(ServiceSettings(), faults=WORK, until_us=3 * SECOND)
    assert run.violation is None
    found = shown(run)
    assert found.owner_id.startswith(keys.SERVICE_ID) and keys.cluster_of(found.owner_id) == "cluster1"
    assert found.owner_address == ""
    assert found.instances == ("cluster1/tidb-1", "cluster1/tidb-2"), "cluster tables ask no worker"
    assert found.running == ((1, "add index", jobs.WRITE_REORG),) and found.schema_version == 3


def test_admin_show_ddl_shows_the_address_of_an_owner_that_publishes_it() -> None:
    """A tidb-server that owns its cluster's DDL does."""
    entries = {
        f"{keys.OWNER}2f": StoredEntry("tidb-1-2f", 7, 7, 0x2F),
        f"{keys.OWNER}3a": StoredEntry("tidb-2-3a", 9, 9, 0x3A),
        f"{keys.SERVER_INFO}tidb-1-2f": StoredEntry('{"address": "cluster1/tidb-1"}', 6, 6, 0x2F),
        keys.GLOBAL_VERSION: StoredEntry("12", 1, 8),
    }
    assert shown_ddl(entries) == ShownDdl(12, "tidb-1-2f", "cluster1/tidb-1", (), ("cluster1/tidb-1",))
    assert shown_ddl({}) == ShownDdl(0)


def test_a_worker_that_publishes_its_server_info_is_shown_to_users_and_the_auditor_says_so() -> None:
    """Planted: the infosyncer writes what the one of a tidb-server does."""
    info = '{"address": "worker-1"}'
    for owner, name, bug in _with_seen(lambda o: Put(keys.SERVER_INFO + o.ddl_id, info, o.link.lease))():
        sound = getattr(owner, name)
        setattr(owner, name, bug)
        try:
            run = simulate(ServiceSettings(), faults=WORK, until_us=3 * SECOND)
        finally:
            setattr(owner, name, sound)
        assert run.violation is not None and run.violation.invariant == "Workers Stay Hidden"


def test_each_metric_measures_what_its_name_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a server that loads for a second: steps and the syncer wait for it, the queue does not."""
    at_s = [0.0]
    metrics, sound = Metrics(lambda: at_s[0]), Worker.step

    def step(self: Worker, state: Any, event: Any, now: Now) -> Any:
        after, outputs = sound(self, state, event, now)
        at_s[0] = now.at_us / SECOND
        metrics.saw(event, after, outputs)
        return after, outputs

    monkeypatch.setattr(Worker, "step", step)
    slow = ServiceSettings(workers=1, clusters=1, slow=Map({"cluster1/tidb-2": Habits(load_us=SECOND)}))
    run = simulate(slow, faults=[WORK[1]], until_us=15 * SECOND)
    assert (run.violation, run.unsettled) == (None, None)
    families = text_string_to_metric_families(metrics.text().decode())
    found = {s.name.removeprefix("tidb_ddl_"): s.value for f in families for s in f.samples}
    steps = found["worker_operation_duration_seconds_count"]  # four states, the snapshot, the rows, and the end
    assert steps == found["job_table_duration_seconds_count"] == found["worker_operation_total"] == 7
    assert found["owner_handle_syncer_duration_seconds_count"] == 4
    assert found["owner_handle_syncer_duration_seconds_sum"] == pytest.approx(4.0, abs=0.3)
    table_s, steps_s = (found[f"{name}_duration_seconds_sum"] for name in ("job_table", "worker_operation"))
    assert table_s < 0.1 < 4.0 < steps_s < 4.8
    assert found["add_index_total"] == 100


def test_the_running_jobs_of_the_metrics_are_those_that_have_begun() -> None:
    """The second waits in the queue; cancelled before its first step, it has not begun either."""
    run = simulate(ServiceSettings(), faults=WORK, until_us=3 * SECOND)
    workers = [s for s in run.kernel.states.values() if "cluster1" in getattr(s, "owners", Map())]
    (worker,) = [w for w in workers if w.owners["cluster1"].status == records.IS_OWNER]
    queue = worker.owners["cluster1"].link.mirror.under(keys.JOBS)
    assert len(queue) == 2
    metrics = Metrics()
    metrics._counted("cluster1", worker)
    assert 'tidb_ddl_running_job_count{cluster="cluster1",type="add index"} 1.0' in metrics.text().decode()
    waiting = records.Job(9, "add index", "t", state=records.CANCELLING)
    assert not waiting.has_begun and waiting._replace(schema_version=3).has_begun
