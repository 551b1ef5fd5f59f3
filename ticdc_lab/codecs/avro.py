"""Avro under a schema registry: Confluent's framing, and Glue's (docs/reading.md).

Schemas come from a file or the registry. What production sends has no DDL and no watermark, and a delete is a null
value under the row's key: it has no commit_ts and says so as `tombstone`. First bytes 1, 2 and 3 are TiCDC's internal
test option.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from io import BytesIO
from typing import Any, NamedTuple
from uuid import UUID

import fastavro
import orjson

from ticdc_lab.codecs import values
from ticdc_lab.codecs.event import CORRUPTED, Cell, Codec, Event, Malformed
from ticdc_lab.codecs.fields import UNSHOWN, checksum_of, integer, object_of, optional, shown, text
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.known import Known, too_large
from ticdc_lab.codecs.schema_registry import Registry

_CONFLUENT, _DDL, _WATERMARK, _DELETE, _GLUE = 0, 1, 2, 3, 3
_GLUE_HEADER, _GLUE_ZLIB = 18, 5
_OPS = {"c": S.INSERT, "u": S.UPDATE}
_EXTENSION = frozenset(
    f"_tidb_{name}"
    for name in ("op", "commit_ts", "commit_physical_time", "row_level_checksum", "corrupted", "checksum_version")
)
"""What TiCDC adds to a row; a table may have other columns that begin so."""
TOMBSTONE = "tombstone"


class AvroColumn(NamedTuple):
    """A column as its schema describes it."""

    name: str
    mysql_type: str | None
    convert: Callable[[Any], str]


class Record(NamedTuple):
    """A schema made ready."""

    schema: Any
    schema_name: str
    table_name: str
    fields: tuple[AvroColumn, ...]


def codec(known: Known) -> Codec:
    """Messages to events, with the schemas known or asked for."""
    registry = Registry(known)
    records: dict[str, Record] = {}

    def record(schema_id: str) -> Record:
        if schema_id not in records:
            records[schema_id] = _record(registry.schema(schema_id), schema_id)
        return records[schema_id]

    def read(raw: bytes, part: str) -> tuple[Record, Mapping[str, Any]]:
        schema_id, body = _unframed(raw, part, known.bounds.inflated)
        found = record(schema_id)
        return found, _fields(found, body, part)

    def decode(key: bytes | None, value: bytes | None) -> Sequence[Event]:
        if value is not None and _is_internal(value):
            return [_internal(key, value, read)]
        if key is None:
            raise Malformed("missing-key", "expected the row's key, found none")
        by, given = read(key, "key")
        keys = _columns(by, given, frozenset(given))
        if value is None:
            return [_deleted(by, keys, None, TOMBSTONE)]
        of, image = read(value, "value")
        return [_row(of, image, frozenset(given))]

    return decode


def _is_internal(value: bytes) -> bool:
    if not value:
        raise Malformed("bad-version", "value: expected a first byte, found an empty value")
    return value[0] in (_DDL, _WATERMARK) or (value[0] == _DELETE and len(value) == 9)


def _internal(key: bytes | None, value: bytes, read: Callable[[bytes, str], tuple[Record, Mapping[str, Any]]]) -> Event:
    if value[0] == _DDL:
        ddl = object_of(value[1:], "value after byte 1")
        schema, table = optional(ddl, "schema"), optional(ddl, "table")
        kind = ddl.get("type")
        return Event(
            S.DDL, integer(ddl, "commitTs"), schema, table, query=text(ddl, "query"),
            ddl_type=str(kind) if isinstance(kind, str | int) else None,
        )  # fmt: skip
    if len(value) != 9:
        raise Malformed("truncated-frame", f"value: expected a byte and an 8-byte ts, found {len(value)} bytes")
    (ts,) = struct.unpack(">Q", value[1:])
    if value[0] == _WATERMARK:
        return Event(S.WATERMARK, ts)
    if key is None:
        raise Malformed("missing-key", "expected the deleted row's key, found none")
    by, given = read(key, "key")
    return _deleted(by, _columns(by, given, frozenset(given)), ts, "handle-key-only")


def _deleted(by: Record, keys: list[Cell], ts: int | None, why: str) -> Event:
    return Event(S.ROW, ts, by.schema_name, by.table_name, op=S.DELETE, before=keys, incomplete=why)


def _row(of: Record, image: Mapping[str, Any], keys: frozenset[str]) -> Event:
    """Without the TiDB extension neither commit_ts nor whether the row was there before is known."""
    op = optional(image, "_tidb_op")
    ts = None if image.get("_tidb_commit_ts") is None else integer(image, "_tidb_commit_ts")
    if op is not None and op not in _OPS:
        raise Malformed("unknown-type", f"_tidb_op is {op!r}; expected c or u")
    columns = _columns(of, image, keys)
    return Event(
        S.ROW, ts, of.schema_name, of.table_name, op=S.INSERT if op is None else _OPS[op], columns=columns,
        incomplete=_incomplete(image, op), checksum=checksum_of(image.get("_tidb_row_level_checksum") or None),
    )  # fmt: skip


def _incomplete(image: Mapping[str, Any], op: str | None) -> str | None:
    if image.get("_tidb_corrupted") is True:
        return CORRUPTED
    return "op-unknown" if op is None else None


def _columns(record: Record, image: Mapping[str, Any], keys: frozenset[str]) -> list[Cell]:
    try:
        return [
            (name, mysql_type, None if (value := image[name]) is None else convert(value), name in keys, -1)
            for name, mysql_type, convert in record.fields
        ]
    except UNSHOWN:
        for name, mysql_type, convert in record.fields:
            shown(name, mysql_type, convert, image.get(name))  # says which one it is
        raise


def _unframed(raw: bytes, part: str, most: int) -> tuple[str, bytes]:
    """The schema's id and the body."""
    if len(raw) >= 5 and raw[0] == _CONFLUENT and any(raw[1:5]):  # ids begin at 1; eight zeros begin open-protocol
        return str(struct.unpack_from(">I", raw, 1)[0]), raw[5:]
    if len(raw) >= _GLUE_HEADER and raw[0] == _GLUE:
        body = raw[_GLUE_HEADER:]
        return str(UUID(bytes=raw[2:_GLUE_HEADER])), _inflated(body, part, most) if raw[1] == _GLUE_ZLIB else body
    raise Malformed(
        "bad-version", f"{part}: expected the framing of a schema registry, found {raw[:5].hex() or 'none'}"
    )


