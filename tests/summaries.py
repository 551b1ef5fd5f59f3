"""A small summary made by hand, for the report and the panels."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ticdc_lab.answers.summary import Summary
from ticdc_lab.events import tso
from ticdc_lab.facts.limits import Counts

T0 = 1_700_000_000_000


def ts(seconds: float) -> int:
    """TSO at so many seconds."""
    return tso.compose(T0 + round(seconds * 1000))


def exact(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Frame as ``summary.small`` makes it: integers stay integers beside nulls."""
    frame = pd.DataFrame(rows)
    whole = [
        c for c in frame if any(type(v) is int for v in frame[c]) and all(type(v) is int or v is None for v in frame[c])
    ]
    return frame.astype(dict.fromkeys(whole, "Int64"))


def summary(table: str = "orders") -> Summary:
    """Two partitions, one table; partition 1 lags, one transaction is pending, one row moved, one message is bad."""
    place = {"topic": "t", "schema_name": "shop", "table_name": table}
    held = [
        place | {"partition": p, "kind": k, "op": o, "n": n}
        for p, k, o, n in [
            (0, "row", "insert", 30),
            (1, "row", "update", 10),
            (0, "watermark", None, 3),
            (1, "watermark", None, 1),
        ]
    ]
    marks = [{"topic": "t", "partition": p, "step": s, "resolved_ts": ts(v), "step_ts": ts(v), "steps_total": 3}
             for p, s, v in [(0, 1, 0), (1, 1, 0), (0, 2, 4), (0, 3, 9)]]  # fmt: skip
    evidence = [{"partition": 0, "offset": 3, "commit_ts": ts(1)}, {"partition": 1, "offset": 4, "commit_ts": ts(2)}]
    found = {"guarantee": "rows_stay_in_one_partition", "severity": "error", "table": f"shop.{table}", "key": "id=7",
             "commit_ts": ts(2), "partition": 1, "offset": 4, "message": "the row moves",
             "cause": "the row moves"}  # fmt: skip
    lane = {"bucket": 0, "from_ms": T0, "to_ms": T0 + 1000, "lanes_total": 2}
    one = {
        "commit_ts": ts(8),
        "n_rows": 2,
        "tables": [f"shop.{table}"],
        "partitions": [0, 1],
        "complete": False,
        "missing": [1],
    }
    total = {"n": 20, "pending": 1, "spread": 1, "duplicates": 0, "n_rows": 40, "n_rows_max": 3}
    ddl = {
        "commit_ts": ts(0),
        "schema_name": "shop",
        "table_name": table,
        "ddl_type": "CREATE",
        "query": f"CREATE TABLE `{table}`",
    }
    bad = {"error_class": "truncated", "n": 1, "topic": "t", "partition": 0, "offset": 5, "reason": f"cut at {table}"}
    resolved = [{"topic": "t", "partition": p, "resolved_ts": ts(v)} for p, v in [(0, 9), (1, 0)]]
    return Summary(
        source=f"/tmp/{table}.jsonl",
        protocol="open-protocol",
        has_commit_ts=True,
        limits=(),
        counts=Counts(46, 45, 1, 45),
        contents=exact(held),
        ddl=exact([ddl]).assign(partitions=[[0, 1]]),
        quarantine=exact([bad]),
        load=exact([{"topic": "t", "partition": p, "n": n} | lane for p, n in [(0, 30), (1, 10)]]),
        load_by_table=exact([{"schema_name": "shop", "table_name": table, "n": 40} | lane]),
        findings=exact([found]).assign(evidence=[evidence]),
        partitions=exact(resolved),
        tables=exact([{"schema_name": "shop", "table_name": table, "unresolved_rows": 10}]),
        steps=exact(marks),
        transaction_totals=exact([total]),
        transactions=exact([one | {"duplicates": 0}]),
    )
