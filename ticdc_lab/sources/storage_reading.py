"""What a worker makes of the storage sink's files: messages, and what is none with its reason."""

from __future__ import annotations

import json
import os
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.csv_fields import (
    ALWAYS,
    HEADER,
    FieldsOfFile,
    Flags,
    Record,
    RecordShape,
    UnknownFields,
    agree,
    by_null,
    choice_of,
    earlier_versions,
    header_of,
    place,
    settings_of_file,
    virtual_columns,
)
from ticdc_lab.codecs.decode import decode_unpacked, decode_with
from ticdc_lab.codecs.event import Event, Malformed
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.arrow import in_form, spans
from ticdc_lab.codecs.known import NOTHING
from ticdc_lab.codecs.quarantine import refused
from ticdc_lab.codecs.registry import codec_of
from ticdc_lab.codecs.table_file import Cut, TableFile, TableFileError, read_table_file, require_name
from ticdc_lab.engine.object_stores import Store
from ticdc_lab.errors.whole_files import local_path
from ticdc_lab.events import FILE_BITS
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.settings import Setting, Settings
from ticdc_lab.sources.capture import zeroed
from ticdc_lab.sources.storage_layout import Refused, StoragePlace, place_of
from ticdc_lab.words import first_line

if TYPE_CHECKING:
    from ticdc_lab.codecs import csv
    from ticdc_lab.codecs.kernel import csv as kernel

MAX_FILE = 1 << 30
"""Bytes of a file. TiCDC begins a new one at 64 MiB, or at ``file-size``, at most half a gigabyte."""
MESSAGES_AT_ONCE = 2_500
RECORDS_LOOKED_AT = 64
"""Records of a csv file from which its columns are detected, where their number does not decide."""
_HEAD = 1 << 14
_HEADER_MOST = 1 << 21
"""Bytes of the longest header: 4,096 columns with names of 64 characters."""
_VERSIONS_READ = 64

Row = dict[str, Any]
CONTROL, CANAL = "control", "canal-json"
_FORM = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
     ("key", pa.binary()), ("value", pa.binary())]
)  # fmt: skip


class Unreadable(Exception):
    """A file that gives no message: ``error_class`` and one sentence; ``flags`` as of :class:`UnknownFields`."""

    def __init__(self, error_class: str, reason: str, flags: tuple[Flags, ...] = ()) -> None:
        super().__init__(error_class, reason, flags)  # all, so that it can be pickled: definitions travel with it
        self.error_class = error_class
        self.reason = reason
        self.flags = flags

    def __str__(self) -> str:
        """Only the sentence."""
        return self.reason


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Messages of one file, and what decodes them: control, canal-json, a csv layout, or what makes it impossible."""

    messages: pa.RecordBatch
    codec: str | kernel.CsvLayout | Unreadable


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A csv file: its records, what their fields are or why that is unknown, and some of them."""

    records: csv.Records
    terminator: str
    settings: Settings
    has_header: bool
    placed: FieldsOfFile | Unreadable
    file: TableFile | None
    some: list[Record]