def _inflated(body: bytes, part: str, most: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(body, most)
    except zlib.error as fault:
        raise Malformed("bad-compression", f"{part}, byte {_GLUE_HEADER}: {fault}") from fault
    if stream.unconsumed_tail and len(found) >= most:
        raise too_large(f"bytes of the {part} when inflated, so far", len(found) + 1, "inflated", most)
    if not stream.eof or stream.unused_data:
        raise Malformed("bad-compression", f"{part}: expected one whole zlib stream")
    return found


def _fields(record: Record, body: bytes, part: str) -> Mapping[str, Any]:
    stream = BytesIO(body)
    try:
        found = fastavro.schemaless_reader(stream, record.schema, None)
    except Exception as fault:  # fastavro lets through whatever its reading of damaged bytes runs into
        raise Malformed(
            "not-avro", f"{part}, about byte {5 + stream.tell()}: {type(fault).__name__} {fault}"
        ) from fault
    if stream.read(1) or not isinstance(found, dict):
        raise Malformed("trailing-bytes", f"{part}: bytes after the end of the record, so the schema is another one")
    return found


def _record(schema: str, schema_id: str) -> Record:
    try:
        found = orjson.loads(schema)
        names = tuple(_field(field) for field in found["fields"] if field["name"] not in _EXTENSION)
        namespace = found.get("namespace", "").rsplit(".", 1)[-1]
        return Record(fastavro.parse_schema(found), namespace, found["name"], names)
    except Exception as fault:
        raise Malformed("bad-schema", f"schema {schema_id} of the registry is no table's: {fault}") from fault


def _field(field: Mapping[str, Any]) -> AvroColumn:
    kind = field["type"]
    if isinstance(kind, list):
        kind = next(k for k in kind if k != "null")
    parameters = kind.get("connect.parameters", {}) if isinstance(kind, dict) else {}
    mysql_type = parameters.get("tidb_type")
    mysql_type = mysql_type.lower() if isinstance(mysql_type, str) else None
    if mysql_type in ("enum", "set") and "allowed" in parameters:
        labels = values.allowed_labels(parameters["allowed"])
        return AvroColumn(field["name"], values.labelled(mysql_type, labels), str)
    if mysql_type == "decimal" and isinstance(kind, dict) and "precision" in kind:
        return AvroColumn(field["name"], f"decimal({kind['precision']},{kind.get('scale', 0)})", _plain)
    return AvroColumn(field["name"], mysql_type, _converter(mysql_type or ""))


def _converter(mysql_type: str) -> Callable[[Any], str]:
    if mysql_type == "bit":
        return lambda v: str(int.from_bytes(v, "big")) if isinstance(v, bytes) else str(v)
    if mysql_type == "float":
        return values.float_text
    if mysql_type.endswith("unsigned"):
        return lambda v: str(values.unsigned(v, mysql_type)) if isinstance(v, int) else _plain(v)
    return _plain


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if type(value) is int:  # nearly all others, and no bool
        return str(value)
    if isinstance(value, bytes):
        return values.binary_text(value)
    if isinstance(value, float):
        return values.double_text(value)
    return f"{value:f}" if isinstance(value, Decimal) else str(int(value))
