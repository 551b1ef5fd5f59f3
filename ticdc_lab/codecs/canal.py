"""Canal's protobuf as classic TiCDC writes it: a packet of entries (docs/reading.md).

There is no commit_ts: an entry has only the millisecond of it (``executeTime``), which is not made into one here.
There is no watermark either. Values are text as in canal-json: bytes as ISO-8859-1, ENUM and SET as numbers, FLOAT and
DOUBLE in digits. ``is_key`` is the primary key alone: a not-null unique key is not marked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ticdc_lab.codecs import values
from ticdc_lab.codecs.event import Cell, Codec, Event, Malformed
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.known import BOUNDS, Bounds, Known, too_large
from ticdc_lab.events.mysql_types import BINARIES, base_of

_OPS = {1: S.INSERT, 2: S.UPDATE, 3: S.DELETE}
_DDL = range(4, 12)
_PLAIN, _BINARY, _FLOAT = range(3)
_FORMS = dict.fromkeys(BINARIES, _BINARY) | dict.fromkeys(("float", "double"), _FLOAT)
_DIGITS = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def codec(known: Known) -> Codec:
    """Messages to events; nothing beside them is needed."""
    return partial(decode, bounds=known.bounds)


def decode(key: bytes | None, value: bytes | None, *, bounds: Bounds = BOUNDS) -> Sequence[Event]:
    """The events of a message, in the order of its entries and their rows; the key is null."""
    if value is None:
        raise Malformed("null-value", "value: expected a packet of canal, found none")
    packet = _parsed(Packet, value, "Packet")
    if packet.type != MESSAGES_PACKET:
        raise Malformed("unknown-type", f"the packet's type is {packet.type}; expected {MESSAGES_PACKET} (MESSAGES)")
    if packet.compression not in (0, 1):
        name = COMPRESSIONS.get(packet.compression, packet.compression)
        raise Malformed("compressed", f"the packet's body is compressed ({name}), which canal's own client refuses")
    entries = _parsed(Messages, packet.body, "Messages").messages
    if not entries:
        raise Malformed("missing-field", "the packet has no entry")
    events = [event for entry in entries for event in _events(_parsed(Entry, entry, "Entry"))]
    _require_bounded(events, len(value), bounds)
    return events


def _require_bounded(events: Sequence[Event], size: int, bounds: Bounds) -> None:
    """Refuse a message of ``size`` bytes whose rows repeat the names of its header until they are too much.

    All other texts lie in the message, and none becomes four times as long.
    """
    most = bounds.growth_free + bounds.growth * size
    if 4 * (size + sum(len(f"{e.schema_name}{e.table_name}") for e in events)) <= most:
        return
    found = sum(_text_bytes(e) for e in events)
    if found > most:
        raise too_large("bytes of the events' texts", found, "growth", most)


def _text_bytes(event: Event) -> int:
    cells = [*(event.columns or ()), *(event.before or ())]
    texts = [event.schema_name, event.table_name, event.query, event.ddl_type, *(t for c in cells for t in c[:3])]
    return sum(len(t.encode()) for t in texts if t)


def _parsed(kind: type, raw: bytes, name: str) -> Any:
    try:
        return kind.FromString(raw)  # type: ignore[attr-defined]  # protobuf makes these classes when it is imported
    except DecodeError as fault:
        raise Malformed("not-protobuf", f"{len(raw)} bytes are no {name} of canal: {fault}") from fault


def _events(entry: Any) -> list[Event]:
    if entry.entryType != ROW_DATA:
        name = ENTRY_TYPES.get(entry.entryType, entry.entryType)
        raise Malformed("unknown-type", f"the entry's type is {name}; TiCDC writes {ENTRY_TYPES[ROW_DATA]} alone")
    change = _parsed(RowChange, entry.storeValue, "RowChange")
    header = entry.header
    if change.isDdl:
        return [_ddl(header, change)]
    if change.eventType not in _OPS:
        name = EVENT_TYPES.get(change.eventType, change.eventType)
        raise Malformed("unknown-type", f"the entry's event is {name} and no DDL; expected INSERT, UPDATE or DELETE")
    if not header.schemaName or not header.tableName or not change.rowDatas:
        raise Malformed("missing-field", "expected schemaName, tableName and rowDatas; one of them is empty")
    return [_row(header, _OPS[change.eventType], row) for row in change.rowDatas]


def _ddl(header: Any, change: Any) -> Event:
    if change.eventType not in _DDL:
        raise Malformed("unknown-type", f"the entry is a DDL whose event has the number {change.eventType}")
    if not change.sql:
        raise Malformed("missing-field", "the entry is a DDL without its text (sql)")
    schema = header.schemaName or change.ddlSchemaName
    kind = EVENT_TYPES[change.eventType]
    return Event(S.DDL, None, schema, header.tableName, query=change.sql, ddl_type=kind)


def _row(header: Any, op: int, row: Any) -> Event:
    columns = None if op == S.DELETE else _image(row.afterColumns, "afterColumns")
    before = None if op == S.INSERT else _image(row.beforeColumns, "beforeColumns")
    return Event(S.ROW, None, header.schemaName, header.tableName, op=op, columns=columns, before=before)


def _image(columns: Sequence[Any], name: str) -> list[Cell]:
    if not columns:
        raise Malformed("missing-field", f"{name} is empty, which contains the row of such an event")
    image: list[Cell] = []
    for c in columns:
        called, mysql_type = c.name, c.mysqlType
        text = None if c.isNull else c.value
        if text is not None and (form := _form(mysql_type)):
            text = _shown(called, mysql_type, form, text)
        image.append((called, mysql_type, text, c.isKey, -1))
    if len({cell[0] for cell in image}) < len(image):
        raise Malformed("duplicate-key", f"{name} has a column twice")
    return image


def _shown(name: str, mysql_type: str, form: int, text: str) -> str:
    if form == _FLOAT:
        shown = values.number_text(text) if _DIGITS.fullmatch(text) else text
        return values.single_text(shown) if shown is not text and mysql_type.startswith("float") else shown
    try:
        return values.binary_text(text.encode("latin-1"))
    except UnicodeEncodeError as fault:
        raise Malformed(
            "bad-type", f"column {name!r} ({mysql_type}): {text[:60]!r} is no text of bytes (ISO-8859-1)"
        ) from fault


@lru_cache(4_096)
def _form(mysql_type: str) -> int:
    return _FORMS.get(base_of(mysql_type), _PLAIN)


# The protobuf messages of canal that TiCDC writes: names, numbers and kinds of their fields. The facts are from
# canal's public protocol files (``CanalProtocol.proto``, ``EntryProtocol.proto``, canal 1.1.4 and later). Only fields
# that TiCDC fills are here; protobuf steps over any other. The pool is our own, so that a program which has canal's
# classes already keeps them.

MESSAGES_PACKET = 7
"""``PacketType`` of a packet that holds entries."""

ROW_DATA = 2
"""``EntryType`` of an entry with a row change or a DDL statement."""

COMPRESSIONS = {2: "ZLIB", 3: "GZIP", 4: "LZF"}
"""``Compression`` of a packet's body, where there is one."""

