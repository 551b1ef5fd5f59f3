"""A service and its clusters: which nodes there are, and what users do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from immutables import Map

from ticdc_lab.ddl_core import keys, records
from ticdc_lab.ddl_core.keys import PD, store_of
from ticdc_lab.ddl_core.server import Server
from ticdc_lab.ddl_core.server_state import HABITS, Habits
from ticdc_lab.ddl_core.settings import DUTIES, Duties
from ticdc_lab.ddl_core.store import DdlStore
from ticdc_lab.ddl_core.worker import Worker


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What a run begins with."""

    # How many workers and registered clusters there are, and tidb-servers in each cluster.
    workers: int = 3
    clusters: int = 3
    servers: int = 2
    # Of workers and of tidb-servers.
    duties: Duties = DUTIES
    habits: Habits = HABITS
    slow: Mapping[str, Habits] = Map()  # habits of single servers by their names
    bootstrapped: str = "v6.5.0"  # the version that the meta of the clusters has
    joining: tuple[str, ...] = ()  # workers that come later; a ``ticdc_lab.simulate.faults.Join`` has the time
    unregistered: int = 0  # clusters, the last ones, that are not registered at first
    # Of clusters whose tidb-servers have other ones than ``habits``.
    cluster_versions: Mapping[str, str] = Map()

    def habits_of(self, server: str) -> Habits:
        found = self.slow.get(server, self.habits)
        return replace(found, version=self.cluster_versions.get(cluster_of(server), found.version))

    def worker_names(self) -> tuple[str, ...]:
        return (*(f"ddl-service-node-{i + 1}" for i in range(self.workers)), *self.joining)

    def cluster_names(self) -> tuple[str, ...]:
        return tuple(f"cluster{i + 1}" for i in range(self.clusters))

    def server_names(self) -> tuple[str, ...]:
        return tuple(f"{c}/tidb-{i + 1}" for c in self.cluster_names() for i in range(self.servers))


def cluster_of(node: str) -> str:
    return node.split("/")[0]


def machines(settings: ServiceSettings) -> dict[str, Any]:
    names = settings.cluster_names()
    registered = tuple(
        (
            keys.REGISTERS + c,
            records.written(
                records.ClusterRecord(store_of(c), settings.cluster_versions.get(c, settings.habits.version))
            ),
        )
        for c in names[: len(names) - settings.unregistered]
    )
    registered += tuple((keys.PDS + store_of(c).removeprefix("tikv://"), store_of(c)) for c in names)
    found: dict[str, Any] = {PD: DdlStore(registered)}
    for cluster in names:
        bootstrapped = settings.cluster_versions.get(cluster, settings.bootstrapped)
        found[store_of(cluster)] = DdlStore(((keys.BOOTSTRAPPED, bootstrapped),))
    for server in settings.server_names():
        found[server] = Server(store_of(cluster_of(server)), settings.habits_of(server))
    return found | {w: Worker(w, PD, settings.duties) for w in settings.worker_names()}
