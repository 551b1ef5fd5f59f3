"""The changes of whole rows, in numbers: which of them may break a guarantee, and what surrounds those.

Most keys leave at the first question, without being sorted: their deliveries lie in one partition, in commit order,
none twice and none behind a mark that forbids it. All else is computed for the others alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ticdc_lab.audit.chain import broken_chains, covered, torn
from ticdc_lab.audit.promises import Ints, Marks, Promises
from ticdc_lab.neighbours import changes_in

Bools = NDArray[np.bool_]

NO_TS = -(2**63)
"""Stands for a commit_ts that is null: nothing is known about its order."""

LEAVES = 0
"""Rank of the old key of an update that changes the key, before a transaction's deletes."""

COLUMNS = ("row_id", "place", "commit_ts", "offset", "change_hash", "role", "before", "after")
"""What is known of a change: ``role`` is ``seq * 4 + rank``, ``before`` and ``after`` are hashes of the images."""


@dataclass(frozen=True)
class Changes:
    """Changes of rows, all of a row together."""

    row_id: Ints
    place: Ints
    commit_ts: Ints
    offset: Ints
    change_hash: Ints
    role: Ints
    before: Ints
    after: Ints

    @cached_property
    def seq(self) -> Ints:
        """Place inside a message."""
        return self.role >> 2

    @cached_property
    def rank(self) -> Ints:
        """Place of the operation in a transaction."""
        return self.role & 3

    @cached_property
    def row(self) -> Ints:
        """Number of the row, from 0."""
        return np.cumsum(changes_in(self.row_id)) - 1

    def __getitem__(self, which: Any) -> Changes:
        return Changes(*[getattr(self, c)[which] for c in COLUMNS])

    def __len__(self) -> int:
        return len(self.row_id)

    def in_order(self, *, has_commit_ts: bool) -> Ints:
        """Order of each row's changes: of commits, or of places where nothing tells commits."""
        if has_commit_ts:
            return np.lexsort((self.seq, self.place, self.offset, self.rank, self.commit_ts, self.row))
        return np.lexsort((self.seq, self.offset, self.place, self.row))


def suspects(changes: Changes, promises: Promises, *, has_commit_ts: bool) -> pa.RecordBatch | None:
    """The changes that may break a guarantee, as :func:`ticdc_lab.audit.history.row_history` yields them."""
    odd = ~_plain(changes, has_commit_ts=has_commit_ts)
    if has_commit_ts:
        resolved, ddl = _forbidden(changes, promises)
        odd |= (resolved >= 0) | (ddl >= 0)
    odd |= _strays(changes, promises)
    if not odd.any():
        return None
    rows = np.zeros(int(changes.row[-1]) + 1, dtype=bool)
    rows[changes.row[odd]] = True
    kept = changes[rows[changes.row]]
    return _histories(kept[kept.in_order(has_commit_ts=has_commit_ts)], promises, has_commit_ts=has_commit_ts)


def _plain(c: Changes, *, has_commit_ts: bool) -> Bools:
    """Whether a change follows the one before it here in every order, or is the first of its row."""
    ok = np.ones(len(c), dtype=bool)
    now, was = slice(1, None), slice(None, -1)
    fine = c.place[now] == c.place[was]
    if has_commit_ts:
        ts, before = c.commit_ts[now], c.commit_ts[was]
        fine &= (before < ts) | ((before == ts) & (c.rank[was] < c.rank[now]))
        at, earlier = c.offset[now], c.offset[was]
        fine &= (earlier < at) | ((earlier == at) & (c.seq[was] < c.seq[now]))
        fine &= torn(c.after[was], c.before[now]) == 0
    ok[1:] = fine | (c.row_id[now] != c.row_id[was])
    return ok


