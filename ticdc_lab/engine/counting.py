"""What one pass over a frame gives beside its rows: how many there were, or the rows for several questions."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4
from weakref import finalize

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.engine.sessions import is_sail

Batches = Iterator[pa.RecordBatch]


def counted(rows: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
    """Give the same rows, and their count.

    ``rows``: any frame. Returns: the frame to use, and a function to call once one action has read all of it;
    the embedded engine's can be called meanwhile. A second action is not counted by Spark, and counted again by the
    embedded engine.
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
        note, n = Path(folder, uuid4().hex), 0
        note.write_text("0")
        for batch in batches:
            n += batch.num_rows
            yield batch
            note.write_text(str(n))  # so that it can be asked meanwhile

    def total() -> int:
        return sum(int(note.read_text() or 0) for note in Path(folder).iterdir())

    finalize(total, shutil.rmtree, folder, ignore_errors=True)
    return rows.mapInArrow(run, rows.schema), total


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Compute a frame once for several questions to it.

    ``rows``: any frame. Spark keeps it in memory. Sail takes ``persist`` and keeps nothing, so that each question would
    compute it again: the embedded engine writes it to a temporary file. Yields: the same rows, to be asked inside the
    context.
    """
    spark = rows.sparkSession
    if not is_sail(spark):
        rows.persist()
        try:
            yield rows
        finally:
            rows.unpersist()
        return
    with tempfile.TemporaryDirectory(prefix="ticdc_lab-kept-") as folder:
        rows.write.parquet(f"{folder}/rows")
        yield spark.read.schema(rows.schema).parquet(f"{folder}/rows")
