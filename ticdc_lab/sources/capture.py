"""Capture files: a recorded topic as JSON Lines, plain or gzip (docs/contracts.md)."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs import choice
from ticdc_lab.codecs.decoded import Lines
from ticdc_lab.codecs.kernel import faults
from ticdc_lab.codecs.kernel.arrow import in_form
from ticdc_lab.codecs.known import BOUNDS
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
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.schema import DECODED, MESSAGES
from ticdc_lab.sources.forms import is_base64
from ticdc_lab.sources.json_objects import BadJson, fields_of

isal_zlib: Any = import_module("isal.isal_zlib") if find_spec("isal") else None
"""Inflates in a third of zlib's time, where it is installed."""

LINES_A_BATCH = 10_000
_CHUNK = 1 << 20
_PIECE = 4 << 20
_LOOK = 256 << 10
"""Of a packed file first so much, in which a look at it finds what it needs before kernels are loaded."""
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
_GZIP = b"\x1f\x8b"


def read_fields(lines: pa.Array) -> Lines:
    """Read lines (binary), each a JSON object with key and value in base64, in plain Python or by the kernel."""
    if choice.compiled(choice.CAPTURE, lines):
        from ticdc_lab.codecs.kernel import capture

        return capture.lines_of(lines)
    return read_in_python(lines)


def read_in_python(lines: pa.Array) -> Lines:
    """As :func:`read_fields`, which one reads as the kernel does, fault for fault."""
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


def read_lines(batches: Batches, line: int = BOUNDS.line) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Lines (columns ``line`` binary, ``file``) to messages, and to rejected lines in the form of DECODED."""
    for batch in batches:
        sizes = pc.fill_null(pc.binary_length(batch.column("line")), 0)
        for i in np.flatnonzero(sizes.to_numpy() > line).tolist():
            yield _no_message(), _too_long(batch.column("file")[i].as_py(), sizes[i].as_py(), line)
        some = batch.filter(pc.less_equal(sizes, line))
        yield parse(some.column("line"), some.column("file"))


def read_contents(batches: Batches, line: int = BOUNDS.line) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """As :func:`read_gzip` or :func:`read_whole`, of files that the engine brings (columns ``content``, ``file``)."""
    for batch in batches:
        for content, name in zip(batch.column("content"), batch.column("file").to_pylist(), strict=True):
            with pa.BufferReader(content.as_buffer()) as file:
                yield from (read_gzip if name.endswith(".gz") else read_whole)(file, name, line)


def read_gzip(file: Any, name: str, line: int = BOUNDS.line) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Lines of an open gzip file to messages and rejected lines; a damaged stretch is a rejected line.

    So is a line of more bytes than ``line``, whose length alone is kept.
    """
    yield from _read_stream(_inflated(file), name, line)


def read_whole(file: Any, name: str, line: int = BOUNDS.line) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """As :func:`read_gzip`, of a file whose name does not show whether it is packed."""
    yield from _read_stream(contents(file), name, line)


