"""A folder of the storage sink that grows, as a source of a watch: each file is read once, soon after it is there.

Numbers are as in :mod:`ticdc_lab.sources.storage`: a stream is a partition, and an offset is a file's rank in its
stream and a place in the file. Streams and ranks are numbered as they appear, since what comes later must not renumber
what was read. The file ``metadata`` is read before the folder is listed: all up to its checkpoint lies there then.
"""

from __future__ import annotations

import json
import shlex
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.detection import Detected
from ticdc_lab.codecs.handles import Handles, keyed
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.engine.object_stores import Store
from ticdc_lab.errors import NoAnswerError, SourceError
from ticdc_lab.errors.whole_files import local_path
from ticdc_lab.events import FILE_BITS
from ticdc_lab.events.arrays import NO_TS
from ticdc_lab.events.schema import DECODED, MESSAGES
from ticdc_lab.events.tso import physical_ms
from ticdc_lab.facts.known import LostFiles, LostSchema
from ticdc_lab.settings import UNKNOWN, Setting, Settings
from ticdc_lab.settings.file import of_earlier
from ticdc_lab.sources.kafka_reading import Place, Span
from ticdc_lab.sources.storage import (
    Listed,
    Listing,
    files_table,
    listed,
    local_files,
    lost_before,
    misplaced,
    missing_schemas,
    places_among,
    read_by,
    reading_of,
    row_of,
    unread_among,
)
from ticdc_lab.sources.storage_layout import (
    METADATA,
    StoragePlace,
    Stream,
    named_by_index,
    place_of,
    schema_files,
    streams_of,
)
from ticdc_lab.sources.storage_reading import FilePiece, Reading, Unreadable, checkpoint_of, read_inside

FORM = arrow_schema(DECODED)
_NOTHING = pa.RecordBatch.from_pylist([], arrow_schema(MESSAGES))
Events = Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]
"""No messages, and what files became, decoded (:data:`ticdc_lab.events.schema.DECODED`)."""

POLL_S, LISTS, IDLE_S = 5.0, 10, 0.2
"""Between two listings so long at least, and so many times as long as one takes; meanwhile a watch hears after so long
that it is to end.
"""

PATIENCE = 24
"""Listings for which a file that does not end, or whose schema file or predecessor is absent, holds its stream up."""

MARK_MS = 60_000
"""A stream without new files is given a checkpoint that is later than its last one by so much."""

ROWS_AT_ONCE, BYTES_AT_ONCE = 20_000, 32 << 20
"""Events that are given at once; bytes of the files that are decoded together, about."""

_MARKS = 1 << 32
"""Behind all records of a file, and before the next one: there lie the checkpoints that were read in between."""


