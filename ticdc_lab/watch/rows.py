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
_DELTA = 1 << 12
"""Rows of a bucket that are kept apart from its others, at least: to add to few costs less than to many."""

_KEYLESS, _SEQ = 4, 3
"""Beside the rank, and how many bits both take."""

_None = np.empty(0, dtype=np.int64)
REBUILT = 1 << 19
"""Rows, about, that are rebuilt at once without those that are forgotten."""


@dataclass(frozen=True, slots=True)
class _Packed:
    """Rows by rising ``row_id``: 40 bytes each."""

    row_id: Ints
    commit_ts: Ints
    offset: Ints
    after: Ints
    place: NDArray[np.int32]
    seq_flags: NDArray[np.int32]

    def at(self, which: Ints | Bools | slice) -> _Packed:
        return _Packed(*[getattr(self, f.name)[which] for f in fields(self)])

    def with_rows(self, new: _Packed) -> _Packed:
        """These with others, which replace those of the same rows."""
        if not len(self.row_id):
            return new
        at = np.minimum(np.searchsorted(self.row_id, new.row_id), len(self.row_id) - 1)
        kept = np.ones(len(self.row_id), dtype=bool)
        kept[at[self.row_id[at] == new.row_id]] = False
        order = np.argsort(np.concatenate([self.row_id[kept], new.row_id]), kind="stable")
        both = ((getattr(self, f.name)[kept], getattr(new, f.name)) for f in fields(self))
        return _Packed(*[np.concatenate(pair)[order] for pair in both])


_EMPTY = _Packed(_None, _None, _None, _None, _None.astype(np.int32), _None.astype(np.int32))


