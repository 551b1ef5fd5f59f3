"""The facts a what-if needs of every row change, as numpy arrays in commit order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Consecutive changes as places in :class:`Facts`."""

    previous: Ints
    current: Ints


@dataclass(frozen=True, slots=True)
class Facts:
    """One entry per row change, sorted by table, commit_ts, kind of change and place in the log.

    ``table`` numbers ``tables``; ``group`` numbers (table, commit_ts); ``pairs`` holds the consecutive changes of each
    guarantee; ``names`` gives schema and table name of a table.
    """

    tables: tuple[str, ...]
    names: Mapping[str, tuple[str, str]]
    table: Ints
    commit_ts: Ints
    partition: Ints
    offset: Ints
    seq: Ints
    group: Ints
    keys: pa.ChunkedArray
    pairs: Mapping[str, Pairs]

    def position(self, i: int, target: int) -> dict[str, Any]:
        """One end of a counterexample."""
        place = {n: int(getattr(self, n)[i]) for n in ("partition", "offset", "seq", "commit_ts")}
        return {"target_partition": target, **place, "key": self.keys[i].as_py()}


def facts_of(changes: pa.Table) -> tuple[Facts, Ints]:
    """Facts from the collected :func:`ticdc_lab.dispatch.changes.first_changes`, and the order they were put in."""
    names = changes["table"].combine_chunks().dictionary_encode()
    tables = tuple(sorted(names.dictionary.to_pylist()))
    place = {t: i for i, t in enumerate(tables)}
    rank = np.array([place[t] for t in names.dictionary.to_pylist()], dtype=np.int64)
    table = rank[names.indices.to_numpy()] if len(rank) else np.zeros(0, dtype=np.int64)
    column = {n: _ints(changes[n]) for n in ("commit_ts", "op_rank", "partition", "offset", "seq")}
    order = np.lexsort(
        (column["seq"], column["offset"], column["partition"], column["op_rank"], column["commit_ts"], table)
    )
    table, column = table[order], {n: c[order] for n, c in column.items()}
    new_group = (np.diff(table, prepend=-1) != 0) | (np.diff(column["commit_ts"], prepend=0) != 0)
    pairs = {
        "row_order": _pairs_of(changes["keys"], order, table),
        "row_order_any_unique": _pairs_of(changes["uniques"], order, table),
        "table_order": _neighbours(table),
    }
    written = changes.group_by(["table", "schema_name", "table_name"]).aggregate([]).to_pylist()
    facts = Facts(
        tables,
        {w["table"]: (w["schema_name"], w["table_name"]) for w in written},
        table,
        column["commit_ts"],
        column["partition"],
        column["offset"],
        column["seq"],
        np.cumsum(new_group),
        changes["key"].take(pa.array(order)),
        pairs,
    )
    return facts, order


def _ints(column: pa.ChunkedArray) -> Ints:
    return np.asarray(column.fill_null(-1).to_numpy(), dtype=np.int64)


def _neighbours(of: Ints) -> Pairs:
    """Entries that follow one of the same value."""
    current = np.flatnonzero(of[1:] == of[:-1]) + 1
    return Pairs(current - 1, current)


def _pairs_of(lists: pa.ChunkedArray, order: Ints, table: Ints) -> Pairs:
    """Consecutive changes that share a value of ``lists`` in the same table."""
    taken = lists.take(pa.array(order)).combine_chunks()
    values = taken.flatten().to_numpy()
    row = np.repeat(np.arange(len(taken)), np.diff(taken.offsets.to_numpy()))
    by_value = np.lexsort((row, values, table[row]))
    row, values = row[by_value], values[by_value]
    same = (values[1:] == values[:-1]) & (table[row[1:]] == table[row[:-1]]) if len(row) else np.zeros(0, dtype=bool)
    current = np.flatnonzero(same) + 1
    return Pairs(row[current - 1], row[current])
