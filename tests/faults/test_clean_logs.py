"""Logs without a fault, laid out again in any way, give nothing but moves that a dispatch rule makes."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import computed, golden
from pyspark.sql import SparkSession

from ticdc_lab.audit import audit
from ticdc_lab.codecs import decode
from ticdc_lab.consumer.episodes import delivery_causes
from ticdc_lab.encode.produce import produce
from ticdc_lab.faults import read_log
from ticdc_lab.sources.load import load

OPEN, BANK = "messages_open-protocol_small.jsonl.gz", "messages_canal-json-tidb_bank.jsonl.gz"
UPDATED_ONLY = "messages_canal-json-tidb-updatedonly-deletehk_small.jsonl.gz"

LAID = [
    (OPEN, "open-protocol", "table", {}),
    (OPEN, "canal-json", "index-value", {}),
    (OPEN, "open-protocol", "ts", {}),
    (OPEN, "mq-v1", "index-value", {}),
    (OPEN, "mq-v1", "ts", {}),
    (UPDATED_ONLY, "canal-json", "table", {}),
    pytest.param(BANK, "open-protocol", "index-value", {}, marks=pytest.mark.soak),
    pytest.param(BANK, "canal-json", "ts", {}, marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("name", "protocol", "strategy", "options"), LAID)
def test_a_log_that_is_written_anew_is_clean(
    spark: SparkSession, name: str, protocol: str, strategy: str, options: dict[str, Any]
) -> None:
    """Every dispatcher and every protocol we write: at most moves, and those only where the dispatcher makes them."""
    events = load(spark, str(golden(name))).events
    messages = events.transform(produce, protocol=protocol, strategy=strategy, partitions=5, **options)
    laid = computed(decode(messages, protocol=protocol).where("error_class IS NULL"))
    found = {f.guarantee for f in laid.transform(audit, protocol=protocol).select("guarantee").distinct().collect()}
    assert found <= ({"rows_stay_in_one_partition"} if strategy == "ts" else set())
    assert {c.cause for c in laid.transform(delivery_causes).select("cause").distinct().collect()} == set()


def test_a_golden_log_gives_moves_alone(spark: SparkSession) -> None:
    """Also where old images name only what changed and deletes only keys; of others test_golden_audit reports it."""
    log = load(spark, str(golden(UPDATED_ONLY)))
    found = log.events.transform(audit, protocol=log.protocol).select("guarantee").distinct().collect()
    assert {f.guarantee for f in found} == {"rows_stay_in_one_partition"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(BANK, marks=pytest.mark.soak),
        "messages_simple_small.jsonl.gz",
        "messages_debezium_small.jsonl.gz",
    ],
)
def test_a_log_of_each_protocol_can_take_faults(spark: SparkSession, name: str) -> None:
    """There are rows to plant them in."""
    assert len(read_log(load(spark, str(golden(name))).events, rows=100).lives) > 20
