"""A PUT shows no version: the service asks the cluster, which may be of several, show none, or not be reached."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from immutables import Map

from ticdc_lab.ddl_core import infosyncer, keys, records
from ticdc_lab.ddl_core.keys import PD, store_of
from ticdc_lab.ddl_core.registering import LATE, REFUSED, WishOutcome, WishWrite, decided
from ticdc_lab.ddl_core.server import shown_ddl
from ticdc_lab.ddl_core.server_state import Habits, ShownDdl, Submit
from ticdc_lab.ddl_core.settings import SUPPORTED, Duties, Versions, by_age
from ticdc_lab.ddl_core.store import StoredEntry
from ticdc_lab.ddl_core.worker import Worker
from ticdc_lab.ddl_core.worker_state import LookAtJobs, Register, Unregister
from ticdc_lab.machines.machine import Told
from ticdc_lab.simulate.ddl_service.run import ServiceRun, simulate
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.faults import Ask, Crash, Fault, Part
from ticdc_lab.simulate.scenario import scenario_from_text

SECOND = 1_000_000
WORKER = "ddl-service-node-1"


def registered(run: ServiceRun) -> dict[str, str]:
    """The version of each registered cluster."""
    found = run.kernel.states[PD].keys.items()
    return {
        k.removeprefix(keys.REGISTERS): records.cluster(e.value).version
        for k, e in found
        if k.startswith(keys.REGISTERS)
    }


def put(version: str, *faults: Fault, **more: object) -> ServiceRun:
    """A cluster of a version is registered by a PUT that shows none."""
    settings = ServiceSettings(clusters=2, unregistered=1, cluster_versions=Map({"cluster2": version}))
    asked = Ask(3 * SECOND, WORKER, Register("cluster2", store_of("cluster2")))
    run = simulate(settings, faults=[asked, *faults], until_us=12 * SECOND, **more)  # type: ignore[arg-type]
    assert (run.violation, run.unsettled) == (None, None)
    return run


@pytest.mark.parametrize(("version", "taken"), [("v7.1.0", True), ("v9.0.0", False), ("v5.4.0", False)])
def test_a_cluster_that_is_asked_is_registered_with_its_own_version_or_refused(version: str, taken: bool) -> None:
    """Its tidb-servers have reported it under their server info; newer than the service and too old are refused."""
    assert registered(put(version)) == {"cluster1": "v6.5.0"} | ({"cluster2": version} if taken else {})


def test_a_cluster_whose_servers_are_gone_tells_the_version_of_its_meta() -> None:
    """The servers' info goes with their leases."""
    crashes = [Crash(SECOND, f"cluster2/tidb-{n}") for n in (1, 2)]
    late = Ask(9 * SECOND, WORKER, Register("cluster2", store_of("cluster2")))
    settings = ServiceSettings(clusters=2, unregistered=1, cluster_versions=Map({"cluster2": "v7.1.0"}))
    run = simulate(settings, faults=[*crashes, late], until_us=12 * SECOND)
    assert run.violation is None and registered(run)["cluster2"] == "v7.1.0"


def entries(*versions: str) -> dict[str, StoredEntry]:
    """What a cluster's store has of tidb-servers."""
    puts = [infosyncer.server_info(f"tidb-{n}-2f", f"tidb-{n}", v, 0x2F) for n, v in enumerate(versions)]
    return {p.key: StoredEntry(p.value, 1, 1) for p in puts}


def test_in_a_cluster_that_is_upgraded_all_versions_must_be_served() -> None:
    """The newest is written down; of an old one that is not served it is reported which it is."""
    told = infosyncer.versions_told(entries("v7.5.0", "v6.5.0", "v10.0.0"))
    assert told == ("v6.5.0", "v7.5.0", "v10.0.0"), "as numbers, not as letters"
    good = decided(Register("a", "tikv://a:1"), (), SUPPORTED, ("v6.5.0", "v7.5.0"))
    assert isinstance(good, WishWrite) and good.cluster is not None and good.cluster.version == "v7.5.0"
    bad = decided(Register("a", "tikv://a:1"), (), SUPPORTED, ("v5.0.0", "v7.5.0"))
    assert isinstance(bad, WishOutcome) and bad.kind == REFUSED and "v5.0.0 is too old" in bad.because


