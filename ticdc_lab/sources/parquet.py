"""Parquet files of messages, read by their row groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.errors import SourceError
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.words import first_line

COLUMNS = ("topic", "partition", "offset", "key", "value")
"""What decoding needs of a message."""

ROWS_AT_ONCE = 10_000


def row_groups(files: Iterable[Path]) -> list[tuple[str, int]] | None:
    """Every row group of the files, as path and number; None unless all hold the columns in their contract's types.

    Types that need a conversion, and columns that are names of folders, are left to Spark.
    """
    found = []
    for path in files:
        with whole_parquet(path):
            opened = pq.ParquetFile(path)
        with opened as file:
            have = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
            if any(have.get(name) != kind for name, kind in _types()):
                return None
            found += [(str(path.resolve()), i) for i in range(file.num_row_groups)]
    return found


@contextmanager
def whole_parquet(path: Path | str) -> Iterator[None]:
    """A damaged file becomes a :class:`SourceError`: for an unreadable page Arrow raises without a number."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as fault:
        if getattr(fault, "errno", None) is not None:
            raise
        raise SourceError(
            f"{path} is no whole Parquet file: {first_line(fault)[:200]}",
            hint="Copy the .parquet file again, or take it out of the folder: its writer was stopped, or a copy "
            "was cut short.",
        ) from fault


def read_group(path: str, group: int) -> Iterator[tuple[pa.RecordBatch, None]]:
    """The columns :data:`COLUMNS` of the messages of a row group."""
    with pq.ParquetFile(path) as file:
        # Arrow's own threads would fill pages beside ours, which the system has to clear: a third of the reading
        for messages in file.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=list(COLUMNS), use_threads=False):
            yield messages.select(COLUMNS), None


@cache
def _types() -> tuple[tuple[str, pa.DataType], ...]:
    return tuple((c, arrow_schema(MESSAGES).field(c).type) for c in COLUMNS)
