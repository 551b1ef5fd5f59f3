"""How fast the consumer model is, beside a plain one that goes message by message.

Run: .venv/bin/python benchmarks/consumer_model.py --rows 1000000
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/consumer"))
from plain_consumer import Plain, reading_order

from ticdc_lab.consumer.anomalies import anomaly_counts
from ticdc_lab.consumer.consistency import states, wrong_time
from ticdc_lab.consumer.listener import Listeners
from ticdc_lab.consumer.log import NarrowLog
from ticdc_lab.consumer.model import run
from ticdc_lab.consumer.policy import DESIGN_ROW, DESIGN_TRANSACTION, REFERENCE, STRICT

PARTITIONS = 8
SECONDS_US = 1_000_000
SLOW = {3: 5000}


def narrow_log(rows: int) -> pa.Table:
    """Transactions of two rows on average in random partitions, a watermark every 500 of them."""
    r = np.random.default_rng(1)
    row_ts = np.sort(r.integers(1, rows // 2, rows)) * 1000 + (1 << 58)
    home = r.integers(0, PARTITIONS, rows)
    marks = np.unique(row_ts)[::500]
    parts = []
    for p in range(PARTITIONS):
        own = row_ts[home == p]
        ts = np.concatenate([own, marks])
        is_mark = np.arange(len(ts)) >= len(own)
        order = np.lexsort((is_mark, ts))
        parts.append(_part(p, ts[order], is_mark[order], r.integers(1, rows // 20, len(ts)) * PARTITIONS + p))
    return pa.concat_tables(parts)


def _part(p: int, ts: np.ndarray, is_mark: np.ndarray, key: np.ndarray) -> pa.Table:
    n = len(ts)
    numbers = np.arange(n)
    return pa.table(
        {
            "topic": pa.array(["t"] * n),
            "partition": pa.array(np.full(n, p), pa.int32()),
            "offset": pa.array(numbers),
            "seq": pa.array(np.zeros(n, np.int32)),
            "kind": pa.array(np.where(is_mark, "watermark", "row")),
            "commit_ts": pa.array(ts),
            "op_rank": pa.array(np.ones(n, np.int32), mask=is_mark),
            "schema_name": pa.array(["s"] * n),
            "table_name": pa.array(["t0"] * n),
            "key_hash": pa.array(key, mask=is_mark),
            "before_key_hash": pa.nulls(n, pa.int64()),
            "change_hash": pa.array(numbers * PARTITIONS + p, mask=is_mark),
            "query": pa.nulls(n, pa.string()),
        }
    )


def timed(name: str, rows: int, work: Callable[[], Any]) -> Any:
    """Print what a piece of work took."""
    began = time.perf_counter()
    out = work()
    took = time.perf_counter() - began
    print(f"{name:45s} {took:7.2f} s  {rows / took:12,.0f} rows/s", flush=True)
    return out


def main() -> None:
    """Run the model and the plain consumer over one log."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    table = narrow_log(rows)
    log = timed("read the narrow table", rows, lambda: NarrowLog.of(table))
    for policy in (DESIGN_ROW, DESIGN_TRANSACTION, STRICT, REFERENCE):
        found = timed(f"{policy.name}: run", rows, lambda policy=policy: run(log, policy, Listeners(speeds=SLOW)))
        judged = timed(f"{policy.name}: states", rows, lambda found=found: states(found))
        timed(f"{policy.name}: anomalies", rows, lambda found=found: anomaly_counts(found, log))
        print(f"  states that never existed: {wrong_time(judged)[0]:,}")
    plain = [[_message(m) for m in part.to_pylist()] for part in _partitions(table)]
    speeds = [SECONDS_US // SLOW.get(p, 10_000) for p in range(PARTITIONS)]
    for restores in (False, True):
        peer = Plain(plain, restores=restores)
        timed(f"plain consumer, restores={restores}", rows, lambda peer=peer: peer.run(reading_order(plain, speeds)))
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


def _partitions(table: pa.Table) -> list[pa.Table]:
    home = table["partition"].to_numpy()
    return [table.filter(pa.array(home == p)) for p in range(PARTITIONS)]


def _message(m: dict[str, Any]) -> tuple[str, int, str, int]:
    return ("row", m["commit_ts"], "t0", m["key_hash"]) if m["kind"] == "row" else ("resolved", m["commit_ts"], "", 0)


if __name__ == "__main__":
    main()
