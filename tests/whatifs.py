"""A what-if over a handful of changes, made by hand, without Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ticdc_lab import tso
from ticdc_lab.dispatch.whatif import WhatIf
from ticdc_lab.dispatch.whatif_facts import facts_of

T0 = 1_700_000_000_000


def what_if(table: str = "orders") -> WhatIf:
    """Row 1 changes in three transactions (0, 1 and 3 s), row 2 in the last one; a second table has one change."""
    rows = [
        ("shop", table, 0, 1),
        ("shop", table, 1, 1),
        ("shop", table, 3, 1),
        ("shop", table, 3, 2),
        ("shop", "b", 2, 9),
    ]
    changes = pa.table(
        {
            "schema_name": [r[0] for r in rows],
            "table_name": [r[1] for r in rows],
            "table": [f"{r[0]}.{r[1]}" for r in rows],
            "commit_ts": pa.array([tso.compose(T0 + 1000 * r[2], r[2]) for r in rows], pa.int64()),
            "op_rank": pa.array([1] * len(rows), pa.int32()),
            "partition": pa.array([0] * len(rows), pa.int32()),
            "offset": pa.array(range(len(rows)), pa.int64()),
            "seq": pa.array([0] * len(rows), pa.int32()),
            "keys": pa.array([[r[3]] for r in rows], pa.list_(pa.int64())),
            "uniques": pa.array([[] for _ in rows], pa.list_(pa.int64())),
            "key": [f"id={r[3]}" for r in rows],
        }
    )
    facts, order = facts_of(changes)
    hashes = np.array([r[3] for r in rows], dtype=np.uint64)[order]
    known = np.ones(len(rows), dtype=np.bool_)
    return WhatIf(facts, {"index-value": hashes}, {"index-value": known}, {"index-value": ""})
