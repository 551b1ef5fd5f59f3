"""What the HTTP API answers, as functions of what a worker knows (proposal, "API"), and what is in its bodies."""

from __future__ import annotations

import ipaddress
import json
import re
import socket
from collections.abc import Mapping
from typing import Any, Literal
from uuid import uuid4

import msgspec
from msgspec import Struct

from ticdc_lab.ddl_core import keys, records
from ticdc_lab.ddl_core.connection import Mirror
from ticdc_lab.ddl_core.records import SCHEDULING, ClusterRecord
from ticdc_lab.ddl_core.registering import ABSENT, CONFLICT, LATE, NO_SESSION, REFUSED, UNKNOWN, WishOutcome
from ticdc_lab.ddl_core.settings import parsed
from ticdc_lab.ddl_core.worker_state import Register
from ticdc_lab.errors import TiCDCLabError


class Registration(Struct, forbid_unknown_fields=True):
    """What a PUT asks for: the cluster's PDs (``tikv://HOST:PORT,..``), and its version.

    Without ``version`` the cluster is asked; one without it keeps its own, a new one gets the newest that all
    workers serve.
    """

    store_addr: str
    version: str | None = None


class Schedule(Struct, frozen=True):
    """The worker a cluster is assigned to (empty: none), and how far that is."""

    assigned_to: str
    status: Literal["SCHEDULING", "CAMPAIGNING", "OWNER"]


class RegisteredCluster(Struct, frozen=True):
    """A registered cluster; ``store`` is the name of its store, which does not change with its addresses."""

    id: str
    store_addr: str
    schedule: Schedule
    version: str = ""
    store: str = ""


class Assignment(Struct, frozen=True):
    """A cluster that is assigned to a worker."""

    cluster_id: str
    schedule: Schedule


class WorkerNode(Struct, frozen=True):
    """A worker, and the clusters that are assigned to it."""

    id: str
    assignments: tuple[Assignment, ...]


class DdlJob(Struct, frozen=True):
    """A job as its record in the cluster's store has it (``admin show ddl jobs``)."""

    id: int
    kind: str
    table: str
    name: str
    state: str
    schema_state: str
    schema_version: int
    rows: int
    row_count: int
    owner: str
    error: str


class ClusterJobs(Struct, frozen=True):
    """Jobs of a cluster, its schema version, and the version that each of its servers works with."""

    jobs: tuple[DdlJob, ...]
    schema_version: int
    servers: dict[str, int]


class Removed(Struct, frozen=True):
    """The cluster that is not registered any more."""

    id: str


class Ready(Struct, frozen=True):
    """The worker has a session, and its store takes changes."""

    ready: bool


class Refusal(Struct, frozen=True):
    """What is wrong, and a hint."""

    error: str
    hint: str = ""


ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_TRAILING_COMMA = re.compile(rb",(?=\s*\}\s*$)")
_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_NUMBERS = re.compile(r"(0x[0-9A-Fa-f]+|[0-9]+)(\.(0x[0-9A-Fa-f]+|[0-9]+))*\.?")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SCHEME = "tikv://"
MOST_PDS = 32


