"""What a change of the number of partitions costs: a pause, rows sent again, rows dropped, rows that move."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import with_hashes, with_keys
from ticdc_lab.dispatch.rules import dispatch_by_rules
from ticdc_lab.events import tso
from ticdc_lab.events.schema import DISPATCH
from ticdc_lab.facts.watermarks import IS_ROW
from ticdc_lab.repartition.expand import Expansion


@dataclass(frozen=True, slots=True)
class Cost:
    """The price in numbers.

    Attributes
    ----------
    waiting_ms, admin_ms, restart_ms
        Parts of the pause; ``waiting_ms`` lasts until the slowest processor has stopped and, with feedback, said so.
    pause_ms
        Their sum: from the decision until the first row is written with the new count. Modelled, see
        :class:`ticdc_lab.repartition.plan.Timing`.
    checkpoint_lag_ms
        How far the checkpoint lies behind the clock when processors start again; None without restart.
    resent_rows, resent_bytes
        Rows sent with the old count and again with the new one. Bytes as in ``row_bytes`` of
        :data:`ticdc_lab.events.schema.DISPATCH`.
    dropped_rows
        Rows that consumers hold when the Admin event comes, and drop.
    strays
        Rows written with the old count behind the Admin event.
    missed_rows
        With ``just-add``: rows in new partitions that a consumer with ``auto.offset.reset=latest`` never sees, because
        they came before it saw the partition.
    rows, moved_rows, keys, moved_keys
        Row changes of the whole log and rows by their key, and those whose partition differs between the two counts.
    expected_share
        Share of uniform hashes that move: see :func:`staying_share`.
    load_before, load_after
        Rows of the busiest partition over the mean, if the whole log were written with either count; 1 is even.
    """

    waiting_ms: int
    admin_ms: int
    restart_ms: int
    pause_ms: int
    checkpoint_lag_ms: int | None
    resent_rows: int
    resent_bytes: int
    dropped_rows: int
    strays: int
    missed_rows: int
    rows: int
    moved_rows: int
    keys: int
    moved_keys: int
    expected_share: float
    load_before: float
    load_after: float

    def as_dict(self) -> dict[str, Any]:
        """The numbers by name."""
        return asdict(self)

    def sentences(self) -> list[str]:
        """The price in words."""
        share = self.moved_rows / self.rows if self.rows else 0.0
        said = [
            f"{self.moved_rows} of {self.rows} rows ({share:.1%}) and {self.moved_keys} of {self.keys} keys move to "
            f"another partition; of uniform hashes {self.expected_share:.1%} would.",
            f"Busiest partition over the mean: {self.load_before:.2f} before, {self.load_after:.2f} after.",
        ]
        if self.checkpoint_lag_ms is None and not self.pause_ms:
            return [*said, f"{self.missed_rows} rows in new partitions come before a consumer sees these: lost with "
                    "auto.offset.reset=latest."]  # fmt: skip
        return [
            f"Pause {self.pause_ms} ms: {self.waiting_ms} waiting for processors, {self.admin_ms} for the Admin event, "
            f"{self.restart_ms} to start again, {self.checkpoint_lag_ms} ms behind.",
            f"{self.resent_rows} rows ({self.resent_bytes} bytes) are sent twice, consumers drop {self.dropped_rows}, "
            f"{self.strays} are written with the old number behind the Admin event.",
            *said,
        ]


def staying_share(before: int, after: int) -> float:
    """Share of uniform hashes h with h mod before = h mod after: ``min / lcm``.

    Hash mod N is no consistent hashing: from 8 to 9 partitions 8 of 9 rows move, from 4 to 8 every second one.

    Examples
    --------
    >>> staying_share(4, 8), round(staying_share(8, 9), 3)
    (0.5, 0.111)
    """
    return min(before, after) / math.lcm(before, after)


def cost_of(expansion: Expansion) -> Cost:
    """Count what an expansion costs; two aggregates over the log.

    Parameters
    ----------
    expansion
        What :func:`ticdc_lab.repartition.expand.expand` gave.
    """
    plan = expansion.plan
    parts = plan.pause_ms
    sent = _sent(expansion).collect()[0]
    pairs = _pairs(_placed(expansion)).collect()
    moved = [r["rows"] for r in pairs if None not in (r["before"], r["after"]) and r["before"] != r["after"]]
    lag = None if plan.admin_ms is None or not plan.checkpoint else plan.start_ms - tso.physical_ms(plan.checkpoint)
    return Cost(
        waiting_ms=parts["waiting"],
        admin_ms=parts["admin"],
        restart_ms=parts["restart"],
        pause_ms=sum(parts.values()),
        checkpoint_lag_ms=lag,
        resent_rows=sent["resent_rows"],
        resent_bytes=sent["resent_bytes"] or 0,
        dropped_rows=sent["dropped_rows"],
        strays=sent["strays"],
        missed_rows=sent["missed_rows"],
        rows=sum(r["rows"] for r in pairs),
        moved_rows=sum(moved),
        keys=sum(r["keys"] for r in pairs),
        moved_keys=sum(r["moved_keys"] for r in pairs),
        expected_share=1 - staying_share(plan.before, plan.after),
        load_before=_max_over_mean(pairs, "before", plan.before),
        load_after=_max_over_mean(pairs, "after", plan.after),
    )


def _sent(expansion: Expansion) -> DataFrame:
    """Counts over the rows as they lie in Kafka."""
    plan = expansion.plan
    rows = expansion.events.where(IS_ROW).transform(with_hashes, DISPATCH)
    twice = F.col("resent")
    unseen = F.lit(False)
    if plan.procedure == "just-add":
        seen_ms = plan.at_ms + plan.timing.notice_ms
        unseen = (F.col("partition") >= plan.before) & (F.col("written_ms") < seen_ms)
    return rows.agg(
        F.count_if(twice).alias("resent_rows"),
        F.sum(F.when(twice, F.col("row_bytes"))).alias("resent_bytes"),
        F.count_if("dropped").alias("dropped_rows"),
        F.count_if((F.col("epoch") == 0) & (F.col("alignment") > 0)).alias("strays"),
        F.count_if(unseen).alias("missed_rows"),
    )


def _placed(expansion: Expansion) -> DataFrame:
    """Each row's ``key_hash``, and its partition with either count (``before``, ``after``)."""
    plan, h = expansion.plan, F.col("target_partition")
    rows = dispatch_by_rules(
        expansion.recorded.where(IS_ROW).transform(with_keys), rules=expansion.rules, case_sensitive=True,
        partitions=math.lcm(plan.before, plan.after), catalog=expansion.catalog,
    )  # fmt: skip
    counts = {"before": plan.before, "after": plan.after}
    return rows.select("key_hash", *[(h % n).cast("int").alias(c) for c, n in counts.items()])


def _pairs(placed: DataFrame) -> DataFrame:
    """Rows by their partitions with either count; each key, and whether any row of it moves, counts with one pair."""
    pair = ("before", "after")
    moves = F.coalesce(F.col("before") != F.col("after"), F.lit(False))
    of_key = Window.partitionBy("key_hash").orderBy(moves.desc(), *pair)
    each = placed.groupBy("key_hash", *pair).agg(F.count(F.lit(1)).alias("rows"))
    each = each.withColumns({"moves": moves, "nth": F.row_number().over(of_key)})
    is_key = F.expr("nth = 1 AND key_hash IS NOT NULL")
    return each.groupBy(*pair).agg(
        F.sum("rows").alias("rows"),
        F.count_if(is_key).alias("keys"),
        F.count_if(is_key & F.col("moves")).alias("moved_keys"),
    )


def _max_over_mean(pairs: Sequence[Row], side: str, partitions: int) -> float:
    """The busiest partition beside the mean, from the rows of each pair of partitions."""
    rows: Counter[int | None] = Counter()
    for pair in pairs:
        rows[pair[side]] += pair["rows"]
    return max(rows.values()) * partitions / rows.total() if rows else 1.0
