"""Messages to where a topic can be read again: a capture file, Parquet, Delta, or Kafka itself."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.encode.export import is_lines, write
from ticdc_lab.engine.failures import said_in_a_task
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.schema import MESSAGES, require_columns
from ticdc_lab.sources import kafka
from ticdc_lab.sources.places import is_kafka

_RAISED = re.compile(r"(?:\[USER_RAISED_EXCEPTION\] |(?=A row cannot be dispatched))(.*?)(?: SQLSTATE|\n|$)")
"""Spark marks what an expression raises; the embedded engine passes on the text alone."""


def write_topic(messages: DataFrame, out: str, *, options: Mapping[str, str] | None = None) -> None:
    """Write the messages of a topic.

    Parameters
    ----------
    messages
        :data:`ticdc_lab.events.schema.MESSAGES`.
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
        if is_kafka(out):
            kafka.write_batch(messages, kafka.topics_of(out, options))
        else:
            write(_as_lines(messages) if is_lines(out) else messages, out)
    except PySparkException as e:
        raise _refused(e) or said_in_a_task(e) or e from e


def _as_lines(messages: DataFrame) -> DataFrame:
    """In the capture format: Spark's JSON writes binary in base64, and a timestamp is a number of milliseconds."""
    return messages.withColumn("timestamp", F.unix_millis("timestamp"))


def _refused(e: PySparkException) -> DispatchError | None:
    """What an expression of the engine raised on purpose."""
    found = _RAISED.search(str(e))
    return None if found is None else DispatchError(found[1])
