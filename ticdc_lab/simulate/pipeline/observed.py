"""What can be seen of the pipeline: the parts of its states that figures and explanations read.

States are immutable, so a run keeps one for every few milliseconds and these facts are made on demand.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ticdc_lab.machines.machine import BARRIER, Reason, node_of, replace
from ticdc_lab.simulate.pipeline.capture.mounter import in_memory, info_at, on_disk
from ticdc_lab.simulate.pipeline.capture.state import ASKING, PD, DataState, Path, Puller
from ticdc_lab.simulate.pipeline.changefeeds.etcd import STOPPED, Changefeed
from ticdc_lab.simulate.pipeline.tables import Value
from ticdc_lab.simulate.pipeline.tikv.region_data import Data, read, records
from ticdc_lab.simulate.pipeline.tikv.store_state import TikvStoreState, led_here
from ticdc_lab.simulate.scheduler.dispatcher_state import DispatcherState
from ticdc_lab.simulate.scheduler.etcd import EtcdState
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.roles import in_turn


class HeldLock(NamedTuple):
    """The locks of one transaction in one region."""

    start_ts: int
    primary: int
    keys: tuple[int, ...]


class RegionFacts(NamedTuple):
    """A region on the store that leads it; ``resolved_ts`` is what its CDC component sent last, 0 before."""

    id: int
    store: str
    start: int
    end: int
    epoch: int
    resolved_ts: int
    locks: tuple[HeldLock, ...]


class CfRow(NamedTuple):
    """One entry of a column family."""

    cf: str  # ``lock``, ``default`` or ``write``
    key: int
    # The timestamp in its key: none (0) in lock, start_ts in default, commit_ts in write (start_ts of a rollback).
    ts: int
    start_ts: int  # in its value: of the transaction
    kind: str  # ``put``, ``delete`` or ``rollback``
    value: Value | None


class StreamFacts(NamedTuple):
    """A region as a puller sees it: ``state`` is ``asking``, ``scanning``, ``streaming`` or ``waiting``."""

    region: int
    store: str
    start: int
    end: int
    state: str
    resolved_ts: int
    since_us: int


class TableFacts(NamedTuple):
    """The data path of a table in a capture."""

    table: int
    name: str
    state: str  # of the scheduler's pipeline: ``preparing``, ``prepared``, ``replicating``, ``stopping``
    # Its watermarks.
    resolved_ts: int
    checkpoint_ts: int
    streams: tuple[StreamFacts, ...]  # the regions of its puller
    # Rows in the puller whose prewrite or commit is missing, in the sorter's memory, on its disk, due and not yet
    # mounted or held back by the sink's window, written and not acknowledged.
    unmatched: int
    sorting: int
    spilled: int
    mounting: int
    under_way: int
    # commit_ts of the oldest row under way, and since when it is; None without one.
    oldest_under_way_ts: int | None
    oldest_since_us: int | None
    # Rows so far.
    received: int
    written: int


class CaptureFacts(NamedTuple):
    """A capture: ``limit_ts`` is up to where it may write, ``barrier_ts`` and ``jobs`` are the owner's next DDLs.

    ``mounting_until_us`` is when its pool of mounters is free.
    """

    address: str
    is_owner: bool
    limit_ts: int
    resolved_ts: int
    checkpoint_ts: int
    ddl_resolved_ts: int
    ddl_streams: tuple[StreamFacts, ...]
    jobs: tuple[tuple[int, str], ...]
    executing_ts: int | None
    tables: tuple[TableFacts, ...]
    mounting_until_us: int = 0


class Reported(NamedTuple):
    """What the owner has heard of a capture last, and the tables that it counts there."""

    capture: str
    checkpoint_ts: int
    resolved_ts: int
    tables: tuple[int, ...] = ()


class Moment(NamedTuple):
    """A sample of a run."""

    at_us: int  # when, µs of virtual time
    # The global watermarks, as etcd has them.
    checkpoint_ts: int
    resolved_ts: int
    captures: tuple[CaptureFacts, ...] = ()  # those that run
    regions: tuple[RegionFacts, ...] = ()  # those that have a leader which runs
    # What the owner has of each capture that it counts; empty where nothing is known of it.
    reported: tuple[Reported, ...] = ()
    down: tuple[str, ...] = ()  # nodes that are down or paused, sorted
    stuck: Reason | None = None  # why the owner cannot count the watermarks, and since when; None where it can
    is_stopped: bool = False  # whether it is of a changefeed that a user has stopped

    @property
    def owner(self) -> CaptureFacts | None:
        return next((c for c in self.captures if c.is_owner), None)


# From states to facts.


def moment_of(
    at_us: int, states: Mapping[str, Any], nodes: Sequence[str], paused: Collection[str] = (), etcd: Any = None
) -> Moment:
    """Give what can be seen of the states of all nodes that run.

    ``at_us``: when, µs of virtual time. ``states``: by address. ``nodes``: names of all nodes there should be.
    ``paused``: addresses of those that run and do nothing. ``etcd``: its state where it is down itself: the last one
    known.
    """
    live = {a: s for a, s in sorted(states.items()) if a not in paused}
    captures = tuple(capture_facts(s) for s in live.values() if isinstance(s, DataState))
    regions = [r for s in live.values() if isinstance(s, TikvStoreState) for r in region_facts(s)]
    owner = next((s for s in live.values() if isinstance(s, DataState) and s.owner is not None), None)
    held: EtcdState | Changefeed | None = states.get(ETCD, etcd)
    there = {node_of(a) for a in live}
    return Moment(
        at_us,
        held.checkpoint_ts if held else 0,
        held.resolved_ts if held else 0,
        captures,
        tuple(sorted(regions, key=lambda r: (r.start, -r.epoch))),
        _reported(owner),
        tuple(sorted({n for n in nodes if n not in there} | set(paused))),
        _stuck(owner),
        isinstance(held, Changefeed) and held.state == STOPPED,
    )


def _reported(owner: DataState | None) -> tuple[Reported, ...]:
    """What the owner counts: captures that have tables."""
    state = owner.owner if owner else None
    if not isinstance(state, DispatcherState):
        return ()
    known = sorted((c, s) for c, s in state.captures.items() if state.tables.count_on(c))
    tables = {c: tuple(sorted(k for k in state.tables.on[c] if isinstance(k, int))) for c, _ in known}
    return tuple(Reported(c, s.checkpoint_ts, s.resolved_ts, tables[c]) for c, s in known)


def _stuck(owner: DataState | None) -> Reason | None:
    """Give why the owner cannot count; what is the slowest is no such reason, and a DDL is a bound of its own."""
    if owner is None:
        return None
    if isinstance(owner.owner, DispatcherState):
        stuck: Reason | None = owner.owner.stuck
        return stuck
    said = owner.stuck
    if said is None or not said.blocks or said.kind == BARRIER:
        return None
    return replace(said, since_us=owner.inner.moved_us)


def capture_facts(state: DataState) -> CaptureFacts:
    """Give what can be seen of a capture.

    ``state``: of the machine :class:`ticdc_lab.simulate.pipeline.capture.machine.DataCapture`. Returns: tables are in
    the scheduler's order.
    """
    duty = state.duty
    return CaptureFacts(
        address=state.address,
        is_owner=state.owner is not None,
        limit_ts=state.resolved_ts,
        resolved_ts=state.resolved_ts,
        checkpoint_ts=state.checkpoint_ts,
        ddl_resolved_ts=state.ddl.resolved_ts,
        ddl_streams=_streams(state.ddl.puller),
        jobs=tuple((ts, job.query) for ts, job in state.ddl.jobs if duty and (ts, job.id) > duty.executed),
        executing_ts=duty.executing[0] if duty and duty.executing else None,
        tables=tuple(_table_facts(state, state.paths[key]) for key in in_turn(state.paths)),
        mounting_until_us=state.mounting_until_us,
    )


def _streams(puller: Puller) -> tuple[StreamFacts, ...]:
    found = [
        StreamFacts(s.region, s.store, s.start, s.end, s.state, s.resolved_ts, s.since_us)
        for s in puller.streams.values()
    ]
    found += [StreamFacts(0, PD, g.start, g.end, ASKING, g.resolved_ts, g.since_us) for g in puller.gaps]
    return tuple(sorted(found, key=lambda s: s.start))


def _table_facts(state: DataState, path: Path) -> TableFacts:
    sink, sorter, streams = path.sink, path.sorter, path.puller.streams
    table = path.key if isinstance(path.key, int) else path.key.table
    executor = state.processor.executor
    marks = executor.marks.get(path.key)
    checkpoint_ts = executor.stalled.get(path.key, max(path.checkpoint_ts, marks.checkpoint_ts if marks else 0))
    info = info_at(state.ddl.schema, table, path.checkpoint_ts) or info_at(state.ddl.schema, table, 1 << 63)
    resolved_ts = max(path.start_ts, min(path.puller.resolved_ts, state.ddl.resolved_ts))
    return TableFacts(
        table=table,
        name=info.quoted if info else "",
        state=path.state,
        resolved_ts=resolved_ts,
        checkpoint_ts=checkpoint_ts,
        streams=_streams(path.puller),
        unmatched=sum(len(s.prewrites) + len(s.early) for s in streams.values()),
        sorting=in_memory(sorter),
        spilled=on_disk(sorter),
        mounting=len(sink.due) - sink.at,
        under_way=sink.n_flying,
        oldest_under_way_ts=sink.flights[0].first_ts if sink.flights else None,
        oldest_since_us=sink.flights[0].since_us if sink.flights else None,
        received=path.puller.received,
        written=sink.written,
    )


def region_facts(state: TikvStoreState) -> tuple[RegionFacts, ...]:
    """Give the regions that a store leads and serves, in key order."""
    facts = []
    for region, peer in state.peers.items():
        data = peer.led.applied if peer.led else None
        if peer.led is not None and data is not None:
            ends = data.start, data.end, data.epoch
            facts.append(RegionFacts(region, state.name, *ends, peer.led.resolved_ts, _held_locks(data)))
    return tuple(sorted(facts, key=lambda f: f.start))


def _held_locks(data: Data) -> tuple[HeldLock, ...]:
    keys: dict[tuple[int, int], list[int]] = {}
    for key, (start_ts, primary, *_) in data.locks.items():
        keys.setdefault((start_ts, primary), []).append(key)
    return tuple(HeldLock(*holder, tuple(sorted(held))) for holder, held in sorted(keys.items()))


def cf_rows(state: TikvStoreState, key: int) -> tuple[CfRow, ...]:
    """Give what the three column families hold of a key on the store that leads its region; else nothing.

    Returns: lock; default, newest first; write, newest first.
    """
    data = next((d for d in led_here(state) if d.start <= key < d.end), None)
    if data is None:
        return ()
    rows: list[CfRow] = []
    lock, newest = data.locks.get(key), data.write.get(key)
    if lock is not None:
        rows.append(CfRow("lock", key, 0, lock[0], lock[2], None))
    found = ([(lock[0], lock[3])] if lock else []) + [(r[1], r[4]) for r in records(newest)]
    values = [(ts, read(data.default, key, ts, stored)) for ts, stored in found]
    shown = sorted(((ts, value) for ts, value in values if value is not None), key=lambda v: v[0], reverse=True)
    rows += [CfRow("default", key, ts, ts, "put", value) for ts, value in shown]
    rows += [CfRow("write", key, r[0], r[1], r[2], None) for r in records(newest)]
    return tuple(rows)
