"""Messages that several files of a folder hold, and offsets that none of them holds.

Two recordings of one topic may overlap: topic, partition and offset identify a message, so it counts once,
from the first file that holds it. A recording that was cut at a line's end looks whole by itself; the next file
shows what is missing between them.

The tasks that decode report which offsets each file has, so that a folder without overlaps is read once.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, pairwise
from operator import attrgetter, itemgetter
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.events import is_in_file
from ticdc_lab.events.arrays import changes_in

Run = tuple[int, int]
"""The first and the last of offsets without a hole."""
Home = tuple[str, int]
Runs = dict[Home, list[Run]]
Placed = tuple[int, int, int]
"""A run, and the number of its file."""

_SAID = 5

_TWICE = "{later} contains {n:,} messages that {earlier} contain{s} too ({where}): each counts once."
_DIFFER = (
    "{later} and {earlier} contain different messages at the same offsets ({where}), so they are not recordings of one "
    "topic: both are counted. Load them one by one."
)
_BETWEEN = (
    "Partition {partition} of {topic} is missing the offsets {first} to {last}, between {earlier} and {later}: either "
    "{earlier} was cut, or a file is missing. Their data is missing from every answer."
)
_MORE = "{n} more such holes or overlaps of the folder are not listed."


def runs_of(messages: pa.RecordBatch) -> Iterator[tuple[Home, Run]]:
    """The runs of offsets of a batch, in order; messages without a place are in none."""
    placed = pa.table({name: messages.column(name) for name in ("topic", "partition", "offset")}).drop_null()
    if not placed.num_rows:
        return
    topics = placed["topic"].combine_chunks().dictionary_encode()
    topic, partition, offset = np.asarray(topics.indices), placed["partition"].to_numpy(), placed["offset"].to_numpy()
    order = np.lexsort((offset, partition, topic))
    topic, partition, offset = topic[order], partition[order], offset[order]
    begins = changes_in(topic, partition)
    begins[1:] |= np.diff(offset) > 1
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(offset)) - 1
    names = topics.dictionary.take(pa.array(topic[first])).to_pylist()
    yield from zip(
        zip(names, partition[first].tolist(), strict=True),
        zip(offset[first].tolist(), offset[last].tolist(), strict=True),
        strict=True,
    )


class Held:
    """Which offsets each file has, as far as a task has read them."""

    def __init__(self) -> None:
        self._runs: dict[str, Runs] = {}

    def note(self, file: str, messages: pa.RecordBatch) -> None:
        """Add the messages of a file."""
        of = self._runs.setdefault(file, {})
        for home, (first, last) in runs_of(messages):
            known = of.setdefault(home, [])
            if known and first == known[-1][1] + 1:
                known[-1] = (known[-1][0], last)
            else:
                known.append((first, last))

    def said(self) -> str:
        """What :func:`whole_runs` reads."""
        rows = [(f, t, p, runs) for f, of in self._runs.items() for (t, p), runs in of.items()]
        return orjson.dumps(rows).decode()


def whole_runs(said: Iterable[str]) -> dict[str, Runs]:
    """The runs of each file, in order and without overlap, from all tasks' reports."""
    found: dict[str, Runs] = {}
    for text in said:
        for file, topic, partition, runs in orjson.loads(text):
            found.setdefault(file, {}).setdefault((topic, partition), []).extend(map(tuple, runs))
    return {file: {home: united(runs) for home, runs in of.items()} for file, of in found.items()}


def united(runs: Iterable[Run]) -> list[Run]:
    """Runs in order, those that touch as one."""
    out: list[Run] = []
    for first, last in sorted(runs):
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return out


def shared(some: Sequence[Run], others: Sequence[Run]) -> list[Run]:
    """What two lists of runs, each in order, have in common."""
    out, i, k = list[Run](), 0, 0
    while i < len(some) and k < len(others):
        first, last = max(some[i][0], others[k][0]), min(some[i][1], others[k][1])
        if first <= last:
            out.append((first, last))
        if some[i][1] < others[k][1]:
            i += 1
        else:
            k += 1
    return out


@dataclass(frozen=True, slots=True)
class SharedStretch:
    """Offsets of one partition that ``later`` holds after one or more ``earlier`` files, each the first for some."""

    later: str
    earlier: tuple[str, ...]
    home: Home
    run: Run


def stretches(runs: Mapping[str, Runs], order: Sequence[str]) -> list[SharedStretch]:
    """What each file has in common with files before it; ``earlier`` are the first files with some of it."""
    found: list[tuple[int, SharedStretch]] = []
    for home, held in _by_home(runs, order).items():
        firsts = _Firsts()
        for first, last, n in sorted(held, key=itemgetter(2)):
            for run, holders in firsts.add(first, last, n):
                found.append((n, SharedStretch(order[n], tuple(order[k] for k in sorted(holders)), home, run)))
    return [stretch for _, stretch in sorted(found, key=lambda of: (of[0], of[1].home, of[1].run))]


