"""Where tables go and which of them move: by count or by traffic, with the price of a move, and the reasons."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from immutables import Map

from ticdc_lab.machines.machine import Address
from ticdc_lab.simulate.scheduler.roles import Key, in_turn, order
from ticdc_lab.words import count

COUNT, TRAFFIC, RELEASED, NONE = POLICIES = "count", "traffic", "released", "none"


@dataclass(frozen=True, slots=True)
class Balance:
    """How a scheduler balances."""

    # ``count``: no two captures differ by more than one table; ``released``: as TiCDC v6.1, no capture has more than
    # the mean rounded up, so that a new one may stay empty; ``traffic``: by rows a second; ``none``: tables stay
    policy: str = COUNT
    traffic: Map[Key, int] = Map()  # rows a second of tables; 1 by default
    # A move must bring the busiest and the idlest capture nearer to each other by more than this (traffic only)
    move_cost: int = 0
    at_most: int | None = None  # moves of one rebalance; None for all
    # How often an owner looks at the balance without being asked: a new owner does not know who came before it
    check_us: int = 10_000_000

    def weight(self, key: Key) -> int:
        """Give what a table counts."""
        return self.traffic.get(key, 1) if self.policy == TRAFFIC else 1


BY_COUNT = Balance()


class Moving(NamedTuple):
    """A table that leaves its capture; ``to`` is None where the least loaded one is to take it."""

    key: Key
    source: Address
    to: Address | None
    because: str


class BalancePlan(NamedTuple):
    """What a rebalance does, and (capture, why not) for those that give nothing."""

    moves: tuple[Moving, ...]
    because: str
    rejected: tuple[tuple[str, str], ...]


class Places:
    """Captures that can take tables, the least loaded first; equals in the order of ``prefer``, then by name."""

    def __init__(self, loads: Mapping[Address, int], prefer: Sequence[object] = ()) -> None:
        self._rank = ranks(loads, prefer)
        self.loads = dict(loads)
        self._heap = [(load, self._rank[c], c) for c, load in loads.items()]
        heapq.heapify(self._heap)

    def least(self) -> Address:
        """Give the capture for the next table."""
        return self._heap[0][2]

    def take(self, capture: Address, weight: int) -> None:
        """Count a table that a capture has been given."""
        self.loads[capture] += weight
        if self._heap[0][2] == capture:
            heapq.heapreplace(self._heap, (self.loads[capture], self._rank[capture], capture))
        else:
            self._heap = [(load, self._rank[c], c) for c, load in self.loads.items()]
            heapq.heapify(self._heap)


def ranks(names: Iterable[Address], prefer: Sequence[object]) -> dict[Address, tuple[int, str]]:
    """Give the order of equals: by ``prefer``, then by name."""
    first = {name: i for i, name in enumerate(prefer)}
    return {name: (first.get(name, len(first)), name) for name in sorted(names)}


def in_order(keys: Iterable[Key], prefer: Sequence[object]) -> list[Key]:
    """Give tables in the order in which they are handled."""
    first = {key: i for i, key in enumerate(prefer)}
    if not first:
        return in_turn(keys)
    return sorted(keys, key=lambda k: (first.get(k, len(first)), order(k)))


def plan(
    tables: Mapping[Address, Sequence[Key]],
    leaving: frozenset[Address],
    balance: Balance,
    prefer: Sequence[object] = (),
) -> BalancePlan:
    """Choose the tables that leave their captures.

    Parameters
    ----------
    tables
        Of every live capture, in the order in which they would be taken from its end.
    leaving
        Captures that are to end without tables.
    balance
        The policy.
    prefer
        The order of equals.
    """
    if not set(tables) - leaving:
        return BalancePlan((), "no capture may take tables", ())
    if balance.policy == TRAFFIC:
        found = _by_traffic(tables, leaving, balance, prefer)
    else:
        found = _by_count(tables, leaving, balance, prefer)
    return found if balance.at_most is None else found._replace(moves=found.moves[: balance.at_most])


def _by_count(
    tables: Mapping[Address, Sequence[Key]], leaving: frozenset[Address], balance: Balance, prefer: Sequence[object]
) -> BalancePlan:
    rank = ranks(tables, prefer)
    quota = _quotas(tables, leaving, balance, rank)
    moves, kept = [], []
    for capture in sorted(tables, key=lambda c: rank[c]):
        n, most = len(tables[capture]), quota[capture]
        if n <= most:
            kept.append((capture, f"has {n} of at most {count(most, 'table')}"))
            continue
        why = f"{capture} has {count(n, 'table')} and is to have {most}"
        moves += [Moving(key, capture, None, why) for key in tables[capture][most:]]
    because = f"{count(sum(map(len, tables.values())), 'table')} on {count(len(set(tables) - leaving), 'capture')}"
    return BalancePlan(tuple(moves), because, tuple(kept))


def _quotas(
    tables: Mapping[Address, Sequence[Key]],
    leaving: frozenset[Address],
    balance: Balance,
    rank: Mapping[Address, tuple[int, str]],
) -> dict[Address, int]:
    """Give the most tables of each capture; those with the most now keep one more, so that the fewest move."""
    if balance.policy == NONE:
        return {c: 0 if c in leaving else len(keys) for c, keys in tables.items()}
    places = sorted((c for c in tables if c not in leaving), key=lambda c: (-len(tables[c]), rank[c]))
    each, more = divmod(sum(map(len, tables.values())), len(places))
    if balance.policy == RELEASED:
        more = len(places) if more else 0
    quota = dict.fromkeys(leaving, 0)
    return quota | {c: each + (i < more) for i, c in enumerate(places)}


def _by_traffic(
    tables: Mapping[Address, Sequence[Key]], leaving: frozenset[Address], balance: Balance, prefer: Sequence[object]
) -> BalancePlan:
    """Move the table that evens a busy and the idlest capture best, as long as that is worth its cost.

    The busiest comes first; one that has nothing fitting (a single hot table) does not keep the next from giving.
    """
    rank = ranks(tables, prefer)
    held = {c: list(tables[c]) for c in sorted(tables)}
    loads = {c: sum(balance.weight(k) for k in keys) for c, keys in held.items()}
    moves: list[Moving] = []
    while True:
        idle = min((c for c in held if c not in leaving), key=lambda c: (loads[c], rank[c]))
        out = [c for c in sorted(leaving) if held.get(c)]
        by_load = sorted((c for c in held if c not in leaving), key=lambda c: (loads[c], rank[c]), reverse=True)
        found = ((c, _best(held[c], loads[c] - loads[idle], balance)) for c in by_load)
        busy, best = (
            (out[0], held[out[0]][-1]) if out else next((f for f in found if f[1] is not None), (by_load[0], None))
        )
        if best is None:
            gap = loads[busy] - loads[idle]
            kept = tuple((c, f"carries {loads[c]} rows/s") for c in held)
            return BalancePlan(tuple(moves), f"nothing more is gained: {busy} and {idle} are {gap} rows/s apart", kept)
        why = f"{busy} carries {loads[busy]} rows/s, {idle} {loads[idle]}; this table {balance.weight(best)}"
        moves.append(Moving(best, busy, idle, why))
        held[busy].remove(best)
        held[idle].append(best)
        loads[busy] -= balance.weight(best)
        loads[idle] += balance.weight(best)


def _best(keys: Sequence[Key], gap: int, balance: Balance) -> Key | None:
    """Give the table whose move leaves the smallest gap, if the gap shrinks by more than a move costs."""
    gains = [(gap - abs(gap - 2 * balance.weight(k)), k) for k in keys]
    worth = [(gain, k) for gain, k in gains if gain > balance.move_cost and gain > 0]
    return max(worth, key=lambda e: (e[0], [-x for x in (order(e[1])[0],)]))[1] if worth else None
