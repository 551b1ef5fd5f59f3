"""DDL as a Service as scenarios know it: the sections of a file, what they are to the model, and how one is played."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, NamedTuple

from immutables import Map
from msgspec import Meta

from ticdc_lab.ddl_core.keys import PD, store_of
from ticdc_lab.ddl_core.settings import parsed
from ticdc_lab.ddl_core.store import Answer, Request
from ticdc_lab.simulate import faults as kernel
from ticdc_lab.simulate import runs
from ticdc_lab.simulate.ddl_service import vocabulary
from ticdc_lab.simulate.ddl_service.monitor import INVARIANTS, ServiceFacts, last_state, narrative
from ticdc_lab.simulate.ddl_service.planned import EVENTS, KINDS, drawn_load, mischief
from ticdc_lab.simulate.ddl_service.run import ServiceRun, mishaps, simulate
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.planned import FAULTS, Duration, Planned, RandomFaults, Versions, faults_of
from ticdc_lab.simulate.reading import Names, Reader, Value
from ticdc_lab.simulate.scenario import Model, Scenario
from ticdc_lab.simulate.scheduler.narrative import Line
from ticdc_lab.simulate.what_holds import JOB, HeldAt, what_holds


@dataclass(frozen=True, slots=True)
class ServiceCluster:
    """How many workers and clusters there are, and tidb-servers in each; the last ones may not be registered yet.

    ``{workers: 3, clusters: 6, servers: 2, unregistered: 1}``; ``versions``: of clusters whose tidb-servers
    have another one than the settings.
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
    def _world(self) -> ServiceSettings:
        return ServiceSettings(self.workers, self.clusters, self.servers)

    @property
    def clusters_named(self) -> tuple[str, ...]:
        return self._world.cluster_names()

    @property
    def nodes(self) -> frozenset[str]:
        """All that a fault can hit."""
        stores = map(store_of, self.clusters_named)
        return frozenset({PD, *stores, *self._world.worker_names(), *self._world.server_names()})

    def everyone(self, joining: tuple[str, ...]) -> tuple[str, ...]:
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


def cluster(value: Value) -> ServiceCluster:
    return Reader().record(value, ServiceCluster)


def load(value: Value, names: Names) -> UserLoad:
    return Reader(names).record(value, UserLoad)


def facts(scenario_cluster: Any, events: Iterable[Planned]) -> ServiceFacts:
    return ServiceFacts()


def settings_of(scenario: Scenario) -> ServiceSettings:
    """Give the settings with the cluster; workers that join later are in it too."""
    cluster = scenario.cluster
    joining = tuple(e.what.worker for e in scenario.events if e.kind == "join")
    found: ServiceSettings = replace(
        scenario.settings, workers=cluster.workers, clusters=cluster.clusters, servers=cluster.servers,
        unregistered=cluster.unregistered, joining=joining, cluster_versions=Map(dict(cluster.versions)),
    )  # fmt: skip
    return found


def happening(scenario: Scenario, seed: int) -> list[kernel.Fault]:
    """Give what happens: as planned, as the seed draws it, and what users do."""
    settings = settings_of(scenario)

    def drawn(some: RandomFaults, seed: int) -> list[kernel.Fault]:
        own, common = (tuple(k for k in some.faults if (k in KINDS) is own) for own in (True, False))
        found = mischief(
            settings, own, from_us=some.from_us, until_us=some.until_us, every_us=some.every_us, seed=seed
        ) if own else []  # fmt: skip
        return found + (some.chaos(common, lambda chaos: mishaps(settings, chaos, seed)) if common else [])

    found = [*faults_of(scenario, seed, drawn), *_users(scenario, settings, seed)]
    return sorted(found, key=lambda fault: fault.at_us)


def _users(scenario: Scenario, settings: ServiceSettings, seed: int) -> list[kernel.Fault]:
    if scenario.load is None:
        return []
    until_us = scenario.until_us * 3 // 4 if scenario.load.until_us is None else scenario.load.until_us
    drawn = drawn_load(settings, until_us=until_us, every_us=scenario.load.every_us, seed=seed)
    return [f for f in drawn if f.at_us >= scenario.load.from_us]


class OwnerMeasures(NamedTuple):
    """What clusters had of owners: time with two of them, and with none after their first, over all clusters."""

    overlap_us: int
    gap_us: int
    doubled_us: int | None = None


class PlayedService(runs.Played[ServiceRun, ServiceFacts]):
    """A scenario of the service that has run."""

    __slots__ = ()

    @property
    def measures(self) -> OwnerMeasures:
        """What clusters had of owners; two at once end a run."""
        return OwnerMeasures(0, self.facts.unowned.until(self.run.end.time_us))

    @property
    def happened(self) -> list[Line]:
        return narrative(self.run.kernel.recorder.rows)

    @property
    def last(self) -> list[str]:
        return last_state(self.facts, self.run.end.time_us)

    def whys(self, at_us: int) -> list[HeldAt]:
        """Find what each DDL job waits for at a moment, of those that wait."""
        subjects = dict.fromkeys(self.trace["subject"].drop_null().to_pylist())
        found = [HeldAt(s, at_us, what_holds(self.trace, at_us=at_us, of=s)) for s in subjects if s.startswith(JOB)]
        return [one for one in found if one.reason] or [HeldAt("any DDL job", at_us, None)]


@runs.Play
def play(scenario: Scenario, seed: int) -> runs.Staged[PlayedService]:
    facts = ServiceFacts(settings_of(scenario))
    run = partial(simulate, facts.settings, faults=happening(scenario, seed))
    return runs.Staged(
        facts=facts, simulate=run, played=partial(PlayedService, scenario, seed, facts=facts),
        begun=lambda kernel, _: facts.begin(kernel),
    )  # fmt: skip


FIGURES = ("fleet_map", "assignment_gantt", "schema_timeline", "sequence_diagram")
"""Functions of :mod:`ticdc_lab.figures` that draw a trace."""


def messages(variant: str) -> frozenset[str]:
    """Give the names of messages to and from a store."""
    return frozenset(c.__name__ for kinds in (Request, Answer) for c in kinds.__args__)


MODEL = Model(
    name="ddl-service",
    variants=("proposal",),
    cluster=cluster,
    tables=lambda c: frozenset(),
    settings=ServiceSettings,
    unsettled=("workers", "clusters", "servers", "slow", "joining", "unregistered", "cluster_versions"),
    choices={},
    events=FAULTS | EVENTS,
    random=(*kernel.DRAWS, *KINDS),
    messages=messages,
    claim=vocabulary.VOCABULARY.claim,
    measure=vocabulary.VOCABULARY.measure,
    facts=facts,
    invariants=INVARIANTS,
    figures=frozenset(FIGURES),
    play=play,
    load=load,
    steady=vocabulary.STEADY,
    balanced=vocabulary.BALANCED,
)
