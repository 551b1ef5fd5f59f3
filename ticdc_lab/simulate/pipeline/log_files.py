"""The log of a run as a recorded topic, and its truth, as files."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import IO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_lab.errors import SourceError

_BATCH = 10_000
ENDINGS = (".parquet", ".jsonl", ".jsonl.gz")


def write_messages(messages: pa.Table, out: str) -> None:
    """Write messages as a capture file, which every command reads; what is there is replaced.

    Parameters
    ----------
    messages
        Of :func:`ticdc_lab.simulate.pipeline.log.messages`.
    out
        ``*.parquet``, ``*.jsonl`` or ``*.jsonl.gz``. The same messages give the same bytes.

    Raises
    ------
    SourceError
        Another ending, or the folder does not exist.
    """
    _require_writable(out)
    if out.endswith(".parquet"):
        pq.write_table(messages, out)
        return
    with _opened(out) as target:
        for batch in messages.to_batches(max_chunksize=_BATCH):
            for row in batch.to_pylist():
                for name in ("key", "value"):
                    row[name] = None if row[name] is None else base64.b64encode(row[name]).decode()
                target.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))


def write_events(events: pa.Table, out: str) -> None:
    """Write events in the same forms.

    Raises
    ------
    SourceError
        Another ending, or the folder does not exist.
    """
    _require_writable(out)
    if out.endswith(".parquet"):
        pq.write_table(events, out)
        return
    with _opened(out) as target:
        for batch in events.to_batches(max_chunksize=_BATCH):
            for row in batch.to_pylist():
                target.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))


def _opened(out: str) -> IO[bytes]:
    if out.endswith(".gz"):
        return gzip.GzipFile(out, "wb", mtime=0)  # the moment of writing would make the same log another file
    return Path(out).open("wb")


def _require_writable(out: str) -> None:
    if not out.endswith(ENDINGS):
        raise SourceError(f"Cannot write {out}: expected a name that ends in one of {', '.join(ENDINGS)}.",
                          hint="Name the file so.")  # fmt: skip
    if not Path(out).absolute().parent.is_dir():
        raise SourceError(f"Cannot write {out}: its folder does not exist.", hint="Create it first.")
