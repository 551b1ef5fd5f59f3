"""Who had which cluster when: a fleet over time, from the trace of a run or from what a running service answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.ddl_core import keys
from ticdc_lab.ddl_core.keys import PD
from ticdc_lab.ddl_core.records import CAMPAIGNING, IS_OWNER, SCHEDULING
from ticdc_lab.machines.ledger import Ledger, table_of
from ticdc_lab.machines.machine import node_of

_SPAN = [("since_us", pa.int64()), ("until_us", pa.int64())]
HELD = pa.schema([*((name, pa.string()) for name in ("cluster", "worker", "status")), *_SPAN])
ALIVE = pa.schema([("worker", pa.string()), ("state", pa.string()), *_SPAN])
MOMENTS = pa.schema([("time_us", pa.int64()), *((name, pa.string()) for name in ("node", "what", "because"))])
BEGINNING_US = 100_000
"""Workers that come in this time are there from the beginning."""

LEADS, IS_UP, IS_DOWN = "leader", "registered", "down"


class Fleet(NamedTuple):
    """A fleet over time."""

    # :data:`HELD`: a cluster's worker, and how far that is: ``OWNER``, ``CAMPAIGNING`` or ``SCHEDULING``. A worker that
    # owns a cluster which is assigned to another still has it; an unassigned cluster is of worker None.
    held: pa.Table
    # :data:`ALIVE`: when a worker was ``registered``, the ``leader``, or ``down``; the last two beside the first.
    alive: pa.Table
    moments: pa.Table  # :data:`MOMENTS`: ``crash``, ``joined``, ``left``, ``new leader``, ``parted``, ``violated``
    end_us: int  # until when

    def at(self, at_us: int | None = None) -> tuple[pa.Table, pa.Table]:
        """Give the rows of ``held`` and ``alive`` that hold at a moment, by default at the end."""
        moment = self.end_us if at_us is None else min(at_us, self.end_us)
        return _now(self.held, moment, self.end_us), _now(self.alive, moment, self.end_us)


class FleetAnswer(NamedTuple):
    """A running service's state at a moment: ids of its workers, and (cluster, worker, status) of each."""

    at_us: int
    workers: Sequence[str]
    clusters: Sequence[tuple[str, str, str]]


def _now(rows: pa.Table, at_us: int, end_us: int) -> pa.Table:
    begun, lasts = pc.less_equal(rows["since_us"], at_us), pc.greater(rows["until_us"], min(at_us, end_us - 1))
    return rows.filter(pc.and_(begun, lasts))


