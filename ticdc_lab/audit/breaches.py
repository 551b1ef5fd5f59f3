"""Where watermarks and DDL break a guarantee, found in the log's facts (:func:`ticdc_lab.audit.marks.log_facts`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.audit.marks import IN_CHUNK
from ticdc_lab.audit.promises import Facts, Ints, admin_events, by_partition, runs

_EVENT = "struct<partition: int, offset: bigint, commit_ts: bigint>"
BREACH = f"""
guarantee string, case string, topic string, partition int, offset bigint, seq int, commit_ts bigint, upto bigint,
n bigint, schema_name string, table_name string, query string, at {_EVENT}, after {_EVENT}
"""
"""A guarantee that is broken: ``at`` and ``after`` are the events that show it, ``n`` and ``upto`` count a run of
lacking watermarks, or are the partitions that an Admin event says and should say; what does not apply is null."""

_AT = pa.struct([("partition", pa.int32()), ("offset", pa.int64()), ("commit_ts", pa.int64())])
_SCHEMA = pa.schema(
    [("guarantee", pa.string()), ("case", pa.string()), ("topic", pa.string()), ("partition", pa.int32()),
     ("offset", pa.int64()), ("seq", pa.int32()), ("commit_ts", pa.int64()), ("upto", pa.int64()), ("n", pa.int64()),
     ("schema_name", pa.string()), ("table_name", pa.string()), ("query", pa.string()), ("at", _AT), ("after", _AT)]
)  # fmt: skip

AT_ONCE = 4096
"""Breaches held at a time: after one absurdly high watermark every later one falls back."""

Event = dict[str, Any]


@dataclass(slots=True)
class Home:
    """A partition of the log: what its recording covers, and its watermarks in order."""

    topic: str
    partition: int
    first_offset: int | None = None
    first_ts: int | None = None
    last_ts: int | None = None
    offset: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    seq: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    ts: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    chunk: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    held: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Which offsets are there, as in :func:`ticdc_lab.audit.marks.log_facts`."""
    admin: list[Event] = field(default_factory=list)
    """Its Admin events in order."""

    def era(self, offset: int) -> int:
        """In which era an offset lies; see :func:`ticdc_lab.audit.promises.admin_events`."""
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

    def lacks(self, ddl: Event) -> Event:
        """The case of a DDL that it should hold."""
        ts, first, offset, last = ddl["commit_ts"], self.first_ts, self.first_offset, self.last_ts
        later = bool(offset) and first is not None and first > ts
        return {"partition": self.partition, "case": "cut" if later or (last is not None and last < ts) else "lost"}

    def event(self, i: int) -> Event:
        """One of its watermarks."""
        return {"partition": self.partition, "offset": int(self.offset[i]), "commit_ts": int(self.ts[i])}


def breaches(facts: pa.Table, names: Sequence[str], *, ddl_in_partition_0_only: bool) -> Iterator[pa.RecordBatch]:
    """All that break one of the guarantees ``names``, as :data:`BREACH`."""
    homes = _homes(facts)
    topics: dict[str, list[Home]] = {}
    for home in homes:
        topics.setdefault(home.topic, []).append(home)
    found: dict[str, Callable[[], Iterator[Event]]] = {
        "watermarks_are_monotone": lambda: (b for home in homes for b in _falling(home)),
        "resolved_events_on_all_partitions": lambda: (b for of in topics.values() for b in _gaps_by_era(of)),
        "ddl_events_on_all_partitions": lambda: _lost_ddl(facts, topics, only_0=ddl_in_partition_0_only),
        "ddl_events_are_in_time": lambda: _late_ddl(facts, homes),
        "offsets_are_contiguous": lambda: (b for home in homes for b in _holes(home)),
        "admin_events_on_all_partitions": lambda: (b for of in topics.values() for b in _lost_admin(of)),
    }
    for name in names:
        each = found[name]()
        while said := [{"guarantee": name, **b} for b in islice(each, AT_ONCE)]:
            yield pa.RecordBatch.from_pylist(said, schema=_SCHEMA)


