"""Registering and unregistering clusters, and reading who is registered: decided by the store, not by a mirror.

Each change is a transaction that holds only while everything it was decided from is as it was read. Every PD address
that was ever registered has a key with the *store* it belongs to, the cluster's own name in the service: it stays the
same if addresses are added, dropped or written in another order, and two clusters can never share an address.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.ddl_core import keys, records
from ticdc_lab.ddl_core.connection import (
    Mirror,
    Part,
    asked,
    clock,
    mirrored,
    reading,
    reading_elsewhere,
    unchanged,
)
from ticdc_lab.ddl_core.infosyncer import versions_told
from ticdc_lab.ddl_core.records import ClusterRecord
from ticdc_lab.ddl_core.settings import Duties, Versions, by_age, serving, unsupported
from ticdc_lab.ddl_core.store import Compare, Delete, Done, Found, Op, Put, Snapshot, StoredEntry
from ticdc_lab.ddl_core.worker_state import (
    PREFIXES,
    Look,
    LookAtJobs,
    Register,
    Unregister,
    Wish,
    WorkerState,
)
from ticdc_lab.machines.machine import Now, Output, Told

DONE, SEEN = "done", "seen"
REFUSED, CONFLICT, ABSENT, LATE, UNKNOWN, NO_SESSION = (
    "refused", "conflict", "absent", "late", "unknown", "no session",
)  # fmt: skip
"""How a wish can end. Only after ``unknown`` may it have been carried out without an answer."""
_READ = (keys.REGISTERS, keys.PDS, keys.WORKERS)
_OF_VERSION = (keys.SERVER_INFO, keys.BOOTSTRAPPED)
_OF_CLUSTER = {
    "version": "Nothing was written. Check that the cluster answers, or give its version: --version v8.5.0",
    "jobs": "Check that the cluster answers, or remove it with --force",
}
"""What a cluster's own store is asked for, and what to do where it does not answer."""
_AT_ONCE = 3
"""So often a wish whose ground has changed is tried again at once; then at the next tick."""


class WishOutcome(NamedTuple):
    """What came of a wish: ``kind`` is one of the words above."""

    kind: str
    because: str = ""
    hint: str = ""
    cluster: ClusterRecord | None = None
    seen: Mirror | None = None


class WishWrite(NamedTuple):
    """The transaction that carries a wish out."""

    compares: tuple[Compare, ...]
    ops: tuple[Op, ...]
    cluster: ClusterRecord | None = None


Command: TypeAlias = Register | Unregister | Look | LookAtJobs


# The rules


def addresses(store_addr: str) -> list[str]:
    """Give the PDs of a ``store_addr``."""
    return store_addr.removeprefix("tikv://").split(",")


def decided(
    command: Register | Unregister,
    entries: tuple[tuple[str, StoredEntry], ...],
    versions: Versions,
    told: tuple[str, ...] = (),
) -> WishWrite | WishOutcome:
    """Decide a wish from all registered clusters, known PDs and workers as they are.

    Which worker is asked makes no difference, in the midst of an upgrade neither: what one of them can serve is
    registered. ``versions`` counts where no worker is known; ``told`` are those that the cluster itself has.
    """
    found, pds = _under(entries, keys.REGISTERS), _under(entries, keys.PDS)
    own = found.get(command.cluster)
    same = unchanged(keys.REGISTERS + command.cluster, own)
    if isinstance(command, Register):
        workers = Map(_under(entries, keys.WORKERS))
        decision = _registered(command, found, pds, set(serving(workers).values()) or {versions}, told, same)
        return _unless_misread(decision, workers)
    if own is None:
        because = f"{command.cluster} is not registered"
        return WishOutcome(ABSENT, because, "GET /ddlservice/registered_clusters lists all.")
    return WishWrite((same,), (Delete(keys.REGISTERS + command.cluster),))


