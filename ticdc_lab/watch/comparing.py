"""Two sources compared while they grow: what reads both, keeps where it is, and can be looked at while it runs."""

from __future__ import annotations

import fcntl
import io
import json
import os
import shlex
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import astuple, dataclass, field, fields, replace
from itertools import count
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.detection import Detected
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.known import Known
from ticdc_lab.errors import ContractError, SourceError
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.errors.whole_files import room_for
from ticdc_lab.events.arrays import NO_TS
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.events.tso import clock_words
from ticdc_lab.facts.known import CountedOffsets
from ticdc_lab.settings import Settings
from ticdc_lab.settings.file import given_settings
from ticdc_lab.sources.kafka_reading import Place, Span
from ticdc_lab.sources.learned import known_of
from ticdc_lab.sources.load import SAMPLE
from ticdc_lab.transactions.differences import KINDS
from ticdc_lab.watch.comparison import (
    HERE,
    SIDES,
    THERE,
    ComparedSides,
    ComparedSoFar,
    CompareState,
    Delivered,
    absorbed,
    judged,
    windowed,
    with_windows,
)
from ticdc_lab.watch.metrics import ComparedView
from ticdc_lab.watch.recorded import Read, RecordedTopic
from ticdc_lab.watch.silences import Silences
from ticdc_lab.watch.sources import FORM, Decoding, LiveTopic, WatchedSource, no_data_file, opened
from ticdc_lab.watch.state import WatchState
from ticdc_lab.watch.storage import ReadFile, StorageFolder

VERSION = 2
FILE, LOCK, WINDOW = "compare.npz", "compare.lock", "window-{}.npz"

JUDGE_S, COMMIT_S = 1.0, 5.0
"""How often both are compared, and the state is saved, at most; each takes a fifth of the time at most."""

LOOK_S = 30.0
"""How often brokers are asked which partitions there are."""

_MESSAGES = arrow_schema(MESSAGES)


@dataclass
class _ComparedSource:
    """One of the sources, and how far it is read."""

    source: WatchedSource
    name: str
    decoding: Decoding
    ids: dict[str, str]
    positions: dict[Place, int] = field(default_factory=dict)
    lost: dict[Place, int] = field(default_factory=dict)
    quarantined: int = 0
    spans: dict[Place, Span] = field(default_factory=dict)  # as the brokers had them last
    reading: Iterator[Read] | None = None
    ended: bool = False