def _homes(facts: pa.Table) -> list[Home]:
    """Every partition of the log."""
    homes: dict[tuple[str, int], Home] = {}
    for p in facts.filter(pc.is_valid(facts["place"])).to_pylist():
        homes.setdefault((p["topic"], p["partition"]), Home(p["topic"], p["partition"])).cover(p)
    marks = facts.filter(pc.equal(facts["kind"], "watermark"))
    for topic, partition, *columns in by_partition(marks):
        home = homes[topic, partition]
        home.offset, home.seq, home.ts = columns
    chunks = facts.filter(pc.equal(facts["kind"], "offsets"))
    for topic, partition, chunk, _, held in by_partition(chunks, value="held"):
        homes[topic, partition].chunk, homes[topic, partition].held = chunk, held
    for place, own in admin_events(facts).items():
        homes[place].admin = own
    return list(homes.values())


def _falling(home: Home) -> Iterator[Event]:
    """Watermarks below an earlier one of their partition."""
    highest = np.maximum.accumulate(home.ts)
    holder = np.maximum.accumulate(np.where(home.ts == highest, np.arange(len(highest)), 0))
    for i in np.flatnonzero(home.ts < highest).tolist():
        here = home.event(i)
        yield here | {"topic": home.topic, "seq": int(home.seq[i]), "at": home.event(int(holder[i])), "after": here}


def _late_ddl(facts: pa.Table, homes: list[Home]) -> Iterator[Event]:
    """DDL that follow a watermark above them in their partition; ``case`` says whether it is delivered again."""
    of, seen = {(h.topic, h.partition): h for h in homes}, set()
    identity = ("topic", "partition", "commit_ts", "schema_name", "table_name", "query")
    ddl = facts.filter(pc.equal(facts["kind"], "ddl")).to_pylist()
    for d in sorted(ddl, key=lambda d: (d["topic"], d["partition"], d["offset"], d["seq"])):
        home, same = of[d["topic"], d["partition"]], tuple(d[c] for c in identity)
        before = int(np.searchsorted(home.offset, d["offset"]))
        i = int(np.argmax(home.ts[:before])) if before else 0
        if before and home.ts[i] > d["commit_ts"]:
            here = {c: d[c] for c in ("partition", "offset", "commit_ts")}
            shown = {"seq": d["seq"], "case": "again" if same in seen else "first", "at": home.event(i), "after": here}
            yield {c: d[c] for c in identity} | here | shown
        seen.add(same)


def _holes(home: Home) -> Iterator[Event]:
    """One for all offsets that a partition lacks between its first and its last: the first stretch, and the sum.

    None where most are lacking: these do not count messages (:mod:`ticdc_lab.sources.storage`).
    """
    bits = np.unpackbits(home.held.astype("<i8").view(np.uint8), bitorder="little").reshape(-1, IN_CHUNK)
    chunk, at = np.nonzero(bits)
    offset = home.chunk[chunk] + at
    before = np.flatnonzero(np.diff(offset) > 1)
    lacking = int(offset[-1] - offset[0] + 1 - len(offset)) if len(offset) else 0
    if 0 < lacking <= len(offset):
        i = int(before[0])
        low, high = ({"partition": home.partition, "offset": int(o), "commit_ts": None} for o in offset[i : i + 2])
        yield high | {"topic": home.topic, "upto": len(before), "n": lacking, "at": low, "after": high}


def _gaps_by_era(homes: list[Home]) -> Iterator[Event]:
    """The gaps between each two Admin events, where the partitions that count are the same."""
    if not any(len(h.ts) for h in homes) or not any(h.admin for h in homes):
        yield from _gaps(homes)
        return
    for era in range(1 + max(e["era"] for h in homes for e in h.admin)):
        within = [h for h in (home.within(era) for home in homes) if h is not None]
        if any(len(h.ts) for h in within):
            yield from _gaps(within)


