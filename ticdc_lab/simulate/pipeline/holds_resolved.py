"""What bounds resolved_ts in the processors: locks, scans, silent stores, regions without a leader, the DDL puller.

Values in between (of a region, a table, a puller) are no causes: they bound only where nothing below explains them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ticdc_lab.simulate.pipeline.hold import (
    DDL_PULLER,
    REGION,
    REPORT,
    SCAN,
    STORE,
    TRANSACTION,
    Hold,
    Step,
    is_unexplained,
)
from ticdc_lab.simulate.pipeline.keys import shown, span_of
from ticdc_lab.simulate.pipeline.moment import Moment, Reported
from ticdc_lab.simulate.pipeline.observed import CaptureFacts, RegionFacts, StreamFacts, TableFacts
from ticdc_lab.simulate.scheduler.clock import ts_of, us_of
from ticdc_lab.simulate.scheduler.executor import WRITING


def of_processors(moment: Moment, current_us: int) -> Iterator[Hold]:
    """Give the bounds of resolved_ts in every capture that runs."""
    for capture in moment.captures:
        tables = counted(moment, capture)
        processor = Step("processor", capture.address, lowest_ts(moment, tables, "resolved_ts"))
        for table in tables:
            yield from _of_table(moment, capture, table, processor, current_us)
        yield from _of_ddl_puller(moment, capture, processor, current_us)


def counted(moment: Moment, capture: CaptureFacts) -> list[TableFacts]:
    """Give the tables of a capture that its owner waits for: not those that another capture still writes."""
    written = {t.table for c in moment.captures if c is not capture for t in c.tables if t.state in WRITING}
    return [t for t in capture.tables if t.state in WRITING or t.table not in written]


def lowest_ts(moment: Moment, tables: Iterable[TableFacts], watermark: str) -> int:
    """Give what a processor has to report: the lowest of its tables."""
    return min([getattr(t, watermark) for t in tables], default=ts_of(moment.at_us))


def _of_table(
    moment: Moment, capture: CaptureFacts, table: TableFacts, processor: Step, current_us: int
) -> Iterator[Hold]:
    path = (processor, Step("table", f"{table.name} ({table.table})", table.resolved_ts))
    bounds = [h for stream in table.streams for h in _of_stream(moment, stream, path, current_us)]
    yield from bounds
    if is_unexplained(table.resolved_ts, _and_now(moment, bounds), current_us):
        because = f"{table.name} is {table.state} on {capture.address} and has received nothing newer"
        key = ("table", f"{table.table} on {capture.address}")
        yield Hold(key, REPORT if table.streams else SCAN, table.resolved_ts, path, because)


def _of_ddl_puller(moment: Moment, capture: CaptureFacts, processor: Step, current_us: int) -> Iterator[Hold]:
    path = (processor, Step("ddl puller", capture.address, capture.ddl_resolved_ts))
    bounds = [h for stream in capture.ddl_streams for h in _of_stream(moment, stream, path, current_us)]
    yield from bounds
    if is_unexplained(capture.ddl_resolved_ts, _and_now(moment, bounds), current_us):
        because = f"the DDL puller of {capture.address} has received nothing newer"
        yield Hold(("ddl puller", capture.address), DDL_PULLER, capture.ddl_resolved_ts, path, because)


def _of_stream(moment: Moment, stream: StreamFacts, path: tuple[Step, ...], current_us: int) -> Iterator[Hold]:
    """Locks in a region of a puller, its scan, its silence."""
    span = f"[{shown(stream.start)}, {shown(stream.end)})"
    path = (*path, Step("region", f"{stream.region} {span} on {stream.store}", stream.resolved_ts))
    overlapping = [r for r in moment.regions if r.start < stream.end and stream.start < r.end]
    bounds = list(_of_locks(overlapping, path))
    yield from bounds
    if stream.state != "streaming":
        yield _not_streaming(moment, stream, path)
    elif is_unexplained(stream.resolved_ts, _and_now(moment, bounds), current_us):
        yield _silent(moment, stream, path)


def of_lost(moment: Moment, lost: Reported) -> Iterator[Hold]:
    """Give the locks in tables of a capture that does not run: wherever these begin anew, they wait for them too."""
    for table in lost.tables:
        start, end = span_of(table)
        path = (Step("processor", lost.capture, lost.resolved_ts), Step("table", str(table)))
        yield from _of_locks([r for r in moment.regions if r.start < end and start < r.end], path)


def _of_locks(regions: Iterable[RegionFacts], path: tuple[Step, ...]) -> Iterator[Hold]:
    for region in regions:
        for lock in region.locks:
            name = f"transaction {lock.start_ts} (primary {shown(lock.primary)})"
            n = f"{len(lock.keys)} lock{'s' if len(lock.keys) > 1 else ''}"
            because = f"{name} is open: {n} in region {region.id} on {region.store}"
            key = (TRANSACTION, str(lock.start_ts))
            own = (*path, Step("lock", name, lock.start_ts))
            yield Hold(key, TRANSACTION, lock.start_ts, own, because, us_of(lock.start_ts))


def _not_streaming(moment: Moment, stream: StreamFacts, path: tuple[Step, ...]) -> Hold:
    where, ts = f"region {stream.region}", stream.resolved_ts
    if stream.store in moment.down:
        because = f"{where} has no leader: {stream.store} is down, and no other store has taken it over"
        return Hold((STORE, stream.store), STORE, ts, path, because)
    kind, because = {
        "scanning": (SCAN, f"the incremental scan of {where} on {stream.store} has not ended"),
        "waiting": (SCAN, f"{where} waits for its incremental scan until others have ended"),
    }.get(stream.state, (REGION, f"{where} is being asked for: nobody has answered as its leader"))
    return Hold((kind, str(stream.region)), kind, ts, path, because, stream.since_us)


def _silent(moment: Moment, stream: StreamFacts, path: tuple[Step, ...]) -> Hold:
    where, ts = f"region {stream.region}", stream.resolved_ts
    leads = next((r for r in moment.regions if r.id == stream.region), None)
    if stream.store in moment.down:
        return Hold((STORE, stream.store), STORE, ts, path, f"{stream.store}, which streams {where}, is down or paused")
    if leads is None:
        because = f"{where} has no leader that runs; {stream.store} streamed it last"
        return Hold((REGION, str(stream.region)), REGION, ts, path, because)
    if leads.resolved_ts > ts:
        because = f"{leads.store} resolved {where} up to {leads.resolved_ts}, and that has not come here"
    else:
        because = f"{leads.store} does not advance {where}, though no lock is in it"
    return Hold((STORE, leads.store), STORE, ts, path, because)


def _and_now(moment: Moment, bounds: Iterable[Hold]) -> list[int]:
    return [ts_of(moment.at_us), *(h.ts for h in bounds)]
