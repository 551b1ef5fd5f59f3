"""Simple, TiCDC's own format, as JSON or Avro: rows say which version of their table they follow.

A row can be decoded only with that version, which a DDL or bootstrap message brings.
:func:`ticdc_lab.sources.load.load` looks for them all first, so a row need not come after its schema; what passes here
is learned as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any

import fastavro

from ticdc_lab.codecs.event import CORRUPTED, Cell, Event, Malformed
from ticdc_lab.codecs.fields import (
    UNSHOWN,
    checksum_of,
    integer,
    members,
    object_of,
    optional,
    shown,
    text,
)  # fmt: skip
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.known import Known
from ticdc_lab.codecs.simple_versions import Fields, Tables, VersionColumn, columns_of, tables_in, version_of

if TYPE_CHECKING:
    from ticdc_lab.codecs.decoded import PartKernel

# Its Avro form, as pingcap/ticdc, `pkg/sink/codec/simple`, writes it: one schema for all messages, a union of all of
# the format's types, of which the message is number 11, and in it one of four payloads.

FIRST = b"\x16"
"""The first byte of every message: the message's number in the union, as Avro writes it."""

BRINGING = (b"\x02", b"\x04")
"""The second byte of messages that bring table versions: bootstrap and DDL."""

DDL_TYPES = ("CREATE", "ALTER", "ERASE", "RENAME", "TRUNCATE", "CINDEX", "DINDEX", "QUERY")
DML_TYPES = ("INSERT", "UPDATE", "DELETE")