def _under(entries: tuple[tuple[str, StoredEntry], ...], prefix: str) -> dict[str, StoredEntry]:
    return {k.removeprefix(prefix): e for k, e in entries if k.startswith(prefix)}


def _stores(command: Register, before: ClusterRecord | None, pds: dict[str, StoredEntry]) -> dict[str, str]:
    """Give the stores that a cluster is known by, which should be one, and of each a PD that it has; empty if new."""
    known = {pds[a].value: a for a in addresses(command.store_addr) if a in pds}
    return known | ({before.identity: ""} if before else {})


def store_to_ask(command: Register, entries: tuple[tuple[str, StoredEntry], ...]) -> str:
    """Give the store of a cluster that is to be registered."""
    own = _under(entries, keys.REGISTERS).get(command.cluster)
    before = records.cluster(own.value) if own else None
    return next(iter(_stores(command, before, _under(entries, keys.PDS))), command.store_addr)


def _refused(version: str, fleet: Set[Versions]) -> WishOutcome | None:
    if not all(unsupported(version, v) for v in fleet):
        return None
    served = Versions(max((v.own for v in fleet), key=by_age), min((v.oldest for v in fleet), key=by_age))
    because = unsupported(version, served) or f"no worker supports version {version}"
    return WishOutcome(REFUSED, because, f"This service supports clusters from {served.oldest} to {served.own}.")


def _registered(
    command: Register,
    found: dict[str, StoredEntry],
    pds: dict[str, StoredEntry],
    fleet: Set[Versions],
    told: tuple[str, ...],
    same: Compare,
) -> WishWrite | WishOutcome:
    registered = {name: records.cluster(e.value) for name, e in found.items()}
    before = registered.get(command.cluster)
    untold = before.version if before else min((v.own for v in fleet), key=by_age)
    versions = (command.version,) if command.version else told or (untold,)
    for version in versions:
        if refusal := _refused(version, fleet):
            return refusal
    wanted = addresses(command.store_addr)
    stores = _stores(command, before, pds)
    store = next(iter(stores), command.store_addr)
    for other, known in sorted(registered.items()):
        shared = sorted(set(wanted) & set(addresses(known.store_addr)))
        if other != command.cluster and (shared or known.identity in {store, *stores}):
            at = shared[0] if shared else stores.get(known.identity) or command.store_addr
            return WishOutcome(CONFLICT, f"the cluster at {at} is registered as {other}", f"Unregister {other} first.")
    if len(stores) > 1:
        one, two = sorted(stores)[:2]
        return WishOutcome(
            CONFLICT, f"{command.store_addr} has PDs of two clusters: of that at {one}, and of that at {two}",
            "Register each by itself; unregister a cluster before its id is given to another.",
        )  # fmt: skip
    cluster = ClusterRecord(command.store_addr, versions[-1], store)
    unknown = [a for a in addresses(before.store_addr) if a not in pds] if before else []  # of an earlier version
    touched = dict.fromkeys([*wanted, *unknown, *sorted(a for a, e in pds.items() if e.value == store)[:1]])
    compares = [same, *(unchanged(keys.PDS + a, pds.get(a)) for a in touched)]
    ops = [
        Put(keys.REGISTERS + command.cluster, records.written(cluster)),
        *(Put(keys.PDS + a, store) for a in touched),
    ]
    return WishWrite(tuple(compares), tuple(ops), cluster)


def _unless_misread(decision: WishWrite | WishOutcome, workers: Part) -> WishWrite | WishOutcome:
    """Refuse what a worker of an earlier version would take for another cluster: it knows a store by its addresses."""
    earlier = sorted(name for name, e in workers.items() if not records.worker(e.value).oldest)
    own = decision.cluster
    if own is None or not earlier or own.store == own.store_addr:
        return decision
    because = (
        f"{earlier[0]} is of an earlier version, and would take {own.store_addr} for another cluster than {own.store}"
    )
    return WishOutcome(REFUSED, because, "Upgrade all workers; then change addresses.")


