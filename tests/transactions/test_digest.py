"""Totals of transactions and those to draw: of parts as of the whole, and as plain Python picks them."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ticdc_lab.facts.places import long_hashes
from ticdc_lab.facts.schemas import arrow_of
from ticdc_lab.transactions.digest import DIGEST, SAMPLE, Digest, digested


def some(n: int, *, seed: int = 1) -> list[dict[str, Any]]:
    """Transactions, some of them pending, repeated, or spread."""
    r = random.Random(seed)
    return [
        {"commit_ts": (seed << 50) + i * 262_144, "n_rows": r.randint(1, 9),
         "tables": ["s.a", "s.b"][: r.randint(1, 2)], "partitions": [0, 3][: r.randint(1, 2)],
         "complete": r.random() < 0.9, "missing": [],
         "duplicates": r.choice([0] * 9 + [2])}
        for i in range(n)
    ]  # fmt: skip


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """As Arrow has them."""
    return pa.Table.from_pylist(rows, arrow_of(SAMPLE))


def test_totals_count_all_and_the_sample_takes_pending_and_repeated_ones_first() -> None:
    """In one row; pending ones come before repeated ones, these before others."""
    rows = some(500)
    found = Digest.of(table(rows), most=150)
    [totals] = found.totals.to_pylist()
    assert totals == {
        "n": 500, "pending": sum(not t["complete"] for t in rows),
        "spread": sum(len(t["partitions"]) == 2 for t in rows),
        "many_tables": sum(len(t["tables"]) == 2 for t in rows),
        "n_rows": sum(t["n_rows"] for t in rows),
        "n_rows_max": 9, "duplicates": sum(t["duplicates"] for t in rows),
        "first_commit_ts": rows[0]["commit_ts"], "last_commit_ts": rows[-1]["commit_ts"],
    }  # fmt: skip
    drawn = [(t["complete"], t["duplicates"] == 0) for t in found.sample.to_pylist()]
    assert len(drawn) == 150 and drawn == sorted(drawn) and sum(not c for c, _ in drawn) == totals["pending"] > 0
    assert {(True, False), (True, True)} <= set(drawn)


@pytest.mark.parametrize("size", [1, 7, 200])
def test_parts_in_any_order_give_the_same_digest(size: int) -> None:
    """Tasks hold any part of the transactions."""
    whole = table(some(300))
    parts = [whole[i : i + size] for i in range(0, 300, size)]
    random.Random(2).shuffle(parts)
    digests = pa.Table.from_batches([b for p in parts for b in digested(iter(p.to_batches()), most=40)])
    one, two = Digest.read(digests, most=40), Digest.of(whole, most=40)
    assert one.totals.equals(two.totals) and one.sample.equals(two.sample)


def test_no_transactions_have_totals_too() -> None:
    """Zeros, and no commit_ts."""
    found = Digest.of(table([]))
    assert [found.totals["n"][0].as_py(), found.totals["n_rows_max"][0].as_py()] == [0, 0]
    assert found.totals["first_commit_ts"][0].as_py() is None and found.sample.num_rows == 0


def test_spark_digests_as_arrow_does_and_hashes_alike(spark: SparkSession) -> None:
    """The transforms and the kernel take the same transactions, which are drawn by Spark's own hash."""
    whole = table(some(200))
    frame = spark.createDataFrame(whole.to_pylist(), SAMPLE).repartition(3)
    own = Digest.of(whole, most=50)
    parts = frame.select(*own.sample.column_names).mapInArrow(partial(digested, most=50), DIGEST)
    both = Digest.read(parts.toArrow(), most=50)
    assert both.totals.to_pylist() == own.totals.to_pylist() and both.sample.to_pylist() == own.sample.to_pylist()
    hashes = {r[0]: r[1] for r in frame.select("commit_ts", F.xxhash64("commit_ts")).collect()}
    assert [hashes[ts] for ts in whole["commit_ts"].to_pylist()] == long_hashes(whole["commit_ts"].to_numpy()).tolist()
