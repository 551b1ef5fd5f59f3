"""What a fault is chosen from: whole lives of some rows, all that is broadcast, and how far each partition goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

Event = dict[str, Any]
"""An event of :data:`ticdc_lab.events.schema.EVENTS` by column name; ``together``: events of its message."""

Place = tuple[int, int, int]
"""Partition, offset and seq."""

_RANK = {"delete": 0, "update": 1, "insert": 2}


def place_of(event: Event) -> Place:
    """Where an event lies."""
    return event["partition"], event["offset"], event["seq"]


@dataclass(frozen=True)
class FaultLog:
    """What is known of one topic, in any order but where one is said.

    Attributes
    ----------
    rows
        All changes of some rows that have a key, with :data:`ticdc_lab.events.schema.KEYS`.
    lives
        Of each of these rows its changes in commit order; left out are rows that lie in several partitions, had a
        change delivered twice, or changed their key.
    ddl, watermarks
        All of them; watermarks by partition, in order of offset.
    last
        By partition its last offset.
    """

    topic: str
    rows: list[Event]
    lives: list[list[Event]]
    ddl: list[Event]
    watermarks: dict[int, list[Event]]
    last: dict[int, int]

    @classmethod
    def of(cls, topic: str, rows: list[Event], marks: list[Event], last: dict[int, int]) -> FaultLog:
        """Put what was read in order."""
        rows = sorted(rows, key=place_of)
        watermarks: dict[int, list[Event]] = {p: [] for p in sorted(last)}
        for e in sorted(marks, key=place_of):
            if e["kind"] == "watermark":
                watermarks[e["partition"]].append(e)
        ddl = sorted((e for e in marks if e["kind"] == "ddl"), key=place_of)
        return cls(topic, rows, _lives(rows), ddl, watermarks, last)

    def shuffled(self, rng: Random) -> FaultLog:
        """The same, so that what comes first is chosen by chance."""

        def mixed(items: list[Any]) -> list[Any]:
            return rng.sample(items, len(items))

        partitions = mixed(self.partitions)
        watermarks = {p: self.watermarks[p] for p in partitions}
        return FaultLog(self.topic, mixed(self.rows), mixed(self.lives), mixed(self.ddl), watermarks, self.last)

    @property
    def partitions(self) -> list[int]:
        """Partitions with any event."""
        return list(self.watermarks)

    def behind(self, partition: int, ts: int, *, after: int = -1) -> int | None:
        """The offset just behind the first watermark above ``ts`` that follows an offset; None without one."""
        for w in self.watermarks[partition]:
            if w["offset"] > after and w["commit_ts"] > ts:
                return int(w["offset"]) + 1
        return None

    def ahead(self, partition: int, ts: int) -> int:
        """The offset before which a change may still be sent: of the first watermark from ``ts`` on, or the end."""
        stated = (w["offset"] for w in self.watermarks[partition] if w["commit_ts"] >= ts)
        return int(min(stated, default=self.last[partition] + 1))

    def neighbours(self) -> Iterator[tuple[Event, Event, Event]]:
        """Each three changes in a row of one row's life."""
        for life in self.lives:
            yield from zip(life, life[1:], life[2:], strict=False)

    def pairs(self) -> Iterator[tuple[Event, Event]]:
        """Each two changes in a row of one row's life, in two messages and of two transactions."""
        for life in self.lives:
            for one, two in pairwise(life):
                if one["offset"] < two["offset"] and one["commit_ts"] < two["commit_ts"]:
                    yield one, two

    def shows(self, former: Event, later: Event) -> bool:
        """Whether images prove that ``later`` does not follow ``former``; not across any DDL."""
        if any(former["commit_ts"] <= d["commit_ts"] <= later["commit_ts"] for d in self.ddl):
            return False
        left, found = image_after(former), image_before(later)
        if left is None or found is None:
            return (left is None) != (found is None)
        return set(left) == set(found) and left != found


def image_after(event: Event) -> dict[str, Any] | None:
    """Values by column name after a change; None where the row is gone."""
    return None if event["op"] == "delete" else {c["name"]: c["value"] for c in event["columns"]}


def image_before(event: Event) -> dict[str, Any] | None:
    """Values by column name before a change, what an old image lacks as in the new one; None where there was no row."""
    if event["op"] == "insert":
        return None
    return (image_after(event) or {}) | {c["name"]: c["value"] for c in event["before"] or ()}


def altered(columns: Sequence[Event]) -> list[Event] | None:
    """An image with another value in its last column that is no key and not NULL; None where there is none."""
    for i in reversed(range(len(columns))):
        c = columns[i]
        if not c["is_key"] and c["value"]:
            last = c["value"][-1]
            other = str((int(last) + 1) % 10) if last in "0123456789" else "?" if last != "?" else "!"
            return [*columns[:i], c | {"value": c["value"][:-1] + other}, *columns[i + 1 :]]
    return None


def _lives(rows: list[Event]) -> list[list[Event]]:
    whole: dict[int, list[Event]] = {}
    for e in rows:
        whole.setdefault(e["key_hash"], []).append(e)
    plain = []
    for _, life in sorted(whole.items()):
        life.sort(key=lambda e: (e["commit_ts"], _RANK[e["op"]], e["offset"], e["seq"]))
        deliveries = Counter((e["commit_ts"], e["op"]) for e in life)
        one = len({e["partition"] for e in life}) == 1 and max(deliveries.values()) == 1
        if one and not any(e["before_key_hash"] for e in life):
            plain.append(life)
    return plain
