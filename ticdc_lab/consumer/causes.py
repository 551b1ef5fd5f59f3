"""Why a delivery is odd: sent again, by which kind of restart; written out of order; or what preceded it was lost."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.audit.broadcasts import log_breaches, offsets_are_contiguous
from ticdc_lab.audit.findings import evidence, text
from ticdc_lab.audit.history import row_history
from ticdc_lab.consumer.episodes import KINDS, NEEDED, judged, repeats_of
from ticdc_lab.prefix import PARTITION, POSITION
from ticdc_lab.schema import require_batch, require_columns

CAUSES = (RESTART, TABLE, DDL, REORDERED, LOST) = (*KINDS, "reordered by the producer", "lost")


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
        :func:`ticdc_lab.consumer.episodes.delivery_episodes`; null unless it is a repeat), ``message`` (string) and
        ``evidence`` (:data:`ticdc_lab.schema.EVIDENCE`, the messages that show it):

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
    require_columns(events, *NEEDED)
    require_batch(events, function="delivery_causes", why="a change may be delivered again at any later offset")
    repeats = repeats_of(events)
    known = judged(repeats).select(*PARTITION, "from_offset", "episode", "cause", "sentence")
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
