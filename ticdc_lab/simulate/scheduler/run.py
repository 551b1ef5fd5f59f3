"""Run the table scheduler: a cluster, its load, its faults, one seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.simulate.faults import Ask, Chaos, Crash, Fault, Part, Pause, Restart, drawn
from ticdc_lab.simulate.kernel import Kernel
from ticdc_lab.simulate.network import Network
from ticdc_lab.simulate.runs import QUIET, SimulatedRun, ran
from ticdc_lab.simulate.scheduler.etcd import Etcd
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, Ddl, Expire, TwoOwners
from ticdc_lab.simulate.scheduler.monitor import SchedulerMonitor, WriterMeasures
from ticdc_lab.simulate.scheduler.roles import Restart as RestartProcessor
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


# A cluster to try out in a panel: what may be assumed of it, and which faults can be injected at a moment.


STOPS, ONE_OWNER = ASSUMPTIONS = "a capture stops writing when its session is lost", "etcd never has two owners"
"""The design's ("Assumptions"); each can be switched off."""

_LATE_US = 4_000_000
"""How long a capture without a session writes on where it does not stop at once."""

_BACK_US = 5_000_000


def tried(until_s: float) -> Callable[[str, int, int, int, tuple[str, ...]], SchedulerRun]:
    """Give what a panel calls: variant, captures, tables, seed, assumptions that hold, to a run of ``until_s``."""

    def ran(variant: str, captures: int, tables: int, seed: int, assumptions: tuple[str, ...]) -> SchedulerRun:
        late_us = 0 if STOPS in assumptions else _LATE_US
        settings = SchedulerSettings(variant=variant, captures=captures, tables=tables, stop_lag_us=late_us)
        rivals = () if ONE_OWNER in assumptions else (Ask(1_000_000, ETCD, TwoOwners()),)
        return simulate(
            settings, faults=rivals, seed=seed, until_us=round(1e6 * until_s), stops_at_violation=False
        )  # fmt: skip

    return ran


FAULTS: Mapping[str, Callable[[int, str], Sequence[Fault]]] = MappingProxyType(
    {
        "crash": lambda at_us, node: [Crash(at_us, node)],
        "crash for 5 s": lambda at_us, node: [Crash(at_us, node), Restart(at_us + _BACK_US, node)],
        "restart of the processor": lambda at_us, node: [Ask(at_us, node, RestartProcessor())],
        "pause for 6 s": lambda at_us, node: [Pause(at_us, node, 6_000_000)],
        "cut off from etcd": lambda at_us, node: [Part(at_us, node, ETCD)],
        "session expires": lambda at_us, node: [Ask(at_us, ETCD, Expire(node))],
        "a DDL drops table 1": lambda at_us, node: [Ask(at_us, ETCD, Ddl(drop=(1,)))],
    }
)
"""What can be injected: moment (µs) and capture to faults."""
