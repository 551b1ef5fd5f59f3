"""The reference policy does what the real kafka-consumer of TiCDC did with the golden topics, message by message."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from conftest import ROOT, golden, json_lines
from pyspark.sql import SparkSession

from ticdc_lab import load
from ticdc_lab.consumer.listener import Listeners
from ticdc_lab.consumer.log import NarrowLog, narrow
from ticdc_lab.consumer.model import ConsumerRun, run
from ticdc_lab.consumer.policy import REFERENCE

FAULTS = ("", "-dup-restart", "-dup-table", "-dup-ddl")
TOPICS = [
    *(f"{protocol}_small{fault}" for protocol in ("canal-json-tidb", "open-protocol", "simple") for fault in FAULTS),
    "simple-avro_small",
    "open-protocol-updatedonly-batch1_small",
]
OPS = ("delete", "update", "insert")
IN_ORDER = Listeners(per_second=0, arrival="as recorded")


def real(topic: str) -> Iterator[dict[str, Any]]:
    """What the real consumer did."""
    with gzip.open(ROOT / f"tests/data/golden/consumer_ref/messages_{topic}.jsonl.gz", "rt") as f:
        yield from map(json.loads, f)


@pytest.fixture(scope="module")
def runs(spark: SparkSession) -> dict[str, ConsumerRun]:
    """Each topic, read in the order in which it was sent: the number of a message is the time at which it is read."""
    return {topic: run(in_sending_order(spark, topic), REFERENCE, IN_ORDER) for topic in TOPICS}


def in_sending_order(spark: SparkSession, topic: str) -> NarrowLog:
    """The topic with the number of each message, over all partitions, as the time at which it can be read."""
    name = f"messages_{topic}.jsonl.gz"
    sent = {(m["partition"], m["offset"]): i for i, m in enumerate(json_lines(name))}
    events = narrow(load(spark, str(golden(name))).events).toArrow()
    places = zip(events["partition"].to_pylist(), events["offset"].to_pylist(), strict=True)
    return NarrowLog.of(events.append_column("arrival", pa.array([sent[p] for p in places], pa.int64())))


@pytest.mark.parametrize("topic", TOPICS)
def test_each_row_change_is_written_on_the_same_message_and_as_often(runs: dict[str, ConsumerRun], topic: str) -> None:
    """Duplicates that the real one passes on included."""
    done: Counter[tuple[int, str, int, str]] = Counter()
    for act in real(topic):
        for op in act["ops"] if act["act"] == "dml" else ():
            done[act["at_msg"], f"{act['schema']}.{act['table']}", act["commit_ts"], op] += 1
    rows = runs[topic].deliveries.to_pylist()
    applied = [r for r in rows if r["outcome"] == "applied"]
    assert Counter((r["applied_at"], r["table"], r["commit_ts"], OPS[r["op_rank"]]) for r in applied) == done
    assert done.total() >= 2101


@pytest.mark.parametrize("topic", TOPICS)
def test_each_ddl_is_executed_on_the_same_message_after_the_same_rows_of_its_table(
    runs: dict[str, ConsumerRun], topic: str
) -> None:
    """Repeated DDL, which the real one executes again, included."""
    rows: Counter[str] = Counter()
    ddl = []
    for act in real(topic):
        if act["act"] == "ddl":
            ddl.append((act["at_msg"], act["commit_ts"], act["query"], rows_of_table(act["query"], rows)))
        elif act["act"] == "dml":
            rows[f"{act['schema']}.{act['table']}"] += len(act["ops"])
    batches: dict[int, Counter[str]] = defaultdict(Counter)
    for r in runs[topic].deliveries.to_pylist():
        if r["outcome"] == "applied":
            batches[r["batch"]][r["table"]] += 1
    written: Counter[str] = Counter()
    own = []
    for step in runs[topic].steps.to_pylist():
        if step["action"] == "write":
            written += batches[step["batch"]]
        elif step["action"] == "ddl":
            own.append((step["at"], step["commit_ts"], step["detail"], rows_of_table(step["detail"], written)))
    assert own == ddl
    assert len(ddl) >= 16


def rows_of_table(query: str, rows: Counter[str]) -> dict[str, int]:
    """Rows written so far of the tables that the DDL names first."""
    return {t: n for t, n in rows.items() if "`{}`.`{}`".format(*t.split(".")) in query}
