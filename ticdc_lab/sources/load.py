"""From a recorded topic to the events table."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from ticdc_lab.codecs import detect
from ticdc_lab.codecs.decode import Detected, decoder
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.known import BOUNDS, Bounds, Known
from ticdc_lab.codecs.unpack import parts, unpacker
from ticdc_lab.engine.workers import require_workers_once
from ticdc_lab.errors import ProtocolError
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.events.schema import DECODED
from ticdc_lab.settings import UNKNOWN, Setting, Settings
from ticdc_lab.settings.detected import COUNTED, READ, counted, of_counts, of_messages
from ticdc_lab.settings.file import given_settings, options_of_source, read_file
from ticdc_lab.settings.keys import protocol_named
from ticdc_lab.sources import Source, open_source
from ticdc_lab.sources.change_log import ChangeLog, Origin
from ticdc_lab.sources.decoding import known_of, learned
from ticdc_lab.sources.refused_forms import converted_hint
from ticdc_lab.sources.storage import read_by

SAMPLE = 256
"""Messages read to detect the protocol."""


def load(
    spark: SparkSession,
    source: str,
    *,
    protocol: str = "auto",
    source_kind: str = "auto",
    schema_registry: str | None = None,
    claim_check: str | None = None,
    options: Mapping[str, str] | None = None,
    bounds: Bounds = BOUNDS,
    changefeed: Settings | str | Path = UNKNOWN,
) -> ChangeLog:
    """Load a recorded topic, one in Kafka, or a folder that TiCDC's storage sink wrote.

    Reads up to 256 messages to detect the protocol, through a log in the simple protocol for the versions of its
    tables, and through one of debezium for its DDL; everything else is lazy.

    Parameters
    ----------
    spark
        The caller's session; :func:`ticdc_lab.engine.sessions.session` makes a local one.
    source
        A capture file (JSON Lines, plain or gzip, or Parquet), a dump of another tool, a folder of such files, a Delta
        table of messages, a folder of the storage sink, or ``kafka://HOST:PORT[,HOST:PORT]/TOPIC[,TOPIC]``, which is
        read from the earliest message to the latest of now.
    protocol
        One of :data:`ticdc_lab.codecs.PROTOCOLS`, or ``auto``: detected from the bytes.
    source_kind
        ``capture``, ``parquet``, ``delta``, ``storage``, ``kafka``, ``connect`` or a form of dumps
        (:data:`ticdc_lab.sources.forms.FORMS`), or ``auto``: detected from what is there;
        ``table`` has to be set: ``source`` then names one that the session knows.
    schema_registry
        For avro: the registry's URL (asked by the workers, once for each schema), or a file of schemas
        (:func:`ticdc_lab.codecs.schema_registry.read_registered`).
    claim_check
        The folder (a path, or a URL that pyarrow reads, such as ``s3://..``) that large messages were put in. Without
        it they are marked ``claim-check-missing`` and hold their keys only.
    options
        By name: settings of the changefeed (``csv.null``, ``date-separator``, ..; docs/settings.md), which count before
        its file's; and of the source, for Kafka as Spark's connector has them: ``kafka.security.protocol``,
        ``kafka.sasl.jaas.config``, ``startingOffsets``. The values of these are in no error's text.
    bounds
        How much a message may become before it goes to the quarantine as ``too-large``.
    changefeed
        The file of the changefeed that wrote it (TOML or JSON), or what is known of its settings. What the bytes show
        is added.

    Returns
    -------
    ChangeLog
        Frames ``messages``, ``events`` and ``quarantine``.

    Raises
    ------
    SourceError
        There is nothing to read at ``source``, its broker cannot be read from, or the file of schemas cannot be read.
    ProtocolError
        The protocol cannot be detected or is unknown.
    SetupError
        The session is the caller's own, and its Python workers cannot run this package.

    References
    ----------
    docs/contracts.md; docs/reading.md.

    Examples
    --------
    >>> found = load(spark, "data/messages_canal-json-tidb_small.jsonl.gz")
    >>> found.protocol, found.events.where("kind = 'row'").count()
    ('canal-json', 2101)
    """
    require_workers_once(spark)
    given = changefeed if isinstance(changefeed, Settings) else read_file(changefeed).settings
    given |= given_settings(options or {})
    others = options_of_source(options or {})
    opened, _ = opened_as(spark, source, given, kind=source_kind, options=others, line=bounds.line)
    known = replace(known_of(schema_registry, claim_check, bounds), settings=given)
    sample = None if opened.told else opened.sample(SAMPLE)
    if protocol == "auto" and sample is not None and not sample.num_rows and (refusal := opened.refusal()):
        raise refusal
    try:
        told = opened.told or detect(sample, protocol=protocol, source=source, known=known)
    except ProtocolError as error:
        raise ProtocolError(error.message, hint=converted_hint(source) or error.hint) from None
    if opened.told and protocol_named(protocol) not in ("auto", told.protocol):
        raise ProtocolError(
            f"{source}: expected {protocol}, found {told.protocol}.",
            hint=f"Read it as what it is: ticdc-lab events {shlex.quote(shown_source(source))} "
            f"--protocol {told.protocol} --out events.jsonl",
        )
    guesses = opened.guesses
    if sample is not None:
        known, learned_guesses = learned(opened.gathered, sample, told.protocol, known)
        guesses += learned_guesses
    origin = Origin(source, protocol, source_kind, schema_registry, claim_check, others, given)
    seen = given | (
        (Setting("sink.protocol", told.protocol, "bytes", "shown", "the folder's files"), *opened.shown)
        if sample is None  # a storage folder, which shows it itself
        else shown_by(sample.combine_chunks(), told, known)
    )
    return ChangeLog(
        opened.name, told.protocol, told.has_commit_ts, spark, cache(lambda: opened.messages),
        known=replace(known, settings=seen), origin=origin, left_out=opened.left_out, guesses=guesses,
        of_storage=opened.kind == "storage", lost=opened.lost, _source=opened,
    )  # fmt: skip


def opened_as(spark: SparkSession, source: str, given: Settings, **asked: Any) -> tuple[Source, Settings]:
    """A source, and how its files are read: what bytes show counts before a changefeed's file, options before both.

    Parameters
    ----------
    spark, source
        As of :func:`load`.
    given
        What is known of the changefeed's settings.
    asked
        Further arguments of :func:`ticdc_lab.sources.opening.open_source`.
    """
    by_options = read_by(given)
    opened = open_source(spark, source, settings=by_options, **asked)
    if opened.kind != "storage" or (settings := read_by(given, opened.shown)) == by_options:
        return opened, by_options
    dates = [of.value("sink.date-separator", "auto") for of in (by_options, settings)]
    if opened.read_by is not None and dates[0] == dates[1]:  # by which the places of files are found
        return replace(opened.read_by(settings), shown=opened.shown), settings
    return replace(open_source(spark, source, settings=settings, **asked), shown=opened.shown), settings


def shown_by(sample: pa.Table, told: Detected, known: Known) -> tuple[Setting, ...]:
    """Settings of the changefeed that some messages show, which were detected to be what is ``told``."""
    protocol = told.protocol
    plain = unpacker(protocol, replace(known, claim_check=None))
    whole = [(part, as_it_was) for batch in sample.to_batches() for part, as_it_was in parts(plain, batch)]
    read = [(part, as_it_was) for part, as_it_was in whole if isinstance(part, pa.RecordBatch)]
    unpacked, packed = (pa.Table.from_batches([pair[i] for pair in read], sample.schema) for i in (0, 1))
    events = told.events
    if protocol == "simple":  # its rows need the versions of tables that were looked for meanwhile
        decoded = decoder(protocol, known=known)(iter(sample.to_batches()))
        events = pa.Table.from_batches(decoded, arrow_schema(DECODED))
    batches = [] if events is None else events.select(READ).to_batches()
    counts = pa.Table.from_batches(counted(iter(batches)), COUNTED)
    among = f"row changes in the first {sample.num_rows:,} messages"
    return (
        *of_messages(packed, protocol=protocol, unpacked=unpacked),
        *of_counts(counts, protocol=protocol, seen=among),
    )  # fmt: skip
