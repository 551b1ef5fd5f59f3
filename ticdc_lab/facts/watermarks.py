"""Resolved timestamps of a recorded topic, at every level.

TiCDC's owner broadcasts its global checkpoint_ts to every partition, where it is the partition's resolved_ts (MQ
design, "CDC Owner 逻辑"): all changes with a commit_ts up to it were sent there before it. A consumer that reads all
partitions has everything up to the smallest of the partitions' resolved_ts (MQ design, "Kafka Consumer 逻辑").

- ``resolved_ts``: what a reader of the log may rely on; the greatest watermark of a partition, the least over
  partitions.
- ``checkpoint_ts``: what the changefeed had reached; the greatest watermark stated anywhere in the topic.

All timestamps are TSO (bigint). Seconds are differences of their physical parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.engine.shuffle import by_key, in_one
from ticdc_lab.events import PARTITION, POSITION
from ticdc_lab.events.arrays import (
    NO_TS,
    Batches,
    Bools,
    Ints,
    nullable,
    partitions_in,
    seconds,
    seconds_between,
    timestamps,
)
from ticdc_lab.events.schema import require_batch, require_columns
from ticdc_lab.events.tso import lag_s_col
from ticdc_lab.facts.known import LogFacts, highest_before
from ticdc_lab.facts.schemas import GROUPS, PARTITIONS, PLACED, PROGRESS, TABLES, TIMELINE, TOPICS, arrow_of, together

STALL_S = 60.0
"""A step between watermarks of more seconds than this is a stall. TiCDC emits one about every second."""

IS_ROW = "kind = 'row'"
IS_WATERMARK = "kind = 'watermark'"


def watermark_timeline(events: DataFrame, *, stall_s: float = STALL_S) -> DataFrame:
    """Find for every watermark what it changed.

    Parameters
    ----------
    events
        ``kind``, ``commit_ts`` and the position columns of the events contract.
    stall_s
        Seconds (TSO) from the highest watermark before, above which the step is a stall.

    Returns
    -------
    DataFrame
        ``topic, partition, offset, resolved_ts`` (as stated), ``partition_resolved_ts`` (the greatest so far),
        ``previous_resolved_ts``, ``step_s`` (double, from the greatest before; null for the first), ``regressed``,
        ``regression_s`` (null unless regressed), ``duplicate`` (repeats the greatest before, as after a restart),
        ``stalled``.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.

    References
    ----------
    MQ design, constraint 2.2 and "CDC Owner 切换": a checkpoint_ts never falls back.
    """
    require_columns(events, "kind", "commit_ts", *POSITION)
    require_batch(events, function="watermark_timeline", why="a running maximum follows the offsets of a partition")
    marks = events.where(IS_WATERMARK).select(*POSITION, F.col("commit_ts").alias("resolved_ts"))
    return by_key(marks, PARTITION, lambda b: timeline(b, stall_s=stall_s), TIMELINE, order=("offset", "seq"))


def timeline(marks: Batches, *, stall_s: float = STALL_S) -> Batches:
    """What each watermark changed, of batches in order of partition, offset and seq; see :func:`watermark_timeline`.

    Of a partition no more is kept between batches than its last watermark and its highest.
    """
    key, top, last = None, NO_TS, NO_TS
    for batch in marks:
        if not batch.num_rows:
            continue
        parts, continues, key = partitions_in(batch, key)
        ts = timestamps(batch["resolved_ts"])
        highest, previous = highest_before(ts, parts), np.append(NO_TS, ts[:-1])
        previous[[p.start for p in parts]] = NO_TS
        if continues:
            highest[parts[0]] = np.maximum(highest[parts[0]], top)
            previous[0] = last
        top, last = max(int(highest[-1]), int(ts[-1])), int(ts[-1])
        yield _changed(batch, ts, highest, previous, stall_s)


def _changed(batch: pa.RecordBatch, ts: Ints, highest: Ints, previous: Ints, stall_s: float) -> pa.RecordBatch:
    known = (ts != NO_TS) & (highest != NO_TS)
    step_s, regressed = seconds(highest, ts), known & (ts < highest)
    of = {
        **{c: batch[c] for c in ("topic", "partition", "offset", "resolved_ts")},
        "partition_resolved_ts": nullable(np.maximum(ts, highest)),
        "previous_resolved_ts": nullable(previous),
        "step_s": pa.array(step_s, mask=~known),
        "regressed": pa.array(regressed),
        "regression_s": pa.array(-step_s, mask=~regressed),
        "duplicate": pa.array(known & (ts == highest)),
        "stalled": pa.array(known & (step_s > stall_s)),
    }
    return pa.RecordBatch.from_pydict(of)


def timeline_of(facts: LogFacts, *, stall_s: float = STALL_S) -> pa.Table:
    """As :func:`watermark_timeline`, of what is known of a log; those with a commit_ts, in order."""
    marks = facts.watermarks
    topics, partitions = facts.names(marks.home)
    table = pa.table(
        {"topic": topics, "partition": partitions, "offset": pa.array(marks.offset), "resolved_ts": pa.array(marks.ts)}
    )
    found = list(timeline(iter(table.combine_chunks().to_batches()), stall_s=stall_s))
    return pa.Table.from_batches(found, arrow_of(TIMELINE))


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How a log's watermarks usually step onward, in seconds of event time."""

    usual_s: float  # the median step of a partition's watermarks; 0 where none advances
    longest_s: float  # the longest step

    @property
    def stall_s(self) -> float:
        """Above this a step is long for this log: :data:`TIMES_USUAL` usual ones, and at least a second."""
        return max(1.0, TIMES_USUAL * self.usual_s)


