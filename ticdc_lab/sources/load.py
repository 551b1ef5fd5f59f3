"""From a recorded topic to the events table: what lies at a name, how it is read, and as which protocol."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.codecs import detect
from ticdc_lab.codecs.decode import decoder
from ticdc_lab.codecs.detection import Detected, protocols_of_files
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.known import BOUNDS, Bounds, Known
from ticdc_lab.codecs.unpack import parts, unpacker
from ticdc_lab.engine import is_sail, parquet_below, verbatim
from ticdc_lab.engine.object_stores import Store, Stored
from ticdc_lab.engine.workers import require_workers_once
from ticdc_lab.errors import EngineError, ProtocolError, SourceError
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.errors.whole_files import local_path
from ticdc_lab.events.schema import DECODED, as_messages
from ticdc_lab.settings import UNKNOWN, Setting, Settings
from ticdc_lab.settings.detected import COUNTED, READ, counted, of_counts, of_messages
from ticdc_lab.settings.file import given_settings, options_of_source, read_file
from ticdc_lab.settings.keys import protocol_named
from ticdc_lab.sources import capture, dumps, kafka, parquet, pieces, storage
from ticdc_lab.sources.change_log import HEAD_OF_FILE, ChangeLog
from ticdc_lab.sources.dump_files import DumpFiles, dumps_among, dumps_at, head_of
from ticdc_lab.sources.forms import FORMS, OPTIONS
from ticdc_lab.sources.learned import known_of, learned
from ticdc_lab.sources.origin import Origin
from ticdc_lab.sources.pieces import Source, as_they_are
from ticdc_lab.sources.places import (
    Size,
    data_files,
    has_columns_in_name,
    is_data,
    is_kafka,
    kind_of,
    kind_of_name,
    left_out,
    not_storage_folder,
    require_kind,
    size_of_lines,
    size_of_parquet,
    unknown_options,
)
from ticdc_lab.sources.refused_forms import converted_hint
from ticdc_lab.words import first_line

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
    guesses, protocols = opened.guesses, dict[str, list[str]]()
    if sample is not None and protocol_named(protocol) == "auto":
        heads = opened.heads_by_file(HEAD_OF_FILE)
        protocols = protocols_of_files(heads, protocol=told.protocol, known=known)
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
        of_storage=opened.kind == "storage", lost=opened.lost, lost_files=opened.lost_files,
        lost_schemas=opened.lost_schemas, places_in_files=opened.places_in_files, protocols=protocols,
        _source=opened,
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
        Further arguments of :func:`open_source`.
    """
    by_options = storage.read_by(given)
    opened = open_source(spark, source, settings=by_options, **asked)
    if opened.kind != "storage" or (settings := storage.read_by(given, opened.shown)) == by_options:
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
    counts = COUNTED.empty_table() if events is None else counted(events.select(READ))
    among = f"row changes in the first {sample.num_rows:,} messages"
    return (
        *of_messages(packed, protocol=protocol, unpacked=unpacked),
        *of_counts(counts, protocol=protocol, seen=among),
    )  # fmt: skip


def open_source(
    spark: SparkSession,
    source: str,
    *,
    kind: str = "auto",
    settings: Settings = UNKNOWN,
    options: Mapping[str, str] | None = None,
    line: int = BOUNDS.line,
) -> Source:
    """Find out what lies at ``source`` and how to read it; only a storage folder at a URL takes a small job.

    ``spark``: the caller's session. ``source``: a path, a URL that the session's Hadoop configuration can read
    (``s3a://..``), or ``kafka://HOST:PORT[,HOST:PORT]/TOPIC[,TOPIC]``. ``kind``: one of :data:`KINDS`, or ``auto``:
    detected from the name and, in a folder, from what is there. ``settings``: of a storage folder: what its files
    omit. ``options``: settings of the source by name; for Kafka as of :func:`ticdc_lab.sources.kafka.read_batch`.
    They are in no error's text. ``line``: bytes that a line of a capture file may have. Raises SourceError: nothing is
    there, it is empty, its kind is unknown, or the broker cannot be read from.
    """
    require_kind(kind)
    if kind == "kafka" or (kind == "auto" and is_kafka(source)):
        topics = kafka.topics_of(source, options)
        if is_sail(spark):
            return _topic_source(spark, topics)
        frame, expected, left_out = kafka.read_batch(spark, topics)
        plainly = partial(kafka.said_plainly, topics)
        opened = _table(source, frame, kind="kafka", measure=partial(kafka.size_of, expected))
        return replace(opened, expected=lambda: expected, said_plainly=plainly, left_out=left_out)
    given = dict(options or {})
    if others := given.keys() - OPTIONS.keys():
        raise unknown_options(source, others)
    if kind == "table":
        return _known_table(spark, source)
    if kind in ("auto", "storage") and (found := _storage_source(spark, source, kind, settings)):
        return found
    if (store := Store.of(source)) and kind in ("auto", "capture", "connect", *FORMS):
        stored = _stored(store)
        if kind != "capture" and (found := _dumped_in_store(spark, store, stored, kind, given, line)):
            return found
        kind = kind_of(store.shown, [Path(f.path or store.shown) for f in stored]) if kind == "auto" else kind
        if kind == "capture":
            return _capture_in_store(spark, store, stored, line)
    files = data_files(source)
    if files is not None and kind in ("auto", "connect", *FORMS) and (dumped := dumps_at(source, files, kind, given)):
        return _dump_source(spark, source, files, dumped, line)
    if given:
        raise unknown_options(source, given)
    if kind == "auto":
        kind = kind_of(source, files)
    if kind == "delta":
        return _delta_source(spark, source)
    if kind == "parquet":
        return _parquet_source(spark, source, files)
    return _capture_at_url(spark, source, line) if files is None else _capture_source(spark, source, files, line)


