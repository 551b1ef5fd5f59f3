"""The sink of a table: what is due goes downstream in commit order, and what is acknowledged moves the checkpoint."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from ticdc_lab.machines.machine import Broken, Decided, Ignored, Send
from ticdc_lab.simulate.pipeline.capture.mounter import UnknownTable, mounted, taken
from ticdc_lab.simulate.pipeline.capture.state import CaptureDesk, Flight, Path, Row, Sink
from ticdc_lab.simulate.pipeline.settings import AT_LEAST_ONCE, BY_PROCESSOR, BY_SNAPSHOT, CaptureSettings
from ticdc_lab.simulate.pipeline.sink_messages import DOWNSTREAM, SEVERAL, Begin, Publish, Write, Written
from ticdc_lab.simulate.pipeline.tables import Change, table_of
from ticdc_lab.simulate.scheduler.executor import REPLICATING, STOPPING, WRITING, Marks
from ticdc_lab.simulate.scheduler.roles import Key, in_turn

_COMMIT_TS = itemgetter(0)


def table_of_key(key: Key) -> int:
    """Give the table of what the scheduler dispatches."""
    return key if isinstance(key, int) else key.table


def resolved_ts(desk: CaptureDesk, path: Path) -> int:
    """Give up to where a table's rows and their definitions are known."""
    return max(path.start_ts, min(path.puller.resolved_ts, desk.ddl.resolved_ts))


def first_due_ts(path: Path) -> int | None:
    """Give the commit_ts of the first row that is due and has not been sent."""
    return path.sink.due[path.sink.at][0] if path.sink.at < len(path.sink.due) else None


def marks_of(desk: CaptureDesk, path: Path) -> Marks:
    """Give how far a table is: its checkpoint_ts is just below the first row that is not downstream."""
    resolved = resolved_ts(desk, path)
    if path.state not in WRITING:
        return Marks(path.start_ts, resolved)
    written_ts = min(resolved, desk.limit_ts)
    if not desk.publishes_first:
        written_ts = min(written_ts, _written_ts(path))
    return Marks(max(path.checkpoint_ts, written_ts), resolved)


def _written_ts(path: Path) -> int:
    if path.sink.flights:
        return path.sink.flights[0].first_ts - 1
    due_ts = first_due_ts(path)
    return path.sorter.drained_ts if due_ts is None else due_ts - 1


# Sending


def pump_all(desk: CaptureDesk) -> None:
    """Let every sink take what it may."""
    if desk.settings.order == BY_PROCESSOR:
        _pump_processor(desk)
        return
    for key in in_turn(desk.paths):
        _pump_table(desk, key)


def pump(desk: CaptureDesk, key: Key) -> None:
    """Let a sink take what is due after something of its table has changed."""
    if desk.settings.order == BY_PROCESSOR:
        desk.pumps = True
    else:
        _pump_table(desk, key)


def pump_due(desk: CaptureDesk) -> None:
    """Let out, once at the end of a step, what has become due of a processor's tables in it."""
    if desk.pumps:
        _pump_processor(desk)


def _begins_writes(desk: CaptureDesk, path: Path) -> bool:
    """One that stops begins nothing new, unless no other will write it: what was published at most once."""
    return path.state == REPLICATING or (path.state == STOPPING and desk.publishes_first)


def _upto_ts(desk: CaptureDesk, resolved: int) -> int:
    upto_ts = min(resolved, desk.limit_ts)
    return min(upto_ts, desk.inner.checkpoint_ts) if desk.publishes_first else upto_ts


def _pump_table(desk: CaptureDesk, key: Key) -> None:
    """Let the sink of a table take what is due, as far as its window is open."""
    path = desk.paths[key]
    if not _begins_writes(desk, path) or key in desk.executor.stalled:
        return
    upto_ts = _upto_ts(desk, resolved_ts(desk, path))
    while True:
        path = _sent(desk, path)
        if path.sink.at < len(path.sink.due):
            break
        path, more = _refilled(desk, path, upto_ts)
        if not more:
            break
    desk.put(path)


def _pump_processor(desk: CaptureDesk) -> None:
    """Let out what is due of all tables together, by commit_ts, as far as every window is open.

    What must wait makes everything behind it wait, also of other tables: else rows would leave out of order.
    """
    desk.pumps = False
    keys = [key for key in in_turn(desk.paths) if _begins_writes(desk, desk.paths[key])]
    if not keys:
        return
    upto_ts = _upto_ts(desk, min(resolved_ts(desk, desk.paths[key]) for key in keys))
    while True:
        horizon_ts = upto_ts
        for key in keys:
            path, more = desk.paths[key], True
            while more and path.sink.at >= len(path.sink.due):
                path, more = _refilled(desk, path, upto_ts)
            desk.put(path)
            if path.sink.at < len(path.sink.due):
                horizon_ts = min(horizon_ts, max(path.sorter.drained_ts, path.start_ts))
        if not _sent_in_order(desk, keys, horizon_ts) or horizon_ts >= upto_ts:
            return


