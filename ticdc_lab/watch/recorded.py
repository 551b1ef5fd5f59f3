"""Recordings as a source of a watch: capture files, Parquet, and dumps of other tools, replayed, or followed while they
grow.
"""

from __future__ import annotations

import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.known import AT_ONCE, BOUNDS
from ticdc_lab.errors import NoAnswerError, SourceError
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.sources.capture import read_range, read_whole, rejected_file
from ticdc_lab.sources.dump_files import CAPTURES, dumps_at
from ticdc_lab.sources.dumps import lines_begun, read_file
from ticdc_lab.sources.forms import CAPTURE, Assumed, Form
from ticdc_lab.sources.kafka_reading import Place, Span
from ticdc_lab.sources.parquet import whole_parquet
from ticdc_lab.sources.places import data_files, unknown_options

MESSAGES_FORM = arrow_schema(MESSAGES)

Read = tuple[pa.RecordBatch, pa.RecordBatch | None]
"""Messages (:data:`ticdc_lab.events.schema.MESSAGES`), and what is no message in the form of DECODED."""

PACE_S = 0.2
"""A replay gives the messages of so long at once."""

POLL_S, IDLE_S = 1.0, 0.2
"""A recording that is followed is looked at after so long; meanwhile a watch hears after so long that it is to end."""

_READ_AT_ONCE = 1_000
"""Messages that are read from Parquet at once: each may have many rows."""

_CHUNK, _TAIL = 1 << 20, 64
"""Bytes that are read at once, and those before the end of what was read that must still be there."""

_NOTHING = pa.RecordBatch.from_pylist([], MESSAGES_FORM)


def messages_among(messages: pa.RecordBatch, wanted: Set[tuple[str, int, int]]) -> pa.Table:
    """Those at some topics, partitions and offsets."""
    at = zip(*[messages[c].to_pylist() for c in ("topic", "partition", "offset")], strict=True)
    return pa.Table.from_batches([messages.filter(pa.array([place in wanted for place in at], pa.bool_()))])


def _by_number(file: Path) -> list[tuple[int, str]]:
    return [(int(part), part) if i % 2 else (0, part) for i, part in enumerate(re.split(r"(\d+)", str(file)))]


