"""Run the table scheduler: a cluster, its load, its faults, one seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Unpack

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.simulate.faults import Ask, Crash, Fault, Part, Pause, Restart, drawn
from ticdc_lab.simulate.runs import How, SimulatedRun, faults_in, ran
from ticdc_lab.simulate.scheduler.etcd import Etcd
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, Ddl, Expire, TwoOwners
from ticdc_lab.simulate.scheduler.monitor import SchedulerMonitor, WriterMeasures
from ticdc_lab.simulate.scheduler.roles import Restart as RestartProcessor
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings, capture_machine


class SchedulerRun(SimulatedRun[SchedulerSettings]):
    """A run of the table scheduler."""

    __slots__ = ()

    @property
    def measures(self) -> WriterMeasures:
        """Overlap, gap, doubled changes, starts."""
        found: WriterMeasures = self.monitor.until(self.end.time_us)
        return found


def simulate(settings: SchedulerSettings, *, until_us: int = 60_000_000, **how: Unpack[How]) -> SchedulerRun:
    """Run a cluster until a moment of virtual time; ``how`` is in :class:`ticdc_lab.simulate.runs.How`.

    Examples
    --------
    >>> run = simulate(SchedulerSettings(captures=2, tables=4), until_us=5_000_000)
    >>> run.violation is None, run.measures.overlap_us
    (True, 0)
    >>> run.trace.equals(simulate(SchedulerSettings(captures=2, tables=4), until_us=5_000_000).trace)
    True
    """
    nodes, keys, start_ts = settings.nodes(), settings.keys(), ts_of(0)
    faults = faults_in(how, lambda chaos, seed: drawn(chaos, nodes, ETCD, seed))
    monitor = SchedulerMonitor(start_ts, keys, how.get("stops_at_violation", True), settings.coordinator)
    machines: dict[str, Any] = {ETCD: Etcd(keys, start_ts, settings.ttl_us)}
    machines |= {node: capture_machine(settings, node) for node in nodes}
    again = partial(simulate, settings)
    return ran(
        SchedulerRun, again, machines, monitor, faults, until_us, how, title=settings.variant, settings=settings
    )  # fmt: skip


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
