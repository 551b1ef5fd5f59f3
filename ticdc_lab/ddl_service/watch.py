"""Look at a running service through its HTTP API, time after time, as figures of a fleet or of a job need it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from msgspec.structs import asdict

from ticdc_lab.ddl_core.fleet import Fleet, FleetAnswer, fleet_polled
from ticdc_lab.ddl_core.progress import JobAnswer, JobProgress, job_polled
from ticdc_lab.ddl_core.records import ENDS, IS_OWNER, Job
from ticdc_lab.ddl_service.client import Client, ServiceError

A = TypeVar("A")
P = TypeVar("P")
KEPT = 10_000
"""Answers; the oldest go first."""


class ServiceWatch(Generic[A, P]):
    """Something of a service that is looked at: :func:`fleet_watch`, :func:`job_watch`.

    ``ask``: asks the service once; given the time since the first look, µs. ``read``: makes a picture of all answers.
    ``answers``: those that are kept, in order.
    """

    def __init__(self, ask: Callable[[int], A], read: Callable[[Sequence[A]], P]) -> None:
        self._ask, self._read, self._since_s = ask, read, time.monotonic()
        self.answers: list[A] = []

    def look(self) -> P:
        """Ask once more, and give what is known since the first time.

        Raises ServiceError: no worker answers, none has a session with its store, or what is asked for is not there.
        """
        self.answers.append(self._ask(int(1e6 * (time.monotonic() - self._since_s))))
        del self.answers[:-KEPT]
        return self._read(self.answers)

    def until(self, lacks: Callable[[P], str], *, within_s: float = 60.0, every_s: float = 0.05) -> P:
        """Look until nothing is missing.

        ``lacks``: gives what a picture still misses; empty if nothing (:func:`settled`, :func:`ended`).
        ``within_s``, ``every_s``: for how long, and how often, s. Raises ServiceError: it did not come to that in time;
        or no worker answers even then.
        """
        end_s = time.monotonic() + within_s
        while True:
            is_late = time.monotonic() > end_s
            try:
                found = self.look()
                if not (lacking := lacks(found)):
                    return found
                if is_late:
                    raise ServiceError(200, f"after {within_s:g} s {lacking}")
            except ServiceError as error:
                if is_late or error.status not in (0, 503):
                    raise
            time.sleep(every_s)


def fleet_watch(client: Client) -> ServiceWatch[FleetAnswer, Fleet]:
    """Watch a service: its workers, and who has which cluster."""

    def ask(at_us: int) -> FleetAnswer:
        workers = tuple(w.id for w in client.workers())
        return FleetAnswer(
            at_us, workers, tuple((c.id, c.schedule.assigned_to, c.schedule.status) for c in client.clusters())
        )

    return ServiceWatch(ask, fleet_polled)


def settled(workers: int) -> Callable[[Fleet], str]:
    """Until there are so many workers, and every cluster has an owner."""

    def lacks(fleet: Fleet) -> str:
        held, alive = fleet.at()
        owned = held["status"].to_pylist().count(IS_OWNER)
        if len(alive) == workers and owned == len(held):
            return ""
        return f"{len(alive)} workers own {owned} of {len(held)} clusters; expected {workers} workers and all."

    return lacks


def job_watch(client: Client, cluster: str, job: int) -> ServiceWatch[JobAnswer, JobProgress]:
    """Watch one job of a cluster."""

    def ask(at_us: int) -> JobAnswer:
        found = client.jobs(cluster, job)
        (own,) = found.jobs
        return JobAnswer(at_us, Job(**asdict(own)), found.servers)

    return ServiceWatch(ask, lambda answers: job_polled(cluster, answers))


def ended(progress: JobProgress) -> str:
    """Until a job has ended."""
    return "" if progress.job.state in ENDS else f"job {progress.job.id} is {progress.job.state}"