TIMES_USUAL = 2.5
"""How many usual steps make a stall, if no seconds are given."""


def rhythm_of(facts: LogFacts) -> Rhythm:
    """The rhythm of all partitions' watermarks; repeats and lower values are no steps."""
    steps = timeline_of(facts)["step_s"].to_numpy()
    onward = steps[steps > 0]
    return Rhythm(float(np.median(onward)), float(onward.max())) if len(onward) else Rhythm(0.0, 0.0)


def partition_progress(events: DataFrame) -> DataFrame:
    """Count a partition's events and take its newest timestamps; one aggregation, so it also runs on a stream.

    Parameters
    ----------
    events
        ``kind``, ``commit_ts``, ``topic``, ``partition``, ``offset`` of the events contract.

    Returns
    -------
    DataFrame
        Per ``topic, partition``: ``resolved_ts`` (greatest watermark; null without one), ``first_resolved_ts``,
        ``n_watermarks``, ``n_rows``, ``n_ddl``, ``first_commit_ts``, ``last_commit_ts`` (of rows), ``first_offset``,
        ``last_offset``.
    """
    require_columns(events, "kind", "commit_ts", "topic", "partition", "offset")
    return events.groupBy(*PARTITION).agg(*_progress())


def progress_of(facts: LogFacts) -> pa.Table:
    """As :func:`partition_progress`, of what is known of a log."""
    places, n = facts.places, len(facts.homes)
    home, count, kind = facts.home_of(places), places["n"].to_numpy(), np.asarray(places["kind"])

    def number(which: str) -> pa.Array:
        return pa.array(np.bincount(home[kind == which], count[kind == which], n).astype(np.int64))

    def end(name: str, *, of: str = "", greatest: bool) -> pa.Array:
        value = timestamps(places[name])
        own = (value != NO_TS) & ((kind == of) | (of == ""))
        found = np.full(n, NO_TS if greatest else np.iinfo(np.int64).max)
        (np.maximum if greatest else np.minimum).at(found, home[own], value[own])
        return nullable(np.where(np.isin(np.arange(n), home[own]), found, NO_TS))

    topics, partitions = facts.names(np.arange(n))
    return pa.table({
        "topic": topics,
        "partition": partitions,
        "resolved_ts": end("last_ts", of="watermark", greatest=True),
        "first_resolved_ts": end("commit_ts", of="watermark", greatest=False),
        "n_watermarks": number("watermark"),
        "n_rows": number("row"),
        "n_ddl": number("ddl"),
        "first_commit_ts": end("commit_ts", of="row", greatest=False),
        "last_commit_ts": end("last_ts", of="row", greatest=True),
        "first_offset": end("offset", greatest=False),
        "last_offset": end("last_offset", greatest=True),
    })  # fmt: skip


