"""Look at a running service through its HTTP API, time after time, as figures of a fleet need it."""

from __future__ import annotations

import time

from ticdc_lab.ddl_service.client import Client
from ticdc_lab.simulate.ddl_service.fleet import Answer, Fleet, fleet_polled


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
