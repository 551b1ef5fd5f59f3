"""An etcd-like store: what nodes ask of it and what it answers, and a model of it for the kernel.

It has one linear history of keys, with leases, transactions and observers. It sends observers a change before it
answers the transaction that made it: a client that has its answer has seen what it wrote.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.machines.leases import Lease, granted, lives, prolonged, run_out
from ticdc_lab.machines.machine import (
    Address,
    Changed,
    Event,
    Fired,
    Ignored,
    Now,
    Output,
    Received,
    ReceivedMany,
    Send,
    not_taken,
    one_by_one,
    stepped,
)

CREATE, MOD, VALUE = "create", "mod", "value"


class StoredEntry(NamedTuple):
    """A key's value, the revisions at which it was created and last changed, and the lease it ends with (0: none)."""

    value: str
    create: int
    mod: int
    lease: int = 0


class Compare(NamedTuple):
    """A condition: what a key has is what is expected; a key that is not there has revisions 0 and no value.

    ``what`` is ``create`` or ``mod`` (``expected`` is a revision) or ``value`` (a text, or None).
    """

    key: str
    what: str
    expected: int | str | None


class Put(NamedTuple):
    """Write a key; one with a lease goes when the lease ends."""

    key: str
    value: str
    lease: int = 0


class Delete(NamedTuple):
    """Remove a key."""

    key: str


Op: TypeAlias = Put | Delete


class Grant(NamedTuple):
    """Ask for a lease; ``sent_us`` comes back, so that the client knows from when on it counts."""

    tag: Hashable
    ttl_us: int
    sent_us: int


class Granted(NamedTuple):
    """A lease; it lives until ``ttl_us`` after the request's ``sent_us``, at least."""

    tag: Hashable
    lease: int
    sent_us: int


class KeepAlive(NamedTuple):
    """Prolong a lease."""

    tag: Hashable
    lease: int
    sent_us: int


class KeptAlive(NamedTuple):
    """It is prolonged, counted from ``sent_us``."""

    tag: Hashable
    sent_us: int


class Expired(NamedTuple):
    """The lease has ended."""

    tag: Hashable


class Revoke(NamedTuple):
    """End a lease, with its keys and its observations."""

    lease: int


class Txn(NamedTuple):
    """If all conditions hold, carry out all operations at one revision; else nothing."""

    tag: Hashable
    compares: tuple[Compare, ...]
    ops: tuple[Op, ...]


class Done(NamedTuple):
    """How a transaction ended."""

    tag: Hashable
    succeeded: bool
    revision: int


class Read(NamedTuple):
    """Give all under some prefixes as it is now: the answer is never older than the question."""

    tag: Hashable
    prefixes: tuple[str, ...]


class Found(NamedTuple):
    """All under the prefixes, as of a revision that was the newest after the question was asked."""

    tag: Hashable
    revision: int
    entries: tuple[tuple[str, StoredEntry], ...]


class Observe(NamedTuple):
    """Give all under some prefixes, and then send each change, for as long as the lease lives (a get and a watch)."""

    tag: Hashable
    prefixes: tuple[str, ...]
    lease: int


class Snapshot(NamedTuple):
    """All under the prefixes, as of a revision."""

    tag: Hashable
    revision: int
    entries: tuple[tuple[str, StoredEntry], ...]


class Happened(NamedTuple):
    """The changes of one revision: keys with their new entries, None for those that are gone."""

    tag: Hashable
    revision: int
    events: tuple[tuple[str, StoredEntry | None], ...]


class Expire(NamedTuple):
    """Asked of a store: the lease that holds a key ends now, as if it had run out."""

    key: str


class ExpireOf(NamedTuple):
    """Asked of a store: all leases of a node end now, as if they had run out."""

    node: str


Request: TypeAlias = Grant | KeepAlive | Revoke | Txn | Read | Observe
Answer: TypeAlias = Granted | KeptAlive | Expired | Done | Found | Snapshot | Happened


