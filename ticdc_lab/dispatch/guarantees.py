"""The guarantee table of TiCDC's MQ design (分发方式与一致性保证), measured on a log after a what-if dispatch."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.codecs.kernel.numbering import DELETE
from ticdc_lab.codecs.keys import with_keys
from ticdc_lab.codecs.laid_out import laid_out_of
from ticdc_lab.dispatch.definitions import key_texts
from ticdc_lab.dispatch.unique_keys import UniqueKeys
from ticdc_lab.engine.columns import field_if, in_order, made_by, nullable
from ticdc_lab.events.changes import op_rank, row_id
from ticdc_lab.events.schema import require_batch, require_columns
from ticdc_lab.facts.catalog import Catalog

_OF_IMAGE = ("kind", "op", "schema_name", "table_name", "columns", "before")
_READ = (*_OF_IMAGE, "commit_ts", "key_hash", "before_key_hash")
_NEEDED = (*_OF_IMAGE, "commit_ts", "partition", "offset", "seq")
_IDENTITY = ("table", "commit_ts", "op", "identity")
_POSITION = ("target_partition", "partition", "offset", "seq", "commit_ts", "key")
_ORDER = ("commit_ts", "op_rank", "partition", "offset", "seq")
_OF_TRANSACTIONS = ("transactions", "transactions_torn", "transactions_overtakable")
MEASURES = ("guarantee", "table", "cases", "violations", "undecided", "counterexample")
"""Columns of :func:`guarantees`."""


def guarantees(dispatched: DataFrame, *, catalog: Catalog | None = None) -> DataFrame:
    """Measure row order, table order and in-table transactions, per table and in total.

    Parameters
    ----------
    dispatched
        Events with ``target_partition``, as :func:`ticdc_lab.dispatch.dispatching.dispatch` gives them. Each change
        counts once, however often it was delivered; those without commit_ts are left out, because nothing orders them.
        With ``alignment`` (bigint: barriers of the table before the row, as conflict detection writes them), a change
        with a greater one follows in any partition, because consumers wait for each other at a barrier.
    catalog
        Gives the unique indexes for ``row_order_any_unique``, which is left out without one.

    Returns
    -------
    DataFrame
        ``guarantee``, ``table`` (``schema.table``; null for the whole log), ``cases``, ``violations`` and ``undecided``
        (bigint; undecided are cases in which a partition is not known, not counted in ``cases``), ``counterexample``
        (array of two structs ``target_partition, partition, offset, seq, commit_ts, key``: the earlier and the later
        change of the first violation).

    Notes
    -----
    ``row_order``
        A case is a pair of consecutive changes of one row, by handle key, in commit order. Violated if they go to
        different partitions, so that a consumer may apply the later one first.
    ``row_order_any_unique``
        The same over rows that share a value of *any* unique index, in the old or new image. A value can pass from one
        row to another; with more than one unique index the two rows may be in different partitions although each row
        stays in its own. This is what the design's footnote 5 is about. Values are compared as bytes and whole: a
        case-insensitive collation, or a unique index over a prefix, makes more rows equal.
    ``table_order``
        A case is a pair of consecutive changes of one table.
    ``transactions_torn``, ``transactions_overtakable``, ``transactions``
        A case is the part of one transaction in one table. Torn: its rows go to more than one partition, or stand on
        both sides of a barrier. Overtakable: the previous change of one of its rows, in an earlier transaction, is in
        another partition. ``transactions`` counts those that are either. Torn alone would call ``ts`` consistent,
        because all rows of a transaction share their commit_ts and hence their partition; but TiCDC's design asks for
        order too, and by ``ts`` a later transaction on the same rows may overtake an earlier one.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        The order of changes needs the whole log.
    """
    require_columns(dispatched, "target_partition")
    require_batch(dispatched, function="guarantees", why="the previous change of a row may be anywhere before it")
    changes = first_changes(_aligned(dispatched), catalog=catalog, carry=("target_partition", "alignment"))
    pairs = _pairs(changes, uniques=catalog is not None)
    return _summed(_consecutive(pairs).unionByName(_transactions(pairs)))


def balance(dispatched: DataFrame, *, partitions: int) -> DataFrame:
    """Count the row changes that each partition gets, each change once.

    Returns
    -------
    DataFrame
        ``target_partition`` (int, every partition from 0), ``rows`` (bigint), ``share`` (double).
    """
    require_columns(dispatched, "target_partition")
    require_batch(dispatched, function="balance", why="a change may be delivered again at any later offset")
    changes = first_changes(dispatched, catalog=None, carry=("target_partition",))
    counts = (
        changes.where(F.col("target_partition").isNotNull()).groupBy("target_partition").agg(F.count("*").alias("rows"))
    )
    every = dispatched.sparkSession.range(partitions).select(F.col("id").cast("int").alias("target_partition"))
    rows = every.join(counts, "target_partition", "left").fillna(0, subset=["rows"])
    total = F.sum("rows").over(Window.partitionBy(F.lit(1)))
    return rows.withColumn("share", F.col("rows") / F.when(total > 0, total))


def skew(balanced: DataFrame) -> DataFrame:
    """Sum up :func:`balance` in one row.

    Returns
    -------
    DataFrame
        ``partitions`` (bigint), ``rows`` (bigint), ``idle`` (bigint: partitions without a row), ``max_over_mean``
        (double, 1 is even) and ``gini`` (double, 0 is even).
    """
    require_columns(balanced, "target_partition", "rows", frame="balance")
    by_rows = Window.partitionBy(F.lit(1)).orderBy("rows", "target_partition")
    ranked = balanced.withColumn("rank", F.row_number().over(by_rows))
    n, total = F.count("*"), F.sum("rows")
    weighted = F.sum(F.col("rank") * F.col("rows"))
    return ranked.agg(
        n.alias("partitions"),
        total.alias("rows"),
        F.sum(F.when(F.col("rows") == 0, 1).otherwise(0)).alias("idle"),
        (F.max("rows") * n / F.when(total > 0, total)).alias("max_over_mean"),
        (2 * weighted / F.when(total > 0, n * total) - (n + 1) / n).alias("gini"),
    )


def first_changes(events: DataFrame, *, catalog: Catalog | None, carry: tuple[str, ...] = ()) -> DataFrame:
    """One row per row change, however often it was delivered.

    A change is known by table, commit_ts, op and key, or by its whole content where the table has no key. Of its
    deliveries the one with the smallest partition, offset, seq and topic is kept. Rows without commit_ts are left out:
    nothing orders them.

    ``events``: the events contract. ``catalog``: gives the unique indexes; without it ``uniques`` is empty. ``carry``:
    other columns of events to keep. Returns: ``table`` (``schema.table``), ``schema_name``, ``table_name``,
    ``commit_ts``, ``op``, ``op_rank`` (delete 0, update 1, insert 2: the order of rows in a transaction),
    ``partition``, ``offset``, ``seq``, ``topic``, ``keys`` (array<bigint>: hash of the handle key, and of the one
    before where it changed), ``key`` (string, ``col=value``), ``uniques`` (array<bigint>: hashes of every unique-index
    value without NULL, before and after), and ``carry``.
    """
    require_columns(events, *_NEEDED, *carry)
    rows = events.where((F.col("kind") == "row") & F.col("commit_ts").isNotNull()).transform(with_keys)
    none, keys = F.array().cast("array<bigint>"), UniqueKeys(catalog, handle=True)
    facts = {
        "table": F.concat("schema_name", F.lit("."), "table_name"),
        "op_rank": op_rank(),
        "identity": row_id(),
        "keys": F.array_compact(F.array("key_hash", "before_key_hash")),
        "key": made_by(_key_text, "string", *_OF_IMAGE),
        "uniques": made_by(partial(_uniques, keys=keys), "array<bigint>", *_READ) if keys.others else none,
    }
    kept = ("op_rank", "keys", "key", "uniques", "schema_name", "table_name", *carry)
    place = [c for c in ("partition", "offset", "seq", "topic") if c in rows.columns and c not in kept]
    narrow = rows.withColumns(facts).select(*_IDENTITY, *place, *kept)
    first = F.min_by(F.struct(*place, *kept), in_order(*place))
    return narrow.groupBy(*_IDENTITY).agg(first.alias("first")).select("table", "commit_ts", "op", "first.*")


def _key_text(rows: pa.RecordBatch) -> pa.Array:
    """The handle key of each row as ``col=value``, null where it has none."""
    laid = laid_out_of(rows)
    texts = pc.if_else(pa.array(laid.op == DELETE), key_texts(laid.before), key_texts(laid.after))
    return pc.if_else(pc.equal(texts, ""), None, texts)


def _uniques(rows: pa.RecordBatch, *, keys: UniqueKeys) -> pa.Array:
    """Hashes of the values without NULL of all unique indexes, before and after."""
    each = keys.of(rows)["uniques"].to_pylist()
    return pa.array([[*dict.fromkeys(of or ())] for of in each], pa.list_(pa.int64()))


def _pairs(changes: DataFrame, *, uniques: bool) -> DataFrame:
    """Every change with the previous one of the same table, row and unique value, in commit order.

    ``previous`` is null for the first, and where ``of`` is null: a table without any pair is reported too.
    """
    kinds = [
        _each("table_order", F.array(nullable(F.lit(0).cast("bigint"), because=F.col("commit_ts")))),
        _each("row_order", F.col("keys")),
    ]
    kinds += [_each("row_order_any_unique", F.col("uniques"))] if uniques else []
    every = changes.withColumn("in_order", F.explode(F.concat(*kinds)))
    of = every.select("*", "in_order.guarantee", "in_order.of")
    order = Window.partitionBy("table", "guarantee", "of").orderBy(
        *_ORDER, *(c for c in ("topic",) if c in changes.columns)
    )
    position = F.struct(*_POSITION, "alignment")
    previous = F.when(F.col("of").isNotNull(), F.lag(position).over(order))
    return of.select("guarantee", "table", "commit_ts", position.alias("current"), previous.alias("previous"))


def _each(guarantee: str, values: Column) -> Column:
    """What a change has a place in, by a guarantee: each of the values, or null."""
    known = F.when(F.size(values) > 0, values).otherwise(F.array(F.lit(None).cast("bigint")))
    return F.transform(known, lambda of: F.struct(F.lit(guarantee).alias("guarantee"), of.alias("of")))


def _aligned(dispatched: DataFrame) -> DataFrame:
    """Dispatched events with ``alignment``, 0 where the dispatcher writes no barriers."""
    known = F.col("alignment") if "alignment" in dispatched.columns else F.lit(None)
    return dispatched.withColumn("alignment", F.coalesce(known.cast("bigint"), F.lit(0)))


def _moved() -> Column:
    """Whether a pair goes to different partitions with no barrier between; null where one of them is not known."""
    before = {name: field_if("previous", name) for name in ("target_partition", "alignment")}
    apart = before["target_partition"] != F.col("current.target_partition")
    return F.when(apart.isNotNull(), apart & (before["alignment"] >= F.col("current.alignment")))


def _place(end: str) -> Column:
    """One end of a pair as evidence."""
    return F.struct(*[F.col(f"{end}.{c}").alias(c) for c in _POSITION])


def _consecutive(pairs: DataFrame) -> DataFrame:
    """The pairs as cases: ``guarantee``, ``table``, ``is_case``, ``broken`` (null = undecided) and ``evidence``."""
    has_previous = F.col("previous").isNotNull()
    evidence = F.when(has_previous, F.array(_place("previous"), _place("current")))
    return pairs.select("guarantee", "table", *_case(has_previous, _moved(), evidence))


def _summed(cases: DataFrame) -> DataFrame:
    """Per guarantee, each table and all of them."""
    earlier, later = F.get("evidence", 0), F.get("evidence", 1)
    ends = (later[name] for name in ("commit_ts", "partition", "offset", "seq"))
    order = in_order(*ends, *[end[name] for end in (earlier, later) for name in _POSITION])
    return (
        cases.rollup("guarantee", "table")
        .agg(
            F.count("broken").alias("cases"),
            F.count_if("broken").alias("violations"),
            F.count_if(F.col("is_case") & F.col("broken").isNull()).alias("undecided"),
            F.min_by("evidence", F.when(F.col("broken"), order)).alias("counterexample"),
        )
        .where("guarantee IS NOT NULL")
        .select(*MEASURES)
    )


def _transactions(pairs: DataFrame) -> DataFrame:
    """The three measures of in-table transactions as cases: each change is in one pair of its table's order."""
    is_change, target = F.col("guarantee") == "table_order", F.col("current.target_partition")
    is_placed = is_change & target.isNotNull()
    position = F.struct(*[F.col(f"current.{c}").alias(c) for c in _POSITION])
    at = F.struct(F.col("current.alignment"), target.alias("target_partition"), position.alias("position"))
    at_order = in_order("current.alignment", *[f"current.{c}" for c in _POSITION])
    both = F.array(_place("previous"), _place("current"))
    is_later = field_if("previous", "commit_ts") < F.col("current.commit_ts")
    is_overtaken = (F.col("guarantee") == "row_order") & _moved() & is_later
    order = in_order(*_ORDER_OF_PAIR, *[f"{end}.{name}" for end in ("previous", "current") for name in _POSITION])
    low, high, before = F.col("low"), F.col("high"), F.col("overtaken")
    whole = pairs.groupBy("table", "commit_ts").agg(
        F.min_by(at, F.when(is_placed, at_order)).alias("low"),
        F.max_by(at, F.when(is_placed, at_order)).alias("high"),
        F.min_by(both, F.when(is_overtaken, order)).alias("overtaken"),
    )
    each = whole.withColumn("guarantee", F.explode(F.array(*map(F.lit, _OF_TRANSACTIONS))))
    torn = (low["target_partition"] != high["target_partition"]) | (low["alignment"] != high["alignment"])
    overtakable = F.when(low.isNotNull(), before.isNotNull())
    is_torn, is_overtakable = (F.col("guarantee") == name for name in _OF_TRANSACTIONS[1:])
    broken = F.when(is_torn, torn).when(is_overtakable, overtakable).otherwise(torn | overtakable)
    evidence = F.when(~is_overtakable & torn, F.array(low["position"], high["position"])).otherwise(before)
    return each.select("guarantee", "table", *_case(F.lit(True), broken, evidence))


def _case(is_case: Column, broken: Column, evidence: Column) -> list[Column]:
    return [is_case.alias("is_case"), broken.alias("broken"), evidence.alias("evidence")]


_ORDER_OF_PAIR = ("current.partition", "current.offset", "current.seq")
