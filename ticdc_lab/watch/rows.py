"""What a watch remembers of rows: the last change of each, packed, and all changes of a while.

Both are immutable: a step shares with its state what it does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.audit.history import UNKNOWN, Changes
from ticdc_lab.events.arrays import NO_TS, Bools, Ints, lasts_in

BUCKETS = 64
PLACES = "places"
ROW_PARTS = (PLACES, *(f"rows {bucket}" for bucket in range(BUCKETS)))
"""What is saved of :class:`LastChanges` at a time."""

_SHIFT = np.uint64(64 - 6)
_BEGINS = (np.arange(BUCKETS, dtype=np.uint64) << _SHIFT).view(np.int64)
_DELTA = 1 << 16
"""Rows that are kept apart from all others, at least: to add to few costs less than to many."""

_KEYLESS, _SEQ = 4, 3
"""Beside the rank, and how many bits both take."""

_None = np.empty(0, dtype=np.int64)
REBUILT = 1 << 19
"""Rows, about, that are rebuilt at once without those that are forgotten."""

_FEW = 1 << 18
"""Rows whose times are all compared to choose what is forgotten; of more, only some buckets' are."""


def _narrow(values: Ints) -> NDArray[Any]:
    """The same in as few bytes as they need."""
    least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    form = np.min_scalar_type(most) if least >= 0 and most >> 32 == 0 else np.int64
    return values.astype(form, copy=False)


@dataclass(frozen=True, slots=True)
class _Packed:
    """Rows by rising ``row_id``: 40 bytes each at most, and 30 where the other columns are small."""

    row_id: Ints
    commit_ts: Ints
    after: Ints
    # ``offset``, ``place``, ``seq_flags``: as of :func:`_narrow`.
    offset: NDArray[Any]
    place: NDArray[Any]
    seq_flags: NDArray[Any]

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, name).nbytes for name in _COLUMNS)

    def at(self, which: Ints | Bools | slice) -> _Packed:
        return _Packed(*[getattr(self, name)[which] for name in _COLUMNS])

    def without(self, which: slice) -> _Packed:
        return _Packed(*[np.delete(getattr(self, name), which) for name in _COLUMNS])

    def of_bucket(self, bucket: int) -> slice:
        """Where the rows of a bucket lie."""
        first = int(_BEGINS[bucket])
        last = first + (1 << int(_SHIFT)) - 1
        return slice(int(np.searchsorted(self.row_id, first)), int(np.searchsorted(self.row_id, last, "right")))

    def with_rows(self, new: _Packed) -> _Packed:
        """These with others, which replace the same rows'."""
        if not len(new.row_id):
            return self
        at = self.row_id.searchsorted(new.row_id)
        again = _has(self.row_id, at, new.row_id)
        to = at - np.cumsum(again) + again + np.arange(len(at))
        old = np.ones(len(self.row_id), dtype=bool)
        old[at[again]] = False
        is_old = np.ones(int(old.sum()) + len(at), dtype=bool)
        is_old[to] = False
        columns = []
        for name in _COLUMNS:
            kept, added = getattr(self, name), getattr(new, name)
            both = np.empty(len(is_old), dtype=np.result_type(kept, added))
            both[is_old], both[to] = kept[old], added
            columns.append(both)
        return _Packed(*columns)


_COLUMNS = tuple(f.name for f in fields(_Packed))
_EMPTY = _Packed(_None, _None, _None, *[_None.astype(np.uint8)] * 3)