@dataclass(slots=True)
class _Position:
    """How far a stream is read: its number, the rank and the place of its last file, and its last checkpoint."""

    partition: int
    rank: int = 0
    last: tuple[int, str, int, str] | None = None
    checkpoint_ts: int = NO_TS
    is_new: bool = True
    """Whether files were read since that checkpoint."""


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file that was read: bytes, time of change (ns) and crc32, where they are known, and where its records lie."""

    size: int | None
    changed_ns: int | None
    crc: int | None
    partition: int | None
    rank: int | None


@dataclass
class StorageFolder:
    """A folder on this machine or in an object store.

    Raises SourceError: nothing lies there, or it is above or below the folder of a changefeed.
    """

    source: str  # path or URL
    # What is known of the changefeed's settings; what the bytes show counts before its file.
    changefeed: Settings = UNKNOWN
    # ``now``, ``sleep``: a clock, and what waits.
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    images: bool = False  # whether events have their images
    # Takes the DDL of schema files, and gives the handle keys that are known then.
    learns: Callable[[pa.Table], Handles] = lambda _: {}
    grows: bool = field(default=True, init=False)
    name: str = field(default="", init=False)
    positions: dict[Place, int] = field(default_factory=dict, init=False)
    lost: dict[Place, int] = field(default_factory=dict, init=False)
    files: dict[str, ReadFile] = field(default_factory=dict, init=False)
    """What was read and is still there, and what was refused."""
    changed: set[str] = field(default_factory=set, init=False)
    """Of :attr:`files` those that are not as :meth:`resume` got them, gone ones too."""
    lost_files: tuple[LostFiles, ...] = field(default=(), init=False)
    """Data files that were missing when a later one, or the index file that names them, was there; and data files that
    could not be read in full.
    """
    lost_schemas: tuple[LostSchema, ...] = field(default=(), init=False)
    """Schema files that are missing, though data files of their table version were read."""
    unreadable: set[tuple[str, int, int]] = field(default_factory=set, init=False)
    """The places that :meth:`evidence` was asked for last and whose files could not be read."""

    def __post_init__(self) -> None:
        self._store = Store.of(self.source)
        self._local = None if self._store else local_path(self.source)
        self.name = self._store.shown if self._store else self.source
        self._reading: Reading | None = None
        self._read_by = read_by(self.changefeed)
        self._streams: dict[Stream, _Position] = {Stream(): _Position(0)}
        self._group: list[dict[str, Any]] = []
        self._checkpoint_ts, self._odd, self._waits = NO_TS, set[str](), dict[str, int]()
        self._bad_checkpoint, self._had_checkpoint = (0, False), False
        self._unread_checkpoint: tuple[Unreadable, ...] = ()
        self._undefined: frozenset[tuple[str, str, int]] | None = None
        self._named: dict[tuple[str, str], int] = {}
        self._named_ns, self._index_ns = 0, dict[str, int]()
        found = self._listing()
        if error := misplaced(found, self.source, local=self._local):
            raise error
        if not found.is_storage:
            raise SourceError(
                f"{self.name} contains no file of TiCDC's storage sink: no metadata, schema*.json, CDC*.csv or .json.",
                hint="Name the folder of the changefeed's `sink-uri`, which contains the file `metadata`.",
            )

    @property
    def topic(self) -> str:
        """How messages name it."""
        return self._reading.topic if self._reading else ""

    @property
    def _root(self) -> str:
        return self.source if self._store else str(Path(str(self._local)).resolve())

    def ids(self) -> dict[str, str]:
        """As of :class:`ticdc_lab.watch.sources.WatchedSource`: none."""
        return {}

    def spans(self) -> dict[Place, Span]:
        """As of :class:`ticdc_lab.watch.sources.WatchedSource`: none."""
        return {}

    def detected(self) -> tuple[Detected, Settings] | None:
        """What the files that are there show; None before there is a data file."""
        found = self._listing()
        if not any(p.kind == "data" and found.sizes[p.path] for p in found.places):
            return None
        self._reading, dated = reading_of(found, files_table(found), settings=self._read_by)
        shown = self._reading.shown
        if (by := read_by(self.changefeed, shown)) != self._read_by:
            self._read_by = by
            self._reading, dated = reading_of(found := self._listing(), files_table(found), settings=by)
        return Detected(self._reading.protocol, dated), Settings(shown)

    def cursor(self) -> dict[str, Any]:
        """How far it is read and how, as JSON; :attr:`files` beside it."""
        reading = self._reading
        assert reading is not None
        streams = [
            [s.schema, s.table, s.part, p.partition, p.rank, p.last, p.checkpoint_ts, p.is_new]
            for s, p in self._streams.items()
        ]
        settings = [asdict(s) for s in reading.settings.known]
        read_as = {"topic": reading.topic, "protocol": reading.protocol, "settings": settings,
                   "likely": reading.likely, "decided": reading.decided}  # fmt: skip
        named = [[*series, number] for series, number in self._named.items()]
        return {
            "streams": streams, "group": self._group, "checkpoint_ts": self._checkpoint_ts, "reading": read_as,
            "lost_files": self.lost_files, "lost_schemas": self.lost_schemas, "named": named,
            "named_ns": self._named_ns,
        }  # fmt: skip

    def resume(self, cursor: Mapping[str, Any], files: Mapping[str, ReadFile]) -> None:
        """Resume where another process was."""
        of = cursor["reading"]
        likely = None if of["likely"] is None else tuple(of["likely"])
        decided = {path: tuple(names) for path, names in of["decided"].items()}
        saved = of["settings"]  # up to 2026-11 by the names of fields
        by = of_earlier(saved) if isinstance(saved, Mapping) else Settings(tuple(Setting(**s) for s in saved))
        self._read_by = by
        self._reading = Reading(of["topic"], of["protocol"], self._root, by, likely=likely, decided=decided)
        self._streams = {
            Stream(*names): _Position(number, rank, None if last is None else tuple(last), ts, new)
            for *names, number, rank, last, ts, new in cursor["streams"]
        }
        self._group, self._checkpoint_ts = list(cursor["group"]), cursor["checkpoint_ts"]
        self.lost_files = tuple(LostFiles(*of) for of in cursor.get("lost_files", ()))  # absent in earlier versions
        self.lost_schemas = tuple(LostSchema(*of) for of in cursor.get("lost_schemas", ()))
        self._named = {(folder, dispatcher): n for folder, dispatcher, n in cursor.get("named", ())}
        self._named_ns = cursor.get("named_ns", 0)
        self._had_checkpoint = self._checkpoint_ts != NO_TS
        self.files, self.changed = dict(files), set()

    def batches(
        self, positions: Mapping[Place, int], *, once: bool
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
        """As of :class:`ticdc_lab.watch.sources.WatchedSource`; what it gives is decoded."""
        self.positions, self.lost = dict(positions), {}
        if self._group:
            yield from self._read(self._group)
        while True:
            begun = self.now()
            raw = self._checkpoint()
            found = self._listing()
            took_s = self.now() - begun
            held = set[Stream]()
            yield from self._new(found, held, once=once)
            yield from self._stated(raw, held, once=once)
            if once:
                return
            until = self.now() + max(POLL_S, LISTS * took_s)
            while self.now() < until:
                yield _NOTHING, None
                self.sleep(IDLE_S)

    def _listing(self) -> Listing:
        try:
            self._changed_ns = dict[str, int | None]()
            files = list(self._listed())
        except OSError as error:
            raise NoAnswerError(
                f"{self.name} does not answer: {error.strerror or error}.", hint=f"List it: ls {shlex.quote(self.name)}"
            ) from None
        found = listed(files, self._root, self._read_by, by_path=True)
        if self._had_checkpoint and METADATA not in found.sizes:  # of a file system that is not mounted, too
            raise NoAnswerError(
                f"{self.name} does not answer: its file {METADATA} is not there any more.",
                hint=f"ls {shlex.quote(self.name)}",
            )
        self._had_checkpoint |= METADATA in found.sizes
        return found

    def _listed(self) -> Iterator[Any]:
        if self._store is None and (self._local is None or not self._local.is_dir()):
            raise FileNotFoundError(2, "No such folder")
        stored = (Listed(*file) for file in self._store.files()) if self._store else local_files(Path(str(self._local)))
        for file in stored:
            if isinstance(file, Listed):
                self._changed_ns[file.path] = file.changed_ns
            yield file

    def _checkpoint(self) -> bytes | None:
        """The file ``metadata``, if it can be read; if it lies there and cannot, :meth:`_new` refuses it."""
        try:
            raw = read_inside(self._root, METADATA)
        except Unreadable as error:
            self._unread_checkpoint = (*self._unread_checkpoint, error)[-2:]
            return None
        if self._unread_checkpoint and METADATA in self.files:
            del self.files[METADATA]
            self.changed.add(METADATA)
        self._unread_checkpoint = ()
        return raw

    def _new(self, found: Listing, held: set[Stream], *, once: bool) -> Events:
        """Events of the files that were not read; ``held`` are streams with files that must wait."""
        definitions, refused, bytes_held = schema_files(found.places), list[dict[str, Any]](), 0
        for path in self.files.keys() - {*found.sizes, *(r.path for r in found.refused)}:
            del self.files[path]  # expired
            self.changed.add(path)
        odd = {r.path for r in found.refused} - self.files.keys()
        for r in found.refused:
            if r.path in odd and (once or r.path in self._odd):  # a temporary file is gone at the next look
                refused.append(_refusal(r.path, r.error_class, r.reason))
        self._odd = odd
        faults = self._unread_checkpoint  # one may be of a moment in which it was written
        if METADATA in found.sizes and METADATA not in self.files and len(faults) > 1 - once:
            refused.append(_refusal(METADATA, faults[-1].error_class, faults[-1].reason))
        named, streams = self._indexed(found), streams_of(found.places)
        for stream in sorted({*streams, *named}):
            files, newest = streams.get(stream, []), named.get(stream, [])
            for p in files:
                while newest and (newest[-1].version, newest[-1].date) < (p.version, p.date):
                    if self._must_wait_for(newest[-1], is_first=True, once=once):
                        held.add(stream)
                        break
                    newest.pop()
                if stream in held:
                    break
                at = self._streams.get(stream)
                key, known = (p.version, p.date, p.number, p.path), self.files.get(p.path)
                try:
                    if known is not None and not self._is_other(p, found, known):
                        continue
                    has_grown = known is not None and self._has_grown(p, at, found, known)
                except Unreadable as error:  # it was written again, in an unknown way
                    n = self._waits[p.path] = self._waits.get(p.path, 0) + 1
                    if not once and n <= PATIENCE:
                        held.add(stream)
                        break
                    refused.append(_refusal(p.path, error.error_class, f"{_UNKNOWN_AGAIN} {error.reason}"))
                    continue
                if known is None and at is not None and at.last and key < at.last and p.kind == "data":
                    refused.append(_refusal(p.path, "late-file", _LATE))
                    continue
                if not once and self._must_wait(p, at, found, definitions, known):
                    held.add(stream)
                    break
                if known is not None and not has_grown:
                    refused.append(_refusal(p.path, "replaced-file", _REPLACED))
                    continue
                if at is None:
                    at = self._streams[stream] = self._begun(p)
                    if self._checkpoint_ts != NO_TS:
                        yield from self._marked({at.partition: (1 << FILE_BITS) + _MARKS}, self._checkpoint_ts)
                elif known is None and (n := self._gap(p, at)):
                    self._lose(p, at, p.number - n, n)
                at.rank += 1
                at.last, at.is_new = max(key, at.last or key), True
                if known is not None:  # its new records, under another rank: checkpoints may lie behind the old ones
                    self.positions[self.topic, at.partition] = (at.rank << FILE_BITS) + (known.size or 0)
                self._group.append(row_of(p, found, definitions, at.partition, at.rank))
                self._group[-1]["until"] = None if self._store else found.sizes[p.path]
                bytes_held += found.sizes[p.path] or 0
                if bytes_held >= BYTES_AT_ONCE:
                    yield from self._read(self._group)
                    bytes_held = 0
            for told in reversed(newest):
                if stream in held:
                    self._named_ns = min(self._named_ns, self._index_ns[told.path])  # another listing asks again
                else:
                    self._must_wait_for(told, is_first=False, once=once)
        self._group += refused
        yield from self._read(self._group)
        undefined = frozenset(p.version_key for p in found.places if p.kind == "data" and p.path in self.files)
        if (undefined := undefined - definitions.keys()) != self._undefined:
            self._undefined = undefined
            there = tuple(p for p in found.places if p.kind != "data" or p.path in self.files)
            assert self._reading is not None
            self.lost_schemas = missing_schemas(replace(found, places=there), self._reading) if undefined else ()

    def _gap(self, p: StoragePlace, at: _Position | None) -> int:
        """How many files are missing between the last one of a stream and this one: TiCDC numbers a folder's from 1."""
        if at is None or at.last is None or p.kind != "data":
            return 0
        version, date, number, _ = at.last
        named = self._named.get((p.folder, p.dispatcher), 0)  # these were counted already
        return max(0, p.number - 1 - max(number if (version, date) == (p.version, p.date) else 0, named))

    def _lose(self, p: StoragePlace, at: _Position, number: int, n: int) -> None:
        """Count so many data files from a number on as missing; ``p`` is another one of their folder."""
        self.lost[self.topic, at.partition] = self.lost.get((self.topic, at.partition), 0) + n
        self.lost_files += (lost_before(p, self.topic, at.partition, at.rank + 1, number, n),)

    def _indexed(self, found: Listing) -> dict[Stream, list[StoragePlace]]:
        """By stream the newest data file of each folder, as its index file names it, if that is new or waited for."""
        indexes = {p.path: self._changed_ns.get(p.path) for p in found.places if p.kind == "index"}
        named = dict[Stream, list[StoragePlace]]()
        for path, ns in indexes.items():
            if ns is None or ns >= self._named_ns:
                with suppress(Unreadable):  # ``fsck`` names it
                    if told := named_by_index(path, read_inside(self._root, path)):
                        named.setdefault(told.stream, []).append(told)
                        self._index_ns[told.path] = ns or 0
        self._named_ns = max((ns or 0 for ns in indexes.values()), default=0)
        return {stream: sorted(own, key=lambda p: (p.version, p.date), reverse=True) for stream, own in named.items()}

    def _must_wait_for(self, told: StoragePlace, *, is_first: bool, once: bool) -> bool:
        """Whether a data file that an index file names may still come; if not, it is missing. All before it is read.

        ``is_first``: whether later ones of its stream are there; if none is before, it does not come any more.
        """
        at, series = self._streams.get(told.stream), (told.folder, told.dispatcher)
        last = ("", "", 0) if at is None or at.last is None else at.last[:3]
        number = max(last[2] if last[:2] == (told.version, told.date) else 0, self._named.get(series, 0))
        is_past = at is not None and at.last is not None and (told.version, told.date) < at.last[:2]
        if is_past or told.number <= number:
            return False
        n = self._waits[told.path] = self._waits.get(told.path, 0) + 1
        if not once and n <= PATIENCE and not (is_first and at is None):
            self._named_ns = min(self._named_ns, self._index_ns[told.path])
            return True
        at = self._streams.setdefault(told.stream, at or self._begun(told))
        self._lose(told, at, number + 1, told.number - number)
        self._named[series] = told.number
        return False

    def newest_files(self) -> dict[Place, str]:
        """By topic and partition the newest file that was read, or is to be read next."""
        return {(self.topic, s.partition): s.last[3] for s in self._streams.values() if s.last is not None}

    def _begun(self, p: StoragePlace) -> _Position:
        """A stream whose first file is ``p``: what was before a file that is not the first one has expired."""
        was_marked = self._checkpoint_ts != NO_TS
        number = 1 + max(s.partition for s in self._streams.values())
        return _Position(number, int(was_marked) + int(p.kind == "data" and p.number > 1), None, self._checkpoint_ts)

    def _must_wait(
        self, p: StoragePlace, at: _Position | None, found: Listing,
        definitions: Mapping[tuple[str, str, int], StoragePlace], known: ReadFile | None,
    ) -> bool:  # fmt: skip
        """Whether a file may not be there as a whole yet: it is read again in the next listings, not without end."""
        is_next = known is not None or not self._gap(p, at)
        is_there = p.kind == "schema" or (p.version_key in definitions and is_next)
        if is_there and (self._local is None or self._is_whole(p.path, found.sizes[p.path])):
            self._waits.pop(p.path, None)
            return False
        n = self._waits[p.path] = self._waits.get(p.path, 0) + 1
        return n <= PATIENCE

    def _is_whole(self, path: str, size: int | None) -> bool:
        """Whether a file of this machine ends with a record."""
        try:
            raw = (Path(str(self._local)) / path).read_bytes()[:size]
        except OSError:
            return True  # reading it shows why it cannot be read
        if raw.endswith(self._read_by.value("sink.terminator", "\n").encode()):
            return True
        if not path.endswith(".json"):
            return False
        try:
            return isinstance(json.loads(raw[raw.rfind(b"\n") + 1 :] if "/meta/" not in path else raw), dict)
        except ValueError:
            return False

    def _is_other(self, p: StoragePlace, found: Listing, known: ReadFile) -> bool:
        """Whether a file that was read is not as it was; what was refused is not looked at again."""
        size, changed_ns = found.sizes[p.path], self._changed_ns.get(p.path)
        if known.rank is None or (size, changed_ns) == (known.size, known.changed_ns):
            return False
        if size != known.size:
            return True
        # an earlier version wrote neither times nor checksums of a store's objects: these are not all read for it
        crc = known.crc if known.changed_ns is None else self._crc(p.path, None)
        if known.crc in (None, crc):
            self._say_read(p.path, replace(known, changed_ns=changed_ns, crc=crc))  # written again as it was
        return known.crc not in (None, crc)

    def _has_grown(self, p: StoragePlace, at: _Position | None, found: Listing, known: ReadFile) -> bool:
        """Whether all that was read of a file is still there, and it is the last one of its stream."""
        size = found.sizes[p.path]
        if at is None or at.last is None or at.last[3] != p.path or size is None or size < (known.size or 0):
            return False
        return known.crc is not None and self._crc(p.path, known.size) == known.crc

    def _crc(self, path: str, size: int | None) -> int:
        return zlib.crc32(read_inside(self._root, path)[:size])

    def _say_read(self, path: str, file: ReadFile) -> None:
        self.files[path] = file
        self.changed.add(path)

    def _read(self, rows: list[dict[str, Any]]) -> Events:
        """Events of some files, and what is none; those given before by positions are left out."""
        assert self._reading is not None
        self._reading.crcs = crcs = dict[str, int]()
        held, n = list[pa.RecordBatch](), 0
        data = {(row["partition"], row["rank"]): row["path"] for row in rows if row["kind"] == "data"}
        for batch in self._decoded(rows, images=self.images):
            held.append(self._behind(batch))
            bad = held[-1].filter(pc.is_valid(held[-1].column("error_class"))).select(["partition", "offset"])
            places = {(p, o) for p, o in zip(*(c.to_pylist() for c in bad.columns), strict=True) if None not in (p, o)}
            unread = unread_among(data, places, topic=self.topic)
            known = {of.path for of in self.lost_files if of.is_there} if unread else set[str]()
            self.lost_files += tuple(of for of in unread if of.path not in known)
            n += held[-1].num_rows
            if n >= ROWS_AT_ONCE:
                yield _NOTHING, pa.concat_batches(held)
                held, n = [], 0
        for row in rows:
            path = row["path"]
            of = ReadFile(row["size"], self._changed_ns.get(path), crcs.get(path), row["partition"], row["rank"])
            self._say_read(path, of)
        self._group = []
        if n:
            yield _NOTHING, pa.concat_batches(held)

    def _decoded(self, rows: list[dict[str, Any]], *, images: bool) -> Iterator[pa.RecordBatch]:
        """Events of some files, with the handle keys that schema files define."""
        assert self._reading is not None
        schemas = [r for r in rows if r["kind"] == "schema"]
        ddl = pa.Table.from_batches(self._reading.decoded(schemas, images=False), FORM)
        handles = self.learns(ddl.filter(pc.fill_null(pc.equal(ddl["kind"], "ddl"), False)))
        events = self._reading.decoded(rows, images=images or bool(handles))  # keys are hashed by values
        return keyed(events, handles, images=images) if handles else events

    def _behind(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What was not given before; moves the positions."""
        topic = self.topic
        partition = pc.fill_null(batch.column("partition"), -1).to_numpy()
        offset = pc.fill_null(batch.column("offset"), 0).to_numpy()
        kept = np.ones(len(partition), dtype=bool)
        for p in np.unique(partition[partition >= 0]).tolist():
            own = partition == p
            kept[own] = offset[own] >= self.positions.get((topic, p), 0)
            self.positions[topic, p] = max(int(offset[own].max()) + 1, self.positions.get((topic, p), 0))
        return batch if kept.all() else batch.filter(pa.array(kept))

    def _stated(self, raw: bytes | None, held: set[Stream], *, once: bool) -> Events:
        """The checkpoint that was read before the listing, behind the files of each stream."""
        if raw is None:
            return
        try:
            ts = checkpoint_of(raw)
        except ValueError:
            crc = zlib.crc32(raw)
            if once or self._bad_checkpoint == (crc, False):  # the first time it may just be written
                yield from self._marked({0: self._end(self._streams[Stream()])}, raw)
            self._bad_checkpoint = crc, self._bad_checkpoint[0] == crc
            return
        at = dict[int, int]()
        for stream, s in self._streams.items():
            idle = not once and not s.is_new and 0 <= physical_ms(ts) - physical_ms(s.checkpoint_ts) < MARK_MS
            if stream not in held and ts != s.checkpoint_ts and not idle:
                at[s.partition] = self._end(s)
                s.checkpoint_ts, s.is_new = ts, False
        self._checkpoint_ts = ts
        if at:
            yield from self._marked(at, ts)

    def _end(self, s: _Position) -> int:
        return max((s.rank << FILE_BITS) + _MARKS, self.positions.get((self.topic, s.partition), 0))

    def _marked(self, at: Mapping[int, int], of: int | bytes) -> Events:
        assert self._reading is not None
        raw = of if isinstance(of, bytes) else json.dumps({"checkpoint-ts": of}).encode()
        yield _NOTHING, self._behind(self._reading.checkpoints(raw, at))

    def evidence(self, places: Iterable[tuple[str, int, int]]) -> dict[tuple[str, int, int], StoredRecord]:
        """The records at some topics, partitions and offsets that are still there."""
        self.unreadable = set()
        wanted: dict[tuple[int | None, int | None], set[int]] = {}
        for _, partition, offset in places:
            wanted.setdefault((partition, offset >> FILE_BITS), set()).add(offset)
        known = [p for path in self.files if isinstance(p := place_of(path), StoragePlace)]
        definitions, found = schema_files(known), dict[tuple[str, int, int], StoredRecord]()
        for p in known:
            file = self.files[p.path]
            if p.kind == "data" and (own := wanted.get((file.partition, file.rank))) and p.version_key in definitions:
                found |= self._records(p, definitions[p.version_key].path, file, own)
        return found

    def _records(
        self, p: StoragePlace, schema_path: str, file: ReadFile, own: set[int]
    ) -> dict[tuple[str, int, int], StoredRecord]:
        reading, found, head = self._reading, dict[tuple[str, int, int], StoredRecord](), None
        assert reading is not None and file.partition is not None
        row = {"kind": "data", "path": p.path, "partition": file.partition, "rank": file.rank, "error_class": None,
               "extension": p.extension, "table_id": None, "schema_path": schema_path, "size": file.size}  # fmt: skip
        try:
            whole, definition = reading.content(row), {schema_path: reading.content({"path": schema_path})}
        except Unreadable:
            self.unreadable |= {(self.topic, file.partition, offset) for offset in own}
            return {}
        events = pa.Table.from_batches(self._decoded([row], images=True), FORM)
        for piece in reading.pieces(row):
            if isinstance(piece, FilePiece):
                offsets, values = (piece.messages.column(n).to_pylist() for n in ("offset", "value"))
                starts = [offset & ((1 << FILE_BITS) - 1) for offset in offsets]
                head = whole[: starts[0]] if head is None else head  # a header of csv
                for offset, start, value in zip(offsets, starts, values, strict=True):
                    if offset in own:
                        after = whole[start + len(value) :][:2]
                        record = value + (after if after == b"\r\n" else after[:1] or b"\n")
                        of = events.filter(pc.equal(events["offset"], offset))
                        found[self.topic, file.partition, offset] = StoredRecord(of, p.path, head, record, definition)
        return found

    def close(self) -> None:
        """As of :class:`ticdc_lab.watch.sources.WatchedSource`."""


def places_read(
    files: Mapping[str, ReadFile], source: str, places: Collection[tuple[int, int]]
) -> dict[tuple[int, int], str]:
    """Partitions and offsets of a watched folder as files and lines, by the files that were read of it."""
    read = {(f.partition, f.rank): path for path, f in files.items() if f.partition is not None and f.rank is not None}
    marks = {at for at in places if at[1] & ((1 << FILE_BITS) - 1) >= _MARKS} if read else set[tuple[int, int]]()
    root = source if Path(source).is_dir() else None
    return dict.fromkeys(marks, METADATA) | places_among(read, {*places} - marks, root=root)


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record of a file: its events, the file's path and what precedes its records, itself, its schema file."""

    events: pa.Table
    path: str
    head: bytes
    record: bytes
    definition: Mapping[str, bytes]


def folder_of(evidence: Iterable[StoredRecord]) -> dict[str, bytes]:
    """Files, by path, of a folder that contains these records alone."""
    files: dict[str, bytes] = {}
    for e in evidence:
        files |= e.definition
        files[e.path] = files.get(e.path, e.head) + e.record
    return files


_LATE = (
    "the file appeared after a later file of its stream was read, so its changes are not checked; to check the whole "
    "folder: ticdc-lab audit"
)
_UNKNOWN_AGAIN = "the file was read, then written again, and now"
_REPLACED = "the file was read, and then replaced by another of its name, whose changes are not checked"


def _refusal(path: str, error_class: str, reason: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("partition", "rank", "extension", "table_id", "schema_path", "size"))
    return {"kind": "refused", "path": path, "error_class": error_class, "reason": reason, **nothing}
