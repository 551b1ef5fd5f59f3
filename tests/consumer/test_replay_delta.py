"""A log replayed into Delta tables: one state belongs together, and what an interrupted batch left is undone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import job_types
import odd_keys
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from replays import decoded, duckdb_of

from ticdc_lab.consumer import compare, open_sink, replay
from ticdc_lab.consumer.replay_plan import TargetProgress
from ticdc_lab.consumer.sinks import delta
from ticdc_lab.consumer.sinks.delta import DeltaSink, TableFolder, TargetState, consistent, read_state, write_state
from ticdc_lab.engine.delta_log import DataFile, KnownFiles
from ticdc_lab.errors import SourceError
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.tables import knowledge

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

OPEN = "messages_open-protocol_small.jsonl.gz"
ADD_COLUMN, TRUNCATE = 470603993604161536, 470603993642696704


class _Killed(BaseException):
    pass


def rows(frames: dict[tuple[str, str], DataFrame]) -> dict[tuple[str, str], list[str]]:
    """The rows of tables as sorted texts."""
    return {name: sorted(map(repr, frame.collect())) for name, frame in frames.items()}


def test_what_an_interrupted_batch_has_written_is_undone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when all tables are merged and ``_state`` is not: a reader sees the old state, the next run continues.

    A table without a key is in it, which a batch applied twice would show.
    """
    log = _of_two_tables(decoded(spark, OPEN)[0])
    known, target = knowledge(log.events), f"delta:{tmp_path}/lake"
    replay(log, open_sink(target, log), known=known, until=ADD_COLUMN)
    before = rows(consistent(spark, f"{tmp_path}/lake"))

    def killed(*_: object) -> None:
        raise _Killed

    with monkeypatch.context() as patched:
        patched.setattr(delta, "write_state", killed)
        with pytest.raises(_Killed):
            replay(log, open_sink(target, log), known=known, until=TRUNCATE)
    ahead = read_state(spark, f"{tmp_path}/lake")
    assert ahead is not None and ahead.progress.ts == ADD_COLUMN
    assert rows(consistent(spark, f"{tmp_path}/lake")) == before
    assert _newest(spark, tmp_path / "lake") != before
    sink = open_sink(target, log)
    with monkeypatch.context() as patched:
        patched.setattr(KnownFiles, "take_back", lambda *_, **__: None)
        with pytest.raises(SourceError, match="Another process changed"):
            sink.progress()
    monkeypatch.setattr(delta, "REWRITTEN_BYTES", 0)  # so small a table was written again before, now it is merged
    done = replay(log, sink, known=known, until=TRUNCATE)
    found = {c.table: (c.different, c.why_not) for c in compare(log, sink, done.progress, known=known)}
    assert found == {"Fin_Ops.nopk": (0, ""), "shop.orders": (0, "")}


