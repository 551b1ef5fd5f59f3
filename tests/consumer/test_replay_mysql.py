"""A log replayed into a real MariaDB server is what the log shows, however often the consumer is killed."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import job_types
import mariadb
import odd_keys
import pytest
from pyspark.sql import SparkSession
from replays import decoded

from ticdc_lab.consumer import compare, open_sink, replay
from ticdc_lab.consumer.replay import files_of, plan_of
from ticdc_lab.consumer.sinks.mysql import literal_of, statement, why_not_run
from ticdc_lab.consumer.sinks.mysql_connection import PASSWORD, address_of
from ticdc_lab.errors import SourceError
from ticdc_lab.errors.redaction import redacted
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import ColumnDef

OPEN = "messages_open-protocol_small.jsonl.gz"


@pytest.fixture(scope="module")
def whole_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mariadb.Server]:
    """The one server of this module."""
    with mariadb.lent(tmp_path_factory.mktemp("mariadb")) as lent:
        yield lent


@pytest.fixture
def server(whole_server: mariadb.Server, monkeypatch: pytest.MonkeyPatch) -> mariadb.Server:
    """The server, empty, with its password where the consumer looks for it."""
    whole_server.clear()
    monkeypatch.setenv(PASSWORD, mariadb.PASSWORD)
    return whole_server


def contents(server: mariadb.Server) -> dict[str, list[str]]:
    """The rows of all tables as sorted texts."""
    names = server.ask(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema NOT IN "
        "('mysql', 'information_schema', 'performance_schema', 'sys') AND table_name <> 'notes' ORDER BY 1, 2"
    )
    return {f"{s}.{t}": sorted(map(repr, server.ask(f"SELECT * FROM `{s}`.`{t}`"))) for s, t in names}


def test_every_table_is_what_the_log_says_with_its_keys(spark: SparkSession, server: mariadb.Server) -> None:
    """The log's own DDL made the tables: keys, partitions and zero dates are there, which DuckDB cannot hold."""
    log, known = decoded(spark, OPEN)
    sink = open_sink(server.url, log)
    done = replay(log, sink, known=known)
    found = list(compare(log, sink, done.progress, known=known))
    sink.close()
    assert [(c.table, c.different, c.why_not) for c in found] == [
        (f"{s}.{t}", 0, "") for s, t in [("Fin_Ops", "Customers"), ("Fin_Ops", "Ledger"), ("Fin_Ops", "nopk"),
                                         ("shop", "orders"), ("shop", "parted")]
    ]  # fmt: skip
    assert server.ask("SELECT count(*) FROM Fin_Ops.nopk WHERE c = '0000-00-00'") == [(4,)]
    partitions = "SELECT count(*) FROM information_schema.partitions WHERE table_name = 'parted'"
    assert server.ask(partitions) == [(3,)]
    assert {name for (_, _, name, *_) in server.ask("SHOW INDEX FROM Fin_Ops.Ledger")} == {"PRIMARY", "u_ref", "i_acct"}


def test_a_database_that_is_there_without_tables_becomes_the_logs(spark: SparkSession, server: mariadb.Server) -> None:
    """Who may create none is given one; its character set would refuse rows of tables that name none."""
    server.ask("CREATE DATABASE shop CHARACTER SET latin1")
    log, known = decoded(spark, OPEN)
    with closing(open_sink(server.url, log)) as sink:
        done = replay(log, sink, known=known)
        assert not any(c.different for c in compare(log, sink, done.progress, known=known))
    assert [said for _, table, said in done.notes if table == "shop" and "there already" in said]


