"""Sources: raw records, and the function over Arrow batches that turns them into messages.

Parsing and decoding then run in one pass (:mod:`ticdc_lab.sources.load`).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ticdc_lab.codecs.decode import Detected, at_once, is_empty
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.known import AT_ONCE, BOUNDS
from ticdc_lab.engine import is_sail, parallelism, parquet_below, verbatim
from ticdc_lab.engine.failures import task_errors
from ticdc_lab.engine.object_stores import Store, Stored
from ticdc_lab.engine.shuffle import Kernel, by_threads, dealt_out, streamed
from ticdc_lab.errors import EngineError, SourceError
from ticdc_lab.errors.whole_files import local_path
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.schema import MESSAGES, as_messages
from ticdc_lab.settings import UNKNOWN, Setting, Settings
from ticdc_lab.sources import capture, dumps, kafka, parquet, pieces, storage
from ticdc_lab.sources.dump_files import DumpFiles, dumps_among, dumps_at, head_of
from ticdc_lab.sources.forms import FORMS, OPTIONS
from ticdc_lab.sources.overlaps import Overlaps, SharedStretch, Skips, overlaps_of, whole_runs
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
from ticdc_lab.sources.refused_forms import refused_hint

Reader = Callable[[Batches], Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]]
Find = Callable[[Batches], Batches]


@dataclass(frozen=True, slots=True)
class Source:
    """Raw records, and how to read messages (and what is none) from them."""

    name: str
    spark: SparkSession
    frame: Callable[[], DataFrame]
    """Gives ``raw``, for which an engine runs."""
    read: Reader
    pieces: pa.Table | None = None
    """What ``raw`` contains, where the driver can read it too: messages are then inspected without a job."""
    shares: tuple[pa.Table, ...] = ()
    """What of ``raw`` each task reads, where this process can read it too."""
    of_engine: Callable[[], DataFrame] | None = None
    """Gives the messages, where the engine can read them by itself."""
    told: Detected | None = None
    """What the messages are, where the source itself defines it."""
    decode: Callable[[bool], Callable[[Batches], Batches]] | None = None
    """Raw records to events, with or without images, where messages alone do not suffice."""
    expected: Callable[[], DataFrame] | None = None
    """Gives which offsets should be there (:data:`ticdc_lab.sources.kafka.EXPECTED`), where the source knows."""
    said_plainly: Callable[[], AbstractContextManager[None]] = nullcontext
    """Wraps reading: an error of this kind of source leaves it as a SourceError."""
    kind: str = ""
    """One of :data:`KINDS`."""
    measure: Callable[[], Size] = Size
    """How large it is, without reading it."""
    shown: tuple[Setting, ...] = ()
    """Settings of the changefeed that opening it showed."""
    read_by: Callable[[Settings], Source] | None = None
    """A storage folder, read by other settings without another listing."""
    left_out: tuple[str, ...] = ()
    """What lies in the folder and is not read, a sentence each."""
    guesses: tuple[str, ...] = ()
    """What was worked out from its files without proof, and the option that sets it, a sentence each."""
    line: int = BOUNDS.line
    """Bytes that a line of a capture file may have."""
    store: Store | None = None
    """Where its files lie; None for this machine, and where the engine finds them."""
    dumped: DumpFiles | None = None
    """Which of its files are dumps of other tools, and in which form."""
    _overlaps: list[Overlaps] = field(default_factory=list, repr=False, compare=False)

    @property
    def raw(self) -> DataFrame:
        """Raw records."""
        return self.frame()

    @property
    def table(self) -> DataFrame | None:
        """The messages, where the engine can read them by itself."""
        return None if self.of_engine is None else self.of_engine()

    def found(self, kernel: Kernel, form: pa.Schema) -> pa.Table:
        """What a kernel makes of the raw records of each task, at once: little.

        Beside the embedded engine threads of this process make it. The engine runs only for what it alone can read.
        Raises SourceError: a file that was there when the source was opened cannot be read.
        """
        if not is_sail(self.spark):
            return self.raw.mapInArrow(kernel, from_arrow_schema(form)).toArrow().cast(form)
        read_here = [partial(iter, share.combine_chunks().to_batches()) for share in self.shares]
        parts = read_here or dealt_out(streamed(self.raw), parallelism(self.spark))
        try:
            return by_threads(self.spark, parts, kernel, form)
        except OSError as error:
            lost = next((file for file in self._files() if file in str(error)), None)
            if lost is None:
                raise
            raise SourceError(
                f"{lost} cannot be read any more: {error.strerror or 'it was there when the log was opened'}.",
                hint=f"Check that it is still there and may be read, then run it again: ls -l {shlex.quote(lost)}",
            ) from error

    @property
    def messages(self) -> DataFrame:
        """:data:`ticdc_lab.events.schema.MESSAGES`; what is no message is left out here and shows in the quarantine.

        A message in several files occurs as often.
        """
        read = self.read

        def run(batches: Batches) -> Batches:
            return (messages for messages, _ in read(batches))

        found = self.table
        return self.raw.mapInArrow(run, MESSAGES) if found is None else found

    def gathered(self, find: Find, form: StructType) -> pa.Table:
        """What ``find`` gives for the messages of each task, in the columns of ``form``: a few rows."""
        read = self.read

        def run(batches: Batches) -> Batches:
            return find(messages for messages, _ in read(batches))

        with self.said_plainly(), task_errors():
            return self.found(run, arrow_schema(form))

    def reader(self, skips: Skips) -> Callable[..., Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]]:
        """Read without what ``skips`` names; of several files it takes ``held``, which receives what each has."""
        if not self.of_several_files:
            return self.read
        return partial(pieces.read, line=self.line, store=self.store, dumped=self.dumped, skips=skips)

    @property
    def lost(self) -> frozenset[str]:
        """What a dump of another tool does not have (:data:`ticdc_lab.sources.forms.LOSSES`)."""
        return frozenset() if self.dumped is None else self.dumped.lost

    @property
    def of_several_files(self) -> bool:
        """Whether recordings may overlap here."""
        return len(self._files()) > 1

    def _files(self) -> Sequence[str]:
        if self.pieces is None or "file" not in self.pieces.column_names:
            return ()
        return list(dict.fromkeys(self.pieces["file"].to_pylist()))

    @property
    def overlaps_known(self) -> Overlaps | None:
        """Repeats in its files, if they were looked for."""
        return self._overlaps[0] if self._overlaps else None

    @property
    def overlaps(self) -> Overlaps:
        """Repeats in its files: of several files all messages' places are read, once."""
        if not self.of_several_files:
            return Overlaps({})
        if not self._overlaps:
            told = partial(pieces.what_files_hold, line=self.line, store=self.store, dumped=self.dumped)
            with self.said_plainly(), task_errors():
                self.learn_overlaps(self.found(told, _HELD)["held"].to_pylist())
        return self._overlaps[0]

    def learn_overlaps(self, said: Iterable[str]) -> Overlaps:
        """Repeats in its files, from what :meth:`ticdc_lab.sources.overlaps.Held.said` of all tasks."""

        def compare(of: Sequence[SharedStretch], skips: Skips) -> Iterable[tuple[int, int, int]]:
            compared = partial(
                pieces.compared, line=self.line, store=self.store, dumped=self.dumped, of=of, skips=skips
            )
            return (tuple(row.values()) for row in self.found(compared, pieces.DIGESTS).to_pylist())

        self._overlaps[:] = [overlaps_of(whole_runs(said), self._files(), compare)]
        return self._overlaps[0]

    def sample(self, n: int) -> pa.Table:
        """Up to ``n`` of the first messages, read by the driver; those without a key and a value are passed over.

        Of large ones, fewer: about as many bytes as are decoded at once. Where nothing else is found, these are given.
        """
        with self.said_plainly():
            batches = iter(self.raw.limit(n).toArrow().to_batches()) if self.pieces is None else self._one_by_one()
            found = self._first(n, batches)
            if self.pieces is None and found.num_rows == n and pc.all(is_empty(found)).as_py():
                found = self._first(n, iter(self.raw.limit(_PASSED_OVER * n).toArrow().to_batches()))
        return found

    def heads_of_files(self, n: int) -> pa.Table:
        """Up to ``n`` of the first messages of each of up to :data:`FILES_LOOKED_AT` files, read by the driver."""
        assert self.pieces is not None
        begins = dict(reversed([(file, i) for i, file in enumerate(self.pieces["file"].to_pylist())]))
        some = sorted(begins.values())[:FILES_LOOKED_AT]
        return pa.concat_tables(self._first(n, iter(self.pieces.slice(i, 1).to_batches())) for i in some)

    def refusal(self) -> SourceError | None:
        """Why none of the first records is a message; None where there are none."""
        if self.pieces is None or not self.pieces.num_rows:
            return None
        for _, rejected in self.read(iter(self.pieces.slice(0, 1).to_batches())):
            if rejected is not None and rejected.num_rows:
                first = rejected.slice(0, 1).to_pylist()[0]
                said = first["reason"].removeprefix(f"{self.pieces['file'][0].as_py()}, ")
                said = said[0].upper() + said[1:] if said.startswith(("line ", "row ")) else f"Line 1: {said}"
                is_replaced = first["error_class"].endswith(":re-encoded")
                return SourceError(
                    f"{self.name}: none of its first records is a message. {said}",
                    hint="Record the topic as bytes: ticdc-lab record kafka://HOST:PORT/TOPIC --out topic.jsonl.gz"
                    if is_replaced
                    else refused_hint(self.name, first["value"] or b""),
                )
        return None

    def _first(self, n: int, batches: Batches) -> pa.Table:
        found, nothing = list[pa.RecordBatch](), list[pa.RecordBatch]()
        for messages in (some for read, _ in self.read(batches) for some in at_once(read)):
            without = is_empty(messages)
            found.append(messages.filter(pc.invert(without)).slice(0, n))
            nothing.append(messages.filter(without).slice(0, n))
            if sum(b.num_rows for b in found) >= n or sum(b.nbytes for b in found) >= AT_ONCE:
                break
        some = found if any(b.num_rows for b in found) else nothing
        whole = arrow_schema(MESSAGES)  # Parquet gives what decoding needs alone
        return (pa.Table.from_batches(some) if some else whole.empty_table()).slice(0, n)

    def _one_by_one(self) -> Batches:
        assert self.pieces is not None
        return (batch for batch in self.pieces.to_batches(max_chunksize=1))


