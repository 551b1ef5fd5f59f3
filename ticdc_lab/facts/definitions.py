"""What a table is: columns, indexes, and the key that rows have; and what the clauses of a DDL make of it.

The rules are TiDB's: see :class:`TableDef`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ticdc_lab.events.ddl import Cursor, DDLSyntaxError, Word, unescaped

TableName = tuple[str, str]

NAMELESS = "no table name"
"""The table of rows that name none: avro has such deletes."""


def table_text(schema_name: str | None, table_name: str | None) -> str:
    """What rows of a table are called, for people: ``schema.table``, or words where they name none."""
    return f"{schema_name or ''}.{table_name}" if table_name else NAMELESS


def avro_name(name: str) -> str:
    """A name as TiCDC writes it in Avro: with ``_`` for each character that Avro does not allow there."""
    return re.sub("^(?=[0-9])", "_", debezium_avro_name(name))


def debezium_avro_name(name: str) -> str:
    """A column's name as rows of debezium-avro have it here: it may begin with a digit."""
    return re.sub("[^A-Za-z0-9_]", "_", name)


Naming = Callable[[str], str]


def row_names(protocol: str) -> tuple[Naming, Naming]:
    """What rows of a protocol call tables and columns, of the names that TiDB and DDL have."""
    column = {"avro": avro_name, "debezium-avro": debezium_avro_name}.get(protocol, str)
    return (column if protocol == "avro" else str), column


INTEGER_TYPES = frozenset({"tinyint", "smallint", "mediumint", "int", "integer", "bigint", "bool", "boolean"})


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """One column of a table.

    ``generated`` is ``""``, ``"stored"`` or ``"virtual"``; a ``hidden`` column belongs to an expression index.
    ``default`` is the text of a literal default, None for NULL and where there is none; ``computed_default``:
    it is an expression. ``id`` stays the same when the column is renamed, moved or modified; 0 if nothing numbered
    the columns (then the name identifies it).
    """

    name: str
    mysql_type: str
    nullable: bool = True
    generated: str = ""
    hidden: bool = False
    default: str | None = field(default=None, compare=False)
    computed_default: bool = field(default=False, compare=False)
    id: int = field(default=0, compare=False)

    @property
    def is_integer(self) -> bool:
        """Whether the type is one of MySQL's integers."""
        return self.mysql_type.lower().split("(")[0].split(" ")[0] in INTEGER_TYPES


@dataclass(frozen=True, slots=True)
class IndexDef:
    """One index; ``id`` is its order of creation, as TiDB numbers them."""

    id: int
    name: str
    columns: tuple[str, ...]
    unique: bool = False
    primary: bool = False


@dataclass(frozen=True, slots=True)
class TableDef:
    """One version of a table.

    ``pk_is_handle``: TiDB stores the rows by their single integer primary key and keeps no index for it,
    so that no index is called PRIMARY there. ``columns_made`` is the greatest column id given so far.
    """

    schema_name: str
    table_name: str
    columns: tuple[ColumnDef, ...]
    indexes: tuple[IndexDef, ...] = ()
    pk_is_handle: bool = False
    columns_made: int = field(default=0, compare=False)

    def in_rows(self, protocol: str) -> TableDef:
        """The same by the names that rows of a protocol have.

        TiCDC writes no row of a table where two columns would have one name: these keep theirs.
        """
        table, named = row_names(protocol)
        alike = Counter(named(c.name) for c in self.columns)

        def column(name: str) -> str:
            return named(name) if alike[named(name)] == 1 else name

        return replace(
            self, schema_name=table(self.schema_name), table_name=table(self.table_name),
            columns=tuple(replace(c, name=column(c.name)) for c in self.columns),
            indexes=tuple(replace(i, columns=tuple(map(column, i.columns))) for i in self.indexes),
        )  # fmt: skip

    def column(self, name: str) -> ColumnDef | None:
        """The column of that name, in any case."""
        return next((c for c in self.columns if c.name.lower() == name.lower()), None)

    def index(self, name: str) -> IndexDef | None:
        """The index TiCDC finds by that name, in any case; none for the primary key that is the row's handle."""
        found = next((i for i in self.indexes if i.name.lower() == name.lower()), None)
        return None if found is not None and found.primary and self.pk_is_handle else found

    @property
    def primary(self) -> IndexDef | None:
        """The primary key."""
        return next((i for i in self.indexes if i.primary), None)

    @property
    def handle(self) -> IndexDef | None:
        """The key TiCDC identifies a row by.

        The primary key, else the unique index over not-null visible columns with the fewest columns, ties by smallest
        id (TiCDC's source).
        """
        return self.primary or min(
            (i for i in self.unique_indexes if all(self._is_key_column(c) for c in i.columns)),
            key=lambda i: (len(i.columns), i.id),
            default=None,
        )

    @property
    def handle_columns(self) -> tuple[str, ...]:
        """Names of the handle key's columns in column order; empty without one."""
        names = set() if self.handle is None else set(self.handle.columns)
        return tuple(c.name for c in self.columns if c.name in names)

    @property
    def unique_indexes(self) -> tuple[IndexDef, ...]:
        """The primary key and the unique indexes."""
        return tuple(i for i in self.indexes if i.unique)

    def _is_key_column(self, name: str) -> bool:
        column = self.column(name)
        return column is not None and not column.nullable and not column.hidden and column.generated != "virtual"


