"""Capture files: a recorded topic as JSON Lines, plain or gzip (`design/architecture.md` section 4)."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.kernel import capture, faults
from ticdc_lab.codecs.kernel.arrow import in_form, numbers, spans, texts
from ticdc_lab.codecs.kernel.state import State, fresh_state
from ticdc_lab.schema import DECODED, MESSAGES

LINES_A_BATCH = 10_000
_CHUNK = 1 << 20
_PIECE = 4 << 20

Batches = Iterator[pa.RecordBatch]


def read_lines(batches: Batches) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Lines (columns ``line`` binary, ``file``) to messages, and to rejected lines in the form of DECODED."""
    for batch in batches:
        yield parse(batch.column("line"), batch.column("file"))


def read_gzip(batches: Batches) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Gzip files (column ``file``, a local path) to messages and rejected lines; a damaged end is a rejected line."""
    for batch in batches:
        for path in batch.column("file").to_pylist():
            fault = ""
            for lines, fault in _gzip_lines(Path(path)):  # noqa: B007  the last one counts
                if lines:
                    yield parse(pa.array(lines, pa.binary()), pa.array([path] * len(lines), pa.string()))
            if fault:
                yield parse(pa.array([], pa.binary()), pa.array([], pa.string()))[0], _damaged(path, fault)


def read_range(path: Path, first: int, last: int) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Lines of a plain file that begin from byte ``first`` to before ``last``, to messages and rejected lines."""
    with path.open("rb") as file:
        if first:
            file.seek(first - 1)
            file.readline()  # the rest of a line that the range before reads
        while file.tell() < last:
            lines: list[bytes] = []
            while len(lines) < LINES_A_BATCH and file.tell() < last:
                lines.append(file.readline().rstrip(b"\n"))
            yield parse(pa.array(lines, pa.binary()), pa.array([str(path)] * len(lines), pa.string()))


def _gzip_lines(path: Path) -> Iterator[tuple[list[bytes], str]]:
    """Lines of a gzip file in groups, each with what is wrong with the stream so far (empty for nothing)."""
    rest, fault = b"", ""
    for text, fault in _inflated(path):
        lines = (rest + text).split(b"\n")
        rest = lines.pop()
        for i in range(0, len(lines), LINES_A_BATCH):
            yield lines[i : i + LINES_A_BATCH], fault
    whole = rest if not fault else b""
    yield ([whole] if whole else []), fault and f"{fault}; {len(rest)} bytes of an unfinished line are lost"


def _inflated(path: Path) -> Iterator[tuple[bytes, str]]:
    """What a gzip file of one or more members holds, in pieces, each with what is wrong with the stream so far."""
    engine = zlib.decompressobj(wbits=31)
    with path.open("rb") as f:
        raw = f.read(_CHUNK)
        while raw:
            before = engine.copy()
            try:
                yield engine.decompress(raw, _PIECE), ""
            except zlib.error as e:
                yield _up_to_the_damage(before, raw), f"gzip stream is damaged ({e})"
                return
            raw = engine.unconsumed_tail
            if engine.eof:
                raw = engine.unused_data.lstrip(b"\0")
                while not raw and (raw := f.read(_CHUNK)):
                    raw = raw.lstrip(b"\0")  # members may be padded
                engine = zlib.decompressobj(wbits=31) if raw else engine
            raw = raw or f.read(_CHUNK)
    if not engine.eof:
        yield engine.flush(), ""
    if not engine.eof:
        yield b"", "gzip stream ends early"


def _up_to_the_damage(engine: Any, raw: bytes) -> bytes:
    """What can still be read: zlib drops all that a call would have given when it meets an error."""
    text = bytearray()
    for i in range(len(raw)):
        try:
            text += engine.decompress(raw[i : i + 1])
        except zlib.error:
            break
    return bytes(text)


