"""The tables of a load over time, told from what TiKV holds and from nothing that a capture says."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ticdc_lab.simulate.pipeline.keys import table_of
from ticdc_lab.simulate.pipeline.tables import Cell, Change, FinishedJob, Raw, TableInfo, Value
from ticdc_lab.simulate.pipeline.tidb_state import FINISHING, Decided, Item, TidbState


class History:
    """Which definition each table had when.

    ``tables``: those there were at the beginning. ``jobs``: (finished_ts, job), in any order.
    """

    def __init__(self, tables: Sequence[TableInfo], jobs: Iterable[tuple[int, FinishedJob]]) -> None:
        found: dict[int, list[tuple[int, TableInfo]]] = {t.id: [(0, t)] for t in tables}
        for ts, job in sorted(jobs, key=lambda j: j[0]):
            if job.info is not None:
                found.setdefault(job.info.id, []).append((ts, job.info))
        self._known: Mapping[int, list[tuple[int, TableInfo]]] = found

    def at(self, table: int, commit_ts: int) -> TableInfo:
        """Give the definition that a row of ``commit_ts`` has: a DDL counts for what is committed after it.

        Raises KeyError: there was no such table then.
        """
        versions = self._known[table]
        at = bisect_right(versions, commit_ts - 1, key=lambda v: v[0]) - 1
        if at < 0:
            raise KeyError(table)
        return versions[at][1]


def cells_of(raw: Raw, info: TableInfo) -> tuple[Cell, ...]:
    """Give the cells of a row under a definition: columns added since have their default."""
    if raw.column_ids == info.column_ids:
        return raw.cells
    known = dict(zip(raw.column_ids, raw.cells, strict=True))
    return tuple(known.get(c.id, c.default) for c in info.columns)


# What was committed upstream in a run, told from the upstream alone.

Version: TypeAlias = tuple[Any, ...]
"""commit_ts, start_ts, key, operation, value, value before."""


def replayed(clients: TidbState, decided: Sequence[Decided], items: Sequence[Item]) -> list[Version]:
    """Give what clients committed, also the versions that GC took from TiKV since.

    ``clients``: as they are in the end; a transaction is committed when its primary key is. ``decided``: commit_ts,
    start_ts and item of every transaction that got a commit_ts, in that order. ``items``: what they write.
    """
    values: dict[int, Value | None] = {}
    found: list[Version] = []
    for commit_ts, start_ts, number in decided:
        txn = clients.open.get(start_ts)
        if txn is not None and txn[1] != FINISHING:
            continue
        for key, op, value in items[number].mutations:
            found.append((commit_ts, start_ts, key, op, value, values.get(key)))
            values[key] = value
    return found


def jobs_of(versions: Iterable[Version]) -> list[tuple[int, FinishedJob]]:
    """Give the DDL jobs among versions, by finished_ts."""
    return sorted(((v[0], v[4]) for v in versions if isinstance(v[4], FinishedJob)), key=lambda j: j[0])


def changes_of(versions: Sequence[Version], tables: Sequence[TableInfo], start_ts: int) -> list[Change]:
    """Give the row changes after ``start_ts`` among versions, with the definitions of their time, in commit order."""
    history = History(tables, jobs_of(versions))
    rows = [v for v in versions if v[0] > start_ts and not isinstance(v[4], FinishedJob)]
    return sorted((_change(history, row) for row in rows), key=lambda c: (c.commit_ts, c.key))


def _change(history: History, row: Version) -> Change:
    commit_ts, start_ts, key, op, value, old_value = row
    info = history.at(table_of(key), commit_ts)
    before = cells_of(old_value, info) if isinstance(old_value, Raw) else None
    after = cells_of(value, info) if isinstance(value, Raw) else None
    if after is None:
        op = "delete"
    else:
        op = "insert" if before is None else "update"
    return Change(commit_ts, start_ts, key, op, info, after, before)
