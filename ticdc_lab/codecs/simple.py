"""Simple, TiCDC's own format, as JSON or Avro: rows say which version of their table they follow.

A row can be decoded only with that version, which a DDL or bootstrap message brings. :func:`ticdc_lab.load.load` looks
for them all first, so a row need not come after its schema; what passes here is learned as well.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ticdc_lab.codecs import simple_avro, values
from ticdc_lab.codecs.builder import Codec, Column, Event, Malformed
from ticdc_lab.codecs.fields import integer, members, object_of, optional, require, text
from ticdc_lab.codecs.kernel import state as S
from ticdc_lab.codecs.known import Known

Version = tuple[str, str, int]
Fields = Mapping[str, Any]

_OPS = {"INSERT": S.INSERT, "UPDATE": S.UPDATE, "DELETE": S.DELETE}
_BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")


class TableColumn(NamedTuple):
    """What a table version says of a column."""

    name: str
    mysql_type: str
    is_key: bool
    convert: Callable[[Any], str]


Tables = dict[Version, tuple[TableColumn, ...]]


def codec(known: Known) -> Codec:
    """Messages to events, with the table versions known and those that pass."""
    tables: Tables = {version: columns_of(table) for version, table in known.tables.items()}

    def decode(key: bytes | None, value: bytes | None) -> Sequence[Event]:
        message = message_of(value)
        for table in tables_in(message):
            tables[version_of(table)] = columns_of(table)
        return [_event(message, tables)]

    return decode


def message_of(value: bytes | None) -> Fields:
    """A message as fields, from JSON or Avro."""
    if value is not None and value[:1] == simple_avro.FIRST:
        return simple_avro.fields_of(value)
    return object_of(value, "value")


def tables_in(message: Fields) -> list[Fields]:
    """The table versions a DDL or bootstrap message brings."""
    found = (message.get(name) for name in ("tableSchema", "preTableSchema"))
    return [members(table, "tableSchema") for table in found if table is not None]


def version_of(table: Fields) -> Version:
    """What rows call a table version by."""
    return optional(table, "schema") or text(table, "database"), text(table, "table"), integer(table, "version")


def columns_of(table: Fields) -> tuple[TableColumn, ...]:
    """Columns of a table version in their order."""
    keys = _handle(table)
    columns = []
    for column in require(table, "columns"):
        kind = members(require(members(column, "column"), "dataType"), "dataType")
        name, base = text(column, "name"), text(kind, "mysqlType").lower()
        columns.append(TableColumn(name, _full_type(base, kind), name in keys, _converter(base, kind)))
    return tuple(columns)


def _handle(table: Fields) -> frozenset[str]:
    """The primary key, else the not-null unique index with the fewest columns (golden README section 2)."""
    indexes = [members(index, "index") for index in table.get("indexes") or ()]
    primary = [i for i in indexes if i.get("primary")]
    unique = [i for i in indexes if i.get("unique") and not i.get("nullable")]
    chosen = primary[:1] or sorted(unique, key=lambda i: len(i["columns"]))[:1]
    return frozenset(chosen[0]["columns"]) if chosen else frozenset()


def _full_type(base: str, kind: Fields) -> str:
    """The type as SQL writes it, as far as the message tells."""
    length, decimal = kind.get("length"), kind.get("decimal")
    if base in ("enum", "set"):
        return f"{base}({','.join(_quoted(label) for label in kind.get('elements') or ())})"
    if base in ("time", "datetime", "timestamp"):
        return f"{base}({decimal})" if decimal else base
    unsigned = " unsigned" if kind.get("unsigned") and base not in ("bit", "year") else ""
    if base == "decimal":
        return f"decimal({length},{decimal or 0}){unsigned}"
    sized = base in ("char", "varchar", "binary", "varbinary", "bit") and length is not None
    return f"{base}({length})" if sized else base + unsigned


def _quoted(label: str) -> str:
    return "'" + label.replace("'", "''") + "'"


def _converter(base: str, kind: Fields) -> Callable[[Any], str]:
    if base in _BINARY:
        return _binary
    if base in ("float", "double"):
        shown = values.float_text if base == "float" else values.double_text
        return lambda v: shown(float(v))
    unsigned = bool(kind.get("unsigned"))
    return lambda v: _plain(v, unsigned)


def _binary(value: Any) -> str:
    return values.binary_text(value if isinstance(value, bytes) else b64decode(value, validate=True))


def _plain(value: Any, unsigned: bool) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):  # a timestamp with its location, or Avro's unsigned number
        return _plain(value["value"], unsigned)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"a {type(value).__name__} is none of the forms of this format")
    return str(values.unsigned(value, "unsigned") if unsigned else value)


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
    if kind not in simple_avro.DDL_TYPES:
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
    after, before = (_image(message.get(name), columns) for name in ("data", "old"))
    if (after is None) != (op == S.DELETE) or (before is None and op == S.DELETE):
        raise Malformed("missing-field", "the images that are there (data, old) do not go with the type of the row")
    return Event(
        S.ROW, integer(message, "commitTs"), schema, table, integer(message, "tableID"), op, after, before,
        incomplete=_incomplete(message),
    )  # fmt: skip


def _incomplete(message: Fields) -> str | None:
    if message.get("claimCheckLocation"):
        return "claim-check-missing"
    return "handle-key-only" if message.get("handleKeyOnly") else None


def _image(image: Any, columns: Sequence[TableColumn]) -> list[Column] | None:
    """The columns that are there, in the table's order; one that the table has not is a fault."""
    if image is None:
        return None
    given = members(image, "image")
    found = []
    for name, mysql_type, is_key, convert in columns:
        if name in given:
            value = given[name]
            try:
                shown = None if value is None else convert(value)
            except (TypeError, ValueError, KeyError) as fault:
                raise Malformed("bad-type", f"column {name!r} ({mysql_type}): found {value!r}: {fault}") from fault
            found.append(Column(name, mysql_type, shown, is_key))
    if len(found) < len(given):
        other = sorted(given.keys() - {c.name for c in found})
        raise Malformed("unknown-column", f"the table version has no column {other[0]!r}")
    return found
