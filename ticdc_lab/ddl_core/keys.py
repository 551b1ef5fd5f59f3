"""The keys under which service and clusters keep what they share (proposal, "Metadata" and "Infosyncer")."""

from __future__ import annotations

PD = "pd"
"""The service's own store; clusters' stores have the address that a cluster was first known by."""


def store_of(cluster: str) -> str:
    return f"tikv://{cluster}:2379"


def cluster_at(store: str) -> str:
    """Give the cluster whose store that is."""
    return store.removeprefix("tikv://").removesuffix(":2379")


REGISTERS = "/tidb/ddl_service/cluster_registers/"
WORKERS = "/tidb/ddl_service/worker_nodes/"
ASSIGNMENTS = "/tidb/ddl_service/ddl_owner_assignments/"
LEADER = "/tidb/ddl_service/leader/"
"""Of the service, in its own store; each campaign is a key under :data:`LEADER` that is named by its lease."""

PDS = "/tidb/ddl_service/pd_addresses/"
"""By each PD address that was ever registered, the store of the cluster it belongs to: not in the proposal."""

WENT_BACK = "/tidb/ddl_service/went_back/"
"""What workers knew of an etcd that came back empty or older, until an operator decides: not in the proposal."""

OWNER = "/tidb/ddl/fg/owner/"
VERSIONS = "/tidb/ddl/all_schema_versions/"
GLOBAL_VERSION = "/tidb/ddl/global_schema_version"
JOBS = "/tidb/ddl/jobs/"
LAST_JOB = "/tidb/ddl/last_job_id"
SCHEMA = "/tidb/ddl/schema/"
SYSVARS = "/tidb/sysvars/"
"""Of a cluster, in the cluster's store: the election of its owner, versions that servers have, jobs, schema."""

HISTORY = "/tidb/ddl_history/"
"""Jobs that have ended, by id."""

REQUESTS = "/tidb/ddl/requests/"
"""By the request that a job was sent with, its id: a request that is sent twice makes one job."""

MIN_START_TS = "/tidb/server/minstartts/"
SERVER_INFO = "/tidb/server/info/"
TOPOLOGY = "/topology/tidb/"
SAFE_POINT = "/tidb/gc/safe_point"
"""What GC, ``admin show ddl`` and TiDB-Dashboard read about servers; ``safe_point`` is what GC has come to."""

NEWEST_TS = "/tidb/newest_ts"
"""The cluster's own time, as far as its store knows: of the last statement, or of the newest snapshot."""

BOOTSTRAP_LOCK = "/tidb/bootstrap/lock"
BOOTSTRAPPED = "/tidb/bootstrap/version"
"""Who may upgrade the meta, and the version it has (proposal, "Bootstrap")."""

SERVICE_ID = "ddl-service-"
"""Begins the ``ddl_id`` of every owner that runs in a service."""


def campaign(prefix: str, lease: int) -> str:
    """Give the key of one campaign of an election, as etcd's own elections name it."""
    return f"{prefix}{lease:x}"


def ddl_id(lease: int, cluster: str) -> str:
    """Give the ``ddl_id`` of an owner: no two clusters and no two sessions of one cluster have the same.

    The lease has no hyphen, so all that follows it is the cluster, letter by letter.
    """
    return f"{SERVICE_ID}{lease:x}-{cluster}"


def cluster_of(ddl_id: str) -> str | None:
    """Give the cluster of an owner's ``ddl_id``, None for a tidb-server's."""
    return ddl_id.removeprefix(SERVICE_ID).partition("-")[2] if ddl_id.startswith(SERVICE_ID) else None