def _topic_source(spark: SparkSession, topics: kafka.Topics) -> Source:
    """A topic, read by this process and handed to the tasks of the embedded engine."""
    from ticdc_lab.sources.kafka_relay import RelayedTopic  # here: only topics need its library

    topic = RelayedTopic(spark, topics)
    ranges = topic.ranges()
    return Source(
        topics.source, spark, cache(partial(topic.frame, ranges)), topic.read, ranges,
        pieces.shares(ranges, topic.n_tasks(ranges)),
        kind="kafka", expected=cache(topic.expected), measure=topic.measure,
        said_plainly=partial(kafka.said_plainly, topics), left_out=topic.left_out,
    )  # fmt: skip


def _delta_source(spark: SparkSession, source: str) -> Source:
    table = spark.read.format("delta").load(source)
    try:
        return _table(source, table, kind="delta", measure=partial(_size_of_frame, table))
    except PySparkException as error:
        if not is_sail(spark):
            raise
        raise EngineError(
            f"The embedded engine cannot read the Delta table {source}: {first_line(error)}",
            hint="Run it with --engine spark; in Python: ticdc_lab.session('spark').",
        ) from error


def _known_table(spark: SparkSession, name: str) -> Source:
    if not spark.catalog.tableExists(name):
        raise SourceError(f"The session has no table {name}.", hint="List its tables: spark.catalog.listTables().")
    table = spark.table(name)
    return _table(name, table, kind="table", measure=partial(_size_of_frame, table))


def _capture_source(spark: SparkSession, source: str, files: list[Path], line: int) -> Source:
    return _of_pieces(
        source, spark, pieces.of_lines(files), sum(f.stat().st_size for f in files), kind="capture",
        measure=partial(size_of_lines, files), left_out=left_out(source), line=line,
    )  # fmt: skip


def _of_pieces(
    name: str, spark: SparkSession, cut: Sequence[pieces.Piece], n_bytes: int | None, **more: Any
) -> Source:  # fmt: skip
    """A source of files that were cut into pieces."""
    found = pieces.table_of(cut)
    n_tasks = pieces.n_tasks(spark, found, n_bytes)
    frame = cache(lambda: spark.createDataFrame(found).repartition(n_tasks))
    how = {given: more[given] for given in ("line", "store", "dumped") if given in more}
    read = partial(pieces.read, **how) if how else pieces.read
    return Source(name, spark, frame, read, found, pieces.shares(found, n_tasks), **more)


def _dump_source(spark: SparkSession, source: str, files: list[Path], dumped: DumpFiles, line: int) -> Source:
    """Files in the forms of other tools, perhaps with capture files beside them."""
    files = [f for f in files if str(f.resolve()) not in dumped.strays]
    sizes = {str(f.resolve()): f.stat().st_size for f in files}
    cut, dumped = pieces.of_dumps(sizes, dumped, are_here=True)
    return _of_pieces(
        source, spark, cut, sum(sizes.values()), kind=dumped.kind, measure=partial(_size_of_dumps, files, dumped),
        left_out=(*left_out(source), *dumped.sentences), line=line, dumped=dumped,
    )  # fmt: skip