@dataclass(frozen=True, slots=True)
class LastChanges:
    """The last change of each row.

    Of a row that left its key by an update, this is the change that left; where its changes lay before is forgotten.
    """

    # ``base``: by the highest bits of ``row_id``; of a row that ``delta`` has too, the last change lies there.
    base: tuple[_Packed, ...] = (_EMPTY,) * BUCKETS
    delta: _Packed = _EMPTY
    next: int = 0  # the bucket that takes its rows of ``delta`` next
    # Numbers of places (:func:`ticdc_lab.facts.places.place_number`) by the index that rows have.
    places: Ints = field(default_factory=lambda: _None)
    # Rows up to this commit_ts are forgotten; in so many buckets, the last ones, they still take memory. A state shares
    # its buckets with the one before, so that to rebuild all at once would take them twice.
    gone_ts: int = NO_TS
    left: int = 0

    def __len__(self) -> int:
        return sum(len(p.row_id) for p in (*self.base, self.delta))

    @property
    def n_rows(self) -> int:
        """How many rows there are: ``len`` counts all that take memory, which those that changed lately do twice."""
        n = 0
        for bucket, old in enumerate(self.base):
            new = self.delta.at(self.delta.of_bucket(bucket))
            at = old.row_id.searchsorted(new.row_id)
            twice = old.commit_ts[at[_has(old.row_id, at, new.row_id)]]
            for lasts, of in ((old.commit_ts, 1), (new.commit_ts, 1), (twice, -1)):
                n += of * (len(lasts) if self.gone_ts == NO_TS else int(np.count_nonzero(lasts > self.gone_ts)))
        return n

    @property
    def nbytes(self) -> int:
        """Of all."""
        return sum(p.nbytes for p in (*self.base, self.delta))

    def last(self, row_id: Ints) -> Changes:
        """The known last changes of some rising rows."""
        at = self.delta.row_id.searchsorted(row_id)
        there = _has(self.delta.row_id, at, row_id)
        found = [self.delta.at(at[there])]
        for bucket, part in _by_bucket(row_id[~there]):
            at = self.base[bucket].row_id.searchsorted(part)
            found.append(self.base[bucket].at(at[_has(self.base[bucket].row_id, at, part)]))
        own = _Packed(*[np.concatenate([getattr(p, name) for p in found]) for name in _COLUMNS])
        own = own if self.gone_ts == NO_TS else own.at(own.commit_ts > self.gone_ts)
        own = own.at(np.argsort(own.row_id, kind="stable"))
        flags = own.seq_flags.astype(np.int64)
        change = np.where(flags & _KEYLESS, own.row_id, ~own.row_id)
        return Changes(
            own.row_id, self.places[own.place], own.commit_ts, own.offset.astype(np.int64), flags >> _SEQ,
            flags & _KEYLESS - 1, change, np.full(len(flags), UNKNOWN), own.after,
        )  # fmt: skip

    def with_last(self, c: Changes) -> LastChanges:
        """With the last changes of some rows, one each, which rise."""
        new = np.setdiff1d(c.place, self.places)
        places = np.concatenate([self.places, new])
        order = np.argsort(places)
        place = order[np.searchsorted(places, c.place, sorter=order)]
        flags = (c.seq << _SEQ) | c.rank | _KEYLESS * (c.row_id == c.change_hash)
        delta = self.delta.with_rows(_Packed(c.row_id, c.commit_ts, c.after, *map(_narrow, (c.offset, place, flags))))
        base, at = list(self.base), self.next
        while len(delta.row_id) > max(_DELTA, sum(len(p.row_id) for p in base) // 32):
            own = delta.of_bucket(at)
            base[at] = base[at].with_rows(delta.at(own))
            delta, at = delta.without(own), (at + 1) % BUCKETS
        return replace(self, base=tuple(base), delta=delta, next=at, places=places)

    def after(self, new: Changes, *, dated: bool, known: Changes | None = None) -> LastChanges:
        """With changes by rising ``row_id``: the last one of each row, of those here and these.

        ``known``: what :meth:`last` gives for their rows, if it was asked before.
        """
        known = self.last(np.unique(new.row_id)) if known is None else known
        columns = [np.concatenate([getattr(known, name), getattr(new, name)]) for name in CHANGE]
        both = Changes(*[column[np.argsort(columns[0], kind="stable")] for column in columns])
        latest = both[both.in_order(has_commit_ts=dated)]
        return self.with_last(latest[lasts_in(latest.row_id)])

    def without(self, commit_ts: int) -> LastChanges:
        """Without those up to a commit_ts."""
        return replace(self, gone_ts=commit_ts, left=BUCKETS) if commit_ts > self.gone_ts else self

    def kept_to(self, most: int) -> tuple[LastChanges, int, int]:
        """The same without the rows that did not change for longest, if all take more than ``most`` bytes.

        What is left takes about nine tenths of these. Also the commit_ts up to which all are left out, NO_TS for none,
        and how many these are.
        """
        if self.left:
            base, delta, left, n = list(self.base), self.delta, self.left, 0
            while left and n < REBUILT:
                bucket = BUCKETS - left
                n += len(base[bucket].row_id)
                base[bucket], delta, left = self._whole(bucket), delta.without(delta.of_bucket(bucket)), left - 1
            self = replace(self, base=tuple(base), delta=delta, left=left)
        if self.left or self.nbytes <= most:
            return self, NO_TS, 0
        n_rows = self.n_rows
        n = n_rows - most * 9 // 10 * len(self) // self.nbytes
        if n <= 0:  # rows that are there twice take one place again
            return replace(self, left=BUCKETS), NO_TS, 0
        some = range(0, BUCKETS, 1 if n_rows < _FEW else BUCKETS // 4)  # which bucket a row lies in is chance
        ts = np.concatenate([self._whole(bucket).commit_ts for bucket in some])
        nth = max(0, n * len(ts) // n_rows - 1)
        ts.partition(nth)
        last = int(ts[nth])
        if last == NO_TS:  # no change has one
            return LastChanges(places=self.places), NO_TS + 1, n_rows
        fewer = self.without(last)
        return fewer, last, n_rows - fewer.n_rows

    def _whole(self, bucket: int) -> _Packed:
        """The rows of a bucket that are not forgotten, once each."""
        whole = self.base[bucket].with_rows(self.delta.at(self.delta.of_bucket(bucket)))
        forgotten = bucket >= BUCKETS - self.left and self.gone_ts != NO_TS
        return whole.at(whole.commit_ts > self.gone_ts) if forgotten else whole

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        """All of it, for a file."""
        whole = [self._whole(bucket) for bucket in range(BUCKETS)]
        return {name: np.concatenate([getattr(p, name) for p in whole]) for name in _COLUMNS} | {"places": self.places}

    def parts(self, buckets: Iterable[int] = range(BUCKETS)) -> Iterator[tuple[str, dict[str, NDArray[Any]]]]:
        """What some buckets have, by :data:`ROW_PARTS`, one after the other."""
        yield PLACES, {"places": self.places}
        for bucket in buckets:
            whole = self._whole(bucket)
            yield ROW_PARTS[1 + bucket], {column: getattr(whole, column) for column in _COLUMNS}

    @classmethod
    def from_parts(cls, parts: Mapping[str, Mapping[str, NDArray[Any]]]) -> Self:
        """What :meth:`parts` gave: the arrays themselves, not copies."""
        base = tuple(_Packed(*[parts[name][column] for column in _COLUMNS]) for name in ROW_PARTS[1:])
        return cls(base, places=parts[PLACES]["places"])

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """What :meth:`as_arrays` gave: parts of it, not copies."""
        whole = _Packed(*[arrays[name] for name in _COLUMNS])
        begins = np.arange(1, BUCKETS, dtype=np.uint64) << _SHIFT
        ends = [0, *np.searchsorted(whole.row_id.view(np.uint64), begins).tolist(), len(whole.row_id)]
        base = tuple(whole.at(slice(a, b)) for a, b in pairwise(ends))
        return cls(base, places=arrays["places"].astype(np.int64))


def _has(row_id: Ints, at: Ints, asked: Ints) -> Bools:
    """Which rows there are, of those that are asked for and would lie at some indexes."""
    found: Bools = row_id.take(at, mode="clip") == asked if len(row_id) else np.zeros(len(asked), dtype=bool)
    return found


def _by_bucket(row_id: Ints) -> Iterable[tuple[int, Ints]]:
    """The parts of rising ids by bucket; negative ones come first."""
    if not len(row_id):
        return
    bucket = (row_id.view(np.uint64) >> _SHIFT).astype(np.int64)
    ends = np.flatnonzero(bucket[1:] != bucket[:-1]) + 1
    for a, b in zip([0, *ends.tolist()], [*ends.tolist(), len(row_id)], strict=True):
        yield int(bucket[a]), row_id[a:b]


CHANGE = ("row_id", "place", "commit_ts", "offset", "seq", "rank", "change_hash", "before", "after")
"""Columns of :class:`ticdc_lab.audit.history.Changes`: 72 bytes a change."""
NO_CHANGES = Changes(*[_None] * len(CHANGE))


def joined(parts: Iterable[Changes]) -> Changes:
    """Changes by rising ``row_id``; one that is there several times comes once."""
    whole = [p for p in parts if len(p)]
    if not whole:
        return NO_CHANGES
    columns = [np.concatenate([getattr(p, name) for p in whole]) for name in CHANGE]
    order = np.lexsort((columns[5], columns[4], columns[3], columns[1], columns[0]))
    ordered = [column[order] for column in columns]
    once = lasts_in(*[ordered[i] for i in (0, 1, 3, 4, 5)])
    return Changes(*[column[once] for column in ordered])


def of_rows(changes: Changes, row_id: Ints) -> Changes:
    """Changes of some rows, from changes by rising ``row_id``; ``row_id`` rises too."""
    first, last = (np.searchsorted(changes.row_id, row_id, side=side) for side in ("left", "right"))
    n = last - first
    at = np.repeat(first - np.append(0, np.cumsum(n)[:-1]), n) + np.arange(int(n.sum()))
    return changes[at]


_TOGETHER = 1 << 15
"""Changes of a part to which no others are added: while parts become one, they take memory twice."""


@dataclass(frozen=True, slots=True)
class RecentChanges:
    """All changes of a while, in parts by rising ``row_id``, the oldest part first."""

    parts: tuple[Changes, ...] = ()  # each about twice as large as the next, or more, up to :data:`_TOGETHER` changes
    since: int = NO_TS  # all changes of a greater commit_ts that were read are here

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def of(self, row_id: Ints) -> Sequence[Changes]:
        """The changes of some rows, which rise."""
        return [of_rows(part, row_id) for part in self.parts]

    def with_changes(self, new: Changes) -> RecentChanges:
        """With changes by rising ``row_id``."""
        parts = [*self.parts, new] if len(new) else list(self.parts)
        while len(parts) > 1 and len(parts[-2]) < min(2 * len(parts[-1]), _TOGETHER):
            order = np.argsort(np.concatenate([p.row_id for p in parts[-2:]]), kind="stable")
            # a column at a time: both are large
            parts[-2:] = [Changes(*[np.concatenate([getattr(p, n) for p in parts[-2:]])[order] for n in CHANGE])]
        return RecentChanges(tuple(parts), self.since)

    def kept_to(self, most: int, until: int) -> RecentChanges:
        """The same without those up to a commit_ts, and without the oldest down to three quarters of ``most``."""
        if len(self) <= most and until <= self.since:
            return self
        ts = np.concatenate([p.commit_ts for p in self.parts]) if self.parts else _None
        since = max(until, self.since)
        n = int((ts > since).sum())
        if n > most:
            ts.partition(len(ts) - most * 3 // 4)
            since = int(ts[len(ts) - most * 3 // 4])
        kept = ((p, p.commit_ts > since) for p in self.parts)
        return RecentChanges(tuple(p if own.all() else p[own] for p, own in kept if own.any()), since)
