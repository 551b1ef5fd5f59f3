"""A log replayed into DuckDB is what the log shows, at every commit, however often the run is interrupted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import job_types
import odd_keys
import pytest
from pyspark.sql import SparkSession
from replays import BANK_TOTAL, contents, decoded, duckdb_of, into_duckdb, total

from ticdc_lab.consumer import compare, replay
from ticdc_lab.consumer.replay import plan_of, run
from ticdc_lab.consumer.replay_plan import Batch
from ticdc_lab.consumer.sinks import KEY
from ticdc_lab.consumer.sinks.duckdb import has_column
from ticdc_lab.errors import IncompleteHistoryError, SourceError

OPEN, CANAL = "messages_open-protocol_small.jsonl.gz", "messages_canal-json-tidb_small.jsonl.gz"
SIMPLE, BANK = "messages_simple_small.jsonl.gz", "messages_canal-json-tidb_bank.jsonl.gz"


@pytest.fixture(scope="module")
def small(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small log in a DuckDB file."""
    path = tmp_path_factory.mktemp("small") / "small.db"
    into_duckdb(decoded(spark, OPEN), path)
    return path


def test_every_table_is_what_the_log_says(spark: SparkSession, small: Path) -> None:
    """Through renames, truncation, and added, dropped, modified columns; a zero date is reported as NULL here."""
    log, known = decoded(spark, OPEN)
    sink = duckdb_of(log, small)
    progress = sink.progress()
    assert progress is not None
    found = {c.table: c for c in compare(log, sink, progress, known=known)}
    assert {t: (c.different, c.why_not) for t, c in found.items()} == dict.fromkeys(
        ["Fin_Ops.Customers", "Fin_Ops.Ledger", "Fin_Ops.nopk", "shop.orders", "shop.parted"], (0, "")
    )
    assert found["shop.orders"].rows == 108
    assert any("0000-00-00" in said for _, table, said in sink.notes() if table == "Fin_Ops.nopk")
    sink.close()


def test_every_type_of_ddl_job_is_followed_or_noted(spark: SparkSession, tmp_path: Path) -> None:
    """The torture log's 36 types, each with rows before and after it."""
    log = job_types.log(spark, tmp_path)
    sink = duckdb_of(log, tmp_path / "types.db")
    job_types.check(log, sink)
    sink.close()


def test_a_row_that_other_hands_changed_is_found(spark: SparkSession, small: Path, tmp_path: Path) -> None:
    """The comparison can fail: a changed value, a missing row, one too many, a copy too many without a key."""
    log, known = decoded(spark, OPEN)
    path = tmp_path / "changed.db"
    path.write_bytes(small.read_bytes())
    sink = duckdb_of(log, path)
    (first,) = sink.db.execute("SELECT min(id) FROM shop.parted").fetchall()[0]
    sink.db.execute("UPDATE shop.parted SET v = 'other' WHERE id = ?", [first])
    sink.db.execute("DELETE FROM Fin_Ops.Customers WHERE id = (SELECT min(id) FROM Fin_Ops.Customers)")
    sink.db.execute("INSERT INTO shop.orders (user_id, seq) VALUES (-1, -1)")
    sink.db.execute("INSERT INTO Fin_Ops.nopk SELECT * FROM Fin_Ops.nopk WHERE a IS NOT NULL ORDER BY ALL LIMIT 1")
    sink.db.execute("DROP TABLE Fin_Ops.Ledger; CREATE TABLE shop.strange (a INTEGER)")
    progress = sink.progress()
    assert progress is not None
    found = {c.table: c for c in compare(log, sink, progress, known=known)}
    assert {t: c.different for t, c in found.items()} == dict.fromkeys(
        ["Fin_Ops.Customers", "Fin_Ops.Ledger", "Fin_Ops.nopk", "shop.orders", "shop.parted", "shop.strange"], 1
    )
    (changed,) = found["shop.parted"].first
    assert (changed.row, changed.columns) == (f'{{"id":{first}}}', ("v",))
    assert '"v":"other"' in (changed.found or "") and '"v":"other"' not in (changed.expected or "")
    assert found["Fin_Ops.Customers"].first[0].found is None
    assert found["shop.orders"].first[0].expected is None
    assert found["Fin_Ops.nopk"].first[0].found != found["Fin_Ops.nopk"].first[0].expected
    with pytest.raises(SourceError, match=r"is missing the tables \['Fin_Ops.Ledger'\]"):
        replay(log, sink, known=known)
    sink.close()