ABSENT = StoredEntry("", 0, 0)


class Observer(NamedTuple):
    """Who observes what."""

    address: Address
    tag: Hashable
    prefixes: tuple[str, ...]
    lease: int


@stepped
class DdlStoreState(NamedTuple):
    """All a store holds; ``revision`` rises with each change, ``last_lease`` with each lease."""

    revision: int = 1
    keys: Map[str, StoredEntry] = Map()
    leases: Map[int, Lease] = Map()
    observers: tuple[Observer, ...] = ()
    last_lease: int = 0


@dataclass(frozen=True, slots=True)
class DdlStore:
    """The machine of a store."""

    first: tuple[tuple[str, str], ...] = ()  # keys that are there from the beginning, as pairs

    def start(self, address: Address, now: Now) -> tuple[DdlStoreState, list[Output]]:
        keys = Map({key: StoredEntry(value, 1, 1) for key, value in self.first})
        return DdlStoreState(keys=keys), []

    def step(self, state: DdlStoreState, event: Event, now: Now) -> tuple[DdlStoreState, list[Output]]:
        if isinstance(event, Received):
            return self._requested(state, event.sender, event.message, now)
        if isinstance(event, Fired):
            return _all_ended(state, run_out(state.leases, now), "its lease ran out")
        if isinstance(event, ReceivedMany):
            return one_by_one(self, state, event, now)
        if isinstance(event.command, ExpireOf):
            own = set(lives((lease.holder for lease in state.leases.values()), event.command.node))
            numbers = [number for number, lease in sorted(state.leases.items()) if lease.holder in own]
            return _all_ended(state, numbers, "a fault ended it")
        if isinstance(event.command, Expire):
            entry = state.keys.get(event.command.key, ABSENT)
            return ended(state, entry.lease, "a fault ended it") if entry.lease in state.leases else (state, [])
        raise not_taken(event.command, "the store of the service")

    def _requested(
        self, state: DdlStoreState, sender: Address, message: Any, now: Now
    ) -> tuple[DdlStoreState, list[Output]]:
        if isinstance(message, Txn):
            return self._transacted(state, sender, message)
        if isinstance(message, KeepAlive):
            return self._kept(state, sender, message, now)
        if isinstance(message, Grant):
            number = state.last_lease + 1
            lease, timer = granted(number, sender, message.ttl_us, now)
            state = state._replace(leases=state.leases.set(number, lease), last_lease=number)
            return state, [timer, Send(sender, Granted(message.tag, number, message.sent_us))]
        if isinstance(message, Observe):
            return self._observed(state, sender, message)
        if isinstance(message, Read):
            answer = Found(message.tag, state.revision, _under(state, message.prefixes))
            return state, [Send(sender, answer)]
        assert isinstance(message, Revoke)
        if message.lease not in state.leases:
            return state, [Ignored(message, "the lease had ended")]
        return ended(state, message.lease, "its holder gave it up")

    def _kept(
        self, state: DdlStoreState, sender: Address, asked: KeepAlive, now: Now
    ) -> tuple[DdlStoreState, list[Output]]:
        lease = state.leases.get(asked.lease)
        if lease is None:
            return state, [Ignored(asked, "the lease has ended"), Send(sender, Expired(asked.tag))]
        lease, timer = prolonged(asked.lease, lease, now)
        answer = Send(sender, KeptAlive(asked.tag, asked.sent_us))
        return state._replace(leases=state.leases.set(asked.lease, lease)), [timer, answer]

    def _observed(self, state: DdlStoreState, sender: Address, asked: Observe) -> tuple[DdlStoreState, list[Output]]:
        if asked.lease not in state.leases:
            return state, [Ignored(asked, "the lease has ended"), Send(sender, Expired(asked.tag))]
        observer = Observer(sender, asked.tag, asked.prefixes, asked.lease)
        state = state._replace(observers=(*state.observers, observer))
        return state, [Send(sender, Snapshot(asked.tag, state.revision, _under(state, asked.prefixes)))]

    def _transacted(self, state: DdlStoreState, sender: Address, txn: Txn) -> tuple[DdlStoreState, list[Output]]:
        failed = next((c for c in txn.compares if not holds(state.keys, c)), None)
        lost = any(type(op) is Put and op.lease and op.lease not in state.leases for op in txn.ops)
        if failed or lost:
            because = f"{failed.key} has another {failed.what}" if failed else "a lease has ended"
            return state, [Ignored(txn, because), Send(sender, Done(txn.tag, False, state.revision))]
        state, outputs = changed(state, txn.ops, "")
        return state, [*outputs, Send(sender, Done(txn.tag, True, state.revision))]


