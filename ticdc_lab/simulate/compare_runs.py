"""Many runs beside each other: what another setting changed, over all seeds; and where two traces part."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.errors import ContractError

MEASURES = (
    "steps", "messages", "overlap_us", "gap_us", "doubled_us", "moves", "thrash", "balanced_us", "steady_us",
    "converged_us", "lag_us",
)  # fmt: skip
"""Columns of :data:`ticdc_lab.simulate.sweep.RUNS` that are numbers to compare; lower is better in each."""


def compare_runs(runs: DataFrame, *, before: str, after: str) -> DataFrame:
    """Say what a change of settings did to each measure, seed by seed.

    Parameters
    ----------
    runs
        :data:`ticdc_lab.simulate.sweep.RUNS`.
    before, after
        Values of its column ``settings``.

    Returns
    -------
    DataFrame
        A row a measure: ``measure``; ``seeds`` that have it with both; ``mean_before``, ``mean_after``,
        ``p99_before``, ``p99_after`` (double); ``lower``, ``same``, ``higher``: the number of seeds in which it came
        to less, the same or more after the change.
    """
    _require(runs, {"seed", "settings", *MEASURES}, "runs")
    pairs = _long(runs, before, "before").join(_long(runs, after, "after"), ["seed", "measure"])
    return (
        pairs.groupBy("measure")
        .agg(
            F.count(F.lit(1)).alias("seeds"),
            *(F.avg(side).alias(f"mean_{side}") for side in ("before", "after")),
            *(F.expr(f"percentile({side}, 0.99)").alias(f"p99_{side}") for side in ("before", "after")),
            F.count_if(F.col("after") < F.col("before")).alias("lower"),
            F.count_if(F.col("after") == F.col("before")).alias("same"),
            F.count_if(F.col("after") > F.col("before")).alias("higher"),
        )
        .orderBy(_place())
    )


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
        .orderBy(_place())
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


def trace_counts(traces: DataFrame) -> DataFrame:
    """Count the rows of each kind and message, by run: ``settings, seed, kind, message, n``."""
    _require(traces, {"seed", "settings", "kind", "message"}, "traces")
    return traces.groupBy("settings", "seed", "kind", "message").agg(F.count(F.lit(1)).alias("n"))


def first_difference(traces: DataFrame, *, before: str, after: str) -> DataFrame:
    """Give, for each seed, the first row in which two traces differ; a seed whose traces are equal has none.

    Returns
    -------
    DataFrame
        ``seed``, ``row``, and ``before`` and ``after``: the rows there as structs, null where a trace has ended.
    """
    _require(traces, {"seed", "settings", "row", "run"}, "traces")
    fields = [c for c in traces.columns if c not in ("seed", "settings", "row", "run")]
    sides = {
        side: traces.where(F.col("settings") == label).select("seed", "row", F.struct(*fields).alias(side))
        for side, label in (("before", before), ("after", after))
    }
    both = sides["before"].join(sides["after"], ["seed", "row"], "full")
    return (
        both.where(~F.col("before").eqNullSafe(F.col("after")))
        .groupBy("seed")
        .agg(F.min_by(F.struct("row", "before", "after"), "row").alias("first"))
        .select("seed", "first.row", "first.before", "first.after")
    )


def _long(runs: DataFrame, settings: str, side: str) -> DataFrame:
    """Rows ``seed, measure, side`` of one of the settings."""
    doubles = [F.col(m).cast("double").alias(m) for m in MEASURES]
    some = runs.where(F.col("settings") == settings).select("seed", *doubles)
    return some.unpivot("seed", list(MEASURES), "measure", side).where(F.col(side).isNotNull())


def _place() -> Column:
    """The order of :data:`MEASURES`."""
    return F.array_position(F.array(*map(F.lit, MEASURES)), F.col("measure"))


def _require(frame: DataFrame, names: set[str], what: str) -> None:
    if missing := names - set(frame.columns):
        raise ContractError.from_missing_and_available(missing, frame.columns, frame=what)
