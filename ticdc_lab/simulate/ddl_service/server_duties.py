"""What a tidb-server does besides serving: bootstrap, GC, what it shows of itself, and its users' wishes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from immutables import Map

from ticdc_lab.simulate.ddl_service import infosyncer, keys, records, sysvars
from ticdc_lab.simulate.ddl_service.connection import asked, reading
from ticdc_lab.simulate.ddl_service.mirror import Mirror, unchanged, winner
from ticdc_lab.simulate.ddl_service.owner import snapshot_ts
from ticdc_lab.simulate.ddl_service.records import CANCELLING, DONE, QUEUEING, RUNNING, Job
from ticdc_lab.simulate.ddl_service.server_state import (
    Cancel,
    Habits,
    ServerState,
    SetVariable,
    ShowDdl,
    ShownDdl,
    Submit,
    Transact,
)
from ticdc_lab.simulate.ddl_service.store_messages import CREATE, Compare, Delete, Done, Entry, Found, Op, Put
from ticdc_lab.simulate.ddl_service.versions import parsed
from ticdc_lab.simulate.machine import Changed, Decided, Now, Output, Told, Wake
from ticdc_lab.simulate.scheduler.clock import ts_of

Txn = tuple[tuple[Compare, ...], tuple[Op, ...]]
WISHES = ("wish", "looks up", "shows")
"""What is asked of the store for a user: that it be written, whether it was, and what there is to show."""
_SHOWN = (keys.OWNER, keys.SERVER_INFO, keys.GLOBAL_VERSION, keys.JOBS)


def done(state: ServerState, mirror: Mirror, habits: Habits, now: Now) -> tuple[ServerState, list[Output]]:
    """Bootstrap if that is due, let GC go on behind transactions that have ended, and see to the first wish."""
    state, outputs = _bootstrapped(state, mirror, habits, now)
    state, more = _let_go(state, now)
    outputs = [*outputs, *more]
    if not state.wishes or state.serves is None or any(w in state.link.pending for w in WISHES):
        return state, outputs
    wish: Any = state.wishes[0]
    if isinstance(wish, ShowDdl):
        link, more = reading(state.link, "shows", _SHOWN, now)
        return state._replace(link=link), [*outputs, *more]
    if isinstance(wish, Submit) and not wish.request:
        wish = wish._replace(request=f"{state.ddl_id}-{state.sent + 1}")
        state = state._replace(wishes=(wish, *state.wishes[1:]), sent=state.sent + 1)
    txn: Txn | str
    if isinstance(wish, Transact):
        state, txn = _begun(state, mirror, now)
    else:
        txn = _wished(wish, mirror, habits, now)
    if isinstance(txn, str):
        return granted(state), [*outputs, Told(wish, txn)]
    link, more = asked(state.link, "wish", *txn, now)
    return state._replace(link=link), [*outputs, *more]


def granted(state: ServerState) -> ServerState:
    """Go on to the next wish."""
    return state._replace(wishes=state.wishes[1:])


def answered_wish(state: ServerState, message: Done | Found, now: Now) -> tuple[ServerState, list[Output]]:
    """Take the answer to a wish; which job a statement has become is looked up.

    One that could not be written may have been written before: its answer was lost with the session it was asked in.
    """
    wish: Any = state.wishes[0]
    if isinstance(message, Found) and isinstance(wish, ShowDdl):
        answer = shown_ddl(dict(message.entries))
        return granted(state), [Decided("admin show ddl", answer.told, "a user asked"), Told(wish, answer)]
    if isinstance(message, Found):
        found = dict(message.entries).get(keys.REQUESTS + wish.request)
        return (granted(state), [Told(wish, int(found.value))]) if found else (state, [])
    if isinstance(wish, Transact) and message.succeeded:
        return _open(granted(state), wish, now)
    if not isinstance(wish, Submit):
        return (granted(state), [Told(wish, DONE)]) if message.succeeded else (state, [])
    link, outputs = reading(state.link, "looks up", (keys.REQUESTS + wish.request,), now)
    return state._replace(link=link), outputs


def shown_ddl(entries: Mapping[str, Entry]) -> ShownDdl:
    """Give what ``admin show ddl`` shows, from what the cluster's store has of owner, servers, version and jobs.

    The owner's address is what it has published under its ``ddl_id``. A worker of a service publishes nothing
    (proposal, "Server Info in Etcd"): users of a cluster must not see where it is.
    """
    part = Map({k.removeprefix(keys.OWNER): e for k, e in entries.items() if k.startswith(keys.OWNER)})
    won = winner(part)
    owner_id = won[1].value if won else ""
    there = infosyncer.instances(entries)
    address = there[owner_id]["address"] if owner_id in there else ""
    queue = [records.job(e.value) for k, e in entries.items() if k.startswith(keys.JOBS)]
    running = tuple((job.id, job.kind, job.schema_state) for job in sorted(queue) if job.has_begun)
    version = entries.get(keys.GLOBAL_VERSION)
    shown = tuple(sorted({info["address"] for info in there.values()}))
    return ShownDdl(int(version.value) if version else 0, owner_id, address, running, shown)


# Bootstrap: a lock of its own, for the owner of the DDL may be in the service, which upgrades nobody's meta


def is_bootstrapped(mirror: Mirror, habits: Habits) -> bool:
    """Whether the meta is as new as this server's code."""
    there, own = parsed(mirror.value(keys.BOOTSTRAPPED) or "v0.0.0"), parsed(habits.version)
    assert there and own
    return there >= own