def _size_of_dumps(files: Sequence[Path], dumped: DumpFiles) -> Size:
    """Their bytes, and as many messages as their first bytes hold of them."""
    if all(f.suffix == ".parquet" for f in files):
        return size_of_parquet(files)
    if not dumped.of:
        return size_of_lines(files)
    n_bytes, read, messages, whole = sum(f.stat().st_size for f in files), 0, 0, True
    for file in files[:8]:
        if (found := dumped.form(str(file.resolve()))) is None:
            continue
        if found[0].records == "rows":
            return Size(n_bytes)
        with file.open("rb") as f:
            head, all_of_it = head_of(f)
        size = file.stat().st_size
        messages += sum(m.num_rows for m, _ in dumps.read_dump(iter([(head, "")]), "", *found, len(head) + 1))
        read += size if all_of_it else min(size, len(head))
        whole = whole and all_of_it
    exact = whole and len(files) <= 8 and len(dumped.of) == len(files)
    if not messages:
        return Size(n_bytes)
    told = "counted" if exact else f"estimated from the first {messages:,}"
    return Size(n_bytes, messages if exact else max(messages, round(messages * n_bytes / read)), told, exact)


def _dumped_in_store(
    spark: SparkSession, store: Store, stored: list[Stored], kind: str, options: Mapping[str, str], line: int
) -> Source | None:
    """The source if files of an object store are dumps of other tools."""
    if kind == "auto" and any(f.path.endswith(".parquet") or "_delta_log" in f.path for f in stored):
        return None
    names = [store.named(f.path) for f in stored if f.size]
    found = dumps_among(
        names, lambda name: store.open(store.below(name)), source=store.shown, kind=kind, options=options
    )
    if found is None:
        return None
    if is_sail(spark):
        store = store.copied([f.path for f in stored])
    sizes = {store.named(f.path): f.size for f in stored if f.size and store.named(f.path) not in found.strays}
    cut, found = pieces.of_dumps(sizes, found, are_here=False)
    n_bytes = sum(sizes.values())
    return _of_pieces(
        store.shown, spark, cut, n_bytes, kind=found.kind, measure=partial(Size, n_bytes), left_out=found.sentences,
        line=line, store=store, dumped=found,
    )  # fmt: skip


def _stored(store: Store) -> list[Stored]:
    """The data files of a folder, or the one file that a URL names, with an empty path."""
    if not store.is_folder():
        return [Stored("", store.size())]
    files = [f for f in store.files() if is_data(PurePosixPath(f.path))]
    if not any(f.size for f in files):
        raise SourceError(
            f"The folder {store.shown} contains no data.", hint="Check bucket and path: SCHEME://BUCKET/PATH"
        )
    return files


def _capture_in_store(spark: SparkSession, store: Store, stored: list[Stored], line: int) -> Source:
    n_bytes = sum(f.size for f in stored)
    if is_sail(spark):
        store = store.copied([f.path for f in stored])
    cut = pieces.of_sizes([(store.named(f.path), f.size) for f in stored if f.size])
    empty = tuple(
        f"{store.named(f.path)} is empty (0 bytes), so it was left out: what it should contain is missing from every "
        "answer."
        for f in stored if not f.size
    )  # fmt: skip
    return _of_pieces(
        store.shown, spark, cut, n_bytes, kind="capture", measure=partial(Size, n_bytes), left_out=empty, line=line,
        store=store,
    )  # fmt: skip


def _capture_at_url(spark: SparkSession, url: str, line: int) -> Source:
    """Lines of plain files, and gzip files as they are: the engine's own reader ends at the first that is damaged."""
    text = spark.read.text(url, lineSep="\n")
    files = text.inputFiles()
    if any(f.endswith(".gz") for f in files):
        whole = spark.read.format("binaryFile").load(url)
        contents = whole.select("content", F.col("path").alias("file"))
        return Source(
            url, spark, lambda: contents, partial(capture.read_contents, line=line), kind="capture",
            left_out=_uncompared(files, _AT_URL),
        )  # fmt: skip
    raw = text.select(F.col("value").cast("binary").alias("line"), F.col("_metadata.file_path").alias("file"))
    read = partial(capture.read_lines, line=line)
    return Source(url, spark, lambda: raw, read, kind="capture", left_out=_uncompared(files, _AT_URL))


_AT_URL = "they lie behind a URL"


