"""The alignments that conflict detection writes: why each, and which rows collide."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.dispatch.conflict import require_choice, with_changes
from ticdc_lab.dispatch.conflict_kernel import (
    AT,
    BEFORE,
    BY_CONFLICT,
    HOME,
    KEY,
    MAX_KEYS,
    NUMBER,
    OTHER_AT,
    OTHER_BEFORE,
    OTHER_HOME,
    OTHER_KEY,
    REASON,
    REASONS,
    ROW,
)
from ticdc_lab.dispatch.conflict_stream import Unit, placed_batches
from ticdc_lab.dispatch.unique_keys import with_unique_keys
from ticdc_lab.events.arrays import Ints
from ticdc_lab.events.prefix import POSITION
from ticdc_lab.facts.catalog import Catalog

_PLACE = "struct<topic: string, partition: int, offset: bigint, seq: int>"
_BARRIERS = f"""
schema_name string, table_name string, alignment bigint, commit_ts bigint, reason string, target int,
other_target int, key_hash bigint, other_key_hash bigint, at {_PLACE}, other_at {_PLACE}, before {_PLACE},
other_before {_PLACE}
"""
_CARRIED = ("schema_name", "table_name", *POSITION)

Batches = Iterator[pa.RecordBatch]


def alignments(
    events: DataFrame,
    *,
    partitions: int,
    catalog: Catalog | None = None,
    unit: Unit = "transaction",
    max_keys: int = MAX_KEYS,
) -> DataFrame:
    """List the barriers of :func:`ticdc_lab.dispatch.conflict.conflict_placements`, with what collides at each.

    Parameters are those of that function.

    Returns
    -------
    DataFrame
        ``table`` (``schema.table``), ``alignment`` (bigint: its number, which the rows after it have), ``commit_ts`` of
        the change before which it stands, ``reason``: ``conflict``, ``memory`` (forced by ``max_keys``) or ``ddl`` (no
        event of its own: consumers wait for the DDL between the rows anyway). Of a conflict: ``targets`` (array of two
        ints: the partitions that hold keys of the change), ``keys`` (array of two strings, ``column=value``: a key of
        each) and ``rows`` (array of ``struct<topic, partition, offset, seq>``: the last row with the one key, the last
        with the other, and the change itself, twice where two of its rows have the keys); null otherwise.

    Raises
    ------
    DispatchError, ContractError, StreamingError
        As ``conflict_placements``.
    """
    require_choice(partitions, unit, max_keys)
    run = _barriers(partitions, unit, max_keys)
    barriers = with_changes(events, run, _BARRIERS, catalog=catalog, unit=unit, carry=_CARRIED, whole_order=True)
    both = (("at", "key_hash"), ("other_at", "other_key_hash"))
    sides = F.array(*[F.struct(F.col(at).alias("at"), F.col(key).alias("hash")) for at, key in both])
    sides = F.when(F.col("reason") == REASONS[BY_CONFLICT], sides)
    asked = barriers.select("*", F.posexplode_outer(sides).alias("side", "asked"))
    named = (
        events.where("kind = 'row'").transform(with_unique_keys, catalog=catalog, named=True)
        .select(*[F.col(c).alias(f"_e_{c}") for c in POSITION], "named_keys")
    )  # fmt: skip
    same = [F.col(f"asked.at.{c}") == F.col(f"_e_{c}") for c in POSITION]
    text = F.get(F.filter("named_keys", lambda k: k["hash"] == F.col("asked.hash")), F.lit(0))["text"]
    whole = F.struct(*barriers.columns)
    grouped = (
        asked.join(named, on=same, how="left")
        .select(
            "schema_name", "table_name", "alignment", whole.alias("b"), F.struct("side", text.alias("text")).alias("t")
        )
        .groupBy("schema_name", "table_name", "alignment")
        .agg(F.any_value("b").alias("b"), F.sort_array(F.collect_set("t")).alias("texts"))
    )
    return grouped.select(
        F.concat("schema_name", F.lit("."), "table_name").alias("table"), "alignment",
        *("b.commit_ts", "b.reason"),
        *[F.when(F.col("b.at").isNotNull(), value).alias(name) for name, value in (
            ("targets", F.array("b.target", "b.other_target")),
            ("keys", F.col("texts.text")),
            ("rows", F.array_distinct(F.array("b.before", "b.other_before", "b.at", "b.other_at"))),
        )],
    )  # fmt: skip


def _barriers(partitions: int, unit: Unit, max_keys: int) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        topics: dict[str, int] = {}
        placed_with = placed_batches(
            batches, ns=(partitions,), unit=unit, max_keys=max_keys, evidence=True, topics=topics
        )
        for rows, placed in placed_with:
            if len(placed.barriers):
                yield _shown(rows, placed.barriers, list(topics))

    return run


def _shown(rows: pa.RecordBatch, b: Ints, topics: list[str]) -> pa.RecordBatch:
    clash = b[:, REASON] == BY_CONFLICT
    stands = rows.take(pa.array(b[:, ROW]))
    names = pa.array(topics, pa.string())

    def whole(column: int) -> pa.Array:
        return pa.array(b[:, column], mask=~clash)

    def place(parts: list[pa.Array]) -> pa.StructArray:
        kinds = (pa.string(), pa.int32(), pa.int64(), pa.int32())
        fields = [p.cast(k) for p, k in zip(parts, kinds, strict=True)]
        return pa.StructArray.from_arrays(fields, list(POSITION), mask=pa.array(~clash))

    def of_unit(column: int) -> pa.StructArray:
        which = pa.array(np.where(clash, b[:, column], 0))
        return place([rows[c].take(which) for c in POSITION])

    def earlier(column: int) -> pa.StructArray:
        where = b[:, column]
        parts = [names.take(pa.array(where >> 32)), pa.array(where & 0xFFFFFFFF)]
        return place([*parts, pa.array(b[:, column + 1]), pa.array(b[:, column + 2])])

    return pa.RecordBatch.from_pydict(
        {
            "schema_name": stands["schema_name"],
            "table_name": stands["table_name"],
            "alignment": pa.array(b[:, NUMBER]),
            "commit_ts": stands["commit_ts"],
            "reason": pa.array(REASONS).take(pa.array(b[:, REASON])),
            "target": whole(HOME).cast(pa.int32()),
            "other_target": whole(OTHER_HOME).cast(pa.int32()),
            "key_hash": whole(KEY),
            "other_key_hash": whole(OTHER_KEY),
            "at": of_unit(AT),
            "other_at": of_unit(OTHER_AT),
            "before": earlier(BEFORE),
            "other_before": earlier(OTHER_BEFORE),
        }
    )
