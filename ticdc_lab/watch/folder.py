"""The folder in which a watch keeps its state: offsets, state and findings in one transaction, and evidence in files.

Changes of rows are appended as they come; the last change of each row is rewritten while as many changes come, a few
buckets in each commit. So a commit writes about what a batch brought.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import shlex
import shutil
import sqlite3
import zlib
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from ticdc_lab.audit.contradicted import EVIDENCE
from ticdc_lab.audit.history import Changes
from ticdc_lab.errors import SourceError
from ticdc_lab.errors.whole_files import room_for
from ticdc_lab.events.arrays import NO_TS
from ticdc_lab.events.tso import with_texts
from ticdc_lab.facts.known import CountedOffsets
from ticdc_lab.sources.kafka_reading import Place
from ticdc_lab.sources.recording import lines_of
from ticdc_lab.watch.kept import IGNORED, RESOLVED, KeptFinding
from ticdc_lab.watch.rows import BUCKETS, CHANGE, ROW_PARTS, LastChanges, RecentChanges
from ticdc_lab.watch.state import WatchCounts, WatchState
from ticdc_lab.watch.storage import ReadFile, places_read

VERSION = 1
FILE, LOCK, FINDINGS = "watch.sqlite", "watch.lock", "findings"
MESSAGES, STORAGE = "messages.jsonl.gz", "storage"
"""What a finding's folder has: a capture file, or a folder as the storage sink writes it."""

_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)

SNAPSHOT_AFTER = 200_000
"""Changes in which the last change of each row is rewritten, at least: some of its buckets in each commit."""

_TABLES = """
create table if not exists told(name text primary key, value text) without rowid;
create table if not exists part(name text primary key, data blob) without rowid;
create table if not exists change(id integer primary key, newest integer, n integer, data blob);
create table if not exists finding(number integer primary key, status text, told text);
create table if not exists file(path text primary key, told text) without rowid;
"""


@dataclass(frozen=True, slots=True)
class WatchProgress:
    """Where a watch is: what a commit writes beside the state."""

    # ``source``, ``protocol``, ``has_commit_ts``: what is watched.
    source: str
    protocol: str
    has_commit_ts: bool
    # ``ids``, ``positions``: what identifies its topics, and the next offset of each partition.
    ids: Mapping[str, str] = field(default_factory=dict)
    positions: Mapping[Place, int] = field(default_factory=dict)
    # ``lost``, ``watermark_ms``: as of :class:`ticdc_lab.watch.metrics.PartitionView`, by partition.
    lost: Mapping[Place, int] = field(default_factory=dict)
    watermark_ms: Mapping[Place, int] = field(default_factory=dict)
    counts: WatchCounts = field(default_factory=WatchCounts)  # since the watch began
    # ``violations``, ``beyond``: by guarantee and severity, how many findings were ever open, and how many at most were
    # not kept besides.
    violations: Mapping[tuple[str, str], int] = field(default_factory=dict)
    # What rows need that other messages brought: ``tables``, ``ddl``.
    decoding: Mapping[str, Any] = field(default_factory=dict)
    # Of a watch on Spark its last ``batch``, and the ``versions`` of its buckets' files; None on the desk.
    spark: Mapping[str, Any] | None = None
    # How far what is no topic is read besides: what ``cursor`` of a storage folder or a recording gives.
    read: Mapping[str, Any] = field(default_factory=dict)
    beyond: Mapping[tuple[str, str], int] = field(default_factory=dict)
    # Of the counted row changes without an old value those that were counted when findings were looked for.
    unsure: int = 0
    strangers: Mapping[str, int] = field(default_factory=dict)  # as of :class:`ticdc_lab.watch.metrics.WatchView`

    def as_dict(self) -> dict[str, Any]:
        """As JSON; keys of several parts are lists."""
        told = asdict(self)
        for name in _OF_PLACES:
            told[name] = [[*key, n] for key, n in getattr(self, name).items()]
        return told

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> Self:
        """Read what :meth:`as_dict` gave."""
        for name in _OF_PLACES:
            told[name] = {(a, b): n for a, b, n in told.get(name, ())}  # an earlier version wrote no `beyond`
        return cls(**told | {"counts": WatchCounts(**told["counts"])})


_OF_PLACES = ("positions", "lost", "watermark_ms", "violations", "beyond")


