"""Where change logs lie: files that hold the messages of a topic, or the topic in Kafka.

A source is a DataFrame of raw records and the function over Arrow batches that turns them into messages; parsing and
decoding then run in one pass (:mod:`ticdc_lab.load`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField

from ticdc_lab.codecs.csv_settings import DEFAULTS, StorageSettings
from ticdc_lab.codecs.detect import Detected
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.errors import SourceError
from ticdc_lab.schema import MESSAGES, require_columns
from ticdc_lab.sources import capture, kafka, parquet, size, storage
from ticdc_lab.sources.size import Size

KINDS = ("capture", "parquet", "delta", "table", "storage", "kafka")
"""Source kinds: JSON Lines (plain or gzip), Parquet, Delta with the columns of messages; the name of a table that the
session knows; a folder of the storage sink; Kafka."""

_CAPTURE_ENDINGS = (".jsonl", ".json", ".ndjson", ".jsonl.gz", ".json.gz", ".ndjson.gz")
_WHAT = (
    "a capture file (.jsonl, .jsonl.gz, .parquet), a folder of such files, a Delta table, the name of a table, a "
    "folder of TiCDC's storage sink, or kafka://HOST:PORT/TOPIC"
)

_FILES_LOOKED_INTO = 1_000
"""Up to so many Parquet files the driver reads the footers of; beyond, Spark plans the reading."""
_GROUPS_A_TASK = 8

Batches = Iterator[pa.RecordBatch]
Reader = Callable[[Batches], Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]]


@dataclass(frozen=True, slots=True)
class Source:
    """Raw records, and how to read messages (and what is none) from them."""

    name: str
    raw: DataFrame
    read: Reader
    table: DataFrame | None = None
    """The messages, where Spark can read them by itself."""
    told: Detected | None = None
    """What the messages are, where the source itself says so."""
    decode: Callable[[bool], Callable[[Batches], Batches]] | None = None
    """Raw records to events, with or without images, where messages alone do not suffice."""
    expected: DataFrame | None = None
    """Which offsets should be there (:data:`ticdc_lab.sources.kafka.EXPECTED`), where the source knows."""
    said_plainly: Callable[[], AbstractContextManager[None]] = nullcontext
    """Wraps reading: an error of this kind of source leaves it as a SourceError."""
    kind: str = ""
    """One of :data:`KINDS`."""
    measure: Callable[[], Size] = Size
    """How large it is, without reading it."""

    @property
    def messages(self) -> DataFrame:
        """:data:`ticdc_lab.schema.MESSAGES`; what is no message is left out here and shows in the quarantine."""
        read = self.read

        def run(batches: Batches) -> Batches:
            return (messages for messages, _ in read(batches))

        return self.raw.mapInArrow(run, MESSAGES) if self.table is None else self.table

    def sample(self, n: int) -> pa.Table:
        """Up to ``n`` of the first messages, read by the driver."""
        with self.said_plainly():
            batches = iter(self.raw.limit(n).toArrow().to_batches())
        found: list[pa.RecordBatch] = []
        for messages, _ in self.read(batches):
            found.append(messages.slice(0, n))
            if sum(b.num_rows for b in found) >= n:
                break
        empty = pa.Table.from_batches([], arrow_schema(MESSAGES))
        return pa.Table.from_batches(found).slice(0, n) if found else empty


def open_source(
    spark: SparkSession,
    source: str,
    *,
    kind: str = "auto",
    settings: StorageSettings = DEFAULTS,
    options: Mapping[str, str] | None = None,
) -> Source:
    """Find out what lies at ``source`` and how to read it; only for a storage folder this starts a small Spark job.

    Parameters
    ----------
    spark
        The caller's session.
    source
        A path, a URL that the session's Hadoop configuration can read (``s3a://..``), or
        ``kafka://HOST:PORT[,HOST:PORT]/TOPIC[,TOPIC]``.
    kind
        One of :data:`KINDS`, or ``auto``: told from the name and, in a folder, from what is there.
    settings
        Of a storage folder: what its files do not say.
    options
        Settings of the source by name; for Kafka those of :func:`ticdc_lab.sources.kafka.read_batch`. They are in no
        error's text.

    Raises
    ------
    SourceError
        Nothing is there, it is empty, its kind cannot be told, or the broker cannot be read from.
    """
    if kind not in ("auto", *KINDS):
        raise SourceError(f"Source kind {kind!r} is unknown; expected one of auto, {', '.join(KINDS)}.")
    if kind == "kafka" or (kind == "auto" and kafka.is_kafka(source)):
        topics = kafka.topics_of(source, options)
        frame, expected = kafka.read_batch(spark, topics)
        plainly = partial(kafka.said_plainly, topics)
        opened = _table(source, frame, kind="kafka", measure=partial(kafka.size_of, expected))
        return replace(opened, expected=expected, said_plainly=plainly)
    if options:
        raise SourceError(
            f"{source} takes none of the options {', '.join(sorted(options))}.",
            hint="Kafka takes those of Spark's connector, a storage folder csv.*, terminator and date-separator.",
        )
    if kind in ("auto", "storage") and (found := _storage_source(spark, source, kind, settings)):
        return found
    if kind == "table" or (kind == "auto" and _is_table(spark, source)):
        table = spark.table(source)
        return _table(source, table, kind="table", measure=partial(_size_of_frame, table))
    files = data_files(source)
    if kind == "auto":
        kind = _kind_of(source, files)
    if kind == "delta":
        table = spark.read.format("delta").load(source)
        return _table(source, table, kind="delta", measure=partial(_size_of_frame, table))
    if kind == "parquet":
        return _parquet_source(spark, source, files)
    zipped = [str(f.resolve()) for f in files or () if f.suffix == ".gz"]
    if files is not None and len(zipped) == len(files):
        raw = spark.createDataFrame([(f,) for f in zipped], "file string").repartition(len(zipped))
        return Source(source, raw, capture.read_gzip, kind="capture", measure=partial(size.of_lines, files or ()))
    if zipped:
        raise SourceError(
            f"{source} holds gzip and plain capture files side by side.",
            hint="Load them one by one, or unpack the gzip files first.",
        )
    paths = source if files is None else [verbatim(f) for f in files]
    text = spark.read.text(paths, lineSep="\n")
    raw = text.select(F.col("value").cast("binary").alias("line"), F.col("_metadata.file_path").alias("file"))
    measure = Size if files is None else partial(size.of_lines, files)
    return Source(source, raw, capture.read_lines, kind="capture", measure=measure)


def _is_table(spark: SparkSession, source: str) -> bool:
    """Whether it is no path of this machine but the name of a table that the session knows."""
    return may_be_table(source) and spark.catalog.tableExists(source)


def _size_of_frame(table: DataFrame) -> Size:
    """Of a table: the files that hold it now, where they lie on this machine."""
    places = [urlsplit(f) for f in table.inputFiles()]
    files = [Path(unquote(p.path)) for p in places if p.scheme in ("", "file") and p.path.endswith(".parquet")]
    return size.of_parquet(files) if files and len(files) == len(places) else Size()


def _storage_source(spark: SparkSession, source: str, kind: str, settings: StorageSettings) -> Source | None:
    """The source if it is a folder of the storage sink, or was said to be one."""
    local = local_path(source)
    if kind == "auto" and (_kind_of_name(source) if local is None else not local.is_dir()):
        return None
    if local is not None and not local.is_dir():
        raise SourceError(f"{source} is no folder; expected one that TiCDC's storage sink wrote.")
    found = storage.listing(spark, source, local=local, settings=settings)
    if not found.is_storage:
        if kind == "auto":
            return None
        raise SourceError(
            f"{source} holds no file of TiCDC's storage sink: no metadata, schema_*.json or CDC*.csv or .json.",
            hint="Name the folder of the changefeed's sink-uri, in which the file metadata lies.",
        )
    raw, reading, has_commit_ts = storage.opened(spark, found, local=local is not None, settings=settings)
    told = Detected(reading.protocol, has_commit_ts)
    return Source(
        source, raw, reading.messages, None, told, lambda images: reading.events(images=images), kind="storage",
        measure=partial(storage.size_of, found, local=local),
    )  # fmt: skip


def _parquet_source(spark: SparkSession, source: str, files: list[Path] | None) -> Source:
    measure = Size if files is None else partial(size.of_parquet, files)
    table = _table(source, _parquet(spark, source, files), kind="parquet", measure=measure)
    if files is None or len(files) > _FILES_LOOKED_INTO or any(_has_columns_in_name(f, source) for f in files):
        return table
    groups = parquet.row_groups(files)
    if not groups:
        return table
    n_tasks = min(len(groups), max(spark.sparkContext.defaultParallelism, len(groups) // _GROUPS_A_TASK))
    raw = spark.createDataFrame(groups, "file string, row_group int").repartition(n_tasks)
    return replace(table, raw=raw, read=parquet.read_groups)


def _has_columns_in_name(file: Path, source: str) -> bool:
    """Whether folders below the source name columns, as in ``partition=3``."""
    return any("=" in part for part in file.resolve().relative_to(Path(_local(source)).resolve()).parts[:-1])


def _parquet(spark: SparkSession, source: str, files: list[Path] | None) -> DataFrame:
    """All the files found, however deep: Spark alone leaves out those in subfolders without a word."""
    if files is None:
        return spark.read.parquet(source)
    if not Path(_local(source)).is_dir():
        return spark.read.parquet(verbatim(files[0]))
    root = f"file://{Path(_local(source)).resolve()}"  # no pattern, so taken as it is
    return spark.read.option("basePath", root).parquet(*map(verbatim, files))


def _table(source: str, df: DataFrame, *, kind: str, measure: Callable[[], Size]) -> Source:
    messages = as_messages(df)
    return Source(source, messages.select(*parquet.COLUMNS), _as_they_are, messages, kind=kind, measure=measure)


def as_messages(df: DataFrame) -> DataFrame:
    """:data:`ticdc_lab.schema.MESSAGES` from a frame with at least what decoding needs of them; also on a stream."""
    require_columns(df, *parquet.COLUMNS, frame="messages")
    return df.select(*(_typed(df, f) for f in MESSAGES.fields))


def _typed(df: DataFrame, field: StructField) -> Column:
    """The column in its contract's type; one that is not there is null, a timestamp in numbers is milliseconds."""
    column = F.col(field.name) if field.name in df.columns else F.lit(None)
    if field.name == "timestamp" and field.name in df.columns and isinstance(df.schema["timestamp"].dataType, LongType):
        column = F.timestamp_millis(column)
    return column.cast(field.dataType).alias(field.name)


