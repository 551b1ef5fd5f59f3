"""``ticdc-lab consumer``: the matrix, the fewest messages, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
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
    done = consumer(spark, "--policy", "design-row", "--speed", "3=500", "--examples", "1", "--json")
    assert done.exit_code == 1, done.output
    told: dict[str, Any] = json.loads(done.stdout)
    counts = {m["kind"]: m["n"] for m in told["matrix"]}
    assert counts["torn transaction"] > 100 and counts["state that never existed"] > 100
    assert told["left"] == [{"policy": "design-row", "speeds": "as given", "pending": 0, "unread": 0}]
    torn = next(a for a in told["examples"] if a["guarantee"] == "torn transaction")
    messages = {(m["partition"], m["offset"]): m["kind"] for m in torn["messages"]}
    assert sorted(messages.values()) == ["row", "row", "watermark"]
    torn_apart = {m["partition"] for m in torn["messages"] if m["commit_ts"] == torn["commit_ts"]}
    assert len(torn_apart) == 2, "one half in each of two partitions"


def test_restored_transactions_show_nothing_wrong_and_exit_code_0(spark: SparkSession) -> None:
    """Under another dispatcher, with a pause and a crash."""
    faults = ("--pause", "1=10:200", "--processes", "2", "--crash", "0=50:80")
    done = consumer(spark, "--policy", "strict", "--strategy", "ts", "--partitions", "4", *faults)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("strict never shows a state that never existed.")


@pytest.mark.parametrize(
    "wrong",
    [("--speed", "3"), ("--pause", "1=9:3"), ("--crash", "0=5"), ("--speed", "1=0"), ("--strategy", "ts"),
     ("--partitions", "4"), ("--slow", "1=fast"), ("--slow", "1=2", "--per-second", "9")],
)  # fmt: skip
def test_what_cannot_be_read_is_said_with_what_is_expected(spark: SparkSession, wrong: tuple[str, ...]) -> None:
    """Before the log is read."""
    done = consumer(spark, *wrong)
    assert done.exit_code == 2
    assert "expected" in done.stderr or "Error: Give " in done.stderr


@pytest.mark.parametrize("unknown", [("--speed", "9=100"), ("--crash", "1=5:6"), ("--slow", "9=2")])
def test_a_partition_or_process_that_is_not_there_is_refused(spark: SparkSession, unknown: tuple[str, str]) -> None:
    """A typing error would look like a consumer without faults."""
    done = consumer(spark, *unknown)
    assert done.exit_code == 2
    assert "There is no" in done.stderr


def test_a_topic_whose_number_of_partitions_changes_shows_no_row_that_goes_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The log of a shipped scenario, as MQ messages: all wait at each Admin event, also for a slow partition."""
    scenario, log = "data/scenarios/pipeline/more-partitions.yaml", str(tmp_path / "topic.jsonl")
    written = ("--set", "settings.downstream.consumer=rows", "--log", log, "--protocol", "mq-v1")
    assert CliRunner().invoke(main, ["simulate", "pipeline", scenario, *written]).exit_code == 0
    done = CliRunner().invoke(main, ["consumer", log, "--policy", "design-row", "--slow", "0=4", "--json"], obj=spark)
    counts = {m["kind"]: m["n"] for m in json.loads(done.stdout)["matrix"]}
    assert counts.pop("torn transaction") > 0 and counts.pop("state that never existed") > 0
    assert not any(counts.values()), counts
