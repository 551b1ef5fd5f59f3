"""Messages of captures, users and faults to the model of etcd, and its answers."""

from __future__ import annotations

from typing import NamedTuple

from ticdc_lab.machines.machine import Address, stepped
from ticdc_lab.simulate.scheduler.roles import Key

ETCD = "etcd"


class Register(NamedTuple):
    """A capture asks for a lease, registers under it, and campaigns to be the owner."""

    version: str


class KeepAlive(NamedTuple):
    """Prolong a lease; ``sent_us`` comes back, so that the client knows from when on it counts."""

    sent_us: int


class KeptAlive(NamedTuple):
    """The lease lives ``ttl_us`` longer than the request's ``sent_us``, at least."""

    sent_us: int
    ttl_us: int


class Resign(NamedTuple):
    """The capture leaves: its lease is revoked."""


class PutStatus(NamedTuple):
    """The owner persists the global watermarks; refused unless ``owner_rev`` is the current owner's."""

    owner_rev: int
    checkpoint_ts: int
    resolved_ts: int


class PutTables(NamedTuple):
    """The owner has executed a DDL, after which these tables are to be replicated; refused as :class:`PutStatus` is."""

    owner_rev: int
    tables: frozenset[Key]


class PutPartitions(NamedTuple):
    """The owner is done with a wish for so many partitions, with the reason ``because``; refused as others are."""

    owner_rev: int
    partitions: int
    because: str = "it is carried out"


class ExecuteDdl(NamedTuple):
    """The DDL dispatcher of v4 was ordered to write the DDL at which all wait: execute it."""

    barrier_ts: int


@stepped
class View(NamedTuple):
    """Everything as of a revision, pushed to every session when something but the status changed.

    ``partitions`` is what a user wants and no owner is done with, ``executed_ts`` the last DDL that was executed.
    """

    revision: int
    captures: frozenset[Address]
    owner: Address | None
    owner_rev: int
    tables: frozenset[Key]
    barrier_ts: int | None
    checkpoint_ts: int
    resolved_ts: int
    partitions: int | None = None
    executed_ts: int = 0


class Status(NamedTuple):
    """The global watermarks, pushed to every session when they changed."""

    checkpoint_ts: int
    resolved_ts: int


class NoLease(NamedTuple):
    """The lease has expired."""


class Expire(NamedTuple):
    """Asked of etcd: a session ends now, as if its lease had run out."""

    capture: Address


class WantPartitions(NamedTuple):
    """Asked of etcd: a user wants another number of partitions; the owner carries it out."""

    partitions: int


class TwoOwners(NamedTuple):
    """Asked of etcd: elect the next one although the owner's session lives (an assumption of the design is broken)."""

    same_rev: bool = False


class Ddl(NamedTuple):
    """Asked of etcd: a DDL is committed now; once every table has come to it, it is executed, which takes a while."""

    add: tuple[Key, ...] = ()
    drop: tuple[Key, ...] = ()
    takes_us: int = 100_000
