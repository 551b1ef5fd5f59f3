"""Messages that stand for others: compressed one by one, or put aside under a claim check.

TiCDC compresses what it calls a message: the whole value of canal-json and simple, each value frame of open-protocol,
in lz4's frame format or as one raw snappy block (golden README, `extra/`).
"""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from ticdc_lab.codecs.kernel.arrow import spans
from ticdc_lab.codecs.known import Known

LARGEST = 1 << 29
"""Bytes that one message may be inflated to; a few bytes can claim to be petabytes."""

PACKED = ("open-protocol", "canal-json", "simple")
"""Protocols whose messages TiCDC compresses or puts under a claim check."""

_LZ4 = b"\x04\x22\x4d\x18"
_OPEN, _NEXT = 0x7B, np.isin(np.arange(256), list(b'"}'))
_CLAIM = b"claimCheckLocation"
_OPEN_CLAIM = b'"ccl"'
_DEEPEST = 3

Unpacker = Callable[[pa.RecordBatch], pa.RecordBatch]


def unpacker(protocol: str, known: Known) -> Unpacker:
    """What gives a batch of messages with nothing packed; what cannot be unpacked stays as it is."""
    if protocol not in PACKED:
        return lambda batch: batch
    inflated = _open_inflated if protocol == "open-protocol" else _inflated
    place = None if known.claim_check is None else ClaimCheck(known.claim_check)

    def unpacked(batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = _with_values(batch, _suspects(batch, 8 if protocol == "open-protocol" else 0), inflated)
        if place is None:
            return batch
        claimed = _open_claimed if protocol == "open-protocol" else _claimed
        return claimed(batch, place, inflated)

    return unpacked


def _suspects(batch: pa.RecordBatch, at: int) -> np.ndarray:
    """Messages whose value does not go on like compact JSON at byte ``at``; ``{`` and a space may be a snappy block."""
    data, starts, ends = spans(batch.column("value"))
    found = np.flatnonzero((starts >= 0) & (ends - starts > at + 1))
    first = starts[found] + at
    suspects: np.ndarray = found[(data[first] != _OPEN) | ~_NEXT[data[first + 1]]]
    return suspects


def _with_values(batch: pa.RecordBatch, some: np.ndarray, change: Callable[[bytes], bytes]) -> pa.RecordBatch:
    if not len(some):
        return batch
    values = batch.column("value").to_pylist()
    for m in some.tolist():
        values[m] = change(values[m])
    return _replaced(batch, "value", values)


def _replaced(batch: pa.RecordBatch, name: str, values: list[bytes | None]) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(name), name, pa.array(values, pa.binary()))


def _inflated(value: bytes) -> bytes:
    """What a compressed value holds, or the value itself."""
    if value.startswith(_LZ4):
        try:
            with pa.input_stream(pa.BufferReader(value), compression="lz4") as stream:
                return bytes(stream.read(LARGEST))
        except OSError:
            return value
    size = _varint(value)
    if not 0 < size <= min(LARGEST, 64 * len(value)):
        return value
    try:
        return bytes(pa.decompress(value, decompressed_size=size, codec="snappy", asbytes=True))
    except OSError:
        return value


def _varint(value: bytes) -> int:
    """The length that a raw snappy block begins with, or 0."""
    size = 0
    for i, byte in enumerate(value[:5]):
        size |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return size
    return 0


def _open_inflated(value: bytes) -> bytes:
    """An open-protocol value whose frames are inflated, or the value itself where its frames do not fit."""
    out, p = bytearray(), 0
    while p + 8 <= len(value):
        (n,) = struct.unpack_from(">Q", value, p)
        if n > len(value) - p - 8:
            return value
        frame = _inflated(value[p + 8 : p + 8 + n])
        out += struct.pack(">Q", len(frame)) + frame
        p += 8 + n
    return bytes(out) if p == len(value) else value


class ClaimCheck:
    """The folder that large messages were put in; nothing outside it is read, whatever a message says.

    A location ends in the file's name, before which there may be folders that the reader keeps or not: the longest end
    of it that lies in the folder is not known, so the shortest that does is taken.
    """

    def __init__(self, folder: str) -> None:
        local = "://" not in folder or folder.startswith("file://")
        self._local = Path(folder.removeprefix("file://")).resolve() if local else None
        self._folder = folder.rstrip("/")

    def content(self, location: str) -> bytes | None:
        """What lies in the folder under the end of ``location``; None if nothing can be read there."""
        parts = unquote(location).split("://", 1)[-1].split("/")
        for n in range(1, min(_DEEPEST, len(parts)) + 1):
            end = parts[-n:]
            if any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in end):
                return None
            if (found := self._read("/".join(end))) is not None:
                return found
        return None

    def _read(self, name: str) -> bytes | None:
        try:
            if self._local is not None:
                path = (self._local / name).resolve()
                return path.read_bytes() if path.is_relative_to(self._local) else None
            system, place = fs.FileSystem.from_uri(f"{self._folder}/{name}")
            with system.open_input_file(place) as file:
                return bytes(file.read())
        except (OSError, pa.ArrowInvalid):
            return None


def _envelope(content: bytes) -> tuple[bytes | None, bytes] | None:
    """Key and value in TiCDC's ``{"key":.., "value":..}``; None if the content is no such thing."""
    try:
        found = orjson.loads(content)
        if not isinstance(found, dict) or not found.keys() <= {"key", "value"} or not found.get("value"):
            return None
        return b64decode(found.get("key") or "", validate=True) or None, b64decode(found["value"], validate=True)
    except (ValueError, TypeError):
        return None


def _claimed(batch: pa.RecordBatch, place: ClaimCheck, inflated: Callable[[bytes], bytes]) -> pa.RecordBatch:
    """Values that name a claim check, replaced by what lies there: an envelope or the raw value."""
    mask = pc.fill_null(pc.match_substring(batch.column("value"), pattern=_CLAIM), False)
    some = np.flatnonzero(mask.to_numpy(zero_copy_only=False))

    def fetched(value: bytes) -> bytes:
        content = place.content(_location(value))
        if content is None:
            return value
        enveloped = _envelope(content)
        return inflated(content if enveloped is None else enveloped[1])

    return _with_values(batch, some, fetched)


def _location(value: bytes) -> str:
    try:
        message = orjson.loads(value)
    except ValueError:
        return ""
    if not isinstance(message, dict):
        return ""
    inner = message.get("_tidb")
    place = message.get("claimCheckLocation") or (inner.get("claimCheckLocation") if isinstance(inner, dict) else None)
    return place if isinstance(place, str) else ""


def _open_claimed(batch: pa.RecordBatch, place: ClaimCheck, inflated: Callable[[bytes], bytes]) -> pa.RecordBatch:
    """The same for open-protocol, whose key names the claim check; there is an envelope with both key and value."""
    mask = pc.fill_null(pc.match_substring(batch.column("key"), pattern=_OPEN_CLAIM), False)
    some = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
    if not len(some):
        return batch
    keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
    for m in some.tolist():
        content = place.content(_open_location(keys[m]))
        enveloped = None if content is None else _envelope(content)
        if enveloped is not None and enveloped[0] is not None:
            keys[m], values[m] = enveloped[0], inflated(enveloped[1])
    return _replaced(_replaced(batch, "key", keys), "value", values)


def _open_location(key: bytes) -> str:
    """The location in the first frame of a key; such a message has one row."""
    try:
        found = orjson.loads(key[16:])
    except ValueError:
        return ""
    place = found.get("ccl") if isinstance(found, dict) else None
    return place if isinstance(place, str) else ""
