"""The ``cluster`` of a scenario of DDL as a Service: workers, registered clusters, their tidb-servers; and its load."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ticdc_lab.simulate.ddl_service.facts import ServiceFacts
from ticdc_lab.simulate.ddl_service.versions import parsed
from ticdc_lab.simulate.ddl_service.world import PD, Settings, store_of
from ticdc_lab.simulate.planned import Planned
from ticdc_lab.simulate.planned_reading import Names
from ticdc_lab.simulate.scenario_yaml import Value

MOST_WORKERS, MOST_CLUSTERS, MOST_SERVERS = 100, 2_000, 20


@dataclass(frozen=True, slots=True)
class Cluster:
    """How many workers and clusters there are, and tidb-servers in each; the last ones may not be registered yet.

    ``versions`` are those of clusters whose tidb-servers have another one than the settings say.
    """

    workers: int
    clusters: int
    servers: int = 2
    unregistered: int = 0
    versions: tuple[tuple[str, str], ...] = ()

    @property
    def _world(self) -> Settings:
        return Settings(self.workers, self.clusters, self.servers)

    @property
    def workers_named(self) -> tuple[str, ...]:
        """Names of the workers."""
        return self._world.worker_names()

    @property
    def clusters_named(self) -> tuple[str, ...]:
        """Ids of the clusters."""
        return self._world.cluster_names()

    @property
    def nodes(self) -> frozenset[str]:
        """Whatever a fault can hit."""
        stores = map(store_of, self.clusters_named)
        return frozenset({PD, *stores, *self.workers_named, *self._world.server_names()})

    def everyone(self, joining: tuple[str, ...]) -> tuple[str, ...]:
        """Give all nodes."""
        return tuple(sorted({*self.nodes, *joining}))


class UserLoad(NamedTuple):
    """What users do: something about every ``every_us``, from ``from_us`` until ``until_us`` (None: 3/4 of the run)."""

    every_us: int
    from_us: int = 0
    until_us: int | None = None


def cluster(value: Value) -> Cluster:
    """Read ``{workers: 3, clusters: 6, servers: 2, unregistered: 1}``."""
    known = {"workers", "clusters", "servers", "unregistered", "versions"}
    given = value.fields(known, required=["workers", "clusters"])
    clusters = given["clusters"].integer(least=1, most=MOST_CLUSTERS)
    named = Settings(clusters=clusters).cluster_names()
    found = Cluster(
        given["workers"].integer(least=1, most=MOST_WORKERS),
        clusters,
        given["servers"].integer(least=1, most=MOST_SERVERS) if "servers" in given else 2,
        given["unregistered"].integer(most=clusters) if "unregistered" in given else 0,
    )
    if "versions" not in given:
        return found
    versions = [(c.choice(named, "a cluster"), _version(v)) for c, v in given["versions"].entries()]
    return replace(found, versions=tuple(versions))


def _version(value: Value) -> str:
    if not parsed(value.text()):
        raise value.wrong("a version such as v6.5.0")
    return value.text()


def load(value: Value, names: Names) -> UserLoad:
    """Read ``{every: 400ms, until: 14s}``: DDL, cancellations, variables, clusters that leave and come back."""
    given = value.fields({"every", "from", "until"}, required=["every"])
    every_us = given["every"].duration_us()
    if every_us == 0:
        raise given["every"].wrong("a time above 0")
    from_us = given["from"].duration_us() if "from" in given else 0
    return UserLoad(every_us, from_us, given["until"].duration_us() if "until" in given else None)


def facts(scenario_cluster: Any, events: Iterable[Planned]) -> ServiceFacts:
    """Give what is known before a run begins."""
    return ServiceFacts()
