"""What lies at a path, a topic or a table, and what reading it takes, before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.codecs.table_file import DEFAULTS, StorageSettings
from ticdc_lab.engine import speeds
from ticdc_lab.engine.running import seconds
from ticdc_lab.errors import SourceError
from ticdc_lab.events.tso import to_datetime
from ticdc_lab.settings import UNKNOWN, Settings
from ticdc_lab.sources.change_log import ChangeLog, decoding_step
from ticdc_lab.sources.forms import CONNECT, FORMS
from ticdc_lab.sources.load import load
from ticdc_lab.sources.places import Size
from ticdc_lab.sources.topic_overview import Overview

HEAD = 1_000
"""Messages looked at in each part of a source that a task reads."""

LARGE_S = 60.0
"""What takes longer to read than so many seconds is offered as a sample first."""

LARGE = 3_000_000
"""So many messages are offered as a sample first where no log of that size was read on this machine before."""

_BYTES = ("bytes", "KB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class Found:
    """What a source is.

    Attributes
    ----------
    log
        The log, not read yet.
    source_kind
        One of :data:`ticdc_lab.sources.KINDS`.
    size
        Bytes and messages, and how that is known.
    seen
        Messages that were looked at.
    partitions, tables
        Those of the events seen, the tables with most row changes first: there may be others.
    first_ts, last_ts
        Least and greatest commit_ts (TSO) seen; None where the log has none. The log may go on after it.
    load_s
        Seconds that logs of about this size, protocol and engine took on this machine before; None where none was
        read (:mod:`ticdc_lab.engine.speeds`).
    rows_seen
        Row changes of each of ``tables`` among the messages that were looked at.
    strangers
        That files here begin with messages of another protocol, one sentence.
    overview
        What a broker has of a topic; None of other sources, and on Spark.
    """

    log: ChangeLog
    source_kind: str
    size: Size
    seen: int
    partitions: tuple[int, ...]
    tables: tuple[str, ...]
    first_ts: int | None
    last_ts: int | None
    load_s: float | None
    rows_seen: tuple[int, ...] = ()
    strangers: tuple[str, ...] = ()
    overview: Overview | None = None

    @property
    def protocol(self) -> str:
        """The protocol told from the bytes, or named."""
        return self.log.protocol

    @property
    def is_whole(self) -> bool:
        """Whether all of it was looked at."""
        return self.size.messages is not None and self.size.is_exact and self.seen >= self.size.messages

    @property
    def is_large(self) -> bool:
        """Whether a sample should be looked at first: it takes more than :data:`LARGE_S`, or has :data:`LARGE`."""
        if self.load_s is not None:
            return self.load_s > LARGE_S
        return self.size.messages is None or self.size.messages > LARGE

    @property
    def words(self) -> str:
        """What was found, in two sentences."""
        about = "" if self.size.is_exact else "about "
        n, b = self.size.messages, self.size.bytes
        size = [f"{about}{n:,} messages ({self.size.how})" if n is not None else f"messages: {self.size.how}"]
        size += [_bytes(b)] if b is not None else []
        if self.overview is not None and self.overview.bytes is not None:
            size += [f"about {_bytes(self.overview.bytes)}"]
        tables = f"{_some('table', self.tables)} and {_some('partition', tuple(map(str, self.partitions)))}"
        span = "" if self.first_ts is None else f", from {_at(self.first_ts)}"
        return f"{_KINDS[self.source_kind]} in {self.protocol}: {', '.join(size)}. Seen so far: {tables}{span}."

    @property
    def unknown(self) -> tuple[str, ...]:
        """What a look does not tell, one sentence each."""
        if self.is_whole:
            return (*self.strangers, *self.log.left_out)
        said = f"Only the first {self.seen:,} messages were read: later ones may have other tables and a later time."
        return (*self.strangers, said, *self.log.limits)

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do next, one sentence each."""
        if self.strangers:
            return ("Put the files of each kind into a folder of their own, and look at each folder again.",)
        how_long = (
            "Nothing like it was read on this machine yet, so how long reading it takes is not known"
            if self.load_s is None
            else f"Reading it takes about {seconds(self.load_s)}, as such logs did here before"
        )
        if not self.is_large:
            return (f"Read all of it. {how_long}.",)
        by_time = " or a window of time" if self.first_ts is not None else ""
        first = f"{how_long}. Look at a sample first: some tables{by_time}."
        kept = "A sample is decoded as a whole but kept in part: every answer after that is quicker."
        topic = (
            "Of a topic the broker can leave out what came before (option startingTimestamp, milliseconds); what was "
            "left out so is not known to the answers."
        )
        return (first, kept, *((topic,) if self.source_kind == "kafka" else ()))

    @property
    def flags(self) -> str:
        """How the command line is told of such a sample."""
        by_time = f" --from '{_at(self.first_ts)}' --to .." if self.first_ts is not None else ""
        return f"--tables {next(iter(self.tables), 'SCHEMA.TABLE')}{by_time}"

    def facts(self) -> dict[str, object]:
        """The same for a program."""
        return {
            "source": self.log.source, "source_kind": self.source_kind, "protocol": self.protocol,
            "has_commit_ts": self.log.has_commit_ts, "bytes": self.size.bytes, "messages": self.size.messages,
            "messages_exact": self.size.is_exact, "seen": self.seen, "tables": self.tables,
            "partitions": self.partitions, "first_ts": self.first_ts, "last_ts": self.last_ts,
            "load_ms": None if self.load_s is None else round(1000 * self.load_s), "unknown": self.unknown,
        } | ({} if self.overview is None else {"topic": self.overview.facts()})  # fmt: skip


