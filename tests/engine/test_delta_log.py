"""Commits of files that somebody else has written."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from ticdc_lab.engine.delta_log import DataFile, KnownFiles
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
    path, known = str(tmp_path / "t"), KnownFiles()
    DeltaTable.createIfNotExists(spark).location(path).addColumn("id", "bigint").execute()
    for i in (1, 2):
        assert known.commit(spark, path, [written(tmp_path, i)], note="ours", once=("test", i))
    assert not known.commit(spark, path, [written(tmp_path, 2)], note="ours", once=("test", 2))
    gone = {file.name for file in known.now(spark, path)}

    def exchanged() -> bool:
        return known.commit(spark, path, [written(tmp_path, 1, 2)], note="ours", removed=gone, changes=False)

    DeltaTable.forPath(spark, path).optimize().executeCompaction()
    assert len(gone) == 2 and not exchanged() and rows(spark, path) == [1, 2]
    gone = {file.name for file in known.now(spark, path)}
    assert exchanged() and rows(spark, path) == [1, 2]


def test_of_each_file_it_is_known_what_it_holds(spark: SparkSession, tmp_path: Path) -> None:
    """By these statistics ingest knows which files it need not read; also after a checkpoint of Delta's."""
    path, early = str(tmp_path / "t"), KnownFiles()
    made = DeltaTable.createIfNotExists(spark).location(path).addColumn("id", "bigint")
    made.property("delta.checkpointInterval", "2").execute()
    own = [written(tmp_path, i, i + 1) for i in (1, 5, 9)]
    for file in own:
        assert early.commit(spark, path, [file], note="ours") and file in early.now(spark, path)
    assert list((tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet"))
    found = {file.name: json.loads(file.stats) for file in KnownFiles().now(spark, path)}
    assert found == {file.name: json.loads(file.stats) for file in early.now(spark, path)}
    assert {(of["numRecords"], of["minValues"]["id"], of["maxValues"]["id"]) for of in found.values()} == {
        (2, 1, 2), (2, 5, 6), (2, 9, 10)}  # fmt: skip


def test_what_somebody_else_commits_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    """The list that is kept follows each commit, also where Delta has removed commits meanwhile."""
    path, known = str(tmp_path / "t"), KnownFiles()
    table = DeltaTable.createIfNotExists(spark).location(path).addColumn("id", "bigint").execute()
    assert known.now(spark, path) == []
    for ids in ((1, 2), (3, 4), (5,)):
        assert KnownFiles().commit(spark, path, [written(tmp_path, *ids)], note="theirs")
    assert len(known.now(spark, path)) == 3
    table.delete("id = 3")
    table.optimize().executeCompaction()
    assert sorted(known.now(spark, path), key=str) == sorted(KnownFiles().now(spark, path), key=str)
    for ids in ((6,), (7,)):
        assert KnownFiles().commit(spark, path, [written(tmp_path, *ids)], note="theirs")
    jvm = spark._jvm
    assert jvm is not None
    jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path).checkpoint()
    for commit in sorted((tmp_path / "t" / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    assert {json.loads(f.stats)["numRecords"] for f in known.now(spark, path)} == {1, 4}