def test_a_database_with_tables_is_never_taken_for_the_logs(spark: SparkSession, server: mariadb.Server) -> None:
    """Nor is the one in which the replay keeps its own state; both are named."""
    log, known = decoded(spark, OPEN)
    its_own = pytest.raises(SourceError, match="keeps the state of the replay in shop, which the log has tables in")
    with closing(open_sink(f"{server.url}/shop", log)) as sink, its_own:
        replay(log, sink, known=known)
    server.clear()
    server.ask("CREATE DATABASE shop")
    server.ask("CREATE TABLE shop.orders (a INT)")
    with closing(open_sink(server.url, log)) as sink, pytest.raises(SourceError, match="with 1 table: orders") as found:
        replay(log, sink, known=known)
    assert "DROP DATABASE `shop`" in found.value.hint and server.ask("SELECT count(*) FROM shop.orders") == [(0,)]


@pytest.mark.parametrize(("rights", "read_only", "said", "do"), [
    ("SELECT ON *.*", 0, "Access denied", "GRANT ALL"),
    ("SELECT, CREATE, DROP, ALTER, INSERT, UPDATE, DELETE, INDEX ON *.*", 1, "--read-only", "SET GLOBAL read_only = 0"),
])  # fmt: skip
def test_what_a_server_refuses_for_its_own_sake_is_said_with_what_to_do(
    spark: SparkSession, server: mariadb.Server, rights: str, read_only: int, said: str, do: str
) -> None:
    """Before anything is written; the same command resumes afterwards."""
    log, known = decoded(spark, OPEN)
    server.ask(f"CREATE OR REPLACE USER few@'%' IDENTIFIED BY '{mariadb.PASSWORD}'")
    server.ask(f"GRANT {rights} TO few@'%'")
    server.ask(f"SET GLOBAL read_only = {read_only}")
    refused = pytest.raises(SourceError, match=f"refuses what a replay needs: the server says .*{said}")
    try:
        with closing(open_sink(server.url.replace("lab@", "few@"), log)) as sink, refused as found:
            replay(log, sink, known=known)
    finally:
        server.ask("SET GLOBAL read_only = 0")
    assert do in found.value.hint and "resumes" in found.value.hint
    with closing(open_sink(server.url, log)) as sink:
        assert replay(log, sink, known=known).commits


def test_a_server_that_writes_names_in_lower_case_has_the_logs_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one on Windows does, or a managed one; a second run finds the tables of the first."""
    monkeypatch.setenv(PASSWORD, mariadb.PASSWORD)
    log, known = decoded(spark, OPEN)
    with mariadb.lent(tmp_path / "lower", "--lower-case-table-names=1") as lower:
        for _ in range(2):
            with closing(open_sink(lower.url, log)) as sink:
                done = replay(log, sink, known=known)
                found = {c.table: c.different for c in compare(log, sink, done.progress, known=known)}
            assert found["Fin_Ops.Customers"] == 0 and not any(found.values())
        assert ("customers",) in lower.ask("SELECT table_name FROM information_schema.tables")


def test_a_refused_password_is_said_with_a_command_that_can_be_copied(
    server: mariadb.Server, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hides passwords must not hide the command."""
    monkeypatch.setenv(PASSWORD, "wrong")
    with pytest.raises(SourceError) as found:
        open_sink(server.url, decoded(spark, OPEN)[0])
    assert redacted(found.value.hint, {}).startswith(f"Try it by hand: mysql -h 127.0.0.1 -P {server.port} -u lab -p.")


def test_every_type_of_ddl_job_is_run_or_noted(spark: SparkSession, server: mariadb.Server, tmp_path: Path) -> None:
    """The torture log's 36 types, each with rows before and after it; what the server does not have has its nearest."""
    log = job_types.log(spark, tmp_path)
    sink = open_sink(server.url, log)
    said = job_types.check(log, sink)
    sink.close()
    assert server.ask("SELECT id FROM torture.p_ex ORDER BY id") and not server.ask("SELECT * FROM torture.p_key")
    assert any("z the server has no INVISIBLE index, so IGNORED replaces it" in words for words in said)
    assert any("chk the server knows no word ENFORCED" in words for words in said)
    assert any("not run, as the server does not understand it from 'RECOVER TABLE" in words for words in said)


