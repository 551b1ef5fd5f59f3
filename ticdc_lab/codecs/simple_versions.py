"""A table version of the simple protocol: its columns, their types, and how its messages write their values."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ticdc_lab.codecs import values
from ticdc_lab.codecs.event import INT64, Malformed
from ticdc_lab.codecs.fields import integer, members, number, objects, optional, require, text
from ticdc_lab.events.mysql_types import BINARIES

Version = tuple[str, str, int]
Fields = Mapping[str, Any]

_DIGITS = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,4})?")


class VersionColumn(NamedTuple):
    """A column of a table version."""

    name: str
    mysql_type: str
    is_key: bool
    convert: Callable[[Any], str]


Tables = dict[Version, tuple[VersionColumn, ...]]


CONTRADICTED: Fields = {}
"""The definition of a table version whose messages contradict each other."""


def tables_in(message: Fields) -> list[Fields]:
    """The table versions a DDL or bootstrap message brings."""
    found = (message.get(name) for name in ("tableSchema", "preTableSchema"))
    return [members(table, "tableSchema") for table in found if table is not None]


def version_of(table: Fields) -> Version:
    """What rows call a table version by."""
    version = integer(table, "version")
    if version not in INT64:
        raise Malformed("out-of-range", f"version {version} does not fit 64 bits")
    return optional(table, "schema") or text(table, "database"), text(table, "table"), version


def columns_of(table: Fields) -> tuple[VersionColumn, ...]:
    """Columns of a table version in their order."""
    try:
        # The primary key, else the not-null unique index with the fewest columns (TiCDC's source). Where there is no
        # primary key, TiCDC lists the first of these once more, as an index `primary`.
        indexes = objects(table.get("indexes"), "indexes")
        unique = [i for i in indexes if i.get("unique") and not i.get("nullable") and not i.get("primary")]
        primary = [i for i in indexes if i.get("primary") and not _repeats(i, unique)]
        chosen = primary[:1] or sorted(unique, key=lambda i: len(i["columns"]))[:1]
        keys = frozenset(chosen[0]["columns"]) if chosen else frozenset()
        return tuple(_column(column, keys) for column in objects(require(table, "columns"), "columns"))
    except (TypeError, ValueError, LookupError, AttributeError) as fault:
        raise Malformed("bad-schema", f"the table's definition is damaged: {type(fault).__name__} {fault}") from fault


def _column(column: Fields, keys: frozenset[str]) -> VersionColumn:
    kind = members(require(column, "dataType"), "dataType")
    name, base = text(column, "name"), text(kind, "mysqlType").lower()
    return VersionColumn(name, _full_type(base, kind), name in keys, _converter(base, kind))


def _repeats(index: Fields, others: Sequence[Fields]) -> bool:
    """Whether an index is the pseudo one: a real primary key is ``PRIMARY`` or has columns of its own."""
    return index.get("name") == "primary" and any(index.get("columns") == other["columns"] for other in others)


def _full_type(base: str, kind: Fields) -> str:
    """The type as SQL writes it, as far as the message defines it."""
    length, decimal = kind.get("length"), kind.get("decimal")
    if base in ("enum", "set"):
        return values.labelled(base, kind.get("elements") or ())
    if base in ("time", "datetime", "timestamp"):
        return f"{base}({decimal})" if decimal else base
    unsigned = " unsigned" if kind.get("unsigned") and base not in ("bit", "year") else ""
    if base == "decimal":
        return f"decimal({length},{decimal or 0}){unsigned}"
    sized = base in ("char", "varchar", "binary", "varbinary", "bit") and length is not None
    return f"{base}({length})" if sized else base + unsigned


def _converter(base: str, kind: Fields) -> Callable[[Any], str]:
    if base in BINARIES:
        return as_binary
    if base in ("float", "double"):
        return as_float if base == "float" else as_double
    # of ENUM and SET Avro carries the number as a signed one
    return as_unsigned if kind.get("unsigned") or base in ("enum", "set") else _plain


def as_float(value: Any) -> str:
    """A FLOAT, a number or its digits."""
    return values.float_text(_number(value))


def as_double(value: Any) -> str:
    """A DOUBLE, a number or its digits."""
    return values.double_text(_number(value))


def _number(value: Any) -> float:
    """A number, or its digits as Go writes them."""
    if isinstance(value, str) and not _DIGITS.fullmatch(value):
        raise ValueError("expected a number")
    return float(value if isinstance(value, str) else number(value))


def as_binary(value: Any) -> str:
    """Bytes, in JSON as base64."""
    return values.binary_text(value if isinstance(value, bytes) else b64decode(value, validate=True))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else str(_written(value))


def as_unsigned(value: Any) -> str:
    """A number without a sign, which Avro carries as a signed one; a text stays as it is."""
    if isinstance(value, str):
        return value
    found = _written(value)
    return found if isinstance(found, str) else str(values.unsigned(found, "unsigned"))


def _written(value: Any) -> str | int:
    """A number, also in a timestamp with its location or in Avro's unsigned number."""
    inner = value["value"] if isinstance(value, dict) else value
    if isinstance(inner, bool) or not isinstance(inner, int | str):
        raise TypeError(f"a {type(value).__name__} is none of the forms of this format")
    return inner
