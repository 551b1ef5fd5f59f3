"""From a recorded topic to the events table."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.codecs import decoder, detect
from ticdc_lab.errors import ProtocolError, SourceError
from ticdc_lab.gaps import offset_gaps
from ticdc_lab.schema import DECODED, EVENTS, KEYS, QUARANTINE
from ticdc_lab.sources import Source, local_path, open_source, parquet, verbatim
from ticdc_lab.workers import require_workers_once

SAMPLE = 256
"""Messages looked at to tell the protocol."""

_LOST = (
    "{n} messages could not be read (see the quarantine): what they held is missing from every answer, so what is "
    "called complete or whole is so but for them. A damaged gzip file counts as one, whatever came after the damage."
)
_UNDATED = (
    "{n} row changes of this log carry no commit_ts, though others do: they count as rows, but no transaction, "
    "watermark or check of order can say anything about them."
)
_LACKS = (
    "Partition {partition} of {topic} lacks {n_missing} of the offsets that were to be read, in {gaps} places "
    "({which}): compacted or expired in the broker, or never kept. What they held is missing from every answer."
)
_GAPS_SAID = 5

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Counts:
    """What a load read: messages = decoded + quarantined, checked batch by batch while decoding."""

    messages: int
    decoded: int
    quarantined: int
    events: int
    undated: int = 0
    """Row changes without a commit_ts."""


@dataclass(frozen=True, slots=True)
class ChangeLog:
    """A loaded change log. Its frames are lazy; :meth:`materialise` decodes once and keeps the result.

    Attributes
    ----------
    source, protocol
        What was loaded, as what.
    has_commit_ts
        Whether the protocol carries commit_ts here (canal-json only with ``enable-tidb-extension``).
    messages
        :data:`ticdc_lab.schema.MESSAGES`.
    decoded
        :data:`ticdc_lab.schema.DECODED`.
    narrow
        ``decoded`` without the images, at a third of the cost; None where it would be no cheaper.
    counts
        Known once materialised.
    """

    source: str
    protocol: str
    has_commit_ts: bool
    messages: DataFrame
    decoded: DataFrame
    narrow: DataFrame | None = None
    counts: Counts | None = None
    gaps: tuple[str, ...] = ()
    """Which offsets a Kafka topic no longer had, one sentence a partition; known once materialised."""
    _seen: tuple[Observation, DataFrame] | None = None
    _source: Source | None = None

    @property
    def events(self) -> DataFrame:
        """The events contract (:data:`ticdc_lab.schema.EVENTS`) with the key hashes (:data:`ticdc_lab.schema.KEYS`)."""
        return self.decoded.where("error_class IS NULL").select(*EVENTS.names, *KEYS.names)

    @property
    def quarantine(self) -> DataFrame:
        """:data:`ticdc_lab.schema.QUARANTINE`: every message that could not be decoded, with the reason."""
        return self.decoded.where("error_class IS NOT NULL").select(*QUARANTINE.names)

    @property
    def limits(self) -> tuple[str, ...]:
        """What this log cannot prove, one sentence each; empty if there is nothing to say."""
        n = self.counts
        lost = (_LOST.format(n=n.quarantined),) if n is not None and n.quarantined else ()
        undated = (_UNDATED.format(n=n.undated),) if n is not None and n.undated else ()
        if self.has_commit_ts:
            return (*self.gaps, *lost, *undated)
        return (
            *self.gaps,
            *lost,
            "canal-json without enable-tidb-extension carries no commit_ts and no watermark: how far the log is "
            "complete, which transactions are whole and whether rows are in commit order cannot be proved from it.",
        )

    def require_commit_ts(self, answer: str) -> None:
        """Raise :class:`ProtocolError` if ``answer`` needs commit_ts and the log has none."""
        if not self.has_commit_ts:
            raise ProtocolError(
                f"{self.source}: {answer} cannot be computed. {self.limits[-1]}",
                hint="Create the changefeed with `enable-tidb-extension=true` in its sink-uri and record again.",
            )

    def require_events(self) -> None:
        """Raise :class:`ProtocolError` if messages were read and none could be decoded; needs ``counts``."""
        n = self.counts
        if n is not None and n.quarantined and not n.decoded:
            raise ProtocolError(
                f"{self.source}: none of {n.messages} messages could be decoded as {self.protocol}, so there is "
                "nothing to answer from.",
                hint="Let --protocol auto tell the protocol, or see the reasons: ticdc-lab events --quarantine "
                "bad.parquet.",
            )

    def materialise(self, folder: str, *, images: bool = True) -> ChangeLog:
        """Decode everything once into Parquet and go on from there.

        Parameters
        ----------
        folder
            A path or URL that does not exist yet. A local one the workers write, and every worker must see it; any
            other Spark writes.
        images
            False leaves ``columns`` and ``before`` null: watermarks, transactions and most checks need only the
            hashes, and decoding costs a third then.

        Returns
        -------
        ChangeLog
            The same log, read from ``folder``, with ``counts``.

        Raises
        ------
        SourceError
            The folder is there already.
        """
        with self.reading():
            if self._source is not None and (local := local_path(folder)) is not None:
                log = self._written(self._source, local, images=images)
            else:
                counted = (self if images or self.narrow is None else replace(self, decoded=self.narrow)).counted()
                counted.decoded.write.parquet(folder)
                stored = self.decoded.sparkSession.read.schema(DECODED).parquet(folder)
                log = replace(counted._with_counts(), decoded=stored, narrow=None)
        return replace(log._with_gaps(log.decoded), _source=None)

    def reading(self) -> AbstractContextManager[None]:
        """Wrap actions on the frames in it: what Kafka's clients throw becomes a SourceError without secrets."""
        return nullcontext() if self._source is None else self._source.said_plainly()

    def _written(self, source: Source, folder: Path, *, images: bool) -> ChangeLog:
        """The workers write what they decode; only which files they wrote comes here."""
        if folder.exists():
            raise SourceError(f"{folder} is there already.", hint="Name a folder that does not exist yet.")
        folder.mkdir(parents=True)
        decode = _decoding(source, self.protocol, images=images)
        try:
            written = source.raw.mapInArrow(parquet.writing(decode, str(folder)), parquet.WRITTEN).toArrow()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        n = {name: sum(written[name].to_pylist()) for name in ("decoded", "quarantined", "events", "undated")}
        files = [
            verbatim(Path(file)) for file in sorted(written["file"].to_pylist())
        ]  # their names begin with the task
        spark = self.decoded.sparkSession
        stored = spark.read.schema(DECODED).parquet(*files) if files else spark.createDataFrame([], DECODED)
        counts = Counts(messages=n["decoded"] + n["quarantined"], **n)
        return replace(self, decoded=stored, narrow=None, counts=counts)

    def counted(self) -> ChangeLog:
        """The same log, which counts what passes through ``decoded`` the first time it is read in full.

        After that action :meth:`finished` knows the counts.
        """
        seen, ok = Observation(), F.col("error_class").isNull()
        observed = self.decoded.observe(
            seen,
            F.count_if(ok & (F.col("seq") == 0)).alias("decoded"),
            F.count_if(~ok).alias("quarantined"),
            F.count_if(ok).alias("events"),
            F.count_if(ok & (F.col("kind") == "row") & F.col("commit_ts").isNull()).alias("undated"),
        )
        return replace(self, decoded=observed, _seen=(seen, self.decoded))

    def finished(self) -> ChangeLog:
        """The log with its ``counts``, after an action on what :meth:`counted` gave."""
        return self if self._seen is None else self._with_counts()._with_gaps(self.messages)

    def _with_counts(self) -> ChangeLog:
        assert self._seen is not None
        seen, plain = self._seen
        n = seen.get
        counts = Counts(n["decoded"] + n["quarantined"], n["decoded"], n["quarantined"], n["events"], n["undated"])
        return replace(self, decoded=plain, counts=counts, _seen=None)

    def _with_gaps(self, positions: DataFrame) -> ChangeLog:
        """The log with its ``gaps``, looked for only where fewer messages came than there should be."""
        expected = None if self._source is None else self._source.expected
        if expected is None or self.counts is None:
            return self
        should = expected.agg(F.sum(F.col("end_offset") - F.col("first_offset"))).first()
        all_came = should is not None and should[0] == self.counts.messages
        return self if all_came else replace(self, gaps=_lacking(positions, expected))


