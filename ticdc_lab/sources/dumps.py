"""Dumps of a topic that other tools made, read by one mechanism: bytes, records, fields, messages.

:mod:`ticdc_lab.sources.forms` describes each form. What cannot be read becomes a row of the quarantine that names its
line, what was found there and what was expected; nothing before or behind it is lost.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from ticdc_lab.codecs.kernel.arrow import in_form
from ticdc_lab.events.schema import DECODED, MESSAGES
from ticdc_lab.sources.capture import MEMBER, class_of, contents, without_zeros
from ticdc_lab.sources.dump_messages import Bad, DumpedMessage, Record, headers_of
from ticdc_lab.sources.dump_records import records_in
from ticdc_lab.sources.forms import Assumed, Form, is_interrupted, is_of_terminal, n_lines, without_status
from ticdc_lab.sources.row_records import of_rows

ROWS_A_BATCH = 10_000
_BATCH_BYTES = 32 << 20
_CHUNK = 1 << 20
Read = Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]
Opened = Callable[[str], AbstractContextManager[BinaryIO]]


def opened_here(file: str) -> BinaryIO:
    """A file of this machine."""
    return Path(file).open("rb")


def read_file(
    file: BinaryIO,
    name: str,
    form: Form,
    assumed: Assumed,
    line: int,
    span: tuple[int, int] | None = None,
    *,
    opened: Opened = opened_here,
) -> Read:
    """As :func:`read_dump`, of an open file, or of what begins in a ``span`` of its bytes.

    ``opened`` opens those beside it that hold the keys or headers of its messages.
    """
    if span is None:
        fault = [""]
        with_others = _with_others if assumed.beside else _records_of
        return _assembled(with_others(file, name, form, assumed, line, fault, opened), name, assumed, fault)
    passed, counted = _begin(file, *span, form.beginning), assumed.lines_before(span[0])
    if counted is None:
        name = f"{name} from byte {span[0]:,} on"
    passed += counted or 0
    if form.is_numbered:
        assumed = replace(assumed, offset=assumed.offset + passed)
    return read_dump(_lines_of(file, span[1], form.beginning), name, form, assumed, line, passed)


def _records_of(
    file: BinaryIO, name: str, form: Form, assumed: Assumed, line: int, fault: list[str], opened: Opened
) -> Iterator[Record]:
    file.seek(0)
    return (
        of_rows(file, form)
        if form.records == "rows"
        else records_in(_text(contents(file), form, fault, 0), form, line, 0)
    )


def _with_others(
    file: BinaryIO, name: str, form: Form, assumed: Assumed, line: int, fault: list[str], opened: Opened
) -> Iterator[Record]:
    """Records with their keys or headers, which are in files of as many records: that is counted first."""
    with ExitStack() as stack:
        n = sum(1 for _ in _records_of(file, name, form, assumed, line, fault, opened))
        roles, streams, wrong = [], [], []
        for other in assumed.beside:
            of, own_fault = stack.enter_context(opened(other.file)), [""]
            found = sum(1 for _ in _records_of(of, other.file, other.form, assumed, line, own_fault, opened))
            if found == n and not own_fault[0]:
                roles.append(other)
                streams.append(_records_of(of, other.file, other.form, assumed, line, own_fault, opened))
            else:
                said = (
                    own_fault[0] or f"it has {found:,} record{'s' * (found != 1)}; expected {n:,}, one for each value"
                )
                wrong.append(Bad("other-number", f"{other.file}: {said}; no message has its {other.role}", b""))
        records = _records_of(file, name, form, assumed, line, fault, opened)
        for record, *others in zip(records, *streams, strict=True):
            bad = next((other for other in others if isinstance(other, Bad)), None)
            if bad is not None:
                record = bad
            for role, other in zip(roles, others, strict=True):
                value = other.value if isinstance(other, DumpedMessage) else None
                if isinstance(record, DumpedMessage):
                    is_key = role.role == "key"
                    record = record._replace(key=value) if is_key else record._replace(headers=headers_of(value))
            yield record
        yield from wrong


def _begin(file: BinaryIO, first: int, last: int, head: re.Pattern[bytes] | None) -> int:
    """Go to the first record that begins from byte ``first`` to before ``last``; how many lines of them are passed."""
    if not first:
        return 0
    file.seek(max(0, first - 1 - _CHUNK))
    begun = file.read(min(first - 1, _CHUNK)) + _rest_of_line(file)
    while is_interrupted(begun):
        begun += _rest_of_line(file)
    passed = 0
    while head is not None and (at := file.tell()) < last and not head.match(text := file.readline(_CHUNK)):
        passed += 1
        if not text.endswith(b"\n"):
            _rest_of_line(file)
    if head is not None and at < last:
        file.seek(at)
    return passed


def _rest_of_line(file: BinaryIO) -> bytes:
    """Go behind the end of a line; its last bytes."""
    last = b""
    while text := file.readline(_CHUNK):
        last = text
        if text.endswith(b"\n"):
            break
    return last


def _lines_of(file: BinaryIO, last: int, head: re.Pattern[bytes] | None) -> Iterator[tuple[bytes, str]]:
    """The lines that begin before byte ``last``, and those behind it that begin no record."""
    if file.tell() >= last:
        return
    text = before = b"\n"
    while (left := last - file.tell()) > 0 and (text := file.read(min(left, _CHUNK))):
        yield text, ""
        before = before[-_CHUNK:] + text
    is_begun = not text.endswith(b"\n") or is_interrupted(before)
    while (is_begun or head is not None) and (text := file.readline(_CHUNK)):
        if not is_begun and head is not None and head.match(text):
            return
        yield text, ""
        before = before[-_CHUNK:] + text
        is_begun = not text.endswith(b"\n") or is_interrupted(before)


def lines_begun(file: BinaryIO, places: Sequence[int], form: Form) -> tuple[tuple[int, int], ...]:
    """How many lines begin from here, where one does, to before each of some places behind it, which are in order."""
    n, at, found, begun = 1, file.tell(), [], b""
    for place in places:
        while at < place - 1 and (text := file.read(min(_CHUNK, place - 1 - at))):
            lines, end, rest = (begun + text).rpartition(b"\n")
            n, at, begun = n + n_lines(lines + end, is_text=form.is_text), at + len(text), rest
        line = begun + file.readline(_CHUNK)
        file.seek(at)
        found.append((place, n - (form.is_text and is_of_terminal(line))))
    return tuple(found)


def read_dump(
    chunks: Iterator[tuple[bytes, str]], name: str, form: Form, assumed: Assumed, line: int, passed: int = 0
) -> Read:
    """Messages of a dump, and rows of the quarantine for what is none.

    ``chunks``: the bytes of the file, each with what is wrong with the stream so far. ``name``: of the file, for
    people. ``form``: what it is. ``assumed``: replaces what its messages omit. ``line``: bytes that a record
    may have. ``passed``: how many lines of the file lie before ``chunks``.
    """
    fault = [""]
    return _assembled(records_in(_text(chunks, form, fault, passed), form, line, passed), name, assumed, fault)


def _assembled(records: Iterator[Record], name: str, assumed: Assumed, fault: list[str]) -> Read:
    """Records in batches, with the places that they do not have.

    ``fault``: what was wrong with their stream at its end, and behind it a sentence for each place in its middle.
    """
    messages: list[DumpedMessage] = []
    bad: list[Bad] = []
    seen: Counter[tuple[str, int]] = Counter()
    size = 0

    def cut() -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        nonlocal size
        batch = _batch(messages), _rejected(bad, name) if bad else None
        messages.clear()
        bad.clear()
        size = 0
        return batch

    for record in records:
        if isinstance(record, DumpedMessage):
            topic = assumed.topic if record.topic is None else record.topic
            partition = assumed.partition if record.partition is None else record.partition
            offset = assumed.offset + seen[topic, partition] if record.offset is None else record.offset
            messages.append(record._replace(topic=topic, partition=partition, offset=offset))
            size += len(record.key or b"") + len(record.value or b"")
            seen[topic, partition] += 1
        else:
            seen[assumed.topic, assumed.partition] += 1
            if record is not None:
                bad.append(record)
                size += len(record.raw)
        if len(messages) + len(bad) >= ROWS_A_BATCH or size >= _BATCH_BYTES:
            yield cut()
    bad += [Bad("zeroed", said, b"") for said in fault[1:]]
    if fault[0]:
        bad.append(Bad(class_of(fault[0]), f"{fault[0]}; all records before were read", b""))
    yield cut()


def _text(chunks: Iterator[tuple[bytes, str]], form: Form, fault: list[str], passed: int) -> Iterator[bytes]:
    """The bytes of a dump, behind so many lines of its file; where they can be binary, as they are."""
    if form.is_measured or form.records not in ("objects", "lines", "pattern"):
        return _bytes(chunks, fault)
    some = _bytes(without_zeros(chunks) if form.is_text else chunks, fault)
    some = _without_runs(some, fault, passed + 1) if form.is_text else some
    return without_status(some, keeps_lines=form.is_numbered, is_text=form.is_text)


_RUN = re.compile(rb"\0{64,}")
"""A disk writes 512 bytes and more at once; lengths in open-protocol have fewer."""


def _without_runs(chunks: Iterator[bytes], fault: list[str], line: int) -> Iterator[bytes]:
    """A text without zero bytes in its middle, and without the rest of their line, whose beginning is elsewhere.

    A crash leaves them for a part of a file that was not written. Each place is added to ``fault``.
    """
    held, zeros = b"", 0

    def note() -> None:
        fault.append(f"line {line:,}: {zeros:,} bytes in its middle are zero, as after a crash")

    for chunk in chunks:
        text, held = held + chunk, b""
        while text:
            if zeros:
                rest = text.lstrip(b"\0")
                zeros += len(text) - len(rest)
                end = rest.find(b"\n")
                text = rest[end:] if end >= 0 else b""
                if end >= 0:
                    note()
                    zeros = 0
                continue
            if run := _RUN.search(text):
                yield text[: run.start()]
                line += text.count(b"\n", 0, run.start())
                text, zeros = text[run.end() :], run.end() - run.start()
                continue
            kept = text.rstrip(b"\0")  # a run may continue in the next chunk
            held, text = text[len(kept) :], kept
            line += text.count(b"\n")
            yield text
            break
    yield held
    if zeros:
        note()


def _bytes(chunks: Iterator[tuple[bytes, str]], fault: list[str]) -> Iterator[bytes]:
    """The bytes alone up to what is wrong; of the first the mark that some editors put there is left out.

    What lies behind it is not read: records may have no other place than their number.
    """
    first = True
    for text, fault[0] in chunks:
        if text:
            yield text.removeprefix(b"\xef\xbb\xbf") if first else text
            first = False
        if fault[0]:
            fault[0] += f"; of a dump nothing behind it is read{_READ_ON}" if MEMBER in fault[0] else ""
            return


_READ_ON = ": unpack the file (gzip -cd), or record the topic"


def _batch(messages: list[DumpedMessage]) -> pa.RecordBatch:
    columns = list(zip(*messages, strict=True)) or [()] * len(DumpedMessage._fields)
    topic, partition, offset, time, key, value, headers = columns
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    pairs = [[{"key": n, "value": v} for n, v in of] for of in headers]
    stamps = pa.array([None if t is None or t >= 253402300800000 else t * 1000 for t in time], pa.int64())
    arrays = {
        "topic": pa.array(topic, pa.string()),
        "partition": pa.array(partition, pa.int64()),
        "offset": pa.array(offset, pa.int64()),
        "timestamp": stamps.cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC")),
        "key": pa.array(key, pa.binary()),
        "value": pa.array(value, pa.binary()),
        "headers": pa.array(pairs, kind),
    }
    return in_form(arrays, len(messages), MESSAGES)


def _rejected(bad: list[Bad], name: str) -> pa.RecordBatch:
    columns = {
        "error_class": pa.array([f"bad-dump-record:{one.code}" for one in bad], pa.string()),
        "reason": pa.array([f"{name}, {one.said}" for one in bad], pa.string()),
        "value": pa.array([one.raw for one in bad], pa.binary()),
    }
    return in_form(columns, len(bad), DECODED)
