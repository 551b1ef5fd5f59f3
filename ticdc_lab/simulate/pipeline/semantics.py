"""What delivery semantics lose and repeat under each fault, what the MQ rule gains, stream against batch: from runs.

References
----------
Design "Analyzing the Architecture Model", sections 1.1, 1.2 and 6; design "TiCDC MQ (Kafka) Protocol", CDC 同步模型.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from ticdc_lab.machines.clock import ts_of, us_of
from ticdc_lab.machines.machine import node_of
from ticdc_lab.simulate.faults import Ask, Crash, Fault, Part
from ticdc_lab.simulate.pipeline.downstream import Mark, Rows
from ticdc_lab.simulate.pipeline.facts import outcome
from ticdc_lab.simulate.pipeline.kv_messages import PUT, Mutation, TransferLeader
from ticdc_lab.simulate.pipeline.looking import moments
from ticdc_lab.simulate.pipeline.run import PipelineRun, simulate
from ticdc_lab.simulate.pipeline.scenario import LoadSettings, Named, made
from ticdc_lab.simulate.pipeline.settings import (
    BY_TABLE,
    MQ,
    RULES,
    SEMANTICS,
    CaptureSettings,
    PipelineSettings,
    TikvSettings,
)
from ticdc_lab.simulate.pipeline.tables import Change, Column, Raw, TableInfo, key_of
from ticdc_lab.simulate.pipeline.tidb_state import ClientTxn, Load
from ticdc_lab.simulate.scheduler.roles import MoveTable, Restart
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings as Scheduler
from ticdc_lab.simulate.trace import CHANGES

DELIVERY = pa.schema(
    [
        ("semantics", pa.string()),  # of ticdc_lab.simulate.pipeline.settings.SEMANTICS
        ("fault", pa.string()),  # of FAULTS
        ("committed", pa.int64()),  # row changes up to the global checkpoint
        ("delivered", pa.int64()),
        ("lost", pa.int64()),  # of those committed, never delivered
        ("repeated", pa.int64()),  # deliveries beyond the first
        ("regressed", pa.int64()),  # deliveries of an older version than the row had: overwritten for a moment
        ("final_right_idempotent", pa.bool_()),  # rows are replaced: they are the upstream's
        ("final_right_blind", pa.bool_()),  # differences are added up: the sums are the upstream's
        ("violation", pa.string()),  # the invariant that was violated; null without one
    ]
)
"""A row a semantics and fault."""

GAINS = pa.schema(
    [
        ("rule", pa.string()),  # of ticdc_lab.simulate.pipeline.settings.RULES
        ("rows", pa.int64()),  # delivered
        ("rows_in_memory_max", pa.int64()),  # of all sorters and mounters together, at any sample
        ("rows_on_disk_max", pa.int64()),
        ("latency_ms_median", pa.float64()),  # from a row's commit to its arrival downstream
        ("latency_ms_p99", pa.float64()),
        ("violation", pa.string()),  # the design's proof obligation among the invariants
    ]
)
"""A row a rule."""

CLUSTER = PipelineSettings(Scheduler(captures=3, tick_us=200_000, poll_us=200_000, ttl_us=2_000_000, margin_us=500_000))
TABLES, FAULT_US, END_US = (1, 2, 3, 4), 3_050_000, 9_000_000
_SAMPLE_US = 50_000
_HANDLES = 50


def small_load(seed: int = 0, *, rows_per_s: int = 200, held_us: int = 0) -> Load:
    """Give six seconds of transactions over four tables, one of them held open for a while from second 2 on."""
    held = (Named(2_000_000, TABLES[0], (_HANDLES, _HANDLES + 1), held_us),) if held_us else ()
    settings = LoadSettings(rows_per_s=rows_per_s, handles=_HANDLES, until_us=6_000_000, transactions=held)
    return made(settings, TABLES, (), seed, END_US)


def compare_semantics(
    load: Load | None = None,
    *,
    settings: PipelineSettings = CLUSTER,
    semantics: Sequence[str] = SEMANTICS,
    faults: Sequence[str] = (),
    seed: int = 0,
    until_us: int = END_US,
) -> pa.Table:
    """Run one load under each semantics and fault (:data:`DELIVERY`).

    Parameters
    ----------
    load
        :func:`small_load` if left out.
    settings
        The cluster.
    faults
        Of :data:`FAULTS`; all of them if left out. The fault comes at :data:`FAULT_US`.
    seed
        Of every run.
    """
    load = small_load(seed) if load is None else load
    quiet = simulate(settings, load, seed=seed, until_us=FAULT_US, level=CHANGES)
    rows = []
    for name in semantics:
        own = replace(settings, capture=replace(settings.capture, semantics=name))
        for fault in faults or tuple(FAULTS):
            run = simulate(own, load, faults=[*FAULTS[fault](quiet)], seed=seed, until_us=until_us, level=CHANGES)
            rows.append({"semantics": name, "fault": fault, **outcome(run)._asdict(), "violation": _violation(run)})
    return pa.Table.from_pylist(rows, schema=DELIVERY)


def compare_rules(
    load: Load | None = None, *, settings: PipelineSettings = CLUSTER, seed: int = 0, until_us: int = END_US
) -> pa.Table:
    """Run one load under the base rule and under the MQ rule (:data:`GAINS`).

    Each table goes by itself, as in TiCDC: where all of a processor leave by commit_ts, most of the gain is lost, for
    one table's wait holds the tables beside it.

    ``load`` is :func:`small_load` with a transaction of two seconds if left out.
    """
    load = small_load(seed, held_us=2_000_000) if load is None else load
    rows = []
    for rule in RULES:
        own = replace(settings, capture=replace(settings.capture, rule=rule, order=BY_TABLE))
        run = simulate(own, load, seed=seed, until_us=until_us, level=CHANGES, sample_us=_SAMPLE_US)
        rows.append({"rule": rule, **_held(run), **_latency(run), "violation": _violation(run)})
    return pa.Table.from_pylist(rows, schema=GAINS)


def _violation(run: PipelineRun) -> str | None:
    return run.violation.invariant if run.violation else None


def _held(run: PipelineRun) -> dict[str, int]:
    """The most rows that sorters and mounters held at a sample."""
    tables = [[t for c in m.captures for t in c.tables] for m in moments(run)]
    return {
        "rows_in_memory_max": max((sum(t.sorting + t.mounting for t in some) for some in tables), default=0),
        "rows_on_disk_max": max((sum(t.spilled for t in some) for some in tables), default=0),
    }


def _latency(run: PipelineRun) -> dict[str, Any]:
    arrived = [(e.at_us, c.commit_ts) for e in run.entries if isinstance(e, Rows) for c in e.changes]
    ms = np.array([(at_us - us_of(ts)) / 1000 for at_us, ts in arrived])
    median, p99 = (float(np.percentile(ms, q)) if len(ms) else None for q in (50, 99))
    return {"rows": len(ms), "latency_ms_median": median, "latency_ms_p99": p99}


def _owner(quiet: PipelineRun) -> str:
    """The capture that owns when the fault comes."""
    states = quiet.kernel.states
    return next(node_of(a) for a in sorted(states) if getattr(states[a], "owner", None) is not None)


def _other(quiet: PipelineRun) -> str:
    """A capture that does not own, and has tables."""
    owner = _owner(quiet)
    return next(c for c in quiet.settings.scheduler.nodes() if c != owner and _tables_of(quiet, c))


def _tables_of(quiet: PipelineRun, capture: str) -> list[int]:
    return sorted(quiet.kernel.states[quiet.kernel.address[capture]].paths)


def _leader_change(quiet: PipelineRun) -> list[Fault]:
    """Every region of every table is led by one store after another."""
    stores = quiet.settings.stores()
    keys = [key_of(t, h) for t in TABLES for h in (1, _HANDLES - 1)]
    return [
        Ask(FAULT_US + 300_000 * n, store, TransferLeader(key, to))
        for n, to in enumerate(stores)
        for key in keys
        for store in stores
    ]


def _migration(quiet: PipelineRun) -> list[Fault]:
    source, to = _other(quiet), _owner(quiet)
    move = MoveTable(_tables_of(quiet, source)[0], to)
    return [Ask(FAULT_US, capture, move) for capture in quiet.settings.scheduler.nodes()]


def _crash(node: Callable[[PipelineRun], str]) -> Callable[[PipelineRun], list[Fault]]:
    return lambda quiet: [Crash(FAULT_US, node(quiet))]


FAULTS: Mapping[str, Callable[[PipelineRun], Iterable[Fault]]] = MappingProxyType(
    {
        "none": lambda quiet: [],
        "leader change": _leader_change,
        "capture crash": _crash(_other),
        "processor restart": lambda quiet: [Ask(FAULT_US, _other(quiet), Restart())],
        "owner switch": _crash(_owner),
        "table migration": _migration,
    }
)
"""What goes wrong, from the state of a run without faults."""


# Stream against batch: a design's example of an event that comes at 4:05 for the window of 3:00 to 4:00 (section 1.1).
#
# Two logs (tables) change rows from state A to B; how many did between 3:00:00 and 4:00:00? A batch counts what has
# arrived in the window. A stream counts by event time (commit_ts) and answers when the watermark has passed its end.

MINUTE_US = 200_000
"""Virtual time of a minute of the example."""
FIRST_MINUTE = 170
"""The run begins at 2:50."""
LOGS = (1, 2)

WINDOWS = pa.schema(
    [
        ("start", pa.string()),  # 3:00
        ("end", pa.string()),
        ("method", pa.string()),  # batch: by arrival; stream: by event time, with the watermark
        ("counted", pa.int64()),  # changes A to B
        ("truth", pa.int64()),  # by what was committed upstream
        ("right", pa.bool_()),
        ("answered", pa.string()),  # when: 4:07; null where the watermark has not passed the end
        ("answered_us", pa.int64()),
    ]
)
"""A row a window and method."""

_COLUMNS = (Column(1, "id", "bigint", True), Column(2, "state", "varchar"))


def at_us(hour: int, minute: float) -> int:
    """Give the moment of the run for a time of the example."""
    return round((hour * 60 + minute - FIRST_MINUTE) * MINUTE_US)


def time_of(us: int) -> str:
    """Give the time of the example for a moment of the run: ``4:05``."""
    minutes = us // MINUTE_US + FIRST_MINUTE
    return f"{minutes // 60}:{minutes % 60:02}"


def late_event(seed: int = 0) -> PipelineRun:
    """Run the example: a change of Log1 is committed at 3:58, and its store is cut off from captures until 4:04."""
    changes = [(1, 3, 10), (1, 3, 30), (2, 3, 20), (2, 3, 40), (1, 3, 58), (2, 4, 15), (1, 4, 25)]
    tables = tuple(TableInfo(n, "s", f"Log{n}", _COLUMNS) for n in LOGS)
    begun = [ClientTxn(at_us(2, 52), 0, (_put(table, n, "A"),)) for n, (table, _, _) in enumerate(changes)]
    changed = [ClientTxn(at_us(h, m), 0, (_put(table, n, "B"),)) for n, (table, h, m) in enumerate(changes)]
    load = Load(tables, tuple(sorted([*begun, *changed], key=lambda t: t.start_us)))
    settings = PipelineSettings(
        Scheduler(captures=2),
        TikvSettings(regions_per_table=1, resolved_us=MINUTE_US // 4),
        CaptureSettings(rule=MQ, order=BY_TABLE),  # rows of Log2 do not wait for Log1
    )
    quiet = simulate(settings, load, seed=seed, until_us=at_us(3, 50), level=CHANGES)
    # The store that leads Log1's region is cut off from all captures, but not from clients and other stores.
    paths = [s.paths[1] for s in quiet.kernel.states.values() if 1 in getattr(s, "paths", {})]
    store = node_of(next(stream.store for stream in paths[0].puller.streams.values()))
    faults = [Part(at_us(3, 57), store, c, for_us=at_us(4, 4.5) - at_us(3, 57)) for c in settings.scheduler.nodes()]
    return simulate(settings, load, faults=faults, seed=seed, until_us=at_us(5, 10), level=CHANGES)


def _put(table: int, handle: int, state: str) -> Mutation:
    return Mutation(key_of(table, handle), PUT, Raw((1, 2), (handle, state)))


def windows(run: PipelineRun, edges_us: Sequence[int] | None = None) -> pa.Table:
    """Count the changes of each window by both methods (:data:`WINDOWS`).

    Parameters
    ----------
    run
        Of rows with a column ``state``; a row that is delivered again is counted once.
    edges_us
        Where windows begin and end; 3:00, 4:00 and 5:00 if left out.
    """
    edges = [at_us(3, 0), at_us(4, 0), at_us(5, 0)] if edges_us is None else list(edges_us)
    arrived: dict[tuple[int, int], tuple[int, Change]] = {}
    for entry in run.entries:
        for change in entry.changes if isinstance(entry, Rows) else ():
            arrived.setdefault((change.commit_ts, change.key), (entry.at_us, change))
    came = [(at, change) for at, change in arrived.values() if _is_a_to_b(change)]
    marks = [(entry.at_us, entry.ts) for entry in run.entries if isinstance(entry, Mark)]
    rows = []
    for start_us, end_us in pairwise(edges):
        truth = sum(_is_a_to_b(c) and start_us <= us_of(c.commit_ts) < end_us for c in run.changes)
        passed = next((at for at, ts in marks if ts >= ts_of(end_us)), None)
        by_arrival = sum(start_us <= at < end_us for at, _ in came)
        until_us = run.end.time_us if passed is None else passed
        by_event = sum(start_us <= us_of(c.commit_ts) < end_us and at <= until_us for at, c in came)
        for method, counted, answered in (("batch", by_arrival, end_us), ("stream", by_event, passed)):
            rows.append(
                {"start": time_of(start_us), "end": time_of(end_us), "method": method, "counted": counted,
                 "truth": truth, "right": counted == truth, "answered_us": answered,
                 "answered": None if answered is None else time_of(answered)}
            )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=WINDOWS)


def _is_a_to_b(change: Change) -> bool:
    return change.before is not None and change.after is not None and (change.before[1], change.after[1]) == ("A", "B")
