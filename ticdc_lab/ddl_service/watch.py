"""Look at a running service through its HTTP API, time after time, as figures of a fleet need it."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.simulate.ddl_service.fleet import Fleet, fleet_polled

_TIMEOUT_S = 5.0
Answer = tuple[int, Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]


class UnreachableServiceError(TiCDCLabError):
    """No worker of a service answers."""


class Watch:
    """A service that is looked at.

    Parameters
    ----------
    urls
        Of workers, ``http://127.0.0.1:10080``; the first that answers is believed, for all know the same.
    secret
        What callers must know, if they must.
    keep
        Answers that are kept, the oldest go first.
    """

    def __init__(self, *urls: str, secret: str | None = None, keep: int = 10_000) -> None:
        self.urls = list(urls)
        self._headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        self._keep = keep
        self._since_s = time.monotonic()
        self.answers: list[Answer] = []

    def look(self) -> Fleet:
        """Ask once more, and give the fleet since the first time.

        Raises
        ------
        UnreachableServiceError
            No worker answers, or none has a session with its store.
        """
        why = []
        for url in self.urls:
            try:
                workers, clusters = (self._get(f"{url}/ddlservice/{what}") for what in _LISTS)
            except (OSError, ValueError) as error:
                why.append(f"{url}: {error}")
                continue
            self.answers.append((int(1e6 * (time.monotonic() - self._since_s)), workers, clusters))
            del self.answers[: -self._keep]
            return fleet_polled(self.answers)
        raise UnreachableServiceError(
            f"no worker answers: {'; '.join(why) or 'none was named'}.", hint="Give the address of a worker that lives."
        )

    def _get(self, url: str) -> list[dict[str, Any]]:
        request = urllib.request.Request(url, headers=self._headers)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            found: list[dict[str, Any]] = orjson.loads(answer.read())
        return found


_LISTS = ("worker_nodes", "registered_clusters")
