"""Progress of Spark jobs as one line on a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

EVERY_S = 0.5


@contextmanager
def shown(spark: SparkSession, what: str) -> Iterator[None]:
    """Show ``what`` and the tasks done so far on stderr while the body runs; nothing unless it is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_poll, args=(spark, what, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        sys.stderr.write("\r\x1b[K")


def _poll(spark: SparkSession, what: str, done: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not done.wait(EVERY_S):
        stages = [tracker.getStageInfo(s) for s in tracker.getActiveStageIds()]
        tasks = [(s.numCompletedTasks, s.numTasks) for s in stages if s is not None]
        finished, whole = sum(t[0] for t in tasks), sum(t[1] for t in tasks)
        sys.stderr.write(f"\r\x1b[K{what}: {finished} of {whole} tasks" if whole else f"\r\x1b[K{what} ...")
        sys.stderr.flush()