def partition_watermarks(events: DataFrame, *, stall_s: float = STALL_S) -> DataFrame:
    """Find how far each partition is resolved and how it got there.

    Parameters
    ----------
    events, stall_s
        As for :func:`watermark_timeline`.

    Returns
    -------
    DataFrame
        The columns of :func:`partition_progress` and ``n_regressions``, ``n_duplicates``, ``n_stalls`` (bigint),
        ``step_s_max`` (longest step between watermarks), ``unresolved_s`` (seconds from resolved_ts to the
        newest row; 0 when all rows are resolved, null without a watermark). A partition that has rows and no watermark
        is there, with ``resolved_ts`` null.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.

    Notes
    -----
    The events are read once. Of what is no watermark one row a partition and kind is left; a task then has all
    watermarks.

    Examples
    --------
    >>> found = log.events.transform(partition_watermarks).orderBy("partition")
    >>> found.select("partition", "n_watermarks", "n_rows", "n_regressions", "n_stalls").show()
    +---------+------------+------+-------------+--------+
    |partition|n_watermarks|n_rows|n_regressions|n_stalls|
    +---------+------------+------+-------------+--------+
    |        0|          31|   661|            0|       0|
    |        1|          31|   449|            0|       0|
    |        2|          31|   321|            0|       0|
    |        3|          31|   670|            0|       0|
    +---------+------------+------+-------------+--------+
    """
    require_columns(events, "kind", "commit_ts", *POSITION)
    require_batch(events, function="partition_watermarks", why="a running maximum follows the offsets of a partition")

    def judge(groups: Batches) -> Batches:
        yield from partitions_of(LogFacts.of_groups(together(groups, GROUPS)), stall_s=stall_s).to_batches()

    return in_one(by_watermark(events), judge, PARTITIONS)


def by_watermark(events: DataFrame) -> DataFrame:
    """Places of a log without names, and each place of a watermark: what :meth:`ticdc_lab.facts.LogFacts.of_groups`
    reads.
    """
    own = {f"_{c}": F.when(F.expr(IS_WATERMARK), F.col(c)) for c in ("offset", "seq")}
    narrow = events.select("kind", "commit_ts", *PARTITION, "offset", *[c.alias(name) for name, c in own.items()])
    return narrow.groupBy(*PARTITION, "kind", *own).agg(
        F.count(F.lit(1)).alias("n"),
        F.min("commit_ts").alias("commit_ts"),
        F.max("commit_ts").alias("last_ts"),
        F.min("offset").alias("offset"),
        F.max("offset").alias("last_offset"),
    )


def partitions_of(facts: LogFacts, *, stall_s: float = STALL_S) -> pa.Table:
    """As :func:`partition_watermarks`, of what is known of a log."""
    progress, marks = progress_of(facts), facts.watermarks.each_place()
    highest = marks.highest_before()
    known = highest != NO_TS
    step_s = np.where(known, seconds(highest, marks.ts), -np.inf)

    def counted(which: Bools) -> pa.Array:
        return pa.array(np.bincount(marks.home[which], minlength=marks.homes))

    longest = np.array([step_s[p].max(initial=-np.inf) for p in marks.parts()])
    found = {
        "n_regressions": counted(known & (marks.ts < highest)),
        "n_duplicates": counted(known & (marks.ts == highest)),
        "n_stalls": counted(known & (step_s > stall_s)),
        "step_s_max": pa.array(longest, pa.float64(), mask=longest == -np.inf),
        "unresolved_s": unresolved_s(progress["last_commit_ts"], progress["resolved_ts"]),
    }
    for name, column in found.items():
        progress = progress.append_column(name, column)
    return progress


