"""Run the replication pipeline: an upstream, its load, a cluster of captures, downstreams, faults, one seed.

A changefeed alone has etcd, owner and downstream for itself. Several are created, paused, resumed and removed while
clients continue: etcd and captures keep a state for each (:mod:`.changefeeds`), and each has a downstream of its own.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, TypeAlias, Unpack

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.errors import ContractError
from ticdc_lab.machines.clock import ts_of
from ticdc_lab.simulate.faults import Ask, Fault, Join, drawn
from ticdc_lab.simulate.kernel import Auditor, no_cycles
from ticdc_lab.simulate.pipeline.capture import DataCapture
from ticdc_lab.simulate.pipeline.changefeeds.auditor import ChangefeedsAuditor
from ticdc_lab.simulate.pipeline.changefeeds.etcd import (
    Changefeed,
    CreateChangefeed,
    Of,
    SharedEtcd,
    SharedState,
    downstream_of,
    named,
)
from ticdc_lab.simulate.pipeline.changefeeds.server import CaptureServer, CaptureServerState
from ticdc_lab.simulate.pipeline.consumer import CONSUMER, consumer_nodes, partition_node, written_to_partitions
from ticdc_lab.simulate.pipeline.consumer_monitor import ConsumerMonitor
from ticdc_lab.simulate.pipeline.downstream import Downstream, Entry, entries
from ticdc_lab.simulate.pipeline.log import log_events, truth_events
from ticdc_lab.simulate.pipeline.monitor import PipelineMonitor, RowMeasures
from ticdc_lab.simulate.pipeline.settings import (
    AT_MOST_ONCE,
    BY_PROCESSOR,
    BY_ROW,
    CONFLICT,
    MEASURED,
    MQ,
    DownstreamSettings,
    PipelineSettings,
)
from ticdc_lab.simulate.pipeline.sink_messages import DOWNSTREAM
from ticdc_lab.simulate.pipeline.tables import HANDLES, Cell, Change, FinishedJob, Raw, TableInfo, table_of
from ticdc_lab.simulate.pipeline.tidb import PD, TIDB, Tidb
from ticdc_lab.simulate.pipeline.tidb_state import Load, require_rows
from ticdc_lab.simulate.pipeline.tikv import Pd, TikvStore, committed_in, initial_regions
from ticdc_lab.simulate.runs import How, SimulatedRun, faults_in, ran
from ticdc_lab.simulate.scheduler.etcd import Etcd, EtcdState
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, WantPartitions
from ticdc_lab.simulate.scheduler.executor import MAX_TS
from ticdc_lab.simulate.scheduler.monitor import SchedulerMonitor
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings as Scheduler
from ticdc_lab.simulate.scheduler.variants import capture_machine

# The tables of a load over time, from TiKV's content and from nothing that a capture reports.


class History:
    """Which definition each table had when.

    ``tables``: those there were at the beginning. ``jobs``: (finished_ts, job), in any order.
    """

    def __init__(self, tables: Sequence[TableInfo], jobs: Iterable[tuple[int, FinishedJob]]) -> None:
        found: dict[int, list[tuple[int, TableInfo]]] = {t.id: [(0, t)] for t in tables}
        for ts, job in sorted(jobs, key=lambda j: j[0]):
            if job.info is not None:
                found.setdefault(job.info.id, []).append((ts, job.info))
        self._known: Mapping[int, list[tuple[int, TableInfo]]] = found

    def at(self, table: int, commit_ts: int) -> TableInfo:
        """Give the definition that a row of ``commit_ts`` has: a DDL counts for what is committed after it.

        Raises KeyError: there was no such table then.
        """
        versions = self._known[table]
        at = bisect_right(versions, commit_ts - 1, key=lambda v: v[0]) - 1
        if at < 0:
            raise KeyError(table)
        return versions[at][1]


def cells_of(raw: Raw, info: TableInfo) -> tuple[Cell, ...]:
    """Give the cells of a row under a definition: columns added since have their default."""
    if raw.column_ids == info.column_ids:
        return raw.cells
    known = dict(zip(raw.column_ids, raw.cells, strict=True))
    return tuple(known.get(c.id, c.default) for c in info.columns)


# What was committed upstream in a run, from the upstream alone.

Version: TypeAlias = tuple[Any, ...]
"""commit_ts, start_ts, key, operation, value, value before."""


def jobs_of(versions: Iterable[Version]) -> list[tuple[int, FinishedJob]]:
    """Give the DDL jobs among versions, by finished_ts."""
    return sorted(((v[0], v[4]) for v in versions if isinstance(v[4], FinishedJob)), key=lambda j: j[0])


def changes_of(versions: Sequence[Version], tables: Sequence[TableInfo], start_ts: int) -> list[Change]:
    """Give the row changes after ``start_ts`` among versions, with the definitions of their time, in commit order."""
    history = History(tables, jobs_of(versions))
    rows = [v for v in versions if v[0] > start_ts and not isinstance(v[4], FinishedJob)]
    return sorted((_change(history, row) for row in rows), key=lambda c: (c.commit_ts, c.key))


def _change(history: History, row: Version) -> Change:
    commit_ts, start_ts, key, op, value, old_value = row
    info = history.at(table_of(key), commit_ts)
    before = cells_of(old_value, info) if isinstance(old_value, Raw) else None
    after = cells_of(value, info) if isinstance(value, Raw) else None
    if after is None:
        op = "delete"
    else:
        op = "insert" if before is None else "update"
    return Change(commit_ts, start_ts, key, op, info, after, before)


# A run.


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PipelineRun(SimulatedRun[PipelineSettings]):
    """A run of the pipeline, as its changefeed had it; of several, :meth:`of` gives it as one of them had it."""

    load: Load  # what clients did upstream
    # The auditor of the changefeed; of several as yet unnamed: of the upstream they share
    monitor: PipelineMonitor = field(repr=False)
    # Every changefeed that was ever there, as it was asked for; ``start_us`` is known. None of one alone.
    created: tuple[CreateChangefeed, ...] = ()
    changefeed: CreateChangefeed | None = None  # which of several this is

    def of(self, name: str) -> PipelineRun:
        """Give the run as one of several changefeeds had it."""
        auditor = self.kernel.auditor
        assert isinstance(auditor, ChangefeedsAuditor)
        one = next(c for c in self.created if c.id == name)
        return replace(self, changefeed=one, monitor=auditor.each[name])

    @property
    def trace(self) -> pa.Table:
        """The trace; of one of several as if there were no other: its rows and the nodes'."""
        trace = self.recorder.table()
        if self.changefeed is None:
            return trace
        others = [rows for c in self.created if c.id != self.changefeed.id for rows in _rows_of(trace, c.id)]
        kept = trace.filter(pc.invert(reduce(pc.or_, others))) if others else trace
        place = kept.schema.get_field_index("subject")
        prefix = f"^{re.escape(named(self.changefeed.id, ''))}"
        own = pc.replace_substring_regex(kept["subject"], prefix, "")
        return kept.set_column(place, kept.schema.field(place), own)

    @property
    def measures(self) -> RowMeasures:
        """Rows committed, delivered, repeated; DDLs."""
        return self.monitor.measures

    @property
    def n_owed(self) -> int:
        """Row changes that are committed and not downstream."""
        return self.monitor.n_owed

    @property
    def held(self) -> EtcdState | Changefeed | None:
        """What etcd holds of the changefeed at the end, None where it was removed."""
        etcd: Any = self.kernel.states[ETCD]
        found: EtcdState | Changefeed | None = etcd.changefeeds.get(self.changefeed.id) if self.changefeed else etcd
        return found

    @property
    def snapshots(self) -> list[tuple[int, dict[str, Any]]]:
        """The states of all live nodes, periodically; of one of several, a capture's is its part of it."""
        if self.changefeed is None:
            return self.kernel.snapshots
        return [(at_us, _seen(states, self.changefeed.id)) for at_us, states in self.kernel.snapshots]

    @property
    def entries(self) -> list[Entry]:
        """What came downstream, in order."""
        return entries(self.kernel.states[downstream_of(self.changefeed.id) if self.changefeed else DOWNSTREAM])

    @property
    def log(self) -> pa.Table:
        """The same as the events of a change log (:func:`ticdc_lab.simulate.pipeline.log.log_events`)."""
        return log_events(self.entries, _downstream(self.settings, self.changefeed))

    @property
    def start_ts(self) -> int:
        """Where the changefeed started (exclusive)."""
        return self.monitor.start_ts

    @property
    def checkpoint_ts(self) -> int:
        """The global checkpoint, as persisted; 0 of a changefeed that was removed."""
        return self.held.checkpoint_ts if self.held else 0

    @property
    def changes(self) -> list[Change]:
        """What was committed upstream after the start in its tables, in commit order: from TiKV's content."""
        only = self.changefeed.only if self.changefeed else None
        found = changes_of(self._versions(), self.load.tables, self.start_ts)
        return found if only is None else [c for c in found if table_of(c.key) in only]

    @property
    def jobs(self) -> list[tuple[int, FinishedJob]]:
        """The DDL jobs that were done upstream after the start, by finished_ts."""
        return [(ts, job) for ts, job in jobs_of(self._versions()) if ts > self.start_ts]

    @property
    def truth(self) -> pa.Table:
        """The same as events (:func:`ticdc_lab.simulate.pipeline.log.truth_events`)."""
        return truth_events(self.changes, self.jobs)

    def _versions(self) -> list[Version]:
        states, at = self.kernel.states, self.kernel.address
        return list(committed_in(states[at[store]] for store in self.settings.stores()))


