"""Many seeds and settings as a Spark job, compared and stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.errors import ContractError, ScenarioError
from ticdc_lab.simulate.scenario import Scenario, read_scenario
from ticdc_lab.simulate.scheduler.play import play
from ticdc_lab.simulate.sweep import (
    RUNS,
    compare_runs,
    failures,
    first_difference,
    measured,
    sweep,
    traces,
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
    """Four seeds, as the file says and with slower scans."""
    return sweep(spark, crash, range(1, 5), [{}, SLOW]).cache()


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


def test_a_change_of_settings_is_compared_seed_by_seed(runs: DataFrame) -> None:
    """Slower scans: longer gaps in every seed; nothing is written twice in either."""
    rows = {r["measure"]: r for r in compare_runs(runs, before="", after=LABEL).toArrow().to_pylist()}
    gap, overlap = rows["gap_us"], rows["overlap_us"]
    assert (gap["seeds"], gap["higher"], gap["lower"]) == (4, 4, 0) and gap["mean_after"] > gap["mean_before"]
    assert (overlap["same"], overlap["p99_after"]) == (4, 0.0)
    assert next(iter(rows)) == "steps", "in the order of the measures"


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


def test_traces_are_stored_and_part_where_the_setting_shows(
    spark: SparkSession, crash: Scenario, tmp_path: Path
) -> None:
    """In Delta; the first difference is the end of the first scan."""
    out = f"{tmp_path}/traces"
    traces(spark, crash, [1], [{}, SLOW]).write.format("delta").save(out)
    stored = spark.read.format("delta").load(out)
    one = play(crash, seed=1).trace
    back = stored.where("settings = ''").orderBy("row").drop("seed", "settings", "row").toArrow()
    assert back.cast(one.schema).equals(one)
    [first] = first_difference(stored, before="", after=LABEL).toArrow().to_pylist()
    assert (first["before"]["kind"], first["before"]["after"]) == ("changed", "replicating")
    assert first["before"]["time_us"] < first["after"]["time_us"]
    assert first_difference(stored, before="", after="").isEmpty()
    counts = stored.where("kind = 'sent' and message = 'Announce'").groupBy("settings").count().orderBy("settings")
    assert [r["count"] for r in counts.toArrow().to_pylist()] == [5, 5], "three of the first owner, two of the second"


def test_a_wrong_setting_is_told_before_the_job(spark: SparkSession, crash: Scenario) -> None:
    """As in a file; and a frame of another kind is no runs."""
    with pytest.raises(ScenarioError, match=r"a known field of settings\.pace; found prepair"):
        sweep(spark, crash, [1], [{"settings.pace.prepair": "1s"}])
    with pytest.raises(ContractError, match="runs lacks"):
        compare_runs(spark.range(1), before="", after="")
