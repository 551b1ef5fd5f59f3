"""Run the replication pipeline: an upstream, its load, a cluster of captures, a downstream, faults, one seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.simulate.faults import Ask, Chaos, Fault, Join, drawn
from ticdc_lab.simulate.kernel import Kernel, no_cycles
from ticdc_lab.simulate.network import Network
from ticdc_lab.simulate.pipeline.capture import DataCapture
from ticdc_lab.simulate.pipeline.consumer import CONSUMER, consumer_nodes, partition_node, written_to_partitions
from ticdc_lab.simulate.pipeline.consumer_monitor import ConsumerMonitor
from ticdc_lab.simulate.pipeline.downstream import Downstream, Entry, entries
from ticdc_lab.simulate.pipeline.keys import HANDLES
from ticdc_lab.simulate.pipeline.load import Load, require_rows
from ticdc_lab.simulate.pipeline.log import log_events, truth_events
from ticdc_lab.simulate.pipeline.monitor import PipelineMonitor, RowMeasures
from ticdc_lab.simulate.pipeline.settings import (
    AT_MOST_ONCE,
    BY_PROCESSOR,
    BY_ROW,
    CONFLICT,
    MEASURED,
    MQ,
    PipelineSettings,
)
from ticdc_lab.simulate.pipeline.sink_messages import DOWNSTREAM
from ticdc_lab.simulate.pipeline.tables import Change, FinishedJob
from ticdc_lab.simulate.pipeline.tidb import PD, TIDB, Tidb
from ticdc_lab.simulate.pipeline.tikv import Pd, TikvStore, committed_in, initial_regions
from ticdc_lab.simulate.pipeline.truth import Version, changes_of, jobs_of, replayed
from ticdc_lab.simulate.runs import QUIET, SimulatedRun, ran
from ticdc_lab.simulate.scheduler.etcd import Etcd
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, WantPartitions
from ticdc_lab.simulate.scheduler.executor import MAX_TS
from ticdc_lab.simulate.scheduler.monitor import SchedulerMonitor
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings as Scheduler
from ticdc_lab.simulate.scheduler.variants import capture_machine
from ticdc_lab.simulate.trace import EVENTS, Recorder


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PipelineRun(SimulatedRun[PipelineSettings]):
    """A run of the pipeline.

    Attributes
    ----------
    load
        What clients did upstream.
    measures
        Rows committed, delivered, repeated; DDLs.
    """

    load: Load
    measures: RowMeasures
    monitor: PipelineMonitor = field(repr=False)

    @property
    def snapshots(self) -> list[tuple[int, dict[str, Any]]]:
        """The states of all live nodes, now and then."""
        return self.monitor.snapshots

    @property
    def entries(self) -> list[Entry]:
        """What came downstream, in order."""
        return entries(self.kernel.states[DOWNSTREAM])

    @property
    def log(self) -> pa.Table:
        """The same as the events of a change log (:func:`ticdc_lab.simulate.pipeline.log.log_events`)."""
        return log_events(self.entries, self.settings.downstream)

    @property
    def start_ts(self) -> int:
        """Where the changefeed started (exclusive)."""
        return self.monitor.start_ts

    @property
    def checkpoint_ts(self) -> int:
        """The global checkpoint, as persisted."""
        found: int = self.kernel.states[ETCD].checkpoint_ts
        return found

    @property
    def changes(self) -> list[Change]:
        """What was committed upstream after the start, in commit order: told from what TiKV holds.

        Where GC takes old versions from it (``keeps_versions``), from what clients committed.
        """
        return changes_of(self._versions(), self.load.tables, self.start_ts)

    @property
    def jobs(self) -> list[tuple[int, FinishedJob]]:
        """The DDL jobs that were done upstream after the start, by finished_ts."""
        return [(ts, job) for ts, job in jobs_of(self._versions()) if ts > self.start_ts]

    @property
    def truth(self) -> pa.Table:
        """The same as events (:func:`ticdc_lab.simulate.pipeline.log.truth_events`)."""
        return truth_events(self.changes, self.jobs)

    def _versions(self) -> list[Version]:
        if self.settings.tikv.keeps_versions is not None:
            return replayed(self.kernel.states[TIDB], self.monitor.decided, self.monitor.items)
        states, at = self.kernel.states, self.kernel.address
        return list(committed_in(states[at[store]] for store in self.settings.stores()))


def simulate(
    settings: PipelineSettings,
    load: Load,
    *,
    faults: Sequence[Fault] = (),
    chaos: Chaos | None = None,
    seed: int = 0,
    until_us: int = 30_000_000,
    network: Network = QUIET,
    level: str = EVENTS,
    recorder: Recorder | None = None,
    step_limit: int = 50_000_000,
    name: str = "",
    stops_at_violation: bool = True,
    sample_us: int | None = None,
    begun: Callable[[Kernel], None] | None = None,
) -> PipelineRun:
    """Run an upstream and a changefeed of it.

    Parameters
    ----------
    settings
        Upstream, captures, downstream.
    load
        What clients do upstream.
    faults
        What goes wrong and what users do.
    chaos
        Faults that the seed draws besides, of captures and stores.
    seed, until_us, network, level, recorder, step_limit, name, stops_at_violation, begun
        As for :func:`ticdc_lab.simulate.scheduler.run.simulate`.
    sample_us
        How often the states of all nodes are kept for pictures; None for never.

    Returns
    -------
    Run
        The same arguments give the same run, byte for byte.

    Raises
    ------
    ContractError
        The load deletes a row that is not there.

    Examples
    --------
    >>> from ticdc_lab.simulate.pipeline.tryout import shop
    >>> run = simulate(PipelineSettings(), shop(until_us=500_000), until_us=3_000_000)
    >>> run.violation is None, run.measures.delivered == run.measures.committed
    (True, True)
    """
    require_rows(load)
    scheduler = replace(settings.scheduler, tables=tuple(sorted(t.id for t in load.tables)), pace=MEASURED)
    captures, stores = scheduler.nodes(), settings.stores()
    start_ts = ts_of(settings.created_us) if settings.start_ts is None else settings.start_ts
    late = [Join(settings.created_us, node) for node in (ETCD, *captures) if settings.created_us]
    all_faults = (*late, *faults, *(drawn(chaos, [*captures, *stores], ETCD, seed) if chaos else ()))
    asked = [f.command for f in all_faults if isinstance(f, Ask)]
    partitions = max([settings.downstream.partitions, *(c.partitions for c in asked if isinstance(c, WantPartitions))])
    machines = _machines(settings, scheduler, load, start_ts, partitions)
    monitor = PipelineMonitor(
        SchedulerMonitor(start_ts, scheduler.keys(), stops_at_violation), machines[TIDB].items,
        _roles(captures, stores, partitions), start_ts, settings.capture.semantics, settings.capture.rule,
        settings.capture.order == BY_PROCESSOR, settings.downstream.whole, stops_at_violation, sample_us,
        consumer=_watched(settings),
    )  # fmt: skip
    recorder = recorder or Recorder(name or f"pipeline seed {seed}", level)
    with no_cycles():
        world = ran(
            machines, monitor, recorder, faults=all_faults, seed=seed, until_us=until_us, network=network,
            step_limit=step_limit, begun=begun,
        )  # fmt: skip
    world["faults"] = tuple(f for f in all_faults if f not in late)
    again = partial(
        simulate, settings, load, step_limit=step_limit, name=recorder.run, stops_at_violation=stops_at_violation,
        sample_us=sample_us,
    )  # fmt: skip
    return PipelineRun(
        **world, settings=settings, simulate=again, load=load, measures=monitor.measures, monitor=monitor
    )


def _machines(
    settings: PipelineSettings, scheduler: Scheduler, load: Load, start_ts: int, partitions: int
) -> dict[str, Any]:
    machines = upstream(settings, load)
    free_ts = MAX_TS if settings.capture.rule == MQ else None
    machines[ETCD] = Etcd(scheduler.keys(), start_ts, scheduler.ttl_us, resolved_ts=free_ts)
    own = settings.downstream
    capture = replace(settings.capture, sink=own.kind, by_conflict=own.dispatcher == CONFLICT)
    for node in scheduler.nodes():
        machines[node] = DataCapture(capture_machine(scheduler, node), capture, load.tables, start_ts)
    consumer = consumer_nodes(settings.downstream, partitions)
    route = written_to_partitions if consumer else None
    machines[DOWNSTREAM] = Downstream(settings.downstream, settings.capture.semantics, route)
    return machines | consumer


def upstream(settings: PipelineSettings, load: Load) -> dict[str, Any]:
    """Give the machines of clients, PD and stores, by name of node."""
    stores = settings.stores()
    regions = initial_regions(settings.tikv, [t.id for t in load.tables], _handles(load))
    machines: dict[str, Any] = {TIDB: Tidb(load), PD: Pd(settings.tikv, stores, regions)}
    return machines | {store: TikvStore(settings.tikv, stores, regions) for store in stores}


def _handles(load: Load) -> int:
    """Give up to where the handles of the load go, by which regions are divided."""
    return 1 + max([m[0] & HANDLES for txn in load.transactions for m in txn[2]], default=0)


def _watched(settings: PipelineSettings) -> ConsumerMonitor | None:
    mode = settings.downstream.consumer
    by_table = mode == BY_ROW and settings.downstream.dispatcher == CONFLICT
    return None if mode is None else ConsumerMonitor(mode, settings.capture.semantics == AT_MOST_ONCE, by_table)


def _roles(captures: Sequence[str], stores: Sequence[str], partitions: int) -> dict[str, str]:
    roles = {node: node for node in (TIDB, PD, ETCD, DOWNSTREAM, CONSUMER)}
    roles |= dict.fromkeys(map(partition_node, range(partitions)), "partition")
    return roles | dict.fromkeys(captures, "capture") | dict.fromkeys(stores, "tikv")
