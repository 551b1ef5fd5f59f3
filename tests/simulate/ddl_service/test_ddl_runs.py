"""Whole services in the kernel: workers, their clusters, users' DDL, and what goes wrong."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest
from exploring import seeds
from immutables import Map

from ticdc_lab.ddl_core import jobs, keys, records
from ticdc_lab.ddl_core.keys import PD, store_of
from ticdc_lab.ddl_core.server_state import HABITS, Cancel, Habits, Submit
from ticdc_lab.ddl_core.worker_state import Register, Unregister
from ticdc_lab.simulate.ddl_service.planned import drawn_load
from ticdc_lab.simulate.ddl_service.run import ServiceRun, simulate
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.faults import Ask, Chaos, Crash, Fault, Join, Lose, Part, Restart
from ticdc_lab.simulate.trace import NOTHING

SECOND = 1_000_000
INDEX = Submit("add index", "orders", "by_day", rows=5000)
CHAOS = Chaos(15 * SECOND, 700_000)


def assignments(run: ServiceRun) -> dict[str, str]:
    """Who is to own what at the end."""
    found = run.kernel.states[PD].keys.items()
    return {k.removeprefix(keys.ASSIGNMENTS): e.value for k, e in found if k.startswith(keys.ASSIGNMENTS)}


def history(run: ServiceRun, cluster: str = "cluster1") -> list[records.Job]:
    """The jobs of a cluster that have ended."""
    found = run.kernel.states[store_of(cluster)].keys.items()
    return sorted(records.job(e.value) for k, e in found if k.startswith(keys.HISTORY))


def held(run: ServiceRun) -> None:
    """No invariant is broken, and all is as it should be at the end."""
    assert (run.violation, run.unsettled) == (None, None)


def test_a_quiet_service_owns_every_cluster_and_runs_its_jobs() -> None:
    """Elected, assigned, owned within a second; a job goes through all states; the servers have the last version."""
    run = simulate(ServiceSettings(), faults=[Ask(2 * SECOND, "cluster1/tidb-1", INDEX)], until_us=10 * SECOND)
    held(run)
    assert sorted(assignments(run)) == ["cluster1", "cluster2", "cluster3"]
    assert len(set(assignments(run).values())) == 3
    (job,) = history(run)
    assert (job.state, job.schema_state, job.row_count) == (records.DONE, jobs.PUBLIC, 5000)
    assert job.owner.startswith("ddl-service-")
    assert run.kernel.states["cluster1/tidb-2"].serves.elements == Map({"orders/by_day": jobs.PUBLIC})
    assert run.monitor.elected == 3


def test_the_same_seed_gives_the_same_run() -> None:
    """Byte for byte; another seed does not."""
    traces = [simulate(ServiceSettings(), chaos=CHAOS, seed=seed, until_us=20 * SECOND).trace for seed in (3, 3, 4)]
    assert traces[0].equals(traces[1])
    assert not traces[0].equals(traces[2])


def test_the_clusters_of_a_crashed_worker_go_to_the_others() -> None:
    """Kill -9 of a worker: its assignments are deleted or given away, no other's is touched."""
    settings = ServiceSettings(workers=3, clusters=6, servers=1)
    before = assignments(simulate(settings, until_us=5 * SECOND))
    run = simulate(settings, faults=[Crash(5 * SECOND, "ddl-service-node-2")], until_us=20 * SECOND)
    held(run)
    after = assignments(run)
    assert set(after.values()) == {"ddl-service-node-1", "ddl-service-node-3"}
    assert {c for c in after if after[c] != before[c]} == {c for c, w in before.items() if w == "ddl-service-node-2"}


def test_a_worker_that_joins_takes_its_share_and_no_more() -> None:
    """Scale-out: six clusters on two workers, two of them move to the third."""
    settings = ServiceSettings(workers=3, clusters=6, servers=1)
    run = simulate(settings, faults=[Join(5 * SECOND, "ddl-service-node-3")], until_us=20 * SECOND)
    held(run)
    assert run.monitor.elected == 6 + 2
    assert sorted(assignments(run).values()).count("ddl-service-node-3") == 2


