"""Debezium as TiCDC writes it: JSON, with or without the part that describes itself (docs/reading.md).

A type that this part does not name comes from the log's own DDL (:mod:`ticdc_lab.codecs.defined_types`); without
either, dates are numbers of days and BIT is base64, and stay so. :mod:`ticdc_lab.codecs.debezium_avro` reads the same
messages in Avro.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ticdc_lab.codecs.debezium_types import (
    FORMS,
    SCHEMA,
    UNTYPED,
    Forms,
    Types,
    are_typed,
    require_json,
    types_by_definition,
    types_named,
    types_of_schema,
    with_digits,
)
from ticdc_lab.codecs.defined_types import LogTypes
from ticdc_lab.codecs.event import Cell, Event, Malformed
from ticdc_lab.codecs.fields import UNSHOWN, integer, members, object_of, objects, optional, shown, text
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.known import Known

if TYPE_CHECKING:
    from ticdc_lab.codecs.decoded import PartKernel

_OPS = {"c": S.INSERT, "r": S.INSERT, "u": S.UPDATE, "d": S.DELETE}


def codec(known: Known) -> DebeziumCodec:
    """Messages to events, with the types of the log's DDL and how it writes bytes."""
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
    if log_types:
        defined = types_by_definition(log_types.at(schema, table, commit_ts), forms)
        types = with_digits(types, defined) if are_typed(types) else {**types, **defined}
    keys = keys_of()
    columns, before = (_image(payload.get(name), types, keys) for name in ("after", "before"))
    start_ts = None if source.get("start_ts") is None else integer(source, "start_ts")
    return Event(
        S.ROW, commit_ts, schema, table, op=_OPS[op], columns=columns, before=before, start_ts=start_ts
    )  # fmt: skip


def _ddl(payload: Mapping[str, Any], source: Mapping[str, Any], commit_ts: int) -> Event:
    changes = objects(payload.get("tableChanges"), "payload.tableChanges")
    kind = optional(changes[0], "type") if changes else None
    schema = optional(payload, "databaseName") or optional(source, "db")
    return Event(
        S.DDL, commit_ts, schema, optional(source, "table"), query=text(payload, "ddl"), ddl_type=kind
    )  # fmt: skip


def _keys(key: bytes | None) -> frozenset[str]:
    """Names of the handle key's columns: the columns of the message key."""
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
        shown(name, mysql_type, convert, value)  # names the column
        raise
    return cells


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
    return message, lambda: types_named(message.get("schema"), forms)
