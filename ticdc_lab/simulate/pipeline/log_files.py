"""The log of a run as a recorded topic, and its truth, as files."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_lab.errors import SourceError

_BATCH = 10_000
ENDINGS = (".parquet", ".jsonl", ".jsonl.gz")


def write_rows(rows: pa.Table, out: str) -> None:
    """Write messages as a capture file, which every command reads, or events; what is there is replaced.

    Parameters
    ----------
    rows
        Of :func:`ticdc_lab.simulate.pipeline.log.messages`, or the truth of a run. Bytes are base64 in JSON.
    out
        ``*.parquet``, ``*.jsonl`` or ``*.jsonl.gz``. The same rows give the same bytes, whatever the name.

    Raises
    ------
    SourceError
        Another ending, or the folder does not exist.
    """
    require_writable(out)
    if out.endswith(".parquet"):
        pq.write_table(rows, out)
        return
    with _opened(out) as target:
        for batch in rows.to_batches(max_chunksize=_BATCH):
            for row in batch.to_pylist():
                target.write(orjson.dumps(row, _base64, orjson.OPT_APPEND_NEWLINE))


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


@contextmanager
def _opened(out: str) -> Iterator[BinaryIO]:
    """Open a file; neither its name nor the moment of writing is part of what is written."""
    with Path(out).open("wb") as plain:
        if not out.endswith(".gz"):
            yield plain
            return
        with gzip.GzipFile("", "wb", fileobj=plain, mtime=0) as packed:
            yield cast(BinaryIO, packed)


def require_writable(out: str) -> None:
    """Refuse a file that cannot be written, before there is anything to write.

    Raises
    ------
    SourceError
        Another ending, or the folder does not exist.
    """
    if not out.endswith(ENDINGS):
        raise SourceError(f"Cannot write {out}: expected a name that ends in one of {', '.join(ENDINGS)}.",
                          hint="Name the file so.")  # fmt: skip
    if not Path(out).absolute().parent.is_dir():
        raise SourceError(f"Cannot write {out}: its folder does not exist.", hint="Create it first.")