@pytest.mark.parametrize("after_us", [10_000, 40_000, 70_000, 100_000, 200_000, 300_000])
def test_a_job_survives_its_owner_at_any_step(after_us: int) -> None:
    """The next owner of the cluster ends the job, and begins no row again."""
    asked = Ask(2 * SECOND, "cluster1/tidb-1", INDEX)
    owner = assignments(simulate(ServiceSettings(), until_us=SECOND))["cluster1"]
    run = simulate(ServiceSettings(), faults=[asked, Crash(2 * SECOND + after_us, owner)], until_us=20 * SECOND)
    held(run)
    (job,) = history(run)
    assert (job.state, job.row_count) == (records.DONE, 5000)


def test_a_worker_that_is_cut_off_owns_nothing_when_its_lease_has_ended() -> None:
    """It stops by its own clock, before another can be the owner; the auditor sees every moment."""
    owner = assignments(simulate(ServiceSettings(), until_us=SECOND))["cluster1"]
    cuts = [Part(3 * SECOND, owner, peer, for_us=10 * SECOND) for peer in (PD, store_of("cluster1"))]
    run = simulate(ServiceSettings(), faults=[*cuts, Ask(3 * SECOND, "cluster1/tidb-1", INDEX)], until_us=25 * SECOND)
    held(run)
    lost = run.trace.filter(pc.and_(pc.equal(run.trace["node"], owner), pc.equal(run.trace["subject"], "leader")))
    stops = run.trace.filter(
        pc.and_(pc.equal(run.trace["node"], owner), pc.equal(run.trace["subject"], "ddl-owner:cluster1"))
    )
    assert stops["time_us"][1].as_py() < 3 * SECOND + 5 * SECOND
    assert [j.state for j in history(run)] == [records.DONE]
    assert lost.num_rows <= 2


def test_one_slow_server_shows_why_a_ddl_waits() -> None:
    """Every state waits for it, and the decision names it."""
    slow = Map({"cluster1/tidb-2": HABITS_SLOW})
    run = simulate(ServiceSettings(slow=slow), faults=[Ask(8 * SECOND, "cluster1/tidb-1", INDEX)], until_us=40 * SECOND)
    held(run)
    decided = run.trace.filter(pc.equal(run.trace["kind"], "decided"))
    waits = [r for r in decided["rejected"].to_pylist() if r and r[0]["candidate"].startswith("cluster1/tidb-2")]
    assert len(waits) >= 4
    quick = simulate(ServiceSettings(), faults=[Ask(8 * SECOND, "cluster1/tidb-1", INDEX)], until_us=40 * SECOND)
    assert ended_us(run) - ended_us(quick) > 4 * 2 * SECOND


@pytest.mark.parametrize("message", ["Txn", "Done"])
def test_a_lost_request_does_not_hold_a_job_for_good(message: str) -> None:
    """Without an answer for the time of a lease the session is given up, and the next one continues
    (found by a seed).
    """
    owner, store = assignments(simulate(ServiceSettings(), until_us=SECOND))["cluster1"], store_of("cluster1")
    ends = (owner, store) if message == "Txn" else (store, owner)
    lost = Lose(2 * SECOND + 150_000, message, *ends)
    run = simulate(ServiceSettings(), faults=[Ask(2 * SECOND, "cluster1/tidb-1", INDEX), lost], until_us=20 * SECOND)
    held(run)
    assert pc.sum(pc.equal(run.trace["kind"], "lost")).as_py() == 1
    (job,) = history(run)
    assert (job.state, job.row_count) == (records.DONE, 5000)
    assert 7 * SECOND < ended_us(run) < 9 * SECOND


HABITS_SLOW = Habits(load_us=2_500_000)


def ended_us(run: ServiceRun) -> int:
    """When the first job of the first cluster ended."""
    rows = run.trace.filter(pc.equal(run.trace["subject"], f"{keys.HISTORY}1"))
    return int(rows["time_us"][0].as_py())


