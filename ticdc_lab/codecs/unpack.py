"""Messages in place of others: compressed one by one, or stored under a claim check.

TiCDC compresses what it calls a message: the whole value of canal-json and simple, each value frame of open-protocol,
in lz4's frame format or as one raw snappy block (tests/data/golden/extra); of debezium key and value by themselves.
Values of gzip and zstd, which other producers write, are inflated, too.
"""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from errno import EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from ticdc_lab.codecs import simple, simple_avro
from ticdc_lab.codecs.event import Malformed
from ticdc_lab.codecs.fields import object_of
from ticdc_lab.codecs.kernel.arrow import spans
from ticdc_lab.codecs.known import AT_ONCE, BOUNDS, Known, too_large
from ticdc_lab.codecs.quarantine import TooMuchError, unforeseen
from ticdc_lab.errors import SourceError
from ticdc_lab.errors.redaction import without_secrets
from ticdc_lab.errors.whole_files import local_path

BATCH_LARGEST = 2 * AT_ONCE
"""Bytes that the messages of one batch may be unpacked to together; one message alone may reach its bounds."""

PACKED = ("open-protocol", "canal-json", "simple", "debezium")
"""Protocols whose messages TiCDC compresses or puts under a claim check."""

_STREAMS = {b"\x04\x22\x4d\x18": "lz4", b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_OPEN, _NEXT = 0x7B, np.isin(np.arange(256), list(b'"}'))
_STREAM = np.isin(np.arange(256), [begin[0] for begin in _STREAMS])
_CLAIM = b"claimCheckLocation"
_OPEN_CLAIM = b'"ccl"'
_SAME, _OPEN_SAME = ("database", "table", "type", "es", "commitTs"), ("ts", "scm", "tbl", "t")
"""What the message of a change and its content under a claim check have in common."""
_DEEPEST = 3
_READ_AT_ONCE = 1 << 20
_NO_SUCH_FILE = (ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG, EINVAL)

Unpacker = Callable[[pa.RecordBatch], pa.RecordBatch]


class CannotUnpackError(Exception):
    """Message ``place`` of a batch is beyond the bounds."""

    def __init__(self, place: int, fault: Malformed) -> None:
        super().__init__(fault.reason)
        self.place = place
        self.fault = fault


def parts(unpacked: Unpacker, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch | Malformed, pa.RecordBatch]]:
    """The batch unpacked, and the batch: in halves where it would be too large, and a message beyond the bounds alone.

    Of that the fault comes in place of what it holds.
    """
    try:
        yield unpacked(batch), batch
        return
    except CannotUnpackError as found:
        place, fault = found.place, found.fault
    except (TooMuchError, MemoryError) as found:
        place, fault = batch.num_rows // 2, unforeseen(found)
        if batch.num_rows > 1:
            yield from parts(unpacked, batch.slice(0, place))
            yield from parts(unpacked, batch.slice(place))
            return
    if place:
        yield from parts(unpacked, batch.slice(0, place))
    yield fault, batch.slice(place, 1)
    if place + 1 < batch.num_rows:
        yield from parts(unpacked, batch.slice(place + 1))


def unpacker(protocol: str, known: Known) -> Unpacker:
    """What gives a batch of messages with nothing packed; what cannot be unpacked stays as it is."""
    if protocol not in PACKED:
        return lambda batch: batch
    most = known.bounds.inflated
    inflated = partial(_open_inflated if protocol == "open-protocol" else _inflated, most=most)
    place = None if known.claim_check is None else ClaimCheck(known.claim_check, most)

    def unpacked(batch: pa.RecordBatch) -> pa.RecordBatch:
        suspects = _suspects(batch, "value", 8 if protocol == "open-protocol" else 0)
        batch = _with_texts(batch, "value", suspects, inflated)
        if protocol == "debezium":
            return _with_texts(batch, "key", _suspects(batch, "key", 0), inflated)
        if place is None:
            return batch
        claimed = _open_claimed if protocol == "open-protocol" else _claimed
        return claimed(batch, place, inflated)

    return unpacked


def _suspects(batch: pa.RecordBatch, name: str, at: int) -> np.ndarray:
    """Messages whose value (or key) does not continue like compact JSON at byte ``at``.

    ``{`` and a space may be a snappy block. None begins with a copy of what came before: behind a length of one byte
    comes a tag whose lowest bits are 0.
    """
    data, starts, ends = spans(batch.column(name))
    found = np.flatnonzero((starts >= 0) & (ends - starts > at + 1))
    first, second = data[starts[found] + at], data[starts[found] + at + 1]
    packed = (first != _OPEN) | ~_NEXT[second]
    if at == 0:
        packed &= (first >= 0x80) | (second & 3 == 0) | _STREAM[first]
    suspects: np.ndarray = found[packed]
    return suspects


