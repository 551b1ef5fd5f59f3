"""Debezium as TiCDC writes it: JSON, with or without the part that describes itself (docs/reading.md).

Without that part nothing tells a column's type: dates are numbers of days and BIT is base64 then, and stay so.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from ticdc_lab.codecs import values
from ticdc_lab.codecs.event import Cell, Codec, Event, Malformed
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
from ticdc_lab.events.mysql_types import BINARIES, INTEGERS, base_of

_OPS = {"c": S.INSERT, "r": S.INSERT, "u": S.UPDATE, "d": S.DELETE}

Convert = Callable[[Any], str]
Types = Mapping[str, tuple[str | None, Convert]]


def codec(known: Known) -> Codec:
    """Messages to events; nothing beside them is needed."""
    return decode


def decode(key: bytes | None, value: bytes | None) -> Sequence[Event]:
    """One event of a message; a null value is a tombstone that Kafka's compaction asks for, and TiCDC writes none."""
    message, types_of = _parts(value, "value")
    payload = members(message.get("payload", message), "payload")
    source = members(payload.get("source"), "payload.source")
    commit_ts = integer(source, "commit_ts")
    if "ddl" in payload:
        return [_ddl(payload, source, commit_ts)]
    op = text(payload, "op")
    if op == "m":
        return [Event(S.WATERMARK, commit_ts)]
    if op not in _OPS:
        raise Malformed("unknown-type", f"payload.op is {op!r}; expected c, u, d or m")
    types = types_of()
    keys = _keys(key)
    columns, before = (_image(payload.get(name), types, keys) for name in ("after", "before"))
    return [
        Event(S.ROW, commit_ts, text(source, "db"), text(source, "table"), op=_OPS[op], columns=columns, before=before)
    ]


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
    message, _ = _parts(key, "key")
    payload = message.get("payload")  # which may also be the name of a column, whose value is no object
    return frozenset(payload if isinstance(payload, dict) else message)


def _image(image: Any, types: Types, keys: frozenset[str]) -> list[Cell] | None:
    if image is None:
        return None
    given = members(image, "image")
    cells: list[Cell] = []
    try:
        for name, value in given.items():
            mysql_type, convert = types.get(name, _UNTYPED)
            cells.append((name, mysql_type, None if value is None else convert(value), name in keys, -1))
    except UNSHOWN:
        shown(name, mysql_type, convert, value)  # says which one it is
        raise
    return cells


_SCHEMA = b'},"schema":{'


def _parts(raw: bytes | None, part: str) -> tuple[Mapping[str, Any], Callable[[], Types]]:
    """The message, and its columns' types: many messages have the schema of the one before, which is read once.

    Where this stands between two members, what is before and behind it are JSON by themselves: inside a text the quotes
    are escaped, inside another object the part before does not end. A name that is there twice, or any other fault, is
    looked for in the message as a whole.
    """
    at = -1 if raw is None else raw.find(_SCHEMA)
    if raw is not None and at >= 0 and raw.endswith(b"}"):
        try:
            message = object_of(raw[: at + 1] + b"}", part)
            if "schema" not in message:
                schema = raw[at + len(_SCHEMA) - 1 : -1]
                _once(schema)
                return message, lambda: _schema_types(schema)
        except Malformed:
            pass
    message = object_of(raw, part)
    return message, lambda: _types(message.get("schema"))


@lru_cache(4_096)
def _once(schema: bytes) -> None:
    """Raise :class:`Malformed` where a schema is no JSON object, or has a name twice."""
    object_of(schema, "schema")


@lru_cache(4_096)
def _schema_types(schema: bytes) -> Types:
    return _types(orjson.loads(schema))


def _types(schema: Any) -> Types:
    """Column name -> MySQL type and what turns its values to text, by the part that describes the message."""
    if schema is None:
        return {}
    for field in objects(members(schema, "schema").get("fields"), "schema.fields"):
        if field.get("field") == "after":
            return _typed(field.get("fields"))
    return {}


def _typed(fields: Any) -> Types:
    found: dict[str, tuple[str | None, Convert]] = {}
    for field in objects(fields, "schema.fields.fields"):
        mysql_type = optional(field, "tidb_type")
        found[text(field, "field")] = (_full_type(mysql_type, field), _converter(mysql_type, field))
    return found


def _full_type(mysql_type: str | None, field: Mapping[str, Any]) -> str | None:
    parameters = members(field.get("parameters") or {}, "parameters")
    if mysql_type in ("enum", "set") and isinstance(parameters.get("allowed"), str):
        return values.labelled(mysql_type, values.allowed_labels(parameters["allowed"]))
    return f"bit({parameters['length']})" if mysql_type == "bit" and "length" in parameters else mysql_type


def _converter(mysql_type: str | None, field: Mapping[str, Any]) -> Convert:
    """By what the schema calls the form of the values, then by the MySQL type."""
    form = str(field.get("name") or "").rsplit(".", 1)[-1]
    base = base_of(mysql_type)
    if form in _FORMS:
        return _FORMS[form]
    if base == "bit":
        return _bit
    if base in BINARIES:
        return lambda v: values.binary_text(b64decode(v, validate=True))
    if base == "float":
        return lambda v: values.float_text(number(v))
    if base == "decimal":
        return lambda v: v if isinstance(v, str) else values.decimal_text(number(v))
    if base == "double":
        return lambda v: values.double_text(number(v))
    if base in INTEGERS:
        return lambda v: _integer_text(v, mysql_type or "")
    return _plain


def _integer_text(value: Any, mysql_type: str) -> str:
    """An integer, or its digits."""
    return value if isinstance(value, str) else str(values.unsigned(whole(value), mysql_type))


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(int(value))
    return str(value) if isinstance(value, int) else values.double_text(value)


def _bit(value: Any) -> str:
    """Base64 of little-endian bytes; BIT(1) is a boolean."""
    return (
        str(int(value)) if isinstance(value, bool) else str(int.from_bytes(b64decode(value, validate=True), "little"))
    )


_UNTYPED: tuple[None, Convert] = (None, _plain)
_FORMS: dict[str, Convert] = {
    "Date": lambda days: values.date_text(whole(days)),
    "MicroTime": lambda us: values.time_text(whole(us)),
    "Timestamp": lambda ms: values.datetime_text(whole(ms) * 1_000),
    "MicroTimestamp": lambda us: values.datetime_text(whole(us)),
    "ZonedTimestamp": lambda v: values.iso_text(string(v)),
    "Bits": _bit,
}
