"""DDL that the service has run, as what a changefeed of the cluster sees of it: jobs that are done, at their moments.

A job that was cancelled, rejected or rolled back left the schema as it was, and no changefeed hears of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.ddl_core import keys, records
from ticdc_lab.ddl_core.keys import store_of
from ticdc_lab.simulate.ddl_service.run import ServiceRun
from ticdc_lab.simulate.pipeline.tables import Column, FinishedJob, TableInfo
from ticdc_lab.simulate.pipeline.tidb_state import Load

FIRST_JOB = 1_000
"""Ids of jobs that other parts of a load bring are lower."""

_KEY = Column(1, "id", "bigint", True)


def done_jobs(trace: pa.Table, cluster: str) -> list[tuple[int, records.Job]]:
    """Give the jobs of a cluster that were done, each with its moment, µs.

    ``trace``: of a run of the service, :data:`ticdc_lab.simulate.trace.TRACE`. ``cluster``: its id.
    """
    own = pc.and_(pc.equal(trace["node"], store_of(cluster)), pc.equal(trace["kind"], "changed"))
    ended = pc.and_(pc.starts_with(trace["subject"], keys.HISTORY), pc.is_valid(trace["after"]))
    rows = trace.filter(pc.and_kleene(own, ended))
    found = zip(rows["time_us"].to_pylist(), map(records.job, rows["after"].to_pylist()), strict=True)
    return [(time_us, job) for time_us, job in found if job.state == records.DONE]


def pipeline_jobs(
    done: Iterable[tuple[int, records.Job]], tables: Iterable[TableInfo], *, schema: str = "shop"
) -> tuple[tuple[int, FinishedJob], ...]:
    """Give jobs as the replication pipeline has them.

    ``done``: as of :func:`done_jobs`. ``tables``: those that the pipeline has at first; jobs speak of them by their
    names. A job's effect on an absent table is left out, except its creation. ``schema``: of the tables that
    are created.
    """
    infos = {t.name: t for t in tables}
    used = {t.name: max(c.id for c in t.columns) for t in infos.values()}
    last = max((t.id for t in infos.values()), default=0)
    found: list[tuple[int, FinishedJob]] = []
    for time_us, job in done:
        before = infos.get(job.table)
        if (before is None) != (job.kind == "create table"):
            continue
        if before is None:
            last += 1
            after: TableInfo | None = TableInfo(last, schema, job.table, (_KEY,))
        else:
            after = _after(before, job, used)
        found.append((time_us, _job(job, before, after, schema)))
        if after is None:
            del infos[job.table]
        else:
            infos[job.table] = after
            used.setdefault(job.table, 1)
    return tuple(found)


def load_with_ddl(load: Load, run: ServiceRun, cluster: str) -> Load:
    """Give a load of the replication pipeline to which the DDL of a cluster is added, at the moments it was done.

    The load's transactions should leave alone what a job drops: :func:`ticdc_lab.simulate.pipeline.scenario.made`
    sees to that where it is given the jobs.
    """
    more = pipeline_jobs(done_jobs(run.trace, cluster), load.tables)
    return load._replace(jobs=tuple(sorted((*load.jobs, *more), key=lambda job: job[0])))


def _after(before: TableInfo, job: records.Job, used: dict[str, int]) -> TableInfo | None:
    if job.kind == "drop table":
        return None
    if job.kind == "add column":
        used[job.table] += 1
        return before._replace(columns=(*before.columns, Column(used[job.table], job.name, "bigint", default=0)))
    if job.kind == "drop column":
        return before._replace(columns=tuple(c for c in before.columns if c.name != job.name))
    return before


def _job(job: records.Job, before: TableInfo | None, after: TableInfo | None, schema: str) -> FinishedJob:
    info = after or before
    assert info is not None
    dropped = info.id if after is None else None
    name = f"`{info.schema_name}`.`{info.name}`"
    query = " ".join(_words(job, name))
    return FinishedJob(FIRST_JOB + job.id, job.kind, query, info.schema_name or schema, info.name, dropped, after)


def _words(job: records.Job, table: str) -> Iterator[str]:
    what, kind = job.kind.split()
    if kind == "table":
        yield f"{what.upper()} TABLE {table}" + (" (`id` BIGINT PRIMARY KEY)" if what == "create" else "")
        return
    yield f"ALTER TABLE {table} {what.upper()} {kind.upper()} `{job.name}`"
    if (what, kind) == ("add", "column"):
        yield "BIGINT DEFAULT 0"
    elif (what, kind) == ("add", "index"):
        yield "(`id`)"