def _forbidden(c: Changes, promises: Promises) -> tuple[Ints, Ints]:
    """The watermark and the DDL before each change that forbid it, as indices; -1 where there is none."""
    place = np.searchsorted(promises.place, c.place)
    counts = (c.rank != LEAVES) & (c.commit_ts != NO_TS)

    def broken(marks: Marks, group: Ints, late: Any) -> Ints:
        if not len(marks.ts):
            return np.full(len(c), -1)
        at = marks.last_before(group, c.offset, c.seq)
        return np.where(counts & (at >= 0) & late(c.commit_ts, marks.ts[at]), at, -1)

    resolved = broken(promises.resolved, promises.home[place], np.less_equal)
    return resolved, broken(promises.ddl, place, np.less)


def _strays(c: Changes, promises: Promises) -> Bools:
    """Whether a change lies in a partition that does not count any more, or not yet, by the last Admin event before."""
    if not len(promises.eras.count):
        return np.zeros(len(c), dtype=bool)
    place = np.searchsorted(promises.place, c.place)
    count = promises.eras.of(promises.home[place], c.offset, c.seq)[1]
    return (count >= 0) & (promises.partition[place] >= count)


def _histories(c: Changes, promises: Promises, *, has_commit_ts: bool) -> pa.RecordBatch:
    """Changes in order, each with its surroundings; those without any reason for a finding are left out."""
    n = len(c)
    at = np.arange(n)
    none = np.full(n, -1)
    first, leaves = ~_repeats(c, c.row), c.rank == LEAVES
    home = _last(~leaves & (first | (not has_commit_ts)), at, c.row)
    late = _late(c) if has_commit_ts else none
    resolved, ddl = _forbidden(c, promises) if has_commit_ts else (none, none)
    place = np.searchsorted(promises.place, c.place)
    era, count = promises.eras.of(promises.home[place], c.offset, c.seq)
    former, first_here = _formers(c, era, has_commit_ts=has_commit_ts) if era.any() else (home, first)
    elsewhere = (former >= 0) & (c.place != c.place[former])
    other = (home >= 0) & ~first & (c.change_hash != c.change_hash[home])
    stray = (count >= 0) & (promises.partition[place] >= count)
    dated = np.bincount(c.row, c.commit_ts == NO_TS)[c.row] == 0
    linked = first & dated & (c.row_id != c.change_hash)
    broken, why = broken_chains(c, _last(first, at, c.row), linked & has_commit_ts, promises)
    is_covered = covered(c, broken, place, promises)
    keep = np.flatnonzero(elsewhere | other | stray | (late >= 0) | (resolved >= 0) | (ddl >= 0) | (broken >= 0))
    own, names, topics = c[keep], place[keep], pa.array(promises.topic, pa.string())

    def event(which: Ints, *fields: str) -> pa.Array:
        held = {**{f: getattr(c, f)[which] for f in ("place", "offset", "change_hash")},
                "partition": promises.partition[place[which]].astype(np.int32), "seq": c.seq[which].astype(np.int32),
                "commit_ts": _timestamps(c.commit_ts[which]),
                "topic": topics.take(pa.array(place[which]))}  # fmt: skip
        return pa.StructArray.from_arrays([pa.array(held[f]) for f in fields], fields, mask=pa.array(which < 0))

    def mark(marks: Marks, which: Ints) -> pa.Array:
        taken = pa.array(which, mask=which < 0)
        held = (marks.offset, marks.seq.astype(np.int32), marks.ts)
        return pa.StructArray.from_arrays(
            [pa.array(a).take(taken) for a in held], ("offset", "seq", "ts"), mask=pa.array(which < 0)
        )

    return pa.RecordBatch.from_pydict(
        {
            "topic": topics.take(pa.array(names)),
            "schema_name": pa.array(promises.schema_name, pa.string()).take(pa.array(names)),
            "table_name": pa.array(promises.table_name, pa.string()).take(pa.array(names)),
            "partition": pa.array(promises.partition[names].astype(np.int32)),
            "place": pa.array(own.place),
            "offset": pa.array(own.offset),
            "seq": pa.array(own.seq.astype(np.int32)),
            "commit_ts": _timestamps(own.commit_ts),
            "change_hash": pa.array(own.change_hash),
            "row_id": pa.array(own.row_id),
            "keyed": pa.array(own.row_id != own.change_hash),
            "leaves": pa.array(leaves[keep]),
            "resolved": mark(promises.resolved, resolved[keep]),
            "ddl": mark(promises.ddl, ddl[keep]),
            "is_first": pa.array(first[keep]),
            "home": event(home[keep], "place", "topic", "partition", "offset", "seq", "commit_ts", "change_hash"),
            "former": event(former[keep], "place", "topic", "partition", "offset", "seq", "commit_ts"),
            "is_first_here": pa.array(first_here[keep]),
            "count": pa.array(count[keep], mask=~stray[keep]),
            "late": event(late[keep], "offset", "seq", "commit_ts", "partition"),
            "broken": event(broken[keep], "place", "topic", "partition", "offset", "seq", "commit_ts"),
            "how": pa.array(why[keep].astype(np.int32)),
            "covered": pa.array(is_covered[keep]),
        }
    )


