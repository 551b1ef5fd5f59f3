"""Progress of Spark jobs as one line on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ticdc_lab.running import Measured, Progress, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def shown(spark: SparkSession, what: str, *, measured: Measured | None = None) -> Iterator[None]:
    """Show ``what`` and how far it is on stderr while the body runs; nothing unless it is a terminal.

    ``measured`` is as for :func:`ticdc_lab.running.watched`.
    """
    if not sys.stderr.isatty():
        yield
        return
    try:
        with watched(spark, what, _print, measured=measured):
            yield
    finally:
        sys.stderr.write("\r\x1b[K")


def _print(progress: Progress) -> None:
    sys.stderr.write(f"\r\x1b[K{progress.words}")
    sys.stderr.flush()
