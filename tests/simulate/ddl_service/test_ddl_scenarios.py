"""Scenario files of DDL as a Service: what they assert holds, what they get wrong is reported, many seeds are safe."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from exploring import seeds
from pyspark.sql import SparkSession

from ticdc_lab.cli import main
from ticdc_lab.ddl_core.checks import ONE_OWNER
from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate.ddl_service.planned import KINDS, mischief
from ticdc_lab.simulate.ddl_service.scenario import play
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.scenario import read_scenario, scenario_from_text
from ticdc_lab.simulate.sweep import sweep
from ticdc_lab.simulate.trace import NOTHING

FOLDER = Path(__file__).resolve().parents[3] / "data/scenarios"
FILES = sorted((FOLDER / "ddl-service").glob("*.yaml"))
MEANT = {"two-owners-broken-rule"}
"""Scenarios that show a violation."""

TOP = "model: ddl-service\nuntil: 6s\ncluster: {workers: 2, clusters: 2}\n"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_what_a_scenario_asserts_holds(path: Path) -> None:
    """Every assertion, no matter what the seed, and no invariant is violated but where that is meant."""
    for seed in range(2):
        played = play(read_scenario(path), seed=seed, keep=False)
        assert [o for o in played.outcomes if not o.held] == []
        assert played.scenario.assertions and played.held == (path.stem not in MEANT)
        assert set(played.facts.broken) == ({ONE_OWNER} if path.stem in MEANT else set())


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_scenario_is_said_what_it_shows(path: Path) -> None:
    """In its first line and in the list of scenarios."""
    assert path.read_text(encoding="utf-8").startswith("# ")
    assert f"`{path.stem}`" in (FOLDER / "README.md").read_text(encoding="utf-8")


CHAOS = read_scenario(FOLDER / "ddl-service/chaos.yaml", {"assert": "[]", "until": "34s"})


@pytest.mark.parametrize("first", seeds([0, 25], of=range(0, 150, 25)))
def test_many_seeds_are_safe_and_settle(first: int) -> None:
    """Every fault there is and busy users; what fails shows how to see it again (10,000: benchmarks/ddl_seeds.py)."""
    bad = []
    for seed in range(first, first + 25):
        played = play(CHAOS, seed=seed, keep=False, level=NOTHING)
        if played.run.violation or played.run.unsettled:
            bad.append(f"{played.run.violation or played.run.unsettled}\n  {played.again}")
    assert not bad, "\n".join(bad)


def test_random_faults_of_every_kind_come() -> None:
    """All of them over at their end; the same seed draws the same."""
    drawn = [
        mischief(ServiceSettings(), tuple(KINDS), from_us=1_000_000, until_us=9_000_000, every_us=50_000, seed=s)
        for s in (3, 3, 4)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    commands = {type(getattr(f, "command", f)).__name__ for f in drawn[0]}
    assert commands == {"ExpireOf", "Part", "Resign", "Leave", "Slow", "Lose"}
    assert all(f.at_us + (getattr(f, "for_us", 0) or 0) <= 9_000_000 for f in drawn[0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("assert: [{eventually: every cluster is owed}]", "a sentence of the vocabulary"),
        ("assert: [{eventually: cluster7 is owned}]", "the name of one cluster"),
        ("assert: [{eventually: no cluster on node-1}]", "the name of one worker"),
        ("assert: [{eventually: job 1 of cluster1 is finished}]", "the name of one state"),
        ("assert: [{at_most: 1, of: clusters}]", "something that can be measured"),
        ("events: [{at: 1s, ddl: cluster1/tidb-3, job: add index, table: t}]", "a node of the cluster"),
        ("events: [{at: 1s, ddl: cluster1/tidb-1, job: add index}]", "a field table of ddl"),
        ("events: [{random: {faults: [melt], every: 1s}}]", "a fault that can come at random"),
        ("settings: {duties: {bugs: [keeps on]}}", "a known field of settings.duties"),
        ("load: {every: 0s}", "a time above 0"),
    ],
)
def test_a_mistake_in_a_file_is_told_where_it_stands(text: str, said: str) -> None:
    """With the line, and what there is instead."""
    with pytest.raises(ScenarioError, match="scenario:4: expected") as error:
        scenario_from_text(TOP + text)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("job: add indx, table: t, element: a", "expected a kind of job; found add indx"),
        ("job: add index, table: t", "expected of add index the name of one, `element`, beside its table; found none"),
        ("job: drop table, table: t, element: a", "expected of drop table the table alone; found a"),
    ],
)
def test_a_job_that_no_service_knows_is_refused(job: str, said: str) -> None:
    """Before anything runs; it was sent, and rejected as one that an old server sends."""
    text = TOP + f"events: [{{at: 1s, ddl: cluster1/tidb-1, {job}}}]"
    with pytest.raises(ScenarioError, match=f"scenario:4: {said}"):
        play(scenario_from_text(text))


def test_a_cluster_that_has_no_store_cannot_be_registered() -> None:
    """It is reported before anything runs."""
    text = TOP + "events: [{at: 1s, register: cluster9, worker: ddl-service-node-1}]"
    with pytest.raises(ScenarioError, match="scenario:4: expected a cluster with a store; found cluster9"):
        play(scenario_from_text(text))


def test_a_run_is_told_in_sentences_and_exit_codes_say_how_it_ended() -> None:
    """Leader, owners, why a job waits, what became of it; 1 where an invariant is violated, with the command."""
    done = CliRunner().invoke(main, ["simulate", "ddl-service", str(FILES[0].with_name("slow-server.yaml"))])
    assert done.exit_code == 0, done.output
    for said in (
        "slow-server (proposal, seed 0): 20s, ",
        "owns the DDL of cluster1 as ddl-service-",
        "cluster1/tidb-2-",
        "job 1, add index t1/by_day, is synced",
        "jobs: 2 synced",
        "held    always: job 1 of cluster1 is running (from 4s to 10s)",
    ):
        assert said in done.stdout
    broken = CliRunner().invoke(
        main, ["simulate", "ddl-service", str(FOLDER / "ddl-service/two-owners-broken-rule.yaml")]
    )
    assert broken.exit_code == 1
    assert "VIOLATED at 16s" in broken.stdout or "One DDL Owner" in broken.stdout
    assert "\nAgain: ticdc-lab simulate ddl-service " in broken.stdout


def test_seeds_are_swept_like_those_of_the_other_models(spark: SparkSession) -> None:
    """A row a seed: moves, time without owner, since when every cluster is owned and all is balanced."""
    crash = read_scenario(FOLDER / "ddl-service/worker-crash.yaml")
    rows = {row["seed"]: row.asDict() for row in sweep(spark, crash, range(2)).collect()}
    for seed in range(2):
        alone = play(crash, seed=seed, keep=False)
        row = rows[seed]
        assert (row["held"], row["steps"], row["gap_us"]) == (True, alone.run.end.steps, alone.measures.gap_us)
        assert 4_500_000 < row["steady_us"] < 17_000_000 and row["balanced_us"] is not None
        assert row["lag_us"] is row["doubled_us"] is None
        assert 2 * 3_000_000 < row["gap_us"] < 2 * 12_000_000