def _formers(c: Changes, era: Ints, *, has_commit_ts: bool) -> tuple[Ints, Bools]:
    """Per change the one before it between the same Admin events, or its first delivery there; and whether it is that.

    Beyond an Admin event a row has another partition, and what was sent before is sent again.
    """
    group = c.row * (int(era.max()) + 1) + era
    order = np.argsort(group, kind="stable")
    own, groups, at = c[order], group[order], np.arange(len(c))
    first = ~_repeats(own, groups)
    home = _last((own.rank != LEAVES) & (first | (not has_commit_ts)), at, groups)
    former, first_here = np.full(len(c), -1), np.ones(len(c), dtype=bool)
    former[order], first_here[order] = np.where(home >= 0, order[home], -1), first
    return former, first_here


def _timestamps(ts: Ints) -> pa.Array:
    return pa.array(ts, mask=ts == NO_TS)


def _repeats(c: Changes, group: Ints) -> Bools:
    """Whether a change is the one before it in its group again."""
    again: Bools = ~changes_in(group, c.commit_ts, c.rank) & (c.commit_ts != NO_TS)
    return again


def _last(which: Bools, value: Ints, group: Ints) -> Ints:
    """The greatest of the non-negative ``value`` where ``which`` holds, before each element of its sorted group; -1
    where there is none.
    """
    span = int(value.max(initial=0)) + 2
    best = np.maximum.accumulate(group * span + np.where(which, value + 1, 0))
    before = np.append(-1, best[:-1]) - group * span
    return np.maximum(before, 0) - 1


def _late(c: Changes) -> Ints:
    """The older change of the row whose first appearance in the partition stands behind this one's, or -1.

    One newer change is enough to show that an older one is late, so each late change is named once.
    """
    n = len(c)
    by_place = np.lexsort((np.arange(n), c.place, c.row))
    p = c[by_place]
    group = np.cumsum(changes_in(c.row[by_place], p.place)) - 1
    first = ~_repeats(p, group)
    by_position = np.lexsort((p.commit_ts, p.seq, p.offset))
    position = np.empty(n, dtype=np.int64)
    position[by_position] = np.arange(n)
    # what stands before the first change of its commit_ts is older than all of them
    new = changes_in(group, p.commit_ts)
    seen = _last(first & (p.commit_ts != NO_TS), position, group)[np.maximum.accumulate(np.where(new, np.arange(n), 0))]
    latest = by_position[seen]
    behind = (p.offset[latest] > p.offset) | ((p.offset[latest] == p.offset) & (p.seq[latest] > p.seq))
    late = np.flatnonzero((seen >= 0) & first & behind)
    _, once = np.unique(latest[late], return_index=True)
    found = np.full(n, -1)
    found[by_place[late[once]]] = by_place[latest[late[once]]]
    return found
