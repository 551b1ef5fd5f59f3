"""Folders that TiCDC's storage sink wrote, as a source (docs/reading.md).

The topic is the folder. Partition 0 holds the schema files, each other partition a stream: a table, or a physical
partition or dispatcher of one. The offset is the file's rank in its stream, shifted, and the record's byte position.
The file ``metadata`` is a watermark at the end of every partition. Order and completeness come from the listing.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from ticdc_lab.codecs.csv_fields import OPTIONAL, BinaryTexts, Flags, binary_texts, by_null
from ticdc_lab.codecs.kernel.arrow import arrow_schema, spans
from ticdc_lab.codecs.table_file import Cut
from ticdc_lab.engine import hadoop_files, is_sail, parallelism
from ticdc_lab.engine.object_stores import Store
from ticdc_lab.errors import SourceError
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.events import FILE_BITS
from ticdc_lab.events.arrays import Batches
from ticdc_lab.facts.known import LostFiles, LostSchema
from ticdc_lab.settings import Setting, Settings
from ticdc_lab.sources.places import Size, size_of_lines
from ticdc_lab.sources.storage_layout import (
    METADATA,
    Refused,
    StoragePlace,
    has_its_folders,
    named_by_index,
    numbered_twice,
    place_of,
    roots_below,
    schema_files,
    streams_of,
)
from ticdc_lab.sources.storage_reading import Reading, Unreadable, read_inside
from ticdc_lab.words import count

FILES = StructType(
    [
        StructField("kind", StringType(), False),
        StructField("path", StringType(), False),
        StructField("size", LongType()),
        StructField("partition", IntegerType()),
        StructField("rank", LongType()),
        StructField("extension", StringType()),
        StructField("table_id", LongType()),
        StructField("schema_path", StringType()),
        StructField("error_class", StringType()),
        StructField("reason", StringType()),
    ]
)
"""A file that gives messages, or that is refused with a reason."""
_BROUGHT = StructType([*FILES.fields, StructField("content", BinaryType()), StructField("definition", BinaryType())])
_TOLD = StructType([StructField("told", StringType())])

FILES_A_TASK = 2_000
_TASKS_A_CORE = 2
BYTES_A_TASK = 64 << 20
_FILES_LOOKED_INTO = 32
_BYTES_LOOKED_AT = 16 << 20
_RECORDS_LOOKED_INTO = 500
_ROOTS_SAID = 5
_LEVELS_ABOVE = 5
_OF_SINK = (
    r"schema_[0-9]{1,19}_[0-9]{10}\.json|CDC(_[0-9A-Za-z-]+_)?[0-9]{6,20}\.(csv|json)|CDC(_[0-9A-Za-z-]+)?\.index"
)
_ENOUGH_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Listed:
    """A file: its path below the root, with slashes, its size in bytes, and when it changed, where these are known."""

    path: str
    size: int | None
    changed_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """What lies in a folder, by name and size alone."""

    root: str
    places: tuple[StoragePlace, ...]
    refused: tuple[Refused, ...]
    sizes: dict[str, int | None]
    by_path: bool
    """Whether workers read a file by its path; else Spark brings what is in it."""
    copy: str = ""
    """A local folder that holds the files of an object store too."""

    @property
    def is_storage(self) -> bool:
        """Whether it looks like a folder of the storage sink."""
        kinds = {p.kind for p in self.places}
        return "schema" in kinds or "data" in kinds or kinds == {"metadata"}

    @property
    def protocol(self) -> str:
        """What most of the data files are."""
        data = [p.extension for p in self.places if p.kind == "data"]
        return "canal-json" if 2 * data.count("json") > len(data) else "csv"

    @property
    def topic(self) -> str:
        """The folder's name."""
        place = shown_source(self.root)
        return place.rstrip("/").rsplit("/", 1)[-1] or "storage"


def listing(spark: SparkSession, root: str, *, local: Path | None, settings: Settings) -> Listing:
    """List a folder: of this machine, of an object store, or a URL for Hadoop.

    Raises SourceError: the URL cannot be listed.
    """
    if (store := Store.of(root)) is not None:
        found = listed((Listed(*file) for file in store.files()), root, settings, by_path=True)
        return replace(found, copy=store.copied(found.sizes).copy) if is_sail(spark) and found.is_storage else found
    if local is None:
        return listed(files_at(spark, root), root, settings)
    return listed(local_files(local), str(local.resolve()), settings, by_path=True)


