"""The drain scheduler: the spans of a node that is to go move away (maintainer/scheduler/drain.go, drain_common.go)."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, replace

from ticdc_lab.simulate.machine import Address, Decided, Output
from ticdc_lab.simulate.scheduler.v4 import operators, spans
from ticdc_lab.simulate.scheduler.v4.basic import rank
from ticdc_lab.simulate.scheduler.v4.control import Control, moves_from
from ticdc_lab.simulate.scheduler.v4.keys import position
from ticdc_lab.simulate.scheduler.v4.move import Move

SUBJECT = "drain-scheduler"
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


def drained(
    control: Control,
    state: DrainState,
    address: Address,
    batch_size: int,
    prefer: tuple[Hashable, ...],
    at_us: int,
) -> tuple[Control, DrainState, list[Output]]:
    """Move spans from the target to the emptiest other nodes, at most a batch, at most the limit at once.

    ``address`` is the maintainer's own node: it has to move before its spans do.
    """
    target = active(state)
    if target is None:
        return control, replace(state, limit=0, limit_of=(None, 0)), []
    if target == address:
        return control, state, [Decided(SUBJECT, None, f"the maintainer is on {target}: it has to move first")]
    if state.limit_of != (target, state.epoch) or not state.limit:
        limit = move_limit(spans.size(control.spans, target))
        state = replace(state, limit=limit, limit_of=(target, state.epoch))
    moving = moves_from(control, target)
    room = min(state.limit - moving, batch_size)
    nodes = sorted(control.nodes - {target})
    if room <= 0 or not nodes:
        because = f"{moving} spans move, of {state.limit} at once" if nodes else "no other node is there"
        return control, state, [Decided(SUBJECT, None, because)]
    control, outputs = _moved(control, target, nodes, room, prefer, at_us)
    return control, state, outputs


def _moved(
    control: Control, target: Address, nodes: list[Address], room: int, prefer: tuple[Hashable, ...], at_us: int
) -> tuple[Control, list[Output]]:
    idle = (key for key in spans.of_node(control.spans, target) if key not in control.running)
    loads = [(spans.size(control.spans, node), rank(node, prefer)) for node in nodes]
    heapq.heapify(loads)
    outputs: list[Output] = []
    for key in heapq.nsmallest(room, idle, key=position):
        load, (place, dest) = loads[0]
        control, more, why_not = operators.added(control, Move(key, target, dest), at_us)
        outputs += more
        if not why_not:
            heapq.heapreplace(loads, (load + 1, (place, dest)))
        because = why_not or f"{target} is being drained, {dest} has the fewest spans"
        rejected = tuple((node, f"{n} spans") for n, (_, node) in sorted(loads) if node != dest)
        outputs.append(Decided(f"span:{key}", None if why_not else dest, because, rejected))
    return control, outputs
