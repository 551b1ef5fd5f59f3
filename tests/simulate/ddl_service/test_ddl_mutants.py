"""Every planted bug is caught, and the same run without it is clean."""

from __future__ import annotations

import pytest
from ddl_mutants import INDEX, MUTANTS, Mutant
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from ticdc_lab.ddl_core import jobs, keys, records
from ticdc_lab.ddl_core.checks import ENDS_WELL, IN_ORDER, KEPT, SERVED, SUPPORTED, WHOLE, wrong_step
from ticdc_lab.ddl_core.records import Job
from ticdc_lab.ddl_core.server_state import Habits
from ticdc_lab.ddl_core.settings import SUPPORTED as VERSIONS
from ticdc_lab.ddl_core.sysvars import COUNTS, VARIABLES, Scopes, instance_refusal, refusal, value_of
from ticdc_lab.simulate.ddl_service.monitor import INVARIANTS
from ticdc_lab.simulate.ddl_service.run import simulate
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.scenario import scenario_from_text
from ticdc_lab.simulate.trace import NOTHING


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.bug)
def test_a_planted_bug_is_caught(mutant: Mutant) -> None:
    """By the invariant that it breaks; nothing is found without it."""
    sound, broken = mutant.run(sound=True), mutant.run()
    assert (sound.violation, sound.unsettled) == (None, None)
    found = broken.violation.invariant if broken.violation else (broken.unsettled or ("",))[0]
    assert found == mutant.invariant


BEFORE = Job(
    1, "add index", "orders", "a", "v6.5.0", 500, None, records.RUNNING, jobs.WRITE_REORG, 3, 100, snapshot_ts=9
)


@pytest.mark.parametrize(
    ("after", "invariant"),
    [
        (BEFORE._replace(schema_state=jobs.PUBLIC, schema_version=4), WHOLE),
        (BEFORE._replace(row_count=50), IN_ORDER),
        (BEFORE._replace(schema_state=jobs.DELETE_ONLY, schema_version=4), IN_ORDER),
        (BEFORE._replace(schema_version=2), IN_ORDER),
        (BEFORE._replace(row_count=200, snapshot_ts=7), KEPT),
        (BEFORE._replace(row_count=200, version="v5.0.0"), SUPPORTED),
        (BEFORE._replace(row_count=200), None),
    ],
)
def test_a_wrong_step_of_a_job_is_seen(after: Job, invariant: str | None) -> None:
    """Rows and versions never fall, states are neighbours, an index is whole, GC is behind, versions are supported."""
    found = wrong_step(BEFORE, after, 8, VERSIONS, "store")
    assert (found[0] if found else None) == invariant


@pytest.mark.parametrize("kind", ["drop table", "drop column", "drop index", "create table", "add column"])
def test_no_job_of_an_old_version_is_begun(kind: str) -> None:
    """Of no kind; a drop that a tidb-server has begun cannot be taken back, and continues to its end."""
    first, then = jobs.LADDERS[kind][:2]
    queueing = Job(1, kind, "orders", "" if "table" in kind else "a", "v5.0.0", state=records.QUEUEING)
    begun = queueing._replace(state=records.RUNNING, schema_state=then, schema_version=1, owner="ddl-service-1-c")
    found = wrong_step(queueing, begun, 0, VERSIONS, "store")
    assert found and found[0] == SUPPORTED
    assert wrong_step(queueing, begun._replace(version="v6.5.0"), 0, VERSIONS, "store") is None
    if first == jobs.PUBLIC:
        on = begun._replace(schema_state=jobs.LADDERS[kind][2], schema_version=2)
        assert wrong_step(begun._replace(owner="tidb-1"), on, 0, VERSIONS, "store") is None


