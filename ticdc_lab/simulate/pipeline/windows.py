"""Stream against batch: a design's example of an event that comes at 4:05 for the window from 3:00 to 4:00.

Two logs (tables) change rows from state A to B; how many did between 3:00:00 and 4:00:00? A batch counts what has
arrived in the window. A stream counts by event time (commit_ts) and answers when the watermark has passed its end.

References
----------
Design "Analyzing the Architecture Model", section 1.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa

from ticdc_lab.machines.clock import ts_of, us_of
from ticdc_lab.simulate.faults import Fault, Part
from ticdc_lab.simulate.pipeline.downstream import Mark, Rows
from ticdc_lab.simulate.pipeline.kv_messages import PUT, Mutation
from ticdc_lab.simulate.pipeline.run import PipelineRun, simulate
from ticdc_lab.simulate.pipeline.settings import BY_TABLE, MQ, CaptureSettings, PipelineSettings, TikvSettings
from ticdc_lab.simulate.pipeline.tables import Change, Column, Raw, TableInfo, key_of
from ticdc_lab.simulate.pipeline.tidb_state import ClientTxn, Load
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings as Scheduler
from ticdc_lab.simulate.trace import CHANGES

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
    return simulate(settings, load, faults=_cut(quiet), seed=seed, until_us=at_us(5, 10), level=CHANGES)


def _cut(quiet: PipelineRun) -> list[Fault]:
    """Cut the store that leads Log1's region off from all captures, but not from clients and other stores."""
    states = quiet.kernel.states
    paths = [s.paths[1] for s in states.values() if 1 in getattr(s, "paths", {})]
    store = next(stream.store for stream in paths[0].puller.streams.values())
    captures = quiet.settings.scheduler.nodes()
    return [Part(at_us(3, 57), store.partition(".")[0], c, for_us=at_us(4, 4.5) - at_us(3, 57)) for c in captures]


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
