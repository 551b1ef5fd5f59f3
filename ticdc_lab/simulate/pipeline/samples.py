"""What pictures show of a run: the watermarks of each moment, who holds them, and how many rows are where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from ticdc_lab.machines.clock import ts_of, us_of
from ticdc_lab.machines.ledger import table_of
from ticdc_lab.machines.machine import node_of
from ticdc_lab.simulate.pipeline.observed import (
    CaptureFacts,
    CfRow,
    HeldLock,
    Moment,
    RegionFacts,
    StreamFacts,
    TableFacts,
    cf_rows,
    moment_of,
)
from ticdc_lab.simulate.pipeline.tables import Value, shown
from ticdc_lab.simulate.pipeline.tikv.store_state import TikvStoreState
from ticdc_lab.simulate.scheduler.etcd import EtcdState
from ticdc_lab.simulate.scheduler.executor import MAX_TS

# The watermarks of one moment, at every level: global, processor, DDL puller, table, region, lock.

ROOT = "changefeed"
LEVELS = ("global", "barrier", "processor", "ddl", "table", "region", "lock", "sink")

WATERMARKS = pa.schema(
    [
        ("time_us", pa.int64()),  # when it was looked at
        ("path", pa.string()),  # capture-1/table 7/region 3/lock 445644800000; changefeed is the root
        ("parent", pa.string()),  # empty of the root
        ("level", pa.string()),  # one of LEVELS
        ("name", pa.string()),  # in words
        ("resolved_ts", pa.int64()),  # of a lock its start_ts; null where there is none
        ("checkpoint_ts", pa.int64()),  # of a sink the oldest row under way; null where a level has none of its own
        ("state", pa.string()),
        ("since_us", pa.int64()),  # of the state or the lock, where the node knows it
    ]
)
"""One row a level and moment."""


class MarkRow(NamedTuple):
    """A row of :data:`WATERMARKS` without its moment."""

    path: str
    parent: str
    level: str
    name: str
    resolved_ts: int | None
    checkpoint_ts: int | None
    state: str
    since_us: int | None = None


def marks(sample: Moment) -> list[MarkRow]:
    """Give the watermarks of a moment, parents before children."""
    free = sample.resolved_ts >= MAX_TS
    state = "no limit to what processors may write" if free else "published by the owner"
    root = MarkRow(ROOT, "", "global", ROOT, _or_none(sample.resolved_ts), _or_none(sample.checkpoint_ts), state)
    held = {region.id: region for region in sample.regions}
    out = [root]
    for capture in sample.captures:
        out += _barriers(capture) if capture.is_owner else ()
        if capture.tables or capture.is_owner:
            out += _processor(capture, held)
    return out


def watermarks(samples: Sequence[Moment]) -> pa.Table:
    """Give :data:`WATERMARKS` of all moments."""
    return pa.Table.from_pylist(
        [{"time_us": s.at_us, **m._asdict()} for s in samples for m in marks(s)], schema=WATERMARKS
    )


def _barriers(owner: CaptureFacts) -> Iterator[MarkRow]:
    for finished_ts, query in owner.jobs:
        running = "executing" if finished_ts == owner.executing_ts else "waits until every checkpoint is here"
        yield MarkRow(f"{ROOT}/ddl {finished_ts}", ROOT, "barrier", f"DDL {query}", finished_ts, finished_ts, running)


def _processor(capture: CaptureFacts, held: dict[int, RegionFacts]) -> Iterator[MarkRow]:
    """A processor, whose watermarks are the least of its tables' and its DDL puller's."""
    path = node_of(capture.address)
    ddl_ts = [capture.ddl_resolved_ts] if capture.ddl_streams else []
    resolved_ts = min([t.resolved_ts for t in capture.tables] + ddl_ts, default=0)
    checkpoint_ts = min((t.checkpoint_ts for t in capture.tables), default=0)
    role = "owner" if capture.is_owner else "processor"
    yield MarkRow(path, ROOT, "processor", path, _or_none(resolved_ts), _or_none(checkpoint_ts), role)
    if capture.ddl_streams:
        ddl = f"{path}/ddl puller"
        yield MarkRow(ddl, path, "ddl", "DDL puller", _or_none(capture.ddl_resolved_ts), None, "streaming")
        yield from _marks_of_regions(ddl, capture.ddl_streams, held)
    for table in capture.tables:
        yield from _marks_of_table(path, table, held)


def _marks_of_table(parent: str, table: TableFacts, held: dict[int, RegionFacts]) -> Iterator[MarkRow]:
    path = f"{parent}/table {table.table}"
    ends = _or_none(table.resolved_ts), _or_none(table.checkpoint_ts)
    yield MarkRow(path, parent, "table", f"{table.name} (table {table.table})", *ends, table.state)
    yield from _marks_of_regions(path, table.streams, held)
    oldest_ts = table.oldest_under_way_ts
    if table.under_way and oldest_ts is not None:
        state = f"{table.under_way:,} rows written and not acknowledged"
        yield MarkRow(
            f"{path}/sink", path, "sink", f"the sink of {table.name}", None, oldest_ts, state, table.oldest_since_us
        )


def _marks_of_regions(parent: str, streams: Sequence[StreamFacts], held: dict[int, RegionFacts]) -> Iterator[MarkRow]:
    taken: set[int] = set()
    for stream in streams:
        again = f" from {shown(stream.start)}" if stream.region in taken else ""
        taken.add(stream.region)
        path = f"{parent}/region {stream.region}{again}"
        since_us = None if stream.state == "streaming" else stream.since_us
        name = f"region {stream.region}{again} on {node_of(stream.store)}" if stream.region else f"no region{again}"
        yield MarkRow(path, parent, "region", name, _or_none(stream.resolved_ts), None, stream.state, since_us)
        region = held.get(stream.region)
        for lock in () if region is None else region.locks:
            if any(stream.start <= key < stream.end for key in lock.keys):
                yield _lock(path, lock)


def _lock(parent: str, lock: HeldLock) -> MarkRow:
    more = f" and {len(lock.keys) - 1:,} more" if len(lock.keys) > 1 else ""
    name = f"a lock on {shown(lock.keys[0])}{more}"
    state = f"transaction {lock.start_ts} has not ended"
    return MarkRow(
        f"{parent}/lock {lock.start_ts}", parent, "lock", name, lock.start_ts, None, state, us_of(lock.start_ts)
    )


def _or_none(ts: int) -> int | None:
    return ts if 0 < ts < MAX_TS else None


# Who holds a watermark at a moment: the chain from global to the leaf, since when, and what it would be without it.

Of = Literal["checkpoint", "resolved"]


class Chain(NamedTuple):
    """What holds a watermark."""

    time_us: int  # when it was looked at
    of: Of
    # From global to the leaf; of a checkpoint that waits for the global resolved_ts its own part and then that one's.
    marks: tuple[MarkRow, ...]
    ts: int | None  # what the global watermark is; None where none is published
    without_ts: int  # what it could be if the leaf were not there: the least of all others, at most now
    # Since when the leaf holds it: what the leaf knows, else the first sample of the stretch in which it does.
    since_us: int

    @property
    def leaf(self) -> MarkRow:
        return self.marks[-1]


def by_moment(watermarks: pa.Table) -> dict[int, list[MarkRow]]:
    """Give the marks of each moment (µs) of :data:`WATERMARKS`, in order of time."""
    out: dict[int, list[MarkRow]] = {}
    for row in watermarks.to_pylist():
        out.setdefault(row.pop("time_us"), []).append(MarkRow(**row))
    return dict(sorted(out.items()))


def chains(watermarks: pa.Table, *, of: Of = "checkpoint") -> list[Chain]:
    """Find what holds a global watermark at every moment.

    ``watermarks``: :data:`WATERMARKS`. ``of``: which watermark. Returns: in order of
    time; moments with nothing below global are left out.
    """
    out: list[Chain] = []
    for time_us, found in by_moment(watermarks).items():
        held = holders(found, of)
        if len(held) < 2:
            continue
        leaf, root = held[-1], held[0]
        goes_on = bool(out) and out[-1].leaf.path == leaf.path
        since_us = out[-1].since_us if goes_on else time_us if leaf.since_us is None else leaf.since_us
        ts = root.resolved_ts if of == "resolved" else root.checkpoint_ts
        without_ts = max(_without(found, leaf, of, ts_of(time_us)), ts or 0)
        out.append(Chain(time_us, of, tuple(held), ts, without_ts, since_us))
    return out


def chain(watermarks: pa.Table, *, at_us: int, of: Of = "checkpoint") -> Chain | None:
    """Find what holds a global watermark at the last moment up to ``at_us``; see :func:`chains`."""
    return next((c for c in reversed(chains(watermarks, of=of)) if c.time_us <= at_us), None)


def holders(found: Sequence[MarkRow], of: Of) -> list[MarkRow]:
    """Give the chain that holds a watermark, from the root to the leaf; empty without marks."""
    below = children(found)
    node = next((m for m in found if m.path == ROOT), None)
    root, out = node, []
    while node is not None:
        out.append(node)
        node = _lowest(node, below.get(node.path, ()), of)
    limited = root is not None and root.resolved_ts is not None
    waits = of == "checkpoint" and limited and out[-1].level == "table"
    return out + holders(found, "resolved")[1:] if waits else out


def bound(mark: MarkRow, of: Of) -> int | None:
    """Give how far a level lets the watermark go; a region bounds a checkpoint by its resolved_ts."""
    if of == "resolved":
        return mark.resolved_ts
    return mark.resolved_ts if mark.checkpoint_ts is None else mark.checkpoint_ts


def children(found: Sequence[MarkRow]) -> Mapping[str, list[MarkRow]]:
    out: dict[str, list[MarkRow]] = {}
    for mark in found:
        out.setdefault(mark.parent, []).append(mark)
    return out


def _lowest(parent: MarkRow, below: Sequence[MarkRow], of: Of) -> MarkRow | None:
    """Give the child that holds its parent; None where none of them does."""
    if of == "checkpoint" and parent.level == "table":
        sink = next((m for m in below if m.level == "sink"), None)
        if sink is not None:
            return sink
    bounds = []
    for mark in below:
        ts = bound(mark, of)
        if ts is None and mark.level in ("table", "region"):
            ts = 0  # it has reported nothing yet
        if ts is not None:
            bounds.append((ts - (mark.level == "barrier"), mark.path, mark))  # checkpoints stop one before a DDL
    if not bounds:
        return None
    ts, _, lowest = min(bounds)
    own = bound(parent, of)
    may_wait = parent.level == "region" or (parent.level == "table" and of == "checkpoint")
    if may_wait and own is not None and ts > own + 1:
        return None  # a young lock does not hold its region, nor do regions far ahead hold a checkpoint
    return lowest


def _without(found: Sequence[MarkRow], leaf: MarkRow, of: Of, now_ts: int) -> int:
    """Give the least of what is left; what the leaf alone held back would be up to now."""
    below = children([m for m in found if m.path != leaf.path])

    def least(mark: MarkRow) -> int:
        inner, freed = below.get(mark.path, []), leaf.path.startswith(mark.path + "/")
        own = bound(mark, of)
        if mark.level == "region" and not freed:
            return own or 0
        if not inner:
            return now_ts if freed or own is None else own
        return min(least(child) for child in inner)

    return min(now_ts, least(next(m for m in found if m.path == ROOT)))


# Rows on their way: how many wait in each stage of the data path, and how many went through it.

STAGES = ("puller", "sorter", "disk", "mounter", "sink")

QUEUES = pa.schema(
    [
        ("time_us", pa.int64()),
        ("node", pa.string()),  # capture-1
        ("table", pa.int64()),
        ("name", pa.string()),
        ("stage", pa.string()),  # one of STAGES
        ("rows", pa.int64()),  # in it at that moment
    ]
)
"""Puller: rows whose prewrite or commit is missing; sorter: in memory; disk: spilled; mounter: due, not mounted or held
back by the sink's window; sink: written and not acknowledged."""

