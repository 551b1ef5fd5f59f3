"""One DDL job over time: the state that each tidb-server works with, and whom the owner waits for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.ddl_core import jobs, keys, records
from ticdc_lab.ddl_core.keys import store_of
from ticdc_lab.machines.ledger import Ledger
from ticdc_lab.machines.machine import node_of

SERVED = ("server", "version", "state", "since_us", "until_us")
STEPS = ("state", "schema_state", "row_count", "owner", "since_us", "until_us")
WAITS = ("server", "because", "since_us", "until_us")


class JobProgress(NamedTuple):
    """A job, and what it does to the servers of its cluster."""

    # ``cluster``, ``job``: which one; the job in its last state.
    cluster: str
    job: records.Job
    # :data:`SERVED`: the schema version that a server works with, and the state of the job's element in it.
    served: pd.DataFrame
    steps: pd.DataFrame  # :data:`STEPS` of the job's own record; ``owner`` is a ``ddl_id``
    waits: pd.DataFrame  # :data:`WAITS`: for whom the job waited; of several the first by name
    # ``since_us``, ``until_us``: from when it was sent until it ended, or the end of the run.
    since_us: int
    until_us: int

    @property
    def waited_us(self) -> dict[str, int]:
        """How long it waited for each server, the longest first."""
        lengths = (self.waits["until_us"] - self.waits["since_us"]).groupby(self.waits["server"]).sum()
        return {str(s): int(us) for s, us in lengths.sort_values(ascending=False, kind="stable").items()}


def job_progress(trace: pa.Table, *, cluster: str, job: int = 1) -> JobProgress | None:
    """Read a job of a run; None where the cluster has no such job.

    ``trace``: :data:`ticdc_lab.simulate.trace.TRACE`; level ``changes`` is enough. ``cluster``, ``job``: ids.
    """
    end_us = int(trace["time_us"][-1].as_py()) if len(trace) else 0
    changed = trace.filter(pc.equal(trace["kind"], "changed"))
    of_store = _rows(changed.filter(pc.equal(changed["node"], store_of(cluster))))
    steps = [r for r in of_store if r["subject"] in (f"{keys.JOBS}{job}", f"{keys.HISTORY}{job}")]
    steps = [r for r in steps if r["after"] is not None]
    if not steps:
        return None
    if "violated" in trace["kind"].to_pylist()[-3:]:
        end_us += max(1, (end_us - steps[0]["time_us"]) // 25)  # make visible what broke the invariant
    last = records.job(steps[-1]["after"])
    since_us, until_us = steps[0]["time_us"], steps[-1]["time_us"] if last.state in records.ENDS else end_us
    states = _states(of_store, last.element)
    served = _served(trace, cluster, states, end_us)
    return JobProgress(
        cluster,
        last,
        served,
        _steps(steps, end_us),
        _waits(trace, f"job:{cluster}/{job}", until_us),
        since_us,
        until_us,
    )


class JobAnswer(NamedTuple):
    """A running service's view of a job at a moment: its record, and the schema version of each server."""

    at_us: int
    job: records.Job
    versions: Mapping[str, int]


def job_polled(cluster: str, answers: Sequence[JobAnswer]) -> JobProgress:
    """Read a job of a service that really runs, off what it answered each time it was asked.

    ``cluster``: its id. ``answers``: in order, at least one; what came to be and went between two of them is not seen.
    """
    first, last = answers[0], answers[-1]
    element_at = {0: jobs.LADDERS.get(first.job.kind, (jobs.NONE,))[0]}
    served: Ledger[int] = Ledger()
    waits: Ledger[int] = Ledger()
    steps = [first, *(b for a, b in pairwise(answers) if a.job != b.job)]
    for at_us, job, versions in answers:
        for version, state in _passed(job):
            element_at.setdefault(version, state)
        for server in {*versions, *(s for s, _ in served.now)}:
            served.set(server, versions.get(server), at_us)
        late = sorted(s for s, v in versions.items() if v < job.schema_version and job.state not in records.ENDS)
        for server in {*late, *(s for s, _ in waits.now)}:
            because = f"{server} works with schema version {versions.get(server)} of {job.schema_version}"
            waits.set(server, because if server in late[:1] else None, at_us)
    states = sorted(element_at.items())
    end_us = last.at_us
    return JobProgress(
        cluster,
        last.job,
        pd.DataFrame(
            [(r.key, r.state, _state_at(states, r.state), r.since, r.until) for r in served.end(end_us)],
            columns=list(SERVED),
        ),
        pd.DataFrame(
            [
                (a.job.state, a.job.schema_state, a.job.row_count, a.job.owner, a.at_us, ends_us)
                for a, ends_us in zip(steps, [*(s.at_us for s in steps[1:]), end_us], strict=True)
            ],
            columns=list(STEPS),
        ),
        pd.DataFrame([(r.key, r.state, r.since, r.until) for r in waits.end(end_us)], columns=list(WAITS)),
        first.at_us,
        next((a.at_us for a in answers if a.job.state in records.ENDS), end_us),
    )


