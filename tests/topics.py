"""Topics made and filled without Java: in the suite's broker, or in librdkafka's mock cluster, which needs none."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

QUIET = {"log_level": 0}


@contextmanager
def mock_cluster(brokers: int = 1) -> Iterator[str]:
    """``HOST:PORT,..`` of a cluster in this process; it keeps the last 5 MB of each of a topic's four partitions."""
    admin = AdminClient({"bootstrap.servers": "mock", "test.mock.num.brokers": brokers, **QUIET})
    yield ",".join(f"{b.host}:{b.port}" for b in admin.list_topics(timeout=10).brokers.values())
    del admin


def create(servers: str, topic: str, partitions: int = 1, **settings: str) -> None:
    """Make an empty topic that clients see; of its ``settings`` each ``_`` is a dot."""
    config = {name.replace("_", "."): value for name, value in settings.items()}
    new = NewTopic(topic, partitions, 1, config=config)
    admin = AdminClient({"bootstrap.servers": servers, **QUIET})  # kept until it has answered
    admin.create_topics([new])[topic].result(20)
    until_seen(admin, topic, partitions)


def until_seen(admin: AdminClient, topic: str, partitions: int) -> None:
    """Wait for new partitions: the controller answers before the broker's own list has them, under load by much."""
    while (seen := admin.list_topics(timeout=20).topics.get(topic)) is None or len(seen.partitions) < partitions:
        pass


def delete(servers: str, topic: str) -> None:
    """Delete a topic; it is gone for clients, too."""
    admin = AdminClient({"bootstrap.servers": servers, **QUIET})
    admin.delete_topics([topic])[topic].result(20)
    while topic in admin.list_topics(timeout=20).topics:
        pass


def expire(servers: str, topic: str, partition: int, before: int) -> None:
    """Delete the messages of a partition before an offset, as retention does."""
    at = TopicPartition(topic, partition, before)
    admin = AdminClient({"bootstrap.servers": servers, **QUIET})
    admin.delete_records([at])[at].result(20)


def send(servers: str, topic: str, messages: Iterable[Mapping[str, Any]], **settings: str) -> None:
    """Send messages (``partition``, ``key``, ``value``, ``timestamp``) in their order, each partition without gaps."""
    producer = Producer({"bootstrap.servers": servers, "max.in.flight": "1", "acks": "all", **QUIET, **settings})
    for m in messages:
        when = {"timestamp": m["timestamp"]} if m.get("timestamp") else {}
        producer.produce(topic, partition=m["partition"], key=m["key"], value=m["value"], **when)
        producer.poll(0)
    assert producer.flush(30) == 0


def numbered(n: int, partitions: int = 1, size: int = 10) -> list[dict[str, Any]]:
    """Messages that show which they are."""
    return [
        {"partition": i % partitions, "key": None if i % 3 == 0 else b"k%d" % i, "value": b"%0*d" % (size, i)}
        for i in range(n)
    ]


def recorded(file: Path) -> list[dict[str, Any]]:
    """The messages of a capture file, by partition and offset."""
    rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    for row in rows:
        row |= {name: None if row[name] is None else base64.b64decode(row[name]) for name in ("key", "value")}
    return sorted(rows, key=lambda r: (r["partition"], r["offset"]))
