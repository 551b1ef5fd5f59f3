"""``ticdc-lab consumer``: the matrix, the fewest messages, and the exit code."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from conftest import golden
from pyspark.sql import SparkSession

from ticdc_lab.cli import main

LOG = str(golden("messages_open-protocol_small.jsonl.gz"))


def consumer(spark: SparkSession, *args: str) -> Result:
    """The command in this process, on the suite's session."""
    return CliRunner().invoke(main, ["consumer", LOG, *args], obj=spark)


def test_row_mode_is_shown_wrong_with_messages_and_exit_code_1(spark: SparkSession) -> None:
    """In JSON, with one slow listener."""
    done = consumer(spark, "--policy", "seed-row", "--speed", "3=500", "--json")
    assert done.exit_code == 1, done.output
    told: dict[str, Any] = json.loads(done.stdout)
    counts = {m["kind"]: m["n"] for m in told["matrix"]}
    assert counts["torn transaction"] > 100 and counts["state that never existed"] > 100
    torn = next(a for a in told["anomalies"] if a["guarantee"] == "torn transaction")
    assert sorted(m["kind"] for m in torn["messages"]) == ["row", "row", "watermark"]
    rows = [m for m in torn["messages"] if m["kind"] == "row"]
    assert rows[0]["commit_ts"] == rows[1]["commit_ts"] == torn["commit_ts"]
    assert rows[0]["partition"] != rows[1]["partition"]


def test_restored_transactions_show_nothing_wrong_and_exit_code_0(spark: SparkSession) -> None:
    """Under another dispatcher, with a pause and a crash."""
    faults = ("--pause", "1=10:200", "--processes", "2", "--crash", "0=50:80")
    done = consumer(spark, "--policy", "strict", "--strategy", "ts", "--partitions", "4", *faults)
    assert done.exit_code == 0, done.output
    assert "Upstream once was as the downstream was" in done.stdout


@pytest.mark.parametrize("wrong", [("--speed", "3"), ("--pause", "1=9:3"), ("--crash", "0=5"), ("--speed", "1=0")])
def test_what_cannot_be_read_is_said_with_what_is_expected(spark: SparkSession, wrong: tuple[str, str]) -> None:
    """Before the log is read."""
    done = consumer(spark, *wrong)
    assert done.exit_code == 2
    assert "expected" in done.stderr