def _sent_in_order(desk: CaptureDesk, keys: list[Key], upto_ts: int) -> bool:
    """Send the rows of all tables up to a ts in batches; whether no window and no stuck sink stopped it."""
    due: list[tuple[Path, list[Change]]] = []
    for key in keys:
        path = desk.paths[key]
        sink = path.sink
        rows = sink.due[sink.at : bisect_left(sink.due, (upto_ts + 1,), sink.at)]
        if rows:
            changes = _mounted(desk, path, rows)
            if changes is None:
                return False
            due.append((path, changes))
    places = [(change[0], i, change) for i, (_, changes) in enumerate(due) for change in changes]
    places.sort(key=_COMMIT_TS)  # of one commit_ts they are in the order of the tables
    at = 0
    while at < len(places):
        batch = places[at : _batch_end(places, at, len(places), desk.settings)]
        if not _sent_together(desk, [path.key for path, _ in due], batch):
            return False
        at += len(batch)
    return True


def _sent_together(desk: CaptureDesk, keys: list[Key], batch: list[tuple[int, int, Change]]) -> bool:
    """Send rows of several tables as one write, where each table's window has room."""
    first_ts: dict[int, int] = {}
    n_rows = [0] * len(keys)
    for commit_ts, i, _ in batch:
        n_rows[i] += 1
        first_ts.setdefault(i, commit_ts)
    for i in first_ts:
        sink = desk.paths[keys[i]].sink
        if keys[i] in desk.executor.stalled:
            return False
        if sink.flights and sink.n_flying + n_rows[i] > desk.settings.sink_window_rows:
            return False
    if not desk.mounts(len(batch)):
        return False
    desk.n_writes += 1
    write = Write(desk.n_writes, SEVERAL, tuple([change for _, _, change in batch]))
    desk.outputs.append(Send(DOWNSTREAM, write))
    for i, ts in first_ts.items():
        path = desk.paths[keys[i]]
        sink, at = path.sink, path.sink.at + n_rows[i]
        flight = Flight(desk.n_writes, ts, n_rows[i], desk.at_us, desk.at_us, write)
        due, at = ((), 0) if at == len(sink.due) else (sink.due, at)
        sink = sink._replace(due=due, at=at, flights=(*sink.flights, flight), n_flying=sink.n_flying + n_rows[i])
        desk.put(path._replace(sink=sink))
    return True


def _mounted(desk: CaptureDesk, path: Path, rows: Sequence[Row]) -> list[Change] | None:
    table = table_of_key(path.key)
    try:
        return mounted(rows, desk.ddl.schema.get(table, ()))
    except UnknownTable as unknown:
        desk.outputs.append(Broken("Every Row Has A Definition", f"table {table}: {unknown}"))
        return None


def _refilled(desk: CaptureDesk, path: Path, upto_ts: int) -> tuple[Path, bool]:
    sorter, rows = taken(path.sorter, upto_ts, desk.settings.sink_window_rows)
    if not rows:
        return (path if sorter is path.sorter else path._replace(sorter=sorter)), False
    if rows[0][0] <= path.start_ts:  # of a table that was prepared while another capture wrote it
        rows = [row for row in rows if row[0] > path.start_ts]
    last = path.sink.last
    if desk.settings.semantics != AT_LEAST_ONCE:
        rows, last = _each_once(rows, last)
    return path._replace(sorter=sorter, sink=path.sink._replace(due=tuple(rows), at=0, last=last)), True


def _each_once(rows: list[Row], last: tuple[object, ...]) -> tuple[list[Row], tuple[object, ...]]:
    """Leave out rows that were pulled twice, which stand side by side."""
    kept = []
    for row in rows:
        if row[:4] != last:
            kept.append(row)
            last = row[:4]
    return kept, last


def _sent(desk: CaptureDesk, path: Path) -> Path:
    """Send what is due of one table in batches, until its window is full."""
    sink, settings = path.sink, desk.settings
    due, at, flights, flying = sink.due, sink.at, list(sink.flights), sink.n_flying
    while at < len(due):
        rows = due[at : _batch_end(due, at, len(due), settings)]
        if flights and flying + len(rows) > settings.sink_window_rows:
            break
        if not desk.mounts(len(rows)):
            break
        changes = _mounted(desk, path, rows)
        if changes is None:
            break
        desk.n_writes += 1
        write = Write(desk.n_writes, table_of_key(path.key), tuple(changes))
        desk.outputs.append(Send(DOWNSTREAM, write))
        flights.append(Flight(desk.n_writes, rows[0][0], len(rows), desk.at_us, desk.at_us, write))
        flying += len(rows)
        at += len(rows)
    if at == sink.at:
        return path
    if at == len(due):
        due, at = (), 0
    return path._replace(sink=sink._replace(due=due, at=at, flights=tuple(flights), n_flying=flying))


