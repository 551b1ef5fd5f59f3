"""Simple, TiCDC's own format, as JSON or Avro: rows name the version of their table.

A row can be decoded only with that version, which a DDL or bootstrap message brings.
:func:`ticdc_lab.sources.load.load` looks for them all first, so a row need not come after its schema; what passes here
is learned as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

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
from ticdc_lab.codecs.simple_avro import DDL_TYPES, FIRST, fields_of
from ticdc_lab.codecs.simple_versions import Fields, Tables, VersionColumn, columns_of, tables_in, version_of

if TYPE_CHECKING:
    from ticdc_lab.codecs.decoded import PartKernel


def message_of(value: bytes | None) -> Mapping[str, Any]:
    """A message as fields, from JSON or Avro."""
    return fields_of(value) if value is not None and value[:1] == FIRST else object_of(value, "value")


_OPS = {"INSERT": S.INSERT, "UPDATE": S.UPDATE, "DELETE": S.DELETE}


class SimpleCodec:
    """Messages to events, with the table versions known and those that pass."""

    def __init__(self, known: Known) -> None:
        self.tables: Tables = {v: columns_of(t) if t else () for v, t in known.tables.items()}
        self._decided = frozenset(self.tables)
        self._last = {v: (t, self.tables[v]) for v, t in known.tables.items()}

    def __call__(self, key: bytes | None, value: bytes | None) -> Sequence[Event]:
        """The event of a message."""
        message = message_of(value)
        for table in tables_in(message):
            version = version_of(table)
            last, made = self._last.get(version, (None, None))
            if table == last and self.tables.get(version) is made:  # a bootstrap repeats it every few seconds
                continue
            columns, known = columns_of(table), self.tables.get(version)
            if version not in self._decided:  # by all messages
                self.tables[version] = columns if known in (None, columns) else ()
            self._last[version] = table, self.tables[version]
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
            shown(name, mysql_type, convert, given.get(name))  # names the column
        raise
    if len(found) < len(given):
        other = sorted(given.keys() - {c[0] for c in found})
        raise Malformed("unknown-column", f"the table version has no column {other[0]!r}")
    return found
