"""Which dispatch rule a topic was recorded with, told from the log itself."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.dispatch import hashing
from ticdc_lab.dispatch.hashing import HASH, IMAGE
from ticdc_lab.keys import with_keys
from ticdc_lab.prefix import POSITION
from ticdc_lab.schema import require_batch, require_columns

EXPLAINED = 0.95
"""Least share of a table's rows that a rule must explain to count as theirs; a fault or two must not hide it."""

_TABLE = ("topic", "schema_name", "table_name")
_NEEDED = ("kind", "commit_ts", "topic", "partition", "schema_name", "table_name", "op", "columns", "before")


def infer_rules(events: DataFrame, *, partitions: int | None = None) -> DataFrame:
    """Say for each table which rule explains the partitions its rows were recorded in.

    Tried are ``table``, ``index-value`` over the handle key, ``columns`` over each single column, and ``ts``. Of the
    rules that explain most rows the simplest is taken, in that order: few rows may fit several.

    Parameters
    ----------
    events
        The events contract.
    partitions
        Partition count of the topics; by default the highest partition number with any event, plus 1: watermarks go
        to all partitions.

    Returns
    -------
    DataFrame
        Per ``topic, schema_name, table_name``: ``rule`` (string: the strategy's name, with ``columns:`` in front of a
        column's), ``n_rows``, ``n_explained`` (bigint), ``partitions`` (int). The best rule, however bad: compare
        ``n_explained`` with ``n_rows``.

    References
    ----------
    Golden README section 2: hash and dispatch formulas.
    """
    require_columns(events, *_NEEDED)
    require_batch(events, function="infer_rules", why="a rule must explain all rows of a table")
    rows = _with_partition_count(events, partitions=partitions).where("kind = 'row'")
    rows = rows.withColumn(IMAGE, hashing.dispatched_image())
    return _best(_whole_row_rules(rows).unionByName(_column_rules(rows))).drop("moves")


def move_causes(events: DataFrame) -> DataFrame:
    """Say for each table whose rows lie in several partitions which rule moves them.

    Parameters
    ----------
    events
        The events contract. Images are read only of tables with a row that moved.

    Returns
    -------
    DataFrame
        ``topic, schema_name, table_name, cause`` (string), for :func:`ticdc_lab.audit.audit`; only tables that a rule
        explains (:data:`EXPLAINED`) which can move a row: not one by table or by columns of the handle key alone, as a
        row keeps these. Besides, with null ``cause``, one row per event of these tables that does not lie where the
        rule puts it, at ``partition, offset, seq``; a value whose hash is not known tells nothing.
    """
    require_columns(events, *_NEEDED, *POSITION)
    require_batch(events, function="move_causes", why="a row may move at any later offset")
    marked = _with_partition_count(events.transform(with_keys), partitions=None)
    changes = marked.where("kind = 'row' AND key_hash IS NOT NULL")
    moved = (
        changes.groupBy(*_TABLE, "key_hash")
        .agg((F.min("partition") != F.max("partition")).alias("moved"))
        .where("moved")
        .select(*_TABLE)
        .distinct()
    )
    same = [F.col(c).eqNullSafe(F.col(f"_m_{c}")) for c in _TABLE]
    of = F.broadcast(moved.select(*[F.col(c).alias(f"_m_{c}") for c in _TABLE]))
    rows = marked.where("kind = 'row'").join(of, on=same, how="left_semi")
    rows = rows.withColumn(IMAGE, hashing.dispatched_image())
    rules = _best(_whole_row_rules(rows).unionByName(_column_rules(rows)))
    explained = rules.where(F.col("moves") & (F.col("n_explained") >= F.col("n_rows") * EXPLAINED))
    tables = explained.select(*_TABLE, _cause().alias("cause"))
    return tables.unionByName(_misplaced(rows, explained), allowMissingColumns=True)


