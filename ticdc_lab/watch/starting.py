"""A watch on the desk, or with a session of Spark on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ticdc_lab.watch.running import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def watch(source: str, state: str, *, spark: SparkSession | None = None, **options: Any) -> Watch:
    """Watch a topic or a recording in the background.

    Parameters
    ----------
    source, state, options
        As of :class:`ticdc_lab.watch.running.Watch`, or of :class:`ticdc_lab.watch.spark.SparkWatch`.
    spark
        A session of Apache Spark, whose workers read and judge, for topics beyond one core; by default this process
        does, without Java.

    Returns
    -------
    Watch
        It runs: look at its ``view`` and ``findings``, ``wait`` for its end or ``stop`` it.

    Raises
    ------
    SourceError
        Another watch writes the folder, or it holds the state of another source, engine or version.

    Examples
    --------
    >>> found = watch("data/messages_canal-json-tidb_small.jsonl.gz", "state", once=True)  # doctest: +SKIP
    >>> found.wait(), found.view.counts.rows  # doctest: +SKIP
    (True, 2101)
    """
    return prepared(source, state, spark=spark, **options).__enter__()


def prepared(source: str, state: str, *, spark: SparkSession | None = None, **options: Any) -> Watch:
    """The watch of :func:`watch`, before it runs."""
    if spark is None:
        return Watch(source, state, **options)
    from ticdc_lab.watch.spark import SparkWatch

    return SparkWatch(source, state, spark=spark, **options)
