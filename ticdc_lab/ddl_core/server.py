"""A tidb-server of a registered cluster: it serves users with the schema it has loaded, and sends their DDL on.

Its session is its schema lease. The order of things keeps servers within two neighbouring states: it publishes a
version only when it uses it, and it serves for the first time only when, after it has published, no newer one is there.
Besides it bootstraps, lets GC advance, refreshes its entries, and handles its users' wishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from immutables import Map

from ticdc_lab.ddl_core import infosyncer, keys, owner, records, sysvars
from ticdc_lab.ddl_core.connection import (
    Connection,
    Mirror,
    answered,
    asked,
    is_over,
    kept,
    left,
    reading,
    renewed,
    unchanged,
    winner,
)
from ticdc_lab.ddl_core.owner import snapshot_ts, values
from ticdc_lab.ddl_core.records import CANCELLING, DONE, QUEUEING, RUNNING, Job
from ticdc_lab.ddl_core.server_state import (
    HABITS,
    PREFIXES,
    Cancel,
    EnableDdl,
    Habits,
    Schema,
    ServerState,
    SetInstance,
    SetVariable,
    ShowDdl,
    ShownDdl,
    Slow,
    Submit,
    Transact,
)
from ticdc_lab.ddl_core.settings import Duties, Versions, parsed
from ticdc_lab.ddl_core.store import CREATE, Compare, Delete, Done, Found, Op, Put, StoredEntry
from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.machine import (
    Address,
    Asked,
    Changed,
    Decided,
    Event,
    Ignored,
    Now,
    Output,
    Received,
    ReceivedMany,
    Told,
    Wake,
    one_by_one,
)

Txn = tuple[tuple[Compare, ...], tuple[Op, ...]]
WISHES = ("wish", "looks up", "shows")
"""What is asked of the store for a user: that it be written, whether it was, and what there is to show."""
SHOWN = (keys.OWNER, keys.SERVER_INFO, keys.GLOBAL_VERSION, keys.JOBS)
"""What :func:`shown_ddl` reads of a cluster's store."""


def done(state: ServerState, mirror: Mirror, habits: Habits, now: Now) -> tuple[ServerState, list[Output]]:
    """Bootstrap if that is due, let GC advance behind ended transactions, and handle the first wish."""
    state, outputs = _bootstrapped(state, mirror, habits, now)
    state, more = _let_go(state, now)
    outputs = [*outputs, *more]
    if not state.wishes or state.serves is None or any(w in state.link.pending for w in WISHES):
        return state, outputs
    wish: Any = state.wishes[0]
    if isinstance(wish, ShowDdl):
        link, more = reading(state.link, "shows", SHOWN, now)
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
    """Take the next wish."""
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


def shown_ddl(entries: Mapping[str, StoredEntry]) -> ShownDdl:
    """Give what ``admin show ddl`` shows, from what the cluster's store has of owner, servers, version and jobs.

    The owner's address is what it has published under its ``ddl_id``. A worker of a service publishes nothing
    (proposal, "Server Info in Etcd"): users of a cluster must not see where it is.
    """
    part = Map({k.removeprefix(keys.OWNER): e for k, e in entries.items() if k.startswith(keys.OWNER)})
    won = winner(part)
    owner_id = won[1].value if won else ""
    there = infosyncer.instances(entries)
    address = there[owner_id].address if owner_id in there else ""
    queue = [records.job(e.value) for k, e in entries.items() if k.startswith(keys.JOBS)]
    running = tuple((job.id, job.kind, job.schema_state) for job in sorted(queue) if job.has_begun)
    version = entries.get(keys.GLOBAL_VERSION)
    shown = tuple(sorted({info.address for info in there.values()} - {""}))
    return ShownDdl(int(version.value) if version else 0, owner_id, address, running, shown)


# Bootstrap: a lock of its own, for the owner of the DDL may be in the service, which upgrades no cluster's meta


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
    return state._replace(link=link), outputs


# GC


