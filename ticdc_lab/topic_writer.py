"""Messages to where a topic can be read again: a capture file, Parquet, Delta, or Kafka itself."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab import errors
from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.export import is_lines, write
from ticdc_lab.schema import MESSAGES, require_columns
from ticdc_lab.sources import kafka

_SAID = re.compile(r"ticdc_lab\.errors\.(\w+): (.+)")
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE|\n|$)")


def write_topic(messages: DataFrame, out: str, *, options: Mapping[str, str] | None = None) -> None:
    """Write the messages of a topic.

    Parameters
    ----------
    messages
        :data:`ticdc_lab.schema.MESSAGES`.
    out
        ``*.jsonl``, ``*.jsonl.gz``: a capture file, key and value in base64. ``*.parquet`` or another path: a folder
        of Parquet files, or a Delta table. ``kafka://host:port[,host:port]/topic``: a Kafka topic, whatever topic the
        messages name (:func:`ticdc_lab.sources.kafka.write_batch`); it must have as many partitions as they use.
    options
        For Kafka: settings of Spark's connector. Their values are in no error's text.

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
            kafka.write_batch(messages, kafka.topics_of(out, options))
        else:
            write(_as_lines(messages) if is_lines(out) else messages, out)
    except PySparkException as e:
        raise _said_in_a_task(e) or e from e


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
