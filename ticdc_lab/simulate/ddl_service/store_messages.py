"""What nodes ask of an etcd-like store, and what it answers: leases, transactions, and prefixes that are observed.

A store tells its observers of a change before it answers the transaction that made it: a client that has its answer has
seen what it wrote.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, TypeAlias

CREATE, MOD, VALUE = "create", "mod", "value"


class Entry(NamedTuple):
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
    entries: tuple[tuple[str, Entry], ...]


class Observe(NamedTuple):
    """Give all under some prefixes, and then tell each change, for as long as the lease lives (a get and a watch)."""

    tag: Hashable
    prefixes: tuple[str, ...]
    lease: int


class Snapshot(NamedTuple):
    """All under the prefixes, as of a revision."""

    tag: Hashable
    revision: int
    entries: tuple[tuple[str, Entry], ...]


class Happened(NamedTuple):
    """The changes of one revision: keys with their new entries, None for those that are gone."""

    tag: Hashable
    revision: int
    events: tuple[tuple[str, Entry | None], ...]


class Expire(NamedTuple):
    """Asked of a store: the lease that holds a key ends now, as if it had run out."""

    key: str


class ExpireOf(NamedTuple):
    """Asked of a store: all leases of a node end now, as if they had run out."""

    node: str


Request: TypeAlias = Grant | KeepAlive | Revoke | Txn | Read | Observe
Answer: TypeAlias = Granted | KeptAlive | Expired | Done | Found | Snapshot | Happened