def _under(state: DdlStoreState, prefixes: tuple[str, ...]) -> tuple[tuple[str, StoredEntry], ...]:
    return tuple(sorted((k, e) for k, e in state.keys.items() if k.startswith(prefixes)))


def holds(keys: Map[str, StoredEntry], compare: Compare) -> bool:
    entry = keys.get(compare.key)
    if compare.what == CREATE:
        return (entry or ABSENT).create == compare.expected
    if compare.what == MOD:
        return (entry or ABSENT).mod == compare.expected
    return (None if entry is None else entry.value) == compare.expected


def changed(state: DdlStoreState, ops: tuple[Op, ...], because: str) -> tuple[DdlStoreState, list[Output]]:
    """Carry out operations at one revision, and notify observers."""
    revision = state.revision + 1
    keys, leases = state.keys, state.leases
    events: list[tuple[str, StoredEntry | None]] = []
    outputs: list[Output] = []
    for op in ops:
        before = keys.get(op.key)
        if before is not None and before.lease in leases:
            held = leases[before.lease]
            leases = leases.set(before.lease, held._replace(keys=held.keys - {op.key}))
        if type(op) is Put:
            after = StoredEntry(op.value, before.create if before else revision, revision, op.lease)
            keys = keys.set(op.key, after)
            if op.lease:
                held = leases[op.lease]
                leases = leases.set(op.lease, held._replace(keys=held.keys | {op.key}))
            events.append((op.key, after))
        elif before is not None:
            keys = keys.delete(op.key)
            events.append((op.key, None))
        old, new = before.value if before else None, op.value if type(op) is Put else None
        if old != new:
            outputs.append(Changed(op.key, old, new, because))
    if not events:
        return state, outputs
    state = state._replace(revision=revision, keys=keys, leases=leases)
    return state, [*outputs, *_told(state, tuple(events))]


def ended(state: DdlStoreState, number: int, because: str) -> tuple[DdlStoreState, list[Output]]:
    """End a lease: its keys go, its observers get nothing more."""
    lease = state.leases[number]
    observers = tuple(o for o in state.observers if o.lease != number)
    own = [o for o in state.observers if o.lease == number]
    state = state._replace(observers=observers)
    state, outputs = changed(state, tuple(Delete(key) for key in sorted(lease.keys)), because)
    over = [Send(o.address, Expired(o.tag)) for o in own[:1]]
    return state._replace(leases=state.leases.delete(number)), [*outputs, *over]


def _all_ended(state: DdlStoreState, numbers: list[int], because: str) -> tuple[DdlStoreState, list[Output]]:
    outputs: list[Output] = []
    for number in numbers:
        state, more = ended(state, number, because)
        outputs += more
    return state, outputs


def _told(state: DdlStoreState, events: tuple[tuple[str, StoredEntry | None], ...]) -> list[Output]:
    outputs: list[Output] = []
    for observer in state.observers:
        own = tuple(e for e in events if e[0].startswith(observer.prefixes))
        if own:
            outputs.append(Send(observer.address, Happened(observer.tag, state.revision, own)))
    return outputs
