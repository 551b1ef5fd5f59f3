"""Measures of each candidate on each table, from a what-if."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ticdc_lab.dispatch.advise_candidates import Candidate
from ticdc_lab.dispatch.evenness import gini
from ticdc_lab.dispatch.whatif import WhatIf
from ticdc_lab.errors import DispatchError

Load = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Evenness:
    """How evenly partitions are filled; 1 is even but for ``gini``, where 0 is.

    ``max_over_mean`` is of the whole log. ``in_time`` is the same within each time bucket, weighted by its load: a
    consumer that must keep up at every moment is that much slower than it could be. ``p99`` is the load that 99 % of
    the buckets of partitions do not exceed, over their mean.
    """

    max_over_mean: float
    gini: float
    in_time: float
    p99: float


@dataclass(frozen=True, slots=True)
class MeasuredCandidate:
    """A candidate with N partitions: evenness by rows and bytes, and violations with cases and a pair per guarantee."""

    candidate: Candidate
    partitions: int
    rows: Evenness
    bytes: Evenness
    unplaced: int
    broken: Mapping[str, tuple[int, int]]
    pairs: Mapping[str, list[dict[str, Any]]]

    @property
    def uneven(self) -> float:
        """The larger of rows and bytes."""
        return max(self.rows.max_over_mean, self.bytes.max_over_mean)


def evenness(load: Load) -> Evenness:
    """Evenness of a load (time buckets, partitions); NaN where there is none."""
    n, total = load.shape[1], load.sum(axis=0)
    whole = total.sum()
    if not whole:
        return Evenness(*[float("nan")] * 4)
    cells = load[load.sum(axis=1) > 0]
    return Evenness(
        float(total.max() * n / whole),
        gini(total),
        float(cells.max(axis=1).sum() * n / whole),
        float(np.percentile(cells, 99) / cells.mean()),
    )


def measured(what_if: WhatIf, table: str, candidates: Sequence[Candidate], partitions: int) -> list[MeasuredCandidate]:
    """Every candidate of a table that the what-if has, with N partitions."""
    offered = set(what_if.candidates_of(table))
    found = [c for c in candidates if c.name in offered]
    rows = int(load_of(what_if, table, "table", partitions).sum())
    return [m for c in found if (m := _measured(what_if, table, c, partitions, rows)) is not None]


def load_of(what_if: WhatIf, table: str, candidate: str, partitions: int, *, weight: str = "rows") -> Load:
    """Load of one table (time buckets, partitions)."""
    return what_if.load(strategy=candidate, partitions=partitions, weight=weight, tables=[table])


def _measured(what_if: WhatIf, table: str, c: Candidate, partitions: int, rows: int) -> MeasuredCandidate | None:
    try:
        loads = {w: load_of(what_if, table, c.name, partitions, weight=w) for w in ("rows", "bytes")}
        frame = what_if.guarantees(strategy=c.name, partitions=partitions, tables=[table])
    except DispatchError:
        if not c.refused:
            raise
        return None  # conflict detection is run with a few partition counts only
    mine = [r for r in frame.to_dict("records") if r["table"] == table]
    return MeasuredCandidate(
        c,
        partitions,
        evenness(loads["rows"]),
        evenness(loads["bytes"]),
        rows - int(loads["rows"].sum()),
        {r["guarantee"]: (int(r["violations"]), int(r["cases"])) for r in mine},
        {r["guarantee"]: r["counterexample"] for r in mine if r["counterexample"]},
    )
