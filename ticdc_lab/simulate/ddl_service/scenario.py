"""DDL as a Service as scenarios know it: the sections of a file, what they are to the model, and how one is played."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, NamedTuple

from immutables import Map
from msgspec import Meta

from ticdc_lab.ddl_core import jobs, records
from ticdc_lab.ddl_core.keys import PD, store_of
from ticdc_lab.ddl_core.settings import parsed
from ticdc_lab.ddl_core.store import Answer, Request
from ticdc_lab.simulate import faults as kernel
from ticdc_lab.simulate import runs
from ticdc_lab.simulate.ddl_service.monitor import INVARIANTS, ServiceFacts, last_state, narrative
from ticdc_lab.simulate.ddl_service.planned import EVENTS, KINDS, drawn_load, mischief
from ticdc_lab.simulate.ddl_service.run import ServiceRun, mishaps, simulate
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.planned import FAULTS, Duration, Planned, RandomFaults, Versions, faults_of
from ticdc_lab.simulate.reading import Names, Reader, Value
from ticdc_lab.simulate.scenario import Model, Scenario
from ticdc_lab.simulate.scheduler.narrative import Line
from ticdc_lab.simulate.sentences import OF_INVARIANTS, OF_MESSAGES, Comparison, Measure, Said, Vocabulary, Words
from ticdc_lab.simulate.what_holds import HeldAt, jobs_sent, what_holds


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

    found, load = faults_of(scenario, seed, drawn), scenario.load
    if load is not None:
        until_us = scenario.until_us * 3 // 4 if load.until_us is None else load.until_us
        asked = drawn_load(settings, until_us=until_us, every_us=load.every_us, seed=seed)
        found = [*found, *(f for f in asked if f.at_us >= load.from_us)]
    return sorted(found, key=lambda fault: fault.at_us)


# The sentences that assertions about DDL as a Service are made of.
#
# True or false of a moment::
#
#     every cluster is owned              cluster1 is owned              cluster1 is owned by ddl-service-node-1
#     no cluster on ddl-service-node-2    there is a leader              leader is ddl-service-node-1
#     every job has ended                 job 1 of cluster1 is synced    orders/by_day of cluster1 is public
#     cluster1 is assigned to ddl-service-node-1                         no cluster has two owners
#     cluster1 is registered              cluster1 is not registered     the service is settled
#     no violation                        One DDL Owner is violated
#
# A state of a job may be of several words (``rollback done``, ``cancelled`` for a rejected one). ``ELEMENT of CLUSTER
# is STATE`` speaks of every server that serves. ``every job has ended``: jobs of registered clusters. ``the service is
# settled``: every cluster owned by whom it is assigned to, balanced, no job left, every server serves.
#
# Comparisons of a number or a duration::
#
#     imbalance <= 1          moves = 2           owner changes <= 3         leader changes = 1
#     jobs ended = 4          jobs left = 0       jobs rejected = 1          jobs rolled back = 1
#     time without owner < 9s messages < 1000         clusters on ddl-service-node-1 = 2
#     rows backfilled of job 1 of cluster1 >= 500


_CLUSTER, _WORKER, _JOB = r"(?P<cluster>\S+)", r"(?P<worker>\S+)", r"job (?P<job>\d+) of (?P<cluster>\S+)"
_STATES = (records.QUEUEING, records.RUNNING, records.CANCELLING, records.ROLLING_BACK, *sorted(records.ENDS))


def _there(names: Names, invariants: Collection[str]) -> Mapping[str, Collection[str]]:
    servers = {n for n in names.nodes if "/" in n and "://" not in n}
    return {
        "cluster": {s.split("/")[0] for s in servers},
        "worker": {n for n in names.nodes if n != PD and "/" not in n},
        "message": names.messages,
        "invariant": invariants,
        "state": (*_STATES, jobs.NONE, jobs.DELETE_ONLY, jobs.WRITE_ONLY, jobs.WRITE_REORG, jobs.PUBLIC),
    }


# What is there, in words


def _owner(f: ServiceFacts, w: Words, t: int = 0) -> str:
    owners, given = f.owners(w["cluster"]), f.ledger.assigned.get(w["cluster"], "nobody")
    return f"{w['cluster']} is owned by {' and '.join(owners) or 'nobody'} and assigned to {given}"


def _unowned(f: ServiceFacts) -> list[str]:
    return sorted(c for c in f.ledger.registered if len(f.owners(c)) != 1)


def _missing(f: ServiceFacts, w: Words, t: int = 0) -> str:
    idle = _unowned(f)
    if not idle:
        return f"all {len(f.ledger.registered)} clusters are owned"
    more = f"; {len(idle)} clusters in all are not owned by one worker" if len(idle) > 3 else ""
    return "; ".join(_owner(f, {"cluster": c}) for c in idle[:3]) + more


def _on(f: ServiceFacts, worker: str) -> list[str]:
    return sorted(c for c in f.monitor.owners if worker in f.owners(c))


def _leader(f: ServiceFacts, w: Words, t: int = 0) -> str:
    return f"{f.ledger.leader} leads" if f.ledger.leader else "nobody leads"


def _job(f: ServiceFacts, w: Words) -> records.Job | None:
    return next((j for j in f.jobs(w["cluster"]) if j.id == int(w["job"])), None)


def _told(f: ServiceFacts, w: Words, t: int = 0) -> str:
    job = _job(f, w)
    if job is None:
        return f"{w['cluster']} has no job {w['job']}"
    rows = f", {job.row_count} of {job.rows} rows" if job.rows else ""
    state = f" at {job.schema_state}" if job.schema_state else ""
    return f"job {job.id} of {w['cluster']} is {job.state}{state}{rows}" + (f": {job.error}" if job.error else "")


def _left(f: ServiceFacts, w: Words, t: int = 0) -> str:
    first = f", the first {f.left[0].kind} {f.left[0].element}, {f.left[0].state}" if f.left else ""
    return f"{_ended(f, *records.ENDS)} jobs have ended, {len(f.left)} of registered clusters have not{first}"


def _element(f: ServiceFacts, w: Words, t: int = 0) -> str:
    found = f.states(w["cluster"], w["element"])
    return "; ".join(f"{s} has {w['element']} {state}" for s, state in found.items()) or "no server serves"


def _is(f: ServiceFacts, w: Words, t: int) -> bool:
    found = f.states(w["cluster"], w["element"])
    return bool(found) and set(found.values()) == {w["state"]}


def _doubled(f: ServiceFacts) -> list[str]:
    return sorted(c for c in f.monitor.owners if len(f.owners(c)) > 1)


def _settled(f: ServiceFacts, w: Words, t: int = 0) -> str:
    found = f.unsettled()
    return f"{found[0]}: {found[1]}" if found else "all is as it should be"


def _registered(f: ServiceFacts, w: Words, t: int) -> str:
    return f"registered: {', '.join(sorted(f.ledger.registered))}"


_SENTENCES: Mapping[str, Said] = {
    "every cluster is owned": Said(lambda f, w, t: bool(f.ledger.registered) and not _unowned(f), _missing),
    "the service is settled": Said(lambda f, w, t: f.unsettled() is None, _settled),
    "no cluster has two owners": Said(
        lambda f, w, t: not _doubled(f),
        lambda f, w, t: "; ".join(_owner(f, {"cluster": c}, t) for c in _doubled(f)) or "none",
    ),
    "every job has ended": Said(lambda f, w, t: not f.left, _left),
    "there is a leader": Said(lambda f, w, t: f.ledger.leader is not None, _leader),
    f"leader is {_WORKER}": Said(lambda f, w, t: f.ledger.leader == w["worker"], _leader),
    f"no cluster on {_WORKER}": Said(
        lambda f, w, t: not _on(f, w["worker"]),
        lambda f, w, t: f"{w['worker']} owns {', '.join(_on(f, w['worker'])) or 'none'}",
    ),
    f"{_CLUSTER} is owned by {_WORKER}": Said(lambda f, w, t: f.owners(w["cluster"]) == [w["worker"]], _owner),
    f"{_CLUSTER} is owned": Said(lambda f, w, t: len(f.owners(w["cluster"])) == 1, _owner),
    f"{_CLUSTER} is assigned to {_WORKER}": Said(
        lambda f, w, t: f.ledger.assigned.get(w["cluster"]) == w["worker"], _owner
    ),
    f"{_CLUSTER} is registered": Said(lambda f, w, t: w["cluster"] in f.ledger.registered, _registered),
    f"{_CLUSTER} is not registered": Said(lambda f, w, t: w["cluster"] not in f.ledger.registered, _registered),
    f"{_JOB} is (?P<state>.+)": Said(lambda f, w, t: getattr(_job(f, w), "state", "") == w["state"], _told),
    r"(?P<element>\S+/\S*) of (?P<cluster>\S+) is (?P<state>.+)": Said(_is, _element),
    **OF_INVARIANTS,
}
"""Sentences as patterns; a group's name is what must be there."""


