"""Row changes that Spark's workers read from files are those that its expressions give, and so are the answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from audit_tables import audit_table
from conftest import events_frame, golden
from generated_topics import FAULTS, every_fault
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tiny_logs import row, table_of

from ticdc_lab import load
from ticdc_lab.answers.summary import of_load, of_transactions
from ticdc_lab.audit import audited, history, run
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.keys import rows_of, with_hashes
from ticdc_lab.dispatch.infer import move_causes_at_once, move_causes_table, moved_tables
from ticdc_lab.engine import shuffle
from ticdc_lab.engine.sessions import is_sail, parallelism
from ticdc_lab.engine.shuffle import Batches, MadeByWorkers, by_key
from ticdc_lab.errors import SourceError
from ticdc_lab.events.sample import Sample
from ticdc_lab.events.schema import DECODED, DISPATCH, IMAGE_HASHES, KEYS
from ticdc_lab.facts import LogFacts
from ticdc_lab.sources import stored
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.stored import StoredEvents
from ticdc_lab.transactions import known_places, of_restored, restoring

LOGS = (
    "messages_canal-json_small.jsonl.gz",
    "messages_open-protocol-updatedonly-batch1_small.jsonl.gz",
    "messages_simple_small-dup-table.jsonl.gz",
    "messages_canal-json-tidb_small-dup-restart.jsonl.gz",
)


def _materialised(spark: SparkSession, folder: Path, name: str) -> ChangeLog:
    return load(spark, str(golden(name))).materialise(str(folder / "decoded"))


def _read(log: ChangeLog, columns: tuple[str, ...], narrow: object, form: pa.Schema) -> list[tuple[int, ...]]:
    files = tuple(map(str, log._files))
    made = StoredEvents(log.events.sparkSession, files).rows(columns, narrow, form)  # type: ignore[arg-type]
    whole = pa.Table.from_batches([b for piece in made.pieces for b in made.read(piece)], schema=form)
    return sorted(map(repr, whole.to_pylist()))


@pytest.mark.parametrize("name", LOGS)
def test_they_are_narrowed_as_frames_and_as_by_expressions(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Hashes, places, flags and both sides of a changed key; for the audit and for transactions."""
    log = _materialised(spark, tmp_path, name)
    narrow = rows_of(log.events, history._READ, history.narrowed, history._FORM, KEYS, IMAGE_HASHES)
    expected = sorted(map(repr, narrow.toArrow().to_pylist()))
    assert expected
    assert _read(log, history._READ, history.narrowed, history._FORM) == expected
    rows = restoring._changes(log.events, function="transactions").select(
        "commit_ts",
        F.coalesce("start_ts", F.lit(restoring.NO_TS)).alias("start_ts"),
        restoring.change_id().alias("change_id"),
        restoring.place_col().alias("place"),
        "offset",
    )
    read = (*restoring._READ, *restoring.NAMED_BY)
    assert _read(log, read, restoring.narrowed, restoring.NARROW) == sorted(map(repr, rows.toArrow().to_pylist()))


def test_what_was_put_aside_is_no_row(spark: SparkSession, tmp_path: Path) -> None:
    """Neither are watermarks and DDL."""
    table = table_of([row(0, i, i) for i in range(5)])
    kinds = pa.array(["row", "row", "watermark", "ddl", "row"])
    table = table.set_column(table.schema.get_field_index("kind"), "kind", kinds)
    table = table.append_column("error_class", pa.array([None, "broken", None, None, None], pa.string()))
    pq.write_table(table, tmp_path / "events.parquet")
    made = StoredEvents(spark, (str(tmp_path / "events.parquet"),)).rows(
        ("offset",), lambda rows: rows, pa.schema([("offset", pa.int64())])
    )
    assert pa.Table.from_batches(made.read(made.pieces[0]))["offset"].to_pylist() == [0, 4]


def test_images_of_a_file_of_several_row_groups(spark: SparkSession, tmp_path: Path) -> None:
    """Names inside of lists have a dictionary in each row group; a task reads all of them, as a log of 48 MiB has."""
    [whole] = _materialised(spark, tmp_path, LOGS[0])._files
    pq.write_table(pq.read_table(whole, schema=arrow_schema(DECODED)), tmp_path / "cut.parquet", row_group_size=100)
    read = []
    for file in (whole, tmp_path / "cut.parquet"):
        made = StoredEvents(spark, (str(file),)).rows(run.READ, lambda rows: rows, run._STORED_FORM, leaves=run._LEAVES)
        rows = [row for piece in made.pieces for b in made.read(piece) for row in b.to_pylist()]
        read.append(sorted(rows, key=lambda row: (row["partition"], row["offset"], row["seq"])))
    assert pq.ParquetFile(tmp_path / "cut.parquet").num_row_groups > 10 and read[0]
    assert read[0] == read[1]


