"""Every row's changes in commit order, with what the log had promised before each: one shuffle by the row's key.

All guarantees about rows read this view; most rows of a sound log never leave its first stage. That stage asks three
cheap questions about each key: does it lie in two partitions, does offset order differ from commit order (a repeat does
too), did a watermark or DDL stand before a change that it forbids. Only the changes of keys with a yes are examined.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from ticdc_lab.audit.marks import (
    MARK,
    MARK_CHUNK,
    NAMES,
    place_col,
    places_of,
    with_ddl_before,
    with_resolved_before,
)
from ticdc_lab.keys import with_keys
from ticdc_lab.prefix import POSITION
from ticdc_lab.schema import KEYS, require_batch, require_columns
from ticdc_lab.transactions import op_rank

LEAVES = -1
"""Rank of the old key of an update that changes the key, before a transaction's deletes."""

_EVENT = ("place", "partition", "offset", "seq", "commit_ts", "change_hash")


def row_history(events: DataFrame, *, has_commit_ts: bool = True, chunk: int = MARK_CHUNK) -> DataFrame:
    """Changes of the rows that may break a guarantee, each with its surroundings.

    Parameters
    ----------
    events
        The events contract; images only where the hash columns are missing.
    has_commit_ts
        False for canal-json without the TiDB extension: nothing orders changes then, and each delivery is a change.
    chunk
        Offsets per chunk of :func:`ticdc_lab.audit.marks.with_resolved_before`.

    Returns
    -------
    DataFrame
        ``topic``, ``partition``, ``schema_name``, ``table_name``, ``place`` (bigint, names those four), ``offset``,
        ``seq``,
        ``commit_ts``, ``change_hash``, ``row_id`` (bigint), ``keyed`` (false: a table without key, ``row_id`` stands
        for the change's content), ``leaves`` (true: the old key of an update that changes it), ``resolved`` and ``ddl``
        (:mod:`ticdc_lab.audit.marks`), ``is_first`` (the delivery that counts), ``home`` (struct of the same columns:
        the change before, or for a repeat its first delivery), ``late`` (struct: an older change that first appears
        later in this partition).
    """
    require_columns(events, "kind", "commit_ts", "op", "query", *NAMES, *POSITION)
    require_batch(events, function="audit", why="a row may change again at any later offset")
    places = places_of(events)
    order = ("commit_ts", "rank", "offset", "place", "seq") if has_commit_ts else ("place", "offset", "seq")
    changes = _changes(events, places=places, has_commit_ts=has_commit_ts, chunk=chunk)
    by_row = Window.partitionBy("row_id").orderBy(*order)
    before_row = by_row.rowsBetween(Window.unboundedPreceding, -1)
    here = F.struct(*_EVENT)
    settled = (F.col("is_first") & ~F.col("leaves")) if has_commit_ts else ~F.col("leaves")
    return (
        _suspects(changes, order=order)
        .join(F.broadcast(places), on="place")
        .withColumns(
            {
                "keyed": F.col("row_id") != F.col("change_hash"),
                "leaves": F.col("rank") == LEAVES,
                "resolved": F.col("marks.resolved"),
                "ddl": F.col("marks.ddl"),
                "is_first": ~_repeats(by_row),
            }
        )
        .withColumn("home", F.last(F.when(settled, here), ignorenulls=True).over(before_row))
        .transform(_with_late, order=order, has_commit_ts=has_commit_ts)
        .drop("rank", "marks")
    )


def _changes(events: DataFrame, *, places: DataFrame, has_commit_ts: bool, chunk: int) -> DataFrame:
    """One narrow row per row event, two for an update that changes its key: these numbers are all that is shuffled."""
    keyed = events if set(KEYS.names) <= set(events.columns) else with_keys(events)
    rows = keyed.where("kind = 'row'").select(
        *POSITION, "commit_ts", op_rank().alias("op"), *KEYS.names, place_col().alias("place")
    )
    if has_commit_ts:
        rows = with_resolved_before(rows, events=events, chunk=chunk).transform(
            with_ddl_before, events=events, places=places
        )
    else:
        rows = rows.withColumns({"resolved": F.lit(None).cast(MARK), "ddl": F.lit(None).cast(MARK)})
    own = F.struct(F.coalesce("key_hash", "change_hash").alias("row_id"), F.col("op").alias("rank"))
    old = F.struct(F.col("before_key_hash").alias("row_id"), F.lit(LEAVES).cast("tinyint").alias("rank"))
    roles = F.when(F.col("before_key_hash").isNull(), F.array(own)).otherwise(F.array(old, own))
    broken = F.col("resolved").isNotNull() | F.col("ddl").isNotNull()
    return rows.withColumn("_role", F.explode(roles)).select(
        F.col("_role.row_id").alias("row_id"),
        F.col("_role.rank").alias("rank"),
        *("place", "commit_ts", "offset", "seq", "change_hash"),
        # one nullable column: a null costs eight bytes in the shuffle, two structs would cost more
        F.when(broken & (F.col("_role.rank") != LEAVES), F.struct("resolved", "ddl")).alias("marks"),
    )


def _suspects(changes: DataFrame, *, order: tuple[str, ...]) -> DataFrame:
    """All changes of the rows of which any change is out of the ordinary."""
    by_row = Window.partitionBy("row_id").orderBy(*order)
    was = {f"_{c}": F.lag(c).over(by_row) for c in ("place", "offset", "seq", "commit_ts", "rank")}
    behind = (F.col("_offset") > F.col("offset")) | (
        (F.col("_offset") == F.col("offset")) & (F.col("_seq") > F.col("seq"))
    )
    again = (F.col("_commit_ts") == F.col("commit_ts")) & (F.col("_rank") == F.col("rank"))
    odd = F.col("marks").isNotNull() | F.coalesce((F.col("_place") != F.col("place")) | behind | again, F.lit(False))
    return (
        changes.withColumns(was)
        .withColumn("_odd", F.max(odd).over(Window.partitionBy("row_id")))
        .where("_odd")
        .select(*changes.columns)
    )


def _with_late(history: DataFrame, *, order: tuple[str, ...], has_commit_ts: bool) -> DataFrame:
    """Add ``late``: an older change of the row whose first appearance in the partition stands behind this one's.

    One newer change is enough to show that an older one is late, so each late change is named once.
    """
    own = F.struct("offset", "seq", "commit_ts", "partition")
    if not has_commit_ts:
        return history.withColumn("late", F.when(F.lit(False), own))
    by_place = Window.partitionBy("row_id", "place").orderBy(*order)
    latest = F.col("_latest")
    behind = (latest["offset"] > F.col("offset")) | (
        (latest["offset"] == F.col("offset")) & (latest["seq"] > F.col("seq"))
    )
    is_late = F.col("_first") & behind & (latest["commit_ts"] < F.col("commit_ts"))
    shown = Window.partitionBy("row_id", "place", "late").orderBy(*order)
    return (
        history.withColumn("_first", ~_repeats(by_place))
        .withColumn(
            "_latest",
            F.max(F.when(F.col("_first"), own)).over(by_place.rowsBetween(Window.unboundedPreceding, -1)),
        )
        .withColumn("late", F.when(is_late, latest))
        .withColumn("late", F.when(F.row_number().over(shown) == 1, F.col("late")))
        .drop("_first", "_latest")
    )


def _repeats(window: WindowSpec) -> Column:
    """Whether the change is the one before again; never without commit_ts, where nothing identifies a change."""
    same = (F.lag("commit_ts").over(window) == F.col("commit_ts")) & (F.lag("rank").over(window) == F.col("rank"))
    return F.coalesce(same, F.lit(False))
