"""Debezium as TiCDC writes it: JSON, with or without the part that describes itself (docs/reading.md).

A type that this part does not name comes from the log's own DDL (:mod:`ticdc_lab.codecs.defined_types`); without
either, dates are numbers of days and BIT is base64, and stay so. :mod:`ticdc_lab.codecs.debezium_avro` reads the same
messages in Avro.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ticdc_lab.codecs import values
from ticdc_lab.codecs.defined_types import LogTypes
from ticdc_lab.codecs.event import Cell, Event, Malformed
from ticdc_lab.codecs.fields import (
    UNSHOWN,
    integer,
    members,
    number,
    object_of,
    objects,
    optional,
    shown,
    string,
    text,
    whole,
)  # fmt: skip
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.known import Known
from ticdc_lab.events.mysql_types import BINARIES, INTEGERS, base_of, digits_of

if TYPE_CHECKING:
    from ticdc_lab.codecs.decoded import PartKernel

_OPS = {"c": S.INSERT, "r": S.INSERT, "u": S.UPDATE, "d": S.DELETE}

PLAIN, BITS, BINARY, INTEGER, FLOAT, DOUBLE, DECIMAL, DATE, TIME, MILLIS, MICROS, ZONED = range(12)
"""How the values of a column are written."""

Convert = Callable[[Any], str]


class Form(NamedTuple):
    """How values are written, and how many digits of a fraction their type states; None: as many as they have."""

    kind: int
    digits: int | None = None


class Column(NamedTuple):
    """A column: its MySQL type, what turns its values to text, and the form that this reads."""

    mysql_type: str | None
    convert: Convert
    form: Form


Types = Mapping[str, Column]


def codec(known: Known) -> DebeziumCodec:
    """Messages to events, with what the log's DDL says of types and how it writes bytes."""
    return DebeziumCodec(known, FORMS[known.binary])


class DebeziumCodec:
    """The codec in Python, with another reading of bytes where one is asked for, and the kernel beside it."""

    def __init__(self, known: Known, forms: Forms) -> None:
        self._known, self._forms = known, forms

    def __call__(self, key: bytes | None, value: bytes | None) -> Sequence[Event]:
        """One event of a message; a null value is a tombstone that Kafka's compaction asks for, and TiCDC has none."""
        message, types_of = _parts(value, "value", self._forms)
        payload = members(message.get("payload", message), "payload")
        return [event_of(payload, types_of, lambda: _keys(key), self._forms, self._known.types)]

    @cached_property
    def kernel(self) -> PartKernel:
        """The kernel for what TiCDC writes."""
        from ticdc_lab.codecs.kernel.debezium import DebeziumKernel

        return DebeziumKernel(self._known.types, self._forms)


def event_of(
    payload: Mapping[str, Any],
    types_of: Callable[[], Types],
    keys_of: Callable[[], frozenset[str]],
    forms: Forms,
    log_types: LogTypes,
) -> Event:
    """The event that a payload is, with the types that the message gives, and the names in its key."""
    source = members(payload.get("source"), "payload.source")
    commit_ts = integer(source, "commit_ts")
    if "ddl" in payload:
        return _ddl(payload, source, commit_ts)
    op = text(payload, "op")
    if op == "m":
        return Event(S.WATERMARK, commit_ts)
    if op not in _OPS:
        raise Malformed("unknown-type", f"payload.op is {op!r}; expected c, u, d or m")
    schema, table = text(source, "db"), text(source, "table")
    types = types_of()
    if log_types and not are_typed(types):
        types = {**types, **types_by_definition(log_types.at(schema, table, commit_ts), forms)}
    keys = keys_of()
    columns, before = (_image(payload.get(name), types, keys) for name in ("after", "before"))
    start_ts = None if source.get("start_ts") is None else integer(source, "start_ts")
    return Event(
        S.ROW, commit_ts, schema, table, op=_OPS[op], columns=columns, before=before, start_ts=start_ts
    )  # fmt: skip


def are_typed(types: Types) -> bool:
    """Whether a message itself says the type of each column."""
    return bool(types) and all(of.mysql_type for of in types.values())


def _ddl(payload: Mapping[str, Any], source: Mapping[str, Any], commit_ts: int) -> Event:
    changes = objects(payload.get("tableChanges"), "payload.tableChanges")
    kind = optional(changes[0], "type") if changes else None
    schema = optional(payload, "databaseName") or optional(source, "db")
    return Event(
        S.DDL, commit_ts, schema, optional(source, "table"), query=text(payload, "ddl"), ddl_type=kind
    )  # fmt: skip


