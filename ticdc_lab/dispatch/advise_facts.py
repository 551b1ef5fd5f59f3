"""What advice needs to know of a log and of each candidate: tables and columns, hot keys, colliding hashes, and
measures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import with_hashes, with_keys
from ticdc_lab.dispatch import hashing
from ticdc_lab.dispatch.definitions import key_text, unique_columns, with_answers
from ticdc_lab.dispatch.dispatching import dispatch
from ticdc_lab.dispatch.evenness import gini
from ticdc_lab.dispatch.rules import Rule
from ticdc_lab.dispatch.settings import key_change
from ticdc_lab.dispatch.whatif import WhatIf
from ticdc_lab.engine.columns import in_order
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.schema import DISPATCH, KEYS, require_batch, require_columns
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import IndexDef, TableDef

HOT_KEYS = 10
"""Keys named per table at most."""

_TABLE = ("schema_name", "table_name")
_UNIQUE = "_advise_unique"


@dataclass(frozen=True, slots=True)
class ColumnFact:
    """One column of a table in the log.

    ``rows`` hold it, ``nulls`` of them as NULL, with about ``distinct`` values; ``changed`` updates changed it, of
    ``compared`` that carry it before and after. Of ``labels`` values only the label of an ENUM or SET is known.
    """

    name: str
    mysql_type: str
    is_key: bool
    rows: int
    nulls: int
    distinct: int
    changed: int
    compared: int
    labels: int


@dataclass(frozen=True, slots=True)
class TableFact:
    """One table of the log, in deliveries: ``key_changes`` are updates of a key, sent whole or as two halves."""

    schema_name: str
    table_name: str
    rows: int
    bytes: int
    updates: int
    whole_key_changes: int
    split_key_changes: int
    keyless: int
    columns: tuple[ColumnFact, ...] = ()

    @property
    def name(self) -> str:
        """``schema.table``."""
        return f"{self.schema_name}.{self.table_name}"


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key with its number of row changes and their share of the table's."""

    key: str
    rows: int
    share: float


@dataclass(frozen=True, slots=True)
class Collisions:
    """Keys of a table whose 32-bit hashes meet.

    ``groups`` hashes are shared by ``keys`` distinct keys; ``by_text`` of the groups because the same texts, name and
    value put together, are hashed; ``cancelled`` keys leave nothing of the hash but the table's. ``example`` is one
    pair.
    """

    distinct: int
    groups: int
    keys: int
    by_text: int
    cancelled: int
    example: tuple[str, str] | None


def table_facts(events: DataFrame, *, catalog: Catalog | None = None) -> list[TableFact]:
    """Facts of every table and of its columns: two aggregates, as small as the schema.

    ``events``: the events contract. ``catalog``: the unique columns, beside the handle key. Returns: by
    name.
    """
    require_batch(events, function="table_facts", why="shares are of all rows")
    rows = _rows(events, catalog)
    columns = defaultdict(list)
    for r in rows.transform(_column_aggregate).orderBy(*_TABLE, "name").toArrow().to_pylist():
        columns[r.pop("schema_name"), r.pop("table_name")].append(ColumnFact(**r))
    found = rows.transform(_table_aggregate).toArrow().to_pylist()
    facts = [TableFact(**r, columns=tuple(columns[r["schema_name"], r["table_name"]])) for r in found]
    return sorted(facts, key=lambda t: t.name)