FLOW = pa.schema([*list(QUEUES)[:-1], ("rows", pa.int64())])
"""Rows that left a stage between the moment before and this one: one of :data:`LEFT`. ``disk`` is counted with the
sorter; what leaves ``tikv`` was received, what leaves the sink is acknowledged."""

REGIONS = pa.schema(
    [
        ("time_us", pa.int64()),
        ("region", pa.int64()),
        ("store", pa.string()),  # of its leader
        ("node", pa.string()),  # the capture that pulls it
        ("table", pa.int64()),  # of the puller
        ("state", pa.string()),  # asking, scanning, streaming or waiting
        ("locks", pa.int64()),  # transactions that hold locks in it
    ]
)
"""The regions of each puller of a table."""

LEFT = ("tikv", "puller", "sorter", "mounter", "sink")


def queues(samples: Sequence[Moment]) -> pa.Table:
    """Give :data:`QUEUES`."""
    rows = [
        (s.at_us, node_of(c.address), t.table, t.name, stage, n)
        for s, c, t in _tables(samples)
        for stage, n in zip(STAGES, (t.unmatched, t.sorting, t.spilled, t.mounting, t.under_way), strict=True)
    ]
    return table_of(rows, QUEUES)


def flow(samples: Sequence[Moment]) -> pa.Table:
    """Give :data:`FLOW`; what a restarted pipeline has done so far counts as its first interval."""
    before: dict[tuple[str, int], tuple[int, ...]] = {}
    rows = []
    for s, c, t in _tables(samples):
        key, done = (c.address, t.table), _done(t)
        last = before.get(key, (0,) * len(done))
        new = done if t.received < last[0] or t.written < last[-1] else _differences(done, last)
        before[key] = tuple(max(pair) for pair in zip(done, last, strict=True)) if new is not done else done
        rows += [(s.at_us, node_of(c.address), t.table, t.name, st, n) for st, n in zip(LEFT, new, strict=True)]
    return table_of(rows, FLOW)


