"""What the HTTP API answers, as functions of what a worker knows (seed, "API")."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import orjson

from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.simulate.ddl_service import keys, records
from ticdc_lab.simulate.ddl_service.mirror import Mirror
from ticdc_lab.simulate.ddl_service.records import SCHEDULING, Cluster
from ticdc_lab.simulate.ddl_service.versions import Versions, unsupported

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_TRAILING_COMMA = re.compile(rb",(?=\s*\}\s*$)")
_KNOWN = ("store_addr", "version")


class ApiError(TiCDCLabError):
    """A request that cannot be answered; ``status`` is that of HTTP."""

    def __init__(self, status: int, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status, self.hint = status, hint


def checked_id(text: str) -> str:
    """Give the id of a cluster, if it is one."""
    if not _ID.fullmatch(text):
        raise ApiError(
            400,
            f"{text!r} is no cluster id",
            hint="Letters, digits, '_', '.', '-'; a letter or digit first; at most 128.",
        )
    return text


def registration(cluster: str, body: bytes, registered: Mapping[str, Cluster], versions: Versions) -> Cluster:
    """Read the body of a PUT; the comma before the closing brace that the proposal's example has is allowed.

    Raises
    ------
    ApiError
        400: body, address or version cannot be read; 409: the version is not supported, or the store is registered
        under another id.
    """
    fields = _object(body)
    found = Cluster(_address(fields.get("store_addr")), fields.get("version", versions.own))
    if not isinstance(found.version, str):
        raise ApiError(400, f"version is {found.version!r}", hint='Write it as a text: "v6.5.0".')
    error = unsupported(found.version, versions)
    if error:
        raise ApiError(400 if "is no version" in error else 409, error, hint=_supported(versions))
    for other, known in sorted(registered.items()):
        if other != cluster and known.store_addr == found.store_addr:
            raise ApiError(409, f"{found.store_addr} is registered as {other}", hint=f"Unregister {other} first.")
    return found


def _supported(versions: Versions) -> str:
    return f"This service supports clusters from {versions.oldest} to {versions.own}."


def _object(body: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(_TRAILING_COMMA.sub(b"", body))
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the body is no JSON: {error}", hint='Send {"store_addr": "tikv://HOST:PORT"}.') from None
    if not isinstance(fields, dict):
        raise ApiError(400, "the body is no JSON object", hint='Send {"store_addr": "tikv://HOST:PORT"}.')
    unknown = sorted(fields.keys() - set(_KNOWN))
    if unknown:
        raise ApiError(400, f"unknown field {unknown[0]!r}", hint=f"Known are {', '.join(_KNOWN)}.")
    return fields


def _address(text: Any) -> str:
    """Give a store's address: ``tikv://host:port``, several hosts with commas between."""
    hint = "Write it as tikv://192.168.1.100:2379; several PDs with commas between."
    if not isinstance(text, str):
        raise ApiError(400, "store_addr is missing" if text is None else f"store_addr is {text!r}", hint=hint)
    parts = urlsplit(text)
    hosts = parts.netloc.split(",")
    if parts.scheme != "tikv" or parts.path.strip("/") or parts.query or not all(map(_is_host, hosts)):
        raise ApiError(400, f"store_addr {text!r} is no address of a TiKV cluster", hint=hint)
    return f"tikv://{parts.netloc}"


def _is_host(text: str) -> bool:
    found = re.fullmatch(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\]):(\d{1,5})", text)
    return found is not None and 0 < int(found[1]) < 65536


def registered(mirror: Mirror) -> dict[str, Cluster]:
    """Give all registered clusters."""
    return {c: records.cluster(e.value) for c, e in sorted(mirror.under(keys.REGISTERS).items())}


def clusters(mirror: Mirror) -> list[dict[str, Any]]:
    """Answer GET ``/ddlservice/registered_clusters``."""
    statuses = _statuses(mirror)
    return [
        {"id": name, "store_addr": known.store_addr, "schedule": _schedule(mirror, name, statuses)}
        for name, known in registered(mirror).items()
    ]


def workers(mirror: Mirror) -> list[dict[str, Any]]:
    """Answer GET ``/ddlservice/worker_nodes``."""
    statuses = _statuses(mirror)
    given: dict[str, list[str]] = {node: [] for node in sorted(mirror.under(keys.WORKERS))}
    for cluster, entry in sorted(mirror.under(keys.ASSIGNMENTS).items()):
        given.setdefault(entry.value, []).append(cluster)
    return [
        {
            "id": node,
            "assignments": [{"cluster_id": c, "schedule": _schedule(mirror, c, statuses)} for c in own],
        }
        for node, own in given.items()
        if node in mirror.under(keys.WORKERS)
    ]


def _statuses(mirror: Mirror) -> dict[tuple[str, str], str]:
    found = mirror.under(keys.WORKERS).items()
    return {(node, cluster): status for node, e in found for cluster, status in records.worker(e.value).running}


def _schedule(mirror: Mirror, cluster: str, statuses: Mapping[tuple[str, str], str]) -> dict[str, str]:
    entry = mirror.under(keys.ASSIGNMENTS).get(cluster)
    node = entry.value if entry else ""
    return {"assigned_to": node, "status": statuses.get((node, cluster), SCHEDULING)}
