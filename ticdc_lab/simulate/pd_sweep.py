"""A scenario of PD with many seeds and settings: a Spark job in which each row is a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.simulate.pd.world.model import PlayedPd
from ticdc_lab.simulate.pd.world.run import future
from ticdc_lab.simulate.scenario import Scenario
from ticdc_lab.simulate.sweep import Changes, Job, runs_of

PD_RUNS = pa.schema(
    [
        ("seed", pa.int64()),
        ("settings", pa.string()),  # what was changed in the file, as the command line writes it; empty for nothing
        ("held", pa.bool_()),  # every assertion held and no invariant was violated
        ("violation", pa.string()),  # the invariant; null without one
        ("failed", pa.list_(pa.string())),  # assertions that failed, with what was there
        ("peers_even_s", pa.float64()),  # since when all stores are even; null if not at the end
        ("leaders_even_s", pa.float64()),
        ("done_s", pa.float64()),  # when the last operator ended; null while some run
        ("moved_gib", pa.float64()),  # data copied between stores
        ("peak_mib_s", pa.float64()),  # the most that one store sent and received in a second
        ("operators", pa.int64()),
        ("failed_operators", pa.int64()),
        ("thrash", pa.float64()),  # the share of moves that took back one of the last minute
        ("again", pa.string()),  # the command that runs it again
    ]
)
"""A row a run."""


def sweep(
    spark: SparkSession, scenario: Scenario, seeds: Sequence[int], settings: Sequence[Changes] = ({},)
) -> DataFrame:
    """Run a scenario of the model ``pd`` as :func:`ticdc_lab.simulate.sweep.sweep` runs the others'.

    Returns: :data:`PD_RUNS`.
    """
    return runs_of(spark, scenario, seeds, settings, _measured, PD_RUNS)


def _measured(jobs: Iterator[Job]) -> Iterator[pa.RecordBatch]:
    for seed, label, scenario in jobs:
        row = measures(scenario.model.play(scenario, seed=seed)) | {"settings": label}
        yield pa.RecordBatch.from_pylist([row], schema=PD_RUNS)


def measures(played: PlayedPd) -> dict[str, Any]:
    """Give the row of a run."""
    f = future(played.run)
    return {
        "seed": played.seed,
        "held": played.held,
        "violation": played.run.violation.invariant if played.run.violation else None,
        "failed": [f"{o.assertion}: {o.because}" for o in played.outcomes if not o.held],
        "peers_even_s": f.peers_even_s,
        "leaders_even_s": f.leaders_even_s,
        "done_s": f.done_s,
        "moved_gib": f.moved_mib / 1024,
        "peak_mib_s": max(f.peak_mib_s.values(), default=0.0),
        "operators": sum(f.operators.values()),
        "failed_operators": f.failed,
        "thrash": f.thrash,
        "again": played.again,
    }


def summary(runs: DataFrame) -> DataFrame:
    """Give one row over :data:`PD_RUNS`: how many held, and the mean and extremes of what is measured."""
    numbers = ("peers_even_s", "leaders_even_s", "done_s", "moved_gib", "peak_mib_s", "operators", "thrash")
    return runs.agg(
        F.count("*").alias("runs"),
        F.sum(F.col("held").cast("int")).alias("held"),
        *(F.round(f(name), 3).alias(f"{name} {f.__name__}") for name in numbers for f in (F.mean, F.min, F.max)),
    )
