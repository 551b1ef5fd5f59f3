"""Rows on their way: how many wait in each stage of the data path, and how many went through it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ticdc_lab.simulate.machine import node_of
from ticdc_lab.simulate.pipeline.marks import Sample
from ticdc_lab.simulate.pipeline.observed import CaptureFacts, TableFacts

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


def queues(samples: Sequence[Sample]) -> pa.Table:
    """Give :data:`QUEUES`."""
    rows = [
        (s.time_us, node_of(c.address), t.table, t.name, stage, n)
        for s, c, t in _tables(samples)
        for stage, n in zip(STAGES, _waiting(t), strict=True)
    ]
    return _table(rows, QUEUES)


def flow(samples: Sequence[Sample]) -> pa.Table:
    """Give :data:`FLOW`; what a pipeline that began anew has done so far counts as its first interval."""
    before: dict[tuple[str, int], tuple[int, ...]] = {}
    rows = []
    for s, c, t in _tables(samples):
        key, done = (c.address, t.table), _done(t)
        last = before.get(key, (0,) * len(done))
        new = done if t.received < last[0] or t.written < last[-1] else _differences(done, last)
        before[key] = tuple(max(pair) for pair in zip(done, last, strict=True)) if new is not done else done
        rows += [(s.time_us, node_of(c.address), t.table, t.name, st, n) for st, n in zip(LEFT, new, strict=True)]
    return _table(rows, FLOW)


def regions(samples: Sequence[Sample]) -> pa.Table:
    """Give :data:`REGIONS`."""
    rows = []
    for s, c, t in _tables(samples):
        locks = {r.id: len(r.locks) for r in s.regions}
        for st in t.streams:
            where = (s.time_us, st.region, node_of(st.store), node_of(c.address), t.table)
            rows.append((*where, st.state, locks.get(st.region, 0)))
    return _table(rows, REGIONS)


def _tables(samples: Sequence[Sample]) -> Iterator[tuple[Sample, CaptureFacts, TableFacts]]:
    return ((s, c, t) for s in samples for c in s.captures for t in c.tables)


def _waiting(t: TableFacts) -> tuple[int, ...]:
    return t.unmatched, t.sorting, t.spilled, t.mounting, t.under_way


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
