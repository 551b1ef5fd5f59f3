"""Messages are sent to a topic without Java, each partition in its order; what keeps them out is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import engines
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame
from topics import mock_cluster, numbered, send

from ticdc_lab.cli import main
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.errors import NoTopicError, SourceError
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.sources.kafka import topics_of
from ticdc_lab.sources.kafka_reading import TopicReader
from ticdc_lab.sources.kafka_writing import _send, write_messages


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Give the address of a cluster in this process."""
    with mock_cluster() as at:
        yield at


def made(servers: str, topic: str) -> str:
    """The address of a topic of four partitions; the last has a message: writing creates none."""
    send(servers, topic, [{"partition": 3, "key": None, "value": b"first"}])
    return f"kafka://{servers}/{topic}"


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Messages with offsets in their order."""
    whole = [{"topic": "any", "offset": i, "timestamp": None, "headers": []} | row for i, row in enumerate(rows)]
    return pa.RecordBatch.from_pylist(whole, arrow_schema(MESSAGES))


def there(source: str) -> list[dict[str, Any]]:
    """What a topic has, by partition and offset."""
    with TopicReader(topics_of(source)) as reader:
        spans = reader.spans()
        starts, ends = ({at: span[i] for at, span in spans.items()} for i in (0, 1))
        rows = [row for found in reader.batches(starts, ends) for row in found.to_pylist()]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def test_each_partition_keeps_its_order_with_keys_nulls_headers_and_times(servers: str) -> None:
    """What has a time keeps it; what was sent is counted."""
    source, rows = made(servers, "written"), numbered(500, 2)
    rows[2] |= {"value": None, "headers": [{"key": "h", "value": b"1"}], "timestamp": 1_700_000_000_000_000}
    with TopicReader(topics_of(source)) as reader:
        places = set(reader.places())
    some = batch(rows)
    [counts] = _send(iter([some.slice(0, 100), some.slice(100)]), topics_of(source), places)
    assert counts.to_pydict() == {"partition": [0, 1], "messages": [250, 250]}
    found = there(source)
    for partition in (0, 1):
        own = [(m["key"], m["value"]) for m in found if m["partition"] == partition]
        assert own == [(r["key"], r["value"]) for r in rows if r["partition"] == partition]
    assert found[1]["headers"] == [{"key": "h", "value": b"1"}]
    assert found[1]["timestamp"].timestamp() == 1_700_000_000


def test_a_partition_that_the_topic_does_not_have_is_named(servers: str) -> None:
    """Before librdkafka waits for it."""
    topics = topics_of(made(servers, "narrow"))
    with pytest.raises(SourceError, match="1 partitions; the messages use partition 1"):
        list(_send(iter([batch(numbered(2, 2))]), topics, {("narrow", 0)}))


def test_a_workload_is_written_into_a_topic_without_java(servers: str) -> None:
    """The tasks of the embedded engine reach no network: this process sends for them, and a refusal comes back."""
    source = made(servers, "bank")
    told = ["workload", "bank", "--rows", "1000", "--json", "--out", source, "--partitions"]
    with engines.using("embedded"):
        ran, refused = (CliRunner().invoke(main, [*told, n], obj=engines.session_of("embedded")) for n in ("3", "5"))
    assert ran.exit_code == 0, ran.output
    n = json.loads(ran.stdout)["written"]
    assert n > 1000 and len(there(source)) >= n + 1
    assert "has 4 partitions; the messages use partition 4" in refused.output


def test_a_topic_that_is_not_there_is_refused_with_the_command_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing creates no topic; that its name may be misspelled is the hint of readers."""

    def places(_: TopicReader) -> None:
        raise NoTopicError("b:9092 has no topic t", hint="Check the name")

    monkeypatch.setattr(TopicReader, "places", places)
    with pytest.raises(NoTopicError, match="b:9092 --create --topic t --partitions N"):
        write_messages(cast("DataFrame", None), topics_of("kafka://b:9092/t"))
