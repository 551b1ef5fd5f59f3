"""One session of a node with one store: a lease that is kept alive, a mirror, and requests that wait for an answer.

The mirror is all under the prefixes that the node observes, as of one revision.
A lease counts from when it was asked for, on the node's own clock, and the node holds it for over ``margin_us`` before
the store can give it up: what it did as its holder has stopped by then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from immutables import Map

from ticdc_lab.ddl_core.store import (
    Compare,
    Done,
    Expired,
    Found,
    Grant,
    Granted,
    Happened,
    KeepAlive,
    KeptAlive,
    Observe,
    Op,
    Read,
    Revoke,
    Snapshot,
    StoredEntry,
    Txn,
)
from ticdc_lab.machines.leases import Terms
from ticdc_lab.machines.machine import Address, Now, Output, Send, stepped

Part = Map[str, StoredEntry]


class Mirror(NamedTuple):
    """Keys by prefix, each without it; ``parts`` are in the order of ``prefixes``."""

    revision: int
    prefixes: tuple[str, ...]
    parts: tuple[Part, ...]

    def under(self, prefix: str) -> Part:
        """Give all under one of the prefixes; the same object until something under it changes."""
        return self.parts[self.prefixes.index(prefix)]

    def value(self, key: str) -> str | None:
        entry = self.under(key).get("")
        return None if entry is None else entry.value

    def mod(self, key: str) -> int:
        """Give the revision at which a key that is observed by itself changed last."""
        entry = self.under(key).get("")
        return 0 if entry is None else entry.mod


def mirrored(prefixes: tuple[str, ...], snapshot: Snapshot) -> Mirror:
    parts = []
    for prefix in prefixes:
        cut = len(prefix)
        parts.append(Map({key[cut:]: entry for key, entry in snapshot.entries if key.startswith(prefix)}))
    return Mirror(snapshot.revision, prefixes, tuple(parts))


def updated(mirror: Mirror, happened: Happened) -> Mirror:
    """Take the changes of a revision."""
    parts = list(mirror.parts)
    for key, entry in happened.events:
        for i, prefix in enumerate(mirror.prefixes):
            if key.startswith(prefix):
                own = key[len(prefix) :]
                if entry is not None:
                    parts[i] = parts[i].set(own, entry)
                elif own in parts[i]:
                    parts[i] = parts[i].delete(own)
    return Mirror(happened.revision, mirror.prefixes, tuple(parts))


def winner(campaigns: Part) -> tuple[str, StoredEntry] | None:
    """Give the campaign that has won an election: the one that was created first."""
    return min(campaigns.items(), key=lambda e: (e[1].create, e[0]), default=None)


def unchanged(key: str, entry: StoredEntry | None) -> Compare:
    """Give the condition that a key is as it was seen."""
    return Compare(key, "mod", entry.mod if entry else 0)


NEVER = 1 << 62


TOPOLOGY_US = 30_000_000
"""How often an instance refreshes its topology entry, by default (``topologySyncerKeeper``)."""


@stepped
class Connection(NamedTuple):
    """A session."""

    # ``store``, ``name``, ``life``: where; what for (unique in the node); which one. Name and life mark its requests,
    # so that an answer to an earlier session is known as such.
    store: Address
    name: str
    life: int
    prefixes: tuple[str, ...]  # what is observed
    lease: int = 0  # 0 before it is granted
    ends_us: int = NEVER  # when its holder stops, on its own clock
    kept_us: int = 0  # when it was last asked to be kept alive
    mirror: Mirror | None = None  # None before the snapshot has come
    pending: Map[str, int] = Map()  # what was asked and not answered, since when

    @property
    def is_ready(self) -> bool:
        """Whether it has a lease and has seen the store."""
        return self.mirror is not None and self.lease > 0


def clock(now: Now) -> int:
    """Give the node's own time."""
    return now.at_us + now.skew_us


def is_over(c: Connection, now: Now) -> bool:
    """Whether its holder must have stopped."""
    return clock(now) >= c.ends_us


