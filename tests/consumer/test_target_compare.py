"""Two targets beside each other: equal with any order, and each difference is counted and shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import mariadb
import pytest
from click.testing import CliRunner
from conftest import golden
from pyspark.sql import SparkSession

from ticdc_lab.answers.compared import are_equal, targets
from ticdc_lab.cli import main
from ticdc_lab.consumer import compare_targets
from ticdc_lab.consumer.replay_plan import TargetProgress
from ticdc_lab.consumer.sinks.delta import TableFolder, TargetState, write_state
from ticdc_lab.consumer.sinks.mysql_connection import PASSWORD
from ticdc_lab.engine.delta_log import KnownFiles
from ticdc_lab.errors import SourceError

SMALL = str(golden("messages_canal-json-tidb_small.jsonl.gz"))
OPEN = str(golden("messages_open-protocol_small.jsonl.gz"))


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
    assert are_equal(answer) and answer.finding == "Both targets have the same 3 rows of 1 table."
    assert answer.limits == []
    kept = "ALTER TABLE shop.orders ADD COLUMN _ticdc_lab_key VARCHAR"  # not of the log: texts of odd keys
    assert are_equal(targets(compare_targets(here, target(tmp_path / "c.db", kept))))


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
        (f"duckdb:///{tmp_path}/none.db", "does not exist"),
        (f"duckdb:///{tmp_path}/text.db", "expected a DuckDB database"),
        ("mysql://me:secret@host:1", "contains a password"),
        ("mysql://me:secret@host:99999", "a port from 1 to 65535"), ("mysql://me@host:0", "a port from 1 to 65535"),
        ("mysql://me:secret@[host", "a port from 1 to 65535"),
        ("postgres://me:secret@host", "no target that can be"), (f"delta:{tmp_path}", "Spark"),
    ):  # fmt: skip
        with pytest.raises(SourceError, match=words) as refused:
            compare_targets(here, other)
        assert "secret" not in str(refused.value)
    said = CliRunner().invoke(main, ["compare", SMALL, here])
    assert said.exit_code == 2 and "is a target, no log" in said.output


def test_two_consumers_of_one_log_end_alike(spark: SparkSession, tmp_path: Path) -> None:
    """In batches of other sizes; one in row mode ends otherwise, as rows of this log move between partitions."""
    ways = {"a": ["--rows-a-batch", "300"], "b": [], "row": ["--mode", "row"]}
    for name, how in ways.items():
        sink = f"duckdb:///{tmp_path}/{name}.db"
        done = CliRunner().invoke(main, ["consume", SMALL, "--sink", sink, "--no-check", *how], obj=spark)
        assert done.exit_code == 0, done.output
    asked = ["compare", f"duckdb:///{tmp_path}/a.db"]
    said = CliRunner().invoke(main, [*asked, f"duckdb:///{tmp_path}/b.db"])
    assert (said.exit_code, said.stdout.splitlines()[0]) == (0, "Both targets have the same 399 rows of 5 tables.")
    told = CliRunner().invoke(main, [*asked, f"duckdb:///{tmp_path}/row.db", "--json"])
    assert told.exit_code == 1
    assert {t["table"]: t["only there"] for t in json.loads(told.stdout)["tables"] if t["only there"]} == {
        "shop.parted": 8
    }


@pytest.fixture
def lake(classic: SparkSession, tmp_path: Path) -> Lake:
    """Folders of Delta in a folder of the test."""
    return Lake(classic, tmp_path)


@dataclass
class Lake:
    """Writes folders as a replay leaves them: the table, and ``_state``, which names its version."""

    spark: SparkSession
    folder: Path

    def __call__(self, name: str, *batches: str) -> str:
        """A folder whose table had these rows written, one commit each."""
        place = f"{self.folder}/{name}"
        for rows in batches:
            frame = self.spark.sql(f"SELECT * FROM VALUES {rows} t(id, name)").coalesce(1)
            frame.write.format("delta").mode("append").save(f"{place}/orders")
        self.says(name, len(batches) - 1)
        return f"delta:{place}"

    def says(self, name: str, version: int) -> None:
        """Write ``_state``."""
        progress = TargetProgress("transaction", "of a test", {("topic", 0): 470603993791332352}, 0)
        state = TargetState(progress, {("shop", "orders"): TableFolder("orders", version)})
        write_state(self.spark, f"{self.folder}/{name}", state, KnownFiles(), None)


def test_folders_of_delta_are_compared_too(lake: Lake, tmp_path: Path) -> None:
    """In the versions that belong together, with any order and the files; with a database as well."""
    here, there = lake("a", "(1, 'a'), (2, 'b'), (2, 'b')"), lake("b", "(2, 'b')", "(2, 'b'), (1, 'a')")
    lake.spark.sql(f"DELETE FROM delta.`{tmp_path}/b/orders` WHERE id = 1")  # ahead of what the target states
    answer = targets(compare_targets(here, there, spark=lake.spark))
    assert answer.finding == "Both targets have the same 3 rows of 1 table." and not answer.limits
    lake.says("b", 2)
    found = compare_targets(target(tmp_path / "a.db"), there, spark=lake.spark)
    assert found.rows.to_dict("records") == [{"table": "shop.orders", "in": "here", "row": '{"id":1,"name":"a"}'}]
    (tmp_path / "c").mkdir()
    with pytest.raises(SourceError, match="contains no replay"):
        compare_targets(here, f"delta:{tmp_path}/c", spark=lake.spark)


@pytest.mark.soak  # a commit of Delta for each range and table takes minutes
def test_one_log_is_the_same_in_delta_and_in_duckdb(classic: SparkSession, tmp_path: Path) -> None:
    """All tables of a log with DDL, by two sinks; a deleted row is found."""
    sinks = [f"delta:{tmp_path}/lake", f"duckdb:///{tmp_path}/a.db"]
    for sink in sinks:
        done = CliRunner().invoke(main, ["consume", SMALL, "--sink", sink, "--no-check"], obj=classic)
        assert done.exit_code == 0, done.output
    answer = targets(compare_targets(*sinks, spark=classic))
    assert answer.finding == "Both targets have the same 399 rows of 5 tables."
    with duckdb.connect(f"{tmp_path}/a.db") as db:
        db.execute("DELETE FROM shop.orders WHERE rowid = (SELECT min(rowid) FROM shop.orders)")
    assert not are_equal(targets(compare_targets(*sinks, spark=classic)))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[mariadb.Server]]:
    """Two of this module's own."""
    folder = tmp_path_factory.mktemp("servers")
    with mariadb.lent(folder / "a") as a, mariadb.lent(folder / "b") as b:
        yield [a, b]


