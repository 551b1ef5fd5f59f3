"""The data paths of a capture: they follow the scheduler's pipelines, and take what stores stream."""

from __future__ import annotations

from bisect import bisect_left

from immutables import Map

from ticdc_lab.machines.machine import Address, Broken, Changed, Decided, Ignored
from ticdc_lab.simulate.pipeline.capture import kv_client, sink
from ticdc_lab.simulate.pipeline.capture.kv_client import begun, frontier_ts, matched, span_of_key
from ticdc_lab.simulate.pipeline.capture.mounter import added, applied, pruned, snapshot
from ticdc_lab.simulate.pipeline.capture.state import (
    ASKING,
    STREAMING,
    CaptureDesk,
    DdlPuller,
    Path,
    PulledStream,
    Row,
    Sorter,
)
from ticdc_lab.simulate.pipeline.cdc_messages import Entries, ResolvedTs
from ticdc_lab.simulate.pipeline.tables import META, FinishedJob, TableInfo, handle_of, shown, span_of
from ticdc_lab.simulate.scheduler.executor import PREPARING, REPLICATING, STOPPING, WRITING, Pipeline, marked, scanned
from ticdc_lab.simulate.scheduler.roles import Key, in_turn

# The DDL puller of a capture: the keys of DDL jobs as a table of their own; its jobs in order make the schema.


def fresh(tables: tuple[TableInfo, ...], at_us: int) -> DdlPuller:
    """Give one that knows the tables before any job; all jobs come from its scan, also those before the changefeed."""
    return DdlPuller(begun(*span_of(META), 0, at_us), snapshot(tables))


def received(desk: CaptureDesk, rows: list[Row]) -> None:
    """Keep jobs until they are resolved."""
    desk.ddl = desk.ddl._replace(rows=tuple(sorted((*desk.ddl.rows, *rows))))


def advanced(desk: CaptureDesk) -> bool:
    """Apply the jobs that are resolved now; return whether resolved_ts rose."""
    puller = desk.ddl.puller
    resolved_ts = frontier_ts(puller)
    if resolved_ts == puller.resolved_ts:
        return False
    end = bisect_left(desk.ddl.rows, (resolved_ts + 1,))
    due, left = desk.ddl.rows[:end], desk.ddl.rows[end:]
    desk.ddl = desk.ddl._replace(puller=puller._replace(resolved_ts=resolved_ts), rows=left)
    for commit_ts, _, _, key, _, value, _ in sorted(due, key=lambda row: (row[0], row[3])):
        at = (commit_ts, handle_of(key))
        if isinstance(value, FinishedJob) and at > desk.ddl.applied:
            unwritten = [row_ts - 1 for path in desk.paths.values() if (row_ts := sink.first_due_ts(path)) is not None]
            needed_ts = min(desk.inner.checkpoint_ts - 1, desk.duty.executed[0] if desk.duty else commit_ts, *unwritten)
            ddl = desk.ddl
            desk.ddl = ddl._replace(
                schema=applied(pruned(ddl.schema, needed_ts), commit_ts, value),
                jobs=(*(j for j in ddl.jobs if j[0] >= needed_ts), (commit_ts, value)),
                applied=at,
            )
            desk.tell(META, None, f"job {value.id}", f"{value.query} finished at {commit_ts}")
    return True


# What stores send: rows into matcher and sorter, resolved_ts into the frontiers.


def entries(desk: CaptureDesk, sender: Address, message: Entries) -> None:
    key = desk.kv.owners.get(message.request_id)
    if key is None:
        desk.outputs.append(Ignored(message._replace(rows=()), "the request is an old one"))
        return
    puller = desk.puller(key)
    before = puller.streams[message.request_id]
    found = matched(before._replace(heard_us=desk.at_us), message.rows)
    stream = found.stream
    if found.initialized:
        stream = kv_client.scan_ended(desk, key, stream)
        if found.told_twice:
            desk.outputs.append(Ignored("commits", f"{found.told_twice} were sent by the scan as committed rows too"))
    rows = _new(desk, key, before, found.rows)
    streams = puller.streams.set(message.request_id, stream)
    desk.set_puller(key, puller._replace(streams=streams, received=puller.received + len(rows)))
    if key == META:
        received(desk, rows)
    elif rows:
        path = desk.paths[key]
        desk.put(path._replace(sorter=added(path.sorter, rows, desk.settings.sorter_memory_rows)))
    if found.orphans:
        because = f"{found.orphans} commits came without their prewrite"
        kv_client.end_stream(desk, key, stream, because)
        kv_client.ask(desk, key)
    if found.initialized:
        kv_client.begin_scans(desk)


def _new(desk: CaptureDesk, key: Key, stream: PulledStream, rows: list[Row]) -> list[Row]:
    """Leave out what is before the start; below what the store promised to be complete nothing may come."""
    if not rows:
        return rows
    first = min(rows)
    if first[0] > stream.resolved_ts:
        return rows
    start_ts = 0 if key == META else desk.paths[key].start_ts
    late = [row for row in rows if stream.resolved_ts >= row[0] > start_ts]
    if late:
        sent = f"{stream.store} sent resolved_ts {stream.resolved_ts}"
        because = f"{shown(late[0][3])} was committed at {late[0][0]}, after {sent}"
        desk.outputs.append(Broken("Resolved Is Consistent", f"region {stream.region}: {because}"))
    return [row for row in rows if row[0] > start_ts]


