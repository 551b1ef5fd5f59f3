"""The DDL owner of one cluster: it campaigns in the cluster's own store, and runs its jobs.

It lives in a worker of the service, or in a tidb-server of the cluster whose users let it (``tidb_enable_ddl``): these
are rivals of one election, and the one that campaigned first has the DDL.

Every write of a job holds only while the owner's campaign is there, the one it won with: what an owner of the past has
still on its way changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from immutables import Map

from ticdc_lab.ddl_core import jobs, keys, records, sysvars
from ticdc_lab.ddl_core.connection import (
    Connection,
    Mirror,
    Part,
    asked,
    clock,
    is_over,
    kept,
    left,
    renewed,
    unchanged,
    winner,
)
from ticdc_lab.ddl_core.records import CAMPAIGNING, ENDS, IS_OWNER, Job
from ticdc_lab.ddl_core.settings import Duties
from ticdc_lab.ddl_core.store import CREATE, MOD, Compare, Delete, Done, Op, Put
from ticdc_lab.machines.clock import ts_of, us_of
from ticdc_lab.machines.machine import Changed, Decided, Now, Output, Wake, stepped

PREFIXES = (
    keys.OWNER, keys.VERSIONS, keys.GLOBAL_VERSION, keys.JOBS, keys.SCHEMA, keys.SYSVARS, keys.SAFE_POINT,
    keys.NEWEST_TS,
)  # fmt: skip
NOTHING = ""
NO_VARIABLES: Map[str, str] = Map()
_USUAL_WORKERS = int(sysvars.VARIABLES[sysvars.WORKERS].default)
SKEW_S = 1.0
"""A clock that is further behind than this is spoken of."""


@stepped
class OwnerState(NamedTuple):
    """One cluster's DDL in a worker."""

    cluster: str  # its id in the service
    link: Connection  # the session with the cluster's store
    status: str = CAMPAIGNING  # ``CAMPAIGNING`` or ``OWNER``
    # ``asked_ts``, ``holds_ts``: the snapshot that GC has been asked to keep, and that it is known to keep; 0 for none.
    asked_ts: int = 0
    holds_ts: int = 0
    next_us: int = 0  # when the next batch of a backfill may be done, on the node's own clock
    session: tuple[int, Map[str, str]] = (0, Map())  # the job that it works on, and the variables of that job's session
    said: str = NOTHING  # why it waited last
    # ``server``, ``server_id``: the tidb-server that it is a part of, whose ``ddl_id`` is its own; none in a worker of
    # the service.
    server: str = ""
    server_id: str = ""
    since_us: int = 0  # when it began to work on the job of its session

    @property
    def ddl_id(self) -> str:
        """How it is known in the cluster; none before it has a session."""
        if self.server:
            return self.server_id
        return keys.ddl_id(self.link.lease, self.cluster) if self.link.lease else ""

    @property
    def holds_key(self) -> str:
        """Where it reports to GC what its backfill reads; a tidb-server's users have their own entry."""
        return f"{keys.MIN_START_TS}{self.ddl_id}{'/backfill' if self.server else ''}"


def opened(cluster: str, store_addr: str, life: int, server: str = "") -> OwnerState:
    """Give the owner of a cluster that has just been assigned, or that a tidb-server may be from now on."""
    return OwnerState(cluster, Connection(store_addr, cluster, life, PREFIXES), server=server)


def stopped(o: OwnerState, because: str) -> list[Output]:
    """Stop: it owns nothing any more, and only then gives its lease back."""
    outputs: list[Output] = []
    if o.status == IS_OWNER:
        outputs.append(Changed(f"ddl-owner:{o.cluster}", o.ddl_id, None, because))
    return [*outputs, *left(o.link)]


def resigned(o: OwnerState) -> tuple[OwnerState, list[Output]]:
    """Give the DDL up for another campaign, which is the youngest."""
    return _anew(o), stopped(o, "it resigns")


def _anew(o: OwnerState) -> OwnerState:
    return OwnerState(o.cluster, renewed(o.link), server=o.server, server_id=o.server_id)


def settled(o: OwnerState, done: Done) -> OwnerState:
    """Take the answer to a transaction."""
    if done.tag[2] == "min-start-ts" and done.succeeded:  # type: ignore[index]
        return o._replace(holds_ts=o.asked_ts)
    return o


