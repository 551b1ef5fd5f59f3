"""What advice needs to know of a log beside its dispatch: facts of tables and columns, hot keys, colliding hashes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import with_hashes, with_keys
from ticdc_lab.dispatch import hashing
from ticdc_lab.dispatch.definitions import key_text, unique_columns, with_answers
from ticdc_lab.dispatch.dispatching import dispatch
from ticdc_lab.dispatch.key_updates import key_change
from ticdc_lab.engine.columns import in_order
from ticdc_lab.events.schema import DISPATCH, KEYS, require_batch, require_columns
from ticdc_lab.facts.catalog import Catalog

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

    Parameters
    ----------
    events
        The events contract.
    catalog
        Tells which columns are unique, beside the handle key.

    Returns
    -------
    list of TableFact
        By name.
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
    """Distinct handle keys that index-value cannot tell apart, per table (``schema.table``).

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
