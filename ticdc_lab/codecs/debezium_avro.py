"""Debezium's messages in Avro under a schema registry, as ``protocol=debezium-avro`` writes them (docs/reading.md).

As in avro, other characters of a column's name than letters and digits are ``_``; schema and table are those of the
message. Watermarks and DDL come with `avro-enable-watermark` alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import fastavro
import orjson

from ticdc_lab.codecs.avro import is_envelope, not_null, reader, record_in
from ticdc_lab.codecs.debezium import event_of
from ticdc_lab.codecs.debezium_types import BINARY, DECIMAL, Forms, Typed, Types, ValueForm, column, form_of, full_type
from ticdc_lab.codecs.event import Codec, Event, Malformed
from ticdc_lab.codecs.known import Known


class Envelope(NamedTuple):
    """A schema made ready; ``names`` and ``types`` are those of the columns of a row."""

    schema: Any
    is_envelope: bool
    names: Mapping[str, str]
    types: Types


_BYTES = Forms(bytes, bytes)


def codec(known: Known) -> Codec:
    """Messages to events, with the schemas known or asked for."""
    read = reader(known, _made)

    def decode(key: bytes | None, value: bytes | None) -> Sequence[Event]:
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
        return [event_of({**payload, **renamed}, lambda: of.types, keys, _BYTES, known.types)]

    return decode


def _made(schema: str, schema_id: str) -> Envelope:
    try:
        found = orjson.loads(schema)
        images = (record_in(f["type"]) for f in found["fields"] if f["name"] in ("before", "after"))
        columns = next((image["fields"] for image in images if image is not None), found["fields"])
        names = {f["name"]: _OTHER.sub("_", f.get("connect.field") or f["name"]) for f in columns}
        types = {names[f["name"]]: _column(f) for f in columns} if is_envelope(found) else {}
        return Envelope(fastavro.parse_schema(found), is_envelope(found), names, types)
    except Exception as fault:
        raise Malformed("bad-schema", f"schema {schema_id} of the registry is not debezium's: {fault}") from fault


_OTHER = re.compile("[^A-Za-z0-9_]")


def _renamed(image: Any, names: Mapping[str, str]) -> Any:
    return {names.get(name, name): value for name, value in image.items()} if isinstance(image, dict) else image


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