class ApiError(TiCDCLabError):
    """A request that cannot be answered; ``status`` is HTTP's."""

    def __init__(self, status: int, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status, self.hint = status, hint


def checked_id(text: str) -> str:
    if not ID.fullmatch(text):
        raise ApiError(
            400,
            f"{text!r} is no cluster id",
            hint="Name it by letters, digits, `_`, `.` and `-`, a letter or digit first; at most 128.",
        )
    return text


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Take a JSON object with unique names: which of two values of a name is meant, is unknown."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ApiError(400, f"the body has {twice!r} twice", hint="Send each `name` once.")
    return found


def registration(cluster: str, body: bytes) -> Register:
    """Read the body of a PUT; the comma before the closing brace that the proposal's example has is allowed.

    Raises ApiError: 400: body, address or version cannot be read.
    """
    try:
        text = _TRAILING_COMMA.sub(b"", body)
        wanted = msgspec.json.decode(text, type=Registration)
        json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply", hint='Send {"store_addr": "tikv://HOST:PORT"}.') from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = "the body is no registration" if isinstance(error, msgspec.ValidationError) else "the body is no JSON"
        raise ApiError(400, f"{what}: {error}", hint='Send {"store_addr": "tikv://HOST:PORT"}.') from None
    if wanted.version is not None and not parsed(wanted.version):
        raise ApiError(
            400, f"version is {wanted.version!r}, which is no version", hint='Write it as `"version": "v6.5.0"`.'
        )
    return Register(cluster, _address(wanted.store_addr), wanted.version or "", new_request())


def new_request() -> str:
    """Give a name by which an answer is known."""
    return uuid4().hex


STATUSES = {REFUSED: 409, CONFLICT: 409, ABSENT: 404, LATE: 503, UNKNOWN: 503, NO_SESSION: 503}
"""Of HTTP, by what has come of a wish."""


def well(outcome: WishOutcome) -> WishOutcome:
    """Give what has come of a wish, if that is what was wished for. Raises ApiError: it is not."""
    if outcome.kind in STATUSES:
        raise ApiError(STATUSES[outcome.kind], outcome.because, hint=outcome.hint)
    return outcome


def _address(text: str) -> str:
    """Give a store's address, in one form for all ways to write it: ``tikv://host:port``, or several hosts."""
    hint = "Write it as tikv://192.168.1.100:2379; several PDs with commas between."
    parts = text[len(_SCHEME) :].removesuffix("/").split(",")
    found = [host for part in parts if (host := _endpoint(part))]
    if text[: len(_SCHEME)].lower() != _SCHEME or len(found) < len(parts):
        raise ApiError(400, f"store_addr {text!r} is no address of a TiKV cluster", hint=hint)
    if len(set(found)) > MOST_PDS:
        raise ApiError(400, f"store_addr has {len(set(found))} PDs", hint=f"At most {MOST_PDS}.")
    return _SCHEME + ",".join(dict.fromkeys(found))


def _endpoint(text: str) -> str | None:
    """Give ``host:port`` in one form; None for what is none."""
    found = _HOST.fullmatch(text)
    if not found or not 0 < int(found[2]) < 65536:
        return None
    host = _ip(found[1]) if found[1][0] == "[" or _NUMBERS.fullmatch(found[1]) else _name(found[1])
    return f"{host}:{int(found[2])}" if host else None


def _ip(text: str) -> str | None:
    """Give an IP address in its shortest form: ``127.1`` is 127.0.0.1, as for every resolver."""
    try:
        if text[0] != "[":
            return socket.inet_ntoa(socket.inet_aton(text.removesuffix(".")))
        found = ipaddress.IPv6Address(text[1:-1])
    except (OSError, ValueError):
        return None
    return str(found.ipv4_mapped) if found.ipv4_mapped else f"[{found}]"


def _name(text: str) -> str | None:
    name = text.lower().removesuffix(".")
    return name if len(name) <= 253 and all(map(_LABEL.fullmatch, name.split("."))) else None


def registered(mirror: Mirror) -> dict[str, ClusterRecord]:
    return {c: records.cluster(e.value) for c, e in sorted(mirror.under(keys.REGISTERS).items())}


def clusters(mirror: Mirror) -> list[RegisteredCluster]:
    statuses = _statuses(mirror)
    return [cluster(mirror, name, known, statuses) for name, known in registered(mirror).items()]


def cluster(
    mirror: Mirror, name: str, known: ClusterRecord, statuses: Mapping[tuple[str, str], str] | None = None
) -> RegisteredCluster:
    """Give a cluster as lists and the answer to a PUT have it."""
    schedule = _schedule(mirror, name, _statuses(mirror) if statuses is None else statuses)
    return RegisteredCluster(name, known.store_addr, schedule, known.version, known.identity)


def jobs(mirror: Mirror, job: int) -> ClusterJobs:
    """Answer GET ``/ddlservice/registered_clusters/{id}/jobs``, or one of them.

    Raises ApiError: 404: there is no such job.
    """
    under = [mirror.under(prefix) for prefix in mirror.prefixes]
    *of_jobs, versions, version = under
    wanted = [records.job(e.value) for part in of_jobs for e in part.values()]
    found = sorted({j.id: j for j in wanted if job in (0, j.id)}.values())
    if job and not found:
        raise ApiError(404, f"there is no job {job}", hint="List the jobs in the queue: GET `/jobs`")
    bodies = tuple(DdlJob(**{name: getattr(j, name) for name in DdlJob.__struct_fields__}) for j in found)
    servers = {server: int(e.value) for server, e in sorted(versions.items())}
    return ClusterJobs(bodies, int(next((e.value for e in version.values()), "0")), servers)


def workers(mirror: Mirror) -> list[WorkerNode]:
    statuses = _statuses(mirror)
    given: dict[str, list[str]] = {node: [] for node in sorted(mirror.under(keys.WORKERS))}
    for cluster, entry in sorted(mirror.under(keys.ASSIGNMENTS).items()):
        if entry.value in given:
            given[entry.value].append(cluster)
    return [
        WorkerNode(node, tuple(Assignment(c, _schedule(mirror, c, statuses)) for c in own))
        for node, own in given.items()
    ]


def _statuses(mirror: Mirror) -> dict[tuple[str, str], str]:
    found = mirror.under(keys.WORKERS).items()
    return {(node, cluster): status for node, e in found for cluster, status in records.worker(e.value).running}


def _schedule(mirror: Mirror, cluster: str, statuses: Mapping[tuple[str, str], str]) -> Schedule:
    entry = mirror.under(keys.ASSIGNMENTS).get(cluster)
    node = entry.value if entry else ""
    status: Any = statuses.get((node, cluster), SCHEDULING)
    return Schedule(node, status)
