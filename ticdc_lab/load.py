"""From a recorded topic to the events table."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.codecs import NOTHING, Known, decoder, detect
from ticdc_lab.codecs.csv_settings import DEFAULTS, StorageSettings
from ticdc_lab.codecs.schema_registry import read_schemas, require_url
from ticdc_lab.codecs.simple import Version
from ticdc_lab.codecs.simple_tables import TABLES, finder, tables_of
from ticdc_lab.errors import ProtocolError, SourceError
from ticdc_lab.gaps import offset_gaps
from ticdc_lab.schema import CHECKSUMS, DECODED, DISPATCH, EVENTS, IMAGE_HASHES, KEYS, QUARANTINE
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

_INCOMPLETE = (
    "{n} row changes of this log are incomplete (events say why in `incomplete`): columns, the image before, the "
    "commit_ts or the kind of change may be missing from them, so values and duplicates among them prove less."
)
_UNMARKED = (
    "This avro log holds no watermark, as TiCDC writes none in avro: how far it is complete and which transactions are "
    "whole cannot be proved from it."
)

_EXTENDED = ("canal-json", "avro")
_EXTEND = "with `enable-tidb-extension=true` in its sink-uri, or with a protocol that has commit_ts"
_RECORD_AGAIN = {"csv": "with `include-commit-ts = true` in [sink.csv]"}

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
    incomplete: int = 0
    """Row changes that are not whole."""
    watermarks: int = 0
    """Watermark events."""


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
    known
        What its messages were decoded with beside themselves.
    """

    source: str
    protocol: str
    has_commit_ts: bool
    messages: DataFrame
    decoded: DataFrame
    narrow: DataFrame | None = None
    counts: Counts | None = None
    known: Known = NOTHING
    gaps: tuple[str, ...] = ()
    """Which offsets a Kafka topic no longer had, one sentence a partition; known once materialised."""
    _seen: tuple[Observation, DataFrame] | None = None
    _source: Source | None = None

    @property
    def events(self) -> DataFrame:
        """The events contract (:data:`ticdc_lab.schema.EVENTS`), with KEYS, CHECKSUMS, DISPATCH and IMAGE_HASHES."""
        named = (*EVENTS.names, *KEYS.names, *CHECKSUMS.names, *DISPATCH.names, *IMAGE_HASHES.names)
        return self.decoded.where("error_class IS NULL").select(*named)

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
        partial = (_INCOMPLETE.format(n=n.incomplete),) if n is not None and n.incomplete else ()
        if self.has_commit_ts:
            unmarked = (_UNMARKED,) if n is not None and self.protocol == "avro" and not n.watermarks else ()
            return (*self.gaps, *lost, *undated, *partial, *unmarked)
        which = f"{self.protocol} without enable-tidb-extension" if self.protocol in _EXTENDED else self.protocol
        lacks = "no commit_ts" if self.protocol == "csv" else "no commit_ts and no watermark"
        return (
            *self.gaps,
            *lost,
            *partial,
            f"{which} carries {lacks}: how far the log is complete, which transactions are whole and whether rows are "
            "in commit order cannot be proved from it.",
        )

    def require_commit_ts(self, answer: str) -> None:
        """Raise :class:`ProtocolError` if ``answer`` needs commit_ts and the log has none."""
        if not self.has_commit_ts:
            raise ProtocolError(
                f"{self.source}: {answer} cannot be computed. {self.limits[-1]}",
                hint=f"Create the changefeed {_RECORD_AGAIN.get(self.protocol, _EXTEND)}, and record again.",
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
        decode = _decoding(source, self.protocol, self.known, images=images)
        try:
            written = source.raw.mapInArrow(parquet.writing(decode, str(folder)), parquet.WRITTEN).toArrow()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        n = {name: sum(written[name].to_pylist()) for name in parquet.COUNTED}
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
            F.count_if(ok & F.col("incomplete").isNotNull()).alias("incomplete"),
            F.count_if(ok & (F.col("kind") == "watermark")).alias("watermarks"),
        )
        return replace(self, decoded=observed, _seen=(seen, self.decoded))

    def finished(self) -> ChangeLog:
        """The log with its ``counts``, after an action on what :meth:`counted` gave."""
        return self if self._seen is None else self._with_counts()._with_gaps(self.messages)

    def _with_counts(self) -> ChangeLog:
        assert self._seen is not None
        seen, plain = self._seen
        n = {name: seen.get[name] for name in parquet.COUNTED}
        counts = Counts(messages=n["decoded"] + n["quarantined"], **n)
        return replace(self, decoded=plain, counts=counts, _seen=None)

    def _with_gaps(self, positions: DataFrame) -> ChangeLog:
        """The log with its ``gaps``, looked for only where fewer messages came than there should be."""
        expected = None if self._source is None else self._source.expected
        if expected is None or self.counts is None:
            return self
        should = expected.agg(F.sum(F.col("end_offset") - F.col("first_offset"))).first()
        all_came = should is not None and should[0] == self.counts.messages
        return self if all_came else replace(self, gaps=lacking(positions, expected))


