"""Look at a running service through its HTTP API, time after time, as figures of a fleet need it."""

from __future__ import annotations

import time

from msgspec.structs import asdict

from ticdc_lab.ddl_service.client import Client, ServiceError
from ticdc_lab.simulate.ddl_service.fleet import Answer, Fleet, fleet_polled
from ticdc_lab.simulate.ddl_service.progress import JobAnswer, JobProgress, job_polled
from ticdc_lab.simulate.ddl_service.records import ENDS, IS_OWNER, Job


class JobWatch:
    """One job of a running service that is looked at.

    Parameters
    ----------
    client
        Asks the service.
    cluster, job
        Which one.
    keep
        Answers that are kept; the oldest go first.
    """

    def __init__(self, client: Client, cluster: str, job: int, *, keep: int = 10_000) -> None:
        self._client, self._cluster, self._number, self._keep = client, cluster, job, keep
        self._since_s = time.monotonic()
        self.answers: list[JobAnswer] = []

    def look(self) -> JobProgress:
        """Ask once more, and give the job since the first time.

        Raises
        ------
        ServiceError
            There is no such job, or no worker answers.
        """
        found = self._client.jobs(self._cluster, self._number)
        (own,) = found.jobs
        job = Job(**asdict(own))
        self.answers.append(JobAnswer(int(1e6 * (time.monotonic() - self._since_s)), job, found.servers))
        del self.answers[: -self._keep]
        return job_polled(self._cluster, self.answers)

    def ended(self, *, within_s: float = 60.0, every_s: float = 0.05) -> JobProgress:
        """Look until the job has ended.

        Raises
        ------
        ServiceError
            It has not in time.
        """
        end_s = time.monotonic() + within_s
        while (progress := self.look()).job.state not in ENDS:
            if time.monotonic() > end_s:
                raise ServiceError(200, f"after {within_s:g} s job {self._number} is {progress.job.state}")
            time.sleep(every_s)
        return progress


class Watch:
    """A service that is looked at.

    Parameters
    ----------
    client
        Asks it.
    keep
        Answers that are kept; the oldest go first.
    """

    def __init__(self, client: Client, *, keep: int = 10_000) -> None:
        self._client = client
        self._keep = keep
        self._since_s = time.monotonic()
        self.answers: list[Answer] = []

    def look(self) -> Fleet:
        """Ask once more for workers and clusters, and give the fleet since the first time.

        Raises
        ------
        ServiceError
            No worker answers, or none has a session with its store.
        """
        workers = tuple(w.id for w in self._client.workers())
        clusters = tuple((c.id, c.schedule.assigned_to, c.schedule.status) for c in self._client.clusters())
        self.answers.append(Answer(int(1e6 * (time.monotonic() - self._since_s)), workers, clusters))
        del self.answers[: -self._keep]
        return fleet_polled(self.answers)

    def settled(self, *, workers: int, within_s: float = 60.0, every_s: float = 0.1) -> Fleet:
        """Look until there are so many workers, and every cluster has an owner.

        Raises
        ------
        ServiceError
            It did not come to that in time; or no worker answers even then.
        """
        end_s = time.monotonic() + within_s
        while True:
            is_late = time.monotonic() > end_s
            try:
                fleet = self.look()
            except ServiceError as error:
                if is_late or error.status not in (0, 503):
                    raise
            else:
                held, _ = fleet.at()
                n = len(self.answers[-1].workers)
                if n == workers and (held["status"] == IS_OWNER).all():
                    return fleet
                if is_late:
                    owned = int((held["status"] == IS_OWNER).sum())
                    what = f"{n} workers own {owned} of {len(held)} clusters"
                    raise ServiceError(200, f"after {within_s:g} s {what}; expected {workers} workers and all.")
            time.sleep(every_s)