class WatchedComparison:
    """A comparison of two sources that grow.

    ``here``, ``there``: what :func:`ticdc_lab.watch` takes as a source. ``state``: a folder; a comparison that ended,
    in any way, resumes where it was saved last. None to save nothing. ``once``: read both up to the end of now,
    compare, and end. ``memory``: bytes that the state may take. ``changefeed``, ``protocol``, ``schema_registry``,
    ``claim_check``, ``options``: as of :class:`ticdc_lab.watch.running.Watch`, for both. ``compared``: what both have
    in common so far (:class:`ticdc_lab.watch.comparison.ComparedSoFar`). ``said``: takes a sentence when the broker of
    a partition stops answering while others are read, and when it is read again. Raises SourceError: a source cannot be
    watched, or the folder belongs to another comparison.
    """

    def __init__(
        self, here: str, there: str, *, state: str | None = None, once: bool = False, memory: int = 1 << 30,
        changefeed: Settings | None = None, protocol: str = "auto", schema_registry: str | None = None,
        claim_check: str | None = None, options: Mapping[str, str] | None = None,
        said: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self._silences = Silences(said), Silences(said)
        self._once, self._memory = once, memory
        given = (changefeed or Settings()) | given_settings(options or {})
        known = replace(known_of(schema_registry, claim_check), settings=given)
        self._folder = None if state is None else CompareFolder(state)
        saved = None if self._folder is None else self._folder.saved()
        self._state = CompareState() if saved is None else saved[0]
        told: list[dict[str, Any] | None] = [None, None] if saved is None else [*saved[1]]
        self._sides = []
        for name, of in zip((here, there), told, strict=True):
            source = opened(name, options or {}, changefeed=given)
            shown = shown_source(name)
            self._sides.append(_side(source, shown, known, protocol, of))
        a, b = self._sides
        undated = [s.name for s in self._sides if not s.decoding.told.has_commit_ts]
        if undated:
            raise ContractError(
                f"{undated[0]} has no commit_ts, so its row changes cannot be paired.",
                hint=f"ticdc-lab settings {shlex.quote(undated[0])} shows how its changefeed was set.",
            )
        self._asked = ComparedSides(
            self.protocols, (a.decoding.known.settings, b.decoding.known.settings), memory=memory
        )  # fmt: skip
        self._state = with_windows(self._state, [] if saved is None else saved[2], self._asked)
        self.compared = judged(self._state, self._asked)
        self._last_batch_s = 0.0

    @property
    def protocols(self) -> tuple[str, str]:
        """Of both."""
        return self._sides[HERE].decoding.told.protocol, self._sides[THERE].decoding.told.protocol

    @property
    def state(self) -> CompareState:
        """How far it is."""
        return self._state

    @property
    def unread(self) -> tuple[int, int]:
        """Messages of each that could not be decoded, or that the broker deleted before they were read."""
        a, b = (s.quarantined + sum(s.lost.values()) for s in self._sides)
        return a, b

    @property
    def view(self) -> ComparedView:
        """How far it is, for metrics."""
        found, state = self.compared, self._state
        differences = {kind: int(found.tables[kind].sum()) for kind in KINDS[:-1]} | {"ddl": len(found.ddl)}
        return ComparedView(
            self.protocols, (state.resolved_ts(HERE), state.resolved_ts(THERE)), found.span[1] if found.span else NO_TS,
            int(found.tables[[*KINDS]].to_numpy().sum()), differences, {"late": found.late, "unread": self.unread},
            state.nbytes, self._last_batch_s, self.silent,
            {(side, topic, str(p)): s for side, of in zip(("here", "there"), self._silences, strict=True)
             for (topic, p), s in of.answered_s.items()},
        )  # fmt: skip

    @property
    def silent(self) -> tuple[str, ...]:
        """Which partitions have no broker that answers, a sentence for each topic and broker."""
        here, there = (of.now for of in self._silences)
        return (*here, *there)

    def _look(self) -> None:
        """Ask brokers what reading does not show: partitions that were added, or that answer again, are read then."""
        for side in self._sides:
            if isinstance(side.source, LiveTopic) and not side.ended:
                with suppress(SourceError):  # reading reports it if it lasts
                    side.spans = side.source.spans()
                    if side.spans.keys() - side.source.positions.keys() and isinstance(side.reading, Generator):
                        side.reading.close()
                        side.reading = side.source.batches(side.positions, once=self._once)

    def _waits(self) -> bool:
        """Report silent partitions; whether one may have messages and none of them was read."""
        waits = False
        for side, silences in zip(self._sides, self._silences, strict=True):
            if isinstance(side.source, LiveTopic):
                found, read = side.source.silences(), side.source.positions
                silences.note(found, read.keys(), time.time())
                waits |= any(read.get(at, low) <= low < high for at, (low, high) in side.spans.items())
                waits |= bool(found.keys() - read.keys())
        return waits

    def run(
        self, stopped: Callable[[], bool] = lambda: False, *, shown: Callable[[ComparedSoFar], None] = lambda _: None
    ) -> ComparedSoFar:
        """Compare until it is stopped, or, of what ends, to the end.

        ``stopped``: whether to end; asked several times a second. ``shown``: is given what both have in common whenever
        both resolved_ts have moved. Raises ContractError: so much is above the resolved_ts of one of them that the
        memory does not suffice.
        """
        clock = time.monotonic
        judged_at = saved_at = looked_at = clock()
        pauses = [JUDGE_S, COMMIT_S]
        try:
            for side in self._sides:
                side.reading = None if side.ended else side.source.batches(side.positions, once=self._once)
            self._look()
            while not stopped() and not all(s.ended for s in self._sides):
                for i in self._readable():
                    self._read(i)
                if not self._once and clock() - looked_at > LOOK_S:
                    self._look()
                    looked_at = clock()
                if clock() - judged_at > pauses[0] and self._waits():
                    judged_at = clock()
                elif clock() - judged_at > pauses[0]:
                    begun, before = clock(), self.compared.span
                    self._state = windowed(self._state, self._asked)
                    self.compared = judged(self._state, self._asked)
                    judged_at = clock()
                    pauses[0] = max(JUDGE_S, 4 * (judged_at - begun))
                    if self.compared.span != before:
                        shown(self.compared)
                if self._folder is not None and clock() - saved_at > pauses[1]:
                    begun = clock()
                    self._save()
                    saved_at = clock()
                    pauses[1] = max(COMMIT_S, 4 * (saved_at - begun))
            if self._once or not self._waits():
                self.compared = judged(self._state, self._asked)
            self._save()
        finally:
            for side in self._sides:
                if isinstance(side.reading, Generator):
                    side.reading.close()  # before the consumer that it reads with
                side.source.close()
            if self._folder is not None:
                self._folder.close()
        return self.compared

    def _readable(self) -> list[int]:
        """The sources to read from: the one that is behind, and the other while there is room for what it brings."""
        todo = [i for i in SIDES if not self._sides[i].ended]
        if len(todo) < len(SIDES) or self._state.nbytes < self._memory // 2:
            return todo
        resolved = [self._state.resolved_ts(i) for i in SIDES]
        return [HERE if resolved[HERE] <= resolved[THERE] else THERE]

    def _read(self, i: int) -> None:
        side = self._sides[i]
        assert side.reading is not None
        read = next(side.reading, None)
        messages, refused = (pa.record_batch([], schema=pa.schema([])), None) if read is None else read
        side.ended = read is None
        if not side.ended and not messages.num_rows and (refused is None or not refused.num_rows):
            return
        table = _MESSAGES.empty_table() if side.ended else pa.Table.from_batches([messages]).cast(_MESSAGES)
        ends = side.ended and isinstance(side.source, RecordedTopic)
        of_folder = isinstance(side.source, StorageFolder)  # which gives events
        events = FORM.empty_table() if of_folder else side.decoding.decoded(table, images=True, last=ends)
        if refused is not None:
            events = pa.concat_tables([events, pa.Table.from_batches([refused]).cast(FORM)])
        bad = events.filter(pc.and_(pc.equal(pc.fill_null(events["seq"], 0), 0), pc.is_valid(events["error_class"])))
        side.quarantined += len(bad) - (pc.sum(pc.equal(bad["error_class"], "empty-message")).as_py() or 0)
        self._state = absorbed(self._state, events, i, self._asked, ends=ends)
        side.positions, side.lost = dict(side.source.positions), dict(side.source.lost)
        self._last_batch_s = time.time()
        if self._state.nbytes > self._memory:
            resolved = [self._state.resolved_ts(i) for i in SIDES]
            behind = HERE if resolved[HERE] <= resolved[THERE] else THERE
            at = "has no watermark in a partition" if resolved[behind] == NO_TS else (
                f"is resolved up to {clock_words(resolved[behind])}"
            )  # fmt: skip
            raise ContractError(
                f"Row changes above the resolved_ts of both need more than the memory of {self._memory >> 20:,} MiB: "
                f"{self._sides[behind].name} {at}.",
                hint="Give more: --memory 4GiB; without --watch, ticdc-lab compare needs no memory for them.",
            )

    def _save(self) -> None:
        if self._folder is not None:
            waiting = [side.decoding.waiting for side in self._sides]
            self._folder.save(self._state, [_told_of(side) for side in self._sides], waiting)


def _side(
    source: WatchedSource, name: str, known: Known, protocol: str, told: Mapping[str, Any] | None
) -> _ComparedSource:
    """A source, as it was saved or from its beginning."""
    ids = source.ids()
    if isinstance(source, StorageFolder):
        source.images = True
    if told is None and isinstance(source, StorageFolder):
        decoding = Decoding.of_folder(source, known, protocol=protocol)
        if decoding is None:
            raise no_data_file(source.name)
        source.learns = decoding.handles_with
        return _ComparedSource(source, name, decoding, ids)
    if told is None:
        assert isinstance(source, LiveTopic | RecordedTopic)
        decoding = Decoding.detected(source.name, source.first(SAMPLE), known, protocol=protocol)
        return _ComparedSource(source, name, decoding, ids)
    if told["source"] != name:
        raise SourceError(
            f"The state folder belongs to a comparison with {told['source']}, not with {name}.",
            hint="Name another folder: --state OTHER",
        )
    if any(ids.get(topic, known_id) != known_id for topic, known_id in told["ids"].items()):
        raise SourceError(
            f"A topic of {name} was deleted and recreated since the comparison began: its offsets are others.",
            hint="Compare into another folder: --state OTHER",
        )
    detected = Detected(told["protocol"], told["has_commit_ts"])
    decoding = Decoding.resumed(detected, known, told, _table(told["waiting"]))
    if isinstance(source, StorageFolder):
        source.resume(told["read"], {path: ReadFile(*of) for path, of in told["files"].items()})
        source.learns = decoding.handles_with
    elif isinstance(source, RecordedTopic):
        read = told.get("read", {})  # an earlier version saved none
        if told["ended"] and read and read["bytes"] != source.cursor()["bytes"]:
            raise SourceError(
                f"{name} was compared to its end, and is another file now: what came last there was not kept.",
                hint="Compare it into another folder: --state OTHER",
            )
        source.resume(read)
    positions, lost = ({(t, p): n for t, p, n in told[of]} for of in ("positions", "lost"))
    ended = told["ended"] and isinstance(source, RecordedTopic)
    return _ComparedSource(source, name, decoding, ids, positions, lost, told["quarantined"], ended=ended)


def _told_of(side: _ComparedSource) -> dict[str, Any]:
    decoding, source = side.decoding, side.source
    read: dict[str, Any] = {}
    if isinstance(source, StorageFolder):
        read = {"read": source.cursor(), "files": {path: astuple(file) for path, file in source.files.items()}}
    elif isinstance(source, RecordedTopic):
        read = {"read": source.cursor()}
    return read | {
        "source": side.name, "protocol": decoding.told.protocol, "has_commit_ts": decoding.told.has_commit_ts,
        "ids": side.ids, "positions": [[*at, n] for at, n in side.positions.items()],
        "lost": [[*at, n] for at, n in side.lost.items()], "quarantined": side.quarantined, "ended": side.ended,
        **decoding.saved(),
    }  # fmt: skip


class CompareFolder:
    """The folder in which a comparison keeps its state: one file, which is whole or as it was before.

    It names the files of windows, which never change, so that a commit writes what is new.
    Raises SourceError: another comparison writes it, or it holds something else.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self._windows: dict[str, Delivered] = {}
        with room_for(self.folder, keep=True):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise SourceError(
                f"Another comparison writes its state into {self.folder}.", hint="Name another folder: --state OTHER"
            ) from None

    def close(self) -> None:
        """Let others write it."""
        os.close(self._lock)

    def save(self, state: CompareState, told: list[dict[str, Any]], waiting: list[pa.Table]) -> None:
        """Replace what was saved before."""
        named = {id(d): name for name, d in self._windows.items()}
        numbers = (int(name.split("-")[1].split(".")[0]) for name in self._windows)
        free, windows = count(max(numbers, default=0) + 1), dict[str, Delivered]()
        for window in state.windows:
            windows[named.get(id(window.delivered)) or WINDOW.format(next(free))] = window.delivered
        for name in windows.keys() - self._windows.keys():
            self._write(name, {f.name: getattr(windows[name], f.name) for f in fields(Delivered)})
        whole = {
            "version": VERSION, "sides": told,
            "windows": [[w.until, name] for w, name in zip(state.windows, windows, strict=True)],
            "names": state.names, "topics": state.topics, "late": state.late,
            "ended": state.ended, "forgotten_ts": state.forgotten_ts,
            "totals": [[name, n.tolist()] for name, n in state.totals.items()],
            "firsts": [[[*at, n] for at, n in s.firsts.items()] for s in state.sides],
            "counted": [
                [[*at, c.first, c.last, c.n, *(m.tolist() for m in c.missing)] for at, c in s.counted.items()]
                for s in state.sides
            ],
        }  # fmt: skip
        arrays = {"told": np.frombuffer(json.dumps(whole).encode(), dtype=np.uint8)}
        for i, (side, messages) in enumerate(zip(state.sides, waiting, strict=True)):
            arrays |= {f"facts {i}": _bytes_of(side.facts), f"waiting {i}": _bytes_of(messages)}
            arrays[f"images {i}"] = _bytes_of(state.images[i])
        parts = {"delivered": state.delivered, "differing": state.differing}
        parts |= {f"fresh {i}": f for i, f in enumerate(state.fresh)}
        arrays |= {f"{part} {f.name}": getattr(d, f.name) for part, d in parts.items() for f in fields(d)}
        self._write(FILE, arrays)
        self._windows = windows
        for other in self.folder.glob(WINDOW.format("*")):
            if other.name not in windows:
                other.unlink(missing_ok=True)

    def _write(self, name: str, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        place, beside = self.folder / name, self.folder / f".{name}"
        with room_for(self.folder, keep=True):
            with beside.open("wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            beside.replace(place)

    def _read(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        try:
            with closing(np.load(self.folder / name)) as file:
                return {part: file[part] for part in file.files}
        except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as error:
            raise self._damaged(name, error) from None

    def _damaged(self, name: str, error: Exception) -> SourceError:
        return SourceError(
            f"{self.folder / name} is no state of a comparison, or is damaged: {error}.",
            hint="Name another folder: --state OTHER",
        )

    def saved(self) -> tuple[CompareState, list[dict[str, Any]], list[tuple[int, Delivered]]] | None:
        """The state without its windows, the notes on both sources, and until when each window is with what it has;
        None if nothing was saved.
        """
        place = self.folder / FILE
        if not place.exists():
            return None
        arrays = self._read(FILE)
        try:
            told = json.loads(arrays["told"].tobytes())
        except (ValueError, KeyError) as error:
            raise self._damaged(FILE, error) from None
        if told["version"] not in (1, VERSION):  # the first one had no windows
            raise SourceError(
                f"{place} has version {told['version']}; expected {VERSION}.",
                hint="Name another folder (--state OTHER), or use the ticdc-lab version that wrote it.",
            )
        sides = []
        for i in SIDES:
            counted = {
                (t, p): CountedOffsets(first, last, n, (np.array(low, np.int64), np.array(high, np.int64)))
                for t, p, first, last, n, low, high in told["counted"][i]
            }
            firsts = {(t, p): n for t, p, n in told["firsts"][i]}
            sides.append(WatchState(facts=_table(arrays[f"facts {i}"]), firsts=firsts, counted=counted))
            told["sides"][i]["waiting"] = arrays[f"waiting {i}"]

        def delivered(part: str) -> Delivered:
            return Delivered(*[arrays[f"{part} {f.name}"] for f in fields(Delivered)])

        fresh = sum(name.startswith("fresh ") and name.endswith(" key") for name in arrays)
        a, b = sides
        state = CompareState(
            (a, b), tuple((s, t, o) for s, t, o in told["names"]), tuple(told["topics"]), (), delivered("delivered"),
            tuple(delivered(f"fresh {i}") for i in range(fresh)), (told["ended"][0], told["ended"][1]),
            (_table(arrays["images 0"]), _table(arrays["images 1"])),
            {name: np.array(n, dtype=np.int64) for name, n in told["totals"]}, delivered("differing"),
            told["forgotten_ts"], (told["late"][0], told["late"][1]),
        )  # fmt: skip
        self._windows = {name: Delivered(**self._read(name)) for _, name in told.get("windows", ())}
        return state, told["sides"], [(until, self._windows[name]) for until, name in told.get("windows", ())]


def _bytes_of(table: pa.Table) -> np.ndarray[Any, Any]:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return np.frombuffer(sink.getvalue(), dtype=np.uint8)


def _table(data: np.ndarray[Any, Any]) -> pa.Table:
    return pa.ipc.open_stream(data.tobytes()).read_all()
