"""Reading what pd-ctl printed: whole documents, and lists too long to hold as objects, batch by batch."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson

from ticdc_lab.errors import SourceError

CHUNK = 8 << 20
"""Bytes read at a time."""

_HEAD = 4096
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_OPEN, _CLOSE = (ord("{"), ord("[")), (ord("}"), ord("]"))
_GZIP = b"\x1f\x8b"


def wrong(path: Path, where: str, expected: str, found: object) -> SourceError:
    """Give the error of a document of another form."""
    text = repr(found)[:120]
    hint = "Give the JSON that pd-ctl prints for store, region, config show all and config placement-rules show."
    return SourceError(f"{path}: {where}: expected {expected}, found {text}", hint=hint)


def document(path: Path) -> Any:
    """Read a whole document."""
    with opened(path) as file:
        data = file.read()
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as e:
        raise wrong(path, f"character {e.pos}", "JSON", data[max(0, e.pos - 20) : e.pos + 20]) from e


def listed(path: Path, key: str) -> list[Mapping[str, Any]]:
    """Read the objects of a document: in a list under a key, or a list by itself."""
    found = document(path)
    inner = found.get(key) if isinstance(found, Mapping) else found
    if not isinstance(inner, list) or not all(isinstance(i, Mapping) for i in inner):
        raise wrong(path, key, f'a list of objects under "{key}"', inner)
    return inner


def opened(path: Path) -> IO[bytes]:
    """Open a file, gzipped or not."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == _GZIP
        return gzip.open(path, "rb") if zipped else path.open("rb")  # type: ignore[return-value]
    except OSError as e:
        raise SourceError(f"{path}: cannot be read: {e.strerror}", hint="Give a file that pd-ctl wrote.") from e


def batches(path: Path, key: str) -> Iterator[list[dict[str, Any]]]:
    """Read the objects of a list under a key, or one a line, a few thousand at a time.

    Parameters
    ----------
    path
        ``{"count": .., KEY: [{..}, ..]}``, ``[{..}, ..]`` or objects one after the other.
    key
        The name of the list.
    """
    with opened(path) as file:
        rest = file.read(_HEAD)
        start = re.search(rb'"%s"\s*:\s*' % key.encode(), rest)
        rest = rest[start.end() :] if start else rest
        if rest.startswith(b"null"):
            return
        rest = rest.lstrip().removeprefix(b"[")
        over = False
        while not over:
            more = file.read(CHUNK)
            rest += more
            end, over = _complete(rest)
            yield _decoded(path, rest[:end])
            rest = rest[end:]
            if not more and not over:
                if rest.strip(b" \t\r\n,]"):
                    raise wrong(path, "end of the file", "complete objects", rest[:60])
                return


def _complete(text: bytes) -> tuple[int, bool]:
    """Give where the last complete object ends, and whether the list is over there."""
    plain = np.frombuffer(_ESCAPED.sub(b"xx", text) if b"\\" in text else text, dtype=np.uint8)
    outside = (np.cumsum(plain == ord('"')) & 1) == 0
    opening = ((plain == _OPEN[0]) | (plain == _OPEN[1])) & outside
    closing = ((plain == _CLOSE[0]) | (plain == _CLOSE[1])) & outside
    depth = np.cumsum(opening.astype(np.int8) - closing.astype(np.int8), dtype=np.int32)
    past = np.flatnonzero(depth < 0)
    last = int(past[0]) if len(past) else len(plain)
    ends = np.flatnonzero(closing[:last] & (depth[:last] == 0))
    return (int(ends[-1]) + 1 if len(ends) else 0), bool(len(past))


def _decoded(path: Path, text: bytes) -> list[dict[str, Any]]:
    joined = text.strip(b" \t\r\n,")
    if not joined:
        return []
    try:
        return _loaded(joined)
    except orjson.JSONDecodeError as e:
        raise wrong(path, "a list", "JSON objects", joined[max(0, e.pos - 20) : e.pos + 40]) from e


def _loaded(joined: bytes) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = orjson.loads(b"[" + joined + b"]")
    except orjson.JSONDecodeError:
        found = [orjson.loads(line) for line in joined.splitlines() if line.strip()]
    return found
