"""Dumps of a topic that other tools made, read by one mechanism: bytes, records, fields, messages.

:mod:`ticdc_lab.sources.forms` describes each form. What cannot be read becomes a row of the quarantine that names its
line, what was found there and what was expected; nothing before or behind it is lost.
"""

from __future__ import annotations

import csv
import re
from ast import literal_eval
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson
import pyarrow as pa

from ticdc_lab.codecs.kernel.arrow import in_form
from ticdc_lab.events.schema import DECODED, MESSAGES
from ticdc_lab.sources.capture import contents
from ticdc_lab.sources.forms import Assumed, Coding, Form, is_json, regex_of, role_of, roles_in
from ticdc_lab.sources.json_objects import TOO_LARGE, BadJson, Value, fields_of, objects_in

ROWS_A_BATCH = 10_000
_BATCH_BYTES = 32 << 20
_CHUNK = 1 << 20

Read = Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]


class DumpedMessage(NamedTuple):
    """A message as a dump has it; what the dump does not say is None."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Bad(NamedTuple):
    """A record that is no message: a class of errors, a sentence, and its bytes."""

    code: str
    said: str
    raw: bytes


Opened = Callable[[str], AbstractContextManager[BinaryIO]]


def opened_here(file: str) -> BinaryIO:
    """A file of this machine."""
    return Path(file).open("rb")


class _Unread(ValueError):
    """Why a record is none: its class and a sentence."""

    def __init__(self, code: str, said: str) -> None:
        super().__init__(said)
        self.code = code


Record = DumpedMessage | Bad | None
"""None stands for a record that holds nothing, which counts where the order of records does."""


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
    return _of_rows(file, form) if form.records == "rows" else _records(_bytes(contents(file), fault), form, line, 0)


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
                    record = record._replace(key=value) if is_key else record._replace(headers=_headers(value))
            yield record
        yield from wrong


def _begin(file: BinaryIO, first: int, last: int, head: re.Pattern[bytes] | None) -> int:
    """Go to the first record that begins from byte ``first`` to before ``last``; how many lines of them are passed."""
    if not first:
        return 0
    file.seek(first - 1)
    _rest_of_line(file)
    passed = 0
    while head is not None and (at := file.tell()) < last and not head.match(text := file.readline(_CHUNK)):
        passed += 1
        if not text.endswith(b"\n"):
            _rest_of_line(file)
    if head is not None and at < last:
        file.seek(at)
    return passed


def _rest_of_line(file: BinaryIO) -> None:
    while (text := file.readline(_CHUNK)) and not text.endswith(b"\n"):
        pass


def _lines_of(file: BinaryIO, last: int, head: re.Pattern[bytes] | None) -> Iterator[tuple[bytes, str]]:
    """The lines that begin before byte ``last``, and those behind it that begin no record."""
    if file.tell() >= last:
        return
    text = b"\n"
    while (left := last - file.tell()) > 0 and (text := file.read(min(left, _CHUNK))):
        yield text, ""
    is_begun = not text.endswith(b"\n")
    while (is_begun or head is not None) and (text := file.readline(_CHUNK)):
        if not is_begun and head is not None and head.match(text):
            return
        yield text, ""
        is_begun = not text.endswith(b"\n")


def lines_begun(file: BinaryIO, places: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """How many lines begin before each of some places in an open file, which are in order and not 0."""
    n, at, found = 1, 0, []
    for place in places:
        while at < place - 1 and (text := file.read(min(_CHUNK, place - 1 - at))):
            n, at = n + text.count(b"\n"), at + len(text)
        found.append((place, n))
    return tuple(found)


def read_dump(
    chunks: Iterator[tuple[bytes, str]], name: str, form: Form, assumed: Assumed, line: int, passed: int = 0
) -> Read:
    """Messages of a dump, and rows of the quarantine for what is none.

    Parameters
    ----------
    chunks
        The bytes of the file, each with what is wrong with the stream so far.
    name
        Of the file, for people.
    form
        What it is.
    assumed
        Stands for what its messages do not say.
    line
        Bytes that a record may have.
    passed
        How many lines of the file lie before ``chunks``.
    """
    fault = [""]
    return _assembled(_records(_bytes(chunks, fault), form, line, passed), name, assumed, fault)


def _assembled(records: Iterator[Record], name: str, assumed: Assumed, fault: list[str]) -> Read:
    """Records in batches, with the places that they do not say; ``fault`` is what was wrong with their stream."""
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
    if fault[0]:
        bad.append(Bad("damaged-gzip", f"{fault[0]}; all records before were read", b""))
    yield cut()


def _bytes(chunks: Iterator[tuple[bytes, str]], fault: list[str]) -> Iterator[bytes]:
    """The bytes alone; of the first the mark that some editors put there is left out."""
    first = True
    for text, fault[0] in chunks:
        if text:
            yield text.removeprefix(b"\xef\xbb\xbf") if first else text
            first = False


def _records(chunks: Iterator[bytes], form: Form, bound: int, passed: int) -> Iterator[Record]:
    """Records of a stream, before which so many lines of its file were passed."""
    if form.records == "none":
        return iter(())
    if form.records == "objects":
        return _of_objects(chunks, form, bound, passed)
    if form.records == "csv":
        return _of_csv(chunks, form, bound)
    if form.is_measured:
        return _measured(chunks, form, bound)
    if form.records == "pattern":
        return _patterned(chunks, form, bound, passed)
    return _of_lines(chunks, form, bound, passed)


# JSON objects.

_EXPECTED = "a number of partition and offset, and a value"


def _of_objects(chunks: Iterator[bytes], form: Form, bound: int, passed: int) -> Iterator[Record]:
    one_a_line = form.separator == b"\n"
    cut = objects_in(chunks, bound=bound, one_a_line=one_a_line, opening=form.opening, first_line=passed + 1)
    for text, line, fault, size in cut:
        if fault:
            most = f"; expected at most {bound:,} (bound `line`)" if fault == TOO_LARGE else ""
            yield Bad(fault, f"line {line}: {size:,} bytes are no whole JSON object{most}", text)
            continue
        try:
            if form.parts:
                _require_own_bytes(None, text, form)
                yield DumpedMessage(value=text)
            else:
                yield _message_of(fields_of(text), form)
        except BadJson as error:
            yield Bad("bad-json", f"line {line}: {error}", text)
        except _Unread as error:
            yield Bad(error.code, f"line {line}: {error}", text)


def _message_of(fields: Mapping[str, Value], form: Form) -> DumpedMessage:
    roles = roles_in(fields)
    own = {role: fields[name] for role, name in roles.items()}
    if "value" not in own and fields.get("value_size") is not None:  # rpk --meta-only
        raise _Unread("no-value", "`value_size` without `value`: rpk left the values out (--meta-only)")
    for role, name in (("key", "keySchemaId"), ("value", "valueSchemaId")):  # AKHQ
        if fields.get(name) is not None and own.get(role) is not None:  # type: ignore[call-overload]
            raise _Unread("decoded-by-tool", f"`{name}`: AKHQ wrote the {role} decoded with a schema, not its bytes")
    for role in ("partition", "offset"):
        if role not in own and role not in form.lost:
            raise _Unread("missing-field", f"no `{role}`; it has {_named(fields)}")
    if not {"value", "key", "offset"} & own.keys():
        raise _Unread("missing-field", f"no `value`; it has {_named(fields)}")
    key = _content(own.get("key"), roles.get("key", ""), form)
    value = _content(own.get("value"), roles.get("value", ""), form)
    _require_own_bytes(key, value, form)
    return DumpedMessage(
        _topic(own.get("topic")),
        _number(own.get("partition"), roles.get("partition", ""), (1 << 31) - 1),
        _number(own.get("offset"), roles.get("offset", ""), (1 << 63) - 1),
        timestamp_ms(own.get("timestamp")),
        key,
        value,
        _headers(own.get("headers")),
    )


_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_OPEN_PROTOCOL = b"\0\0\0\0\0\0\0\1"


def _require_own_bytes(key: bytes | None, value: bytes | None, form: Form) -> None:
    if form.is_utf8 and is_reencoded(key or b"", value or b"", is_latin=form.is_latin):
        raise _Unread("re-encoded", "an editor or a tool saved the dump as UTF-8, which replaced bytes of this message")


def is_reencoded(key: bytes, value: bytes, *, is_latin: bool = False) -> bool:
    """Whether bytes of a binary message were replaced where its dump was saved as UTF-8.

    What is no UTF-8 becomes U+FFFD, or, if it was taken for Latin-1, two bytes; that all of the dump was, ``is_latin``
    states. Of open-protocol lengths decide, as a text in it may hold any character.
    """
    if not _BINARY.search(key + value):
        return False
    if not key.startswith(_OPEN_PROTOCOL):
        return b"\xef\xbf\xbd" in key + value or (is_latin and not (key + value).isascii())
    return not _is_framed(value) and (b"\xef\xbf\xbd" in value or any(_is_framed(undone) for undone in _undone(value)))


def _is_framed(value: bytes) -> bool:
    at = 0
    while at + 8 <= len(value):
        at += 8 + int.from_bytes(value[at : at + 8], "big")
    return at == len(value)


def _undone(value: bytes) -> Iterator[bytes]:
    """What it was if it was taken for Latin-1, or for what Windows takes for it."""
    for encoding in ("latin-1", "cp1252"):
        with suppress(UnicodeError):
            yield value.decode().encode(encoding)


def _named(fields: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in list(fields)[:12]) or "no field"


def _topic(value: Value) -> str | None:
    if isinstance(value, bytes):  # AKHQ: an object
        told = orjson.loads(value)
        value = told.get("name") if isinstance(told, dict) else None
    return value.encode("latin-1").decode("utf-8", "replace") if isinstance(value, str) else None


def _number(value: Value, name: str, most: int) -> int | None:
    if isinstance(value, str) and (found := re.fullmatch(r"(\d+)(?:\.0+)?", value)):
        value = int(found[1])
    if isinstance(value, float) and value.is_integer():  # as pandas has integers beside nulls
        value = int(value)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise _Unread("bad-field", f"`{name}` is {_shown(value)}; expected a number from 0 to {most}")
    return value


def _shown(value: Value) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}.."


def _content(value: Value, name: str, form: Form) -> bytes | None:
    """Key or value as bytes: a text as it is, an object as its JSON."""
    coding = form.coding
    if isinstance(value, bytes) and (b'"isPayloadNull"' in value or b'"encoding"' in value):
        value, coding = _payload(value, name, coding)
    if value is None:
        return None
    if isinstance(value, bytes):
        return _of_numbers(value)
    if not isinstance(value, str):
        return orjson.dumps(value)
    text = value.encode("latin-1")
    if coding == "text":
        return text
    try:
        return b64decode(text, validate=True) if coding == "base64" else bytes(_DECODED[coding](value))
    except (ValueError, SyntaxError):
        expected = "b'..' of Python" if coding == "python" else coding
        said = f"`{name}` is {_shown(value)}; expected {expected}, as other messages have"
        raise _Unread(f"bad-{coding}", said) from None


_DECODED: Mapping[Coding, Callable[[str], bytes]] = {"hex": bytes.fromhex, "python": literal_eval}

_NUMBERS = re.compile(rb'(?:\{\s*"type"\s*:\s*"Buffer"\s*,\s*"data"\s*:\s*)?(\[\s*-?\d[-\d,\s]*\])\s*\}?')


def _of_numbers(value: bytes) -> bytes:
    """The bytes of a list of numbers, as a Buffer of JavaScript has them; other JSON as it is."""
    found = _NUMBERS.fullmatch(value)
    numbers = orjson.loads(found[1]) if found else []
    return bytes(n & 0xFF for n in numbers) if numbers and all(-128 <= n <= 255 for n in numbers) else value


_AS_IT_IS = ("json", "text", "utf8WithControlChars", "xml", "null", "")


def _payload(value: bytes, name: str, coding: Coding) -> tuple[Value, Coding]:
    """What Redpanda Console wraps a key or a value into, and how it is written there."""
    try:
        wrapper = fields_of(value)
    except BadJson:
        return value, coding
    if not {"isPayloadNull", "encoding"} & wrapper.keys() or not {"payload", "isPayloadNull"} & wrapper.keys():
        return value, coding
    if wrapper.get("isPayloadNull") is True:
        return None, "text"
    if raw := wrapper.get("rawPayload"):
        return raw, "base64"
    if (encoding := wrapper.get("encoding", "")) not in _AS_IT_IS:
        raise _Unread(
            "decoded-by-tool",
            f"`{name}` is {_shown(encoding)} that Redpanda Console decoded; save the messages with raw data",
        )
    return wrapper.get("payload"), "text"


_DATE_OF_JS = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2} \d\d \d{4} [\d:]{8} GMT[+-]\d{4})")
"""Kafka UI writes `Mon Feb 02 2026 02:40:00 GMT+0000 (Coordinated Universal Time)` into CSV."""


def timestamp_ms(value: Value) -> int | None:
    """Milliseconds since 1970 of numbers of seconds to nanoseconds, or of ISO 8601, in UTC if it names no zone."""
    if isinstance(value, str) and re.fullmatch(r"\d+", value):
        value = int(value)
    if isinstance(value, float) and 0 < value < 1e11:
        return round(value * 1000)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < 0:
            return None
        for least, over in ((1e17, 1_000_000), (1e14, 1_000)):
            if value >= least:
                return int(value) // over
        return int(value) if value >= 1e11 or value == 0 else int(value) * 1000
    if isinstance(value, bytes) and (pair := re.fullmatch(rb"\[\d+,\s*(\d+)\]", value)):  # confluent-kafka
        return timestamp_ms(int(pair[1]))
    if isinstance(value, str):
        try:
            if found := _DATE_OF_JS.match(value):
                return round(datetime.strptime(found[1], "%b %d %Y %H:%M:%S GMT%z").timestamp() * 1000)
            at = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
        return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    return None


def _headers(value: Value) -> tuple[tuple[str, bytes | None], ...]:
    """Headers as a map, a flat list, or a list of pairs or objects; what is in no such form is left out."""
    if not isinstance(value, bytes):
        return ()
    told = orjson.loads(value.decode("latin-1"))
    if isinstance(told, dict) and list(told) == ["headers"] and isinstance(told["headers"], list):  # Kafka Connect
        told = told["headers"]
    if isinstance(told, dict):
        return tuple((n, _header(v)) for n, v in told.items())
    if told and all(isinstance(one, str) or one is None for one in told) and len(told) % 2 == 0:
        return tuple((str(n), _header(v)) for n, v in zip(told[::2], told[1::2], strict=True))
    found = []
    for one in told:
        if isinstance(one, dict) and isinstance(one.get("key"), str):
            found.append((one["key"], _header(one.get("value"))))
        elif isinstance(one, list) and len(one) == 2 and isinstance(one[0], str):
            found.append((one[0], _header(one[1])))
    return tuple(found)


def _header(value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode("latin-1", "replace") if isinstance(value, str) else orjson.dumps(value)


# Lines: a value each.


def lines_in(chunks: Iterator[bytes], separator: bytes, bound: int) -> Iterator[tuple[bytes, int]]:
    """Records between separators; of one longer than ``bound`` no bytes, but its length."""
    held, size = list[bytes](), 0
    for chunk in chunks:
        if len(separator) > 1 and held:  # a separator may lie across two chunks
            chunk = held.pop() + chunk
            size -= len(chunk)
            size = max(size, 0)
        first, *others = chunk.split(separator)
        for text in others:
            whole = size + len(first)
            yield (b"".join((*held, first)), 0) if whole <= bound else (b"", whole)
            held, size, first = [], 0, text
        held.append(first)
        size += len(first)
        if size > bound:
            held = [b""]
    rest = b"".join(held)
    if rest or size > bound:
        yield (rest, 0) if size <= bound else (b"", size)


def _too_large(found: int, bound: int, line: int) -> Bad:
    return Bad("too-large", f"line {line}: {found:,} bytes: expected at most {bound:,} (bound `line`)", b"")


def _of_lines(chunks: Iterator[bytes], form: Form, bound: int, passed: int) -> Iterator[Record]:
    for line, (text, too_long) in enumerate(lines_in(chunks, form.separator, bound), start=passed + 1):
        if too_long:
            yield _too_large(too_long, bound, line)
            continue
        text = text.strip(b"\r")
        if not text.strip():
            yield None
        elif text == form.null:
            yield DumpedMessage()
        else:
            try:
                value = _value_of_line(text, form)
                _require_own_bytes(None, value, form)
                yield DumpedMessage(value=value)
            except _Unread as error:
                yield Bad(error.code, f"line {line}: {error}", text)


def _value_of_line(text: bytes, form: Form) -> bytes | None:
    if text[:1] == text[-1:] == b'"' and len(text) > 1:
        try:
            return _content(fields_of(b'{"value":' + text + b"}")["value"], "value", form)
        except BadJson:
            raise _Unread("bad-json", "a text in quotes that is no JSON") from None
    return text if form.coding == "text" else _content(text.decode("latin-1"), "value", form)


# Patterns: fields with text between them.


def _patterned(chunks: Iterator[bytes], form: Form, bound: int, passed: int) -> Iterator[Record]:
    """Records that begin as the pattern does and go on until the next one does: a value may hold line feeds."""
    whole = re.compile(regex_of(form.body), re.DOTALL)
    head = form.beginning
    inside = head if len([p for p in form.head if isinstance(p, str)]) > 1 else None
    held: list[bytes] = []
    begun = size = 0

    def flush() -> Iterator[Record]:
        if held:
            yield from _by_pattern(form.separator.join(held), begun, whole, inside, form)

    for line, (text, too_long) in enumerate(lines_in(chunks, form.separator, bound), start=passed + 1):
        if too_long:
            yield from flush()
            held = []
            yield _too_large(too_long, bound, line)
        elif head is None or head.match(text) or not held or size + len(text) > bound or _is_begun(text, form, held):
            yield from flush()
            held, begun, size = [text], line, len(text)
        else:
            held.append(text)
            size += len(text)
    yield from flush()


_BEGINNINGS = (b"CreateTime:", b"LogAppendTime:", b"NO_TIMESTAMP")


def _is_begun(text: bytes, form: Form, held: list[bytes]) -> bool:
    """Whether what does not begin as a record is one all the same, of which the rest was cut."""
    first = form.parts[0]
    begins = (first,) if isinstance(first, bytes) else _BEGINNINGS if first == "console_time" else ()
    if any(text.startswith(b) or b.startswith(text) for b in begins if text):
        return True
    return len(held) == 1 and is_json(held[0][held[0].find(b"{") :])


def _by_pattern(
    text: bytes, line: int, whole: re.Pattern[bytes], inside: re.Pattern[bytes] | None, form: Form
) -> Iterator[Record]:
    found = whole.fullmatch(text)
    value = text if found is None else found.groupdict().get("value") or b""
    head = form.beginning.match(text) if inside and form.beginning else None
    is_whole = is_json(value) or (len(value) > 8 and _is_framed(value))
    other = inside.search(text, head.end() if head else 1) if inside and not is_whole else None
    if other is not None:  # a dump was cut, and another one follows it in the same line
        yield Bad(
            "unfinished", f"line {line}: a record of {other.start():,} bytes ends in the middle", text[: other.start()]
        )
        yield from _by_pattern(text[other.start() :], line, whole, inside, form)
    elif found is None:
        yield Bad("no-record", f"line {line}: begins with {_beginning(text)}; expected {_pattern_words(form)}", text)
    else:
        try:
            yield _of_groups(found.groupdict(), form)
        except _Unread as error:
            yield Bad(error.code, f"line {line}: {error}", text)


def _beginning(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", "backslashreplace"))


def _pattern_words(form: Form) -> str:
    return "".join(
        p.decode("utf-8", "backslashreplace") if isinstance(p, bytes) else f"<{p}>" for p in form.parts
    ).strip()


def _of_groups(groups: Mapping[str, bytes | None], form: Form) -> DumpedMessage:
    key, value = groups.get("key"), groups.get("value")
    if key is not None and value is not None and form.null is not None and form.between in value and not is_json(value):
        key, value = _split_again(key + form.between + value, form.between)
    _require_own_bytes(key, value, form)
    time = groups.get("console_time") or groups.get("timestamp")
    number = re.search(rb"-?\d+", time)[0] if time and re.search(rb"-?\d+", time) else None  # type: ignore[index]
    return DumpedMessage(
        None if groups.get("topic") is None else _topic(groups["topic"].decode("latin-1")),  # type: ignore[union-attr]
        _number(_text(groups.get("partition")), "partition", (1 << 31) - 1),
        _number(_text(groups.get("offset")), "offset", (1 << 63) - 1),
        None if number is None else timestamp_ms(_text(number)),
        _nothing(key, form),
        _nothing(value, form),
        _listed(groups.get("headers"), form),
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _nothing(value: bytes | None, form: Form) -> bytes | None:
    """None for the word of a form for null; where it has none, for an empty text."""
    return None if value is None or value == (form.null or b"") else value


def _split_again(text: bytes, between: bytes) -> tuple[bytes, bytes]:
    """Key and value where either may hold what separates them: only one place may make sense."""
    fields = text.split(between)
    splits = [(between.join(fields[:i]), between.join(fields[i:])) for i in range(1, len(fields))]
    whole = [s for s in splits if is_json(s[1]) or s[1] == b"null"]
    framed = [s for s in splits if s[1][:1] == b"\0"]  # as open-protocol and Confluent's registry begin
    for found in (whole, framed):
        if len(found) == 1:
            return found[0]
    raise _Unread(
        "ambiguous-separator",
        f"{len(fields) - 1} separators {between!r} where 1 was expected, so where the key ends cannot be determined",
    )


def _listed(value: bytes | None, form: Form) -> tuple[tuple[str, bytes | None], ...]:
    if not value or value == b"NO_HEADERS":
        return ()
    sign = b":" if form.null is not None else b"="
    pairs = [one.partition(sign) for one in value.split(form.pairs)]
    return tuple((n.decode("utf-8", "replace"), v) for n, found, v in pairs if found)


def _measured(chunks: Iterator[bytes], form: Form, bound: int) -> Iterator[Record]:
    """Records whose texts have their lengths before them: any bytes may be in them."""
    steps = list(_steps(form.parts))
    first = steps[0][0]
    strong = any(isinstance(p, bytes) for p in form.head)
    buffer, at, ended = b"", 0, False
    line_feed = 1
    while True:
        if len(buffer) - at < _CHUNK and not ended:
            more = next(chunks, None)
            ended = more is None
            buffer, at = buffer[at:] + (more or b""), 0
            continue
        if at >= len(buffer):
            return
        found = _one_measured(buffer, at, steps, bound)
        if found is None and not ended and len(buffer) - at <= bound:
            more = next(chunks, None)
            ended = more is None
            buffer, at = buffer[at:] + (more or b""), 0
            continue
        if found is not None:
            groups, end = found
            follows = end >= len(buffer) or not strong or first.match(buffer, end) is not None
            other = None if follows else first.search(buffer, at + 1, end)
            if other is None:
                try:
                    yield _of_groups(groups, form)
                except _Unread as error:
                    yield Bad(error.code, f"line {line_feed}: {error}", buffer[at:end])
                line_feed += buffer.count(b"\n", at, end)
                at = end
                continue
        else:
            other = first.search(buffer, at + 1) if strong else None
        end = other.start() if other else len(buffer)
        said = (
            f"line {line_feed}: begins with {_beginning(buffer[at:])}, and is no whole record of {_pattern_words(form)}"
        )
        yield Bad("unfinished", said, buffer[at : min(end, at + _CHUNK)])
        line_feed += buffer.count(b"\n", at, end)
        at = end


_Step = tuple[re.Pattern[bytes], str]


def _steps(parts: tuple[str | bytes, ...]) -> Iterator[_Step]:
    """What to match, and which field of a known length follows it."""
    waiting: list[str | bytes] = []
    for part in parts:
        known = {"key": ("key_length",), "value": ("value_length", "value_length4")}.get(str(part), ())
        if isinstance(part, str) and any(length in parts[: parts.index(part)] for length in known):
            yield re.compile(regex_of(waiting), re.DOTALL), part
            waiting = []
        else:
            waiting.append(part)
    if waiting:
        yield re.compile(regex_of(waiting), re.DOTALL), ""


def _one_measured(buffer: bytes, at: int, steps: list[_Step], bound: int) -> tuple[dict[str, bytes | None], int] | None:
    groups: dict[str, bytes | None] = {}
    for regex, field in steps:
        found = regex.match(buffer, at)
        if found is None:
            return None
        groups |= found.groupdict()
        at = found.end()
        if field:
            raw = groups.get(f"{field}_length")
            size = int(raw) if raw is not None else int.from_bytes(groups["value_length4"] or b"", "big", signed=True)
            if size > bound or at + max(size, 0) > len(buffer):
                return None
            groups[field] = buffer[at : at + size] if size >= 0 else None
            at += max(size, 0)
    return groups, at


# CSV.


def _of_csv(chunks: Iterator[bytes], form: Form, bound: int) -> Iterator[Record]:
    csv.field_size_limit(bound)
    text = (line.decode("latin-1") + "\n" for line, _ in lines_in(chunks, b"\n", bound))
    rows = csv.reader(text, delimiter=form.between.decode(), strict=False)
    begun, header = 1, None
    if form.is_headed:
        header, begun = next(rows, None), 2
    try:
        for row in rows:
            if row and row != header:  # a second dump behind the first
                yield _of_row(row, form, begun)
            begun = rows.line_num + 1
    except csv.Error as error:
        yield Bad("bad-csv", f"line {begun}: {error}; nothing behind it was read", b"")


def _of_row(row: list[str], form: Form, line: int) -> Record:
    if len(row) != len(form.parts):
        raw = form.between.decode().join(row).encode("latin-1")
        return Bad("bad-csv", f"line {line}: {len(row)} columns; expected {len(form.parts)}", raw)
    fields: dict[str, Value] = {
        str(p): (_unguarded(v) or None) if v != "null" else None
        for p, v in zip(form.parts, row, strict=True)
        if role_of(str(p))
    }
    headers = fields.get("headers")
    fields["headers"] = headers.encode("latin-1") if isinstance(headers, str) and is_json(headers.encode()) else None
    try:
        return _message_of(fields, form)
    except _Unread as error:
        return Bad(error.code, f"line {line}: {error}", form.between.decode().join(row).encode("latin-1"))


def _unguarded(text: str) -> str:
    """Kafka UI puts ' before what a spreadsheet takes for a formula."""
    return text[1:] if re.match(r"'[=+\-@\t\r]", text) else text


