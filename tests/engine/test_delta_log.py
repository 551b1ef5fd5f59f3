"""Commits of files that another program has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from ticdc_lab.engine import delta_log
from ticdc_lab.engine.delta_log import DataFile, KnownFiles, TableState, table_state
from ticdc_lab.engine.delta_table import create_table, forget_unborn
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
    """What the table contains."""
    return sorted(row.id for row in spark.read.format("delta").load(path).collect())


def overtaken(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, path: str, file: DataFile, once: tuple[str, int] | None = None
) -> None:
    """Let another program commit a file between our next look at a table and our commit."""
    begin = delta_log._begun

    def begun(*how: Any) -> Any:
        transaction = begin(*how)
        monkeypatch.setattr(delta_log, "_begun", begin)
        assert KnownFiles().commit(spark, path, [file], note="theirs", once=once)
        return transaction

    monkeypatch.setattr(delta_log, "_begun", begun)


def test_a_file_that_somebody_has_rewritten_meanwhile_is_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """``OPTIMIZE`` is everybody's right while ingest runs: the rows must not occur twice."""
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


def test_a_number_is_taken_once_whoever_has_given_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By this process before, by another since its last look, or by Delta's own writer."""
    path, known = str(tmp_path / "t"), KnownFiles()
    DeltaTable.createIfNotExists(spark).location(path).addColumn("id", "bigint").execute()
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    before = len(jobs())
    assert known.number(spark, path, "a") == -1
    assert known.commit(spark, path, [written(tmp_path, 1)], note="ours", once=("a", 3))
    assert len(jobs()) == before, "all commits since the first are read, so Delta is not asked"
    assert not known.commit(spark, path, [written(tmp_path, 1)], note="ours", once=("a", 3))
    assert KnownFiles().commit(spark, path, [written(tmp_path, 2)], note="theirs", once=("a", 4))
    assert not known.commit(spark, path, [written(tmp_path, 2)], note="ours", once=("a", 4))
    own = spark.range(3, 4).write.format("delta").mode("append").options(txnAppId="a", txnVersion="5")
    own.save(path)
    assert not known.commit(spark, path, [written(tmp_path, 3)], note="ours", once=("a", 5))
    assert known.commit(spark, path, [written(tmp_path, 9)], note="ours", once=("b", 1))
    assert rows(spark, path) == [1, 2, 3, 9] and known.number(spark, path, "b") == 1
    monkeypatch.setattr(delta_log, "_COMMITS", 0)  # as of very many, or where the first are removed
    assert [KnownFiles().number(spark, path, name) for name in "abc"] == [5, 1, -1]