def topic_watermarks(events: DataFrame) -> DataFrame:
    """Find how far each topic is resolved, and which partition holds it back.

    Parameters
    ----------
    events
        As for :func:`partition_progress`.

    Returns
    -------
    DataFrame
        Per ``topic``: ``resolved_ts`` (least over partitions; null until every partition has had a watermark),
        ``checkpoint_ts`` (greatest stated anywhere), ``holders`` (array<int>, sorted: the partitions at the
        least; those without a watermark while there are any), ``partitions`` (array<int>), ``unmarked`` (array<int>,
        partitions without a watermark), ``last_commit_ts``, ``n_rows``, ``lag_s`` (from resolved_ts to the fastest
        partition),
        ``unresolved_s`` (from resolved_ts to the newest row; 0 when all are resolved).

    References
    ----------
    MQ design, "Kafka Consumer 逻辑" 3.2, and TiCDC's source: "0 until every partition has had one".

    Examples
    --------
    >>> log.events.transform(topic_watermarks).select("resolved_ts", "holders", "n_rows").show()
    +------------------+------------+------+
    |       resolved_ts|     holders|n_rows|
    +------------------+------------+------+
    |470603993791332352|[0, 1, 2, 3]|  2101|
    +------------------+------------+------+
    """
    require_columns(events, "kind", "commit_ts", "topic", "partition", "offset")
    require_batch(events, function="topic_watermarks", why="it aggregates an aggregate")

    def judge(progress: Batches) -> Batches:
        yield from topics_of(together(progress, PROGRESS)).to_batches()

    return in_one(events.transform(partition_progress), judge, TOPICS, order=PARTITION)


def topics_of(progress: pa.Table) -> pa.Table:
    """As :func:`topic_watermarks`, of all partitions' progress in order."""
    found = []
    for _, of_topic in groupby(progress.to_pylist(), key=lambda p: p["topic"]):
        own = list(of_topic)
        stated = {p["partition"]: p["resolved_ts"] for p in own}
        unmarked = [p for p, ts in stated.items() if ts is None]
        marked = [ts for ts in stated.values() if ts is not None]
        resolved = None if unmarked else min(marked)
        found.append({
            "topic": own[0]["topic"],
            "resolved_ts": resolved,
            "checkpoint_ts": max(marked, default=None),
            "holders": unmarked or [p for p, ts in stated.items() if ts == resolved],
            "partitions": list(stated),
            "unmarked": unmarked,
            "last_commit_ts": max((p["last_commit_ts"] for p in own if p["last_commit_ts"] is not None), default=None),
            "n_rows": sum(p["n_rows"] for p in own),
        })  # fmt: skip
    whole = pa.Table.from_pylist(found, pa.schema(list(arrow_of(TOPICS))[:-2]))
    lag = seconds_between(whole["resolved_ts"], whole["checkpoint_ts"])
    behind = unresolved_s(whole["last_commit_ts"], whole["resolved_ts"])
    return whole.append_column("lag_s", lag).append_column("unresolved_s", behind)


def table_watermarks(events: DataFrame) -> DataFrame:
    """Find how far each table is resolved.

    A table is resolved as far as every partition that holds rows of it in this log. Where a rule spreads a table over
    partitions, one that has not received a row of it yet cannot be seen here; :func:`topic_watermarks` is the safe
    bound.

    Parameters
    ----------
    events
        ``kind``, ``commit_ts``, ``schema_name``, ``table_name`` and the position columns.

    Returns
    -------
    DataFrame
        Per ``schema_name, table_name``: ``n_rows``, ``first_commit_ts``, ``last_commit_ts``, ``topics``
        (array<string>),
        ``partitions`` (array<int>), ``resolved_ts`` (null if one of them has no watermark), ``unresolved_rows`` (above
        it; all of them where it is null), ``unresolved_s``.

    Examples
    --------
    >>> found = log.events.transform(table_watermarks).orderBy("schema_name", "table_name")
    >>> found.select("schema_name", "table_name", "n_rows", "partitions", "unresolved_rows").show(3)
    +-----------+----------+------+------------+---------------+
    |schema_name|table_name|n_rows|  partitions|unresolved_rows|
    +-----------+----------+------+------------+---------------+
    |    Fin_Ops| Customers|   229|[0, 1, 2, 3]|              0|
    |    Fin_Ops|    Ledger|   400|[0, 1, 2, 3]|              0|
    |    Fin_Ops|      nopk|   416|         [3]|              0|
    +-----------+----------+------+------------+---------------+
    only showing top 3 rows
    """
    require_columns(events, "kind", "commit_ts", "schema_name", "table_name", *POSITION)
    require_batch(events, function="table_watermarks", why="rows are compared with the last watermark of the log")

    def judge(places: Batches) -> Batches:
        yield from tables_of(together(places, PLACED)).to_batches()

    places = events.groupBy("schema_name", "table_name", *PARTITION, "kind").agg(
        F.count(F.lit(1)).alias("n"), F.min("commit_ts").alias("commit_ts"), F.max("commit_ts").alias("last_ts")
    )
    tables = F.broadcast(in_one(places, judge, TABLES))
    rows = events.where(IS_ROW).select(F.col("schema_name").alias("_s"), F.col("table_name").alias("_t"), "commit_ts")
    # not eqNullSafe, for which the embedded engine compares each row with each table
    none = F.lit("")
    pairs = ((F.col("_s"), F.col("schema_name")), (F.col("_t"), F.col("table_name")))
    same = [c for a, b in pairs for c in (F.coalesce(a, none) == F.coalesce(b, none), a.isNull() == b.isNull())]
    names = [c.split()[0] for c in TABLES.split(",")]
    unresolved = F.count_if(F.col("resolved_ts").isNull() | (F.col("commit_ts") > F.col("resolved_ts")))
    return (
        rows.join(tables, on=same)
        .groupBy(*names)
        .agg(unresolved.alias("unresolved_rows"))
        .select(*names, "unresolved_rows", unresolved_s_col("last_commit_ts", "resolved_ts").alias("unresolved_s"))
    )


