"""What an engine computes at the moment: told apart by a tag, counted in tasks, and stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ticdc_lab.engine.sessions import has_jvm, sail_process_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TAG = "ticdc_lab-"
Tasks = Callable[[], tuple[int, int]]
"""How many tasks are done, and how many there are; none where the engine does not tell."""


@contextmanager
def tagged(spark: SparkSession, tag: str, what: str = "") -> Iterator[None]:
    """Give what this thread starts in the body a tag, by which it is counted and stopped.

    Parameters
    ----------
    spark
        Any session.
    tag
        Begins with :data:`TAG`.
    what
        In words, for Spark's own pages; with them the tag takes the place of those of the work that began this one.
    """
    if not has_jvm(spark):
        spark.addTag(tag)
        try:
            yield
        finally:
            spark.removeTag(tag)
        return
    context = spark.sparkContext
    if what:
        context.setJobGroup(tag, what, interruptOnCancel=True)
        for other in context.getJobTags():
            if other.startswith(TAG):
                context.removeJobTag(other)
    context.setInterruptOnCancel(True)
    context.addJobTag(tag)
    try:
        yield
    finally:
        context.removeJobTag(tag)


def stop_tagged(spark: SparkSession, tag: str) -> None:
    """Stop what runs with a tag; what begins afterwards is not touched."""
    if has_jvm(spark):
        spark.sparkContext.cancelJobsWithTag(tag)
        return
    process = sail_process_of(spark)
    if process is None or process.calls is None:
        spark.interruptTag(tag)
    elif process.calls.has(tag):
        process.calls.cancel(tag, lambda: spark.interruptTag(tag))


@contextmanager
def counted(spark: SparkSession, tag: str | None) -> Iterator[Tasks]:
    """Give what tells the tasks of the jobs that run with a tag; of all without one."""
    if has_jvm(spark):
        yield lambda: _tasks_of_stages(spark, tag)
        return
    latest: dict[str, tuple[int, int]] = {}

    def heard(stages: Sequence[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        if tag is None or tag in spark.getTags():  # called in the thread that waits for the job
            counts = [(s.num_completed_tasks, s.num_tasks) for s in stages or ()]
            latest[operation_id or ""] = (sum(n for n, _ in counts), sum(n for _, n in counts))
            if done:
                latest.pop(operation_id or "")

    spark.registerProgressHandler(heard)  # type: ignore[arg-type]
    try:
        yield lambda: (sum(n for n, _ in latest.values()), sum(n for _, n in latest.values()))
    finally:
        spark.removeProgressHandler(heard)  # type: ignore[arg-type]


def _tasks_of_stages(spark: SparkSession, tag: str | None) -> tuple[int, int]:
    tracker = spark.sparkContext.statusTracker()
    if tag is None:
        ids = set(tracker.getActiveStageIds())
    else:
        jobs = [tracker.getJobInfo(j) for j in tracker.getJobIdsForGroup(tag)]
        ids = {i for job in jobs if job is not None for i in job.stageIds}
    stages = [tracker.getStageInfo(i) for i in sorted(ids)]
    known = [(s.numCompletedTasks, s.numTasks) for s in stages if s is not None]
    return sum(n for n, _ in known), sum(n for _, n in known)
