"""Whether a service that really ran did what it must: read off all that was ever written to its store.

The campaign with which an owner won is its fencing token. A step of a job that was written while another's campaign was
the oldest was written by an owner of the past: then there were two.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from aetcd import rpc

from ticdc_lab.ddl_core import keys, records
from ticdc_lab.ddl_core.checks import (
    HIDDEN,
    ONE_FILE,
    ONE_HISTORY,
    ONE_JOB,
    ONE_NAME,
    ONE_OWNER,
    ONE_STORE,
    OWN_IDS,
    SUPPORTED,
    wrong_step,
)
from ticdc_lab.ddl_core.registering import addresses
from ticdc_lab.ddl_core.settings import SUPPORTED as CURRENT
from ticdc_lab.ddl_core.settings import Versions, unsupported
from ticdc_lab.ddl_service import etcd_rpc
from ticdc_lab.ddl_service.etcd_rpc import ANSWERS_S, Etcd, SignedIn
from ticdc_lab.ddl_service.etcd_witness import EtcdLost
from ticdc_lab.ddl_service.sqlite_file import FILE
from ticdc_lab.errors import IncompleteHistoryError, SourceError

PATIENCE_S = 60.0


class Written(NamedTuple):
    """One change: the store, the key, its new value (None: it is gone), and the revision that created it."""

    revision: int
    store: str
    key: str
    value: str | None
    created: int = 0


def of_folder(folder: str | Path) -> Iterator[Written]:
    """Read the history of an embedded store, in its order.

    Raises SourceError: there is none, or it cannot be read. IncompleteHistoryError: its beginning is no longer kept.
    """
    path = Path(folder) / FILE
    if not path.exists():
        raise SourceError(f"there is no store in {folder}", hint="Give the --store of the workers.")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            rows = db.execute("select revision, store, key, value, created from events order by rowid")
            for i, row in enumerate(rows):
                if i == 0 and row[0] > 2:
                    raise _incomplete(f"{path} begins at revision {row[0]}")
                yield Written(*row)
    except sqlite3.Error as error:
        raise SourceError(f"{path} cannot be read: {error}", hint="Give the --store of the workers.") from None


def of_etcd(etcd: Etcd) -> list[Written]:
    """Read the history of the service in etcd, up to now.

    Raises SourceError: etcd does not answer. IncompleteHistoryError: it has been compacted.
    """
    try:
        return etcd_rpc.done(_read(etcd), PATIENCE_S)
    except rpc.AioRpcError as error:
        raise SourceError(
            f"etcd does not answer at {etcd.endpoints}: {error.details()}",
            hint=f"Ask it: etcdctl --endpoints {etcd.endpoints} endpoint health",
        ) from None


async def _read(etcd: Etcd) -> list[Written]:
    channel, signed_in = await etcd_rpc.connected(etcd)
    try:
        first = rpc.RangeRequest(key=b"/tidb/")
        answer = await rpc.KVStub(channel).Range(first, timeout=ANSWERS_S, metadata=signed_in.metadata)
        return await _watched(channel, signed_in, answer.header.revision)
    finally:
        await channel.close()


async def _watched(channel: Any, signed_in: SignedIn, last: int) -> list[Written]:
    """Watch everything from the first revision on until the last has come."""
    found: list[Written] = []
    if last < 2:
        return found
    call = rpc.WatchStub(channel).Watch(metadata=(*etcd_rpc.LEADER_ONLY, *signed_in.metadata))
    everything = rpc.WatchCreateRequest(key=b"\0", range_end=b"\0", start_revision=2)
    await call.write(rpc.WatchRequest(create_request=everything))
    async for response in call:
        if response.compact_revision:
            raise _incomplete(f"etcd has compacted revisions before {response.compact_revision}")
        if response.canceled:
            hint = "What happened is read off all of etcd: give a user with the role root."
            raise SourceError(f"etcd does not give its history: {response.cancel_reason}", hint=hint)
        for event in response.events:
            place = etcd_rpc.parted(event.kv.key.decode(errors="replace"))
            if place:
                value = event.kv.value.decode() if event.type == rpc.Event.PUT else None
                found.append(Written(event.kv.mod_revision, *place, value, event.kv.create_revision))
        if response.events and response.events[-1].kv.mod_revision >= last:
            break
    call.cancel()
    return found


def _incomplete(what: str) -> IncompleteHistoryError:
    return IncompleteHistoryError(
        what, hint="Audit a store whose history is complete from its first revision: ticdc-lab ddl-service audit STORE"
    )


@dataclass(slots=True)
class _AuditedService:
    """What holds at one point of the history."""

    campaigns: dict[str, dict[str, tuple[int, str]]] = field(default_factory=dict)
    jobs: dict[tuple[str, int], records.Job] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    safe_ts: dict[str, int] = field(default_factory=dict)
    clusters: dict[str, records.ClusterRecord] = field(default_factory=dict)
    requests: dict[tuple[str, str], int] = field(default_factory=dict)
    workers: set[str] = field(default_factory=set)


def violations(history: Iterable[Written], versions: Versions = CURRENT, *, stores: Sequence[str] = ()) -> list[str]:
    """List what broke a rule.

    ``history``: everything that was written, in order (:mod:`ticdc_lab.ddl_service.auditing`). ``versions``: what the
    service supports. ``stores``: of an embedded store: all that were ever begun in its folder. Returns: one line each:
    the revision, the rule, what was found. The rules: the model auditor's, as far as a store shows them: one
    owner, one name and one store for a cluster, jobs step by step, own ids, hidden workers, GC behind backfills,
    versions.
    """
    seen = _AuditedService()
    found = []
    if len(stores) > 1:
        found.append(f"{ONE_FILE}: {len(stores)} stores were begun in this folder: what the others contained is lost")
    for written in history:
        error = _checked(seen, written, versions)
        if error:
            found.append(f"revision {written.revision}: {error[0]}: {error[1]}")
    return found


def _checked(seen: _AuditedService, written: Written, versions: Versions) -> tuple[str, str] | None:
    key, value, store = written.key, written.value, written.store
    if key.startswith(keys.OWNER):
        own = seen.campaigns.setdefault(store, {})
        own.pop(key, None)
        if value is None:
            return None
        own[key] = written.created, value
        if seen.ids.setdefault(value, store) != store:
            return OWN_IDS, f"{value} campaigns in {seen.ids[value]} and in {store}"
        return None
    if key.startswith(keys.REGISTERS):
        return _registered(seen, key.removeprefix(keys.REGISTERS), value, versions)
    if value is None:
        return None
    if key.startswith(keys.WENT_BACK):
        lost = msgspec.json.decode(value, type=EtcdLost)
        then = f"; it continued from the {lost.went_on}" if lost.went_on else "; not decided yet"
        return ONE_HISTORY, lost.words + then
    if key == keys.SAFE_POINT:
        seen.safe_ts[store] = int(value)
    elif key.startswith((keys.JOBS, keys.HISTORY)):
        return _stepped(seen, store, records.job(value), versions)
    elif key.startswith((keys.SERVER_INFO, keys.TOPOLOGY)):
        # A worker shows itself in the service's own store, before it owns anything, and in no cluster's store.
        address = key.removeprefix(keys.TOPOLOGY).partition("/")[0] if key.startswith(keys.TOPOLOGY) else ""
        if store == keys.PD:
            seen.workers |= {address} - {""}
        elif address in seen.workers or key.startswith(keys.SERVER_INFO + keys.SERVICE_ID):
            return HIDDEN, f"{key} of {store} shows where a worker of the service is"
    return None


def _registered(seen: _AuditedService, name: str, value: str | None, versions: Versions) -> tuple[str, str] | None:
    """A cluster keeps its store while it is registered, and shares neither that nor a PD with another."""
    before = seen.clusters.pop(name, None)
    if value is None:
        return None
    own = seen.clusters[name] = records.cluster(value)
    if error := unsupported(own.version, versions):
        return SUPPORTED, f"{name} is registered, and {error}"
    if before and before.identity != own.identity:
        return ONE_STORE, f"{name} was {before.identity}, and is {own.identity}: its jobs are left behind"
    for other, its in sorted(seen.clusters.items()):
        shared = sorted(set(addresses(own.store_addr)) & set(addresses(its.store_addr)))
        if other != name and (shared or own.identity == its.identity):
            return ONE_NAME, f"{other} and {name} are both the cluster at {shared[0] if shared else own.identity}"
    return None


def _stepped(seen: _AuditedService, store: str, job: records.Job, versions: Versions) -> tuple[str, str] | None:
    before = seen.jobs.get((store, job.id))
    seen.jobs[store, job.id] = job
    by_a_server = not job.owner or job.state == records.CANCELLING
    oldest = min(seen.campaigns.get(store, {}).values(), default=(0, "nobody"))[1]
    if not by_a_server and job.owner != oldest:
        return ONE_OWNER, f"{job.owner} wrote a step of job {job.id} in {store}, whose owner was {oldest}"
    if before is None:
        first = seen.requests.setdefault((store, job.request), job.id) if job.request else job.id
        same = f"job {first} and job {job.id} in {store} are the same request, {job.request}"
        return (ONE_JOB, same) if first != job.id else None
    return wrong_step(before, job, seen.safe_ts.get(store, 0), versions, store)