def _bootstrapped(state: ServerState, mirror: Mirror, habits: Habits, now: Now) -> tuple[ServerState, list[Output]]:
    if is_bootstrapped(mirror, habits) or state.upgrading:
        return state, []
    lock = mirror.under(keys.BOOTSTRAP_LOCK).get("")
    if lock is None:
        put = Put(keys.BOOTSTRAP_LOCK, state.ddl_id, state.link.lease)
        link, outputs = asked(state.link, "lock", (Compare(keys.BOOTSTRAP_LOCK, CREATE, 0),), (put,), now)
        return state._replace(link=link), outputs
    if lock.value != state.ddl_id:
        return state, []
    return state._replace(upgrading=True), [Wake(habits.bootstrap_us, "upgraded")]


def upgraded(state: ServerState, habits: Habits, now: Now) -> tuple[ServerState, list[Output]]:
    """Write the new version, if the lock is still its own."""
    if not state.upgrading or state.link.mirror is None:
        return state, []
    own = Compare(keys.BOOTSTRAP_LOCK, "value", state.ddl_id)
    ops = (Put(keys.BOOTSTRAPPED, habits.version), Delete(keys.BOOTSTRAP_LOCK))
    link, outputs = asked(state.link, "upgrade", (own,), ops, now)
    return state._replace(upgrading=False, link=link), outputs


# GC


def collected(state: ServerState, habits: Habits, now: Now) -> tuple[ServerState, list[Output]]:
    """Let GC go on to what no transaction and no backfill reads any more.

    Who begins to read says so under :data:`.keys.NEWEST_TS` too: GC that has not yet heard of it writes nothing.
    """
    mirror = state.link.mirror
    if mirror is None or not state.link.lease or now.at_us < habits.gc_life_us:
        return state, []
    held = [int(entry.value) for entry in mirror.under(keys.MIN_START_TS).values()]
    safe_ts = min([ts_of(now.at_us - habits.gc_life_us), *held])
    if safe_ts <= int(mirror.value(keys.SAFE_POINT) or "0"):
        return state, []
    same = tuple(unchanged(key, mirror.under(key).get("")) for key in (keys.SAFE_POINT, keys.NEWEST_TS))
    link, outputs = asked(state.link, "gc", same, (Put(keys.SAFE_POINT, str(safe_ts)),), now)
    return state._replace(link=link), outputs


# Transactions, which GC must not overtake