def acted(
    o: OwnerState, duties: Duties, now: Now, instance: Map[str, str] = NO_VARIABLES
) -> tuple[OwnerState, list[Output]]:
    """Do all that is to be done now; ``instance`` are the variables that were set for all owners of the process."""
    if is_over(o.link, now):
        outputs = stopped(o, "its session with the cluster may be gone")
        return _anew(o), outputs
    link, outputs = kept(o.link, duties.terms, now)
    o = o._replace(link=link)
    if link.mirror is None or not link.lease or not o.ddl_id:
        return o, outputs
    o, more = _present(o, link.mirror, now)
    outputs += more
    o, more = _elected(o, link.mirror)
    outputs += more
    if o.status == IS_OWNER:
        process = instance.set(sysvars.VERSION, duties.versions.own)
        o, more = _worked(o, link.mirror, duties, now, process)
        outputs += more
    return o, outputs


def _ask(
    o: OwnerState, what: str, compares: tuple[Compare, ...], ops: tuple[Op, ...], now: Now
) -> tuple[OwnerState, list[Output]]:
    link, outputs = asked(o.link, what, compares, ops, now)
    return o._replace(link=link), outputs


def _present(o: OwnerState, mirror: Mirror, now: Now) -> tuple[OwnerState, list[Output]]:
    """Publish the schema version that it has loaded, and campaign; nothing else of a worker is seen in the cluster.

    A tidb-server publishes its own, under the same ``ddl_id``.
    """
    outputs: list[Output] = []
    version, lease = mirror.value(keys.GLOBAL_VERSION) or "0", o.link.lease
    own = mirror.under(keys.VERSIONS).get(o.ddl_id)
    if not o.server and (own is None or own.value != version):
        o, outputs = _ask(o, "load", (), (Put(keys.VERSIONS + o.ddl_id, version, lease),), now)
    if f"{lease:x}" not in mirror.under(keys.OWNER):
        key = keys.campaign(keys.OWNER, lease)
        o, more = _ask(o, "campaign", (Compare(key, CREATE, 0),), (Put(key, o.ddl_id, lease),), now)
        outputs = [*outputs, *more]
    return o, outputs


def _elected(o: OwnerState, mirror: Mirror) -> tuple[OwnerState, list[Output]]:
    won = winner(mirror.under(keys.OWNER))
    is_mine = won is not None and won[0] == f"{o.link.lease:x}"
    if is_mine == (o.status == IS_OWNER):
        return o, []
    if not is_mine:
        return o._replace(status=CAMPAIGNING), [
            Changed(f"ddl-owner:{o.cluster}", o.ddl_id, None, "its campaign is gone")
        ]
    assert won
    because = f"its campaign, of revision {won[1].create}, is the oldest"
    return o._replace(status=IS_OWNER), [Changed(f"ddl-owner:{o.cluster}", None, o.ddl_id, because)]


def _worked(
    o: OwnerState, mirror: Mirror, duties: Duties, now: Now, process: Map[str, str]
) -> tuple[OwnerState, list[Output]]:
    """Take the first job one step on."""
    queue = mirror.under(keys.JOBS)
    if not queue:
        return _released(o, now)
    name = min(queue, key=lambda n: (len(n), n))
    job = records.job(queue[name].value)
    if o.session[0] != job.id:
        o = o._replace(session=(job.id, sysvars.inherited(variables(o, mirror))), since_us=clock(now))
    is_filling = (
        job.state == records.RUNNING and job.kind in jobs.BACKFILLED
        and job.schema_state == jobs.WRITE_REORG and job.row_count < job.rows
    )  # fmt: skip
    outputs: list[Output] = []
    if not is_filling:
        o, outputs = _released(o, now)
    elif not o.holds_ts:
        o, outputs = _held(o, mirror, now)
    if "step" in o.link.pending or clock(now) < o.next_us:
        return o, outputs
    seen = _facts(o, job, mirror, duties, process)
    found = jobs.advanced(job, seen)
    if isinstance(found, jobs.JobWaits):
        if found.because != o.said:
            outputs = [*outputs, Decided(f"job:{o.cluster}/{job.id}", None, found.because, found.rejected)]
        return o._replace(said=found.because), outputs
    o, more = _ask(o, "step", _guards(o, mirror, name), _written(o, mirror, found), now)
    outputs = [
        *outputs,
        Decided(f"job:{o.cluster}/{job.id}", found.job.schema_state or found.job.state, found.because),
        *more,
    ]
    took_us, slow_ms = clock(now) - o.since_us, sysvars.count_of(sysvars.SLOW_MS, sysvars.Scopes(process))
    if found.job.state in ENDS and took_us > slow_ms * 1000:
        because = f"{sysvars.SLOW_MS} of its process is {slow_ms}"
        outputs.append(Decided(f"slow job:{o.cluster}/{job.id}", f"{took_us // 1000} ms", because))
    if is_filling:
        batch_us = duties.batch_us * _USUAL_WORKERS // seen.workers
        o = o._replace(next_us=clock(now) + batch_us)
        outputs.append(Wake(batch_us, ("batch", o.cluster)))
    return o._replace(said=NOTHING), outputs


