"""What one pass over a table leaves behind: loads and violations of every candidate at every partition count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ticdc_lab.dispatch.sweep_kernel import CELLS, FIRST, MEASURES, MOST, PACKED_BITS, START
from ticdc_lab.events.arrays import Ints


@dataclass(frozen=True, slots=True)
class Sparse:
    """Load of a candidate as it came: per time bucket and hash the number of changes and their bytes."""

    bucket: Ints
    hashes: npt.NDArray[np.uint64]
    rows: Ints
    volume: Ints

    def at(self, partitions: int, weight: str, buckets: int) -> Ints:
        """Load (buckets, partitions) with so many partitions."""
        cell = self.bucket * partitions + (self.hashes % np.uint64(partitions)).astype(np.int64)
        counts = np.bincount(cell, weights=getattr(self, weight), minlength=buckets * partitions)
        return counts.astype(np.int64).reshape(buckets, partitions)

    def cells(self, buckets: slice) -> Ints:
        """Changes at every partition count from 65 on, in the chosen time."""
        inside = (self.bucket >= buckets.start) & (self.bucket < buckets.stop)
        hashes, nth = np.unique(self.hashes[inside], return_inverse=True)
        rows = np.bincount(nth, weights=self.rows[inside], minlength=len(hashes))
        cells = np.zeros(CELLS, dtype=np.int64)
        for n, begin, end in zip(range(FIRST, MOST + 1), START, START[1:], strict=False):
            cells[begin:end] = np.bincount((hashes % np.uint64(n)).astype(np.int64), weights=rows, minlength=n)
        return cells


@dataclass(frozen=True, slots=True)
class Dense:
    """Load of a candidate, counted at every partition count from 65 to 128: arrays (buckets, cells)."""

    rows: npt.NDArray[np.integer]
    volume: npt.NDArray[np.integer]

    def at(self, partitions: int, weight: str, buckets: int) -> Ints:
        """Load (buckets, partitions) with so many partitions; a smaller count divides one that was counted."""
        n = partitions * -(-FIRST // partitions)
        cells = getattr(self, weight)[:, START[n - FIRST] : START[n - FIRST + 1]]
        counts: Ints = cells.reshape(buckets, n // partitions, partitions).sum(axis=1, dtype=np.int64)
        return counts

    def cells(self, buckets: slice) -> Ints:
        """Changes at every partition count from 65 on, in the chosen time."""
        cells: Ints = self.rows[buckets].sum(axis=0, dtype=np.int64)
        return cells


@dataclass(frozen=True, slots=True)
class Ordered:
    """Load of a candidate that is no function of one hash, at the partition counts it was run with."""

    rows: Mapping[int, npt.NDArray[np.integer]]
    volume: Mapping[int, npt.NDArray[np.integer]]

    def at(self, partitions: int, weight: str, buckets: int) -> Ints:
        """Load (buckets, partitions) with so many partitions."""
        load: Ints = getattr(self, weight)[partitions].astype(np.int64)
        return load


def folded(cells: Ints, partitions: int) -> Ints:
    """Load per partition from counts at every partition count from 65 on."""
    n = partitions * -(-FIRST // partitions)
    counts = cells[START[n - FIRST] : START[n - FIRST + 1]]
    load: Ints = counts.reshape(n // partitions, partitions).sum(axis=0)
    return load


Load = Sparse | Dense | Ordered


@dataclass(frozen=True, slots=True)
class Lane:
    """The measures of one table, or of all small tables together."""

    # Candidate to its place in the arrays; one that was run with some partition counts only has a place for each, under
    # its name, ``@`` and the count.
    slots: Mapping[str, int]
    loads: Mapping[str, Load]  # candidate to its load
    # Changes per time bucket; ``unplaced`` those that a candidate cannot place (slots, buckets), ``errors`` why.
    changes: Ints
    unplaced: Ints
    errors: Mapping[str, str]
    # ``totals``, ``cases``, ``violations``: per measure of :data:`MEASURES` and bucket; cases also per slot, violations
    # also per partition count.
    totals: Ints
    cases: Ints
    violations: npt.NDArray[np.int32]
    # The first pair that shows it, as row of ``evidence``; -1 without. ``evidence`` holds partition, offset, seq and
    # commit_ts of the earlier and of the later change and their hashes, ``keys`` their keys.
    first: npt.NDArray[np.int32]
    evidence: Ints
    keys: Mapping[tuple[int, int, int], str | None] = field(default_factory=dict)
    # For conflict detection: per partition count the alignment events in each bucket.
    alignments: Mapping[int, Ints] = field(default_factory=dict)
    has_catalog: bool = True

    def rows(self, candidate: str, partitions: int, time: slice) -> list[dict[str, Any]]:
        """Per measure: ``guarantee, cases, violations, undecided, counterexample``."""
        measured = [m for m, name in enumerate(MEASURES) if self.has_catalog or name != "row_order_any_unique"]
        return [self._row(m, *self._where(candidate, partitions), time) for m in measured]

    def broken(self, candidate: str, partitions: int) -> dict[str, Ints]:
        """Violations of each measure, by time bucket."""
        slot, at, _ = self._where(candidate, partitions)
        if slot is None:
            return {}
        return {name: self.violations[m, slot, :, at - 1].astype(np.int64) for m, name in enumerate(MEASURES)}

    def _where(self, candidate: str, partitions: int) -> tuple[int | None, int, int]:
        """Slot, the partition count to look at there, and what a hash is divided by to get its partition."""
        if isinstance(self.loads.get(candidate), Ordered):
            return self.slots[f"{candidate}@{partitions}"], 2, 1 << PACKED_BITS
        return self.slots.get(candidate), partitions, partitions

    def _row(self, m: int, slot: int | None, at: int, modulus: int, time: slice) -> dict[str, Any]:
        total = int(self.totals[m, time].sum())
        counts: dict[str, Any] = {"cases": 0, "violations": 0, "undecided": total, "counterexample": None}
        if slot is not None:
            cases = int(self.cases[m, slot, time].sum())
            broken = int(self.violations[m, slot, time, at - 1].sum(dtype=np.int64))
            counts = {"cases": cases, "violations": broken, "undecided": total - cases}
            shown = self.first[m, slot, time, at - 1]
            shown = shown[shown >= 0]
            counts["counterexample"] = self._pair(int(shown[0]), modulus) if len(shown) else None
        return {"guarantee": MEASURES[m], **counts}

    def _pair(self, at: int, modulus: int) -> list[dict[str, Any]]:
        row = self.evidence[at].tolist()
        both = zip((row[:4], row[4:8]), self.evidence[at, 8:].view(np.uint64).tolist(), strict=True)
        return [
            {
                "target_partition": h % modulus,
                **dict(zip(("partition", "offset", "seq", "commit_ts"), place, strict=True)),
                "key": self.keys.get(tuple(place[:3])),
            }
            for place, h in both
        ]

    def lost(self, candidate: str) -> tuple[int, str]:
        """Changes that a candidate cannot place, and the reason for one of them."""
        if candidate not in self.loads:
            return int(self.changes.sum()), f"a table has no {_called(candidate)}"
        return self.unplaced_in(candidate, slice(None)), self.errors.get(candidate, "")

    def unplaced_in(self, candidate: str, time: slice) -> int:
        """Changes that a candidate cannot place, in some time buckets."""
        load = self.loads.get(candidate)
        if load is None:
            return int(self.changes[time].sum())
        name = f"{candidate}@{next(iter(load.rows))}" if isinstance(load, Ordered) else candidate
        return int(self.unplaced[self.slots[name], time].sum())


def _called(candidate: str) -> str:
    """What a candidate needs of a table, in words."""
    kind, _, name = candidate.partition(":")
    words = {"index-value": "index", "columns": "column"}
    return f"{words[kind]} {name}" if name and kind in words else candidate
