"""Avro under a schema registry: Confluent's framing, and Glue's (docs/reading.md).

Schemas come from a file or the registry. What production sends has no DDL and no watermark, and a delete is a null
value under the row's key: it has no commit_ts and is marked `tombstone`. With `avro-include-before-value` a row has
the image before it in `_ticdc_before`, and a delete is a row, too. The key is the primary key: a table with unique keys
alone has none. First bytes 1, 2 and 3 are TiCDC's internal test option.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

import fastavro
import orjson

from ticdc_lab.codecs import avro_fields as F
from ticdc_lab.codecs import values
from ticdc_lab.codecs.avro_fields import AvroField, Flat, ImageColumn, flat
from ticdc_lab.codecs.debezium_types import (
    BIG_BITS,
    BINARY,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    MICROS,
    MILLIS,
    PLAIN,
    TIME,
    UNREAD,
)
from ticdc_lab.codecs.event import CORRUPTED, Cell, Event, Malformed
from ticdc_lab.codecs.fields import UNSHOWN, checksum_of, integer, members, object_of, optional, shown, text
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.known import Known, too_large
from ticdc_lab.codecs.schema_registry import Registry
from ticdc_lab.events.mysql_types import VECTOR_IN_AVRO

if TYPE_CHECKING:
    from ticdc_lab.codecs.decoded import PartKernel

_CONFLUENT, _DDL, _WATERMARK, _DELETE, _GLUE = 0, 1, 2, 3, 3
_GLUE_HEADER, _GLUE_ZLIB = 18, 5
_OPS = {"c": S.INSERT, "u": S.UPDATE, "d": S.DELETE}
_BEFORE = "_ticdc_before"
_EXTENSION = frozenset(
    f"_tidb_{name}"
    for name in ("op", "commit_ts", "commit_physical_time", "row_level_checksum", "corrupted", "checksum_version")
)
"""What TiCDC adds to a row, without parameters, which a column with such a name has."""
TOMBSTONE = "tombstone"


class AvroColumn(NamedTuple):
    """A column as its schema describes it, and the form of its values that ``convert`` reads."""

    name: str
    mysql_type: str | None
    convert: Callable[[Any], str]
    form: int


class Record(NamedTuple):
    """A schema made ready."""

    schema: Any
    schema_name: str
    table_name: str
    fields: tuple[AvroColumn, ...]
    before: tuple[AvroColumn, ...] | None = None
    extension: frozenset[str] = frozenset()
    """Names of the fields that are TiCDC's."""


class AvroCodec:
    """Messages to events, with the schemas known or asked for."""

    def __init__(self, known: Known) -> None:
        self._read = Reader(known, _record)

    @cached_property
    def kernel(self) -> PartKernel:
        """The kernel for what TiCDC writes."""
        from ticdc_lab.codecs.kernel.avro import AvroKernel

        return AvroKernel("avro", lambda schema_id: _flat(self._read.schema(schema_id)))

    def __call__(self, key: bytes | None, value: bytes | None) -> Sequence[Event]:
        """The event of a message."""
        read = self._read
        if value is not None and _is_internal(value):
            return [_internal(key, value, read)]
        if value is None:
            if key is None:
                raise Malformed(
                    "missing-key", "neither key nor value: avro writes a delete of a table without a primary key like "
                    "this, and its table and row are unknown",
                )  # fmt: skip
            by, given = read(key, "key")
            return [_deleted(by, _columns(by.fields, given, frozenset(given)), None, TOMBSTONE)]
        keys = frozenset[str]()
        if key is not None:
            by, given = read(key, "key")
            _columns(by.fields, given, keys)
            keys = frozenset(given)
        of, image = read(value, "value")
        return [_row(of, image, keys)]


codec = AvroCodec


Schema = TypeVar("Schema", bound="Framed")


class Framed(Protocol):
    """What is made of a schema of the registry."""

    @property
    def schema(self) -> Any:
        """The schema as fastavro reads with it."""


class Reader(Generic[Schema]):
    """What reads framed records: ``made`` of a schema (JSON text and id), once each, and a record's fields."""

    def __init__(self, known: Known, made: Callable[[str, str], Schema]) -> None:
        self._registry, self._made, self._most = Registry(known), made, known.bounds.inflated
        self._records: dict[str, Schema] = {}

    def schema(self, schema_id: str) -> Schema:
        """What was made of the schema with that id."""
        if schema_id not in self._records:
            self._records[schema_id] = self._made(self._registry.schema(schema_id), schema_id)
        return self._records[schema_id]

    def __call__(self, raw: bytes, part: str) -> tuple[Schema, Mapping[str, Any]]:
        """The schema of a record, and its fields."""
        schema_id, body = unframed(raw, part, self._most)
        of = self.schema(schema_id)
        return of, _fields(of.schema, body, part)


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
    if key is None:  # of a table without a primary key: unknown which
        return Event(S.ROW, ts, op=S.DELETE, before=[], incomplete=TOMBSTONE)
    by, given = read(key, "key")
    return _deleted(by, _columns(by.fields, given, frozenset(given)), ts, "handle-key-only")


