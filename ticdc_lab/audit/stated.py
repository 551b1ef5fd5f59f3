"""What a log states besides its rows, by partition: for the guarantees of what the owner broadcasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ticdc_lab.audit.defined import Definitions
from ticdc_lab.audit.marks import (
    END,
    NAMES,
    Event,
    Facts,
    admin_events,
    dated_ddl,
    ddl_by_home,
    lacked_offsets,
    no_ints,
    offset_of,
    require_partitions,
    stated_around,
)
from ticdc_lab.events import is_first
from ticdc_lab.events.arrays import NO_TS, Ints
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.catalog import RefusedDdl
from ticdc_lab.facts.limits import DDL_IN_PARTITION_0_ONLY, Twice, first_offsets


@dataclass(slots=True)
class Home:
    """A partition of the log: what its recording covers, and its watermarks in order."""

    topic: str
    partition: int
    first_offset: int | None = None
    """Of its messages, decoded or not."""
    first_event: int | None = None
    """The offset of the first that is an event."""
    first_ts: int | None = None
    last_ts: int | None = None
    ddl: Facts = field(default_factory=list)
    """Its DDL in order."""
    is_there: bool = False
    """Something of it was recorded."""
    offset: Ints = field(default_factory=no_ints)
    seq: Ints = field(default_factory=no_ints)
    ts: Ints = field(default_factory=no_ints)
    gaps: tuple[Ints, Ints] = field(default_factory=lambda: (no_ints(), no_ints()))
    """The first and the last offset of each gap, from its first message on."""
    counts: bool = True
    """Its offsets count messages, as far as they show."""
    deleted: tuple[tuple[int, int], ...] = ()
    """The first offset and the end of what the broker deleted before it was read."""
    admin: list[Event] = field(default_factory=list)
    """Its Admin events in order."""
    in_era: bool = False
    """It follows an Admin event."""
    ends_era: bool = False
    """It precedes one."""

    @property
    def has_begun(self) -> bool:
        """Nothing of it, or of its part of an era, was sent before what was recorded."""
        return self.in_era or is_first(self.first_offset or 0)

    @property
    def words(self) -> str:
        """What it is called."""
        return f"partition {self.partition} of topic {self.topic}"

    def era(self, offset: int) -> int:
        """In which era an offset lies; see :func:`admin_events`."""
        return max((int(e["era"]) for e in self.admin if offset_of(e) < offset), default=0)

    def within(self, era: int) -> Home | None:
        """What stands of it in an era; None where it does not count."""
        if not self.admin:
            return self
        begins = [e for e in self.admin if e["era"] == era]
        if era and (not begins or self.partition >= begins[0]["partition_count"]):
            return None
        begin = begins[0]["offset"] if begins else self.first_offset
        ends = [e["offset"] for e in self.admin if e["era"] > era]
        end = min(ends, default=np.iinfo(np.int64).max)
        if begin is None or begin >= end:
            return None
        own = (self.offset >= begin) & (self.offset < end)
        offset, seq, ts = self.offset[own], self.seq[own], self.ts[own]
        ddl = [d for d in self.ddl if begin <= offset_of(d) < end]
        first, last = self.gaps
        within = (first >= begin) & (first < end)
        return replace(
            self, first_offset=begin, first_event=begin if begins else self.first_event, in_era=bool(begins),
            ends_era=bool(ends), offset=offset, seq=seq, ts=ts, ddl=ddl, gaps=(first[within], last[within]),
        )  # fmt: skip

    def cover(self, place: Event) -> None:
        """Take the extent of one of its places into account."""
        self.is_there = True
        for name, value, best in (
            ("first_event", place["offset"], min),
            ("first_ts", place["commit_ts"], min),
            ("last_ts", place["last_ts"], max),
        ):
            known = [v for v in (getattr(self, name), value) if v is not None]
            setattr(self, name, best(known, default=None))

    def covers(self, ddl: Event, *, of: Home) -> bool:
        """Whether its recording reaches from before a DDL to behind it; not where nothing of it was recorded.

        ``ddl``: as another partition holds it, delivered once: another delivery is another question. ``of``: that
        partition. When the greatest watermark before it there was sent, all below had reached every partition; no
        watermark above a DDL comes before it, and rows and lower watermarks prove nothing. A DDL proves what is before
        it in both partitions, and only if it is an older one: a restart sends some again, and not all come in order.
        One of the same commit_ts and table is this one, with another text, so it reaches there.
        """
        ts, first, offset, last = ddl["commit_ts"], self.first_ts, self.first_offset or 0, self.last_ts
        if not self.is_there or any(_is_of(d, ddl) for d in self.ddl):
            return self.is_there
        if not len(self.ts) and not len(of.ts):
            later = not is_first(offset) and first is not None and first > ts
            return not (later or (last is not None and last < ts))
        at, behind = offset_of(ddl), of.stated_before(offset_of(ddl))
        older = [d for d in of.ddl if offset_of(d) < at and d["commit_ts"] < ts]
        newer = [d for d in of.ddl if offset_of(d) > at and d["commit_ts"] > ts]
        begun = self.has_begun or bool((self.ts[:1] < behind).any())
        begun = begun or any(_is_of(d, other) for d in self.ddl[:1] for other in older)
        reached = self.ends_era or bool((self.ts > max(ts, behind)).any())
        return begun and (reached or any(_is_of(d, other) for d in self.ddl[-1:] for other in newer))

    def lacks(self, low: int, high: int) -> bool:
        """Whether it has a gap where something may lie that follows one watermark and none above another."""
        above, below = stated_around(self.gaps[0], self.offset, self.ts)
        return bool(((above <= high) & (below >= low)).any())

    def lacked_between(self, low: int, high: int) -> int:
        """How many offsets are missing between two."""
        first, last = self.gaps
        own = (first > low) & (first < high)
        return int((last - first + 1)[own].sum())

    def lacking_before(self, offset: int) -> Home:
        """The same for a gap before one alone."""
        first, last = self.gaps
        own = first < offset
        return replace(self, gaps=(first[own], last[own]))

    def stated_before(self, offset: int) -> int:
        """The greatest watermark before an offset; NO_TS where none is."""
        return int(self.ts[: np.searchsorted(self.offset, offset)].max(initial=NO_TS))

    def stated_behind(self, offset: int) -> int:
        """The first watermark behind an offset that exceeds those before; the greatest number where none is."""
        behind = self.ts[np.searchsorted(self.offset, offset) :]
        return int(next(iter(behind[behind > self.stated_before(offset)]), END))

    def event(self, i: int) -> Event:
        """One of its watermarks."""
        return {"partition": self.partition, "offset": int(self.offset[i]), "commit_ts": int(self.ts[i])}


def _is_of(one: Event, other: Event) -> bool:
    return all(one[c] == other[c] for c in ("commit_ts", *NAMES))


@dataclass(frozen=True, slots=True)
class Stated:
    """What a log states besides its rows."""

    homes: list[Home]
    ddl: Facts
    ddl_in_partition_0_only: bool
    twice: Sequence[Twice] = ()
    """Partitions that hold messages twice, where the events were asked of it."""
    contradictions: Sequence[tuple[str | None, RefusedDdl]] = ()
    """DDL that do not follow from those before them, with the topic where topics are apart."""

    @classmethod
    def read(
        cls, facts: LogFacts, *, protocol: str, twice: Sequence[Twice] = (), definitions: Definitions | None = None
    ) -> Stated:
        """From the log's facts; ``definitions`` are theirs, where known."""
        require_partitions(facts)
        ddl = dated_ddl(facts)
        own = Definitions.read(facts, protocol=protocol) if definitions is None else definitions
        only_0 = protocol in DDL_IN_PARTITION_0_ONLY
        return cls(_homes(facts, ddl), ddl, only_0, twice, own.contradictions)

    @property
    def topics(self) -> dict[str, list[Home]]:
        """The partitions of each topic."""
        topics: dict[str, list[Home]] = {}
        for home in self.homes:
            topics.setdefault(home.topic, []).append(home)
        return topics


def _homes(facts: LogFacts, ddl: Facts) -> list[Home]:
    homes = {(topic, partition): Home(topic, partition) for topic, partition in facts.homes}
    for p in facts.places.to_pylist():
        homes[p["topic"], p["partition"]].cover(p)
    marks = facts.watermarks
    for home, own in zip(homes.values(), marks.parts(), strict=True):
        home.offset, home.seq, home.ts = marks.offset[own], marks.seq[own], marks.ts[own]
    for place, (first, last, counts) in lacked_offsets(facts).items():
        homes[place].gaps, homes[place].counts = (first, last), counts
    for place, deleted in facts.deleted.items():
        if place in homes:
            homes[place].deleted = deleted
    for place, offset in first_offsets(facts).items():
        if homes[place].first_event is not None:
            homes[place].first_offset = offset
    for place, admin in admin_events(facts).items():
        homes[place].admin = admin
    for place, own_ddl in ddl_by_home(ddl).items():
        homes[place].ddl = own_ddl
    return list(homes.values())