def _begun(state: ServerState, mirror: Mirror, now: Now) -> tuple[ServerState, Txn]:
    """Let GC keep what a transaction will read before it reads; one that has not heard of it writes nothing."""
    ts = snapshot_ts(mirror, now)
    same = tuple(unchanged(key, mirror.under(key).get("")) for key in (keys.NEWEST_TS, keys.SAFE_POINT))
    lowest = min([ts, *(start_ts for start_ts, _ in state.reads)])
    puts = (Put(keys.MIN_START_TS + state.ddl_id, str(lowest), state.link.lease), Put(keys.NEWEST_TS, str(ts)))
    return state._replace(asked_ts=ts), (same, puts)


def _open(state: ServerState, wish: Transact, now: Now) -> tuple[ServerState, list[Output]]:
    ts = state.asked_ts
    reads = (*state.reads, (ts, now.at_us + wish.for_us))
    state = state._replace(reads=reads, held_ts=min(start_ts for start_ts, _ in reads), asked_ts=0)
    return state, [Changed(f"transaction:{ts}", None, "open", ""), Wake(wish.for_us, ("commit", ts)), Told(wish, ts)]


def committed(state: ServerState, start_ts: int) -> tuple[ServerState, list[Output]]:
    """End a transaction that a session of before has not taken along."""
    left = tuple(one for one in state.reads if one[0] != start_ts)
    if left == state.reads:
        return state, []
    return state._replace(reads=left), [Changed(f"transaction:{start_ts}", "open", "committed", "")]


def _let_go(state: ServerState, now: Now) -> tuple[ServerState, list[Output]]:
    """Say from where on it reads now."""
    lowest = min((start_ts for start_ts, _ in state.reads), default=0)
    if lowest == state.held_ts or any(w in state.link.pending for w in (*WISHES, "reads")):
        return state, []
    key = keys.MIN_START_TS + state.ddl_id
    op: Op = Put(key, str(lowest), state.link.lease) if lowest else Delete(key)
    link, outputs = asked(state.link, "reads", (), (op,), now)
    return state._replace(link=link, held_ts=lowest), outputs


def alive(state: ServerState, habits: Habits, now: Now) -> tuple[ServerState, list[Output]]:
    """Say in the topology that it is alive (``topologySyncerKeeper``)."""
    again: list[Output] = [Wake(habits.topology_us, "topology")]
    if not state.link.lease or state.published < 0:
        return state, again
    link, outputs = infosyncer.kept_alive(state.link, state.address, now)
    return state._replace(link=link), [*again, *outputs]


# Wishes


def _wished(wish: Any, mirror: Mirror, habits: Habits, now: Now) -> Txn | str:
    """Give the transaction of a wish; why there is nothing to do, where that is so."""
    if isinstance(wish, Submit):
        number = int(mirror.value(keys.LAST_JOB) or "0") + 1
        job = Job(
            number, wish.kind, wish.table, wish.name, wish.version or habits.version, wish.rows, wish.fails_at,
            request=wish.request, errors=wish.errors,
        )  # fmt: skip
        request = keys.REQUESTS + wish.request
        newest_ts = max(ts_of(now.at_us), int(mirror.value(keys.NEWEST_TS) or "0"))
        same = tuple(unchanged(key, mirror.under(key).get("")) for key in (keys.LAST_JOB, keys.NEWEST_TS))
        puts = (Put(keys.LAST_JOB, str(number)), Put(f"{keys.JOBS}{number}", records.written(job)))
        newest = Put(keys.NEWEST_TS, str(newest_ts))  # what its backfill reads is no older than the statement
        return (*same, Compare(request, CREATE, 0)), (*puts, Put(request, str(number)), newest)
    if isinstance(wish, Cancel):
        entry = mirror.under(keys.JOBS).get(str(wish.job))
        if entry is None:
            return f"job {wish.job} is not in the queue"
        if records.job(entry.value).state not in (QUEUEING, RUNNING):
            return f"job {wish.job} is {records.job(entry.value).state}"
        job = records.job(entry.value)._replace(state=CANCELLING)
        return (unchanged(f"{keys.JOBS}{wish.job}", entry),), (Put(f"{keys.JOBS}{wish.job}", records.written(job)),)
    assert isinstance(wish, SetVariable)
    if refused := sysvars.refusal(wish.name, wish.value):
        return refused
    return (), (Put(keys.SYSVARS + wish.name, wish.value),)