@pytest.mark.parametrize("step", [None, 6])
def test_keys_that_the_target_takes_for_each_other_stay_apart(
    spark: SparkSession, server: mariadb.Server, tmp_path: Path, step: int | None
) -> None:
    """By collation, as a FLOAT, as no element of an ENUM; a table whose collation is too coarse compares bytes then."""
    messages, left = odd_keys.written(odd_keys.KEYS)
    log = odd_keys.decoded(spark, tmp_path, messages)
    odd_keys.check(
        log, open_sink(server.url, log), range(10, len(messages), step) if step else [],
        lambda name: server.ask(f"SELECT n, v FROM s.{name}"), left,
    )  # fmt: skip
    said = {table for (table,) in server.ask("SELECT table_name FROM _ticdc_lab.notes WHERE said LIKE '%bytes%'")}
    assert said == {"s.cased", "s.padded", "s.accented"}
    assert server.ask("SELECT count(*) FROM s.named WHERE d = 0") == [(2,)]


@pytest.mark.parametrize("query", ["FLASHBACK TABLE k TO m", "FLASHBACK DATABASE s"])
def test_a_table_that_comes_back_is_created_anew_and_said_so(
    spark: SparkSession, server: mariadb.Server, tmp_path: Path, query: str
) -> None:
    """MariaDB knows no such statement: what the server did not do is not called done."""
    log, table = odd_keys.that_comes_back(spark, tmp_path, query)
    sink = open_sink(server.url, log)
    said = [words for *_, words in replay(log, sink).notes]
    sink.close()
    assert any(words.startswith("not run, as the server does not understand it from 'FLASHBACK") for words in said)
    assert any(words.endswith("not in the log again; the table was recreated, without rows") for words in said)
    assert server.ask(f"SELECT id FROM s.{table}") == [(2,)]


def test_of_two_ddl_of_one_moment_each_is_said_by_itself(
    spark: SparkSession, server: mariadb.Server, tmp_path: Path
) -> None:
    """What the server did not do with one table reports nothing of the other."""
    parts = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (5), PARTITION p1 VALUES LESS THAN MAXVALUE)"
    of_p = {"table": "p", "isDdl": True, "type": "ALTER"}
    log = odd_keys.decoded(spark, tmp_path, [
        odd_keys.message(0, 1, **of_p, sql=f"CREATE TABLE p (id INT PRIMARY KEY) {parts}"),
        odd_keys.message(1, 2, isDdl=True, type="CREATE", sql="CREATE TABLE k (id INT PRIMARY KEY)"),
        odd_keys.message(2, 3, isDdl=True, type="ERASE", sql="DROP TABLE k"),
        odd_keys.message(3, 9, isDdl=True, type="QUERY", sql="RECOVER TABLE k"),
        odd_keys.message(4, 9, **of_p, sql="ALTER TABLE p DROP PARTITION p0"),
        odd_keys.message(5, 12, type="TIDB_WATERMARK"),
    ])  # fmt: skip
    sink = open_sink(server.url, log)
    said = [" ".join(map(str, note)) for note in replay(log, sink).notes]
    sink.close()
    assert any("DROP PARTITION" in words and words.endswith("the server has done so by itself") for words in said)
    assert any(words.endswith("the table was recreated, without rows") for words in said)