def _with_texts(batch: pa.RecordBatch, name: str, some: np.ndarray, change: Callable[[bytes], bytes]) -> pa.RecordBatch:
    if not len(some):
        return batch
    values, size = batch.column(name).to_pylist(), 0
    for m in some.tolist():
        try:
            values[m] = change(values[m])
        except Malformed as fault:
            raise CannotUnpackError(m, fault) from None
        size = _bounded(batch, size + len(values[m]))
    return _replaced(batch, name, values)


def _bounded(batch: pa.RecordBatch, size: int) -> int:
    if size > BATCH_LARGEST and batch.num_rows > 1:
        raise TooMuchError
    return size


def _replaced(batch: pa.RecordBatch, name: str, values: list[bytes | None]) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(name), name, pa.array(values, pa.binary()))


def _inflated(value: bytes, *, most: int) -> bytes:
    """What a compressed value holds, or the value itself."""
    for begin, kind in _STREAMS.items():
        if value.startswith(begin):
            return _stream_inflated(value, kind, most)
    size = _varint(value)
    if not 0 < size <= min(most, 64 * len(value)):
        return value
    try:
        return bytes(pa.decompress(value, decompressed_size=size, codec="snappy", asbytes=True))
    except OSError:
        return value


def _stream_inflated(value: bytes, kind: str, most: int) -> bytes:
    found = bytearray()
    try:
        with pa.input_stream(pa.BufferReader(value), compression=kind) as stream:
            while some := stream.read(_READ_AT_ONCE):
                found += some
                if len(found) > most:
                    raise too_large("bytes of the message when inflated, so far", len(found), "inflated", most)
    except OSError:
        return value
    return bytes(found)


def _varint(value: bytes) -> int:
    """The length that a raw snappy block begins with, or 0."""
    size = 0
    for i, byte in enumerate(value[:5]):
        size |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return size
    return 0


def _open_inflated(value: bytes, *, most: int) -> bytes:
    """An open-protocol value whose frames are inflated, or the value itself where its frames do not fit."""
    out, p = bytearray(), 0
    while p + 8 <= len(value):
        (n,) = struct.unpack_from(">Q", value, p)
        if n > len(value) - p - 8:
            return value
        frame = _inflated(value[p + 8 : p + 8 + n], most=most)
        if len(out) + len(frame) > max(most, len(value)):
            raise too_large("bytes of the message when inflated, so far", len(out) + len(frame), "inflated", most)
        out += struct.pack(">Q", len(frame)) + frame
        p += 8 + n
    return bytes(out) if p == len(value) else value


class ClaimCheck:
    """The folder that large messages were put in; nothing outside it is read for any message.

    A location ends in the file's name, before which there may be folders that the reader keeps or not: the longest end
    of it that lies in the folder is not known, so the shortest that does is taken.
    """

    def __init__(self, folder: str, most: int = BOUNDS.inflated) -> None:
        self._most = most
        local = local_path(folder)
        self._local = None if local is None else local.resolve()
        self._folder = folder
        self._remote: tuple[fs.FileSystem, str] | None = None

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
        """The file of a name, None if there is none; a SourceError where nothing of the folder can be read."""
        try:
            return self._read_remote(name) if self._local is None else self._read_local(self._local, name)
        except (ValueError, RuntimeError):  # a loop of links is a RuntimeError
            return None
        except OSError as fault:
            if fault.errno in _NO_SUCH_FILE:
                return None
            raise self._unreachable(f"{type(fault).__name__}: {fault.strerror or str(fault)[:200]}") from None

    def _unreachable(self, said: str) -> SourceError:
        shown = without_secrets(self._folder) if self._local is None else self._folder
        return SourceError(
            f"The folder of claim checks {shown} cannot be read, so large messages look like lost ones: "
            f"{without_secrets(said)}.",
            hint="Load again when it can be reached, or without --claim-check: then they are marked "
            "claim-check-missing.",
        )

    def _read_local(self, folder: Path, name: str) -> bytes | None:
        if not folder.is_dir():
            raise self._unreachable("it is no folder any more")
        path = (folder / name).resolve()
        if not path.is_relative_to(folder) or not path.is_file():
            return None
        self._require_size(path.stat().st_size)
        return path.read_bytes()

    def _read_remote(self, name: str) -> bytes | None:
        """The name is put to the path, not to the URL, which would decode it once more."""
        if self._remote is None:
            system, place = fs.FileSystem.from_uri(self._folder)
            self._remote = system, place.rstrip("/")
        system, place = self._remote
        with system.open_input_file(f"{place}/{name}") as file:
            self._require_size(file.size())
            return bytes(file.read())

    def _require_size(self, found: int) -> None:
        if found > self._most:
            raise too_large("bytes of the file under its claim check", found, "inflated", self._most)


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
    column = batch.column("value")
    named = pc.match_substring(column, pattern=_CLAIM)
    avro = pc.and_(pc.starts_with(column, pattern=simple_avro.FIRST), pc.match_substring(column, pattern=b"/"))
    some = np.flatnonzero(pc.fill_null(pc.or_(named, avro), False).to_numpy(zero_copy_only=False))

    def fetched(value: bytes) -> bytes:
        pointer = _message(value)
        location = pointer.get("claimCheckLocation")
        content = place.content(location) if isinstance(location, str) else None
        if content is None:
            return value
        enveloped = _envelope(content)
        whole = inflated(content if enveloped is None else enveloped[1])
        return whole if _of_one_change(pointer, _message(whole), _SAME) else value

    return _with_texts(batch, "value", some, fetched)