def _rows_of(trace: pa.Table, name: str) -> list[pa.ChunkedArray]:
    """Check for each row of a trace whether it is of one changefeed: its subject, its downstream, or its message is."""
    columns = {c: pc.fill_null(trace[c], "") for c in ("subject", "node", "peer", "message", "detail")}
    begins = orjson.dumps({"changefeed": name}).decode().removesuffix("}")
    return [
        pc.starts_with(columns["subject"], named(name, "")),
        pc.equal(columns["node"], downstream_of(name)),
        pc.equal(columns["peer"], downstream_of(name)),
        pc.and_(pc.equal(columns["message"], Of.__name__), pc.starts_with(columns["detail"], f"{begins},")),
    ]


def _seen(states: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for address, state in states.items():
        if isinstance(state, CaptureServerState):
            if name in state.running:
                found[address] = state.running[name].state
        elif isinstance(state, SharedState):
            found[address] = state.changefeeds.get(name)  # None of one that is not there, or not any more
        else:
            found[address] = state
    return found


def simulate(
    settings: PipelineSettings, load: Load, changefeeds: Sequence[CreateChangefeed] | None = None, *,
    until_us: int = 30_000_000, **how: Unpack[How],
) -> PipelineRun:  # fmt: skip
    """Run an upstream and a changefeed of it, or several.

    Parameters
    ----------
    settings
        Upstream, captures, and the downstream of each changefeed.
    load
        What clients do upstream.
    changefeeds
        Of several those that are there from the beginning; more come by ``Ask(at_us, "etcd", CreateChangefeed(..))``
        among the faults, and :class:`.PauseChangefeed`, :class:`.ResumeChangefeed`, :class:`.RemoveChangefeed`
        likewise. None for one changefeed of all tables, which has the cluster for itself.
    until_us, how
        When the run ends, µs of virtual time, and :class:`ticdc_lab.simulate.runs.How`.

    Raises
    ------
    ContractError
        The load deletes a row that is not there. Of several changefeeds two have one name, a filter lets no table
        through, or the downstream has a consumer.

    Examples
    --------
    >>> from ticdc_lab.simulate.pipeline.tryout import shop
    >>> run = simulate(PipelineSettings(), shop(until_us=500_000), until_us=3_000_000)
    >>> run.violation is None, run.measures.delivered == run.measures.committed
    (True, True)
    >>> several = [CreateChangefeed("all"), CreateChangefeed("orders", (101,))]
    >>> run = simulate(PipelineSettings(), shop(until_us=500_000), several, until_us=3_000_000)
    >>> run.violation is None, run.of("all").n_owed, run.of("orders").n_owed
    (True, 0, 0)
    """
    require_rows(load)
    created = () if changefeeds is None else _created(changefeeds, how.get("faults", ()), settings, load)
    scheduler = replace(settings.scheduler, tables=tuple(sorted(t.id for t in load.tables)), pace=MEASURED)
    captures, stores = scheduler.nodes(), settings.stores()
    faults = faults_in(how, lambda chaos, seed: drawn(chaos, [*captures, *stores], ETCD, seed))
    late = [Join(settings.created_us, node) for node in (ETCD, *captures) if settings.created_us]
    asked = [f.command for f in faults if isinstance(f, Ask)]
    stops_at_violation = how.get("stops_at_violation", True)
    partitions = max([settings.downstream.partitions, *(c.partitions for c in asked if isinstance(c, WantPartitions))])
    machines = upstream(settings, load)
    roles = {node: node for node in (TIDB, PD, ETCD, DOWNSTREAM, CONSUMER)} | dict.fromkeys(captures, "capture")
    roles |= dict.fromkeys(map(partition_node, range(partitions)), "partition") | dict.fromkeys(stores, "tikv")
    monitored = partial(_monitor, settings, scheduler, machines[TIDB].items, stops_at_violation)
    free_ts = MAX_TS if settings.capture.rule == MQ else None
    if changefeeds is None:
        start_ts = ts_of(settings.created_us) if settings.start_ts is None else settings.start_ts
        machines |= _alone(settings, scheduler, load, start_ts, free_ts, partitions)
        monitor = monitored(roles, start_ts)
        auditor: Auditor = monitor
    else:
        machines |= _several(settings, scheduler, load, changefeeds, created, free_ts)
        downstreams = [downstream_of(c.id) for c in created]
        monitor = monitored(roles | dict.fromkeys(downstreams, PD), ts_of(created[0].start_us or 0), created[0])
        roles |= dict.fromkeys(downstreams, DOWNSTREAM)
        each = {c.id: monitored(roles, ts_of(c.start_us or 0), c) for c in created}
        silent_us = 2 * scheduler.ttl_us + scheduler.stop_lag_us
        auditor = ChangefeedsAuditor(monitor, each, silent_us, stops_at_violation)
    with no_cycles():
        return ran(
            PipelineRun, partial(simulate, settings, load, changefeeds), machines, auditor, (*late, *faults), until_us,
            how, title="pipeline" if changefeeds is None else "changefeeds", settings=settings, faults=faults,
            monitor=monitor, load=load, created=created,
        )  # fmt: skip


def upstream(settings: PipelineSettings, load: Load) -> dict[str, Any]:
    """Give the machines of clients, PD and stores, by name of node."""
    stores = settings.stores()
    # regions are divided by up to where the handles of the load go
    handles = 1 + max([m[0] & HANDLES for txn in load.transactions for m in txn[2]], default=0)
    regions = initial_regions(settings.tikv, [t.id for t in load.tables], handles)
    machines: dict[str, Any] = {TIDB: Tidb(load), PD: Pd(settings.tikv, stores, regions)}
    return machines | {store: TikvStore(settings.tikv, stores, regions) for store in stores}


def _alone(
    settings: PipelineSettings, scheduler: Scheduler, load: Load, start_ts: int, free_ts: int | None, partitions: int
) -> dict[str, Any]:
    own = settings.downstream
    capture = replace(settings.capture, sink=own.kind, by_conflict=own.dispatcher == CONFLICT)
    machines: dict[str, Any] = {ETCD: Etcd(scheduler.keys(), start_ts, scheduler.ttl_us, resolved_ts=free_ts)}
    for node in scheduler.nodes():
        machines[node] = DataCapture(capture_machine(scheduler, node), capture, load.tables, start_ts)
    consumer = consumer_nodes(own, partitions)
    route = written_to_partitions if consumer else None
    return machines | {DOWNSTREAM: Downstream(own, settings.capture.semantics, route)} | consumer


def _several(
    settings: PipelineSettings, scheduler: Scheduler, load: Load, first: Sequence[CreateChangefeed],
    created: Sequence[CreateChangefeed], free_ts: int | None,
) -> dict[str, Any]:  # fmt: skip
    sessions, sink = Etcd(frozenset(), 0, scheduler.ttl_us), settings.downstream.kind
    machines: dict[str, Any] = {
        ETCD: SharedEtcd(sessions, scheduler.keys(), tuple(created[: len(first)]), free_ts, sink)
    }
    capture = replace(settings.capture, by_conflict=settings.downstream.dispatcher == CONFLICT)
    for node in scheduler.nodes():
        machines[node] = CaptureServer(capture_machine(scheduler, node), capture, load.tables)
    for one in created:
        machines[downstream_of(one.id)] = Downstream(_downstream(settings, one), settings.capture.semantics)
    return machines


def _created(
    changefeeds: Sequence[CreateChangefeed], faults: Sequence[Fault], settings: PipelineSettings, load: Load
) -> tuple[CreateChangefeed, ...]:
    """Give every changefeed that will ever be there, with the ts at which it starts."""
    later = [
        replace(f.command, start_us=f.at_us if f.command.start_us is None else f.command.start_us)
        for f in faults
        if isinstance(f, Ask) and isinstance(f.command, CreateChangefeed)
    ]
    found = [replace(c, start_us=c.start_us or 0) for c in changefeeds] + later
    twice = [name for name, n in Counter(c.id for c in found).items() if n > 1]
    if twice or not found:
        raise ContractError(
            f"Two changefeeds are called {twice[0]}." if twice else "There is no changefeed.",
            hint="Give each a `name` of its own; resume a paused one with `resume_changefeed`.",
        )
    if settings.downstream.consumer is not None:
        raise ContractError("A consumer reads the topic of one changefeed.", hint="Leave `consumer` out.")
    known = {t.id for t in load.tables}
    for create in found:
        if create.only is not None and not known.intersection(create.only):
            raise ContractError(f"Changefeed {create.id} replicates nothing.", hint="Name a table of `load.tables`.")
    return tuple(found)


def _downstream(settings: PipelineSettings, one: CreateChangefeed | None) -> DownstreamSettings:
    kind = one.kind if one else None
    return replace(settings.downstream, kind=kind) if kind else settings.downstream


def _monitor(
    settings: PipelineSettings, scheduler: Scheduler, items: Any, stops: bool, roles: Mapping[str, str], start_ts: int,
    one: CreateChangefeed | None = None,
) -> PipelineMonitor:  # fmt: skip
    """Give the auditor of a changefeed; of several, they stop with :class:`.ChangefeedsAuditor`."""
    own, only, mode = settings.downstream, one.only if one else None, settings.downstream.consumer
    by_table = mode == BY_ROW and own.dispatcher == CONFLICT
    consumer = mode and ConsumerMonitor(mode, settings.capture.semantics == AT_MOST_ONCE, by_table)
    tables, stops = scheduler.keys() if only is None else scheduler.keys() & only, stops or one is not None
    return PipelineMonitor(
        SchedulerMonitor(start_ts, tables, stops), items, roles, start_ts, settings.capture.semantics,
        settings.capture.rule, settings.capture.order == BY_PROCESSOR, _downstream(settings, one).whole, stops,
        consumer=consumer or None, only=only,
    )  # fmt: skip
