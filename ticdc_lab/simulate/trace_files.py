"""A trace as a file: Parquet or JSON Lines without Spark, or a Delta table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_lab.engine.delta_table import replace_table
from ticdc_lab.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH = 10_000


def needs_spark(out: str) -> bool:
    """Whether :func:`write_trace` makes a Delta table of a path."""
    return not out.endswith((".parquet", ".jsonl"))


def write_trace(trace: pa.Table, out: str, spark: SparkSession | None = None) -> None:
    """Write a trace (:data:`ticdc_lab.simulate.trace.TRACE`); what is there is replaced.

    Parameters
    ----------
    trace
        Of one run, or of several.
    out
        ``*.parquet`` and ``*.jsonl``: one file; the same trace gives the same bytes. Anything else: a Delta table, for
        which ``spark`` is needed.

    Raises
    ------
    SourceError
        The folder that ``out`` should lie in does not exist.
    """
    if needs_spark(out):
        assert spark is not None
        replace_table(spark.createDataFrame(trace), out)
        return
    if not Path(out).absolute().parent.is_dir():
        raise SourceError(f"Cannot write {out}: its folder does not exist.", hint="Create it first.")
    if out.endswith(".parquet"):
        pq.write_table(trace, out)
        return
    with Path(out).open("wb") as target:
        for batch in trace.to_batches(max_chunksize=_BATCH):
            for row in batch.to_pylist():
                target.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
