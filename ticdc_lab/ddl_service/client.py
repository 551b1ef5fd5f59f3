"""A client of the HTTP API: any worker of the service answers for all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson
import requests

from ticdc_lab.errors import TiCDCLabError

ANSWERS_S = 20.0
CLUSTERS = "ddlservice/registered_clusters"
DEFAULT = "http://127.0.0.1:10080"


class ServiceError(TiCDCLabError):
    """The service refused, or no worker answered; ``status`` is that of HTTP, 0 without an answer."""

    def __init__(self, status: int, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


class Schedule(NamedTuple):
    """The worker a cluster is assigned to (empty: none), and ``SCHEDULING``, ``CAMPAIGNING`` or ``OWNER``."""

    assigned_to: str
    status: str


class RegisteredCluster(NamedTuple):
    """A registered cluster."""

    id: str
    store_addr: str
    schedule: Schedule


class WorkerNode(NamedTuple):
    """A worker, and the schedule of each cluster that is assigned to it."""

    id: str
    assignments: tuple[tuple[str, Schedule], ...]


class Client:
    """Talks to a service.

    Parameters
    ----------
    urls
        Of its workers; the next is asked where one does not answer or has no session.
    secret
        What the workers ask for.
    ca
        A file of certificates by which those of the workers must be signed.
    certificate
        Files of the caller's own certificate and its key.

    Raises
    ------
    ServiceError
        By each method: the service refused, or no worker answered.
    """

    def __init__(
        self,
        urls: str | Sequence[str] = DEFAULT,
        *,
        secret: str | None = None,
        ca: Path | None = None,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        self._urls = [urls] if isinstance(urls, str) else list(urls)
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy in the environment is not meant for this
        self._session.verify = str(ca) if ca else True
        if certificate:
            self._session.cert = str(certificate[0]), str(certificate[1])
        if secret:
            self._session.headers["Authorization"] = f"Bearer {secret}"

    def register(self, cluster: str, store_addr: str, *, version: str | None = None) -> RegisteredCluster:
        """Register a cluster, or update it; ``version`` is that of its tidb-servers, the service's own without it."""
        body = {"store_addr": store_addr} | ({"version": version} if version else {})
        return _cluster(self._ask("PUT", f"{CLUSTERS}/{quote(cluster, safe='')}", orjson.dumps(body)).json())

    def remove(self, cluster: str) -> None:
        """Unregister a cluster."""
        self._ask("DELETE", f"{CLUSTERS}/{quote(cluster, safe='')}")

    def clusters(self) -> list[RegisteredCluster]:
        """Give all registered clusters."""
        return [_cluster(found) for found in self._ask("GET", CLUSTERS).json()]

    def workers(self) -> list[WorkerNode]:
        """Give all workers that have a session."""
        return [
            WorkerNode(w["id"], tuple((a["cluster_id"], Schedule(**a["schedule"])) for a in w["assignments"]))
            for w in self._ask("GET", "ddlservice/worker_nodes").json()
        ]

    def metrics(self) -> str:
        """Give what one worker has counted, in Prometheus' text format."""
        return self._ask("GET", "metrics").text

    def _ask(self, method: str, path: str, body: bytes | None = None) -> requests.Response:
        last = ServiceError(0, "there is no worker to ask", hint="Give the address of one.")
        for url in self._urls:
            try:
                answer = self._session.request(method, f"{url.rstrip('/')}/{path}", data=body, timeout=ANSWERS_S)
            except requests.RequestException as error:
                last = ServiceError(0, f"no worker answers at {url}: {error}", hint="Does `ddl-service serve` run?")
                continue
            if answer.status_code == 200:
                return answer
            last = _refused(answer)
            if last.status != 503:
                break
        raise last


def _refused(answer: requests.Response) -> ServiceError:
    try:
        said: Any = answer.json()
        return ServiceError(answer.status_code, said["error"], hint=said["hint"])
    except (ValueError, KeyError, TypeError):
        return ServiceError(answer.status_code, f"{answer.url} answers {answer.status_code}, and is no worker")


def _cluster(found: Any) -> RegisteredCluster:
    return RegisteredCluster(found["id"], found["store_addr"], Schedule(**found["schedule"]))
