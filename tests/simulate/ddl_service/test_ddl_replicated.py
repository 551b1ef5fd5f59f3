"""DDL that the service has run is DDL of the replication pipeline: done jobs alone, in order, at their moments."""

from __future__ import annotations

import pytest

from ticdc_lab.ddl_core import records
from ticdc_lab.ddl_core.server_state import Submit
from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate.ddl_service.replicated import FIRST_JOB, done_jobs, load_with_ddl, pipeline_jobs
from ticdc_lab.simulate.ddl_service.run import simulate as serve
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.faults import Ask
from ticdc_lab.simulate.pipeline.run import simulate as replicate
from ticdc_lab.simulate.pipeline.scenario import LoadSettings, made, table_info
from ticdc_lab.simulate.pipeline.settings import PipelineSettings as Pipeline
from ticdc_lab.simulate.pipeline.tidb_state import Load
from ticdc_lab.simulate.scenario import scenario_from_text
from ticdc_lab.simulate.trace import CHANGES

SECOND = 1_000_000
SENT = (
    Submit("add column", "t1", "remark"),
    Submit("add index", "t1", "by_remark", rows=500, fails_at=400),
    Submit("drop column", "t1", "never"),
    Submit("drop column", "t1", "remark"),
    Submit("create table", "t9"),
)


def test_a_changefeed_sees_the_jobs_that_were_done_and_no_others() -> None:
    """One was rolled back, one rejected; the three others are replicated, in order, and nothing is lost."""
    asked = [Ask(SECOND + i * 400_000, "cluster1/tidb-1", sent) for i, sent in enumerate(SENT)]
    run = serve(ServiceSettings(workers=2, clusters=1), faults=asked, until_us=5 * SECOND, level=CHANGES)
    done = done_jobs(run.trace, "cluster1")
    assert [(job.kind, job.name) for _, job in done] == [
        ("add column", "remark"), ("drop column", "remark"), ("create table", "")
    ]  # fmt: skip
    assert all(SECOND < at_us < 4 * SECOND for at_us, _ in done)
    load = load_with_ddl(
        made(LoadSettings(rows_per_s=40, until_us=3 * SECOND), (1, 2), (), 0, 6 * SECOND), run, "cluster1"
    )
    assert [at_us for at_us, _ in load.jobs] == [at_us for at_us, _ in done]
    replicated = replicate(Pipeline(), load, until_us=6 * SECOND)
    assert replicated.violation is None
    assert replicated.measures.ddls == 3
    assert replicated.measures.delivered == replicated.measures.committed > 80


def test_jobs_change_the_tables_that_come_after_them() -> None:
    """Ids of columns are never used again; a table that was dropped can be created again, with another id."""
    kinds = (
        ("add column", "t1", "a"), ("drop column", "t1", "a"), ("add column", "t1", "b"), ("add index", "t1", "i"),
        ("drop table", "t1", ""), ("add column", "t1", "c"), ("create table", "t1", ""), ("drop table", "t7", ""),
    )  # fmt: skip
    done = [(i, records.Job(i, kind, table, name)) for i, (kind, table, name) in enumerate(kinds)]
    jobs = [job for _, job in pipeline_jobs(done, [table_info(1), table_info(2)])]
    assert [job.id - FIRST_JOB for job in jobs] == [0, 1, 2, 3, 4, 6]
    first, second, third, index, dropped, created = jobs
    assert first.info and [c.id for c in first.info.columns] == [1, 2, 3, 4]
    assert second.info and [c.id for c in second.info.columns] == [1, 2, 3]
    assert third.info and [(c.id, c.name) for c in third.info.columns][-1] == (5, "b")
    assert index.info == third.info and index.query == "ALTER TABLE `shop`.`t1` ADD INDEX `i` (`id`)"
    assert (dropped.dropped, dropped.info) == (1, None)
    assert created.info and created.info.id == 3


def test_jobs_of_a_load_stand_in_order() -> None:
    """The ones of the service among those that were there."""
    run = serve(
        ServiceSettings(workers=1, clusters=1), faults=[Ask(SECOND, "cluster1/tidb-1", SENT[0])], until_us=3 * SECOND,
        level=CHANGES,
    )  # fmt: skip
    own = pipeline_jobs([(2 * SECOND, records.Job(50, "add index", "t1", "x"))], [table_info(1)])
    load = load_with_ddl(Load((table_info(1),), (), own), run, "cluster1")
    assert [job.type for _, job in load.jobs] == ["add column", "add index"]


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("{of: nowhere.yaml, cluster: cluster1}", "a scenario file of the model ddl-service"),
        ("{of: pyproject.toml}", "cluster"),
    ],
)
def test_a_load_without_its_service_is_refused(ddl: str, said: str) -> None:
    """With the line."""
    text = f"model: pipeline\ncluster: {{captures: 1, tables: 1}}\nload: {{rows_per_s: 1, ddl: {ddl}}}\n"
    with pytest.raises(ScenarioError, match=said):
        scenario_from_text(text)


def test_a_cluster_that_the_service_does_not_have_is_refused() -> None:
    """Before anything runs; another model's file too."""
    for file, cluster in (("ddl-service/slow-server.yaml", "cluster7"), ("pipeline/ddl-barrier.yaml", "cluster1")):
        load = f"load: {{rows_per_s: 1, ddl: {{of: data/scenarios/{file}, cluster: {cluster}}}}}"
        scenario = scenario_from_text(f"model: pipeline\nuntil: 2s\ncluster: {{captures: 1, tables: 1}}\n{load}\n")
        with pytest.raises(ScenarioError, match=f"has no cluster {cluster}"):
            scenario.model.play(scenario)
