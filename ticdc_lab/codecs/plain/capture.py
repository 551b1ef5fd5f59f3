"""Lines of a capture file: one JSON object a message, key and value in base64 (docs/contracts.md)."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.plain.json_text import (
    LIST,
    NULL,
    OBJECT,
    OBJECT_END,
    QUOTE,
    JsonFault,
    after_space,
    first_member,
    int64_of,
    next_member,
    read_name,
    read_text,
    value_end,
)

_KINDS = {
    "topic": pa.string(), "partition": pa.int64(), "offset": pa.int64(), "timestamp": pa.int64(),
    "key": pa.binary(), "value": pa.binary(), "headers": pa.string(),
}  # fmt: skip
_YEAR_10000_MS = 253402300800000
_LARGEST = {"partition": (1 << 31) - 1, "offset": (1 << 63) - 1, "timestamp": _YEAR_10000_MS - 1}
_REQUIRED = ("partition", "offset", "topic")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_NO_TIMESTAMP = -1
"""How Kafka writes that there is none."""


class Lines(NamedTuple):
    """Fields of each line, null where they are absent or the line is wrong."""

    # ``topic``, ``headers``: text; ``headers`` as JSON, null where there are none.
    topic: pa.Array
    # ``partition``, ``offset``, ``timestamp_ms``: 64-bit integers.
    partition: pa.Array
    offset: pa.Array
    timestamp_ms: pa.Array
    # ``key``, ``value``: binary.
    key: pa.Array
    value: pa.Array
    headers: pa.Array
    # 0, or what is wrong with the line: a number of :mod:`ticdc_lab.codecs.kernel.faults` above bit 40, and below it
    # the byte of the line.
    faults: np.ndarray


def read_lines(lines: pa.Array) -> Lines:
    """As :func:`ticdc_lab.sources.capture.read_fields`."""
    found: list[dict[str, Any]] = []
    wrong = np.zeros(len(lines), np.int64)
    for i, line in enumerate(lines.to_pylist()):
        try:
            found.append(_fields(line or b""))
        except JsonFault as fault:
            wrong[i] = fault.code << 40 | fault.at
            found.append({})
    columns = {name: pa.array([f.get(name) for f in found], kind) for name, kind in _KINDS.items()}
    return Lines(timestamp_ms=columns.pop("timestamp"), faults=wrong, **columns)


def _fields(b: bytes) -> dict[str, Any]:
    """The fields of one line."""
    p = after_space(b, 0)
    if p >= len(b):
        raise JsonFault(faults.NOT_JSON, 0)
    if b[p] != OBJECT:
        raise JsonFault(faults.BAD_TYPE, p)
    found: dict[str, Any] = {}
    p, more = first_member(b, p, OBJECT_END)
    while more:
        name, p = read_name(b, p)
        q = value_end(b, p)
        if name in _KINDS:
            if name in found:
                raise JsonFault(faults.DUPLICATE_KEY, p)
            found[name] = _value(name, b, p, q)
        p, more = next_member(b, q, OBJECT_END)
    if after_space(b, p) != len(b):
        raise JsonFault(faults.TRAILING_BYTES, p)
    if any(found.get(name) is None for name in _REQUIRED):
        raise JsonFault(faults.MISSING_FIELD, 0)
    return found


def _value(name: str, b: bytes, p: int, q: int) -> Any:
    if b[p] == NULL:
        return None
    if name == "headers":
        if b[p] != LIST:
            raise JsonFault(faults.BAD_TYPE, p)
        return b[p:q].decode() if q - p > 2 else None
    if name in _LARGEST:
        return _number(name, b, p, q)
    if b[p] != QUOTE:
        raise JsonFault(faults.BAD_TYPE, p)
    text, _ = read_text(b, p)
    return text if name == "topic" else _bytes(text, p)


def _number(name: str, b: bytes, p: int, q: int) -> int | None:
    if b[p] == QUOTE:
        raise JsonFault(faults.BAD_TYPE, p)
    number = int64_of(b, p, q)
    if name == "timestamp" and number == _NO_TIMESTAMP:
        return None
    if number is None or not 0 <= number <= _LARGEST[name]:
        raise JsonFault(faults.OUT_OF_RANGE, p)
    return number


def _bytes(text: str, p: int) -> bytes:
    if len(text.encode()) % 4 or not _BASE64.fullmatch(text):
        raise JsonFault(faults.BAD_BASE64, p)
    return b64decode(text)