def collected(state: ServerState, habits: Habits, now: Now) -> tuple[ServerState, list[Output]]:
    """Let GC advance to what no transaction and no backfill reads any more.

    A new reader writes :data:`.keys.NEWEST_TS` too: GC that has not yet read it writes nothing.
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
    """Record from where on it reads now."""
    lowest = min((start_ts for start_ts, _ in state.reads), default=0)
    if lowest == state.held_ts or any(w in state.link.pending for w in (*WISHES, "reads")):
        return state, []
    key = keys.MIN_START_TS + state.ddl_id
    op: Op = Put(key, str(lowest), state.link.lease) if lowest else Delete(key)
    link, outputs = asked(state.link, "reads", (), (op,), now)
    return state._replace(link=link, held_ts=lowest), outputs


def alive(state: ServerState, habits: Habits, now: Now) -> tuple[ServerState, list[Output]]:
    """Refresh its topology entry (``topologySyncerKeeper``)."""
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


GONE = "its schema lease may be over"


@dataclass(frozen=True, slots=True)
class Server:
    """The machine of a tidb-server."""

    store: Address  # of its cluster
    habits: Habits = HABITS  # how it works

    def start(self, address: Address, now: Now) -> tuple[ServerState, list[Output]]:
        state = ServerState(address, Connection(self.store, address, 1, PREFIXES))
        if self.habits.enables_ddl:
            state = state._replace(ddl=self._candidate(address, 1))
        state, outputs = self._acted(state, now)
        wakes = [(self.habits.tick_us, "tick"), (self.habits.gc_us, "gc"), (self.habits.topology_us, "topology")]
        return state, [*(Wake(after_us, name) for after_us, name in wakes), *outputs]

    def step(self, state: ServerState, event: Event, now: Now) -> tuple[ServerState, list[Output]]:
        if is_over(state.link, now):
            state, outputs = self.ended(state, GONE)
            state, more = self.step(state, event, now)
            return state, [*outputs, *more]
        if isinstance(event, ReceivedMany):
            return one_by_one(self, state, event, now)
        if isinstance(event, Received):
            return self._received(state, event, now)
        if isinstance(event, Asked):
            if isinstance(event.command, Slow):
                return state._replace(slow_us=event.command.load_us), []
            if isinstance(event.command, EnableDdl):
                # Campaign from now on, or own nothing any more and let others have it.
                if event.command.on == (state.ddl is not None):
                    return state, []
                if not event.command.on:
                    assert state.ddl is not None
                    return state._replace(ddl=None), owner.stopped(state.ddl, "tidb_enable_ddl is off")
                lives = state.ddl_lives + 1
                return self._acted(state._replace(ddl=self._candidate(state.address, lives), ddl_lives=lives), now)
            if isinstance(event.command, SetInstance):
                name, value, _ = event.command
                return state._replace(instance=state.instance.set(name, value)), [Told(event.command, DONE)]
            return self._acted(state._replace(wishes=(*state.wishes, event.command)), now)
        outputs = []
        if event.name == "loaded":
            state, outputs = self._adopted(state)
        elif event.name == "upgraded":
            state, outputs = upgraded(state, self.habits, now)
        elif event.name == "gc":
            state, outputs = collected(state, self.habits, now)
            outputs = [Wake(self.habits.gc_us, "gc"), *outputs]
        elif event.name == "topology":
            state, outputs = alive(state, self.habits, now)
        elif isinstance(event.name, tuple):
            state, outputs = committed(state, event.name[1])
        elif event.name == "tick":
            outputs = [Wake(self.habits.tick_us, "tick")]
        state, more = self._acted(state, now)
        return state, [*outputs, *more]

    def ended(self, state: ServerState, because: str) -> tuple[ServerState, list[Output]]:
        """Stop serving, and give the session back; what is left is a fresh server with its users' wishes."""
        outputs = left(state.link)
        if state.serves:
            outputs = [Changed("schema", state.serves.version, None, because), *outputs]
        fresh = ServerState(
            state.address, renewed(state.link), wishes=state.wishes, slow_us=state.slow_us, instance=state.instance,
            ddl_lives=state.ddl_lives,
        )  # fmt: skip
        if state.ddl is None:
            return fresh, outputs
        lives = state.ddl_lives + 1  # its ddl_id is the server's, which ends here
        outputs = [*owner.stopped(state.ddl, because), *outputs]
        return fresh._replace(ddl=self._candidate(state.address, lives), ddl_lives=lives), outputs

    def _received(self, state: ServerState, event: Received, now: Now) -> tuple[ServerState, list[Output]]:
        message: Any = event.message
        if message.tag[0] != state.address:
            return self._received_by_ddl(state, message, now)
        link = answered(state.link, message, self.habits.terms)
        if link is None:
            return state, [Ignored(message, "it answers an earlier session")]
        state = state._replace(link=link)
        if is_over(link, now):
            state, outputs = self.ended(state, GONE)
        else:
            outputs = []
            if isinstance(message, (Done, Found)):
                state, outputs = self._settled(state, message, now)
        state, more = self._acted(state, now)
        return state, [*outputs, *more]

    def _settled(self, state: ServerState, answer: Done | Found, now: Now) -> tuple[ServerState, list[Output]]:
        what: str = answer.tag[2]  # type: ignore[index]
        if what in WISHES:
            return answered_wish(state, answer, now)
        if what == "publish" and isinstance(answer, Done) and answer.succeeded:
            return state._replace(published=state.publishing), []
        if what == "upgrade" and isinstance(answer, Done) and not answer.succeeded:
            return state._replace(upgrading=False), []  # another one has the lock; where it succeeded, it is over
        return state, []

    # The DDL of its cluster, which any server campaigns for that has tidb_enable_ddl

    def _candidate(self, address: Address, life: int) -> owner.OwnerState:
        return owner.opened(self.store.removeprefix("tikv://").rpartition(":")[0], self.store, life, address)

    def _received_by_ddl(self, state: ServerState, message: Any, now: Now) -> tuple[ServerState, list[Output]]:
        own = state.ddl
        link = answered(own.link, message, self.habits.terms) if own else None
        if own is None or link is None:
            return state, [Ignored(message, f"{state.address} has no such session for its cluster's DDL any more")]
        own = own._replace(link=link)
        if isinstance(message, Done):
            own = owner.settled(own, message)
        return self._campaigned(state._replace(ddl=own), now)

    def _campaigned(self, state: ServerState, now: Now) -> tuple[ServerState, list[Output]]:
        if state.ddl is None:
            return state, []
        duties = Duties(Versions(self.habits.version, "v0.0.0"), self.habits.terms)
        own = state.ddl._replace(server_id=state.ddl_id if state.link.lease else "")
        own, outputs = owner.acted(own, duties, now, state.instance)
        return state._replace(ddl=own), outputs

    def _acted(self, state: ServerState, now: Now) -> tuple[ServerState, list[Output]]:
        state, first = self._campaigned(state, now)
        link, outputs = kept(state.link, self.habits.terms, now)
        outputs = [*first, *outputs]
        state = state._replace(link=link)
        if link.mirror is None or not link.lease:
            return state, outputs
        state, more = self._loaded(state, link.mirror, now)
        outputs += more
        state, more = done(state, link.mirror, self.habits, now)
        return state, [*outputs, *more]

    def _loaded(self, state: ServerState, mirror: Mirror, now: Now) -> tuple[ServerState, list[Output]]:
        """Load what is new, publish what is used, and serve."""
        newest = int(mirror.value(keys.GLOBAL_VERSION) or "0")
        outputs: list[Output] = []
        if state.loading is None and (state.loaded is None or state.loaded.version != newest):
            state = state._replace(loading=Schema(newest, values(mirror.under(keys.SCHEMA))))
            outputs.append(Wake(state.slow_us or self.habits.load_us, "loaded"))
        state, more = self._tells(state, now)
        outputs += more
        loaded = state.loaded
        if state.serves is not None or loaded is None or not is_bootstrapped(mirror, self.habits):
            return state, outputs
        if state.published == loaded.version == newest:
            state = state._replace(serves=loaded)
            outputs.append(Changed("schema", None, loaded.version, "it is published, and still the newest"))
        return state, outputs

    def _tells(self, state: ServerState, now: Now) -> tuple[ServerState, list[Output]]:
        version = state.loaded.version if state.loaded else -1
        if version < 0 or version == state.published or "publish" in state.link.pending:
            return state, []
        puts = [Put(keys.VERSIONS + state.ddl_id, str(version), state.link.lease)]
        if state.published < 0:
            puts += infosyncer.published(state.ddl_id, state.address, self.habits.version, state.link.lease)
        link, outputs = asked(state.link, "publish", (), tuple(puts), now)
        return state._replace(link=link, publishing=version), outputs

    def _adopted(self, state: ServerState) -> tuple[ServerState, list[Output]]:
        """Use what has been loaded; a serving server uses it at once, and then publishes it."""
        if state.loading is None:
            return state, []
        before, after = state.serves, state.loading
        state = state._replace(loaded=after, loading=None)
        if before is None:
            return state, []
        changed = Changed("schema", before.version, after.version, "it has loaded the newest")
        return state._replace(serves=after), [changed]