@dataclass(frozen=True, slots=True)
class LastChanges:
    """The last change of each row.

    Of a row that left its key by an update, this is the change that left; where its changes lay before is forgotten.
    """

    # ``base``, ``delta``: by the highest bits of ``row_id``; a row of both has its last change in ``delta``.
    base: tuple[_Packed, ...] = (_EMPTY,) * BUCKETS
    delta: tuple[_Packed, ...] = (_EMPTY,) * BUCKETS
    # Numbers of places (:func:`ticdc_lab.facts.places.place_number`) by the index that rows have.
    places: Ints = field(default_factory=lambda: _None)
    # Rows up to this commit_ts are forgotten; in so many buckets, the last ones, they still take memory. A state shares
    # its buckets with the one before, so that to rebuild all at once would take them twice.
    gone_ts: int = NO_TS
    left: int = 0

    def __len__(self) -> int:
        return sum(len(p.row_id) for p in (*self.base, *self.delta))

    @property
    def n_rows(self) -> int:
        """How many rows there are: ``len`` counts all that take memory, which those that changed lately do twice."""
        n = 0
        for old, new in zip(self.base, self.delta, strict=True):
            both = len(old.row_id) and len(new.row_id)
            once = ~np.isin(old.row_id, new.row_id, assume_unique=True) if both else np.ones(len(old.row_id), bool)
            lasts = np.append(old.commit_ts[once], new.commit_ts)
            n += len(lasts) if self.gone_ts == NO_TS else int((lasts > self.gone_ts).sum())
        return n

    @property
    def nbytes(self) -> int:
        """Of all."""
        return 40 * len(self)

    def last(self, row_id: Ints) -> Changes:
        """The last changes of those of some rows, which rise, that are known."""
        found = [_EMPTY]
        for bucket, part in _by_bucket(row_id):
            for rows in (self.delta[bucket], self.base[bucket]):
                if len(rows.row_id) and len(part):
                    at = np.minimum(np.searchsorted(rows.row_id, part), len(rows.row_id) - 1)
                    there = rows.row_id[at] == part
                    own = rows.at(at[there])
                    found.append(own if self.gone_ts == NO_TS else own.at(own.commit_ts > self.gone_ts))
                    part = part[~there]
        own = _Packed(*[np.concatenate([getattr(p, f.name) for p in found]) for f in fields(_Packed)])
        own = own.at(np.argsort(own.row_id, kind="stable"))
        flags = own.seq_flags.astype(np.int64)
        change = np.where(flags & _KEYLESS, own.row_id, ~own.row_id)
        return Changes(
            own.row_id, self.places[own.place], own.commit_ts, own.offset, flags >> _SEQ, flags & _KEYLESS - 1, change,
            np.full(len(flags), UNKNOWN), own.after,
        )  # fmt: skip

    def with_last(self, c: Changes) -> LastChanges:
        """With the last changes of some rows, one each, which rise."""
        new = np.setdiff1d(c.place, self.places)
        places = np.concatenate([self.places, new])
        order = np.argsort(places)
        place = order[np.searchsorted(places, c.place, sorter=order)]
        flags = (c.seq << _SEQ) | c.rank | _KEYLESS * (c.row_id == c.change_hash)
        part = _Packed(c.row_id, c.commit_ts, c.offset, c.after, place.astype(np.int32), flags.astype(np.int32))
        base, delta = list(self.base), list(self.delta)
        for bucket, own in _by_bucket(c.row_id):
            at = np.searchsorted(c.row_id, own)
            delta[bucket] = delta[bucket].with_rows(part.at(at))
            # not all at once, as they fill alike
            if len(delta[bucket].row_id) > max(_DELTA, len(base[bucket].row_id) * (BUCKETS + bucket) // (20 * BUCKETS)):
                base[bucket], delta[bucket] = base[bucket].with_rows(delta[bucket]), _EMPTY
        return replace(self, base=tuple(base), delta=tuple(delta), places=places)

    def after(self, new: Changes, *, dated: bool) -> LastChanges:
        """With changes by rising ``row_id``: the last one of each row, of those here and these."""
        known = self.last(np.unique(new.row_id))
        columns = [np.concatenate([getattr(known, name), getattr(new, name)]) for name in CHANGE]
        both = Changes(*[column[np.argsort(columns[0], kind="stable")] for column in columns])
        latest = both[both.in_order(has_commit_ts=dated)]
        return self.with_last(latest[lasts_in(latest.row_id)])

    def without(self, commit_ts: int) -> LastChanges:
        """Without those up to a commit_ts."""
        return replace(self, gone_ts=commit_ts, left=BUCKETS) if commit_ts > self.gone_ts else self

    def kept_to(self, most: int) -> tuple[LastChanges, int, int]:
        """The same without the rows that did not change for longest, down to nine tenths of ``most`` if there are more.

        Also the commit_ts up to which all are left out, NO_TS for none, and how many these are.
        """
        if self.left:
            base, delta = list(self.base), list(self.delta)
            left, n = self.left, 0
            while left and n < REBUILT:
                bucket = BUCKETS - left
                n += len(base[bucket].row_id) + len(delta[bucket].row_id)
                base[bucket], delta[bucket], left = self._whole(bucket), _EMPTY, left - 1
            self = replace(self, base=tuple(base), delta=tuple(delta), left=left)
        if self.left or len(self) <= most:
            return self, NO_TS, 0
        ts = np.concatenate([self._whole(bucket).commit_ts for bucket in range(BUCKETS)])
        n = len(ts) - most * 9 // 10
        if n <= 0:  # rows that are there twice take one place again
            return replace(self, left=BUCKETS), NO_TS, 0
        ts.partition(n - 1)
        last = int(ts[n - 1])
        if last == NO_TS:  # no change has one
            return LastChanges(places=self.places), NO_TS + 1, len(ts)
        return self.without(last), last, int((ts <= last).sum())

    def _whole(self, bucket: int) -> _Packed:
        """The rows of a bucket that are not forgotten, once each."""
        base, delta = self.base[bucket], self.delta[bucket]
        whole = base.with_rows(delta) if len(delta.row_id) else base
        forgotten = bucket >= BUCKETS - self.left and self.gone_ts != NO_TS
        return whole.at(whole.commit_ts > self.gone_ts) if forgotten else whole

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        """All of it, for a file."""
        whole = [self._whole(bucket) for bucket in range(BUCKETS)]
        return {f.name: np.concatenate([getattr(p, f.name) for p in whole]) for f in fields(_Packed)} | {
            "places": self.places
        }

    def parts(self) -> Iterator[tuple[str, dict[str, NDArray[Any]]]]:
        """All of it by :data:`ROW_PARTS`, one after the other."""
        yield PLACES, {"places": self.places}
        for bucket, name in enumerate(ROW_PARTS[1:]):
            whole = self._whole(bucket)
            yield name, {f.name: getattr(whole, f.name) for f in fields(_Packed)}

    @classmethod
    def from_parts(cls, parts: Mapping[str, Mapping[str, NDArray[Any]]]) -> Self:
        """What :meth:`parts` gave: the arrays themselves, not copies."""
        base = tuple(_Packed(*[parts[name][f.name] for f in fields(_Packed)]) for name in ROW_PARTS[1:])
        return cls(base, places=parts[PLACES]["places"])

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """What :meth:`as_arrays` gave: parts of it, not copies."""
        whole = _Packed(*[arrays[f.name] for f in fields(_Packed)])
        begins = np.arange(1, BUCKETS, dtype=np.uint64) << _SHIFT
        ends = [0, *np.searchsorted(whole.row_id.view(np.uint64), begins).tolist(), len(whole.row_id)]
        base = tuple(whole.at(slice(a, b)) for a, b in pairwise(ends))
        return cls(base, places=arrays["places"].astype(np.int64))


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
    """Those of some rows, of changes by rising ``row_id``; ``row_id`` rises too."""
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
