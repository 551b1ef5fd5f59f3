"""What pictures show of a run: how many rows are where, what the column families hold, and samples of both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ticdc_lab.machines.machine import node_of
from ticdc_lab.simulate.pipeline.marks import watermarks
from ticdc_lab.simulate.pipeline.observed import CaptureFacts, CfRow, Moment, TableFacts, cf_rows, moment_of
from ticdc_lab.simulate.pipeline.tables import Value
from ticdc_lab.simulate.pipeline.tikv.store_state import TikvStoreState
from ticdc_lab.simulate.scheduler.etcd import EtcdState

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
    return _table(rows, QUEUES)


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
    return _table(rows, FLOW)


def regions(samples: Sequence[Moment]) -> pa.Table:
    """Give :data:`REGIONS`."""
    rows = []
    for s, c, t in _tables(samples):
        locks = {r.id: len(r.locks) for r in s.regions}
        for st in t.streams:
            where = (s.at_us, st.region, node_of(st.store), node_of(c.address), t.table)
            rows.append((*where, st.state, locks.get(st.region, 0)))
    return _table(rows, REGIONS)


def _tables(samples: Sequence[Moment]) -> Iterator[tuple[Moment, CaptureFacts, TableFacts]]:
    return ((s, c, t) for s in samples for c in s.captures for t in c.tables)


def _done(t: TableFacts) -> tuple[int, ...]:
    """Rows that have left each of :data:`LEFT` so far."""
    matched = t.received - t.unmatched
    sorted_ = matched - t.sorting - t.spilled
    return t.received, matched, sorted_, sorted_ - t.mounting, t.written


def _differences(done: tuple[int, ...], last: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(max(0, now - then) for now, then in zip(done, last, strict=True))


def _table(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


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

    watermarks: pa.Table  # ``ticdc_lab.simulate.pipeline.marks.WATERMARKS``
    # ``ticdc_lab.simulate.pipeline.samples.QUEUES``, ``ticdc_lab.simulate.pipeline.samples.FLOW`` and
    # ``ticdc_lab.simulate.pipeline.samples.REGIONS``.
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
    """Give the history of some keys in a run, :data:`ticdc_lab.simulate.pipeline.samples.FAMILIES`."""
    stores = (
        (time_us, [states[address] for address in sorted(states) if isinstance(states[address], TikvStoreState)])
        for time_us, states in snapshots
    )
    return families((time_us, [row for key in keys for s in of for row in cf_rows(s, key)]) for time_us, of in stores)
