"""The mounter: raw rows of TiKV become row changes, with the table as it was when they were committed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from ticdc_lab.simulate.pipeline.capture.path_state import Row
from ticdc_lab.simulate.pipeline.capture.schema import version_at
from ticdc_lab.simulate.pipeline.capture.state import Version
from ticdc_lab.simulate.pipeline.keys import shown
from ticdc_lab.simulate.pipeline.tables import Cell, Change, TableInfo

OPS = ("delete", "update", "insert")
Cells = tuple[Cell, ...]


class Unknown(Exception):
    """A row of a table that was not there when it was committed."""


def mounted(rows: Sequence[Row], versions: tuple[Version, ...]) -> list[Change]:
    """Mount rows of one table that are sorted by commit_ts.

    Parameters
    ----------
    rows
        What the sorter gave.
    versions
        The table's, oldest first; a row gets the one as of its commit_ts.

    Raises
    ------
    Unknown
        The table was not there at a row's commit_ts.
    """
    out: list[Change] = []
    at = 0
    while at < len(rows):
        index = version_at(versions, rows[at][0])
        info = versions[index].info if index >= 0 else None
        if info is None:
            raise Unknown(f"{shown(rows[at][3])}, committed at {rows[at][0]}, is of a table that was not there then")
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
