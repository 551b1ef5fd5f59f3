"""The HTTP API of a worker (seed, "API"), on tornado."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from tornado.web import Application, RequestHandler

from ticdc_lab.ddl_service import api
from ticdc_lab.ddl_service.metrics import Metrics
from ticdc_lab.ddl_service.node import Node
from ticdc_lab.ddl_service.openapi import DOCUMENT
from ticdc_lab.simulate.ddl_service import keys
from ticdc_lab.simulate.ddl_service.mirror import Mirror
from ticdc_lab.simulate.ddl_service.versions import Versions
from ticdc_lab.simulate.ddl_service.worker_state import Register, Unregister, registered

WRITES_S = 5.0
"""How long a change may take before the client is told to ask again."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all handlers need.

    Attributes
    ----------
    node, metrics, versions
        The worker, what it counts, what it supports.
    hosts
        Names by which it may be called; None for any.
    secret
        What callers must know; None where they need not.
    """

    node: Node
    metrics: Metrics
    versions: Versions
    hosts: frozenset[str] | None = None
    secret: str | None = None


class _Handler(RequestHandler):
    def initialize(self, shared: Shared) -> None:
        self.shared = shared

    def prepare(self) -> None:
        """Let in who may come in; a page in a browser that is led here under another name may not."""
        self.set_header("Content-Type", "application/json")
        shared = self.shared
        if shared.hosts is not None and self.request.host_name not in shared.hosts:
            raise api.ApiError(403, f"this worker is not called {self.request.host_name}")
        given = self.request.headers.get("Authorization", "").removeprefix("Bearer ")
        if shared.secret is not None and not hmac.compare_digest(given.encode(), shared.secret.encode()):
            self.set_header("WWW-Authenticate", "Bearer")
            raise api.ApiError(401, "the shared secret is missing or wrong", hint="Send Authorization: Bearer SECRET.")

    def mirror(self) -> Mirror:
        """What the worker knows."""
        state = self.shared.node.state
        if state is None or registered(state) is None or state.service.mirror is None:
            raise api.ApiError(503, "this worker has no session with the service", hint="Ask again, or another worker.")
        known: Mirror = state.service.mirror
        return known

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = (kwargs.get("exc_info") or (None, None))[1]
        if isinstance(error, api.ApiError):
            self.set_status(error.status)
            self.say({"error": error.message, "hint": error.hint})
        else:
            self.say({"error": self._reason, "hint": "See /openapi.json."})

    def say(self, answer: Any) -> None:
        """Answer with JSON."""
        self.finish(orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_INDENT_2))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        if not isinstance(value, api.ApiError):
            super().log_exception(typ, value, tb)

    async def until(self, holds: Callable[[Mirror], bool], what: str) -> None:
        """Wait until this worker sees a change in the service's store."""
        end_s = time.monotonic() + WRITES_S
        while not holds(self.mirror()):
            if time.monotonic() > end_s:
                raise api.ApiError(503, f"{what} is not confirmed", hint="Ask again: it may yet have been written.")
            await asyncio.sleep(0.01)


class _Clusters(_Handler):
    def get(self) -> None:
        self.say(api.clusters(self.mirror()))


class _Cluster(_Handler):
    async def put(self, name: str) -> None:
        cluster = api.checked_id(name)
        before = api.registered(self.mirror())
        wanted = api.registration(cluster, self.request.body, before, self.shared.versions)
        if before.get(cluster) != wanted:
            self.shared.node.post(Register(cluster, *wanted))
            await self.until(lambda m: api.registered(m).get(cluster) == wanted, f"the registration of {cluster}")
        self.say(next(c for c in api.clusters(self.mirror()) if c["id"] == cluster))

    async def delete(self, name: str) -> None:
        cluster = api.checked_id(name)
        if cluster not in self.mirror().under(keys.REGISTERS):
            raise api.ApiError(
                404, f"{cluster} is not registered", hint="GET /ddlservice/registered_clusters lists all."
            )
        self.shared.node.post(Unregister(cluster))
        await self.until(lambda m: cluster not in m.under(keys.REGISTERS), f"the removal of {cluster}")
        self.say({"id": cluster})


class _Workers(_Handler):
    def get(self) -> None:
        self.say(api.workers(self.mirror()))


class _Metrics(_Handler):
    def get(self) -> None:
        self.set_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.finish(self.shared.metrics.text())


class _Document(_Handler):
    def get(self) -> None:
        self.say(DOCUMENT)


class _Nothing(_Handler):
    def prepare(self) -> None:
        super().prepare()
        raise api.ApiError(404, f"there is nothing at {self.request.path}", hint="See /openapi.json.")


def application(shared: Shared) -> Application:
    """Give the API."""
    own = {"shared": shared}
    return Application(
        [
            (r"/ddlservice/registered_clusters", _Clusters, own),
            (r"/ddlservice/registered_clusters/([^/]*)", _Cluster, own),
            (r"/ddlservice/worker_nodes", _Workers, own),
            (r"/metrics", _Metrics, own),
            (r"/openapi.json", _Document, own),
        ],
        default_handler_class=_Nothing,
        default_handler_args=own,
        log_function=lambda _: None,
    )
