"""The values that are kept under the keys, as JSON."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import orjson

SCHEDULING, CAMPAIGNING, IS_OWNER = STATUSES = "SCHEDULING", "CAMPAIGNING", "OWNER"
"""Of a registered cluster's schedule, as the API reports them."""

QUEUEING, RUNNING, CANCELLING, ROLLING_BACK = "queueing", "running", "cancelling", "rollingback"
DONE, ROLLED_BACK, CANCELLED = "synced", "rollback done", "cancelled"
ENDS = frozenset({DONE, ROLLED_BACK, CANCELLED})
"""States of a job, as ``admin show ddl jobs`` names them; the last three are ends."""


class ClusterRecord(NamedTuple):
    """A registered cluster."""

    store_addr: str  # its PDs, as its user has written them last
    version: str  # of its tidb-servers
    # The name of its store in the service: the address it was known by first. Empty in records of earlier versions.
    store: str = ""

    @property
    def identity(self) -> str:
        """The name of its store, which a change of its addresses does not change."""
        return self.store or self.store_addr


class WorkerRecord(NamedTuple):
    """A worker: the versions of clusters that it serves, and the status of each cluster whose DDL it runs."""

    version: str
    running: tuple[tuple[str, str], ...] = ()
    oldest: str = ""


class Job(NamedTuple):
    """A DDL job."""

    id: int  # rises within its cluster
    kind: str  # ``add index``, ... (:data:`ticdc_lab.ddl_core.jobs.LADDERS`).
    # ``table``, ``name``: what it changes; a table itself has no ``name``.
    table: str
    name: str = ""
    version: str = ""  # of the server that sent it
    rows: int = 0  # to be backfilled
    fails_at: int | None = None  # the row whose backfill finds a duplicate; None where all are fine
    # ``state``, ``schema_state``: where it stands; ``schema_version`` is the version at which the schema came to that
    # state, 0 before the first.
    state: str = QUEUEING
    schema_state: str = ""
    schema_version: int = 0
    row_count: int = 0  # how many rows are backfilled
    # ``snapshot_ts``, ``owner``: the snapshot that the backfill reads, and the ``ddl_id`` of who has run the job last.
    snapshot_ts: int = 0
    owner: str = ""
    # ``batch``, ``workers``: rows that were backfilled at a time, last, and workers that shared them.
    batch: int = 0
    error: str = ""  # why it was rejected or rolled back
    request: str = ""  # what it was sent with: no two jobs of a cluster have the same
    workers: int = 0
    # ``errors``, ``error_count``: how often its backfill is to fail for a reason that passes, and how often it has.
    errors: int = 0
    error_count: int = 0

    @property
    def has_begun(self) -> bool:
        """Whether an owner has taken its first step; one that waits in the queue has not, cancelled or not."""
        return self.state in (RUNNING, ROLLING_BACK) or self.schema_version > 0

    @property
    def element(self) -> str:
        """What stands under the schema's prefix; a slash in a name is no border between names."""
        return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in (self.table, self.name))


@lru_cache(maxsize=65_536)
def written(record: ClusterRecord | WorkerRecord | Job) -> str:
    fields = record._asdict()
    if isinstance(record, WorkerRecord):
        fields["running"] = dict(record.running)
    return orjson.dumps(fields).decode()


@lru_cache(maxsize=65_536)
def cluster(text: str) -> ClusterRecord:
    return ClusterRecord(**_known(text, ClusterRecord._fields))


@lru_cache(maxsize=65_536)
def worker(text: str) -> WorkerRecord:
    fields = _known(text, WorkerRecord._fields)
    return WorkerRecord(fields["version"], tuple(sorted(fields["running"].items())), fields.get("oldest", ""))


@lru_cache(maxsize=65_536)
def job(text: str) -> Job:
    return Job(**_known(text, Job._fields))


def _known(text: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Give the fields this version knows; a later one may have written more."""
    found = orjson.loads(text)
    return {name: found[name] for name in names if name in found}
