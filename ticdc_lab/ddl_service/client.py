"""A client of the HTTP API: any worker of the service answers for all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec
import requests

from ticdc_lab.ddl_service.api import ClusterJobs, Refusal, RegisteredCluster, Registration, WorkerNode
from ticdc_lab.errors import TiCDCLabError

T = TypeVar("T")

ANSWERS_S = 20.0
CLUSTERS = "ddlservice/registered_clusters"
DEFAULT = "http://127.0.0.1:10080"


class ServiceError(TiCDCLabError):
    """The service refused, or no worker answered; ``status`` is HTTP's, 0 without an answer."""

    def __init__(self, status: int, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


class Client:
    """Talks to a service.

    Parameters
    ----------
    urls
        Of its workers; the next is asked where one does not answer or has no session.
    secret
        What the workers ask for.
    ca
        A file of certificates that must have signed the workers'.
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
        """Register a cluster, or update it.

        Without ``version`` the cluster is asked; one without it keeps its own, a new one gets the newest that all
        workers serve.
        """
        body = msgspec.json.encode(Registration(store_addr, version))
        return self._asked("PUT", f"{CLUSTERS}/{quote(cluster, safe='')}", RegisteredCluster, body)

    def remove(self, cluster: str, *, force: bool = False) -> None:
        """Unregister a cluster; with ``force`` also one that has jobs in its queue, where they stay."""
        self._ask("DELETE", f"{CLUSTERS}/{quote(cluster, safe='')}" + ("?force=true" if force else ""))

    def clusters(self) -> list[RegisteredCluster]:
        """Give all registered clusters."""
        return self._asked("GET", CLUSTERS, list[RegisteredCluster])

    def jobs(self, cluster: str, job: int = 0) -> ClusterJobs:
        """Give the jobs in a cluster's queue, or one job, also one that has ended."""
        path = f"{CLUSTERS}/{quote(cluster, safe='')}/jobs" + (f"/{job}" if job else "")
        return self._asked("GET", path, ClusterJobs)

    def workers(self) -> list[WorkerNode]:
        """Give all workers that have a session."""
        return self._asked("GET", "ddlservice/worker_nodes", list[WorkerNode])

    def metrics(self) -> str:
        """Give what one worker has counted, in Prometheus' text format."""
        return self._ask("GET", "metrics").text

    def _asked(self, method: str, path: str, kind: type[T], body: bytes | None = None) -> T:
        answer = self._ask(method, path, body)
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.DecodeError as error:
            raise ServiceError(answer.status_code, f"{answer.url} answers as no worker does: {error}") from None

    def _ask(self, method: str, path: str, body: bytes | None = None) -> requests.Response:
        last = ServiceError(0, "there is no worker to ask", hint="Give the address of one with --url.")
        for url in self._urls:
            try:
                answer = self._session.request(method, f"{url.rstrip('/')}/{path}", data=body, timeout=ANSWERS_S)
            except requests.RequestException as error:
                hint = "Start a worker: ticdc-lab ddl-service serve --listen 127.0.0.1:10080"
                last = ServiceError(0, f"no worker answers at {url}: {_why(error)}", hint=hint)
                continue
            if answer.status_code == 200:
                return answer
            last = _refused(answer)
            if last.status != 503:
                break
        raise last


def _why(error: requests.RequestException) -> str:
    """The system's message, out of the libraries' wrapping; the kind alone if there is none."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        reason = getattr(cause, "reason", None) or next((a for a in cause.args if isinstance(a, Exception)), None)
        cause = cause.__cause__ or cause.__context__ or (reason if isinstance(reason, BaseException) else None)
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()


def _refused(answer: requests.Response) -> ServiceError:
    try:
        said = msgspec.json.decode(answer.content, type=Refusal)
    except msgspec.DecodeError:
        return ServiceError(answer.status_code, f"{answer.url} answers {answer.status_code}, and is no worker")
    return ServiceError(answer.status_code, said.error, hint=said.hint)
