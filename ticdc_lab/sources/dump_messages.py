"""One message of a dump, from the fields that a tool wrote: places, times, headers, and bytes, however written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from ticdc_lab.sources.forms import Coding, Form, decoded, roles_in
from ticdc_lab.sources.json_objects import BadJson, Value, fields_of


class DumpedMessage(NamedTuple):
    """A message as a dump has it; what is missing in the dump is None."""

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


class Unread(ValueError):
    """Why a record is none: its class and a sentence."""

    def __init__(self, code: str, said: str) -> None:
        super().__init__(said)
        self.code = code


Record = DumpedMessage | Bad | None
"""None is an empty record, which counts where the order of records does."""


# A message of its fields.


def message_of(fields: Mapping[str, Value], form: Form) -> DumpedMessage:
    """A message of the members of a JSON object, or of the columns of a row."""
    roles = roles_in(fields)
    own = {role: fields[name] for role, name in roles.items()}
    if "value" not in own and fields.get("value_size") is not None:  # rpk --meta-only
        raise Unread("no-value", "`value_size` without `value`: rpk left the values out (--meta-only)")
    for role, name in (("key", "keySchemaId"), ("value", "valueSchemaId")):  # AKHQ
        if fields.get(name) is not None and own.get(role) is not None:  # type: ignore[call-overload]
            raise Unread("decoded-by-tool", f"`{name}`: AKHQ wrote the {role} decoded with a schema, not its bytes")
    for role in ("partition", "offset"):
        if role not in own and role not in form.lost:
            raise Unread("missing-field", f"no `{role}`; it has {_named(fields)}")
    if not {"value", "key", "offset"} & own.keys():
        raise Unread("missing-field", f"no `value`; it has {_named(fields)}")
    key, value = contents(own.get("key"), own.get("value"), form, names=(roles.get("key", ""), roles.get("value", "")))
    return DumpedMessage(
        topic_of(own.get("topic")),
        number_of(own.get("partition"), roles.get("partition", ""), (1 << 31) - 1),
        number_of(own.get("offset"), roles.get("offset", ""), (1 << 63) - 1),
        timestamp_ms(own.get("timestamp")),
        key,
        value,
        headers_of(own.get("headers")),
    )


def _named(fields: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in list(fields)[:12]) or "no field"


def plain(value: Any) -> Value:
    """A value of a column as JSON has it: texts as their bytes, times as numbers."""
    if isinstance(value, str):
        with suppress(UnicodeEncodeError):
            return value.encode("utf-8", "surrogateescape").decode("latin-1")  # bytes of a file that is no UTF-8
        return value.encode("utf-8", "surrogatepass").decode("latin-1")
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict | list):
        return json.dumps(value, default=_text_of, ensure_ascii=False, separators=(",", ":")).encode()
    return value  # type: ignore[no-any-return]


def _text_of(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def topic_of(value: Value) -> str | None:
    """The name of a topic."""
    if isinstance(value, bytes):  # AKHQ: an object
        told = orjson.loads(value)
        value = told.get("name") if isinstance(told, dict) else None
    return value.encode("latin-1").decode("utf-8", "replace") if isinstance(value, str) else None


def number_of(value: Value, name: str, most: int) -> int | None:
    """A partition or an offset, named ``name``."""
    if isinstance(value, str) and (found := re.fullmatch(r"(\d+)(?:\.0+)?", value)):
        value = int(found[1])
    if isinstance(value, float) and value.is_integer():  # as pandas has integers beside nulls
        value = int(value)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise Unread("bad-field", f"`{name}` is {_shown_value(value)}; expected a number from 0 to {most}")
    return value


def _shown_value(value: Value) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}.."


def contents(
    key: Value, value: Value, form: Form, *, names: tuple[str, str] = ("key", "value")
) -> tuple[bytes | None, bytes | None]:
    """Key and value as bytes: a text as it is, an object as its JSON."""
    return _content(key, names[0], form.key_coding, form), _content(value, names[1], form.coding, form)


def _content(value: Value, name: str, coding: Coding, form: Form) -> bytes | None:
    if isinstance(value, bytes) and any(name in value for name in _WRAPS):
        value, coding = _payload(value, name, coding)
    if value is None:
        return None
    if isinstance(value, bytes):
        return _of_numbers(value)
    if not isinstance(value, str):
        return orjson.dumps(value)
    if coding == "text":
        return own_bytes(value.encode("latin-1"), form)
    try:
        return decoded(value, coding)
    except (ValueError, SyntaxError):
        expected = "b'..' of Python" if coding == "python" else coding.removesuffix("-any")
        said = f"`{name}` is {_shown_value(value)}; expected {expected}, as other messages have"
        raise Unread(f"bad-{coding.removesuffix('-any')}", said) from None


_NUMBERS = re.compile(rb'(?:\{\s*"type"\s*:\s*"Buffer"\s*,\s*"data"\s*:\s*)?(\[\s*-?\d[-\d,\s]*\])\s*\}?')


def _of_numbers(value: bytes) -> bytes:
    """The bytes of a list of numbers, as a Buffer of JavaScript has them; other JSON as it is."""
    found = _NUMBERS.fullmatch(value)
    numbers = orjson.loads(found[1]) if found else []
    return bytes(n & 0xFF for n in numbers) if numbers and all(-128 <= n <= 255 for n in numbers) else value


_AS_IT_IS = ("json", "text", "utf8WithControlChars", "xml", "null", "")
_WRAPS = (b'"isPayloadNull"', b'"encoding"', b'"BINARY"', b'"JSON"', b'"STRING"')
_OF_REST: Mapping[Any, Coding] = {"BINARY": "base64", "JSON": "text", "STRING": "text"}
"""Types of keys and values in records of Confluent's REST API, version 3."""