def test_keys_that_the_target_cannot_hold_stay_apart(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dates with parts of zero are NULL here, but never each other's row, written again or merged."""
    messages, left = odd_keys.written(["moments"])
    log = odd_keys.decoded(spark, tmp_path, messages)
    sink = DeltaSink(f"{tmp_path}/lake", log.events)

    def rows_of(name: str) -> list[tuple[int, str]]:
        return [(r["n"], r["v"]) for r in consistent(spark, sink.folder)["s", name].collect()]

    replay(log, sink, until=odd_keys.TS + 3)  # two odd keys, each with a later batch that has an update or a delete
    monkeypatch.setattr(delta, "REWRITTEN_BYTES", 0)
    odd_keys.check(log, sink, [8], rows_of, left)
    assert sink.notes() and all(delta.KEY in said for *_, said in sink.notes())


@pytest.mark.parametrize("query", ["RECOVER TABLE k", "FLASHBACK TABLE k TO m", "FLASHBACK DATABASE s"])
def test_a_table_that_comes_back_has_the_rows_that_come_after(spark: SparkSession, tmp_path: Path, query: str) -> None:
    """The note shows that those before are not in the log again; no table is compared."""
    log, table = odd_keys.that_comes_back(spark, tmp_path, query)
    sink = open_sink(f"delta:{tmp_path}/lake", log)
    done = replay(log, sink)
    assert rows(consistent(spark, f"{tmp_path}/lake")) == {("s", table): ["Row(id=2)"]}
    assert any("not in the log again" in said for *_, said in done.notes)
    [found] = compare(log, sink, done.progress)
    assert (found.table, found.recovered) == (f"s.{table}", True) and "recovered table" in found.why_not


def test_what_others_write_meanwhile_is_said_and_undone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small table is written by a task, which has read it before: what is added until the commit is not merged.

    None of Spark's own ways to write a table is taken for it, whether it is empty or not.
    """
    log = _of_two_tables(decoded(spark, OPEN)[0])
    known, target = knowledge(log.events), f"delta:{tmp_path}/lake"
    monkeypatch.delattr(DeltaSink, "_merge")
    done, theirs = delta.files_by_table, list[str]()

    def added(said: pa.Table) -> dict[int, list[DataFile]]:
        [own] = (tmp_path / "lake").glob("*orders*")
        rows = spark.read.format("delta").load(str(own)).limit(1)
        if not theirs and not rows.isEmpty():
            rows.write.format("delta").mode("append").save(str(own))
            theirs.append(own.name)
        return done(said)

    monkeypatch.setattr(delta, "files_by_table", added)
    with pytest.raises(SourceError, match=r"Another process changed .*orders.* while a log") as said:
        replay(log, open_sink(target, log), known=known, until=ADD_COLUMN, rows_a_batch=150)
    assert "Run the same `ticdc-lab consume` again" in said.value.hint and theirs

    written, orders = delta.write_state, f"{tmp_path}/lake/{theirs[0]}"

    def between(*given: Any) -> None:
        written(*given)
        spark.read.format("delta").load(orders).limit(1).write.format("delta").mode("append").save(orders)

    with monkeypatch.context() as patched:
        patched.setattr(delta, "write_state", between)
        with pytest.raises(SourceError, match=r"Another process changed .*orders.* while a log"):
            replay(log, open_sink(target, log), known=known, until=ADD_COLUMN, rows_a_batch=30)
    sink = open_sink(target, log)
    progress = replay(log, sink, known=known, until=ADD_COLUMN).progress
    found = {c.table: (c.different, c.why_not) for c in compare(log, sink, progress, known=known)}
    assert found == {"Fin_Ops.nopk": (0, ""), "shop.orders": (0, "")}


def test_a_session_that_names_columns_otherwise_in_files_keeps_the_state(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would make ``_state`` so where the user's settings report it, and find nulls in a plain file of ours."""
    setting = "spark.databricks.delta.properties.defaults.columnMapping.mode"
    spark.conf.set(setting, "name")
    try:
        for n in range(2):
            state = TargetState(TargetProgress("transaction", "o", {("t", 0): n}, n), {("s", "t"): TableFolder("f", n)})
            write_state(spark, str(tmp_path), state, KnownFiles(), tmp_path)
            assert read_state(spark, str(tmp_path)) == state
    finally:
        spark.conf.unset(setting)


def test_only_a_folder_of_one_machine_is_written_by_our_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative one is the one of this process, no matter what the working directory of Java is."""
    events = spark.createDataFrame([], "a int")
    monkeypatch.chdir(tmp_path)
    own = DeltaSink("lake/", events)
    assert (own.place, own.folder, own.name) == (tmp_path / "lake", str(tmp_path / "lake"), "delta:lake/")
    assert {DeltaSink(url, events).place for url in ("dbfs:/x", "s3a://b/x")} == {None}
    assert {DeltaSink(f"file:{slashes}x/y", events).place for slashes in ("/", "///")} == {Path("/x/y")}
    monkeypatch.setattr(delta, "is_several_machines", lambda _: True)
    assert DeltaSink(str(tmp_path), events).place is None


def _of_two_tables(log: ChangeLog) -> ChangeLog:
    """The log as a changefeed of two tables would have it."""
    named = "kind NOT IN ('row', 'ddl') OR table_name IN ('nopk', 'orders')"
    decoded = log.decoded.where(named)
    return replace(log, _stored=lambda: decoded)


def _newest(spark: SparkSession, folder: Path) -> dict[tuple[str, str], list[str]]:
    """What a reader sees who takes each table as it is, no matter what ``_state`` shows."""
    state = read_state(spark, str(folder))
    assert state is not None
    return rows({n: spark.read.format("delta").load(f"{folder}/{at.folder}") for n, at in state.tables.items()})


@pytest.mark.soak
def test_every_type_of_ddl_job_is_followed_or_noted(spark: SparkSession, tmp_path: Path) -> None:
    """The torture log's 36 types, each with rows before and after it, as in DuckDB: a commit for each of 78 DDL."""
    log = job_types.log(spark, tmp_path)
    sink = open_sink(f"delta:{tmp_path}/lake", log)
    job_types.check(log, sink)
    other = duckdb_of(log, tmp_path / "types.db")
    replay(log, other)
    for (schema, table), frame in consistent(spark, f"{tmp_path}/lake").items():
        if f"{schema}.{table}" in job_types.NOT_COMPARED:
            there = other.db.execute(f'SELECT * FROM "{schema}"."{table}"').fetchall()
            assert sorted(map(repr, map(tuple, frame.collect()))) == sorted(map(repr, there))
    other.close()


@pytest.mark.soak
def test_the_whole_log_with_all_its_ddl(spark: SparkSession, tmp_path: Path) -> None:
    """Renames, dropped and modified columns; minutes, because each of 17 ranges is a commit of each table."""
    log, known = decoded(spark, OPEN)
    sink = open_sink(f"delta:{tmp_path}/lake", log)
    done = replay(log, sink, known=known)
    found = {c.table: (c.different, c.why_not) for c in compare(log, sink, done.progress, known=known)}
    assert set(found.values()) == {(0, "")} and "Fin_Ops.Customers" in found
