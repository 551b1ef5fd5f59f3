"""The HTTP API of a worker (proposal, "API"), on Starlette."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.json import schema_components
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.endpoints import HTTPEndpoint
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ticdc_lab.ddl_service import api, doorman
from ticdc_lab.ddl_service.bodies import (
    ClusterJobs,
    Ready,
    Refusal,
    RegisteredCluster,
    Registration,
    Removed,
    WorkerNode,
)
from ticdc_lab.ddl_service.doorman import Doorman
from ticdc_lab.ddl_service.metrics import Metrics
from ticdc_lab.ddl_service.node import Node
from ticdc_lab.simulate.ddl_service.connection import Mirror, is_over
from ticdc_lab.simulate.ddl_service.registering import Command, Outcome
from ticdc_lab.simulate.ddl_service.worker_state import Look, LookAtJobs, Unregister, is_taken, registered

MOST_BODY = 64 * 1024
LOOKS_S = 0.2
"""While a caller waits for the store, the worker's lease is looked at so often."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all requests need.

    Attributes
    ----------
    node, metrics
        The worker, and what it counts.
    hosts
        Names by which it may be called; None for any.
    secret
        What callers must know; None where they need not.
    doorman
        Knows the connections.
    """

    node: Node
    metrics: Metrics
    hosts: frozenset[str] | None = None
    secret: str | None = None
    doorman: Doorman = field(default_factory=Doorman)

    def check(self, headers: Headers) -> None:
        """Let in who may come in; a page in a browser that is led here under another name may not.

        Raises
        ------
        ApiError
            The caller may not.
        """
        host = _host_name(headers.get("host", ""))
        if self.hosts is not None and host not in self.hosts:
            what = f"this worker is not called {host}"
            raise api.ApiError(403, what, hint=f"Ask {' or '.join(sorted(self.hosts))}.")
        scheme, _, given = headers.get("authorization", "").partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
        if self.secret is not None and not hmac.compare_digest(given.encode(), self.secret.encode()):
            raise api.ApiError(401, "the shared secret is missing or wrong", hint="Send Authorization: Bearer SECRET.")

    def mirror(self) -> Mirror:
        """What the worker knows.

        Raises
        ------
        ApiError
            It has no session: it knows nothing.
        """
        state = self.node.state
        if state is not None and is_taken(state):
            what = f"another worker is {state.node}, or an earlier life of it whose session has not ended yet"
            raise api.ApiError(503, what, hint="Give each worker a --node-id of its own, or ask again.")
        if not self.has_session():
            raise api.ApiError(503, "this worker has no session with the service", hint="Ask again, or another worker.")
        known: Mirror = state.service.mirror
        return known

    def has_session(self) -> bool:
        """Whether the worker's lease is not over, by the clock and not by what the worker has noticed."""
        node, state = self.node, self.node.state
        if node.failed or state is None or registered(state) is None:
            return False
        return not is_over(state.service, node.time.now())

    async def done(self, command: Command) -> Outcome:
        """Have the worker carry something out, and give what the store has said."""
        asked = asyncio.wrap_future(self.node.ask(command))
        while not asked.done():
            await asyncio.wait({asked}, timeout=LOOKS_S)
            if not asked.done() and not self.has_session():
                break  # it is stopped, or waits for its store: what it knew is not known any more
        if asked.done() and not asked.cancelled():
            return api.well(asked.result())
        asked.cancel()
        what = "this worker has lost its session before the store's answer came"
        raise api.ApiError(503, what, hint="A change may have been written: look at the list, at another worker.")

    async def seen(self) -> Mirror:
        """What the store holds now."""
        self.mirror()
        outcome = await self.done(Look(api.new_request()))
        assert outcome.seen is not None
        return outcome.seen


def _host_name(host: str) -> str:
    """Give the name in a ``Host`` header, without its port."""
    return host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0].lower()


