"""The dispatchers that can be compared on a log, by name, and the hash of each for every row change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.dispatch.definitions import HashedColumns, Question, with_answers
from ticdc_lab.dispatch.dispatching import ready_for
from ticdc_lab.dispatch.hashing import with_hash
from ticdc_lab.dispatch.strategies import (
    Request,
    Verdict,
    by_table_columns,
    columns_answer,
    index_answer,
    strategy_of,
)
from ticdc_lab.dispatch.unique_keys import beside_handle
from ticdc_lab.facts.catalog import Catalog, TableVersion
from ticdc_lab.facts.definitions import ColumnDef, TableDef

TableName = tuple[str, str]
Indexes = Sequence[str] | Mapping[str, Sequence[str]]
"""Names of indexes: for every table, or by table (``schema.table``)."""
ColumnLists = Iterable[Sequence[str]] | Mapping[str, Iterable[Sequence[str]]]
"""Lists of columns: for every table, or by table (``schema.table``)."""
FIXED = ("table", "ts", "index-value", "tidb-rowid")
"""Candidates that every table has."""


def candidate_name(strategy: str, *, index: str | None = None, columns: Sequence[str] | None = None) -> str:
    """The name of a strategy with its arguments: ``ts``, ``index-value:uk``, ``columns:a,b``."""
    strategy = {"default": "table", "rowid": "index-value"}.get(strategy.lower(), strategy.lower())
    if strategy == "columns":
        return "columns:" + ",".join(columns or ())
    return f"{strategy}:{index}" if index and strategy == "index-value" else strategy


@dataclass(frozen=True)
class Candidates:
    """Candidates by slot: first for every table, then for some tables alone.

    ``common`` are names; ``own`` gives for a table the names of its further slots, which ``catalog`` explains.
    """

    common: tuple[str, ...]
    own: Mapping[TableName, tuple[str, ...]]
    catalog: Catalog = field(default_factory=Catalog)

    @classmethod
    def of(
        cls,
        catalog: Catalog | None,
        *,
        indexes: Indexes = (),
        columns: ColumnLists = (),
    ) -> Candidates:
        """The fixed ones, those asked for, and every unique index of each table that is not its handle."""
        own_indexes, indexes = (indexes, ()) if isinstance(indexes, Mapping) else ({}, indexes)
        own_columns, columns = (columns, ()) if isinstance(columns, Mapping) else ({}, columns)
        common = [*FIXED, *[candidate_name("index-value", index=i) for i in indexes]]
        common += [candidate_name("columns", columns=list(c)) for c in columns]
        own: dict[TableName, tuple[str, ...]] = {}
        for table, versions in _defined(catalog, own_columns).versions.items():
            definitions = [v.definition for v in versions if v.definition is not None]
            name = ".".join(table)
            listed = [*own_indexes.get(name, ()), *[i.name for d in definitions for i in beside_handle(d)]]
            names = [candidate_name("index-value", index=i) for i in listed]
            names += [candidate_name("columns", columns=list(c)) for c in own_columns.get(name, ())]
            own[table] = tuple(n for n in dict.fromkeys(names) if n not in common)
        return cls(tuple(dict.fromkeys(common)), own, _defined(catalog, own_columns))

    def names(self, table: TableName) -> tuple[str, ...]:
        """Candidates of a table by slot."""
        return (*self.common, *self.own.get(table, ()))

    @property
    def slots(self) -> int:
        """The most candidates that a table has."""
        return len(self.common) + max((len(names) for names in self.own.values()), default=0)


def _defined(catalog: Catalog | None, columns: Mapping[str, Iterable[Sequence[str]]]) -> Catalog:
    """The catalog, and for tables that it does not know the columns that are asked for, as if they were all."""
    versions = dict(catalog.versions) if catalog is not None else {}
    for table, lists in columns.items():
        schema_name, _, table_name = table.partition(".")
        if (schema_name, table_name) not in versions:
            names = dict.fromkeys(name for names in lists for name in names)
            definition = TableDef(schema_name, table_name, tuple(ColumnDef(name, "") for name in names))
            versions[schema_name, table_name] = (TableVersion(None, definition),)
    return Catalog(versions)


def with_numbers(rows: DataFrame, candidates: Candidates, *, catalog: Catalog | None) -> DataFrame:
    """Add ``h0``, ``h1``, .. (bigint: the number whose remainder is the partition, as 64 bits unsigned) for each slot.

    Where a candidate cannot place a row its number is null; ``errors`` (array<string>, by slot) then has it, and is
    null where all can.
    """
    verdicts = [_verdict(candidates, s, catalog) for s in range(candidates.slots)]
    out, failures, common = ready_for(rows, verdicts, catalog=catalog), [], len(candidates.common)
    for s, verdict in enumerate(verdicts):
        known = catalog if s < common else candidates.catalog
        if verdict.question is not None and known is not None:
            out = with_answers(out, catalog=known, questions={_answer(s): verdict.question})
        if verdict.choice is not None:
            out = with_hash(out, choice=verdict.choice, flavour="new")
        out = out.withColumn(f"_error{s}", verdict.error)
        out = out.withColumn(f"h{s}", F.when(F.col(f"_error{s}").isNull(), verdict.number))
        if s >= common or candidates.common[s] != "tidb-rowid":  # its reason is always the same
            failures.append(F.nullif(F.col(f"_error{s}"), F.lit("")))
        else:
            failures.append(F.lit(None).cast("string"))
    return out.withColumn("errors", F.when(F.coalesce(*failures).isNotNull(), F.array(*failures)))


def _answer(slot: int) -> str:
    return f"_answer{slot}"


def _verdict(candidates: Candidates, slot: int, catalog: Catalog | None) -> Verdict:
    if slot < len(candidates.common):
        strategy, _, argument = candidates.common[slot].partition(":")
        index = argument if strategy == "index-value" and argument else None
        columns = tuple(argument.split(",")) if strategy == "columns" else None
        return strategy_of(strategy)(Request(1, index, columns, catalog, "new", _answer(slot)))
    return by_table_columns(Request(1, catalog=candidates.catalog, answer=_answer(slot)), _asks(candidates, slot))


def _asks(candidates: Candidates, slot: int) -> Question:
    def ask(table: TableDef) -> HashedColumns:
        names = candidates.names((table.schema_name, table.table_name))
        if slot >= len(names):
            return HashedColumns(error="")
        strategy, _, argument = names[slot].partition(":")
        return (
            index_answer(table, argument) if strategy == "index-value" else columns_answer(table, argument.split(","))
        )

    return ask
