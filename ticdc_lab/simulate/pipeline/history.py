"""The tables of a load over time, told from what TiKV holds and from nothing that a capture says."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from ticdc_lab.simulate.pipeline.tables import Cell, Job, Raw, TableInfo


class History:
    """Which definition each table had when.

    Parameters
    ----------
    tables
        Those there were at the beginning.
    jobs
        (finished_ts, job), in any order.
    """

    def __init__(self, tables: Sequence[TableInfo], jobs: Iterable[tuple[int, Job]]) -> None:
        found: dict[int, list[tuple[int, TableInfo]]] = {t.id: [(0, t)] for t in tables}
        for ts, job in sorted(jobs, key=lambda j: j[0]):
            if job.info is not None:
                found.setdefault(job.info.id, []).append((ts, job.info))
        self._known: Mapping[int, list[tuple[int, TableInfo]]] = found

    def at(self, table: int, commit_ts: int) -> TableInfo:
        """Give the definition that a row of ``commit_ts`` has: a DDL counts for what is committed after it.

        Raises
        ------
        KeyError
            There was no such table then.
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
