"""What only the JVM of classic Spark can do: Hadoop's file systems, Kafka's admin client, the version of Java."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ticdc_lab.engine.sessions import engine_of, has_jvm
from ticdc_lab.errors import SetupError, SourceError
from ticdc_lab.words import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATUS = re.compile(r"\w*FileStatus\{path=(.*); isDirectory=false; length=(\d+); .*", re.DOTALL)
_BETWEEN = "\x00"
"""Occurs in no path."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class HadoopFolder:
    """All files below a URL."""

    root: str  # the URL as Hadoop writes it, with a slash at its end
    files: list[tuple[str, int]]  # full path and bytes of each


def hadoop_files(spark: SparkSession, url: str) -> HadoopFolder:
    """List every file below a URL that the session's Hadoop configuration can read.

    Four calls to the JVM for any number of files: object stores list a whole prefix at once. Do not send it to
    a local file system with many files: Hadoop runs a program for each to find its owner (5 ms a file).

    Raises SetupError: the session has no JVM of its own. SourceError: nothing can be listed there.
    """
    from py4j.protocol import Py4JJavaError

    jvm = jvm_of(spark, f"Reading {url}")
    try:
        system, path = _place(spark, url)
        root = str(system.makeQualified(path).toString()).rstrip("/") + "/"
        listed = jvm.org.apache.hadoop.util.functional.RemoteIterators.toList(system.listFiles(path, True))
    except Py4JJavaError as e:
        said = first_line(str(e.java_exception.toString()))
        raise SourceError(
            f"{url} cannot be listed: {said}",
            hint="Check the URL and its credentials (`--option`, or the environment).",
        ) from e
    text = jvm.org.apache.commons.lang3.StringUtils.join(listed, _BETWEEN)
    return HadoopFolder(root, [_file(url, status) for status in text.split(_BETWEEN)] if text else [])


def hadoop_exists(spark: SparkSession, path: str) -> bool:
    """Whether a file or folder is there, on any file system of Hadoop."""
    system, place = _place(spark, path)
    return bool(system.exists(place))


def hadoop_read_text(spark: SparkSession, path: str) -> str | None:
    """Read a small UTF-8 file; None where there is none."""
    system, place = _place(spark, path)
    if not system.exists(place):
        return None
    file = system.open(place)
    try:
        return str(jvm_of(spark, f"Reading {path}").org.apache.commons.io.IOUtils.toString(file, "UTF-8"))
    finally:
        file.close()


def hadoop_write_text(spark: SparkSession, path: str, text: str) -> None:
    """Write a small file that is not there yet; who reads it finds all of it or nothing."""
    system, place = _place(spark, path)
    _, draft = _place(spark, f"{path}.new")
    file = system.create(draft, True)
    file.write(text.encode())
    file.close()
    system.rename(draft, place)


def kafka_offsets(
    spark: SparkSession, settings: Mapping[str, str], topics: Sequence[str]
) -> dict[tuple[str, int], tuple[int, int, int]]:
    """First and end offset of every partition of the topics, as the broker has them now, and where its messages end.

    Who reads what is committed is given an earlier end while a transaction is open.

    ``spark``: classic Spark with the Kafka connector. ``settings``: of Kafka's admin client, ``bootstrap.servers``
    among them. ``topics``: their names. Raises SetupError: the session has no JVM, or the JVM no Kafka connector.
    Exception: what Kafka's client throws comes as it is.
    """
    jvm = jvm_of(spark, "Reading Kafka")
    if not jvm.org.apache.spark.util.Utils.classIsLoadable("org.apache.spark.sql.kafka010.KafkaSourceProvider"):
        raise SetupError(
            "This Spark session has no Kafka connector.",
            hint="Start it with spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:"
            f"{spark.version}, or use ticdc_lab.session('spark').",
        )
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(dict(settings))
    try:
        described = admin.describeTopics(list(topics)).allTopicNames().get()
        at = [(name, p.partition()) for name in sorted(described) for p in described[name].partitions()]
        spec = jvm.org.apache.kafka.clients.admin.OffsetSpec
        places = [jvm.org.apache.kafka.common.TopicPartition(*one) for one in at]
        level = jvm.org.apache.kafka.common.IsolationLevel
        committed = settings.get("isolation.level") == "read_committed"
        read = level.READ_COMMITTED if committed else level.READ_UNCOMMITTED
        options = jvm.org.apache.kafka.clients.admin.ListOffsetsOptions
        newest, first, end = (  # the newest before: what comes meanwhile is no open transaction
            admin.listOffsets(dict.fromkeys(places, which), options(how)).all().get()
            for which, how in (
                (spec.latest(), level.READ_UNCOMMITTED), (spec.earliest(), read), (spec.latest(), read)
            )
        )  # fmt: skip
        return {
            one: (first[p].offset(), end[p].offset(), newest[p].offset()) for one, p in zip(at, places, strict=True)
        }
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(1))


def java_version(spark: SparkSession) -> str | None:
    """Version of the Java in which the session's driver runs; None where it has none of its own."""
    return str(jvm_of(spark, "").java.lang.System.getProperty("java.version")) if has_jvm(spark) else None


def jvm_of(spark: SparkSession, what: str) -> Any:
    """The JVM of a session; if it has none, the error names ``what`` needs it."""
    if not has_jvm(spark):
        raise SetupError(
            f"{what} needs Apache Spark in this process, but the session is {engine_of(spark)}.",
            hint="Run it with --engine spark, without SPARK_REMOTE; in Python: ticdc_lab.session('spark').",
        )
    return spark.sparkContext._jvm


def _place(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Hadoop's file system of a path, and the path in it."""
    place = jvm_of(spark, f"Reading {path}").org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), place


def _file(url: str, status: str) -> tuple[str, int]:
    if not (found := _STATUS.fullmatch(status)):
        raise SourceError(f"{url}: the file system describes a file in an unknown form: {status[:200]}")
    return found[1], int(found[2])
