"""What a consumer's lanes show at any moment: where each row change stands, what was read, who waits, who is down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

Order = Literal["offset", "commit"]
Lane = tuple[str, int]

UNREAD, BUFFERED, APPLIED, THROWN = "not read yet", "buffered", "applied", "thrown away"
NEVER = 1 << 62
"""A time that does not come; exact as a float, too."""


@dataclass(frozen=True, slots=True)
class Seam:
    """Place of the last change that is applied and of the first that is not, and how many are not before the last."""

    ahead: float
    behind: float
    missing: int


@dataclass(frozen=True, eq=False, slots=True)
class LaneScene:
    """A run of the consumer model, laid out in lanes.

    Attributes
    ----------
    lanes
        Topic and partition, from the top.
    rows
        The row changes that are drawn: ``lane`` (its place), ``x``, ``dy``, ``commit_ts``, ``table``, ``offset``,
        ``outcome``, and when it was ``read_at``, ``applied_at`` and ``gone_at`` (µs; :data:`NEVER` where it was not).
    marks
        Watermarks and DDL that were read: ``lane, x, kind`` (``resolved`` or ``ddl``), ``at``, ``commit_ts``,
        ``detail``, and ``done_at`` when the DDL was executed.
    waits, downs
        Stretches of a lane: ``lane, x, since, until``, ``commit_ts`` and ``detail`` of what it waits for; ``crash`` or
        ``move`` for those that are down.
    changes
        Each change of the run once, however often delivered: ``x``, and ``first_at`` when it is applied first.
    written
        All row changes of the run that are applied, drawn or not: ``lane, x, applied_at``.
    total
        Row changes of the whole run.
    order
        What ``x`` is.
    end_us
        When the last thing drawn happens.
    """

    lanes: tuple[Lane, ...]
    rows: pd.DataFrame
    marks: pd.DataFrame
    waits: pd.DataFrame
    downs: pd.DataFrame
    changes: pd.DataFrame
    written: pd.DataFrame
    total: int
    order: Order
    end_us: int

    def states(self, at_us: int) -> npt.NDArray[np.object_]:
        """Where each of :attr:`rows` stands at a moment."""
        r = self.rows
        gone = (r["gone_at"] <= at_us).to_numpy()
        applied, read = (r["applied_at"] <= at_us).to_numpy(), (r["read_at"] <= at_us).to_numpy()
        return np.select([gone, applied, read], [THROWN, APPLIED, BUFFERED], UNREAD).astype(object)

    def fronts(self, at_us: int) -> dict[int, float]:
        """How far to the right each lane is applied at a moment; lanes of which nothing is applied are left out."""
        done = self.written[self.written["applied_at"] <= at_us]
        return {int(lane): float(x) for lane, x in done.groupby("lane")["x"].max().items()}

    def seam(self, at_us: int) -> Seam:
        """Where the applied changes end and the others begin, in the order of :attr:`order`."""
        x, done = self.changes["x"].to_numpy(), (self.changes["first_at"] <= at_us).to_numpy()
        ahead = float(x[done].max()) if done.any() else -np.inf
        behind = float(x[~done].min()) if not done.all() else np.inf
        return Seam(ahead, behind, int((~done & (x <= ahead)).sum()))

    def now(self, stretches: pd.DataFrame, at_us: int) -> pd.DataFrame:
        """Those of :attr:`waits` or :attr:`downs` that last at a moment."""
        return stretches[(stretches["since"] <= at_us) & (at_us < stretches["until"])]

    def moments(self, most: int) -> list[int]:
        """Times (µs) at which something changes, evenly thinned to ``most``; the first is 0."""
        times = [self.rows[c] for c in ("read_at", "applied_at", "gone_at")]
        times += [self.marks["at"], self.marks["done_at"]]
        times += [stretches[end] for stretches in (self.waits, self.downs) for end in ("since", "until")]
        found = np.unique(np.concatenate([[0], *[t.to_numpy(dtype=np.int64) for t in times]]))
        found = found[found <= self.end_us]
        chosen = np.unique(np.linspace(0, len(found) - 1, min(most, len(found))).round().astype(int))
        return [int(t) for t in found[chosen]]