# Rows of Parquet and Avro.


def _rows(file: BinaryIO) -> Iterator[Any]:
    """Rows as dictionaries, or values alone."""
    if file.read(4) == b"PAR1":
        import pyarrow.parquet as pq

        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(_ROWS_AT_ONCE):
                yield from batch.to_pylist()
        return
    import fastavro

    file.seek(0)
    yield from fastavro.reader(file)


_ROWS_AT_ONCE = 1_000


def columns_of(file: BinaryIO) -> tuple[list[str], list[str], bool]:
    """Names of the columns of an open file, none for values alone, some texts among its first keys and values.

    And whether none of its columns are categories.
    """
    rows = list(islice(_rows(file), _ROWS_AT_ONCE))
    if not rows or not isinstance(rows[0], dict):
        return [], [row for row in rows if isinstance(row, str) and row], True
    names = list(rows[0])
    roles = roles_in(names)
    if len(names) == 1 and "value" not in roles and isinstance(only := rows[0][names[0]], str | bytes):
        return [], [only] if isinstance(only, str) else [], True
    of = {roles[role] for role in ("key", "value") if role in roles}
    texts = [text for row in rows for name in of if isinstance(text := row.get(name), str) and text]
    return names, texts, not _has_categories(file)


def _has_categories(file: BinaryIO) -> bool:
    """Whether columns are dictionaries, as pandas writes categories; not every engine reads them."""
    import pyarrow.parquet as pq

    file.seek(0)
    if file.read(4) != b"PAR1":
        return False
    return any(pa.types.is_dictionary(field.type) for field in pq.read_schema(file))


def _of_rows(file: BinaryIO, form: Form) -> Iterator[Record]:
    try:
        for n, row in enumerate(_rows(file), start=1):
            fields = row if isinstance(row, dict) and form.parts else {"value": row}
            if not form.parts and isinstance(row, dict) and len(row) == 1:
                [fields["value"]] = row.values()
            try:
                yield _message_of({name: _plain(value) for name, value in fields.items()}, form)
            except _Unread as error:
                yield Bad(error.code, f"row {n}: {error}", orjson.dumps(fields, default=str))
    except (ValueError, EOFError, OSError) as error:
        yield Bad("damaged-file", f"{error}; all rows before were read", b"")


def _plain(value: Any) -> Value:
    """A value of a column as JSON has it: texts as their bytes, times as numbers."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("latin-1")
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict | list):
        return orjson.dumps(value, default=_text_of)
    return value  # type: ignore[no-any-return]


def _text_of(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# Arrow.


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