# How a worker carries wishes out: read, decide, write under what was read; again where that has changed meanwhile


def wished(state: WorkerState, command: Command, now: Now) -> tuple[WorkerState, list[Output]]:
    """Take what a user asks for; without a session the user is sent to another worker."""
    if not state.service.is_ready:
        return state, [Told(command, WishOutcome(NO_SESSION, f"{state.node} has no session with the service"))]
    name = str(state.wished + 1)
    wishes = state.wishes.set(name, Wish(command, clock(now)))
    return _asked(state._replace(wished=state.wished + 1, wishes=wishes), name, now)


def _asked(state: WorkerState, name: str, now: Now) -> tuple[WorkerState, list[Output]]:
    wish = state.wishes[name]
    prefixes = PREFIXES if isinstance(wish.command, Look) else _READ
    link, outputs = reading(state.service, f"read {name}", prefixes, now)
    wish = wish._replace(doing="read", tries=wish.tries + 1)
    return state._replace(service=link, wishes=state.wishes.set(name, wish)), outputs


def went_on(state: WorkerState, message: Found | Done, duties: Duties, now: Now) -> tuple[WorkerState, list[Output]]:
    """Take the store's answer to a wish, if it is one."""
    what: str = message.tag[2]  # type: ignore[index]
    name = what.rpartition(" ")[2]
    wish: Wish | None = state.wishes.get(name)
    if wish is None or what != f"{wish.doing} {name}":
        return state, []
    if isinstance(message, Found) and wish.doing == "version":
        return _judged(state, name, versions_told(dict(message.entries)), duties, now)
    if isinstance(message, Found) and wish.doing == "jobs":
        if isinstance(wish.command, LookAtJobs):
            return _told(state, name, WishOutcome(SEEN, seen=_mirror(job_prefixes(wish.command.job), message)))
        # Let a cluster go where nothing is in its queue; a job that comes later waits there for the next owner.
        if not message.entries:
            return _written(state, name, now)
        job = min((records.job(e.value) for _, e in message.entries), key=lambda j: j.id)
        assert isinstance(wish.command, Unregister)
        because = f"{wish.command.cluster} has a job in its queue: job {job.id}, {job.kind} ({job.state})"
        hint = "Wait until it has ended; with force its jobs stay in its queue, for whoever owns its DDL next."
        return _told(state, name, WishOutcome(CONFLICT, because, hint))
    if isinstance(message, Found):
        return _read(state, name, message, duties, now)
    if message.succeeded:
        return _told(state, name, WishOutcome(DONE, cluster=wish.write.cluster))
    if wish.tries < _AT_ONCE:
        return _asked(state, name, now)
    return state._replace(wishes=state.wishes.set(name, wish._replace(doing="wait"))), []


def _read(state: WorkerState, name: str, found: Found, duties: Duties, now: Now) -> tuple[WorkerState, list[Output]]:
    wish: Wish = state.wishes[name]
    if isinstance(wish.command, Look):
        return _told(state, name, WishOutcome(SEEN, seen=_mirror(PREFIXES, found)))
    if isinstance(wish.command, LookAtJobs):
        entry = dict(found.entries).get(keys.REGISTERS + wish.command.cluster)
        if entry is None:
            return _told(
                state, name, WishOutcome(ABSENT, f"{wish.command.cluster} is not registered", "The list has all.")
            )
        return _asks(state, name, "jobs", records.cluster(entry.value).identity, job_prefixes(wish.command.job))
    state = state._replace(wishes=state.wishes.set(name, wish._replace(seen=found.entries)))
    if isinstance(wish.command, Register) and not wish.command.version:
        return _asks(state, name, "version", store_to_ask(wish.command, found.entries), _OF_VERSION)
    return _judged(state, name, (), duties, now)


