"""What a log promises of its rows: per event the highest watermark and the newest DDL before it, and the Admin events.

Every task that judges rows gets all :class:`Promises` in full: 56 bytes for a watermark that
exceeds those before it, in a partition with rows. A hundred partitions with one a second for a day are 480 MB a task.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from ticdc_lab.audit.filtered import LeftOut
from ticdc_lab.audit.old_values import OffStretch, OldValues
from ticdc_lab.engine.shuffle import Batches, in_one, is_sent
from ticdc_lab.errors import ContractError
from ticdc_lab.events import is_first, is_in_file
from ticdc_lab.events.arrays import NO_TS, Bools, Ints, changes_in, runs
from ticdc_lab.events.sample import Sample
from ticdc_lab.facts import LogFacts, log_facts
from ticdc_lab.facts.gathering import ARROW
from ticdc_lab.facts.known import LostFiles, LostSchema
from ticdc_lab.facts.limits import (
    DDL_IN_PARTITION_0_ONLY,
    absent_partitions,
    first_offsets,
    firsts_of,
    gaps_between,
)
from ticdc_lab.settings import UNKNOWN, Settings

NAMES = ("schema_name", "table_name")

Event = dict[str, Any]
Facts = list[Event]
Place = tuple[str, int]
"""A topic and partition."""

_LARGE = 2**62
"""Offsets beyond this, times the number of groups, are renumbered, so that a group and an offset fit one number."""


def log_marks(
    events: DataFrame, *, protocol: str, sample: Sample | None = None, known: LogFacts | None = None,
    settings: Settings = UNKNOWN, stretches: tuple[OffStretch, ...] | None = None,
) -> DataFrame:  # fmt: skip
    """What a whole log states besides its rows, in one row of two pickles (binary): ``facts``, a :class:`LogFacts`, and
    ``promises``, the :class:`Promises` that follow. ``known`` has the first offsets and missing files,
    where events do not show them.
    """
    firsts, lost_files, lost_schemas = (known.firsts, known.lost_files, known.lost_schemas) if known else ({}, (), ())

    def pickled(batches: Batches) -> Batches:
        facts = LogFacts.read(pa.Table.from_batches(batches, schema=ARROW), firsts=firsts).without_offsets_of(sample)
        facts = replace(facts, lost_files=lost_files, lost_schemas=lost_schemas)
        promises = Promises.read(facts, protocol=protocol, settings=settings, stretches=stretches)
        both = [pickle.dumps(value, protocol=5) for value in (facts, promises)]
        yield pa.RecordBatch.from_arrays([pa.array([v], pa.binary()) for v in both], ["facts", "promises"])

    return in_one(log_facts(events), pickled, "facts binary, promises binary")


def promises_of(
    facts: LogFacts, events: Callable[[], DataFrame], *, protocol: str, sample: Sample | None = None,
    settings: Settings = UNKNOWN, stretches: tuple[OffStretch, ...] | None = None, here: bool = False,
) -> DataFrame | pa.Table:  # fmt: skip
    """The ``promises`` of :func:`log_marks` where facts are known; very many are gathered where they are needed.

    ``here``: this process needs them, so that they go nowhere.
    """
    read = Promises.read(facts, protocol=protocol, settings=settings, stretches=stretches)
    told = pickle.dumps(read, protocol=5)
    known = pa.table({"promises": pa.array([told], pa.binary())})
    if here or is_sent(known, lambda: events().sparkSession):
        return known
    marks = log_marks(events(), protocol=protocol, sample=sample, known=facts, settings=settings, stretches=stretches)
    return marks.select("promises")


_BLOCKS = 4
"""Into how many blocks of offsets a mark's stretch is cut on average, at most, for :meth:`Marks.bound`."""


@dataclass(frozen=True, slots=True)
class _Bounds:
    """By group and block of offsets the newest mark before the block's end; the first block lies before all marks."""

    low: Ints
    n_blocks: Ints
    first: Ints
    shift: int
    ts: Ints


