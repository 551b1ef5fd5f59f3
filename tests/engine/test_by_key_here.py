"""More rows than memory should hold are grouped by key through files: the same rows, the same order, nothing left."""

from __future__ import annotations

import tempfile
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ticdc_lab.codecs.kernel.chains import ChangesInTurn, RowsSoFar, follow
from ticdc_lab.engine import parallelism, shuffle
from ticdc_lab.engine.giving_up import given_up
from ticdc_lab.engine.shuffle import Batches, MadeByWorkers, by_key_here, by_threads
from ticdc_lab.errors import SourceError
from ticdc_lab.events.arrays import Ints

FORM = pa.schema([("key", pa.int64()), ("at", pa.int64()), ("note", pa.int64())])


def rows_of(spark: SparkSession, n: int = 20_000) -> MadeByWorkers:
    """Rows of 700 keys in three pieces, some with a null, one piece empty."""
    r = np.random.default_rng(51)
    keys, at = r.integers(-350, 350, n), r.permutation(n)
    whole = pa.table([keys, at, pa.array(at, mask=at % 5 == 0)], schema=FORM)
    cut = (0, n // 3, n // 3, n)
    parts = [whole.slice(a, b - a) for a, b in pairwise(cut)]
    return MadeByWorkers(spark, (0, 1, 2), lambda i: iter(parts[i].to_batches(max_chunksize=997)), FORM, n)


def grouped(rows: MadeByWorkers, calls: list[pa.Table], seen: list[pa.Table]) -> pa.Table:
    """What a kernel sees in each call, and what is left out of rows before."""

    def kernel(batches: Batches) -> Batches:
        calls.append(pa.Table.from_batches(batches, FORM))
        yield from calls[-1].to_batches()

    def some(of: pa.Table) -> pa.Table:
        seen.append(of)
        return of

    return by_key_here(rows, "key", kernel, FORM, order=("at",), some=some)


def test_rows_laid_apart_are_those_in_memory(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A key is whole and in order in one call, and a thread has a fraction of the rows."""
    rows = rows_of(spark)
    calls, seen = list[pa.Table](), list[pa.Table]()
    whole = grouped(rows, list[pa.Table](), list[pa.Table]()).sort_by([("key", "ascending"), ("at", "ascending")])
    monkeypatch.setattr(shuffle, "ROWS_HERE", 1_000)
    monkeypatch.setattr(shuffle, "PACKED", 3_000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = grouped(rows, calls, seen)
    assert found.sort_by([("key", "ascending"), ("at", "ascending")]).equals(whole)
    assert all(call.sort_by([("key", "ascending"), ("at", "ascending")]).equals(call) for call in calls)
    keys = [key for call in calls for key in set(call["key"].to_pylist())]
    assert len(keys) == len(set(keys))
    assert max(map(len, seen)) < 2_000
    assert sum(map(len, seen)) == rows.rows
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_named(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary folder is where room is missing."""
    monkeypatch.setattr(shuffle, "ROWS_HERE", 1_000)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pa.ipc, "new_file", full)
    with pytest.raises(SourceError, match="No space is left on the device where"):
        grouped(rows_of(spark), [], [])


def test_an_interrupt_begins_no_other_part(spark: SparkSession) -> None:
    """One part fails while others are read and more wait: those end with their first batch, and these never begin."""
    begun = list[int]()

    def part(i: int) -> Batches:
        if not i:
            raise KeyboardInterrupt
        begun.append(i)
        over = given_up()
        assert over is not None
        assert over.wait(60)
        yield pa.RecordBatch.from_pylist([], FORM)
        pytest.fail("its first batch was wanted")

    with pytest.raises(KeyboardInterrupt):
        by_threads(spark, [partial(part, i) for i in range(50)], lambda batches: batches, FORM)
    assert len(begun) <= parallelism(spark)


def longest_run(rows: Ints) -> int:
    """How many full slots follow each other at most in the table that :func:`follow` fills."""
    no, bits = np.zeros(len(rows), np.int64), np.zeros(0, np.uint8)
    c = ChangesInTurn(
        row_id=rows, place=no, commit_ts=no, offset=no, seq_flags=no, before=no, has_before=bits, after=no,
        has_after=bits, odd=np.zeros(len(rows), np.uint8),
    )  # fmt: skip
    x = RowsSoFar.of(len(rows), np.zeros(1, np.int64), np.zeros((2, 1), np.uint8), np.zeros((2, 1), np.int64))
    assert follow(c, x, 0, 1) == 0
    return int(np.diff(np.flatnonzero(x.slot < 0), prepend=-1, append=len(x.slot)).max()) - 1


@pytest.mark.parametrize("buckets", [4, 10, 64, 100])
def test_a_bucket_fills_all_of_a_table(buckets: int) -> None:
    """Rows of one bucket are spread over the slots of the table that follows them: no long run of slots is full.

    If both took them from the same bits, 4 buckets would make runs of tens of thousands, each searched slot by slot.
    """
    n = 1 << 15
    keys = pa.array(np.random.default_rng(51).integers(-(1 << 63), (1 << 63) - 1, n * buckets))
    held = [pa.record_batch([keys], names=["key"])]
    (own,) = (rows["key"].to_numpy() for i, rows in shuffle._apart(held, "key", buckets) if i == buckets - 1)
    assert longest_run(own) < 200