ENTRY_TYPES = {1: "TRANSACTIONBEGIN", 2: "ROWDATA", 3: "TRANSACTIONEND", 4: "HEARTBEAT", 5: "GTIDLOG"}
EVENT_TYPES = {
    1: "INSERT", 2: "UPDATE", 3: "DELETE", 4: "CREATE", 5: "ALTER", 6: "ERASE", 7: "QUERY", 8: "TRUNCATE",
    9: "RENAME", 10: "CINDEX", 11: "DINDEX", 12: "GTID", 13: "XACOMMIT", 14: "XAROLLBACK", 15: "MHEARTBEAT",
}  # fmt: skip

# The enumerations are plain numbers here: on the wire they are the same, and a number without a name stays readable.
FIELDS = {
    "Packet": {"magic_number": (1, "int32"), "version": (2, "int32"), "type": (3, "int32"),
               "compression": (4, "int32"), "body": (5, "bytes")},
    "Messages": {"batch_id": (1, "int64"), "messages": (2, "bytes*")},
    "Entry": {"header": (1, "Header"), "entryType": (2, "int32"), "storeValue": (3, "bytes")},
    "Header": {"version": (1, "int32"), "serverenCode": (5, "string"), "executeTime": (6, "int64"),
               "sourceType": (7, "int32"), "schemaName": (8, "string"), "tableName": (9, "string"),
               "eventType": (11, "int32"), "props": (12, "Pair*")},
    "Pair": {"key": (1, "string"), "value": (2, "string")},
    "RowChange": {"tableId": (1, "int64"), "eventType": (2, "int32"), "isDdl": (10, "bool"), "sql": (11, "string"),
                  "rowDatas": (12, "RowData*"), "ddlSchemaName": (14, "string")},
    "RowData": {"beforeColumns": (1, "Column*"), "afterColumns": (2, "Column*")},
    "Column": {"index": (1, "int32"), "sqlType": (2, "int32"), "name": (3, "string"), "isKey": (4, "bool"),
               "updated": (5, "bool"), "isNull": (6, "bool"), "value": (8, "string"), "mysqlType": (10, "string")},
}  # fmt: skip
_KINDS = {
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
}
_PACKAGE = "com.alibaba.otter.canal.protocol"


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="canal.proto", package=_PACKAGE, syntax="proto3")
    for message, fields in FIELDS.items():
        described = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            base, many = kind.rstrip("*"), kind.endswith("*")
            label = FieldDescriptorProto.LABEL_REPEATED if many else FieldDescriptorProto.LABEL_OPTIONAL
            field = described.field.add(name=name, number=number, label=label)
            field.type = _KINDS.get(base, FieldDescriptorProto.TYPE_MESSAGE)
            if base not in _KINDS:
                field.type_name = f".{_PACKAGE}.{base}"
    return file


_POOL = DescriptorPool()
_POOL.Add(_file())


def _class(name: str) -> type:
    found: type = GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
    return found


Packet, Messages, Entry, RowChange = map(_class, ("Packet", "Messages", "Entry", "RowChange"))
