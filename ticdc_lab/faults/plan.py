"""A fault as data: which messages of a log it takes away, changes and adds, and where the audit must see it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field

from ticdc_lab.faults.log import Event, Place, place_of


@dataclass(frozen=True, slots=True)
class Put:
    """An event in a message of its own, before the message that has the offset ``before`` in the log without fault."""

    event: Event
    partition: int
    before: int


@dataclass(frozen=True, slots=True)
class ExpectedFinding:
    """What the audit must report: a guarantee at one of some events.

    Attributes
    ----------
    at
        Places in the log without fault, or numbers in :attr:`FaultPlan.put`; empty: what is missing has no place.
    partition
        Where ``at`` is empty: the partition that lacks it.
    """

    guarantee: str
    at: tuple[Place | int, ...] = ()
    partition: int | None = None
    severity: str = "error"


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """One fault in places of the log without it.

    Attributes
    ----------
    what
        A sentence: what was done.
    event
        The event it was done to.
    gone
        Events that are not there any more. A message without any event left takes no offset, as if never written.
    changed
        Events with other content in their old places.
    put
        Events that are there besides.
    cut
        Partition, first and last offset of messages that were not recorded; their offsets stay empty.
    """

    what: str
    event: Event
    seen: tuple[ExpectedFinding, ...]
    gone: tuple[Event, ...] = ()
    changed: tuple[Event, ...] = ()
    put: tuple[Put, ...] = ()
    cut: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Expected:
    """A finding that the audit must give.

    Attributes
    ----------
    guarantee, severity
        As in :data:`ticdc_lab.events.schema.FINDINGS`.
    places
        Partitions and offsets, in the log with the fault, of which it names one; an offset of None: any of that
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
        """That of a plan."""
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