def _lost_admin(homes: list[Home]) -> Iterator[Event]:
    """Every partition that lacks an Admin event, or has one of another number than most."""
    known = {h.partition: h for h in homes}
    before = {h.partition for h in homes if h.within(0) is not None}
    for era in range(1, 1 + max((e["era"] for h in homes for e in h.admin), default=0)):
        stated = {h.partition: e for h in homes for e in h.admin if e["era"] == era}
        said = Counter(e["partition_count"] for e in stated.values())
        count, _ = min(said.items(), key=lambda c: (-c[1], c[0]))
        first, witness = min((p, e) for p, e in stated.items() if e["partition_count"] == count)
        at = {"partition": first, "offset": witness["offset"], "commit_ts": None}
        breach = {"topic": witness["topic"], "upto": count, "at": at}
        after = set(range(count))
        for p in sorted((before | after) - set(stated)):
            yield breach | {"partition": p, "offset": known[p].first_offset if p in known else None, "case": "lost"}
        for p, e in sorted(stated.items()):
            if e["partition_count"] != count:
                own = {"partition": p, "offset": e["offset"], "commit_ts": None}
                yield breach | own | {"seq": e["seq"], "case": "count", "n": e["partition_count"], "after": own}
        before = after


def _gaps(homes: list[Home]) -> Iterator[Event]:
    """One per run of watermarks that a partition of the topic lacks, or one for the topic where nobody has any."""
    stated = [h for h in homes if len(h.ts)]
    if not stated:
        h = min(homes, key=lambda home: home.partition)
        least = {"partition": h.partition, "offset": h.first_offset, "commit_ts": h.first_ts}
        yield least | {"topic": h.topic, "case": "none", "at": least}
        return
    values, witnesses = _first_of_each(stated)
    for home in homes:
        own, at = np.unique(home.ts, return_index=True)
        lacking = np.setdiff1d(values, own, assume_unique=True)
        upper = np.searchsorted(own, lacking)
        for run in runs(upper):
            first, upto, after = int(lacking[run.start]), int(lacking[run.stop - 1]), int(upper[run.start])
            case = "silent" if not len(own) else "late" if first < own[0] else "early" if first > own[-1] else "inside"
            following = home.event(int(at[after])) if after < len(own) else None
            offset = home.first_offset if case == "silent" else following and following["offset"]
            shown = witnesses[int(np.searchsorted(values, first))].tolist()
            yield {"topic": home.topic, "partition": home.partition, "offset": offset, "commit_ts": first, "case": case,
                   "upto": upto, "n": run.stop - run.start, "at": dict(zip(_AT.names, shown, strict=True)),
                   "after": following}  # fmt: skip


def _first_of_each(stated: list[Home]) -> tuple[Ints, Ints]:
    """The values that a topic's watermarks state, and the first event of each in the first partition that has it."""
    partition = np.concatenate([np.full(len(h.ts), h.partition) for h in stated])
    offset, ts = (np.concatenate([getattr(h, c) for h in stated]) for c in ("offset", "ts"))
    order = np.lexsort((offset, partition, ts))
    values, at = np.unique(ts[order], return_index=True)
    return values, np.stack([partition, offset, ts], axis=1)[order[at]]


def _lost_ddl(facts: pa.Table, topics: dict[str, list[Home]], *, only_0: bool) -> Iterator[Event]:
    """Every DDL that a partition of its topic lacks."""
    ddl: Facts = facts.filter(pc.equal(facts["kind"], "ddl")).to_pylist()
    identity = ("topic", "commit_ts", "schema_name", "table_name", "query")
    homes = {(h.topic, h.partition): h for of in topics.values() for h in of}
    each: dict[tuple[Any, ...], list[Event]] = {}
    for d in ddl:
        era = homes[d["topic"], d["partition"]].era(d["offset"])
        each.setdefault((era, *(d[c] for c in identity)), []).append(d)
    for (era, *_), same in each.items():
        witness = min(same, key=lambda d: (d["partition"], d["offset"]))
        seen = {d["partition"] for d in same}
        of = [h for h in (home.within(era) for home in topics[witness["topic"]]) if h is not None]
        expected = [h for h in of if h.partition == 0] or [Home(of[0].topic, 0)] if only_0 else of
        for home in expected:
            if home.partition not in seen:
                at = {c: witness[c] for c in ("partition", "offset", "commit_ts")}
                yield {c: witness[c] for c in identity} | home.lacks(witness) | {"at": at}
