"""Table definitions over time: columns, indexes and handle keys by a log's DDL, or the caller.

Dispatch by a named index, and the footnotes of the design's guarantee table, need definitions that row events do not
carry. The rules are TiDB's: see
:class:`ticdc_lab.facts.definitions.TableDef`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.errors import ContractError
from ticdc_lab.events.ddl import Cursor, DDLSyntaxError, words_of
from ticdc_lab.events.schema import require_batch, require_columns
from ticdc_lab.facts.definitions import (
    TableDef,
    TableName,
    altered,
    index_of_parts,
    keyed,
    row_names,
    table_of_definitions,
)
from ticdc_lab.words import some_of


@dataclass(frozen=True, slots=True)
class TableVersion:
    """What a table is from a commit_ts (TSO) on; ``definition`` is None where it was dropped or is unknown.

    ``commit_ts`` None means from ever. ``event``: what the DDL did to the rows:

    - ``given``: no DDL; a definition of the caller or read off the rows
    - ``created``: there are none, the table is new; ``truncated``: there are none any more
    - ``kept``: all are still there (columns or indexes may have changed)
    - ``renamed``: all came from the table ``origin``; ``left``: all went to the table ``origin``
    - ``dropped``: the table is gone
    - ``lost``: rows came or went that no row event names (partitions dropped or exchanged)
    - ``recovered``: a dropped table is back (RECOVER, FLASHBACK); its rows are not in the log again
    - ``unknown``: the DDL was not understood

    ``serial`` is the place among all DDL of the log.
    """

    commit_ts: int | None
    definition: TableDef | None
    reason: str = ""
    event: str = "given"
    origin: tuple[str, str] | None = None
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Unparsed:
    """A DDL that could not be understood; the tables it names are unknown from its commit_ts (TSO) on."""

    commit_ts: int | None
    schema_name: str
    table_name: str
    query: str
    reason: str


@dataclass(frozen=True, slots=True)
class RefusedDdl:
    """A DDL that TiDB would have refused: it makes a table whose name is ``taken``, or names one that is not there.

    ``since`` is the commit_ts (TSO) of the DDL that it contradicts.
    """

    commit_ts: int | None
    schema_name: str
    table_name: str
    query: str
    reason: str
    since: int | None
    taken: bool = False


@dataclass(frozen=True, slots=True)
class NoTable:
    """A view or a sequence, which shares names with tables: its DDL is all that a log has of it."""

    kind: str
    query: str
    since: int | None  # commit_ts (TSO) of the query
    is_dropped: bool = False


@dataclass(frozen=True)
class Catalog:
    """A log's tables by its DDL."""

    # Versions of table definitions by ``(schema_name, table_name)``, oldest first
    versions: Mapping[TableName, tuple[TableVersion, ...]] = field(default_factory=dict)
    unparsed: tuple[Unparsed, ...] = ()  # DDL that was not understood
    refused: tuple[RefusedDdl, ...] = ()  # DDL that do not follow from those before them; they are applied all the same
    # When a table was dropped that no DDL had named before (commit_ts); a database under the table name ``""``
    ends: Mapping[TableName, tuple[int | None, ...]] = field(default_factory=dict)
    others: Mapping[TableName, NoTable] = field(default_factory=dict)  # views and sequences, by names in lower case

    @classmethod
    def from_definitions(cls, definitions: Iterable[TableDef | tuple[int, TableDef]]) -> Catalog:
        """Build a catalog from the caller's own definitions.

        Parameters
        ----------
        definitions
            Definitions valid from ever, or pairs of the commit_ts (TSO) they hold from and the definition.
        """
        versions: dict[TableName, list[TableVersion]] = {}
        for item in definitions:
            ts, definition = (None, item) if isinstance(item, TableDef) else item
            name = (definition.schema_name, definition.table_name)
            versions.setdefault(name, []).append(TableVersion(ts, definition))
        return cls({n: tuple(sorted(v, key=lambda x: x.commit_ts or 0)) for n, v in versions.items()})

    @classmethod
    def from_ddl(cls, ddl: Iterable[tuple[int | None, str, str, str]], *, before: Iterable[TableDef] = ()) -> Catalog:
        """Build a catalog by applying DDL in commit order.

        Parameters
        ----------
        ddl
            ``(commit_ts, schema_name, table_name, query)``. Names serve unqualified tables. Repeats of one DDL, as
            every partition of an open-protocol topic holds them, and re-deliveries are applied once.
        before
            Tables as they were before the first DDL.

        Notes
        -----
        Never raises: a query that cannot be parsed is kept in :attr:`unparsed` and its table is unknown from then on.
        """
        return apply_all(ddl, before=before)

    def in_rows(self, protocol: str | None) -> Catalog:
        """The same by the names that rows of a protocol have.

        A table is unknown under a name that another table has at the same time, or that it was renamed from.
        """
        table, column = row_names(protocol or "")
        if column is str:
            return self
        lives: dict[TableName, list[tuple[TableName, TableVersion]]] = {}
        for name, own in self.versions.items():
            lives.setdefault((table(name[0]), table(name[1])), []).extend((name, version) for version in own)
        versions = {}
        for name, life in lives.items():
            life.sort(key=lambda of: of[1].serial)
            names = [".".join(origin) for origin, _ in life]
            one_by_one = all(a == b or was.event in GONE for (a, was), (b, _) in pairwise(life))
            versions[name] = tuple(
                replace(
                    v, definition=v.definition and v.definition.in_rows(protocol or ""),
                    origin=v.origin and (table(v.origin[0]), table(v.origin[1])),
                ) for _, v in life
            )  # fmt: skip
            if not one_by_one or any(name == v.origin for v in versions[name]):
                said = f"{protocol} has one name for {some_of(sorted({*names}))}"
                versions[name] = (TableVersion(None, None, said, "unknown"),)
        ends = {(table(schema), table(name)): at for (schema, name), at in self.ends.items()}
        return replace(self, versions=versions, ends=ends)

    def renamed_in(self, protocol: str | None) -> dict[TableName, TableName]:
        """Tables or their columns, with another name in rows of a protocol than in DDL: by that name the DDL's."""
        table, column = row_names(protocol or "")
        found = {}
        for name, versions in self.versions.items():
            columns = {c.name for v in versions if v.definition is not None for c in v.definition.columns}
            written = table(name[0]), table(name[1])
            if written != name or any(column(c) != c for c in columns):
                found[written] = name
        return found

    def table(self, schema_name: str, table_name: str, *, commit_ts: int | None = None) -> TableDef | None:
        """The definition at ``commit_ts`` (TSO; None = the newest), or None where there is none or it is unknown."""
        versions = self.versions.get((schema_name, table_name), ())
        if commit_ts is not None:
            versions = versions[: bisect_right([v.commit_ts or 0 for v in versions], commit_ts)]
        return versions[-1].definition if versions else None

    def tables(self) -> list[TableDef]:
        """The newest definition of every table that is known at the end, by name."""
        newest = (self.versions[name][-1].definition for name in sorted(self.versions))
        return [d for d in newest if d is not None]


