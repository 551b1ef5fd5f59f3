"""A TiCDC cluster just large enough to write the logs of the MQ design's special cases.

Processors write the rows of their tables in order of commit_ts, the owner broadcasts what all have written. Each
function takes a cluster and gives the next one; nothing is drawn by chance, and no clock is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal
from zlib import crc32

import pandas as pd
import pyarrow as pa

TOPIC = "t"
SCHEMA = "shop"

EVENTS = pa.schema(
    [
        *[("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("seq", pa.int32())],
        *[("kind", pa.string()), ("commit_ts", pa.int64()), ("op_rank", pa.int32())],
        *[("schema_name", pa.string()), ("table_name", pa.string()), ("key_hash", pa.int64())],
        *[("before_key_hash", pa.int64()), ("change_hash", pa.int64()), ("query", pa.string())],
    ]
)
"""What the consumer model reads; see :class:`ticdc_lab.consumer.log.NarrowLog`."""


@dataclass(frozen=True, slots=True)
class Change:
    """A row of a table of two columns, ``id`` and ``value``, as a transaction left it; None where it deleted it."""

    commit_ts: int
    table: str
    id: int
    value: str | None


@dataclass(frozen=True, slots=True)
class Task:
    """A table at its processor: written to Kafka up to a commit_ts, and acknowledged up to one (the CheckpointTS)."""

    table: str
    processor: str
    written: int = 0
    checkpoint: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a partition, whose offset is its place among them."""

    kind: Literal["row", "watermark"]
    commit_ts: int
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the upstream did, who writes which table, what the owner has persisted, and the partitions so far."""

    history: tuple[Change, ...]
    tasks: tuple[Task, ...]
    partitions: tuple[tuple[Message, ...], ...]
    checkpoint: int = 0


def cluster(history: Iterable[Change], *, homes: dict[str, str], partitions: int) -> Cluster:
    """A cluster that has written nothing yet; ``homes`` says which processor has which table."""
    changes = tuple(sorted(history, key=lambda c: c.commit_ts))
    return Cluster(changes, tuple(Task(t, p) for t, p in homes.items()), ((),) * partitions)


def home(change: Change, partitions: int) -> int:
    """The partition of a row: TiCDC's index-value dispatcher on the column ``id``."""
    table = crc32(f"{SCHEMA}{change.table}".encode())
    return int((table ^ crc32(f"id{change.id}".encode())) % partitions)


def write(c: Cluster, processor: str, *, to_ts: int) -> Cluster:
    """The processor writes what its tables have up to ``to_ts`` and it has not written."""
    tasks = [t for t in c.tasks if t.processor == processor]
    position = {t.table: t.written for t in tasks}
    due = [h for h in c.history if position.get(h.table, to_ts) < h.commit_ts <= to_ts]
    parts = list(c.partitions)
    for change in due:
        p = home(change, len(parts))
        parts[p] = (*parts[p], Message("row", change.commit_ts, change))
    return _with_tasks(c, {t.table: replace(t, written=max(t.written, to_ts)) for t in tasks}, tuple(parts))


def acknowledge(c: Cluster, processor: str, *, to_ts: int) -> Cluster:
    """Kafka has confirmed what the processor wrote up to ``to_ts``: its CheckpointTS."""
    mine = {
        t.table: replace(t, checkpoint=max(t.checkpoint, min(t.written, to_ts)))
        for t in c.tasks
        if t.processor == processor
    }
    return _with_tasks(c, mine, c.partitions)


def broadcast(c: Cluster) -> Cluster:
    """The owner sends the Global CheckpointTS to all partitions, never one below what it has persisted."""
    least = max(c.checkpoint, min(t.checkpoint for t in c.tasks))
    return replace(c, checkpoint=least, partitions=_to_all(c.partitions, least))


def broadcast_forgetting(c: Cluster, *, ts: int) -> Cluster:
    """What TiCDC does not allow: an owner that read nothing of what was persisted broadcasts from ``ts``."""
    return replace(c, checkpoint=ts, partitions=_to_all(c.partitions, ts))


def hand_over(c: Cluster, table: str, *, to: str) -> Cluster:
    """A table moves, and its new processor goes on exactly where the old one stopped."""
    return _with_tasks(c, {t.table: replace(t, processor=to) for t in c.tasks if t.table == table}, c.partitions)


def restart(c: Cluster, table: str, *, at: str, recorded: int | None = None) -> Cluster:
    """A table is taken up by a processor that knows no more than its CheckpointTS: it begins behind that.

    So does the pipeline: ``(checkpoint_ts, MAX]``, architecture model 4.1; a checkpoint is only told when all up to it
    is written. ``recorded`` is what was recorded of it, where that lags behind what the owner has broadcast.
    """
    known = {t.table: t.checkpoint if recorded is None else recorded for t in c.tasks}
    moved = {
        t.table: replace(t, processor=at, written=known[t.table], checkpoint=known[t.table])
        for t in c.tasks
        if t.table == table
    }
    return _with_tasks(c, moved, c.partitions)


def events(c: Cluster) -> pa.Table:
    """The topic's messages as the consumer model reads them, by partition and offset."""
    return pa.Table.from_pylist(
        [_event(c, p, offset, m) for p, part in enumerate(c.partitions) for offset, m in enumerate(part)], schema=EVENTS
    )


def images(c: Cluster) -> pd.DataFrame:
    """The rows that the messages carry: ``id`` and ``value`` by ``topic, partition, offset, seq``."""
    rows = [
        (TOPIC, p, offset, 0, m.change.id, m.change.value)
        for p, part in enumerate(c.partitions)
        for offset, m in enumerate(part)
        if m.change is not None
    ]
    place = ["topic", "partition", "offset", "seq"]
    return pd.DataFrame(rows, columns=[*place, "id", "value"]).set_index(place)


def upstream_at(c: Cluster, ts: int) -> dict[tuple[str, int], str]:
    """The upstream's rows after all transactions up to ``ts``: table and id to value."""
    state: dict[tuple[str, int], str | None] = {
        (change.table, change.id): change.value for change in c.history if change.commit_ts <= ts
    }
    return {key: value for key, value in state.items() if value is not None}


def _to_all(parts: tuple[tuple[Message, ...], ...], ts: int) -> tuple[tuple[Message, ...], ...]:
    return tuple((*part, Message("watermark", ts)) for part in parts)


def _with_tasks(c: Cluster, new: dict[str, Task], parts: tuple[tuple[Message, ...], ...]) -> Cluster:
    return replace(c, tasks=tuple(new.get(t.table, t) for t in c.tasks), partitions=parts)


def _event(c: Cluster, partition: int, offset: int, m: Message) -> dict[str, object]:
    place = {"topic": TOPIC, "partition": partition, "offset": offset, "seq": 0, "kind": m.kind}
    if m.change is None:
        return place | {"commit_ts": m.commit_ts}
    change = m.change
    mine = [h for h in c.history if (h.table, h.id) == (change.table, change.id)]
    rank = 0 if change.value is None else 2 if mine[0] == change else 1
    return place | {
        "commit_ts": m.commit_ts,
        "op_rank": rank,
        "schema_name": SCHEMA,
        "table_name": change.table,
        "key_hash": crc32(f"{change.table}{change.id}".encode()),
        "change_hash": crc32(repr(change).encode()),
    }
