"""What is in the bodies of requests and answers: read, checked, written and described by msgspec, on both sides."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Registration(Struct, forbid_unknown_fields=True):
    """What a PUT asks for: the cluster's PDs (``tikv://HOST:PORT,..``), and its version.

    Without ``version`` it keeps the one it has; a new one gets the newest that every worker serves.
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
