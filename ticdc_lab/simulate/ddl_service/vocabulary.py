"""The sentences that assertions about DDL as a Service are made of.

True or false of a moment::

    every cluster is owned              cluster1 is owned              cluster1 is owned by ddl-service-node-1
    no cluster on ddl-service-node-2    there is a leader              leader is ddl-service-node-1
    every job has ended                 job 1 of cluster1 is synced    orders/by_day of cluster1 is public
    cluster1 is assigned to ddl-service-node-1                         no cluster has two owners
    cluster1 is registered              cluster1 is not registered     the service is settled
    no violation                        One DDL Owner is violated

A state of a job may be of several words (``rollback done``, ``cancelled`` for a rejected one). ``ELEMENT of CLUSTER is
STATE`` speaks of every server that serves. ``every job has ended``: jobs of registered clusters. ``the service is
settled``: every cluster owned by whom it is assigned to, balanced, no job left, every server serves.

Comparisons of a number or a duration::

    imbalance <= 1          moves = 2           owner changes <= 3         leader changes = 1
    jobs ended = 4          jobs left = 0       jobs rejected = 1          jobs rolled back = 1
    time without owner < 9s messages < 1000         clusters on ddl-service-node-1 = 2
    rows backfilled of job 1 of cluster1 >= 500
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ticdc_lab.ddl_core import jobs, records
from ticdc_lab.ddl_core.keys import PD
from ticdc_lab.simulate.ddl_service.monitor import ServiceFacts
from ticdc_lab.simulate.reading import Names
from ticdc_lab.simulate.sentences import (
    OF_INVARIANTS,
    OF_MESSAGES,
    Comparison,
    Measure,
    Said,
    Vocabulary,
    Words,
)

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
    owners, given = f.owners(w["cluster"]), f.assigned.get(w["cluster"], "nobody")
    return f"{w['cluster']} is owned by {' and '.join(owners) or 'nobody'} and assigned to {given}"


def _unowned(f: ServiceFacts) -> list[str]:
    return sorted(c for c in f.registered if len(f.owners(c)) != 1)


def _missing(f: ServiceFacts, w: Words, t: int = 0) -> str:
    idle = _unowned(f)
    if not idle:
        return f"all {len(f.registered)} clusters are owned"
    more = f"; {len(idle)} clusters in all are not owned by one worker" if len(idle) > 3 else ""
    return "; ".join(_owner(f, {"cluster": c}) for c in idle[:3]) + more


def _on(f: ServiceFacts, worker: str) -> list[str]:
    return sorted(c for c in f.monitor.owners if worker in f.owners(c))


def _leader(f: ServiceFacts, w: Words, t: int = 0) -> str:
    return f"{f.leader} leads" if f.leader else "nobody leads"


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
    return f"registered: {', '.join(sorted(f.registered))}"


_SENTENCES: Mapping[str, Said] = {
    "every cluster is owned": Said(lambda f, w, t: bool(f.registered) and not _unowned(f), _missing),
    "the service is settled": Said(lambda f, w, t: f.unsettled() is None, _settled),
    "no cluster has two owners": Said(
        lambda f, w, t: not _doubled(f),
        lambda f, w, t: "; ".join(_owner(f, {"cluster": c}, t) for c in _doubled(f)) or "none",
    ),
    "every job has ended": Said(lambda f, w, t: not f.left, _left),
    "there is a leader": Said(lambda f, w, t: f.leader is not None, _leader),
    f"leader is {_WORKER}": Said(lambda f, w, t: f.leader == w["worker"], _leader),
    f"no cluster on {_WORKER}": Said(
        lambda f, w, t: not _on(f, w["worker"]),
        lambda f, w, t: f"{w['worker']} owns {', '.join(_on(f, w['worker'])) or 'none'}",
    ),
    f"{_CLUSTER} is owned by {_WORKER}": Said(lambda f, w, t: f.owners(w["cluster"]) == [w["worker"]], _owner),
    f"{_CLUSTER} is owned": Said(lambda f, w, t: len(f.owners(w["cluster"])) == 1, _owner),
    f"{_CLUSTER} is assigned to {_WORKER}": Said(lambda f, w, t: f.assigned.get(w["cluster"]) == w["worker"], _owner),
    f"{_CLUSTER} is registered": Said(lambda f, w, t: w["cluster"] in f.registered, _registered),
    f"{_CLUSTER} is not registered": Said(lambda f, w, t: w["cluster"] not in f.registered, _registered),
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
    "workers": Measure(lambda f, w, t: len(f.alive)),
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
