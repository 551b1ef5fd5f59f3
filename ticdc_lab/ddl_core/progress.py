"""One DDL job over time: the state that each tidb-server works with, and whom the owner waits for.

Here as a service that runs answers it; :mod:`ticdc_lab.simulate.ddl_service.progress` reads it off a trace.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import pandas as pd

from ticdc_lab.ddl_core import jobs, records
from ticdc_lab.machines.ledger import Ledger

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
            [(r.key, r.state, state_at(states, r.state), r.since, r.until) for r in served.end(end_us)],
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


def state_at(states: list[tuple[int, str]], version: int) -> str:
    return states[bisect_right(states, version, key=lambda s: s[0]) - 1][1]