MAX_DDL_ROWS = 100_000

DDL = tuple[int | None, str, str, str]
"""commit_ts (TSO), schema_name, table_name and query."""


def catalog_of(events: DataFrame, *, max_ddl: int = MAX_DDL_ROWS) -> Catalog:
    """Build the catalog of a log from its own DDL events.

    Parameters
    ----------
    events, max_ddl
        As for :func:`ddl_of`.

    Raises
    ------
    ContractError, StreamingError
        As :func:`ddl_of` does.
    """
    ddl, protocol = ddl_of(events, max_ddl=max_ddl)
    return Catalog.from_ddl(ddl).in_rows(protocol)


def ddl_of(events: DataFrame, *, max_ddl: int = MAX_DDL_ROWS) -> tuple[list[DDL], str | None]:
    """Bring the distinct DDL of a log to the driver, in commit order, and their protocol.

    This is the one place that does so. They are metadata: their number follows the schema's history, not the data's
    size, and a definition is only known after all DDL before it was applied in order.

    Parameters
    ----------
    events
        The events contract; needs ``kind``, ``commit_ts``, ``schema_name``, ``table_name``, ``query``, ``offset``.
    max_ddl
        Most distinct DDL that are accepted, so that a wrong input cannot fill the driver.

    Raises
    ------
    ContractError
        A column is missing, or there are more than ``max_ddl`` distinct DDL.
    StreamingError
        ``events`` is a stream.
    """
    require_columns(events, "kind", "commit_ts", "schema_name", "table_name", "query", "offset")
    require_batch(events, function="catalog_of", why="a definition depends on every DDL before it")
    protocol = F.min("protocol") if "protocol" in events.columns else F.lit(None)
    rows = (
        events.where((F.col("kind") == "ddl") & F.col("query").isNotNull())
        .groupBy("commit_ts", "schema_name", "table_name", "query")
        .agg(F.min("offset").alias("first"), protocol.alias("protocol"))
        .limit(max_ddl + 1)
        .collect()
    )
    if len(rows) > max_ddl:
        raise ContractError(
            f"The log has more than {max_ddl} distinct DDL events.",
            hint="Pass max_ddl=..., or build the catalog with Catalog.from_ddl or Catalog.from_definitions.",
        )
    said = (tuple(r[c] for c in ("commit_ts", "schema_name", "table_name", "query", "first")) for r in rows)
    return in_commit_order(said), next((r["protocol"] for r in rows), None)