def test_users_cancel_what_can_be_cancelled() -> None:
    """A job in its backfill goes back to none, a rejected one never began."""
    faults: list[Fault] = [
        Ask(2 * SECOND, "cluster1/tidb-1", INDEX),
        Ask(2 * SECOND + 200_000, "cluster1/tidb-2", Cancel(1)),
        Ask(4 * SECOND, "cluster1/tidb-2", Submit("drop index", "orders", "by_day", version="v5.0.0")),
    ]
    run = simulate(ServiceSettings(), faults=faults, until_us=10 * SECOND)
    held(run)
    assert [j.state for j in history(run)] == [records.ROLLED_BACK, records.CANCELLED]
    assert "too old" in history(run)[1].error
    assert run.kernel.states["cluster1/tidb-1"].serves.elements == Map()


def test_clusters_come_and_go() -> None:
    """An unregistered cluster has neither assignment nor owner; registered again it has both."""
    again = Register("cluster1", store_of("cluster1"), "v6.5.0")
    node = "ddl-service-node-1"
    gone = simulate(ServiceSettings(), faults=[Ask(3 * SECOND, node, Unregister("cluster1"))], until_us=6 * SECOND)
    held(gone)
    assert sorted(assignments(gone)) == ["cluster2", "cluster3"]
    assert gone.monitor.owners["cluster1"] == []
    back = [Ask(3 * SECOND, node, Unregister("cluster1")), Ask(4 * SECOND, "ddl-service-node-2", again)]
    run = simulate(ServiceSettings(), faults=back, until_us=12 * SECOND)
    held(run)
    assert len(run.monitor.owners["cluster1"]) == 1


@pytest.mark.parametrize("version", ["v9.0.0", "v4.0.0", "new"])
def test_clusters_of_other_versions_are_not_registered(version: str) -> None:
    """Newer than the service, or too old for it (proposal, "Compatibility")."""
    refused = Register("cluster9", "tikv://nine:2379", version)
    run = simulate(ServiceSettings(), faults=[Ask(3 * SECOND, "ddl-service-node-1", refused)], until_us=6 * SECOND)
    held(run)
    assert "cluster9" not in assignments(run)


def test_the_meta_is_upgraded_under_a_lock_of_its_own() -> None:
    """One server of two upgrades, and the owner of the DDL, which is in the service, has no part in it."""
    run = simulate(ServiceSettings(bootstrapped="v6.1.0"), until_us=6 * SECOND)
    held(run)
    locked = run.trace.filter(pc.equal(run.trace["subject"], keys.BOOTSTRAP_LOCK))
    assert pc.sum(pc.is_valid(locked["after"])).as_py() == ServiceSettings().clusters
    assert all(run.kernel.states[s].serves for s in ServiceSettings().server_names())


def test_a_server_that_crashes_is_waited_for_no_longer_than_its_lease() -> None:
    """Its schema version goes with its session, and the job continues."""
    faults: list[Fault] = [
        Crash(2 * SECOND, "cluster1/tidb-2"),
        Ask(2 * SECOND, "cluster1/tidb-1", INDEX),
        Restart(12 * SECOND, "cluster1/tidb-2"),
    ]
    run = simulate(ServiceSettings(), faults=faults, until_us=20 * SECOND)
    held(run)
    assert 5 * SECOND < ended_us(run) < 12 * SECOND
    assert HABITS.terms.ttl_us == 5 * SECOND


@pytest.mark.parametrize("seed", seeds(range(8), of=range(20)))
def test_random_faults_break_nothing(seed: int) -> None:
    """Crashes, pauses, partitions, bad links, skewed clocks and busy users; then all settles."""
    settings = ServiceSettings(workers=3, clusters=2, servers=2)
    load = drawn_load(settings, until_us=14 * SECOND, every_us=400_000, seed=seed)
    held(simulate(settings, faults=load, chaos=CHAOS, seed=seed, until_us=40 * SECOND, level=NOTHING))


def test_clocks_may_be_all_that_goes_wrong() -> None:
    """Clusters have no such faults of their own: none is drawn for them."""
    held(simulate(ServiceSettings(), chaos=Chaos(8 * SECOND, 700_000, ("skew",)), until_us=12 * SECOND))
