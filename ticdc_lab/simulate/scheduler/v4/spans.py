"""The span controller: every span that should be replicated, where it is and how far (maintainer/span).

A span is ``absent`` (on no node), ``scheduling`` (an operator works on it, it is bound to a node) or ``replicating``.
None is ever ``scheduling`` without a node. All steps return the next :class:`Spans` and the changes to report.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

from immutables import Map

from ticdc_lab.machines.machine import Address, Changed, Output, stepped
from ticdc_lab.simulate.scheduler.executor import MAX_TS
from ticdc_lab.simulate.scheduler.roles import Key, Span

# What spans have by themselves: their order, their table, the group that shares a limit.

DEFAULT_GROUP = 0
"""Of all whole tables; the parts of a split table have their table's id as the group."""


def position(key: Key) -> tuple[int, str, str]:
    """Sort spans by this; it distinguishes spans of one start, as a merge has them for a while."""
    return (key.table, key.start, key.end) if isinstance(key, Span) else (key, "", "")


def group_of(key: Key) -> int:
    """Give the group whose spans share the limit of the basic scheduler."""
    return key.table if isinstance(key, Span) and (key.start or key.end) else DEFAULT_GROUP


def table_of(key: Key) -> int:
    """Give the table of a span."""
    return key.table if isinstance(key, Span) else key


# Ranges of keys: what lies in what, and what is missing.


def root_of(key: Key, tables: frozenset[Key]) -> Key | None:
    """Give the wanted table or span that a span is (a part of), None where it is of none."""
    if key in tables:
        return key
    if not isinstance(key, Span):
        return None
    if key.table in tables:
        return key.table
    around = (root for root in tables if isinstance(root, Span) and contains(root, key))
    return next(around, None)


def contains(outer: Key, inner: Key) -> bool:
    """Whether a span lies in another one; an empty ``end`` is the end of the table."""
    if not isinstance(outer, Span):
        return (inner.table if isinstance(inner, Span) else inner) == outer
    if not isinstance(inner, Span) or inner.table != outer.table:
        return False
    return outer.start <= inner.start and (not outer.end or (bool(inner.end) and inner.end <= outer.end))


def holes(root: Key, parts: list[Span]) -> list[Span]:
    """Give the ranges of ``root`` that no part covers; the parts are sorted and do not overlap."""
    whole = root if isinstance(root, Span) else Span(root, "", "")
    missing, start, open_end = list[Span](), whole.start, False
    for part in parts:
        if start < part.start:
            missing.append(Span(whole.table, start, part.start))
        start, open_end = part.end, not part.end
    if not open_end and start != whole.end and not (parts and not start):
        missing.append(Span(whole.table, start, whole.end))
    return missing


# A first-in first-out queue whose members can also leave from the middle; immutable, every step O(log n).


class Queue(NamedTuple):
    """Keys in the order in which they came; ``head`` is at or before the first one, ``tail`` behind the last one."""

    entries: Map[int, Key] = Map()
    places: Map[Key, int] = Map()
    head: int = 0
    tail: int = 0

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, key: object) -> bool:
        return key in self.places


EMPTY = Queue()


def pushed(queue: Queue, keys: list[Key]) -> Queue:
    """Put keys that are not in it at the end."""
    entries, places, tail = queue.entries.mutate(), queue.places.mutate(), queue.tail
    for key in keys:
        entries[tail] = key
        places[key] = tail
        tail += 1
    return Queue(entries.finish(), places.finish(), queue.head, tail)


def dropped(queue: Queue, key: Key) -> Queue:
    """Take a key out, wherever it stands."""
    place = queue.places[key]
    entries, head = queue.entries.delete(place), queue.head
    while head < queue.tail and head not in entries:
        head += 1
    return Queue(entries, queue.places.delete(key), head, queue.tail)


def first(queue: Queue, limit: int, prefer: tuple[Hashable, ...] = ()) -> list[Key]:
    """Give the first keys without taking them out; ``prefer`` comes before all others."""
    found = [queue.entries[queue.places[key]] for key in prefer if key in queue.places][:limit]  # type: ignore[index]
    chosen = set(found)
    for key in in_order(queue):
        if len(found) >= limit:
            break
        if key not in chosen:
            found.append(key)
    return found


def in_order(queue: Queue) -> Iterator[Key]:
    """Give the keys in the order in which they came."""
    for place in range(queue.head, queue.tail):
        key = queue.entries.get(place)
        if key is not None:
            yield key


# One span as the span controller has it, and the indexes by which it is found.

ABSENT, SCHEDULING, REPLICATING = "absent", "scheduling", "replicating"
NOBODY: Map[Key, None] = Map()


class Replica(NamedTuple):
    """One span; ``since_us`` is when its state began, ``checkpoint_ts`` what is known to be downstream."""

    state: str
    node: Address | None
    checkpoint_ts: int
    since_us: int

    def __str__(self) -> str:
        return f"{self.state}@{self.node}" if self.node else self.state


def indexed(
    by_node: Map[Address, Map[Key, None]],
    scheduling: Map[Key, None],
    absent: Map[int, Queue],
    key: Key,
    old: Replica,
    new: Replica | None,
) -> tuple[Map[Address, Map[Key, None]], Map[Key, None], Map[int, Queue]]:
    """Give the spans by node, those scheduling and those absent, after one of them has changed or gone."""
    node = new.node if new else None
    if old.node is None:
        group = group_of(key)
        waiting = dropped(absent[group], key)
        absent = absent.set(group, waiting) if waiting.places else absent.delete(group)
    elif old.node != node:
        here = by_node[old.node].delete(key)
        by_node = by_node.set(old.node, here) if here else by_node.delete(old.node)
    if new is not None and node is None:
        absent = absent.set(group_of(key), pushed(absent.get(group_of(key), EMPTY), [key]))
    elif node is not None and old.node != node:
        by_node = by_node.set(node, by_node.get(node, NOBODY).set(key, None))
    if new is not None and new.state == SCHEDULING:
        scheduling = scheduling.set(key, None)
    elif old.state == SCHEDULING:
        scheduling = scheduling.delete(key)
    return by_node, scheduling, absent


@stepped
class Spans(NamedTuple):
    """All spans."""

    replicas: Map[Key, Replica] = Map()
    by_node: Map[Address, Map[Key, None]] = Map()  # the spans bound to each node
    parts: Map[int, Map[Key, None]] = Map()  # the spans of each split table
    scheduling: Map[Key, None] = Map()
    absent: Map[int, Queue] = Map()  # by group, in the order in which they became so
    # The checkpoint that each node reported last: every span that it replicates is at least there.
    reached: Map[Address, int] = Map()
    floor_ts: int = 0  # the global checkpoint: every span is at least there


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
        absent = absent.set(group, pushed(absent.get(group, EMPTY), members))
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


def marked(spans: Spans, key: Key, state: str, at_us: int, because: str) -> Stepped:
    """A span is replicated where it is bound to, or an operator works on it; one without a node stays absent."""
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