@dataclass(slots=True)
class Reading:
    """The files of one folder, as a worker reads them.

    ``root`` is a path, or the URL of an object store; None where Spark brings their contents. ``likely`` are the
    optional fields that the folder's first files have, ``decided`` the columns that their rows have, by schema file,
    and ``guesses`` what was worked out from them without proof, a sentence each.
    """

    topic: str
    protocol: str
    root: str | None
    settings: Settings
    definitions: dict[str, TableFile | Unreadable] = field(default_factory=dict)
    likely: Flags | None = None
    decided: dict[str, tuple[str, ...]] = field(default_factory=dict)
    guesses: tuple[str, ...] = ()
    shown: tuple[Setting, ...] = ()
    layouts: dict[tuple[Any, ...], kernel.CsvLayout] = field(default_factory=dict)
    virtual: dict[str, frozenset[str]] = field(default_factory=dict)
    crcs: dict[str, int] | None = None
    """Of the files that were read, by path, the crc32, for one who asks."""

    def messages(self, batches: Batches) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
        """Rows of :data:`ticdc_lab.sources.storage.FILES` to messages, and what is none in the form of DECODED."""
        own = self._of_a_task()
        for batch in batches:
            for row, fetch in own._ahead(batch.to_pylist()):
                for piece in own.pieces(row, fetch):
                    if isinstance(piece, FilePiece):
                        yield in_form(_by_name(piece.messages), piece.messages.num_rows, MESSAGES), None
                    else:
                        yield in_form({}, 0, MESSAGES), piece

    def events(self, *, images: bool) -> Callable[[Batches], Batches]:
        """Rows of :data:`ticdc_lab.sources.storage.FILES` to :data:`ticdc_lab.events.schema.DECODED`."""

        def run(batches: Batches) -> Batches:
            own = self._of_a_task()
            for batch in batches:
                rows = batch.to_pylist()
                ids = {r["partition"]: r["table_id"] for r in rows if r["table_id"] is not None}
                for decoded in own.decoded(rows, images=images):
                    yield _with_table_id(decoded, ids)

        return run

    def _of_a_task(self) -> Reading:
        """The same with nothing remembered: tasks may be threads, and compiled code takes no layout that was sent."""
        return replace(self, definitions={}, layouts={}, virtual={})

    def decoded(self, rows: list[Row], *, images: bool) -> Batches:
        """Files to DECODED, without the table id, each stream in the order of its offsets.

        Pieces that the same codec decodes go through it together: a folder may contain many small files.
        """
        held: list[FilePiece] = []
        size = 0
        for row, fetch in self._ahead(rows):
            for piece in self.pieces(row, fetch):
                if not isinstance(piece, FilePiece):
                    yield from self._run(held, images)
                    held, size = [], 0
                    yield piece
                    continue
                if held and (held[0].codec is not piece.codec or size >= MESSAGES_AT_ONCE):
                    yield from self._run(held, images)
                    held, size = [], 0
                held.append(piece)
                size += piece.messages.num_rows
        yield from self._run(held, images)

    def _run(self, held: list[FilePiece], images: bool) -> Batches:
        """A codec may give what it refuses behind all others: a reader that resumes at an offset would skip it."""
        found = [*self._decoded_by_codec(held, images)]
        if len(found) > 1 and any(batch.column("error_class").null_count < len(batch) for batch in found):
            whole = pa.Table.from_batches(found)
            order = pc.sort_indices(whole, [("partition", "ascending"), ("offset", "ascending")])
            found = whole.take(order).combine_chunks().to_batches()
        yield from found

    def _decoded_by_codec(self, held: list[FilePiece], images: bool) -> Batches:
        if not held:
            return
        batch, codec = pa.concat_batches([p.messages for p in held]), held[0].codec
        if isinstance(codec, Unreadable):
            n = batch.num_rows
            yield refused(batch, [codec.error_class] * n, [codec.reason] * n, protocol=self.protocol)
        elif codec == CANAL:
            yield from decode_unpacked(CANAL, codec_of(CANAL, NOTHING), batch, batch, images=images)
        elif isinstance(codec, str):
            yield decode_with(control_event, batch, self.protocol, images=images)
        else:
            from ticdc_lab.codecs.csv import decode_csv

            yield from decode_csv(batch, codec, images=images)

    def checkpoints(self, raw: bytes, at: Mapping[int, int]) -> pa.RecordBatch:
        """The watermark that the file ``metadata`` is, at an offset of each partition."""
        n = len(at)
        columns = (pa.repeat(self.topic, n), pa.array(list(at), pa.int32()), pa.array(list(at.values()), pa.int64()),
                   pa.repeat(b"metadata", n), pa.repeat(raw, n))  # fmt: skip
        batch = pa.RecordBatch.from_arrays(list(columns), schema=_FORM)
        return decode_with(control_event, batch, self.protocol, images=False)

    def _ahead(self, rows: list[Row]) -> Iterator[tuple[Row, Callable[[], bytes] | None]]:
        """Files of an object store are fetched while those before them are decoded."""
        store = None if self.root is None else Store.of(self.root)
        if store is None:
            yield from ((row, None) for row in rows)
            return
        fetched = [row for row in rows if not row["error_class"]]
        fetches = store.ahead([(row["path"], row["size"]) for row in fetched], MAX_FILE)
        for row in rows:
            yield row, None if row["error_class"] else next(fetches)

    def pieces(self, row: Row, fetch: Callable[[], bytes] | None = None) -> Iterator[FilePiece | pa.RecordBatch]:
        """Messages of a file in groups, and rows of the quarantine for what is no message.

        ``fetch`` gives its bytes, where it is read already.
        """
        try:
            if row["error_class"]:
                raise Unreadable(row["error_class"], row["reason"])
            raw = self.content(row) if fetch is None else _of_store(fetch)
            if self.crcs is not None:
                self.crcs[row["path"]] = crc32(raw)
            if row["kind"] in ("schema", "metadata"):
                yield FilePiece(_batch(self.topic, row, np.zeros(1, np.int64), pa.array([raw], pa.binary())), CONTROL)
            elif not (raw := raw.removeprefix(BOM_UTF8)):
                raise Unreadable("empty-file", "the data file is empty; expected at least one record")
            else:
                if whole := raw.rstrip(b"\0"):
                    yield from self._data(row, spans(pa.array([whole], pa.binary()))[0])
                if n := len(raw) - len(whole):
                    yield self.rejected(row, Unreadable("zeroed-end", zeroed(n)), len(whole), None)
        except Unreadable as fault:
            yield self.rejected(row, fault, 0, None)

    def rejected(self, row: Row, fault: Unreadable, position: int, value: bytes | None) -> pa.RecordBatch:
        """A row of the quarantine."""
        values = pa.array([value], pa.binary())
        batch = _batch(self.topic, row, np.array([position]), values)
        said = f"{row['path']}: {fault.reason}"
        return refused(batch, [fault.error_class], [said], protocol=self.protocol)

    def content(self, row: Row) -> bytes:
        """The bytes of a file; raises :class:`Unreadable`."""
        if self.root is None:
            return bytes(row["content"] or b"")
        return read_inside(self.root, row["path"])[: row.get("until")]  # what a file that grows had

    def _data(self, row: Row, data: np.ndarray) -> Iterator[FilePiece | pa.RecordBatch]:
        split = self.canal_records if row["extension"] == "json" else self.csv_records
        records, codec = split(row, data)
        for low in range(0, len(records.starts), MESSAGES_AT_ONCE):
            starts, ends = (x[low : low + MESSAGES_AT_ONCE] for x in (records.starts, records.ends))
            yield FilePiece(_batch(self.topic, row, starts, values_of(data, starts, ends)), codec)
        if records.rest < len(data):
            fault = Unreadable(
                "half-written",
                f"the last record, from byte {records.rest}, does not end: expected a terminator, found "
                f"the end of the file at byte {len(data)}",
            )
            yield self.rejected(row, fault, records.rest, data[records.rest :].tobytes())

    def canal_records(self, row: Row, data: np.ndarray) -> tuple[csv.Records, str]:
        """Lines. One at the end without a terminator counts: whether it is whole shows in the decoding."""
        from ticdc_lab.codecs import csv  # here: compiled code is not loaded before there are records

        starts, ends, rest = csv.find_records(data, quote="", terminator="\n")
        if rest < len(data):
            starts, ends = np.append(starts, rest), np.append(ends, len(data))
        ends = ends - ((ends > starts) & (data[np.maximum(ends - 1, 0)] == 0x0D))
        filled = ends > starts
        return csv.Records(starts[filled], ends[filled], len(data)), CANAL

    def csv_records(self, row: Row, data: np.ndarray) -> tuple[csv.Records, Any]:
        """Records, the two of an update together, and the layout of the file."""
        from ticdc_lab.codecs import csv  # here: compiled code is not loaded before there are records
        from ticdc_lab.codecs.kernel import csv as kernel

        found = self.csv_file(row, data)
        placed, s, records = found.placed, found.settings, found.records
        starts, ends = records.starts.copy(), records.ends.copy()
        if not isinstance(placed, FieldsOfFile) or found.file is None:
            return csv.Records(starts, ends, records.rest), placed
        binary = kernel.HEX if s.value("sink.csv.binary-encoding-method") == "hex" else kernel.BASE64
        known = (row["schema_path"], placed.shape, placed.columns, cut := Cut.of(s), found.terminator, binary)
        if known not in self.layouts:
            file = replace(found.file, columns=placed.columns)
            self.layouts[known] = csv.layout(file, cut, placed.shape, found.terminator, binary)
        given = self.layouts[known]
        n = kernel.join_updates(data, starts, ends, len(starts), given) if placed.shape.has_update else len(starts)
        return csv.Records(starts[:n], ends[:n], records.rest), given

    def csv_file(self, row: Row, data: np.ndarray, *, most: int | None = None) -> CsvFile:
        """The records of a file, and what their fields are.

        With ``most`` nothing is taken from the rest of the folder, and so many records are looked at.
        """
        from ticdc_lab.codecs import csv  # here: compiled code is not loaded before there are records

        file, s = self.definition(row), self.settings
        is_header = data[: len(HEADER)].tobytes() == HEADER
        has_header = is_header and s.value("sink.csv.output-field-header") is not False
        raw, first = data[: _HEADER_MOST if has_header else _HEAD].tobytes(), 0
        if isinstance(file, Unreadable):
            terminator = csv.terminator_of(data, s)
            first = raw.find(terminator.encode()) + len(terminator) if has_header else 0
            records = csv.find_records(data, quote=Cut.of(s).quote, terminator=terminator, start=first)
            return CsvFile(records, terminator, s, has_header, file, None, [])
        s = settings_of_file(raw, file, s)
        cut = Cut.of(s)
        begins = csv.beginning_of(file, cut)
        terminator = csv.terminator_of(data, s, begins)
        placed: FieldsOfFile | UnknownFields | None = None
        if has_header:
            placed, first = header_of(raw, file, cut, terminator)
        records = csv.find_records(data, quote=cut.quote, terminator=terminator, start=first)
        records = csv.resynced(data, records, begins, quote=cut.quote, terminator=terminator, first=first)
        if placed is None:
            some = csv.records_among(data, records, cut, most=csv.FIRST_LOOKED_AT)
            if (usual := self._as_the_folder(some, file)) is not None and most is None:
                return CsvFile(records, terminator, s, has_header, usual, file, some)
        some = csv.records_among(data, records, cut, most=most or RECORDS_LOOKED_AT)
        path, header = row["schema_path"], placed
        virtual, decided = self._virtual(path, file) if header is None else frozenset(), self.decided.get(path, ())
        found = [
            (header or place(some, file, given, virtual=virtual, likely=self.likely, decided=decided), given)
            for given in (by_null(some, s) if most is not None else [s])
        ]
        fitting = ((p, given) for p, given in found if isinstance(p, FieldsOfFile) and agree(some, p, Cut.of(given)))
        placed, s = found[0] if len(found) == 1 else next(fitting, found[0])
        bad = (
            Unreadable(placed.error_class, placed.reason, placed.flags) if isinstance(placed, UnknownFields) else placed
        )
        return CsvFile(records, terminator, s, has_header, bad, file, some)

    def _as_the_folder(self, some: list[Record], file: TableFile) -> FieldsOfFile | None:
        """All columns, where the folder's optional fields are known and leave room for no other choice."""
        likely = self.likely
        if likely is None or not some or choice_of(self.settings) is not None:
            return None
        n = ALWAYS + sum(likely) + len(file.columns)
        at_update = ALWAYS + likely[0]
        alike = sum(
            len(r) == n
            and (not likely[0] or r[ALWAYS].text.isdigit())
            and (not likely[1] or r[at_update].text in (b"true", b"false"))
            for r in some
        )
        return FieldsOfFile(RecordShape(*likely, False), file.columns) if 2 * alike > len(some) else None

    def _virtual(self, path: str, file: TableFile) -> frozenset[str]:
        """Virtual generated columns by the DDL of a table's schema files, as far as this worker sees them."""
        if path not in self.virtual:
            versions = [file]
            if not re.match(r"\s*CREATE\s+TABLE\b", file.query, re.IGNORECASE) and self.root is not None:
                folder = Path(self.root, path).parent
                names = os.listdir(folder) if local_path(self.root) is not None and folder.is_dir() else []
                for earlier in earlier_versions(path, names, file.version)[-_VERSIONS_READ:]:
                    with suppress(Unreadable, TableFileError):
                        versions.insert(-1, table_file(earlier, read_inside(self.root, earlier)))
            self.virtual[path] = virtual_columns(versions)
        return self.virtual[path]

    def first_events(self, row: Row, data: np.ndarray) -> pa.Table:
        """The events of the first lines of a file in canal-json."""
        records, codec = self.canal_records(row, data)
        starts, ends = (x[:MESSAGES_AT_ONCE] for x in (records.starts, records.ends))
        piece = FilePiece(_batch(self.topic, row, starts, values_of(data, starts, ends)), codec)
        decoded = pa.Table.from_batches(list(self._run([piece], images=True)))
        return decoded.filter(pc.is_null(decoded["error_class"]))

    def definition(self, row: Row) -> TableFile | Unreadable:
        """The table definition of a data file, or why it has none."""
        path = row["schema_path"]
        if path is None:
            return _NO_SCHEMA
        if path not in self.definitions:
            try:
                raw = read_inside(self.root, path) if self.root is not None else bytes(row["definition"] or b"")
                self.definitions[path] = table_file(path, raw)
            except (Unreadable, TableFileError) as fault:
                self.definitions[path] = Unreadable("schema-unusable", f"its schema file {path} is no use: {fault}")
        return self.definitions[path]