@pytest.mark.parametrize(
    "name",
    [
        "messages_open-protocol_small-dup-restart.jsonl.gz",
        CANAL,
        SIMPLE,
        *(
            pytest.param(f"messages_open-protocol_small-dup-{kind}.jsonl.gz", marks=pytest.mark.soak)  # as `restart`
            for kind in ("table", "ddl")
        ),
    ],
)
def test_protocols_and_duplicates_change_nothing(spark: SparkSession, small: Path, tmp_path: Path, name: str) -> None:
    """The same changes in another protocol, or delivered again, give the same rows."""
    into_duckdb(decoded(spark, name), tmp_path / "other.db")
    mine, other = contents(small), contents(tmp_path / "other.db")
    assert {t: rows for t, rows in mine.items() if "_ticdc_lab" not in t} == {
        t: rows for t, rows in other.items() if "_ticdc_lab" not in t
    }


def totals(spark: SparkSession, path: Path, **how: Any) -> tuple[list[int], int]:
    """The bank's total after each commit, and the commits."""
    log, known = decoded(spark, BANK)
    sink, seen = duckdb_of(log, path), list[int]()

    def said(batch: Batch, changes: int) -> None:
        seen.append(total(sink.db))

    done = replay(log, sink, known=known, said=said, **how)
    sink.close()
    return seen, done.commits


def test_transaction_mode_never_shows_a_state_that_was_not(spark: SparkSession, tmp_path: Path) -> None:
    """The bank's total is right at every commit once the accounts are there, in batches of any size."""
    seen, commits = totals(spark, tmp_path / "bank.db", rows_a_batch=1_500)
    loaded = seen.index(BANK_TOTAL)
    assert commits > 30 and set(seen[loaded:]) == {BANK_TOTAL} and loaded < len(seen) // 2


