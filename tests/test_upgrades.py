"""What earlier versions have written is continued, or refused by its format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from broker import Broker, create_topic, produce
from conftest import ROOT, golden
from ingested import assert_batch_answers
from pyspark.sql import SparkSession

from ticdc_lab.lake.ingest import Tables, ingest
from ticdc_lab.sources.load import load

pytestmark = [pytest.mark.spark, pytest.mark.soak]

LAKE = ROOT / "tests/data/formats/ingest_1.delta.tar.gz"
"""What the commit ad588b8 ingested of the first 30 messages of two partitions, in several batches."""


def test_a_lake_of_an_earlier_version_is_gone_on_with(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """From before tables had a format and commits a note: the rest of the topic comes, nothing is lost or doubled."""
    shutil.unpack_archive(LAKE, tmp_path / "lake")
    origin = json.loads((tmp_path / "lake/_origin.json").read_text())
    assert origin == {"topics": "before", "protocol": "canal-json"}
    create_topic(spark, broker, "before", 2)
    recording = load(spark, str(golden("messages_canal-json-tidb_small.jsonl.gz"))).messages.where("partition < 2")
    produce(recording.where("offset < 30"), broker, "before")
    tables = Tables(spark, str(tmp_path / "lake"))
    before = {name: tables.read(name).count() for name in ("messages", "events")}
    assert before["messages"] == 60
    produce(recording.where("offset BETWEEN 30 AND 80"), broker, "before")
    ingest(spark, broker.url("before"), str(tmp_path / "lake"), once=True)
    log = load(spark, broker.url("before")).materialise(str(tmp_path / "log"))
    assert log.counts is not None and log.counts.messages == tables.read("messages").count() > 60
    assert_batch_answers(tables, log.messages, log.events, log.quarantine)
