"""What every variant of the protocol has in common: what an owner and a processor are sent and asked.

A variant is a module with two machines (:class:`ticdc_lab.machines.machine.Machine`): the owner's side (dispatcher,
coordinator, maintainer) and the processor's side (agent, dispatcher manager). :mod:`.capture` puts both into one node.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple, TypeAlias, TypeVar

from immutables import Map

from ticdc_lab.machines.machine import OTHER, Address, Output, Reason

Key: TypeAlias = "int | Span"
"""What is dispatched: a table by its id, or one span of a table."""


class Span(NamedTuple):
    """A part of a table's key range, ``start <= key < end``."""

    table: int
    start: str
    end: str

    def __str__(self) -> str:
        return f"{self.table}[{self.start},{self.end})"


def order(key: Key) -> tuple[int, str]:
    """Sort tables and spans by this."""
    return (key, "") if isinstance(key, int) else (key.table, key.start)


def in_turn(keys: Iterable[Key]) -> list[Key]:
    """Give tables or spans in the order in which they are handled."""
    found: list[Any] = list(keys)
    try:
        found.sort()
    except TypeError:  # tables and spans together
        found.sort(key=order)
    return found


K = TypeVar("K")
V = TypeVar("V")


def without(entries: Map[K, V], key: K) -> Map[K, V]:
    """Give a map without a key, which may not be in it."""
    return entries.delete(key) if key in entries else entries


def rank(name: Any, prefer: tuple[Hashable, ...]) -> tuple[int, Any]:
    """Order equals: the preferred ones first, then the smaller name."""
    return (prefer.index(name) if name in prefer else len(prefer), name)


class Tick(NamedTuple):
    """The owner's periodic call (command of an ``Asked`` to the owner's machine)."""

    captures: frozenset[Address]  # those that etcd has registered, as this owner last heard
    # What should be replicated: the same object as before unless it changed, so that machines compare with ``is``.
    tables: frozenset[Key]
    checkpoint_ts: int  # the persisted global checkpoint
    # No watermark may pass it (a DDL that has not been executed), None without one; and the last that was executed.
    barrier_ts: int | None = None
    executed_ts: int = 0


class MoveTable(NamedTuple):
    """A user wants a table on a certain capture."""

    table: Key
    to: Address


class SplitTable(NamedTuple):
    """A user wants a span split (command); ``targets`` are nodes, one for each part, or empty to leave it open."""

    table: Key
    at: tuple[str, ...]
    targets: tuple[Address, ...] = ()


class MergeSpans(NamedTuple):
    """A user wants neighbouring spans of one node merged (command)."""

    spans: tuple[Key, ...]


class MoveMaintainer(NamedTuple):
    """A user wants the maintainer of the changefeed on a certain node."""

    to: Address


class Rebalance(NamedTuple):
    """A user wants the tables spread evenly, now."""


class Drain(NamedTuple):
    """A user wants a capture without tables."""

    capture: Address


class Poll(NamedTuple):
    """The processor's periodic call (command of an ``Asked`` to the processor's machine).

    ``limit_ts`` is the global resolved ts as this capture last heard: nothing is written beyond it. ``barrier_ts`` is
    the DDL that etcd has, for processors that stop at it by themselves.
    """

    limit_ts: int
    barrier_ts: int | None = None


class Restart(NamedTuple):
    """The processor loses its state and keeps its capture's id (scheduling design, "Processor restarts")."""


NO_REASON = Reason(OTHER, "", "")


class Watermarks(NamedTuple):
    """An output of the owner at each tick: what the global watermarks may become.

    Both None where the checkpoint cannot proceed; ``because`` then is what holds it, else what is the lowest.
    """

    checkpoint_ts: int | None
    resolved_ts: int | None
    because: Reason = NO_REASON


OwnerOutput: TypeAlias = "Output | Watermarks"