_ROLES = {
    "_tidb_op": AvroField(F.OP, (F.TEXT,)),
    "_tidb_commit_ts": AvroField(F.COMMIT_TS, (F.LONG,)),
    "_tidb_row_level_checksum": AvroField(F.CHECKSUM, (F.TEXT,)),
    "_tidb_corrupted": AvroField(F.CORRUPTED, (F.BOOL,)),
}


def _flat(of: Record) -> Flat:
    """The same for the kernel: of a row, or of a key."""
    after = {c.name: AvroField(F.COLUMN, (), ImageColumn(c.name, c.mysql_type, c.form)) for c in of.fields}
    before = {c.name: AvroField(F.COLUMN, (), ImageColumn(c.name, c.mysql_type, c.form, True)) for c in of.before or ()}

    def field_at(path: tuple[str, ...]) -> AvroField:
        name, *inside = path
        if of.before is not None and name == _BEFORE:
            return before[inside[0]] if inside else AvroField(F.OLD, (F.RECORD,))
        return _ROLES.get(name, F.PASSED) if name in of.extension else after[name]

    return Flat(flat(of.schema, field_at), of.schema_name, of.table_name)


def _deleted(by: Record, keys: list[Cell], ts: int | None, why: str) -> Event:
    return Event(S.ROW, ts, by.schema_name, by.table_name, op=S.DELETE, before=keys, incomplete=why)


def _row(of: Record, image: Mapping[str, Any], keys: frozenset[str]) -> Event:
    """Without the TiDB extension neither commit_ts nor whether the row was there before is known."""
    added = {name: image[name] for name in of.extension}
    op = optional(added, "_tidb_op")
    ts = None if added.get("_tidb_commit_ts") is None else integer(added, "_tidb_commit_ts")
    if op is not None and op not in _OPS:
        raise Malformed("unknown-type", f"_tidb_op is {op!r}; expected c, u or d")
    kind, before = S.INSERT if op is None else _OPS[op], None
    if of.before is not None and image.get(_BEFORE) is not None:
        before = _columns(of.before, members(image[_BEFORE], _BEFORE), keys)
    columns: list[Cell] | None = _columns(of.fields, image, keys)
    if kind == S.DELETE:  # whose image is the row before
        columns, before = None, before or columns
    return Event(
        S.ROW, ts, of.schema_name, of.table_name, op=kind, columns=columns, before=before,
        incomplete=_incomplete(added, op), checksum=checksum_of(added.get("_tidb_row_level_checksum") or None),
    )  # fmt: skip


def _incomplete(added: Mapping[str, Any], op: str | None) -> str | None:
    if added.get("_tidb_corrupted") is True:
        return CORRUPTED
    return "op-unknown" if op is None else None


def _columns(fields: Sequence[AvroColumn], image: Mapping[str, Any], keys: frozenset[str]) -> list[Cell]:
    try:
        return [
            (name, mysql_type, None if (value := image[name]) is None else convert(value), name in keys, -1)
            for name, mysql_type, convert, _ in fields
        ]
    except UNSHOWN:
        for name, mysql_type, convert, _ in fields:
            shown(name, mysql_type, convert, image.get(name))  # names the column
        raise


def unframed(raw: bytes, part: str, most: int) -> tuple[str, bytes]:
    """The schema's id and the body of a framed key or value; :class:`Malformed` of what is not framed."""
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


def _fields(schema: Any, body: bytes, part: str) -> Mapping[str, Any]:
    stream = BytesIO(body)
    try:
        found = fastavro.schemaless_reader(stream, schema, None)
    except Exception as fault:  # fastavro raises anything on damaged bytes
        raise Malformed(
            "not-avro", f"{part}, about byte {5 + stream.tell()}: {type(fault).__name__} {without_address(fault)}"
        ) from fault
    if stream.read(1) or not isinstance(found, dict):
        raise Malformed("trailing-bytes", f"{part}: bytes after the end of the record, so the schema is another one")
    return found


def without_address(fault: Exception) -> str:
    """The message of fastavro, without where in memory it read: equal messages have equal reasons."""
    return str(fault).partition(" from <")[0]


def _record(schema: str, schema_id: str) -> Record:
    try:
        found = orjson.loads(schema)
        if is_envelope(found):
            raise Malformed("bad-schema", f"schema {schema_id} of the registry is debezium's: read as debezium-avro")
        old = next((b for f in found["fields"] if f["name"] == _BEFORE and (b := record_in(f["type"]))), None)
        added = frozenset(f["name"] for f in found["fields"] if f["name"] in _EXTENSION and not _parameters(f))
        others = added | ({_BEFORE} if old else set())
        names = tuple(_field(f) for f in found["fields"] if f["name"] not in others)
        before = None if old is None else tuple(map(_field, old["fields"]))
        namespace = found.get("namespace", "").rsplit(".", 1)[-1]
        return Record(fastavro.parse_schema(_with_plain_times(found)), namespace, found["name"], names, before, added)
    except Malformed:
        raise
    except Exception as fault:
        raise Malformed("bad-schema", f"schema {schema_id} of the registry is no table's: {fault}") from fault