def test_servers_are_compared_too(
    spark: SparkSession, servers: list[mariadb.Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole logs by consumers of other batches; a value, even one that DuckDB has none for, and a copy are found."""
    monkeypatch.setenv(PASSWORD, mariadb.PASSWORD)
    sinks = [*[server.url for server in servers], f"duckdb:///{tmp_path}/a.db"]
    refused = CliRunner().invoke(main, ["compare", *sinks[:2]])
    assert refused.exit_code == 2 and "contains no replay" in refused.output
    for sink, rows in zip(sinks, ("300", "1000", "1000"), strict=True):
        given = ["consume", OPEN, "--sink", sink, "--no-check", "--rows-a-batch", rows]
        done = CliRunner().invoke(main, given, obj=spark)
        assert done.exit_code == 0, done.output
    same = "Both targets have the same 399 rows of 5 tables."
    said = CliRunner().invoke(main, ["compare", *sinks[:2]])
    assert (said.exit_code, said.stdout.splitlines()[0]) == (0, same), said.output
    here, there = map(json.loads, compare_targets(sinks[0], sinks[2]).rows["row"])
    assert here | {"amt": None} == there, "DuckDB notes that it cannot tell what TiDB made of a modified column's value"
    servers[1].ask("ALTER TABLE Fin_Ops.nopk ADD COLUMN v INT AS (length(b)) VIRTUAL")  # no log carries it
    assert not compare_targets(*sinks[:2]).tables["columns of one alone"].any()
    servers[1].ask("ALTER TABLE Fin_Ops.nopk DROP COLUMN v")
    for fault, here, there in (
        ("UPDATE shop.orders SET coupon = 'other' WHERE user_id = 0 AND seq = 1148", 1, 1),
        ("UPDATE Fin_Ops.nopk SET c = NULL WHERE c = '0000-00-00' LIMIT 1", 2, 2),
        ("INSERT INTO Fin_Ops.nopk SELECT * FROM Fin_Ops.nopk LIMIT 1", 2, 3),
    ):
        servers[1].ask(fault)
        tables = compare_targets(*sinks[:2]).tables
        assert [int(tables[side].sum()) for side in ("only here", "only there")] == [here, there]