def test_every_invariant_has_something_that_breaks_it() -> None:
    """No check is without a planted fault; that every job ends is broken by a server that loads nothing."""
    stuck = ServiceSettings(slow=Map({"cluster1/tidb-2": Habits(load_us=1 << 60)}))
    run = simulate(stuck, faults=[INDEX], until_us=8_000_000, level=NOTHING)
    assert run.unsettled and run.unsettled[0] == SERVED
    late = simulate(ServiceSettings(), faults=[INDEX], until_us=3_100_000, level=NOTHING)
    assert late.unsettled and late.unsettled[0] == ENDS_WELL
    broken = {m.invariant for m in MUTANTS} | {IN_ORDER, WHOLE, KEPT, SUPPORTED, ENDS_WELL}
    assert set(INVARIANTS) <= broken


@given(*[st.tuples(st.integers(1, 1 << 63), st.text("ab-1", min_size=1, max_size=4))] * 2)
def test_no_two_clusters_have_one_ddl_id(a: tuple[int, str], b: tuple[int, str]) -> None:
    """No matter what hyphens their names have, and no matter what leases they got; and the cluster can
    be read from it.
    """
    assert (keys.ddl_id(*a) == keys.ddl_id(*b)) == (a == b)
    assert keys.cluster_of(keys.ddl_id(*a)) == a[1]
    assert keys.cluster_of("cluster1/tidb-1-2f") is None


@pytest.mark.parametrize("name", COUNTS)
def test_a_variable_has_the_value_of_its_scope(name: str) -> None:
    """Session before global before default."""
    scopes = Scopes(*(Map({name: where}) for where in ("process", "cluster", "session")))
    expected = {"tidb_ddl_reorg_worker_cnt": "session"}
    assert value_of(name, scopes) == expected.get(name, "cluster")
    assert value_of(name, Scopes()) == VARIABLES[name].default
    inherited = Scopes(cluster=scopes.cluster)
    assert value_of(name, inherited) in ("cluster", VARIABLES[name].default)


@pytest.mark.parametrize("name", ["ddl_slow_threshold", "version", "tidb_enable_ddl"])
def test_a_variable_of_the_process_is_no_clusters(name: str) -> None:
    """Scopes instance and none: no matter what clusters and sessions set."""
    assert value_of(name, Scopes(*(Map({name: where}) for where in ("process", "cluster", "session")))) == "process"
    assert refusal(name, "1") and bool(instance_refusal(name, "1")) == (name != "ddl_slow_threshold")


INSTANCE = """
model: ddl-service
until: 12s
cluster: {workers: 2, clusters: 4}
events:
  - {at: 1s, set_instance: ddl-service-node-1, variable: ddl_slow_threshold, value: 1}
  - {at: 1s, set_instance: ddl-service-node-2, variable: ddl_slow_threshold, value: 100000}
  - {at: 2s, set_global: cluster1/tidb-1, variable: tidb_ddl_reorg_batch_size, value: 200}
  - {at: 3s, ddl: cluster1/tidb-1, job: create table, table: a}
  - {at: 3s, ddl: cluster2/tidb-1, job: create table, table: a}
  - {at: 3s, ddl: cluster3/tidb-1, job: create table, table: a}
  - {at: 3s, ddl: cluster4/tidb-1, job: create table, table: a}
assert:
  - {always: no violation}
"""


def test_owners_of_one_process_have_one_value_of_an_instance_variable() -> None:
    """All of one worker's owners name their jobs as slow, none of the other's."""
    scenario = scenario_from_text(INSTANCE)
    played = scenario.model.play(scenario, seed=1)
    assert played.held
    slow = [r for r in played.run.trace.to_pylist() if (r["subject"] or "").startswith("slow job:")]
    assert {r["node"] for r in slow} == {"ddl-service-node-1"} and len({r["subject"] for r in slow}) == 2


def test_a_meta_is_upgraded_by_one_transaction() -> None:
    """The holder of the lock writes once; what comes later finds it done."""
    run = simulate(ServiceSettings(bootstrapped="v6.1.0", clusters=2), until_us=6_000_000)
    sent = [r["detail"] for r in run.trace.to_pylist() if r["kind"] == "sent" and r["message"] == "Txn"]
    assert sum('"upgrade"]' in detail for detail in sent) == 2, "one for each cluster"
