"""How a log lies in files and in Spark changes no answer of the what-if and none of the advice."""

from __future__ import annotations

import gzip
import random
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import golden
from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.answers.advice import values
from ticdc_lab.dispatch.advise import advise
from ticdc_lab.dispatch.whatif import WhatIf
from ticdc_lab.facts.catalog import catalog_of
from ticdc_lab.sources.load import load

TOPIC = "messages_open-protocol_small-dup-table.jsonl.gz"


def answers(events: DataFrame) -> dict[str, Any]:
    """Everything a what-if holds, by table."""
    what_if = WhatIf.from_events(events, catalog_of(events))
    return {name: plain(lane) for name, lane in what_if.lanes.items()}


def plain(value: Any) -> Any:
    """What can be compared: arrays as their type, shape and bytes, dataclasses as their fields."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value


@pytest.fixture(scope="module")
def events(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """The golden topic from its one file, decoded once."""
    log = load(spark, str(golden(TOPIC)), protocol="open-protocol")
    return log.materialise(str(tmp_path_factory.mktemp("log") / "decoded")).events


@pytest.fixture(scope="module")
def wanted(events: DataFrame) -> dict[str, Any]:
    """Its answers."""
    return answers(events)


def test_files_and_the_order_of_messages_change_nothing(
    spark: SparkSession, events: DataFrame, wanted: dict[str, Any], tmp_path: Path
) -> None:
    """The same messages in three files, in any order, give the same answers; so does a second run."""
    lines = gzip.decompress(golden(TOPIC).read_bytes()).decode().splitlines(keepends=True)
    random.Random(3).shuffle(lines)
    for n in range(3):
        (tmp_path / f"part_{n}.jsonl").write_text("".join(lines[n::3]), encoding="utf-8")
    assert answers(load(spark, str(tmp_path), protocol="open-protocol").events) == wanted
    assert answers(events) == wanted


def test_spark_partitions_change_nothing(spark: SparkSession, events: DataFrame, wanted: dict[str, Any]) -> None:
    """Neither how rows are spread over tasks nor the number of shuffle partitions is seen in an answer."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        spark.conf.set("spark.sql.shuffle.partitions", "5")
        assert answers(events.repartition(7, "offset")) == wanted
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


def test_advice_is_the_same_every_time(events: DataFrame) -> None:
    """Rows spread in another way give the same recommendation, numbers, reasons and hot keys."""
    asked = {"protocol": "open-protocol", "partitions": [3, 8], "max_columns": 1}
    assert values(advise(events, **asked)) == values(advise(events.repartition(5, "seq"), **asked))


def test_a_change_of_the_log_is_seen(events: DataFrame, wanted: dict[str, Any]) -> None:
    """The comparison above can fail: without one row the answers differ."""
    last = events.where("kind = 'row'").agg({"commit_ts": "max"}).first()[0]
    assert answers(events.where(f"commit_ts < {last}")) != wanted
