"""The schedulers of a maintainer, one after the other: drain, basic, balance (maintainer/scheduler)."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

from ticdc_lab.machines.machine import Address, Decided, Output, replace
from ticdc_lab.simulate.scheduler.roles import rank
from ticdc_lab.simulate.scheduler.v4 import operators, spans
from ticdc_lab.simulate.scheduler.v4.operators import Control, Controlled
from ticdc_lab.simulate.scheduler.v4.settings import V4Settings
from ticdc_lab.simulate.scheduler.v4.spans import DEFAULT_GROUP, group_of, position
from ticdc_lab.words import count

# The basic scheduler: absent spans get a node (maintainer/scheduler/basic.go).

BASIC = "basic-scheduler"


def placed(
    control: Control, settings: V4Settings, target: Address | None, prefer: tuple[Hashable, ...], at_us: int
) -> Controlled:
    """Create absent spans on the nodes that create the fewest; the parts of split tables first.

    ``target`` is the node being drained, which gets none. Nothing is begun while more than half of the batch runs.
    """
    waiting = spans.absent_size(control.spans)
    if not waiting:
        return control, []
    room = settings.batch_size - len(control.running)
    nodes = sorted(control.nodes - {target}, key=lambda node: rank(node, prefer))
    if room <= 0 or room < settings.batch_size // 2:
        because = f"{len(control.running)} operators run, of {settings.batch_size}"
        return control, [
            Decided(BASIC, None, because, ((f"{waiting} absent spans", "they wait for operators to end"),))
        ]
    if not nodes:
        return control, [Decided(BASIC, None, "no node can take a span", _rejected(target))]
    outputs: list[Output] = []
    groups = sorted(control.spans.absent, key=lambda group: (group == DEFAULT_GROUP, group))
    for group in groups:
        control, more = _group(control, settings, group, room, nodes, prefer, at_us)
        outputs += more
        room = settings.batch_size - len(control.running)
        if room <= 0:
            break
    left = spans.absent_size(control.spans)
    because = f"absent spans go to the nodes that create the fewest; {left} are left"
    return control, [*outputs, Decided(BASIC, count(waiting - left, "span"), because, _rejected(target))]


def _group(
    control: Control,
    settings: V4Settings,
    group: int,
    room: int,
    nodes: list[Address],
    prefer: tuple[Hashable, ...],
    at_us: int,
) -> Controlled:
    state = control.spans
    creating = Counter(state.replicas[key].node for key in state.scheduling if group_of(key) == group)
    if group != DEFAULT_GROUP:
        per_node = settings.scheduling_task_count_per_node
        room = min(room, sum(max(0, per_node - creating[node]) for node in nodes))
    loads = [(creating[node], spans.size(control.spans, node), rank(node, prefer)) for node in nodes]
    heapq.heapify(loads)
    outputs: list[Output] = []
    for key in spans.first(control.spans.absent[group], room, prefer):
        load, total, (place, node) = loads[0]
        control, more, why_not = operators.added(control, operators.add(key, node), at_us)
        outputs += more
        if not why_not:
            heapq.heapreplace(loads, (load + 1, total + 1, (place, node)))
    return control, outputs


def _rejected(target: Address | None) -> tuple[tuple[str, str], ...]:
    return () if target is None else ((target, "it is being drained"),)


# The balance scheduler: nodes differ by one span at most (maintainer/scheduler/balance.go).

BALANCE = "balance-scheduler"


def balanced(control: Control, batch_size: int, prefer: tuple[Hashable, ...], at_us: int) -> Controlled:
    """Move spans from the fullest nodes to the emptiest ones, as many as one batch holds.

    Nothing is moved while an operator runs or a span is absent: the counts would not be those to balance.
    """
    absent = spans.absent_size(control.spans)
    if control.running or absent:
        because = f"{len(control.running)} operators run and {absent} spans are absent: first they have to settle"
        return control, [Decided(BALANCE, None, because)]
    loads = {node: spans.size(control.spans, node) for node in sorted(control.nodes)}
    routes = _routes(loads, batch_size, prefer)
    if not routes:
        because = "no node has more than one span more than another"
        return control, [Decided(BALANCE, None, because, tuple((node, count(n, "span")) for node, n in loads.items()))]
    outputs: list[Output] = []
    ranked = {key: place for place, key in enumerate(prefer)}
    leave = {
        origin: iter(
            heapq.nsmallest(
                n,
                spans.of_node(control.spans, origin),
                key=lambda key: (ranked.get(key, len(ranked)), position(key)),
            )
        )
        for origin, n in Counter(origin for origin, _ in routes).items()
    }
    for key, origin, dest in [(next(leave[origin]), origin, dest) for origin, dest in routes]:
        control, more, why_not = operators.added(control, operators.move(key, origin, dest), at_us)
        outputs += more
        chosen = None if why_not else dest
        rejected = tuple((node, count(n, "span")) for node, n in loads.items() if node != dest)
        because = why_not or f"{origin} had {count(loads[origin], 'span')}, {dest} {loads[dest]}"
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


# The drain scheduler: the spans of a node that is to go move away (maintainer/scheduler/drain.go, drain_common.go).

DRAIN = "drain-scheduler"
MIN_MOVES = 10


@dataclass(frozen=True, slots=True)
class DrainState:
    """The node to drain and the epoch of that wish; ``limit`` of moves at once is fixed once for a target and epoch."""

    target: Address | None = None
    epoch: int = 0
    limit: int = 0
    limit_of: tuple[Address | None, int] = (None, 0)


NO_DRAIN = DrainState()


def targeted(state: DrainState, target: Address | None, epoch: int) -> DrainState:
    """Take a drain target: an older epoch is ignored, the same epoch can only clear its target."""
    if epoch < state.epoch or (epoch == state.epoch and target is not None):
        return state
    return replace(state, target=target, epoch=epoch)


def active(state: DrainState) -> Address | None:
    """Give the node that is being drained."""
    return state.target if state.epoch > 0 else None


def move_limit(initial: int) -> int:
    """Give the moves at once for a node that had so many spans: one percent, rounded up, and ten at least."""
    return max(MIN_MOVES, -(-initial // 100))


def moves_from(control: Control, node: Address) -> int:
    """Count the unfinished moves away from a node."""
    at_work = (found.operator for found in control.running.values())
    return sum(operator.kind == operators.MOVE and operator.origin == node for operator in at_work)


def drained(
    control: Control, state: DrainState, address: Address, batch_size: int, prefer: tuple[Hashable, ...], at_us: int
) -> tuple[Control, DrainState, list[Output]]:
    """Move spans from the target to the emptiest other nodes, at most a batch, at most the limit at once.

    ``address`` is the maintainer's own node: it has to move before its spans do.
    """
    target = active(state)
    if target is None:
        return control, replace(state, limit=0, limit_of=(None, 0)), []
    if target == address:
        return control, state, [Decided(DRAIN, None, f"the maintainer is on {target}: it has to move first")]
    if state.limit_of != (target, state.epoch) or not state.limit:
        limit = move_limit(spans.size(control.spans, target))
        state = replace(state, limit=limit, limit_of=(target, state.epoch))
    moving = moves_from(control, target)
    room = min(state.limit - moving, batch_size)
    nodes = sorted(control.nodes - {target})
    if room <= 0 or not nodes:
        because = f"{moving} spans move, of {state.limit} at once" if nodes else "no other node is there"
        return control, state, [Decided(DRAIN, None, because)]
    idle = (key for key in spans.of_node(control.spans, target) if key not in control.running)
    loads = [(spans.size(control.spans, node), rank(node, prefer)) for node in nodes]
    heapq.heapify(loads)
    outputs: list[Output] = []
    for key in heapq.nsmallest(room, idle, key=position):
        load, (place, dest) = loads[0]
        control, more, why_not = operators.added(control, operators.move(key, target, dest), at_us)
        outputs += more
        if not why_not:
            heapq.heapreplace(loads, (load + 1, (place, dest)))
        because = why_not or f"{target} is being drained, {dest} has the fewest spans"
        rejected = tuple((node, count(n, "span")) for n, (_, node) in sorted(loads) if node != dest)
        outputs.append(Decided(f"span:{key}", None if why_not else dest, because, rejected))
    return control, state, outputs