@pytest.mark.parametrize("before", [[], [1]], ids=["asked for the first time", "known"])
def test_of_two_commits_of_a_number_at_once_one_is_refused(
    before: list[int], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may commit the same batch between our look at its number and our commit."""
    path, known = str(tmp_path / "t"), KnownFiles()
    DeltaTable.createIfNotExists(spark).location(path).addColumn("id", "bigint").execute()
    for number in before:
        assert known.commit(spark, path, [written(tmp_path, number)], note="ours", once=("a", number))
    overtaken(monkeypatch, spark, path, written(tmp_path, 7), once=("a", 7))
    with pytest.raises(Exception, match=r"(?i)concurrent"):
        known.commit(spark, path, [written(tmp_path, 7)], note="ours", once=("a", 7))
    assert rows(spark, path) == [*before, 7]


@pytest.mark.parametrize("url", [False, True], ids=["path", "url"])
def test_what_somebody_has_added_before_a_commit_leaves_with_everything(
    url: bool, spark: SparkSession, tmp_path: Path
) -> None:
    """Between our look and our commit too: else what replaces a table would be beside a part of it."""
    path, known = f"file://{tmp_path}/t" if url else str(tmp_path / "t"), KnownFiles()
    DeltaTable.createIfNotExists(spark).location(str(tmp_path / "t")).addColumn("id", "bigint").execute()
    assert known.commit(spark, path, [written(tmp_path, 1)], note="ours")
    [first] = known.now(spark, path)
    spark.range(2, 3).write.format("delta").mode("append").save(path)
    assert known.commit(spark, path, [written(tmp_path, 3)], note="ours", everything=True)
    assert rows(spark, path) == [3] and not known.commit(spark, path, [], note="ours", removed=[first.name])


def test_files_that_stand_for_a_whole_table_replace_nothing_else(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program adds rows after the files were read, or between our look and our commit: neither is lost."""
    path, known = str(tmp_path / "t"), KnownFiles()
    create_table(spark, "id bigint", path)
    assert known.plain(spark, path) == [] and known.commit(spark, path, [written(tmp_path, 1)], note="ours")

    def replaced(read: list[DataFile] | None) -> bool:
        names = [file.name for file in read or ()]
        return known.commit(spark, path, [written(tmp_path, 9)], note="ours", removed=names, nothing_else=True)

    read = known.plain(spark, path)
    assert KnownFiles().commit(spark, path, [written(tmp_path, 2)], note="theirs")
    assert not replaced(read) and rows(spark, path) == [1, 2]
    read = known.plain(spark, path)
    overtaken(monkeypatch, spark, path, written(tmp_path, 3))
    assert not replaced(read)
    assert rows(spark, path) == [1, 2, 3]
    assert replaced(known.plain(spark, path)) and rows(spark, path) == [9]
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    assert known.plain(spark, path) is None
    for number, columns in enumerate(("`a b` int", "t timestamp_ntz")):
        create_table(spark, columns, f"{path}{number}")
        assert (known.plain(spark, f"{path}{number}") is None) == (number == 0)


def test_a_table_of_which_only_a_first_commit_was_begun_is_made(spark: SparkSession, tmp_path: Path) -> None:
    """As a process leaves it that is killed then; what another program wrote stays, and Delta refuses it."""
    log = tmp_path / "t" / "_delta_log"
    (log / "_staged_commits").mkdir(parents=True)
    (log / f".{0:020}.json.5272c0ac.tmp").write_text("{}")
    (tmp_path / "t" / "mine").touch()
    with pytest.raises(Exception, match="not empty"):
        create_table(spark, "id bigint", str(tmp_path / "t"))
    assert (log / f".{0:020}.json.5272c0ac.tmp").exists()
    (tmp_path / "t" / "mine").unlink()
    (log / f"{1:020}.checkpoint.parquet").touch()
    forget_unborn(str(tmp_path / "t"))
    assert log.is_dir(), "a table whose commits are in a checkpoint is no such one"
    (log / f"{1:020}.checkpoint.parquet").unlink()
    create_table(spark, "id bigint", str(tmp_path / "t"))
    assert rows(spark, str(tmp_path / "t")) == [] and table_state(spark, str(tmp_path / "t")).version == 0


def test_a_table_is_taken_back_to_a_version_or_left_as_it_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the statistics of its files; what Delta alone can judge is left to its ``RESTORE``."""
    path, known = str(tmp_path / "t"), KnownFiles()
    create_table(spark, "id bigint", path)
    for n in (1, 2):
        assert known.commit(spark, path, [written(tmp_path, n)], note="ours")
    at, then = table_state(spark, path).version, known.now(spark, path)
    [stays, _] = [file.name for file in then]
    assert KnownFiles().commit(spark, path, [written(tmp_path, 3)], note="theirs", removed=[then[1].name])

    def taken_back() -> bool | None:
        return KnownFiles().take_back(spark, path, at, note="ours")

    overtaken(monkeypatch, spark, path, written(tmp_path, 4))
    assert taken_back() is None and rows(spark, path) == [1, 3, 4]
    assert taken_back() and rows(spark, path) == [1, 2]
    assert sorted(known.now(spark, path), key=str) == sorted(then, key=str)
    last = f"{table_state(spark, path).version:020}.json"
    assert stays not in (tmp_path / "t" / "_delta_log" / last).read_text()
    assert KnownFiles().commit(spark, path, [], note="theirs", everything=True) and not rows(spark, path)
    (tmp_path / "t" / stays).rename(tmp_path / "kept")
    assert taken_back() is False and not rows(spark, path)
    (tmp_path / "kept").rename(tmp_path / "t" / stays)
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN more int")
    assert taken_back() is False
    DeltaTable.forPath(spark, path).restoreToVersion(at)
    assert rows(spark, path) == [1, 2]
    at = table_state(spark, path).version
    assert KnownFiles().commit(spark, path, [written(tmp_path, 5)], note="theirs")
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path).checkpoint()
    (tmp_path / "t" / "_delta_log" / f"{0:020}.json").unlink()
    assert taken_back() is False and rows(spark, path) == [1, 2, 5]


def test_what_a_table_is_now_is_told_without_a_job(spark: SparkSession, tmp_path: Path) -> None:
    """Of each version its files and bytes, from the checksum that Delta writes beside it; unknown where that is gone.

    Delta's own name for the number of files that is known starts a job to know it.
    """
    path = str(tmp_path / "t")
    create_table(spark, "id bigint", path)
    states = [table_state(spark, path)]
    for n in (10, 20):
        spark.range(n).coalesce(1).write.format("delta").mode("append").save(path)
        spark.sparkContext.setJobGroup(f"state {n}", "")
        states.append(table_state(spark, path))
        assert not spark.sparkContext.statusTracker().getJobIdsForGroup(f"state {n}")
        spark.sparkContext.setJobGroup("others", "")
    whole = sum(f.size for f in KnownFiles().now(spark, path))
    assert [(s.version, s.files) for s in states] == [(0, 0), (1, 1), (2, 2)]
    assert [s.size for s in states][::2] == [0, whole] and 0 < (states[1].size or 0) < whole
    for crc in (tmp_path / "t" / "_delta_log").glob("*.crc"):
        crc.unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert table_state(spark, path) == TableState(2, None, None)
