"""Run the replication pipeline: an upstream, its load, a cluster of captures, a downstream, faults, one seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ticdc_lab.simulate.cycles import no_cycles
from ticdc_lab.simulate.faults import Chaos, Fault, Join, Restart, drawn, replanned
from ticdc_lab.simulate.kernel import End, Kernel, Violation
from ticdc_lab.simulate.network import Network
from ticdc_lab.simulate.pipeline.capture import DataCapture
from ticdc_lab.simulate.pipeline.capture.mutants import MUTANTS
from ticdc_lab.simulate.pipeline.downstream import Downstream, Entry, entries
from ticdc_lab.simulate.pipeline.keys import handle_of
from ticdc_lab.simulate.pipeline.load import Load
from ticdc_lab.simulate.pipeline.log import log_events, truth_events
from ticdc_lab.simulate.pipeline.monitor import Measures, PipelineMonitor
from ticdc_lab.simulate.pipeline.settings import BY_PROCESSOR, MEASURED, MQ, MYSQL, Settings
from ticdc_lab.simulate.pipeline.sink_messages import DOWNSTREAM
from ticdc_lab.simulate.pipeline.tables import Change, Job
from ticdc_lab.simulate.pipeline.tidb import PD, TIDB, Tidb
from ticdc_lab.simulate.pipeline.tikv import Pd, Store, committed_in, initial_regions
from ticdc_lab.simulate.pipeline.truth import Version, changes_of, jobs_of, replayed
from ticdc_lab.simulate.recorder import EVENTS, Recorder
from ticdc_lab.simulate.scheduler.capture import Capture
from ticdc_lab.simulate.scheduler.clock import ts_of
from ticdc_lab.simulate.scheduler.etcd import Etcd
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.executor import MAX_TS
from ticdc_lab.simulate.scheduler.monitor import Monitor
from ticdc_lab.simulate.scheduler.variants import VARIANTS
from ticdc_lab.simulate.scheduler.variants import Settings as Scheduler

QUIET = Network()


@dataclass(frozen=True, eq=False, slots=True)
class Run:
    """What happened.

    Attributes
    ----------
    settings, load, faults, seed, until_us, network, also
        What gives this run again.
    end
        How it ended.
    measures
        Rows committed, delivered, repeated; DDLs.
    snapshots
        (time_us, state by address) of every ``sample_us``; empty where none were asked for.
    """

    settings: Settings
    load: Load
    faults: tuple[Fault, ...]
    seed: int
    until_us: int
    network: Network
    end: End
    measures: Measures
    kernel: Kernel = field(repr=False)
    monitor: PipelineMonitor = field(repr=False)
    level: str = EVENTS
    also: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def violation(self) -> Violation | None:
        """The invariant that does not hold, if one does not."""
        return self.end.violation

    @property
    def trace(self) -> pa.Table:
        """The trace (:data:`ticdc_lab.simulate.trace.TRACE`)."""
        return self.kernel.recorder.table()

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
    def jobs(self) -> list[tuple[int, Job]]:
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

    def again(self, at_us: int, faults: Sequence[Fault]) -> Run:
        """Run once more with other faults from ``at_us`` on: the same world up to there.

        Raises
        ------
        ValueError
            A new fault lies before ``at_us``.
        """
        planned = replanned(self.faults, at_us, faults)
        return simulate(
            self.settings, self.load, faults=planned, seed=self.seed, until_us=self.until_us,
            network=self.network, level=self.level, **self.also,
        )  # fmt: skip


def simulate(
    settings: Settings,
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
    bugs: Mapping[str, Any] | None = None,
    stops_at_violation: bool = True,
    sample_us: int | None = None,
    begun: Callable[[Kernel], None] | None = None,
) -> Run:
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
    seed
        Draws delays, losses and the faults of ``chaos``.
    until_us
        When the run ends, µs of virtual time.
    network
        How messages travel.
    level, recorder, step_limit, name, stops_at_violation
        As for :func:`ticdc_lab.simulate.scheduler.run.simulate`.
    bugs
        Planted ones, by field of the store's, the downstream's or the scheduler's machines, or of
        :data:`ticdc_lab.simulate.pipeline.capture.mutants.MUTANTS`.
    sample_us
        How often the states of all nodes are kept for pictures; None for never.
    begun
        Is given the world before anything happens in it: to look into it from the recorder.

    Returns
    -------
    Run
        The same arguments give the same run, byte for byte.

    Examples
    --------
    >>> from ticdc_lab.simulate.pipeline.tryout import shop
    >>> run = simulate(Settings(), shop(until_us=500_000), until_us=3_000_000)
    >>> run.violation is None, run.measures.delivered == run.measures.committed
    (True, True)
    """
    with no_cycles():
        return _simulate(
            settings, load, faults, chaos, seed, until_us, network, level, recorder, step_limit, name, dict(bugs or {}),
            stops_at_violation, sample_us, begun,
        )  # fmt: skip