class WatchFolder:
    """A state folder that this process alone writes.

    ``folder``: it is made if it is not there, and goes again if nothing was committed. ``writes``: False to look at it
    beside the watch that writes. Raises SourceError: another watch writes it, or it holds something else.
    """

    def __init__(self, folder: str | Path, *, writes: bool = True) -> None:
        self.folder = Path(folder)
        self._lock: int | None = None
        self._made = [p for p in (self.folder, *self.folder.absolute().parents) if not p.exists()] if writes else []
        self._is_new = writes and not (self.folder / FILE).exists()
        if not writes and not (self.folder / FILE).exists():
            raise SourceError(
                f"In {self.folder} is no state of a watch.",
                hint="Name the folder that was given to ticdc-lab watch with --state.",
            )
        with room_for(self.folder, keep=True):
            self.folder.mkdir(parents=True, exist_ok=True)
            if writes:
                self._lock = self._locked()
            try:
                self._db = sqlite3.connect(
                    self.folder / FILE, timeout=30.0, isolation_level=None, check_same_thread=False
                )
                self._db.execute("pragma journal_mode=wal")
                self._db.execute("pragma synchronous=full")
                self._db.executescript(_TABLES)
                version = self._told("version")
            except sqlite3.DatabaseError as error:
                self.close(in_vain=self._is_new)
                if error.sqlite_errorcode & 0xFF in _NO_ROOM:
                    raise SourceError(
                        f"{self.folder / FILE} cannot be written: {error}.",
                        hint=f"Look whether the disk is full or read-only: df -h {shlex.quote(str(self.folder))}; "
                        "or name another folder: --state OTHER",
                    ) from None
                raise self._damaged(error) from None
        if version not in (None, VERSION):
            self.close()
            raise SourceError(
                f"{self.folder} has a state of version {version}; expected {VERSION}.",
                hint="Name another folder (--state OTHER), or use the ticdc-lab version that wrote it.",
            )

    def _damaged(self, error: Exception) -> SourceError:
        return SourceError(
            f"{self.folder / FILE} is no state of a watch, or is damaged: {error}.",
            hint="Name another folder: --state OTHER",
        )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """What is damaged in the middle of the file is found where it is read."""
        try:
            yield
        except (sqlite3.DatabaseError, pa.ArrowException, ValueError, TypeError, KeyError) as error:
            raise self._damaged(error) from None

    def _locked(self) -> int:
        lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(lock, 20).decode(errors="replace").strip() or "another process"
            os.close(lock)
            raise SourceError(
                f"A watch writes its state into {self.folder} already (process {holder}).",
                hint=f"Look at it: ticdc-lab watch status --state {shlex.quote(str(self.folder))}; "
                "or name another folder.",
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        return lock

    def close(self, *, in_vain: bool = False) -> None:
        """Let others write it; one that was made in vain goes."""
        with suppress(AttributeError, sqlite3.Error):
            in_vain = in_vain or (self._is_new and self.progress is None)
            self._db.close()
        if in_vain and self._lock is not None:
            for name in (FILE, f"{FILE}-wal", f"{FILE}-shm", LOCK):
                (self.folder / name).unlink(missing_ok=True)
            with suppress(OSError):  # something was put there meanwhile
                for made in self._made:
                    made.rmdir()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _told(self, name: str) -> Any:
        row = self._db.execute("select value from told where name = ?", (name,)).fetchone()
        return None if row is None else _value(row[0])

    @property
    def progress(self) -> WatchProgress | None:
        """Where the watch was at its last commit; None before the first."""
        with self._reading():
            told = self._told("progress")
            return None if told is None else WatchProgress.from_dict(told)

    @property
    def view(self) -> dict[str, Any]:
        """What the watch showed at its last commit."""
        with self._reading():
            return self._told("view") or {}

    def findings(self) -> dict[int, KeptFinding]:
        """All that are kept, by number."""
        with self._reading():
            rows = self._db.execute("select told from finding order by number").fetchall()
            found = [KeptFinding.from_dict(_value(told)) for (told,) in rows]
        return {f.number: f for f in found}

    def put_aside(self) -> dict[int, str]:
        """What was ignored or resolved: the status by number."""
        asked = "select number, status from finding where status in (?, ?)"
        with self._reading():
            return dict(self._db.execute(asked, (IGNORED, RESOLVED)).fetchall())

    def state(self, *, dated: bool) -> WatchState:
        """The state at the last commit."""
        with self._reading():
            return self._read_state(dated=dated)

    def _read_state(self, *, dated: bool) -> WatchState:
        told = self._told("state")
        if told is None:
            return WatchState()
        parts = {name: _unsealed(data) for name, data in self._db.execute("select name, data from part")}
        if whole := parts.get("rows"):
            rows = LastChanges.from_arrays(arrays_of(whole))
        else:
            rows = LastChanges.from_parts({name: arrays_of(parts[name]) for name in ROW_PARTS})
        recent = RecentChanges((), told["since"])
        for id_, data in self._db.execute("select id, data from change order by id"):
            changes = Changes(*arrays_of(_unsealed(data)).values())
            if id_ > told["snapshot"]:
                rows = rows.after(changes, dated=dated)
            kept = changes if told["since"] == NO_TS else changes[changes.commit_ts > told["since"]]
            recent = recent.with_changes(kept)
        rows = rows.without(told["evicted_ts"]) if dated else rows
        return WatchState(
            facts=_table(parts["facts"]), firsts={(t, p): n for t, p, n in told["firsts"]}, rows=rows, recent=recent,
            suspects=Changes(*arrays_of(parts["suspects"]).values()), explaining=_table(parts["explaining"]),
            share=told["share"], evicted_ts=told["evicted_ts"], redelivered_ms=told["redelivered_ms"],
            closed_ts=told["closed_ts"], dropped=told.get("dropped", True),
            counted={(t, p): _counted(of) for t, p, of in told["counted"]},
            evidence=_table(parts["evidence"]) if "evidence" in parts else EVIDENCE.empty_table(),
            n_rows=progress.counts.rows if (progress := self.progress) is not None else 0,
            compared=told.get("compared", {}), settled_ts=told.get("settled_ts", NO_TS),  # absent in earlier versions
            deleted={(t, p): tuple((a, b) for a, b in spans) for t, p, spans in told.get("deleted", ())},
        )  # fmt: skip

    def waiting(self) -> pa.Table | None:
        """Messages that waited for the definition of their table."""
        with self._reading():
            row = self._db.execute("select data from part where name = 'waiting'").fetchone()
            return None if row is None else _table(_unsealed(row[0]))

    def files(self) -> dict[str, ReadFile]:
        """The files of a storage folder that were read."""
        with self._reading():
            rows = self._db.execute("select path, told from file").fetchall()
            return {path: ReadFile(*_value(told)) for path, told in rows}

    def places_in_files(self, places: Collection[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """Of a storage folder, partitions and offsets as files and lines; nothing of a topic."""
        return places_read(self.files(), self.view.get("source", ""), places)

    @contextmanager
    def _commit(self) -> Iterator[None]:
        try:
            with room_for(self.folder, keep=True):
                self._db.execute("begin immediate")
                yield
                self._db.execute("commit")
        except BaseException as error:
            with suppress(sqlite3.Error):
                self._db.execute("rollback")
            if not isinstance(error, sqlite3.OperationalError):
                raise self._damaged(error) if isinstance(error, sqlite3.DatabaseError) else error from None
            if "full" in str(error):
                raise SourceError(
                    f"No space is left on the device of {self.folder}; what was committed before stays.",
                    hint="Free space there (df), and run the same `ticdc-lab watch` again: it resumes from its "
                    "last commit.",
                ) from error
            raise SourceError(
                f"The state in {self.folder} cannot be written ({error}); what was committed before stays.",
                hint="Check the device and the limits of this user (df, quota, ulimit -f), and start the watch again.",
            ) from error

    def save(
        self, state: WatchState, progress: WatchProgress, findings: Mapping[int, KeptFinding], *,
        waiting: pa.Table, view: Mapping[str, Any], changed: set[int],
        files: Mapping[str, ReadFile | None] = MappingProxyType({}),
    ) -> WatchState:  # fmt: skip
        """Commit all of it; gives the state whose fresh changes are saved.

        ``changed``: numbers of the findings that are not as they were saved, or are not kept any more. ``files``: files
        of a storage folder that were read since, None for those that are gone.
        """
        with self._commit():
            told = self._told("state") or {}
            last = max(told.get("last", 0), *self._db.execute("select coalesce(max(id), 0) from change").fetchone())
            for i, changes in enumerate(state.fresh, last + 1):
                newest = int(changes.commit_ts.max())
                data = _sealed(bytes_of({n: getattr(changes, n) for n in CHANGE}))
                self._db.execute("insert into change values(?, ?, ?, ?)", (i, newest, len(changes), data))
            last += len(state.fresh)
            snapshots, due = told.get("snapshots", []), told.get("due", 0.0)
            due += BUCKETS * sum(map(len, state.fresh)) / max(SNAPSHOT_AFTER, len(state.rows))
            oldest = sorted(range(len(snapshots)), key=snapshots.__getitem__)[: int(due)] or range(BUCKETS)
            if due >= 1 or not snapshots:  # not as a whole, which would be there three times meanwhile
                for name, arrays in state.rows.parts(oldest):
                    self._part(name, bytes_of(arrays))
                self._db.execute("delete from part where name = 'rows'")  # an earlier version wrote one part
                snapshots = [last if bucket in oldest else n for bucket, n in enumerate(snapshots or [0] * BUCKETS)]
                due -= int(due)
            snapshot = min(snapshots)
            if state.recent.since != NO_TS:
                self._db.execute("delete from change where id <= ? and newest <= ?", (snapshot, state.recent.since))
            self._part("facts", bytes_of(state.facts))
            self._part("suspects", bytes_of({n: getattr(state.suspects, n) for n in CHANGE}))
            if state.explaining.num_rows != told.get("explaining"):
                self._part("explaining", bytes_of(state.explaining))
            if state.compared:
                self._part("evidence", bytes_of(state.evidence))
            self._part("waiting", bytes_of(waiting))
            counted = [
                [*at, [c.first, c.last, c.n, *(m.tolist() for m in c.missing)]] for at, c in state.counted.items()
            ]
            self._say("state", {
                "snapshot": snapshot, "snapshots": snapshots, "due": due, "last": last,
                "since": state.recent.since, "share": state.share, "counted": counted,
                "firsts": [[*at, n] for at, n in state.firsts.items()], "evicted_ts": state.evicted_ts,
                "redelivered_ms": dict(state.redelivered_ms), "explaining": state.explaining.num_rows,
                "closed_ts": state.closed_ts, "dropped": state.dropped,
                "compared": dict(state.compared), "settled_ts": state.settled_ts,
                "deleted": [[*at, spans] for at, spans in state.deleted.items()],
            })  # fmt: skip
            self._say("progress", progress.as_dict())
            self._say("view", dict(view))
            self._say("version", VERSION)
            aside = self.put_aside()  # since the findings were looked at, too
            some = (findings[number] for number in sorted(changed & findings.keys()))
            self._put(replace(f, status=aside.get(f.number, f.status)) for f in some)
            self._db.executemany("delete from finding where number = ?", [(n,) for n in changed - findings.keys()])
            there = [(path, _sealed(astuple(file))) for path, file in files.items() if file is not None]
            self._db.executemany("insert or replace into file values(?, ?)", there)
            self._db.executemany("delete from file where path = ?", [(p,) for p, file in files.items() if file is None])
        return state.saved()

    def _say(self, name: str, value: Any) -> None:
        self._db.execute("insert or replace into told values(?, ?)", (name, _sealed(value)))

    def _part(self, name: str, data: bytes) -> None:
        self._db.execute("insert or replace into part values(?, ?)", (name, _sealed(data)))

    def _put(self, findings: Iterator[KeptFinding]) -> None:
        rows = [(f.number, f.status, _sealed(f.as_dict())) for f in findings]
        self._db.executemany("insert or replace into finding values(?, ?, ?)", rows)

    def show(self, view: Mapping[str, Any]) -> None:
        """Save alone what the watch shows, if it was committed before."""
        if self.progress is not None:
            with self._commit():
                self._say("view", dict(view))

    def put(self, finding: KeptFinding) -> None:
        """Save a finding alone, as ignoring or resolving it beside the watch does."""
        with self._commit():
            self._put(iter([finding]))

    def evidence(self, number: int) -> Path:
        """The folder of a finding's evidence."""
        return self.folder / FINDINGS / str(number)

    def keep_evidence(
        self, finding: KeptFinding, messages: pa.Table | None = None, files: Mapping[str, bytes] = MappingProxyType({})
    ) -> None:
        """Write a finding's message, with the offsets to read again, and its messages as a capture file, or its files
        as a folder of the storage sink.
        """
        place = self.evidence(finding.number)
        with room_for(self.folder, keep=True):
            place.mkdir(parents=True, exist_ok=True)
            said = finding.as_dict()
            if messages is not None:
                by = [(c, "ascending") for c in ("topic", "partition", "offset")]
                ordered = messages.sort_by(by).combine_chunks()
                lines = b"".join(lines_of(batch) for batch in ordered.to_batches())
                (place / MESSAGES).write_bytes(gzip.compress(lines, mtime=0))
                said["messages"] = ordered.select(["topic", "partition", "offset"]).to_pylist()
            for path, content in files.items():
                (place / STORAGE / path).parent.mkdir(parents=True, exist_ok=True)
                (place / STORAGE / path).write_bytes(content)
            (place / "finding.json").write_text(
                json.dumps(with_texts(said | {"files": sorted(files)} if files else said), indent=1) + "\n",
                encoding="utf-8",
            )

    def drop_evidence(self, most: int, wanted: Container[int]) -> None:
        """Keep the evidence of the newest of the wanted findings alone."""
        there = sorted((p for p in (self.folder / FINDINGS).glob("[0-9]*")), key=lambda p: int(p.name))
        kept = {*[p for p in there if int(p.name) in wanted][-most:]}
        for place in there:
            if place not in kept:
                shutil.rmtree(place, ignore_errors=True)


def placed(found: Iterable[KeptFinding], state: str | Path) -> list[dict[str, Any]]:
    """Findings of a state folder as JSON; of a storage folder with a ``place``, the file and the line."""
    each = [f.as_dict() for f in found]
    places = {(f["partition"], f["offset"]) for f in each if f["partition"] is not None and f["offset"] is not None}
    if not places:
        return each
    with closing(WatchFolder(state, writes=False)) as folder:
        words = folder.places_in_files(places)
    return [f | {"place": words.get((f["partition"], f["offset"]))} for f in each] if words else each


def bytes_of(columns: Mapping[str, np.ndarray[Any, Any]] | pa.Table) -> bytes:
    """Columns of any lengths, or a table, in Arrow's form."""
    if not isinstance(columns, pa.Table):
        lists = {n: pa.array([], pa.from_numpy_dtype(c.dtype)) for n, c in columns.items()}
        schema = pa.schema([(n, pa.large_list(lists[n].type)) for n in columns])
        arrays = [
            pa.LargeListArray.from_arrays(pa.array([0, len(c)], pa.int64()), pa.array(c)) for c in columns.values()
        ]
        columns = pa.table(arrays, schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns.schema) as stream:
        stream.write_table(columns)
    data: bytes = sink.getvalue().to_pybytes()
    return data


_SEAL = b"crc1"
"""Begins what has a checksum: SQLite has none, and Arrow reads what is damaged as other numbers, or dies of it."""


def _sealed(value: Any) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return _SEAL + zlib.crc32(data).to_bytes(4, "big") + data


def _unsealed(stored: bytes) -> pa.Buffer:
    data = pa.py_buffer(stored)
    if not stored.startswith(_SEAL):  # an earlier version wrote no checksums
        return data
    if zlib.crc32(data.slice(8)) != int.from_bytes(stored[4:8], "big"):
        raise ValueError("a checksum differs")
    return data.slice(8)


def _value(stored: str | bytes) -> Any:
    return json.loads(stored if isinstance(stored, str) else _unsealed(stored).to_pybytes())


def _counted(told: list[Any]) -> CountedOffsets:
    first, last, n, *missing = told
    low, high = (np.array(m, dtype=np.int64) for m in missing)
    return CountedOffsets(first, last, n, (low, high))


def _table(data: bytes | pa.Buffer | pa.NativeFile) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def arrays_of(data: bytes | pa.Buffer | pa.NativeFile) -> dict[str, np.ndarray[Any, Any]]:
    """Columns that :func:`bytes_of` took, without a copy."""
    table = _table(data)
    return {n: table[n].combine_chunks().flatten().to_numpy(zero_copy_only=False) for n in table.column_names}