def misplaced(found: Listing, source: str, *, local: Path | None) -> SourceError | None:
    """The error of a folder above or below the one that a changefeed wrote to; None where it is neither."""
    if METADATA in found.sizes:
        return None
    paths = [*(r.path for r in found.refused), *(p.path for p in found.places)]
    if below := roots_below(paths):
        inside = sum(path.startswith(tuple(f"{root}/" for root in below)) for path in paths)
        if 2 * inside <= len(paths):
            return None
        n, named = len(below), ", ".join(f"{root}/" for root in below[:_ROOTS_SAID])
        where = f"it lies in {named}" if n == 1 else f"it contains the files of {n} changefeeds, in {named}"
        more = ", .." if n > _ROOTS_SAID else ""
        first = shlex.quote(source.rstrip("/") + "/" + below[0])
        return SourceError(
            f"{source} is no folder that TiCDC's storage sink wrote to: {where}{more}.",
            hint=f"Name that folder: ticdc-lab survey {first}",
        )
    if not found.places and (other := next((r for r in found.refused if has_its_folders(r.path)), None)):
        return SourceError(
            f"{source} has the folders of TiCDC's storage sink, but not the names of its data files, which give their "
            f"order: {other.reason}.",
            hint=f"Copy it again with the names of its files, with meta/ and {METADATA}.",
        )
    if local is None or not any(re.fullmatch(_OF_SINK, path.rsplit("/", 1)[-1]) for path in paths):
        return None
    for above in list(local.resolve().parents)[:_LEVELS_ABOVE]:
        if (above / METADATA).is_file():
            return SourceError(
                f"{source} is a part of the folder {above}, which TiCDC's storage sink wrote to: there the file "
                f"{METADATA} lies, and schemas and tables have the names of the folders.",
                hint=f"Name that folder: ticdc-lab survey {shlex.quote(str(above))}",
            )
    return None


_OF_TOOLS = re.compile(r"(?:^|/)(?:[._][^/]*|__MACOSX/.*|Thumbs\.db|desktop\.ini)\Z")
"""Files that a system or a tool puts beside others, such as ``.DS_Store`` and ``_SUCCESS``: none has data."""


def local_files(root: Path) -> Iterator[Listed | Refused]:
    """Every file below a folder of this machine.

    All links are refused, and so is what is no plain file: the sink writes neither, and a link can
    leave the folder.
    """
    waiting = [("", str(root))]
    while waiting:
        below, folder = waiting.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                path = below + entry.name
                if entry.is_symlink():
                    yield Refused(path, "link", f"{path!r} is a symbolic link, which is not followed")
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append((path + "/", entry.path))
                elif stat.S_ISREG((found := entry.stat(follow_symlinks=False)).st_mode):
                    yield Listed(path, found.st_size, found.st_mtime_ns)
                else:
                    yield Refused(path, "no-plain-file", f"{path!r} is a device, a pipe or a socket")


def files_at(spark: SparkSession, url: str) -> Iterator[Listed | Refused]:
    """Every file below a URL that the session's Hadoop configuration can read.

    Raises SetupError, SourceError: the session has no Hadoop, or nothing can be listed there.
    """
    folder = hadoop_files(spark, url)
    for path, n_bytes in folder.files:
        if path.startswith(folder.root):
            yield Listed(path.removeprefix(folder.root), n_bytes)
        else:
            yield Refused(path, "unsafe-path", f"{path!r} does not lie below {folder.root!r}")


_TOO_DEEP = (
    "{path!r} has more folders than a table's files, and the folder has no file `metadata`: it lies above the one that "
    "TiCDC's storage sink wrote to, or a name has a `/`, which is read only beside `metadata`"
)


def listed(found: Iterable[Listed | Refused], root: str, settings: Settings, *, by_path: bool = False) -> Listing:
    """The files of a folder with their places."""
    sizes: dict[str, int | None] = {}
    places: list[StoragePlace] = []
    refused: list[Refused] = []
    dates, files = settings.value("sink.date-separator", "auto"), [*found]
    is_root = any(file.path == METADATA for file in files)
    for file in files:
        place = place_of(file.path, date_separator=dates) if isinstance(file, Listed) else file
        if isinstance(place, StoragePlace) and place.has_slash and not is_root:
            place = Refused(place.path, "unknown-file", _TOO_DEEP.format(path=place.path))
        if isinstance(place, Refused) and place.error_class == "unknown-file" and _OF_TOOLS.search(place.path):
            continue
        if isinstance(place, Refused):
            refused.append(place)
        else:
            places.append(place)
            sizes[place.path] = file.size if isinstance(file, Listed) else 0
    return Listing(root, tuple(places), tuple(refused), sizes, by_path)


