"""What is known of debezium's columns: their MySQL types, how their values are written, and the text of a value.

It comes from the part of a message that describes it, or from the log's own DDL (:mod:`.defined_types`).
:mod:`ticdc_lab.codecs.debezium` reads messages by it; so does the kernel, which has the same forms in numbers.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from ticdc_lab.codecs import values
from ticdc_lab.codecs.fields import members, number, object_of, objects, optional, string, text, whole
from ticdc_lab.events.mysql_types import BINARIES, INTEGERS, base_of, digits_of

PLAIN, BITS, BINARY, INTEGER, FLOAT, DOUBLE, DECIMAL, DATE, TIME, MILLIS, MICROS, ZONED, BIG_BITS, UNREAD = range(14)
TEXT_FLOAT, TEXT_DOUBLE = 14, 15
"""How the values of a column are written; in avro also BIT with its highest byte first, and other ways; in simple
numbers as texts."""

Convert = Callable[[Any], str]


class ValueForm(NamedTuple):
    """How values are written, and how many digits of a fraction their type states; None: as many as they have."""

    kind: int
    digits: int | None = None


class Typed(NamedTuple):
    """A column: its MySQL type, what turns its values to text, and the form that this reads."""

    mysql_type: str | None
    convert: Convert
    form: ValueForm


Types = Mapping[str, Typed]


def are_typed(types: Types) -> bool:
    """Whether a message itself has the type of each column."""
    return bool(types) and all(of.mysql_type for of in types.values())


SCHEMA = b'},"schema":{'


@lru_cache(4_096)
def require_json(schema: bytes) -> None:
    """Raise :class:`Malformed` where a schema is no JSON object, or has a name twice."""
    object_of(schema, "schema")


@lru_cache(4_096)
def types_of_schema(schema: bytes, forms: Forms) -> Types:
    """The columns in a schema, which is JSON."""
    return types_named(orjson.loads(schema), forms)


def types_named(schema: Any, forms: Forms) -> Types:
    """Typed name -> MySQL type and what turns its values to text, by the part that describes the message."""
    if schema is None:
        return {}
    for field in objects(members(schema, "schema").get("fields"), "schema.fields"):
        if field.get("field") == "after":
            return _typed(field.get("fields"), forms)
    return {}


def _typed(fields: Any, forms: Forms) -> Types:
    found: dict[str, Typed] = {}
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


def form_of(mysql_type: str | None, name: str, kind: Any) -> ValueForm:
    """By what the schema calls the form of the values, then by the MySQL type, then by the JSON type of the schema."""
    named = name.rsplit(".", 1)[-1]
    base = base_of(mysql_type)
    if named == "Bits" or base == "bit":
        return ValueForm(BITS)
    if named in _NAMED:
        return ValueForm(_NAMED[named])
    if base in BINARIES:
        return ValueForm(BINARY)
    if base == "float" or (not base and kind in ("float", "float32")):
        return ValueForm(FLOAT)
    return ValueForm(_BY_BASE.get(base, INTEGER if base in INTEGERS else PLAIN))


_NAMED = {"Date": DATE, "MicroTime": TIME, "Timestamp": MILLIS, "MicroTimestamp": MICROS, "ZonedTimestamp": ZONED}
_BY_BASE = {"decimal": DECIMAL, "double": DOUBLE}


@lru_cache(4_096)
def types_by_definition(columns: tuple[tuple[str, str], ...], forms: Forms) -> Types:
    """A table's columns in the log's DDL."""
    return {name: column(mysql_type, _by_definition(mysql_type), forms) for name, mysql_type in columns}


def with_digits(types: Types, defined: Types) -> Types:
    """Types of a message with the digits of fractions that the log's DDL gives, where both have the same type."""
    found = dict(types)
    for name, (mysql_type, _, form) in types.items():
        other = defined.get(name)
        if (
            is_open(mysql_type, form)
            and other
            and other.form.kind == form.kind
            and base_of(other.mysql_type) == base_of(mysql_type)
        ):
            found[name] = other
    return found


def is_open(mysql_type: str | None, form: ValueForm) -> bool:
    """Whether a type that a message names leaves the digits of a fraction open."""
    return form.kind in _OF_DIGITS and form.digits is None and "(" not in (mysql_type or "(")


_OF_DIGITS = (DECIMAL, TIME, MILLIS, MICROS)
_MILLIS_DIGITS_MAX = 3


def _by_definition(mysql_type: str) -> ValueForm:
    """By a type as SQL writes it, with its digits."""
    base, digits = base_of(mysql_type), digits_of(mysql_type)
    if base == "date":
        return ValueForm(DATE)
    if base == "time":
        return ValueForm(TIME, digits[0] if digits else 0)
    if base == "datetime":
        fsp = digits[0] if digits else 0
        return ValueForm(MILLIS if fsp <= _MILLIS_DIGITS_MAX else MICROS, fsp)
    if base == "timestamp":
        return ValueForm(ZONED)
    if base == "decimal":
        return ValueForm(DECIMAL, digits[1] if len(digits) > 1 else 0)
    return form_of(mysql_type, "", None)


def column(mysql_type: str | None, form: ValueForm, forms: Forms) -> Typed:
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
    return Typed(mysql_type, of_kind[kind], form)


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


UNTYPED = Typed(None, _plain, ValueForm(PLAIN))
"""A column whose type neither message nor log gives."""
