"""What may not be, as functions of what was seen; auditor and explorer use the same."""

from __future__ import annotations

from ticdc_lab.ddl_core import jobs, keys, records
from ticdc_lab.ddl_core.server_state import Schema
from ticdc_lab.ddl_core.settings import Versions, unsupported
from ticdc_lab.ddl_core.store import DdlStoreState

ONE_OWNER, NEIGHBOURS, IN_ORDER, OWN_IDS, HIDDEN, KEPT, SUPPORTED, WHOLE, OWN_VARIABLES, ONE_UPGRADE = (
    "One DDL Owner",
    "Neighbouring Schema States",
    "Jobs Go Step By Step",
    "Own DDL Ids",
    "Workers Stay Hidden",
    "GC Keeps What Is Read",
    "Supported Versions Only",
    "Indexes Are Whole",
    "Own System Variables",
    "One Upgrade At A Time",
)
ONE_NAME, ONE_STORE, ONE_JOB, ONE_FILE, ONE_HISTORY = (
    "One Name For A Cluster",
    "One Store For A Cluster",
    "One Job For A Request",
    "One File For A Service",
    "One History For A Service",
)
"""Seen in the history of a service that really ran."""
ENDS_WELL, BALANCED, OWNED, SERVED = (
    "Every Job Ends",
    "Balanced When Quiet",
    "Every Cluster Is Owned",
    "Every Server Serves",
)
Found = tuple[str, str] | None


def safe_ts(state: DdlStoreState) -> int:
    """Give what GC of a cluster has come to."""
    entry = state.keys.get(keys.SAFE_POINT)
    return int(entry.value) if entry else 0


def wrong_step(before: records.Job, job: records.Job, safe_ts: int, versions: Versions, store: str) -> Found:
    """See whether a job may have gone from one record to the next."""
    if before == job:
        return None
    where = f"job {job.id} in {store}"
    if before.state in records.ENDS:
        return IN_ORDER, f"{where} had ended ({before.state}), and is {job.state} again"
    if job.row_count < before.row_count or job.schema_version < before.schema_version:
        return IN_ORDER, f"{where} fell back: {before.row_count} rows at version {before.schema_version}, now {job}"
    states = before.schema_state or jobs.LADDERS.get(job.kind, ("",))[0], job.schema_state
    if states[1] and not jobs.neighbours(job.element, *states):
        return IN_ORDER, f"{where} went from {states[0]} to {states[1]}"
    is_served = not job.owner or job.owner.startswith(keys.SERVICE_ID)  # not by a tidb-server of its own cluster
    begins = before.state == records.QUEUEING  # what has begun and cannot be taken back any more runs to its end
    goes_on = job.state == records.RUNNING and (begins or jobs.is_taken_back(before))
    if job.schema_version and goes_on and is_served and unsupported(job.version, versions):
        return SUPPORTED, f"{where} runs, and {unsupported(job.version, versions)}"
    if job.schema_state == jobs.PUBLIC and job.kind in jobs.BACKFILLED and job.row_count < job.rows:
        return WHOLE, f"{where} is public with {job.row_count} of {job.rows} rows"
    if job.row_count > before.row_count and job.snapshot_ts < safe_ts:
        return KEPT, f"{where} reads rows as of {job.snapshot_ts}, and GC has come to {safe_ts}"
    return None


def apart(a: Schema, b: Schema) -> tuple[str, str, str] | None:
    """Give an element whose states are no neighbours."""
    if a.version == b.version:
        return None
    for element in sorted(set(a.elements) | set(b.elements)):
        own, other = a.elements.get(element, jobs.NONE), b.elements.get(element, jobs.NONE)
        if not jobs.neighbours(element, own, other):
            return element, own, other
    return None