def hot_keys(events: DataFrame, *, most: int = HOT_KEYS) -> dict[str, list[HotKey]]:
    """The handle keys with most row changes, per table (``schema.table``), most first."""
    require_batch(events, function="hot_keys", why="the most frequent key is known at the end")
    keys = events.where("kind = 'row'").transform(with_keys).where("key_hash IS NOT NULL").groupBy(*_TABLE, "key_hash")
    counted = keys.agg(F.count(F.lit(1)).alias("rows"), F.min(key_text()).alias("key"))
    shared = counted.withColumn("share", F.col("rows") / F.sum("rows").over(Window.partitionBy(*_TABLE)))
    rank = F.row_number().over(Window.partitionBy(*_TABLE).orderBy(F.desc("rows"), "key"))
    found: dict[str, list[HotKey]] = defaultdict(list)
    top = shared.withColumn("rank", rank).where(F.col("rank") <= most).orderBy(*_TABLE, "rank")
    for r in top.toArrow().to_pylist():
        found[f"{r['schema_name']}.{r['table_name']}"].append(HotKey(r["key"], r["rows"], r["share"]))
    return dict(found)


def collisions(events: DataFrame) -> dict[str, Collisions]:
    """Distinct handle keys that index-value cannot distinguish, per table (``schema.table``).

    Such keys always share a partition. That breaks nothing, but they share one share of the load.
    """
    require_batch(events, function="collisions", why="two keys that meet may be anywhere in it")
    hashed = events.where("kind = 'row'").transform(with_keys).transform(dispatch, strategy="index-value", partitions=1)
    keyed = hashed.where("key_hash IS NOT NULL AND dispatch_key IS NOT NULL").groupBy(*_TABLE, "key_hash")
    distinct = keyed.agg(
        F.min("dispatch_key").alias("hash"), F.min(key_text()).alias("key"), F.min(_hashed_texts()).alias("text")
    )
    groups = distinct.groupBy(*_TABLE, "hash").agg(
        F.count(F.lit(1)).alias("n"),
        F.min("key").alias("a"),
        F.max("key").alias("b"),
        (F.min("text") == F.max("text")).alias("by_text"),
    )
    met = F.col("n") > 1
    bare = hashing.table_hash().cast("string") == F.col("hash")
    summed = groups.groupBy(*_TABLE).agg(
        F.sum("n").alias("distinct"),
        F.count_if(met).alias("groups"),
        F.coalesce(F.sum(F.when(met, F.col("n"))), F.lit(0)).alias("keys"),
        F.count_if(met & F.col("by_text")).alias("by_text"),
        F.coalesce(F.sum(F.when(bare, F.col("n"))), F.lit(0)).alias("cancelled"),
        F.min_by(F.struct("a", "b"), F.when(met, in_order("a", "b"))).alias("example"),
    )
    return {
        f"{r.pop('schema_name')}.{r.pop('table_name')}": Collisions(
            **{**r, "example": None if r["example"] is None else (r["example"]["a"], r["example"]["b"])}
        )
        for r in summed.orderBy(*_TABLE).toArrow().to_pylist()
    }


def tables_that_collide(tables: Sequence[TableFact]) -> list[tuple[str, str]]:
    """Pairs of tables with one table hash because their names put together are the same: ``ab.c`` and ``a.bc``."""
    by_text: dict[str, list[str]] = defaultdict(list)
    for t in tables:
        by_text[t.schema_name + t.table_name].append(t.name)
    return [(names[0], other) for names in by_text.values() for other in sorted(names)[1:]]


def _rows(events: DataFrame, catalog: Catalog | None) -> DataFrame:
    require_columns(events, "kind", *_TABLE, "commit_ts", "op", "columns", "before")
    rows = events.where("kind = 'row'").transform(with_hashes, KEYS, DISPATCH)
    if catalog is None:
        return rows.withColumn(_UNIQUE, F.lit(None).cast("array<string>"))
    known = with_answers(rows, catalog=catalog, questions={_UNIQUE: unique_columns})
    return known.withColumn(_UNIQUE, F.col(_UNIQUE)["columns"])


