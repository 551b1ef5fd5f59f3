"""Rows as lines of JSON in files, as Spark's ``to_json`` writes them; Sail's leaves nulls out and rounds otherwise."""

from __future__ import annotations

import gzip as zipped
from collections.abc import Iterator
from contextlib import ExitStack
from io import BufferedIOBase
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from ticdc_lab.engine.json_text import json_objects
from ticdc_lab.engine.sessions import is_sail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_lines(rows: DataFrame, folder: Path, *, gzip: bool) -> list[Path]:
    """Write a line a row, nulls as ``null``, binary in base64, and give the files in the order of the partitions.

    ``rows``: any frame. ``folder``: of this machine; must not exist. ``gzip``: whether the files are packed; one behind
    the other they can be unpacked too.
    """
    if is_sail(rows.sparkSession):
        folder.mkdir()
        _write_stream(rows.select("*", F.spark_partition_id()), folder, ".json.gz" if gzip else ".json")
    else:
        lines = rows.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value"))
        lines.write.option("compression", "gzip" if gzip else "none").text(folder.as_uri())
    return sorted(folder.glob("part-*"))


def _write_stream(numbered: DataFrame, folder: Path, ending: str) -> None:
    """Write rows as they come, each to the file of its partition (their last column); Sail's own files mix those."""
    with ExitStack() as opened:
        files: dict[int, BufferedIOBase] = {}
        for batch in batches_of(numbered):
            last = batch.num_columns - 1  # by place: a table's column may be called anything
            partitions, rows = batch.column(last).to_pylist(), json_objects(batch.select(range(last)))
            for number, group in groupby(zip(partitions, rows, strict=True), key=itemgetter(0)):
                if number not in files:
                    opening = zipped.GzipFile if ending.endswith(".gz") else open
                    made: BufferedIOBase = opening(folder / f"part-{number:05}{ending}", "xb")
                    files[number] = opened.enter_context(made)
                files[number].write("".join(f"{row}\n" for _, row in group).encode())


def batches_of(frame: Any) -> Iterator[pa.RecordBatch]:
    """Rows of a Connect session as they come; within a partition, and if sorted, in their order."""
    client, plan = frame.sparkSession.client, frame._plan  # toLocalIterator makes each row an object
    for found in client.to_table_as_iterator(plan.to_proto(client), plan.observations):
        if isinstance(found, pa.Table):
            yield from found.to_batches()
