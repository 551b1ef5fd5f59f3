"""The sink of a table: what is due goes downstream in commit order, and what is acknowledged moves the checkpoint."""

from __future__ import annotations

from ticdc_lab.simulate.machine import Broken, Decided, Ignored, Send
from ticdc_lab.simulate.pipeline.capture.desk import Desk
from ticdc_lab.simulate.pipeline.capture.mounter import Unknown, mounted
from ticdc_lab.simulate.pipeline.capture.mutants import (
    EMITS_UNRESOLVED,
    PASSES_RESOLVED,
    SENT_IS_WRITTEN,
    STOP_LOSES_ROWS,
)
from ticdc_lab.simulate.pipeline.capture.path_state import Flight, Path, Row, Sink
from ticdc_lab.simulate.pipeline.capture.sorter import taken
from ticdc_lab.simulate.pipeline.settings import AT_LEAST_ONCE, BY_SNAPSHOT
from ticdc_lab.simulate.pipeline.sink_messages import DOWNSTREAM, Begin, Publish, Write, Written
from ticdc_lab.simulate.scheduler.executor import MAX_TS, REPLICATING, STOPPING, WRITING, Marks
from ticdc_lab.simulate.scheduler.roles import Key, in_turn


def table_of_key(key: Key) -> int:
    """Give the table of what the scheduler dispatches."""
    return key if isinstance(key, int) else key.table


def resolved_ts(desk: Desk, path: Path) -> int:
    """Give up to where a table's rows and their definitions are known."""
    return max(path.start_ts, min(path.puller.resolved_ts, desk.ddl.resolved_ts))


def first_due_ts(path: Path) -> int | None:
    """Give the commit_ts of the first row that is due and has not been sent."""
    return path.sink.due[path.sink.at][0] if path.sink.at < len(path.sink.due) else None


def marks_of(desk: Desk, path: Path) -> Marks:
    """Say how far a table is: its checkpoint_ts is just below the first row that is not downstream."""
    resolved = resolved_ts(desk, path)
    if path.state not in WRITING:
        return Marks(path.start_ts, resolved)
    written_ts = desk.limit_ts if PASSES_RESOLVED in desk.planted else min(resolved, desk.limit_ts)
    if not desk.publishes_first:
        written_ts = min(written_ts, _written_ts(desk, path))
    return Marks(max(path.checkpoint_ts, written_ts), resolved)


def _written_ts(desk: Desk, path: Path) -> int:
    if STOP_LOSES_ROWS in desk.planted and path.state == STOPPING:
        return MAX_TS
    if path.sink.flights and SENT_IS_WRITTEN not in desk.planted:
        return path.sink.flights[0].first_ts - 1
    due_ts = first_due_ts(path)
    return path.sorter.drained_ts if due_ts is None else due_ts - 1


# Sending


def pump_all(desk: Desk) -> None:
    """Let every sink take what it may."""
    for key in in_turn(desk.paths):
        pump(desk, key)


def pump(desk: Desk, key: Key) -> None:
    """Let a sink take what is due, as far as its window is open.

    One that stops begins nothing new, unless nobody else will write it: what was published at most once.
    """
    path = desk.paths[key]
    writes = path.state == REPLICATING or (path.state == STOPPING and desk.publishes_first)
    if not writes or key in desk.executor.stalled:
        return
    upto_ts = min(resolved_ts(desk, path), desk.limit_ts)
    if desk.publishes_first:
        upto_ts = min(upto_ts, desk.inner.checkpoint_ts)
    if EMITS_UNRESOLVED in desk.planted:
        upto_ts = MAX_TS
    while True:
        path = _sent(desk, path)
        if path.sink.at < len(path.sink.due):
            break
        path, more = _refilled(desk, path, upto_ts)
        if not more:
            break
    desk.put(path)


def _refilled(desk: Desk, path: Path, upto_ts: int) -> tuple[Path, bool]:
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


