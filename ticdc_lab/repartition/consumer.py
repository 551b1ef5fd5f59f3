"""What a consumer does with a log in which Admin events stand (MQ design: Kafka Consumer 逻辑, Partition 扩容与缩容).

One listener reads each partition. It holds rows back until a watermark reaches them. At an Admin event it drops what it
holds above its partition's resolved_ts and waits until every listener has that event: so all that is applied before an
Admin event is applied before all that comes after it. Otherwise listeners go on independently, and nothing orders what
two of them apply. Repeats are not filtered here: the design's filter by the greatest commit_ts that was executed in a
table knows only what one listener did, and over all listeners it would throw away what others have yet to apply.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import with_keys
from ticdc_lab.events import PARTITION, POSITION
from ticdc_lab.events.schema import EVIDENCE, FINDINGS, require_batch, require_columns
from ticdc_lab.transactions import op_rank

CONSUMER_GUARANTEES = ("changes_are_applied", "changes_are_applied_once", "changes_are_applied_in_order")
"""What :func:`consumer_findings` looks for: changes that are lost, doubled, or may be applied before an older one."""

MAX_PER_GUARANTEE = 10_000

_EARLIER = (Window.unboundedPreceding, -1)
_NAMES = ("schema_name", "table_name")
_CHANGE = (*_NAMES, "commit_ts", "op_rank", "identity")


def consumed(events: DataFrame) -> DataFrame:
    """Say of every row whether its listener applies it, at which message, or drops it.

    Parameters
    ----------
    events
        The events contract; Admin events are the barriers. Watermarks must not fall back.

    Returns
    -------
    DataFrame
        Rows that have a commit_ts, without images: position, ``schema_name``, ``table_name``, ``commit_ts``,
        ``op_rank``, ``key_hash``, ``before_key_hash``, ``change_hash``, ``alignment`` (bigint: Admin events before it
        in its partition), ``outcome`` (``applied``, ``dropped``, or ``pending``: the log ends before a watermark
        reaches it) and ``applied_at`` (bigint: offset of the message in its partition at which it is applied). A
        listener applies in the order of ``alignment, applied_at, commit_ts, op_rank``. The narrow facts of a partition
        are sorted in one task.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.
    """
    require_columns(events, "kind", "commit_ts", "op", *_NAMES, *POSITION)
    require_batch(events, function="consumed", why="a row is applied by a watermark that stands after it")
    facts = events.where("kind IN ('row', 'watermark', 'admin')").transform(with_keys)
    hashes = ("key_hash", "before_key_hash", "change_hash")
    facts = facts.select("kind", *POSITION, *_NAMES, "commit_ts", op_rank().alias("op_rank"), *hashes)
    by_place = Window.partitionBy(*PARTITION).orderBy("offset", "seq")
    facts = facts.withColumn("alignment", F.count_if(F.col("kind") == "admin").over(by_place))
    in_era, is_mark = Window.partitionBy(*PARTITION, "alignment"), F.col("kind") == "watermark"
    eras = Window.partitionBy(*PARTITION)
    # what follows is told going backwards: Spark computes a frame that ends at the end anew for every row
    mark = F.last(F.when(is_mark, F.col("offset")), ignorenulls=True)
    by_offset = in_era.orderBy(F.desc("offset"), F.desc("seq")).rowsBetween(*_EARLIER)
    by_ts = in_era.orderBy(F.desc("commit_ts"), is_mark.desc(), F.desc("offset")).rowsBetween(*_EARLIER)
    told = facts.withColumns(
        {
            "_next": mark.over(by_offset),
            "_reaching": mark.over(by_ts),
            "_resolved": F.max(F.when(is_mark, F.col("commit_ts"))).over(
                eras.orderBy("alignment").rangeBetween(Window.unboundedPreceding, 0)
            ),
            "_barrier": F.min(F.when(F.col("kind") == "admin", F.col("offset"))).over(
                eras.orderBy(F.desc("alignment")).rangeBetween(*_EARLIER)
            ),
        }
    )
    reached = F.when(F.col("_reaching").isNotNull(), F.greatest("_next", "_reaching"))
    # at or below the resolved_ts, but behind its watermark: what the Admin event does not throw away
    kept = F.when(F.col("commit_ts") <= F.col("_resolved"), F.col("_barrier"))
    at = F.when(F.col("_next").isNotNull() & reached.isNotNull(), reached).otherwise(kept)
    outcome = F.when(F.col("applied_at").isNotNull(), "applied").when(F.col("_barrier").isNotNull(), "dropped")
    return (
        told.where("kind = 'row' AND commit_ts IS NOT NULL")
        .withColumn("applied_at", at)
        .withColumn("outcome", outcome.otherwise("pending"))
        .select(*POSITION, *_NAMES, "commit_ts", "op_rank", *hashes, "alignment",
                "outcome", "applied_at")
    )  # fmt: skip


def consumer_findings(events: DataFrame, *, max_per_guarantee: int | None = MAX_PER_GUARANTEE) -> DataFrame:
    """Changes that such a consumer loses, applies twice, or may apply before an older change of the same row.

    "May": whatever two listeners do between two barriers, each in its own order, can happen in any order. So without a
    finding, every run of the consumer applies each row's changes exactly as upstream made them; with one, there is a
    run that does not.

    Parameters
    ----------
    events
        As for :func:`consumed`.
    max_per_guarantee
        Most findings of each; None: all.

    Returns
    -------
    DataFrame
        :data:`ticdc_lab.events.schema.FINDINGS`, one a change: ``evidence`` are the deliveries that show it. ``key`` is
        null. Rows of tables without a key have no identity and are left out.

    Raises
    ------
    ContractError, StreamingError
        As for :func:`consumed`.
    """
    rows = consumed(events).where("key_hash IS NOT NULL").withColumn("identity", F.col("key_hash"))
    found = reduce(DataFrame.unionByName, (_lost(rows), _doubled(rows), _out_of_order(rows)))
    if max_per_guarantee is not None:
        each = Window.partitionBy("guarantee").orderBy("commit_ts", "partition", "offset", "table")
        found = found.withColumn("_n", F.row_number().over(each)).where(F.col("_n") <= max_per_guarantee)
    named = found.withColumns({"severity": F.lit("error"), "key": F.lit(None).cast("string")})
    return (
        named.repartition(1)
        .sortWithinPartitions("guarantee", "commit_ts", "partition", "offset", "table")
        .select(*FINDINGS.names)
    )


def _lost(rows: DataFrame) -> DataFrame:
    """Dropped, and neither applied nor to be applied from another delivery."""
    fate = rows.groupBy(*_CHANGE).agg(
        F.max(F.col("outcome") != "dropped").alias("survives"), F.min(_delivery()).alias("at")
    )
    message = F.lit("consumers drop the change at the Admin event, and it is not sent again: lost")
    return _finding(fate.where("NOT survives"), CONSUMER_GUARANTEES[0], F.col("at"), message, "at")


def _doubled(rows: DataFrame) -> DataFrame:
    fate = rows.where("outcome = 'applied'").groupBy(*_CHANGE).agg(
        F.count(F.lit(1)).alias("n"), F.min(_delivery()).alias("first"), F.max(_delivery()).alias("last")
    )  # fmt: skip
    message = F.concat(F.lit("the change is applied "), F.col("n").cast("string"), F.lit(" times"))
    return _finding(fate.where("n > 1"), CONSUMER_GUARANTEES[1], F.col("last"), message, "first", "last")


def _out_of_order(rows: DataFrame) -> DataFrame:
    """A change that some run applies before an older one of its row: nothing between them makes it wait."""
    applied = rows.where("outcome = 'applied'").withColumn(
        "row", F.explode(F.array_compact(F.array("key_hash", "before_key_hash")))
    )
    of = (*_NAMES, "row")
    ranked = applied.withColumn("_k", F.dense_rank().over(Window.partitionBy(*of).orderBy("commit_ts", "op_rank")))
    everywhere = Window.partitionBy(*of).orderBy("_k").rangeBetween(*_EARLIER)
    same_era = Window.partitionBy(*of, "alignment").orderBy("_k").rangeBetween(*_EARLIER)
    same_place = Window.partitionBy(*of, "alignment", *PARTITION).orderBy("_k").rangeBetween(*_EARLIER)
    latest = F.struct(F.col("alignment").alias("era"), *PARTITION, _delivery().alias("at"))
    place = F.struct(*PARTITION, _delivery().alias("at"))
    done = F.struct(F.col("applied_at").alias("done"), _delivery().alias("at"))
    judged = ranked.withColumns(
        {"_latest": F.max(latest).over(everywhere), "_low": F.min(place).over(same_era),
         "_high": F.max(place).over(same_era), "_done": F.max(done).over(same_place)}
    )  # fmt: skip

    def elsewhere(other: str) -> Column:
        return reduce(or_, [F.col(other)[c] != F.col(c) for c in PARTITION])

    witness = (
        F.when(F.col("_latest.era") > F.col("alignment"), F.col("_latest.at"))
        .when(elsewhere("_low"), F.col("_low.at"))
        .when(elsewhere("_high"), F.col("_high.at"))
        .when(F.col("_done.done") > F.col("applied_at"), F.col("_done.at"))
    )
    broken = judged.withColumn("_older", witness).where("_older IS NOT NULL")
    each = broken.groupBy(*_CHANGE).agg(F.min(F.struct(_delivery().alias("at"), "_older")).alias("_f"))
    message = F.lit("a listener may apply the change before an older change of the row, which another delivers")
    return _finding(
        each.select(*_CHANGE, F.col("_f.at").alias("at"), F.col("_f._older").alias("older")),
        CONSUMER_GUARANTEES[2], F.col("at"), message, "older", "at",
    )  # fmt: skip


def _delivery() -> Column:
    return F.struct("partition", "offset", "commit_ts")


def _finding(cases: DataFrame, guarantee: str, at: Column, message: Column, *evidence: str) -> DataFrame:
    shown = F.array(*[F.struct(*[F.col(e)[f].alias(f) for f in EVIDENCE.names]) for e in evidence])
    return cases.select(
        F.lit(guarantee).alias("guarantee"), F.concat_ws(".", *_NAMES).alias("table"), "commit_ts",
        at["partition"].alias("partition"), at["offset"].alias("offset"), message.alias("message"),
        shown.alias("evidence"),
    )  # fmt: skip