def _keys(key: bytes | None) -> frozenset[str]:
    """Names of the handle key's columns, which are those of the message key."""
    if key is None:
        return frozenset()
    message, _ = _parts(key, "key", FORMS["base64"])
    payload = message.get("payload")  # which may also be the name of a column, whose value is no object
    return frozenset(payload if isinstance(payload, dict) else message)


def _image(image: Any, types: Types, keys: frozenset[str]) -> list[Cell] | None:
    if image is None:
        return None
    given = members(image, "image")
    cells: list[Cell] = []
    try:
        for name, value in given.items():
            mysql_type, convert, _ = types.get(name, UNTYPED)
            cells.append((name, mysql_type, None if value is None else convert(value), name in keys, -1))
    except UNSHOWN:
        shown(name, mysql_type, convert, value)  # says which one it is
        raise
    return cells


SCHEMA = b'},"schema":{'


def _parts(raw: bytes | None, part: str, forms: Forms) -> tuple[Mapping[str, Any], Callable[[], Types]]:
    """The message, and its columns' types: many messages have the schema of the one before, which is read once.

    Where this stands between two members, what is before and behind it are JSON by themselves: inside a text the quotes
    are escaped, inside another object the part before does not end. A name that is there twice, or any other fault, is
    looked for in the message as a whole.
    """
    at = -1 if raw is None else raw.find(SCHEMA)
    if raw is not None and at >= 0 and raw.endswith(b"}"):
        try:
            message = object_of(raw[: at + 1] + b"}", part)
            if "schema" not in message:
                schema = raw[at + len(SCHEMA) - 1 : -1]
                require_json(schema)
                return message, lambda: types_of_schema(schema, forms)
        except Malformed:
            pass
    message = object_of(raw, part)
    return message, lambda: _types(message.get("schema"), forms)


@lru_cache(4_096)
def require_json(schema: bytes) -> None:
    """Raise :class:`Malformed` where a schema is no JSON object, or has a name twice."""
    object_of(schema, "schema")


@lru_cache(4_096)
def types_of_schema(schema: bytes, forms: Forms) -> Types:
    """What a schema, which is JSON, says of columns."""
    return _types(orjson.loads(schema), forms)


def _types(schema: Any, forms: Forms) -> Types:
    """Column name -> MySQL type and what turns its values to text, by the part that describes the message."""
    if schema is None:
        return {}
    for field in objects(members(schema, "schema").get("fields"), "schema.fields"):
        if field.get("field") == "after":
            return _typed(field.get("fields"), forms)
    return {}


def _typed(fields: Any, forms: Forms) -> Types:
    found: dict[str, Column] = {}
    for field in objects(fields, "schema.fields.fields"):
        mysql_type, name = optional(field, "tidb_type"), optional(field, "name") or ""
        parameters = members(field.get("parameters") or {}, "parameters")
        form = form_of(mysql_type, name, field.get("type"))
        found[text(field, "field")] = column(full_type(mysql_type, parameters), form, forms)
    return found


def full_type(mysql_type: str | None, parameters: Mapping[str, Any]) -> str | None:
    """A column's type with the labels or the length that its schema names."""
    if mysql_type in ("enum", "set") and isinstance(parameters.get("allowed"), str):
        return values.labelled(mysql_type, values.allowed_labels(parameters["allowed"]))
    return f"bit({parameters['length']})" if mysql_type == "bit" and "length" in parameters else mysql_type


@dataclass(frozen=True, slots=True)
class Forms:
    """How bytes are written: of BINARY, VARBINARY and BLOB, and of BIT."""

    binary: Callable[[Any], bytes]
    bits: Callable[[Any], bytes]


def _base64(value: Any) -> bytes:
    """Base64 of either alphabet, also without the signs that fill it up."""
    digits = string(value).translate(_URL_SAFE)
    return b64decode(digits + "=" * (-len(digits) % 4), validate=True)


_URL_SAFE = str.maketrans("-_", "+/")


def _hex(value: Any) -> bytes:
    digits = string(value)
    if not set(digits) <= _HEX_DIGITS:
        raise ValueError("expected hexadecimal digits, as the log's other values have")
    return bytes.fromhex(digits)


_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")

