"""The OpenAPI document of the HTTP API; what bodies look like is read off :mod:`ticdc_lab.ddl_service.bodies`."""

from __future__ import annotations

from typing import Any

from msgspec.json import schema_components

from ticdc_lab.ddl_service.bodies import (
    ClusterJobs,
    Ready,
    Refusal,
    RegisteredCluster,
    Registration,
    Removed,
    WorkerNode,
)

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
