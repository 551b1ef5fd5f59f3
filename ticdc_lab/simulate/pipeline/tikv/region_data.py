"""What a region holds: its range and its column families, replicated as one immutable value.

Short values are in locks and write records, as TiKV has it; longer ones in the default column family, by key and
start_ts, and :data:`IN_DEFAULT` in their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from immutables import Map

from ticdc_lab.machines.machine import Address, replace
from ticdc_lab.simulate.pipeline.kv_messages import ROLLBACK, KvRegion
from ticdc_lab.simulate.pipeline.settings import TikvSettings
from ticdc_lab.simulate.pipeline.tables import FIRST, LAST, META, Raw, Value, key_of

SHORT_BYTES = 255
"""A value of at most so many bytes is short."""


class InDefault(Enum):
    """Marks a value as in the default column family."""

    HERE = 1


IN_DEFAULT = InDefault.HERE
Stored: TypeAlias = "Value | InDefault | None"
Lock: TypeAlias = "tuple[int, int, str, Stored]"
"""start_ts, primary key, operation, value (of a put)."""
Written: TypeAlias = "tuple[int, int, str, Written | None, Stored]"
"""A write record: commit_ts (start_ts of a rollback), start_ts, kind, the next older one, value."""


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """A region, as its raft log has made it."""

    # As PD knows it.
    id: int
    start: int
    end: int
    epoch: int
    peers: tuple[str, ...]  # the stores that hold it
    # ``locks``, ``default``, ``write``: The column families: by key; by key and start_ts; by key, newest first.
    locks: Map[int, Lock] = Map()
    write: Map[int, Written] = Map()
    default: Map[tuple[int, int], Value] = Map()
    sprouts: tuple[Data, ...] = ()  # regions that were split off and may have no leader yet
    absorbed: tuple[int, ...] = ()  # regions that were merged into this one
    merging: int | None = None  # the region into which this one is being merged: it takes no command any more

    def __str__(self) -> str:
        """Write few words: messages carry the whole region, and a trace shows their fields."""
        return f"region {self.id}, epoch {self.epoch}: {len(self.locks)} locks, {len(self.write)} keys"

    def region(self, leader: Address) -> KvRegion:
        """Give the region as PD and clients know it."""
        return KvRegion(self.id, self.start, self.end, self.epoch, leader)


def records(newest: Written | None) -> Iterator[Written]:
    """Give write records of a key, from the newest on."""
    while newest is not None:
        yield newest
        newest = newest[3]


def record_of(newest: Written | None, start_ts: int) -> Written | None:
    """Give the write record of a transaction; none older than its start_ts can be its."""
    while newest is not None and newest[0] >= start_ts:
        if newest[1] == start_ts:
            return newest
        newest = newest[3]
    return None


def inserted(newest: Written | None, ts: int, start_ts: int, kind: str, value: Stored = None) -> Written:
    """Put a write record into its place; nearly always that is the front."""
    if newest is None:
        return (ts, start_ts, kind, None, value)
    if newest[0] <= ts:
        return (ts, start_ts, kind, newest, value)
    above = []
    rest: Written | None = newest
    while rest is not None and rest[0] > ts:
        above.append(rest)
        rest = rest[3]
    made: Written = (ts, start_ts, kind, rest, value)
    for record in reversed(above):
        made = (*record[:3], made, record[4])
    return made


def is_long(value: Value) -> bool:
    """Whether a value has its place in the default column family; text as it is, numbers of eight bytes."""
    if type(value) is not Raw:
        return False
    size = 0
    for cell in value[1]:
        size += len(cell) if type(cell) is str else 8
    return size > SHORT_BYTES


class ByStart(Protocol):
    """The default column family, also while it is changed."""

    def __getitem__(self, key: tuple[int, int], /) -> Value:
        """Give the value of a key that a transaction wrote."""
        ...


def read(default: ByStart, key: int, start_ts: int, stored: Stored) -> Value | None:
    """Give the value of a lock or a write record."""
    return default[key, start_ts] if isinstance(stored, InDefault) else stored


def value_at(newest: Written | None, key: int, default: ByStart) -> Value | None:
    """Give the value of a row as of a write record: of the newest from there on that is no rollback."""
    while newest is not None and newest[2] == ROLLBACK:
        newest = newest[3]
    return read(default, key, newest[1], newest[4]) if newest is not None else None


def part_of(data: Data, start: int, end: int) -> Data:
    """Give the region narrowed to a range."""
    return replace(
        data,
        start=start,
        end=end,
        locks=Map({k: lock for k, lock in data.locks.items() if start <= k < end}),
        write=Map({k: w for k, w in data.write.items() if start <= k < end}),
        default=Map({k: v for k, v in data.default.items() if start <= k[0] < end}),
    )


def united(left: Data, right: Data) -> Data:
    """Give the merged region of two neighbours; it continues as the left one."""
    return replace(
        left,
        end=right.end,
        epoch=max(left.epoch, right.epoch) + 1,
        locks=left.locks.update(right.locks),
        write=left.write.update(right.write),
        default=left.default.update(right.default),
        absorbed=(*left.absorbed, right.id),
    )


# Where regions begin and end at first, and which stores hold them.

PD = "pd"


def initial_regions(settings: TikvSettings, table_ids: Iterable[int] = (), handles: int = 1000) -> tuple[KvRegion, ...]:
    """Divide the whole key space: one region for DDL jobs, ``regions_per_table`` for each table.

    ``settings``: the regions of a table and the number of stores. ``table_ids``: tables that have
    regions of their own. The last region of a table reaches to the next table of these (the very last one to the end),
    so what is created between them later lives there. ``handles``: tables are divided evenly among handles 0 ..
    ``handles`` - 1; higher ones are in the last region. Returns: in key order, with ids from 1 on and epoch 1; the
    leaders are taken from the stores in turn.
    """
    starts = [FIRST]
    for table_id in sorted(set(table_ids) - {META}):
        parts = settings.regions_per_table
        starts += sorted({key_of(table_id, handles * part // parts) for part in range(parts)})
    return tuple(
        KvRegion(i + 1, start, end, 1, f"tikv-{i % settings.stores + 1}")
        for i, (start, end) in enumerate(zip(starts, [*starts[1:], LAST], strict=True))
    )


def peers_of(region: KvRegion, settings: TikvSettings, stores: Sequence[str]) -> tuple[str, ...]:
    """Give the stores that hold a region at first: its leader and those after it."""
    first = stores.index(region.leader)
    return tuple(stores[(first + i) % len(stores)] for i in range(min(settings.replicas, len(stores))))