def _passed(job: records.Job) -> list[tuple[int, str]]:
    """The schema versions that a job has made, and the states: one of each rung, also without a sample then."""
    ladder = jobs.LADDERS.get(job.kind, ())
    if not job.schema_version:
        return []
    if job.state not in (records.RUNNING, records.DONE) or job.schema_state not in ladder:
        return [(job.schema_version, job.schema_state)]
    rungs = ladder[: ladder.index(job.schema_state) + 1]
    versions = range(job.schema_version, job.schema_version - len(rungs), -1)
    return [(v, state) for v, state in zip(versions, reversed(rungs), strict=True) if v > 0]


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.select(["time_us", "step", "subject", "after", "node"]).to_pylist()
    return rows


def _states(rows: list[dict[str, Any]], element: str) -> list[tuple[int, str]]:
    """The version from which on the element is in a state, in order."""
    found, state = [(0, jobs.NONE)], jobs.NONE
    for r in rows:
        if r["subject"] == keys.SCHEMA + element:
            state = r["after"] or jobs.NONE
        elif r["subject"] == keys.GLOBAL_VERSION and state != found[-1][1]:
            found.append((int(r["after"]), state))
    return found


def _state_at(states: list[tuple[int, str]], version: int) -> str:
    return states[bisect_right(states, version, key=lambda s: s[0]) - 1][1]


def _served(trace: pa.Table, cluster: str, states: list[tuple[int, str]], end_us: int) -> pd.DataFrame:
    """Versions by server; one that is down or paused serves no one."""
    own = trace.filter(pc.starts_with(trace["node"], f"{cluster}/"))
    keep = pc.or_(
        pc.and_(pc.equal(own["kind"], "changed"), pc.fill_null(pc.equal(own["subject"], "schema"), False)),
        pc.is_in(own["kind"], pa.array(["crashed", "paused", "resumed"])),
    )
    rows: Ledger[int] = Ledger()
    serving: dict[str, int | None] = {}
    asleep: dict[str, int | None] = {}
    for r in own.filter(keep).select(["time_us", "node", "kind", "after"]).to_pylist():
        node, kind, at_us = r["node"], r["kind"], r["time_us"]
        if kind == "changed":
            serving[node] = None if r["after"] is None else int(r["after"])
        elif kind == "resumed":
            serving[node] = asleep.pop(node, None)
        else:
            asleep[node] = serving.pop(node, None)
        rows.set(node_of(node), serving.get(node), at_us)
    found = [(r.key, r.state, _state_at(states, r.state), r.since, r.until) for r in rows.end(end_us)]
    return pd.DataFrame(found, columns=list(SERVED))


def _steps(rows: list[dict[str, Any]], end_us: int) -> pd.DataFrame:
    found = []
    for row, ends_us in zip(rows, [*(r["time_us"] for r in rows[1:]), end_us], strict=True):
        job = records.job(row["after"])
        found.append((job.state, job.schema_state, job.row_count, job.owner, row["time_us"], ends_us))
    return pd.DataFrame(found, columns=list(STEPS))


def _waits(trace: pa.Table, subject: str, until_us: int) -> pd.DataFrame:
    decided = pc.and_(pc.equal(trace["kind"], "decided"), pc.fill_null(pc.equal(trace["subject"], subject), False))
    rows = trace.filter(decided).select(["time_us", "after", "because", "rejected"]).to_pylist()
    found = []
    for r, ends_us in zip(rows, [*(r["time_us"] for r in rows[1:]), until_us], strict=False):
        if r["after"] is None and r["rejected"] and r["time_us"] < ends_us:
            who = r["rejected"][0]["candidate"]
            server = who if keys.cluster_of(who) else node_of(who.rpartition("-")[0])
            found.append((server, r["because"], r["time_us"], ends_us))
    return pd.DataFrame(found, columns=list(WAITS))
