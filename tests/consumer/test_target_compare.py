"""Two targets beside each other: equal whatever the order, and each difference is counted and shown."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner
from conftest import golden
from pyspark.sql import SparkSession

from ticdc_lab.answers.compared import are_equal, targets
from ticdc_lab.cli import main
from ticdc_lab.consumer import compare_targets
from ticdc_lab.errors import SourceError

SMALL = str(golden("messages_canal-json-tidb_small.jsonl.gz"))


def target(path: Path, *statements: str) -> str:
    """A database file with a table of two equal rows and one more, and how far it is."""
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE SCHEMA shop; CREATE SCHEMA _ticdc_lab")
        db.execute("CREATE TABLE shop.orders AS SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (2, 'b')) t(id, name)")
        db.execute("CREATE TABLE _ticdc_lab.progress AS SELECT 470603993791332352 AS applied_ts")
        for statement in statements:
            db.execute(statement)
    return f"duckdb:///{path}"


def test_the_order_of_rows_does_not_count(tmp_path: Path) -> None:
    """The same rows, as often."""
    here = target(tmp_path / "a.db")
    again = "DELETE FROM shop.orders; INSERT INTO shop.orders VALUES (2, 'b'), (1, 'a'), (2, 'b')"
    answer = targets(compare_targets(here, target(tmp_path / "b.db", again)))
    assert are_equal(answer) and answer.finding == "Both targets hold the same 3 rows of 1 table."
    assert answer.limits == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("UPDATE shop.orders SET name = 'z' WHERE id = 1", "1 row only in this one, 1 row only in the other; 2 rows"),
        ("DELETE FROM shop.orders WHERE rowid = 2", "1 row only in this one; 2 rows"),
        ("INSERT INTO shop.orders VALUES (1, 'a')", "1 row only in the other; 3 rows"),
        ("ALTER TABLE shop.orders ADD COLUMN more INT", "shop.orders has more in one alone; 3 rows"),
        ("CREATE TABLE shop.items AS SELECT 7 AS id", "1 row only in the other; 3 rows"),
        ("DROP TABLE shop.orders", "3 rows only in this one; 0 rows"),
    ],
)
def test_a_planted_difference_is_found(tmp_path: Path, fault: str, words: str) -> None:
    """A value, a copy, a column, a table: in words, and the rows themselves."""
    found = compare_targets(target(tmp_path / "a.db"), target(tmp_path / "b.db", fault))
    answer = targets(found)
    assert not are_equal(answer) and words in answer.finding
    if "UPDATE" in fault:
        assert found.rows.to_dict("records") == [
            {"table": "shop.orders", "in": "here", "row": '{"id":1,"name":"a"}'},
            {"table": "shop.orders", "in": "there", "row": '{"id":1,"name":"z"}'},
        ]


def test_targets_at_two_moments_are_said(tmp_path: Path) -> None:
    """What lies between them may differ."""
    later = "UPDATE _ticdc_lab.progress SET applied_ts = applied_ts + (1000 << 18)"
    answer = targets(compare_targets(target(tmp_path / "a.db"), target(tmp_path / "b.db", later)))
    assert are_equal(answer)
    assert "21:56:08.308 UTC), the other up to" in answer.limits[0] and "21:56:09.308 UTC)" in answer.limits[0]


def test_what_is_no_target_is_refused(tmp_path: Path) -> None:
    """In words: nothing there, no database, a log beside a target, Delta without Spark."""
    here = target(tmp_path / "a.db")
    (tmp_path / "text.db").write_text("no database at all " * 100)
    for other, words in (
        (f"duckdb:///{tmp_path}/none.db", "does not exist"), (f"duckdb:///{tmp_path}/text.db", "cannot be opened"),
        ("mysql://me:secret@host:1", "no target that can be compared"), (f"delta:{tmp_path}", "Spark"),
    ):  # fmt: skip
        with pytest.raises(SourceError, match=words) as refused:
            compare_targets(here, other)
        assert "secret" not in str(refused.value)
    said = CliRunner().invoke(main, ["compare", SMALL, here])
    assert said.exit_code == 2 and "is a target, no log" in said.output


def test_two_consumers_of_one_log_end_alike(spark: SparkSession, tmp_path: Path) -> None:
    """In batches of other sizes; one in row mode ends otherwise, as rows of this log move between partitions."""
    ways = {"a": ["--rows-a-batch", "50"], "b": [], "row": ["--mode", "row"]}
    for name, how in ways.items():
        sink = f"duckdb:///{tmp_path}/{name}.db"
        done = CliRunner().invoke(main, ["consume", SMALL, "--sink", sink, "--no-check", *how], obj=spark)
        assert done.exit_code == 0, done.output
    asked = ["compare", f"duckdb:///{tmp_path}/a.db"]
    said = CliRunner().invoke(main, [*asked, f"duckdb:///{tmp_path}/b.db"])
    assert (said.exit_code, said.stdout.splitlines()[0]) == (0, "Both targets hold the same 399 rows of 5 tables.")
    told = CliRunner().invoke(main, [*asked, f"duckdb:///{tmp_path}/row.db", "--json"])
    assert told.exit_code == 1
    assert {t["table"]: t["only there"] for t in json.loads(told.stdout)["tables"] if t["only there"]} == {
        "shop.parted": 8
    }


@pytest.mark.soak
def test_folders_of_delta_are_compared_too(classic: SparkSession, tmp_path: Path) -> None:
    """In the versions that belong together; a table that a replay never saw is not looked at."""
    for name in ("a", "b"):
        given = ["consume", SMALL, "--sink", f"delta:{tmp_path}/{name}", "--no-check"]
        done = CliRunner().invoke(main, given, obj=classic)
        assert done.exit_code == 0, done.output
    folders = [f"delta:{tmp_path}/{name}" for name in ("a", "b")]
    assert are_equal(targets(compare_targets(*folders, spark=classic)))
    (orders,) = [p for p in (tmp_path / "b").iterdir() if p.name.startswith("shop.orders")]
    classic.sql(f"DELETE FROM delta.`{orders}` WHERE id = (SELECT min(id) FROM delta.`{orders}`)")
    assert are_equal(targets(compare_targets(*folders, spark=classic))), "ahead of what the target states"
