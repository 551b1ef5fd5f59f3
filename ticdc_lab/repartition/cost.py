"""What a change of the number of partitions costs: a pause, rows sent again, rows dropped, rows that move."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import with_hashes
from ticdc_lab.dispatch.definitions import changes_in
from ticdc_lab.dispatch.names import common_multiple
from ticdc_lab.dispatch.numbering import NUMBERED, Alike, Numbering
from ticdc_lab.dispatch.rules import Rule, rule_of
from ticdc_lab.engine.shuffle import at_once, grouped_by
from ticdc_lab.events import tso
from ticdc_lab.events.arrays import Batches, key_begins, whole_keys
from ticdc_lab.events.schema import DISPATCH
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.watermarks import IS_ROW
from ticdc_lab.repartition.expand import Expansion
from ticdc_lab.words import count, percent

if TYPE_CHECKING:
    from ticdc_lab.sources.stored import StoredEvents


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
        ]
        if self.checkpoint_lag_ms is None and not self.pause_ms:
            return [*said, f"{self.missed_rows:,} rows in new partitions come before a consumer sees these: lost with "
                    "auto.offset.reset=latest."]  # fmt: skip
        return [
            f"Pause {self.pause_ms} ms: {self.waiting_ms} waiting for processors, {self.admin_ms} for the Admin event, "
            f"{self.restart_ms} to start again, {self.checkpoint_lag_ms} ms behind.",
            f"The changefeed sends {count(self.resent_rows, 'row')} ({self.resent_bytes:,} bytes) twice. Consumers "
            f"drop {count(self.dropped_rows, 'row')} at the Admin event. "
            f"{count(self.strays, 'row') if self.strays else 'No row'} of the old number of partitions came too late.",
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
    events: DataFrame | StoredEvents, *, rules: Sequence[Rule], before: int, counts: Sequence[int],
    catalog: Catalog | None = None,
) -> dict[int, Moves]:  # fmt: skip
    """Count the rows and keys that move from ``before`` partitions to each of ``counts``; one pass for all.

    Parameters
    ----------
    events
        The events contract, or events in files.
    rules, catalog
        As for :func:`ticdc_lab.dispatch.rules.dispatch_by_rules`; matchers are case-sensitive here.
    before, counts
        Numbers of partitions.
    """
    for n in counts:
        common_multiple(before, n)  # else no topic has places that could be compared
    numbering = Numbering(catalog)

    def numbered(rows: pa.Table) -> pa.Table:
        numbers, known = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=bool)
        rows = rows.combine_chunks()
        for own in Alike.among(rows):
            if None not in own.table:
                rule = rule_of(rules, *own.table, case_sensitive=True)
                numbers[own.at], error = numbering.by(own, rule.partition, index=rule.index, columns=rule.columns)
                known[own.at] = error == None  # noqa: E711
        each = rows.select(["key_hash"]).append_column("number", pa.array(numbers, mask=~known))
        found = each.group_by(["key_hash", "number"], use_threads=False).aggregate([([], "count_all")])
        return found.rename_columns(_NUMBERED.names)

    def counted(batches: Batches) -> Batches:
        for keys in whole_keys(batches, ["key_hash"], at_once=_AT_ONCE):
            number, known = (np.asarray(a) for a in (keys["number"].fill_null(0), keys["number"].is_valid()))
            of, rows = number.view(np.uint64), np.asarray(keys["rows"])
            first, has_key = key_begins(keys, ["key_hash"]), np.asarray(keys["key_hash"].is_valid())
            key, n_keys = np.cumsum(first) - 1, int((first & has_key).sum())
            for n in {before, *counts}:
                place = (of % np.uint64(n)).astype(np.int64)
                moved = known & ((of % np.uint64(before)).astype(np.int64) != place)
                n_moved = len(np.unique(key[moved & has_key]))
                places, at = np.unique(place[known], return_inverse=True)
                filled = np.bincount(at, weights=rows[known], minlength=len(places)).astype(np.int64)
                total = [{"n": n, "partition": -1, "rows": int(rows.sum()), "moved_rows": int(rows[moved].sum()),
                          "keys": n_keys, "moved_keys": n_moved}]  # fmt: skip
                own = zip(places.tolist(), filled.tolist(), strict=True)
                each = [{"n": n, "partition": p, "rows": r} for p, r in own]
                yield from pa.Table.from_pylist(total + each, _MOVED).to_batches()

    rows = changes_in(events, (*NUMBERED, "key_hash"), numbered, _NUMBERED)
    told = at_once(grouped_by(rows, ["key_hash"], counted, _MOVED), _MOVED)
    found = told.group_by(["n", "partition"], use_threads=False).aggregate([(c, "sum") for c in _MOVED.names[2:]])
    totals, filled = {}, dict[int, list[int]]()
    for n, partition, *sums in zip(*found.to_pydict().values(), strict=True):
        if partition < 0:
            totals[n] = sums
        else:
            filled.setdefault(n, []).append(sums[0])

    def fullest(n: int) -> float:
        return max(filled[n]) * n / sum(filled[n]) if n in filled else 1.0

    none = [0] * len(_MOVED.names[2:])
    of = {n: dict(zip(_MOVED.names[2:], totals.get(n, none), strict=True)) for n in counts}
    return {n: Moves(**of[n], load_before=fullest(before), load_after=fullest(n)) for n in counts}


_NUMBERED = pa.schema([("key_hash", pa.int64()), ("number", pa.int64()), ("rows", pa.int64())])
_MOVED = pa.schema([(name, pa.int64()) for name in ("n", "partition", "rows", "moved_rows", "keys", "moved_keys")])
_AT_ONCE = 1 << 16
