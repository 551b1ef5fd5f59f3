"""Guarantees about watermarks, DDL and Admin events, which TiCDC's owner broadcasts, and about offsets.

Each is a function of what a log states besides its rows (:class:`Stated`) that gives its findings, one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np

from ticdc_lab.audit.findings import ERROR, WARNING, Event
from ticdc_lab.audit.marks import Facts, Ints, admin_events, dated_ddl, numbers, runs
from ticdc_lab.events.tso import physical_ms
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.gathering import IN_CHUNK

DDL_IN_PARTITION_0_ONLY = frozenset({"canal-json", "canal", "csv"})
"""Protocols that send a DDL to partition 0 by design (TiCDC's source); a storage folder's schema files too
(:mod:`ticdc_lab.sources.storage`)."""

_SHOWN = ("partition", "offset", "commit_ts")


def _none() -> Ints:
    return np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class Home:
    """A partition of the log: what its recording covers, and its watermarks in order."""

    topic: str
    partition: int
    first_offset: int | None = None
    first_ts: int | None = None
    last_ts: int | None = None
    offset: Ints = field(default_factory=_none)
    seq: Ints = field(default_factory=_none)
    ts: Ints = field(default_factory=_none)
    chunk: Ints = field(default_factory=_none)
    held: Ints = field(default_factory=_none)
    """Which offsets are there, from each of ``chunk`` on."""
    admin: list[Event] = field(default_factory=list)
    """Its Admin events in order."""

    @property
    def words(self) -> str:
        """What it is called."""
        return f"partition {self.partition} of topic {self.topic}"

    def era(self, offset: int) -> int:
        """In which era an offset lies; see :func:`ticdc_lab.audit.marks.admin_events`."""
        return max((int(e["era"]) for e in self.admin if e["offset"] < offset), default=0)

    def within(self, era: int) -> Home | None:
        """What stands of it in an era; None where it does not count."""
        if not self.admin:
            return self
        begins = [e for e in self.admin if e["era"] == era]
        if era and (not begins or self.partition >= begins[0]["partition_count"]):
            return None
        begin = begins[0]["offset"] if begins else self.first_offset
        end = min((e["offset"] for e in self.admin if e["era"] > era), default=np.iinfo(np.int64).max)
        if begin is None or begin >= end:
            return None
        own = (self.offset >= begin) & (self.offset < end)
        return replace(self, first_offset=begin, offset=self.offset[own], seq=self.seq[own], ts=self.ts[own])

    def cover(self, place: Event) -> None:
        """Take the extent of one of its places into account."""
        for name, value, best in (
            ("first_offset", place["offset"], min),
            ("first_ts", place["commit_ts"], min),
            ("last_ts", place["last_ts"], max),
        ):
            known = [v for v in (getattr(self, name), value) if v is not None]
            setattr(self, name, best(known, default=None))

    def covers(self, ddl: Event) -> bool:
        """Whether its recording reaches from before a DDL to behind it."""
        ts, first, offset, last = ddl["commit_ts"], self.first_ts, self.first_offset, self.last_ts
        later = bool(offset) and first is not None and first > ts
        return not (later or (last is not None and last < ts))

    def event(self, i: int) -> Event:
        """One of its watermarks."""
        return {"partition": self.partition, "offset": int(self.offset[i]), "commit_ts": int(self.ts[i])}


@dataclass(frozen=True, slots=True)
class Stated:
    """What a log states besides its rows."""

    homes: list[Home]
    ddl: Facts
    ddl_in_partition_0_only: bool

    @classmethod
    def read(cls, facts: LogFacts, *, protocol: str) -> Stated:
        """From the log's facts."""
        return cls(_homes(facts), dated_ddl(facts), protocol in DDL_IN_PARTITION_0_ONLY)

    @property
    def topics(self) -> dict[str, list[Home]]:
        """The partitions of each topic."""
        topics: dict[str, list[Home]] = {}
        for home in self.homes:
            topics.setdefault(home.topic, []).append(home)
        return topics


def _homes(facts: LogFacts) -> list[Home]:
    homes = {(topic, partition): Home(topic, partition) for topic, partition in facts.homes}
    for p in facts.places.to_pylist():
        homes[p["topic"], p["partition"]].cover(p)
    marks = facts.watermarks
    for home, own in zip(homes.values(), marks.parts(), strict=True):
        home.offset, home.seq, home.ts = marks.offset[own], marks.seq[own], marks.ts[own]
    of, chunk, held = facts.home_of(facts.offsets), *numbers(facts.offsets, "offset", "held")
    for number, home in enumerate(homes.values()):
        home.chunk, home.held = chunk[of == number], held[of == number]
    for place, admin in admin_events(facts).items():
        homes[place].admin = admin
    return list(homes.values())


def watermarks_are_monotone(log: Stated) -> Iterator[Event]:
    """MQ design, "CDC Owner 切换": a checkpoint_ts never falls back, so a partition's watermarks never do. Repeats are
    fine.
    """
    for home in log.homes:
        highest = np.maximum.accumulate(home.ts)
        holder = np.maximum.accumulate(np.where(home.ts == highest, np.arange(len(highest)), 0))
        for i in np.flatnonzero(home.ts < highest).tolist():
            here, high = home.event(i), home.event(int(holder[i]))
            by_s = (physical_ms(high["commit_ts"]) - physical_ms(here["commit_ts"])) / 1000
            message = f"the watermark falls back by {_decimal(by_s)} s from {high['commit_ts']}"
            yield _finding(ERROR, message, home.topic, [high, here], **here, seq=int(home.seq[i]))


def resolved_events_on_all_partitions(log: Stated) -> Iterator[Event]:
    """MQ design, constraint 2.4: resolved events are broadcast to all partitions of a topic.

    Errors: a partition without any watermark while another has one, and values that a partition lacks between its first
    and last. Warnings: a partition whose watermarks start later or end earlier than the topic's, as in a recording that
    was cut, and a topic without any. A partition without any event cannot be seen.
    """
    for homes in log.topics.values():
        yield from _gaps_by_era(homes)


def ddl_events_on_all_partitions(log: Stated) -> Iterator[Event]:
    """MQ design, constraint 2.4: DDL events are broadcast to all partitions; canal and canal-json send them to
    partition 0 only.

    A partition whose recorded events end before the DDL's commit_ts, or that was recorded only from later on, gives a
    warning instead of an error.
    """
    identity = ("topic", "commit_ts", "schema_name", "table_name", "query")
    homes, topics = {(h.topic, h.partition): h for h in log.homes}, log.topics
    each: dict[tuple[Any, ...], list[Event]] = {}
    for d in log.ddl:
        era = homes[d["topic"], d["partition"]].era(d["offset"])
        each.setdefault((era, *(d[c] for c in identity)), []).append(d)
    for (era, *_), same in each.items():
        witness = min(same, key=lambda d: (d["partition"], d["offset"]))
        seen = {d["partition"] for d in same}
        of = [h for h in (home.within(era) for home in topics[witness["topic"]]) if h is not None]
        only_0 = [h for h in of if h.partition == 0] or [Home(of[0].topic, 0)]
        for home in only_0 if log.ddl_in_partition_0_only else of:
            if home.partition not in seen:
                yield _lost_ddl(home, witness)


def _lost_ddl(home: Home, witness: Event) -> Event:
    covered = home.covers(witness)
    said = f"{home.words} lacks the DDL that partition {witness['partition']} holds: {_beginning(witness)}"
    where = {"table": _table(witness), "commit_ts": witness["commit_ts"], "partition": home.partition}
    if covered:
        return _finding(ERROR, said, home.topic, [witness], **where)
    return _finding(
        WARNING, f"{said} (the recording of that partition does not cover it)", home.topic, [witness], **where
    )


def ddl_events_are_in_time(log: Stated) -> Iterator[Event]:
    """MQ design, "CDC Owner 逻辑": a DDL is broadcast when the resolved_ts equals its FinishedTS.

    So none follows a watermark above it in its partition: a consumer has then applied rows of the new schema. A DDL
    that a restart sends again is a warning.
    """
    of, seen = {(h.topic, h.partition): h for h in log.homes}, set()
    for d in sorted(log.ddl, key=lambda d: (d["topic"], d["partition"], d["offset"], d["seq"])):
        home = of[d["topic"], d["partition"]]
        same = tuple(d[c] for c in ("topic", "partition", "commit_ts", "schema_name", "table_name", "query"))
        before = int(np.searchsorted(home.offset, d["offset"]))
        i = int(np.argmax(home.ts[:before])) if before else 0
        if before and home.ts[i] > d["commit_ts"]:
            mark, again = home.event(i), same in seen
            said = f"{'a DDL delivered again' if again else 'a DDL'} below resolved_ts {mark['commit_ts']} follows it"
            where = {c: d[c] for c in (*_SHOWN, "seq")}
            severity = WARNING if again else ERROR
            yield _finding(
                severity, f"{said}: {_beginning(d)}", home.topic, [mark, d], table=_table(d), **where
            )  # fmt: skip
        seen.add(same)


def offsets_are_contiguous(log: Stated) -> Iterator[Event]:
    """A broker gives each message of a partition the next offset, so a recording without holes lacks no message.

    A warning: compaction takes messages too, and what is in quarantine or was filtered out is not seen here. One
    finding a partition, at the message after the first hole; :func:`ticdc_lab.facts.limits.offset_gaps` lists all.
    Holes before the first message and after the last cannot be seen.
    """
    for hole in holes(log):
        home, low, high = hole.home, hole.low, hole.high
        message = (
            f"{home.words} lacks {hole.n} message(s) in {hole.stretches} stretch(es) of offsets, the first after "
            f"{low['offset']}: compacted, in quarantine, or lost"
        )
        yield _finding(WARNING, message, home.topic, [low, high], **high)


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets that a partition lacks: all of them, and the messages before and behind the first stretch."""

    home: Home
    n: int
    stretches: int
    low: Event
    high: Event


def holes(log: Stated) -> Iterator[Hole]:
    """Partitions that lack offsets between their first and their last.

    Not those that lack most: these do not count messages (:mod:`ticdc_lab.sources.storage`).
    """
    for home in log.homes:
        bits = np.unpackbits(home.held.astype("<i8").view(np.uint8), bitorder="little").reshape(-1, IN_CHUNK)
        chunk, at = np.nonzero(bits)
        offset = home.chunk[chunk] + at
        before = np.flatnonzero(np.diff(offset) > 1)
        lacking = int(offset[-1] - offset[0] + 1 - len(offset)) if len(offset) else 0
        if 0 < lacking <= len(offset):
            i = int(before[0])
            low, high = ({"partition": home.partition, "offset": int(o), "commit_ts": None} for o in offset[i : i + 2])
            yield Hole(home, lacking, len(before), low, high)


def admin_events_on_all_partitions(log: Stated) -> Iterator[Event]:
    """MQ design, "Partition 扩容与缩容": an Admin event is broadcast to all partitions, with the same number in each.

    All are those before it and those after it: a listener that never sees it waits for ever, or goes on without the
    others. The number of most partitions counts.
    """
    for homes in log.topics.values():
        known = {h.partition: h for h in homes}
        before = {h.partition for h in homes if h.within(0) is not None}
        for era in range(1, 1 + max((e["era"] for h in homes for e in h.admin), default=0)):
            stated = {h.partition: e for h in homes for e in h.admin if e["era"] == era}
            if not stated:  # the log begins or ends between Admin events of some partitions
                continue
            count, _ = min(Counter(e["partition_count"] for e in stated.values()).items(), key=lambda c: (-c[1], c[0]))
            first, witness = min((p, e) for p, e in stated.items() if e["partition_count"] == count)
            at = {"partition": first, "offset": witness["offset"], "commit_ts": None}
            right, topic = f"{count} partitions in partition {first}", witness["topic"]
            after = set(range(count))
            for p in sorted((before | after) - set(stated)):
                said = f"partition {p} of topic {topic} lacks the Admin event that says {right}"
                own = {"partition": p, "offset": known[p].first_offset if p in known else None}
                yield _finding(ERROR, said, topic, [at], **own)
            for p, e in sorted(stated.items()):
                if (n := e["partition_count"]) != count:
                    said = (
                        f"partition {p} of topic {topic} has an Admin event that says {n} partitions; it says {right}"
                    )
                    own = {"partition": p, "offset": e["offset"], "commit_ts": None}
                    yield _finding(ERROR, said, topic, [at, own], **own, seq=e["seq"])
            before = after


def _gaps_by_era(homes: list[Home]) -> Iterator[Event]:
    """The gaps between each two Admin events, where the partitions that count are the same."""
    if not any(len(h.ts) for h in homes) or not any(h.admin for h in homes):
        yield from _gaps(homes)
        return
    for era in range(1 + max(e["era"] for h in homes for e in h.admin)):
        within = [h for h in (home.within(era) for home in homes) if h is not None]
        if any(len(h.ts) for h in within):
            yield from _gaps(within)


def _gaps(homes: list[Home]) -> Iterator[Event]:
    """One per run of watermarks that a partition of the topic lacks, or one for the topic where nobody has any."""
    stated = [h for h in homes if len(h.ts)]
    if not stated:
        h = min(homes, key=lambda home: home.partition)
        least = {"partition": h.partition, "offset": h.first_offset, "commit_ts": h.first_ts}
        yield _finding(WARNING, f"no partition of topic {h.topic} states a watermark", h.topic, [least], **least)
        return
    values, witnesses = _first_of_each(stated)
    for home in homes:
        own, at = np.unique(home.ts, return_index=True)
        lacking = np.setdiff1d(values, own, assume_unique=True)
        upper = np.searchsorted(own, lacking)
        for run in runs(upper):
            first, after = int(lacking[run.start]), int(upper[run.start])
            several = f"{run.stop - run.start} watermark(s) from {first} to {int(lacking[run.stop - 1])}"
            following = home.event(int(at[after])) if after < len(own) else None
            shown = witnesses[int(np.searchsorted(values, first))].tolist()
            yield _gap(home, several, first, dict(zip(_SHOWN, shown, strict=True)), following)


def _gap(home: Home, several: str, first: int, witness: Event, following: Event | None) -> Event:
    """A run of watermarks that a partition lacks: all of them, those before its first, behind its last, or between."""
    where = {"partition": home.partition, "commit_ts": first, "offset": following["offset"] if following else None}
    if not len(home.ts):
        said, where = "has events but no watermark at all", where | {"offset": home.first_offset}
        return _finding(ERROR, f"{home.words} {said}", home.topic, [witness], **where)
    if following is not None and first > home.ts.min():
        said = f"lacks {several} that other partitions state"
        return _finding(ERROR, f"{home.words} {said}", home.topic, [witness, following], **where)
    said = f"starts after {several}: the recording of that partition may start later"
    if following is None:
        said = f"ends before {several}: the recording of that partition may end earlier"
    return _finding(WARNING, f"{home.words} {said}", home.topic, [witness], **where)


def _first_of_each(stated: list[Home]) -> tuple[Ints, Ints]:
    """The values that a topic's watermarks state, and the first event of each in the first partition that has it."""
    partition = np.concatenate([np.full(len(h.ts), h.partition) for h in stated])
    offset, ts = (np.concatenate([getattr(h, c) for h in stated]) for c in ("offset", "ts"))
    order = np.lexsort((offset, partition, ts))
    values, at = np.unique(ts[order], return_index=True)
    return values, np.stack([partition, offset, ts], axis=1)[order[at]]


def _finding(severity: str, message: str, topic: str, evidence: list[Event], **where: Any) -> Event:
    """A finding: ``where`` is its table, partition, offset, commit_ts and seq, what of that is known."""
    shown = [{c: e[c] for c in _SHOWN} for e in evidence]
    return {"severity": severity, "message": message, "topic": topic, "evidence": shown, **where}


def _table(ddl: Event) -> str:
    return ".".join(name for name in (ddl["schema_name"], ddl["table_name"] or None) if name is not None)


def _beginning(ddl: Event) -> str:
    return ddl["query"][:100] if ddl["query"] is not None else "?"


def _decimal(x: float) -> str:
    """A number as Spark prints it."""
    if x < 1e7:
        return repr(x)
    _, (first, *rest), _ = Decimal(repr(x)).normalize().as_tuple()
    return f"{first}.{''.join(map(str, rest)) or 0}E{Decimal(repr(x)).adjusted()}"