def _held(o: OwnerState, mirror: Mirror, now: Now) -> tuple[OwnerState, list[Output]]:
    """Let GC keep what the backfill reads (proposal, "GC"); a GC that has not yet heard of it can write nothing."""
    ts = snapshot_ts(mirror, now)
    if "min-start-ts" in o.link.pending:
        return o, []
    same = tuple(unchanged(key, mirror.under(key).get("")) for key in (keys.NEWEST_TS, keys.SAFE_POINT))
    puts = (Put(o.holds_key, str(ts), o.link.lease), Put(keys.NEWEST_TS, str(ts)))
    o, outputs = _ask(o, "min-start-ts", same, puts, now)
    if (behind_s := (us_of(ts) - now.at_us) / 1e6) > SKEW_S:
        because = f"its clock is {behind_s:,.0f} s behind the newest timestamp of {o.cluster}, and it reads at that"
        outputs = [Decided(f"snapshot:{o.cluster}", str(ts), because), *outputs]
    return o._replace(asked_ts=ts), outputs


def snapshot_ts(mirror: Mirror, now: Now) -> int:
    """Give a snapshot that is newer than all that the store knows of, however far behind the node's clock is.

    What GC has come to cannot be read any more, and rows that were there before the job came here must be.
    """
    known = max(int(mirror.value(key) or "0") for key in (keys.NEWEST_TS, keys.SAFE_POINT))
    return max(ts_of(now.at_us), known + 1)


def _released(o: OwnerState, now: Now) -> tuple[OwnerState, list[Output]]:
    if not o.holds_ts or "release" in o.link.pending:
        return o, []
    return _ask(o._replace(holds_ts=0, asked_ts=0), "release", (), (Delete(o.holds_key),), now)


def _facts(o: OwnerState, job: Job, mirror: Mirror, duties: Duties, process: Map[str, str]) -> jobs.SeenJob:
    element = mirror.under(keys.SCHEMA).get(job.element)
    versions = tuple(sorted((server, int(e.value)) for server, e in mirror.under(keys.VERSIONS).items()))
    scopes = sysvars.Scopes(process, variables(o, mirror), o.session[1])
    batch, workers, most_errors = (sysvars.count_of(name, scopes) for name in sysvars.COUNTS)
    version = int(mirror.value(keys.GLOBAL_VERSION) or "0")
    state = element.value if element else jobs.NONE
    served = duties.versions._replace(own=sysvars.value_of(sysvars.VERSION, scopes))
    return jobs.SeenJob(state, version, versions, o.holds_ts, batch, served, workers, most_errors)


def variables(o: OwnerState, mirror: Mirror) -> Map[str, str]:
    """Give the global variables of the owner's cluster: its own, and as they are now (proposal, "System Variables")."""
    return values(mirror.under(keys.SYSVARS))


def values(part: Part) -> Map[str, str]:
    return Map({name: entry.value for name, entry in part.items()})


def _guards(o: OwnerState, mirror: Mirror, name: str) -> tuple[Compare, ...]:
    own = mirror.under(keys.OWNER)[f"{o.link.lease:x}"]
    seen = Compare(keys.JOBS + name, MOD, mirror.under(keys.JOBS)[name].mod)
    return Compare(keys.campaign(keys.OWNER, o.link.lease), CREATE, own.create), seen


def _written(o: OwnerState, mirror: Mirror, move: jobs.JobMove) -> tuple[Op, ...]:
    job = move.job._replace(owner=o.ddl_id)
    text = records.written(job)
    if job.state in ENDS:
        return Delete(f"{keys.JOBS}{job.id}"), Put(f"{keys.HISTORY}{job.id}", text)
    ops: tuple[Op, ...] = (Put(f"{keys.JOBS}{job.id}", text),)
    if not move.changes_schema:
        return ops
    key = keys.SCHEMA + job.element
    element: Op = Delete(key) if job.schema_state == jobs.NONE else Put(key, job.schema_state)
    return *ops, element, Put(keys.GLOBAL_VERSION, str(job.schema_version))