def test_a_file_that_is_gone_is_said_in_words(spark: SparkSession, tmp_path: Path) -> None:
    """With what to do."""
    made = StoredEvents(spark, ()).rows((), lambda rows: rows, pa.schema([]))
    with pytest.raises(SourceError, match=r"gone\.parquet is gone"):
        next(made.read((str(tmp_path / "gone.parquet"), 0)))


def test_only_sparks_workers_read_whole_logs_so(spark: SparkSession, tmp_path: Path) -> None:
    """The embedded engine reads files as quickly itself."""
    files = _materialised(spark, tmp_path, LOGS[0]).files
    assert files is not None and files.by_spark != is_sail(spark)


def test_files_are_shared_where_there_are_few(classic: SparkSession, tmp_path: Path) -> None:
    """Each row comes from one task, and no task has all of a large file."""
    files = _in_files(table_of([row(0, i, i) for i in range(50)]), tmp_path, 1)
    form = pa.schema([("offset", pa.int64())])
    made = StoredEvents(classic, files).rows(("offset",), lambda rows: rows, form)
    parts = [pa.Table.from_batches(made.read(piece), form)["offset"].to_pylist() for piece in made.pieces]
    assert len(parts) == parallelism(classic) > 1 and max(map(len, parts)) < 50
    assert sorted(chain.from_iterable(parts)) == [*range(50)]


