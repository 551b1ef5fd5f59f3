"""Parquet files of messages, read where they are decoded.

A row that Spark reads for Python passes through its rows and a socket first, which costs as much as decoding it. Where
the workers see the files, each task gets the numbers of its row groups instead and reads those itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.schema import MESSAGES

COLUMNS = ("topic", "partition", "offset", "key", "value")
"""What decoding needs of a message."""

ROWS_AT_ONCE = 10_000

Batches = Iterator[pa.RecordBatch]


def row_groups(files: list[Path]) -> list[tuple[str, int]] | None:
    """Every row group of the files, as path and number; None unless all hold the columns in their contract's types.

    Types that need a conversion, and columns that are names of folders, are left to Spark.
    """
    found = []
    for path in files:
        with pq.ParquetFile(path) as file:
            have = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
            if any(have.get(name) != kind for name, kind in _types()):
                return None
            found += [(str(path.resolve()), i) for i in range(file.num_row_groups)]
    return found


def read_groups(batches: Batches) -> Iterator[tuple[pa.RecordBatch, None]]:
    """Row groups (columns ``file``, ``row_group``) to the columns :data:`COLUMNS` of their messages."""
    for batch in batches:
        for path, group in zip(batch["file"].to_pylist(), batch["row_group"].to_pylist(), strict=True):
            with pq.ParquetFile(path) as file:
                for messages in file.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=list(COLUMNS)):
                    yield messages.select(COLUMNS), None


@cache
def _types() -> tuple[tuple[str, pa.DataType], ...]:
    return tuple((c, arrow_schema(MESSAGES).field(c).type) for c in COLUMNS)
