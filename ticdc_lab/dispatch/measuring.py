"""Measuring a log for a what-if: one Spark job counts its tables, one sweeps all candidates, one fetches shown keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import with_hashes
from ticdc_lab.dispatch.candidates import Candidates, TableName, with_numbers
from ticdc_lab.dispatch.changes import key_text
from ticdc_lab.dispatch.conflict_stream import DDL_RANK
from ticdc_lab.dispatch.definitions import Answer, with_answers
from ticdc_lab.dispatch.lanes import Lane
from ticdc_lab.dispatch.sweep import SWEPT, Plan, compile_kernels, lane_of, swept
from ticdc_lab.dispatch.unique_keys import with_unique_keys
from ticdc_lab.engine.shuffle import by_key
from ticdc_lab.events.schema import DISPATCH
from ticdc_lab.events.tso import LOGICAL_BITS
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.transactions import op_rank

_ORDER = ("table_id", "commit_ts", "op_rank", "partition", "offset", "seq")


class Measured(NamedTuple):
    """What :class:`ticdc_lab.dispatch.whatif.WhatIf` holds, in its order."""

    lanes: Mapping[str, Lane]
    lo_ms: int
    width_ms: float
    note: str
    together: Mapping[str, Sequence[str]]


def measured(
    events: DataFrame, catalog: Catalog | None, candidates: Candidates, *, conflict_at: Sequence[int], buckets: int,
    max_tables: int,
) -> Measured:  # fmt: skip
    """Count every candidate at every partition count; parameters are those of ``WhatIf.from_events``."""
    tables, undated, span = _inventory(events)
    note = f"{undated:,} of {undated + sum(tables.values()):,} row events have no commit_ts and are left out."
    if not tables:
        return Measured({}, 0, 1.0, note if undated else "", {})
    numbers = {t: n for n, t in enumerate(sorted(tables, key=lambda t: (-tables[t], t)))}
    names = _lane_names(list(numbers), max_tables)
    lo_ms, hi_ms = span[0] >> LOGICAL_BITS, span[1] >> LOGICAL_BITS
    width = (hi_ms - lo_ms + 1) / buckets
    slots = dict.fromkeys(range(len(names)), candidates.common)
    slots |= {n: candidates.names(t) for t, n in numbers.items() if n < max_tables}
    plan = Plan(slots, lo_ms, width, buckets, tuple(conflict_at))
    rows = _narrow(events, candidates, catalog=catalog, numbers=numbers, lanes=len(names))
    compile_kernels()
    found = by_key(rows, "lane", swept(plan), SWEPT, order=_ORDER).toArrow()
    by_lane = {n: lane_of(f) for n, f in zip(*(found[c].to_pylist() for c in ("lane", "facts")), strict=True)}
    lanes = _with_keys(events, {names[n]: by_lane[n] for n in sorted(by_lane)})
    if catalog is None:
        lanes = {name: replace(lane, has_catalog=False) for name, lane in lanes.items()}
    others = [".".join(t) for t in list(numbers)[max_tables:]]
    return Measured(lanes, lo_ms, width, note if undated else "", {names[-1]: sorted(others)} if others else {})


def _inventory(events: DataFrame) -> tuple[dict[TableName, int], int, tuple[int, int]]:
    """Dated row events per table, the number of others, and the first and last commit_ts."""
    ts = F.col("commit_ts")
    counts = (
        events.where("kind = 'row'")
        .groupBy("schema_name", "table_name")
        .agg(F.count(ts), F.count_if(ts.isNull()), F.min(ts), F.max(ts))
        .toArrow()
    )
    rows = list(zip(*(c.to_pylist() for c in counts.columns), strict=True))
    dated = [r for r in rows if r[2]]
    span = (min((r[4] for r in dated), default=0), max((r[5] for r in dated), default=0))
    return {(r[0], r[1]): r[2] for r in dated}, sum(r[3] for r in rows), span


def _lane_names(tables: Sequence[TableName], most: int) -> list[str]:
    own = [".".join(t) for t in tables[:most]]
    others = len(tables) - len(own)
    return own if not others else [*own, f"({others:,} smaller tables)"]


def _narrow(
    events: DataFrame, candidates: Candidates, *, catalog: Catalog | None, numbers: Mapping[TableName, int], lanes: int
) -> DataFrame:
    """Row changes as numbers: all that is shuffled."""
    rank = F.when(F.col("kind") == "ddl", DDL_RANK).otherwise(op_rank()).cast("int")
    rows = events.where("kind IN ('row', 'ddl') AND commit_ts IS NOT NULL")
    rows = rows.transform(with_unique_keys, catalog=catalog).transform(with_hashes, DISPATCH).drop("table_id")
    rows = with_numbers(rows, candidates, catalog=catalog)
    if catalog is not None:
        rows = with_answers(rows, catalog=catalog, questions={"_known": lambda table: Answer()})
    named = [(schema, table, min(n, lanes - 1), n) for (schema, table), n in numbers.items()]
    of = events.sparkSession.createDataFrame(named, "_schema string, _table string, lane int, table_id int")
    same = (F.col("schema_name") == F.col("_schema")) & (F.col("table_name") == F.col("_table"))
    uniques = F.col("uniques") if "uniques" in rows.columns else F.lit(None).cast("array<bigint>")
    return rows.join(F.broadcast(of), same).select(
        "lane", "table_id", "commit_ts", rank.alias("op_rank"),
        "partition", "offset", "seq", F.coalesce("key_hash", "change_hash").alias("identity"),
        F.col("key_hash").isNotNull().alias("has_key"), F.col("own_key").alias("key_hash"), "before_key_hash",
        uniques.alias("uniques"), F.col("not_carried").isNull().alias("carried"),
        (F.col("_known").isNotNull() if catalog is not None else F.lit(False)).alias("in_catalog"),
        F.coalesce("row_bytes", F.lit(0)).alias("row_bytes"), *[f"h{s}" for s in range(candidates.slots)], "errors",
    )  # fmt: skip


def _with_keys(events: DataFrame, lanes: Mapping[str, Lane]) -> dict[str, Lane]:
    """Lanes with the keys of the changes that they show."""
    shown = [lane.evidence[:, at : at + 3] for lane in lanes.values() for at in (0, 4)]
    places = np.unique(np.concatenate(shown), axis=0) if shown else np.zeros((0, 3), dtype=np.int64)
    if not len(places):
        return dict(lanes)
    wanted = events.sparkSession.createDataFrame(places.tolist(), "_partition int, _offset bigint, _seq int")
    same = [F.col(c) == F.col(f"_{c}") for c in ("partition", "offset", "seq")]
    rows = events.where("kind = 'row'").join(F.broadcast(wanted), on=same, how="left_semi")
    found = rows.select("schema_name", "table_name", "partition", "offset", "seq", key_text().alias("key")).toArrow()
    keys = {(r["partition"], r["offset"], r["seq"]): r["key"] for r in found.to_pylist()}
    return {name: replace(lane, keys=keys) for name, lane in lanes.items()}
