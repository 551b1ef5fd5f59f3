"""Every row's changes in commit order, in numbers: which of them may break a guarantee, and what surrounds those.

One shuffle brings the changes of a row together. Most rows leave at the first question: their deliveries lie in one
partition, in commit order, none twice, none behind a mark that forbids it, and each begins where the one before it
ended. All else is computed for the others alone. A row is held whole, and its judging takes some 600 bytes a change:
one row that changed a million times, such as a counter, needs 600 MB in one task.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from ticdc_lab.audit.marks import BEGIN, Marks, Promises
from ticdc_lab.codecs.kernel import cache
from ticdc_lab.codecs.kernel.chains import ChangesInTurn, RowsSoFar, follow, mark_odd
from ticdc_lab.codecs.keys import rows_of
from ticdc_lab.engine.ordering import order_of
from ticdc_lab.engine.shuffle import Batches, Kernel, KernelOf, MadeByWorkers, by_key_beside, by_key_here
from ticdc_lab.events.arrays import NO_TS, Bools, Ints, are, changes_in, encoded, numbers, whole_keys
from ticdc_lab.events.changes import row_ids
from ticdc_lab.events.schema import IMAGE_HASHES, KEYS
from ticdc_lab.facts.places import NAMED_BY, index_of, placed

if TYPE_CHECKING:
    from ticdc_lab.sources.stored import StoredEvents

ROWS_AT_ONCE = 1 << 17
"""Changes that a task judges at once: some ten MB."""

ABSENT, SOME, UNKNOWN = 0, 1, 2
"""Replace the hash of an image where the row is absent, present in an unknown form, or perhaps present."""

IS_GONE, IS_THERE, IS_OTHER = 1, 2, 3
"""How a change does not begin where the one before it ended."""

LEAVES, DELETE, UPDATE, INSERT = range(4)
"""Place in a transaction: first the old key of an update that changes the key."""

_COLUMNS = ("row_id", "place", "commit_ts", "offset", "seq", "rank", "change_hash", "before", "after")

_DELETES, _UPDATES, _INSERTS, _TAKES, _UNSURE, _IS_OLD = (1 << n for n in range(6))
"""Bits of the flags of a change: its operation; it takes another key's place; it may not be that operation; it is
for the key that it leaves."""
_PER_SEQ = 256
"""``seq_flags``, as seq and flags go through the shuffle: an engine hands one number on for half of what two cost."""

_BITS = {"delete": _DELETES, "update": _UPDATES, "insert": _INSERTS}
_NARROW = ("place", "commit_ts", "offset", "change_hash", "before_hash", "after_hash")
_FORM = pa.schema([(name, pa.int64()) for name in (*_NARROW, "seq_flags", "row_id")])
_READ = (
    *NAMED_BY, "commit_ts", "offset", "seq", "op", "incomplete", *KEYS.names, *IMAGE_HASHES.names,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _ImageByFlags:
    """By the flags of a change what an image is: its hash where it ``holds`` and there is one, else ``other``."""

    holds: Bools
    other: Ints

    @classmethod
    def found(cls) -> Self:
        """The image before a change; an update without one may be an insert (mq-v1 does not show it)."""
        insert, takes = _has(_INSERTS), _has(_TAKES) & ~_has(_IS_OLD)
        other = np.where(_has(_UPDATES), UNKNOWN, SOME)
        other = np.where(insert, np.where(_has(_UNSURE), UNKNOWN, ABSENT), other)
        return cls(~insert & ~takes, np.where(takes, ABSENT, other))

    @classmethod
    def left(cls) -> Self:
        """The image after it."""
        gone = _has(_IS_OLD) | _has(_DELETES)
        return cls(~gone, np.where(gone, ABSENT, SOME))

    def of(self, flags: Ints, hashes: Any) -> Ints:
        """What the image of each change is."""
        other = self.other[flags]
        known = self.holds[flags] & np.asarray(hashes.is_valid())
        return np.where(known, np.asarray(hashes.fill_null(0)), other)


def _has(bit: int) -> Bools:
    """Which values of flags have a bit."""
    has: Bools = (np.arange(_PER_SEQ) & bit) != 0
    return has


_RANK = np.select([_has(_IS_OLD), _has(_DELETES), _has(_UPDATES)], [LEAVES, DELETE, UPDATE], INSERT).astype(np.int64)
_FOUND, _LEFT = _ImageByFlags.found(), _ImageByFlags.left()

Shown = tuple[Ints, Ints, Ints]
"""Evidence of findings: partition, offset and commit_ts of a message of each."""


@dataclass(frozen=True)
class Changes:
    """Changes of rows, all of a row together.

    ``before`` and ``after`` are hashes of the images (columns in the high 32 bits, :mod:`ticdc_lab.codecs.keys`), or
    :data:`ABSENT`, :data:`SOME` or :data:`UNKNOWN`; ``rank`` is :data:`UPDATE` or another place in a transaction.
    """

    row_id: Ints
    place: Ints
    commit_ts: Ints
    offset: Ints
    seq: Ints
    rank: Ints
    change_hash: Ints
    before: Ints
    after: Ints

    @classmethod
    def read(cls, rows: pa.Table, *, unsure: bool = False) -> Changes:
        """As of :func:`changes_of`; ``unsure``: inserts cannot be distinguished from updates."""
        names = ("row_id", "place", "offset", "seq_flags", "change_hash")
        row_id, place, offset, seq_flags, change_hash = numbers(rows, *names)
        (commit_ts,) = numbers(rows, "commit_ts", null=NO_TS)
        seq, flags = seq_flags >> _PER_SEQ.bit_length() - 1, seq_flags & _PER_SEQ - 1
        flags = flags | _UNSURE if unsure else flags
        before, after = _FOUND.of(flags, rows["before_hash"]), _LEFT.of(flags, rows["after_hash"])
        return cls(row_id, place, commit_ts, offset, seq, _RANK[flags], change_hash, before, after)

    @cached_property
    def row(self) -> Ints:
        """Number of the row, from 0."""
        return np.cumsum(changes_in(self.row_id)) - 1

    def __getitem__(self, which: Any) -> Changes:
        return Changes(*[getattr(self, c)[which] for c in _COLUMNS])

    def __len__(self) -> int:
        return len(self.row_id)

    def in_order(self, *, has_commit_ts: bool) -> Ints:
        """Order of each row's changes: of commits, or of places where commits are unknown."""
        if has_commit_ts:
            return order_of(self.row, self.commit_ts, self.rank, self.offset, self.place, self.seq)
        return order_of(self.row, self.place, self.offset, self.seq)