def _damaged(path: str, fault: str) -> pa.RecordBatch:
    return in_form(
        {
            "error_class": pa.array(["damaged-gzip"]),
            "reason": pa.array([f"{path}: {fault}; all lines before were read"]),
        },
        1,
        DECODED,
    )


def parse(lines: pa.Array, files: pa.Array) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Parse capture lines.

    Returns
    -------
    tuple
        Messages (:data:`ticdc_lab.schema.MESSAGES`), and for each line that is none a row in the form of
        :data:`ticdc_lab.schema.DECODED` with the line as ``value``. Blank lines count as nothing.
    """
    data, starts, ends = spans(lines)
    items, room = len(lines) + 64, len(data) + 4096
    while True:
        st, found = fresh_state(items, room), np.zeros(len(lines), np.int64)
        if capture.read_lines(data, starts, ends, st, found) == faults.OK:
            break
        items, room = 2 * items, 2 * room
    messages = _messages(st, len(lines), found, starts)
    good = np.flatnonzero(found == 0)
    if len(good) < len(lines):
        messages = messages.take(pa.array(good))
    bad = [i for i in np.flatnonzero(found).tolist() if lines[i].as_py().strip()]
    return messages, _rejected(lines, files, bad, found, starts)


def _messages(st: State, n: int, found: np.ndarray, starts: np.ndarray) -> pa.RecordBatch:
    def binary(k: int) -> pa.Array:
        return texts(st, k, n, pa.binary())

    stamps = numbers(st.number[capture.TIMESTAMP] * 1000, st.byte[capture.TIMESTAMP], n)
    columns = {
        "topic": texts(st, capture.TOPIC, n, pa.string()),
        "partition": numbers(st.number[capture.PARTITION], st.byte[capture.PARTITION], n),
        "offset": numbers(st.number[capture.OFFSET], st.byte[capture.OFFSET], n),
        "timestamp": stamps.cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC")),
        "key": binary(capture.KEY),
        "value": binary(capture.VALUE),
        "headers": _headers(texts(st, capture.HEADERS, n, pa.string()), found, starts),
    }
    return in_form(columns, n, MESSAGES)


def _headers(raw: pa.Array, found: np.ndarray, starts: np.ndarray) -> pa.Array:
    """Headers as TiCDC leaves them, none; others are read one by one, and ``found`` marks a line with wrong ones."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    if raw.null_count == len(raw):
        return pa.array([[]], kind).take(pa.array(np.zeros(len(raw), np.int32)))
    out: list[list[dict[str, Any]]] = [[] for _ in raw]
    for i in np.flatnonzero(raw.is_valid()):
        try:
            out[i] = [_header(*pair) for pair in json.loads(raw[i].as_py())]
        except (TypeError, ValueError):
            found[i] = faults.BAD_HEADERS << 40 | int(starts[i])
    return pa.array(out, kind)


def _header(name: str, value: str | None) -> dict[str, Any]:
    if not isinstance(name, str):
        raise TypeError
    return {"key": name, "value": None if value is None else b64decode(value, validate=True)}


def _rejected(
    lines: pa.Array, files: pa.Array, bad: list[int], found: np.ndarray, starts: np.ndarray
) -> pa.RecordBatch:
    codes = [int(found[i]) >> 40 for i in bad]
    places = [max(int(found[i] & (1 << 40) - 1) - int(starts[i]), 0) for i in bad]
    where = pa.array(bad, pa.int64())
    reasons = [
        f"{files[int(i)].as_py()}, a line of {len(lines[int(i)].as_py())} bytes, byte {place}: {faults.FAULTS[code][1]}"
        for i, code, place in zip(bad, codes, places, strict=True)
    ]
    columns = {
        "error_class": pa.array(["bad-capture-line:" + faults.FAULTS[c][0] for c in codes], pa.string()),
        "reason": pa.array(reasons, pa.string()),
        "value": lines.take(where),
    }
    return in_form(columns, len(bad), DECODED)