@dataclass(frozen=True)
class Marks:
    """Watermarks or DDL in order of group, offset and seq; in a group each exceeds all before it."""

    group: Ints
    offset: Ints
    seq: Ints
    ts: Ints

    @classmethod
    def rising(cls, group: Ints, offset: Ints, seq: Ints, ts: Ints) -> Self:
        """Those that exceed all before them: a row is compared with the last mark before it."""
        order = np.lexsort((ts, seq, offset, group))
        group, offset, seq, ts = (a[order] for a in (group, offset, seq, ts))
        keep = np.zeros(len(ts), dtype=bool)
        for part in runs(group):
            own = ts[part]
            keep[part] = np.append(True, own[1:] > np.maximum.accumulate(own)[:-1])
        return cls(group[keep], offset[keep], seq[keep], ts[keep])

    def last_before(self, group: Ints, offset: Ints, seq: Ints) -> Ints:
        """Index of the last mark before each event in its group, or -1."""
        if not len(self.ts) or not len(group):
            return np.full(len(group), -1)
        keys, span, known = self._keys
        own = offset if known is None else _ranked(offset, known)
        wanted = np.minimum(group, self.group[-1] + 1) * span + np.minimum(own, span - 1)
        at = np.searchsorted(keys, wanted)
        while (same := self._same_message(keys, at, wanted, seq)).any():
            at = at + same
        return np.where((at > 0) & (self.group[at - 1] == group), at - 1, -1)

    @cached_property
    def _keys(self) -> tuple[Ints, int, Ints | None]:
        """A rising number of each from its group and offset; how far the numbers of two groups lie apart; and all
        offsets if they are so large that their ranks take their place.
        """
        own, span, known = self.offset, int(self.offset.max()) + 2, None
        if span > _LARGE // (int(self.group[-1]) + 2):
            known = np.unique(self.offset)
            own, span = _ranked(self.offset, known), 2 * len(known) + 2
        return self.group * span + own, span, known

    def bound(self, group: Ints, offset: Ints) -> Ints:
        """A bound that no mark before an event in its group exceeds: enough for most events, and cheap."""
        bounds = self._bounds
        own = np.minimum(group, len(bounds.low) - 1)
        block = np.clip((offset - bounds.low[own]) >> bounds.shift, -1, bounds.n_blocks[own] - 1)
        block += bounds.first[own] + 1
        found: Ints = bounds.ts[block]
        return found

    @cached_property
    def _bounds(self) -> _Bounds:
        groups = np.arange(int(self.group[-1]) + 2)  # the last one is for all without marks
        begin, end = (np.searchsorted(self.group, groups, side=side) for side in ("left", "right"))
        there = end > begin
        low = np.where(there, self.offset[np.minimum(begin, len(self.ts) - 1)], 0)
        span = np.where(there, self.offset[end - 1] - low, 0)
        shift = (sum(span.tolist()) // (_BLOCKS * len(self.ts))).bit_length()
        n_blocks = np.where(there, (span >> shift) + 1, 0)
        first = np.cumsum(n_blocks + 1) - (n_blocks + 1)
        of = np.repeat(groups, n_blocks)
        block = np.arange(len(of)) - np.repeat(np.cumsum(n_blocks) - n_blocks, n_blocks)
        ts = np.full(len(groups) + len(of), NO_TS)
        is_last = block == n_blocks[of] - 1  # its end may lie beyond all numbers
        ends = low[of] + (np.where(is_last, 0, block + 1) << shift)
        newest = np.where(is_last, end[of] - 1, self.last_before(of, ends, np.zeros_like(of)))
        ts[first[of] + 1 + block] = self.ts[newest]
        return _Bounds(low, n_blocks, first, shift, ts)

    def _same_message(self, keys: Ints, at: Ints, wanted: Ints, seq: Ints) -> Bools:
        """Whether the next mark is of the event's own message, but earlier in it."""
        i = np.minimum(at, len(keys) - 1)
        same: Bools = (at < len(keys)) & (keys[i] == wanted) & (self.seq[i] < seq)
        return same


@dataclass(frozen=True, slots=True)
class Eras:
    """Admin events by home. What stands between two of a topic is an era, in which one number of partitions counts."""

    marks: Marks
    """``ts`` is the era that each begins."""
    count: Ints
    """Partitions from then on."""

    @classmethod
    def read(cls, facts: LogFacts, homes: dict[tuple[str, int], int]) -> Self:
        """The same of partitions with rows."""
        found = [
            (homes[place], e["offset"], e["seq"], e["era"], e["partition_count"])
            for place, own in admin_events(facts).items()
            if place in homes
            for e in own
        ]
        group, offset, seq, era, count = np.array(sorted(found), dtype=np.int64).reshape(-1, 5).T
        return cls(Marks(group, offset, seq, era), count)

    def of(self, home: Ints, offset: Ints, seq: Ints) -> tuple[Ints, Ints]:
        """Era of each event, and the partitions that count in it; -1 without an Admin event."""
        at = self.marks.last_before(home, offset, seq)
        if not len(self.count):
            return np.zeros(len(home), dtype=np.int64), at
        return np.where(at >= 0, self.marks.ts[at], 0), np.where(at >= 0, self.count[at], -1)


_ALWAYS = np.iinfo(np.int64).max
BEGIN, END = -1, np.iinfo(np.int64).max
"""Before and behind all offsets."""


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """By group, stretches that were not recorded in full: what is ``above`` a commit_ts may have been sent there,
    but nothing that was sent behind a watermark greater than ``until``.
    """

    above: dict[int, Ints]
    """Rising."""
    until: dict[int, Ints]
    """The greatest so far."""

    @classmethod
    def read(cls, stretches: Iterable[tuple[int, Ints]]) -> Self:
        """From groups, ``above`` and ``until``, in any order."""
        parts = [np.insert(own, 0, group, axis=1).T for group, own in stretches]
        whole = np.concatenate([*parts, np.empty((3, 0), dtype=np.int64)], axis=1)
        group, above, until = whole[:, np.lexsort(whole[::-1])]
        each = {int(group[part.start]): part for part in runs(group)} if len(group) else {}
        return cls(
            {g: above[part] for g, part in each.items()},
            {g: np.maximum.accumulate(until[part]) for g, part in each.items()},
        )

    def between(self, group: Ints, low: Ints, high: Ints) -> Bools:
        """Whether what was sent behind a watermark (NO_TS: none) with a commit_ts below another may lie in one."""
        found = np.zeros(len(group), dtype=bool)
        for g in np.unique(group).tolist():
            if g in self.above:
                own = group == g
                n = np.searchsorted(self.above[g], high[own])
                found[own] = (n > 0) & (self.until[g][np.maximum(n, 1) - 1] >= low[own])
        return found


@dataclass(frozen=True, slots=True)
class Recorded:
    """Which part of its topic was recorded, by place. The owner broadcasts one watermark after the other: what lies
    behind one was sent after the one below it had reached every partition, and nothing up to one follows it.
    """

    topic: Ints
    """Number of the topic."""
    rows: Unrecorded
    """By topic, of all partitions: before their first messages, in gaps, above their watermarks."""
    ddl_topic: Ints
    """Number of the topic to whose partition 0 the DDL of its table go; -1 where they come in its own partition."""
    ddl: Unrecorded
    """By topic, of DDL in partition 0."""
    is_part: Bools
    """Partitions of its topic are missing, so their number is unknown."""
    is_late: Bools
    """Its own partition was recorded only from later on."""
    lacked: dict[int, tuple[Ints, Ints]]
    """By home, the first of each gap, with the one behind its last offset, and the greatest
    watermark before.
    """
    lost_files: dict[int, tuple[LostFiles, ...]]
    """By home the data files that a storage sink misses; files of partitions without rows by -1."""

    @classmethod
    def read(cls, facts: LogFacts, places: Facts, homes: dict[Place, int], ddl: Facts, *, protocol: str) -> Self:
        """The same of places with a topic and a partition."""
        extents = _extents_of_homes(facts, ddl)
        topics = {topic: i for i, topic in enumerate(dict.fromkeys(topic for topic, _ in extents))}
        # without watermarks, which go to all of them, a partition that is not there may just be empty
        marked = {facts.homes[home][0] for home in np.unique(facts.watermarks.home).tolist()}
        parts = {topic for topic in absent_partitions(facts.homes) if topic in marked}
        stretches = [(topics[topic], e.stretches()) for (topic, _), e in extents.items()]
        stretches += [(topics[topic], np.array([[NO_TS, _ALWAYS]])) for topic in parts]
        far = protocol in DDL_IN_PARTITION_0_ONLY
        lost = dict[int, tuple[LostFiles, ...]]()
        for of in facts.lost_files:
            home = homes.get((of.topic, of.partition), -1)
            lost[home] = (*lost.get(home, ()), of)
        zeroth = [(i, extents.get((topic, 0), _Extent(_ALWAYS, _ALWAYS, NO_TS))) for topic, i in topics.items()]
        return cls(
            topic=_ints(topics[p["topic"]] for p in places),
            rows=Unrecorded.read(stretches),
            ddl_topic=_ints(topics[p["topic"]] if far and p["partition"] != 0 else -1 for p in places),
            ddl=Unrecorded.read((i, e.ddl_stretches()) for i, e in zeroth),
            is_part=np.array([p["topic"] in parts for p in places], dtype=bool),
            is_late=np.array([extents[p["topic"], p["partition"]].since != NO_TS for p in places], dtype=bool),
            lacked={homes[home]: e.lacked_to_the_end() for home, e in extents.items() if home in homes},
            lost_files=lost,
        )

    def all_between(self, place: Ints, mark: Ints, high: Ints) -> Bools:
        """Whether all partitions were recorded from behind a watermark (NO_TS: none) on to a commit_ts."""
        return ~self.rows.between(self.topic[place], mark, high)

    def ddl_between(self, place: Ints, low: Ints, high: Ints) -> Bools:
        """Whether no DDL of the table between two commit_ts can be one that was not recorded."""
        return ~self.ddl.between(self.ddl_topic[place], low, high)

    def files_between(self, home: Ints, low: Ints, high: Ints) -> list[str]:
        """The missing data files of each home between two offsets, or else all that are missing, in words."""
        every = [of for _, own in sorted(self.lost_files.items()) for of in own]
        return [
            _named([of for of in self.lost_files.get(h, ()) if first < of.offset < last] or every)
            for h, first, last in zip(home.tolist(), low.tolist(), high.tolist(), strict=True)
        ]

    def lacks(self, home: Ints, low: Ints, high: Ints, *, below: Ints) -> Bools:
        """Whether a partition has a gap between two offsets that may hide a commit_ts below another."""
        found = np.zeros(len(home), dtype=bool)
        for h in set(np.unique(home).tolist()) & self.lacked.keys():
            own, (first, above) = home == h, self.lacked[h]
            # watermarks rise: of those behind an offset the first may hold most
            at = np.searchsorted(first, low[own])
            found[own] = (np.append(first, END)[at] < high[own]) & (np.append(above, _ALWAYS)[at] < below[own])
        return found


def _named(lost: Sequence[LostFiles]) -> str:
    n = sum(of.n for of in lost)
    if n == 1:
        return f"{lost[0].path}, which {'could not be read in full' if lost[0].is_there else 'is missing'}"
    return (
        f"{lost[0].path} or {n - 1} more {'missing or damaged' if any(of.is_there for of in lost) else 'missing'} files"
    )


def no_ints() -> Ints:
    """No numbers."""
    return np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class _Extent:
    """What was recorded of a partition: behind its first watermark, its DDL from the first or that watermark on, up to
    its greatest watermark, without its gaps. NO_TS for the first two where it begins with its first
    message.
    """

    since: int = NO_TS
    ddl_since: int = _ALWAYS
    until: int = NO_TS
    stated: int = NO_TS
    """Its greatest watermark."""
    lacked: Ints = field(default_factory=no_ints)
    """The first offset of each gap."""
    above: Ints = field(default_factory=no_ints)
    """The greatest watermark before each, NO_TS for none: all that was sent there is above."""
    below: Ints = field(default_factory=no_ints)
    """The first watermark behind each, _ALWAYS for none."""

    def stretches(self) -> Ints:
        """As of :class:`Unrecorded`: ``above`` and ``until`` of each."""
        return self._with_edges(self.since, self.above)

    def ddl_stretches(self) -> Ints:
        """The same of its DDL: one is sent where the watermark is its commit_ts; the first that is there is known."""
        since = self.ddl_since - 1 if self.ddl_since != NO_TS else NO_TS
        return self._with_edges(since, np.maximum(self.above, NO_TS + 1) - 1)

    def lacked_to_the_end(self) -> tuple[Ints, Ints]:
        """As of :class:`Recorded`."""
        return np.append(self.lacked, END - 1), np.append(self.above, self.stated)

    def _with_edges(self, since: int, above: Ints) -> Ints:
        edges = [(NO_TS, since)] if since != NO_TS else []
        edges += [(self.until, _ALWAYS)] if self.until != _ALWAYS else []
        new = changes_in(above, self.below)  # many offsets are missing between two watermarks
        between = np.stack([above[new], self.below[new]], axis=1)
        return np.concatenate([np.array(edges, dtype=np.int64).reshape(-1, 2), between])


def _extents_of_homes(facts: LogFacts, ddl: Facts) -> dict[Place, _Extent]:
    """One of each partition."""
    firsts, lacked = first_offsets(facts), lacked_offsets(facts)
    found = {home: _Extent() for home in facts.homes}
    for p in facts.places.select(["topic", "partition", "commit_ts", "last_ts"]).to_pylist():
        if p["commit_ts"] is not None:
            extent = found[p["topic"], p["partition"]]
            extent.until = max(extent.until, p["last_ts"])
    of_home, marks = ddl_by_home(ddl), facts.watermarks
    for (home, extent), own in zip(found.items(), marks.parts(), strict=True):
        ts = marks.ts[own]
        if is_first(firsts[home]):
            extent.ddl_since = NO_TS
        else:
            extent.since = int(ts[0]) if len(ts) else _ALWAYS
            # rows come in no order of commit_ts, so the first of them proves nothing
            extent.ddl_since = min([extent.since, *(int(d["commit_ts"]) for d in of_home.get(home, [])[:1])])
        # without a watermark nothing is promised: up to its last event it is taken as whole
        extent.stated = int(ts.max(initial=NO_TS))
        extent.until = extent.stated if len(ts) else extent.until if extent.until != NO_TS else _ALWAYS
        if home in lacked:
            extent.lacked = lacked[home][0]
            extent.above, extent.below = stated_around(extent.lacked, marks.offset[own], ts)
    return found


Lacked = tuple[Ints, Ints, bool]
"""The first and the last offset of each gap of a partition, and whether its offsets count messages."""


def lacked_offsets(facts: LogFacts) -> dict[Place, Lacked]:
    """Gaps of each partition with an event, from its first message on; of storage files those that are missing."""
    each, homes = gaps_between(facts.offsets, facts.counted), set(facts.homes)  # a sample may hold no event of one
    found = {h: (first, last, n) for h, first, last, n in each if h in homes and not is_in_file(int(first[0]))}
    held = firsts_of(facts.offsets) | {home: of.first for home, of in facts.counted.items()}
    for home, offset in first_offsets(facts).items():
        if offset < held.get(home, offset):  # messages that could not be decoded
            first, last, counts = found.get(home, (no_ints(), no_ints(), True))
            found[home] = np.append(offset, first), np.append(held[home] - 1, last), counts
    for home in {(of.topic, of.partition) for of in facts.lost_files} & homes:
        at = np.array(sorted({of.offset for of in facts.lost_files if (of.topic, of.partition) == home}))
        found[home] = at, at, False
    return found


def stated_around(first: Ints, offset: Ints, ts: Ints) -> tuple[Ints, Ints]:
    """The greatest watermark before a gap, and the first behind; NO_TS and _ALWAYS for none."""
    at, highest = np.searchsorted(offset, first), np.maximum.accumulate(ts)
    return np.append(NO_TS, highest)[at], np.append(highest, _ALWAYS)[at]


@dataclass(frozen=True, slots=True)
class Promises:
    """All places of a log with their names, and what binds the rows of each."""

    place: Ints
    topic: list[str]
    partition: Ints
    schema_name: list[str]
    table_name: list[str]
    home: Ints
    """Per place the number of its topic and partition."""
    resolved: Marks
    """By home."""
    ddl: Marks
    """By place, as an index."""
    ddl_again: Ints
    """Where each of these was delivered for the last time: its offset."""
    eras: Eras
    """By home."""
    recorded: Recorded
    """By place."""
    table: Ints
    """Per place the number of its schema and table."""
    table_ddl: dict[int, Ints]
    """By table the commit_ts of the DDL that block it, in order."""
    old_values: OldValues
    left_out: Ints
    """Per place what the changefeed's filters may leave out: a bit for each of :data:`ticdc_lab.audit.filtered.OPS`."""
    filters_known: bool
    """Whether the changefeed's filters are known."""

    def prepare(self) -> None:
        """Make here what each task would look up, and would make itself: it goes with the marks."""
        for marks in (self.resolved, self.ddl):
            if len(marks.ts):
                _ = marks._bounds

    def altered(self, place: Ints, low: Ints, high: Ints) -> Bools:
        """Whether a DDL blocks the table of a place (an index) between two commit_ts, both included."""
        out = np.zeros(len(place), dtype=bool)
        tables = self.table[place]
        for table in np.unique(tables):
            own, ddl = tables == table, self.table_ddl.get(int(table), np.empty(0, dtype=np.int64))
            out[own] = np.searchsorted(ddl, high[own], side="right") > np.searchsorted(ddl, low[own])
        return out

    @classmethod
    def read(
        cls, facts: LogFacts, *, protocol: str, settings: Settings = UNKNOWN,
        stretches: tuple[OffStretch, ...] | None = None,
    ) -> Self:  # fmt: skip
        """Gather them from the log's facts, and what is known of the changefeed's settings.

        ``stretches`` is where updates have no image before them, if that was determined.
        """
        require_partitions(facts)
        places: Facts = _extents(facts.of_kind("row")).sort_by("place").to_pylist()
        homes = {(p["topic"], p["partition"]): 0 for p in places}
        homes = {home: i for i, home in enumerate(homes)}
        ddl: Facts = dated_ddl(facts)
        marks, again = _ddl(ddl, places)
        names = [(p["schema_name"], p["table_name"]) for p in places]
        tables = {name: i for i, name in enumerate(dict.fromkeys(names))}
        left_out = LeftOut.read(settings)
        return cls(
            place=_ints(p["place"] for p in places),
            topic=[p["topic"] for p in places],
            partition=_ints(p["partition"] for p in places),
            schema_name=[p["schema_name"] for p in places],
            table_name=[p["table_name"] for p in places],
            home=_ints(homes[p["topic"], p["partition"]] for p in places),
            resolved=_resolved(facts, homes),
            ddl=marks,
            ddl_again=again,
            eras=Eras.read(facts, homes),
            recorded=Recorded.read(facts, places, homes, ddl, protocol=protocol),
            table=_ints(tables[name] for name in names),
            table_ddl=_table_ddl(ddl, facts.lost_schemas, tables),
            old_values=OldValues.read(facts, protocol=protocol, settings=settings, stretches=stretches),
            left_out=_ints(left_out.bits(names)),
            filters_known=left_out.known,
        )


def require_partitions(facts: LogFacts) -> None:
    """Raise :class:`ContractError` if an event lies in none."""
    if any(partition is None for _, partition in facts.homes):
        raise ContractError(
            "Some events have no partition; expected one for each, as what TiCDC guarantees is the order in each.",
            hint="Fill `partition`: 0 where the log has but one.",
        )


def dated_ddl(facts: LogFacts) -> Facts:
    """The DDL that have a commit_ts."""
    found: Facts = facts.ddl.filter(pc.is_valid(facts.ddl["commit_ts"])).to_pylist()
    return found


def ddl_by_home(ddl: Facts) -> dict[tuple[str, int], Facts]:
    """The same of each topic and partition, in order of their offsets."""
    found: dict[tuple[str, int], Facts] = {}
    for d in sorted(ddl, key=offset_of):
        found.setdefault((d["topic"], d["partition"]), []).append(d)
    return found


def offset_of(event: Event) -> int:
    """Its offset; what has none comes before all others."""
    return -1 if event["offset"] is None else int(event["offset"])


def _extents(places: pa.Table) -> pa.Table:
    """One row per topic, partition, schema and table: where and when it begins and ends."""
    names = ["topic", "partition", *NAMES, "place"]
    found = places.group_by(names).aggregate([("offset", "min"), ("commit_ts", "min"), ("last_ts", "max")])
    return found.rename_columns({"offset_min": "offset", "commit_ts_min": "commit_ts", "last_ts_max": "last_ts"})


def admin_events(facts: LogFacts) -> dict[tuple[str, int], Facts]:
    """Admin events of each topic and partition in order, with the ``era`` (from 1) that each begins.

    A partition does not have all of its topic's: only from a time in which it counted before or counts after. What
    the partition with most of them shows which.
    """
    first: dict[tuple[str, int], int] = {}
    for p in facts.places.select(["topic", "partition", "offset"]).to_pylist() if facts.admin.num_rows else ():
        place = (p["topic"], p["partition"])
        first[place] = min(first.get(place, offset_of(p)), offset_of(p))
    found: dict[tuple[str, int], Facts] = {}
    for e in facts.admin.to_pylist():
        own = e | {"partition_count": e["partition_count"] or 0, "offset": offset_of(e)}
        found.setdefault((e["topic"], e["partition"]), []).append(own)
    for topic in {t for t, _ in found}:
        said = [e["partition_count"] for e in max((own for (t, _), own in found.items() if t == topic), key=len)]
        for (t, partition), own in found.items():
            if t == topic:
                old = first[t, partition] < own[0]["offset"]
                due = [j for j, n in enumerate(said) if partition < n or (partition < said[j - 1] if j else old)]
                for era, e in zip([*due, *range(len(said), len(said) + len(own))], own, strict=False):
                    e["era"] = era + 1
    return found


def _ranked(offset: Ints, known: Ints) -> Ints:
    """Small numbers in the order of the offsets, equal to a known one's where the offset is; ``known`` rise."""
    at = np.searchsorted(known, offset)
    ranks: Ints = 2 * at + (known[np.minimum(at, len(known) - 1)] == offset)
    return ranks


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def _resolved(facts: LogFacts, homes: dict[tuple[str, int], int]) -> Marks:
    """The watermarks of partitions that hold rows."""
    marks = facts.watermarks
    home = np.array([homes.get(home, -1) for home in facts.homes], dtype=np.int64)[marks.home]
    own = home >= 0
    return Marks.rising(home[own], marks.offset[own], marks.seq[own], marks.ts[own])


def _ddl(ddl: Facts, places: Facts) -> tuple[Marks, Ints]:
    """Per place the DDL that block its table, and the offset at which each was delivered for the last time."""
    within: dict[tuple[Any, ...], dict[str, int]] = {}
    for i, p in enumerate(places):
        within.setdefault((p["topic"], p["partition"], p["schema_name"]), {})[p["table_name"]] = i
    found = [
        (i, offset_of(d), d["seq"], d["commit_ts"])
        for d in ddl
        for b in d["blocked"]
        if b["schema"] is not None
        for tables in [within.get((d["topic"], d["partition"], b["schema"]), {})]
        for i in (tables.values() if b["table"] is None else [tables[b["table"]]] if b["table"] in tables else [])
    ]
    marks = Marks.rising(*np.array(found, dtype=np.int64).reshape(-1, 4).T)
    last = {(place, ts): offset for place, offset, _, ts in sorted(found)}
    return marks, _ints(last[one] for one in zip(marks.group.tolist(), marks.ts.tolist(), strict=True))


def _table_ddl(
    ddl: Facts, lost: Iterable[LostSchema], tables: dict[tuple[str, str], int]
) -> dict[int, Ints]:  # fmt: skip
    """By table the commit_ts of DDL that block it, in order; of those in schema files that are ``lost``, too."""
    found: dict[int, set[int]] = {}
    each = {(d["commit_ts"], b["schema"], b["table"]) for d in ddl for b in d["blocked"]}
    for ts, schema, name in each | {(of.version, of.schema, of.table) for of in lost}:
        named = [tables.get((schema, name))] if name is not None else [i for t, i in tables.items() if t[0] == schema]
        for i in named:
            if i is not None:
                found.setdefault(i, set()).add(ts)
    return {i: _ints(sorted(of)) for i, of in found.items()}
