"""What a tidb-server does besides serving: bootstrap, GC, what it shows of itself, and its users' wishes."""

from __future__ import annotations

from typing import Any

from ticdc_lab.simulate.ddl_service import keys, records
from ticdc_lab.simulate.ddl_service.connection import asked
from ticdc_lab.simulate.ddl_service.mirror import Mirror, unchanged
from ticdc_lab.simulate.ddl_service.records import CANCELLING, QUEUEING, RUNNING, Job
from ticdc_lab.simulate.ddl_service.server_state import Cancel, Habits, ServerState, SetVariable, Submit
from ticdc_lab.simulate.ddl_service.store_messages import CREATE, Compare, Delete, Op, Put
from ticdc_lab.simulate.ddl_service.versions import parsed
from ticdc_lab.simulate.machine import Now, Output, Wake
from ticdc_lab.simulate.scheduler.clock import ts_of

Txn = tuple[tuple[Compare, ...], tuple[Op, ...]]


def shown(state: ServerState) -> list[Put]:
    """What a server tells ``admin show ddl``, cluster tables and TiDB-Dashboard (seed, "Infosyncer")."""
    lease = state.link.lease
    return [
        Put(keys.SERVER_INFO + state.ddl_id, f'{{"address": "{state.address}"}}', lease),
        Put(f"{keys.TOPOLOGY}{state.address}/tidb", "{}", lease),
        Put(f"{keys.TOPOLOGY}{state.address}/ttl", "0", lease),
    ]


def done(state: ServerState, mirror: Mirror, habits: Habits, now: Now) -> tuple[ServerState, list[Output]]:
    """Bootstrap if that is due, and see to the first wish."""
    state, outputs = _bootstrapped(state, mirror, habits, now)
    if not state.wishes or state.serves is None or "wish" in state.link.pending:
        return state, outputs
    txn = _wished(state.wishes[0], mirror, habits)
    if txn is None:
        return state._replace(wishes=state.wishes[1:]), outputs
    link, more = asked(state.link, "wish", *txn, now)
    return state._replace(link=link), [*outputs, *more]


# Bootstrap: a lock of its own, for the owner of the DDL may be in the service, which upgrades nobody's meta


def is_bootstrapped(mirror: Mirror, habits: Habits) -> bool:
    """Whether the meta is as new as this server's code."""
    there, own = parsed(mirror.value(keys.BOOTSTRAPPED) or "v0.0.0"), parsed(habits.version)
    assert there and own
    return there >= own


def _bootstrapped(state: ServerState, mirror: Mirror, habits: Habits, now: Now) -> tuple[ServerState, list[Output]]:
    if is_bootstrapped(mirror, habits) or state.upgrading or "bootstraps as the owner" in habits.bugs:
        return state, []  # no tidb-server of a registered cluster is the owner
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
    """Let GC go on to what no transaction and no backfill reads any more."""
    mirror = state.link.mirror
    if mirror is None or not state.link.lease or now.at_us < habits.gc_life_us:
        return state, []
    held = [int(entry.value) for entry in mirror.under(keys.MIN_START_TS).values()]
    safe_ts = min([ts_of(now.at_us - habits.gc_life_us), *held])
    if safe_ts <= int(mirror.value(keys.SAFE_POINT) or "0"):
        return state, []
    same = unchanged(keys.SAFE_POINT, mirror.under(keys.SAFE_POINT).get(""))
    link, outputs = asked(state.link, "gc", (same,), (Put(keys.SAFE_POINT, str(safe_ts)),), now)
    return state._replace(link=link), outputs


# Wishes


def _wished(wish: Any, mirror: Mirror, habits: Habits) -> Txn | None:
    """Give the transaction of a wish; None where there is nothing to do."""
    if isinstance(wish, Submit):
        number = int(mirror.value(keys.LAST_JOB) or "0") + 1
        job = Job(number, wish.kind, wish.table, wish.name, wish.version or habits.version, wish.rows, wish.fails_at)
        same = unchanged(keys.LAST_JOB, mirror.under(keys.LAST_JOB).get(""))
        return (same,), (Put(keys.LAST_JOB, str(number)), Put(f"{keys.JOBS}{number}", records.written(job)))
    if isinstance(wish, Cancel):
        entry = mirror.under(keys.JOBS).get(str(wish.job))
        if entry is None or records.job(entry.value).state not in (QUEUEING, RUNNING):
            return None
        job = records.job(entry.value)._replace(state=CANCELLING)
        return (unchanged(f"{keys.JOBS}{wish.job}", entry),), (Put(f"{keys.JOBS}{wish.job}", records.written(job)),)
    assert isinstance(wish, SetVariable)
    return (), (Put(keys.SYSVARS + wish.name, wish.value),)