def _payload(value: bytes, name: str, coding: Coding) -> tuple[Value, Coding]:
    """What Redpanda Console, or Confluent's REST API, wraps a key or a value into, and how it is written there."""
    try:
        wrapper = fields_of(value)
    except BadJson:
        return value, coding
    if wrapper.keys() == {"type", "data"} and (of_rest := _OF_REST.get(wrapper["type"])):
        return wrapper["data"], of_rest
    if not {"isPayloadNull", "encoding"} & wrapper.keys() or not {"payload", "isPayloadNull"} & wrapper.keys():
        return value, coding
    if wrapper.get("isPayloadNull") is True:
        return None, "text"
    if raw := wrapper.get("rawPayload"):
        return raw, "base64"
    if (encoding := wrapper.get("encoding", "")) not in _AS_IT_IS:
        raise Unread(
            "decoded-by-tool",
            f"`{name}` is {_shown_value(encoding)} that Redpanda Console decoded; save the messages with raw data",
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


def headers_of(value: Value) -> tuple[tuple[str, bytes | None], ...]:
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


# Bytes that an editor replaced.

_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_BEYOND = re.compile(rb"[\x80-\xff]+")
_OPEN_PROTOCOL, _OPEN_KEY = b"\0\0\0\0\0", b"\0\0\0\0\0\0\0\1"
_HEADERS: Mapping[bytes, int] = {b"\0": 5, b"\3\0": 18}
"""How a message begins that names its schema, in Confluent's registry or Glue's, and how long that is."""


def own_bytes(text: bytes, form: Form) -> bytes:
    """A key or a value that a dump has as text; a binary one whose bytes were replaced is refused."""
    if form.is_utf8 and is_reencoded(text, is_latin=form.is_latin):
        raise Unread("re-encoded", "an editor or a tool saved the dump as UTF-8, which replaced bytes of this message")
    return text


def is_reencoded(text: bytes, *, is_latin: bool = False) -> bool:
    """Whether bytes of a binary key or value were replaced where its dump was saved as UTF-8.

    What is no UTF-8 becomes U+FFFD, or, if it was taken for Latin-1, two bytes; that all of the dump was, ``is_latin``
    states. Of open-protocol lengths decide, as a text in it may hold any character. So they do of a framed message of
    Avro: what is beyond ASCII there is a text of a byte's length, as no longer one can be UTF-8.
    """
    if text.isascii() or not _BINARY.search(text):
        return False
    is_replaced = b"\xef\xbf\xbd" in text
    if text.startswith(_OPEN_PROTOCOL):
        texts = text[8:] if text.startswith(_OPEN_KEY) else text
        return not is_framed(texts) and (is_replaced or any(is_framed(undone) for undone in _undone(texts)))
    if is_replaced or is_latin:
        return True
    header = next((n for begin, n in _HEADERS.items() if text.startswith(begin)), 0)
    return header > 0 and not all(_has_length(text, run, header) for run in _BEYOND.finditer(text))


def _has_length(text: bytes, run: re.Match[bytes], header: int) -> bool:
    """Whether characters beyond ASCII lie in a text with its length before it, or are no UTF-8, so by chance."""
    try:
        run[0].decode()
    except UnicodeDecodeError:
        return True
    for at in range(max(header, run.start() - 63), run.start()):
        end = at + 1 + text[at] // 2
        if text[at] % 2 == 0 and run.end() <= end <= len(text) and not _BINARY.search(text[at + 1 : end]):
            return True
    return False


def is_framed(value: bytes) -> bool:
    """Whether lengths and texts alternate to the end, as in a value of open-protocol."""
    at = 0
    while at + 8 <= len(value):
        at += 8 + int.from_bytes(value[at : at + 8], "big")
    return at == len(value)


def _undone(value: bytes) -> Iterator[bytes]:
    """What it was if it was taken for Latin-1, or for what Windows takes for it."""
    for encoding in ("latin-1", "cp1252"):
        with suppress(UnicodeError):
            yield value.decode().encode(encoding)