def test_tasks_get_as_many_buckets_each(classic: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a key in one call, in small batches, sorted; by the hash of its number some tasks would get four.

    Of more rows there are more tasks and buckets, none larger.
    """
    monkeypatch.setattr(shuffle, "ROWS_A_TASK", 1001)
    monkeypatch.setattr(shuffle, "ROWS_A_BUCKET", 20)
    monkeypatch.setattr(shuffle, "PACKED", 7)
    form = pa.schema([("key", pa.int64()), ("n", pa.int64())])
    rows = pa.table({"key": [i % 1000 for i in range(4000)], "n": range(4000)}, schema=form)
    pieces = tuple(range(4))
    made = MadeByWorkers(classic, pieces, lambda i: iter(rows.slice(1000 * i, 1000).to_batches()), form, len(rows))

    def told(batches: Batches) -> Batches:
        own = [b for b in batches if len(b)]
        task = TaskContext.get()
        assert task is not None
        keys = [b["key"].to_pylist() for b in own]
        flat = [*chain.from_iterable(keys)]
        fine = flat == sorted(flat) and max(map(len, keys)) <= shuffle.PACKED
        yield pa.record_batch(
            {"task": [task.partitionId()], "keys": [len(set(flat))], "rows": [len(flat)], "fine": [fine]}
        )

    found = by_key(made, "key", told, "task long, keys long, rows long, fine boolean", order=["n"]).toArrow()
    assert all(found["fine"].to_pylist())
    assert (sum(found["keys"].to_pylist()), sum(found["rows"].to_pylist())) == (1000, 4000)
    tasks = Counter(found["task"].to_pylist())
    assert len(tasks) == 4 and len({*tasks.values()}) == 1, "of 16 cores it would be 16"
    assert len(found) == 200, "each bucket is judged alone"


def _in_files(table: pa.Table, folder: Path, n: int) -> tuple[str, ...]:
    """A table's rows in turn in several files of small row groups."""
    whole = table.append_column("error_class", pa.nulls(len(table), pa.string()))
    for i in range(n):
        own = whole.filter(pc.equal(pa.array([j % n for j in range(len(whole))]), i))
        pq.write_table(own, folder / f"{i}.parquet", row_group_size=7)
    return tuple(str(folder / f"{i}.parquet") for i in range(n))


def test_planted_faults_are_found_in_files(
    classic: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind, as by the kernel alone; rows whose changes lie in several files are judged whole.

    What the log states is broadcast, though it were too much for a connection: gathered, it would go with Spark's rows.
    """
    monkeypatch.setattr(shuffle, "SENT", 0)
    events, table = events_frame(classic, every_fault()), table_of(every_fault())
    unread = events.withColumn("change_hash", F.expr("raise_error('read by Spark')").cast("bigint"))
    asked: list[int] = []

    in_one = [row(0, 0, 1), row(0, 1, 2, "update")]
    clean = table_of([*in_one, row(1, 0, 3, key="2")])
    facts = LogFacts.of(clean)
    files = StoredEvents(classic, _in_files(clean, tmp_path, 1))

    def causes() -> pa.Table | DataFrame:
        asked.append(1)
        return move_causes_at_once(lambda: unread, facts, files=stored)

    assert len(audited(lambda: unread, facts, causes, protocol="open-protocol", files=files).findings) == len(
        audit_table(clean, protocol="open-protocol")
    )
    assert not asked and not moved_tables(files, facts)
    lost = StoredEvents(classic, (str(tmp_path / "lost.parquet"),))
    assert not moved_tables(lost, LogFacts.of(table_of(in_one)))  # no file is read for a table in one partition
    with pytest.raises(Exception, match=r"lost\.parquet"):
        moved_tables(lost, facts)
    tried, facts = with_hashes(events, DISPATCH).toArrow(), LogFacts.of(table)
    for name in DISPATCH.names:
        table = table.append_column(name, tried[name])
    stored = StoredEvents(classic, _in_files(table, tmp_path, 3))
    moves = bool(moved_tables(stored, facts))
    found = audited(lambda: unread, facts, causes, protocol="open-protocol", files=stored, moves=moves).findings
    assert len(asked) == 1 and {f["guarantee"] for f in found.to_pylist()} >= set(FAULTS.values())
    expected = move_causes_table(tried)
    assert found.to_pylist() == audit_table(table, protocol="open-protocol", causes=expected).to_pylist()


def test_this_process_judges_files_beside_the_embedded_engine(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each planted fault, as by the kernel alone; the engine shuffles no row, and a file that is gone is named."""
    if not is_sail(spark):
        pytest.skip("Spark's workers judge what they read")
    events, table = events_frame(spark, every_fault()), table_of(every_fault())
    tried, facts = with_hashes(events, DISPATCH).toArrow(), LogFacts.of(table)
    for name in DISPATCH.names:
        table = table.append_column(name, tried[name])
    whole, causes = _in_files(table, tmp_path, 3), move_causes_table(tried)
    monkeypatch.setattr(run, "rows_judged", None)
    files = StoredEvents(spark, whole, len(table))
    found = audited(lambda: events, facts, lambda: causes, protocol="open-protocol", files=files).findings
    assert found.to_pylist() == audit_table(table, protocol="open-protocol", causes=causes).to_pylist()
    assert {f["guarantee"] for f in found.to_pylist()} >= set(FAULTS.values())
    lost = StoredEvents(spark, (str(tmp_path / "lost.parquet"), *whole), len(table))
    with pytest.raises(SourceError, match=r"lost\.parquet is gone"):
        audited(lambda: events, facts, lambda: causes, protocol="open-protocol", files=lost)


def test_transactions_of_files_are_those_of_events(
    classic: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a transaction come together, from whichever file; the log reports it itself where it was
    decoded by Spark.
    """
    log = _materialised(classic, tmp_path, LOGS[3])
    assert log.files is not None
    assert log.sampled(Sample(partitions=frozenset({0}))).files is None
    assert log.counts is not None
    with monkeypatch.context() as patched:
        largest = max(Counter(log.events.where("kind = 'row'").toArrow()["commit_ts"].to_pylist()).values())
        assert 1 < largest < log.counts.events // 2
        patched.setattr(stored, "PACKED_OF_A_KEY", largest - 1)
        assert not log.files.may_be_packed("commit_ts"), "one task would have to hold a transaction that is too large"
        patched.setattr(stored, "PACKED_OF_A_KEY", 2 * largest)  # others may be counted with it
        assert log.files.may_be_packed("commit_ts"), "however many there are"

    def restored(stored: StoredEvents | None) -> list[str]:
        found = of_restored(
            log.events, lambda whole: whole, restoring.TRANSACTIONS, places=known_places(log.facts, lambda: log.events),
            files=stored,
        )  # fmt: skip
        return sorted(map(repr, found.toArrow().to_pylist()))

    asked = _counting(monkeypatch)
    from_files = restored(log.files)
    assert len(asked) == 1, "Spark's own reader gives the same rows"
    assert from_files == restored(None) and len(from_files) > 100
    of_transactions(log)
    assert len(asked) == 2
    log._files[0].unlink()
    with pytest.raises(SourceError, match=r"is not as it was left: .* is gone"):
        of_transactions(log)


def _counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One more each time that files are read by workers."""
    asked, rows = [], StoredEvents.rows
    monkeypatch.setattr(StoredEvents, "rows", lambda *given: asked.append(1) or rows(*given))
    return asked


def test_load_of_files_is_that_of_events(
    classic: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over time, by partition and by table, and what no watermark has resolved."""
    log = _materialised(classic, tmp_path, LOGS[1])
    assert log.files is not None
    asked = _counting(monkeypatch)
    found, expected = of_load(log), of_load(replace(log, _files=()))
    assert len(asked) == 1
    assert found.keys() == expected.keys()
    for name, frame in found.items():
        pd.testing.assert_frame_equal(frame, expected[name])
    assert len(found["load"]) > 10
