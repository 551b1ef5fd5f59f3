"""A what-if over a handful of changes, made by hand, without Spark."""

from __future__ import annotations

import zlib

import pyarrow as pa

from ticdc_lab.dispatch.sweep import NARROW, SweepPlan, lane_of, swept
from ticdc_lab.dispatch.whatif import WhatIf
from ticdc_lab.events import tso

T0 = 1_700_000_000_000
NAMES = ("table", "ts", "index-value")


def what_if(table: str = "orders") -> WhatIf:
    """Row 1 changes in three transactions (0, 1 and 3 s), row 2 in the last one; a second table has one change."""
    rows = [(table, 0, 1, 0), (table, 1, 1, 1), (table, 3, 1, 2), (table, 3, 2, 3), ("b", 2, 9, 4)]
    return swept_from([("shop", name, tso.compose(T0 + 1000 * s, s), key, n) for name, s, key, n in rows])


def swept_from(rows: list[tuple[str, str, int, int, int]], *, buckets: int = 40) -> WhatIf:
    """A what-if of updates: schema, table, commit_ts, key (also its hash) and offset, sorted by table and commit_ts."""
    tables = list(dict.fromkeys(r[:2] for r in rows))
    lo, hi = (f(r[2] for r in rows) >> tso.LOGICAL_BITS for f in (min, max))
    plan = SweepPlan(dict.fromkeys(range(len(tables)), NAMES), lo, (hi - lo + 1) / buckets, buckets)
    narrow = [
        {
            "lane": tables.index(r[:2]),
            "table_id": tables.index(r[:2]),
            "op_rank": 1,
            "partition": 0,
            "offset": r[4],
            "seq": 0,
            "commit_ts": r[2],
            "identity": r[3],
            "key_hash": r[3],
            "has_key": True,
            "row_bytes": 100,
            "in_catalog": True,
            "carried": True,
            "h0": zlib.crc32("".join(r[:2]).encode()),
            "h1": r[2],
            "h2": r[3],
        }
        for r in rows
    ]
    schema = pa.schema([*NARROW, *[(f"h{s}", pa.int64()) for s in range(len(NAMES))]])
    found = list(swept(plan)(iter([pa.RecordBatch.from_pylist(narrow, schema=schema)])))
    keys = {(0, r[4], 0): f"id={r[3]}" for r in rows}
    lanes = {}
    for batch in found:
        lane = lane_of(batch["facts"][0].as_py())
        lane.keys.update(keys)
        lanes[".".join(tables[batch["lane"][0].as_py()])] = lane
    return WhatIf(lanes, plan.lo_ms, plan.width_ms)