@pytest.mark.parametrize("turned", [False, True])
def test_two_spellings_of_a_version_have_one_order(turned: bool) -> None:
    """Sets have none: the one that is written down as the newest was another in each process."""
    spelt = ["v6.5.0-alpha", "6.5.0", "v6.5.0"]
    assert infosyncer.versions_told(entries(*sorted(spelt, reverse=turned))) == tuple(spelt)
    fleet = [Versions(own) for own in sorted(spelt, reverse=turned)]
    assert max(fleet, key=lambda v: by_age(v.own)).own == "v6.5.0"


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_what_is_written_of_a_cluster_does_not_hang_on_the_process(hash_seed: str) -> None:
    """The same versions, reported in the same order: the same is registered by every worker."""
    code = (
        "from ticdc_lab.ddl_core import infosyncer as i, store;"
        "p = [i.server_info(f't{n}', '', v, 1) for n, v in enumerate(['v6.5.0', '6.5.0', 'v6.5.0-alpha', 'v6.5.0+b'])];"
        "print(*i.versions_told({x.key: store.StoredEntry(x.value, 1, 1) for x in p}))"
    )
    env = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "v6.5.0-alpha 6.5.0 v6.5.0 v6.5.0+b\n"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "null", '{"address": 3}', '{"version": ["v6.5.0"]}', '{"a":' + "[" * 99_999, "\ud800"]
)
def test_server_info_that_is_none_tells_nothing(text: str) -> None:
    """No matter what a cluster's store has there, the worker that asks it continues; the others are still heard."""
    broken = {f"{keys.SERVER_INFO}x": StoredEntry(text, 1, 1)}
    assert infosyncer.instances(broken) == {} and infosyncer.versions_told(broken) == ()
    assert infosyncer.versions_told(broken | entries("v7.1.0")) == ("v7.1.0",)
    assert shown_ddl(broken) == ShownDdl(0)


