"""The auditor of the service: who really owns the DDL of what, which schemas are really in use, what jobs really did.

It believes no message: it reads the states of the nodes. One that is paused or down owns and serves nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ticdc_lab.simulate.ddl_service import jobs, keys, records
from ticdc_lab.simulate.ddl_service.server_state import Schema, ServerState
from ticdc_lab.simulate.ddl_service.store import StoreState
from ticdc_lab.simulate.ddl_service.versions import SUPPORTED as CURRENT
from ticdc_lab.simulate.ddl_service.versions import Versions, unsupported
from ticdc_lab.simulate.ddl_service.worker_state import WorkerState
from ticdc_lab.simulate.ddl_service.world import cluster_of
from ticdc_lab.simulate.kernel import Kernel
from ticdc_lab.simulate.machine import Address, Changed

ONE_OWNER, NEIGHBOURS, IN_ORDER, OWN_IDS, HIDDEN, KEPT, SUPPORTED, WHOLE = (
    "One DDL Owner",
    "Neighbouring Schema States",
    "Jobs Go Step By Step",
    "Own DDL Ids",
    "Workers Stay Hidden",
    "GC Keeps What Is Read",
    "Supported Versions Only",
    "Indexes Are Whole",
)
ENDS_WELL, BALANCED, OWNED = "Every Job Ends", "Balanced When Quiet", "Every Cluster Is Owned"
INVARIANTS = (
    ONE_OWNER, NEIGHBOURS, IN_ORDER, OWN_IDS, HIDDEN, KEPT, SUPPORTED, WHOLE, ENDS_WELL, BALANCED, OWNED
)  # fmt: skip
Found = tuple[str, str] | None


@dataclass(slots=True)
class Monitor:
    """Watches one run.

    Attributes
    ----------
    versions
        What the service supports.
    owners
        Addresses of the workers that own the DDL of each cluster.
    schemas
        What each server serves with, by cluster.
    known
        The last record of each job, by store and id.
    ids
        Which cluster has each ``ddl_id``.
    ownerless_us
        Time in which a registered cluster had no owner, summed over clusters.
    elected, moves
        How often a worker became the owner of a cluster, and was told to stop.
    """

    versions: Versions = CURRENT
    owners: dict[str, list[Address]] = field(default_factory=lambda: defaultdict(list))
    schemas: dict[str, dict[Address, Schema]] = field(default_factory=lambda: defaultdict(dict))
    known: dict[tuple[Address, int], records.Job] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    since_us: dict[str, int] = field(default_factory=dict)
    ownerless_us: int = 0
    elected: int = 0

    def saw(self, kernel: Kernel, at: Address, before: Any, after: Any, outputs: Sequence[Any]) -> Found:
        """A node has taken a step."""
        if isinstance(after, ServerState):
            old = before.serves if before is not None else None
            return self._serves(at, after) if after.serves is not old else None
        is_store, found = isinstance(after, StoreState), None
        for output in outputs:
            if type(output) is not Changed:
                continue
            if is_store:
                found = found or self._written(at, after, output)
            elif output.subject.startswith("ddl-owner:"):
                found = found or self._owned(kernel, at, output.subject[10:], output.after)
        return found

    def went_down(self, kernel: Kernel, at: Address, state: Any) -> Found:
        """A node owns and serves nothing from now on."""
        if isinstance(state, WorkerState):
            for cluster, owners in sorted(self.owners.items()):
                if at in owners:
                    self._owned(kernel, at, cluster, None)
        elif isinstance(state, ServerState):
            self.schemas[cluster_of(at)].pop(at, None)
        return None

    def came_up(self, kernel: Kernel, at: Address, state: Any) -> Found:
        """A node goes on with what it had."""
        found: Found = None
        if isinstance(state, ServerState):
            return self._serves(at, state)
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
                self.since_us[cluster] = kernel.now_us
            return None
        if at in owners:
            return None
        self.elected += 1
        if not owners:
            self.ownerless_us += kernel.now_us - self.since_us.get(cluster, 0)
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
            far = _apart(schema, state.serves)
            if far:
                element, a, b = far
                return NEIGHBOURS, f"{element} is {a} on {other} and {b} on {at}"
        serving[at] = state.serves
        return None

    # What is in a store

    def _written(self, at: Address, state: StoreState, change: Changed) -> Found:
        key = change.subject
        if key.startswith((keys.JOBS, keys.HISTORY)) and change.after is not None:
            return self._job(at, state, records.job(str(change.after)))
        if key.startswith(keys.SERVER_INFO + keys.SERVICE_ID):
            return HIDDEN, f"{key} shows where a worker of the service is"
        if key.startswith(keys.TOPOLOGY) and not key.startswith(keys.TOPOLOGY + "cluster"):
            return HIDDEN, f"{key} shows a worker of the service to TiDB-Dashboard"
        if keys.SERVICE_ID in key and at.startswith("tikv://"):
            own = keys.cluster_of(key[key.index(keys.SERVICE_ID) :])
            if f"tikv://{own}:2379" != at:
                return OWN_IDS, f"{key}, of {own}, is in the store {at}"
        return None

    def _job(self, at: Address, state: StoreState, job: records.Job) -> Found:
        before = self.known.get((at, job.id))
        self.known[at, job.id] = job
        if before is None or before == job:
            return None
        where = f"job {job.id} in {at}"
        if job.row_count < before.row_count or job.schema_version < before.schema_version:
            return IN_ORDER, f"{where} fell back: {before.row_count} rows at version {before.schema_version}, now {job}"
        if before.state in records.ENDS:
            return IN_ORDER, f"{where} had ended ({before.state}), and is {job.state} again"
        states = before.schema_state or jobs.LADDERS.get(job.kind, ("",))[0], job.schema_state
        if states[1] and not jobs.neighbours(job.element, *states):
            return IN_ORDER, f"{where} went from {states[0]} to {states[1]}"
        if job.schema_version and unsupported(job.version, self.versions):
            return SUPPORTED, f"{where} runs, and {unsupported(job.version, self.versions)}"
        if job.schema_state == jobs.PUBLIC and job.kind in jobs.BACKFILLED and job.row_count < job.rows:
            return WHOLE, f"{where} is public with {job.row_count} of {job.rows} rows"
        entry = state.keys.get(keys.SAFE_POINT)
        safe_ts = int(entry.value) if entry else 0
        if job.row_count > before.row_count and job.snapshot_ts < safe_ts:
            return KEPT, f"{where} reads rows as of {job.snapshot_ts}, and GC has come to {safe_ts}"
        return None


def _apart(a: Schema, b: Schema) -> tuple[str, str, str] | None:
    """Give an element whose states are no neighbours."""
    if a.version == b.version:
        return None
    for element in sorted(set(a.elements) | set(b.elements)):
        own, other = a.elements.get(element, jobs.NONE), b.elements.get(element, jobs.NONE)
        if not jobs.neighbours(element, own, other):
            return element, own, other
    return None
