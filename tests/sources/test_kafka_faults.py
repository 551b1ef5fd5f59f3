"""What brokers do to a topic, or suffer while it is read: compaction, SIGKILL, another leader, many partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from broker import Broker, add_partitions, cluster, create_topic, leader_of, produce, slowed
from conftest import golden
from ingested import assert_batch_answers
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.errors import SourceError
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.facts.limits import offset_gaps
from ticdc_lab.lake.ingest import Tables, ingest
from ticdc_lab.sources.load import load

pytestmark = pytest.mark.spark

OPEN = "messages_open-protocol_small.jsonl.gz"
SMALL_FETCHES = {"kafka.max.partition.fetch.bytes": "20000", "kafka.fetch.max.bytes": "20000"}


def placed(messages: DataFrame) -> set[tuple[Any, ...]]:
    """Where each message lies, and what it is."""
    rows = messages.select("partition", "offset", "key", "value").toArrow().to_pylist()
    assert len(rows) == len({(r["partition"], r["offset"]) for r in rows}), "a message came twice"
    return {(r["partition"], r["offset"], r["key"], r["value"]) for r in rows}


def test_a_compacted_topic_does_not_look_complete(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Its holes are named, with compaction as what may have made them, and what is left is read."""
    create_topic(
        spark, broker, "compacted", 1, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01"
    )
    recording = load(spark, str(golden(OPEN))).messages.where("partition = 0 AND offset < 60")
    again = recording.withColumn("key", F.when(F.expr("offset % 3 > 0"), F.lit(b"again")).otherwise(F.col("key")))
    produce(again.where("offset < 59"), broker, "compacted")
    time.sleep(0.2)
    produce(again.where("offset = 59"), broker, "compacted")  # begins a segment, so the one before can be compacted
    log = load(spark, broker.url("compacted"))
    while (n := log.messages.count()) == 60:
        time.sleep(0.2)
    assert 20 <= n < 60
    kept = log.materialise(str(tmp_path / "log"), images=False)
    assert kept.counts is not None and kept.counts.messages == n
    assert len(kept.gaps) == 1 and set(kept.gaps) <= set(kept.limits)
    assert f"is missing {60 - n} of the offsets" in kept.gaps[0] and "compacted" in kept.gaps[0]
    holes = offset_gaps(log.messages).agg(F.sum("n_missing")).first()
    assert holes is not None and holes[0] == 60 - n