class _Firsts:
    """The first file with each offset of a partition: runs in order, without overlap.

    Only the first file with an offset is remembered: a folder of copies costs no more than their number.
    """

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._files: list[int] = []

    def add(self, first: int, last: int, file: int) -> list[tuple[Run, set[int]]]:
        """Add a run of the next file; what of it was there before, and the files that held that first."""
        low, high = bisect_left(self._lasts, first), bisect_right(self._firsts, last)
        before: list[tuple[Run, set[int]]] = []
        whole: list[Placed] = []
        at = first
        for known in zip(self._firsts[low:high], self._lasts[low:high], self._files[low:high], strict=True):
            begin, end = max(first, known[0]), min(last, known[1])
            if begin > at:
                whole.append((at, begin - 1, file))
            whole.append(known)
            at = end + 1
            if before and before[-1][0][1] + 1 == begin:
                (since, _), holders = before.pop()
                before.append(((since, end), holders | {known[2]}))
            else:
                before.append(((begin, end), {known[2]}))
        if at <= last:
            whole.append((at, last, file))
        for of, values in zip((self._firsts, self._lasts, self._files), zip(*whole, strict=True), strict=True):
            of[low:high] = values
        return before


def _by_home(runs: Mapping[str, Runs], order: Sequence[str]) -> dict[Home, list[Placed]]:
    """Every run of a partition with the number of its file, in order of offset."""
    homes: dict[Home, list[Placed]] = {}
    for n, file in enumerate(order):
        for home, own in runs.get(file, {}).items():
            homes.setdefault(home, []).extend((first, last, n) for first, last in own)
    return {home: sorted(homes[home]) for home in sorted(homes)}


def holes(runs: Mapping[str, Runs], order: Sequence[str]) -> dict[tuple[Home, Run], str]:
    """A sentence for each hole between the last offset of one file and the first of the next file."""
    said: dict[tuple[Home, Run], str] = {}
    for (topic, partition), held in _by_home(runs, order).items():
        spans: dict[int, Run] = {}
        ends: dict[int, int] = {}
        begins: dict[int, int] = {}
        for first, last, n in held:
            spans[n] = spans.get(n, (first, last))[0], max(last, spans.get(n, (0, last))[1])
            ends[last], begins[first] = min(n, ends.get(last, n)), min(n, begins.get(first, n))
        starts = sorted(spans.values())
        reach = list(accumulate((last for _, last in starts), max))
        for (_, last), (first, _) in pairwise(united(run[:2] for run in held)):
            one_recording = reach[bisect_right(starts, last, key=itemgetter(0)) - 1] >= first
            if one_recording or is_in_file(last):
                continue  # of its hole the log itself speaks; places in files of a storage folder count no messages
            names = {"earlier": Path(order[ends[last]]).name, "later": Path(order[begins[first]]).name}
            said[(topic, partition), (last + 1, first - 1)] = _BETWEEN.format(
                partition=partition, topic=topic, first=last + 1, last=first - 1, **names
            )
    return said


Skips = Mapping[str, Runs]
"""Of each file the messages that an earlier one holds."""


def without(messages: pa.RecordBatch, skips: Runs) -> pa.RecordBatch:
    """The messages of a file without an earlier one's."""
    keep = np.ones(messages.num_rows, bool)
    for home, runs in skips.items():
        keep &= ~_within(messages, home, runs)
    return messages if keep.all() else messages.filter(pa.array(keep))


def _within(messages: pa.RecordBatch, home: Home, runs: Sequence[Run]) -> np.ndarray:
    topic, partition = home
    here = pc.and_(pc.equal(messages.column("topic"), topic), pc.equal(messages.column("partition"), partition))
    offset = pc.fill_null(messages.column("offset"), -1).to_numpy()
    at = np.searchsorted(np.array([first for first, _ in runs]), offset, side="right") - 1
    inside: np.ndarray = (at >= 0) & (offset <= np.array([last for _, last in runs])[np.maximum(at, 0)])
    found: np.ndarray = inside & pc.fill_null(here, False).to_numpy(zero_copy_only=False)
    return found


def numbered(of: Sequence[SharedStretch]) -> dict[str, list[tuple[int, SharedStretch]]]:
    """The stretches that concern a file, with their numbers."""
    found: dict[str, list[tuple[int, SharedStretch]]] = {}
    for n, stretch in enumerate(of):
        for file in (stretch.later, *stretch.earlier):
            found.setdefault(file, []).append((n, stretch))
    return found


