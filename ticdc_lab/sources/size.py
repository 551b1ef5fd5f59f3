"""How large a source is, told without reading it: bytes, and messages counted where a footer or a broker says them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_LOOKED_AT = 1 << 18
"""Bytes at the beginning of a file from which the length of its lines is told."""
_FILES_LOOKED_INTO = 200


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes as they lie there, and messages; None where nothing cheap tells."""

    bytes: int | None = None
    messages: int | None = None
    how: str = "nothing tells without reading it all"
    """Where the number of messages comes from."""
    is_exact: bool = False


def of_lines(files: Sequence[Path]) -> Size:
    """Capture files: their bytes, and lines as long as the first ones are."""
    n_bytes = sum(f.stat().st_size for f in files)
    seen = [_lines(f) for f in files[:8]]
    lines, read = sum(n for n, _ in seen), sum(n for _, n in seen)
    if not lines:
        return Size(n_bytes)
    whole = read >= n_bytes
    messages = lines if whole else max(lines, round(lines * n_bytes / read))
    return Size(n_bytes, messages, "counted" if whole else f"estimated from the first {lines:,} lines", whole)


def of_parquet(files: Iterable[str | Path], *, n_bytes: int | None = None) -> Size:
    """Parquet files: rows as their footers say; of very many files the first ones stand for all."""
    import pyarrow.parquet as pq

    paths = [Path(f) for f in files]
    sizes = [p.stat().st_size for p in paths]
    looked = paths[:_FILES_LOOKED_INTO]
    rows = sum(pq.read_metadata(p).num_rows for p in looked)
    if len(looked) == len(paths):
        return Size(sum(sizes), rows, "as the footers of the files say", True)
    part = max(1, sum(sizes[: len(looked)]))
    return Size(sum(sizes), round(rows * sum(sizes) / part), f"estimated from the footers of {len(looked)} files")


def _lines(file: Path) -> tuple[int, int]:
    """Lines at the beginning of a file, plain or gzip, and the bytes of the file that hold them."""
    with file.open("rb") as f:
        raw = f.read(_LOOKED_AT)
        whole = not f.read(1)
    if file.suffix != ".gz":
        return raw.count(b"\n") + (whole and not raw.endswith(b"\n") and bool(raw)), len(raw)
    engine = zlib.decompressobj(wbits=31)
    try:
        text = engine.decompress(raw)
    except zlib.error:
        return 0, len(raw)
    return text.count(b"\n"), len(raw) - len(engine.unused_data)