def test_what_is_no_version_and_earlier_info_without_one_are_passed_over() -> None:
    """A store of an earlier build has an address alone."""
    old = {f"{keys.SERVER_INFO}x": StoredEntry('{"address": "x"}', 1, 1)}
    assert infosyncer.versions_told(old) == ()
    assert infosyncer.versions_told(old | {keys.BOOTSTRAPPED: StoredEntry("v6.5.0", 1, 1)}) == ("v6.5.0",)
    assert infosyncer.versions_told(old | {keys.BOOTSTRAPPED: StoredEntry("new", 1, 1)}) == ()


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (Register("cluster2", store_of("cluster2")), "version"),
        (Unregister("cluster1", if_idle=True), "jobs"),
        (LookAtJobs("cluster1"), "jobs"),
    ],
)
def test_a_cluster_that_cannot_be_reached_costs_the_worker_nothing(
    command: object, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user learns it after the time of a lease; the worker keeps its session with the service, and leads on."""
    told: list[WishOutcome] = []
    sound = Worker.step

    def step(self: Worker, state: object, event: object, now: object) -> object:
        after, outputs = sound(self, state, event, now)  # type: ignore[arg-type]
        told.extend(o.outcome for o in outputs if isinstance(o, Told))
        return after, outputs

    monkeypatch.setattr(Worker, "step", step)
    cuts = [Part(2 * SECOND, f"ddl-service-node-{n}", store_of(f"cluster{c}")) for n in (1, 2) for c in (1, 2)]
    settings = ServiceSettings(workers=2, clusters=2, unregistered=1)
    run = simulate(settings, faults=[*cuts, Ask(3 * SECOND, WORKER, command)], until_us=15 * SECOND)
    assert run.violation is None
    assert [(t.kind, f"does not report its {what}" in t.because) for t in told] == [(LATE, True)]
    assert run.kernel.states[WORKER].service.life == 1
    assert registered(run) == {"cluster1": "v6.5.0"}


def test_workers_show_themselves_in_the_cluster_of_the_service_and_say_that_they_live() -> None:
    """As every instance does in its own cluster; the keys of one that is gone go with its lease."""
    settings = ServiceSettings(workers=2, clusters=1, duties=Duties(topology_us=SECOND))
    run = simulate(settings, faults=[Crash(4 * SECOND, WORKER)], until_us=14 * SECOND)
    assert run.violation is None
    own = run.kernel.states[PD].keys
    (info,) = infosyncer.instances(own).values()
    assert info == infosyncer.ServerInfo("ddl-service-node-2", SUPPORTED.own)
    topology = {k.removeprefix(keys.TOPOLOGY): e.value for k, e in own.items() if k.startswith(keys.TOPOLOGY)}
    assert sorted(topology) == ["ddl-service-node-2/tidb", "ddl-service-node-2/ttl"]
    assert int(topology["ddl-service-node-2/ttl"]) >= 12 * SECOND


VARIABLES = """{model: ddl-service, until: 30s, cluster: {workers: 1, clusters: 1}, events: [
  {at: 2s, set_global: cluster1/tidb-1, variable: tidb_ddl_reorg_worker_cnt, value: "%s"},
  {at: 3s, ddl: cluster1/tidb-1, job: add index, table: t, element: a, rows: 20000},
  {at: %s, set_global: cluster1/tidb-1, variable: tidb_ddl_reorg_worker_cnt, value: "8"}]}"""


def backfilled_us(workers: str, again: str) -> int:
    """How long a backfill takes."""
    run = (
        scenario_from_text(VARIABLES % (workers, again))
        .model.play(scenario_from_text(VARIABLES % (workers, again)))
        .run
    )
    assert run.violation is None
    rows = [r for r in run.kernel.recorder.rows if r.subject == f"{keys.JOBS}1" and r.after is not None]
    jobs = [(r.time_us, records.job(r.after)) for r in rows]
    filling = [at for at, job in jobs if job.row_count > 0]
    assert {job.workers for _, job in jobs if job.row_count} == {int(workers)}
    return filling[-1] - filling[0]


def test_workers_of_a_backfill_share_its_batches_and_a_session_keeps_their_number() -> None:
    """``global | session``: the session of a job begins with the global value; what is set later is for later jobs."""
    four, sixteen = backfilled_us("4", "29s"), backfilled_us("16", "29s")
    assert 3 * sixteen < four
    assert backfilled_us("4", "3.5s") == pytest.approx(four, rel=0.02)


@pytest.mark.parametrize(("limit", "state"), [("3", records.DONE), ("2", records.ROLLED_BACK)])
def test_a_job_with_more_errors_than_its_cluster_allows_is_taken_back(limit: str, state: str) -> None:
    """``global`` alone: read from the cluster's store at each step."""
    text = f"""{{model: ddl-service, until: 20s, cluster: {{workers: 1, clusters: 1}}, events: [
      {{at: 2s, set_global: cluster1/tidb-1, variable: tidb_ddl_error_count_limit, value: "{limit}"}},
      {{at: 3s, ddl: cluster1/tidb-1, job: add index, table: t, element: a, rows: 900, errors: 3}}],
      assert: [{{eventually: job 1 of cluster1 is {state}}}, {{always: no violation}}]}}"""
    scenario = scenario_from_text(text)
    assert scenario.model.play(scenario).held


def test_show_ddl_is_an_event_whose_answer_is_among_the_lines() -> None:
    """What a user of the cluster sees."""
    text = """{model: ddl-service, until: 6s, cluster: {workers: 1, clusters: 1}, events: [
      {at: 2s, ddl: cluster1/tidb-1, job: add index, table: t, element: a, rows: 900000},
      {at: 4s, show_ddl: cluster1/tidb-2}]}"""
    scenario = scenario_from_text(text)
    lines = [line for line in scenario.model.play(scenario).happened if "admin show ddl" in line.what]
    assert len(lines) == 1 and lines[0].node == "cluster1/tidb-2"
    assert "schema version 3; owner ddl-service-" in lines[0].what
    assert "job 1, add index, write reorganization" in lines[0].what


def test_a_job_keeps_running_where_its_clusters_version_is_asked() -> None:
    """An update without a version asks again, and touches neither owner nor job."""
    update = Ask(4 * SECOND, WORKER, Register("cluster1", store_of("cluster1")))
    job = Ask(3 * SECOND, "cluster1/tidb-1", Submit("add index", "t", "a", rows=50_000))
    run = simulate(ServiceSettings(habits=Habits(version="v7.5.0")), faults=[job, update], until_us=20 * SECOND)
    assert (run.violation, run.unsettled) == (None, None)
    assert registered(run)["cluster1"] == "v7.5.0" and run.monitor.elected_of["cluster1"] == 1
