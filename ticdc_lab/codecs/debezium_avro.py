"""Debezium's messages in Avro under a schema registry, as ``protocol=debezium-avro`` writes them (docs/reading.md).

As in avro, other characters of a column's name than letters and digits are ``_``; schema and table come from the
message. Watermarks and DDL come with `avro-enable-watermark` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import fastavro
import orjson

from ticdc_lab.codecs import avro_fields as F
from ticdc_lab.codecs.avro import Reader, is_envelope, not_null, record_in
from ticdc_lab.codecs.avro_fields import AvroField, Flat, ImageColumn, flat
from ticdc_lab.codecs.debezium import event_of
from ticdc_lab.codecs.debezium_types import (
    BINARY,
    DECIMAL,
    UNTYPED,
    Forms,
    Typed,
    Types,
    ValueForm,
    are_typed,
    column,
    form_of,
    full_type,
    is_open,
)
from ticdc_lab.codecs.event import Event, Malformed
from ticdc_lab.codecs.known import Known
from ticdc_lab.facts.definitions import debezium_avro_name

if TYPE_CHECKING:
    from ticdc_lab.codecs.decoded import PartKernel


class Envelope(NamedTuple):
    """A schema made ready; ``names`` and ``types`` are a row's columns'."""

    schema: Any
    is_envelope: bool
    names: Mapping[str, str]
    types: Types


_BYTES = Forms(bytes, bytes)


class DebeziumAvroCodec:
    """Messages to events, with the schemas known or asked for."""

    def __init__(self, known: Known) -> None:
        self._read, self._log_types = Reader(known, _made), known.types

    @cached_property
    def kernel(self) -> PartKernel:
        """The kernel for what TiCDC writes."""
        from ticdc_lab.codecs.kernel.avro import AvroKernel

        with_log = bool(self._log_types)
        return AvroKernel("debezium-avro", lambda schema_id: _flat_of(self._read.schema(schema_id), with_log=with_log))

    def __call__(self, key: bytes | None, value: bytes | None) -> Sequence[Event]:
        """The event of a message."""
        read = self._read
        if value is None:
            raise Malformed("null-value", "value: expected a framed record, found none (a tombstone)")
        of, payload = read(value, "value")
        if not of.is_envelope:
            raise Malformed("bad-schema", "value: its schema is no debezium envelope: the protocol is avro")

        def keys() -> frozenset[str]:
            if key is None:
                return frozenset()
            by, given = read(key, "key")
            return frozenset(by.names.get(name, name) for name in given)

        renamed = {part: _renamed(payload.get(part), of.names) for part in ("before", "after")}
        return [event_of({**payload, **renamed}, lambda: of.types, keys, _BYTES, self._log_types)]


codec = DebeziumAvroCodec


def _made(schema: str, schema_id: str) -> Envelope:
    try:
        found = orjson.loads(schema)
        images = (record_in(f["type"]) for f in found["fields"] if f["name"] in ("before", "after"))
        columns = next((image["fields"] for image in images if image is not None), found["fields"])
        names = {f["name"]: debezium_avro_name(f.get("connect.field") or f["name"]) for f in columns}
        types = {names[f["name"]]: _column(f) for f in columns} if is_envelope(found) else {}
        return Envelope(fastavro.parse_schema(found), is_envelope(found), names, types)
    except Exception as fault:
        raise Malformed("bad-schema", f"schema {schema_id} of the registry is not debezium's: {fault}") from fault


def _renamed(image: Any, names: Mapping[str, str]) -> Any:
    return {names.get(name, name): value for name, value in image.items()} if isinstance(image, dict) else image


_PAYLOAD = {
    ("op",): AvroField(F.OP, (F.TEXT,)),
    ("source", "db"): AvroField(F.DB, (F.TEXT,)),
    ("source", "table"): AvroField(F.TABLE, (F.TEXT,)),
    ("source", "commit_ts"): AvroField(F.COMMIT_TS, (F.LONG,)),
    ("source", "start_ts"): AvroField(F.START_TS, (F.LONG,)),
}


def _flat_of(of: Envelope, *, with_log: bool) -> Flat:
    """The operations of a schema of debezium-avro; a key's names are read, and its values passed.

    Where the log's own DDL defines types (``with_log``), a schema without them, or without their digits, is Python's.
    """
    by_log = with_log and (not are_typed(of.types) or any(is_open(t, form) for t, _, form in of.types.values()))

    def field_at(path: tuple[str, ...]) -> AvroField:
        if not of.is_envelope or path[0] not in ("before", "after"):
            return _PAYLOAD.get(path, F.PASSED) if of.is_envelope else F.PASSED
        is_old = path[0] == "before"
        if len(path) == 1:
            return AvroField(F.OLD if is_old else F.NEW, (F.RECORD,))
        name = of.names.get(path[1], path[1])
        mysql_type, _, form = of.types.get(name, UNTYPED)
        return AvroField(F.COLUMN, (), ImageColumn(name, mysql_type, form.kind, is_old))

    if of.is_envelope and (by_log or any(f["name"] == "ddl" for f in of.schema["fields"])):
        raise F.UnplannedError
    found = flat(of.schema, field_at)
    columns = [op.field.column for op in found if op.field.column]
    if len(set(columns)) < len(columns):
        raise F.UnplannedError
    renamed = [op._replace(name=of.names.get(op.name, op.name)) if op.is_top else op for op in found]
    return Flat(renamed, is_row=of.is_envelope)


def _column(field: Mapping[str, Any]) -> Typed:
    kind = not_null(field["type"])
    of = kind if isinstance(kind, dict) else {"type": kind}
    parameters = of.get("connect.parameters") or {}
    mysql_type = field.get("tidb_type") or parameters.get("tidb_type")
    if of.get("logicalType") == "decimal":
        unsigned = " unsigned" if mysql_type and mysql_type.endswith("unsigned") else ""
        said = f"decimal({of.get('precision')},{of.get('scale', 0)}){unsigned}"
        return Typed(said if mysql_type else None, _decimal, ValueForm(DECIMAL))
    name = of.get("connect.name") or ""
    is_bytes = of["type"] == "bytes" and not (mysql_type or name)
    form = ValueForm(BINARY) if is_bytes else form_of(mysql_type, name, of["type"])
    return column(full_type(mysql_type, parameters), form, _BYTES)


def _decimal(value: Any) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