def in_commit_order(said: Iterable[tuple[Any, ...]]) -> list[DDL]:
    """Give each DDL once: of commit_ts, schema, table, query and offset.

    Offsets order those without commit_ts, which canal-json sends to one partition.
    """
    first: dict[DDL, int] = {}
    for ts, schema, table, query, offset in said:
        if query is not None:
            ddl = (ts, schema or "", table or "", query)
            first[ddl] = min(offset or 0, first.get(ddl, offset or 0))
    return sorted(first, key=lambda ddl: (ddl[0] or 0, first[ddl]))


# DDL applied to them, as TiDB does it.

_OTHER_OBJECTS = frozenset(
    ["VIEW", "SEQUENCE", "PLACEMENT", "USER", "ROLE", "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "BINDING"]
)
_HARMLESS = {"ANALYZE", "LOCK", "UNLOCK", "FLUSH", "SPLIT", "CREATE DATABASE", "ALTER DATABASE"}

GONE = ("dropped", "left")
"""Events of :class:`TableVersion` after which no table has the name."""
_RECOVERED = "the rows of a recovered table are not in the log again"
_WITH_DATABASE = "dropped with its database"
_TAKEN = "it got the name of a table that was still there"


@dataclass(slots=True)
class _Builder:
    versions: dict[TableName, list[TableVersion]] = field(default_factory=dict)
    unparsed: list[Unparsed] = field(default_factory=list)
    refused: list[RefusedDdl] = field(default_factory=list)
    ends: dict[TableName, list[int | None]] = field(default_factory=dict)
    commit_ts: int | None = None
    query: str = ""
    serial: int = 0
    others: dict[TableName, NoTable] = field(default_factory=dict)
    """Views and sequences, which share names with tables, in lower case; dropped ones, too."""
    first_of: dict[TableName, TableName] = field(default_factory=dict)
    """By a name in lower case the first table of ``versions`` that has it in any case."""

    def name_of(self, name: TableName) -> TableName:
        """The known table of that name, exactly or else in any case."""
        return name if name in self.versions else self.first_of.get((name[0].lower(), name[1].lower()), name)

    def definition(self, name: TableName) -> TableDef:
        versions = self.versions.get(self.name_of(name), [])
        if versions and versions[-1].event in GONE and versions[-1].commit_ts != self.commit_ts:
            self.contradict(name, f"it names {name[0]}.{name[1]}, which was {versions[-1].reason}", versions[-1])
        if not versions or versions[-1].definition is None:
            raise DDLSyntaxError(f"the table {name[0]}.{name[1]} is not known before this DDL")
        return versions[-1].definition

    def take(self, name: TableName, verb: str, *, origin: TableName | None = None) -> bool:
        """Whether another table has the name that a table gets; what restarts send again has the first's commit_ts."""
        lower = (name[0].lower(), name[1].lower())
        if lower in self.others and not self.others[lower].is_dropped:
            said = f"it {verb} {name[0]}.{name[1]}, a name that a view or sequence has"
            self.contradict(name, said, TableVersion(self.others[lower].since, None), taken=True)
            return False
        versions = self.versions.get(self.name_of(name), [])
        if not versions or versions[-1].event in (*GONE, "unknown"):
            return False
        if versions[-1].commit_ts == self.commit_ts and versions[-1].origin == origin:
            return False
        said = f"it {verb} {name[0]}.{name[1]}, a name that another table has"
        self.contradict(name, said, versions[-1], taken=True)
        return True

    def contradict(self, name: TableName, reason: str, version: TableVersion, *, taken: bool = False) -> None:
        found = RefusedDdl(self.commit_ts, *name, self.query, reason, version.commit_ts, taken)
        self.refused.append(found)

    def lose(self, name: TableName, reason: str) -> None:
        """The table stays what it is, but which rows it has is not known any more."""
        name = self.name_of(name)
        self.put(name, self.versions[name][-1].definition, reason, event="lost")

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
        self.first_of.setdefault((name[0].lower(), name[1].lower()), name)

    def drop(self, name: TableName, reason: str, *, event: str = "dropped", origin: TableName | None = None) -> None:
        known = self.name_of(name)
        if known in self.versions:
            last = self.versions[known][-1]
            if event == "dropped" and last.event in GONE and last.commit_ts != self.commit_ts:
                self.contradict(known, f"it drops {name[0]}.{name[1]}, which was {last.reason}", last)
            self.put(known, None, reason, event=event, origin=origin)
        else:
            self.ends.setdefault(name, []).append(self.commit_ts)

    def rename(self, old: TableName, new: TableName) -> None:
        known, taken = self.name_of(old), False
        if (old[0].lower(), old[1].lower()) != (new[0].lower(), new[1].lower()):
            taken = self.take(new, "renames a table to", origin=known)
        definition = self.definition(old)
        self.drop(old, f"renamed to {new[0]}.{new[1]}", event="left", origin=new)
        renamed = replace(definition, schema_name=new[0], table_name=new[1])
        self.put(new, renamed, f"renamed from {known[0]}.{known[1]}", event="renamed", origin=known)
        if taken:
            self.lose(new, _TAKEN)


_SAID = 3


def not_in_rows(catalog: Catalog) -> str:
    """DDL after which no log has all rows, or which are not understood, in a sentence; empty if there are none."""
    found = {
        (version.commit_ts or 0, f"{'.'.join(name)}: {version.reason}")
        for name, versions in catalog.versions.items()
        for version in versions
        if version.event in ("lost", "recovered", "unknown")
    }
    found |= {(u.commit_ts or 0, f"{u.schema_name or 'a statement'}: not understood: {u.reason}")
              for u in catalog.unparsed if not u.table_name}  # fmt: skip
    if not found:
        return ""
    first = [f"{said} (commit_ts {ts})" for ts, said in sorted(found)[:_SAID]]
    more = f", and {len(found) - _SAID} more" if len(found) > _SAID else ""
    return f"Row changes do not show what {len(found)} DDL did: {'; '.join(first)}{more}."


def apply_all(ddl: Iterable[tuple[int | None, str, str, str]], *, before: Iterable[TableDef] = ()) -> Catalog:
    """Build a catalog from ``(commit_ts, schema_name, table_name, query)``; see :meth:`Catalog.from_ddl`."""
    builder = _Builder()
    for definition in before:
        builder.put((definition.schema_name, definition.table_name), definition, event="given")
    # stable: DDL without commit_ts keeps the caller's order
    for commit_ts, schema, table, query in sorted(dict.fromkeys(ddl), key=lambda d: d[0] or 0):
        builder.commit_ts, builder.query = commit_ts, query
        try:
            _apply(builder, Cursor(words_of(query)), schema, table)
        except DDLSyntaxError as e:
            builder.unparsed.append(Unparsed(commit_ts, schema, table, query, e.message))
            if table:
                name = builder.name_of((schema, table))
                builder.put(name, None, f"a DDL was not understood: {e.message}", event="unknown")
    return Catalog(
        {n: tuple(v) for n, v in builder.versions.items()},
        tuple(builder.unparsed),
        tuple(builder.refused),
        {n: tuple(ts) for n, ts in builder.ends.items()},
        builder.others,
    )


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
        _recover(builder, cursor, schema, table)
    elif cursor.take("FLASHBACK"):
        _flash_back(builder, cursor)
    elif cursor.peek() not in _HARMLESS:
        raise DDLSyntaxError(f"unknown statement {cursor.rest()[:40]!r}")


def _create(builder: _Builder, cursor: Cursor, schema: str, table: str) -> None:
    cursor.take("OR", "REPLACE")
    cursor.take("GLOBAL")
    cursor.take("TEMPORARY")
    kind = cursor.take_any("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR", "HYBRID")
    if cursor.take("TABLE"):
        cursor.take("IF", "NOT", "EXISTS")
        written = cursor.table(schema)
        # the event knows the name as TiDB stores it
        name = (
            (schema, table) if (schema.lower(), table.lower()) == (written[0].lower(), written[1].lower()) else written
        )
        taken = builder.take(name, "creates")
        builder.put(name, _created(builder, cursor, name, schema), "created", event="created")
        if taken:
            builder.lose(name, _TAKEN)
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
    else:
        while not cursor.done and cursor.peek() not in _OTHER_OBJECTS:
            cursor.skip()
        if other := cursor.take_any("VIEW", "SEQUENCE"):
            cursor.take("IF", "NOT", "EXISTS")
            name = cursor.table(schema)
            lower = (name[0].lower(), name[1].lower())
            known, made = builder.others.get(lower), NoTable(other.lower(), builder.query, builder.commit_ts)
            is_there = known is not None and not known.is_dropped  # OR REPLACE, or sent again
            if is_there or not builder.take(name, f"creates the {made.kind}"):
                builder.others[lower] = made


def _created(builder: _Builder, cursor: Cursor, name: TableName, schema: str) -> TableDef:
    body = cursor.inside() if cursor.peek() == "(" else cursor
    if body.take("LIKE"):
        return replace(builder.definition(body.table(schema)), schema_name=name[0], table_name=name[1])
    if body is cursor:
        raise DDLSyntaxError("CREATE TABLE without columns")
    return table_of_definitions(name, body)


def _alter(builder: _Builder, cursor: Cursor, name: TableName) -> None:
    definition, current, reason, event = builder.definition(name), name, "", "kept"
    for part in cursor.parts():
        if part.peek() == "RENAME" and part.peek(1) not in ("INDEX", "KEY", "COLUMN"):
            part.take("RENAME")
            part.take_any("TO", "AS", "=")
            current = part.table(name[0])
            continue
        changed = altered(definition, part)
        if changed is None:  # partition clauses run to the end
            if Cursor(part.words).take("TRUNCATE", "PARTITION", "ALL"):
                reason, event = "truncated", "truncated"
            elif reason := _rows_lost(builder, part, name):
                event = "lost"
            break
        definition = changed
    builder.put(name, definition, reason, event=event)
    if current != name:
        builder.rename(name, current)


def _rows_lost(builder: _Builder, part: Cursor, name: TableName) -> str:
    """Why a partition clause moves rows that no row event names; empty if it moves none.

    The clause may have been read in part.
    """
    words = Cursor(part.words)
    if any(words.take(verb, "PARTITION") for verb in ("DROP", "TRUNCATE", "FIRST")):
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
        builder.ends.setdefault((dropped, ""), []).append(builder.commit_ts)
        there = (n for n, v in builder.versions.items() if n[0].lower() == dropped and v[-1].event not in GONE)
        for name in list(there):
            builder.drop(name, _WITH_DATABASE)
        builder.others |= {n: replace(o, is_dropped=True) for n, o in builder.others.items() if n[0] == dropped}
    elif cursor.take_any("VIEW", "SEQUENCE"):
        cursor.take("IF", "EXISTS")
        for part in cursor.parts():
            name = part.table(schema)
            if known := builder.others.get(lower := (name[0].lower(), name[1].lower())):
                builder.others[lower] = replace(known, is_dropped=True)
    elif cursor.peek() not in _OTHER_OBJECTS | {"RESOURCE", "GLOBAL", "SESSION", "STATS", "SERVER"}:
        raise DDLSyntaxError(f"unknown statement DROP {cursor.peek()}")


def _recover(builder: _Builder, cursor: Cursor, schema: str, table: str) -> None:
    """RECOVER TABLE and FLASHBACK TABLE; of one BY JOB the event alone names the table."""
    old = (schema, table) if cursor.take("BY", "JOB") else cursor.table(schema)
    new = cursor.table(schema) if not cursor.take("TO", "BEFORE", "DROP") and cursor.take("TO") else old
    versions = builder.versions.get(builder.name_of(old), [])
    last = next((v.definition for v in reversed(versions) if v.definition), None)
    builder.take(new, "recovers")
    if last is None:
        raise DDLSyntaxError(f"the table {old[0]}.{old[1]} is not known before this DDL")
    recovered = replace(last, schema_name=new[0], table_name=new[1])
    builder.put(builder.name_of(new), recovered, _RECOVERED, event="recovered")


def _flash_back(builder: _Builder, cursor: Cursor) -> None:
    """FLASHBACK DATABASE brings all tables back that were dropped with it; FLASHBACK CLUSTER changes all rows."""
    if not cursor.take_any("DATABASE", "SCHEMA"):
        cursor.expect("CLUSTER")
        for name in list(builder.versions):
            builder.put(name, None, "FLASHBACK CLUSTER changed rows that the log does not name", event="unknown")
        return
    old = cursor.name().lower()
    new = cursor.name() if not cursor.take("TO", "BEFORE", "DROP") and cursor.take("TO") else ""
    for name, versions in list(builder.versions.items()):
        if name[0].lower() == old and (versions[-1].event, versions[-1].reason) == ("dropped", _WITH_DATABASE):
            last = next((v.definition for v in reversed(versions) if v.definition), None)
            again = (new or name[0], name[1])
            found = None if last is None else replace(last, schema_name=again[0])
            event = "unknown" if last is None else "recovered"
            builder.put(again, found, _RECOVERED, event=event)