# Column, index and ALTER TABLE clauses applied to one definition.

_INDEX_WORDS = ("INDEX", "KEY")
_KEY_STARTS = frozenset(
    ["CONSTRAINT", "PRIMARY", "UNIQUE", "INDEX", "KEY", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK", "VECTOR", "COLUMNAR"]
)
_PARTITION_WORDS = frozenset(
    ["PARTITION", "REORGANIZE", "COALESCE", "EXCHANGE", "TRUNCATE", "REMOVE", "FIRST", "LAST", "MERGE", "SPLIT"]
)
# table options and clauses that change no column and no index
_OPTIONS = {
    "ALGORITHM", "ALTER", "ATTRIBUTES", "AUTO_ID_CACHE", "AUTO_INCREMENT", "AUTO_RANDOM_BASE", "AVG_ROW_LENGTH",
    "CACHE",
    "CHARACTER", "CHARSET", "CHECKSUM", "COLLATE", "COMMENT", "COMPACT", "COMPRESSION", "CONVERT", "DEFAULT", "DISABLE",
    "ENABLE", "ENGINE", "FORCE", "KEY_BLOCK_SIZE", "LOCK", "MAX_ROWS", "MIN_ROWS", "NOCACHE", "ORDER", "PLACEMENT",
    "PRE_SPLIT_REGIONS", "ROW_FORMAT", "SET", "SHARD_ROW_ID_BITS", "STATS_AUTO_RECALC", "STATS_BUCKETS",
    "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "STATS_TOPN", "TTL", "TTL_ENABLE", "TTL_JOB_INTERVAL", "WITH", "WITHOUT",
    "AFFINITY", "ENGINE_ATTRIBUTE", "MODE", "NO_WRITE_TO_BINLOG", "STATS_OPTIONS",
}  # fmt: skip


def table_of_definitions(name: TableName, body: Cursor) -> TableDef:
    """A table from what stands between the parentheses of CREATE TABLE.

    TiDB numbers the indexes of table constraints before the column options' indexes.
    """
    table = TableDef(name[0], name[1], ())
    keys: list[Cursor] = []
    options: list[tuple[str, str]] = []
    for part in body.parts():
        if part.peek() in _KEY_STARTS:
            keys.append(part)
        else:
            column, own = _column(part)
            table = _numbered(table, column, len(table.columns))
            options += [(column.name, o) for o in own]
    foreign = [part for part in keys if _is_foreign(part)]
    for part in keys:
        table = table if part in foreign else _with_key(table, part)
    for column_name, option in options:
        table = _with_option(table, column_name, option)
    for part in foreign:  # TiDB makes their indexes last, where no other serves
        table = _with_key(table, part)
    return table


def _is_foreign(part: Cursor) -> bool:
    return "FOREIGN" in (part.peek(), part.peek(1), part.peek(2)) and _has(part, "REFERENCES")


def altered(table: TableDef, action: Cursor) -> TableDef | None:
    """The table after one action of ALTER TABLE; None where the rest of the statement is a partition clause."""
    word = action.peek()
    if word == "ADD":
        action.take("ADD")
        return _added(table, action)
    if word == "DROP":
        action.take("DROP")
        return _dropped(table, action)
    if word in ("MODIFY", "CHANGE"):
        action.take(word)
        return _changed(table, action, renamed=word == "CHANGE")
    if word == "RENAME":
        action.take("RENAME")
        return _renamed(table, action)
    if word in _PARTITION_WORDS:
        return None
    if word in _OPTIONS:
        return table
    raise DDLSyntaxError(f"unknown clause of ALTER TABLE: {action.rest()[:40]!r}")


def index_of_parts(
    table: TableDef, name: str, parts: Cursor, *, unique: bool, primary: bool = False, clustered: bool | None = None
) -> TableDef:
    """Add an index over ``parts``; an expression becomes a hidden virtual column, as in TiDB."""
    columns: list[str] = []
    hidden: list[ColumnDef] = []
    for n, part in enumerate(parts.parts()):
        if part.peek() == "(":
            column = ColumnDef(
                f"_V$_{name or 'expression_index'}_{n}", "expression", True, "virtual", hidden=True,
                id=table.columns_made + len(hidden) + 1,
            )  # fmt: skip
            hidden.append(column)
            columns.append(column.name)
        else:
            columns.append(_existing(table, part.name()))
    index_name = "PRIMARY" if primary else name or _free_name(table, columns[0] if not hidden else "expression_index")
    index = IndexDef(max((i.id for i in table.indexes), default=0) + 1, index_name, tuple(columns), unique, primary)
    # TiDB lists the primary key first
    indexes = (index, *table.indexes) if primary else (*table.indexes, index)
    made = table.columns_made + len(hidden)
    out = replace(table, columns=(*table.columns, *hidden), indexes=indexes, columns_made=made)
    if not primary:
        return out
    not_null = tuple(replace(c, nullable=False) if c.name in columns else c for c in out.columns)
    out = replace(out, columns=not_null)
    is_integer = [c is not None and c.is_integer for c in map(out.column, index.columns)] == [True]
    return replace(out, pk_is_handle=clustered is not False and is_integer)


def keyed(table: TableDef) -> TableDef:
    """The table with ``pk_is_handle`` taken back where the primary key is gone."""
    return table if table.primary is not None else replace(table, pk_is_handle=False)


def _existing(table: TableDef, name: str) -> str:
    column = table.column(name)
    if column is None:
        raise DDLSyntaxError(f"an index names the unknown column {name!r}")
    return column.name


def _free_name(table: TableDef, wanted: str) -> str:
    taken = {i.name.lower() for i in table.indexes}
    if wanted.lower() == "primary":
        wanted = f"{wanted}_2"
    name, n = wanted, 2
    while name.lower() in taken:
        name, n = f"{wanted}_{n}", n + 1
    return name


def _with_key(table: TableDef, part: Cursor) -> TableDef:
    """Add a table constraint; checks do not change identity, a foreign key only adds an index."""
    symbol = ""
    if part.take("CONSTRAINT") and part.peek() not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
        symbol = part.name()
    if part.peek() == "CHECK":
        return table
    if part.take("FOREIGN"):
        return _with_foreign_key(table, part, symbol)
    primary = part.take("PRIMARY")
    unique = primary or part.take("UNIQUE")
    part.take_any("FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR")
    part.take_any(*_INDEX_WORDS)
    part.take("IF", "NOT", "EXISTS")
    name = "" if part.peek() in ("(", "USING", "TYPE") else part.name()
    while part.peek() != "(" and not part.done:
        part.skip()
    columns = part.inside()
    clustered = None if not primary else not _has(part, "NONCLUSTERED")
    return index_of_parts(table, name or symbol, columns, unique=unique, primary=primary, clustered=clustered)


_FOREIGN_NAME = re.compile(r"fk_([0-9]+)")


def _with_foreign_key(table: TableDef, part: Cursor, symbol: str) -> TableDef:
    """Add the index that TiDB makes for a foreign key, unless the first columns of another one are its columns."""
    part.take_any(*_INDEX_WORDS)
    part.take("IF", "NOT", "EXISTS")
    name = symbol or ("" if part.peek() == "(" else part.name())
    columns = part.inside()
    wanted = [_existing(table, p.name()).lower() for p in Cursor(columns.words).parts()]
    if any([c.lower() for c in i.columns[: len(wanted)]] == wanted for i in table.indexes):
        return table
    numbers = [int(found[1]) for i in table.indexes if (found := _FOREIGN_NAME.fullmatch(i.name))]
    return index_of_parts(table, name or f"fk_{max(numbers, default=0) + 1}", columns, unique=False)


def _has(cursor: Cursor, word: str) -> bool:
    return any(cursor.peek(i) == word for i in range(len(cursor.words) - cursor.at))


def _with_option(table: TableDef, column: str, option: str) -> TableDef:
    return index_of_parts(
        table,
        "",
        Cursor([Word(column, "name")]),
        unique=True,
        primary=option != "UNIQUE",
        clustered=option != "NONCLUSTERED",
    )


def _column(part: Cursor) -> tuple[ColumnDef, list[str]]:
    """A column definition, and its key options: ``PRIMARY``, ``NONCLUSTERED`` (primary too) or ``UNIQUE``."""
    name = part.name()
    mysql_type = _type(part)
    default, computed = None, False
    nullable, generated, keys = mysql_type != "serial", "", ["UNIQUE"] if mysql_type == "serial" else []
    while not part.done:
        if part.take("NOT", "NULL"):
            nullable = False
        elif part.take("PRIMARY") or part.take("KEY"):
            part.take("KEY")
            keys.append("PRIMARY")
        elif part.take("UNIQUE"):
            part.take("KEY")
            keys.append("UNIQUE")
        elif part.take("NONCLUSTERED"):
            keys = ["NONCLUSTERED" if k == "PRIMARY" else k for k in keys]
        elif part.take("AS"):
            part.inside()
            generated = "stored" if part.take_any("STORED", "PERSISTENT") else "virtual"
            part.take("VIRTUAL")
        elif part.take("DEFAULT"):
            default, computed = _default(part)
        elif part.take_any("COMMENT", "COLLATE", "REFERENCES"):
            part.skip()
        elif part.peek() in ("FIRST", "AFTER"):
            break
        else:
            part.skip()
    nullable = nullable and not {"PRIMARY", "NONCLUSTERED"} & set(keys)
    return ColumnDef(name, mysql_type, nullable, generated, default=default, computed_default=computed), keys


def _default(part: Cursor) -> tuple[str | None, bool]:
    """The text of a literal default (None for NULL), and whether it is an expression instead."""
    if part.peek().startswith("_"):  # a character set before the text
        part.skip()
    if not part.done and part.words[part.at].kind == "text":
        part.at += 1
        return unescaped(part.words[part.at - 1].text), False
    if part.take("NULL"):
        return None, False
    if word := part.take_any("TRUE", "FALSE"):
        return str(int(word == "TRUE")), False
    if part.peek() == "B" and len(part.words) > part.at + 1 and part.words[part.at + 1].kind == "text":
        part.at += 2
        return str(int(part.words[part.at - 1].text or "0", 2)), False
    sign, number = part.take_any("-", "+"), ""
    while re.fullmatch(r"[0-9]+(E[0-9]+)?|\.", part.peek()):
        number += part.peek()
        part.skip()
    if number:
        return (sign if sign == "-" else "") + number, False
    part.skip()
    if part.peek() == "(":
        part.skip()
    return None, True


def _type(part: Cursor) -> str:
    """The column's type in lower case, with its arguments and UNSIGNED."""
    if part.done:
        raise DDLSyntaxError("a column without a type")
    text = part.name().lower()
    if text == "double":
        part.take("PRECISION")
    if part.peek() == "(":
        text += "(" + ",".join(_argument(a) for a in part.inside().parts()) + ")"
    part.take("SIGNED")
    return text + (" unsigned" if part.take("UNSIGNED") or part.peek() == "ZEROFILL" else "")


def _argument(part: Cursor) -> str:
    """A length, or an element of ENUM and SET, quoted as it was written."""
    return "".join(f"'{w.text}'" if w.kind == "text" else w.text for w in part.words)


def _added(table: TableDef, action: Cursor) -> TableDef | None:
    if action.peek() in ("PARTITION", "STATS_EXTENDED"):
        return None
    if action.peek() in _KEY_STARTS:
        return _with_key(table, action)
    action.take("COLUMN")
    action.take("IF", "NOT", "EXISTS")
    if action.peek() == "(":
        for part in action.inside().parts():
            table = _with_key(table, part) if part.peek() in _KEY_STARTS else _with_column(table, part)
        return table
    return _with_column(table, action)


def _with_column(table: TableDef, part: Cursor, *, at: int | None = None) -> TableDef:
    column, keys = _column(part)
    if table.column(column.name) is not None:  # ADD COLUMN IF NOT EXISTS
        return table
    column = replace(column, id=table.columns_made + 1)
    out = _placed(replace(table, columns_made=column.id), column, part, len(table.columns) if at is None else at)
    for key in keys:
        out = _with_option(out, column.name, key)
    return out


def _numbered(table: TableDef, column: ColumnDef, at: int) -> TableDef:
    made = table.columns_made + 1
    columns = (*table.columns[:at], replace(column, id=made), *table.columns[at:])
    return replace(table, columns=columns, columns_made=made)


def _placed(table: TableDef, column: ColumnDef, part: Cursor, at: int) -> TableDef:
    """Insert a column by FIRST or AFTER, else at ``at``, but before hidden columns."""
    names = [c.name.lower() for c in table.columns]
    hidden = next((n for n, c in enumerate(table.columns) if c.hidden), len(names))
    at = min(at, hidden)
    if part.take("FIRST"):
        at = 0
    elif part.take("AFTER"):
        previous = part.name().lower()
        if previous not in names:
            raise DDLSyntaxError(f"AFTER names the unknown column {previous!r}")
        at = names.index(previous) + 1
    return replace(table, columns=(*table.columns[:at], column, *table.columns[at:]))


def _dropped(table: TableDef, action: Cursor) -> TableDef | None:
    if action.peek() in ("PARTITION", "STATS_EXTENDED"):
        return None
    if action.peek() in ("FOREIGN", "CHECK", "CONSTRAINT"):
        return table
    if action.take("PRIMARY"):
        return keyed(replace(table, indexes=tuple(i for i in table.indexes if not i.primary)))
    is_index = action.take_any(*_INDEX_WORDS)
    action.take("COLUMN")
    action.take("IF", "EXISTS")
    name = action.name().lower()
    if is_index:
        return keyed(replace(table, indexes=tuple(i for i in table.indexes if i.name.lower() != name)))
    return _without_column(table, name)


def _without_column(table: TableDef, name: str) -> TableDef:
    columns = tuple(c for c in table.columns if c.name.lower() != name)
    indexes = (replace(i, columns=tuple(c for c in i.columns if c.lower() != name)) for i in table.indexes)
    return keyed(replace(table, columns=columns, indexes=tuple(i for i in indexes if i.columns)))


def _changed(table: TableDef, action: Cursor, *, renamed: bool) -> TableDef:
    action.take("COLUMN")
    action.take("IF", "EXISTS")
    old_name = action.name() if renamed else (action.words[action.at].text if not action.done else "")
    old = table.column(old_name)
    if old is None:
        raise DDLSyntaxError(f"the unknown column {old_name!r} is changed")
    column, _ = _column(action)
    in_key = table.primary is not None and old.name in table.primary.columns
    column = replace(column, nullable=column.nullable and not in_key, id=old.id)
    at = table.columns.index(old)
    rest = replace(table, columns=tuple(c for c in table.columns if c is not old))
    out = _placed(rest, column, action, at)
    return _with_index_columns(out, old.name, column.name)


def _renamed(table: TableDef, action: Cursor) -> TableDef:
    what = action.take_any("INDEX", "KEY", "COLUMN")
    old = action.name()
    action.expect("TO")
    new = action.name()
    if what == "COLUMN":
        if table.column(old) is None:
            raise DDLSyntaxError(f"the unknown column {old!r} is renamed")
        columns = tuple(replace(c, name=new) if c.name.lower() == old.lower() else c for c in table.columns)
        return _with_index_columns(replace(table, columns=columns), old, new)
    return replace(
        table, indexes=tuple(replace(i, name=new) if i.name.lower() == old.lower() else i for i in table.indexes)
    )


def _with_index_columns(table: TableDef, old: str, new: str) -> TableDef:
    indexes = tuple(
        replace(i, columns=tuple(new if c.lower() == old.lower() else c for c in i.columns)) for i in table.indexes
    )
    return replace(table, indexes=indexes)