def digests(
    file: str, messages: pa.RecordBatch, of: Mapping[str, Sequence[tuple[int, SharedStretch]]], skips: Skips
) -> Iterator[tuple[int, int, int]]:
    """Number of a stretch, 1 for what counts or 0 for what is left out, and a sum over the messages' bytes.

    A repeated message counts once where both are in one batch.
    ``of`` is what :func:`numbered` gives.
    """
    known: dict[tuple[Home, Run, bool], int | None] = {}
    for n, stretch in of.get(file, ()):
        counts = file != stretch.later
        what = stretch.home, stretch.run, counts
        if what not in known:  # copies of a file have all the same in common with it
            known[what] = _sum(messages, stretch, skips.get(file, {}) if counts else {})
        if (found := known[what]) is not None:
            yield n, int(counts), found


def _sum(messages: pa.RecordBatch, stretch: SharedStretch, skips: Runs) -> int | None:
    """The messages of a stretch without those left out; None if there are none."""
    here = _within(messages, stretch.home, [stretch.run])
    if stretch.home in skips:
        here &= ~_within(messages, stretch.home, skips[stretch.home])
    if not here.any():
        return None
    some = messages.filter(pa.array(here))
    each = map(_digest, *(some.column(c).to_pylist() for c in ("offset", "key", "value")))
    return sum(digest for _, digest in set(each))  # what a recording wrote down twice is one message of the topic


def _digest(offset: int, key: bytes | None, value: bytes | None) -> tuple[int, int]:
    head = b"%d,%d,%d;" % (offset, -1 if key is None else len(key), -1 if value is None else len(value))
    return offset, zlib.crc32(value or b"", zlib.crc32(key or b"", zlib.crc32(head)))


@dataclass(frozen=True, slots=True)
class Overlaps:
    """What the files of one folder hold twice, and what none of them holds."""

    skips: Skips  # what is left out of each file when it is read
    sentences: tuple[str, ...] = ()  # its sentences
    between: frozenset[tuple[Home, Run]] = frozenset()  # offsets that are missing between files
    # Offsets at which two files have different messages, reported in a sentence.
    differ: Mapping[Home, Sequence[Run]] = field(default_factory=dict)


Compare = Callable[[Sequence[SharedStretch], Skips], Iterable[tuple[int, int, int]]]
"""Reads the files again: the rows of :func:`digests` of all of them."""


def overlaps_of(runs: Mapping[str, Runs], order: Sequence[str], compare: Compare) -> Overlaps:
    """Repeats in the files; messages that differ at the same offsets are no repetition, and all stay."""
    found = stretches(runs, order)
    between, skips = holes(runs, order), _skips_of(found)
    said, others = [*between.values()], dict[Home, list[Run]]()
    if found:
        sums = np.zeros((len(found), 2), object)
        for n, counts, digest in compare(found, skips):
            sums[n, counts] += digest
        same, differ = ([s for s, (left, kept) in zip(found, sums, strict=True) if (left == kept) is equal]
                        for equal in (True, False))  # fmt: skip
        said += [*_sentences(same, _TWICE), *_sentences(differ, _DIFFER)]
        skips = _skips_of(same)
        for s in differ:
            others.setdefault(s.home, []).append(s.run)
    more = len(said) - 2 * _SAID
    if more > 0:  # they come last, and may not be listed
        said, others = [*said[: 2 * _SAID], _MORE.format(n=more)], {}
    return Overlaps(
        skips, tuple(said), frozenset(between), differ={home: united(runs) for home, runs in others.items()}
    )


def _skips_of(found: Iterable[SharedStretch]) -> dict[str, Runs]:
    skips: dict[str, Runs] = {}
    for s in found:
        skips.setdefault(s.later, {}).setdefault(s.home, []).append(s.run)
    return skips


def _sentences(found: Sequence[SharedStretch], words: str) -> list[str]:
    """One for each file that repeats others."""
    said: list[str] = []
    for later, of in groupby(found, attrgetter("later")):
        own = list(of)
        earlier = list(dict.fromkeys(Path(f).name for s in own for f in s.earlier))
        n = sum(s.run[1] - s.run[0] + 1 for s in own)
        where = [f"partition {s.home[1]} of {s.home[0]}, offsets {s.run[0]} to {s.run[1]}" for s in own[:_SAID]]
        where += ["and more"] if len(own) > _SAID else []
        names = ", ".join(earlier[:_SAID]) + (", .." if len(earlier) > _SAID else "")
        s = "s" if len(earlier) == 1 else ""
        said.append(words.format(later=Path(later).name, n=n, earlier=names, s=s, where="; ".join(where)))
    return said