def _simulate(
    settings: Settings, load: Load, faults: Sequence[Fault], chaos: Chaos | None, seed: int, until_us: int,
    network: Network, level: str, recorder: Recorder | None, step_limit: int, name: str, planted: dict[str, Any],
    stops_at_violation: bool, sample_us: int | None, begun: Callable[[Kernel], None] | None,
) -> Run:  # fmt: skip
    scheduler = replace(settings.scheduler, tables=tuple(sorted(t.id for t in load.tables)), pace=MEASURED)
    captures, stores = scheduler.nodes(), settings.stores()
    start_ts = ts_of(settings.created_us) if settings.start_ts is None else settings.start_ts
    late = [Join(settings.created_us, node) for node in (ETCD, *captures) if settings.created_us]
    all_faults = (*late, *faults, *(_drawn(chaos, captures, stores, seed) if chaos else ()))
    machines = _machines(settings, scheduler, load, start_ts, planted)
    monitor = PipelineMonitor(
        Monitor(start_ts, scheduler.keys(), stops_at_violation), machines[TIDB].items, _roles(captures, stores),
        start_ts, settings.capture.semantics, settings.capture.rule, settings.capture.order == BY_PROCESSOR,
        settings.downstream.kind == MYSQL, stops_at_violation, sample_us,
    )  # fmt: skip
    recorder = recorder or Recorder(name or f"pipeline seed {seed}", level)
    kernel = Kernel(
        machines, network=network, faults=all_faults, seed=seed, auditor=monitor, recorder=recorder,
        step_limit=step_limit,
    )  # fmt: skip
    if begun is not None:
        begun(kernel)
    end = kernel.run(until_us)
    also = {
        "step_limit": step_limit, "name": recorder.run, "bugs": planted, "stops_at_violation": stops_at_violation,
        "sample_us": sample_us,
    }  # fmt: skip
    kept = tuple(f for f in all_faults if f not in late)
    return Run(settings, load, kept, seed, until_us, network, end, monitor.measures, kernel, monitor, level, also)


def _machines(
    settings: Settings, scheduler: Scheduler, load: Load, start_ts: int, planted: Mapping[str, Any]
) -> dict[str, Any]:
    stores = settings.stores()
    regions = initial_regions(settings.tikv, [t.id for t in load.tables], _handles(load))
    of_store = {k: v for k, v in planted.items() if k in Store.__dataclass_fields__}
    of_capture = frozenset(name for name in planted if name in MUTANTS)
    machines: dict[str, Any] = {TIDB: Tidb(load), PD: Pd(settings.tikv, stores, regions)}
    for store in stores:
        machines[store] = Store(settings.tikv, stores, regions, **of_store)
    free_ts = MAX_TS if settings.capture.rule == MQ else None
    machines[ETCD] = Etcd(scheduler.keys(), start_ts, scheduler.ttl_us, resolved_ts=free_ts)
    capture = replace(settings.capture, sink=settings.downstream.kind)
    for node in scheduler.nodes():
        own = replace(scheduler, version=scheduler.versions.get(node, scheduler.version))
        inner = Capture(
            VARIANTS[own.variant](own, **planted), own.version, own.tick_us, own.poll_us, own.ttl_us, own.margin_us,
            own.stop_lag_us, own.restart_us,
        )  # fmt: skip
        machines[node] = DataCapture(inner, capture, load.tables, start_ts, of_capture)
    forgets = bool(planted.get("forgets_places"))
    machines[DOWNSTREAM] = Downstream(settings.downstream, settings.capture.semantics, forgets)
    return machines


def _drawn(chaos: Chaos, captures: Sequence[str], stores: Sequence[str], seed: int) -> list[Fault]:
    """Draw faults; a store comes back with its disk, since a majority that lost theirs is no upstream any more."""
    found = drawn(chaos, [*captures, *stores], ETCD, seed)
    return [f._replace(keep_state=True) if isinstance(f, Restart) and f.node in stores else f for f in found]


def _handles(load: Load) -> int:
    """Give up to where the handles of the load go, by which regions are divided."""
    return 1 + max((handle_of(m.key) for t in load.transactions for m in t.mutations), default=0)


def _roles(captures: Sequence[str], stores: Sequence[str]) -> dict[str, str]:
    roles = {node: node for node in (TIDB, PD, ETCD, DOWNSTREAM)}
    return roles | dict.fromkeys(captures, "capture") | dict.fromkeys(stores, "tikv")
