"""The small worlds that are explored: one cluster with its owners and servers, and one service with its workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ddl_small import Small, World

from ticdc_lab.ddl_core import keys, owner, records
from ticdc_lab.ddl_core.checks import (
    BALANCED,
    ENDS_WELL,
    NEIGHBOURS,
    ONE_OWNER,
    Found,
    apart,
    wrong_step,
)
from ticdc_lab.ddl_core.connection import answered
from ticdc_lab.ddl_core.leading import assign
from ticdc_lab.ddl_core.owner import OwnerState
from ticdc_lab.ddl_core.server import Server
from ticdc_lab.ddl_core.server_state import Habits, ServerState, Submit
from ticdc_lab.ddl_core.settings import DUTIES, SUPPORTED, Duties
from ticdc_lab.ddl_core.store import DdlStore, DdlStoreState, Done
from ticdc_lab.ddl_core.worker import Worker
from ticdc_lab.ddl_core.worker_state import WorkerState
from ticdc_lab.machines.machine import Address, Asked, Event, Ignored, Now, Output, Received

TIKV, PD = "tikv", "pd"


@dataclass(frozen=True, slots=True)
class Alone:
    """An owner by itself, as the machine of a node: what a worker does with the one cluster that it has."""

    duties: Duties

    def start(self, address: Address, now: Now) -> tuple[OwnerState, list[Output]]:
        """Begin a session with the cluster."""
        return owner.acted(owner.opened("c", TIKV, 1), self.duties, now)

    def step(self, state: OwnerState, event: Event, now: Now) -> tuple[OwnerState, list[Output]]:
        """Take an answer."""
        assert isinstance(event, Received)
        link = answered(state.link, event.message, self.duties.terms)
        if link is None:
            return state, [Ignored(event.message, "it answers an earlier session")]
        state = state._replace(link=link)
        if isinstance(event.message, Done):
            state = owner.settled(state, event.message)
        return owner.acted(state, self.duties, now)


def cluster_world(
    statement: Submit,
    *,
    owners: int = 2,
    servers: int = 1,
    expiries: int = 0,
    joins: int = 0,
    stops_at_once: bool = True,
) -> Small:
    """Give a cluster whose user has sent a statement.

    Parameters
    ----------
    statement
        The DDL.
    owners
        Workers that campaign to own it.
    servers, joins
        Servers, and how many of them join at any time.
    expiries
        Sessions, of whomever, that may end.
    stops_at_once
        See :class:`ddl_small.Small`.
    """
    duties, habits = Duties(batch_us=0), Habits()
    names = [f"tidb-{i + 1}" for i in range(servers)]
    nodes: list[tuple[str, Any]] = [(f"owner-{i + 1}", Alone(duties)) for i in range(owners)]
    nodes += [(name, Server(TIKV, habits)) for name in names]
    store = DdlStore(((keys.BOOTSTRAPPED, habits.version),))
    late = frozenset(names[servers - joins :])
    wishes = ((names[0], Asked(statement)),)
    return Small(TIKV, store, tuple(nodes), cluster_fault, expiries, late, stops_at_once, wishes)


def cluster_fault(before: World | None, after: World) -> Found:
    """Two owners, schema states that are no neighbours, jobs that go wrong ways, or do not end."""
    owning = [n.ddl_id for n in after.nodes if isinstance(n, OwnerState) and n.status == records.IS_OWNER]
    if len(owning) > 1:
        return ONE_OWNER, f"{owning[0]} and {owning[1]} are both owners"
    serving = [(n.address, n.serves) for n in after.nodes if isinstance(n, ServerState) and n.serves]
    for i, (name, schema) in enumerate(serving):
        for other, its in serving[i + 1 :]:
            if far := apart(schema, its):
                return NEIGHBOURS, f"{far[0]} is {far[1]} on {name} and {far[2]} on {other}"
    if before is None:
        left = [k for k in after.store.keys if k.startswith(keys.JOBS)]
        return (ENDS_WELL, "a job is left, and nothing happens") if left and owning else None
    if before.store is after.store:
        return None
    was = _jobs(before.store)
    steps = ((was[n], job) for n, job in sorted(_jobs(after.store).items()) if n in was)
    return next((found for a, b in steps if (found := wrong_step(a, b, 0, SUPPORTED, TIKV))), None)


def _jobs(store: DdlStoreState) -> dict[int, records.Job]:
    found = [records.job(e.value) for k, e in store.keys.items() if k.startswith((keys.JOBS, keys.HISTORY))]
    return {job.id: job for job in found}


def service_world(*, workers: int = 2, clusters: int = 2, expiries: int = 0, joins: int = 0) -> Small:
    """Give a service without its clusters' stores: election, assignment, and workers that come and go.

    Parameters
    ----------
    workers, joins
        Workers, and how many of them join at any time.
    clusters
        Registered ones.
    expiries
        Sessions that may end.
    """
    names = [f"node-{i + 1}" for i in range(workers)]
    registered = tuple(
        (f"{keys.REGISTERS}c{i + 1}", records.written(records.ClusterRecord(f"tikv://c{i + 1}:1", "v6.5.0")))
        for i in range(clusters)
    )
    nodes = tuple((name, Worker(name, PD, DUTIES)) for name in names)
    late = frozenset(names[workers - joins :])
    return Small(PD, DdlStore(registered), nodes, service_fault, expiries, late)


def service_fault(before: World | None, after: World) -> Found:
    """Two leaders, or, once it is quiet, clusters without a worker, on a lost one, or unevenly spread."""
    leading = [n.node for n in after.nodes if isinstance(n, WorkerState) and n.leads]
    if len(leading) > 1:
        return ONE_OWNER, f"{leading[0]} and {leading[1]} both lead"
    if before is not None or not leading:
        return None
    found = after.store.keys.items()
    current = {k.removeprefix(keys.ASSIGNMENTS): e.value for k, e in found if k.startswith(keys.ASSIGNMENTS)}
    clusters = [k.removeprefix(keys.REGISTERS) for k in after.store.keys if k.startswith(keys.REGISTERS)]
    alive = [n.node for n in after.nodes if n is not None]
    plan = assign(clusters, alive, current)
    return (BALANCED, f"it is quiet, and not balanced: {plan.because}") if plan.changes else None


INDEX = Submit("add index", "t", "i", rows=1)
COLUMN = Submit("add column", "t", "c")
FAILS = Submit("add index", "t", "i", rows=1, fails_at=0)
TABLE = Submit("create table", "t")
