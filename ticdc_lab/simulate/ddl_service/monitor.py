"""The auditor of the service: who really owns the DDL of what, which schemas are really in use, what jobs really did.

It believes no message: it reads the states of the nodes. One that is paused or down owns and serves nothing.
Once nothing has gone wrong for a while more is required (:func:`unsettled`): clusters owned, balanced, no job left.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from ticdc_lab.ddl_core import jobs, keys, records
from ticdc_lab.ddl_core.checks import (
    BALANCED,
    ENDS_WELL,
    HIDDEN,
    IN_ORDER,
    KEPT,
    NEIGHBOURS,
    ONE_OWNER,
    ONE_UPGRADE,
    OWN_IDS,
    OWN_VARIABLES,
    OWNED,
    SERVED,
    SUPPORTED,
    WHOLE,
    Found,
    apart,
    safe_ts,
    wrong_step,
)  # fmt: skip
from ticdc_lab.ddl_core.fleet import IS_UP, FleetLedger
from ticdc_lab.ddl_core.infosyncer import versions_told
from ticdc_lab.ddl_core.keys import PD, store_of
from ticdc_lab.ddl_core.server_state import Schema, ServerState
from ticdc_lab.ddl_core.settings import SUPPORTED as CURRENT
from ticdc_lab.ddl_core.settings import Versions, unsupported
from ticdc_lab.ddl_core.store import DdlStore, DdlStoreState
from ticdc_lab.ddl_core.sysvars import BATCH, VARIABLES, WORKERS
from ticdc_lab.ddl_core.worker_state import WorkerState
from ticdc_lab.machines.ledger import Total
from ticdc_lab.machines.machine import Address, Changed, node_of
from ticdc_lab.simulate.ddl_service.world import ServiceSettings, cluster_of
from ticdc_lab.simulate.kernel import Kernel
from ticdc_lab.simulate.reading import shown
from ticdc_lab.simulate.scheduler import narrative as common
from ticdc_lab.simulate.scheduler.narrative import Line, listed
from ticdc_lab.simulate.trace import Row


def unsettled(kernel: Kernel, settings: ServiceSettings) -> Found:
    """Give what is not as it should be, at the end of a run whose faults are long over."""
    states = {a: s for a, s in kernel.states.items() if a not in kernel.down and a not in kernel.paused}
    workers = {a: s for a, s in sorted(states.items()) if isinstance(s, WorkerState)}
    service = kernel.states[PD]
    registered = sorted(k.removeprefix(keys.REGISTERS) for k in service.keys if k.startswith(keys.REGISTERS))
    assigned = Counter(e.value for k, e in sorted(service.keys.items()) if k.startswith(keys.ASSIGNMENTS))
    counts = [assigned[s.node] for s in workers.values()]
    if workers and max(counts) - min(counts) > 1:
        return BALANCED, f"workers have {counts} clusters"
    for cluster in registered:
        entry = service.keys.get(keys.ASSIGNMENTS + cluster)
        owners = [s.node for s in workers.values() if _owns(s, cluster)]
        if any(_has_ddl(s, cluster) for s in states.values()):
            continue  # a tidb-server campaigned first: the worker that is assigned to it stays CAMPAIGNING
        if workers and (entry is None or owners != [entry.value]):
            return OWNED, f"{cluster} is assigned to {entry.value if entry else 'nobody'} and owned by {owners}"
        left = sorted(k for k in kernel.states[store_of(cluster)].keys if k.startswith(keys.JOBS))
        if workers and left:
            record = records.job(kernel.states[store_of(cluster)].keys[left[0]].value)
            return ENDS_WELL, f"{cluster} still has {len(left)} jobs, the first {record}"
    idle = [a for a, s in sorted(states.items()) if isinstance(s, ServerState) and s.serves is None]
    return (SERVED, f"{idle[0]} serves no cluster") if idle else None


def _owns(state: WorkerState, cluster: str) -> bool:
    return cluster in state.owners and state.owners[cluster].status == records.IS_OWNER


def _has_ddl(state: object, cluster: str) -> bool:
    own = state.ddl if isinstance(state, ServerState) else None
    return own is not None and own.cluster == cluster and own.status == records.IS_OWNER


FRESH_US = 10_000_000
"""For so long what was set before may still be worked with: longer than an owner can be one and hear nothing."""

INVARIANTS = (
    ONE_OWNER, NEIGHBOURS, IN_ORDER, OWN_IDS, HIDDEN, KEPT, SUPPORTED, WHOLE, OWN_VARIABLES, ONE_UPGRADE,
    ENDS_WELL, BALANCED, OWNED, SERVED,
)  # fmt: skip
"""All there are; the last four are of a quiet service (:func:`unsettled`)."""


@dataclass(slots=True)
class ServiceMonitor:
    """Watches one run."""

    versions: Versions = CURRENT  # what the service supports
    # Addresses of the workers that own the DDL of each cluster.
    owners: dict[str, list[Address]] = field(default_factory=lambda: defaultdict(list))
    # What each server serves with, by cluster.
    schemas: dict[str, dict[Address, Schema]] = field(default_factory=lambda: defaultdict(dict))
    # The last record of each job, by store and id.
    known: dict[tuple[Address, int], records.Job] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)  # which cluster has each ``ddl_id``
    # Values of a variable by store and name, and when each was replaced; None for the one that is set.
    values: dict[tuple[Address, str], dict[int, int | None]] = field(default_factory=dict)
    # Servers that upgrade the meta, by cluster.
    upgrading: dict[str, set[Address]] = field(default_factory=lambda: defaultdict(set))
    # How often a worker became the owner of a cluster, in all and by cluster.
    elected: int = 0
    elected_of: Counter[str] = field(default_factory=Counter)

    def saw(self, kernel: Kernel, at: Address, before: Any, after: Any, outputs: Sequence[Any]) -> Found:
        if isinstance(after, ServerState):
            old = before.serves if before is not None else None
            if before is not None and before.ddl is not after.ddl and (found := self._campaigns(kernel, at, outputs)):
                return found
            if before is not None and before.reads != after.reads and (found := self._reads(kernel, at, outputs)):
                return found
            if before is not None and before.upgrading != after.upgrading and (found := self._upgrades(at, after)):
                return found
            return self._serves(at, after) if after.serves is not old else None
        if not isinstance(after, DdlStoreState):
            return self._campaigns(kernel, at, outputs)
        found = None
        for output in outputs:
            if type(output) is Changed:
                found = found or self._written(kernel, at, after, output)
        return found

    def _campaigns(self, kernel: Kernel, at: Address, outputs: Sequence[Any]) -> Found:
        found: Found = None
        for output in outputs:
            if type(output) is Changed and output.subject.startswith("ddl-owner:"):
                found = found or self._owned(kernel, at, output.subject[10:], output.after)
        return found

    def _reads(self, kernel: Kernel, at: Address, outputs: Sequence[Any]) -> Found:
        """A transaction that commits has read as of its start_ts up to now."""
        state = kernel.states[kernel.address[store_of(cluster_of(at))]]
        for output in outputs:
            if type(output) is Changed and output.subject.startswith("transaction:") and output.after == "committed":
                start_ts = int(output.subject.partition(":")[2])
                if safe_ts(state) > start_ts:
                    return KEPT, f"a transaction of {at} reads as of {start_ts}, and GC has come to {safe_ts(state)}"
        return None

    def went_down(self, kernel: Kernel, at: Address, state: Any) -> Found:
        if isinstance(state, WorkerState):
            for cluster, owners in sorted(self.owners.items()):
                if at in owners:
                    self._owned(kernel, at, cluster, None)
        elif isinstance(state, ServerState):
            self._owned(kernel, at, cluster_of(at), None)
            self.schemas[cluster_of(at)].pop(at, None)
            self.upgrading[cluster_of(at)].discard(at)
        return None

    def came_up(self, kernel: Kernel, at: Address, state: Any) -> Found:
        found: Found = None
        if isinstance(state, ServerState):
            own = state.ddl
            if own is not None and own.status == records.IS_OWNER:
                found = self._owned(kernel, at, own.cluster, own.ddl_id)
            return found or self._serves(at, state)
        if isinstance(state, WorkerState):
            for cluster, own in sorted(state.owners.items()):
                if own.status == records.IS_OWNER and at not in self.owners[cluster]:
                    found = self._owned(kernel, at, cluster, own.ddl_id) or found
        return found

    def _owned(self, kernel: Kernel, at: Address, cluster: str, ddl_id: Any) -> Found:
        owners = self.owners[cluster]
        if ddl_id is None:
            if at in owners:
                owners.remove(at)
            return None
        if at in owners:
            return None
        self.elected += 1
        self.elected_of[cluster] += 1
        owners.append(at)
        if len(owners) > 1:
            return ONE_OWNER, f"{owners[0]} and {at} both own the DDL of {cluster}"
        if self.ids.setdefault(str(ddl_id), cluster) != cluster:
            return OWN_IDS, f"{ddl_id} is the DDL id of {self.ids[str(ddl_id)]} and of {cluster}"
        return None

    def _serves(self, at: Address, state: ServerState) -> Found:
        serving = self.schemas[cluster_of(at)]
        serving.pop(at, None)
        if state.serves is None:
            return None
        for other, schema in sorted(serving.items()):
            far = apart(schema, state.serves)
            if far:
                element, a, b = far
                return NEIGHBOURS, f"{element} is {a} on {other} and {b} on {at}"
        serving[at] = state.serves
        return None

    def _upgrades(self, at: Address, state: ServerState) -> Found:
        busy = self.upgrading[cluster_of(at)]
        (busy.add if state.upgrading else busy.discard)(at)
        return (ONE_UPGRADE, f"{' and '.join(sorted(busy))} upgrade the meta at once") if len(busy) > 1 else None

    # What is in a store

    def _written(self, kernel: Kernel, at: Address, state: DdlStoreState, change: Changed) -> Found:
        key, now_us = change.subject, kernel.now_us
        if key.startswith((keys.JOBS, keys.HISTORY)) and change.after is not None:
            job = records.job(str(change.after))
            before = self.known.get((at, job.id))
            self.known[at, job.id] = job
            if before is not None and job.row_count > before.row_count and job.batch:
                ended_us = self._values(at, BATCH).get(job.batch, -FRESH_US)
                if ended_us is not None and now_us - ended_us > FRESH_US:
                    return (
                        OWN_VARIABLES,
                        f"job {job.id} in {at} took {job.batch} rows at a time, which is not set there",
                    )
                if job.workers not in self._values(at, WORKERS):  # a session keeps what was set when it began
                    return OWN_VARIABLES, f"job {job.id} in {at} had {job.workers} workers, which was never set there"
            return None if before is None else wrong_step(before, job, safe_ts(state), self.versions, at)
        if key.startswith(keys.SYSVARS) and change.after is not None:
            known = self._values(at, key.removeprefix(keys.SYSVARS))
            known |= {value: now_us for value, ended_us in known.items() if ended_us is None}
            known[int(str(change.after))] = None
        if key.startswith(keys.REGISTERS) and change.after is not None:
            # Neither the version noted for a cluster nor the one in its own store may be one that is not served.
            cluster = records.cluster(str(change.after))
            store = kernel.states.get(cluster.identity)
            told = versions_told(store.keys) if isinstance(store, DdlStoreState) else ()
            errors = (unsupported(version, self.versions) for version in (cluster.version, *told))
            return next(((SUPPORTED, f"{key} is registered, and {error}") for error in errors if error), None)
        if not at.startswith("tikv://"):
            return None  # in its own cluster a worker is seen as every instance is
        if key.startswith(keys.SERVER_INFO + keys.SERVICE_ID):
            return HIDDEN, f"{key} shows where a worker of the service is"
        if key.startswith(keys.TOPOLOGY) and not key.startswith(keys.TOPOLOGY + "cluster"):
            return HIDDEN, f"{key} shows a worker of the service to TiDB-Dashboard"
        if keys.SERVICE_ID in key:
            own = keys.cluster_of(key[key.index(keys.SERVICE_ID) :])
            if f"tikv://{own}:2379" != at:
                return OWN_IDS, f"{key}, of {own}, is in the store {at}"
        return None

    def _values(self, at: Address, name: str) -> dict[int, int | None]:
        return self.values.setdefault((at, name), {int(VARIABLES[name].default): None})


# What is so at a moment of a run: who leads, who is to own and who owns what, how jobs stand; kept row by row.
#
# The auditor (:mod:`.monitor`) judges owners and jobs, which reads the nodes themselves.
# Events become sentences (:func:`narrative`), and so does the end (:func:`last_state`).


_LIVES = frozenset({"started", "restarted", "crashed", "paused", "resumed"})


@dataclass(slots=True)
class ServiceFacts:
    """The present of a run."""

    # The world, from its beginning on.
    settings: ServiceSettings = field(default_factory=ServiceSettings)
    kernel: Kernel | None = None
    changes: int = 0
    # Which clusters are registered, to whom each is assigned, which workers are there, and who leads.
    ledger: FleetLedger = field(default_factory=FleetLedger)
    came_from: dict[str, str] = field(default_factory=dict)
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
        self.ledger.registered |= {
            k.removeprefix(keys.REGISTERS) for k, _ in service.first if k.startswith(keys.REGISTERS)
        }

    def see(self, row: Any) -> None:
        if self.dirty is not None and row.step != self.dirty:
            # A step is over in which an owner came or went.
            self.dirty = None
            found = self.monitor.owners
            for cluster in sorted(found):
                idle = cluster in self.ledger.registered and not found[cluster] and self.monitor.elected_of[cluster] > 0
                self.unowned.put(cluster, idle, self.at_us)
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
        else:
            self.other[kind] += 1
        if kind == "changed" or kind in _LIVES:
            self.ledger.take(row.time_us, row.node, kind, row.peer, row.subject, row.before, row.after, row.because)

    @property
    def monitor(self) -> ServiceMonitor:
        assert self.kernel is not None and isinstance(self.kernel.auditor, ServiceMonitor)
        return self.kernel.auditor

    def owners(self, cluster: str) -> list[str]:
        return sorted(node_of(a) for a in self.monitor.owners.get(cluster, ()))

    @property
    def loads(self) -> dict[str, int]:
        """How many clusters are assigned to each registered worker."""
        counts = Counter(self.ledger.assigned.values())
        return {worker: counts[worker] for worker in self.ledger.workers}

    def jobs(self, cluster: str | None = None) -> list[records.Job]:
        """Give the jobs, of one cluster or of all, as they stand."""
        store = None if cluster is None else store_of(cluster)
        return [job for (at, _), job in sorted(self.monitor.known.items()) if store in (None, at)]

    @property
    def left(self) -> list[records.Job]:
        """The jobs of registered clusters that have not ended; without registration they do not run."""
        stores = {store_of(c) for c in self.ledger.registered}
        known = sorted(self.monitor.known.items())
        return [job for (at, _), job in known if at in stores and job.state not in records.ENDS]

    def states(self, cluster: str, element: str) -> dict[str, str]:
        """Give the schema state of an element on every server that serves; it is none where no server has it."""
        serving = self.monitor.schemas.get(cluster, {})
        return {node_of(a): s.elements.get(element, jobs.NONE) for a, s in sorted(serving.items())}

    def unsettled(self) -> Found:
        """Give what is not as it should be of a service that is quiet."""
        assert self.kernel is not None
        return unsettled(self.kernel, self.settings)

    def _changed(self, row: Any) -> None:
        subject: str = row.subject
        self.changes += 1
        if row.node == PD and subject.startswith(keys.ASSIGNMENTS):
            cluster = subject.removeprefix(keys.ASSIGNMENTS)
            if row.after is not None and self.ledger.alive.state((row.before, IS_UP)):
                self.moves += 1
                self.returns += self.came_from.get(cluster) == row.after
                self.came_from[cluster] = row.before
        elif row.node == PD and subject.startswith(keys.REGISTERS):
            self.dirty = -1
        elif subject == "leader":
            self.n_leaders += row.after is not None
        elif subject.startswith("ddl-owner:"):
            self.dirty = row.step


def narrative(rows: Iterable[Row]) -> list[Line]:
    """Give what happened, in order; what repeats at a stretch is one line."""
    lines = [line for row in rows if (line := _line(row))]
    out: list[Line] = []
    for (_, node, what), same in groupby(lines, key=lambda line: (line.because, line.node, line.what)):
        found = list(same)
        out.append(found[0]._replace(node=node, what=f"{what} (x{len(found)})" if len(found) > 1 else what))
    return out


def last_state(facts: ServiceFacts, end_us: int) -> list[str]:
    """Describe who leads, which clusters each worker owns, and how jobs stand."""
    registered, assigned = facts.ledger.registered, facts.ledger.assigned
    lines = [
        f"leader {facts.ledger.leader or 'none'}; {len(registered)} clusters are registered, "
        f"{sum(len(facts.owners(c)) == 1 for c in registered)} owned; "
        f"{shown(facts.unowned.until(end_us))} without owner"
    ]
    for worker in facts.ledger.workers:
        own = sorted(c for c, w in assigned.items() if w == worker)
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
