"""``ticdc-lab consume``: exit 0 all equal, 1 differences, 2 could not run."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner, Result
from conftest import golden
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab.answers.compared import none_compared, replayed
from ticdc_lab.cli import main
from ticdc_lab.consumer.replay import Replayed
from ticdc_lab.consumer.replay_compare import Compared
from ticdc_lab.consumer.replay_plan import TargetProgress
from ticdc_lab.consumer.sinks.duckdb import DuckDBSink
from ticdc_lab.errors import SourceError

ADD_COLUMN = 470603993604161536


def consume(spark: SparkSession, *args: str) -> Result:
    """The command on the small log."""
    source = str(golden("messages_open-protocol_small.jsonl.gz"))
    return CliRunner().invoke(main, ["consume", source, *args], obj=spark)


def answer(result: Result) -> dict[str, Any]:
    """The one JSON object on stdout."""
    return dict(json.loads(result.stdout))


def test_values_that_break_their_definition_are_counted_and_named(spark: SparkSession, tmp_path: Path) -> None:
    """A number beyond its type, a label that is not there, a text too long, NULL in NOT NULL."""
    create = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `n` TINYINT, `e` ENUM('a','b'), `v` VARCHAR(3) NOT NULL)"
    types = {"id": "int", "n": "int", "e": "enum", "v": "varchar"}
    odd = [("5", "1", "abc"), ("500", "1", "abc"), ("5", "7", "abc"), ("5", "1", "abcdef"), ("5", "1", None)]
    ts = 470775812199022593

    def message(kind: str, at: int, sql: str = "", **more: Any) -> dict[str, Any]:
        named = {"database": "d", "table": "t", "pkNames": ["id"], "isDdl": bool(sql), "type": kind, "sql": sql}
        return {"id": 0, **named, "es": 1, "ts": 2, "old": None, "data": None, "_tidb": {"commitTs": at}} | more

    rows = [dict(zip(types, (str(i), *values), strict=True)) for i, values in enumerate(odd)]
    told = [message("CREATE", ts, create)]
    told += [message("INSERT", ts + 1 + i, mysqlType=types, data=[r]) for i, r in enumerate(rows)]
    told.append({"type": "TIDB_WATERMARK", "isDdl": False, "_tidb": {"watermarkTs": ts + 9}})
    lines = [{"topic": "t", "partition": 0, "offset": i, "timestamp": None, "key": None, "headers": [],
              "value": b64encode(json.dumps(m).encode()).decode()} for i, m in enumerate(told)]  # fmt: skip
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    log = ticdc_lab.open(str(tmp_path / "log.jsonl"), spark=spark)
    replayed_ = log.consume(f"duckdb:///{tmp_path}/t.db")
    for limits in (replayed_.limits, log.table("d.t").limits):
        found = [limit for limit in limits if "upstream cannot have" in limit]
        assert [f.partition(",")[0] for f in found] == [
            "1 row change of d.t breaks nulls_are_allowed",
            "3 row changes of d.t break values_fit_their_columns",
        ]
    assert not log.table("d.t", as_of=ts + 1).limits, "what comes later is no part of it"
    notes = replayed_.frames["notes"]["said"].tolist()
    assert notes == [
        "1 value of e became NULL, such as 7: it is no value of enum('a','b')",
        "1 value of n became NULL, such as 500: it is no value of tinyint",
    ]


def test_a_replay_stops_goes_on_and_is_judged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a timestamp, then to the end, where a row that other hands put there is found."""
    sink = ("--sink", f"duckdb:///{tmp_path}/t.db", "--json")
    first = consume(spark, *sink, "--until", str(ADD_COLUMN), "--no-check")
    assert first.exit_code == 0, first.output
    told = answer(first)
    assert (told["applied_ts"], told["checked"], told["tables"]) == (ADD_COLUMN, False, [])
    with duckdb.connect(f"{tmp_path}/t.db") as db:
        db.execute("INSERT INTO t.shop.parted (id, v) VALUES (-1, 'planted')")
    second = consume(spark, *sink)
    assert second.exit_code == 1, second.output
    told = answer(second)
    assert {t["table"]: t["different"] for t in told["tables"] if t["different"]} == {"shop.parted": 1}
    (wrong,) = next(t["first"] for t in told["tables"] if t["different"])
    assert wrong["expected"] is None and "planted" in wrong["found"]
    assert any("0000-00-00" in n["said"] for n in told["notes"])
    log = ticdc_lab.open(str(golden("messages_open-protocol_small.jsonl.gz")), spark=spark)
    again = log.consume(sink[1])
    assert again.finding == consume(spark, *sink[:2]).stdout.splitlines()[0], "the method says the same sentence"
    assert again.finding.endswith("0 row changes in 0 commits. 1 of 5 tables differs from the log.")
    some = Replayed("t", TargetProgress("transaction", "", {}), commits=1, changes=2, notes=())
    assert [not again.details, "sent twice counts twice" in replayed(some, None).details[0]] == [True, True]
    untold = [Compared(f"s.{name}", why_not="its CREATE TABLE is not there.") for name in "ab"]
    answers = [replayed(some, tables) for tables in (untold, [untold[0], Compared("s.c", 1)], [], None)]
    assert [none_compared(one) for one in answers] == [True, False, False, False]
    assert answers[0].finding.startswith(
        "None of 2 tables can be compared with the log: its CREATE TABLE is not there. t is at "
    )
    assert answers[1].finding.endswith("0 of 1 table differs from the log. 1 table cannot be compared.")
    third = consume(spark, *sink, "--mode", "row")
    assert third.exit_code == 2 and "begun in transaction mode" in third.stderr
    monkeypatch.setattr(type(log), "consume", lambda *_, **__: answers[0])
    unknown = consume(spark, *sink[:2])
    assert (unknown.exit_code, unknown.stdout.splitlines()[0]) == (2, answers[0].finding)


def test_an_unknown_target_is_refused_without_its_password(spark: SparkSession, tmp_path: Path) -> None:
    """What is wrong with it."""
    for target in ("postgres://u:s3cret@h/x", "mysql://u:s3cret@h/x"):
        refused = consume(spark, "--sink", target)
        assert refused.exit_code == 2 and "s3cret" not in refused.output and "target" in refused.stderr
    with pytest.raises(SourceError, match="cannot be opened") as refusal:
        DuckDBSink(f"{tmp_path}/no/x.db", [], "canal-json")
    assert refusal.value.hint == f"Make the folder {tmp_path}/no first, or name a file in one that exists."