def _ended(f: ServiceFacts, *states: str) -> int:
    return sum(j.state in states for j in f.jobs())


_MEASURES: Mapping[str, Measure] = {
    "imbalance": Measure(lambda f, w, t: max(f.loads.values(), default=0) - min(f.loads.values(), default=0)),
    "moves": Measure(lambda f, w, t: f.moves),
    "workers": Measure(lambda f, w, t: len(f.ledger.workers)),
    "owner changes": Measure(lambda f, w, t: f.monitor.elected - len(f.monitor.elected_of)),
    "leader changes": Measure(lambda f, w, t: max(f.n_leaders - 1, 0)),
    "jobs": Measure(lambda f, w, t: len(f.jobs())),
    "jobs ended": Measure(lambda f, w, t: _ended(f, *records.ENDS)),
    "jobs left": Measure(lambda f, w, t: len(f.left)),
    "jobs rejected": Measure(lambda f, w, t: sum(j.state == records.CANCELLED and bool(j.error) for j in f.jobs())),
    "jobs rolled back": Measure(lambda f, w, t: _ended(f, records.ROLLED_BACK)),
    f"rows backfilled of {_JOB}": Measure(lambda f, w, t: getattr(_job(f, w), "row_count", 0)),
    f"clusters on {_WORKER}": Measure(lambda f, w, t: f.loads.get(w["worker"], 0)),
    "time without owner": Measure(lambda f, w, t: f.unowned.until(t), "us", ages=True),
    **OF_MESSAGES,
}
"""Measures as patterns."""


