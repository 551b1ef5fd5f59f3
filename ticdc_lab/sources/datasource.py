"""``spark.read.format("ticdc")`` and ``readStream``: events of local files, read and decoded by the workers.

Register it once a session with :func:`register`. :func:`ticdc_lab.sources.load.load` answers more (counts, limits, any
source that Spark reads); this is for those who want a table in SQL, or a folder that recordings are put into as a
stream.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from ticdc_lab.codecs import Known, decoder, detect, log_types
from ticdc_lab.codecs.handles import handles_of
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.known import bounds_of
from ticdc_lab.codecs.quarantine import refused
from ticdc_lab.codecs.simple_tables import finder, tables_of
from ticdc_lab.errors import ProtocolError, SourceError
from ticdc_lab.errors.whole_files import local_path
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.schema import DECODED, MESSAGES
from ticdc_lab.settings.file import given_settings
from ticdc_lab.sources import parquet, pieces
from ticdc_lab.sources.dump_files import DumpFiles, dumps_at
from ticdc_lab.sources.forms import OPTIONS
from ticdc_lab.sources.learned import WITH_DDL, ddl_finder, known_of
from ticdc_lab.sources.overlaps import SharedStretch, Skips, overlaps_of, whole_runs, without
from ticdc_lab.sources.places import data_files, kind_of_name, require_kind

NAME = "ticdc"
SAMPLE = 256


@dataclass
class TaskPart(InputPartition):
    """What one task reads (:data:`ticdc_lab.sources.pieces.PIECES`)."""

    file: str
    first: int
    last: int
    line: int
    dumped: DumpFiles | None = None


def register(spark: SparkSession) -> None:
    """Make the format ``ticdc`` known to a session."""
    spark.dataSource.register(TiCDCSource)


class TiCDCSource(DataSource):
    """Options: ``path`` (or ``load(path)``), ``protocol``, ``sourceKind``, ``schemaRegistry``, ``claimCheck``, ..

    ``rangeBytes`` is how much of a plain file one task reads; ``bounds`` what a message may become, as
    ``inflated=1000000,line=100000``. A message in several files occurs once, for which they are read once
    more, one after the other; ``overlaps=ignored`` spares that. A stream does not check for such messages. Dumps of
    other tools are detected by their bytes; the tool's setting is an option by its own name, such as ``format`` of
    ``kcat -f`` (:data:`ticdc_lab.sources.forms.OPTIONS`).

    Types that debezium's messages do not name come from the DDL statements of all files, in a stream of the same file;
    what is not known then is a Python warning. So does the handle key of a table without a primary key in canal-json
    and canal. ``debeziumBinaryHandlingMode`` is how bytes are written (``base64`` or
    ``hex``). ``images=null`` spares decoding ``columns`` and ``before``; their hashes stay.

    The columns are :data:`ticdc_lab.events.schema.DECODED`: what cannot be decoded is there with its ``error_class``,
    so that nothing vanishes. As a stream, each file is read once, when it has appeared under its final name.
    """

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Columns of the frame."""
        return DECODED

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads all files there are."""
        return _Reader(_ReadRequest.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Reads files as they come."""
        return _StreamReader(_ReadRequest.of(self.options))


@dataclass(frozen=True)
class _ReadRequest:
    """What is asked for."""

    path: str
    protocol: str
    known: Known
    range_bytes: int
    once: bool
    kind: str = "auto"
    options: tuple[tuple[str, str], ...] = ()
    images: bool = True

    @classmethod
    def of(cls, options: Any) -> _ReadRequest:
        path = options.get("path")
        if not path:
            raise SourceError(
                "The format ticdc needs a path.", hint='spark.read.format("ticdc").load("topic.jsonl.gz")'
            )
        said = [pair.split("=", 1) for pair in (options.get("bounds") or "").split(",") if pair]
        bounds = bounds_of({pair[0].strip(): pair[-1].strip() for pair in said})
        known = known_of(options.get("schemaRegistry"), options.get("claimCheck"), bounds)
        range_bytes, once = int(options.get("rangeBytes", pieces.RANGE_BYTES)), options.get("overlaps") != "ignored"
        kind = options.get("sourceKind", "auto")
        require_kind(kind)
        own = tuple((name, options[name]) for name in OPTIONS if name in options)
        mode = given_settings({"debezium-binary-handling-mode": options.get("debeziumBinaryHandlingMode", "auto")})
        known = replace(known, settings=mode)
        images = options.get("images") != "null"
        return cls(path, options.get("protocol", "auto"), known, range_bytes, once, kind, own, images)

    def files(self) -> list[Path]:
        """Files there are now."""
        found = data_files(self.path)
        if found is None:
            raise SourceError(f"{self.path} is no local path.", hint="For other places use ticdc_lab.load(spark, ...).")
        return found

    def dumped(self, files: Sequence[Path]) -> DumpFiles | None:
        """Which of them are dumps of other tools."""
        return dumps_at(self.path, files, self.kind, dict(self.options)) if files else None

    def told(self, parts: Sequence[TaskPart]) -> tuple[str, Known]:
        """The protocol, from the first messages, and what decoding needs to know of the log."""
        sample = pa.Table.from_batches(
            list(_first(parts)), arrow_schema(MESSAGES).empty_table().select(parquet.COLUMNS).schema
        )
        protocol, known = (
            detect(sample, protocol=self.protocol, source=self.path, known=self.known).protocol,
            self.known,
        )
        every = (messages for part in parts for messages, _ in _messages(part))
        if protocol == "simple":
            found = finder(known)(every)
            return protocol, replace(known, tables=tables_of(r for batch in found for r in batch.to_pylist()))
        if protocol in ("debezium", "debezium-avro"):
            ddl = pa.Table.from_batches(log_types.finder(known, protocol)(every), arrow_schema(log_types.DDL_ROWS))
            known = replace(known, types=log_types.types_of(ddl))
            if protocol == "debezium":
                known, guesses = log_types.with_binary(sample, known)
                for sentence in guesses:
                    warnings.warn(f"{self.path}: {sentence}", stacklevel=2)
        elif protocol in WITH_DDL:
            ddl = pa.Table.from_batches(ddl_finder(protocol, known)(every), arrow_schema(log_types.DDL_ROWS))
            known = replace(known, handles=handles_of(ddl, protocol=protocol))
        return protocol, known