def test_a_collation_of_mysql_8_is_mariadbs_nearest(
    spark: SparkSession, server: mariadb.Server, tmp_path: Path
) -> None:
    """It is reported; a name in quotes is left alone."""
    log = odd_keys.decoded(spark, tmp_path, [
        odd_keys.message(0, 1, isDdl=True, type="CREATE", sql="CREATE TABLE k (id INT PRIMARY KEY, v VARCHAR(9) "
                         "COLLATE utf8mb4_0900_ai_ci, `utf8mb4_0900_as_cs` INT COMMENT 'utf8mb4_0900_bin')"),
        odd_keys.message(1, 2, type="INSERT", pkNames=["id"], data=[{"id": "1", "v": "é", "utf8mb4_0900_as_cs": "2"}],
                         sqlType={"id": 4, "v": 12, "utf8mb4_0900_as_cs": 4},
                         mysqlType={"id": "int", "v": "varchar", "utf8mb4_0900_as_cs": "int"}),
        odd_keys.message(2, 9, type="TIDB_WATERMARK"),
    ])  # fmt: skip
    sink = open_sink(server.url, log)
    said = [words for *_, words in replay(log, sink).notes]
    sink.close()
    assert any("has no collation utf8mb4_0900_" in words for words in said)
    assert server.ask("SELECT id, v, utf8mb4_0900_as_cs FROM s.k WHERE v = 'E'") == [(1, "é", 2)]


def test_what_the_server_lacks_has_its_nearest_or_is_refused(
    spark: SparkSession, server: mariadb.Server, tmp_path: Path
) -> None:
    """A VECTOR is a LONGTEXT, a key that is generated a plain column; a change that nothing replaces stops the replay.

    It continues once an operator has made the change by hand. A table of another program is never taken for ours.
    """
    of = {"isDdl": True, "type": "CREATE"}
    key = {"pkNames": ["b"], "sqlType": {"a": 4, "b": 4}, "mysqlType": {"a": "int", "b": "int"}}
    log = odd_keys.decoded(spark, tmp_path, [
        odd_keys.message(0, 1, **of, table="v", sql="CREATE TABLE v (id INT PRIMARY KEY, v VECTOR(3), `VECTOR` VECTOR, "
                         "KEY i (v(3)) INVISIBLE)"),
        odd_keys.message(1, 2, **of, table="g", sql="CREATE TABLE g (a INT, b INT AS (a * 10) STORED, PRIMARY KEY (b), "
                         "UNIQUE e ((a + 1)))"),
        *[odd_keys.message(1 + i, 2 + i, table="g", type="INSERT", data=[{"a": f"{i}", "b": f"{i}0"}], **key)
          for i in (1, 2)],
        odd_keys.message(4, 5, table="g", type="DELETE", data=[{"a": "1", "b": "10"}], **key),
        odd_keys.message(5, 6, table="v", isDdl=True, type="ALTER", sql="ALTER TABLE v ADD COLUMN w INT, "
                         "ADD UNIQUE u ((id + 1))"),
        odd_keys.message(6, 7, **of, table="t", sql="CREATE TABLE t (a INT)"),
        odd_keys.message(7, 9, type="TIDB_WATERMARK"),
    ])  # fmt: skip
    sink = open_sink(server.url, log)
    with pytest.raises(SourceError, match=r"cannot be what upstream is after .* from '\(\(?id \+ 1\)\)' on") as refused:
        replay(log, sink)
    assert "rules = ['*.*', '!s.v']" in str(refused.value.hint)
    assert server.ask("SELECT a, b FROM s.g") == [(2, 20)]
    sink.close()
    server.ask("ALTER TABLE s.v ADD COLUMN w INT")
    server.ask("CREATE TABLE s.t (b INT)")
    sink = open_sink(server.url, log)
    with pytest.raises(SourceError, match=r"CREATE TABLE t .*Table 't' already exists"):
        replay(log, sink)
    sink.close()
    server.ask("DROP TABLE s.t")
    sink = open_sink(server.url, log)
    said = {(table, words.partition(":")[0].partition(", as ")[0]) for _, table, words in replay(log, sink).notes}
    sink.close()
    assert said == {
        ("s.v", "the server has no type VECTOR as TiDB has it, so LONGTEXT replaces it"),
        ("s.v", "the server has no INVISIBLE index, so IGNORED replaces it"),
        ("s.g", "the table has only its columns and unique keys, no defaults, other indexes, checks or partitions"),
        ("s.v", "not run"),
    }