VOCABULARY = Vocabulary(_SENTENCES, _MEASURES, _there)
STEADY = replace(_SENTENCES["every cluster is owned"], text="every cluster is owned")
BALANCED = Comparison("imbalance <= 1", replace(_MEASURES["imbalance"], text="imbalance"), "<=", 1)
"""What runs are compared by, besides their scenario's assertions."""


# How a scenario is played.


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
        found = [HeldAt(job, at_us, what_holds(self.trace, at_us=at_us, of=job)) for job in jobs_sent(self.trace)]
        return [one for one in found if one.reason] or [HeldAt("any DDL job", at_us, None)]


@runs.Play
def play(scenario: Scenario, seed: int) -> runs.Staged[PlayedService]:
    facts = ServiceFacts(settings_of(scenario))
    run = partial(simulate, facts.settings, faults=happening(scenario, seed))
    return runs.Staged(
        facts=facts, simulate=run, played=partial(PlayedService, scenario, seed, facts=facts),
        begun=lambda kernel, _: facts.begin(kernel),
    )  # fmt: skip


def messages(variant: str) -> frozenset[str]:
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
    claim=VOCABULARY.claim,
    measure=VOCABULARY.measure,
    facts=facts,
    invariants=INVARIANTS,
    play=play,
    load=load,
    steady=STEADY,
    balanced=BALANCED,
)
