"""The HTTP API of a worker (proposal, "API"), on Starlette, and the doorman, who lets few strangers in at a time."""

from __future__ import annotations

import asyncio
import errno
import hmac
import logging
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import h11
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
from uvicorn.protocols.http.h11_impl import H11Protocol

from ticdc_lab.ddl_core.connection import Mirror, is_over
from ticdc_lab.ddl_core.registering import Command, WishOutcome
from ticdc_lab.ddl_core.worker_state import Look, LookAtJobs, Unregister, is_taken, registered
from ticdc_lab.ddl_service import api
from ticdc_lab.ddl_service.api import (
    ClusterJobs,
    Ready,
    Refusal,
    RegisteredCluster,
    Registration,
    Removed,
    WorkerNode,
)
from ticdc_lab.ddl_service.metrics import Metrics
from ticdc_lab.ddl_service.node import Node

MOST_GUESTS = 100
"""Connections that have not yet sent a request that was let in; one more, and the oldest of them is closed."""
MOST_MEMBERS = 400
"""Connections that have; one more, and that which was used longest ago is closed."""
IDLE_S = 30.0
"""Between requests, and until the head of one has come."""
BODY_S = 15.0
"""Until the body of one has come."""
HANDSHAKE_S = 5.0
"""Until TLS is agreed on; before that a connection has no user."""
SAYS_AGAIN_S = 60.0
LOG = logging.getLogger("ticdc_lab.ddl_service")


class Doorman:
    """Knows the connections of a worker: strangers can neither use them up nor fill its log."""

    def __init__(self) -> None:
        self._guests: OrderedDict[Any, Connection] = OrderedDict()
        self._members: OrderedDict[Any, Connection] = OrderedDict()
        self._said_s = -SAYS_AGAIN_S

    def connection(self, *args: Any, **kwargs: Any) -> Connection:
        """Begin a connection, as the server asks for it."""
        return Connection(self, *args, **kwargs)

    def take(self, connection: Connection) -> None:
        """Take a connection, and close the oldest that has shown nothing where there are too many."""
        self._guests[connection.client] = connection
        self._close_oldest(self._guests, MOST_GUESTS)

    def let_in(self, client: Any) -> None:
        """Know a connection, by the caller's address, as one of a caller that may come in."""
        connection = self._guests.pop(client, None) or self._members.pop(client, None)
        if connection is not None:
            self._members[client] = connection
            self._close_oldest(self._members, MOST_MEMBERS)

    def left(self, client: Any) -> None:
        """Forget a connection."""
        self._guests.pop(client, None)
        self._members.pop(client, None)

    def failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take what the event loop could not do: of files that have run out a line a minute, and room is made."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
            return
        self._close_oldest(self._guests, max(0, len(self._guests) - 1))
        if time.monotonic() - self._said_s >= SAYS_AGAIN_S:
            self._said_s = time.monotonic()
            LOG.warning("no connection can be taken: %s; raise the limit of open files (ulimit -n)", error.strerror)

    @staticmethod
    def _close_oldest(connections: OrderedDict[Any, Connection], most: int) -> None:
        while len(connections) > most:
            connections.popitem(last=False)[1].transport.abort()


