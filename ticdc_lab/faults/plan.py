"""A fault as data: which messages of a log it takes away, changes and adds, and where the audit must see it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from ticdc_lab.events.changes import OP_RANK

Event = dict[str, Any]
"""An event of :data:`ticdc_lab.events.schema.EVENTS` by column name; ``together``: events of its message."""

Place = tuple[int, int, int]
"""Partition, offset and seq."""


def place_of(event: Event) -> Place:
    """Where an event lies."""
    return event["partition"], event["offset"], event["seq"]


@dataclass(frozen=True)
class FaultLog:
    """What is known of one topic, in any order unless one is given.

    Attributes
    ----------
    rows
        All changes of some rows that have a key, with :data:`ticdc_lab.events.schema.KEYS`.
    lives
        Of each of these rows its changes in commit order; left out are rows that lie in several partitions, had a
        change delivered twice, or changed their key.
    ddl, watermarks
        All of them; watermarks by partition, in order of offset.
    last
        By partition its last offset.
    """

    topic: str
    rows: list[Event]
    lives: list[list[Event]]
    ddl: list[Event]
    watermarks: dict[int, list[Event]]
    last: dict[int, int]

    @classmethod
    def of(cls, topic: str, rows: list[Event], marks: list[Event], last: dict[int, int]) -> FaultLog:
        """Put what was read in order."""
        rows = sorted(rows, key=place_of)
        watermarks: dict[int, list[Event]] = {p: [] for p in sorted(last)}
        for e in sorted(marks, key=place_of):
            if e["kind"] == "watermark":
                watermarks[e["partition"]].append(e)
        ddl = sorted((e for e in marks if e["kind"] == "ddl"), key=place_of)
        return cls(topic, rows, _lives(rows), ddl, watermarks, last)

    def shuffled(self, rng: Random) -> FaultLog:
        """The same, so that what comes first is chosen by chance."""

        def mixed(items: list[Any]) -> list[Any]:
            return rng.sample(items, len(items))

        partitions = mixed(self.partitions)
        watermarks = {p: self.watermarks[p] for p in partitions}
        return FaultLog(self.topic, mixed(self.rows), mixed(self.lives), mixed(self.ddl), watermarks, self.last)

    @property
    def partitions(self) -> list[int]:
        """Partitions with any event."""
        return list(self.watermarks)

    def behind(self, partition: int, ts: int, *, after: int = -1) -> int | None:
        """The offset just behind the first watermark above ``ts`` that follows an offset; None without one."""
        for w in self.watermarks[partition]:
            if w["offset"] > after and w["commit_ts"] > ts:
                return int(w["offset"]) + 1
        return None

    def ahead(self, partition: int, ts: int) -> int:
        """The offset before which a change may still be sent: of the first watermark from ``ts`` on, or the end."""
        stated = (w["offset"] for w in self.watermarks[partition] if w["commit_ts"] >= ts)
        return int(min(stated, default=self.last[partition] + 1))

    def neighbours(self) -> Iterator[tuple[Event, Event, Event]]:
        """Each three changes in a row of one row's life."""
        for life in self.lives:
            yield from zip(life, life[1:], life[2:], strict=False)

    def pairs(self) -> Iterator[tuple[Event, Event]]:
        """Each two changes in a row of one row's life, in two messages and of two transactions."""
        for life in self.lives:
            for one, two in pairwise(life):
                if one["offset"] < two["offset"] and one["commit_ts"] < two["commit_ts"]:
                    yield one, two

    def shows(self, former: Event, later: Event) -> bool:
        """Whether images prove that ``later`` does not follow ``former``; not across any DDL."""
        if any(former["commit_ts"] <= d["commit_ts"] <= later["commit_ts"] for d in self.ddl):
            return False
        left, found = image_after(former), image_before(later)
        if left is None or found is None:
            return (left is None) != (found is None)
        return set(left) == set(found) and left != found


def image_after(event: Event) -> dict[str, Any] | None:
    """Values by column name after a change; None where the row is gone."""
    return None if event["op"] == "delete" else {c["name"]: c["value"] for c in event["columns"]}


def image_before(event: Event) -> dict[str, Any] | None:
    """Values by column name before a change, absent old ones as in the new image; None where there was no row."""
    if event["op"] == "insert":
        return None
    return (image_after(event) or {}) | {c["name"]: c["value"] for c in event["before"] or ()}


def altered(columns: Sequence[Event]) -> list[Event] | None:
    """An image with another value in its last column that is no key and not NULL; None where there is none."""
    for i in reversed(range(len(columns))):
        c = columns[i]
        if not c["is_key"] and c["value"]:
            last = c["value"][-1]
            other = str((int(last) + 1) % 10) if last in "0123456789" else "?" if last != "?" else "!"
            return [*columns[:i], c | {"value": c["value"][:-1] + other}, *columns[i + 1 :]]
    return None


def _lives(rows: list[Event]) -> list[list[Event]]:
    whole: dict[int, list[Event]] = {}
    for e in rows:
        whole.setdefault(e["key_hash"], []).append(e)
    plain = []
    for _, life in sorted(whole.items()):
        life.sort(key=lambda e: (e["commit_ts"], OP_RANK[e["op"]], e["offset"], e["seq"]))
        deliveries = Counter((e["commit_ts"], e["op"]) for e in life)
        one = len({e["partition"] for e in life}) == 1 and max(deliveries.values()) == 1
        if one and not any(e["before_key_hash"] for e in life):
            plain.append(life)
    return plain