def said(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Answer with JSON, which no browser may take for anything else."""
    text = msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n"
    return Response(text, status, {"X-Content-Type-Options": "nosniff", **(headers or {})}, "application/json")


_CLOSE = {"Connection": "close"}
_HEADERS = {401: {"WWW-Authenticate": "Bearer", **_CLOSE}, 403: _CLOSE, 408: _CLOSE, 413: _CLOSE}
"""By status; what of a body has not come by then is not waited for."""


def refused(_: Any, error: Exception) -> Response:
    """Answer what is refused, has no place, or has failed."""
    if isinstance(error, api.ApiError):
        return said(Refusal(error.message, error.hint), error.status, _HEADERS.get(error.status))
    if isinstance(error, HTTPException):
        return said(Refusal(error.detail, "See /openapi.json."), error.status_code, dict(error.headers or {}))
    return said(Refusal("this worker has failed to answer", "Look at its log."), 500)


class _Door:
    """In front of everything: who may not come in is answered here."""

    def __init__(self, app: ASGIApp, shared: Shared) -> None:
        self._app, self._shared = app, shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._shared.check(Headers(scope=scope))
        except api.ApiError as error:
            await refused(None, error)(scope, receive, send)
            return
        self._shared.doorman.let_in(scope.get("client"))
        await self._app(scope, receive, send)


class _Clusters(HTTPEndpoint):
    async def get(self, request: Request) -> Response:
        return said(api.clusters(await _shared(request).seen()))


class _Cluster(HTTPEndpoint):
    async def get(self, request: Request) -> Response:
        cluster, seen = api.checked_id(request.path_params["id"]), await _shared(request).seen()
        known = api.registered(seen).get(cluster)
        if known is None:
            raise api.ApiError(404, f"{cluster} is not registered", hint="Ask for all: see /openapi.json.")
        return said(api.cluster(seen, cluster, known))

    async def put(self, request: Request) -> Response:
        cluster, shared = api.checked_id(request.path_params["id"]), _shared(request)
        wanted = api.registration(cluster, await _body(request))
        known = shared.mirror()
        outcome = await shared.done(wanted)
        assert outcome.cluster is not None
        return said(api.cluster(known, cluster, outcome.cluster))

    async def delete(self, request: Request) -> Response:
        cluster, shared = api.checked_id(request.path_params["id"]), _shared(request)
        shared.mirror()
        force = request.query_params.get("force", "false")
        if force not in ("true", "false"):
            raise api.ApiError(400, f"force is {force!r}", hint="Write force=true or force=false.")
        await shared.done(Unregister(cluster, api.new_request(), if_idle=force == "false"))
        return said(Removed(cluster))


class _Jobs(HTTPEndpoint):
    async def get(self, request: Request) -> Response:
        cluster, shared = api.checked_id(request.path_params["id"]), _shared(request)
        job = request.path_params.get("job", 0)
        shared.mirror()
        outcome = await shared.done(LookAtJobs(cluster, job, api.new_request()))
        assert outcome.seen is not None
        return said(api.jobs(outcome.seen, job))


class _Workers(HTTPEndpoint):
    async def get(self, request: Request) -> Response:
        return said(api.workers(await _shared(request).seen()))


class _Ready(HTTPEndpoint):
    async def get(self, request: Request) -> Response:
        """Say whether the worker can do its work: it has a session, and its store takes what it writes."""
        shared = _shared(request)
        if trouble := shared.node.trouble:  # also where it has cost the worker its session
            what = f"the store takes no changes: {trouble}"
            raise api.ApiError(503, what, hint="Does it answer, and is there room for it?")
        shared.mirror()
        return said(Ready(True))


class _Metrics(HTTPEndpoint):
    async def get(self, request: Request) -> Response:
        shared = _shared(request)
        shared.metrics.store(shared.node.trouble, shared.node.time.skew_us)
        return Response(shared.metrics.text(), media_type="text/plain; version=0.0.4")


class _Document(HTTPEndpoint):
    async def get(self, request: Request) -> Response:
        return said(DOCUMENT)


def _shared(request: Request) -> Shared:
    shared: Shared = request.app.state.shared
    return shared


async def _body(request: Request) -> bytes:
    """Read a body that is neither too long nor too slow."""
    found = bytearray()
    try:
        async with asyncio.timeout(doorman.BODY_S):
            async for part in request.stream():
                found += part
                if len(found) > MOST_BODY:
                    raise api.ApiError(413, "the body is too long", hint=f"At most {MOST_BODY:,} bytes.")
    except (TimeoutError, ClientDisconnect):
        raise api.ApiError(408, "the body has not come", hint="Send it at once.") from None
    return bytes(found)


def application(shared: Shared) -> Starlette:
    """Give the API."""
    handlers: dict[Any, Callable[[Request, Exception], Response]] = {
        api.ApiError: refused, HTTPException: refused, Exception: refused,
    }  # fmt: skip
    app = Starlette(
        routes=[
            Route("/ddlservice/registered_clusters", _Clusters),
            Route("/ddlservice/registered_clusters/{id}", _Cluster),
            Route("/ddlservice/registered_clusters/{id}/jobs", _Jobs),
            Route("/ddlservice/registered_clusters/{id}/jobs/{job:int}", _Jobs),
            Route("/ddlservice/worker_nodes", _Workers),
            Route("/metrics", _Metrics),
            Route("/ready", _Ready),
            Route("/openapi.json", _Document),
        ],
        middleware=[Middleware(_Door, shared=shared)],
        exception_handlers=handlers,
    )
    app.router.redirect_slashes = False
    app.state.shared = shared
    return app


# The OpenAPI document of the HTTP API; what bodies look like is read off :mod:`ticdc_lab.ddl_service.bodies`.

_BODIES = (
    Registration,
    RegisteredCluster,
    list[RegisteredCluster],
    list[WorkerNode],
    ClusterJobs,
    Removed,
    Ready,
    Refusal,
)
_SCHEMAS, _COMPONENTS = schema_components(_BODIES, ref_template="#/components/schemas/{name}")
_SCHEMA_OF = dict(zip(map(str, _BODIES), _SCHEMAS, strict=True))
_TEXT = {"type": "string"}


def _json(body: Any) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": _SCHEMA_OF[str(body)]}}}


_REFUSED = {"description": "What is wrong, and a hint.", **_json(Refusal)}
_KEPT_OUT = {"401": _REFUSED, "403": _REFUSED, "default": _REFUSED}
_ID: dict[str, Any] = {"name": "id", "in": "path", "required": True, "schema": _TEXT}
_ONE = {"parameters": [_ID]}
_JOB = {"parameters": [_ID, {**_ID, "name": "job", "schema": {"type": "integer"}}]}
_FORCE = {
    "name": "force",
    "in": "query",
    "description": "Also where jobs are in the cluster's queue: they stay there.",
    "schema": {"type": "boolean", "default": False},
}


def _operation(summary: str, answer: Any, *refused: int, **more: Any) -> dict[str, Any]:
    good = {"200": {"description": "As the store has it now.", **_json(answer)}}
    bad = {str(status): _REFUSED for status in (*refused, 503)}
    return {"summary": summary, **more, "responses": {**good, **bad, **_KEPT_OUT}}


def _plain(summary: str, kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    good = {"200": {"description": summary, "content": {kind: {"schema": schema}}}}
    return {"summary": summary, "responses": {**good, **_KEPT_OUT}}


DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "DDL as a Service", "version": "1"},
    "paths": {
        "/ddlservice/registered_clusters": {"get": _operation("All registered clusters", list[RegisteredCluster])},
        "/ddlservice/registered_clusters/{id}": {
            **_ONE,
            "get": _operation("One registered cluster", RegisteredCluster, 400, 404),
            "put": _operation(
                "Register a cluster, or update it", RegisteredCluster, 400, 408, 409, 413,
                requestBody={"required": True, **_json(Registration)},
            ),
            "delete": _operation("Unregister a cluster", Removed, 400, 404, 409, parameters=[_FORCE]),
        },
        "/ddlservice/registered_clusters/{id}/jobs": {
            **_ONE,
            "get": _operation("Jobs in the cluster's queue", ClusterJobs, 400, 404),
        },
        "/ddlservice/registered_clusters/{id}/jobs/{job}": {
            **_JOB,
            "get": _operation("One job, also one that has ended", ClusterJobs, 400, 404),
        },
        "/ddlservice/worker_nodes": {"get": _operation("All worker nodes", list[WorkerNode])},
        "/ready": {"get": _operation("Whether the worker has a session, and its store takes changes", Ready)},
        "/metrics": {"get": _plain("Metrics in Prometheus' text format", "text/plain", _TEXT)},
        "/openapi.json": {"get": _plain("This document, OpenAPI 3.1", "application/json", {"type": "object"})},
    },
    "security": [{}, {"secret": []}],
    "components": {"schemas": _COMPONENTS, "securitySchemes": {"secret": {"type": "http", "scheme": "bearer"}}},
}  # fmt: skip
"""Served at ``/openapi.json``."""