def test_a_second_unique_index_takes_no_row_away(spark: SparkSession, server: mariadb.Server, tmp_path: Path) -> None:
    """REPLACE would: what its collation takes for equal is apart upstream."""
    data = [{"id": str(i), "u": u} for i, u in enumerate(("a", "A"))]
    log = odd_keys.decoded(spark, tmp_path, [
        odd_keys.message(0, 1, isDdl=True, type="CREATE", sql="CREATE TABLE k (id INT PRIMARY KEY, u VARCHAR(9) "
                         "COLLATE utf8mb4_general_ci NOT NULL UNIQUE)"),
        *[odd_keys.message(i + 1, i + 2, type="INSERT", pkNames=["id"], data=[row], sqlType={"id": 4, "u": 12},
                           mysqlType={"id": "int", "u": "varchar"}) for i, row in enumerate(data)],
        odd_keys.message(3, 9, type="TIDB_WATERMARK"),
    ])  # fmt: skip
    sink = open_sink(server.url, log)
    replay(log, sink)
    sink.close()
    assert sorted(server.ask("SELECT id, u FROM s.k")) == [(0, "a"), (1, "A")]


def test_a_value_that_the_server_refuses_is_said_in_words(
    spark: SparkSession, server: mariadb.Server, tmp_path: Path
) -> None:
    """With the table and the range, and nothing of it is written."""
    log = odd_keys.decoded(spark, tmp_path, [
        odd_keys.message(0, 1, isDdl=True, type="CREATE", sql="CREATE TABLE k (d VARCHAR(9) CHARACTER SET latin1 "
                         "PRIMARY KEY)"),
        odd_keys.message(1, 2, type="INSERT", pkNames=["d"], data=[{"d": "中"}], sqlType={"d": 12},
                         mysqlType={"d": "varchar"}),
        odd_keys.message(2, 9, type="TIDB_WATERMARK"),
    ])  # fmt: skip
    sink = open_sink(server.url, log)
    with pytest.raises(SourceError, match=r"refuses rows of s\.k with commit_ts in \(") as refused:
        replay(log, sink)
    assert f"--until {odd_keys.TS + 1}" in str(refused.value.hint)
    sink.close()
    assert server.ask("SELECT * FROM s.k") == []


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["transaction", "row"])
def test_a_killed_consumer_goes_on(spark: SparkSession, server: mariadb.Server, tmp_path: Path, mode: str) -> None:
    """Killed before, inside and between transactions, and around DDL, which commit by themselves."""
    log, known = decoded(spark, OPEN)
    plan = tmp_path / "plan"
    plan.write_bytes(pickle.dumps(plan_of(log, known, mode=mode, until=None, rows_a_batch=400)))
    script = Path(__file__).with_name("replay_killed.py")
    kills = 0
    for at in [4, 9, 12, 15, 13, 11, 16, 14, 17, 20, 23, 26, 33, 41, 47, 52, 61, 10_000]:
        command = [sys.executable, str(script), str(plan), server.url, log.protocol, str(at), *files_of(log)]
        ended = subprocess.run(command, capture_output=True, timeout=120)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr.decode()
        kills += ended.returncode != 0
    assert kills >= 8
    killed = contents(server)
    server.clear()
    sink = open_sink(server.url, log)
    replay(log, sink, known=known, mode=mode, rows_a_batch=400)
    sink.close()
    assert killed == contents(server)


def test_two_consumers_cannot_write_one_target(spark: SparkSession, server: mariadb.Server) -> None:
    """The second is refused while the first is there."""
    log, _ = decoded(spark, OPEN)
    first = open_sink(server.url, log)
    with pytest.raises(SourceError, match="Another consumer is replaying"):
        open_sink(server.url, log)
    first.close()
    open_sink(server.url, log).close()