def _first(parts: Sequence[TaskPart]) -> Batches:
    """Up to SAMPLE messages."""
    left = SAMPLE
    for part in parts:
        for messages, _ in _messages(part):
            yield messages.select(parquet.COLUMNS).slice(0, left)
            left -= min(left, messages.num_rows)
            if not left:
                return


def _decoded(
    part: TaskPart, protocol: str, known: Known, skips: Skips = pieces.NO_SKIPS, *, images: bool = True
) -> Batches:  # fmt: skip
    decode = decoder(protocol, images=images, known=known)
    for messages, rejected in _messages(part):
        yield from decode(iter((without(messages, skips[part.file]) if part.file in skips else messages,)))
        if rejected is not None and rejected.num_rows:
            yield rejected


def _messages(part: TaskPart) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
    """Messages of a part, and what of it is none."""
    return pieces.read_piece(part.file, part.first, part.last, part.line, dumped=part.dumped)


def _parts(files: Sequence[Path], asked: _ReadRequest) -> list[TaskPart]:
    """What tasks read: row groups of Parquet, whole gzip files, ranges of plain ones."""
    found: list[tuple[pieces.Piece, DumpFiles | None]] = []
    dumped = asked.dumped(files)
    for file in files:
        name = str(file.resolve())
        if dumped is not None and dumped.form(name):
            sizes = {name: file.stat().st_size}
            cut, alone = pieces.of_dumps(sizes, dumped.alone(name), are_here=True, range_bytes=asked.range_bytes)
            found += [(piece, alone) for piece in cut]
        elif file.suffix == ".parquet":
            groups = pieces.of_parquet([file])
            if groups is None:
                raise SourceError(
                    f"{file} is missing a column of a message.", hint=f"Expected {', '.join(parquet.COLUMNS)}."
                )
            found += [(group, None) for group in groups]
        elif kind_of_name(file.name):
            found += [(piece, None) for piece in pieces.of_lines([file], asked.range_bytes)]
    return [TaskPart(*piece, asked.known.bounds.line, of) for piece, of in found]


class _Reader(DataSourceReader):
    def __init__(self, asked: _ReadRequest) -> None:
        self._parts, self._images = _parts(asked.files(), asked), asked.images
        self._protocol, self._known = asked.told(self._parts)
        self._skips = _held_twice(self._parts) if asked.once else pieces.NO_SKIPS

    def partitions(self) -> Sequence[InputPartition]:
        return self._parts

    def read(self, partition: InputPartition) -> Batches:
        assert isinstance(partition, TaskPart)
        return _decoded(partition, self._protocol, self._known, self._skips, images=self._images)


def _held_twice(parts: Sequence[TaskPart]) -> Skips:
    """Overlaps of several files, read here: one after the other, as nothing else sees all of them."""
    files = list(dict.fromkeys(part.file for part in parts))
    if len(files) < 2:
        return pieces.NO_SKIPS
    read, line = pieces.table_of([(part.file, part.first, part.last) for part in parts]).to_batches(), parts[0].line
    dumped = DumpFiles.joined(part.dumped for part in parts)

    def compare(of: Sequence[SharedStretch], skips: Skips) -> Iterator[tuple[int, int, int]]:
        for batch in pieces.compared(iter(read), line, of, skips, dumped=dumped):
            yield from zip(*(batch[name].to_pylist() for name in pieces.DIGESTS.names), strict=True)

    held = [batch["held"][0].as_py() for batch in pieces.what_files_hold(iter(read), line, dumped=dumped)]
    return overlaps_of(whole_runs(held), files, compare).skips


class _StreamReader(DataSourceStreamReader):
    """An offset is the names of all files that were seen.

    Each file is read by itself: in the simple protocol it must bring the table versions that its rows need.
    """

    def __init__(self, asked: _ReadRequest) -> None:
        self._asked = asked

    def initialOffset(self) -> dict[str, Any]:
        return {"files": []}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        try:
            return {"files": [str(file) for file in self._asked.files()]}
        except SourceError:
            folder = local_path(self._asked.path)
            if folder is None or not folder.is_dir():
                raise
            return {"files": []}  # nothing has come yet

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        seen = set(start["files"])
        new = [Path(file) for file in end["files"] if file not in seen]
        return _parts(new, self._asked)

    def read(self, partition: InputPartition) -> Batches:
        """The protocol, and table versions of the simple one, are detected in each file: nothing is known of others."""
        assert isinstance(partition, TaskPart)
        try:
            protocol, known = self._asked.told(_parts([Path(partition.file)], self._asked))
        except ProtocolError as fault:
            if self._asked.protocol != "auto":
                raise
            return _refused(partition, fault.message)
        return _decoded(partition, protocol, known, images=self._asked.images)


def _refused(part: TaskPart, reason: str) -> Batches:
    """All of a part as rows of the quarantine: one file that holds no log must not end the stream."""
    for messages, rejected in _messages(part):
        n = messages.num_rows
        yield refused(messages, ["unknown-protocol"] * n, [reason] * n, protocol="auto")
        if rejected is not None and rejected.num_rows:
            yield rejected