@dataclass(frozen=True)
class Suspects:
    """Whole rows with a change that may break a guarantee, each row's changes in order."""

    # ``c``, ``promises``: the changes, and what the log promises.
    c: Changes
    promises: Promises
    has_commit_ts: bool  # False where nothing orders changes: each delivery is one then
    place: Ints  # per change the index of its place in ``promises``
    first: Bools  # it is the delivery that counts
    home: Ints  # index of the change before, or for a repeat of its first delivery; -1 for none, as in all that follow
    # ``former``, ``first_here``: the same two between the Admin events that surround it.
    former: Ints
    first_here: Bools
    # ``resolved``, ``ddl``: the mark before it that forbids it, in ``promises``.
    resolved: Ints
    ddl: Ints
    late: Ints  # an older change that first appears later in this partition
    count: Ints  # the partitions that count where it stands, if its own is not among them
    # ``broken``, ``how``: the row's former change, where that does not leave what this one found; and how not
    # (:data:`IS_GONE`, ..).
    broken: Ints
    how: Ints
    # What partitions hold between ``broken`` and it, DDL too, was recorded: all of them, of a row that moves.
    covered: Bools
    if_it_stays: Bools  # it is covered only if the row stays in its partition

    @cached_property
    def keyed(self) -> Bools:
        """False for a table without key, where ``row_id`` is the change's content."""
        keyed: Bools = self.c.row_id != self.c.change_hash
        return keyed

    @cached_property
    def leaves(self) -> Bools:
        """It is the old key of an update that changes it."""
        leaves: Bools = self.c.rank == LEAVES
        return leaves

    @cached_property
    def partition(self) -> Ints:
        """Partition of each change."""
        return self.promises.partition[self.place]

    @cached_property
    def topic(self) -> Ints:
        """A number for the topic of each change."""
        numbers: Ints = np.unique(np.array(self.promises.topic, dtype=str), return_inverse=True)[1]
        return numbers[self.place]

    def change(self, at: Ints) -> Shown:
        """Changes as evidence."""
        return self.partition[at], self.c.offset[at], self.c.commit_ts[at]

    def mark(self, at: Ints, marks: Marks, which: Ints) -> Shown:
        """Watermarks or DDL before changes, as evidence."""
        return self.partition[at], marks.offset[which], marks.ts[which]