def _judged(
    state: WorkerState, name: str, told: tuple[str, ...], duties: Duties, now: Now
) -> tuple[WorkerState, list[Output]]:
    """Decide on a change, from what was read and from the versions that the cluster itself has reported."""
    wish: Wish = state.wishes[name]
    command = wish.command
    assert isinstance(command, Register | Unregister)
    decision = decided(command, wish.seen, duties.versions, told)
    if isinstance(decision, WishOutcome):
        return _told(state, name, decision)
    state = state._replace(wishes=state.wishes.set(name, wish._replace(write=decision)))
    if not isinstance(command, Unregister) or not command.if_idle:
        return _written(state, name, now)
    own = dict(wish.seen)[keys.REGISTERS + command.cluster]
    return _asks(state, name, "jobs", records.cluster(own.value).identity, (keys.JOBS,))


def _asks(
    state: WorkerState, name: str, doing: str, store: str, prefixes: tuple[str, ...]
) -> tuple[WorkerState, list[Output]]:
    """Ask the store of a cluster; one that cannot be reached is waited for by the wish alone."""
    wishes = state.wishes.set(name, state.wishes[name]._replace(doing=doing, store=store))
    return state._replace(wishes=wishes), [reading_elsewhere(state.service, f"{doing} {name}", prefixes, store)]


def _mirror(prefixes: tuple[str, ...], found: Found) -> Mirror:
    return mirrored(prefixes, Snapshot(found.tag, found.revision, found.entries))


def job_prefixes(job: int) -> tuple[str, ...]:
    """Give what is read of a cluster's store for its queue, or for one job."""
    own = (f"{keys.JOBS}{job}", f"{keys.HISTORY}{job}") if job else (keys.JOBS,)
    return (*own, keys.VERSIONS, keys.GLOBAL_VERSION)


def _written(state: WorkerState, name: str, now: Now) -> tuple[WorkerState, list[Output]]:
    wish = state.wishes[name]
    link, outputs = asked(state.service, f"write {name}", wish.write.compares, wish.write.ops, now)
    wishes = state.wishes.set(name, wish._replace(doing="write"))
    return state._replace(service=link, wishes=wishes), outputs


def again(state: WorkerState, duties: Duties, now: Now) -> tuple[WorkerState, list[Output]]:
    """At a tick: try what waits once more, for as long as a lease; nothing of it has been written."""
    outputs: list[Output] = []
    for name, wish in sorted(state.wishes.items()):
        is_late, more = clock(now) - wish.since_us >= duties.terms.ttl_us, list[Output]()
        if wish.doing == "wait" and not is_late:
            state, more = _asked(state, name, now)
        elif wish.doing == "wait":
            because = "nothing was written: other changes came first each time, or the store takes none"
            state, more = _told(state, name, WishOutcome(LATE, because, "Ask again; is there room for the store?"))
        elif wish.doing in _OF_CLUSTER and is_late:
            because = f"the cluster at {wish.store} does not report its {wish.doing}"
            state, more = _told(state, name, WishOutcome(LATE, because, _OF_CLUSTER[wish.doing]))
        outputs += more
    return state, outputs


def given_up(state: WorkerState, because: str) -> list[Output]:
    """Answer waiting users that the session is over."""
    found: list[Output] = []
    for _, wish in sorted(state.wishes.items()):
        if wish.doing == "write":
            said = f"whether it was written is not known: {because}"
            found.append(Told(wish.command, WishOutcome(UNKNOWN, said, "Look at the list; asking again does no harm.")))
        else:
            said = f"nothing was written: {because}"
            found.append(Told(wish.command, WishOutcome(NO_SESSION, said, "Ask again, or another worker.")))
    return found


def _told(state: WorkerState, name: str, outcome: WishOutcome) -> tuple[WorkerState, list[Output]]:
    command = state.wishes[name].command
    return state._replace(wishes=state.wishes.delete(name)), [Told(command, outcome)]
