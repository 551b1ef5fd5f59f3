"""One span as the span controller has it, and the indexes by which it is found."""

from __future__ import annotations

from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.machine import Address
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4 import queue
from ticdc_lab.simulate.scheduler.v4.keys import group_of
from ticdc_lab.simulate.scheduler.v4.queue import Queue

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
        waiting = queue.dropped(absent[group], key)
        absent = absent.set(group, waiting) if waiting.places else absent.delete(group)
    elif old.node != node:
        here = by_node[old.node].delete(key)
        by_node = by_node.set(old.node, here) if here else by_node.delete(old.node)
    if new is not None and node is None:
        absent = absent.set(group_of(key), queue.pushed(absent.get(group_of(key), queue.EMPTY), [key]))
    elif node is not None and old.node != node:
        by_node = by_node.set(node, by_node.get(node, NOBODY).set(key, None))
    if new is not None and new.state == SCHEDULING:
        scheduling = scheduling.set(key, None)
    elif old.state == SCHEDULING:
        scheduling = scheduling.delete(key)
    return by_node, scheduling, absent
