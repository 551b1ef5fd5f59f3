"""The storage sink's schema files, and how its csv is cut into fields."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any, NamedTuple

from ticdc_lab.settings import Settings


class Cut(NamedTuple):
    """How records of a csv file are cut into fields; by default as TiCDC does."""

    delimiter: str = ","
    quote: str = '"'  # empty: texts are not quoted but escaped with a backslash
    null: str = r"\N"

    @classmethod
    def of(cls, settings: Settings) -> Cut:
        """As the changefeed was set, as far as that is known."""
        return cls(*(settings.value(f"sink.csv.{name}", default) for name, default in cls._field_defaults.items()))


_FIELDS = {"Table": str, "Schema": str, "Version": int, "TableVersion": int, "Query": str, "Type": int}
_COLUMN_FIELDS = (
    "ColumnId", "ColumnName", "ColumnType", "ColumnDefault", "ColumnPrecision", "ColumnScale", "ColumnNullable",
    "ColumnIsPk", "ColumnElems",
)  # fmt: skip
"""In the order in which TiCDC's encoder writes them."""
_ALWAYS = ("ColumnName", "ColumnType")
_GO_ESCAPES = {"&": "\\u0026", "<": "\\u003c", ">": "\\u003e", "\u2028": "\\u2028", "\u2029": "\\u2029"}


class TableFileError(Exception):
    """A schema file that cannot be used: ``error_class`` and one sentence."""

    def __init__(self, error_class: str, reason: str) -> None:
        super().__init__(reason)
        self.error_class = error_class


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as a schema file describes it.

    ``mysql_type`` is in lower case, ``elements`` belong to ENUM and SET, ``length`` is of characters, bytes, bits or
    digits, ``scale`` of digits behind the point.
    """

    name: str
    mysql_type: str
    is_key: bool
    elements: tuple[str, ...] = ()
    nullable: bool = True
    length: int | None = None
    scale: int | None = None

    @property
    def sql(self) -> str:
        """The column in a CREATE TABLE; empty if the file's type is incomplete."""
        base, _, more = self.mysql_type.partition(" ")
        digits = {"decimal": (self.length, self.scale)} | dict.fromkeys(_SIZED, (self.length,))
        inside: list[object] = [*digits.get(base, ())]
        if base in ("enum", "set"):
            inside = ["'" + e.replace("\\", "\\\\").replace("'", "''") + "'" for e in self.elements] or [None]
        if None in inside:
            return ""
        kind = f"{base}({','.join(map(str, inside))})" if inside else base
        return " ".join(filter(None, (_quoted(self.name), kind, more, "" if self.nullable else "NOT NULL")))


_SIZED = ("char", "varchar", "binary", "varbinary", "bit")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class TableFile:
    """A schema file: the DDL that made a table version, and the table's columns after it."""

    schema: str
    table: str
    version: int
    query: str
    ddl_type: int
    columns: tuple[TableColumn, ...]
    checksum: int

    @property
    def statement(self) -> str | None:
        """A CREATE TABLE with these columns; None if the file misses one."""
        columns = [c.sql for c in self.columns]
        keys = ", ".join(_quoted(c.name) for c in self.columns if c.is_key)
        inside = ", ".join(columns + [f"PRIMARY KEY ({keys})"] * bool(keys))
        return (
            f"CREATE TABLE {_quoted(self.schema)}.{_quoted(self.table)} ({inside})"
            if columns and all(columns)
            else None
        )


def read_table_file(raw: bytes) -> TableFile:
    """Read a schema file. Raises TableFileError: ``schema-not-json``, ``schema-fields`` or ``schema-columns``."""
    try:
        body = json.loads(raw.decode("utf-8-sig"))
        json.dumps(body, ensure_ascii=False).encode()  # half a surrogate pair, which JSON can escape, is no text
    except (ValueError, RecursionError) as e:
        raise TableFileError("schema-not-json", f"expected a JSON object of a table's definition: {e}") from None
    if not isinstance(body, dict):
        raise TableFileError("schema-not-json", f"expected a JSON object, found {type(body).__name__}")
    if not {"TableVersion", "Query", "Type"} & body.keys():  # TiCDC v6.4 wrote a definition alone, and its version here
        body |= {"TableVersion": body.get("Version"), "Query": "", "Type": 0}
    for name, kind in _FIELDS.items():
        if type(body.get(name)) is not kind:
            raise TableFileError("schema-fields", f"expected {name} as {kind.__name__}, found {body.get(name)!r:.80}")
    columns = body.get("TableColumns") or []
    if not isinstance(columns, list) or not all(map(_is_column, columns)):
        raise TableFileError("schema-columns", "expected TableColumns as a list of columns with name and type")
    if body.get("TableColumnsTotal") != len(columns):
        total = body.get("TableColumnsTotal")
        raise TableFileError("schema-columns", f"TableColumnsTotal is {total!r:.80}, found {len(columns)} columns")
    return TableFile(
        body["Schema"],
        body["Table"],
        body["TableVersion"],
        body["Query"],
        body["Type"],
        tuple(map(_column, columns)),
        checksum(body),
    )


def require_name(file: TableFile, *, version: int, written: int | None) -> None:
    """Raise :class:`TableFileError` unless a schema file has the version, and the checksum if any, of its path."""
    if file.version != version:
        raise TableFileError("schema-version", f"the path has table version {version}, the file {file.version}")
    if written is not None and file.checksum != written:
        raise TableFileError(
            "schema-checksum",
            f"the name has checksum {written:010d}, the definition in the file has {file.checksum:010d}",
        )


def checksum(body: dict[str, Any]) -> int:
    """The checksum of a definition, as in the name of its schema file.

    CRC-32 (IEEE) of the definition as Go's ``json.MarshalIndent`` writes it with four spaces, without Query, Type and
    TableVersion, with Version 0, columns sorted by name and their fields in Go's order. Verified on every schema file
    of the golden data.
    """
    columns = sorted(body.get("TableColumns") or [], key=lambda c: str(c["ColumnName"]).encode())
    content = {
        "Table": body["Table"],
        "Schema": body["Schema"],
        "Version": 0,
        "TableColumns": [
            {f: c[f] for f in _COLUMN_FIELDS if f in c and (f in _ALWAYS or _said(f, c[f]))} for c in columns
        ],
        "TableColumnsTotal": body.get("TableColumnsTotal", 0),
    }
    text = json.dumps(content, ensure_ascii=False, indent=4)
    for char, escaped in _GO_ESCAPES.items():
        text = text.replace(char, escaped)
    return zlib.crc32(text.encode("utf-8", "replace"))


def _said(field: str, value: Any) -> bool:
    """Whether Go writes a field that it may omit: it leaves out a null, and an empty text unless a default."""
    return value is not None and value != [] and (value != "" or field == "ColumnDefault")


def _is_column(c: Any) -> bool:
    elements = c.get("ColumnElems") if isinstance(c, dict) else None
    texts = isinstance(elements, list | None) and all(isinstance(e, str) for e in elements or ())
    return isinstance(c, dict) and all(isinstance(c.get(f), str) for f in _ALWAYS) and texts


def _column(c: dict[str, Any]) -> TableColumn:
    elements = tuple(c.get("ColumnElems") or ())
    length, scale = (
        int(text) if isinstance(text := c.get(f), str) and text.isascii() and text.isdigit() else None
        for f in ("ColumnPrecision", "ColumnScale")
    )
    kind, is_key, nullable = c["ColumnType"].lower(), c.get("ColumnIsPk") == "true", c.get("ColumnNullable") != "false"
    return TableColumn(c["ColumnName"], kind, is_key, elements, nullable, length, scale)
