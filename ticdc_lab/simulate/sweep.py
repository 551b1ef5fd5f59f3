"""One scenario, many seeds and settings: a Spark job in which each row is a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from ticdc_lab.engine import parallelism
from ticdc_lab.errors import ContractError
from ticdc_lab.simulate.assertions import Assertion
from ticdc_lab.simulate.scenario import Scenario

RUNS = pa.schema(
    [
        ("seed", pa.int64()),
        ("settings", pa.string()),  # what was changed in the file, as the command line writes it; empty for nothing
        ("held", pa.bool_()),  # every assertion held, no invariant was violated, the run came to its end
        ("violation", pa.string()),  # the invariant; null without one
        ("violated_us", pa.int64()),
        ("because", pa.string()),  # of the violation
        ("failed", pa.list_(pa.string())),  # assertions that failed, with what was there
        ("ended", pa.string()),  # time, violation, steps or quiet
        ("time_us", pa.int64()),  # virtual time at the end
        ("steps", pa.int64()),
        ("messages", pa.int64()),
        ("overlap_us", pa.int64()),  # time in which a table had two writers (a cluster two owners), all together
        ("gap_us", pa.int64()),  # time in which a table (a cluster) had none after its first
        ("doubled_us", pa.int64()),  # upstream time whose changes were written again; null where nothing is written
        ("moves", pa.int64()),  # tables (clusters) that went to another capture (worker)
        ("thrash", pa.float64()),  # the share of them that came back within a minute
        ("balanced_us", pa.int64()),  # since when they differ by one at most; null if not at the end
        ("steady_us", pa.int64()),  # since when every table replicates (every cluster is owned); null if not at the end
        ("converged_us", pa.int64()),  # from the end of the last event (a fault, a DDL, a move) to then
        ("lag_us", pa.int64()),  # of the global checkpoint at the end; null where there is none
        ("again", pa.string()),  # the command that runs it again
    ]
)
"""A row a run."""

PD_RUNS = pa.schema(
    [
        *(RUNS.field(name) for name in ("seed", "settings", "held", "violation", "failed")),
        ("peers_even_s", pa.float64()),  # since when all stores are even; null if not at the end
        ("leaders_even_s", pa.float64()),
        ("done_s", pa.float64()),  # when the last operator ended; null while some run
        ("moved_gib", pa.float64()),  # data copied between stores
        ("peak_mib_s", pa.float64()),  # the most that one store sent and received in a second
        ("operators", pa.int64()),
        ("failed_operators", pa.int64()),
        ("thrash", pa.float64()),  # the share of moves that took back one of the last minute
        RUNS.field("again"),
    ]
)
"""A row a run of the model ``pd``."""

_TASKS_A_CORE = 4
Changes = Mapping[str, str]


def sweep(
    spark: SparkSession, scenario: Scenario, seeds: Sequence[int], settings: Sequence[Changes] = ({},)
) -> DataFrame:
    """Run a scenario with every seed and every one of some settings.

    Parameters
    ----------
    spark
        Its cores share the runs.
    scenario
        Of any model.
    seeds
        A run each.
    settings
        Values that are taken instead of the file's: ``[{}, {"settings.tick": "200ms"}, {"variant": "v3"}]``.

    Returns
    -------
    DataFrame
        :data:`RUNS` or :data:`PD_RUNS`; the same arguments give the same rows, in any order.

    Raises
    ------
    ScenarioError
        A setting cannot be; before any job starts.
    """
    labels = [shlex.join(f"{path}={value}" for path, value in changes.items()) for changes in settings]
    changed = list(zip(labels, map(scenario.changed, settings), strict=True))
    n = len(seeds) * len(changed)
    tasks = max(1, min(n, parallelism(spark) * _TASKS_A_CORE))
    schema = PD_RUNS if scenario.model.name == "pd" else RUNS

    def runs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for i in batch["id"].to_pylist():
                label, one = changed[i // len(seeds)]
                compared = (one.model.steady, one.model.balanced)
                also = [Assertion("eventually", claim, -1, one.until_us) for claim in compared]
                played = one.model.play(one, seed=seeds[i % len(seeds)], keep=False, also=also)
                yield pa.RecordBatch.from_pylist([measures(played) | {"settings": label}], schema=schema)

    return spark.range(0, n, 1, tasks).mapInArrow(runs, from_arrow_schema(schema))


def measures(played: Any) -> dict[str, Any]:
    """Give the row of a run; what its model is compared by was judged ``also``."""
    violation = played.run.violation
    found = {
        "seed": played.seed,
        "held": played.held,
        "violation": violation.invariant if violation else None,
        "failed": [f"{o.assertion}: {o.because}" for o in played.outcomes if not o.held],
        "again": played.again,
    }
    if played.scenario.model.name == "pd":
        f = played.numbers
        return found | {
            **{name: f[name] for name in ("peers_even_s", "leaders_even_s", "done_s", "thrash")},
            "moved_gib": f["moved_mib"] / 1024, "peak_mib_s": max(f["peak_mib_s"].values(), default=0.0),
            "operators": sum(f["operators"].values()), "failed_operators": f["failed"],
        }  # fmt: skip
    end, cost, facts = played.run.end, played.measures, played.facts
    steady, balanced = (o.at_us if o.held else None for o in played.also)
    return found | {
        "violated_us": violation.time_us if violation else None,
        "because": violation.because if violation else None,
        "ended": end.because,
        "time_us": end.time_us,
        "steps": end.steps,
        "messages": played.run.messages,
        "overlap_us": cost.overlap_us,
        "gap_us": cost.gap_us,
        "doubled_us": cost.doubled_us,
        "moves": facts.moves,
        "thrash": facts.returns / (facts.moves or 1),
        "balanced_us": balanced,
        "steady_us": steady,
        "converged_us": None if steady is None else max(0, steady - (played.scenario.faults_end_us or 0)),
        "lag_us": None if facts.checkpoint_us is None else end.time_us - facts.checkpoint_us,
    }


MEASURES = (
    "steps", "messages", "overlap_us", "gap_us", "doubled_us", "moves", "thrash", "balanced_us", "steady_us",
    "converged_us", "lag_us",
)  # fmt: skip
"""Columns of :data:`ticdc_lab.simulate.sweep.RUNS` that are numbers to compare; lower is better in each."""


def measured(runs: DataFrame) -> DataFrame:
    """Sum up each measure over all runs: ``measure, seeds, mean, p99, highest``."""
    _require(runs, {"seed", *MEASURES}, "runs")
    doubles = [F.col(m).cast("double").alias(m) for m in MEASURES]
    values = runs.select("seed", *doubles).unpivot("seed", list(MEASURES), "measure", "value")
    return (
        values.where(F.col("value").isNotNull())
        .groupBy("measure")
        .agg(
            F.count(F.lit(1)).alias("seeds"),
            F.round(F.avg("value"), 3).alias("mean"),
            F.expr("percentile(value, 0.99)").alias("p99"),
            F.max("value").alias("highest"),
        )
        .orderBy(F.array_position(F.array(*map(F.lit, MEASURES)), F.col("measure")))
    )


def summary(runs: DataFrame) -> DataFrame:
    """Give one row over :data:`PD_RUNS`: how many held, and the mean and extremes of what is measured."""
    numbers = ("peers_even_s", "leaders_even_s", "done_s", "moved_gib", "peak_mib_s", "operators", "thrash")
    return runs.agg(
        F.count("*").alias("runs"),
        F.sum(F.col("held").cast("int")).alias("held"),
        *(F.round(f(name), 3).alias(f"{name} {f.__name__}") for name in numbers for f in (F.mean, F.min, F.max)),
    )


def failures(runs: DataFrame) -> DataFrame:
    """Count runs and failures by settings: ``settings, runs, violated, failed, first_seed, again``.

    ``failed`` are runs in which an assertion failed or that did not come to their end; ``again`` is the command for the
    lowest seed that was violated or failed.
    """
    _require(runs, {"seed", "settings", "held", "violation", "again"}, "runs")
    bad = ~F.col("held")
    return (
        runs.groupBy("settings")
        .agg(
            F.count(F.lit(1)).alias("runs"),
            F.count_if(F.col("violation").isNotNull()).alias("violated"),
            F.count_if(bad & F.col("violation").isNull()).alias("failed"),
            F.min(F.when(bad, F.col("seed"))).alias("first_seed"),
            F.min_by(F.when(bad, F.col("again")), F.when(bad, F.col("seed"))).alias("again"),
        )
        .orderBy("settings")
    )


def _require(frame: DataFrame, names: set[str], what: str) -> None:
    if missing := names - set(frame.columns):
        raise ContractError.from_missing_and_available(missing, frame.columns, frame=what)
