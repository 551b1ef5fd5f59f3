"""tidb-servers campaign for their cluster's DDL too: before it is delegated, and after it is taken back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ticdc_lab.ddl_core import keys, owner, records, server
from ticdc_lab.ddl_core.keys import store_of
from ticdc_lab.ddl_core.server_state import EnableDdl, Habits, Submit
from ticdc_lab.ddl_core.worker_state import Register, Unregister, WorkerState
from ticdc_lab.simulate.ddl_service.run import ServiceRun, simulate
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.faults import Ask, Crash, Pause, Restart

SECOND = 1_000_000
SERVERS = ("cluster1/tidb-1", "cluster1/tidb-2")
ENABLED = ServiceSettings(workers=2, clusters=1, habits=Habits(enables_ddl=True))


def index(at_us: int, name: str) -> Ask:
    """A user adds an index."""
    return Ask(at_us, "cluster1/tidb-2", Submit("add index", "orders", name, rows=1000))


def switched(at_us: int, *, on: bool) -> list[Ask]:
    """Both servers are informed whether they may own the DDL."""
    return [Ask(at_us, server, EnableDdl(on)) for server in SERVERS]


def ended(run: ServiceRun) -> list[records.Job]:
    """The jobs that have ended, by id."""
    found = run.kernel.states[store_of("cluster1")].keys.items()
    return sorted(records.job(e.value) for k, e in found if k.startswith(keys.HISTORY))


def held(run: ServiceRun) -> None:
    """No invariant is broken, and all is as it should be at the end."""
    assert (run.violation, run.unsettled) == (None, None)


@pytest.mark.parametrize("seed", range(3))
def test_a_tidb_server_has_one_ddl_id_in_its_cluster(seed: int) -> None:
    """Under all_schema_versions, in the election and in its server info, also after its session was lost."""
    faults = [Pause(2 * SECOND, SERVERS[0], 15 * SECOND), index(20 * SECOND, "a")]
    settings = replace(ENABLED, unregistered=1)
    run = simulate(settings, faults=faults, seed=seed, until_us=24 * SECOND)
    held(run)
    there = run.kernel.states[store_of("cluster1")].keys
    versions = {k.removeprefix(keys.VERSIONS) for k in there if k.startswith(keys.VERSIONS)}
    infos = {k.removeprefix(keys.SERVER_INFO) for k in there if k.startswith(keys.SERVER_INFO)}
    campaigns = {e.value for k, e in there.items() if k.startswith(keys.OWNER)}
    assert versions == infos == campaigns and len(versions) == 2
    assert ended(run)[-1].owner in versions


def test_a_worker_stays_campaigning_while_a_tidb_server_has_the_ddl() -> None:
    """The reason for that status: it campaigned later. The server runs the jobs meanwhile."""
    settings = ServiceSettings(workers=2, clusters=1, unregistered=1, habits=Habits(enables_ddl=True))
    register = Ask(3 * SECOND, "ddl-service-node-1", Register("cluster1", store_of("cluster1"), "v6.5.0"))
    run = simulate(settings, faults=[index(SECOND, "a"), register, index(5 * SECOND, "b")], until_us=9 * SECOND)
    held(run)
    workers = [state for state in run.kernel.states.values() if isinstance(state, WorkerState)]
    assert [w.owners["cluster1"].status for w in workers if "cluster1" in w.owners] == [records.CAMPAIGNING]
    assert [(job.state, job.owner.partition("-")[0]) for job in ended(run)] == [(records.DONE, "cluster1/tidb")] * 2


def test_ddl_is_delegated_and_delegated_back() -> None:
    """Servers switch off and the service has it; the cluster is unregistered, they switch on and have it again."""
    faults = [
        index(SECOND, "a"), *switched(3 * SECOND, on=False), index(5 * SECOND, "b"),
        Ask(8 * SECOND, "ddl-service-node-1", Unregister("cluster1")), *switched(8 * SECOND, on=True),
        index(11 * SECOND, "c"),
    ]  # fmt: skip
    run = simulate(ENABLED, faults=faults, until_us=15 * SECOND)
    held(run)
    owners = [job.owner for job in ended(run)]
    assert [name.startswith(keys.SERVICE_ID) for name in owners] == [False, True, False]
    assert {job.state for job in ended(run)} == {records.DONE}


@pytest.mark.parametrize("seed", range(4))
def test_a_job_goes_on_where_its_owner_dies_or_hangs_whoever_comes_next(seed: int) -> None:
    """A server that crashes or is paused for longer than its lease; never two owners."""
    worst = [Crash(1_400_000, SERVERS[0]), Restart(9 * SECOND, SERVERS[0]), Pause(1_500_000, SERVERS[1], 12 * SECOND)]
    slow = [Ask(SECOND, "cluster1/tidb-2", Submit("add index", "orders", "a", rows=20_000))]
    run = simulate(ENABLED, faults=[*slow, *worst], seed=seed, until_us=40 * SECOND)
    held(run)
    assert [job.state for job in ended(run)] == [records.DONE]


@pytest.mark.parametrize(
    ("kind", "name", "state"), [("add index", "a", records.ROLLED_BACK), ("drop table", "", records.DONE)]
)
def test_a_job_of_an_old_version_that_a_server_has_begun_is_taken_back_by_the_service(
    kind: str, name: str, state: str
) -> None:
    """What can be; what cannot comes to its end, or it would be in the queue for good."""
    made = Ask(SECOND, SERVERS[1], Submit("create table", "orders"))
    old = Ask(2 * SECOND, SERVERS[1], Submit(kind, "orders", name, rows=50_000 * bool(name), version="v5.4.0"))
    over = [Ask(2_400_000, server, EnableDdl(False)) for server in SERVERS]
    slow = replace(ENABLED, habits=Habits(enables_ddl=True, load_us=200_000))
    run = simulate(slow, faults=[made, old, *over], until_us=12 * SECOND)
    held(run)
    job = ended(run)[-1]
    assert (job.state, job.owner.startswith(keys.SERVICE_ID)) == (state, True)
    assert ("too old" in job.error) == (state == records.ROLLED_BACK)


def test_a_server_that_keeps_on_when_its_session_is_over_is_a_second_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: it does not look at its lease."""
    for module in (owner, server):
        monkeypatch.setattr(module, "is_over", lambda *_: False)
    pauses = [Pause(2 * SECOND, server, 15 * SECOND) for server in SERVERS]
    run = simulate(ENABLED, faults=pauses, until_us=40 * SECOND)
    assert run.violation is not None and run.violation.invariant == "One DDL Owner"
