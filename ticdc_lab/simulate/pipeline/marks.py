"""The watermarks of one moment, at every level: global, processor, DDL puller, table, region, lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from ticdc_lab.simulate.machine import node_of
from ticdc_lab.simulate.pipeline.keys import shown
from ticdc_lab.simulate.pipeline.observed import CaptureFacts, HeldLock, RegionFacts, StreamFacts, TableFacts
from ticdc_lab.simulate.scheduler.clock import us_of
from ticdc_lab.simulate.scheduler.executor import MAX_TS

ROOT = "changefeed"
LEVELS = ("global", "barrier", "processor", "ddl", "table", "region", "lock", "sink")

WATERMARKS = pa.schema(
    [
        ("time_us", pa.int64()),  # when it was looked at
        ("path", pa.string()),  # capture-1/table 7/region 3/lock 445644800000; changefeed is the root
        ("parent", pa.string()),  # empty of the root
        ("level", pa.string()),  # one of LEVELS
        ("name", pa.string()),  # as people say it
        ("resolved_ts", pa.int64()),  # of a lock its start_ts; null where there is none
        ("checkpoint_ts", pa.int64()),  # of a sink the oldest row under way; null where a level has none of its own
        ("state", pa.string()),
        ("since_us", pa.int64()),  # of the state or the lock, where the node knows it
    ]
)
"""One row a level and moment."""


class Sample(NamedTuple):
    """What was seen at one moment: of a run's states, or of anything else that gives these facts.

    Attributes
    ----------
    resolved_ts, checkpoint_ts
        As the owner published them last; 0 before the first.
    """

    time_us: int
    resolved_ts: int
    checkpoint_ts: int
    regions: tuple[RegionFacts, ...]
    captures: tuple[CaptureFacts, ...]


class Mark(NamedTuple):
    """A row of :data:`WATERMARKS` without its moment."""

    path: str
    parent: str
    level: str
    name: str
    resolved_ts: int | None
    checkpoint_ts: int | None
    state: str
    since_us: int | None = None


def marks(sample: Sample) -> list[Mark]:
    """Give the watermarks of a moment, parents before children."""
    free = sample.resolved_ts >= MAX_TS
    state = "no limit to what processors may write" if free else "published by the owner"
    root = Mark(ROOT, "", "global", ROOT, _or_none(sample.resolved_ts), _or_none(sample.checkpoint_ts), state)
    held = {region.id: region for region in sample.regions}
    out = [root]
    for capture in sample.captures:
        out += _barriers(capture) if capture.is_owner else ()
        if capture.tables or capture.is_owner:
            out += _processor(capture, held)
    return out


def watermarks(samples: Sequence[Sample]) -> pa.Table:
    """Give :data:`WATERMARKS` of all moments."""
    return pa.Table.from_pylist(
        [{"time_us": s.time_us, **m._asdict()} for s in samples for m in marks(s)], schema=WATERMARKS
    )


def _barriers(owner: CaptureFacts) -> Iterator[Mark]:
    for finished_ts, query in owner.jobs:
        running = "executing" if finished_ts == owner.executing_ts else "waits until every checkpoint is here"
        yield Mark(f"{ROOT}/ddl {finished_ts}", ROOT, "barrier", f"DDL {query}", finished_ts, finished_ts, running)


def _processor(capture: CaptureFacts, held: dict[int, RegionFacts]) -> Iterator[Mark]:
    """A processor, whose watermarks are the least of its tables' and its DDL puller's."""
    path = node_of(capture.address)
    ddl_ts = [capture.ddl_resolved_ts] if capture.ddl_streams else []
    resolved_ts = min([t.resolved_ts for t in capture.tables] + ddl_ts, default=0)
    checkpoint_ts = min((t.checkpoint_ts for t in capture.tables), default=0)
    role = "owner" if capture.is_owner else "processor"
    yield Mark(path, ROOT, "processor", path, _or_none(resolved_ts), _or_none(checkpoint_ts), role)
    if capture.ddl_streams:
        ddl = f"{path}/ddl puller"
        yield Mark(ddl, path, "ddl", "DDL puller", _or_none(capture.ddl_resolved_ts), None, "streaming")
        yield from _regions(ddl, capture.ddl_streams, held)
    for table in capture.tables:
        yield from _table(path, table, held)


def _table(parent: str, table: TableFacts, held: dict[int, RegionFacts]) -> Iterator[Mark]:
    path = f"{parent}/table {table.table}"
    ends = _or_none(table.resolved_ts), _or_none(table.checkpoint_ts)
    yield Mark(path, parent, "table", f"{table.name} (table {table.table})", *ends, table.state)
    yield from _regions(path, table.streams, held)
    oldest_ts = table.oldest_under_way_ts
    if table.under_way and oldest_ts is not None:
        state = f"{table.under_way:,} rows written and not acknowledged"
        yield Mark(
            f"{path}/sink", path, "sink", f"the sink of {table.name}", None, oldest_ts, state, table.oldest_since_us
        )


def _regions(parent: str, streams: Sequence[StreamFacts], held: dict[int, RegionFacts]) -> Iterator[Mark]:
    taken: set[int] = set()
    for stream in streams:
        again = f" from {shown(stream.start)}" if stream.region in taken else ""
        taken.add(stream.region)
        path = f"{parent}/region {stream.region}{again}"
        since_us = None if stream.state == "streaming" else stream.since_us
        name = f"region {stream.region}{again} on {node_of(stream.store)}" if stream.region else f"no region{again}"
        yield Mark(path, parent, "region", name, _or_none(stream.resolved_ts), None, stream.state, since_us)
        region = held.get(stream.region)
        for lock in () if region is None else region.locks:
            if any(stream.start <= key < stream.end for key in lock.keys):
                yield _lock(path, lock)


def _lock(parent: str, lock: HeldLock) -> Mark:
    more = f" and {len(lock.keys) - 1:,} more" if len(lock.keys) > 1 else ""
    name = f"a lock on {shown(lock.keys[0])}{more}"
    state = f"transaction {lock.start_ts} has not ended"
    return Mark(
        f"{parent}/lock {lock.start_ts}", parent, "lock", name, lock.start_ts, None, state, us_of(lock.start_ts)
    )


def _or_none(ts: int) -> int | None:
    return ts if 0 < ts < MAX_TS else None
