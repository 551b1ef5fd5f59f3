"""A table with a primary and two unique keys, its random history, and a consumer that has it again from partitions."""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Row = tuple[int, Any, Any, Any]
"""Values of id (the primary key), a (unique), b and c (unique together); null except for the id."""

Unique = tuple[tuple[int, ...], ...]
UNIQUE: Unique = ((0,), (1,), (2, 3))


class Inconsistent(Exception):
    """The consumer's table cannot take a change: a duplicate key, or a row that is not as the change describes."""


@dataclass(frozen=True)
class Change:
    """One row change; ``before`` or ``after`` is None for an insert or a delete."""

    commit_ts: int
    before: Row | None
    after: Row | None

    @property
    def op(self) -> str:
        """Its operation."""
        return "insert" if self.before is None else "delete" if self.after is None else "update"

    @property
    def rank(self) -> int:
        """TiCDC's order in a transaction."""
        return ("delete", "update", "insert").index(self.op)


def history(r: random.Random, *, transactions: int, values: int = 6, most: int = 3) -> list[Change]:
    """Change some rows at once, again and again: values pass from row to row, ids change, with and without a split."""
    rows: set[Row] = set()
    out: list[Change] = []
    for ts in range(1, transactions + 1):
        old = r.sample(sorted(rows, key=str), min(len(rows), r.randrange(most + 1)))
        pairs = [(b, _changed(r, b, values)) for b in old] + [(None, _changed(r, None, values))] * (r.random() < 0.5)
        after = [a for _, a in pairs if a is not None]
        rest = rows - set(old)
        if has_duplicates([*rest, *after]):
            continue
        rows = rest | set(after)
        for b, a in pairs:
            if b is not None and a is not None and b[0] != a[0] and r.random() < 0.5:
                out += [Change(ts, b, None), Change(ts, None, a)]
            elif a != b:
                out.append(Change(ts, b, a))
    return out


def _changed(r: random.Random, row: Row | None, values: int) -> Row | None:
    if row is not None and r.random() < 0.25:
        return None
    new = [r.randrange(3 * values), *[r.choice((None, *range(values))) for _ in range(3)]]
    kept = row or new
    return tuple(n if r.random() < 0.4 else k for n, k in zip(new, kept, strict=True))  # type: ignore[return-value]


def values_of(row: Row | None, unique: Unique = UNIQUE) -> list[tuple[Any, ...]]:
    """The key values of a row, without those that hold NULL."""
    if row is None:
        return []
    found = [(columns, *[row[c] for c in columns]) for columns in unique]
    return [v for v in found if None not in v]


def has_duplicates(rows: Iterable[Row], unique: Unique = UNIQUE) -> bool:
    """Whether two rows share a key value."""
    values = [v for row in rows for v in values_of(row, unique)]
    return len(values) != len(set(values))


def hashed(value: Any) -> int:
    """A number of 64 bits for a key value."""
    return int.from_bytes(hashlib.blake2b(repr(value).encode(), digest_size=8).digest(), "big", signed=True)


def keys(change: Change) -> list[int]:
    """The key hashes of a change, old and new."""
    return list(dict.fromkeys(hashed(v) for row in (change.after, change.before) for v in values_of(row)))


def batch(rows: Sequence[tuple[int, int, Sequence[int] | None]]) -> pa.RecordBatch:
    """Sorted changes for the stream, of (table, commit_ts, keys); keys None is a DDL."""
    own = [None if k is None else k[0] for _, _, k in rows]
    second = [k[1] if k and len(k) > 1 else None for _, _, k in rows]
    more = [None if k is None else list(k[2:]) for _, _, k in rows]
    big = pa.int64()
    return pa.RecordBatch.from_pydict(
        {
            "table_id": pa.array([t for t, _, _ in rows], big),
            "commit_ts": pa.array([ts for _, ts, _ in rows], big),
            "op_rank": pa.array([3 if k is None else 0 for _, _, k in rows], pa.int32()),
            "key_hash": pa.array(own, big),
            "before_key_hash": pa.array(second, big),
            "uniques": pa.array(more, pa.list_(big)),
        }
    )


def reference(rows: Sequence[tuple[int, int, Sequence[int] | None]], n: int, max_keys: int) -> list[tuple[int, int]]:
    """Conflict detection in plain Python: target and alignment of each row."""
    out: list[tuple[int, int]] = []
    table, i = None, 0
    while i < len(rows):
        if rows[i][0] != table:
            table, known, number, waiting, placed = rows[i][0], dict[int, int](), 0, False, False
        if rows[i][2] is None:
            waiting |= placed
            out.append((-1, number))
            i += 1
            continue
        end = i
        while end < len(rows) and rows[end][:2] == rows[i][:2] and rows[end][2] is not None:
            end += 1
        unit = {k for row in rows[i:end] for k in row[2] or ()}
        homes = {known[k] for k in unit if k in known}
        if waiting or len(homes) > 1:
            known, homes, number = {}, set(), number + 1
        home = homes.pop() if homes else min(k % 2**64 for k in unit) % n
        known |= dict.fromkeys(unit, home) if n > 1 else {}
        placed, waiting = True, len(known) > max_keys
        out += [(home, number)] * (end - i)
        i = end
    return out


def consume(
    r: random.Random, placed: Iterable[tuple[Change, int, int]], *, waits: bool = True, unique: Unique = UNIQUE
) -> set[Row]:
    """Apply (change, partition, alignment) with one listener a partition, in any interleaving; the rows in the end.

    A transaction of a partition is applied at once, to a table with these ``unique`` keys.
    With ``waits``, no one passes an alignment before all are there.
    """
    queues: dict[int, dict[tuple[int, int], list[Change]]] = defaultdict(lambda: defaultdict(list))
    for change, partition, alignment in sorted(placed, key=lambda p: (p[0].commit_ts, p[0].rank)):
        queues[partition][alignment, change.commit_ts].append(change)
    waiting = {partition: list(queue.items()) for partition, queue in queues.items()}
    seen = [(partition, key[1]) for partition, queue in waiting.items() for key, _ in queue]
    if len({ts for _, ts in seen}) != len(seen):
        raise Inconsistent("a transaction is torn")
    rows: set[Row] = set()
    while waiting:
        stretch = min(queue[0][0][0] for queue in waiting.values())
        ready = sorted(p for p, queue in waiting.items() if not waits or queue[0][0][0] == stretch)
        chosen = r.choice(ready)
        _apply(rows, waiting[chosen].pop(0)[1], unique)
        if not waiting[chosen]:
            del waiting[chosen]
    return rows


def _apply(rows: set[Row], changes: list[Change], unique: Unique = UNIQUE) -> None:
    before = {c.before for c in changes if c.before is not None}
    if not before <= rows:
        raise Inconsistent(f"{before - rows} are not there")
    rows -= before
    after = [c.after for c in changes if c.after is not None]
    if has_duplicates([*rows, *after], unique):
        raise Inconsistent("duplicate key")
    rows.update(after)


def upstream(changes: Iterable[Change]) -> set[Row]:
    """The rows in the end."""
    rows: set[Row] = set()
    by_ts: dict[int, list[Change]] = defaultdict(list)
    for c in changes:
        by_ts[c.commit_ts].append(c)
    for ts in sorted(by_ts):
        _apply(rows, by_ts[ts])
    return rows