def _table_aggregate(rows: DataFrame) -> DataFrame:
    whole = key_change(unique_columns=F.col(_UNIQUE))
    # a key both deleted and inserted in one transaction was one update
    part = (*_TABLE, "commit_ts", "key_hash")
    halves = rows.where("op IN ('delete', 'insert') AND commit_ts IS NOT NULL AND key_hash IS NOT NULL").groupBy(*part)
    split = halves.agg(F.count_distinct("op").alias("ops")).where("ops = 2").groupBy(*_TABLE)
    pairs = split.agg(F.count(F.lit(1)).alias("split_key_changes"))
    tables = rows.groupBy(*_TABLE).agg(
        F.count(F.lit(1)).alias("rows"),
        F.coalesce(F.sum("row_bytes"), F.lit(0)).alias("bytes"),
        F.count_if(F.col("op") == "update").alias("updates"),
        F.count_if(whole).alias("whole_key_changes"),
        F.count_if(F.col("key_hash").isNull()).alias("keyless"),
    )
    return tables.join(pairs, list(_TABLE), "left").fillna(0, subset=["split_key_changes"])


def _column_aggregate(rows: DataFrame) -> DataFrame:
    c = F.col("c")
    compared = (F.col("op") == "update") & F.col("before").isNotNull()
    every = rows.select(
        *_TABLE,
        compared.alias("compared"),
        _changed().alias("changed"),
        F.explode(hashing.dispatched_image()).alias("c"),
    )
    label = c["mysql_type"].rlike("^(enum|set)") & ~c["value"].rlike("^[0-9]+$")
    return every.groupBy(*_TABLE, c["name"].alias("name")).agg(
        F.min(c["mysql_type"]).alias("mysql_type"),
        F.max(c["is_key"]).alias("is_key"),
        F.count(F.lit(1)).alias("rows"),
        F.count_if(c["value"].isNull()).alias("nulls"),
        F.approx_count_distinct(c["value"]).alias("distinct"),
        F.count_if(F.array_contains("changed", c["name"])).alias("changed"),
        F.count_if("compared").alias("compared"),
        F.count_if(label).alias("labels"),
    )


def _changed() -> Column:
    """Names of the columns whose value an update changed; what the old image leaves out did not change."""
    before, after = F.col("before"), F.col("columns")
    pairs = F.arrays_zip(before.alias("b"), after.alias("a"))
    aligned = F.transform(
        F.filter(pairs, lambda z: ~z["b"]["value"].eqNullSafe(z["a"]["value"])), lambda z: z["b"]["name"]
    )

    def differs(b: Column) -> Column:
        return F.exists(after, lambda c: (c["name"] == b["name"]) & ~c["value"].eqNullSafe(b["value"]))

    others = F.transform(F.filter(before, differs), lambda b: b["name"])
    found = F.when(F.col("before.name") == F.col("columns.name"), aligned).otherwise(others)
    return F.when(F.col("op") == "update", found)


def _hashed_texts() -> Column:
    """What is hashed, in an order of its own: two keys with the same texts have the same hash by construction."""
    keys = F.filter(hashing.dispatched_image(), lambda c: c["is_key"] & c["value"].isNotNull())
    return F.array_join(F.sort_array(F.transform(keys, lambda c: F.concat(c["name"], c["value"]))), "\x01")


def as_dict(fact: Any) -> dict[str, Any]:
    """A fact as plain values, for JSON."""
    return {name: getattr(fact, name) for name in fact.__slots__ if name != "columns"}


MAX_KEY_COLUMNS, MAX_SINGLE = 3, 8
"""Columns of a subset of the handle key, and single columns per table, at most."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A dispatcher for one table.

    ``name`` is the what-if's; ``by_key``: the partition depends on the handle key alone, so that it can
    change only with the key; ``refused`` is why TiCDC or the log does not allow it; ``risk`` what may go wrong later.
    """

    name: str
    rule: Rule
    by_key: bool = False
    refused: str = ""
    risk: str = ""

    @property
    def simplicity(self) -> tuple[int, int, str]:
        """Less is simpler."""
        order = {"table": 0, "index-value": 1 if not self.rule.index else 2, "columns": 3}
        return (order.get(self.rule.partition, 5) + (0 if self.by_key else 1), len(self.rule.columns), self.name)