def load(
    spark: SparkSession,
    source: str,
    *,
    protocol: str = "auto",
    source_kind: str = "auto",
    schema_registry: str | None = None,
    claim_check: str | None = None,
    settings: StorageSettings = DEFAULTS,
    options: Mapping[str, str] | None = None,
) -> ChangeLog:
    """Load a recorded topic, one in Kafka, or a folder that TiCDC's storage sink wrote.

    Looks at up to 256 messages to tell the protocol, and through a log in the simple protocol for the versions of its
    tables; everything else is lazy.

    Parameters
    ----------
    spark
        The caller's session; :func:`ticdc_lab.session.local_session` makes a local one.
    source
        A capture file (JSON Lines, plain or gzip, or Parquet), a folder of them, a Delta table of messages, a folder
        of the storage sink, or ``kafka://HOST:PORT[,HOST:PORT]/TOPIC[,TOPIC]``, which is read from the earliest message
        to the latest of now.
    protocol
        One of :data:`ticdc_lab.codecs.PROTOCOLS`, or ``auto``: told from the bytes.
    source_kind
        ``capture``, ``parquet``, ``delta``, ``storage``, ``kafka``, or ``auto``: told from what is there.
    schema_registry
        For avro: the registry's URL (asked by the workers, once for each schema), or a file of schemas
        (:func:`ticdc_lab.codecs.schema_registry.read_schemas`).
    claim_check
        The folder (a path, or a URL that pyarrow reads, such as ``s3://..``) that large messages were put in. Without
        it they are marked ``claim-check-missing`` and hold their keys only.
    settings
        Of a storage folder: what its files do not say (delimiter, quote, null text, ..).
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
        There is nothing to read at ``source``, its broker cannot be read from, or the file of schemas cannot be read.
    ProtocolError
        The protocol cannot be told or is unknown.
    SetupError
        The session is the caller's own, and its Python workers cannot run this package.

    References
    ----------
    `design/architecture.md` sections 3 and 4; `design/protocols.md` section 1.
    """
    require_workers_once(spark)
    opened = open_source(spark, source, kind=source_kind, settings=settings, options=options)
    known = known_of(schema_registry, claim_check)
    told = opened.told or detect(opened.sample(SAMPLE), protocol=protocol, source=source, known=known)
    if opened.told and protocol not in ("auto", told.protocol):
        raise ProtocolError(f"{source}: expected {protocol}, found {told.protocol}.", hint="Leave --protocol auto.")
    if told.protocol == "simple":
        known = replace(known, tables=_tables(opened, known))
    whole, narrow = (
        opened.raw.mapInArrow(_decoding(opened, told.protocol, known, images=images), DECODED)
        for images in (True, False)
    )
    return ChangeLog(
        source, told.protocol, told.has_commit_ts, opened.messages, whole, narrow, known=known, _source=opened
    )


def lacking(decoded: DataFrame, expected: DataFrame) -> tuple[str, ...]:
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


def known_of(schema_registry: str | None, claim_check: str | None) -> Known:
    """What the caller says for decoding: arguments and errors are those of :func:`load`."""
    if claim_check is not None and (folder := local_path(claim_check)) is not None and not folder.is_dir():
        raise SourceError(f"{claim_check} is no folder, so no large message can be looked for in it.")
    if schema_registry is None:
        return Known(claim_check=claim_check)
    if (file := local_path(schema_registry)) is not None:
        return Known(schemas=read_schemas(str(file)), claim_check=claim_check)
    return Known(registry_url=require_url(schema_registry), claim_check=claim_check)


def _tables(source: Source, known: Known) -> dict[Version, Mapping[str, Any]]:
    """The table versions of a log in the simple protocol: few, as there are DDL, however long the log is."""
    read, find = source.read, finder(known)

    def run(batches: Batches) -> Batches:
        return find(messages for messages, _ in read(batches))

    return tables_of(source.raw.mapInArrow(run, TABLES).distinct().toArrow().to_pylist())


def _decoding(source: Source, protocol: str, known: Known, *, images: bool) -> Callable[[Batches], Batches]:
    """Raw records to :data:`ticdc_lab.schema.DECODED`."""
    read = source.read
    if source.decode is not None:
        return source.decode(images)

    def run(batches: Batches) -> Batches:
        events = decoder(protocol, images=images, known=known)
        for messages, rejected in read(batches):
            yield from events(iter((messages,)))
            if rejected is not None and rejected.num_rows:
                yield rejected

    return run
