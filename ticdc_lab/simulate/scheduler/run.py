"""Run the table scheduler: a cluster, its load, its faults, one seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.simulate.faults import Chaos, Fault, drawn
from ticdc_lab.simulate.kernel import Kernel
from ticdc_lab.simulate.network import Network
from ticdc_lab.simulate.runs import QUIET, SimulatedRun, ran
from ticdc_lab.simulate.scheduler.etcd import Etcd
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.monitor import SchedulerMonitor, WriterMeasures
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings, capture_machine
from ticdc_lab.simulate.trace import EVENTS, Recorder


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SchedulerRun(SimulatedRun[SchedulerSettings]):
    """A run of the table scheduler; ``measures`` are overlap, gap, doubled changes, starts."""

    measures: WriterMeasures


def simulate(
    settings: SchedulerSettings,
    *,
    faults: Sequence[Fault] = (),
    chaos: Chaos | None = None,
    seed: int = 0,
    until_us: int = 60_000_000,
    network: Network = QUIET,
    level: str = EVENTS,
    recorder: Recorder | None = None,
    step_limit: int = 50_000_000,
    name: str = "",
    stops_at_violation: bool = True,
    begun: Callable[[Kernel], None] | None = None,
) -> SchedulerRun:
    """Run a cluster.

    Parameters
    ----------
    settings
        The cluster.
    faults
        What goes wrong and what users do.
    chaos
        Faults that the seed draws besides.
    seed
        Draws delays, losses and the faults of ``chaos``.
    until_us
        When the run ends, µs of virtual time.
    network
        How messages travel.
    level
        How much the trace holds (:mod:`ticdc_lab.simulate.trace`).
    recorder
        Takes the trace; one of this level where it is left out.
    step_limit
        See :class:`ticdc_lab.simulate.kernel.Kernel`.
    name
        Of the run in its trace; variant and seed where it is left out.
    stops_at_violation
        Whether the run ends there.
    begun
        Is given the world before anything happens in it.

    Returns
    -------
    Run
        The same arguments give the same run, byte for byte.

    Examples
    --------
    >>> run = simulate(SchedulerSettings(captures=2, tables=4), until_us=5_000_000)
    >>> run.violation is None, run.measures.overlap_us
    (True, 0)
    >>> run.trace.equals(simulate(SchedulerSettings(captures=2, tables=4), until_us=5_000_000).trace)
    True
    """
    nodes, keys, start_ts = settings.nodes(), settings.keys(), ts_of(0)
    all_faults = (*faults, *(drawn(chaos, nodes, ETCD, seed) if chaos else ()))
    monitor = SchedulerMonitor(start_ts, keys, stops_at_violation, settings.coordinator)
    recorder = recorder or Recorder(name or f"{settings.variant} seed {seed}", level)
    machines: dict[str, Any] = {ETCD: Etcd(keys, start_ts, settings.ttl_us)}
    machines |= {node: capture_machine(settings, node) for node in nodes}
    world = ran(
        machines, monitor, recorder, faults=all_faults, seed=seed, until_us=until_us, network=network,
        step_limit=step_limit, begun=begun,
    )  # fmt: skip
    again = partial(simulate, settings, step_limit=step_limit, name=recorder.run, stops_at_violation=stops_at_violation)
    return SchedulerRun(**world, settings=settings, simulate=again, measures=monitor.measures)