def _batch_end(due: Sequence[Any], at: int, end: int, settings: CaptureSettings) -> int:
    """Give where a batch ends: behind so many rows, and where the sink takes transactions, behind a whole one."""
    stop = min(at + settings.sink_batch_rows, end)
    if settings.whole:
        while stop < end and due[stop][0] == due[stop - 1][0]:
            stop += 1
    return stop


# Answers


def written(desk: CaptureDesk, answer: Written) -> None:
    """Take an acknowledgement."""
    known, waits = False, False
    for key in _keys_of(desk, answer.table):
        path = desk.paths[key]
        if not any(f.id == answer.id and not f.is_written for f in path.sink.flights):
            continue
        moved = path._replace(sink=_acknowledged(path.sink, answer.id))
        desk.put(moved._replace(checkpoint_ts=marks_of(desk, moved).checkpoint_ts))
        known, waits = True, waits or path.sink.at < len(path.sink.due)
        if answer.table != SEVERAL:
            break
    if known:
        if waits:
            pump(desk, key)
        return
    desk.outputs.append(Ignored(answer, f"nothing of table {answer.table} with this id is under way"))


def _acknowledged(sink: Sink, number: int) -> Sink:
    """Note an acknowledgement; a write lands when all before it have.

    What came before is sent again if it was lost, and this one behind it, so that older rows are not final.
    """
    flights = tuple(f._replace(is_written=True) if f.id == number else f for f in sink.flights)
    n = next((i for i, f in enumerate(flights) if not f.is_written), len(flights))
    landed = sum(f.n_rows for f in flights[:n])
    return sink._replace(flights=flights[n:], n_flying=sink.n_flying - landed, written=sink.written + landed)


def _keys_of(desk: CaptureDesk, table: int) -> list[Key]:
    if table == SEVERAL:
        return in_turn(desk.paths)
    if table in desk.paths:
        return [table]
    return in_turn(k for k in desk.paths if table_of_key(k) == table)


def retry_all(desk: CaptureDesk) -> None:
    """Send again, in order, what has been without an answer for too long; at most once means never again."""
    if desk.settings.order == BY_PROCESSOR and not desk.publishes_first:
        late = [key for key in in_turn(desk.paths) if _is_late(desk, desk.paths[key])]
        if late:
            _again(desk, in_turn(k for k in desk.paths if desk.paths[k].state in WRITING), f"table-path:{late[0]}")
        return
    for key in in_turn(desk.paths):
        if not _is_late(desk, desk.paths[key]):
            continue
        if desk.publishes_first:
            path = desk.paths[key]
            desk.put(path._replace(sink=path.sink._replace(flights=(), n_flying=0)))
        else:
            _again(desk, [key], f"table-path:{key}")


def _is_late(desk: CaptureDesk, path: Path) -> bool:
    flights = path.sink.flights
    if not flights or desk.at_us - min(f.sent_us for f in flights) < desk.settings.retry_us:
        return False
    return path.state in WRITING and path.key not in desk.executor.stalled


def _again(desk: CaptureDesk, keys: list[Key], subject: str) -> None:
    """Send everything again that is under way of some tables, each write once and without rows of other tables."""
    flights = {f.id: f for key in keys for f in desk.paths[key].sink.flights}
    writes = [flights[number].write for number in sorted(flights)]
    since_us = min(f.since_us for f in flights.values())
    because = f"{len(writes)} writes are not acknowledged, the first since {since_us / 1e6:.3f} s"
    desk.outputs.append(Decided(subject, "write again", because))
    tables = {table_of_key(key) for key in keys}
    for write in writes:
        left = tuple(c for c in write.changes if table_of(c.key) in tables) if write.table == SEVERAL else write.changes
        whole = len(left) == len(write.changes)
        desk.outputs.append(Send(DOWNSTREAM, write if whole else write._replace(changes=left)))
    for key in keys:
        path = desk.paths[key]
        again = tuple(f._replace(sent_us=desk.at_us) for f in path.sink.flights)
        desk.put(path._replace(sink=path.sink._replace(flights=again)))


# Snapshots


def begin(desk: CaptureDesk, path: Path) -> None:
    """Void what an older writer staged above the start."""
    if desk.settings.semantics == BY_SNAPSHOT:
        desk.outputs.append(Send(DOWNSTREAM, Begin(table_of_key(path.key), path.start_ts)))


def publish(desk: CaptureDesk) -> None:
    """Let what is staged become visible up to the persisted global checkpoint."""
    if desk.settings.semantics == BY_SNAPSHOT:
        for key in in_turn(k for k in desk.paths if desk.paths[k].state in WRITING):
            desk.outputs.append(Send(DOWNSTREAM, Publish(table_of_key(key), desk.inner.checkpoint_ts)))
