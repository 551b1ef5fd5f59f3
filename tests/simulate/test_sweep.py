"""Many seeds and settings as a Spark job, summed up."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import computed
from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.errors import ContractError, ScenarioError
from ticdc_lab.simulate.scenario import Scenario, read_scenario
from ticdc_lab.simulate.scheduler.model import play
from ticdc_lab.simulate.sweep import (
    RUNS,
    failures,
    measured,
    sweep,
)

FOLDER = Path(__file__).resolve().parents[2] / "data/scenarios/scheduler"
SLOW = {"settings.pace.prepare": "900ms"}
LABEL = "settings.pace.prepare=900ms"


@pytest.fixture(scope="module")
def crash() -> Scenario:
    """An owner that dies, cut short."""
    return read_scenario(FOLDER / "owner-crash.yaml", {"until": "10s"})


@pytest.fixture(scope="module")
def runs(spark: SparkSession, crash: Scenario) -> DataFrame:
    """Four seeds, as the file describes and with slower scans."""
    return computed(sweep(spark, crash, range(1, 5), [{}, SLOW]))


def test_each_seed_and_setting_is_a_row(runs: DataFrame, crash: Scenario) -> None:
    """With what the same run has when it is played alone."""
    rows = runs.orderBy("settings", "seed").toArrow().to_pylist()
    assert [(r["settings"], r["seed"]) for r in rows] == [(s, n) for s in ("", LABEL) for n in (1, 2, 3, 4)]
    assert [f.name for f in RUNS] == runs.columns
    alone = play(crash.changed(SLOW), seed=2, keep=False)
    row = rows[5]
    assert (row["steps"], row["messages"]) == (alone.run.end.steps, alone.run.messages)
    assert (row["gap_us"], row["moves"], row["held"]) == (alone.run.measures.gap_us, alone.facts.moves, alone.held)
    assert row["failed"] == [f"{o.assertion}: {o.because}" for o in alone.outcomes if not o.held]
    words = f"ticdc-lab simulate scheduler {crash.file} --seed 2 --set until=10s --set {LABEL}"
    assert row["again"] == words
    assert row["converged_us"] == row["steady_us"] - 3_000_000 > 0


def test_a_sweep_does_not_depend_on_how_it_is_split(spark: SparkSession, runs: DataFrame, crash: Scenario) -> None:
    """Other tasks and another order of seeds give the same rows."""
    again = sweep(spark, crash, [4, 2], [{}]).orderBy("seed").toArrow()
    assert again.equals(runs.where("settings = '' and seed in (2, 4)").orderBy("seed").toArrow())


def test_failures_name_the_first_seed_and_its_command(spark: SparkSession) -> None:
    """Of a scenario whose invariant is violated in every run."""
    broken = sweep(spark, read_scenario(FOLDER / "partition-broken-assumption.yaml"), [7, 6])
    [row] = failures(broken).toArrow().to_pylist()
    assert (row["runs"], row["violated"], row["failed"], row["first_seed"]) == (2, 2, 0, 6)
    assert row["again"].endswith("partition-broken-assumption.yaml --seed 6")


def test_measures_are_summed_up(runs: DataFrame) -> None:
    """Over all seeds; the highest is one of them."""
    rows = {r["measure"]: r for r in measured(runs.where("settings = ''")).toArrow().to_pylist()}
    highest = runs.where("settings = ''").selectExpr("max(messages) AS m").toArrow().to_pylist()[0]["m"]
    assert (rows["messages"]["seeds"], rows["messages"]["highest"]) == (4, highest)


def test_a_wrong_setting_is_told_before_the_job(spark: SparkSession, crash: Scenario) -> None:
    """As in a file; and a frame of another kind is no runs."""
    with pytest.raises(ScenarioError, match=r"a known field of settings\.pace; found prepair"):
        sweep(spark, crash, [1], [{"settings.pace.prepair": "1s"}])
    with pytest.raises(ContractError, match="runs is missing the columns"):
        measured(spark.range(1))