def load(
    spark: SparkSession,
    source: str,
    *,
    protocol: str = "auto",
    source_kind: str = "auto",
    options: Mapping[str, str] | None = None,
) -> ChangeLog:
    """Load a recorded topic.

    Looks at up to 256 messages to tell the protocol; everything else is lazy.

    Parameters
    ----------
    spark
        The caller's session; :func:`ticdc_lab.session.local_session` makes a local one.
    source
        A capture file (JSON Lines, plain or gzip, or Parquet), a folder of them, a Delta table of messages, or
        ``kafka://HOST:PORT[,HOST:PORT]/TOPIC[,TOPIC]``, which is read from the earliest message to the latest of now.
    protocol
        ``open-protocol``, ``canal-json``, or ``auto``: told from the bytes.
    source_kind
        ``capture``, ``parquet``, ``delta``, ``kafka``, or ``auto``: told from what is there.
    options
        Settings of the source by name, for Kafka as Spark's connector has them: ``kafka.security.protocol``,
        ``kafka.sasl.jaas.config``, ``startingOffsets``. Their values are in no error's text.

    Returns
    -------
    ChangeLog
        Frames ``messages``, ``events`` and ``quarantine``.

    Raises
    ------
    SourceError
        There is nothing to read at ``source``, or its broker cannot be read from.
    ProtocolError
        The protocol cannot be told or is unknown.
    SetupError
        The session is the caller's own, and its Python workers cannot run this package.

    References
    ----------
    `design/architecture.md` sections 3 and 4; `design/protocols.md` section 1.
    """
    require_workers_once(spark)
    opened = open_source(spark, source, kind=source_kind, options=options)
    told = detect(opened.sample(SAMPLE), protocol=protocol, source=source)
    whole, narrow = (
        opened.raw.mapInArrow(_decoding(opened, told.protocol, images=images), DECODED) for images in (True, False)
    )
    return ChangeLog(source, told.protocol, told.has_commit_ts, opened.messages, whole, narrow, _source=opened)


