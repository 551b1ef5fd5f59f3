"""The span controller: every span that should be replicated, where it is and how far (maintainer/span).

A span is ``absent`` (on no node), ``scheduling`` (an operator works on it, it is bound to a node) or ``replicating``.
None is ever ``scheduling`` without a node. All steps return the next :class:`Spans` and the changes to tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.machine import Address, Changed, Output
from ticdc_lab.simulate.scheduler.executor import MAX_TS
from ticdc_lab.simulate.scheduler.roles import Key, Span
from ticdc_lab.simulate.scheduler.v4 import queue
from ticdc_lab.simulate.scheduler.v4.keys import group_of, position
from ticdc_lab.simulate.scheduler.v4.queue import Queue
from ticdc_lab.simulate.scheduler.v4.replica import ABSENT, NOBODY, REPLICATING, SCHEDULING, Replica, indexed


class Spans(NamedTuple):
    """All spans.

    Attributes
    ----------
    by_node
        The spans bound to each node.
    parts
        The spans of each split table.
    absent
        By group, in the order in which they became so.
    schemas
        The schema of each table that has one.
    reached
        The checkpoint that each node reported last: every span that it replicates is at least there.
    floor_ts
        The global checkpoint: every span is at least there, whatever is known of it.
    """

    replicas: Map[Key, Replica] = Map()
    by_node: Map[Address, Map[Key, None]] = Map()
    parts: Map[int, Map[Key, None]] = Map()
    scheduling: Map[Key, None] = Map()
    absent: Map[int, Queue] = Map()
    schemas: Map[int, int] = Map()
    reached: Map[Address, int] = Map()
    floor_ts: int = 0


NO_SPANS = Spans()
Stepped = tuple[Spans, list[Output]]


def of_table(spans: Spans, table: int) -> list[Key]:
    """Give the spans of a table, in order of their ranges."""
    whole: list[Key] = [table] if table in spans.replicas else []
    return whole + sorted(spans.parts.get(table, Map()), key=position)


def of_node(spans: Spans, node: Address) -> Map[Key, None]:
    """Give the spans bound to a node; do not rely on the order."""
    return spans.by_node.get(node, NOBODY)


def size(spans: Spans, node: Address) -> int:
    """Count the spans bound to a node."""
    return len(of_node(spans, node))


def absent_size(spans: Spans) -> int:
    """Count the spans on no node."""
    return sum(len(waiting) for waiting in spans.absent.values())


def start_ts(spans: Spans, key: Key) -> int:
    """Give the ts after which a dispatcher of a span must start: nothing above it is known to be downstream."""
    return max(spans.replicas[key].checkpoint_ts, spans.floor_ts)


def added(spans: Spans, keys: Iterable[Key], checkpoint_ts: int, at_us: int, because: str) -> Stepped:
    """Take up spans as absent; those that exist already stay as they are."""
    new = sorted((key for key in keys if key not in spans.replicas), key=position)
    replicas, grouped = spans.replicas.mutate(), dict[int, list[Key]]()
    for key in new:
        replicas[key] = Replica(ABSENT, None, checkpoint_ts, at_us)
        grouped.setdefault(group_of(key), []).append(key)
    absent, parts = spans.absent, spans.parts
    for group, members in grouped.items():
        absent = absent.set(group, queue.pushed(absent.get(group, queue.EMPTY), members))
    for key in new:
        if isinstance(key, Span):
            parts = parts.set(key.table, parts.get(key.table, Map()).set(key, None))
    changes: list[Output] = [Changed(f"span:{key}", None, ABSENT, because) for key in new]
    return spans._replace(replicas=replicas.finish(), absent=absent, parts=parts), changes


def restored(spans: Spans, key: Key, node: Address, checkpoint_ts: int, at_us: int, because: str) -> Stepped:
    """Take up a span that a node reported as replicating."""
    spans, _ = added(spans, [key], checkpoint_ts, at_us, because)
    return _put(spans, key, Replica(REPLICATING, node, checkpoint_ts, at_us), because)


def bound(spans: Spans, key: Key, node: Address, at_us: int, because: str) -> Stepped:
    """Bind a span to the node where it will be created (BindSpanToNode)."""
    return _put(spans, key, spans.replicas[key]._replace(state=SCHEDULING, node=node, since_us=at_us), because)


def marked_scheduling(spans: Spans, key: Key, at_us: int, because: str) -> Stepped:
    """An operator works on a span from now on; one without a node stays absent (MarkSpanScheduling)."""
    return _marked(spans, key, SCHEDULING, at_us, because)


def marked_replicating(spans: Spans, key: Key, at_us: int, because: str) -> Stepped:
    """A span is replicated where it is bound to (MarkSpanReplicating)."""
    return _marked(spans, key, REPLICATING, at_us, because)


def marked_absent(spans: Spans, key: Key, at_us: int, because: str) -> Stepped:
    """A span is on no node and waits for the basic scheduler (MarkSpanAbsent); a second time changes nothing."""
    old = spans.replicas.get(key)
    if old is None or old.state == ABSENT:
        return spans, []
    return _put(spans, key, _known(spans, old)._replace(state=ABSENT, node=None, since_us=at_us), because)


def checkpointed(spans: Spans, key: Key, checkpoint_ts: int) -> Spans:
    """Raise what is known of a span's checkpoint; it never falls."""
    old = spans.replicas.get(key)
    if old is None or checkpoint_ts <= old.checkpoint_ts:
        return spans
    return spans._replace(replicas=spans.replicas.set(key, old._replace(checkpoint_ts=checkpoint_ts)))


def removed(spans: Spans, key: Key, because: str) -> Stepped:
    """Forget a span."""
    old = spans.replicas.get(key)
    if old is None:
        return spans, []
    by_node, scheduling, absent = indexed(spans.by_node, spans.scheduling, spans.absent, key, old, None)
    parts = spans.parts
    if isinstance(key, Span):
        left = parts[key.table].delete(key)
        parts = parts.set(key.table, left) if left else parts.delete(key.table)
    left_over = spans._replace(
        replicas=spans.replicas.delete(key), by_node=by_node, scheduling=scheduling, absent=absent, parts=parts
    )
    return left_over, [Changed(f"span:{key}", str(old), None, because)]


def _marked(spans: Spans, key: Key, state: str, at_us: int, because: str) -> Stepped:
    old = spans.replicas.get(key)
    if old is None or old.node is None or old.state == state:
        return spans, []
    return _put(spans, key, _known(spans, old)._replace(state=state, since_us=at_us), because)


def _known(spans: Spans, old: Replica) -> Replica:
    if old.state != REPLICATING or old.node is None:
        return old
    reached = spans.reached.get(old.node, 0)
    return old._replace(checkpoint_ts=max(old.checkpoint_ts, reached if reached < MAX_TS else 0))


def _put(spans: Spans, key: Key, new: Replica, because: str) -> Stepped:
    old = spans.replicas[key]
    by_node, scheduling, absent = indexed(spans.by_node, spans.scheduling, spans.absent, key, old, new)
    put = spans._replace(replicas=spans.replicas.set(key, new), by_node=by_node, scheduling=scheduling, absent=absent)
    return put, [Changed(f"span:{key}", str(old), str(new), because)]