Judge = Callable[[Suspects], pa.RecordBatch]


def judged(
    events: DataFrame,
    judge: Callable[[pa.Table, Promises], Judge],
    schema: str,
    *,
    beside: DataFrame | pa.Table,
    has_commit_ts: bool,
    chunk: int = ROWS_AT_ONCE,
    files: StoredEvents | None = None,
    kept: Kernel | None = None,
) -> DataFrame:
    """Let a function judge all rows that may break a guarantee; one shuffle by row.

    ``events``: the events contract; images only where the hash columns are missing. ``judge``: gets ``beside`` and what
    the log promises, and gives a function of :class:`Suspects`. ``schema``: of what that gives. ``beside``: a small
    frame whose row has ``promises`` (:func:`ticdc_lab.audit.marks.log_marks`). ``has_commit_ts``: False for
    canal-json without the TiDB extension. ``chunk``: changes that a task judges at once; changes nothing but its
    memory. ``files``: the same events in files with the hash columns, if they lie in some; Spark reads them where
    ``beside`` is a table. ``kept``: what is kept of that in each task; by default all.
    """
    kernel = _judging(judge, has_commit_ts=has_commit_ts, chunk=chunk, kept=kept)
    rows: DataFrame | MadeByWorkers
    if files is not None and files.by_spark and isinstance(beside, pa.Table):  # a row is held whole, packed or not
        rows = files.rows(_READ, narrowed, _FORM)
    else:
        images = [IMAGE_HASHES] if {"columns", "before"} <= {*events.columns} else []
        rows = rows_of(events, _READ, narrowed, _FORM, KEYS, *images)
    return by_key_beside(rows, "row_id", kernel, schema, beside=beside)


def judged_here(
    files: StoredEvents, judge: Callable[[pa.Table, Promises], Judge], form: pa.Schema, *, beside: pa.Table,
    has_commit_ts: bool, kept: Kernel,
) -> pa.Table:  # fmt: skip
    """:func:`judged` beside the embedded engine, at once and in this process.

    Rows are not sorted if each of their changes plainly follows the one before it as they come.
    """
    kernel = _judging(judge, has_commit_ts=has_commit_ts, chunk=ROWS_AT_ONCE, kept=kept)
    is_seen = has_commit_ts and files.events > _FEW and cache.has("chains")
    some = partial(not_plain, promises=_promises_in(beside)) if is_seen else (lambda rows: rows)
    return by_key_here(files.rows(_READ, narrowed, _FORM), "row_id", kernel(beside), form, some=some)


_FEW, _ROWS_A_PART, _STRETCH = 1 << 12, 1 << 21, 1 << 10
"""How many changes are sorted as fast; how many rows have their last changes in memory at once, 100 MB or so; and how
many changes of a file follow each other, at least, where it is worth to put such stretches in order."""


