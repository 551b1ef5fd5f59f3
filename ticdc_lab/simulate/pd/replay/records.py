"""The lines of a file of records."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from ticdc_lab.errors import SourceError

_GZIP = b"\x1f\x8b"


def lines_of(path: Path) -> list[bytes]:
    """Read a file's lines, as they are or gzipped.

    Raises
    ------
    SourceError
        The file cannot be read.
    """
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data.startswith(_GZIP) else data).splitlines()
    except (OSError, EOFError) as e:
        raise SourceError(
            f"{path}: cannot be read: {getattr(e, 'strerror', None) or e}",
            hint="Give a file of records, .jsonl or .jsonl.gz.",
        ) from e


def records_of(path: str | Path) -> Iterator[dict[str, Any]]:
    """Give the records of a file; lines that are none are left out."""
    for line in lines_of(Path(path)):
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(found, dict):
            yield found