@dataclass(frozen=True, slots=True)
class Put:
    """An event in a message of its own, before the message that has the offset ``before`` in the log without fault."""

    event: Event
    partition: int
    before: int


@dataclass(frozen=True, slots=True)
class ExpectedFinding:
    """What the audit must report: a guarantee at one of some events."""

    guarantee: str
    # Places in the log without fault, or numbers in :attr:`FaultPlan.put`; empty: what is missing has no place.
    at: tuple[Place | int, ...] = ()
    partition: int | None = None  # where ``at`` is empty: the partition that misses it
    severity: str = "error"


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """One fault in places of the log without it."""

    what: str  # a sentence: what was done
    event: Event  # the event it was done to
    seen: tuple[ExpectedFinding, ...]
    # Events that are not there any more. A message without any event left takes no offset, as if never written.
    gone: tuple[Event, ...] = ()
    changed: tuple[Event, ...] = ()  # events with other content in their old places
    put: tuple[Put, ...] = ()  # events that are there besides
    # Partition, first and last offset of messages that were not recorded; their offsets stay empty.
    cut: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Expected:
    """A finding that the audit must give.

    Attributes
    ----------
    guarantee, severity
        As in :data:`ticdc_lab.events.schema.FINDINGS`.
    places
        Partitions and offsets, in the log with the fault, it names one; an offset of None: any of that
        partition.
    """

    guarantee: str
    severity: str
    places: tuple[tuple[int, int | None], ...]


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """A fault that was planted.

    Attributes
    ----------
    kind, seed
        What :func:`ticdc_lab.faults.plan_fault` was asked for.
    what
        A sentence: what was done, with places of the log without the fault.
    topic, table, partition, offset, commit_ts
        The event it was done to, in the log without it; ``table`` is ``schema.table``, None for a watermark.
    expected
        What the audit must report, with places of the log with the fault.
    plan
        The changes themselves.
    """

    kind: str
    seed: int
    what: str
    topic: str
    table: str | None
    partition: int
    offset: int
    commit_ts: int
    expected: tuple[Expected, ...]
    plan: FaultPlan = field(repr=False)

    @classmethod
    def of(cls, plan: FaultPlan, *, kind: str, seed: int, topic: str) -> PlantedFault:
        """Give a plan its name, and its places in the log with the fault."""
        e = plan.event
        named = ".".join(filter(None, (e["schema_name"], e["table_name"]))) or None
        expected = tuple(_expected(s, plan) for s in plan.seen)
        where = {"partition": e["partition"], "offset": e["offset"], "commit_ts": e["commit_ts"]}
        return cls(kind, seed, plan.what, topic, named, expected=expected, plan=plan, **where)


@dataclass(frozen=True, slots=True)
class PartitionLayout:
    """Offsets of one partition with a fault."""

    closed: tuple[int, ...]
    """Offsets of messages that are not written, in order."""
    puts: tuple[tuple[int, int], ...]
    """``before`` and number of what is put, in order."""

    @classmethod
    def of(cls, plan: FaultPlan, partition: int) -> PartitionLayout:
        """The same of a plan."""
        gone = Counter((e["offset"], e["together"]) for e in plan.gone if e["partition"] == partition)
        closed = {offset for (offset, together), n in gone.items() if n == together}
        puts = sorted((p.before, i) for i, p in enumerate(plan.put) if p.partition == partition)
        return cls(tuple(sorted(closed)), tuple(puts))

    def moved(self, offset: int) -> int:
        """Where a message of the log lies now."""
        before = bisect_right(self.puts, offset, key=lambda put: put[0])
        return offset - bisect_left(self.closed, offset) + before

    def put(self, number: int) -> int:
        """Where what was put lies."""
        k = next(k for k, (_, i) in enumerate(self.puts) if i == number)
        return self.puts[k][0] - bisect_left(self.closed, self.puts[k][0]) + k

    def steps(self) -> list[dict[str, int]]:
        """From which offset on how much is added to offsets."""
        return [{"at": b, "by": 1} for b, _ in self.puts] + [{"at": o + 1, "by": -1} for o in self.closed]


def layouts(plan: FaultPlan) -> dict[int, PartitionLayout]:
    """Of all partitions that a plan touches."""
    touched = {p.partition for p in plan.put} | {e["partition"] for e in plan.gone}
    return {p: PartitionLayout.of(plan, p) for p in sorted(touched)}


def with_new_places(plan: FaultPlan) -> list[Event]:
    """What is added or changed, at its place in the log with the fault."""
    of = layouts(plan)
    put = [
        p.event | {"partition": p.partition, "offset": of[p.partition].put(i), "seq": 0} for i, p in enumerate(plan.put)
    ]
    return put + [e | {"offset": _offset(place_of(e), of)} for e in plan.changed]


def gone_places(plan: FaultPlan) -> list[Place]:
    """Places in the log without the fault that are taken from it, also where something else is put."""
    return [place_of(e) for e in (*plan.gone, *plan.changed)]


def _offset(place: Place, of: dict[int, PartitionLayout]) -> int:
    partition, offset, _ = place
    return of[partition].moved(offset) if partition in of else offset


def _expected(seen: ExpectedFinding, plan: FaultPlan) -> Expected:
    of = layouts(plan)
    places: list[tuple[int, int | None]] = []
    for at in seen.at:
        if isinstance(at, int):
            partition = plan.put[at].partition
            places.append((partition, of[partition].put(at)))
        else:
            places.append((at[0], _offset(at, of)))
    if seen.partition is not None:
        places.append((seen.partition, None))
    return Expected(seen.guarantee, seen.severity, tuple(places))
