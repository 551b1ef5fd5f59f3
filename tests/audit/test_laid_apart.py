"""A log whose rows are grouped by key through files has the findings and transactions of one whose rows are not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab.audit import history
from ticdc_lab.engine import shuffle


def asked(spark: SparkSession, source: Path) -> str:
    """Frames of findings and transactions of a log."""
    log = ticdc_lab.open(str(source), spark=spark)
    answers = log.audit(), log.transactions()
    log.close()
    return json.dumps([{n: f.to_dict("records") for n, f in a.frames.items()} for a in answers], default=str)


def test_answers_are_those_of_rows_in_memory(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a log with lost and repeated messages: findings, their evidence and order, and its transactions."""
    lines = gzip.decompress(Path("data/messages_canal-json-tidb_small.jsonl.gz").read_bytes()).splitlines(keepends=True)
    records = [json.loads(line) for i, line in enumerate(lines) if i % 40]
    ends = dict[int, int]()
    for record in sorted(records, key=lambda r: (r["partition"], r["offset"])):
        record["offset"] = ends[record["partition"]] = ends.get(record["partition"], -1) + 1
    again = [r | {"offset": r["offset"] + 1_000_000} for r in records[::30]]
    source = tmp_path / "faulty.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in [*records, *again]))
    monkeypatch.setattr(history, "_FEW", 0)
    whole = asked(spark, source)
    assert len(json.loads(whole)[0]["findings"]) > 50
    monkeypatch.setattr(shuffle, "ROWS_HERE", 100)
    assert asked(spark, source) == whole
