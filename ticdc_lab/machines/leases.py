"""Leases, as clients of etcd hold them and as both models of etcd keep them.

A lease counts from when it was asked for, on the holder's own clock, and its holder stops a margin before the end; the
store counts from when the request came. The table scheduler's model (:mod:`ticdc_lab.simulate.scheduler.etcd`) knows
the one lease of a capture by the capture, the DDL service's (:mod:`ticdc_lab.ddl_core.store`) numbers leases and
keeps keys under them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from ticdc_lab.machines.machine import Address, Now, Wake, stepped

K = TypeVar("K", Address, int)


class Terms(NamedTuple):
    """How long leases are, and how long before its end a holder stops."""

    ttl_us: int = 5_000_000
    margin_us: int = 1_000_000

    @property
    def keep_alive_us(self) -> int:
        """How often a holder asks to be kept alive."""
        return self.ttl_us // 3

    def ends_us(self, sent_us: int) -> int:
        """Give when the holder stops, on the clock on which it asked."""
        return sent_us + self.ttl_us - self.margin_us


USUAL = Terms()


@stepped
class Lease(NamedTuple):
    """A lease: who has it, for how long at a time, until when, since which revision, and the keys that end with it."""

    holder: Address
    ttl_us: int
    expires_us: int
    revision: int = 0
    keys: frozenset[str] = frozenset()


def granted(key: Any, holder: Address, ttl_us: int, now: Now, revision: int = 0) -> tuple[Lease, Wake]:
    """Give a lease, and the timer by whose name it is known when it may have run out."""
    return Lease(holder, ttl_us, now.at_us + ttl_us, revision), Wake(ttl_us, key)


def prolonged(key: Any, lease: Lease, now: Now) -> tuple[Lease, Wake]:
    """Renew it, from now on."""
    return lease._replace(expires_us=now.at_us + lease.ttl_us), Wake(lease.ttl_us, key)


def run_out(leases: Mapping[K, Lease], now: Now) -> list[K]:
    """Give those that have run out, in the order of their keys; a timer of one that was prolonged finds it alive."""
    return [key for key, lease in sorted(leases.items()) if lease.expires_us <= now.at_us]


def lives(holders: Iterable[Address], node: Address) -> list[Address]:
    """Give the lives of a node, ``n``, ``n.2``, .. in their order, the tenth behind the ninth."""
    own = (h for h in holders if h == node or h.startswith(f"{node}."))
    return sorted(own, key=lambda h: (len(h), h))
