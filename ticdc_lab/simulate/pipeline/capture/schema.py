"""The schema storage: each table as of any moment that may be needed, from a snapshot and the DDL jobs after it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from immutables import Map

from ticdc_lab.simulate.pipeline.capture.state import Schema, Version
from ticdc_lab.simulate.pipeline.tables import Job, TableInfo
from ticdc_lab.simulate.scheduler.roles import Key

DROP_SCHEMA = "drop schema"


def snapshot(tables: Iterable[TableInfo]) -> Schema:
    """Give a schema in which these tables are there from the beginning."""
    return Map({info.id: (Version(0, info),) for info in tables})


def applied(schema: Schema, ts: int, job: Job) -> Schema:
    """Take a job that finished at ``ts``."""
    if job.type == DROP_SCHEMA:
        for table in sorted(schema):
            info = schema[table][-1].info
            if info is not None and info.schema_name == job.schema_name:
                schema = _with(schema, table, Version(ts, None))
        return schema
    if job.dropped is not None:
        schema = _with(schema, job.dropped, Version(ts, None))
    return _with(schema, job.info.id, Version(ts, job.info)) if job.info is not None else schema


def _with(schema: Schema, table: int, version: Version) -> Schema:
    return schema.set(table, (*schema.get(table, ()), version))


def version_at(versions: tuple[Version, ...], ts: int) -> int:
    """Give the index of the version as of ``ts``, -1 where there was none."""
    return len(versions) - 1 if versions and versions[-1].ts <= ts else bisect_right(versions, ts, key=_ts) - 1


def info_at(schema: Schema, table: int, ts: int) -> TableInfo | None:
    """Give a table as of ``ts``; None where it was not there."""
    versions = schema.get(table, ())
    at = version_at(versions, ts)
    return versions[at].info if at >= 0 else None


def tables_at(schema: Schema, ts: int) -> frozenset[Key]:
    """Give the tables that were there as of ``ts``."""
    return frozenset(table for table in schema if info_at(schema, table, ts) is not None)


def pruned(schema: Schema, ts: int) -> Schema:
    """Forget versions that ended before ``ts``, and tables that were gone by then."""
    kept = schema.mutate()
    for table in sorted(schema):
        versions = schema[table]
        at = version_at(versions, ts)
        if at >= 0 and versions[at].info is None and at == len(versions) - 1:
            del kept[table]
        elif at > 0:
            kept[table] = versions[at:]
    return kept.finish()


def _ts(version: Version) -> int:
    return version.ts
