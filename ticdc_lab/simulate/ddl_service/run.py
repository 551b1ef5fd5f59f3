"""Run the service: workers, clusters, users' DDL, faults, one seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ticdc_lab.ddl_core.checks import Found
from ticdc_lab.ddl_core.keys import PD, store_of
from ticdc_lab.simulate.ddl_service.monitor import ServiceMonitor, unsettled
from ticdc_lab.simulate.ddl_service.world import ServiceSettings, cluster_of, machines
from ticdc_lab.simulate.faults import Chaos, Fault, drawn
from ticdc_lab.simulate.kernel import Kernel
from ticdc_lab.simulate.network import Network
from ticdc_lab.simulate.runs import QUIET, SimulatedRun, ran
from ticdc_lab.simulate.trace import EVENTS, Recorder


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ServiceRun(SimulatedRun[ServiceSettings]):
    """A run of the service.

    Attributes
    ----------
    unsettled
        (invariant, because) of what should be so after a quiet while and is not.
    monitor
        What the auditor counted.
    """

    unsettled: Found
    monitor: ServiceMonitor


def simulate(
    settings: ServiceSettings,
    *,
    faults: Sequence[Fault] = (),
    chaos: Chaos | None = None,
    seed: int = 0,
    until_us: int = 30_000_000,
    network: Network = QUIET,
    level: str = EVENTS,
    recorder: Recorder | None = None,
    step_limit: int = 50_000_000,
    begun: Callable[[Kernel], None] | None = None,
) -> ServiceRun:
    """Run a service.

    Parameters
    ----------
    settings
        Workers, clusters and servers.
    faults
        What goes wrong and what users do (:class:`ticdc_lab.ddl_core.server_state.Submit`, ...).
    chaos, seed, until_us, network, level, recorder, step_limit, begun
        As for :func:`ticdc_lab.simulate.scheduler.run.simulate`.

    Returns
    -------
    Run
        The same arguments give the same run, byte for byte.

    Examples
    --------
    >>> run = simulate(ServiceSettings(workers=2, clusters=3), until_us=10_000_000)
    >>> run.violation is None, run.unsettled is None
    (True, True)
    """
    planned = (*faults, *(mishaps(settings, chaos, seed) if chaos else ()))
    monitor = ServiceMonitor(settings.duties.versions)
    world = ran(
        machines(settings), monitor, recorder or Recorder(f"ddl-service seed {seed}", level), faults=planned, seed=seed,
        until_us=until_us, network=network, step_limit=step_limit, begun=begun,
    )  # fmt: skip
    found = None if world["end"].violation else unsettled(world["kernel"], settings)
    return ServiceRun(
        **world, settings=settings, simulate=partial(simulate, settings), unsettled=found, monitor=monitor
    )


def mishaps(settings: ServiceSettings, chaos: Chaos, seed: int) -> list[Fault]:
    """Draw faults of workers, servers, and of the links between them and their stores."""
    found = drawn(chaos, settings.worker_names(), PD, seed)
    kinds = tuple(k for k in chaos.kinds if k != "skew")
    for cluster in settings.cluster_names() if kinds else ():
        servers = [s for s in settings.server_names() if cluster_of(s) == cluster]
        nodes = [*servers, *settings.worker_names()]
        rare = chaos._replace(every_us=chaos.every_us * 2, kinds=kinds)
        links = [f for f in drawn(rare, nodes, store_of(cluster), hash_of(seed, cluster)) if not _twice(f, settings)]
        found += links
    return sorted(found, key=lambda f: f.at_us)


def hash_of(seed: int, cluster: str) -> int:
    """Give the seed of a cluster's own faults."""
    return seed * 1000 + int(cluster.removeprefix("cluster"))


def _twice(fault: Fault, settings: ServiceSettings) -> bool:
    """Whether a fault befalls a worker itself: those are drawn once, not for each cluster."""
    return getattr(fault, "node", "") in settings.worker_names()
