"""Why a delivery is odd: sent again, by which kind of restart; written out of order; or what preceded it was lost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.audit.broadcasts import log_breaches, offsets_are_contiguous
from ticdc_lab.audit.findings import evidence, text
from ticdc_lab.audit.history import row_history
from ticdc_lab.audit.marks import blocked_tables
from ticdc_lab.consumer.replays import CHANGE, NO_TS, WATERMARK, Before, Deliveries, cut, episodes
from ticdc_lab.keys import with_keys
from ticdc_lab.prefix import PARTITION, POSITION
from ticdc_lab.schema import KEYS, require_batch, require_columns

RESTART, TABLE, DDL = "replay of a restart", "replay of a table", "replay around a DDL"
REORDERED, LOST = "reordered by the producer", "lost"
CAUSES = (RESTART, TABLE, DDL, REORDERED, LOST)

AT_ONCE = 1 << 17
"""Deliveries that a task judges at once, and whole stretches of repeats."""

_NEEDED = ("kind", "commit_ts", "op", "query", "schema_name", "table_name", *POSITION)
_DELIVERY = """
topic string, partition int, kind int, offset bigint, seq int, commit_ts bigint, identity bigint, nth bigint,
first_offset bigint, table string, key_hash bigint, blocked array<string>
"""
_REPEAT = _DELIVERY + ", from_offset bigint, checkpoint bigint, pending bigint, restated boolean"
_EPISODE = (*PARTITION, "from_offset", "checkpoint", "pending", "restated")

Batches = Iterator[pa.RecordBatch]


def delivery_causes(events: DataFrame) -> DataFrame:
    """Say of every delivery that is a repeat, comes late or does not follow from what came before, why that is so.

    Parameters
    ----------
    events
        The events contract; images only where the hash columns are missing. Rows without commit_ts are left out:
        nothing orders them.

    Returns
    -------
    DataFrame
        ``topic``, ``table`` (string: ``schema.table``), ``key_hash``, ``commit_ts``, ``partition``, ``offset``,
        ``seq``, ``cause`` (string, of :data:`CAUSES`), ``from_offset`` (bigint: first message of the episode, see
        :func:`delivery_episodes`; null unless it is a repeat), ``message`` (string) and ``evidence``
        (:data:`ticdc_lab.schema.EVIDENCE`, the messages that show it):

        - ``replay of a restart``: sent again with all that its partitions had got since a checkpoint.
        - ``replay of a table``: sent again alone, as when a table moves or its processor dies.
        - ``replay around a DDL``: sent again with a DDL of its table.
        - ``reordered by the producer``: a first delivery behind a newer change of its row, or behind a watermark above
          it; both arrive.
        - ``lost``: the row's former change does not lead to it, so that one between them is missing (or wrong); or the
          offsets before it are missing, without table and key.

        What is delivered again in another partition is no replay; the audit names it.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.

    Notes
    -----
    Two equal rows of one transaction in a table without key look like one row delivered twice.

    References
    ----------
    Seed, "CDC Processor 异常下线" and "Table 迁移"; golden README section 5 (what is sent again).
    """
    require_columns(events, *_NEEDED)
    require_batch(events, function="delivery_causes", why="a change may be delivered again at any later offset")
    repeats = _repeats(events)
    known = _judged(repeats).select(*PARTITION, "from_offset", "episode", "cause", "sentence")
    replayed = repeats.join(F.broadcast(known), on=[*PARTITION, "from_offset"]).drop("from_offset")
    replayed = replayed.withColumnRenamed("episode", "from_offset")
    own = F.struct("partition", "offset", "commit_ts")
    first = F.struct("partition", F.col("first_offset").alias("offset"), "commit_ts")
    said = replayed.select(
        *_named(),
        "cause",
        "from_offset",
        text("first delivered at offset ", F.col("first_offset"), "; ", F.col("sentence")).alias("message"),
        evidence(first, own).alias("evidence"),
    )
    return said.unionByName(_by_row(events)).unionByName(_holes(events))


def delivery_episodes(events: DataFrame) -> DataFrame:
    """Stretches of repeats: where each lies, how far back it went, and why.

    Parameters
    ----------
    events
        The events contract.

    Returns
    -------
    DataFrame
        One row per stretch in a partition: ``topic``, ``partition``, ``from_offset``, ``to_offset``, ``checkpoint``
        (bigint: the highest watermark of the partition below all that was repeated; null without one),
        ``from_commit_ts``, ``to_commit_ts``, ``n_changes`` (bigint: rows and DDL), ``tables`` (array<string>, sorted;
        of a DDL its own), ``cause``, ``sentence``.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.
    """
    require_columns(events, *_NEEDED)
    require_batch(events, function="delivery_episodes", why="a change may be delivered again at any later offset")
    one = ("tables", "cause", "sentence")
    return (
        _judged(_repeats(events))
        .drop("from_offset")
        .withColumnRenamed("episode", "from_offset")
        .groupBy(*PARTITION, "from_offset", "checkpoint", *one)
        .agg(
            F.max("to_offset").alias("to_offset"),
            F.min("from_commit_ts").alias("from_commit_ts"),
            F.max("to_commit_ts").alias("to_commit_ts"),
            F.sum("n_changes").alias("n_changes"),
        )
        .select(
            *(*PARTITION, "from_offset", "to_offset", "checkpoint", "from_commit_ts", "to_commit_ts", "n_changes"), *one
        )
    )


def _repeats(events: DataFrame) -> DataFrame:
    """Repeats of rows and DDL in their partitions, each with its stretch: one shuffle by change, one by partition."""
    keyed = events.where("commit_ts IS NOT NULL")
    keyed = keyed if set(KEYS.names) <= set(events.columns) else with_keys(keyed)
    named = F.concat_ws(".", "schema_name", F.when(F.col("table_name") != "", F.col("table_name")))
    identity = F.xxhash64("kind", "schema_name", "table_name", "commit_ts", "op", "query", _row_id())
    same = Window.partitionBy(*PARTITION, "identity").orderBy("offset", "seq")
    blocked = F.transform(blocked_tables(), lambda b: F.concat_ws(".", b["schema"], b["table"]))
    changes = keyed.where("kind IN ('row', 'ddl')").select(
        *PARTITION, F.lit(CHANGE).alias("kind"), "offset", "seq", "commit_ts", identity.alias("identity"),
        named.alias("table"), F.when(F.col("kind") == "row", _row_id()).alias("key_hash"),
        F.when(F.col("kind") == "ddl", blocked).alias("blocked"),
    )  # fmt: skip
    counted = changes.withColumns(
        {"nth": F.row_number().over(same).cast("bigint"), "first_offset": F.first("offset").over(same)}
    )
    marks = keyed.where("kind = 'watermark'").select(
        *PARTITION, "offset", "seq", "commit_ts", F.lit(WATERMARK).alias("kind"), F.lit(0).cast("bigint").alias("nth"),
        F.lit(0).cast("bigint").alias("identity"),
    )  # fmt: skip
    names = [c.split()[0] for c in _DELIVERY.split(",")]
    ordered = counted.unionByName(marks, allowMissingColumns=True).select(*names)
    return ordered.repartition(*PARTITION).sortWithinPartitions(*PARTITION, "offset", "seq").mapInArrow(_judge, _REPEAT)


def _row_id() -> Column:
    return F.coalesce("key_hash", "change_hash")


def _judge(batches: Batches) -> Batches:
    """Repeats with their stretches, from batches that are sorted by partition and place."""
    held: list[pa.RecordBatch] = []
    before, size = Before(), 0
    for batch in batches:
        for part in _by_partition(batch):
            if held and not _same_partition(held[-1], part):
                yield from _found(pa.Table.from_batches(held), before)
                held, before, size = [], Before(), 0
            held.append(part)
            size += len(part)
            if size >= AT_ONCE:
                whole = pa.Table.from_batches(held).combine_chunks()
                d = _numbers(whole)
                end = cut(d, before)
                yield from _found(whole[:end], before)
                before, held, size = before.then(d[:end]), whole[end:].to_batches(), whole.num_rows - end
    if held:
        yield from _found(pa.Table.from_batches(held), before)


def _found(whole: pa.Table, before: Before) -> Batches:
    for e in episodes(_numbers(whole), before):
        own = whole.take(pa.array(e.at)).combine_chunks()
        n = own.num_rows
        checkpoint = pa.array(np.full(n, e.checkpoint), mask=np.full(n, e.checkpoint == NO_TS))
        more = {
            "from_offset": pa.array(np.full(n, own["offset"][0].as_py())),
            "checkpoint": checkpoint,
            "pending": pa.array(np.full(n, e.pending)),
            "restated": pa.array(np.full(n, e.restated)),
        }
        for name, column in more.items():
            own = own.append_column(name, column)
        yield from own.to_batches()


def _numbers(whole: pa.Table) -> Deliveries:
    return Deliveries.read(whole.select(["kind", "offset", "commit_ts", "identity", "nth"]))


def _by_partition(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if not len(batch):
        return
    topic = np.asarray(batch["topic"].dictionary_encode().indices)
    partition = np.asarray(batch["partition"])
    starts = np.flatnonzero(np.append(True, (np.diff(topic) != 0) | (np.diff(partition) != 0)))
    for low, high in zip(starts, np.append(starts[1:], len(batch)), strict=True):
        yield batch[int(low) : int(high)]


def _same_partition(one: pa.RecordBatch, two: pa.RecordBatch) -> bool:
    return all(one[c][-1].as_py() == two[c][0].as_py() for c in PARTITION)


def _judged(repeats: DataFrame) -> DataFrame:
    """One row a stretch, with its cause: what partitions repeat after one checkpoint belongs together.

    ``episode`` is the first offset of the stretches that are one: other changes come between those of a table alone.
    """
    is_row = F.col("blocked").isNull()
    each = repeats.groupBy(*_EPISODE).agg(
        F.max("offset").alias("to_offset"),
        F.min("commit_ts").alias("from_commit_ts"),
        F.max("commit_ts").alias("to_commit_ts"),
        F.count(F.lit(1)).alias("n_changes"),
        F.min("nth").alias("times"),
        F.count_distinct("identity").alias("own"),
        F.sort_array(F.collect_set("table")).alias("tables"),
        F.collect_set(F.when(is_row, F.col("table"))).alias("of_rows"),
        F.flatten(F.collect_set("blocked")).alias("of_ddl"),
    )
    beside = Window.partitionBy("topic", "checkpoint")
    seen = {
        "all_tables": F.array_distinct(F.flatten(F.collect_set("of_rows").over(beside))),
        "all_ddl": F.array_distinct(F.flatten(F.collect_set("of_ddl").over(beside))),
        "left_out": F.max(F.col("own") < F.col("pending")).over(beside),
    }
    only_ddl = F.size("of_rows") == 0
    around = only_ddl | ((F.size("of_rows") == 1) & F.array_contains("all_ddl", F.get("of_rows", 0)))
    cause = (
        F.when((F.size("all_tables") > 1) & ~F.col("left_out"), RESTART)
        .when(around, DDL)
        .when((F.size("of_rows") > 1) | (F.col("restated") & ~F.col("left_out")), RESTART)
        .otherwise(TABLE)
    )
    alone = Window.partitionBy(*PARTITION, "checkpoint", "tables", "times", "cause")
    start = F.when(F.col("cause") == TABLE, F.min("from_offset").over(alone)).otherwise(F.col("from_offset"))
    judged = each.withColumns(seen).withColumn("cause", cause)
    return judged.withColumns({"sentence": _sentence(), "episode": start})


def _sentence() -> Column:
    back = F.when(F.col("checkpoint").isNull(), "to the beginning").otherwise(
        text("to the checkpoint ", F.col("checkpoint"))
    )
    what = (
        F.when(F.col("cause") == RESTART, "the changefeed restarted: what the partitions had got since was sent again")
        .when(F.col("cause") == DDL, "a DDL of the table was sent again with what preceded it")
        .otherwise("the table was sent again alone, as when it moves or its processor dies")
    )
    return text(what, ", back ", back)


def _by_row(events: DataFrame) -> DataFrame:
    """First deliveries that come late, and changes that the row's former change does not lead to."""
    history = row_history(events)
    table = F.concat_ws(".", "schema_name", "table_name")
    own, late, lost = F.struct("partition", "offset", "seq", "commit_ts"), F.col("late"), F.col("broken")
    none = F.lit(None).cast("bigint")

    def row(event: Column, cause: str, message: Column, shown: Column) -> Column:
        placed = [event[c].alias(c) for c in ("commit_ts", "partition", "offset", "seq")]
        return F.struct(*placed, F.lit(cause).alias("cause"), message.alias("message"), shown.alias("evidence"))

    mark = F.struct("partition", F.col("resolved.offset").alias("offset"), F.col("resolved.ts").alias("commit_ts"))
    behind = F.col("is_first") & (F.col("commit_ts") < F.col("resolved.ts"))
    said = [
        F.when(late.isNotNull(), row(late, REORDERED, text(
            "first delivered behind the row's newer change of commit_ts ", F.col("commit_ts")), evidence(own, late))),
        F.when(behind, row(own, REORDERED, text(
            "first delivered behind the watermark ", F.col("resolved.ts")), evidence(mark, own))),
        F.when(lost.isNotNull(), row(own, LOST, text(
            "it does not follow from the row's former change in the log, of commit_ts ", lost["commit_ts"],
            ": a change between them was never delivered, or one of them is wrong"), evidence(lost, own))),
    ]  # fmt: skip
    found = history.where("keyed").select(
        "topic", table.alias("table"), F.col("row_id").alias("key_hash"), F.inline(F.array_compact(F.array(*said)))
    )
    # a change that is behind a newer one and a watermark is late once
    best = found.groupBy(*POSITION, "table", "key_hash", "commit_ts", "cause").agg(
        F.max_by(F.struct("message", "evidence"), F.col("message")).alias("m")
    )
    return best.select(*_named(), "cause", none.alias("from_offset"), "m.message", "m.evidence")


def _holes(events: DataFrame) -> DataFrame:
    """What offsets prove to be missing, at the first message behind each partition's first hole."""
    breaches = log_breaches(events, protocol="", names=[offsets_are_contiguous.__name__])
    none = {"table": "string", "key_hash": "bigint", "seq": "int", "from_offset": "bigint"}
    missing = text(
        F.col("n"), " message(s) before it are not in the log, in ", F.col("upto"), " stretch(es) of offsets"
    )
    return breaches.withColumns({c: F.lit(None).cast(t) for c, t in none.items()}).select(
        *_named(),
        F.lit(LOST).alias("cause"),
        "from_offset",
        missing.alias("message"),
        evidence(F.col("at"), F.col("after")).alias("evidence"),
    )


def _named() -> tuple[str, ...]:
    return ("topic", "table", "key_hash", "commit_ts", "partition", "offset", "seq")
