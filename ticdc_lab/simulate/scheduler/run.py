"""Run the table scheduler: a cluster, its load, its faults, one seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ticdc_lab.simulate.faults import Chaos, Fault, drawn, replanned
from ticdc_lab.simulate.kernel import End, Kernel, Violation
from ticdc_lab.simulate.network import Network
from ticdc_lab.simulate.recorder import EVENTS, Recorder
from ticdc_lab.simulate.scheduler.capture import Capture
from ticdc_lab.simulate.scheduler.capture_state import Variant
from ticdc_lab.simulate.scheduler.clock import ts_of
from ticdc_lab.simulate.scheduler.etcd import Etcd
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.monitor import Measures, Monitor
from ticdc_lab.simulate.scheduler.variants import VARIANTS, Settings

QUIET = Network()


@dataclass(frozen=True, eq=False, slots=True)
class Run:
    """What happened.

    Attributes
    ----------
    settings, faults, seed, until_us, network, also
        What gives this run again; ``also`` holds step limit, name, planted bugs and whether it stops at a violation.
    end
        How it ended.
    measures
        Overlap, gap, doubled changes, starts.
    messages
        How many were sent.
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.
    """

    settings: Settings
    faults: tuple[Fault, ...]
    seed: int
    until_us: int
    network: Network
    end: End
    measures: Measures
    messages: int
    kernel: Kernel = field(repr=False)
    level: str = EVENTS
    also: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def violation(self) -> Violation | None:
        """The invariant that does not hold, if one does not."""
        return self.end.violation

    @property
    def trace(self) -> pa.Table:
        """The trace as an Arrow table."""
        return self.kernel.recorder.table()

    def again(self, at_us: int, faults: Sequence[Fault]) -> Run:
        """Run once more with other faults from ``at_us`` on: the same world up to there.

        Nodes that would have joined later still do, unless another ``Join`` says when: without one they would be there
        from the beginning.

        Raises
        ------
        ValueError
            A new fault lies before ``at_us``.
        """
        planned = replanned(self.faults, at_us, faults)
        return simulate(
            self.settings, faults=planned, seed=self.seed, until_us=self.until_us, network=self.network,
            level=self.level, **self.also,
        )  # fmt: skip


def simulate(
    settings: Settings,
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
    bugs: Mapping[str, Any] | None = None,
    stops_at_violation: bool = True,
) -> Run:
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
        How much the trace holds (:mod:`ticdc_lab.simulate.recorder`).
    recorder
        Takes the trace; one of this level where it is left out.
    step_limit
        See :class:`ticdc_lab.simulate.kernel.Kernel`.
    name
        Of the run in its trace; variant and seed where it is left out.
    bugs
        Planted ones (:mod:`ticdc_lab.simulate.scheduler.mutants`).
    stops_at_violation
        Whether the run ends there.

    Returns
    -------
    Run
        The same arguments give the same run, byte for byte.

    Examples
    --------
    >>> run = simulate(Settings(captures=2, tables=4), until_us=5_000_000)
    >>> run.violation is None, run.measures.overlap_us
    (True, 0)
    >>> run.trace.equals(simulate(Settings(captures=2, tables=4), until_us=5_000_000).trace)
    True
    """
    nodes, keys, start_ts = settings.nodes(), settings.keys(), ts_of(0)
    all_faults = (*faults, *(drawn(chaos, nodes, ETCD, seed) if chaos else ()))
    planted = dict(bugs or {})
    monitor = Monitor(start_ts, keys, stops_at_violation)
    recorder = recorder or Recorder(name or f"{settings.variant} seed {seed}", level)
    machines: dict[str, Any] = {ETCD: Etcd(keys, start_ts, settings.ttl_us, planted.get("trusts_every_owner", False))}
    for node in nodes:
        own = replace(settings, version=settings.versions.get(node, settings.version))
        machines[node] = _capture(own, VARIANTS[settings.variant](own, **planted), planted)
    kernel = Kernel(
        machines, network=network, faults=all_faults, seed=seed, auditor=monitor, recorder=recorder,
        step_limit=step_limit,
    )  # fmt: skip
    end = kernel.run(until_us)
    also = {"step_limit": step_limit, "name": recorder.run, "bugs": planted, "stops_at_violation": stops_at_violation}
    return Run(settings, all_faults, seed, until_us, network, end, monitor.measures, kernel.n_sent, kernel, level, also)


def _capture(settings: Settings, variant: Variant, planted: Mapping[str, Any]) -> Capture:
    return Capture(
        variant,
        settings.version,
        settings.tick_us,
        settings.poll_us,
        settings.ttl_us,
        settings.margin_us,
        settings.stop_lag_us,
        settings.restart_us,
        forgets_monotony=planted.get("forgets_monotony", False),
    )
