"""What the fields of an Avro schema are for, one after the other, for the kernel that reads Avro.

A schema that TiCDC does not write, or a column whose values the kernel does not read, is for the codec alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ticdc_lab.codecs.debezium_types import UNREAD
from ticdc_lab.events.mysql_types import ANYTHING, FINITE, NO_MYSQL_TYPE, SINGLE, held_by

BOOL, LONG, REAL4, REAL8, TEXT, BYTES, NUMERIC, RECORD, MAP, NOTHING, STAMP = range(11)
"""How a field is written; a STAMP is a text behind another one."""

COLUMN, SKIPPED, NEW, OLD, OP, COMMIT_TS, START_TS, DB, TABLE, TABLE_ID, VERSION = range(11)
CHECKSUM, CHECKSUM_BEFORE, CORRUPTED, HANDLE_KEY, CLAIM_CHECK = range(11, 16)
N_ROLES = 16
"""What a field is for."""

_DIGITS_MAX = 65
"""Of a DECIMAL, MySQL's own limit."""


class ImageColumn(NamedTuple):
    """A column: its name and type, the form of its values, and whether it is one of the image before."""

    name: str
    mysql_type: str | None
    form: int
    is_old: bool = False


class AvroField(NamedTuple):
    """What a field is for, and how it must be written for that, if only so."""

    role: int
    wires: tuple[int, ...] = ()
    column: ImageColumn | None = None


PASSED = AvroField(SKIPPED)


class Operation(NamedTuple):
    """How a field is written, at which place in a union null stands, and what it is for.

    ``next`` is the operation behind a record, ``digits`` and ``precision`` are a decimal's.
    """

    wire: int
    null_at: int
    field: AvroField
    name: str
    is_top: bool
    next: int
    digits: int
    precision: int


class Flat(NamedTuple):
    """The operations of a schema."""

    operations: Sequence[Operation]
    schema_name: str = ""
    table_name: str = ""
    is_row: bool = True


class UnplannedError(Exception):
    """The schema is the codec's."""


_WIRES = {
    "boolean": BOOL, "int": LONG, "long": LONG, "float": REAL4, "double": REAL8, "string": TEXT, "bytes": BYTES,
    "record": RECORD, "map": MAP, "enum": LONG, "null": NOTHING,
}  # fmt: skip
_DEPTH_MAX = 4


def flat(schema: Any, field_at: Callable[[tuple[str, ...]], AvroField]) -> list[Operation]:
    """The operations of a record that fastavro has parsed, by what the field at each path is for.

    Raises UnplannedError: the kernel cannot read it.
    """
    found: list[Operation] = []
    named: Mapping[str, Any] = schema.get("__named_schemas", {})

    def add(fields: Sequence[Mapping[str, Any]], path: tuple[str, ...]) -> None:
        if len({f["name"] for f in fields}) < len(fields) or len(path) > _DEPTH_MAX:
            raise UnplannedError
        for f in fields:
            kind, null_at, own = f["type"], -1, (*path, f["name"])
            if isinstance(kind, list):
                if len(kind) != 2 or kind.count("null") != 1:
                    raise UnplannedError
                null_at = kind.index("null")
                kind = kind[1 - null_at]
            of = kind if isinstance(kind, dict) else named.get(kind, {"type": kind})
            base, field = of["type"], field_at(own)
            wire: int | None = _WIRES.get(base) if isinstance(base, str) else None
            digits, precision = -1, 0
            if "logicalType" in of:
                digits, precision = of.get("scale", 0), of.get("precision", 0)
                fits = isinstance(precision, int) and isinstance(digits, int) and 0 <= digits <= precision
                if base != "bytes" or of["logicalType"] != "decimal" or not fits or precision > _DIGITS_MAX:
                    raise UnplannedError
                wire = NUMERIC
            if wire is None or (wire not in field.wires if field.wires else wire == MAP or base == "enum"):
                raise UnplannedError
            _require_read(field.column, wire)
            at = len(found)
            found.append(Operation(wire, null_at, field, f["name"], not path, 0, digits, precision))
            if wire == RECORD:
                add(of["fields"], own)
                found[at] = found[at]._replace(next=len(found))

    add(schema["fields"], ())
    return found


def _require_read(column: ImageColumn | None, wire: int) -> None:
    if column is None:
        return
    held = ANYTHING if column.mysql_type is None else held_by(column.mysql_type)
    if column.form == UNREAD or held == NO_MYSQL_TYPE or wire in (RECORD, MAP, NOTHING):
        raise UnplannedError
    if held in (FINITE, SINGLE) and wire not in (REAL4, REAL8):
        raise UnplannedError
