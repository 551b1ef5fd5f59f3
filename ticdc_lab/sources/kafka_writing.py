"""Messages sent to a topic of Kafka through librdkafka, by the tasks of either engine: no Java client is needed."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import partial
from io import BufferedRWPair
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from ticdc_lab.engine.failures import task_errors
from ticdc_lab.engine.sessions import is_sail
from ticdc_lab.engine.shuffle import Kernel, by_key
from ticdc_lab.errors import NoTopicError, SourceError
from ticdc_lab.events.arrays import Batches
from ticdc_lab.sources.kafka import Topics
from ticdc_lab.sources.kafka_reading import Place, TopicReader, library
from ticdc_lab.sources.kafka_relay import BATCH, END, listening, next_part, part
from ticdc_lab.sources.kafka_settings import PREFIX, WRITING

SENT = "partition int, messages bigint"
_COUNTS = pa.schema([("partition", pa.int32()), ("messages", pa.int64())])

_DELIVERED_WITHIN_MS = "30000"
_WAIT_S = 0.1


def write_messages(messages: DataFrame, topics: Topics) -> None:
    """Send messages to their partitions of a topic that is there, each partition in the order of its offsets.

    Kafka counts the offsets itself, from where the topic ends. A task that fails and is tried again repeats messages,
    as TiCDC does after a restart.

    ``messages``: :data:`ticdc_lab.events.schema.MESSAGES`; their topic is not looked at. ``topics``: one topic; its
    options are settings of Kafka's Java clients, ``kafka.*``. Raises SourceError: the topic cannot be written, there
    are several, or it has fewer partitions than the messages use.
    """
    if len(topics.names) != 1:
        raise SourceError(f"{topics.source} names {len(topics.names)} topics; expected one to write to.")
    try:
        with TopicReader(topics) as reader:
            places = set(reader.places())
    except NoTopicError as error:
        create = (
            f"kafka-topics.sh --bootstrap-server {topics.brokers} --create --topic {topics.names[0]} --partitions N"
        )
        raise NoTopicError(error.message, hint=f"Writing creates no topic. Create it first: {create}") from None
    rows = messages.select("partition", "offset", "timestamp", "key", "value", "headers")
    send = partial(_send, topics=topics, places=places)
    if is_sail(messages.sparkSession):  # its tasks reach no network
        send = partial(_hand_over, path=listening(partial(_take_over, send=send), topics.source))
    with task_errors():
        by_key(rows, "partition", send, SENT, order=["offset"]).collect()


def _hand_over(batches: Batches, path: str) -> Batches:
    """Let the process at the other end of a socket send the messages."""
    first = next(batches, None)
    if first is None:
        return
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as client:
        client.connect(path)
        contents = chain([first.schema], chain([first], batches))
        with suppress(OSError):  # the other side has stopped reading: its error follows
            for piece in chain.from_iterable(part(BATCH, content.serialize()) for content in contents):
                client.sendall(piece)
            client.sendall(part(END, b"")[0])
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as stream:
            yield pa.RecordBatch.from_pydict(json.loads(next_part(stream)[1]), _COUNTS)


def _take_over(stream: BufferedRWPair, send: Kernel) -> None:
    """Send what a task hands over, and answer how many messages each partition took."""

    def rows() -> Batches:
        schema = pa.ipc.read_schema(pa.py_buffer(next_part(stream)[1]))
        while (read := next_part(stream))[0] == BATCH:
            yield pa.ipc.read_record_batch(pa.py_buffer(read[1]), schema)

    stream.writelines(part(END, json.dumps(next(send(rows())).to_pydict()).encode()))


def _send(batches: Batches, topics: Topics, places: set[Place]) -> Batches:
    """Send each partition's messages in their order; how many each took."""
    sent = Counter[int]()
    with TopicReader(topics) as connection:
        own = {name: value for name in WRITING if (value := topics.options.get(PREFIX + name)) is not None}
        # one request in flight keeps the order, also when the producer tries again
        ours = {
            "acks": "all",
            "max.in.flight.requests.per.connection": "1",
            "delivery.timeout.ms": _DELIVERED_WITHIN_MS,
        }
        producer = connection.made(library().Producer, ours | connection.settings | own)
        failed: list[str] = []

        def heard(error: Any, _: object) -> None:
            if error is not None:
                failed.append(str(error))

        for batch in batches:
            for row in batch.to_pylist():
                if (topics.names[0], row["partition"]) not in places:
                    raise SourceError(
                        f"{topics.source} has {len(places)} partitions; the messages use partition {row['partition']}.",
                        hint=f"Create the topic with more partitions, or write with --partitions {len(places)}",
                    )
                _produce(connection, producer, topics.names[0], row, heard)
                sent[row["partition"]] += 1
                _raise_first(connection, failed)
        until = time.monotonic() + int(own.get("delivery.timeout.ms", _DELIVERED_WITHIN_MS)) / 1000
        while producer.flush(_WAIT_S):
            _raise_first(connection, failed)
            if time.monotonic() > until:
                raise connection.explained("code=_TIMED_OUT: messages were not acknowledged")
        _raise_first(connection, failed)
    yield pa.RecordBatch.from_pydict({"partition": list(sent), "messages": list(sent.values())}, _COUNTS)


def _produce(connection: TopicReader, producer: Any, topic: str, row: Mapping[str, Any], heard: Any) -> None:
    """Hand a message to the producer; while its queue is full, let it send."""
    more: dict[str, Any] = {} if row["timestamp"] is None else {"timestamp": round(row["timestamp"].timestamp() * 1000)}
    more |= {"headers": [(h["key"], h["value"]) for h in row["headers"]]} if row["headers"] else {}
    while True:
        try:
            producer.produce(topic, row["value"], row["key"], row["partition"], on_delivery=heard, **more)
            producer.poll(0)
            return
        except BufferError:
            producer.poll(_WAIT_S)
            connection.raise_final()
        except library().KafkaException as error:
            raise connection.explained(str(error.args[0])) from None


def _raise_first(connection: TopicReader, failed: list[str]) -> None:
    """Raise for a message that was not delivered, with the connection's earlier error if that has the cause."""
    connection.raise_final()
    if failed:
        raise connection.explained(failed[0])
