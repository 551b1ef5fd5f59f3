"""Run the service: workers, clusters, users' DDL, faults, one seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, Unpack

from immutables import Map

from ticdc_lab.ddl_core.checks import Found
from ticdc_lab.ddl_core.keys import PD, store_of
from ticdc_lab.ddl_core.server_state import Habits, Slow, Submit
from ticdc_lab.ddl_core.worker_state import Leave, Resign
from ticdc_lab.simulate.ddl_service.monitor import ServiceMonitor, unsettled
from ticdc_lab.simulate.ddl_service.world import ServiceSettings, cluster_of, machines
from ticdc_lab.simulate.faults import Ask, Chaos, Crash, Fault, Join, Part, Restart, drawn
from ticdc_lab.simulate.runs import How, SimulatedRun, faults_in, ran
from ticdc_lab.simulate.trace import CHANGES


class ServiceRun(SimulatedRun[ServiceSettings]):
    """A run of the service."""

    __slots__ = ()

    @property
    def unsettled(self) -> Found:
        """What should be so after a quiet while and is not: (invariant, because)."""
        return None if self.violation else unsettled(self.kernel, self.settings)


def simulate(settings: ServiceSettings, *, until_us: int = 30_000_000, **how: Unpack[How]) -> ServiceRun:
    """Run a service until a moment of virtual time; ``how`` is in :class:`ticdc_lab.simulate.runs.How`.

    Users send :class:`ticdc_lab.ddl_core.server_state.Submit` and others among the faults.

    Examples
    --------
    >>> run = simulate(ServiceSettings(workers=2, clusters=3), until_us=10_000_000)
    >>> run.violation is None, run.unsettled is None
    (True, True)
    """
    faults = faults_in(how, partial(mishaps, settings))
    auditor, again = ServiceMonitor(settings.duties.versions), partial(simulate, settings)
    return ran(
        ServiceRun, again, machines(settings), auditor, faults, until_us, how, title="ddl-service", settings=settings
    )  # fmt: skip


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
    """Whether a fault hits a worker itself: such faults are drawn once, not for each cluster."""
    return getattr(fault, "node", "") in settings.worker_names()


# A service to try out in a panel: a small load of DDL, and which faults can be injected at a moment.


SPARE = 2
"""Workers that can be added."""

JOBS = (
    (3_000_000, Submit("add index", "orders", "by_day", rows=40_000)),
    (10_000_000, Submit("add column", "orders", "remark")),
)
"""What a user of the first cluster sends, and when."""

SLOW_SERVER = "cluster1/tidb-2"
_BACK_US, _CUT_US, _SLOW_US, _LOAD_US = 3_000_000, 9_000_000, 6_000_000, 1_500_000


class Incident(NamedTuple):
    """A fault (of :data:`FAULTS`) that a worker has at a moment."""

    fault: str
    worker: str
    at_us: int


class IncidentPlace(NamedTuple):
    """Where an incident happens: moment, worker, the next worker that is not there, and how many clusters there are."""

    at_us: int
    worker: str
    spare: str
    clusters: int


def tried(until_s: float) -> Callable[[int, int, int, int], ServiceRun]:
    """Give what a panel calls: workers, clusters, ms that one tidb-server takes to load a schema, seed."""

    def ran(workers: int, clusters: int, load_ms: int, seed: int) -> ServiceRun:
        until_us = round(1e6 * until_s)
        spare = tuple(f"ddl-service-node-{workers + 1 + i}" for i in range(SPARE))
        slow = Map({SLOW_SERVER: Habits(load_us=1_000 * load_ms)})
        settings = ServiceSettings(workers, clusters, servers=3, slow=slow, joining=spare)
        asked = [Ask(at_us, "cluster1/tidb-1", statement) for at_us, statement in JOBS]
        never = [Join(until_us + 1, name) for name in spare]
        return simulate(settings, faults=[*asked, *never], seed=seed, until_us=until_us, level=CHANGES)

    return ran


def faults_of(incidents: Sequence[Incident], workers: int, clusters: int) -> list[Fault]:
    """Give the faults of some incidents, by time; the n-th worker that is added is the n-th spare one."""
    found: list[Fault] = []
    added = 0
    for one in sorted(incidents, key=lambda i: i.at_us):
        spare = f"ddl-service-node-{workers + 1 + min(added, SPARE - 1)}"
        if one.fault != ADD or added < SPARE:
            found += FAULTS[one.fault](IncidentPlace(one.at_us, one.worker, spare, clusters))
        added += one.fault == ADD
    return sorted(found, key=lambda f: f.at_us)


def _cut(p: IncidentPlace) -> list[Fault]:
    stores = [PD, *(store_of(f"cluster{i + 1}") for i in range(p.clusters))]
    return [Part(p.at_us, p.worker, store, for_us=_CUT_US) for store in stores]


ADD = "add a worker"
FAULTS: Mapping[str, Callable[[IncidentPlace], list[Fault]]] = MappingProxyType(
    {
        "kill": lambda p: [Crash(p.at_us, p.worker)],
        "kill, back after 3 s": lambda p: [Crash(p.at_us, p.worker), Restart(p.at_us + _BACK_US, p.worker)],
        "cut off for 9 s": _cut,
        "remove": lambda p: [Ask(p.at_us, p.worker, Leave())],
        ADD: lambda p: [Join(p.at_us, p.spare)],
        "resign": lambda p: [Ask(p.at_us, p.worker, Resign(f"cluster{i + 1}")) for i in range(p.clusters)],
        "slow tidb-server for 6 s": lambda p: [
            Ask(p.at_us, SLOW_SERVER, Slow(_LOAD_US)), Ask(p.at_us + _SLOW_US, SLOW_SERVER, Slow(0))
        ],
    }
)  # fmt: skip
"""What can be injected; the last is of a server, whichever worker is chosen."""