def size_of(found: Listing, *, local: Path | None) -> Size:
    """Bytes of the data files; their records, estimated from the first ones, where this machine sees them."""
    data = [p.path for p in found.places if p.kind == "data"]
    n_bytes = sum(found.sizes[p] or 0 for p in data)
    if local is None or not data:
        return Size(n_bytes)
    part = size_of_lines([local / p for p in data[:_FILES_LOOKED_INTO]])
    if not part.messages or not part.bytes:
        return Size(n_bytes)
    return replace(part, bytes=n_bytes, messages=round(part.messages * n_bytes / part.bytes), is_exact=False)


@dataclass(frozen=True, slots=True)
class Files:
    """:data:`FILES` as tasks read them."""

    frame: Callable[[], DataFrame]
    """For an engine; where its workers do not see the folder, with what is in the files."""
    shares: tuple[pa.Table, ...]
    """The files of each task; empty where only the engine can read the folder."""

    @classmethod
    def of(cls, spark: SparkSession, found: Listing, table: pa.Table) -> Files:
        """The files of a listing (:func:`files_table`), dealt to tasks."""
        tasks = _tasks(table, parallelism(spark))
        n = int(tasks[-1]) + 1 if len(tasks) else 1
        table = table.append_column("number", pa.array(range(len(table)), pa.int64()))

        def frame() -> DataFrame:
            numbered = spark.createDataFrame(table.append_column("task", pa.array(tasks)))
            files = numbered.repartition(n, "task").drop("task")
            return files if found.by_path else _brought(spark, found, files)

        ends = np.searchsorted(tasks, np.arange(n + 1)) if found.by_path else ()
        return cls(cache(frame), tuple(table.slice(a, b - a) for a, b in pairwise(ends)))


def files_table(found: Listing, *, with_index: bool = False) -> pa.Table:
    """:data:`FILES`: every file that gives messages, with its partition and rank, and every one that is refused.

    With index files, if wanted: their ``schema_path`` is the newest data file that they are about.
    """
    definitions = schema_files(found.places)
    rows: list[dict[str, Any]] = []
    has_metadata = any(p.kind == "metadata" for p in found.places)
    for partition, files in enumerate(streams_of(found.places).values()):
        first = _first_rank(files)
        rows += [row_of(p, found, definitions, partition, rank) for rank, p in enumerate(files, start=first)]
        if has_metadata:
            end = {"kind": "metadata", "path": METADATA, "partition": partition, "rank": len(files) + first}
            rows.append(end | {"size": found.sizes[METADATA]})
    for r in found.refused:
        rows.append({"kind": "refused", "path": r.path, "error_class": r.error_class, "reason": r.reason})
    rows += _index_files(found) if with_index else ()
    return pa.Table.from_pylist(rows, arrow_schema(FILES))


def row_of(
    p: StoragePlace, found: Listing, definitions: Mapping[tuple[str, str, int], StoragePlace], partition: int, rank: int
) -> dict[str, Any]:
    """A file as a row of :data:`FILES`; ``definitions`` as of :func:`schema_files`."""
    schema = definitions.get(p.version_key)
    return {
        "kind": p.kind, "path": p.path, "size": found.sizes[p.path], "partition": partition, "rank": rank,
        "extension": p.extension, "table_id": _table_id(p), "error_class": None, "reason": None,
        "schema_path": schema.path if schema and p.kind == "data" else None,
    }  # fmt: skip