def resolved(desk: CaptureDesk, sender: Address, message: ResolvedTs) -> None:
    """Take a resolved_ts of regions; one that is being scanned has none yet."""
    owners, ts = desk.kv.owners, message.ts
    told: dict[Key, dict[int, PulledStream]] = {}
    for request_id, _ in message.regions:
        key = owners.get(request_id)
        if key is None:
            continue
        stream = desk.puller(key).streams[request_id]
        if stream.state == STREAMING:
            stream = stream._replace(heard_us=desk.at_us, resolved_ts=max(ts, stream.resolved_ts))
        else:
            stream = stream._replace(heard_us=desk.at_us)
        told.setdefault(key, {})[request_id] = stream
    if not told:
        desk.outputs.append(Ignored(message, "the requests are old ones"))
    for key in in_turn(told):
        puller = desk.puller(key)
        desk.set_puller(key, puller._replace(streams=puller.streams.update(told[key])))
        advance(desk, key)


def advance(desk: CaptureDesk, key: Key) -> None:
    """Bring a frontier up to its regions, and let out what is due then."""
    if key == META:
        if advanced(desk):
            sink.pump_all(desk)
        return
    puller = desk.puller(key)
    resolved_ts = frontier_ts(puller)
    if resolved_ts > puller.resolved_ts:
        desk.set_puller(key, puller._replace(resolved_ts=resolved_ts))
        sink.pump(desk, key)


# The data paths of a capture follow the scheduler's pipelines: begun, let write, stopped, dropped.

Pipelines = Map[Key, Pipeline]


def followed(desk: CaptureDesk, before: Pipelines) -> None:
    """Bring the data paths up to the pipelines after a step of the scheduler's machine."""
    after = desk.executor.pipelines
    if after is before:
        return
    ended = {o.subject for o in desk.outputs if type(o) is Changed and o.after is None}
    for key in in_turn(desk.paths):
        if key not in after or f"table:{key}" in ended:
            _drop(desk, key)
    for key in in_turn(k for k in after if after[k] is not before.get(k) or k not in desk.paths):
        _follow(desk, key, after[key])
    kv_client.begin_scans(desk)


def _follow(desk: CaptureDesk, key: Key, pipeline: Pipeline) -> None:
    path = desk.paths.get(key)
    if path is not None and path.state not in WRITING and pipeline.start_ts < path.start_ts:
        because = f"it shall write from {pipeline.start_ts} on, and has pulled from {path.start_ts} only"
        desk.outputs.append(Decided(f"table-path:{key}", "pull again", because))
        _drop(desk, key)
        path = None
    if path is None:
        path = _begin(desk, key, pipeline)
    if path.state not in WRITING:
        start_ts = pipeline.start_ts
        path = path._replace(start_ts=start_ts, checkpoint_ts=max(start_ts, path.checkpoint_ts))
    starts = path.state not in WRITING and pipeline.state == REPLICATING
    path = path._replace(state=pipeline.state)
    desk.put(path)
    if starts:
        sink.begin(desk, path)
        sink.pump(desk, key)


def _begin(desk: CaptureDesk, key: Key, pipeline: Pipeline) -> Path:
    puller = begun(*span_of_key(key), pipeline.start_ts, desk.at_us)
    path = Path(key, PREPARING, pipeline.start_ts, pipeline.start_ts, puller, Sorter(pipeline.start_ts))
    desk.put(path)
    desk.tell(key, None, ASKING, f"its changes after {pipeline.start_ts} are wanted")
    kv_client.ask(desk, key)
    return desk.paths[key]


def _drop(desk: CaptureDesk, key: Key) -> None:
    """Pull and write no more of a table, at once."""
    kv_client.leave(desk, key)
    path = desk.paths[key]
    left = len(path.sink.due) - path.sink.at + path.sink.n_flying
    desk.paths = desk.paths.delete(key)
    desk.tell(key, path.state, None, f"{left} rows were due and not acknowledged" if left else "nothing was under way")


def measured(desk: CaptureDesk) -> None:
    """Report to the scheduler how far every table is, and whose scan has ended."""
    executor = desk.executor
    marks = {}
    for key in in_turn(desk.paths):
        path, pipeline = desk.paths[key], executor.pipelines[key]
        if pipeline.state == STOPPING and pipeline.due_us <= desk.at_us:
            continue  # it ends now, at what was reported last
        found = sink.marks_of(desk, path)
        if found != executor.marks.get(key):
            marks[key] = found
        if found.checkpoint_ts > path.checkpoint_ts:
            desk.put(path._replace(checkpoint_ts=found.checkpoint_ts))
        if pipeline.state == PREPARING and pipeline.due_us > desk.at_us and path.puller.initialized:
            executor = scanned(executor, key, desk.at_us)
    if marks:
        executor = marked(executor, marks)
    if executor is not desk.executor:
        desk.inner = desk.inner._replace(processor=desk.inner.processor.with_executor(executor))
