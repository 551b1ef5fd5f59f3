"""The protobuf messages of canal that TiCDC writes: names, numbers and kinds of their fields.

The facts are those of canal's public protocol files (``CanalProtocol.proto``, ``EntryProtocol.proto``, canal 1.1.4 and
later). Only fields that TiCDC fills are here; protobuf steps over any other. The pool is our own, so that a program
which has canal's classes already keeps them.
"""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

MESSAGES_PACKET = 7
"""``PacketType`` of a packet that holds entries."""

ROW_DATA = 2
"""``EntryType`` of an entry that holds a row change or a DDL statement."""

COMPRESSIONS = {2: "ZLIB", 3: "GZIP", 4: "LZF"}
"""``Compression`` of a packet's body, where there is one."""

ENTRY_TYPES = {1: "TRANSACTIONBEGIN", 2: "ROWDATA", 3: "TRANSACTIONEND", 4: "HEARTBEAT", 5: "GTIDLOG"}
EVENT_TYPES = {
    1: "INSERT", 2: "UPDATE", 3: "DELETE", 4: "CREATE", 5: "ALTER", 6: "ERASE", 7: "QUERY", 8: "TRUNCATE",
    9: "RENAME", 10: "CINDEX", 11: "DINDEX", 12: "GTID", 13: "XACOMMIT", 14: "XAROLLBACK", 15: "MHEARTBEAT",
}  # fmt: skip

# The enumerations are plain numbers here: on the wire they are the same, and a number without a name stays readable.
_FIELDS = {
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
    for message, fields in _FIELDS.items():
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
