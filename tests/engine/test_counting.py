"""What several questions ask of is computed once, on either engine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from engines import session_of, using
from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.engine import kept

ENGINES = ("embedded", "spark")


def noting(spark: SparkSession, notes: Path) -> DataFrame:
    """Three rows, and a file for each time that they are computed."""
    notes.mkdir()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (notes / uuid4().hex).touch()
        yield from batches

    return spark.range(0, 3, 1, 1).mapInArrow(run, "id bigint")


def asked(rows: DataFrame) -> tuple[int, list[int]]:
    """Two questions."""
    return rows.count(), sorted(r.id for r in rows.collect())


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_kept_is_computed_once(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are the same; without it each question computes them again, and nothing is left behind."""
    with using(engine):
        rows = noting(session_of(engine), tmp_path / "notes")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with kept(rows) as once:
            assert asked(once) == (3, [0, 1, 2]) and once.schema == rows.schema
        assert len(list((tmp_path / "notes").iterdir())) == 1
        assert asked(rows) == (3, [0, 1, 2])
        assert len(list((tmp_path / "notes").iterdir())) == 3
        with kept(rows.where("id > 7")) as nothing:
            assert asked(nothing) == (0, [])
    assert [p.name for p in tmp_path.iterdir()] == ["notes"]
