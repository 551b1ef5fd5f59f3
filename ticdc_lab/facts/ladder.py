"""The watermarks of a log: of each partition a ladder of rising values, with what is stated below its top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ticdc_lab.events.neighbours import changes_in, lasts_in
from ticdc_lab.events.tso import LOGICAL_BITS

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NO_TS = np.iinfo(np.int64).min
"""No watermark yet."""


@dataclass(frozen=True, slots=True)
class Watermarks:
    """All watermarks of a log, in order of home, offset and seq.

    Attributes
    ----------
    home
        The number of its topic and partition.
    offset, seq, ts
        Where each stands, and the commit_ts that it states.
    homes
        How many homes the log has, those without watermarks too.
    """

    home: Ints
    offset: Ints
    seq: Ints
    ts: Ints
    homes: int

    @classmethod
    def ordered(cls, home: Ints, offset: Ints, seq: Ints, ts: Ints, *, homes: int) -> Self:
        """Those in any order; two at one place (captures may overlap) rise."""
        order = np.lexsort((ts, seq, offset, home))
        return cls(home[order], offset[order], seq[order], ts[order], homes)

    def __len__(self) -> int:
        return len(self.ts)

    def part(self, home: int) -> slice:
        """Where those of a home lie."""
        low, high = np.searchsorted(self.home, (home, home + 1))
        return slice(int(low), int(high))

    def parts(self) -> list[slice]:
        """Where those of each home lie."""
        ends = np.searchsorted(self.home, np.arange(self.homes + 1)).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    def each_place(self) -> Watermarks:
        """Those at different places: captures may overlap, so one event be there twice."""
        last = lasts_in(self.home, self.offset, self.seq) if len(self) else np.empty(0, dtype=bool)
        return Watermarks(self.home[last], self.offset[last], self.seq[last], self.ts[last], self.homes)

    def highest_before(self) -> Ints:
        """The greatest that its partition stated before each; NO_TS for the first."""
        return highest_before(self.ts, self.parts())

    def greatest(self) -> Ints:
        """The resolved_ts of each home; NO_TS without a watermark."""
        return np.array([self.ts[p].max(initial=NO_TS) for p in self.parts()], dtype=np.int64)

    def least(self) -> Ints:
        """The least of each home; NO_TS without a watermark."""
        return np.array([self.ts[p].min() if p.stop > p.start else NO_TS for p in self.parts()], dtype=np.int64)


def highest_before(values: Ints, parts: Sequence[slice]) -> Ints:
    """The greatest value before each, in its part; NO_TS for the first of a part."""
    found = np.full(len(values), NO_TS)
    for p in parts:
        found[p.start + 1 : p.stop] = np.maximum.accumulate(values[p])[:-1]
    return found


def partitions_in(
    batch: pa.RecordBatch, before: tuple[object, object] | None
) -> tuple[list[slice], bool, tuple[object, object]]:
    """Where each topic and partition lies in a sorted batch, whether the first is ``before`` going on, and the last."""
    topic = np.asarray(batch["topic"].dictionary_encode(null_encoding="encode").indices)
    partition = pc.fill_null(batch["partition"], -1).to_numpy()
    starts = np.flatnonzero(changes_in(topic, partition)).tolist()
    first, last = ((batch["topic"][i].as_py(), batch["partition"][i].as_py()) for i in (0, len(batch) - 1))
    return [slice(a, b) for a, b in pairwise([*starts, len(batch)])], first == before, last


def timestamps(column: pa.Array | pa.ChunkedArray) -> Ints:
    """A bigint column as numbers; NO_TS where it is null."""
    found: Ints = np.asarray(pc.fill_null(column.cast(pa.int64()), NO_TS))
    return found


def nullable(values: Ints) -> pa.Array:
    """Numbers as a bigint column; null where they are NO_TS."""
    return pa.array(values, pa.int64(), mask=values == NO_TS)


def seconds(since: Ints, until: Ints) -> NDArray[np.float64]:
    """Seconds between the physical parts; without meaning where one is NO_TS."""
    found: NDArray[np.float64] = ((until >> LOGICAL_BITS) - (since >> LOGICAL_BITS)) / 1000.0
    return found


def seconds_between(since: pa.ChunkedArray, until: pa.ChunkedArray) -> pa.Array:
    """Seconds between two columns of TSO; null where one is."""
    a, b = timestamps(since), timestamps(until)
    return pa.array(seconds(a, b), mask=(a == NO_TS) | (b == NO_TS))
