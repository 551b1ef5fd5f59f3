"""Table definitions over time: what a log's DDL, or the caller, says about columns, indexes and handle keys.

Dispatch by a named index, and the footnotes of the design's guarantee table, need definitions that row events do not
carry. The rules are TiDB's: see :class:`TableDef`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.errors import ContractError
from ticdc_lab.events.schema import require_batch, require_columns

INTEGER_TYPES = frozenset({"tinyint", "smallint", "mediumint", "int", "integer", "bigint", "bool", "boolean"})


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """One column of a table.

    ``generated`` is ``""``, ``"stored"`` or ``"virtual"``; a ``hidden`` column belongs to an expression index.
    ``default`` is the text of a literal default, None for NULL and where there is none; ``computed_default`` says that
    it is an expression. ``id`` stays the same when the column is renamed, moved or modified; 0 where nobody numbered
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

    ``pk_is_handle`` says that TiDB stores the rows by their single integer primary key and keeps no index for it,
    so that no index is called PRIMARY there. ``columns_made`` is the greatest column id given so far.
    """

    schema_name: str
    table_name: str
    columns: tuple[ColumnDef, ...]
    indexes: tuple[IndexDef, ...] = ()
    pk_is_handle: bool = False
    columns_made: int = field(default=0, compare=False)

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


@dataclass(frozen=True, slots=True)
class TableVersion:
    """What a table is from a commit_ts (TSO) on; ``definition`` is None where it was dropped or cannot be told.

    ``commit_ts`` None means from ever. ``event`` says what the DDL did to the rows:

    - ``given``: nobody said so; a definition of the caller or read off the rows
    - ``created``: there are none, the table is new; ``truncated``: there are none any more
    - ``kept``: all are still there (columns or indexes may have changed)
    - ``renamed``: all came from the table ``origin``; ``left``: all went to the table ``origin``
    - ``dropped``: the table is gone
    - ``lost``: rows came or went that no row event names (partitions dropped or exchanged, a table recovered)
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


TableName = tuple[str, str]


@dataclass(frozen=True)
class Catalog:
    """Versions of table definitions by ``(schema_name, table_name)``, oldest first, and DDL that was not understood."""

    versions: Mapping[TableName, tuple[TableVersion, ...]] = field(default_factory=dict)
    unparsed: tuple[Unparsed, ...] = ()

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
        from ticdc_lab.facts.catalog_ddl import apply_all

        return apply_all(ddl, before=before)

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
    return Catalog.from_ddl(ddl_of(events, max_ddl=max_ddl))


def ddl_of(events: DataFrame, *, max_ddl: int = MAX_DDL_ROWS) -> list[DDL]:
    """Bring the distinct DDL of a log to the driver, in commit order.

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
    rows = (
        events.where((F.col("kind") == "ddl") & F.col("query").isNotNull())
        .groupBy("commit_ts", "schema_name", "table_name", "query")
        .agg(F.min("offset").alias("first"))
        .limit(max_ddl + 1)
        .collect()
    )
    if len(rows) > max_ddl:
        raise ContractError(
            f"The log holds more than {max_ddl} distinct DDL events.",
            hint="Pass max_ddl=..., or build the catalog with Catalog.from_ddl or Catalog.from_definitions.",
        )
    # offsets order DDL without commit_ts, which canal-json sends to one partition
    rows.sort(key=lambda r: (r["commit_ts"] or 0, r["first"] or 0))
    return [(r["commit_ts"], r["schema_name"] or "", r["table_name"] or "", r["query"]) for r in rows]