FORMS = {"base64": Forms(_base64, _base64), "hex": Forms(_hex, _base64)}
"""By ``binary.handling.mode``: TiCDC writes base64; what other connectors and converters write can be read, too."""


GUESSED_AS_HEX = 16
"""Base64 of so many signs that are all hexadecimal digits is as likely as one in four billion."""


def binary_mode(texts: Iterable[str]) -> tuple[str, bool]:
    """How these values of BINARY, VARBINARY and BLOB are written, and whether they leave no other reading."""
    seen = [text for text in texts if text]
    if any(not set(text) <= _HEX_DIGITS for text in seen):
        return "base64", True
    if any(len(text) % 4 for text in seen):
        return "hex", True
    return ("hex" if sum(map(len, seen)) >= GUESSED_AS_HEX else "base64"), not seen


def form_of(mysql_type: str | None, name: str, kind: Any) -> Form:
    """By what the schema calls the form of the values, then by the MySQL type, then by the JSON type of the schema."""
    named = name.rsplit(".", 1)[-1]
    base = base_of(mysql_type)
    if named == "Bits" or base == "bit":
        return Form(BITS)
    if named in _NAMED:
        return Form(_NAMED[named])
    if base in BINARIES:
        return Form(BINARY)
    if base == "float" or (not base and kind in ("float", "float32")):
        return Form(FLOAT)
    return Form(_BY_BASE.get(base, INTEGER if base in INTEGERS else PLAIN))


_NAMED = {"Date": DATE, "MicroTime": TIME, "Timestamp": MILLIS, "MicroTimestamp": MICROS, "ZonedTimestamp": ZONED}
_BY_BASE = {"decimal": DECIMAL, "double": DOUBLE}


@lru_cache(4_096)
def types_by_definition(columns: tuple[tuple[str, str], ...], forms: Forms) -> Types:
    """What the log's DDL says of the columns of a table."""
    return {name: column(mysql_type, _by_definition(mysql_type), forms) for name, mysql_type in columns}


_MILLIS_DIGITS_MAX = 3


def _by_definition(mysql_type: str) -> Form:
    """By a type as SQL writes it, which says how many digits a value has, too."""
    base, digits = base_of(mysql_type), digits_of(mysql_type)
    if base == "date":
        return Form(DATE)
    if base == "time":
        return Form(TIME, digits[0] if digits else 0)
    if base == "datetime":
        fsp = digits[0] if digits else 0
        return Form(MILLIS if fsp <= _MILLIS_DIGITS_MAX else MICROS, fsp)
    if base == "timestamp":
        return Form(ZONED)
    if base == "decimal":
        return Form(DECIMAL, digits[1] if len(digits) > 1 else 0)
    return form_of(mysql_type, "", None)


def column(mysql_type: str | None, form: Form, forms: Forms) -> Column:
    """A column of that type whose values have that form."""
    kind, digits = form
    of_kind: dict[int, Convert] = {
        PLAIN: _plain,
        BITS: lambda v: _bit(v, forms),
        BINARY: lambda v: values.binary_text(forms.binary(v)),
        INTEGER: lambda v: _integer_text(v, mysql_type or ""),
        FLOAT: lambda v: values.float_text(number(v)),
        DOUBLE: lambda v: values.double_text(number(v)),
        DECIMAL: lambda v: v if isinstance(v, str) else values.decimal_text(number(v), digits),
        DATE: lambda days: values.date_text(whole(days)),
        TIME: lambda us: values.time_text(whole(us), digits),
        MILLIS: lambda ms: values.datetime_text(whole(ms) * 1_000, digits),
        MICROS: lambda us: values.datetime_text(whole(us), digits),
        ZONED: lambda v: values.iso_text(string(v)),
    }
    return Column(mysql_type, of_kind[kind], form)


def _integer_text(value: Any, mysql_type: str) -> str:
    """An integer, or its digits; BOOL is a TINYINT."""
    if isinstance(value, bool) and base_of(mysql_type) == "tinyint":
        return str(int(value))
    return value if isinstance(value, str) else str(values.unsigned(whole(value), mysql_type))


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(int(value))
    return str(value) if isinstance(value, int) else values.double_text(value)


def _bit(value: Any, forms: Forms) -> str:
    """Little-endian bytes; BIT(1) is a boolean."""
    return str(int(value)) if isinstance(value, bool) else str(int.from_bytes(forms.bits(value), "little"))


UNTYPED = Column(None, _plain, Form(PLAIN))
"""A column of which neither message nor log says a type."""