def _tasks(table: pa.Table, cores: int) -> np.ndarray:
    """The task of each file. Neighbours stay together: files of one table version are decoded in one go."""
    n = table.num_rows
    files = min(FILES_A_TASK, max(1, n // (_TASKS_A_CORE * cores)))
    size = pc.fill_null(table["size"], 0).to_numpy()
    numbers = np.maximum.accumulate(np.maximum(np.arange(n) // files, np.cumsum(size) // BYTES_A_TASK))
    return np.unique(numbers, return_inverse=True)[1].astype(np.int32)


def _index_files(found: Listing) -> Iterator[dict[str, Any]]:
    newest: dict[tuple[str, str], StoragePlace] = {}
    for p in found.places:
        at = p.folder, p.dispatcher
        if p.kind == "data" and (at not in newest or p.number > newest[at].number):
            newest[at] = p
    for p in found.places:
        if p.kind == "index":
            last = newest.get((p.folder, p.dispatcher))
            yield {"kind": "index", "path": p.path, "size": found.sizes[p.path], "schema_path": last and last.path}


def missing_files(found: Listing, reading: Reading) -> tuple[LostFiles, ...]:
    """Data files that are missing, as the numbers of others and index files show.

    Those before the first of a stream may have expired: :func:`files_table`.
    """
    lost, streams = list[LostFiles](), streams_of(found.places)

    def lose(of: StoragePlace, partition: int, rank: int, number: int, n: int) -> None:
        lost.append(lost_before(of, found.topic, partition, rank, number, n))

    for partition, files in enumerate(streams.values()):
        before: StoragePlace | None = None
        for rank, p in enumerate(files, start=_first_rank(files)):
            if p.kind == "data":
                goes_on = before is not None and before.folder == p.folder
                last = before.number if before and goes_on else 0
                if before is not None and p.number > last + 1:
                    lose(p, partition, rank, last + 1, p.number - last - 1)
                before = p
    numbers = {stream: partition for partition, stream in enumerate(streams)}
    for row in _index_files(found) if reading.root is not None else ():
        with suppress(Unreadable):
            if told := named_by_index(row["path"], reading.content(row)):
                files = streams.get(told.stream, [])
                last = max((p.number for p in files if p.folder == told.folder), default=0)
                if told.number > last:
                    at = told.version, told.date, told.number
                    rank = _first_rank(files) + sum((p.version, p.date, p.number) < at for p in files)
                    lose(told, numbers.get(told.stream, _NO_STREAM), rank, last + 1, told.number - last)
    return tuple(lost)


def unread_files(found: Listing, refused: Collection[tuple[int, int]]) -> tuple[LostFiles, ...]:
    """Data files that could not be read in full, by partitions and offsets of what is in the quarantine."""
    data = {
        (partition, rank): p.path for partition, files in enumerate(streams_of(found.places).values())
        for rank, p in enumerate(files, start=_first_rank(files)) if p.kind == "data"
    }  # fmt: skip
    return unread_among(data, refused, topic=found.topic)


def unread_among(
    data: Mapping[tuple[int, int], str], refused: Collection[tuple[int, int]], *, topic: str
) -> tuple[LostFiles, ...]:
    """As :func:`unread_files`, of data files by partition and rank."""
    lost = dict[str, LostFiles]()
    for partition, offset in sorted(refused):
        if (path := data.get((partition, offset >> FILE_BITS))) is not None:  # a checkpoint is behind the last
            lost.setdefault(path, LostFiles(topic, partition, offset, path, 1, is_there=True))
    return tuple(lost.values())


def places_in_files(found: Listing, places: Collection[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """Partitions and offsets of a log as what they are in its folder: the file, and the line where a record begins."""
    files = {(r["partition"], r["rank"]): r["path"] for r in files_table(found).to_pylist() if r["rank"] is not None}
    return places_among(files, places, root=(found.copy or found.root) if found.by_path else None)


def places_among(
    files: Mapping[tuple[int, int], str], places: Collection[tuple[int, int]], *, root: str | None
) -> dict[tuple[int, int], str]:
    """As :func:`places_in_files`, of files by partition and rank; of a file that cannot be read the byte."""
    contents, words = dict[str, bytes | None](), dict[tuple[int, int], str]()
    for partition, offset in sorted(places):
        path, position = files.get((partition, offset >> FILE_BITS)), offset & ((1 << FILE_BITS) - 1)
        if path is None:
            continue
        if path not in contents:
            contents.clear()  # the places of a file follow each other
            contents[path] = None
            with suppress(Unreadable):
                contents[path] = read_inside(root, path) if root is not None else None
        raw, is_data = contents[path], isinstance(p := place_of(path), StoragePlace) and p.kind == "data"
        if is_data and raw is not None and _LINE_END in raw:
            words[partition, offset] = f"{path} line {1 + raw.count(_LINE_END, 0, position)}"
        else:
            words[partition, offset] = f"{path} byte {position}" if is_data else path
    return words


def lost_before(p: StoragePlace, topic: str, partition: int, rank: int, number: int, n: int) -> LostFiles:
    """So many data files from a number on that are missing before a rank; ``p`` is another one of their folder."""
    path = re.sub(r"\d+(?=\.\w+$)", lambda digits: f"{number:0{len(digits[0])}}", p.path)
    return LostFiles(topic, partition, (rank << FILE_BITS) - 1, path, n)


_LINE_END = b"\n"
_NO_STREAM = -1
"""Of a stream without any file."""


def without_data(found: Listing) -> str:
    """What is not known of a folder whose only file is the checkpoint; empty for others."""
    if any(p.kind in ("data", "schema") for p in found.places):
        return ""
    return (
        f"The folder contains `{METADATA}` and no file of any table: its changefeed wrote nothing yet, or the files "
        "are missing. Its protocol is not known."
    )


def of_two_writers(found: Listing) -> str:
    """Which data files one changefeed does not write: of two kinds, or with another's number; empty without any."""
    kinds = {p.extension: p.path for p in found.places if p.kind == "data"}
    if twice := list(numbered_twice(found.places)):
        first, other, *_ = twice[0]
        n = sum(len(of) - 1 for of in twice)
        shown = (
            f"{count(n, 'data file has', 'data files have')} the number of another one: {other.path} and {first.path}"
        )
    elif len(kinds) > 1:
        shown = f"Some data files are csv, as {kinds['csv']}, and others canal-json, as {kinds['json']}"
    else:
        return ""
    return f"{shown}: two changefeeds wrote to the folder, or files were copied there, so findings may be wrong."


def missing_schemas(found: Listing, reading: Reading) -> tuple[LostSchema, ...]:
    """Schema files that are missing, as data files of their table version show."""
    there, lost = schema_files(found.places), list[LostSchema]()
    for (schema, table, version), path in sorted(files_of_versions(found).items()):
        if (schema, table, version) in there:
            continue
        within = "/".join((*filter(None, (schema, table)), "meta", f"schema_{version}_*.json"))
        names = schema, table
        if not table and path.endswith(".json") and reading.root is not None:  # the folder is a table id, rows name it
            with suppress(Unreadable):
                row = dict.fromkeys(FILES.names) | {"kind": "data", "path": path, "extension": "json", "partition": 0}
                data = spans(pa.array([reading.content(row).removeprefix(BOM_UTF8)], pa.binary()))[0]
                first = reading.first_events(row, data).slice(0, 1).to_pylist()
                names = (first[0]["schema_name"], first[0]["table_name"]) if first else names
        lost.append(LostSchema(*names, version, within))
    return tuple(lost)


def _first_rank(files: Iterable[StoragePlace]) -> int:
    """Files are numbered from 1: where the first that is there has another number, what lay before it expired."""
    return 2 if next((p.number for p in files if p.kind == "data"), 1) > 1 else 1


def _table_id(p: StoragePlace) -> int | None:
    if p.kind != "data":
        return None
    if p.partition:
        return int(p.partition)
    return int(p.schema) if not p.table and p.schema.isdigit() else None


def _brought(spark: SparkSession, found: Listing, files: DataFrame) -> DataFrame:
    """Contents by Spark's own reader, for file systems that only the JVM knows."""
    wanted = sorted({p.path for p in found.places})
    contents = _contents(spark, found.root, wanted)
    schemas = [p.path for p in found.places if p.kind == "schema"]
    definitions = _contents(spark, found.root, schemas).select(
        F.col("path").alias("schema_path"), F.col("content").alias("definition")
    )
    whole = contents.join(F.broadcast(files), "path").join(F.broadcast(definitions), "schema_path", "left")
    nothing = F.lit(None).cast("binary")
    refused = files.where("error_class IS NOT NULL").withColumns({"content": nothing, "definition": nothing})
    return whole.select(*_BROUGHT.names).unionByName(refused.select(*_BROUGHT.names))


def _contents(spark: SparkSession, root: str, paths: list[str]) -> DataFrame:
    if not paths:
        return spark.createDataFrame([], "path string, content binary")
    base = root.rstrip("/") + "/"
    escaped = [base + re.sub(r"([\[\]{}*?\\])", r"\\\1", p) for p in paths]
    read = spark.read.format("binaryFile").load(escaped)
    return read.select(_below(base).alias("path"), "content")


def _below(base: str) -> Column:
    """The part of a URL below the root."""
    return F.regexp_replace("path", root_pattern(base), "")


def root_pattern(base: str) -> str:
    """Matches the root at the beginning of a URL: file systems write scheme and authority in several forms."""
    _, _, place = base.split("://", 1)[-1].partition("/")
    return "^[^/:]+:(?://[^/]*)?" + re.escape(f"/{place}" if place else "/")


def opened(
    spark: SparkSession, found: Listing, *, settings: Settings, with_index: bool = False
) -> tuple[Files, Reading, bool]:
    """The files of a listing, how tasks read them, and whether their rows have a commit_ts."""
    table = files_table(found, with_index=with_index)
    files = Files.of(spark, found, table)
    if found.by_path:
        return files, *reading_of(found, table, settings=settings)
    some = first_files(found)

    def looked(reading: Reading) -> list[dict[str, Any]]:
        told = files.frame().where(F.col("path").isin(some)).mapInArrow(look(reading), _TOLD).toArrow()
        return [json.loads(text) for text in told["told"].to_pylist()]

    return files, *_settled(found, Reading(found.topic, found.protocol, None, settings), looked)


def reading_of(found: Listing, table: pa.Table, *, settings: Settings) -> tuple[Reading, bool]:
    """How this machine reads the files of a listing (:func:`files_table`), and whether their rows have a commit_ts."""
    rows = table.filter(pc.is_in(table["path"], pa.array(first_files(found), pa.string())))

    def looked(reading: Reading) -> list[dict[str, Any]]:
        told = pa.Table.from_batches(look(reading)(iter(rows.to_batches())), arrow_schema(_TOLD))
        return [json.loads(text) for text in told["told"].to_pylist()]

    return _settled(found, Reading(found.topic, found.protocol, found.copy or found.root, settings), looked)


def _settled(
    found: Listing, reading: Reading, looked: Callable[[Reading], list[dict[str, Any]]]
) -> tuple[Reading, bool]:
    reading, has_commit_ts = settled(reading, looked)
    versions, some = files_of_versions(found), first_files(found)
    if found.protocol == "csv" and len(versions) > len(some):
        which = _named([f"{s}.{t} version {v}" for s, t, v in list(versions)[len(some) :]])
        said = _LOOKED_INTO.format(n=len(some), of=len(versions), which=which)
        reading = replace(reading, guesses=(*reading.guesses, said))
    return reading, has_commit_ts


def files_of_versions(found: Listing) -> dict[tuple[str, str, int], str]:
    """A data file of each table version that has any; the newest version of every table comes first."""
    first = {
        p.version_key: p.path for p in sorted(found.places, key=lambda p: p.path, reverse=True) if p.kind == "data"
    }
    by_table, ranks = Counter[tuple[str, str]](), dict[tuple[str, str, int], int]()
    for version in sorted(first, key=lambda v: -v[2]):
        ranks[version] = by_table[version[:2]]
        by_table[version[:2]] += 1
    return {v: first[v] for v in sorted(first, key=lambda v: (ranks[v], v)) if found.sizes[first[v]] != 0}


def first_files(found: Listing) -> list[str]:
    """A data file of up to 32 table versions, of as many tables as can be: their first records show the settings."""
    return list(files_of_versions(found).values())[:_FILES_LOOKED_INTO]


def settled(reading: Reading, looked: Callable[[Reading], list[dict[str, Any]]]) -> tuple[Reading, bool]:
    """The reading with what the first files show of the whole folder, and whether rows have a commit_ts.

    ``looked`` gives what each of these files shows (:func:`look`). It is called again where one file decides
    what another leaves open.
    """
    told = looked(reading)
    flags = [{tuple(f) for f in t["flags"]} for t in told if t["flags"]]
    common = set.intersection(*flags) if flags else set()
    nulls = {t["null"] for t in told} - {None}
    null = next(iter(nulls)) if len(nulls) == 1 else None
    settings, guesses = reading.settings, list[str]()
    if null is not None and "sink.csv.null" not in settings:
        settings |= [Setting("sink.csv.null", null, "bytes", "shown", "the only bare word")]
        said = _NULL if all(t["quote"] for t in told if t["null"] is not None) else _NULL_OR_TEXT
        guesses += [said.format(null=null)] if null != Cut().null else []
    elif doubts := sorted({word for t in told for word in t["doubts"]}):
        guesses.append(_TEXT_OR_NULL.format(words=" and ".join(map(repr, doubts))))
    likely = next(iter(common)) if len(common) == 1 else None
    reading = replace(reading, settings=settings, likely=likely)
    if likely is not None and any(t["refused"] for t in told):
        told = looked(reading)
    encoding, said = _encoding(settings, [BinaryTexts(*t["binary"]) for t in told])
    guesses += [said] if said else []
    guesses += _of_tables(_LEFT_OUT, [t["lacks"] for t in told if t["lacks"] and not t["guess"]])
    guesses += _of_tables(_GUESSED, [t["guess"] for t in told if t["guess"]])
    guesses += _of_tables(_REFUSED, [t["refused"] for t in told if t["refused"]])
    rows, dated = (sum(t[name] for t in told) for name in ("rows", "dated"))
    decided = {t["schema_path"]: tuple(t["columns"]) for t in told if t["columns"]}
    shown = [*_shown(told, likely)]
    of_binary = Setting(
        _METHOD, encoding, "bytes", "guessed" if said else "shown",
        said or "the digits of binary values in the first records",
    )  # fmt: skip
    settings |= [of_binary] if _METHOD not in settings else []
    shown += [of_binary] if any(t["binary"][0] for t in told) else []
    if null is not None:
        shown.append(Setting("sink.csv.null", null, "bytes", "shown", "the only bare word"))
    reading = replace(reading, settings=settings, decided=decided, guesses=tuple(guesses), shown=tuple(shown))
    return reading, not rows or dated > 0


def _shown(told: list[dict[str, Any]], likely: Flags | None) -> Iterator[Setting]:
    """Settings that csv records leave no choice about."""
    seen = [t for t in told if t["flags"]]
    where = f"the first records of {len(seen)} file{'s' * (len(seen) != 1)}"
    if likely is not None:
        for name, value in zip(OPTIONAL, likely, strict=True):
            yield Setting(name, value, "bytes", "shown", where)
    for name in ("delimiter", "quote", "output-field-header"):
        values = {t[name] for t in seen if t[name] is not None}
        if len(values) == 1:
            yield Setting(f"sink.csv.{name}", values.pop(), "bytes", "shown", where)
    terminators = {t["terminator"] for t in seen}
    if len(terminators) == 1:
        yield Setting("sink.terminator", terminators.pop(), "bytes", "shown", where)


def of_paths(found: Listing, settings: Settings) -> Iterator[Setting]:
    """Settings that the names of data files leave no choice about, or little."""
    data = [p for p in found.places if p.kind == "data"]
    where = f"the names of {len(data):,} data file{'s' * (len(data) != 1)}"
    widths = {len(p.path.rpartition("/")[2].partition(".")[0].removeprefix("CDC").rpartition("_")[2]) for p in data}
    forms = {_DATES.get(len(p.date), "none") for p in data}
    if len(forms) == 1 and "sink.date-separator" not in settings:
        form = forms.pop()  # four digits may be a partition, and a partition may look like a year
        yield Setting("sink.date-separator", form, "bytes", "shown" if form in ("month", "day") else "likely", where)
    if len(widths) == 1:
        yield Setting("sink.file-index-digit", widths.pop(), "bytes", "shown", where)
    if len(by_id := {not p.table for p in data}) == 1:
        name = "sink.cloud-storage-config.use-table-id-as-path"
        yield Setting(name, by_id.pop(), "bytes", "shown", where)


_DATES = {4: "year", 7: "month", 10: "day"}
"""Forms of date folders by their length."""
_METHOD = "sink.csv.binary-encoding-method"
_OF_FILES = ("sink.terminator", "sink.date-separator", "sink.column-selectors")
"""By which files are read, beside csv's."""


def read_by(given: Settings, shown: Iterable[Setting] | None = None) -> Settings:
    """Settings by which files are read: options; once the bytes are known, also settings of a changefeed's
    file that they do not contradict.
    """
    by_name = {s.name: s.value for s in shown or () if s.sure == "shown"}
    names = {*_OF_FILES, *(["case-sensitive"] if "sink.column-selectors" in given else [])}
    of_files = (s for s in given.known if s.name.startswith("sink.csv.") or s.name in names)
    return Settings(tuple(
        s for s in of_files
        if s.source == "option"
        or (s.source == "file" and shown is not None and by_name.get(s.name, s.value) == s.value)
    ))  # fmt: skip


_NULL = (
    "NULL is read from the text {null!r}, the only one in csv files that is neither quoted nor a number. If it is "
    "another: --option csv.null=TEXT."
)
_NULL_OR_TEXT = (
    "Texts in csv files have no quotes, so a text {null!r} looks like NULL, and both are read as NULL except in a key. "
    "If NULL is another text: --option csv.null=TEXT."
)
_TEXT_OR_NULL = (
    "Texts in csv files have no quotes, so {words} may be NULL or a text; it is read as a text. If it is NULL: "
    "--option csv.null=TEXT."
)
_LEFT_OUT = (
    "Rows in csv files have no value of {which}: TiCDC writes no virtual generated column, and none that a column "
    "selector leaves out."
)
_GUESSED = (
    "Which columns csv rows have was worked out from their values: {which}. If it is another choice: --option "
    "csv.columns='SCHEMA.TABLE:COLUMN,..'."
)
_REFUSED = "Csv files with unknown columns are not read: {which}."
_LOOKED_INTO = (
    "Settings of csv are detected from the first records of {n} of {of} table versions. Each version is read by its "
    "own schema file; which columns rows of the others have is not reported: {which}. To set it: --option "
    "csv.columns='SCHEMA.TABLE:COLUMN,..'."
)
_TABLES_SAID = 5
_BINARY = (
    "Binary values in csv files are read as {method}: {why} If it is {other}: --option "
    "csv.binary-encoding-method={other}."
)


def _of_tables(sentence: str, which: list[str]) -> list[str]:
    each = list(dict.fromkeys(which))
    return [sentence.format(which=_named(each, " of those looked into"))] if each else []


def _named(each: list[str], of: str = "") -> str:
    """The first few, and how many more there are."""
    more = [f"{len(each) - _TABLES_SAID} more{of}"] if len(each) > _TABLES_SAID else []
    return "; ".join([*each[:_TABLES_SAID], *more])


def _encoding(settings: Settings, found: list[BinaryTexts]) -> tuple[str, str]:
    """How binary values are written, and the note if the values read can be both."""
    if (known := settings.value(_METHOD)) is not None:
        return str(known), ""
    n, characters, not_hex, not_base64 = (sum(column) for column in zip(BinaryTexts(), *found, strict=True))
    if not n or (not_hex and not not_base64):
        return "base64", ""
    if not_base64 and not not_hex:
        return "hex", ""
    if not_hex:
        return "base64", _BINARY.format(
            method="base64", other="hex", why=f"of {n} looked at {not_base64} are not in it, and {not_hex} not in hex."
        )
    if characters >= _ENOUGH_DIGITS:
        why = f"all {characters} characters of {n} values looked at are hexadecimal digits."
        return "hex", _BINARY.format(method="hex", other="base64", why=why)
    why = f"TiCDC's default; the {n} value{'s' * (n != 1)} looked at can be both."
    return "base64", _BINARY.format(method="base64", other="hex", why=why)


def look(reading: Reading) -> Callable[[Batches], Batches]:
    """What the first records of files show, as JSON; for :func:`settled`."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            told = [json.dumps(_looked_into(reading, row)) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pydict({"told": told}, arrow_schema(_TOLD))

    return run


def _looked_into(reading: Reading, row: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "rows": 0, "dated": 0, "flags": [], "null": None, "binary": BinaryTexts(), "lacks": "", "guess": "",
        "refused": "", "columns": [], "schema_path": row["schema_path"], "delimiter": None, "quote": None,
        "output-field-header": None, "terminator": None, "doubts": [],
    }  # fmt: skip
    try:
        data = spans(pa.array([reading.content(row)[:_BYTES_LOOKED_AT].removeprefix(BOM_UTF8)], pa.binary()))[0]
    except Unreadable:
        return told
    if row["extension"] == "json":
        events = reading.first_events(row, data)
        return told | {"rows": events.num_rows, "dated": len(events) - events["commit_ts"].null_count}
    found = reading.csv_file(row, data, most=_RECORDS_LOOKED_INTO)
    placed, file = found.placed, found.file
    if file is None or not found.some:
        return told
    if isinstance(placed, Unreadable):
        return told | {"flags": placed.flags, "refused": f"{file.schema}.{file.table}: {placed.reason}"}
    n, names = len(found.some), [c.name for c in placed.columns]
    lacks = [c.name for c in file.columns if c.name not in names]
    return told | {
        "rows": n,
        "dated": n * placed.shape.has_ts,
        "flags": [placed.shape[:3]],
        "null": found.settings.value("sink.csv.null"),
        "binary": binary_texts(found.some, placed, Cut.of(found.settings)),
        "lacks": f"{', '.join(lacks)} of {file.schema}.{file.table}" if lacks else "",
        "guess": placed.guess,
        "columns": names if lacks else [],
        "delimiter": found.settings.value("sink.csv.delimiter"),
        "quote": found.settings.value("sink.csv.quote"),
        "output-field-header": found.has_header,
        "terminator": found.terminator,
        "doubts": [given.value("sink.csv.null") for given in by_null(found.some, found.settings)[1:]],
    }
