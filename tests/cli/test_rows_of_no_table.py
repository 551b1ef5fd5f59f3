"""Avro's deletes of tables without a primary key name no table: no command ends in an error of Python."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import ROOT
from pyspark.sql import SparkSession

from ticdc_lab.cli import main
from ticdc_lab.repartition.expand import rules_found

TORTURE = ROOT / "tests/data/torture"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first messages of a log of the real encoder, and all its deletes that have a commit_ts alone."""
    kept: list[dict[str, Any]] = []
    with gzip.open(TORTURE / "messages_avro.jsonl.gz", "rt", encoding="utf-8") as lines:
        for m in map(json.loads, lines):
            if len(kept) < 60 or (m["value"] or "").startswith("AwaI"):
                kept.append(m)
    assert len(kept) > 60
    file = tmp_path_factory.mktemp("nameless") / "avro.jsonl"
    file.write_text("".join(json.dumps(m) + "\n" for m in kept), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("survey", 0, "avro"),
        ("advise", 0, "partition"),
        ("table --table torture.ints --out {out}", 0, "torture.ints has"),
        ("produce --to canal-json --strategy table --partitions 2 --out {out}", 0, "left out: their messages name no"),
        ("expand --after 5 --out {out}", 1, "left out: their messages name no"),
        ("consume --mode transaction --sink duckdb:///{out}", 2, "deletes name no table"),
    ],
)
def test_a_command_works_or_says_why_not(
    spark: SparkSession, log: Path, tmp_path: Path, command: str, code: int, said: str
) -> None:
    """Names that are null are sorted, joined and put into sentences in each of them."""
    name, *options = command.format(out=tmp_path / "out.jsonl").split()
    schemas = str(TORTURE / "schemas_avro.jsonl.gz")
    found = CliRunner().invoke(main, [name, str(log), "--schema-registry", schemas, *options], obj=spark)
    assert (found.exit_code, said in found.output) == (code, True), found.output


def test_rules_of_rows_that_name_no_table_are_none() -> None:
    """The others stay."""
    rows = [{"schema_name": s, "table_name": t, "rule": "table"} for s, t in (("s", "a"), (None, None))]
    assert [rule.matcher for rule in rules_found(rows)] == [("*.*",)]