@dataclass(slots=True)
class FleetLedger:
    """Who has which cluster, and who is there, row by row: of a run as it goes, or of its trace."""

    registered: set[str] = field(default_factory=set)
    known: set[str] = field(
        default_factory=set
    )  # a trace shows no cluster that is registered at first: also assigned ones
    assigned: dict[str, str] = field(default_factory=dict)
    started: dict[str, set[str]] = field(default_factory=dict)
    owners: dict[str, dict[str, None]] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    held: Ledger[int] = field(default_factory=Ledger)
    alive: Ledger[int] = field(default_factory=Ledger)
    leaders: dict[str, int] = field(default_factory=dict)  # workers that lead, with the revision of their campaign
    moments: list[tuple[int, str, str, str]] = field(default_factory=list)

    @property
    def workers(self) -> list[str]:
        """Give those that are registered."""
        return sorted(worker for (worker, what), _ in self.alive.now if what == IS_UP)

    @property
    def leader(self) -> str | None:
        return max(self.leaders, key=lambda worker: (self.leaders[worker], worker), default=None)

    def take(
        self, at_us: int, node: str, kind: str, peer: str | None, subject: str | None, before: Any, after: Any, why: Any
    ) -> None:
        """Take a row of a trace."""
        if kind == "changed" and subject is not None:
            self._changed(at_us, node, subject, before, after, why)
        elif kind in ("violated", "parted"):
            self.moments.append((at_us, node_of(node), kind, f"from {peer}" if kind == "parted" else str(why or "")))
        if kind not in _LIVES or "/" in node:
            return
        name = node_of(node)
        if kind == "crashed":
            self.moments.append((at_us, name, "crash", str(why or "")))
            for owners in self.owners.values():
                owners.pop(node, None)
            for started in self.started.values():
                started.discard(node)
            self.leaders.pop(name, None)
            self.alive.set((name, LEADS), None, at_us)
        is_down = kind in ("crashed", "paused")
        self.alive.set((name, IS_DOWN), IS_DOWN if is_down else None, at_us)
        (self.paused.add if is_down else self.paused.discard)(node)
        for cluster in sorted(self.owners):
            self._tell(cluster, at_us)

    def _changed(self, at_us: int, node: str, subject: str, before: Any, after: Any, why: Any) -> None:
        what, _, of = subject.partition(":")
        if node == PD and subject.startswith(keys.ASSIGNMENTS):
            of = subject.removeprefix(keys.ASSIGNMENTS)
            if after is None:
                self.assigned.pop(of, None)
            else:
                self.known.add(of)
                self.assigned[of] = after
        elif node == PD and subject.startswith(keys.REGISTERS):
            of = subject.removeprefix(keys.REGISTERS)
            for clusters in (self.registered, self.known):
                (clusters.discard if after is None else clusters.add)(of)
        elif node == PD and subject.startswith(keys.WORKERS) and (before is None or after is None):
            worker = subject.removeprefix(keys.WORKERS)
            self.alive.set((worker, IS_UP), None if after is None else IS_UP, at_us)
            if at_us > BEGINNING_US:
                said = "its key in the service's store"
                self.moments.append((at_us, worker, "left" if after is None else "joined", said))
            return
        elif node != PD and subject == "leader":
            worker = node_of(node)
            self.alive.set((worker, LEADS), None if after is None else LEADS, at_us)
            if after is None:
                self.leaders.pop(worker, None)
            else:
                self.leaders[worker] = int(after)
                self.moments.append((at_us, worker, "new leader", str(why or "")))
            return
        elif node != PD and what == "assigned":
            self.started.setdefault(of, set()).add(node)
        elif node != PD and what == "ddl-owner":
            owners = self.owners.setdefault(of, {})
            if after is None:
                owners.pop(node, None)
            else:
                owners[node] = None
        else:
            return
        self._tell(of, at_us)

    def _tell(self, cluster: str, at_us: int) -> None:
        """Who has a cluster may be another one now."""
        owners = [a for a in self.owners.get(cluster, {}) if a not in self.paused]
        worker = self.assigned.get(cluster)
        if owners:
            value: tuple[str, str] | None = (" and ".join(map(node_of, owners)), IS_OWNER)
        elif worker is not None:
            begun = worker in {node_of(a) for a in self.started.get(cluster, ())}
            value = (worker, CAMPAIGNING if begun else SCHEDULING)
        else:
            value = ("", SCHEDULING) if cluster in self.known else None
        self.held.set(cluster, value, at_us)


_LIVES = ("crashed", "started", "restarted", "paused", "resumed")


def fleet_in(trace: pa.Table) -> Fleet:
    """Read a run. ``trace``: :data:`ticdc_lab.simulate.trace.TRACE`; level ``changes`` is enough."""
    rows = trace.filter(pc.is_in(trace["kind"], pa.array(["changed", "parted", "violated", *_LIVES])))
    names = ["time_us", "node", "kind", "peer", "subject", "before", "after", "because"]
    ledger = FleetLedger()
    for row in zip(*(rows[n].to_pylist() for n in names), strict=True):
        ledger.take(*row)
    end_us = int(trace["time_us"][-1].as_py()) if len(trace) else 0
    if any(what == "violated" for _, _, what, _ in ledger.moments):
        end_us += max(1, end_us // 50)  # what broke the invariant began at the very end: make it visible
    return _fleet(ledger.held, ledger.alive, ledger.moments, end_us)


def fleet_polled(answers: Sequence[FleetAnswer]) -> Fleet:
    """Read what a running service answered, in order; each answer holds until the next, the last one for a µs."""
    held: Ledger[int] = Ledger()
    alive: Ledger[int] = Ledger()
    moments: list[tuple[Any, ...]] = []
    known: set[str] = set()
    for at_us, workers, clusters in answers:
        names = set(workers)
        for name in sorted(names - known):
            alive.set((name, IS_UP), IS_UP, at_us)
            moments += [(at_us, name, "joined", "it is in the list of workers")] if known else []
        for name in sorted(known - names):
            alive.set((name, IS_UP), None, at_us)
            moments.append((at_us, name, "left", "it is in the list of workers no more"))
        schedules = {cluster: (worker, status) for cluster, worker, status in clusters}
        for cluster in sorted({key for key, _ in held.now} | schedules.keys()):
            held.set(cluster, schedules.get(cluster), at_us)
        known = names
    end_us = answers[-1].at_us + 1 if answers else 0
    return _fleet(held, alive, moments, end_us)


def _fleet(held: Ledger[int], alive: Ledger[int], moments: Iterable[tuple[Any, ...]], end_us: int) -> Fleet:
    own = [(r.key, r.state[0] or None, r.state[1], r.since, r.until) for r in held.end(end_us)]
    lived = [(*r.key, r.since, r.until) for r in alive.end(end_us)]
    return Fleet(table_of(own, HELD), table_of(lived, ALIVE), table_of(moments, MOMENTS), end_us)