@contextmanager
def reading(spark: SparkSession, work: Callable[[], Any]) -> Iterator[Future[Any]]:
    """Do something in another thread; the body begins when its tasks read."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        tracker, end = spark.sparkContext.statusTracker(), time.monotonic() + 60
        running = 0
        while running < 2 and time.monotonic() < end and not future.done():
            stages = [tracker.getStageInfo(i) for i in tracker.getActiveStageIds()]
            running = sum(stage.numActiveTasks for stage in stages if stage)
            time.sleep(0.05)
        time.sleep(1)
        assert running and not future.done(), "nothing is being read: the fault would come too early or too late"
        yield future


@pytest.mark.soak
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_broker_killed_in_the_middle_of_a_fetch(
    spark: SparkSession, broker: Broker, tmp_path: Path, comes_back: bool
) -> None:
    """Back again in time, the load continues and has each message once; else it fails in words and leaves nothing."""
    topic, out = f"killed_{comes_back}", tmp_path / "log"
    recording = load(spark, str(golden(OPEN)))
    create_topic(spark, broker, topic, 4)
    produce(recording.messages, broker, topic)
    waits_ms = "60000" if comes_back else "4000"
    patience = {"kafkaConsumer.pollTimeoutMs": waits_ms, "kafka.default.api.timeout.ms": waits_ms}
    patience["kafka.request.timeout.ms"] = "3000"
    log = load(spark, broker.url(topic), options=SMALL_FETCHES | patience)
    with slowed(spark, broker, 30_000), reading(spark, lambda: log.materialise(str(out))) as load_of_it:
        broker.kill()
        begun = time.monotonic()
        try:
            if not comes_back:
                with pytest.raises(SourceError, match="stopped answering"):
                    load_of_it.result(timeout=120)
                assert time.monotonic() - begun < 60 and not out.exists()
        finally:
            broker.start()
        if comes_back:
            kept = load_of_it.result(timeout=180)
            assert (kept.counts.messages, kept.gaps) == (1470, ())
            assert kept.decoded.count() == load(spark, str(golden(OPEN))).decoded.count()
    assert placed(load(spark, broker.url(topic)).messages) == placed(recording.messages)


@pytest.mark.soak
def test_the_leader_of_a_partition_dies_while_it_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """Another broker of three leads then: a load and an ingest continue, and each message is there once."""
    recording = load(spark, str(golden(OPEN))).messages
    with cluster(tmp_path / "brokers") as brokers:
        url = f"kafka://{','.join(f'127.0.0.1:{b.plain}' for b in brokers)}/led"
        create_topic(spark, brokers[0], "led", 4, copies=3)
        produce(recording, brokers[0], "led")
        alive = brokers[0]

        def kill_the_leader() -> Broker:
            node = leader_of(spark, alive, "led", 0)
            brokers[node - 1].kill()
            end = time.monotonic() + 60
            other = next(b for b in brokers if b.node != node)
            while leader_of(spark, other, "led", 0) == node and time.monotonic() < end:
                time.sleep(0.2)
            assert leader_of(spark, other, "led", 0) != node
            brokers[node - 1].start()
            return other

        log = load(spark, url, options=SMALL_FETCHES)
        with slowed(spark, alive, 20_000), reading(spark, lambda: log.materialise(str(tmp_path / "log"))) as work:
            alive = kill_the_leader()
            kept = work.result(timeout=240)
        assert (kept.counts.messages, kept.gaps) == (1470, ())
        assert placed(load(spark, url).messages) == placed(recording)
        out, bounded = str(tmp_path / "out"), SMALL_FETCHES | {"maxOffsetsPerTrigger": "700"}
        with (
            slowed(spark, alive, 20_000),
            reading(spark, lambda: ingest(spark, url, out, once=True, options=bounded)) as work,
        ):
            kill_the_leader()
            work.result(timeout=400)
        assert_batch_answers(Tables(spark, out), load(spark, url).messages, kept.events, kept.quarantine)


@pytest.mark.soak
def test_ten_thousand_partitions(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """They are listed and loaded, few messages in each hundredth of them, in bounded time."""
    create_topic(spark, broker, "wide", 5_000)
    add_partitions(spark, broker, "wide", 10_000)  # more at once than Kafka makes in one step
    rows = load(spark, str(golden(OPEN))).messages.where("partition = 0 AND offset < 100")
    produce(rows.withColumn("partition", (F.col("offset") * 100).cast("int")), broker, "wide")
    begun = time.monotonic()
    log = load(spark, broker.url("wide"))
    kept = log.materialise(str(tmp_path / "log"), images=False)
    assert kept.counts is not None and (kept.counts.messages, kept.gaps) == (100, ())
    assert time.monotonic() - begun < 600


def test_headers_may_hold_anything(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """No value, keys that no UTF-8 is, a key many times, hundreds of them: the message is read as without them."""
    create_topic(spark, broker, "headers", 1)
    jvm = spark._jvm
    assert jvm is not None
    text = "org.apache.kafka.common.serialization.ByteArraySerializer"
    given = {"bootstrap.servers": f"127.0.0.1:{broker.plain}", "key.serializer": text, "value.serializer": text}
    producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(given)
    some = load(spark, str(golden(OPEN))).messages.where("partition = 0").head(4)
    keys, values = ([bytes(row[name]) for row in some] for name in ("key", "value"))
    try:
        for n, (key, value) in enumerate(zip(keys, values, strict=True)):
            record = jvm.org.apache.kafka.clients.producer.ProducerRecord("headers", bytearray(key), bytearray(value))
            for i in range((1, 3, 600, 1)[n]):
                name = ("none", "twice", f"many {i}", "\u202e<img src=x onerror=alert(1)>\x00" * 999)[n]
                record.headers().add(name, None if n == 0 else bytearray(b"\xff\xfe\x00" * (i + 1)))
            producer.send(record).get()
    finally:
        producer.close(jvm.java.time.Duration.ofSeconds(1))
    log = load(spark, broker.url("headers"))
    assert log.messages.schema.names == MESSAGES.names
    found = log.messages.orderBy("offset").toArrow().to_pylist()
    assert [m["value"] for m in found] == values
    kept = log.materialise(str(tmp_path / "log"))
    assert kept.counts is not None and (kept.counts.messages, kept.counts.quarantined) == (4, 0)
    ingest(spark, broker.url("headers"), str(tmp_path / "lake"), once=True)
    there = Tables(spark, str(tmp_path / "lake")).read("messages").orderBy("offset").toArrow().to_pylist()
    assert [m["headers"] for m in there] == [m["headers"] for m in found]