def _uncompared(files: Sequence[object], why: str) -> tuple[str, ...]:
    """A sentence where recordings may overlap unchecked."""
    if len(files) < 2:
        return ()
    return (
        f"Whether its {len(files):,} files contain some messages twice was not looked for, as {why}: each message "
        "counts as often as it is there.",
    )


def _size_of_frame(table: DataFrame) -> Size:
    """Of a table: the files that hold it now, where they lie on this machine.

    The embedded engine names no files of a table; it counts from the footers, without reading a column.
    """
    if is_sail(table.sparkSession):
        return Size(None, table.count(), "counted", True)
    places = [urlsplit(f) for f in table.inputFiles()]
    files = [Path(unquote(p.path)) for p in places if p.scheme in ("", "file") and p.path.endswith(".parquet")]
    return size_of_parquet(files) if files and len(files) == len(places) else Size()


def _storage_source(spark: SparkSession, source: str, kind: str, settings: Settings) -> Source | None:
    """The source if it is a folder of the storage sink, or was declared as one."""
    local, store = local_path(source), Store.of(source)
    if kind == "auto" and (kind_of_name(store.shown if store else source) if local is None else not local.is_dir()):
        return None
    if local is not None and not local.is_dir():
        raise not_storage_folder(source)
    if store is not None and not store.is_folder():
        raise not_storage_folder(store.shown)
    found = storage.listing(spark, source, local=local, settings=settings)
    if error := storage.misplaced(found, store.shown if store else source, local=local):
        raise error
    if not found.is_storage:
        if kind == "auto":
            return None
        raise SourceError(
            f"{source} contains no file of TiCDC's storage sink: no metadata, schema*.json or CDC*.csv or .json.",
            hint="Name the folder of the changefeed's `sink-uri`, which contains the file `metadata`.",
        )
    return _listed_source(spark, store.shown if store else source, found, local, settings)


def _listed_source(
    spark: SparkSession, name: str, found: storage.Listing, local: Path | None, settings: Settings
) -> Source:
    files, reading, has_commit_ts = storage.opened(spark, found, settings=settings)
    told = Detected(reading.protocol, has_commit_ts)
    return Source(
        name, spark, files.frame, reading.messages, shares=files.shares, told=told,
        decode=lambda images: reading.events(images=images), kind="storage",
        guesses=(*filter(None, (storage.without_data(found), storage.of_two_writers(found))), *reading.guesses),
        measure=partial(storage.size_of, found, local=local),
        shown=(*reading.shown, *storage.of_paths(found, settings)), lost_files=storage.missing_files(found, reading),
        unread_files=partial(storage.unread_files, found),
        places_in_files=partial(storage.places_in_files, found),
        lost_schemas=storage.missing_schemas(found, reading),
        read_by=partial(_listed_source, spark, name, found, local),
    )  # fmt: skip


def _parquet_source(spark: SparkSession, source: str, files: list[Path] | None) -> Source:
    measure = Size if files is None else partial(size_of_parquet, files)
    groups = None if files is None else pieces.of_parquet(files)  # before the engine, whose words name no file
    if files is None or not groups or any(has_columns_in_name(f, source) for f in files):
        table = _table(source, _parquet(spark, source, files), kind="parquet", measure=measure)
        if files is None:
            return replace(table, left_out=_uncompared(table.raw.inputFiles(), _AT_URL))
        why = "they are too many" if len(files) > pieces.FILES_LOOKED_INTO else "the engine reads them by itself"
        return replace(table, left_out=(*left_out(source), *_uncompared(files, why)))
    of_engine = cache(lambda: as_messages(_parquet(spark, source, files)))
    return _of_pieces(
        source, spark, groups, None, of_engine=of_engine, kind="parquet", measure=measure, left_out=left_out(source)
    )


def _parquet(spark: SparkSession, source: str, files: list[Path] | None) -> DataFrame:
    """All the files found, however deep: Spark alone leaves out those in subfolders without a word."""
    root = local_path(source)
    if files is None or root is None:
        return spark.read.parquet(source)
    if not root.is_dir():
        return spark.read.parquet(verbatim(spark, files[0]))
    if any(has_columns_in_name(f, source) for f in files):
        return parquet_below(spark, root, files)
    return spark.read.parquet(*(verbatim(spark, f) for f in files))


def _table(source: str, df: DataFrame, *, kind: str, measure: Callable[[], Size]) -> Source:
    messages = as_messages(df)
    raw = messages.select(*parquet.COLUMNS)
    return Source(
        source, df.sparkSession, lambda: raw, as_they_are, of_engine=lambda: messages, kind=kind, measure=measure
    )
