"""Simple in Avro, as pingcap/ticdc, `pkg/sink/codec/simple`, writes it: one schema for all messages.

That is a union of all of the format's types, with the message as number 11, and in it one of four payloads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import fastavro

from ticdc_lab.codecs import avro_fields as F
from ticdc_lab.codecs.avro import without_address
from ticdc_lab.codecs.avro_fields import AvroField, Flat, flat
from ticdc_lab.codecs.event import Malformed
from ticdc_lab.codecs.fields import members

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


def fields_of(value: bytes) -> Mapping[str, Any]:
    """A message's payload, by the names of the JSON form."""
    stream = BytesIO(value)
    stream.seek(1)
    try:
        message = fastavro.schemaless_reader(stream, _MESSAGE, None)
    except Exception as fault:  # fastavro raises anything on damaged bytes
        raise Malformed(
            "not-avro", f"value, about byte {stream.tell()}: {type(fault).__name__}: {without_address(fault)}"
        ) from fault
    if stream.read(1):
        raise Malformed("trailing-bytes", f"value, byte {stream.tell() - 1}: bytes after the end of the message")
    whole = members(message, "message")
    return {"type": whole["type"]} | dict(members(whole["payload"], "payload"))  # DDL and rows have a finer type


_FIELDS = {
    ("commitTs",): AvroField(F.COMMIT_TS, (F.LONG,)),
    ("database",): AvroField(F.DB, (F.TEXT,)),
    ("table",): AvroField(F.TABLE, (F.TEXT,)),
    ("tableID",): AvroField(F.TABLE_ID, (F.LONG,)),
    ("type",): AvroField(F.OP, (F.LONG,)),
    ("schemaVersion",): AvroField(F.VERSION, (F.LONG,)),
    ("claimCheckLocation",): AvroField(F.CLAIM_CHECK, (F.TEXT,)),
    ("handleKeyOnly",): AvroField(F.HANDLE_KEY, (F.BOOL,)),
    ("checksum", "corrupted"): AvroField(F.CORRUPTED, (F.BOOL,)),
    ("checksum", "current"): AvroField(F.CHECKSUM, (F.LONG,)),
    ("checksum", "previous"): AvroField(F.CHECKSUM_BEFORE, (F.LONG,)),
    ("data",): AvroField(F.NEW, (F.MAP,)),
    ("old",): AvroField(F.OLD, (F.MAP,)),
}


def flats() -> dict[int, Flat]:
    """What the kernel reads: watermarks and rows, by the number of their payload, as its first bytes write it."""
    payloads: Sequence[Any] = _MESSAGE["fields"][1]["type"]  # type: ignore[index, call-overload]
    return {2 * i: Flat(flat(payloads[i], lambda path: _FIELDS.get(path, F.PASSED))) for i in (0, 3)}