class Connection(H11Protocol):
    """A connection that is closed where no request comes on it, and whose every answer is JSON."""

    def __init__(self, doorman: Doorman, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._doorman = doorman
        self._waits: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the head of a request."""
        super().connection_made(transport)
        # asyncio does so for some sockets only; without it each answer waits 40 ms for the last one's acknowledgement
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._doorman.take(self)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._doorman.left(self.client)
        self._unwait()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; a part of a head does not prolong the time for all of it."""
        super().data_received(data)
        if not self.is_idle:
            self._unwait()
        elif self._waits is None:
            self._wait()

    def _wait(self) -> None:
        self._waits = self.loop.call_later(IDLE_S, self._too_late)

    def _unwait(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def _too_late(self) -> None:
        self._waits = None
        if self.is_idle:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, in the form of all refusals."""
        body = msgspec.json.encode(Refusal(f"this is no request of HTTP: {msg}", "See /openapi.json."))
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


MOST_BODY = 64 * 1024
_DIGITS = 19
LOOKS_S = 0.2
"""While a caller waits for the store, the worker's lease is looked at so often."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all requests need."""

    # ``node``, ``metrics``: the worker, and what it counts.
    node: Node
    metrics: Metrics
    hosts: frozenset[str] | None = None  # names by which it may be called; None for any
    secret: str | None = None  # what callers must know; None where they need not
    doorman: Doorman = field(default_factory=Doorman)  # knows the connections

    def check(self, headers: Headers) -> None:
        """Let in who may come in; a page in a browser that is led here under another name may not.

        Raises ApiError: the caller may not.
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
        """What the worker knows. Raises ApiError: it has no session: it knows nothing."""
        state = self.node.state
        if state is not None and is_taken(state):
            what = f"another worker is {state.node}, or an earlier life of it whose session has not ended yet"
            raise api.ApiError(503, what, hint="Give each worker a --node-id of its own, or ask again.")
        if self.node.remedy:
            raise api.ApiError(503, self.node.trouble, hint=self.node.remedy)
        if not self.has_session():
            raise api.ApiError(
                503,
                "this worker has no session with the service",
                hint="Send the request again, or to another worker: ticdc-lab ddl-service workers",
            )
        known: Mirror = state.service.mirror
        return known

    def has_session(self) -> bool:
        """Whether the worker's lease is not over, by the clock and not by what the worker has noticed."""
        node, state = self.node, self.node.state
        if node.failed or state is None or registered(state) is None:
            return False
        return not is_over(state.service, node.time.now())

    async def done(self, command: Command) -> WishOutcome:
        """Have the worker carry something out, and give the store's answer."""
        asked = asyncio.wrap_future(self.node.ask(command))
        while not asked.done():
            await asyncio.wait({asked}, timeout=LOOKS_S)
            if not asked.done() and not self.has_session():
                break  # it is stopped, or waits for its store: what it knew is not known any more
        if asked.done() and not asked.cancelled():
            return api.well(asked.result())
        asked.cancel()
        what = "this worker has lost its session before the store's answer came"
        raise api.ApiError(
            503, what, hint="A change may have been written: list the jobs at another worker, GET `/jobs`"
        )

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
        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            # where its body ends is not known: the rest may be another client's request (RFC 9112, 6.1)
            what = Refusal("the request has Content-Length and Transfer-Encoding", "Send one of them.")
            await said(what, 400, _CLOSE)(scope, receive, send)
            return
        try:
            self._shared.check(headers)
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
        job = _job(request.path_params.get("job", "0"))
        shared.mirror()
        outcome = await shared.done(LookAtJobs(cluster, job, api.new_request()))
        assert outcome.seen is not None
        return said(api.jobs(outcome.seen, job))


def _job(text: str) -> int:
    """Read the number of a job; no job has another name, or a number of more digits."""
    if not (text.isascii() and text.isdecimal() and len(text) < _DIGITS):
        raise api.ApiError(404, "there is no such job: its id is a number", hint="Leave the `id` out to list all.")
    return int(text)


class _Workers(HTTPEndpoint):
    async def get(self, request: Request) -> Response:
        return said(api.workers(await _shared(request).seen()))


class _Ready(HTTPEndpoint):
    async def get(self, request: Request) -> Response:
        """Report whether the worker can do its work: it has a session, and its store takes what it writes."""
        shared = _shared(request)
        if trouble := shared.node.trouble:  # also where it has cost the worker its session
            what = f"the store takes no changes: {trouble}"
            raise api.ApiError(
                503,
                what,
                hint=shared.node.remedy or "Check the disk of its store, or etcd: df -h; etcdctl endpoint health",
            )
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
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                found += part
                if len(found) > MOST_BODY:
                    raise api.ApiError(413, "the body is too long", hint=f"At most {MOST_BODY:,} bytes.")
    except (TimeoutError, ClientDisconnect):
        raise api.ApiError(
            408, "the body did not arrive", hint="Send the body at once, with its `Content-Length`."
        ) from None
    return bytes(found)


def application(shared: Shared) -> Starlette:
    handlers: dict[Any, Callable[[Request, Exception], Response]] = {
        api.ApiError: refused, HTTPException: refused, Exception: refused,
    }  # fmt: skip
    app = Starlette(
        routes=[
            Route("/ddlservice/registered_clusters", _Clusters),
            Route("/ddlservice/registered_clusters/{id}", _Cluster),
            Route("/ddlservice/registered_clusters/{id}/jobs", _Jobs),
            Route("/ddlservice/registered_clusters/{id}/jobs/{job}", _Jobs),
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


# The OpenAPI document of the HTTP API; what bodies look like is read off :mod:`ticdc_lab.ddl_service.api`.

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
