"""What was committed upstream in a run, told from the upstream alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from ticdc_lab.simulate.pipeline.history import History, cells_of
from ticdc_lab.simulate.pipeline.keys import table_of
from ticdc_lab.simulate.pipeline.tables import Change, Job, Raw, TableInfo, Value
from ticdc_lab.simulate.pipeline.tidb_state import FINISHING, Item, TidbState

Version: TypeAlias = tuple[Any, ...]
"""commit_ts, start_ts, key, operation, value, value before."""


def replayed(clients: TidbState, decided: Sequence[tuple[int, int, int]], items: Sequence[Item]) -> list[Version]:
    """Give what clients committed, also the versions that GC took from TiKV since.

    Parameters
    ----------
    clients
        As they are in the end; a transaction is committed when its primary key is.
    decided
        commit_ts, start_ts and item of every transaction that got a commit_ts, in that order.
    items
        What they write.
    """
    values: dict[int, Value | None] = {}
    found: list[Version] = []
    for commit_ts, start_ts, number in decided:
        txn = clients.open.get(start_ts)
        if txn is not None and txn.phase != FINISHING:
            continue
        for key, op, value in items[number].mutations:
            found.append((commit_ts, start_ts, key, op, value, values.get(key)))
            values[key] = value
    return found


def jobs_of(versions: Iterable[Version]) -> list[tuple[int, Job]]:
    """Give the DDL jobs among versions, by finished_ts."""
    return sorted(((v[0], v[4]) for v in versions if isinstance(v[4], Job)), key=lambda j: j[0])


def changes_of(versions: Sequence[Version], tables: Sequence[TableInfo], start_ts: int) -> list[Change]:
    """Give the row changes after ``start_ts`` among versions, with the definitions of their time, in commit order."""
    history = History(tables, jobs_of(versions))
    rows = [v for v in versions if v[0] > start_ts and not isinstance(v[4], Job)]
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