def survey(
    spark: SparkSession,
    source: str,
    *,
    protocol: str = "auto",
    source_kind: str = "auto",
    schema_registry: str | None = None,
    claim_check: str | None = None,
    settings: StorageSettings = DEFAULTS,
    options: Mapping[str, str] | None = None,
    changefeed: Settings | str | Path = UNKNOWN,
) -> Found:
    """Find out what a source is and what reading it takes; it reads the first messages of each part.

    Parameters
    ----------
    spark, source, protocol, source_kind, schema_registry, claim_check, settings, options, changefeed
        As for :func:`ticdc_lab.sources.load.load`.

    Returns
    -------
    Found
        What it is, what a look does not tell, and what to do next.

    Raises
    ------
    SourceError, ProtocolError, SetupError
        As :func:`ticdc_lab.sources.load.load`.
    """
    if not source.strip():
        raise SourceError("No source is named.", hint="Give a path, kafka://HOST:PORT/TOPIC, or the name of a table.")
    log = load(
        spark, source, protocol=protocol, source_kind=source_kind, schema_registry=schema_registry,
        claim_check=claim_check, settings=settings, options=options, changefeed=changefeed,
    )  # fmt: skip
    with log.reading():
        size, overview = log.size(), log.overview()
        held = log.heads(HEAD).transform(_held).toArrow()
    rows = _rows_by_table(held)
    return Found(
        log=log,
        source_kind=log.source_kind,
        size=size,
        seen=pc.sum(held["messages"]).as_py() or 0,
        partitions=tuple(pc.unique(held["partition"].drop_null()).sort().to_pylist()),
        tables=tuple(rows),
        rows_seen=tuple(rows.values()),
        first_ts=pc.min(held["first_ts"]).as_py(),
        last_ts=pc.max(held["last_ts"]).as_py(),
        load_s=_load_s(spark, log, size),
        strangers=log.strangers_at_heads(),
        overview=overview,
    )


def _held(heads: DataFrame) -> DataFrame:
    """Give a row for each table and partition: what there is of it among the events."""
    ts = F.when(F.col("kind").isin("row", "ddl"), F.col("commit_ts"))
    is_event = F.col("error_class").isNull()
    rows, messages = F.count_if(F.col("kind") == "row"), F.count_if((F.col("seq") == 0) & is_event)
    return heads.groupBy("schema_name", "table_name", "partition").agg(
        rows.alias("rows"),
        messages.alias("messages"),
        F.min(ts).alias("first_ts"),
        F.max(ts).alias("last_ts"),
    )


def _load_s(spark: SparkSession, log: ChangeLog, size: Size) -> float | None:
    if size.messages is None:
        return None
    return speeds.expected_s(decoding_step(spark, log.protocol, log.source_kind), size.messages)


def _rows_by_table(held: pa.Table) -> dict[str, int]:
    rows = held.filter(pc.greater(held["rows"], 0)).group_by(["schema_name", "table_name"]).aggregate([("rows", "sum")])
    counted = sorted(rows.to_pylist(), key=lambda r: (-r["rows_sum"], r["schema_name"], r["table_name"]))
    return {f"{r['schema_name']}.{r['table_name']}": r["rows_sum"] for r in counted}


_KINDS = {
    "capture": "Capture files", "parquet": "Parquet files", "delta": "A Delta table", "table": "A table",
    "storage": "A storage sink's folder", "kafka": "A Kafka topic", CONNECT: "A folder of Kafka Connect", **FORMS,
}  # fmt: skip


def _some(what: str, names: tuple[str, ...], most: int = 6) -> str:
    if not names:
        return f"no {what}"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)} {what}{'' if len(names) == 1 else 's'} ({', '.join(names[:most])}{more})"


def _bytes(n: float) -> str:
    i = 0
    while n >= 1000 and i < len(_BYTES) - 1:
        n, i = n / 1000, i + 1
    return f"{n:.0f} {_BYTES[i]}" if i == 0 or n >= 100 else f"{n:.1f} {_BYTES[i]}"


def _at(ts: int | None) -> str:
    return "" if ts is None else f"{to_datetime(ts):%Y-%m-%d %H:%M:%S} UTC"
