"""The ``cluster`` of a scenario of DDL as a Service: workers, registered clusters, their tidb-servers; and its load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from ticdc_lab.simulate.ddl_service.facts import ServiceFacts
from ticdc_lab.simulate.ddl_service.versions import parsed
from ticdc_lab.simulate.ddl_service.world import PD, Settings, store_of
from ticdc_lab.simulate.planned import Duration, Planned, Versions
from ticdc_lab.simulate.reading import Names, Reader
from ticdc_lab.simulate.scenario_yaml import Value


@dataclass(frozen=True, slots=True)
class Cluster:
    """How many workers and clusters there are, and tidb-servers in each; the last ones may not be registered yet.

    ``{workers: 3, clusters: 6, servers: 2, unregistered: 1}``; ``versions`` are those of clusters whose tidb-servers
    have another one than the settings say.
    """

    workers: Annotated[int, Meta(ge=1, le=100)]
    clusters: Annotated[int, Meta(ge=1, le=2_000)]
    servers: Annotated[int, Meta(ge=1, le=20)] = 2
    unregistered: int = 0
    versions: Versions = ()

    def refuse(self, value: Value, given: Mapping[str, Value]) -> None:
        """Refuse more than there is, and what is no version."""
        if "unregistered" in given:
            given["unregistered"].integer(most=self.clusters)
        for name, version in given["versions"].entries() if "versions" in given else ():
            name.choice(self.clusters_named, "a cluster")
            if not parsed(version.text()):
                raise version.wrong("a version such as v6.5.0")

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


@dataclass(frozen=True, slots=True)
class UserLoad:
    """What users do: something about every ``every_us``, from ``from_us`` until ``until_us`` (None: 3/4 of the run).

    ``{every: 400ms, until: 14s}``: DDL, cancellations, variables, clusters that leave and come back.
    """

    every_us: Duration
    from_us: Duration = 0
    until_us: Duration | None = None

    def refuse(self, value: Value, given: Mapping[str, Value]) -> None:
        """Refuse users who never rest."""
        if self.every_us == 0:
            raise given["every"].wrong("a time above 0")


def cluster(value: Value) -> Cluster:
    """Read the section."""
    return Reader().record(value, Cluster)


def load(value: Value, names: Names) -> UserLoad:
    """Read the section."""
    return Reader(names).record(value, UserLoad)


def facts(scenario_cluster: Any, events: Iterable[Planned]) -> ServiceFacts:
    """Give what is known before a run begins."""
    return ServiceFacts()