def _message(content: bytes) -> Mapping[str, Any]:
    """A message's fields, canal-json's extension included; none of a damaged one."""
    try:
        message = simple.message_of(content)
    except Malformed:
        return {}
    inner = message.get("_tidb")
    return {**message, **inner} if isinstance(inner, dict) else message


def _of_one_change(pointer: Mapping[str, Any], whole: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    """Whether a file holds the change whose message names it; if not, the row stays as in its message."""
    return bool(whole) and all(pointer.get(name) == whole.get(name) for name in names)


def _open_claimed(batch: pa.RecordBatch, place: ClaimCheck, inflated: Callable[[bytes], bytes]) -> pa.RecordBatch:
    """The same for open-protocol, where each row of a message may name a claim check, in its frame of the key.

    An envelope there has the key and the value of that one row.
    """
    mask = pc.fill_null(pc.match_substring(batch.column("key"), pattern=_OPEN_CLAIM), False)
    some = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
    if not len(some):
        return batch
    keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
    size = 0
    for m in some.tolist():
        heads, rows = _frames(keys[m][8:]), _frames(values[m] or b"")
        if len(heads) != len(rows):
            continue
        try:
            whole = [_open_fetched(head, row, place, inflated) for head, row in zip(heads, rows, strict=True)]
        except Malformed as fault:
            raise CannotUnpackError(m, fault) from None
        keys[m] = keys[m][:8] + b"".join(head for head, _ in whole)
        values[m] = b"".join(row for _, row in whole)
        size = _bounded(batch, size + len(keys[m]) + len(values[m]))
    return _replaced(_replaced(batch, "key", keys), "value", values)


def _frames(data: bytes) -> list[bytes]:
    """The frames of a key behind its version, or of a value: lengths of 8 bytes, and what follows; [] if damaged."""
    found, p = [], 0
    while p + 8 <= len(data):
        (n,) = struct.unpack_from(">Q", data, p)
        if n > len(data) - p - 8:
            return []
        found.append(data[p : p + 8 + n])
        p += 8 + n
    return found if p == len(data) else []


def _open_fetched(
    head: bytes, row: bytes, place: ClaimCheck, inflated: Callable[[bytes], bytes]
) -> tuple[bytes, bytes]:
    """The frames of a row under its claim check; if it names none, or nothing of it lies there, its own."""
    pointer = _open_row(head)
    location = pointer.get("ccl")
    content = place.content(location) if isinstance(location, str) else None
    enveloped = None if content is None else _envelope(content)
    if enveloped is None or enveloped[0] is None:
        return head, row
    heads, rows = _frames(enveloped[0][8:]), _frames(inflated(enveloped[1]))
    if len(heads) != 1 or len(rows) != 1 or not _of_one_change(pointer, _open_row(heads[0]), _OPEN_SAME):
        return head, row
    return heads[0], rows[0]


def _open_row(head: bytes) -> Mapping[str, Any]:
    """What a frame of a key has."""
    try:
        return object_of(head[8:], "key", once=False)  # TiCDC writes ohk twice
    except Malformed:
        return {}