TABLE = Candidate("table", Rule((), "table"), by_key=True)
TS = Candidate("ts", Rule((), "ts"), risk="each change of a row goes where its commit_ts happens to lead")
INDEX_VALUE = Candidate("index-value", Rule((), "index-value"), by_key=True)
OTHERS = (
    Candidate("tidb-rowid", Rule((), "tidb-rowid"), refused="only TiCDC v4.0 dispatched by _tidb_rowid"),
    Candidate("conflict", Rule((), "conflict"), refused="TiCDC never built conflict detection"),
)
"""The design's other strategies: measured for comparison where the what-if has them, never recommended."""


def definitions_of(catalog: Catalog | None, table: TableFact) -> list[TableDef]:
    """Every definition the table had in the log."""
    versions = () if catalog is None else catalog.versions.get((table.schema_name, table.table_name), ())
    return [v.definition for v in versions if v.definition is not None]


def candidates_for(
    table: TableFact, definitions: Sequence[TableDef], *, singles_most: int = MAX_SINGLE
) -> tuple[list[Candidate], str]:
    """Candidates of a table, and a sentence about what was left out (empty for nothing)."""
    out = [TABLE, TS]
    if table.keyless < table.rows:
        out.append(INDEX_VALUE)
    out += [*OTHERS, *_indexes(definitions)]
    columns = {c.name.lower(): c for c in table.columns}
    handle = [c.name for c in table.columns if c.is_key and _usable(c, table, definitions)]
    sizes = range(1, min(MAX_KEY_COLUMNS, len(handle) - 1) + 1)
    subsets = [s for n in sizes for s in combinations(handle, n)]
    out += [Candidate("columns:" + ",".join(s), Rule((), "columns", columns=s), by_key=True) for s in subsets]
    singles = [c for c in columns.values() if not c.is_key and _usable(c, table, definitions)]
    singles.sort(key=lambda c: (c.changed > 0, -c.distinct, c.name))
    out += [_single(c) for c in singles[:singles_most]]
    cut = len(singles) - singles_most
    note = f"{cut} of {len(singles)} single columns were not measured: those that change or have few values."
    return out, note if cut > 0 else ""


def _single(c: ColumnFact) -> Candidate:
    if c.changed:
        risk = f"{c.changed} of {c.compared} updates change {c.name}: the row moves to another partition, silently"
    elif c.compared:
        risk = f"none of {c.compared} updates changes {c.name} here, but it is no key and nothing forbids it"
    else:
        risk = f"the log does not show whether {c.name} ever changes, and it is no key"
    return Candidate(f"columns:{c.name}", Rule((), "columns", columns=(c.name,)), risk=risk)


def _usable(c: ColumnFact, table: TableFact, definitions: Iterable[TableDef]) -> bool:
    """In all rows of the log and all definitions, not virtual, and its hash can be known."""
    found = [d.column(c.name) for d in definitions]
    carried = all(f is not None and f.generated != "virtual" for f in found)
    return carried and c.rows >= table.rows and not c.labels and "," not in c.name


def _indexes(definitions: Sequence[TableDef]) -> list[Candidate]:
    names = {i.name.lower(): i.name for d in definitions for i in d.indexes}
    return [c for lower in sorted(names) for c in _index(names[lower], definitions)]


def _index(name: str, definitions: Sequence[TableDef]) -> list[Candidate]:
    found = [d.index(name) for d in definitions]
    if all(i is not None and _is_handle(i, d) for i, d in zip(found, definitions, strict=True)):
        return []  # the same as index-value without a name
    every = [i for i in found if i is not None]
    if not every:
        return []  # the clustered primary key: no index of that name
    virtual = {c for d, i in zip(definitions, found, strict=True) if i for c in i.columns if _is_virtual(d, c)}
    refused = ""
    if len(every) < len(definitions):
        refused = f"the index {name} is not in every version of the table: TiCDC fails on rows without it"
    elif not all(i.unique for i in every):
        refused = f"the index {name} is not unique: TiCDC refuses it"
    elif virtual:
        refused = f"{', '.join(sorted(virtual))} of the index {name} is a virtual generated column, which TiCDC skips"
    changes = f"an update of {name} is split, and the halves of one row go to the partitions of the old and new value"
    return [Candidate(f"index-value:{name}", Rule((), "index-value", index=name), refused=refused, risk=changes)]


