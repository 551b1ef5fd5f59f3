"""More rows than memory should hold are grouped by key through files: the same rows, the same order, nothing left."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ticdc_lab.engine import shuffle
from ticdc_lab.engine.shuffle import Batches, MadeByWorkers, by_key_here
from ticdc_lab.errors import SourceError

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