def regions(samples: Sequence[Moment]) -> pa.Table:
    """Give :data:`REGIONS`."""
    rows = []
    for s, c, t in _tables(samples):
        locks = {r.id: len(r.locks) for r in s.regions}
        for st in t.streams:
            where = (s.at_us, st.region, node_of(st.store), node_of(c.address), t.table)
            rows.append((*where, st.state, locks.get(st.region, 0)))
    return table_of(rows, REGIONS)


def _tables(samples: Sequence[Moment]) -> Iterator[tuple[Moment, CaptureFacts, TableFacts]]:
    return ((s, c, t) for s in samples for c in s.captures for t in c.tables)


def _done(t: TableFacts) -> tuple[int, ...]:
    """Rows that have left each of :data:`LEFT` so far."""
    matched = t.received - t.unmatched
    sorted_ = matched - t.sorting - t.spilled
    return t.received, matched, sorted_, sorted_ - t.mounting, t.written


def _differences(done: tuple[int, ...], last: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(max(0, now - then) for now, then in zip(done, last, strict=True))


# The history of a key in its three column families, as it was seen from sample to sample.

FAMILIES = pa.schema(
    [
        ("key", pa.int64()),
        ("cf", pa.string()),  # lock, default or write
        ("ts", pa.int64()),  # of the entry's key: none (0) in lock, start_ts in default, commit_ts in write
        ("start_ts", pa.int64()),  # of the transaction
        ("kind", pa.string()),  # put, delete or rollback
        ("value", pa.string()),  # its cells; null where the entry holds none
        ("from_us", pa.int64()),  # the first sample in which it is there
        ("to_us", pa.int64()),  # the first one in which it is gone; null where it stays
    ]
)
"""One row a stretch in which an entry is there, sorted by ``from_us`` and family."""

CFS = ("lock", "default", "write")


def families(seen: Iterable[tuple[int, Sequence[CfRow]]]) -> pa.Table:
    """Give :data:`FAMILIES`. ``seen``: moments (µs) and the entries that were there, of one key or several."""
    there: dict[CfRow, int] = {}
    out: list[tuple[CfRow, int, int | None]] = []
    for time_us, rows in seen:
        now = dict.fromkeys(rows)
        out += [(row, since, time_us) for row, since in there.items() if row not in now]
        there = {row: there.get(row, time_us) for row in now}
    out += [(row, since, None) for row, since in there.items()]
    out.sort(key=lambda one: (one[1], CFS.index(one[0].cf), one[0].ts, one[0].key))
    return pa.Table.from_pylist(
        [{**row._asdict(), "value": _text(row.value), "from_us": since, "to_us": until} for row, since, until in out],
        schema=FAMILIES,
    )


def _text(value: Value | None) -> str | None:
    """Write a value: the cells of a row, the statement of a job."""
    if value is None:
        return None
    cells = getattr(value, "cells", None)
    return (
        str(getattr(value, "query", "")) if cells is None else ", ".join("NULL" if c is None else str(c) for c in cells)
    )


# What was seen of a pipeline at many moments, as tables; of a run, or of anything else that gives these facts.

Snapshots = Iterable[tuple[int, Mapping[str, Any]]]
"""Moments (µs) with the states of all live nodes by address, as ``Run.snapshots``."""


class SeenRun(NamedTuple):
    """A run as its samples show it."""

    watermarks: pa.Table  # ``WATERMARKS``
    # ``QUEUES``, ``FLOW`` and
    # ``REGIONS``.
    queues: pa.Table
    flow: pa.Table
    regions: pa.Table


def seen(samples: Sequence[Moment]) -> SeenRun:
    """Give the tables of some samples, in order of time."""
    return SeenRun(watermarks(samples), queues(samples), flow(samples), regions(samples))


def seen_in(snapshots: Sequence[tuple[int, Mapping[str, Any]]]) -> SeenRun:
    """Give the tables of a run."""
    etcds = (next((s for s in states.values() if isinstance(s, EtcdState)), None) for _, states in snapshots)
    return seen([moment_of(*one, (), etcd=etcd) for one, etcd in zip(snapshots, etcds, strict=True)])


def families_in(snapshots: Snapshots, keys: Sequence[int]) -> pa.Table:
    """Give the history of some keys in a run, :data:`FAMILIES`."""
    stores = (
        (time_us, [states[address] for address in sorted(states) if isinstance(states[address], TikvStoreState)])
        for time_us, states in snapshots
    )
    return families((time_us, [row for key in keys for s in of for row in cf_rows(s, key)]) for time_us, of in stores)
