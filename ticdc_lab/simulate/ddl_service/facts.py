"""What is so at a moment of a run: who leads, who is to own and who owns what, how jobs stand; kept row by row.

Who owns and which jobs there are is the auditor's to say (:mod:`.monitor`), which reads the nodes themselves.
What happened is told in sentences (:func:`narrative`), and how things stood at the end (:func:`last_state`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from ticdc_lab.ddl_core import jobs, keys, records
from ticdc_lab.ddl_core.checks import Found
from ticdc_lab.ddl_core.keys import PD, store_of
from ticdc_lab.ddl_core.store import DdlStore
from ticdc_lab.machines.ledger import Total
from ticdc_lab.machines.machine import node_of
from ticdc_lab.simulate.ddl_service.monitor import ServiceMonitor, unsettled
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.kernel import Kernel
from ticdc_lab.simulate.scenario_yaml import shown
from ticdc_lab.simulate.scheduler import narrative as common
from ticdc_lab.simulate.scheduler.narrative import Line, listed
from ticdc_lab.simulate.trace import Row

_LIVES = frozenset({"started", "restarted", "crashed", "paused", "resumed"})


@dataclass(slots=True)
class ServiceFacts:
    """The present of a run."""

    # The world, from its beginning on.
    settings: ServiceSettings = field(default_factory=ServiceSettings)
    kernel: Kernel | None = None
    changes: int = 0
    # Clusters, and the worker that each is assigned to.
    registered: set[str] = field(default_factory=set)
    assigned: dict[str, str] = field(default_factory=dict)
    came_from: dict[str, str] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)
    leaders: dict[str, int] = field(default_factory=dict)  # workers that lead, with the revision of their campaign
    n_leaders: int = 0
    # How often a cluster was taken from a worker that is registered for another one, and how often it came back.
    moves: int = 0
    returns: int = 0
    n_sent: int = 0
    sent: Counter[str] = field(default_factory=Counter)
    other: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)  # invariants that were violated
    # Time in which a registered cluster that had an owner has none, over all clusters.
    unowned: Total = field(default_factory=Total)
    dirty: int | None = None
    at_us: int = 0
    checkpoint_us: int | None = None

    def begin(self, kernel: Kernel) -> None:
        self.kernel = kernel
        service = kernel.machines[PD]
        assert isinstance(service, DdlStore)
        self.registered = {k.removeprefix(keys.REGISTERS) for k, _ in service.first if k.startswith(keys.REGISTERS)}

    def see(self, row: Any) -> None:
        if self.dirty is not None and row.step != self.dirty:
            self._settle()
        self.at_us = row.time_us
        kind = row.kind
        if kind == "sent":
            self.n_sent += 1
            self.sent[row.message if isinstance(row.message, str) else type(row.message).__name__] += 1
        elif kind == "changed":
            self._changed(row)
        elif kind == "violated":
            self.broken[row.subject] += 1
            self.changes += 1
        elif kind in _LIVES:
            self.changes += 1
            self.dirty = row.step
            if kind == "crashed":
                self.leaders.pop(row.node, None)
        else:
            self.other[kind] += 1

    @property
    def monitor(self) -> ServiceMonitor:
        assert self.kernel is not None and isinstance(self.kernel.auditor, ServiceMonitor)
        return self.kernel.auditor

    def owners(self, cluster: str) -> list[str]:
        return sorted(node_of(a) for a in self.monitor.owners.get(cluster, ()))

    @property
    def leader(self) -> str | None:
        latest = max(self.leaders, key=lambda a: (self.leaders[a], a), default=None)
        return None if latest is None else node_of(latest)

    @property
    def loads(self) -> dict[str, int]:
        """How many clusters are assigned to each registered worker."""
        counts = Counter(self.assigned.values())
        return {worker: counts[worker] for worker in sorted(self.alive)}

    def jobs(self, cluster: str | None = None) -> list[records.Job]:
        """Give the jobs, of one cluster or of all, as they stand."""
        store = None if cluster is None else store_of(cluster)
        return [job for (at, _), job in sorted(self.monitor.known.items()) if store in (None, at)]

    @property
    def left(self) -> list[records.Job]:
        """The jobs of registered clusters that have not ended; who is not registered has nobody to run them."""
        stores = {store_of(c) for c in self.registered}
        known = sorted(self.monitor.known.items())
        return [job for (at, _), job in known if at in stores and job.state not in records.ENDS]

    def states(self, cluster: str, element: str) -> dict[str, str]:
        """Give the schema state of an element on every server that serves; it is none where nobody has it."""
        serving = self.monitor.schemas.get(cluster, {})
        return {node_of(a): s.elements.get(element, jobs.NONE) for a, s in sorted(serving.items())}

    def unsettled(self) -> Found:
        """Give what is not as it should be of a service that is quiet."""
        assert self.kernel is not None
        return unsettled(self.kernel, self.settings)

    def _changed(self, row: Any) -> None:
        subject: str = row.subject
        self.changes += 1
        if row.node == PD:
            self._of_service(subject, row.before, row.after)
        elif subject == "leader":
            if row.after is None:
                self.leaders.pop(row.node, None)
            else:
                self.leaders[row.node] = int(row.after)
                self.n_leaders += 1
        elif subject.startswith("ddl-owner:"):
            self.dirty = row.step

    def _of_service(self, key: str, before: Any, after: Any) -> None:
        if key.startswith(keys.ASSIGNMENTS):
            self._assigned(key.removeprefix(keys.ASSIGNMENTS), before, after)
        elif key.startswith(keys.WORKERS):
            (self.alive.discard if after is None else self.alive.add)(key.removeprefix(keys.WORKERS))
        elif key.startswith(keys.REGISTERS):
            (self.registered.discard if after is None else self.registered.add)(key.removeprefix(keys.REGISTERS))
            self.dirty = -1

    def _assigned(self, cluster: str, before: Any, after: Any) -> None:
        if after is None:
            self.assigned.pop(cluster, None)
            return
        self.assigned[cluster] = after
        if before in self.alive:
            self.moves += 1
            self.returns += self.came_from.get(cluster) == after
            self.came_from[cluster] = before

    def _settle(self) -> None:
        """A step is over in which an owner came or went."""
        self.dirty = None
        found = self.monitor.owners
        for cluster in sorted(found):
            idle = cluster in self.registered and not found[cluster] and self.monitor.elected_of[cluster] > 0
            self.unowned.put(cluster, idle, self.at_us)


def narrative(rows: Iterable[Row]) -> list[Line]:
    """Give what happened, in order; what repeats at a stretch is one line."""
    lines = [line for row in rows if (line := _line(row))]
    out: list[Line] = []
    for (_, node, what), same in groupby(lines, key=lambda line: (line.because, line.node, line.what)):
        found = list(same)
        out.append(found[0]._replace(node=node, what=f"{what} (x{len(found)})" if len(found) > 1 else what))
    return out


def last_state(facts: ServiceFacts, end_us: int) -> list[str]:
    """Say who leads, which clusters each worker owns, and how jobs stand."""
    lines = [
        f"leader {facts.leader or 'none'}; {len(facts.registered)} clusters are registered, "
        f"{sum(len(facts.owners(c)) == 1 for c in facts.registered)} owned; "
        f"{shown(facts.unowned.until(end_us))} without owner"
    ]
    for worker in sorted(facts.alive):
        own = sorted(c for c, w in facts.assigned.items() if w == worker)
        lines.append(f"{worker}: {len(own)} clusters" + (f" ({listed(own)})" if own else ""))
    counts = {s: sum(j.state == s for j in facts.jobs()) for s in sorted({j.state for j in facts.jobs()})}
    return [*lines, "jobs: " + (", ".join(f"{n} {state}" for state, n in counts.items()) or "none")]


def _line(row: Row) -> Line | None:
    if row.kind == "changed" and row.subject:
        what = _stored(row, row.subject) if row.node == PD or row.node.startswith("tikv://") else _changed(row)
        return Line(row.time_us, row.node, what, str(row.because or "")) if what else None
    if row.kind == "asked":
        return Line(row.time_us, row.node, f"is asked: {_asked(row.message)}", "")
    if row.kind == "ignored":
        return None if hasattr(row.message, "tag") else common.line_of(row)
    return common.line_of(row)


def _asked(command: object) -> str:
    fields: dict[str, object] = getattr(command, "_asdict", dict)()
    given = ", ".join(f"{name} {value}" for name, value in fields.items() if value not in ("", None, 0))
    return type(command).__name__ + (f" ({given})" if given else "")


def _changed(row: Row) -> str:
    subject = row.subject or ""
    if subject == "leader":
        return "leads no more" if row.after is None else f"leads (campaign of revision {row.after})"
    if subject.startswith("ddl-owner:"):
        cluster = subject[10:]
        return f"owns {cluster} no more" if row.after is None else f"owns the DDL of {cluster} as {row.after}"
    if subject == "schema":
        if row.after is None:
            return "serves no cluster"
        return f"serves with schema version {row.after}"
    return ""


def _stored(row: Row, key: str) -> str:
    if key.startswith(keys.ASSIGNMENTS):
        cluster = key.removeprefix(keys.ASSIGNMENTS)
        return f"{cluster}: {row.before or 'nobody'} -> {row.after or 'nobody'}"
    if key.startswith(keys.WORKERS) and (row.before is None or row.after is None):
        return f"{key.removeprefix(keys.WORKERS)} is {'gone' if row.after is None else 'registered'}"
    if key.startswith(keys.REGISTERS):
        return f"{key.removeprefix(keys.REGISTERS)} is {'unregistered' if row.after is None else 'registered'}"
    if key.startswith(keys.HISTORY) and row.after is not None:
        job = records.job(str(row.after))
        return f"job {job.id}, {job.kind} {job.element}, is {job.state}" + (f": {job.error}" if job.error else "")
    if key.startswith(keys.SCHEMA):
        return f"{key.removeprefix(keys.SCHEMA)}: {row.before or 'none'} -> {row.after or 'none'}"
    return ""