def _misplaced(rows: DataFrame, rules: DataFrame) -> DataFrame:
    """Where rows lie elsewhere than their table's rule puts them, one by ts or a column."""
    of = F.broadcast(rules.select(*[F.col(c).alias(f"_r_{c}") for c in _TABLE], F.col("rule").alias("_rule")))
    same = [F.col(c).eqNullSafe(F.col(f"_r_{c}")) for c in _TABLE]
    named = F.get(F.filter(IMAGE, lambda c: c["name"] == _column_of(F.col("_rule"))), 0)
    column, n = F.col("_c"), F.col("partitions")
    h = hashing.table_hash().bitwiseXOR(hashing.column_hash(column, flavour="new"))
    by_column = F.when(column.isNotNull(), h % n)
    target = F.when(F.col("_rule") == "ts", F.pmod("commit_ts", n)).otherwise(by_column)
    placed = rows.join(of, on=same).withColumn("_c", named).where(target != F.col("partition"))
    return placed.select(*_TABLE, "partition", "offset", "seq")


def _with_partition_count(events: DataFrame, *, partitions: int | None) -> DataFrame:
    if partitions is not None:
        return events.withColumn("partitions", F.lit(partitions))
    counts = events.groupBy(F.col("topic").alias("_topic")).agg((F.max("partition") + 1).alias("partitions"))
    return events.join(F.broadcast(counts), F.col("topic").eqNullSafe(F.col("_topic"))).drop("_topic")


def _best(tried: DataFrame) -> DataFrame:
    """Of all rules tried on a table the one that explains most rows, of equals the simplest; ``moves`` if it can."""
    best = F.max(F.struct("n_explained", (-F.col("rank")).alias("order"), "rule", "n_rows", "moves"))
    found = tried.groupBy(*_TABLE, "partitions").agg(best.alias("b"))
    return found.select(*_TABLE, "b.rule", "b.n_rows", "b.n_explained", "partitions", "b.moves")


def _whole_row_rules(rows: DataFrame) -> DataFrame:
    n = F.col("partitions")
    hashed = hashing.with_hash(rows, choice=hashing.key_columns(), flavour="new")
    key = F.when(hashing.count_of(F.col(HASH)) > 0, hashing.hash_of(F.col(HASH)) % n)
    fits = {"table": (0, hashing.table_hash() % n), "index-value": (1, key), "ts": (3, F.pmod("commit_ts", n))}
    counted = hashed.groupBy(*_TABLE, "partitions").agg(
        F.count(F.lit(1)).alias("n_rows"),
        *[F.count_if(partition == F.col("partition")).alias(rule) for rule, (_, partition) in fits.items()],
    )
    each = F.array(
        *[
            F.struct(F.lit(rule).alias("rule"), F.lit(rank).alias("rank"), F.col(rule).alias("n_explained"))
            for rule, (rank, _) in fits.items()
        ]
    )
    moves = F.col("rule") == "ts"
    return counted.select(*_TABLE, "partitions", "n_rows", F.inline(each)).withColumn("moves", moves)


def _column_rules(rows: DataFrame) -> DataFrame:
    column = F.col("_c")
    h = hashing.table_hash().bitwiseXOR(hashing.column_hash(column, flavour="new"))
    each = rows.select(*_TABLE, "partitions", "partition", F.explode(IMAGE).alias("_c"))
    counted = each.groupBy(*_TABLE, "partitions", column["name"].alias("_name")).agg(
        F.count_if(h % F.col("partitions") == F.col("partition")).alias("n_explained"),
        F.count(F.lit(1)).alias("n_rows"),
        F.coalesce(~F.every(column["is_key"]), F.lit(True)).alias("moves"),
    )
    rule = F.concat(F.lit("columns:"), F.col("_name"))
    tried = (*_TABLE, "partitions", "n_rows", "n_explained", "moves")
    return counted.select(*tried, rule.alias("rule"), F.lit(2).alias("rank"))


def _column_of(rule: Column) -> Column:
    return F.substring(rule, len("columns:") + 1, 1 << 16)


def _cause() -> Column:
    n, rule = F.col("partitions").cast("string"), F.col("rule")
    share = F.when(F.col("n_explained") == F.col("n_rows"), F.format_string("all %d", "n_rows")).otherwise(
        F.format_string("%d of %d", "n_explained", "n_rows")
    )
    by_ts = F.concat(
        F.lit("the table is dispatched by ts ("), share, F.lit(" rows lie in partition commit_ts mod "), n, F.lit(")")
    )
    by_column = F.concat(
        F.lit("the table is dispatched by column "), _column_of(rule), F.lit(", whose value changes ("), share,
        F.lit(" rows lie in the partition of its hash mod "), n, F.lit(")"),
    )  # fmt: skip
    return F.when(rule == "ts", by_ts).otherwise(by_column)