def verbatim(path: Path) -> str:
    """A path for Spark, which takes some characters for a pattern and decodes none."""
    return "file://" + re.sub(r"([\[\]{}*?\\])", r"\\\1", str(path.resolve()))


def local_path(place: str) -> Path | None:
    """A place as a path of this machine, or None for a URL of another kind."""
    return Path(_local(place)).absolute() if "://" not in place or place.startswith("file://") else None


def may_be_table(source: str) -> bool:
    """Whether a source is written as the name of a table, and no path of this machine."""
    return bool(re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,2}", source)) and not Path(source).exists()


def _local(source: str) -> str:
    return source.removeprefix("file://")


def _as_they_are(batches: Batches) -> Iterator[tuple[pa.RecordBatch, None]]:
    for batch in batches:
        yield batch, None


def data_files(source: str) -> list[Path] | None:
    """The data files at a local path, in name order; None for a URL, which is Spark's to list."""
    path = local_path(source)
    if path is None:
        return None
    if not path.exists():
        raise SourceError(
            f"{source} does not exist; expected {_WHAT}.", hint="Check the path and the working directory."
        )
    files = sorted(p for p in path.rglob("*") if p.is_file() and _is_data(p, path)) if path.is_dir() else [path]
    if not files:
        raise SourceError(f"The folder {source} holds no data file; expected {_WHAT}.")
    files = [f for f in files if f.stat().st_size] or files[:1]
    if not files[0].stat().st_size:
        raise SourceError(
            f"{source} is empty: 0 bytes, so there is no message in it.", hint="Was the recording cut short?"
        )
    return files


def _is_data(p: Path, root: Path) -> bool:
    inside = p.relative_to(root).parts
    return not any(part.startswith((".", "_")) and part != "_delta_log" for part in inside)


def _kind_of(source: str, files: list[Path] | None) -> str:
    names = [source] if files is None else [str(f) for f in files]
    if files is not None and (Path(_local(source)) / "_delta_log").is_dir():
        return "delta"
    kinds = {_kind_of_name(n) for n in names}
    if len(kinds) == 1 and None not in kinds:
        return str(kinds.pop())
    found = ", ".join(sorted({Path(n).name for n in names})[:4])
    raise SourceError(
        f"Cannot tell what {source} is: found {found}; expected {_WHAT}.",
        hint=f"Say it with --source-kind {'|'.join(KINDS)}.",
    )


def _kind_of_name(name: str) -> str | None:
    if name.endswith(_CAPTURE_ENDINGS):
        return "capture"
    return "parquet" if name.endswith(".parquet") else None
