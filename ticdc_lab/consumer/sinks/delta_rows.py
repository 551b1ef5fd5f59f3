"""Row changes of a range as Spark frames that Delta merges, by the expressions of :mod:`ticdc_lab.tables`."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.consumer.replay_ddl import Move
from ticdc_lab.consumer.replay_plan import Batch
from ticdc_lab.engine.columns import named
from ticdc_lab.facts.catalog import TableDef, TableName
from ticdc_lab.tables.as_of import signed
from ticdc_lab.tables.mysql_types import parsed, typed
from ticdc_lab.tables.stretches import Stretch, carried, key_traces, traces
from ticdc_lab.tables.versions import changes_of, keyed_changes, valued

Survey = dict[TableName, tuple[int, int]]


def rows_of(events: DataFrame, batch: Batch) -> DataFrame:
    """Row changes of a batch."""
    ts = F.col("commit_ts")
    found = events.where((F.col("kind") == "row") & (ts > batch.since) & (ts <= batch.until))
    if batch.home is None:
        return found
    return found.where((F.col("topic") == batch.home[0]) & (F.col("partition") == batch.home[1]))


def survey(rows: DataFrame) -> Survey:
    """How many row changes each table has, and how many are known only in part; one row a table."""
    partial = F.count_if(F.col("incomplete").isNotNull() & (F.col("op") != "delete"))
    found = rows.groupBy("schema_name", "table_name").agg(F.count(F.lit(1)).alias("n"), partial.alias("partial"))
    return {(r["schema_name"], r["table_name"]): (r["n"], r["partial"]) for r in found.collect()}


def _stretch(batch: Batch, table: TableDef) -> list[Stretch]:
    return [Stretch(0, (table.schema_name, table.table_name), batch.since, batch.until, table)]


def newest(rows: DataFrame, batch: Batch, table: TableDef) -> DataFrame:
    """The newest change of each key: ``_row`` (the table's columns), ``_gone`` (boolean) and ``_k0``, .. (the key)."""
    found = _stretch(batch, table)
    key, columns = key_traces(found, table=f"{table.schema_name}.{table.table_name}"), traces(found, all_columns=False)
    each = keyed_changes(changes_of(rows, found), found, key, columns)
    last = each.groupBy("_key").agg(F.max_by("_row", F.struct("commit_ts", "_rank", "_at")).alias("_row"))
    flat = last.select(
        "_key", F.col("_row.op").alias("_op"), F.col("_row.texts").alias("_texts"),
        F.col("_row.missing").alias("_missing"), "_row._stretch", "_row.protocol",
    )  # fmt: skip
    keys = [typed(F.col("_key")[i], parsed(k.newest.mysql_type))[0].alias(f"_k{i}") for i, k in enumerate(key)]
    values = F.struct(*valued(columns, found, as_of=True)[:-2]).alias("_row")
    return flat.select(values, (F.col("_op") == "delete").alias("_gone"), *keys)


def counted(rows: DataFrame, there: DataFrame, batch: Batch, table: TableDef) -> DataFrame:
    """All rows of a table without a key after a batch: those that are there, and what the changes add and take."""
    found = _stretch(batch, table)
    columns = traces(found, all_columns=False)
    values = valued(columns, found, as_of=True)[:-2]
    changes = signed(changes_of(rows, found), found, columns).select(F.struct(*values).alias("_row"), "_by")
    own = F.struct(*[named(c.name) for c in columns]).alias("_row")
    every = there.select(own, F.lit(1).alias("_by")).unionAll(changes)
    net = every.groupBy("_row").agg(F.sum("_by").alias("_n")).where("_n > 0")
    copies = F.explode(F.array_repeat(F.lit(1), F.col("_n").cast("int"))).alias("_copy")
    return net.select("_row", copies).select("_row.*")


def moved_column(move: Move) -> Column:
    """The values of a column when its table is reshaped."""
    target = parsed(move.column.mysql_type)
    if move.source is None:
        text = F.lit(move.text).cast("string")
        value = text if target.family in ("enum", "set") else typed(text, target)[0]
    elif move.how == "unknown":
        value = F.lit(None)
    else:
        value = F.col(named(move.source.name)).try_cast(target.spark)
    return value.cast(target.spark).alias(move.column.name)


def schema_of(table: TableDef) -> str:
    """The columns of a table as Spark's DDL."""
    return ", ".join(f"{named(c.name)} {parsed(c.mysql_type).spark}" for c in carried(table))


def same_key(table: TableDef) -> Column:
    """Whether a row ``t`` of the table has the key of a change ``s``."""
    key = [c for name in table.handle_columns if (c := table.column(name)) is not None]
    key.sort(key=lambda c: (c.id, c.name))  # as key_traces does
    differ = [~F.col(f"t.{named(c.name)}").eqNullSafe(F.col(f"s._k{i}")) for i, c in enumerate(key)]
    return ~reduce(or_, differ)