def not_plain(rows: pa.Table, promises: Promises) -> pa.Table:
    """Leave out the rows whose changes all plainly follow each other, as they come, where no mark forbids it.

    These come in the order of their commits, and :func:`odd_changes` finds none of them.
    """
    batches = _as_committed(rows).to_batches(max_chunksize=ROWS_AT_ONCE)
    parts, n = -(-len(rows) // _ROWS_A_PART), min(len(rows), 2 * _ROWS_A_PART)
    chains, found = [_chain_of(b, promises) for b in batches], [np.zeros(len(b), np.uint8) for b in batches]
    holds = np.stack([_FOUND.holds, _LEFT.holds]).view(np.uint8)
    table = RowsSoFar.of(n, _RANK, holds, np.stack([_FOUND.other, _LEFT.other]))
    for part in range(parts):
        table.slot[:], table.count[:] = -1, 0
        odd = [follow(c, table, part, parts) for c in chains]
        if -1 in odd:
            return rows
        for c, own in zip(chains, found, strict=True) if any(odd) else ():
            mark_odd(c.row_id, table, part, parts, own)
    some = [b.filter(pa.array(own.view(np.bool_))) for b, own in zip(batches, found, strict=True) if own.any()]
    return pa.Table.from_batches(some, rows.schema)


def _as_committed(rows: pa.Table) -> pa.Table:
    """The same in the order of their commits, where few stretches are in another: an engine writes files so."""
    (ts,) = numbers(rows, "commit_ts", null=NO_TS)
    if not 0 < np.count_nonzero(ts[1:] < ts[:-1]) <= len(ts) // _STRETCH:
        return rows
    order = np.argsort(ts, kind="stable")  # which finds stretches that rise
    begins = np.flatnonzero(np.diff(order, prepend=-2) != 1)
    sizes = np.diff(begins, append=len(order))
    if len(begins) > len(ts) // _STRETCH:
        return rows
    return pa.concat_tables([rows.slice(at, n) for at, n in zip(order[begins], sizes, strict=True)])


def _chain_of(batch: pa.RecordBatch, promises: Promises) -> ChangesInTurn:
    """A batch of changes, and which of them a mark forbids."""
    of = {
        name: np.frombuffer(c.buffers()[1], np.int64)[c.offset : c.offset + len(c)]
        for name, c in zip(batch.schema.names, batch, strict=True)
    }
    images = (pa.concat_arrays([batch[i]]) for i in ("after_hash", "before_hash"))  # whose bitmaps begin with a byte
    after, before = (np.frombuffer(i.buffers()[0] or b"", np.uint8) for i in images)
    (commit_ts,) = numbers(batch, "commit_ts", null=NO_TS)
    seq, flags, no = of["seq_flags"] >> 8, of["seq_flags"] & _PER_SEQ - 1, commit_ts
    own = Changes(of["row_id"], of["place"], commit_ts, of["offset"], seq, _RANK[flags], no, no, no)
    resolved, ddl = _forbidden(own, promises)
    odd = (resolved >= 0) | (ddl >= 0) | (_count(own, promises) >= 0)
    return ChangesInTurn(
        row_id=own.row_id, place=own.place, commit_ts=commit_ts, offset=own.offset, seq_flags=of["seq_flags"],
        before=of["before_hash"], has_before=before, after=of["after_hash"], has_after=after, odd=odd.view(np.uint8),
    )  # fmt: skip


def _judging(
    judge: Callable[[pa.Table, Promises], Judge], *, has_commit_ts: bool, chunk: int, kept: Kernel | None
) -> KernelOf:
    """The kernel that lets a function judge rows, which are sorted by ``row_id``."""

    def kernel(table: pa.Table) -> Kernel:
        promises = _promises_in(table)
        own = judge(table, promises)

        def run(batches: Batches) -> Batches:
            found = _judged(batches, promises, own, has_commit_ts=has_commit_ts, at_once=chunk)
            return found if kept is None else kept(found)

        return run

    return kernel


def _promises_in(table: pa.Table) -> Promises:
    (pickled,) = table["promises"].drop_null().to_pylist()
    promises: Promises = pickle.loads(pickled)
    promises.prepare()
    return promises


def changes_of(events: pa.Table) -> pa.Table:
    """The changes of rows sorted by row, from events with their hashes."""
    read = events.select([name for name in _READ if name in events.column_names])  # the others are large
    return narrowed(read.filter(pc.equal(events["kind"], "row"))).sort_by("row_id")


def narrowed(rows: pa.Table) -> pa.Table:
    """The changes of row events as :func:`judged` shuffles them: one each, two for an update that changes its key."""
    none = pa.nulls(rows.num_rows, pa.int64())
    for name in IMAGE_HASHES.names:
        rows = rows if name in rows.column_names else rows.append_column(name, none)
    takes = np.asarray(pc.is_valid(rows["before_key_hash"]))
    op, ops = encoded(rows["op"])
    flags = np.array([_BITS.get(name, 0) for name in ops])[op] + _TAKES * takes
    if "incomplete" in rows.column_names:
        flags = flags + _UNSURE * are(rows["incomplete"], "op-unknown")
    own = {
        "place": placed(rows)[1],
        **{name: rows[name] for name in _NARROW if name != "place"},
        "seq_flags": pa.array(rows["seq"].fill_null(0).to_numpy().astype(np.int64) * _PER_SEQ + flags),
        "row_id": row_ids(rows),
    }
    every = pa.table(own)
    old = every.filter(pa.array(takes))
    left = {
        "seq_flags": pc.add(old["seq_flags"], pa.scalar(_IS_OLD)),
        "row_id": rows["before_key_hash"].drop_null(),
    }
    old = pa.table({name: left.get(name, old[name]) for name in every.column_names}, schema=every.schema)
    return pa.concat_tables([every, old])


def _judged(
    batches: Iterable[pa.RecordBatch], promises: Promises, judge: Judge, *, has_commit_ts: bool, at_once: int
) -> Batches:
    """What a function finds in whole rows, from batches that are sorted by row."""
    for rows in whole_keys(batches, ("row_id",), at_once=at_once):
        found = suspects(Changes.read(rows), promises, has_commit_ts=has_commit_ts)
        if found is not None:
            yield judge(found)


def suspects(changes: Changes, promises: Promises, *, has_commit_ts: bool) -> Suspects | None:
    """The rows that may break a guarantee; None if there are none."""
    # here, since Spark sorts by one number many times as fast as by two
    changes = changes[order_of(changes.row, changes.commit_ts)]
    odd = odd_changes(changes, promises, has_commit_ts=has_commit_ts)
    if not odd.any():
        return None
    rows = np.zeros(int(changes.row[-1]) + 1, dtype=bool)
    rows[changes.row[odd]] = True
    kept = changes[rows[changes.row]]
    return _surrounded(kept[kept.in_order(has_commit_ts=has_commit_ts)], promises, has_commit_ts=has_commit_ts)


def odd_changes(changes: Changes, promises: Promises, *, has_commit_ts: bool) -> Bools:
    """Which changes, in order of row and commit_ts, may break a guarantee: most do not by their neighbours alone."""
    odd = ~_plain(changes, has_commit_ts=has_commit_ts)
    if has_commit_ts:
        resolved, ddl = _forbidden(changes, promises)
        odd |= (resolved >= 0) | (ddl >= 0)
    odd |= _count(changes, promises) >= 0
    return odd


def torn(left: Ints, found: Ints) -> Ints:
    """How an image before a change differs from what the row's former change left, 0 where it does not.

    Images of other columns are not compared (:data:`ticdc_lab.events.schema.IMAGE_HASHES`).
    """
    gone = (left == ABSENT) & (found != ABSENT) & (found != UNKNOWN)
    there = (left != ABSENT) & (found == ABSENT)
    other = (left >> 32 == found >> 32) & (left >> 32 != 0) & (found != left)
    how: Ints = IS_GONE * gone + IS_THERE * there + IS_OTHER * (other & ~gone & ~there)
    return how


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
    place = index_of(c.place, promises.place)
    counts = (c.rank != LEAVES) & (c.commit_ts != NO_TS)

    def broken(marks: Marks, group: Ints, late: Any) -> Ints:
        found = np.full(len(c), -1)
        if not len(marks.ts):
            return found
        asked = np.flatnonzero(late(c.commit_ts, marks.bound(group, c.offset)) & counts)
        at = marks.last_before(group[asked], c.offset[asked], c.seq[asked])
        found[asked] = np.where((at >= 0) & late(c.commit_ts[asked], marks.ts[at]), at, -1)
        return found

    resolved = broken(promises.resolved, promises.home[place], np.less_equal)
    return resolved, broken(promises.ddl, place, np.less)


def _count(c: Changes, promises: Promises) -> Ints:
    """The partitions that count by the last Admin event before a change, if its own is not among them; else -1."""
    if not len(promises.eras.count):
        return np.full(len(c), -1)
    place = index_of(c.place, promises.place)
    count = promises.eras.of(promises.home[place], c.offset, c.seq)[1]
    return np.where((count >= 0) & (promises.partition[place] >= count), count, -1)


def _surrounded(c: Changes, promises: Promises, *, has_commit_ts: bool) -> Suspects:
    at, none = np.arange(len(c)), np.full(len(c), -1)
    place = index_of(c.place, promises.place)
    first = ~repeats(c, c.row)
    home = _last((c.rank != LEAVES) & (first | (not has_commit_ts)), at, c.row)
    era, _ = promises.eras.of(promises.home[place], c.offset, c.seq)
    former, first_here = _formers(c, era, has_commit_ts=has_commit_ts) if era.any() else (home, first)
    resolved, ddl = _forbidden(c, promises) if has_commit_ts else (none, none)
    dated = np.bincount(c.row, c.commit_ts == NO_TS)[c.row] == 0
    linked = first & dated & (c.row_id != c.change_hash) & has_commit_ts
    broken, how = _broken_chains(c, _last(first, at, c.row), linked, place, promises)
    covered, if_it_stays = _covered(c, broken, place, promises)
    return Suspects(
        c, promises, has_commit_ts, place, first, home, former, first_here, resolved, ddl,
        late=_late(c) if has_commit_ts else none, count=_count(c, promises), broken=broken, how=how,
        covered=covered, if_it_stays=if_it_stays,
    )  # fmt: skip


def _broken_chains(c: Changes, former: Ints, asked: Bools, place: Ints, promises: Promises) -> tuple[Ints, Ints]:
    """Per change the ``former`` one of its row that does not lead to it, or -1, and how; of those that are ``asked``.

    Across a DDL of the table nothing is compared.
    """
    at = np.flatnonzero(asked & (former >= 0))
    how = torn(c.after[former[at]], c.before[at])
    at, how = at[how > 0], how[how > 0]
    was = former[at]
    same = ~promises.altered(place[at], c.commit_ts[was], c.commit_ts[at])
    broken, why = np.full(len(c), -1), np.zeros(len(c), dtype=np.int64)
    broken[at[same]], why[at[same]] = was[same], how[same]
    return broken, why


def _covered(c: Changes, broken: Ints, place: Ints, promises: Promises) -> tuple[Bools, Bools]:
    """What is covered, and of that what a row may have had in a partition that was not recorded then, if it moves.

    One that is found in a single partition had its other changes there, too, unless partitions are not there: in the
    order of their commits, so what lies between two is in a gap between their offsets.
    """
    found, if_it_stays = np.zeros((2, len(c)), dtype=bool)
    at = np.flatnonzero(broken >= 0)
    was, here = broken[at], place[at]
    recorded, resolved = promises.recorded, promises.resolved
    i = resolved.last_before(promises.home[place[was]], c.offset[was], c.seq[was])
    mark = np.where(i >= 0, resolved.ts[i], NO_TS) if len(resolved.ts) else np.full(len(at), NO_TS)
    stays = ~_moves(c)[at] & ~recorded.is_part[here]
    # what a restart sent again may have come first behind the later one, if its first sending is missing
    low = np.where(c.offset[was] < c.offset[at], c.offset[was], BEGIN)
    stays &= ~recorded.lacks(promises.home[here], low, c.offset[at], below=c.commit_ts[at])
    everywhere = recorded.all_between(here, mark, c.commit_ts[at])
    known = recorded.ddl_between(here, c.commit_ts[was], c.commit_ts[at])
    found[at], if_it_stays[at] = (stays | everywhere) & known, stays & ~everywhere & known
    return found, if_it_stays


def _moves(c: Changes) -> Bools:
    """Whether the row of a change is found at several places, except an old key that an update leaves."""
    own, n = c.rank != LEAVES, int(c.row[-1]) + 1
    one = np.full(n, -1)
    one[c.row[own]] = c.place[own]
    moves: Bools = (np.bincount(c.row[own], c.place[own] != one[c.row[own]], n) > 0)[c.row]
    return moves


def _formers(c: Changes, era: Ints, *, has_commit_ts: bool) -> tuple[Ints, Bools]:
    """Per change the one before it between the same Admin events, or its first delivery there; and whether it is that.

    Beyond an Admin event a row has another partition, and what was sent before is sent again.
    """
    group = c.row * (int(era.max()) + 1) + era
    order = np.argsort(group, kind="stable")
    own, groups, at = c[order], group[order], np.arange(len(c))
    first = ~repeats(own, groups)
    home = _last((own.rank != LEAVES) & (first | (not has_commit_ts)), at, groups)
    former, first_here = np.full(len(c), -1), np.ones(len(c), dtype=bool)
    former[order], first_here[order] = np.where(home >= 0, order[home], -1), first
    return former, first_here


def repeats(c: Changes, group: Ints) -> Bools:
    """Whether a change, in order, is the one before it in its group again."""
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
    """The older change of the row whose first appearance in the partition is behind this one's, or -1.

    One newer change is enough to show that an older one is late, so each late change is named once.
    """
    n = len(c)
    by_place = order_of(c.row, c.place)
    p = c[by_place]
    group = np.cumsum(changes_in(c.row[by_place], p.place)) - 1
    first = ~repeats(p, group)
    by_position = order_of(p.offset, p.seq, p.commit_ts)
    position = np.empty(n, dtype=np.int64)
    position[by_position] = np.arange(n)
    # what precedes the first change of its commit_ts is older than all of them
    new = changes_in(group, p.commit_ts)
    seen = _last(first & (p.commit_ts != NO_TS), position, group)[np.maximum.accumulate(np.where(new, np.arange(n), 0))]
    latest = by_position[seen]
    behind = (p.offset[latest] > p.offset) | ((p.offset[latest] == p.offset) & (p.seq[latest] > p.seq))
    late = np.flatnonzero((seen >= 0) & first & behind)
    _, once = np.unique(latest[late], return_index=True)
    found = np.full(n, -1)
    found[by_place[late[once]]] = by_place[latest[late[once]]]
    return found