def _sent(desk: Desk, path: Path) -> Path:
    sink, settings = path.sink, desk.settings
    due, at, flights, flying = sink.due, sink.at, list(sink.flights), sink.n_flying
    table = table_of_key(path.key)
    while at < len(due):
        rows = due[at : at + settings.sink_batch_rows]
        if flights and flying + len(rows) > settings.sink_window_rows:
            break
        try:
            changes = mounted(rows, desk.ddl.schema.get(table, ()), desk.planted)
        except Unknown as unknown:
            desk.outputs.append(Broken("Every Row Has A Definition", f"table {table}: {unknown}"))
            break
        desk.n_writes += 1
        write = Write(desk.n_writes, table, tuple(changes))
        desk.outputs.append(Send(DOWNSTREAM, write))
        flights.append(Flight(desk.n_writes, rows[0][0], len(rows), desk.at_us, desk.at_us, write))
        flying += len(rows)
        at += len(rows)
    if at == sink.at:
        return path
    if at == len(due):
        due, at = (), 0
    return path._replace(sink=sink._replace(due=due, at=at, flights=tuple(flights), n_flying=flying))


# Answers


def written(desk: Desk, answer: Written) -> None:
    """Take an acknowledgement."""
    for key in _keys_of(desk, answer.table):
        path = desk.paths[key]
        if not any(f.id == answer.id and not f.is_written for f in path.sink.flights):
            continue
        desk.put(_moved(desk, path._replace(sink=_acknowledged(path.sink, answer.id))))
        pump(desk, key)
        return
    desk.outputs.append(Ignored(answer, f"nothing of table {answer.table} with this id is under way"))


def _acknowledged(sink: Sink, number: int) -> Sink:
    """Note an acknowledgement; a write lands when all before it have.

    What came before is sent again if it was lost, and this one behind it, so that older rows do not stand for good.
    """
    flights = tuple(f._replace(is_written=True) if f.id == number else f for f in sink.flights)
    n = next((i for i, f in enumerate(flights) if not f.is_written), len(flights))
    landed = sum(f.n_rows for f in flights[:n])
    return sink._replace(flights=flights[n:], n_flying=sink.n_flying - landed, written=sink.written + landed)


def _keys_of(desk: Desk, table: int) -> list[Key]:
    if table in desk.paths:
        return [table]
    return in_turn(k for k in desk.paths if table_of_key(k) == table)


def _moved(desk: Desk, path: Path) -> Path:
    return path._replace(checkpoint_ts=marks_of(desk, path).checkpoint_ts)


def retry(desk: Desk, key: Key) -> None:
    """Send again, in order, what has been without an answer for too long; at most once means never again."""
    path = desk.paths[key]
    flights = path.sink.flights
    if not flights or desk.at_us - min(f.sent_us for f in flights) < desk.settings.retry_us:
        return
    if path.state not in WRITING or key in desk.executor.stalled:
        return
    if desk.publishes_first:
        desk.put(path._replace(sink=path.sink._replace(flights=(), n_flying=0)))
        return
    because = f"{len(flights)} writes are not acknowledged, the first since {flights[0].since_us / 1e6:.3f} s"
    desk.outputs.append(Decided(f"table-path:{key}", "write again", because))
    desk.outputs += [Send(DOWNSTREAM, f.write) for f in flights]
    again = tuple(f._replace(sent_us=desk.at_us) for f in flights)
    desk.put(path._replace(sink=path.sink._replace(flights=again)))


# Snapshots


def begin(desk: Desk, path: Path) -> None:
    """Void what an older writer staged above the start."""
    if desk.settings.semantics == BY_SNAPSHOT:
        desk.outputs.append(Send(DOWNSTREAM, Begin(table_of_key(path.key), path.start_ts)))


def publish(desk: Desk) -> None:
    """Let what is staged become visible up to the persisted global checkpoint."""
    if desk.settings.semantics == BY_SNAPSHOT:
        for key in in_turn(k for k in desk.paths if desk.paths[k].state in WRITING):
            desk.outputs.append(Send(DOWNSTREAM, Publish(table_of_key(key), desk.inner.checkpoint_ts)))