_NO_SCHEMA = Unreadable("schema-missing", "the table version has no schema file, so its columns are not known")


def _of_store(fetch: Callable[[], bytes]) -> bytes:
    try:
        raw = fetch()
    except OSError as e:
        raise Unreadable("unreadable-file", f"cannot be read: {first_line(e)[:200]}") from e
    if len(raw) > MAX_FILE:
        raise Unreadable("too-large", f"expected at most {MAX_FILE} bytes, found more")
    return raw


@lru_cache(maxsize=16)
def _real(root: str) -> str:
    """A folder without links; it was resolved when it was listed, but a worker may see it through one."""
    return os.path.realpath(root)


def read_inside(root: str, path: str) -> bytes:
    """The bytes of a file below a folder; raises :class:`Unreadable`, also where a link is in its path."""
    if (store := Store.of(root)) is not None:
        return _of_store(partial(store.read, path, MAX_FILE))
    full = os.path.join(_real(root), path)
    if os.path.realpath(full) != full:
        raise Unreadable("link", "its path contains a symbolic link, which is not followed")
    try:
        if os.path.getsize(full) > MAX_FILE:
            raise Unreadable("too-large", f"expected at most {MAX_FILE} bytes, found {os.path.getsize(full)}")
        return Path(full).read_bytes()
    except OSError as e:
        raise Unreadable("unreadable-file", f"cannot be read: {e.strerror}") from e