class RecordedTopic:
    """A recording: capture files, Parquet or dumps, in which each partition lies in the order of its offsets.

    ``source``: a file, or a folder of them, read in the order of their names, ``t-2`` before ``t-10``. ``follow``: wait
    for what is appended, and for more files. ``speed``: how many times as fast as it was recorded, by the messages'
    timestamps; None as fast as it can be read. ``options``: of :data:`ticdc_lab.sources.forms.OPTIONS`. ``now``,
    ``sleep``: a clock, and what waits. Raises SourceError: it is no recording; a dump does not take an option.
    """

    def __init__(
        self, source: str, *, follow: bool = False, speed: float | None = None,
        options: Mapping[str, str] = MappingProxyType({}), now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self.name, self.grows, self._speed, self._now, self._sleep = source, follow, speed, now, sleep
        self._options = options
        self.positions: dict[Place, int] = {}
        self.lost: dict[Place, int] = {}
        self.losses, self.notes = frozenset[str](), tuple[str, ...]()
        """What a dump does not have (:data:`ticdc_lab.sources.forms.LOSSES`), and a sentence for each."""
        self._files, self._listed = list[Path](), list[Path]()
        self._forms: dict[str, tuple[Form, Assumed]] = {}
        self._refused = Counter[str]()
        self._last: dict[Place, tuple[int, str]] = {}
        self._at: dict[Path, tuple[int, int, bytes]] = {}
        self._sizes: dict[Path, tuple[int, int]] = {}
        self._is_held_back = False  # whether the last record of a file is not read yet, as it may continue
        self._look()

    @property
    def is_dump(self) -> bool:
        """Whether another tool made it."""
        return bool(self._forms)

    def _look(self) -> None:
        """List it; the form of a file stays as it was when it was listed first."""
        files = listed = sorted(data_files(self.name) or (), key=_by_number)
        if files and files == self._listed:
            return
        dumped = dumps_at(self.name, files, "auto", self._options) if files else None
        if dumped is not None:
            files = [f for f in files if str(f.resolve()) not in dumped.strays]
        is_read = all(
            f.name.endswith((*CAPTURES, ".parquet")) or (dumped and str(f.resolve()) in dumped.of) for f in files
        )
        if not files or not is_read:
            raise SourceError(
                f"{self.name} is no recording of a topic; expected files that `record` wrote, .jsonl, .jsonl.gz or "
                ".parquet, or a dump of a topic.",
                hint=f"Make one of it: ticdc-lab record {shlex.quote(self.name)} --out topic.jsonl.gz",
            )
        if self._options and dumped is None:
            raise unknown_options(self.name, self._options)
        if dumped is not None:
            found = {file: of for file in dumped.of if (of := dumped.form(file)) is not None}
            self._forms = found | {file: of for file, of in self._forms.items() if file in found}
            self.losses, self.notes = dumped.lost, dumped.sentences
        self._files, self._listed = files, listed

    def cursor(self) -> dict[str, Any]:
        """As JSON the bytes of its files; what is no message and was given, by digest: it has no offset; and of each
        partition the digest of the last message that was given.
        """
        last = [[*at, offset, digest] for at, (offset, digest) in self._last.items()]
        n_bytes = 0
        for file in self._files:
            with suppress(OSError):  # it was moved away
                n_bytes += file.stat().st_size
        return {"bytes": n_bytes, "refused": dict(self._refused), "last": last}

    def resume(self, cursor: Mapping[str, Any]) -> None:
        """Do not give again what :meth:`cursor` names; an earlier version saved none, or no messages."""
        self._refused = Counter(cursor.get("refused", {}))
        self._last = {(topic, partition): (o, digest) for topic, partition, o, digest in cursor.get("last", ())}

    def ids(self) -> dict[str, str]:
        """As of :class:`ticdc_lab.watch.sources.WatchedSource`: none."""
        return {}

    def spans(self) -> dict[Place, Span]:
        """As of :class:`ticdc_lab.watch.sources.WatchedSource`: none, until it was read."""
        return {}

    def first(self, n: int) -> pa.Table:
        """As of :class:`ticdc_lab.watch.sources.Messages`."""
        found = [MESSAGES_FORM.empty_table()]
        for messages, _ in self._read():
            found.append(pa.Table.from_batches([messages.cast(MESSAGES_FORM)]))
            if sum(map(len, found)) >= n or sum(t.nbytes for t in found) >= AT_ONCE:
                break
        return pa.concat_tables(found).slice(0, n).combine_chunks()

    def batches(self, positions: Mapping[Place, int], *, once: bool) -> Iterator[Read]:
        """As of :class:`ticdc_lab.watch.sources.WatchedSource`; it ends unless it is followed.

        Raises SourceError: it was replaced by another recording, or by a shorter one; offsets of a partition fall.
        """
        self.positions, self._at, self._sizes = dict(positions), {}, {}
        if self.grows:
            self._look_again()
        clock: tuple[float, int] | None = None
        whole = is_unproven = True
        while True:
            begun = dict[Place, tuple[int, str]]()
            for at, position in self.positions.items():
                offset, digest = self._last.get(at, (-1, ""))
                begun[at] = position, digest if offset == position - 1 else ""
            if whole:
                at_first, greatest, is_unproven = begun, dict[Place, int](), True
            before = Counter(self._refused) if whole else Counter[str]()
            found = self._still_there(before) if self.grows else self._without(self._read(), before)
            for messages, refused in found:
                parts = [messages] if self._speed is None else self._by_time(messages, self._speed)
                for part in parts:
                    new = self._behind(part, begun, greatest)
                    if (
                        self._speed is not None
                        and (stamp := pc.min(new["timestamp"].cast(pa.int64())).as_py()) is not None
                    ):
                        clock = clock or (self._now(), stamp)
                        ahead_s = (stamp - clock[1]) / 1e6 / self._speed - (self._now() - clock[0])
                        if ahead_s > 0:
                            self._sleep(ahead_s)
                    yield new, refused if part is parts[-1] else None
            if is_unproven and not self._is_held_back:
                self._require_not_shorter(at_first, greatest)
                is_unproven = False
            if once or not self.grows:
                return
            until = self._now() + POLL_S
            yield _NOTHING, None
            while self._now() < until:
                self._sleep(IDLE_S)
                if self._now() < until:
                    yield _NOTHING, None
            whole = self._look_again()

    @staticmethod
    def _by_time(messages: pa.RecordBatch, speed: float) -> list[pa.RecordBatch]:
        """The messages of each part of a second of the replay, in their order."""
        stamps = np.maximum.accumulate(messages["timestamp"].cast(pa.int64()).fill_null(0).to_numpy())
        ends = np.flatnonzero(np.diff(stamps // max(1, int(PACE_S * 1e6 * speed)))) + 1
        cuts = [0, *ends.tolist(), len(messages)]
        return [messages.slice(low, high - low) for low, high in pairwise(cuts)]

    def _behind(
        self, messages: pa.RecordBatch, begun: Mapping[Place, tuple[int, str]], greatest: dict[Place, int]
    ) -> pa.RecordBatch:  # fmt: skip
        """What was not read before; moves the positions, and the greatest offset of each partition that is there."""
        topics, partitions, offsets = (messages[c].to_pylist() for c in ("topic", "partition", "offset"))
        new, last = [], dict[Place, int]()
        for i, (at, offset) in enumerate(zip(zip(topics, partitions, strict=True), offsets, strict=True)):
            position, known = begun.get(at, (0, ""))
            if known and offset == position - 1 and known != _digest(messages, i):
                raise self._replaced(f"its message at offset {offset} of partition {at[1]} of {at[0]} is another one")
            is_new = offset >= position
            if is_new and offset < self.positions.get(at, 0):
                raise SourceError(
                    f"{self.name}: offset {offset} of partition {at[1]} of {at[0]} follows offset "
                    f"{self.positions[at] - 1}; a watch reads each partition in the order of its offsets.",
                    hint=f"An audit takes any order: ticdc-lab audit {shlex.quote(self.name)}",
                )
            greatest[at] = max(offset, greatest.get(at, offset))
            if is_new:
                self.positions[at], last[at] = offset + 1, i
            new.append(is_new)
        self._last |= {at: (offsets[i], _digest(messages, i)) for at, i in last.items()}
        return messages.filter(pa.array(new, pa.bool_()))

    def _require_not_shorter(self, begun: Mapping[Place, tuple[int, str]], greatest: Mapping[Place, int]) -> None:
        """What was read before may have been moved away; what is there in its place must not end before it."""
        for (topic, partition), (position, _) in sorted(begun.items()):
            last = greatest.get((topic, partition))
            if last is not None and last < position - 1:
                raise self._replaced(
                    f"partition {partition} of {topic} was read up to offset {position - 1}, and ends at {last} now"
                )

    def _replaced(self, why: str) -> SourceError:
        return SourceError(
            f"{self.name} was replaced or cut since its watch began: {why}.",
            hint="Restore it, or watch it into another folder: --state OTHER. What was found stays in this one.",
        )

    def _without(self, found: Iterator[Read], before: Counter[str]) -> Iterator[Read]:
        """What was read, without what is no message and was refused before; takes that from ``before``."""
        for messages, bad in found:
            yield messages, self._not_before(bad, before)

    def _not_before(self, refused: pa.RecordBatch | None, before: Counter[str]) -> pa.RecordBatch | None:
        """What was not refused before; takes what was from ``before``."""
        if refused is None or not refused.num_rows:
            return None
        new = []
        for reason, line in zip(refused["reason"].to_pylist(), refused["value"].to_pylist(), strict=True):
            own = sha256(reason.encode() if line is None else line).hexdigest()[:16]
            new.append(not before[own])
            if before[own]:
                before[own] -= 1
            else:
                self._refused[own] += 1
        return refused.filter(pa.array(new, pa.bool_()))

    def _read(self) -> Iterator[Read]:
        """All that lies there."""
        for file in self._files:
            yield from self._read_file(file)

    def _read_file(
        self, file: Path, *, first: int = 0, last: int | None = None, lines_before: int = 0
    ) -> Iterator[Read]:
        """Messages of a file, or of the lines in some of its bytes."""
        form, span = self._forms.get(str(file.resolve())), None if last is None else (first, last)
        if form is None and file.name.endswith(".parquet"):
            # without a buffer, as what was read would stay until the end
            with whole_parquet(file), pq.ParquetFile(file, pre_buffer=False) as pieces:
                for batch in pieces.iter_batches(_READ_AT_ONCE, use_threads=False):
                    columns = {
                        n: batch[n] if n in batch.schema.names else pa.nulls(len(batch)) for n in MESSAGES_FORM.names
                    }
                    yield (
                        pa.record_batch([columns[f.name].cast(f.type) for f in MESSAGES_FORM], schema=MESSAGES_FORM),
                        None,
                    )
            return
        with file.open("rb") as opened:
            if form is not None and form[0].name != CAPTURE:
                assumed = replace(form[1], lines=((first, lines_before),))
                found = read_file(opened, str(file), form[0], assumed, BOUNDS.line, span)
            elif span is None:
                found = read_whole(opened, str(file))
            else:
                found = read_range(opened, str(file), *span)
            for messages, refused in found:
                yield messages.cast(MESSAGES_FORM), refused

    def _still_there(self, before: Counter[str]) -> Iterator[Read]:
        """What was appended, unless a file was moved away since it was listed."""
        try:
            yield from self._appended(before)
        except OSError as error:
            raise self._gone(error) from None

    def _gone(self, error: OSError | SourceError) -> NoAnswerError:
        why = error.message if isinstance(error, SourceError) else f"{error.filename}: {error.strerror}"
        return NoAnswerError(f"{self.name} cannot be read any more: {why}", hint=f"ls -l {shlex.quote(self.name)}")

    def _appended(self, before: Counter[str]) -> Iterator[Read]:
        """What was appended since the last look, up to the last whole record; what is no text in lines, as a whole.

        Such a file that comes later is read once it is still. ``before`` as of :meth:`_without`.
        """
        is_first, self._is_held_back = not self._sizes, False
        for file in self._files:
            status, (first, lines_before, _) = file.stat(), self._at.get(file, (0, 0, b""))
            seen, now = self._sizes.get(file), (status.st_size, status.st_mtime_ns)
            self._sizes[file] = now
            if not self._is_in_lines(file):
                if is_first or (seen == now and first != now[0]):  # else it is still written
                    yield from self._without(self._read_file(file), Counter(self._refused) if first else before)
                    self._at[file] = now[0], 0, b""
            elif now[0] > first:
                form = self._forms.get(str(file.resolve()))
                last, tail = _whole_records(file, first, now[0], form and form[0], is_idle=seen == now)
                self._is_held_back |= last < now[0]
                if last > first:
                    if first and form and (cut := _continuation(file, first, form[0])) is not None:
                        yield from self._without(iter([(_NOTHING, cut)]), before)
                    found = self._read_file(file, first=first, last=last, lines_before=lines_before)
                    yield from self._without(found, before)
                    with file.open("rb") as opened:
                        opened.seek(first)
                        [(_, n_lines)] = lines_begun(opened, [last], form[0]) if form else [(last, 0)]
                    self._at[file] = last, lines_before + n_lines, tail

    def _is_in_lines(self, file: Path) -> bool:
        """Whether what is appended to a file can be read alone."""
        form = self._forms.get(str(file.resolve()))
        if form is None or form[0].name == CAPTURE:
            with file.open("rb") as opened:
                return not file.name.endswith(".parquet") and opened.read(2) != b"\x1f\x8b"
        return form[1].is_cut and not form[0].depth

    def _look_again(self) -> bool:
        """Whether something of what was read is not there any more, so that all is read again."""
        try:
            self._look()
            are_there = all(self._is_there(file, *of) for file, of in self._at.items())
        except (SourceError, OSError) as error:  # it is just moved away, or lasts: then reading reports it
            raise self._gone(error) from None
        if not are_there:
            self._at, self._sizes = {}, {}
        return not are_there

    @staticmethod
    def _is_there(file: Path, end: int, n_lines: int, tail: bytes) -> bool:
        if not file.exists() or file.stat().st_size < end:
            return False
        with file.open("rb") as opened:
            opened.seek(end - len(tail))
            return not tail or opened.read(len(tail)) == tail

    def messages_at(self, places: Iterable[tuple[str, int, int]]) -> pa.Table:
        """As of :class:`ticdc_lab.watch.sources.Messages`: one pass over the files."""
        wanted = set(places)
        found = [MESSAGES_FORM.empty_table()]
        for messages, _ in self._read() if wanted else ():
            found.append(messages_among(messages, wanted))
        return pa.concat_tables(found)

    def close(self) -> None:
        """As of :class:`ticdc_lab.watch.sources.WatchedSource`."""


def _continuation(file: Path, first: int, form: Form) -> pa.RecordBatch | None:
    """What begins no record behind the last one that was read, which was read too early then, as a row of the
    quarantine.
    """
    with file.open("rb") as opened:
        opened.seek(first)
        line = opened.readline(_CHUNK)
    if form.beginning is None or not line.strip() or form.beginning.match(line):
        return None
    said = (
        f"the record that ends at byte {first} was read when the file had not grown for a while, and then continued "
        f"with {line[:40]!r}: its value was checked without the rest; restart the watch with another --state"
    )
    return rejected_file(str(file), "continued-record", said)


def _digest(messages: pa.RecordBatch, i: int) -> str:
    """What identifies a message's content."""
    key, value = (messages[c][i].as_py() for c in ("key", "value"))
    return sha256(repr((key, value)).encode()).hexdigest()[:16]


def _whole_records(file: Path, first: int, size: int, form: Form | None, *, is_idle: bool) -> tuple[int, bytes]:
    """Where the last whole record ends between two places of a file, and the bytes before its end.

    The last record of a form whose records have several lines is one when another begins behind it, or if the file
    ``is_idle`` and ends with a line: a line without an end belongs to a record that its writer still buffers.
    """
    end = at = first
    with file.open("rb") as opened:
        opened.seek(first)
        while at < size and (text := opened.read(min(size - at, _CHUNK))):
            cut = text.rfind(b"\n") + 1
            if cut:
                end = at + cut
            at += len(text)
        begin = max(first, end - _CHUNK)
        opened.seek(begin)
        tail = opened.read(end - begin)
    beginning = form.beginning if form is not None else None
    is_still = is_idle and end == size
    if form is not None and (form.records == "objects" or (beginning and not is_still)):
        for line in reversed(tail.splitlines(keepends=True)):
            if form.records == "objects" and line.rstrip().endswith(b"}") and not line[:1].isspace():
                break
            end, tail = end - len(line), tail[: -len(line)]
            if beginning and beginning.match(line):
                break
    return end, tail[-_TAIL:]