@pytest.mark.soak
def test_row_mode_shows_torn_transactions_on_its_way(spark: SparkSession, tmp_path: Path) -> None:
    """Partitions that go their own way break the total. Where each key has one partition, the end is right.

    ``accounts_4`` is dispatched by ts, ``accounts_5`` by a column that changes: versions of one of their rows lie
    in several partitions, and an old one may come last (MQ design, 行内有序性).
    """
    seen, _ = totals(spark, tmp_path / "rows.db", rows_a_batch=5_000, mode="row")
    assert len(set(seen[len(seen) // 2 :])) > 2
    into_duckdb(decoded(spark, BANK), tmp_path / "whole.db")
    rows, whole = contents(tmp_path / "rows.db"), contents(tmp_path / "whole.db")
    differ = {t for t in rows if rows[t] != whole[t]}
    assert differ == {"_ticdc_lab.progress", "bank2.accounts_4", "bank2.accounts_5"}


@pytest.mark.soak
def test_a_comparison_after_row_mode_says_what_was_overtaken(spark: SparkSession, tmp_path: Path) -> None:
    """Also where partitions are at different commit_ts: each counts as far as it was applied."""
    log, known = decoded(spark, BANK)
    lowest = min(known.facts.resolved)
    held = known.facts.resolved[lowest] - (1 << 28)  # type: ignore[operator]
    behind = replace(known, facts=replace(known.facts, resolved={**known.facts.resolved, lowest: held}))
    sink = duckdb_of(log, tmp_path / "behind.db")
    done = replay(log, sink, known=behind, mode="row", rows_a_batch=10_000)
    reached = set(done.progress.positions.values())
    assert len(reached) == 2 and min(reached) == held
    found = {c.table for c in compare(log, sink, done.progress, known=behind) if c.different or c.why_not}
    sink.close()
    assert found == {"bank2.accounts_4", "bank2.accounts_5"}


def test_until_stops_at_a_consistent_moment_and_goes_on(spark: SparkSession, small: Path, tmp_path: Path) -> None:
    """What is there at ``until`` is the table then; going on from there ends where one run ends."""
    log, known = decoded(spark, OPEN)
    ts = 470603993712427008  # a MODIFY COLUMN: its own DDL counts
    path = tmp_path / "until.db"
    done = into_duckdb((log, known), path, until=ts)
    assert (done.progress.ts, done.progress.ddl_ts) == (ts, ts)
    sink = duckdb_of(log, path)
    found = list(compare(log, sink, done.progress, known=known))
    assert [c.table for c in found if c.different or c.why_not] == [] and "shop.audit" in {c.table for c in found}
    sink.close()
    into_duckdb((log, known), path)
    assert contents(path) == contents(small)


def test_what_is_not_resolved_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Above resolved_ts a change may still be missing."""
    log, known = decoded(spark, OPEN)
    with pytest.raises(IncompleteHistoryError, match="complete only up to resolved_ts"):
        into_duckdb((log, known), tmp_path / "x.db", until=known.facts.resolved_ts + 1)  # type: ignore[operator]


def test_a_target_of_another_log_or_mode_or_beyond_is_refused(spark: SparkSession, small: Path) -> None:
    """Nothing is written over what another replay has begun."""
    before = contents(small)
    with pytest.raises(SourceError, match="contains another log"):
        into_duckdb(decoded(spark, CANAL), small)
    with pytest.raises(SourceError, match="begun in transaction mode; expected the same, found row"):
        into_duckdb(decoded(spark, OPEN), small, mode="row")
    with pytest.raises(SourceError, match="a target does not go back"):
        into_duckdb(decoded(spark, OPEN), small, until=470603993712427008)
    assert contents(small) == before


def test_a_batch_that_fails_leaves_nothing_behind(spark: SparkSession, small: Path, tmp_path: Path) -> None:
    """Rows, DDL and progress are one transaction: whichever statement fails, the target is as before the batch."""
    log, known = decoded(spark, OPEN)
    plan = plan_of(log, known, mode="transaction", until=None, rows_a_batch=200)
    path = tmp_path / "failing.db"
    failures = 0
    for at in [3, 9, 14, 31, 47, 22, 60, 41, 12, 55, 75, 38, 19, 66, 90]:
        sink = duckdb_of(log, path)
        db, sink.db = sink.db, _Failing(sink.db, at)  # type: ignore[assignment]
        try:
            run(plan, sink)
        except _Planted:
            failures += 1
        db.close()
    assert failures >= 12
    into_duckdb((log, known), path)
    assert contents(path) == contents(small)


class _Planted(Exception):
    pass


class _Failing:
    """A connection whose statement number ``at`` fails."""

    def __init__(self, db: duckdb.DuckDBPyConnection, at: int) -> None:
        self.db, self.left = db, at

    def execute(self, *args: Any) -> Any:
        self.left -= args[0] not in ("COMMIT", "ROLLBACK")
        if self.left == 0:
            raise _Planted
        return self.db.execute(*args)

    def executemany(self, *args: Any) -> Any:
        return self.db.executemany(*args)


@pytest.mark.parametrize("step", [None, 2])
def test_keys_that_the_target_cannot_hold_stay_apart(spark: SparkSession, tmp_path: Path, step: int | None) -> None:
    """Of keys that become NULL or equal here each stays one row: updates find it, deletes take it, in any batches."""
    messages, left = odd_keys.written(("moments", "days", "marks", "named", "floats"))
    log = odd_keys.decoded(spark, tmp_path, messages)
    sink = duckdb_of(log, tmp_path / "t.db")

    def rows(name: str) -> list[tuple[int, str]]:
        return sink.db.execute(f"SELECT n, v FROM s.{name}").fetchall()

    odd_keys.check(log, sink, range(6, len(messages), step) if step else [], rows, left)


def test_a_row_that_came_twice_under_an_odd_key_is_found(spark: SparkSession, tmp_path: Path) -> None:
    """The comparison counts such rows: the same content twice is one too many."""
    messages, _ = odd_keys.written(["moments"])
    log = odd_keys.decoded(spark, tmp_path, messages)
    sink = duckdb_of(log, tmp_path / "t.db")
    progress = replay(log, sink).progress
    sink.db.execute("INSERT INTO s.moments SELECT * FROM s.moments WHERE v = 'y'")
    (found,) = compare(log, sink, progress)
    assert found.different == 1 and (found.first[0].expected, found.first[0].found) == ("1 copies", "2 copies")
    sink.close()


def test_an_odd_key_is_found_under_a_type_that_prints_more(spark: SparkSession, tmp_path: Path) -> None:
    """A DDL has made its DATETIME more precise since."""
    messages = odd_keys.written(["moments"])[0][:2]
    alter = "ALTER TABLE moments MODIFY d DATETIME(3) NOT NULL"
    messages.append(odd_keys.message(2, 3, table="moments", isDdl=True, type="ALTER", sql=alter))
    messages.append(odd_keys.changed(3, "moments", "UPDATE", f"{odd_keys.ZERO}.000", 1, "new"))
    log = odd_keys.decoded(spark, tmp_path, [*messages, odd_keys.message(4, 9, type="TIDB_WATERMARK")])
    sink = duckdb_of(log, tmp_path / "t.db")
    replay(log, sink)
    assert sink.db.execute("SELECT n, v FROM s.moments").fetchall() == [(1, "new")]
    sink.close()


def test_another_key_under_odd_rows_is_said(spark: SparkSession, tmp_path: Path) -> None:
    """Their texts are the ones of the old one; a table without a key keeps none."""
    alter = "ALTER TABLE moments DROP PRIMARY KEY, ADD COLUMN w INT"
    messages = odd_keys.written(["moments"])[0][:2]
    messages.append(odd_keys.message(2, 5, table="moments", isDdl=True, type="ALTER", sql=alter))
    log = odd_keys.decoded(spark, tmp_path, [*messages, odd_keys.message(3, 9, type="TIDB_WATERMARK")])
    sink = duckdb_of(log, tmp_path / "t.db")
    notes = [said for *_, said in replay(log, sink).notes]
    assert any("later changes miss the rows" in said and said.endswith("can represent: 1") for said in notes), notes
    assert not has_column(sink.db, ("s", "moments"), KEY)
    sink.close()


def test_a_rename_onto_a_name_that_is_taken_is_refused_in_our_words(spark: SparkSession, tmp_path: Path) -> None:
    """All before it is applied, and the target stays where it is."""
    created = "CREATE TABLE {} (id INT PRIMARY KEY)"
    log = odd_keys.decoded(spark, tmp_path, [
        odd_keys.message(0, 1, isDdl=True, sql=created.format("k")),
        odd_keys.message(1, 2, isDdl=True, sql=created.format("l")),
        odd_keys.message(2, 5, isDdl=True, sql="RENAME TABLE l TO k"), odd_keys.message(3, 9, type="TIDB_WATERMARK"),
    ])  # fmt: skip
    sink = duckdb_of(log, tmp_path / "t.db")
    with pytest.raises(IncompleteHistoryError, match=r"renames a table to s\.k, a name that another table has") as told:
        replay(log, sink)
    assert f"--until {odd_keys.TS + 4}" in str(told.value.hint)
    progress = sink.progress()
    assert progress is not None and progress.ddl_ts == odd_keys.TS + 2
    sink.close()


def test_a_rename_of_a_table_that_was_dropped_says_that_first(spark: SparkSession, tmp_path: Path) -> None:
    """Later rows of the new name made it a name in use, which shows less."""
    row = {"type": "INSERT", "pkNames": ["id"], "mysqlType": {"id": "int"}, "sqlType": {"id": 4}}
    log = odd_keys.decoded(spark, tmp_path, [
        odd_keys.message(0, 1, isDdl=True, sql="CREATE TABLE k (id INT PRIMARY KEY)"),
        odd_keys.message(1, 2, isDdl=True, sql="DROP TABLE k"),
        odd_keys.message(2, 3, isDdl=True, sql="RENAME TABLE k TO l"),
        odd_keys.message(3, 4, data=[{"id": "1"}], table="l", **row), odd_keys.message(4, 9, type="TIDB_WATERMARK"),
    ])  # fmt: skip
    sink = duckdb_of(log, tmp_path / "t.db")
    with pytest.raises(IncompleteHistoryError, match=r"it names s\.k, which was dropped, by the DDL of commit_ts"):
        replay(log, sink)
    sink.close()


@pytest.mark.parametrize("query", ["FLASHBACK TABLE k TO m", "RECOVER TABLE k", "FLASHBACK DATABASE s"])
def test_a_table_that_comes_back_is_followed(spark: SparkSession, tmp_path: Path, query: str) -> None:
    """Under its name or another one; the log does not have its rows again, so it is not compared."""
    log, table = odd_keys.that_comes_back(spark, tmp_path, query)
    sink = duckdb_of(log, tmp_path / "t.db")
    told = replay(log, sink)
    assert any("the rows of a recovered table are not in the log again" in said for *_, said in told.notes)
    assert (2,) in sink.db.execute(f"SELECT id FROM s.{table}").fetchall()
    sink.close()


def test_rows_before_the_ddl_that_creates_their_table_are_named(spark: SparkSession, tmp_path: Path) -> None:
    """No other DDL gave the name to their table: the rows did."""
    log = odd_keys.decoded(spark, tmp_path, [
        odd_keys.message(0, 1, type="INSERT", pkNames=["id"], data=[{"id": "1"}], mysqlType={"id": "int"},
                         sqlType={"id": 4}),
        odd_keys.message(1, 2, isDdl=True, sql="CREATE TABLE k (id INT PRIMARY KEY)"),
        odd_keys.message(2, 9, type="TIDB_WATERMARK"),
    ])  # fmt: skip
    sink = duckdb_of(log, tmp_path / "t.db")
    with pytest.raises(IncompleteHistoryError, match=r"a name that another table has, as rows before it show\. TiDB"):
        replay(log, sink)
    sink.close()