def table_file(path: str, raw: bytes) -> TableFile:
    """A schema file whose name and content agree; raises :class:`TableFileError`."""
    place = place_of(path)
    file = read_table_file(raw)
    if isinstance(place, StoragePlace):
        require_name(file, version=place.version, written=place.checksum)
    return file


def checkpoint_of(raw: bytes) -> int:
    """checkpoint-ts of the file ``metadata``; raises :class:`ValueError`."""
    try:
        body = json.loads(raw.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    ts = body.get("checkpoint-ts") if isinstance(body, dict) else None
    if type(ts) is not int or not 0 <= ts < 1 << 63:
        raise ValueError(f"expected checkpoint-ts as a whole number, found {raw[:80]!r}")
    return ts


def control_event(key: bytes | None, value: bytes | None) -> list[Event]:
    """The event of a schema file or of ``metadata``; the codec of both."""
    path, raw = (key or b"").decode(), value or b""
    if isinstance(place := place_of(path), Refused):
        raise Malformed(place.error_class, place.reason)
    if place.kind == "metadata":
        try:
            return [Event(S.WATERMARK, checkpoint_of(raw))]
        except ValueError as e:
            raise Malformed("bad-metadata", f"{path}: {e}") from None
    try:
        file = table_file(path, raw)
    except TableFileError as e:
        raise Malformed(e.error_class, f"{path}: {e}") from None
    if not file.query:  # written before the first row of a table whose DDL the changefeed did not see
        return [Event(S.BOOTSTRAP, file.version, file.schema, file.table or None, query=file.statement)]
    kind, names = str(file.ddl_type), (file.schema, file.table)
    return [Event(S.DDL, file.version, *names, query=file.query, ddl_type=kind)]


def values_of(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> pa.Array:
    """Records as a binary array."""
    from ticdc_lab.codecs.kernel.csv import gather

    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(ends - starts, out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    gather(data, starts, ends, out)
    return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def _batch(topic: str, row: Row, positions: np.ndarray, values: pa.Array) -> pa.RecordBatch:
    n, rank = len(positions), row["rank"]
    offsets = pa.nulls(n, pa.int64()) if rank is None else pa.array(positions + (rank << FILE_BITS), pa.int64())
    columns = (
        pa.repeat(topic, n),
        pa.repeat(pa.scalar(row["partition"], pa.int32()), n),
        offsets,
        pa.repeat(row["path"].encode(), n),
        values,
    )
    return pa.RecordBatch.from_arrays(list(columns), schema=_FORM)


def _by_name(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def _with_table_id(decoded: pa.RecordBatch, ids: dict[int, int]) -> pa.RecordBatch:
    """Row changes with the table id in the path of their stream's files."""
    if not ids:
        return decoded
    at = pc.index_in(decoded.column("partition"), pa.array(list(ids), pa.int32()))
    of_row = pc.if_else(pc.equal(decoded.column("kind"), "row"), at, pa.scalar(None, pa.int32()))
    found = pa.array(list(ids.values()), pa.int64()).take(of_row)
    return decoded.set_column(decoded.schema.get_field_index("table_id"), decoded.schema.field("table_id"), found)
