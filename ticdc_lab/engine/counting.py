"""How many rows a frame gives while something else is done with it, counted in passing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4
from weakref import finalize

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.engine.sessions import is_sail

Batches = Iterator[pa.RecordBatch]


def counted(rows: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
    """Give the same rows, and what says how many there were.

    Parameters
    ----------
    rows
        Any frame.

    Returns
    -------
    tuple
        The frame to go on with, and a function to call once one action has read all of it. A second action is not
        counted by Spark, and counted again by the embedded engine.
    """
    if is_sail(rows.sparkSession):
        return _by_notes(rows)
    from pyspark.sql import Observation

    seen = Observation()
    return rows.observe(seen, F.count(F.lit(1)).alias("n")), lambda: int(seen.get["n"])


def _by_notes(rows: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
    """Sail does not observe: each task notes in a file what passed through it, as it runs on this machine."""
    folder = tempfile.mkdtemp(prefix="ticdc_lab-counted-")

    def run(batches: Batches) -> Batches:
        n = 0
        for batch in batches:
            n += batch.num_rows
            yield batch
        Path(folder, uuid4().hex).write_text(str(n))

    def total() -> int:
        return sum(int(note.read_text()) for note in Path(folder).iterdir())

    finalize(total, shutil.rmtree, folder, ignore_errors=True)
    return rows.mapInArrow(run, rows.schema), total
