"""``ticdc-lab workload``: a log and its truth in files, and requests that cannot be met."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from ticdc_lab.cli import main
from ticdc_lab.cli.workload_commands import _SETTABLE
from ticdc_lab.encode.encoders import ENCODERS
from ticdc_lab.events.schema import EVENTS
from ticdc_lab.sources.load import load
from ticdc_lab.workload.settings import Workload


def run(spark: SparkSession, *args: str) -> Result:
    """The command on the suite's session."""
    return CliRunner().invoke(main, ["workload", *args], obj=spark)


def test_a_log_and_its_truth_are_written(spark: SparkSession, tmp_path: Path) -> None:
    """The log loads as the protocol that was asked for; the truth has a row for each of its row changes."""
    out, truth = tmp_path / "log.jsonl.gz", tmp_path / "truth.parquet"
    asked = ["hot-keys", "--rows", "2000", "--seed", "4", "--protocol", "open-protocol", "--strategy", "table"]
    more = ["--partitions", "2", "--set", "ddl=2", "--set", "big_share=0.1", "--set", "keys=300", "--json"]
    result = run(spark, *asked, *more, "--out", str(out), "--truth", str(truth))
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["protocol"] == "open-protocol" and "start_ts" in said["lost"]
    log = load(spark, str(out)).materialise(str(tmp_path / "decoded"))
    assert log.protocol == "open-protocol" and log.counts.messages == said["written"]
    events = spark.read.parquet(str(truth))
    assert events.columns == EVENTS.names
    assert events.where("kind = 'row'").count() == log.events.where("kind = 'row'").count() > 1_900
    assert events.where("kind = 'ddl'").count() == 2 + 4


@pytest.mark.parametrize("protocol", ENCODERS)
def test_what_the_protocol_drops_is_one_line(spark: SparkSession, tmp_path: Path, protocol: str) -> None:
    """A workload has no admin event and no incomplete row, so neither is named."""
    result = run(spark, "bank", "--rows", "1000", "--protocol", protocol, "--out", str(tmp_path / "log.jsonl"))
    (line,) = (line for line in result.output.splitlines() if "does not keep" in line)
    assert "start_ts, " in line and "admin" not in line and "incomplete" not in line


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["bank", "--set", "dll=3"], "expected one of"),
        (["bank", "--set", "ddl=many"], "expected a number"),
        (["bank", "--rows", "10"], "rows is 10"),
        (["bank", "--protocol", "avro"], "cannot be written as 'avro'"),
        (["bank", "--strategy", "conflict"], "conflict"),
        (["blank"], "blank"),
    ],
)
def test_what_cannot_be_is_refused(spark: SparkSession, tmp_path: Path, args: list[str], said: str) -> None:
    """With exit code 2, a sentence, and no file."""
    result = run(spark, *args, "--out", str(tmp_path / "log.parquet"))
    assert result.exit_code == 2 and said in result.output
    assert not list(tmp_path.iterdir())


def test_more_than_memory_sorts_is_refused(tmp_path: Path) -> None:
    """The embedded engine reports it before it begins: the system would end it in mid-work."""
    out = tmp_path / "log.jsonl.gz"
    asked = ["workload", "bank", "--rows", "10000000000", "--engine", "embedded", "--out", str(out)]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 2 and "9000 GB of messages are sorted" in result.stderr, result.stderr
    assert "--engine spark" in result.stderr and not out.exists()


def test_the_truth_cannot_take_the_place_of_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """Two names are needed."""
    same = str(tmp_path / "one.parquet")
    result = run(spark, "bank", "--rows", "2000", "--out", same, "--truth", same)
    assert result.exit_code == 2 and "one.parquet" in result.output


def test_the_page_lists_every_setting_with_its_default() -> None:
    """In the order of the class; the help has the same names."""
    page = (Path(__file__).parents[2] / "docs/workload.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]+) \|", page, re.MULTILINE)
    listed = {name: default for names, default in rows for name in re.findall(r"\w+", names) if name in _SETTABLE}
    assert list(listed) == list(_SETTABLE)
    defaults = {f.name: str(f.default) for f in fields(Workload) if f.name in _SETTABLE and f.default is not None}
    assert {name: listed[name] for name in defaults} == defaults