_HELD = pa.schema([("held", pa.string())])
_PASSED_OVER = 64
"""So many times the messages of a sample are read where its first ones are empty."""

FILES_LOOKED_AT = 64
"""Files of a folder into which the driver looks before anything is read."""


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
            f"The embedded engine cannot read the Delta table {source}: {str(error).splitlines()[0]}",
            hint="Run it with --engine spark; in Python: ticdc_lab.session('spark').",
        ) from error


def _known_table(spark: SparkSession, name: str) -> Source:
    if not spark.catalog.tableExists(name):
        raise SourceError(f"The session has no table {name}.", hint="List its tables: spark.catalog.listTables().")
    table = spark.table(name)
    return _table(name, table, kind="table", measure=partial(_size_of_frame, table))


def _capture_source(spark: SparkSession, source: str, files: list[Path], line: int) -> Source:
    if len({f.suffix == ".gz" for f in files}) > 1:
        raise _mixed(source)
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
    sizes = {store.named(f.path): f.size for f in stored if f.size}
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
    if len({store.named(f.path).endswith(".gz") for f in stored}) > 1:
        raise _mixed(store.shown)
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
    zipped = sum(f.endswith(".gz") for f in files)
    if zipped not in (0, len(files)):
        raise _mixed(url)
    if zipped:
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


def _mixed(source: str) -> SourceError:
    return SourceError(
        f"{source} contains gzip and plain capture files side by side.",
        hint="Load them one by one, or unpack the *.gz files first: gunzip FILE",
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
        measure=partial(storage.size_of, found, local=local), guesses=reading.guesses,
        shown=(*reading.shown, *storage.of_paths(found, settings)),
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


def as_they_are(batches: Batches) -> Iterator[tuple[pa.RecordBatch, None]]:
    """Batches that are messages already."""
    for batch in batches:
        yield batch, None
