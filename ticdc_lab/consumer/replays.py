"""Stretches of repeats in the order of a partition, in numbers: where each begins, and what it was sent again for.

A producer that lost its place goes back to a checkpoint and sends on from there. In the partition that is a stretch of
nothing but repeats. It ends with the first new change, when the watermark rises, or when a change comes once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ticdc_lab.audit.marks import Ints, numbers
from ticdc_lab.events.neighbours import changes_in

Bools = NDArray[np.bool_]

NO_TS = -(2**63)
"""No watermark yet."""

WATERMARK, CHANGE = 0, 1
COLUMNS = ("kind", "offset", "commit_ts", "identity", "nth")
"""``nth`` is 1 for the first delivery of an ``identity`` in its partition; of a watermark only ``commit_ts`` counts."""


@dataclass(frozen=True)
class Deliveries:
    """Changes and watermarks of one partition in order."""

    kind: Ints
    offset: Ints
    commit_ts: Ints
    identity: Ints
    nth: Ints

    def __getitem__(self, which: Any) -> Deliveries:
        return Deliveries(*[getattr(self, c)[which] for c in COLUMNS])

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def read(cls, batch: pa.RecordBatch) -> Self:
        """Those of a batch."""
        return cls(*numbers(batch, *COLUMNS))


@dataclass(frozen=True)
class Episode:
    """One stretch of repeats.

    Attributes
    ----------
    at
        Which deliveries it is.
    checkpoint
        The highest watermark below all that it repeats; NO_TS where there was none.
    pending
        Changes above the highest watermark, sent before it: what a producer without its place must send again.
    restated
        A watermark that had been stated was stated again just before it.
    """

    at: Ints
    checkpoint: int
    pending: int
    restated: bool


@dataclass(frozen=True)
class Before:
    """What stood in the partition before: its rising watermarks, and commit_ts of changes above the highest."""

    watermarks: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    open: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def highest(self) -> int:
        """The highest watermark."""
        return int(self.watermarks[-1]) if len(self.watermarks) else NO_TS

    def then(self, d: Deliveries) -> Before:
        """The same after more deliveries."""
        stated = d.commit_ts[d.kind == WATERMARK]
        risen = np.unique(np.maximum.accumulate(np.append(self.highest, stated)))
        marks = np.append(self.watermarks, risen[risen > self.highest])
        sent = np.append(self.open, d.commit_ts[_is_first(d)])
        after = replace(self, watermarks=marks)
        return replace(after, open=sent[sent > after.highest])


def episodes(d: Deliveries, before: Before) -> Iterator[Episode]:
    """All stretches of repeats of one partition, or of a part that ends where :func:`cut` says."""
    again = np.flatnonzero((d.kind == CHANGE) & (d.nth > 1))
    if not len(again):
        return
    stated, fresh = np.flatnonzero(d.kind == WATERMARK), np.flatnonzero(_is_first(d))
    highest = np.maximum.accumulate(np.where(d.kind == WATERMARK, d.commit_ts, before.highest))
    ends = _ends(d, highest, before)
    rising = np.flatnonzero(ends & (d.kind == WATERMARK))
    stretch: Ints = np.cumsum(ends, dtype=np.int64)
    number = _times(stretch[again], d.identity[again])
    starts = np.flatnonzero(changes_in(stretch[again], number))
    for low, high in zip(starts, np.append(starts[1:], len(again)), strict=True):
        at = again[low:high]
        start, top = int(at[0]), int(highest[at[0]])
        known = np.append(before.watermarks, d.commit_ts[rising[: np.searchsorted(rising, start)]])
        below = int(np.searchsorted(known, d.commit_ts[at].min()))
        sent = fresh[: np.searchsorted(fresh, start)]
        pending = np.count_nonzero(d.commit_ts[sent] > top) + np.count_nonzero(before.open > top)
        last = stated[np.searchsorted(stated, start) - 1] if len(stated) and stated[0] < start else -1
        earlier = highest[last - 1] if last > 0 else before.highest
        restated = last > (sent[-1] if len(sent) else -1) and earlier == top != NO_TS
        yield Episode(at, int(known[below - 1]) if below else NO_TS, int(pending), bool(restated))


def cut(d: Deliveries, before: Before) -> int:
    """Up to where deliveries can be judged without those that follow: no stretch of repeats goes on beyond it."""
    highest = np.maximum.accumulate(np.where(d.kind == WATERMARK, d.commit_ts, before.highest))
    ends = np.flatnonzero(_ends(d, highest, before))
    return int(ends[-1]) if len(ends) else 0


def _is_first(d: Deliveries) -> Bools:
    first: Bools = (d.kind == CHANGE) & (d.nth == 1)
    return first


def _ends(d: Deliveries, highest: Ints, before: Before) -> Bools:
    """What ends a stretch of repeats: a new change, or a watermark above all before it."""
    return _is_first(d) | (highest > np.append(before.highest, highest[:-1]))


def _times(stretch: Ints, identity: Ints) -> Ints:
    """How often a change of the stretch had come once more, up to each repeat in it."""
    order = np.lexsort((np.arange(len(identity)), identity, stretch))
    own, of = identity[order], stretch[order]
    new = changes_in(own, of)
    at = np.arange(len(own))
    times = np.empty(len(own), dtype=np.int64)
    times[order] = at - np.maximum.accumulate(np.where(new, at, 0))
    span = len(own) + 1
    highest: Ints = np.maximum.accumulate(stretch * span + times) - stretch * span
    return highest
