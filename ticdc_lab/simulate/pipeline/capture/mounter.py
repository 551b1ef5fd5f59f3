"""From rows that were pulled to rows that can be sent: the sorter, and the mounter with the schema of their time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from immutables import Map

from ticdc_lab.simulate.pipeline.capture.state import Row, Schema, SortedRun, Sorter, Version
from ticdc_lab.simulate.pipeline.tables import Cell, Change, FinishedJob, TableInfo, shown
from ticdc_lab.simulate.scheduler.executor import MAX_TS
from ticdc_lab.simulate.scheduler.roles import Key

# The sorter of a table: rows come in any order and go out by commit_ts, once everything before them is known.
#
# Memory is bounded: what is more goes to disk as a sorted run, and comes back merged.


def added(sorter: Sorter, rows: list[Row], memory_rows: int) -> Sorter:
    """Take rows; if memory is full, what it holds becomes a run on disk."""
    if not rows:
        return sorter
    fresh, new = sorter.fresh, tuple(rows)
    while fresh and len(fresh[-1]) <= 2 * len(new):
        fresh, new = fresh[:-1], fresh[-1] + new
    fresh_ts = min(sorter.fresh_ts, min(rows)[0])
    sorter = sorter._replace(fresh=(*fresh, new), n_fresh=sorter.n_fresh + len(rows), fresh_ts=fresh_ts)
    if in_memory(sorter) <= memory_rows:
        return sorter
    sorter = _sorted(sorter)
    held = sorter.memory.rows
    return sorter._replace(memory=SortedRun(), runs=(*sorter.runs, SortedRun(held)), spilled=sorter.spilled + len(held))


def in_memory(sorter: Sorter) -> int:
    return len(sorter.memory.rows) - sorter.memory.at + sorter.n_fresh


def on_disk(sorter: Sorter) -> int:
    return sum(len(run.rows) - run.at for run in sorter.runs)


def _sorted(sorter: Sorter) -> Sorter:
    memory = sorter.memory
    rows = list(memory.rows[memory.at :])
    for batch in sorter.fresh:
        rows += batch
    rows.sort()
    return sorter._replace(memory=SortedRun(tuple(rows)), fresh=(), n_fresh=0, fresh_ts=MAX_TS)


def taken(sorter: Sorter, upto_ts: int, room: int) -> tuple[Sorter, list[Row]]:
    """Take out the first rows up to ``upto_ts``, about ``room`` of them.

    Of each run no more than ``room`` rows can be among the first; rows of the last one's commit_ts go with it, so that
    no transaction is torn.
    """
    may_be_due = upto_ts > sorter.drained_ts or sorter.runs or sorter.fresh_ts <= upto_ts
    if not may_be_due and not _is_due(sorter.memory, upto_ts):
        return sorter, []
    if sorter.fresh:
        sorter = _sorted(sorter)
    runs, bound = [sorter.memory, *sorter.runs], (upto_ts + 1,)
    ends = [bisect_left(run.rows, bound, run.at) for run in runs]
    found = _between(runs, [min(end, run.at + room) for run, end in zip(runs, ends, strict=True)])
    drained_ts = upto_ts
    if sum(end - run.at for run, end in zip(runs, ends, strict=True)) > room:
        last = found[room - 1]
        after = (last[0] + 1,)
        ends = [bisect_left(run.rows, after, run.at, end) for run, end in zip(runs, ends, strict=True)]
        found, drained_ts = _between(runs, ends), last[0]
    left = [
        SortedRun(run.rows, end) if end < len(run.rows) else SortedRun() for run, end in zip(runs, ends, strict=True)
    ]
    return sorter._replace(
        memory=left[0], runs=tuple(run for run in left[1:] if run.rows), drained_ts=max(sorter.drained_ts, drained_ts)
    ), found


def _is_due(run: SortedRun, upto_ts: int) -> bool:
    return run.at < len(run.rows) and run.rows[run.at][0] <= upto_ts


def _between(runs: list[SortedRun], ends: list[int]) -> list[Row]:
    parts = [run.rows[run.at : end] for run, end in zip(runs, ends, strict=True) if end > run.at]
    found = list(parts[0]) if parts else []
    for part in parts[1:]:
        found += part
    if len(parts) > 1:
        found.sort()
    return found


# The schema storage: each table as of any moment that may be needed, from a snapshot and the DDL jobs after it.

DROP_SCHEMA = "drop schema"


def snapshot(tables: Iterable[TableInfo]) -> Schema:
    """Give a schema in which these tables are there from the beginning."""
    return Map({info.id: (Version(0, info),) for info in tables})


def applied(schema: Schema, ts: int, job: FinishedJob) -> Schema:
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
    return (
        len(versions) - 1
        if versions and versions[-1].ts <= ts
        else bisect_right(versions, ts, key=attrgetter("ts")) - 1
    )


def info_at(schema: Schema, table: int, ts: int) -> TableInfo | None:
    """Give a table as of ``ts``; None where it was not there."""
    versions = schema.get(table, ())
    at = version_at(versions, ts)
    return versions[at].info if at >= 0 else None


def tables_at(schema: Schema, ts: int) -> frozenset[Key]:
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


# The mounter: raw rows of TiKV become row changes, with the table as it was when they were committed.

OPS = ("delete", "update", "insert")
Cells = tuple[Cell, ...]


class UnknownTable(Exception):
    """A row of a table that was not there when it was committed."""


def mounted(rows: Sequence[Row], versions: tuple[Version, ...]) -> list[Change]:
    """Mount rows of one table that are sorted by commit_ts.

    ``rows``: what the sorter gave. ``versions``: the table's, oldest first; a row gets the one as of its commit_ts.
    Raises Unknown: the table was not there at a row's commit_ts.
    """
    out: list[Change] = []
    at = 0
    while at < len(rows):
        index = version_at(versions, rows[at][0])
        info = versions[index].info if index >= 0 else None
        if info is None:
            raise UnknownTable(
                f"{shown(rows[at][3])}, committed at {rows[at][0]}, is of a table that was not there then"
            )
        end = len(rows)
        if index + 1 < len(versions):
            end = bisect_left(rows, (versions[index + 1].ts,), at)
        out += _as_of(rows if not at and end == len(rows) else rows[at:end], info)
        at = end
    return out


def _as_of(rows: Sequence[Row], info: TableInfo) -> list[Change]:
    """Mount rows of one definition; most were written under it, and their cells are taken as they are."""
    column_ids = info.column_ids
    new, ops, kind = tuple.__new__, OPS, Change
    same: tuple[int, ...] | None = None
    other: dict[tuple[int, ...], Callable[[Cells], Cells]] = {}
    out: list[Change] = []
    append = out.append
    for commit_ts, start_ts, rank, key, _, value, old in rows:
        after = before = None
        if value is not None:
            ids, after = value
            if ids is not same:
                if ids == column_ids:
                    same = ids
                else:
                    after = _moved(ids, info, other)(after)
        if old is not None:
            ids, before = old
            if ids is not same:
                if ids == column_ids:
                    same = ids
                else:
                    before = _moved(ids, info, other)(before)
        append(new(kind, (commit_ts, start_ts, key, ops[rank], info, after, before)))
    return out


def _moved(
    ids: tuple[int, ...], info: TableInfo, known: dict[tuple[int, ...], Callable[[Cells], Cells]]
) -> Callable[[Cells], Cells]:
    """Give what brings cells of another definition into this one's order: defaults for what was added later."""
    if ids not in known:
        index = {column_id: i for i, column_id in enumerate(ids)}
        plan = [(index.get(c.id, -1), c.default) for c in info.columns]
        known[ids] = lambda cells: tuple(cells[i] if i >= 0 else default for i, default in plan)
    return known[ids]