def _lacking(decoded: DataFrame, expected: DataFrame) -> tuple[str, ...]:
    """A sentence for each partition that lacks offsets; at most as many rows as it has partitions come here."""
    each = F.concat_ws("..", "first_missing", F.when(F.col("n_missing") > 1, F.col("last_missing")))
    first = F.sort_array(F.collect_list(F.struct("first_missing", each.alias("which"))))
    found = (
        offset_gaps(decoded, expected=expected)
        .groupBy("topic", "partition")
        .agg(F.sum("n_missing").alias("n_missing"), F.count(F.lit(1)).alias("gaps"), first.alias("first"))
        .withColumn("which", F.concat_ws(", ", F.slice("first", 1, _GAPS_SAID)["which"]))
        .drop("first")
        .orderBy("topic", "partition")
    )
    return tuple(_LACKS.format(**row) for row in found.toArrow().to_pylist())


def _decoding(source: Source, protocol: str, *, images: bool) -> Callable[[Batches], Batches]:
    """Raw records to :data:`ticdc_lab.schema.DECODED`."""
    read = source.read

    def run(batches: Batches) -> Batches:
        events = decoder(protocol, images=images)
        for messages, rejected in read(batches):
            yield from events(iter((messages,)))
            if rejected is not None and rejected.num_rows:
                yield rejected

    return run
