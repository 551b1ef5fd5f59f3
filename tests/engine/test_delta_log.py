"""Commits of files that somebody else has written."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from ticdc_lab.engine.delta_log import DataFile, commit_files, table_files
from ticdc_lab.lake.one_pass import LakeFile

pytestmark = pytest.mark.spark

FORM = pa.schema([("id", pa.int64())])


def written(folder: Path, *ids: int) -> DataFile:
    """A file of the table that no commit has yet."""
    file = LakeFile(str(folder), "t", FORM)
    file.add(pa.table({"id": ids}))
    found = file.closed()
    assert found is not None
    return found


def rows(spark: SparkSession, path: str) -> list[int]:
    """What the table holds."""
    return sorted(row.id for row in spark.read.format("delta").load(path).collect())


def test_a_file_that_somebody_has_rewritten_meanwhile_is_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """``OPTIMIZE`` is everybody's right while ingest runs: the rows must not be there twice."""
    path = str(tmp_path / "t")
    DeltaTable.createIfNotExists(spark).location(path).addColumn("id", "bigint").execute()
    for i in (1, 2):
        assert commit_files(spark, path, [written(tmp_path, i)], note="ours", once=("test", i))
    assert not commit_files(spark, path, [written(tmp_path, 2)], note="ours", once=("test", 2))
    gone = {file.name for file in table_files(spark, path)}

    def exchanged() -> bool:
        how = {"replaced": lambda f: f.name in gone, "expected": len(gone), "changes": False}
        return commit_files(spark, path, [written(tmp_path, 1, 2)], note="ours", **how)

    DeltaTable.forPath(spark, path).optimize().executeCompaction()
    assert len(gone) == 2 and not exchanged() and rows(spark, path) == [1, 2]
    gone = {file.name for file in table_files(spark, path)}
    assert exchanged() and rows(spark, path) == [1, 2]


def test_of_each_file_it_is_known_what_it_holds(spark: SparkSession, tmp_path: Path) -> None:
    """By these statistics ingest knows which files it need not read; also after a checkpoint of Delta's."""
    path = str(tmp_path / "t")
    made = DeltaTable.createIfNotExists(spark).location(path).addColumn("id", "bigint")
    made.property("delta.checkpointInterval", "2").execute()
    own = [written(tmp_path, i, i + 1) for i in (1, 5, 9)]
    for file in own:
        assert commit_files(spark, path, [file], note="ours")
    assert list((tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet"))
    found = {file.name: json.loads(file.stats) for file in table_files(spark, path)}
    assert found == {file.name: json.loads(file.stats) for file in own}
    assert {(of["numRecords"], of["minValues"]["id"], of["maxValues"]["id"]) for of in found.values()} == {
        (2, 1, 2), (2, 5, 6), (2, 9, 10)}  # fmt: skip