def _record(called: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": called, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def _maybe(kind: Any) -> list[Any]:
    return ["null", kind]


def _enum(called: str, symbols: Sequence[str]) -> dict[str, Any]:
    return {"type": "enum", "name": called, "symbols": list(symbols)}


_TYPE = _record(
    "DataType", mysqlType="string", charset="string", collate="string", length="long", decimal=_maybe("int"),
    elements=_maybe({"type": "array", "items": "string"}), unsigned=_maybe("boolean"), zerofill=_maybe("boolean"),
)  # fmt: skip
_COLUMN = _record("ColumnSchema", name="string", dataType=_TYPE, nullable="boolean", default=_maybe("string"))
_INDEX = _record(
    "IndexSchema", name="string", unique="boolean", primary="boolean", nullable="boolean",
    columns={"type": "array", "items": "string"},
)  # fmt: skip
_TABLE = _record(
    "TableSchema", database="string", table="string", tableID="long", version="long",
    columns={"type": "array", "items": _COLUMN}, indexes={"type": "array", "items": _INDEX},
)  # fmt: skip
_CHECKSUM = _record("Checksum", version="int", corrupted="boolean", current="long", previous="long")
_TIMESTAMP = _record("Timestamp", location="string", value="string")
_UNSIGNED = _record("UnsignedBigint", value="long")
_VALUES = ["null", "long", "float", "double", "string", "bytes", _TIMESTAMP, _UNSIGNED]
_VALUES_AGAIN = ["null", "long", "float", "double", "string", "bytes", "Timestamp", "UnsignedBigint"]
_MESSAGE = fastavro.parse_schema(
    _record(
        "Message",
        type=_enum("MessageType", ("WATERMARK", "BOOTSTRAP", "DDL", "DML")),
        payload=[
            _record("Watermark", version="int", commitTs="long", buildTs="long"),
            _record("Bootstrap", version="int", buildTs="long", tableSchema=_TABLE),
            _record(
                "DDL", version="int", type=_enum("DDLType", DDL_TYPES), sql="string", commitTs="long", buildTs="long",
                tableSchema=_maybe("TableSchema"), preTableSchema=_maybe("TableSchema"),
            ),
            _record(
                "DML", version="int", database="string", table="string", tableID="long",
                type=_enum("DMLType", DML_TYPES), commitTs="long", buildTs="long", schemaVersion="long",
                claimCheckLocation=_maybe("string"), handleKeyOnly=_maybe("boolean"), checksum=_maybe(_CHECKSUM),
                data=_maybe({"type": "map", "values": _VALUES}), old=_maybe({"type": "map", "values": _VALUES_AGAIN}),
            ),
        ],
    )
)  # fmt: skip


def message_of(value: bytes | None) -> Mapping[str, Any]:
    """A message as fields, from JSON or Avro."""
    return fields_of(value) if value is not None and value[:1] == FIRST else object_of(value, "value")


def fields_of(value: bytes) -> Mapping[str, Any]:
    """A message's payload, by the names of the JSON form."""
    stream = BytesIO(value)
    stream.seek(1)
    try:
        message = fastavro.schemaless_reader(stream, _MESSAGE, None)
    except Exception as fault:  # fastavro lets through whatever its reading of damaged bytes runs into
        raise Malformed("not-avro", f"value, about byte {stream.tell()}: {type(fault).__name__}: {fault}") from fault
    if stream.read(1):
        raise Malformed("trailing-bytes", f"value, byte {stream.tell() - 1}: bytes after the end of the message")
    whole = members(message, "message")
    return {"type": whole["type"]} | dict(members(whole["payload"], "payload"))  # DDL and rows have a finer type


_OPS = {"INSERT": S.INSERT, "UPDATE": S.UPDATE, "DELETE": S.DELETE}


class SimpleCodec:
    """Messages to events, with the table versions known and those that pass."""

    def __init__(self, known: Known) -> None:
        self.tables: Tables = {v: columns_of(t) if t else () for v, t in known.tables.items()}
        self._decided = frozenset(self.tables)

    def __call__(self, key: bytes | None, value: bytes | None) -> Sequence[Event]:
        """The event of a message."""
        message = message_of(value)
        for table in tables_in(message):
            version, columns = version_of(table), columns_of(table)
            if version in self._decided:  # by all messages
                continue
            known = self.tables.get(version)
            self.tables[version] = columns if known in (None, columns) else ()
        return [_event(message, self.tables)]

    @cached_property
    def kernel(self) -> PartKernel:
        """What decodes most messages of a large log, by the same table versions."""
        from ticdc_lab.codecs.kernel.simple import SimpleKernel

        return SimpleKernel(self.tables)


codec = SimpleCodec


def _event(message: Fields, tables: Tables) -> Event:
    kind = text(message, "type")
    if kind in _OPS:
        return _row(message, _OPS[kind], tables)
    if kind == "WATERMARK":
        return Event(S.WATERMARK, integer(message, "commitTs"))
    brought = members(message.get("tableSchema") or {}, "tableSchema")
    schema, table = optional(brought, "schema") or optional(brought, "database"), optional(brought, "table")
    table_id = integer(brought, "tableID") if brought else None
    if kind == "BOOTSTRAP":
        return Event(S.BOOTSTRAP, None, schema, table, table_id)
    if kind not in DDL_TYPES:
        raise Malformed("unknown-type", f"type is {kind!r}, which is none of this format")
    query = text(message, "sql")
    return Event(S.DDL, integer(message, "commitTs"), schema, table, table_id, query=query, ddl_type=kind)


def _row(message: Fields, op: int, tables: Tables) -> Event:
    schema, table, version = text(message, "database"), text(message, "table"), integer(message, "schemaVersion")
    columns = tables.get((schema, table, version))
    if columns is None:
        raise Malformed(
            "schema-unknown",
            f"the row needs version {version} of {schema}.{table}, which no DDL or bootstrap message that was read has",
        )
    if not columns:
        raise Malformed(
            "schema-contradicted",
            f"messages contradict each other about version {version} of {schema}.{table}: which definition the row "
            "follows is not known",
        )
    after, before = (_image(message.get(name), columns) for name in ("data", "old"))
    return Event(
        S.ROW, integer(message, "commitTs"), schema, table, integer(message, "tableID"), op, after, before,
        incomplete=_incomplete(message),
        checksum=None if after is None else _checksum(message, "current"),
        checksum_before=None if before is None else _checksum(message, "previous"),
    )  # fmt: skip


def _checksum(message: Fields, which: str) -> int | None:
    return checksum_of(members(message.get("checksum") or {}, "checksum").get(which))


def _incomplete(message: Fields) -> str | None:
    if message.get("claimCheckLocation"):
        return "claim-check-missing"
    if message.get("handleKeyOnly"):
        return "handle-key-only"
    checksum = members(message.get("checksum") or {}, "checksum")
    return CORRUPTED if checksum.get("corrupted") is True else None


def _image(image: Any, columns: Sequence[VersionColumn]) -> list[Cell] | None:
    """The columns that are there, in the table's order; one that the table has not is a fault."""
    if image is None:
        return None
    given = members(image, "image")
    try:
        found: list[Cell] = [
            (name, mysql_type, None if (value := given[name]) is None else convert(value), is_key, -1)
            for name, mysql_type, is_key, convert in columns
            if name in given
        ]
    except UNSHOWN:
        for name, mysql_type, _, convert in columns:
            shown(name, mysql_type, convert, given.get(name))  # says which one it is
        raise
    if len(found) < len(given):
        other = sorted(given.keys() - {c[0] for c in found})
        raise Malformed("unknown-column", f"the table version has no column {other[0]!r}")
    return found