def kept(c: Connection, terms: Terms, now: Now) -> tuple[Connection, list[Output]]:
    """Ask for what the session needs: a lease, a snapshot, to be kept alive.

    A request that has no answer for the time of a lease is lost, with unknown effect: the session is
    given up, and the next one begins with what is there.
    """
    at_us = clock(now)
    if not c.lease:
        return _asked(c, "grant", Grant((c.name, c.life, "grant"), terms.ttl_us, at_us), terms, now)
    if any(at_us - since_us >= terms.ttl_us for since_us in c.pending.values()):
        return c._replace(ends_us=-NEVER), []
    outputs: list[Output] = []
    if c.mirror is None:
        c, outputs = _asked(c, "observe", Observe((c.name, c.life, "observe"), c.prefixes, c.lease), terms, now)
    if at_us - c.kept_us >= terms.keep_alive_us:
        outputs = [*outputs, Send(c.store, KeepAlive((c.name, c.life, "keep"), c.lease, at_us))]
        c = c._replace(kept_us=at_us)
    return c, outputs


def _asked(c: Connection, what: str, message: Any, terms: Terms, now: Now) -> tuple[Connection, list[Output]]:
    if clock(now) - c.pending.get(what, -NEVER) < terms.ttl_us:
        return c, []
    return c._replace(pending=c.pending.set(what, clock(now))), [Send(c.store, message)]


def asked(
    c: Connection, what: str, compares: tuple[Compare, ...], ops: tuple[Op, ...], now: Now
) -> tuple[Connection, list[Output]]:
    """Send a transaction, unless one of this name still waits."""
    if what in c.pending:
        return c, []
    txn = Txn((c.name, c.life, what), compares, ops)
    return c._replace(pending=c.pending.set(what, clock(now))), [Send(c.store, txn)]


def reading(c: Connection, what: str, prefixes: tuple[str, ...], now: Now) -> tuple[Connection, list[Output]]:
    """Ask the store itself what is there: a mirror may be behind."""
    return c._replace(pending=c.pending.set(what, clock(now))), [reading_elsewhere(c, what, prefixes, c.store)]


def reading_elsewhere(c: Connection, what: str, prefixes: tuple[str, ...], store: Address) -> Send:
    """Ask another store: that it does not answer ends no session with this one."""
    return Send(store, Read((c.name, c.life, what), prefixes))


def answered(c: Connection, message: Any, terms: Terms) -> Connection | None:
    """Take an answer; None for one to an earlier session."""
    _, life, what = message.tag
    if life != c.life:
        return None
    if isinstance(message, Happened):
        if c.mirror is None or message.revision <= c.mirror.revision:
            return c
        return c._replace(mirror=updated(c.mirror, message))
    if isinstance(message, (Done, Found)):
        return c._replace(pending=_without(c.pending, what))
    if isinstance(message, KeptAlive):
        return c._replace(ends_us=max(c.ends_us, terms.ends_us(message.sent_us)))
    if isinstance(message, Granted):
        if c.lease:
            return c  # it had asked again, for the answer was late: the second lease runs out unused
        ends_us = terms.ends_us(message.sent_us)
        return c._replace(lease=message.lease, ends_us=ends_us, kept_us=message.sent_us, pending=Map())
    if isinstance(message, Snapshot):
        return c._replace(mirror=mirrored(c.prefixes, message), pending=_without(c.pending, "observe"))
    assert isinstance(message, Expired)
    return c._replace(ends_us=-NEVER)


def _without(pending: Map[str, int], what: str) -> Map[str, int]:
    return pending.delete(what) if what in pending else pending


def renewed(c: Connection) -> Connection:
    """Give the next session, after one that has ended."""
    return Connection(c.store, c.name, c.life + 1, c.prefixes)


def left(c: Connection) -> list[Output]:
    """Give the lease back."""
    return [Send(c.store, Revoke(c.lease))] if c.lease else []
