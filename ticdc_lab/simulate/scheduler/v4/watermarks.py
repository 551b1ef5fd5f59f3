"""What the global watermarks may become, and what holds them (maintainer.go, calCheckpointTs)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ticdc_lab.simulate.scheduler.executor import MAX_TS
from ticdc_lab.simulate.scheduler.roles import Key, Tick, Watermarks
from ticdc_lab.simulate.scheduler.v4 import barrier, queue, spans
from ticdc_lab.simulate.scheduler.v4.keys import position
from ticdc_lab.simulate.scheduler.v4.nodes import MaintainerState
from ticdc_lab.simulate.scheduler.v4.spans import Spans


def global_watermarks(state: MaintainerState, tick: Tick, at_us: int) -> tuple[MaintainerState, Watermarks]:
    """Give the watermarks of this tick; without progress they are None twice, with what holds them and since when."""
    found = _watermarks(state, tick)
    if found.checkpoint_ts is not None:
        return replace(state, stuck_us=None), found
    stuck_us = at_us if state.stuck_us is None else state.stuck_us
    since_us = stuck_us if found.since_us is None else found.since_us
    return replace(state, stuck_us=stuck_us), found._replace(since_us=since_us)


def _watermarks(state: MaintainerState, tick: Tick) -> Watermarks:
    if not state.bootstrapped:
        late = [(node, state.nodes[node].since_us) for node in sorted(state.nodes) if node not in state.responses]
        names = ", ".join(node for node, _ in late) or "any node"
        since_us = min((since for _, since in late), default=None)
        return Watermarks(None, None, f"the maintainer has begun and waits for the answer of {names}", since_us)
    if tick.barrier_ts is not None and tick.barrier_ts <= tick.checkpoint_ts:
        return Watermarks(None, None, f"a barrier at {tick.barrier_ts} has not been executed")
    held = _held(state.control.spans, tick.checkpoint_ts)
    if isinstance(held, Watermarks):
        return held
    new_tables_ts = barrier.limit_ts(state.barrier)
    if new_tables_ts is not None and new_tables_ts - 1 <= tick.checkpoint_ts:
        because, since_us = barrier.waiting(state.barrier, state.control)[0]
        return Watermarks(None, None, because, since_us)
    limits = [MAX_TS if tick.barrier_ts is None else tick.barrier_ts, (new_tables_ts or MAX_TS + 1) - 1]
    checkpoint_ts = resolved_ts = min(held, *limits)
    because = "a barrier" if checkpoint_ts in limits and checkpoint_ts != MAX_TS else ""
    for name in sorted(state.control.spans.by_node):
        node = state.nodes.get(name)
        if node is None or node.checkpoint_ts is None or node.resolved_ts is None:
            return Watermarks(None, None, f"{name} has not reported its watermark", node.since_us if node else None)
        if node.checkpoint_ts < checkpoint_ts:
            because = name if node.slowest is None else f"table {node.slowest} on {name}"
        checkpoint_ts, resolved_ts = min(checkpoint_ts, node.checkpoint_ts), min(resolved_ts, node.resolved_ts)
    if checkpoint_ts == MAX_TS:
        return Watermarks(None, None, "nothing is replicated")
    return Watermarks(checkpoint_ts, max(checkpoint_ts, resolved_ts), because)


def _held(state: Spans, checkpoint_ts: int) -> int | Watermarks:
    """Give the lowest start of the spans that do not replicate, or the first one found that holds the checkpoint."""
    lowest = MAX_TS
    for key in _not_replicating(state):
        replica = state.replicas[key]
        start_ts = spans.start_ts(state, key)
        if start_ts <= checkpoint_ts:
            return Watermarks(None, None, f"table {key} is {replica}", replica.since_us)
        lowest = min(lowest, start_ts)
    return lowest


def _not_replicating(state: Spans) -> Iterator[Key]:
    for group in sorted(state.absent):
        yield from queue.in_order(state.absent[group])
    yield from sorted(state.scheduling, key=position)
