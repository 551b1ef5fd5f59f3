"""The balance scheduler: nodes differ by one span at most (maintainer/scheduler/balance.go)."""

from __future__ import annotations

import heapq
from collections.abc import Hashable

from ticdc_lab.simulate.machine import Address, Decided, Output
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4 import operators, spans
from ticdc_lab.simulate.scheduler.v4.basic import rank
from ticdc_lab.simulate.scheduler.v4.control import Control
from ticdc_lab.simulate.scheduler.v4.keys import position
from ticdc_lab.simulate.scheduler.v4.move import Move

SUBJECT = "balance-scheduler"


def balanced(
    control: Control, batch_size: int, prefer: tuple[Hashable, ...], at_us: int
) -> tuple[Control, list[Output]]:
    """Move spans from the fullest nodes to the emptiest ones, as many as one batch holds.

    Nothing is moved while an operator runs or a span is absent: the counts would not be those to balance.
    """
    absent = spans.absent_size(control.spans)
    if control.running or absent:
        because = f"{len(control.running)} operators run and {absent} spans are absent: first they have to settle"
        return control, [Decided(SUBJECT, None, because)]
    loads = {node: spans.size(control.spans, node) for node in sorted(control.nodes)}
    routes = _routes(loads, batch_size, prefer)
    if not routes:
        because = "no node has more than one span more than another"
        return control, [Decided(SUBJECT, None, because, tuple((node, f"{n} spans") for node, n in loads.items()))]
    outputs: list[Output] = []
    for key, origin, dest in _victims(control, routes, prefer):
        control, more, why_not = operators.added(control, Move(key, origin, dest), at_us)
        outputs += more
        chosen = None if why_not else dest
        rejected = tuple((node, f"{n} spans") for node, n in loads.items() if node != dest)
        because = why_not or f"{origin} had {loads[origin]} spans, {dest} {loads[dest]}"
        outputs.append(Decided(f"span:{key}", chosen, because, rejected))
    return control, outputs


def _routes(loads: dict[Address, int], limit: int, prefer: tuple[Hashable, ...]) -> list[tuple[Address, Address]]:
    """Give (from, to) of every move until the fullest node has at most one span more than the emptiest."""
    emptiest = [(n, rank(node, prefer)) for node, n in loads.items()]
    fullest = [(-n, rank(node, prefer)) for node, n in loads.items()]
    heapq.heapify(emptiest)
    heapq.heapify(fullest)
    routes: list[tuple[Address, Address]] = []
    while emptiest and -fullest[0][0] - emptiest[0][0] > 1 and len(routes) < limit:
        high, origin = fullest[0]
        low, dest = emptiest[0]
        routes.append((origin[1], dest[1]))
        heapq.heapreplace(fullest, (high + 1, origin))
        heapq.heapreplace(emptiest, (low + 1, dest))
    return routes


def _victims(
    control: Control, routes: list[tuple[Address, Address]], prefer: tuple[Hashable, ...]
) -> list[tuple[Key, Address, Address]]:
    needed: dict[Address, int] = {}
    for origin, _ in routes:
        needed[origin] = needed.get(origin, 0) + 1
    ranked = {key: place for place, key in enumerate(prefer)}
    keys = {
        origin: iter(
            heapq.nsmallest(
                count,
                spans.of_node(control.spans, origin),
                key=lambda key: (ranked.get(key, len(ranked)), position(key)),
            )
        )
        for origin, count in needed.items()
    }
    return [(next(keys[origin]), origin, dest) for origin, dest in routes]