def record_in(kind: Any) -> Mapping[str, Any] | None:
    """The record that a field is, or may be, or None."""
    kind = not_null(kind)
    return kind if isinstance(kind, dict) and kind.get("type") == "record" else None


def not_null(kind: Any) -> Any:
    """A type without the null that a union allows."""
    return next((k for k in kind if k != "null"), None) if isinstance(kind, list) else kind


def is_envelope(schema: Any) -> bool:
    """Whether a schema is debezium's envelope: of a row, a DDL or a watermark."""
    source = next((record_in(f["type"]) for f in schema["fields"] if f["name"] == "source"), None)
    return source is not None and any(f["name"] == "commit_ts" for f in source["fields"])


def _parameters(field: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters that TiCDC writes beside the Avro type of a column; a field that it adds has none."""
    kind = not_null(field["type"])
    return kind.get("connect.parameters", {}) if isinstance(kind, dict) else {}


def _field(field: Mapping[str, Any]) -> AvroColumn:
    kind, parameters = not_null(field["type"]), _parameters(field)
    mysql_type = parameters.get("tidb_type")
    mysql_type = mysql_type.lower() if isinstance(mysql_type, str) else None
    mysql_type = "vector" if mysql_type == VECTOR_IN_AVRO else mysql_type
    if mysql_type in ("enum", "set") and "allowed" in parameters:
        labels = values.allowed_labels(parameters["allowed"])
        form = PLAIN if kind.get("type") == "string" else UNREAD
        return AvroColumn(field["name"], values.labelled(mysql_type, labels), str, form)
    if mysql_type == "decimal" and isinstance(kind, dict) and "precision" in kind:
        form = PLAIN if kind.get("logicalType") == "decimal" else UNREAD
        return AvroColumn(field["name"], f"decimal({kind['precision']},{kind.get('scale', 0)})", _plain, form)
    if isinstance(kind, dict) and (time := _TIMES.get(kind.get("logicalType", ""))):
        return AvroColumn(field["name"], mysql_type or time[0], time[1], time[2])
    base = kind if isinstance(kind, str) else kind.get("type")
    if mysql_type is None and base not in _PLAIN:
        name, said = field["name"], orjson.dumps(kind).decode()
        raise Malformed("bad-schema", f"field {name!r} has the Avro type {said:.80}, which TiCDC writes for no column")
    form = _form(mysql_type or "", "decimal" if isinstance(kind, dict) and "logicalType" in kind else base)
    return AvroColumn(field["name"], mysql_type, _converter(mysql_type or ""), form)


def _form(mysql_type: str, base: Any) -> int:
    """What :func:`_converter` reads of values of an Avro type."""
    is_number = base in ("float", "double")
    if base == "boolean" or (mysql_type in ("bit", "float") and base == "decimal"):
        return UNREAD
    if mysql_type == "bit":
        return BIG_BITS if base == "bytes" else UNREAD if is_number else PLAIN
    if mysql_type == "float":
        return FLOAT if is_number else UNREAD
    if base == "bytes":
        return BINARY
    return DOUBLE if is_number else INTEGER if mysql_type.endswith("unsigned") else PLAIN


def _with_plain_times(schema: Any) -> Any:
    """A schema in which times are the numbers that they are written as: zero dates are no times of Python's."""
    if isinstance(schema, list):
        return [_with_plain_times(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _with_plain_times(part) if name in ("type", "fields") else part for name, part in schema.items()}
    return {n: part for n, part in plain.items() if n != "logicalType" or part not in _TIMES}


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
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bool):
        return str(int(value))
    raise ValueError(f"expected a number, a text or bytes, found {type(value).__name__}")


_PLAIN = ("boolean", "int", "long", "float", "double", "string", "bytes")
_TIMES: dict[str, tuple[str, Callable[[Any], str], int]] = {
    "date": ("date", values.date_text, DATE),
    "time-millis": ("time", lambda v: values.time_text(1_000 * v), UNREAD),
    "time-micros": ("time", values.time_text, TIME),
    "timestamp-millis": ("datetime", lambda v: values.datetime_text(1_000 * v), MILLIS),
    "timestamp-micros": ("datetime", values.datetime_text, MICROS),
    "local-timestamp-millis": ("datetime", lambda v: values.datetime_text(1_000 * v), MILLIS),
    "local-timestamp-micros": ("datetime", values.datetime_text, MICROS),
}
"""Logical types of TiCDC until v5.3, whose schemas name no types of TiDB; times are in UTC."""