def _read_stream(
    pieces: Iterator[tuple[bytes, str]], name: str, line: int
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    for lines, fault, too_long in _lines(without_zeros(pieces), line):
        if too_long:
            yield _no_message(), _too_long(name, too_long, line)
        for begin in range(0, len(lines), LINES_A_BATCH):
            some = lines.slice(begin, LINES_A_BATCH)
            yield parse(some, pa.repeat(name, len(some)))
        if fault:
            yield _no_message(), rejected_file(name, class_of(fault), f"{fault}; all lines before were read")


def without_zeros(pieces: Iterator[tuple[bytes, str]]) -> Iterator[tuple[bytes, str]]:
    """Pieces of a file of texts; zero bytes at its end, which a crash leaves for what was not written, are a fault."""
    zeros = 0
    for text, fault in pieces:
        while zeros and (fault or text.strip(b"\0")):
            yield bytes(min(zeros, _PIECE)), ""
            zeros -= min(zeros, _PIECE)
        kept = text if fault else text.rstrip(b"\0")
        zeros += len(text) - len(kept)
        yield kept, fault
    if zeros:
        yield b"", zeroed(zeros)


def zeroed(n: int) -> str:
    """What is wrong with a file whose last bytes are zero."""
    return f"{_ZEROS} {n:,} bytes are zero, as after a crash that kept them from being written"


_ZEROS = "the last"


def class_of(fault: str) -> str:
    """The class of the message that replaces a file's damaged end."""
    return "zeroed-end" if fault.startswith(_ZEROS) else "damaged-gzip"


def read_range(
    file: BinaryIO, name: str, first: int, last: int, line: int = BOUNDS.line
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Lines of an open file that begin from byte ``first`` to before ``last``, to messages and rejected lines."""
    yield from _read_stream(_of_range(file, first, last), name, line)


def _of_range(file: BinaryIO, first: int, last: int) -> Iterator[tuple[bytes, str]]:
    """What the lines hold that begin there, in pieces."""
    if first:
        file.seek(first - 1)
        while (text := file.readline(_CHUNK)) and not text.endswith(b"\n"):
            pass  # the range before reads this line
    text = b"\n"
    while (left := last - file.tell()) > 0 and (text := file.read(min(left, _PIECE))):
        if len(text) == left and not text.endswith(b"\n"):  # its last line in one batch with those before
            text += file.readline(_CHUNK) or (b"" if text.endswith(b"\0") else b"\n")
        yield text, ""
    while text and not text.endswith(b"\n"):
        text = file.readline(_CHUNK)
        yield text, ""


def _lines(pieces: Iterator[tuple[bytes, str]], most: int) -> Iterator[tuple[pa.Array, str, int]]:
    """Lines of a stream in groups, each with what is wrong with the stream behind them (empty for nothing).

    The third is the length of a line beyond ``most`` before them, or 0.
    """
    held, size = list[bytes](), 0
    for text, fault in pieces:
        stop = text.rfind(b"\n") + 1
        if stop:
            if size + text.index(b"\n") > most:
                begin = text.index(b"\n")
                yield _NO_LINES, "", size + begin
                lines = _split(text[begin + 1 :])
            else:
                lines = _split(b"".join((*held, text)))
            sizes = pc.binary_length(lines).to_numpy()
            for i in np.flatnonzero(sizes > most).tolist():
                yield _NO_LINES, "", int(sizes[i])
            yield lines if sizes.max(initial=0) <= most else lines.filter(pa.array(sizes <= most)), "", 0
            held, size = [], 0
        held.append(text[stop:])
        size += len(text) - stop
        if fault:
            yield _NO_LINES, f"{fault}; {size} bytes of an unfinished line are lost" if size else fault, 0
            held, size = [], 0
        elif size > most:
            held = []
    whole = b"".join(held)
    yield pa.array([whole] if whole else [], pa.binary()), "", 0 if size <= most else size


_NO_LINES = pa.array([], pa.binary())


def _split(text: bytes) -> pa.Array:
    """The lines of a text that are whole, without a Python object for each."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    at = pa.array(np.append(0, ends - np.arange(len(ends)))).cast(pa.int32())
    buffers = [None, at.buffers()[1], pa.py_buffer(text.replace(b"\n", b""))]
    return pa.Array.from_buffers(pa.binary(), len(ends), buffers)


def contents(f: Any) -> Iterator[tuple[bytes, str]]:
    """A file's content, in pieces, each with what is wrong with the stream behind it; its first bytes show gzip."""
    raw = f.read(_CHUNK)
    if raw.startswith(_GZIP):
        yield from _inflated(f, raw)
        return
    while raw:
        yield raw, ""
        raw = f.read(_CHUNK)


def _inflated(f: Any, begun: bytes = b"") -> Iterator[tuple[bytes, str]]:
    """What a gzip file of one or more members holds, in pieces, each with what is wrong with the stream behind it.

    Where something is wrong, zlib reads it again: it gives what lies before the damage, names that, and
    continues with the next member.
    """
    given, start = 0, f.tell() - len(begun) if f.seekable() else None
    if isal_zlib is not None and start is not None:
        with suppress(isal_zlib.error):
            for text, fault in _inflated_by(isal_zlib, f, begun):
                if fault:
                    break
                given += len(text)
                yield text, ""
            else:
                return
        f.seek(start)
        begun = b""
    for text, fault in _inflated_by(zlib, f, begun):
        known = min(given, len(text))
        given -= known
        yield text[known:], fault


def _inflated_by(inflater: Any, f: Any, begun: bytes) -> Iterator[tuple[bytes, str]]:
    engine = inflater.decompressobj(wbits=31)
    raw, piece = begun or f.read(_CHUNK), _LOOK
    end, member = len(raw), 0  # bytes of the file that were read, and where in it this member begins
    while raw:
        before = engine.copy() if inflater is zlib else None
        try:
            yield engine.decompress(raw, piece), ""
        except zlib.error as e:
            text, n = _up_to_the_damage(before, raw)
            at = end - len(raw) + n
            raw, end = _from_the_next_member(raw[max(0, member + 1 - end + len(raw)) :], f, end)
            member = end - len(raw)
            there = f"up to byte {member:,}, {MEMBER}" if raw else "up to its end"
            yield text, f"gzip stream is damaged at byte {at:,} ({e}); {max(0, member - at):,} bytes {there}, are lost"
            engine = inflater.decompressobj(wbits=31)
            if not raw:
                return
            continue
        raw, piece = engine.unconsumed_tail, _PIECE
        if engine.eof:
            raw = engine.unused_data.lstrip(b"\0")
            while not raw and (raw := f.read(_CHUNK)):
                end += len(raw)
                raw = raw.lstrip(b"\0")  # members may be padded
            engine, member = (inflater.decompressobj(wbits=31), end - len(raw)) if raw else (engine, member)
        if not raw:
            raw = f.read(_CHUNK)
            end += len(raw)
    if not engine.eof:
        yield engine.flush(), ""
    if not engine.eof:
        yield b"", "gzip stream ends early"


MEMBER = "where another member of it begins"
"""In words of a damaged stretch that something can be read behind."""

_MEMBER = re.compile(rb"\x1f\x8b\x08[\x00-\x1f].{4}[\x00\x02\x04][\x00-\x0d\xff]", re.DOTALL)
"""How a member of a gzip file begins: magic, deflate, flags, time, level and system."""


def _from_the_next_member(raw: bytes, f: Any, end: int) -> tuple[bytes, int]:
    """What lies behind some bytes from the next member on that can be inflated, and how far the file was read."""
    while True:
        more = f.read(_CHUNK)
        end += len(more)
        raw += more
        for found in _MEMBER.finditer(raw):
            with suppress(zlib.error):
                if zlib.decompressobj(wbits=31).decompress(raw[found.start() :], 512):
                    return raw[found.start() :], end
        if not more:
            return b"", end
        raw = raw[-_CHUNK:]


def _up_to_the_damage(engine: Any, raw: bytes) -> tuple[bytes, int]:
    """What can still be read: zlib drops all that a call would have given when it meets an error; and where that is."""
    text = bytearray()
    for i in range(len(raw)):
        try:
            text += engine.decompress(raw[i : i + 1])
        except zlib.error:
            return bytes(text), i
    return bytes(text), len(raw)


def _no_message() -> pa.RecordBatch:
    return parse(pa.array([], pa.binary()), pa.array([], pa.string()))[0]


def _too_long(path: str, found: int, most: int) -> pa.RecordBatch:
    said = f"a line of {found:,} bytes: expected at most {most:,} (bound `line`)"
    return rejected_file(path, "too-large", said)


def rejected_file(path: str, error_class: str, said: str) -> pa.RecordBatch:
    """A row of the quarantine for what is no line that could be kept."""
    columns = {"error_class": pa.array([error_class]), "reason": pa.array([f"{path}: {said}"])}
    return in_form(columns, 1, DECODED)


def parse(lines: pa.Array, files: pa.Array) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Parse capture lines.

    Returns: messages (:data:`ticdc_lab.events.schema.MESSAGES`), and for each line that is none a row in the form of
    :data:`ticdc_lab.events.schema.DECODED` with the line as ``value``. Blank lines count as nothing.
    """
    found = read_fields(lines)
    messages = _messages(found)
    good = np.flatnonzero(found.faults == 0)
    if len(good) < len(lines):
        messages = messages.take(pa.array(good))
    bad = [i for i in np.flatnonzero(found.faults).tolist() if lines[i].as_py().strip()]
    return messages, _rejected(lines, files, bad, found.faults) if bad else _none_rejected()


@cache
def _none_rejected() -> pa.RecordBatch:
    """A quarantine without rows; laying one out for each of many small files would take most of their time."""
    return in_form({}, 0, DECODED)


def _messages(found: Lines) -> pa.RecordBatch:
    stamps = pc.multiply(found.timestamp_ms, 1000)
    columns = {
        "topic": found.topic,
        "partition": found.partition,
        "offset": found.offset,
        "timestamp": stamps.cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC")),
        "key": found.key,
        "value": found.value,
        "headers": _headers(found.headers, found.faults),
    }
    return in_form(columns, len(found.topic), MESSAGES)


def _headers(raw: pa.Array, found: np.ndarray) -> pa.Array:
    """Headers as TiCDC leaves them, none; others are read one by one, and ``found`` marks a line with wrong ones."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    if raw.null_count == len(raw):
        return pa.array([[]], kind).take(pa.array(np.zeros(len(raw), np.int32)))
    out: list[list[dict[str, Any]]] = [[] for _ in raw]
    for i in np.flatnonzero(raw.is_valid()):
        try:
            out[i] = [_header(pair) for pair in json.loads(raw[i].as_py())]
        except (TypeError, ValueError):
            found[i] = faults.BAD_HEADERS << 40
    return pa.array(out, kind)


def _header(pair: Any) -> dict[str, Any]:
    if not isinstance(pair, list):
        raise TypeError
    name, value = pair
    if not isinstance(name, str):
        raise TypeError
    if value is not None and (len(value) % 4 or not value.isascii()):  # b64decode takes padding that is too much
        raise ValueError
    return {"key": name, "value": None if value is None else b64decode(value, validate=True)}


_EXPLAINED = 1_000
"""Lines of a batch whose wrong field is named: each is read once more, in Python."""

_EXPECTED = {
    "topic": ("a text", (str,)), "partition": ("a number", (int,)), "offset": ("a number", (int,)),
    "timestamp": ("milliseconds since 1970 as a number, or null", (int, type(None))),
    "key": ("base64, or null", (str, type(None))), "value": ("base64, or null", (str, type(None))),
    "headers": ("a list of pairs, a name and base64", (bytes, type(None))),
}  # fmt: skip


def what_is_wrong(line: bytes) -> str:
    """The field of a line that makes it no message, what was found there and what was expected; empty for no object."""
    try:
        fields = fields_of(line)
    except BadJson:
        return ""
    missing = [f"`{name}`" for name in ("topic", "partition", "offset") if fields.get(name) is None]
    if missing:
        there = ", ".join(f"`{name}`" for name in list(fields)[:_NAMED]) or "none"
        return f"; no {' and no '.join(missing)}; the fields that are there: {there}"
    for name, (expected, kinds) in _EXPECTED.items():
        value = fields.get(name)
        is_coded = not isinstance(value, str) or name == "topic" or is_base64(value)
        if isinstance(value, bool) or not isinstance(value, kinds) or not is_coded:
            found = value.decode("utf-8", "replace") if isinstance(value, bytes) else repr(value)
            return f"; `{name}` is {found[:_SHOWN]}; expected {expected}"
    return ""


_NAMED, _SHOWN = 12, 60


def _rejected(lines: pa.Array, files: pa.Array, bad: list[int], found: np.ndarray) -> pa.RecordBatch:
    codes = [int(found[i]) >> 40 for i in bad]
    places = [int(found[i]) & (1 << 40) - 1 for i in bad]
    where = pa.array(bad, pa.int64())
    reasons = [
        f"{files[int(i)].as_py()}, a line of {len(lines[int(i)].as_py())} bytes, byte {place}: {faults.FAULTS[code][1]}"
        + (what_is_wrong(lines[int(i)].as_py()) if n < _EXPLAINED else "")
        for n, (i, code, place) in enumerate(zip(bad, codes, places, strict=True))
    ]
    columns = {
        "error_class": pa.array(["bad-capture-line:" + faults.FAULTS[c][0] for c in codes], pa.string()),
        "reason": pa.array(reasons, pa.string()),
        "value": lines.take(where),
    }
    return in_form(columns, len(bad), DECODED)
