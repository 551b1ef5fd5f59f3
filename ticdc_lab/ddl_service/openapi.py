"""The OpenAPI document of the HTTP API."""

from __future__ import annotations

from typing import Any

from ticdc_lab.simulate.ddl_service.records import STATUSES

_ERROR = {
    "description": "What is wrong, and a hint.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}


def _answers(schema: dict[str, Any] | None, *errors: int) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "Done."}
    if schema:
        good = {"description": "As this worker knows it.", "content": {"application/json": {"schema": schema}}}
    return {"200": good, **{str(status): _ERROR for status in (*errors, 401, 403, 503)}}


def _list_of(name: str) -> dict[str, Any]:
    return {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}}


_TEXT = {"type": "string"}
_SCHEDULE = {
    "type": "object",
    "properties": {"assigned_to": _TEXT, "status": {"type": "string", "enum": list(STATUSES)}},
}
_ONE = [{"name": "id", "in": "path", "required": True, "schema": _TEXT}]
_BODY = {
    "required": True,
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Registration"}}},
}

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "DDL as a Service", "version": "1"},
    "paths": {
        "/ddlservice/registered_clusters": {
            "get": {"summary": "All registered clusters", "responses": _answers(_list_of("Cluster"))}
        },
        "/ddlservice/registered_clusters/{id}": {
            "put": {
                "summary": "Register a cluster, or update it",
                "parameters": _ONE,
                "requestBody": _BODY,
                "responses": _answers({"$ref": "#/components/schemas/Cluster"}, 400, 409),
            },
            "delete": {
                "summary": "Unregister a cluster",
                "parameters": _ONE,
                "responses": _answers(None, 400, 404),
            },
        },
        "/ddlservice/worker_nodes": {"get": {"summary": "All worker nodes", "responses": _answers(_list_of("Worker"))}},
        "/metrics": {
            "get": {
                "summary": "Metrics in Prometheus' text format",
                "responses": {
                    "200": {"description": "Text.", "content": {"text/plain": {"schema": _TEXT}}},
                    "401": _ERROR,
                    "403": _ERROR,
                },
            }
        },
        "/openapi.json": {
            "get": {"summary": "This document", "responses": {"200": {"description": "Done."}, "401": _ERROR}}
        },
    },
    "security": [{}, {"secret": []}],
    "components": {
        "schemas": {
            "Registration": {
                "type": "object",
                "required": ["store_addr"],
                "additionalProperties": False,
                "properties": {
                    "store_addr": {"type": "string", "examples": ["tikv://192.168.1.100:2379"]},
                    "version": {"type": "string", "description": "Of the cluster; the service's own without it."},
                },
            },
            "Cluster": {"type": "object", "properties": {"id": _TEXT, "store_addr": _TEXT, "schedule": _SCHEDULE}},
            "Worker": {
                "type": "object",
                "properties": {
                    "id": _TEXT,
                    "assignments": {
                        "type": "array",
                        "items": {"type": "object", "properties": {"cluster_id": _TEXT, "schedule": _SCHEDULE}},
                    },
                },
            },
            "Error": {"type": "object", "properties": {"error": _TEXT, "hint": _TEXT}},
        },
        "securitySchemes": {"secret": {"type": "http", "scheme": "bearer"}},
    },
}
"""Served at ``/openapi.json``."""
