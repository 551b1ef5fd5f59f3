"""DDL applied to table definitions, as TiDB does it (names of unnamed indexes, order of index ids, clustered keys)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ticdc_lab.events.ddl import Cursor, DDLSyntaxError, words_of
from ticdc_lab.facts.catalog import Catalog, TableDef, TableName, TableVersion, Unparsed
from ticdc_lab.facts.ddl_alter import altered, index_of_parts, keyed, table_of_definitions

_OTHER_OBJECTS = {
    "VIEW",
    "SEQUENCE",
    "PLACEMENT",
    "USER",
    "ROLE",
    "PROCEDURE",
    "FUNCTION",
    "TRIGGER",
    "EVENT",
    "BINDING",
}
_HARMLESS = {"ANALYZE", "LOCK", "UNLOCK", "FLUSH", "SPLIT", "CREATE DATABASE", "ALTER DATABASE"}


@dataclass(slots=True)
class _Builder:
    versions: dict[TableName, list[TableVersion]] = field(default_factory=dict)
    unparsed: list[Unparsed] = field(default_factory=list)
    commit_ts: int | None = None
    serial: int = 0

    def name_of(self, name: TableName) -> TableName:
        """The known table of that name, exactly or else in any case."""
        if name in self.versions:
            return name
        lower = (name[0].lower(), name[1].lower())
        return next((n for n in self.versions if (n[0].lower(), n[1].lower()) == lower), name)

    def definition(self, name: TableName) -> TableDef:
        versions = self.versions.get(self.name_of(name), [])
        if not versions or versions[-1].definition is None:
            raise DDLSyntaxError(f"the table {name[0]}.{name[1]} is not known before this DDL")
        return versions[-1].definition

    def put(
        self,
        name: TableName,
        definition: TableDef | None,
        reason: str = "",
        *,
        event: str = "kept",
        origin: TableName | None = None,
    ) -> None:
        self.serial += 1
        version = TableVersion(self.commit_ts, definition, reason, event, origin, self.serial)
        self.versions.setdefault(name, []).append(version)

    def drop(self, name: TableName, reason: str, *, event: str = "dropped", origin: TableName | None = None) -> None:
        known = self.name_of(name)
        if known in self.versions:
            self.put(known, None, reason, event=event, origin=origin)

    def rename(self, old: TableName, new: TableName) -> None:
        definition, known = self.definition(old), self.name_of(old)
        self.drop(old, f"renamed to {new[0]}.{new[1]}", event="left", origin=new)
        renamed = replace(definition, schema_name=new[0], table_name=new[1])
        self.put(new, renamed, f"renamed from {known[0]}.{known[1]}", event="renamed", origin=known)


def apply_all(ddl: Iterable[tuple[int | None, str, str, str]], *, before: Iterable[TableDef] = ()) -> Catalog:
    """Build a catalog from ``(commit_ts, schema_name, table_name, query)``; see :meth:`Catalog.from_ddl`."""
    builder = _Builder()
    for definition in before:
        builder.put((definition.schema_name, definition.table_name), definition, event="given")
    # stable: DDL without commit_ts keeps the caller's order
    for commit_ts, schema, table, query in sorted(dict.fromkeys(ddl), key=lambda d: d[0] or 0):
        builder.commit_ts = commit_ts
        try:
            _apply(builder, Cursor(words_of(query)), schema, table)
        except DDLSyntaxError as e:
            builder.unparsed.append(Unparsed(commit_ts, schema, table, query, e.message))
            if table:
                name = builder.name_of((schema, table))
                builder.put(name, None, f"a DDL was not understood: {e.message}", event="unknown")
    return Catalog({n: tuple(v) for n, v in builder.versions.items()}, tuple(builder.unparsed))


def _apply(builder: _Builder, cursor: Cursor, schema: str, table: str) -> None:
    if cursor.take("CREATE"):
        _create(builder, cursor, schema, table)
    elif cursor.take("ALTER"):
        cursor.take("IGNORE")
        if cursor.take("TABLE"):
            name = builder.name_of(cursor.table(schema))
            _alter(builder, cursor, name)
        elif cursor.peek() not in _OTHER_OBJECTS | {"DATABASE", "SCHEMA", "RANGE", "RESOURCE", "INSTANCE"}:
            raise DDLSyntaxError(f"unknown statement ALTER {cursor.peek()}")
    elif cursor.take("DROP"):
        _drop(builder, cursor, schema)
    elif cursor.take("RENAME", "TABLE") or cursor.take("RENAME", "TABLES"):
        for part in cursor.parts():
            old = part.table(schema)
            part.expect("TO")
            builder.rename(old, part.table(schema))
    elif cursor.take("TRUNCATE"):
        cursor.take("TABLE")
        name = builder.name_of(cursor.table(schema))
        builder.put(name, builder.definition(name), "truncated", event="truncated")
    elif cursor.take("RECOVER", "TABLE") or cursor.take("FLASHBACK", "TABLE"):
        _recover(builder, cursor, schema)
    elif cursor.peek() not in _HARMLESS:
        raise DDLSyntaxError(f"unknown statement {cursor.rest()[:40]!r}")


def _create(builder: _Builder, cursor: Cursor, schema: str, table: str) -> None:
    cursor.take("OR", "REPLACE")
    cursor.take("GLOBAL")
    cursor.take("TEMPORARY")
    kind = cursor.take_any("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR")
    if cursor.take("TABLE"):
        cursor.take("IF", "NOT", "EXISTS")
        written = cursor.table(schema)
        # the event knows the name as TiDB stores it
        name = (
            (schema, table) if (schema.lower(), table.lower()) == (written[0].lower(), written[1].lower()) else written
        )
        builder.put(name, _created(builder, cursor, name, schema), "created", event="created")
    elif cursor.take("INDEX"):
        cursor.take("IF", "NOT", "EXISTS")
        index = cursor.name()
        while not cursor.take("ON"):
            if cursor.done:
                raise DDLSyntaxError("CREATE INDEX without ON")
            cursor.skip()
        name = builder.name_of(cursor.table(schema))
        definition = builder.definition(name)
        builder.put(name, index_of_parts(definition, index, cursor.inside(), unique=kind == "UNIQUE"))
    elif cursor.peek() not in _OTHER_OBJECTS | {"DATABASE", "SCHEMA", "RESOURCE", "ALGORITHM", "DEFINER", "SQL"}:
        raise DDLSyntaxError(f"unknown statement CREATE {cursor.peek()}")


def _created(builder: _Builder, cursor: Cursor, name: TableName, schema: str) -> TableDef:
    body = cursor.inside() if cursor.peek() == "(" else cursor
    if body.take("LIKE"):
        return replace(builder.definition(body.table(schema)), schema_name=name[0], table_name=name[1])
    if body is cursor:
        raise DDLSyntaxError("CREATE TABLE without columns")
    return table_of_definitions(name, body)


def _alter(builder: _Builder, cursor: Cursor, name: TableName) -> None:
    definition, current, lost = builder.definition(name), name, ""
    for part in cursor.parts():
        if part.peek() == "RENAME" and part.peek(1) not in ("INDEX", "KEY", "COLUMN"):
            part.take("RENAME")
            part.take_any("TO", "AS", "=")
            current = part.table(name[0])
            continue
        changed = altered(definition, part)
        if changed is None:  # partition clauses run to the end
            lost = _rows_lost(builder, part, name)
            break
        definition = changed
    builder.put(name, definition, lost, event="lost" if lost else "kept")
    if current != name:
        builder.rename(name, current)


def _rows_lost(builder: _Builder, part: Cursor, name: TableName) -> str:
    """Why a partition clause moves rows that no row event names; empty if it moves none.

    The clause may have been read in part.
    """
    words = Cursor(part.words)
    if words.take("DROP", "PARTITION") or words.take("TRUNCATE", "PARTITION"):
        return f"{part.words[0].text.upper()} PARTITION removed rows that the log does not name"
    if not words.take("EXCHANGE", "PARTITION"):
        return ""
    words.name()
    words.expect("WITH", "TABLE")
    other = builder.name_of(words.table(name[0]))
    reason = "EXCHANGE PARTITION swapped rows between {} and {}, and the log does not name them"
    said = reason.format(".".join(name), ".".join(other))
    known = builder.versions.get(other)
    builder.put(other, known[-1].definition if known else None, said, event="lost")
    return said


def _drop(builder: _Builder, cursor: Cursor, schema: str) -> None:
    cursor.take("TEMPORARY")
    if cursor.take("TABLE") or cursor.take("TABLES"):
        cursor.take("IF", "EXISTS")
        for part in cursor.parts():
            builder.drop(part.table(schema), "dropped")
    elif cursor.take("INDEX"):
        cursor.take("IF", "EXISTS")
        index = cursor.name()
        cursor.expect("ON")
        name = builder.name_of(cursor.table(schema))
        definition = builder.definition(name)
        kept = tuple(i for i in definition.indexes if i.name.lower() != index.lower())
        builder.put(name, keyed(replace(definition, indexes=kept)))
    elif cursor.take_any("DATABASE", "SCHEMA"):
        cursor.take("IF", "EXISTS")
        dropped = cursor.name().lower()
        for name in [n for n in builder.versions if n[0].lower() == dropped]:
            builder.drop(name, "dropped with its database")
    elif cursor.peek() not in _OTHER_OBJECTS | {"RESOURCE", "GLOBAL", "SESSION", "STATS", "SERVER"}:
        raise DDLSyntaxError(f"unknown statement DROP {cursor.peek()}")


def _recover(builder: _Builder, cursor: Cursor, schema: str) -> None:
    old = cursor.table(schema)
    new = cursor.table(schema) if cursor.take("TO") else old
    last = next((v.definition for v in reversed(builder.versions.get(builder.name_of(old), [])) if v.definition), None)
    if last is None:
        raise DDLSyntaxError(f"the table {old[0]}.{old[1]} is not known before this DDL")
    said = "the rows of a recovered table are not in the log again"
    builder.put(new, replace(last, schema_name=new[0], table_name=new[1]), said, event="lost")