def test_an_ipv6_address_is_shown_as_it_is_written() -> None:
    """In brackets, so that what a message shows can be given again."""
    shown = address_of("mysql://u@[::1]:3307/shop").name
    assert shown == "mysql://u@[::1]:3307/shop" and address_of(shown).host == "::1"


def test_a_lock_has_a_name_that_mysql_takes() -> None:
    """64 characters, and a database's name may have as many: each has its own, which no other begins with."""
    locks = [address_of(f"mysql://lab@h/{database}").lock for database in ("d", "d" * 63 + "e", "d" * 64)]
    assert max(map(len, locks)) <= 64 and len(set(locks)) == 3


def test_no_error_shows_the_password(
    spark: SparkSession, server: mariadb.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a wrong one nor one that stands where it must not."""
    monkeypatch.setenv(PASSWORD, "wr0ngSecret")
    with pytest.raises(SourceError, match="cannot be connected to") as wrong:
        open_sink(server.url, decoded(spark, OPEN)[0])
    assert "wr0ngSecret" not in f"{wrong.value!r} {wrong.value.__cause__!r}"
    with pytest.raises(SourceError, match="contains a password") as shown:
        address_of("mysql://lab:0penSecret@127.0.0.1")
    assert "0penSecret" not in str(shown.value)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("CREATE TABLE t (a INT PRIMARY KEY /*T![clustered_index] CLUSTERED */)", "CREATE TABLE t (a INT PRIMARY KEY)"),
        ("CREATE TABLE t (a BIGINT AUTO_RANDOM(5) PRIMARY KEY)", "CREATE TABLE t (a BIGINT PRIMARY KEY)"),
        ("CREATE TABLE t (a INT) SHARD_ROW_ID_BITS = 4 PRE_SPLIT_REGIONS=2", "CREATE TABLE t (a INT)"),
        ("ALTER TABLE t COMMENT 'CLUSTERED', ADD `TTL` INT;", "ALTER TABLE t COMMENT 'CLUSTERED', ADD `TTL` INT"),
        ("CREATE TABLE t (a INT) PLACEMENT POLICY=`p` COMMENT='x'", "CREATE TABLE t (a INT) COMMENT='x'"),
    ],
)  # fmt: skip
def test_what_only_tidb_understands_is_taken_out(query: str, expected: str) -> None:
    """But not from texts and names."""
    assert " ".join(statement(query).split()).replace(" )", ")") == expected


def test_ddl_of_things_that_only_tidb_has_are_not_run() -> None:
    """And it is reported."""
    assert why_not_run("CREATE PLACEMENT POLICY p FOLLOWERS = 4") == "only TiDB has a placement"
    assert why_not_run("CREATE TABLE placement (a INT)") == ""
    assert Catalog.from_ddl([(1, "", "", "CREATE PLACEMENT POLICY p FOLLOWERS = 4")]).unparsed == ()


@pytest.mark.parametrize(
    ("text", "mysql_type", "expected"),
    [
        (None, "int", "NULL"),
        ("18446744073709551615", "bigint unsigned", "18446744073709551615"),
        ("-1.50", "decimal(5,2)", "-1.50"),
        ("it's \\ here", "varchar(20)", "'it''s \\\\ here'"),
        ("0x", "blob", "''"),
        ("0x00ff", "binary(2)", "0x00ff"),
        ("5", "bit(10)", "5"),
        ("2", "enum('a','b')", "2"),
        ("-838:59:59", "time", "'-838:59:59'"),
        ("0000-00-00", "date", "'0000-00-00'"),
        ('{"a": "b\\"c"}', "json", '\'{"a": "b\\\\"c"}\''),
    ],
)
def test_a_value_becomes_a_literal(text: str | None, mysql_type: str, expected: str) -> None:
    """As MySQL reads it back."""
    sql = literal_of("x", ColumnDef("c", mysql_type), numbered=True)
    assert duckdb.execute(f"SELECT {sql} FROM (SELECT ?::VARCHAR AS x)", [text]).fetchall() == [(expected,)]