def tables_of(places: pa.Table) -> pa.Table:
    """Tables, the partitions that hold rows of them, and how far all of these are resolved.

    Parameters
    ----------
    places
        Of :class:`ticdc_lab.facts.LogFacts`, or what is like them.
    """
    resolved: dict[tuple[str, int], int] = {}
    tables: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for p in places.to_pylist():
        home, table = (p["topic"], p["partition"]), (p["schema_name"], p["table_name"])
        if p["kind"] == "watermark" and p["last_ts"] is not None:
            resolved[home] = max(resolved.get(home, NO_TS), p["last_ts"])
        elif p["kind"] == "row":
            tables.setdefault(table, []).append(p)
    found = []
    for (schema, name), own in tables.items():
        homes = {(p["topic"], p["partition"]) for p in own}
        found.append({
            "schema_name": schema,
            "table_name": name,
            "n_rows": sum(p["n"] for p in own),
            "first_commit_ts": min((p["commit_ts"] for p in own if p["commit_ts"] is not None), default=None),
            "last_commit_ts": max((p["last_ts"] for p in own if p["last_ts"] is not None), default=None),
            "topics": sorted({t for t, _ in homes}),
            "partitions": sorted({p for _, p in homes}),
            "resolved_ts": min(resolved[h] for h in homes) if homes <= set(resolved) else None,
        })  # fmt: skip
    return pa.Table.from_pylist(found, arrow_of(TABLES))


def unresolved_s(newest: pa.ChunkedArray, resolved: pa.ChunkedArray) -> pa.Array:
    """As :func:`unresolved_s_col`."""
    last, known = timestamps(newest), timestamps(resolved)
    behind = np.where(last == NO_TS, 0.0, np.maximum(seconds(known, last), 0.0))
    return pa.array(behind, mask=known == NO_TS)


def unresolved_s_col(newest: str, resolved: str) -> Column:
    """Seconds from ``resolved`` to ``newest``, not below 0; 0 without rows, null without a watermark."""
    behind = F.greatest(lag_s_col(resolved, now_ts=F.col(newest)), F.lit(0.0))
    return F.when(F.col(newest).isNull() & F.col(resolved).isNotNull(), F.lit(0.0)).otherwise(
        F.when(F.col(resolved).isNotNull(), behind)
    )


def _progress() -> list[Column]:
    """The aggregates of :func:`partition_progress`."""
    stated, row_ts = F.when(F.expr(IS_WATERMARK), F.col("commit_ts")), F.when(F.expr(IS_ROW), F.col("commit_ts"))
    return [
        F.max(stated).alias("resolved_ts"),
        F.min(stated).alias("first_resolved_ts"),
        F.count_if(F.expr(IS_WATERMARK)).alias("n_watermarks"),
        F.count_if(F.expr(IS_ROW)).alias("n_rows"),
        F.count_if(F.col("kind") == "ddl").alias("n_ddl"),
        F.min(row_ts).alias("first_commit_ts"),
        F.max(row_ts).alias("last_commit_ts"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
    ]
