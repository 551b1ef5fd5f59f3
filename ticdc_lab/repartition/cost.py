"""What a change of the number of partitions costs: a pause, rows sent again, rows dropped, rows that move."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import with_hashes, with_keys
from ticdc_lab.dispatch.names import common_multiple
from ticdc_lab.dispatch.rules import Rule, dispatch_by_rules
from ticdc_lab.events import tso
from ticdc_lab.events.schema import DISPATCH
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.watermarks import IS_ROW
from ticdc_lab.repartition.expand import Expansion
from ticdc_lab.words import percent


@dataclass(frozen=True, slots=True)
class Cost:
    """The price in numbers.

    Attributes
    ----------
    waiting_ms, admin_ms, restart_ms
        Parts of the pause; ``waiting_ms`` lasts until the slowest processor has stopped and, with feedback, sent it.
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
        said = [
            f"{self.moved_rows:,} of {self.rows:,} rows ({percent(self.moved_rows, self.rows)}) and "
            f"{self.moved_keys:,} of {self.keys:,} keys move to another partition; of uniform hashes "
            f"{percent(self.expected_share)} would.",
            f"Busiest partition over the mean: {self.load_before:.2f} before, {self.load_after:.2f} after.",
        ]
        if self.checkpoint_lag_ms is None and not self.pause_ms:
            return [*said, f"{self.missed_rows:,} rows in new partitions come before a consumer sees these: lost with "
                    "auto.offset.reset=latest."]  # fmt: skip
        return [
            f"Pause {self.pause_ms} ms: {self.waiting_ms} waiting for processors, {self.admin_ms} for the Admin event, "
            f"{self.restart_ms} to start again, {self.checkpoint_lag_ms} ms behind.",
            f"{self.resent_rows:,} rows ({self.resent_bytes:,} bytes) are sent twice, "
            f"consumers drop {self.dropped_rows:,}, "
            f"{self.strays:,} are written with the old number behind the Admin event.",
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
    moved = moves(
        expansion.recorded, rules=expansion.rules, before=plan.before, counts=[plan.after], catalog=expansion.catalog
    )[plan.after]
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
        rows=moved.rows,
        moved_rows=moved.moved_rows,
        keys=moved.keys,
        moved_keys=moved.moved_keys,
        expected_share=1 - staying_share(plan.before, plan.after),
        load_before=moved.load_before,
        load_after=moved.load_after,
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


@dataclass(frozen=True, slots=True)
class Moves:
    """What changes its partition with another count; attributes as of :class:`Cost`."""

    rows: int
    moved_rows: int
    keys: int
    moved_keys: int
    load_before: float
    load_after: float


def moves(
    events: DataFrame, *, rules: Sequence[Rule], before: int, counts: Sequence[int], catalog: Catalog | None = None
) -> dict[int, Moves]:
    """Count the rows and keys that move from ``before`` partitions to each of ``counts``; one aggregate for all.

    Each row's hash is taken modulo a number that all counts divide, so that one pass over the log serves them; where
    that number would not fit 32 bits, each count has a pass of its own.

    Parameters
    ----------
    events
        The events contract.
    rules, catalog
        As for :func:`ticdc_lab.dispatch.rules.dispatch_by_rules`; matchers are case-sensitive here.
    before, counts
        Numbers of partitions.
    """
    if len(counts) > 1 and math.lcm(before, *counts) >= 2**31:
        alone = [moves(events, rules=rules, before=before, counts=[n], catalog=catalog) for n in counts]
        return {n: of for one in alone for n, of in one.items()}
    h = F.col("target_partition")
    placed = dispatch_by_rules(
        events.where(IS_ROW).transform(with_keys), rules=rules, case_sensitive=True,
        partitions=common_multiple(before, *counts), catalog=catalog,
    )  # fmt: skip
    each = placed.groupBy("key_hash", h.alias("h")).agg(F.count(F.lit(1)).alias("rows"))
    is_moved = {f"moved_{n}": F.coalesce(F.col("h") % before != F.col("h") % n, F.lit(False)) for n in counts}
    of_key = Window.partitionBy("key_hash")
    told = each.select(
        "h", "rows", F.col("key_hash").isNotNull().alias("has_key"),
        F.row_number().over(of_key.orderBy("h")).alias("nth"),
        *[F.max(moved.cast("int")).over(of_key).alias(name) for name, moved in is_moved.items()],
    )  # fmt: skip
    is_key = F.expr("nth = 1 AND has_key")
    found = told.groupBy("h").agg(
        F.sum("rows").alias("rows"),
        F.count_if(is_key).alias("keys"),
        *[F.count_if(is_key & (F.col(name) == 1)).alias(name) for name in is_moved],
    ).toArrow().to_pandas()  # fmt: skip
    at = found.dropna(subset=["h"])
    at_h, rows = at["h"].to_numpy(dtype=np.int64), at["rows"].to_numpy(dtype=np.int64)

    def fullest(n: int) -> float:
        return float(np.bincount(at_h % n, weights=rows).max() * n / rows.sum()) if rows.sum() else 1.0

    now = fullest(before)
    return {
        n: Moves(
            int(found["rows"].sum()), int(rows[at_h % before != at_h % n].sum()), int(found["keys"].sum()),
            int(found[f"moved_{n}"].sum()), now, fullest(n),
        )
        for n in counts
    }  # fmt: skip
