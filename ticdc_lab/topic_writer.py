"""Messages to where a topic can be read again: a capture file, Parquet, Delta, or Kafka itself."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab import errors
from ticdc_lab.errors import SourceError, TiCDCLabError
from ticdc_lab.export import is_lines, write
from ticdc_lab.schema import MESSAGES, require_columns
from ticdc_lab.sources import kafka

_SAID = re.compile(r"ticdc_lab\.errors\.(\w+): (.+)")
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE|\n|$)")


def write_topic(messages: DataFrame, out: str) -> None:
    """Write the messages of a topic.

    Parameters
    ----------
    messages
        :data:`ticdc_lab.schema.MESSAGES`.
    out
        ``*.jsonl``, ``*.jsonl.gz``: a capture file, key and value in base64. ``*.parquet`` or another path: a folder
        of Parquet files, or a Delta table. ``kafka://host:port[,host:port]/topic``: a Kafka topic, whatever topic the
        messages name; it must have as many partitions as they use. Kafka counts the offsets itself, from where the
        topic ends. A task that fails and is tried again repeats messages, as TiCDC does after a restart.

    Raises
    ------
    SourceError
        ``out`` cannot be written.
    DispatchError, ProtocolError
        A row cannot be dispatched or encoded.
    """
    require_columns(messages, *MESSAGES.names, frame="messages")
    try:
        if kafka.is_kafka(out):
            _to_kafka(messages, out)
        else:
            write(_as_lines(messages) if is_lines(out) else messages, out)
    except PySparkException as e:
        raise _said_in_a_task(e) or e from e


def kafka_address(out: str) -> tuple[str, str]:
    """Bootstrap servers and topic of ``kafka://host:port[,host:port]/topic``.

    Raises
    ------
    SourceError
        It has another form.
    """
    topics = kafka.topics_of(out)
    if len(topics.names) != 1:
        raise SourceError(f"{out} names {len(topics.names)} topics.", hint="Write kafka://HOST:PORT/TOPIC.")
    return topics.brokers, topics.names[0]


def _to_kafka(messages: DataFrame, out: str) -> None:
    servers, topic = kafka_address(out)
    # one request in flight keeps the order of a partition when the producer tries again
    options = {
        "kafka.bootstrap.servers": servers, "topic": topic, "kafka.acks": "all",
        "kafka.max.in.flight.requests.per.connection": "1",
    }  # fmt: skip
    try:
        messages.select("partition", "key", "value").write.format("kafka").options(**options).save()
    except PySparkException as e:
        if "Failed to find" in str(e) and "kafka" in str(e):
            raise SourceError(
                f"{out}: this Spark session has no Kafka connector.",
                hint="Start it with the spark-sql-kafka-0-10 package of its own Spark version, or write a file.",
            ) from e
        raise


def _as_lines(messages: DataFrame) -> DataFrame:
    """In the capture format: Spark's JSON writes binary in base64, and a timestamp is a number of milliseconds."""
    return messages.withColumn("timestamp", F.unix_millis("timestamp"))


def _said_in_a_task(e: PySparkException) -> TiCDCLabError | None:
    """The error that a task raised on purpose, out of the trace that Spark makes of it."""
    text = str(e)
    if found := _RAISED.search(text):
        return errors.DispatchError(found[1])
    if (found := _SAID.search(text)) and isinstance(kind := getattr(errors, found[1], None), type):
        return kind(found[2].strip())  # type: ignore[no-any-return]
    return None
