"""Canal's protobuf as classic TiCDC writes it: a packet of entries (docs/reading.md).

There is no commit_ts: an entry has only the millisecond of it (``executeTime``), which is not made into one here.
There is no watermark either. Values are text as in canal-json: bytes as ISO-8859-1, ENUM and SET as numbers, FLOAT and
DOUBLE in digits. ``is_key`` is the primary key alone: a not-null unique key is not marked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from google.protobuf.message import DecodeError

from ticdc_lab.codecs import values
from ticdc_lab.codecs.canal_messages import (
    COMPRESSIONS,
    ENTRY_TYPES,
    EVENT_TYPES,
    MESSAGES_PACKET,
    ROW_DATA,
    Entry,
    Messages,
    Packet,
    RowChange,
)
from ticdc_lab.codecs.event import Codec, Column, Event, Malformed
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.known import Known
from ticdc_lab.events.mysql_types import BINARIES, base_of

_OPS = {1: S.INSERT, 2: S.UPDATE, 3: S.DELETE}
_DDL = range(4, 12)
_PLAIN, _BINARY, _FLOAT = range(3)
_FORMS = dict.fromkeys(BINARIES, _BINARY) | dict.fromkeys(("float", "double"), _FLOAT)
_DIGITS = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def codec(known: Known) -> Codec:
    """Messages to events; nothing beside them is needed."""
    return decode


def decode(key: bytes | None, value: bytes | None) -> Sequence[Event]:
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
        raise Malformed("missing-field", "the packet holds no entry")
    return [event for entry in entries for event in _events(_parsed(Entry, entry, "Entry"))]


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


def _image(columns: Sequence[Any], name: str) -> list[Column]:
    if not columns:
        raise Malformed("missing-field", f"{name} is empty, which holds the row of such an event")
    image = [Column(c.name, c.mysqlType, None if c.isNull else _shown(c, c.value), c.isKey) for c in columns]
    if len({c.name for c in image}) < len(image):
        raise Malformed("duplicate-key", f"{name} holds a column twice")
    return image


def _shown(column: Any, text: str) -> str:
    form = _form(column.mysqlType)
    if form == _PLAIN:
        return text
    if form == _FLOAT:
        return values.number_text(text) if _DIGITS.fullmatch(text) else text
    try:
        return values.binary_text(text.encode("latin-1"))
    except UnicodeEncodeError as fault:
        raise Malformed(
            "bad-type", f"column {column.name!r} ({column.mysqlType}): {text[:60]!r} is no text of bytes (ISO-8859-1)"
        ) from fault


@lru_cache(4_096)
def _form(mysql_type: str) -> int:
    return _FORMS.get(base_of(mysql_type), _PLAIN)