def _is_handle(index: IndexDef, table: TableDef) -> bool:
    return table.handle is not None and set(index.columns) == set(table.handle.columns)


def _is_virtual(table: TableDef, name: str) -> bool:
    column = table.column(name)
    return column is None or column.generated == "virtual"


Load = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Evenness:
    """How evenly partitions are filled; 1 is even, for ``gini`` 0.

    ``max_over_mean`` is of the whole log. ``in_time`` is the same within each time bucket, weighted by its load: a
    consumer that must keep up at every moment is that much slower than it could be. ``p99`` is the load that 99 % of
    the buckets of partitions do not exceed, over their mean.
    """

    max_over_mean: float
    gini: float
    in_time: float
    p99: float


@dataclass(frozen=True, slots=True)
class MeasuredCandidate:
    """A candidate with N partitions: evenness by rows and bytes, and violations with cases and a pair per guarantee."""

    candidate: Candidate
    partitions: int
    rows: Evenness
    bytes: Evenness
    unplaced: int
    broken: Mapping[str, tuple[int, int]]
    pairs: Mapping[str, list[dict[str, Any]]]

    @property
    def uneven(self) -> float:
        """The larger of rows and bytes."""
        return max(self.rows.max_over_mean, self.bytes.max_over_mean)


def evenness(load: Load) -> Evenness:
    """Evenness of a load (time buckets, partitions); NaN where there is none."""
    n, total = load.shape[1], load.sum(axis=0)
    whole = total.sum()
    if not whole:
        return Evenness(*[float("nan")] * 4)
    cells = load[load.sum(axis=1) > 0]
    return Evenness(
        float(total.max() * n / whole),
        gini(total),
        float(cells.max(axis=1).sum() * n / whole),
        float(np.percentile(cells, 99) / cells.mean()),
    )


def measured(what_if: WhatIf, table: str, candidates: Sequence[Candidate], partitions: int) -> list[MeasuredCandidate]:
    """Every candidate of a table that the what-if has, with N partitions."""
    offered = set(what_if.candidates_of(table))
    found = [c for c in candidates if c.name in offered]
    rows = int(load_of(what_if, table, "table", partitions).sum())
    return [m for c in found if (m := _measured(what_if, table, c, partitions, rows)) is not None]


def load_of(what_if: WhatIf, table: str, candidate: str, partitions: int, *, weight: str = "rows") -> Load:
    """Load of one table (time buckets, partitions)."""
    return what_if.load(strategy=candidate, partitions=partitions, weight=weight, tables=[table])


def _measured(what_if: WhatIf, table: str, c: Candidate, partitions: int, rows: int) -> MeasuredCandidate | None:
    try:
        loads = {w: load_of(what_if, table, c.name, partitions, weight=w) for w in ("rows", "bytes")}
        counted = what_if.counted(strategy=c.name, partitions=partitions, tables=[table])
    except DispatchError:
        if not c.refused:
            raise
        return None  # conflict detection is run with a few partition counts only
    mine = [r for r in counted if r["table"] == table]
    return MeasuredCandidate(
        c,
        partitions,
        evenness(loads["rows"]),
        evenness(loads["bytes"]),
        rows - int(loads["rows"].sum()),
        {r["guarantee"]: (int(r["violations"]), int(r["cases"])) for r in mine},
        {r["guarantee"]: r["counterexample"] for r in mine if r["counterexample"]},
    )
