"""A first-in first-out queue whose members can also leave from the middle; immutable, every step O(log n)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.scheduler.roles import Key


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
    """Give the first keys without taking them out; those of ``prefer`` come before all others."""
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
